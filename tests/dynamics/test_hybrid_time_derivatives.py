"""Time derivatives of hybrid dynamics along motions whose forces are known from Lagrange's equations.

The motions are polynomials in time, their velocities and forces derivatives of homogeneous matrices: see
`tests.oracles.lagrange`, which shares no recursion with the library.
"""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import Configuration, Pose
from tests.dynamics import trees
from tests.oracles import lagrange

HIGHEST = 4
RADIUS, POINTS = 0.25, 32  # of the circle of complex times


@cache
def model_of(floating: bool) -> lgjax.Model:
    """Joints of every sort: with constant and with changing motions, users' and a ball, and a branch."""
    if floating:
        bodies = [
            trees.body("base", None, "free", 1),
            trees.body("reach", "base", "universal", 2, damping=0.2, armature=0.1),
            trees.body("elbow", "base", "spherical", 3, damping=0.1),
            trees.body("screw", "elbow", "helical", 4, damping=0.3, pitch=0.2),
        ]
        return lgjax.build(bodies, "floating")
    bodies = [
        trees.body("carriage", None, trees.RAIL, 1, damping=0.2, armature=0.1),
        trees.body("ball", "carriage", "spherical", 2, damping=0.3),
        trees.body("slide", "ball", "prismatic", 3, damping=0.1, armature=0.2),
        trees.body("plate", "carriage", "planar", 4, damping=0.2),
    ]
    return lgjax.build(bodies, "on the ground")


def polynomial(coefficients, t):
    return sum(jnp.asarray(c) * t**k for k, c in enumerate(coefficients))


class Motion:
    """Configuration and wrenches at a complex time; attitudes are turned about x, z and x by polynomials."""

    def __init__(self, model: lgjax.Model):
        random, tree = np.random.default_rng(0), model.tree
        coefficients = lambda *shape: random.normal(size=(HIGHEST + 4, *shape)).astype(complex) / 2
        self.joints, self.pushes = coefficients(tree.n_joint), coefficients(model.nbodies, 6)
        self.angles, self.places = coefficients(tree.n_free + tree.n_ball, 3), coefficients(tree.n_free, 3)
        self.n_free = tree.n_free

    def q(self, t) -> Configuration:
        turned = lambda a, b, c: lagrange.turn(a, 0) @ lagrange.turn(b, 2) @ lagrange.turn(c, 0)
        turns = [turned(*angles) for angles in polynomial(self.angles, t)]
        stacked = lambda some: jnp.stack(some) if some else jnp.zeros((0, 3, 3), complex)
        frees = Pose(stacked(turns[: self.n_free]), polynomial(self.places, t))
        return Configuration(frees, polynomial(self.joints, t), stacked(turns[self.n_free :]))

    def wrenches(self, t):
        return polynomial(self.pushes, t)


@cache
def along(floating: bool):
    """Configuration at time 0, and derivatives of (velocity, forces) in both frames and of wrenches.

    By Cauchy's formula: the k-th is k! / N sum over N times t on a circle of f(t) / t^k.
    """
    model = model_of(floating)
    motion, times = Motion(model), RADIUS * np.exp(2j * np.pi * np.arange(POINTS) / POINTS)
    smooth = model.astype(complex)

    def at(t):
        both = [lagrange.along(smooth, motion.q, motion.wrenches, t, spatial) for spatial in (False, True)]
        return both, motion.wrenches(t)

    def derivatives(values):
        return np.stack(
            [math.factorial(k) * np.mean(((1 / times**k) * np.asarray(values).T).T, 0).real for k in range(HIGHEST + 2)]
        )

    found = jit(jax.vmap(at))(jnp.asarray(times))
    here = jax.tree.map(lambda x: np.asarray(x).real, motion.q(jnp.zeros((), complex)))
    return here, *jax.tree.map(derivatives, found)


def subset(model, frame: str, order: int) -> np.ndarray:
    """Random velocities (nv,) bool, of which the spatial frame takes all parts of a base or none."""
    chosen = np.random.default_rng(order).random(model.nv) < 0.5
    if frame == "spatial":
        chosen[:6] = order % 2
    assert 0 < chosen.sum() < model.nv
    return chosen


def errors(found, wanted):
    """Largest error of each order, relative to the largest entry of that order."""
    return np.max(np.abs(np.asarray(found) - wanted), -1) / np.max(np.abs(wanted), -1)


@pytest.mark.parametrize(
    ("floating", "frame", "order"),
    [
        (False, "body", 2),
        (True, "spatial", 1),
        pytest.param(False, "body", 4, marks=pytest.mark.slow),
        pytest.param(True, "body", 4, marks=pytest.mark.slow),
        pytest.param(True, "spatial", 3, marks=pytest.mark.slow),
        pytest.param(True, "spatial", 4, marks=pytest.mark.slow),
    ],
)
def test_hybrid_dynamics_finds_the_motion_and_its_forces(floating, frame, order):
    """What is not given is NaN: it must not be read."""
    model, (q, both, wrenches) = model_of(floating), along(floating)
    v, forces = both[["body", "spatial"].index(frame)]
    chosen, n = subset(model, frame, order), order + 1
    given = np.where(chosen, v[1 : n + 1], np.nan), np.where(chosen, np.nan, forces[:n])
    solve = jit(
        lambda q, v, vdot, tau, w: lgjax.hybrid_dynamics_time_derivatives(
            model, q, v, vdot, tau, np.flatnonzero(chosen).tolist(), frame, w
        )
    )
    vdot, tau = solve(q, v[0], *given, wrenches[:n])
    assert np.all(errors(vdot, v[1 : n + 1]) < 1e-10)
    assert np.all(errors(tau, forces[:n]) < 1e-10)
