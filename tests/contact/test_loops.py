"""Closed loops and contacts in one step: against models without the loop, closed forms, and smooth integrators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Body, Contacts, Joint, Loop, build, forces
from lgjax.contact import ContactStatus, Implicit, TimeStepping, contact_step
from lgjax.dynamics.loops.status import LoopStatus
from lgjax.shapes import Plane, capsule, sphere

DTYPES = (jnp.float64, jnp.float32)
AXIS_Y = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0.0]])  # z of the frame along -y of the body


def bar(name, parent, position):
    place = np.eye(3), np.asarray(position, float)
    hinge = Joint(f"{name}_joint", "revolute", (0, 1, 0))
    return Body(name, parent, hinge, *place, 1.0, np.array([0.25, 0, 0]), np.diag([0.02, 0.03, 0.025]))


def four_bar(dtype=jnp.float64):
    """Bars of 0.3, 0.7 and 0.5 m on pivots 0.6 m apart: the joints are no linear functions of one another."""
    bars = [bar("a", None, (0, 0, 0)), bar("b", "a", (0.3, 0, 0)), bar("c", "b", (0.7, 0, 0))]
    model = build(bars, "four bar", dtype=dtype)
    pivot = lambda x: np.block([[AXIS_Y, np.array([[x], [0], [0]])], [0, 0, 0, 1]])
    loop = Loop("revolute", None, "c", pivot(0.6), pivot(0.5))
    q = lgjax.configuration(model, joints=jnp.array([-1.7, 1.3, 1.6], dtype))
    q = lgjax.project_positions(model, loop, q).q
    v = lgjax.project_velocity(model, loop, q, jnp.array([3.0, 0, 0], dtype))
    return model, loop, q, v


def test_a_linkage_moves_with_order_two_and_stays_closed():
    model, loop, q, v = four_bar()
    end = lgjax.rollout(model, q, v, None, 1e-3, 500, loops=loop, save_every=None)
    errors = []
    for steps in (50, 100):
        found = lgjax.rollout(model, q, v, None, 0.5 / steps, steps, TimeStepping(), loops=loop)
        assert found.status == LoopStatus.REDUNDANT  # five rows hold a plane linkage, of which two would do
        assert found.residual[-1] < 1e-10
        assert found.rate[-1] < 1e-12
        errors.append(float(jnp.max(jnp.abs(found.v[-1] - end.v[-1]))))
    assert 3.5 < errors[0] / errors[1] < 4.5
    assert errors[1] < 1e-2
    # Its end is a start: the loops are closed and do not open.
    last = jax.tree.map(lambda x: x[-1], found.q)
    assert lgjax.rollout(model, last, found.v[-1], None, 5e-3, 2, TimeStepping(), loops=loop).success


def walker(held: bool, dtype=jnp.float64):
    """A floating body on three ball feet; one leg is in two parts, which a weld holds, or in one."""
    joint = Joint("knee", "revolute", (0, 1, 0)) if held else Joint("knee", "fixed")
    inertia = np.diag([0.02, 0.03, 0.025])
    lower = Body("shin", "thigh", joint, np.eye(3), np.array([0, 0, -0.2]), 0.3, np.array([0, 0, -0.1]), inertia / 5)
    bodies = [
        Body("trunk", None, Joint("root", "free"), mass=2.0, com=np.array([0.01, 0, 0]), inertia=inertia * 2),
        Body("thigh", "trunk", Joint("hip", "revolute", (0, 1, 0)), np.eye(3), np.array([0.2, 0, 0]), 0.4,
             np.array([0, 0, -0.1]), inertia / 4),
        lower,
    ]  # fmt: skip
    model = build(bodies, "walker", dtype=dtype)
    ball = lambda x, y, z: sphere(0.03, np.array([x, y, z]))
    feet = {"trunk": [ball(-0.2, 0.15, -0.4), ball(-0.2, -0.15, -0.4)], "shin": [ball(0, 0, -0.2)]}
    loop = Loop("weld", "thigh", "shin", np.array([0, 0, -0.2]), None)
    return model, feet, loop


def test_a_welded_knee_is_no_knee():
    """The same motion as that of the model whose leg is one body: falling, striking, sliding, standing."""
    found = []
    for held in (False, True):
        model, feet, loop = walker(held)
        contacts = Contacts(model, Plane((0.1, 0, 1.0)), feet, friction=0.3, restitution=0.5)
        joints = jnp.zeros(model.tree.n_joint)
        q = lgjax.configuration(model, (jnp.eye(3), jnp.array([0, 0, 0.48])), joints)
        v = jnp.zeros(model.nv).at[:7].set(jnp.array([0.5, 1.0, 0.2, 1.0, 0.3, -1.0, 2.0]))
        servo = forces.spring(model, 20.0, joints=["hip"]) + forces.damper(model, 0.5, joints=["hip"])
        closed = {"loops": loop} if held else {}
        path = lgjax.rollout(model, q, v, servo, 2e-3, 400, TimeStepping(), contacts=contacts, **closed)
        assert path.success
        assert path.status & ~int(ContactStatus.AT_ONCE) == (LoopStatus.REDUNDANT if held else 0)
        found.append((path.q.free_poses.translation, path.v[:, :7], path.contacts.force))
    assert jnp.max(jnp.abs(found[0][2][-1])) > 1
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-8)


def gripper(dtype=jnp.float64):
    """Two ball-tipped fingers that slide along x, and a ball between them; a coupling keeps the fingers symmetric."""
    slide = lambda name: Joint(f"{name} slide", "prismatic", (1, 0, 0))
    finger = lambda name, x: Body(name, None, slide(name), np.eye(3), np.array([x, 0, 0]), 0.2, inertia=np.eye(3) / 1e3)
    bodies = [finger("left", -0.1), finger("right", 0.1)]
    bodies += [Body("ball", None, Joint("free", "free"), mass=0.5, com=np.zeros(3), inertia=np.eye(3) * 5e-4)]
    model = build(bodies, "gripper", dtype=dtype)
    loop = Loop(symmetric, name="symmetric")
    shapes = {"left": capsule(0.05, 0.3), "right": capsule(0.05, 0.3), "ball": sphere(0.05)}
    return model, loop, shapes


def symmetric(model, q):
    return q.joints[:1] + q.joints[1:]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gripper_holds_a_ball_up_to_the_friction_limit(dtype):
    """A force f on one of two coupled fingers presses each with f / 2; the ball is held if mu f > m g, and falls with
    g - mu f / m otherwise."""
    model, loop, shapes = gripper(dtype)
    contacts = Contacts(model, (), shapes, pairs=[("ball", "left"), ("ball", "right")], friction=0.5)
    q, v = lgjax.configuration(model), jnp.zeros(model.nv, dtype)
    weight = 0.5 * 9.81

    def drop(f):
        tau = jnp.zeros(model.nv, dtype).at[0].set(f)
        push = jax.tree_util.Partial(constant, tau)
        path = lgjax.rollout(model, q, v, push, 1e-3, 40, TimeStepping(), contacts=contacts, loops=loop)
        return path.v[-1], path.contacts.force[-1, :, 0], path.status, path.q.joints[-1]

    limit = weight / 0.5
    pushes = jnp.array([0.9, 1.01, 2.0], dtype) * limit
    end, normal, status, fingers = jax.vmap(drop)(pushes)
    small = 1e-9 if dtype == jnp.float64 else 2e-5
    assert not np.any(status)
    np.testing.assert_allclose(normal, np.stack([pushes / 2] * 2, 1), rtol=10 * small)
    np.testing.assert_allclose(fingers[:, 0], -fingers[:, 1], atol=small)
    np.testing.assert_allclose(end[1:], 0, atol=small)
    np.testing.assert_allclose(end[0, -1], -0.1 * 9.81 * 0.04, rtol=1e3 * small)


def constant(tau, t, q, v):
    return tau


def test_a_stiff_servo_stays_stable_and_a_spring_keeps_its_energy():
    """A servo whose own frequency is far above the step's settles; without damping the energy oscillates, by h^2."""
    model = build([bar("a", None, (0, 0, 0)), bar("b", "a", (0.5, 0, 0))], "arm")
    q, v = lgjax.configuration(model, joints=jnp.array([0.3, -0.2])), jnp.zeros(2)
    servo = forces.spring(model, 1e5) + forces.damper(model, 1e3)
    end = lgjax.rollout(model, q, v, servo, 2e-3, 500, TimeStepping(), save_every=None)
    last = jax.tree.map(lambda x: x[-1], end.q)
    np.testing.assert_allclose(1e5 * last.joints, -lgjax.gravity_forces(model, last), rtol=1e-2)
    weightless = model.replace(gravity=jnp.zeros(3))
    spring = forces.spring(weightless, 50.0)
    changes = []
    for h in (4e-3, 2e-3):
        path = lgjax.rollout(weightless, q, v, spring, h, 400, TimeStepping())
        energy = jax.vmap(lambda q, v: lgjax.total_energy(weightless, q, v) + spring.energy(q))(path.q, path.v)
        changes.append(float(jnp.max(jnp.abs(energy / energy[0] - 1))))
    assert 3 < changes[0] / changes[1] < 5
    assert changes[1] < 5e-2


