"""Pictures and GIFs without a browser: pixels where a parallel projection by hand says, and frames at their times."""

import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import collisions, maximal, shapes, systems
from lgjax.view import geometry
from lgjax.view.projection import Paper, nearest, split
from lgjax.view.scene import Part, Scene, finished

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("matplotlib")
label = pytest.importorskip("scipy.ndimage").label

PENDULUM = systems.spherical_pendulum(1)
TS = np.linspace(0.0, 2.0, 81)
SIZE = (300, 200)
BARE = {"trail": False, "ground": None, "size": SIZE}


def tips(ts):
    """Unit vectors (T, 3) along a path in space."""
    x = np.stack([np.sin(1.5 * ts), 0.8 * np.sin(2.0 * ts), -1.2 + 0.9 * ts], axis=-1)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def moving(ts=TS):
    """The pendulum, whose ball moves as `tips` says."""
    q = jnp.asarray(tips(TS))[:, None]
    return SimpleNamespace(ts=ts, ys=PENDULUM.y0._replace(q=q, omega=jnp.zeros_like(q)))


def frames(path):
    """Pixels (height, width, 3) and milliseconds of every frame."""
    with Image.open(path) as made:
        for k in range(made.n_frames):
            made.seek(k)
            yield np.asarray(made.convert("RGB"), float), made.info["duration"]


def orange(pixels):
    """Where the balls are: rods are grey, the paper is white."""
    return pixels[..., 0] - pixels[..., 2] > 30


@pytest.mark.parametrize(
    ("camera", "right", "up"),
    [
        ((0, -2, 0), (1, 0, 0), (0, 0, 1)),
        ((1, -1, 1), np.array([1, 1, 0]) / np.sqrt(2), np.array([-1, 1, 2]) / np.sqrt(6)),
        ((0, 0, 1), (1, 0, 0), (0, 1, 0)),
    ],
)
def test_a_ball_is_where_its_projection_is(camera, right, up, tmp_path):
    """One scale for both directions and all frames; the whole motion fits, and the ball has its size."""
    path = lgjax.view.picture(PENDULUM, moving(), tmp_path / "a.gif", camera=camera, fps=10, **BARE)
    found = [np.argwhere(orange(pixels)) for pixels, _ in frames(path)]
    centers = np.array([where.mean(0)[::-1] for where in found])  # column and row
    flat = tips(np.arange(21) / 10) @ np.stack([right, -np.asarray(up)], axis=1)
    flat, centers = flat - flat.mean(0), centers - centers.mean(0)
    scale = np.sum(flat * centers) / np.sum(flat**2)  # least squares for one scale and a shift
    assert np.abs(centers - scale * flat).max() < 1.0  # of 9 pixels of radius, where the rod may hide some
    everything = np.concatenate(found)[:, ::-1]
    assert np.all(everything.min(0) > 0)
    assert np.all(everything.max(0) < np.array(SIZE) - 1)
    areas = np.array([len(where) for where in found])
    assert np.sqrt(areas.max() / np.pi) == pytest.approx(0.06 * scale, abs=1.0)  # three times the rod's radius


def test_frames_follow_one_another_in_real_time(tmp_path):
    for fps, speed, count, delay in ((10, 2.0, 11, 100), (25, 4.0, 13, 40), (30, 4.0, 17, 30), (5, 0.5, 21, 200)):
        path = lgjax.view.picture(PENDULUM, moving(), tmp_path / "a.gif", fps=fps, speed=speed, size=(60, 60))
        found = [duration for _, duration in frames(path)]
        assert (len(found), set(found)) == (count, {delay})


