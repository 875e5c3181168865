"""The rows of a step's problem: three for each contact, one for each joint's limits, one for each joint's dry friction.

Read first: `responses.py`. Next: `step.py`, where the rows come together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.detection import ContactPoints, sides
from lgjax.contact.responses import Columns, Ways, delassus, impulses, joint_impulses, response, twists, way
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics.rank import product

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

    ways: of the bodies with contacts, and of the joints. sides: for each of these bodies, the (contact, sign) pairs.
    joints: indices into v of the joints with limits, then of those with dry friction; the first `limited` have limits.
    islands: rows and indices into v of the uncoupled parts of the mechanism that have rows. faces: whether two bodies
    have several contacts with each other.
    """

    ways: Ways
    sides: tuple[tuple[tuple[int, int], ...], ...]
    joints: tuple[int, ...]
    limited: int
    islands: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    faces: bool = False

    @classmethod
    def of(cls, contacts: Contacts, model: Model, joined: Sequence[tuple[int, ...]] = ()) -> "Acting":
        on: dict[int, list] = {}
        pairs = [
            pair for pair in zip(*(ends.tolist() for ends in sides(contacts, model)), strict=True) if min(pair) >= 0
        ]
        for bodies, sign in zip(sides(contacts, model), (1, -1), strict=True):
            for contact, body in enumerate(bodies.tolist()):
                if body >= 0:
                    on.setdefault(body, []).append((contact, sign))
        bodies = tuple(way(model.tree, body) for body in on)
        joints = tuple(way(model.tree, body) for body in (*contacts.limited, *contacts.dry))
        every = (tuple(sorted({k for dofs in joints for k in dofs})),) if joints else ()
        own = tuple(dofs[0] for dofs in joints)
        lanes = tuple(map(tuple, on.values()))
        islands, faces = _islands(contacts, model, joined), len(set(pairs)) < len(pairs)
        return cls(Ways((*bodies, *every), joints), lanes, own, len(contacts.limited), islands, faces)

    def wrenches(self, points: ContactPoints) -> list[Array]:
        """(3 k, 6) for each body: wrenches of unit forces along the axes of its k contact frames."""
        P = points.wrenches()
        return [jnp.concatenate([P[c] if sign > 0 else -P[c] for c, sign in own]) for own in self.sides]

    def rates(self, wrenches: list[Array], twists: list[Array], joints: Array) -> Array:
        """Velocities of all rows: (3 n,) of the contacts, in their frames, then those of the joints."""
        each = [product(P, V) for P, V in zip(wrenches, twists, strict=True)]
        return self.gathered(jnp.concatenate([*each, joints]))

    def gathered(self, rows: Array) -> Array:
        """Rows (3 n + joints, ...) from those of body after body; for a pair of links, those of the two are added."""
        order = [contact for own in self.sides for contact, _ in own]
        if order == sorted(set(order)):
            return rows
        lanes: dict[int, list[int]] = {}
        for lane, contact in enumerate(order):
            lanes.setdefault(contact, []).append(lane)
        of = lambda lane: rows[3 * lane : 3 * lane + 3]
        contacts = [sum(map(of, some)) for _, some in sorted(lanes.items())]
        return jnp.concatenate([*contacts, rows[3 * len(order) :]])

    def spread(self, forces: Array) -> list[Array]:
        """Forces (3 k,) at the contacts of each body, and (joints,) at the joints, from those of all rows."""
        bodies = [jnp.concatenate([forces[3 * c : 3 * c + 3] for c, _ in own]) for own in self.sides]
        return [*bodies, forces[len(forces) - len(self.joints) :]] if self.joints else bodies


class BodyRows:
    """All rows of contacts that act on known bodies, and of joints: what velocities they have, and what forces do."""

    def __init__(self, acting: Acting, columns: Columns, points: ContactPoints, joints: JointRows):
        self.acting, self.columns = acting, columns
        self.signs = jnp.concatenate([joints.side, jnp.ones_like(joints.dry)])
        self.wrenches = acting.wrenches(points) if len(points.gap) else []
        self.y = impulses(columns, acting.ways, self.wrenches)
        if acting.joints:
            self.y.append(joint_impulses(columns, acting.ways, self.signs))

    def matrix(self) -> Array:
        """J M^-1 J^T (rows, rows)."""
        G = delassus(self.columns, self.acting.ways, self.y)
        return self.acting.gathered(self.acting.gathered(G).T)

    def factor(self) -> Array:
        """Factor F (nv, rows) with F^T F = J M^-1 J^T."""
        found = []
        for dofs, y in zip(self.acting.ways.dofs, self.y, strict=True):
            every = jnp.zeros((len(self.columns.inverse), y.shape[1]), y.dtype)
            found.append(every.at[np.asarray(dofs, int)].set(y, unique_indices=True))
        return jnp.sqrt(self.columns.inverse)[:, None] * self.acting.gathered(jnp.concatenate(found, 1).T).T

    def rates(self, v: Array) -> Array:
        """J v of velocities v (nv,)."""
        moving = twists(self.columns, self.acting.ways, v, len(self.acting.sides)) if self.wrenches else []
        return self.acting.rates(self.wrenches, moving, self.signs * v[np.asarray(self.acting.joints, int)])

    def response(self, x: Array) -> Array:
        """The y (nv,) of forces x (rows,), as `FactoredDynamics.respond` takes it."""
        return response(self.acting.ways, self.y, self.acting.spread(x), len(self.columns.inverse))


def _islands(
    contacts: Contacts, model: Model, joined: Sequence[tuple[int, ...]]
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """`Acting.islands`: trees that grow from the world, those together that touch in pairs or that loops hold."""
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
