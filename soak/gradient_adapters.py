"""Adapters, and mechanisms under controllers and forces of a user, at degenerate states, for `gradients.py`.

The adapters import no other program, and neither do their subjects: OpenSCvx reads a name and slices of its states.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import adapters, control, forces
from soak.gradient_drivers import H
from soak.gradient_mechanics import SHORT, ball, cart, of_mechanism, points, tree
from soak.gradient_rates import shoulder
from soak.gradient_subjects import Subject


# ---- adapters
def _law(t: Any, q: Any, v: jax.Array, args: jax.Array) -> jax.Array:
    return args * jnp.cos(3 * t) - 0.1 * v


def _push(m: lgjax.Model, args: jax.Array) -> jax.Array:
    """A wrench on each body."""
    return jnp.resize(jnp.sin(1.0 + args), (m.nbodies, 6))


def _flat_field(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> jax.Array:
    """At a state whose quaternions are too long, as solvers leave them, under a law that is given x."""
    field = adapters.flat_field(m, _law, lambda t, q, v, args: _push(m, args))
    return field(jnp.asarray(0.3, x.dtype), 1.2 * adapters.flat_state(m, q, v), x)


def _from_flat_state(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    return adapters.from_flat_state(m, (1.2 + x[0]) * adapters.flat_state(m, q, v))


def _openscvx(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> list[jax.Array]:
    """In vectors with other entries at their ends, of a mechanism whose mass is a parameter of the problem."""
    y, n = adapters.flat_state(m, q, v), m.nv
    nq = len(y) - n
    place, speed = (SimpleNamespace(name=name, slice=slice(*ends))
                    for name, ends in (("place", (1, 1 + nq)), ("speed", (1 + nq, 1 + nq + n))))  # fmt: skip
    heavier = lambda params: m.replace(inertias=m.inertias.scaled(params["mass"] * jnp.ones(m.nbodies, x.dtype)))
    found = adapters.openscvx_dynamics(heavier, place, speed, SimpleNamespace(slice=slice(0, n)), lambda u: 2 * u,
                                    partial(_push, m))  # fmt: skip
    vector, params = jnp.concatenate([x[:1], y, x[:1]]), {"mass": 1.5 + x[0]}
    return [f(vector, jnp.concatenate([x, x[:1]]), 0, params) for f in found.values()]


def _start(key: jax.Array, m: lgjax.Model) -> Any:
    """A random start that depends on the gravity of the mechanism."""
    noise = jax.random.normal(key, (2, m.nv), jnp.float32).astype(m.dtype)  # the same numbers in every dtype
    return lgjax.retract(m, lgjax.neutral(m), 0.1 * noise[0]), noise[1] * jnp.sum(m.gravity)


def _environment(m: lgjax.Model, steps: int) -> adapters.Environment:
    return adapters.Environment(
        model=m, dt=H, steps=steps, start=_start, bounds=(-2.0, 2.0),
        observe=lambda m, q, v: jnp.concatenate([lgjax.center_of_mass(m, q), v]),
        reward=lambda m, q, v, action: lgjax.potential_energy(m, q) - jnp.sum(v * v) - 0.1 * jnp.sum(action**2),
    )  # fmt: skip


def _env_step(steps: int, m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    """With actions within their bounds and beyond, in a gravity that x changes; the last returns the next start."""
    made, params = _environment(m, steps), m.replace(gravity=m.gravity * (1 + 0.1 * x[0]))
    n = made.num_actions
    action = 0.5 + jnp.resize(x, (n,)) + jnp.asarray(3.0 * (np.arange(n) % 3 == 2), x.dtype)
    state = adapters.EnvironmentState(q, v, jnp.zeros((), jnp.int32))
    found, after, reward, _, info = made.step(jax.random.key(7), state, action, params)
    return found, after.q, after.v, reward, info["observation"]


def _env_reset(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    """The start of an episode, in a gravity that x changes."""
    found, state = _environment(m, 5).reset(jax.random.key(7), m.replace(gravity=m.gravity * (1 + 0.1 * x[0])))
    return found, state.q, state.v


STATES: dict[str, Callable] = {
    "flat_state": lambda m, q, v, x: adapters.flat_state(m, q, v),
    "from_flat_state": _from_flat_state,
}
EPISODES: dict[str, Callable] = {
    "environment, reset": _env_reset,
    "environment, step": partial(_env_step, 5),
}


# ---- rollouts under controllers
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Wind(forces.Force):
    """A user's force: it grows with the square of speeds, and follows gravity."""

    model: lgjax.Model
    strength: jax.Array

    def __call__(self, t, q, v):
        return -self.strength * v * jnp.sqrt(1e-2 + v * v) + 0.2 * lgjax.gravity_forces(self.model, q)

    def energy(self, q):
        return 0.2 * lgjax.potential_energy(self.model, q)


