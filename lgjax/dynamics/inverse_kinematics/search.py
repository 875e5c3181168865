"""Descent to the targets from one guess after the other, until one reaches them.

Levenberg-Marquardt with a damping that follows the cost, between the limits of the joints. A descent that has come to
rest at limits goes on with these joints on the other side of their range, three times at most. Then the next guess
follows: points of an even sequence over the ranges of the joints, at first around their middles. If none reaches the
targets, the best is descended to the end. Every turn of the loop evaluates the rows once.
Source: [more1978]; damping by the squared error as in [sugihara2011]; R-sequence of M. Roberts (2018).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.inverse_kinematics.steps import bounded_step
from lgjax.dynamics.inverse_kinematics.targets import Rows
from lgjax.multibody.configuration import Configuration, join_velocity, retract
from lgjax.multibody.model import Model
from lgjax.numerics.loops import iterate_while

Array = jax.Array

LONGEST = 1.0  # entry of a step, rad or m
DAMPING = 0.1  # of the squared error, at first
LESS, MORE = 0.2, 4.0  # changes of the damping after a good and after a bad step
FLAT = 0.03  # of the error: the slope at which a descent has come to rest
NEAR, FLATTER, FURTHER = 1e-2, 1e-3, 30  # an error, from which on the slope is to be so much flatter, in more turns
TURNS = 3  # of joints at their limits to the other side, of one guess
CLOSE = 1e-9  # to a limit, rad or m
SPREAD, WIDER = 0.4, 0.3  # of the range of a joint in which guesses are: at first, and by which it grows


class Found(NamedTuple):
    """Where a search ended. starts: () int32, guesses that were used."""

    q: Configuration
    at: Rows
    iterations: Array
    starts: Array
    reached: Array


class _State(NamedTuple):
    """at: the rows at q. trial: what is looked at next. fresh: it begins a descent. predicted: decrease of the cost."""

    q: Configuration
    at: Rows
    trial: Configuration
    fresh: Array
    predicted: Array
    damping: Array
    steps: Array
    turns: Array
    start: Array
    iterations: Array
    best: Configuration
    least: Array
    finished: Array


class Ranges(NamedTuple):
    """Limits (n_joint,) of the scalar coordinates, and the ranges from which guesses are taken."""

    lower: Array
    upper: Array
    low: Array
    high: Array


def ranges(model: Model) -> Ranges:
    """The limits, and those within pi (rad or m) of zero, or of the limit that is nearest to it."""
    far = jnp.asarray(np.pi, model.dtype)
    lower, upper = jax.lax.stop_gradient((model.lower, model.upper))
    low = jnp.where(upper < -far, jnp.maximum(lower, upper - far), jnp.maximum(lower, -far))
    high = jnp.where(lower > far, jnp.minimum(upper, lower + far), jnp.minimum(upper, far))
    return Ranges(lower, upper, low, high)


def limited(model: Model, r: Ranges, q: Configuration) -> Configuration:
    """q with its joints between their limits, and at a limit where they are very close to it."""
    close = max(CLOSE, 8 * float(jnp.finfo(model.dtype).eps))
    near = lambda limit: jnp.abs(q.joints - limit) <= close
    inside = jnp.clip(q.joints, r.lower, r.upper)
    return q._replace(joints=jnp.where(near(r.upper), r.upper, jnp.where(near(r.lower), r.lower, inside)))


def room(model: Model, r: Ranges, q: Configuration) -> tuple[Array, Array]:
    """How far each velocity's coordinate may move from q, downwards and upwards (nv,)."""
    free = lambda sign: (
        jnp.full((model.tree.n_free, 6), sign * jnp.inf),
        jnp.full((model.tree.n_ball, 3), sign * jnp.inf),
    )
    below, above = free(-1), free(1)
    low = join_velocity(model.tree, below[0], r.lower - q.joints, below[1])
    return low.astype(model.dtype), join_velocity(model.tree, above[0], r.upper - q.joints, above[1]).astype(
        model.dtype
    )


def full(model: Model, active: np.ndarray, d: Array) -> Array:
    """Displacement (nv,) from that of the active velocities (n,)."""
    return jnp.zeros(model.nv, model.dtype).at[active].set(d)


def search(
    model: Model,
    evaluate: Callable[[Configuration], Rows],
    active: np.ndarray,
    q0: Configuration,
    tolerance: Array,
    guesses: int,
    max_iterations: int,
) -> Found:
    """The first configuration that reaches the targets, or the best one that there is."""
    problem = _Problem(model, ranges(model), active, _joints_of(model, active), tolerance, guesses, max_iterations)
    q0 = limited(model, problem.ranges, q0)
    first = evaluate(q0)
    one, yes, zero = jnp.ones((), model.dtype), jnp.ones((), bool), jnp.zeros((), jnp.int32)
    start = _State(q0, first, q0, yes, one, DAMPING * one, zero, zero, zero, zero, q0, jnp.inf * one, ~yes)
    turn = lambda s: _next(problem, q0, _judged(problem, s, evaluate(s.trial)))
    end = iterate_while(lambda s: ~s.finished, turn, start)
    reached = end.at.size <= tolerance
    return Found(end.q, end.at, end.iterations, jnp.minimum(end.start + 1, guesses), reached)


class _Problem(NamedTuple):
    """Constants of a search. joints: the active scalar coordinates and their places, see `_joints_of`."""

    model: Model
    ranges: Ranges
    active: np.ndarray
    joints: tuple[np.ndarray, np.ndarray]
    tolerance: Array
    guesses: int
    max_iterations: int


