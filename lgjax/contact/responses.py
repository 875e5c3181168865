"""How a tree responds to forces at its contacts, from the articulated-body algorithm.

Read first: `dynamics/forward.py`. Its inward pass factors the mass matrix: a wrench P on a body gives its joint the
force y = S^T P, and the parent the wrench P - U D^-1 y, and so on to the world. The *way* of a body is the list of
velocities of the joints that it passes, from the body to the world. A unit force at a contact is described by the y of
all velocities on this way; two forces a, b have a^T J M^-1 J^T b = sum y_a y_b / D over the velocities that their ways
share, and M^-1 J^T follows by the outward pass. Nothing else of the mass matrix is needed.

Source: [featherstone2008] section 7.3 read as a factorization; J M^-1 J^T is Delassus' operator.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.articulated import NO_INERTIA
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
    to_child,
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

    S: (nv, 6) twists. S_free: (nv, 6) the same, combined within a joint so that D is diagonal. U: (nv, 6) the wrenches
    that move them. inverse: (nv,) 1/D.
    """

    S: Array
    S_free: Array
    U: Array
    inverse: Array


class FactoredDynamics:
    """Forward dynamics of one state, ready to respond to forces at contacts.

    vdot: (nv,) accelerations without them. poses: Pose (nbodies) of the joint frames in world axes about origin (3,).
    armature is added to the diagonal of the mass matrix.
    """

    def __init__(self, model: Model, q: Configuration, v, tau, applied: Wrench | None, armature):
        self.tree = model.tree
        self.origin = origin_of(model, q)
        self.walk = walk = TreeTraversal(model.tree, model.dtype)
        drives = list(zip(*map(walk.velocities, (armature, model.damping, v, tau)), strict=True))
        bodies, outside = walk.bodies(body_data(model)), walk.bodies(applied)
        above = NO_MOTION, Pose(EYE3, -self.origin)
        moving = walk.outward(_move, above, bodies, walk.configurations(q), walk.velocities(v), outside)
        found = walk.inward(_factor, (NO_INERTIA, NO_WRENCH), bodies, moving, drives)
        self.articulated = [a for a, _ in found]
        self.columns = Columns(*(walk.to_velocities([c[k] for _, c in found]) for k in range(len(Columns._fields))))
        self.poses = walk.to_bodies([pose for _, pose in moving])
        self.vdot = walk.to_velocities(walk.outward(accelerate, Twist(ZERO3, -model.gravity), self.articulated))

    def respond(self, y: Array) -> tuple[Array, Array]:
        """M^-1 f (nv,) for two forces f that are given as y (nv, 2), see `impulses`."""
        found = self.walk.outward(_respond, (NO_MOTION, NO_MOTION), self.articulated, self.walk.velocities(y))
        first, second = (self.walk.to_velocities([x[k] for x in found]) for k in (0, 1))
        return first, second


def _move(kind, parent, body, q, qd, outside: Wrench | None):
    """Outward: `move`, and the pose in world axes."""
    V_parent, above = parent
    V, moving = move(kind, V_parent, body, q, qd, outside)
    here = se3.compose(above, moving.joint.pose)
    return (V, here), (moving, here)


def _factor(kind, children, body, state, drive):
    """Inward: `articulate`, and its columns in world axes."""
    moving, (R, p) = state
    up, own = articulate(kind, children, body, moving, drive)
    S_free, U_free = _uncoupled(own.D, own.joint.S), _uncoupled(own.D, own.U)
    twist = lambda S: _rows(w := sm.matmul(R, S[0]), sm.matmul(R, S[1]) + sm.matmul(sm.hat(p), w))
    f = sm.matmul(R, U_free[1])
    U = _rows(sm.matmul(R, U_free[0]) + sm.matmul(sm.hat(p), f), f)
    inverse = sm.stack(*(row[-1] for row in own.D))
    return up, (own, Columns(twist(own.joint.S), twist(S_free), U, inverse))


def _rows(angular, linear):
    return jnp.concatenate([angular, linear]).T


def _uncoupled(factor, X):
    """X L^-T for columns X (two of (3, n)) and the factor of D = L diag L^T."""
    if len(factor) == 1:
        return X
    columns: list = []
    for i, row in enumerate(factor):
        column = (X[0][:, i], X[1][:, i])
        for lower, other in zip(row[:-1], columns, strict=True):
            column = tuple(a - sm.scale(lower, b) for a, b in zip(column, other, strict=True))
        columns.append(column)
    return tuple(jnp.stack(part, -1) for part in zip(*columns, strict=True))


def _respond(kind, above: tuple[Twist, Twist], body: Articulated, y):
    """Outward at rest, twice: qdd = L^-T diag^-1 y - D^-1 U^T A'."""
    (pose, S), _, U, D, _ = body
    carried, answers = [], []
    for k, A_parent in enumerate(above):
        A = to_child(*pose, A_parent)
        qdd = _half_solve(D, y[:, k]) - sm.ldl_solve(D, project(U, A))
        carried.append(add(A, joint_twist(S, qdd)))
        answers.append(qdd)
    return tuple(carried), tuple(answers)


def _half_solve(factor, y):
    """L^-T diag^-1 y."""
    x = [y[i] * row[-1] for i, row in enumerate(factor)]
    for i in reversed(range(len(x))):
        for k in range(i + 1, len(x)):
            x[i] = x[i] - factor[k][i] * x[k]
    return sm.stack(*x)


