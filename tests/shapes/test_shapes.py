"""Support points, distances from planes and their derivatives, against brute force and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from scipy.optimize import minimize

import lgjax
from lgjax import Pose, shapes, so3
from lgjax.shapes import Plane
from lgjax.shapes.implicit import Solved

RNG = np.random.default_rng(0)
CORNERS = np.array(
    [[1.0, 0.2, -0.3], [-1.0, 0.5, 0.1], [0.2, -1.1, 0.4], [0.1, 0.3, 1.2], [-0.4, -0.5, -0.9], [0, 0, 0]]
)
TURN = np.asarray(so3.exp(jnp.array([0.3, -0.5, 0.7])))
DTYPES = [jnp.float32, jnp.float64]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)


def quartic(point, axes):
    """A superquadric, curved everywhere but at six points."""
    z = point / axes
    return jnp.sum(z * z * z * z) - 1


def egg(direction, axes):
    """Support point of an ellipsoid added to a ball."""
    u = axes * direction
    return axes * u / jnp.sqrt(jnp.sum(u * u)) + 0.5 * direction


ELLIPSOIDS = ((np.array([3.0, 4, 5]), np.array([1.5, 0, 0])), (np.array([6.0, 1, 1]), np.array([-4.5, 0, 0])))
AXES = np.array([2.0, 3, 4])


def unit(u):
    return u / np.linalg.norm(u, axis=-1, keepdims=True)


def spread(points, ball):
    """Every point of a list with every direction: the surface of a rounded polytope, and more."""
    return (points[:, None] + ball * unit(RNG.normal(size=(3000, 3)))).reshape(-1, 3)


def lens_samples():
    """Points of two unit balls about +-1/2 that lie in both."""
    points = np.concatenate([unit(RNG.normal(size=(100000, 3))) + np.array([s, 0, 0]) for s in (0.5, -0.5)])
    angle = np.linspace(0, 2 * np.pi, 20000)
    rim = np.sqrt(0.75) * np.stack([0 * angle, np.cos(angle), np.sin(angle)], axis=1)
    inside = np.all([np.linalg.norm(points - [s, 0, 0], axis=1) <= 1 for s in (0.5, -0.5)], axis=0)
    return np.concatenate([points[inside], rim])


GRID = np.stack(np.meshgrid(*[np.linspace(-1, 1, 9)] * 3), axis=-1).reshape(-1, 3)
BALL = unit(RNG.normal(size=(200000, 3)))
# name: (shape, points of it that come within 2e-3 of every support point, whether its surface is smooth)
CASES = {
    "ellipsoid": lambda: (shapes.ellipsoid(AXES, (0.1, 0.2, -0.3)), AXES * BALL + [0.1, 0.2, -0.3], True),
    "sphere": lambda: (shapes.sphere(1.5), 1.5 * BALL, True),
    "box": lambda: (shapes.box((1, 2, 3), (0.5, 0, 0)), GRID * [1, 2, 3] + [0.5, 0, 0], False),
    "rounded box": lambda: (shapes.box(1, rounding=0.2), spread(shapes.convex.cuboid_vertices(np.ones(3)), 0.2), False),
    "capsule": lambda: (shapes.capsule(0.5, 1.0), np.concatenate([0.5 * BALL + [0, 0, s] for s in (-1, 0, 1)]), False),
    "polyhedron": lambda: (shapes.polyhedron(CORNERS), RNG.dirichlet(np.full(6, 0.1), 5000) @ CORNERS, False),
    "placed": lambda: (
        shapes.placed(shapes.ellipsoid(AXES), Pose(jnp.asarray(TURN), jnp.array([1.0, 0, 0]))),
        (AXES * BALL) @ TURN.T + [1, 0, 0],
        True,
    ),
    "support function": lambda: (
        shapes.support(egg, (jnp.asarray(AXES),)),
        AXES * BALL + 0.5 * unit(BALL / AXES),
        True,
    ),
    "implicit": lambda: (
        shapes.implicit(quartic, parameters=(jnp.asarray(AXES),)),
        AXES * BALL / np.sum(BALL**4, axis=1, keepdims=True) ** 0.25,
        True,
    ),
    "union": lambda: (
        shapes.union(*(shapes.ellipsoid(a, c) for a, c in ELLIPSOIDS)),
        np.concatenate([a * BALL + c for a, c in ELLIPSOIDS]),
        False,
    ),
    "intersection": lambda: (
        shapes.intersection(*(shapes.sphere(1.0, (s, 0, 0)) for s in (0.5, -0.5))),
        lens_samples(),
        False,
    ),
}
BUILT = {}
each_shape = pytest.mark.parametrize("name", CASES)


def case(name):
    if name not in BUILT:
        BUILT[name] = CASES[name]()
    return BUILT[name]


def poses(count, dtype, seed=1):
    rng = np.random.default_rng(seed)
    R = so3.exp(jnp.asarray(rng.normal(size=(count, 3)) * 2, jnp.float64))
    return Pose(R.astype(dtype), jnp.asarray(rng.normal(size=(count, 3)) * 4, dtype))


def planes(dtype):
    """Horizontal, tilted by two degrees, shifted, a wall."""
    tilt = np.deg2rad(2)
    normals = [[0, 0, 1], [np.sin(tilt), 0, np.cos(tilt)], [0, 0, 3], [-1, 2, 0.5]]
    return Plane(jnp.asarray(normals, dtype), jnp.asarray([0, 0, 5, -2], dtype))


def all_gaps(shape, planes, poses):
    each = jax.vmap(jax.vmap(shapes.gap, (None, 0, None)), (None, None, 0))
    return jit(each)(shape, planes, poses)


@each_shape
@each_dtype
def test_distance_is_the_least_over_the_surface(name, dtype):
    shape, samples, _ = case(name)
    shape, where, walls = shape.astype(dtype), poses(6, dtype), planes(dtype)
    got = jax.tree.map(np.asarray, all_gaps(shape, walls, where))
    assert {x.dtype for x in (got.gap, got.point)} == {jnp.dtype(dtype)}
    n, D = np.asarray(walls.normal, float), np.asarray(walls.offset, float)
    R, x = np.asarray(where.rotation, float), np.asarray(where.translation, float)
    world = samples @ np.swapaxes(R, 1, 2) + x[:, None]
    brute = np.min(world @ n.T, axis=1) + D
    slack = 200 * float(jnp.finfo(dtype).eps)
    assert np.all(got.gap <= brute + slack)
    np.testing.assert_allclose(got.gap, brute, atol=2e-3)
    # and the point is one of the body: no constraint is violated, where there are any
    there = np.einsum("pij,pkj->pki", R, np.asarray(got.point, float)) + x[:, None]
    np.testing.assert_allclose(np.einsum("kj,pkj->pk", n, there) + D, got.gap, atol=slack)
    assert not np.any(got.flat)


@pytest.mark.parametrize("normal", [(0, 0, 1), (0.3, -0.4, 0.8)])
def test_ellipsoid_distance_is_what_a_minimiser_finds(normal):
    """Phi = n·x - |I R^T n|, to ten digits, by minimization over the surface and by the formula."""
    for pose in (jax.tree.map(lambda x, i=i: x[i], poses(3, jnp.float64)) for i in range(3)):
        plane = Plane(np.array(normal, float), 0.5)
        R, x, n = (np.asarray(v) for v in (*pose, plane.normal))
        height = lambda u, R=R, x=x, n=n: n @ (R @ (AXES * unit(u)) + x) + 0.5
        start = BALL[np.argmin([height(u) for u in BALL[:500]])]
        found = minimize(height, start, method="BFGS", options={"gtol": 1e-9}).fun
        got = shapes.gap(shapes.ellipsoid(AXES), plane, pose).gap
        np.testing.assert_allclose(got, found, atol=1e-10)
        np.testing.assert_allclose(got, n @ x + 0.5 - np.linalg.norm(AXES * (R.T @ n)), atol=1e-14)


@each_shape
def test_derivatives_are_those_of_finite_differences_and_of_the_envelope(name):
    """dPhi/dx = n and dPhi/dR = rho x R^T n; second derivatives of smooth bodies, forward and reverse."""
    shape, _, smooth = case(name)
    plane = jax.tree.map(lambda x: x[1], planes(jnp.float64))

    def moved(step, pose):
        return shapes.gap(shape, plane, Pose(pose.rotation @ so3.exp(step[:3]), pose.translation + step[3:])).gap

    first = jax.grad(moved)
    evaluate = jit(lambda s, p: (moved(s, p), first(s, p), jax.jacfwd(moved)(s, p), jax.jacfwd(first)(s, p)))
    chi = jit(lambda p: jnp.concatenate(shapes.gap_derivatives(shape, plane, p)[::-1]))
    zero, h = jnp.zeros(6), 1e-5
    for i in range(3):
        pose = jax.tree.map(lambda x, i=i: x[i], poses(3, jnp.float64, seed=7))
        _, reverse, forward, second = evaluate(zero, pose)
        np.testing.assert_allclose(reverse, chi(pose), atol=1e-12)
        np.testing.assert_allclose(forward, chi(pose), atol=1e-12)
        ends = [[evaluate(sign * h * e, pose) for sign in (1, -1)] for e in jnp.eye(6)]
        differences = [(a[0] - b[0]) / (2 * h) for a, b in ends]
        np.testing.assert_allclose(reverse, differences, atol=1e-8)
        if smooth:
            differences = np.stack([(a[1] - b[1]) / (2 * h) for a, b in ends], axis=1)
            np.testing.assert_allclose(second, differences, atol=1e-7)


@each_shape
@each_dtype
def test_support_ignores_the_length_of_the_direction_and_turns_with_the_body(name, dtype):
    shape = case(name)[0].astype(dtype)
    d = jnp.asarray(unit(np.random.default_rng(3).normal(size=(5, 3))), dtype)
    point = jit(jax.vmap(shape.support))
    expected, eps = point(d).point, float(jnp.finfo(dtype).eps)
    tolerance = 1e4 * eps if isinstance(shape, Solved) else 100 * eps
    for length in (2.0**-70, 2.0**70):
        np.testing.assert_array_equal(point(jnp.asarray(length, dtype) * d).point, expected)
    pose = Pose(jnp.asarray(TURN, dtype), jnp.asarray([1, -2, 0.5], dtype))
    turned = jit(jax.vmap(shapes.placed(shape, pose).support))(d @ pose.rotation.T)
    np.testing.assert_allclose(turned.point, expected @ pose.rotation.T + pose.translation, atol=tolerance)


@each_shape
def test_a_body_does_not_notice_the_others_of_its_batch(name):
    shape, walls, where = case(name)[0], planes(jnp.float64), poses(6, jnp.float64)
    other = jax.tree.map(lambda x: x.at[1:].set(x[:0:-1]), where)
    first, again = (all_gaps(shape, walls, p) for p in (where, other))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b[0]), first, again)


def test_union_is_the_least_of_its_parts():
    parts = [shapes.ellipsoid(a, c) for a, c in ELLIPSOIDS]
    where, walls = poses(20, jnp.float64), planes(jnp.float64)
    least = np.minimum(*(all_gaps(part, walls, where).gap for part in parts))
    np.testing.assert_allclose(all_gaps(shapes.union(*parts), walls, where).gap, least, atol=1e-14)


def test_intersection_reaches_the_corner_where_surfaces_meet():
    """Two unit balls about +-1/2: lowest at -sqrt(3)/2, where the least of the two distances would say -1."""
    contact = case("intersection")[0].support(jnp.array([0.0, 0, -1]))
    np.testing.assert_allclose(contact.point, [0, 0, -np.sqrt(0.75)], atol=1e-14)
    assert not contact.flat


def test_intersection_is_what_slsqp_finds():
    """Of three random ellipsoids about each other's middles."""
    rng = np.random.default_rng(5)
    axes, centers = rng.uniform(1, 3, (3, 3)), rng.normal(size=(3, 3)) * 0.4
    shape = shapes.intersection(*(shapes.ellipsoid(a, c) for a, c in zip(axes, centers, strict=True)))
    along = unit(rng.normal(size=(12, 3)))
    got = jit(jax.vmap(shape.optimum))(jnp.asarray(along))
    assert got.residual.max() < 1e-11
    active = set()
    for d, point, multipliers in zip(along, np.asarray(got.z), np.asarray(got.multipliers), strict=True):
        walls = {"type": "ineq", "fun": lambda z: 1 - np.sum(((z - centers) / axes) ** 2, axis=1)}
        found = minimize(lambda z, d=d: -d @ z, np.zeros(3), constraints=walls, method="SLSQP", options={"ftol": 1e-13})
        np.testing.assert_allclose(point @ d, -found.fun, atol=1e-9)
        assert np.all(walls["fun"](point) > -1e-13)
        active.add(int(np.sum(multipliers > 1e-6)))
    assert active >= {1, 2}  # smooth parts and edges were both met


