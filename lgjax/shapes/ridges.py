"""The best normal across an edge of one polytope and an edge of another one.

Two edges make a face of the difference D where their common normal n supports both of them: where n is between the
normals of the two faces at either edge, so that along n these faces go down from it. Then their ends give the gap, and
no other corner is needed. Together with the normals of all faces these are all normals along which polytopes can
overlap least.

Source: Gregorius, The separating axis test between convex polyhedra (2013).
Read first: `cores.py`, `minkowski.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.shapes.contact import Array


class Ridges(NamedTuple):
    """Edges: one end of each (m, 3), the way along it (m, 3), and ways from it into its two faces (m, 3).

    The faces of an edge that has none, of a segment, have the way 0.
    """

    end: Array
    along: Array
    first: Array
    second: Array

    def placed(self, place: Pose) -> "Ridges":
        """The same ones in the axes of a pose."""
        turn = lambda x: sm.matvec(place.rotation, x)
        return Ridges(place.act(self.end), *map(turn, self[1:]))


def of_faces(points: Array, faces: tuple[tuple[int, ...], ...]) -> Ridges:
    """The edges of faces (corners in their order, the last one repeated), each with a corner of both faces."""
    index = np.array([(a, b, *(2 * sides)[:2]) for (a, b), sides in sorted(_sides(faces).items())])
    end, other, first, second = (points[index[:, k]] for k in range(4))
    return Ridges(end, other - end, first - end, second - end)


def _sides(faces: tuple[tuple[int, ...], ...]) -> dict[tuple[int, int], list[int]]:
    """Edge -> for both of its faces the corner that is farthest from it in their order."""
    found: dict[tuple[int, int], list[int]] = {}
    for face in faces:
        around = tuple(dict.fromkeys(face))
        for k, a in enumerate(around):
            b, opposite = around[(k + 1) % len(around)], around[(k + 1 + len(around) // 2) % len(around)]
            found.setdefault((min(a, b), max(a, b)), []).append(opposite)
    return found


def best_across(a: Ridges, b: Ridges) -> Array:
    """The unit normal (1, 3) of the largest gap of all pairs of edges that make a face of D; along z if none do.

    None, (0, 3), if a body has no edges.
    """
    if not len(a.end) or not len(b.end):
        return a.end[:0]
    up = jnp.zeros_like(a.end[0]).at[2].set(1.0)
    nothing = up, jnp.full_like(up[0], -jnp.inf)

    def search(k, best):
        normal, gap = _best_with(jax.tree.map(lambda x: x[k], a), b)
        return jax.tree.map(lambda x, y: jnp.where(gap > best[1], x, y), (normal, gap), best)

    return jax.lax.fori_loop(0, len(a.end), search, nothing)[0][None]


def _best_with(edge: Ridges, b: Ridges) -> tuple[Array, Array]:
    """The best normal (3,) across one edge and any of others, and its gap (), -inf for none."""
    across = sm.cross(edge.along, b.along)
    length = norm(across)
    parallel = length <= float(jnp.finfo(length.dtype).eps) ** 0.5 * norm(edge.along) * norm(b.along)
    across = across / jnp.where(parallel, jnp.ones_like(length), length)[:, None]
    own = sm.dot(across, edge.first), sm.dot(across, edge.second)
    others = sm.dot(across, b.first), sm.dot(across, b.second)
    out = (own[0] <= 0) & (own[1] <= 0) & (others[0] >= 0) & (others[1] >= 0)
    back = (own[0] >= 0) & (own[1] >= 0) & (others[0] <= 0) & (others[1] <= 0)
    gap = sm.dot(across, b.end - edge.end)
    none = jnp.full_like(gap, -jnp.inf)
    gaps = jnp.maximum(jnp.where(out, gap, none), jnp.where(back, -gap, none))
    gaps = jnp.where(parallel, none, gaps)
    best = jnp.argmax(gaps).astype(jnp.int32)
    normal = across[best]
    return jnp.where(out[best] & (gap[best] == gaps[best]), normal, -normal), gaps[best]
