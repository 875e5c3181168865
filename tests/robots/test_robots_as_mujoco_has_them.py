"""Robots from MJCF texts beside MuJoCo's own reading of them: forces, actuators, sensors, keyframes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.conventions import to_mujoco
from tests.robots.beside_mujoco import (
    CABLES,
    PLAIN,
    TREE,
    States,
    batched,
    loaded,
    readings,
    same,
    states,
    text,
    total,
    tree,
)  # fmt: skip

PASSIVE = {
    "springs": text(
        tree(
            swing='stiffness="3" springref=".7"',
            reach='damping=".2" stiffness="20" springref="-.2"',
            ankle='stiffness="2"',
        ),
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


@pytest.mark.parametrize("name", PASSIVE)
def test_accelerations_under_passive_forces_are_those_of_mujoco(name):
    robot, theirs = loaded(PASSIVE[name])
    given = states(theirs)
    same(batched(robot, given, total(robot)), readings(theirs, given, lambda data: data.qacc), 1e-9)
    assert (robot.forces is None) == (name in ("armature and damping of actuators", "no gravity") or "off" in name)


DRIVES = """<actuator>
 <motor name="motor" joint="swing" gear="2" ctrlrange="-.5 .5"/>
 <position name="position" joint="reach" kp="30" kv="2" forcerange="-8 6"/>
 <position name="filtered" joint="elbow" kp="3" timeconst=".1"/>
 <velocity name="velocity" joint="elbow" kv="2"/><intvelocity name="intvelocity" joint="swing" kp="4" actrange="-1 1"/>
 <damper name="damper" joint="reach" kv="2" ctrlrange="0 1"/>
 <general name="affine" joint="elbow" gaintype="affine" gainprm="1 .5 .2" biastype="affine" biasprm=".3 -1 -.4"/>
 <general name="slow" joint="swing" dyntype="filter" dynprm=".2" gainprm="3"/>
 <general name="exact" joint="swing" dyntype="filterexact" dynprm=".2" gainprm="3" actearly="true"/>
 <motor name="ball" joint="ankle" gear="1 2 -.5"/><motor name="ball in parent" jointinparent="ankle" gear="1 2 -.5"/>
 <motor name="free" joint="root" gear="1 2 3 -1 .5 2"/>
 <motor name="free in parent" jointinparent="root" gear="1 2 3 4 5 6"/>
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
 <actuatorfrc actuator="position"/><jointactuatorfrc joint="elbow"/><tendonactuatorfrc tendon="cable"/>
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
    assert [entry[-13:] for entry in robot.ignored] == ["(rangefinder)"]
    assert (len(sensors), sensors.size) == (30, theirs.nsensordata - 1)
    same(batched(robot, given, ours), expected, 1e-9)


def test_keyframes_are_those_of_the_file():
    keys = """<keyframe><key name="crouch" qpos=".1 .2 .3 1 0 0 0 .5 .6 .8 0 .6 0 .7" qvel="1 2 3 4 5 6 7 8 9 10 11 12"
      ctrl="1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18" act="1 2 3 4"/>
      <key qpos="0 0 1 1 0 0 0 0 0 1 0 0 0 0"/></keyframe>"""
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
    drives = """<actuator><motor name="a" joint="swing" group="2"/>
      <general name="b" joint="elbow" dyntype="integrator"/>
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


HULL = """<body name="hull" euler=".3 .2 .1"><freejoint/><inertial mass="1" {inertia}/>
  <site name="bow"/></body>"""
INERTIAS = {
    "principal": 'pos=".1 .2 .3" diaginertia="1.1 .9 1" euler=".2 .3 .1"',
    "full": 'pos=".1 .2 .3" fullinertia="1.1 .9 1 .1 -.05 .2"',
    "full, in axes that MuJoCo changes": 'pos="0 0 0" fullinertia=".9 1 1.1 0 0 0"',
    "full, in axes that MuJoCo keeps": 'pos="0 0 0" fullinertia="1.1 1 .9 0 0 0"',
}
ROPE = """<tendon><spatial limited="true" range="0 .1"><site site="wall"/><site site="bow"/></spatial></tendon>
  <sensor><framequat objtype="body" objname="hull"/></sensor>"""


@pytest.mark.parametrize("name", INERTIAS)
def test_inertias_that_are_taken_as_they_are_act_in_fluids_sensors_and_tendons(name):
    """check_inertia="warn" hides them from MuJoCo's compiler, and from nothing else."""
    of = text(
        '<site name="wall"/>' + HULL.format(inertia=INERTIAS[name]), ROPE, 'density="1.2" viscosity=".15"'
    ).replace(' constraint="disable"', "")
    strict, warned = lgjax.load_robot(of), lgjax.load_robot(of, check_inertia="warn")
    a, b = (dict(jax.tree_util.tree_leaves_with_path(robot)) for robot in (strict, warned))
    assert a.keys() == b.keys()
    for path, leaf in a.items():
        np.testing.assert_allclose(b[path], leaf, rtol=1e-12, atol=1e-14, err_msg=jax.tree_util.keystr(path))
