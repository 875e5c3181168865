"""Programs that XLA for CPUs compiles as one function: the same numbers, also where they cannot be one."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.execution import call
from lgjax.execution.call import batch_behind, one_kernel
from lgjax.execution.one_function import in_one_function

PLACES = {"each once": (2, 0, 1), "twice": (1, 1, 3), "none": (), "all": (3, 2, 1, 0)}


def loops(x):
    return jax.lax.fori_loop(0, 5, lambda n, y: jnp.where(y > 1, 0.9 * jnp.sin(y), y * y + 0.1 * n), x)


def programs():
    """Functions of a vector of four numbers."""
    return {
        "loop": loops,
        "branch": lambda x: jax.lax.cond(x[0] > 0, jnp.cos, lambda y: y + 1, x),
        "sum": lambda x: jnp.sum(x) * jnp.ones(4, x.dtype),
        "rows": lambda x: x[np.array([3, 1, 1, 0])] + jnp.concatenate([x[2:], x[:2]]),
        "sorted": jnp.sort,
        "solved": lambda x: jnp.linalg.solve(jnp.diag(2 + x**2), x),
        "scattered": lambda x: x.at[jnp.argmax(x)].add(x[0]),
    }


def functions(text: str) -> int:
    """How many calls of the program are compiled as one function each, without those within and XLA's own."""
    blocks = [b for b in re.findall(r"^(?:ENTRY )?%?[\w.-]+ \(.*?^\}", text, re.M | re.S) if b.startswith("ENTRY")]
    return len(calls(blocks[0]))


