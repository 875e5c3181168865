"""Optimal controls of anything that steps on a manifold, from many guesses at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.compiled import compiled
from lgjax.execution.lasting import Way, first_traced, in_groups
from lgjax.numerics import checks
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.renamed import arguments
from lgjax.saving.arrays import read_arrays, write_arrays
from lgjax.saving.identity import fingerprint
from lgjax.saving.progress import shown_bar, uninterrupted
from lgjax.simulate.control.check_problem import check_problem
from lgjax.simulate.control.fddp import FDDP
from lgjax.simulate.control.method import ControlMethod, not_differentiated
from lgjax.simulate.control.problem import ControlSystem, OptimizeStatus, Problem
from lgjax.simulate.control.shooting import MultipleShooting, Shooting

Array = jax.Array
OPTIONS = ("tolerance", "optimizer", "hold", "segments")  # once arguments of `optimize_controls`


class SearchRecord(NamedTuple):
    """By iteration, (guesses, iterations); a guess that has ended keeps its last numbers."""

    cost: np.ndarray
    gradient_norm: np.ndarray
    violation: np.ndarray


class OptimizedControls(NamedTuple):
    """Result of `optimize_controls` from each guess; arrays have a leading axis (guesses,).

    controls: (guesses, steps, controls), of every step. states: leaves (guesses, steps + 1, ...). cost: (guesses,).
    gradient_norm: with respect to the decision variables. violation: the largest of all constraints, gaps included.
    status: (guesses,) of `OptimizeStatus`. iterations: (guesses,). seconds: computing, compile_seconds: before that.
    Inside `jit` and `vmap` arrays are JAX's, and history and seconds are None.
    """

    controls: np.ndarray
    states: Any
    cost: np.ndarray
    gradient_norm: np.ndarray
    violation: np.ndarray
    status: np.ndarray
    iterations: np.ndarray
    history: SearchRecord
    seconds: float
    compile_seconds: float

    @property
    def success(self) -> np.ndarray:
        """(guesses,) bool, whether the search converged."""
        return self.status == OptimizeStatus.CONVERGED

    @property
    def best(self) -> int:
        """The guess of least cost among those that converged, or else of least violation and cost."""
        usable = np.isfinite(self.cost) & (self.status != OptimizeStatus.NOT_FINITE)
        rank = np.where(usable, np.where(self.status == OptimizeStatus.CONVERGED, 0, 1), 2)
        return int(np.lexsort((self.cost, self.violation * (rank > 0), rank))[0])


@arguments(**dict.fromkeys(OPTIONS, "an option of the method, as in method=Shooting(...)"))
@jax.default_matmul_precision("highest")  # of users' functions too; traces of one precision serve no other
def optimize_controls(
    system: ControlSystem, state: Any, guesses: Any, *, steps: int,
    running: Any = None, terminal: Any = None, bounds: Any = None, equality: Any = None, inequality: Any = None,
    method: ControlMethod = Shooting(),  # noqa: B008 (a hashable value)
    nodes: Any = None, progress: bool | None = None, checkpoint: str | os.PathLike | None = None,
) -> OptimizedControls:  # fmt: skip
    """Controls that minimize  Σ dt running(t, state, control) + terminal(state),  from each of many guesses.

    A guess ends CONVERGED at a minimum to within `method.tolerance`, which is relative to the cost, if the constraints
    hold. With `ILQR` and `FDDP` it also does so where the gradient shrinks no more and the decrease that Newton's step
    would bring is lost in the round-off of the cost. A guess ends STALLED when neither its cost nor its gradient
    improves, and after `method.iterations` in any case. An interrupt (Ctrl-C) returns the best so far.

    It compiles once. Another start, other guesses, bounds and nodes of the same shapes, and other numbers in the model,
    costs and constraints are arguments of the program, unless a function branches on its numbers, as in `if x > 0`, or
    reads something else that can change in place, such as a list. Inside `jit` and `vmap` the result has neither
    history nor times, and derivatives raise TypeError.

    Args:
        system, state: a `ControlSystem` and its start, (q, v) for a mechanism.
        guesses: (guesses, knots, controls), controls constant between the knots or interpolated, as the method says. As
            many knots as steps are one control per step.
        steps: number of steps of system.dt, static.
        running, terminal: functions that return a number, or costs of `control.costs`; None for no such cost.
        bounds: (lower, upper) of the controls, numbers or (controls,); infinite where there is none.
        equality, inequality: (states, controls) -> vector that is to vanish, or not to be positive. Leaves of states
            have a leading axis steps + 1, controls are (steps, controls). `ILQR` and `FDDP` take those that hold step
            by step, `Stagewise(...)`.
        method: `ILQR(...)`, `FDDP(...)`, `Shooting(...)` or `MultipleShooting(...)` of `lgjax.control`, with options.
        nodes: (guesses, segments - 1, ...), the states where the segments of `MultipleShooting` begin, without the
            first; for `FDDP` (guesses, steps, ...), the states after every step. None: those to which the guessed
            controls lead.
        progress: True shows a bar, None does so if tqdm is installed and there is a terminal.
        checkpoint: name of a file to which the search is saved after every round and from which it goes on when called
            again, to the same bits; only shooting with constraints that is given more `iterations` than before ends a
            round elsewhere than if it had had them at once. A file of another problem, by names of functions and the
            values that they captured, is refused.

    Returns:
        `OptimizedControls`: controls (guesses, steps, controls), states, cost and status of each guess, and `best`.

    Raises:
        TypeError, ValueError: naming the argument that does not fit, before anything is computed.
    """
    if not isinstance(method, ControlMethod):
        raise TypeError(
            f"method must be Shooting(...), MultipleShooting(...), ILQR(...) or FDDP(...), got {checks.shown(method)}"
        )
    problem = check_problem(system, state, steps, running, terminal, equality, inequality, bounds)
    guesses = _checked_guesses(problem, guesses)
    search = method.search(problem, guesses.shape[1])
    nodes = _checked_nodes(problem, method, nodes, len(guesses))
    checks.truths(progress=progress)
    if checks.runs_at_once():
        return _drive(search, guesses, nodes, progress, checkpoint)
    if checkpoint is not None or progress:
        raise TypeError("inside jit, vmap or a derivative optimize_controls takes neither checkpoint nor progress")
    return _whole(search, guesses, nodes)


def _checked_guesses(problem: Problem, guesses: Any) -> Array:
    nu = problem.system.controls
    guesses = checks.floats("guesses", guesses, (None, None, nu), problem.dtype)
    if guesses.ndim != 3 or guesses.shape[2] != nu or not 1 <= guesses.shape[1] <= problem.steps or not len(guesses):
        raise ValueError(
            f"guesses have shape (guesses, knots, {nu}) with at most {problem.steps} knots, got {guesses.shape}"
        )
    return checks.finite("guesses", guesses)


def _checked_nodes(problem: Problem, method: ControlMethod, nodes: Any, guesses: int) -> Any:
    """States of every guess, after every step or where segments begin; None if none are given."""
    if nodes is None:
        return None
    if not isinstance(method, MultipleShooting | FDDP):
        raise ValueError(f"nodes are for MultipleShooting and FDDP, the method is {type(method).__name__}")
    between = isinstance(method, MultipleShooting)
    what, count = ("segments - 1", method.parts(problem.steps) - 1) if between else ("steps", problem.steps)
    if jax.tree.structure(nodes) != jax.tree.structure(problem.start):
        raise ValueError(f"nodes must be states like the initial one, {jax.tree.structure(problem.start)}")

    def one(path: Any, leaf: Any, like: Array) -> Array:
        name, want = "nodes" + jax.tree_util.keystr(path), (guesses, count, *like.shape)
        leaf = checks.floats(name, leaf, want, like.dtype)
        if leaf.shape != want:
            raise ValueError(f"{name} must have shape (guesses, {what}, ...) = {want}, got {leaf.shape}")
        return checks.finite(name, leaf)

    return jax.tree_util.tree_map_with_path(one, nodes, problem.start)


# ---- running a search
def _drive(search: Any, guesses: Array, nodes: Any, progress, checkpoint) -> OptimizedControls:
    """A round of `every` iterations after the other, all guesses side by side, until all have ended."""
    iterations, started = search.method.iterations, time.perf_counter()
    limit = jnp.asarray(iterations, jnp.int32)
    first, program = _programs(search, guesses, nodes, limit)
    saved = _Checkpoint(checkpoint, search, first)
    iterate, records = saved.load(first, iterations)
    compile_seconds = time.perf_counter() - started
    started = time.perf_counter()
    try:
        with _bar(progress, iterations) as bar:
            while np.any(np.asarray(iterate.status) == OptimizeStatus.RUNNING):
                iterate, record = jax.block_until_ready(program(iterate))
                records.append(np.asarray(record))
                saved.save(iterate, records)
                _show(bar, iterate)
    except KeyboardInterrupt:
        pass  # the iterate is that of the last finished chunk
    seconds = time.perf_counter() - started
    found = jax.tree.map(np.asarray, _result(iterate))
    return found._replace(history=_history(records, len(guesses)), seconds=seconds, compile_seconds=compile_seconds)


def _programs(search: Any, guesses: Array, nodes: Any, limit: Array) -> tuple[Any, Callable[[Any], Any]]:
    """The first iterate, and the function of an iterate that does a round."""
    start, read = search.problem.start, search._replace(problem=search.problem._replace(start=None))

    def compiled_by(way: Way) -> tuple[Any, Callable[[Any], Any]]:
        programs, numbers, filled = way
        begin, go_on, given = _from(filled, _begun), _from(filled, _round), (numbers, start, guesses, nodes)
        first = programs.compiled("begin", begin, *given).run(*given)
        program = programs.compiled("round", go_on, numbers, start, limit, first).run
        return first, partial(program, numbers, start, limit)

    return first_traced(read, compiled_by)


def _from(filled: Callable, function: Callable) -> Callable:
    """`function` of a search and arrays, as one of numbers, the start and these arrays."""

    def run(numbers: list, start: Any, *args: Any) -> Any:
        search = filled(numbers)
        return function(search._replace(problem=search.problem._replace(start=start)), *args)

    return run


def _result(iterate: Any) -> OptimizedControls:
    """The result of a search, without its history and times."""
    best, none = iterate.best, cast(Any, None)
    return OptimizedControls(
        best.controls, best.states, best.cost, best.gradient_norm, best.violation, iterate.status, iterate.iteration,
        none, none, none,
    )  # fmt: skip


@compiled
def _whole(search: Any, guesses: Array, nodes: Any) -> OptimizedControls:
    """The whole search as one function, for `jit` and `vmap`."""
    limit = jnp.asarray(search.method.iterations, jnp.int32)
    running = lambda iterate: jnp.any(iterate.status == OptimizeStatus.RUNNING)
    first = _begun(search, guesses, nodes)
    last = iterate_while(running, lambda iterate: _round(search, limit, iterate)[0], first)
    return not_differentiated("optimize_controls", _result(last))


def _begun(search: Any, guesses: Array, nodes: Any) -> Any:
    """The first iterate of every guess."""
    return jax.vmap(search.init, in_axes=(0, None if nodes is None else 0))(guesses, nodes)


def _round(search: Any, iterations: Array, iterates: Any) -> tuple[Any, Array]:
    """A round of `every` iterations of every guess, and the numbers of each iteration."""
    every = search.method.every

    def one(iterate: Any, iterations: Array) -> tuple[Any, Array]:
        left = jnp.minimum(every, iterations - iterate.iteration)

        def more(carry: Any) -> Array:
            return (carry[2] < left) & search.unfinished(carry[0])

        def body(carry: Any) -> Any:
            iterate, record, i = carry
            iterate = search.advance(iterate)
            here = (jnp.arange(every, dtype=jnp.int32) == i)[:, None]
            return iterate, jnp.where(here, _numbers(iterate), record), i + 1

        running = iterate.status == OptimizeStatus.RUNNING
        ready = jax.tree.map(lambda a, b: jnp.where(running, a, b), search.begin(iterate), iterate)
        record = jnp.full((every, 3), jnp.nan, iterate.cost.dtype)
        ready, record, _ = iterate_while(more, body, (ready, record, jnp.zeros((), jnp.int32)))
        return search.settle(ready, iterations), record

    return in_groups(one, iterates, iterations)


def _numbers(iterate: Any) -> Array:
    return jnp.stack([iterate.cost, iterate.gradient_norm, iterate.violation])


def _history(records: list[np.ndarray], guesses: int) -> SearchRecord:
    """Every guess's numbers without the places that it did not use, the last repeated to the end."""
    if not records:
        return SearchRecord(*np.zeros((3, guesses, 0)))
    table = np.concatenate(records, 1)
    rows = [row[~np.all(np.isnan(row), -1)] for row in table]
    longest = max(map(len, rows))
    whole = np.stack([row[np.minimum(np.arange(longest), len(row) - 1)] if len(row) else
                      np.full((longest, 3), np.nan, row.dtype) for row in rows])  # fmt: skip
    return SearchRecord(*np.moveaxis(whole, -1, 0))


