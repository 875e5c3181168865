"""Operations that do not mind another axis behind those of some operands.

Read first: `evaluation.py`, which evaluates programs with the axis of a batch there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Trailing:
    """change: parameters that are different, from the equation and the size. operands: those with the axis, or all."""

    change: Callable[[Any, Any], dict] = lambda eqn, size: {}
    operands: tuple[int, ...] | None = None

    def widens(self, k: int) -> bool:
        return self.operands is None or k in self.operands


def _gather(eqn, size: int) -> dict:
    numbers = eqn.params["dimension_numbers"]
    offset = (*numbers.offset_dims, eqn.outvars[0].aval.ndim)
    return {
        "dimension_numbers": numbers._replace(offset_dims=offset),
        "slice_sizes": (*eqn.params["slice_sizes"], size),
    }


def _scatter(eqn, _) -> dict:
    numbers = eqn.params["dimension_numbers"]
    window = (*numbers.update_window_dims, eqn.invars[2].aval.ndim)
    return {"dimension_numbers": numbers._replace(update_window_dims=window)}


def _slice(eqn, size: int) -> dict:
    strides = eqn.params["strides"]
    return {
        "start_indices": (*eqn.params["start_indices"], 0),
        "limit_indices": (*eqn.params["limit_indices"], size),
        "strides": None if strides is None else (*strides, 1),
    }


def _broadcast(eqn, size: int) -> dict:
    shape, places = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    return {"shape": (*shape, size), "broadcast_dimensions": (*places, len(shape))}


ALL = Trailing()
TRAILING = dict.fromkeys(
    [
        "concatenate",
        "reduce_sum",
        "rev",
        "select_n",
        "split",
        "squeeze",
        "stack",
        "unstack",
        "add_any",
        "square",
        "one_minus_square",
        "copy",
    ],
    ALL,
) | {
    "broadcast_in_dim": Trailing(_broadcast, (0,)),
    "gather": Trailing(_gather, (0,)),
    "pad": Trailing(lambda eqn, size: {"padding_config": (*eqn.params["padding_config"], (0, 0, 0))}, (0,)),
    "reshape": Trailing(lambda eqn, size: {"new_sizes": (*eqn.params["new_sizes"], size)}),
    "scatter-add": Trailing(_scatter, (0, 2)),
    "slice": Trailing(_slice),
    "transpose": Trailing(
        lambda eqn, size: {"permutation": (*eqn.params["permutation"], len(eqn.params["permutation"]))}
    ),
}
