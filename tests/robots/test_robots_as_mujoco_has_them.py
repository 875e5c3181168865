"""Robots from MJCF texts beside MuJoCo's own reading of them: forces, actuators, sensors, constraints, keyframes."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

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
  <joint name="reach" type="slide" axis="0 1 .5" damping=".2" ref=".1" {reach}/>
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
PASSIVE = {
    "springs": text(
        tree(swing='stiffness="3" springref=".7"', reach='stiffness="20" springref="-.2"', ankle='stiffness="2"'),
    ),
    "springs and dampers with powers": text(
        tree(
            swing='stiffness="3 .5 .2" springref=".7" damping=".1 .2 .3"',
            reach='damping="0 .4"',
            ankle='stiffness="2 .3 .1"',
        )
    ),
    "a free joint": text(tree(free='stiffness="4" damping=".5" armature=".3"')),
    "gravity compensation": text(TREE.format(**PLAIN)),
    "tendons": text(
        tree(),
        CABLES.format(
            cable='stiffness="5" damping=".4" springlength="-.1 .05"', rope='stiffness="9 1 .5" damping=".3 .2"'
        ),
    ),
    "a fluid": text(tree(), more='density="1.2" viscosity=".3" wind="1 .2 -.1"'),
    "a fluid with ellipsoids": text(
        tree(shell='fluidshape="ellipsoid" fluidcoef=".4 .3 1.4 .9 1.1"'),
        more='density="900" viscosity=".1" wind="1 .2 -.1"',
    ),
    "armature and damping of actuators": text(
        tree(), '<actuator><motor joint="elbow" gear="-3" armature=".02" damping=".1"/></actuator>'
    ),
    "springs and dampers that are off": text(
        TREE.format(**(PLAIN | {"swing": 'stiffness="3" damping="2"'})),
        CABLES.format(cable='stiffness="5" damping=".4"', rope=""),
        'density="900" viscosity=".1"',
    ).replace("<flag ", '<flag spring="disable" damper="disable" '),
    "no gravity": text(TREE.format(**PLAIN)).replace("<flag ", '<flag gravity="disable" '),
}


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


@pytest.mark.parametrize("name", PASSIVE)
def test_accelerations_under_passive_forces_are_those_of_mujoco(name):
    robot, theirs = loaded(PASSIVE[name])
    given = states(theirs)
    same(batched(robot, given, total(robot)), readings(theirs, given, lambda data: data.qacc), 1e-9)
    assert (robot.forces is None) == (name in ("armature and damping of actuators", "no gravity") or "off" in name)


DRIVES = """<actuator>
 <motor name="motor" joint="swing" gear="2" ctrlrange="-.5 .5"/>
 <position name="position" joint="reach" kp="30" kv="2" forcerange="-8 6"/>
 <position name="filtered" joint="elbow" kp="3" timeconst=".1" inheritrange="1"/>
 <velocity name="velocity" joint="elbow" kv="2"/><intvelocity name="intvelocity" joint="swing" kp="4" actrange="-1 1"/>
 <damper name="damper" joint="reach" kv="2" ctrlrange="0 1"/>
 <general name="affine" joint="elbow" gaintype="affine" gainprm="1 .5 .2" biastype="affine" biasprm=".3 -1 -.4"/>
 <general name="slow" joint="swing" dyntype="filter" dynprm=".2" gainprm="3"/>
 <general name="exact" joint="swing" dyntype="filterexact" dynprm=".2" gainprm="3" actearly="true"/>
 <motor name="ball" joint="ankle" gear="1 2 -.5"/><motor name="ball in parent" jointinparent="ankle" gear="1 2 -.5"/>
 <motor name="free" joint="root" gear="1 2 3 -1 .5 2"/><motor name="free in parent" jointinparent="root" gear="1 2 3 4 5 6"/>
 <position name="cable" tendon="cable" kp="5" gear="2"/><motor name="rope" tendon="rope" gear="-.5"/>
 <motor name="jet" site="tip" gear="1 2 3 4 5 6"/>
 <position name="pointing" site="hand" refsite="belly" kp="2" gear="1 .3 0 0 0 0"/>
 <motor name="crank" cranksite="sole" slidersite="belly" cranklength="2" gear="3"/>
