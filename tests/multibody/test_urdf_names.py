"""A URDF that says something in another way than the format does is refused by name, and none of it is lost.

What other tools add is read as before, and names without a prefix are the format's, in a namespace or not.
"""

import jax
import numpy as np
import pinocchio
import pytest

from lgjax import load_urdf

INERTIAL = """<inertial><origin xyz="0 0 -.2"/><mass value="1"/>
<inertia ixx=".01" iyy=".01" izz=".002" ixy="0" ixz="0" iyz="0"/></inertial>"""
LIMIT = '<limit lower="-1" upper="2" effort="3" velocity="4"/>'
DYNAMICS = '<dynamics damping="5" friction=".5"/>'
ORIGIN = '<origin xyz="0 0 1" rpy=".1 .2 .3"/>'
COLLISION = '<collision><origin xyz="0 0 1"/><geometry><sphere radius=".1"/></geometry></collision>'
HINGE = """<{tag} name="j" type="{kind}"{more}>
<parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>{origin}
{limit}
{dynamics}</{tag}>"""


def urdf(
    limit=LIMIT, dynamics=DYNAMICS, origin=ORIGIN, inertial=INERTIAL, collision=COLLISION, more="", root="",
    tag="joint", kind="revolute", link="",
):  # fmt: skip
    joint = HINGE.format(tag=tag, kind=kind, limit=limit, dynamics=dynamics, origin=origin, more=more)
    return f"""<robot{root} name="r"><link name="base"/>
<link name="arm"{link}>{inertial}{collision}</link>
{joint}</robot>"""


def test_what_is_written_as_the_format_says_is_read_as_by_pinocchio():
    ours, theirs = load_urdf(urdf(), floating_base=False), pinocchio.buildModelFromXML(urdf())
    np.testing.assert_array_equal(ours.damping, theirs.damping)
    np.testing.assert_array_equal(ours.friction, theirs.friction)
    np.testing.assert_array_equal(ours.lower, theirs.lowerPositionLimit)
    np.testing.assert_array_equal(ours.upper, theirs.upperPositionLimit)
    np.testing.assert_array_equal(ours.effort, theirs.effortLimit)


spelled = lambda right, wrong: urdf(collision=COLLISION.replace(right, wrong))
shaped = lambda within: urdf(collision=f"<collision>{within}</collision>")

