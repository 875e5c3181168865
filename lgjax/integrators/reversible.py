"""Reverse mode in constant memory: a symmetric method runs the motion backwards, instead of keeping it.

A step of -h of a symmetric method undoes a step of h. The derivative of a step is needed at its start only, so that the
way back takes a step of -h, and then the derivative of the step of h from where it got. Going back adds its own
round-off to the states; saved states are taken as they were, which begins anew at each of them.
Source: Hairer, Lubich, Wanner, Geometric Numerical Integration, section V.1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators.field import Field, state_dtype, state_on, strong
from lgjax.integrators.integrate import Solution, check_method, finite_status
from lgjax.integrators.method import Method
from lgjax.integrators.scan_saved import SavedSteps, saved_steps, scan_stretches
from lgjax.numerics import checks

Array = jax.Array
Step = Callable[[Any, Array, Any, Array, Any], tuple[Any, Any]]


def integrate_reversible(
    space: HomogeneousSpace,
    field: Field,
    y0: Any,
    t0: Any,
    t1: Any,
    steps: int,
    method: Method,
    save_every: int | None = 1,
) -> Solution:
    """Integrate with a symmetric method, with a reverse mode that keeps only the states that are saved.

    Derivatives are with respect to y0, t0, t1 and all that the field closes over, in reverse mode and of first order
    only; they equal those of `integrate` up to the round-off of the way back. Methods: SymplecticLie(1/2) and its
    compositions. Raises ValueError for a method that is not symmetric, and what `integrate` raises.
    """
    check_method("integrate_reversible", method)
    if not method.symmetric:
        raise ValueError(f"integrate_reversible goes back by symmetric methods, {checks.shown(method)} is not one")
    y0, dtype = state_on(space, y0)
    start = checks.scalar("t0", t0, dtype)
    carry = strong(method.init(space, field, start, y0))
    # What the field closes over becomes an argument, as custom derivatives are with respect to arguments alone.
    pure, closed_over = jax.closure_convert(field, start, y0)

    def step(arguments: Any, t: Array, y: Any, h: Array, carry: Any) -> tuple[Any, Any]:
        return method.step(space, lambda t, y: pure(t, y, *arguments), t, y, h, carry)

    return reversible_steps(step, closed_over, y0, t0, t1, steps, save_every, carry)


def reversible_steps(
    step: Step,
    arguments: Any,
    y0: Any,
    t0: Any,
    t1: Any,
    steps: int,
    save_every: int | None = 1,
    carry: Any = (),
) -> Solution:
    """Take `steps` steps (y, carry) = step(arguments, t, y, h, carry), where a step of -h undoes a step of h.

    For steppers that are not a `Method`, such as `variational_step`. Reverse mode is with respect to arguments, y0, t0
    and t1, floating pytrees; step closes over nothing that is differentiated. A step may start its iterations from
    carry, which must not change the result.
    """
    saves = saved_steps(steps, save_every)
    checks.function("step", step)
    y0, arguments = strong(y0), strong(arguments, "arguments")
    dtype = state_dtype(y0)
    start, end = checks.scalar("t0", t0, dtype), checks.scalar("t1", t1, dtype)
    _check_step(step, arguments, start, y0, end, carry)
    ys = _solver(step, saves)(y0, start, end, arguments, carry)
    ts = start + (end - start) / saves.steps * saves.counts().astype(dtype)
    return Solution(ts, saves.with_start(y0, ys), finite_status(ys))


def _check_step(step: Step, arguments: Any, t: Array, y: Any, h: Array, carry: Any) -> None:
    """Raise TypeError or ValueError unless a step returns a state and a carry like those before it."""
    moved = jax.eval_shape(step, arguments, t, y, h, carry)
    if not isinstance(moved, tuple) or len(moved) != 2:
        raise TypeError("step must return the pair of the next state and the next carry")
    for what, before, after in (("state", y, moved[0]), ("carry", carry, moved[1])):
        if jax.tree.structure(before) != jax.tree.structure(after):
            raise TypeError(f"step must return a {what} of the structure of the one before it")
        for (path, x), z in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True):
            x = jax.eval_shape(lambda x=x: jnp.asarray(x))
            if (x.shape, x.dtype) != (z.shape, z.dtype):
                raise ValueError(
                    f"step must return a {what} like the one before it: {what}{jax.tree_util.keystr(path)} is "
                    f"{x.dtype}{x.shape} before and {z.dtype}{z.shape} after"
                )


def _solver(step: Step, saves: SavedSteps) -> Callable[..., Any]:
    """solve(y0, start, end, arguments, carry) -> the saved states but the start."""
    steps, every, _ = saves
    firsts = jnp.arange(0, steps, every, dtype=jnp.int32)

    def forward(y0: Any, start: Array, end: Array, arguments: Any, carry: Any) -> tuple[Any, Any]:
        h = (end - start) / steps

        def one(i: Array, state: Any) -> Any:
            return step(arguments, start + h * i.astype(h.dtype), state[0], h, state[1])

        def advance(state: Any, first: Array) -> Any:
            return jax.lax.fori_loop(first, first + every, one, state)  # no array of their numbers

        _, (ys, carries) = scan_stretches(advance, (y0, carry), saves, lambda state: state)
        return ys, (ys, carries, start, end, arguments)

    def backward(kept: Any, rates: Any) -> Any:
        ys, carries, start, end, arguments = kept
        h = (end - start) / steps
        zeros = jax.tree.map(jnp.zeros_like, (jax.tree.map(lambda y: y[0], ys), start, h, arguments))

        def stretch(adjoint: Any, xs: Any) -> Any:
            first, y, carry, rate = xs
            adjoint = (jax.tree.map(jnp.add, adjoint[0], rate), *adjoint[1:])

            def one(k: Array, state: Any) -> Any:
                y, carry, (of_y, of_start, of_h, of_arguments) = state
                i = first + every - 1 - k
                number = i.astype(h.dtype)
                y, carry = step(arguments, start + h * (number + 1), y, -h, carry)
                forth = lambda y, t, h, arguments: step(arguments, t, y, h, jax.lax.stop_gradient(carry))[0]
                _, pull = jax.vjp(forth, y, start + h * number, h, arguments)
                of_y, of_t, more, extra = pull(of_y)
                of_arguments = jax.tree.map(jnp.add, of_arguments, extra)
                return y, carry, (of_y, of_start + of_t, of_h + (more + number * of_t), of_arguments)

            return jax.lax.fori_loop(0, every, one, (y, carry, adjoint))[2], None

        adjoint, _ = jax.lax.scan(stretch, zeros, (firsts, ys, carries, rates), reverse=True)
        of_y, of_start, of_h, of_arguments = adjoint
        of_carry = jax.tree.map(lambda c: jnp.zeros_like(c[0]), carries)
        return of_y, of_start - of_h / steps, of_h / steps, of_arguments, of_carry

    solve = jax.custom_vjp(lambda *inputs: forward(*inputs)[0])
    solve.defvjp(forward, backward)
    return solve
