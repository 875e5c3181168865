"""Scenes and the pages and servers that draw them: poses, labels and panels of a recording, against the simulation."""

import html
import re
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import collisions, maximal, shapes, systems
from lgjax.cli import main
from lgjax.view import geometry
from lgjax.view.contacts import outlined, surface
from lgjax.view.drawing import Drawing, stop, viser_server
from lgjax.view.scene import finished, quaternions
from lgjax.view.sources import scene_of
from tests.view.browser import opened, program
from tests.view.recording import Recording

Rotation = pytest.importorskip("scipy.spatial.transform").Rotation
TS = np.linspace(0.0, 0.4, 5)
BODY = lgjax.collisions.rigid_state((0.0, 0.0, 1.0))


@pytest.fixture(scope="module")
def chain():
    """A floating chain of two bodies, and configurations (3, 5) without any simulation."""
    model = lgjax.models.by_name("chain:2", True)
    keys = jax.random.split(jax.random.key(0), 15).reshape(3, 5)
    q = jax.vmap(jax.vmap(lambda key: lgjax.random_configuration(key, model)))(keys)
    return model, q


class Moving:
    """The states of a motion, as a user might bring them."""

    def __init__(self, q, ts=TS, **more):
        self.ts, self.q = ts, q
        vars(self).update(more)


@pytest.fixture(scope="module")
def page(chain, tmp_path_factory):
    model, q = chain
    path = tmp_path_factory.mktemp("view") / "chain.html"
    v = jnp.zeros((3, 5, model.nv))
    assert lgjax.view.html(model, Moving(q, v=v), path, highlight=1, spacing=4.0, labels=True, speed=0.5) == path
    return Recording(path.read_text())


def test_a_page_plays_the_poses_of_forward_kinematics(chain, page):
    model, q = chain
    poses = jax.vmap(jax.vmap(lambda q: lgjax.forward_kinematics(model, q)))(q)
    shift = 4.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]])  # on a square grid
    assert page.seconds == pytest.approx(0.4 / 0.5 + 0.5, abs=1e-9)
    for k in (0, 3):
        nodes = page.nodes(TS[k] / 0.5 + 1e-9)
        for body, name in enumerate(model.body_names):
            drawn = [node for path, node in nodes.items() if path.startswith(f"/world/bodies/{name}/")]
            assert drawn
            for node in drawn:
                found = node["batched_positions"].reshape(3, 3)
                np.testing.assert_allclose(found, poses.translation[:, k, body] + shift, atol=1e-3)
                w, x, y, z = node["batched_wxyzs"].reshape(3, 4).T
                turned = Rotation.from_quat(np.stack([x, y, z, w], axis=1)).as_matrix()
                np.testing.assert_allclose(turned, poses.rotation[:, k, body], atol=2e-3)


def test_a_page_has_labels_a_trail_and_colors_for_the_highlighted_system(chain, page):
    model, q = chain
    for k in (0, 3):
        nodes = page.nodes(TS[k] / 0.5 + 1e-9)
        assert nodes["/world/label"]["text"] == "chain_2 #1"
        base = np.asarray(q.free_poses.translation)[1, k, 0] + [4.0, 0.0, 0.0]
        np.testing.assert_allclose(nodes["/world/label"]["position"][:2], base[:2], atol=1e-5)
        np.testing.assert_allclose(nodes["/world/trail"]["points"].reshape(-1, 2, 3)[-1, 1], base, atol=1e-5)
        assert [nodes[f"/world/names/{name}"]["text"] for name in model.body_names] == list(model.body_names)
        for path, node in nodes.items():
            if path.startswith("/world/bodies/") and "batched_positions" in node:
                first, second, third = node["batched_colors"].reshape(3, 3)
                assert np.array_equal(first, third)
                assert not np.array_equal(first, second)


