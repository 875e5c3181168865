"""SO(3): rotation matrices (..., 3, 3); the algebra is rotation vectors (..., 3) in radians.

Every function broadcasts over leading axes and keeps the dtype of its arguments.  ``dexp`` is the left (spatial) one,
d/dt exp(u) = hat(dexp(u, u̇)) exp(u); the body version is ``dexp(-u, v)``.
"""

import jax
import jax.numpy as jnp

from lgjax.groups.arguments import makes_identities, takes
from lgjax.groups.lie_group import LieGroup
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import cotc, norm, rotation_vector_ratio, stumpff

Array = jax.Array

DIM = 3


@takes(w=(3,))
def hat(w: Array) -> Array:
    """Skew matrix (..., 3, 3) with hat(w) x = w × x.  Source: [celledoni2021] eq. (5)."""
    return sm.hat(w)


@takes(m=(3, 3))
def vee(m: Array) -> Array:
    """Inverse of `hat`: the vector (..., 3) of the skew part of a matrix (..., 3, 3)."""
    return sm.vee(m)


@makes_identities
def identity(dtype: jax.typing.DTypeLike, batch: tuple[int, ...] = ()) -> Array:
    """The identity rotation, (*batch, 3, 3)."""
    return sm.identity(3, dtype, batch)


@takes(g=(3, 3), h=(3, 3))
def compose(g: Array, h: Array) -> Array:
    """Product of two rotations, g h: first h, then g."""
    return sm.matmul(g, h)


@takes(g=(3, 3))
def inverse(g: Array) -> Array:
    """Inverse of a rotation, its transpose."""
    return sm.transpose(g)


@takes(g=(3, 3), x=(3,))
def act(g: Array, x: Array) -> Array:
    """Rotate points or free vectors: (..., 3, 3), (..., 3) -> (..., 3)."""
    return sm.matvec(g, x)


def _symmetric_part(w: Array, first: Array, second: Array) -> Array:
    """I + first hat(w) + second hat(w)², entry by entry; the diagonal is 1 minus a sum of squares."""
    x, y, z = w[..., 0], w[..., 1], w[..., 2]
    bx, by, bz = second * x, second * y, second * z
    ax, ay, az = first * x, first * y, first * z
    xx, yy, zz, xy, xz, yz = bx * x, by * y, bz * z, bx * y, bx * z, by * z
    return sm.rows(
        sm.stack(1.0 - (yy + zz), xy - az, xz + ay),
        sm.stack(xy + az, 1.0 - (xx + zz), yz - ax),
        sm.stack(xz - ay, yz + ax, 1.0 - (xx + yy)),
    )


@takes(w=(3,))
def exp(w: Array) -> Array:
    """Rotation (..., 3, 3) by |w| radians about w (..., 3); analytic at 0, accurate at any angle."""
    s = sm.dot(w, w)
    return _symmetric_part(w, stumpff(1, s), stumpff(2, s))


@takes(g=(3, 3))
def log(g: Array) -> Array:
    """Rotation vector (..., 3) of a rotation, |log g| <= π; at a half turn either of the two signs.

    Goes through the quaternion, whose largest component picks the branch, so it is accurate to a few eps at every angle
    and differentiable everywhere but at half turns, where the map itself jumps.
    """
    return log_quaternion(_quaternion_direction(g))


@takes(q=(4,))
def log_quaternion(q: Array) -> Array:
    """Rotation vector (..., 3), at most π long, of the rotation of a quaternion wxyz (..., 4) of any length but 0."""
    q = jnp.where(q[..., 0:1] < 0, -q, q)
    v = q[..., 1:]
    return sm.scale(rotation_vector_ratio(q[..., 0], sm.dot(v, v)), v)


def _quaternion_direction(g: Array) -> Array:
    """The row of 4 q qᵀ with the largest diagonal entry: the quaternion of g up to a factor of at least 2 in size."""
    r00, r11, r22 = g[..., 0, 0], g[..., 1, 1], g[..., 2, 2]
    wx, wy, wz = g[..., 2, 1] - g[..., 1, 2], g[..., 0, 2] - g[..., 2, 0], g[..., 1, 0] - g[..., 0, 1]
    xy, xz, yz = g[..., 0, 1] + g[..., 1, 0], g[..., 0, 2] + g[..., 2, 0], g[..., 1, 2] + g[..., 2, 1]
    ww, xx = 1.0 + r00 + r11 + r22, 1.0 + r00 - r11 - r22
    yy, zz = 1.0 - r00 + r11 - r22, 1.0 - r00 - r11 + r22
    best, row = ww, sm.stack(ww, wx, wy, wz)
    for diagonal, other in (
        (xx, sm.stack(wx, xx, xy, xz)),
        (yy, sm.stack(wy, xy, yy, yz)),
        (zz, sm.stack(wz, xz, yz, zz)),
    ):
        row = jnp.where((diagonal > best)[..., None], other, row)
        best = jnp.maximum(best, diagonal)
    return row


