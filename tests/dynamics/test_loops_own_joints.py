"""Joints of users' kinds cut as loops: against the same joint in the tree, and the built-in kind that one imitates."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import Loop, Pose, build
from lgjax.dynamics.loops import LoopStatus, loop_constraint, loop_residual
from lgjax.systems import closed_loops as ready
from tests.dynamics import trees
from tests.dynamics.test_loops import forward, random_body, reduced
from tests.oracles import linkages


def hinge(q) -> Pose:
    c, s, zero, one = jnp.cos(q[0]), jnp.sin(q[0]), jnp.zeros_like(q[0]), jnp.ones_like(q[0])
    return Pose(jnp.stack([c, -s, zero, s, c, zero, zero, zero, one]).reshape(3, 3), jnp.zeros(3, q.dtype))


def about_z(q):
    return jnp.zeros((6, 1), q.dtype).at[2, 0].set(1)


HINGE = lgjax.joint_kind("revolute", hinge, about_z, 1)  # its name is that of another kind, it is none


def imitated(loop: Loop) -> Loop:
    return Loop(HINGE, loop.body_a, loop.body_b, loop.frame_a, loop.frame_b)


@cache
def carriages():
    """A carriage on a rail with a pendulum, in the tree, and free but for a loop."""
    bodies = lambda kind: [random_body("carriage", None, kind, 3), random_body("bob", "carriage", "revolute", 4)]
    tree, free = build(bodies(trees.RAIL)), build(bodies("free"))
    pick = lambda pose: jax.tree.map(lambda x: x[0], pose)
    loop = Loop(trees.RAIL, None, "carriage", pick(tree.placements), pick(tree.links).inverse(), name="rail")
    return tree, free, loop


def cut(tree, free, q):
    """The configuration of the cut mechanism."""
    carriage = jax.tree.map(lambda x: x[:1], lgjax.forward_kinematics(tree, q))
    return lgjax.neutral(free)._replace(free_poses=carriage, joints=q.joints[2:])


def test_a_cut_joint_moves_as_the_joint_in_the_tree_does():
    tree, free, loop = carriages()
    q = lgjax.neutral(tree)._replace(joints=jnp.asarray([-2.0, 1.2, 0.7]))  # far from where the search begins
    v, wrenches = jnp.asarray([0.8, -1.1, 0.5]), jnp.asarray(np.random.default_rng(0).normal(size=(2, 6)))

    def both(q, v):
        vdot = lgjax.forward_dynamics(tree, q, v, 0 * v, wrenches)

        def speed(t):
            rates = v + t * vdot
            return jnp.concatenate([lgjax.body_twists(tree, lgjax.retract(tree, q, t * v), rates)[0], rates[2:]])

        twists, expected = jax.jvp(speed, (0.0,), (1.0,))
        there = cut(tree, free, q)
        found = lgjax.constrained_forward_dynamics(free, loop, there, twists, 0 * twists, wrenches)
        return expected, found, loop_residual(free, loop, there)

    expected, found, residual = jit(both)(q, v)
    assert (int(found.status), int(found.rank)) == (LoopStatus.OK, 4)
    np.testing.assert_allclose(residual, np.zeros(4), atol=1e-13)
    np.testing.assert_allclose(found.vdot, expected, atol=1e-11 * np.abs(expected).max())


def test_an_imitated_hinge_closes_a_four_bar_as_the_built_in_does():
    s = ready.four_bar(closure="revolute")
    v, _ = reduced(s, linkages.FourBar(), [0])
    loops = (imitated(s.loops[0]),)
    assert loops[0].rows(s.model, s.q0) == 5
    one, other = (forward(s.model, x, s.q0, v, 0 * v) for x in (s.loops, loops))
    assert (int(other.status), int(other.rank)) == (int(one.status), int(one.rank)) == (LoopStatus.REDUNDANT, 2)
    np.testing.assert_allclose(other.vdot, one.vdot, atol=1e-12 * np.abs(one.vdot).max())
    np.testing.assert_allclose(other.forces, one.forces, atol=1e-12 * np.abs(one.forces).max())


@pytest.mark.slow
def test_its_accelerations_have_the_derivatives_of_the_built_in():
    """In masses, speed and torques, in both modes: what keeps the loop closed."""
    s = ready.four_bar(closure="revolute")
    v, _ = reduced(s, linkages.FourBar(), [0])

    def along(loops):
        return lambda x: (
            lgjax.constrained_forward_dynamics(
                s.model.replace(inertias=s.model.inertias.scaled(1 + x[:3])), loops, s.q0, v + v * x[3], x[4:]
            ).vdot
        )

    expected = jit(jax.jacfwd(along(s.loops)))(jnp.zeros(7))
    for mode in (jax.jacfwd, jax.jacrev):
        found = jit(mode(along((imitated(s.loops[0]),))))(jnp.zeros(7))
        np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())


def opened():
    """A carriage off its rail, with a velocity that leaves it."""
    tree, free, loop = carriages()
    q = cut(tree, free, lgjax.neutral(tree)._replace(joints=jnp.asarray([0.6, 0.3, 0.2])))
    random = np.random.default_rng(1)
    off = jnp.asarray(random.uniform(-0.1, 0.1, free.nv))
    return free, loop, lgjax.retract(free, q, off), jnp.asarray(random.normal(size=free.nv))


@pytest.mark.slow
def test_jacobian_rate_and_bias_are_derivatives_of_the_residual():
    """Central differences along the body velocities, for an open loop; alone and in a batch."""
    model, loop, q, v = opened()
    c = jit(loop_constraint)(model, loop, q, v)
    along = jit(jax.vmap(lambda dv: loop_residual(model, loop, lgjax.retract(model, q, dv))))
    h, eye = 1e-4, jnp.eye(model.nv)
    values = along(jnp.concatenate([h * eye, -h * eye, h * jnp.stack([v, -v]), 0 * eye[:1]]))
    ahead, behind, (front, back, here) = values[: model.nv], values[model.nv : -3], values[-3:]
    np.testing.assert_allclose(c.jacobian, ((ahead - behind) / (2 * h)).T, atol=1e-6)
    np.testing.assert_allclose(c.residual, here, atol=1e-13)
    np.testing.assert_allclose(c.rate, (front - back) / (2 * h), atol=1e-6)
    np.testing.assert_allclose(c.bias, (front - 2 * here + back) / h**2, atol=1e-5 * float(jnp.abs(c.bias).max()))


@pytest.mark.slow
def test_a_cut_joint_stays_closed_on_its_way():
    """Half a second of a carriage that swings along its rail, beside the carriage in the tree."""
    tree, free, loop = carriages()
    q = lgjax.neutral(tree)._replace(joints=jnp.asarray([0.5, 0.2, 0.7]))
    v = jnp.asarray([0.8, -1.1, 0.5])
    there = jit(lambda q: cut(tree, free, q))
    twist = jit(lgjax.body_twists)(tree, q, v)[0]
    dt, steps = 2e-3, 250
    run = jit(lambda q, v: lgjax.rollout(free, q, v, None, dt, steps, save_every=None, loops=loop))
    path = run(there(q), jnp.concatenate([twist, v[2:]]))
    expected = jit(lambda q, v: lgjax.rollout(tree, q, v, None, dt, steps, save_every=None))(q, v)
    assert int(path.status) == LoopStatus.OK
    assert float(path.residual[-1]) < 1e-11
    end = there(jax.tree.map(lambda x: x[-1], expected.q))
    for a, b in zip(jax.tree.leaves(path.q), jax.tree.leaves(end), strict=True):
        np.testing.assert_allclose(a[-1], b, atol=1e-7)


@pytest.mark.parametrize("dtype", [pytest.param(jnp.float64, marks=pytest.mark.slow), jnp.float32])
def test_the_search_finds_every_pose_of_the_joint(dtype):
    """A batch of coordinates within three meters and a turn either way, from a start at zero."""
    tree, free, loop = carriages()
    model, loop = free.astype(dtype), jax.tree.map(lambda x: x.astype(dtype), loop)
    random = np.random.default_rng(2).uniform(-3, 3, (64, 3))

    def residual(joints):
        q = cut(tree, free, lgjax.neutral(tree)._replace(joints=joints))
        return loop_residual(model, loop, jax.tree.map(lambda x: x.astype(dtype), q))

    found = jit(jax.vmap(residual))(jnp.asarray(random))
    assert found.dtype == dtype
    assert np.abs(found).max() < (1e-12 if dtype == jnp.float64 else 2e-5)


def test_bad_input_is_named():
    six = lgjax.joint_kind("six", lgjax.se3.exp, lambda q: jnp.eye(6, dtype=q.dtype), 6, samples=np.zeros((1, 6)))
    for make, message in (
        (lambda: Loop("revolute", "a", "b", start=0.0), "start belongs to joints of your own, not to kind 'revolute'"),
        (lambda: Loop(trees.RAIL, "a", "b", start=np.zeros(3)), r"start has shape \(3,\), expected \(2,\)"),
        (lambda: Loop(trees.RAIL, "a", "b", start=[0.0, np.nan]), "start is not finite"),
        (lambda: Loop(trees.RAIL, "a", "b", pitch=0.1), "has no pitch"),
        (lambda: Loop(six, "a", "b"), "six coordinates holds nothing"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_parameters_of_a_function_may_be_indices():
    model = lgjax.models.chain(2)
    at = {"which": jnp.array([1]), "at": jnp.array([0.1])}
    loop = lgjax.Loop(lambda model, q, p: q.joints[p["which"]] - p["at"], parameters=at)
    np.testing.assert_allclose(lgjax.loops.loop_residual(model, loop, lgjax.neutral(model)), [-0.1])
