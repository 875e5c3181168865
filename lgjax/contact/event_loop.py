"""One step of a hybrid system: the loop that finds its events, and the same motion again to be differentiated.

Read first: `modes.py` and the first lines of `event_driven.py`, which say what a part is. Order of reading here:
`System.turn`, `System.flown`, `System.reset`, then `System.again`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact.contacts import Contacts, in_range
from lgjax.contact.event_search import Search
from lgjax.contact.modes import (
    HIT,
    NEAR,
    STOP,
    Mode,
    Motion,
    Tolerances,
    choice,
    impulses,
    law_of_impact,
    motion,
    next_mode,
    settle,
    touching,
)
from lgjax.contact.modes import tangents as tangents_of
from lgjax.contact.status import ContactStatus
from lgjax.execution import batched
from lgjax.groups.homogeneous_space import product_space, vector_space
from lgjax.integrators.control import ELEMENTARY, error_ratio
from lgjax.multibody.configuration import Configuration, mechanical_space
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import in_any_system, iterate_while
from lgjax.numerics.newton import only_if
from lgjax.numerics.status import flag

Array = jax.Array

TURNS = 36  # of the loop for each part: rejected steps and the search for events, see `Search.next`
RESTS = 1e-4  # bounces that end within this part of a step are not followed
FAILED = 1e-3  # relative residual from which a reset counts as not solved
DEEP = {8: 1e-6, 4: 1e-4}  # m, penetration that is reported, by bytes of the dtype
FLOW, STRIKE, CHOOSE = range(3)  # kinds of parts


class EventStep(NamedTuple):
    """A step by events. q, v: the state after it. impulse: (n, 3) N s of forces and impacts during it, in the contact
    frames. residual: () the largest relative violation of the law of contact at a reset. parts: () int32. status: ()
    int32, `ContactStatus`.
    """

    q: Configuration
    v: Array
    impulse: Array
    residual: Array
    parts: Array
    status: Array


class Settings(NamedTuple):
    """Static numbers of a run. method, max_parts: as in `EventDriven`. tolerance, max_sweeps: of the law of contact."""

    method: Any
    max_parts: int
    tolerance: float
    max_sweeps: int


class Part(NamedTuple):
    """One part of a step. end: () s after the beginning of the step. kind: () FLOW, STRIKE or CHOOSE. mode: that of the
    flow, or the chosen one. event: (n, 4) bool, the guard at which a flow ended. hit: (n,) bool, contacts that an
    impact is at, restitution: (n,) there. x: (3 n, 2) what solves the law of contact there.
    """

    end: Array
    kind: Array
    mode: Mode
    event: Array
    hit: Array
    restitution: Array
    x: Array


class Run(NamedTuple):
    """Carry of the loop. t: () s. y: state ((q, v), impulse). mode, h: of the next attempt. event: what ended the last
    flow. choosing: whether a reset comes next. search: what brackets an event. record: parts so far, n of them.
    """

    t: Array
    y: Any
    mode: Mode
    h: Array
    event: Array
    choosing: Array
    search: Search
    gap: Array
    rate: Array
    record: Part
    n: Array
    turns: Array
    residual: Array
    done: Array
    failed: Array
    inexact: Array  # 1 where the distance of a pair was not found at a state that was reached


@dataclass(frozen=True)
class System:
    """The hybrid system of one step."""

    settings: Settings
    forces: Callable
    model: Model
    contacts: Contacts
    start: Any
    dt: Array
    tolerances: tuple[Array, Array]
    parameters: list

    @property
    def width(self) -> Array:
        """Times of events are found to this, s."""
        return 4 * float(jnp.finfo(self.dt.dtype).eps) * self.dt

    @property
    def space(self):
        return product_space(mechanical_space(self.model.tree), vector_space(3 * len(self.contacts)))

    def motion(self, mode: Mode, t: Array, y: Any) -> Motion:
        (q, v), _ = y
        tau, applied = self.forces(t, q, v, *self.parameters)
        return motion(self.model, self.contacts, mode, q, v, tau, applied, self.dt)

    def field(self, mode: Mode, t: Array, y: Any) -> Any:
        found = self.motion(mode, t, y)
        return (y[0][1], found.vdot), found.force

    def flow(self, mode: Mode, t: Array, y: Any, h: Array) -> tuple[Any, Any]:
        """The point h later and that of the embedded method."""
        return self.settings.method.embedded_step(self.space, partial(self.field, mode), t, y, h, ())[:2]

    def settle(self, mode: Mode, line: Array, m: Motion, y: Any) -> Any:
        return settle(self.model, mode, line, m.now, *y[0]), y[1]

    def struck(self, m: Motion, y: Any, x: Array) -> Any:
        """The state after an impact, whose impulses without and with restitution are x."""
        (q, v), total = y
        x = impulses(m.now, x)
        return (q, v + sm.matvec(m.now.W.T, x)), total + x

    # ---- the motion, with decisions
    def run(self) -> tuple[EventStep, Part]:
        n, dtype = len(self.contacts), self.model.dtype
        none, zero, no = jnp.zeros((n,), bool), jnp.zeros((), dtype), jnp.zeros((), bool)
        mode = Mode(none, none, jnp.zeros((n, 2), dtype).at[:, 0].set(1), jnp.zeros((3 * n,), dtype))
        count = jnp.zeros((), jnp.int32)
        nothing = jnp.zeros((n,), dtype), jnp.zeros((3 * n, 2), dtype)
        blank = Part(zero, count, mode, jnp.zeros((n, 4), bool), none, *nothing)
        parts = self.settings.max_parts
        start = Run(
            t=zero,
            y=(self.start, jnp.zeros((3 * n,), dtype)),
            mode=mode,
            h=self.dt,
            event=blank.event,
            choosing=jnp.ones((), bool),
            search=Search.idle(dtype),
            gap=blank.restitution,
            rate=blank.restitution,
            record=jax.tree.map(lambda x: jnp.broadcast_to(x, (parts, *x.shape)), blank),
            n=count,
            turns=count,
            residual=zero,
            done=self.dt == 0,
            failed=no,
            inexact=zero,
        )
        going = lambda s: ~s.done & ~s.failed & (s.n < parts) & (s.turns < TURNS * parts)
        s = iterate_while(going, self.turn, start)
        (q, v), impulse = s.y
        deep = jnp.min(s.gap) < -DEEP[jnp.dtype(dtype).itemsize]
        bad = ~jnp.isfinite(jnp.sum(v) + jnp.sum(impulse))
        failed = s.failed | deep | (s.residual > FAILED) | (s.inexact > 0) | ~self.in_range()
        status = flag(ContactStatus.NOT_SOLVED, failed)
        status = status | flag(ContactStatus.TOO_MANY_PARTS, ~s.done & ~s.failed)
        status = status | flag(ContactStatus.NOT_FINITE, bad)
        return EventStep(q, v, impulse.reshape(n, 3), s.residual, s.n, status), s.record

    def in_range(self) -> Array:
        """Whether traced numbers are those that known ones have to be, () bool."""
        good = in_range(self.contacts, self.model)
        if self.contacts.smoothing is not None:
            good = good & (self.contacts.smoothing == 0)
        for number in (self.dt, *self.tolerances):
            good = good & (number > 0) & (number < jnp.inf)
        return good

    def turn(self, s: Run) -> Run:
        """One attempt: to flow, to come closer to an event, or a reset at the state that was reached."""
        left = self.dt - s.t
        ahead = jnp.where(s.search.active, s.search.next(self.width), jnp.minimum(s.h, left))
        # Behind a barrier, because all that is decided from these numbers has to see the same rounding of them.
        h = jax.lax.optimization_barrier(jnp.where(s.choosing, jnp.zeros_like(left), ahead))
        y, y_hat = jax.lax.optimization_barrier(self.flow(s.mode, s.t, s.y, h))
        m = jax.lax.optimization_barrier(self.motion(s.mode, s.t + h, y))
        flown = self.flown(s, h, y, y_hat, m)
        reset = only_if(s.choosing, lambda: self.reset(s, m), s)
        new = jax.tree.map(lambda a, b: jnp.where(s.choosing, a, b), reset, flown)
        reached = s.choosing | (new.t > s.t)  # what was only tried does not count
        inexact = jnp.where(reached, jnp.maximum(s.inexact, m.now.inexact), s.inexact)
        return new._replace(turns=s.turns + 1, inexact=inexact)

    def flown(self, s: Run, h: Array, y: Any, y_hat: Any, m: Motion) -> Run:
        """After an attempt to flow for h: repeat it shorter, go on to search for an event, or accept it.

        The direction of a slip has no derivative at its end. So a slip comes to its end in shrinking parts, until
        `modes` holds the direction in what is left.
        """
        last = h >= self.dt - s.t
        error = error_ratio(self.space.factors[0], self.start, s.y[0], y[0], y_hat[0], *self.tolerances)
        error = jax.lax.optimization_barrier(error)
        factor = ELEMENTARY.factor(error, jnp.ones_like(error), self._error_order(), error <= 1)
        good = (error <= 1) | s.search.active & jnp.isfinite(error)
        least = jnp.min(m.guards)
        dips = self.dip(s, h, m) & ~s.search.active & (least > 0)
        search = s.search.after(h, least)
        # At the end of the step nothing can happen any more; the next one begins with a reset.
        end_reached = ~s.search.active & ((self.dt - s.t <= self.width) | (last & (least == 0)))
        arrived = good & search.found(least, self.width) & ~end_reached
        places = jnp.arange(m.guards.size).reshape(m.guards.shape)
        event = arrived & (places == jnp.argmin(m.guards))
        early = jnp.any(event[:, STOP]) & (h > NEAR * self.dt)
        over = good & ((least > 0) & ~s.search.active | end_reached) & ~dips
        seeks = good & ~arrived & ((least < 0) & ~end_reached | s.search.active)
        arrived = arrived & ~early
        shorter = jnp.where(early, 0.75 * h, jnp.where(good & dips, 0.5 * h, h * factor))
        stuck = ~good & (s.t + h * factor == s.t)
        accept = arrived | over
        end = jnp.where(last & over, self.dt, s.t + h)
        nothing = jnp.zeros_like(s.mode.closed), jnp.zeros_like(m.now.gap), jnp.zeros_like(s.record.x[0])
        part = Part(end, jnp.int32(FLOW), s.mode, event, *nothing)
        slip = tangents_of(m.now.u)
        go = lambda a, b: jax.tree.map(lambda x, y: jnp.where(accept, x, y), a, b)
        pick = lambda a, b: jax.tree.map(lambda x, y: jnp.where(seeks, x, y), a, b)
        new = s._replace(
            t=jnp.where(accept, end, s.t),
            y=go(self.settle(s.mode, m.line, m, y), s.y),
            h=jnp.where(arrived | seeks | (over & (h < s.h)), s.h, shorter),
            event=jnp.where(accept, event, s.event),
            choosing=arrived,
            search=pick(search, Search.idle(h.dtype)),
            gap=go(m.now.gap, s.gap),
            rate=go(m.now.u[::3], s.rate),
            done=over & last,
            failed=stuck,
        )
        turning = s.mode.slides & (jnp.sum(slip * slip, 1) > 0) & over
        size = jnp.sqrt(jnp.where(turning, jnp.sum(slip * slip, 1), jnp.ones_like(m.now.gap)))[:, None]
        direction = jnp.where(turning[:, None], slip / size, s.mode.direction)
        return self.noted(new, accept, part)._replace(mode=s.mode._replace(direction=direction))

    def _error_order(self) -> int:
        method = self.settings.method
        return 1 + min(method.order, method.order_hat)

    def dip(self, s: Run, h: Array, m: Motion) -> Array:
        """Whether the gap of an open contact seems to vanish within a step at whose ends it does not: the cubic through
        gaps and their rates says so.
        """
        w = jnp.linspace(0, 1, 9, dtype=h.dtype)[1:-1, None]
        g0, g1, r0, r1 = s.gap, m.now.gap, h * s.rate, h * m.now.u[::3]
        cubic = (1 + 2 * w) * (1 - w) ** 2 * g0 + w * (1 - w) ** 2 * r0 + w**2 * (3 - 2 * w) * g1 - w**2 * (1 - w) * r1
        return jnp.any(~s.mode.closed & (jnp.min(cubic, 0) < -Tolerances.of(h.dtype).gap))

    def reset(self, s: Run, m: Motion) -> Run:
        """An impact where contacts approach, otherwise the choice of the next mode."""
        v = s.y[0][1]
        normal = m.now.u[::3]
        hit = touching(m.now)
        strikes = jnp.any(hit & (normal < -Tolerances.of(v.dtype).velocity * (1 + jnp.max(jnp.abs(v)))))
        e = self.rebound(s, m)
        pick = lambda a, b: jax.tree.map(lambda x, y: jnp.where(strikes, x, y), a, b)
        # One solver for both: it is the largest part of the program.
        chosen = choice(self.contacts, s.mode, m, v, s.event)
        law = pick(law_of_impact(m.now, self.contacts, hit, e), chosen.law)
        none = jnp.zeros_like(law.b)
        ask = lambda: law.solution(m.now.G, self.settings, none, self.settings.max_sweeps)
        x, missed = only_if(jnp.any(hit), ask, (none, jnp.zeros_like(s.t)))
        kind = jnp.where(strikes, jnp.int32(STRIKE), jnp.int32(CHOOSE))
        mode = pick(s.mode, next_mode(chosen, s.mode, m, x[:, 0]))
        part = Part(s.t, kind, mode, jnp.zeros_like(s.event), hit, e, jnp.where(strikes, x, none))
        new = s._replace(
            y=pick(self.struck(m, s.y, x), self.settle(mode, jnp.zeros_like(hit), m, s.y)),
            mode=mode,
            h=self.dt - s.t,
            event=pick(s.event, jnp.zeros_like(s.event)),
            choosing=strikes,
            gap=m.now.gap,
            rate=normal,
            residual=jnp.maximum(s.residual, missed),
        )
        return self.noted(new, jnp.ones((), bool), part)

    def rebound(self, s: Run, m: Motion) -> Array:
        """Restitution (n,) at the contacts; zero where what follows would be countless bounces, or one without a gap.

        Bounces from the speed e u under the acceleration a take 2 e u / a, times 1 + e + e^2 + ... for all of them. The
        first one is (e u)^2 / 2 a high.
        """
        e = self.contacts.restitution
        if e is None:
            return jnp.zeros_like(m.now.gap)
        many = 2 * s.n >= self.settings.max_parts
        limit = jnp.where(many, self.dt, RESTS * self.dt)
        away, back = -e * m.now.u[::3], -m.now.a[::3]
        flat = away * away <= 2 * Tolerances.of(away.dtype).gap * back
        return jnp.where(flat | (2 * away <= limit * back * (1 - e)), jnp.zeros_like(away), e)

    def noted(self, s: Run, accept: Array, part: Part) -> Run:
        """With a part recorded, if it is accepted."""
        put = lambda kept, x: kept.at[s.n].set(jnp.where(accept, x, kept[s.n]))
        return s._replace(record=jax.tree.map(put, s.record, part), n=s.n + accept.astype(jnp.int32))

    # ---- the same motion again, without decisions, to be differentiated
    def replay(self, record: Part, count: Array) -> Any:
        """The last state ((q, v), impulse)."""

        again = batched(self.again_if)  # its derivative reads the arguments alone

        @jax.checkpoint
        def one(carry, x):
            wanted, mine, part = x
            return jax.lax.cond(wanted, lambda c: again(mine, c, part), lambda c: c, carry), None

        mine = jnp.arange(self.settings.max_parts, dtype=jnp.int32) < count
        zero = jnp.zeros_like(self.dt)
        first = (self.start, jnp.zeros((3 * len(self.contacts),), self.dt.dtype))
        (y, _), _ = jax.lax.scan(one, (first, zero), (in_any_system(mine), mine, record))
        return y

    def again_if(self, wanted: Array, carry: tuple[Any, Array], part: Part) -> tuple[Any, Array]:
        """`again`, of which nothing moves the result where it is not wanted: zero times infinity would be NaN."""
        held = jax.tree.map(lambda x: jnp.where(wanted, x, jax.lax.stop_gradient(x)), carry)
        return jax.tree.map(lambda a, b: jnp.where(wanted, a, b), self.again(held, part), carry)

    def again(self, carry: tuple[Any, Array], part: Part) -> tuple[Any, Array]:
        """One part, from a state and the time when it begins to those at its end."""
        y, begin = carry
        flows = part.kind == FLOW
        whole = flows & (part.end == jax.lax.stop_gradient(self.dt)) & ~jnp.any(part.event)
        end = jnp.where(whole, self.dt, jnp.where(flows, part.end, begin))
        # The way back computes a stage again, so that the stages stay a loop, which saves states alone.
        field = jax.checkpoint(partial(self.field, part.mode))
        y = self.settings.method.step(self.space, field, begin, y, end - begin, ())[0]
        m = self.motion(part.mode, end, y)
        late = self.delay(part, m)
        rate = (y[0][1], m.vdot), m.force
        y = self.space.move(jax.tree.map(lambda x: late * x, rate), y)
        settled = self.settle(part.mode, m.line, m, y)
        e = self.contacts.restitution
        e = part.restitution if e is None else jnp.where(part.restitution > 0, e, jnp.zeros_like(e))
        law = law_of_impact(m.now, self.contacts, part.hit & (part.kind == STRIKE), e)
        struck = self.struck(m, y, law.solution(m.now.G, self.settings, part.x, 0)[0])
        y = jax.tree.map(lambda a, b: jnp.where(part.kind == STRIKE, a, b), struck, settled)
        return y, end + late

    def delay(self, part: Part, m: Motion) -> Array:
        """Zero, with the derivative of the time of the event. Only at hits and stops the motion has a corner there."""
        slip, a = tangents_of(m.now.u), tangents_of(m.a)
        along = lambda x: jnp.sum(x * part.mode.direction, 1)
        value = jnp.sum(jnp.where(part.event[:, HIT], m.now.gap, 0) + jnp.where(part.event[:, STOP], along(slip), 0))
        rate = jnp.sum(jnp.where(part.event[:, HIT], m.now.u[::3], 0) + jnp.where(part.event[:, STOP], along(a), 0))
        rate = jax.lax.stop_gradient(jnp.where(rate == 0, jnp.ones_like(rate), rate))
        return -(value - jax.lax.stop_gradient(value)) / rate
