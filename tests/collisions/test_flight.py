"""What happens between two saved states: no plane is penetrated deeper than stated, however fast a body spins."""

import jax
import jax.numpy as jnp
import numpy as np

from lgjax import Pose, shapes, so3
from lgjax.collisions import RigidState, bounce, rigid_body
from lgjax.collisions.flight import DIP, PART_ANGLE
from lgjax.collisions.impact import BounceStatus
from lgjax.collisions.variational import total_energy, variational_step
from lgjax.shapes import Plane, mass_properties

AXES = np.array([0.003, 0.02, 0.2])  # of a rod, m


def start(seed, turn):
    """A rod near the floor, thrown at random, and the step in which it turns by so much."""
    keys = jax.random.split(jax.random.key(seed), 3)
    attitude = so3.exp(jax.random.normal(keys[0], (3,)))
    inertia = mass_properties(shapes.ellipsoid(AXES), mass=1.0).inertia
    spin = jax.random.normal(keys[1], (3,)) * jnp.array([1.0, 1.0, 3.0])
    linear = jax.random.normal(keys[2], (3,)).at[2].multiply(0.5)
    spin = 20.0 * spin / jnp.linalg.norm(spin)
    pose = Pose(attitude, jnp.array([0.0, 0.0, 0.25]))
    return RigidState(pose, inertia @ spin, linear), jnp.asarray(turn / 20.0)


def heights(pose):
    """The gap of the ellipsoid above the floor, by NumPy."""
    down = np.asarray(pose.rotation)[..., 2, :]
    return np.asarray(pose.translation)[..., 2] - np.linalg.norm(AXES * down, axis=-1)


def sampled(body, state, h, samples=100):
    """The least gap along a step without impacts, made in the parts that `bounce` makes of it, each sampled finely."""
    least, left = np.inf, h
    while left > 0:
        spin = np.linalg.norm(np.linalg.solve(body.inertia, state.angular))
        parts = max(1, np.ceil(spin * left / PART_ANGLE - 1e-3))
        times = jnp.linspace(0.0, left / parts, samples + 1)
        path = SAMPLES(body, state, times)
        least = min(least, heights(path.pose).min())
        state = jax.tree.map(lambda a: a[-1], path)
        left = left - left / parts if parts > 1 else 0.0
    return least


SAMPLES = jax.jit(jax.vmap(lambda body, state, t: variational_step(body, state, t)[0], (None, None, 0)))


def test_no_dip_deeper_than_stated_goes_unnoticed():
    """Elastic rods at 0.3 to 1.5 rad per step and more: each step without an impact, sampled a hundred times finer."""
    found = mass_properties(shapes.ellipsoid(AXES), mass=1.0)
    body = rigid_body(found.mass, found.inertia)
    rows = [start(k, turn) for k, turn in enumerate(np.tile([0.3, 0.6, 0.8, 1.0, 1.2, 1.5], 5))]
    states, sizes = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    floor, shape = Plane((0.0, 0.0, 1.0)), shapes.ellipsoid(AXES)
    run = jax.jit(jax.vmap(lambda s, h: bounce(body, shape, floor, s, h, 40)))
    solution = run(states, sizes)
    assert np.all(np.asarray(solution.success)), np.asarray(solution.status)
    assert np.all(np.asarray(solution.status) & int(BounceStatus.TOO_LONG) == 0)
    energies = np.asarray(jax.vmap(jax.vmap(lambda s: total_energy(body, s)))(solution.states))
    np.testing.assert_allclose(energies, energies[:, :1] * np.ones((1, 41)), rtol=1e-11)
    impacts = np.asarray(solution.impacts)
    assert impacts[:, -1].min() > 0
    assert impacts[:, -1].sum() > 100
    depth, steps = 0.0, 0
    for i in range(len(rows)):
        free = np.flatnonzero(np.diff(impacts[i]) == 0)
        saved = jax.tree.map(lambda a, i=i: np.asarray(a[i]), solution.states)
        # Far above the floor nothing can happen.
        for k in free[heights(saved.pose)[free] < 0.3]:
            state = jax.tree.map(lambda a, k=k: jnp.asarray(a[k]), saved)
            depth = max(depth, -sampled(body, state, float(sizes[i])))
            steps += 1
    assert steps > 300
    assert depth <= DIP * np.linalg.norm(AXES)


def test_steps_are_divided_where_the_spin_asks_for_it():
    """About a principal axis at 0.3 to 300 rad per step the attitude is that of parts of at most half a radian:
    sin(angle of a part) = spin times its length.  At 3000 the body stops before the step, and the status says so."""
    body, h = rigid_body(1.0, (0.31, 0.3, 0.02)), 0.01
    turns = np.array([0.3, 0.5, 0.6, 1.7, 30.0, 300.0, 3000.0])
    still = jnp.zeros(3)

    def one(turn):
        state = RigidState(Pose(jnp.eye(3), still), 0.02 * jnp.array([0.0, 0.0, 1.0]) * turn / h, still)
        return bounce(body, shapes.sphere(1.0), (), state, h, 3, save_every=None)

    solution = jax.jit(jax.vmap(one))(jnp.asarray(turns))
    np.testing.assert_array_equal(solution.success, turns < 3000)
    assert int(solution.status[-1]) == BounceStatus.NOT_SOLVED
    parts = np.ceil(turns[:-1] / PART_ANGLE - 1e-3)
    angles = 3 * parts * np.arcsin(turns[:-1] / parts)
    rotation = np.asarray(solution.states.pose.rotation[:-1, 0])
    np.testing.assert_allclose(rotation[:, 0, 0], np.cos(angles), atol=1e-10)
    np.testing.assert_allclose(rotation[:, 1, 0], np.sin(angles), atol=1e-10)
    np.testing.assert_array_equal(solution.states.pose.rotation[-1, 0], np.eye(3))
    # More parts than `record` has room for: values are right, derivatives are not.
    told = np.asarray(solution.status[:-1]) == int(BounceStatus.NOT_RECORDED)
    np.testing.assert_array_equal(told, 3 * (parts - 1) > 16)


def test_derivatives_through_divided_steps_are_those_of_differences():
    """A rod at 0.7 rad per step, through an impact."""
    found = mass_properties(shapes.ellipsoid(AXES), mass=1.0)
    body, shape, floor = rigid_body(found.mass, found.inertia), shapes.ellipsoid(AXES), Plane((0.0, 0.0, 1.0))
    state, h = start(3, 0.7)

    def end(change):
        moved = state._replace(angular=state.angular + change * jnp.array([2e-3, -1e-3, 1e-5]))
        run = bounce(body, shape, floor, moved, h, 8, save_every=None, record=32)
        return jnp.concatenate([run.states.linear[0], run.states.angular[0]]), (run.impacts[-1], run.status)

    both = jax.jit(lambda x: jax.jvp(end, (x,), (jnp.ones_like(x),)))
    (_, counts), (slope, _) = both(jnp.zeros(()))
    d = 1e-6
    high, low = (np.asarray(both(jnp.asarray(x))[0][0]) for x in (d, -d))
    assert int(counts[0]) > 0
    assert int(counts[1]) & int(BounceStatus.NOT_RECORDED) == 0
    np.testing.assert_allclose(slope, (high - low) / (2 * d), atol=1e-6 * np.abs(slope).max())
