"""Logarithms, powers and inverse functions in kernels, against NumPy in more digits: over all magnitudes, and specials.

Errors are in units of round-off, relative to the value, or to the least normal number where that is larger.
"""

from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import lgjax
from lgjax.execution.kernels import native
from tests.dynamics import trees
from tests.execution import ptx_machine
from tests.execution.test_kernel import close, launched
from tests.execution.test_native import launched as native_launched
from tests.execution.test_native import vectors  # noqa: F401

DTYPES = ("float32", "float64")
WIDER = {"float32": np.float64, "float64": np.longdouble}
MISSING = float(np.longdouble is np.double or np.finfo(np.longdouble).eps == np.finfo(np.double).eps)
COUNT = 1000
HALVES = np.array([*np.arange(-9, 10) / 2, 0.49999997, -0.49999999999999994, 2**23 - 0.5, 2**23 + 1, 2**52 + 1, 1e300])
EVEN, AWAY = lax.RoundingMethod.TO_NEAREST_EVEN, lax.RoundingMethod.AWAY_FROM_ZERO


# ---- arguments
def signed(x, rng):
    return x * rng.choice([-1.0, 1.0], x.size)


def sizes(dtype, rng):
    """Positive numbers of all magnitudes, and near 1."""
    info = np.finfo(dtype)
    wide = np.exp2(rng.uniform(info.minexp, info.maxexp - 0.01, COUNT))
    near = 1 + np.concatenate([10 ** rng.uniform(-16, 0, COUNT), -(10 ** rng.uniform(-16, -0.3, COUNT))])
    return np.concatenate([wide, near, 10 ** rng.uniform(-2, 2, COUNT)])


def numbers(dtype, rng):
    return signed(sizes(dtype, rng), rng)


def above_minus_one(dtype, rng):
    return np.concatenate([sizes(dtype, rng), up_to_one(dtype, rng)])


def above_one(dtype, rng):
    x = sizes(dtype, rng)
    return np.maximum(x, 1 / x)


def up_to_one(dtype, rng):
    """From -1 to 1, also near both and near 0."""
    edge = 1 - 10 ** rng.uniform(-16, -0.3, COUNT)
    small = np.exp2(rng.uniform(np.finfo(dtype).minexp, 0, COUNT))
    return np.concatenate([rng.uniform(-1, 1, COUNT), signed(edge, rng), signed(small, rng)])


def exponents(dtype, rng):
    """Of e, until it overflows: 2 more than that of the least number, less than twice that of the largest."""
    top = float(np.log(np.finfo(dtype).max) + np.log(2))
    return np.concatenate([rng.uniform(-top, top, COUNT), rng.uniform(-3, 3, COUNT), up_to_one(dtype, rng)])


def exponents_of_two(dtype, rng):
    info = np.finfo(dtype)
    return np.concatenate([rng.uniform(info.minexp, info.maxexp, COUNT), up_to_one(dtype, rng)])


def powers(dtype, rng):
    """Of all magnitudes, by numbers of all magnitudes."""
    x = sizes(dtype, rng)
    end = np.log(float(np.finfo(dtype).max))
    y = rng.uniform(-end, end, x.size) / np.maximum(np.abs(np.log(x.astype(dtype).astype(float))), 1e-3)
    return x, y


def points(dtype, rng):
    """Of a plane: of unlike magnitudes, and of like ones."""
    info, x, y = np.finfo(dtype), numbers(dtype, rng), numbers(dtype, rng)
    like = np.clip(np.abs(x) * 10 ** rng.uniform(-2, 2, x.size), info.tiny, info.max)
    return np.concatenate([y, signed(like, rng)]), np.concatenate([x, x])


def to_power(y):
    """x^y with a known y."""
    return lambda x: lax.pow(x, y if isinstance(y, int) else jnp.asarray(y, x.dtype))


def few(dtype, rng):
    return signed(10 ** rng.uniform(-3, 3, COUNT), rng)


def few_positive(dtype, rng):
    return np.abs(few(dtype, rng))


