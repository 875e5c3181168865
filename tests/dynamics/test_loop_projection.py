"""Projections onto closed loops: the nearest point, from far away, out of reach, and their derivatives."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import Body, Joint, Loop
from lgjax.dynamics.loops import loop_constraint, loop_residual, project
from lgjax.systems.closed_loops import five_bar, four_bar
from tests.dynamics.test_loops import DTYPES, random_pose, state, swing

positions = jit(lgjax.project_positions, static_argnames=("metric", "max_iterations"))
velocities = jit(lgjax.project_velocity)
matrix = jit(lgjax.mass_matrix)
residual = jit(loop_residual)


@cache
def loose():
    """The swing with its loops put where a random configuration nearly closes them."""
    model, _ = swing()
    q, v = state(model, 3)
    poses = jit(lgjax.forward_kinematics)(model, q)
    arm, weight = (jax.tree.map(lambda x, i=i: x[i], poses) for i in (0, 1))
    frame = random_pose(15)
    ball = Loop("point", "arm", "weight", frame, weight.inverse() @ arm @ frame)
    hook = jnp.asarray([1.0, 0.2, 0.4])
    rod = Loop("distance", "world", "weight", hook, distance=jnp.linalg.norm(weight.translation - hook))
    return model, (ball, rod), q, v


@pytest.mark.parametrize(("metric", "dtype"), [("mass", jnp.float64), ("plain", jnp.float64), ("mass", jnp.float32)])
def test_positions_go_to_the_nearest_closed_configuration(metric, dtype):
    """The displacement is normal to the closed configurations, in the metric: none nearby is nearer."""
    model, loops, q, _ = loose()
    model = model.astype(dtype)
    q = jax.tree.map(lambda x: x.astype(dtype), q)
    off = lgjax.retract(model, q, jnp.asarray(0.05 * np.random.default_rng(0).normal(size=model.nv), dtype))
    found = positions(model, loops, off, metric=metric)
    assert bool(found.converged)
    assert {x.dtype for x in jax.tree.leaves(found[:2])} == {jnp.dtype(dtype)}
    limit = float(jnp.finfo(dtype).eps) ** 0.75
    assert np.abs(residual(model, loops, found.q)).max() <= 2 * limit
    if dtype == jnp.float32:
        return
    d = np.asarray(lgjax.difference(model, off, found.q))
    M = np.asarray(matrix(model, off)) if metric == "mass" else np.eye(model.nv)
    A = np.asarray(jax.jacfwd(lambda d: residual(model, loops, lgjax.retract(model, off, d)))(jnp.asarray(d)))
    normal = A.T @ np.linalg.lstsq(A.T, M @ d, rcond=None)[0]
    np.testing.assert_allclose(M @ d, normal, atol=1e-7 * np.abs(M @ d).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_velocities_lose_what_breaks_the_loops(dtype):
    """The rest is orthogonal to every consistent velocity, so kinetic energy splits; twice changes nothing."""
    model, loops, q, v = loose()
    model, q, v = jax.tree.map(lambda x: x.astype(dtype), (model, q, v))
    p = velocities(model, loops, q, v)
    A = np.asarray(jit(loop_constraint)(model, loops, q).jacobian, float)
    M = np.asarray(matrix(model, q), float)
    tolerance = 1e-12 if dtype == jnp.float64 else 1e-4
    np.testing.assert_allclose(A @ np.asarray(p, float), 0, atol=tolerance)
    np.testing.assert_allclose(velocities(model, loops, q, p), p, atol=tolerance)
    lost = np.asarray(v - p, float)
    null = np.linalg.svd(A)[2][4:]
    np.testing.assert_allclose(null @ M @ lost, 0, atol=10 * tolerance * np.abs(M @ lost).max())
    assert p.dtype == dtype


def test_a_mechanism_assembles_from_far_away():
    """A four-bar from angles that are up to a radian off, each of a batch on its own."""
    s = four_bar()
    off = s.q0.joints + jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (8, 3)))
    many = jit(jax.vmap(lambda x: lgjax.project_positions(s.model, s.loops, s.q0._replace(joints=x))))(off)
    assert np.all(many.converged)
    assert float(jnp.max(many.residual)) < 2e-12
    assert len(set(np.asarray(many.iterations).tolist())) > 1
    one = positions(s.model, s.loops, s.q0._replace(joints=off[3]))
    np.testing.assert_allclose(one.q.joints, many.q.joints[3], atol=1e-12)
    assert int(one.iterations) == int(many.iterations[3])


def test_loops_out_of_reach_say_so_and_come_closest():
    """A rod of 0.4 m is to reach a point 0.8 m away; its neighbor in the batch closes all the same."""
    s = four_bar()

    def run(x):
        frame = lgjax.Pose(jnp.asarray([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]]), x)
        loop = Loop("point_on_line", "world", "crank", frame, [0.4, 0.0, 0.0])
        return lgjax.project_positions(s.model, loop, s.q0, metric="plain")

    near = 0.4 * np.array([np.cos(0.5), 0, np.sin(0.5)])
    found = jit(jax.vmap(run))(jnp.asarray(np.stack([2 * near, near])))
    np.testing.assert_array_equal(found.converged, [False, True])
    np.testing.assert_allclose(found.q.joints[:, 0], 0.5, atol=1e-3)
    assert float(found.residual[0]) == pytest.approx(0.4, rel=1e-6)
    assert np.all(np.isfinite(found.residual))
    np.testing.assert_array_less(found.iterations, 51)


def floating(*kinds):
    """A chain on a floating base, its joints skew and its bodies light to turn and heavy to move."""
    rng = np.random.default_rng(5)
    inertia = np.diag([0.01, 0.012, 0.015])
    bodies = [Body("0", None, Joint("base", "free"), mass=1.5, inertia=inertia)]
    for i, kind in enumerate(kinds):
        joint = Joint(f"joint {i}", kind, tuple(rng.normal(size=3)))
        place, com = tuple(rng.uniform(-0.3, 0.3, 3)), tuple(rng.uniform(-0.1, 0.1, 3))
        bodies.append(Body(f"{i + 1}", f"{i}", joint, position=place, mass=1.5, com=com, inertia=inertia))
    return lgjax.build(bodies, "floating chain")


PLANE = Loop("point_on_plane", "world", "2", [0.1, 0.2, 0.3])
ROD = Loop("distance", "2", "world", [0.1, 0.0, 0.0], [1.0, 1.0, 1.0], distance=0.7)
STAY = Loop("distance", "0", "world", [0.1, 0.0, 0.0], [1.0, 1.0, 1.0], distance=1.4)
PIN = Loop("spherical", "world", "2", [0.5, -0.4, 0.3], [0.1, 0.1, 0.0])
CLOSABLE = {
    "plane and rod, mass": (("revolute", "spherical"), (PLANE, ROD), "mass", jnp.float64),
    "pin and stay, plain": (("revolute", "spherical"), (PIN, STAY), "plain", jnp.float64),
    "plane and stay, mass": (("prismatic", "universal"), (PLANE, STAY), "mass", jnp.float64),
    "plane and stay, mass, float32": (("prismatic", "universal"), (PLANE, STAY), "mass", jnp.float32),
}


@pytest.mark.parametrize("case", CLOSABLE)
def test_loops_that_a_floating_base_can_close_are_closed_from_anywhere(case):
    """At the nearest point: what is left of M d along the closed configurations is nothing, and d is no local maximum.

    d is taken from the search, as it may turn a ball joint by more than half a circle where that moves less mass.
    """
    kinds, loops, metric, dtype = CLOSABLE[case]
    model = floating(*kinds).astype(dtype)
    limit = float(jnp.finfo(dtype).eps) ** 0.75

    def run(key):
        q = lgjax.random_configuration(key, model)
        problem = project._Problem(model, loops, q)
        limits = jnp.asarray(limit, dtype), project.rank_tolerance(model, None)
        d, error, iterations, converged = project._nearest(project._Settings(metric, 200), problem, limits)
        return q, d, project._at(problem, d)[1], error, iterations, converged

    many = jax.random.split(jax.random.key(0), 32)
    q, d, A, error, iterations, converged = jit(jax.vmap(run))(many)
    assert np.all(converged)
    assert np.all(error <= limit)
    assert np.median(iterations) < 60
    M = jit(jax.vmap(lambda q: lgjax.mass_matrix(model, q)))(q) if metric == "mass" else np.eye(model.nv)[None]
    Md = np.einsum("bij,bj->bi", np.asarray(M, float), np.asarray(d, float))
    for a, md in zip(np.asarray(A, float), Md, strict=True):
        along = np.linalg.svd(a)[2][len(a) :] @ md
        assert np.abs(along).max() < (1e-7 if dtype == jnp.float64 else 1e-2) * np.abs(md).max()


def test_the_nearest_point_from_far_away_has_its_derivatives():
    """Along a direction of the start, against central differences; the displacement is no small one."""
    model = floating("prismatic", "universal")
    push = jnp.asarray(np.random.default_rng(3).normal(size=model.nv))

    def end(key, x):
        q = lgjax.random_configuration(key, model)
        found = lgjax.project_positions(model, (PLANE, STAY), lgjax.retract(model, q, x * push))
        return lgjax.difference(model, q, found.q), found.converged

    both = jit(jax.vmap(lambda key, x: jax.jvp(lambda x: end(key, x)[0], (x,), (jnp.ones_like(x),)), (0, None)))
    many, h = jax.random.split(jax.random.key(1), 6), 1e-5
    (_, found), (above, _), (below, _) = (both(many, jnp.asarray(x)) for x in (0.0, h, -h))
    np.testing.assert_allclose(found, (above - below) / (2 * h), atol=1e-5 * np.abs(found).max())


def test_a_chain_that_is_held_too_far_apart_comes_as_near_as_it_can():
    """A pin holds the chain's end, a rod its middle, meters further away than the chain is long: a local minimum."""
    model = floating("revolute", "spherical")
    far = Loop("distance", "1", "world", [0.0, 0.0, 0.0], [0.5, -0.4, 0.3], distance=5.0)
    pin = Loop("spherical", "world", "2", [0.5, -0.4, 0.3])
    run = lambda key: lgjax.project_positions(model, (pin, far), lgjax.random_configuration(key, model))
    found = jit(jax.vmap(run))(jax.random.split(jax.random.key(2), 8))
    assert not np.any(found.converged)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found.q))
    np.testing.assert_allclose(found.residual, 2.4725646, rtol=0.1)  # by SciPy


