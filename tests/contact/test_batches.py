"""Contacts in batches, in single precision, where they are redundant or hopeless, and as compliant forces."""

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.multibody.build import Body, Joint, build
from tests.contact.test_closed_forms import FLOOR, STEP, G, ball, free_body, on_floor


def test_a_trajectory_that_fails_changes_no_other_bit_by_bit():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.3, 0.5)

    def run(height, v, friction):
        q = lgjax.configuration(ball(), (jnp.eye(3), jnp.stack([0 * height, 0 * height, height])))
        here = contacts.replace(friction=friction)
        path = lgjax.rollout(ball(), q, v, None, 2e-3, 50, STEP, None, contacts=here)
        return path.q, path.v, path.status

    many = jax.jit(jax.vmap(run))
    height, v = jnp.linspace(0.1, 0.2, 16), jax.random.normal(jax.random.key(0), (16, 6))
    good = many(height, v, jnp.linspace(0, 1, 16))
    bad = many(height.at[3].set(jnp.nan), v.at[7].set(jnp.inf), jnp.linspace(0, 1, 16))
    status = np.asarray(bad[2])
    assert np.all((status != 0) == np.isin(np.arange(16), [3, 7]))
    assert np.all(status[[3, 7]] & 1)
    rest = np.setdiff1d(np.arange(16), [3, 7])
    for a, b in zip(jax.tree.leaves(good), jax.tree.leaves(bad), strict=True):
        np.testing.assert_array_equal(np.asarray(a)[rest], np.asarray(b)[rest])


def test_friction_restitution_ground_and_step_compile_nothing_again():
    compiled = []

    @jax.jit
    def run(contacts, dt):
        compiled.append(1)
        q = lgjax.configuration(ball(), (jnp.eye(3), jnp.asarray([0.0, 0.0, 0.1])))
        return lgjax.contact.contact_step(ball(), contacts, q, jnp.ones(6), jnp.zeros(6), dt).v

    ground = lgjax.contact.HeightField(np.zeros((3, 3)), 1.0)
    contacts = lgjax.Contacts(ball(), ground, {"body": lgjax.shapes.sphere(0.1)}, friction=0.1, restitution=0.1)
    first = run(contacts, 1e-3)
    other = lgjax.contact.HeightField(np.full((3, 3), 0.01), 2.0)
    second = run(contacts.replace(friction=0.7, restitution=0.9, grounds=other), 2e-3)
    assert len(compiled) == 1
    assert not np.allclose(first, second)


def test_five_feet_share_the_load_in_single_precision():
    """Redundant support: the normal forces push, carry an eccentric weight, and sum to it."""
    model = build(
        [Body("table", None, Joint("free", "free"), mass=3.0, com=np.array([0.1, 0.05, 0.3]), inertia=0.1 * np.eye(3))]
    ).astype(jnp.float32)
    feet = np.array([[0.5, 0, 0], [-0.5, 0, 0], [0, 0.5, 0], [0, -0.5, 0], [0, 0, 0]])
    shape = {"table": [lgjax.shapes.sphere(0.01, foot + np.array([0, 0, 0.01])) for foot in feet]}
    contacts = lgjax.Contacts(model, FLOOR, shape, friction=0.5)
    start = lgjax.neutral(model)
    path = lgjax.rollout(model, start, jnp.zeros(6, jnp.float32), None, 2e-3, 50, STEP, None, contacts=contacts)
    force = np.asarray(path.contacts.force[-1, :, 0], float)
    assert path.status == 0
    np.testing.assert_allclose(np.sum(force), 3 * G, rtol=1e-4)
    np.testing.assert_allclose(force @ feet[:, :2] / (3 * G), [0.1, 0.05], atol=1e-4)
    assert np.all(force >= 0)
    assert np.abs(np.asarray(path.v)).max() < 1e-4


def test_the_painleve_rod_gives_a_status_or_an_answer_and_never_nan():
    """A rod that slides with its tip ahead jams for high friction: no state is NaN, whatever the angle and friction."""
    model = free_body(1.0, np.diag([1 / 12, 1 / 12, 1e-4]) * 4)
    contacts = on_floor(model, lgjax.shapes.sphere(1e-3, (0.0, 0.0, -1.0)), 1.0)

    def run(angle, friction):
        turn = lgjax.so3.exp(jnp.stack([jnp.zeros_like(angle), angle, jnp.zeros_like(angle)]))
        place = turn @ jnp.array([0.0, 0.0, 1.0]) * 1.0 + jnp.array([0.0, 0.0, 1e-3])
        q = lgjax.configuration(model, (turn, place))
        v = jnp.concatenate([jnp.zeros(3), turn.T @ jnp.array([-3.0, 0.0, 0.0])])
        here = contacts.replace(friction=friction)
        path = lgjax.rollout(model, q, v, None, 1e-3, 50, STEP, None, contacts=here)
        return path.v[-1], path.status, path.contacts.gap[-1]

    angle, friction = (x.ravel() for x in np.meshgrid(np.linspace(-1.2, 1.2, 8), [0.2, 1.0, 2.0, 5.0]))
    v, _, gap = jax.jit(jax.vmap(run))(angle, friction)
    assert np.all(np.isfinite(v))
    assert np.min(np.asarray(gap)) > -1e-2


def test_a_compliant_ball_oscillates_as_a_spring_and_keeps_its_energy():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.3)
    force = lgjax.forces.contact(ball(), contacts, 1e4, exponent=1.5)
    q = lgjax.configuration(ball(), (np.eye(3), (0.0, 0.0, 0.15)))
    path = lgjax.rollout(ball(), q, jnp.zeros(6), force, 2e-4, 2000, contacts=None)
    energy = jax.vmap(lambda q, v: lgjax.total_energy(ball(), q, v) + force.energy(q))(path.q, path.v)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-6)
    deepest = 0.1 - float(jnp.min(path.q.free_poses.translation[:, 0, 2]))
    # all of the height is in the spring: k d^2.5 / 2.5 = m g (0.05 + d)
    np.testing.assert_allclose(1e4 * deepest**2.5 / 2.5, 1.5 * G * (0.05 + deepest), rtol=1e-3)


def test_compliant_friction_slows_a_ball_by_mu_g():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.2)
    force = lgjax.forces.contact(ball(), contacts, 1e5, damping=1.0, slip_speed=1e-3)
    depth = 1.5 * G / 1e5
    q = lgjax.configuration(ball(), (np.eye(3), (0.0, 0.0, 0.1 - depth)))
    path = lgjax.rollout(ball(), q, jnp.array([0, 0, 0, 2.0, 0, 0]), force, 5e-4, 100, save_every=None)
    speed = np.linalg.norm(np.asarray(path.v)[-1, 3:])
    np.testing.assert_allclose(speed, 2.0 - 0.2 * G * 0.05, rtol=1e-3)
