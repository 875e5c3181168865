"""Normals from which the least overlap of two cores is searched.

They are those of faces, those across an edge of either body, and for round bodies those along which a body is narrow.
Two polytopes have no other local optimum than those of the first two kinds. Where an edge touches a round body, their
difference is a part of a cylinder over an ellipse, and an optimum is near the short axis of that: elsewhere the
surface bends too much.

Read first: `minkowski.py`, `ridges.py`.
"""

import jax.numpy as jnp

from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.shapes.contact import Array
from lgjax.shapes.cores import Core
from lgjax.shapes.minkowski import Difference, plane
from lgjax.shapes.ridges import best_across


def normals(D: Difference) -> Array:
    """Unit normals (m, 3): of the faces, of pairs of edges, across an edge where a round body is narrow, and others."""
    turn = lambda place, directions: sm.matvec(place.rotation, directions)
    first, second = turn(D.place_a, D.a.normals()), -turn(D.place_b, D.b.normals())
    if D.solid and (D.a.listed or D.b.listed):
        return jnp.concatenate([first, second, best_across(*D.ridges())])
    edges_a, edges_b = turn(D.place_a, D.a.edges()), turn(D.place_b, D.b.edges())
    across = _across(edges_a, edges_b)
    if D.solid and D.a.symmetric and D.b.symmetric:
        # Of a normal and its opposite the one towards the other body has the larger gap, by twice its part of the way.
        half = jnp.concatenate([first[: len(first) // 2], second[: len(second) // 2], across])
        return jnp.where((sm.matvec(half, D.middle()) > 0)[:, None], -half, half)
    narrow = jnp.concatenate([_narrow(D.a, D.place_a, edges_b), _narrow(D.b, D.place_b, edges_a)])
    return jnp.concatenate([first, second, across, -across, narrow, -narrow])


def _across(edges: Array, others: Array) -> Array:
    """Unit normals (m, 3) across each pair of edges."""
    across = sm.cross(edges[:, None], others[None])
    square = sm.dot(edges, edges)[:, None]
    # What round-off leaves along the first edge is much where both are nearly parallel.
    along = sm.dot(across, edges[:, None]) / jnp.where(square > 0, square, jnp.ones_like(square))
    across = (across - sm.scale(along, jnp.broadcast_to(edges[:, None], across.shape))).reshape(-1, 3)
    length = norm(across)[:, None]
    parallel = length * length <= (16 * float(jnp.finfo(length.dtype).eps)) ** 2 * (
        square * sm.dot(others, others)[None]
    ).reshape(-1, 1)
    # Parallel edges have no common normal; any other does.
    up = jnp.zeros_like(across).at[:, 2].set(1.0)
    return jnp.where(parallel, up, across / jnp.where(parallel, jnp.ones_like(length), length))


def _narrow(core: Core, place: Pose, edges: Array) -> Array:
    """Unit normals (m, 3) across edges (m, 3) along which the round part of a core is narrowest; none if it has none.

    Seen along an edge that part is an ellipse: its short axis.
    """
    if not core.oval:
        return edges[:0]
    own = sm.tmatvec(place.rotation, edges)
    length = norm(own)[:, None]
    t, u = plane(own / jnp.where(length > 0, length, jnp.ones_like(length)))
    squares = core.squares()
    half = 0.5 * (sm.dot(squares * t, t) - sm.dot(squares * u, u))
    mixed = sm.dot(squares * t, u)
    root = jnp.sqrt(half * half + mixed * mixed)
    # Twice the angle from t to the long axis has this cosine, and a sine of the sign of `mixed`.
    cosine = half / jnp.where(root > 0, root, jnp.ones_like(root))
    c, s = (jnp.sqrt(jnp.maximum(0.5 + sign * cosine, jnp.zeros_like(root)))[:, None] for sign in (0.5, -0.5))
    short = c * u - jnp.where((mixed < 0)[:, None], -s, s) * t
    return sm.matvec(place.rotation, short)
