"""Symplectic Lie group integrators on T*G: a one-parameter family of implicit methods.

Source: [celledoni2021] eqs. (15)-(17).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups.cotangent import Covector
from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.groups.lie_group import LieGroup
from lgjax.integrators.field import Field, check_field, state_dtype
from lgjax.integrators.method import Method
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import iterate_while

Array = jax.Array

MAX_ITERATIONS = 50


def _stage(group: LieGroup, y: Covector, z: Array, theta: float) -> Covector:
    """The point exp(θξ) g_0, M_θ at which the field is evaluated.  Source: [celledoni2021] eq. (15)."""
    xi, n = z[: group.dim], z[group.dim :]
    if theta == 0.0:
        return Covector(y.g, group.codexp(-xi, y.mu + n))
    part = group.exp(theta * xi)
    g = group.compose(part, y.g)
    if theta == 1.0:  # the two terms with n cancel
        return Covector(g, group.codexp(-xi, y.mu))
    pulled = group.coAd(part, n)
    return Covector(g, group.codexp(-xi, y.mu + pulled) - theta * group.codexp(-theta * xi, pulled))


def _update(group: LieGroup, y: Covector, z: Array, theta: float) -> Covector:
    """The new point.  Source: [celledoni2021] eq. (17).

    Turns that are nearly equal from step to step have nearly equal round-off, which millions of steps would add up.
    """
    xi, n = z[: group.dim], z[group.dim :]
    turn = group.exp(xi)
    push = n if theta == 1.0 else group.coAd(group.exp((theta - 1.0) * xi), n)
    return Covector(group.normalize(group.compose(turn, y.g)), push + group.coAd(group.inverse(turn), y.mu))


def _solve(residual: Any, guess: Array, dim: int) -> Array:
    """The root near the guess by Newton's method with the Jacobian of the guess, to round-off; NaN if not reached."""
    eps = float(jnp.finfo(guess.dtype).eps)
    inverse = jnp.linalg.inv(jax.jacfwd(residual)(guess))

    def size(z: Array) -> Array:
        """Largest entry of the algebra and of the momentum part, which have different units."""
        return jnp.stack([jnp.max(jnp.abs(z[:dim])), jnp.max(jnp.abs(z[dim:]))])

    def unfinished(state: Any) -> Array:
        z, change, before, i = state
        scale = size(z) + float(jnp.finfo(guess.dtype).tiny)
        moving = jnp.any(change > 2.0 * eps * scale)
        # Round-off can keep the last digits moving: stop once they no longer shrink.
        stalled = jnp.all((change <= 200.0 * eps * scale) & (change >= 0.5 * before))
        return moving & ~stalled & (i < MAX_ITERATIONS)

    def iterate(state: Any) -> Any:
        z, change, _, i = state
        step = sm.matvec(inverse, residual(z))
        return z - step, size(step), change, i + 1

    far = jnp.full((2,), jnp.inf, guess.dtype)
    z, change, _, _ = iterate_while(unfinished, iterate, (guess, far, far, jnp.zeros((), jnp.int32)))
    good = jnp.all(change <= 1e4 * eps * size(z))
    return jnp.where(good, z, jnp.nan)


def _solve_linear(linear: Any, y: Array) -> Array:
    return sm.matvec(jnp.linalg.inv(jax.jacfwd(linear)(y)), y)


@dataclass(frozen=True)
class SymplecticLie(Method):
    """Symplectic method of parameter theta on `cotangent_bundle(G)`, a hashable value and a `Method`.

    theta = 1/2 is symmetric, so time-reversible, and of order 2; every other theta is of order 1.  The field is the
    Hamiltonian one, (∂H/∂mu, -T R_g* ∂H/∂g).  The equations of a step are solved to round-off; a step that does not
    converge in 50 iterations gives NaN, and `Solution.success` is False.  Derivatives are those of the implicit
    function, of any order and in both modes.  Takes one point, without leading axes: vmap over several.
    Source: [celledoni2021] eqs. (15)-(17).
    """

    theta: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "theta", checks.number("theta", self.theta, 0.0, 1.0))

    @property
    def order(self) -> int:
        """Order of convergence."""
        return 2 if self.symmetric else 1

    @property
    def symmetric(self) -> bool:
        """Whether a step of -h undoes a step of h."""
        return self.theta == 0.5

    def init(self, space: HomogeneousSpace, field: Field, t: Array, y: Covector) -> Array:
        """Check field and state; carry the field, from which the first iteration starts."""
        if space.group is None or space.group.base is None or space.chart != "exp":
            raise ValueError(f"SymplecticLie integrates on cotangent_bundle(G), got {space.name}")
        check_field(space, field, t, y)
        rate = field(t, y)
        if rate.ndim != 1:
            raise ValueError(f"SymplecticLie takes one point, got leading axes {rate.shape[:-1]}; vmap over several")
        return jax.lax.convert_element_type(rate, state_dtype(y))

    def step(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Covector, h: Array, carry: Array
    ) -> tuple[Covector, Array]:
        """The point after one step of size h, and the rate that gave it."""
        assert space.group is not None
        assert space.group.base is not None
        group, theta = space.group.base, float(self.theta)

        def residual(z: Array) -> Array:
            rate = field(t + theta * h, _stage(group, y, z, theta))
            return z - h * jax.lax.convert_element_type(rate, z.dtype)

        z = jax.lax.custom_root(residual, h * carry, lambda f, guess: _solve(f, guess, group.dim), _solve_linear)
        return _update(group, y, z, theta), z / h
