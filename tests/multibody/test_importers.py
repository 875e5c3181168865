"""URDF and MJCF files come out as Pinocchio and MuJoCo read them, and what cannot be read is refused by name."""

from contextlib import nullcontext
from importlib.metadata import distribution

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio
import pytest
from jax import jit

import lgjax
from lgjax import load_mjcf, load_urdf, models
from lgjax.multibody import conventions as flat
from tests.dynamics.trees import random_states

ROBOTS = ("panda.urdf", "go1.urdf", "anymal_b_simple_description/robots/anymal.urdf", "hyq_no_sensors.urdf",
          "talos_reduced.urdf", "ur5_robot.urdf", "icub_reduced.urdf")  # fmt: skip
BOLTED = ("ur5_robot.urdf",)
# Long names, so that the tables below stay readable.
INERTIA = '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'


def robot_file(name):
    robots = distribution("example-robot-data")
    return next(str(robots.locate_file(file)) for file in robots.files or () if str(file).endswith(f"/{name}"))


def rotation_between(model, i):
    """Joint frame of body i in the body frame, as (R, p)."""
    rotation, translation = np.asarray(model.links.rotation[i]), np.asarray(model.links.translation[i])
    return rotation.T, -rotation.T @ translation


def in_body_frame(model, i):
    """Mass, center of mass and inertia about it of moving body i, in the frame of its link."""
    mass, moment = float(model.inertias.mass[i]), np.asarray(model.inertias.moment[i])
    c = moment / mass if mass else moment
    about_com = np.asarray(model.inertias.rotational[i]) - mass * (c @ c * np.eye(3) - np.outer(c, c))
    rotation, position = rotation_between(model, i)
    return mass, rotation @ c + position, rotation @ about_com @ rotation.T


def placements_in_body_frames(model):
    """Pose of each body in its parent body at zero, (R, p)."""
    for i, parent in enumerate(model.tree.parents):
        r, p = np.asarray(model.placements.rotation[i]), np.asarray(model.placements.translation[i])
        rl, pl = np.asarray(model.links.rotation[i]), np.asarray(model.links.translation[i])
        r, p = r @ rl, r @ pl + p
        if parent >= 0:
            rj, pj = rotation_between(model, parent)
            r, p = rj @ r, rj @ p + pj
        yield r, p


@pytest.mark.parametrize("floating", [True, False])
@pytest.mark.parametrize("name", ROBOTS)
def test_urdf_agrees_with_pinocchio(name, floating):
    path = robot_file(name)
    warned = (
        pytest.warns(UserWarning, match="the root link 'world' floats")
        if name in BOLTED and floating
        else nullcontext()
    )
    with warned:
        model = load_urdf(path, floating_base=floating, mimic="independent")
    theirs = pinocchio.buildModelFromUrdf(path, *([pinocchio.JointModelFreeFlyer()] if floating else []))
    assert sorted(model.joint_names) == sorted(list(theirs.names)[1 + floating :])
    scale = sum(inertia.mass for inertia in list(theirs.inertias)[1:])
    np.testing.assert_allclose(np.sum(model.inertias.mass), scale, rtol=1e-12)
    for i, (rotation, position) in enumerate(placements_in_body_frames(model)):
        number = theirs.getJointId(model.tree.joint_names[i])
        mass, com, inertia = in_body_frame(model, i)
        np.testing.assert_allclose(mass, theirs.inertias[number].mass, rtol=1e-12)
        if mass:
            np.testing.assert_allclose(com, theirs.inertias[number].lever, atol=1e-12)
        np.testing.assert_allclose(inertia, theirs.inertias[number].inertia, atol=1e-12 * scale)
        parent = model.tree.parents[i]
        their_parent = theirs.parents[number]
        assert their_parent == (theirs.getJointId(model.tree.joint_names[parent]) if parent >= 0 else 0)
        np.testing.assert_allclose(position, theirs.jointPlacements[number].translation, atol=1e-12)
        np.testing.assert_allclose(rotation, theirs.jointPlacements[number].rotation, atol=1e-12)


