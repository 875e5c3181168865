"""Rigid contact in closed form: a block on a slope, a ball that rolls and bounces, a robot that stands, energy."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact.step import Forces, impact
from lgjax.multibody.build import Body, Joint, build
from tests import optimized

G = 9.81
STEP = lgjax.contact.TimeStepping()
FLOOR = lgjax.shapes.Plane((0.0, 0.0, 1.0))


def free_body(mass, inertia, **options):
    return build([Body("body", None, Joint("free", "free"), mass=mass, inertia=inertia)], **options)


@cache
def ball():
    return free_body(1.5, 0.4 * 1.5 * 0.01 * np.eye(3))


def on_floor(model, shape, friction, restitution=None, **options):
    return lgjax.Contacts(model, FLOOR, {"body": shape}, friction=friction, restitution=restitution, **options)


def world_velocity(q, v):
    return np.einsum("...ij,...j->...i", q.free_poses.rotation[..., 0, :, :], v[..., 3:])


def test_a_block_on_a_slope_sticks_or_slides_as_coulomb_says():
    angle, dt, steps = 0.3, 2e-3, 100
    model = free_body(2.0, np.diag([0.02, 0.03, 0.04]))
    turn = np.asarray(lgjax.so3.exp(jnp.array([0.0, angle, 0.0])))
    normal, downhill = turn[:, 2], turn[:, 0]
    contacts = lgjax.Contacts(model, lgjax.shapes.Plane(normal), {"body": lgjax.shapes.box((0.1, 0.1, 0.05))})
    q = lgjax.configuration(model, (turn, 0.05 * normal))

    def run(friction):
        here = contacts.replace(friction=friction)
        return lgjax.rollout(model, q, jnp.zeros(6), None, dt, steps, STEP, None, contacts=here)

    friction = np.array([0.0, 0.1, 0.3, 0.31, 0.5, 1.0])  # tan(0.3) = 0.3093
    path = jax.jit(jax.vmap(run))(friction)
    expected = G * np.maximum(np.sin(angle) - friction * np.cos(angle), 0) * dt * steps
    along = world_velocity(path.q, path.v)[:, 0] @ downhill
    np.testing.assert_allclose(along, expected, atol=1e-8)
    places = path.q.free_poses.translation[:, 0, 0]
    np.testing.assert_allclose(places @ downhill, expected * dt * steps / 2, atol=1e-8)
    np.testing.assert_allclose(places @ normal, 0.05, atol=1e-9)
    assert np.all(np.asarray(path.contacts.state)[:, 0].max(1) == np.where(friction < np.tan(angle), 2, 1))
    assert not np.any(path.status)


def test_a_sliding_ball_rolls_after_two_sevenths_of_its_velocity_over_mu_g():
    mu, v0, dt = 0.3, 2.0, 1e-3
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), mu)
    q = lgjax.configuration(ball(), (np.eye(3), (0.0, 0.0, 0.1)))
    path = lgjax.rollout(ball(), q, jnp.array([0, 0, 0, v0, 0, 0.0]), None, dt, 300, STEP, contacts=contacts)
    sliding = np.asarray(path.contacts.state[1:, 0] == 2)
    assert abs(np.sum(sliding) * dt - 2 * v0 / (7 * mu * G)) <= dt
    assert not np.any(np.diff(sliding.astype(int)) > 0)
    np.testing.assert_allclose(world_velocity(path.q, path.v)[-1], [5 / 7 * v0, 0, 0], atol=1e-10)
    assert np.abs(path.contacts.gap).max() < 1e-12


def test_a_ball_bounces_to_e_squared_of_its_height_with_order_one():
    e, height = 0.8, 1.0
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.5, e)
    q = lgjax.configuration(ball(), (np.eye(3), (0.0, 0.0, 0.1 + height)))
    for dt in (4e-3, 2.5e-4):
        path = lgjax.rollout(ball(), q, jnp.zeros(6), None, dt, round(2.4 / dt), STEP, contacts=contacts)
        z = np.asarray(path.q.free_poses.translation[:, 0, 2]) - 0.1
        top = np.flatnonzero((z[1:-1] >= z[:-2]) & (z[1:-1] > z[2:]) & (z[1:-1] > 0.1)) + 1
        np.testing.assert_allclose(z[top[:3]], height * e ** (2 * np.arange(1, 4)), rtol=8 * dt)
        fall = np.sqrt(2 * height / G)
        times = fall * (1 + 2 * np.cumsum(e ** np.arange(1, 4))) - fall * e ** np.arange(1, 4)
        assert np.abs(np.asarray(path.ts)[top[:3]] - times).max() < 8 * dt


def test_an_elastic_ball_keeps_its_energy_for_ever():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.5, 1.0)
    q = lgjax.configuration(ball(), (np.eye(3), (0.0, 0.0, 1.0)))
    path = lgjax.rollout(ball(), q, jnp.zeros(6), None, 1e-3, 20000, STEP, 10, contacts=contacts)
    energy = jax.vmap(lambda q, v: lgjax.total_energy(ball(), q, v))(path.q, path.v)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-9)


def test_a_tumbling_box_never_gains_energy():
    """It bounces on its corners, with every restitution and friction; without loss the energy stays."""
    model = free_body(1.0, np.diag([0.02, 0.03, 0.04]))
    contacts = on_floor(model, lgjax.shapes.box((0.2, 0.15, 0.1)), 0.0, 1.0)
    q = lgjax.configuration(model, (np.eye(3), (0.0, 0.0, 0.5)))
    random = np.random.default_rng(0)
    e, friction = np.array([1, 1, 1, 0.9, *random.uniform(0, 1, 4)]), np.array([0, 0, 0.5, 0, *random.uniform(0, 2, 4)])
    v = np.concatenate([3 * random.normal(size=(8, 3)), random.normal(size=(8, 3))], 1)

    def run(e, friction, v):
        here = contacts.replace(friction=friction, restitution=e)
        path = lgjax.rollout(model, q, v, None, 2e-3, 1000, STEP, 10, contacts=here)
        return jax.vmap(lambda q, v: lgjax.total_energy(model, q, v))(path.q, path.v), path.status

    energy, status = jax.jit(jax.vmap(run))(e, friction, v)
    assert not np.any(status)
    assert np.max(energy - energy[:, :1]) < 1e-9
    np.testing.assert_allclose(energy[:2], energy[:2, :1] + np.zeros(energy.shape[1]), rtol=1e-9)
    assert np.all(energy[4:, -1] < 0.9 * energy[4:, 0])


@pytest.mark.slow
def test_energy_never_grows_in_a_hundred_thousand_steps():
    """Balls and boxes, also where steps move them out of the ground against gravity, as they do for the boxes here."""
    sphere, box = lgjax.shapes.sphere(0.1), lgjax.shapes.box((0.1, 0.15, 0.2))
    random, steps, every = np.random.default_rng(0), 100_000, 10
    for model, shape, restitution, friction in (
        (ball(), sphere, (0.5, 1.0, 1.0), (0.3, 0.0, 1.5)),
        (free_body(1.0, np.diag([0.002, 0.003, 0.004])), box, (0.0, 0.9, 1.0), (0.3, 0.5, 0.0)),
    ):
        contacts = on_floor(model, shape, 0.0, 0.0)
        q = lgjax.configuration(model, (np.eye(3), (0.0, 0.0, 0.9)))

        @optimized.jit
        def run(e, friction, v, model=model, contacts=contacts, q=q):
            here = contacts.replace(friction=friction, restitution=e)
            path = lgjax.rollout(model, q, v, None, 1e-3, steps, STEP, every, contacts=here)
            return jax.vmap(lambda q, v: lgjax.total_energy(model, q, v))(path.q, path.v), path.contacts.gap.min()

        for e, mu in zip(restitution, friction, strict=True):
            energy, gap = map(np.asarray, run(e, mu, random.normal(size=6) * [5, 5, 5, 1, 1, 1]))
            rise = np.max(energy - np.minimum.accumulate(energy))
            # Of an elastic ball the energy is round-off of its height and speed, steps upon steps.
            assert rise < 1e-9 * energy[0], (e, mu, rise)
            assert gap > -1e-6


@cache
def standing():
    """The quadruped with springs that hold it, its contacts, controller and a start on its feet."""
    model = lgjax.models.quadruped()
    model = model.replace(damping=jnp.asarray([0.0] * 6 + [8.0] * 12))
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    contacts = lgjax.Contacts(model, FLOOR, feet, friction=0.8)
    stand = jnp.tile(jnp.asarray([0.0, 0.8, -1.6]), 4)
    q = lgjax.configuration(model, (np.eye(3), (0.0, 0.0, 0.42 * np.cos(0.8) + 0.02)), stand)
    controller = lambda t, q, v: jnp.concatenate([jnp.zeros(6), 300 * (stand - q.joints)])
    return model, contacts, controller, q


def test_a_standing_quadruped_carries_its_weight_and_stays():
    model, contacts, controller, q = standing()
    run = lambda q, v: lgjax.rollout(model, q, v, controller, 2e-3, 5000, STEP, 1000, contacts=contacts)
    path = run(q, jnp.zeros(18))  # settles, and then stands for 10 s
    end = lambda x: x[-1]
    path = run(jax.tree.map(end, path.q), path.v[-1])
    weight = G * float(jnp.sum(model.inertias.mass))
    np.testing.assert_allclose(jnp.sum(path.contacts.force[-1, :, 0]), weight, atol=1e-8)
    np.testing.assert_allclose(jnp.sum(path.contacts.force[-1, :, 1:], 0), 0, atol=1e-8)
    first, last = (jax.tree.map(lambda x, k=k: x[k], path.q) for k in (0, -1))
    assert jnp.abs(lgjax.difference(model, first, last)).max() < 1e-9
    assert path.contacts.gap.min() > -1e-9
    assert np.all(path.contacts.state[1:] == 1)
    assert path.status == 0


@pytest.mark.parametrize("count", [200, pytest.param(10000, marks=pytest.mark.slow)])
def test_no_impact_adds_energy(count):
    """Whatever the restitution and friction of up to nine simultaneous contacts of a moving quadruped."""
    model = lgjax.models.quadruped()
    links = [*(f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")), *(f"{leg}_calf" for leg in ("FL", "RR")), "trunk"]
    shape = {link: lgjax.shapes.sphere(0.05) for link in links}
    contacts = lgjax.Contacts(model, FLOOR, shape, restitution=1.0)
    still = model.replace(gravity=jnp.zeros(3))

    def one(key):
        keys = jax.random.split(key, 5)
        e = jax.random.uniform(keys[0], (len(contacts),))
        mu = 2 * jax.random.uniform(keys[1], (len(contacts),))
        e = jnp.where(jax.random.bernoulli(keys[4]), jnp.ones_like(e), e)
        q, v = lgjax.random_configuration(keys[2], model), 2 * jax.random.normal(keys[3], (18,))
        deep = lgjax.shapes.Plane((0.0, 0.0, 1.0), -jnp.median(lgjax.contact.contact_points(model, contacts, q).gap))
        here = contacts.replace(friction=mu, restitution=e, grounds=deep)
        tiny = jnp.asarray(1e-9)  # a step without flight
        guess = jnp.zeros((len(contacts), 3))
        found = impact(still, here, q, v, Forces(jnp.zeros(18)), tiny, guess, STEP.settings(float))
        before, after = (lgjax.kinetic_energy(model, q, v) for v in (v, found.v))
        return before, after, found.residual, jnp.max(found.impulse)

    before, after, residual, impulse = map(
        np.asarray, optimized.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), count))
    )
    assert np.sum(np.asarray(impulse) > 1e-3) > 0.5 * count
    assert np.all(after <= before * (1 + 1e-6) + 1e-9), np.max(after / before)
    assert np.all(np.isfinite(residual))


def two_bodies(shapes, heights, **options):
    """Free bodies of 1 kg, 5 m apart, at these heights on the floor."""
    joints = [Joint(f"{name}_free", "free") for name in shapes]
    bodies = [
        Body(name, None, joint, mass=1.0, inertia=0.01 * np.eye(3)) for name, joint in zip(shapes, joints, strict=True)
    ]
    model = build(bodies)
    places = jnp.asarray([[5.0 * k, 0.0, z] for k, z in enumerate(heights)])
    q = lgjax.neutral(model)._replace(free_poses=lgjax.Pose(jnp.broadcast_to(jnp.eye(3), (2, 3, 3)), places))
    return model, q, lgjax.Contacts(model, FLOOR, shapes, **options)


def test_a_ball_that_starts_in_the_ground_is_lifted_from_its_kinetic_energy():
    """From a depth d: v'^2 = v^2 - 2 g d, with any restitution that is given, 0 included."""
    depth, speed = 1e-3, 2.0
    q = lgjax.configuration(ball(), (np.eye(3), (0.0, 0.0, 0.1 - depth)))
    v, contacts = jnp.zeros(6).at[3].set(speed), on_floor(ball(), lgjax.shapes.sphere(0.1), 0.0, 0.0)
    step = lambda here: lgjax.contact.contact_step(ball(), here, q, v, jnp.zeros(6), 1e-5).v
    found = jax.jit(jax.vmap(lambda e: step(contacts.replace(restitution=e))))(jnp.array([[0.0], [0.5]]))
    left = (speed**2 - 2 * G * depth) ** 0.5
    np.testing.assert_allclose(found, [[0, 0, 0, left, 0, 0]] * 2, atol=1e-7)


