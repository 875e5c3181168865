"""Time derivatives of high order: along a motion that JAX can differentiate, in both frames, there and back.

Largest error of each order relative to the largest entry of that order, over motions whose Taylor coefficients are
about one, of an arm with a spherical and a revolute joint. The bounds are asserted, what was measured is in brackets.

                                          body frame                      spatial frame
    float64, orders 0 ... 8
      forces, against JAX's own           1e-12 (5e-15)                   1e-12 (5e-15)
      forward after inverse               1e-11 (1e-13)                   1e-11 (2e-13)
    float32, free base, orders 0 ... 4
      forces of order 0, against float64  2e-7  (4e-8)                    5e-7 (9e-8)
      forces of higher orders             4e-6  (1e-6)                    2e-6 (5e-7)
      forward after inverse               1e-4  (3e-5)                    3e-4 (1e-4)
"""

import math
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from jax.experimental import jet

import lgjax
from lgjax import Configuration, Pose, se3
from lgjax.execution import plain
from lgjax.multibody.configuration import join_velocity, split_velocity
from tests.dynamics import trees

HIGHEST = 8
MOTIONS = 2
START = 0.1
both_frames = pytest.mark.parametrize("frame", ["body", "spatial"])
# The base is on a free joint or slides on the ground; the highest order of all is slow to compile.
every_case = pytest.mark.parametrize(
    ("floating", "order"),
    [
        pytest.param(True, 3, id="floating"),
        pytest.param(True, HIGHEST, id="floating-8", marks=pytest.mark.slow),
        pytest.param(False, 5, id="fixed-5", marks=pytest.mark.slow),
    ],
)


@cache
def arm(floating: bool, dtype=jnp.float64) -> lgjax.Model:
    base = trees.body("base", None, "free", 1) if floating else trees.body("base", None, "prismatic", 1, damping=0.1)
    upper = trees.body("upper", "base", "spherical", 2, damping=0.1)
    hand = trees.body("hand", "upper", "revolute", 3, damping=0.2, armature=0.1)
    return lgjax.build([base, upper, hand], "arm").astype(dtype)


# ---- motions as functions of time, with nothing of the series
def polynomial(coefficients, t):
    return sum(jnp.asarray(c) * t**k for k, c in enumerate(coefficients))


def turned(angles):
    """Rotations about x, y and z by angles (3,), one after the other."""
    (a, b, c), (x, y, z) = jnp.cos(angles), jnp.sin(angles)
    one, zero = jnp.ones_like(a), jnp.zeros_like(a)
    about_x = jnp.stack([one, zero, zero, zero, a, -x, zero, x, a]).reshape(3, 3)
    about_y = jnp.stack([b, zero, y, zero, one, zero, -y, zero, b]).reshape(3, 3)
    about_z = jnp.stack([c, -z, zero, z, c, zero, zero, zero, one]).reshape(3, 3)
    return about_x @ about_y @ about_z


def rate(f):
    return lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]


class Motion:
    """Random motion of a mechanism: configuration, velocities and forces in both frames, wrenches, at time t."""

    def __init__(self, model, seed: int):
        random = np.random.default_rng(seed)
        self.model, self.path = model, random.normal(size=(HIGHEST + 3, model.nv)) / 2
        self.pushes = random.normal(size=(HIGHEST + 1, model.nbodies, 6)) / 2

    def q(self, t) -> Configuration:
        frees, joints, balls = split_velocity(self.model.tree, polynomial(self.path, t))
        turn = lambda angles: jnp.stack([turned(x) for x in angles]) if len(angles) else jnp.zeros((0, 3, 3))
        return Configuration(Pose(turn(frees[:, :3]), frees[:, 3:]), joints, turn(balls))

    def body_velocity(self, t):
        q, dq = self.q(t), rate(self.q)(t)
        unturned = lambda R, x: jnp.einsum("bji,bj...->bi...", R, x)
        spin = lambda R, dR: jnp.stack([unturned(R, dR)[:, i, j] for i, j in ((2, 1), (0, 2), (1, 0))], -1)
        turn = spin(q.free_poses.rotation, dq.free_poses.rotation)
        slide = unturned(q.free_poses.rotation, dq.free_poses.translation)
        return join_velocity(
            self.model.tree, jnp.concatenate([turn, slide], -1), dq.joints, spin(q.ball_rotations, dq.ball_rotations)
        )

    def wrenches(self, t):
        return polynomial(self.pushes, t)

    def body_forces(self, t):
        vdot = rate(self.body_velocity)(t)
        return plain()(lgjax.inverse_dynamics)(self.model, self.q(t), self.body_velocity(t), vdot, self.wrenches(t))

    def both(self, f, change):
        """A function of time in body and in spatial coordinates, (2, nv)."""

        def at(t):
            body = f(t)
            frees, joints, balls = split_velocity(self.model.tree, body)
            return jnp.stack([body, join_velocity(self.model.tree, change(self.q(t).free_poses, frees), joints, balls)])

        return at

    @property
    def velocities(self):
        return self.both(self.body_velocity, se3.Ad)

    @property
    def forces(self):
        return self.both(self.body_forces, lambda T, w: se3.coAd(se3.inverse(T), w))


