"""Height fields: distances at edges, vertices and twisted cells, their derivatives, and the energy of rolling balls."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact import HeightField, contact_points, contact_velocities
from lgjax.contact.geometry.nearest import nearest
from tests.contact.test_closed_forms import STEP, G, ball, free_body

DTYPES = pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])


def crest(slope, spacing=1.0):
    """A roof with its crest along y at x = 0."""
    x = spacing * (np.arange(9.0) - 4)
    return HeightField(-slope * np.abs(x)[:, None] + 0 * x[None], spacing)


def terrain(seed=0):
    return HeightField(0.05 * np.random.default_rng(seed).standard_normal((20, 20)), 0.2)


@cache
def distances():
    return jax.jit(nearest)


def at(model, place):
    return lgjax.configuration(model, lgjax.Pose(jnp.eye(3, dtype=model.dtype), jnp.asarray(place, model.dtype)))


@DTYPES
def test_a_ball_touches_a_crest_at_its_distance_from_the_edge(dtype):
    model, tight = ball().astype(dtype), 1e-13 if dtype == jnp.float64 else 1e-6
    for slope in (0.1, 0.5, 1.0, 2.0):
        contacts = lgjax.Contacts(model, crest(slope), {"body": lgjax.shapes.sphere(0.1)})
        place = lambda x, z, c=contacts: contact_points(model, c, at(model, (x, 0.3, z)))
        for z in (0.03, 0.1, 0.15):
            found = place(0.0, z)
            assert abs(float(found.gap[0]) - (z - 0.1)) < tight
            np.testing.assert_allclose(found.frame[0, 0], [0, 0, 1], atol=tight)
            np.testing.assert_allclose(found.point[0], [0, 0.3, z - 0.1], atol=tight)
        # within the cone of the normals the edge is nearest, beyond it a face
        for x, z in ((0.04 * slope, 0.05), (0.02, 0.01 / slope), (0.3, 0.1)):
            edge = x < slope * z
            distance = np.hypot(x, z) if edge else (z + slope * x) / np.hypot(1, slope)
            assert abs(float(place(x, z).gap[0]) - (distance - 0.1)) < tight


def test_the_nearest_point_of_random_terrain_is_none_of_its_points_in_less_distance():
    field, random = terrain(), np.random.default_rng(1)
    step = 0.004
    dense = np.arange(-2.1, 2.1 + step, step)
    x, y = (a.ravel() for a in np.meshgrid(dense, dense, indexing="ij"))
    surface = np.stack([x, y, np.asarray(field(jnp.stack([x, y], -1))[0])], -1)
    for height, radius in ((-0.05, 0.0), (0.02, 0.02), (0.1, 0.1), (0.15, 0.15), (0.15, 0.3)):
        points = random.uniform(-1.9, 1.9, (12, 3))
        points[:, 2] = np.asarray(field(jnp.asarray(points))[0]) + height
        found, normal = distances()(field, jnp.asarray(points), jnp.full(12, radius), jnp.zeros(3))
        foot = points - np.asarray(found[:, None] * normal)
        np.testing.assert_allclose(foot[:, 2], field(jnp.asarray(foot))[0], atol=1e-9)
        for point, distance in zip(points, np.asarray(found), strict=True):
            sampled = np.linalg.norm(surface - point, axis=1).min()
            assert sampled - step <= abs(distance) <= sampled + 1e-9
            assert distance * height > 0


def test_a_ball_finds_the_slope_of_a_fine_grid_and_the_height_beyond_it():
    x = 0.02 * (np.arange(60.0) - 29.5)
    field = HeightField(0.8 * x[:, None] - 0.3 * x[None], 0.02)
    normal = np.array([-0.8, 0.3, 1.0]) / np.sqrt(1.73)
    points = np.array([[0.1, 0.05, 0.2], [0.0, 0.0, 0.12], [5.0, 9.0, 0.2]])
    found, normals = distances()(field, jnp.asarray(points), jnp.full(3, 0.1), jnp.zeros(3))
    top = 0.5 * 0.59  # the corner of the grid
    np.testing.assert_allclose(found, [*(points[:2] @ normal), 0.2 - top], atol=1e-12)
    np.testing.assert_allclose(normals, [normal, normal, [0, 0, 1]], atol=1e-12)


def test_an_ellipsoid_touches_an_edge_between_the_normals_of_its_faces():
    axes, slope = np.array([0.2, 0.1, 0.06]), 1.0
    x = 0.5 * (np.arange(9.0) - 4)
    field = HeightField(-slope * np.maximum(x, 0)[:, None] + 0 * x[None], 0.5)
    contacts = lgjax.Contacts(ball(), field, {"body": lgjax.shapes.ellipsoid(tuple(axes))})
    for share in (0.1, 0.5, 0.9):
        angle = share * np.arctan(slope)
        normal = np.array([np.sin(angle), 0, np.cos(angle)])
        place = axes**2 * normal / np.sqrt(normal @ (axes**2 * normal)) + [0, 0.3, 0]
        found = contact_points(ball(), contacts, at(ball(), place))
        assert abs(found.gap[0]) < 2e-5
        np.testing.assert_allclose(found.frame[0, 0], normal, atol=1e-3)
        np.testing.assert_allclose(found.point[0], [0, 0.3, 0], atol=1e-3)


def test_gaps_over_terrain_change_at_the_velocities_of_the_contacts():
    """d gap/dt = normal velocity, of balls and corners above and below faces, edges and vertices."""
    shapes = [lgjax.shapes.sphere(0.03), lgjax.shapes.box((0.3, 0.2, 0.1)), lgjax.shapes.sphere(0.15, (0.4, 0.0, 0.0))]
    contacts = lgjax.Contacts(ball(), terrain(), {"body": shapes})

    @jax.jit
    @jax.vmap
    def rates(key):
        keys = jax.random.split(key)
        q, v = lgjax.random_configuration(keys[0], ball()), jax.random.normal(keys[1], (6,))
        place = 0.1 * q.free_poses.translation.at[:, :2].multiply(10.0)
        q = q._replace(free_poses=q.free_poses._replace(translation=place))
        gap = lambda s: contact_points(ball(), contacts, lgjax.retract(ball(), q, s * v)).gap
        return jax.jvp(gap, (0.0,), (1.0,))[1], contact_velocities(ball(), contacts, q, v)[..., 0]

    gap, normal = rates(jax.random.split(jax.random.key(0), 50))
    np.testing.assert_allclose(gap, normal, atol=1e-9)


def test_derivatives_of_distances_equal_central_differences():
    """Twice, along directions of the point, the height of the ground and the size of its cells."""
    field, random, step = terrain(2), np.random.default_rng(3), 1e-5

    def function(u, start, way):
        other = HeightField(field.heights + u * way[3], field.spacing * (1 + u * way[4]))
        distance, normal = nearest(other, (start + u * way[:3])[None], jnp.asarray([0.05]), jnp.zeros(3))
        return jnp.concatenate([distance, normal[0]])

    points, ways = random.uniform(-1.5, 1.5, (80, 3)), random.normal(size=(80, 5))
    points[:, 2] = np.asarray(field(jnp.asarray(points))[0]) + np.where(np.arange(80) < 40, 0.06, 0.02)
    both = lambda u, *rest: (function(u, *rest), *jax.jvp(jax.jacfwd(lambda u: function(u, *rest)), (u,), (1.0,)))
    run = jax.jit(jax.vmap(both, (None, 0, 0)))
    low, here, high = (run(u, points, ways) for u in (-step, 0.0, step))
    close = np.abs(high[1] - low[1]).max(1) < 1e-2  # the others cross from a face to an edge
    assert np.sum(close) > 70
    for k in (0, 1):
        difference = (high[k] - low[k]) / (2 * step)
        np.testing.assert_allclose(here[k + 1][close], difference[close], rtol=1e-4, atol=1e-4)


def test_derivatives_are_finite_where_the_ground_has_no_normal():
    """At a vertex, on it and above it: of flat ground, of a crest, and of a peak."""
    peak = np.zeros((9, 9))
    peak[4, 4] = 1.0
    heights = jnp.asarray([np.zeros((9, 9)), crest(1.0).heights, peak])
    one = lambda place, h: nearest(HeightField(h, jnp.asarray(1.0)), place[None], jnp.zeros(1), jnp.zeros(3))
    run = jax.jit(jax.vmap(lambda *x: (jax.jacfwd(one)(*x), jax.jacrev(one, (0, 1))(*x))))
    for above in (0.0, 0.1):
        found = run(jnp.zeros((3, 3)).at[:, 2].set(heights[:, 4, 4] + above), heights)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
        np.testing.assert_allclose(found[0][0][0, 0], [0, 0, 1], atol=1e-12)  # of flat ground


@DTYPES
def test_a_ball_without_friction_passes_over_a_crest_without_spin_or_energy(dtype):
    """It leaves the edge with the energy that it came with, and is in contact all the way."""
    model = ball().astype(dtype)
    contacts = lgjax.Contacts(model, crest(0.5), {"body": lgjax.shapes.sphere(0.1)}, friction=0.0)
    normal = np.array([-0.5, 0, 1]) / np.sqrt(1.25)
    along = np.array([1, 0, 0.5]) / np.sqrt(1.25)
    speed = 0.7  # so slow that gravity holds it on the edge: v^2 < g r cos
    place, v = 0.1 * normal - 0.02 * along, np.concatenate([np.zeros(3), speed * along])
    path = lgjax.rollout(model, at(model, place), jnp.asarray(v, dtype), None, 1e-3, 300, STEP, contacts=contacts)
    energy = jax.vmap(lambda q, v: lgjax.total_energy(model, q, v))(path.q, path.v)
    assert path.q.free_poses.translation[-1, 0, 0] > 0.06  # beyond the edge, at 0.0447 over the other face
    assert np.abs(energy - energy[0]).max() < 1e-5  # m (g dt)^2 / 2 = 7e-5
    assert np.abs(path.v[:, :3]).max() < (1e-5 if dtype == jnp.float32 else 1e-12)
    assert np.abs(path.contacts.gap).max() < 1e-6
    assert path.status == 0


def test_balls_without_friction_gain_neither_spin_nor_energy_on_random_terrain():
    """Moving out of faces that were not foreseen takes less than the work of gravity in a step, m (g dt)^2 / 2."""
    random, dt, mass, ground = np.random.default_rng(1), 2e-3, 1.5, terrain()
    starts = np.concatenate([random.uniform(-1, 1, (6, 2)), random.normal(size=(6, 2))], 1)
    of_size = lambda r: lgjax.Contacts(ball(), ground, {"body": lgjax.shapes.sphere(r)}, friction=0.0)
    many = jax.tree.map(lambda *x: jnp.stack(x), *map(of_size, (0.02, 0.05, 0.1, 0.15, 0.02, 0.1)))

    @jax.jit
    @jax.vmap
    def run(x, contacts):
        start, v = at(ball(), jnp.stack([x[0], x[1], 0.4 + 0 * x[0]])), jnp.zeros(6).at[3:5].set(x[2:])
        path = lgjax.rollout(ball(), start, v, None, dt, 600, STEP, contacts=contacts)
        energy = jax.vmap(lambda q, v: lgjax.total_energy(ball(), q, v))(path.q, path.v)
        return energy, path.v, path.status, path.contacts.gap

    energy, v, status, gap = map(np.asarray, run(starts, many))
    assert not np.any(status)
    assert np.max(energy - energy[:, :1]) < 1e-12
    assert np.max(np.diff(energy, axis=1)) < 0.5 * mass * (G * dt) ** 2
    assert np.abs(v[..., :3]).max() < 1e-11
    assert gap.min() > -0.005
    assert np.all(energy[:, -1] < energy[:, 0] - 1)


def test_a_terrain_of_each_system_of_a_batch_is_its_own():
    heights = 0.05 * np.random.default_rng(5).standard_normal((3, 6, 6))
    contacts = lgjax.Contacts(free_body(1.0, np.eye(3)), terrain(), {"body": lgjax.shapes.sphere(0.05)})
    q = at(ball(), (0.03, 0.12, 0.1))

    def gap(h):
        return contact_points(ball(), contacts.replace(grounds=HeightField(h, jnp.asarray(0.2))), q).gap[0]

    many, slopes = jax.jit(jax.vmap(jax.value_and_grad(gap)))(heights)
    for k in range(3):
        np.testing.assert_allclose(many[k], gap(jnp.asarray(heights[k])), atol=1e-14)
    assert np.isfinite(slopes).all()
    assert np.all(np.abs(slopes).max((1, 2)) > 0.1)
