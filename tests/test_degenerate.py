"""Derivatives at degenerate states: `soak/gradients.py` finds what is wrong, and a few places hold."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import groups
from soak import gradient_mechanics, gradients
from soak.gradient_subjects import Subject

PI = np.pi


def subject(function, states, names, **more):
    labels = tuple(map(str, range(len(states))))
    return Subject(names, function, np.asarray(states, float), labels, np.asarray([0.6, -0.3, 0.7]), **more)


def length(state, x):
    """One length that has no derivative at zero, one without second derivatives there, and the square of one."""
    y = state + x
    square = jnp.sum(y * y)
    return jnp.stack([jnp.sqrt(square), lgjax.so3.distance(jnp.eye(3, dtype=x.dtype), lgjax.so3.exp(y)), square])


def test_a_derivative_that_is_nan_is_found():
    found = list(
        gradients.examine(subject(length, [np.zeros(3), np.ones(3)], ("sqrt", "angle", "square"), second=False))
    )
    assert {state for _, state, _ in found} == {0}
    assert {dtype for dtype, *_ in found} == {"float64", "float32"}
    assert all("is not finite in sqrt" in said for *_, said in found)  # reverse mode takes the others with it


def test_numbers_that_float32_does_not_have_are_not_asked_of_it():
    cube = lambda state, x: ((state + x) * 1e13) ** 3
    names = ("x", "y", "z")
    assert list(gradients.examine(subject(cube, [np.full(3, 30.0)], names, second=False))) == []
    root = lambda state, x: jnp.sqrt(state + x) / 1e-39  # not a number in either precision at zero
    found = [dtype for dtype, *_ in gradients.examine(subject(root, [np.zeros(3)], names, second=False))]
    assert sorted(set(found)) == ["float32", "float64"]


def wrong_rule(state, x):
    @jax.custom_jvp
    def f(y):
        return jnp.sum(jnp.sin(y))[None]

    f.defjvp(lambda y, dy: (f(*y), 1.01 * jnp.sum(jnp.cos(y[0]) * dy[0])[None]))
    return f(state + x)


def test_a_derivative_that_is_wrong_is_found():
    found = [
        said for *_, said in gradients.examine(subject(wrong_rule, [np.ones(3)], ("f",), second=False), single=False)
    ]
    assert len(found) == 1
    assert "reverse against differences: f" in found[0]
    there = subject(wrong_rule, [np.ones(3)], ("f",), second=False, distance=np.zeros(1))  # where none exists
    assert list(gradients.examine(there, single=False)) == []


def bent(state, x):
    """A function whose second derivative jumps at zero, and one whose second derivative is wrong."""

    @jax.custom_jvp
    def slope(y):
        return jnp.cos(y)

    slope.defjvp(lambda y, dy: (slope(*y), -1.01 * jnp.sin(y[0]) * dy[0]))

    @jax.custom_jvp
    def sine(y):
        return jnp.sin(y)

    sine.defjvp(lambda y, dy: (sine(*y), slope(y[0]) * dy[0]))
    y = state + x
    return jnp.stack([jnp.sum(jnp.maximum(y, 0) ** 2), jnp.sum(sine(y))])


def test_a_second_derivative_that_is_wrong_is_found_and_one_that_jumps_is_not():
    states, names = [np.zeros(3), np.ones(3)], ("jumps", "wrong")
    more = {"second": "forward over reverse"}
    found = list(gradients.examine(subject(bent, states, names, **more), single=False))
    assert [state for _, state, _ in found] == [1]
    assert found[0][2].startswith("second order against differences: wrong is")


def rotations(state, x):
    """Maps of rotations near, at and beyond a half turn, as numbers."""
    so3, s3 = groups.so3, groups.s3
    g = so3.compose(so3.exp(state), so3.exp(x))
    parts = (so3.log(g), so3.to_quaternion(g), s3.log(s3.exp(state + x)), so3.dexpinv(state + x, x + 0.5),
             so3.distance(so3.exp(state), g)[None])  # fmt: skip
    return jnp.stack([jnp.sum(jnp.asarray([0.3, -0.7, 0.2, 0.9], x.dtype)[: len(p)] * p) for p in parts])


AXIS = np.asarray([0.6, 0.0, -0.8])
SIZES = (0.0, 1e-30, 1e-9, PI - 1e-6, PI, PI + 1e-6)


def test_rotations_by_nothing_and_by_half_turns():
    states = [size * axis for size in SIZES for axis in (AXIS, np.eye(3)[1])]
    names = ("log", "to_quaternion", "s3.log", "dexpinv", "distance to itself")
    found = gradients.examine(subject(rotations, states, names, second="forward over reverse"))
    assert [f for f in found if f] == []


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_distance_of_a_state_from_itself_has_a_derivative(dtype):
    """The length of no displacement: zero, as that of every `distance`; it was NaN."""
    model = lgjax.models.chain(2).astype(dtype)
    space = lgjax.multibody.mechanical_space(model.tree)
    state = lgjax.neutral(model), jnp.zeros(2, dtype)
    slope = jax.jit(jax.grad(lambda v: space.distance(state, (state[0], v))))(state[1])
    np.testing.assert_array_equal(slope, 0)
    assert partial(space.distance, state)(state) == 0


def test_each_number_of_a_mechanism_goes_by_its_own_name():
    functions = {"velocity": lambda m, q, v, x: v, "force": lambda m, q, v, x: x}
    subject = gradient_mechanics.of_mechanism(gradient_mechanics.points, functions, True, 0)
    state = jax.tree.map(lambda x: jnp.asarray(x[0]), subject.states)
    push = jnp.zeros(6).at[4].set(1.0)
    moved = subject.function(state, push) != subject.function(state, 0 * push)
    assert dict(zip(subject.names, moved.tolist(), strict=True)) == {"velocity": False, "force": True}