def by_jet(f, order: int):
    """Derivatives 0 ... order of f at START, by JAX's own Taylor mode."""
    t = jnp.asarray(START)
    first, rest = jet.jet(f, (t,), ([jnp.ones_like(t), *[jnp.zeros_like(t)] * (order - 1)],))
    return np.stack([first, *rest])


def by_nested_jvp(f, order: int):
    """The same by forward mode of forward mode."""

    def extended(f):
        def g(t):
            known, rates = jax.jvp(f, (t,), (jnp.ones_like(t),))
            return [*known, rates[-1]]

        return g

    found = lambda t: [f(t)]
    for _ in range(order):
        found = extended(found)
    return np.stack(found(jnp.asarray(START)))


class Given(NamedTuple):
    """A start and derivatives along a motion, v with frames on the second axis."""

    q: Any
    v: Any
    wrenches: Any


@cache
def given(floating: bool, order: int, seed: int) -> Given:
    motion = Motion(arm(floating), seed)
    v, wrenches = by_jet(motion.velocities, order + 1), by_jet(motion.wrenches, order)
    return Given(motion.q(jnp.asarray(START)), v, wrenches)


@cache
def nested_forces(floating: bool, order: int):
    return by_nested_jvp(Motion(arm(floating), 0).forces, order)


@cache
def taylor_forces(floating: bool, order: int):
    return np.stack([by_jet(Motion(arm(floating), seed).forces, order) for seed in range(MOTIONS)])


# ---- the library on them
@cache
def solvers(floating: bool, order: int, frame: str, dtype=jnp.float64):
    """Inverse and forward dynamics, compiled."""
    model = arm(floating, dtype)
    inverse = jit(lambda q, v, w: lgjax.inverse_dynamics_time_derivatives(model, q, v, order, frame, w))
    forward = jit(lambda q, v, tau, w: lgjax.forward_dynamics_time_derivatives(model, q, v, tau, frame, w))
    return inverse, forward


def arguments(floating: bool, order: int, frame: str, seed: int, dtype=jnp.float64):
    q, v, wrenches = given(floating, order, seed)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), (q, v[:, ["body", "spatial"].index(frame)], wrenches))


@cache
def forces(floating: bool, order: int, frame: str, dtype=jnp.float64):
    """Forces and derivatives of all motions (MOTIONS, order + 1, nv)."""
    inverse, _ = solvers(floating, order, frame, dtype)
    return np.stack([inverse(*arguments(floating, order, frame, seed, dtype)) for seed in range(MOTIONS)])


@cache
def there_and_back(floating: bool, order: int, frame: str, dtype=jnp.float64):
    """Accelerations of those forces beside those that they were made from."""
    _, forward = solvers(floating, order, frame, dtype)
    found, wanted = [], []
    for seed, tau in enumerate(forces(floating, order, frame, dtype)):
        q, v, wrenches = arguments(floating, order, frame, seed, dtype)
        found.append(forward(q, v[0], jnp.asarray(tau), wrenches))
        wanted.append(v[1:])
    return np.stack(found), np.stack(wanted)


def errors(a, b):
    """Largest error of each order over all motions, relative to the motion's largest entry of that order."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.max(np.max(np.abs(a - b), -1) / np.max(np.abs(b), -1), 0)


# ---- sentences
@both_frames
@every_case
def test_forces_have_the_derivatives_of_nested_jvp(floating, order, frame):
    """To order 4 at most, of one motion; higher orders of all motions have those of JAX's Taylor mode."""
    which = ["body", "spatial"].index(frame)
    got = forces(floating, order, frame)
    depth = min(order, 4)
    assert np.all(errors(got[:1, : depth + 1], nested_forces(floating, depth)[None, :, which]) < 1e-12)
    if order > depth:
        assert np.all(errors(got, taylor_forces(floating, order)[:, :, which]) < 1e-12)


@every_case
def test_both_frames_give_the_same_forces(floating, order):
    """Base wrenches go over by Leibniz on [[R, hat(p) R], [0, R]], whose derivatives are those of the pose."""
    body, spatial = forces(floating, order, "body"), forces(floating, order, "spatial").copy()
    if floating:
        for seed in range(MOTIONS):
            q, v, _ = arguments(True, order, "body", seed)
            pose = jax.tree.map(lambda x: x[0], q.free_poses)
            twists = lgjax.time_derivatives.twist_derivatives(
                lgjax.time_derivatives.pose_derivatives(pose, v[:, :6]), "spatial"
            )
            assert np.all(errors(twists[None], arguments(True, order, "spatial", seed)[1][None, :, :6]) < 1e-12)
            spatial[seed, :, :6] = to_body(
                np.asarray(lgjax.time_derivatives.pose_derivatives(pose, v[:order, :6])), spatial[seed, :, :6]
            )
    assert np.all(errors(spatial, body) < 1e-11)


