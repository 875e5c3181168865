"""Spaces of Hamiltonian mechanics: coadjoint orbits and the cotangent bundle G ⋉ g* as a Lie group.

T*G is right-trivialized: the point (g, mu) represents the covector mu ∘ T R_{g⁻¹} at g, so mu is a spatial momentum.
"""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups.arguments import cached, makes_identities, takes
from lgjax.groups.charts import transpose_of
from lgjax.groups.homogeneous_space import HomogeneousSpace, left_translation
from lgjax.groups.lie_group import LieGroup, checks_arguments
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm

Array = jax.Array
Element = Any


class Covector(NamedTuple):
    """A point of T*G: an element g of G and a momentum mu (..., dim G) in g*."""

    g: Any
    mu: Array


@cached(group=LieGroup)
def coadjoint_orbit(group: LieGroup) -> HomogeneousSpace:
    """Space g* under mu -> Ad*_{g⁻¹} mu, whose orbits carry Lie-Poisson dynamics; every field preserves the Casimirs.

    A field f gives mu' = -coad(f, mu).  With the body momentum of a left-invariant Hamiltonian, mu' = coad(∂H/∂mu, mu),
    the field is -∂H/∂mu; with the spatial one of a right-invariant Hamiltonian it is +∂H/∂mu.
    Source: [celledoni2021] Example 1 and section 3.3.
    """

    @takes(xi=(group.dim,), mu=(group.dim,))
    def move(xi: Array, mu: Array) -> Array:
        return group.coAd(group.inverse(group.exp(xi)), mu)

    @takes(mu0=(group.dim,), mu1=(group.dim,))
    def distance(mu0: Array, mu1: Array) -> Array:
        return norm(mu1 - mu0)

    def parts(mu: Array, start: Array | None = None) -> tuple[Array]:
        del start
        return (mu,)

    return HomogeneousSpace(
        name=f"coadjoint_orbit({group.name})",
        dim=group.dim,
        move=move,
        dexpinv=group.dexpinv,
        bracket=group.ad,
        distance=distance,
        group=group,
        chart=group.chart,
        parts=parts,
    )


@cached(group=LieGroup)
def cotangent_bundle(group: LieGroup) -> HomogeneousSpace:
    """Space T*G: the group G ⋉ g* moved from the left, with points `Covector(g, mu)`.

    A field returns [f_1, f_2] (..., 2 dim), which makes g' = T R_g f_1 and mu' = f_2 - coad(f_1, mu); for a
    Hamiltonian, f = (∂H/∂mu, -T R_g* ∂H/∂g).  Source: [celledoni2021] eqs. (11), (12), (14).
    """
    return left_translation(cotangent_group(group))


