"""Rollouts in one kernel: a lane keeps a system's state in its registers from one saved time to the next."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from lgjax.dynamics.forward import forward_dynamics
from lgjax.execution.program import ScalarProgram
from lgjax.integrators import RK4, MuntheKaas, Tableau
from lgjax.integrators.integrate import finite_status
from lgjax.integrators.method import Method
from lgjax.integrators.scan_saved import saved_steps, scan_stretches
from lgjax.multibody.configuration import Configuration, mechanical_space
from lgjax.multibody.model import Model
from lgjax.simulate.kernels.vmap import KernelOptions, kernel_cost, launch, model_axis
from lgjax.simulate.mechanism_field import Controller, mechanism_field
from lgjax.simulate.rollout import Trajectory, rollout


def fused_rollout(
    model: Model,
    q: Configuration,
    v: jax.Array,
    controller: Controller | None,
    dt: ArrayLike,
    steps: int,
    method: Method = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    save_every: int | None = 1,
    wrenches: Controller | None = None,
    *,
    options: KernelOptions = KernelOptions(),  # noqa: B008
) -> Trajectory:
    """`rollout` of a batch, `save_every` steps per launch of one kernel; every leaf of the result as vmap gives it.

    q and v have a leading axis for the batch, the leaves of the model all or none; controller and wrenches are
    functions of one system and become part of the kernel. Same numbers as `rollout` to round-off. A Munthe-Kaas method
    with scan_stages=True loops over its stages if each uses only the one before, a quarter of the code for RK4. Methods
    that carry something from step to step raise ValueError. Source: that of the method.
    """
    dt = jnp.asarray(dt, model.dtype)
    forced = {"method": method, "save_every": save_every, "wrenches": wrenches}
    plain = lambda model, dt, q, v: rollout(model, q, v, controller, dt, steps, **forced)
    mapped = jax.vmap(plain, (model_axis(model), None, 0, 0))
    if not options.kernel:
        return mapped(model, dt, q, v)
    shapes = jax.eval_shape(mapped, model, dt, q, v)  # checks what rollout checks
    saves = saved_steps(steps, save_every)
    advance, rounds = _piece(controller, wrenches, method)

    @jax.custom_jvp
    def run(model, dt, q, v):
        h = (steps * dt) / steps
        leaves, treedef = jax.tree.flatten(_start((q, v), rounds))
        before = [*jax.tree.leaves(model), h]
        flags = [model_axis(model) == 0] * (len(before) - 1) + [False, False] + [True] * len(leaves)
        one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
        first = jax.tree.map(one, model) if model_axis(model) == 0 else model
        count = jax.ShapeDtypeStruct((), jnp.int32)
        program = ScalarProgram(advance, first, h, count, treedef.unflatten(map(one, leaves)))

        def launched(leaves: list, done) -> list:
            inputs = [*before, rounds * done, *leaves]
            return launch(program, inputs, flags, options, (len(before) + 1, saves.every * rounds))

        _, kept = scan_stretches(launched, leaves, saves, lambda leaves: treedef.unflatten(leaves)[0])
        qs, vs = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), saves.with_start((q, v), kept))
        times = h * saves.counts().astype(dt.dtype)
        return Trajectory(jnp.broadcast_to(times, shapes.ts.shape), qs, vs, jax.vmap(finite_status)((qs, vs)))

    run.defjvp(lambda primals, tangents: jax.jvp(mapped, primals, tangents))
    return run(model, dt, q, v)


def step_cost(model: Model, q: Any, v: Any, steps: int, method=MuntheKaas(RK4)) -> dict[str, Any]:  # noqa: B008
    """`kernel_cost` of a passive step of `fused_rollout`, `steps` of them per launch, from a state of one system."""
    h, count = jax.ShapeDtypeStruct((), model.dtype), jax.ShapeDtypeStruct((), jnp.int32)
    advance, rounds = _piece(None, None, method)
    state = jax.eval_shape(partial(_start, rounds=rounds), (q, v))
    cost = kernel_cost(partial(advance, model), h, count, state)
    return cost | {"bytes": cost["bytes"] / steps, "arithmetic": cost["arithmetic"] * rounds}


# ---- what the loop of a kernel repeats: (model, h, times before, (state, exponents)) -> (state, exponents)
def _start(state: tuple, rounds: int) -> tuple:
    """A state or a batch, with the exponents of the next stage and of the whole step if stages are looped over."""
    zero = jnp.zeros_like(state[1])
    return state, ((zero, zero), (zero, zero)) if rounds > 1 else ()


def _piece(controller: Controller | None, wrenches: Controller | None, method: Any) -> tuple[Callable, int]:
    """The function that the kernel repeats, and the number of repetitions for one step."""
    scanned = isinstance(method, MuntheKaas) and method.scan_stages and method.commutators is None
    if scanned and _each_uses_the_last(method.tableau):
        return partial(_stage, controller, wrenches, method.tableau), method.tableau.stages
    return partial(_step, controller, wrenches, method.with_scanned_stages(False)), 1


def _each_uses_the_last(tableau: Tableau) -> bool:
    early = [weight for i, row in enumerate(tableau.a) for weight in row[: max(i - 1, 0)]]
    return not tableau.brackets and tableau.stages > 1 and not any(early)


def _field(controller: Controller | None, wrenches: Controller | None, model: Model) -> Callable:
    unrolled = partial(forward_dynamics, execution="unrolled")
    return jax.jit(mechanism_field(model, controller, wrenches, dynamics=unrolled))  # traced once for all stages


def _step(controller, wrenches, method: Any, model: Model, h, count, state: tuple) -> tuple:
    """A step of any method."""
    y, none = state
    field, space, t = _field(controller, wrenches, model), mechanical_space(model.tree), h * count.astype(h.dtype)
    carry = method.init(space, field, t, y)
    if jax.tree.leaves(carry):
        raise ValueError(f"fused_rollout takes a method that carries nothing from step to step, not {method}")
    return method.step(space, field, t, y, h, carry)[0], none


def _stage(controller, wrenches, tableau: Tableau, model: Model, h, count, state: tuple) -> tuple:
    """A stage of a Munthe-Kaas method, the last with the end of the step. Source: [celledoni2021] eqs. (6)-(8)."""
    (y, (sigma, total)), stages = state, tableau.stages
    field, space = _field(controller, wrenches, model), mechanical_space(model.tree)
    stage, last = lax.rem(count, jnp.int32(stages)), lax.rem(count, jnp.int32(stages)) == stages - 1
    following = [tableau.a[i + 1][i] if i + 1 < stages else 0.0 for i in range(stages)]

    def of_stage(numbers):
        """The entry of this stage, which is not known when the kernel is made."""
        value = jnp.full((), numbers[0], h.dtype)
        for i in range(1, stages):
            value = jnp.where(stage == i, jnp.full((), numbers[i], h.dtype), value)
        return value

    t = h * (lax.div(count, jnp.int32(stages)).astype(h.dtype) + of_stage(tableau.c))
    k = space.dexpinv(sigma, jax.tree.map(lambda x: h * x, field(t, space.move(sigma, y))))
    sigma = jax.tree.map(lambda x: of_stage(following) * x, k)
    total = jax.tree.map(lambda x, kx: x + of_stage(tableau.b) * kx, total, k)
    moved = jax.tree.map(lambda new, old: jnp.where(last, new, old), space.move(total, y), y)
    return moved, (sigma, jax.tree.map(lambda x: jnp.where(last, jnp.zeros_like(x), x), total))
