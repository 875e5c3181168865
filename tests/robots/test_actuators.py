"""Actuators have MuJoCo's forces, generalized forces and activations; their slopes are derivatives."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import lgjax
from lgjax.robots import actuators

DT = 0.01
XML = f"""
<mujoco model="marionette">
  <compiler angle="radian"/>
  <option timestep="{DT}" gravity="0 0 -9.81"><flag contact="disable" constraint="disable"/></option>
  <worldbody>
    <site name="hook" pos="0.3 0.1 1.2"/>
    <body name="hull" pos="0.1 0.2 0.3">
      <freejoint name="float"/>
      <inertial pos="0.02 -0.03 0.05" mass="4" diaginertia="0.3 0.2 0.25"/>
      <site name="jet" pos="0.2 0.1 -0.1" quat="0.7 0.2 -0.3 0.1"/>
      <body name="turret" pos="0.1 0 0.2" quat="0.8 0.3 0.1 -0.4">
        <joint name="yaw" type="hinge" axis="0.2 0.1 1" actuatorfrclimited="true" actuatorfrcrange="-9 6"/>
        <inertial pos="0 0.05 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
        <body name="boom" pos="0 0.1 0.25">
          <joint name="extend" type="slide" axis="1 0.5 0"/>
          <inertial pos="0.2 0 0.02" mass="0.8" diaginertia="0.01 0.02 0.022"/>
          <site name="tip" pos="0.3 -0.1 0.05" quat="0.9 -0.2 0.4 0.3"/>
        </body>
      </body>
      <body name="bob" pos="0 0.02 0.5" quat="0.6 0.2 -0.7 0.1">
        <joint name="swivel" type="ball" pos="0.01 -0.02 0.03"/>
        <inertial pos="0.05 0.1 -0.02" mass="0.7" diaginertia="0.003 0.002 0.004"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="sum"><joint joint="yaw" coef="0.7"/><joint joint="extend" coef="-1.3"/></fixed>
    <spatial name="rope"><site site="hook"/><site site="jet"/><site site="tip"/></spatial>
  </tendon>
  <actuator>
    <motor name="a" joint="yaw" gear="3" ctrlrange="-1 0.5"/>
    <motor name="b" joint="extend" forcerange="-0.3 0.6"/>
    <position name="c" joint="yaw" kp="12" kv="1.5" forcerange="-8 9"/>
    <position name="d" joint="extend" kp="7" kv="0.5" timeconst="0.03"/>
    <velocity name="e" joint="extend" kv="2.5" ctrlrange="-1 1"/>
    <intvelocity name="f" joint="yaw" kp="5" kv="0.3" actrange="-0.8 0.9"/>
    <damper name="g" joint="yaw" kv="4" ctrlrange="0 1"/>
    <general name="h" tendon="sum" gear="1.7" dyntype="filter" dynprm="0.2" gaintype="affine" gainprm="2 -1 0.5"
      biastype="affine" biasprm="0.3 -2 -0.7" actlimited="true" actrange="-0.5 0.5" forcerange="-4 3"/>
    <general name="i" joint="swivel" gear="0.3 -0.5 0.9" dyntype="integrator" gainprm="2"/>
    <position name="j" joint="swivel" gear="0 1 0" kp="3" kv="0.2"/>
    <motor name="k" joint="float" gear="0.2 0.4 -0.6 1.1 -1.3 0.5"/>
    <general name="l" joint="extend" dyntype="filterexact" dynprm="0.004" actearly="true" actlimited="true"
      actrange="-1 1" gainprm="3"/>
    <general name="m" joint="yaw" dyntype="integrator" actearly="true" gainprm="3"/>
    <position name="n" tendon="rope" kp="20" kv="2"/>
    <motor name="o" site="jet" gear="0 0 1 0 0 0.1"/>
    <dcmotor name="p" joint="yaw" nominal="12 0.5 100" gear="5"/>
  </actuator>
