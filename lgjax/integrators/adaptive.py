"""Integration with error control: every trajectory takes its own steps, also under vmap.

Source: [celledoni2021] section 4, eq. (33).

The loop that finds the steps is a `lax.while_loop` and is not differentiated.  Derivatives are those of the steps that
it accepted, their sizes held fixed but for the last one before an event: a scan over the recorded times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution import batched
from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators.control import ELEMENTARY, StepSizeController, error_ratio, exponent_ratio
from lgjax.integrators.field import Field, held, saved_times, scalar_event, state_on, strong
from lgjax.integrators.integrate import Status, check_method
from lgjax.integrators.method import Method, order_of
from lgjax.numerics import checks
from lgjax.numerics.implicit import implicit_number
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.renamed import attributes
from lgjax.numerics.status import flag
from lgjax.numerics.tangents import moves_where, value_of_first

Array = jax.Array
Point = Any


class AdaptiveSolution(NamedTuple):
    """Result of `integrate_adaptive`.

    ts, ys               times (n,) and states with a leading axis n: those of save_at, or only the end.
    status               () int32, `Status`; 0: t1 or an event was reached, and every time of save_at lies in between.
    accepted, rejected   number of steps, int32.
    times                (max_steps + 1,) the times of the accepted steps, t0 first, padded with the last one.
    stopped              whether an event ended the run, at the last of `times`.

    States at times that were not reached are NaN; after an event this is not a failure.
    """

    ts: Array
    ys: Any
    status: Array
    accepted: Array
    rejected: Array
    times: Array
    stopped: Array

    if not TYPE_CHECKING:
        __getattr__ = attributes(finite="status, with success")

    @property
    def success(self) -> Array:
        """() bool, whether no flag is set."""
        return self.status == 0


class _State(NamedTuple):
    """Carry of the loop: the last accepted point, the next step, what is recorded.

    bracket: once an event is found, the times since t between which it lies; it ends the loop. before: the sign of the
    event at the first of them.
    """

    t: Array
    y: Any
    h: Array
    carry: Any
    error: Array
    accepted: Array
    rejected: Array
    times: Array
    points: Any
    done: Array
    bracket: Array
    before: Array
    stopped: Array
    status: Array


def _select(condition: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def _finite(*numbers: Any) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(numbers)]))


@dataclass(frozen=True)
class _Problem:
    """One run: what to integrate from where and how, in the dtype of the state."""

    space: HomogeneousSpace
    method: Any
    controller: StepSizeController
    max_steps: int
    keep_points: bool
    rtol: Array
    atol: Array
    start: Point
    field: Field
    event: Callable[[Array, Point], Array] | None
    direction: int

    @property
    def planned(self) -> bool:
        """Whether the method knows how long a step may be before it takes it."""
        return self.method.needs_series

    def step_from(self, t: Array, y: Point, carry: Any) -> Callable[[Array], tuple[Point, Any]]:
        """The step from (t, y) as a function of its size: the point, and what is carried on."""
        if not self.planned:
            return lambda h: self.method.embedded_step(self.space, self.field, t, y, h, carry)[::2]
        expansion = self.method.expand(self.space, self.field, t, y)
        return lambda h: (self.method.advance(self.space, expansion, y, h), carry)

    def first_step(self, t0: Array, t1: Array, y0: Point) -> Array:
        """From the length that the field would move y0 in a hundredth of the time, in units of the tolerance."""
        h = (t1 - t0) / 100.0
        if self.planned:
            return h
        xi = jax.tree.map(lambda x: h * jax.lax.convert_element_type(x, h.dtype), self.field(t0, y0))
        ratio = error_ratio(self.space, y0, y0, y0, self.space.move(xi, y0), self.rtol, self.atol)
        guess = h * jnp.maximum(ratio, 1.0) ** (-1.0 / (1 + self.method.order_hat))
        return jnp.where(jnp.isfinite(guess), guess, h)

    def trial(self, t: Array, y: Point, h: Array, carry: Any) -> tuple[Point, Any, Array]:
        """A step from (t, y): the point, what is carried on, and the error in units of the tolerance."""
        if self.method.judges_exponents:
            sigma, other = self.method.embedded_exponents(self.space, self.field, t, y, h)
            return self.space.move(sigma, y), carry, exponent_ratio(sigma, other, self.rtol, self.atol)
        y1, y_hat, carry = self.method.embedded_step(self.space, self.field, t, y, h, carry)
        return y1, carry, error_ratio(self.space, self.start, y, y1, y_hat, self.rtol, self.atol)

    def attempt(self, s: _State, t1: Array) -> _State:
        """One step, accepted or not."""
        if self.planned:
            return self.attempt_planned(s, t1)
        last = jnp.abs(t1 - s.t) <= jnp.abs(s.h) * (1.0 + 1e-3)
        h = jnp.where(last, t1 - s.t, s.h)
        y1, carry, error = batched(self.trial)(s.t, s.y, h, s.carry)
        accept = error <= 1.0  # false for NaN
        k = 1 + min(order_of(self.method), self.method.order_hat)
        factor = self.controller.factor(error, s.error, k, accept)
        size = jnp.where(accept & last, jnp.maximum(jnp.abs(s.h), jnp.abs(h)) * jnp.sign(h), h * factor)
        end = jnp.where(last, t1, s.t + h)
        bracket, before, hit = self.find_event(s, lambda part: y1, h, 1)
        # A step too small to change the time will never do better; nor will NaN, at time zero too.
        now = jnp.where(accept, end, s.t)
        hopeless = ~jnp.isfinite(error) & (jnp.abs(size) <= jnp.finfo(size.dtype).eps * jnp.abs(t1 - s.t))
        stuck = ~(accept & (last | hit)) & ((now + size == now) | hopeless)
        s = self.after(s, accept & ~hit, end, y1, carry)
        return s._replace(
            h=size,
            error=jnp.where(accept, jnp.maximum(error, 1e-4), s.error),
            rejected=s.rejected + (~accept).astype(jnp.int32),
            done=(accept & (last | hit)) | stuck,
            bracket=bracket,
            before=before,
            stopped=accept & hit,
            status=flag(Status.STEP_TOO_SMALL, stuck & jnp.isfinite(error))
            | flag(Status.NOT_FINITE, stuck & ~jnp.isfinite(error)),
        )

    def attempt_planned(self, s: _State, t1: Array) -> _State:
        """One step, as long as its series allows; it fails only where that is not finite."""
        expansion = self.method.expand(self.space, self.field, s.t, s.y)
        size = self.method.step_size(self.space, expansion, self.start, s.y, self.rtol, self.atol)
        last = jnp.abs(t1 - s.t) <= size
        h = jnp.where(last, t1 - s.t, jnp.sign(t1 - s.t) * size)
        at = lambda part: self.method.advance(self.space, expansion, s.y, part)
        y1 = at(h)
        finite = _finite(h, y1)
        bracket, before, hit = self.find_event(s, at, h, self.method.substeps)
        stuck = finite & ~last & (s.t + h == s.t)
        s = self.after(s, finite & ~hit, jnp.where(last, t1, s.t + h), y1, s.carry)
        return s._replace(
            h=h,
            rejected=s.rejected + (~finite).astype(jnp.int32),
            done=last | hit | ~finite | stuck,
            bracket=bracket,
            before=before,
            stopped=finite & hit,
            status=flag(Status.NOT_FINITE, ~finite) | flag(Status.STEP_TOO_SMALL, stuck),
        )

    def after(self, s: _State, accept: Array, t: Array, y: Point, carry: Any) -> _State:
        """The state after a step to (t, y), where it is accepted."""
        n = s.accepted + accept.astype(jnp.int32)
        record = lambda buffer, x: buffer.at[n].set(jnp.where(accept, x, buffer[n]))
        return s._replace(
            t=jnp.where(accept, t, s.t),
            y=_select(accept, y, s.y),
            carry=_select(accept, carry, s.carry),
            accepted=n,
            times=record(s.times, t),
            points=jax.tree.map(record, s.points, y) if self.keep_points else (),
        )

    def find_event(self, s: _State, at: Callable, h: Array, parts: int) -> tuple[Array, Array, Array]:
        """Times since s.t around the event's first change of sign at `parts` points, its sign before, and if any."""
        event = self.event
        if event is None:
            return s.bracket, s.before, jnp.zeros((), bool)
        ends = h * jnp.arange(1, parts + 1, dtype=h.dtype) / parts
        later = jax.vmap(lambda part: event(s.t + part, at(part)))(ends)
        signs = jnp.sign(jnp.concatenate([event(s.t, s.y)[None], later])).astype(h.dtype)
        changes = (signs[:-1] != 0) & (signs[:-1] * signs[1:] <= 0)  # false for NaN
        if self.direction:
            changes = changes & (signs[:-1] == -self.direction)
        first = jnp.argmax(changes)
        return jnp.stack([ends[first] - h / parts, ends[first]]), signs[first], jnp.any(changes)

    def locate(self, s: _State) -> _State:
        """The state at the event in s.bracket, by bisection to round-off; s itself where there is none.

        The sign before the event is the one that found it: computed here it may round to another one.
        """
        event = self.event
        if event is None:
            return s
        step = self.step_from(s.t, s.y, s.carry)

        def halve(_: int, bracket: Array) -> Array:
            middle = 0.5 * (bracket[0] + bracket[1])
            before = jnp.sign(event(s.t + middle, step(middle)[0])).astype(middle.dtype) == s.before
            return jnp.where(before, jnp.stack([middle, bracket[1]]), jnp.stack([bracket[0], middle]))

        bracket = jax.lax.fori_loop(0, jnp.finfo(s.h.dtype).nmant + 8, halve, s.bracket)
        y, carry = step(bracket[1])
        return self.after(s, s.stopped, s.t + bracket[1], y, carry)

    def find_steps(self, t0: Array, t1: Array, y0: Point) -> _State:
        """Integrate with error control; the final state."""
        n, zero = self.max_steps + 1, jnp.zeros((), jnp.int32)
        recorded = lambda x: jnp.zeros((n, *x.shape), x.dtype).at[0].set(x)
        good = lambda tolerance: (tolerance > 0) & jnp.isfinite(tolerance)
        status = flag(Status.BAD_TOLERANCE, ~(good(self.rtol) & good(self.atol)))
        status = status | flag(Status.NOT_FINITE, ~_finite(t0 + t1, y0))
        start = _State(
            t=t0,
            y=y0,
            h=self.first_step(t0, t1, y0),
            carry=strong(self.method.init(self.space, self.field, t0, y0)),
            error=jnp.ones_like(t0),
            accepted=zero,
            rejected=zero,
            times=jnp.full((n,), t0),
            points=jax.tree.map(recorded, y0) if self.keep_points else (),
            done=(t0 == t1) | (status != 0),
            bracket=jnp.zeros((2,), t0.dtype),
            before=jnp.zeros_like(t0),
            stopped=jnp.zeros((), bool),
            status=status,
        )
        end = iterate_while(
            lambda s: ~s.done & (s.accepted + s.rejected < self.max_steps), lambda s: self.attempt(s, t1), start
        )
        end = self.locate(end)
        times = jnp.where(jnp.arange(n, dtype=jnp.int32) <= end.accepted, end.times, end.t)
        return end._replace(times=times, status=end.status | flag(Status.MAX_STEPS, ~end.done))

    def replay(self, times: Array, accepted: Array, t0: Array, t1: Array, y0: Point) -> Any:
        """The points of the steps again as a differentiable scan, from t0 to t1 through the recorded times between."""
        n = jnp.arange(1, self.max_steps + 1, dtype=jnp.int32)
        inner = jax.lax.stop_gradient(times)
        ends = jnp.where((n == accepted) & (inner[1:] == t1), t1, inner[1:])
        starts = jnp.concatenate([t0[None], ends[:-1]])

        @jax.checkpoint
        def one(state: Any, x: Any) -> Any:
            i, t, after = x
            state = jax.lax.cond(i <= accepted, lambda s: self.step_from(t, *s)(after - t), lambda s: s, state)
            return state, state[0]

        carry = strong(self.method.init(self.space, self.field, t0, y0))
        _, rest = jax.lax.scan(one, (y0, carry), (n, starts, ends))
        return jax.tree.map(lambda first, more: jnp.concatenate([first[None], more]), y0, rest)

    def between(self, times: Array, points: Any, accepted: Array, t: Array) -> Point:
        """The point at time t by one step of the method from the last recorded point before it.

        So dense output has the order of the method, lies on the space, and meets the recorded points at both ends.
        """
        forward = times[-1] >= times[0]
        begun = jnp.arange(self.max_steps + 1, dtype=jnp.int32) < accepted
        passed = jnp.where(forward, times <= t, times >= t) & begun
        i = jnp.maximum(jnp.sum(passed, dtype=jnp.int32) - 1, 0)
        y = jax.tree.map(lambda x: x[i], points)
        carry = strong(self.method.init(self.space, self.field, times[i], y))
        return self.step_from(times[i], y, carry)(t - times[i])[0]

    def at_end(self, state: _State, replayed: Any, t0: Array, t1: Array) -> tuple[Array, Any]:
        """The last time and point, both with a leading axis, and with the derivatives of the replayed ones."""
        last, t_last = jax.tree.map(lambda x: x[state.accepted], replayed), jnp.where(state.stopped, state.t, t1)
        if self.event is not None:
            found = self.at_event(state, replayed, t0)
            t_last, last = _select(state.stopped, found, (t_last, last))
        return jax.tree.map(lambda x: x[None], value_of_first((state.t, state.y), (t_last, last)))

    def at_event(self, state: _State, replayed: Any, t0: Array) -> tuple[Array, Point]:
        """Time and point of the event that ended the run: the last step, with the length at which the event is zero."""
        n = jnp.maximum(state.accepted - 1, 0)
        assert self.event is not None
        t, y = state.times.at[0].set(t0)[n], jax.tree.map(lambda x: x[n], replayed)
        step = self.step_from(t, y, strong(self.method.init(self.space, self.field, t, y)))
        event, numbers = jax.closure_convert(self.event, state.t, state.y)
        # where there was none, the event may be NaN, and so may its derivative, which zero does not undo
        seen = lambda x: jax.tree.map(partial(moves_where, state.stopped), x)
        h = implicit_number(lambda h: event(*seen((t + h, step(h)[0])), *seen(numbers)), state.t - t)
        return t + h, step(h)[0]

    def at_times(self, state: _State, replayed: Any, t0: Array, ts: Array, inside: Array) -> Any:
        """Dense output; NaN at times that were not reached or are not inside."""
        points = value_of_first(state.points, replayed)
        times = state.times.at[0].set(t0)
        ys = jax.vmap(lambda t: self.between(times, points, state.accepted, t))(jnp.where(inside, ts, t0))
        reached = inside & (jnp.abs(ts - t0) <= jnp.abs(state.t - t0))
        return jax.tree.map(lambda x: jnp.where(reached.reshape((-1,) + (1,) * (x.ndim - 1)), x, jnp.nan), ys)


