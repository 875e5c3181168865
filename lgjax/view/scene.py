"""Scene: what is drawn, whatever it comes from.  Bodies carry meshes, and arrays say where the bodies are.

Every source (a tree, a bouncing body, absolute coordinates, a pendulum) is turned into one, `sources.py`; one file
draws it, `drawing.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lgjax.numerics import checks
from lgjax.shapes.implicit import directions
from lgjax.view.geometry import Mesh

STEEL, DARK, ACCENT = (0.62, 0.67, 0.72), (0.27, 0.31, 0.36), (0.84, 0.37, 0.0)
FORCE, TORQUE = (0.84, 0.37, 0.0), (0.8, 0.47, 0.65)
PALE, FAILED = (0.74, 0.77, 0.81), (0.75, 0.1, 0.1)


class Part(NamedTuple):
    """A mesh that is fixed to a body, in the body's frame; body -1 is the world. color: (3,) from 0 to 1."""

    body: int
    mesh: Mesh
    color: tuple[float, ...] = STEEL
    opacity: float | None = None


class Chart(NamedTuple):
    """Curves over time for a panel: title with units, names of the curves, values (T, curves)."""

    title: str
    names: tuple[str, ...]
    values: np.ndarray


class Scene(NamedTuple):
    """N systems of B bodies at T times.

    ts: (T,) s. rotation, position: (T, N, B, 3, 3) and (T, N, B, 3), m, of the bodies in the world. reference: (T, N,
    3), the point of each system that labels and a camera follow. parts: fixed to bodies, drawn for every system.
    scenery: parts drawn once, fixed to the world. lines: (T, N, k, 2, 3), springs and such. arrows: (T, k, 2, 3) of the
    highlighted system, with colors (k, 3). traced: the body that leaves a trail. good: (N,), False for a system that
    did not stay finite. charts: panels of a system. ground: height of a grid, None for none.
    """

    name: str
    ts: np.ndarray
    body_names: tuple[str, ...]
    rotation: np.ndarray
    position: np.ndarray
    reference: np.ndarray
    parts: tuple[Part, ...]
    traced: int
    good: np.ndarray
    charts: Callable[[int], list[Chart]]
    scenery: tuple[Part, ...] = ()
    lines: np.ndarray | None = None
    arrows: np.ndarray | None = None
    arrow_colors: np.ndarray | None = None
    ground: float | None = None
    radius: float = 1.0

    @property
    def systems(self) -> int:
        return self.position.shape[1]


def finished(scene: Scene, highlight: int, spacing: float | None, ground: Any) -> Scene:
    """The scene with failed systems held where they were last finite, systems side by side, and the ground in place.

    spacing: distance between neighbors in m; 0 leaves them where they are, None sets them apart where they overlap.
    ground: height in m, None for no ground, "auto" for that of the scene, or the lowest point of the motion where there
    are no planes.
    """
    highlight = checks.integer("highlight", highlight, -(2**63))
    spacing = None if spacing is None else checks.number("spacing", spacing, 0.0)
    if not -scene.systems <= highlight < scene.systems:
        raise ValueError(f"highlight is {highlight}, there are {scene.systems} systems")
    scene = _held(scene, highlight)
    scene = scene._replace(radius=_radius(scene))
    scene = _apart(scene, spacing, highlight)
    if isinstance(ground, str) and ground != "auto":
        raise ValueError(f"ground must be a height, None or 'auto', got {checks.shown(ground)}")
    if ground == "auto":  # planes that bodies bounce on are ground enough
        ground = scene.ground
        if ground is None and not scene.scenery:
            ground = _lowest(scene)
    return scene._replace(ground=None if ground is None else checks.number("ground", ground))


def _held(scene: Scene, highlight: int) -> Scene:
    """Poses that are not finite replaced by the last finite ones of the same system."""
    finite = np.asarray(np.isfinite(scene.position).all((2, 3)) & np.isfinite(scene.rotation).all((2, 3, 4)))
    if not finite[0].all():
        raise ValueError(f"the first state of system {int(np.argmin(finite[0]))} is not finite: nothing to draw")
    if finite.all():
        return scene
    last = np.maximum.accumulate(np.where(finite, np.arange(len(scene.ts))[:, None], 0), axis=0)
    take = lambda x: None if x is None else x[last, np.arange(scene.systems)]
    return scene._replace(
        rotation=take(scene.rotation), position=take(scene.position), reference=take(scene.reference),
        lines=take(scene.lines), good=scene.good & finite.all(0),
        arrows=None if scene.arrows is None else scene.arrows[last[:, highlight]],
    )  # fmt: skip


