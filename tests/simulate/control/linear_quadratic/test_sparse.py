"""Products with matrices that are known but for some boxes are those of the arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.simulate.control.linear_quadratic.sparse import (
    Columns,
    Combined,
    Diagonal,
    Pattern,
    Sparse,
    after,
    applied,
    before,
    before_both,
    dense,
    moved,
)

RNG = np.random.default_rng(0)
SHIFTED = np.block([[np.eye(6), 0.1 * np.eye(6)], [np.zeros((6, 6)), np.eye(6)]])
PATTERNS = {  # known numbers, corners, shapes of boxes
    "diagonals alone": (SHIFTED, (), ()),
    "a free body": (SHIFTED, ((0, 0), (0, 6)), ((6, 6), (6, 6))),
    "boxes inside": (SHIFTED, ((2, 1), (3, 7), (9, 1)), ((3, 3), (2, 4), (2, 3))),
    "nothing known": (np.zeros((12, 5)), ((4, 2),), ((3, 2),)),
    "columns of zeros": (np.zeros((12, 5)), (), ()),
    "any numbers": (RNG.normal(size=(12, 9)) * (RNG.uniform(size=(12, 9)) < 0.4), ((0, 8),), ((12, 1),)),
}


def matrix(name: str, dtype) -> tuple[Sparse, np.ndarray]:
    known, corners, shapes = PATTERNS[name]
    known, boxes = known.copy(), [jnp.asarray(RNG.normal(size=shape), dtype) for shape in shapes]
    for (row, column), (rows, columns) in zip(corners, shapes, strict=True):
        known[row : row + rows, column : column + columns] = 0
    whole = known.astype(dtype)
    for (row, column), (rows, columns), box in zip(corners, shapes, boxes, strict=True):
        whole[row : row + rows, column : column + columns] = box
    return Sparse(boxes, Pattern(known.astype(dtype), corners)), whole


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", PATTERNS)
def test_products_are_those_of_the_array(name, dtype):
    sparse, whole = matrix(name, dtype)
    left, right = (jnp.asarray(RNG.normal(size=shape), dtype) for shape in ((4, 12), (12, 3)))
    tolerance = 50 * np.finfo(dtype).eps
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)
    close(dense(sparse), whole)
    close(jax.jit(after)(left, sparse), left @ whole)
    close(jax.jit(before)(sparse, right), whole.T @ right)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_with_combinations_of_rows_are_those_of_the_array(dtype):
    draw = lambda k: (RNG.normal(size=(12, k)) * (RNG.uniform(size=(12, k)) < 0.3)).astype(dtype)
    known, combine = draw(7), draw(5)
    rows, left, right, x = (jnp.asarray(RNG.normal(size=n), dtype) for n in ((5, 7), (4, 12), (12, 3), 7))
    matrix, whole = Combined(rows, Pattern(known), Pattern(combine)), known + combine @ np.asarray(rows)
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=100 * np.finfo(dtype).eps)
    close(dense(matrix), whole)
    close(jax.jit(after)(left, matrix), left @ whole)
    close(jax.jit(before)(matrix, right), whole.T @ right)
    close(jax.jit(applied)(matrix, x), whole @ x)


def test_a_change_of_rows_is_one_of_the_boxes():
    sparse, whole = matrix("boxes inside", np.float64)
    scale = np.arange(1.0, 13.0)[:, None]
    changed = sparse.with_rows(lambda columns: scale * columns)
    for box, (row, column) in zip(changed.boxes, sparse.pattern.corners, strict=True):
        rows, columns = box.shape
        expected = (scale * whole)[row : row + rows, column : column + columns]
        np.testing.assert_allclose(box, expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["a free body", "boxes inside", "any numbers"])
def test_columns_are_those_of_the_other_matrix(name):
    A, whole = matrix(name, np.float64)
    B, known = Columns(0.3, 4, 8), 0.3 * whole[:, 4:8]
    x, u, slopes = (jnp.asarray(RNG.normal(size=shape)) for shape in (whole.shape[1], 4, (12, 2)))
    for of_x, of_u in (jax.jit(before_both)(A, B, slopes), before_both(A, jnp.asarray(known), slopes)):
        np.testing.assert_allclose(of_x, whole.T @ slopes, atol=1e-14)
        np.testing.assert_allclose(of_u, known.T @ slopes, atol=1e-14)
    expected = whole @ x + known @ u
    np.testing.assert_allclose(jax.jit(moved)(A, B, x, u), expected, atol=1e-14)
    np.testing.assert_allclose(moved(A, jnp.asarray(known), x, u), expected, atol=1e-14)


def test_sums_and_multiples_of_diagonals_with_boxes_are_those_of_arrays():
    draw = lambda *shape: jnp.asarray(RNG.normal(size=shape))
    one, two = Diagonal(draw(7), (draw(3, 3),), (2,)), Diagonal(draw(7), (draw(2, 2), draw(1, 1)), (1, 6))
    whole = np.diag(np.array(one.numbers))
    whole[2:5, 2:5] += one.boxes[0]
    np.testing.assert_array_equal(one.dense(), whole)
    for scale in (2.0, np.float64(2.0), jnp.asarray(2.0)):
        np.testing.assert_allclose((one * scale).dense(), 2 * whole, rtol=1e-14)
    both = one.dense() + two.dense()
    for found in (one + two, one + two.dense(), one.dense() + two, np.asarray(one.dense()) + two):
        np.testing.assert_allclose(dense(found), both, rtol=0, atol=1e-14)