def test_intersection_of_polytopes_and_unions():
    cube = shapes.polyhedron(shapes.convex.cuboid_vertices((1.0, 1, 1)))
    cut = jit(shapes.intersection(cube, shapes.sphere(1.2)).support)
    np.testing.assert_allclose(cut(jnp.array([1.0, 1, -1])).point, 1.2 / np.sqrt(3) * np.array([1, 1, -1]), atol=1e-12)
    below = cut(jnp.array([0.0, 0, -1]))
    assert below.flat
    np.testing.assert_allclose(below.point, [0, 0, -1], atol=1e-7)
    # a ball cut by two boxes, each of which takes away one half of what is below z = -0.5
    halves = shapes.union(*(shapes.box((1, 1, 1), (s, 0, 0.5)) for s in (1, -1)))
    lowest = shapes.intersection(shapes.sphere(1.0), halves).support(jnp.array([0.1, 0, -1.0]))
    np.testing.assert_allclose(lowest.point, [np.sqrt(0.75), 0, -0.5], atol=1e-10)


def test_a_bite_out_of_an_ellipsoid():
    """Lowest points of the ellipsoid where they are left, else of the rim of the bite; against dense samples."""
    axes, bite, center = np.array([2.0, 3, 4]), np.array([1.5, 1.8, 2]), np.array([0.2, 0.3, -3])
    shape = shapes.intersection(shapes.ellipsoid(axes), shapes.complement(shapes.ellipsoid(bite, center)))
    samples = axes * BALL
    samples = samples[np.sum(((samples - center) / bite) ** 2, axis=1) >= 1]
    d = unit(np.random.default_rng(0).normal(size=(40, 3)) * [0.5, 0.5, 1] - np.array([0, 0, 1]))
    points = np.asarray(jit(jax.vmap(shape.support))(jnp.asarray(d)).point)
    height, brute = np.sum(points * d, axis=1), np.max(d @ samples.T, axis=1)
    assert np.all(height > brute - 1e-12)
    np.testing.assert_allclose(height, brute, atol=1e-2)  # along the rim the spacing of the samples counts
    np.testing.assert_allclose(np.sum((points / axes) ** 2, axis=1), 1, atol=1e-14)
    rim = np.sum(((points - center) / bite) ** 2, axis=1)
    assert np.all(rim > 1 - 1e-13)
    assert np.sum(rim < 1 + 1e-13) > 10
    low, h = jnp.array([0.1, 0.2, -1]), 1e-6
    support = jit(lambda d: shape.support(d).point)
    differences = np.stack([(support(low + h * e) - support(low - h * e)) / (2 * h) for e in np.eye(3)], axis=1)
    np.testing.assert_allclose(jit(jax.jacrev(lambda d: shape.support(d).point))(low), differences, atol=1e-8)