@takes(g=(3, 3))
def to_quaternion(g: Array) -> Array:
    """Unit quaternion wxyz (..., 4) with w >= 0 of a rotation matrix (..., 3, 3)."""
    row = _quaternion_direction(g)
    q = row * jax.lax.rsqrt(sm.dot(row, row))[..., None]
    return jnp.where(q[..., 0:1] < 0, -q, q)


@takes(q=(4,))
def from_quaternion(q: Array) -> Array:
    """Rotation matrix (..., 3, 3) of a unit quaternion wxyz (..., 4)."""
    # hat(2v) enters as w hat(2v) + hat(2v)²/2, the exponential with its coefficients read off the quaternion.
    return _symmetric_part(2.0 * q[..., 1:], q[..., 0], jnp.full_like(q[..., 0], 0.5))


@takes(g=(3, 3), x=(3,))
def Ad(g: Array, x: Array) -> Array:
    """Adjoint action g hat(x) g⁻¹ = hat(g x) on algebra vectors (..., 3)."""
    return sm.matvec(g, x)


@takes(g=(3, 3), mu=(3,))
def coAd(g: Array, mu: Array) -> Array:
    """Ad_gᵀ mu.  Source: [celledoni2021] eq. (10)."""
    return sm.tmatvec(g, mu)


@takes(x=(3,), y=(3,))
def ad(x: Array, y: Array) -> Array:
    """Bracket of rotation vectors, x × y."""
    return sm.cross(x, y)


@takes(x=(3,), mu=(3,))
def coad(x: Array, mu: Array) -> Array:
    """ad_xᵀ mu = mu × x."""
    return sm.cross(mu, x)


@takes(u=(3,), v=(3,))
def dexp(u: Array, v: Array) -> Array:
    """Left differential of exp, Σ_k ad_u^k v / (k+1)!.  Source: [celledoni2021] eq. (7)."""
    s, uv = sm.dot(u, u), sm.cross(u, v)
    return v + sm.scale(stumpff(2, s), uv) + sm.scale(stumpff(3, s), sm.cross(u, uv))


@takes(u=(3,), v=(3,))
def dexpinv(u: Array, v: Array) -> Array:
    """Inverse of `dexp(u, .)`, for |u| < 2π.  Source: [celledoni2021] eq. (8) and the closed form after it."""
    uv = sm.cross(u, v)
    return v - 0.5 * uv + sm.scale(cotc(sm.dot(u, u)), sm.cross(u, uv))


@takes(u=(3,), mu=(3,))
def codexp(u: Array, mu: Array) -> Array:
    """Dual <dexp_uᵀ mu, v> = <mu, dexp_u v>; here dexp(-u, mu)."""
    return dexp(-u, mu)


@takes(u=(3,), mu=(3,))
def codexpinv(u: Array, mu: Array) -> Array:
    """Dual of dexpinv(u, .); here dexpinv(-u, mu)."""
    return dexpinv(-u, mu)


@takes(w=(3,))
def cay(w: Array) -> Array:
    """Cayley map (I - hat(w)/2)⁻¹ (I + hat(w)/2), a rotation by 2 arctan(|w|/2) about w."""
    second = 2.0 / (4.0 + sm.dot(w, w))
    return _symmetric_part(w, 2.0 * second, second)


@takes(g=(3, 3))
def cayinv(g: Array) -> Array:
    """Inverse of `cay`; infinite at half turns."""
    # The quaternion is the Cayley vector in homogeneous coordinates, and near half turns it keeps its digits.
    q = _quaternion_direction(g)
    return 2.0 * q[..., 1:] / q[..., 0:1]


@takes(w=(3,), v=(3,))
def dcay(w: Array, v: Array) -> Array:
    """Left differential of cay: d/dt cay(w) = hat(dcay(w, ẇ)) cay(w)."""
    return sm.scale(4.0 / (4.0 + sm.dot(w, w)), v + 0.5 * sm.cross(w, v))


@takes(w=(3,), v=(3,))
def dcayinv(w: Array, v: Array) -> Array:
    """Inverse of `dcay(w, .)`: v - w × v / 2 + (w·v) w / 4."""
    return v - 0.5 * sm.cross(w, v) + sm.scale(0.25 * sm.dot(w, v), w)


@takes(g0=(3, 3), g1=(3, 3))
def distance(g0: Array, g1: Array) -> Array:
    """Angle (...) in radians of the rotation from g0 to g1."""
    return norm(log(sm.tmatmul(g0, g1)))


@takes(g=(3, 3))
def normalize(g: Array) -> Array:
    """The rotation next to a matrix (..., 3, 3) that round-off has moved off the group.

    One step of Newton's method for the polar factor: a defect d of gᵀg - I becomes one of 3 d²/4, and round-off.
    """
    defect = sm.tmatmul(g, g) - sm.identity(3, g.dtype)
    return g - 0.5 * sm.matmul(g, defect)


def parts(g: Array, start: Array | None = None) -> tuple[Array]:
    """The columns of a rotation, three unit vectors (..., 3, 3), whatever the start."""
    del start
    return (sm.transpose(g),)


SO3 = LieGroup(
    name="SO3",
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