def test_lifting_a_body_out_of_the_ground_slows_no_other_one():
    balls = {name: lgjax.shapes.sphere(0.1) for name in ("low", "flying")}
    model, q, contacts = two_bodies(balls, (0.05, 100.0), friction=0.0, restitution=0.5)
    path = lgjax.rollout(model, q, jnp.zeros(12).at[9].set(2.0), None, 1e-3, 5, STEP, contacts=contacts)
    np.testing.assert_allclose(path.v[-1, 9:], [2.0, 0.0, -5e-3 * G], atol=1e-12)


def test_a_ball_bounces_as_if_alone_beside_a_box_whose_restitution_is_limited():
    shapes = {"box": lgjax.shapes.box((0.1, 0.2, 0.05)), "ball": lgjax.shapes.sphere(0.1)}
    e, friction = jnp.array([1.0] * 8 + [0.8]), jnp.array([1.0] * 8 + [0.0])
    model, q, contacts = two_bodies(shapes, (0.05, 0.1), friction=friction, restitution=e)
    assert contacts.names[-1] == "ball"
    rng = np.random.default_rng(0)
    v = np.zeros((40, 12))
    v[:, :3], v[:, 3:6], v[:, 11] = 10 * rng.normal(size=(40, 3)), 2 * rng.normal(size=(40, 3)), -1.0
    v[:, 5] = -np.abs(v[:, 5]) - 0.2
    step = lambda v: lgjax.contact.contact_step(model, contacts, q, v, jnp.zeros(12), 1e-3).v[11]
    found = jax.jit(jax.vmap(step))(jnp.asarray(v))
    np.testing.assert_allclose(found, np.broadcast_to(found[:1], 40), atol=1e-9)
    assert abs(found[0] - 0.8) < 0.02  # and what gravity adds in a step
