"""Sums whose terms may be added in any order: the same numbers, in as few operations as there can be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.execution.kernels.ptx import kernel
from lgjax.execution.scalars.program import program_of
from tests.execution.test_kernel import close, launched

X = np.random.default_rng(0).normal(size=(40, 12))
SUMS = {
    "a product first": (lambda x: x[0] * x[1] + x[2] * x[3] + x[4], 2),
    "a product last": (lambda x: x[4] + (x[0] * x[1] + x[2] * x[3]), 2),
    "products alone": (lambda x: (x[0] * x[1] + x[2] * x[3]) + (x[4] * x[5] + x[6] * x[7]), 4),
    "subtracted products": (lambda x: x[4] - (x[0] * x[1] - x[2] * x[3]), 2),
    "nothing but subtracted": (lambda x: -(x[0] * x[1]) - x[2] * x[3] - x[4], 3),
    "a number times a value": (lambda x: 2 * x[0] + x[1] - 0.5 * x[2], 2),
    "a number added": (lambda x: x[0] * x[1] + 1.0 + x[2], 3),
    "values": (lambda x: x[0] - x[1] - (x[2] - x[3]), 3),
    "a product that is used again": (lambda x: (x[0] * x[1] + x[2], x[0] * x[1]), 2),
    "a sum that is used again": (lambda x: (x[0] * x[1] + x[2]) * (x[0] * x[1] + x[2]) + x[3], 2),
    "a sum of sums": (lambda x: (x[0] * x[1] + x[2] * x[3]) * x[4] + (x[5] - x[6] * x[7]), 4),
    "the same twice": (lambda x: x[0] * x[1] + x[0] * x[1] + x[2], 3),
    "a value and its opposite": (lambda x: x[0] * x[1] - x[2] + x[3] * x[4] + x[2], 3),
}
ARITHMETIC = ("fma", "add", "sub", "mul")


@pytest.mark.parametrize("name", SUMS)
def test_sums_take_few_operations(name):
    """A product and its addition are one; signs are not counted, they cost nothing."""
    function, fewest = SUMS[name]
    for dtype in (np.float32, np.float64):
        x = X.astype(dtype)
        close(launched(function, x), jax.vmap(function)(x), 4 * np.finfo(dtype).eps)
    program = program_of(function, x[0])
    lines = [line.split()[0] for line in kernel(program, [True], 40).text.splitlines() if line.startswith("  ")]
    assert sum(x.split(".")[0] in ARITHMETIC and x.endswith("f64") for x in lines) == fewest


def expression(seed):
    """A random function: sums and products of what came before, of which a few are results."""

    def function(x):
        draw = np.random.default_rng(seed)
        found = list(x)
        for _ in range(80):
            a, b, c = (found[k] for k in draw.integers(max(0, len(found) - 25), len(found), 3))
            kind = draw.integers(5)
            found.append(
                (a * b + c, a - b * c, a + b - c, jnp.sin(a) * b, 0.5 * a - b)[kind] / (1 + 0.1 * jnp.abs(a * b))
                if kind == 3
                else (a * b + c, a - b * c, a + b - c, a, 0.5 * a - b)[kind]
            )
            found[-1] = found[-1] * draw.choice([0.3, 1.0])
        return jnp.stack(found[-5:])

    return function


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions(seed):
    function = expression(seed)
    close(launched(function, X), jax.vmap(function)(X), 1e-12)


def test_integers():
    """They have no multiply-add of their own in common with floating numbers, but the same rules."""
    n = np.random.default_rng(0).integers(-100, 100, (40, 6)).astype(np.int32)
    function = lambda n: (n[0] * n[1] - n[2] * n[3] + n[4], -n[0] * n[1] - n[5])
    jax.tree.map(np.testing.assert_array_equal, launched(function, n), jax.vmap(function)(n))


def two_sum(x):
    """The sum of two numbers and what its rounding left out, due to Knuth."""
    s = x[0] + x[1]
    b = s - x[0]
    return s, (x[0] - (s - b)) + (x[1] - b)


def compensated(x):
    """A long sum of small numbers, due to Kahan."""

    def turn(_, state):
        total, left = state
        y = x[1] - left
        t = total + y
        return t, (t - total) - y

    return jax.lax.fori_loop(0, 1000, turn, (x[0], jnp.zeros_like(x[0])))[0]


@pytest.mark.parametrize("function", [two_sum, compensated, lambda x: x[0] + (x[1] + (x[0] - x[1]))])
def test_sums_of_values_are_added_as_they_are_written(function):
    """Of those whose round-off is what they are for, nothing is lost."""
    x = np.array([[1e8, 1.2345678], [1e6, 0.01], [1e7, 3.0]], np.float32)
    values = lambda x: function(jnp.abs(x))  # no products of its own, so that all terms are values
    jax.tree.map(np.testing.assert_array_equal, launched(values, x), jax.vmap(values)(x))


def test_a_difference_beside_a_product_is_taken_first():
    """1e8 + 8 - 1e8 is exact, but not once 1.5 is added to the first."""
    x = np.array([[1.5, 1.0, 1e8 + 8, 1e8]], np.float32)
    assert launched(lambda x: x[0] * x[1] + (x[2] - x[3]), x)[0] == 9.5


def test_what_has_no_numbers_has_a_kernel():
    program = program_of(lambda x: 2 * x, np.zeros((0,)))
    assert ".entry" in kernel(program, [True], 40).text
