"""What an impact does to the momenta of a body, against the equations that define it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax import Pose, so3
from lgjax.collisions.impact import (
    ContactPoint,
    Laws,
    approach_rate,
    arm,
    contact_velocity,
    impact,
    lagrangian_impact,
    part_within,
)
from lgjax.collisions.variational import (
    RigidState,
    discrete_energy,
    discrete_lagrangian,
    rigid_body,
    total_energy,
    variational_step,
)

SAMPLES = 200
hit = jit(jax.vmap(impact, (0, 0, 0, None)))
energy = jax.vmap(total_energy)
speed = jax.vmap(contact_velocity)


def approaching(dtype=jnp.float64, seed=0):
    """Random bodies, contact points and normals, all approaching; arrays with a leading axis."""
    rng = np.random.default_rng(seed)
    array = lambda x: jnp.asarray(x, dtype)
    inertia = rng.uniform(0.5, 1.0, (SAMPLES, 3))
    turns = np.asarray(so3.exp(jnp.asarray(rng.normal(size=(SAMPLES, 3)))))
    tilted = np.einsum("nij,nj,nkj->nik", turns, inertia, turns)
    gravity = np.tile([0.0, 0.0, -9.81], (SAMPLES, 1))
    bodies = jax.vmap(lambda m, j, g: rigid_body(m, j, g, dtype=dtype))(
        array(rng.uniform(0.5, 2.0, SAMPLES)), array(tilted), array(gravity)
    )
    normals = rng.normal(size=(SAMPLES, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    pose = Pose(so3.exp(array(rng.normal(size=(SAMPLES, 3)))), array(rng.normal(size=(SAMPLES, 3))))
    states = RigidState(pose, array(rng.normal(size=(SAMPLES, 3))), array(rng.normal(size=(SAMPLES, 3))))
    zero = jnp.zeros(SAMPLES, dtype)
    flat, index = jnp.zeros(SAMPLES, bool), jnp.zeros(SAMPLES, jnp.int32)
    contacts = ContactPoint(zero, array(rng.normal(size=(SAMPLES, 3))), array(normals), flat, index)
    rates = jax.vmap(approach_rate)(bodies, states, contacts)
    # Turn the normal of those that recede: they approach the other side.
    contacts = contacts._replace(normal=jnp.where(rates[:, None] > 0, -contacts.normal, contacts.normal))
    return bodies, states, contacts


def laws(restitution=1.0, friction=None, dtype=jnp.float64):
    return Laws(jnp.asarray(restitution, dtype), None if friction is None else jnp.asarray(friction, dtype))


def impulses(before, after):
    return np.asarray(after.linear - before.linear)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_an_elastic_impact_keeps_the_energy_and_the_tangential_momentum(dtype):
    bodies, states, contacts = approaching(dtype)
    after, sizes = hit(bodies, states, contacts, laws(dtype=dtype))
    eps = float(jnp.finfo(dtype).eps)
    assert after.linear.dtype == dtype
    np.testing.assert_allclose(energy(bodies, after), energy(bodies, states), atol=100 * eps)
    change = impulses(states, after)
    np.testing.assert_allclose(change, sizes[:, None] * contacts.normal, atol=20 * eps)
    assert np.all(sizes > 0)
    chi = jax.vmap(arm)(contacts, states.pose)
    np.testing.assert_allclose(after.angular - states.angular, sizes[:, None] * chi, atol=50 * eps)


def test_the_impulse_is_that_of_the_closed_form():
    """λ = -2 (χ·J⁻¹Π + n·γ/m)/(χ·J⁻¹χ + 1/m), by NumPy from the definitions."""
    bodies, states, contacts = approaching()
    _, sizes = hit(bodies, states, contacts, laws())
    for i in range(SAMPLES):
        inverse = np.linalg.inv(bodies.inertia[i])
        n = np.asarray(contacts.normal[i])
        chi = np.cross(contacts.point[i], np.asarray(states.pose.rotation[i]).T @ n)
        mass = float(bodies.mass[i])
        rate = chi @ inverse @ states.angular[i] + n @ states.linear[i] / mass
        np.testing.assert_allclose(sizes[i], -2 * rate / (chi @ inverse @ chi + 1 / mass), rtol=1e-12)


@pytest.mark.parametrize("friction", [None, 0.0, 0.3, 5.0])
@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_impacts_of_every_law_gain_no_energy_and_stay_in_the_cone(restitution, friction):
    bodies, states, contacts = approaching()
    after, sizes = hit(bodies, states, contacts, laws(restitution, friction))
    gains = np.asarray(energy(bodies, after) - energy(bodies, states))
    assert gains.max() < 1e-13
    change, normal = impulses(states, after), np.asarray(contacts.normal)
    tangential = change - np.sum(change * normal, axis=1, keepdims=True) * normal
    assert np.all(np.asarray(sizes) > 0)
    limit = (friction or 0.0) * np.asarray(sizes)
    assert np.all(np.linalg.norm(tangential, axis=1) <= limit * (1 + 1e-12) + 1e-14)
    if not friction:
        rates = [np.asarray(jax.vmap(approach_rate)(bodies, s, contacts)) for s in (states, after)]
        np.testing.assert_allclose(rates[1], -restitution * rates[0], atol=1e-13)
    elif restitution < 1:
        assert gains.max() < -1e-9  # friction and restitution both take


def test_friction_that_is_zero_is_no_friction():
    bodies, states, contacts = approaching()
    without, with_zero = (hit(bodies, states, contacts, laws(0.7, friction))[0] for friction in (None, 0.0))
    np.testing.assert_array_equal(without.linear, with_zero.linear)
    np.testing.assert_array_equal(without.angular, with_zero.angular)


def test_a_plastic_impact_with_much_friction_sticks():
    """Where the impulse that stops the contact point pushes; where it would have to pull nothing can stick."""
    bodies, states, contacts = approaching()
    after, _ = hit(bodies, states, contacts, laws(0.0, 1e6))
    lever = np.einsum("nij,njk->nik", states.pose.rotation, so3.hat(contacts.point))
    yielding = np.eye(3) / np.asarray(bodies.mass)[:, None, None]
    yielding = yielding + lever @ np.linalg.inv(bodies.inertia) @ lever.swapaxes(1, 2)
    stopping = -np.linalg.solve(yielding, np.asarray(speed(bodies, states, contacts))[..., None])[..., 0]
    pushes = np.sum(stopping * contacts.normal, axis=1) > 1e-3
    assert pushes.mean() > 0.7
    np.testing.assert_allclose(np.asarray(speed(bodies, after, contacts))[pushes], 0.0, atol=1e-12)
    np.testing.assert_allclose(impulses(states, after)[pushes], stopping[pushes], atol=1e-12)


@pytest.mark.parametrize("friction", [0.05, 0.1, 0.5])
def test_a_sliding_ball_follows_the_closed_form(friction):
    """A ball that comes in with slip u loses min(μ (1 + e) v, 2u/7) of its tangential velocity."""
    radius, mass, restitution, down, along = 0.3, 2.0, 0.6, 1.5, 2.0
    body = rigid_body(mass, (0.4 * mass * radius**2,) * 3)
    state = RigidState(Pose(jnp.eye(3), jnp.zeros(3)), jnp.zeros(3), mass * jnp.array([along, 0.0, -down]))
    point, normal = jnp.array([0.0, 0.0, -radius]), jnp.array([0.0, 0.0, 1.0])
    contact = ContactPoint(jnp.zeros(()), point, normal, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    after, _ = impact(body, state, contact, laws(restitution, friction))
    loss = min(friction * (1 + restitution) * down, 2 * along / 7)
    np.testing.assert_allclose(after.linear / mass, [along - loss, 0.0, restitution * down], atol=1e-14)
    np.testing.assert_allclose(after.angular, [0.0, radius * mass * loss, 0.0], atol=1e-14)


@pytest.mark.parametrize("friction", [None, 0.5])
def test_a_receding_body_is_left_alone(friction):
    bodies, states, contacts = approaching()
    away = contacts._replace(normal=-contacts.normal)
    after, sizes = hit(bodies, states, away, laws(0.5, friction))
    np.testing.assert_array_equal(sizes, 0.0)
    np.testing.assert_array_equal(after.linear, states.linear)
    np.testing.assert_array_equal(after.angular, states.angular)


def test_derivatives_are_finite_without_slip_and_at_rest():
    bodies, states, contacts = approaching()
    body, state, contact = (jax.tree.map(lambda x: x[0], tree) for tree in (bodies, states, contacts))
    still = RigidState(state.pose, jnp.zeros(3), jnp.zeros(3))
    straight = RigidState(state.pose, jnp.zeros(3), -contact.normal)
    central = contact._replace(point=-0.3 * (state.pose.rotation.T @ contact.normal))
    for s, c in ((still, contact), (straight, central), (state, contact)):
        slopes = jax.jacrev(lambda s, c=c: impact(body, s, c, laws(0.8, 0.4))[0])(s)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))


def discrete_energy_by_definition(body, start, end, h):
    """Kinetic energy of the mean velocities (x1 - x0)/h and (F - I)/h, and the mean of both potentials, by NumPy."""
    inertia, mass, gravity = (np.asarray(x) for x in (body.inertia, body.mass, body.gravity))
    second = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    (r0, x0), (r1, x1) = (tuple(np.asarray(x) for x in pose) for pose in (start, end))
    turning = np.trace((np.eye(3) - r0.T @ r1) @ second) / h**2
    return 0.5 * mass * np.sum((x1 - x0) ** 2) / h**2 + turning - 0.5 * mass * gravity @ (x0 + x1)


def test_the_lagrangian_form_satisfies_the_discrete_impact_equations():
    """Table 1 (a), F^i: the action of both parts of the step varies along the gradient of the gap alone; the exact
    energies agree to round-off, the discrete ones of both parts to second order in the step."""
    body = rigid_body(1.5, (0.9, 1.7, 1.3))
    start = RigidState(
        Pose(so3.exp(jnp.array([0.4, -0.7, 0.3])), jnp.array([0.2, 0.5, 1.0])),
        jnp.array([0.5, 1.4, -0.8]),
        jnp.array([0.7, -0.4, -1.9]),
    )
    point, normal = jnp.array([0.1, 0.3, -0.4]), jnp.array([0.6, 0.0, 0.8])
    contact = ContactPoint(jnp.zeros(()), point, normal, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    step, after = jit(variational_step), jit(lagrangian_impact)

    def action(turn, shift, h, touching, end):
        pose = Pose(touching.pose.rotation @ so3.exp(turn), touching.pose.translation + shift)
        first = discrete_lagrangian(body, start.pose, pose, 0.7 * h)
        return first + discrete_lagrangian(body, pose, end, 0.3 * h)

    varied = jit(jax.grad(action, (0, 1)))
    sizes, mismatches = np.array([0.04, 0.02, 0.01, 0.005]), []
    for h in sizes:
        touching, _ = step(body, start, 0.7 * h)
        end, size = after(body, start.pose, touching.pose, 0.7 * h, 0.3 * h, contact, laws())
        moment, force = varied(jnp.zeros(3), jnp.zeros(3), h, touching, end)
        np.testing.assert_allclose(force, -size * normal, atol=1e-11)
        np.testing.assert_allclose(moment, -size * arm(contact, touching.pose), atol=1e-11)
        struck, direct = impact(body, touching, contact, laws())
        np.testing.assert_allclose(size, direct, rtol=1e-11)
        np.testing.assert_allclose(total_energy(body, struck), total_energy(body, touching), rtol=1e-14)
        np.testing.assert_allclose(step(body, struck, 0.3 * h)[0].pose.rotation, end.rotation, atol=1e-13)
        energies = []
        for parts in ((start.pose, touching.pose, 0.7 * h), (touching.pose, end, 0.3 * h)):
            energies.append(discrete_energy_by_definition(body, *parts))
            np.testing.assert_allclose(discrete_energy(body, *parts), energies[-1], rtol=1e-10)
        mismatches.append(abs(energies[1] - energies[0]))
    orders = np.diff(np.log(mismatches)) / np.diff(np.log(sizes))
    assert np.all(np.abs(orders - 2) < 0.01), (orders, mismatches)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_the_part_of_an_impulse_within_the_cone(dtype):
    """It is 1 or the largest with |part t| = limit + part gain, however small all of them are."""
    t = np.asarray([[3.0, 4.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    limit, gain = np.asarray([1.0, 1.0, 1.0, 0.0]), np.asarray([0.5, -0.2, 0.0, -0.5])
    expected = [1 / 4.5, 1.0, 1.0, 0.0]
    for size in (1.0, 1e-10, 1e-25, 1e-37):
        found = part_within(*(jnp.asarray(size * x, dtype) for x in (t, limit, gain)))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("friction", [0.0, 0.3])
@pytest.mark.parametrize("speed", [-1.0, -1e-6, -1e-12, -1e-25, 0.0, 1.0])
def test_second_derivatives_of_an_impact_with_friction_in_float32(speed, friction):
    """Finite however slowly the body slides or approaches, and close to those of float64."""
    slips = np.asarray([0.0, 1e-30, 1e-25, 1e-19, 1e-12, 1e-6, 1.0])

    def curve(slip, dtype):
        body = rigid_body(1.0, jnp.diag(jnp.asarray([0.02, 0.03, 0.04], dtype)), dtype=dtype)
        array = lambda *x: jnp.asarray(x, dtype)

        def impulse(x):
            pose = Pose(so3.exp(x[:3]), jnp.zeros(3, dtype))
            state = RigidState(pose, slip * array(0.02, 0, 0), array(0, 0, speed) + slip * array(0.3, 0.4, 0) + x[3:6])
            none = jnp.zeros((), jnp.int32)
            contact = ContactPoint(array(0)[0], array(0.05, 0.0, -0.2), array(0, 0, 1), none > 0, none)
            after, normal = impact(body, state, contact, Laws(array(0.5)[0], array(friction)[0] + x[6] * friction))
            return jnp.concatenate([after.angular, after.linear, normal[None]])

        along, x = jnp.linspace(0.3, 1.0, 7, dtype=dtype), jnp.zeros(7, dtype)
        slope = lambda x: jax.jacrev(impulse)(x) @ along
        return jax.jvp(slope, (x,), (along,))

    of = lambda dtype: jit(jax.vmap(lambda slip: curve(slip, dtype)))(jnp.asarray(slips, dtype))
    single, exact = ([np.asarray(x) for x in of(dtype)] for dtype in (jnp.float32, jnp.float64))
    for a, b in zip(single, exact, strict=True):
        assert np.all(np.isfinite(a))
        sure = np.maximum(slips, abs(speed)) > 1e-17  # below, the cone is held
        np.testing.assert_allclose(a[sure], b[sure], atol=1e-4 * np.abs(b).max(), rtol=1e-3)
