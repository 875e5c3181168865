"""A run is known again by what it was given: numbers, keys, settings, captured values; by nothing that JAX prints."""

from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.saving.identity import fingerprint


def law(gain, bias=0.0):
    def control(t, q, v):
        return -gain * v + bias

    return control


@dataclass(frozen=True)
class Law:
    gain: float

    def __call__(self, t, q, v):
        return -self.gain * v


class Controller:
    """An ordinary object; what it has cached is no part of it."""

    def __init__(self, gain):
        self.gain = gain

    @cached_property
    def twice(self):
        return 2 * self.gain

    def __call__(self, t, q, v):
        return -self.gain * v

    def law(self, t, q, v):
        return -self.gain * v


def used(controller):
    assert controller.twice
    return controller


def loop():
    def again():
        return again

    return again


MODEL = lgjax.models.chain(2)
SAME = {
    "keys": lambda: jax.random.key(3),
    "models": lambda: lgjax.models.chain(2),
    "captured numbers": lambda: law(2.0),
    "captured models": lambda: law(lgjax.models.chain(2)),
    "objects": lambda: Controller(2.0),
    "compiled functions": lambda: jax.jit(law(2.0)),
    "functions that contain themselves": loop,
    "methods": lambda: lgjax.MuntheKaas(lgjax.RK4),
    "shapes": lambda: lgjax.shapes.sphere(0.5),
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME.keys())
def test_the_same_made_twice_is_the_same(make):
    assert fingerprint(make()) == fingerprint(make())


OTHERS = [
    1, 1.0, True, "1", None, (), [], (1,), (1, 1), ((1,), 1), {"a": 1}, {"b": 1}, np.ones(2), np.ones(3),
    np.ones((1, 2)), jnp.ones(2, jnp.float32), jax.random.key(0), jax.random.key(1), jax.random.key(0, impl="rbg"),
    MODEL, MODEL.replace(gravity=0 * MODEL.gravity), lgjax.models.chain(3), law(1.0), law(2.0), law(1.0, 1.0), law,
    Controller(1.0), Controller(2.0), Controller(1.0).law, Controller(2.0).law, loop(), Law(1.0), Law(2.0),
    partial(law, 1.0), partial(law, 2.0), partial(law, gain=1.0), Law(1.0).__call__,
    lgjax.MuntheKaas(lgjax.RK4), lgjax.MuntheKaas(lgjax.integrators.HEUN2), lgjax.shapes.sphere(0.5),
    lgjax.shapes.sphere(0.6), (law(1.0), ""), (law(1.0), "second"),
]  # fmt: skip


def test_what_an_object_has_cached_does_not_count():
    assert fingerprint(Controller(2.0)) == fingerprint(used(Controller(2.0)))


def test_whatever_differs_has_another_fingerprint():
    found = [fingerprint(value) for value in OTHERS]
    twice = [(a, b) for i, a in enumerate(OTHERS) for j, b in enumerate(OTHERS) if i < j and found[i] == found[j]]
    assert not twice
    assert fingerprint(1, 2) != fingerprint((1, 2), ()) != fingerprint((1,), (2,))


def test_arrays_count_by_their_contents_and_not_by_who_holds_them():
    assert fingerprint(np.arange(3.0)) == fingerprint(jnp.arange(3.0)) == fingerprint(np.arange(6.0)[::2] / 2)
    # Written down, so that a new version of anything that changes it is noticed: runs on disk could not go on.
    known = fingerprint(("text", 1, 2.5, None), {"x": np.arange(3, dtype=np.int32)}, jax.random.key(7))
    assert known == "23a7f51ef60ff4ad4ff33a5f9b69d016dc19fe0ab368bc2aef9ff4dfcf3a089f"
