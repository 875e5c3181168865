"""Inverse kinematics: the entry, its status, and derivatives by the implicit function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.inverse_kinematics.rest import SMALL, nearest_to_rest, to_rest
from lgjax.dynamics.inverse_kinematics.search import full, ranges, room, search
from lgjax.dynamics.inverse_kinematics.steps import bounded_step
from lgjax.dynamics.inverse_kinematics.targets import Target, checked_targets, moving, rows
from lgjax.dynamics.loops.loop import Loop, as_loops
from lgjax.execution import batched
from lgjax.execution.compiled import compiled
from lgjax.multibody.arguments import checked_arguments, checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration, join_velocity, retract
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics.implicit import implicit
from lgjax.numerics.status import NOT_FINITE, Flags, flag

Array = jax.Array

SOFT = 1e-6  # weight of the distance to what was found, where targets are out of reach


class IKStatus(Flags):
    """Flags of `inverse_kinematics`; 0 means success. Arrays of them are int32.

    NOT_FINITE   1: the errors became infinite or NaN
    NOT_REACHED  2: no guess led to the targets; what is returned comes closest
    NOT_NEAREST  4: the targets are reached, but more iterations would come nearer to the rest pose
    """

    OK = 0
    NOT_FINITE = NOT_FINITE
    NOT_REACHED = 2
    NOT_NEAREST = 4


class InverseKinematics(NamedTuple):
    """Result of `inverse_kinematics`.

    q: the configuration. status: () int32, flags of `IKStatus`. error: (), the largest of the distances (m) and angles
    (rad) to the targets and of the residuals of the loops. iterations, guesses: () int32, how many were used.
    """

    q: Configuration
    status: Array
    error: Array
    iterations: Array
    guesses: Array

    @property
    def success(self) -> Array:
        """() bool, whether no flag is set."""
        return self.status == 0


class _Problem(NamedTuple):
    """Everything that derivatives are taken with respect to; center and rest are None where there is none."""

    model: Model
    targets: dict[str, Target]
    center: Array | None
    loops: tuple[Loop, ...]
    q0: Configuration
    rest: Configuration | None
    tolerance: Array


class _Settings(NamedTuple):
    active: tuple[int, ...]
    guesses: int
    max_iterations: int


@checked_arguments("targets", "rest", compiles=False, whole=True)
def inverse_kinematics(
    model: Model | Mechanism, targets: Mapping[str, Any], q0: Configuration, *, center_of_mass: Any = None,
    rest: Configuration | None = None, weights: Mapping[str, Any] | None = None, joints: Sequence[str] | None = None,
    loops: Loop | Sequence[Loop] | None = None, guesses: int = 8, tolerance: Any = None, max_iterations: int = 40,
) -> InverseKinematics:  # fmt: skip
    """Configuration within the joint limits that puts frames at target poses.

    If q0 does not lead to the targets, the search starts again from other guesses, which spread the joints over their
    ranges and leave free bases and ball joints as in q0. If no guess leads to the targets, the result is the
    configuration found with the smallest sum of squares of weighted errors. To ignore limits, replace `lower` and
    `upper` of the model. For a batch of targets or guesses use jax.vmap.

    Derivatives with respect to targets, rest, limits and parameters of the model are those of the implicit function, of
    any order and in both modes, and take no iterations. With `rest` they follow the nearest solution, without it the
    smallest change of q. Derivatives with respect to q0 are zero.

    Args:
        model: a `Model` or a `Robot`.
        targets: {name of a frame or body: target} in the world: a Pose or a 4x4 matrix, a position (3,) in meters
            alone, or a rotation (3, 3) alone.
        q0: first guess of the search.
        center_of_mass: target (3,) of the whole mechanism in the world, m.
        rest: return, among the configurations that reach the targets, the one nearest to this one: a local minimum of
            the distance, found by descent from the first solution.
        weights: {frame: (per radian, per meter)}, by default 1 and the inverse of half the length of the chain to the
            frame, and 1 per meter of the center of mass; they matter if targets are out of reach.
        joints: names of the joints that may move, by default all that targets and loops depend on, free bases included;
            the others stay as in q0.
        loops: loops that the result keeps closed, by default those of a Robot; `()` for none.
        guesses: largest number of guesses tried, including q0.
        tolerance: largest `error` of a solution, rad and m; 1e-8 by default, 1e-5 in float32.
        max_iterations: largest number of iterations of each descent.

    Returns:
        an `InverseKinematics`: q, status, error, iterations.

    Raises:
        TypeError: for targets that are not a dict.
        ValueError: for unknown names and for numbers of the wrong shape or out of range.

    Source: [more1978], [sugihara2011], [rosen1961]; limits by projection.
    """
    given = loops if loops is not None else getattr(model, "loops", ())
    model = checked_model(model)
    several = as_loops(model, given) if isinstance(given, Loop) or len(given) else ()
    wanted = checked_targets(model, targets, weights)
    if not wanted and center_of_mass is None:
        raise ValueError("targets is empty and there is no center_of_mass: nothing is to be reached")
    if center_of_mass is not None:
        center_of_mass = checks.array("center_of_mass", center_of_mass, (3,), model.dtype)
    rest = None if rest is None else checked_configuration("rest", rest, model)
    default = 1e-8 if model.dtype == jnp.float64 else 1e-5
    tolerance = checks.scalar("tolerance", default if tolerance is None else tolerance, model.dtype, positive=True)
    active = tuple(int(n) for n in moving(model, list(wanted), center_of_mass is not None, several, joints))
    settings = _Settings(active, checks.integer("guesses", guesses), checks.integer("max_iterations", max_iterations))
    return compiled(_solve)(settings, _Problem(model, wanted, center_of_mass, several, q0, rest, tolerance))


def _solve(settings: _Settings, p: _Problem) -> InverseKinematics:
    active = np.asarray(settings.active)
    outcome = batched(partial(_found, settings))(jax.lax.stop_gradient(p))
    q, status, multipliers, reached = outcome.q, outcome.status, outcome.multipliers, outcome.reached
    n = len(active)
    held_low, held_high = outcome.held

    def residual(z):
        d, force = z[:n], z[n:]
        here = retract(p.model, q, full(p.model, active, d))
        at = rows(p.model, p.targets, p.center, p.loops, active, here)
        away = -to_rest(here, q if p.rest is None else p.rest, p.model)[active]
        low, high = (x[active] for x in _limits(p.model, here))
        slope = jnp.where(reached, 1, SOFT) * away + force @ at.jacobian
        stiff = jnp.where(reached, 1e-3 * jnp.finfo(p.model.dtype).eps, 1)
        first = jnp.where(held_low, low, jnp.where(held_high, high, slope))
        return jnp.concatenate([first, at.error - stiff * force])

    start = jnp.concatenate([jnp.zeros(n, p.model.dtype), multipliers])
    z, _ = implicit(batched(residual), lambda z: (z, None), start)
    moved = retract(p.model, q, full(p.model, active, z[:n]))
    return InverseKinematics(moved, status, outcome.error, outcome.iterations, outcome.guesses)


class _Outcome(NamedTuple):
    q: Configuration
    status: Array
    error: Array
    iterations: Array
    guesses: Array
    reached: Array
    multipliers: Array
    held: tuple[Array, Array]


def _found(settings: _Settings, p: _Problem) -> _Outcome:
    """The search, with what its derivatives need: multipliers of the rows and joints that are held at their limits."""
    active = np.asarray(settings.active)
    evaluate = partial(rows, p.model, p.targets, p.center, p.loops, active)
    found = search(p.model, evaluate, active, p.q0, p.tolerance, settings.guesses, settings.max_iterations)
    nearest = jnp.ones((), bool)
    pull = jnp.zeros(len(active), p.model.dtype)
    if p.rest is not None:
        found, nearest = nearest_to_rest(
            p.model, evaluate, active, found, p.rest, p.tolerance, 5 * settings.max_iterations
        )
        pull = to_rest(found.q, p.rest, p.model)[active]
    low, high = (x[active] for x in room(p.model, ranges(p.model), found.q))
    damping = float(jnp.finfo(p.model.dtype).eps) * jnp.sum(found.at.jacobian**2)
    _, forces = bounded_step(0 * found.at.error, found.at.jacobian, pull, damping, low, high, 4)
    forces = jnp.where(found.reached, forces, found.at.error)
    slope = forces @ found.at.jacobian - jnp.where(found.reached, pull, 0)
    close = jnp.where(found.reached, float(jnp.finfo(p.model.dtype).eps) ** SMALL, 0)  # where the way to rest ends
    held = (low >= -close) & (slope > 0), (high <= close) & (slope < 0)
    finite = jnp.isfinite(found.at.size)
    status = flag(IKStatus.NOT_FINITE, ~finite) | flag(IKStatus.NOT_REACHED, finite & ~found.reached)
    status = status | flag(IKStatus.NOT_NEAREST, found.reached & ~nearest)
    return _Outcome(
        found.q, status, found.at.size, found.iterations, found.starts, found.reached, forces, held
    )  # fmt: skip


def _limits(model: Model, q: Configuration) -> tuple[Array, Array]:
    """How far q is from the limits, with derivatives with respect to them; (nv,)."""
    frees, balls = jnp.zeros((model.tree.n_free, 6), model.dtype), jnp.zeros((model.tree.n_ball, 3), model.dtype)
    low, high = (join_velocity(model.tree, frees, x - q.joints, balls) for x in (model.lower, model.upper))
    return low, high
