"""Memory that reverse mode through a rollout takes, predicted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lgjax.integrators import RK4, MuntheKaas
from lgjax.integrators.method import Method
from lgjax.integrators.scan_saved import segment_length
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.configuration import neutral
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.simulate.mechanism_field import Controller
from lgjax.simulate.rollout import rollout


def rollout_memory(
    model: Model | Mechanism,
    steps: int,
    *,
    batch: int = 1,
    controller: Controller | None = None,
    method: Method = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    save_every: int | None = 1,
    wrenches: Controller | None = None,
    remat: bool | int = True,
    of_model: bool = False,
) -> int:
    """Bytes that reverse mode through `rollout` keeps for a batch, for derivatives with respect to (q, v).

    The rollout is traced, not compiled. The count includes the values that the forward run keeps of every step or, with
    `remat`, of one segment and the state at every segment, and the saved states. XLA's own figure,
    `compiled.memory_analysis().temp_size_in_bytes`, adds the work of one step.

    Args:
        model, steps, controller, method, save_every, wrenches, remat: as in `rollout`.
        batch: number of systems.
        of_model: True counts derivatives with respect to the model too.
    """

    checked = checked_model(model)

    def kept(steps: int, save_every: int | None, remat: bool | int) -> int:
        def run(model: Model | Mechanism, state: Any) -> Any:
            path = rollout(model, state[0], state[1], controller, dt, steps, method, save_every, wrenches, remat)
            return path.q, path.v

        free = run if of_model else (lambda state: run(model, state))
        inputs = (model, state) if of_model else (state,)
        saved = 0 if save_every is None else _bytes(jax.eval_shape(free, *inputs))
        return saved + _bytes(jax.eval_shape(lambda *inputs: jax.vjp(free, *inputs)[1], *inputs))

    batch, steps = checks.integer("batch", batch), checks.integer("steps", steps)
    dt, state = jnp.asarray(1e-3, checked.dtype), (neutral(checked), jnp.zeros(checked.nv, checked.dtype))
    segment = segment_length(steps, remat)
    within = kept(segment, None, False) if 0 < segment < steps else 0
    return batch * (within + kept(steps, save_every, remat))


def _bytes(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
