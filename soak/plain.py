"""Mass matrix of a model in NumPy, body by body, as the textbook has it: slow, and nothing has to be compiled."""

from typing import Any

import numpy as np

SUBSPACES = {  # angular and linear velocity of the joint frame per unit of each velocity, in the joint frame
    "spherical": np.vstack([np.eye(3), np.zeros((3, 3))]),
    "free": np.eye(6),
}


def mass_matrix(model: Any, q: list[Any]) -> np.ndarray:
    """(nv, nv). q holds, for each body, one number, the rotation of a spherical joint, or None for a free body.

    Free bodies are at the identity. Only revolute, prismatic, spherical and free joints.
    """
    frames, columns, M = [], [], np.diag(np.asarray(model.armature, float)).copy()
    rotations, positions, screws = (
        np.asarray(x, float) for x in (model.placements.rotation, model.placements.translation, model.screws)
    )
    inertias = [np.asarray(x, float) for x in model.inertias]
    for i, (parent, kind) in enumerate(zip(model.tree.parents, model.tree.kinds, strict=True)):
        R, p = frames[parent] if parent >= 0 else (np.eye(3), np.zeros(3))
        R, p = R @ rotations[i], R @ positions[i] + p
        S, turn, shift = _joint(kind.name, q[i], screws[i])
        R, p = R @ turn, R @ shift + p
        frames.append((R, p))
        # Motions that move this body: those of its parent, and its own; as (index in v, w, velocity of the origin).
        start = model.tree.v_start[i]
        inherited = columns[parent] if parent >= 0 else []
        own = [(start + k, R @ S[:3, k], R @ S[3:, k] + np.cross(p, R @ S[:3, k])) for k in range(S.shape[1])]
        columns.append([*inherited, *own])
        index = [k for k, _, _ in columns[i]]
        W = R.T @ np.array([w for _, w, _ in columns[i]]).reshape(-1, 3).T
        V = R.T @ np.array([v + np.cross(w, p) for _, w, v in columns[i]]).reshape(-1, 3).T
        mass, moment, rotational = (x[i] for x in inertias)
        angular = rotational @ W + np.cross(moment, V.T).T
        linear = mass * V - np.cross(moment, W.T).T
        M[np.ix_(index, index)] += W.T @ angular + V.T @ linear
    return M


def _joint(kind: str, q: Any, screw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Motion subspace (6, nv), rotation and translation."""
    if kind in ("revolute", "prismatic"):
        c, s = np.cos(screw[0] * q), np.sin(screw[0] * q)
        z = np.array([0.0, 0.0, 1.0])
        turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        return np.r_[screw[0] * z, screw[1] * z][:, None], turn, screw[1] * q * z
    return SUBSPACES[kind], np.eye(3) if q is None else q, np.zeros(3)
