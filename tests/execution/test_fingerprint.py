"""Fingerprints of jaxprs: equal where the operations are, in every process, and no others."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lgjax.execution import batched
from lgjax.execution.cache import cache_programs
from lgjax.execution.fingerprint import fingerprint
from lgjax.execution.jaxprs import traced
from lgjax.execution.kernels import native

ROOT = Path(__file__).parents[2]
x = jnp.arange(6.0).reshape(2, 3)


def of(function, *args):
    return fingerprint(traced(function, *(args or (x,)))[0])


def looped(length, reverse=False, rate=2.0):
    return lambda x: lax.scan(lambda s, _: (jnp.sin(rate * s), s), x, None, length, reverse)


OTHERS = {
    "an operation": (jnp.sin, jnp.cos),
    "a number": (lambda x: 2.0 * x, lambda x: 3.0 * x),
    "the sign of zero": (lambda x: x + 0.0, lambda x: x + -0.0),
    "numbers of an array": (lambda x: x + np.ones(3, x.dtype), lambda x: x + np.arange(3).astype(x.dtype)),
    "a large array": (lambda x: x[0, 0] * np.ones(300, x.dtype), lambda x: x[0, 0] * np.arange(300).astype(x.dtype)),
    "the order of arguments": (lambda x: x[0] - x[1], lambda x: x[1] - x[0]),
    "an axis": (lambda x: x.sum(0).sum(), lambda x: x.sum(1).sum()),
    "a shape": (lambda x: x.reshape(3, 2), lambda x: x.reshape(6)),
    "a dtype": (lambda x: x.astype("int32"), lambda x: x.astype("float32")),
    "an index": (lambda x: x[:, np.array([0, 2])], lambda x: x[:, np.array([0, 1])]),
    "which result": (lambda x: (2 * x, 3 * x)[0], lambda x: (2 * x, 3 * x)[1]),
    "turns": (looped(3), looped(4)),
    "a direction": (looped(3), looped(3, True)),
    "a number in a loop": (looped(3), looped(3, rate=3.0)),
    "a condition": (
        lambda x: lax.while_loop(lambda s: s[0, 0] < 3, lambda s: s + 1, x),
        lambda x: lax.while_loop(lambda s: s[0, 0] < 4, lambda s: s + 1, x),
    ),
    "a branch": (
        lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        lambda x: lax.cond(x[0, 0] > 0, jnp.cos, jnp.sin, x),
    ),
    "a function inside": (jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_has_another_fingerprint(name):
    one, other = OTHERS[name]
    found = of(one), of(other), of(lambda x: one(x)), of(one, x.astype("float32")), of(one, x[None].repeat(2, 0)[0])
    assert None not in found
    assert found[0] == found[2] == found[4]
    assert len(set(found)) == 3


def test_names_and_rules_for_derivatives_do_not_count():
    f = jax.custom_jvp(lambda x: x * x)
    g = jax.custom_jvp(lambda x: x * x)
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    g.defjvp(lambda primals, tangents: (g(*primals), 2 * tangents[0]))
    assert of(f) == of(g) is not None
    one, other = jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 1, donate_argnums=0)
    assert of(one) == of(other) is not None


def test_what_calls_back_has_none():
    assert of(lambda x: jax.pure_callback(np.sin, x, x)) is None


def test_no_program_of_what_is_kept_is_built_again(tmp_path, settings_of_the_cache, monkeypatch):
    """Traced again it is found in this process, and on disk when this process has forgotten it."""
    assert native.usable()
    built, real = [], native.program_of_jaxpr
    monkeypatch.setattr(native, "program_of_jaxpr", lambda jaxpr: built.append(jaxpr) or real(jaxpr))
    cache_programs(tmp_path)
    run = lambda: jax.jit(jax.vmap(batched(lambda x: jnp.sin(x) * x[::-1] + 0.123)))(x)
    first = run()
    assert len(built) == 1
    np.testing.assert_array_equal(first, run())
    native.forget()
    np.testing.assert_array_equal(first, run())
    assert len(built) == 1


PROGRAMS = """
import sys
import jax, jax.numpy as jnp, numpy as np, lgjax
from lgjax.execution.kernels import native

jax.config.update("jax_enable_x64", True)
assert native.usable()
native.written = lambda jaxpr, how, key: print(key) or "lgjax_none"

def lower(function, *args):
    jax.jit(jax.vmap(function)).lower(*jax.tree.map(lambda x: jnp.stack([x, x]), args))

robot = lgjax.models.quadruped()
q, v = lgjax.neutral(robot), jnp.zeros(robot.nv)
feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
contacts = lgjax.Contacts(robot, lgjax.shapes.Plane((0.0, 0.0, 1.0)), [*feet, "trunk"], friction=0.8)
step = lambda q, v: lgjax.contact.contact_step(robot, contacts, q, v, 0 * v, 2e-3).v
lower(lambda q, v: lgjax.forward_dynamics(robot, q, v, v), q, v)
lower(jax.grad(lambda v, q: jnp.sum(step(q, v))), v, q)
boxes = lgjax.load_mjcf('''<mujoco><worldbody><geom type="plane" size="1 1 1"/>%s</worldbody></mujoco>''' % "".join(
    f'<body name="b{k}" pos="0 0 {k}"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>' for k in range(3)
))
touching = lgjax.Contacts(boxes, pairs=[("b0", "b1"), ("b1", "b2")])
lower(lambda v: lgjax.contact.contact_step(boxes, touching, lgjax.neutral(boxes), v, 0 * v, 2e-3).v, jnp.zeros(18))
lower(lambda v: lgjax.rollout(robot, q, v, None, 1e-3, 5, save_every=None).v, v)
"""


def test_a_process_finds_what_another_one_kept():
    """Nothing that is traced depends on the order of a set of names, which differs from process to process."""
    found = []
    for seed in ("1", "2"):
        more = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        run = [sys.executable, "-c", PROGRAMS]
        done = subprocess.run(run, env=os.environ | more, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    assert len(found[0]) >= 5
    assert all(name.startswith("lgjax_") for name in found[0])
    assert found[0] == found[1]
