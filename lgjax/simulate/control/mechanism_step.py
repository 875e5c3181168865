"""One step of a mechanism under forces that are held, with derivatives by the analytic partials of its dynamics."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from lgjax.contact import TimeStepping
from lgjax.contact.contacts import Contacts
from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.partials import forward_dynamics_partials
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.groups import so3
from lgjax.integrators import integrate
from lgjax.integrators.integrate import check_method
from lgjax.multibody.configuration import Configuration, join_velocity, mechanical_space
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.simulate.contact_rollout import check_contacts
from lgjax.simulate.control.semi_implicit import SemiImplicitEuler, flat_states, semi_implicit_step
from lgjax.simulate.mechanism_field import mechanism_field
from lgjax.simulate.robots import RobotParts
from lgjax.simulate.rollout import stepper_of
from lgjax.simulate.steppers import Forces

Array = jax.Array


def mechanism_step(
    model: Model, dt: Any, method: Any, substeps: int, contacts: Contacts | None = None
) -> Callable[..., Any]:
    """The function step((q, v), tau, wrenches) -> (q, v) after dt seconds; wrenches may be None.

    The dt seconds are `substeps` steps of the method. Derivatives with respect to state and force are taken with three
    matrices for every stage, whatever the number of directions; those with respect to wrenches, and to a model that is
    traced, through the recursion itself.
    """
    if isinstance(method, SemiImplicitEuler):
        if contacts is not None:
            raise ValueError("SemiImplicitEuler takes no contacts: use contact.TimeStepping or contact.EventDriven")
        return semi_implicit_step(model, dt, substeps)
    check_contacts(contacts, method, None)
    if contacts is not None or isinstance(method, TimeStepping):
        steps = contact_steps(model, contacts, dt, method, substeps)
        return lambda state, tau, wrenches: steps(state, tau, wrenches)[0]
    check_method("ControlSystem.of_model", method)
    scanned = method.with_scanned_stages()

    def step(state: Any, tau: Array, wrenches: Array | None) -> Any:
        by_partials = dynamics_by_partials(model)  # made here: held by `step`, its model could not become an argument
        applied = None if wrenches is None else lambda t, q, v: wrenches
        field = mechanism_field(model, lambda t, q, v: tau, applied, dynamics=by_partials)
        cast(Any, field).fits = True  # tau and wrenches are checked in `forces_of_controls`
        zero, end = jnp.zeros((), model.dtype), jnp.asarray(dt, model.dtype)
        path = integrate(mechanical_space(model.tree), field, state, zero, end, substeps, scanned, None)
        return jax.tree.map(lambda x: x[0], path.ys)

    return step


def forces_of_controls(
    model: Model, actuation: Any, wrenches: Any, controls: int
) -> Callable[[Array], tuple[Array, Array | None]]:
    """The function of the first `controls` controls of a mechanism -> tau (nv,) and wrenches (nbodies, 6) or None."""
    dtype = model.dtype

    def forces(control: Array) -> tuple[Array, Array | None]:
        control = control[:controls]
        tau = jnp.zeros(model.nv, dtype)
        if actuation is not None:
            tau = checked_result("actuation", actuation(control), (model.nv,), dtype)
        if wrenches is None:
            return tau, None
        return tau, checked_result("wrenches", wrenches(control), (model.nbodies, 6), dtype)

    return forces


def contact_steps(model: Model, contacts: Contacts | None, dt: float, method: Any, substeps: int) -> Callable[..., Any]:
    """The function step((q, v), tau, wrenches) -> (q, v) after `substeps` steps with rigid contacts, and their
    `ContactStatus` () int32.
    """
    h = jnp.asarray(dt / substeps, model.dtype)
    stepper = stepper_of(RobotParts(model, (), contacts), method, ("mass", (0.0, 0.0), None), True)

    def step(state: Any, tau: Array, wrenches: Array | None) -> Any:
        pushed = None if wrenches is None else lambda t, q, v: wrenches
        forces = Forces(lambda t, q, v: tau, pushed)

        def once(now: Any, _: None) -> Any:
            q, v, seen = now
            return stepper.step(forces, jnp.zeros_like(h), q, v, h, seen, ())[:3], None

        (q, v, seen), _ = jax.lax.scan(once, (*state, stepper.first_seen(*state)), None, length=substeps)
        return (q, v), stepper.status(seen)

    return step


def dynamics_by_partials(model: Model) -> Callable[..., Array]:
    """The function (model, q, v, tau, wrenches) -> vdot, `forward_dynamics` differentiated by its partials.

    A known model is a constant of it, as that of a specialized one has to be; its argument is then not read.
    """
    constant = checks.known(model)
    of_model = lambda given: model if constant else given

    @jax.custom_jvp
    def dynamics(given: Model | None, q: Configuration, v: Array, tau: Array, wrenches: Array | None) -> Array:
        return forward_dynamics(of_model(given), q, v, tau, wrenches)

    @partial(dynamics.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        (given, q, v, tau, wrenches), (dgiven, *state, dwrenches) = primals, tangents
        still = lambda x, dx: jnp.zeros_like(x) if isinstance(dx, SymbolicZero) else dx
        dq, dv, dtau = jax.tree.map(still, (q, v, tau), tuple(state))
        partials = forward_dynamics_partials(of_model(given), q, v, tau, wrenches)
        jacobian = jnp.concatenate([partials.q, partials.v, partials.tau], 1)
        change = jnp.concatenate([body_displacement(of_model(given), q, dq), dv, dtau])
        moved = jnp.matmul(jacobian, change, precision="highest")
        others, moving = (given, wrenches), (dgiven, dwrenches)
        if not all(isinstance(dx, SymbolicZero) for dx in jax.tree.leaves(moving, is_leaf=_is_zero)):
            along = lambda given, wrenches: forward_dynamics(of_model(given), q, v, tau, wrenches)
            moved = moved + jax.jvp(along, others, jax.tree.map(still, others, moving))[1]
        return dynamics(*primals), moved

    return lambda given, *state: dynamics(None if constant else given, *state)


def _is_zero(x: Any) -> bool:
    return isinstance(x, SymbolicZero)


def body_displacement(model: Model, q: Configuration, dq: Configuration) -> Array:
    """The tangent (nv,), body frame, of a change dq of the arrays of q that stays on the manifold."""
    if flat_states(model):
        return dq.joints
    turn = so3.vee(sm.matmult(sm.transpose(q.free_poses.rotation), sm.transpose(dq.free_poses.rotation)))
    shift = sm.matvec(sm.transpose(q.free_poses.rotation), dq.free_poses.translation)
    balls = so3.vee(sm.matmult(sm.transpose(q.ball_rotations), sm.transpose(dq.ball_rotations)))
    return join_velocity(model.tree, jnp.concatenate([turn, shift], -1), dq.joints, balls)
