"""Rows of a step with many contacts, as columns of a `BlockMatrix`: each contact with the velocities that feel it.

Whatever acts at run time, the bodies of each candidate are static here, so that a bound on the contacts that act leaves
out columns. Read first: `responses.py`, `rows.py`, `cones/blocks.py`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.bounded import acting_of
from lgjax.contact.cones.blocks import SIZE, BlockMatrix, Pattern, alike
from lgjax.contact.cones.elimination import NEIGHBORS, neighbors_of
from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.detection import ContactPoints
from lgjax.contact.responses import Columns, way
from lgjax.contact.rows import Acting, JointRows
from lgjax.dynamics.kinematics import ancestor_mask
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics.rank import product

Array = jax.Array

MOST = 1.0  # rows for each velocity, without faces: some states of robots with more need the dense Newton's method
PAYS = 2.0  # times the entries of the columns, from which on rows of a dense matrix take longer


def blocks_of(tree: Tree) -> np.ndarray:
    """(nv,) where `BlockMatrix.spread` has each velocity: those of a tree in blocks, in their order."""
    root: list[int] = []
    for body, parent in enumerate(tree.parents):
        root.append(body if parent < 0 else root[parent])
    of = np.array([root[body] for body in tree.v_body], int)
    places, first = np.zeros(len(of), int), 0
    for one in dict.fromkeys(of.tolist()):
        own = np.flatnonzero(of == one)
        places[own] = SIZE * first + np.arange(len(own))
        first += -(-len(own) // SIZE)
    return places


def _downward(tree: Tree, body: int) -> tuple[int, ...]:
    """Velocities on the way of a body, the nearest to the world first; none of the ground."""
    return way(tree, body)[::-1] if body >= 0 else ()


def pattern_of(tree: Tree, ends: Sequence[Sequence[int]], joints: Sequence[int]) -> Pattern:
    """The blocks that feel contacts between bodies `ends` (-1 for the ground), and joints of bodies."""
    places = blocks_of(tree)
    felt = lambda *bodies: tuple(dict.fromkeys(int(places[k]) // SIZE for b in bodies for k in _downward(tree, b)))
    count = 1 + max(places.tolist(), default=-1) // SIZE
    return Pattern(tuple(felt(*pair) for pair in ends), tuple(felt(body) for body in joints), count)


def acting_in(contacts: Contacts, model: Model, joined: Sequence[tuple[int, ...]] = ()) -> Acting:
    """What is static about the contacts of a step, with a pattern where it pays."""
    acting, bounded, count = Acting.of(contacts, model, joined), None, len(contacts)
    if contacts.nearest is not None:
        bounded, count = acting_of(contacts, model.tree, acting), contacts.nearest
        rows, velocities = range(3 * len(contacts) + len(acting.joints)), range(model.nv)
        acting = acting._replace(islands=((tuple(rows), tuple(velocities)),))  # as `acting_of` has it
    if not acting.faces and 3 * count + len(acting.joints) > MOST * model.nv:
        return acting._replace(bounded=bounded)
    pattern = pattern_of(model.tree, acting.ends, [model.tree.v_body[k] for k in acting.joints])
    return acting._replace(bounded=bounded, pattern=pattern if _pays(pattern, count) else None)


def _pays(pattern: Pattern, acting: int) -> bool:
    """Whether a sweep over so many acting contacts by blocks takes less time than with a dense matrix."""
    if not pattern.contacts or neighbors_of(pattern) > NEIGHBORS:
        return False
    mean = sum(map(len, pattern.contacts)) / len(pattern.contacts)
    return 3 * acting + len(pattern.rows) > PAYS * 2 * SIZE * mean


class BlockRows:
    """As `BodyRows`, of contacts of which only some act. acts: (contacts,) bool."""

    def __init__(self, acting: Acting, columns: Columns, points: ContactPoints, joints: JointRows, acts: Array):
        assert acting.tree is not None
        assert acting.pattern is not None
        self.acting, self.columns = acting, columns
        self.signs = jnp.concatenate([joints.side, jnp.ones_like(joints.dry)])
        self.tree, self.pattern, self.acts = acting.tree, acting.pattern, acts
        wrenches = points.wrenches()
        self.forces = jnp.where(acts[:, None, None], wrenches, jnp.zeros_like(wrenches))
        # S, U, 1/D and its root, and zeros for what is no velocity.
        known = columns.S_free, columns.U, columns.inverse, jnp.sqrt(columns.inverse)
        self.padded = tuple(jnp.concatenate([x, jnp.zeros_like(x[:1])]) for x in known)

    def matrix(self) -> BlockMatrix:
        return self._matrix

    @cached_property
    def _matrix(self) -> BlockMatrix:
        still, signs = jnp.zeros((1, 6), self.forces.dtype), self.signs
        at = lambda x, i: jax.lax.dynamic_index_in_dim(x, i, keepdims=False)
        sides = [[b for b in pair if b >= 0] for pair in self.acting.ends]
        contacts = self._columns(3, sides, self.pattern.contacts, lambda i, side: (1 - 2 * side) * at(self.forces, i))
        joints = [[self.tree.v_body[k]] for k in self.acting.joints]
        rows = self._columns(1, joints, self.pattern.rows, lambda i, _: still, lambda i: at(signs, i)[None])
        acts = jnp.concatenate([self.acts, jnp.ones(len(rows), bool)])
        return BlockMatrix.of(contacts, rows, acts, self.pattern, self.acting.faces)

    def _columns(
        self, count: int, bodies: list, blocks: tuple, force: Callable, first: Callable | None = None
    ) -> Array:
        """Columns (n, 6 w, count) of forces on the ways of some bodies each, in the blocks that feel them.

        force(i, side): (count, 6). first(i): (count,), forces at the first joint.
        """
        n, none = len(bodies), len(self.columns.inverse)
        longest = max((len(_downward(self.tree, b)) for own in bodies for b in own), default=0)
        most = max(map(len, bodies), default=1)
        ways = [[list(_downward(self.tree, b)) for b in own] for own in bodies]
        table = np.full((n, most, longest), none, np.int32)
        for i, own in enumerate(ways):
            for side, dofs in enumerate(own):
                table[i, side, longest - len(dofs) :] = dofs
        Y = jnp.zeros((n, most * longest, count), self.forces.dtype)
        for start, length, width in alike([len(own) for own in bodies]):

            def one(i, Y, start=start, length=length, width=width):
                y = []
                for side in range(width):
                    dofs = [jnp.asarray(table[start : start + length, side, k])[i] for k in range(longest)]
                    y += self._felt(dofs, force(start + i, side), first and first(start + i))
                return jax.lax.dynamic_update_slice(Y, jnp.stack(y)[None], (start + i, 0, 0))

            Y = jax.lax.fori_loop(0, length, one, Y)
        return self._placed(Y, table.reshape(n, most * longest), blocks)

    def _felt(self, dofs: list[Array], P: Array, first: Array | None) -> list[Array]:
        """What velocities on a way, from the world on, feel of forces P (count, 6) at its end."""
        y = []
        for step, k in enumerate(reversed(dofs)):
            S, U, inverse, root = (jax.lax.dynamic_index_in_dim(x, k, keepdims=False) for x in self.padded)
            own = jnp.sum(P * S, 1)
            own = own if first is None or step else own + first
            P = P - (own * inverse)[:, None] * U
            y.append(root * own)
        return y[::-1]

    def _placed(self, Y: Array, table: np.ndarray, blocks: tuple) -> Array:
        """The entries Y (n, m, count) of velocities `table` (n, m) in blocks; those of the same velocity add up."""
        size, m = SIZE * self.pattern.width, Y.shape[1]
        places = blocks_of(self.tree)
        found: list[np.ndarray] = []
        for i, dofs in enumerate(table):
            for j, k in enumerate(dofs):
                if k < len(places):
                    at = SIZE * blocks[i].index(places[k] // SIZE) + places[k] % SIZE
                    layer = next((x for x in found if x[i, at] == m * len(table)), None)
                    if layer is None:
                        layer = np.full((len(table), size), m * len(table), int)
                        found.append(layer)
                    layer[i, at] = m * i + j
        flat = jnp.concatenate([Y.reshape(-1, Y.shape[2]), jnp.zeros_like(Y, shape=(1, Y.shape[2]))])
        same = np.arange(size * len(table)).reshape(-1, size)
        if len(found) == 1 and m == size and np.array_equal(np.where(found[0] < m * len(table), found[0], same), same):
            return Y
        layers = [flat[layer] for layer in found]
        return sum(layers[1:], layers[0]) if layers else jnp.zeros((len(table), size, Y.shape[2]), Y.dtype)

    def masked(self, x: Array) -> Array:
        return jnp.where(self.acts, x, jnp.zeros_like(x))

    def rates(self, v: Array) -> Array:
        mask = jnp.asarray(ancestor_mask(self.tree)[:, list(self.tree.v_body)], v.dtype)
        twist = jnp.concatenate([product(mask, self.columns.S * v[:, None]), jnp.zeros((1, 6), v.dtype)])
        on, under = (twist[np.asarray([pair[k] for pair in self.acting.ends], int)] for k in (0, 1))
        own = jnp.sum(self.forces * (on - under)[:, None], -1).reshape(-1)
        return jnp.concatenate([own, self.signs * v[np.asarray(self.acting.joints, int)]])

    def response(self, x: Array) -> Array:
        return self._matrix.spread(x)[blocks_of(self.tree)] / jnp.sqrt(self.columns.inverse)