</mujoco>
"""
STATES = 8
TOLERANCE = {jnp.float64: 1e-10, jnp.float32: 1e-5}


def made(model):
    """The actuators of the file, by hand."""
    a, both = actuators, {"names": None}
    at = lambda name, gear=1.0: a.joints(model, [name], gear)
    name = lambda letter: both | {"names": [letter]}
    ball = lambda axis: a.balls(model, ["swivel"], axis)
    return (
        a.motor(model, at("yaw", 3.0), control_range=(-1, 0.5), **name("a"))
        + a.motor(model, ["extend"], force_range=(-0.3, 0.6), **name("b"))
        + a.position(model, ["yaw"], 12.0, 1.5, force_range=(-8, 9), **name("c"))
        + a.position(model, ["extend"], 7.0, 0.5, time_constant=0.03, **name("d"))
        + a.velocity(model, ["extend"], 2.5, control_range=(-1, 1), **name("e"))
        + a.intvelocity(model, ["yaw"], 5.0, 0.3, activation_range=(-0.8, 0.9), **name("f"))
        + a.damper(model, ["yaw"], 4.0, control_range=(0, 1), **name("g"))
        + a.general(
            model, a.fixed_tendons(model, [{"yaw": 0.7, "extend": -1.3}], 1.7), (2, -1, 0.5), (0.3, -2, -0.7),
            dynamics="filter", time_constant=0.2, activation_range=(-0.5, 0.5), force_range=(-4, 3), **name("h"),
        )
        + a.general(model, ball((0.3, -0.5, 0.9)), (2, 0, 0), dynamics="integrator", **name("i"))
        + a.position(model, ball((0, 1, 0)), 3.0, 0.2, **name("j"))
        + a.motor(model, a.frees(model, ["float"], (1.1, -1.3, 0.5, 0.2, 0.4, -0.6)), **name("k"))
        + a.general(
            model, ["extend"], (3, 0, 0), dynamics="filterexact", time_constant=0.004, activation_range=(-1, 1),
            early=True, **name("l"),
        )
        + a.general(model, ["yaw"], (3, 0, 0), dynamics="integrator", early=True, **name("m"))
        + a.position(model, a.spatial_tendons(model, [["hook", "jet", "tip"]]), 20.0, 2.0, **name("n"))
        + a.motor(model, a.sites(model, ["jet"], (0, 0, 0.1, 0, 0, 1)), **name("o"))
        + a.dc_motor(model, at("yaw", 5.0), 0.5, 100.0, 12.0, control_range=None, **name("p"))
    ).within(model, ["yaw"], (-9, 6))  # fmt: skip


@cache
def models():
    bodies, _ = XML.split("<tendon>")
    return lgjax.load_mjcf(bodies + "</mujoco>"), mujoco.MjModel.from_xml_string(XML)


@cache
def states():
    """Configurations, velocities, controls, activations: of every limit some states are beyond it."""
    model, compiled = models()
    keys = jax.random.split(jax.random.key(7), STATES)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    random = np.random.default_rng(8)
    v, control = random.normal(size=(STATES, model.nv)), 1.5 * random.normal(size=(STATES, compiled.nu))
    return q, v, control, 0.6 * random.normal(size=(STATES, compiled.na))


@cache
def theirs():
    """MuJoCo's forces, generalized forces in this library's velocities, rates, and activations after a step."""
    model, compiled = models()
    data, found = mujoco.MjData(compiled), []
    for i in range(STATES):
        q, v, control, activation = jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), states())
        mujoco.mj_resetData(compiled, data)
        state = lgjax.conventions.to_mujoco(model, q, v)
        data.qpos[:], data.qvel[:], data.ctrl[:], data.act[:] = state.q, state.v, control, activation
        mujoco.mj_forward(compiled, data)
        tau = lgjax.conventions.from_mujoco(model, state.q, tau=jnp.asarray(data.qfrc_actuator)).tau
        force, rates = data.actuator_force.copy(), data.act_dot.copy()
        mujoco.mj_step(compiled, data)
        found.append((force, tau, rates, data.act.copy()))
    return jax.tree.map(lambda *x: np.stack(x), *found)


@cache
def ours(dtype):
    model, _ = models()
    given = made(model).astype(dtype)

    def answers(given, q, v, control, activation):
        rates = given.rates(q, v, control, activation)
        force, tau = (f(q, v, control, activation, DT) for f in (given.forces, given.torque))
        return force, tau, rates, given.advance(activation, rates, DT)

    args = jax.tree.map(lambda x: jnp.asarray(x, dtype), states())
    return jax.jit(jax.vmap(answers, (None, 0, 0, 0, 0)))(given, *args)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_forces_and_activations_are_those_of_mujoco(dtype):
    names = ("forces", "generalized forces", "rates", "next activations")
    for mine, their, what in zip(ours(dtype), theirs(), names, strict=True):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine, their, atol=TOLERANCE[dtype] * np.abs(their).max(), rtol=0, err_msg=what)
