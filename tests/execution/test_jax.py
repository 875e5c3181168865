"""JAX beyond its documented interface is used in one file."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from lgjax.execution._jax import is_inside_jit, is_traced, runs_at_once

ROOT = Path(__file__).resolve().parents[2] / "lgjax"
HOME = ROOT / "execution" / "_jax.py"
INNER = ("jax._src", "jax.core", "jax.extend", "jax.interpreters", "jaxlib")
ATTRIBUTES = {"def_impl", "def_abstract_eval", "module_context", "axis_context", "to_tangent_aval", "manager"}
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != HOME]


def inner_uses(path: Path):
    """(line, what) of each import of JAX's inner modules in a file and of each attribute that is not documented."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
            if node.attr in ATTRIBUTES:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call):
            weak = any(keyword.arg == "weak_type" for keyword in node.keywords)
            if weak and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
                yield node.lineno, "update(weak_type=)"
        for name in names:
            primitive = name.startswith(("lax.", "jax.lax.")) and name.endswith("_p")
            if primitive or name.startswith(INNER):
                yield getattr(node, "lineno", 0), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_file_uses_the_inner_parts_of_jax(path):
    found = list(inner_uses(path))
    assert not found, f"{path}: {found}"


def test_the_search_finds_what_it_looks_for():
    assert {"jax._src.core.trace_state_clean", "module_context", "update(weak_type=)"} <= {
        name for _, name in inner_uses(HOME)
    }


def test_the_tracer_tests():
    seen = []
    note = lambda x: seen.append((is_traced(x), runs_at_once(), is_inside_jit())) or x
    note(jnp.ones(2))
    jax.jit(lambda: note(1.0))()
    jax.vmap(note)(jnp.ones(2))
    with jax.ensure_compile_time_eval():
        note(jnp.ones(2))
    jax.jit(jax.vmap(note))(jnp.ones(2))
    jax.grad(jax.jit(lambda x: note(x)))(1.0)
    outside, inside = (False, True, False), (True, False, True)
    assert seen == [outside, (False, False, True), (True, False, False), outside, inside, inside]
