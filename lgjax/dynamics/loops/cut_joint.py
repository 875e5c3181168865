"""A joint of a user's kind cut open: the coordinates of the joint that come nearest to a pose, and what is left of it.

What is left is the twist from the joint's pose to the given one, in the joint's child frame. The nearest coordinates
leave nothing of it along the joint's own motions, S(q)^T x(q) = 0, so 6 - nv numbers say all: its entries along
directions at right angles to S(q).
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.loops.closures import Closure
from lgjax.groups import se3, so3
from lgjax.groups.se3 import Pose
from lgjax.multibody.joints import JointKind
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import by_columns, implicit
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.rank import product, regular_inverse

ROUNDS = 60  # of the search
LONGEST = 0.5  # of the entries of its steps, radians or meters


@cache
def cut_joint(kind: JointKind) -> Closure:
    """closure(pose, start) -> residual (6 - nv,), radians and meters.

    start: (nv,), where the search for the coordinates begins; it goes downhill in the length of what is left.
    """
    upright = _reference(kind)

    def closure(pose: Pose, start) -> jax.Array:
        q = _nearest(kind, pose, start)
        return sm.tmatvec(_across(_motions(kind, q), upright), _left(kind, q, pose))

    return closure


def _motions(kind: JointKind, q):
    """S (6, nv)."""
    return jnp.concatenate(kind.subspace(q, jnp.zeros(2, q.dtype)))


def _left(kind: JointKind, q, pose: Pose):
    """Rotation vector and displacement (6,) from the joint's pose to the given one."""
    rest = se3.compose(se3.inverse(Pose(*kind.transform(q, jnp.zeros(2, q.dtype)))), pose)
    return sm.join(so3.log(rest.rotation), rest.translation)


def _nearest(kind: JointKind, pose: Pose, start):
    """Coordinates (nv,) with S^T x = 0; derivatives are those of the implicit function."""
    equation = lambda q: sm.tmatvec(_motions(kind, q), _left(kind, q, pose))

    def newton(q):
        # The length of what is left is flat where it is least, and places it only to the root of round-off.
        value, linear = jax.linearize(equation, q)
        columns = jax.vmap(linear, out_axes=1)(jnp.eye(len(q), dtype=q.dtype))
        closer = q - product(regular_inverse(columns), value)
        there = equation(closer)
        return jnp.where(sm.dot(there, there) < sm.dot(value, value), closer, q)

    find = lambda q: (newton(newton(_search(kind, pose, q))), ())
    return implicit(equation, find, start, by_columns(regular_inverse))[0]


def _search(kind: JointKind, pose: Pose, start):
    """Gauss-Newton steps, halved until they shorten what is left."""
    small = 4 * jnp.finfo(start.dtype).eps

    def at(q):
        x, S = _left(kind, q, pose), _motions(kind, q)
        step = sm.ldl_solve(sm.ldl(sm.tmatmul(S, S)), sm.tmatvec(S, x))
        return sm.dot(x, x), step * jnp.minimum(1, LONGEST / jnp.maximum(jnp.max(jnp.abs(step)), LONGEST))

    def unfinished(state):
        q, _, step, part, rounds = state
        length = part * jnp.max(jnp.abs(step))
        return (rounds < ROUNDS) & (length > small * (1 + jnp.max(jnp.abs(q))))

    def iterate(state):
        q, size, step, part, rounds = state
        new_size, new_step = at(q + part * step)
        better = new_size < size
        pick = lambda a, b: jnp.where(better, a, b)
        part = pick(jnp.minimum(1, 2 * part), part / 2)
        return pick(q + state[3] * step, q), pick(new_size, size), pick(new_step, step), part, rounds + 1

    size, step = at(start)
    return iterate_while(unfinished, iterate, (start, size, step, jnp.ones_like(size), jnp.int32(0)))[0]


# ---- directions at right angles
def _reference(kind: JointKind) -> np.ndarray:
    """An orthogonal matrix (6, 6) whose first columns span the motions at zero coordinates."""
    with jax.ensure_compile_time_eval():
        S = np.asarray(_motions(kind, jnp.zeros(kind.nv)), float)
    return np.linalg.qr(S if np.all(np.isfinite(S)) else np.eye(6)[:, : kind.nv], mode="complete")[0]


def _across(S, reference: np.ndarray):
    """An orthonormal basis (6, 6 - nv) of the directions at right angles to the columns of S (6, nv).

    By reflections, smooth but where a motion has turned by a right angle from where it was at zero coordinates; there
    a row of the residual changes its sign and nothing else.
    """
    upright = jnp.asarray(reference, S.dtype)
    S, basis = sm.tmatmul(upright, S), upright
    for k in range(S.shape[1]):
        x = jnp.concatenate([jnp.zeros(k, S.dtype), S[k:, k]])
        length = jnp.sqrt(sm.dot(x, x))
        mirror = x.at[k].add(jnp.where(x[k] < 0, -length, length))
        reflected = lambda A, n=mirror: A - sm.outer(n, sm.tmatvec(A, n)) * (2 / sm.dot(n, n))
        S, basis = reflected(S), reflected(basis.T).T
    return basis[:, S.shape[1] :]
