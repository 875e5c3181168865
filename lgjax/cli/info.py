"""`lgjax info`: the tree, joints and masses of a model, and all else that a robot's file has."""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from lgjax.cli.arguments import add_keyframe, add_model, as_option, load_model, spelled
from lgjax.cli.robots import start_of
from lgjax.dynamics.forces import Sum
from lgjax.dynamics.transmissions.coordinates import Joints
from lgjax.groups import s3
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Model
from lgjax.robots.actuators import Actuators
from lgjax.robots.robot import Robot

WORDS = {
    "FixedTendons": "fixed tendon",
    "SpatialTendons": "spatial tendon",
    "Balls": "ball joint",
    "Frees": "free joint",
    "Sites": "site",
    "RelativeSites": "site in a reference",
    "SliderCranks": "slider-crank",
}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "info", description="Show the tree, joints and masses of a model, and what else a file has."
    )
    add_model(parser)
    add_keyframe(parser, "show this keyframe of a file, by its name")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    mechanism = load_model(args)
    lines = described_model(checked_model(mechanism))
    if isinstance(mechanism, Robot):
        lines += described(mechanism)
    if args.keyframe is not None:
        lines += state_of(mechanism, args.keyframe)
    print("\n".join(lines))
    return 0


def described_model(model: Model) -> list[str]:
    """Lines about the bodies, joints, masses and frames of a model."""
    tree, masses = model.tree, np.asarray(model.inertias.mass, float)
    gravity = ", ".join(f"{g:g}" for g in np.asarray(model.gravity, float))
    found = [f"{model.name}: {tree.nbodies} bodies, {len(model.joint_names)} joints, nv {tree.nv}"]
    found += [f"total mass {masses.sum():.6g} kg, gravity ({gravity}) m/s^2", ""]
    rows = [("body", "joint", "kind", "range", "mass (kg)")]
    for i, name in enumerate(tree.body_names):
        kind, limits = tree.kinds[i], ""
        if kind.coordinates == "joints":
            here = range(tree.q_start[i], tree.q_start[i] + kind.nq)
            ranges = [(float(model.lower[k]), float(model.upper[k])) for k in here]
            each = [interval(*ends) for ends in ranges]
            limits = each[0] if len(set(each)) == 1 else " ".join(each)
        rows.append(("  " * tree.depths[i] + name, tree.joint_names[i], kind.name, limits, f"{masses[i]:.6g}"))
    found += table(rows, "")
    if tree.frames:
        place = lambda body: tree.body_names[body] if body >= 0 else "the world"
        found += ["", "links on fixed joints", *(f"  {name} on {place(body)}" for name, body in tree.frames)]
    return found


def described(robot: Robot) -> list[str]:
    """Lines about what a robot has besides its model, and what of its file was left out."""
    found: list[str] = []
    if robot.loops:
        rows = [(loop.name or "", replace(loop, name=None).label.strip("()")) for loop in robot.loops]
        found += ["", "loops", *table([("name", "what it holds"), *rows])]
    if robot.forces is not None:
        parts = robot.forces.forces if isinstance(robot.forces, Sum) else (robot.forces,)
        names = [type(part).__name__ for part in parts]
        found += ["", f"passive forces: {', '.join(dict.fromkeys(names))}"]
    if robot.actuators is not None:
        found += ["", "actuators", *table([("name", "kind", "acts on", "control range"), *_drives(robot)])]
    if robot.sensors is not None:
        rows = zip(robot.sensors.names, (kind.name for kind in robot.sensors.kinds), strict=True)
        found += ["", "sensors", *table([("name", "measures"), *rows])]
    if robot.keyframes:
        found += ["", f"keyframes: {', '.join(robot.keyframes)}"]
    shapes = [shape.kind for shape in robot.contacts.shapes]
    if shapes or robot.contacts.grounds or robot.contacts.fixed:
        counts = [f"{shapes.count(kind)} {kind}" for kind in dict.fromkeys(shapes)]
        more = [f"{len(robot.contacts.grounds)} ground", f"{len(robot.contacts.fixed)} fixed to the world"]
        found += ["", f"can touch: {', '.join([*counts, *(text for text in more if text[0] != '0')])}"]
    if robot.mocap:
        found += ["", f"mocap bodies: {', '.join(name for name, _ in robot.mocap)}"]
    if robot.ignored:
        found += ["", "ignored", *(f"  {spelled(entry, as_option)}" for entry in robot.ignored)]
    return found


