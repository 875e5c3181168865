"""Checks of a problem of optimal control, before anything is computed. Read first: `problem.py`."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.integrators.field import state_dtype, strong
from lgjax.multibody.configuration import Configuration
from lgjax.numerics import checks
from lgjax.numerics.signatures import called_with
from lgjax.simulate.control.cost import Cost, Sum
from lgjax.simulate.control.costs import LeastSquares
from lgjax.simulate.control.problem import ControlSystem, Problem, State, following
from lgjax.simulate.control.stagewise import Stagewise

Array = jax.Array
ONE_MORE = "; only PredictiveController(reference=) adds one more"


def _number(name: str, result: Any, dtype: Any) -> None:
    shape = getattr(result, "shape", None)
    if shape != ():
        raise ValueError(f"{name} must return one number, got {'shape ' + str(shape) if shape else result}")
    if result.dtype != dtype:
        raise TypeError(f"{name} returns {result.dtype}, the state is {dtype}")


def box(bounds: Any, controls: int, dtype: Any) -> tuple[Any, Any]:
    """Lower and upper bounds (controls,) of `bounds`; ValueError where they do not fit or cross."""
    if bounds is None:
        bounds = (-np.inf, np.inf)
    known = checks.known(bounds)
    one = checks.real if known else lambda name, b: checks.floats(name, b, (controls,), dtype)
    wide = np.broadcast_to if known else jnp.broadcast_to
    try:
        low, high = (wide(one("bounds", b).astype(dtype), (controls,)) for b in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds are (lower, upper), each one number or ({controls},): {error}") from error
    for i in np.flatnonzero(~(low < high)) if known else ():
        if low[i] == high[i]:
            hint = "leave a joint without a motor out with ControlSystem.of_model(..., controls=, actuation=)"
            raise ValueError(f"both bounds of control {i} are {low[i]:g}: {hint}")
        raise ValueError(f"bounds of control {i} cross: lower {low[i]:g}, upper {high[i]:g}")
    return low, high


def _check_costs(running: Any, terminal: Any, reference: Any) -> None:
    """Costs that are functions receive the value of a reference as their last argument."""
    more = () if reference is None else ("reference",)
    for name, cost, arguments in (("running", running, ("t", "state", "control")), ("terminal", terminal, ("state",))):
        function = cost.residual if type(cost) is LeastSquares else cost
        if function is not None and not isinstance(function, Cost):
            called_with(f"the {name} cost", function, *arguments, *more, hint="" if more else ONE_MORE)
    if reference is not None and not any(map(_follows, (running, terminal))):
        raise TypeError(
            "no cost takes the reference: write one as control.costs.LeastSquares(lambda t, state, control, reference: "
            "...) or as a function"
        )


def _follows(cost: Any) -> bool:
    """Whether a reference is an argument of a cost, or of one of its terms."""
    terms = [term for _, term in cost.terms] if isinstance(cost, Sum) else [cost]
    return any(term is not None and (not isinstance(term, Cost) or term.following(None) is not term) for term in terms)


def _followed(cost: Any) -> Any:
    return lambda *args: following(cost, args[-1])(*args[:-1])


def _check_constraint(name: str, constraint: Any, one: Any, states: State, whole: Any) -> None:
    """one: time, state and control of a step; states, whole: states and controls of all."""
    if isinstance(constraint, Stagewise):
        for part, arguments in (("running", ("t", "state", "control")), ("terminal", ("state",))):
            if getattr(constraint, part) is not None:
                called_with(f"{name}.{part}", getattr(constraint, part), *arguments, hint=ONE_MORE)
        for part, got in (
            ("running", constraint.running and jax.eval_shape(constraint.running, *one)),
            ("terminal", constraint.terminal and jax.eval_shape(constraint.terminal, one[1])),
        ):
            if got is not None and (not hasattr(got, "shape") or len(got.shape) != 1):
                raise ValueError(f"{name}.{part} must return one vector, got {getattr(got, 'shape', got)}")
    elif constraint is not None:
        got = jax.eval_shape(constraint, states, whole)
        if not hasattr(got, "shape") or len(got.shape) != 1:
            raise ValueError(f"{name} must return one vector, got {getattr(got, 'shape', got)}")


def check_problem(
    system: ControlSystem,
    start: State,
    steps: int,
    running,
    terminal,
    equality,
    inequality,
    bounds,
    t0: Any = 0.0,
    reference: Any = None,
) -> Problem:
    """Check everything about a problem that can be known before it is solved."""
    checks.of_kind("system", system, ControlSystem)
    checks.functions(running=running, terminal=terminal, equality=equality, inequality=inequality)
    steps = checks.integer("steps", steps)
    if not 0 < system.dt < np.inf:
        raise ValueError(f"dt of the system must be positive and finite, got {system.dt}")
    mechanism = system.forces is not None or system.joints
    if mechanism and not (isinstance(start, tuple) and len(start) > 1 and isinstance(start[0], Configuration)):
        raise TypeError(f"the initial state of a mechanism is (q, v), got {checks.described(start)}")
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
    checks.functions(reference=reference)
    followed = () if reference is None else (jax.eval_shape(reference, time),)
    _check_costs(running, terminal, reference)
    of = lambda cost, *args: jax.eval_shape(cost if reference is None else _followed(cost), *args, *followed)
    if running is not None:
        _number("the running cost", of(running, time, start, control), dtype)
    if terminal is not None:
        _number("the terminal cost", of(terminal, start), dtype)
    states = jax.tree.map(lambda x: jax.ShapeDtypeStruct((steps + 1, *x.shape), x.dtype), start)
    whole = jax.ShapeDtypeStruct((steps, system.controls), dtype)
    equality, inequality = (
        replace(c, dt=float(system.dt)) if isinstance(c, Stagewise) else c for c in (equality, inequality)
    )
    for name, constraint in (("equality", equality), ("inequality", inequality)):
        _check_constraint(name, constraint, (time, start, control), states, whole)
    low, high = box(bounds, system.controls, dtype)
    lower, upper = jnp.asarray(low), jnp.asarray(high)
    known = checks.known(low, high)
    if system.free_time and known and not low[-1] > 0:
        raise ValueError(
            f"the last control of a system with free time is the length of a step over dt: its lower bound must be "
            f"positive, got {low[-1]:g}"
        )
    bounded = not known or bool(np.any(np.isfinite(low)) or np.any(np.isfinite(high)))
    return Problem(
        system, start, steps, dim, running, terminal, equality, inequality, lower, upper, bounded, t0, reference
    )
