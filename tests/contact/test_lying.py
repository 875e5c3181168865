"""Robots and tables that lie: contacts that share a load in many ways, and a solver that notices when it stalls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact.cones.law import ConeProblem
from lgjax.contact.cones.solver import CYCLE, solve_cones
from lgjax.multibody.build import Body, Joint, build
from tests import optimized
from tests.contact.test_closed_forms import STEP, G
from tests.oracles.pinocchio_contacts import violation

DT = 2e-3


def test_contradictions_of_round_off_do_not_keep_the_solver_busy():
    """A table on four feet whose velocities contradict each other: no motion of the table has them all."""
    feet = np.array([[0.5, 0.3, 0], [-0.5, 0.3, 0], [0.5, -0.3, 0], [-0.5, -0.3, 0]]) - [0.1, 0.05, 0.3]
    frame, count = np.eye(3)[[2, 0, 1]], 40
    J = np.concatenate([np.hstack([np.cross(foot, frame), frame]) for foot in feet])
    G_one = J / [0.3, 0.3, 0.3, 3, 3, 3] @ J.T
    random = np.random.default_rng(0)
    b = (J @ np.array([0, 0, 0, 0, 0, -G * DT]))[:, None] + np.zeros((12, count))
    b[::3] += 10 ** random.uniform(-13, -9.5, count) * random.normal(size=(4, count))
    none, k = np.zeros((0, count)), np.full((4, count), 0.7)
    problem = ConeProblem(np.repeat(G_one[..., None], count, -1), b, k, none, none, 0 * k)
    problem, scale = jax.tree.map(jnp.asarray, (problem, np.abs(b).max(0)))
    limit = 1.5e-9
    one = lambda p, scale, limit: solve_cones(p, 0 * p.b, scale > 0, scale, 7e-15, 600, limit)
    solver = jax.jit(lambda limit: jax.vmap(one, (-1, -1, None), -1)(problem, scale, limit))
    found, before = jax.tree.map(np.asarray, (solver(limit), solver(0.0)))
    assert np.mean(before.sweeps > CYCLE) > 0.5
    assert np.max(found.sweeps) < CYCLE / 2
    assert np.max(found.residual) < limit
    for i in range(count):
        assert violation(G_one, b[:, i], k[:, i], found.x[:, i]) < 10 * limit
    speed = lambda x: np.einsum("ijb,jb->ib", problem.G, x) + b
    np.testing.assert_allclose(speed(found.x), speed(before.x), atol=10 * limit)


@pytest.mark.parametrize(("dtype", "tiny"), [(jnp.float64, 1e-14), (jnp.float32, 1e-6)])
def test_a_table_with_feet_of_unequal_length_takes_few_sweeps(dtype, tiny):
    """And carries its weight. In float64 the lengths differ by a few units of round-off of its place."""
    body = Body("table", None, Joint("free", "free"), mass=3.0, com=np.array([0.1, 0.05, 0.3]), inertia=0.1 * np.eye(3))
    model = build([body]).astype(dtype)
    feet = [(x, y, 0.01) for x in (0.5, -0.5) for y in (0.3, -0.3)]
    shapes = {"table": [lgjax.shapes.sphere(0.01, foot) for foot in feet]}
    contacts = lgjax.Contacts(model, lgjax.shapes.Plane(np.array([0, 0, 1], dtype)), shapes, friction=0.7)

    def run(longer):
        here = jax.tree.map(lambda x: x, contacts)
        here.corners = here.corners._replace(centers=here.corners.centers.at[:, 2].add(longer))

        def step(state, _):
            q, v, guess = state
            found = lgjax.contact.contact_step(model, here, q, v, jnp.zeros(6, dtype), jnp.asarray(DT, dtype), guess)
            return (found.q, found.v, found.impulse), (found.sweeps, found.residual, found.status)

        start = lgjax.neutral(model), jnp.zeros(6, dtype), jnp.zeros((4, 3), dtype)
        return jax.lax.scan(step, start, None, length=60)

    longer = jnp.asarray(tiny * np.random.default_rng(0).normal(size=(20, 4)), dtype)
    (_, v, impulse), (sweeps, residual, status) = jax.tree.map(np.asarray, jax.jit(jax.vmap(run))(longer))
    assert not np.any(status)
    assert np.mean(sweeps) < 15
    assert np.max(residual) < 0.1 * STEP.settings(dtype).limit * 3
    np.testing.assert_allclose(np.sum(impulse[..., 0], -1), 3 * G * DT, rtol=1e-4 if dtype == jnp.float32 else 1e-9)
    assert np.abs(v).max() < (1e-4 if dtype == jnp.float32 else 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_fallen_robots_take_few_sweeps_and_keep_the_law(dtype):
    """The quadruped on its trunk with limp legs, and dropped from 1 m at random attitudes."""
    model = lgjax.models.quadruped().astype(dtype)
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    floor = lgjax.shapes.Plane(np.array([0, 0, 1], dtype))
    contacts = lgjax.Contacts(model, floor, ["trunk", *feet], friction=0.7)
    stand = jnp.tile(jnp.asarray([0.0, 0.8, -1.6], dtype), 4)

    def run(turn, height, damping):
        q = lgjax.configuration(model, (lgjax.so3.exp(turn), jnp.stack([0 * height, 0 * height, height])), stand)

        def step(state, _):
            q, v, guess = state
            tau = lambda q, v: jnp.concatenate([jnp.zeros(6, dtype), -damping * v[6:]])
            found = lgjax.contact.contact_step(model, contacts, q, v, tau, jnp.asarray(DT, dtype), guess)
            return (found.q, found.v, found.impulse), (found.sweeps, found.residual, found.status)

        start = q, jnp.zeros(18, dtype), jnp.zeros((12, 3), dtype)
        return jax.lax.scan(step, start, None, length=500)[1]

    run = optimized.jit(run)
    random = np.random.default_rng(0)
    cases = [(np.zeros(3), 0.12, damping) for damping in (0.0, 0.3)]
    cases += [(2 * random.normal(size=3), 1.0, 0.3) for _ in range(14)]
    for case in cases:  # one after the other: systems of a batch would wait for each other
        sweeps, residual, status = map(np.asarray, run(*(jnp.asarray(x, dtype) for x in case)))
        assert not np.any(status)
        assert np.max(sweeps) < 600
        assert np.mean(sweeps) < 30
        assert np.max(residual) < STEP.settings(dtype).limit
