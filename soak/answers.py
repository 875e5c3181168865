"""Answers of two readers of a robot at the same random states, and how far they are from each other."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import lgjax


class Answer(NamedTuple):
    """Values at the states, (states, ...), of both; scale: what their difference is measured by, (states,)."""

    name: str
    ours: np.ndarray
    theirs: np.ndarray
    scale: np.ndarray | None = None

    @property
    def error(self) -> float:
        """The largest difference, as a part of the largest entry of its state; infinite where one has no number."""
        if self.ours.shape != self.theirs.shape:
            return np.inf
        largest = lambda x: np.abs(x).reshape(len(x), -1).max(1, initial=0)
        scale = largest(self.theirs) if self.scale is None else self.scale
        with np.errstate(invalid="ignore", divide="ignore"):
            part = largest(self.ours - self.theirs) / scale
        equal = (self.ours == self.theirs).reshape(len(part), -1).all(1)
        return float(np.where(equal, 0, np.where(np.isnan(part), np.inf, part)).max(initial=0))


def states(model: lgjax.Model, seed: int, count: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Random q, v and vdot, drawn in NumPy: nothing has to be compiled for that."""
    random, tree = np.random.default_rng(seed), model.tree
    turns, _ = np.linalg.qr(random.normal(size=(count, tree.n_free + tree.n_ball, 3, 3)))
    turns = turns * np.sign(np.linalg.det(turns))[..., None, None]
    places = lgjax.Pose(turns[:, : tree.n_free], random.normal(size=(count, tree.n_free, 3)))
    q = lgjax.Configuration(places, random.uniform(-3, 3, (count, tree.n_joint)), turns[:, tree.n_free :])
    v, vdot = random.normal(size=(2, count, model.nv))
    return jax.tree.map(jnp.asarray, q), v, vdot


def first(q: Any, count: int) -> Any:
    """The first of many configurations, `count` times."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x[:1], (count, *x.shape[1:])), q)


def unnamed(model: lgjax.Model) -> lgjax.Model:
    """The model without names, so that robots of the same topology share what is compiled."""
    numbers = tuple(map(str, range(model.nbodies)))
    tree = replace(model.tree, name="", body_names=numbers, joint_names=numbers, frames=())
    return model.replace(tree=tree, geometry=(), frames=jax.tree.map(lambda x: x[:0], model.frames))


@jax.jit
def mechanics(model: lgjax.Model, q: Any, v: jax.Array, vdot: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mass matrix, inverse dynamics and gravity."""

    def one(q, v, vdot):
        M, gravity = lgjax.mass_matrix(model, q), lgjax.gravity_forces(model, q)
        return M, lgjax.inverse_dynamics(model, q, v, vdot), gravity

    return jax.vmap(one)(q, v, vdot)
