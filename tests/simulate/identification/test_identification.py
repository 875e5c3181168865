"""Estimates are those of linear algebra where problems are linear."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import identification as idn
from lgjax.simulate.identification.identify import visibility

T = 12


@cache
def arm(dtype=jnp.float64) -> lgjax.Model:
    """Two links with friction, a drive's inertia, and a sensor on the second."""
    model = lgjax.models.chain(2)
    model = model.replace(damping=jnp.asarray([0.5, 0.3]), friction=jnp.asarray([0.2, 0.1]), armature=jnp.ones(2) * 0.1)
    return model.astype(dtype)


@cache
def motion(dtype=jnp.float64):
    rng = np.random.default_rng(0)
    q = jax.vmap(lambda x: lgjax.neutral(arm())._replace(joints=x))(jnp.asarray(rng.normal(size=(T, 2))))
    v, vdot = (jnp.asarray(x) for x in rng.normal(size=(2, T, 2)))
    return jax.tree.map(lambda x: x.astype(dtype), (q, v, vdot))


SIGMA = np.array([0.05, 0.02])
NOISE = np.random.default_rng(1).normal(size=(T, 2))


def torque_record(model=None, dtype=jnp.float64):
    """Commands with noise of the true arm."""
    (q, v, vdot), model = motion(), model or arm()
    drag = model.damping * v + model.friction * jnp.tanh(v / 0.01)
    tau = jax.vmap(lambda *s: lgjax.inverse_dynamics(model.replace(damping=jnp.zeros(2)), *s))(q, v, vdot) + drag
    command = tau + SIGMA * NOISE
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), idn.TorqueRecord(q, v, vdot, command, jnp.asarray(SIGMA)))


def linear_unknowns():
    return idn.inertias(arm(), physical=False) + idn.viscous(arm()) + idn.coulomb(arm()) + idn.armature(arm())


def weighted_rows():
    """Derivative of the residuals, by the regressor and NumPy."""
    q, v, vdot = motion()
    Y = np.asarray(jax.vmap(lambda *s: idn.regressor(arm(), *s))(q, v, vdot))
    joints = [np.eye(2) * np.asarray(x)[:, :, None] for x in (v, jnp.tanh(v / 0.01), vdot)]
    return -(np.concatenate([Y, *joints], -1) / SIGMA[:, None]).reshape(2 * T, -1)


@cache
def found(dtype=jnp.float64, prior=0.5):
    run = lambda model, record: idn.identify(model, record, linear_unknowns(), prior=prior)
    return jax.jit(run)(arm(dtype), torque_record(dtype=dtype))


