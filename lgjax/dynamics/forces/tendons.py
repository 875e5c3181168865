"""Forces along lengths, such as tendons: springs with a dead band, dampers, dry friction, soft limits.

Read first: `force.py`; `dynamics/transmissions` for the lengths. A force f on a length acts on the joints as
moments^T f. These forces couple joints, so that implicit steps take their `rows`, not `slopes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces.force import Force
from lgjax.dynamics.forces.laws import (
    drag,
    drag_slope,
    dry_friction,
    dry_friction_slope,
    power_sum,
    spring_energy,
    spring_pull,
    spring_slope,
    stop_energy,
    stop_slopes,
    stops,
)
from lgjax.dynamics.joint_parameters import parameter
from lgjax.dynamics.transmissions import Transmissions
from lgjax.numerics import checks


class Along(Force):
    """A pull towards shorter lengths that depends on the length and its rate, for n lengths: what the kinds share."""

    lengths: Transmissions

    def pull(self, length, rate) -> jax.Array:
        """Pull (n,) that shortens the lengths, N or N m, at lengths (n,) and their rates (n,)."""
        raise NotImplementedError

    def pull_slopes(self, length, rate) -> tuple[jax.Array, jax.Array]:
        """Derivatives of the pull with respect to length and rate, (n,) each."""
        raise NotImplementedError

    def stored(self, length) -> jax.Array:
        """Potential energy (n,), J."""
        return jnp.zeros_like(length)

    def __call__(self, t, q, v):
        world = self.lengths.kinematics(q)
        pull = self.pull(self.lengths.lengths(q, world), self.lengths.rates(q, v, world))
        return self.lengths.torque(q, -pull, world)

    def energy(self, q):
        return jnp.sum(self.stored(self.lengths.lengths(q)))

    def rows(self, t, q, v):
        world = self.lengths.kinematics(q)
        length, rate = self.lengths.lengths(q, world), self.lengths.rates(q, v, world)
        stiffness, damping = (jnp.maximum(x, 0) for x in self.pull_slopes(length, rate))
        return self.lengths.moments(q, world), stiffness, damping

    def for_model(self, model):
        return replace(self, lengths=self.lengths.for_model(model))  # type: ignore[type-var]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TendonSpring(Along):
    """Springs (stiffness + quadratic x + cubic x^2) x with the distance x of a length from the band [low, high]."""

    lengths: Transmissions
    stiffness: jax.Array
    quadratic: jax.Array | None
    cubic: jax.Array | None
    low: jax.Array
    high: jax.Array

    def pull(self, length, rate):
        x = self._stretch(length)
        return spring_pull(x, x, self._coefficients)

    def pull_slopes(self, length, rate):
        x = self._stretch(length)
        slope = power_sum(x, *self._coefficients) + spring_slope(x, jnp.ones_like(x), self._coefficients)
        loose = (length > self.low) & (length < self.high)
        return jnp.where(loose, 0, slope), jnp.zeros_like(rate)

    def stored(self, length):
        x = self._stretch(length)
        return spring_energy(x, x, self._coefficients)

    @property
    def _coefficients(self):
        return self.stiffness, self.quadratic, self.cubic

    def _stretch(self, length):
        return jnp.maximum(length - self.high, 0) + jnp.minimum(length - self.low, 0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TendonFriction(Along):
    """Friction (damping + quadratic |v| + cubic v^2) v + coulomb tanh(v / smoothing) at the rate v of a length."""

    lengths: Transmissions
    damping: jax.Array
    quadratic: jax.Array | None
    cubic: jax.Array | None
    coulomb: jax.Array | None
    smoothing: jax.Array | None

    def pull(self, length, rate):
        found = drag(rate, self._coefficients)
        return found if self.coulomb is None else found + dry_friction(rate, self.coulomb, self.smoothing)

    def pull_slopes(self, length, rate):
        found = drag_slope(rate, self._coefficients)
        if self.coulomb is not None:
            found = found + dry_friction_slope(rate, self.coulomb, self.smoothing)
        return jnp.zeros_like(length), found

    @property
    def _coefficients(self):
        return self.damping, self.quadratic, self.cubic


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TendonLimits(Along):
    """One-sided springs and dampers behind the limits of lengths; see `tendon_limits`."""

    lengths: Transmissions
    lower: jax.Array
    upper: jax.Array
    stiffness: jax.Array
    damping: jax.Array
    width: jax.Array

    def pull(self, length, rate):
        return stops(self._depths(length), rate, self.stiffness, self.damping, self.width)

    def pull_slopes(self, length, rate):
        return stop_slopes(self._depths(length), rate, self.stiffness, self.damping, self.width)

    def stored(self, length):
        above, below = (stop_energy(depth, self.stiffness, self.width) for _, depth in self._depths(length))
        return above + below

    def _depths(self, length):
        return (1, length - self.upper), (-1, self.lower - length)


# ---- makers
def tendon_spring(
    tendons: Transmissions, stiffness: Any, rest: Any, quadratic: Any = None, cubic: Any = None
) -> TendonSpring:
    """Springs along n lengths, such as tendons: pull = stiffness x + quadratic x^2 + cubic x^3.

    A positive pull shortens the length; the force on the joints is -moments^T pull (nv,). tendons: `Transmissions`,
    such as `lgjax.actuators.spatial_tendons`. rest: lengths at which x is zero, m or rad, one number or (n,), or a
    tuple (low, high) of these: in this band a spring is loose, and x is the length above (positive) or below (negative)
    it. stiffness: N/m or N m/rad, one number or (n,). quadratic, cubic: N/m^2, N/m^3 or N m/rad^2, N m/rad^3; they may
    be negative.
    Raises ValueError naming the tendon for numbers out of range. Source: MuJoCo's passive forces of tendons.
    """
    names = _names(tendons)
    dtype = tendons.dtype
    low, high = rest if isinstance(rest, tuple) and len(rest) == 2 else (rest, rest)
    ends = _interval("rest", ("low", low), ("high", high), names, dtype)
    second, third = _more(quadratic, cubic, names, dtype)
    return TendonSpring(tendons, parameter("stiffness", stiffness, names, dtype), second, third, *ends)


def tendon_friction(
    tendons: Transmissions,
    damping: Any = 0.0,
    coulomb: Any = None,
    smoothing: Any = 1e-2,
    quadratic: Any = None,
    cubic: Any = None,
) -> TendonFriction:
    """Friction along n lengths: pull = damping v + quadratic |v| v + cubic v^3 + coulomb tanh(v / smoothing).

    v is the rate of a length, m/s or rad/s; the force on the joints is -moments^T pull (nv,). damping: N s/m or N m
    s/rad. quadratic and cubic may be negative. coulomb: N or N m, none by default. smoothing: speed, m/s or rad/s, at
    which three quarters of coulomb act. Each is one number or (n,).
    Raises ValueError naming the tendon for numbers out of range. Source: MuJoCo's passive forces of tendons; dry
    friction as in `friction`.
    """
    names, dtype = _names(tendons), tendons.dtype
    dry = coulomb is not None
    second, third = _more(quadratic, cubic, names, dtype)
    return TendonFriction(
        tendons,
        parameter("damping", damping, names, dtype),
        second,
        third,
        parameter("coulomb", coulomb, names, dtype) if dry else None,
        parameter("smoothing", smoothing, names, dtype, positive=True) if dry else None,
    )


def tendon_limits(
    tendons: Transmissions,
    stiffness: Any,
    lower: Any = -np.inf,
    upper: Any = np.inf,
    damping: Any = 0.0,
    width: Any = 1e-3,
) -> TendonLimits:
    """Soft stops at limits of n lengths, by the law of `limits`.

    Beyond a limit the force grows as stiffness depth^2 / (2 width) up to `width` (m or rad), then with slope
    `stiffness` (N/m or N m/rad); damping (N s/m or N m s/rad) fades in over the same length. lower, upper: m or rad;
    infinite ones never act. Each is one number or (n,). Raises ValueError naming the tendon for numbers out of range.
    """
    names, dtype = _names(tendons), tendons.dtype
    ends = _interval("limits", ("lower", lower), ("upper", upper), names, dtype)
    return TendonLimits(
        tendons,
        *ends,
        parameter("stiffness", stiffness, names, dtype),
        parameter("damping", damping, names, dtype),
        parameter("width", width, names, dtype, positive=True),
    )


def _names(tendons: Transmissions) -> list[str]:
    if not isinstance(tendons, Transmissions):
        raise TypeError(f"tendons are Transmissions, got {checks.described(tendons)}")
    return [f"tendon {i}" for i in range(len(tendons))]


def _more(quadratic, cubic, names: Sequence[str], dtype) -> tuple[jax.Array | None, jax.Array | None]:
    both = (("quadratic", quadratic), ("cubic", cubic))
    found = [None if value is None else parameter(what, value, names, dtype, -np.inf) for what, value in both]
    return found[0], found[1]


def _interval(
    what: str, first: tuple[str, Any], last: tuple[str, Any], names: Sequence[str], dtype
) -> tuple[jax.Array, jax.Array]:
    """Both ends (n,) of intervals, from name and value of each; a low one that is traced and too high is NaN."""
    low = parameter(first[0], first[1], names, dtype, -np.inf, finite=False)
    high = parameter(last[0], last[1], names, dtype, -np.inf, finite=False)
    if not checks.known(low, high):
        return jnp.where(low > high, jnp.nan, low), high
    for name, a, b in zip(names, np.asarray(low).tolist(), np.asarray(high).tolist(), strict=True):
        if a > b:
            raise ValueError(f"{what} of {name!r}: {a:g} is above {b:g}")
    return low, high