def test_a_closed_configuration_stays():
    s = five_bar()
    found = positions(s.model, s.loops, s.q0)
    np.testing.assert_array_equal(found.q.joints, s.q0.joints)
    assert (int(found.iterations), bool(found.converged)) == (0, True)


@pytest.mark.slow
def test_derivatives_are_those_of_the_implicit_function():
    """In the start, the masses and the frames, both modes, from a start that is not closed, to second order."""
    model, loops, q, _ = loose()
    off = jnp.asarray(0.05 * np.random.default_rng(0).normal(size=model.nv))
    weights = jnp.asarray(np.random.default_rng(1).normal(size=model.nv))

    def end(x):
        dv, mass, shift = x[: model.nv], x[model.nv : -3], x[-3:]
        here = model.replace(inertias=model.inertias.scaled(1 + mass))
        loop = Loop(
            "point",
            "arm",
            "weight",
            loops[0].frame_a,
            lgjax.Pose(loops[0].frame_b.rotation, loops[0].frame_b.translation + shift),
        )
        found = lgjax.project_positions(here, (loop, loops[1]), lgjax.retract(model, q, off + dv)).q
        return lgjax.difference(model, q, found)

    zero = jnp.zeros(model.nv + model.nbodies + 3)
    h = 5e-4
    push = jit(lambda x, t: jax.jvp(end, (x,), (t,)))
    value = lambda x: np.stack([push(row, zero)[0] for row in x])
    slope = lambda steps: value(steps) - value(-steps)
    steps = h * jnp.eye(len(zero))
    expected = ((8 * slope(steps) - slope(2 * steps)) / (12 * h)).T
    _, along = push(zero, zero + 1)
    np.testing.assert_allclose(along, expected @ np.ones(len(zero)), atol=2e-5)
    scalar = lambda x: weights @ end(x)
    np.testing.assert_allclose(jit(jax.grad(scalar))(zero), weights @ expected, atol=2e-5)