</actuator>"""
DRIVEN = text(
    tree(elbow='range="-1 1.5" actuatorfrcrange="-1 2"', swing='actuatorfrcrange="-3 3"'),
    CABLES.format(cable="", rope="") + DRIVES,
)


def test_actuators_are_those_of_mujoco():
    robot, theirs = loaded(DRIVEN)
    assert robot.actuators.names[:3] == ("motor", "position", "filtered")
    assert robot.actuators.na == theirs.na == 4
    given, drives = states(theirs), robot.actuators

    def ours(q, v, control, activation):
        tau = drives.torque(q, v, control, activation)
        return (
            drives.lengths(q),
            drives.forces(q, v, control, activation),
            drives.rates(q, v, control, activation),
            to_mujoco(robot.model, q, v, tau=tau).tau,
        )

    expected = readings(theirs, given, lambda d: (d.actuator_length, d.actuator_force, d.act_dot, d.qfrc_actuator))
    # An actuator that is early acts with the activation at the end of the step, which has no part in this.
    late = [name != "exact" for name in drives.names]
    for k, (x, y) in enumerate(zip(batched(robot, given, ours), expected, strict=True)):
        rows = late if k == 1 else slice(None)
        if k != 3:
            same(x[:, rows], y[:, rows])
    without = [k for k in range(theirs.nv) if k != 6]  # what is early turns the joint `swing`
    same(batched(robot, given, ours)[3][:, without], expected[3][:, without])


SENSED = text(
    tree(),
    CABLES.format(cable="", rope="")
    + DRIVES
    + """<sensor>
 <accelerometer site="tip"/><gyro site="tip"/><velocimeter site="hand"/><magnetometer site="hand"/>
 <force site="tip"/><torque site="hand"/><jointpos joint="reach"/><jointvel joint="elbow"/>
 <tendonpos tendon="rope"/><tendonvel tendon="cable"/><actuatorpos actuator="cable"/><actuatorvel actuator="rope"/>
 <actuatorfrc actuator="position"/><jointactfrc joint="elbow"/><tendonactfrc tendon="cable"/>
 <ballangvel joint="ankle"/><framepos objtype="site" objname="tip" reftype="site" refname="hand"/>
 <framepos objtype="body" objname="thigh"/><framepos objtype="xbody" objname="thigh"/>
 <framepos objtype="geom" objname="shell"/><framexaxis objtype="camera" objname="eye" reftype="body" refname="pad"/>
 <framelinvel objtype="site" objname="sole" reftype="xbody" refname="arm"/>
 <frameangvel objtype="xbody" objname="pad"/><framelinacc objtype="site" objname="sole"/>
 <frameangacc objtype="xbody" objname="shin"/><subtreecom body="thigh"/><subtreelinvel body="arm"/>
 <subtreeangmom body="pad"/><clock/><e_kinetic/><rangefinder site="tip"/></sensor>""",
    'magnetic="0.1 -0.5 0.3"',
)


def test_sensors_are_those_of_mujoco():
    """With the accelerations and actuator forces of the moment; links on fixed joints, too."""
    robot, theirs = loaded(SENSED)
    given, drives, sensors = states(theirs, 20), robot.actuators, robot.sensors

    def ours(q, v, control, activation):
        tau, force = (f(q, v, control, activation) for f in (drives.torque, drives.forces))
        return sensors(lgjax.sensors.instant(robot.model, 0.0, q, v, tau, actuator_force=force, actuator_torque=tau))

    given = given._replace(
        activation=0 * given.activation, control=np.where(np.array(drives.names) == "exact", 0, given.control)
    )
    expected = readings(theirs, given, lambda data: data.sensordata)[:, : sensors.size]
    assert robot.ignored == ("sensor in line 12 (rangefinder)",)
    assert (len(sensors), sensors.size) == (30, theirs.nsensordata - 1)
    same(batched(robot, given, ours), expected, 1e-9)


HELD = """<mujoco><compiler angle="radian"/><option><flag contact="disable"/></option><worldbody>
 <body name="a" pos="0 0 1"><freejoint/><geom size=".1"/><site name="sa" pos=".1 .2 .3" euler=".1 .2 .3"/>
  <body name="b" pos=".2 0 .1" euler=".3 0 .2"><joint name="j" axis="0 1 0" ref=".4"/><geom size=".1" pos=".1 0 0"/>
   <body name="fixed" pos=".1 .1 0" euler="0 .2 0"><geom size=".05"/></body></body></body>
 <body name="c" pos=".5 .1 1" euler="0 .4 .1"><freejoint/><geom size=".1"/><site name="sc" pos="-.1 0 .1"/>
  <body name="d" pos=".1 .1 .1"><joint name="k" axis="1 1 0" ref="-.2"/><geom size=".1" pos="0 .1 0"/></body></body>
 <body name="e" pos="0 0 .3"><joint name="l" axis="1 0 0"/><joint name="m" type="slide"/><geom size=".1"/></body>
