"""Inverse and hybrid dynamics of closed loops: every case of actuation, against dense equations in NumPy."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax.dynamics.loops import LoopStatus, loop_constraint
from lgjax.systems.closed_loops import five_bar
from tests.oracles import linkages

forward = jit(lgjax.constrained_forward_dynamics)
constraint = jit(loop_constraint)
free_forces = jit(lgjax.inverse_dynamics)
FORCE, TORQUE = "constraint_force", "torque"


def consistent(system, oracle, free, seed=0):
    """Velocities and accelerations that keep the linkage closed, from random rates of its free angles."""
    joints = np.asarray(system.q0.joints)
    rate, drive = np.random.default_rng(seed).normal(size=(2, len(free)))
    J = partial(linkages.jacobian, oracle.joints)
    h = 1e-5
    turn = (J(joints[free] + h * rate) - J(joints[free] - h * rate)) @ rate / (2 * h)
    return jnp.asarray(J(joints[free]) @ rate), jnp.asarray(J(joints[free]) @ drive + turn)


S = five_bar()
V, VDOT = consistent(S, linkages.FiveBar(), [0, 2])
TAU_R = np.asarray(free_forces(S.model, S.q0, V, VDOT))
A = np.asarray(constraint(S.model, S.loops, S.q0, V).jacobian)


TAU = jnp.asarray([1.0, -2.0, 0.5, 0.3])
PASSIVE = jnp.asarray([0.0, 0.3, 0.0, -0.2])
INVERSE = (
    *(((0, 2), m, k) for m in (FORCE, TORQUE) for k in (1, 2)),
    *((a, m, 1) for a in ((0, 1, 2), (0, 1, 2, 3)) for m in (FORCE, TORQUE)),
    ((0,), FORCE, 1),
    ((0, 1, 2), FORCE, 2),
)


@cache
def inverse_program():
    """All cases (actuated joints, what is least, how often the loop is named) as one program."""

    def run(v, vdot, tau):
        solve = lgjax.constrained_inverse_dynamics
        return {
            (a, m, k): solve(S.model, k * S.loops, S.q0, v, vdot, a, tau if k == 1 else None, minimum=m)
            for a, m, k in INVERSE
        }

    return jit(lambda *args: list(run(*args).values()))


def inverse(v=V, vdot=VDOT, tau=0 * V):
    return dict(zip(INVERSE, inverse_program()(v, vdot, tau), strict=True))


@cache
def hybrid_program():
    def run(v, vdot, tau):
        sets = (((), FORCE), ((1,), FORCE), ((0, 1, 2), FORCE), ((0, 1, 2), TORQUE))
        return [
            lgjax.constrained_hybrid_dynamics(S.model, S.loops, S.q0, v, vdot, tau, *x[:1], minimum=x[1]) for x in sets
        ]

    return jit(run)


def gives_the_motion(found):
    """Forward dynamics under the forces that were found."""
    moved = forward(S.model, S.loops, S.q0, V, found.tau)
    np.testing.assert_allclose(moved.vdot, VDOT, atol=1e-8 * float(np.abs(VDOT).max()))
    return moved


def test_two_actuators_are_unique():
    """[kim2012] eq. 58, with given forces at the passive joints."""
    cases = inverse(tau=PASSIVE)
    found, p = cases[(0, 2), FORCE, 1], [1, 3]
    multipliers = np.linalg.solve(A[:, p].T, TAU_R[p] - np.asarray(PASSIVE)[p])
    np.testing.assert_allclose(found.multipliers, multipliers, atol=1e-10)
    np.testing.assert_allclose(found.tau, np.where([1, 0, 1, 0], TAU_R - A.T @ multipliers, PASSIVE), atol=1e-10)
    assert (int(found.status), int(found.rank)) == (LoopStatus.OK, 2)
    moved = gives_the_motion(found)
    np.testing.assert_allclose(moved.multipliers, multipliers, atol=1e-7)
    np.testing.assert_allclose(cases[(0, 2), TORQUE, 1].tau, found.tau, atol=1e-10)


@pytest.mark.parametrize("actuated", [(0, 1, 2), (0, 1, 2, 3)])
def test_redundant_actuators_take_the_least_force_or_the_least_torque(actuated):
    """Against all solutions: a particular one and the null space of the passive rows. [kim2012] eqs. 59-66."""
    p = [i for i in range(4) if i not in actuated]
    particular = np.linalg.lstsq(A[:, p].T, TAU_R[p], rcond=None)[0] if p else np.zeros(2)
    null = np.linalg.svd(A[:, p].T)[2][len(p) :].T if p else np.eye(2)
    least_force, least_torque = (inverse()[actuated, m, 1] for m in (FORCE, TORQUE))
    np.testing.assert_allclose(least_force.multipliers, particular, atol=1e-10)
    active = list(actuated)
    pick = np.linalg.lstsq(A[:, active].T @ null, (TAU_R - A.T @ particular)[active], rcond=None)[0]
    np.testing.assert_allclose(least_torque.multipliers, particular + null @ pick, atol=1e-9)
    for found in (least_force, least_torque):
        assert LoopStatus(int(found.status)) == LoopStatus.OVERACTUATED
        gives_the_motion(found)
    assert np.linalg.norm(least_torque.tau) < np.linalg.norm(least_force.tau) - 1e-3
    assert np.linalg.norm(least_force.multipliers) < np.linalg.norm(least_torque.multipliers) - 1e-3
    if not p:
        np.testing.assert_allclose(least_force.tau, TAU_R, atol=1e-12)


def test_too_few_actuators_say_so_and_come_closest():
    found, p = inverse()[(0,), FORCE, 1], [1, 2, 3]
    multipliers, *_ = np.linalg.lstsq(A[:, p].T, TAU_R[p], rcond=None)
    np.testing.assert_allclose(found.multipliers, multipliers, atol=1e-10)
    left = np.abs(A[:, p].T @ multipliers - TAU_R[p]).max()
    assert float(found.residual) == pytest.approx(left, rel=1e-9)
    assert left > 0.1
    assert LoopStatus(int(found.status)) == LoopStatus.UNDERACTUATED
    # but a motion that one actuator can give is given
    moved = forward(S.model, S.loops, S.q0, V, jnp.asarray([3.0, 0, 0, 0]))
    again = inverse(vdot=moved.vdot)[(0,), FORCE, 1]
    np.testing.assert_allclose(again.tau, [3.0, 0, 0, 0], atol=1e-9)
    assert int(again.status) == LoopStatus.OK


def test_redundant_constraints_leave_the_torques_alone():
    cases = inverse()
    for minimum in (FORCE, TORQUE):
        one, two = (cases[(0, 2), minimum, k] for k in (1, 2))
        np.testing.assert_allclose(two.tau, one.tau, atol=1e-10)
        np.testing.assert_allclose(two.multipliers, np.tile(np.asarray(one.multipliers) / 2, 2), atol=1e-10)
        assert LoopStatus(int(two.status)) == LoopStatus.REDUNDANT
    both = cases[(0, 1, 2), FORCE, 2]
    assert LoopStatus(int(both.status)) == LoopStatus.REDUNDANT | LoopStatus.OVERACTUATED


def test_motions_that_break_the_loops_are_noticed():
    key = (0, 2), FORCE, 1
    assert LoopStatus.INCONSISTENT in LoopStatus(int(inverse(vdot=VDOT + 0.1)[key].status))
    assert LoopStatus.SLIPPING in LoopStatus(int(inverse(v=V + 0.1)[key].status))
    assert LoopStatus.NOT_FINITE in LoopStatus(int(inverse(v=V * jnp.nan)[key].status))


def test_hybrid_dynamics_has_forward_dynamics_as_an_extreme():
    a, b = hybrid_program()(V, VDOT, TAU)[0], forward(S.model, S.loops, S.q0, V, TAU)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-12), a, b)


def test_hybrid_dynamics_solves_the_blocks():
    """Unknown: the other accelerations, the prescribed joint's force and the multipliers."""
    drive = jnp.asarray([0.7, -0.4, 0.9, 0.2])
    found = hybrid_program()(V, drive, TAU)[1]
    M, b = np.asarray(lgjax.mass_matrix(S.model, S.q0)), np.asarray(free_forces(S.model, S.q0, V, 0 * V))
    u, w = [1], [0, 2, 3]
    K = np.block([[M[:, w], -np.eye(4)[:, u], -A.T], [A[:, w], np.zeros((2, 3))]])
    given = np.where(np.isin(range(4), u), 0, TAU) - b - M[:, 1] * drive[1]
    bias = np.asarray(constraint(S.model, S.loops, S.q0, V).bias)
    x = np.linalg.solve(K, np.r_[given, -bias - A[:, 1] * drive[1]])
    np.testing.assert_allclose(np.asarray(found.vdot)[w], x[:3], atol=1e-10)
    np.testing.assert_allclose(np.asarray(found.tau)[u], x[3:4], atol=1e-10)
    np.testing.assert_allclose(found.multipliers, x[4:], atol=1e-10)
    np.testing.assert_array_equal(found.vdot[1], drive[1])
    np.testing.assert_array_equal(np.asarray(found.tau)[w], np.asarray(TAU)[w])
    assert int(found.status) == LoopStatus.OK


