"""Derivatives through events: a hopper's saltation matrices by hand, central differences, and states at rest."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import brentq

import lgjax
from lgjax.multibody.build import Body, Joint, build
from tests import optimized
from tests.contact.test_closed_forms import FLOOR, G, ball, on_floor
from tests.contact.test_event_driven import bounced

TRUNK, FOOT, STIFFNESS, LEG = 2.0, 0.5, 400.0, 0.5  # kg, kg, N/m, m
DT, STEPS = 0.0125, 36
SPHERE = 1e-3


@cache
def hopper():
    """A trunk that moves vertically and a foot below it on a spring; its coordinates are height and extension."""
    up, leg = Joint("height", "prismatic", (0.0, 0.0, 1.0)), Joint("leg", "prismatic", (0.0, 0.0, -1.0))
    bodies = [
        Body("trunk", None, up, mass=TRUNK, inertia=0.1 * np.eye(3)),
        Body("foot", "trunk", leg, mass=FOOT, inertia=0.1 * np.eye(3)),
    ]
    model = build(bodies)
    shape = lgjax.shapes.sphere(SPHERE, (0.0, 0.0, SPHERE - LEG))
    return model, lgjax.Contacts(model, FLOOR, {"foot": shape}, friction=0.5)


def spring(t, q, v):
    return jnp.stack([jnp.zeros_like(v[0]), -STIFFNESS * q.joints[1]])


def hop(state):
    """The state (height, extension, rates) after a fall, a touch-down and a lift-off."""
    model, contacts = hopper()
    q = lgjax.configuration(model, joints=state[:2])
    method = lgjax.contact.EventDriven(1e-12, 1e-14, max_parts=48)
    path = lgjax.rollout(model, q, state[2:], spring, DT, STEPS, method, None, contacts=contacts)
    return jnp.concatenate([path.q.joints[-1], path.v[-1]]), path.status


# ---- the same by hand: linear motions between events, for (trunk, foot) heights and velocities, and a one
TO_MASSES = np.array([[1.0, 0.0], [1.0, -1.0]])  # the foot's height over the ground is height - extension - LEG


def flow(stands):
    """x' = A x of x = (height, foot, rates, 1)."""
    A = np.zeros((5, 5))
    A[:2, 2:4] = np.eye(2)
    pull = STIFFNESS * np.array([-1.0, 1.0, 0.0, 0.0, LEG])  # on the trunk: k (foot + LEG - height)
    A[2] = pull / TRUNK - np.array([0, 0, 0, 0, G])
    if not stands:
        A[3] = -pull / FOOT - np.array([0, 0, 0, 0, G])
    else:
        A[1] = 0
    return A


def by_hand(state):
    """The state at the end and its Jacobian: transition matrices of the phases and saltation matrices between them."""
    both = np.kron(np.eye(2), TO_MASSES)
    x = np.append(both @ state - np.array([0, LEG, 0, 0]), 1.0)
    air, ground = flow(False), flow(True)
    total = np.eye(5)
    touch = brentq(lambda t: (expm(air * t) @ x)[1], 0.01, 0.25, xtol=1e-15, rtol=1e-15)
    before = expm(air * touch) @ x
    reset = np.diag([1.0, 1.0, 1.0, 0.0, 1.0])
    after = reset @ before
    normal = np.eye(5)[1]
    saltation = reset + np.outer(ground @ after - reset @ air @ before, normal) / (normal @ air @ before)
    total = saltation @ expm(air * touch) @ total
    # the foot leaves where its acceleration in the air would be upwards
    lift = brentq(lambda t: (air @ expm(ground * t) @ after)[3], 0.2, 0.36, xtol=1e-15, rtol=1e-15)
    total = expm(ground * lift) @ total  # nothing jumps at lift-off: its saltation matrix is 1
    left = DT * STEPS - touch - lift
    assert left > 0.02  # and no touch-down again
    end = expm(air * left) @ expm(ground * lift) @ after
    total = expm(air * left) @ total
    back = np.linalg.inv(both)
    return back @ (end[:4] + np.array([0, LEG, 0, 0])), back @ total[:4, :4] @ both


STATE = np.array([0.55, 0.01, -0.2, 0.0])


@pytest.mark.parametrize("mode", [jax.jacrev, pytest.param(jax.jacfwd, marks=pytest.mark.slow)])
def test_a_hopper_has_the_saltation_matrices_made_by_hand(mode):
    hopper()  # outside of jit, which the next test could not use it from
    expected, jacobian = by_hand(STATE)
    derivative = jax.jit(lambda x: (*hop(x), mode(lambda x: hop(x)[0])(x)))
    end, status, found = derivative(jnp.asarray(STATE))
    assert status == 0
    np.testing.assert_allclose(end, expected, atol=1e-10)
    np.testing.assert_allclose(found, jacobian, atol=1e-9 * np.abs(jacobian).max())
    # it stands still: finite
    rest = np.array([LEG - (TRUNK * G) / STIFFNESS, -(TRUNK * G) / STIFFNESS, 0.0, 0.0])
    end, status, found = derivative(jnp.asarray(rest))
    np.testing.assert_allclose(end, rest, atol=1e-9)
    assert status == 0
    assert np.all(np.isfinite(found))


def test_second_derivatives_are_refused():
    """They would leave out the curvature of what a change of an event's time does."""
    hopper()
    with pytest.raises(TypeError, match=r"a step by contact\.EventDriven has no second derivatives"):
        jax.eval_shape(jax.hessian(lambda x: hop(x)[0][0]), jnp.asarray(STATE))


