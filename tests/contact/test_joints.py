"""Joint limits and dry joint friction in the rigid problem: closed forms, SciPy's minimum, derivatives."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

import lgjax
from lgjax.multibody.build import Body, Joint, build
from tests import optimized
from tests.contact.test_closed_forms import STEP, G

DT, DRY, MASS, LENGTH = 1e-3, 0.3, 2.0, 0.5
INERTIA = 0.01 + MASS * LENGTH**2


@cache
def pendulum():
    """A rod that hangs along -z at angle 0 and turns about y, between -0.5 and 1 rad, with dry friction."""
    joint = Joint("hinge", "revolute", axis=(0, 1, 0), lower=-0.5, upper=1.0, friction=DRY)
    return build([Body("rod", None, joint, mass=MASS, com=np.array([0, 0, -LENGTH]), inertia=0.01 * np.eye(3))])


def run(contacts, angle, speed, torque, steps=400, model=None):
    model = pendulum() if model is None else model
    q = lgjax.configuration(model, joints=jnp.reshape(jnp.asarray(angle, float), (1,)))
    v = jnp.reshape(jnp.asarray(speed, float), (1,))
    push = lambda t, q, v: jnp.reshape(torque, (1,))
    return lgjax.rollout(model, q, v, push, DT, steps, STEP, contacts=contacts)


@pytest.mark.parametrize(("start", "torque", "limit"), [(0.8, 12.0, 1.0), (-0.3, -9.0, -0.5)])
def test_a_pendulum_rests_on_its_limit_which_carries_the_rest_of_the_torque(start, torque, limit):
    path = run(lgjax.Contacts(pendulum(), joint_limits=True), start, 0.0, torque)
    assert path.status == 0
    angle = np.asarray(path.q.joints[:, 0])
    assert np.max(np.abs(angle - 0.25)) < 0.75 + 1e-9  # within the limits in every step
    np.testing.assert_allclose([angle[-1], path.v[-1, 0]], [limit, 0], atol=1e-9)
    carried = MASS * G * LENGTH * np.sin(limit) - torque
    np.testing.assert_allclose(path.contacts.joint_force[-1, 0], carried, rtol=1e-9)
    assert np.all(path.contacts.joint_force[angle == angle[0], 0] == 0)


def test_a_dry_joint_sticks_below_its_friction_and_slides_above():
    """Without gravity: at rest for |torque| < f, else with acceleration (|torque| - f) / I against the friction."""
    model = pendulum().replace(gravity=jnp.zeros(3))
    contacts = lgjax.Contacts(model, joint_friction=["hinge"])
    torque = jnp.asarray([0.0, 0.29, -0.29, 0.31, -0.5, 1.0])
    path = jax.jit(jax.vmap(lambda torque: run(contacts, 0.2, 0.0, torque, 100, model)))(torque)
    expected = np.sign(torque) * np.maximum(np.abs(torque) - DRY, 0) / INERTIA * 100 * DT
    np.testing.assert_allclose(path.v[:, -1, 0], expected, atol=1e-12)
    held = -np.clip(torque, -DRY, DRY)
    np.testing.assert_allclose(path.contacts.joint_force[:, -1, 0], held, atol=1e-10)
    assert not np.any(path.status)


def test_a_sliding_dry_joint_stops_where_its_energy_is_used_up_and_stays():
    model = pendulum().replace(gravity=jnp.zeros(3))
    path = run(lgjax.Contacts(model, joint_friction=True), 0.0, 0.2, 0.0, 600, model)
    np.testing.assert_allclose(path.q.joints[-1, 0], INERTIA * 0.2**2 / 2 / DRY, atol=2e-4)
    assert np.all(np.asarray(path.v)[-100:] == 0)


def test_a_step_with_limits_and_dry_friction_is_the_minimum_that_scipy_finds():
    """Without contacts the law is a convex one: x minimizes x·(G x / 2 + b) between its bounds."""
    model = lgjax.models.quadruped()
    stand = jnp.tile(jnp.asarray([0.0, 0.8, -1.6]), 4)
    model = model.replace(friction=jnp.asarray([0.0] * 6 + [0.5] * 12), lower=stand - 0.01, upper=stand + 0.01)
    # different joints: with both on one joint the minimum has many x
    of = lambda *legs: [name for name in model.joint_names if name.startswith(legs)]
    contacts = lgjax.Contacts(model, joint_limits=of("FL", "RR"), joint_friction=of("FR", "RL"))
    rows = [[model.tree.v_start[body] for body in bodies] for bodies in (contacts.limited, contacts.dry)]
    assert [len(some) for some in rows] == [6, 6]
    random = np.random.default_rng(0)
    angles, v = stand + random.uniform(-0.01, 0.01, (20, 12)), random.normal(size=(20, 18))

    def one(angles, v):
        q = lgjax.configuration(model, (jnp.eye(3), jnp.zeros(3)), angles)
        step = lambda c: lgjax.contact.contact_step(model, c, q, v, jnp.zeros(18), DT)
        half = lgjax.contact.step.move(model, q, v, 0.5 * DT * v)[0]
        armature = jnp.diag(DT * model.damping)
        return step(contacts), half.joints, lgjax.mass_matrix(model, half) + armature

    stepped, half, M = jax.jit(jax.vmap(one))(angles, v)
    assert not np.any(stepped.status)
    # v_free of the same step: what remains without the impulses
    push = np.linalg.solve(M, np.asarray(stepped.joint_impulse)[..., None])[..., 0]
    before = np.asarray(stepped.v) - push
    limited = np.asarray(rows[0]) - 6
    np.testing.assert_array_less(np.abs(np.asarray(stepped.q.joints) - stand)[:, limited], 0.01 + 1e-9)
    for k in range(20):
        offset = np.concatenate([np.zeros(6), half[k] - stand])[rows[0]]  # from the middle of the range
        J = np.concatenate([np.where(offset <= 0, 1.0, -1.0)[:, None] * np.eye(18)[rows[0]], np.eye(18)[rows[1]]])
        b = J @ before[k] + np.concatenate([2 / DT * np.maximum(0.01 - np.abs(offset), 0), np.zeros(6)])
        R = np.linalg.cholesky(J @ np.linalg.solve(M[k], J.T)).T
        bounds = [0.0] * 6 + [-DT * 0.5] * 6, [np.inf] * 6 + [DT * 0.5] * 6
        found = lsq_linear(R, -np.linalg.solve(R.T, b), bounds, tol=1e-14)
        expected = before[k] + np.linalg.solve(M[k], J.T @ found.x)
        turned = [3, 4, 5]  # the velocity of the base, given in axes that turn at the end of the step
        np.testing.assert_allclose(np.delete(stepped.v[k] - expected, turned), 0, atol=1e-6)


def test_derivatives_equal_central_differences():
    """Against the limit, and sliding; with respect to angle, speed, torque, friction and limit."""
    contacts = lgjax.Contacts(pendulum(), joint_limits=True, joint_friction=True)

    def end(x):
        model = pendulum().replace(friction=x[3:4], upper=x[4:5])
        path = run(contacts, x[0], x[1], x[2], 60, model)
        return path.q.joints[-1, 0] + 0.3 * path.v[-1, 0] + 0.1 * path.contacts.joint_force[-1, 0]

    x = jnp.asarray([[0.97, 0.5, 12.0, DRY, 1.0], [0.2, 0.5, 3.0, DRY, 1.0], [0.2, 0.5, -3.0, DRY, 1.0]])
    found = jax.jit(jax.vmap(jax.grad(end)))(x)
    step = 1e-6 * jnp.concatenate([jnp.eye(5), -jnp.eye(5)])
    values = jax.jit(jax.vmap(end))((x[:, None] + step).reshape(-1, 5)).reshape(3, 2, 5)
    slopes = (values[:, 0] - values[:, 1]) / 2e-6
    np.testing.assert_allclose(found, slopes, atol=1e-5 * (1 + np.abs(slopes).max()))
    assert np.all(np.abs(found).max(1) > 1e-3)


def test_joints_without_limits_and_unknown_names_are_refused():
    model = build([Body("rod", None, Joint("hinge", "revolute", axis=(0, 1, 0)), mass=1.0, inertia=np.eye(3))])
    with pytest.raises(ValueError, match=r"\['hinge'\] of .* have no limits"):
        lgjax.Contacts(model, joint_limits=["hinge"])
    with pytest.raises(ValueError, match="no joint 'knee'"):
        lgjax.Contacts(model, joint_friction=["knee"])
    with pytest.raises(ValueError, match="nothing can touch"):
        lgjax.Contacts(model, joint_limits=True)


def test_a_light_finger_does_not_soften_the_contacts_of_a_heavy_base():
    """In single precision: the base stands still, to round-off of a step's impulse over its mass."""
    base = lgjax.Body("base", None, lgjax.Joint("f", "free"), mass=50.0, inertia=np.eye(3))
    finger = lgjax.Body(
        "finger", "base", lgjax.Joint("h", "revolute", (0, 1, 0), friction=1e-2), mass=0.01, inertia=1e-6 * np.eye(3)
    )
    model = lgjax.build([base, finger]).astype("float32")
    ground = lgjax.shapes.Plane((0.0, 0.0, 1.0))
    contacts = lgjax.Contacts(model, ground, {"base": lgjax.shapes.sphere(0.1)}, friction=0.5, joint_friction=True)
    q = lgjax.configuration(model, (jnp.eye(3), (0.0, 0.0, 0.1)), jnp.zeros(1))
    step = jax.jit(lambda q, v: lgjax.contact.contact_step(model, contacts, q, v, jnp.zeros(model.nv, "float32"), 1e-3))
    found = step(q, jnp.zeros(model.nv, "float32"))
    assert found.status == 0
    assert np.abs(found.v[:6]).max() < 1e-6


