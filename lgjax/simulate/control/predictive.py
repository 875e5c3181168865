"""Predictive control: the first control of an optimal motion from here, found again at every step.

Read first: `regulator/search.py`, whose iterations these are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.execution.compiled import compiled
from lgjax.execution.forms import NUMBERS
from lgjax.integrators.field import state_dtype, strong
from lgjax.numerics import checks
from lgjax.simulate.control.augmented_lagrangian import Multipliers
from lgjax.simulate.control.check_problem import box, check_problem
from lgjax.simulate.control.fddp import FDDP
from lgjax.simulate.control.ilqr import ILQR
from lgjax.simulate.control.method import not_differentiated
from lgjax.simulate.control.problem import ControlSystem, OptimizeStatus, Problem, within
from lgjax.simulate.control.stagewise import Stagewise

Array = jax.Array


class PredictiveMemory(NamedTuple):
    """Memory of a predictive controller: the plan (steps, controls) from now on, and how its search went.

    cost: () of the plan. status: () int32, `OptimizeStatus` of the last search; MAX_ITERATIONS is the rule, since the
    number of iterations is fixed, and UNCHANGED means that none of them found a better plan. first: (steps, controls),
    the plan given to `init`. t: () the time now, s. nodes: for `FDDP` the states after each step of the plan, leaves
    (steps, ...); None for `ILQR`. multipliers: of the constraints, None without any. regularization: (2,), with which
    the next search begins, and the factor of its next change.
    """

    plan: Array
    cost: Array
    status: Array
    first: Array
    t: Array
    nodes: Any = None
    multipliers: Multipliers | None = None
    regularization: Any = None


@dataclass(frozen=True, kw_only=True)
class PredictiveController:
    """Controls that minimize the cost of the next `steps` steps, by a fixed number of iterations from the last plan.

    Use: memory = controller.init(state), then control, memory = controller.step(state, memory). Both are pure: map them
    over a batch with `jax.vmap` or scan them, inside `jit` or outside. Outside, they compile once, also for another
    controller that differs in numbers only: in targets, weights, bounds or the model (see `optimize_controls`).
    Derivatives of `step` with respect to the state or the memory raise TypeError; use `jax.lax.stop_gradient` of both
    to hold the control fixed. `closed_loop` drives the system itself. If the system was made by
    `ControlSystem.of_model`, `rollout` and `ensemble` take the controller too, for a mechanism whose parameters may
    differ from those of the system. In a loop of your own, `rollout(plant, q, v, jax.tree_util.Partial(held, control),
    dt, steps)` with `def held(control, t, q, v): return control` compiles once; a global control compiles at each step.

    A plan has no feedback: after a disturbance it may lead far away. A search begins with the first plan again where
    the last one leads to numbers that are not finite, and, with `ILQR`, where it costs more; so give one that holds an
    unstable mechanism, such as the torques of `gravity_forces`, or use `FDDP`. A search that fails keeps its plan,
    moved into the bounds, and the next one begins with more regularization.

    Args:
        system: a `ControlSystem`.
        steps: number of steps of system.dt that are planned ahead, the horizon.
        running, terminal: as in `optimize_controls`; the time t in the running cost is that of the memory, which begins
            with the one given to `init`, 0 by default, and advances by system.dt at each step.
        bounds: as in `optimize_controls`.
        equality, inequality: `Stagewise` constraints. Their multipliers are remembered and change after each iteration;
            the penalty stays as it is. A larger one leaves smaller violations.
        reference: a function of the time t, s, such as a motion to follow. Its value is one more, last argument of
            costs that are functions or `LeastSquares`: running(t, state, control, reference(t)) and terminal(state,
            reference(t at the end of the horizon)).
        iterations: number of iterations of the method at each step.
        every: steps of `rollout` for which a control is held, each of system.dt / every seconds.
        method: `ILQR(...)` or `FDDP(...)`; its own `iterations` and `every` have no effect. `FDDP` remembers planned
            states too: choose it for unstable motions. After a disturbance its plan begins with a gap, and its other
            states stay where they were planned.
        plan: the first plan, (steps, controls), (controls,) or one number, also in `rollout` and `ensemble`.

    Raises:
        TypeError, ValueError: naming the argument that does not fit.

    Source: [tassa2014] section IV for warm starts of the regulator.
    """

    system: ControlSystem
    steps: int
    running: Callable[..., Any] | None = None
    terminal: Callable[..., Any] | None = None
    bounds: Any = field(default=None, metadata=NUMBERS)
    equality: Stagewise | None = None
    inequality: Stagewise | None = None
    reference: Callable[[Array], Any] | None = None
    iterations: int = 2
    every: int = 1
    method: ILQR | FDDP = ILQR()  # noqa: RUF009 (a hashable value)
    plan: Any = field(default=0.0, metadata=NUMBERS)

    def __post_init__(self) -> None:
        checks.of_kind("system", self.system, ControlSystem)
        checks.functions(running=self.running, terminal=self.terminal, reference=self.reference)
        checks.integer("steps", self.steps)
        checks.integer("iterations", self.iterations)
        checks.integer("every", self.every)
        if self.system.free_time:
            raise ValueError("a predictive controller acts at equal times: its system must not have free_time")
        if not isinstance(self.method, ILQR | FDDP):
            raise TypeError(f"method must be ILQR(...) or FDDP(...), got {checks.shown(self.method)}")
        if self.plan is not None and checks.known(self.plan):
            shape = np.shape(checks.real("plan", self.plan))
            if shape not in ((), (self.system.controls,), (self.steps, self.system.controls)):
                raise ValueError(f"plan has shape {shape}, expected {(self.steps, self.system.controls)}")
        if checks.known(self.bounds):
            box(self.bounds, self.system.controls, float)

    def init(self, state: Any, plan: ArrayLike | None = None, t: ArrayLike = 0.0) -> PredictiveMemory:
        """The memory before the first step, at time t. plan: the first one, by default the controller's."""
        plan, shape = self.plan if plan is None else plan, (self.steps, self.system.controls)
        plan = checks.floats("plan", plan, shape, state_dtype(strong(state)))
        return _init(*self._apart(), state, jnp.broadcast_to(plan, shape) if plan.shape == shape[1:] else plan, t)

    def step(self, state: Any, memory: PredictiveMemory) -> tuple[Array, PredictiveMemory]:
        """The control (controls,) to apply now, and the memory for the next step."""
        checks.of_kind("memory", memory, PredictiveMemory)
        if not _is_array(memory.status, (), jnp.int32):
            raise TypeError(_misfit("status", memory.status, (), jnp.int32))
        return _step(*self._apart(), state, memory._replace(status=None))  # which no search reads

    def _apart(self) -> tuple[PredictiveController, Any]:
        """The controller without its first plan and its bounds, and these, which are numbers of a program."""
        return replace(self, bounds=None, plan=None), self.bounds

    def _problem(self, bounds: Any, state: Any, t: ArrayLike) -> Problem:
        """The motion from here that is to be found."""
        return check_problem(
            self.system, state, self.steps, self.running, self.terminal, self.equality, self.inequality, bounds,
            t0=t, reference=self.reference,
        )  # fmt: skip

    def _checked(self, memory: PredictiveMemory, problem: Problem) -> PredictiveMemory:
        """The memory, whose plans and nodes fit the problem."""

        def fitting(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
            if not _is_array(value, shape, dtype):
                raise TypeError(_misfit(name, value, shape, dtype))
            return jnp.asarray(value)

        plans = dict.fromkeys(("plan", "first"), (self.steps, self.system.controls))
        shapes = {"cost": (), "t": (), "regularization": (2,), **plans}
        found = {name: fitting(name, getattr(memory, name), shape, problem.dtype) for name, shape in shapes.items()}
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
        found = jax.tree.map(lambda a, b: jnp.where(worse, a, b), first, last)
        regularization, factor = memory.regularization
        found = found._replace(regularization=regularization, factor=factor)
        return found if memory.multipliers is None else found._replace(multipliers=memory.multipliers)

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

        checks.of_kind("memory", memory, PredictiveMemory)
        return _closed_loop(*self._apart(), state, memory._replace(status=None), checks.integer("steps", steps))


@compiled
@jax.default_matmul_precision("highest")
def _init(controller: PredictiveController, bounds: Any, state: Any, plan: Array, t: ArrayLike) -> PredictiveMemory:
    problem = controller._problem(bounds, state, t)
    state, dtype = problem.start, problem.dtype
    plan = checks.array("plan", plan, (controller.steps, controller.system.controls), dtype)
    nodes = controller._led_to(state, plan) if isinstance(controller.method, FDDP) else None
    search = controller.method.search(problem, controller.steps)
    multipliers = search.init(plan, nodes).multipliers if search.constrained else None
    running = jnp.asarray(OptimizeStatus.RUNNING, jnp.int32)
    now = jnp.asarray(t, dtype)
    cost = jnp.full((), jnp.inf, dtype)
    return PredictiveMemory(plan, cost, running, plan, now, nodes, multipliers, _unregularized(problem))


@compiled
@jax.default_matmul_precision("highest")
def _step(controller: PredictiveController, bounds: Any, state: Any, memory: PredictiveMemory) -> Any:
    problem = controller._problem(bounds, state, memory.t)
    held = problem.start, controller._checked(memory, problem)
    start, memory = not_differentiated("PredictiveController.step", held)
    problem = problem._replace(start=start, t0=memory.t)
    search = controller.method.search(problem, controller.steps)

    def turn(_: Any, carry: Any) -> Any:
        iterate, progressed = carry
        moved = search.advance(iterate)
        progressed = progressed | search.progressed(moved)
        if search.constrained:
            # after every iteration: what the horizon's shift by a step makes of them is mended sooner
            moved = moved._replace(multipliers=search.updated(moved.states, moved.controls, iterate.multipliers))
        going = search.unfinished(iterate)
        return jax.tree.map(lambda a, b: jnp.where(going, a, b), (moved, progressed), carry)

    begun = controller._start(search, memory), jnp.zeros((), bool)
    found, progressed = jax.lax.fori_loop(0, controller.iterations, turn, begun)
    going = search.unfinished(found)
    found = search.settle(found, jnp.asarray(controller.iterations, jnp.int32))
    ended = (found.status == OptimizeStatus.MAX_ITERATIONS) | (found.status == OptimizeStatus.STALLED)
    status = jnp.where(ended & ~progressed, OptimizeStatus.UNCHANGED, found.status).astype(jnp.int32)
    good = jnp.isfinite(found.cost)
    plan = jnp.where(good, found.controls, within(memory.plan, problem.lower, problem.upper))
    nodes = None if memory.nodes is None else controller._nodes_later(found.states, memory.nodes, good, plan[-1])
    multipliers = memory.multipliers
    if multipliers is not None:
        last = found.multipliers
        new = last._replace(equal=_later(last.equal), unequal=_later(last.unequal))
        multipliers = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, multipliers)
    later = PredictiveMemory(
        _later(plan), found.cost, status, memory.first, memory.t + jnp.asarray(problem.system.dt, problem.dtype),
        nodes, multipliers, jnp.where(going, jnp.stack([found.regularization, found.factor]), _unregularized(problem)),
    )  # fmt: skip
    return not_differentiated("PredictiveController.step", (plan[0], later))


@compiled
@jax.default_matmul_precision("highest")
def _closed_loop(
    controller: PredictiveController, bounds: Any, state: Any, memory: PredictiveMemory, steps: int
) -> Any:
    def step(carry: Any, _: None) -> tuple[Any, Any]:
        state, memory = carry
        control, memory = _step(controller, bounds, state, memory)
        state = controller.system.step(state, control)
        return (state, memory._replace(status=None)), (state, control, memory.status)

    start = strong(state), jax.tree.map(jnp.asarray, memory)
    return jax.lax.scan(step, start, None, steps)[1]


def _unregularized(problem: Problem) -> Array:
    return jnp.array([0, 1], problem.dtype)


def _later(x: Array) -> Array:
    """A plan shifted by one step, its last entry repeated."""
    return jnp.concatenate([x[1:], x[-1:]])


def _is_array(value: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    numeric = isinstance(value, jax.Array | np.ndarray | np.generic)
    return numeric and (value.shape, value.dtype) == (shape, dtype)


def _misfit(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> str:
    want = f"an array of shape {shape} and dtype {np.dtype(dtype)}"
    return f"memory.{name} must be {want}, to fit the state, got {checks.shown(value)}"