class _Checkpoint:
    """A search on disk: the leaves of its iterate and its history, and of which problem it is."""

    def __init__(self, path: str | os.PathLike | None, search: Any, first: Any):
        self.path = None if path is None else checks.path("checkpoint", path)
        if self.path is None:
            return
        # a search may go on with more iterations
        self.problem = fingerprint(search._replace(method=replace(search.method, iterations=1)), first)
        if not self.path.absolute().parent.is_dir():
            raise ValueError(f"cannot write checkpoint {str(self.path)!r}: its folder does not exist")

    def load(self, first: Any, iterations: int) -> tuple[Any, list[np.ndarray]]:
        if self.path is None or not self.path.exists():
            return first, []
        arrays = read_arrays(self.path)
        if str(arrays.get("problem")) != self.problem:
            raise ValueError(f"checkpoint {str(self.path)!r} is of another problem, other guesses or other options")
        leaves = [jnp.asarray(arrays[f"leaf{i}"]) for i in range(len(jax.tree.leaves(first)))]
        iterate = jax.tree.unflatten(jax.tree.structure(first), leaves)
        longer = (iterate.status == OptimizeStatus.MAX_ITERATIONS) & (iterate.iteration < iterations)
        status = jnp.where(longer, OptimizeStatus.RUNNING, iterate.status).astype(jnp.int32)
        return iterate._replace(status=status), [arrays["record"]]

    def save(self, iterate: Any, records: list[np.ndarray]) -> None:
        if self.path is None:
            return
        leaves = {f"leaf{i}": leaf for i, leaf in enumerate(jax.tree.leaves(iterate))}
        record = np.concatenate(records, 1)
        with uninterrupted():
            write_arrays(self.path, {**leaves, "problem": np.array(self.problem), "record": record})


def _bar(progress: bool | None, iterations: int) -> Any:
    """A bar of tqdm, or None."""
    tqdm = shown_bar(progress)
    return nullcontext() if tqdm is None else tqdm(total=iterations, unit="it", leave=False)


def _show(bar: Any, iterate: Any) -> None:
    """Iterations of the slowest guess; cost, gradient and violation of the best, and how many guesses have ended."""
    if bar is None:
        return
    cost, status = np.asarray(iterate.best.cost), np.asarray(iterate.status)
    i = int(np.nanargmin(np.where(np.isfinite(cost), cost, np.inf)))
    gradient, violation = (float(np.asarray(x)[i]) for x in (iterate.best.gradient_norm, iterate.best.violation))
    ended = f"{np.sum(status != OptimizeStatus.RUNNING)}/{len(status)} ended"
    bar.set_postfix_str(f"cost {cost[i]:.6g}, gradient {gradient:.1e}, violation {violation:.1e}, {ended}")
    bar.update(int(np.max(np.asarray(iterate.iteration))) - bar.n)
