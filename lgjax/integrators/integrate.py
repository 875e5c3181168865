"""Fixed-step integration of a field on a homogeneous space: one scan, whatever the method."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution import batched
from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators.commutator_free import CommutatorFreeTable
from lgjax.integrators.control import StepSizeController
from lgjax.integrators.field import Field, state_on, strong
from lgjax.integrators.method import Method
from lgjax.integrators.scan_saved import saved_steps, scan_saved
from lgjax.integrators.tableau import Tableau
from lgjax.numerics import checks
from lgjax.numerics.renamed import attributes
from lgjax.numerics.status import NOT_FINITE, Flags, flag
from lgjax.saving.checkpoint import Checkpoint

Array = jax.Array
Point = Any


class Status(Flags):
    """Flags that say why a run failed; 0 means success, flags add up.

    NOT_FINITE       1: the field, the state or a time is infinite or NaN from here on
    MAX_STEPS        2: max_steps steps were attempted before the end was reached
    STEP_TOO_SMALL   4: the tolerance requires a step too small to change the time
    SAVE_AT_OUTSIDE  8: a time of save_at does not lie between t0 and t1; the state there is NaN
    BAD_TOLERANCE    16: rtol or atol is not positive and finite, so no step was taken
    """

    OK = 0
    NOT_FINITE = NOT_FINITE
    MAX_STEPS = 2
    STEP_TOO_SMALL = 4
    SAVE_AT_OUTSIDE = 8
    BAD_TOLERANCE = 16


class Solution(NamedTuple):
    """Result of `integrate`.

    ts, ys    times (n,) and states, every leaf of ys with a leading time axis of the same length n.
    status    () int32, `Status`: NOT_FINITE if the last state is not finite.  A field that gives NaN, a motion that
              overflows, and a step of an implicit method whose equations were not solved leave NaN in all states from
              there on.
    """

    ts: Array
    ys: Any
    status: Array

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(finite="status, with success")

    @property
    def success(self) -> Array:
        """() bool, whether no flag is set."""
        return self.status == 0


def check_method(driver: str, method: Any) -> None:
    """Raise TypeError for anything but a method of `driver` (a name), and say what was probably meant.

    A method that only one other driver takes names it in its attribute `driver`; integrate_adaptive has further checks
    of its own.
    """
    if isinstance(method, Tableau):
        hint = f"the tableau {method!r}; did you mean MuntheKaas({method!r})?"
    elif isinstance(method, CommutatorFreeTable):
        hint = f"the table {method!r}; did you mean CommutatorFree({method!r})?"
    elif isinstance(method, StepSizeController):
        hint = f"a step size controller, {checks.shown(method)}; integrate_adaptive takes that as `controller`"
    elif isinstance(method, type):
        hint = f"the class {method.__name__}; it takes an instance of it"
    elif hasattr(method, "driver"):
        hint = f"{checks.shown(method)}; {method.driver} takes that one"
    elif driver != "integrate_adaptive" and not isinstance(method, Method):
        hint = f"{checks.shown(method)}; a method is for instance MuntheKaas(RK4)"
    else:
        return
    raise TypeError(f"{driver} takes a method, got {hint}")


def finite_status(ys: Any) -> Array:
    """The status of a run that saved the states ys: NOT_FINITE if the last one is not finite, else 0."""
    last = [leaf[-1] for leaf in jax.tree.leaves(ys) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in last]))
    return flag(Status.NOT_FINITE, ~finite)


def integrate(
    space: HomogeneousSpace, field: Field, y0: Point, t0: Any, t1: Any, steps: int, method: Method,
    save_every: int | None = 1, remat: bool | int = False, checkpoint: Checkpoint | None = None,
) -> Solution:  # fmt: skip
    """Integrate y' = field(t, y) on a space from t0 to t1 in `steps` equal steps.

    It works with jit, vmap, and grad in both modes. Called outside `jit` it compiles at every call, like `lax.scan`;
    inside, new values of y0, t0 and t1 compile nothing.

    Args:
        space: where the states live, such as `right_translation(SO3)`.
        field: (t, y) -> algebra element in the form that ``space.dim`` says (for a left translation the spatial, for a
            right translation the body velocity), in the dtype of the state.
        y0: the state at t0, a point of the space.
        t0, t1: start and end, may be traced; converted to the dtype of the state. t1 < t0 integrates backwards.
        steps: number of steps, static.
        method: such as `MuntheKaas(RK4)`, static.
        save_every: a divisor of `steps`, static: the states at t0 and after every `save_every` steps are returned,
            steps / save_every + 1 of them; with None only the final one, with a leading axis of length 1.
        remat: static; reverse mode keeps every `remat`-th state, about every √steps-th if True, and recomputes the
            others. Derivatives are the same to round-off; with True the memory is that of √steps steps, at the price of
            a second forward run.
        checkpoint: a `lgjax.saving.Checkpoint`, which writes a long run to a folder in parts, so that it can be
            resumed.

    Returns:
        a `Solution`: times, states and status.

    Raises:
        TypeError, ValueError: naming the argument that does not fit.

    Example:
        >>> space = lgjax.right_translation(lgjax.SO3)
        >>> turn = lambda t, R: jnp.array([0.0, 0.0, 1.0])  # rad/s, about z
        >>> run = lgjax.integrate(space, turn, jnp.eye(3), 0.0, 0.5, 10, lgjax.MuntheKaas(lgjax.RK4), save_every=None)
        >>> lgjax.so3.log(run.ys[-1]).round(4)
        Array([0. , 0. , 0.5], dtype=float32)

    Source: that of the method.
    """
    check_method("integrate", method)
    saves = saved_steps(steps, save_every, checkpoint)
    y0, dtype = state_on(space, y0)
    start = checks.scalar("t0", t0, dtype)
    h = (checks.scalar("t1", t1, dtype) - start) / saves.steps

    def time(i: Array) -> Array:
        # Not a running sum, which would lose a digit every ten steps in float32.
        return start + h * i.astype(dtype)

    following = partial(method.step, space, field)
    if not method.one_step_is_one_call:
        following = batched(following)

    def step(state: tuple[Point, Any], i: Array) -> tuple[Point, Any]:
        return following(time(i), state[0], h, state[1])

    state = (y0, strong(method.init(space, field, start, y0)))
    _, ys = scan_saved(step, state, saves, lambda state: state[0], remat=remat, checkpoint=checkpoint)
    return Solution(time(saves.counts()), saves.with_start(y0, ys), finite_status(ys))
