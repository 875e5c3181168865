"""One step of robots with many contacts has the velocities that Pinocchio's matrices and contact solver give."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact.step import move
from tests.dynamics.test_pinocchio import robot
from tests.oracles import pinocchio_contacts as oracle

H = 2e-3
CASES = [("go1", 4, 24), pytest.param("talos_reduced", 16, 40, marks=pytest.mark.slow)]


@cache
def spheres(name, count):
    """(body, centre, radius) on random bodies, each on another one as long as there are any."""
    model, _ = robot(name)
    random = np.random.default_rng(4)
    bodies = random.permutation(np.arange(max(model.nbodies, count)) % model.nbodies)[:count]
    return [(int(b), random.uniform(-0.1, 0.1, 3), random.uniform(0.01, 0.05)) for b in bodies]


def steps(name, count, states):
    """Half-way states, forces, heights of the ground, friction, and what the library makes of them."""
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

    def one(q, v, tau, friction, active):
        here = contacts.replace(friction=friction)
        heights = jnp.sort(lgjax.contact.contact_points(model, here, move(model, q, v, 0.5 * H * v)[0]).gap)
        ground = heights[active - 1] + 1e-9
        here = here.replace(grounds=lgjax.shapes.Plane((0.0, 0.0, 1.0), -ground))
        return ground, move(model, q, v, 0.5 * H * v), lgjax.contact.contact_step(model, here, q, v, tau, H)

    return given, tau, friction, jax.jit(jax.vmap(one))(q, jnp.asarray(v), jnp.asarray(tau), friction, active)


@pytest.mark.parametrize(("name", "count", "states"), CASES)
def test_steps_obey_coulombs_law_with_pinocchios_matrices(name, count, states):
    model, theirs = robot(name)
    given, tau, friction, found = steps(name, count, states)
    ground, (q, v), step = jax.tree.map(np.asarray, found)
    compared, different, mass = 0, 0, spheres(name, count)
    solved = step.sweeps < lgjax.contact.TimeStepping().max_sweeps
    assert np.mean(solved) > 0.9
    for k in np.flatnonzero(solved):
        pose = (q.free_poses.rotation[k, 0], q.free_poses.translation[k, 0])
        free, response, G, u, gaps = oracle.problem(
            theirs, pose, q.joints[k], v[k], tau[k], np.asarray(model.damping), H, [mass[i] for i in given], ground[k]
        )
        np.testing.assert_allclose(step.gap[k], gaps, atol=1e-12)
        b = u.copy()
        b[::3] += 2 / H * np.maximum(gaps, 0)
        scale = 1 + np.abs(u).max()
        x = step.impulse[k].ravel()
        assert oracle.violation(G, b, friction[k], x) < 1e-7 * scale
        np.testing.assert_allclose(step.velocity[k].ravel(), u + G @ x, atol=1e-7 * scale)
        reference, converged = oracle.solve(G, b, friction[k])
        if converged and oracle.violation(G, b, friction[k], reference) < 1e-8 * scale:
            compared += 1
            difference = response @ (reference - x)
            different += np.abs(difference).max() > 1e-6 * (1 + np.abs(free).max())
    assert compared > 0.7 * states
    assert different <= 0.02 * states  # the law with much friction has several solutions in a few states
