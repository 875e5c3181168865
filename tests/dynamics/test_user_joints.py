"""Joints made with exponential maps: what the library's kinds that they imitate do, and what nested jvp says.

Order 0 of the imitated kinds is held against Pinocchio in test_joint_kinds.py.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Pose, se3, so3
from lgjax.execution import plain
from tests.dynamics import trees

PITCH = 0.2


# ---- the library's kinds, written as users would
def unit(q, *entries):
    return jnp.asarray(entries, q.dtype)


@jax.jit
def universal(q):
    return Pose(so3.exp(q[0] * unit(q, 0, 0, 1)) @ so3.exp(q[1] * unit(q, 1, 0, 0)), jnp.zeros(3, q.dtype))


def universal_motions(q):
    z, x, rest = unit(q, 0, 0, 1), unit(q, 1, 0, 0), jnp.zeros(3, q.dtype)
    first = jax.jit(so3.exp)(-q[1] * x) @ z
    return jnp.stack([jnp.concatenate([first, rest]), jnp.concatenate([x, rest])], 1)


def planar_motions(q):
    back = so3.exp(-q[0] * unit(q, 0, 0, 1))
    zero = jnp.zeros((3, 2), q.dtype)
    return jnp.concatenate([unit(q, 0, 0, 1, 0, 0, 0)[:, None], jnp.concatenate([zero, back[:, :2]])], 1)


def helical(q):
    return se3.exp(q[0] * unit(q, 0, 0, 1, 0, 0, PITCH))


def cylindrical(q):
    return se3.exp(q[0] * unit(q, 0, 0, 1, 0, 0, 0) + q[1] * unit(q, 0, 0, 0, 0, 0, 1))


def planar(q):
    return Pose(so3.exp(q[0] * unit(q, 0, 0, 1)), jnp.concatenate([q[1:], q[:1] * 0]))


MADE = {
    "universal": (universal, universal_motions, 2),
    "planar": (planar, planar_motions, 3),
    "helical": (helical, lambda q: unit(q, 0, 0, 1, 0, 0, PITCH)[:, None], 1),
    "cylindrical": (cylindrical, lambda q: jnp.eye(6, dtype=q.dtype)[:, jnp.asarray([2, 5])], 2),
}


def turning(q):
    """Columns of d exp: the body rate of exp(q) per unit of dq/dt."""
    return so3.dexp(-q, jnp.eye(3, dtype=q.dtype)).T


def ball_motions(q):
    return jnp.concatenate([turning(q), jnp.zeros((3, 3), q.dtype)])


@cache
def kind(name: str) -> lgjax.multibody.JointKind:
    return lgjax.joint_kind(name, *MADE[name])


@cache
def model(names: tuple[str, ...], ours: bool) -> lgjax.Model:
    """A chain of bodies on joints of these kinds, of the library or of our own make."""
    bodies, parent = [], None
    for i, name in enumerate(names):
        given = {} if ours or name != "helical" else {"pitch": PITCH}
        bodies.append(trees.body(f"{i}", parent, kind(name) if ours else name, i, damping=0.1, armature=0.1, **given))
        parent = f"{i}"
    return lgjax.build(bodies, "made" if ours else "theirs")


def test_constancy_of_the_subspace_is_that_of_the_kinds_imitated():
    found = {name: kind(name).varying for name in MADE}
    assert found == {"universal": True, "planar": True, "helical": False, "cylindrical": False}


@cache
def along(names: tuple[str, ...], order: int):
    """A start, and derivatives of coordinates, forces and forces of the joints along a polynomial motion.

    Nested jvp of inverse dynamics of the library's own kinds.
    """
    robot = model(names, False)
    path = jnp.asarray(np.random.default_rng(3).normal(size=(order + 3, robot.nv)) / 2)
    q = lambda t: sum(c * t**k for k, c in enumerate(path))
    rate = lambda f: lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]
    v, vdot = rate(q), rate(rate(q))
    at = lambda joints: lgjax.neutral(robot)._replace(joints=joints)
    forces = lambda t: plain()(lgjax.inverse_dynamics)(robot, at(q(t)), v(t), vdot(t))

    def stack(f, order):
        stack = [f]
        for _ in range(order):
            stack.append(rate(stack[-1]))
        return jnp.stack([f(jnp.asarray(0.1)) for f in stack])

    return jax.jit(lambda: (at(q(jnp.asarray(0.1))), stack(v, order + 1), stack(forces, order)))()


def gap(a, b):
    """Largest error of an order relative to the largest entry of that order."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return np.max(np.max(np.abs(a - b), -1) / np.max(np.abs(b), -1))


CASES = [(2, "body", jnp.float64), (2, "spatial", jnp.float32)]
SLOW = [(4, "body", jnp.float64), (4, "spatial", jnp.float32)]


@pytest.mark.parametrize(
    ("order", "frame", "dtype", "names"),
    [(*case, ("universal",)) for case in CASES]
    + [pytest.param(*case, tuple(MADE), marks=pytest.mark.slow) for case in SLOW],
)
def test_time_derivatives_are_those_of_nested_jvp_of_the_kinds_imitated(order, frame, dtype, names):
    cast = lambda tree: jax.tree.map(lambda x: x.astype(dtype), tree)
    robot = cast(model(names, True))
    q, v, tau = cast(along(names, order))
    prescribed = tuple(range(0, robot.nv, 2))
    given = np.isin(np.arange(robot.nv), prescribed)

    @jax.jit
    def run(q, v, tau):
        inverse = lgjax.inverse_dynamics_time_derivatives(robot, q, v, order, frame)
        forward = lgjax.forward_dynamics_time_derivatives(robot, q, v[0], tau, frame)
        vdot, rest = jnp.where(given, v[1:], 0), jnp.where(given, 0, tau)
        return inverse, forward, *lgjax.hybrid_dynamics_time_derivatives(robot, q, v[0], vdot, rest, prescribed, frame)

    found = run(q, v, tau)
    assert {x.dtype for x in found} == {jnp.dtype(dtype)}
    bound = 1e-9 if dtype == jnp.float64 else 5e-3
    for x, expected in zip(found, (tau, v[1:], v[1:], tau), strict=True):
        assert gap(x, expected) < bound


