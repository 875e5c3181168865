"""Robots from URDF: mimic joints, motors, floating bases, meshes."""

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio
import pytest

import lgjax
from tests.multibody.test_importers import robot_file

MASS = '<inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>'


def link(name: str, inside: str = MASS) -> str:
    return f'<link name="{name}">{inside}</link>'


def joint(name: str, parent: str, child: str, inside: str = "", kind: str = "continuous") -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>\n{inside}</joint>'


def urdf(*elements: str) -> str:
    return f'<robot name="r">\n{chr(10).join(elements)}\n</robot>'


LIMIT = '<limit lower="-1" upper="1" effort="{}" velocity="2"/>'
LINKS = link("base") + link("a") + link("b") + link("c") + link("d")
CHAIN = (
    joint("j", "base", "a"),
    joint("k", "a", "b", f'<mimic joint="j" multiplier="-2" offset=".3"/>{LIMIT.format(5)}', "prismatic"),
    joint("l", "b", "c", '<mimic joint="j"/>'),
    joint("m", "c", "d", LIMIT.format(7), "revolute"),
)


def test_mimic_joints_follow_exactly():
    """Positions, velocities and accelerations; the forces that hold them do no work."""
    robot = lgjax.load_robot(urdf(LINKS, *CHAIN))
    model = robot.model
    assert [loop.name for loop in robot.loops] == ["k", "l"]
    j, k, el, _ = (model.tree.v_start[model.tree.joint_names.index(name)] for name in "jklm")
    q = lgjax.configuration(model, joints={"j": 0.4, "k": 0.3 - 0.8, "l": 0.4})
    draw = np.random.default_rng(0)
    v = lgjax.project_velocity(model, robot.loops, q, jnp.asarray(draw.normal(size=model.nv)))
    np.testing.assert_allclose([v[k], v[el]], [-2 * v[j], v[j]], atol=1e-14)
    found = lgjax.constrained_forward_dynamics(model, robot.loops, q, v, jnp.asarray(draw.normal(size=model.nv)))
    vdot = found.vdot
    np.testing.assert_allclose([vdot[k], vdot[el]], [-2 * vdot[j], vdot[j]], atol=1e-12)
    off = lgjax.configuration(model, joints={"j": 0.4, "k": 0.1, "l": 0.2})
    held = lgjax.project_positions(model, robot.loops, off).q.joints
    np.testing.assert_allclose([held[1], held[2]], [0.3 - 2 * held[0], held[0]], atol=1e-12)


def test_a_joint_that_follows_a_fixed_one_is_held():
    text = urdf(
        link("base") + link("a") + link("b"),
        joint("j", "base", "a", kind="fixed"),
        joint("k", "a", "b", '<mimic joint="j" multiplier="9" offset=".3"/>'),
    )
    robot = lgjax.load_robot(text, floating_base=False)
    q = lgjax.project_positions(robot.model, robot.loops, lgjax.configuration(robot.model)).q
    np.testing.assert_allclose(q.joints, [0.3], atol=1e-12)
    assert robot.actuators is None


def test_ignored_mimic_joints_are_free():
    robot = lgjax.load_robot(urdf(LINKS, *CHAIN), ignore=("mimic",))
    assert robot.loops == ()
    assert robot.ignored == ("mimic (ignore=)",)


def test_motors_drive_the_joints_that_follow_no_other():
    """The force of a motor is limited to the effort of its joint, behind a gear to that part of it."""
    robot = lgjax.load_robot(urdf(LINKS, *CHAIN), floating_base=False)
    drives, q = robot.actuators, lgjax.configuration(robot.model)
    assert drives.names == ("j", "m")
    tau = drives.torque(q, jnp.zeros(4), jnp.array([3.0, 30.0]))
    np.testing.assert_array_equal(tau, [3, 0, 0, 7])
    assert lgjax.load_robot(urdf(LINKS, *CHAIN), ignore=("actuator",)).actuators is None


GEARS = """<transmission name="t"><type>transmission_interface/SimpleTransmission</type>
 <joint name="m"><hardwareInterface>EffortJointInterface</hardwareInterface></joint>
 <actuator name="drive"><mechanicalReduction>{}</mechanicalReduction></actuator></transmission>"""


def test_transmissions_reduce():
    robot = lgjax.load_robot(urdf(LINKS, *CHAIN, GEARS.format("-50")), floating_base=False)
    drives, q = robot.actuators, lgjax.configuration(robot.model, joints={"m": 0.2})
    assert drives.names == ("drive",)
    np.testing.assert_allclose(drives.lengths(q), [-10])
    for control, torque in ((0.02, -1), (1.0, -7), (-1.0, 7)):
        np.testing.assert_allclose(drives.torque(q, jnp.zeros(4), jnp.array([control])), [0, 0, 0, torque], atol=1e-14)
    whole = lgjax.load_robot(urdf(LINKS, *CHAIN, GEARS.format("-50")), floating_base=False, ignore=("transmission",))
    assert whole.actuators.names == ("j", "m")


