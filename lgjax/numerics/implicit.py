"""Solutions of equations, however found, with the derivatives of the implicit function."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution._jax import hoisted
from lgjax.execution.kept import keep
from lgjax.execution.unseen import unseen
from lgjax.numerics import saddle_point
from lgjax.numerics import small_matrix as sm

Array = jax.Array
Map = Callable[[Array], Array]
Solve = Callable[[Map, Array], Array]
Solver = Callable[[Map, Array], tuple[Solve, Solve]]

FEW = 6


def by_columns(invert: Callable[[Array], Array] = lambda slope: saddle_point.general_inverse(slope)[0]) -> Solver:
    """Solves with the inverse of the matrix of a linear map, made once; `invert` is from (n, n) to (n, n)."""

    def solver(linear: Map, like: Array) -> tuple[Solve, Solve]:
        # Many columns one after the other, which is less code than all at once.
        columns = jax.vmap(linear) if len(like) <= FEW else lambda eye: jax.lax.map(linear, eye)
        inverse = invert(sm.transpose(columns(jnp.eye(len(like), dtype=like.dtype))))
        return lambda _, r: jnp.sum(inverse * r, axis=1), lambda _, r: jnp.sum(inverse * r[:, None], axis=0)

    return solver


def implicit(
    residual: Map,
    find: Callable[[Array], tuple[Array, Any]],
    guess: Array,
    solver: Solver | None = None,
    kept: bool = False,
) -> tuple[Array, Any]:
    """find(guess), a root x (n,) of the residual and further output, x with the derivatives of the implicit function.

    These are with respect to everything that residual and find close over, in both modes and of any order; within scans
    of the first and second order.  The guess and the further output have no derivatives.

    solver  (linear, x) -> (solve, solve_transposed), both (map, y) -> z with map(z) = y.  `linear` is the derivative of
            the residual at x; `solve` gets this map and `solve_transposed` its transpose.  Both may use what the solver
            has made of `linear`.
    kept    whether a kernel hands the root to its derivatives, which then do not search again; see `execution/kept.py`.
    """
    # Of a step in a scan, JAX drops rules after the first derivative, as it does with `lax.custom_root`. A second one
    # would pass through the iterations, of which there may be none. So a root without its rule is a constant, and the
    # rule adds a correction of value zero: its derivative is that of the root if that is a constant, and zero if not.
    solver = by_columns() if solver is None else solver
    residual, of_residual = hoisted(residual, guess)
    find, of_find = hoisted(find, guess)
    hand_on = keep if kept else lambda x: x

    @jax.custom_jvp
    def root(of_residual: Any, of_find: Any, guess: Array) -> tuple[Array, Any]:
        return hand_on(jax.lax.stop_gradient(find(*jax.lax.stop_gradient((guess, *of_find)))))

    @root.defjvp
    def _(primals: Any, tangents: Any) -> tuple[tuple, tuple]:
        (given, *_), (change, *_) = primals, tangents
        found, more = hand_on(root(*primals))
        held = jax.lax.stop_gradient((found, *given))
        _, linear = jax.linearize(lambda x: residual(x, *held[1:]), held[0])
        solve, solve_transposed = solver(linear, held[0])
        correction = jax.lax.custom_linear_solve(linear, residual(found, *given), solve, solve_transposed)
        x = found - unseen(correction)
        along = jax.jvp(lambda y: residual(x, *y), (given,), (change,))[1]
        slope = lambda dx: jax.jvp(lambda x: residual(x, *given), (x,), (dx,))[1]
        moved = jax.lax.custom_linear_solve(slope, along, solve, solve_transposed)
        # One, but with a tangent: `custom_linear_solve` fails where only its transpose has one.
        one = 1.0 + 0.0 * unseen(x)
        return (x, more), (-moved * one, jax.tree.map(no_tangent, more))

    return root(of_residual, of_find, guess)


def known_root(residual: Map, root: Array, solve: Map, solve_transposed: Map) -> Array:
    """A root x (n,) of the residual, with the derivatives of the implicit function.

    They are with respect to everything that residual closes over, in both modes, and within scans of the first order.
    `solve` gives the z with L z = y for the derivative L of the residual at the root, `solve_transposed` that with
    L^T z = y. What they close over has no derivatives.
    """
    residual, given = hoisted(residual, root)
    solve, forward = hoisted(solve, root)
    solve_transposed, backward = hoisted(solve_transposed, root)

    @jax.custom_jvp
    def known(root: Array, given: Any, fixed: Any) -> Array:
        return root

    @known.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        x, (_, given, (forward, backward)) = known(*primals), primals
        along = jax.jvp(lambda y: residual(x, *y), (given,), tangents[1:2])[1]
        slope = lambda dx: jax.jvp(lambda x: residual(x, *given), (x,), (dx,))[1]
        ways = lambda _, y: solve(y, *forward), lambda _, y: solve_transposed(y, *backward)
        return x, -jax.lax.custom_linear_solve(slope, along, *ways)

    return known(*jax.lax.stop_gradient((root,)), given, jax.lax.stop_gradient((forward, backward)))


def over(y: Array, slope: Array) -> Array:
    """y / slope, and zero where the slope is zero or not finite."""
    flat = (slope == 0) | ~jnp.isfinite(slope)
    return jnp.where(flat, jnp.zeros_like(y), y / jnp.where(flat, jnp.ones_like(slope), slope))


def implicit_number(function: Map, root: Array) -> Array:
    """`root` (), a zero of the function, with the derivatives of the implicit function; zero where its slope is."""

    def newton(f: Map, x: Array) -> Array:
        # Not to come nearer: JAX differentiates through it, where it should not, in second derivatives through a scan.
        value, slope = jax.jvp(f, (x,), (jnp.ones_like(x),))
        change = over(value, jax.lax.stop_gradient(slope))
        return x - jnp.where(jnp.isfinite(change), change, 0)

    root = jax.lax.stop_gradient(root)
    moving = jax.lax.custom_root(function, root, newton, lambda linear, y: over(y, linear(jnp.ones_like(y))))
    return moving + jax.lax.stop_gradient(root - moving)


def no_tangent(x: Array) -> Any:
    """Zero tangent of an array of floats or integers."""
    floating = jnp.issubdtype(x.dtype, jnp.inexact)
    return jnp.zeros_like(x) if floating else np.zeros(x.shape, jax.dtypes.float0)