</worldbody><tendon><fixed name="s"><joint joint="j" coef="2"/><joint joint="l" coef="-1"/></fixed>
 <fixed name="t"><joint joint="k" coef="1.5"/></fixed></tendon><equality>{}</equality></mujoco>"""
CONSTRAINTS = {
    "connect": '<connect body1="fixed" body2="c" anchor=".1 .2 .3"/>',
    "connect to the world": '<connect body1="b" anchor=".1 .2 .3"/>',
    "connect of sites": '<connect site1="sa" site2="sc"/>',
    "weld": '<weld body1="fixed" body2="c" anchor=".1 .2 .3"/>',
    "weld with a pose": '<weld body1="b" body2="d" relpose=".1 .2 .3 .8 .6 0 0"/>',
    "weld to the world": '<weld body1="d"/>',
    "weld of sites": '<weld site1="sa" site2="sc"/>',
    "weld without torque": '<weld body1="fixed" body2="c" anchor=".1 .2 .3" torquescale="0"/>',
    "joint": '<joint joint1="j" joint2="k" polycoef=".1 .5 -.3 .2 .1"/>',
    "joint held": '<joint joint1="k" polycoef=".3 9 9 9 9"/>',
    "slide and hinge": '<joint joint1="m" joint2="l" polycoef="0 .1"/>',
    "tendons": '<tendon tendon1="s" tendon2="t" polycoef=".1 .5 -.3 .2 .1"/>',
    "tendon held": '<tendon tendon1="s" polycoef=".3"/>',
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_what_loops_hold_is_what_mujoco_holds(name):
    """Positions on our constraints leave no error in MuJoCo's, which they had before; the rows span the same space."""
    of = HELD.format(CONSTRAINTS[name])
    robot, theirs = loaded(of)
    (loop,) = robot.loops
    start = states(theirs, 3)
    to_ours = lambda q: from_mujoco(robot.model, jnp.asarray(q)).q
    projected = jax.jit(jax.vmap(lambda q: lgjax.project_positions(robot.model, robot.loops, to_ours(q))))(start.q)
    assert np.all(np.asarray(projected.status) == 0)
    flat = jax.vmap(lambda q: to_mujoco(robot.model, q).q)(projected.q)
    residual = lambda q: readings(theirs, start._replace(q=np.asarray(q)), lambda data: (data.efc_pos, data.nefc))
    before, after = residual(start.q)[0], residual(flat)[0]
    assert np.abs(before).max() > 0.05
    assert np.abs(after).max() < 1e-9
    # A weld of MuJoCo without torque has three rows that hold nothing.
    count = before.shape[1] - 3 * ("without torque" in name)
    assert loop.rows(robot.model, lgjax.configuration(robot.model)) == count
    rows = readings(theirs, start._replace(q=np.asarray(flat)), lambda data: data.efc_J.reshape(-1, theirs.nv))
    q = jax.tree.map(lambda x: x[0], projected.q)
    for u in np.random.default_rng(3).normal(size=(3, robot.model.nv)):
        v = lgjax.project_velocity(robot.model, robot.loops, q, jnp.asarray(u)).v
        assert np.abs(rows[0] @ np.asarray(to_mujoco(robot.model, q, v).v)).max() < 1e-9


