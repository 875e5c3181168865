"""Scenes of what the library simulates: trees, bouncing bodies, absolute coordinates, spherical pendulums.

Read first: `scene_of`. What carries its own shapes is drawn with them; else `skeleton.py` makes some.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax import maximal
from lgjax.collisions.bounce import BounceSolution
from lgjax.collisions.lagrangian_bounce import LagrangianSolution
from lgjax.collisions.variational import RigidState
from lgjax.dynamics.energy import kinetic_energy, potential_energy
from lgjax.dynamics.kinematics import forward_kinematics
from lgjax.dynamics.loops.loop import as_loops
from lgjax.groups.ts2 import TangentPoint
from lgjax.multibody.configuration import neutral
from lgjax.multibody.model import Configuration, Model
from lgjax.shapes import Plane, Shape
from lgjax.systems.closed_loops import LoopProblem
from lgjax.systems.maximal_problem import MaximalProblem
from lgjax.systems.problem import Problem
from lgjax.view import geometry, skeleton
from lgjax.view.motion import Motion, as_motion, over_states
from lgjax.view.scene import ACCENT, DARK, FORCE, STEEL, TORQUE, Chart, Part, Scene
from lgjax.view.visuals import visual_parts

CURVES = 12  # joints in a panel


def scene_of(
    thing: Any,
    motion: Any = None,
    *,
    loops: Any = None,
    wrenches: Any = None,
    planes: Any = (),
    visuals: Any = None,
    highlight: int = 0,
    frames: int = 200,
    systems: int = 1000,
) -> Scene:
    """The scene of a motion; the arguments are those of `show`. Raises TypeError for what cannot be drawn."""
    limits = {"frames": frames, "systems": systems}
    if isinstance(thing, LoopProblem):
        loops, thing, motion = thing.loops, thing.model, thing.q0 if motion is None else motion
    if isinstance(thing, MaximalProblem):
        thing, motion = thing.system, thing.q0 if motion is None else motion
    if isinstance(thing, Model):
        return tree_scene(thing, motion, loops, wrenches, visuals, highlight, limits)
    for name, value in (("loops", loops), ("wrenches", wrenches), ("visuals", visuals)):
        if value is not None:
            raise TypeError(f"{name} belong to a Model, not to {type(thing).__name__}")
    if isinstance(thing, Shape):
        return bouncing_scene(thing, motion, planes, limits)
    if isinstance(thing, maximal.System):
        return absolute_scene(thing, motion, limits)
    if isinstance(thing, Problem) and {"lengths", "masses"} <= set(thing.parameters):
        states = thing.y0 if motion is None else getattr(motion, "ys", motion)
        if isinstance(states, TangentPoint):
            return pendulum_scene(thing, getattr(motion, "ts", None), states, limits)
    raise TypeError(
        f"cannot draw a {type(thing).__name__}: pass a Model, a LoopProblem, a Shape with the result of bounce, "
        "a maximal.System, or the spherical pendulum with the result of integrate"
    )


def tree_scene(
    model: Model, motion: Any, loops: Any, wrenches: Any, visuals: Any, highlight: int, limits: dict[str, int]
) -> Scene:
    """Scene of a tree from a `Trajectory`, an `Ensemble`, a Configuration, or anything with ts and q; None: neutral."""
    given = neutral(model) if motion is None else motion
    q = given if isinstance(given, Configuration) else getattr(given, "q", None)
    if not isinstance(q, Configuration):
        raise TypeError(f"the motion of a Model is a Trajectory, an Ensemble or a Configuration, not {_kind(given)}")
    _check_configuration(model, q)
    of = lambda name: None if given is q else getattr(given, name, None)
    m = as_motion(of("ts"), q, np.ndim(q.joints) - 1, of("v"), of("energy"), **limits)
    poses = over_states(lambda q: forward_kinematics(model, q), m.q)
    if model.tree.n_free:
        reference = np.moveaxis(np.asarray(m.q.free_poses.translation)[:, :, 0], 0, 1)
    else:
        reference = np.broadcast_to(np.asarray(model.placements.translation)[0], (len(m.ts), m.systems, 3))
    closures = () if loops is None else as_loops(model, loops)
    arrows, colors = _arrows(model, m, wrenches, poses, highlight % m.systems)
    return Scene(
        name=model.name, ts=m.ts, body_names=model.body_names, rotation=poses.rotation, position=poses.translation,
        reference=reference, parts=(*visual_parts(model, visuals), *skeleton.of_loops(model, closures)),
        traced=0 if model.tree.n_free else model.nbodies - 1, good=_good(given, m),
        charts=lambda i: _tree_charts(model, m, i), arrows=arrows, arrow_colors=colors,
    )  # fmt: skip


def _kind(thing: Any) -> str:
    return f"a {type(thing).__name__}"


def _check_configuration(model: Model, q: Configuration) -> None:
    counts = {"joints": model.tree.n_joint, "free_poses": model.tree.n_free, "ball_rotations": model.tree.n_ball}
    found = np.shape(q.joints)[-1], np.shape(q.free_poses.translation)[-2], np.shape(q.ball_rotations)[-3]
    for (name, expected), size in zip(counts.items(), found, strict=True):
        if size != expected:
            raise ValueError(f"the motion has {size} {name}, {model.name!r} has {expected}: it is of another model")


def _good(given: Any, m: Motion) -> np.ndarray:
    success = np.asarray(getattr(given, "success", True))
    return np.broadcast_to(success[: m.systems] if success.ndim else success, (m.systems,))


def _tree_charts(model: Model, m: Motion, i: int) -> list[Chart]:
    if len(m.ts) < 2:
        return []
    q, v = jax.tree.map(lambda x: x[i : i + 1], (m.q, m.v))
    charts = []
    if m.energy is not None:
        charts.append(Chart("energy (J)", ("total",), np.asarray(m.energy)[i][:, None]))
    elif m.v is not None:
        energies = lambda q, v: jnp.stack([kinetic_energy(model, q, v), potential_energy(model, q)])
        both = over_states(energies, q, v)[:, 0]
        charts.append(Chart("energy (J)", ("kinetic", "potential", "total"), np.c_[both, both.sum(1)]))
    names = model.tree.coordinate_names[:CURVES]
    if names:
        charts.append(Chart("joints (rad or m)", names, np.asarray(m.q.joints)[i][:, :CURVES]))
    return charts


def _arrows(model: Model, m: Motion, wrenches: Any, poses: Any, i: int) -> tuple[Any, Any]:
    """Forces and torques of system i as arrows (T, 2 B, 2, 3), the largest as long as it is wide, and their colors."""
    if wrenches is None:
        return None, None
    times, bodies = len(m.ts), model.nbodies
    if callable(wrenches):
        v = np.zeros((m.systems, times, model.nv)) if m.v is None else m.v
        ts = np.broadcast_to(m.ts.astype(model.dtype), (1, times))
        q, v = jax.tree.map(lambda x: x[i : i + 1], (m.q, v.astype(model.dtype)))
        applied = over_states(lambda t, q, v: jnp.asarray(wrenches(t, q, v)), ts, q, v)[:, 0]
    else:
        applied = np.asarray(wrenches)
    if applied.shape not in ((bodies, 6), (times, bodies, 6)):
        raise ValueError(f"wrenches have shape {applied.shape}, expected ({bodies}, 6) or ({times}, {bodies}, 6)")
    applied = np.broadcast_to(applied, (times, bodies, 6)).reshape(times, bodies, 2, 3)
    turned = np.einsum("tbij,tbkj->tkbi", poses.rotation[:, i], applied)
    largest = np.linalg.norm(turned, axis=-1).max((0, 2), initial=0, keepdims=True)[..., None]
    spread = np.ptp(poses.translation[:, i], axis=1)
    size = max(float(spread.max()), 0.3)
    ends = size * turned / np.where(largest > 0, largest, 1)
    start = np.broadcast_to(poses.translation[:, i][:, None], ends.shape)
    arrows = np.stack([start, start + ends[:, ::-1]], axis=3).reshape(times, 2 * bodies, 2, 3)
    return arrows, np.repeat([FORCE, TORQUE], bodies, axis=0)


def bouncing_scene(shape: Shape, motion: Any, planes: Any, limits: dict[str, int]) -> Scene:
    """Scene of bodies of one shape from the result of `bounce`, or from a RigidState, above planes."""
    states = getattr(motion, "states", motion)
    if not isinstance(motion, BounceSolution | LagrangianSolution | RigidState) or not isinstance(states, RigidState):
        raise TypeError(f"the motion of a Shape is the result of bounce, not {_kind(motion)}")
    m = as_motion(getattr(motion, "ts", None), states, np.ndim(states.linear) - 1, **limits)
    rotation, position = (np.moveaxis(np.asarray(x), 0, 1) for x in m.q.pose)
    several = (planes,) if isinstance(planes, Plane) else tuple(planes)

    def charts(i: int) -> list[Chart]:
        if len(m.ts) < 2:
            return []
        linear, angular = (np.linalg.norm(x[i], axis=-1)[:, None] for x in (m.q.linear, m.q.angular))
        height = Chart("position (m)", ("x", "y", "z"), position[:, i])
        return [height, Chart("momentum (N s, N m s)", ("linear", "angular"), np.c_[linear, angular])]

    return Scene(
        name="body", ts=m.ts, body_names=("body",), rotation=rotation[:, :, None],
        position=position[:, :, None], reference=position, parts=(Part(0, geometry.of_shape(shape), ACCENT),), traced=0,
        good=_good(motion, m), charts=charts, scenery=_planes(several, position),
    )  # fmt: skip


def _planes(planes: Sequence[Plane], position: np.ndarray) -> tuple[Part, ...]:
    """Thin translucent slabs under the motion."""
    middle = (position.min((0, 1)) + position.max((0, 1))) / 2
    size = float(np.linalg.norm(np.ptp(position, axis=(0, 1)))) + 1.0
    found = []
    for plane in planes:
        if not isinstance(plane, Plane):
            raise TypeError(f"planes must be Plane, got {type(plane).__name__}")
        for normal, offset in zip(np.reshape(plane.normal, (-1, 3)), np.ravel(plane.offset), strict=True):
            foot = middle - (normal @ middle + offset) * normal
            slab = geometry.box([size, size, 0.005 * size]).moved(geometry.along(normal), foot - 0.005 * size * normal)
            found.append(Part(-1, slab, STEEL, 0.5))
    return tuple(found)


def absolute_scene(system: maximal.System, motion: Any, limits: dict[str, int]) -> Scene:
    """Scene of bodies in absolute coordinates from a `maximal.Solution` or a configuration."""
    q = motion if isinstance(motion, maximal.AbsoluteConfiguration) else getattr(motion, "q", None)
    if not isinstance(q, maximal.AbsoluteConfiguration):
        raise TypeError(f"the motion of a maximal.System is the result of maximal.integrate, not {_kind(motion)}")
    ts, v = (None, None) if motion is q else (motion.ts, motion.v)
    m = as_motion(ts, q, np.ndim(q.bodies.translation) - 2, v, **limits)
    rotation, position = (np.moveaxis(np.asarray(x), 0, 1) for x in m.q.bodies)
    parts, lines = skeleton.of_system(system, rotation, position)

    def charts(i: int) -> list[Chart]:
        if len(m.ts) < 2 or m.v is None:
            return []
        q, v = jax.tree.map(lambda x: x[i : i + 1], (m.q, m.v))
        energies = lambda q, v: jnp.stack([system.kinetic_energy(q, v), system.potential_energy(q)])
        both = over_states(energies, q, v)[:, 0]
        heights = Chart("heights (m)", system.structure.body_names[:CURVES], position[:, i, :CURVES, 2])
        return [Chart("energy (J)", ("kinetic", "potential", "total"), np.c_[both, both.sum(1)]), heights]

    return Scene(
        name="system", ts=m.ts, body_names=system.structure.body_names, rotation=rotation, position=position,
        reference=np.broadcast_to(position[0].mean(1), (len(m.ts), m.systems, 3)), parts=parts,
        traced=system.nbodies - 1, good=_good(motion, m), charts=charts, lines=lines,
    )  # fmt: skip


def pendulum_scene(problem: Problem, ts: Any, states: TangentPoint, limits: dict[str, int]) -> Scene:
    """Scene of the N-fold spherical pendulum: a rod and a ball for each mass."""
    m = as_motion(ts, states, np.ndim(states.q) - 2, **limits)
    lengths, masses = (np.asarray(problem.parameters[name], float) for name in ("lengths", "masses"))
    q = np.moveaxis(np.asarray(m.q.q, float), 0, 1)
    position = np.cumsum(lengths[:, None] * q, axis=2)
    thin, parts = max(0.02 * float(lengths.mean()), 0.004 * float(lengths.sum())), []
    for i, (length, mass) in enumerate(zip(lengths, masses, strict=True)):
        ball = geometry.ellipsoid(np.full(3, 3.0 * thin * np.cbrt(mass / masses.mean())))
        parts += [Part(i, geometry.rod([0, 0, -length], [0, 0, 0], thin), DARK), Part(i, ball, ACCENT)]

    def charts(i: int) -> list[Chart]:
        if len(m.ts) < 2:
            return []
        state = jax.tree.map(lambda x: x[i : i + 1], m.q)
        energy = over_states(problem.invariants["energy"], state)
        tips = Chart("last mass (m)", ("x", "y", "z"), position[:, i, -1])
        return [Chart("energy (J)", ("total",), energy), tips]

    return Scene(
        name=f"pendulum of {len(lengths)} rods", ts=m.ts, body_names=tuple(f"mass{i + 1}" for i in range(len(lengths))),
        rotation=geometry.along(q), position=position, reference=np.zeros_like(position[:, :, 0]),
        parts=(*parts, Part(-1, geometry.ellipsoid(np.full(3, 2.0 * thin)), DARK)), traced=len(lengths) - 1,
        good=np.ones(m.systems, bool), charts=charts,
    )  # fmt: skip
