"""Scripts and slow tests name no part of the library that has gone: most of them run too rarely to say so."""

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def modules_of_the_library(tree: ast.AST):
    """(name in the file, module) of each module of the library that a file imports; every imported name exists."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lgjax":
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                if isinstance(value := getattr(module, alias.name), ModuleType):
                    yield alias.asname or alias.name, value
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "lgjax":
                    module = importlib.import_module(alias.name)
                    yield (alias.asname, module) if alias.asname else ("lgjax", importlib.import_module("lgjax"))


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "examples", "soak"])
def test_what_is_named_exists(folder):
    missing = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = dict(modules_of_the_library(tree))
        missing += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {modules[node.value.id].__name__} has no {node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
            and not hasattr(modules[node.value.id], node.attr)
            and node.attr != "nonsense"  # tests/test_surface.py wants the error
        ]
    assert not missing, "\n".join(missing)
