"""Controls act later, as in MuJoCo and as a sine says, with derivatives by the delay."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import lgjax
from lgjax.robots import actuators

DT = 0.01
SAMPLES = 7
XML = """
<mujoco>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody><body>
    <joint name="turn" type="hinge" axis="0 1 0"/> <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
  </body></worldbody>
  {}
</mujoco>
"""


MODEL = lgjax.load_mjcf(XML.format(""))
CONTROLS = np.random.default_rng(3).normal(size=24)


def acting(delay, given, samples=SAMPLES, dt=DT):
    """What of the controls given, one in each step, acts in each step."""
    motors = actuators.motor(MODEL, delay=delay, samples=samples)

    def step(state, control):
        state = motors.pushed(state, control[None])
        return state, motors.delayed(state, dt)[0]

    return jax.lax.scan(step, motors.start(), given)[1]


several = jax.jit(jax.vmap(acting, (0, None)))


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_delays_are_those_of_mujoco(dtype):
    """Between steps with its linear interpolation, and at whole numbers of steps with its default, which holds."""
    cases = [(kind, d) for kind in ("zoh", "linear") for d in (0.01, 0.02, 0.05)]
    cases += [("linear", d) for d in (0.012, 0.025, 0.0391)]
    found = []
    for kind, delay in cases:
        motor = f'<actuator><motor joint="turn" delay="{delay}" nsample="8" interp="{kind}"/></actuator>'
        theirs = mujoco.MjModel.from_xml_string(XML.format(motor))
        data, forces = mujoco.MjData(theirs), []
        for control in CONTROLS:
            data.ctrl[0] = control
            mujoco.mj_step(theirs, data)
            forces.append(data.actuator_force[0])
        found.append(forces)
    mine = several(jnp.asarray([d for _, d in cases]), jnp.asarray(CONTROLS))
    np.testing.assert_allclose(mine, found, atol=1e-12)
    if dtype == jnp.float32:
        half = actuators.motor(MODEL.astype(dtype), delay=0.025, samples=8)
        state = half.start()
        for control in CONTROLS[:6]:
            state = half.pushed(state, jnp.asarray([control], dtype))
        np.testing.assert_allclose(half.delayed(state, DT)[0], found[-2][5], atol=1e-5)
        assert half.delayed(state, DT).dtype == dtype


def test_a_delayed_sine():
    """A sine that is late by the delay, to the second order of the step."""
    omega, steps = 11.0, 60
    for dt in (0.01, 0.005):
        t = dt * np.arange(steps)
        delays = dt * np.asarray([0.0, 0.4, 1.0, 2.5, 5.9, 6.0])
        found = jax.vmap(lambda d, dt=dt, t=t: acting(d, jnp.asarray(np.sin(omega * t)), dt=dt))(jnp.asarray(delays))
        expected = np.sin(omega * (t - delays[:, None]))
        np.testing.assert_allclose(found[:, 7:], expected[:, 7:], atol=(omega * dt) ** 2 / 8)
        np.testing.assert_allclose(found[[0, 2, 5], 7:], expected[[0, 2, 5], 7:], atol=1e-12)


def test_derivatives_by_the_delay():
    """Of what acts; on whole numbers of steps those to longer delays, but to shorter ones of the longest."""
    weights = jnp.asarray(np.random.default_rng(4).normal(size=24))
    total = jax.jit(jax.vmap(lambda d: jnp.dot(weights, acting(d, jnp.asarray(CONTROLS)))))
    slope = jax.jit(jax.vmap(jax.grad(lambda d: jnp.dot(weights, acting(d, jnp.asarray(CONTROLS))))))
    inner, h = jnp.asarray([0.003, 0.012, 0.0395, 0.0599]), 1e-6
    np.testing.assert_allclose(slope(inner), (total(inner + h) - total(inner - h)) / (2 * h), rtol=1e-6)
    whole = jnp.asarray([0.0, 0.01, 0.03])
    np.testing.assert_allclose(slope(whole), (total(whole + h) - total(whole)) / h, rtol=1e-6)
    longest = jnp.asarray([0.06])
    np.testing.assert_allclose(slope(longest), (total(longest) - total(longest - h)) / h, rtol=1e-6)


def test_delays_out_of_range_are_nan():
    found = several(jnp.asarray([-0.001, 0.0, 0.06, 0.0601]), jnp.asarray(CONTROLS))
    np.testing.assert_array_equal(np.isnan(found[:, 0]), [True, False, False, True])
    motor = actuators.motor(MODEL)
    np.testing.assert_array_equal(motor.delayed(motor.start(jnp.asarray([3.0])), DT), [3.0])
    late = motor.replace(delay=jnp.asarray([0.02]))
    assert late.samples == 0  # not decided: no memory of the right size is known
    assert np.isnan(late.replace(samples=1).delayed(motor.start(), DT)).all()


def test_the_number_of_samples():
    motor = actuators.motor(MODEL, delay=0.02)
    assert [motor.sampled(dt).samples for dt in (0.02, 0.01, 0.005, 0.004, 0.003)] == [2, 3, 5, 6, 8]
    assert actuators.motor(MODEL).sampled(0.01).samples == 1
    assert (motor + actuators.motor(MODEL, names=["other"])).samples == 0
    both = actuators.motor(MODEL, delay=0.02, samples=3) + actuators.motor(MODEL, names=["other"])
    assert both.samples == 3
    state = both.pushed(both.start(jnp.asarray([1.0, 2.0])), jnp.asarray([5.0, 6.0]))
    np.testing.assert_array_equal(both.delayed(state, DT), [1.0, 6.0])
    with pytest.raises(ValueError, match="the delay is traced: give samples="):
        jax.jit(lambda d: actuators.motor(MODEL, delay=d).sampled(DT).start())(0.02)


def test_a_late_servo_is_differentiated_through_its_motion():
    """d/d(delay, kp) of where a servo on a late control gets to, against differences."""
    q0, v0 = lgjax.neutral(MODEL), jnp.zeros(1)

    def end(delay, kp):
        servo = actuators.position(MODEL, None, kp, 2.0, delay=delay, samples=SAMPLES)

        def step(carry, control):
            q, v, state = carry
            state = servo.pushed(state, control[None])
            v = v + DT * lgjax.forward_dynamics(MODEL, q, v, servo.torque(q, v, servo.delayed(state, DT)))
            return (lgjax.retract(MODEL, q, DT * v), v, state), None

        (q, *_), _ = jax.lax.scan(step, (q0, v0, servo.start()), jnp.asarray(CONTROLS))
        return q.joints[0]

    of = jax.jit(jax.value_and_grad(end, (0, 1)))
    _, slopes = of(0.0137, 30.0)
    ends = [[of(0.0137 + s * a, 30.0 + s * b)[0] for s in (1, -1)] for a, b in ((1e-6, 0.0), (0.0, 1e-4))]
    np.testing.assert_allclose(slopes[0], (ends[0][0] - ends[0][1]) / 2e-6, rtol=1e-6)
    np.testing.assert_allclose(slopes[1], (ends[1][0] - ends[1][1]) / 2e-4, rtol=1e-6)