@pytest.mark.parametrize("name", ["quadruped", "arm"])
def test_built_in_robots_equal_their_files(name):
    built = models.by_name(name)
    read = load_urdf(models.urdf(name), floating_base=name == "quadruped")
    assert read.tree == built.tree
    jax.tree.map(np.testing.assert_array_equal, read, built)


def urdf(
    links="",
    joints="",
    a='<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>',
):
    return f'<robot name="r"><link name="base"/><link name="a">{a}</link>{links}{joints}</robot>'


def joint(kind="continuous", inside="", name="j", parent="base", child="a"):
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'


def test_urdf_reads_limits_axis_and_passive_forces():
    inside = '<axis xyz="0 2 0"/><limit lower="-1" upper="2" effort="3" velocity="4"/>'
    inside += '<dynamics damping="0.5" friction="0.25"/>'
    model = load_urdf(urdf(joints=joint("revolute", inside)), floating_base=False)
    values = (model.lower, model.upper, model.effort, model.velocity_limit, model.damping, model.friction)
    assert [float(x[0]) for x in values] == [-1, 2, 3, 4, 0.5, 0.25]
    np.testing.assert_allclose(rotation_between(model, 0)[0] @ [0, 0, 1], [0, 1, 0], atol=1e-15)
    default = load_urdf(urdf(joints=joint("continuous", '<limit effort="1" velocity="inf"/>')), floating_base=False)
    np.testing.assert_allclose(rotation_between(default, 0)[0] @ [0, 0, 1], [1, 0, 0], atol=1e-15)
    assert np.isinf([default.lower[0], default.upper[0], default.velocity_limit[0]]).all()


def test_urdf_children_are_in_file_order_and_foreign_tags_do_not_matter():
    inertial = f'<inertial><mass value="1"/>{INERTIA}</inertial>'
    links = (
        f'<link name="b">{inertial}</link><gazebo><joint name="x"/></gazebo><sensor:camera/><transmission name="t"/>'
    )
    joints = joint(name="z", child="b") + joint(name="y", child="a")
    model = load_urdf(urdf(links, joints), floating_base=False)
    assert model.joint_names == ("z", "y")


def placed(origin="", kind="continuous", axis="0 0 1", **names):
    return joint(kind, f'<origin {origin}/><axis xyz="{axis}"/><limit effort="7" velocity="3"/>', **names)


SOLID = (
    '<inertial><origin xyz=".1 0 .02" rpy=".1 .2 .3"/><mass value="{}"/>'
    '<inertia ixx=".2" iyy=".25" izz=".3" ixy=".01" ixz=".02" iyz=".03"/></inertial>'
)
RAFT = urdf(
    "".join(f'<link name="{name}">{SOLID.format(i)}</link>' for i, name in enumerate(("crate", "lid"), 2)),
    placed('xyz=".1 .2 .3" rpy=".3 .2 .1"', "floating", name="sea")
    + placed('xyz="0 .1 .2" rpy="1 0 .4"', "planar", name="deck", parent="a", child="crate")
    + placed('xyz=".3 0 0"', name="hinge", parent="crate", child="lid"),
    a=SOLID.format(1),
)


def test_planar_and_floating_joints_move_as_in_pinocchio():
    """The root link has no mass, so it is the world. Pinocchio keeps the pose relative to the joint's origin."""
    model = load_urdf(RAFT)
    assert (model.nbodies, model.joint_names, model.nv) == (3, ("deck", "hinge"), 10)
    assert model.effort.tolist()[6:] == [7] * 4
    assert np.isinf(model.upper).all()
    theirs = pinocchio.buildModelFromXML(RAFT)
    data, names = theirs.createData(), list(theirs.names)[1:]
    q, v, _, tau, _ = random_states(model, 4)
    vdot = jit(jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0)))(model, q, v, tau)
    poses = jit(jax.vmap(lgjax.forward_kinematics, (None, 0)))(model, q)
    origin = theirs.jointPlacements[1]
    before = lgjax.se3.inverse(lgjax.Pose(jnp.asarray(origin.rotation), jnp.asarray(origin.translation)))
    relative = q._replace(free_poses=lgjax.se3.compose(before, q.free_poses))
    x = flat.to_pinocchio(model, relative, v, vdot, tau, order=names, continuous=["hinge"])
    for i in range(4):
        expected = pinocchio.aba(theirs, data, *(np.asarray(y[i]) for y in (x.q, x.v, x.tau)))
        np.testing.assert_allclose(x.vdot[i], expected, atol=1e-11 * np.abs(expected).max())
        pinocchio.framesForwardKinematics(theirs, data, np.asarray(x.q[i]))
        for body, name in enumerate(model.body_names):
            there = data.oMf[theirs.getFrameId(name, pinocchio.FrameType.BODY)]
            np.testing.assert_allclose(poses.rotation[i, body], there.rotation, atol=1e-13)
            np.testing.assert_allclose(poses.translation[i, body], there.translation, atol=1e-13)


