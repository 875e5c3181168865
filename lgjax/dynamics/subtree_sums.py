"""Joints and what they carry: one recursion outward for the motion, one inward for sums over subtrees.

What a body carries is seen from its parent and added there. Moments of all bodies about one common point would be sums
of m p^2 in which the inertias of wrists and fingers drown; in the joint frames nothing is added that a difference would
take away later, however far away the mechanism is. Matrices are products of rows, one of each velocity.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import ancestor_mask, origin_of
from lgjax.dynamics.spatial import EYE3, NO_MOTION, ZERO3, Twist, body_data, place_joint, to_child, twist_of_child
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.joints.kind import subspace_coefficient
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm


class JointTerms(NamedTuple):
    """One velocity of a joint, and its body, at one instant, in the joint frame.

    world: pose in world axes about the point `origin_of` the model. S, S_rate: (6,) motion and its derivative in time.
    V, V_above: (6,) velocities of the body and of its parent. A, A_above: (6,) their accelerations, gravity included.
    Rates and velocities need v, accelerations vdot. On the way outward S and S_rate are rows (nv, 6) of a whole joint.
    """

    world: Pose
    S: Any
    S_rate: Any = None
    V: Any = None
    V_above: Any = None
    A: Any = None
    A_above: Any = None

    def twist(self, x):
        """A twist (6,) in world axes."""
        return se3.Ad(self.world, x)

    def wrench(self, x):
        """A wrench (6,) in world axes."""
        n, f = (sm.matvec(self.world.rotation, part) for part in se3.split(x))
        return sm.join(n + sm.cross(self.world.translation, f), f)


class Subtrees:
    """The joints of a model at one instant, and sums over what they carry."""

    def __init__(self, model: Model, q: Configuration, v=None, vdot=None):
        self.model, self.walk = model, TreeTraversal(model.tree, model.dtype)
        rates = [self.walk.velocities(x) for x in (v, vdot) if x is not None]
        speeds = list(zip(*rates, strict=True)) or [()] * len(self.walk.runs)
        world = Pose(EYE3, -origin_of(model, q)), (NO_MOTION, Twist(ZERO3, -model.gravity))[: len(rates)]
        self.bodies = self.walk.bodies(body_data(model))
        self._steps = self.walk.outward(_outward, world, self.bodies, self.walk.configurations(q), speeds)

    def each(self, read: Callable, *data: list) -> list:
        """Results of read(kind, body's data, its terms, *data), pytrees of arrays, for every body, by run."""
        one = lambda kind, _, body, step, *more: ((), read(kind, body, step[1], *more))
        return self.walk.outward(one, (), self.bodies, self._steps, *data)

    def poses(self) -> Pose:
        """World poses of the joint frames (nbodies, ...), about the point `origin_of` the model."""
        return self.walk.to_bodies([joint.world for _, joint in self._steps])

    def sums(self, own: Callable, to_parent: Callable, zero, *data: list):
        """Sums of own(body's data, its terms, *data), pytrees, over bodies and descendants, in joint frames, by run.

        to_parent: (R, p, sum in the frame at the pose (R, p)) -> the same in the frame around it. zero: sum of nothing.
        """

        def collect(kind, children, body, step, *more):
            place, joint = step
            total = jax.tree.map(jnp.add, children, own(body, joint, *more))
            return to_parent(*place, total), total

        return self.walk.inward(collect, zero, self.bodies, self._steps, *data)

    def rows(self, read: Callable, sums: list, *data):
        """Results of read(terms, sum, *data) for every velocity, a pytree of arrays (nv, ...); data: such arrays.

        The six of a free joint are read together: its motions are unit vectors, and its parent, the world, is at rest.
        """
        tree, joints = self.model.tree, [joint for _, joint in self._steps]
        each = self.walk.to_bodies([(j._replace(S=None, S_rate=None), x) for j, x in zip(joints, sums, strict=True)])
        at = lambda body: each if list(body) == list(range(tree.nbodies)) else jax.tree.map(lambda x: x[body], each)
        bases = np.flatnonzero([not data and kind.coordinates == "free_poses" for kind in tree.kinds])
        body, pieces = np.asarray(tree.v_body), []
        of_base = np.isin(body, bases)
        if len(bases):
            six = jax.vmap(partial(_of_base, read))(*at(bases))
            pieces.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), six))
        if not of_base.all():
            motions = [[j.S for j in joints], [j.S_rate for j in joints]]
            S, S_rate = (None if rows[0] is None else self.walk.to_velocities(rows)[~of_base] for rows in motions)
            joint, total = at(body[~of_base])
            pieces.append(jax.vmap(read)(joint._replace(S=S, S_rate=S_rate), total, *data))
        if len(pieces) == 1:
            return pieces[0]
        order = np.argsort(~of_base, kind="stable").argsort()  # rows of bases are first in the pieces
        in_order = lambda x: x if list(order) == list(range(len(order))) else x[order]
        return jax.tree.map(lambda *rows: in_order(jnp.concatenate(rows)), *pieces)


