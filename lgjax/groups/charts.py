"""Maps from algebra to group that replace exp.

The records made here differ from the group's own in `exp`, `log` and the differentials, and say so in `chart`; every
space of such a record integrates in these coordinates.  Munthe-Kaas methods with the exact dexpinv keep their order in
any chart.  Series of brackets and commutator-free methods need the exponential itself and refuse the others.
Source: [celledoni2021] section 2.3, last paragraph.
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp

from lgjax.groups import se3, so3
from lgjax.groups.arguments import cached, takes
from lgjax.groups.lie_group import LieGroup
from lgjax.groups.se3 import SE3, Pose
from lgjax.groups.so3 import SO3
from lgjax.numerics import small_matrix as sm

Array = jax.Array
Map = Callable[[Array, Array], Array]


def transpose_of(linear: Map) -> Map:
    """(u, mu) -> the transpose of linear(u, .) applied to mu."""

    @takes(u=("n",), mu=("n",))
    def transposed(u: Array, mu: Array) -> Array:
        shape = jnp.broadcast_shapes(u.shape, mu.shape)
        u, mu = jnp.broadcast_to(u, shape), jnp.broadcast_to(mu, shape)
        return jax.vjp(lambda v: linear(u, v), jnp.zeros_like(mu))[1](mu)[0]

    return transposed


@cached(group=LieGroup)
def cayley_coordinates(group: LieGroup) -> LieGroup:
    """The group with its Cayley map as `exp`: rational, no sine in it; half turns are at infinity."""
    return replace(
        group,
        name=f"{group.name} (Cayley)",
        exp=group.cay,
        log=group.cayinv,
        dexp=group.dcay,
        dexpinv=group.dcayinv,
        codexp=transpose_of(group.dcay),
        codexpinv=transpose_of(group.dcayinv),
        chart="cay",
    )


@takes(u=(3,))
def _exp_so3(u: Array) -> Array:
    """exp(u_1 e_1) exp(u_2 e_2) exp(u_3 e_3) written out."""
    (a, b, c), (x, y, z) = (jnp.moveaxis(f(u), -1, 0) for f in (jnp.cos, jnp.sin))
    return sm.rows(
        sm.stack(b * c, -b * z, y),
        sm.stack(a * z + x * y * c, a * c - x * y * z, -x * b),
        sm.stack(x * z - a * y * c, x * c + a * y * z, a * b),
    )


@takes(g=(3, 3))
def _log_so3(g: Array) -> Array:
    cosine = jnp.sqrt(g[..., 0, 0] ** 2 + g[..., 0, 1] ** 2)
    return sm.stack(
        jnp.arctan2(-g[..., 1, 2], g[..., 2, 2]),
        jnp.arctan2(g[..., 0, 2], cosine),
        jnp.arctan2(-g[..., 0, 1], g[..., 0, 0]),
    )


@takes(u=(3,), v=(3,))
def _dexp_so3(u: Array, v: Array) -> Array:
    """Spatial rate Σ v_i Ad(g_1 ... g_{i-1}) e_i."""
    a, x, b, y = jnp.cos(u[..., 0]), jnp.sin(u[..., 0]), jnp.cos(u[..., 1]), jnp.sin(u[..., 1])
    v0, v1, v2 = v[..., 0], v[..., 1], v[..., 2]
    return sm.stack(v0 + y * v2, a * v1 - x * b * v2, x * v1 + a * b * v2)


@takes(u=(3,), w=(3,))
def _dexpinv_so3(u: Array, w: Array) -> Array:
    a, x, b, y = jnp.cos(u[..., 0]), jnp.sin(u[..., 0]), jnp.cos(u[..., 1]), jnp.sin(u[..., 1])
    v2 = (a * w[..., 2] - x * w[..., 1]) / b
    return sm.stack(w[..., 0] - y * v2, a * w[..., 1] + x * w[..., 2], v2)


@takes(u=(6,))
def _exp_se3(u: Array) -> Pose:
    w, v = se3.split(u)
    rotation = _exp_so3(w)
    return Pose(rotation, so3.act(rotation, v))


@takes(g=se3.POSE)
def _log_se3(g: Pose) -> Array:
    return sm.join(_log_so3(g.rotation), so3.coAd(g.rotation, g.translation))


@takes(u=(6,), x=(6,))
def _dexp_se3(u: Array, x: Array) -> Array:
    (w, v), (b, c) = se3.split(u), se3.split(x)
    del v
    return sm.join(_dexp_so3(w, b), so3.act(_exp_so3(w), c) + 0.0 * b)


@takes(u=(6,), x=(6,))
def _dexpinv_se3(u: Array, x: Array) -> Array:
    (w, _), (b, c) = se3.split(u), se3.split(x)
    return sm.join(_dexpinv_so3(w, b), so3.coAd(_exp_so3(w), c))


@cached(group=LieGroup)
def second_kind_coordinates(group: LieGroup) -> LieGroup:
    """SO(3) or SE(3) with Π exp(u_i e_i) as `exp`, rotations first; singular where the second angle is π/2."""
    maps = {
        SO3: (_exp_so3, _log_so3, _dexp_so3, _dexpinv_so3),
        SE3: (_exp_se3, _log_se3, _dexp_se3, _dexpinv_se3),
    }
    if group not in maps:
        raise ValueError(f"coordinates of the second kind are there for SO3 and SE3, not for {group.name}")
    exp, log, dexp, dexpinv = maps[group]
    return replace(
        group,
        name=f"{group.name} (second kind)",
        exp=exp,
        log=log,
        dexp=dexp,
        dexpinv=dexpinv,
        codexp=transpose_of(dexp),
        codexpinv=transpose_of(dexpinv),
        chart="second kind",
    )
