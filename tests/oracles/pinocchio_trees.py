"""Pinocchio's model of a tree of any joints but users', from the arrays of a Model."""

from typing import Any, NamedTuple

import numpy as np
import pinocchio as pin

import lgjax

X, _, Z = np.eye(3)


def cylindrical():
    joint = pin.JointModelComposite(pin.JointModelRZ())
    joint.addJoint(pin.JointModelPZ())
    return joint


JOINTS = {
    "free": pin.JointModelFreeFlyer,
    "revolute": pin.JointModelRZ,
    "prismatic": pin.JointModelPZ,
    "cylindrical": cylindrical,
    "universal": lambda: pin.JointModelUniversal(Z, X),
    "planar": pin.JointModelPlanar,
    "spherical": pin.JointModelSpherical,
}


def pinocchio_tree(model: lgjax.Model) -> pin.Model:
    """Joint frames, bodies and their order are those of `model`; damping and armature are left out."""
    theirs, joints = pin.Model(), []
    theirs.gravity.linear = np.asarray(model.gravity)
    for i, (parent, kind) in enumerate(zip(model.tree.parents, model.tree.kinds, strict=True)):
        placement = pin.SE3(*(np.asarray(x[i]) for x in model.placements))
        before = joints[parent] if parent >= 0 else 0
        make = JOINTS.get(kind.name, lambda i=i: pin.JointModelHZ(float(model.screws[i, 1])))
        joints.append(theirs.addJoint(before, make(), placement, model.tree.joint_names[i]))
        mass, moment, second = (np.asarray(x[i]) for x in model.inertias)
        c = moment / mass
        inertia = pin.Inertia(float(mass), c, second - mass * (c @ c * np.eye(3) - np.outer(c, c)))
        theirs.appendBodyToJoint(joints[-1], inertia, pin.SE3.Identity())
    return theirs


class Answers(NamedTuple):
    """Of one state in Pinocchio's flat conventions: poses of the joint frames, and the twist [v, w] of one of them."""

    forward_dynamics: Any
    inverse_dynamics: Any
    rotation: Any
    translation: Any
    twist: Any


def answers(theirs, q, v, vdot, tau, body: int) -> Answers:
    """Without armature, damping and wrenches. twist: of a body, by its Jacobian."""
    data = theirs.createData()
    acceleration = pin.aba(theirs, data, q, v, tau).copy()
    forces = pin.rnea(theirs, data, q, v, vdot).copy()
    twist = pin.computeJointJacobian(theirs, data, q, body + 1) @ v
    pin.forwardKinematics(theirs, data, q)
    poses = list(data.oMi)[1:]
    rotation, translation = np.stack([p.rotation for p in poses]), np.stack([p.translation for p in poses])
    return Answers(acceleration, forces, rotation, translation, twist)
