"""Predictive control: the first control of an optimal motion from here, found anew at every step.

Read first: `ilqr.py`, whose iterations these are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from lgjax.integrators.field import state_dtype, strong
from lgjax.numerics import checks
from lgjax.simulate.control.ilqr import ILQR
from lgjax.simulate.control.problem import ControlSystem, OptimizeStatus, check_problem, within

Array = jax.Array


class PredictiveMemory(NamedTuple):
    """What a predictive controller remembers: the plan (steps, controls) from now on, and how its search went.

    cost: () of the plan. status: () int32 of `OptimizeStatus`; MAX_ITERATIONS is the rule with a fixed budget.
    """

    plan: Array
    cost: Array
    status: Array


@dataclass(frozen=True, kw_only=True)
class PredictiveController:
    """Controls that minimise the cost of the next `steps` steps, by a fixed number of iterations from the last plan.

    system, running, terminal, bounds: as in `optimize_controls`; time in the running cost counts from now.
    steps: the horizon. iterations: of the linear-quadratic regulator at each step, never more.
    method: its other options.

    memory = controller.init(state), then control, memory = controller.step(state, memory). Both are pure: map them over
    a batch with `jax.vmap`, scan them, differentiate nothing through them. `closed_loop` drives the system.
    A search that fails keeps the plan that it had, within the bounds.
    Source: [tassa2014] section IV for warm starts of the regulator.
    """

    system: ControlSystem
    steps: int
    running: Callable[..., Any] | None = None
    terminal: Callable[..., Any] | None = None
    bounds: Any = None
    iterations: int = 2
    method: ILQR = ILQR()  # noqa: RUF009 (a hashable value)

    def __post_init__(self) -> None:
        checks.integer("steps", self.steps)
        checks.integer("iterations", self.iterations)
        if not isinstance(self.method, ILQR):
            raise TypeError(f"method must be ILQR(...), got {self.method!r}")

    def init(self, state: Any, plan: ArrayLike = 0.0) -> PredictiveMemory:
        """The memory before the first step; plan: (steps, controls), or a number, to begin from."""
        dtype = state_dtype(strong(state))
        plan = checks.array("plan", plan, (self.steps, self.system.controls), dtype)
        return PredictiveMemory(plan, jnp.full((), jnp.inf, dtype), jnp.asarray(OptimizeStatus.RUNNING, jnp.int32))

    def step(self, state: Any, memory: PredictiveMemory) -> tuple[Array, PredictiveMemory]:
        """The control (controls,) to apply now, and the memory for the next step."""
        problem = check_problem(self.system, state, self.steps, self.running, self.terminal, None, None, self.bounds)
        search = self.method.search(problem, self.steps)

        def turn(_: Any, iterate: Any) -> Any:
            moved = search.advance(iterate)
            going = search.unfinished(iterate)
            return jax.tree.map(lambda a, b: jnp.where(going, a, b), moved, iterate)

        found = jax.lax.fori_loop(0, self.iterations, turn, search.init(memory.plan))
        found = search.settle(found, jnp.asarray(self.iterations, jnp.int32))
        plan = jnp.where(jnp.isfinite(found.cost), found.controls, within(memory.plan, problem.lower, problem.upper))
        # what was planned for one step later, and the last control once more
        later = jnp.concatenate([plan[1:], plan[-1:]])
        return plan[0], PredictiveMemory(later, found.cost, found.status)

    def closed_loop(self, state: Any, memory: PredictiveMemory, steps: int) -> tuple[Any, Array, Array]:
        """States after each of `steps` steps, leaves (steps, ...), controls (steps, controls) and statuses (steps,)."""

        def step(carry: Any, _: None) -> tuple[Any, Any]:
            state, memory = carry
            control, memory = self.step(state, memory)
            state = self.system.step(state, control)
            return (state, memory), (state, control, memory.status)

        return jax.lax.scan(step, (strong(state), memory), None, checks.integer("steps", steps))[1]
