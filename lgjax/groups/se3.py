"""SE(3): poses `Pose(rotation (..., 3, 3), translation (..., 3))`.

Algebra vectors are twists [ω, v] (..., 6) and their duals wrenches [n, f] (..., 6), angular part first, so that
power is the scalar product.  SI units and radians.  Every function broadcasts over leading axes, keeps the dtype of its
arguments and works on 3-vectors; no 6x6 matrix is built.  ``dexp`` is the left (spatial) version,
d/dt exp(u) = hat(dexp(u, u̇)) exp(u); the body version is ``dexp(-u, v)``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lgjax.groups import so3
from lgjax.groups.ad_by_cross_products import by_cross_products
from lgjax.groups.arguments import Fields, makes_identities, takes
from lgjax.groups.lie_group import LieGroup
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import cotc, cotc_rate, norm, stumpff, stumpff_rate

Array = jax.Array

DIM = 6


class Pose(NamedTuple):
    """A rigid displacement x -> rotation x + translation; `T_a_b` maps coordinates in b to coordinates in a.

    Poses compose with ``@`` and names cancel: ``T_world_parent @ T_parent_body``.
    """

    rotation: Array
    translation: Array

    def __matmul__(self, other: Pose) -> Pose:
        return compose(self, other)

    def inverse(self) -> Pose:
        """The pose with the two frames exchanged."""
        return inverse(self)

    def act(self, x: Array) -> Array:
        """Map points (..., 3)."""
        return act(self, x)


POSE = Fields(Pose, ((3, 3), (3,)))


@takes(x=(6,))
def split(x: Array) -> tuple[Array, Array]:
    """Angular and linear part (..., 3) of a twist or wrench (..., 6)."""
    angular, linear = lax.split(x, (3, 3), jnp.ndim(x) - 1)
    return angular, linear


@makes_identities
def identity(dtype: jax.typing.DTypeLike, batch: tuple[int, ...] = ()) -> Pose:
    """The identity pose with leading axes `batch`."""
    return Pose(so3.identity(dtype, batch), jnp.zeros((*batch, 3), dtype))


@takes(g=POSE, h=POSE)
def compose(g: Pose, h: Pose) -> Pose:
    """Product g h: first h, then g.  Source: [celledoni2021] section 3.4.2."""
    return Pose(sm.matmul(g.rotation, h.rotation), g.translation + sm.matvec(g.rotation, h.translation))


@takes(g=POSE)
def inverse(g: Pose) -> Pose:
    """Inverse pose."""
    return Pose(sm.transpose(g.rotation), -sm.tmatvec(g.rotation, g.translation))


@takes(g=POSE, x=(3,))
def act(g: Pose, x: Array) -> Array:
    """Map points (..., 3) from the inner to the outer frame."""
    return sm.matvec(g.rotation, x) + g.translation


@takes(g=POSE)
def to_matrix(g: Pose) -> Array:
    """Homogeneous matrix (..., 4, 4) of a pose."""
    rotation, translation = g
    lead = jnp.broadcast_shapes(rotation.shape[:-2], translation.shape[:-1])
    top = jnp.concatenate(
        [jnp.broadcast_to(rotation, (*lead, 3, 3)), jnp.broadcast_to(translation, (*lead, 3))[..., None]], axis=-1
    )
    last = jnp.zeros((*lead, 1, 4), top.dtype).at[..., 3].set(1.0)
    return jnp.concatenate([top, last], axis=-2)


@takes(m=(4, 4))
def from_matrix(m: Array) -> Pose:
    """Pose of a homogeneous matrix (..., 4, 4), whose last row is taken to be 0 0 0 1."""
    return Pose(m[..., :3, :3], m[..., :3, 3])


@takes(u=(6,))
def hat(u: Array) -> Array:
    """Matrix (..., 4, 4) of a twist: [[hat(ω), v], [0, 0]]."""
    w, v = split(u)
    top = jnp.concatenate([sm.hat(w), v[..., None]], axis=-1)
    return jnp.concatenate([top, jnp.zeros_like(top[..., :1, :])], axis=-2)


@takes(m=(4, 4))
def vee(m: Array) -> Array:
    """Inverse of `hat`: (..., 4, 4) -> (..., 6)."""
    return jnp.concatenate([sm.vee(m[..., :3, :3]), m[..., :3, 3]], axis=-1)


@takes(u=(6,))
def exp(u: Array) -> Pose:
    """Pose reached after unit time with the constant twist u (..., 6)."""
    w, v = split(u)
    return Pose(so3.exp(w), so3.dexp(w, v))


@takes(g=POSE)
def log(g: Pose) -> Array:
    """Twist (..., 6) with exp(log g) = g and angle at most π."""
    w = so3.log(g.rotation)
    return sm.join(w, so3.dexpinv(w, g.translation))


@takes(g=POSE, x=(6,))
def Ad(g: Pose, x: Array) -> Array:
    """Twist x (..., 6), given in the inner frame of g, in the outer frame."""
    w, v = split(x)
    turned = sm.matvec(g.rotation, w)
    return sm.join(turned, sm.matvec(g.rotation, v) + sm.cross(g.translation, turned))


@takes(g=POSE, mu=(6,))
def coAd(g: Pose, mu: Array) -> Array:
    """Ad_gᵀ mu: the wrench mu (..., 6) of the outer frame of g in the inner one.  Source: [celledoni2021] eq. (10)."""
    n, f = split(mu)
    moment = n - sm.cross(g.translation, f)
    return sm.join(sm.tmatvec(g.rotation, moment), sm.tmatvec(g.rotation, f))


@takes(x=(6,), y=(6,))
def ad(x: Array, y: Array) -> Array:
    """Bracket [x, y] of twists: [ω×ω', v×ω' + ω×v']."""
    (w, v), (w2, v2) = split(x), split(y)
    return sm.join(sm.cross(w, w2), sm.cross(v, w2) + sm.cross(w, v2))


@takes(x=(6,), mu=(6,))
def coad(x: Array, mu: Array) -> Array:
    """ad_xᵀ mu of a twist x and a wrench mu: [n×ω + f×v, f×ω]."""
    (w, v), (n, f) = split(x), split(mu)
    return sm.join(sm.cross(n, w) + sm.cross(f, v), sm.cross(f, w))


def _dexp(u: Array, x: Array) -> tuple[Array, Array]:
    w, _ = split(u)
    s = sm.dot(w, w)
    return by_cross_products(split(u), split(x), stumpff(2, s), stumpff(3, s), stumpff_rate(2, s), stumpff_rate(3, s))


def _dexpinv(u: Array, x: Array) -> tuple[Array, Array]:
    w, _ = split(u)
    s = sm.dot(w, w)
    return by_cross_products(split(u), split(x), jnp.full_like(s, -0.5), cotc(s), jnp.zeros_like(s), cotc_rate(s))


def _swap(mu: Array) -> Array:
    return jnp.concatenate([mu[..., 3:], mu[..., :3]], axis=-1)


@takes(u=(6,), v=(6,))
def dexp(u: Array, v: Array) -> Array:
    """Left differential of exp, Σ_k ad_u^k v / (k+1)!.  Source: [celledoni2021] eq. (7) and section 2.3."""
    return sm.join(*_dexp(u, v))


@takes(u=(6,), v=(6,))
def dexpinv(u: Array, v: Array) -> Array:
    """Inverse of `dexp(u, .)`, for rotation angles below 2π.  Source: [celledoni2021] eq. (8) and section 2.3."""
    return sm.join(*_dexpinv(u, v))


# With moment and force exchanged, ad_uᵀ acts like -ad_u = ad_{-u}; so does every function of it.


@takes(u=(6,), mu=(6,))
def codexp(u: Array, mu: Array) -> Array:
    """Dual <dexp_uᵀ mu, v> = <mu, dexp_u v> on wrenches mu (..., 6)."""
    force, moment = _dexp(-u, _swap(mu))
    return sm.join(moment, force)


@takes(u=(6,), mu=(6,))
def codexpinv(u: Array, mu: Array) -> Array:
    """Dual of dexpinv(u, .) on wrenches mu (..., 6)."""
    force, moment = _dexpinv(-u, _swap(mu))
    return sm.join(moment, force)


def _resolvent(w: Array, x: Array) -> Array:
    """(I - hat(w)/2)⁻¹ x, the factor that the Cayley map and its differential share."""
    half = 0.5 * w
    factor = 1.0 / (1.0 + sm.dot(half, half))
    return sm.scale(factor, x + sm.cross(half, x) + sm.scale(sm.dot(half, x), half))


@takes(u=(6,))
def cay(u: Array) -> Pose:
    """Cayley map (I - hat(u)/2)⁻¹ (I + hat(u)/2) of the homogeneous matrices."""
    w, v = split(u)
    return Pose(so3.cay(w), _resolvent(w, v))


@takes(g=POSE)
def cayinv(g: Pose) -> Array:
    """Inverse of `cay`; infinite where the rotation is a half turn."""
    w = so3.cayinv(g.rotation)
    return sm.join(w, g.translation - 0.5 * sm.cross(w, g.translation))


@takes(u=(6,), x=(6,))
def dcay(u: Array, x: Array) -> Array:
    """Left differential of cay: d/dt cay(u) = hat(dcay(u, u̇)) cay(u)."""
    (w, v), (b, c) = split(u), split(x)
    angular = so3.dcay(w, b)
    correction = 0.5 * sm.cross(v, angular) + 0.25 * sm.cross(w, sm.cross(angular, v))
    return sm.join(angular, _resolvent(w, c + correction))


@takes(u=(6,), x=(6,))
def dcayinv(u: Array, x: Array) -> Array:
    """Inverse of `dcay(u, .)`: vee((I - hat(u)/2) hat(x) (I + hat(u)/2))."""
    (w, v), (b, c) = split(u), split(x)
    linear = c - 0.5 * (sm.cross(w, c) + sm.cross(v, b)) - 0.25 * sm.cross(w, sm.cross(b, v))
    return sm.join(so3.dcayinv(w, b), linear)


@takes(g0=POSE, g1=POSE)
def distance(g0: Pose, g1: Pose) -> Array:
    """Length (...) of log(g0⁻¹ g1), radians and meters weighted alike."""
    return norm(log(compose(inverse(g0), g1)))


@takes(g=POSE)
def normalize(g: Pose) -> Pose:
    """The pose with the rotation that `so3.normalize` gives."""
    return Pose(so3.normalize(g.rotation), g.translation)


def parts(g: Pose, start: Pose | None = None) -> tuple[Array, Array]:
    """The columns of the rotation, and the translation seen from that of `start`."""
    return *so3.parts(g.rotation), g.translation if start is None else g.translation - start.translation


SE3 = LieGroup(
    name="SE3",
    dim=DIM,
    identity=identity,
    compose=compose,
    inverse=inverse,
    exp=exp,
    log=log,
    Ad=Ad,
    ad=ad,
    coAd=coAd,
    coad=coad,
    dexp=dexp,
    dexpinv=dexpinv,
    codexp=codexp,
    codexpinv=codexpinv,
    hat=hat,
    vee=vee,
    cay=cay,
    cayinv=cayinv,
    dcay=dcay,
    dcayinv=dcayinv,
    distance=distance,
    normalize=normalize,
    parts=parts,
)
