"""Farthest point of a convex set given by smooth convex inequalities.

maximize direction · z over constraints(z) <= 0. A primal-dual interior point method comes close from any start, Newton
steps on the optimality conditions go to round-off, and the implicit function theorem on the same conditions gives the
derivatives, which do not depend on how the point was found.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import by_columns, implicit
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.rank import longest_row, pseudo_inverse
from lgjax.shapes.contact import Array

MAX_ITERATIONS = 100
CENTRING = 0.1  # by how much an iteration tries to reduce the complementarity s_i lambda_i
POLISH = 2  # Newton steps at the end
BOLD = 20  # iterations in which the residuals may grow
TO_BOUNDARY = 0.99  # the part of the way to the nearest bound that a step may go


class Optimum(NamedTuple):
    """The maximizer z (n,), multipliers (k,), residual () of the optimality conditions, and whether z is unique.

    The residual of a solved problem is near round-off; a set without interior, or an unbounded one, leaves it large.
    """

    z: Array
    multipliers: Array
    residual: Array
    unique: Array


def maximize(problem, parameters, direction: Array, start: Array, size: Array) -> Optimum:
    """Maximize direction · z over problem(parameters, z) (k,) <= 0, smooth and convex in z (n,), n <= 6.

    `problem` is hashable; direction has about unit length; `size` is the extent of the set, to a power of ten;
    constraints are scaled to be about -1 in the middle. Differentiable in parameters and direction.
    """
    start, size = jax.lax.stop_gradient((start, size))
    z, multipliers = solve(problem, parameters, direction, start, size)
    # What follows judges the result; it has no derivative.
    p, d, point, lam = jax.lax.stop_gradient((parameters, direction, z, multipliers))
    conditions = _conditions(problem, p, d, size)
    response = jnp.linalg.solve(_jacobian(conditions, point, lam), jnp.eye(len(d) + len(lam), len(d), dtype=d.dtype))
    unique = jnp.max(jnp.abs(response[: len(d)])) < size * float(jnp.finfo(d.dtype).eps) ** -0.5
    violation = jnp.max(problem(p, point), initial=0)
    residual = jnp.maximum(jnp.max(jnp.abs(conditions(point, lam))), violation)
    return Optimum(z, multipliers, residual, unique)


def _conditions(problem, parameters, direction, size):
    """The optimality conditions as a function of (z, multipliers): stationarity (n,), complementarity (k,)."""

    def conditions(z, multipliers):
        g, pull = jax.vjp(lambda z: problem(parameters, z), z)
        # Each product is divided by the sum of its factors, of which one is near zero: so every row is of order one.
        weight = jax.lax.stop_gradient(multipliers / size + jnp.abs(g))
        return jnp.concatenate([pull(multipliers)[0] - direction, multipliers / size * g / weight])

    return conditions


def _jacobian(conditions, z, multipliers) -> Array:
    """Derivative (n + k, n + k) of the conditions."""
    return jnp.concatenate(jax.jacfwd(conditions, (0, 1))(z, multipliers), axis=1)


def _newton(conditions, z, multipliers):
    """One full Newton step on the conditions, kept if it makes them hold better."""
    residual = conditions(z, multipliers)
    step = jnp.linalg.solve(_jacobian(conditions, z, multipliers), residual)
    new_z, new_multipliers = z - step[: len(z)], multipliers - step[len(z) :]
    better = jnp.max(jnp.abs(conditions(new_z, new_multipliers))) < jnp.max(jnp.abs(residual))
    better &= jnp.all(new_multipliers >= 0)
    return jnp.where(better, new_z, z), jnp.where(better, new_multipliers, multipliers)


def _find(problem, parameters, direction, start, size):
    """The maximizer and its multipliers, not judged; see `maximize` for the arguments."""

    def iterate(state):
        return (state[0] + 1, *_interior_step(problem, parameters, direction, size, *state))

    def unfinished(state):
        count, z, slack, multipliers = state
        infeasible = jnp.max(jnp.abs(problem(parameters, z) + slack))
        small = float(jnp.finfo(z.dtype).eps)
        return (count < MAX_ITERATIONS) & ((jnp.max(slack * multipliers) > small * size) | (infeasible > 10 * small))

    slack = jnp.maximum(-problem(parameters, start), 0.1)
    _, z, _, multipliers = iterate_while(unfinished, iterate, (0, start, slack, size / slack))
    conditions = _conditions(problem, parameters, direction, size)
    return jax.lax.fori_loop(0, POLISH, lambda _, state: _newton(conditions, *state), (z, multipliers))


def _interior_step(problem, parameters, direction, size, count, z, slack, multipliers):
    """One damped Newton step towards g + s = 0, stationarity and s_i lambda_i = a tenth of their mean."""

    def lagrangian(z, multipliers):
        return sm.dot(problem(parameters, z), multipliers)

    def residuals(z, slack, multipliers):
        return (
            jax.grad(lagrangian)(z, multipliers) - direction,
            problem(parameters, z) + slack,
            (slack * multipliers - target) / size,
        )

    def merit(step):
        parts = residuals(z + step * dz, slack + step * dslack, multipliers + step * dmultipliers)
        return sum(jnp.sum(part * part) for part in parts)

    def reach(value, change):
        return jnp.min(jnp.where(change < 0, -TO_BOUNDARY * value / jnp.where(change < 0, change, -1), 1), initial=1)

    target = CENTRING * jnp.mean(slack * multipliers)
    stationarity, infeasibility, _ = residuals(z, slack, multipliers)
    gradients = jax.jacfwd(lambda z: problem(parameters, z))(z)
    n = len(z)
    # A flat face has no curvature, and neither has a quartic at its middle; a proximal term moves no optimum.
    ridge = (1e-3 * jnp.max(jnp.abs(stationarity)) + float(jnp.finfo(z.dtype).eps) ** 0.5) / size
    curvature = jax.hessian(lagrangian)(z, multipliers) + ridge * sm.identity(n, z.dtype)
    # Not reduced to n unknowns: that would lose the curvature next to multipliers / slack, in float32 first.
    weight = multipliers / size + slack
    matrix = jnp.block(
        [
            [curvature, sm.transpose(gradients)],
            [-(multipliers / size / weight)[:, None] * gradients, sm.diagonal(slack / size / weight)],
        ]
    )
    wanted = (target - slack * multipliers + multipliers * infeasibility) / (size * weight)
    step = jnp.linalg.solve(matrix, jnp.concatenate([-stationarity, wanted]))
    dz, dmultipliers = step[:n], step[n:]
    dslack = -infeasibility - sm.matvec(gradients, dz)
    longest = jnp.minimum(reach(slack, dslack), reach(multipliers, dmultipliers))
    steps = longest * 0.5 ** jnp.arange(8, dtype=z.dtype)
    # At first residuals may grow, within a bound: in a thin set nearly every step would be cut short otherwise.
    merits = jax.vmap(merit)(steps)
    enough = merits <= (1 - 0.01 * steps) * merit(jnp.zeros_like(longest))
    enough |= (count < BOLD) & (merits < 10)
    step = jnp.where(jnp.any(enough), steps[jnp.argmax(enough)], steps[-1])
    new = z + step * dz, slack + step * dslack, multipliers + step * dmultipliers
    usable = jnp.all(jnp.isfinite(jnp.concatenate(new)))
    return tuple(jnp.where(usable, after, before) for after, before in zip(new, (z, slack, multipliers), strict=True))


def differentiable(find):
    """`find(problem, parameters, direction, start, size)` -> (z, multipliers) with derivatives by the conditions.

    Where a surface has no curvature, its farthest point moves infinitely fast along it: that part is left out, and the
    distance still has its derivative.
    """

    def solve(problem, parameters, direction, start, size):
        conditions, n = _conditions(problem, parameters, direction, size), len(direction)
        search = lambda _: (jnp.concatenate(find(problem, parameters, direction, start, size)), ())
        k = jax.eval_shape(problem, parameters, direction).shape[0]
        like = jnp.zeros(n + k, direction.dtype)
        x, _ = implicit(lambda x: conditions(x[:n], x[n:]), search, like, by_columns(_inverse))
        return x[:n], x[n:]

    return solve


def _inverse(jacobian):
    """But for directions that move so fast that three quarters of the digits are lost; thin plates are far from it."""
    return pseudo_inverse(jacobian, float(jnp.finfo(jacobian.dtype).eps) ** 0.75 * longest_row(jacobian))


def _climb(problem, parameters, direction, starts, size):
    """The highest point of the curve where two constraints vanish, from many starts (m, 3), which may be NaN."""

    def values(z):
        return problem(parameters, z), jax.jacfwd(lambda z: problem(parameters, z))(z)

    def least_squares(gradients, x):  # the coefficients (2,) of the rows of gradients (2, 3) nearest to x (3,)
        return sm.ldl_solve(sm.ldl(sm.matmult(gradients, gradients)), sm.matvec(gradients, x))

    def step(i, z):
        g, gradients = values(z)
        along = direction - sm.tmatvec(gradients, least_squares(gradients, direction))
        back = sm.tmatvec(gradients, sm.ldl_solve(sm.ldl(sm.matmult(gradients, gradients)), g))
        # Steps that shrink settle on any curve, however tightly it bends.
        return z + 0.3 * 0.9**i * size * along - back

    ends = jax.vmap(lambda z: jax.lax.fori_loop(0, MAX_ITERATIONS, step, z))(starts)
    off = jnp.max(jnp.abs(jax.vmap(lambda z: problem(parameters, z))(ends)), axis=1)
    height = jnp.where(off < float(jnp.finfo(size.dtype).eps) ** 0.5, sm.matvec(ends, direction), -jnp.inf)
    z = ends[jnp.argmax(height)]
    multipliers = least_squares(values(z)[1], direction)
    conditions = _conditions(problem, parameters, direction, size)
    return jax.lax.fori_loop(0, 2 + 2 * POLISH, lambda _, state: _newton(conditions, *state), (z, multipliers))


solve = differentiable(_find)
climb = differentiable(_climb)