# The place, and what is wrong there: all of these were read without what they say.
LOST = {
    "damping as an element": (
        urdf(dynamics="<dynamics><damping>5</damping></dynamics>"),
        "joint 'j': <dynamics> in line 7 has an element <damping>: write it as an attribute, <dynamics damping=\"",
    ),
    "limits as elements": (
        urdf("<limit><lower>-1</lower><upper>1</upper></limit>"),
        "joint 'j': <limit> in line 6 has an element <lower>: write it as an attribute",
    ),
    "an origin as an element": (
        urdf(origin="<origin><xyz>0 0 1</xyz></origin>"),
        "joint 'j': <origin> in line 5 has an element <xyz>: write it",
    ),
    "an element that is not the format's": (
        urdf("<limit><range>-1 1</range></limit>"),
        "<limit> in line 6 has an unknown element <range>; its values are",
    ),
    "one value of two as an element": (
        urdf(dynamics='<dynamics damping="5"><friction value="1"/></dynamics>'),
        "has an element <friction>: write it",
    ),
    "nothing": (
        urdf(dynamics="<dynamics/>"),
        "<dynamics> in line 7 has none of the attributes damping, friction: give one, or remove the element",
    ),
    "nothing but a comment": (urdf(dynamics="<dynamics><!-- damping='5' --></dynamics>"), "has none of the attributes"),
    "no limits": (urdf("<limit/>"), "<limit> in line 6 has none of the attributes lower, upper, effort, velocity"),
    "only what others add": (urdf(dynamics='<dynamics spring_stiffness="1"/>'), "has none of the attributes damping"),
    "a text": (urdf(dynamics="<dynamics> 5\n</dynamics>"), "has the text '5'; its values are attributes: damping"),
    "a text and a comment": (urdf(origin="<origin><!-- x --> 0 0 1</origin>"), "has the text '0 0 1'"),
    "a misspelt limit": (
        urdf('<limit lowr="-1" upper="2" effort="3" velocity="4"/>'),
        "<limit> in line 6 has the unknown attribute 'lowr'; known: lower, upper, effort, velocity",
    ),
    "another language's limits": (urdf('<limit min="-1" max="1"/>'), "has the unknown attribute 'min'; known: lower"),
    "another case": (urdf('<limit Lower="-1" upper="1"/>'), "has the unknown attribute 'Lower'"),
    "misspelt damping": (urdf(dynamics='<dynamics dampin="5" friction="1"/>'), "unknown attribute 'dampin'; known: da"),
    "a quaternion": (urdf(origin='<origin xyz="0 0 1" quat_xyzw="1 0 0 0"/>'), "unknown attribute 'quat_xyzw'; known"),
    "a misspelt turn": (urdf(origin='<origin xyz="0 0 1" rpi="1 0 0"/>'), "unknown attribute 'rpi'; known: xyz, rpy"),
    "a misspelt place of a mass": (
        urdf(inertial=INERTIAL.replace("xyz", "xzy")),
        "link 'arm': <origin> in line 2 has the unknown attribute 'xzy'",
    ),
    "a misspelt factor": (
        urdf(dynamics='<mimic joint="j" multiplyer="2"/>'),
        "<mimic> in line 7 has the unknown attribute 'multiplyer'",
    ),
    "a misspelt element": (
        urdf(dynamics='<dynamic damping="5"/>'),
        "joint 'j' in line 4 has an element <dynamic>: write it as an element <dynamics>",
    ),
    "a plural": (
        urdf("<limits effort='3'/>", kind="continuous"),
        "has an element <limits>: write it as an element <lim",
    ),
    "a misspelt origin": (
        urdf(origin='<Orgin xyz="0 0 1"/>'),
        "has an element <Orgin>: write it as an element <origin>",
    ),
    "a misspelt follower": (urdf(dynamics='<mimick joint="j"/>'), "<mimick>: write it as an element <mimic>"),
    "a misspelt inertial": (
        urdf(inertial=INERTIAL.replace("inertial", "inertail")),
        "link 'arm' in line 2 has an element <inertail>: write it as an element <inertial>",
    ),
    "a misspelt place in an inertial": (
        urdf(inertial=INERTIAL.replace("origin", "orgin")),
        "<inertial> in line 2 has an element <orgin>: write it as",
    ),
    "damping of a joint": (
        urdf(dynamics="", more=' damping="5"'),
        "joint 'j' in line 4 has an attribute 'damping', which belongs in <dynamics>",
    ),
    "damping in a joint": (urdf(dynamics="<damping>5</damping>"), "an element <damping>, which belongs in <dynamics>"),
    "a place of a joint": (urdf(origin="", more=' xyz="0 0 1"'), "an attribute 'xyz', which belongs in <origin>"),
    "an origin of a joint": (urdf(origin="", more=' origin="0 0 1"'), "an attribute 'origin': write it as an element"),
    "a mass of a link": (urdf(inertial="", link=' mass="1"'), "an attribute 'mass', which belongs in <inertial>"),
    "a mass in a link": (urdf(inertial="<mass value='1'/>"), "an element <mass>, which belongs in <inertial>"),
    "a place of a shape": (spelled("xyz", "xzy"), "<collision>: <origin> in line 3 has the unknown attribute 'xzy'"),
    "a misspelt shape": (spelled("sphere", "spere"), "<spere>: write it as an element <sphere>"),
    "a misspelt geometry": (spelled("geometry", "geometri"), "write it as an element <geometry>"),
    "a misspelt collision": (spelled("collision", "colision"), "as an element <collision>"),
    "a radius as an element": (
        shaped("<geometry><sphere><radius>1</radius></sphere></geometry>"),
        "link 'arm': <collision>: <sphere> in line 3 has an element <radius>: write it as an attribute",
    ),
    "half of a size": (
        shaped('<geometry><box size="0 1 1"/></geometry>'),
        "link 'arm': <collision> <box size='0 1 1'> is not positive",
    ),
    "a shape without geometry": (shaped('<box size="1 1 1"/>'), "an element <box>, which belongs in <geometry>"),
}


@pytest.mark.parametrize("name", LOST)
def test_what_would_be_lost_is_refused_by_name(name, tmp_path):
    text, message = LOST[name]
    (tmp_path / "r.urdf").write_text(text)
    with pytest.raises(ValueError, match=r"r\.urdf: (joint 'j'|link 'arm')") as caught:
        load_urdf(tmp_path / "r.urdf", mimic="independent")
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