def test_prescribed_motion_that_decides_a_constraint():
    """Three prescribed accelerations of a motion that closes: one more than it takes, so forces are a choice."""
    least = hybrid_program()(V, VDOT, 0 * V)[2:]
    for found, minimum in zip(least, (FORCE, TORQUE), strict=True):
        np.testing.assert_allclose(found.vdot, VDOT, atol=1e-8)
        assert LoopStatus(int(found.status)) == LoopStatus.OVERACTUATED
        gives_the_motion(found)
        np.testing.assert_allclose(found.tau, inverse()[(0, 1, 2), minimum, 1].tau, atol=1e-8)
    broken = hybrid_program()(V, VDOT.at[0].add(1.0), 0 * V)[3]
    assert LoopStatus.INCONSISTENT in LoopStatus(int(broken.status))
    assert float(broken.residual) > 0.1


@pytest.mark.slow
def test_torques_have_derivatives():
    """Through the pseudoinverses, with redundant actuators and constraints, against central differences."""

    def torque(x):
        q = lgjax.retract(S.model, S.q0, x[:4])
        solve = lgjax.constrained_inverse_dynamics
        return solve(S.model, 2 * S.loops, q, V, VDOT + x[4:], (0, 1, 2), minimum=TORQUE).tau

    zero, h = jnp.zeros(8), 1e-6
    value = jit(jax.vmap(torque))
    steps = h * jnp.eye(8)
    expected = ((value(steps) - value(-steps)) / (2 * h)).T
    np.testing.assert_allclose(jit(jax.jacrev(torque))(zero), expected, atol=1e-6 * float(jnp.abs(expected).max()))


@pytest.mark.parametrize("name", ["actuated", "prescribed"])
def test_bad_sets_are_refused(name):
    def call(indices, minimum=FORCE):
        if name == "actuated":
            return lgjax.constrained_inverse_dynamics(S.model, S.loops, S.q0, V, V, indices, minimum=minimum)
        return lgjax.constrained_hybrid_dynamics(S.model, S.loops, S.q0, V, V, V, indices, minimum=minimum)

    with pytest.raises(ValueError, match=f"{name} velocity index 4 is out of range for nv=4"):
        call((0, 4))
    with pytest.raises(ValueError, match=f"{name} velocity index -1 is out of range for nv=4"):
        call((-1,))
    with pytest.raises(ValueError, match=rf"{name} names an index twice: \[1, 1\]"):
        call((1, 1))
    with pytest.raises(ValueError, match="minimum is 'constraint_force' or 'torque', not 'energy'"):
        call((0,), "energy")
