"""Projection of positions and velocities onto the constraints, by the nearest point in the kinetic-energy metric."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.loops.constraint import loop_constraint
from lgjax.dynamics.loops.forward import rank_tolerance
from lgjax.dynamics.loops.loop import Loop, as_loops
from lgjax.dynamics.mass_matrix import mass_matrix
from lgjax.dynamics.mass_solve import solve_mass_matrix
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration, difference, retract
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.rank import independent_rows, longest_row, product, regular_inverse
from lgjax.numerics.small_angle import norm

Metric = Literal["mass", "plain"]
LONGEST = 0.5  # of the entries of a step, radians or meters
ABSURD = 100  # times one and the displacement so far: longer steps along the constraints show that their model is wrong


class Projection(NamedTuple):
    """Result of `project_positions`: q, the length of the residual phi(q), iterations and success.

    converged: the loops are closed to the tolerance, and q is nearer to the start than its closed neighbors: the last
    step was shorter than eps^(1/4) in every entry. Where it did not converge q is the best that was found: if the
    residual is small the loops are closed but more iterations would find a nearer q; otherwise they cannot be closed by
    going downhill from there, or not in so few iterations.
    """

    q: Configuration
    residual: jax.Array
    iterations: jax.Array
    converged: jax.Array


class _Problem(NamedTuple):
    """Everything that derivatives are taken with respect to."""

    model: Model
    loops: tuple[Loop, ...]
    q: Configuration


class _Settings(NamedTuple):
    metric: str
    max_iterations: int


class _Metric(NamedTuple):
    matrix: jax.Array
    inverse: jax.Array


class _Point(NamedTuple):
    """A displacement from the start, with what the constraints there say to first order.

    error: of the residual. normal, plain: (nv,), the steps that would close the loops, the shortest in the metric and
    the shortest of all. along: (nv, nv), the part of a motion that keeps the loops as they are. multipliers: (m,), with
    which pull = M step - A^T multipliers (nv,) is shortest: zero at the nearest point. cost: half the squared length of
    step + normal, what the distance will be when the loops are closed; residuals change it to second order only.
    """

    step: jax.Array
    jacobian: jax.Array
    error: jax.Array
    normal: jax.Array
    plain: jax.Array
    along: jax.Array
    multipliers: jax.Array
    pull: jax.Array
    cost: jax.Array


class _State(NamedTuple):
    """inverse: (nv, nv), of the Lagrangian's second derivative along the constraints.

    tube: the largest error to which a step may go that is taken because it lowers the cost. moved: by the last step.
    """

    at: _Point
    inverse: jax.Array
    radius: jax.Array
    tube: jax.Array
    moved: jax.Array
    best: jax.Array
    least: jax.Array
    iterations: jax.Array


@checked_arguments()
def project_positions(
    model: Model,
    loops: Loop | Sequence[Loop],
    q: Configuration,
    *,
    metric: Metric = "mass",
    tolerance: Any = None,
    rank: Any = None,
    max_iterations: int = 200,
) -> Projection:
    """The configuration with closed loops that is nearest to q: retract(q, d) with the least d^T M(q) d.

    Each step leads toward the constraints and along them at once. No entry of it is longer than half a radian or meter,
    and it is taken only if it comes closer to one of the two goals. Loops that are nearly closed take a few steps,
    others tens. Nearest means a local minimum. Derivatives with respect to everything that is traced are those of the
    implicit function, of any order and in both modes, and cost no iterations; they hold where `converged` is True.

    Args:
        model: the mechanism.
        loops: one `Loop` or several.
        q: a configuration, whose loops may be open.
        metric: "mass": M is the mass matrix at q; "plain": the identity.
        tolerance: largest length of the residual of closed loops, by default eps^(3/4); may be traced.
        rank: relative size below which constraints count as dependent, `tolerance` of `constrained_forward_dynamics`;
            may be traced.
        max_iterations: largest number of steps, static.

    Returns:
        a `Projection`: q, residual, iterations, converged.

    Raises:
        ValueError: for an unknown metric and for max_iterations below 1.

    Example:
        >>> s = lgjax.systems.four_bar()
        >>> bool(lgjax.project_positions(s.model, s.loops, s.q0).converged)
        True
    """
    check_metric(metric)
    several = as_loops(model, loops)
    default = float(jnp.finfo(model.dtype).eps) ** 0.75
    tolerance = checks.scalar("tolerance", default if tolerance is None else tolerance, model.dtype)
    limits = tolerance, rank_tolerance(model, rank, "rank")
    settings = _Settings(metric, checks.integer("max_iterations", max_iterations))
    step, residual, iterations, converged = _nearest(settings, _Problem(model, several, q), limits)
    return Projection(retract(model, q, step), residual, iterations, converged)


def check_metric(metric: str) -> None:
    if metric not in ("mass", "plain"):
        raise ValueError(f"metric is 'mass' or 'plain', not {checks.shown(metric)}")


@checked_arguments()
def project_velocity(
    model: Model, loops: Loop | Sequence[Loop], q: Configuration, v: jax.Array, *, tolerance: Any = None
) -> jax.Array:
    """The velocity nearest to v in the kinetic-energy metric that keeps the loops closed, A v = 0.

    It is the velocity after an impulse of the constraints; the kinetic energy never grows.

    No entry of v is held. To hold entry i at a speed, scale the result w: w0 = w * speed / w[i], all there is to do for
    one freedom. With more, add what is left of v, projected with a loop that keeps its entry i zero:
    w0 + project_velocity(model, [*loops, Loop(lambda model, q: q.joints[i : i + 1])], q, v - w0).

    Args:
        model: the mechanism.
        loops: one `Loop` or several.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        tolerance: as in `constrained_forward_dynamics`.

    Returns:
        (nv,), body frame, rad/s and m/s.

    Example:
        >>> s = lgjax.systems.four_bar()
        >>> lgjax.project_velocity(s.model, s.loops, s.q0, jnp.zeros(s.model.nv))
        Array([0., 0., 0.], dtype=float32)
    """
    return velocity_projection(model, loops, q, v, "mass", tolerance)[0]


def velocity_projection(model: Model, loops, q: Configuration, v, metric: Metric, tolerance=None):
    """(projected velocity, the length of what is left of A v, rank of A)."""
    jacobian = loop_constraint(model, loops, q).jacobian
    chosen = _chosen(jacobian, rank_tolerance(model, tolerance))
    B = product(chosen.combine, jacobian)
    X = _lowered(model, q, B, metric)
    v = v - product(X.T, product(_complement(B, X, chosen.kept), product(B, v)))
    return v, norm(product(jacobian, v)), chosen.rank


def _chosen(jacobian, tolerance):
    return independent_rows(jacobian, tolerance * longest_row(jacobian))


def _lowered(model: Model, q, rows, metric: str):
    """rows M^-1 (m, nv) in the metric."""
    if metric == "plain":
        return rows
    return jax.vmap(lambda row: solve_mass_matrix(model, q, row))(rows)


def _complement(B, X, kept):
    """(B M^-1 B^T)^-1, with ones where a row was left out."""
    return regular_inverse(product(B, X.T) + jnp.where(kept, 0, 1)[:, None] * jnp.eye(len(B), dtype=B.dtype))


def _at(p: _Problem, step):
    """Residual at retract(q, step) and its derivative (m, nv) by the entries of `step`."""
    here = retract(p.model, p.q, step)
    c = loop_constraint(p.model, p.loops, here)
    if not (p.model.tree.n_free or p.model.tree.n_ball):
        return c.residual, c.jacobian
    turn = jax.jacfwd(lambda change: difference(p.model, here, retract(p.model, p.q, step + change)))(0 * step)
    return c.residual, product(c.jacobian, turn)


def _metric(settings: _Settings, p: _Problem) -> _Metric:
    if settings.metric == "plain":
        one = jnp.eye(p.model.nv, dtype=p.model.dtype)
        return _Metric(one, one)
    M = mass_matrix(p.model, p.q)
    return _Metric(M, regular_inverse(M))


def _look(p: _Problem, rank, M: _Metric, step) -> _Point:
    residual, jacobian = _at(p, step)
    chosen = _chosen(jacobian, rank)
    B, open_by = product(chosen.combine, jacobian), product(chosen.combine, residual)
    X = product(B, M.inverse)
    inverse = _complement(B, X, chosen.kept)
    normal, plain = -product(X.T, product(inverse, open_by)), -product(B.T, open_by)
    along = jnp.eye(len(step), dtype=step.dtype) - product(X.T, product(inverse, B))
    mu = product(inverse, product(B, step))
    pull = product(M.matrix, step) - product(B.T, mu)
    cost = jnp.sum((step + normal) * product(M.matrix, step + normal)) / 2
    multipliers = product(chosen.combine.T, mu)
    return _Point(step, jacobian, norm(residual), normal, plain, along, multipliers, pull, cost)


def _longest(x):
    return jnp.max(jnp.abs(x))


def _within(x, radius):
    return x * jnp.minimum(1, radius / jnp.maximum(_longest(x), jnp.finfo(x.dtype).tiny))


def _updated(inverse, M: _Metric, at: _Point, new: _Point, closing, change):
    """Broyden-Fletcher-Goldfarb-Shanno update by the part of a step that went along the constraints.

    Skipped where the step mostly closed the loops, whose curvature across is not wanted, and where it bends down.
    """
    s = product(new.along, change)
    turned = product((new.jacobian - at.jacobian).T, new.multipliers)
    y = product(new.along.T, product(M.matrix, change) - turned)
    size, bend = jnp.sum(s * product(M.matrix, s)), jnp.sum(s * y)
    use = (bend > 1e-2 * size) & (jnp.sum(closing * product(M.matrix, closing)) <= 10 * size)
    part = 1 / jnp.where(use, bend, 1)
    z = product(inverse, y)
    cross = s[:, None] * z
    grown = part * ((1 + part * jnp.sum(y * z)) * s[:, None] * s - cross - cross.T)
    return inverse + jnp.where(use, grown, 0)


def _proposed(s: _State, M: _Metric):
    """(the part of the next step that closes the loops, the part along them, the whole unclipped, the inverse used).

    The part along goes only as far as the radius leaves. Far away, in the metric, light bodies would turn by themselves
    until they point at where they cannot reach; the plain step moves all that can help.
    """
    at = s.at
    fits = _longest(at.normal) <= s.radius
    closing = _within(jnp.where(fits, at.normal, at.plain), s.radius)
    downhill = lambda inverse: -product(at.along, product(inverse, at.pull))
    sane = _longest(downhill(s.inverse)) <= ABSURD * (1 + _longest(at.step))
    inverse = jnp.where(sane, s.inverse, M.inverse)
    wanted = downhill(inverse)
    left = jnp.maximum(s.radius - _longest(closing), 0)
    return closing, _within(wanted, left), at.normal + wanted, inverse


def _iterate(p: _Problem, limits, M: _Metric, s: _State) -> _State:
    """One step, taken if it brings the loops closer or, within the tube, the end nearer to the start."""
    tolerance, rank = limits
    first, at = s.iterations < 0, s.at
    closing, sliding, whole, inverse = _proposed(s, M)
    change = closing + sliding
    new = _look(p, rank, M, at.step + change)
    size = _longest(jnp.where(_longest(at.normal) <= s.radius, at.normal, at.plain))
    part = jnp.minimum(1, s.radius / jnp.maximum(size, s.radius))
    closer = new.error <= (1 - 0.1 * part) * at.error
    round_off = 8 * jnp.finfo(at.cost.dtype).eps * at.cost
    nearer = (new.error <= jnp.maximum(s.tube, tolerance)) & (new.cost <= at.cost + round_off)
    good = first | (closer & jnp.isfinite(new.cost)) | nearer
    narrowed = jnp.where(closer & ~nearer, jnp.maximum(s.tube / 2, new.error), s.tube)
    radius = jnp.where(good, jnp.minimum(2 * s.radius, LONGEST), jnp.minimum(s.radius, _longest(change)) / 4)
    better = first | (new.error < s.least) | (good & (new.error <= tolerance))
    return _State(
        at=jax.tree.map(lambda a, b: jnp.where(good, a, b), new, at),
        inverse=_updated(inverse, M, at, new, closing, change),
        radius=jnp.where(first, s.radius, radius),
        tube=jnp.where(first, new.error, narrowed),
        moved=_longest(whole),
        best=jnp.where(better, new.step, s.best),
        least=jnp.where(better, new.error, s.least),
        iterations=s.iterations + 1,
    )


@partial(jax.jit, static_argnums=0)  # for calls outside jit
def _solve(settings: _Settings, p: _Problem, limits):
    """(step, residual, iterations, converged). Sequential quadratic programming with learned second derivatives."""
    tolerance, dtype = limits[0], limits[0].dtype
    eps = jnp.finfo(dtype).eps
    M = _metric(settings, p)

    def unfinished(s: _State):
        going = ((s.at.error > tolerance) | (s.moved > eps**0.5)) & (s.radius > eps**0.75)
        return (s.iterations < 0) | (going & jnp.isfinite(s.at.error) & (s.iterations < settings.max_iterations))

    # Turn -1 only looks at the start: one place where constraints are evaluated is compiled.
    zero, still = jnp.zeros((), dtype), jnp.zeros(p.model.nv, dtype)
    none = jnp.zeros(sum(loop.rows(p.model, p.q) for loop in p.loops), dtype)
    nowhere = _Point(still, none[:, None] * still, zero, still, still, 0 * M.matrix, none, still, zero)
    start = _State(nowhere, M.inverse, zero + LONGEST, zero, zero, still, zero, jnp.int32(-1))
    end = iterate_while(unfinished, partial(_iterate, p, limits, M), start)
    return end.best, end.least, end.iterations, (end.least <= tolerance) & (end.moved <= eps**0.25)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _nearest(settings: _Settings, p: _Problem, limits):
    return _solve(settings, p, limits)


@_nearest.defjvp
def _nearest_jvp(settings: _Settings, primals, tangents):
    """The derivative of d = M^-1 A(d)^T lambda, phi(d) = 0, with the chosen combinations of the constraints."""
    (p, limits), (change, _) = primals, tangents
    step, *report = _nearest(settings, p, limits)
    _, jacobian = _at(p, step)
    chosen = _chosen(jacobian, limits[1])
    B = product(chosen.combine, jacobian)
    X = _lowered(p.model, p.q, B, settings.metric)
    mu = product(_complement(B, X, chosen.kept), product(B, step))

    def equations(p: _Problem, x):
        residual, jacobian = _at(p, x[: len(step)])
        force = product(product(chosen.combine, jacobian).T, x[len(step) :])
        normal = x[: len(step)] - _lowered(p.model, p.q, force[None], settings.metric)[0]
        return jnp.concatenate([normal, jnp.where(chosen.kept, product(chosen.combine, residual), x[len(step) :])])

    solution = jnp.concatenate([step, mu])
    _, slope = jax.linearize(equations, p, solution)
    still = jax.tree.map(jnp.zeros_like, p)
    slopes = jax.vmap(lambda e: slope(still, e), out_axes=1)(jnp.eye(len(solution), dtype=step.dtype))
    moved = slope(change, jnp.zeros_like(solution))
    motion = -product(regular_inverse(slopes), moved)[: len(step)]
    fixed = (jnp.zeros_like(report[0]), *(np.zeros(x.shape, jax.dtypes.float0) for x in report[1:]))
    return (step, *report), (motion, *fixed)
