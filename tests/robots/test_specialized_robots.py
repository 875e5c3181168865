"""A specialized robot is the same robot: same forces and motions, fewer operations, derivatives by its inputs alone."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact import TimeStepping
from lgjax.execution.scalars.program import program_of
from lgjax.multibody.specialized import SpecializedModel
from lgjax.robots.actuators import Actuators
from tests.robots.whole import TEXT
from tests.simulate.ensemble.test_robot_ensembles import RUN, STILL, driven
from tests.simulate.test_robots import start

INPUTS = [(), ("actuators.gain",), ("actuators", "inertias.mass"), ("forces", "actuators.transmission")]


def forces(robot, q, v, control, activation):
    passive = 0.0 if robot.forces is None else robot.forces(0.0, q, v)
    return passive + robot.actuators.torque(q, v, control, activation, 1e-3)


def state(robot):
    draw = lambda i, n: jax.random.normal(jax.random.key(i), (n,), robot.model.dtype)
    q = lgjax.random_configuration(jax.random.key(0), robot.model)
    return q, draw(1, robot.model.nv), draw(2, len(robot.actuators)), draw(3, robot.actuators.na)


@pytest.fixture(scope="module")
def walker():
    return lgjax.load_robot(TEXT)


@pytest.mark.parametrize("inputs", INPUTS, ids=str)
def test_forces_and_motions_are_those_of_the_general_robot(inputs, walker):
    special = lgjax.specialize(walker, inputs)
    assert isinstance(special.model, SpecializedModel)
    assert isinstance(special.actuators, Actuators)
    given = {
        *(f"actuators.{name}" for name in special.actuators.inputs),
        *(f"forces.{name}" for name in special.forces.inputs),
        *special.model.inputs,
    }
    own = {name for name in given if "[<" not in name}  # without the inputs of the model that forces read
    assert all(name.startswith(inputs) for name in own)
    assert all(any(name.startswith(group) for name in own) for group in inputs)
    run = jax.jit(forces)
    expected = run(walker, *state(walker))
    np.testing.assert_allclose(run(special, *state(walker)), expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    np.testing.assert_allclose(forces(special, *state(walker)), expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    key = walker.keyframes["up"]
    q = lgjax.project_positions(walker.model, walker.loops, key.q).q
    paths = [lgjax.rollout(x, q, key.v, key.control, 2e-3, 10, TimeStepping()) for x in (special, walker)]
    for ours, theirs in zip(*(jax.tree.leaves((path.q, path.v)) for path in paths), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


def test_constants_fold():
    robot = driven()
    count = lambda robot, *more: sum(
        program_of(
            lambda *given: forces(*(given if more else (robot, *given))), *more, *state(robot)
        ).operations.values()
    )
    assert count(lgjax.specialize(robot)) < 0.8 * count(robot, robot)
    assert not jax.tree.leaves(lgjax.specialize(robot).actuators)
    assert len(jax.tree.leaves(lgjax.specialize(robot, ("actuators.gain",)).actuators)) == 1


def test_inputs_change_the_result_and_have_the_derivatives_of_the_general_robot():
    robot = driven()
    special = lgjax.specialize(robot, ("actuators.gain", "actuators.delay"))
    assert special.actuators.inputs == ("gain", "delay")
    total = lambda robot, gain: jnp.sum(forces(
        robot.replace(actuators=robot.actuators.replace(gain=gain)), *state(robot)
    ) ** 2)  # fmt: skip
    gain = 1.5 * robot.actuators.gain
    (value, slope), (expected, by_gain) = (jax.jit(jax.value_and_grad(total, 1))(x, gain) for x in (special, robot))
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    np.testing.assert_allclose(slope, by_gain, rtol=1e-12)
    assert abs(value - total(robot, robot.actuators.gain)) > 0.1
    by_leaf = jax.grad(lambda x: jnp.sum(forces(x, *state(robot)) ** 2), allow_int=True)(special)
    same = jax.grad(lambda x: jnp.sum(forces(x, *state(robot)) ** 2), allow_int=True)(robot)
    np.testing.assert_allclose(by_leaf.actuators.gain, same.actuators.gain, rtol=1e-12)


def test_what_replaces_a_constant_is_an_input_and_programs_are_shared():
    one, same = lgjax.specialize(driven()), lgjax.specialize(driven())
    traces = []

    @jax.jit
    def first(actuators):
        traces.append(actuators)
        return jnp.sum(actuators.gain)

    total = first(one.actuators)
    assert first(same.actuators) == total
    assert len(traces) == 1
    changed = one.actuators.replace(gain=2 * one.actuators.gain)
    assert changed.inputs == ("gain",)
    assert first(changed) == 2 * total
    assert first(changed.replace(gain=changed.gain * 2)) == 4 * total
    assert len(traces) == 2
    again = pickle.loads(pickle.dumps(changed))
    assert (again.inputs, type(again)) == (("gain",), type(changed))
    assert jax.tree.structure(again) == jax.tree.structure(changed)
    single = lgjax.specialize(driven(), ("actuators.gain",)).astype(jnp.float32)
    assert {x.dtype.name for x in jax.tree.leaves(single.actuators.general)} == {"float32"}
    assert single.actuators.inputs == ("gain",)
    assert single.model.dtype == np.float32


def test_gains_are_batched_and_the_rest_is_shared():
    robot = driven()
    special = lgjax.specialize(robot)
    factors = jnp.array([0.5, 1.0, 2.0])
    of = lambda robot: lambda f: robot.replace(actuators=robot.actuators.replace(gain=f * robot.actuators.gain))
    run = jax.jit(jax.vmap(forces, (0, None, None, None, None)))
    ours, theirs = (run(jax.vmap(of(x))(factors), *state(robot)) for x in (special, robot))
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    assert np.ptp(theirs) > 0.1


def test_ensembles_draw_the_actuators_of_a_specialized_robot():
    spread = STILL._replace(gain=0.2, gear=0.1)
    ours, theirs = (
        lgjax.ensemble(x, jnp.array([0.6, 0.1]), spread=spread, **RUN) for x in (lgjax.specialize(driven()), driven())
    )
    assert np.std(ours.q.joints[:, -1, 0]) > 1e-3
    np.testing.assert_allclose(ours.q.joints, theirs.q.joints, rtol=0, atol=1e-12)


def test_specialized_twice_it_has_the_inputs_of_the_second_time_and_errors_name_parameters():
    robot = driven()
    special = lgjax.specialize(lgjax.specialize(robot, ("actuators.gain", "damping")), ("actuators.delay",))
    assert special.actuators.inputs == ("delay",)
    assert special.model.inputs == ()
    with pytest.raises(ValueError, match=r"inputs names 'actuators.kp', the parameters are .*actuators.gain, actuat"):
        lgjax.specialize(robot, ("actuators.kp",))
    with pytest.raises(ValueError, match=r"parameters are known, actuators.gain is traced"):
        jax.jit(lambda g: len(jax.tree.leaves(lgjax.specialize(
            robot.replace(actuators=robot.actuators.replace(gain=g))))))(robot.actuators.gain)  # fmt: skip
    assert start(special)[1].shape == (1,)
