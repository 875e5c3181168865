"""What the sentences about groups run over: groups, dtypes, magnitudes of the angle."""

from dataclasses import fields, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups import S3, SE3, SO3, LieGroup, R3xSO3, Rn, product, r3_so3, se3
from tests.oracles import matrix_groups as oracle


@cache
def _jit(function: Any) -> Any:
    return jax.jit(function)


def compiled(group: LieGroup) -> LieGroup:
    """The record with its functions under jit, each once, so that all tests of a group share what they compile."""
    skip = ("name", "dim", "identity", "chart", "base")
    return replace(group, **{f.name: _jit(getattr(group, f.name)) for f in fields(group) if f.name not in skip})


class Case(NamedTuple):
    group: LieGroup
    hat: Any  # the oracle's matrix of an algebra vector
    matrix: Any  # matrix of an element, (batch, n, n) NumPy float64


def _numpy(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def _translation_matrix(g: Any) -> np.ndarray:
    g = _numpy(g)
    m = np.tile(np.eye(g.shape[-1] + 1), (*g.shape[:-1], 1, 1))
    m[..., :-1, -1] = g
    return m


def _quaternion_matrix(q: Any) -> np.ndarray:
    return np.stack([oracle.left_quaternion(row) for row in _numpy(q)])


CASES = {
    "SO3": Case(compiled(SO3), oracle.skew, _numpy),
    "S3": Case(compiled(S3), oracle.hat_s3, _quaternion_matrix),
    "SE3": Case(compiled(SE3), oracle.hat_se3, lambda g: _numpy(se3.to_matrix(g))),
    "R3xSO3": Case(compiled(R3xSO3), oracle.hat_r3_so3, lambda g: _numpy(r3_so3.to_matrix(g))),
    "R4": Case(compiled(Rn(4)), oracle.hat_rn, _translation_matrix),
}
PRODUCT = compiled(product(SO3, Rn(2), SE3))
GROUPS = {**{name: case.group for name, case in CASES.items()}, "product": PRODUCT}
DTYPES = (jnp.float32, jnp.float64)

# Zero, tiny, both sides of every switch of the coefficient functions that an angle up to π meets, half turns.
SWITCHES = tuple(float(np.sqrt(s)) for s in (2.0, 4.0))
MAGNITUDES = (
    0.0,
    1e-9,
    1e-4,
    0.3,
    1.0,
    *(m * (1 + side) for m in SWITCHES for side in (-1e-3, 1e-3)),
    3.0,
    float(np.pi - 1e-6),
    float(np.pi),
)


def eps(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps)


def vectors(group: LieGroup, dtype: Any, seed: int = 0, magnitudes: tuple[float, ...] = MAGNITUDES) -> jax.Array:
    """Algebra vectors (2 per magnitude, dim) whose rotation vectors have the given lengths, the rest of order 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2 * len(magnitudes), group.dim))
    size = np.repeat(np.array(magnitudes), 2)[:, None]
    for start in {"R4": (), "SO3 x R2 x SE3": (0, 5)}.get(group.name, (0,)):
        block = slice(start, start + 3)
        x[:, block] *= size / np.linalg.norm(x[:, block], axis=1, keepdims=True)
    return jnp.asarray(x, dtype)


def close(actual: Any, expected: Any, tolerance: float) -> None:
    """Every leaf within tolerance, absolute for values below 1 and relative above."""
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        error = np.max(np.abs(a - b) / (1.0 + np.abs(b)), initial=0.0)
        assert error <= tolerance, f"off by {error:.3g}, allowed {tolerance:.3g}"
