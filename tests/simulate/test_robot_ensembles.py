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
