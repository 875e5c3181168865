"""Actuators of a URDF: a motor for each joint that moves, behind the reduction of its <transmission> if it has one."""

import math
from typing import Any

from lgjax.multibody.importers.description import Coupling, Drive
from lgjax.multibody.importers.source import numbers
from lgjax.multibody.importers.urdf.elements import JointElement, Parsed, at

DRIVEN = ("revolute", "continuous", "prismatic")
UNIT = (1.0,)
OUT = "(ignore=('mimic',) frees all followers)"


def couplings(robot: Parsed) -> tuple[Coupling, ...]:
    """Mimic joints; a joint without a coordinate follows nothing."""
    names = {joint.name: joint for joint in robot.joints}
    found = []
    for joint in robot.joints:
        if joint.mimic is None or joint.kind == "fixed":
            continue
        leader, line = joint.mimic.leader, f"in line {joint.line}"
        where = f"joint {joint.name!r} {line}: <mimic joint={leader!r}>"
        if leader not in names:
            raise ValueError(f"{where}: there is no such joint {OUT}")
        for end in (joint, names[leader]):
            if end.kind not in (*DRIVEN, "fixed"):
                raise ValueError(f"{where}: {end.name!r} is {end.kind}, which has no scalar coordinate {OUT}")
        moves = names[leader].kind != "fixed"
        polynomial = (joint.mimic.offset, *([joint.mimic.multiplier] if moves else []))
        found.append(Coupling(joint.name, "joint", joint.name, leader if moves else None, polynomial, (0.0, 0.0), line))
    return tuple(found)


def drives(robot: Parsed, root: Any, transmissions: bool, left_out: list[str]) -> tuple[Drive, ...]:
    """Motors, in the order of their joints; what is not read is added to `left_out`.

    Joints that follow others have none. If the file has transmissions, the joints in them are driven, else all.
    """
    gears = _gears(robot, root, left_out) if transmissions else {}
    found = []
    for joint in robot.joints:
        if joint.kind in DRIVEN and joint.mimic is None and (joint.name in gears or not gears):
            name, gear, where = gears.get(joint.name, (joint.name, 1.0, f"in line {joint.line}"))
            found.append(_motor(joint, name, gear, where))
    return tuple(found)


def _motor(joint: JointElement, name: str, gear: float, where: str) -> Drive:
    """The force of a motor is limited such that the joint gets at most its effort."""
    most = (joint.limit or {}).get("effort", math.inf) / abs(gear)
    limits = (-most, most) if math.isfinite(most) else None
    none = ("none", ())
    six = (gear, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Drive(name, "joint", (joint.name,), six, ("fixed", UNIT), none, none, None, limits, None, where=where)


def _gears(robot: Parsed, root: Any, left_out: list[str]) -> dict[str, tuple[str, float, str]]:
    """Name of the actuator, reduction and place of each transmission with one joint, by joint."""
    joints = {joint.name for joint in robot.joints}
    found: dict[str, tuple[str, float, str]] = {}
    taken: set[str] = set()
    for element in root.findall("transmission"):
        named = [joint.get("name") for joint in element.findall("joint")]
        called = f"transmission {element.get('name')!r} in line {element.sourceline}"
        if len(named) != 1 or len(element.findall("actuator")) > 1:
            left_out.append(f"{called} ({len(named)} joints)")
            found |= {name: (name, 1.0, called) for name in named if name in joints}
            continue
        if named[0] not in joints:
            left_out.append(f"{called} (of {named[0]!r}, which is no joint)")
            continue
        actuator = element.find("actuator")
        name = (None if actuator is None else actuator.get("name")) or named[0]
        name = named[0] if name in taken else name
        taken.add(name)
        found[named[0]] = name, _reduction(element, called), f"in line {element.sourceline}"
    return found


def _reduction(transmission: Any, where: str) -> float:
    element = next(transmission.iter("mechanicalReduction"), None)
    if element is None:
        return 1.0
    values = numbers(element.text or "")
    if not values or len(values) != 1 or values[0] == 0 or not math.isfinite(values[0]):
        out = "(ignore=('transmission',) drives all joints without gears)"
        what = f"<mechanicalReduction> {element.text!r}"
        raise ValueError(f"{where}: {what} is not a finite number other than 0{at(element)} {out}")
    return values[0]
