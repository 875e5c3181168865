"""Ensembles of robots: actuators that are random, as a loop over robots has them; sensors that are observed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Spread
from lgjax.contact import TimeStepping
from lgjax.ensembles import Draw
from lgjax.robots import actuators
from lgjax.simulate.ensemble.spread import FURTHEST, OF_ACTUATORS, randomized
from tests.simulate.test_robots import pendulum, start

STILL = Spread(0.0, 0.0)
RUN = {"batch": 6, "steps": 40, "dt": 2e-3, "key": jax.random.key(4), "save_every": 10, "progress": False}


def driven():
    """A servo behind a delay, and a motor behind a filter, at one joint."""
    robot = pendulum(delay=0.004)
    names = {"gain": (2.0, 0, 0), "dynamics": "filterexact", "time_constant": 0.02, "names": ["motor"]}
    return robot.replace(actuators=robot.actuators + actuators.general(robot.model, ["hinge"], **names))


def copies(robot, spread):
    """The robots that an ensemble draws, one after the other."""
    for i in range(RUN["batch"]):
        yield randomized(Draw(robot, *start(robot)), spread, jax.random.fold_in(RUN["key"], i)).model


@pytest.mark.parametrize("method", [lgjax.MuntheKaas(lgjax.RK4), TimeStepping()])
@pytest.mark.parametrize("name", OF_ACTUATORS)
def test_random_actuators_move_as_a_loop_over_robots_with_their_numbers_does(name, method):
    robot, spread = driven(), STILL._replace(**{name: 1e-3 if name == "delay" else 0.3})
    control = jnp.array([0.6, 0.1])
    found = lgjax.ensemble(robot, control, spread=spread, method=method, **RUN)
    assert found.success.all()
    assert np.std(found.q.joints[:, -1, 0]) > 1e-4
    for i, copy in enumerate(copies(robot, spread)):
        alone = copy.replace(actuators=copy.actuators.replace(samples=1 + int(np.ceil(0.02 / RUN["dt"]))))
        path = lgjax.rollout(alone, *start(robot), control, RUN["dt"], RUN["steps"], method, RUN["save_every"])
        np.testing.assert_allclose(found.q.joints[i], path.q.joints, rtol=1e-11, atol=1e-13)


def test_gains_of_ones_own_are_those_of_servos():
    """Robots that a sampler draws are taken whole; each is a servo that was made with its gain."""
    robot = pendulum()

    def sample(key):
        gain = 40.0 + 20.0 * jax.random.uniform(key, dtype=jnp.float64)
        servo = actuators.position(robot.model, ["hinge"], gain, 1.5)
        return Draw(robot.replace(actuators=servo), *start(robot), {"gain": gain})

    found = lgjax.ensemble(robot, jnp.array([0.6]), sample=sample, **RUN)
    assert np.ptp(found.parameters["gain"]) > 5
    for gain, joints in zip(found.parameters["gain"], found.q.joints, strict=True):
        path = lgjax.rollout(pendulum(float(gain)), *start(robot), jnp.array([0.6]), RUN["dt"], RUN["steps"])
        np.testing.assert_allclose(joints, path.q.joints[:: RUN["save_every"]], rtol=1e-11, atol=1e-13)


def test_every_spread_of_actuators_has_its_standard_deviation_and_moves_nothing_else():
    robot = driven()
    robot = robot.replace(actuators=robot.actuators.replace(samples=99))
    a, keys = robot.actuators, jax.random.split(jax.random.key(1), 2000)
    gears = lambda x: [kind.gear for kind in x.transmission.kinds]
    expected = {  # what is random, and by how much it spreads
        "gain": lambda x: [jnp.log(x.gain[:, 0] / a.gain[:, 0]), jnp.log(x.bias[0, 1:2] / a.bias[0, 1])],
        "velocity_gain": lambda x: [jnp.log(x.bias[0, 2:] / a.bias[0, 2])],
        "gear": lambda x: [jnp.log(gear) for gear in gears(x)],
        "time_constant": lambda x: [jnp.log(x.time_constant[1:] / a.time_constant[1:])],
        "delay": lambda x: [(x.delay - a.delay)[:1]],
    }
    leaves = {"gain": ("gain", "bias"), "velocity_gain": ("bias",), "gear": ("transmission",)}
    assert expected.keys() == set(OF_ACTUATORS)
    for name, values in expected.items():
        deviation = 1e-3 if name == "delay" else 0.2
        spread = STILL._replace(**{name: jnp.asarray(deviation)})
        draw = jax.jit(jax.vmap(lambda key, spread=spread: randomized(Draw(robot, *start(robot)), spread, key).model))
        drawn = draw(keys)
        for x in jax.vmap(values)(drawn.actuators):
            np.testing.assert_allclose(np.std(np.asarray(x), axis=0), deviation, rtol=0.06)
        for path, x in jax.tree_util.tree_leaves_with_path(drawn):
            where = jax.tree_util.keystr(path)
            own = any(f".actuators.{leaf}" in where for leaf in leaves.get(name, (name,)))
            assert own or not np.any(np.asarray(x != x[0])), (name, where)


def test_delays_are_never_negative_and_the_memory_holds_the_longest():
    robot = pendulum(delay=1e-3)
    found = lgjax.ensemble(robot, jnp.ones(1), spread=STILL._replace(delay=5e-3), **RUN | {"batch": 64})
    assert found.success.all()  # a delay beyond the memory would be NaN
    drawn = randomized(Draw(robot, *start(robot)), STILL._replace(delay=jnp.asarray(1.0)), jax.random.key(0)).model
    assert drawn.actuators.samples == 0
    wide = jax.vmap(lambda key: randomized(Draw(robot, *start(robot)), STILL._replace(delay=1.0), key).model)
    delays = wide(jax.random.split(jax.random.key(0), 500)).actuators.delay
    assert np.min(delays) == 0
    assert 1 < np.max(delays) < FURTHEST


def test_spreads_of_actuators_that_are_not_there_are_refused():
    for mechanism in (pendulum().model, pendulum().replace(actuators=None)):
        with pytest.raises(ValueError, match=r"spread.gain is of actuators, and 'pendulum' has none: give a Robot"):
            lgjax.ensemble(mechanism, spread=Spread(gain=0.1), **RUN)
    with pytest.raises(ValueError, match=r"spread.gear has shape \(3,\), expected \(\) or \(1,\)"):
        lgjax.ensemble(pendulum(), spread=Spread(gear=jnp.ones(3)), **RUN)


# ---- sensors of a file
SEEN = """<mujoco><worldbody>
  <body pos="0 0 1"><joint name="hip" axis="0 1 0" damping=".1"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass="1"/>
    <body pos="0 0 -.3"><joint name="knee" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".5"/><site name="tip" pos="0 0 -.3"/></body></body>