def test_a_floating_link_is_a_free_body_wherever_it_hangs():
    """And a planar joint without axis is normal to x, as the format says."""
    text = urdf(
        f'<link name="b">{SOLID.format(2)}</link><link name="c">{SOLID.format(3)}</link>',
        joint("planar") + joint("floating", name="k", parent="a", child="b") + joint(name="l", parent="b", child="c"),
    )
    model = load_urdf(text, floating_base=False)
    assert model.body_names == ("a", "b", "c")
    assert model.tree.parents == (-1, -1, 1)
    assert [kind.name for kind in model.tree.kinds] == ["planar", "free", "revolute"]
    np.testing.assert_allclose(rotation_between(model, 0)[0] @ [0, 0, 1], [1, 0, 0], atol=1e-15)


def test_mimic_joints_are_an_error_unless_they_are_freed():
    text = urdf(joints=joint(inside='<mimic joint="k" multiplier="-1"/>'))
    with pytest.raises(
        ValueError,
        match=r"mimic joints are not supported: 'j' \(mimic='independent' frees them, lgjax.load_robot reads them\)",
    ):
        load_urdf(text)
    assert load_urdf(text, mimic="independent").joint_names == ("j",)
    with pytest.raises(ValueError, match="mimic is 'error' or 'independent', not 'yes'"):
        load_urdf(text, mimic="yes")


MASS = '<inertial><mass value="{}"/><inertia ixx="{}" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
BAD_URDF = {
    "not XML": ("<robot name='r'><link>", "URDF text: not well-formed XML, line 1"),
    "no robot": ("<mujoco/>", "URDF text: no <robot>: the root element is <mujoco>"),
    "xacro": (
        "<robot name='r' xmlns:xacro='http://www.ros.org/wiki/xacro'><xacro:leg/></robot>",
        "expand the file with xacro",
    ),
    "no name": ("<robot><link name='a'/></robot>", "<robot> in line 1 has no attribute 'name'"),
    "no link": ("<robot name='r'/>", "robot 'r' has no <link>"),
    "nameless link": ("<robot name='r'><link/></robot>", "<link> in line 1 has no attribute 'name'"),
    "unknown type": (urdf(joints=joint("hinge")), "joint 'j': unknown type 'hinge'; known: revolute, continuous"),
    "no type": (urdf(joints=joint().replace('type="continuous"', "")), "joint 'j': unknown type None"),
    "no limit": (urdf(joints=joint("revolute")), "joint 'j': <joint> has no <limit>"),
    "limits": (
        urdf(joints=joint("prismatic", '<limit lower="2" upper="1"/>')),
        r"lower limit 2\.0 is above the upper limit 1",
    ),
    "no child": (urdf(joints='<joint name="j" type="fixed"><parent link="a"/></joint>'), "joint 'j' has no <child>"),
    "ghost": (urdf(joints=joint(parent="ghost")), "joint 'j': its parent link 'ghost' does not exist"),
    "two parents": (urdf(joints=joint() + joint(name="k")), "link 'a' has two parents, by the joints 'j' and 'k'"),
    "two roots": (urdf(), "the links form 2 trees, with roots 'base', 'a'"),
    "two links": (urdf("<link name='a'/>", joint()), "two links are named 'a'"),
    "two joints": (urdf("<link name='b'/>", joint() + joint("fixed", child="b")), "two joints are named 'j'"),
    "cycle": (urdf(joints=joint() + joint(name="k", parent="a", child="base")), "form a cycle"),
    "axis": (urdf(joints=joint(inside='<axis xyz="0 1"/>')), r"joint 'j': <axis xyz='0 1'> is not 3 finite numbers"),
    "zero axis": (urdf(joints=joint(inside='<axis xyz="0 0 0"/>')), "axis of joint 'j' of body 'a' has no direction"),
    "origin": (urdf(joints=joint(inside='<origin rpy="0 0 ${pi}"/>')), r"joint 'j': <origin rpy='0 0 \${pi}'> is not"),
    "damping": (
        urdf(joints=joint(inside='<dynamics damping="-1"/>')),
        "damping of joint 'j' is not a non-negative number",
    ),
    "NaN": (urdf(a=MASS.format("nan", 1), joints=joint()), "link 'a': <mass value='nan'> is not a finite number"),
    "malformed": (
        urdf(a=MASS.format(1, "1,0"), joints=joint()),
        "link 'a': <inertia ixx='1,0'> is not a finite number",
    ),
    "no inertia": (
        urdf(a="<inertial><mass value='1'/></inertial>", joints=joint()),
        "link 'a': <inertial> has no <inertia>",
    ),
    "no ixx": (
        urdf(a=MASS.format(1, 1).replace('ixx="1"', ""), joints=joint()),
        "link 'a': <inertia> has no attribute 'ixx'",
    ),
    "two masses": (
        urdf(a=MASS.format(1, 1).replace("<mass", "<mass value='2'/><mass"), joints=joint()),
        "link 'a' has 2 <mass>",
    ),
    "negative mass": (urdf(a=MASS.format(-1, 1), joints=joint()), "mass of body 'a' is negative: -1"),
    "triangle": (urdf(a=MASS.format(1, 3), joints=joint()), "inertia of body 'a' breaks the triangle inequality"),
}