@pytest.mark.slow
def test_second_derivatives_of_the_projection():
    s = four_bar()
    push = jnp.asarray([0.1, -0.05, 0.08])
    end = lambda x: lgjax.project_positions(s.model, s.loops, s.q0._replace(joints=s.q0.joints + x * push)).q.joints[1]
    both = jit(lambda x: jax.jvp(jax.grad(end), (x,), (jnp.ones_like(x),)))
    at, h = jnp.asarray(1.0), 1e-5
    (above, _), (below, _), (_, found) = both(at + h), both(at - h), both(at)
    assert float(found) == pytest.approx(float(above - below) / (2 * h), abs=1e-6)


def test_redundant_constraints_project_too():
    slim, full = four_bar(), four_bar(closure="revolute")
    off = slim.q0._replace(joints=slim.q0.joints + jnp.asarray([0.1, -0.2, 0.1]))
    a, b = (positions(slim.model, s.loops, off) for s in (slim, full))
    np.testing.assert_allclose(a.q.joints, b.q.joints, atol=1e-9)
    v = jnp.ones(3)
    a, b = (velocities(slim.model, s.loops, slim.q0, v) for s in (slim, full))
    np.testing.assert_allclose(a, b, atol=1e-12)


def test_bad_input_is_refused():
    s = four_bar()
    with pytest.raises(ValueError, match="metric is 'mass' or 'plain', not 'energy'"):
        lgjax.project_positions(s.model, s.loops, s.q0, metric="energy")
    with pytest.raises(ValueError, match="max_iterations must be a positive integer, got 0"):
        lgjax.project_positions(s.model, s.loops, s.q0, max_iterations=0)
    with pytest.raises(ValueError, match=r"four-bar does not close: rods of 0\.9 m and 0\.7 m over a distance of"):
        four_bar((3.0, 0.4, 0.9, 0.7))
