"""Parameters of greatest likelihood, their covariance, and which combinations the records cannot see.

Read first: `unknowns.py` for the coordinates, `records.py` for the residuals whose squares are added up.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from lgjax.execution.compiled import compiled
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import by_columns, implicit
from lgjax.numerics.rank import default_tolerance
from lgjax.numerics.status import NOT_FINITE, Flags, flag
from lgjax.robots.robot import Robot
from lgjax.simulate.identification.record_checks import check_record
from lgjax.simulate.identification.records import BatchedRecord, Record, TorqueRecord
from lgjax.simulate.identification.unknowns import Plant, Unknowns, plant_of

Array = jax.Array


class IdentifyStatus(Flags):
    """Outcome of `identify`; 0 means success, flags add up.

    NOT_FINITE      1: the records, or what the guess predicts of them, are infinite or NaN
    MAX_ITERATIONS  2: the iterations ended before the estimate settled; it is the best so far
    UNSEEN          4: the records cannot see some combinations of the unknowns, see `Identified.seen`
    """

    CONVERGED = 0
    NOT_FINITE = NOT_FINITE
    MAX_ITERATIONS = 2
    UNSEEN = 4


class Identified(NamedTuple):
    """Result of `identify`, for p unknowns and n residuals.

    plant: at the estimate. x: (p,) the estimate, changes from the guess. covariance: (p, p) of x, that of the Laplace
    approximation, within what is seen. directions: (p, p), rows are combinations of x; seen: (p,) bool, whether the
    records see each of them. A combination c . x that is orthogonal to all unseen rows is known, with the variance
    c . covariance c; `identifiable`: (p,) bool, whether x[i] alone is. cost: () half the sum of squares, priors
    included, which is about (n - p) / 2 where the sigmas are right. status: () int32 of `IdentifyStatus`.
    iterations: () int32.
    """

    plant: Plant
    x: Array
    covariance: Array
    directions: Array
    seen: Array
    identifiable: Array
    cost: Array
    status: Array
    iterations: Array

    @property
    def success(self) -> Array:
        """() bool, whether the search converged; some combinations may be unseen."""
        return (self.status & ~int(IdentifyStatus.UNSEEN)) == 0

    @property
    def sigma(self) -> Array:
        """Standard deviations (p,) of x, infinite where the records do not tell."""
        variance = jnp.maximum(jnp.diagonal(self.covariance, axis1=-2, axis2=-1), 0)
        return jnp.where(self.identifiable, jnp.sqrt(jnp.where(self.identifiable, variance, 1)), jnp.inf)

    def propagate(self, function: Callable[[Array], Array]) -> tuple[Array, Array]:
        """function(x) (m,) at the estimate and its covariance (m, m), to first order.

        Variances are infinite where the records do not determine the value; all other entries count only what is seen.
        Of a batch of results, both for each of them.
        """

        def one(x: Array, covariance: Array, directions: Array, seen: Array) -> tuple[Array, Array]:
            exact, J = partial(jnp.einsum, precision="highest"), jax.jacfwd(function)(x)
            hidden = exact("ij,kj->ik", J, jnp.where(seen[:, None], 0, directions))
            size = jnp.sqrt(jnp.sum(J * J, 1, keepdims=True) * float(jnp.finfo(J.dtype).eps))
            unseen = sm.diagonal(jnp.any(jnp.abs(hidden) > size, 1))
            return function(x), jnp.where(unseen, jnp.inf, exact("ij,jk,lk->il", J, covariance, J))

        shape = jax.eval_shape(function, jax.ShapeDtypeStruct(self.x.shape[-1:], self.x.dtype)).shape
        if len(shape) != 1:
            raise ValueError(f"function must return a vector (m,), got shape {shape}")
        for _ in range(self.x.ndim - 1):
            one = jax.vmap(one)
        return one(self.x, self.covariance, self.directions, self.seen)


def identify(
    model: Model | Robot,
    records: Record | Sequence[Record],
    unknowns: Unknowns,
    *,
    gear: ArrayLike = 1.0,
    prior: ArrayLike | None = None,
    iterations: int = 100,
    tolerance: float | None = None,
    rank_tolerance: float | None = None,
) -> Identified:
    """The parameters under which the records are most likely, by Levenberg and Marquardt's method.

    model: the guess, with `gear` that of the drives, see `Plant`; or a `Robot`, whose actuators can be unknown too:
    `control_gains`, `velocity_gains`, `time_constants`, `delays`. records: one or several, see `TorqueRecord`,
    `MotionRecord`, `PoseRecord`. unknowns: a sum of `masses`, `inertias`, `viscous`, ... prior: (p,) or a number,
    standard deviations of x about the guess; None knows nothing. tolerance: relative change of x and of the residuals
    at which the search ends; None is half of the digits. rank_tolerance: singular values of the derivative, each
    column of it scaled to length one, below this part of the largest count as unseen; None is half of the digits.

    Traced numbers, `jit` and `vmap` over records and guesses are welcome; the result is differentiable with respect to
    both, but for `directions`, once and twice, by the implicit function theorem; what is unseen is held. Nothing is
    raised for numbers: the status tells, x is the best that was found and never NaN. Outside `jit` it compiles once for
    records of the same kind and shapes, whatever their numbers and those of the guess. Needs the extra `identify`.
    Source: [more1978] for the method; [rucker2022] for inertias; [sola2018] for residuals on groups.
    """
    _optimistix()
    mechanism, model = model, checked_model(model, leaves=True)
    iterations = checks.integer("iterations", iterations)
    half = default_tolerance(model.dtype)
    tolerance = half if tolerance is None else checks.number("tolerance", tolerance, 0.0)
    rank_tolerance = half if rank_tolerance is None else checks.number("rank_tolerance", rank_tolerance, 0.0)
    problem = _checked(mechanism, records, unknowns, gear, prior)
    return _found(problem, unknowns, _Options(iterations, tolerance, rank_tolerance))


@dataclass(frozen=True)
class _Options:
    """Options of a search, which its program contains."""

    iterations: int
    tolerance: float
    rank_tolerance: float


@compiled
def _found(problem: "_Problem", unknowns: Unknowns, options: _Options) -> Identified:
    leaves, treedef = jax.tree.flatten(problem)
    arrays = {i: x for i, x in enumerate(leaves) if isinstance(x, jax.Array)}

    def run(arrays: dict[int, Array]) -> Identified:
        given = treedef.unflatten([arrays.get(i, x) for i, x in enumerate(leaves)])
        return _search(given, unknowns, options.iterations, options.tolerance, options.rank_tolerance)

    return jax.jit(run)(arrays)  # one program also where calls have none of their own


def _search(problem: "_Problem", unknowns: Unknowns, iterations: int, tolerance: float, rank_tolerance: float):
    optimistix, dtype = _optimistix(), problem.guess.model.dtype
    residual = partial(_residual, problem, unknowns)
    bounded = lambda x: _bounded(residual(x))[0]
    start = jnp.zeros(len(unknowns), dtype)

    # Columns of different units are scaled to length one, where the method treats them alike.
    scale = jax.lax.stop_gradient(_scale(jax.jacfwd(bounded)(start)))
    solver = optimistix.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
    working = jnp.result_type(float)  # optimistix takes its own numbers in the default dtype
    scaled = lambda z, _=None: bounded(scale * z.astype(dtype)).astype(working)

    def find(z: Array) -> tuple[Array, tuple[Array, Array]]:
        found = optimistix.least_squares(scaled, solver, z, max_steps=iterations, throw=False)
        settled, fine = found.result == optimistix.RESULTS.successful, jnp.all(jnp.isfinite(found.value))
        count = jnp.asarray(found.stats["num_steps"], jnp.int32)
        return jnp.where(fine, found.value, 0), (settled, count)

    # Not the derivative of optimistix: it ends the program where the records do not see all unknowns.
    slope = jax.grad(lambda z: jnp.sum(jnp.square(scaled(z))) / 2)
    invert = partial(_inverse_of_seen, tolerance=rank_tolerance, dtype=dtype)
    z, (settled, count) = implicit(slope, find, start.astype(working), by_columns(invert))
    x = scale * z.astype(dtype)

    errors, finite = _bounded(residual(x))
    visible = visibility(jax.jacfwd(bounded)(x), rank_tolerance)
    status = flag(IdentifyStatus.NOT_FINITE, ~finite) | flag(IdentifyStatus.MAX_ITERATIONS, finite & ~settled)
    status = status | flag(IdentifyStatus.UNSEEN, ~jnp.all(visible.seen))
    plant = unknowns.apply(problem.guess, x)
    return Identified(plant, x, *visible, jnp.sum(errors * errors) / 2, status, count)


def log_likelihood(
    model: Model | Robot,
    records: Record | Sequence[Record],
    unknowns: Unknowns,
    *,
    gear: ArrayLike = 1.0,
    prior: ArrayLike | None = None,
) -> Callable[[Array], Array]:
    """The function x (p,) -> logarithm () of the density of the records, for samplers; times the prior's if given.

    Arguments as in `identify`, whose estimate is where it is greatest and whose covariance is the negative inverse of
    its Hessian, up to second derivatives of the residuals. Minus infinity where the motion is not finite. Source:
    Gaussian errors, independent, with the standard deviations of the records.
    """
    problem = _checked(model, records, unknowns, gear, prior)
    return partial(_log_likelihood, problem, unknowns)


def _log_likelihood(problem: "_Problem", unknowns: Unknowns, x: Array) -> Array:
    form = (len(unknowns),)
    x = checks.of_shape("x", checks.floats("x", x, form, problem.guess.model.dtype), form)
    r = _residual(problem, unknowns, x)
    scales = sum(record.log_scale() for record in problem.records)
    if problem.prior is not None:
        scales = scales + jnp.sum(jnp.log(problem.prior))
    value = -jnp.sum(r * r) / 2 - jnp.asarray(scales, r.dtype) - r.size * math.log(2 * math.pi) / 2
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)


class Visibility(NamedTuple):
    """Visibility of unknowns: covariance (p, p), directions (p, p), seen (p,) and identifiable (p,)."""

    covariance: Array
    directions: Array
    seen: Array
    identifiable: Array


def visibility(J: Array, tolerance: float) -> Visibility:
    """Visibility of p unknowns in residuals with the derivative J (n, p).

    Only the covariance has derivatives, in which what is unseen is held: directions have none where they are as well
    seen as others.
    """
    exact, held = partial(jnp.einsum, precision="highest"), jax.lax.stop_gradient(J)
    scale = _scale(held)
    # Of the triangular factor, not of J^T J: in float32 squares would lose the combinations that are seen worst.
    rows = jnp.concatenate([held * scale, jnp.zeros((max(J.shape[1] - J.shape[0], 0), J.shape[1]), J.dtype)])
    _, sizes, across = jnp.linalg.svd(jnp.linalg.qr(rows, mode="r"))
    values, vectors = jnp.square(sizes[::-1]), across[::-1].T
    seen = _seen(values, tolerance, J.dtype)
    inverse = jnp.where(seen, 1 / jnp.where(seen, values, 1), 0)
    inverse = exact("ik,k,jk->ij", vectors, inverse, vectors)
    covariance = _inverse_within(J * scale, inverse, exact("ik,k,jk->ij", vectors, seen.astype(J.dtype), vectors))
    # unseen directions are changes of x that nothing feels, seen ones the combinations that are known
    rows = jnp.where(seen, vectors / scale[:, None], vectors * scale[:, None]).T
    rows = rows / jnp.sqrt(jnp.sum(rows * rows, 1, keepdims=True))
    hidden = jnp.sum(jnp.where(seen, 0, vectors * vectors), 1)
    identifiable = hidden < float(jnp.finfo(J.dtype).eps) ** 0.5
    return Visibility(covariance * scale[:, None] * scale, rows, seen, identifiable)


def _inverse_within(rows: Array, inverse: Array, kept: Array) -> Array:
    """The known inverse (p, p) of rows^T rows within the space of the projector `kept`, with its derivatives."""
    exact = partial(jnp.matmul, precision="highest")
    squares = exact(rows.T, rows)
    within = lambda x: exact(kept, exact(squares, exact(kept, x))) + x - exact(kept, x)
    solve = lambda _, r: exact(inverse, r) + r - exact(kept, r)
    return jax.lax.custom_linear_solve(within, kept, solve, symmetric=True)


def _inverse_of_seen(H: Array, tolerance: float, dtype: Any) -> Array:
    """The inverse (p, p) of a symmetric matrix within what is seen, zero beyond it."""
    values, vectors = jnp.linalg.eigh(H)
    seen = _seen(jnp.abs(values), tolerance, dtype)
    inverse = jnp.where(seen, 1 / jnp.where(seen, values, 1), 0)
    return jnp.einsum("ik,k,jk->ij", vectors, inverse, vectors, precision="highest")


def _seen(squares: Array, tolerance: float, dtype: Any) -> Array:
    """Which squares (p,) of singular values count, of numbers computed in `dtype`."""
    return squares > max(tolerance * tolerance, float(jnp.finfo(dtype).eps) * len(squares)) * jnp.max(squares)


def _scale(J: Array) -> Array:
    """Reciprocals (p,) of the lengths of the columns, 1 for those that vanish."""
    lengths = jnp.sqrt(jnp.sum(J * J, 0))
    tiny = lengths <= float(jnp.finfo(J.dtype).eps) * jnp.max(lengths)
    return 1 / jnp.where(tiny | ~jnp.isfinite(lengths), 1, lengths)


class _Problem(NamedTuple):
    """Checked inputs: the guess, the records, and standard deviations (p,) of x or None."""

    guess: Plant
    records: list
    prior: Array | None


def _checked(mechanism: Any, records: Any, unknowns: Unknowns, gear: ArrayLike, prior: ArrayLike | None) -> _Problem:
    model = checked_model(mechanism, leaves=True)
    if not isinstance(unknowns, Unknowns) or not len(unknowns):
        raise TypeError(
            f"unknowns are a sum of masses(...), inertias(...), viscous(...), ...; got {checks.shown(unknowns)}"
        )
    if prior is not None:
        prior = checks.positive("prior", checks.array("prior", prior, (len(unknowns),), model.dtype))
    listed, plant = _listed(records), plant_of(mechanism, gear)
    actuators = None if plant.robot is None else plant.robot.actuators
    commands = model.nv if actuators is None else len(actuators)
    held = plant.robot is not None and (actuators is not None or plant.robot.loops)
    for record in listed:
        if held and isinstance(record, TorqueRecord | BatchedRecord) and _torques(record):
            raise ValueError(
                "a TorqueRecord takes a robot without actuators and loops: pass its model, or a MotionRecord"
            )
        check_record(record, model, commands)
    return _Problem(plant, listed, prior)


def _torques(record: Any) -> bool:
    """Whether a record, perhaps of a batch, is one of torques."""
    while isinstance(record, BatchedRecord):
        record = record.record
    return isinstance(record, TorqueRecord)


def _residual(problem: _Problem, unknowns: Unknowns, x: Array) -> Array:
    plant = unknowns.apply(problem.guess, x)
    errors = [record.residual(plant) for record in problem.records]
    return jnp.concatenate(errors if problem.prior is None else [*errors, x / problem.prior])


def _listed(records) -> list:
    listed = list(records) if isinstance(records, list | tuple) else [records]
    for record in listed:
        if not hasattr(record, "residual") or not hasattr(record, "log_scale"):
            raise TypeError(f"a record has residual(plant) and log_scale(), got {checks.shown(record)}")
    if not listed:
        raise ValueError("identify needs a record")
    return listed


def _bounded(r: Array) -> tuple[Array, Array]:
    """Residuals, all huge if one is not finite so that a search turns back, and whether all are finite."""
    huge = float(jnp.finfo(r.dtype).max) ** 0.25
    fine = jnp.all(jnp.isfinite(r)) & jnp.all(jnp.abs(r) < huge)
    return jnp.where(fine, r, huge), fine


def _optimistix() -> Any:
    try:
        import optimistix
    except ImportError:
        raise ImportError("identify needs the package optimistix: pip install 'lgjax[identify]'") from None
    return optimistix