def test_a_page_has_panels_of_energy_and_joints(chain, page):
    model, q = chain
    energy, joints = page.panels["charts"]
    assert page.panels["speed"] == 0.5
    np.testing.assert_allclose(page.panels["times"], TS)
    assert (energy["title"], joints["title"]) == ("energy (J)", "joints (rad or m)")
    assert joints["names"] == list(model.tree.coordinate_names)
    np.testing.assert_allclose(joints["curves"][0], q.joints[1, :, 0], rtol=1e-4)
    state = lambda k: jax.tree.map(lambda x: x[1, k], q)
    potential = [float(lgjax.potential_energy(model, state(k))) for k in range(5)]
    np.testing.assert_allclose(energy["curves"][energy["names"].index("potential")], potential, rtol=1e-4)


def test_following_moves_the_world_the_other_way(chain, tmp_path):
    model, q = chain
    one = jax.tree.map(lambda x: x[0], q)
    recording = Recording(lgjax.view.html(model, Moving(one), tmp_path / "x.html", follow=True).read_text())
    start, later = np.asarray(one.free_poses.translation)[[0, 3], 0]
    np.testing.assert_allclose(recording.nodes(TS[3] + 1e-9)["/world"]["position"], start - later, atol=1e-5)


def test_wrenches_are_arrows_from_the_bodies(chain):
    model, q = chain
    one = jax.tree.map(lambda x: x[0], q)
    force = np.array([[0, 0, 2.0, 3.0, 0, 0], [0, 0, 1.0, 0, 0, 0]])
    scene = scene_of(model, Moving(one), wrenches=lambda t, q, v: (1 + t) * force)
    poses = jax.vmap(lambda q: lgjax.forward_kinematics(model, q))(one)
    arrows = scene.arrows.reshape(5, 2, 2, 2, 3)  # time, force or torque, body, end
    np.testing.assert_allclose(arrows[:, 0, :, 0], poses.translation, atol=1e-6)
    along = arrows[:, :, :, 1] - arrows[:, :, :, 0]
    np.testing.assert_allclose(along[:, 0, 1], 0.0)
    directions = along[:, 0, 0] / np.linalg.norm(along[:, 0, 0], axis=-1, keepdims=True)
    np.testing.assert_allclose(directions, poses.rotation[:, 0, :, 0], atol=1e-5)
    lengths = np.linalg.norm(along[:, 1], axis=-1)
    np.testing.assert_allclose(lengths[:, 1] / lengths[:, 0], 0.5, rtol=1e-5)
    np.testing.assert_allclose(lengths[:, 0] / lengths[-1, 0], (1 + TS) / (1 + TS[-1]), rtol=1e-5)


def test_forces_of_zero_are_out_of_sight(chain, tmp_path):
    """viser draws a head of one size for every arrow; those without a length lie behind all that the camera sees."""
    model, q = chain
    one = jax.tree.map(lambda x: x[0], q)
    wrenches = np.array([[0, 0, 0, 3.0, 0, 0], [0, 0, 0, 0, 0, 0]]) * (TS[2] < TS)[:, None, None]
    recording = Recording(lgjax.view.html(model, Moving(one), tmp_path / "x.html", wrenches=wrenches).read_text())
    (far,) = {message["far"] for _, message in recording.messages if "far" in message}
    for k, shown in ((0, 0), (4, 1)):
        points = recording.nodes(TS[k] + 1e-9)["/world/wrenches"]["points"].reshape(-1, 2, 3)
        assert len(points) == 4  # force and torque of two bodies
        near = np.linalg.norm(points, axis=-1).min(-1) < 2 * far
        assert near.sum() == shown
        places = np.asarray(one.free_poses.translation)[k] if shown else np.zeros((0, 3))
        np.testing.assert_allclose(points[near, 0], places, atol=1e-3)


def test_a_pair_that_touches_has_its_outline_and_its_normal():
    """The points that act lie around their middle in order, from which the normal rises."""
    corners = np.array([[1.0, 1, 0], [-1, -1, 0], [9, 9, 9], [1, -1, 0], [-1, 1, 0]])
    frame = np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])
    lines = np.array(outlined(corners, frame, np.array([True, True, False, True, True]), 0.5))
    np.testing.assert_allclose(np.linalg.norm(lines[:, 1] - lines[:, 0], axis=1), [2, 2, 2, 2, 0, 0.5])
    np.testing.assert_allclose(lines[:4, 1], np.roll(lines[:4, 0], -1, 0))
    np.testing.assert_allclose(lines[-1], [[0, 0, 0], [0, 0, 0.5]])