@dataclass(frozen=True)
class _SemidirectProduct:
    """The functions of G ⋉ g* in terms of those of G."""

    group: LieGroup

    def split(self, x: Array) -> tuple[Array, Array]:
        return x[..., : self.group.dim], x[..., self.group.dim :]

    def star(self, g: Element, mu: Array) -> Array:
        """Ad*_{g⁻¹} mu, the left action on momenta."""
        return self.group.coAd(self.group.inverse(g), mu)

    @makes_identities
    def identity(self, dtype: jax.typing.DTypeLike, batch: tuple[int, ...] = ()) -> Covector:
        return Covector(self.group.identity(dtype, batch), jnp.zeros((*batch, self.group.dim), dtype))

    def compose(self, a: Covector, b: Covector) -> Covector:
        return Covector(self.group.compose(a.g, b.g), a.mu + self.star(a.g, b.mu))

    def inverse(self, a: Covector) -> Covector:
        return Covector(self.group.inverse(a.g), -self.group.coAd(a.g, a.mu))

    def exp(self, u: Array) -> Covector:
        xi, n = self.split(u)
        return Covector(self.group.exp(xi), self.group.codexp(-xi, n))

    def log(self, a: Covector) -> Array:
        xi = self.group.log(a.g)
        return sm.join(xi, self.group.codexpinv(-xi, a.mu))

    def Ad(self, a: Covector, x: Array) -> Array:
        xi, n = self.split(x)
        turned = self.group.Ad(a.g, xi)
        return sm.join(turned, self.star(a.g, n) + self.group.coad(turned, a.mu))

    def ad(self, x: Array, y: Array) -> Array:
        (xi, n), (v, b) = self.split(x), self.split(y)
        return sm.join(self.group.ad(xi, v), self.group.coad(v, n) - self.group.coad(xi, b))

    def coAd(self, a: Covector, mu: Array) -> Array:
        m, x = self.split(mu)
        return sm.join(self.group.coAd(a.g, m - self.group.coad(x, a.mu)), self.group.Ad(self.group.inverse(a.g), x))

    def coad(self, x: Array, mu: Array) -> Array:
        (xi, n), (m, v) = self.split(x), self.split(mu)
        return sm.join(self.group.coad(xi, m) - self.group.coad(v, n), -self.group.ad(xi, v))

    def momentum_rate(self, xi: Array, n: Array, v: Array) -> tuple[Array, Array]:
        """The momentum codexp(-ξ, n) of exp and its derivative for ξ' = v, exact by the rules of the coefficients."""
        shape, dtype = jnp.broadcast_shapes(xi.shape, v.shape), jnp.result_type(xi, v)
        xi, v = (jnp.broadcast_to(x, shape).astype(dtype) for x in (xi, v))
        return jax.jvp(lambda w: self.group.codexp(-w, n), (xi,), (v,))

    def dexp(self, u: Array, x: Array) -> Array:
        (xi, n), (v, b) = self.split(u), self.split(x)
        eta = self.group.dexp(xi, v)
        m, rate = self.momentum_rate(xi, n, v)
        return sm.join(eta, rate + self.group.codexp(-xi, b) + self.group.coad(eta, m))

    def dexpinv(self, u: Array, x: Array) -> Array:
        (xi, n), (eta, c) = self.split(u), self.split(x)
        v = self.group.dexpinv(xi, eta)
        m, rate = self.momentum_rate(xi, n, v)
        return sm.join(v, self.group.codexpinv(-xi, c - self.group.coad(eta, m) - rate))

    def hat(self, u: Array) -> tuple[Any, Array]:
        xi, n = self.split(u)
        return self.group.hat(xi), n

    def vee(self, m: tuple[Any, Array]) -> Array:
        return sm.join(self.group.vee(m[0]), m[1])

    def cay(self, u: Array) -> Covector:
        xi, n = self.split(u)
        return Covector(self.group.cay(xi), n)

    def cayinv(self, a: Covector) -> Array:
        return sm.join(self.group.cayinv(a.g), a.mu)

    def dcay(self, u: Array, x: Array) -> Array:
        (xi, n), (v, b) = self.split(u), self.split(x)
        eta = self.group.dcay(xi, v)
        return sm.join(eta, b + self.group.coad(eta, n))

    def dcayinv(self, u: Array, x: Array) -> Array:
        (xi, n), (eta, c) = self.split(u), self.split(x)
        return sm.join(self.group.dcayinv(xi, eta), c - self.group.coad(eta, n))

    def distance(self, a: Covector, b: Covector) -> Array:
        return norm(sm.stack(self.group.distance(a.g, b.g), norm(b.mu - a.mu)))

    def normalize(self, a: Covector) -> Covector:
        return Covector(self.group.normalize(a.g), a.mu)

    def parts(self, a: Covector, start: Covector | None = None) -> tuple[Array, ...]:
        """Parts of g, and the momentum in the frame of `start`: in the world frame it would grow with the position."""
        assert self.group.parts is not None
        if start is None:
            return *self.group.parts(a.g), a.mu
        return *self.group.parts(a.g, start.g), self.group.coAd(start.g, a.mu)


@cached(group=LieGroup)
def cotangent_group(group: LieGroup) -> LieGroup:
    """Group G ⋉ g* with the product (g, m)(h, k) = (g h, m + Ad*_{g⁻¹} k).  Source: [celledoni2021] eq. (11).

    Algebra vectors are [ξ, n] (..., 2 dim), duals [μ, x] with x in the algebra of G.  `cay` is the Cayley map of G
    beside the identity on momenta; `hat` is (hat ξ, n).
    """
    maps = _SemidirectProduct(group)
    own = {field.name: getattr(maps, field.name) for field in fields(LieGroup) if hasattr(maps, field.name)}
    if group.parts is None:
        del own["parts"]
    return checks_arguments(
        LieGroup(
            name=f"T*{group.name}",
            dim=2 * group.dim,
            codexp=transpose_of(maps.dexp),
            codexpinv=transpose_of(maps.dexpinv),
            base=group,
            chart=group.chart,
            **own,
        )
    )
