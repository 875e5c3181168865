"""Building blocks of every recursion: twists, wrenches, their way across a joint, the step from a parent to its child.

All quantities are in joint frames: a body's twists and wrenches are in the axes and about the origin of the frame that
its joint moves. Ad^-1 stands for Ad_(R,p)^-1, where (R, p) is the pose of that frame in the parent's: it takes motions
from parent to child, as the book's X does, and its transpose takes wrenches from child to parent.

Read first: `groups/se3.py` for poses and `multibody/joints/kind.py` for joints.
Source: [kim2012] section 2; [featherstone2008] chapter 2.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups.se3 import Pose
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.joints.kind import JointKind, place, subspace_coefficient
from lgjax.multibody.model import Model
from lgjax.multibody.specialized import SpecializedModel
from lgjax.numerics import small_matrix as sm


class Twist(NamedTuple):
    """Twist or acceleration: angular (3,), linear (3,), in the body's joint frame at its origin."""

    w: jax.Array
    v: jax.Array


class Wrench(NamedTuple):
    """Wrench: moment (3,) about the joint frame's origin, force (3,)."""

    n: jax.Array
    f: jax.Array


# What a root receives from the world and a leaf from its missing children: NumPy, so that the recursions fold it.
ZERO: Any = np.zeros(())
ZERO3: Any = np.zeros(3)
ZERO33: Any = np.zeros((3, 3))
EYE3: Any = np.eye(3)
WORLD_FRAME = Pose(EYE3, ZERO3)
NO_MOTION = Twist(ZERO3, ZERO3)
NO_WRENCH = Wrench(ZERO3, ZERO3)
NO_MASS = Inertia(ZERO, ZERO3, ZERO33)


class BodyData(NamedTuple):
    """The leaves of a Model that belong to one body, its center of mass (3,), m, and its inertia about that.

    placement: pose of the joint frame in the parent's at q = 0. screw: (2,), see `Model.screws`. inertia: about the
    origin of the joint frame. central: (3, 3) about the center of mass, kg m^2. All in the axes of the joint frame.
    """

    placement: Pose
    screw: jax.Array
    inertia: Inertia
    com: jax.Array
    central: jax.Array


def body_data(model: Model) -> BodyData:
    """The data of all bodies, with leading axis nbodies; constants of a specialized model as NumPy arrays."""
    inertia = model.inertias
    if isinstance(model, SpecializedModel) and not any(name.startswith("inertias") for name in model.inputs):
        with jax.ensure_compile_time_eval():
            com, central = jax.tree.map(np.asarray, _about_com(inertia))
    else:
        com, central = _about_com(inertia)
    return BodyData(model.placements, model.screws, inertia, com, central)


def _about_com(inertia: Inertia) -> tuple[jax.Array, jax.Array]:
    """Center of mass (..., 3) and inertia about it (..., 3, 3)."""
    c = inertia.com
    shifted = sm.diagonal(sm.scale(sm.dot(c, inertia.moment), jnp.ones_like(c))) - sm.outer(c, inertia.moment)
    return c, inertia.rotational - shifted


@jax.jit
def to_child(R, p, motion: Twist) -> Twist:
    """Ad^-1 applied to a twist of the parent: the same motion in the frame of the child at the pose (R, p)."""
    return Twist(sm.tmatvec(R, motion.w), sm.tmatvec(R, motion.v + sm.cross(motion.w, p)))


@jax.jit
def to_parent(R, p, force: Wrench) -> Wrench:
    """Ad^-T applied to a wrench on the child: the same wrench in the parent's axes about the parent's origin."""
    f = sm.matvec(R, force.f)
    return Wrench(sm.matvec(R, force.n) + sm.cross(p, f), f)


@jax.jit
def joint_twist(S, qd) -> Twist:
    """S qd, the twist of a body relative to its parent."""
    return Twist(sm.matvec(S[0], qd), sm.matvec(S[1], qd))


@jax.jit
def project(S, x: Twist | Wrench):
    """S^T x, (nv,): the components of a wrench along motions S, or of a twist along wrenches S."""
    return sm.tmatvec(S[0], x[0]) + sm.tmatvec(S[1], x[1])


def add(a, b):
    """Sum of two twists or of two wrenches."""
    return type(a)(a[0] + b[0], a[1] + b[1])


def subtract(a, b):
    """Difference of two twists or of two wrenches."""
    return type(a)(a[0] - b[0], a[1] - b[1])


# ---- one step outward
class PlacedJoint(NamedTuple):
    """A joint at its coordinates.

    pose: of the body's joint frame in its parent's. S: the joint's motions in the body's joint frame, columns
    (angular (3, nv), linear (3, nv)).
    """

    pose: Pose
    S: tuple[jax.Array, jax.Array]


@partial(jax.jit, static_argnames="kind")
def place_joint(kind: JointKind, body: BodyData, q) -> PlacedJoint:
    """The joint that carries a body, at the coordinates q."""
    return PlacedJoint(Pose(*place(kind, body.placement, body.screw, q)), kind.subspace(q, body.screw))


@jax.jit
def twist_of_child(joint: PlacedJoint, parent: Twist, qd) -> Twist:
    """V = Ad^-1 V_parent + S qd; with accelerations for V_parent and qd, Ad^-1 A_parent + S dqd/dt."""
    return add(to_child(*joint.pose, parent), joint_twist(joint.S, qd))


@partial(jax.jit, static_argnames="kind")
def velocity_product(kind: JointKind, body: BodyData, q, S, qd, V: Twist) -> Twist:
    """V x S qd + dS/dt qd, which velocities add to a body's acceleration Ad^-1 A_parent + S dqd/dt.

    dS/dt is that in the body's joint frame, zero unless S depends on q. Source: [featherstone2008] section 5.3.
    """
    w, v = joint_twist(S, qd)
    c = Twist(sm.cross(V.w, w), sm.cross(V.v, w) + sm.cross(V.w, v))
    return add(c, joint_twist(subspace_coefficient(kind, body.screw, q, [qd]), qd)) if kind.varying else c


@jax.jit
def gyroscopic_wrench(body: BodyData, V: Twist) -> Wrench:
    """V x* I V, the wrench that keeps the twist of a body constant.

    It is computed from the velocity u = v + w x com of the center of mass: f = m w x u and n = w x J w + com x f.
    """
    u = V.v + sm.cross(V.w, body.com)
    f = sm.scale(body.inertia.mass, sm.cross(V.w, u))
    return Wrench(sm.cross(V.w, sm.matvec(body.central, V.w)) + sm.cross(body.com, f), f)


# ---- series, and wrenches from outside
def convolve(product, a: Sequence, b: Sequence, k: int, first: int = 0):
    """Coefficient k of a product of two series: the sum of product(a[i], b[k - i]) over first <= i <= k."""
    latest_last = sorted(range(first, k + 1), key=lambda i: max(i, k - i))
    terms = [product(a[i], b[k - i]) for i in latest_last]
    return jax.tree.map(lambda first, *rest: sum(rest, start=first), *terms)


def applied_wrenches(links: Pose, wrenches) -> Wrench:
    """Wrenches (nbodies, 6) given in body frames, converted to joint frames; links: `Model.links`."""
    n, f = wrenches[..., :3], wrenches[..., 3:]
    f = sm.matvec(links.rotation, f)
    return Wrench(sm.matvec(links.rotation, n) + sm.cross(links.translation, f), f)
