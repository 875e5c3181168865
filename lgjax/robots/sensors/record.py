"""The record of a robot's sensors: what they read at an instant, and the errors that they make.

Read first: `instant.py`, `group.py`. Next: `makers.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.dynamics.joint_parameters import parameter
from lgjax.execution import batched
from lgjax.execution.compiled import compiled
from lgjax.groups import s3, so3
from lgjax.multibody.arguments import checked_array, checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.messages import listed
from lgjax.robots.sensors.group import STATIC, Group, Kind
from lgjax.robots.sensors.instant import Instant, checked_instant
from lgjax.robots.sensors.scene import Scene

Array = jax.Array
LEVELS = ("noise", "bias", "drift", "cutoff")
# Fields of an `Instant` that a state (t, q, v) has, and how the others come about.
GIVEN = {
    "t": "the time t",
    "v": "the velocity v",
    "vdot": "accelerations: read sensors.instant(model, t, q, v, tau, wrenches), or sensors.after_step(...)",
    "contact": "contact forces: give contact=sensors.contact_forces(model, contacts, q, forces)",
    "actuator_force": "actuator_force, as Actuators.forces gives it",
    "actuator_torque": "actuator_torque, as Actuators.torque gives it",
    "limit_force": "limit_force, the generalized forces of joint limits",
}


class SensorState(NamedTuple):
    """Biases of sensors: bias (sensors.errors,), in the units of the readings, rad for directions and rotations."""

    bias: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sensors:
    """m sensors of a mechanism, in order: make them with the functions of `lgjax.sensors`, and join them with `+`.

    sensors(instant) returns the readings (size,) of all sensors, in order, at an `Instant`; sensors(t, q, v) those at a
    state; sensors(model, q, v) those at a state of another model with the same tree, so that a record can be `observe=`
    of an `ensemble` or an `Environment`. At a state, a sensor of accelerations or forces raises ValueError, and so does
    a clock without a time. `split` returns the readings by name, `noisy` adds errors.

    model: the mechanism, see `for_model`. names: (m,). noise, bias, drift, cutoff: (m,), see `noisy`; a cutoff of inf
    is none. Readings are clipped to +-cutoff (forces of touch sensors to cutoff); directions and rotations are not.
    """

    model: Model
    names: tuple[str, ...] = field(metadata=STATIC)
    groups: tuple[Group, ...]
    order: tuple[tuple[int, int], ...] = field(metadata=STATIC)  # group and row in it of each sensor
    noise: Array
    bias: Array
    drift: Array
    cutoff: Array

    # ---- what they are
    def __len__(self) -> int:
        """Number of sensors."""
        return len(self.names)

    def __repr__(self) -> str:
        kinds = (f"{name} ({kind.name})" for name, kind in zip(self.names, self.kinds, strict=True))
        return f"Sensors({', '.join(kinds)})"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds (m,) of the sensors: what each one measures."""
        return tuple(self.groups[group].kind for group, _ in self.order)

    @property
    def slices(self) -> dict[str, slice]:
        """Slice of the readings (size,) that belongs to each sensor, by name."""
        ends = np.cumsum([0, *(kind.size for kind in self.kinds)]).tolist()
        return {name: slice(a, b) for name, a, b in zip(self.names, ends, ends[1:], strict=False)}

    @property
    def size(self) -> int:
        """Number of entries of all readings together."""
        return sum(kind.size for kind in self.kinds)

    @property
    def errors(self) -> int:
        """Number of entries of all errors together; an orientation has three."""
        return sum(kind.errors for kind in self.kinds)

    @property
    def needs(self) -> frozenset[str]:
        """Fields of an `Instant` that the sensors read besides q."""
        return frozenset(name for group in self.groups for name in group.kind.needs)

    def __add__(self, other: "Sensors") -> "Sensors":
        """These sensors and then others, of the same model."""
        checks.of_kind("what is added to sensors", other, Sensors)
        if other.model.tree != self.model.tree:
            raise ValueError(f"sensors of {self.model.name!r} and of {other.model.name!r} cannot be added")
        if twice := sorted(set(self.names) & set(other.names)):
            raise ValueError(f"two sensors are called {twice[0]!r}: give name=")
        groups, places = list(self.groups), []
        for group in other.groups:
            for k, mine in enumerate(groups):
                if (both := mine.joined(group)) is not None:
                    places.append((k, len(mine)))
                    groups[k] = both
                    break
            else:
                places.append((len(groups), 0))
                groups.append(group)
        order = (*self.order, *((places[group][0], places[group][1] + row) for group, row in other.order))
        levels = {name: jnp.concatenate([getattr(self, name), getattr(other, name)]) for name in LEVELS}
        return Sensors(self.model, self.names + other.names, tuple(groups), order, **levels)

    def for_model(self, model: Model | Mechanism) -> "Sensors":
        """The same sensors on another model with the same tree; they use its masses and lengths."""
        model = checked_model(model, leaves=True)
        if model.tree != self.model.tree:
            raise ValueError(f"the sensors are of {self.model.name!r}, not of a model with the tree of {model.name!r}")
        return replace(self, model=model, groups=tuple(group.for_model(model) for group in self.groups))

    def named(self, *names: str) -> "Sensors":
        """The same sensors with other names, one for each."""
        found = checks.names("names", names)
        if len(found) != len(self):
            raise ValueError(f"names has {len(found)} names, expected {len(self)}")
        if len(set(found)) < len(found):
            raise ValueError(f"names has one twice: {listed(found)}")
        return replace(self, names=found)

    def replace(self, **changes: Any) -> "Sensors":
        """A copy with other noise, bias, drift or cutoff: numbers, or arrays with an entry for each sensor."""
        if unknown := set(changes) - set(LEVELS):
            raise ValueError(f"sensors have no {', '.join(sorted(unknown))} to replace")
        dtype = self.model.dtype
        return replace(self, **{name: level(name, value, self.names, dtype) for name, value in changes.items()})

    def astype(self, dtype) -> "Sensors":
        """The same sensors with every array in `dtype`."""
        return jax.tree.map(lambda x: x.astype(dtype), self)

    # ---- what they read
    def __call__(self, *state: Any) -> Array:
        """Readings (size,) of an `Instant`, of (t, q, v), or of (model, q, v), without errors."""
        if len(state) == 1:
            return self._read(state[0])
        if len(state) != 3:
            raise TypeError(f"sensors read an Instant, (t, q, v) or (model, q, v), got {len(state)} arguments")
        first, q, v = state
        if isinstance(first, Model | Mechanism):
            return self.for_model(checked_model(first, leaves=True))._read(Instant(None, q, v))
        return self._read(Instant(first, q, v))

    def _read(self, instant: Instant) -> Array:
        instant = checked_instant(self.model, instant)
        for name, kind in zip(self.names, self.kinds, strict=True):
            for need in kind.needs:
                if getattr(instant, need) is None:
                    raise ValueError(f"the sensor {name!r} ({kind.name}) needs {GIVEN[need]}")
        return _readings(self, instant)

    def split(self, values: Array) -> dict[str, Array]:
        """Readings by name, of values (..., size): (...) for a sensor with one number, (..., its size) for others."""
        self._checked_last("values", values, self.size)
        found = {name: values[..., part] for name, part in self.slices.items()}
        return {name: x[..., 0] if x.shape[-1] == 1 else x for name, x in found.items()}

    # ---- their errors
    def start(self, key: Array) -> SensorState:
        """Errors at the start of a run: biases drawn from normal distributions with standard deviations `bias`."""
        drawn = jax.random.normal(checks.random_key("key", key), (self.errors,), self.model.dtype)
        return SensorState(self._each(self.bias) * drawn)

    def noisy(self, key: Array, state: SensorState, values: Array, dt: ArrayLike) -> tuple[Array, SensorState]:
        """Readings (size,) with errors, and the state for the next reading, dt seconds later.

        key: of jax.random, a new one for each reading. state: from `start`, then from the last reading. values: (size,)
        readings without errors.

        The error is the bias in `state` plus white noise. The noise is normal with standard deviation `noise`, in the
        units of the reading and independent of dt, as MuJoCo's attribute; for a noise density d (unit/sqrt(Hz)), give
        d/sqrt(dt). Between readings the bias makes a normal step with standard deviation drift sqrt(dt); drift is in
        unit/sqrt(s). Errors are added to readings, but turn directions and rotations, as rotation vectors in rad:
        rotations in their own frame, directions in the reference frame. Forces of touch sensors get errors only where
        they are positive, and never become negative. Readings are clipped again.
        """
        checks.random_key("key", key)
        self._checked_last("values", checked_array("values", values, (self.size,), self.model.dtype), self.size)
        checks.of_kind("state", state, SensorState)
        bias = checked_array("state.bias", state.bias, (self.errors,), self.model.dtype)
        dt = checks.scalar("dt", dt, self.model.dtype, positive=True)
        white, walk = jax.random.normal(key, (2, self.errors), self.model.dtype)
        error = bias + self._each(self.noise) * white
        return _with_errors(self, values, error), SensorState(bias + self._each(self.drift) * jnp.sqrt(dt) * walk)

    def _each(self, level: Array) -> Array:
        """A level of each sensor (m,) for each entry of its errors."""
        return level[np.repeat(np.arange(len(self)), [kind.errors for kind in self.kinds])]

    def _checked_last(self, name: str, values: Any, size: int) -> None:
        if np.ndim(values) < 1 or np.shape(values)[-1] != size:
            raise ValueError(f"{name} has shape {np.shape(values)}, expected (..., {size})")


