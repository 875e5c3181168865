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


def _momentum(group: LieGroup, start: Array, end: Array, xi: Array, theta: float) -> Array:
    """The momentum M_θ at which the field is evaluated, of the momenta before and after the step.

    Follows from [celledoni2021] eqs. (15) and (17), from which the momentum part of the field is eliminated.
    """
    terms = ((theta, -theta, start), (1.0 - theta, 1.0 - theta, end))
    return sum((w * group.codexp(s * xi, mu) for w, s, mu in terms if w), jnp.zeros_like(start))


def _rates(group: LieGroup, rate: Array, momentum: Array) -> Array:
    """Rates of turn and of the momentum in the frame that does not turn, of those on the group."""
    turn, push = jnp.split(rate, 2)
    return jnp.concatenate([turn, push - group.coad(turn, momentum)])


def _solve(residual: Any, guess: Array, size: Any) -> Array:
    """The root near the guess by Newton's method with the Jacobian of the guess, to round-off; NaN if not reached.

    size(z) are the magnitudes of both parts of z, which have different units.
    """
    eps = float(jnp.finfo(guess.dtype).eps)
    inverse = jnp.linalg.inv(jax.jacfwd(residual)(guess))

    def unfinished(state: Any) -> Array:
        z, change, before, i = state
        scale = size(z) + float(jnp.finfo(guess.dtype).tiny)
        moving = jnp.any(change > eps * scale)
        # Round-off can keep the last digits moving: stop once they no longer shrink.
        stalled = jnp.all((change <= 200.0 * eps * scale) & (change >= 0.5 * before))
        return moving & ~stalled & (i < MAX_ITERATIONS)

    def iterate(state: Any) -> Any:
        z, change, _, i = state
        step = sm.matvec(inverse, residual(z))
        return z - step, _largest(step), change, i + 1

    far = jnp.full((2,), jnp.inf, guess.dtype)
    z, change, _, _ = iterate_while(unfinished, iterate, (guess, far, far, jnp.zeros((), jnp.int32)))
    good = jnp.all(change <= 1e4 * eps * size(z))
    return jnp.where(good, z, jnp.nan)


def _largest(z: Array) -> Array:
    """Largest entry of the algebra and of the momentum part."""
    return jnp.max(jnp.abs(z.reshape(2, -1)), axis=1)


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
        """Check field and state; carry the rates of turn and momentum, from which the first iteration starts."""
        if space.group is None or space.group.base is None or space.chart != "exp":
            raise ValueError(f"SymplecticLie integrates on cotangent_bundle(G), got {space.name}")
        check_field(space, field, t, y)
        rate = field(t, y)
        lead = rate.shape[:-1] or y.mu.shape[:-1]
        if lead:
            raise ValueError(f"the state: SymplecticLie takes one point, got leading axes {lead}; vmap over several")
        rate = _rates(space.group.base, jax.lax.convert_element_type(rate, state_dtype(y)), y.mu)
        return jnp.stack([rate, jnp.zeros_like(rate)])

    def step(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Covector, h: Array, carry: Array
    ) -> tuple[Covector, Array]:
        """The point after one step of size h, and the rates of turn and momentum that gave it."""
        assert space.group is not None
        assert space.group.base is not None
        group, theta = space.group.base, float(self.theta)

        # The change of the momentum is small beside what a large turn takes from it and gives back. It is an unknown,
        # so that millions of steps do not add up the round-off of both.
        def residual(z: Array) -> Array:
            xi, change = jnp.split(z, 2)
            momentum = _momentum(group, y.mu, y.mu + change, xi, theta)
            point = Covector(group.compose(group.exp(theta * xi), y.g) if theta else y.g, momentum)
            rate = jax.lax.convert_element_type(field(t + theta * h, point), z.dtype)
            return z - h * _rates(group, rate, momentum)

        def size(z: Array) -> Array:
            xi, _ = jnp.split(z, 2)
            return jnp.maximum(_largest(z), _largest(jnp.concatenate([xi, group.coad(xi, y.mu)])))

        rate, growth = carry
        z = jax.lax.custom_root(residual, h * (rate + growth), lambda f, guess: _solve(f, guess, size), _solve_linear)
        xi, change = jnp.split(z, 2)
        # Turns that are nearly equal from step to step have nearly equal round-off: without normalizing it adds up.
        turn = lambda part, g: group.compose(group.exp(part * xi), g)
        g = group.normalize(turn(1.0 - theta, turn(theta, y.g)))
        rates = jnp.where(h == 0, rate, z / jnp.where(h == 0, jnp.ones_like(h), h))
        return Covector(g, y.mu + change), jnp.stack([rates, rates - rate])