# What published robots have; see `OTHERS` of `urdf_names.py`.
ADDED = {
    "elements of other tools": urdf(
        DYNAMICS + '<gazebo><damping>1</damping></gazebo><safety_controller k_velocity="1"/><calibration rising="0"/>',
        LIMIT + '<joint_properties damping="3"/><transmission name="t"/>',
    ),
    "attributes beside complete ones": urdf(LIMIT.replace("/>", ' min="3"/>'), DYNAMICS.replace("/>", ' extra="1"/>')),
    "attributes that are known": urdf(
        LIMIT.replace("/>", ' acceleration="3"/>'), DYNAMICS.replace("/>", ' spring_stiffness="1"/>')
    ),
    "attributes with a prefix": urdf(
        LIMIT.replace("/>", ' drake:acceleration="3"/>'), more=' x:damping="1"', root=' xmlns:x="http://x"'
    ),
    "elements with a prefix": urdf(dynamics=DYNAMICS + "<drake:damping>3</drake:damping>", link=' drake:mass="1"'),
    "a comment and an instruction": urdf("<!-- a -->" + LIMIT.replace("/>", "><!-- b --><?c d?></limit>")),
    "a text beside complete values": urdf(LIMIT.replace("/>", "> as measured </limit>")),
    "names of links": urdf(link=' type="robot" concave="yes"', collision=COLLISION + "<self_collision_checking/>"),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_other_tools_add_is_read_as_without_it(name):
    found, plain = load_urdf(ADDED[name]), load_urdf(urdf())
    assert found.tree == plain.tree
    jax.tree.map(np.testing.assert_array_equal, found, plain)


def test_an_empty_origin_is_the_identity():
    """As the format says and as Pinocchio reads it."""
    text = urdf(origin="<origin/>")
    placement = pinocchio.buildModelFromXML(text).jointPlacements[1]
    assert placement.isIdentity()
    found, without = load_urdf(text), load_urdf(urdf(origin=""))
    jax.tree.map(np.testing.assert_array_equal, found, without)


# ---- namespaces and encodings
ROS, DRAKE = ' xmlns="http://www.ros.org"', ' xmlns="http://drake.mit.edu"'


@pytest.mark.parametrize("root", [ROS, DRAKE, ROS + ' xmlns:drake="http://drake.mit.edu"'])
def test_a_default_namespace_changes_nothing(root):
    text = urdf(root=root)
    found, plain = load_urdf(text, floating_base=False), load_urdf(urdf(), floating_base=False)
    theirs = pinocchio.buildModelFromXML(text)
    assert (found.tree, found.nv) == (plain.tree, theirs.nv)
    jax.tree.map(np.testing.assert_array_equal, found, plain)
    np.testing.assert_allclose(found.inertias.mass, [theirs.inertias[1].mass])


def test_a_default_namespace_does_not_hide_what_would_be_lost():
    with pytest.raises(ValueError, match="<dynamics> in line 7 has an element <damping>"):
        load_urdf(urdf(dynamics="<dynamics><damping>5</damping></dynamics>", root=ROS))


@pytest.mark.parametrize(
    "root", [ROS, ROS + ' xmlns:drake="http://drake.mit.edu"', DRAKE + DRAKE.replace("=", ":drake=", 1)]
)
def test_only_a_prefix_makes_a_joint_drakes(root):
    """The prefix may be declared or not, and Drake's namespace may be the default one too."""
    assert load_urdf(urdf(root=root, tag="drake:joint", kind="ball"), floating_base=False).nv == 3
    with pytest.raises(ValueError, match="joint 'j': unknown type 'ball'"):
        load_urdf(urdf(root=root, kind="ball"))


def test_a_prefix_of_the_root_and_macros_are_refused():
    prefixed = "<u:robot xmlns:u='http://www.ros.org' name='r'/>"
    with pytest.raises(ValueError, match="no <robot>: the root element is <u:robot>"):
        load_urdf(prefixed)
    for root in (' xmlns="http://www.ros.org/wiki/xacro"', ROS):
        with pytest.raises(ValueError, match=r"line \d is a xacro macro: expand the file with xacro first"):
            load_urdf(urdf(root=root, dynamics='<xacro:damping value="1"/>'))


NAMED = urdf().replace('name="j"', 'name="\u00e9"')


@pytest.mark.parametrize("declared", ["utf-8", "ISO-8859-1", "utf-16", "x-none"])
def test_a_text_is_decoded_already_whatever_it_declares(declared):
    text = f"<?xml version='1.0' encoding='{declared}'?>{NAMED}"
    assert load_urdf(text, floating_base=False).joint_names == ("\u00e9",)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1", "utf-16"])
def test_a_file_is_decoded_as_it_declares(encoding, tmp_path):
    declared = encoding.removesuffix("-sig")
    (tmp_path / "r.urdf").write_bytes(f"<?xml version='1.0' encoding='{declared}'?>{NAMED}".encode(encoding))
    assert load_urdf(tmp_path / "r.urdf", floating_base=False).joint_names == ("\u00e9",)


def test_half_a_surrogate_pair_is_refused_in_one_line():
    with pytest.raises(ValueError, match="URDF text: not well-formed XML, line 1: Invalid bytes") as caught:
        load_urdf(urdf(root=" id='\ud800'"))
    assert type(caught.value) is ValueError
