"""Bodies of a URDF as those of `build`, and whether its root floats."""

from typing import Any

import numpy as np

from lgjax.multibody.build import Body, Joint
from lgjax.multibody.importers.urdf.elements import Inertial, JointElement, Parsed

WORLD = "world"  # name of the root link of robots that are bolted to the ground


def root_of(robot: Parsed) -> str | None:
    """The root link; None in a cycle, which `build` refuses."""
    carried = {joint.child for joint in robot.joints}
    return next((link for link in robot.links if link not in carried), None)


def is_world(robot: Parsed) -> bool:
    """Whether the root link is the world: by its name, or massless with all that is fixed to it.

    A body without mass cannot float: nothing says how it moves.
    """
    root = root_of(robot)
    if root is None or root == WORLD:
        return root is not None
    fixed = {root}
    for _ in robot.joints:  # in any order of the file
        fixed |= {joint.child for joint in robot.joints if joint.kind == "fixed" and joint.parent in fixed}
    return not any(inertial is not None and inertial.mass > 0 for link in fixed if (inertial := robot.links[link]))


def bodies(robot: Parsed, floating_base: bool) -> tuple[Body, ...]:
    """The root link first, the others in the order of their joints."""
    root_joint = "root_joint"
    while any(joint.name == root_joint for joint in robot.joints):
        root_joint += "_"
    found = []
    root = root_of(robot)
    if root is not None:
        carried = {joint.kind for joint in robot.joints if joint.parent == root}
        stays = not floating_base or (robot.links[root] is None and carried == {"floating"})
        joint = Joint(root_joint, "fixed" if stays else "free")
        found.append(_body(root, None, joint, np.eye(3), np.zeros(3), robot.links[root]))
    for joint in robot.joints:
        inertial = robot.links[joint.child]
        if joint.kind == "floating":
            found.append(_body(joint.child, None, _joint(joint), np.eye(3), np.zeros(3), inertial))
        else:
            found.append(_body(joint.child, joint.parent, _joint(joint), joint.rotation, joint.position, inertial))
    return tuple(found)


def _joint(joint: JointElement) -> Joint:
    given: dict[str, Any] = dict(joint.dynamics)
    if joint.limit is not None:
        limits = {"effort": "effort", "velocity_limit": "velocity"}
        given |= {name: joint.limit[key] for name, key in limits.items() if key in joint.limit}
        if joint.kind in ("revolute", "prismatic"):
            lower, upper = (joint.limit.get(side, 0.0) for side in ("lower", "upper"))
            if lower > upper:
                raise ValueError(
                    f"joint {joint.name!r}: lower limit {lower} is above the upper limit {upper} (line {joint.line})"
                )
            given |= {"lower": lower, "upper": upper}
    if joint.kind in ("fixed", "floating", "spherical"):
        return Joint(joint.name, {"floating": "free"}.get(joint.kind, joint.kind), **given)
    return Joint(joint.name, joint.kind, joint.axis, **given)


def _body(
    name: str, parent: str | None, joint: Joint, rotation: np.ndarray, position: np.ndarray, inertial: Inertial | None
) -> Body:
    if inertial is None:
        return Body(name, parent, joint, rotation, position)
    return Body(name, parent, joint, rotation, position, inertial.mass, inertial.com, inertial.inertia)
