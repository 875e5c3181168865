"""Signed distances of random pairs of shapes against heights along many normals, which share no code with them.

    python benchmarks/distances.py [pairs of each kind] [normals]

For each kind of pair: time of one pair in a batch, the share whose status is not 0, the largest difference between the
distance and the gap along its own normal, and the most by which another one of many normals is better, apart and
overlapping. The first two errors are of the order of round-off; the last one is above it where the search has missed
the least overlap.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from lgjax import Pose, shapes, so3

CORNERS = 10
PAIRS = (
    ("sphere", "sphere"), ("sphere", "box"), ("capsule", "capsule"), ("capsule", "box"), ("capsule", "cylinder"),
    ("box", "box"), ("box", "cylinder"), ("box", "polyhedron"), ("cylinder", "cylinder"), ("cylinder", "ellipsoid"),
    ("ellipsoid", "ellipsoid"), ("polyhedron", "polyhedron"), ("polyhedron", "ellipsoid"),
)  # fmt: skip


def numbers(kind: str, count: int, rng) -> np.ndarray:
    """Parameters (count, ...) of random shapes of a kind, m."""
    if kind == "polyhedron":
        points = rng.normal(size=(count, CORNERS, 3))
        return points / np.linalg.norm(points, axis=-1, keepdims=True) * rng.uniform(0.4, 1, (count, 1, 1))
    return rng.uniform(0.2, 1.0, (count, {"sphere": 1, "capsule": 2, "cylinder": 2}.get(kind, 3)))


def shape(kind: str, x):
    """The shape of a kind with these parameters."""
    if kind in ("sphere", "capsule", "cylinder"):
        return getattr(shapes, kind)(*(x[k] for k in range(len(x))))
    return getattr(shapes, kind)(x)


def heights(kind: str, x: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Support heights (m,) along unit directions d (m, 3), in the frame of the shape."""
    if kind == "sphere":
        return np.full(len(d), x[0])
    if kind == "capsule":
        return x[0] + x[1] * np.abs(d[:, 2])
    if kind == "cylinder":
        return x[0] * np.hypot(d[:, 0], d[:, 1]) + x[1] * np.abs(d[:, 2])
    if kind == "box":
        return np.abs(d) @ x
    if kind == "ellipsoid":
        return np.linalg.norm(d * x, axis=1)
    return (d @ x.T).max(1)


def gaps(kinds, x, y, R, S, p, n) -> np.ndarray:
    """Gaps (m,) between the supporting planes of two shapes along normals n (m, 3)."""
    return n @ p - heights(kinds[0], x, n @ R) - heights(kinds[1], y, -n @ S)


def main(count: int, normals: int) -> None:
    rng = np.random.default_rng(0)
    n = rng.normal(size=(normals, 3))
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    for dtype in (np.float64, np.float32):
        for kinds in PAIRS:
            x, y = (numbers(kind, count, rng).astype(dtype) for kind in kinds)
            R, S = (np.asarray(so3.exp(jnp.asarray(2 * rng.normal(size=(count, 3)), dtype))) for _ in kinds)
            p = rng.normal(size=(count, 3))
            p = (p / np.linalg.norm(p, axis=1, keepdims=True) * rng.uniform(0, 2.5, (count, 1))).astype(dtype)
            run = jax.jit(
                jax.vmap(
                    lambda x, y, R, S, p, kinds=kinds: shapes.distance(
                        shape(kinds[0], x), Pose(R, 0 * p), shape(kinds[1], y), Pose(S, p)
                    )
                )
            )
            found = jax.block_until_ready(run(x, y, R, S, p))
            started = time.perf_counter()
            found = jax.tree.map(lambda z: np.asarray(z, float), jax.block_until_ready(run(x, y, R, S, p)))
            seconds = time.perf_counter() - started
            own, missed = np.zeros(count), np.zeros(count)
            for k in range(count):
                pair = kinds, x[k], y[k], *(z[k].astype(float) for z in (R, S, p))
                own[k] = abs(gaps(*pair, found.normal[k : k + 1])[0] - found.distance[k])
                missed[k] = np.max(gaps(*pair, n)) - found.distance[k]
            good, apart = found.status == 0, found.distance > 0
            print(
                f"{np.dtype(dtype).name} {'-'.join(kinds):24} {1e6 * seconds / count:6.1f} us  "
                f"not solved {np.mean(~good):.1e}  own normal {np.max(own[good]):.1e}  better normal "
                f"apart {np.max(missed[good & apart], initial=0):.1e} "
                f"overlapping {np.max(missed[good & ~apart], initial=0):.1e} of {np.mean(missed > 1e-4):.1e}",
                flush=True,
            )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(*(int(x) for x in sys.argv[1:3]) if len(sys.argv) > 2 else (8000, 1000))
