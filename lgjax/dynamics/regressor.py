"""Inverse dynamics as a matrix times the inertial parameters, in which it is linear.

The wrench that body i needs at velocity V = [w, v] and acceleration A = [dw, dv] (gravity included) is, with c = dv +
w x v and I x = L(x) [Ixx, Ixy, Iyy, Ixz, Iyz, Izz],

    [n, f] = [[0, -hat(c), L(dw) + hat(w) L(w)], [c, hat(dw) + hat(w)^2, 0]] parameters,

and joint j, if it carries the body, feels S_j . [n, f]. One pass outward finds motions and wrenches in world axes; the
matrix is their product. Source: [featherstone2008] section 5.3; [rucker2022] section II for the parameters.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import ancestor_mask
from lgjax.dynamics.subtree_sums import Subtrees, products
from lgjax.execution import batched
from lgjax.groups import se3
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


@checked_arguments()
@batched
def regressor(model: Model, q: Configuration, v: jax.Array, vdot: jax.Array) -> jax.Array:
    """The matrix Y (nv, 10 nbodies) with Y @ inertial_parameters(model) = the forces that the inertias need.

    These are `inverse_dynamics` without armature and damping, whose part is armature vdot + damping v. Columns 10 i to
    10 i + 9 belong to body i, in the order of `inertial_parameters`. Of the model's inertias nothing is read.
    v, vdot: (nv,), as in `inverse_dynamics`. Source: [featherstone2008] section 5.3, see the head of this file.
    """
    motions, wrenches = _rows(model, q, v, vdot)
    carried = ancestor_mask(model.tree).T[np.asarray(model.tree.v_body)]  # (nv, nbodies)
    flat = jnp.moveaxis(wrenches, 1, 0).reshape(6, -1)  # (nbodies, 6, 10), by body
    return jnp.where(np.repeat(carried, 10, 1), products(motions, flat), 0)


def _rows(model: Model, q: Configuration, v, vdot) -> tuple[jax.Array, jax.Array]:
    """Joint motions (nv, 6), and wrenches (nbodies, 6, 10) per unit of each parameter, in world axes about a point."""
    subtrees = Subtrees(model, q, v, vdot)
    motions = subtrees.each(lambda kind, body, joint: joint.twist(joint.S))
    wrenches = subtrees.each(_wrenches, subtrees.walk.bodies(model.links))
    return subtrees.walk.to_velocities(motions), subtrees.walk.to_bodies(wrenches)


def _wrenches(kind, body, joint, link):
    """Wrenches (6, 10) that a body needs for each of its parameters, in world axes."""
    to_body = se3.inverse(link)
    (w, v), (dw, dv) = (se3.split(se3.Ad(to_body, x)) for x in (joint.V, joint.A))
    c = dv + sm.cross(w, v)
    spin, zero = sm.hat(w), jnp.zeros_like(c)
    moments = jnp.concatenate([zero[:, None], -sm.hat(c), _times(dw) + sm.matmul(spin, _times(w))], 1)
    pushed = sm.hat(dw) + sm.matmul(spin, spin)
    forces = jnp.concatenate([c[:, None], pushed, jnp.zeros_like(moments[:, :6])], 1)
    R, p = se3.compose(joint.world, link)
    forces = sm.matmul(R, forces)
    return jnp.concatenate([sm.matmul(R, moments) + sm.matmul(sm.hat(p), forces), forces])


def _times(x):
    """L(x) (3, 6)."""
    x0, x1, x2 = sm.components(x)
    zero = jnp.zeros_like(x0)
    return sm.rows(
        sm.stack(x0, x1, zero, x2, zero, zero),
        sm.stack(zero, x0, x1, zero, x2, zero),
        sm.stack(zero, zero, zero, x0, x1, x2),
    )
