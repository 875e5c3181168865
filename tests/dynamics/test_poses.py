"""Time derivatives of a pose and of its twist belong together."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import Pose, se3, so3

ORDER = 8
both_frames = pytest.mark.parametrize("frame", ["body", "spatial"])


def wandering(t):
    """A pose that turns about all axes."""
    turn = so3.exp(jnp.stack([0.5 * t, jnp.sin(t), 1 - t * t]))
    return Pose(turn, jnp.stack([t**3, jnp.cos(t), 1 / (2 + t)]))


def derivatives(f, order: int):
    """t -> [f, df/dt, ...] by nested forward differentiation."""
    found = [f]
    for _ in range(order):
        found.append(lambda t, f=found[-1]: jax.jvp(f, (t,), (jnp.ones_like(t),))[1])
    return lambda t: jnp.stack([f(t) for f in found])


def twist(t, frame: str):
    matrix = lambda t: se3.to_matrix(wandering(t))
    _, rate = jax.jvp(matrix, (t,), (jnp.ones_like(t),))
    inverse = se3.to_matrix(se3.inverse(wandering(t)))
    return se3.vee(inverse @ rate if frame == "body" else rate @ inverse)


@cache
def curve(order: int):
    """Derivatives of the pose and of both twists at three times."""
    times = jnp.array([-0.4, 0.3, 0.8])
    poses = derivatives(lambda t: se3.to_matrix(wandering(t)), order + 1)
    twists = [derivatives(lambda t, frame=frame: twist(t, frame), order) for frame in ("body", "spatial")]
    return tuple(np.asarray(jit(jax.vmap(f))(times)) for f in (poses, *twists))


def relative(a, b):
    """Largest error of each order and sample, relative to the largest entry of that order."""
    a, b = (np.reshape(x, (*np.shape(x)[:2], -1)) for x in (a, b))
    return np.max(np.abs(a - b), -1) / np.max(np.abs(b), -1)


def to_poses(stack, twists, frame):
    return jax.vmap(lambda T, v: lgjax.time_derivatives.pose_derivatives(se3.from_matrix(T), v, frame))(
        stack[:, 0], twists
    )


@both_frames
def test_pose_and_twist_have_the_derivatives_of_nested_jvp(frame):
    poses, body, spatial = curve(2)
    twists = body if frame == "body" else spatial
    assert np.all(relative(to_poses(poses, twists, frame), poses) < 1e-13)
    assert np.all(
        relative(jax.vmap(lambda T: lgjax.time_derivatives.twist_derivatives(T, frame))(poses), twists) < 1e-13
    )


@both_frames
def test_a_screw_after_a_screw_has_known_derivatives_of_every_order(frame):
    """T = exp(t a) exp(t b): hat(a)^i T hat(b)^j, body twist b + Ad(exp(-t b)) a, spatial twist a + Ad(exp(t a)) b."""
    a, b = np.random.default_rng(1).normal(size=(2, 6))
    first, second = se3.exp(0.7 * a), se3.exp(0.7 * b)
    T = np.asarray(se3.to_matrix(first @ second))
    powers = [[np.linalg.matrix_power(se3.hat(x), k) for k in range(ORDER + 2)] for x in (a, b)]
    poses = [sum(math.comb(k, i) * powers[0][i] @ T @ powers[1][k - i] for i in range(k + 1)) for k in range(ORDER + 2)]
    steady, start, turn = (b, se3.Ad(se3.inverse(second), a), -b) if frame == "body" else (a, se3.Ad(first, b), a)
    twists = [start]
    for _ in range(ORDER):
        twists.append(se3.ad(turn, twists[-1]))
    twists = np.stack(twists) + np.eye(ORDER + 1, 1) * steady
    assert np.all(
        relative(lgjax.time_derivatives.pose_derivatives(first @ second, twists, frame)[None], np.stack(poses)[None])
        < 1e-12
    )
    # These twists are smaller than the terms that they are sums of, by which the error is judged.
    error = np.max(np.abs(lgjax.time_derivatives.twist_derivatives(np.stack(poses), frame) - twists), 1)
    size = np.max(np.abs(poses), (1, 2))
    terms = [sum(math.comb(k, i) * size[i] * size[k + 1 - i] for i in range(k + 1)) for k in range(ORDER + 1)]
    assert np.all(error < 2e-15 * np.array(terms))


def random_twists(dtype=jnp.float64, n: int = ORDER + 1):
    """A pose and derivatives that grow as those of a motion with Taylor coefficients of about one."""
    growth = np.cumprod([1, *range(1, n)])[:, None]
    random = np.random.default_rng(0)
    pose = se3.exp(jnp.asarray(random.normal(size=6), dtype))
    return pose, jnp.asarray(random.normal(size=(n, 6)) * growth, dtype)


@both_frames
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 2e-14), (jnp.float32, 1e-5)], ids=["f64", "f32"])
def test_twists_come_back_from_the_poses_to_order_8(dtype, tolerance, frame):
    pose, twists = random_twists(dtype)
    poses = lgjax.time_derivatives.pose_derivatives(pose, twists, frame)
    back = lgjax.time_derivatives.twist_derivatives(poses, frame)
    assert poses.shape == (ORDER + 2, 4, 4)
    assert {poses.dtype, back.dtype} == {jnp.dtype(dtype)}
    assert np.all(poses[1:, 3] == 0)
    np.testing.assert_array_equal(poses[0], se3.to_matrix(pose))
    assert np.all(relative(back[None], twists[None]) < tolerance)


def test_the_twists_of_both_frames_differ_by_the_adjoint():
    """Also their derivatives, by Leibniz on the 6x6 matrix made of those of the pose."""
    pose, body = random_twists()
    poses = lgjax.time_derivatives.pose_derivatives(pose, body)
    spatial = lgjax.time_derivatives.twist_derivatives(poses, "spatial")
    np.testing.assert_allclose(spatial[0], se3.Ad(pose, body[0]), rtol=1e-14)
    rates = jax.vmap(se3.ad)(spatial[:1], se3.Ad(pose, body[:1]))[0]
    np.testing.assert_allclose(spatial[1], rates + se3.Ad(pose, body[1]), rtol=1e-13)
    np.testing.assert_allclose(
        lgjax.time_derivatives.pose_derivatives(pose, spatial, "spatial"), poses, rtol=1e-12, atol=1e-12
    )


def test_derivatives_of_any_order_fit_without_64_bits():
    """20! is no 32-bit integer."""
    with jax.enable_x64(False):
        pose, twists = random_twists(jnp.float32, 2)
        stack = jnp.concatenate([twists, jnp.zeros((20, 6), jnp.float32)])
        poses = lgjax.time_derivatives.pose_derivatives(pose, stack)
        assert np.all(np.isfinite(poses))
        assert lgjax.time_derivatives.twist_derivatives(poses).dtype == jnp.float32


@both_frames
def test_a_pose_at_rest_can_be_differentiated(frame):
    def positions(twists):
        return lgjax.time_derivatives.pose_derivatives(se3.identity(jnp.float64), twists, frame)[:, :3, 3]

    forward, backward = jit(lambda x: (jax.jacfwd(positions)(x), jax.jacrev(positions)(x)))(jnp.zeros((3, 6)))
    expected = np.zeros((4, 3, 3, 6))
    for k in range(3):
        expected[k + 1, :, k, 3:] = np.eye(3)
    np.testing.assert_allclose(forward, expected, atol=1e-15)
    np.testing.assert_allclose(backward, expected, atol=1e-15)


def test_bad_input_is_named():
    pose, twists = random_twists()
    with pytest.raises(ValueError, match="frame is 'body' or 'spatial', not 'world'"):
        lgjax.time_derivatives.pose_derivatives(pose, twists, "world")
    with pytest.raises(ValueError, match=r"twists has shape \(9, 5\), expected \(9, 6\)"):
        lgjax.time_derivatives.pose_derivatives(pose, twists[:, :5])
    with pytest.raises(ValueError, match="twists is float32, the pose is float64"):
        lgjax.time_derivatives.pose_derivatives(pose, twists.astype(jnp.float32))
    with pytest.raises(ValueError, match=r"rotation has shape \(1, 3, 3\), expected \(3, 3\)"):
        lgjax.time_derivatives.pose_derivatives(jax.tree.map(lambda x: x[None], pose), twists)
    for shape in ((1, 4, 4), (3, 3, 4), (4, 4)):
        with pytest.raises(ValueError, match=r"expected \(n \+ 1, 4, 4\) with n > 0"):
            lgjax.time_derivatives.twist_derivatives(jnp.zeros(shape))
    with pytest.raises(ValueError, match="frame is 'body' or 'spatial', not 'world'"):
        lgjax.time_derivatives.twist_derivatives(jnp.zeros((2, 4, 4)), "world")
