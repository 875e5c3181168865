"""A robot file as a whole against MuJoCo, and in a rollout."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import lgjax
from lgjax.contact import TimeStepping
from lgjax.forces import TendonLimits
from tests.robots.whole import TEXT


def test_accelerations_and_actuators_are_those_of_mujoco():
    """Without constraints, at twenty states: springs, tendon, gravity compensation, fluid, armature, actuators."""
    text = TEXT.replace('frictionloss="0.1"', "")
    robot, theirs = lgjax.load_robot(text), mujoco.MjModel.from_xml_string(text)
    theirs.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    # Limits of tendons are constraints there.
    smooth = [force for force in robot.forces.forces if not isinstance(force, TendonLimits)]
    assert len(smooth) == 7
    draw, data = np.random.default_rng(0), mujoco.MjData(theirs)

    @jax.jit
    def ours(q, v, control, activation):
        force = robot.actuators.forces(q, v, control, activation)
        tau = robot.actuators.torque(q, v, control, activation) + sum(part(0.0, q, v) for part in smooth)
        return force, lgjax.forward_dynamics(robot.model, q, v, tau)

    for _ in range(20):
        data.qpos[:], data.qvel[:] = draw.normal(size=theirs.nq) / 2, draw.normal(size=theirs.nv)
        data.qpos[3:7] /= np.linalg.norm(data.qpos[3:7])
        data.ctrl[:], data.act[:] = draw.normal(size=theirs.nu), draw.normal(size=theirs.na)
        mujoco.mj_forward(theirs, data)
        state = lgjax.conventions.from_mujoco(robot.model, data.qpos.copy(), data.qvel.copy())
        force, vdot = ours(state.q, state.v, jnp.array(data.ctrl), jnp.array(data.act))
        np.testing.assert_allclose(force, data.actuator_force, rtol=1e-10, atol=1e-10)
        found = lgjax.conventions.to_mujoco(robot.model, state.q, state.v, vdot)
        np.testing.assert_allclose(found.vdot, data.qacc, rtol=1e-9, atol=1e-9 * np.max(np.abs(data.qacc)))


def test_a_robot_moves_and_keeps_its_loop_on_its_ground():
    robot = lgjax.load_robot(TEXT)
    assert robot.ignored == ()
    key = robot.keyframes["up"]
    np.testing.assert_allclose(key.control, [0.1, 0.2, 0.3])
    q = lgjax.project_positions(robot.model, robot.loops, key.q).q
    path = lgjax.rollout(robot, q, key.v, key.control, 2e-3, 50, TimeStepping())
    assert path.success
    hip, knee = path.q.joints[-1][0], path.q.joints[-1][1]
    np.testing.assert_allclose(knee, 0.1 - 1.5 * hip + 0.2 * hip**2, atol=1e-10)
    assert path.contacts.force.shape[0] == 51
    assert len(lgjax.Contacts(robot)) == path.contacts.force.shape[1]


def test_parts_can_be_left_out():
    robot = lgjax.load_robot(TEXT, ignore=("equality", "sensor", "actuator"))
    assert robot.loops == ()
    assert robot.sensors is None
    assert robot.actuators is None
    with pytest.raises(ValueError, match="ignore"):
        lgjax.load_robot(TEXT, ignore=("nonsense",))


def test_contacts_of_a_robot_have_the_larger_friction_and_keep_the_filters():
    """A plane with 0.6, shapes with 0.3 and 0.9, and one that the plane does not meet; of two planes each its own."""
    shape = '<body name="{0}" pos="0 0 1"><freejoint/><geom type="sphere" size=".1" friction="{1}" {2}/></body>'
    bodies = shape.format("smooth", 0.3, "") + shape.format("rough", 0.9, "")
    bodies += shape.format("other", 0.5, 'contype="2" conaffinity="2"')
    plane = '<geom type="plane" size="1 1 1" friction="{}"/>'
    robot = lgjax.load_robot(f"<mujoco><worldbody>{plane.format(0.6)}{bodies}</worldbody></mujoco>")
    contacts = lgjax.Contacts(robot)
    assert contacts.names == ("smooth", "rough")
    np.testing.assert_allclose(contacts.friction, [0.6, 0.9])
    two = lgjax.load_robot(f"<mujoco><worldbody>{plane.format(0.6)}{plane.format(0.2)}{bodies}</worldbody></mujoco>")
    np.testing.assert_allclose(lgjax.Contacts(two).friction, [0.6, 0.9, 0.3, 0.9])


def test_a_robot_that_can_touch_nothing_moves_without_contacts():
    body = '<body pos="0 0 1"><freejoint/><geom type="sphere" size=".1" contype="0" conaffinity="0"/></body>'
    robot = lgjax.load_robot(f'<mujoco><worldbody><geom type="plane" size="1 1 1"/>{body}</worldbody></mujoco>')
    key = robot.keyframes["initial"]
    path = lgjax.rollout(robot, key.q, key.v, None, 1e-2, 100, TimeStepping())
    assert path.contacts is None
    np.testing.assert_allclose(path.q.free_poses.translation[-1, 0, 2], 1 - 9.81 / 2, rtol=1e-10)
