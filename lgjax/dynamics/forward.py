"""Forward dynamics: the articulated-body algorithm."""

from typing import NamedTuple

import jax
import numpy as np

from lgjax.dynamics.recursion import (
    Force,
    Motion,
    add,
    body_data,
    joint_motion,
    momentum_rate,
    project,
    rotate_out,
    to_child,
    to_parent,
    velocity_product,
)
from lgjax.groups import small_matrix as sm
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.joints.kind import place
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration
from lgjax.multibody.traversal import Execution, Walk

ZERO = np.zeros(3)


class ArticulatedInertia(NamedTuple):
    """Symmetric 6x6 inertia [[J, H], [H^T, M]] about the joint frame's origin: [n, f] = I [w, v]."""

    J: jax.Array
    H: jax.Array
    M: jax.Array

    def wrench(self, w, v) -> Force:
        return Force(sm.matvec(self.J, w) + sm.matvec(self.H, v), sm.tmatvec(self.H, w) + sm.matvec(self.M, v))


NO_CHILDREN = (ArticulatedInertia(*(np.zeros((3, 3)),) * 3), Force(ZERO, ZERO))


def forward_dynamics(
    model: Model, q: Configuration, v, tau, wrenches=None, *, execution: Execution = "scalarised"
) -> jax.Array:
    """Accelerations vdot (nv,) under the generalised forces tau (nv,): M^-1 (tau - bias - damping v).

    v: (nv,) body-frame velocities. wrenches: (nbodies, 6), [n, f] on each body, body frame, at the body origin.
    Armature and joint damping are included. Source: [kim2012] section 2.3; [ali2026] Alg. 3, order 0.
    """
    walk = Walk(model.tree, model.dtype, execution)
    applied = [None] * len(walk.groups) if wrenches is None else walk.bodies(rotate_out(model.links, wrenches))
    bodies = walk.bodies(body_data(model))
    kinematics = walk.outward(
        _outward,
        Motion(ZERO, ZERO),
        bodies,
        walk.configurations(q),
        walk.velocities(v),
        applied,
    )
    joints = walk.inward(
        _inward,
        NO_CHILDREN,
        bodies,
        kinematics,
        walk.velocities(tau - model.damping * v),
        walk.velocities(model.armature),
    )
    return walk.to_velocities(walk.outward(_accelerate, Motion(ZERO, -model.gravity), kinematics, joints))


def _outward(kind, parent, body, q, qd, applied):
    """Velocity of a body, its velocity-product acceleration and the wrench that this needs."""
    R, p = place(kind, body.placement, body.screw, q)
    S = kind.subspace(q, body.screw)
    joint = joint_motion(S, qd)
    twist = add(to_child(R, p, parent), joint)
    bias = velocity_product(kind, S, q, qd, body.screw, twist, joint)
    force = momentum_rate(body.inertia, twist, Motion(0 * twist.w, 0 * twist.v))
    if applied is not None:
        force = Force(force.n - applied.n, force.f - applied.f)
    return twist, (R, p, S, bias, force)


def _inward(kind, children, body, kinematics, tau, armature):
    """Articulated inertia and bias wrench of a body, seen through its joint from the parent."""
    R, p, S, c, force = kinematics
    inertia = add_inertia(children[0], body.inertia)
    force = add(force, children[1])
    U = inertia_columns(inertia, S)
    D = sm.tmatmul(S[0], U[0]) + sm.tmatmul(S[1], U[1]) + sm.diagonal(armature)
    u = tau - project(S, force)
    factor = sm.ldl(D)
    rest = through_joint(inertia, U, factor)
    k = sm.ldl_solve(factor, u)
    moved = rest.wrench(c.w, c.v)
    force = Force(
        force.n + moved.n + sm.matvec(U[0], k),
        force.f + moved.f + sm.matvec(U[1], k),
    )
    return (shift(rest, R, p), to_parent(R, p, force)), (U, factor, u)


def _accelerate(kind, parent, kinematics, joint):
    """Acceleration of the joint and of its body."""
    R, p, S, c, _ = kinematics
    U, factor, u = joint
    acceleration = add(to_child(R, p, parent), c)
    qdd = sm.ldl_solve(factor, u - project(U, Force(acceleration.w, acceleration.v)))
    return add(acceleration, joint_motion(S, qdd)), qdd


def add_inertia(children: ArticulatedInertia, own: Inertia) -> ArticulatedInertia:
    """The articulated inertia of a body with its own rigid-body inertia added."""
    mass = sm.diagonal(sm.stack(own.mass, own.mass, own.mass))
    return ArticulatedInertia(children.J + own.second, children.H + sm.hat(own.moment), children.M + mass)


def inertia_columns(inertia: ArticulatedInertia, S):
    """I S as (angular (3, nv), linear (3, nv))."""
    return (
        sm.matmul(inertia.J, S[0]) + sm.matmul(inertia.H, S[1]),
        sm.tmatmul(inertia.H, S[0]) + sm.matmul(inertia.M, S[1]),
    )


def through_joint(inertia: ArticulatedInertia, U, factor) -> ArticulatedInertia:
    """I - U D^-1 U^T: what is left of an inertia behind a joint that is free to move."""
    K_w, K_v = sm.ldl_solve(factor, U[0]), sm.ldl_solve(factor, U[1])
    return ArticulatedInertia(
        inertia.J - sm.matmult(K_w, U[0]), inertia.H - sm.matmult(K_w, U[1]), inertia.M - sm.matmult(K_v, U[1])
    )


def shift(inertia: ArticulatedInertia, R, p) -> ArticulatedInertia:
    """Ad^-T I Ad^-1: an inertia of the child about the parent's origin, in the parent's axes."""
    turn = lambda X: sm.matmul(sm.matmul(R, X), R.T)
    J, H, M = sm.symmetric(turn(inertia.J)), turn(inertia.H), sm.symmetric(turn(inertia.M))
    P = sm.hat(p)
    PH = H + sm.matmul(P, M)
    return ArticulatedInertia(sm.symmetric(J + sm.matmul(P, H.T) - sm.matmul(PH, P)), PH, M)
