"""Native functions give what the kernels' tests expect, for every size of a batch the same bits, on every processor."""

import os
import platform
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.execution import plain
from lgjax.execution.kernels import native
from tests.dynamics import trees
from tests.execution import random_programs
from tests.execution.test_kernel import ALGORITHMS, close
from tests.execution.test_kernel import launched as kernel_launched
from tests.execution.test_ptx import FUNCTIONS

pytestmark = pytest.mark.skipif(not native.usable(), reason="no native functions on this processor")
SIZES = (1, 2, 7, 16, 17, 33, 100)
COUNTS = (1, 3, 16, 17, 40)  # numbers of a row, on both sides of a vector


def launched(function, *args, front=False):
    """The function through its native function: arguments with a leading axis, in memory in front or behind."""
    closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in args))
    size = len(args[0])
    shapes = [jax.ShapeDtypeStruct((*x.shape, size), x.dtype) for x in closed.out_avals]
    run = native.as_native(closed.jaxpr, (True,) * len(args), size, shapes, {}, front)
    assert run is not None
    behind = lambda *args: [jnp.moveaxis(y, -1, 0) for y in run(*(jnp.moveaxis(x, 0, -1) for x in args))]
    return jax.jit(behind)(*args)


@pytest.fixture(params=["whole", "half", "least"])
def vectors(request, monkeypatch):
    """Vectors of the processor's width and of less; the least as every processor of its kind has them."""
    name, features, registers = native.machine()
    whole = native.Machine(name, features, registers)
    least = (
        native.Machine("x86-64", "", 16)
        if platform.machine() in ("x86_64", "AMD64")
        else native.Machine(name, features, 16)
    )
    chosen = {"whole": whole, "half": native.Machine(name, features, 32), "least": least}[request.param]
    native.forget()
    monkeypatch.setattr(native, "machine", lambda: chosen)
    yield
    native.forget()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_one_number(vectors, dtype):
    """All at once: right to round-off over their range, also where they switch, as on a GPU."""
    names = [name for name in FUNCTIONS if len(FUNCTIONS[name][1]) >= 100]
    some = [jnp.asarray(np.resize(FUNCTIONS[name][1], 1200), dtype) for name in names]
    found = launched(lambda *xs: [FUNCTIONS[name][0](x) for name, x in zip(names, xs, strict=True)], *some)
    for name, x, got in zip(names, some, found, strict=True):
        function, _, allowed, scale = FUNCTIONS[name]
        exact = np.asarray(jax.jit(function)(x.astype(jnp.float64)))
        unit = np.finfo(dtype).eps * (np.abs(exact) + scale)
        error = np.abs(np.asarray(got, np.float64) - exact)
        assert np.all(error <= (allowed + (dtype == "float64")) * unit + np.finfo(dtype).tiny), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_no_number_stays_none(dtype):
    x = jnp.asarray([np.nan, np.inf, -np.inf, 1.0], dtype)
    names = ("sin", "cos", "exp", "tanh", "expm1", "logistic", "sqrt", "clip", "larger")
    functions = [FUNCTIONS[name][0] for name in names]
    for got, function in zip(launched(lambda x: [f(x) for f in functions], x), functions, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(function(x)))
    found = launched(lambda x: (jnp.isfinite(x), jnp.maximum(x, 0), jnp.minimum(0, x)), x)
    for got, expected in zip(found, (jnp.isfinite(x), jnp.maximum(x, 0), jnp.minimum(0, x)), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("launch", [launched, kernel_launched])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_larger_and_the_smaller_of_two(launch, dtype):
    """No number if one is none, on either side, known or not."""
    some = np.array([np.nan, -np.inf, -1.5, 0.0, 2.0, np.inf], dtype)
    x, y = (jnp.asarray(z.ravel()) for z in np.meshgrid(some, some))
    known = [np.array(k, dtype) for k in (*some, 1.0)]

    def function(x, y):
        pairs = [(x, y), (y, x), *((x, k) for k in known), *((k, x) for k in known)]
        return [f(a, b) for f in (jnp.maximum, jnp.minimum) for a, b in pairs]

    for got, expected in zip(launch(function, x, y), function(x, y), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_every_shape_kind_and_size(vectors, dtype, front):
    """Exact numbers, so that the results are."""
    rng = np.random.default_rng(0)
    for size in SIZES:
        for count in COUNTS:
            x = rng.integers(-9, 9, (size, count)).astype(dtype)
            m = rng.integers(-9, 9, (size, 3, 3)).astype(dtype)
            k = rng.integers(-9, 9, (size, 2)).astype(np.int32)
            b = rng.integers(0, 2, (size, 5)).astype(bool)
            found = launched(
                lambda x, m, k, b: (x[::-1] + m[0, 0], m @ m, k // 3, k % 3, ~b | (x[0] > 0), jnp.where(b[0], k, -k)),
                *map(jnp.asarray, (x, m, k, b)),
                front=front,
            )
            expected = (
                x[:, ::-1] + m[:, :1, 0], m @ m, k // 3, k % 3, ~b | (x[:, :1] > 0), np.where(b[:, :1], k, -k),
            )  # fmt: skip
            for got, right in zip(found, expected, strict=True):
                assert got.dtype == right.dtype
                np.testing.assert_array_equal(got, right)


def test_integers_divide_as_in_xla():
    a = jnp.asarray([7, -7, 0, 5, -(2**31), -(2**31), 2**31 - 1], jnp.int32)
    b = jnp.asarray([2, 2, 3, 0, -1, 0, -1], jnp.int32)
    functions = (jax.lax.div, jax.lax.rem, jnp.minimum, jnp.maximum)
    found = launched(lambda a, b: [f(a, b) for f in functions], a, b)
    for got, function in zip(found, functions, strict=True):
        np.testing.assert_array_equal(got, function(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_algorithms(dtype):
    """Against the plain path, in float64."""
    model = trees.model("forest").astype("float64")
    states = trees.random_states(model, 19)
    own, *short = jax.tree.map(lambda x: jnp.asarray(x, dtype), (model, *states))
    reference = plain()(lambda m, q, v, vdot, tau, w: lgjax.forward_dynamics(m, q, v, tau, w))
    expected = jax.vmap(reference, (None, *[0] * len(states)))(model, *states)
    got = jax.jit(jax.vmap(ALGORITHMS["forward"], (None, *[0] * len(states))))(own, *short)
    close(got, expected, 4e3 * np.finfo(dtype).eps)


def test_every_size_of_a_batch_has_the_same_bits():
    """Also where a batch is shared out among threads, and for one system alone."""
    model = lgjax.models.quadruped().astype("float32")
    q, v, _, tau, _ = jax.tree.map(lambda x: x.astype("float32"), trees.random_states(model, 3000))
    forward = jax.jit(jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0)))
    whole = forward(model, q, v, tau)
    for start, stop in ((0, 1), (5, 22), (2983, 3000), (100, 1200)):
        part = jax.tree.map(lambda x, a=start, b=stop: x[a:b], (q, v, tau))
        np.testing.assert_array_equal(forward(model, *part), whole[start:stop])
    alone = jax.jit(lgjax.forward_dynamics)(model, *jax.tree.map(lambda x: x[7], (q, v, tau)))
    np.testing.assert_array_equal(alone, whole[7])


def test_a_loop_that_writes_over_its_state(vectors, monkeypatch):
    """A whole step in place, with a rest that fills no vector, against XLA's own kernels."""
    model = trees.model("shoulder")
    q, v, _, tau, _ = trees.random_states(model, 21)

    def run(model, q, v, tau):
        path = lgjax.rollout(model, q, v, lambda t, q, v: tau, 1e-3, 7, save_every=None)
        return path.q, path.v

    run = jax.vmap(run, (None, 0, 0, 0))
    found = jax.jit(run)(*jax.tree.map(lambda x: x.astype("float32"), (model, q, v, tau)))
    monkeypatch.setattr(native, "usable", lambda: False)
    jax.clear_caches()
    close(found, jax.jit(lambda *args: run(*args))(model, q, v, tau), 1e4 * np.finfo("float32").eps)
    jax.clear_caches()


def test_where_native_functions_cannot_be_called_all_runs_without_them(monkeypatch):
    def refuse(*_):
        raise OSError("no such function")

    monkeypatch.setattr(native, "_registered", set())
    monkeypatch.setattr(native, "registered", refuse)
    native.usable.cache_clear()
    native.forget()
    jax.clear_caches()
    with pytest.warns(UserWarning, match="no native functions on this CPU.*no such function"):
        assert not native.usable()
    model, rows = lgjax.models.arm(), jnp.linspace(0, 1, 14).reshape(2, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forward = lambda v: lgjax.forward_dynamics(model, lgjax.neutral(model), v, v)
        found = jax.jit(jax.vmap(forward))(rows)
    monkeypatch.undo()
    native.usable.cache_clear()
    jax.clear_caches()
    np.testing.assert_allclose(jax.jit(jax.vmap(forward))(rows), found, rtol=1e-12)


# ---- random programs
def _agree(seed: int, length: int, dtype: str, with_ptx: bool, size: int = 37) -> None:
    rng = np.random.default_rng(seed)
    program = random_programs.Program(rng, length)
    floats = rng.integers(0, 64, (program.floats, size)).astype(dtype)
    integers = rng.integers(0, 1024, (program.integers, size)).astype(np.int32)
    expected = program(random_programs.NUMPY, list(floats.astype(np.float64)), list(integers))
    of = random_programs.of_jax(dtype)
    run = lambda f, i: program(of, list(f), list(i))
    columns = jnp.asarray(floats.T), jnp.asarray(integers.T)
    found = launched(run, *columns)
    both = [found, kernel_launched(run, *columns)] if with_ptx else [found]
    for outs in both:
        for got, right in zip(outs, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.broadcast_to(right, size), err_msg=f"seed {seed}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_programs(vectors, dtype):
    for seed in range(8):
        _agree(seed, 60, dtype, with_ptx=seed < 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_programs_far_beyond_the_registers(dtype):
    _agree(1000, 1500, dtype, with_ptx=False)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("part", range(10))
def test_many_random_programs(vectors, dtype, part):
    """With the environment variable LGJAX_PROGRAMS so many in each of the 60 parts."""
    for seed in range(int(os.environ.get("LGJAX_PROGRAMS", "10"))):
        _agree(10_000 + 1000 * part + seed, 20 + 7 * (seed % 20), dtype, with_ptx=seed % 3 == 0)
