"""Rⁿ as a Lie group under addition: elements, algebra vectors and duals are arrays (..., n); exp is the identity.

The functions are those of an abelian group: Ad is the identity, brackets vanish, differentials of exp are the
identity.  None of them does more arithmetic than that, so a vector factor of a product costs an addition.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lgjax.groups.arguments import cached, makes_identities, takes
from lgjax.groups.lie_group import LieGroup, checks_arguments
from lgjax.numerics.small_angle import norm

Array = jax.Array


def _second(u: Array, x: Array) -> Array:
    """x with the leading axes of both; no operation at all where the shapes agree."""
    return x if u.shape == x.shape else jnp.broadcast_to(x, jnp.broadcast_shapes(u.shape, x.shape))


@takes(g=("n",), h=("n",))
def compose(g: Array, h: Array) -> Array:
    """Sum of two vectors."""
    return g + h


@takes(g=("n",))
def inverse(g: Array) -> Array:
    """Negative of a vector."""
    return -g


@takes(u=("n",))
def exp(u: Array) -> Array:
    """The vector itself."""
    return u


@takes(g=("n",))
def log(g: Array) -> Array:
    """The vector itself."""
    return g


@takes(g=("n",), x=("n",))
def act(g: Array, x: Array) -> Array:
    """Translate a point."""
    return x + g


@takes(g=("n",), x=("n",))
def Ad(g: Array, x: Array) -> Array:
    """The identity map on x, for every g."""
    return _second(g, x)


@takes(x=("n",), y=("n",))
def ad(x: Array, y: Array) -> Array:
    """The bracket, zero."""
    return jnp.zeros(jnp.broadcast_shapes(x.shape, y.shape), y.dtype)


@takes(g=("n",), mu=("n",))
def coAd(g: Array, mu: Array) -> Array:
    """The identity map on mu, for every g."""
    return _second(g, mu)


@takes(x=("n",), mu=("n",))
def coad(x: Array, mu: Array) -> Array:
    """Zero."""
    return ad(x, mu)


@takes(u=("n",), v=("n",))
def dexp(u: Array, v: Array) -> Array:
    """The identity map on v, for every u."""
    return _second(u, v)


dexpinv = dexp
codexp = dexp
codexpinv = dexp
cay = exp
cayinv = log
dcay = dexp
dcayinv = dexp


@takes(u=("n",))
def hat(u: Array) -> Array:
    """Matrix (..., n+1, n+1) of the translation algebra: [[0, u], [0, 0]]."""
    n = u.shape[-1]
    return jnp.zeros((*u.shape[:-1], n + 1, n + 1), u.dtype).at[..., :n, n].set(u)


@takes(m=("n", "n"))
def vee(m: Array) -> Array:
    """Inverse of `hat`: (..., n+1, n+1) -> (..., n)."""
    return m[..., :-1, -1]


@takes(g0=("n",), g1=("n",))
def distance(g0: Array, g1: Array) -> Array:
    """Euclidean distance (...)."""
    return norm(g1 - g0)


@takes(g=("n",))
def normalize(g: Array) -> Array:
    """The vector itself: round-off does not leave Rⁿ."""
    return g


def parts(g: Array, start: Array | None = None) -> tuple[Array]:
    """The vector itself, whatever the start."""
    del start
    return (g,)


@cached(n=0)
def Rn(n: int) -> LieGroup:
    """The record of Rⁿ under addition; the same object for the same n.

    Example:
        >>> lgjax.Rn(3).exp(jnp.ones(3))
        Array([1., 1., 1.], dtype=float32)
    """

    @makes_identities
    def identity(dtype: jax.typing.DTypeLike, batch: tuple[int, ...] = ()) -> Array:
        return jnp.zeros((*batch, n), dtype)

    return checks_arguments(
        LieGroup(
            name=f"R{n}",
            dim=n,
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
    )
