"""Free bodies in one model: stacks, rolling, cradles, balls in flight, dominoes, boxes that drop on each other."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import Pose, shapes
from lgjax.contact import ContactStatus
from lgjax.multibody.build import Body, Joint, build

STEP = lgjax.contact.TimeStepping()
G = 9.81
HALF = 0.1
FLOOR = shapes.Plane((0.0, 0.0, 1.0))


def free_bodies(count, inertia, mass=1.0, gravity=(0, 0, -G)):
    names = [f"b{k}" for k in range(count)]
    bodies = [Body(n, None, Joint(f"{n}_free", "free"), mass=mass, inertia=inertia) for n in names]
    return build(bodies, gravity=gravity), names


def upright(model, places):
    places = jnp.asarray(places)
    return lgjax.neutral(model)._replace(free_poses=Pose(jnp.broadcast_to(jnp.eye(3), (len(places), 3, 3)), places))


def cube(half=HALF, mass=1.0):
    return 2 / 3 * mass * half**2 * np.eye(3)


def stack(count, seconds, dt):
    """Largest displacement of boxes that rest on each other, status, and the loads of all of them."""
    model, names = free_bodies(count, cube())
    rng = np.random.default_rng(1)
    places = np.stack([*(0.02 * rng.uniform(-1, 1, (2, count))), HALF * (1 + 2 * np.arange(count))], 1)
    solid = dict.fromkeys(names, shapes.box(HALF))
    pairs = list(zip(names[1:], names[:-1], strict=True))
    contacts = lgjax.Contacts(model, FLOOR, solid, pairs, 0.5, nearest=4 * count)
    q, steps = upright(model, places), round(seconds / dt)
    run = lambda q, v: lgjax.rollout(model, q, v, None, dt, steps, STEP, steps // 10, contacts=contacts)
    path = jax.jit(run)(q, jnp.zeros(6 * count))
    moved = jnp.max(jnp.abs(path.q.free_poses.translation - places))
    force = np.asarray(path.contacts.force[-1, :, 0])
    load = [np.sum(force[: 8 * count].reshape(count, 8)[0]), *np.sum(force[8 * count :].reshape(-1, 4), 1)]
    return float(moved), int(path.status), np.array(load)


def test_ten_boxes_stay_on_each_other_for_ten_seconds():
    """They lie up to 2 cm aside. They move by less than 1e-9 m, and each carries the weight of those above."""
    moved, status, load = stack(10, 10.0, 5e-3)
    assert status == 0
    assert moved < 1e-9
    np.testing.assert_allclose(load, G * np.arange(10, 0, -1), rtol=1e-8)


def test_a_box_rolls_on_balls_as_in_closed_form():
    """Balls between the floor and a box that a force F pulls go half as fast as the box, which gets the acceleration
    F / (M + 7/20 n m): SimBenchmark's rolling box."""
    count, radius, mass, force = 3, 0.1, 1.5, 8.0
    names = [f"ball{k}" for k in range(count)]
    own = 0.4 * mass * radius**2 * np.eye(3)
    bodies = [Body(n, None, Joint(f"{n}_free", "free"), mass=mass, inertia=own) for n in names]
    bodies.append(Body("box", None, Joint("box_free", "free"), mass=4.0, inertia=np.eye(3)))
    model = build(bodies)
    solid = dict.fromkeys(names, shapes.sphere(radius)) | {"box": shapes.box((1.0, 1.0, 0.05))}
    contacts = lgjax.Contacts(model, FLOOR, solid, [(n, "box") for n in names], 0.6, nearest=2 * count)
    turns = 2 * np.pi / 3 * np.arange(3)
    places = [(0.5 * np.cos(t), 0.5 * np.sin(t), radius) for t in turns] + [(0.0, 0.0, 2 * radius + 0.05)]
    pull = lambda t, q, v: jnp.zeros(24).at[21].set(force)  # forward, along x of the box, which does not turn
    path = lgjax.rollout(model, upright(model, places), jnp.zeros(24), pull, 1e-3, 200, STEP, None, contacts=contacts)
    assert path.status == 0
    expected = 0.2 * force / (4.0 + 7 / 20 * count * mass)
    R, v = np.asarray(path.q.free_poses.rotation[-1]), np.asarray(path.v[-1]).reshape(4, 6)
    linear = np.einsum("kij,kj->ki", R, v[:, 3:])
    np.testing.assert_allclose(linear[3], [expected, 0, 0], atol=1e-7)
    np.testing.assert_allclose(linear[:3], np.tile([expected / 2, 0, 0], (3, 1)), atol=1e-7)


