"""Which shapes of a robot's file may touch one another: MuJoCo's own list, and what contacts make of it."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import shapes

mujoco = pytest.importorskip("mujoco")

FINGERS = """<mujoco><default><geom type="box" size=".02 .03 .05"/></default><worldbody>
  <geom name="floor" type="plane" size="1 1 1"/>
  <body name="palm" pos="0 0 1"><freejoint/><geom name="palm"/><geom name="ghost" contype="0" conaffinity="0"/>
    <body name="wrist"><geom name="wrist" pos="0 0 -.1"/>
      <body name="left" pos="-.1 0 -.2"><joint type="slide" axis="1 0 0"/><geom name="l1" contype="2" conaffinity="1"/>
        <geom name="l2" type="capsule" size=".01 .02" pos="0 0 .1" contype="4" conaffinity="4"/></body>
      <body name="right" pos=".1 0 -.2"><joint type="slide" axis="1 0 0"/><geom name="r1" contype="2" conaffinity="2"/>
        <geom name="r2" type="sphere" size=".01" pos="0 0 .1" contype="1" conaffinity="4"/>
        <body name="tip" pos="0 0 -.2"><joint type="hinge" axis="0 1 0"/><geom name="t" type="cylinder" size=".01 .02"/>
        </body></body></body></body>
  <body name="cube" pos="0 0 .5"><freejoint/><geom name="cube" contype="7" conaffinity="7"/></body>
</worldbody>{}</mujoco>"""
FILTERS = """<contact><exclude body1="cube" body2="tip"/><pair geom1="ghost" geom2="cube" friction=".3 .3 0 0 0"/>
  <pair geom1="palm" geom2="l1"/></contact>"""
CHAIN = "".join(
    f'<body name="b{k}" pos="0 0 .3"><joint type="hinge" axis="0 1 0"/><geom size=".05"/>' for k in range(5)
)
MODELS = {
    "masks": FINGERS.format(""),
    "exclude and pair": FINGERS.format(FILTERS),
    "parents": FINGERS.format('<option><flag filterparent="disable"/></option>'),
    "chain": f"<mujoco><worldbody>{CHAIN}{'</body>' * 5}</worldbody></mujoco>",
}


def of_mujoco(text):
    """The pairs of geoms on moving bodies that MuJoCo looks at: balls with a margin of 100 m all meet one another."""
    spec = mujoco.MjSpec.from_string(text)
    spec.memory = 2**27
    for one in (*spec.geoms, *spec.pairs):
        one.margin = 100.0
    for one in spec.geoms:
        if one.type != mujoco.mjtGeom.mjGEOM_PLANE:
            one.type = mujoco.mjtGeom.mjGEOM_SPHERE
    m = spec.compile()
    data = mujoco.MjData(m)
    mujoco.mj_fwdPosition(m, data)
    pairs = {tuple(sorted(map(int, data.contact[k].geom))) for k in range(data.ncon)}
    moves = lambda g: m.body_weldid[m.geom_bodyid[g]] > 0
    place = {g: k for k, g in enumerate(g for g in range(m.ngeom) if moves(g) and counts(m, g))}
    return {(place[a], place[b]) for a, b in pairs if moves(a) and moves(b)}


def counts(m, g):
    """Whether a geom is among a robot's shapes."""
    return m.geom_contype[g] or m.geom_conaffinity[g] or g in m.pair_geom1 or g in m.pair_geom2


@pytest.mark.parametrize("name", MODELS)
def test_the_pairs_of_a_robot_are_those_of_mujoco(name):
    robot = lgjax.load_robot(MODELS[name])
    expected = of_mujoco(MODELS[name])
    assert len(expected) > 5
    assert set(robot.shape_pairs) == expected
    link = [shape.link for shape in robot.contacts.shapes]
    assert set(map(frozenset, robot.pairs)) == {frozenset((link[a], link[b])) for a, b in expected}


def test_contacts_of_the_pairs_of_a_robot_are_those_of_their_shapes():
    """Friction is the larger of two, or that of the pair; boxes touch with four points, others with fewer."""
    robot = lgjax.load_robot(MODELS["exclude and pair"])
    link = [shape.link for shape in robot.contacts.shapes]
    kinds = [shape.kind for shape in robot.contacts.shapes]
    contacts = lgjax.Contacts(robot, pairs=robot.pairs)
    round_ones = {"sphere": 1, "capsule": 2}
    number = lambda a, b: 1 if {a, b} <= set(round_ones) else min(round_ones.get(a, 4), round_ones.get(b, 4))
    expected = {}
    for a, b in robot.shape_pairs:
        expected.setdefault((link[a], link[b]), []).append(number(kinds[a], kinds[b]))
    found = {pair: contacts.links.count(pair) for pair in set(contacts.links)}
    assert found == {pair: sum(each) for pair, each in expected.items()}
    turned = lgjax.Contacts(robot, pairs=[(b, a) for a, b in robot.pairs])
    assert {(b, a): turned.links.count((b, a)) for a, b in found} == {(b, a): n for (a, b), n in found.items()}
    own = np.asarray(contacts.friction)[[k for k, pair in enumerate(contacts.links) if set(pair) == {"palm", "cube"}]]
    np.testing.assert_allclose(sorted(own), [0.3] * 4 + [1.0] * 4)


