"""Signed distance of two boxes by all pairs of their features: corners, edges and separating axes.

Apart it is the least of the distances of the corners of one box from the other box and of the edges from each other. It
is the largest gap along the normals of the faces and across the pairs of edges where the boxes overlap.
"""

import itertools

import numpy as np

SIGNS = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
EDGES = [(i, j) for i, j in itertools.combinations(range(8), 2) if np.sum(SIGNS[i] != SIGNS[j]) == 1]


def dot(x, y):
    return np.sum(x * y, axis=-1)


def outside(points, half, R, p):
    """Distances of points (n, m, 3) from boxes with half extents (3,), turned by R (n, 3, 3), at p (n, 3)."""
    own = np.einsum("nji,nmj->nmi", R, points - p[:, None])
    return np.linalg.norm(own - np.clip(own, -half, half), axis=-1)


def segments(a, u, b, v):
    """Distances of the segments from a along u and from b along v, but for the ends of both."""
    r, uu, vv, uv = a - b, dot(u, u), dot(v, v), dot(u, v)
    across = np.cross(u, v)
    square = dot(across, across)
    s = np.clip(dot(np.cross(-r, v), across) / np.where(square > 0, square, 1), 0, 1)
    t = np.clip((uv * s + dot(v, r)) / vv, 0, 1)
    s = np.clip((uv * t - dot(u, r)) / uu, 0, 1)
    return np.linalg.norm(r + s[..., None] * u - t[..., None] * v, axis=-1)


def box_distances(half, other, R, S, p):
    """Signed distances (n,) of a box turned by R at the origin and another one turned by S at p."""
    first = np.einsum("nij,mj->nmi", R, SIGNS * half)
    second = np.einsum("nij,mj->nmi", S, SIGNS * other) + p[:, None]
    start, end = np.array(EDGES).T
    a, b = first[:, :, None], second[:, None]
    between = segments(a[:, start], (a[:, end] - a[:, start]), b[:, :, start], b[:, :, end] - b[:, :, start])
    corners = np.concatenate([outside(first, other, S, p), outside(second, half, R, 0 * p)], 1)
    apart = np.minimum(corners.min(1), between.min((1, 2)))
    own, others = np.swapaxes(R, 1, 2), np.swapaxes(S, 1, 2)
    across = np.cross(own[:, :, None], others[:, None]).reshape(-1, 9, 3)
    length = np.linalg.norm(across, axis=2, keepdims=True)
    across = np.where(length > 1e-13, across / np.where(length > 0, length, 1), own[:, :1])
    n = np.concatenate([own, others, across], 1)
    gaps = np.abs(dot(n, p[:, None])) - np.abs(n @ R) @ half - np.abs(n @ S) @ other
    return np.where(gaps.max(1) < 0, gaps.max(1), apart)
