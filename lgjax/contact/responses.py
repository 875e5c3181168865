"""How a tree responds to forces at its contacts, from the articulated-body algorithm.

Read first: `dynamics/forward.py`. Its inward pass factors the mass matrix: a wrench P on a body gives its joint the
force y = S^T P, and the parent the wrench P - U D^-1 y, and so on to the world. The *path* of a body is the list of
the velocities of the joints between the body and the world (Featherstone's kappa), the body's own joint first, and of
each joint the last one first. A unit force at a contact is described by its y at all velocities on this path. Two
forces a, b have a^T J M^-1 J^T b = sum y_a y_b / D over the velocities that their paths share, and M^-1 J^T follows by
the outward pass. Nothing else of the mass matrix is needed. Velocities on the paths of the same forces are a *segment*:
they are one array.

Source: [featherstone2008] section 7.3 read as a factorization; J M^-1 J^T is Delassus' operator.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.factors import Factors
from lgjax.dynamics.articulated import NO_INERTIA, joint_inertia, joint_wrench
from lgjax.dynamics.forward import Articulated, accelerate, articulate, move
from lgjax.dynamics.kinematics import origin_of
from lgjax.dynamics.spatial import (
    EYE3,
    NO_MOTION,
    NO_WRENCH,
    ZERO3,
    Twist,
    Wrench,
    add,
    body_data,
    joint_twist,
    project,
    subtract,
    to_child,
    to_parent,
)
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.rank import product

Array = jax.Array


class Columns(NamedTuple):
    """Motions of the joints in world axes about `origin`, one row for each velocity.

    S: (nv, 6) twists. U: (nv, 6) wrenches that move them, less what later velocities of the joint take. inverse: (nv,)
    1/D.
    """

    S: Array
    U: Array
    inverse: Array


class FactoredDynamics:
    """Forward dynamics of one state, ready to respond to forces at contacts.

    vdot: (nv,) accelerations without them. from_rest: (nv,) those at rest, None unless they are wanted. poses: Pose
    (nbodies) of the joint frames in world axes about origin (3,). armature is added to the diagonal of the mass matrix.
    """

    def __init__(self, model: Model, q: Configuration, v, tau, applied: Wrench | None, armature, from_rest=False):
        self.gravity = model.gravity
        self.origin = origin_of(model, q)
        self.walk = walk = TreeTraversal(model.tree, model.dtype)
        drives = list(zip(*map(walk.velocities, (armature, model.damping, v, tau)), strict=True))
        bodies, outside = walk.bodies(body_data(model)), walk.bodies(applied)
        above = NO_MOTION, Pose(EYE3, -self.origin)
        moving = walk.outward(_move, above, bodies, walk.configurations(q), walk.velocities(v), outside)
        zero = NO_INERTIA, NO_WRENCH, NO_WRENCH if from_rest else None
        found = walk.inward(_factor, zero, bodies, moving, drives, outside)
        self.articulated, self.factors = [a for a, _, _, _ in found], [factor for _, factor, _, _ in found]
        self.columns = Columns(*(walk.to_velocities([c[k] for *_, c in found]) for k in range(len(Columns._fields))))
        self.poses = walk.to_bodies([pose for _, pose in moving])
        self._still = (
            [a._replace(c=jax.tree.map(jnp.zeros_like, a.c), u=u) for a, _, u, _ in found] if from_rest else None
        )

    @cached_property
    def vdot(self) -> Array:
        return self._fall(self.articulated)

    @cached_property
    def from_rest(self) -> Array | None:
        return None if self._still is None else self._fall(self._still)

    def _fall(self, articulated: list) -> Array:
        return self.walk.to_velocities(self.walk.outward(accelerate, Twist(ZERO3, -self.gravity), articulated))

    def solve(self, f: Array) -> Array:
        """M^-1 f (nv,)."""
        loaded = self.walk.inward(_load, NO_WRENCH, self.articulated, self.walk.velocities(f))
        return self.walk.to_velocities(self.walk.outward(accelerate, NO_MOTION, loaded))

    def respond(self, *y: Array) -> list[Array]:
        """M^-1 f (nv,) for forces f that are given as y (nv,), see `impulses`."""
        given = list(zip(*map(self.walk.velocities, y), strict=True))
        found = self.walk.outward(_respond, [NO_MOTION] * len(y), self.articulated, self.factors, given)
        return [self.walk.to_velocities([x[k] for x in found]) for k in range(len(y))]


def _move(kind, parent, body, q, qd, outside: Wrench | None):
    """Outward: `move`, and the pose in world axes."""
    V_parent, above = parent
    V, moving = move(kind, V_parent, body, q, qd, outside)
    here = se3.compose(above, moving.joint.pose)
    return (V, here), (moving, here)


def _factor(kind, children, body, state, drive, outside: Wrench | None):
    """Inward: `articulate`, where it is wanted what the parent feels and u at rest, and the columns in world axes."""
    (*felt, still), (moving, (R, p)), u = children, state, None
    up, own = articulate(kind, felt, body, moving, drive)
    if still is not None:
        still = still if outside is None else subtract(still, outside)
        u = drive[3] - project(own.joint.S, still)
        still = to_parent(*own.joint.pose, add(still, joint_wrench(own.U, sm.ldl_solve(own.D, u))))
    factor, U_free = _last_first(own.joint.S, own.U, drive[0])
    f = sm.matmul(R, U_free[1])
    U = _rows(sm.matmul(R, U_free[0]) + sm.matmul(sm.hat(p), f), f)
    S = _rows(w := sm.matmul(R, own.joint.S[0]), sm.matmul(R, own.joint.S[1]) + sm.matmul(sm.hat(p), w))
    inverse = sm.stack(*(row[-1] for row in reversed(factor)))
    return (*up, still), (own, factor, u, Columns(S, U, inverse))


def _rows(angular, linear):
    return jnp.concatenate([angular, linear]).T


def _last_first(S, U, armature):
    """The factor of D = S^T U + armature = L diag L^T for the velocities of a joint in reverse, and U L^-T.

    Forces pass through the velocities of a joint one by one, the last one first, as through joints of their own between
    bodies without mass that have the armature.
    """
    flipped = lambda x: tuple(part[:, ::-1] for part in x)
    factor = sm.ldl(joint_inertia(flipped(S), flipped(U), armature[::-1]))
    columns: list = []
    for i, row in enumerate(factor):
        column = (U[0][:, -1 - i], U[1][:, -1 - i])
        for lower, other in zip(row[:-1], columns, strict=True):
            column = tuple(a - sm.scale(lower, b) for a, b in zip(column, other, strict=True))
        columns.append(column)
    return factor, tuple(jnp.stack(part, -1) for part in zip(*reversed(columns), strict=True))


def _load(kind, children: Wrench, body: Articulated, f):
    """Inward at rest: what joint forces f leave for the parent, and the body with its u."""
    p = joint_wrench(body.U, sm.ldl_solve(body.D, u := f - project(body.joint.S, children)))
    still = jax.tree.map(jnp.zeros_like, body.c)
    return to_parent(*body.joint.pose, add(children, p)), body._replace(c=still, u=u)


def _respond(kind, above: list[Twist], body: Articulated, factor, y: tuple):
    """Outward at rest, for several forces: qdd = L^-T diag^-1 y - D^-1 U^T A', see `_last_first`."""
    (pose, S), _, U, D, _ = body
    carried, answers = [], []
    for A_parent, own in zip(above, y, strict=True):
        A = to_child(*pose, A_parent)
        qdd = _half_solve(factor, own[::-1])[::-1] - sm.ldl_solve(D, project(U, A))
        carried.append(add(A, joint_twist(S, qdd)))
        answers.append(qdd)
    return carried, answers


