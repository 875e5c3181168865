"""Rows of the contact problem in sparse form: for each contact the velocities between its two bodies and the world.

`acting_in` decides whether a mechanism takes this form or the dense one of `rows.py`. `BlockRows` computes the columns
of the factor F of Delassus' matrix by the inward pass of `responses.py`, along the path of each body, and stores them
as a `BlockMatrix`. The two bodies of each candidate contact are static, and so is the pattern of the blocks. Which
candidates act is known at run time: the columns of the others are zero, and the solver skips them. Read first:
`responses.py`, `rows.py`, `cones/blocks.py`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.bounded import acting_of
from lgjax.contact.cones.blocks import SIZE, BlockMatrix, Pattern, equal_runs
from lgjax.contact.cones.elimination import MOST_NEIGHBORS, most_neighbors
from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.detection import ContactPoints
from lgjax.contact.responses import Columns, path_to_world
from lgjax.contact.rows import Acting, JointRows
from lgjax.dynamics.kinematics import ancestor_mask
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics.loops import only_if
from lgjax.numerics.rank import product

Array = jax.Array

# Mechanisms without faces that have more rows than this for each velocity take the dense form: some states of such
# robots are solved only by the dense Newton's method.
ROWS_PER_VELOCITY = 1.0
# A sweep in blocks is faster if a row of the dense matrix has more entries than this times those of two columns of F.
SPARSE_GAIN = 2.0


def blocks_of(tree: Tree) -> np.ndarray:
    """The place (nv,) of each velocity in z of `BlockMatrix.spread`. Each tree of a forest begins a new block."""
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
    """`path_to_world` in reverse, from the world to the body; () for the ground."""
    return path_to_world(tree, body)[::-1] if body >= 0 else ()


def pattern_of(tree: Tree, ends: Sequence[Sequence[int]], joints: Sequence[int]) -> Pattern:
    """The pattern of contacts between the bodies `ends` (-1 for the ground) and of the joints of some bodies."""
    places = blocks_of(tree)
    on_paths = lambda *bodies: tuple(dict.fromkeys(int(places[k]) // SIZE for b in bodies for k in _downward(tree, b)))
    count = 1 + max(places.tolist(), default=-1) // SIZE
    return Pattern(tuple(on_paths(*pair) for pair in ends), tuple(on_paths(body) for body in joints), count)


def acting_in(contacts: Contacts, model: Model, joined: Sequence[tuple[int, ...]] = ()) -> Acting:
    """Static description of the contacts of a step, with a pattern if the sparse form is used.

    joined: sets of bodies that loops join.
    """
    acting, bounded, count = Acting.of(contacts, model, joined), None, len(contacts)
    if contacts.nearest is not None:
        bounded, count = acting_of(contacts, model.tree, acting), contacts.nearest
        rows, velocities = range(3 * len(contacts) + len(acting.joints)), range(model.nv)
        acting = acting._replace(islands=((tuple(rows), tuple(velocities)),))  # as `acting_of` has it
    if not acting.faces and 3 * count + len(acting.joints) > ROWS_PER_VELOCITY * model.nv:
        return acting._replace(bounded=bounded)
    pattern = pattern_of(model.tree, acting.ends, [model.tree.v_body[k] for k in acting.joints])
    return acting._replace(bounded=bounded, pattern=pattern if _pays(pattern, count) else None)


def _pays(pattern: Pattern, acting: int) -> bool:
    """Whether a sweep over `acting` contacts is faster in blocks than with a dense matrix."""
    if not pattern.contacts or most_neighbors(pattern) > MOST_NEIGHBORS:
        return False
    mean = sum(map(len, pattern.contacts)) / len(pattern.contacts)
    return 3 * acting + len(pattern.rows) > SPARSE_GAIN * 2 * SIZE * mean


class BlockRows:
    """The same interface as `rows.BodyRows`, with a sparse matrix. acts: (contacts,) bool, at run time."""

    def __init__(self, acting: Acting, columns: Columns, points: ContactPoints, joints: JointRows, acts: Array):
        assert acting.tree is not None
        assert acting.pattern is not None
        self.acting, self.columns = acting, columns
        self.signs = jnp.concatenate([joints.side, jnp.ones_like(joints.dry)])
        self.tree, self.pattern, self.acts = acting.tree, acting.pattern, acts
        wrenches = points.wrenches()
        self.forces = jnp.where(acts[:, None, None], wrenches, jnp.zeros_like(wrenches))
        # S, U, 1/D and its root, and zeros for what is no velocity.
        known = columns.S, columns.U, columns.inverse, jnp.sqrt(columns.inverse)
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
        """Columns (n, 6 w, count) of F for n contacts or rows, in their blocks.

        bodies: the one or two bodies of each. force(i, side): (count, 6), wrenches on body `side` of contact i.
        first(i): (count,), forces at the body's own joint.
        """
        n, none, acting = len(bodies), len(self.columns.inverse), self.acts
        longest = max((len(_downward(self.tree, b)) for own in bodies for b in own), default=0)
        most = max(map(len, bodies), default=1)
        paths = [[list(_downward(self.tree, b)) for b in own] for own in bodies]
        table = np.full((n, most, longest), none, np.int32)
        for i, own in enumerate(paths):
            for side, dofs in enumerate(own):
                table[i, side, longest - len(dofs) :] = dofs
        Y = jnp.zeros((n, most * longest, count), self.forces.dtype)
        for start, length, width in equal_runs([len(own) for own in bodies]):

            def one(i, Y, start=start, length=length, width=width):
                y = []
                for side in range(width):
                    dofs = [jnp.asarray(table[start : start + length, side, k])[i] for k in range(longest)]
                    y += self._inward(dofs, force(start + i, side), first and first(start + i))
                return jax.lax.dynamic_update_slice(Y, jnp.stack(y)[None], (start + i, 0, 0))

            def turn(i, Y, start=start, one=one):
                acts = jax.lax.dynamic_index_in_dim(acting, start + i, keepdims=False)
                return only_if(acts, lambda Y: one(i, Y), Y)

            Y = jax.lax.fori_loop(0, length, turn if count == 3 else one, Y)
        return self._placed(Y, table.reshape(n, most * longest), blocks)

    def _inward(self, dofs: list[Array], P: Array, first: Array | None) -> list[Array]:
        """The inward pass: y / sqrt(D) at the velocities `dofs` of a path, for wrenches P (count, 6) on its body."""
        y = []
        for step, k in enumerate(reversed(dofs)):
            S, U, inverse, root = (jax.lax.dynamic_index_in_dim(x, k, keepdims=False) for x in self.padded)
            own = jnp.sum(P * S, 1)
            own = own if first is None or step else own + first
            P = P - (own * inverse)[:, None] * U
            y.append(root * own)
        return y[::-1]

    def _placed(self, Y: Array, table: np.ndarray, blocks: tuple) -> Array:
        """Y (n, m, count), at the velocities `table` (n, m), sorted into blocks; both bodies' entries add up."""
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
