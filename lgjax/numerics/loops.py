"""Loops whose number of turns depends on what they compute."""

from collections.abc import Callable
from typing import TypeVar

import jax

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
