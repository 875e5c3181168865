"""From a solution to the nearest one to a rest pose, along the motions that keep the targets where they are.

From the last solution a step towards the rest pose, along the targets to first order; then steps back to the targets.
What comes back nearer to the rest pose is the next solution, otherwise a shorter step is tried.
Source: gradient projection with restoration, [rosen1961].
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.inverse_kinematics.search import LONGEST, Found, chosen, full, limited, ranges, room
from lgjax.dynamics.inverse_kinematics.steps import bounded_step
from lgjax.dynamics.inverse_kinematics.targets import Rows
from lgjax.groups import so3
from lgjax.multibody.configuration import Configuration, join_velocity, retract
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import iterate_while

Array = jax.Array

BACK = 8  # steps back to the targets, at most
PASSES = 4  # in which joints are found that stay at their limits
SMALL = 0.375  # power of eps: a step, whose square is what the distance changes by
SHORTEST = 1e-4  # share of a step, below which no shorter one is tried


class _State(NamedTuple):
    """share: of the way to the rest pose that a step tries. back: () int32, steps back to the targets so far."""

    q: Configuration
    at: Rows
    trial: Configuration
    share: Array
    back: Array
    gap: Array
    iterations: Array
    finished: Array


def to_rest(q: Configuration, rest: Configuration, model: Model) -> Array:
    """Displacement (nv,) from q to the rest pose: of turns rotation vectors, of free bodies the way in their axes."""
    (R, p), (R_rest, p_rest) = q.free_poses, rest.free_poses
    turns = so3.log(sm.tmatmul(R, R_rest))
    frees = jnp.concatenate([turns, sm.tmatvec(R, p_rest - p)], -1)
    balls = so3.log(sm.tmatmul(q.ball_rotations, rest.ball_rotations))
    return join_velocity(model.tree, frees, rest.joints - q.joints, balls)


def nearest_to_rest(
    model: Model,
    evaluate: Callable[[Configuration], Rows],
    active: np.ndarray,
    found: Found,
    rest: Configuration,
    tolerance: Array,
    max_iterations: int,
) -> tuple[Found, Array]:
    """The nearest solution from `found`, if that is one, and whether it was reached: no step along the targets helps.

    Nearest is a local minimum of the sum of squares over the active velocities.
    """
    r = ranges(model)
    eps = float(jnp.finfo(model.dtype).eps)
    small = eps**SMALL
    zero, one = jnp.zeros((), jnp.int32), jnp.ones((), model.dtype)
    distance = lambda q: 0.5 * jnp.sum(to_rest(q, rest, model)[active] ** 2)

    def turn(s: _State) -> _State:
        there = evaluate(s.trial)
        reached = there.size <= tolerance
        first = s.iterations == 0
        nearer = reached & ((distance(s.trial) < distance(s.q)) | first)
        failed = (reached & ~nearer) | (s.back >= BACK) | ~jnp.isfinite(there.size)
        begin = nearer | failed
        q, at = chosen(nearer, (s.trial, there), (s.q, s.at))
        share = jnp.where(nearer & ~first, jnp.minimum(1, 2 * s.share), jnp.where(failed, 0.25 * s.share, s.share))

        base, rows = chosen(begin, (q, at), (s.trial, there))
        pull = jnp.where(begin, share, 0) * to_rest(q, rest, model)[active]
        low, high = room(model, r, base)
        low, high = jnp.maximum(low[active], -LONGEST), jnp.minimum(high[active], LONGEST)
        damping = eps * jnp.sum(rows.jacobian**2)
        d, _ = bounded_step(rows.error, rows.jacobian, pull, damping, low, high, PASSES)
        gap = jnp.where(begin, jnp.max(jnp.abs(d)) / share, s.gap)
        trial = limited(model, r, retract(model, base, full(model, active, d)))
        iterations = s.iterations + 1
        finished = (begin & ((gap <= small) | (share < SHORTEST))) | (iterations >= max_iterations)
        return _State(q, at, trial, share, jnp.where(begin, 0, s.back + 1), gap, iterations, finished)

    start = _State(found.q, found.at, found.q, one, zero, jnp.inf * one, zero, ~found.reached)
    end = iterate_while(lambda s: ~s.finished, turn, start)
    moved = found._replace(q=end.q, at=end.at, iterations=found.iterations + end.iterations)
    return moved, (end.gap <= small) | (end.share < SHORTEST)
