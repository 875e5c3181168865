"""Inverse and hybrid dynamics of closed loops: every case of actuation, against dense equations in NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import LoopStatus
from lgjax.dynamics.loops import loop_constraint
from lgjax.systems.closed_loops import five_bar, four_bar
from tests.oracles import linkages
from tests.quick import jit

inverse = jit(lgjax.constrained_inverse_dynamics, static_argnums=5, static_argnames="minimum")
hybrid = jit(lgjax.constrained_hybrid_dynamics, static_argnums=6, static_argnames="minimum")
forward = jit(lgjax.constrained_forward_dynamics)
constraint = jit(loop_constraint)
free_forces = jit(lgjax.inverse_dynamics)
matrix = jit(lgjax.mass_matrix)


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


def run(actuated, minimum="constraint_force", tau=None, loops=S.loops, vdot=VDOT):
    return inverse(S.model, loops, S.q0, V, vdot, actuated, tau, minimum=minimum)


def gives_the_motion(found, loops=S.loops):
    """Forward dynamics under the forces that were found."""
    moved = forward(S.model, loops, S.q0, V, found.tau)
    np.testing.assert_allclose(moved.vdot, VDOT, atol=1e-8 * float(np.abs(VDOT).max()))
    return moved


def test_two_actuators_are_unique():
    """[kim2012] eq. 58, with given forces at the passive joints."""
    passive = jnp.asarray([0.0, 0.3, 0.0, -0.2])
    found = run((0, 2), tau=passive)
    p = [1, 3]
    multipliers = np.linalg.solve(A[:, p].T, TAU_R[p] - np.asarray(passive)[p])
    np.testing.assert_allclose(found.multipliers, multipliers, atol=1e-10)
    np.testing.assert_allclose(found.tau, np.where([1, 0, 1, 0], TAU_R - A.T @ multipliers, passive), atol=1e-10)
    assert (int(found.status), int(found.rank)) == (LoopStatus.OK, 2)
    moved = gives_the_motion(found)
    np.testing.assert_allclose(moved.multipliers, multipliers, atol=1e-7)
    np.testing.assert_allclose(run((0, 2), "torque", passive).tau, found.tau, atol=1e-10)


@pytest.mark.parametrize("actuated", [(0, 1, 2), (0, 1, 2, 3)])
def test_redundant_actuators_take_the_least_force_or_the_least_torque(actuated):
    """Against a search over all solutions: a particular one and the null space of the passive rows."""
    p = [i for i in range(4) if i not in actuated]
    particular = np.linalg.lstsq(A[:, p].T, TAU_R[p], rcond=None)[0]
    null = np.linalg.svd(A[:, p].T)[2][len(p) :].T
    least_force = run(actuated)
    np.testing.assert_allclose(least_force.multipliers, particular, atol=1e-10)
    active = list(actuated)
    pick = np.linalg.lstsq(A[:, active].T @ null, (TAU_R - A.T @ particular)[active], rcond=None)[0]
    least_torque = run(actuated, "torque")
    np.testing.assert_allclose(least_torque.multipliers, particular + null @ pick, atol=1e-9)
    for found in (least_force, least_torque):
        assert LoopStatus(int(found.status)) == LoopStatus.OVERACTUATED
        gives_the_motion(found)
    assert np.linalg.norm(least_torque.tau) < np.linalg.norm(least_force.tau) - 1e-3
    assert np.linalg.norm(least_force.multipliers) < np.linalg.norm(least_torque.multipliers) - 1e-3


def test_all_joints_actuated_and_no_constraint_force_is_the_open_tree():
    np.testing.assert_allclose(run((0, 1, 2, 3)).tau, TAU_R, atol=1e-12)


def test_too_few_actuators_say_so_and_come_closest():
    found = run((0,))
    p = [1, 2, 3]
    multipliers, *_ = np.linalg.lstsq(A[:, p].T, TAU_R[p], rcond=None)
    np.testing.assert_allclose(found.multipliers, multipliers, atol=1e-10)
    left = np.abs(A[:, p].T @ multipliers - TAU_R[p]).max()
    assert float(found.residual) == pytest.approx(left, rel=1e-9)
    assert left > 0.1
    assert LoopStatus(int(found.status)) == LoopStatus.UNDERACTUATED
    # but a motion that one actuator can give is given
    moved = forward(S.model, S.loops, S.q0, V, jnp.asarray([3.0, 0, 0, 0]))
    again = run((0,), vdot=moved.vdot)
    np.testing.assert_allclose(again.tau, [3.0, 0, 0, 0], atol=1e-9)
    assert int(again.status) == LoopStatus.OK


def test_redundant_constraints_leave_the_torques_alone():
    twice = (*S.loops, *S.loops)
    for minimum in ("constraint_force", "torque"):
        one, two = run((0, 2), minimum), run((0, 2), minimum, loops=twice)
        np.testing.assert_allclose(two.tau, one.tau, atol=1e-10)
        np.testing.assert_allclose(two.multipliers, np.tile(np.asarray(one.multipliers) / 2, 2), atol=1e-10)
        assert LoopStatus(int(two.status)) == LoopStatus.REDUNDANT
    assert LoopStatus(int(run((0, 1, 2), loops=twice).status)) == LoopStatus.REDUNDANT | LoopStatus.OVERACTUATED


def test_motions_that_break_the_loops_are_noticed():
    assert LoopStatus.INCONSISTENT in LoopStatus(int(run((0, 2), vdot=VDOT + 0.1).status))
    found = inverse(S.model, S.loops, S.q0, V + 0.1, VDOT, (0, 2), None, minimum="constraint_force")
    assert LoopStatus.SLIPPING in LoopStatus(int(found.status))


def test_hybrid_dynamics_has_forward_dynamics_as_an_extreme():
    tau = jnp.asarray([1.0, -2.0, 0.5, 0.3])
    a, b = hybrid(S.model, S.loops, S.q0, V, VDOT, tau, ()), forward(S.model, S.loops, S.q0, V, tau)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y), a, b)


@pytest.mark.parametrize("prescribed", [(0,), (2,), (1,)])
def test_hybrid_dynamics_solves_the_blocks(prescribed):
    """Unknown: the other accelerations, the prescribed joints' forces and the multipliers."""
    tau = jnp.asarray([1.0, -2.0, 0.5, 0.3])
    drive = jnp.asarray([0.7, -0.4, 0.9, 0.2])
    found = hybrid(S.model, S.loops, S.q0, V, drive, tau, prescribed, minimum="constraint_force")
    M, b = np.asarray(matrix(S.model, S.q0)), np.asarray(free_forces(S.model, S.q0, V, 0 * V))
    bias = np.asarray(constraint(S.model, S.loops, S.q0, V).bias)
    u, w = list(prescribed), [i for i in range(4) if i not in prescribed]
    E = np.eye(4)[:, u]
    K = np.block([[M[:, w], -E, -A.T], [A[:, w], np.zeros((2, len(u) + 2))]])
    right = np.r_[
        np.where(np.isin(range(4), u), 0, tau) - b - M[:, u] @ drive[jnp.asarray(u)],
        -bias - A[:, u] @ drive[jnp.asarray(u)],
    ]
    x = np.linalg.solve(K, right)
    np.testing.assert_allclose(np.asarray(found.vdot)[w], x[: len(w)], atol=1e-10)
    np.testing.assert_allclose(np.asarray(found.tau)[u], x[len(w) : 4], atol=1e-10)
    np.testing.assert_allclose(found.multipliers, x[4:], atol=1e-10)
    np.testing.assert_array_equal(np.asarray(found.vdot)[u], np.asarray(drive)[u])
    assert int(found.status) == LoopStatus.OK


