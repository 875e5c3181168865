"""JAX beyond its documented interface is used in one file, and what is hoped for of XLA is checked in its programs."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from lgjax import configuration, forward_dynamics, models
from lgjax.execution._jax import is_inside_jit, is_traced, runs_at_once
from lgjax.execution.kernels import native
from lgjax.execution.scalars.graph import as_layer

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
        elif isinstance(node, ast.keyword) and node.arg == "inlineable":
            yield node.value.lineno, "inlineable"
        for name in names:
            primitive = name.startswith(("lax.", "jax.lax.")) and name.endswith("_p")
            if primitive or name.startswith(INNER) or "xla_metadata" in name:
                yield getattr(node, "lineno", 0), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_file_uses_the_inner_parts_of_jax(path):
    found = list(inner_uses(path))
    assert not found, f"{path}: {found}"


def test_the_search_finds_what_it_looks_for():
    assert {"jax._src.core.trace_state_clean", "inlineable", "manager", "update(weak_type=)"} <= {
        name for _, name in inner_uses(HOME)
    }


def compiled(function, *args) -> str:
    return jax.jit(function).lower(*args).compile().as_text()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="layers are calls on CPUs alone")
def test_xla_keeps_layers_apart(monkeypatch):
    """One call in the compiled program for each layer in the program given to XLA; two calls are not fused into one.

    A jitted function within a layer, such as `jnp.where`, is no layer.
    """
    for layer in (lambda x: [jnp.sin(x) * 2.0], lambda x: [jnp.where(x > 0, x, jnp.sin(x))]):
        twice = as_layer(layer)
        assert compiled(lambda x, twice=twice: twice(*twice(x)), jnp.ones(8)).count(" call(") == 2

    monkeypatch.setattr(native, "usable", lambda: False)
    model = models.chain(3)
    states = jnp.zeros((16, model.nv))
    q = jax.vmap(lambda x: configuration(model, joints=x))(states)
    run = jax.vmap(lambda q, v, tau: forward_dynamics(model, q, v, tau))
    lowered = jax.jit(run).lower(q, states, states)
    given = lowered.as_text().count("call @lgjax_apart")
    assert given > 5
    assert lowered.compile().as_text().count("to_apply=%lgjax_apart") == given


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
