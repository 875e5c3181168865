"""Convex bodies with their heights along directions, random poses of them, and searches over many normals."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from lgjax import Pose, shapes, so3
from tests.oracles.coal_bodies import coal, coals_hull

CORNERS = np.array(
    [[1.0, 0.2, -0.3], [-1.0, 0.5, 0.1], [0.2, -1.1, 0.4], [0.1, 0.3, 1.2], [-0.4, -0.5, -0.9], [0.6, 0.7, 0.5]]
)
AXES = np.array([0.5, 0.8, 1.1])
TURN = so3.exp(jnp.array([0.3, -0.5, 0.7]))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def lens(point, size):
    z = point / size
    return jnp.sum(z * z * z * z) - 1


# name: (shape, its height along unit directions (m, 3), a body of coal or None)
SHAPES = {
    "sphere": (lambda: shapes.sphere(0.7), lambda d: 0.7 + 0 * d[:, 0], lambda: coal.Sphere(0.7)),
    "capsule": (lambda: shapes.capsule(0.3, 0.8), lambda d: 0.3 + 0.8 * abs(d[:, 2]), lambda: coal.Capsule(0.3, 1.6)),
    "box": (lambda: shapes.box(AXES), lambda d: abs(d) @ AXES, lambda: coal.Box(*(2 * AXES))),
    "rounded box": (lambda: shapes.box(AXES, rounding=0.2), lambda d: abs(d) @ AXES + 0.2, None),
    "cylinder": (
        lambda: shapes.cylinder(0.6, 0.9),
        lambda d: 0.6 * np.hypot(d[:, 0], d[:, 1]) + 0.9 * abs(d[:, 2]),
        lambda: coal.Cylinder(0.6, 1.8),
    ),
    "ellipsoid": (
        lambda: shapes.ellipsoid(AXES),
        lambda d: np.linalg.norm(d * AXES, axis=1),
        lambda: coal.Ellipsoid(*AXES),
    ),
    "polyhedron": (lambda: shapes.polyhedron(CORNERS), lambda d: (d @ CORNERS.T).max(1), lambda: coals_hull(CORNERS)),
    "placed": (
        lambda: shapes.placed(shapes.rounded(shapes.ellipsoid(AXES), 0.1), Pose(TURN, jnp.array([0.2, 0.1, -0.3]))),
        lambda d: np.linalg.norm(d @ np.asarray(TURN) * AXES, axis=1) + 0.1 + d @ [0.2, 0.1, -0.3],
        None,
    ),
    "implicit": (
        lambda: shapes.implicit(lens, parameters=(jnp.asarray(AXES),)),
        lambda d: (np.abs(d * AXES) ** (4 / 3)).sum(1) ** 0.75,
        None,
    ),
}


def random_poses(rng, count, far=2.5):
    turns = np.asarray(so3.exp(jnp.asarray(rng.normal(size=(count, 3)) * 2)))
    places = unit(rng.normal(size=(count, 3))) * rng.uniform(0.2, far, (count, 1))
    return turns, places


def brute(first, second, R, S, p, rng):
    """The largest gap between supporting planes, by a search over many normals and random ones around the best."""
    gap = lambda n: -first(n @ R) - second(-n @ S) + n @ p
    n = unit(rng.normal(size=(4000, 3)))
    best = n[np.argsort(-gap(n))[:5]]
    width = np.full(5, 0.1)
    for _ in range(30):
        tried = unit(best[:, None] + width[:, None, None] * rng.normal(size=(5, 40, 3)))
        values = gap(tried.reshape(-1, 3)).reshape(5, 40)
        better = values.max(1) > gap(best)
        best = np.where(better[:, None], tried[np.arange(5), values.argmax(1)], best)
        width = np.where(better, width, 0.6 * width)
    return gap(best).max(), gap


def highest(gap, start, rng):
    """The largest gap that a simplex search finds around a normal and around the best of many others."""
    n = unit(np.concatenate([rng.normal(size=(20_000, 3)), start[None] + 1e-3 * rng.normal(size=(20, 3)), start[None]]))
    found = []
    for best in [start, *n[np.argsort(-gap(n))[:8]]]:
        aside = np.linalg.svd(best[None])[2][1:]
        lost = lambda x, n=best, aside=aside: -gap(unit(n + x @ aside)[None])[0]
        options = {
            "xatol": 1e-11,
            "fatol": 1e-14,
            "maxiter": 2000,
            "initial_simplex": 1e-3 * np.array([[0, 0], [1, 0], [0, 1]]),
        }
        found.append(-minimize(lost, np.zeros(2), method="Nelder-Mead", options=options).fun)
    return max(found)


def batch(a, b):
    return jax.jit(jax.vmap(lambda R, S, p: shapes.distance(a, Pose(R, 0 * p), b, Pose(S, p))))
