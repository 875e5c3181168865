"""A mechanism with a free base, hinges, slides, a ball, armature and damping moves as MuJoCo says, without contacts."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax import jit

import lgjax
from tests import optimized

# Children are in alphabetical order nowhere; inertial frames are turned and shifted; the second tree is fixed.
XML = """
<mujoco model="crane">
  <compiler angle="radian"/>
  <option gravity="0.3 -0.2 -9.81"><flag contact="disable" constraint="disable" energy="enable"/></option>
  <worldbody>
    <body name="hull" pos="0.1 0.2 0.3">
      <freejoint name="float"/>
      <inertial pos="0.02 -0.03 0.05" quat="0.9 0.1 -0.3 0.2" mass="4" diaginertia="0.3 0.2 0.25"/>
      <body name="turret" pos="0.1 0 0.2" quat="0.8 0.3 0.1 -0.4">
        <joint name="yaw" type="hinge" axis="0.2 0.1 1" damping="0.3" armature="0.05"/>
        <inertial pos="0 0.05 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
        <body name="boom" pos="0 0.1 0.25">
          <joint name="extend" type="slide" axis="1 0.5 0" damping="2.0" armature="0.1"/>
          <inertial pos="0.2 0 0.02" quat="0.5 0.5 -0.5 0.5" mass="0.8" diaginertia="0.01 0.02 0.022"/>
        </body>
        <body name="arm" pos="-0.1 0 0.1">
          <joint name="shoulder" type="hinge" axis="0 1 0" pos="0.02 0.01 -0.03" damping="0.1"/>
          <inertial pos="0.1 0 0" mass="0.6" diaginertia="0.004 0.006 0.007"/>
        </body>
      </body>
      <body name="antenna" pos="-0.2 0.1 0.1" quat="0.7 0 0.7 0.1">
        <joint name="bend" type="hinge" axis="1 0 0" armature="0.01"/>
        <inertial pos="0 0 0.15" mass="0.3" diaginertia="0.002 0.002 0.001"/>
      </body>
    </body>
    <body name="cart" pos="1 0 0">
      <joint name="rail" type="slide" axis="1 0 0" damping="0.5"/>
      <inertial pos="0 0 0" mass="2" diaginertia="0.1 0.1 0.1"/>
      <body name="pole" pos="0 0 0.1">
        <joint name="pivot" type="hinge" axis="0 1 0"/>
        <inertial pos="0 0 0.3" mass="0.5" diaginertia="0.01 0.01 0.001"/>
        <body name="bob" pos="0 0.02 0.5" quat="0.6 0.2 -0.7 0.1">
          <joint name="swivel" type="ball" pos="0.01 -0.02 0.03" damping="0.2" armature="0.02"/>
          <inertial pos="0.05 0.1 -0.02" quat="0.9 0.1 -0.3 0.2" mass="0.7" diaginertia="0.003 0.002 0.004"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
STATES = 8
TIP = 4  # the body whose Jacobian is compared
TOLERANCE = {jnp.float64: 1e-10, jnp.float32: 1e-4}


@cache
def models():
    theirs = mujoco.MjModel.from_xml_string(XML)
    model = lgjax.load_mjcf(XML)
    names = [mujoco.mj_id2name(theirs, mujoco.mjtObj.mjOBJ_JOINT, i) for i in range(theirs.njnt)]
    assert list(model.tree.joint_names) == names
    assert model.nv == theirs.nv
    return model, theirs


@cache
def states():
    model, _ = models()
    keys = jax.random.split(jax.random.key(1), STATES)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    v, vdot, tau = np.random.default_rng(0).normal(size=(3, STATES, model.nv))
    return q, v, vdot, tau, np.random.default_rng(1).normal(size=(STATES, model.nbodies, 6))


def free_to_world(R):
    """MuJoCo's qvel = T v: [world linear velocity, body angular velocity] of the free joint, the rest as it is."""
    T = np.eye(models()[0].nv)
    T[:6, :6] = np.block([[np.zeros((3, 3)), R], [np.eye(3), np.zeros((3, 3))]])
    return T


