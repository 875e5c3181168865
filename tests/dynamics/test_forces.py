"""Forces derive from their potentials, dissipate what they should, and add up."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax.dynamics import forces
from tests.dynamics import trees


@cache
def robot() -> lgjax.Model:
    """A floating body with a ball joint, a slider and a hinge with limits; the ends are frames of their own."""
    return lgjax.build(
        [
            trees.body("base", None, "free", 1),
            trees.body("upper", "base", "spherical", 2),
            trees.body("lower", "upper", "prismatic", 3, lower=-0.4, upper=0.3),
            trees.body("tip", "lower", "fixed", 4),
            trees.body("lid", "base", "revolute", 5, lower=-0.5, upper=0.5),
        ],
        "robot",
    )


POINT = (0.1, -0.2, 0.3)
ANCHOR = (0.5, 0.4, -0.3)


def rest(model):
    return lgjax.configuration(
        model, joints=[0.2, -0.1], ball_rotations=lgjax.so3.exp(jnp.asarray([[0.3, -0.2, 0.5]]))[None, 0]
    )


def between(model):
    return forces.point_spring(model, ("tip", POINT), ("lid", ANCHOR), 6.0, 0.3)


CONSERVATIVE = {
    "springs": lambda m: forces.spring(m, [3.0, 3.0, 3.0, 5.0, 7.0], rest(m)),
    "limits": lambda m: forces.limits(m, 40.0, width=0.2),
    "of no length": lambda m: forces.point_spring(m, ("upper", (0, 0, 0)), ("upper", (0, 0, 0)), 6.0, 0.3),
    "a sum": lambda m: forces.spring(m, 2.0) + forces.limits(m, [10.0, 20.0]) + between(m),
}
# The power that a force takes away, by hand.
DISSIPATIVE = {
    "friction": (
        lambda m: forces.friction(m, 0.3, [0.1, 0.2, 0.3, 0.4, 0.5], 0.05),
        lambda v: sum(0.3 * v[6:] ** 2 + jnp.asarray([0.1, 0.2, 0.3, 0.4, 0.5]) * v[6:] * jnp.tanh(v[6:] / 0.05)),
    ),
    "damper": (lambda m: forces.damper(m, 0.7, ["lid_joint"]), lambda v: 0.7 * v[10] ** 2),
}


def states(model):
    q, v, *_ = trees.random_states(model, 6)
    # some beyond the limits, some within the parabolas behind them, some inside
    return q._replace(joints=jnp.linspace(-0.8, 0.8, 12).reshape(6, 2)), v


def one_state(model):
    return jax.tree.map(lambda x: x[-1], states(model))


def along_retraction(f, model, q):
    return jax.grad(lambda d: f(lgjax.retract(model, q, d)))(jnp.zeros(model.nv))


@cache
def of_conservative():
    model = robot()

    def facts(q, v):
        out = {}
        for name, make in CONSERVATIVE.items():
            force = make(model)
            out[name] = force(0.0, q, v), along_retraction(force.energy, model, q)
        return out

    q, v = states(model)
    home = jax.tree.map(lambda x: x[None], lgjax.neutral(model))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), q, home)
    return jax.tree.map(np.asarray, jit(jax.vmap(facts))(both, jnp.concatenate([v, 0 * v[:1]])))


@pytest.mark.parametrize("name", CONSERVATIVE)
def test_a_conservative_force_is_minus_the_gradient_of_its_energy(name):
    """At random states and at home, at rest."""
    tau, slope = of_conservative()[name]
    np.testing.assert_allclose(tau, -slope, rtol=0, atol=1e-12)
    assert np.abs(tau).max() > 0.1 or name == "of no length"


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_spring_without_length_is_linear_also_where_its_points_meet(dtype):
    """The second derivatives of its energy are its stiffness, those of its force are zero."""
    ball = lgjax.build([lgjax.Body("ball", None, lgjax.Joint("free", "free"), mass=1.0, inertia=np.eye(3))])
    model, along = ball.astype(dtype), jnp.asarray([1.0, 2.0, 3.0], dtype)
    spring = forces.point_spring(model, ("ball", np.zeros(3)), (None, np.zeros(3)), 3.0)

    def bent(f, x):
        at = lambda x: lgjax.configuration(model, lgjax.Pose(jnp.eye(3, dtype=dtype), x))
        return jax.jvp(jax.grad(lambda x: f(at(x))), (x,), (along,))[1]

    places = jnp.asarray([[d, 0.0, -d] for d in (0.0, 1e-13, 1e-9, 0.3)], dtype)
    energy = jit(jax.vmap(lambda x: bent(spring.energy, x)))(places)
    force = jit(jax.vmap(lambda x: bent(lambda q: jnp.sum(spring(0.0, q, jnp.zeros(6, dtype))[3:]), x)))(places)
    eps = jnp.finfo(dtype).eps
    np.testing.assert_allclose(energy, np.tile(3.0 * along, (4, 1)), rtol=100 * eps)
    np.testing.assert_allclose(force, 0.0, atol=100 * eps)


@pytest.mark.parametrize("name", DISSIPATIVE)
def test_a_dissipative_force_takes_power(name):
    model = robot()
    make, power = DISSIPATIVE[name]
    for v in states(model)[1]:
        tau = make(model)(0.0, lgjax.neutral(model), v)
        np.testing.assert_allclose(tau @ v, -power(v), rtol=1e-13)
        assert not np.any(tau[:6])


def test_energy_changes_by_what_dampers_take():
    """d/dt (T + U + energy of the springs) = tau . v of a controller - c (d distance/dt)^2 - d v^2 behind limits."""
    model = robot()
    spring = forces.point_spring(model, ("tip", POINT), (None, ANCHOR), 6.0, 0.3, damping=2.0)
    push = jnp.linspace(-1, 1, model.nv)
    force = spring + forces.limits(model, 40.0, damping=3.0, width=0.2) + (lambda t, q, v: push)

    def along(q, v, vdot):
        def at(t):
            there = lgjax.retract(model, q, t * v)
            tip = lgjax.frame_pose(model, there, "tip")
            distance = jnp.linalg.norm(tip.rotation @ jnp.asarray(POINT) + tip.translation - jnp.asarray(ANCHOR))
            return lgjax.total_energy(model, there, v + t * vdot) + force.energy(there), distance

        zero = jnp.zeros(())
        return jax.jvp(at, (zero,), (zero + 1,))

    def balance(q, v):
        (_, distance), (rate, stretching) = along(q, v, lgjax.forward_dynamics(model, q, v, force(0.0, q, v)))
        depth = jnp.maximum(q.joints - model.upper, 0) + jnp.maximum(model.lower - q.joints, 0)
        stopped = jnp.sum(3 * jnp.minimum(depth / 0.2, 1) * v[9:] ** 2)
        return rate, push @ v - 2 * stretching**2 - stopped, spring.energy(q), 3 * (distance - 0.3) ** 2

    rate, power, energy, expected = jit(jax.vmap(balance))(*states(model))
    np.testing.assert_allclose(rate, power, rtol=0, atol=1e-10)
    np.testing.assert_allclose(energy, expected, rtol=1e-12)


def test_derivatives_of_dry_friction_at_rest_are_finite_and_right():
    model = robot()
    force = forces.friction(model, 0.3, 0.2, 0.05)
    slope = jax.jacrev(lambda v: force(0.0, lgjax.neutral(model), v))(jnp.zeros(model.nv))
    np.testing.assert_allclose(slope, -np.diag([0.0] * 6 + [0.3 + 0.2 / 0.05] * 5), rtol=1e-14)


def test_motors_give_what_their_speed_allows_and_their_rotors_add_inertia():
    model = robot()
    hinge, gear, speed = 10, 5.0, 20.0
    motor = forces.motors(model, lambda t, q, v: t * jnp.ones(1), gear, 0.01, 2.0, speed, joints=["lid_joint"])
    q = lgjax.neutral(model)
    for command, rate, expected in [
        (1.0, 0.0, 5.0), (3.0, 0.0, 10.0), (-3.0, 0.0, -10.0),
        (3.0, 2.0, 5.0), (-3.0, 2.0, -10.0), (3.0, 5.0, 0.0), (-3.0, -3.0, -2.5),
    ]:  # fmt: skip
        v = jnp.zeros(model.nv).at[hinge].set(rate)
        np.testing.assert_allclose(motor(command, q, v)[hinge], expected, rtol=1e-12)
    unlimited = forces.motors(model, lambda t, q, v: v[9:], 2.0)
    slope = jax.jacrev(lambda v: unlimited(0.0, q, v))(jnp.ones(model.nv))
    np.testing.assert_allclose(slope, np.diag([0.0] * 9 + [2.0] * 2))
    added = motor.with_rotors(model).armature - model.armature
    np.testing.assert_allclose(added, np.eye(model.nv)[hinge] * 25 * 0.01, rtol=1e-12)


def last_position(stiffness):
    """Of a double pendulum after 20 steps under a sum of a controller and forces."""
    model = lgjax.models.chain(2).astype(stiffness.dtype)
    q, v, dt = lgjax.neutral(model), jnp.ones(2, model.dtype), jnp.asarray(0.01, model.dtype)
    force = (lambda t, q, v: -0.1 * v) + forces.spring(model, stiffness) + forces.friction(model, coulomb=0.1)
    return lgjax.rollout(model, q, v, force, dt, 20, save_every=None).q.joints[-1, 0]


def test_a_sum_controls_a_rollout_over_batches_of_its_parameters_and_is_differentiated_in_them():
    h = 1e-5
    places, slopes = jit(jax.vmap(jax.value_and_grad(last_position)))(jnp.asarray([1.0, 1.0 + h, 1.0 - h]))
    np.testing.assert_allclose(slopes[0], (places[1] - places[2]) / (2 * h), rtol=1e-7)
    assert jax.eval_shape(last_position, jnp.ones((), jnp.float32)).dtype == jnp.float32


def test_gravity_and_wrenches_are_data():
    """Forward dynamics is affine in both; its derivatives are its differences."""
    model = lgjax.models.chain(2)
    q, v, _, tau, wrenches = jax.tree.map(lambda x: x[0], trees.random_states(model))
    f = lambda gravity, wrenches: lgjax.forward_dynamics(model.replace(gravity=gravity), q, v, tau, wrenches)
    change = jnp.asarray([0.3, -2.0, 1.0]), wrenches[::-1]

    @jit
    def both(change):
        at = model.gravity, wrenches
        here, slope = jax.jvp(f, at, change)
        return slope, f(*jax.tree.map(jnp.add, at, change)) - here

    slope, difference = both(change)
    np.testing.assert_allclose(slope, difference, rtol=1e-9, atol=1e-9)
    assert np.abs(slope).max() > 1


BAD = {
    r"stiffness of 'upper_joint' is -1, expected finite and at least 0": lambda m: forces.spring(m, -1.0),
    r"stiffness has shape \(2,\), expected a number or \(5,\)": lambda m: forces.spring(m, [1.0, 2.0]),
    r"stiffness of the ball 'upper_joint' is one number": lambda m: forces.spring(m, [1.0, 2, 1, 1, 1]),
    r"no joint 'knee' in 'robot'; joints: base_joint, upper_joint": lambda m: forces.damper(m, 1.0, ["knee"]),
    r"coulomb of 'lid_joint' is nan": lambda m: forces.friction(m, 0.0, [0.0, 0, 0, 0, np.nan]),
    r"smoothing of 'upper_joint' is 0, expected finite and positive": lambda m: forces.friction(m, 1.0, 1.0, 0.0),
    r"the lower limit of 'lower_joint' is 1, above the upper one, 0.3": lambda m: forces.limits(m, 1.0, lower=1.0),
    r"lower of 'lower_joint' is nan, expected a number$": lambda m: forces.limits(m, 1.0, lower=np.nan),
    r"joint 'upper_joint' is a ball: it has no scalar": lambda m: forces.limits(m, 1.0, joints=["upper_joint"]),
    r"width of 'lower_joint' is -0.1, expected finite and positive": lambda m: forces.limits(m, 1.0, width=-0.1),
    r"torque of 'lower_joint' is -1, expected at least 0": lambda m: forces.motors(m, lambda t, q, v: v, torque=-1.0),
    r"gear of 'lower_joint' is inf, expected a finite number": lambda m: forces.motors(m, lambda t, q, v: v, np.inf),
    r"no frame 'toe' in 'robot'; frames: ": lambda m: forces.point_spring(m, ("toe", POINT), (None, POINT), 1.0),
    r"point b of a spring has shape \(2,\)": lambda m: forces.point_spring(m, (0, POINT), (None, (1, 2)), 1.0),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_parameters_are_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD[message](robot())


LIFT = lambda t, q, v: jnp.ones_like(v[-2:])
TRACED = {  # makers from one number, numbers in range, and numbers that a maker refuses where it knows them
    "spring": (forces.spring, [0.0, 2.0], [-1.0, np.inf, np.nan]),
    "damper": (forces.damper, [0.0, 2.0], [-1.0, np.inf, np.nan]),
    "coulomb": (lambda m, x: forces.friction(m, 0.0, x), [0.0, 2.0], [-1.0, np.inf, np.nan]),
    "smoothing": (lambda m, x: forces.friction(m, 0.0, 1.0, x), [0.1], [0.0, -1.0, np.inf, np.nan]),
    "width": (lambda m, x: forces.limits(m, 1.0, width=x), [0.1], [0.0, -1.0, np.inf, np.nan]),
    "lower": (lambda m, x: forces.limits(m, 1.0, lower=x), [-1.0, -np.inf], [1.0, np.inf, np.nan]),
    "torque": (lambda m, x: forces.motors(m, LIFT, torque=x, speed=9.0), [0.0, 1.0, np.inf], [-1.0, np.nan]),
    "gear": (lambda m, x: forces.motors(m, LIFT, x), [-2.0, 0.0], [np.inf, np.nan]),
    "length": (lambda m, x: forces.point_spring(m, (0, POINT), (None, POINT), 1.0, x), [0.0, 2.0], [-1.0, np.nan]),
}


@pytest.mark.parametrize("name", TRACED)
def test_traced_numbers_out_of_range_are_nan_as_forces(name):
    make, good, bad = TRACED[name]
    q, v = one_state(robot())
    for x in bad:
        with pytest.raises(ValueError, match=r"expected|above the upper one"):
            make(robot(), x)
    tau = np.asarray(jit(jax.vmap(lambda x: make(robot(), x)(0.0, q, v)))(jnp.array([*good, *bad])))
    np.testing.assert_allclose(tau[: len(good)], [make(robot(), x)(0.0, q, v) for x in good], rtol=1e-12)
    assert np.all(np.isnan(tau[len(good) :]).any(1))


def test_friction_of_a_traced_model_is_taken_as_it_is():
    """As damping: a search for the friction of a joint may pass through negative numbers."""
    q, v = one_state(robot())
    force = lambda x: forces.friction(robot().replace(friction=x * jnp.ones_like(robot().friction)))(0.0, q, v)
    minus, plus = jit(jax.vmap(force))(jnp.array([-2.0, 2.0]))
    np.testing.assert_array_equal(minus, -plus)
    with pytest.raises(ValueError, match=r"coulomb of .* is -2, expected"):
        force(-2.0)


def touching(model):
    floor = lgjax.shapes.Plane((0.0, 0.0, 1.0))
    contacts = lgjax.Contacts(model, floor, {"lower": lgjax.shapes.sphere(5.0)})
    return lgjax.forces.contact(model, contacts, 1e3)


FOLLOWING = {**CONSERVATIVE, **{name: make for name, (make, _) in DISSIPATIVE.items()}, "contact": touching}
FOLLOWING |= {"dry friction": forces.friction, "some limits": lambda m: forces.limits(m, 40.0, lower=-0.2, width=0.2)}
FOLLOWING |= {"with a controller": lambda m: forces.friction(m, joints=["lid_joint"]) + (lambda t, q, v: -v)}


@pytest.mark.parametrize("name", FOLLOWING)
def test_a_force_for_another_model_is_that_made_of_it(name):
    model, make = robot(), FOLLOWING[name]
    model = model.replace(friction=model.friction + 0.1)
    longer = model.placements._replace(translation=1.2 * model.placements.translation)
    other = model.replace(placements=longer, friction=3 * model.friction, upper=0.5 * model.upper)
    q, v = one_state(model)
    found = make(model).for_model(other)
    np.testing.assert_allclose(found(0.0, q, v), make(other)(0.0, q, v), rtol=1e-13, atol=1e-13)
    if name in ("limits", "a sum", "contact", "dry friction", "with a controller"):
        assert np.abs(found(0.0, q, v) - make(model)(0.0, q, v)).max() > 1e-3


def test_only_forces_and_controllers_are_added():
    with pytest.raises(TypeError, match="adds to forces and to controllers"):
        forces.spring(robot(), 1.0) + 3.0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_motors_without_a_limit_of_torque_have_derivatives(dtype):
    """Slower than their speed they give what is asked for, whatever the gear."""
    model = lgjax.models.chain(2).astype(dtype)
    force = forces.motors(model, lambda t, q, v: jnp.array([1.0, 2.0], dtype) - v, gear=100.0, speed=50.0)
    q, v = lgjax.neutral(model), jnp.array([0.01, 0.02], dtype)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(lambda v: force(0.0, q, v))(v), -100 * np.eye(2))