def test_balls_that_touch_show_their_normal_in_the_system_that_is_looked_at():
    rail = lambda n: lgjax.Body(n, None, lgjax.Joint(f"{n}_x", "prismatic", (1, 0, 0)), mass=1.0, inertia=np.eye(3))
    model = lgjax.build([rail("a"), rail("b")])
    contacts = lgjax.Contacts(model, (), {"a": shapes.sphere(0.1), "b": shapes.sphere(0.1)}, [("a", "b")])
    q = lgjax.Configuration(
        jax.tree.map(lambda x: jnp.zeros((2, 3, *x.shape)), lgjax.neutral(model).free_poses),
        jnp.array([0.0, 0.2]) + jnp.zeros((2, 3, 2)),
        jnp.zeros((2, 3, 0, 3, 3)),
    )
    force = np.zeros((2, 3, 1, 3))
    force[1, 2, 0, 0] = 4.0
    scene = scene_of(
        model, Moving(q, np.arange(3.0), contacts=SimpleNamespace(force=force)), contacts=contacts, highlight=1
    )
    assert scene.lines.shape == (3, 2, 2, 2, 3)
    np.testing.assert_allclose(scene.lines[2, 1, 1], [[0.1, 0, 0], [0.1 - 0.1 * 0.3, 0, 0]], atol=1e-6)
    assert not np.any(scene.lines[:, 0])
    assert not np.any(scene.lines[:2])


def test_contact_forces_are_arrows_from_the_points_that_touch(chain):
    """A ball of radius 0.1 at the first body's origin over a plane; half the weight is half as long as the robot."""
    model, q = chain
    one = jax.tree.map(lambda x: x[0], q)
    slope = shapes.Plane(np.array([0.6, 0.0, 0.8]), 0.5)
    planes = shapes.Plane(np.array([0.0, 0.0, 1.0]), 2.0), slope
    contacts = lgjax.Contacts(model, planes, {model.body_names[0]: shapes.sphere(0.1)})
    weight = float(model.inertias.mass.sum() * 9.81)
    force = np.zeros((5, 2, 3))
    force[:, 0, 0], force[2, 1, 0] = weight / 2, 100 * weight
    record = SimpleNamespace(force=force)
    scene = scene_of(model, Moving(one, contacts=record), contacts=contacts)
    poses = jax.vmap(lambda q: lgjax.forward_kinematics(model, q))(one)
    center = np.asarray(poses.translation)[:, 0]
    width = max(float(np.ptp(np.asarray(poses.translation), axis=1).max()), 0.3)
    np.testing.assert_allclose(scene.arrows[:, 0, 0], center - [0, 0, 0.1], atol=1e-5)
    along = scene.arrows[:, :, 1] - scene.arrows[:, :, 0]
    np.testing.assert_allclose(along[:, 0], np.broadcast_to([0, 0, width / 2], (5, 3)), atol=1e-5)
    np.testing.assert_allclose(along[2, 1], 2 * width * np.array([0.6, 0, 0.8]), atol=1e-5)
    np.testing.assert_allclose(along[3, 1], 0.0)
    assert scene.ground == pytest.approx(-2.0)  # the grid; the slope is a slab
    assert len(scene.scenery) == 1
    ball = next(part for part in scene.parts if np.allclose(np.ptp(part.mesh.vertices, axis=0), 0.2, atol=0.01))
    np.testing.assert_allclose(ball.mesh.vertices.mean(0), 0.0, atol=1e-6)
    with pytest.raises(TypeError, match="contacts must be Contacts"):
        scene_of(model, Moving(one), contacts=planes)


