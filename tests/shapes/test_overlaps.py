"""Signed distances of convex bodies against coal, and overlaps of polyhedra against the hull of their difference."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import ConvexHull

from lgjax import Pose, shapes
from tests.oracles.coal_bodies import coals_distances
from tests.oracles.convex_bodies import SHAPES, batch, highest, random_poses, unit

RNG = np.random.default_rng(5)
COALS = [name for name in SHAPES if SHAPES[name][2]]
# Kinds of which coal has a formula for overlaps that is wrong where the center of the ball is deep in the cylinder.
WRONG = {("sphere", "cylinder"): 0.07}


@pytest.mark.parametrize("pair", list(itertools.combinations_with_replacement(COALS, 2)), ids="-".join)
def test_distances_are_those_of_coal(pair):
    """Of 100,000 pairs in all, apart and overlapping; apart to 1e-9 m, overlapping to the 1e-7 m that coal reaches.

    The gap along any normal bounds the signed distance from below, so where coal has a smaller one it is wrong. Where
    it has a larger one, and differs, a search over normals finds none that is better than ours.
    """
    (a, high, first), (b, low, second) = (SHAPES[name] for name in pair)
    R, S = random_poses(RNG, 4800)[0], random_poses(RNG, 4800)[0]
    p = random_poses(RNG, 4800, 3.5)[1]
    found = jax.tree.map(np.asarray, batch(a(), b())(R, S, p))
    np.testing.assert_array_equal(found.status, 0)
    gap = lambda k, n: n @ p[k] - high(n @ R[k]) - low(-n @ S[k])
    own = np.array([gap(k, n[None])[0] for k, n in enumerate(found.normal)])
    np.testing.assert_allclose(found.distance, own, rtol=0, atol=1e-12)
    apart = found.distance > 0
    coals = coals_distances(first(), second(), R, S, p, 1e-10, 1e-7)
    again = coals_distances(first(), second(), R[apart], S[apart], p[apart], 1e-12, 1e-7)
    nearer = np.abs(found.distance[apart] - again) < np.abs(found.distance[apart] - coals[apart])
    coals[apart] = np.where(nearer, again, coals[apart])
    ours_is_less, coals_is_less = coals - found.distance, found.distance - coals
    round_too = {"cylinder", "ellipsoid"} & set(pair)
    other = np.where(apart, ours_is_less > 1e-9, (ours_is_less > 5e-7) & np.isfinite(coals))
    assert np.mean(other) <= (0.002 if round_too else 0)
    for k in np.flatnonzero(other):
        tolerance = 1e-9 if apart[k] else 1e-7
        assert highest(lambda n, k=k: gap(k, n), found.normal[k], RNG) < found.distance[k] + tolerance
    wrong = coals_is_less > np.where(apart, 1e-9, 5e-7)
    assert np.mean(wrong) <= WRONG.get(pair, 0.002 if round_too else 0)
    assert np.mean(~np.isfinite(coals)) <= (0.001 if round_too else 0)


def scattered(count):
    return unit(RNG.normal(size=(count, 3))) * RNG.uniform(0.5, 1, (count, 1))


def prism(count):
    turns = 2 * np.pi / count * np.arange(count)
    return np.array([[np.cos(t), np.sin(t), z] for t in turns for z in (-0.5, 0.5)])


CUBE = np.array(list(itertools.product((-0.5, 0.5), (-0.8, 0.8), (-0.6, 0.6))))
POLYTOPES = {
    "scattered": (scattered(10), scattered(10)),
    "many": (scattered(20), scattered(30)),
    "prisms": (prism(12), prism(5)),
    "cubes": (CUBE, CUBE),
}


@pytest.mark.parametrize("name", POLYTOPES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_polyhedra_overlap_by_the_least_height_of_the_hull_of_their_difference(name, dtype):
    """Turned at random, and with parallel faces and edges."""
    count, bodies = 200, POLYTOPES[name]
    R, S = (np.array(random_poses(RNG, count)[0]) for _ in bodies)
    p = random_poses(RNG, count, 1.2)[1]
    R[:50] = S[:50]
    R, S, p = (np.asarray(x, dtype) for x in (R, S, p))
    found = jax.tree.map(np.asarray, batch(*(shapes.polyhedron(x).astype(dtype) for x in bodies))(R, S, p))
    np.testing.assert_array_equal(found.status, 0)
    R, S, p = (np.asarray(x, float) for x in (R, S, p))
    wanted = np.zeros(count)
    for k in range(count):
        first, second = bodies[0] @ R[k].T, bodies[1] @ S[k].T + p[k]
        # Planes around the difference: their heights above the origin are the gaps along their normals.
        wanted[k] = ConvexHull((first[:, None] - second[None]).reshape(-1, 3)).equations[:, 3].max()
    deep = wanted < 0
    assert np.mean(deep) > 0.5
    np.testing.assert_allclose(found.distance[deep], wanted[deep], rtol=0, atol=1e-6 if dtype == jnp.float32 else 1e-13)


def test_a_call_outside_jit_and_a_rounded_hull_in_place_overlap_least_too():
    still = Pose(jnp.eye(3), jnp.zeros(3))
    turned = Pose(jnp.asarray(random_poses(RNG, 1)[0][0]), jnp.array([0.1, 0.2, 0.3]))
    points, others = POLYTOPES["scattered"]
    plain = shapes.distance(shapes.polyhedron(points), still, shapes.polyhedron(others), turned)
    moved = shapes.placed(shapes.polyhedron(others, rounding=0.1), turned)
    rounded = shapes.distance(shapes.polyhedron(points), still, moved, still)
    hull = (points[:, None] - others @ np.asarray(turned.rotation).T - np.asarray(turned.translation)).reshape(-1, 3)
    wanted = ConvexHull(hull).equations[:, 3].max()
    np.testing.assert_allclose([plain.distance, rounded.distance], [wanted, wanted - 0.1], atol=1e-13)
