"""Signed distances of convex bodies against closed forms, brute force over normals, and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax import Pose, shapes, so3
from lgjax.shapes import DistanceStatus
from lgjax.shapes.distance import difference
from tests.oracles.boxes import box_distances, outside
from tests.oracles.convex_bodies import AXES, SHAPES, batch, brute, random_poses, unit

MANY = 20
RNG = np.random.default_rng(5)


PAIRS = [
    *((one, one) for one in SHAPES if one != "implicit"),
    ("sphere", "box"),
    ("capsule", "rounded box"),
    ("box", "cylinder"),
    ("box", "polyhedron"),
    ("cylinder", "ellipsoid"),
    ("polyhedron", "ellipsoid"),
    ("capsule", "cylinder"),
    ("sphere", "implicit"),
]
names = pytest.mark.parametrize("pair", PAIRS, ids="-".join)


@names
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_distances_are_those_of_the_best_normal(pair, dtype):
    (a, first, _), (b, second, _) = (SHAPES[name] for name in pair)
    if "implicit" in pair and dtype == jnp.float32:
        pytest.skip("one dtype of a slow search")
    R, S = random_poses(RNG, MANY)[0], random_poses(RNG, MANY)[0]
    p = random_poses(RNG, MANY)[1]
    R, S, p = (np.asarray(x, dtype) for x in (R, S, p))
    found = batch(a().astype(dtype), b().astype(dtype))(R, S, p)
    assert found.distance.dtype == dtype
    found = jax.tree.map(lambda x: np.asarray(x, float), found)
    tolerance = 3e-5 if dtype == jnp.float32 else 3e-9
    np.testing.assert_array_equal(found.status, 0)
    for k in range(MANY):
        best, gap = brute(first, second, *(np.asarray(x[k], float) for x in (R, S, p)), RNG)
        # It is the gap along its normal, no other normal has a larger one, and none was tried in vain.
        assert abs(found.distance[k] - gap(np.asarray(found.normal[k : k + 1], float))[0]) < tolerance
        assert best - tolerance < found.distance[k] < best + 1e-2
    assert np.all(found.error < tolerance)
    across = found.distance[:, None] * found.normal
    np.testing.assert_allclose(found.point_b - found.point_a, across, atol=tolerance)
    # The points are points of the bodies: no supporting plane cuts them off.
    along = unit(RNG.normal(size=(500, 3)))
    for k in range(MANY):
        x, y = np.asarray(found.point_a[k], float), np.asarray(found.point_b[k], float)
        assert np.all(along @ x <= first(along @ R[k]) + tolerance)
        assert np.all(along @ y <= second(along @ S[k]) + along @ p[k] + tolerance)


@pytest.mark.parametrize("depth", [1.0, 0.0], ids=["deep", "touching"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_boxes_that_are_nearly_aligned_have_the_distance_of_separating_axes(depth, dtype):
    """Tilted by 1e-4 rad, with corners that are aligned to 1e-9: many faces of their difference are nearly as near."""
    count, up = 400, 2.0 - depth
    turns = 1e-4 * RNG.normal(size=(count, 3)) * (RNG.uniform(size=(count, 3)) < 0.7)
    places = 1e-8 * RNG.normal(size=(count, 3)) - [0, 0, 1e-3] * RNG.uniform(size=(count, 1)) + [0, 0, up]
    S = np.asarray(so3.exp(jnp.asarray(turns)))
    one, eye = shapes.box(1).astype(dtype), jnp.broadcast_to(jnp.eye(3, dtype=dtype), (count, 3, 3))
    found = batch(one, one)(eye, jnp.asarray(S, dtype), jnp.asarray(places, dtype))
    np.testing.assert_array_equal(found.status, 0)
    for k in range(count):
        axes = [*np.eye(3), *S[k].T, *(np.cross(a, b) for a in np.eye(3) for b in S[k].T)]
        axes = np.array([n / np.linalg.norm(n) for n in axes if np.linalg.norm(n) > 1e-9])
        gaps = np.abs(axes @ places[k]) - np.abs(axes).sum(1) - np.abs(axes @ S[k]).sum(1)
        if gaps.max() < 0:
            assert abs(float(found.distance[k]) - gaps.max()) < (3e-5 if dtype == jnp.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_boxes_with_edges_that_are_nearly_parallel_have_their_distance_and_points_on_them(dtype):
    """The triangle of corners that holds the normal is then nearly a line."""
    count, rng = 3000, np.random.default_rng(2)
    turn = lambda w: np.asarray(so3.exp(jnp.asarray(w)))
    tilt = 10.0 ** rng.uniform(-8, -2, (count, 1)) * rng.normal(size=(count, 3))
    about = np.stack([np.zeros(count), np.zeros(count), rng.uniform(-np.pi, np.pi, count)], 1)
    R, relative = turn(2 * rng.normal(size=(count, 3))), turn(tilt) @ turn(about)
    # From an edge along z of the first box to the edge of the other one that looks back.
    gap, angle = 10.0 ** rng.uniform(-4, 0, count), rng.uniform(0.1, 1.4, count)
    normal = np.stack([np.cos(angle), np.sin(angle), np.zeros(count)], 1)
    back = -np.sign(np.einsum("nji,nj->ni", relative, normal)) * AXES
    back[:, 2] = rng.uniform(-1, 1, count) * AXES[2]
    edge = np.stack([*np.broadcast_to(AXES[:2, None], (2, count)), rng.uniform(-1, 1, count) * AXES[2]], 1)
    place = edge + gap[:, None] * normal - np.einsum("nij,nj->ni", relative, back)
    R, S, p = (np.asarray(x, dtype) for x in (R, R @ relative, np.einsum("nij,nj->ni", R, place)))
    box = SHAPES["box"][0]().astype(dtype)
    found = jax.tree.map(lambda x: np.asarray(x, float), batch(box, box)(R, S, p))
    R, S, p = (np.asarray(x, float) for x in (R, S, p))
    tolerance = 3e-5 if dtype == jnp.float32 else 3e-9
    for point, turned, middle in ((found.point_a, R, 0 * p), (found.point_b, S, p)):
        assert np.all(outside(point[:, None], AXES, turned, middle) < tolerance)
    solved = found.status == 0
    assert np.mean(solved) > (0.99 if dtype == jnp.float32 else 0.999)
    wanted = box_distances(AXES, AXES, R, S, p)
    np.testing.assert_allclose(found.distance[solved], wanted[solved], rtol=0, atol=tolerance)


def test_an_edge_that_is_parallel_to_a_face_to_round_off_has_its_height_as_distance():
    """The corners of their difference then coincide in pairs, and differ by round-off in any direction."""
    count, rng = 20_000, np.random.default_rng(0)
    turn = lambda w: np.asarray(so3.exp(jnp.asarray(w)))
    height, tilt = 10.0 ** rng.uniform(-7, -5, count), np.zeros((count, 3))
    tilt[:, 1] = rng.uniform(0.2, 0.9, count)
    face = np.stack([rng.uniform(-0.6, 0.3, count), np.zeros(count), -1 - height], 1)
    edge = np.einsum("nij,nj->ni", turn(tilt), face)  # from the middle of the tilted box
    R, S = turn(tilt) @ turn(1e-16 * rng.normal(size=(count, 3))), turn(1e-16 * rng.normal(size=(count, 3)))
    found = batch(shapes.box(1), shapes.box(1))(R, S, edge - [1, 0, 1])
    np.testing.assert_array_equal(found.status, 0)
    np.testing.assert_allclose(found.distance, height, rtol=0, atol=1e-12)


def at(turn, place):
    return Pose(so3.exp(jnp.asarray(turn, float)), jnp.asarray(place, float))


STILL = at((0, 0, 0), (0, 0, 0))
QUARTER = np.pi / 4
# name: two shapes, the pose of the second, distance, and the normal or None where it is not unique
CLOSED: dict = {
    "spheres": (shapes.sphere(0.3), shapes.sphere(0.5), at((1, 2, 3), (0, 3, 4)), 4.2, (0, 0.6, 0.8)),
    "concentric spheres": (shapes.sphere(0.3), shapes.sphere(0.5), STILL, -0.8, None),
    "touching spheres": (shapes.sphere(0.5), shapes.sphere(0.5), at((1, 2, 3), (0, 0, 1)), 0.0, (0, 0, 1)),
    "parallel capsules": (shapes.capsule(0.1, 1), shapes.capsule(0.2, 1), at((0, 0, 0), (1, 0, 0.5)), 0.7, (1, 0, 0)),
    "crossing capsules": (shapes.capsule(0.1, 1), shapes.capsule(0.2, 1), at((np.pi / 2, 0, 0), (0, 0, 0)), -0.3, None),
    "equal capsules": (shapes.capsule(0.1, 1), shapes.capsule(0.1, 1), STILL, -0.2, None),
    "box on box": (shapes.box(1), shapes.box(0.5), at((0, 0, 0.4), (0.2, 0.1, 1.5)), 0.0, (0, 0, 1)),
    "box over box": (shapes.box(1), shapes.box(0.5), at((0, 0, 0.4), (0.2, 0.1, 1.6)), 0.1, (0, 0, 1)),
    "box in box": (shapes.box(1), shapes.box(0.5), at((0, 0, 0), (0, 0.1, 0.3)), -1.2, (0, 0, 1)),
    "equal boxes": (shapes.box(1), shapes.box(1), STILL, -2.0, None),
    "box beside box": (shapes.box(1), shapes.box(1), at((0, 0, 0), (3, 3, 0)), 2**0.5, (0.5**0.5, 0.5**0.5, 0)),
    "corner to corner": (shapes.box(1), shapes.box(1), at((0, 0, 0), (3, 3, 3)), 3**0.5, (3**-0.5,) * 3),
    "touching corners": (shapes.box(1), shapes.box(1), at((0, 0, 0), (2, 2, 2)), 0.0, None),
    "touching edges": (shapes.box(1), shapes.box(1), at((0, 0, 0), (2, 2, 0)), 0.0, None),
    "crossing edges": (
        shapes.placed(shapes.box(1), at((QUARTER, 0, 0), (0, 0, 0))),
        shapes.placed(shapes.box(1), at((0, QUARTER, 0), (0, 0, 0))),
        at((0, 0, 0), (0.1, 0.2, 2 * 2**0.5 + 0.1)),
        0.1,
        (0, 0, 1),
    ),
    "crossing edges that overlap": (
        shapes.placed(shapes.box(1), at((QUARTER, 0, 0), (0, 0, 0))),
        shapes.placed(shapes.box(1), at((0, QUARTER, 0), (0, 0, 0))),
        at((0, 0, 0), (0.1, 0.2, 2 * 2**0.5 - 0.1)),
        -0.1,
        (0, 0, 1),
    ),
    "cylinder on box": (shapes.box(1), shapes.cylinder(0.3, 0.5), at((0, 0, 1), (0.2, 0.1, 1.5)), 0.0, (0, 0, 1)),
    "cylinder into box": (shapes.box(1), shapes.cylinder(0.3, 0.5), at((0, 0, 1), (0.2, 0, 1.4)), -0.1, (0, 0, 1)),
    "lying cylinder": (
        shapes.box(1),
        shapes.cylinder(0.3, 0.5),
        at((np.pi / 2, 0, 0), (0.2, 0, 1.4)),
        0.1,
        (0, 0, 1),
    ),
    "coaxial cylinders": (shapes.cylinder(0.3, 1), shapes.cylinder(0.2, 1), at((0, 0, 0), (0, 0, 2)), 0.0, (0, 0, 1)),
    "equal cylinders": (shapes.cylinder(0.3, 1), shapes.cylinder(0.3, 1), STILL, -0.6, None),
    "equal ellipsoids": (shapes.ellipsoid((1, 2, 3)), shapes.ellipsoid((1, 2, 3)), STILL, -2.0, None),
    "ellipsoid on box": (shapes.box(1), shapes.ellipsoid((1, 2, 3)), at((0, 0, 0), (0, 0.5, 4)), 0.0, (0, 0, 1)),
    "sphere on corner": (shapes.box(1), shapes.sphere(0.5), at((0, 0, 0), (1.5,) * 3), 0.75**0.5 - 0.5, (3**-0.5,) * 3),
    "sphere amid box": (shapes.box((1, 2, 3)), shapes.sphere(0.5), STILL, -1.5, None),
    "far away": (shapes.box(1), shapes.sphere(1.0), at((0, 0, 0), (1e6, 0, 0)), 1e6 - 2, (1, 0, 0)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_distances_in_closed_form(name):
    a, b, pose, wanted, normal = CLOSED[name]
    found = shapes.distance(a, STILL, b, pose)
    assert DistanceStatus(int(found.status)) == DistanceStatus.OK
    np.testing.assert_allclose(found.distance, wanted, atol=1e-12, rtol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(found.normal), 1, rtol=1e-14)
    if normal is not None:
        np.testing.assert_allclose(found.normal, normal, atol=1e-9)


@jax.jit
def first_and_second(a, b, pose):
    """Derivatives of everything to the pose of b, and the second ones of the distance."""

    def moved(x):
        there = Pose(pose.rotation @ so3.exp(x[:3]), pose.translation + x[3:])
        found = shapes.distance(a, STILL, b, there)
        return found.distance, found.point_a, found.point_b, found.normal

    zero = jnp.zeros(6)
    return jax.jacfwd(moved)(zero), jax.hessian(lambda x: moved(x)[0])(zero)


@pytest.mark.parametrize("name", CLOSED)
def test_derivatives_are_finite_where_bodies_touch_and_where_nothing_is_unique(name):
    a, b, pose, _, _ = CLOSED[name]
    for leaf in jax.tree.leaves(first_and_second(a, b, pose)):
        assert np.all(np.isfinite(leaf))


@names
def test_derivatives_are_those_of_differences(pair):
    """To poses and shapes, forward and reverse; of the distance to second order, of points and normal to first."""
    a, b = (SHAPES[name][0]() for name in pair)
    if "implicit" in pair:
        pytest.skip("derivatives of its search are tested with it")
    count = 10
    R, S = random_poses(RNG, count)[0], random_poses(RNG, count)[0]
    p = random_poses(RNG, count)[1]
    leaves, tree = jax.tree.flatten((a, b))
    floats = sum(x.size for x in leaves)
    change = jnp.asarray(RNG.normal(size=floats))
    ends = np.cumsum([x.size for x in leaves])[:-1]

    def of(x, R, S, p):
        some = [leaf + x[6] * 0.1 * c.reshape(leaf.shape) for leaf, c in zip(leaves, jnp.split(change, ends))]
        first, second = jax.tree.unflatten(tree, some)
        there = Pose(S @ so3.exp(x[:3]), p + x[3:6])
        found = shapes.distance(first, Pose(R, 0 * p), second, there)
        return found.distance, (found.point_a, found.point_b, found.normal)

    zero, eps = jnp.zeros(7), 1e-5
    both = lambda x, *place: (of(x, *place)[0], jax.grad(of, has_aux=True)(x, *place)[0], of(x, *place)[1])
    along = jax.jit(jax.vmap(jax.jacfwd(both), (None, 0, 0, 0)))(zero, R, S, p)
    value = jax.jit(jax.vmap(jax.vmap(both, (0, None, None, None)), (None, 0, 0, 0)))
    steps = eps * jnp.concatenate([jnp.eye(7), -jnp.eye(7)])
    there = value(steps, R, S, p)
    of_pair = jax.tree.map(lambda x: jnp.moveaxis((x[:, :7] - x[:, 7:]) / (2 * eps), 1, -1), there)
    # Not where another feature touches within the step.
    second = of_pair[1]
    smooth = np.max(np.abs(second - jnp.swapaxes(second, 1, 2)), axis=(1, 2)) < 1e-4
    smooth &= np.max(np.abs(along[1] - second), axis=(1, 2)) < 1e-3 * (1 + np.max(np.abs(second), axis=(1, 2)))
    assert np.mean(smooth) > 0.7
    reverse = jax.jit(jax.vmap(jax.grad(of, has_aux=True), (None, 0, 0, 0)))(zero, R, S, p)[0]
    np.testing.assert_allclose(along[0], reverse, atol=1e-9)
    np.testing.assert_allclose(along[0], of_pair[0], atol=1e-6)
    for found, wanted in zip(jax.tree.leaves(along[1:]), jax.tree.leaves(of_pair[1:])):
        size = 1 + np.max(np.abs(wanted[smooth]))
        np.testing.assert_allclose(found[smooth], wanted[smooth], atol=1e-5 * size)


@pytest.mark.parametrize("pair", [("box", "box"), ("capsule", "cylinder")])
def test_a_pair_alone_and_in_a_batch_has_the_same_distance(pair):
    a, b = (SHAPES[name][0]() for name in pair)
    R, S = random_poses(RNG, 20)[0], random_poses(RNG, 20)[0]
    p = random_poses(RNG, 20)[1]
    whole, run = batch(a, b)(R, S, p), batch(a, b)
    for k in (0, 7, 19):
        one = run(R[k : k + 1], S[k : k + 1], p[k : k + 1])
        for x, y in zip(one, whole):
            np.testing.assert_allclose(x[0], y[k], rtol=1e-12, atol=1e-12)


def test_swapped_bodies_have_the_same_distance_and_the_opposite_normal():
    R, S = random_poses(RNG, MANY)[0], random_poses(RNG, MANY)[0]
    p = random_poses(RNG, MANY)[1]
    a, b = SHAPES["box"][0](), SHAPES["cylinder"][0]()
    there = batch(a, b)(R, S, p)
    back = jax.vmap(lambda R, S, p: shapes.distance(b, Pose(S, p), a, Pose(R, 0 * p)))(R, S, p)
    np.testing.assert_allclose(there.distance, back.distance, atol=1e-12)
    np.testing.assert_allclose(there.normal, -back.normal, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "implicit"])
def test_gaps_along_normals_are_those_of_support_points(name):
    (R, p), n = random_poses(RNG, 30), jnp.asarray(unit(RNG.normal(size=(30, 3))))
    a, b = SHAPES[name][0](), SHAPES["box"][0]()

    def both(R, p, n):
        D = difference(a, Pose(R, 0 * p), b, Pose(R.T, p))[0]
        return D.gap(n), -D.support(n)[0] @ n

    np.testing.assert_allclose(*jax.jit(jax.vmap(both))(R, p, n), rtol=0, atol=1e-14)


def test_what_is_not_finite_has_a_status():
    found = shapes.distance(shapes.sphere(1.0), STILL, shapes.box(1), STILL._replace(translation=jnp.full(3, jnp.nan)))
    assert DistanceStatus(int(found.status)) & DistanceStatus.NOT_FINITE


def test_traced_hulls_that_are_flat_or_inverted_have_a_distance_and_others_a_status():
    """Of a cube turned inside out it is that of the cube, of a plate the depth at which it cuts a box; a point in a box
    has no normal that three corners hold."""
    corners = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1.0])).reshape(3, 8).T
    hull = shapes.polyhedron(corners)
    scaled = lambda scale: jax.tree.map(lambda x: x * scale if x.ndim == 2 else x, hull)
    of = lambda scale, x: shapes.distance(scaled(scale), STILL, shapes.box(1), STILL._replace(translation=x))
    scales = jnp.array([[-1, 1, 1], [-1, -1, -1], [1, 1, 0], [0, 0, 0], [1, 1, np.nan], [1, 1, np.inf]])
    both = jax.jit(jax.vmap(jax.vmap(of, (0, None)), (None, 0)))
    found = both(scales, jnp.array([[0.3, 0.1, 0.2], [3.0, 0.1, 0.2]]))
    np.testing.assert_allclose(found.distance[:, :3], [[-1.7, -1.7, -0.8], [1, 1, 1]], atol=1e-12)
    not_solved, not_finite = int(DistanceStatus.NOT_SOLVED), int(DistanceStatus.NOT_FINITE)
    np.testing.assert_array_equal(found.status[:, :4], [[0, 0, 0, not_solved], [0, 0, 0, 0]])
    assert np.all(np.asarray(found.status[:, 4:]) & not_finite)


@pytest.mark.parametrize(
    "shape",
    [
        shapes.union(shapes.sphere(1.0), shapes.box(1)),
        shapes.complement(shapes.sphere(1.0)),
        shapes.placed(shapes.union(shapes.sphere(1.0)), STILL),
        shapes.intersection(shapes.sphere(1.0), shapes.complement(shapes.sphere(1.0, (1, 0, 0)))),
    ],
    ids=lambda shape: type(shape).__name__,
)
def test_shapes_that_are_not_convex_raise(shape):
    with pytest.raises(ValueError, match="convex"):
        shapes.distance(shapes.sphere(1.0), STILL, shape, STILL)