# name -> function, NumPy's, arguments, errors allowed with exact quotients and roots, and with those of a GPU
FUNCTIONS = {
    "log": (lax.log, np.log, sizes, 0.7, 0.8),
    "log1p": (lax.log1p, np.log1p, above_minus_one, 0.7, 2.1),
    "exp2": (lax.exp2, np.exp2, exponents_of_two, 0.8, 0.8),
    "pow": (lax.pow, np.power, powers, 0.9, 0.9),
    "pow of -7": (to_power(-7), lambda x: x ** x.dtype.type(-7), few, 0.8, 0.8),
    "pow of 2.5": (to_power(2.5), lambda x: x ** x.dtype.type(2.5), few_positive, 0.8, 0.8),
    "pow of 2": (lambda x: lax.pow(jnp.asarray(2, x.dtype), x), np.exp2, exponents_of_two, 0.8, 0.8),
    "cbrt": (lax.cbrt, np.cbrt, numbers, 0.8, 0.8),
    "sinh": (lax.sinh, np.sinh, exponents, 1.1, 1.3),
    "cosh": (lax.cosh, np.cosh, exponents, 1.0, 1.3),
    "asinh": (lax.asinh, np.arcsinh, numbers, 1.1, 2.3),
    "acosh": (lax.acosh, np.arccosh, above_one, 1.3, 2.3),
    "atanh": (lax.atanh, np.arctanh, up_to_one, 1.2, 4.2),
    "atan": (lax.atan, np.arctan, numbers, 1.4, 2.8),
    "atan2": (lax.atan2, np.arctan2, points, 1.5, 3.2),
    "asin": (lax.asin, np.arcsin, up_to_one, 1.6, 3.8),
    "acos": (lax.acos, np.arccos, up_to_one, 1.6, 4.2),
    "nearest, even": (lambda x: lax.round(x, EVEN), np.rint, lambda *_: HALVES, 0, 0),
    "nearest, away": (
        lambda x: lax.round(x, AWAY), lambda x: np.copysign(np.trunc(np.abs(x.astype(np.longdouble)) + 0.5), x),
        lambda *_: HALVES, 0, 0,
    ),
}  # fmt: skip


def case(name, dtype):
    """The function, its arguments, and its values in more digits."""
    function, exact, arguments, *_ = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        found = arguments(dtype, np.random.default_rng(0))
        given = [x.astype(dtype) for x in (found if isinstance(found, tuple) else (found,))]
        return function, given, exact(*(x.astype(WIDER[dtype]) for x in given))


