"""Terrain as a grid of heights, bilinear between them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm

Array = jax.Array


@jax.tree_util.register_pytree_node_class
class HeightField:
    """Ground z = h(x, y), bilinear between heights (nx, ny), m; beyond the grid as high as at its edge.

    The normal of a place is that of its cell, so it jumps at the edges of cells where the slope does. A ball that
    touches such an edge or a vertex has the normal along the line from the nearest point of the ground. All numbers may
    be traced, batched and differentiated.

    Args:
        heights: (nx, ny); heights[i, j] is the height at (corner[0] + i spacing[0], corner[1] + j spacing[1]), world
            frame, m.
        spacing: one number or (2,), m.
        corner: (2,) place of heights[0, 0], world frame, m; None puts the middle of the grid at the origin.

    Raises:
        ValueError: for a grid with fewer than two rows or columns, a spacing that is not positive, and values that are
            not finite.
    """

    def __init__(self, heights: Any, spacing: Any, corner: Any = None):
        dtype = checks.float_dtype(heights)
        self.heights = checks.array("heights of the height field", heights, (None, None), dtype)
        for size, what in zip(self.heights.shape, ("row", "column"), strict=True):
            if size < 2:
                raise ValueError(f"a height field needs at least two {what}s, got heights {self.heights.shape}")
        self.spacing = checks.array("spacing of the height field", spacing, (2,), dtype)
        checks.positive("spacing of the height field", self.spacing)
        if corner is None:
            corner = -0.5 * self.spacing * jnp.asarray([n - 1 for n in self.heights.shape], dtype)
        self.corner = checks.array("corner of the height field", corner, (2,), dtype)

    def tree_flatten(self):
        return (self.heights, self.spacing, self.corner), None

    @classmethod
    def tree_unflatten(cls, _, leaves) -> "HeightField":
        # Not through __init__: transformations put tangents, batch axes and placeholders here.
        field = object.__new__(cls)
        field.heights, field.spacing, field.corner = leaves
        return field

    def astype(self, dtype) -> "HeightField":
        """The same terrain with every array in `dtype`."""
        return jax.tree.map(lambda x: x.astype(dtype), self)

    def __call__(self, places: Array) -> tuple[Array, Array]:
        """Heights (k,) and upward unit normals (k, 3) at places (k, 2) or more columns, x and y, world frame."""
        across = (places[:, :2] - self.corner) / self.spacing
        last = np.array(self.heights.shape) - 1
        inside = jnp.clip(across, jnp.zeros_like(across), jnp.asarray(last, across.dtype))
        cell = jnp.clip(jnp.floor(jax.lax.stop_gradient(inside)).astype(jnp.int32), 0, jnp.asarray(last - 1, jnp.int32))
        s, t = jnp.unstack(inside - cell.astype(across.dtype), axis=-1)
        flat, row = self.heights.reshape(-1), self.heights.shape[1]
        first = cell[:, 0] * row + cell[:, 1]
        a, b, c, d = (flat[first + k] for k in (0, 1, row, row + 1))
        height = (1 - s) * ((1 - t) * a + t * b) + s * ((1 - t) * c + t * d)
        beyond = (across != inside).astype(across.dtype)
        slope_x = ((1 - t) * (c - a) + t * (d - b)) / self.spacing[0] * (1 - beyond[:, 0])
        slope_y = ((1 - s) * (b - a) + s * (d - c)) / self.spacing[1] * (1 - beyond[:, 1])
        upward = sm.stack(-slope_x, -slope_y, jnp.ones_like(height))
        return height, upward / jnp.sqrt(sm.dot(upward, upward))[:, None]