def _half_solve(factor, y):
    """L^-T diag^-1 y."""
    x = [y[i] * row[-1] for i, row in enumerate(factor)]
    for i in reversed(range(len(x))):
        for k in range(i + 1, len(x)):
            x[i] = x[i] - factor[k][i] * x[k]
    return sm.stack(*x)


# ---- forces on their paths to the world
class Segment(NamedTuple):
    """Successive velocities of a tree that are on the paths of the same forces; static.

    dofs: indices into v, the nearest to the leaves first. above: number of the next segment toward the world, -1 for
    none. below: segments that pass their forces on to this one. starts: forces that act on a body or joint of this
    segment. forces: all, those from below first.
    """

    dofs: tuple[int, ...]
    above: int
    below: tuple[int, ...]
    starts: tuple[int, ...]
    forces: tuple[int, ...]


def path_to_world(tree: Tree, body: int) -> tuple[int, ...]:
    """Indices into v of the velocities between a body and the world, the body's own joint first."""
    return tuple(reversed([tree.v_start[a] + k for a in tree.ancestors[body] for k in range(tree.kinds[a].nv)]))


def segments(paths: Sequence[tuple[int, ...]]) -> tuple[Segment, ...]:
    """Segments of forces with these paths (`path_to_world`), from the leaves to the roots."""
    acting: dict[int, list[int]] = {}
    for force, dofs in enumerate(paths):
        for k in dofs:
            acting.setdefault(k, []).append(force)
    same = {k: tuple(forces) for k, forces in acting.items()}
    routes = [list(dict.fromkeys(same[k] for k in dofs)) for dofs in paths]  # sets of forces, of one segment each
    height = {own: len(route) - level for route in routes for level, own in enumerate(route)}
    order = sorted(height, key=lambda own: -height[own])
    number = {own: n for n, own in enumerate(order)}
    above = {own: number[next_] for route in routes for own, next_ in pairwise(route)}
    first = {force: number[route[0]] for force, route in enumerate(routes) if route}
    found: list[Segment] = []
    for n, own in enumerate(order):
        below = tuple(k for k, segment in enumerate(found) if segment.above == n)
        starts = tuple(force for force in own if first[force] == n)
        forces = (*(force for k in below for force in found[k].forces), *starts)
        dofs = tuple(k for k in paths[own[0]] if same[k] == own)
        found.append(Segment(dofs, above.get(own, -1), below, starts, forces))
    return tuple(found)