def test_elastic_balls_keep_energy_and_momentum():
    """Balls without friction that fly into each other, all pairs of which may meet: SimBenchmark's elastic balls."""
    count, radius = 6, 0.1
    model, names = free_bodies(count, 0.4 * radius**2 * np.eye(3), gravity=(0, 0, 0))
    pairs = list(itertools.combinations(names, 2))
    solid = dict.fromkeys(names, shapes.sphere(radius))
    contacts = lgjax.Contacts(model, (), solid, pairs, 0.0, 1.0, nearest=4)
    rng = np.random.default_rng(4)
    places = 0.3 * np.array(list(itertools.product((-1, 1), (-1, 0, 1), (0,))), float)
    places = places + 0.03 * rng.normal(size=(8, 6, 3))
    v = np.zeros((8, 6, 6))
    v[..., 3:] = -3 * places + 0.5 * rng.normal(size=(8, 6, 3))
    run = lambda p, v: lgjax.rollout(model, upright(model, p), v, None, 1e-3, 300, STEP, 1, contacts=contacts)
    path = jax.jit(jax.vmap(run))(places, v.reshape(8, 36))
    hits = np.sum(np.max(np.asarray(path.contacts.force[..., 0]), 1) > 0)
    assert hits > 20
    assert not np.any(np.asarray(path.status) & ~int(ContactStatus.AT_ONCE))
    linear = np.asarray(path.v).reshape(8, -1, 6, 6)[..., 3:]
    energy = 0.5 * np.sum(linear**2, (2, 3))
    np.testing.assert_allclose(energy, np.broadcast_to(energy[:, :1], energy.shape), rtol=1e-11)
    momentum = np.sum(linear, 2)
    np.testing.assert_allclose(momentum, np.broadcast_to(momentum[:, :1], momentum.shape), atol=1e-12)


def test_a_cradle_of_boxes_passes_the_velocity_on():
    """One after the other, through gaps longer than a step's travel, the ends of the boxes flat against each other: of
    masses m, M a hit leaves (m - M) / (m + M) and 2 m / (m + M) of the velocity. The second comes back to the first."""
    masses = 1.0, 1.0, 3.0
    rail = lambda n, m: Body(n, None, Joint(f"{n}_x", "prismatic", (1, 0, 0)), mass=m, inertia=np.eye(3))
    model = build([rail(n, m) for n, m in zip("abc", masses, strict=True)], gravity=(0, 0, 0))
    solid = dict.fromkeys("abc", shapes.box(HALF))
    contacts = lgjax.Contacts(model, (), solid, [("a", "b"), ("b", "c")], 0.0, 1.0)
    q = lgjax.configuration(model, joints=jnp.array([0.0, 0.203, 0.407]))
    path = lgjax.rollout(model, q, jnp.array([1.0, 0, 0]), None, 1e-3, 20, STEP, None, contacts=contacts)
    assert path.status == 0
    np.testing.assert_allclose(path.v[-1], [-0.5, 0.0, 0.5], atol=1e-12)


def dominoes(dt, push=0.6):
    """Sines of the tilts of three dominoes after 0.3 s; the first one is pushed."""
    half = np.array([0.01, 0.04, 0.1])
    model, names = free_bodies(3, np.diag((np.sum(half**2) - half**2) / 3))
    solid = dict.fromkeys(names, shapes.box(half))
    contacts = lgjax.Contacts(model, FLOOR, solid, [("b0", "b1"), ("b1", "b2")], 0.5, nearest=14)
    q = upright(model, [(0.08 * k, 0.0, half[2]) for k in range(3)])
    tip = np.zeros(18)
    tip[1], tip[3] = push / half[2], push  # about the lower edge
    path = lgjax.rollout(model, q, jnp.asarray(tip), None, dt, round(0.3 / dt), STEP, None, contacts=contacts)
    return np.asarray(path.q.free_poses.rotation[-1, :, 0, 2]), int(path.status)


def test_dominoes_fall_as_with_very_small_steps():
    """Steps of 2 ms and 0.5 ms give the tilts of steps of 0.1 ms to two parts in a thousand."""
    exact, status = dominoes(1e-4)
    assert status == 0
    assert np.all(exact > 0.5)  # all of them fall
    for dt in (2e-3, 5e-4):
        found, status = dominoes(dt)
        assert status == 0
        np.testing.assert_allclose(found, exact, atol=2e-3)