# ---- the linear case
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-7), (jnp.float32, 2e-3)])
def test_a_linear_problem_has_the_estimate_and_covariance_of_linear_algebra(dtype, tolerance):
    J, r = weighted_rows(), NOISE.ravel()
    expected = np.linalg.inv(J.T @ J + np.eye(26) / 0.25)
    result = found(dtype)
    assert result.x.dtype == result.covariance.dtype == dtype
    assert int(result.status) == 0
    np.testing.assert_allclose(result.x, -expected @ J.T @ r, rtol=0, atol=tolerance)
    np.testing.assert_allclose(result.covariance, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(result.sigma, np.sqrt(np.diag(expected)), rtol=tolerance)


def test_the_covariance_is_that_of_laplaces_approximation():
    likelihood = idn.log_likelihood(arm(), torque_record(), linear_unknowns(), prior=0.5)
    hessian = jax.jit(jax.hessian(likelihood))(found().x)
    # normal equations: their condition, 1e5, times round-off
    np.testing.assert_allclose(found().covariance, -np.linalg.inv(hessian), rtol=0, atol=1e-11)
    slope = jax.jit(jax.grad(likelihood))(found().x)
    assert np.abs(slope).max() < 1e-4 * np.abs(np.asarray(jax.grad(likelihood)(0 * slope))).max()


def test_the_likelihood_is_a_density():
    """That of independent Gaussian errors and of a Gaussian prior, by its formula."""
    x = jnp.asarray(np.random.default_rng(2).normal(size=26))
    likelihood = idn.log_likelihood(arm(), torque_record(), linear_unknowns(), prior=0.5)(x)
    errors = (NOISE.ravel() + weighted_rows() @ np.asarray(x)).reshape(T, 2) * SIGMA
    density = lambda e, s: -((e / s) ** 2) / 2 - np.log(s) - np.log(2 * np.pi) / 2
    np.testing.assert_allclose(likelihood, density(errors, SIGMA).sum() + density(x, 0.5).sum(), rtol=1e-12)


def test_derivatives_of_the_estimate_are_those_of_linear_algebra():
    J, covariance = weighted_rows(), np.asarray(found().covariance)

    def estimate(command):
        record = torque_record()
        record = idn.TorqueRecord(record.q, record.v, record.vdot, command, record.sigma)
        return jnp.sum(idn.identify(arm(), record, linear_unknowns(), prior=0.5).x)

    slope = jax.jit(jax.grad(estimate))(torque_record().command)
    expected = -(covariance @ J.T).sum(0).reshape(T, 2) / SIGMA
    np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_what_is_unseen_or_seen_equally_has_derivatives():
    """Damping is unseen at rest; orthonormal columns are seen equally, where singular vectors have no derivatives."""
    model, q, rest = arm(), motion()[0], jnp.zeros((T, 2))

    def damping(command):
        record = idn.TorqueRecord(q, rest, rest, command, 1.0)
        return idn.identify(model, record, idn.gear(model) + idn.viscous(model)).x

    slope = jax.jit(jax.jacrev(damping))(jnp.ones((T, 2)))
    assert np.isfinite(slope).all()
    assert np.abs(slope[:2]).max() > 1e-3
    assert not np.any(slope[2:])
    J, dJ = jnp.eye(3, 2), jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    covariance = lambda J: visibility(J, 1e-8).covariance
    np.testing.assert_allclose(jax.jvp(covariance, (J,), (dJ,))[1], -(J.T @ dJ + dJ.T @ J), atol=1e-14)


def test_noise_of_commands_does_not_bias_gears():
    """Commands with noise of 0.7: gears within their deviations; their scale is not seen beside masses and friction."""
    (q, v, vdot), model = motion(), arm().replace(armature=jnp.zeros(2))
    needed = jax.vmap(lambda *s: lgjax.inverse_dynamics(model, *s) - lgjax.forces.friction(model)(0.0, *s[:2]))
    gears = jnp.asarray([2.0, 0.5])
    noise = 0.7 * np.random.default_rng(4).normal(size=(40, T, 2))
    record = lambda noise: idn.TorqueRecord(q, v, vdot, needed(q, v, vdot) / gears + noise, 0.7)

    def errors_of(noise):
        found = idn.identify(model, record(noise), idn.gear(model), gear=1.0)
        return (found.plant.gear - gears) / found.sigma

    errors = jax.jit(jax.vmap(errors_of))(jnp.asarray(noise))
    assert np.abs(errors).max() < 4
    assert np.abs(errors.mean(0)).max() < 3 / np.sqrt(40)
    alone = jax.jit(lambda: idn.identify(model, record(noise[0]), idn.gear(model) + idn.masses(model)
                                         + idn.viscous(model) + idn.coulomb(model), gear=gears))()  # fmt: skip
    assert int(alone.status) & int(idn.IdentifyStatus.UNSEEN)
    assert np.isinf(alone.sigma[0])


def test_numbers_of_records_are_checked():
    model, (q, v, vdot) = arm(), motion()
    record = lambda sigma, **more: idn.TorqueRecord(q, v, vdot, v, sigma, **more)
    for sigma in (0.0, -1.0, np.array([1.0, -0.1])):
        with pytest.raises(ValueError, match=r"TorqueRecord.sigma is not positive"):
            idn.identify(model, record(sigma), idn.gear(model))
    none = jax.tree.map(lambda x: x[:0], record(1.0).q), v[:0], vdot[:0], v[:0], 1.0
    with pytest.raises(ValueError, match=r"TorqueRecord.q has no samples"):
        idn.identify(model, idn.TorqueRecord(*none), idn.gear(model))


def test_what_cannot_be_seen_is_reported():
    """Of the ten parameters of a pendulum three are seen; unseen directions change no torque."""
    model = lgjax.models.chain(1)
    q = jax.vmap(lambda x: lgjax.neutral(model)._replace(joints=x[None]))(jnp.linspace(-1, 2, T))
    v, vdot = jnp.asarray(np.random.default_rng(0).normal(size=(2, T, 1)))
    Y = jax.vmap(lambda *s: idn.regressor(model, *s))(q, v, vdot)
    truth = idn.inertial_parameters(model)
    record = idn.TorqueRecord(q, v, vdot, 1.1 * (Y @ truth) + model.damping * v, 0.01)
    result = idn.identify(model, record, idn.inertias(model, physical=False) + idn.viscous(model))
    assert int(result.status) == idn.IdentifyStatus.UNSEEN
    assert bool(result.success)
    assert int(jnp.sum(result.seen)) == 4 == idn.base_parameters(Y).rank + 1
    hidden = np.asarray(result.directions)[~np.asarray(result.seen)]
    assert np.abs(np.asarray(Y).reshape(T, 10) @ hidden[:, :10].T).max() < 1e-10
    assert bool(result.identifiable[10])
    assert not bool(result.identifiable[0])
    assert np.isinf(result.sigma[0])
    variances = jnp.diagonal(result.propagate(lambda x: jnp.stack([x[0], x[10], x[0] + x[10], Y[3, 0] @ x[:10]]))[1])
    np.testing.assert_array_equal(np.isinf(variances), [True, False, True, False])
    np.testing.assert_allclose(variances[1], result.sigma[10] ** 2, rtol=1e-9)
    np.testing.assert_allclose(Y @ (truth + result.x[:10]), 1.1 * (Y @ truth), rtol=0, atol=1e-5)


# ---- motions, drives and frames
def test_a_motion_tells_masses_friction_and_gears():
    """Without noise, of a motion by `rollout`, from a guess that is far off."""
    model, gear = arm(), jnp.asarray([2.0, 3.0])
    start = lgjax.neutral(model), jnp.zeros(2)
    command = jnp.asarray([1.0, -0.5])
    drive = lgjax.forces.friction(model) + (lambda t, q, v: gear * command)
    path = lgjax.rollout(model, *start, drive, 0.02, 30)
    unknowns = idn.masses(model, [model.body_names[1]]) + idn.viscous(model) + idn.coulomb(model) + idn.gear(model)
    q = jax.tree.map(lambda x: x[1:], path.q)
    record = idn.MotionRecord(start, jnp.broadcast_to(command, (30, 2)), q, 0.02, 1e-3)
    guess = model.replace(inertias=model.inertias.scaled(jnp.asarray([1.0, 0.6])), damping=0 * model.damping)
    np.testing.assert_allclose(record.residual(idn.Plant(model, gear)), 0, atol=1e-9)
    result = jax.jit(lambda guess, record: idn.identify(guess, record, unknowns, gear=1.5))(guess, record)
    assert int(result.status) == 0
    np.testing.assert_allclose(result.x[0], -np.log(0.6), atol=1e-6)
    np.testing.assert_allclose(result.plant.gear, gear, rtol=1e-6)
    for leaf in ("damping", "friction"):
        np.testing.assert_allclose(getattr(result.plant.model, leaf), getattr(model, leaf), atol=1e-6)


def test_poses_tell_where_a_sensor_and_a_joint_are():
    """A frame or an elbow turned by two thirds of a radian, from poses without noise."""
    model = lgjax.models.arm()
    name, count = model.tree.frames[-1][0], 20  # on the hand
    q = jax.vmap(lambda k: lgjax.random_configuration(k, model))(jax.random.split(jax.random.key(0), count))
    twist = jnp.asarray([0.5, -0.4, 0.2, 0.1, 0.2, -0.1])
    unknowns = idn.frames(model, [name])
    true = unknowns.apply(idn.plant_of(model), twist).model
    poses = jax.vmap(lambda q: lgjax.frame_pose(true, q, name))(q)
    result = idn.identify(model, idn.PoseRecord(q, poses, 1e-3, name), unknowns)
    np.testing.assert_allclose(result.x, twist, atol=1e-8)
    assert int(result.status) == 0
    elbow = idn.placements(model, [model.body_names[2]])
    true = elbow.apply(idn.plant_of(model), twist).model
    poses = jax.vmap(lambda q: lgjax.frame_pose(true, q, name))(q)
    result = idn.identify(model, idn.PoseRecord(q, poses, 1e-3, name), elbow)
    np.testing.assert_allclose(result.x, twist, atol=1e-8)


# ---- what goes wrong
def test_numbers_that_are_not_finite_give_a_status():
    record = torque_record()
    broken = idn.TorqueRecord(record.q, record.v.at[0, 0].set(jnp.nan), record.vdot, record.command, record.sigma)
    result = jax.jit(lambda r: idn.identify(arm(), r, idn.viscous(arm())))(broken)
    assert int(result.status) & idn.IdentifyStatus.NOT_FINITE
    assert not bool(result.success)
    np.testing.assert_array_equal(result.x, 0)
    assert np.isfinite(result.covariance).all()
    few = idn.identify(arm(), record, linear_unknowns(), prior=0.5, iterations=2)
    assert int(few.status) & idn.IdentifyStatus.MAX_ITERATIONS
    assert np.isfinite(few.x).all()
    likelihood = idn.log_likelihood(arm(), broken, idn.viscous(arm()))
    assert likelihood(jnp.zeros(2)) == -jnp.inf


def test_bad_arguments_are_refused():
    with pytest.raises(TypeError, match="unknowns are a sum of"):
        idn.identify(arm(), torque_record(), ["damping"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a record has residual"):
        idn.identify(arm(), 3.0, idn.viscous(arm()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prior is not positive"):
        idn.identify(arm(), torque_record(), idn.viscous(arm()), prior=0.0)
    with pytest.raises(ValueError, match="no frame 'nose'"):
        idn.frames(arm(), ["nose"])
    with pytest.raises(ValueError, match="no joint 'knee'"):
        idn.viscous(arm(), ["knee"])
    likelihood = idn.log_likelihood(arm(), torque_record(), idn.viscous(arm()) + idn.masses(arm()))
    for x in (0.3, jnp.zeros(3), jnp.zeros((4, 1))):
        with pytest.raises(ValueError, match=r"x has shape \(.*\), expected \(4,\)"):
            likelihood(x)
    q, v, _ = motion()
    start = jax.tree.map(lambda x: x[0], (q, v))
    record = idn.MotionRecord(start, jnp.zeros((T, 2)), q, 0.02, 0.01)
    for wrong, error, match in (
        ({"substeps": 0}, ValueError, "MotionRecord.substeps must be a positive integer, got 0"),
        ({"dt": 0.0}, ValueError, "MotionRecord.dt is not positive"),
        ({"dt": -0.02}, ValueError, "MotionRecord.dt is not positive"),
        ({"dt": np.nan}, ValueError, "MotionRecord.dt is not finite"),
        ({"method": None}, TypeError, "MotionRecord takes a method, got None"),
    ):
        with pytest.raises(error, match=match):
            idn.log_likelihood(arm(), replace(record, **wrong), idn.viscous(arm()))
    for wrong in ([record, record], 3.0):
        with pytest.raises(TypeError, match=r"BatchedRecord\.record is .*, expected one record with a further leading"):
            idn.log_likelihood(arm(), idn.BatchedRecord(wrong), idn.viscous(arm()))


def test_batches_of_results_have_the_deviations_of_each():
    def one(seed):
        rougher = 1.0 + seed.astype(float)
        noise = rougher * SIGMA * jax.random.normal(jax.random.key(seed), (T, 2))
        record = torque_record()
        record = replace(record, command=record.command + noise, sigma=rougher * SIGMA)
        return idn.identify(arm(), record, idn.viscous(arm()))

    several, each = jax.vmap(one)(jnp.arange(3)), [one(seed) for seed in jnp.arange(3)]
    np.testing.assert_allclose(several.sigma, [found.sigma for found in each], rtol=1e-10)
    ratio = lambda x: jnp.stack([x[0] / x[1], x[0] * x[1], x[1]])
    for part, wanted in zip(several.propagate(ratio), zip(*(found.propagate(ratio) for found in each)), strict=True):
        np.testing.assert_allclose(part, wanted, rtol=1e-9, atol=1e-10)
    with pytest.raises(ValueError, match=r"function must return a vector \(m,\), got shape \(\)"):
        several.propagate(lambda x: x[0])


def test_numbers_of_batched_records_may_be_shared_and_batches_nested():
    record, unknowns = torque_record(), idn.viscous(arm())
    shared = replace(record, sigma=0.05)
    rows = jax.tree.map(lambda x: jnp.stack([x, x]) if jnp.ndim(x) else x, shared)
    x = jnp.asarray([0.1, -0.2])
    one = idn.log_likelihood(arm(), shared, unknowns)(x)
    np.testing.assert_allclose(idn.log_likelihood(arm(), idn.BatchedRecord(rows), unknowns)(x), 2 * one, rtol=1e-12)
    again = jax.tree.map(lambda x: jnp.stack([x, x, x]) if jnp.ndim(x) else x, idn.BatchedRecord(rows))
    np.testing.assert_allclose(idn.log_likelihood(arm(), idn.BatchedRecord(again), unknowns)(x), 6 * one, rtol=1e-12)


def test_records_side_by_side_are_as_likely_as_one_after_the_other():
    model, record = arm(), torque_record()
    halves = [
        jax.tree.map(lambda x, part=part: x[part] if x.ndim > 1 else x, record) for part in (slice(6), slice(6, 12))
    ]
    stacked = idn.BatchedRecord(jax.tree.map(lambda *x: jnp.stack(x), *halves))
    apart = jnp.concatenate([half.residual(idn.plant_of(model)) for half in halves])
    np.testing.assert_allclose(stacked.residual(idn.plant_of(model)), apart, atol=1e-12)
    x = jnp.linspace(-0.1, 0.1, 26)
    together = idn.log_likelihood(model, stacked, linear_unknowns())(x)
    np.testing.assert_allclose(together, idn.log_likelihood(model, halves, linear_unknowns())(x), rtol=1e-12)


def test_other_numbers_take_the_program_that_is_there():
    """Records, guess and prior differ; a cost that a user writes counts by what it does."""
    count = [0]
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: count.__setitem__(0, count[0] + event.endswith("backend_compile_duration"))
    )

    def estimate(k):
        model = arm().replace(damping=arm().damping * k)
        record = torque_record(arm().replace(damping=arm().damping + k))
        return idn.identify(model, record, idn.masses(model) + idn.viscous(model), prior=1.0 + k)

    first = estimate(1.0)
    torque_record(arm())
    before = count[0]
    second = estimate(2.0)
    assert count[0] == before
    assert first.success
    assert second.success
    assert abs(float(first.x[2] - second.x[2])) > 1e-3