def impulses(columns: Columns, parts: Sequence[Segment], wrenches: Array, own: Array) -> list[Array]:
    """The y (velocities, forces) of unit forces in each segment, as the head of the file defines them.

    First come the forces on bodies, wrenches (k, 6) in world axes about the origin, then those at joints, own (m,):
    each acts on the first velocity of its segment. The y of several forces add up, and `FactoredDynamics.respond` takes
    the sum.
    """
    start = jnp.concatenate([wrenches, jnp.zeros((len(own), 6), own.dtype)])
    handed: list[Array] = []
    found = []
    for part in parts:
        P = jnp.concatenate([*(handed[k] for k in part.below), start[np.asarray(part.starts, int)]])
        joints = [force - len(wrenches) for force in part.starts if force >= len(wrenches)]
        more = jnp.zeros((len(part.dofs), len(P)), P.dtype)
        if joints:
            more = more.at[0, len(P) - len(joints) :].set(own[np.asarray(joints, int)])
        dofs = np.asarray(part.dofs, int)
        along = columns.S[dofs], columns.U[dofs], columns.inverse[dofs], more if joints else None
        P, y = jax.lax.scan(_handed_on, P, along)
        handed.append(P)
        found.append(y)
    return found


def _handed_on(P: Array, velocity) -> tuple[Array, Array]:
    """P - U D^-1 y and y = S^T P, of forces P (k, 6)."""
    S, U, inverse, own = velocity
    y = product(P, S)
    y = y if own is None else y + own
    return P - (y * inverse)[:, None] * U, y


def operator(columns: Columns, parts: Sequence[Segment], y: list[Array], rows: np.ndarray) -> Factors:
    """J M^-1 J^T (n, n) from the y of forces. rows: (forces,), the row of each; both bodies of a contact share it."""
    found = [together(own, rows[np.asarray(part.forces, int)]) for part, own in zip(parts, y, strict=True)]
    d = [columns.inverse[np.asarray(part.dofs, int)] for part in parts]
    at = tuple(tuple(at.tolist()) for _, at in found)
    return Factors([own for own, _ in found], d, None, at, len(np.unique(rows)))


def together(y: Array, rows: np.ndarray) -> tuple[Array, np.ndarray]:
    """The columns of y (..., forces), columns of the same row added up, and the rows."""
    own, first = np.unique(rows, return_index=True)
    if len(own) == len(rows):
        return y, rows
    others = np.setdiff1d(np.arange(len(rows)), first)
    second = np.full(len(own), len(rows))
    second[np.searchsorted(own, rows[others])] = others
    padded = jnp.concatenate([y, jnp.zeros_like(y[..., :1])], -1)
    return y[..., first] + padded[..., second], own


def dense(parts: Sequence[Segment], y: list[Array], rows: np.ndarray, nv: int) -> Array:
    """The y (nv, n) of all rows, as in `operator`."""
    found = jnp.zeros((nv, len(np.unique(rows))), y[0].dtype)
    for part, own in zip(parts, y, strict=True):
        own, at = together(own, rows[np.asarray(part.forces, int)])
        found = found.at[np.ix_(np.asarray(part.dofs, int), at)].set(own, unique_indices=True)
    return found


def response(parts: Sequence[Segment], y: list[Array], x: Array, nv: int) -> Array:
    """The y (nv,) of forces x (forces,)."""
    found = jnp.zeros(nv, x.dtype)
    for part, own in zip(parts, y, strict=True):
        found = found.at[np.asarray(part.dofs, int)].set(product(own, x[np.asarray(part.forces, int)]))
    return found


def twists(S: Array, parts: Sequence[Segment], v: Array) -> Array:
    """Velocities (segments + 1, 6) of the bodies that end each segment, world axes about the origin; then zero."""
    found: dict[int, Array] = {-1: jnp.zeros(6, v.dtype)}
    for n, part in reversed(list(enumerate(parts))):
        dofs = np.asarray(part.dofs, int)
        found[n] = found[part.above] + product(S[dofs].T, v[dofs])
    return jnp.stack([found[n] for n in (*range(len(parts)), -1)])
