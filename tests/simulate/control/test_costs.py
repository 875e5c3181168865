"""Costs of momentum and of a frame's pose and position are those of Pinocchio's numbers, with its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest

import lgjax
from lgjax.simulate.control import ControlSystem, costs
from lgjax.simulate.control.linear_quadratic.sparse import dense
from tests.oracles.pinocchio_trees import pinocchio_tree

MODEL = lgjax.models.chain(3, floating_base=True)
N, NAME, STEP = MODEL.nv, MODEL.body_names[-1], 1e-6
ORACLE = pinocchio_tree(MODEL)
RNG = np.random.default_rng(3)
MOMENTUM, WEIGHTS = RNG.normal(size=6), RNG.uniform(0.5, 2.0, 6)
PLACE, GOAL = RNG.normal(size=3), pin.SE3(pin.exp3(RNG.normal(size=3)), RNG.normal(size=3))


def turn_of_frame():
    """The frame in the joint's, whose axis is z: the same in every configuration, so it is read at the neutral one."""
    data, q = ORACLE.createData(), lgjax.neutral(MODEL)
    pin.forwardKinematics(ORACLE, data, np.asarray(lgjax.conventions.to_pinocchio(MODEL, q, np.zeros(N)).q))
    return data.oMi[ORACLE.njoints - 1].actInv(pin.SE3(*map(np.asarray, lgjax.frame_pose(MODEL, q, NAME))))


TURN = turn_of_frame()


def momentum(q, v):
    """Weighted difference of the momentum about the world's origin, angular first, from the target."""
    data = ORACLE.createData()
    about_center = pin.computeCentroidalMomentum(ORACLE, data, q, v)
    linear = np.array(about_center.linear)
    return WEIGHTS * (np.r_[about_center.angular + np.cross(data.com[0], linear), linear] - MOMENTUM)


def position(q, v):
    data = ORACLE.createData()
    pin.forwardKinematics(ORACLE, data, q)
    return WEIGHTS[:3] * (data.oMi[ORACLE.njoints - 1].translation - PLACE)


def pose(q, v):
    """Weighted logarithm of the frame's pose, as the goal sees it, angular first."""
    data = ORACLE.createData()
    pin.forwardKinematics(ORACLE, data, q)
    return WEIGHTS * pin.log6(GOAL.actInv(data.oMi[ORACLE.njoints - 1] * TURN)).vector[np.r_[3:6, 0:3]]


def slopes(residual, q, v):
    """(k, 2 nv) by differences along Pinocchio's tangents, whose free joint has the linear part first."""
    swap, columns = np.r_[3:6, 0:3, 6:N], []
    for direction in np.eye(2 * N):
        dq, dv = STEP * direction[:N][swap], STEP * direction[N:][swap]
        ahead, behind = (residual(pin.integrate(ORACLE, q, s * dq), v + s * dv) for s in (1, -1))
        columns.append((ahead - behind) / (2 * STEP))
    return np.stack(columns, 1)


CASES = {
    "frame": (costs.frame(MODEL, NAME, lgjax.Pose(GOAL.rotation, GOAL.translation), WEIGHTS), pose),
    "momentum": (costs.momentum(MODEL, MOMENTUM, WEIGHTS), momentum),
    "frame_position": (costs.frame_position(MODEL, NAME, PLACE, WEIGHTS[:3]), position),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_quadratic_model_are_those_of_pinocchio(name):
    cost, residual = CASES[name]
    system = ControlSystem.of_model(MODEL, 0.1)

    @jax.jit
    def of(state):
        time, control = jnp.zeros(()), jnp.zeros(system.controls)
        return cost(state), cost(time, state, control), cost.expand(system, None, state, None)

    q, v = lgjax.random_configuration(jax.random.key(4), MODEL), jnp.asarray(RNG.normal(size=N))
    terminal, running, model = of((q, v))
    theirs = lgjax.conventions.to_pinocchio(MODEL, q, v)
    q, v = np.asarray(theirs.q), np.asarray(theirs.v)
    r, J = residual(q, v), slopes(residual, q, v)
    np.testing.assert_allclose(terminal, r @ r / 2, rtol=1e-12)
    np.testing.assert_array_equal(terminal, running)
    np.testing.assert_allclose(model.x, J.T @ r, atol=1e-7)
    np.testing.assert_allclose(dense(model.xx), J.T @ J, atol=1e-7)


def test_costs_of_frames_and_momentum_name_what_is_wrong():
    with pytest.raises(ValueError, match="nowhere"):
        costs.frame_position(MODEL, "nowhere", PLACE)
    with pytest.raises(ValueError, match=r"target has shape \(2,\)"):
        costs.frame_position(MODEL, NAME, PLACE[:2])
    with pytest.raises(ValueError, match=r"weights has shape \(5,\)"):
        costs.momentum(MODEL, 0.0, WEIGHTS[:5])


def test_costs_are_added_and_scaled_as_numbers_are():
    model, state = lgjax.models.chain(2), (lgjax.neutral(lgjax.models.chain(2)), jnp.ones(2))
    cost = costs.state(model, (state[0], jnp.zeros(2)))
    value = cost(state)
    for same in (2 * cost, cost * 2.0, cost / 0.5, sum([cost, cost]), cost + cost):
        np.testing.assert_allclose(same(state), 2 * value, rtol=1e-14)
    with pytest.raises(TypeError, match="unsupported operand"):
        1.0 + cost  # type: ignore[operator]
