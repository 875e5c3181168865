"""A bound on how many contacts act in a step: the nearest ones enter the problem, the others wait.

Which contacts are the nearest is known only at run time, so any row can belong to any body, and the static segments of
`rows.py` do not exist. Instead a mask says for each velocity whether it moves the body, 1 or 0, and the inward pass
takes the forces of all contacts through all velocities. Read first: `responses.py`, `rows.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.factors import Factors
from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.detection import ContactPoints, sides
from lgjax.contact.responses import Columns, dense, impulses, path_to_world, segments
from lgjax.contact.rows import Acting, JointRows
from lgjax.dynamics.kinematics import ancestor_mask
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.rank import product

Array = jax.Array


class Chosen(NamedTuple):
    """The contacts that act. which: (k,) int32, their numbers among the candidates. moved: (k, 2, nv), 1 where a
    velocity moves the first or the second body of a contact, else 0. waiting: (n,) bool, the other candidates.
    """

    which: Array
    moved: Array
    waiting: Array

    def of(self, x: Array) -> Array:
        """The entries (k, ...) of those that act among those of all candidates (n, ...)."""
        _, found = jax.lax.scan(lambda _, i: (None, _at(x, i)), None, self.which)
        return found

    def among_all(self, x: Array, count: int) -> Array:
        """Entries (n, ...) of all candidates, 0 for those that do not act, from those of the others (k, ...)."""

        def put(i, found):
            return jax.lax.dynamic_update_index_in_dim(found, x[i], self.which[i], 0)

        return jax.lax.fori_loop(0, len(x), put, jnp.zeros((count, *x.shape[1:]), x.dtype))


def _at(x: Array, i: Array) -> Array:
    return jax.lax.dynamic_index_in_dim(x, i, 0, keepdims=False)


def choose(contacts: Contacts, model: Model, gap: Array) -> Chosen:
    """The `contacts.nearest` candidates with the least gaps (n,), predicted for the end of free flight."""
    n, k = len(contacts), contacts.nearest
    assert k is not None
    dtype = gap.dtype
    numbers = np.arange(n, dtype=np.int32)

    def take(i, state):
        gaps, index = state
        first = jnp.argmin(gaps).astype(jnp.int32)
        return jnp.where(numbers == first, jnp.inf, gaps), jax.lax.dynamic_update_index_in_dim(index, first, i, 0)

    gaps = jax.lax.stop_gradient(jnp.where(gap < jnp.inf, gap, jnp.finfo(dtype).max))
    _, index = jax.lax.fori_loop(0, k, take, (gaps, jnp.zeros(k, jnp.int32)))
    chosen = Chosen(index, jnp.zeros((k, 2, model.nv), dtype), ~smallest(gaps, k))
    mask = np.concatenate([ancestor_mask(model.tree)[:, list(model.tree.v_body)], np.zeros((1, model.nv), bool)])
    table = np.stack([mask[bodies] for bodies in sides(contacts, model)], 1)  # of the ground, -1, none
    return chosen._replace(moved=chosen.of(jnp.asarray(table, dtype)))


def smallest(x: Array, k: int) -> Array:
    """Which (n,) of finite numbers are the k < n smallest; of equal ones the first. Sweeps in blocks need no more.

    Halving an interval separates k of them from the others. Unless they are close together, that takes a few turns.
    """
    count = lambda most: jnp.sum((x <= most).astype(jnp.int32), dtype=jnp.int32)

    def halve(s: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        low, high, below, _ = s
        middle = 0.5 * low + 0.5 * high
        found = count(middle)
        less, between = found <= k, (middle > low) & (middle < high)
        low, below = jnp.where(less, middle, low), jnp.where(less, found, below)
        return low, jnp.where(less, high, middle), below, between

    least, none = jnp.min(x), jnp.zeros((), jnp.int32)
    start = least - jnp.abs(least) - 1, jnp.max(x), none, jnp.ones((), bool)
    low, high, below, _ = iterate_while(lambda s: s[3] & (s[2] < k), halve, start)

    def take(left: Array, own: Array) -> tuple[Array, Array]:
        equal = (own > low) & (own <= high) & (left > 0)
        return left - equal.astype(jnp.int32), (own <= low) | equal

    return jax.lax.scan(take, k - below, x)[1]


def velocities(contacts: Contacts, model: Model, S: Array, points: ContactPoints, v: Array) -> Array:
    """Velocities (n, 3) m/s of all candidates in their frames, from the motions S (nv, 6)."""
    mask = jnp.asarray(ancestor_mask(model.tree)[:, list(model.tree.v_body)], v.dtype)
    twist = jnp.concatenate([product(mask, S * v[:, None]), jnp.zeros((1, 6), v.dtype)])
    on, under = (twist[bodies] for bodies in sides(contacts, model))
    relative = on - under
    linear = relative[:, 3:] + sm.cross(relative[:, :3], points.point)
    return sm.matvec(points.frame, linear)


def acting_of(contacts: Contacts, tree: Tree, acting: Acting) -> Acting:
    """Static description of the contacts that act. All are one island: which bodies they couple is not static."""
    assert contacts.nearest is not None
    count = 3 * contacts.nearest + len(acting.joints)
    parts = segments([path_to_world(tree, tree.v_body[k]) for k in acting.joints])
    island = tuple(range(count)), tuple(range(tree.nv))
    return acting._replace(touching=(), parts=parts, islands=(island,))


class ChosenRows:
    """The same interface as `rows.BodyRows` for contacts that may act on any body; moved: see `Chosen`."""

    def __init__(self, acting: Acting, columns: Columns, points: ContactPoints, joints: JointRows, moved: Array):
        k, nv = len(points.gap), len(columns.inverse)
        self.acting, self.columns, self.moved = acting, columns, moved
        self.signs = jnp.concatenate([joints.side, jnp.ones_like(joints.dry)])
        self.wrenches = points.wrenches()
        P = self.wrenches.reshape(3 * k, 6)

        def onward(P, velocity):
            S, U, inverse, moved = velocity
            on = jnp.repeat(moved, 3, 0)  # (3 k, 2)
            felt = on * sm.matvec(P, S)
            return P - (felt * inverse)[..., None] * U, felt[:, 0] + felt[:, 1]

        along = columns.S, columns.U, columns.inverse, jnp.moveaxis(moved, 2, 0)
        _, self.y = jax.lax.scan(onward, jnp.stack([P, -P], 1), along, reverse=True)  # (nv, 3 k)
        if acting.joints:
            own = impulses(columns, acting.parts, P[:0], self.signs)
            self.y = jnp.concatenate([self.y, dense(acting.parts, own, np.arange(len(self.signs)), nv)], 1)

    def operator(self) -> Factors:
        count = self.y.shape[1]
        return Factors([self.y], [self.columns.inverse], None, (tuple(range(count)),), count)

    def masked(self, x: Array) -> Array:
        return x

    def factor(self) -> Array:
        return jnp.sqrt(self.columns.inverse)[:, None] * self.y

    def rates(self, v: Array) -> Array:
        twist = product(self.moved[:, 0] - self.moved[:, 1], self.columns.S * v[:, None])
        at_joints = self.signs * v[np.asarray(self.acting.joints, int)]
        return jnp.concatenate([jnp.sum(self.wrenches * twist[:, None], -1).reshape(-1), at_joints])

    def response(self, x: Array) -> Array:
        return product(self.y, x)
