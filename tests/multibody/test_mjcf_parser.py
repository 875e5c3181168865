"""Errors in included files name their file and line, files are decoded as MuJoCo does, and mocap bodies are refused."""

import mujoco
import numpy as np
import pytest

from lgjax import load_mjcf

MAIN = """<mujoco>
{}
<worldbody>
<body name='b'><joint name='k'/><geom size='.1'/></body>
</worldbody>
<include file='parts/a.xml'/>
</mujoco>"""
BODY = "<worldbody>\n<body name='p'>\n{}\n</body></worldbody>"


def part(content, lines=0):
    return f"<mujoco>{chr(10) * lines}\n{content}\n</mujoco>"


@pytest.fixture
def robot(tmp_path):
    """A writer of a main file and of parts/a.xml, parts/deep/b.xml; it returns the path of the main file."""

    def write(first, second=None, option=""):
        (tmp_path / "parts" / "deep").mkdir(parents=True, exist_ok=True)
        (tmp_path / "parts" / "a.xml").write_text(first)
        if second:
            (tmp_path / "parts" / "deep" / "b.xml").write_text(second)
        (tmp_path / "main.xml").write_text(option if option.startswith("<mujoco") else MAIN.format(option))
        return tmp_path / "main.xml"

    return write


# Contents of a part, the line of the fault there, and what is wrong.
FAULTS = {
    "an attribute": (BODY.format("<joint colour='red'/>"), 4, "unrecognized attribute: 'colour'; Element 'joint'"),
    "an element": (BODY.format("\n<jiont/>"), 5, "unrecognized element; Element 'jiont'"),
    "a number": (BODY.format("<joint axis='0 x 0'/>"), 4, "bad format in attribute 'axis'; Element 'joint'"),
    "a keyword": (BODY.format("<joint type='hnge'/>"), 4, "invalid keyword: 'hnge'; Element 'joint'"),
    "a class": (BODY.format("<joint class='c'/>"), 4, "unknown default class name 'c'; Element 'joint'"),
    "a body without mass": (BODY.format("<joint/>"), 3, "must be larger than mjMINVAL; Element name 'p'"),
    "a shape": (BODY.format("<joint/>\n<geom size='-1'/>"), 5, "size 0 must be positive in geom"),
    "a name": ("<worldbody><body name='b'/></worldbody>", 2, "repeated name 'b' in body; Element 'body'"),
    "a weld": ("\n<equality><weld body1='b'/></equality>", 3, "weld constraints are not supported"),
    "a tendon": (
        "<tendon>\n<fixed stiffness='1'>\n<joint joint='k' coef='1'/></fixed></tendon>",
        3,
        "stiffness is not supported",
    ),
    "a mesh": (
        "<asset><mesh name='m' file='none.stl'/></asset><worldbody>\n<body><joint/>\n"
        "<geom type='mesh' mesh='m'/></body></worldbody>",
        3,
        "needs the mesh 'm'",
    ),
    "a mocap body": (
        "<worldbody>\n\n<body mocap='true'><geom size='1'/></body></worldbody>",
        4,
        "mocap bodies are not supported, for others move them",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_in_an_included_file_names_that_file_and_its_line(name, robot):
    content, line, message = FAULTS[name]
    with pytest.raises(ValueError, match=r"main\.xml: ") as caught:
        load_mjcf(robot(part(content, lines=10)))
    assert message in str(caught.value)
    assert f"line {line + 10} of {robot(part(content)).parent / 'parts' / 'a.xml'}" in str(caught.value)
    assert str(caught.value).isprintable()
    # One deeper, beside another element in the same line, for which MuJoCo gives the right line in the main file.
    first = part("<option/><include file='deep/b.xml'/>")
    with pytest.raises(ValueError, match=message.split(";")[0]) as caught:
        load_mjcf(robot(first, part(content)))
    assert f"line {line} of {robot(first).parent / 'parts' / 'deep' / 'b.xml'}" in str(caught.value)


@pytest.mark.parametrize("name", ["an attribute", "a number", "a class", "a body without mass"])
def test_the_line_is_the_one_that_mujoco_names_where_the_part_is_a_file_of_its_own(name, robot):
    content, _, _ = FAULTS[name]
    main = robot(part(content))
    with pytest.raises(ValueError, match="line") as theirs:
        mujoco.MjSpec.from_file(str(main.parent / "parts" / "a.xml")).compile()
    number = int(str(theirs.value).rpartition("line ")[2])
    with pytest.raises(ValueError, match=rf"line {number} of .*a\.xml"):
        load_mjcf(main)


def test_an_error_of_the_main_file_keeps_its_line(robot):
    flag = "<option>\n<flag colour='red'/></option>"
    with pytest.raises(ValueError, match=r"main\.xml: .*unrecognized attribute: 'colour'; Element 'flag', line 3$"):
        load_mjcf(robot(part("<option/>"), option=flag))


def test_where_the_line_cannot_be_told_the_included_files_are_named(robot):
    again = part("<include file='b.xml'/>")
    with pytest.raises(ValueError, match=r"already included.*line 0 \(in an included file: .*a\.xml, .*b\.xml\)$"):
        load_mjcf(robot(part("<include file='deep/b.xml'/>"), again))


def test_a_line_of_an_attached_model_is_not_said_to_be_one_of_this_file(robot):
    """MuJoCo counts it in the attached file, and ends the process where one that is absent is attached to a text."""
    inner = "<mujoco>\n\n<worldbody>\n<body name='m' mocap='true'><geom size='1'/></body></worldbody></mujoco>"
    asset = "<asset><model name='n' file='parts/a.xml'/></asset>"
    main = f"<mujoco>{asset}<worldbody><attach model='n' body='m' prefix='x_'/></worldbody></mujoco>"
    with pytest.raises(ValueError, match=r"body 'x_m' in line 4: mocap .* \(a line of the element's own file: "):
        load_mjcf(robot(inner, option=main))


# ---- mocap bodies
MOCAP = """<mujoco><worldbody><body name='a'><joint/><geom size='.1'/></body>
<body name='target' mocap='{}'><geom size='.1'/></body></worldbody></mujoco>"""


def test_a_mocap_body_is_refused_with_its_line_and_the_way_out():
    with pytest.raises(ValueError, match=r"body 'target' in line 2: mocap bodies.*; without mocap='true' it is fixed"):
        load_mjcf(MOCAP.format("true"))
    model = load_mjcf(MOCAP.format("false"))
    assert (model.nbodies, model.tree.frames) == (1, (("target", -1),))


# ---- encodings
NAMED = """<?xml version='1.0' encoding='{}'?><mujoco><worldbody>
<body name='\u00e9'><joint/><geom size='.1'/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("declared", ["utf-8", "iso-8859-1", "utf-16", "x-none"])
def test_files_and_texts_are_read_as_utf_8_whatever_they_declare(declared, tmp_path):
    """As MuJoCo reads them."""
    text = NAMED.format(declared)
    (tmp_path / "r.xml").write_text(text, encoding="utf-8")
    theirs = mujoco.MjModel.from_xml_path(str(tmp_path / "r.xml"))
    for found in (load_mjcf(text), load_mjcf(tmp_path / "r.xml")):
        assert found.body_names == (theirs.body(1).name,) == ("\u00e9",)
        np.testing.assert_allclose(found.inertias.mass, theirs.body_mass[1:], rtol=1e-14)


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16"])
def test_a_file_that_is_not_in_utf_8_is_refused_by_name(encoding, tmp_path):
    (tmp_path / "r.xml").write_bytes(NAMED.format(encoding).encode(encoding))
    with pytest.raises(ValueError, match=r"r\.xml: the file is not in UTF-8, which MuJoCo reads, at byte \d+: convert"):
        load_mjcf(tmp_path / "r.xml")
