"""Bodies that collide in pairs: what a step keeps, by how much it does not, and balls that touch in a row."""

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.multibody.build import Body, Joint, build

STEP = lgjax.contact.TimeStepping()
MASS, RADIUS = np.array([1.0, 2.0]), 0.1
SPIN = 0.4 * RADIUS**2 * MASS


def balls():
    bodies = [
        Body(name, None, Joint(f"{name}_free", "free"), mass=mass, inertia=spin * np.eye(3))
        for name, mass, spin in zip("ab", MASS, SPIN, strict=True)
    ]
    model = build(bodies, gravity=(0, 0, 0))
    return model, lgjax.Contacts(
        model, (), {name: lgjax.shapes.sphere(RADIUS) for name in "ab"}, [("a", "b")], 0.5, 0.0
    )


def test_pairs_keep_momentum_and_turn_it_only_where_they_are_moved_apart():
    """Moving two bodies apart by d along their normal n changes the angular momentum by m d n x (v_a - v_b), with m the
    mass that the contact moves. Where the bounce itself parts them there is nothing to move, and all of it is kept.
    """
    model, contacts = balls()
    places = jnp.array([[0.0, 0.0, 0.0], [0.5, 0.08, 0.03]])
    q = lgjax.neutral(model)._replace(free_poses=lgjax.Pose(jnp.broadcast_to(jnp.eye(3), (2, 3, 3)), places))
    v = jnp.array([0.3, 0.2, 5.0, 2.0, 0.1, 0.0, 0.0, 1.0, -3.0, -1.0, 0.0, 0.2])

    def moments(q, v):
        R, p = q.free_poses
        w, u = (jnp.einsum("nij,nj->ni", R, part) for part in (v.reshape(2, 6)[:, :3], v.reshape(2, 6)[:, 3:]))
        linear = MASS[:, None] * u
        return jnp.sum(linear, 0), jnp.sum(jnp.cross(p, linear) + SPIN[:, None] * w, 0)

    def run(restitution, friction, dt):
        here = contacts.replace(friction=friction, restitution=restitution)

        def step(state, _):
            found = lgjax.contact.contact_step(model, here, *state, jnp.zeros(12), dt)
            before, after = (q.free_poses.translation for q in (state[0], found.q))
            flown = before + 0.5 * dt * (world(*state) + world(found.q, found.v))
            lift = after - flown  # what neither velocity explains
            expected = jnp.sum(jnp.cross(lift, MASS[:, None] * world(found.q, found.v)), 0)
            return (found.q, found.v), (*moments(found.q, found.v), expected, found.impulse[0])

        world = lambda q, v: jnp.einsum("nij,nj->ni", q.free_poses.rotation, v.reshape(2, 6)[:, 3:])
        return jax.lax.scan(step, (q, v), None, length=200)[1]

    e, mu = jnp.array([1.0, 0.5, 0.0, 0.0]), jnp.array([0.0, 0.5, 0.0, 0.5])
    linear, angular, lifted, impulse = map(np.asarray, jax.jit(jax.vmap(lambda e, mu: run(e, mu, 2e-3)))(e, mu))
    assert np.all(np.max(impulse[..., 0], 1) > 1)  # they meet
    first = moments(q, v)
    np.testing.assert_allclose(linear, np.broadcast_to(first[0], linear.shape), atol=1e-12)
    change = angular - np.asarray(first[1])
    assert np.max(np.abs(change[:2])) < 1e-12
    np.testing.assert_allclose(change, np.cumsum(lifted, 1), atol=1e-12)
    assert 1e-4 < np.max(np.abs(change[2:])) < 2e-3  # of 0.3 kg m^2/s; the page names it


def test_balls_that_touch_in_a_row_bounce_by_newtons_law_at_once():
    """Each normal velocity changes its sign, and where balls rest against each other none comes of it: the solution of
    three equations, which keeps energy and momentum; one impact after the other would give (0, 0, 1).
    """
    bodies = [
        Body(name, None, Joint(f"{name}_x", "prismatic", (1, 0, 0)), mass=1.0, inertia=np.eye(3)) for name in "abc"
    ]
    model = build(bodies, gravity=(0, 0, 0))
    shapes = {name: lgjax.shapes.sphere(RADIUS) for name in "abc"}
    contacts = lgjax.Contacts(model, (), shapes, [("a", "b"), ("b", "c")], 0.0, 1.0)

    def end(gap):
        q = lgjax.configuration(model, joints=jnp.stack([gap * 0, 0.2003 + gap * 0, 0.4003 + gap]))
        path = lgjax.rollout(model, q, jnp.array([1.0, 0, 0]), None, 1e-3, 20, STEP, None, contacts=contacts)
        return path.v[-1], path.status

    v, status = jax.jit(jax.vmap(end))(jnp.array([0.0, 5e-3]))
    np.testing.assert_array_equal(status, [int(lgjax.contact.ContactStatus.AT_ONCE), 0])
    np.testing.assert_allclose(v[0], [-1 / 3, 2 / 3, 2 / 3], atol=1e-9)
    np.testing.assert_allclose(v[1], [0, 0, 1], atol=1e-9)