@each_dtype
def test_faces_edges_and_corners_of_a_cube(dtype):
    """What lies flat is said to, and gives its middle, whatever the order of the corners."""
    corners = shapes.convex.cuboid_vertices(np.ones(3))
    cubes = [shapes.box(1.0), *(shapes.polyhedron(RNG.permutation(corners)) for _ in range(3))]
    for shape in (cube.astype(dtype) for cube in cubes):
        for direction, flat in (((0, 0, -1), True), ((0, 1, -1), True), ((1, -1, 1), False), ((0.01, 0.02, 1), False)):
            contact = shape.support(jnp.asarray(direction, dtype))
            assert contact.flat == flat
            np.testing.assert_allclose(contact.point, np.sign(direction), atol=1e-6)
            gradient = jax.jacrev(lambda d, s=shape: s.support(d).point)(jnp.asarray(direction, dtype))
            np.testing.assert_array_equal(gradient, np.zeros((3, 3)))
    for direction, flat in (((1, 0, 0), True), ((0.1, 0, 1), False)):
        assert shapes.capsule(1.0, 2.0).support(jnp.asarray(direction, jnp.float64)).flat == flat


@pytest.mark.parametrize("rounding", [1e-13, 1e-3, 0.5])
def test_rounding_adds_itself(rounding):
    where, walls = poses(10, jnp.float64), planes(jnp.float64)
    sharp, round_ = (all_gaps(shapes.box(1.0, rounding=r), walls, where).gap for r in (0.0, rounding))
    np.testing.assert_allclose(sharp - round_, rounding, atol=2e-14)


