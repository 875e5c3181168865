"""Sums over subtrees, about the bodies' own points: what a body carries is seen from its parent and added there.

Moments of all bodies about one common point would be sums of m p^2 in which the inertias of wrists and fingers drown.
In the joint frames nothing is added that a difference would take away later, however far away the mechanism is.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World, ancestor_mask
from lgjax.dynamics.recursion import body_data
from lgjax.groups import se3
from lgjax.groups import small_matrix as sm
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.joints.kind import place
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration
from lgjax.multibody.traversal import Execution, Walk
from lgjax.multibody.tree import Tree


def products(a, b):
    """Matrix product in full precision."""
    return jnp.matmul(a, b, precision="highest")


def subtree_sums(model: Model, q: Configuration, to_parent: Callable, own, execution: Execution):
    """Every leaf (nbodies, ...), given in joint frames, summed over a body and its descendants in that body's frame.

    to_parent: (R, p, values of one body) -> the same in the frame where the body's is at the pose (R, p).
    """
    if execution == "scalarised":
        execution = "plain"  # blocks compile in half the time, and what is made of the sums is made of blocks

    def collect(kind, children, data):
        body, q, own = data
        total = jax.tree.map(jnp.add, children, own)
        return to_parent(*place(kind, body.placement, body.screw, q), total), total

    walk = Walk(model.tree, model.dtype, execution)
    zero = jax.tree.map(lambda x: np.zeros(x.shape[1:]), own)
    data = zip(walk.bodies(body_data(model)), walk.configurations(q), walk.bodies(own), strict=True)
    return walk.to_bodies(walk.inward(collect, zero, list(data)))


def inertia_to_parent(R, p, inertia: Inertia) -> Inertia:
    """A rigid body's inertia where the pose of its frame is (R, p)."""
    h = sm.matvec(R, inertia.moment)
    turned = sm.matmult(sm.matmul(R, inertia.second), R)
    half = sm.matmul(sm.hat(h + inertia.mass * p / 2), sm.hat(p))
    return Inertia(inertia.mass, h + inertia.mass * p, sm.symmetric(turned - half - half.T))


def related(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """[i, j]: the joint of velocity i is that of j or beyond it (deep); it is nearer to the root (shallow)."""
    body = np.asarray(tree.v_body)
    deep = ancestor_mask(tree)[body][:, body]
    return deep, deep.T & ~deep


def carried(model: Model, sums):
    """Rows of sums (nbodies, ...) for the joints of the velocities (nv, ...)."""
    return jax.tree.map(lambda x: x[np.asarray(model.tree.v_body)], sums)


def momenta(inertia: Inertia, twists):
    """Inertia times twists (..., 6)."""
    return sm.join(*inertia.momentum(*se3.split(twists)))


def mass_matrix_of(model: Model, world: World, S_momenta):
    """Mass matrix (nv, nv) from the momenta (nv, 6), about the kinematics' origin, of what each joint moves."""
    deep, shallow = related(model.tree)
    M = products(S_momenta, world.S.T)
    return jnp.where(deep, M, jnp.where(shallow, M.T, 0)) + sm.diagonal(model.armature)