def _some(scene: Scene, times: int = 40, systems: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Indices of times and systems, at most so many, over which bounds are taken."""
    pick = lambda n, most: np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))
    return pick(len(scene.ts), times), pick(scene.systems, systems)


def corners(scene: Scene) -> np.ndarray:
    """Corners of the boxes around the meshes of all bodies, in the world, at some times: (times, systems, k, 3)."""
    at = np.ix_(*_some(scene))
    rotation, position = scene.rotation[at], scene.position[at]
    found = [position]
    for part in scene.parts:
        ends = np.stack([part.mesh.vertices.min(0), part.mesh.vertices.max(0)])
        box = np.stack(np.meshgrid(*ends.T), axis=-1).reshape(8, 3)
        if part.body >= 0:
            turned = np.einsum("tnij,kj->tnki", rotation[:, :, part.body], box)
            found.append(turned + position[:, :, part.body, None])
        else:
            found.append(np.broadcast_to(box, (*position.shape[:2], 8, 3)))
    return np.concatenate(found, axis=2)


def _lowest(scene: Scene) -> float:
    """Height of the lowest point of all meshes at some times, of the vertices that are farthest in some direction."""
    at = np.ix_(*_some(scene))
    heights = [scene.position[at][..., 2].min()]
    for part in scene.parts:
        vertices = part.mesh.vertices[np.unique(np.argmax(part.mesh.vertices @ directions(200).T, axis=0))]
        if part.body < 0:
            heights.append(vertices[:, 2].min())
            continue
        up, base = scene.rotation[at][:, :, part.body, 2], scene.position[at][:, :, part.body, 2]
        heights.append((up @ vertices.T + base[..., None]).min())
    return float(min(heights))


def reached(scene: Scene, start_only: bool) -> np.ndarray:
    """Corners (n, 3) of the boxes around all meshes of all systems, at some times or at the start."""
    if start_only:
        scene = scene._replace(ts=scene.ts[:1])
    return corners(scene).reshape(-1, 3)


def _radius(scene: Scene) -> float:
    """The farthest that a system reaches from its reference, m."""
    center = scene.reference[np.ix_(*_some(scene))][:, :, None]
    moving = scene._replace(parts=tuple(part for part in scene.parts if part.body >= 0))
    return max(float(np.linalg.norm(corners(moving) - center, axis=-1).max()), 1e-6)


def _apart(scene: Scene, spacing: float | None, highlight: int) -> Scene:
    """Systems on a square grid, the first where it was."""
    n = scene.systems
    if n == 1 or spacing == 0:
        return scene
    if spacing is None:
        start = scene.reference[0]
        between = np.linalg.norm(start[:, None] - start[None], axis=-1) + np.diag(np.full(n, np.inf))
        if np.median(between.min(1)) > scene.radius or scene.scenery:
            return scene
        spacing = 2.1 * scene.radius
    columns = int(np.ceil(np.sqrt(n)))
    shift = spacing * np.stack([np.arange(n) % columns, np.arange(n) // columns, np.zeros(n)], axis=-1)
    parts, position, rotation = scene.parts, scene.position, scene.rotation
    if any(part.body < 0 for part in parts):  # the mount of a system goes with it, as one more body
        still = np.broadcast_to(np.zeros(3), (*position.shape[:2], 1, 3))
        position = np.concatenate([position, still], axis=2)
        rotation = np.concatenate([rotation, np.broadcast_to(np.eye(3), (*position.shape[:2], 1, 3, 3))], axis=2)
        parts = tuple(part._replace(body=part.body % position.shape[2]) for part in parts)
    return scene._replace(
        position=position + shift[:, None], rotation=rotation, parts=parts, reference=scene.reference + shift,
        lines=None if scene.lines is None else scene.lines + shift[:, None, None],
        arrows=None if scene.arrows is None else scene.arrows + shift[highlight],
    )  # fmt: skip


def colors(scene: Scene, part: Part, highlight: int) -> np.ndarray:
    """Colors (N, 3) of a part: the highlighted system in its own, the others pale, failed ones red."""
    own = np.asarray(part.color, float)[:3]
    found = np.repeat((0.4 * own + 0.6 * np.asarray(PALE))[None], scene.systems, axis=0)
    found[highlight] = own
    found[~scene.good] = FAILED
    return found


def quaternions(rotation: np.ndarray) -> np.ndarray:
    """Unit quaternions (..., 4), wxyz, of rotation matrices (..., 3, 3)."""
    r = np.asarray(rotation, float)
    trace = r[..., 0, 0] + r[..., 1, 1] + r[..., 2, 2]
    # Four times the square of each entry; the largest is safe to divide by.
    squares = np.stack([1 + trace, *(1 + 2 * r[..., i, i] - trace for i in range(3))], axis=-1)
    w = [r[..., 2, 1] - r[..., 1, 2], r[..., 0, 2] - r[..., 2, 0], r[..., 1, 0] - r[..., 0, 1]]
    products = (
        np.stack([squares[..., 0], *w], axis=-1),
        *(
            np.stack(
                [w[i], *(squares[..., 1 + i] if i == j else r[..., i, j] + r[..., j, i] for j in range(3))], axis=-1
            )
            for i in range(3)
        ),
    )
    rows = np.stack(products, axis=-2)
    best = np.argmax(squares, axis=-1)[..., None, None]
    q = np.take_along_axis(rows, np.broadcast_to(best, (*best.shape[:-2], 1, 4)), axis=-2)[..., 0, :]
    return q / np.linalg.norm(q, axis=-1, keepdims=True)
