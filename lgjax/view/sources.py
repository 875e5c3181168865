"""Scenes of what the library simulates: trees, bouncing bodies, absolute coordinates, spherical pendulums.

Read first: `scene_of`. What carries its own shapes is drawn with them; else `skeleton.py` makes some.
"""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax import maximal
from lgjax.adapters.environment import Environment
from lgjax.contact.contacts import Contacts
from lgjax.dynamics.energy import kinetic_energy, potential_energy
from lgjax.dynamics.kinematics import forward_kinematics
from lgjax.dynamics.loops.loop import as_loops
from lgjax.groups.ts2 import TangentPoint
from lgjax.multibody.configuration import neutral
from lgjax.multibody.model import Configuration, Model
from lgjax.numerics import checks
from lgjax.robots.robot import Robot
from lgjax.shapes import Shape
from lgjax.systems.closed_loops import LoopProblem
from lgjax.systems.maximal_problem import MaximalProblem
from lgjax.systems.problem import Problem
from lgjax.view import contacts as touching
from lgjax.view import geometry, skeleton, solids
from lgjax.view.bouncing import bouncing_scene
from lgjax.view.motion import Motion, as_motion, good_systems, leading_axes, over_states
from lgjax.view.scene import ACCENT, DARK, FORCE, TORQUE, Chart, Part, Scene
from lgjax.view.visuals import visual_parts

CURVES = 12  # joints in a panel


def scene_of(
    thing: Any,
    motion: Any = None,
    *,
    loops: Any = None,
    wrenches: Any = None,
    contacts: Any = None,
    planes: Any = (),
    visuals: Any = None,
    highlight: int = 0,
    frames: int = 200,
    systems: int = 1000,
) -> Scene:
    """The scene of a motion; the arguments are those of `show`. Raises TypeError for what cannot be drawn."""
    limits = {"frames": checks.integer("frames", frames), "systems": checks.integer("systems", systems)}
    highlight = checks.integer("highlight", highlight, -(2**63))
    if isinstance(thing, LoopProblem):
        loops, thing, motion = thing.loops, thing.model, thing.q0 if motion is None else motion
    if isinstance(thing, MaximalProblem):
        thing, motion = thing.system, thing.q0 if motion is None else motion
    if isinstance(thing, Environment):
        contacts, thing = thing.contacts if contacts is None else contacts, thing.model
    if isinstance(thing, Robot):
        loops = thing.loops or None if loops is None else loops
        if contacts is None and getattr(motion, "contacts", None) is not None and thing.contacts.grounds:
            of_robot: Any = Contacts  # it takes a Robot too
            contacts = of_robot(thing)
        thing = thing.model
    if isinstance(thing, Model):
        return tree_scene(thing, motion, loops, wrenches, contacts, visuals, highlight, limits)
    for name, value in (("loops", loops), ("wrenches", wrenches), ("contacts", contacts), ("visuals", visuals)):
        if value is not None and isinstance(thing, Shape | maximal.System | Problem):
            raise TypeError(f"{name} belong to a Model, not to {type(thing).__name__}")
    if isinstance(thing, Shape):
        return bouncing_scene(thing, motion, planes, highlight, limits)
    if isinstance(thing, maximal.System):
        return absolute_scene(thing, motion, limits)
    if isinstance(thing, Problem) and {"lengths", "masses"} <= set(thing.parameters):
        states = thing.y0 if motion is None else getattr(motion, "ys", motion)
        if not isinstance(states, TangentPoint):
            raise TypeError(f"a spherical pendulum moves by the result of integrate, not by a {type(motion).__name__}")
        return pendulum_scene(thing, getattr(motion, "ts", None), states, limits)
    raise TypeError(
        f"cannot draw an object of type {type(thing).__name__}: pass a Model, a Robot, an Environment, a LoopProblem, "
        "a Shape with the result of bounce, a maximal.System, or the spherical pendulum with the result of integrate"
    )


