"""Derivatives through sliding, rolling, impact, bounce and smoothed contact are those of central differences."""

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.contact import step
from tests.contact.test_closed_forms import STEP, ball, on_floor

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
    slopes = jax.jit(jax.vmap(jax.grad(step._kept_part, (0, 1))))(energy, excess)
    np.testing.assert_allclose(slopes[0], [0, 0, 0.5 * 0.5 / 4 / 0.75**0.5], rtol=1e-6)
    np.testing.assert_allclose(slopes[1], [-0.5 / 1e-26, 0, -0.5 / 2 / 0.75**0.5], rtol=1e-6)
