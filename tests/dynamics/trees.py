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
            body("cart", None, "planar", 3, damping=0.2),
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


def rail(q) -> lgjax.Pose:
    """A carriage at x = q[0] on a parabola, along its tangent, that rolls about it by q[1]."""
    slope, (_, c), (_, s) = q[0], jnp.cos(q), jnp.sin(q)
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    length = jnp.sqrt(1 + slope * slope)
    along = jnp.stack([one, slope, zero]) / length
    across = jnp.stack([-slope, one, zero]) / length
    up = jnp.stack([zero, zero, one])
    rotation = jnp.stack([along, c * across + s * up, c * up - s * across], 1)
    return lgjax.Pose(rotation, jnp.stack([slope, slope * slope / 2, zero]))


def rail_motions(q):
    """Its twist per unit of dq/dt, in the carriage."""
    c, s = jnp.cos(q[1]), jnp.sin(q[1])
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    square = 1 + q[0] * q[0]
    along = jnp.stack([zero, s / square, c / square, jnp.sqrt(square), zero, zero])
    return jnp.stack([along, jnp.stack([one, zero, zero, zero, zero, zero])], 1)


RAIL = lgjax.joint_kind("rail", rail, rail_motions, 2)
JOINTS = ("revolute", "prismatic", "helical", "cylindrical", "universal", "planar", "spherical", RAIL)


def every_joint(floating_base: bool = True) -> lgjax.Model:
    """A random tree in which each kind of joint moves a body, three of them in a row in the longest branch."""
    return models.random_tree(441, 9, floating_base, JOINTS, armature=0.1, damping=0.3)


TREES = {
    "single body": lambda: models.chain(1, floating_base=True),
    "pendulum": lambda: models.chain(1),
    "chain": lambda: models.chain(4),
    "star": lambda: models.branched_tree(3, 1),
    "floating tree": lambda: models.random_tree(1, 5, armature=0.1, damping=0.3),
    "fixed tree": lambda: models.random_tree(8, 5, floating_base=False, armature=0.1, damping=0.3),
    "forest": forest,
    "shoulder": shoulder,
    "every joint": every_joint,
}
# Mechanisms whose bodies all move freely, so that the ground takes no momentum.
FLOATING = ("single body", "star", "floating tree", "shoulder", "every joint")


@cache
def model(name: str) -> lgjax.Model:
    return TREES[name]()


def random_states(model: lgjax.Model, n: int = STATES, seed: int = 0):
    """n random (q, v, vdot, tau, wrenches)."""
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(jax.random.split(jax.random.key(seed), n))
    random = np.random.default_rng(seed)
    v, vdot, tau = (jnp.asarray(x, model.dtype) for x in random.normal(size=(3, n, model.nv)))
    return q, v, vdot, tau, jnp.asarray(random.normal(size=(n, model.nbodies, 6)), model.dtype)
