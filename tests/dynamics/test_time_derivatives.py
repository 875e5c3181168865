"""Time derivatives of the dynamics against nested forward-mode differentiation of order 0 along a motion."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import se3
from lgjax.execution import plain
from tests.dynamics import trees

ORDER = 2
PRESCRIBED = {"base parts and a joint": (0, 3, 5, 7), "all": tuple(range(8))}


def model_of(floating: bool, dtype=jnp.float64):
    return lgjax.models.random_tree(3, 3, floating_base=floating, armature=0.1, damping=0.2).astype(dtype)


def motion(model, orders: int, seed: int = 0):
    """A configuration, derivatives of the velocity and derivatives of wrenches on the bodies."""
    keys = jax.random.split(jax.random.key(seed), 3)
    q = lgjax.random_configuration(keys[0], model)
    v = jax.random.normal(keys[1], (orders + 2, model.nv), model.dtype) / 2
    return q, v, jax.random.normal(keys[2], (orders + 1, model.nbodies, 6), model.dtype)


def polynomial(derivatives, t):
    return sum(x * t**k / math.factorial(k) for k, x in enumerate(derivatives))


def nested(model, q, v, wrenches, order: int, frame: str):
    """Derivatives of inverse dynamics along the motion whose velocity in `frame` is the polynomial of v."""
    floating = model.tree.n_free > 0 and frame == "spatial"

    def velocity(q, t):
        rate = polynomial(v, t)
        if not floating:
            return rate
        base = se3.Ad(se3.inverse(jax.tree.map(lambda x: x[0], q.free_poses)), rate[:6])
        return jnp.concatenate([base, rate[6:]])

    def along(f):
        def derivative(q, t):
            return jax.jvp(lambda s: f(lgjax.retract(model, q, s * velocity(q, t)), t + s), (0.0,), (1.0,))[1]

        return derivative

    def forces(q, t):
        applied = polynomial(wrenches, t)
        tau = plain()(lgjax.inverse_dynamics)(model, q, velocity(q, t), along(velocity)(q, t), applied)
        if not floating:
            return tau
        base = se3.coAd(se3.inverse(jax.tree.map(lambda x: x[0], q.free_poses)), tau[:6])
        return jnp.concatenate([base, tau[6:]])

    out = [forces]
    for _ in range(order):
        out.append(along(out[-1]))
    return jnp.stack([f(q, 0.0) for f in out])


def relative(a, b):
    """Largest error of each order, relative to the largest entry of that order."""
    a, b = np.asarray(a), np.asarray(b)
    return np.max(np.abs(a - b), -1) / np.max(np.abs(b), -1)


@pytest.mark.parametrize("frame", ["body", "spatial"])
@pytest.mark.parametrize(
    "floating", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["fixed", "floating"]
)  # test_high_orders.py has a floating base by default
def test_inverse_dynamics_derivatives_are_those_of_nested_jvp(floating, frame):
    model = model_of(floating)
    q, v, wrenches = motion(model, ORDER)
    expected = jit(lambda q, v, w: nested(model, q, v, w, ORDER, frame))(q, v, wrenches)
    got = jit(lambda q, v, w: lgjax.inverse_dynamics_time_derivatives(model, q, v, ORDER, frame, w))(q, v, wrenches)
    assert np.all(relative(got, expected) < 1e-12)


@pytest.mark.parametrize("frame", ["body", "spatial"])
@pytest.mark.parametrize(
    "dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.slow)], ids=["f32", "f64"]
)  # test_high_orders.py has float64 by default
def test_forward_after_inverse_is_the_identity(dtype, frame):
    model = model_of(True, dtype)
    q, v, wrenches = motion(model, ORDER)

    def there_and_back(q, v, w):
        tau = lgjax.inverse_dynamics_time_derivatives(model, q, v, ORDER, frame, w)
        return lgjax.forward_dynamics_time_derivatives(model, q, v[0], tau, frame, w)

    vdot = jit(there_and_back)(q, v, wrenches)
    assert vdot.dtype == dtype
    assert np.all(relative(vdot, v[1:]) < (1e-11 if dtype == jnp.float64 else 2e-3))


@pytest.mark.parametrize("case", list(PRESCRIBED))
def test_hybrid_dynamics_exchanges_forces_and_accelerations(case):
    model = model_of(True)
    q, v, wrenches = motion(model, 1)
    chosen = np.isin(np.arange(model.nv), PRESCRIBED[case])

    def solve(q, v, w):
        tau = lgjax.inverse_dynamics_time_derivatives(model, q, v, 1, wrenches=w)
        given = jnp.where(chosen, v[1:], jnp.nan), jnp.where(chosen, jnp.nan, tau)
        vdot, found = lgjax.hybrid_dynamics_time_derivatives(model, q, v[0], *given, PRESCRIBED[case], wrenches=w)
        return vdot, found, tau

    vdot, found, tau = jit(solve)(q, v, wrenches)
    assert np.all(relative(vdot, v[1:]) < 1e-10)
    assert np.all(relative(found, tau) < 1e-10)
    order0 = jit(lambda *args: lgjax.hybrid_dynamics(model, *args[:-1], PRESCRIBED[case], args[-1]))
    _, alone = order0(q, v[0], v[1], tau[0], wrenches[0])
    np.testing.assert_allclose(alone, tau[0], atol=1e-10 * np.max(np.abs(tau[0])))


def test_hybrid_dynamics_in_the_spatial_frame_with_the_whole_base_prescribed():
    model = model_of(True)
    q, v, _ = motion(model, 1)

    def solve(q, v):
        tau = lgjax.inverse_dynamics_time_derivatives(model, q, v, 1, "spatial")
        return tau, *lgjax.hybrid_dynamics_time_derivatives(model, q, v[0], v[1:], tau, range(6), "spatial")

    tau, vdot, found = jit(solve)(q, v)
    assert np.all(relative(vdot, v[1:]) < 1e-11)
    assert np.all(relative(found, tau) < 1e-11)


def test_kernels_agree_with_plain_execution():
    model = model_of(True)
    q, v, wrenches = motion(model, 1)

    def run(q, v, w):
        tau = lgjax.inverse_dynamics_time_derivatives(model, q, v, 1, wrenches=w)
        return tau, lgjax.forward_dynamics_time_derivatives(model, q, v[0], tau, wrenches=w)

    for a, b in zip(jit(plain()(run))(q, v, wrenches), jit(run)(q, v, wrenches), strict=True):
        assert np.all(relative(a, b) < 1e-13)


def test_partial_derivatives_are_finite_at_rest_and_at_the_identity():
    model = model_of(True)
    q = lgjax.neutral(model)

    def forces(d, v):
        return lgjax.inverse_dynamics_time_derivatives(model, lgjax.retract(model, q, d), v, 0)

    zero = jnp.zeros(model.nv), jnp.zeros((2, model.nv))
    for jacobian in (jax.jacfwd(forces, (0, 1)), jax.jacrev(forces, (0, 1))):
        for part in jit(jacobian)(*zero):
            assert np.all(np.isfinite(part))


# Central differences of sixth order, exact to about 1e-8 of the slopes at this step.
STEP, STENCIL = 1e-2, np.array([-1, 9, -45, 0, 45, -9, 1]) / 60


@pytest.mark.parametrize(
    ("which", "order", "frame"),
    [
        ("inverse", 1, "spatial"),
        pytest.param("inverse", 2, "spatial", marks=pytest.mark.slow),
        pytest.param("forward", 1, "body", marks=pytest.mark.slow),
        pytest.param("forward", 1, "spatial", marks=pytest.mark.slow),
    ],
)
def test_partial_derivatives_of_higher_orders_are_right_at_rest_and_at_the_identity(which, order, frame):
    """By differences, with respect to configuration, velocities and forces at once; also away from rest."""
    model = lgjax.build([trees.body("base", None, "free", 1), trees.body("hand", "base", "spherical", 2, damping=0.1)])
    n = model.nv

    def f(point):
        q = lgjax.retract(model, lgjax.neutral(model), point[:n])
        rows = point[n:].reshape(-1, n)
        if which == "forward":
            return lgjax.forward_dynamics_time_derivatives(model, q, rows[0], rows[1:], frame)
        return lgjax.inverse_dynamics_time_derivatives(model, q, rows, order, frame)

    size = n * (order + 3)
    random = np.random.default_rng(0)
    weights, directions = random.normal(size=(order + 1, n)), random.normal(size=(6, size))
    along = jit(lambda point, direction: jax.jvp(f, (point,), (direction,)))
    gradient = jit(jax.grad(lambda point: jnp.sum(f(point) * weights)))
    for point in (np.zeros(size), 0.3 * random.normal(size=size)):
        pulled = gradient(point)
        assert np.all(np.isfinite(pulled))
        for direction in directions:
            _, slope = along(point, direction)
            values = [along(point + k * STEP * direction, direction)[0] for k in range(-3, 4)]
            expected = np.tensordot(STENCIL / STEP, np.stack(values), 1)
            np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-7 * np.max(np.abs(expected)))
            np.testing.assert_allclose(pulled @ direction, np.sum(weights * slope), rtol=1e-11)


def test_bad_input_is_named():
    model = model_of(True)
    q, v, _ = motion(model, 1)
    with pytest.raises(ValueError, match="order is a non-negative integer, got -1"):
        lgjax.inverse_dynamics_time_derivatives(model, q, v, -1)
    with pytest.raises(ValueError, match=r"v has shape \(3, 8\), expected \(4, 8\)"):
        lgjax.inverse_dynamics_time_derivatives(model, q, v, 2)
    with pytest.raises(ValueError, match="v is float32, the model is float64"):
        lgjax.inverse_dynamics_time_derivatives(model, q, v.astype(jnp.float32), 1)
    with pytest.raises(ValueError, match="frame is 'body' or 'spatial', not 'world'"):
        lgjax.inverse_dynamics_time_derivatives(model, q, v, 1, "world")
    with pytest.raises(ValueError, match="index 8 is out of range for nv=8"):
        lgjax.hybrid_dynamics(model, q, v[0], v[1], v[1], (2, 8))
    with pytest.raises(ValueError, match="names an index twice"):
        lgjax.hybrid_dynamics(model, q, v[0], v[1], v[1], (2, 2))
    with pytest.raises(ValueError, match="as a whole or not at all"):
        lgjax.hybrid_dynamics_time_derivatives(model, q, v[0], v[1:], v[1:], (0,), "spatial")


def test_bad_input_of_forward_and_hybrid_dynamics_is_named():
    model = model_of(True)
    q, v, _ = motion(model, 1)
    single = v.astype(jnp.float32)
    forward = lambda v0, tau, *rest: lgjax.forward_dynamics_time_derivatives(model, q, v0, tau, *rest)
    hybrid = lambda v0, vdot, tau, *rest: lgjax.hybrid_dynamics_time_derivatives(model, q, v0, vdot, tau, (6,), *rest)
    for tau in (v[0], v[:0], 1.0):
        with pytest.raises(ValueError, match=r"tau is a stack \(order \+ 1, nv\)"):
            forward(v[0], tau)
        with pytest.raises(ValueError, match=r"tau is a stack \(order \+ 1, nv\)"):
            hybrid(v[0], v[1:], tau)
    with pytest.raises(ValueError, match=r"tau has shape \(3, 7\), expected \(3, 8\)"):
        forward(v[0], v[:, 1:])
    with pytest.raises(ValueError, match=r"v has shape \(3, 8\), expected \(8,\)"):
        forward(v, v)
    with pytest.raises(ValueError, match="tau is float32, the model is float64"):
        forward(v[0], single)
    with pytest.raises(ValueError, match="v is float32, the model is float64"):
        hybrid(single[0], v[1:], v[1:])
    with pytest.raises(ValueError, match="vdot is float32, the model is float64"):
        hybrid(v[0], single[1:], v[1:])
    with pytest.raises(ValueError, match=r"vdot has shape \(3, 8\), expected \(2, 8\)"):
        hybrid(v[0], v, v[1:])
    for wrenches in (jnp.zeros((3, 3, 6)), jnp.zeros((2, 2, 6))):
        with pytest.raises(ValueError, match=r"wrenches has shape .*, expected \(2, 3, 6\)"):
            forward(v[0], v[1:], "body", wrenches)
        with pytest.raises(ValueError, match=r"wrenches has shape .*, expected \(2, 3, 6\)"):
            hybrid(v[0], v[1:], v[1:], "body", wrenches)
    with pytest.raises(ValueError, match="wrenches is float32, the model is float64"):
        forward(v[0], v[1:], "body", jnp.zeros((2, 3, 6), jnp.float32))
    for call in (lambda: forward(v[0], v[1:], "world"), lambda: hybrid(v[0], v[1:], v[1:], "world")):
        with pytest.raises(ValueError, match="frame is 'body' or 'spatial', not 'world'"):
            call()
    for order in (-1, 1.0, True, None):
        with pytest.raises(ValueError, match="order is a non-negative integer"):
            lgjax.inverse_dynamics_time_derivatives(model, q, v, order)
