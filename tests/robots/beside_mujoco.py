"""A tree of many joints as an MJCF text, and MuJoCo's answers at random states, for robots that are read from files."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import lgjax
from lgjax.conventions import from_mujoco, to_mujoco

STATES = 100
# No contacts and no constraints: what is left is smooth.
OFF = '<option gravity="0.3 -0.2 -9" {more}><flag contact="disable" constraint="disable"/></option>'


def text(bodies: str, after: str = "", more: str = "") -> str:
    return f"<mujoco><compiler angle='radian'/>{OFF.format(more=more)}<worldbody>{bodies}</worldbody>{after}</mujoco>"


# Free, ball, hinge and slide joints, a body with two of them, links on fixed joints, turned inertial frames.
TREE = """
<site name="wall" pos=".1 .2 1.5" euler=".3 .2 .1"/><camera name="eye" pos="1 0 1" xyaxes="1 0 0 0 .6 .8"/>
<body name="trunk" pos="0 .1 1" gravcomp=".5"><joint name="root" type="free" {free}/>
 <inertial mass="3" pos=".01 .02 .03" fullinertia=".05 .06 .07 .001 .002 .003"/>
 <site name="belly" pos=".1 0 -.1" euler=".2 .1 .3"/>
 <body name="thigh" pos=".1 0 -.1" euler=".3 .2 .1">
  <joint name="swing" axis="1 0 0" pos="0 .01 0" armature=".01" ref=".3" {swing}/>
  <joint name="reach" type="slide" axis="0 1 .5" ref=".1" {reach}/>
  <inertial mass="1" pos="0 .05 -.2" fullinertia=".02 .03 .04 .001 .002 .003"/>
  <geom name="shell" type="box" size=".05 .04 .2" pos="0 .05 -.2" euler=".1 0 .2" mass="0" contype="0" conaffinity="0"
   {shell}/>
  <body name="pad" pos=".02 .03 -.1" euler="0 .4 0" gravcomp="1.2">
   <inertial mass=".4" pos="0 .01 .02" diaginertia=".002 .003 .004"/><site name="tip" pos="0 .02 .1" euler=".5 0 0"/>
  </body>
  <body name="shin" pos="0 0 -.4" quat=".8 0 .6 0"><joint name="ankle" type="ball" pos="0 0 .05" {ankle}/>
   <inertial mass=".5" pos="0 .02 -.2" diaginertia=".02 .03 .04"/><site name="sole" pos="0 .1 -.3"/></body>
 </body>
 <body name="arm" pos="0 .3 0"><joint name="elbow" axis="0 1 0" {elbow}/>
  <inertial mass=".7" pos=".1 0 0" diaginertia=".01 .02 .02"/><site name="hand" pos=".3 0 0" euler="0 .2 0"/></body>
</body>"""
PLAIN = dict.fromkeys(("free", "swing", "reach", "ankle", "elbow", "shell"), "")


def tree(**attributes: str) -> str:
    return TREE.format(**(PLAIN | attributes)).replace('gravcomp=".5"', "").replace('gravcomp="1.2"', "")


CABLES = """<tendon>
 <fixed name="cable" {cable}><joint joint="swing" coef=".5"/><joint joint="elbow" coef="-.3"/></fixed>
 <spatial name="rope" {rope}><site site="wall"/><site site="belly"/><pulley divisor="2"/><site site="hand"/>
  <site site="sole"/></spatial></tendon>"""


class States(NamedTuple):
    """Flat states of MuJoCo, controls and activations, (STATES, ...)."""

    q: np.ndarray
    v: np.ndarray
    control: np.ndarray
    activation: np.ndarray


@cache
def loaded(of: str):
    return lgjax.load_robot(of), mujoco.MjModel.from_xml_string(of)


def states(theirs, count=STATES) -> States:
    draw = np.random.default_rng(1)
    q, data = np.zeros((count, theirs.nq)), mujoco.MjData(theirs)
    for row in q:  # turned by any rotation, not only by small ones
        mujoco.mj_resetData(theirs, data)
        mujoco.mj_integratePos(theirs, data.qpos, draw.normal(size=theirs.nv), 1.0)
        row[:] = data.qpos
    return States(q, *(draw.normal(size=(count, n)) for n in (theirs.nv, theirs.nu, theirs.na)))


def readings(theirs, given: States, read):
    """read(data) at each state, after everything is computed, stacked."""
    data, found = mujoco.MjData(theirs), []
    for q, v, control, activation in zip(*given, strict=True):
        data.qpos[:], data.qvel[:], data.ctrl[:], data.act[:] = q, v, control, activation
        mujoco.mj_forward(theirs, data)
        found.append(jax.tree.map(np.array, read(data)))
    return jax.tree.map(lambda *x: np.stack(x), *found)


def batched(robot, given: States, f):
    """f(q, v, control, activation) at each state; q and v in lgjax's form."""

    def one(q, v, *rest):
        state = from_mujoco(robot.model, q, v)
        return f(state.q, state.v, *rest)

    return jax.jit(jax.vmap(one))(*map(jnp.asarray, given))


def same(ours, theirs, tolerance=1e-10):
    np.testing.assert_allclose(ours, theirs, atol=tolerance * np.abs(theirs).max(initial=1e-3), rtol=tolerance)


def total(robot):
    """Generalized forces of all that acts, and accelerations under them in MuJoCo's form."""

    def f(q, v, control, activation):
        tau = jnp.zeros_like(v) if robot.forces is None else robot.forces(0.0, q, v)
        if robot.actuators is not None:
            tau = tau + robot.actuators.torque(q, v, control, activation)
        vdot = lgjax.forward_dynamics(robot.model, q, v, tau)
        return to_mujoco(robot.model, q, v, vdot, tau).vdot

    return f
