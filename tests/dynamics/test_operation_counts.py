"""Operations of a program, those of loops once per iteration: linear in the bodies, quadratic in the order.

[kim2012] and [ali2026] say so of their recursions; counts do not depend on a machine.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.execution.cost import kernel_cost


def count(function, n, order=None):
    """Arithmetic operations for a chain of n bodies that turn about one axis after another."""
    model = lgjax.models.chain(n)
    q, x = lgjax.neutral(model), jnp.zeros(model.nv)
    if order is None:
        return kernel_cost(lambda q, v, a: function(model, q, v, a), q, x, x)["arithmetic"]
    if function is lgjax.inverse_dynamics_time_derivatives:
        return kernel_cost(lambda q, v: function(model, q, v, order), q, jnp.zeros((order + 2, model.nv)))["arithmetic"]
    stack = jnp.zeros((order + 1, model.nv))
    return kernel_cost(lambda q, v, tau: function(model, q, v, tau), q, x, stack)["arithmetic"]


@pytest.mark.parametrize("function", [lgjax.inverse_dynamics, lgjax.forward_dynamics], ids=lambda f: f.__name__)
def test_operations_are_linear_in_the_number_of_bodies(function):
    """Each body further down costs the same; the first ones have zeros that fold away."""
    few, some, many = (count(function, n) for n in (8, 16, 32))
    assert many - some == 2 * (some - few)


TIME_DERIVATIVES = [lgjax.inverse_dynamics_time_derivatives, lgjax.forward_dynamics_time_derivatives]


@pytest.mark.parametrize("function", TIME_DERIVATIVES, ids=lambda f: f.__name__)
def test_operations_of_time_derivatives_are_linear_in_the_bodies_and_quadratic_in_the_order(function):
    """Third differences over the order vanish, but for what folds away in the first orders."""
    orders = np.array([count(function, 8, order) for order in range(2, 7)])
    assert np.all(np.diff(orders, 2) > 0)
    assert np.max(np.abs(np.diff(orders, 3))) < 0.02 * np.max(np.diff(orders, 2))
    few, some, many = (count(function, n, 2) for n in (6, 12, 24))
    assert many - some == 2 * (some - few)


def test_a_loop_is_counted_once_per_iteration():
    body = lambda i, x: x * 1.5 + 0.25
    costs = [
        kernel_cost(lambda x, n=n: jax.lax.fori_loop(0, n, body, x), jnp.ones(()))["arithmetic"] for n in (50, 100)
    ]
    assert costs[1] >= 1.9 * costs[0]