@compiled
def _readings(sensors: Sensors, instant: Instant) -> Array:
    """Readings of one system: under `jax.vmap` one function of all that is read."""
    return batched(_values)(sensors, instant)


def _values(sensors: Sensors, instant: Instant) -> Array:
    scene = Scene(sensors.model, instant, sensors.needs)
    found = [group.read(scene).reshape(-1) for group in sensors.groups]
    starts = np.cumsum([0, *(len(group) * group.kind.size for group in sensors.groups)])
    places = [
        starts[group] + row * kind.size + np.arange(kind.size)
        for (group, row), kind in zip(sensors.order, sensors.kinds, strict=True)
    ]
    values = jnp.concatenate([jnp.zeros(0, sensors.model.dtype), *found])
    return _clipped(sensors, values[np.concatenate([np.zeros(0, int), *places])])


def _clipped(sensors: Sensors, values: Array) -> Array:
    kinds = sensors.kinds
    repeat = np.repeat(np.arange(len(kinds)), [kind.size for kind in kinds])
    upper = sensors.cutoff[repeat]
    free = np.asarray([kind.form in ("direction", "rotation") for kind in kinds], bool)[repeat]
    positive = np.asarray([kind.form == "positive" for kind in kinds], bool)[repeat]
    lower = jnp.where(positive, -jnp.inf, -upper)
    return jnp.where(free, values, jnp.clip(values, lower, upper))