def test_an_environment_is_drawn_with_what_its_robot_touches():
    walk = lgjax.adapters.walking_quadruped()
    _, state = walk.reset(jax.random.key(0))
    drawn = scene_of(walk, state.q)
    expected = scene_of(walk.mechanism, state.q, contacts=walk.contacts)
    assert [part.body for part in drawn.parts] == [part.body for part in expected.parts]
    np.testing.assert_array_equal(drawn.position, expected.position)
    for part, other in zip(drawn.parts, expected.parts, strict=True):
        np.testing.assert_array_equal(part.mesh.vertices, other.mesh.vertices)
    low = lambda scene: min(float(part.mesh.vertices[:, 2].min()) for part in scene.parts)
    assert low(drawn) > low(scene_of(walk.mechanism, state.q))  # solids of the inertias reach below the feet


def test_a_height_field_is_a_surface_through_its_heights():
    heights = np.random.default_rng(0).normal(size=(4, 6))
    mesh = surface(lgjax.contact.HeightField(heights, 0.5))
    np.testing.assert_allclose(mesh.vertices[:, 2], heights.ravel(), atol=1e-6)
    assert len(mesh.faces) == 2 * 3 * 5
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    assert np.all(np.cross(b - a, c - a)[:, 2] > 0)


def test_a_notebook_keeps_the_page_and_nothing_is_printed(chain, capsys):
    model, q = chain
    shown = lgjax.view.inline(model, (TS, jax.tree.map(lambda x: x[0], q)), height=320)
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', shown._repr_html_())[1])
    assert inside == shown.text
    assert "height: 320px" in shown._repr_html_()
    assert Recording(inside).seconds == pytest.approx(0.4 + 0.5, abs=1e-9)
    assert capsys.readouterr().out == ""


def test_systems_that_overlap_are_set_apart_and_others_stay(chain):
    model, q = chain
    near = q._replace(free_poses=q.free_poses._replace(translation=0 * q.free_poses.translation))
    far = near._replace(free_poses=near.free_poses._replace(
        translation=near.free_poses.translation.at[:, :, 0, 0].add(100.0 * jnp.arange(3.0)[:, None])
    ))  # fmt: skip
    from lgjax.view.scene import finished

    scene = finished(scene_of(model, Moving(near)), 0, None, "auto")
    distances = np.linalg.norm(scene.reference[:, :, None] - scene.reference[:, None], axis=-1)
    assert distances[:, ~np.eye(3, dtype=bool)].min() > 2 * scene.radius
    scene = finished(scene_of(model, Moving(far)), 0, None, "auto")
    np.testing.assert_array_equal(scene.reference[0, :, 0], [0.0, 100.0, 200.0])


def test_a_system_that_diverged_stops_and_is_marked(chain, tmp_path):
    model, q = chain
    broken = q._replace(joints=q.joints.at[2, 2:].set(jnp.nan))
    nodes = Recording(lgjax.view.html(model, Moving(broken), tmp_path / "x.html", spacing=0).read_text())
    path = next(path for path in nodes.nodes(0) if path.startswith(f"/world/bodies/{model.body_names[1]}/"))
    at = lambda k: nodes.nodes(TS[k] + 1e-9)[path]["batched_positions"].reshape(3, 3)
    np.testing.assert_array_equal(at(4)[2], at(1)[2])
    assert not np.array_equal(at(4)[0], at(1)[0])
    red, green, blue = nodes.nodes(0)[path]["batched_colors"].reshape(3, 3)[2]
    assert red > 3 * max(green, blue)
    with pytest.raises(ValueError, match="first state of system 0 is not finite"):
        lgjax.view.html(model, Moving(q._replace(joints=q.joints.at[0].set(jnp.nan))), tmp_path / "x.html")