def tree_scene(
    model: Model, motion: Any, loops: Any, wrenches: Any, contacts: Any, visuals: Any, highlight: int,
    limits: dict[str, int],
) -> Scene:  # fmt: skip
    """Scene of a tree from a `Trajectory`, an `Ensemble`, a Configuration, anything with ts and q, or a tuple of ts, q
    and perhaps v; None: neutral."""
    given = neutral(model) if motion is None else motion
    if type(given) is tuple and len(given) in (2, 3):  # a Configuration is a tuple, too
        given = SimpleNamespace(**dict(zip(("ts", "q", "v"), given)))
    q = given if isinstance(given, Configuration) else getattr(given, "q", None)
    if not isinstance(q, Configuration):
        raise TypeError(
            f"a Model moves by a Trajectory, an Ensemble or a Configuration, not by a {type(given).__name__}"
        )
    of = lambda name: None if given is q else getattr(given, name, None)
    m = as_motion(
        of("ts"),
        q,
        _leading_axes(model, q, of("v")),
        of("v"),
        of("energy"),
        getattr(of("contacts"), "force", None),
        **limits,
    )
    poses = over_states(lambda q: forward_kinematics(model, q), m.q)
    if model.tree.n_free:
        reference = np.moveaxis(np.asarray(m.q.free_poses.translation)[:, :, 0], 0, 1)
    else:
        reference = np.broadcast_to(np.asarray(model.placements.translation)[0], (len(m.ts), m.systems, 3))
    closures = () if loops is None else as_loops(model, loops)
    i = highlight % m.systems
    arrows = _arrows(model, m, wrenches, poses, i)
    shapes = None if contacts is None else solids.of_contacts(model, touching.checked_contacts(contacts))
    parts = [*visual_parts(model, visuals, shapes), *skeleton.of_loops(model, closures)]
    scenery, ground, lines = (), None, None
    if contacts is not None:
        scenery, ground = touching.grounds(contacts, poses.translation)
        if m.forces is not None:
            forces = touching.force_arrows(model, contacts, m, i, _width(poses, i))
            arrows += [(forces, FORCE)]
            lines = touching.patch_lines(model, contacts, m, i, _width(poses, i))
    return Scene(
        name=model.name, ts=m.ts, body_names=model.body_names, rotation=poses.rotation, position=poses.translation,
        reference=reference, parts=tuple(parts),
        traced=0 if model.tree.n_free else model.nbodies - 1, good=good_systems(given, m),
        charts=lambda i: _tree_charts(model, m, i), scenery=scenery, ground=ground, lines=lines,
        **_joined(arrows),
    )  # fmt: skip


def _leading_axes(model: Model, q: Configuration, v: Any) -> int:
    """Number of leading axes that the configurations and velocities of a motion have."""
    tree, poses = model.tree, q.free_poses
    if not isinstance(poses, tuple) or len(poses) != 2:
        raise TypeError(f"free_poses of the motion must be a Pose, got {checks.shown(poses)}")
    counts = {"joints": (q.joints, tree.n_joint, 1), "free_poses": (poses[1], tree.n_free, 2),
              "ball_rotations": (q.ball_rotations, tree.n_ball, 3)}  # fmt: skip
    for name, (value, expected, place) in counts.items():
        size = np.shape(value)[-place] if np.ndim(value) >= place else expected
        if size != expected:
            raise ValueError(f"the motion has {size} {name}, {model.name!r} has {expected}: it is of another model")
    own = {
        "q.free_poses.rotation": (poses[0], (tree.n_free, 3, 3)),
        "q.free_poses.translation": (poses[1], (tree.n_free, 3)),
        "q.joints": (q.joints, (tree.n_joint,)),
        "q.ball_rotations": (q.ball_rotations, (tree.n_ball, 3, 3)),
    }
    return leading_axes(own if v is None else own | {"v": (v, (model.nv,))})


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


def _joined(arrows: list[tuple[np.ndarray, Any]]) -> dict[str, Any]:
    """Arrows (T, k, 2, 3) of several kinds, each with its color, as fields of a scene."""
    if not arrows:
        return {}
    colors = [np.broadcast_to(color, (some.shape[1], 3)) for some, color in arrows]
    return {"arrows": np.concatenate([some for some, _ in arrows], axis=1), "arrow_colors": np.concatenate(colors)}