def test_a_contact_that_the_mechanism_cannot_move_harms_no_other():
    """A slider along the ground beside a ball: neither pushes, neither moves, in both precisions."""
    slider = lgjax.Body("slider", None, lgjax.Joint("x", "prismatic", (1, 0, 0)), position=(0, 0, 0.1), mass=1.0,
                        inertia=np.eye(3))  # fmt: skip
    ball = lgjax.Body("ball", None, lgjax.Joint("f", "free"), mass=1.0, inertia=0.1 * np.eye(3))
    for dtype, friction in (("float64", 0.0), ("float32", 0.0)):
        model = lgjax.build([slider, ball]).astype(dtype)
        shapes = {name: lgjax.shapes.sphere(0.1) for name in ("slider", "ball")}
        contacts = lgjax.Contacts(model, lgjax.shapes.Plane((0.0, 0.0, 1.0)), shapes, friction=friction)
        q = lgjax.configuration(model, (jnp.eye(3), (1.0, 0.0, 0.1)), jnp.zeros(1))
        rest = jnp.zeros(model.nv, dtype)
        found = jax.jit(lambda q, v: lgjax.contact.contact_step(model, contacts, q, v, v, 1e-3))(q, rest)  # noqa: B023
        assert found.status == 0
        np.testing.assert_allclose(found.v, 0, atol=1e-6)


