"""Roots within scans have the second derivatives of implicit functions, in every mode, also without an iteration.

Against closed forms, and against differences of first derivatives.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax.collisions.variational import solve_rotation
from lgjax.dynamics.loops.cut_joint import cut_joint
from lgjax.groups import se3
from lgjax.multibody.joints import UNIVERSAL
from lgjax.numerics.fixed_point import fixed_point
from lgjax.numerics.implicit import implicit

MODES = [(outer, inner) for outer in (jax.jacfwd, jax.jacrev) for inner in (jax.jacfwd, jax.jacrev)]
INERTIA = jnp.asarray(np.diag([0.1, 0.2, 0.25]))


def cubes(x, y):
    """Cube roots of numbers that a traced index picks, found without an iteration."""
    a = jnp.stack([x, -x])[jnp.asarray(y[0] < 0, jnp.int32)]
    find = lambda _: (jnp.cbrt(a), ())
    return implicit(lambda z: z**3 - a, find, y)[0]


def contracted(x, y):
    """From the fixed point itself: the iteration ends at once."""
    b = jnp.sin(x + y)
    return fixed_point(lambda z: 0.5 * z + b, 2 * b, jnp.full(3, 1e-15), 50)


def turned(x, y):
    return solve_rotation(INERTIA, 0.02 * (x + y), "cayley")[0]


def cut(x, y):
    pose = se3.exp(0.3 * jnp.concatenate([x, y]))
    return jnp.pad(cut_joint(UNIVERSAL)(pose, jnp.zeros(2)), (0, 3))[:3] + 0.1 * y


FUNCTIONS = {"cube roots": cubes, "fixed points": contracted, "rotations": turned, "cut joints": cut}


@pytest.mark.parametrize("name", [*[*FUNCTIONS][:3], pytest.param("cut joints", marks=pytest.mark.slow)])
def test_second_derivatives_in_a_scan_are_those_of_the_implicit_function(name):
    direction = jnp.asarray([0.7, -0.8, 1.1])

    def twice(along):
        step = lambda y, _: (FUNCTIONS[name](0.9 + along * direction, y), None)
        return jnp.sum(jnp.sin(jax.lax.scan(step, 0.5 * jnp.ones(3), length=2)[0]))

    h, slope = 1e-5, jit(jax.grad(twice))
    expected = (slope(h) - slope(-h)) / (2 * h)
    for outer, inner in MODES:
        np.testing.assert_allclose(jit(outer(inner(twice)))(0.0), expected, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(jit(inner(twice))(0.0), slope(0.0), rtol=1e-12)


@pytest.mark.parametrize("inside", [False, True], ids=["arguments", "closed over"])
def test_what_a_program_knows_and_what_it_is_given_have_the_same_derivatives(inside):
    """A rule that JAX keeps for later may not hold on to what was traced before."""
    a = jnp.asarray([2.0, 3.0])
    root = lambda a: implicit(lambda z: z**3 - a * jnp.ones(2), lambda z: (jnp.cbrt(a), jnp.arange(2)), jnp.ones(2))
    total = lambda a: jnp.sum(jax.lax.map(lambda i: jnp.sum(root(a)[0]) * i, jnp.arange(2.0)))
    found = jit(lambda: jax.grad(total)(a))() if inside else jit(jax.grad(total))(a)
    np.testing.assert_allclose(found, a ** (-2 / 3) / 3, rtol=1e-12)


def test_derivatives_of_any_order_outside_of_scans():
    root = lambda a: jnp.sum(implicit(lambda z: z**3 - a, lambda z: (jnp.cbrt(a * jnp.ones(1)), ()), jnp.ones(1))[0])
    value, power = 1.0, 1 / 3
    for order in range(5):
        np.testing.assert_allclose(jit(root)(3.0), value * 3**power, rtol=1e-14)
        root = (jax.grad, jax.jacfwd)[order % 2](root)
        value, power = value * power, power - 1
