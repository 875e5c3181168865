"""Mechanisms integrated by their Taylor series, against SciPy with Pinocchio's or hand-written equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
from jax import jit
from scipy.integrate import solve_ivp

import lgjax
from lgjax import Body, Joint, Taylor, integrate_adaptive
from lgjax.dynamics.time_derivatives import motion_series
from lgjax.multibody import mechanical_space
from tests.dynamics.trees import body
from tests.oracles.pinocchio_trees import pinocchio_tree
from tests.systems.references import benchmark_top, rotation

FAST = {"method": "DOP853", "rtol": 3e-14, "atol": 1e-14}


def last(solution):
    return jax.tree.map(lambda x: x[-1], solution.ys)


def run(model, y, end, order, tolerance, tau=None, wrenches=None, max_steps=400, **options):
    series = motion_series(model, tau, wrenches)
    return integrate_adaptive(
        mechanical_space(model.tree), series, y, 0.0, end, Taylor(order), tolerance, tolerance, max_steps, **options
    )


def top() -> lgjax.Model:
    """The published heavy top as a body on a ball."""
    inertia = np.diag([0.234375, 0.46875, 0.234375])
    pivot = Joint("pivot", "spherical")
    return lgjax.build([Body("top", None, pivot, mass=15.0, com=np.array([0.0, 1.0, 0.0]), inertia=inertia)], "top")


def test_the_heavy_top_is_right_to_1e_12():
    model = top()
    y = (lgjax.neutral(model), jnp.array([0.0, 150.0, -4.61538]))
    s = jit(lambda y: run(model, y, 1.0, 12, 1e-14, max_steps=1000))(y)
    R, omega = benchmark_top()
    assert s.success
    q, v = last(s)
    np.testing.assert_allclose(
        q.ball_rotations[0], R, atol=4e-12
    )  # the reference itself differs by 2e-12 between tolerances
    np.testing.assert_allclose(v, omega, atol=4e-12 * 150)


def swing(t, order):
    """Coefficients of 0.3 sin(2 t) and so on in every entry of 12."""
    phase = jnp.arange(12.0)
    rows, factorial = [], 1.0
    for k in range(order):
        factorial *= max(k, 1)
        rows.append(0.3 * 2.0**k * jnp.sin(2 * t + phase + k * jnp.pi / 2) / factorial)
    return jnp.stack(rows)


def by_pinocchio(model, v, tau, end):
    """Base rotation and position, joints and velocity at `end` from the neutral configuration."""
    theirs = pinocchio_tree(model)
    data = theirs.createData()
    swap = np.r_[3:6, 0:3, 6 : model.nv]  # linear first there, angular first here

    def rate(t, y):
        a, p, joints, v = y[:4], y[4:7], y[7 : 7 + model.nv - 6], y[7 + model.nv - 6 :]
        a = a / np.linalg.norm(a)
        flat = np.r_[p, a[1:], a[0], joints]
        vdot = pin.aba(theirs, data, flat, v[swap], tau(t)[swap])[swap]
        w = v[:3]
        turn = 0.5 * np.array([-a[1:] @ w, *(a[0] * w + np.cross(a[1:], w))])
        return np.concatenate([turn, rotation(a) @ v[3:6], v[6:], vdot])

    start = np.concatenate([[1.0, 0, 0, 0], np.zeros(3 + model.nv - 6), v])
    y = solve_ivp(rate, (0.0, end), start, **FAST).y[:, -1]
    return rotation(y[:4]), y[4:7], y[7 : 1 + model.nv], y[1 + model.nv :]


def test_the_aerial_manipulator_is_right_to_1e_12():
    model = lgjax.models.aerial_manipulator()
    v = 0.8 * np.cos(np.arange(12.0))
    wanted = by_pinocchio(model, v, lambda t: 0.3 * np.sin(2 * t + np.arange(12.0)), 0.5)
    s = jit(lambda v: run(model, (lgjax.neutral(model), v), 0.5, 10, 1e-14, swing, max_steps=1500))(v)
    assert s.success
    q, rate = last(s)
    got = q.free_poses.rotation[0], q.free_poses.translation[0], q.joints, rate
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12 * max(1.0, np.max(np.abs(b))))


def mixed() -> lgjax.Model:
    """A floating base with a revolute, a spherical and a prismatic joint."""
    return lgjax.build(
        [
            body("base", None, "free", 1),
            body("arm", "base", "revolute", 2, damping=0.3, armature=0.2),
            body("ball", "arm", "spherical", 3, damping=0.1),
            body("slide", "ball", "prismatic", 4),
        ],
        "mixed",
    )


def test_taylor_and_runge_kutta_agree_under_wrenches_damping_and_all_joints():
    model = mixed()
    keys = jax.random.split(jax.random.key(3), 3)
    q = lgjax.random_configuration(keys[0], model)
    v = jax.random.normal(keys[1], (model.nv,))
    w = jax.random.normal(keys[2], (2, model.nbodies, 6))
    wrenches = lambda t, order: jnp.zeros((order, *w[0].shape)).at[:2].set(jnp.stack([w[0] + t * w[1], w[1]])[:order])
    s = jit(lambda y: run(model, y, 0.4, 7, 1e-12, wrenches=wrenches))((q, v))
    path = jit(
        lambda q, v: lgjax.rollout(
            model, q, v, None, 0.4 / 100, 100, lgjax.MuntheKaas(lgjax.integrators.DORMAND_PRINCE85), None,
            wrenches=lambda t, q, v: w[0] + t * w[1],
        )
    )(q, v)  # fmt: skip
    for a, b in zip(jax.tree.leaves(last(s)), jax.tree.leaves((path.q, path.v)), strict=True):
        np.testing.assert_allclose(a, b[-1], atol=1e-10)


def test_events_and_batches_on_a_mechanism():
    """A pendulum passes the vertical at a quarter of its period, which depends on where it is let go."""
    model = lgjax.models.chain(1)
    angles = jnp.array([0.1, 0.5, 1.2])

    def passage(angle):
        q = lgjax.neutral(model)._replace(joints=angle[None])
        lowest = lambda t, y: y[0].joints[0]
        s = run(model, (q, jnp.zeros(1)), 3.0, 8, 1e-12, event=lowest)
        return s.ts[0], s.stopped

    times, stopped = jit(jax.vmap(passage))(angles)
    assert np.all(stopped)
    m, c, inertia = (np.asarray(x)[0] for x in (model.inertias.mass, model.inertias.com, model.inertias.rotational))
    arm, about = np.linalg.norm(c), inertia[2, 2]
    for angle, time in zip(angles, times, strict=True):
        # the quarter period: K(sin(angle / 2)) sqrt(I / (m g l)), K the complete elliptic integral
        a, b = 1.0, np.cos(float(angle) / 2)
        for _ in range(8):
            a, b = (a + b) / 2, np.sqrt(a * b)
        np.testing.assert_allclose(time, np.pi / 2 / a * np.sqrt(about / (m * 9.81 * arm)), rtol=1e-11)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["f32", "f64"])
def test_gradients_at_rest_are_those_of_small_swings(dtype):
    """Hanging still, d(angle, rate at t)/d(angle, rate at 0) is the harmonic oscillation; one compilation for all t."""
    model = jax.tree.map(lambda x: x.astype(dtype), lgjax.models.chain(1))

    def end(x, t):
        q = lgjax.neutral(model)._replace(joints=x[:1])
        s = run(model, (q, x[1:]), t, 6, 1e-4, max_steps=20)
        return jnp.concatenate([s.ys[0].joints[-1], s.ys[1][-1]])

    m, c, inertia = (
        np.asarray(x, float)[0] for x in (model.inertias.mass, model.inertias.com, model.inertias.rotational)
    )
    w = np.sqrt(m * 9.81 * np.linalg.norm(c) / inertia[2, 2])
    for derivative in (jit(jax.jacfwd(end)), jit(jax.jacrev(end))):
        for t in (0.1, 0.15):
            got = derivative(jnp.zeros(2, dtype), jnp.asarray(t, dtype))
            assert got.dtype == dtype
            wanted = [[np.cos(w * t), np.sin(w * t) / w], [-w * np.sin(w * t), np.cos(w * t)]]
            # at rest nothing asks for a short step: one of order 6 is all there is
            np.testing.assert_allclose(got, wanted, atol=(w * t) ** 7 / 500)


def test_bad_input_is_named():
    model = lgjax.models.chain(2)
    y = (lgjax.neutral(model), jnp.zeros(2))
    with pytest.raises(ValueError, match=r"tau returned shape \(2,\), expected \(3, 2\)"):
        motion_series(model, lambda t, order: jnp.zeros(2))(0.0, y, 3)
    with pytest.raises(ValueError, match=r"wrenches returned shape \(3, 6\), expected \(3, 2, 6\)"):
        motion_series(model, None, lambda t, order: jnp.zeros((3, 6)))(0.0, y, 3)
