"""Implicit integration of rigid bodies in absolute coordinates with joints as constraints."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution import batched
from lgjax.execution.compiled import compiled
from lgjax.groups.homogeneous_space import (
    HomogeneousSpace,
    power_space,
    product_space,
    right_translation,
    vector_space,
)
from lgjax.integrators.field import strong
from lgjax.integrators.scan_saved import SavedSteps, saved_steps, scan_saved
from lgjax.maximal.checks import LEAST_COSINE, check_start, start_cosines, start_tolerance
from lgjax.maximal.classical import ROTATIONS, coordinate_problem
from lgjax.maximal.generalized_alpha import (
    AlphaState,
    ConstrainedProblem,
    GeneralizedAlpha,
    Report,
    constraint_rate,
)
from lgjax.maximal.system import AbsoluteConfiguration, System
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.newton import NewtonRule
from lgjax.numerics.renamed import attributes
from lgjax.numerics.status import NOT_FINITE, Flags, flag
from lgjax.saving.checkpoint import Checkpoint

Array = jax.Array


class Status(Flags):
    """Flags of `integrate`; 0 means success. Of those in FAILED only the first met is set.

    NOT_FINITE            1: the start, a force or a constraint is not a finite number
    INCONSISTENT          2: the start breaks a constraint or its rate
    SINGULAR              4: the accelerations of the start are not unique: redundant constraints, or no mass where
                          nothing holds
    NOT_CONVERGED         8: a Newton iteration ended above its tolerance: h is too large, or there is no motion to find
    MULTIPLIERS_UNDAMPED  16: spectral_radius=1 with constraints: q and v are good, the multipliers do not converge
    """

    OK = 0
    NOT_FINITE = NOT_FINITE
    INCONSISTENT = 2
    SINGULAR = 4
    NOT_CONVERGED = 8
    MULTIPLIERS_UNDAMPED = 16


FAILED = Status.INCONSISTENT | Status.SINGULAR | Status.NOT_CONVERGED | Status.NOT_FINITE


class Solution(NamedTuple):
    """Result of `integrate`; every leaf but `status` has a leading time axis (T,).

    ts           (T,) s.
    q, v         configurations and velocities (T, nv).
    multipliers  (T, nc), in the order of the constraints: newtons for translations, newton meters for rotations.
    iterations   (T,) int32, Newton iterations since the saved state before; 0 at the start.
    status       () int32, `Status`.
    """

    ts: Array
    q: AbsoluteConfiguration
    v: Array
    multipliers: Array
    iterations: Array
    status: Array

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(finite="status, with success")

    @property
    def success(self) -> Array:
        """() bool, whether the states are good: no flag is set, or MULTIPLIERS_UNDAMPED alone.

        Where it is false all states after the first failure are NaN.
        """
        return _good(self.status)


def constrained_problem(system: System) -> ConstrainedProblem:
    """The equations of motion of a system as the integrator takes them."""
    return ConstrainedProblem(
        move=system.move,
        nudge=system.nudge,
        push=system.push,
        pullback=system.pullback,
        bracket=system.bracket,
        inertia=lambda q, x: system.inertia_product(x),
        forces=system.generalized_forces,
        constraints=system.constraints,
        jacobian=system.jacobian,
        scale=system.scale,
        block=6 if system.structure.block else None,
    )


def integrate(
    system: System,
    q: AbsoluteConfiguration,
    v: Any,
    t0: Any,
    t1: Any,
    steps: int,
    method: GeneralizedAlpha = GeneralizedAlpha(),  # noqa: B008 (a hashable value)
    newton: str | NewtonRule = "full",
    save_every: int | None = 1,
    checkpoint: Checkpoint | None = None,
    rotations: str = "group",
) -> Solution:
    """The motion of a constrained system from (q, v) at t0 to t1 in `steps` equal steps.

    newton is "full", "modified" or a `NewtonRule`; it, steps, method and save_every (a divisor of steps, or None for
    the final state alone) are static, everything else may be traced, mapped over and differentiated: derivatives are
    those of the implicit functions that the steps are.  Accelerations at t0 are computed, so (q, v) is all of the
    start; multipliers converge with order 2 after a transient of order 1 of the first steps, and with
    spectral_radius=1 not at all.  `checkpoint`, a `lgjax.saving.Checkpoint`, writes a long run to a folder part by
    part, from which it can be resumed.

    rotations: "group" moves them as elements of the group; "euler_parameters" and "tait_bryan" take them as
    coordinates, four with a constraint of unit length or three angles, which are singular where the second is ± π/2.
    The classical formulations are here for comparison; the result has the same form.

    Raises ValueError where (q, v) is known and breaks a constraint or its rate, where constraints are redundant, or
    where the mass matrix is singular on what the constraints leave free, naming the joint or body and the value; where
    they are traced, the status says it instead.  Raises TypeError or ValueError for methods, steps, times and arrays
    that do not fit.
    """
    _check_method(method)
    saves = saved_steps(steps, save_every, checkpoint)
    rule = newton if isinstance(newton, NewtonRule) else NewtonRule(newton)
    q, v = _start(system, q, v)
    start, end = checks.scalar("t0", t0, system.dtype), checks.scalar("t1", t1, system.dtype)
    check_start(system, start, q, v)
    checks.choice("rotations", rotations, ROTATIONS)
    run = compiled(_integrate) if checkpoint is None else _integrate
    return run(system, q, v, start, (end - start) / saves.steps, saves, method, rule, checkpoint, rotations)


def _check_method(method: Any) -> None:
    if not isinstance(method, GeneralizedAlpha):
        raise TypeError(
            f"method must be a GeneralizedAlpha(...), got {checks.shown(method)}; a system without constraints can be "
            "integrated by an explicit method: "
            "integrate(*maximal.unconstrained_problem(system, q, v), t0, t1, steps, method)"
        )


def _start(system: System, q: AbsoluteConfiguration, v: Any) -> tuple[AbsoluteConfiguration, Array]:
    """The start as arrays, checked: shapes and dtypes of the system."""
    if not isinstance(system, System):
        raise TypeError(
            f"system must be a maximal.System, got {type(system).__name__}; that of a ready problem is problem.system"
        )
    q, v = strong(q, "q"), checks.floats("v", v, (system.nv,), system.dtype)
    n = system.nbodies
    shapes = ((n, 3, 3), (n, 3), (system.nv - 6 * n,))
    leaves = jax.tree.leaves(q)
    if not isinstance(q, AbsoluteConfiguration) or tuple(leaf.shape for leaf in leaves) != shapes:
        raise ValueError(
            f"q has leaves of shapes {[leaf.shape for leaf in leaves]}, {system!r} takes {list(shapes)}; "
            "vmap over a batch"
        )
    if {leaf.dtype for leaf in leaves} != {system.dtype}:
        raise TypeError(f"q has dtypes {[str(leaf.dtype) for leaf in leaves]}, the system is {system.dtype}")
    if v.shape != (system.nv,):
        raise ValueError(f"v has shape {v.shape}, {system!r} takes ({system.nv},); vmap over a batch")
    return q, v


class _Carry(NamedTuple):
    """All that a step needs of those before it, besides its number: state, status and iterations so far."""

    state: AlphaState
    status: Array
    iterations: Array


def _good(status: Array) -> Array:
    return status & int(FAILED) == 0


def _step_status(report: Report) -> Array:
    lost = flag(Status.NOT_FINITE, ~report.finite)
    return lost | flag(Status.NOT_CONVERGED, report.finite & ~report.converged)


def _start_status(system: System, t: Array, q: AbsoluteConfiguration, v: Array, regular: Array) -> Array:
    problem = constrained_problem(system)
    given = (t, q, v, problem.forces(t, q, v), problem.constraints(t, q))
    finite = jnp.all(jnp.isfinite(jnp.concatenate([x.ravel() for x in jax.tree.leaves(given)])))
    held = _consistent(system, problem, t, q, v)
    status = jnp.where(held, flag(Status.SINGULAR, ~regular), jnp.int32(Status.INCONSISTENT))
    return jnp.where(finite, status, jnp.int32(Status.NOT_FINITE))


def _integrate(
    system: System,
    q: AbsoluteConfiguration,
    v: Array,
    start: Array,
    h: Array,
    saves: SavedSteps,
    method: GeneralizedAlpha,
    rule: NewtonRule,
    checkpoint: Checkpoint | None,
    rotations: str,
) -> Solution:
    made = None if rotations == "group" else coordinate_problem(system, q, v, rotations)
    problem = constrained_problem(system) if made is None else made.problem
    time = lambda i: start + h * i.astype(system.dtype)

    def begin(q: AbsoluteConfiguration, v: Array) -> _Carry:
        given = (q, v) if made is None else (made.q, made.rate)
        first, regular = method.init(problem, start, *given, h, rule)
        known = jax.lax.stop_gradient((system, start, q, v, regular))  # a status has no derivatives
        return _Carry(first, _start_status(*known), jnp.zeros((), jnp.int32))

    def step(carry: _Carry, i: Array) -> _Carry:
        state, report = method.step(problem, time(i), carry.state, h, rule)
        status = carry.status | jnp.where(_good(carry.status), _step_status(report), 0)
        return _Carry(_void(state, _good(status)), status, carry.iterations + report.iterations)

    def keep(carry: _Carry) -> tuple[AbsoluteConfiguration, Array, Array, Array]:
        q, v = carry.state.q, carry.state.v
        if made is not None:
            q, v = made.configuration(q), made.velocity(q, v)
        return q, v, carry.state.multipliers[: system.nc], carry.iterations

    # In coordinates the iteration matrix is dense: as one function it would compile for minutes.
    kernel = batched if made is None else lambda function: function
    first = kernel(begin)(q, v)
    carry, kept = scan_saved(kernel(step), first, saves, keep, checkpoint=checkpoint)
    q, v, multipliers, iterations = saves.with_start(keep(first), kept)
    between = jnp.diff(iterations, prepend=jnp.zeros((1,), jnp.int32))
    undamped = flag(Status.MULTIPLIERS_UNDAMPED, system.nc > 0 and method.spectral_radius == 1.0)
    return Solution(time(saves.counts()), q, v, multipliers, between, carry.status | undamped)


def _void(state: AlphaState, good: Array) -> AlphaState:
    """The state, or NaN where it is not one; a NaN ends the Newton iterations of later steps at once."""
    mark = lambda x: jnp.where(good, x, jnp.nan)
    return state._replace(
        q=jax.tree.map(mark, state.q), v=mark(state.v), vdot=mark(state.vdot), multipliers=mark(state.multipliers)
    )


def _consistent(system: System, problem: ConstrainedProblem, t: Array, q: AbsoluteConfiguration, v: Array) -> Array:
    """Whether the start keeps the constraints and their rates, in units of lengths and speeds."""
    if not system.nc:
        return jnp.ones((), bool)
    limit = start_tolerance(system.dtype)
    gap, rate = problem.constraints(t, q), constraint_rate(problem, t, q, v)
    largest = lambda x: sm.largest(jnp.abs(x))
    near = (largest(gap) <= limit * problem.scale(q)) & jnp.all(start_cosines(system, t, q) > LEAST_COSINE)
    return near & (largest(rate) <= limit * problem.scale(q) * (1.0 + largest(v)))


def unconstrained_problem(
    system: System, q: AbsoluteConfiguration, v: Array
) -> tuple[HomogeneousSpace, Callable[..., Any], tuple[Any, ...]]:
    """Space, field and start (space, field, y0) of a system without constraints, for `integrate` and its methods.

        problem = lgjax.maximal.unconstrained_problem(system, q, v)
        bodies, v = lgjax.integrate(*problem, 0.0, 1.0, 1000, MuntheKaas(RK4)).ys
        bodies.rotation, bodies.translation, v    # (1001, N, 3, 3), (1001, N, 3), (1001, nv)

    q, v (nv,) are the start, the poses of the bodies and their velocities as `System` defines them.  A state is
    the tuple (bodies, v), or (bodies, coordinates, v) where the system has coordinates (nx,), (coordinates, v) where it
    has no bodies.  Each body moves as q exp(h v), by a translation from the right; the field's value is the rates
    (N, 6), those of the coordinates (nx,) and v̇ = M⁻¹ g (nv,).  Differentiable in all that is traced.
    Raises ValueError for a system with constraints, which `integrate` takes, and for a start of other
    shapes, TypeError for one of another dtype.
    Source: [holzinger2024] section 3.2, Algorithm 3.
    """
    q, v = _start(system, q, v)
    if system.nc:
        raise ValueError(f"{system!r} has constraints, which explicit methods cannot keep; use maximal.integrate")
    n, rest = system.nbodies, system.nv - 6 * system.nbodies
    spaces = [power_space(right_translation(system.structure.group), n)] if n else []
    spaces += [vector_space(rest)] if rest else []
    space = product_space(*spaces, vector_space(system.nv))
    start = *([q.bodies] if n else []), *([q.coordinates] if rest else []), v
    return space, partial(_field, system, q), start


def _field(system: System, q: AbsoluteConfiguration, t: Any, y: tuple[Any, ...]) -> tuple[Any, ...]:
    """Rates of the state y; q holds what the state has none of: bodies or coordinates."""
    *parts, v = y
    n, rest = system.nbodies, system.nv - 6 * system.nbodies
    here = AbsoluteConfiguration(parts[0] if n else q.bodies, parts[-1] if rest else q.coordinates)
    vdot = system.inertia_solve(system.generalized_forces(t, here, v))
    rates = [v[: 6 * n].reshape(n, 6)] if n else []
    return (*rates, *([v[6 * n :]] if rest else []), vdot)
