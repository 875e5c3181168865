"""Errors of sensors have the statistics they are given, gradients are finite, records add up and say what they lack."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.robots import sensors
from tests.robots import walker

RUNS, STEPS, DT = 4000, 4, 0.01
NOISE, BIAS, DRIFT = 0.3, 0.2, 1.5
READING = {"real": [5.0, -3.0, 2.0], "direction": [0.0, 0.6, 0.8], "rotation": [0.5, 0.5, -0.5, 0.5]}


def levels(**changed):
    return {"noise": NOISE, "bias": BIAS, "drift": DRIFT} | changed


@cache
def noisy_readings(form, small=False):
    """Readings (RUNS, STEPS, 3) of a sensor with errors, less the true one: rotation vectors of what is turned."""
    model, share = walker.model(), 0.1 if small else 1.0
    made = {"real": sensors.gyro, "direction": lambda *a, **o: sensors.frame_axis(*a, "z", **o)}
    made["rotation"] = sensors.frame_orientation
    record = made[form](model, "imu", **{name: share * x for name, x in levels().items()})
    true = jnp.asarray(READING[form])

    def run(key):
        start, key = jax.random.split(key)

        def step(state, key):
            values, state = record.noisy(key, state, true, DT)
            return state, values

        return jax.lax.scan(step, record.start(start), jax.random.split(key, STEPS))[1]

    values = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), RUNS))
    if form == "rotation":
        return np.asarray(lgjax.s3.log(lgjax.s3.compose(lgjax.s3.inverse(true), values)))
    return np.asarray(values - true)


def expected_covariance(share=1.0):
    """Of the errors at the steps of one run: a bias, a walk that begins with the first step, and white noise."""
    k = np.arange(STEPS)
    return share**2 * (BIAS**2 + DRIFT**2 * DT * np.minimum.outer(k, k) + NOISE**2 * np.eye(STEPS))


def assert_normal(errors, covariance):
    """Independent samples (n, STEPS) have mean zero and this covariance, to five standard deviations of both."""
    n, deviation = len(errors), np.sqrt(np.diag(covariance))
    assert np.all(np.abs(errors.mean(0)) < 5 * deviation / np.sqrt(n))
    spread = np.sqrt((covariance**2 + np.outer(deviation, deviation) ** 2) / n)
    assert np.all(np.abs(errors.T @ errors / n - covariance) < 5 * spread)
    fourth = np.mean(errors**4, 0) / deviation**4
    assert np.all(np.abs(fourth - 3) < 5 * np.sqrt(96 / n))


@pytest.mark.parametrize("k", range(3))
def test_errors_are_a_bias_a_walk_and_white_noise(k):
    assert_normal(noisy_readings("real")[..., k], expected_covariance())


def test_errors_of_axes_are_independent():
    errors = noisy_readings("real")[:, -1]
    assert np.abs(np.corrcoef(errors.T) - np.eye(3)).max() < 5 / np.sqrt(RUNS)


@pytest.mark.parametrize("k", range(3))
def test_rotations_are_turned_by_rotation_vectors(k):
    """Those of a bias, a walk and white noise; small ones, as logarithms are those of less than half a turn."""
    assert_normal(noisy_readings("rotation", small=True)[..., k], expected_covariance(0.1))


def test_directions_are_turned_and_stay_unit_vectors():
    """The mean of exp(e) n is (1 + 2 exp(-s^2 / 2)(1 - s^2)) n / 3 for normal e with the deviation s of each entry."""
    true, errors = np.asarray(READING["direction"]), noisy_readings("direction")
    np.testing.assert_allclose(np.linalg.norm(errors + true, axis=-1), 1, atol=1e-12)
    for step, square in enumerate(np.diag(expected_covariance())):
        mean = (1 + 2 * np.exp(-square / 2) * (1 - square)) / 3
        assert np.abs((errors[:, step] + true).mean(0) - mean * true).max() < 5 * np.sqrt(square / RUNS)


def test_a_bias_turns_rotations_in_their_own_frame_and_directions_in_that_of_the_reference():
    model, b, q = walker.model(), jnp.asarray([0.3, -0.2, 0.5]), jnp.asarray(READING["rotation"])
    record = (
        sensors.frame_orientation(model, "imu") + sensors.frame_axis(model, "imu", "y") + sensors.gyro(model, "imu")
    )
    true = jnp.concatenate([q, lgjax.s3.to_rotation(q)[:, 1], jnp.zeros(3)])
    values, state = record.noisy(jax.random.key(0), sensors.SensorState(jnp.concatenate([b, b, b])), true, DT)
    turned = lgjax.s3.to_rotation(values[:4])
    np.testing.assert_allclose(turned, lgjax.s3.to_rotation(q) @ lgjax.so3.exp(b), atol=1e-14)
    np.testing.assert_allclose(values[4:7], lgjax.so3.exp(b) @ lgjax.s3.to_rotation(q)[:, 1], atol=1e-14)
    np.testing.assert_array_equal(values[7:], b)
    np.testing.assert_array_equal(state.bias, jnp.concatenate([b, b, b]))


def test_touch_has_noise_where_it_touches_and_stays_positive():
    model = walker.model()
    record = sensors.touch(model, "sole", name="a", **levels()) + sensors.touch(model, "sole", name="b", **levels())
    read = jax.vmap(lambda key: record.noisy(key, record.start(key), jnp.asarray([0.0, 0.1]), DT)[0])
    values = np.asarray(jax.jit(read)(jax.random.split(jax.random.key(1), 500)))
    assert np.all(values[:, 0] == 0)
    assert np.min(values[:, 1]) == 0
    assert np.std(values[:, 1]) > 0.1


def test_readings_with_errors_are_clipped():
    model = walker.model()
    record = sensors.gyro(model, "imu", noise=10.0, cutoff=2.0) + sensors.frame_axis(model, "imu", "x", cutoff=0.1)
    values, _ = record.noisy(jax.random.key(0), record.start(jax.random.key(1)), jnp.asarray([1.0, 1, 1, 0, 0, 1]), DT)
    assert np.abs(values[:3]).max() == 2
    assert values[5] == 1


def test_the_scale_of_noise_is_a_leaf_with_a_derivative():
    record, key = sensors.gyro(walker.model(), "imu", noise=0.3, drift=0.2), jax.random.key(0)

    def error(noise):
        changed = record.replace(noise=noise)
        return jnp.sum(changed.noisy(key, changed.start(key), jnp.zeros(3), DT)[0] ** 2)

    slope = jax.grad(error)(0.3)
    np.testing.assert_allclose(slope, 2 * error(0.3) / 0.3, rtol=1e-12)


# ---- derivatives
def records(model):
    """One sensor of every kind that has smooth readings."""
    rows = [make().named(name) for name, (_, make) in walker.table(model).items()]
    some = list({row.kinds[0]: row for row in reversed(rows) if "limit" not in row.kinds[0].name}.values())
    return sum(some[1:], start=some[0])


def at_rest(turned):
    """At rest; `turned` has attitudes that are half turns, where a quaternion has w = 0."""
    model = walker.model()
    half = np.diag([1.0, -1.0, -1.0]) if turned else np.eye(3)
    q = lgjax.configuration(model, lgjax.Pose(half, np.zeros(3)), ball_rotations=half[None])
    zero, touched = jnp.zeros(model.nv), np.zeros((2, 3))
    contact = sensors.ContactForces(*map(jnp.asarray, (touched, touched, touched)), (("toe", None), ("head", "toe")))
    return sensors.Instant(0.0, q, zero, zero, jnp.zeros((model.nbodies, 6)), contact, jnp.zeros(4), zero, zero)


@cache
def derivatives():
    model = walker.model()
    record = records(model) + sensors.touch(model, "imu", zone=("box", [0.1, 0.1, 0.1]))

    def read(instant, move):
        dq, dv, dvdot, push, shift = move
        contact = instant.contact
        contact = sensors.ContactForces(contact.point, contact.force + shift, contact.normal, contact.links)
        state = lgjax.retract(model, instant.q, dq), instant.v + dv, instant.vdot + dvdot, instant.wrenches + push
        return record(instant._replace(q=state[0], v=state[1], vdot=state[2], wrenches=state[3], contact=contact))

    def both(instant):
        zero = instant.v
        move = zero, zero, zero, instant.wrenches, instant.contact.force
        forward = jax.jvp(lambda x: read(instant, x), (move,), (jax.tree.map(jnp.ones_like, move),))
        reverse = jax.vjp(lambda x: read(instant, x), move)[1](jnp.ones(record.size))
        return forward, reverse

    instants = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), at_rest(False), at_rest(True))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(both))(instants))


def test_derivatives_are_finite_at_rest_and_at_half_turns():
    (values, forward), (reverse,) = derivatives()
    for leaf in (values, forward, *jax.tree.leaves(reverse)):
        assert np.all(np.isfinite(leaf))
    assert np.all(np.any(forward != 0, -1))


def test_reverse_derivatives_are_the_transpose_of_forward_ones():
    (_, forward), (reverse,) = derivatives()
    total = sum(leaf.reshape(2, -1).sum(1) for leaf in jax.tree.leaves(reverse))
    np.testing.assert_allclose(forward.sum(1), total, rtol=1e-9)


# ---- records
def small():
    model = walker.model()
    return (
        sensors.gyro(model, "imu", noise=0.1)
        + sensors.joint_position(model, ["toe", "knee"], noise=[0.2, 0.3], cutoff=5.0)
        + sensors.gyro(model, "sole", bias=0.4)
    )


def test_sensors_keep_their_order_whatever_is_read_together():
    record, (instants, _) = small(), walker.instants_and_readings()
    assert record.names == ("imu_gyro", "toe_position", "knee_position", "sole_gyro")
    assert (len(record), record.size, len(record.groups)) == (4, 8, 2)
    assert record.slices["sole_gyro"] == slice(5, 8)
    np.testing.assert_array_equal(record.noise, [0.1, 0.2, 0.3, 0])
    instant = jax.tree.map(lambda x: x[0], instants)
    apart = record.split(record(instant))
    alone = sensors.gyro(record.model, "sole")(instant)
    np.testing.assert_allclose(apart["sole_gyro"], alone, atol=1e-14)
    assert (apart["knee_position"].shape, apart["imu_gyro"].shape) == ((), (3,))
    assert apart["knee_position"] == instant.q.joints[list(record.model.joint_names).index("knee") - 1]
    assert record.split(jnp.zeros((2, 7, 8)))["imu_gyro"].shape == (2, 7, 3)


def test_a_state_is_read_like_an_instant_also_by_drivers():
    """`ensemble` passes (t, q, v), an `Environment` passes (model, q, v), which may be another model."""
    model = walker.model()
    record = sensors.frame_position(model, "sole") + sensors.gyro(model, "sole") + sensors.kinetic_energy(model)
    instant = jax.tree.map(lambda x: x[0], walker.instants_and_readings()[0])
    of_instant = record(instant)
    np.testing.assert_array_equal(record(0.5, instant.q, instant.v), of_instant)
    np.testing.assert_array_equal(record(model, instant.q, instant.v), of_instant)
    heavier = model.replace(inertias=model.inertias.scaled(2.0), armature=2 * model.armature)
    np.testing.assert_allclose(record(heavier, instant.q, instant.v)[-1], 2 * of_instant[-1], rtol=1e-12)
    np.testing.assert_array_equal(record.for_model(heavier)(0.5, instant.q, instant.v)[:-1], of_instant[:-1])


def test_an_instant_has_the_accelerations_of_the_dynamics():
    """Under joint forces, wrenches and contacts; the last as a wrench at the point of contact."""
    model = walker.model()
    given, rng = jax.tree.map(lambda x: x[0], walker.instants_and_readings()[0]), np.random.default_rng(0)
    tau, point, force = (jnp.asarray(rng.normal(size=n)) for n in (model.nv, 3, 3))
    contact = sensors.ContactForces(point[None], force[None], jnp.ones((1, 3)), (("heel", "head"),))
    found = sensors.instant(model, 0.0, given.q, given.v, tau, given.wrenches, contact=contact)
    columns = [
        np.asarray(lgjax.jacobian(model, given.q, body, "spatial"))[3:]
        - np.asarray(lgjax.so3.hat(point)) @ np.asarray(lgjax.jacobian(model, given.q, body, "spatial"))[:3]
        for body in ("shank", "head")
    ]
    pushed = tau + (columns[0] - columns[1]).T @ force
    expected = lgjax.forward_dynamics(model, given.q, given.v, pushed, given.wrenches)
    np.testing.assert_allclose(found.vdot, expected, rtol=1e-9, atol=1e-9)


ERRORS = {
    "the sensor 'imu_accelerometer' (accelerometer) needs accelerations": lambda m, q, v: sensors.accelerometer(
        m, "imu"
    )(0.0, q, v),
    "needs contact forces": lambda m, q, v: sensors.touch(m, "sole")(0.0, q, v),
    "needs the time t": lambda m, q, v: sensors.clock(m)(m, q, v),
    "needs actuator_force": lambda m, q, v: sensors.actuator_force(m, ["a"])(0.0, q, v),
    "expected one number of float64 for each actuator, at least 2": lambda m, q, v: sensors.actuator_force(
        m, ["a", "b"]
    )(sensors.Instant(0.0, q, actuator_force=jnp.zeros(1))),
    "two sensors are called 'imu_gyro'": lambda m, q, v: sensors.gyro(m, "imu") + sensors.gyro(m, "imu"),
    "no frame 'nowhere'": lambda m, q, v: sensors.gyro(m, "nowhere"),
    "is fixed to the world": lambda m, q, v: sensors.force(m, "mark"),
    "are on different bodies": lambda m, q, v: sensors.force(m, "imu", walker.part(m, "foot", ("toe",))),
    "is not on the body of 'foot'": lambda m, q, v: sensors.force(m, "sole", walker.part(m, "foot", ("thigh",))),
    "no spherical joint 'knee'": lambda m, q, v: sensors.ball_orientation(m, "knee"),
    "noise of the sensor of 'imu_gyro' is -1": lambda m, q, v: sensors.gyro(m, "imu", noise=-1.0),
    "cutoff of the sensor of 'imu_gyro' is 0": lambda m, q, v: sensors.gyro(m, "imu", cutoff=0.0),
    "unknown option 'niose'": lambda m, q, v: sensors.gyro(m, "imu", niose=0.1),
    "kind of the zone must be one of": lambda m, q, v: sensors.touch(m, "imu", zone=("mesh", 1.0)),
    "values has shape (2,), expected (3,)": lambda m, q, v: sensors.gyro(m, "imu").noisy(
        jax.random.key(0), sensors.SensorState(jnp.zeros(3)), jnp.zeros(2), 0.1
    ),
    "not of a model with the tree of": lambda m, q, v: sensors.gyro(m, "imu").for_model(lgjax.models.chain(2)),
    "got 2 arguments": lambda m, q, v: sensors.gyro(m, "imu")(q, v),
}


@pytest.mark.parametrize("message", ERRORS)
def test_bad_input_is_refused_by_name(message):
    model = walker.model()
    q, v = lgjax.neutral(model), jnp.zeros(model.nv)
    with pytest.raises((ValueError, TypeError)) as error:
        ERRORS[message](model, q, v)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
