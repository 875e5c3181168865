"""What the recursions share: the body's parameters as one value and motions and forces between neighbours."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups.se3 import Pose
from lgjax.multibody.inertia import Inertia
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


class BodyData(NamedTuple):
    """The leaves of a Model that belong to one body, its centre of mass (3,) and its inertia (3, 3) about that."""

    placement: Pose
    screw: jax.Array
    inertia: Inertia
    com: jax.Array
    central: jax.Array


def body_data(model: Model) -> BodyData:
    if isinstance(model, SpecializedModel):
        with jax.ensure_compile_time_eval():
            return jax.tree.map(np.asarray, _body_data(model))
    return _body_data(model)


def _body_data(model: Model) -> BodyData:
    c, inertia = model.inertias.com, model.inertias
    shifted = sm.diagonal(sm.scale(sm.dot(c, inertia.moment), jnp.ones_like(c))) - sm.outer(c, inertia.moment)
    return BodyData(model.placements, model.screws, inertia, c, inertia.rotational - shifted)


def to_child(R, p, motion: Twist) -> Twist:
    """Ad_(R,p)^-1: a motion of the parent, seen at the child whose pose in the parent is (R, p)."""
    return Twist(sm.tmatvec(R, motion.w), sm.tmatvec(R, motion.v + sm.cross(motion.w, p)))


def to_parent(R, p, force: Wrench) -> Wrench:
    """Ad_(R,p)^-T: a wrench on the child, as a wrench about the parent's origin."""
    f = sm.matvec(R, force.f)
    return Wrench(sm.matvec(R, force.n) + sm.cross(p, f), f)


def joint_twist(S, qd) -> Twist:
    """S qd."""
    return Twist(sm.matvec(S[0], qd), sm.matvec(S[1], qd))


def project(S, force: Wrench):
    """S^T force, (nv,)."""
    return sm.tmatvec(S[0], force.n) + sm.tmatvec(S[1], force.f)


def add(a, b):
    """Sum of two motions or two forces."""
    return type(a)(a[0] + b[0], a[1] + b[1])


def convolve(product, a: Sequence, b: Sequence, k: int, first: int = 0):
    """A coefficient of a product of two series: sum of product(a[i], b[k - i]) over first <= i <= k."""
    latest_last = sorted(range(first, k + 1), key=lambda i: max(i, k - i))
    terms = [product(a[i], b[k - i]) for i in latest_last]
    return jax.tree.map(lambda first, *rest: sum(rest, start=first), *terms)


def applied_wrenches(links: Pose, wrenches) -> Wrench:
    """Wrenches (nbodies, 6) in body frames in joint axes about the origins of the joint frames."""
    n, f = wrenches[..., :3], wrenches[..., 3:]
    f = sm.matvec(links.rotation, f)
    return Wrench(sm.matvec(links.rotation, n) + sm.cross(links.translation, f), f)