# velocity (6,), friction, restitution, height over the floor at the start
MOTIONS = {
    "slides, then rolls": ([0, 0.3, 0, 0.5, 0.1, 0.0], 0.3, 0.0, 0.0),
    "lands and slides": ([1, 2, 0.5, 1.0, 0.3, -1.0], 0.1, 0.0, 0.02),
    "bounces twice": ([1, 2, 0.5, 1.0, 0.3, -1.0], 0.3, 0.6, 0.02),
    "flies": ([1, 2, 0.5, 1.0, 0.3, 0.0], 0.3, 0.0, 1.0),
    "rests": ([0, 0, 0, 0, 0, 0], 0.3, 0.0, 0.0),
}


@pytest.mark.slow
def test_gradients_equal_central_differences():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.0, 0.0)
    method = lgjax.contact.EventDriven(1e-11, 1e-13, max_parts=40)

    def end(x):
        here = contacts.replace(friction=x[6], restitution=x[7])
        place = jnp.stack([jnp.zeros_like(x[8]), jnp.zeros_like(x[8]), 0.1 + x[8]])
        q = lgjax.configuration(ball(), (jnp.eye(3), place))
        path = lgjax.rollout(ball(), q, x[:6], None, 0.01, 20, method, None, contacts=here)
        place = path.q.free_poses.translation[-1, 0]
        return jnp.sum(path.v[-1] * jnp.arange(1.0, 7.0)) + jnp.sum(place * jnp.array([3.0, 5.0, 7.0])), path.status

    points = jnp.asarray([[*v, *numbers] for v, *numbers in MOTIONS.values()])
    found, status = optimized.jit(jax.vmap(jax.grad(end, has_aux=True)))(points)
    assert not np.any(status)
    assert np.all(np.isfinite(found))
    step = 1e-6
    sides = jnp.concatenate([step * jnp.eye(9), -step * jnp.eye(9)])
    values, _ = optimized.jit(jax.vmap(end))((points[:, None] + sides).reshape(-1, 9))
    values = np.asarray(values).reshape(len(points), 2, 9)
    slopes = (values[:, 0] - values[:, 1]) / (2 * step)
    for k, (name, numbers) in enumerate(MOTIONS.items()):
        # at the ground a lower or a slower start is another motion; without restitution there is none to change
        usable = np.ones(9, bool)
        usable[[5, 8]] = numbers[3] > 0
        usable[7] = numbers[2] > 0
        if name != "rests":
            size = 1 + np.abs(slopes[k]).max()
            np.testing.assert_allclose(found[k, usable], slopes[k, usable], atol=1e-5 * size, err_msg=name)


BALLS = np.array([[0.3, 0.5], [0.15, 0.8], [1.0, 0.5]])  # height, m, and restitution: one bounce, two, and none


def batch_of_balls(force, dtype=np.float64):
    """Functions of (3, 2) numbers as in `BALLS`: heights over the floor after 0.3 s, and the gradient of their sum."""
    rail = Joint("height", "prismatic", (0.0, 0.0, 1.0))
    model = build([Body("ball", None, rail, mass=1.5, inertia=0.01 * np.eye(3))]).astype(dtype)
    contacts = lgjax.Contacts(model, FLOOR, {"ball": lgjax.shapes.sphere(0.1)}, friction=0.0, restitution=0.5)
    tolerances = (1e-11, 1e-13) if dtype == np.float64 else (1e-5, 1e-6)

    def end(x):
        here, q = contacts.replace(restitution=x[1]), lgjax.configuration(model, joints=x[:1])
        events = lgjax.contact.EventDriven(*tolerances)
        path = lgjax.rollout(model, q, jnp.zeros(1, dtype), force, 0.05, 6, events, None, contacts=here)
        return path.q.joints[-1, 0] - 0.1

    return jax.vmap(end), jax.grad(lambda x: jnp.sum(jax.vmap(end)(x)))


def differences(heights):
    """(3, 2) central differences of heights (2 n,) of n numbers at (2 n, 2) points about each of `BALLS`."""
    step = 1e-6
    sides = step * np.concatenate([np.eye(2), -np.eye(2)])
    values = np.asarray(heights((BALLS[:, None] + sides).reshape(-1, 2))).reshape(3, 2, 2)
    return (values[:, 0] - values[:, 1]) / (2 * step)


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_the_gradient_of_a_batch_is_that_of_its_members(dtype):
    """Each has another number of parts, past which nothing moves it; in both modes, differences of closed forms."""
    end, gradient = batch_of_balls(None, dtype)
    balls, exact = jnp.asarray(BALLS, dtype), dtype == np.float64
    expected = differences(lambda x: [bounced([0.3], h - 0.1, e)[0][0] for h, e in x])
    found = [jax.jit(gradient)(balls)]
    if not exact:  # forward mode of float64: the hopper
        along = lambda d: jax.jvp(end, (balls,), (jnp.broadcast_to(d, balls.shape),))[1]
        found.append(jax.jit(jax.vmap(along))(jnp.eye(2, dtype=dtype)).T)
    for one in found:
        assert one.dtype == dtype
        np.testing.assert_allclose(one, expected, atol=1e-7 if exact else 1e-4)


@pytest.mark.slow
def test_forces_of_a_user_that_branch_have_gradients_of_batches():
    def push(t, q, v):
        high = q.joints - 0.2
        return jax.lax.cond(high[0] > 0, lambda: -30 * high - v, lambda: -50 * high - v)

    heights, gradient = batch_of_balls(push)
    found, expected = jax.jit(gradient)(BALLS), differences(optimized.jit(heights))
    np.testing.assert_allclose(found, expected, atol=1e-4)  # steps over the corner of the force are not smooth