@dataclass(frozen=True)
class Filter:
    """A controller with memory: it holds for two steps what a filter makes of the speeds, with a traced gain."""

    gain: jax.Array
    every: int = 2

    def init(self, state: Any) -> Any:
        return 0.5 * state[1]

    def step(self, state: Any, memory: Any) -> tuple[jax.Array, Any]:
        memory = 0.7 * memory + 0.3 * jnp.sin(state[1])
        return self.gain - 0.5 * memory, memory

    def forces(self, control: jax.Array) -> tuple[jax.Array, None]:
        return control, None


def _ends(m: lgjax.Model, q: Any, v: jax.Array, steps: int, controller: Any, **more: Any) -> Any:
    path = lgjax.rollout(m, q, v, controller, H, steps, save_every=None, **more)
    return path.q, path.v


def _controlled(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    """A law that closes over x and depends on time, place and speed, with wrenches that do so too."""
    law = lambda t, q, v: x * jnp.cos(3 * t) - 0.1 * lgjax.potential_energy(m, q) * v
    pushed = lambda t, q, v: jnp.cos(t) * _push(m, x)
    return _ends(m, q, v, 1, law, wrenches=pushed)


def _forced(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    """A sum of the library's forces, a user's force and a controller."""
    law = lambda t, q, v: x * jnp.cos(3 * t)
    return _ends(m, q, v, 1, forces.damper(m, 0.3) + Wind(m, 0.1 + x) + law)


def _windy(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    wind = Wind(m, 0.1 + x)
    return wind(0.0, q, v), wind.energy(q)


CONTROLLED: dict[str, Callable] = {
    "rollout with a controller": _controlled,
    "rollout with a user's force": _forced,
    "rollout with a controller with memory": lambda m, q, v, x: _ends(m, q, v, 3, Filter(0.1 + x)),
}


# ---- systems of optimal control
def _steps(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array, **more: Any) -> Any:
    """A step under controls that drive the joints as forces and as wrenches."""
    driven = control.ControlSystem.of_model(m, H, m.nv, lambda u: 0.5 * u, partial(_push, m), **more)
    return driven.step((q, v), x)


def _slopes(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    """A semi-implicit step and its matrices, which are known in closed form."""
    driven = control.ControlSystem.of_model(m, H, m.nv, lambda u: jnp.sin(u), method=control.SemiImplicitEuler())
    assert driven.jacobians is not None
    return driven.jacobians((q, v), x)


def _accelerated(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    driven = control.ControlSystem.of_accelerations(m, H).with_rates()
    return driven.step(((q, v), 0.3 + x), x)


def _residual(m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    square = control.costs.LeastSquares(lambda t, state, u: u - 0.3 * state[1] + lgjax.gravity_forces(m, state[0]))
    return (square + 0.1 * control.costs.control())(0.0, (q, v), x)


STEPS: dict[str, Callable] = {
    "step of a control system": _steps,
    "step of a control system, semi-implicit": partial(_steps, method=control.SemiImplicitEuler(), substeps=2),
}


def _of(places: tuple, functions: dict[str, Callable], second: bool | str) -> dict[str, Callable[[int], Subject]]:
    return {
        f"{name} of {where}": partial(of_mechanism, make, {name: f}, second)
        for name, f in functions.items()
        for where, make in places
    }


CART, FREE, SHOULDER, POINTS = (
    ("a cart", cart), ("a free body", ball), ("a shoulder", shoulder), ("point masses", points)
)  # fmt: skip
ADAPTED: dict[str, Callable[[int], Subject]] = {
    **_of((("a tree", tree), POINTS), STATES, SHORT),
    **_of((FREE, POINTS), {"flat_field": _flat_field}, SHORT),
    **_of((SHOULDER,), {"flat_field": _flat_field}, SHORT),
    **_of((SHOULDER,), {"step of a control system": _steps}, SHORT),
    **_of((SHOULDER,), {"slopes of a control system": _slopes}, SHORT),
    **_of((CART,), {"environment, step": partial(_env_step, 5)}, SHORT),
    **_of((POINTS,), {"openscvx_dynamics": _openscvx} | EPISODES | CONTROLLED, SHORT),
    **_of((POINTS,), {"environment, last step": partial(_env_step, 1)} | STEPS, SHORT),
    **_of((POINTS,), {"slopes of a control system": _slopes, "step of accelerations": _accelerated}, SHORT),
    **_of((POINTS,), {"user's force": _windy, "cost of a residual": _residual}, SHORT),
}
