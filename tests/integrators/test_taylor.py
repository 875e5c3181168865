"""The Taylor method: its order, its steps, its dense output and events, and what it refuses."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from scipy.integrate import solve_ivp

from lgjax.groups import SE3, SO3, Pose, cayley_coordinates, product_space, right_translation, se3, vector_space
from lgjax.integrators import DORMAND_PRINCE54, MuntheKaas, Taylor, integrate, integrate_adaptive

FALL = product_space(vector_space(1), vector_space(1))
ROTATIONS = right_translation(SO3)
G = 9.81


def fall(t, y, order):
    """Free fall: height and speed."""
    zeros = jnp.zeros((order, 1), y[1].dtype)
    rate = zeros.at[0].set(y[1])
    return (rate.at[1].set(-G) if order > 1 else rate), zeros.at[0].set(-G)


def body_rate(t):
    return np.array([np.sin(t), np.cos(2 * t), 1.0])


def turning(t, y, order, rate=1.0):
    """Coefficients of (sin t, cos 2t, 1)."""
    rows, factorial = [], 1.0
    for k in range(order):
        factorial *= max(k, 1)
        derivative = [jnp.sin(t + k * jnp.pi / 2), 2.0**k * jnp.cos(2 * t + k * jnp.pi / 2), float(k == 0) + 0 * t]
        rows.append(jnp.stack(derivative) / factorial)
    return rate * jnp.stack(rows)


def turned(end):
    """The rotation at `end` from the identity, by quaternions."""

    def rate(t, q):
        w = body_rate(t)
        return 0.5 * np.array([-q[1:] @ w, *(q[0] * w + np.cross(q[1:], w))])

    q = solve_ivp(rate, (0, end), [1.0, 0, 0, 0], method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    a, v = q[0], q[1:]
    hat = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
    return np.eye(3) + 2 * a * hat + 2 * hat @ hat


def last(solution):
    return jax.tree.map(lambda x: x[-1], solution.ys)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 6, 9])
def test_the_error_has_the_order_of_the_series(order):
    steps = (32, 64) if order < 4 else (8, 16)
    gaps = []
    for n in steps:
        run = jit(lambda n=n: integrate(ROTATIONS, turning, jnp.eye(3), 0.0, 2.0, n, Taylor(order)))
        gaps.append(np.max(np.abs(last(run()) - turned(2.0))))
    assert abs(np.log2(gaps[0] / gaps[1]) - order) < 0.3, gaps


def test_a_polynomial_motion_takes_one_exact_step():
    y = (jnp.array([3.0]), jnp.array([2.0]))
    s = jit(lambda: integrate_adaptive(FALL, fall, y, 0.0, 5.0, Taylor(4), 1e-10, 1e-10, 5))()
    assert (s.accepted, s.rejected, s.success) == (1, 0, True)
    np.testing.assert_allclose(last(s)[0], [3 + 2 * 5 - G * 25 / 2], rtol=1e-14)


def test_a_steady_screw_takes_one_exact_step():
    twist = jnp.array([1.0, -2.0, 0.5, 0.3, 0.2, -1.0])
    steady = lambda t, y, order: jnp.zeros((order, 6)).at[0].set(twist)
    start = Pose(jnp.eye(3), jnp.zeros(3))
    s = jit(lambda: integrate_adaptive(right_translation(SE3), steady, start, 0, 3, Taylor(6), 1e-9, 1e-9, 4))()
    assert s.accepted == 1
    for got, wanted in zip(last(s), se3.exp(3 * twist), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-14)


@pytest.mark.parametrize("order", [8, 14])
def test_errors_follow_the_tolerance(order):
    run = jit(lambda tol: integrate_adaptive(ROTATIONS, turning, jnp.eye(3), 0.0, 6.0, Taylor(order), tol, tol, 300))
    counts = []
    for tolerance in (1e-5, 1e-8, 1e-11):
        s = run(tolerance)
        assert s.success
        assert s.rejected == 0
        assert np.max(np.abs(last(s) - turned(6.0))) < max(20 * tolerance, 1e-12)
        counts.append(int(s.accepted))
    assert counts[0] < counts[1] < counts[2]


def test_dense_output_lies_on_the_motion_and_on_the_group():
    at = jnp.linspace(0.0, 6.0, 7)
    s = jit(lambda: integrate_adaptive(ROTATIONS, turning, jnp.eye(3), 0, 6, Taylor(10), 1e-10, 1e-10, 60, at))()
    for t, R in zip(at[1:], s.ys[1:], strict=True):
        np.testing.assert_allclose(R, turned(float(t)), atol=1e-9)
        np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-14)


def test_under_vmap_every_run_takes_its_own_steps():
    rates = jnp.array([0.2, 1.0, 3.0])

    def run(rate):
        series = partial(turning, rate=rate)
        return integrate_adaptive(ROTATIONS, series, jnp.eye(3), 0, 4, Taylor(8), 1e-9, 1e-9, 100)

    together, alone = jit(jax.vmap(run))(rates), jit(run)
    assert len(set(together.accepted.tolist())) == 3
    for i, rate in enumerate(rates):
        one = alone(rate)
        assert one.accepted == together.accepted[i]
        np.testing.assert_allclose(one.ys, together.ys[i], atol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_float32_stays_float32(dtype):
    start = jnp.eye(3, dtype=dtype)
    series = lambda t, y, order: turning(t, y, order).astype(y.dtype)
    s = jit(lambda y: integrate_adaptive(ROTATIONS, series, y, 0, 2, Taylor(6), 1e-5, 1e-5, 60))(start)
    assert s.ys.dtype == s.ts.dtype == dtype
    np.testing.assert_allclose(s.ys[0], turned(2.0), atol=5e-5)


def test_gradients_are_difference_quotients():
    def end(rate):
        series = partial(turning, rate=rate)
        s = integrate_adaptive(ROTATIONS, series, jnp.eye(3), 0, 2, Taylor(9), 1e-10, 1e-10, 40)
        return jnp.sum(s.ys[0] * jnp.arange(9.0).reshape(3, 3))

    value = jit(end)
    quotient = (value(1.0 + 1e-5) - value(1.0 - 1e-5)) / 2e-5
    for derivative in (jax.grad(end), jax.jacfwd(end)):
        np.testing.assert_allclose(jit(derivative)(1.0), quotient, rtol=1e-8)


# ---- events
def ground(t, y):
    return y[0][0]


def land(height, speed, method=Taylor(4), series=fall, tolerance=1e-10, end=9.0):  # noqa: B008
    y = (jnp.stack([height]), jnp.stack([speed]))
    return integrate_adaptive(FALL, series, y, 0.0, end, method, tolerance, tolerance, 400, event=ground)


def landing(height, speed):
    return (speed + np.sqrt(speed**2 + 2 * G * height)) / G


METHODS = {
    "Taylor": {"method": Taylor(4)},
    "RKMK 5(4)": {
        "method": MuntheKaas(DORMAND_PRINCE54, scan_stages=True),
        "series": lambda t, y: jax.tree.map(lambda x: x[0], fall(t, y, 2)),
    },
}


@pytest.mark.parametrize("method", METHODS)
def test_events_end_each_run_at_its_own_time(method):
    heights, speeds = jnp.array([1.0, 2.0, 30.0, 1e4]), jnp.array([0.0, 3.0, -2.0, 0.0])
    s = jit(jax.vmap(partial(land, **METHODS[method])))(heights, speeds)
    expected = landing(np.asarray(heights), np.asarray(speeds))
    np.testing.assert_array_equal(s.stopped, [True, True, True, False])
    assert np.all(s.success)
    np.testing.assert_allclose(s.ts[:3, 0], expected[:3], rtol=1e-13)
    np.testing.assert_allclose(s.ys[0][:3, 0, 0], 0.0, atol=1e-12)
    np.testing.assert_allclose(s.ts[3, 0], 9.0)


@pytest.mark.parametrize("method", METHODS)
def test_the_time_of_an_event_and_the_state_there_have_derivatives(method):
    def outcome(height, speed):
        s = land(height, speed, **METHODS[method])
        return s.ts[0], s.ys[1][0, 0]

    h, v = 2.0, 3.0
    time = landing(h, v)
    impact = np.sqrt(v**2 + 2 * G * h)
    wanted = ((1 / impact, (1 + v / impact) / G), (-G / impact, -v / impact))
    for transform in (jax.jacfwd, jax.jacrev):
        got = jit(transform(outcome, (0, 1)))(h, v)
        np.testing.assert_allclose(got, wanted, rtol=1e-9)
    np.testing.assert_allclose(jit(outcome)(h, v)[0], time, rtol=1e-13)


SECOND = {
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f, (0, 1)), (0, 1)),
    "forward over reverse": lambda f: jax.jacfwd(jax.jacrev(f, (0, 1)), (0, 1)),
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(f, (0, 1)), (0, 1)),
}


@pytest.mark.parametrize("mode", SECOND)
@pytest.mark.parametrize("method", METHODS)
def test_the_time_of_an_event_and_the_state_there_have_second_derivatives(method, mode):
    def outcome(height, speed):
        s = land(height, speed, **METHODS[method])
        return jnp.stack([s.ts[0], s.ys[1][0, 0]])

    def exact(height, speed):
        impact = jnp.sqrt(speed**2 + 2 * G * height)
        return jnp.stack([(speed + impact) / G, -impact])

    np.testing.assert_allclose(
        jit(SECOND[mode](outcome))(2.0, 3.0), jax.hessian(exact, (0, 1))(2.0, 3.0), rtol=1e-9, atol=1e-12
    )


def test_an_event_in_the_first_step_moves_with_its_start():
    """The time of a landing is later by as much as the run begins later."""

    def outcome(start):
        level = lambda t, y: y[0][0]
        y = (jnp.array([2.0]), jnp.array([3.0]))
        s = integrate_adaptive(FALL, fall, y, start, 9.0, Taylor(4), 1e-9, 1e-9, 5, event=level)
        return jnp.stack([s.ts[0], s.ys[1][0, 0]])

    for transform in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jit(transform(outcome))(0.5), [1.0, 0.0], atol=1e-12)


def test_two_crossings_in_one_step_are_seen():
    """A ball thrown up through a hole: the polynomial step covers both passages, the first one ends the run."""
    level = lambda t, y: y[0][0] - 1.0
    y = (jnp.array([0.0]), jnp.array([6.0]))
    s = jit(lambda: integrate_adaptive(FALL, fall, y, 0.0, 3.0, Taylor(4), 1e-9, 1e-9, 5, event=level))()
    np.testing.assert_allclose(s.ts[0], (6 - np.sqrt(36 - 2 * G)) / G, rtol=1e-13)


def test_an_event_is_found_wherever_it_is_beside_a_place_that_was_looked_at():
    """There the event is round-off, which differs between the programs that see it and that search for it."""
    end, places = 0.7, 7
    seen = jnp.asarray(end * np.arange(1, places) / places)

    def run(shift, place):
        level = lambda t, y: (seen[place] - t) + shift * 2.0**-54
        y = (jnp.array([1.0]), jnp.array([0.0]))
        method = Taylor(4, substeps=places)
        return integrate_adaptive(FALL, fall, y, 0.0, end, method, 1e-9, 1e-9, 5, event=level).ts[0]

    each = jax.vmap(jax.vmap(run, (None, 0)), (0, None))
    times = jit(each)(jnp.linspace(-4, 4, 33), jnp.arange(places - 1))
    np.testing.assert_allclose(times, np.broadcast_to(seen, times.shape), atol=1e-14)


def test_a_run_that_starts_at_the_event_leaves_it():
    s = jit(lambda: land(jnp.array(0.0), jnp.array(4.0)))()
    np.testing.assert_allclose(s.ts[0], 8 / G, rtol=1e-13)


# ---- refusals
def test_bad_input_is_named():
    eye = jnp.eye(3)
    with pytest.raises(ValueError, match="order must be a positive integer, got 0"):
        Taylor(0)
    with pytest.raises(TypeError, match=r"order must be a Python integer.*got 2\.5"):
        Taylor(2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"series\(t, y, 3\) needs 3 rows, got a leaf of shape \(2, 3\)"):
        integrate(ROTATIONS, lambda t, y, order: jnp.zeros((2, 3)), eye, 0.0, 1.0, 4, Taylor(3))
    with pytest.raises(ValueError, match="Taylor follows the flow of exp"):
        integrate(right_translation(cayley_coordinates(SO3)), turning, eye, 0.0, 1.0, 4, Taylor(3))
    with pytest.raises(ValueError, match="needs a method with an embedded one"):
        integrate_adaptive(ROTATIONS, turning, eye, 0.0, 1.0, object(), 1e-6, 1e-6, 4)


def test_a_series_that_is_not_finite_and_too_few_steps_are_reported():
    bad = lambda t, y, order: jnp.full((order, 3), jnp.nan)
    s = jit(lambda: integrate_adaptive(ROTATIONS, bad, jnp.eye(3), 0.0, 1.0, Taylor(3), 1e-6, 1e-6, 50))()
    assert not s.success
    assert s.rejected == 1
    few = jit(lambda: integrate_adaptive(ROTATIONS, turning, jnp.eye(3), 0.0, 9.0, Taylor(3), 1e-9, 1e-9, 5))()
    assert not few.success
    assert few.accepted == 5


def swinging(t, y, order):
    """Coefficients of (angular velocity, -sin(angle)) along the motion of a pendulum."""
    angle, speed, sine, cosine = [y[0]], [y[1]], [jnp.sin(y[0])], [jnp.cos(y[0])]
    for n in range(1, order):
        angle.append(speed[-1] / n)
        speed.append(-sine[-1] / n)
        sine.append(sum(j * angle[j] * cosine[n - j] for j in range(1, n + 1)) / n)
        cosine.append(-sum(j * angle[j] * sine[n - j] for j in range(1, n + 1)) / n)
    return jnp.stack([jnp.stack(speed), -jnp.stack(sine)], 1)


@pytest.mark.parametrize("order", range(5, 13))
def test_coefficients_that_are_left_out_do_not_make_a_step_longer(order):
    """Released at rest where its rod is level, only every fourth coefficient of a pendulum's motion is not zero."""
    run = lambda y: integrate_adaptive(vector_space(2), swinging, y, 0.0, 3.0, Taylor(order), 1e-9, 1e-9, 400)
    level, near = (jit(run)(jnp.array([angle, 0.0])) for angle in (jnp.pi / 2, 1.5))
    for solution, start in ((level, jnp.pi / 2), (near, 1.5)):
        assert solution.status == 0
        energy = 0.5 * solution.ys[-1, 1] ** 2 - jnp.cos(solution.ys[-1, 0])
        np.testing.assert_allclose(energy, -jnp.cos(start), atol=3e-8)
    assert int(level.accepted) < 1.5 * int(near.accepted) + 3
