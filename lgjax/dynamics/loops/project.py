"""Projection of positions and velocities onto the constraints, by the nearest point in the kinetic-energy metric."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.loops.constraint import loop_constraint
from lgjax.dynamics.loops.forward import rank_tolerance
from lgjax.dynamics.loops.loop import Loop, as_loops
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


class Projection(NamedTuple):
    """Result of `project_positions`: q, the length of the residual phi(q), iterations and success.

    Where it did not converge q is the best that was found: the loops cannot be closed from there.
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


class _State(NamedTuple):
    step: jax.Array
    residual: jax.Array
    jacobian: jax.Array
    error: jax.Array
    moved: jax.Array
    radius: jax.Array
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
    max_iterations: int = 50,
) -> Projection:
    """The configuration with closed loops that is nearest to q: retract(q, d) with the least d^T M(q) d.

    metric "mass": M is the mass matrix at q; "plain": the identity. Gauss-Newton steps on the manifold, none longer
    than half a radian or meter in an entry. tolerance: of the residual's length, by default eps^(3/4); rank: see
    `constrained_forward_dynamics`; both may be traced. Derivatives in everything that is traced are those of the
    implicit function, of any order and in both modes, and cost no iterations. Always ends.
    Raises ValueError for an unknown metric and for max_iterations below 1.
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
        raise ValueError(f"metric is 'mass' or 'plain', not {metric!r}")


@checked_arguments()
def project_velocity(
    model: Model, loops: Loop | Sequence[Loop], q: Configuration, v: jax.Array, *, tolerance: Any = None
) -> jax.Array:
    """The velocity (nv,) nearest to v in the kinetic-energy metric that keeps the loops closed, A v = 0.

    It is what is left of v after an impulse of the constraints; the kinetic energy never grows.
    tolerance: see `constrained_forward_dynamics`.
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


@partial(jax.jit, static_argnums=0)  # for calls outside jit
def _solve(settings: _Settings, p: _Problem, limits):
    """(step, residual, iterations, converged). Sequential quadratic programming without second derivatives."""
    tolerance, rank = limits
    small = jnp.finfo(tolerance.dtype).eps ** 0.5

    def unfinished(s: _State):
        going = (s.error > tolerance) | (s.moved > small)
        return going & jnp.isfinite(s.error) & (s.iterations < settings.max_iterations)

    def iterate(s: _State):
        chosen = _chosen(s.jacobian, rank)
        B = product(chosen.combine, s.jacobian)
        X = _lowered(p.model, p.q, B, settings.metric)
        ahead = product(B, s.step) - product(chosen.combine, s.residual)
        target = product(X.T, product(_complement(B, X, chosen.kept), ahead))
        change = target - s.step
        size = jnp.max(jnp.abs(change))
        step = s.step + change * jnp.minimum(1, s.radius / jnp.maximum(size, s.radius))
        residual, jacobian = _at(p, step)
        error = norm(residual)
        radius = jnp.where(error > s.error, s.radius / 2, jnp.minimum(2 * s.radius, LONGEST))
        better = (error < s.least) | (error <= tolerance)
        best, least = jnp.where(better, step, s.best), jnp.where(better, error, s.least)
        return _State(step, residual, jacobian, error, size, radius, best, least, s.iterations + 1)

    zero = jnp.zeros((), tolerance.dtype)
    still = jnp.zeros(p.model.nv, tolerance.dtype)
    residual, jacobian = _at(p, still)
    error = norm(residual)
    start = _State(still, residual, jacobian, error, zero, zero + LONGEST, still, error, jnp.zeros((), jnp.int32))
    end = iterate_while(unfinished, iterate, start)
    return end.best, end.least, end.iterations, end.least <= tolerance


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
