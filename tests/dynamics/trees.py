"""Mechanisms of every shape for the sentences of mechanics, and random states of them."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import Body, Joint, build, models

STATES = 4


def body(name, parent, kind, seed, **joint) -> Body:
    """A body with random pose, axis and inertia."""
    random = np.random.default_rng(seed)
    R, _ = np.linalg.qr(random.normal(size=(2, 3, 3)))
    R = R * np.sign(np.linalg.det(R))[:, None, None]
    # the moments of a solid ellipsoid satisfy the triangle inequality
    a, b, c = random.uniform(0.05, 0.2, 3) ** 2
    mass = random.uniform(0.5, 2)
    return Body(
        name, parent, Joint(f"{name}_joint", kind, tuple(random.normal(size=3)), **joint), R[0],
        random.uniform(-0.3, 0.3, 3), mass, random.uniform(-0.1, 0.1, 3),
        mass * R[1] @ np.diag([b + c, a + c, a + b]) @ R[1].T,
    )  # fmt: skip


def forest() -> lgjax.Model:
    """Two floating trees and one on the ground between them."""
    return build(
        [
            body("ship", None, "free", 1),
            body("mast", "ship", "revolute", 2, damping=0.3, armature=0.2),
            body("cart", None, "prismatic", 3, damping=0.2),
            body("pole", "cart", "continuous", 4),
            body("buoy", None, "free", 5),
        ],
        "forest",
    )


def shoulder() -> lgjax.Model:
    """A floating base with an arm that turns, swings on a spherical joint and slides."""
    return build(
        [
            body("base", None, "free", 6),
            body("shoulder", "base", "revolute", 7, damping=0.1),
            body("upper", "shoulder", "spherical", 8, damping=0.3, armature=0.1),
            body("lower", "upper", "prismatic", 9, armature=0.2),
        ],
        "shoulder",
    )


TREES = {
    "single body": lambda: models.chain(1, floating_base=True),
    "pendulum": lambda: models.chain(1),
    "chain": lambda: models.chain(4),
    "star": lambda: models.branched_tree(3, 1),
    "floating tree": lambda: models.random_tree(1, 5, armature=0.1, damping=0.3),
    "fixed tree": lambda: models.random_tree(8, 5, floating_base=False, armature=0.1, damping=0.3),
    "forest": forest,
    "shoulder": shoulder,
}
# Mechanisms whose bodies all move freely, so that the ground takes no momentum.
FLOATING = ("single body", "star", "floating tree", "shoulder")


@cache
def model(name: str) -> lgjax.Model:
    return TREES[name]()


def random_states(model: lgjax.Model, n: int = STATES, seed: int = 0):
    """n random (q, v, vdot, tau, wrenches)."""
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(jax.random.split(jax.random.key(seed), n))
    random = np.random.default_rng(seed)
    v, vdot, tau = (jnp.asarray(x, model.dtype) for x in random.normal(size=(3, n, model.nv)))
    return q, v, vdot, tau, jnp.asarray(random.normal(size=(n, model.nbodies, 6)), model.dtype)