def test_a_bouncing_body_is_drawn_with_its_own_shape_above_its_plane():
    shape = shapes.box(np.array([0.3, 0.2, 0.1]))
    plane = shapes.Plane(np.array([0.6, 0.0, 0.8]), 0.5)
    position = np.random.default_rng(0).normal(size=(4, 5, 3))
    rotation = np.broadcast_to(np.eye(3), (4, 5, 3, 3))
    states = collisions.RigidState(lgjax.Pose(rotation, position), np.zeros((4, 5, 3)), np.zeros((4, 5, 3)))
    none = np.zeros((4, 5))
    motion = collisions.BounceSolution(np.broadcast_to(TS, (4, 5)), states, none, np.zeros(4, int), None)
    scene = scene_of(shape, motion, planes=plane)
    np.testing.assert_array_equal(scene.position[:, :, 0], position.swapaxes(0, 1))
    corners = scene.parts[0].mesh.vertices
    assert {tuple(np.abs(np.round(c, 6))) for c in corners} == {(0.3, 0.2, 0.1)}
    (slab,) = scene.scenery
    heights = slab.mesh.vertices @ np.array([0.6, 0.0, 0.8]) + 0.5
    assert np.max(heights) == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(TypeError, match="result of bounce"):
        scene_of(shape, TS)


def test_the_impulse_of_an_impact_is_an_arrow_from_the_lowest_corner():
    """Seen from the impact on, for a twentieth of the time; the cube touches with the corner (-1, -1, -1) / 2."""
    ts = np.linspace(0.0, 1.0, 101)
    turn = geometry.along([1.0, 1.0, 1.0]).T
    rotation, position = np.broadcast_to(turn, (101, 3, 3)), np.zeros((101, 3))
    states = collisions.RigidState(lgjax.Pose(rotation, position), position, position)
    events = Moving(None, np.array([0.305, 0.0]), planes=np.array([0, -1]), impulses=np.array([2.0, 0.0]))
    motion = collisions.BounceSolution(ts, states, None, np.zeros((), int), events)
    scene = scene_of(shapes.box(np.full(3, 0.5)), motion, planes=shapes.Plane(np.array([0.0, 0, 1.0]), 1.0))
    arrows = scene.arrows[:, 0]
    lengths = np.linalg.norm(arrows[:, 1] - arrows[:, 0], axis=-1)
    assert np.flatnonzero(lengths).tolist() == [31, 32, 33, 34, 35]
    low = -np.sqrt(0.75)
    np.testing.assert_allclose(arrows[31], [[0, 0, low], [0, 0, low + 1.0]], atol=1e-6)


def test_a_pendulum_hangs_together():
    """Each rod reaches from one mass to the next."""
    problem = systems.spherical_pendulum(4, lengths=np.array([0.5, 1.0, 0.7, 0.3]))
    q = np.random.default_rng(1).normal(size=(5, 4, 3))
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    motion = lgjax.Solution(TS, type(problem.y0)(q, 0 * q), np.zeros((), int))
    scene = scene_of(problem, motion)
    ends = {}
    for part in scene.parts:
        if part.body >= 0 and len(part.mesh.vertices) == len(geometry.cylinder(1.0, 1.0).vertices):
            bottom, top = part.mesh.vertices[-2:]  # the middles of a cylinder's ends
            turned = lambda x, i=part.body: scene.rotation[:, 0, i] @ x + scene.position[:, 0, i]
            ends[part.body] = turned(bottom), turned(top)
    for i in range(4):
        np.testing.assert_allclose(ends[i][0], ends[i - 1][1] if i else 0.0, atol=1e-6)
        np.testing.assert_allclose(ends[i][1], scene.position[:, 0, i], atol=1e-6)


def test_a_linkage_is_drawn_closed():
    """The balls on both bodies of a loop are at one place."""
    problem = systems.four_bar()
    scene = scene_of(problem)
    marks = [part for part in scene.parts if part.color == (0.84, 0.37, 0.0)]
    places = [
        scene.rotation[0, 0, part.body] @ part.mesh.vertices.mean(0) + scene.position[0, 0, part.body] for part in marks
    ]
    assert len(places) == 2
    assert marks[0].body != marks[1].body
    np.testing.assert_allclose(places[0], places[1], atol=1e-5)


