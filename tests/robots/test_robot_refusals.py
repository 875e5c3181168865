"""What `load_robot` refuses is named with its line and the way out; what it leaves out is listed, and warned of."""

import warnings

import numpy as np
import pytest

import lgjax


def mjcf(joint='<joint name="j" axis="0 1 0"/>', after="", option="", inside="", world=""):
    body = f'<body name="a">{joint}<geom name="g" size=".1"/><site name="s"/>{inside}</body>'
    return f"<mujoco>\n{option}\n<worldbody>{world}\n{body}</worldbody>\n{after}\n</mujoco>"


TENDON = '<tendon><fixed name="t" {}><joint joint="j" coef="1"/></fixed></tendon>'
WRAP = """<tendon><spatial name="t" {}><site site="w"/><geom geom="g"/><site site="s"/></spatial></tendon>"""
WALL = '<site name="w" pos="1 0 0"/>'
MUSCLE = '<actuator><muscle name="m" joint="j"/></actuator>'
REFUSED = {
    "a muscle": (mjcf(after=MUSCLE), r"actuator 'm' in line 5: gaintype 'muscle' .*ignore=\('actuator',"),
    "adhesion": (
        mjcf(after='<actuator><adhesion name="m" body="a" ctrlrange="0 1"/></actuator>'),
        "actuator 'm' in line 5: trntype 'body' is not supported",
    ),
    "a user's law": (
        mjcf(after='<actuator><general name="m" joint="j" gaintype="user"/></actuator>'),
        "actuator 'm' in line 5: gaintype 'user' is not supported",
    ),
    "a tendon that wraps and pulls": (
        mjcf(world=WALL, after=WRAP.format('stiffness="1"')),
        r"tendon 't' in line 5: it wraps around a sphere, .*ignore=\('tendon',",
    ),
    "a tendon that wraps and is pulled": (
        mjcf(world=WALL, after=WRAP.format("") + '<actuator><motor tendon="t"/></actuator>'),
        r"tendon 't' in line 5: it wraps around a sphere, .*ignore=\('tendon', 'equality', 'actuator'",
    ),
    "armature of a tendon": (mjcf(after=TENDON.format('armature="1"')), "tendon 't' in line 5: armature of a tendon"),
    "armature of an actuator on a tendon": (
        mjcf(after=TENDON.format("") + '<actuator><motor name="m" tendon="t" armature="1"/></actuator>'),
        "actuator 'm' in line 5: armature and damping of an actuator are supported on hinges and slides",
    ),
    "a plastic spring": (
        mjcf('<joint name="j" stiffness="1" springyield=".1"/>'),
        "joint 'j' in line 4: springs that yield are not supported",
    ),
    "a flexible body": (
        mjcf(inside='<flexcomp name="f" type="grid" count="2 2 2" spacing=".1 .1 .1"/>'),
        "<flexcomp> in line 4: flexible bodies are not supported",
    ),
    "no robot": (mjcf(""), "has no moving body"),
    "neither form": ("<sdf/>", "robot text: neither URDF nor MJCF: the root element is <sdf>"),
    "no XML": ("<mujoco", "robot text: not well-formed XML: "),
    "entities": ('<!DOCTYPE mujoco [<!ENTITY e "1">]><mujoco/>', "MJCF text: .*entit"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_in_one_line(name):
    text, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        lgjax.load_robot(text)
    assert "\n" not in str(caught.value)


def test_an_included_file_is_named(tmp_path):
    (tmp_path / "drives.xml").write_text(f"<mujoco>\n\n{MUSCLE}</mujoco>")
    (tmp_path / "robot.xml").write_text(mjcf(after='<include file="drives.xml"/>'))
    with pytest.raises(ValueError, match=r"robot\.xml: actuator 'm' in line 3 of .*drives\.xml: gaintype"):
        lgjax.load_robot(tmp_path / "robot.xml")


def test_a_folder_that_would_do_is_named(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "drives.xml").write_text('<mujoco><sensor><clock name="c"/></sensor></mujoco>')
    (tmp_path / "inner" / "robot.xml").write_text(mjcf(after='<include file="../drives.xml"/>'))
    with pytest.raises(ValueError, match="is outside the folder") as caught:
        lgjax.load_robot(tmp_path / "inner" / "robot.xml")
    assert f"such as {str(tmp_path)!r})" in str(caught.value)
    assert lgjax.load_robot(tmp_path / "inner" / "robot.xml", folder=tmp_path).model.nv == 1


EVERYTHING = mjcf(
    '<joint name="j" axis="0 1 0" stiffness="1" damping="0 1"/>',
    f"""{TENDON.format('stiffness="2" range="0 1"')}<equality><joint joint1="j"/></equality>{MUSCLE}
    <sensor><jointpos joint="j"/></sensor><keyframe><key name="k" qpos="1"/></keyframe>
    <contact><exclude body1="a" body2="world"/></contact>""",
    '<option density="1"/>',
    world='<geom type="plane" size="1 1 1"/><body name="b" gravcomp="1"><joint type="free" armature="1"/>'
    '<geom size=".1"/></body>',
)
# What each kind stands for, in a robot that has all of them but the muscle.
KINDS = {
    "armature": lambda robot: float(np.sum(robot.model.armature)) or None,
    "contact": lambda robot: robot.contacts.shapes or robot.contacts.grounds or robot.contacts.excludes,
    "damping": lambda robot: part(robot, "Damper"),
    "equality": lambda robot: robot.loops,
    "fluid": lambda robot: part(robot, "FluidBoxes"),
    "gravcomp": lambda robot: part(robot, "GravityCompensation"),
    "keyframe": lambda robot: [name for name in robot.keyframes if name != "initial"],
    "sensor": lambda robot: robot.sensors,
    "spring": lambda robot: part(robot, "JointSpring"),
    "tendon": lambda robot: part(robot, "TendonSpring") or part(robot, "TendonLimits"),
}


def part(robot, name):
    return [force for force in robot.forces.forces if type(force).__name__ == name]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_can_be_ignored_by_itself(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robot = lgjax.load_robot(EVERYTHING, ignore=("actuator", kind))
    assert {name for name, has in KINDS.items() if not has(robot)} == {kind}
    assert robot.ignored == tuple(f"{name} (ignore=)" for name in sorted({"actuator", kind}))
    assert robot.actuators is None


def test_kinds_are_checked():
    assert lgjax.load_robot(mjcf(after=MUSCLE), ignore="actuator").actuators is None
    with pytest.raises(ValueError, match="ignore has the unknown kind 'muscle'; known: actuator, armature"):
        lgjax.load_robot(mjcf(), ignore=["muscle"])
    with pytest.raises(TypeError, match="ignore must be a list of names, got 3"):
        lgjax.load_robot(mjcf(), ignore=3)
    with pytest.raises(ValueError, match="floating_base is for URDF: an MJCF says with its own joints what floats"):
        lgjax.load_robot(mjcf(), floating_base=False)
    with pytest.raises(ValueError, match="meshes"):
        lgjax.load_robot(mjcf(), meshes="boxes")
    with pytest.raises(ValueError, match="mesh_vertices"):
        lgjax.load_robot(mjcf(), mesh_vertices=3)


LEFT_OUT = """<asset><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/><mesh name="m" file="absent.stl"/></asset>"""


def test_what_is_left_out_is_warned_of_once():
    """Terrain and meshes that are not there are; what needs rays is only listed."""
    text = mjcf(
        option=LEFT_OUT,
        world='<geom name="hills" type="hfield" hfield="h"/>',
        inside='<geom name="hand" type="mesh" mesh="m" mass="0"/>',
        after='<sensor><rangefinder site="s"/></sensor>',
    )
    with pytest.warns(
        UserWarning, match=r"left out: geom 'hills' in line 3 \(hfield, fixed to the world\), geom 'hand'"
    ) as found:
        robot = lgjax.load_robot(text)
    assert len(found) == 1
    assert "absent.stl" in str(found[0].message)
    assert "rangefinder" not in str(found[0].message)
    assert found[0].filename == __file__
    assert [entry.split(" in line")[0] for entry in robot.ignored] == ["geom 'hills'", "geom 'hand'", "sensor"]
    with pytest.warns(UserWarning, match="'hills'") as found:
        robot = lgjax.load_robot(text, meshes="ignore")
    assert "absent" not in str(found[0].message)


def test_a_geom_without_a_name_in_an_included_file_is_told_by_its_mesh_and_body(tmp_path):
    """MuJoCo calls every line of such a file 0."""
    (tmp_path / "part.xml").write_text(
        "<mujoco><asset><mesh name='m' vertex='0 0 0 1 0 0 0 1 0 0 0 1'/></asset><worldbody>"
        "<body name='base'><geom type='mesh' mesh='m'/><body><joint/><geom size='.1'/></body></body>"
        "</worldbody></mujoco>"
    )
    (tmp_path / "main.xml").write_text("<mujoco><include file='part.xml'/></mujoco>")
    told = "geom of mesh 'm' on body 'base' in an included file (mesh, fixed to the world)"
    with pytest.warns(UserWarning, match="left out: geom of mesh 'm' on body 'base' in an included file"):
        robot = lgjax.load_robot(tmp_path / "main.xml")
    assert robot.ignored == (told,)


# ---- contacts
FLOOR = """<mujoco><worldbody>
 <body pos="0 0 1" euler="0 30 0"><geom name="slope" type="plane" size="1 1 1" pos="0 0 .5" euler="0 15 0"
   friction=".3"/></body>
 <geom name="curb" type="box" size="1 1 .1" pos="3 0 0" contype="4"/>
 <geom type="box" size="1 1 1" contype="0" conaffinity="0"/>
 <body name="a"><freejoint/><geom name="ball" size=".1" friction=".7 .1 .2" contype="2" conaffinity="5" priority="3"/>
  <geom name="ice" type="capsule" size=".1 .2" condim="1"/><geom size=".1" contype="0" conaffinity="0"/>
  <body name="b" pos="0 0 .5"><joint/>
   <geom name="hidden" type="box" size=".1 .2 .3" contype="0" conaffinity="0"/></body></body>
</worldbody><contact><exclude body1="b" body2="a"/><pair geom1="hidden" geom2="curb" friction="2 2 .1 .2 .2"/></contact>
</mujoco>"""


def test_contact_geometry_is_that_of_the_file():
    with pytest.warns(
        UserWarning, match=r"geom 'curb' in line \d+ \(box, fixed to the world\): only planes hold bodies up"
    ):
        robot = lgjax.load_robot(FLOOR)
    assert len(robot.ignored) == 1
    contacts = robot.contacts
    assert [(shape.link, shape.kind) for shape in contacts.shapes] == [("a", "sphere"), ("a", "capsule"), ("b", "box")]
    assert [shape.friction for shape in contacts.shapes] == [0.7, 0, 1]
    assert [(shape.group, shape.mask) for shape in contacts.shapes] == [(2, 5), (1, 1), (0, 0)]
    assert [surface.name for surface in contacts.surfaces] == ["ball", "ice", "hidden"]
    assert (contacts.surfaces[0].friction, contacts.surfaces[0].priority) == ((0.7, 0.1, 0.2), 3)
    assert [surface.dimension for surface in contacts.surfaces] == [3, 1, 3]
    assert [contacts.excluded(*pair) for pair in ("ab", "ba", "aa")] == [True, True, False]
    ((shape, surface),) = contacts.fixed
    assert (shape.link, shape.position, surface.name) == ("world", (3, 0, 0), "curb")
    assert contacts.pairs == ((-1, 2, (2, 2, 0.1, 0.2, 0.2)),)
    (ground,) = contacts.grounds
    # The plane is turned by 45 degrees about y, half a meter along its body's own z above one meter.
    np.testing.assert_allclose(ground.normal, np.sqrt([0.5, 0, 0.5]), atol=1e-15)
    point = np.array([0, 0, 1]) + 0.5 * np.array([0.5, 0, np.sqrt(0.75)])
    np.testing.assert_allclose(ground.offset, -np.dot(ground.normal, point), atol=1e-15)
    assert ground.friction == 0.3
    assert not contacts.parents


def test_meshes_become_hulls(tmp_path):
    """At most as many vertices as wanted, where the file puts them, and none with meshes="ignore"."""
    box = "\n".join(f"v {x} {y} {z}" for x in (0, 1) for y in (0, 2) for z in (0, 3))
    faces = "f 1 2 4\nf 1 4 3\nf 5 7 8\nf 5 8 6\nf 1 5 6\nf 1 6 2\nf 3 4 8\nf 3 8 7\nf 1 3 7\nf 1 7 5\nf 2 6 8\nf 2 8 4"
    (tmp_path / "box.obj").write_text(f"{box}\n{faces}\n")
    asset = '<asset><mesh name="m" file="box.obj" scale=".1 .1 .1"/></asset>'
    text = mjcf(option=asset, inside='<geom type="mesh" mesh="m" mass="0" pos="1 0 0" euler="0 0 90" friction=".4"/>')
    (tmp_path / "robot.xml").write_text(text)
    found = lgjax.load_robot(tmp_path / "robot.xml").contacts.shapes[1]
    assert (found.link, found.kind, found.friction) == ("a", "hull", 0.4)
    corners = [(1 - y, x, z) for x in (0, 0.1) for y in (0, 0.2) for z in (0, 0.3)]
    np.testing.assert_allclose(sorted(np.round(found.hull.vertices, 9).tolist()), sorted(corners), atol=1e-7)
    few = lgjax.load_robot(tmp_path / "robot.xml", mesh_vertices=4).contacts.shapes[1]
    assert len(few.hull.vertices) == 4
    assert len(lgjax.load_robot(tmp_path / "robot.xml", meshes="ignore").contacts.shapes) == 1