def test_boxes_that_drop_on_each_other_never_gain_energy():
    """From random heights, attitudes and velocities, with any restitution. A step adds energy only where bodies at rest
    have too little kinetic energy for their way out of each other."""
    model, _ = free_bodies(2, cube())
    solid = {"b0": shapes.box(HALF), "b1": shapes.box((0.15, 0.1, 0.05))}
    contacts = lgjax.Contacts(model, FLOOR, solid, [("b1", "b0")], 0.4, 0.0, nearest=12)
    rng = np.random.default_rng(7)
    turns = lgjax.so3.exp(jnp.asarray(rng.normal(size=(32, 2, 3))))
    places = np.stack([np.tile([0.0, 0.0, 0.3], (32, 1)), 0.05 * rng.normal(size=(32, 3)) + [0, 0, 0.7]], 1)
    v = 0.5 * rng.normal(size=(32, 12))

    def run(R, p, v, e):
        here = contacts.replace(restitution=e)
        q = lgjax.neutral(model)._replace(free_poses=Pose(R, p))
        path = lgjax.rollout(model, q, v, None, 2e-3, 500, STEP, 1, contacts=here)
        energy = jax.vmap(lambda q, v: lgjax.total_energy(model, q, v))(path.q, path.v)
        return energy, path.status, jnp.max(path.contacts.force[:, 16:, 0])

    e = jnp.asarray(np.linspace(0.03, 1, 32))
    energy, status, force = map(np.asarray, jax.jit(jax.vmap(run))(turns, jnp.asarray(places), v, e))
    assert np.sum(force > 1) > 16
    assert not np.any(status & ~int(ContactStatus.AT_ONCE))
    assert np.max(np.diff(energy, axis=1)) < 1e-6


def gains_of_turning_boxes(restitution, steps, count=3):
    """Energies, J, gained in a step by a box that turns on the edge of another, (steps, tilts), and the status."""
    model, names = free_bodies(2, cube())
    contacts = lgjax.Contacts(
        model, FLOOR, dict.fromkeys(names, shapes.box(HALF)), [("b1", "b0")], 0.4, restitution, nearest=8
    )
    tilt = np.repeat(np.linspace(0.1, 0.3, count)[None], len(steps), 0)
    R = np.asarray(lgjax.so3.exp(jnp.asarray(tilt[..., None] * np.array([0, 1.0, 0]))))
    arm = R @ [0.02, 0.0, HALF]
    q = lgjax.neutral(model)
    places = np.broadcast_to([0.0, 0.0, HALF], (*tilt.shape, 2, 3)).copy()
    places[..., 1, :] = arm + np.array([HALF, 0, 2 * HALF])
    turns = np.broadcast_to(np.eye(3), (*tilt.shape, 2, 3, 3)).copy()
    turns[..., 1, :, :] = R
    v = np.zeros((*tilt.shape, 12))
    v[..., 7], v[..., 9:] = 1.0, np.cross([0, 1.0, 0], [0.02, 0.0, HALF])
    q = q._replace(free_poses=Pose(jnp.asarray(turns), jnp.asarray(places)))
    q = q._replace(joints=jnp.zeros((*tilt.shape, 0)), ball_rotations=jnp.zeros((*tilt.shape, 0, 3, 3)))
    one = lambda q, v, dt: lgjax.contact.contact_step(model, contacts, q, v, jnp.zeros(12), dt)
    step = jax.jit(jax.vmap(jax.vmap(one, (0, 0, None))))
    energy = jax.vmap(jax.vmap(lambda q, v: lgjax.total_energy(model, q, v)))
    q, v, status = q, jnp.asarray(v), 0
    for _ in range(3):
        before, found = energy(q, v), step(q, v, jnp.asarray(steps))
        q, v, status = found.q, found.v, status | int(jnp.max(found.status))
    return np.asarray(energy(q, v) - before), status


def test_a_box_that_turns_on_an_edge_gains_no_energy():
    """Its face turns away from where the step has it, and the box is lifted for that, from its kinetic energy."""
    gained, status = gains_of_turning_boxes(0.0, [1e-3, 4e-3])
    assert status == 0
    assert np.max(gained) < 1e-14
    assert np.sum(np.abs(gained) < 1e-14) >= 2  # where it is lifted by more than the impulses have lost


def test_without_account_a_box_that_turns_on_an_edge_gains_energy_of_second_order_in_the_step():
    gained, status = gains_of_turning_boxes(None, [1e-3, 2e-3, 4e-3])
    assert status == 0
    assert np.max(gained[2]) > 1e-8
    order = np.log2(gained[1:, 0] / gained[:-1, 0])
    assert np.all((order > 1.8) & (order < 2.2))