def test_inactive_equalities_and_flags():
    of = HELD.format('<joint joint1="j" active="false"/><joint joint1="k"/>')
    assert [loop.kind.follower for loop in lgjax.load_robot(of).loops] == ["k"]
    for flag in ("equality", "constraint"):
        assert lgjax.load_robot(of.replace("<flag ", f'<flag {flag}="disable" ')).loops == ()


def test_keyframes_are_those_of_the_file():
    keys = """<keyframe><key name="crouch" qpos=".1 .2 .3 1 0 0 0 .5 .6 .8 0 .6 0 .7" qvel="1 2 3 4 5 6 7 8 9 10 11 12"
      ctrl="1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18" act="1 2 3 4"/><key qpos="0 0 1 1 0 0 0 0 0 1 0 0 0 0"/></keyframe>"""
    robot, theirs = loaded(DRIVEN.replace("</mujoco>", keys + "</mujoco>"))
    assert list(robot.keyframes) == ["initial", "crouch", "key_1"]
    for k, name in ((0, "crouch"), (1, "key_1")):
        key = robot.keyframes[name]
        flat = to_mujoco(robot.model, key.q, key.v)
        np.testing.assert_allclose(flat.q, theirs.key_qpos[k], atol=1e-15)
        np.testing.assert_allclose(flat.v, theirs.key_qvel[k], atol=1e-14)
        np.testing.assert_array_equal(key.control, theirs.key_ctrl[k])
        np.testing.assert_array_equal(key.activation, theirs.key_act[k])
    np.testing.assert_allclose(to_mujoco(robot.model, robot.keyframes["initial"].q).q, theirs.qpos0, atol=1e-15)


def test_actuators_that_the_file_turns_off_are_not_there():
    """By their group, or all of them; the controls of keyframes are those of the others."""
    drives = """<actuator><motor name="a" joint="swing" group="2"/><general name="b" joint="elbow" dyntype="integrator"/>
      <general name="c" joint="swing" dyntype="integrator" group="2"/></actuator>
      <keyframe><key name="k" ctrl="1 2 3" act="4 5"/></keyframe>"""
    of = text(tree(), drives, 'actuatorgroupdisable="2"')
    robot = lgjax.load_robot(of)
    assert robot.actuators.names == ("b",)
    assert (robot.keyframes["k"].control.tolist(), robot.keyframes["k"].activation.tolist()) == ([2], [4])
    off = lgjax.load_robot(of.replace("<flag ", '<flag actuation="disable" '))
    assert off.actuators is None
    assert off.keyframes["k"].control.shape == (0,)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_robot_in_another_dtype_is_the_same_robot(dtype):
    robot, theirs = loaded(PASSIVE["tendons"])
    cast, given = robot.astype(dtype), states(theirs, 5)
    assert {x.dtype for x in jax.tree.leaves(cast)} == {jnp.dtype(dtype)}
    of = lambda one: batched(one, States(*(np.asarray(x, one.model.dtype) for x in given)), total(one))
    found = of(cast)
    assert found.dtype == dtype
    same(found, np.asarray(of(robot)), 3e-4 if dtype == jnp.float32 else 1e-12)