@pytest.mark.parametrize("name", BAD_URDF)
def test_bad_urdf_is_refused_by_name(name):
    text, message = BAD_URDF[name]
    with pytest.raises(ValueError, match=message) as caught:
        load_urdf(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [load_urdf, load_mjcf])
def test_unreadable_files_are_named(load, tmp_path):
    with pytest.raises(ValueError, match=r"cannot read (URDF|MJCF) .*absent\.xml': No such file"):
        load(tmp_path / "absent.xml")
    with pytest.raises(ValueError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "empty.xml").write_text("")
    with pytest.raises(ValueError, match=r"empty\.xml: the file is empty"):
        load(tmp_path / "empty.xml")
    (tmp_path / "words.xml").write_text("not XML")
    with pytest.raises(ValueError, match=r"words\.xml: not well-formed XML"):
        load(str(tmp_path / "words.xml"))
    with pytest.raises(TypeError, match="expected a path or text, not int"):
        load(3)


MECHANISM = """<mujoco model="mechanism"><compiler angle="degree"/><option gravity="0 1 -9"/>
<default><joint armature="0.1" damping="0.2"/>
 <default class="visual"><geom type="mesh" mass="0" material="steel"/></default></default>
<asset><mesh name="shell" file="absent.stl"/><texture name="t" type="2d" file="absent.png"/>
 <material name="steel" texture="t"/></asset>
<worldbody><light pos="0 0 3"/><geom type="plane" size="1 1 1"/>
 <body name="trunk" pos="0 0 1"><freejoint name="root"/><site name="imu"/>
  <geom type="box" size=".2 .1 .05" pos=".01 0 0"/>
  <body name="shoulder" pos=".2 0 0" euler="30 20 10">
   <joint name="hinge" axis="0 1 1" pos="0 .1 .02" range="-90 45" ref="25" frictionloss="0.3"/>
   <geom type="capsule" size=".03 .1" euler="0 40 0" material="steel"/><geom class="visual" mesh="shell"/>
   <body pos="0 0 -.3"><geom size=".05" pos="0 .1 0"/>
    <body name="foot" pos="0 .1 0"><joint type="slide" axis="1 0 0" ref="0.4" actuatorfrcrange="-5 5"/>
     <inertial mass="0.5" pos=".01 .02 .03" fullinertia=".02 .03 .04 .001 .002 .003"/>
     <geom class="visual" mesh="shell"/></body></body></body>
  <body name="head" pos="0 0 .2"><joint name="neck" springref="10"/>
   <inertial mass="2" pos="0 0 .1" quat=".8 .6 0 0" diaginertia=".01 .02 .03"/></body>
 </body></worldbody>
<tendon><fixed name="harmless"><joint joint="hinge" coef="1"/></fixed></tendon>
<actuator><position joint="hinge" kp="3"/></actuator><sensor><gyro site="imu"/></sensor>
<keyframe><key qpos="0 0 1 1 0 0 0 0 0 0"/></keyframe></mujoco>"""