def test_a_row_gives_way_as_a_joint_does():
    """Stiffness and damping of a row that is one joint's rate are those of the joint; along two joints, those of M."""
    model = build([bar("a", None, (0, 0, 0)), bar("b", "a", (0.5, 0, 0))], "arm")
    q, v = lgjax.configuration(model, joints=jnp.array([0.3, -0.2])), jnp.array([1.0, -2.0])
    tau, h, k, d = jnp.array([3.0, 1.0]), 1e-2, 400.0, 30.0
    still = TimeStepping(iterations=0)
    own = Implicit(jnp.array([0.0, k]), jnp.array([0.0, d]))
    row = Implicit(None, None, jnp.array([[0.0, 1.0]]), jnp.array([k]), jnp.array([d]))
    one, other = (contact_step(model, None, q, v, tau, h, implicit=given, method=still) for given in (own, row))
    np.testing.assert_allclose(other.v, one.v, rtol=1e-12)
    both = jnp.array([[1.0, -0.5]])
    found = contact_step(model, None, q, v, tau, h, implicit=row._replace(rows=both), method=still)
    middle = q._replace(joints=q.joints + h / 2 * v)
    M = np.asarray(lgjax.mass_matrix(model, middle)) + (h * d + h * h * k / 4) * np.asarray(both.T @ both)
    expected = np.asarray(v) + np.linalg.solve(M, h * np.asarray(tau - lgjax.bias_forces(model, middle, v)))
    np.testing.assert_allclose(found.v, expected, rtol=1e-12)


