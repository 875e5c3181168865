"""Pinocchio's model of a tree of free, revolute and prismatic joints, from the arrays of a Model."""

import numpy as np
import pinocchio as pin

import lgjax

JOINTS = {"free": pin.JointModelFreeFlyer, "revolute": pin.JointModelRZ, "prismatic": pin.JointModelPZ}


def pinocchio_tree(model: lgjax.Model) -> pin.Model:
    """Joint frames, bodies and their order are those of `model`; damping and armature are left out."""
    theirs, joints = pin.Model(), []
    theirs.gravity.linear = np.asarray(model.gravity)
    for i, (parent, kind) in enumerate(zip(model.tree.parents, model.tree.kinds, strict=True)):
        placement = pin.SE3(*(np.asarray(x[i]) for x in model.placements))
        before = joints[parent] if parent >= 0 else 0
        joints.append(theirs.addJoint(before, JOINTS[kind.name](), placement, model.tree.joint_names[i]))
        mass, moment, second = (np.asarray(x[i]) for x in model.inertias)
        c = moment / mass
        inertia = pin.Inertia(float(mass), c, second - mass * (c @ c * np.eye(3) - np.outer(c, c)))
        theirs.appendBodyToJoint(joints[-1], inertia, pin.SE3.Identity())
    return theirs
