"""A robot from a URDF beside Pinocchio's reading of it, at random states."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio

import lgjax
from lgjax.conventions import to_pinocchio
from soak.answers import Answer, first, mechanics, states, unnamed

UNBOUNDED = 1e9  # limits beyond are none


def beside_pinocchio(robot: lgjax.Robot, theirs: Any, seed: int, count: int) -> list[Answer] | None:
    """Mass matrix, bias, inverse dynamics, limits and motors; None for joints that Pinocchio has in another way.

    In this library's coordinates: x = T ours for velocities, T' theirs = ours for forces.
    """
    model = robot.model
    kinds = [kind.name for kind in model.tree.kinds]
    floats = sum(joint.shortname() == "JointModelFreeFlyer" for joint in theirs.joints)
    if floats != kinds.count("free") or floats > 1 or "spherical" in kinds:
        return None
    q, v, vdot = states(model, seed, count)
    ours = jax.tree.map(np.asarray, mechanics(unnamed(model), q, v, vdot))
    numbers = [(n, i) for i, n in enumerate(theirs.names) if i]
    pairs = [n for n, i in numbers if (theirs.nqs[i], theirs.nvs[i]) == (2, 1)]
    order = [n for n, _ in numbers if n in model.joint_names]

    @jax.jit
    def convert(q, v, vdot):
        to = lambda *state: to_pinocchio(model, *state, order=order, continuous=pairs)
        one = lambda q: to(first(jax.tree.map(lambda y: y[None], q), model.nv), jnp.eye(model.nv)).v.T
        return to(q, v, vdot), jax.vmap(one)(q)

    x, turns = jax.tree.map(np.asarray, convert(q, v, vdot))
    data, damping, found = theirs.createData(), np.asarray(model.damping), []
    for a, b, c, w, T in zip(x.q, x.v, x.vdot, v, turns, strict=True):
        M = np.triu(pinocchio.crba(theirs, data, a))
        tau = T.T @ pinocchio.rnea(theirs, data, a, b, c) + damping * w
        found.append((T.T @ (M + np.triu(M, 1).T) @ T, tau, T.T @ pinocchio.computeGeneralizedGravity(theirs, data, a)))
    expected = [np.array(y) for y in zip(*found, strict=True)]
    names = ("mass matrix", "inverse dynamics", "gravity")
    answers = [Answer(*one) for one in zip(names, ours, expected, strict=True)]
    return [*answers, *_numbers(model, theirs), *_motors(robot, theirs, (q, v), seed)]


def _numbers(model: lgjax.Model, theirs: Any) -> list[Answer]:
    """Damping, friction and limits of joints with one coordinate."""
    ours, other = [], []
    clip = lambda x: float(np.clip(x, -UNBOUNDED, UNBOUNDED))
    for number, mine, k in _scalars(model, theirs):
        at, dof = theirs.idx_qs[number], theirs.idx_vs[number]
        limits = (theirs.lowerPositionLimit[at], theirs.upperPositionLimit[at])
        if theirs.nqs[number] != 1:
            limits = (-UNBOUNDED, UNBOUNDED)
        ours.append([model.damping[mine], model.friction[mine], clip(model.lower[k]), clip(model.upper[k])])
        other.append([theirs.damping[dof], theirs.friction[dof], *map(clip, limits)])
    a, b = (np.array(x, float).reshape(1, -1, 4) for x in (ours, other))
    names = ("damping", "friction", "lower limits", "upper limits")
    return [Answer(name, a[..., k], b[..., k]) for k, name in enumerate(names)]


def _scalars(model: lgjax.Model, theirs: Any) -> list[tuple[int, int, int]]:
    """Joints with one velocity: Pinocchio's number, and where they are in our velocities and coordinates."""
    tree, found, place = model.tree, [], 0
    for kind, name, start in zip(tree.kinds, tree.joint_names, tree.v_start, strict=True):
        if kind.coordinates == "joints":
            found += [(theirs.getJointId(name), start, place)] if kind.nv == 1 else []
            place += kind.nv
    return found


def _motors(robot: lgjax.Robot, theirs: Any, at: tuple[Any, np.ndarray], seed: int) -> list[Answer]:
    """Forces of motors at their joints, under controls that are often beyond the efforts."""
    drives = robot.actuators
    if drives is None:
        return []
    q, v = at
    control = 50 * np.random.default_rng(seed).normal(size=(len(v), len(drives)))
    torque = jax.jit(jax.vmap(drives.torque))(q, jnp.asarray(v), jnp.asarray(control))
    moments = np.asarray(drives.moments(jax.tree.map(lambda x: x[0], q)))
    efforts = theirs.upperEffortLimit if hasattr(theirs, "upperEffortLimit") else theirs.effortLimit
    most = np.full(v.shape[1], np.inf)
    for number, mine, _ in _scalars(robot.model, theirs):
        most[mine] = efforts[theirs.idx_vs[number]]
    return [Answer("motors within their efforts", np.asarray(torque), np.clip(control @ moments, -most, most))]
