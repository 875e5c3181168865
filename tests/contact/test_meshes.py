"""Polyhedra with many corners touch with few: as deep as MuJoCo's meshes, with the motion that all corners have."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

import lgjax
from lgjax.contact import HeightField, TimeStepping, contact_points
from lgjax.contact.geometry.candidates import Patch
from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.geometry import geometry, hull
from lgjax.multibody.importers.meshes import simplified

G, DT, DENSITY = 9.81, 2e-3, 1000.0
FLOOR = lgjax.shapes.Plane((0.0, 0.0, 1.0))
DTYPES = pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])


def turning(count):
    angles = 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def prism(count, radius, half):
    return np.concatenate([np.column_stack([radius * turning(count), np.full(count, z)]) for z in (-half, half)])


def directions(count, seed=0):
    points = np.random.default_rng(seed).normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def rounded_box(half, radius):
    d = directions(3000)
    return simplified(np.sign(d) * half + radius * d)[0]


GOLDEN = (1 + 5**0.5) / 2
SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
RINGS = np.array([[0, x / GOLDEN, y * GOLDEN] for x in (-1, 1) for y in (-1, 1)])
GRID = np.stack(np.meshgrid(*[np.linspace(-0.1, 0.1, 13)] * 3), -1).reshape(-1, 3)
BODIES = {
    "dodecahedron": 0.05 * np.concatenate([SIGNS, *(np.roll(RINGS, k, 1) for k in range(3))]),
    "prism": prism(32, 0.05, 0.08),
    "shoe": rounded_box([0.08, 0.04, 0.01], 0.01),
    "ball": simplified(0.05 * directions(2000), 64)[0],
}


def body_of(points, dtype=jnp.float64, geometries=()):
    """A free body of uniform density, and its corners about its center of mass."""
    found = lgjax.shapes.mass_properties(lgjax.shapes.polyhedron(points), DENSITY)
    inertia = np.asarray(found.inertia)
    body = Body("body", None, Joint("free", "free"), mass=float(found.mass), inertia=inertia)
    return build([body], geometry=geometries).astype(dtype), points - np.asarray(found.center)


def at(model, rotation, place):
    R, p = jnp.asarray(rotation, model.dtype), jnp.asarray(place, model.dtype)
    return lgjax.configuration(model, lgjax.Pose(R, p))


def standing(corners):
    """The turn that puts the lowest stable side down, and the height of the center above it."""
    sides = ConvexHull(corners).equations
    k = np.argmax(sides[:, 3])
    return Rotation.align_vectors([[0, 0, -1.0]], sides[k, :3][None])[0].as_matrix(), -sides[k, 3]


# ---- which corners
def test_the_deepest_corner_is_as_deep_as_mujoco_has_it():
    """Of the whole hull, at random poses."""
    mujoco = pytest.importorskip("mujoco")
    points = 0.1 * np.random.default_rng(3).normal(size=(60, 3))
    text = f"""<mujoco><option><flag filterparent="disable"/></option>
    <asset><mesh name="m" vertex="{" ".join(map(str, points.ravel()))}"/></asset>
    <worldbody><geom type="plane" size="9 9 9" euler="0 0 0"/><body name="body"><freejoint/>
    <geom type="mesh" mesh="m" pos="0.03 -0.02 0.05" euler="20 30 40" margin="9" friction="0.3"/></body></worldbody>
    </mujoco>"""
    other = mujoco.MjModel.from_xml_string(text)
    geom = other.geom("").id if False else 1
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, other.geom_quat[geom])
    own = other.mesh_vert @ turn.reshape(3, 3).T + other.geom_pos[geom]
    vertices = own[ConvexHull(own).vertices]
    model = body_of(points)[0].replace(geometry=(hull("body", vertices, friction=0.3),))
    contacts = lgjax.Contacts(model, FLOOR)
    assert len(contacts) == 4 < len(vertices)
    np.testing.assert_array_equal(contacts.friction, 0.3)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(jax.random.split(jax.random.key(0), 200))
    gaps = jax.vmap(lambda q: contact_points(model, contacts, q).gap)(q)
    data = mujoco.MjData(other)
    for k in range(200):
        data.qpos = np.asarray(lgjax.conventions.to_mujoco(model, jax.tree.map(lambda x, k=k: x[k], q))[0])
        mujoco.mj_forward(other, data)
        assert float(gaps[k].min()) == pytest.approx(data.contact.dist.min(), abs=1e-9)


@cache
def chosen(count):
    return jax.jit(jax.vmap(lambda patch, d: patch.lowest(patch.vertices @ d, d), (None, 0)))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("name", BODIES)
@DTYPES
def test_the_corners_are_different_ones_and_the_deepest_is_among_them(name, count, dtype):
    points = BODIES[name].astype(dtype)
    down = directions(300, 1).astype(dtype)
    found = np.asarray(chosen(count)(Patch(jnp.asarray(points), jnp.zeros((), dtype), count), jnp.asarray(down)))
    assert found.dtype == dtype
    depth = np.einsum("nki,ni->nk", found, down).max(1)
    np.testing.assert_allclose(depth, (down @ points.T).max(1), atol=20 * jnp.finfo(dtype).eps)
    for some in found:
        assert len(np.unique(some, axis=0)) == count
        assert {tuple(x) for x in some} <= {tuple(x) for x in points}


@pytest.mark.parametrize("name", BODIES)
def test_the_corners_of_a_side_hold_its_middle_whatever_round_off_says(name):
    """On every side that a body could stand on: those of the side span it, with noise of every kind."""
    points = BODIES[name]
    sides, noise = ConvexHull(points).equations, 1e-9 * directions(40, 2)
    patch = Patch(jnp.asarray(points), jnp.zeros(()), 4)
    for side in np.unique(np.round(sides, 9), axis=0):
        own = points[points @ side[:3] + side[3] > -1e-7]
        middle = own.mean(0) if len(own) > 3 else None
        down = side[:3] + noise
        found = np.asarray(chosen(4)(patch, jnp.asarray(down / np.linalg.norm(down, axis=1, keepdims=True))))
        for some in found:
            on = some[some @ side[:3] + side[3] > -1e-7]
            assert len(on) >= min(4, len(own))
            if middle is not None:
                across = np.linalg.svd(side[None, :3])[2][1:]
                plane = ConvexHull((on - middle) @ across.T)
                assert plane.equations[:, 2].max() < 0
                assert plane.volume > 0.4 * ConvexHull((own - middle) @ across.T).volume


def test_few_corners_are_all_candidates():
    model = body_of(BODIES["ball"])[0]
    shape = lambda corners: {"body": lgjax.shapes.polyhedron(corners)}
    count = lambda corners, **more: len(lgjax.Contacts(model, FLOOR, shape(corners), **more))
    assert count(SIGNS) == 8
    assert count(np.vstack([SIGNS, [0, 0, 2]])) == 4
    assert count(np.vstack([SIGNS, [0, 0, 2]]), points=9) == 9
    assert count(BODIES["ball"], points=10) == 10
    assert count(BODIES["ball"], points=64) == len(BODIES["ball"])
    with pytest.raises(ValueError, match="points must be a positive integer"):
        count(BODIES["ball"], points=0)


def test_placed_and_rounded_polyhedra_touch_where_they_are():
    model, points = body_of(BODIES["shoe"])
    pose = lgjax.Pose(lgjax.so3.exp(jnp.array([0.3, 0.2, 0.1])), jnp.array([0.1, 0.2, 0.3]))
    shape = lgjax.shapes.placed(lgjax.shapes.rounded(lgjax.shapes.polyhedron(points), 0.02), pose)
    contacts = lgjax.Contacts(model, FLOOR, {"body": shape})
    assert len(contacts) == 4
    for key in jax.random.split(jax.random.key(1), 10):
        q = lgjax.random_configuration(key, model)
        found = contact_points(model, contacts, q)
        R, p = (np.asarray(x[0]) for x in q.free_poses)
        corners = np.asarray(pose.act(jnp.asarray(points))) @ R.T + p
        assert float(found.gap.min()) == pytest.approx(corners[:, 2].min() - 0.02, abs=1e-12)
        np.testing.assert_allclose(found.point[:, 2], found.gap, atol=1e-12)
        np.testing.assert_allclose(shape.support(-R[2]).point @ R[2] + p[2], found.gap.min(), atol=1e-12)


# ---- derivatives
def test_gaps_change_at_the_velocities_of_the_corners_and_with_them():
    model, points = body_of(BODIES["shoe"])
    keys = jax.random.split(jax.random.key(2), 20)
    heights = HeightField(0.03 * np.random.default_rng(0).standard_normal((9, 9)), 0.2)
    for ground in (FLOOR, heights):

        def gap(q, vertices, ground=ground):
            return contact_points(model, lgjax.Contacts(model, ground, {"body": lgjax.shapes.polyhedron(vertices)}), q)

        @jax.jit
        @jax.vmap
        def both(key, gap=gap):
            q, v = lgjax.random_configuration(key, model), jax.random.normal(key, (6,))
            q = q._replace(free_poses=q.free_poses._replace(translation=0.1 * q.free_poses.translation))
            shift = jax.random.normal(key, points.shape)
            along = lambda s: gap(lgjax.retract(model, q, s * v), points + s * shift).gap
            step = 1e-6
            before, (now, slope), after = along(-step), jax.jvp(along, (0.0,), (1.0,)), along(step)
            same = jnp.abs(after - 2 * now + before) < step  # else another corner has come in between
            return slope, jnp.where(same, (after - before) / (2 * step), slope), same

        exact, differences, same = both(keys)
        np.testing.assert_allclose(exact, differences, atol=1e-6)
        assert np.mean(same) > 0.8


# ---- motion
def roll(model, contacts, rotation, height, v, dt, steps):
    """States, energies and forces of a batch of throws."""

    def one(rotation, v):
        q = at(model, rotation, jnp.stack([0 * height, 0 * height, height]))
        path = lgjax.rollout(model, q, v, None, dt, steps, TimeStepping(), contacts=contacts)
        energy = jax.vmap(partial(lgjax.total_energy, model))(path.q, path.v)
        return path.q.free_poses, path.v, energy, path.contacts.force, path.status

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one, (0, 0)))(rotation, v))


def thrown(count, dtype, seed=0):
    random = np.random.default_rng(seed)
    turns = Rotation.random(count, random_state=seed).as_matrix()
    speed = random.normal(size=(count, 6)) * [6, 6, 6, 1, 1, 0.5]
    return jnp.asarray(turns, dtype), jnp.asarray(speed, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shoe", "dodecahedron"])
def test_few_points_move_as_all_corners_do(name):
    """A fall, impacts, tumbling and, at the end, rest: to round-off until a corner that touches in one is missed in the
    other, which the next step mends; close to it from then on."""
    model, points = body_of(BODIES[name])
    shape = lgjax.shapes.polyhedron(points)
    turns, speeds = thrown(4, jnp.float64)
    few, every = (
        roll(model, lgjax.Contacts(model, FLOOR, {"body": shape}, friction=0.6, points=n), turns, 0.15, speeds, DT, 300)
        for n in (4, len(points))
    )
    assert not few[4].any()
    assert few[3].shape[2] == 4
    forces = np.abs(few[3].sum(2) - every[3].sum(2)).max(-1)  # (throws, times)
    missed = np.cumsum(forces > 0.05 * float(model.inertias.mass[0]) * G, 1) > 0
    assert np.mean(missed) < 0.1
    for name, found in few[0]._asdict().items():
        gap = np.abs(found - getattr(every[0], name)).reshape(*missed.shape, -1).max(-1)
        together, later = {"translation": (2e-6, 2e-3), "rotation": (1e-4, 0.05)}[name]
        assert gap[~missed].max() < together
        assert gap.max() < later


@pytest.mark.parametrize("name", ["dodecahedron", pytest.param("ball", marks=pytest.mark.slow)])
@DTYPES
def test_tumbling_adds_no_energy_and_stays_above_the_ground(name, dtype):
    """Each step adds at most what a fall within it has, as with any corners, and loses more on the whole."""
    model, points = body_of(BODIES[name], dtype)
    contacts = lgjax.Contacts(model, FLOOR, {"body": lgjax.shapes.polyhedron(jnp.asarray(points, dtype))}, friction=0.8)
    turns, speeds = thrown(6, dtype)
    poses, _, energy, _, status = roll(model, contacts, turns, 0.2, speeds, DT, 400)
    assert not status.any()
    fall = float(model.inertias.mass[0]) * (G * DT) ** 2 / 2
    assert np.diff(energy, axis=1).max() < fall + 20 * float(jnp.finfo(dtype).eps) * energy.max()
    assert np.all(energy[:, -1] < 0.8 * energy[:, 0])
    low = np.einsum("ntij,kj->ntki", poses.rotation[:, :, 0], points)[..., 2] + poses.translation[:, :, 0, None, 2]
    # A corner that was not among the four in the middle of a step is seen, and lifted, in the next one.
    assert low.min() > -0.5 * DT * np.abs(speeds).max() * np.abs(points).max() / 5


@pytest.mark.parametrize("name", ["prism", "cube of a fine mesh"])
@DTYPES
def test_a_body_stands_still_and_its_weight_is_carried(name, dtype):
    points = BODIES.get(name)
    points = simplified(GRID[np.abs(GRID).max(1) > 0.0999])[0] if points is None else points
    model, points = body_of(points, dtype)
    turn, height = standing(points)
    contacts = lgjax.Contacts(model, FLOOR, {"body": lgjax.shapes.polyhedron(jnp.asarray(points, dtype))})
    poses, v, _, force, status = roll(
        model, contacts, jnp.asarray(turn, dtype)[None], height + 1e-3, jnp.zeros((1, 6), dtype), DT, 200
    )
    tiny = 1e-10 if dtype == jnp.float64 else 1e-3
    assert not status.any()
    assert np.abs(v[0, 100:]).max() < tiny
    assert np.abs(poses.translation[0, 100:, 0, 2] - height).max() < tiny
    weight = float(model.inertias.mass[0]) * G
    np.testing.assert_allclose(force[0, 100:, :, 0].sum(1), weight, rtol=10 * tiny)
    carrying = np.mean(force[0, 100:, :, 0] > 1e-3 * weight, axis=0)
    assert np.sum(carrying > 0) >= 3


@DTYPES
def test_a_box_given_as_a_hull_moves_as_the_box(dtype):
    half = np.array([0.1, 0.06, 0.04])
    model, corners = body_of(SIGNS * half, dtype)
    turns, speeds = thrown(3, dtype)
    paths = []
    for one in (hull("body", corners), geometry("body", "box", half)):
        same = model.replace(geometry=(one,))
        paths.append(roll(same, lgjax.Contacts(same, FLOOR), turns, 0.2, speeds, DT, 150))
    assert not paths[0][4].any()
    tiny = 1e-9 if dtype == jnp.float64 else 3e-3
    np.testing.assert_allclose(paths[0][0].translation, paths[1][0].translation, atol=tiny)
    np.testing.assert_allclose(paths[0][1][:, -1], paths[1][1][:, -1], atol=100 * tiny)


def test_a_prism_slides_on_a_slope_as_coulomb_says():
    """With a friction of its own, and not by that which is given to another one."""
    points = BODIES["prism"] * [1, 1, 0.3]
    model, points = body_of(points, geometries=(hull("body", BODIES["prism"] * [1, 1, 0.3], friction=0.25),))
    slope = 0.5
    plane = lgjax.shapes.Plane((np.sin(slope), 0.0, np.cos(slope)))
    turn = Rotation.from_euler("y", slope).as_matrix()
    start = turn @ [0, 0, 0.024]
    for friction, mu in ((None, 0.25), (0.6, 0.6)):
        contacts = lgjax.Contacts(model, plane, friction=friction)
        path = lgjax.rollout(
            model, at(model, turn, start), jnp.zeros(6), None, DT, 100, TimeStepping(), contacts=contacts
        )
        speed = G * max(np.sin(slope) - mu * np.cos(slope), 0.0) * 100 * DT
        np.testing.assert_allclose(path.v[-1], [0, 0, 0, speed, 0, 0], atol=1e-9)


@pytest.mark.parametrize("ground", ["slope", pytest.param("hills", marks=pytest.mark.slow)])
def test_a_shoe_on_a_height_field(ground):
    """On a slope as on its plane; on hills it comes to rest, and no corner is in the ground."""
    model, points = body_of(BODIES["shoe"])
    shape = {"body": lgjax.shapes.polyhedron(points)}
    x = 0.25 * (np.arange(13.0) - 6)
    turns, _ = thrown(3, jnp.float64, 4)
    none = jnp.zeros((3, 6))
    if ground == "slope":
        field = HeightField(0.2 * x[:, None] - 0.1 * x[None], 0.25)
        plane = lgjax.shapes.Plane((-0.2, 0.1, 1.0))
        one, other = (
            roll(model, lgjax.Contacts(model, g, shape, friction=0.7), turns, 0.2, none, DT, 200)
            for g in (field, plane)
        )
        np.testing.assert_allclose(one[0].translation, other[0].translation, atol=1e-7)
        return
    field = HeightField(0.03 * np.random.default_rng(0).standard_normal((13, 13)), 0.25)
    poses, v, _, _, status = roll(model, lgjax.Contacts(model, field, shape, friction=0.7), turns, 0.3, none, DT, 800)
    assert not status.any()
    assert np.abs(v[:, -1]).max() < 1e-6
    corners = np.einsum("nij,kj->nki", poses.rotation[:, -1, 0], points) + poses.translation[:, -1, 0, None]
    over = corners[..., 2] - np.asarray(field(jnp.asarray(corners.reshape(-1, 3)))[0]).reshape(corners.shape[:2])
    assert over.min() > -1e-6
    assert np.all(over.min(1) < 1e-6)


# ---- what the model brings
def test_geometry_brings_its_friction_and_what_touches_nothing_is_left_out():
    bodies = [Body(name, None, Joint(f"{name}_joint", "free"), mass=1.0, inertia=np.eye(3)) for name in "abc"]
    shapes = (
        geometry("a", "box", (0.1, 0.1, 0.1), friction=0.2),
        hull("a", BODIES["ball"], friction=0.3),
        geometry("b", "sphere", (0.1,)),
        geometry("b", "sphere", (0.2,), friction=0.0, group=0, mask=2),
        geometry("c", "sphere", (0.3,), friction=0.9, group=0, mask=0),
        geometry("c", "capsule", (0.1, 0.2), friction=0.4),
    )
    model = build(bodies, geometry=shapes)
    contacts = lgjax.Contacts(model, [FLOOR, FLOOR], pairs=[("b", "c")])
    own = [0.2] * 8 + [1.0, 0.0] + [0.4] * 2 + [0.3] * 4
    np.testing.assert_allclose(contacts.friction, [*own, *own, 1.0, 0.4])
    assert contacts.names[8:10] == ("b[0] on ground 0", "b[1] on ground 0")
    np.testing.assert_allclose(lgjax.Contacts(model, FLOOR, friction=0.5).friction, 0.5)
    np.testing.assert_allclose(lgjax.Contacts(model, FLOOR, {"a": lgjax.shapes.sphere(0.1)}).friction, [1.0])
    np.testing.assert_allclose(lgjax.Contacts(model, FLOOR, ["b"]).friction, [1.0, 0.0])
    only = model.replace(geometry=(shapes[4], geometry("a", "mesh", ())))
    with pytest.raises(ValueError, match="nothing that can touch"):
        lgjax.Contacts(only, FLOOR)


def test_corners_can_be_batched_and_a_model_with_hulls_in_float32():
    model, points = body_of(BODIES["ball"], jnp.float32)
    model = model.replace(geometry=(hull("body", points),))
    contacts = lgjax.Contacts(model, FLOOR)
    assert {leaf.dtype for leaf in jax.tree.leaves(contacts)} == {jnp.dtype(jnp.float32)}
    q = at(model, np.eye(3), (0, 0, 1.0))
    sizes = jnp.asarray([0.5, 1.0, 2.0], jnp.float32)
    larger = lambda size: lgjax.Contacts(model, FLOOR, {"body": lgjax.shapes.polyhedron(size * points.astype("f4"))})
    gaps = jax.vmap(lambda size: jnp.min(contact_points(model, larger(size), q).gap))(sizes)
    np.testing.assert_allclose(gaps, 1 + np.asarray(sizes) * points[:, 2].min(), rtol=1e-6)