def _judged(p: _Problem, s: _State, found: Rows) -> _State:
    """The state after its trial was evaluated: the trial is taken or not, the damping and the best one follow."""
    before, after = 0.5 * jnp.sum(s.at.error**2), 0.5 * jnp.sum(found.error**2)
    gain = (before - after) / jnp.maximum(s.predicted, jnp.finfo(p.model.dtype).tiny)
    taken = s.fresh | (gain > 1e-4)
    q, at = chosen(taken, (s.trial, found), (s.q, s.at))
    damping = jnp.where(gain > 0.75, s.damping * LESS, jnp.where(gain < 0.25, s.damping * MORE, s.damping))
    damping = jnp.where(s.fresh, DAMPING, jnp.clip(damping, 1e-9, 1e6))
    cost = jnp.where(taken, after, before)
    best, least = chosen(cost < s.least, (q, cost), (s.best, s.least))
    steps = jnp.where(s.fresh, 0, s.steps + 1).astype(jnp.int32)
    return s._replace(q=q, at=at, damping=damping, steps=steps, best=best, least=least, iterations=s.iterations + 1)


def _next(p: _Problem, q0: Configuration, s: _State) -> _State:
    """The next trial: a step, or where the descent has ended its joints turned, the next guess, or the best one."""
    model, r = p.model, p.ranges
    low, high = (x[p.active] for x in room(model, r, s.q))
    cost, slope = 0.5 * jnp.sum(s.at.error**2), s.at.error @ s.at.jacobian
    length = jnp.sqrt(2 * cost)
    flat = jnp.max(jnp.abs(jnp.clip(-slope, low, high))) / jnp.where(length > 0, length, 1)
    near = (length < NEAR) | (s.start >= p.guesses)
    stuck = flat < FLAT * jnp.where(near, FLATTER, 1)
    stuck = stuck | (s.steps >= p.max_iterations + jnp.where(near, FURTHER, 0))
    reached = s.at.size <= p.tolerance
    ended = stuck & ~reached

    at_low, at_high = (low >= 0) & (slope > 0), (high <= 0) & (slope < 0)
    turning = ended & (s.turns < TURNS) & jnp.any(at_low | at_high) & (s.start < p.guesses)
    following = ended & ~turning
    start = s.start + following.astype(jnp.int32)

    low, high = jnp.maximum(low, -LONGEST), jnp.minimum(high, LONGEST)
    damping = s.damping * 2 * cost + float(jnp.finfo(model.dtype).eps) ** 0.75
    d, _ = bounded_step(s.at.error, s.at.jacobian, jnp.zeros_like(low), damping, low, high, 2)
    predicted = cost - 0.5 * jnp.sum((s.at.error + s.at.jacobian @ d) ** 2)
    stepped = retract(model, s.q, full(model, p.active, d))
    turned = s.q._replace(joints=_other_side(r, s.q.joints, at_low, at_high, p.joints))
    last = chosen(start == p.guesses, s.best, _guess(r, q0, p.joints, start))
    trial = limited(model, r, chosen(following, last, chosen(turning, turned, stepped)))
    turns = jnp.where(following, 0, s.turns + turning.astype(jnp.int32))
    finished = reached | (start > p.guesses) | ~jnp.isfinite(length)
    return s._replace(
        trial=trial, fresh=turning | following, predicted=predicted, turns=turns, start=start, finished=finished
    )


def chosen(condition, one, other):
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), one, other)


def _joints_of(model: Model, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The active scalar coordinates and the place of each among the active velocities, static."""
    tree, coordinates, places = model.tree, [], []
    where = {int(v): n for n, v in enumerate(active)}
    for kind, q_start, v_start in zip(tree.kinds, tree.q_start, tree.v_start, strict=True):
        if kind.coordinates == "joints":
            for k in range(kind.nv):
                if v_start + k in where:
                    coordinates.append(q_start + k)
                    places.append(where[v_start + k])
    return np.asarray(coordinates, int), np.asarray(places, int)


def _guess(r: Ranges, q0: Configuration, joints, number) -> Configuration:
    """Guess `number`, with the active joints spread over their ranges; all else as in q0."""
    coordinates = joints[0]
    if not len(coordinates):
        return q0
    root = 2.0
    for _ in range(64):  # of x^(n+1) = x + 1
        root = (1 + root) ** (1 / (len(coordinates) + 1))
    steps = root ** -np.arange(1.0, len(coordinates) + 1)
    low, high = r.low[coordinates], r.high[coordinates]
    number = number.astype(low.dtype)
    even = (0.5 + number * jnp.asarray(steps, low.dtype)) % 1
    wide = r.upper[coordinates] - r.lower[coordinates] > 6.2
    share = jnp.where(wide, 1, jnp.minimum(1, SPREAD + WIDER * number))
    value = 0.5 * (low + high) + share * (high - low) * (even - 0.5)
    return q0._replace(joints=q0.joints.at[coordinates].set(value))


def _other_side(r: Ranges, values: Array, at_low: Array, at_high: Array, joints) -> Array:
    """Joints with those at a limit a quarter of the range before the other one."""
    coordinates, places = joints
    if not len(coordinates):
        return values
    low, high = r.low[coordinates], r.high[coordinates]
    quarter = 0.25 * (high - low)
    here = values[coordinates]
    moved = jnp.where(at_low[places], high - quarter, jnp.where(at_high[places], low + quarter, here))
    return values.at[coordinates].set(moved)