def test_prescribed_motion_that_decides_a_constraint():
    """Three prescribed accelerations of a motion that closes: one constraint too many to drive, forces are a choice."""
    zero = jnp.zeros(4)
    least = [
        hybrid(S.model, S.loops, S.q0, V, VDOT, zero, (0, 1, 2), minimum=m) for m in ("constraint_force", "torque")
    ]
    for found in least:
        np.testing.assert_allclose(found.vdot, VDOT, atol=1e-8)
        assert LoopStatus(int(found.status)) == LoopStatus.OVERACTUATED
        gives_the_motion(found)
    assert np.linalg.norm(least[1].tau) < np.linalg.norm(least[0].tau)
    np.testing.assert_allclose(least[0].tau, run((0, 1, 2)).tau, atol=1e-8)
    np.testing.assert_allclose(least[1].tau, run((0, 1, 2), "torque").tau, atol=1e-8)
    broken = hybrid(S.model, S.loops, S.q0, V, VDOT.at[0].add(1.0), zero, (0, 1, 2), minimum="torque")
    assert LoopStatus.INCONSISTENT in LoopStatus(int(broken.status))
    assert float(broken.residual) > 0.1


def test_torques_have_derivatives():
    """Through the pseudoinverses, with redundant actuators and constraints, against central differences."""
    twice = (*S.loops, *S.loops)

    def torque(x):
        model = S.model.replace(inertias=S.model.inertias.scaled(1 + x[:4]))
        q = lgjax.retract(model, S.q0, x[4:8])
        return lgjax.constrained_inverse_dynamics(model, twice, q, V, VDOT + x[8:], (0, 1, 2), minimum="torque").tau

    zero, h = jnp.zeros(12), 1e-6
    value = jit(jax.vmap(torque))
    steps = h * jnp.eye(12)
    expected = ((value(steps) - value(-steps)) / (2 * h)).T
    np.testing.assert_allclose(jit(jax.jacrev(torque))(zero), expected, atol=1e-6 * float(jnp.abs(expected).max()))


@pytest.mark.parametrize("call", [inverse, hybrid])
def test_bad_sets_are_refused(call):
    s = four_bar()
    v = s.v0
    args = lambda indices: (s.model, s.loops, s.q0, v, v, *((indices,) if call is inverse else (v, indices)))
    name = "actuated" if call is inverse else "prescribed"
    with pytest.raises(ValueError, match=f"{name} velocity index 3 is out of range for nv=3"):
        call(*args((0, 3)))
    with pytest.raises(ValueError, match=f"{name} velocity index -1 is out of range for nv=3"):
        call(*args((-1,)))
    with pytest.raises(ValueError, match=rf"{name} names an index twice: \[1, 1\]"):
        call(*args((1, 1)))
    with pytest.raises(ValueError, match="minimum is 'constraint_force' or 'torque', not 'energy'"):
        call(*args((0,)), minimum="energy")