def test_transmissions_that_are_not_read_are_warned_of():
    """Of two joints, which are then driven directly, and of none that is there."""
    two = '<transmission name="wrist"><joint name="j"/><joint name="m"/><actuator name="x"/></transmission>'
    none = '<transmission name="lost"><joint name="z"/></transmission>'
    with pytest.warns(UserWarning, match=r"'wrist' in line \d+ \(2 joints\), transmission 'lost'") as found:
        robot = lgjax.load_robot(urdf(LINKS, *CHAIN, two, none))
    assert len(found) == 1
    assert robot.actuators.names == ("j", "m")


BAD = {
    "a leader that is not there": (
        urdf(link("base") + link("a"), joint("j", "base", "a", '<mimic joint="z"/>')),
        r"joint 'j' in line 3: <mimic joint='z'>: there is no such joint \(ignore=\('mimic',\) frees all followers\)",
    ),
    "a leader without a coordinate": (
        urdf(
            link("base") + link("a") + link("b"),
            joint("j", "base", "a", kind="floating"),
            joint("k", "base", "b", '<mimic joint="j"/>'),
        ),
        "joint 'k' in line 5: <mimic joint='j'>: 'j' is floating, which has no scalar coordinate",
    ),
    "a follower of itself": (
        urdf(link("base") + link("a"), joint("j", "base", "a", '<mimic joint="j"/>')),
        "coupling 'j': a joint cannot follow itself",
    ),
    "no reduction": (urdf(LINKS, *CHAIN, GEARS.format("0")), r"'0' is .* 0 \(line 13\) \(ignore=\('transmission',\)"),
    "words": (urdf(LINKS, *CHAIN, GEARS.format("fast")), "transmission 't' in line 11: <mechanicalReduction> 'fast'"),
    "a number": (
        urdf(LINKS, joint("j", "base", "a", '<axis xyz="0 1"/>')),
        r"joint 'j': <axis xyz='0 1'> is not 3 finite numbers \(line 4\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused_with_its_line(name):
    text, message = BAD[name]
    with pytest.raises(ValueError, match=f"URDF text: .*{message}"):
        lgjax.load_robot(text)


HEADS = ('\n \n<?xml version="1.0"?>', '<!-- by hand -->\n\n<?xml version="1.0"?>', '\n\n<?xml version="0.0"?>')


@pytest.mark.parametrize("head", HEADS)
def test_a_declaration_that_is_not_at_the_start_does_no_harm(tmp_path, head):
    """In a file as in a text, as in `load_urdf`; lines keep their numbers."""
    path, body = tmp_path / "robot.urdf", urdf(LINKS, *CHAIN)
    path.write_text(head + body)
    assert lgjax.load_robot(path).model.nv == lgjax.load_robot(head + body).model.nv == 10
    path.write_text(head + body.replace('joint="j" multiplier', 'joint="z" multiplier'))
    with pytest.raises(ValueError, match=r"joint 'k' in line 7: .*no such joint"):
        lgjax.load_robot(path)


# ---- what floats
ARM = joint("j", "base", "a")
FLOATING = {
    "a body with mass": (urdf(link("base") + link("a"), ARM), True),
    "mass that is fixed to the root": (
        urdf(link("foot", "") + link("base") + link("a"), ARM, joint("f", "foot", "base", kind="fixed")),
        True,
    ),
    "a root called world": (
        urdf(link("world", "") + link("base") + link("a"), joint("f", "world", "base", kind="fixed"), ARM),
        False,
    ),
    "a root without mass": (urdf(link("base", "") + link("a"), ARM), False),
    "a chain without mass": (
        urdf(link("foot", "") + link("base", "") + link("a"), ARM, joint("f", "foot", "base", kind="fixed")),
        False,
    ),
}


@pytest.mark.parametrize("name", FLOATING)
def test_the_root_floats_unless_it_is_the_world(name):
    text, floats = FLOATING[name]
    assert bool(lgjax.load_robot(text).model.tree.n_free) == floats
    assert not lgjax.load_robot(text, floating_base=False).model.tree.n_free
    assert lgjax.load_robot(text, floating_base=True).model.tree.n_free == 1


def test_a_world_that_floats_is_warned_of():
    text, _ = FLOATING["a root called world"]
    with pytest.warns(UserWarning, match="the root link 'world' floats; floating_base=False fixes it"):
        assert lgjax.load_urdf(text).tree.n_free == 1


def test_published_arms_are_bolted_where_they_say_so():
    assert not lgjax.load_robot(robot_file("ur5_robot.urdf"), meshes="ignore").model.tree.n_free
    assert lgjax.load_robot(robot_file("go1.urdf"), meshes="ignore").model.tree.n_free


def test_the_mimic_joint_of_panda_is_held():
    """Pinocchio, which removes the follower, has the same accelerations."""
    path = robot_file("panda.urdf")
    robot = lgjax.load_robot(path, floating_base=False, meshes="ignore")
    model = robot.model
    theirs = pinocchio.buildModelFromUrdf(path, mimic=True)
    assert theirs.nv == model.nv - 1 == 8
    draw, data = np.random.default_rng(0), theirs.createData()

    @jax.jit
    @jax.vmap
    def ours(x, v, tau):
        expand = lambda y: jnp.concatenate([y, y[-1:]])
        q = lgjax.configuration(model, joints=expand(x))
        force = jnp.concatenate([tau, jnp.zeros(1)])
        return lgjax.constrained_forward_dynamics(model, robot.loops, q, expand(v), force).vdot

    x, v, tau = draw.normal(size=(3, 20, 8))
    found = np.asarray(ours(x, v, tau))
    np.testing.assert_allclose(found[:, 8], found[:, 7], atol=1e-9 * np.abs(found).max())
    damping = np.asarray(model.damping)[:9]
    for i in range(20):
        drag = damping[:8] * v[i]
        drag[7] += damping[8] * v[i, 7]
        M = np.triu(pinocchio.crba(theirs, data, x[i]))
        M = M + np.triu(M, 1).T
        bias = pinocchio.rnea(theirs, data, x[i], v[i], np.zeros(8))
        expected = np.linalg.solve(M, tau[i] - drag - bias)
        np.testing.assert_allclose(found[i, :8], expected, atol=1e-9 * np.abs(expected).max())


# ---- meshes
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def collision(inside: str, origin: str = "") -> str:
    return MASS + f"<collision>{origin}<geometry>{inside}</geometry></collision>"


def mesh_robot(name: str, more: str = "") -> str:
    shape = collision(
        f'<mesh filename="{name}" scale=".1 .2 -.3"/>', '<origin xyz="1 2 3" rpy="0 0 1.5707963267948966"/>'
    )
    return urdf(link("base") + link("a", shape) + link("b", collision(f"{more}")), ARM, joint("k", "a", "b"))


@pytest.mark.parametrize("name", ["solid.obj", "package://parts/solid.obj", "../parts/solid.obj"])
def test_collision_meshes_are_hulls_where_they_lie(name, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "solid.obj").write_text(TETRAHEDRON)
    (folder / "robot.urdf").write_text(mesh_robot(name, '<sphere radius=".1"/>'))
    robot = lgjax.load_robot(folder / "robot.urdf")
    assert [shape.kind for shape in robot.contacts.shapes] == ["hull", "sphere"]
    assert robot.model.geometry == robot.contacts.shapes
    corners = [(1, 2, 3), (1, 2.1, 3), (0.8, 2, 3), (1, 2, 2.7)]
    found = np.round(robot.contacts.shapes[0].hull.vertices, 9)
    np.testing.assert_allclose(sorted(found.tolist()), sorted(corners), atol=1e-9)
    assert robot.contacts.shapes[0].link == "a"
    ignored = lgjax.load_robot(folder / "robot.urdf", meshes="ignore")
    assert [shape.kind for shape in ignored.contacts.shapes] == ["mesh", "sphere"]
    assert ignored.ignored == ()


def test_the_folder_of_a_package_can_be_given(tmp_path):
    (tmp_path / "solid.obj").write_text(TETRAHEDRON)
    text = mesh_robot("package://somewhere/solid.obj")
    assert lgjax.load_robot(text, packages={"somewhere": tmp_path}).contacts.shapes[0].kind == "hull"


def test_shapes_that_cannot_be_read_are_left_out():
    """A mesh that is not there, and a sphere without size, which other readers pass over."""
    text = mesh_robot("package://nowhere/solid.obj", '<sphere radius="0"/>')
    with pytest.warns(UserWarning, match="left out: .*nowhere") as found:
        robot = lgjax.load_robot(text)
    assert len(found) == 1
    assert "packages=" in robot.ignored[0]
    assert "<sphere radius='0'> is not positive (line 2)" in robot.ignored[1]
    assert [shape.kind for shape in robot.contacts.shapes] == ["mesh"]
    assert lgjax.load_robot(text, ignore=("contact",)).contacts.shapes == ()