def to_body(poses, wrenches):
    """Derivatives of body wrenches from those of spatial ones and those of the pose: n_b = R^T (n - p x f)."""

    def product(times, a, b):
        terms = [[math.comb(k, i) * times(a[i], b[k - i]) for i in range(k + 1)] for k in range(len(poses))]
        return np.stack([sum(row) for row in terms])

    R, p, (n, f) = poses[:, :3, :3], poses[:, :3, 3], np.split(wrenches, 2, -1)
    turned_back = lambda x: product(lambda R, x: R.T @ x, R, x)
    return np.concatenate([turned_back(n - product(np.cross, p, f)), turned_back(f)], -1)


@both_frames
@every_case
def test_forward_after_inverse_is_the_identity(floating, order, frame):
    assert np.all(errors(*there_and_back(floating, order, frame)) < 1e-11)


FLOAT32 = {"body": ([2e-7] + [4e-6] * 4, [1e-4] * 5), "spatial": ([5e-7] + [2e-6] * 4, [3e-4] * 5)}


@pytest.mark.slow
@both_frames
def test_float32_has_the_error_of_the_table(frame):
    inverse, forward = FLOAT32[frame]
    assert np.all(errors(forces(True, 4, frame, jnp.float32), forces(True, HIGHEST, frame)[:, :5]) < inverse)
    assert np.all(errors(*there_and_back(True, 4, frame, jnp.float32)) < forward)


# ---- hybrid dynamics
def subset(order: int, frame: str) -> tuple[int, ...]:
    """Random velocities of the arm on a free base, of which the spatial frame takes all parts of a base or none."""
    random = np.random.default_rng(order)
    chosen = random.random(arm(True).nv) < 0.5
    if frame == "spatial":
        chosen[:6] = order % 2
    return tuple(np.flatnonzero(chosen).tolist())


@pytest.mark.parametrize(
    ("order", "frame"),
    [
        (2, "body"),
        pytest.param(3, "spatial", marks=pytest.mark.slow),
        pytest.param(4, "body", marks=pytest.mark.slow),
    ],
)
def test_hybrid_dynamics_of_random_subsets_agree_with_inverse_dynamics(order, frame):
    model, prescribed = arm(True), subset(order, frame)
    chosen = np.isin(np.arange(model.nv), prescribed)
    assert 0 < chosen.sum() < model.nv

    @jit
    def solve(q, v, tau, w):
        known = jnp.where(chosen, v[1:], jnp.nan), jnp.where(chosen, jnp.nan, tau)  # the others are not read
        return lgjax.hybrid_dynamics_time_derivatives(model, q, v[0], *known, prescribed, frame, w)

    depth = 3 if order < 4 else HIGHEST  # of what is compiled for other tests
    for seed, tau in enumerate(forces(True, depth, frame)[:, : order + 1]):
        q, v, wrenches = arguments(True, depth, frame, seed)
        v = v[: order + 2]
        vdot, found = solve(q, v, jnp.asarray(tau), wrenches[: order + 1])
        assert np.all(errors(vdot[None], v[None, 1:]) < 1e-11)
        assert np.all(errors(found[None], tau[None]) < 1e-11)


# ---- articulated inertia
@pytest.mark.parametrize("frame", ["body", pytest.param("spatial", marks=pytest.mark.slow)])
def test_forces_of_every_order_meet_the_same_inertia(frame):
    """M d vdot^(r) = d tau^(r) for every r and every velocity, and orders below r feel nothing. [ali2026] Lemma 2."""
    order = 3
    _, forward = solvers(True, order, frame)
    q, v, wrenches = arguments(True, order, frame, 0)
    mass = jit(lambda v: lgjax.time_derivatives.closed_form(arm(True), q, v, v, frame).mass)(v[0])
    tau = jnp.asarray(forces(True, order, frame)[0])
    directions = np.random.default_rng(0).normal(size=(2, arm(True).nv))
    for speed in (v[0], 0 * v[0], -3 * v[0]):
        before = forward(q, speed, tau, wrenches)
        for r in range(order + 1):
            scale = np.max(np.abs(mass)) * np.max(np.abs(before[r])) + 1  # a difference of large numbers
            for more in directions:
                change = forward(q, speed, tau.at[r].add(more), wrenches) - before
                assert np.all(change[:r] == 0)
                np.testing.assert_allclose(mass @ change[r], more, rtol=0, atol=1e-13 * scale)


@both_frames
def test_articulated_inertias_are_factorized_once_for_all_orders(frame):
    """One reciprocal per pivot, in the program for order 2 as in that for order 0."""
    model = arm(True)
    q, v, wrenches = arguments(True, 3, frame, 0)

    def count(jaxpr):
        ones = [e for e in jaxpr.eqns if e.primitive.name == "div" and getattr(e.invars[0], "val", None) == 1]
        inner = [x.jaxpr for e in jaxpr.eqns for x in e.params.values() if hasattr(x, "jaxpr")]
        return len(ones) + sum(map(count, inner))

    def reciprocals(order):
        run = lambda v, tau, w: plain()(lgjax.forward_dynamics_time_derivatives)(model, q, v, tau, frame, w)
        return count(jax.make_jaxpr(run)(v[0], v[: order + 1], wrenches[: order + 1]).jaxpr)

    assert reciprocals(0) == reciprocals(2) > 0
