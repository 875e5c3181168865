"""Fixed-step integration of a field on a homogeneous space: one `lax.scan`, whatever the method."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators.commutator_free import CommutatorFreeTable
from lgjax.integrators.control import StepSizeController
from lgjax.integrators.field import Field, state_dtype, strong
from lgjax.integrators.tableau import Tableau
from lgjax.numerics import checks

Array = jax.Array
Point = Any


class Method(Protocol):
    """Protocol of a method.  `init` checks the inputs and makes what the method carries from step to step."""

    def init(self, space: HomogeneousSpace, field: Field, t: Array, y: Point) -> Any: ...

    def step(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array, carry: Any
    ) -> tuple[Point, Any]: ...


class Checkpoint(Protocol):
    """Protocol of `lgjax.saving.Checkpoint` as the drivers use it: a `lax.scan` that keeps its parts."""

    @property
    def every(self) -> int: ...

    def scan(self, body: Callable, carry: Any, xs: Array, chunk: int) -> tuple[Any, Any]: ...


class Solution(NamedTuple):
    """Result of `integrate`.

    ts, ys    times (n,) and states, every leaf of ys with a leading time axis of the same length n.
    success   whether the last state is finite.  A field that gives NaN, a motion that overflows, and a step of an
              implicit method whose equations were not solved leave NaN in all states from there on.
    """

    ts: Array
    ys: Any
    success: Array


def numbers_of_steps(steps: Any, save_every: Any) -> tuple[int, int]:
    """Steps in all and between saved states, checked."""
    steps = checks.integer("steps", steps)
    chunk = steps if save_every is None else checks.integer("save_every", save_every)
    if steps % chunk:
        raise ValueError(f"save_every must divide steps, got save_every={chunk} and steps={steps}")
    return steps, chunk


def check_method(driver: str, method: Any) -> None:
    """Raise TypeError for anything but a method of `driver` (a name), and say what was probably meant.

    A method made for one other driver names it as `driver`; integrate_adaptive has further checks of its own.
    """
    if isinstance(method, Tableau):
        hint = f"the tableau {method!r}; did you mean MuntheKaas({method!r})?"
    elif isinstance(method, CommutatorFreeTable):
        hint = f"the table {method!r}; did you mean CommutatorFree({method!r})?"
    elif isinstance(method, StepSizeController):
        hint = f"a step size controller, {method!r}; integrate_adaptive takes that as `controller`"
    elif isinstance(method, type):
        hint = f"the class {method.__name__}; it takes an instance of it"
    elif hasattr(method, "driver"):
        hint = f"{method!r}; {method.driver} takes that one"
    elif driver != "integrate_adaptive" and not (hasattr(method, "init") and hasattr(method, "step")):
        hint = f"{method!r}; a method is for instance MuntheKaas(RK4)"
    else:
        return
    raise TypeError(f"{driver} takes a method, got {hint}")


def _time(name: str, value: Any, dtype: jnp.dtype) -> Array:
    return checks.scalar(name, value, dtype)


def _finite(y: Point) -> Array:
    numbers = [leaf for leaf in jax.tree.leaves(y) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in numbers]))


def segment_length(steps: int, remat: bool | int) -> int:
    """Steps in a segment that reverse mode computes again, 0 for none; of True a divisor near √steps, if any."""
    if isinstance(remat, bool):
        if not remat:
            return 0
        root = steps**0.5
        near = [d for d in range(-int(-root / 1.5 // 1), int(root * 1.5) + 1) if steps % d == 0]
        return min(near, key=lambda d: abs(d - root), default=-int(-root // 1))
    return min(steps, checks.integer("remat", remat))


def scan_in_segments(body: Any, carry: Any, xs: Array, length: int) -> tuple[Any, Any]:
    """`lax.scan` over xs (n,), whose reverse mode keeps every `length`-th carry and computes the others again.

    length 0, and one of n or more, is an ordinary scan.
    """
    n = xs.shape[0]
    if not 0 < length < n:
        return jax.lax.scan(body, carry, xs)

    @partial(jax.checkpoint, prevent_cse=False)  # there is nothing to share across the iterations of a scan
    def segment(carry: Any, xs: Array) -> tuple[Any, Any]:
        return jax.lax.scan(body, carry, xs)

    whole = n - n % length
    carry, ys = jax.lax.scan(segment, carry, xs[:whole].reshape(-1, length))
    ys = jax.tree.map(lambda y: y.reshape(whole, *y.shape[2:]), ys)
    if whole < n:
        carry, rest = segment(carry, xs[whole:])
        ys = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), ys, rest)
    return carry, ys


def integrate(
    space: HomogeneousSpace,
    field: Field,
    y0: Point,
    t0: Any,
    t1: Any,
    steps: int,
    method: Method,
    save_every: int | None = 1,
    remat: bool | int = False,
    checkpoint: Checkpoint | None = None,
) -> Solution:
    """Integrate y' = field(t, y) on a space from t0 to t1 in `steps` equal steps.

    field(t, y) returns an algebra element in the form that ``space.dim`` says (for a left translation the spatial, for
    a right translation the body velocity), in the dtype of the state.  t0 and t1 may be traced and are taken in the
    dtype of the state; t1 < t0 integrates backwards.  `steps`, `method` and `save_every` are static.

    Returns the states at t0 and after every `save_every` steps (a divisor of `steps`), so steps / save_every + 1 of
    them; for save_every=None only the final one, with a leading axis of length 1.

    remat       static: reverse mode keeps every `remat`-th state, about every √steps-th if True, and recomputes the
                others: the same derivatives to round-off in the memory of √steps steps, for a second forward run.
    checkpoint  a `lgjax.saving.Checkpoint`, which writes a long run to a folder in parts, so that it can be resumed.

    Transforms with jit, vmap, and grad in both modes.  Called outside `jit` it compiles at every call, like `lax.scan`;
    inside, new values of y0, t0 and t1 compile nothing.  Raises TypeError or ValueError naming what does not fit.
    """
    check_method("integrate", method)
    steps, chunk = numbers_of_steps(steps, save_every if checkpoint is None else save_every or checkpoint.every)
    segment = segment_length(steps, remat)
    y0 = strong(y0)
    dtype = state_dtype(y0)
    start = _time("t0", t0, dtype)
    h = (_time("t1", t1, dtype) - start) / steps

    def time(i: Array) -> Array:
        # Not a running sum, which would lose a digit every ten steps in float32.
        return start + h * i.astype(dtype)

    def one_step(state: Any, i: Array) -> Any:
        y, carry = state
        return method.step(space, field, time(i), y, h, carry), None

    def one_chunk(state: Any, first: Array) -> Any:
        numbers = first + jnp.arange(chunk, dtype=jnp.int32)
        state, _ = one_step(state, first) if chunk == 1 else scan_in_segments(one_step, state, numbers, segment)
        return state, None if save_every is None else state[0]

    state = (y0, strong(method.init(space, field, start, y0)))
    firsts = jnp.arange(0, steps, chunk, dtype=jnp.int32)
    if checkpoint is None:
        state, saved = scan_in_segments(one_chunk, state, firsts, segment // chunk)
    else:
        state, saved = checkpoint.scan(one_chunk, state, firsts, chunk)
    if save_every is None:
        ys = jax.tree.map(lambda x: x[None], state[0])
        return Solution(time(jnp.full((1,), steps, jnp.int32)), ys, _finite(state[0]))
    ys = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), y0, saved)
    return Solution(time(jnp.arange(0, steps + 1, chunk, dtype=jnp.int32)), ys, _finite(state[0]))