def test_an_interrupt_leaves_the_frames_that_are_drawn(tmp_path, monkeypatch):
    """Four frames choose the colors; the fourth of the GIF itself is interrupted."""
    drawn, add = [], Paper.add

    def interrupted(self, index, strength=1.0):
        drawn.append(index)
        if len(drawn) == 4 + 4:
            raise KeyboardInterrupt
        add(self, index, strength)

    monkeypatch.setattr(Paper, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lgjax.view.picture(PENDULUM, moving(), tmp_path / "part.gif", **BARE)
    assert len(list(frames(tmp_path / "part.gif"))) == 3


def test_a_frame_shows_the_state_nearest_in_time():
    ts = np.array([0.0, 1.0, 1.1, 4.0])
    wanted = np.array([-1.0, 0.4, 0.6, 1.04, 1.06, 2.5, 2.6, 9.0])
    closest = np.argmin(np.abs(ts - wanted[:, None]), axis=1)
    np.testing.assert_array_equal(nearest(ts, wanted), closest)
    np.testing.assert_array_equal(nearest(ts[:1], wanted), 0 * closest)


def test_a_still_picture_shows_poses_that_grow_pale_with_age(tmp_path):
    path = lgjax.view.picture(PENDULUM, moving(), tmp_path / "a.png", camera=(0, -1, 0), poses=4, **BARE)
    pixels = np.asarray(Image.open(path).convert("RGB"), float)
    assert pixels.shape == (200, 300, 3)
    regions, count = label(orange(pixels))
    assert count == 4
    across = [np.argwhere(regions == k)[:, 1].mean() for k in range(1, 5)]
    colorful = np.array([(pixels[..., 0] - pixels[..., 2])[regions == k].max() for k in range(1, 5)])
    order = np.argsort(tips(np.linspace(0, 2, 4))[:, 0])  # times from the left to the right
    assert np.all(np.diff(colorful[np.argsort(across)][np.argsort(order)]) > 20)


def boxes():
    """Two boxes behind one another along y, the first nearer to a camera at -y, one of them moving along x."""
    ts = np.linspace(0.0, 1.0, 5)
    position = np.zeros((5, 1, 2, 3))
    position[:, 0, :, 1] = [-1.0, 1.0]
    position[..., 0] = 3 * ts[:, None, None]
    parts = (Part(0, geometry.box(np.full(3, 0.3)), (1, 0, 0)), Part(1, geometry.box(np.full(3, 0.3)), (0, 0, 1)))
    return Scene(
        name="boxes", ts=ts, body_names=("a", "b"), rotation=np.broadcast_to(np.eye(3), (5, 1, 2, 3, 3)),
        position=position, reference=position[:, :, 0], parts=parts, traced=0, good=np.ones(1, bool),
        charts=lambda i: [],
    )  # fmt: skip


def paper(camera, follow=False):
    return Paper(finished(boxes(), 0, None, None), camera, SIZE, 0, follow, False)


@pytest.mark.parametrize(("camera", "nearer"), [((0, -1, 0), 0), ((0, 1, 0), 2)])
def test_what_is_nearer_hides_what_is_farther(camera, nearer):
    drawn = paper(camera)
    drawn.begin(2)
    drawn.add(2)
    middle = drawn.pixels()[100, 150]
    assert middle[nearer] > 100
    assert middle[2 - nearer] == 0


def test_a_camera_that_follows_sees_a_body_at_rest():
    for follow in (False, True):
        drawn, seen = paper((0.3, -1, 0.2), follow), []
        for k in (0, 4):
            drawn.begin(k)
            drawn.add(k)
            seen.append(drawn.pixels())
        assert np.array_equal(*seen) == follow


def test_finer_triangles_are_the_same_surface():
    mesh = geometry.rod([0, 0, 0], [0.1, 0.2, 1.0], 0.05)
    fine = split(mesh, 0.15)
    area = lambda c: np.linalg.norm(np.cross(c[:, 1] - c[:, 0], c[:, 2] - c[:, 0]), axis=-1).sum() / 2
    volume = lambda c: np.linalg.det(c).sum() / 6  # by the divergence theorem
    before, after = mesh.vertices[mesh.faces], fine.vertices[fine.faces]
    assert np.linalg.norm(np.roll(after, 1, axis=1) - after, axis=-1).max() <= 0.15
    assert area(after) == pytest.approx(area(before), rel=1e-12)
    assert volume(after) == pytest.approx(volume(before), rel=1e-12)


def absolute():
    bodies = [maximal.Body(name, 1.0, (0.1, 0.1, 0.1)) for name in "ab"]
    spring = maximal.Spring("world", "a", point_a=(0, 0, 2.0), point_b=(0, 0, 0.3), stiffness=1.0)
    system = maximal.System(bodies, [], [maximal.Gravity(), spring])
    return system, system.configuration(np.broadcast_to(np.eye(3), (2, 3, 3)), [[0.0, 0, 0], [1.0, 0, 0]])


PLANE = shapes.Plane((0.0, 0.0, 1.0))
SOURCES = {
    "model": lambda: (lgjax.models.chain(2), None, {}),
    "mechanism": lambda: (systems.four_bar(), None, {}),
    "shape": lambda: (shapes.sphere(0.1), collisions.rigid_state((0.0, 0.0, 1.0)), {"planes": PLANE}),
    "absolute": lambda: (*absolute(), {}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_page_shows_a_picture_shows_without_viser(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    thing, motion, options = SOURCES[name]()
    for suffix in ("gif", "png"):
        made = lgjax.view.picture(thing, motion, tmp_path / f"a.{suffix}", size=SIZE, **options)
        with Image.open(made) as picture:
            assert picture.size == SIZE
            assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 10


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"path": "a.mp4"}, ValueError, r"path ends in '.mp4', motions are drawn as .gif, .png, .pdf, .svg"),
        ({"path": "a"}, ValueError, "path ends in ''"),
        ({"camera": (0, 0, 0)}, ValueError, "camera is the direction from the motion to the camera"),
        ({"camera": (0, 1)}, ValueError, "camera"),
        ({"size": (10, 10, 10)}, ValueError, "size is width and height in pixels"),
        ({"size": (0, 10)}, ValueError, "size"),
        ({"poses": 0, "path": "a.png"}, ValueError, "poses must be a positive integer"),
        ({"fps": 90}, ValueError, "fps"),
        ({"speed": 0.0}, ValueError, "speed"),
        ({"speed": 1e-6}, ValueError, "the GIF would have .* frames"),
        ({"follow": 1}, TypeError, "follow must be True or False"),
        ({"highlight": 1}, ValueError, "highlight is 1, there are 1 systems"),
        ({"trajectory": moving(np.append(TS[:-1], np.inf))}, ValueError, "ts of the motion must be finite"),
        ({"trajectory": moving(np.full(81, np.nan))}, ValueError, "ts must rise"),
    ],
)
def test_what_cannot_be_drawn_is_named(options, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        lgjax.view.picture(**{"model": PENDULUM, "trajectory": moving(), "path": "a.gif", **options})
    assert list(tmp_path.iterdir()) == []


def test_a_motion_that_starts_nowhere_cannot_be_drawn(tmp_path):
    broken = moving()
    broken.ys = broken.ys._replace(q=broken.ys.q.at[0].set(jnp.nan))
    with pytest.raises(ValueError, match="the first state of system 0 is not finite: nothing to draw"):
        lgjax.view.picture(PENDULUM, broken, tmp_path / "a.gif")
