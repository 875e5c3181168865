"""Actuators have MuJoCo's forces, generalized forces and activations; their slopes are derivatives."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import lgjax
from lgjax.robots import actuators

DT = 0.01
XML = f"""
<mujoco model="marionette">
  <compiler angle="radian"/>
  <option timestep="{DT}" gravity="0 0 -9.81"><flag contact="disable" constraint="disable"/></option>
  <worldbody>
    <site name="hook" pos="0.3 0.1 1.2"/>
    <body name="hull" pos="0.1 0.2 0.3">
      <freejoint name="float"/>
      <inertial pos="0.02 -0.03 0.05" mass="4" diaginertia="0.3 0.2 0.25"/>
      <site name="jet" pos="0.2 0.1 -0.1" quat="0.7 0.2 -0.3 0.1"/>
      <body name="turret" pos="0.1 0 0.2" quat="0.8 0.3 0.1 -0.4">
        <joint name="yaw" type="hinge" axis="0.2 0.1 1" actuatorfrclimited="true" actuatorfrcrange="-9 6"/>
        <inertial pos="0 0.05 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
        <body name="boom" pos="0 0.1 0.25">
          <joint name="extend" type="slide" axis="1 0.5 0"/>
          <inertial pos="0.2 0 0.02" mass="0.8" diaginertia="0.01 0.02 0.022"/>
          <site name="tip" pos="0.3 -0.1 0.05" quat="0.9 -0.2 0.4 0.3"/>
        </body>
      </body>
      <body name="bob" pos="0 0.02 0.5" quat="0.6 0.2 -0.7 0.1">
        <joint name="swivel" type="ball" pos="0.01 -0.02 0.03"/>
        <inertial pos="0.05 0.1 -0.02" mass="0.7" diaginertia="0.003 0.002 0.004"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="sum"><joint joint="yaw" coef="0.7"/><joint joint="extend" coef="-1.3"/></fixed>
    <spatial name="rope"><site site="hook"/><site site="jet"/><site site="tip"/></spatial>
  </tendon>
  <actuator>
    <motor name="a" joint="yaw" gear="3" ctrlrange="-1 0.5"/>
    <motor name="b" joint="extend" forcerange="-0.3 0.6"/>
    <position name="c" joint="yaw" kp="12" kv="1.5" forcerange="-8 9"/>
    <position name="d" joint="extend" kp="7" kv="0.5" timeconst="0.03"/>
    <velocity name="e" joint="extend" kv="2.5" ctrlrange="-1 1"/>
    <intvelocity name="f" joint="yaw" kp="5" kv="0.3" actrange="-0.6 0.6"/>
    <damper name="g" joint="yaw" kv="4" ctrlrange="0 1"/>
    <general name="h" tendon="sum" gear="1.7" dyntype="filter" dynprm="0.2" gaintype="affine" gainprm="2 -1 0.5"
      biastype="affine" biasprm="0.3 -2 -0.7" actlimited="true" actrange="-0.5 0.5" forcerange="-4 3"/>
    <general name="i" joint="swivel" gear="0.3 -0.5 0.9" dyntype="integrator" gainprm="2"/>
    <position name="j" joint="swivel" gear="0 1 0" kp="3" kv="0.2"/>
    <motor name="k" joint="float" gear="0.2 0.4 -0.6 1.1 -1.3 0.5"/>
    <general name="l" joint="extend" dyntype="filterexact" dynprm="0.004" actearly="true" actlimited="true"
      actrange="-1 1" gainprm="3"/>
    <general name="m" joint="yaw" dyntype="integrator" actearly="true" gainprm="3"/>
    <position name="n" tendon="rope" kp="20" kv="2"/>
    <motor name="o" site="jet" gear="0 0 1 0 0 0.1"/>
    <dcmotor name="p" joint="yaw" nominal="12 0.5 100" gear="5"/>
    <position name="r" site="tip" refsite="jet" gear="0 0 0 0 2 0" kp="2"/>
    <dcmotor name="q" joint="yaw" motorconst="0.1" resistance="2" inductance="0.03 0" gear="5" saturation="0.04 0 0"/>
  </actuator>
