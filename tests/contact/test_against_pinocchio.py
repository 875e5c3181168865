"""One step of robots with many contacts has the velocities that Pinocchio's matrices and contact solver give."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact.step import ITERATIONS, move
from tests.dynamics.test_pinocchio import robot
from tests.oracles import pinocchio_contacts as oracle

H = 2e-3
CASES = [
    ("go1", 4, 40),
    pytest.param("go1", 4, 500, marks=pytest.mark.slow),
    pytest.param("talos_reduced", 16, 500, marks=pytest.mark.slow),
    # 48 rows of contacts on 18 velocities: most sets of impulses that obey the law are not unique
    pytest.param("go1", 16, 500, marks=pytest.mark.slow),
]


@cache
def spheres(name, count):
    """(body, center, radius) on random bodies, each on another one as long as there are any."""
    model, _ = robot(name)
    random = np.random.default_rng(4)
    bodies = random.permutation(np.arange(max(model.nbodies, count)) % model.nbodies)[:count]
    return [(int(b), random.uniform(-0.1, 0.1, 3), random.uniform(0.01, 0.05)) for b in bodies]


def steps(name, count, states):
    """Order of the spheres, forces, friction, and the function of a guess that gives heights of the ground, half-way
    states and what the library makes of them."""
    model, _ = robot(name)
    shapes: dict[str, list] = {}
    for body, center, radius in spheres(name, count):
        shapes.setdefault(model.body_names[body], []).append(lgjax.shapes.sphere(radius, center))
    contacts = lgjax.Contacts(model, lgjax.shapes.Plane((0.0, 0.0, 1.0)), shapes)
    order = [link for link, _ in contacts.links]
    given = sorted(range(count), key=lambda i: order.index(model.body_names[spheres(name, count)[i][0]]))
    keys = jax.random.split(jax.random.key(7), states)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    random = np.random.default_rng(2)
    v, tau = random.normal(size=(2, states, model.nv)) * np.array([1.0, 5.0])[:, None, None]
    friction = random.uniform(0, 1.2, (states, count))
    active = random.integers(1, count + 1, states)  # so many of the spheres are in the ground

    def one(q, v, tau, friction, active, guess):
        here = contacts.replace(friction=friction)
        heights = jnp.sort(lgjax.contact.contact_points(model, here, move(model, q, v, 0.5 * H * v)[0]).gap)
        ground = heights[active - 1] + 1e-9
        here = here.replace(grounds=lgjax.shapes.Plane((0.0, 0.0, 1.0), -ground))
        found = lgjax.contact.contact_step(model, here, q, v, tau, H, guess)
        return ground, move(model, q, v, 0.5 * H * v), found

    many = jax.jit(jax.vmap(one))
    run = lambda guess: jax.tree.map(np.asarray, many(q, v, tau, friction, active, guess))
    return given, tau, friction, run


@pytest.mark.parametrize(("name", "count", "states"), CASES)
def test_steps_obey_coulombs_law_with_pinocchios_matrices(name, count, states):
    """Every step is solved; where Pinocchio's answer is another one, the law has both: a step from theirs keeps it."""
    model, theirs = robot(name)
    given, tau, friction, run = steps(name, count, states)
    ground, (q, v), step = run(np.zeros((states, count, 3)))
    assert np.all(step.status == 0)
    assert np.max(step.sweeps) < lgjax.contact.TimeStepping().max_sweeps
    mass, damping = spheres(name, count), np.asarray(model.damping)
    problems, references = [], np.zeros((states, count, 3))
    for k in range(states):
        pose = (q.free_poses.rotation[k, 0], q.free_poses.translation[k, 0])
        one = oracle.problem(
            theirs, pose, q.joints[k], v[k], tau[k], damping, H, [mass[i] for i in given], ground[k], ITERATIONS
        )  # fmt: skip
        free, response, G, u, gaps = one
        np.testing.assert_allclose(step.gap[k], gaps, atol=1e-12)
        b = u.copy()
        b[::3] += 2 / H * np.maximum(gaps, 0)
        scale = 1 + np.abs(u).max()
        x = step.impulse[k].ravel()
        assert oracle.violation(G, b, friction[k], x) < 1e-8 * scale
        np.testing.assert_allclose(step.velocity[k].ravel(), u + G @ x, atol=1e-8 * scale)
        reference, converged = oracle.solve(G, b, friction[k])
        references[k] = reference.reshape(count, 3)
        verified = converged and oracle.violation(G, b, friction[k], reference) < 1e-8 * scale
        problems.append((verified, response, 1 + np.abs(free).max()))
    _, _, again = run(references)
    distance = lambda k, found: np.abs(problems[k][1] @ (references[k] - found.impulse[k]).ravel()).max()
    compared = [k for k in range(states) if problems[k][0]]
    assert len(compared) > 0.85 * states  # Pinocchio's solver ends without a solution in the others
    for k in compared:
        assert distance(k, again) < 1e-6 * problems[k][2]
    others = [k for k in compared if distance(k, step) > 1e-6 * problems[k][2]]
    assert len(others) <= 0.01 * states