def calls(text: str) -> list[str]:
    """All calls that are one function each: native ones, and XLA's, which marks its loops so, but not `inlineable`."""
    marks = " call(", 'inlineable="false"', 'xla_cpu_small_call="true"'
    own = " custom-call(", 'custom_call_target="lgjax_'
    return [line for line in text.splitlines() if any(all(mark in line for mark in x) for x in (marks, own))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", programs())
def test_one_function_has_the_numbers_of_its_operations(name, dtype):
    f, x = programs()[name], jnp.array([0.5, -0.25, 0.75, 1.5], dtype)
    unread, empty = jnp.ones(3, dtype), jnp.zeros((0, 2), dtype)
    whole = jax.jit(lambda x, unread, empty: in_one_function(lambda x, u, e: [f(x), e])(x, unread, empty))
    y, nothing = whole(x, unread, empty)
    np.testing.assert_allclose(y, f(x), rtol=4 * jnp.finfo(dtype).eps)
    assert nothing.shape == (0, 2)
    assert y.dtype == dtype
    fits = name in ("loop", "branch", "rows")
    assert functions(whole.lower(x, unread, empty).compile().as_text()) == fits


@pytest.mark.parametrize("batch", [None, 1, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_rows_added_at_known_places_are_gathered(places, dtype, batch):
    index = np.array(places, np.int32)
    rows, x = np.arange(6 * len(places)).reshape(-1, 2, 3), np.arange(24).reshape(4, 2, 3)
    add = batch_behind(lambda x, rows: x.at[index].add(rows))
    scale = 1 if batch is None else np.arange(1, 1 + batch).reshape(-1, 1, 1, 1)
    x, rows = jnp.asarray(scale * x, dtype), jnp.asarray(scale * rows, dtype)
    program = jax.jit(add if batch is None else jax.vmap(add))
    expected = np.array(x)
    for one, more in [(expected, rows)] if batch is None else zip(expected, rows):
        np.add.at(one, index, more)
    np.testing.assert_array_equal(program(x, rows), expected)
    assert "scatter" not in program.lower(x, rows).as_text()


def test_dynamics_and_steps_are_one_function():
    model = lgjax.models.arm()
    q, v = lgjax.neutral(model), jnp.ones(model.nv)
    square = lambda f: lambda *args: jnp.sum(f(*args) ** 2)
    dynamics = lambda q, v, tau: lgjax.forward_dynamics(model, q, v, tau)
    cases = {"value": dynamics, "batch": jax.vmap(dynamics)}
    for name, f in cases.items():
        args = (q, v, v) if name == "value" else jax.tree.map(lambda x: jnp.stack([x] * 3), (q, v, v))
        assert functions(jax.jit(f).lower(*args).compile().as_text()) == 1, name
    slope = jax.jit(jax.grad(square(dynamics), 1)).lower(q, v, v).compile().as_text()
    assert functions(slope) > 1


@pytest.mark.parametrize(("n", "batch", "expected"), [(4, None, 1), (4, 9, 1), (5000, None, 0)])
def test_a_step_is_one_function_where_it_is_small(n, batch, expected):
    f = one_kernel(scanned)
    f = f if batch is None else jax.vmap(f)
    x = jnp.linspace(-1.0, 1.0, n * (batch or 1)).reshape((batch or 1), n)[slice(None) if batch else 0]
    compiled = jax.jit(f).lower(x).compile()
    assert functions(compiled.as_text()) == expected
    np.testing.assert_allclose(compiled(x), scanned(x), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("adaptive", [False, True], ids=["fixed", "adaptive"])
def test_steps_of_integrators_are_one_function(adaptive):
    """Also those of the pendulum, whose field is a recursion."""
    s = lgjax.systems.spherical_pendulum(2, chart="cayley")
    method = lgjax.MuntheKaas(lgjax.DORMAND_PRINCE54, scan_stages=True)
    problem = s.space, s.field, s.y0, 0.0, 0.5
    fixed = lambda: lgjax.integrate(*problem, 50, method, None)
    run = (lambda: lgjax.integrate_adaptive(*problem, method, 1e-8, 1e-8, 100)) if adaptive else fixed
    text = jax.jit(run).lower().compile().as_text()
    assert calls(text)


@pytest.mark.parametrize("transform", [jax.jacfwd, jax.jacrev, jax.hessian], ids=lambda t: t.__name__)
def test_derivatives_of_a_kernel_are_those_of_its_operations(transform):
    x = jnp.array([0.5, -0.25, 0.75, 1.5])
    found = jax.jit(transform(one_kernel(scanned)))(x)
    np.testing.assert_allclose(found, transform(scanned)(x), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_kernel_its_gradient_and_that_of_its_gradient_are_one_function_each(dtype):
    """Additions at known places, reductions and products of matrices are written out, the latter within loops too."""

    def turn(y):
        a = jnp.stack([y, jnp.cos(y)])
        return y / (1.0 + jnp.sum(y * y) + jnp.max(a) - jnp.min(a @ a.T))

    place = np.array([2, 0, 2])
    f = lambda x: jnp.sum(jax.lax.fori_loop(0, 3, lambda _, y: turn(y), x.at[place].add(0.1 * x[place])) ** 2)
    kernel, x = one_kernel(f), jnp.array([0.5, -0.25, 0.75, 1.5], dtype)
    slope = jax.grad(lambda x: jnp.sum(jax.grad(kernel)(x) ** 2))
    for program, expected, count in (
        (kernel, f, 1),
        (jax.value_and_grad(kernel), jax.value_and_grad(f), 2),
        (slope, jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2)), 4),
    ):
        compiled = jax.jit(program).lower(x).compile()
        assert functions(compiled.as_text()) <= count
        assert " while(" not in compiled.as_text().split("ENTRY")[1]
        for ours, theirs in zip(jax.tree.leaves(compiled(x)), jax.tree.leaves(expected(x)), strict=True):
            assert ours.dtype == dtype
            np.testing.assert_allclose(ours, theirs, rtol=500 * jnp.finfo(dtype).eps)


def test_reductions_and_products_of_nothing_and_of_much():
    """What is least of nothing has no number, only the one that it starts from."""
    x = jnp.arange(1.0, 4.0)
    f = lambda x: (
        jnp.sum(x[:0]),
        jnp.max(x[:0], initial=-2.0),
        jnp.min(x[:0], initial=jnp.inf),
        x[:0] @ x[:0],
        x + 1.0,
    )
    for ours, theirs in zip(jax.jit(one_kernel(f))(x), f(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for n, library in ((3, False), (80, True)):
        a = jax.random.normal(jax.random.key(0), (n, n))
        product = jax.jit(batch_behind(lambda a: a @ a)).lower(a)
        assert ("dot_general" in product.as_text()) is library
        np.testing.assert_allclose(product.compile()(a), np.asarray(a) @ a, rtol=1e-12, atol=1e-13)


def scanned(x):
    return jax.lax.scan(lambda y, n: (jnp.sin(y) + 0.1 * n * y * y, None), x, jnp.arange(3.0))[0]


@pytest.mark.parametrize("batch", [None, 2, 300])
def test_constants_as_arguments(batch):
    """All arguments known to the compiler, or some."""
    model = lgjax.models.arm()
    q, v = lgjax.neutral(model), jnp.ones(model.nv)
    whole = lambda x: jax.tree.map(lambda y: y if batch is None else jnp.broadcast_to(y, (batch, *y.shape)), x)
    f = lambda q, v, tau: lgjax.forward_dynamics(model, q, v, tau)
    f = f if batch is None else jax.vmap(f)
    args = whole((q, v, 2 * v))
    expected = jax.jit(f)(*args)
    np.testing.assert_allclose(jax.jit(lambda: f(*args))(), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda v: f(args[0], v, args[2]))(args[1]), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda v: f(args[0], 0 * v + args[1], 2 * v))(args[1]), expected, rtol=1e-12)


def test_a_parameter_that_is_found_to_be_constant_does_not_end_the_process(monkeypatch):
    """As of a large batch, which is not one function otherwise."""
    whole = lambda *args, **given: in_one_function(partial(call._run_parts, **given))(*args)
    monkeypatch.setattr(call, "_run_together", whole)
    x, y = jax.random.normal(jax.random.key(256), (2, 256, 2, 3))
    plain = lambda x, y: jnp.sin(x) * 2.0 + jnp.where(y > 0, x * y, -x)

    def found(f):
        total = lambda s: jnp.sum(jnp.sin(jax.vmap(f, (None, 0))(s, y)))
        return jax.vmap(f)(x, y), jax.grad(total)(x[0])

    for ours, expected in zip(jax.jit(lambda: found(batch_behind(plain)))(), found(plain)):
        np.testing.assert_allclose(ours, expected, rtol=1e-13, atol=1e-13)


def test_a_root_within_a_call_has_its_value_and_derivatives():
    # JAX 0.12 has operations that it lowers to others first; a root is one.
    def root(a):
        newton = lambda f, x: jax.lax.fori_loop(0, 8, lambda _, x: x - f(x) / (2 * x), x)
        return jax.lax.custom_root(lambda x: x * x - a, jnp.ones_like(a), newton, lambda g, y: y / g(jnp.ones_like(y)))

    call, a = one_kernel(lambda a: jnp.sin(root(a))), jnp.asarray([0.5, 2.0])
    np.testing.assert_allclose(jax.vmap(jax.jit(call))(a), np.sin(np.sqrt(a)), rtol=1e-14)
    slope = np.cos(np.sqrt(a)) / (2 * np.sqrt(a))
    np.testing.assert_allclose(jax.vmap(jax.grad(call))(a), slope, rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(jax.jacfwd(call))(a), slope, rtol=1e-14)


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
def test_a_loop_in_a_branch_within_a_loop_has_derivatives(derivative):
    # With checkpoints, JAX wraps the part of such a loop that needs no tangents in a call.
    sines = lambda x: jax.lax.scan(lambda y, _: (jnp.sin(y), None), x, length=3)[0]
    turn = lambda x, _: (jax.lax.cond(x > 0.5, sines, lambda y: y + 0.2, x), None)
    function = lambda x: jax.lax.scan(jax.checkpoint(turn), x, length=4)[0]
    for x in (0.3, 0.7, 1.2):
        expected = derivative(function)(x)
        np.testing.assert_allclose(jax.jit(derivative(one_kernel(function)))(x), expected, rtol=1e-14)