def state_of(mechanism: Model | Robot, keyframe: str) -> list[str]:
    """Lines about a keyframe: pose, position and velocity at each joint, and what its actuators are given."""
    start, tree = start_of(mechanism, keyframe), checked_model(mechanism).tree
    numbers = lambda x: " ".join(f"{number:.6g}" for number in np.ravel(np.asarray(x, float)))
    rows = [("joint", "position", "velocity")]
    for i, (kind, at, to) in enumerate(zip(tree.kinds, tree.q_start, tree.v_start, strict=True)):
        if kind.coordinates == "joints":
            place = numbers(start.q.joints[at : at + kind.nq])
        elif kind.coordinates == "free_poses":
            pose = start.q.free_poses
            place = f"{numbers(pose.translation[at])}, {numbers(s3.from_rotation(pose.rotation[at]))}"
        else:
            place = numbers(s3.from_rotation(start.q.ball_rotations[at]))
        rows.append((tree.joint_names[i] or "free base", place, numbers(start.v[to : to + kind.nv])))
    found = ["", f"keyframe {keyframe}", *table(rows)]
    for name, values in (("control", start.control), ("activation", start.activation)):
        if values is not None and values.size:
            found.append(f"  {name}: {numbers(values)}")
    return found


def table(rows: list[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Lines with columns as wide as they have to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    join = lambda row: "  ".join(x.ljust(width) for x, width in zip(row, widths, strict=True))
    return [(indent + join(row)).rstrip() for row in rows]


def interval(low: float, high: float) -> str:
    """A range in words."""
    return f"[{low:.4g}, {high:.4g}]" if np.isfinite([low, high]).any() else "unlimited"


def _drives(robot: Robot) -> list[tuple[str, str, str, str]]:
    actuators, places = robot.actuators, _targets(robot)
    assert actuators is not None
    controls, forces = np.asarray(actuators.control_range, float), np.asarray(actuators.force_range, float)
    force = lambda ends: f", force {interval(*ends)}" if np.isfinite(ends).any() else ""
    limits = [interval(*given) + force(made) for given, made in zip(controls, forces, strict=True)]
    kinds = [kind_of(actuators, i) for i in range(len(actuators))]
    return list(zip(actuators.names, kinds, places, limits, strict=True))


def kind_of(actuators: Actuators, i: int) -> str:
    """Kind of an actuator by its law: position, velocity, ..., with its activation and its delay."""
    (gain, *by_state), (constant, stiffness, damping) = (
        np.asarray(x, float)[i] for x in (actuators.gain, actuators.bias)
    )
    servo = gain != 0 and constant == 0 and not any(by_state)
    if servo and stiffness == -gain:
        kind = "position"
    elif servo and stiffness == 0 and damping == -gain:
        kind = "velocity"
    elif servo and stiffness == damping == 0:
        kind = "motor"
    elif gain == 0 and by_state[0] == 0 and not any((constant, stiffness, damping)):
        kind = "damper"
    else:
        kind = "general"
    more = [] if actuators.dynamics[i] == "none" else [actuators.dynamics[i]]
    delay = float(np.asarray(actuators.delay)[i])
    return ", ".join([kind, *more, *([f"delay {delay:g} s"] if delay else [])])


def _targets(robot: Robot) -> list[str]:
    """The target of each actuator: joints by name, else the kind of its transmission."""
    assert robot.actuators is not None
    tree, found = robot.model.tree, []
    joint_of = lambda column: tree.joint_names[tree.v_body[column]]
    for kind in robot.actuators.transmission.kinds:
        rows, columns = kind.places(tree)
        for i in range(len(kind)):
            joints = list(dict.fromkeys(joint_of(column) for column in np.asarray(columns)[np.asarray(rows) == i]))
            names = ", ".join(name or "free base" for name in joints) or "nothing that moves"
            word = type(kind).__name__
            found.append(names if isinstance(kind, Joints) else f"{WORDS.get(word, word)} ({names})")
    return found