def test_springs_and_distances_of_a_system_are_lines_between_their_points():
    bodies = [maximal.Body(name, 1.0, (0.1, 0.1, 0.1)) for name in "ab"]
    joints = [maximal.Joint("rod", "distance", "a", "b", origin_a=(0.1, 0, 0), origin_b=(0, 0.2, 0), length=1.0)]
    spring = maximal.Spring("world", "a", point_a=(0, 0, 2.0), point_b=(0, 0, 0.3), stiffness=1.0)
    system = maximal.System(bodies, joints, [maximal.Gravity(), spring])
    turn = Rotation.from_rotvec([[0, 0, np.pi / 2], [0, 0, 0]]).as_matrix()
    q = system.configuration(turn, [[0.0, 0, 0], [1.0, 0, 0]])
    lines = scene_of(system, q).lines
    expected = [[[0, 0.1, 0], [1.0, 0.2, 0]], [[0, 0, 2.0], [0, 0, 0.3]]]
    np.testing.assert_allclose(lines[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda m, q: scene_of(m, TS), TypeError, "a Model moves by a Trajectory"),
        (lambda m, q: scene_of(TS), TypeError, "cannot draw an object of type ndarray"),
        (lambda m, q: scene_of(lgjax.models.quadruped(), Moving(q)), ValueError, "it is of another model"),
        (lambda m, q: scene_of(m, Moving(q, TS[:3])), ValueError, "the states have 5 times"),
        (
            lambda m, q: scene_of(m, Moving(q, v=np.ones((3, 5, 4)))),
            ValueError,
            r"v of the motion has shape \(3, 5, 4\)",
        ),
        (lambda m, q: scene_of(m, Moving(q._replace(joints="a"))), TypeError, "joints of the motion must be an array"),
        (lambda m, q: scene_of(m, Moving(q._replace(joints=q.joints[0]))), ValueError, r"expected \(3, 5, 1\)"),
        (lambda m, q: scene_of(m, Moving(q), systems=0), ValueError, "systems must be a positive integer, got 0"),
        (lambda m, q: scene_of(m, Moving(q), frames=None), TypeError, "frames must be a Python integer"),
        (lambda m, q: scene_of(m, Moving(q), highlight="first"), TypeError, "highlight must be a Python integer"),
        (lambda m, q: scene_of(m, Moving(q, np.zeros((0, 5)))), ValueError, r"ts has shape \(0, 5\)"),
        (lambda m, q: scene_of(m, Moving(q, "early")), TypeError, "ts must be numbers, got 'early'"),
        (
            lambda m, q: scene_of(m, Moving(jax.tree.map(lambda x: x[:, :0], q), TS[:0])),
            ValueError,
            "no states to draw",
        ),
        (lambda m, q: scene_of(shapes.sphere(1.0), BODY._replace(linear=TS)), ValueError, r"linear of the motion has"),
        (lambda m, q: scene_of(m, Moving(q), wrenches=np.zeros((7, 6))), ValueError, "wrenches have shape"),
        (lambda m, q: scene_of(shapes.sphere(1.0), None, visuals=False), TypeError, "visuals belong to a Model"),
        (lambda m, q: lgjax.view.html(m, Moving(q), "x", highlight=3), ValueError, "there are 3 systems"),
        (lambda m, q: lgjax.view.html(m, Moving(q), "x", ground="low"), ValueError, "ground must be"),
        (lambda m, q: lgjax.view.html(m, Moving(q), "x", speed=0.0), ValueError, "speed must be positive"),
    ],
)
def test_what_does_not_fit_is_named(chain, make, error, message):
    with pytest.raises(error, match=message):
        make(*chain)


def test_only_so_many_times_and_systems_are_drawn(chain):
    model, q = chain
    scene = scene_of(model, Moving(q), frames=3, systems=2)
    assert scene.position.shape == (3, 2, 2, 3)
    np.testing.assert_array_equal(scene.ts, TS[[0, 2, 4]])