def test_mjcf_agrees_with_mujoco():
    with pytest.warns(UserWarning, match="leaves out 1 actuator, 1 sensor, 1 keyframe, which lgjax.load_robot reads"):
        model = load_mjcf(MECHANISM)
    without_files = MECHANISM.replace('<geom class="visual" mesh="shell"/>', "").replace(' material="steel"', "")
    asset = without_files[without_files.index("<asset>") : without_files.index("</asset>") + 8]
    theirs = mujoco.MjModel.from_xml_string(without_files.replace(asset, ""))
    assert model.body_names == ("trunk", "shoulder", "foot", "head")
    assert model.joint_names == ("hinge", "foot_joint", "neck")
    assert set(model.tree.frames) == {("body_3", 1), ("imu", 0)}
    assert np.asarray(model.gravity).tolist() == [0, 1, -9]
    np.testing.assert_allclose(model.armature[6:], 0.1)
    np.testing.assert_allclose(model.damping, theirs.dof_damping)
    np.testing.assert_allclose(model.friction[6:], [0.3, 0, 0])
    np.testing.assert_allclose([model.lower[0], model.upper[0]], np.deg2rad([-90, 45]))
    assert np.isinf(model.upper[2])
    assert float(model.effort[7]) == 5
    data = mujoco.MjData(theirs)
    data.qpos[:] = 0
    data.qpos[3] = 1
    mujoco.mj_forward(theirs, data)
    pose = []
    for i, (rotation, position) in enumerate(placements_in_body_frames(model)):
        parent = model.tree.parents[i]
        if parent >= 0:
            rotation, position = pose[parent][0] @ rotation, pose[parent][0] @ position + pose[parent][1]
        pose.append((rotation, position))
        body = theirs.body(model.body_names[i])
        np.testing.assert_allclose(position, data.body(body.id).xpos, atol=1e-14)
        np.testing.assert_allclose(rotation.ravel(), data.body(body.id).xmat, atol=1e-14)
        mass, com, inertia = in_body_frame(model, i)
        if model.body_names[i] == "shoulder":  # carries the body without joint
            parts = [2, 3]
            np.testing.assert_allclose(mass, theirs.body_mass[parts].sum(), rtol=1e-14)
            center = theirs.body_mass[parts] @ data.xipos[parts] / mass
            np.testing.assert_allclose(rotation @ com + position, center, atol=1e-14)
            continue
        np.testing.assert_allclose(mass, body.mass[0], rtol=1e-14)
        np.testing.assert_allclose(com, body.ipos, atol=1e-14)
        axes = np.zeros(9)
        mujoco.mju_quat2Mat(axes, body.iquat)
        axes = axes.reshape(3, 3)
        np.testing.assert_allclose(inertia, axes @ np.diag(body.inertia) @ axes.T, atol=1e-14)


LEG = """<mujoco model="leg"><compiler angle="radian"/>
<option gravity="1 2 -9"><flag contact="disable" constraint="disable"/></option>
<worldbody><body name="pelvis"><freejoint name="root"/>
 <inertial mass="3" pos=".01 .02 .03" fullinertia=".05 .06 .07 .001 .002 .003"/>
 <body name="thigh" pos=".1 0 -.1" euler=".3 .2 .1">
  <joint name="x" axis="1 0 0" pos="0 .01 0" armature=".01" ref=".3"/>
  <joint name="y" type="slide" axis="0 1 .5" damping=".2" ref=".1" range="-1 2"/>
  <joint name="z" axis="0 .3 1" pos=".02 0 0" ref="-.5"/>
  <inertial mass="1" pos="0 .05 -.2" fullinertia=".02 .03 .04 .001 .002 .003"/>
  <body name="shin" pos="0 0 -.4" quat=".8 0 .6 0"><joint type="slide" axis="1 0 0"/><joint type="ball" pos="0 0 .05"/>
   <inertial mass=".5" pos="0 .02 -.2" diaginertia=".02 .03 .04"/></body>
 </body></body></worldbody></mujoco>"""


