"""The combinations of inertial parameters that data can see: numerical base parameters."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import checks
from lgjax.numerics.rank import default_tolerance, independent_rows, longest_row


class BaseParameters(NamedTuple):
    """Columns of a regressor that are independent, and what the others add to their parameters.

    For every regressor Y that was seen, Y parameters = Y[:, independent] (combine @ parameters). independent: (n,)
    indices, NumPy, static. combine: (n, parameters), NumPy, with the identity in the independent columns.
    """

    independent: np.ndarray
    combine: np.ndarray

    @property
    def rank(self) -> int:
        """Number n of base parameters."""
        return len(self.independent)

    def columns(self, regressor: jax.Array) -> jax.Array:
        """The columns (..., n) of a regressor (..., parameters) that multiply the base parameters."""
        return regressor[..., self.independent]

    def of(self, parameters: jax.Array) -> jax.Array:
        """The base parameters (..., n) of parameters (..., all)."""
        combine = jnp.asarray(self.combine, parameters.dtype)
        return jnp.einsum("ij,...j->...i", combine, parameters, precision="highest")


def base_parameters(regressors: Any, tolerance: float | None = None) -> BaseParameters:
    """Base parameters of regressors (..., rows, parameters), known numbers, by rank-revealing orthogonalization.

    Regressors at random states give what any motion can see, those of a record what this record can. A column counts
    as dependent when what is left of it beside the others is shorter than `tolerance` times the longest column; None
    is half of the digits of the dtype. Columns may be of any sort: append armature and friction to a regressor, and
    they take part. Runs on the host. Source: [gautier1991].
    """
    if not checks.known(regressors):
        raise TypeError("regressors of base_parameters must be known numbers: it decides what is static")
    dtype = checks.float_dtype(regressors)
    Y = checks.numbers("regressors", regressors)
    if Y.ndim < 2 or 0 in Y.shape:
        raise ValueError(f"regressors have shape (..., rows, parameters), got {Y.shape}")
    tolerance = default_tolerance(dtype) if tolerance is None else checks.number("tolerance", tolerance, 0.0)
    # as many rows as columns are left, with the same products of columns
    R = np.asarray(np.linalg.qr(Y.reshape(-1, Y.shape[-1]), "r"))
    with jax.ensure_compile_time_eval():  # known inside jit too
        columns = jnp.asarray(R.T, jnp.result_type(float))
        kept = np.asarray(independent_rows(columns, tolerance * longest_row(columns)).kept)
    combine = np.linalg.lstsq(R[:, kept], R, rcond=None)[0]
    combine[:, kept] = np.eye(int(kept.sum()))
    # What a column of ordinary length would not show in the longest is round-off; columns have units of their own.
    lengths = np.linalg.norm(R, axis=0)
    combine[np.abs(combine) * lengths[kept][:, None] <= tolerance * 1e-3 * lengths] = 0
    return BaseParameters(np.flatnonzero(kept), combine)
