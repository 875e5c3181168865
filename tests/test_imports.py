"""The rooms import downwards only; importing the library configures nothing and needs no extra."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lgjax

ROOT = Path(__file__).resolve().parents[1] / "lgjax"
# Each room and the rooms that it may import; itself always.
ROOMS = {
    "execution": set(),
    "numerics": {"execution"},
    "saving": {"numerics", "execution"},
    "groups": {"numerics"},
    "integrators": {"numerics", "groups", "saving", "execution"},
    "shapes": {"numerics", "groups", "execution"},
    "multibody": {"numerics", "groups", "shapes", "execution"},
}
ROOMS["dynamics"] = {*ROOMS["multibody"], "multibody", "execution", "integrators"}
ROOMS["maximal"] = {"numerics", "groups", "execution", "saving", "integrators"}
ROOMS["collisions"] = {*ROOMS["dynamics"], "saving", "dynamics"}
ROOMS["contact"] = {*ROOMS["dynamics"], "dynamics"}
ROOMS["forces"] = {"contact", "dynamics"}
ROOMS["robots"] = {*ROOMS["contact"], "contact", "forces"}
ROOMS["simulate"] = {*ROOMS["collisions"], "collisions", "maximal", "contact", "forces", "robots"}
ROOMS["adapters"] = {*ROOMS["simulate"], "simulate"}
ROOMS["systems"] = set(ROOMS["simulate"])
ROOMS["plot"] = {*ROOMS["systems"], "simulate", "systems"}
ROOMS["view"] = {*ROOMS["plot"], "plot", "adapters"}
ROOMS["cli"] = {*ROOMS["plot"], "plot", "view", ""}
# What every room may import besides the standard library, and what one room alone may.
OUTSIDE = {"jax", "numpy"}
ALSO = {"simulate": {"optax"}}
# Optional packages, imported where they are used and nowhere else.
EXTRAS = {
    "saving": {"tqdm"},
    "execution": {"llvmlite"},  # not optional, but slow to import, and of no use on a GPU
    "simulate": {"tqdm", "optimistix"},
    "plot": {"matplotlib"},
    "shapes": {"scipy"},
    "adapters": {"gymnasium"},
    "view": {"viser", "matplotlib", "PIL"},
    "cli": {"pinocchio", "mujoco"},
}
FILES = sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    """The room of a file of the library; the package's own __init__ is ''."""
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    doors = dict.fromkeys((*lgjax._ELSEWHERE, "__init__", "surface", "moved"), "")
    return (doors | {"__main__": "cli"}).get(name, name)


def imports(path: Path):
    """(module, line, inside a function) of every import in a file; `from lgjax import x` counts as lgjax.x."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, node in inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            names = [f"lgjax.{a.name}" for a in node.names] if node.module == "lgjax" else [node.module]
            for name in names:
                yield name, node.lineno, node in inside


def test_every_room_is_known():
    assert {room(path) for path in FILES} <= {*ROOMS, ""}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down_the_page(path):
    here = room(path)
    for module, line, in_function in imports(path):
        top, *rest = module.split(".")
        where = f"{path.relative_to(ROOT)}:{line}"
        if top == "lgjax":
            # cli reads the version and the public loaders from the package itself.
            there = rest[0] if rest else ""
            assert here in ("", there) or there in ROOMS[here], f"{where}: {here} imports {module}"
        elif top not in sys.stdlib_module_names and top != "__future__":
            allowed = OUTSIDE | ALSO.get(here, set()) | (EXTRAS.get(here, set()) if in_function else set())
            assert top in allowed, f"{where}: {here} imports {module}" + " at the top" * (not in_function)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path.name}: {node.name} is longer than 60 lines"


def test_tests_of_drivers_lie_in_folders_like_those_of_the_library():
    folders = lambda root: {path.name for path in (root / "simulate").iterdir() if any(path.glob("*.py"))}
    assert folders(ROOT.parent / "tests") == folders(ROOT)


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT.parent
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_changes_no_jax_flag_and_starts_no_device():
    run(
        "import jax\n"
        "before = dict(jax.config.values)\n"
        "import lgjax, lgjax.cli\n"
        "assert dict(jax.config.values) == before\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends, 'importing started a device'\n"
    )


def test_the_core_needs_no_extra():
    """Without the extras the library imports and works, and what needs one says which in one line."""
    out = run(
        "import sys\n"
        "for name in ('yourdfpy', 'lxml', 'mujoco', 'matplotlib', 'tqdm', 'scipy', 'pinocchio', 'viser', 'trimesh',\n"
        "             'optimistix', 'diffrax', 'openscvx', 'gymnasium'):\n"
        "    sys.modules[name] = None\n"
        "import lgjax, lgjax.cli, lgjax.plot, numpy as np\n"
        "assert lgjax.models.quadruped().nv == 18\n"
        "from lgjax.saving.progress import progress_bar\n"
        "with progress_bar(None, 5, 1.0) as bar:\n"
        "    bar.update(5)\n"
        "text = '<robot/>'\n"
        "for ask in (lambda: lgjax.load_urdf(text), lambda: lgjax.load_mjcf(text), lambda: lgjax.plot.figure(1, 1),\n"
        "            lambda: lgjax.view.picture(lgjax.models.chain(1), None, 'a.png'),\n"
        "            lambda: lgjax.view.show(lgjax.models.chain(1)), lambda: progress_bar(True, 5, 1.0),\n"
        "            lambda: lgjax.identification.identify(lgjax.models.chain(1), (), None),\n"
        "            lambda: lgjax.adapters.Space((1,), np.zeros(1), np.ones(1)).gymnasium()):\n"
        "    try:\n"
        "        ask()\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    assert out.splitlines() == [
        "load_urdf needs the package lxml: pip install 'lgjax[urdf]'",
        "load_mjcf needs the package mujoco: pip install 'lgjax[mjcf]'",
        "figures need the package matplotlib: pip install 'lgjax[plot]'",
        "figures need the package matplotlib: pip install 'lgjax[plot]'",
        "the viewer needs the package viser: pip install 'lgjax[view]'",
        "a progress bar needs tqdm: pip install 'lgjax[progress]'",
        "identify needs the package optimistix: pip install 'lgjax[identify]'",
        "spaces and vectors need the package gymnasium: pip install 'lgjax[gymnasium]'",
    ]


def test_folders_are_small():
    for folder in {path.parent for path in FILES}:
        files = [path for path in FILES if path.parent == folder and path.name != "__init__.py"]
        assert len(files) <= 20, f"{folder.relative_to(ROOT)} holds {len(files)} files"