def right(got, exact, dtype, units, tiny):
    """Whether numbers are right to units of round-off, or to `tiny`; infinite where the right ones overflow."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(dtype)
        size = np.maximum(np.abs(exact), np.finfo(dtype).tiny)
        error = np.abs(np.asarray(got, exact.dtype) - exact)
        units = units + MISSING * (dtype == "float64" and units > 0)
        close = error <= units * np.finfo(dtype).eps * size + tiny
        ends = np.abs(exact) > np.finfo(dtype).max * (1 - 2 * np.finfo(dtype).eps)  # may be infinite
        close |= ends & (np.abs(got) >= np.abs(nearest)) & (np.sign(got) == np.sign(nearest))
    same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
    return (close | same) & (np.isnan(nearest) | (exact != 0) | (np.signbit(got) == np.signbit(nearest)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, dtype):
    """On the machine of PTX, whose quotients and roots are exact here."""
    function, given, exact = case(name, dtype)
    got = launched(function, *map(jnp.asarray, given))
    assert right(got, exact, dtype, FUNCTIONS[name][3], 0.0).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_with_the_quotients_and_roots_of_a_gpu(name, monkeypatch):
    """In single precision these are up to two units off, roots and reciprocals one; here at random."""
    rng, exactly = np.random.default_rng(1), ptx_machine.Machine.result

    def result(self, operation, kinds, operands):
        found = exactly(self, operation, kinds, operands)
        if not {"approx", "full"} & set(kinds):
            return found
        most = 2 if operation == "div" else 1
        off = found + rng.integers(-most, most + 1, np.shape(found)) * np.spacing(np.abs(found))
        return np.where((found != 0) & np.isfinite(found), off, found).astype(np.float32)

    monkeypatch.setattr(ptx_machine.Machine, "result", result)
    function, given, exact = case(name, "float32")
    got = launched(function, *map(jnp.asarray, given))
    assert right(got, exact, "float32", FUNCTIONS[name][4], 0.0).all()


@pytest.mark.skipif(not native.usable(), reason="no native functions on this processor")
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_native_functions(vectors, dtype):  # noqa: F811
    """All at once; numbers below the least normal one may be 0."""
    cases = {name: case(name, dtype) for name in FUNCTIONS}
    size = max(len(given[0]) for _, given, _ in cases.values())
    rows = [[jnp.asarray(np.resize(x, size)) for x in given] for _, given, _ in cases.values()]
    starts = np.cumsum([0, *map(len, rows)])

    def everything(*xs):
        return [f(*xs[starts[k] : starts[k + 1]]) for k, (f, _, _) in enumerate(cases.values())]

    for name, got in zip(cases, native_launched(everything, *chain(*rows)), strict=True):
        exact = np.resize(cases[name][2], size)
        assert right(np.asarray(got), exact, dtype, FUNCTIONS[name][3], np.finfo(dtype).tiny).all(), name


# ---- special values
def specials(dtype):
    info = np.finfo(dtype)
    sizes = [0, 1, 2, 3, 0.5, 1.5, 1 / 3, 0.1, 1e9 + 1, info.tiny, info.max, info.max / 2, np.inf]
    x = np.array([*sizes, *np.negative(sizes), np.nan, 1 + info.eps, 1 - info.eps, -1 + info.eps], dtype)
    return x, np.array([info.smallest_subnormal, -7 * info.smallest_subnormal, info.tiny / 2], dtype)


def special_case(name, x, dtype):
    """One number alone, of two all pairs; the values in more digits, rounded."""
    function, exact, *_ = FUNCTIONS[name]
    given = list(map(np.ravel, np.meshgrid(x, x))) if name in ("pow", "atan2") else [x]
    with np.errstate(all="ignore"):
        return function, given, exact(*(y.astype(WIDER[dtype]) for y in given))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_those_of_numpy(name, dtype):
    """Zeros and their signs, infinities, ends of domains, and denormal numbers."""
    function, given, exact = special_case(name, np.concatenate(specials(dtype)), dtype)
    got = launched(function, *map(jnp.asarray, given))
    good = right(got, exact, dtype, FUNCTIONS[name][3], np.finfo(dtype).smallest_subnormal)
    assert good.all(), [x[~good] for x in given]


@pytest.mark.skipif(not native.usable(), reason="no native functions on this processor")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_of_native_functions(name, dtype):
    """Also there; processors may take denormal numbers for 0, and give it."""
    normal, denormal = specials(dtype)
    function, given, exact = special_case(name, normal, dtype)
    (got,) = native_launched(function, *map(jnp.asarray, given))
    good = right(np.asarray(got), exact, dtype, FUNCTIONS[name][3], np.finfo(dtype).tiny)
    assert good.all(), [x[~good] for x in given]
    function, given, exact = special_case(name, denormal, dtype)
    (got,) = native_launched(function, *map(jnp.asarray, given))
    zeros = special_case(name, np.copysign(0, denormal), dtype)[2]
    good, flushed = (right(np.asarray(got), x, dtype, FUNCTIONS[name][3], np.finfo(dtype).tiny) for x in (exact, zeros))
    assert (good | flushed).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_as_exponents(dtype):
    """Those that are not known while the program is made."""
    x, n = np.repeat(np.array([-2, -0.0, 0, 1.5, np.inf, -np.inf, -1], dtype), 6), np.resize([3, -3, 2, 0, 1, -2], 42)
    with np.errstate(divide="ignore"):
        exact = np.power(x.astype(WIDER[dtype]), n)
    given = jnp.asarray(x), jnp.asarray(n, jnp.int32)
    assert right(launched(lax.pow, *given), exact, dtype, 1, 0.0).all()
    if native.usable():
        assert right(np.asarray(native_launched(lax.pow, *given)[0]), exact, dtype, 1, 0.0).all()


@pytest.mark.skipif(not native.usable(), reason="no native functions on this processor")
def test_a_controller_with_such_functions_is_part_of_the_native_function_of_a_step(monkeypatch):
    model = trees.model("pendulum")
    q, v, *_ = trees.random_states(model, 7)

    def control(t, q, v):
        angle = jnp.arctan2(jnp.sin(v), jnp.cos(v)) + jnp.arccos(jnp.clip(v / 9, -1, 1)) - jnp.round(v)
        return -jnp.power(jnp.abs(angle) + 0.1, 1.5) * jnp.log(2 + v**2) + jnp.arcsinh(t) ** jnp.abs(v)

    def run(q, v):
        path = lgjax.rollout(model, q, v, control, 1e-3, 4, save_every=None)
        return path.q, path.v

    text = jax.jit(jax.vmap(run)).lower(q, v).compile().as_text()
    assert text.count('custom_call_target="lgjax_') == 1
    found = jax.jit(jax.vmap(run))(q, v)
    monkeypatch.setattr(native, "usable", lambda: False)
    jax.clear_caches()
    close(found, jax.jit(jax.vmap(lambda *state: run(*state)))(q, v), 1e3 * np.finfo(float).eps)
    jax.clear_caches()


@pytest.mark.parametrize("machine", [launched, native_launched], ids=["gpu", "cpu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sine_and_cosine_of_all_numbers_are_a_point_of_the_circle(dtype, machine):
    """Also where an angle has no digits left, and of no number where there is none."""
    x = jnp.asarray([*np.logspace(-30, 37, 40), *-np.logspace(5, 20, 16), 1e6, 4e6, 4.1e6, 3e15], dtype)
    sine, cosine = (np.asarray(y, float) for y in machine(lambda x: [jnp.sin(x), jnp.cos(x)], x))
    np.testing.assert_allclose(sine**2 + cosine**2, 1, atol=1e-6 if dtype == "float32" else 1e-14)
    for y in machine(lambda x: [jnp.sin(x), jnp.cos(x)], jnp.asarray([np.inf, -np.inf, np.nan], dtype)):
        assert np.all(np.isnan(y))