def answers(i):
    """MuJoCo's numbers of state i in this library's conventions."""
    model, theirs = models()
    q, v, vdot, tau, wrenches = jax.tree.map(lambda x: np.asarray(x[i]), states())
    data = mujoco.MjData(theirs)
    R, p = q.free_poses.rotation[0], q.free_poses.translation[0]
    quaternion, swivel = np.zeros((2, 4))
    mujoco.mju_mat2Quat(quaternion, R.ravel())
    mujoco.mju_mat2Quat(swivel, q.ball_rotations[0].ravel())
    data.qpos[:] = np.r_[p, quaternion, q.joints, swivel]
    T = free_to_world(R)
    # d/dt (T v) = T vdot + turning: the world velocity of the base also changes as the body frame turns
    turning = np.zeros(model.nv)
    turning[:3] = R @ np.cross(v[:3], v[3:6])
    data.qvel[:] = T @ v
    data.qfrc_applied[:] = np.linalg.solve(T.T, tau)
    mujoco.mj_forward(theirs, data)
    generalized = np.zeros(theirs.nv)
    for body in range(model.nbodies):
        rotation, position = data.xmat[body + 1].reshape(3, 3), data.xpos[body + 1]
        n, f = rotation @ wrenches[body, :3], rotation @ wrenches[body, 3:]
        mujoco.mj_applyFT(theirs, data, f, n, position, body + 1, generalized)
    data.qfrc_applied[:] += generalized
    mujoco.mj_forward(theirs, data)
    acceleration = np.linalg.solve(T, data.qacc - turning)
    rotation, translation = data.xmat[1:].reshape(-1, 3, 3).copy(), data.xpos[1:].copy()
    energy = data.energy.copy()
    mass = np.zeros((theirs.nv, theirs.nv))
    mujoco.mj_fullM(theirs, data, mass)
    tip = TIP
    linear, angular = np.zeros((2, 3, theirs.nv))
    mujoco.mj_jacBody(theirs, data, linear, angular, tip + 1)
    jacobian = np.vstack([rotation[tip].T @ angular, rotation[tip].T @ linear]) @ T
    data.qacc[:] = T @ vdot + turning
    data.qfrc_applied[:] = 0
    mujoco.mj_inverse(theirs, data)
    inverse = T.T @ (data.qfrc_inverse - generalized)
    return {
        "forward_dynamics": acceleration,
        "inverse_dynamics": inverse,
        "mass_matrix": T.T @ mass @ T,
        "rotation": rotation,
        "translation": translation,
        "jacobian": jacobian,
        "potential_energy": energy[0],
        "kinetic_energy": energy[1],
    }


def everything(model, q, v, vdot, tau, wrenches):
    poses = lgjax.forward_kinematics(model, q)
    return {
        "forward_dynamics": lgjax.forward_dynamics(model, q, v, tau, wrenches),
        "inverse_dynamics": lgjax.inverse_dynamics(model, q, v, vdot, wrenches),
        "mass_matrix": lgjax.mass_matrix(model, q),
        "rotation": poses.rotation,
        "translation": poses.translation,
        "jacobian": lgjax.jacobian(model, q, TIP),
        "potential_energy": lgjax.potential_energy(model, q),
        "kinetic_energy": lgjax.kinetic_energy(model, q, v),
    }


def errors(dtype):
    cast = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)
    compiler = optimized.jit if dtype == jnp.float64 else jit
    got = compiler(jax.vmap(everything, (None, 0, 0, 0, 0, 0)))(cast(models()[0]), *cast(states()))
    wanted = jax.tree.map(lambda *rows: np.stack(rows), *map(answers, range(STATES)))
    return {k: np.abs(np.asarray(got[k]) - wanted[k]).max() / np.abs(wanted[k]).max() for k in wanted}


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32], ids=lambda dtype: dtype.__name__)
def test_agrees_with_mujoco(dtype):
    found = errors(dtype)
    assert max(found.values()) < TOLERANCE[dtype], found
