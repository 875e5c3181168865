"""A program of a user's function is used again only where nothing that the function reads can have changed."""

import abc
import dataclasses
import functools
import sys
import types
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.execution.callbacks import contents

GAIN = 1.0
settings = types.ModuleType("settings_of_a_user")
sys.modules["settings_of_a_user"] = settings


@dataclasses.dataclass(frozen=True)
class Proportional:
    """Reads a field, a value of its class and a global."""

    kp: float
    scale = 1.0

    def __call__(self, t, q, v):
        return -self.kp * self.scale * GAIN * q.joints

    def law(self, q):
        return self(0.0, q, None)

    @property
    def stiffness(self):
        return self.kp * GAIN


class Law(abc.ABC):
    @abc.abstractmethod
    def law(self, q): ...


class Callable(Protocol):
    def __call__(self, t, q, v): ...


@dataclasses.dataclass(frozen=True)
class Derived(Law, Callable):
    """Names its own class and its bases."""

    kp: float
    curve = functools.partial(jnp.multiply, 2.0)

    @functools.cached_property
    def half(self):
        return self.kp / 2

    def law(self, q):
        return -Derived.curve(q.joints) * self.kp

    def __call__(self, t, q, v):
        super().__init__()
        return self.law(q)


class Named(NamedTuple):
    kp: float

    def __call__(self, t, q, v):
        return -self.kp * GAIN * q.joints


def attributed(t, q, v):
    return -attributed.gain * q.joints


def imported(t, q, v):
    import settings_of_a_user  # type: ignore[reportMissingImports]

    return -settings_of_a_user.gain * q.joints


TABLE = {"gain": 1.0}
proportional = Proportional(1.0)


def change(what: str, value: float) -> None:
    """Set the gain that a controller reads."""
    if what == "class":
        Proportional.scale = value
    elif what == "partial":
        Derived.curve = functools.partial(jnp.multiply, 2.0 * value)
    elif what == "attribute":
        attributed.gain = value
    elif what == "module":
        settings.gain = value
    elif what == "table":
        TABLE["gain"] = value
    else:
        globals()["GAIN"] = value


CONTROLLERS = {
    "a dataclass": ("global", Proportional(1.0)),
    "a value of its class": ("class", Proportional(1.0)),
    "a method in a lambda": ("global", lambda t, q, v: proportional.law(q)),
    "a bound method": ("global", Proportional(1.0).__call__),
    "a property": ("global", lambda t, q, v: -proportional.stiffness * q.joints),
    "a named tuple": ("global", Named(1.0)),
    "an attribute of the function": ("attribute", attributed),
    "a module that it imports": ("module", imported),
    "a partial call in a class": ("partial", Derived(0.5)),
    "a method of a dictionary": ("table", lambda t, q, v, get=TABLE.get: -get("gain") * q.joints),
}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_what_a_controller_reads_may_change_between_calls(name):
    what, controller = CONTROLLERS[name]
    model = lgjax.models.chain(1)
    q, found = lgjax.configuration(model, joints=[0.5]), []
    for value in (1.0, 2.0):
        change(what, value)
        found.append(lgjax.rollout(model, q, jnp.zeros(1), controller, 0.01, 2, save_every=None).v[-1, 0])
    change(what, 1.0)
    np.testing.assert_allclose(found[1] - found[0], lgjax.rollout(
        model.replace(gravity=jnp.zeros(3)), q, jnp.zeros(1), lambda t, q, v: -q.joints, 0.01, 2, save_every=None
    ).v[-1, 0], rtol=0.05)  # fmt: skip


def test_equal_dataclasses_and_tuples_are_one_controller():
    assert contents(Proportional(2.0)) == contents(Proportional(2.0)) is not None
    assert contents(Proportional(2.0)) != contents(Proportional(3.0))
    assert contents(Named(2.0)) == contents(Named(2.0)) is not None
    assert contents(lgjax.MuntheKaas(lgjax.RK4).step) is not None
    assert contents(Derived(2.0)) == contents(Derived(2.0)) is not None
    assert contents(TABLE.get) is None
    assert contents(np.linalg.norm) == contents(np.linalg.norm) is not None
    assert contents(attributed) is None


def test_specialized_models_are_values_of_a_controller():
    make = lambda model: lambda t, q, v: -v + lgjax.inverse_dynamics(model, q, v, 0 * v)
    one, same, other = (lgjax.specialize(lgjax.models.chain(n)) for n in (1, 1, 2))
    assert contents(make(one)) is not None
    assert contents(make(one).__closure__[0].cell_contents.constants) == contents(same.constants)
    assert contents(one.constants) != contents(other.constants)


class Own(float):
    """A number of a user, which can have attributes."""


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, complex])
def test_numbers_are_compared_by_their_digits(kind):
    make = lambda x: lambda t, q, v: jnp.copysign(1.0, np.real(x)) + v
    assert contents(make(kind(0.0))) == contents(make(kind(0.0))) is not None
    assert contents(make(kind(0.0))) != contents(make(kind(-0.0)))
    assert contents(make(kind("nan"))) == contents(make(kind("nan")))
    assert contents(make(Own(1.0))) is None


class Held:
    """An object of a user that can be called, and changed."""

    def __init__(self, gain):
        self.gain = gain

    def __call__(self, *state):
        return self.gain * jnp.ones(2)


def test_objects_in_forces_and_loops_may_change_between_calls():
    model, held = lgjax.models.chain(2), Held(1.0)
    q, v = lgjax.neutral(model), jnp.zeros(2)
    force, motor = lgjax.forces.spring(model, 0.0) + held, lgjax.forces.motors(model, held)
    loop, found = lgjax.Loop(held), []
    for gain in (1.0, 5.0):
        held.gain = gain
        last = lgjax.rollout(model, q, v, force, 0.01, 2, save_every=None).v[-1]
        found.append((force(0.0, q, v), motor(0.0, q, v), last, lgjax.loops.loop_residual(model, loop, q)))
    for first, second in zip(*found, strict=True):
        assert np.all(np.abs(second) > 3 * np.abs(first))


def test_a_function_that_reads_what_is_traced_has_no_contents():
    """A tracer ends with its trace; a program that holds one would keep it."""
    read = []

    def of(gain):
        read.append(contents(lambda v: gain * v))
        return gain

    jax.grad(of)(1.0)
    jax.vmap(of)(jnp.ones(2))
    assert read == [None, None]
    assert contents(lambda v: 2.0 * v) is not None