def test_quaternions_turn_as_their_matrices():
    """At random, and at half turns, where the sum of the diagonal is no help."""
    rotations = Rotation.concatenate([Rotation.random(200, rng=0), Rotation.from_rotvec(np.pi * np.eye(3))])
    found = quaternions(rotations.as_matrix())
    expected = rotations.as_quat(scalar_first=True)
    np.testing.assert_allclose(np.abs(np.sum(found * expected, axis=1)), 1.0, atol=1e-12)


def test_a_viewer_serves_a_page_and_moves(chain):
    model, q = chain
    with lgjax.view.show(model, Moving(q)) as viewer:
        with urllib.request.urlopen(viewer.url) as answer:
            assert b"<html" in answer.read()
        assert viewer.url in viewer._repr_html_()
        viewer._playing.value = False
        viewer._draw(0.31)
        assert viewer.drawing.index == 3
        viewer._emphasize(2)
        assert viewer.drawing._nodes["label"].text == "chain_2 #2"


def test_a_model_alone_is_posed_by_its_joints():
    model = lgjax.models.chain(2)
    with lgjax.view.show(model) as viewer:
        viewer._pose(model, [0.3, -0.4])
        q = lgjax.neutral(model)._replace(joints=jnp.array([0.3, -0.4]))
        expected = lgjax.forward_kinematics(model, q).translation
        np.testing.assert_allclose(viewer.drawing.position[0, 0, :2], expected, atol=1e-3)


TINY = ["--batch", "2", "--steps", "4", "--save-every", "2", "--method", "LIE_EULER", "--quiet", "--dt", "0.05"]


def test_the_command_line_writes_the_same_page_from_a_rollout_and_from_its_file(tmp_path, capsys):
    pages, motion = [tmp_path / "a.html", tmp_path / "b.html"], tmp_path / "motion.npz"
    argv = ["rollout", "chain:2", *TINY, "--dtype", "float64", "--out", str(motion), "--view-html", str(pages[0])]
    assert main(argv) == 0
    assert main(["view", str(motion), "--html", str(pages[1])]) == 0
    assert f"wrote {pages[1]}" in capsys.readouterr().out
    first, second = (Recording(page.read_text()) for page in pages)
    assert first.seconds == second.seconds
    for a, b in zip(first.messages, second.messages, strict=True):
        assert a[0] == b[0]
        assert a[1].keys() == b[1].keys()
        for key in ("updates", "position"):
            np.testing.assert_equal(a[1].get(key), b[1].get(key))
    assert main(["view", "chain:1", "--html", str(pages[0])]) == 0
    assert main(["view", str(tmp_path / "none.npz")]) == 2
    assert main(["rollout", "chain:1", *TINY, "--store", "none", "--view-html", str(pages[0])]) == 2


def test_the_package_runs_as_a_module():
    result = subprocess.run([sys.executable, "-m", "lgjax", "--version"], capture_output=True, text=True)
    assert result.stdout == f"lgjax {lgjax.__version__}\n"


