"""The site: every public name stands on exactly one page of the reference, every example in the gallery."""

import importlib.util
import pkgutil
import re
from collections import Counter
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest

import lgjax
from tests.test_surface import NAMESPACES, names

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
GALLERY = ROOT / "docs" / "images" / "gallery"
THUMBNAILS = GALLERY.with_name("thumbnails")
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
GROUPS = ("so3", "s3", "se3", "r3_so3", "ts2")
PARTS = ("control.costs",)  # of namespaces, on the page of the whole
SETTINGS = {"lgjax.cache_programs"}  # of the machine, documented wherever they are listed
LARGEST, MOVING = 300_000, 250_000  # bytes of a picture and of a GIF


def entries() -> list[tuple[str, str]]:
    """(page, name) of every entry of the reference."""
    found = re.compile(r"^\.\. (?:autofunction|autoclass|py:data):: (\S+)$", re.M)
    return [(page.stem, name) for page in sorted(REFERENCE.glob("*.md")) for name in found.findall(page.read_text())]


def public() -> dict[str, set[str]]:
    """{the shortest name: all names} of everything public but modules; one object may be called by several names."""
    meanings: dict[int, list[str]] = {}
    for place in ("", *NAMESPACES, *GROUPS, *PARTS):
        space = attrgetter(place)(lgjax) if place else lgjax
        for name in names(space):
            thing = getattr(space, name)
            if not isinstance(thing, ModuleType):
                meanings.setdefault(id(thing), []).append(".".join(filter(None, ("lgjax", place, name))))
    return {min(group, key=lambda name: (name.count("."), name)): set(group) for group in meanings.values()}


def source_of_the_gallery():
    spec = importlib.util.spec_from_file_location("gallery_source", ROOT / "docs" / "gallery_source.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_on_exactly_one_page_of_the_reference():
    pages = Counter(id(pkgutil.resolve_name(name)) for _, name in entries())
    count = {shortest: pages[id(pkgutil.resolve_name(shortest))] for shortest in public()}
    wrong = {name: n for name, n in count.items() if n != 1}
    assert wrong == {}, "add each to its page in docs/reference, once"


def test_the_reference_has_no_name_that_is_not_public():
    known = set().union(*public().values())
    assert [name for _, name in entries() if name not in known | SETTINGS] == []


def test_the_reference_has_a_page_for_each_namespace():
    pages = {page.stem for page in REFERENCE.glob("*.md")} - {"index"}
    assert pages == {"lgjax", *NAMESPACES, *GROUPS}


def test_every_example_is_in_the_gallery_with_a_small_picture():
    sections = source_of_the_gallery().sections((ROOT / "examples" / "README.md").read_text(encoding="utf-8"))
    assert sorted(sections) == [path.stem for path in EXAMPLES]
    for stem, (title, shown, path, body) in sections.items():
        assert title.startswith(stem[:2])
        assert shown
        assert body.strip()
        assert (ROOT / "docs" / path).stat().st_size < LARGEST
    assert {path.stem for path in GALLERY.glob("*.png")} == set(sections)


def test_a_thumbnail_is_one_panel_unless_the_example_moves():
    moving = {path.stem for path in GALLERY.glob("*.gif")}
    assert {path.stem for path in THUMBNAILS.iterdir()} == {path.stem for path in EXAMPLES} - moving
    assert len(moving) > 15


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_gallery_has_the_code_of_an_example(path, tmp_path):
    module = source_of_the_gallery()
    (tmp_path / "docs").mkdir()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    made = (module.write(tmp_path / "docs") / path.name).read_text(encoding="utf-8")
    compile(made, path.name, "exec")
    last = path.read_text(encoding="utf-8").rstrip().splitlines()[-1]
    assert made.rstrip().endswith(last)
    assert made.count("sphinx_gallery_thumbnail_path") == 1
    assert f"python examples/{path.name}" in made


def test_a_moving_picture_is_the_thumbnail_of_its_example(tmp_path):
    shown = tmp_path / "docs" / "images" / "gallery"
    shown.mkdir(parents=True)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (shown / "17_cart_pole.gif").write_bytes(b"")
    folder = source_of_the_gallery().write(tmp_path / "docs")
    moving, still = ((folder / f"{stem}.py").read_text(encoding="utf-8") for stem in ("17_cart_pole", "02_heavy_top"))
    assert "# sphinx_gallery_thumbnail_path = '_examples/17_cart_pole.gif'\n" in moving
    assert [path.name for path in folder.glob("17_cart_pole.*g*")] == ["17_cart_pole.gif"]  # no PNG to be taken instead
    assert ".. image:: /images/gallery/17_cart_pole.gif\n" in moving
    assert "gif" not in still
    assert "# sphinx_gallery_thumbnail_path = 'images/thumbnails/02_heavy_top.png'\n" in still
    assert ".. image:: /images/gallery/02_heavy_top.png\n" in still
    assert {path.stem for path in GALLERY.glob("*.gif")} <= {path.stem for path in EXAMPLES}
    assert all(path.stat().st_size < MOVING for path in GALLERY.glob("*.gif"))


def test_links_to_examples_lead_to_the_gallery_on_the_site():
    linked = source_of_the_gallery().linked
    assert linked("[a](../examples/README.md)") == "[a](gallery/index.rst)"
    assert linked("[b](../../examples/02_heavy_top.py)") == "[b](../gallery/02_heavy_top.rst)"
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))
    assert "examples/" not in "".join(re.findall(r"\]\([^)]*\)", linked(pages)))