def test_derivatives_of_a_step_with_loops_are_those_of_differences():
    model, feet, loop = walker(True)
    contacts = Contacts(model, Plane((0.0, 0, 1.0)), feet, friction=0.3)
    q = lgjax.configuration(model, (jnp.eye(3), jnp.array([0, 0, 0.4295])), jnp.zeros(2))
    v = jnp.array([0.1, 0.2, 0.1, 0.4, 0.1, -1.0, 0.3, 0.0])

    @jax.jit
    def after(tau):
        found = contact_step(model, contacts, q, v, tau, 2e-3, loops=loop)
        return jnp.concatenate([found.v, found.q.joints, found.impulse.reshape(-1)])

    tau, along = jnp.linspace(-1.0, 1.0, 8), jnp.cos(jnp.arange(8.0))
    value, slope = jax.jit(lambda tau: jax.jvp(after, (tau,), (along,)))(tau)
    assert jnp.sum(jnp.abs(value[10:]) > 1e-6) > 3  # contacts push
    differences = (after(tau + 1e-5 * along) - after(tau - 1e-5 * along)) / 2e-5
    np.testing.assert_allclose(slope, differences, rtol=1e-5, atol=1e-9)
    weights = jnp.sin(jnp.arange(float(len(value))))
    pulled = jax.jit(jax.grad(lambda tau: after(tau) @ weights))(tau)
    np.testing.assert_allclose(pulled @ along, slope @ weights, rtol=1e-9)
