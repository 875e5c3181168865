"""Trees as products of homogeneous matrices: forces by Lagrange's equations, solved as dense matrices.

tau_j = sum over the bodies of tr(dT/dq_j P (d^2 T/dt^2 - G)^T), T (4, 4) the pose of a body, P (4, 4) its
pseudo-inertia and G the acceleration of gravity as such a matrix. Slow and obvious: nothing is recursive, no velocity
and no wrench goes from body to body. Of the library only the arrays of a Model and of a Configuration are read.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


def hat(w):
    zero = jnp.zeros_like(w[0])
    return jnp.stack([zero, -w[2], w[1], w[2], zero, -w[0], -w[1], w[0], zero]).reshape(3, 3)


def vee(m):
    return jnp.stack([m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]]) / 2


def matrix(R, p):
    """The homogeneous matrix (4, 4) of rotation and translation."""
    below = jnp.asarray([[0, 0, 0, 1]], jnp.result_type(R))
    return jnp.concatenate([jnp.concatenate([R, p[:, None]], 1), below])


def generator(twist):
    """[[hat(w), v], [0, 0]] of [w, v]."""
    return jnp.concatenate([jnp.concatenate([hat(twist[:3]), twist[3:, None]], 1), jnp.zeros((1, 4), twist.dtype)])


def near_one(m):
    """The exponential of a small matrix, with what two derivatives at zero can see of it."""
    return jnp.eye(len(m), dtype=m.dtype) + m + m @ m / 2


def turn(angle, axis: int):
    c, s, one, zero = jnp.cos(angle), jnp.sin(angle), jnp.ones_like(angle), jnp.zeros_like(angle)
    if axis == 2:
        return jnp.stack([c, -s, zero, s, c, zero, zero, zero, one]).reshape(3, 3)
    return jnp.stack([one, zero, zero, zero, c, -s, zero, s, c]).reshape(3, 3)


def joint(kind, q, screw):
    """(R, p) of a joint with scalar coordinates; kinds that are not named are the tests' own."""
    none, z = jnp.zeros(3, q.dtype), jnp.asarray([0, 0, 1], q.dtype)
    match kind.name:
        case "revolute" | "continuous":
            return turn(q[0], 2), none
        case "prismatic":
            return jnp.eye(3, dtype=q.dtype), q[0] * z
        case "helical":
            return turn(screw[0] * q[0], 2), screw[1] * q[0] * z
        case "cylindrical":
            return turn(q[0], 2), q[1] * z
        case "universal":
            return turn(q[0], 2) @ turn(q[1], 0), none
        case "planar":
            return turn(q[0], 2), jnp.stack([q[1], q[2], jnp.zeros_like(q[0])])
    return kind.transform(q, screw)


def moved(model, q, d, spatial=False):
    """Joint coordinates of every body after a small displacement d (nv,); spatial: of free bodies about the origin."""
    out, at, counts = [], 0, {"joints": 0, "free_poses": 0, "ball_rotations": 0}
    for kind in model.tree.kinds:
        step, start = d[at : at + kind.nv], counts[kind.coordinates]
        at += kind.nv
        if kind.coordinates == "joints":
            out.append(q.joints[start : start + kind.nv] + step)
        elif kind.coordinates == "ball_rotations":
            out.append(q.ball_rotations[start] @ near_one(hat(step)))
        else:
            T, E = matrix(q.free_poses.rotation[start], q.free_poses.translation[start]), near_one(generator(step))
            out.append(E @ T if spatial else T @ E)
        counts[kind.coordinates] += kind.nv if kind.coordinates == "joints" else 1
    return out


def poses(model, q, d, spatial=False):
    """World poses (nbodies, 4, 4) of the joint frames."""
    made: list = []
    data = zip(model.tree.parents, model.tree.kinds, moved(model, q, d, spatial), strict=True)
    for i, (parent, kind, x) in enumerate(data):
        if kind.coordinates == "free_poses":
            own = x
        else:
            R, p = (
                (x, jnp.zeros(3, x.dtype)) if kind.coordinates == "ball_rotations" else joint(kind, x, model.screws[i])
            )
            own = matrix(model.placements.rotation[i], model.placements.translation[i]) @ matrix(R, p)
        made.append(own if parent < 0 else made[parent] @ own)
    return jnp.stack(made)