</mujoco>
"""
STATES = 8
UNITS = np.asarray(
    [1, 1, 1, 1, 1, 1, 0.1]
)  # activations of MuJoCo in ours: of a DC motor it is the current, not the torque
TOLERANCE = {jnp.float64: 1e-10, jnp.float32: 1e-5}


def made(model):
    """The actuators of the file, by hand."""
    a, name = actuators, lambda letter: {"names": [letter]}
    at = lambda name, gear=1.0: a.joints(model, [name], gear)
    ball = lambda axis: a.balls(model, ["swivel"], axis)
    return (
        a.motor(model, at("yaw", 3.0), control_range=(-1, 0.5), **name("a"))
        + a.motor(model, ["extend"], force_range=(-0.3, 0.6), **name("b"))
        + a.position(model, ["yaw"], 12.0, 1.5, force_range=(-8, 9), **name("c"))
        + a.position(model, ["extend"], 7.0, 0.5, time_constant=0.03, **name("d"))
        + a.velocity(model, ["extend"], 2.5, control_range=(-1, 1), **name("e"))
        + a.intvelocity(model, ["yaw"], 5.0, 0.3, activation_range=(-0.6, 0.6), **name("f"))
        + a.damper(model, ["yaw"], 4.0, control_range=(0, 1), **name("g"))
        + a.general(
            model, a.fixed_tendons(model, [{"yaw": 0.7, "extend": -1.3}], 1.7), (2, -1, 0.5), (0.3, -2, -0.7),
            dynamics="filter", time_constant=0.2, activation_range=(-0.5, 0.5), force_range=(-4, 3), **name("h"),
        )
        + a.general(model, ball((0.3, -0.5, 0.9)), (2, 0, 0), dynamics="integrator", **name("i"))
        + a.position(model, ball((0, 1, 0)), 3.0, 0.2, **name("j"))
        + a.motor(model, a.frees(model, ["float"], (1.1, -1.3, 0.5, 0.2, 0.4, -0.6)), **name("k"))
        + a.general(
            model, ["extend"], (3, 0, 0), dynamics="filterexact", time_constant=0.004, activation_range=(-1, 1),
            early=True, **name("l"),
        )
        + a.general(model, ["yaw"], (3, 0, 0), dynamics="integrator", early=True, **name("m"))
        + a.position(model, a.spatial_tendons(model, [["hook", "jet", "tip"]]), 20.0, 2.0, **name("n"))
        + a.motor(model, a.sites(model, ["jet"], (0, 0, 0.1, 0, 0, 1)), **name("o"))
        + a.dc_motor(model, at("yaw", 5.0), 0.5, 100.0, 12.0, control_range=None, **name("p"))
        + a.position(model, a.sites(model, ["tip"], (0, 2, 0, 0, 0, 0), ["jet"]), 2.0, **name("r"))
        + a.dc_motor(
            model, at("yaw", 5.0), 0.05, 10.0, control_range=None, time_constant=0.015, force_range=(-0.04, 0.04),
            **name("q"),
        )
    ).within(model, ["yaw"], (-9, 6))  # fmt: skip


@cache
def models():
    bodies, _ = XML.split("<tendon>")
    return lgjax.load_mjcf(bodies + "</mujoco>"), mujoco.MjModel.from_xml_string(XML)


@cache
def states():
    """Configurations, velocities, controls, activations: of every limit some states are beyond it."""
    model, compiled = models()
    keys = jax.random.split(jax.random.key(7), STATES)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    random = np.random.default_rng(8)
    v, control = random.normal(size=(STATES, model.nv)), 1.5 * random.normal(size=(STATES, compiled.nu))
    control[:, [9, 16]] *= 5  # servos of rotations, whose errors are more than half a turn
    return q, v, control, 0.6 * random.normal(size=(STATES, compiled.na))


@cache
def theirs():
    """MuJoCo's forces, generalized forces in this library's velocities, rates, and activations after a step."""
    model, compiled = models()
    data, found = mujoco.MjData(compiled), []
    for i in range(STATES):
        q, v, control, activation = jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), states())
        mujoco.mj_resetData(compiled, data)
        state = lgjax.conventions.to_mujoco(model, q, v)
        data.qpos[:], data.qvel[:], data.ctrl[:], data.act[:] = state.q, state.v, control, activation
        mujoco.mj_forward(compiled, data)
        tau = lgjax.conventions.from_mujoco(model, state.q, tau=jnp.asarray(data.qfrc_actuator)).tau
        force, rates = data.actuator_force.copy(), data.act_dot.copy()
        mujoco.mj_step(compiled, data)
        found.append((force, tau, rates * UNITS, data.act * UNITS))
    return jax.tree.map(lambda *x: np.stack(x), *found)


@cache
def ours(dtype):
    model, _ = models()
    given = made(model).astype(dtype)

    def answers(given, q, v, control, activation):
        rates = given.rates(q, v, control, activation)
        force, tau = (f(q, v, control, activation, DT) for f in (given.forces, given.torque))
        return force, tau, rates, given.advance(activation, rates, DT)

    q, v, control, activation = states()
    args = jax.tree.map(lambda x: jnp.asarray(x, dtype), (q, v, control, activation * UNITS))
    return jax.jit(jax.vmap(answers, (None, 0, 0, 0, 0)))(given, *args)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_forces_and_activations_are_those_of_mujoco(dtype):
    names = ("forces", "generalized forces", "rates", "next activations")
    for mine, their, what in zip(ours(dtype), theirs(), names, strict=True):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine, their, atol=TOLERANCE[dtype] * np.abs(their).max(), rtol=0, err_msg=what)


def test_states_reach_the_limits_of_the_file_and_stay_within_them():
    force, tau, _, activation = theirs()
    _, _, control, _ = states()
    reached = [
        *(control[:, i] for i in (0, 0, 4, 4, 6, 6)), *(force[:, i] for i in (1, 1, 2, 7, 7, 17)), tau[:, 6],
        *(activation[:, i] for i in (1, 1, 2, 4, 4)),
    ]  # fmt: skip
    limits = (-1, 0.5, -1, 1, 0, 1, -0.3, 0.6, 9, -4, 3, 0.04, -9, -0.6, 0.6, 0.5, -1, 1)
    for values, limit in zip(reached, limits, strict=True):
        beyond = values >= limit - 1e-9 if limit > 0 else values <= limit + 1e-9
        assert 0 < np.sum(beyond) < STATES, limit


def test_slopes_are_derivatives_of_forces():
    """df/dv = df/dvelocity moments everywhere, and at rest df/dq = df/dlength moments but where the file has balls."""
    model, _ = models()
    given = made(model)
    zero, exact = jnp.zeros(model.nv), [i for i, name in enumerate(given.names) if name not in "ijr"]

    def compared(q, v, *inputs):
        forces = lambda d, v: given.forces(lgjax.retract(model, q, d), v, *inputs, DT)
        moments, moving, resting = (
            given.moments(q),
            given.slopes(q, v, *inputs, DT),
            given.slopes(q, 0 * v, *inputs, DT),
        )
        return (
            (jax.jacfwd(forces, 1)(zero, v), moving[1][:, None] * moments),
            (jax.jacfwd(forces)(zero, 0 * v), resting[0][:, None] * moments),
            moving,
        )

    by_v, by_q, moving = jax.jit(jax.vmap(compared))(*states())
    np.testing.assert_allclose(*by_v, atol=1e-11)
    np.testing.assert_allclose(*(x[:, exact] for x in by_q), atol=1e-11)
    saturated = np.abs(theirs()[0][:, 2]) >= 8
    assert saturated.any()
    assert not moving[0][saturated, 2].any()
    assert not moving[1][saturated, 2].any()
    assert moving[0][~saturated, 2].all()


def test_stiffness_and_damping_of_servos_are_derivatives_of_their_torque():
    """Exactly, for moments that are constant: -dtau/dq = K + A^T k A, -dtau/dv = D + A^T d A."""
    model, _ = models()
    a = actuators
    tendon = a.fixed_tendons(model, [{"yaw": 0.7, "extend": -1.3}], 1.7)
    given = a.position(model, a.joints(model, ["yaw", "extend"], [2.0, 3.0]), [5.0, 6.0], 0.3)
    given = given + a.position(model, tendon, 7.0, 0.4, names=["tendon"]) + a.motor(model, tendon, names=["motor"])
    given = given + a.velocity(model, ["yaw"], 0.8, names=["speed"]) + a.damper(model, ["extend"], 2.0, names=["brake"])
    zero = jnp.zeros(model.nv)

    def compared(given, q, v, control):
        tau = lambda d, v: given.torque(lgjax.retract(model, q, d), v, control)
        found = given.implicit(q, v, control)
        square = lambda x: found.rows.T @ (x[:, None] * found.rows)
        return (
            (-jax.jacfwd(tau)(zero, v), jnp.diag(found.stiffness) + square(found.row_stiffness)),
            (-jax.jacfwd(tau, 1)(zero, v), jnp.diag(found.damping) + square(found.row_damping)),
            (found.rows, tau(zero, v)),
        )

    q, v, control, _ = states()
    stiff, damped, (rows, tau) = jax.jit(jax.vmap(compared, (None, 0, 0, 0)))(given, q, v, control[:, : len(given)])
    np.testing.assert_allclose(*stiff, atol=1e-12)
    np.testing.assert_allclose(*damped, atol=1e-12)
    assert rows.shape == (STATES, 1, model.nv)  # one servo on a tendon: what only drives it has no row
    held = given.within(model, ["yaw"], (-5, 5))
    kept, _, (rows, clipped) = jax.jit(jax.vmap(compared, (None, 0, 0, 0)))(held, q, v, control[:, : len(given)])
    np.testing.assert_allclose(clipped[:, 6], np.clip(tau[:, 6], -5, 5), atol=1e-12)
    np.testing.assert_array_equal(clipped[:, 7:], tau[:, 7:])
    beyond = np.abs(tau[:, 6]) > 5
    assert beyond.any()
    assert not kept[1][beyond, 6].any()
    np.testing.assert_allclose(kept[1][~beyond], stiff[1][~beyond], atol=1e-12)


def test_a_torque_speed_line():
    """Full force braking and at rest, none beyond no_load_speed; what is not asked for stays."""
    model, _ = models()
    speed, most = 4.0, 6.0
    given = actuators.motor(model, ["yaw"], force_range=(-2.0, most), no_load_speed=speed)
    v = np.linspace(-6, 6, 25)
    velocities = jnp.zeros((25, model.nv)).at[:, 6].set(v)
    of = jax.jit(jax.vmap(lambda v, u: (given.forces(q, v, u), given.slopes(q, v, u)[1]), (0, None)))
    q = lgjax.neutral(model)
    for control, end in ((jnp.asarray([100.0]), most), (jnp.asarray([-100.0]), -2.0)):
        share = np.clip(1 - np.sign(end) * v / speed, 0, 1)
        force, slope = of(velocities, control)
        np.testing.assert_allclose(force[:, 0], end * share, atol=1e-12)
        np.testing.assert_allclose(slope[:, 0], np.where((share > 0) & (share < 1), -abs(end) / speed, 0), atol=1e-12)
    np.testing.assert_allclose(of(velocities, jnp.asarray([0.1]))[0][v < 3.8, 0], 0.1)
    unlimited = actuators.motor(model, ["yaw"], [2.0]) + actuators.motor(model, ["extend"])
    slopes = jax.grad(lambda x, v: jnp.sum(unlimited.replace(gain=x).forces(q, v, jnp.ones(2))), (0, 1))
    assert all(np.all(np.isfinite(x)) for x in slopes(unlimited.gain, velocities[3]))


def test_a_dc_motor_is_its_circuit():
    """Torque K i with the current (u - K w) / R of a motor behind a gear, which lags by L / R."""
    model, _ = models()
    K, R, L, gear, volts = 0.12, 2.5, 0.05, 7.0, 12.0
    stall, free = gear * K * volts / R, volts / (gear * K)
    given = actuators.dc_motor(model, ["yaw"], stall, free, volts, time_constant=L / R)
    q, v = lgjax.neutral(model), jnp.zeros(model.nv).at[6].set(3.0)
    current = lambda u, w: (u - K * gear * w) / R
    without = actuators.dc_motor(model, ["yaw"], stall, free, volts)
    np.testing.assert_allclose(without.forces(q, v, jnp.asarray([5.0])), gear * K * current(5.0, 3.0), atol=1e-12)
    np.testing.assert_allclose(without.forces(q, v, jnp.asarray([50.0])), gear * K * current(volts, 3.0), atol=1e-12)
    i, activation = 0.4, jnp.asarray([gear * K * 0.4])
    for _ in range(3):  # exact over any step while voltage and speed stay
        step = given.advance(activation, given.rates(q, v, jnp.asarray([5.0]), activation), 0.013)
        np.testing.assert_allclose(given.forces(q, v, jnp.asarray([5.0]), activation, 0.013), step, atol=1e-12)
        i, activation = current(5.0, 3.0) + (i - current(5.0, 3.0)) * np.exp(-0.013 * R / L), step
        np.testing.assert_allclose(activation, gear * K * i, atol=1e-12)


def test_slopes_of_a_force_that_lags():
    """Of a e^(-dt / tau) + f (1 - e^(-dt / tau)) at the end of a step, none at its beginning."""
    model, _ = models()
    given = actuators.general(
        model, ["yaw"], (2, -1, 0.5), (0.3, -2, -0.7), dynamics="lag", time_constant=0.2, early=True
    )
    q, v, u, a = lgjax.neutral(model), jnp.ones(model.nv), jnp.asarray([1.7]), jnp.asarray([0.4])
    share = 1 - np.exp(-DT / 0.2)
    np.testing.assert_allclose(np.ravel(given.slopes(q, v, u, a, DT)), [share * (-1.7 - 2), share * (0.85 - 0.7)])
    np.testing.assert_array_equal(np.ravel(given.slopes(q, v, u, a)), 0)


def test_step_responses_of_activations():
    model, _ = models()
    a = actuators
    tau, steps, control = 0.3, 40, jnp.asarray([0.7] * 4)
    kinds = ("integrator", "filter", "filterexact", "lag")
    given = [a.general(model, ["yaw"], dynamics=kind, time_constant=tau, names=[kind]) for kind in kinds]
    given = given[0] + given[1] + given[2] + given[3]
    q, v = lgjax.neutral(model), jnp.zeros(model.nv)

    def end(dt):
        step = lambda _, x: given.advance(x, given.rates(q, v, control, x), dt)
        return jax.lax.fori_loop(0, steps, step, jnp.asarray([0.1] * 4))

    found = jax.jit(jax.vmap(end))(jnp.asarray([0.01, 0.005]))
    for row, dt in zip(found, (0.01, 0.005), strict=True):
        t = steps * dt
        np.testing.assert_allclose(row[0], 0.1 + 0.7 * t, atol=1e-12)
        np.testing.assert_allclose(row[2:], 0.7 - 0.6 * np.exp(-t / tau), atol=1e-12)
        np.testing.assert_allclose(row[1], 0.7 - 0.6 * (1 - dt / tau) ** steps, atol=1e-12)  # that of Euler's steps
    assert a.intvelocity(model, ["yaw"]).na == 1


def test_gains_and_ranges_are_batched_and_differentiated():
    model, _ = models()
    q, v, control, activation = jax.tree.map(lambda x: jnp.asarray(x[2]), states())

    def work(kp, kv, low, high, tau, gear, stall):
        a = actuators
        servo = a.position(model, a.joints(model, ["yaw"], gear), kp, kv, force_range=(low, high), names=["servo"])
        slow = a.position(model, ["extend"], kp, time_constant=tau, control_range=(low, high))
        given = servo + slow + a.dc_motor(model, ["yaw"], stall, 10.0)
        rates = given.rates(q, v, control[:3], activation[:1])
        return jnp.dot(given.torque(q, v, control[:3], activation[:1]), v) + jnp.sum(rates**2)

    for low, high in ((-3e3, 3e3), (-0.2, 0.2)):
        at = (9.0, 0.4, low, high, 0.3, 2.0, 5.0)
        slopes = jax.jit(jax.grad(work, tuple(range(7))))(*map(jnp.asarray, at))
        of = jax.jit(jax.vmap(work))
        h = 1e-6 * np.eye(7)
        ends = [of(*jnp.asarray(np.asarray(at) + sign * h).T) for sign in (1, -1)]
        np.testing.assert_allclose(slopes, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)
        assert bool(slopes[2] or slopes[3]) == (high < 1)  # whether a limit is reached
    bad = jax.jit(work)
    assert all(jnp.isnan(bad(*x)) for x in ((-1.0, *at[1:]), (*at[:2], 1.0, *at[3:]), (*at[:4], 0.0, *at[5:])))


def test_a_force_of_constant_controls():
    model, _ = models()
    a = actuators

    def made(model):
        rope = a.spatial_tendons(model, [["hook", "jet", "tip"]])
        return a.position(model, rope, 20.0, 2.0, time_constant=0.1, names=["rope"]) + a.position(model, ["yaw"], 3.0)

    q, v, control, activation = jax.tree.map(lambda x: jnp.asarray(x[1]), states())
    given, inputs = made(model), (control[:2], activation[:1])
    force = given.as_force(*inputs)
    moved = model.replace(frames=model.frames._replace(translation=model.frames.translation + 0.1))

    def compared(force):
        changed = force.for_model(moved) + lgjax.forces.spring(model, 0.0)
        return (
            (force(0.0, q, v), given.torque(q, v, *inputs)),
            ((*force.slopes(0.0, q, v), *force.rows(0.0, q, v)), tuple(given.implicit(q, v, *inputs))),
            (changed(0.0, q, v), given.replace(transmission=made(moved).transmission).torque(q, v, *inputs)),
        )

    for mine, their in jax.jit(compared)(force):
        jax.tree.map(np.testing.assert_array_equal, mine, their)


def test_torque_of_servos_needs_few_operations():
    model, _ = models()
    given = actuators.position(model, None, 5.0, 0.1)
    q, v, *_ = jax.tree.map(lambda x: jnp.asarray(x[0]), states())
    found = jax.make_jaxpr(lambda given, q, v, u: given.torque(q, v, u))(given, q, v, jnp.ones(2))
    names = [eqn.primitive.name for eqn in found.eqns]
    assert len(names) <= 42, found
    assert max(np.prod(x.aval.shape) for eqn in found.eqns for x in eqn.outvars) <= model.nv
    motor = jax.make_jaxpr(lambda given, q, v, u: given.torque(q, v, u))(actuators.motor(model), q, v, jnp.ones(2))
    assert len(motor.eqns) <= 12, motor


def test_records():
    model, _ = models()
    given = made(model)
    assert "18, 7 with activation: a, b, c" in repr(given)
    assert given.names == tuple("abcdefghijklmnoprq")
    assert actuators.motor(model).names == ("yaw", "extend")
    half = actuators.position(model).astype(jnp.float32)
    assert {x.dtype for x in jax.tree.leaves(half)} == {jnp.dtype(jnp.float32)}
    assert half.start().history.dtype == jnp.float32
    bare = actuators.motor(model, force_range=[(-np.inf, np.inf), (-2, 2)])
    assert bare.terms == ("", "f")
    q, v = lgjax.neutral(model), jnp.ones(model.nv)
    held = bare.replace(force_range=jnp.asarray([[-1.0, 1.0]] * 2), bias=jnp.asarray([[0.3, 0, 0], [0, 0, -0.5]]))
    np.testing.assert_allclose(held.forces(q, v, jnp.asarray([0.2, 0.1])), [0.5, -0.4])  # new terms count
    np.testing.assert_allclose(held.forces(q, v, jnp.asarray([5.0, 0.1])), [1.0, -0.4])
    again = given.within(model, ["extend"], (-1, 1)).within(model, ["yaw"], (-2, 2))
    assert dict(zip(again.joint_columns, again.joint_range.tolist(), strict=True)) == {7: [-1, 1], 6: [-2, 2]}
    effort = model.replace(effort=model.effort.at[6].set(3.0))
    assert actuators.motor(model, ["yaw"]).within(effort, ["yaw"]).joint_range.tolist() == [[-3, 3]]


WRONG = {
    "an unknown joint": (lambda a, m: a.motor(m, ["jaw"]), "no joint 'jaw' in 'marionette'"),
    "a ball": (lambda a, m: a.motor(m, ["swivel"]), "'swivel' is spherical and has no scalar coordinate"),
    "negative kp": (lambda a, m: a.position(m, ["yaw"], -1.0), "kp of 'yaw' is -1, expected finite and at least 0"),
    "gains": (lambda a, m: a.position(m, ["yaw"], [1.0, 2.0]), r"kp has shape \(2,\)"),
    "a range": (lambda a, m: a.motor(m, ["yaw"], control_range=(1, -1)), "control_range of 'yaw' is from 1 to -1"),
    "ranges": (lambda a, m: a.motor(m, ["yaw"], force_range=[1, 2, 3]), r"force_range has shape \(3,\)"),
    "a delay": (lambda a, m: a.motor(m, ["yaw"], delay=-0.1), "delay of 'yaw' is -0.1"),
    "a line": (lambda a, m: a.motor(m, ["yaw"], no_load_speed=3.0), "no_load_speed needs a force_range"),
    "a time": (lambda a, m: a.position(m, ["yaw"], time_constant=0.0), "time_constant of 'yaw' is 0"),
    "a kind": (lambda a, m: a.general(m, ["yaw"], dynamics="muscle"), "must be one of none, integrator, filter"),
    "a gain": (lambda a, m: a.general(m, ["yaw"], (1, 2)), r"gain has shape \(2,\), expected \(3,\)"),
    "names": (lambda a, m: a.motor(m, names=["a"]), "1 names for 2 actuators"),
    "one twice": (lambda a, m: a.motor(m, ["yaw", "yaw"]), "two actuators are called 'yaw'; names= gives others"),
    "both": (lambda a, m: a.motor(m) + a.position(m), "both have an actuator 'extend'; names= of their makers"),
    "a control": (
        lambda a, m: a.motor(m).forces(lgjax.neutral(m), jnp.zeros(m.nv), jnp.zeros(3)),
        r"control has shape \(3,\), expected \(2,\)",
    ),
    "no activation": (
        lambda a, m: a.intvelocity(m).forces(lgjax.neutral(m), jnp.zeros(m.nv), jnp.zeros(2)),
        "activation is missing: 'yaw' has one",
    ),
    "no samples": (lambda a, m: a.motor(m, delay=0.1).start(), r"actuators.sampled\(dt\) has it"),
    "another model": (
        lambda a, m: a.motor(m, a.joints(lgjax.models.arm())), "of 'arm', not of the model",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named(what):
    make, message = WRONG[what]
    with pytest.raises(ValueError, match=message):
        make(actuators, models()[0])
