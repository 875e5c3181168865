"""S³: unit quaternions (w, x, y, z), arrays (..., 4), the double cover of SO(3).

The algebra uses the same coordinates as SO(3), rotation vectors (..., 3) in radians, so Ad, ad, dexp and the Cayley
differentials are those of `so3`: exp(w) = (cos |w|/2, sin(|w|/2) w/|w|) covers the rotation by |w| radians.
"""

import jax
import jax.numpy as jnp

from lgjax.groups import so3
from lgjax.groups.arguments import makes_identities, takes
from lgjax.groups.lie_group import LieGroup
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm, stumpff

Array = jax.Array

DIM = 3

ad = so3.ad
coad = so3.coad
dexp = so3.dexp
dexpinv = so3.dexpinv
codexp = so3.codexp
codexpinv = so3.codexpinv
dcay = so3.dcay
dcayinv = so3.dcayinv
to_rotation = so3.from_quaternion
from_rotation = so3.to_quaternion


@makes_identities
def identity(dtype: jax.typing.DTypeLike, batch: tuple[int, ...] = ()) -> Array:
    """The identity quaternion (1, 0, 0, 0), (*batch, 4)."""
    return jnp.broadcast_to(jnp.eye(4, dtype=dtype)[0], (*batch, 4))


@takes(g=(4,), h=(4,))
def compose(g: Array, h: Array) -> Array:
    """Quaternion product."""
    (a, v), (b, w) = (g[..., :1], g[..., 1:]), (h[..., :1], h[..., 1:])
    return sm.join(a * b - sm.dot(v, w)[..., None], a * w + b * v + sm.cross(v, w))


@takes(g=(4,))
def inverse(g: Array) -> Array:
    """Conjugate, the inverse of a unit quaternion."""
    return jnp.concatenate([g[..., :1], -g[..., 1:]], axis=-1)


@takes(g=(4,), x=(3,))
def act(g: Array, x: Array) -> Array:
    """Rotate points or free vectors (..., 3)."""
    a, v = g[..., :1], g[..., 1:]
    t = 2.0 * sm.cross(v, x)
    return x + a * t + sm.cross(v, t)


@takes(w=(3,))
def hat(w: Array) -> Array:
    """Pure quaternion (..., 4) of which exp is the quaternion exponential: (0, w/2)."""
    return jnp.concatenate([jnp.zeros_like(w[..., :1]), 0.5 * w], axis=-1)


@takes(q=(4,))
def vee(q: Array) -> Array:
    """Inverse of `hat`: twice the vector part."""
    return 2.0 * q[..., 1:]


@takes(w=(3,))
def exp(w: Array) -> Array:
    """Unit quaternion (..., 4) of a rotation vector (..., 3)."""
    quarter = 0.25 * sm.dot(w, w)
    return sm.join(stumpff(0, quarter)[..., None], sm.scale(0.5 * stumpff(1, quarter), w))


@takes(g=(4,))
def log(g: Array) -> Array:
    """Rotation vector (..., 3) of the shorter rotation, at most π long: exp(log q) is q or -q, whichever has w >= 0."""
    return so3.log_quaternion(g)


@takes(g=(4,), x=(3,))
def Ad(g: Array, x: Array) -> Array:
    """Adjoint action on algebra vectors (..., 3): the rotation of x."""
    return act(g, x)


@takes(g=(4,), mu=(3,))
def coAd(g: Array, mu: Array) -> Array:
    """Ad_gᵀ mu, the inverse rotation of mu."""
    return act(inverse(g), mu)


@takes(w=(3,))
def cay(w: Array) -> Array:
    """Quaternion (..., 4) with w >= 0 over the Cayley rotation of w (..., 3): (1, w/2) made unit."""
    scale = jax.lax.rsqrt(1.0 + 0.25 * sm.dot(w, w))[..., None]
    return jnp.concatenate([scale, 0.5 * scale * w], axis=-1)


@takes(g=(4,))
def cayinv(g: Array) -> Array:
    """Inverse of `cay` (of q and -q alike); infinite at half turns."""
    return 2.0 * g[..., 1:] / g[..., :1]


@takes(g0=(4,), g1=(4,))
def distance(g0: Array, g1: Array) -> Array:
    """Angle (...) in radians of the rotation from g0 to g1, at most π; q and -q are at distance zero."""
    return norm(log(compose(inverse(g0), g1)))


@takes(g=(4,))
def normalize(g: Array) -> Array:
    """The unit quaternion next to one (..., 4) that round-off has moved off the group, as in `so3.normalize`."""
    return g - 0.5 * (sm.dot(g, g)[..., None] - 1.0) * g


@takes(g=(4,))
def parts(g: Array, start: Array | None = None) -> tuple[Array]:
    """Parts of the rotation that a quaternion covers, so that errors are angles as on SO(3)."""
    return so3.parts(to_rotation(g), start)


S3 = LieGroup(
    name="S3",
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
