"""Predictive control: the first control of an optimal motion from here, found anew at every step.

Read first: `regulator.py`, whose iterations these are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.numerics import checks
from lgjax.simulate.control.fddp import FDDP
from lgjax.simulate.control.ilqr import ILQR
from lgjax.simulate.control.problem import ControlSystem, OptimizeStatus, Problem, check_problem, within

Array = jax.Array


class PredictiveMemory(NamedTuple):
    """Memory of a predictive controller: the plan (steps, controls) from now on, and how its search went.

    cost: () of the plan. status: () int32, `OptimizeStatus` of the last search; MAX_ITERATIONS is the rule, since the
    number of iterations is fixed. first: (steps, controls), the plan given to `init`. nodes: for `FDDP` the states
    after each step of the plan, leaves (steps, ...); None for `ILQR`.
    """

    plan: Array
    cost: Array
    status: Array
    first: Array
    nodes: Any = None


@dataclass(frozen=True, kw_only=True)
class PredictiveController:
    """Controls that minimize the cost of the next `steps` steps, by a fixed number of iterations from the last plan.

    system, running, terminal, bounds: as in `optimize_controls`; the time t in the running cost counts from now, s.
    steps         number of steps of system.dt that are planned ahead, the horizon.
    iterations    of the method at each step, never more.
    every         steps of `rollout` for which a control is held, each of system.dt / every seconds.
    method        `ILQR(...)` or `FDDP(...)`; its own `iterations` and `every` have no effect. `FDDP` remembers planned
                  states too: after a disturbance the plan begins with a gap, and its other states need not follow an
                  unstable motion from there.

    Use: memory = controller.init(state), then control, memory = controller.step(state, memory). Both are pure: map them
    over a batch with `jax.vmap` or scan them, inside `jit`: outside, every call compiles. Derivatives of `step` by the
    state or the memory raise TypeError; use `jax.lax.stop_gradient` of both to hold the control fixed. `closed_loop`
    drives the system itself. If the system was made by `ControlSystem.of_model`, `rollout` and `ensemble` take the
    controller too, for a mechanism whose parameters may differ from those of the system. A plan has no feedback: after
    a disturbance it may lead far away. A search begins with the plan that was given to `init` where the last plan leads
    out of the finite numbers, and, by `ILQR`, where it costs more. A search that fails keeps its plan, moved into the
    bounds. Raises TypeError or ValueError naming what does not fit.
    Source: [tassa2014] section IV for warm starts of the regulator.
    """

    system: ControlSystem
    steps: int
    running: Callable[..., Any] | None = None
    terminal: Callable[..., Any] | None = None
    bounds: Any = None
    iterations: int = 2
    every: int = 1
    method: ILQR | FDDP = ILQR()  # noqa: RUF009 (a hashable value)

    def __post_init__(self) -> None:
        checks.of_kind("system", self.system, ControlSystem)
        checks.functions(running=self.running, terminal=self.terminal)
        checks.integer("steps", self.steps)
        checks.integer("iterations", self.iterations)
        checks.integer("every", self.every)
        if self.system.free_time:
            raise ValueError("a predictive controller acts at equal times: its system must not have free_time")
        if not isinstance(self.method, ILQR | FDDP):
            raise TypeError(f"method must be ILQR(...) or FDDP(...), got {checks.shown(self.method)}")

    def init(self, state: Any, plan: ArrayLike = 0.0) -> PredictiveMemory:
        """The memory before the first step. plan: the first guess, (steps, controls) or one number."""
        problem = self._problem(state)
        state, dtype = problem.start, problem.dtype
        plan = checks.array("plan", plan, (self.steps, self.system.controls), dtype)
        nodes = None
        if isinstance(self.method, FDDP):
            nodes = self._led_to(state, plan)
        running = jnp.asarray(OptimizeStatus.RUNNING, jnp.int32)
        return PredictiveMemory(plan, jnp.full((), jnp.inf, dtype), running, plan, nodes)

    def step(self, state: Any, memory: PredictiveMemory) -> tuple[Array, PredictiveMemory]:
        """The control (controls,) to apply now, and the memory for the next step."""
        problem = self._problem(state)
        start, memory = _not_differentiated((problem.start, self._checked(memory, problem)))
        problem = problem._replace(start=start)
        search = self.method.search(problem, self.steps)

        def turn(_: Any, iterate: Any) -> Any:
            moved = search.advance(iterate)
            going = search.unfinished(iterate)
            return jax.tree.map(lambda a, b: jnp.where(going, a, b), moved, iterate)

        found = jax.lax.fori_loop(0, self.iterations, turn, self._start(search, memory))
        found = search.settle(found, jnp.asarray(self.iterations, jnp.int32))
        good = jnp.isfinite(found.cost)
        plan = jnp.where(good, found.controls, within(memory.plan, problem.lower, problem.upper))
        # what was planned for one step later, and the last control once more
        later = jnp.concatenate([plan[1:], plan[-1:]])
        nodes = None if memory.nodes is None else self._nodes_later(found.states, memory.nodes, good, plan[-1])
        return _not_differentiated((plan[0], PredictiveMemory(later, found.cost, found.status, memory.first, nodes)))

    def _problem(self, state: Any) -> Problem:
        """The motion from here that is to be found."""
        return check_problem(self.system, state, self.steps, self.running, self.terminal, None, None, self.bounds)

    def _checked(self, memory: Any, problem: Problem) -> PredictiveMemory:
        """The memory, whose plans and nodes fit the problem."""
        checks.of_kind("memory", memory, PredictiveMemory)

        def fitting(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
            numeric = isinstance(value, jax.Array | np.ndarray | np.generic)
            if not numeric or (value.shape, value.dtype) != (shape, dtype):
                want = f"an array of shape {shape} and dtype {np.dtype(dtype)}"
                raise TypeError(f"memory.{name} must be {want}, to fit the state, got {checks.shown(value)}")
            return jnp.asarray(value)

        shapes = {"cost": (), **dict.fromkeys(("plan", "first"), (self.steps, self.system.controls))}
        found = {name: fitting(name, getattr(memory, name), shape, problem.dtype) for name, shape in shapes.items()}
        found["status"] = fitting("status", memory.status, (), jnp.int32)
        if not isinstance(self.method, FDDP):
            return memory._replace(**found, nodes=None)
        if jax.tree.structure(memory.nodes) != jax.tree.structure(problem.start):
            raise TypeError(f"memory.nodes must be states like {jax.tree.structure(problem.start)}")
        node = lambda x, like: fitting("nodes", x, (self.steps, *like.shape), like.dtype)
        return memory._replace(**found, nodes=jax.tree.map(node, memory.nodes, problem.start))

    def _start(self, search: Any, memory: PredictiveMemory) -> Any:
        """Where the search begins: the last plan, or the first one where that is better."""
        nodes = None if memory.nodes is None else self._led_to(search.problem.start, memory.first)
        last, first = search.init(memory.plan, memory.nodes), search.init(memory.first, nodes)
        lost = last.status == OptimizeStatus.NOT_FINITE
        # with nodes, the cost does not tell how far the plan is from a motion
        worse = lost if memory.nodes is not None else lost | (first.cost < last.cost)
        worse = worse & (first.status != OptimizeStatus.NOT_FINITE)
        return jax.tree.map(lambda a, b: jnp.where(worse, a, b), first, last)

    def _led_to(self, state: Any, plan: Array) -> Any:
        """The states (steps, ...) after each step of a plan."""
        return jax.lax.scan(lambda x, u: (self.system.step(x, u),) * 2, state, plan)[1]

    def forces(self, control: Array) -> tuple[Array, Array | None]:
        """Joint forces tau (nv,) and wrenches (nbodies, 6), body frame, or None, that a control applies to a mechanism.

        Raises ValueError for a system that was not made by `ControlSystem.of_model`.
        """
        if self.system.forces is None:
            raise ValueError("the controller's system is no mechanism: make it with ControlSystem.of_model")
        return self.system.forces(control)

    def _nodes_later(self, found: Any, before: Any, good: Array, control: Array) -> Any:
        """Planned states (steps, ...) seen from one step later; the last is one step behind the last planned."""
        nodes = jax.tree.map(lambda new, old: jnp.where(good, new[1:], old), found, before)
        last = self.system.step(jax.tree.map(lambda x: x[-1], nodes), control)
        return jax.tree.map(lambda x, end: jnp.concatenate([x[1:], end[None]]), nodes, last)

    def closed_loop(self, state: Any, memory: PredictiveMemory, steps: int) -> tuple[Any, Array, Array]:
        """The system under this controller for `steps` steps of system.dt from `state`.

        Returns the states after each step, leaves (steps, ...), the controls (steps, controls) and the statuses
        (steps,) int32 of the searches, `OptimizeStatus`.
        """

        def step(carry: Any, _: None) -> tuple[Any, Any]:
            state, memory = carry
            control, memory = self.step(state, memory)
            state = self.system.step(state, control)
            return (state, memory), (state, control, memory.status)

        problem = self._problem(state)
        start = problem.start, self._checked(memory, problem)
        return jax.lax.scan(step, start, None, checks.integer("steps", steps))[1]


@jax.custom_jvp
def _not_differentiated(found: Any) -> Any:
    """`found`; derivatives of a search that stops before its end are not those of what it looks for."""
    return found


@_not_differentiated.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise TypeError(
        "PredictiveController.step cannot be differentiated; to hold its control fixed, give it "
        "jax.lax.stop_gradient of state and memory"
    )
