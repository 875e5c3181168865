"""Loops whose number of turns depends on what they compute."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

Array = jax.Array
State = TypeVar("State")


def iterate_while(unfinished: Callable[[State], Array], iterate: Callable[[State], State], start: State) -> State:
    """`lax.while_loop`, for conditions that compute with floating-point numbers.

    Under vmap that loop asks its condition twice, in two programs: whether any element goes on, and which ones.  Where
    the two round differently the first can say yes and the second no, for ever.  Here the answer is part of the state.
    """

    def turn(carry: tuple[Array, State]) -> tuple[Array, State]:
        state = iterate(carry[1])
        return unfinished(state), state

    return jax.lax.while_loop(lambda carry: carry[0], turn, (unfinished(start), start))[1]


@custom_vmap
def in_any_system(wanted: Array) -> Array:
    """Whether something of booleans is wanted; under vmap, by any of the batch: one answer for all.

    For a `lax.cond` in a rule for derivatives. With an answer for each system vmap makes a selection of it, between
    inputs that move and `stop_gradient` of them. In such a rule the inputs are tangents, of which reverse mode cannot
    transpose that.
    """
    return wanted


@in_any_system.def_vmap
def _(size: int, batched: list[bool], wanted: Array) -> tuple[Array, bool]:
    return in_any_system(jnp.any(wanted, 0) if batched[0] else wanted), False


def only_if(wanted: Array, function: Callable[[State], State], state: State) -> State:
    """function(state) where it is `wanted` (), and else the state as it is.

    A `lax.cond` computes short branches always; this is worth its jump in a loop over things of which many are idle.
    """
    go = lambda carry: (jnp.zeros_like(wanted), function(carry[1]))
    return jax.lax.while_loop(lambda carry: carry[0], go, (wanted, state))[1]