def test_shapes_planes_and_parameters_are_pytrees():
    """Built and differentiated inside jit and vmap: the height of an ellipsoid's lowest point is -|I d|."""

    def lowest(axes, normal):
        pose = Pose(jnp.eye(3), jnp.zeros(3))
        return shapes.gap(shapes.union(shapes.ellipsoid(axes)), Plane(normal, 0.0), pose).gap

    axes, n = jnp.asarray(RNG.uniform(1, 2, (4, 3))), jnp.asarray(unit(RNG.normal(size=(4, 3))))
    got = jit(jax.vmap(jax.grad(lowest)))(axes, n)
    expected = -axes * n * n / np.linalg.norm(axes * n, axis=1)[:, None]
    np.testing.assert_allclose(got, expected, atol=1e-14)
    # a parameter of an intersection: two balls of radius r meet at height -sqrt(r^2 - 1/4)
    lens = case("intersection")[0]

    def depth(radius):
        parts = tuple(part.__class__(jnp.full(3, radius), part.center) for part in lens.parts)
        return lens.__class__(parts, lens.start, lens.size).support(jnp.array([0.0, 0, -1])).point[2]

    rate = jit(jax.grad(depth))(1.0), jit(jax.grad(jax.grad(depth)))(1.0)
    np.testing.assert_allclose(rate, [-(0.75**-0.5), 0.25 * 0.75**-1.5], atol=1e-10)


