"""Broken and hostile files end in one line that names the place; what other tools write is read as they read it.

Each test is something that the mutations of `soak` or the robots of other packages have found.
"""

import os

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import lgjax
from lgjax import load_mjcf, load_urdf
from lgjax.cli import main
from soak.plain import mass_matrix

INERTIA = '<inertia ixx="{ixx}" iyy=".25" izz=".3" ixy=".01" ixz=".02" iyz=".03"/>'
SOLID = f'<inertial><origin xyz=".1 0 .02" rpy=".1 .2 .3"/><mass value="{{mass}}"/>{INERTIA}</inertial>'


def urdf(kind='type="continuous"', inside="", tag="joint", mass="1", ixx=".2", more="", root="robot name='r'"):
    origin = '<parent link="base"/><child link="a"/><origin xyz=".1 .2 .3" rpy=".3 .2 .1"/>'
    joint = f'<{tag} name="j" {kind}>{origin}{inside}</{tag}>'
    return f'<{root}><link name="base"/><link name="a">{SOLID.format(mass=mass, ixx=ixx)}</link>{joint}{more}</robot>'


DEEP = "<a>" * 300 + "</a>" * 300
BOMB = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "x"}">' for i in range(20))
REFUSED = {
    "digits of another script": (urdf(mass="\uff11"), "link 'a': <mass value='\uff11'> is not a finite number"),
    "a space of another script": (urdf(mass="1\u00a02"), r"link 'a': <mass value='1\\xa02'> is not a finite number"),
    "underscores": (urdf(ixx="1_0"), "link 'a': <inertia ixx='1_0'> is not a finite number"),
    "nothing but a bracket": ("<", "not well-formed XML, line 1"),
    "an entity in an attribute": ("<!DOCTYPE robot [<!ENTITY m '1'>]>" + urdf(mass="&m;"), "declares the entity 'm'"),
    "a bomb of entities": (f"<!DOCTYPE robot [{BOMB}]>" + urdf(mass="&a19;"), "entity|not well-formed|amplification"),
    "a number that overflows": (urdf(ixx="1.7e308", mass="1e308"), "inertia .*of body 'a'.* (overflows|is not|breaks)"),
    "a long word": (urdf(mass="1" * 9000 + "x"), r"<mass value='1+ \.\.\. 1+x'> is not a finite number"),
    "a name over two lines": (urdf(mass="x").replace('"a"', '"a&#10;b"'), r"link 'a\\nb': <mass value='x'>"),
    "negative effort": (urdf(inside='<limit effort="-1"/>'), "effort of joint 'j' is not a non-negative number"),
    "depth": (urdf(more=DEEP), "not well-formed XML, line 1: .*depth"),
    "a screw of Drake": (urdf('type="screw"', tag="drake:joint"), "<drake:joint type='screw'> is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_urdf_ends_in_one_line(name):
    text, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        load_urdf(text)
    line = str(caught.value)
    assert type(caught.value) is ValueError
    assert line.isprintable()
    assert len(line) < 800


@pytest.mark.parametrize("head", ['<?xml version="0.0" ?>', '<!-- by hand --> <?xml version="1.0" ?>'])
def test_old_declarations_do_no_harm(head):
    """Those of the files that come with Bullet."""
    assert load_urdf(head + urdf(), floating_base=False).joint_names == ("j",)


def test_nothing_too_large_for_the_precision_is_made_infinite():
    body = lgjax.Body("a", None, lgjax.Joint("j", "revolute"), mass=1e60, inertia=1e60 * np.eye(3))
    assert np.isfinite(lgjax.build([body], dtype=jnp.float64).inertias.mass).all()
    with pytest.raises(ValueError, match=r"'model': 1e\+60 is too large for float32"):
        lgjax.build([body], dtype=jnp.float32)
    far = lgjax.Body("a", None, lgjax.Joint("j", "revolute"), position=(1e200, 0, 0), mass=1.0, inertia=np.eye(3))
    with pytest.raises(ValueError, match="position of body 'a' overflows"):
        lgjax.build([far])


@pytest.mark.parametrize("limit", [{"effort": -1.0}, {"velocity_limit": np.nan}, {"lower": 1.0, "upper": 0.0}])
def test_limits_that_cannot_be(limit):
    body = lgjax.Body("a", None, lgjax.Joint("j", "revolute", **limit), mass=1.0, inertia=np.eye(3))
    with pytest.raises(ValueError, match="of joint 'j'"):
        lgjax.build([body])


# ---- spherical joints
NAMESPACE = "robot name='r' xmlns:drake='http://drake.mit.edu'"
SPELLINGS = {
    "Bullet and MuJoCo": urdf('type="spherical"', '<dynamics damping=".5"/>'),
    "Drake": urdf('type="ball"', '<dynamics damping=".5"/>', "drake:joint", root=NAMESPACE),
    "Drake, prefix not declared": urdf('type="ball"', '<dynamics damping=".5"/>', "drake:joint"),
}


def turn(axis, angle):
    out = np.zeros(9)
    quaternion = np.zeros(4)
    mujoco.mju_axisAngle2Quat(quaternion, np.eye(3)[axis], angle)
    mujoco.mju_quat2Mat(out, quaternion)
    return out.reshape(3, 3)


@pytest.mark.parametrize("name", SPELLINGS)
def test_spherical_joints_are_read_as_other_tools_write_them(name):
    read = load_urdf(SPELLINGS[name], floating_base=False)
    place = turn(2, 0.1) @ turn(1, 0.2) @ turn(0, 0.3)
    inertial = turn(2, 0.3) @ turn(1, 0.2) @ turn(0, 0.1)
    inertia = inertial @ np.array([[0.2, 0.01, 0.02], [0.01, 0.25, 0.03], [0.02, 0.03, 0.3]]) @ inertial.T
    base = lgjax.Body("base", None, lgjax.Joint("root_joint", "fixed"))
    joint = lgjax.Joint("j", "spherical", damping=0.5)
    ball = lgjax.Body("a", "base", joint, place, np.array([0.1, 0.2, 0.3]), 1.0, np.array([0.1, 0, 0.02]), inertia)
    built = lgjax.build([base, ball], "r")
    assert (read.tree, read.nv) == (built.tree, 3)
    for x, y in zip(read.inertias + read.placements, built.inertias + built.placements, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-15)
    np.testing.assert_array_equal(read.damping, [0.5] * 3)


def test_a_spherical_joint_moves_as_in_mujoco_and_as_three_hinges():
    """MuJoCo reads URDF too. At yaw, pitch and roll the velocities of three hinges are mapped by their axes."""
    text, (yaw, pitch, roll) = SPELLINGS["Bullet and MuJoCo"], (0.7, -0.4, 1.1)
    R = turn(2, yaw) @ turn(1, pitch) @ turn(0, roll)
    found = mass_matrix(load_urdf(text, floating_base=False), [R])
    theirs = mujoco.MjModel.from_xml_string(text)
    data, expected = mujoco.MjData(theirs), np.zeros((3, 3))
    mujoco.mju_mat2Quat(data.qpos, R.ravel())
    mujoco.mj_forward(theirs, data)
    mujoco.mj_fullM(theirs, data, expected)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    hinge = lambda name, parent, child, axis, origin: (
        f'<joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{child}"/>'
        f'<axis xyz="{axis}"/><origin {origin}/></joint>'
    )
    names = '<link name="b"/><link name="c"/>'
    hinges = hinge("z", "base", "b", "0 0 1", 'xyz=".1 .2 .3" rpy=".3 .2 .1"')
    hinges += hinge("y", "b", "c", "0 1 0", "") + hinge("x", "c", "a", "1 0 0", "")
    single = text[text.index("<joint") : text.index("</joint>") + 8]
    three = load_urdf(text.replace(single, names + hinges), floating_base=False)
    body = lambda row: (turn(1, pitch) @ turn(0, roll)).T[:, 2] if row == 0 else turn(0, roll).T[:, 1]
    T = np.stack([body(0), body(1), [1.0, 0, 0]], 1)  # angular velocity in the body per unit of each rate
    np.testing.assert_allclose(mass_matrix(three, [yaw, pitch, roll]), T.T @ found @ T, atol=1e-12)


# ---- MJCF and its files
PART = "<mujoco><worldbody><body name='p'><joint/><geom size='.1'/></body></worldbody></mujoco>"
PLACES = (
    "../outside/part.xml",
    "x/../../outside/part.xml",
    "{outside}/part.xml",
    "..\\outside\\part.xml",
    "link/part.xml",
)


def mjcf(inside="", asset="", body=""):
    return (
        f"<mujoco>{inside}<asset>{asset}</asset><worldbody><body name='b'><joint/><geom size='.1'/>{body}</body>"
        "</worldbody></mujoco>"
    )


@pytest.fixture
def folders(tmp_path):
    """The folder of the file, with a link that leaves it, and one beside it."""
    for name in ("robot", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.xml").write_text(PART)
    (tmp_path / "robot" / "link").symlink_to(tmp_path / "outside")
    return tmp_path / "robot", tmp_path / "outside"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("element", ["<include file={!r}/>", "<asset><model name='m' file={!r}/></asset>"])
def test_no_file_outside_the_folder_is_opened(folders, place, element):
    inside, outside = folders
    place = place.format(outside=outside)
    (inside / "robot.xml").write_text(mjcf(element.format(place).replace("\\\\", "\\")))
    (outside / "part.xml").write_text("<mujoco><geom/> this would be an error if it were read </mujoco>")
    with pytest.raises(ValueError, match=r"robot\.xml: <(include|model) file=.* in line 1 is outside the folder"):
        load_mjcf(inside / "robot.xml")
    (outside / "part.xml").write_text(PART)
    assert load_mjcf(inside / "robot.xml", folder=inside.parent).nv == (2 if "include" in element else 1)


def test_the_command_line_names_a_wider_folder(folders, capsys):
    inside, _ = folders
    (inside / "robot.xml").write_text(mjcf("<include file='../outside/part.xml'/>"))
    assert main(["info", str(inside / "robot.xml")]) != 0
    assert "is outside the folder" in capsys.readouterr().err
    assert main(["info", str(inside / "robot.xml"), "--folder", str(inside.parent)]) == 0
    capsys.readouterr()
    assert main(["info", "arm", "--folder", "."]) != 0
    assert "arm: --folder is for MJCF files" in capsys.readouterr().err


def test_a_mesh_outside_the_folder_is_not_opened(folders):
    inside, outside = folders
    (outside / "shell.stl").write_bytes(b"not a mesh")
    mesh = "<mesh name='shell' file='../outside/shell.stl'/>"
    (inside / "robot.xml").write_text(mjcf(asset=mesh, body="<body><joint/><geom type='mesh' mesh='shell'/></body>"))
    with pytest.raises(ValueError, match=r"needs the mesh 'shell', whose file .* is outside the folder"):
        load_mjcf(inside / "robot.xml")
    # A box that is fitted to a mesh is left out where the mass is known, like the mesh itself.
    box = "<body><inertial pos='0 0 0' mass='1' diaginertia='1 1 1'/><joint/><geom type='box' mesh='shell'/></body>"
    for file in ("../outside/shell.stl", str(outside / "shell.stl"), "missing.stl"):
        (inside / "robot.xml").write_text(mjcf(asset=f"<mesh name='shell' file='{file}'/>", body=box))
        assert [shape.kind for shape in load_mjcf(inside / "robot.xml").geometry] == ["sphere"]
    attached = mjcf().replace("<asset>", "<asset><model name='m' file='inner.xml'/>")
    (inside / "inner.xml").write_text(mjcf("<compiler meshdir='../outside'/>", "<mesh name='x' file='shell.stl'/>"))
    (inside / "robot.xml").write_text(attached)
    with pytest.raises(ValueError, match=r"inner\.xml: <mesh file='shell.stl'> in line 1 is outside the folder"):
        load_mjcf(inside / "robot.xml")


ATTACHED = {
    "absent": (None, "<model file='inner.xml'> in line 1 does not exist"),
    "itself": ("<mujoco><asset><model name='n' file='inner.xml'/></asset></mujoco>", "attaches itself"),
    "not well formed": ("<mujoco", r"inner\.xml: not well-formed XML"),
    "refused by MuJoCo": ("<mujoco><x/></mujoco>", r"inner\.xml: XML Error: Schema violation"),
    "no MJCF": (urdf(), r"inner\.xml: no <mujoco>: the root element is <robot>"),
}


@pytest.mark.parametrize("name", ATTACHED)
def test_attached_models_that_end_the_process_in_mujoco(name, tmp_path):
    content, message = ATTACHED[name]
    if content is not None:
        (tmp_path / "inner.xml").write_text(content)
    (tmp_path / "robot.xml").write_text(mjcf(asset="<model name='m' file='inner.xml'/>"))
    with pytest.raises(ValueError, match=message) as caught:
        load_mjcf(tmp_path / "robot.xml")
    assert str(caught.value).isprintable()


BAD_MJCF = {
    "NaN in a part": (PART.replace(".1", "nan"), r"part\.xml: <geom size='nan'> is not finite"),
    "a part that is not XML": ("<mujoco>", r"part\.xml: not well-formed XML: no element found: line 1, column 8"),
    "an entity": ("<!DOCTYPE mujoco [<!ENTITY r '.1'>]>" + PART.replace(".1", "&r;"), "declares the entity 'r'"),
    "an encoding of one byte": (PART.replace("p'", "\u00e9'"), r"part\.xml: the file is not in UTF-8"),
    "an encoding of many bytes": (PART.encode("utf-32").decode("latin-1"), r"part\.xml: the file is not in UTF-8"),
    "a flexible body": (PART.replace("<joint/>", "<flexcomp name='f' file='x.stl'/>"), "flexible bodies are not"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_MJCF)
def test_included_parts_are_checked_like_the_file(name, tmp_path):
    content, message = BAD_MJCF[name]
    (tmp_path / "part.xml").write_text(content, encoding="latin-1")
    (tmp_path / "robot.xml").write_text(mjcf("<include file='part.xml'/>"))
    with pytest.raises(ValueError, match=message) as caught:
        load_mjcf(tmp_path / "robot.xml")
    assert type(caught.value) is ValueError
    assert os.fspath(tmp_path / "robot.xml") in str(caught.value)


def test_mujocos_own_warnings_stay_out(recwarn):
    load_mjcf(mjcf("<compiler settotalmass='3'/>"))
    assert not recwarn.list
