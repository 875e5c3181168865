"""The rows of a step's problem: three for each contact, one for each joint's limits, one for each joint's dry friction.

Read first: `responses.py`. Next: `step.py`, where the rows come together.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.blocks import Pattern
from lgjax.contact.cones.factors import Factors
from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.detection import ContactPoints, sides
from lgjax.contact.responses import (
    Columns,
    Segment,
    dense,
    impulses,
    operator,
    path_to_world,
    response,
    segments,
    together,
    twists,
)
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree

Array = jax.Array


class JointRows(NamedTuple):
    """Joints of the problem: first those with limits, then those with dry friction.

    gap: (l,) to the nearer limit. side: (l,) 1 for the lower limit, -1 for the upper. dry: (m,) largest impulses of
    friction.
    """

    gap: Array
    side: Array
    dry: Array


def joint_rows(contacts: Contacts, model: Model, q: Configuration, h) -> JointRows:
    """Gaps to the limits at a configuration, and the largest friction impulses in a step of h."""
    tree, limited, dry = model.tree, contacts.limited, contacts.dry
    if not limited and not dry:
        none = jnp.zeros(0, model.dtype)
        return JointRows(none, none, none)
    at = np.asarray([tree.q_start[body] for body in limited], int)
    above, below = q.joints[at] - model.lower[at], model.upper[at] - q.joints[at]
    side = jnp.where(above <= below, jnp.ones_like(above), -jnp.ones_like(above))
    moving = np.asarray([tree.v_start[body] for body in dry], int)
    return JointRows(jnp.minimum(above, below), side, h * model.friction[moving])


class Acting(NamedTuple):
    """Which contacts and joints act, static.

    touching: (contact, sign) for each body of a contact but the ground; three forces act on it. parts: the segments of
    these forces, then of those at joints. joints: indices into v of the joints with limits, then of those with dry
    friction; the first `limited` have limits. islands: (rows, indices into v) of each part of the mechanism that
    neither joints nor contacts couple with others. faces: whether two bodies have several contacts with each other.
    ends: the two bodies of each contact, -1 for the ground. pattern: blocks of a sparse matrix, None where a dense one
    takes less time. bounded: the same for `Contacts(nearest=)`, where any of the contacts may act; None without it.
    tree: the mechanism.
    """

    touching: tuple[tuple[int, int], ...]
    parts: tuple[Segment, ...]
    joints: tuple[int, ...]
    limited: int
    islands: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    faces: bool = False
    ends: tuple[tuple[int, int], ...] = ()
    pattern: Pattern | None = None
    bounded: "Acting | None" = None
    tree: Tree | None = None

    @classmethod
    def of(cls, contacts: Contacts, model: Model, joined: Sequence[tuple[int, ...]] = ()) -> "Acting":
        ends = list(zip(*(bodies.tolist() for bodies in sides(contacts, model)), strict=True))
        pairs = [pair for pair in ends if min(pair) >= 0]
        on = [(n, sign, pair[k]) for k, sign in ((0, 1), (1, -1)) for n, pair in enumerate(ends) if pair[k] >= 0]
        joints = tuple(path_to_world(model.tree, body) for body in (*contacts.limited, *contacts.dry))
        paths = [path_to_world(model.tree, body) for _, _, body in on for _ in range(3)]
        own = tuple(dofs[0] for dofs in joints)
        islands, faces = _islands(contacts, model, joined), len(set(pairs)) < len(pairs)
        touching = tuple((n, sign) for n, sign, _ in on)
        return cls(
            touching,
            segments([*paths, *joints]),
            own,
            len(contacts.limited),
            islands,
            faces,
            tuple(ends),
            tree=model.tree,
        )

    def rows(self, contacts: int) -> np.ndarray:
        """The row of each force."""
        own = [3 * n + k for n, _ in self.touching for k in range(3)]
        return np.asarray([*own, *range(3 * contacts, 3 * contacts + len(self.joints))], int)


class BodyRows:
    """Rows of contacts that all act and of joints, for the dense solver: J v, M^-1 J^T x and Delassus' operator."""

    def __init__(self, acting: Acting, columns: Columns, points: ContactPoints, joints: JointRows):
        self.acting, self.columns, self.rows = acting, columns, acting.rows(len(points.gap))
        self.signs = jnp.concatenate([joints.side, jnp.ones_like(joints.dry)])
        which, signs = (np.asarray([x[k] for x in acting.touching], int) for k in (0, 1))
        P = points.wrenches()[which]
        P = P if (signs > 0).all() else P * signs[:, None, None].astype(P.dtype)
        self.wrenches = P.reshape(3 * len(which), 6)

    @cached_property
    def y(self) -> list[Array]:
        """Joint forces that unit forces cause, see `responses.impulses`."""
        return impulses(self.columns, self.acting.parts, self.wrenches, self.signs)

    def operator(self) -> Factors:
        """J M^-1 J^T of all rows."""
        return operator(self.columns, self.acting.parts, self.y, self.rows)

    def masked(self, x: Array) -> Array:
        """Values (contacts,), 0 for contacts that do not act; here all act."""
        return x

    def factor(self) -> Array:
        """Factor F (nv, rows) with F^T F = J M^-1 J^T."""
        return jnp.sqrt(self.columns.inverse)[:, None] * dense(
            self.acting.parts, self.y, self.rows, len(self.columns.inverse)
        )

    def rates(self, v: Array) -> Array:
        """J v of velocities v (nv,)."""
        first = {force: n for n, part in enumerate(self.acting.parts) for force in part.starts}
        ends = np.asarray([first.get(force, -1) for force in range(len(self.wrenches))], int)
        V = twists(self.columns.S, self.acting.parts, v)
        own = jnp.sum(self.wrenches * V[ends], 1)
        own, at = together(own, self.rows[: len(own)])
        own = own if (np.diff(at) > 0).all() else own[np.argsort(at)]
        return jnp.concatenate([own, self.signs * v[np.asarray(self.acting.joints, int)]])

    def response(self, x: Array) -> Array:
        """The y (nv,) of forces x (rows,), as `FactoredDynamics.respond` takes it."""
        return response(self.acting.parts, self.y, x[self.rows], len(self.columns.inverse))


def _islands(
    contacts: Contacts, model: Model, joined: Sequence[tuple[int, ...]]
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """`Acting.islands`: trees that grow from the world; those that can touch or that loops join are one island."""
    tree, label = model.tree, []
    for body, parent in enumerate(model.tree.parents):
        label.append(body if parent < 0 else label[parent])
    ends = list(zip(*(bodies.tolist() for bodies in sides(contacts, model)), strict=True))
    touching = [pair for pair in ends if min(pair) >= 0]
    for one, *others in (*touching, *joined):
        for other in others:
            old, new = label[other], label[one]
            label = [new if x == old else x for x in label]
    rows: dict[int, list[int]] = {}
    for contact, pair in enumerate(ends):
        island = label[max(pair)] if max(pair) >= 0 else -1
        rows.setdefault(island, []).extend(range(3 * contact, 3 * contact + 3))
    for joint, body in enumerate((*contacts.limited, *contacts.dry)):
        rows.setdefault(label[body], []).append(3 * len(ends) + joint)
    moved = lambda island: tuple(i for i, body in enumerate(tree.v_body) if label[body] == island)
    return tuple((tuple(sorted(own)), moved(island)) for island, own in rows.items())