@pytest.mark.slow
@pytest.mark.skipif(program() is None, reason="there is no Chromium")
def test_a_browser_without_a_network_draws_the_page(tmp_path):
    """64 quadrupeds in one file below 6 MB: nothing is asked of a network, robots are seen and they move."""
    path = tmp_path / "out.html"
    assert main(["rollout", "quadruped", "--batch", "64", "--quiet", "--view-html", str(path)]) == 0
    assert path.stat().st_size < 6_000_000
    recording = Recording(path.read_text())
    assert recording.nodes(0)["/world/label"]["text"] == "quadruped #0"
    with opened(path, 700, 500) as page:
        pictures = []
        for fraction in (0.02, 0.6):
            page.seek(fraction)
            pictures.append(page.picture())
        page.value("document.querySelectorAll('#lgjax-panel details').forEach(box => { box.open = true; })")
        panel = page.value("document.getElementById('lgjax-panel').innerText")
        assert {request.split(":")[0] for request in page.requests} <= {"file", "data", "blob"}
        assert page.errors == []
    assert "energy (J)" in panel
    assert "FL_hip_joint" in panel
    # On the left, away from the panels: shaded robots on a white ground with grey lines, elsewhere later.
    first, second = (picture[:, : picture.shape[1] // 2] for picture in pictures)
    assert np.mean(np.abs(first - second).max(-1) > 0.1) > 0.01
    for picture in (first, second):
        assert np.mean(np.ptp(picture, axis=-1) > 0.04) > 1e-3


@pytest.mark.parametrize("aspect", [0.3, 0.7, 1.0, 2.5])
def test_windows_of_every_shape_show_the_whole_width_of_a_scene(chain, aspect):
    """All vertices of all bodies, by the projection of a camera that looks at a point with z up."""
    model, q = chain
    scene = finished(scene_of(model, Moving(q), visuals=False), 0, 4.0, None)
    server = viser_server()
    try:
        drawing, camera = Drawing(server, scene, 0, False, False, False), server.initial_camera
    finally:
        stop(server)
    z = np.subtract(camera.position, camera.look_at)
    x = np.cross([0.0, 0.0, 1.0], z)
    turn = np.stack([x, np.cross(z, x), z]) / np.linalg.norm([x, np.cross(z, x), z], axis=1, keepdims=True)
    focal = 1 / np.tan(drawing.field_of_view(aspect) / 2)
    seen = []
    for part in scene.parts:
        place = np.einsum("tnij,vj->tnvi", scene.rotation[:, :, part.body], part.mesh.vertices)
        points = (place + scene.position[:, :, part.body, None] - camera.position) @ turn.T
        seen.append(np.max(np.abs(focal / aspect * points[..., 0] / -points[..., 2])))
    assert 0.3 < max(seen) < 1 or aspect > 1
    assert max(seen) < 1
    assert drawing.field_of_view(aspect) >= 0.9


def wait(page, dark: bool, within: str = "window"):
    """Until the page, or the one in its frame, is dark or light on the screen."""
    page.until(f"{within}.document.documentElement?.dataset.mantineColorScheme === '{'dark' if dark else 'light'}'")
    page.until(f"!!{within}.document.querySelector('canvas')")
    page._drawn(20)


@pytest.mark.slow
@pytest.mark.skipif(program() is None, reason="there is no Chromium")
def test_a_page_is_dark_where_the_system_or_the_page_around_it_is(tmp_path):
    model = lgjax.models.chain(2)
    inside = lgjax.view.inline(model, lgjax.neutral(model))
    alone, around = tmp_path / "alone.html", tmp_path / "around.html"
    alone.write_text(inside.text)
    around.write_text(f'<body data-theme="dark"><canvas></canvas>{inside._repr_html_()}</body>')
    prefer = lambda page, value: page.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}]
    )
    with opened(alone, 400, 700) as page:
        for value in ("dark", "light"):
            prefer(page, value)
            wait(page, value == "dark")
            assert (np.mean(page.picture()) > 0.5) == (value == "light")
            aspect, fov = page.value("(c => [c.aspect, c.fov])(__viserMutable.camera)")
            assert (fov > 52) == (aspect < 0.7)  # 0.9 rad would cut the chain
        assert page.errors == []
    with opened(around, 700, 500) as page:
        prefer(page, "light")
        wait(page, True, "frames[0]")
        page.value("document.body.dataset.theme = 'light'")
        wait(page, False, "frames[0]")


def test_times_rise_or_fall():
    """A motion backwards in time is drawn from its start; other times are refused."""
    model = lgjax.models.chain(1)
    q = jax.tree.map(lambda x: np.stack([x] * 3), lgjax.neutral(model))
    drawn = lambda ts: scene_of(model, (np.array(ts), q), visuals=False).ts
    np.testing.assert_allclose(drawn([2.0, 1.5, 1.0]), [0, 0.5, 1])
    np.testing.assert_allclose(drawn([0.0, 0.5, 0.5]), [0, 0.5, 0.5])
    for ts in ([0.0, 0.2, 0.1], [0.0, np.nan, 1.0]):
        with pytest.raises(ValueError, match="ts must rise, or fall all the way"):
            drawn(ts)