</worldbody>
<actuator><position joint="hip" kp="20" kv="1"/></actuator>
<sensor><framepos objtype="site" objname="tip" noise="0.01"/><gyro name="turn" site="tip" noise="0.1"/>
  <jointvel name="fast" joint="knee" noise="0.2" cutoff="0.5"/>
  <e_kinetic name="energy"/></sensor>
<keyframe><key name="bent" qpos=".4 -.9" qvel="0 1" ctrl=".2"/></keyframe></mujoco>"""


@pytest.fixture(scope="module")
def seen():
    return lgjax.load_robot(SEEN)


def test_sensors_of_a_file_are_observed_of_each_copy(seen):
    """Their mean and covariance are those of the sensors at the states, of robots with the drawn numbers."""
    key, spread = seen.keyframes["bent"], Spread(0.1, 0.1, 0.3, 0.2, 0.2)
    found = lgjax.ensemble(seen, key.control, q=key.q, v=key.v, spread=spread, observe=seen.sensors, **RUN)
    read = jax.jit(lambda copy, *state: jax.vmap(copy.sensors)(*state))
    states = [jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), (found.q, found.v)) for i in range(RUN["batch"])]
    values = np.array(
        [read(copy, jnp.asarray(found.ts), *state) for copy, state in zip(copies(seen, spread), states, strict=True)]
    )
    assert values.shape == (6, 5, 3 + 3 + 1 + 1)
    np.testing.assert_allclose(found.statistics.mean, values.mean(0), rtol=1e-10, atol=1e-12)
    left = values - values.mean(0)
    covariance = np.einsum("sti,stj->tij", left, left) / (len(values) - 1)
    np.testing.assert_allclose(found.statistics.covariance, covariance, rtol=1e-9, atol=1e-11)
    nominal = np.array([jax.vmap(seen.sensors)(jnp.asarray(found.ts), *state) for state in states])
    assert np.abs(nominal - values).max() > 1e-2
    assert np.abs(values[..., 6]).max() == 0.5  # the cutoff


def test_an_environment_observes_the_sensors_of_a_file(seen):
    """At the states, of the robot and of a heavier one; their noise is that of the file, drawn by the caller."""
    key = seen.keyframes["bent"]
    environment = lgjax.adapters.Environment(
        model=seen, dt=0.01, steps=10, start=lambda k, model: (key.q, key.v), observe=seen.sensors,
        reward=lambda model, q, v, action: -v[0] ** 2, substeps=2,
    )  # fmt: skip
    assert environment.observation_size == seen.sensors.size
    heavier = seen.model.replace(inertias=seen.model.inertias.scaled(2.0))
    for model in (None, heavier):
        robot = seen if model is None else seen.replace(model=model)
        observation, state = environment.reset(jax.random.key(0), model)
        np.testing.assert_allclose(observation, robot.sensors(0.0, key.q, key.v), rtol=1e-12)
        observation, state, *_ = environment.step(jax.random.key(1), state, key.control, model)
        np.testing.assert_allclose(observation, robot.sensors(0.0, state.q, state.v), rtol=1e-12)
        path = lgjax.rollout(robot, key.q, key.v, key.control, 5e-3, 2)
        np.testing.assert_allclose(state.q.joints, path.q.joints[-1], rtol=1e-12)
    noisy = jax.vmap(lambda k: seen.sensors.noisy(k, seen.sensors.start(k), observation, 0.01)[0])
    errors = noisy(jax.random.split(jax.random.key(2), 4000)) - observation
    np.testing.assert_allclose(np.std(errors[:, :6], axis=0), [0.01] * 3 + [0.1] * 3, rtol=0.06)


def test_sensors_that_a_state_does_not_have_are_refused_before_any_work(seen):
    robot = lgjax.load_robot(
        SEEN.replace('<gyro name="turn"', '<accelerometer name="push" site="tip"/><gyro name="turn"')
    )
    with pytest.raises(ValueError, match=r"the sensor 'push' \(accelerometer\) needs accelerations: read ") as error:
        lgjax.ensemble(robot, observe=robot.sensors, **RUN)
    assert "\n" not in str(error.value)