def test_a_limit_that_contradicts_the_ground_is_a_status():
    """The rail ends 5 cm above the floor, in which a ball of 10 cm begins: nothing can hold both."""
    rail = Joint("rail", "prismatic", axis=(0, 0, 1), lower=-1.0, upper=0.05)
    model = build([Body("body", None, rail, mass=2.0, inertia=0.01 * np.eye(3))])
    floor, ball = lgjax.shapes.Plane((0.0, 0.0, 1.0)), {"body": lgjax.shapes.sphere(0.1)}
    contacts = lgjax.Contacts(model, floor, ball, joint_limits=True)
    q = lgjax.configuration(model, joints=[0.05])
    run = lambda v: lgjax.rollout(model, q, v, None, 1e-3, 20, STEP, 5, contacts=contacts)
    path = optimized.jit(run)(jnp.zeros(1))
    assert path.status & lgjax.contact.ContactStatus.NOT_SOLVED
    assert not path.success


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_a_step_that_starts_from_its_own_impulses_needs_few_sweeps(dtype):
    """Also a joint at its limit that is dry as well, whose impulse is the sum of two rows."""
    bodies = [Body("trunk", None, Joint("base", "free"), mass=5.0, inertia=np.diag([0.1, 0.2, 0.2]))]
    for n, (x, y) in enumerate([(0.3, 0.2), (0.3, -0.2), (-0.3, 0.2), (-0.3, -0.2)]):
        for k, axis in enumerate([(1, 0, 0), (0, 1, 0), (0, 1, 0)]):
            joint = Joint(f"joint{n}{k}", "revolute", axis, lower=-0.4, upper=0.5, friction=0.3)
            place = np.eye(3), np.array([x, y, 0.0] if k == 0 else [0.05 * (k - 1), 0, -0.2 * (k - 1)])
            parent = "trunk" if k == 0 else f"leg{n}{k - 1}"
            more = {"mass": 0.3, "com": np.array([0, 0, -0.1]), "inertia": 0.002 * np.eye(3)}
            bodies.append(Body(f"leg{n}{k}", parent, joint, *place, **more))
    model = build(bodies, dtype=dtype)
    feet = {f"leg{n}2": lgjax.shapes.sphere(0.02, (0, 0, -0.2)) for n in range(4)}
    ground = lgjax.shapes.Plane(np.array([0, 0, 1], dtype))
    contacts = lgjax.Contacts(model, ground, feet, friction=0.7, joint_limits=True, joint_friction=True)
    bent = jnp.tile(jnp.asarray([0.0, 0.3, -0.4], dtype), 4)  # the last joint of each leg is at its limit
    q = lgjax.configuration(model, (jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype)), bent)
    lowest = jnp.min(lgjax.contact.contact_points(model, contacts, q).gap)
    q = lgjax.configuration(model, (jnp.eye(3, dtype=dtype), jnp.asarray([0, 0, 1], dtype) * -lowest), bent)
    tau = jnp.zeros(model.nv, dtype).at[6:].set(jnp.tile(jnp.asarray([0.1, 0.5, -2.0], dtype), 4))
    method = lgjax.contact.TimeStepping(1e-6, 500)
    step = jax.jit(
        lambda guess: lgjax.contact.contact_step(model, contacts, q, 0 * tau, tau, 2e-3, guess, method=method)
    )
    first = step((jnp.zeros((4, 3), dtype), jnp.zeros(model.nv, dtype)))
    again = step((first.impulse, first.joint_impulse))
    assert first.status == again.status == 0
    assert first.joint_impulse[8] > 0.3 * 2e-3  # more than friction: the limit carries a part
    assert again.sweeps <= 2
    assert first.sweeps > 5
    np.testing.assert_allclose(again.v, first.v, atol=1e-4 if dtype == jnp.float32 else 1e-5)