def _check_settings(method: Any, controller: Any, event: Any, direction: Any) -> None:
    check_method("integrate_adaptive", method)
    if not isinstance(method, Method) or (method.order_hat is None and not method.needs_series):
        wanted = "a method with an embedded one, such as MuntheKaas(DORMAND_PRINCE54), or Taylor"
        raise ValueError(f"integrate_adaptive needs {wanted}; got {checks.shown(method)}")
    if not isinstance(controller, StepSizeController):
        raise TypeError(
            f"controller must be a StepSizeController such as ELEMENTARY or PI_CONTROL, got {checks.shown(controller)}"
        )
    checks.functions(event=event)
    if type(direction) is not int or direction not in (-1, 0, 1):
        raise ValueError(f"direction must be -1, 0 or 1, got {checks.shown(direction)}")


def integrate_adaptive(
    space: HomogeneousSpace, field: Field, y0: Point, t0: Any, t1: Any, method: Any, rtol: Any, atol: Any,
    max_steps: int, save_at: Any = None, controller: StepSizeController = ELEMENTARY,
    event: Callable[[Array, Point], Array] | None = None, direction: int = 0,
) -> AdaptiveSolution:  # fmt: skip
    """Integrate y' = field(t, y) on a space from t0 to t1 with steps that keep the estimated error within tolerance.

    `status` reports failures on the way and wrong traced arguments, under vmap for each trajectory. It works with jit,
    vmap and grad in both modes; derivatives hold the accepted step sizes fixed and take the time of max_steps steps.
    Called outside `jit` it also runs the scan that only derivatives need.

    Args:
        space, field, y0, t0, t1: as in `integrate`.
        method: MuntheKaas or CommutatorFree of an embedded pair; or Taylor, with a series as the field.
        rtol, atol: the distance between the two results of a step stays below atol + rtol size, part by part of the
            state: rotations have size 1, vectors their length, positions their distance from the start. A few units of
            round-off are always allowed. Traced, like t0, t1 and save_at: new values compile nothing.
        max_steps: static bound on attempted steps; where it is reached before t1, the status says so.
        save_at: times (n,) between t0 and t1, ends included, at which to return states by dense output of the method's
            order; without it only the end is returned, with a leading axis of length 1.
        controller: ELEMENTARY, the rule of eq. (33), or PI_CONTROL; Taylor has its own.
        event: (t, y) -> scalar: where its sign changes the run ends, at that point to round-off, with `stopped`. It is
            evaluated after every step, and by Taylor at `substeps` points within; what changes twice in between is
            missed, as is an event at t0 or while its function is NaN. Derivatives account for the change of its time.
            States at times of save_at after it are NaN, which is not a failure.
        direction: 1 for events that rise along the run, -1 for events that fall, 0 for both. A run that starts where an
            event stopped another needs 1 or -1.

    Returns:
        an `AdaptiveSolution`: times, states, status, numbers of steps.

    Raises:
        TypeError, ValueError: as for `integrate`, and for known tolerances that are not positive or known times of
            save_at outside the run.
    """
    _check_settings(method, controller, event, direction)
    max_steps, (y0, dtype) = checks.integer("max_steps", max_steps), state_on(space, y0)
    start, end = checks.scalar("t0", t0, dtype), checks.scalar("t1", t1, dtype)
    ts, inside = saved_times(() if save_at is None else save_at, t0, t1, dtype)
    if not method.needs_series:
        method.init(space, field, start, y0)
    rtol, atol = checks.scalar("rtol", rtol, dtype, positive=True), checks.scalar("atol", atol, dtype, positive=True)
    order = (method.order,) if method.needs_series else ()
    still, moving = held(lambda t, y: field(t, y, *order), start, y0)
    if order:
        method.init(space, still, start, y0)  # now that tracing it again costs little
    still_event, moving_event = held(scalar_event(event, start, y0), start, y0) if event else (None, None)
    kept = save_at is not None, *jax.lax.stop_gradient((rtol, atol, y0))
    problem = _Problem(space, method, controller, max_steps, *kept, still, still_event, direction)
    again = replace(problem, field=moving, event=moving_event)
    state = problem.find_steps(*jax.lax.stop_gradient((start, end, y0)))
    replayed = again.replay(state.times, state.accepted, start, end, y0)
    if save_at is None:
        ts, ys = again.at_end(state, replayed, start, end)
    else:
        ys = again.at_times(state, replayed, start, ts, inside)
    status = state.status | flag(Status.SAVE_AT_OUTSIDE, ~jnp.all(inside))
    return AdaptiveSolution(ts, ys, status, state.accepted, state.rejected, state.times, state.stopped)
