"""Configurations: neutral, random, checked from parts, and the group operations on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Pose
from lgjax.multibody.configuration import tangent
from tests.dynamics import trees

EYE = np.eye(3)


def model():
    return trees.model("forest")


def test_neutral_is_zero():
    q = lgjax.neutral(model())
    np.testing.assert_array_equal(q.free_poses.rotation, np.tile(EYE, (2, 1, 1)))
    assert not np.any(q.free_poses.translation)
    assert q.joints.shape == (5,)
    assert not np.any(q.joints)
    assert q.ball_rotations.shape == (0, 3, 3)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_random_configurations_are_on_the_group_and_within_limits(dtype):
    m = lgjax.models.quadruped().astype(dtype)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, m))(jax.random.split(jax.random.key(0), 200))
    R = np.asarray(q.free_poses.rotation, float)
    eps = float(jnp.finfo(dtype).eps)
    assert np.abs(np.swapaxes(R, -1, -2) @ R - EYE).max() < 20 * eps
    assert np.linalg.det(R).min() > 0
    assert np.all((q.joints >= m.lower) & (q.joints <= m.upper))
    # spread over the whole range, and over all attitudes
    assert np.all(np.ptp(q.joints, axis=0) > 0.9 * (jnp.minimum(m.upper, np.pi) - m.lower))
    assert np.abs(R.mean(0)).max() < 0.2
    assert {x.dtype for x in jax.tree.leaves(q)} == {jnp.dtype(dtype)}
    again = lgjax.random_configuration(jax.random.split(jax.random.key(0), 200)[3], m)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[3], b, atol=10 * eps), q, again)


@pytest.mark.parametrize("name", ["single body", "fixed tree", "forest"])
def test_retract_and_difference_undo_each_other(name):
    m = trees.model(name)
    q, v, *_ = trees.random_states(m)
    there = jax.vmap(lambda q, v: lgjax.retract(m, q, v))(q, 0.9 * v)
    back = jax.vmap(lambda a, b: lgjax.difference(m, a, b))(q, there)
    np.testing.assert_allclose(back, 0.9 * v, atol=1e-12)
    R = there.free_poses.rotation
    np.testing.assert_allclose(jnp.swapaxes(R, -1, -2) @ R, np.broadcast_to(EYE, R.shape), atol=1e-14)


def test_retract_moves_by_body_velocities():
    """d/ds of the pose along retract(q, s v) is the pose times the hat of [w, v]."""
    m = trees.model("single body")
    q, v, *_ = jax.tree.map(lambda x: x[0], trees.random_states(m))
    _, rate = jax.jvp(lambda s: lgjax.retract(m, q, s * v).free_poses, (0.0,), (1.0,))
    R = np.asarray(q.free_poses.rotation[0])
    hat = np.stack([np.cross(np.asarray(v[:3]), e) for e in EYE], 1)
    np.testing.assert_allclose(rate.rotation[0], R @ hat, atol=1e-14)
    np.testing.assert_allclose(rate.translation[0], R @ np.asarray(v[3:]), atol=1e-14)


def test_the_tangent_is_that_of_the_way_by_body_velocities():
    """And its derivative along itself is the second one along that way."""
    joints = ("floats", None, "free"), ("ball", "floats", "spherical"), ("hinge", "ball", "revolute")
    m = lgjax.build([lgjax.Body(n, parent, lgjax.Joint(n, kind), mass=1.0, inertia=EYE) for n, parent, kind in joints])
    q, v = lgjax.random_configuration(jax.random.key(3), m), jnp.linspace(-1.0, 2.0, m.nv)
    along = lambda s: lgjax.retract(m, q, s * v)
    first = lambda s: jax.jvp(along, (s,), (1.0,))[1]
    expected, second = jax.jit(lambda s: jax.jvp(first, (s,), (1.0,)))(0.0)
    found, again = jax.jvp(lambda q: tangent(m.tree, q, v), (q,), (tangent(m.tree, q, v),))
    for ours, theirs in ((found, expected), (again, second)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-14), ours, theirs)


def test_parts_make_a_configuration():
    m = trees.model("floating tree")
    R = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    names = m.joint_names
    from_pose = lgjax.configuration(m, Pose(R, np.array([1.0, 2, 3])), {names[2]: 0.5})
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = R, [1, 2, 3]
    from_matrix = lgjax.configuration(m, matrix, np.eye(4)[2] * 0.5)
    jax.tree.map(np.testing.assert_array_equal, from_pose, from_matrix)
    np.testing.assert_array_equal(from_pose.free_poses.rotation[0], R)
    np.testing.assert_array_equal(from_pose.joints, [0, 0, 0.5, 0])
    traced = jax.jit(lambda x: lgjax.configuration(m, joints=x))(jnp.ones(4))
    np.testing.assert_array_equal(traced.joints, np.ones(4))


BAD = {
    "wrong shape": ({"joints": np.zeros(3)}, r"joints has shape \(3,\), this model takes \(4,\)"),
    "batch": ({"joints": np.zeros((5, 4))}, r"joints has shape \(5, 4\), .* \(4,\): use jax.vmap over a batch"),
    "text": ({"joints": "bent"}, r"joints must be numbers, got 'bent'"),
    "NaN": ({"joints": np.full(4, np.nan)}, "joints is not finite: .*nan"),
    "infinite position": ({"base": Pose(EYE, np.array([0, np.inf, 0]))}, "base position is not finite"),
    "no rotation": ({"base": Pose(2 * EYE, np.zeros(3))}, "base rotation is not a rotation"),
    "reflection": ({"base": Pose(-EYE, np.zeros(3))}, "base rotation is not a rotation"),
    "no matrix": ({"base": np.eye(3)}, r"base is a Pose, a pair .* or a 4x4 matrix, not an array of shape \(3, 3\)"),
    "unknown joint": ({"joints": {"knee": 1.0}}, "no scalar joint 'knee' in 'random_tree_5'; joints: joint1"),
    "the base is no joint": ({"joints": {"root_joint": 1.0}}, "no scalar joint 'root_joint'"),
    "vector for a joint": ({"joints": {"joint1": [1.0, 2.0]}}, r"joint 'joint1' has shape \(2,\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parts_are_refused_by_name(name):
    parts, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        lgjax.configuration(trees.model("floating tree"), **parts)


@pytest.mark.parametrize(("lower", "upper"), [(4.0, 6.0), (-9.0, -5.0), (4.0, np.inf), (-np.inf, -4.0), (3.0, 9.0)])
def test_limits_beyond_half_a_turn_count_alone(lower, upper):
    slider = lgjax.Joint("slider", "prismatic", lower=lower, upper=upper)
    m = lgjax.build([lgjax.Body("a", None, slider, mass=1.0, inertia=EYE)])
    q = jax.vmap(lambda key: lgjax.random_configuration(key, m))(jax.random.split(jax.random.key(0), 200))
    assert lower <= q.joints.min() < q.joints.max() <= upper
    assert np.ptp(q.joints) > 0.9 * min(np.pi - 3.0 if lower == 3 else np.pi, upper - lower)