@pytest.mark.parametrize("order", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_a_ball_in_rotation_vectors_moves_as_a_spherical_joint(order):
    """tau = (d exp)^T tau of the ball, and its derivatives by nested jvp along a polynomial that begins at zero."""
    vectors = lgjax.joint_kind("ball", lambda q: Pose(so3.exp(q), 0 * q), ball_motions, 3)
    arm = lambda kind: replace(trees.body("a", None, "revolute", 5), joint=lgjax.Joint("j", kind, (0.0, 0.0, 1.0)))
    ours, theirs = (lgjax.build([arm(kind)]) for kind in (vectors, "spherical"))
    path = jnp.asarray(np.random.default_rng(4).normal(size=(order + 3, 3))).at[0].set(0)
    q = lambda t: jnp.stack([c * t**k for k, c in enumerate(path)]).sum(0)
    rate = lambda f: lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]
    spin = lambda t: turning(q(t)) @ rate(q)(t)

    def forces(t):
        at = lgjax.neutral(theirs)._replace(ball_rotations=so3.exp(q(t))[None])
        return turning(q(t)).T @ plain()(lgjax.inverse_dynamics)(theirs, at, spin(t), rate(spin)(t))

    def stack(f, order):
        functions = [f]
        for _ in range(order):
            functions.append(rate(functions[-1]))
        return jnp.stack([f(jnp.zeros(())) for f in functions])

    @jax.jit
    def run():
        at, v = lgjax.neutral(ours), stack(rate(q), order + 1)
        return lgjax.inverse_dynamics_time_derivatives(ours, at, v, order), stack(forces, order)

    assert gap(*run()) < 1e-10


# ---- constancy
def bump(x):
    """Smooth three times; zero but for x between 2 and 4."""
    inside = jnp.abs(x - 3) < 1
    return jnp.where(inside, (1 - jnp.where(inside, x - 3, jnp.zeros_like(x)) ** 2) ** 4, jnp.zeros_like(x))


def track(q):
    """A carriage on the curve y = bump(x), which does not turn."""
    return Pose(jnp.eye(3, dtype=q.dtype), jnp.stack([q[0], bump(q[0]), 0 * q[0]]))


def track_motions(q):
    zero = jnp.zeros_like(q[0])
    return jnp.stack([zero, zero, zero, zero + 1, jax.grad(bump)(q[0]), zero])[:, None]


def test_a_subspace_that_agrees_at_all_samples_is_not_taken_for_constant():
    """The carriage against m (1 + b'^2) x'' + m b' b'' x'^2 on the bump, which no sample is near."""
    carriage = lgjax.joint_kind("track", track, track_motions, 1)
    assert carriage.varying
    joint = lgjax.Joint("j", carriage, (0.0, 0.0, 1.0))
    robot = lgjax.build([lgjax.Body("a", None, joint, mass=2.0, inertia=np.eye(3))])
    x, v, vdot = 3.4, 1.5, -0.7
    q = lgjax.configuration(robot, joints=np.array([x]))
    u = x - 3
    slope, curve = -8 * u * (1 - u * u) ** 3, -8 * (1 - u * u) ** 3 + 48 * u * u * (1 - u * u) ** 2
    expected = 2.0 * ((1 + slope**2) * vdot + slope * curve * v**2)
    tau = plain()(lgjax.inverse_dynamics)(robot, q, jnp.array([v]), jnp.array([vdot]))
    np.testing.assert_allclose(tau, [expected], rtol=1e-12)
    back = plain()(lgjax.forward_dynamics)(robot, q, jnp.array([v]), tau)
    np.testing.assert_allclose(back, [vdot], rtol=1e-12)


def test_one_sample_does_not_make_a_subspace_constant():
    assert lgjax.joint_kind("universal", *MADE["universal"], samples=[[0.0, 0.0]]).varying


def test_a_subspace_is_constant_if_proved_or_declared_and_not_contradicted():
    slide = lambda q: Pose(jnp.eye(3, dtype=q.dtype), jnp.concatenate([q, 0 * q, 0 * q]))
    hidden = lambda q: jnp.eye(6, dtype=q.dtype)[:, 3:4] + 0 * q[0]  # constant, but not by its data flow
    make = lambda **given: lgjax.joint_kind("slide", slide, hidden, 1, **given)
    proved = lgjax.joint_kind("slide", slide, jax.jit(lambda q: jnp.eye(6, dtype=q.dtype)[:, 3:4] * 2 / 2), 1)
    assert [proved.varying, make().varying, make(constant_subspace=True).varying] == [False, True, False]
    assert lgjax.joint_kind(
        "slide", slide, lambda q: jnp.eye(6, dtype=q.dtype)[:, 3:4], 1, constant_subspace=False
    ).varying
    with pytest.raises(ValueError, match=r"'universal': the subspace is not constant: q=\[0\.0, 0\.0\] and \["):
        lgjax.joint_kind("universal", *MADE["universal"], constant_subspace=True)
    with pytest.raises(ValueError, match="constant_subspace is 1, not None, True or False"):
        make(constant_subspace=1)
