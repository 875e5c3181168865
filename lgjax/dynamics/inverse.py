"""Inverse dynamics: the recursive Newton-Euler algorithm."""

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
from lgjax.multibody.joints.kind import place
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration
from lgjax.multibody.traversal import Execution, Walk

ZERO = np.zeros(3)


def inverse_dynamics(
    model: Model, q: Configuration, v, vdot, wrenches=None, *, execution: Execution = "scalarised"
) -> jax.Array:
    """Generalised forces tau (nv,) that produce the accelerations vdot (nv,): M vdot + bias + damping v.

    v: (nv,) body-frame velocities. wrenches: (nbodies, 6), [n, f] on each body, body frame, at the body origin.
    Armature and joint damping are included. N m and N. Source: [kim2012] section 2.2; [ali2026] Alg. 2, order 0.
    """
    walk = Walk(model.tree, model.dtype, execution)
    applied = [None] * len(walk.groups) if wrenches is None else walk.bodies(rotate_out(model.links, wrenches))
    kinematics = walk.outward(
        _outward,
        (Motion(ZERO, ZERO), Motion(ZERO, -model.gravity)),
        walk.bodies(body_data(model)),
        walk.configurations(q),
        walk.velocities(v),
        walk.velocities(vdot),
        applied,
    )
    tau = walk.inward(_inward, Force(ZERO, ZERO), kinematics)
    return walk.to_velocities(tau) + model.armature * vdot + model.damping * v


def _outward(kind, parent, body, q, qd, qdd, applied):
    """Velocity and acceleration of a body (gravity as an upward acceleration of the world) and its own wrench."""
    parent_twist, parent_acceleration = parent
    R, p = place(kind, body.placement, body.screw, q)
    S = kind.subspace(q, body.screw)
    joint = joint_motion(S, qd)
    twist = add(to_child(R, p, parent_twist), joint)
    bias = velocity_product(kind, S, q, qd, body.screw, twist, joint)
    acceleration = add(add(to_child(R, p, parent_acceleration), bias), joint_motion(S, qdd))
    force = momentum_rate(body.inertia, twist, acceleration)
    if applied is not None:
        force = Force(force.n - applied.n, force.f - applied.f)
    return (twist, acceleration), (R, p, S, force)


def _inward(kind, children, data):
    """Wrench through the joint and its projection on the joint's motions."""
    R, p, S, force = data
    force = add(force, children)
    return to_parent(R, p, force), project(S, force)


def bias_forces(model: Model, q: Configuration, v, wrenches=None, **execution) -> jax.Array:
    """Generalised forces (nv,) at zero acceleration: Coriolis, centrifugal, gravity, damping and applied wrenches."""
    return inverse_dynamics(model, q, v, 0 * v, wrenches, **execution)


def gravity_forces(model: Model, q: Configuration, **execution) -> jax.Array:
    """Generalised forces (nv,) that hold the mechanism at rest: the gradient of the potential energy."""
    rest = 0 * model.armature
    return inverse_dynamics(model, q, rest, rest, **execution)
