"""Bodies of any convex shape that touch one another, in closed form: rest, friction, tipping, collisions, energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Pose, shapes
from lgjax.multibody.build import Body, Joint, build

STEP = lgjax.contact.TimeStepping()
G = 9.81
HALF = 0.1
CUBE = 2 / 3 * HALF**2  # moment of inertia of a cube of 1 kg, kg m^2


def cart_and_box(mass=1.0, half=(HALF, HALF, HALF)):
    """A cart on a rail along x, which carries a free box of 1 kg."""
    h = np.asarray(half)
    cart = Body("cart", None, Joint("rail", "prismatic", (1, 0, 0)), mass=mass, inertia=np.eye(3))
    spin = np.diag((np.sum(h * h) - h * h) / 3)
    return build([cart, Body("box", None, Joint("free", "free"), mass=1.0, inertia=spin)])


def on_cart(model, half=(HALF, HALF, HALF), friction=0.4, table=(2.0, 0.5, 0.05), gap=0.0):
    """Contacts, and the configuration in which the box lies amid the cart."""
    pair = {"cart": shapes.box(table), "box": shapes.box(half)}
    contacts = lgjax.Contacts(model, (), pair, [("box", "cart")], friction)
    return contacts, lgjax.configuration(model, (jnp.eye(3), (0.0, 0.0, table[2] + half[2] + gap)), jnp.zeros(1))


def test_a_box_on_a_cart_is_carried_or_slips_as_friction_says():
    """A force F on the cart of mass M accelerates both by F / (M + m), at most mu g; beyond, (F - mu m g) / M."""
    model, mu, M = cart_and_box(3.0), 0.4, 3.0
    contacts, q = on_cart(model, friction=mu)
    order = [model.tree.v_start[model.tree.body_names.index(name)] for name in ("cart", "box")]

    def run(force):
        push = lambda t, q, v: jnp.zeros(7).at[order[0]].set(force)
        path = lgjax.rollout(model, q, jnp.zeros(7), push, 1e-3, 200, STEP, None, contacts=contacts)
        return path.v[-1], path.status, path.q.free_poses.translation[-1, 0, 2]

    forces = np.array([8.0, 15.0, 20.0, 40.0])
    v, status, height = map(np.asarray, jax.jit(jax.vmap(run))(forces))
    assert not np.any(status)
    sticks = forces / (M + 1) < mu * G
    np.testing.assert_array_equal(sticks, [True, True, False, False])
    cart = np.where(sticks, forces / (M + 1), (forces - mu * G) / M)
    np.testing.assert_allclose(v[:, order[0]], 0.2 * cart, rtol=1e-9)
    np.testing.assert_allclose(v[:, order[1] + 3], 0.2 * np.where(sticks, cart, mu * G), rtol=1e-9)
    np.testing.assert_allclose(height, 0.15, atol=1e-9)


def test_a_tall_box_on_a_cart_tips_where_its_corner_cannot_hold_it():
    """A box h high and w wide tips where the acceleration of the cart exceeds g w / h, if friction is larger."""
    half = (0.05, 0.05, 0.2)
    model = cart_and_box(1000.0, half)
    contacts, q = on_cart(model, half, friction=0.9)
    rail = model.tree.v_start[model.tree.body_names.index("cart")]
    free = model.tree.v_start[model.tree.body_names.index("box")]

    def run(acceleration):
        push = lambda t, q, v: jnp.zeros(7).at[rail].set(1001.0 * acceleration)
        path = lgjax.rollout(model, q, jnp.zeros(7), push, 1e-3, 100, STEP, None, contacts=contacts)
        return path.v[-1], path.status

    limit = G * half[0] / half[2]
    v, status = map(np.asarray, jax.jit(jax.vmap(run))(limit * np.array([0.5, 0.98, 1.02, 1.5])))
    assert not np.any(status)
    turning = np.abs(v[:, free + 1])
    assert np.all(turning[:2] < 1e-9)
    assert np.all(turning[2:] > 1e-3)


def free_pair(gravity=(0, 0, 0)):
    bodies = [
        Body(name, None, Joint(f"{name}_free", "free"), mass=mass, inertia=0.01 * mass * np.eye(3))
        for name, mass in (("a", 1.0), ("b", 2.0))
    ]
    return build(bodies, gravity=gravity)


KINDS = {
    "box-box": (shapes.box((0.1, 0.15, 0.2)), shapes.box(0.15)),
    "cylinder-ellipsoid": (shapes.cylinder(0.1, 0.2), shapes.ellipsoid((0.1, 0.15, 0.2))),
    "capsule-polyhedron": (
        shapes.capsule(0.05, 0.2),
        shapes.polyhedron(0.2 * np.array([[1, 1, 1], [-1, -1, 1], [-1, 1, -1], [1, -1, -1.0]]), rounding=0.02),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_collisions_keep_momentum_and_add_no_energy(kind):
    """Angular momentum, too, but for what moving two bodies apart changes, see `test_pairs.py`."""
    model = free_pair()
    first, second = KINDS[kind]
    contacts = lgjax.Contacts(model, (), {"a": first, "b": second}, [("a", "b")], 0.3, 1.0)
    mass = np.array([1.0, 2.0])
    world = lambda q, v: jnp.einsum("nij,nj->ni", q.free_poses.rotation, v.reshape(2, 6)[:, 3:])

    def moments(q, v):
        R, p = q.free_poses
        spin = 0.01 * mass[:, None] * jnp.einsum("nij,nj->ni", R, v.reshape(2, 6)[:, :3])
        linear = mass[:, None] * world(q, v)
        return jnp.sum(linear, 0), jnp.sum(jnp.cross(p, linear) + spin, 0)

    def run(turn, v):
        places = jnp.array([[0.0, 0.0, 0.0], [0.6, 0.05, 0.03]])
        R = lgjax.so3.exp(turn.reshape(2, 3))
        q = lgjax.neutral(model)._replace(free_poses=Pose(R, places))

        def step(state, _):
            found = lgjax.contact.contact_step(model, contacts, *state, jnp.zeros(12), 1e-3)
            energy = lgjax.kinetic_energy(model, found.q, found.v)
            start, end = (q.free_poses.translation for q in (state[0], found.q))
            lift = end - start - 0.5e-3 * (world(*state) + world(found.q, found.v))  # what neither velocity explains
            turned = jnp.sum(jnp.cross(lift, mass[:, None] * world(found.q, found.v)), 0)
            return (found.q, found.v), (*moments(found.q, found.v), turned, energy, found.impulse, found.status)

        before = *moments(q, v), lgjax.kinetic_energy(model, q, v)
        return before, jax.lax.scan(step, (q, v), None, length=300)[1]

    rng = np.random.default_rng(3)
    turns = rng.normal(size=(4, 6))
    v = 0.5 * rng.normal(size=(4, 12)) + np.array([0, 0, 0, 2.0, 0, 0, 0, 0, 0, -2.0, 0, 0])
    R = np.asarray(lgjax.so3.exp(jnp.asarray(turns.reshape(4, 2, 3))))
    v = v.reshape(4, 2, 6)
    v[..., 3:] = np.einsum("knji,knj->kni", R, v[..., 3:])  # toward each other in the world
    start, (linear, angular, turned, energy, impulse, status) = jax.jit(jax.vmap(run))(turns, v.reshape(4, 12))
    assert np.all(np.max(impulse[..., 0], (1, 2)) > 0.1)  # they meet
    assert not np.any(np.asarray(status) & ~int(lgjax.contact.ContactStatus.AT_ONCE))
    np.testing.assert_allclose(linear, np.broadcast_to(start[0][:, None], linear.shape), atol=1e-12)
    np.testing.assert_allclose(angular - start[1][:, None], np.cumsum(turned, 1), atol=1e-12)
    before = np.concatenate([start[2][:, None], energy[:, :-1]], 1)
    assert np.max(np.asarray(energy) - before) < 1e-12


def test_boxes_stay_on_each_other():
    """Two boxes, the upper one aside, on a table that is held: no drift, and each carries the load of those above."""
    bodies = [Body("table", None, Joint("lift", "prismatic", (0, 0, 1)), mass=1.0, inertia=np.eye(3))]
    bodies += [Body(f"box{k}", None, Joint(f"free{k}", "free"), mass=1.0, inertia=CUBE * np.eye(3)) for k in range(2)]
    model = build(bodies)
    solid = {"table": shapes.box((0.5, 0.5, HALF)), "box0": shapes.box(HALF), "box1": shapes.box(HALF)}
    contacts = lgjax.Contacts(model, (), solid, [("box0", "table"), ("box1", "box0")], 0.5)
    places = jnp.array([[0.0, 0.0, 2 * HALF], [0.02, 0.01, 4 * HALF]])
    upright = jnp.broadcast_to(jnp.eye(3), (2, 3, 3))
    q = lgjax.configuration(model, (upright, places), jnp.zeros(1))
    lift = model.tree.v_start[0]
    hold = lambda t, q, v: jnp.zeros(13).at[lift].set(3 * G)
    run = lambda q: lgjax.rollout(model, q, jnp.zeros(13), hold, 2e-3, 500, STEP, None, contacts=contacts)
    path = jax.jit(run)(q)
    assert path.status == 0
    np.testing.assert_allclose(path.q.free_poses.translation[-1], places, atol=1e-10)
    force = np.asarray(path.contacts.force[-1])
    np.testing.assert_allclose([np.sum(force[:4, 0]), np.sum(force[4:, 0])], [2 * G, G], rtol=1e-9)


def test_a_cube_between_two_fingers_slips_where_friction_cannot_hold_it():
    """Two fingers that press with N each hold a weight m g as long as 2 mu N > m g. The cube cannot turn: how the
    four points of a face share their load, and so which way it would turn as it slips, is not determined."""
    fingers = [
        Body(name, None, Joint(f"{name}_slide", "prismatic", (1, 0, 0)), mass=0.2, inertia=0.01 * np.eye(3))
        for name in ("left", "right")
    ]
    cube = Body("cube", None, Joint("fall", "prismatic", (0, 0, 1)), mass=1.0, inertia=CUBE * np.eye(3))
    model = build([*fingers, cube])
    at = lambda x: shapes.placed(shapes.box((0.02, 0.05, 0.05)), Pose(jnp.eye(3), jnp.array([x, 0.0, 0.0])))
    solid = {"left": at(-HALF - 0.02), "right": at(HALF + 0.02), "cube": shapes.box(HALF)}
    contacts = lgjax.Contacts(model, (), solid, [("cube", "left"), ("cube", "right")], 0.5)
    q = lgjax.configuration(model, joints=jnp.zeros(3))
    starts = {name: model.tree.v_start[model.tree.body_names.index(name)] for name in ("left", "right", "cube")}

    def run(press):
        grip = lambda t, q, v: jnp.zeros(3).at[starts["left"]].set(press).at[starts["right"]].set(-press)
        path = lgjax.rollout(model, q, jnp.zeros(3), grip, 1e-3, 100, STEP, None, contacts=contacts)
        return path.v[-1, starts["cube"]], path.status

    press = G * np.array([2.0, 1.01, 0.99, 0.5])
    v, status = map(np.asarray, jax.jit(jax.vmap(run))(press))
    assert not np.any(status)
    np.testing.assert_allclose(v, 0.1 * np.minimum(press - G, 0), atol=1e-9)


def test_gaps_of_pairs_have_the_derivatives_of_differences():
    model = free_pair()
    contacts = lgjax.Contacts(model, (), {"a": shapes.box(0.1), "b": shapes.box(0.2)}, [("a", "b")])
    R = jnp.stack([jnp.eye(3), lgjax.so3.exp(jnp.array([0.03, 0.02, 0.4]))])
    q = lgjax.neutral(model)._replace(free_poses=Pose(R, jnp.array([[0.0, 0, 0], [0.05, 0.02, 0.32]])))

    def of(x):
        found = lgjax.contact.contact_points(model, contacts, lgjax.retract(model, q, x))
        return found.gap, found.point, found.frame

    jacobian, eps = jax.jit(jax.jacfwd(of))(jnp.zeros(12)), 1e-6
    there = jax.jit(jax.vmap(of))(eps * jnp.concatenate([jnp.eye(12), -jnp.eye(12)]))
    for found, ends in zip(jacobian, there, strict=True):
        differences = jnp.moveaxis((ends[:12] - ends[12:]) / (2 * eps), 0, -1)
        np.testing.assert_allclose(found, differences, atol=1e-7)