# ---- forces on their ways to the world
class Ways(NamedTuple):
    """On what forces act, static: bodies with contacts, then, if any, all joints with limits or friction together.

    dofs: for each body the velocities on its way to the world, the nearest first; for the joints all on their ways.
    joints: for each joint its own way, which begins with its own velocity.
    """

    dofs: tuple[tuple[int, ...], ...]
    joints: tuple[tuple[int, ...], ...] = ()


def way(tree: Tree, body: int) -> tuple[int, ...]:
    """Velocities on the way of a body, the nearest first."""
    return tuple(reversed([tree.v_start[a] + k for a in tree.ancestors[body] for k in range(tree.kinds[a].nv)]))


def impulses(columns: Columns, ways: Ways, wrenches: list[Array]) -> list[Array]:
    """For each body y (way, k) of wrenches (k, 6) on it, world axes about the origin; see the head of the file.

    The y of several forces add up, and `FactoredDynamics.respond` takes the sum.
    """
    found: list = [None] * len(wrenches)
    shapes = [(len(ways.dofs[i]), len(P)) for i, P in enumerate(wrenches)]
    for shape in dict.fromkeys(shapes):  # bodies whose ways are equally long side by side
        chosen = [i for i, other in enumerate(shapes) if other == shape]
        P, rows = jnp.stack([wrenches[i] for i in chosen]), []
        for dofs in zip(*(ways.dofs[i] for i in chosen), strict=True):
            rows.append(_felt(columns, dofs, P))
            P = _handed_on(columns, dofs, P, rows[-1])
        for n, i in enumerate(chosen):
            found[i] = jnp.stack([row[n] for row in rows])
    return found


def joint_impulses(columns: Columns, ways: Ways, signs: Array) -> Array:
    """y (way, joints) of forces of `signs` (joints,) at the joints, each of which has one velocity."""
    rows = {k: level for level, k in enumerate(ways.dofs[-1])}
    found = jnp.zeros((len(rows), len(signs)), signs.dtype)
    for length in sorted({len(dofs) for dofs in ways.joints}):  # joints whose ways are equally long side by side
        chosen = np.asarray([i for i, dofs in enumerate(ways.joints) if len(dofs) == length])
        y, P = signs[chosen][:, None], jnp.zeros((len(chosen), 1, 6), signs.dtype)
        for level, dofs in enumerate(zip(*(ways.joints[i] for i in chosen), strict=True)):
            if level:
                y = _felt(columns, dofs, P)
            P = _handed_on(columns, dofs, P, y)
            found = found.at[np.asarray([rows[k] for k in dofs]), chosen].set(y[:, 0])
    return found


def _side_by_side(x: Array, dofs: tuple[int, ...]) -> Array:
    """Rows `dofs` of x; one alone where they are the same."""
    return x[np.asarray(dofs[:1] if len(set(dofs)) == 1 else dofs)]


def _felt(columns: Columns, dofs, P: Array) -> Array:
    """y (lanes, k) = S^T P."""
    return jnp.sum(P * _side_by_side(columns.S_free, dofs)[:, None], 2)


def _handed_on(columns: Columns, dofs, P: Array, y: Array) -> Array:
    """P - U D^-1 y."""
    U, inverse = (_side_by_side(x, dofs)[:, None] for x in (columns.U, columns.inverse))
    return P - (y * inverse)[:, :, None] * U


def delassus(columns: Columns, ways: Ways, y: list[Array]) -> Array:
    """J M^-1 J^T (n, n) of forces on all bodies, one body after the other, from their y."""
    count = len(y)
    blocks: list = [[None] * count for _ in y]
    for i in range(count):
        for j in range(i, count):
            first, second = ({k: level for level, k in enumerate(ways.dofs[b])} for b in (i, j))
            common = [(k, first[k], second[k]) for k in first if k in second]
            blocks[i][j] = _product(common, columns.inverse, y[i], y[j])
            blocks[j][i] = blocks[i][j].T
    return jnp.concatenate([jnp.concatenate(row, 1) for row in blocks])


def _product(common, inverse: Array, a: Array, b: Array) -> Array:
    """Sum of a^T D^-1 b over the velocities that two ways have in common, each with its rows in a and in b."""
    if not common:
        return jnp.zeros((a.shape[1], b.shape[1]), a.dtype)
    dofs, first, second = map(np.asarray, zip(*common, strict=True))
    return product((inverse[dofs][:, None] * a[first]).T, b[second])


def response(ways: Ways, y: list[Array], x: list[Array], nv: int) -> Array:
    """The y (nv,) of forces x (k,) on each body."""
    found = jnp.zeros(nv, x[0].dtype)
    for dofs, own, force in zip(ways.dofs, y, x, strict=True):
        found = found.at[np.asarray(dofs, int)].add(product(own, force), unique_indices=True)
    return found


def twists(columns: Columns, ways: Ways, v: Array, bodies: int) -> list[Array]:
    """Velocity (6,) of each of the first bodies, world axes about the origin."""
    each = [np.asarray(dofs, int) for dofs in ways.dofs[:bodies]]
    return [product(columns.S[dofs].T, v[dofs]) for dofs in each]