def test_bodies_with_several_joints_move_as_in_mujoco():
    model, theirs = load_mjcf(LEG), mujoco.MjModel.from_xml_string(LEG)
    assert model.body_names == ("pelvis", "thigh_x", "thigh_y", "thigh", "shin_shin_joint0", "shin")
    assert model.joint_names == ("x", "y", "z", "shin_joint0", "shin_joint1")
    np.testing.assert_allclose(model.inertias.mass, [3, 0, 0, 1, 0, 0.5])
    assert (float(model.lower[1]), float(model.upper[1])) == (-1, 2)
    q, v, _, tau, _ = random_states(model, 4)
    vdot = jit(jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0)))(model, q, v, tau)
    poses = jit(jax.vmap(lgjax.forward_kinematics, (None, 0)))(model, q)
    x = flat.to_mujoco(model, q, v, vdot, tau)
    data = mujoco.MjData(theirs)
    for i in range(4):
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = x.q[i], x.v[i], x.tau[i]
        mujoco.mj_forward(theirs, data)
        np.testing.assert_allclose(x.vdot[i], data.qacc, atol=1e-11 * np.abs(data.qacc).max())
        for name in ("pelvis", "thigh", "shin"):
            body = model.tree.body(name)
            np.testing.assert_allclose(poses.translation[i, body], data.body(name).xpos, atol=1e-13)
            np.testing.assert_allclose(poses.rotation[i, body].ravel(), data.body(name).xmat, atol=1e-13)


def mjcf(joint='<joint name="j"/>', after="", option="", inside=""):
    body = f"<body name='a'>{joint}<geom name='g' size='.1'/>{inside}</body>"
    return f"<mujoco>{option}<worldbody>{body}</worldbody>{after}</mujoco>"


