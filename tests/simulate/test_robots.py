"""Robots in drivers: actuators with activations and delays, their identification, ensembles, systems, environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import forces, identification
from lgjax.contact import TimeStepping
from lgjax.dynamics.loops import couple_joints
from lgjax.robots import actuators
from lgjax.robots.robot import Robot


def pendulum(kp=40.0, kv=1.5, delay=0.0, dtype=jnp.float64, **more):
    """One hinged rod without gravity, moved by a position servo; its inertia about the hinge is 0.1 kg m^2."""
    joint = lgjax.Joint("hinge", "revolute", (0, 1, 0))
    rod = lgjax.Body("rod", None, joint, mass=1.0, com=np.array([0.3, 0, 0]), inertia=np.eye(3) * 0.01)
    model = lgjax.build([rod], "pendulum", gravity=(0, 0, 0), dtype=dtype)
    servo = actuators.position(model, ["hinge"], kp, kv, delay=delay, **more)
    return Robot(model, actuators=servo)


def start(robot):
    return lgjax.neutral(robot.model), jnp.zeros(robot.model.nv, robot.model.dtype)


def damped(t, kp, kv, inertia):
    """Step response of a servo to a unit control, in closed form."""
    a, w = kv / inertia / 2, np.sqrt(kp / inertia - (kv / inertia / 2) ** 2)
    return 1 - np.exp(-a * t) * (np.cos(w * t) + a / w * np.sin(w * t))


@pytest.mark.parametrize(
    ("method", "delay", "error"),
    [
        (lgjax.MuntheKaas(lgjax.RK4), 0.012, 1e-8),
        (lgjax.MuntheKaas(lgjax.RK4), 0.0125, 6e-5),  # within a step the mean of the controls acts
        (TimeStepping(), 0.0125, 4e-3),  # of order 1 in the damping
    ],
)
def test_a_servo_behind_a_delay_answers_later(method, delay, error):
    """The response to a step of the control is that of the linear servo, shifted."""
    robot = pendulum(delay=delay)
    path = lgjax.rollout(robot, *start(robot), jnp.ones(1), 1e-3, 400, method)
    expected = damped(np.maximum(np.asarray(path.ts) - delay, 0), 40.0, 1.5, 0.1)
    np.testing.assert_allclose(path.q.joints[:, 0], expected, atol=error)
    assert path.status == 0
    np.testing.assert_array_equal(path.actuators.control[1:], 1.0)


def test_a_filter_between_control_and_motor_is_its_closed_form():
    """The integral of a first-order lag's step response, twice: a free mass driven through a filter."""
    robot = pendulum()
    tau, h = 0.05, 2e-3
    drive = actuators.general(robot.model, ["hinge"], gain=(1.0, 0, 0), dynamics="filterexact", time_constant=tau)
    robot = robot.replace(actuators=drive)
    path = lgjax.rollout(robot, *start(robot), jnp.ones(1), h, 200)
    t = np.asarray(path.ts)
    np.testing.assert_allclose(path.actuators.activation[:, 0], 1 - np.exp(-t / tau), atol=1e-12)
    speed = (t - tau * (1 - np.exp(-t / tau))) / 0.1
    np.testing.assert_allclose(path.v[:, 0], speed, atol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_a_stiff_damped_servo_runs_where_an_explicit_method_leaves_the_finite_numbers(dtype):
    robot = pendulum(1e6, 1e4, dtype=dtype)
    target = jnp.array([0.7], dtype)
    explicit = lgjax.rollout(robot, *start(robot), target, 2e-3, 200, save_every=None)
    assert explicit.status == 1
    path = lgjax.rollout(robot, *start(robot), target, 2e-3, 200, TimeStepping())
    assert path.status == 0
    np.testing.assert_allclose(path.q.joints[-1], 0.7, rtol=1e-5)
    assert np.all(np.diff(np.asarray(path.q.joints[:, 0])) > -1e-6)  # it does not overshoot


def test_delay_and_gains_are_identified_from_noisy_records():
    """12 ms and the gains, from a guess of 5 ms and gains that are off by a third, 20 seeds, within three sigmas."""
    truth, dt, sigma = pendulum(delay=0.012, samples=12), 2e-3, 1e-3
    command = jnp.sign(jnp.sin(jnp.arange(300.0) * dt * 9))[:, None]
    guess = pendulum(60.0, 1.0, delay=0.005, samples=12)
    record = identification.MotionRecord(start(truth), command, None, dt, sigma)
    clean, _ = record.predicted(identification.plant_of(truth))
    unknowns = identification.control_gains(guess) + identification.velocity_gains(guess) + identification.delays(guess)
    assert unknowns.names == ("control gain of hinge", "velocity gain of hinge", "delay of hinge")

    def one(key):
        noisy = clean._replace(joints=clean.joints + sigma * jax.random.normal(key, clean.joints.shape))
        measured = identification.MotionRecord(record.start, command, noisy, dt, sigma)
        found = identification.identify(guess, measured, unknowns)
        return found.x, found.sigma, found.status

    x, spread, status = jax.vmap(one)(jax.random.split(jax.random.key(3), 20))
    expected = np.array([np.log(40 / 60), np.log(1.5 / 1.0), 0.012 - 0.005])
    assert not np.any(status)
    apart = np.asarray((x - expected) / spread)
    assert np.all(np.abs(apart) < 3.5)  # one of sixty beyond 3 is likely once in six tries
    assert np.mean(np.abs(apart) > 3) <= 1 / 60
    assert 0.5 < np.std(apart) < 1.5
    assert np.all(spread[:, 2] < 1e-3)


def test_gradients_pass_through_servos_and_delays():
    robot = pendulum(delay=0.0035, samples=6)

    def end(gain, delay):
        servo = robot.actuators.replace(gain=robot.actuators.gain * gain, delay=delay * jnp.ones(1), samples=6)
        path = lgjax.rollout(robot.replace(actuators=servo), *start(robot), jnp.ones(1), 1e-3, 60, save_every=None)
        return path.q.joints[-1, 0]

    found = jax.grad(end, (0, 1))(1.0, 0.0035)
    step = 1e-6
    differences = (
        (end(1 + step, 0.0035) - end(1 - step, 0.0035)) / 2 / step,
        (end(1.0, 0.0035 + step) - end(1.0, 0.0035 - step)) / 2 / step,
    )
    np.testing.assert_allclose(found, differences, rtol=1e-6)


def test_controls_of_the_wrong_size_and_delays_without_memory_are_errors():
    robot = pendulum()
    with pytest.raises(ValueError, match="controller"):
        lgjax.rollout(robot, *start(robot), jnp.ones(2), 1e-3, 2)
    with pytest.raises(ValueError, match="controller"):
        lgjax.rollout(robot, *start(robot), lambda t, q, v: jnp.ones(3), 1e-3, 2)
    late = pendulum(delay=0.01)
    with pytest.raises(ValueError, match="samples="):
        jax.jit(lambda dt: lgjax.rollout(late, *start(late), jnp.ones(1), dt, 2))(1e-3)
    with pytest.raises(ValueError, match="without delay"):
        lgjax.control.ControlSystem.of_model(late, 0.01)


def test_systems_and_environments_take_the_same_steps_as_rollouts():
    robot = pendulum()
    drive = actuators.general(robot.model, ["hinge"], gain=(5.0, 0, 0), dynamics="filter", time_constant=0.05)
    robot = robot.replace(actuators=drive)
    path = lgjax.rollout(robot, *start(robot), jnp.ones(1), 5e-3, 4, TimeStepping())
    system = lgjax.control.ControlSystem.of_model(robot, 0.02, method=TimeStepping(), substeps=4)
    q, v, activation = system.step((*start(robot), jnp.zeros(1)), jnp.ones(1))
    last = path.q.joints[-1], path.v[-1], path.actuators.activation[-1]
    for one, other in zip((q.joints, v, activation), last, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    tangent = jnp.array([0.1, -0.2, 0.3])
    state = system.retract((q, v, activation), tangent)
    np.testing.assert_allclose(system.difference((q, v, activation), state), tangent, rtol=1e-12)
    environment = lgjax.adapters.Environment(
        model=robot, dt=0.02, steps=10, start=lambda key, model: start(robot), substeps=4, method=TimeStepping(),
        observe=lambda model, q, v: jnp.concatenate([q.joints, v]), reward=lambda model, q, v, action: -v[0] ** 2,
    )  # fmt: skip
    _, state = environment.reset(jax.random.key(0))
    _, after, reward, done, _ = environment.step(jax.random.key(1), state, jnp.ones(1))
    for one, other in zip((after.q.joints, after.v, after.activation), last, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert not done
    np.testing.assert_allclose(reward, -(after.v[0] ** 2))


def test_an_ensemble_of_a_robot_with_a_coupling_starts_closed():
    joints = [lgjax.Joint(name, "revolute", (0, 1, 0)) for name in ("leader", "follower")]
    bodies = [
        lgjax.Body(joint.name, None, joint, mass=1.0, com=np.array([0.1, 0, 0]), inertia=np.eye(3) / 50)
        for joint in joints
    ]
    model = lgjax.build(bodies, "pair")
    servo = actuators.position(model, ["leader"], 10.0, 1.0)
    robot = Robot(model, (couple_joints(model, "follower", "leader", (0.1, -2.0)),), actuators=servo)
    found = lgjax.ensemble(robot, jnp.array([0.3]), batch=16, steps=50, dt=2e-3, key=jax.random.key(0), save_every=10)
    assert found.success.all()
    leader, follower = np.moveaxis(found.q.joints, -1, 0)
    np.testing.assert_allclose(follower, 0.1 - 2 * leader, atol=1e-12)
    assert np.std(leader[:, 0]) > 0.01


@pytest.mark.parametrize("method", [lgjax.MuntheKaas(lgjax.RK4), TimeStepping()])
@pytest.mark.parametrize("driven", [True, False])
def test_passive_forces_of_a_robot_act_beside_its_drives(method, driven):
    """The same motion as that of the model under all forces together."""
    robot = pendulum()
    spring = forces.spring(robot.model, 3.0) + forces.damper(robot.model, 0.2)
    servo = robot.actuators.as_force(jnp.ones(1))
    whole = spring + servo if driven else spring + forces.friction(robot.model, 0.1)
    expected = lgjax.rollout(robot.model, *start(robot)[:1], jnp.ones(1), whole, 2e-3, 50, method)
    robot = robot.replace(forces=spring, actuators=robot.actuators if driven else None)
    control = jnp.ones(1) if driven else forces.friction(robot.model, 0.1)
    found = lgjax.rollout(robot, *start(robot)[:1], jnp.ones(1), control, 2e-3, 50, method)
    np.testing.assert_allclose(found.q.joints, expected.q.joints, rtol=1e-12)
    if not driven:
        alone = lgjax.rollout(robot, *start(robot)[:1], jnp.ones(1), None, 2e-3, 50, method)
        only = lgjax.rollout(robot.model, *start(robot)[:1], jnp.ones(1), spring, 2e-3, 50, method)
        np.testing.assert_allclose(alone.q.joints, only.q.joints, rtol=1e-12)


def test_another_control_or_gain_compiles_nothing():
    robot, programs = pendulum(delay=0.004, samples=4), []
    note = lambda event, seconds, **_: programs.append(event) if event.endswith("compile_duration") else None
    run = lambda robot, control: lgjax.rollout(robot, *start(robot), control, 1e-3, 10, save_every=None).q.joints
    first = run(robot, jnp.ones(1))
    other = robot.replace(actuators=robot.actuators.replace(gain=2 * robot.actuators.gain))
    targets = jnp.array([0.5]), jnp.array([0.25])
    run(other, targets[0])  # products with 2 are compiled
    jax.monitoring.register_event_duration_secs_listener(note)
    second = run(other, targets[1])
    assert programs == []
    assert first != second


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_gradients_of_a_robot_at_rest_are_finite_and_batches_do_not_matter(dtype):
    """At the equilibrium of a servo: the derivative by the target, and rows of a batch alone, to the last bit."""
    robot = pendulum(delay=0.002, samples=3, dtype=dtype)
    end = lambda target: lgjax.rollout(robot, *start(robot), target[None], 1e-3, 20, TimeStepping()).q.joints[-1, 0]
    slope = jax.grad(end)(jnp.zeros((), dtype))
    assert jnp.isfinite(slope)
    assert slope > 0
    targets = jnp.linspace(-1, 1, 5, dtype=dtype)
    together = jax.jit(jax.vmap(end))(targets)
    np.testing.assert_array_equal(together[1:3], jax.jit(jax.vmap(end))(targets[1:3]))
    np.testing.assert_allclose(together, targets * slope, rtol=20 * float(jnp.finfo(dtype).eps), atol=1e-7)


def test_passive_forces_and_torques_of_a_robot_are_identified_with_their_spring():
    """A record of a mass on a known spring tells its damping; without the spring it would not fit."""
    robot = pendulum().replace(actuators=None)
    robot = robot.replace(forces=forces.spring(robot.model, 5.0))
    damped_robot = robot.replace(model=robot.model.replace(damping=jnp.array([0.3])))
    command, dt = jnp.sin(jnp.arange(100.0) / 9)[:, None], 5e-3
    record = identification.MotionRecord(start(robot), command, None, dt, 1e-3)
    q, v = record.predicted(identification.plant_of(damped_robot))
    record = identification.MotionRecord(start(robot), command, q, dt, 1e-3)
    found = identification.identify(robot, record, identification.viscous(robot))
    np.testing.assert_allclose(found.x, 0.3, atol=1e-6)
    speed = jnp.concatenate([v, v])[: len(v)]
    tau = jax.vmap(lambda q, v: lgjax.inverse_dynamics(damped_robot.model, q, v, 0 * v) + 5.0 * q.joints)(q, speed)
    torques = identification.TorqueRecord(q, speed, 0 * speed, tau, 1e-3)
    found = identification.identify(robot, torques, identification.viscous(robot))
    np.testing.assert_allclose(found.x, 0.3, atol=1e-6)
    with pytest.raises(ValueError, match="TorqueRecord"):
        identification.identify(pendulum(), torques, identification.viscous(robot))


def test_joint_forces_in_place_of_controls_raise_an_error_that_names_the_model():
    """A robot with a free body has fewer actuators than velocities."""
    robot = lgjax.load_robot(lgjax.models.urdf("quadruped"), meshes="ignore")
    forces_instead = lambda t, q, v: jnp.zeros(robot.model.nv)
    with pytest.raises(ValueError, match=r"returned shape \(18,\), expected \(12,\), the controls .*the robot's model"):
        lgjax.rollout(robot, *start(robot), forces_instead, 1e-3, 2, TimeStepping())
