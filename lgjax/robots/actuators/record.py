"""Actuators: the record of n actuators and what they do. Read next: `law.py`, `delays.py`,
`makers.py`.

The path of a control u: it is delayed, clipped to `control_range`, and is the input a of the force itself, or drives an
activation that is. The force along the length l of the transmission is

    f = clip((g0 + g1 l + g2 dl/dt) a + b0 + b1 l + b2 dl/dt, force_range),

and on the joints it is tau = moments^T f, clipped to the ranges of joints that have one. Of an actuator that lags the
activation is the force itself, before it is clipped, which follows the law with a time constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact import Implicit
from lgjax.dynamics.joint_parameters import scalars_of
from lgjax.dynamics.transmissions import Transmissions
from lgjax.execution.compiled import compiled
from lgjax.multibody.arguments import checked_array, checked_model
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics.messages import listed
from lgjax.robots.actuators import delays, law
from lgjax.robots.actuators.force import ActuatorForce

STATIC = {"static": True}
Dynamics = Literal["none", "integrator", "filter", "filterexact", "lag"]


class ActuatorState(NamedTuple):
    """Memory of actuators: activation (na,), and history (samples, n) of controls, newest first."""

    activation: jax.Array
    history: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Actuators:
    """n actuators, each with one control; na of them have an activation. a + b joins two records, those of a first.

    force = clip((g0 + g1 l + g2 dl/dt) input + b0 + b1 l + b2 dl/dt, force_range) along the length l of the
    transmission, with gain g and bias b; the input is the control within control_range, or the activation.

    gain, bias: (n, 3). control_range, force_range, activation_range: (n, 2), infinite for no range. time_constant: (n,)
    s, of filters. delay: (n,) s. no_load_speed: (n,) rad/s or m/s of the length, at which the force that force_range
    allows has fallen linearly to zero in the direction of motion; infinite if it does not fall. joint_range: (m, 2) N m
    or N, ranges of the sums of forces at the velocities `joint_columns`, see `within`.

    Static: names; dynamics of each; early, whether the activation at the end of a step acts during the step; samples,
    how many controls the history holds (0: not decided, see `sampled`); wraps, whether input less length is the angle
    of a ball, taken within half a turn; terms, letters for the parts of each law that are computed: L V gain and l v
    bias by length and by velocity, c constant bias, u f a ranges of control, force and activation, s a force_range that
    falls with speed.

    The methods are for one system; use jax.vmap over a batch, also of the arrays above. Source: MuJoCo's actuation
    model.
    """

    transmission: Transmissions
    gain: jax.Array
    bias: jax.Array
    control_range: jax.Array
    force_range: jax.Array
    activation_range: jax.Array
    time_constant: jax.Array
    delay: jax.Array
    no_load_speed: jax.Array
    joint_range: jax.Array
    names: tuple[str, ...] = field(metadata=STATIC)
    dynamics: tuple[Dynamics, ...] = field(metadata=STATIC)
    early: tuple[bool, ...] = field(metadata=STATIC)
    terms: tuple[str, ...] = field(metadata=STATIC)
    wraps: tuple[bool, ...] = field(metadata=STATIC)
    joint_columns: tuple[int, ...] = field(default=(), metadata=STATIC)
    samples: int = field(default=1, metadata=STATIC)

    def __repr__(self) -> str:
        model = self.transmission.tree.name
        return f"<Actuators of {model!r}: {len(self)}, {self.na} with activation: {listed(self.names)}>"

    def __len__(self) -> int:
        return len(self.names)

    def __add__(self, other: Any) -> "Actuators":
        if not isinstance(other, Actuators):
            raise TypeError(f"actuators add to actuators, not to {checks.shown(other)}")
        if twice := sorted(set(self.names) & set(other.names)):
            raise ValueError(f"both have an actuator {twice[0]!r}; names= of their makers gives others")
        if twice := sorted(set(self.joint_columns) & set(other.joint_columns)):
            raise ValueError(f"both have a range of the forces at velocity {twice[0]}")
        joined = {}
        for name in ("transmission", "names", "dynamics", "early", "terms", "wraps", "joint_columns"):
            joined[name] = getattr(self, name) + getattr(other, name)
        for name in LEAVES:
            joined[name] = jnp.concatenate([getattr(self, name), getattr(other, name)])
        undecided = 0 in (self.samples, other.samples)
        return Actuators(**joined, samples=0 if undecided else max(self.samples, other.samples))

    @property
    def na(self) -> int:
        """Number of actuators with an activation."""
        return len(self.active)

    @cached_property
    def active(self) -> np.ndarray:
        """Indices (na,) of the actuators that have an activation."""
        return np.flatnonzero([kind != "none" for kind in self.dynamics])

    @property
    def dtype(self) -> Any:
        return self.gain.dtype

    def astype(self, dtype: Any) -> "Actuators":
        """The same actuators with every array in `dtype`."""
        return jax.tree.map(lambda x: x.astype(dtype), self)

    def replace(self, **changes: Any) -> "Actuators":
        """A copy with other arrays, unchecked. After a change of delay give `samples=` or call `sampled`."""
        if "delay" in changes and "samples" not in changes and self.samples == 1:
            changes["samples"] = 0
        terms = [set(x) for x in changes.get("terms", self.terms)]
        for what in {*law.LETTERS, "no_load_speed"} & set(changes):
            for own, new in zip(terms, law.letters_of(what, changes[what], len(self)), strict=True):
                own |= set(new)
        return replace(self, **changes | {"terms": tuple("".join(sorted(x)) for x in terms)})

    def for_model(self, model: Model | Mechanism) -> "Actuators":
        """The same actuators on another model of the same tree."""
        return replace(self, transmission=self.transmission.for_model(model))

    def within(self, model: Model | Mechanism, joints: Sequence[str] | None = None, ranges: Any = None) -> "Actuators":
        """The same actuators with the sum of their forces at each joint clipped to +-`Model.effort`.

        joints: names, by default all scalar joints. ranges: (low, high) or (m, 2), N m or N, in place of the effort. A
        new range replaces an earlier one.
        """
        model = checked_model(model)
        names, columns, _ = scalars_of(model, joints)
        at = np.asarray(columns, int)
        if ranges is None:
            given = jnp.stack([-model.effort[at], model.effort[at]], 1)
        else:
            given = law.ranged("ranges", ranges, names, self.dtype)
        kept = [k for k, column in enumerate(self.joint_columns) if column not in columns]
        joint_range = jnp.concatenate([self.joint_range[np.asarray(kept, int)], given])
        columns = tuple(self.joint_columns[k] for k in kept) + tuple(columns)
        return replace(self, joint_range=joint_range, joint_columns=columns)

    # ---- forces
    @compiled
    def lengths(self, q: Configuration) -> jax.Array:
        """Lengths (n,) of the transmissions, rad or m."""
        return self.transmission.lengths(q)

    @compiled
    def moments(self, q: Configuration) -> jax.Array:
        """Moments (n, nv) of the transmissions."""
        return self.transmission.moments(q)

    @compiled
    def forces(self, q: Configuration, v: jax.Array, control: jax.Array, activation: Any = None, dt: Any = None):
        """Forces (n,) along the lengths, N m or N, clipped to `force_range`, of controls (n,) that act now.

        activation: (na,), may be left out if na is 0. dt: the step, s, for actuators that are early; without it their
        present activation acts. Delays do not count here, see `delayed`.
        """
        return law.forces(self, self._instant(q, v, control, activation, dt))

    @compiled
    def torque(self, q: Configuration, v: jax.Array, control: jax.Array, activation: Any = None, dt: Any = None):
        """Generalized forces (nv,), N m or N, clipped to `joint_range`; arguments as in `forces`."""
        at = self._instant(q, v, control, activation, dt)
        tau = self.transmission.torque(q, law.forces(self, at), at.world)
        if not self.joint_columns:
            return tau
        columns = np.asarray(self.joint_columns, int)
        return tau.at[columns].set(law.clipped(tau[columns], self.joint_range))

    @compiled
    def slopes(self, q: Configuration, v: jax.Array, control: jax.Array, activation: Any = None, dt: Any = None):
        """Derivatives of `forces` by length (n,) and by its rate (n,); zero at a constant limit of the force."""
        return law.slopes(self, self._instant(q, v, control, activation, dt))

    @compiled
    def implicit(self, q: Configuration, v: jax.Array, control: jax.Array, activation: Any = None, dt: Any = None):
        """Stiffness and damping of `torque` as an `Implicit`; zero at joints that have reached their range."""
        at = self._instant(q, v, control, activation, dt)
        resisting = [jnp.maximum(-slope, 0) for slope in law.slopes(self, at)]
        rows, columns = self.transmission.places
        entries = self.transmission.entries(q, at.world)
        single = np.bincount(rows, minlength=len(self)) == 1
        own, others = np.flatnonzero(single[rows]), np.flatnonzero(~single & np.isin(range(len(self)), rows))
        others = others[[any(letter in "LVlvs" for letter in self.terms[i]) for i in others]]
        squares = entries[own] * entries[own]
        free = self._free(at)
        nowhere = jnp.zeros(self.transmission.nv, self.dtype)
        stiffness, damping = (free * nowhere.at[columns[own]].add(squares * x[rows[own]]) for x in resisting)
        A = self.transmission.take(others).moments(q, at.world) if others.size else jnp.zeros((0, len(v)), self.dtype)
        return Implicit(stiffness, damping, A * free, resisting[0][others], resisting[1][others])

    def as_force(self, control: Any, activation: Any = None) -> ActuatorForce:
        """Force under a constant control (n,), without delay, and a constant activation (na,), zeros by default."""
        control = checks.array("control", control, (len(self),), self.dtype)
        if activation is None and self.na:
            activation = jnp.zeros(self.na, self.dtype)
        return ActuatorForce(self, control, activation)

    # ---- activations
    @compiled
    def rates(self, q: Configuration, v: jax.Array, control: jax.Array, activation: jax.Array) -> jax.Array:
        """Time derivatives (na,) of the activations, under controls (n,) that act now."""
        return law.rates(self, self._instant(q, v, control, activation, None))

    @compiled
    def advance(self, activation: jax.Array, rates: jax.Array, dt: Any) -> jax.Array:
        """Activation (na,) a step dt later, within its range: a + rates dt; exact for "filterexact" and "lag"."""
        rates = checked_array("rates", rates, (self.na,), self.dtype, OWNER)
        return law.advance(self, self._activation(activation), rates, dt)

    # ---- memory
    def start(self, control: Any = None, activation: Any = None) -> ActuatorState:
        """State before the first step, as if `control` (n,) had been held; zeros by default, as `activation` (na,).

        Raises ValueError if the number of samples is not decided: give samples= to the maker, or call `sampled`.
        """
        if not self.samples:
            raise ValueError("a delay needs memory: actuators.sampled(dt) has it, or give samples= to their maker")
        control = jnp.zeros(len(self), self.dtype) if control is None else control
        activation = jnp.zeros(self.na, self.dtype) if activation is None else activation
        return ActuatorState(self._activation(activation), delays.filled(self._given(control), self.samples))

    def sampled(self, dt: Any) -> "Actuators":
        """The same actuators with a history long enough for their delays in steps of dt, s; neither may be traced."""
        if not checks.known(self.delay, dt):
            raise ValueError("the delay is traced: give samples=, the longest delay in steps and one more")
        steps = float(np.max(np.asarray(self.delay, float) / checks.number("dt", dt, 0, inside=False), initial=0.0))
        if not np.isfinite(steps):
            raise ValueError(f"delay {float(np.max(np.asarray(self.delay))):g} s is no number of steps of {dt:g} s")
        return replace(self, samples=1 + int(np.ceil(steps - delays.MARGIN)))

    @compiled
    def pushed(self, state: ActuatorState, control: jax.Array) -> ActuatorState:
        """The state with this control (n,) added to its history: call it once at the start of a step."""
        return state._replace(history=delays.pushed(state.history, self._given(control)))

    @compiled
    def delayed(self, state: ActuatorState, dt: Any) -> jax.Array:
        """Controls (n,) that act during the step dt: those given `delay` earlier; call `pushed` first.

        Each control is held for a step. A delay that is not a whole number of steps gives the weighted mean of two
        controls, so derivatives by the delay exist. NaN for a delay beyond (samples - 1) dt.
        """
        return delays.delayed(state.history, self.delay, jnp.asarray(dt, self.dtype))

    # ---- parts
    def _given(self, control: Any) -> jax.Array:
        return checked_array("control", control, (len(self),), self.dtype, OWNER)

    def _activation(self, activation: Any) -> jax.Array:
        if activation is None and self.na:
            raise ValueError(f"activation is missing: {self.names[self.active[0]]!r} has one; start() has all at zero")
        activation = jnp.zeros(0, self.dtype) if activation is None else activation
        return checked_array("activation", activation, (self.na,), self.dtype, OWNER)

    def _instant(self, q: Configuration, v: jax.Array, control: Any, activation: Any, dt: Any) -> law.Instant:
        control = self._given(control)
        control = law.clipped(control, self.control_range) if law.has(self, "u") else control
        return law.Instant(q, v, control, self._activation(activation), self.transmission.kinematics(q, v), dt)

    def _free(self, at: law.Instant):
        """1 for velocities (nv,) whose sum is within the range of the joint, else 0; the number 1 without ranges."""
        if not self.joint_columns:
            return 1.0
        columns = np.asarray(self.joint_columns, int)
        sums = self.transmission.torque(at.q, law.forces(self, at), at.world)
        inside = (sums[columns] > self.joint_range[:, 0]) & (sums[columns] < self.joint_range[:, 1])
        return jnp.ones_like(sums).at[columns].set(inside.astype(sums.dtype))


OWNER = "the actuators"
LEAVES = (
    "gain",
    "bias",
    "control_range",
    "force_range",
    "activation_range",
    "time_constant",
    "delay",
    "no_load_speed",
    "joint_range",
)