@compiled
def _with_errors(sensors: Sensors, values: Array, error: Array) -> Array:
    return batched(_erroneous)(sensors, values, error)


def _erroneous(sensors: Sensors, values: Array, error: Array) -> Array:
    kinds, slices = sensors.kinds, list(sensors.slices.values())
    starts = np.cumsum([0, *(kind.errors for kind in kinds)])
    rows = {form: [k for k, kind in enumerate(kinds) if kind.form == form] for form in ("real", "positive")}
    take = lambda parts: np.concatenate([np.zeros(0, int), *parts])
    for form, some in rows.items():
        at = take([np.arange(slices[k].start, slices[k].stop) for k in some])
        x, e = values[at], error[take([starts[k] + np.arange(kinds[k].errors) for k in some])]
        moved = x + e if form == "real" else jnp.where(x > 0, jnp.maximum(x + e, 0), x)
        values = values.at[at].set(moved)
    turned = {"direction": lambda x, e: sm.matvec(so3.exp(e), x), "rotation": lambda x, e: s3.compose(x, s3.exp(e))}
    for form, turn in turned.items():
        some = [k for k, kind in enumerate(kinds) if kind.form == form]
        if some:
            at = np.asarray([np.arange(slices[k].start, slices[k].stop) for k in some])
            values = values.at[at].set(turn(values[at], error[starts[some][:, None] + np.arange(3)]))
    return _clipped(sensors, values)


def level(name: str, value: Any, names: Sequence[str], dtype: Any) -> Array:
    """A noise, bias, drift or cutoff of each sensor, checked where it is known."""
    cutoff = name == "cutoff"
    return parameter(f"{name} of the sensor", value, names, dtype, positive=cutoff, finite=not cutoff)