def pseudo_inertias(model):
    """[[S, h], [h^T, m]] (nbodies, 4, 4), S = tr(J)/2 - J."""
    mass, h, J = model.inertias
    S = jnp.trace(J, axis1=1, axis2=2)[:, None, None] / 2 * jnp.eye(3, dtype=J.dtype) - J
    return jnp.concatenate(
        [jnp.concatenate([S, h[:, :, None]], 2), jnp.concatenate([h[:, None], mass[:, None, None]], 2)], 1
    )


def work(model, q, acceleration, wrenches, spatial=False):
    """Forces (nv,) of the inertia of bodies whose poses have this second derivative, of gravity and of wrenches."""
    zero = jnp.zeros(model.nv, model.dtype)
    T, units = poses(model, q, zero), jnp.eye(model.nv, dtype=model.dtype)
    slopes = jax.vmap(lambda d: jax.jvp(lambda d: poses(model, q, d, spatial), (zero,), (d,))[1], out_axes=-1)(units)
    pull = jnp.zeros((4, 4), model.dtype).at[:3, 3].set(model.gravity)
    forces = jnp.einsum("bacj,bcd,bad->j", slopes, pseudo_inertias(model), acceleration - pull)
    links = jax.vmap(matrix)(*model.links)
    for i in range(model.nbodies):
        link, link_slope = T[i] @ links[i], jnp.einsum("acj,cd->jad", slopes[i], links[i])
        R = link[:3, :3]
        turning = jnp.stack([vee(R.T @ s[:3, :3]) for s in link_slope])
        forces = forces - turning @ wrenches[i, :3] - link_slope[:, :3, 3] @ (R @ wrenches[i, 3:])
    return forces


def twice(f, t):
    """The second derivative of f at t."""
    rate = lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]
    return jax.jvp(rate, (t,), (jnp.ones_like(t),))[1]


def inverse_dynamics(model, q, v, vdot, wrenches):
    """tau (nv,), for velocities and accelerations in the bodies' frames."""
    path = lambda t: poses(model, q, v * t + vdot * (t * t / 2))
    acceleration = twice(path, jnp.zeros((), model.dtype))
    return work(model, q, acceleration, wrenches) + model.armature * vdot + model.damping * v


def hybrid_dynamics(model, q, v, x, given: np.ndarray, wrenches):
    """(vdot, tau) with vdot = x where given and tau = x elsewhere, by the blocks of the mass matrix."""
    zero = jnp.zeros(model.nv, model.dtype)
    forces = lambda a: inverse_dynamics(model, q, v, a, wrenches)
    M, known = jax.jacfwd(forces)(zero), jnp.where(given, x, 0)
    free = np.flatnonzero(~given)
    found = jnp.linalg.solve(M[np.ix_(free, free)], (x - forces(known))[free])
    vdot = known.at[free].set(found)
    return vdot, forces(vdot)


class Along(NamedTuple):
    """Velocity and forces (nv,) at a time of a motion, of free bodies in their own frames or in spatial ones."""

    velocity: jax.Array
    forces: jax.Array


def velocity(model, path, t, spatial=False):
    """(nv,) of the motion path(t), a Configuration."""
    q, dq = jax.jvp(path, (t,), (jnp.ones_like(t),))
    out, counts = [], {"joints": 0, "free_poses": 0, "ball_rotations": 0}
    for kind in model.tree.kinds:
        n = counts[kind.coordinates]
        if kind.coordinates == "joints":
            out.append(dq.joints[n : n + kind.nv])
        elif kind.coordinates == "ball_rotations":
            out.append(vee(q.ball_rotations[n].T @ dq.ball_rotations[n]))
        else:
            (R, p), (dR, dp) = ((x.free_poses.rotation[n], x.free_poses.translation[n]) for x in (q, dq))
            w = vee(dR @ R.T)
            out += [w, dp - jnp.cross(w, p)] if spatial else [vee(R.T @ dR), R.T @ dp]
        counts[kind.coordinates] += kind.nv if kind.coordinates == "joints" else 1
    return jnp.concatenate(out)


def along(model, path, wrenches, t, spatial=False) -> Along:
    """Of the motion path(t) under wrenches(t) (nbodies, 6); free bodies have no armature and no damping."""
    zero = jnp.zeros(model.nv, model.dtype)
    acceleration = twice(lambda t: poses(model, path(t), zero), t)
    speed = lambda t: velocity(model, path, t, spatial)
    v, vdot = jax.jvp(speed, (t,), (jnp.ones_like(t),))
    forces = work(model, path(t), acceleration, wrenches(t), spatial) + model.armature * vdot + model.damping * v
    return Along(v, forces)
