"""Problems of optimal control: a discrete system on a manifold, its trajectories, their cost, and checks of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lgjax.contact.contacts import Contacts
from lgjax.execution import batched
from lgjax.groups.homogeneous_space import HomogeneousSpace, left_translation, right_translation
from lgjax.integrators import RK4, MuntheKaas
from lgjax.integrators.field import state_dtype, strong
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.records import Made, makes
from lgjax.numerics.status import NOT_FINITE, Flags
from lgjax.robots.robot import Robot
from lgjax.simulate.control.linear_quadratic.sparse import Columns, Matrix, dense, of_other
from lgjax.simulate.control.mechanism_step import forces_of_controls, mechanism_step
from lgjax.simulate.control.semi_implicit import (
    SemiImplicitEuler,
    acceleration_step_slopes,
    advanced,
    flat_states,
    relative_states,
    semi_implicit_slopes,
    tangents_of_states,
    tangents_with_activations,
)
from lgjax.simulate.control.stagewise import Stagewise
from lgjax.simulate.robot_step import robot_steps
from lgjax.simulate.robots import RobotParts, driven_velocities, robot_parts

Array = jax.Array
State = Any


class OptimizeStatus(Flags):
    """Outcome of the search from one guess; 0 means success, and of the others exactly one is set."""

    CONVERGED = 0  # the gradient is below the tolerance, or all but round-off, and the constraints hold
    NOT_FINITE = NOT_FINITE  # cost or gradient left the finite numbers; the result is the last that did not
    RUNNING = 2  # interrupted before its end
    MAX_ITERATIONS = 4  # neither converged nor stalled after all iterations
    STALLED = 8  # neither cost nor gradient improves, though the gradient is not below the tolerance
    INFEASIBLE = 16  # of ILQR and FDDP: however dear the violation of the constraints is made, it no longer shrinks


@dataclass(frozen=True)
class ControlSystem(Made):
    """A system in discrete time whose state is a point of a manifold: any pytree of arrays.

    step(state, control (controls,)) -> state after dt seconds. retract(state, tangent (dim,)) -> state;
    difference(state 0, state 1) -> the tangent with retract(state 0, tangent) = state 1, at least for close ones.
    slopes(state, control) -> the state after the step and its derivatives (dim, dim) and (dim, controls), in tangents
    at both ends, arrays or `Sparse`, or for controls `Columns` of the first; None where forward mode is fastest.
    flat: whether difference(state 0, retract(state 1, x)) = difference(state 0, state 1) + x.
    relative(gap, changes (dim, k)) -> changes (dim, k) of a difference `gap` (dim,) to states that move by the tangents
    `changes`, to first order; None where forward mode has to find them.
    forces(control) -> tau (nv,) and wrenches (nbodies, 6), or None for none, of a mechanism; None for other systems.
    free_time: whether the last control is the length of a step over dt, which then scales the running cost too.
    joints: the velocities of each joint, where states are (q, v), controls are accelerations, and neither step nor
    slopes couple a joint with another; () for other systems.
    """

    step: Callable[[State, Array], State]
    retract: Callable[[State, Array], State]
    difference: Callable[[State, State], Array]
    controls: int
    dt: float = 1.0
    slopes: Callable[[State, Array], tuple[State, Matrix, Matrix | Columns]] | None = None
    flat: bool = False
    forces: Callable[[Array], tuple[Array, Array | None]] | None = None
    free_time: bool = False
    relative: Callable[[Array, Array], Array] | None = None
    joints: tuple[tuple[int, ...], ...] = ()

    @classmethod
    @makes
    def of_model(
        cls,
        model: Model | Robot,
        dt: float,
        controls: int | None = None,
        actuation: Callable[[Array], Array] | None = None,
        wrenches: Callable[[Array], Array] | None = None,
        method: Any = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
        substeps: int = 1,
        contacts: Contacts | None = None,
        free_time: bool = False,
    ) -> "ControlSystem":
        """A mechanism with states (q, v), its controls held over dt seconds, which are `substeps` steps of the method.

        actuation(control) -> tau (nv,), wrenches(control) -> (nbodies, 6) as `rollout` takes them, for drives that are
        not joint torques. contacts: rigid ones, with method=contact.TimeStepping() or contact.EventDriven(). By default
        the controls are the forces of all joints but the free ones, in body order; of a `Robot` with actuators theirs,
        and its passive forces, loops and contacts act, unless actuation or wrenches are given; with activations states
        are (q, v, activation). free_time: one more control, the last, is the length of a step over dt; bound it.
        """
        mechanism, model = model, checked_model(model, leaves=True)
        dt, free_time = checks.number("dt", dt), checks.truth("free_time", free_time)
        checks.functions(actuation=actuation, wrenches=wrenches)
        parts = robot_parts(mechanism, None, contacts, method)
        if parts.acts and actuation is None and wrenches is None:
            return _of_robot(parts, dt, controls, method, checks.integer("substeps", substeps), free_time)
        controls = None if controls is None else checks.integer("controls", controls)
        if (actuation is not None or wrenches is not None) and controls is None:
            raise ValueError("a system with actuation or wrenches of its own needs the number of controls")
        driven = tuple(driven_velocities(model)) if actuation is None and wrenches is None else None
        if driven is not None:
            if controls not in (None, len(driven)) or not driven:
                raise ValueError(f"{len(driven)} joints can be driven; other controls need actuation= or wrenches=")
            controls = len(driven)
            actuation = lambda u: jnp.zeros(model.nv, u.dtype).at[np.asarray(driven, int)].set(u)

        lasting = lambda dt: mechanism_step(model, dt, method, checks.integer("substeps", substeps), contacts)
        advance = lasting(dt)
        controls = checks.integer("controls", controls)
        forces = forces_of_controls(model, actuation, wrenches, controls)

        def step(state: State, control: Array) -> State:
            taken = lasting(dt * control[-1]) if free_time else advance
            return taken(state, *forces(control))

        known = None
        plain = isinstance(method, SemiImplicitEuler) and substeps == 1 and not free_time
        if plain and wrenches is None and actuation is not None:

            def by_partials(state: State, control: Array) -> tuple[State, Array, Array]:
                if driven is None:
                    tau_by = jax.jacfwd(actuation)(control)
                else:
                    tau_by = jnp.asarray(np.eye(model.nv)[:, driven], model.dtype)
                return semi_implicit_slopes(model, dt, state, actuation(control), tau_by)

            known = by_partials

        known_too = known, flat_states(model), forces, free_time, relative_states(model)
        return cls(step, *tangents_of_states(model), controls + free_time, dt, *known_too)

    @classmethod
    @makes
    def of_accelerations(cls, model: Model, dt: float) -> "ControlSystem":
        """A mechanism with states (q, v) and its accelerations vdot (nv,) as controls, in steps of SemiImplicitEuler.

        Motions are those of `of_model(model, dt, method=SemiImplicitEuler())` with forces on all velocities: the forces
        are `inverse_dynamics` of states and controls, and `costs.forces` makes them a cost. Steps are then trivial, and
        where all coordinates are joints' they are linear; inverse dynamics takes half the time of forward dynamics, and
        no system of equations is solved for derivatives. What a mechanism cannot drive is held by a constraint or by a
        weight on its force. Source: [katayama2021].
        """
        model = checked_model(model, leaves=True)
        dt = checks.number("dt", dt)

        def step(state: State, control: Array) -> State:
            return advanced(model, state, control, jnp.asarray(dt, model.dtype))

        slopes = acceleration_step_slopes(model, dt)
        moves, relative = tangents_of_states(model), relative_states(model)
        pairs = zip(model.tree.v_start, model.tree.kinds, strict=True)
        joints = tuple(tuple(range(start, start + kind.nv)) for start, kind in pairs)
        return cls(step, *moves, model.nv, dt, slopes, flat_states(model), relative=relative, joints=joints)

    @makes
    def with_rates(self) -> "ControlSystem":
        """The same system whose controls are the rates of its own, which become a part of the state: (state, control).

        A rate is held during a step, in which the control acts that it reaches in the middle. A cost of the control is
        then one of the rate of torques, `costs.control`, and bounds are those of rates.
        """
        if self.free_time:
            raise ValueError("a system with free time has no rates of its controls: its last control is no force")
        n, dt = self.controls, self.dt
        split = lambda x: (x[: len(x) - n], x[len(x) - n :])

        def step(state: State, rate: Array) -> State:
            return self.step(state[0], state[1] + dt / 2 * rate), state[1] + dt * rate

        def retract(state: State, tangent: Array) -> State:
            first, second = split(tangent)
            return self.retract(state[0], first), state[1] + second

        def by_parts(state: State, rate: Array) -> tuple[State, Array, Array]:
            assert self.slopes is not None
            after, A, B = self.slopes(state[0], state[1] + dt / 2 * rate)
            A, B = dense(A), of_other(dense(A), B)
            one, zero = jnp.eye(n, dtype=A.dtype), jnp.zeros((n, len(A)), A.dtype)
            whole = jnp.block([[A, B], [zero, one]])
            return (after, state[1] + dt * rate), whole, jnp.concatenate([dt / 2 * B, dt * one])

        def difference(state0: State, state1: State) -> Array:
            return jnp.concatenate([self.difference(state0[0], state1[0]), state1[1] - state0[1]])

        def relative(gap: Array, changes: Array) -> Array:
            assert self.relative is not None
            return jnp.concatenate([self.relative(gap[:-n], changes[:-n]), changes[-n:]])

        slopes = None if self.slopes is None else by_parts
        turned = None if self.relative is None else relative
        return ControlSystem(step, retract, difference, n, dt, slopes, self.flat, relative=turned)

    @classmethod
    @makes
    def on_space(
        cls, space: HomogeneousSpace, step: Callable[[State, Array], State], controls: int, dt: float = 1.0
    ) -> "ControlSystem":
        """Any step(state, control) -> state on a group translated from either side, or on a product of such spaces.

        Raises ValueError for other spaces, which have no logarithm: give `retract` and `difference` for those.
        """
        if not isinstance(space, HomogeneousSpace):
            raise TypeError(f"space must be a HomogeneousSpace, got {checks.shown(space)}")
        checks.function("step", step)
        zero = _zero(space)
        unravel = lambda x: ravel_pytree(jax.tree.map(lambda a: jnp.zeros(a, x.dtype), zero))[1](x)
        shape = (sum(jax.tree.leaves(zero)),)
        return cls(
            step,
            lambda y, x: space.move(unravel(x), y),
            lambda y0, y1: checks.of_shape("displacement of the state", ravel_pytree(_log(space, y0, y1))[0], shape),
            checks.integer("controls", controls),
            dt,
        )


def _of_robot(parts: RobotParts, dt: float, controls: Any, method: Any, substeps: int, free_time: bool):
    """The system of a robot whose actuators, passive forces and loops act."""
    model, actuators = parts.model, parts.actuators
    count = len(driven_velocities(model) if actuators is None else actuators)
    if controls not in (None, count):
        raise ValueError(f"the robot {model.name!r} has {count} controls, got controls={controls}")
    steps = robot_steps(parts, method, substeps)
    step = lambda state, control: steps(state, control[:count], dt * control[-1] if free_time else dt)[0]
    moves, flat = tangents_of_states(model), flat_states(model)
    if actuators is not None and actuators.na:
        moves, flat = tangents_with_activations(model), False
    return ControlSystem(step, *moves, count + free_time, dt, flat=flat, free_time=free_time)


def _zero(space: HomogeneousSpace) -> Any:
    """The dimensions of an algebra element, nested as it is."""
    if space.factors:
        return tuple(_zero(factor) for factor in space.factors)
    if space.group is None or space not in (right_translation(space.group), left_translation(space.group)):
        raise ValueError(f"{space.name} is no translated group: make a ControlSystem with its retract and difference")
    return space.group.dim


def _log(space: HomogeneousSpace, y0: Any, y1: Any) -> Any:
    if space.factors:
        return tuple(_log(factor, a, b) for factor, a, b in zip(space.factors, y0, y1, strict=True))
    group = space.group
    assert group is not None
    if space == right_translation(group):
        return group.log(group.compose(group.inverse(y0), y1))
    return group.log(group.compose(y1, group.inverse(y0)))


class Problem(NamedTuple):
    """Checked inputs of `optimize_controls`; see there. dim: of the tangent space of the states."""

    system: ControlSystem
    start: State
    steps: int
    dim: int
    running: Callable[[Array, State, Array], Array] | None
    terminal: Callable[[State], Array] | None
    equality: Callable[[State, Array], Array] | None
    inequality: Callable[[State, Array], Array] | None
    lower: Array
    upper: Array
    bounded: bool

    @property
    def dtype(self) -> Any:
        return state_dtype(self.start)

    def times(self) -> Array:
        return jnp.arange(self.steps, dtype=jnp.int32).astype(self.dtype) * jnp.asarray(self.system.dt, self.dtype)

    def stage(self, t: Array, state: State, control: Array) -> Array:
        """Cost () of one step."""
        if self.running is None:
            return jnp.zeros((), self.dtype)
        dt = jnp.asarray(self.system.dt, self.dtype)
        return (dt * control[-1] if self.system.free_time else dt) * self.running(t, state, control)

    def end(self, state: State) -> Array:
        return jnp.zeros((), self.dtype) if self.terminal is None else self.terminal(state)

    def cost_and_size(self, states: State, controls: Array) -> tuple[Array, Array]:
        """Cost () of states (steps + 1, ...) and controls (steps, controls), and the scale of its round-off."""
        before, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
        stages, end = jax.vmap(batched(self.stage))(self.times(), before, controls), batched(self.end)(last)
        return jnp.sum(stages) + end, jnp.sum(jnp.abs(stages)) + jnp.abs(end)

    def simulate(self, start: State, controls: Array) -> State:
        """All states from `start` on, itself first."""

        one = batched(self.system.step)

        def step(state: State, control: Array) -> tuple[State, State]:
            state = one(state, control)
            return state, state

        _, states = jax.lax.scan(step, start, controls)
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states)


def _number(name: str, result: Any, dtype: Any) -> None:
    shape = getattr(result, "shape", None)
    if shape != ():
        raise ValueError(f"{name} must return one number, got {'shape ' + str(shape) if shape else result}")
    if result.dtype != dtype:
        raise TypeError(f"{name} returns {result.dtype}, the state is {dtype}")


def box(bounds: Any, controls: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds (controls,) of `bounds`; ValueError where they do not fit or cross."""
    if bounds is None:
        bounds = (-np.inf, np.inf)
    try:
        low, high = (np.broadcast_to(checks.real("bounds", b).astype(dtype), (controls,)) for b in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds are (lower, upper), each one number or ({controls},): {error}") from error
    for i in np.flatnonzero(~(low < high)):
        if low[i] == high[i]:
            hint = "leave a joint without a motor out with ControlSystem.of_model(..., controls=, actuation=)"
            raise ValueError(f"both bounds of control {i} are {low[i]:g}: {hint}")
        raise ValueError(f"bounds of control {i} cross: lower {low[i]:g}, upper {high[i]:g}")
    return low, high


def check_problem(
    system: ControlSystem, start: State, steps: int, running, terminal, equality, inequality, bounds
) -> Problem:
    """Check everything about a problem that can be known before it is solved."""
    checks.of_kind("system", system, ControlSystem)
    checks.functions(running=running, terminal=terminal, equality=equality, inequality=inequality)
    steps = checks.integer("steps", steps)
    if not 0 < system.dt < np.inf:
        raise ValueError(f"dt of the system must be positive and finite, got {system.dt}")
    start = strong(start)
    checks.finite_leaves("the initial state", start)
    dtype = state_dtype(start)
    control = jax.ShapeDtypeStruct((system.controls,), dtype)
    after = jax.eval_shape(system.step, start, control)
    told = [(jax.tree.structure(x), [(a.shape, a.dtype) for a in jax.tree.leaves(x)]) for x in (start, after)]
    if told[0] != told[1]:
        raise ValueError(f"step must return a state like its own, {told[0]}, got {told[1]}")
    dim = jax.eval_shape(system.difference, start, start).shape[0]
    time = jax.ShapeDtypeStruct((), dtype)
    if running is None and terminal is None:
        raise ValueError("there is nothing to optimize: give a running cost, a terminal cost or both")
    if running is not None:
        _number("the running cost", jax.eval_shape(running, time, start, control), dtype)
    if terminal is not None:
        _number("the terminal cost", jax.eval_shape(terminal, start), dtype)
    states = jax.tree.map(lambda x: jax.ShapeDtypeStruct((steps + 1, *x.shape), x.dtype), start)
    whole = jax.ShapeDtypeStruct((steps, system.controls), dtype)
    equality, inequality = (
        replace(c, dt=float(system.dt)) if isinstance(c, Stagewise) else c for c in (equality, inequality)
    )
    for name, constraint in (("equality", equality), ("inequality", inequality)):
        if isinstance(constraint, Stagewise):
            for part, got in (
                ("running", constraint.running and jax.eval_shape(constraint.running, time, start, control)),
                ("terminal", constraint.terminal and jax.eval_shape(constraint.terminal, start)),
            ):
                if got is not None and (not hasattr(got, "shape") or len(got.shape) != 1):
                    raise ValueError(f"{name}.{part} must return one vector, got {getattr(got, 'shape', got)}")
        elif constraint is not None:
            got = jax.eval_shape(constraint, states, whole)
            if not hasattr(got, "shape") or len(got.shape) != 1:
                raise ValueError(f"{name} must return one vector, got {getattr(got, 'shape', got)}")
    low, high = box(bounds, system.controls, dtype)
    lower, upper = jnp.asarray(low), jnp.asarray(high)
    if system.free_time and not low[-1] > 0:
        raise ValueError(
            f"the last control of a system with free time is the length of a step over dt: its lower bound must be "
            f"positive, got {low[-1]:g}"
        )
    bounded = bool(np.any(np.isfinite(low)) or np.any(np.isfinite(high)))
    return Problem(system, start, steps, dim, running, terminal, equality, inequality, lower, upper, bounded)


def within(controls: Array, lower: Array, upper: Array) -> Array:
    """Controls moved into their bounds."""
    return jax.lax.min(
        jax.lax.max(controls, jnp.broadcast_to(lower, controls.shape)), jnp.broadcast_to(upper, controls.shape)
    )