def test_planes():
    plane = Plane((0, 0, 2), 3)
    np.testing.assert_array_equal(plane.normal, [0, 0, 1])
    assert plane.offset == 3
    walls = Plane(np.eye(3), [1, 2, 3])
    gaps = jax.vmap(shapes.gap, (None, 0, None))(shapes.sphere(1.0), walls, Pose(jnp.eye(3), jnp.zeros(3))).gap
    np.testing.assert_allclose(gaps, [0, 1, 2], atol=1e-15)
    built = jit(jax.vmap(lambda n: Plane(n).normal))(2 * jnp.eye(3))
    np.testing.assert_array_equal(built, np.eye(3))
    assert lgjax.shapes.Plane is shapes.Plane


FLAT = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0.5, 0.5, 0.0]])
BAD = {
    "normal of the plane has length zero": lambda: Plane((0, 0, 0)),
    "normal of the plane is not finite": lambda: Plane((0, np.nan, 1)),
    r"normal of the plane has shape \(2,\)": lambda: Plane((0, 1)),
    r"offset of the plane has shape \(2,\)": lambda: Plane(np.eye(3), (1, 2)),
    r"semi-axes of the ellipsoid is not positive: \[1.0, -2.0, 3.0\]": lambda: shapes.ellipsoid((1, -2, 3)),
    r"semi-axes of the ellipsoid has shape \(2,\)": lambda: shapes.ellipsoid((1, 2)),
    "center of the ellipsoid is not finite": lambda: shapes.ellipsoid((1, 2, 3), (0, 0, np.inf)),
    "radius of the sphere is not positive: 0.0": lambda: shapes.sphere(0.0),
    "half extents of the box is not positive": lambda: shapes.box((1, 1, 0)),
    "half length of the capsule is negative: -1.0": lambda: shapes.capsule(1, -1),
    "at least 4 vertices, not 3": lambda: shapes.polyhedron(np.eye(3)),
    "vertices of the polyhedron lie in one plane": lambda: shapes.polyhedron(FLAT),
    "vertices of the polyhedron lie in one plane: .*0.0": lambda: shapes.polyhedron(0 * CORNERS),
    "vertices of the polyhedron is not finite": lambda: shapes.polyhedron(CORNERS * [1, 1, np.nan]),
    "half extents of the box is not finite": lambda: shapes.box((1, np.nan, 1)),
    "half length of the cylinder is not positive: -1.0": lambda: shapes.cylinder(0.1, -1),
    "translation of the pose is not finite": lambda: shapes.placed(
        shapes.sphere(1.0), Pose(np.eye(3), np.full(3, np.nan))
    ),
    "rounding is negative: -0.1": lambda: shapes.polyhedron(CORNERS, rounding=-0.1),
    "is not a rotation": lambda: shapes.placed(shapes.sphere(1.0), Pose(2 * np.eye(3), np.zeros(3))),
    "non-convex support": lambda: shapes.support(lambda d: d * (1 + 0.5 * d[0] * d[0])),
    "the support point along .* is not finite": lambda: shapes.support(lambda d: d / (d[0] - 1)),
    "the support function returns": lambda: shapes.support(lambda d: d[0]),
    "does not contain its inside point": lambda: shapes.implicit(quartic, (9.0, 0, 0), (jnp.ones(3),)),
    r"has no end along \[0.0, 0.0, 1.0\]": lambda: shapes.implicit(lambda p: p[0] * p[0] + p[1] * p[1] - 1),
    "no interior point in common": lambda: shapes.intersection(shapes.sphere(1.0), shapes.sphere(1.0, (3, 0, 0))),
    "Rounded has no constraint functions": lambda: shapes.intersection(shapes.box(1, rounding=0.1), shapes.sphere(1.0)),
    "a complement alone is unbounded": lambda: shapes.complement(shapes.sphere(1.0)).support(jnp.ones(3)),
    "does not reach the surface": lambda: shapes.intersection(
        shapes.sphere(2.0), shapes.complement(shapes.sphere(1.0))
    ),
    "leaves nothing of": lambda: shapes.intersection(shapes.sphere(1.0), shapes.complement(shapes.sphere(2.0))),
    "not 0 and 1": lambda: shapes.intersection(shapes.complement(shapes.sphere(2.0))),
    "Box has faces": lambda: shapes.intersection(shapes.sphere(1.0), shapes.complement(shapes.box(1.0))),
    "a union needs at least one shape": shapes.union,
    "an intersection needs at least one shape": shapes.intersection,
    "union takes shapes, not 3": lambda: shapes.union(3),
    "differ in dtype: float32, float64": lambda: shapes.union(shapes.sphere(1.0), shapes.sphere(jnp.float32(1))),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


def test_a_surface_that_is_not_convex_is_refused():
    """Two overlapping balls joined smoothly into a peanut."""

    def peanut(p):
        return jnp.sum(p * p) * jnp.sum(p * p) - 2 * (p[0] * p[0] - p[1] * p[1] - p[2] * p[2]) - 0.1

    with pytest.raises(ValueError, match=r"non-convex support|search for the farthest point"):
        shapes.implicit(peanut)


def test_the_gap_has_derivatives_where_a_surface_has_no_curvature():
    """A quartic over a plane below its lowest point, which a small turn moves infinitely fast."""

    def gap(x):
        shape = shapes.implicit(quartic, parameters=(jnp.asarray(AXES) + x[3:],))
        pose = Pose(so3.exp(x[:3]), jnp.asarray([0.0, 0.0, 3.0]))
        return shapes.gap(shape, shapes.Plane((0.0, 0.0, 1.0)), pose).gap

    for derivative in (jax.jacrev, jax.jacfwd):
        np.testing.assert_allclose(derivative(gap)(jnp.zeros(6)), [0, 0, 0, 0, 0, -1], atol=1e-8)
    assert np.isfinite(jax.hessian(gap)(jnp.zeros(6))).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_thin_plate_as_an_implicit_surface_turns_as_the_ellipsoid(dtype):
    axes = jnp.asarray([1.0, 1.0, 0.003], dtype)
    surface = shapes.implicit(lambda p, a: jnp.sum((p / a) ** 2) - 1, jnp.zeros(3, dtype), (axes,))
    pose = Pose(so3.exp(jnp.asarray([0.4, -0.3, 0.2], dtype)), jnp.asarray([0.0, 0.0, 2.0], dtype))
    plane = shapes.Plane(jnp.asarray([0.0, 0.0, 1.0], dtype))
    found, exact = (shapes.gap_derivatives(shape, plane, pose) for shape in (surface, shapes.ellipsoid(axes)))
    for ours, theirs in zip(found, exact, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e4 * jnp.finfo(dtype).eps * np.abs(theirs).max())