def _width(poses: Any, i: int) -> float:
    """How far the bodies of system i spread, m, which is how long arrows are."""
    return max(float(np.ptp(poses.translation[:, i], axis=1).max()), 0.3)


def _arrows(model: Model, m: Motion, wrenches: Any, poses: Any, i: int) -> list[tuple[np.ndarray, Any]]:
    """Forces and torques of system i as arrows (T, B, 2, 3), the largest as long as it is wide, with their colors."""
    if wrenches is None:
        return []
    times, bodies = len(m.ts), model.nbodies
    if callable(wrenches):
        v = np.zeros((m.systems, times, model.nv)) if m.v is None else m.v
        ts = np.broadcast_to(m.ts.astype(model.dtype), (1, times))
        q, v = jax.tree.map(lambda x: x[i : i + 1], (m.q, v.astype(model.dtype)))
        applied = over_states(lambda t, q, v: jnp.asarray(wrenches(t, q, v)), ts, q, v)[:, 0]
    else:
        applied = checks.real("wrenches", wrenches)
    if applied.shape not in ((bodies, 6), (times, bodies, 6)):
        raise ValueError(f"wrenches have shape {applied.shape}, expected ({bodies}, 6) or ({times}, {bodies}, 6)")
    applied = np.broadcast_to(applied, (times, bodies, 6)).reshape(times, bodies, 2, 3)
    turned = np.einsum("tbij,tbkj->tkbi", poses.rotation[:, i], applied)
    largest = np.linalg.norm(turned, axis=-1).max((0, 2), initial=0, keepdims=True)[..., None]
    ends = _width(poses, i) * turned / np.where(largest > 0, largest, 1)
    start = np.broadcast_to(poses.translation[:, i][:, None], ends.shape)
    torques, forces = np.moveaxis(np.stack([start, start + ends], axis=3), 1, 0)
    return [(forces, FORCE), (torques, TORQUE)]


def _axes_of(system: maximal.System, q: maximal.AbsoluteConfiguration, v: Any) -> int:
    """How many leading axes a motion in absolute coordinates has."""
    bodies, poses = system.nbodies, q.bodies
    if not isinstance(poses, tuple) or len(poses) != 2:
        raise TypeError(f"bodies of the motion must be rotations and translations, got {checks.shown(poses)}")
    own = {
        "q.bodies.rotation": (poses[0], (bodies, 3, 3)),
        "q.bodies.translation": (poses[1], (bodies, 3)),
        "q.coordinates": (q.coordinates, (system.nv - 6 * bodies,)),
    }
    return leading_axes(own if v is None else own | {"v": (v, (system.nv,))})


def absolute_scene(system: maximal.System, motion: Any, limits: dict[str, int]) -> Scene:
    """Scene of bodies in absolute coordinates from a `maximal.Solution` or a configuration."""
    q = motion if isinstance(motion, maximal.AbsoluteConfiguration) else getattr(motion, "q", None)
    if not isinstance(q, maximal.AbsoluteConfiguration):
        raise TypeError(f"a maximal.System moves by the result of maximal.integrate, not by a {type(motion).__name__}")
    ts, v = (getattr(motion, name, None) for name in ("ts", "v"))
    m = as_motion(ts, q, _axes_of(system, q, v), v, **limits)
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
        traced=system.nbodies - 1, good=good_systems(motion, m), charts=charts, lines=lines,
    )  # fmt: skip


def pendulum_scene(problem: Problem, ts: Any, states: TangentPoint, limits: dict[str, int]) -> Scene:
    """Scene of the N-fold spherical pendulum: a rod and a ball for each mass."""
    lengths, masses = (np.asarray(problem.parameters[name], float) for name in ("lengths", "masses"))
    own = {name: (value, (len(lengths), 3)) for name, value in states._asdict().items()}
    m = as_motion(ts, states, leading_axes(own), **limits)
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