def _of_base(read: Callable, joint: JointTerms, total):
    """Rows (6, ...) of a free joint."""
    if joint.V is not None:
        joint = joint._replace(V_above=jnp.zeros_like(joint.V))
    if joint.A_above is not None:
        joint = joint._replace(A_above=sm.join(jnp.zeros(3, joint.A_above.dtype), joint.A_above[3:]))  # gravity alone
    one = lambda S: read(joint._replace(S=S, S_rate=None if joint.V is None else se3.ad(joint.V, S)), total)
    return jax.vmap(one)(sm.identity(6, joint.world.rotation.dtype))


def _outward(kind, above, body, q, speeds):
    pose, moving = above
    joint = place_joint(kind, body, q)
    S = jnp.concatenate(joint.S).T
    terms = JointTerms(se3.compose(pose, joint.pose), S)
    near = [sm.join(*to_child(*joint.pose, x)) for x in moving]
    carried = [twist_of_child(joint, x, speed) for x, speed in zip(moving, speeds, strict=True)]
    if speeds:
        V = sm.join(*carried[0])
        S_rate = se3.ad(V, S)
        if kind.varying:
            S_rate = S_rate + jnp.concatenate(subspace_coefficient(kind, body.screw, q, [speeds[0]])).T
        terms = terms._replace(S_rate=S_rate, V=V, V_above=near[0])
        if len(speeds) > 1:
            A = sm.join(*carried[1]) + sm.tmatvec(S_rate, speeds[0])
            carried[1] = Twist(*se3.split(A))
            terms = terms._replace(A=A, A_above=near[1])
    return (terms.world, tuple(carried)), (joint.pose, terms)


def inertia_to_parent(R, p, inertia: Inertia) -> Inertia:
    """The inertia of a rigid body in the frame in which its own frame has the pose (R, p)."""
    h = sm.matvec(R, inertia.moment)
    turned = sm.matmult(sm.matmul(R, inertia.rotational), R)
    half = sm.matmul(sm.hat(h + inertia.mass * p / 2), sm.hat(p))
    return Inertia(inertia.mass, h + inertia.mass * p, sm.symmetric(turned - half - half.T))


def momenta(inertia: Inertia, twists):
    """Inertia times twists (..., 6)."""
    return sm.join(*inertia.momentum(*se3.split(twists)))


# ---- matrices
def products(a, b):
    """Matrix product in full precision."""
    return jnp.matmul(a, b, precision="highest")


def related(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """[i, j]: the joint of velocity i is that of j or beyond it (deep); it is nearer to the root (shallow)."""
    body = np.asarray(tree.v_body)
    deep = ancestor_mask(tree)[body][:, body]
    return deep, deep.T & ~deep


def mass_matrix_of(model: Model, S, S_momenta):
    """Mass matrix (nv, nv) from the motions (nv, 6) of the joints and the momenta of what these carry."""
    deep, shallow = related(model.tree)
    M = products(S_momenta, S.T)
    return jnp.where(deep, M, jnp.where(shallow, M.T, 0)) + sm.diagonal(model.armature)
