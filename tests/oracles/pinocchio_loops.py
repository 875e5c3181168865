"""Pinocchio's constraint dynamics of trees of free, revolute and prismatic joints with points that coincide."""

import numpy as np
import pinocchio as pin

JOINTS = {"free": pin.JointModelFreeFlyer, "revolute": pin.JointModelRZ, "prismatic": pin.JointModelPZ}
SWAP = np.r_[3:6, 0:3]


class Mechanism:
    """The tree of a Model, its arrays read as numbers, and `points`: (body, point, body, point), links' axes."""

    def __init__(self, model, points):
        self.model, joints = pin.Model(), []
        self.model.gravity.linear = np.asarray(model.gravity)
        links = [pin.SE3(np.asarray(r), np.asarray(p)) for r, p in zip(*model.links, strict=True)]
        for i, (parent, kind) in enumerate(zip(model.tree.parents, model.tree.kinds, strict=True)):
            placement = pin.SE3(*(np.asarray(x[i]) for x in model.placements))
            before = joints[parent] if parent >= 0 else 0
            joints.append(self.model.addJoint(before, JOINTS[kind.name](), placement, f"joint_{i}"))
            mass, moment, second = (np.asarray(x[i]) for x in model.inertias)
            c = moment / mass if mass > 0 else moment
            inertia = pin.Inertia(float(mass), c, second - mass * (c @ c * np.eye(3) - np.outer(c, c)))
            self.model.appendBodyToJoint(joints[-1], inertia, pin.SE3.Identity())
        self.floating = model.tree.kinds[0].name == "free"
        self.data = self.model.createData()
        kind = pin.ContactType.CONTACT_3D
        at = lambda body, point: (joints[body], links[body] * pin.SE3(np.eye(3), np.asarray(point, float)))
        self.constraints, self.datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
        for a, p, b, r in points:
            self.constraints.append(pin.RigidConstraintModel(kind, self.model, *at(a, p), *at(b, r), pin.LOCAL))
            self.datas.append(self.constraints[-1].createData())
        self.settings = pin.ProximalSettings(1e-14, 1e-14, 100)

    def order(self, x):
        x = np.array(x, float)
        if self.floating:
            x[:6] = x[SWAP]
        return x

    def vdot(self, q, v, tau):
        """Accelerations in the order of the Model, from its Configuration."""
        full = np.asarray(q.joints)
        if self.floating:
            R, p = (np.asarray(x[0]) for x in q.free_poses)
            full = np.r_[p, pin.Quaternion(R).coeffs(), full]
        pin.initConstraintDynamics(self.model, self.data, self.constraints, self.datas)
        out = pin.constraintDynamics(
            self.model, self.data, full, self.order(v), self.order(tau), self.constraints, self.datas, self.settings
        )
        return self.order(out)
