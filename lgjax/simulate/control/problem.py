"""Problems of optimal control: a discrete system on a manifold, its trajectories, their cost, and checks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lgjax.contact.contacts import Contacts
from lgjax.execution import batched
from lgjax.groups.homogeneous_space import HomogeneousSpace, left_translation, right_translation
from lgjax.integrators import RK4, MuntheKaas
from lgjax.integrators.field import state_dtype
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics.records import Made, makes
from lgjax.numerics.status import NOT_FINITE, UNCHANGED, Flags
from lgjax.robots.robot import Robot
from lgjax.simulate.control.cost import Cost
from lgjax.simulate.control.linear_quadratic.sparse import Columns, Matrix, dense, of_other
from lgjax.simulate.control.mechanism_step import forces_of_controls, mechanism_step
from lgjax.simulate.control.semi_implicit import (
    SemiImplicitEuler,
    acceleration_step_jacobians,
    advanced,
    flat_states,
    relative_states,
    semi_implicit_jacobians,
    tangents_of_states,
    tangents_with_activations,
)
from lgjax.simulate.robot_step import robot_steps
from lgjax.simulate.robots import RobotParts, driven_velocities, robot_parts

Array = jax.Array
State = Any


class OptimizeStatus(Flags):
    """Outcome of the search from one guess; 0 means success, and of the others exactly one is set.

    CONVERGED       0: the gradient is below the tolerance, or all but round-off, and the constraints hold
    NOT_FINITE      1: cost or gradient left the finite numbers, after 0 iterations if the guess leads there; the
                    result is the last that did not
    RUNNING         2: interrupted before its end
    MAX_ITERATIONS  4: neither converged nor stalled after all iterations
    STALLED         8: neither cost nor gradient improves, though the gradient is not below the tolerance
    INFEASIBLE      16: of ILQR and FDDP: however dear the violation of the constraints is made, it no longer shrinks
    UNCHANGED       2048: of predictive control: no iteration found a better plan, and the plan is not near a minimum
    """

    CONVERGED = 0
    NOT_FINITE = NOT_FINITE
    RUNNING = 2
    MAX_ITERATIONS = 4
    STALLED = 8
    INFEASIBLE = 16
    UNCHANGED = UNCHANGED


@dataclass(frozen=True)
class ControlSystem(Made):
    """A system in discrete time whose state is a point of a manifold: any pytree of arrays.

    step(state, control (controls,)) -> state after dt seconds. retract(state, tangent (dim,)) -> state;
    difference(state 0, state 1) -> the tangent with retract(state 0, tangent) = state 1, at least for close ones.
    jacobians(state, control) -> the state after the step and its derivatives (dim, dim) and (dim, controls), in
    tangents at both ends, arrays, `Sparse` or `Combined`, or for controls `Columns` of the first; None where forward
    mode is fastest.
    flat: whether difference(state 0, retract(state 1, x)) = difference(state 0, state 1) + x.
    relative(gap, changes (dim, k)) -> changes (dim, k) of a difference `gap` (dim,) to states that move by the tangents
    `changes`, to first order; None where forward mode has to find them.
    forces(control) -> tau (nv,) and wrenches (nbodies, 6), or None for none, of a mechanism; None for other systems.
    free_time: whether the last control is the length of a step over dt, which then scales the running cost too.
    joints: the velocities of each joint, where states are (q, v), controls are accelerations, and neither step nor
    jacobians couple a joint with another; () for other systems.
    """

    step: Callable[[State, Array], State]
    retract: Callable[[State, Array], State]
    difference: Callable[[State, State], Array]
    controls: int
    dt: float = 1.0
    jacobians: Callable[[State, Array], tuple[State, Matrix, Matrix | Columns]] | None = None
    flat: bool = False
    forces: Callable[[Array], tuple[Array, Array | None]] | None = None
    free_time: bool = False
    relative: Callable[[Array, Array], Array] | None = None
    joints: tuple[tuple[int, ...], ...] = ()

    @property
    def slopes(self) -> Any:
        raise AttributeError("ControlSystem.slopes is now ControlSystem.jacobians")

    @classmethod
    @makes
    def of_model(
        cls, model: Model | Robot, dt: float, controls: int | None = None,
        actuation: Callable[[Array], Array] | None = None, wrenches: Callable[[Array], Array] | None = None,
        method: Any = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
        substeps: int = 1, contacts: Contacts | None = None, free_time: bool = False,
    ) -> ControlSystem:  # fmt: skip
        """A mechanism with states (q, v), its controls held over dt seconds, which are `substeps` steps of the method.

        By default the controls are the forces of all joints but the free ones, in body order, N m and N. For a `Robot`
        they are the controls of its actuators, and its passive forces, loops and contacts act, unless actuation or
        wrenches are given; with activations states are (q, v, activation).

        Args:
            model: a `Model` or a `Robot`.
            dt: time for which a control is held, s.
            substeps: number of steps of the method in dt.
            controls: number of controls, needed with actuation or wrenches.
            actuation, wrenches: control -> tau (nv,) and control -> (nbodies, 6), as in `rollout`, for drives other
                than joint forces.
            method: an integrator or `control.SemiImplicitEuler()`; with contacts `contact.TimeStepping()` or
                `contact.EventDriven()`.
            contacts: rigid `Contacts`; None for those of a robot.
            free_time: True adds one more control, the last: the length of a step divided by dt. Bound it.
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
            known = _by_partials(model, dt, actuation, driven)
        known_too = known, flat_states(model), forces, free_time, relative_states(model)
        return cls(step, *tangents_of_states(model), controls + free_time, dt, *known_too)

    @classmethod
    @makes
    def of_accelerations(cls, model: Model | Mechanism, dt: float) -> ControlSystem:
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

        jacobians = acceleration_step_jacobians(model, dt)
        moves, relative = tangents_of_states(model), relative_states(model)
        pairs = zip(model.tree.v_start, model.tree.kinds, strict=True)
        joints = tuple(tuple(range(start, start + kind.nv)) for start, kind in pairs)
        return cls(step, *moves, model.nv, dt, jacobians, flat_states(model), relative=relative, joints=joints)

    @makes
    def with_rates(self) -> ControlSystem:
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
            assert self.jacobians is not None
            after, A, B = self.jacobians(state[0], state[1] + dt / 2 * rate)
            A, B = dense(A), of_other(dense(A), B)
            one, zero = jnp.eye(n, dtype=A.dtype), jnp.zeros((n, len(A)), A.dtype)
            whole = jnp.block([[A, B], [zero, one]])
            return (after, state[1] + dt * rate), whole, jnp.concatenate([dt / 2 * B, dt * one])

        def difference(state0: State, state1: State) -> Array:
            return jnp.concatenate([self.difference(state0[0], state1[0]), state1[1] - state0[1]])

        def relative(gap: Array, changes: Array) -> Array:
            assert self.relative is not None
            return jnp.concatenate([self.relative(gap[:-n], changes[:-n]), changes[-n:]])

        jacobians = None if self.jacobians is None else by_parts
        turned = None if self.relative is None else relative
        return ControlSystem(step, retract, difference, n, dt, jacobians, self.flat, relative=turned)

    @classmethod
    @makes
    def on_space(
        cls, space: HomogeneousSpace, step: Callable[[State, Array], State], controls: int, dt: float = 1.0
    ) -> ControlSystem:
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


