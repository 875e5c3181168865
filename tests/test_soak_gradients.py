"""The soak test of derivatives reports wrong ones: of each order, in each mode and in each dtype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from soak.gradient_subjects import Subject
from soak.gradients import examine

DIRECTION = np.asarray([0.6, -0.8])


def subject(function, second: bool | str = True) -> Subject:
    states = np.asarray([[0.3, 1.0], [-0.7, 0.2]])
    return Subject(
        ("number",), lambda state, x: function(state + x)[None], states, ("one", "another"), DIRECTION, second
    )


def with_rule(tangent):
    """The sine of a sum of squares, with this rule: (y, dy) -> the tangent."""

    @jax.custom_jvp
    def function(y):
        return jnp.sin(jnp.sum(y**2))

    function.defjvp(lambda y, dy: (function(*y), tangent(*y, *dy)))
    return function


def right(y, dy):
    return jnp.cos(jnp.sum(y**2)) * jnp.sum(2 * y * dy)


WRONG = {
    "a wrong factor": lambda y, dy: 1.001 * right(y, dy),
    "a part without its derivative": lambda y, dy: jnp.cos(jax.lax.stop_gradient(jnp.sum(y**2))) * jnp.sum(2 * y * dy),
    "a number that is not finite": lambda y, dy: right(y, dy) * jnp.where(y[0] > 0, 1.0, jnp.inf).astype(y.dtype),
    "a second derivative that is not finite": lambda y, dy: right(y, dy) + jnp.sqrt(0 * jnp.sum(y**2)) * jnp.sum(dy),
    "wrong in float32": lambda y, dy: right(y, dy) * (1.1 if y.dtype == jnp.float32 else 1.0),
}


def test_right_derivatives_are_not_reported():
    assert not list(examine(subject(with_rule(right))))
    assert not list(examine(subject(with_rule(WRONG["a part without its derivative"]), second=False)))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_derivatives_are_reported(name):
    dtypes = {dtype for dtype, _, _ in examine(subject(with_rule(WRONG[name])))}
    assert dtypes == {"float32"} if name == "wrong in float32" else "float64" in dtypes


def test_a_mode_that_differs_is_reported():
    """A reverse rule that is not the transpose of the forward one."""

    def forward(y):
        value = jnp.sum(y**2)
        return jax.lax.custom_linear_solve(lambda x: 2 * x, value, lambda _, b: b / 2, lambda _, b: b / 2.02)

    said = [said for _, _, said in examine(subject(forward, second=False))]
    assert any(s.startswith("forward") for s in said)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_functions_in_reverse_mode_alone_are_held_against_differences(factor):
    """They have no forward mode: asking for it would raise an error."""

    @jax.custom_vjp
    def function(y):
        return jnp.sin(jnp.sum(y**2))

    function.defvjp(lambda y: (function(y), y), lambda y, ct: (factor * ct * jnp.cos(jnp.sum(y**2)) * 2 * y,))
    said = [said for _, _, said in examine(subject(function, "reverse alone"))]
    assert [s.split(":")[0] for s in said] == ["reverse against differences"] * (2 if factor > 1 else 0)
