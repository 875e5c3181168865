"""Rigid contact by events: closed forms of bounces, rolling, sliding and rest; batches; bad input."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact.event_driven import event_step
from lgjax.multibody.build import Body, Joint, build
from tests import optimized
from tests.contact.test_closed_forms import FLOOR, G, ball, free_body, on_floor, world_velocity

EVENTS = lgjax.contact.EventDriven()
DT, STEPS, RADIUS = 0.02, 60, 0.1


@cache
def balls():
    """(height, speed along x, restitution, friction, tolerance) -> a motion of a ball over 1.2 s, compiled once."""
    contacts = on_floor(ball(), lgjax.shapes.sphere(RADIUS), 0.5, 0.8)

    def run(height, speed, restitution, friction, rtol):
        q = lgjax.configuration(ball(), (jnp.eye(3), jnp.stack([0 * height, 0 * height, RADIUS + height])))
        here = contacts.replace(restitution=restitution, friction=friction)
        method = lgjax.contact.EventDriven(rtol, 1e-2 * rtol, max_parts=128)
        return lgjax.rollout(ball(), q, jnp.zeros(6).at[3].set(speed), None, DT, STEPS, method, contacts=here)

    return optimized.jit(jax.vmap(run))  # with less optimization its many evaluations take four times as long


CASES = {  # height, speed, restitution, friction, rtol
    "bounces": (1.0, 0.0, 0.8, 0.5, 1e-10),
    "is elastic": (1.0, 0.3, 1.0, 0.0, 1e-10),
    "comes to rest": (0.2, 0.0, 0.5, 0.5, 1e-10),
    "rolls": (0.0, 2.0, 0.5, 0.3, 1e-12),
    "slides for ever": (0.0, 2.0, 0.0, 0.0, 1e-10),
    "breaks": (jnp.nan, 0.0, 0.8, 0.5, 1e-10),
    "stands": (0.0, 0.0, 0.8, 0.5, 1e-10),
}


@cache
def motions():
    values = np.array(list(CASES.values())).T
    path = balls()(*values)
    return {name: jax.tree.map(lambda x, k=k: np.asarray(x[k]), path) for k, name in enumerate(CASES)}


def bounced(ts, height, e):
    """Heights of a ball that is dropped, and the time at which its bounces have ended."""
    fall = np.sqrt(2 * height / G)
    heights = []
    for t in ts:
        since, speed = t - fall, e * G * fall
        if since < 0:
            heights.append(height - G * t * t / 2)
            continue
        while speed > 1e-12 and since > 2 * speed / G:
            since, speed = since - 2 * speed / G, e * speed
        heights.append(speed * since - G * since**2 / 2 if speed > 1e-12 else 0.0)
    return np.array(heights), fall * (1 + e) / (1 - e) if e < 1 else np.inf


@pytest.mark.parametrize("name", ["bounces", "is elastic"])
def test_a_ball_bounces_as_in_closed_form(name):
    height, speed, e, _, _ = CASES[name]
    path = motions()[name]
    places = path.q.free_poses.translation[:, 0]
    expected, _ = bounced(path.ts, height, e)
    np.testing.assert_allclose(places[:, 2] - RADIUS, expected, atol=1e-10)
    np.testing.assert_allclose(places[:, 0], speed * path.ts, atol=1e-10)
    assert path.status == 0


def test_a_ball_comes_to_rest_after_the_sum_of_its_bounces():
    path = motions()["comes to rest"]
    heights, end = bounced(path.ts, 0.2, 0.5)
    places = path.q.free_poses.translation[:, 0, 2] - RADIUS
    np.testing.assert_allclose(places, heights, atol=1e-6)
    resting = path.contacts.state[:, 0] == 1
    assert np.all(resting == (path.ts >= end - 1e-9)) or np.sum(resting != (path.ts >= end)) <= 1
    assert np.all(np.abs(path.v[path.ts > end + DT]) < 1e-10)
    weight = path.contacts.force[path.ts > end + DT, 0, 0]
    np.testing.assert_allclose(weight, 1.5 * G, rtol=1e-9)
    assert path.status == 0


def test_a_sliding_ball_begins_to_roll_in_closed_form():
    _, v0, _, mu, _ = CASES["rolls"]
    path = motions()["rolls"]
    begin = 2 * v0 / (7 * mu * G)
    ts = np.minimum(path.ts, begin)
    expected = v0 * ts - mu * G * ts**2 / 2 + 5 / 7 * v0 * np.maximum(path.ts - begin, 0)
    np.testing.assert_allclose(path.q.free_poses.translation[:, 0, 0], expected, atol=1e-10)
    assert np.all((path.contacts.state[:, 0] == 2) == (path.ts < begin))
    np.testing.assert_allclose(world_velocity(path.q, path.v)[-1], [5 / 7 * v0, 0, 0], atol=1e-10)
    # mean friction over the step in which rolling begins: it ends at the closed form's time
    step = int(np.argmax(path.ts > begin))
    force = np.linalg.norm(path.contacts.force[step, 0, 1:])
    assert abs(force / (mu * 1.5 * G) * DT + path.ts[step - 1] - begin) < 1e-10
    assert path.status == 0


def test_energy_does_not_grow_and_nothing_penetrates():
    for name, path in motions().items():
        if name != "breaks":
            energy = jax.vmap(lambda q, v: lgjax.total_energy(ball(), q, v))(path.q, path.v)
            assert np.all(np.diff(energy) <= 1e-9 * (1 + np.abs(energy[0]))), name
            assert path.contacts.gap.min() > -1e-9, name


def test_a_system_that_fails_says_so_and_changes_no_other_bit_by_bit():
    motion = motions()
    assert motion["breaks"].status != 0
    values = np.array(list(CASES.values()))
    values[list(CASES).index("breaks")] = CASES["stands"]
    others = balls()(*values.T)
    for k, name in enumerate(CASES):
        if name != "breaks":
            same = lambda a, b, k=k: np.testing.assert_array_equal(a, b[k])
            jax.tree.map(same, motion[name], jax.tree.map(np.asarray, others))


def test_new_numbers_compile_nothing():
    values = np.array(list(CASES.values())).T
    balls()(*values)
    assert balls()._cache_size() == 1
    balls()(*(1.01 * values))
    assert balls()._cache_size() == 1


@pytest.mark.parametrize("shape", ["feet", "box"])
def test_a_block_on_a_slope_sticks_or_slides_as_coulomb_says(shape):
    angle, steps = 0.3, 20
    model = free_body(2.0, np.diag([0.02, 0.03, 0.04]))
    turn = np.asarray(lgjax.so3.exp(jnp.array([0.0, angle, 0.0])))
    normal, downhill = turn[:, 2], turn[:, 0]
    feet = [lgjax.shapes.sphere(0.01, (x, y, -0.04)) for x in (0.1, -0.1) for y in (0.1, -0.1)]
    shapes = {"feet": feet, "box": lgjax.shapes.box((0.1, 0.1, 0.05))}
    contacts = lgjax.Contacts(model, lgjax.shapes.Plane(normal), {"body": shapes[shape]})
    q = lgjax.configuration(model, (turn, 0.05 * normal))

    def run(friction):
        here = contacts.replace(friction=friction)
        return lgjax.rollout(model, q, jnp.zeros(6), None, 1e-2, steps, EVENTS, None, contacts=here)

    limit = np.tan(angle)
    friction = np.array([0.0, 0.1, 0.5, 1.0, *limit * np.array([0.9, 0.989, 0.99, 0.992, 0.995, 0.997, 0.999, 0.9999])])
    friction = np.concatenate([friction, limit * np.array([1.0001, 1.001, 1.005, 1.01])])
    path = optimized.jit(jax.vmap(run))(friction)
    expected = G * np.maximum(np.sin(angle) - friction * np.cos(angle), 0) * 1e-2 * steps
    along = world_velocity(path.q, path.v)[:, 0] @ downhill
    np.testing.assert_allclose(along, expected, atol=1e-12)
    places = path.q.free_poses.translation[:, 0, 0]
    np.testing.assert_allclose(places @ downhill, expected * 1e-2 * steps / 2, atol=1e-12)
    np.testing.assert_allclose(places @ normal, 0.05, atol=1e-9)
    assert np.all(np.asarray(path.contacts.state)[:, 0].max(1) == np.where(friction < np.tan(angle), 2, 1))
    assert not np.any(path.status)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_near_the_limit_of_friction_has_derivatives_and_single_precision(dtype):
    angle, steps, dt = 0.3, 5, 1e-2
    rail = lambda name, below, axis, mass: Body(
        name, below, Joint(f"along {name}", "prismatic", axis), mass=mass, inertia=mass * np.eye(3)
    )
    x, y, z = np.eye(3)
    bodies = [rail("x", None, x, 1e-9), rail("y", "x", y, 1e-9), rail("z", "y", z, 2.0)]
    model = build(bodies, gravity=(G * np.sin(angle), 0.0, -G * np.cos(angle))).astype(dtype)
    contacts = lgjax.Contacts(model, FLOOR, {"z": lgjax.shapes.sphere(0.05)})
    q = lgjax.configuration(model, joints=jnp.array([0.0, 0.0, 0.05], dtype))
    events = EVENTS if dtype == np.float64 else lgjax.contact.EventDriven(1e-5, 1e-6)

    def end(friction):
        here = contacts.replace(friction=friction)
        path = lgjax.rollout(model, q, jnp.zeros(3, dtype), None, dt, steps, events, None, contacts=here)
        return path.v[-1, 0], (path.v[-1], path.status)

    ratios = np.array([0.5, 0.9, 0.99, 0.995, 0.999, 1.001, 1.01])
    friction = jnp.asarray(ratios * np.tan(angle), dtype)
    forward, (v, status) = jax.jit(jax.vmap(jax.jacfwd(end, has_aux=True)))(friction)
    expected = G * np.sin(angle) * np.maximum(1 - ratios, 0) * dt * steps
    exact = dtype == np.float64
    assert not np.any(status)
    np.testing.assert_allclose(v, expected[:, None] * [1, 0, 0], atol=1e-9 if exact else 1e-6)
    slope = np.where(ratios < 1, -G * np.cos(angle) * dt * steps, 0)
    np.testing.assert_allclose(forward, slope, rtol=1e-6 if exact else 1e-3)
    if exact:
        reverse = jax.jit(jax.vmap(lambda mu: jax.grad(end, has_aux=True)(mu)[0]))(friction)
        np.testing.assert_allclose(reverse, slope, rtol=1e-6)


def rod():
    """A slender rod of 1 kg and 1 m in a vertical plane, that touches the ground with its ends."""
    points = {"rod": [lgjax.shapes.sphere(1e-3, (s, 0.0, 0.0)) for s in (-0.5, 0.5)]}
    bodies = [
        Body("rail", None, Joint("x", "prismatic", (1.0, 0.0, 0.0)), mass=1e-6, inertia=1e-9 * np.eye(3)),
        Body("lift", "rail", Joint("z", "prismatic", (0.0, 0.0, 1.0)), mass=1e-6, inertia=1e-9 * np.eye(3)),
        Body("rod", "lift", Joint("turn", "revolute", (0.0, 1.0, 0.0)), mass=1.0, inertia=np.eye(3) / 12),
    ]
    model = build(bodies)
    return model, lgjax.Contacts(model, FLOOR, points, friction=0.5, restitution=0.0)


@pytest.mark.slow
def test_painleves_rod_ends_in_an_answer_or_a_status():
    """A rod that slides on one end, also where rigid bodies with friction have no solution (mu > 4/3 near 53 deg)."""
    model, contacts = rod()

    def run(angle, speed, spin, friction, restitution):
        height = 0.5 * jnp.sin(angle) + 1e-3
        q = lgjax.configuration(model, joints=jnp.stack([0 * angle, height, angle]))
        v = jnp.stack([speed, -0.5 * spin * jnp.cos(angle) * 0 + 0.5 * spin * jnp.cos(angle), spin])
        here = contacts.replace(friction=friction, restitution=restitution)
        method = lgjax.contact.EventDriven(1e-8, 1e-10)
        path = lgjax.rollout(model, q, v, None, 1e-2, 20, method, contacts=here)
        energy = jax.vmap(lambda q, v: lgjax.total_energy(model, q, v))(path.q, path.v)
        return path.q, path.v, energy, path.contacts.gap, path.status

    draw = np.random.default_rng(0).uniform
    cases = draw([0.2, -4, -2, 0.0, 0], [1.3, 4, 2, 3.0, 1], (24, 5)).T
    q, v, energy, gap, status = optimized.jit(jax.vmap(run))(*cases)
    assert np.all(np.isfinite(q.joints))
    assert np.all(np.isfinite(v))
    good = np.asarray(status) == 0
    assert np.mean(good) > 0.5
    assert np.all(np.diff(np.asarray(energy)[good], axis=1) < 1e-6)
    assert np.asarray(gap)[good].min() > -1e-6


@pytest.mark.slow
def test_single_precision():
    model = ball().astype(jnp.float32)
    shape = {"body": lgjax.shapes.sphere(RADIUS)}
    contacts = lgjax.Contacts(model, FLOOR, shape, friction=0.5, restitution=0.8)
    start = lgjax.configuration(model, (np.eye(3), (0.0, 0.0, RADIUS + 1)))
    v = jnp.zeros(6, jnp.float32)
    path = lgjax.rollout(model, start, v, None, DT, STEPS, lgjax.contact.EventDriven(1e-5, 1e-6), contacts=contacts)
    assert path.v.dtype == jnp.float32
    expected, _ = bounced(np.asarray(path.ts, float), 1.0, 0.8)
    np.testing.assert_allclose(path.q.free_poses.translation[:, 0, 2] - RADIUS, expected, atol=2e-5)
    assert path.status == 0


def test_parts_are_bounded():
    """A ball bounces elastically between two plates more often than a step may have parts."""
    model = ball()
    plates = [FLOOR, lgjax.shapes.Plane((0.0, 0.0, -1.0), 0.21)]
    contacts = lgjax.Contacts(model, plates, {"body": lgjax.shapes.sphere(RADIUS)}, restitution=1.0)
    q = lgjax.configuration(model, (np.eye(3), (0.0, 0.0, 0.105)))
    v = jnp.zeros(6).at[5].set(100.0)
    none = lambda s, q, v: (jnp.zeros_like(v), None)
    found = jax.jit(lambda v: event_step(model, contacts, q, v, none, jnp.asarray(0.1), EVENTS))(v)
    assert found.status == lgjax.contact.ContactStatus.TOO_MANY_PARTS
    assert found.parts == EVENTS.max_parts
    assert np.all(np.isfinite(found.v))


ARM = lgjax.models.arm()
BAD = {
    "rtol must": lambda: lgjax.contact.EventDriven(rtol=-1.0),
    "max_parts must": lambda: lgjax.contact.EventDriven(max_parts=0),
    "needs a method with an embedded one": lambda: lgjax.contact.EventDriven(method=lgjax.MuntheKaas(lgjax.RK4)),
    "without smoothing, got 0.01": lambda: lgjax.rollout(
        ball(), lgjax.neutral(ball()), jnp.zeros(6), None, DT, 1, EVENTS,
        contacts=on_floor(ball(), lgjax.shapes.sphere(RADIUS), 0.5, smoothing=0.01),
    ),
    "without joint_limits and joint_friction": lambda: lgjax.rollout(
        ARM, lgjax.neutral(ARM), jnp.zeros(7), None, DT, 1, EVENTS, contacts=lgjax.Contacts(ARM, joint_limits=True)
    ),
    "integrate takes a method": lambda: lgjax.integrate(
        lgjax.right_translation(lgjax.Rn(1)), lambda t, y: y, jnp.zeros(1), 0.0, 1.0, 2, EVENTS
    ),
    "needs contacts": lambda: lgjax.rollout(ball(), lgjax.neutral(ball()), jnp.zeros(6), None, DT, 1, EVENTS),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises((ValueError, TypeError), match=message):
        BAD[message]()