def _by_partials(model: Model, dt: float, actuation: Callable, driven: tuple[int, ...] | None) -> Callable:
    """Jacobians of a semi-implicit step in closed form; driven: the velocities that have a control each, or None."""
    of_step = semi_implicit_jacobians(model, dt)

    def jacobians(state: State, control: Array) -> tuple[State, Matrix, Matrix]:
        if driven is None:
            tau_by = jax.jacfwd(actuation)(control)
        else:
            tau_by = jnp.asarray(np.eye(model.nv)[:, driven], model.dtype)
        return of_step(state, actuation(control), tau_by)

    return jacobians


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


class Moment(NamedTuple):
    """The time of a step, and what is to be followed then."""

    t: Array
    reference: Any


class Problem(NamedTuple):
    """Checked inputs of `optimize_controls`; see there. dim: of the tangent space of the states.

    t0: time of the start, s. reference: function of the time whose value costs take as one more argument, None for
    none.
    """

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
    t0: Any = 0.0
    reference: Callable[[Array], Any] | None = None

    @property
    def dtype(self) -> Any:
        return state_dtype(self.start)

    def times(self) -> Array:
        steps = jnp.arange(self.steps, dtype=jnp.int32).astype(self.dtype) * jnp.asarray(self.system.dt, self.dtype)
        return steps + jnp.asarray(self.t0, self.dtype)

    def moments(self) -> Any:
        """Times (steps,) of the steps, with a reference `Moment`s of them."""
        times = self.times()
        return times if self.reference is None else Moment(times, jax.vmap(self.reference)(times))

    def running_at(self, moment: Any) -> tuple[Array, Any]:
        """Time and running cost of a step."""
        if self.reference is None:
            return moment, self.running
        return moment.t, following(self.running, moment.reference)

    def terminal_cost(self) -> Any:
        if self.reference is None:
            return self.terminal
        end = jnp.asarray(self.steps * self.system.dt, self.dtype) + jnp.asarray(self.t0, self.dtype)
        return following(self.terminal, self.reference(end))

    def stage(self, moment: Any, state: State, control: Array) -> Array:
        """Cost () of one step."""
        t, running = self.running_at(moment)
        if running is None:
            return jnp.zeros((), self.dtype)
        dt = jnp.asarray(self.system.dt, self.dtype)
        return (dt * control[-1] if self.system.free_time else dt) * running(t, state, control)

    def end(self, state: State) -> Array:
        terminal = self.terminal_cost()
        return jnp.zeros((), self.dtype) if terminal is None else terminal(state)

    def cost_and_size(self, states: State, controls: Array) -> tuple[Array, Array]:
        """Cost () of states (steps + 1, ...) and controls (steps, controls), and the scale of its round-off."""
        before, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
        stages, end = jax.vmap(batched(self.stage))(self.moments(), before, controls), batched(self.end)(last)
        return jnp.sum(stages) + end, jnp.sum(jnp.abs(stages)) + jnp.abs(end)

    def simulate(self, start: State, controls: Array) -> State:
        """All states from `start` on, itself first."""

        one = batched(self.system.step)

        def step(state: State, control: Array) -> tuple[State, State]:
            state = one(state, control)
            return state, state

        _, states = jax.lax.scan(step, start, controls)
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states)


def following(cost: Any, reference: Any) -> Any:
    """A cost that takes a reference as its last argument, with this one."""
    if cost is None:
        return None
    return cost.following(reference) if isinstance(cost, Cost) else lambda *args: cost(*args, reference)


def within(controls: Array, lower: Array, upper: Array) -> Array:
    """Controls moved into their bounds."""
    return jax.lax.min(
        jax.lax.max(controls, jnp.broadcast_to(lower, controls.shape)), jnp.broadcast_to(upper, controls.shape)
    )