MESH = "<asset><mesh name='shell' file='absent.stl'/></asset>"
TENDON = "<tendon><fixed name='t' {}><joint joint='j' coef='1'/></fixed></tendon>"
BAD_MJCF = {
    "not XML": ("<mujoco><worldbody>", "MJCF text: not well-formed XML: no element found"),
    "a URDF": (urdf(joints=joint()), "MJCF text: no <mujoco>: the root element is <robot>"),
    "NaN": (mjcf("<joint name='j' pos='0 nan 0'/>"), "<joint name='j' pos='0 nan 0'> is not finite"),
    "schema": (mjcf("<joint name='j' color='red'/>"), "unrecognized attribute: 'color'"),
    "spring": (mjcf("<joint stiffness='2'/>"), r"joint 'a_joint' of body 'a' in line 1: springs .*load_robot"),
    "equality": (mjcf(after="<equality><joint name='e' joint1='j'/></equality>"), "'e' in line 1: joint constraints"),
    "weld": (mjcf(after="<equality><weld body1='a'/></equality>"), "equality in line 1: weld constraints are not"),
    "tendon spring": (mjcf(after=TENDON.format("stiffness='1'")), "tendon 't' in line 1: stiffness is not supported"),
    "tendon damping": (mjcf(after=TENDON.format("damping='1'")), "tendon 't' in line 1: damping is not supported"),
    "tendon limit": (mjcf(after=TENDON.format("range='0 1'")), "tendon 't' in line 1: limits are not supported"),
    "fluid": (mjcf(option="<option density='1'/>"), "fluid forces are not supported"),
    "gravcomp": (mjcf().replace("name='a'", "name='a' gravcomp='1'"), "body 'a' in line 1: gravity compensation"),
    "massless": (
        mjcf().replace("size='.1'", "size='.1' mass='0'"),
        "mass and inertia of moving bodies .*; Element name 'a'",
    ),
    "free armature": (
        mjcf("<joint type='free' armature='1'/>"),
        "joint 'a_joint' of body 'a' in line 1: armature of a free joint",
    ),
    "mesh": (
        mjcf(option=MESH, inside="<geom type='mesh' mesh='shell'/>"),
        "body 'a' in line 1 has no <inertial> and needs the mesh 'shell'",
    ),
    "nothing moves": (mjcf(""), "has no moving body"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_MJCF)
def test_bad_mjcf_is_refused_by_name(name):
    text, message = BAD_MJCF[name]
    with pytest.raises(ValueError, match=message) as caught:
        load_mjcf(text)
    assert "\n" not in str(caught.value)


def test_mjcf_flags_and_inactive_elements_are_honoured():
    off = "<option><flag gravity='disable' spring='disable' damper='disable'/></option>"
    after = "<equality><joint joint1='j' active='false'/></equality>"
    model = load_mjcf(mjcf("<joint name='j' stiffness='1' damping='2'/>", after, off))
    assert not np.any(model.gravity)
    assert not np.any(model.damping)


@pytest.mark.parametrize("inertia", ["diaginertia='.1 .1 .3'", "fullinertia='.1 .1 .3 0 0 0'"])
def test_mjcf_inertia_that_breaks_the_triangle_inequality_can_be_accepted(inertia):
    text = mjcf(inside=f"<inertial pos='0 0 0' mass='2' {inertia}/>")
    with pytest.raises(ValueError, match=r"inertia must satisfy A \+ B >= C.*Element name 'a'"):
        load_mjcf(text)
    with pytest.warns(UserWarning, match="inertia of body 'a' breaks the triangle inequality"):
        model = load_mjcf(text, check_inertia="warn")
    np.testing.assert_allclose(in_body_frame(model, 0)[2], np.diag([0.1, 0.1, 0.3]), atol=1e-15)


def test_mjcf_includes_are_found_next_to_the_file(tmp_path):
    (tmp_path / "part.xml").write_text(
        "<mujoco><worldbody><body name='b'><joint/><geom size='.1'/></body></worldbody></mujoco>"
    )
    (tmp_path / "main.xml").write_text("<mujoco model='whole'><include file='part.xml'/></mujoco>")
    model = load_mjcf(tmp_path / "main.xml")
    assert (model.name, model.body_names, model.joint_names) == ("whole", ("b",), ("b_joint",))


def test_sites_are_frames_where_mujoco_has_them():
    """On moving and fixed bodies and in the world; one is called as its body, one has no name."""
    text = """<mujoco><worldbody><site name="origin" pos="1 2 3" euler="10 20 30"/>
    <body name="a" pos="0 0 1"><joint axis="0 1 0"/><geom size=".1"/><site name="a" pos=".1 .2 .3"/>
    <site name="tip" pos="0 .1 .4" quat="1 2 3 4"/><site/><body name="f" pos=".3 0 0" euler="0 0 40"><geom size=".1"/>
    <site name="far" pos="0 0 1" type="box" size=".1 .1 .1"/></body></body></worldbody></mujoco>"""
    model, theirs = lgjax.load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(theirs)
    data.qpos[:] = 0.4
    mujoco.mj_kinematics(theirs, data)
    assert sorted(name for name, _ in model.tree.frames) == ["a_site", "f", "far", "origin", "tip"]
    q = lgjax.configuration(model, joints=[0.4])
    for site, frame in {"origin": "origin", "a": "a_site", "tip": "tip", "far": "far"}.items():
        pose, i = lgjax.frame_pose(model, q, frame), theirs.site(site).id
        np.testing.assert_allclose(pose.translation, data.site_xpos[i], atol=1e-14)
        np.testing.assert_allclose(np.ravel(pose.rotation), data.site_xmat[i], atol=1e-14)


@pytest.mark.parametrize("flag", ["frictionloss", "limit", "constraint"])
def test_flags_disable_friction_and_limits(flag):
    """Each its own; what the solver of constraints does is not part of a model."""
    model = load_mjcf(f"""<mujoco><option><flag {flag}="disable"/></option><worldbody><body>
      <joint type="slide" frictionloss="1" limited="true" range="-1 0.2"/><geom size="0.1"/>
      </body></worldbody></mujoco>""")
    assert float(model.friction[0]) == (0 if flag == "frictionloss" else 1)
    assert np.isfinite(model.upper[0]) == np.isfinite(model.lower[0]) == (flag != "limit")
