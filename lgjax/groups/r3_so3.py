"""Direct product R³ x SO(3): rotation and translation that do not act on each other.

Elements are `RotationTranslation(rotation (..., 3, 3), translation (..., 3))`, algebra vectors [ω, v] (..., 6) and
their duals [n, f], angular part first as in `se3`: ω in radians per unit time in the body frame when multiplied from
the right, v the plain derivative of the translation.  The composition is (R, p)(R', p') = (R R', p + p').
Source: [holzinger2024] section 2.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups import se3, so3, vector
from lgjax.groups.arguments import Fields, makes_identities, takes
from lgjax.groups.lie_group import LieGroup
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm

Array = jax.Array

DIM = 6

parts = se3.parts


class RotationTranslation(NamedTuple):
    """An element of R³ x SO(3): the attitude of a body and the position of its origin, composed separately."""

    rotation: Array
    translation: Array


ELEMENT = Fields(RotationTranslation, ((3, 3), (3,)))


@takes(g=ELEMENT)
def to_pose(g: RotationTranslation) -> se3.Pose:
    """The SE(3) element with the same rotation and translation; not a homomorphism."""
    return se3.Pose(g.rotation, g.translation)


@takes(g=se3.POSE)
def from_pose(g: se3.Pose) -> RotationTranslation:
    """The element with the rotation and translation of a pose; not a homomorphism."""
    return RotationTranslation(g.rotation, g.translation)


@makes_identities
def identity(dtype: jax.typing.DTypeLike, batch: tuple[int, ...] = ()) -> RotationTranslation:
    """The identity with leading axes `batch`."""
    return RotationTranslation(so3.identity(dtype, batch), jnp.zeros((*batch, 3), dtype))


@takes(g=ELEMENT, h=ELEMENT)
def compose(g: RotationTranslation, h: RotationTranslation) -> RotationTranslation:
    """Product: rotations multiply, translations add."""
    return RotationTranslation(sm.matmul(g.rotation, h.rotation), g.translation + h.translation)


@takes(g=ELEMENT)
def inverse(g: RotationTranslation) -> RotationTranslation:
    """Inverse rotation and opposite translation."""
    return RotationTranslation(sm.transpose(g.rotation), -g.translation)


@takes(g=ELEMENT, x=(3,))
def act(g: RotationTranslation, x: Array) -> Array:
    """World position (..., 3) of a body point x; a map of points, though not a group action of the direct product."""
    return sm.matvec(g.rotation, x) + g.translation


@takes(u=(6,))
def exp(u: Array) -> RotationTranslation:
    """Rotation by ω and translation by v."""
    w, v = se3.split(u)
    return RotationTranslation(so3.exp(w), v)


@takes(g=ELEMENT)
def log(g: RotationTranslation) -> Array:
    """Inverse of `exp` with angle at most π."""
    return sm.join(so3.log(g.rotation), g.translation)


@takes(g=ELEMENT, x=(6,))
def Ad(g: RotationTranslation, x: Array) -> Array:
    """Rotates the angular part, leaves the linear part."""
    w, v = se3.split(x)
    return sm.join(so3.Ad(g.rotation, w), v)


@takes(g=ELEMENT, mu=(6,))
def coAd(g: RotationTranslation, mu: Array) -> Array:
    """Ad_gᵀ mu."""
    n, f = se3.split(mu)
    return sm.join(so3.coAd(g.rotation, n), f)


Bilinear = Callable[[Array, Array], Array]


def _direct(name: str, on_so3: Bilinear, on_r3: Bilinear, text: str) -> Bilinear:
    """The map (u, x) that is one function on the angular and another on the linear part, under its name here."""

    @takes(u=(6,), x=(6,))
    def lifted(u: Array, x: Array) -> Array:
        (w, v), (b, c) = se3.split(u), se3.split(x)
        return sm.join(on_so3(w, b), on_r3(v, c))

    lifted.__name__ = lifted.__qualname__ = name
    lifted.__doc__ = text
    return lifted


ad = _direct("ad", so3.ad, vector.ad, "Bracket [ω×ω', 0].")
coad = _direct("coad", so3.coad, vector.coad, "ad_xᵀ mu = [n×ω, 0].")
dexp = _direct("dexp", so3.dexp, vector.dexp, "Left differential of exp: that of SO(3) and the identity.")
dexpinv = _direct("dexpinv", so3.dexpinv, vector.dexpinv, "Inverse of `dexp(u, .)`, for angles below 2π.")
codexp = _direct("codexp", so3.codexp, vector.codexp, "Dual of dexp(u, .).")
codexpinv = _direct("codexpinv", so3.codexpinv, vector.codexpinv, "Dual of dexpinv(u, .).")
dcay = _direct("dcay", so3.dcay, vector.dcay, "Left differential of `cay`.")
dcayinv = _direct("dcayinv", so3.dcayinv, vector.dcayinv, "Inverse of `dcay(u, .)`.")


@takes(u=(6,))
def hat(u: Array) -> Array:
    """Matrix (..., 7, 7): hat(ω) in the first three rows, the translation algebra of v in the last four."""
    w, v = se3.split(u)
    lead = u.shape[:-1]
    m = jnp.zeros((*lead, 7, 7), u.dtype).at[..., :3, :3].set(sm.hat(w))
    return m.at[..., 3:6, 6].set(v)


@takes(m=(7, 7))
def vee(m: Array) -> Array:
    """Inverse of `hat`: (..., 7, 7) -> (..., 6)."""
    return jnp.concatenate([sm.vee(m[..., :3, :3]), m[..., 3:6, 6]], axis=-1)


@takes(g=ELEMENT)
def to_matrix(g: RotationTranslation) -> Array:
    """Matrix (..., 7, 7) of an element; products of matrices are matrices of products."""
    lead = jnp.broadcast_shapes(g.rotation.shape[:-2], g.translation.shape[:-1])
    m = jnp.broadcast_to(jnp.eye(7, dtype=jnp.result_type(*g)), (*lead, 7, 7))
    return m.at[..., :3, :3].set(g.rotation).at[..., 3:6, 6].set(g.translation)


@takes(u=(6,))
def cay(u: Array) -> RotationTranslation:
    """Cayley rotation of ω and translation by v."""
    w, v = se3.split(u)
    return RotationTranslation(so3.cay(w), v)


@takes(g=ELEMENT)
def cayinv(g: RotationTranslation) -> Array:
    """Inverse of `cay`; infinite at half turns."""
    return sm.join(so3.cayinv(g.rotation), g.translation)


@takes(g0=ELEMENT, g1=ELEMENT)
def distance(g0: RotationTranslation, g1: RotationTranslation) -> Array:
    """Length (...) of log(g0⁻¹ g1), radians and meters weighted alike."""
    return norm(log(compose(inverse(g0), g1)))


@takes(g=ELEMENT)
def normalize(g: RotationTranslation) -> RotationTranslation:
    """The element with the rotation that `so3.normalize` gives."""
    return RotationTranslation(so3.normalize(g.rotation), g.translation)


R3xSO3 = LieGroup(
    name="R3xSO3",
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