def five_links(order=range(5)):
    """A URDF with the links l0 to l4 in a row, of which l1 and l2 move as one."""
    box = "<collision><geometry><box size='.1 .1 .1'/></geometry></collision>"
    mass = "<inertial><mass value='1'/><inertia ixx='.01' iyy='.01' izz='.01' ixy='0' ixz='0' iyz='0'/></inertial>"
    links = "".join(f"<link name='l{k}'>{mass}{box}</link>" for k in order)
    kinds = "continuous", "fixed", "continuous", "continuous"
    joints = "".join(
        f"<joint name='j{k}' type='{kind}'><parent link='l{k}'/><child link='l{k + 1}'/><axis xyz='0 1 0'/></joint>"
        for k, kind in enumerate(kinds)
    )
    return lgjax.load_robot(f"<robot name='r'>{links}{joints}</robot>", floating_base=True)


def test_all_links_of_a_urdf_may_touch_but_parent_and_child():
    robot, backwards = five_links(), five_links([4, 3, 2, 1, 0])
    body = [0, 1, 1, 2, 3]  # l1 and l2 move as one
    expected = {(f"l{a}", f"l{b}") for a, b in itertools.combinations(range(5), 2) if body[b] - body[a] > 1}
    assert set(robot.pairs) == expected
    assert set(map(frozenset, backwards.pairs)) == set(map(frozenset, expected))


def test_a_pair_of_a_file_with_a_mesh_that_was_not_read_is_none():
    mesh = '<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
    bodies = """<body name="a" pos="0 0 1"><freejoint/><geom name="a" size=".1"/>
        <geom name="rough" type="mesh" mesh="m"/></body>
      <body name="b" pos="0 0 2"><freejoint/><geom name="b" size=".1"/></body>"""
    each = "".join(f'<pair geom1="{one}" geom2="b"/>' for one in ("rough", "a"))
    text = f"<mujoco>{mesh}<worldbody>{bodies}</worldbody><contact>{each}</contact></mujoco>"
    robot = lgjax.load_robot(text, meshes="ignore")
    assert any(shape.kind == "mesh" for shape in robot.contacts.shapes)
    kinds = [shape.kind for shape in robot.contacts.shapes]
    assert [sorted(kinds[k] for k in pair) for pair in robot.shape_pairs] == [["sphere", "sphere"]]


def test_links_that_an_srdf_disables_do_not_touch():
    """The others touch as before; what it enables again touches, and the robot before it is the same."""
    robot = five_links()
    before = set(robot.pairs)
    off = "<disable_collisions link1='l3' link2='l0' reason='Never'/>"
    assert set(robot.with_srdf(f"<robot name='r'>{off}</robot>").pairs) == before - {("l0", "l3")}
    alone = "<disable_default_collisions link='l4'/><enable_collisions link1='l4' link2='l1'/>"
    expected = {pair for pair in before if "l4" not in pair} | {("l1", "l4")}
    assert set(robot.with_srdf(f"<robot name='r'>{alone}</robot>").pairs) == expected
    assert set(robot.pairs) == before
    only = robot.with_srdf(f"<robot name='r'>{off}</robot>")
    assert ("l0", "l3") not in set(lgjax.Contacts(only, pairs=only.pairs).links)


def test_an_srdf_that_fits_badly_is_told():
    robot = five_links()
    with pytest.warns(UserWarning, match=r"'r' has no links gripper$"):
        strange = robot.with_srdf("<robot name='r'><disable_collisions link1='l0' link2='gripper'/></robot>")
    assert strange.pairs == robot.pairs
    with pytest.raises(ValueError, match=r"^SRDF text: line 1: <disable_collisions> has no 'link2': name a link$"):
        robot.with_srdf("<robot name='r'><disable_collisions link1='l0'/></robot>")
    with pytest.raises(ValueError, match=r"^cannot read SRDF 'missing.srdf'"):
        robot.with_srdf("missing.srdf")
    with pytest.raises(ValueError, match=r"^SRDF text: no <robot>"):
        robot.with_srdf("<srdf/>")


def test_links_that_no_file_pairs_touch_with_all_their_shapes():
    robot = lgjax.load_robot(MODELS["masks"])
    assert not {("palm", "left"), ("left", "palm")} & set(robot.pairs)
    assert len(lgjax.Contacts(robot, pairs=[("palm", "left")])) == 4 + 2
    given = {"palm": shapes.sphere(0.1), "left": shapes.sphere(0.1)}
    contacts = lgjax.Contacts(robot, (), given, [("palm", "left")])
    assert contacts.names == ("palm on left",)
    assert jnp.all(contacts.friction == 1)
