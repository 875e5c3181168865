"""The generalized-alpha method on Lie groups for systems with holonomic constraints, at index 3 with multipliers.

Source: [holzinger2024] Algorithm 5 and eqs. (33)-(43).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.numerics import checks, saddle_point
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import implicit
from lgjax.numerics.newton import Evaluation, NewtonRule, Root, newton

Array = jax.Array
Point = Any

PREDICTORS = ("constant", "zero")
VARIANTS = ("standard", "sigma_modified")


def _commute(x: Array, y: Array) -> Array:
    return jnp.zeros_like(x)


class ConstrainedProblem(NamedTuple):
    """M(q) v̇ = g(t, q, v) - B(q)ᵀ λ, q̇ = q v, Φ(t, q) = 0 as functions; velocities (n,), multipliers (m,).

    move(q, dq)          q exp(dq).
    nudge(q, d)          d/ds move(q, s d) at s = 0, a tangent of the form of q.
    push(dq, x)          T_exp(dq) x = dexp(-dq, x).
    pullback(dq, rows)   rows (k, n) times T_exp(dq).
    inertia(q, x)        M(q) x.
    forces(t, q, v)      g.
    constraints(t, q)    Φ (m,).
    jacobian(t, q)       B (m, n).
    scale(q)             the size of the numbers that Φ is computed from, which bounds how small it can get.
    block                b if M and the derivatives of g are block diagonal with blocks (b, b), otherwise None.
    bracket(x, y)        ad_x y of the group, the cross product for rotations; 0 by default, as for vectors.
    Source: [holzinger2024] eqs. (23)-(25).
    """

    move: Callable[[Point, Array], Point]
    nudge: Callable[[Point, Array], Point]
    push: Callable[[Array, Array], Array]
    pullback: Callable[[Array, Array], Array]
    inertia: Callable[[Point, Array], Array]
    forces: Callable[[Any, Point, Array], Array]
    constraints: Callable[[Any, Point], Array]
    jacobian: Callable[[Any, Point], Array]
    scale: Callable[[Point], Array]
    block: int | None = None
    bracket: Callable[[Array, Array], Array] = _commute


class AlphaState(NamedTuple):
    """q, v, v̇ (n,), the algorithm's acceleration a (n,), multipliers (m,), a modified iteration's matrix or None."""

    q: Point
    v: Array
    vdot: Array
    a: Array
    multipliers: Array
    factor: Any


class Report(NamedTuple):
    """Newton iterations of a step, int32, whether they converged, and whether their residual stayed finite."""

    iterations: Array
    converged: Array
    finite: Array


class _Stage(NamedTuple):
    """A candidate for the end of a step, and dq of its q = move(point, dq), which the derivatives by q need."""

    q: Point
    v: Array
    vdot: Array
    dq: Array
    multipliers: Array


def _largest(x: Array) -> Array:
    """Largest magnitude along the last axis."""
    return sm.largest(jnp.abs(jax.lax.optimization_barrier(x)))


def _not_zero(h: Array) -> Array:
    """The size of a step by which one may divide."""
    return jnp.where(h == 0, jnp.finfo(h.dtype).eps, h)


@dataclass(frozen=True)
class GeneralizedAlpha:
    """The method of spectral radius ρ at infinity in [0, 1], order 2, a hashable value for `integrate`.

    spectral_radius      0 damps high frequencies most.  1 damps nothing, and then the multipliers of constraints do not
                         converge: their error oscillates from step to step and does not shrink with h (order 0), while
                         q and v keep their order 2.  Take less than 1 where multipliers are wanted.
    tangent_operator     whether T_exp is part of the iteration matrix; without it iterations are cheaper, and more of
                         them are needed where steps turn bodies far.
    geometric_stiffness  whether the derivative of M v̇ + Bᵀλ by the configuration is part of it too, eq. (41) for
                         (42); then the matrix is dense.
    predictor            what a step starts from: "constant" accelerations and multipliers, or "zero" as in the source.
    rtol                 size of the residual that ends the iteration, in units of the forces in it (constraints: of
                         what those move in a step), down to round-off; None is 1e-8, in float32 1e-5.
    variant              how q moves, below; on vector spaces both are the same, and both have order 2.
    tangent_operator, geometric_stiffness and predictor change the number of iterations, not the solution.

    With v⁺ = v + h((1-γ) a + γ a⁺) and Δq = h v + h²((½-β) a + β a⁺), a⁺ the new a, of which v̇⁺ is an affine function,
        "standard"        q⁺ = q exp(Δq)
        "sigma_modified"  q⁺ = q exp(Δq₀ + (hβ/2γ) [Δq₀, v₀]) exp((hβ/γ) (v⁺ - v₀)),
    where Δq₀ and v₀ are Δq and v⁺ for v̇⁺ = 0.  On a fast top with constraints the bracket makes errors 7 (ρ = 0.6) to
    12 times smaller (ρ = 0.9).  But it costs stability: where bodies turn far in a step and ρ is near 1, velocities and
    multipliers of constrained systems grow until Newton's iteration fails.  On that top, at 150 rad/s, ρ = 0.9 fails at
    h = 1e-4 s and holds at 5e-5 s; ρ = 0.6 holds at 4e-4 s too.  The exponent of the last factor is small, so the
    tangent operator hardly matters there.
    Source: [holzinger2024] section 3.3; scaling as Bottasso et al.  "sigma_modified" is what Exudyn 1.13 does unless
    its generalizedAlpha.lieGroupSimplifiedKinematicRelations is set; the formula was found from the numbers it gives.
    Exudyn applies each Newton correction as an exponential of its own: on the top the attitude differs by 1e-10.
    """

    driver: ClassVar[str] = "maximal.integrate"
    spectral_radius: float = 0.9
    tangent_operator: bool = True
    geometric_stiffness: bool = False
    predictor: str = "constant"
    rtol: float | None = None
    variant: str = "standard"

    def __post_init__(self) -> None:
        # Stored as Python numbers, so that equal settings are equal methods.
        store = partial(object.__setattr__, self)
        store("spectral_radius", checks.number("spectral_radius", self.spectral_radius, 0.0, 1.0))
        if self.rtol is not None:
            store("rtol", checks.number("rtol", self.rtol, 0.0, 1.0, inside=True))
        checks.choice("predictor", self.predictor, PREDICTORS)
        checks.choice("variant", self.variant, VARIANTS)

    @property
    def order(self) -> int:
        """Order of convergence."""
        return 2

    @cached_property
    def coefficients(self) -> tuple[float, float, float, float]:
        """α_m, α_f, β, γ.  Source: Chung and Hulbert's choice, as [holzinger2024] after eq. (35)."""
        rho = self.spectral_radius
        alpha_m, alpha_f = (2.0 * rho - 1.0) / (rho + 1.0), rho / (rho + 1.0)
        gamma = 0.5 + alpha_f - alpha_m
        return alpha_m, alpha_f, 0.25 * (gamma + 0.5) ** 2, gamma

    def primes(self, h: Array) -> tuple[Array, Array]:
        """β′ and γ′, the derivatives of v̇ and v by the increment.  Source: [holzinger2024] eq. (33)."""
        alpha_m, alpha_f, beta, gamma = self.coefficients
        return (1.0 - alpha_m) / (h * h * beta * (1.0 - alpha_f)), gamma / (h * beta)

    def tolerance(self, dtype: Any) -> float:
        """`rtol`, or its default for a dtype."""
        return self.rtol if self.rtol is not None else max(1e-8, 1e2 * float(jnp.finfo(dtype).eps))

    def iteration_matrix(self, problem: ConstrainedProblem, t: Array, s: _Stage, b: Array, h: Array) -> Any:
        """Factors of S_t with its dynamic rows scaled by βh².  Source: [holzinger2024] eq. (40)."""
        beta_prime, gamma_prime = self.primes(h)
        n, scale = s.v.shape[0], self.coefficients[2] * h * h
        dense = self.geometric_stiffness or problem.block is None
        size = n if dense else problem.block
        assert size is not None

        def dynamics(q: Point, v: Array, vdot: Array) -> Array:
            r = problem.inertia(q, vdot) - problem.forces(t, q, v)
            stiff = self.geometric_stiffness and s.multipliers.shape[0]
            return r + sm.tmatvec(problem.jacobian(t, q), s.multipliers) if stiff else r

        def column(d: Array) -> Array:
            turn = problem.push(s.dq, d) if self.tangent_operator else d
            tangents = (problem.nudge(s.q, turn), gamma_prime * d, beta_prime * d)
            return jax.jvp(dynamics, (s.q, s.v, s.vdot), tangents)[1]

        # Where blocks do not see each other, one direction per column of a block finds the columns of all of them.
        seeds = jnp.concatenate([jnp.eye(size, dtype=s.v.dtype)] * (n // size), axis=1)
        columns = scale * jax.vmap(column)(seeds)
        a = columns.T if dense else columns.reshape(size, n // size, size).transpose(1, 2, 0)
        return saddle_point.factorize(a, b, problem.pullback(s.dq, b) if self.tangent_operator else b)

    def step(
        self, problem: ConstrainedProblem, t: Array, state: AlphaState, h: Array, rule: NewtonRule
    ) -> tuple[AlphaState, Report]:
        """The state at t + h, for h = 0 the same.  Source: [holzinger2024] Algorithm 5."""
        alpha_m, alpha_f, beta, gamma = self.coefficients
        still, t, h = h == 0, t + h, _not_zero(h)
        scale, n = beta * h * h, state.v.shape[0]
        # What the step gives for v̇ = 0 at its end; the unknown is the part of Δq that v̇ adds.
        a = (alpha_f * state.vdot - alpha_m * state.a) / (1.0 - alpha_m)
        v = state.v + h * ((1.0 - gamma) * state.a + gamma * a)
        dq = h * state.v + h * h * ((0.5 - beta) * state.a + beta * a)
        beta_prime, gamma_prime = self.primes(h)
        point = state.q
        if self.variant == "sigma_modified":
            point = problem.move(point, dq + problem.bracket(dq, v) / (2.0 * gamma_prime))
            dq = jnp.zeros_like(dq)

        def stage(z: Array) -> _Stage:
            x, end = z[:n], dq + z[:n]
            return _Stage(problem.move(point, end), v + gamma_prime * x, beta_prime * x, end, z[n:] / scale)

        def residual(z: Array) -> Array:
            s = stage(z)
            push = sm.tmatvec(problem.jacobian(t, s.q), s.multipliers) if s.multipliers.shape[0] else 0.0
            r = problem.inertia(s.q, s.vdot) - problem.forces(t, s.q, s.v) + push
            return jnp.concatenate([scale * r, problem.constraints(t, s.q)])

        def find(guess: Array) -> tuple[Array, Root]:
            evaluate = lambda z: self._evaluate(problem, t, stage(z), h)
            factorize = lambda z, b: self.iteration_matrix(problem, t, stage(z), b, h)
            root = newton(evaluate, factorize, saddle_point.solve, guess, state.factor, rule)
            return root.x, root

        guess = jnp.concatenate([state.vdot / beta_prime, scale * state.multipliers])
        guess = guess if self.predictor == "constant" else jnp.zeros_like(guess)
        x, root = implicit(residual, find, guess, kept=True)
        s = stage(x)
        a = a + (1.0 - alpha_f) / (1.0 - alpha_m) * s.vdot
        report = Report(root.iterations, root.converged | still, root.finite | still)
        kept = lambda new, old: jax.tree.map(lambda a, b: jnp.where(still, b, a), new, old)
        moved = AlphaState(s.q, s.v, s.vdot, a, s.multipliers, root.factor)
        return kept(moved, state._replace(factor=root.factor)), report

    def _evaluate(self, problem: ConstrainedProblem, t: Array, s: _Stage, h: Array) -> Evaluation:
        """The scaled residual and its size in units of the tolerance; B goes along to the iteration matrix."""
        dtype = s.v.dtype
        eps, rtol, scale = float(jnp.finfo(dtype).eps), self.tolerance(dtype), self.coefficients[2] * h * h
        b = problem.jacobian(t, s.q)
        push = sm.tmatvec(b, s.multipliers) if b.shape[0] else jnp.zeros_like(s.v)
        inertial, applied = problem.inertia(s.q, s.vdot), problem.forces(t, s.q, s.v)
        r, phi = inertial - applied + push, problem.constraints(t, s.q)
        sizes = _largest(jnp.stack([inertial, applied, push, problem.inertia(s.q, s.v), s.vdot, r]))
        # A momentum is known to eps, so its rate to eps / h: what a body that feels no force is left with.
        limit = rtol * (sizes[0] + sizes[1] + sizes[2]) + 16.0 * eps * sizes[3] / jnp.abs(h)
        gap = rtol * scale * sizes[4] + 16.0 * eps * problem.scale(s.q)
        tiny = float(jnp.finfo(dtype).tiny)
        # NaN wins a maximum, so a residual that is not finite gives an error that is not.
        error = jnp.maximum(sizes[5] / (limit + tiny), _largest(phi) / (gap + tiny))
        return Evaluation(jnp.concatenate([scale * r, phi]), error, b)

    def init(
        self, problem: ConstrainedProblem, t: Array, q: Point, v: Array, h: Array, rule: NewtonRule
    ) -> tuple[AlphaState, Array]:
        """The state at the start, with consistent accelerations, and whether there were any."""
        vdot, multipliers, regular = consistent_accelerations(problem, t, q, v)
        s = _Stage(q, v, vdot, jnp.zeros_like(v), multipliers)
        modified = rule.mode == "modified"
        factor = self.iteration_matrix(problem, t, s, problem.jacobian(t, q), _not_zero(h)) if modified else None
        return AlphaState(q, v, vdot, vdot, multipliers, factor), regular


def mass_matrix(problem: ConstrainedProblem, q: Point, n: int, dtype: Any) -> Array:
    """M(q) (n, n)."""
    return jax.vmap(lambda x: problem.inertia(q, x), out_axes=1)(jnp.eye(n, dtype=dtype))


def constraint_rate(problem: ConstrainedProblem, t: Array, q: Point, v: Array) -> Array:
    """Φ̇ (m,) at velocity v."""
    return jax.jvp(problem.constraints, (t, q), (jnp.ones_like(t), problem.nudge(q, v)))[1]


def constraint_rates(problem: ConstrainedProblem, t: Array, q: Point, v: Array) -> tuple[Array, Array]:
    """Φ̇ and the part of Φ̈ without accelerations, (m,) each: derivatives along q exp(s v), whose tangent is q v."""
    rate = lambda t, q: constraint_rate(problem, t, q, v)
    return jax.jvp(rate, (t, q), (jnp.ones_like(t), problem.nudge(q, v)))


def consistent_accelerations(problem: ConstrainedProblem, t: Array, q: Point, v: Array) -> tuple[Array, Array, Array]:
    """v̇ (n,), λ (m,) of the motion at (t, q, v), and whether they are unique: no singular matrix was met.

    Solves M v̇ + Bᵀλ = g, B v̇ = -(Φ̈ without accelerations), scaled to rows of comparable size.
    Source: [holzinger2024] eq. (23) differentiated twice.
    """
    n, b = v.shape[0], problem.jacobian(t, q)
    m = b.shape[0]
    mass = mass_matrix(problem, q, n, v.dtype)
    diagonal = mass[jnp.arange(n), jnp.arange(n)]
    # Massless directions take the scale of the heaviest, whose multipliers have to hold them.
    size = jax.lax.rsqrt(jnp.where(diagonal > 0, diagonal, _largest(diagonal)))
    rows = b * size
    lengths = jnp.sqrt(sm.dot(rows, rows))
    weight = 1.0 / jnp.where(lengths > 0, lengths, 1.0)
    rows = weight[:, None] * rows
    scaled = size[:, None] * mass * size
    right = jnp.concatenate([size * problem.forces(t, q, v), -weight * constraint_rates(problem, t, q, v)[1]])
    matrix = jnp.block([[scaled, rows.T], [rows, jnp.zeros((m, m), v.dtype)]])
    inverse, pivot = saddle_point.general_inverse(jax.lax.stop_gradient(matrix))
    x = jax.lax.custom_linear_solve(
        lambda x: sm.matvec(matrix, x), right, lambda _, r: sm.matvec(inverse, r), symmetric=True
    )
    regular = (pivot > 10.0 * float(jnp.finfo(v.dtype).eps)) & jnp.all(jnp.isfinite(x))
    return size * x[:n], weight * x[n:], regular
