"""Robots read by Pinocchio, and its numbers in this library's conventions: angular first, children in file order.

Everything is done with Pinocchio and NumPy, one state at a time; nothing of the library is called.
"""

import importlib.metadata
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pinocchio as pin

# File inside the package example-robot-data, and whether the base floats.
FILES = {
    "panda": ("panda_description/urdf/panda.urdf", False),
    "go1": ("go1_description/urdf/go1.urdf", True),
    "hyq": ("hyq_description/robots/hyq_no_sensors.urdf", True),
    "hyq_fixed": ("hyq_description/robots/hyq_no_sensors.urdf", False),
    "talos_reduced": ("talos_data/robots/talos_reduced.urdf", True),
}
SWAP = np.r_[3:6, 0:3]


@cache
def path(name: str) -> str:
    package = importlib.metadata.distribution("example-robot-data")
    file = next(f for f in package.files or () if str(f).endswith(f"robots/{FILES[name][0]}"))
    return str(package.locate_file(file))


def floating(name: str) -> bool:
    return FILES[name][1]


@cache
def read(name: str) -> Any:
    """Pinocchio's model; mimic joints are joints of their own."""
    return pin.buildModelFromUrdf(path(name), *[pin.JointModelFreeFlyer()] * floating(name))


class Ordered:
    """A Pinocchio model with coordinates permuted to `joint_names`; state is (pose or None, angles (n,))."""

    def __init__(self, model, joint_names, body_names):
        self.model, self.data = model.copy(), model.createData()
        self.floating = model.names[1] == "root_joint"
        self.ids = [model.getJointId(name) for name in joint_names]
        joints = [model.idx_vs[i] for i in self.ids]
        self.v_index = np.r_[SWAP, joints].astype(int) if self.floating else np.asarray(joints)
        # frames of the bodies, by name; that of a floating base is its root link
        self.frames = [model.getFrameId(name, pin.FrameType.BODY) for name in body_names]

    def q(self, pose, angles) -> np.ndarray:
        q = pin.neutral(self.model)
        if self.floating:
            rotation, position = pose
            q[:7] = np.r_[position, pin.Quaternion(np.array(rotation)).coeffs()]
        for i, angle in zip(self.ids, angles, strict=True):
            start = self.model.idx_qs[i]
            q[start : start + self.model.nqs[i]] = angle if self.model.nqs[i] == 1 else (np.cos(angle), np.sin(angle))
        return q

    def theirs(self, v) -> np.ndarray:
        out = np.zeros(self.model.nv)
        out[self.v_index] = v
        return out

    def ours(self, v) -> np.ndarray:
        return np.asarray(v)[self.v_index]


class Answers(NamedTuple):
    """What Pinocchio says about one state, in this library's conventions."""

    forward_dynamics: np.ndarray
    inverse_dynamics: np.ndarray
    mass_matrix: np.ndarray
    gravity_forces: np.ndarray
    rotation: np.ndarray
    translation: np.ndarray
    jacobian: np.ndarray
    kinetic_energy: np.ndarray
    potential_energy: np.ndarray
    momentum: np.ndarray
    center_of_mass: np.ndarray


def answers(robot: Ordered, pose, angles, v, vdot, tau, wrenches, damping, tip: int) -> Answers:
    """wrenches (nbodies, 6) in body frames; Pinocchio knows no damping, so its part is moved to the other side."""
    model, data = robot.model, robot.data
    q, qd, qdd = robot.q(pose, angles), robot.theirs(v), robot.theirs(vdot)
    pin.framesForwardKinematics(model, data, q)
    forces = pin.StdVec_Force()
    forces.extend([pin.Force.Zero()] * model.njoints)
    for frame, wrench in zip(robot.frames, wrenches, strict=True):
        where = model.frames[frame]
        joint = where.parentJoint
        forces[joint] = forces[joint] + where.placement.act(pin.Force(np.array(wrench[SWAP])))
    drag = robot.theirs(damping) * qd
    tau_inverse = robot.ours(pin.rnea(model, data, q, qd, qdd, forces) + drag)
    acceleration = robot.ours(pin.aba(model, data, q, qd, robot.theirs(tau) - drag, forces))
    mass = pin.crba(model, data, q)
    mass = np.triu(mass) + np.triu(mass, 1).T
    jacobian = pin.computeFrameJacobian(model, data, q, robot.frames[tip], pin.ReferenceFrame.LOCAL)
    gravity = robot.ours(pin.computeGeneralizedGravity(model, data, q))
    kinetic = pin.computeKineticEnergy(model, data, q, qd)
    potential = pin.computePotentialEnergy(model, data, q)
    pin.framesForwardKinematics(model, data, q)
    poses = [data.oMf[frame] for frame in robot.frames]
    center = np.array(pin.centerOfMass(model, data, q))
    pin.computeCentroidalMomentum(model, data, q, qd)
    about_center = data.hg
    angular = about_center.angular + np.cross(center, about_center.linear)
    return Answers(
        forward_dynamics=acceleration,
        inverse_dynamics=tau_inverse,
        mass_matrix=mass[np.ix_(robot.v_index, robot.v_index)],
        gravity_forces=gravity,
        rotation=np.array([pose.rotation for pose in poses]),
        translation=np.array([pose.translation for pose in poses]),
        jacobian=jacobian[SWAP][:, robot.v_index],
        kinetic_energy=np.asarray(kinetic),
        potential_energy=np.asarray(potential),
        momentum=np.r_[angular, about_center.linear],
        center_of_mass=center,
    )