def test_a_fast_turn_leaves_a_penetration_of_second_order_in_the_step():
    """A rod falls over about a hinge at height 0, until its tip meets a floor at height z. A step stops the tip on the
    tangent of its circle, and the circle is lower by up to z (w dt)^2 / 8. The next step moves it out."""
    z, length, speed = 0.3, 0.5, 10.0
    hinge = Joint("hinge", "revolute", axis=(0, 1, 0))
    rod = build([Body("rod", None, hinge, mass=1.0, com=(0, 0, 0.25), inertia=0.01 * np.eye(3))], gravity=(0, 0, 0))
    floor = lgjax.shapes.Plane((0.0, 0.0, 1.0), -z)
    contacts = lgjax.Contacts(rod, floor, {"rod": lgjax.shapes.sphere(1e-3, (0, 0, length))}, (), 0.0)
    meets = np.arccos((z + 1e-3) / length)

    def run(early, dt):
        q = lgjax.configuration(rod, joints=jnp.reshape(meets - early * speed * dt, (1,)))
        path = lgjax.rollout(rod, q, jnp.array([speed]), None, dt, 8, STEP, contacts=contacts)
        return path.contacts.gap[:, 0], path.status

    run = jax.jit(jax.vmap(run, in_axes=(0, None)))
    for dt in (2e-3, 1e-3):
        gap, status = map(np.asarray, run(jnp.linspace(1.0, 3.0, 64), dt))
        assert not np.any(status)
        bound = z * (speed * dt) ** 2 / 8
        assert 0.8 * bound < -np.min(gap) < 1.1 * bound
        assert np.min(gap[:, -1]) > -1e-6 * bound


def balls_on_a_rail(masses):
    """A model of a ball of 0.1 m above the floor and one of 0.02 m above it, and their contacts."""
    rail = lambda name, mass: Body(
        name, None, Joint(f"{name}_rail", "prismatic", (0, 0, 1.0)), mass=mass, inertia=np.eye(3)
    )
    model = build([rail("big", masses[0]), rail("small", masses[1])])
    shapes = {"big": lgjax.shapes.sphere(0.1), "small": lgjax.shapes.sphere(0.02)}
    floor = lgjax.shapes.Plane((0.0, 0.0, 1.0))
    return model, lgjax.Contacts(model, floor, shapes, [("big", "small")], 0.0, 1.0)


def test_an_impact_counts_as_passed_on_where_it_outweighs_the_own_motion():
    """The floor stops the heavy ball and drives it against the light one at 1 m/s; that comes by itself, too."""
    model, contacts = balls_on_a_rail((100.0, 0.1))
    q = lgjax.configuration(model, joints=jnp.array([0.1, 0.22]))
    step = lambda closing: lgjax.rollout(
        model, q, jnp.stack([-1.0, -1.0 - closing]), None, 1e-3, 1, STEP, contacts=contacts
    )
    closing = jnp.array([0.1, 0.9, 1.1, 3.0])
    at_once = int(lgjax.contact.ContactStatus.AT_ONCE)
    np.testing.assert_array_equal(jax.vmap(step)(closing).status, [at_once, at_once, 0, 0])


def test_a_step_says_when_impacts_at_once_stand_for_one_after_the_other():
    """A light ball above a heavy one falls on the floor: one after the other, it flies off at (3 M - m) / (M + m) of
    the speed of the fall, also where the step finds both impacts. Balls at rest, and those that do not bounce, pass
    on nothing that counts.
    """
    mass, speed = (100.0, 0.1), np.sqrt(2 * 9.81)
    model, contacts = balls_on_a_rail(mass)

    @jax.jit
    @jax.vmap
    def run(height, gap, restitution):
        q = lgjax.configuration(model, joints=jnp.stack([0.1 + height, 0.22 + height + gap]))
        here = contacts.replace(restitution=restitution)
        path = lgjax.rollout(model, q, jnp.zeros(2), None, 2e-4, 2500, STEP, save_every=50, contacts=here)
        return jnp.max(path.v[:, 1]), path.status, path.success

    height, gap = np.array([1.0, 1, 1, 1, 0, 0, 0]), np.array([5e-3, 1e-4, 0, 1e-4, 0, 0, 1e-9])
    fastest, status, success = run(height, gap, np.array([1.0, 1, 1, 0, 1, 0.5, 0.9]))
    at_once = int(lgjax.contact.ContactStatus.AT_ONCE)
    np.testing.assert_array_equal(status, [0, at_once, at_once, 0, 0, 0, 0])
    assert np.all(success)
    exact = (3 * mass[0] - mass[1]) / (mass[0] + mass[1]) * speed
    np.testing.assert_allclose(fastest[0], exact, rtol=0.02)  # the last save before is 10 ms later
    assert np.all(fastest[1:3] < 0.8 * exact)
