"""Derivatives through sliding, rolling, impact, bounce and smoothed contact are those of central differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact import contact_points, step
from lgjax.contact.cones.law import ConeProblem, scaled_disc
from lgjax.contact.cones.solver import solve_cones
from tests.contact.test_closed_forms import STEP, ball, on_floor
from tests.contact.test_rows import mechanism

# velocity (6,), friction, restitution, smoothing, height over the floor at the start
CASES = {
    "slides": ([1, 2, 0.5, 1.0, 0.3, 0.0], 0.3, 0.0, 0.0, -1e-5),
    "rolls": ([0, 20, 0, 2.0, 0, 0.0], 0.6, 0.0, 0.0, -1e-5),
    "lands": ([1, 2, 0.5, 1.0, 0.3, -1.0], 0.3, 0.0, 0.0, 0.02),
    "bounces": ([1, 2, 0.5, 1.0, 0.3, -1.0], 0.3, 0.7, 0.0, 0.02),
    "is near": ([1, 2, 0.5, 1.0, 0.3, 0.0], 0.3, 0.0, 1e-4, 0.001),
    "flies": ([1, 2, 0.5, 1.0, 0.3, 0.0], 0.3, 0.0, 0.0, 1.0),
    "is let go": ([0, 0, 0, 0, 0, 0], 0.3, 0.0, 0.0, 1.0),
    "rests": ([0, 0, 0, 0, 0, 0], 0.3, 0.0, 0.0, 0.0),
}


def test_gradients_equal_central_differences():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.0, 0.0)

    def end(x):
        here = contacts.replace(friction=x[6], restitution=x[7], smoothing=x[8])
        place = jnp.stack([jnp.zeros_like(x[9]), jnp.zeros_like(x[9]), 0.1 + x[9]])
        q = lgjax.configuration(ball(), (jnp.eye(3), place))
        path = lgjax.rollout(ball(), q, x[:6], None, 2e-3, 20, STEP, None, contacts=here)
        place = path.q.free_poses.translation[-1, 0]
        return jnp.sum(path.v[-1] * jnp.arange(1.0, 7.0)) + jnp.sum(place * jnp.array([3.0, 5.0, 7.0]))

    points = jnp.asarray([[*v, *numbers] for v, *numbers in CASES.values()])
    found = jax.jit(jax.vmap(jax.grad(end)))(points)
    assert np.all(np.isfinite(found))
    step = 5e-8 * jnp.concatenate([jnp.eye(10)[:7], jnp.eye(10)[9:]])
    both = jnp.concatenate([step, -step])
    values = jax.jit(jax.vmap(end))((points[:, None] + both).reshape(-1, 10)).reshape(len(points), 2, len(step))
    slopes = (values[:, 0] - values[:, 1]) / 1e-7
    gradients = jnp.concatenate([found[:, :7], found[:, 9:]], 1)
    for k, name in enumerate(CASES):
        if name != "rests":  # where the one-sided derivatives differ, they are finite
            size = 1 + jnp.abs(slopes[k]).max()
            np.testing.assert_allclose(gradients[k], slopes[k], atol=3e-6 * size, err_msg=name)
    near = list(CASES).index("is near")
    assert abs(gradients[near, 6]) > 1e-3  # it feels the friction of a contact that is not closed


def test_a_body_that_hardly_moves_has_derivatives_in_float32():
    """The energy of a ball at 1e-13 m/s is 1e-26 J, the square of which is no number of float32."""
    energy, excess = jnp.asarray([1e-26, 0.0, 2.0], jnp.float32), jnp.asarray([0.0, 0.0, 0.5], jnp.float32)
    slopes = jax.jit(jax.vmap(jax.grad(step._factor, (0, 1))))(energy, excess)
    np.testing.assert_allclose(slopes[0], [0, 0, 0.5 * 0.5 / 4 / 0.75**0.5], rtol=1e-6)
    np.testing.assert_allclose(slopes[1], [-0.5 / 1e-26, 0, -0.5 / 2 / 0.75**0.5], rtol=1e-6)
    both = jax.jit(jax.vmap(jax.hessian(step._factor, (0, 1))))(energy, excess)
    assert np.isfinite(both).all()
    root = 0.75**0.5  # of (1 - excess / energy): its second derivatives, by hand
    by_energy, mixed = -0.25 / 4 / root**3 / 16 - 0.5 / 8 / root, 0.125 / root + 0.25 / 4 / root**3 / 4
    np.testing.assert_allclose(both[0][0][2], by_energy, rtol=1e-5)
    np.testing.assert_allclose([both[0][1][2], both[1][0][2]], mixed, rtol=1e-5)
    np.testing.assert_allclose(both[1][1][2], -0.25 / 4 / root**3, rtol=1e-5)


def test_what_is_kept_of_a_speed_that_hardly_is_one():
    """The factor of a ball that slows down at 1e-13 m/s: its slope by the speed is as at 1 m/s, times 1e13."""
    slope = lambda s: jax.grad(lambda v: step._factor(0.5 * v * v, 0.2 * s * s))(s)
    expected = slope(jnp.asarray(1.0, jnp.float32))
    np.testing.assert_allclose(slope(jnp.asarray(1e-13, jnp.float32)) * 1e-13, expected, rtol=1e-5)


def test_second_derivatives_of_contacts_that_hardly_move_in_float32():
    """Impulses are proportional to speeds, so their second derivatives are to the inverse of these."""
    draw, dtype = np.random.default_rng(0).normal(size=(3, 5)), jnp.float32
    G = jnp.asarray(draw @ draw.T / 5 + np.eye(3), dtype)

    def impulses(b):
        none = jnp.zeros(0, dtype)
        problem = ConeProblem(G, b, jnp.full(1, 0.5, dtype), none, none, jnp.zeros(1, dtype))
        return solve_cones(problem, jnp.zeros(3, dtype), jnp.asarray(True), jnp.abs(b).max(), 1e-6, 200).x

    b = jnp.asarray([-1.0, 0.8, -0.3], dtype)  # it slides
    second = jax.jit(jax.hessian(lambda b: impulses(b) @ jnp.asarray([0.3, -0.7, 1.1], dtype)))
    expected = second(b)
    assert np.abs(expected).max() > 0.1
    for size in (1e-6, 1e-12, 1e-14, 1e-16):
        np.testing.assert_allclose(second(size * b) * size, expected, atol=1e-5)
    assert np.isfinite(second(1e-25 * b)).all()


def test_friction_without_a_limit():
    """No tangential impulse is too large then."""
    x, radius = jnp.asarray([1.0, 0.0, 1e-30]), jnp.asarray([jnp.inf, jnp.inf, 1.0])
    found = scaled_disc(x, 2 * x, radius)
    np.testing.assert_array_equal(found, [x, 2 * x])
    slopes = jax.vmap(jax.jacfwd(scaled_disc, (0, 1, 2)))(x, 2 * x, radius)
    np.testing.assert_allclose(
        np.moveaxis(slopes, -1, 0), np.broadcast_to([[1, 0, 0], [0, 1, 0]], (3, 2, 3)), atol=1e-15
    )


@pytest.mark.parametrize(("smoothing", "restitution"), [(None, None), (1e-4, None), (None, 0.6)])
def test_derivatives_of_a_step_of_random_trees_are_those_of_differences(smoothing, restitution):
    """By state, forces, wrenches, step and parameters, with contacts, pairs, limits, dry joints; of second order."""
    model, contacts = mechanism(3, 6)
    spread = lambda x: None if x is None else jnp.full(len(contacts), x)
    contacts = contacts.replace(smoothing=smoothing, restitution=spread(restitution))
    rng = np.random.default_rng(57)  # one contact sticks, one slides
    q = lgjax.random_configuration(jax.random.key(3), model)
    height = jnp.sort(contact_points(model, contacts, q).gap[:-2])[2] + 1e-3  # on the ground three are closed
    contacts = contacts.replace(grounds=(lgjax.shapes.Plane((0.0, 0.0, 1.0), -height),))
    numbers = [np.zeros(model.nv), rng.normal(size=model.nv), rng.normal(size=model.nv)]
    numbers += [rng.normal(size=(model.nbodies, 6)), 5e-3, np.full(len(contacts), 0.5), np.asarray(model.armature)]
    weights = [jnp.asarray(rng.normal(size=n)) for n in (model.nv, model.nv, 3 * len(contacts), model.nv)]
    x, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, numbers))

    @jax.jit
    def step(x):
        dq, v, tau, wrenches, h, friction, armature = unravel(x)
        here, law = model.replace(armature=armature), contacts.replace(friction=friction)
        start = lgjax.retract(model, q, dq)
        method = lgjax.contact.TimeStepping(1e-13, 5000)
        return lgjax.contact.contact_step(here, law, start, v, tau, h, None, wrenches, method=method)

    def end(x):
        found = step(x)
        parts = lgjax.difference(model, q, found.q), found.v, found.impulse.reshape(-1), found.joint_impulse
        return sum(jnp.sum(w * part) for w, part in zip(weights, parts, strict=True))

    found = step(x)
    assert found.status == 0
    assert jnp.sum(found.impulse[:, 0] > 1e-6) >= 2
    slope = jax.jit(jax.grad(end))
    forward = jax.jit(lambda x, d: jax.jvp(end, (x,), (d,))[1])
    bend = jax.jit(lambda x, d: jax.jvp(slope, (x,), (d,))[1])
    gradient = slope(x)
    for direction in jnp.asarray(rng.normal(size=(6, len(x)))) * jnp.where(x == 5e-3, 1e-2, 1.0):
        by = lambda f, size, d=direction: (f(x + size * d) - f(x - size * d)) / (2 * size)
        wanted = by(jax.jit(end), 1e-6)
        np.testing.assert_allclose(gradient @ direction, wanted, atol=1e-6 * (1 + jnp.linalg.norm(gradient)))
        np.testing.assert_allclose(forward(x, direction), gradient @ direction, rtol=1e-9, atol=1e-9)
        second = by(slope, 1e-6)
        np.testing.assert_allclose(bend(x, direction), second, atol=1e-5 * jnp.abs(second).max())
