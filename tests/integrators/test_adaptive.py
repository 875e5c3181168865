"""Error control: tolerance, transformations, derivatives, statuses and messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax.groups import SO3, TS2, TangentPoint, left_translation, vector_space
from lgjax.integrators import (
    BOGACKI_SHAMPINE32,
    BOGACKI_SHAMPINE32_ONE_COMMUTATOR,
    CF32_A,
    CF32_B,
    CF43,
    DORMAND_PRINCE54,
    DORMAND_PRINCE85,
    ELEMENTARY,
    PI_CONTROL,
    RK4,
    CommutatorFree,
    MuntheKaas,
    Status,
    StepSizeController,
    integrate_adaptive,
)
from lgjax.maximal.generalized_alpha import GeneralizedAlpha
from lgjax.systems import spherical_pendulum
from tests.systems.cases import END, PENDULUM, reference

PAIRS = {
    "RKMK 5(4)": MuntheKaas(DORMAND_PRINCE54, scan_stages=True),
    "RKMK 8(5)": MuntheKaas(DORMAND_PRINCE85, scan_stages=True),
    "RKMK 3(2)": MuntheKaas(BOGACKI_SHAMPINE32, scan_stages=True),
    "RKMK 5(4), algebra": MuntheKaas(DORMAND_PRINCE54, scan_stages=True, error="algebra"),
    "RKMK 3(2), one commutator": MuntheKaas(BOGACKI_SHAMPINE32_ONE_COMMUTATOR, scan_stages=True),
    "CF 3(2) A": CommutatorFree(CF32_A),
    "CF 3(2) B": CommutatorFree(CF32_B),
    "CF 4(3)": CommutatorFree(CF43),
}
METHOD = PAIRS["RKMK 5(4)"]
SAVE = np.linspace(0.0, 1.0, 6)


def pendulum():
    return spherical_pendulum(2, "dense", **PENDULUM)


def run(y, tolerance, end=END, method=METHOD, save_at=None, controller=ELEMENTARY, max_steps=400, gravity=9.81):
    s = spherical_pendulum(2, "dense", gravity=gravity, **PENDULUM)
    return integrate_adaptive(
        s.space, s.field, y, 0.0, end, method, tolerance, tolerance, max_steps, save_at, controller
    )


@pytest.mark.parametrize("name", PAIRS)
def test_errors_follow_the_tolerance_and_nothing_recompiles(name):
    y0 = pendulum().y0
    compiled = jit(lambda y, tolerance: run(y, tolerance, method=PAIRS[name]))
    errors = []
    for tolerance in (1e-4, 1e-6, 1e-8):
        result = compiled(y0, tolerance)
        assert result.success
        assert result.accepted > 0
        q, omega = reference("pendulum dense")
        errors.append(max(np.max(np.abs(result.ys.q[0] - q)), np.max(np.abs(result.ys.omega[0] - omega))))
        assert errors[-1] < 20 * tolerance
    assert errors[2] < errors[0] / 50
    assert compiled._cache_size() == 1


@pytest.mark.parametrize("controller", [ELEMENTARY, PI_CONTROL], ids=["eq. 33", "PI_CONTROL"])
def test_every_trajectory_of_a_batch_takes_its_own_steps(controller):
    y0 = pendulum().y0
    single = lambda y, tol: run(y, tol, 1.0, save_at=SAVE, controller=controller)
    spins = jnp.asarray([0.5, 2.0, 8.0])[:, None, None] * y0.omega
    many = TangentPoint(jnp.broadcast_to(y0.q, spins.shape), spins)
    batch = jit(jax.vmap(single, (0, None)))(many, 1e-7)
    one = jit(single)
    counts = []
    for i in range(3):
        alone = one(jax.tree.map(lambda x: x[i], many), 1e-7)  # noqa: B023
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(batch), strict=True):
            # Round-off in the error estimates moves the steps a little; their numbers are the same.
            tolerance = 1e-9 if jnp.issubdtype(a.dtype, jnp.floating) else 0.0
            np.testing.assert_allclose(a, b[i], rtol=tolerance, atol=tolerance)
        counts.append(int(alone.accepted))
    assert len(set(counts)) == 3


def test_dense_output_is_as_good_as_the_steps_and_on_the_space():
    times = np.linspace(0.0, 1.0, 23)
    y0 = pendulum().y0
    dense = jit(lambda y, tol: run(y, tol, 1.0, save_at=times))
    rough, fine = dense(y0, 1e-6), dense(y0, 1e-11)
    np.testing.assert_array_equal(rough.ts, times)
    assert np.max(TS2.distance(rough.ys, fine.ys)) < 1e-4
    np.testing.assert_allclose(jnp.linalg.norm(rough.ys.q, axis=-1), 1.0, atol=1e-14)
    np.testing.assert_array_equal(rough.ys.q[0], y0.q)
    # The end from the record and from dense output are the same point.
    end = jit(lambda y, tol: run(y, tol, 1.0))(y0, 1e-6)
    np.testing.assert_allclose(rough.ys.omega[-1], end.ys.omega[0], rtol=1e-13)
    steps = np.asarray(rough.times)[: int(rough.accepted) + 1]
    assert steps[0] == 0.0
    assert steps[-1] == 1.0
    assert np.all(np.diff(steps) > 0)


def test_dense_output_has_at_least_third_order():
    """Between the ends of one long step of the free top, against the same step at half the size."""
    axis = jnp.asarray([0.3, -0.2, 0.4])
    field = lambda t, g: axis + jnp.sin(t) * g[..., 0]
    space = left_translation(SO3)

    @jit
    def middle(h):
        dense = integrate_adaptive(space, field, jnp.eye(3), 0.0, h, METHOD, 1e3, 1e3, 50, save_at=0.37 * h[None])
        exact = integrate_adaptive(space, field, jnp.eye(3), 0.0, 0.37 * h, METHOD, 1e-13, 1e-13, 2000)
        return SO3.distance(dense.ys[0], exact.ys[0])

    errors = [float(middle(jnp.asarray(h))) for h in (2.0, 1.0)]
    assert np.log2(errors[0] / errors[1]) > 3.8


def test_integrating_backwards_returns():
    s = pendulum()
    y1 = jit(lambda y: run(y, 1e-10))(s.y0).ys
    back = jit(lambda y: integrate_adaptive(s.space, s.field, y, END, 0.0, METHOD, 1e-10, 1e-10, 400, [END, 0.1, 0.0]))(
        jax.tree.map(lambda x: x[0], y1)
    )
    assert back.success
    np.testing.assert_allclose(back.ys.q[-1], s.y0.q, atol=1e-8)


def test_gradients_are_difference_quotients():
    """With respect to the state, a parameter that the field closes over and the end; forward and reverse."""
    y0 = pendulum().y0

    def value(scale, gravity, end):
        y = TangentPoint(y0.q, scale * y0.omega)
        ys = run(y, 1e-9, end, save_at=end * jnp.asarray([0.5, 1.0]), max_steps=80, gravity=gravity).ys
        return jnp.sum(jnp.sin(ys.omega)) + jnp.sum(ys.q[..., 0])

    point = (jnp.asarray(1.0), jnp.asarray(9.81), jnp.asarray(END))
    both = jit(jax.value_and_grad(value, argnums=(0, 1, 2)))
    f = lambda *x: both(*x)[0]
    _, reverse = both(*point)
    forward = jit(jax.jacfwd(value, argnums=(0, 1, 2)))(*point)
    for i, (r, w) in enumerate(zip(reverse, forward, strict=True)):
        up, down = ([x + s * 1e-4 * (i == k) for k, x in enumerate(point)] for s in (1, -1))
        np.testing.assert_allclose(r, (f(*up) - f(*down)) / 2e-4, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(r, w, rtol=1e-11)


def test_max_steps_is_a_status():
    """What was reached in time is there."""
    result = jit(lambda y: run(y, 1e-9, 5.0, save_at=[0.0, 0.01, 5.0], max_steps=5))(pendulum().y0)
    assert not result.success
    assert result.status == Status.MAX_STEPS
    assert result.accepted + result.rejected == 5
    assert np.all(np.isfinite(result.ys.q[:2]))
    assert np.all(np.isnan(result.ys.q[2]))


def test_nan_in_the_field_is_a_status():
    space = vector_space(2)
    broken = lambda t, y: jnp.where(t > 0.5, jnp.nan, 1.0) * y
    for field in (broken, lambda t, y: jnp.nan * y):
        result = jit(lambda y, f=field: integrate_adaptive(space, f, y, 0.0, 1.0, METHOD, 1e-6, 1e-6, 500))(jnp.ones(2))
        assert not result.success
        assert result.status == Status.NOT_FINITE
        assert np.all(np.isfinite(result.ys))
        assert result.ts[0] <= 0.5
    compiled = jit(lambda tol: integrate_adaptive(space, lambda t, y: y, jnp.ones(2), 0.0, 1.0, METHOD, tol, tol, 50))
    for tolerance in (-1.0, 0.0, jnp.nan, jnp.inf):
        assert compiled(tolerance).status == Status.BAD_TOLERANCE
        assert not compiled(tolerance).success
    assert compiled(1e-6).success


@pytest.mark.parametrize("t0", [0.0, 1.0])
def test_a_start_that_is_not_finite_is_a_status_at_once(t0):
    decay = lambda t, y: -y
    result = integrate_adaptive(vector_space(1), decay, jnp.array([jnp.nan]), t0, t0 + 1, METHOD, 1e-6, 1e-6, 9)
    assert result.status == Status.NOT_FINITE


SECOND = {
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "forward over reverse": lambda f: jax.jacfwd(jax.jacrev(f)),
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(f)),
}


def decay(y, rate, **options):
    method = MuntheKaas(DORMAND_PRINCE54, scan_stages=True)
    field = lambda t, y: -rate * y
    return integrate_adaptive(vector_space(1), field, y, 0.0, 1.0, method, 1e-12, 1e-12, 80, **options)


def at_the_end(x):
    return jnp.sin(decay(x[:1], x[1]).ys[-1, 0])


def on_the_way(x):
    return jnp.sin(decay(x[:1], x[1], save_at=jnp.array([0.25, 1.0])).ys[0, 0])


def at_an_event(x):
    run = decay(x[:1], x[1], event=lambda t, y: y[0] - 0.8)
    return jnp.sin(run.ts[0])


def twice_in_a_scan(x):
    return jnp.sin(jax.lax.scan(lambda y, _: (decay(y, x[1]).ys[-1], None), x[:1], None, length=2)[0][0])


OUTCOMES = {
    at_the_end: lambda x: jnp.sin(x[0] * jnp.exp(-x[1])),
    on_the_way: lambda x: jnp.sin(x[0] * jnp.exp(-0.25 * x[1])),
    at_an_event: lambda x: jnp.sin(jnp.log(x[0] / 0.8) / x[1]),
    twice_in_a_scan: lambda x: jnp.sin(x[0] * jnp.exp(-2 * x[1])),
}


@pytest.mark.parametrize("mode", SECOND)
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda f: f.__name__)
def test_second_derivatives_of_what_is_made_of_a_run(outcome, mode):
    """Not linear in the state, so that the derivative of the state itself counts twice."""
    x = jnp.array([1.1, 0.7])
    exact = jax.hessian(OUTCOMES[outcome])(x)
    np.testing.assert_allclose(jit(SECOND[mode](outcome))(x), exact, rtol=1e-7)


@pytest.mark.parametrize("derivative", [jax.jacrev, jax.jacfwd])
@pytest.mark.parametrize(
    "event",
    [
        lambda y, x: jnp.log(y - 5.0 * x),
        lambda y, x: jnp.log(y - 0.5) - jnp.log(0.1 * x),
        lambda y, x: jnp.sqrt(jnp.maximum(y - 2.0 * x, 0.0)) + 1.0,
        lambda y, x: y * jnp.nan * x,
    ],
)
def test_an_event_that_is_nan_where_it_does_not_happen_leaves_derivatives_alone(event, derivative):
    end = lambda x: decay(x[:1], 1.0, event=lambda t, y: event(y[0], x[1])).ys[-1, 0]
    np.testing.assert_allclose(jit(derivative(end))(jnp.array([0.55, 1.0])), [np.exp(-1.0), 0.0], atol=1e-9)


def test_a_run_goes_on_from_an_event_where_it_has_a_direction():
    """A ball bounces: at each start its height is round-off of either sign, and rises."""
    line = vector_space(2)
    fall = lambda t, y: jnp.stack([y[1], jnp.full_like(t, -9.81)])

    def land(y, t, direction):
        s = integrate_adaptive(line, fall, y, t, 5.0, MuntheKaas(DORMAND_PRINCE54), 1e-10, 1e-10, 100,
                               event=lambda t, y: y[0], direction=direction)  # fmt: skip
        return s.ts[0], s.ys[0], s.stopped

    land = jit(land, static_argnums=2)
    y, t, speed = jnp.array([1.0, 0.0]), jnp.zeros(()), np.sqrt(2 * 9.81)
    when = speed / 9.81
    for _ in range(6):
        t, y, stopped = land(y, t, -1)
        assert stopped
        np.testing.assert_allclose(t, when, rtol=1e-12)
        np.testing.assert_allclose(y[1], -speed, rtol=1e-9)
        y, speed = y * jnp.array([1.0, -0.8]), 0.8 * speed
        when = when + 2 * speed / 9.81
    assert not land(jnp.array([1.0, 0.0]), jnp.zeros(()), 1)[2]


def test_directions_are_refused_by_name():
    field = lambda t, y: -y
    run = lambda **more: integrate_adaptive(vector_space(1), field, jnp.ones(1), 0.0, 1.0, MuntheKaas(DORMAND_PRINCE54),
                                            1e-6, 1e-6, 50, **more)  # fmt: skip
    for wrong in (2, -2, True, 0.5):
        with pytest.raises(ValueError, match="direction must be -1, 0 or 1, got "):
            run(direction=wrong)
    with pytest.raises(TypeError, match="event must be a function"):
        run(event=3)


def test_an_event_that_is_nan_for_a_while_is_none():
    event = lambda t, y: jnp.sqrt(t - 1.0) + 1.0
    decay = lambda t, y: -y
    result = integrate_adaptive(vector_space(1), decay, jnp.ones(1), 0.0, 2.0, METHOD, 1e-8, 1e-8, 99, event=event)
    assert result.success
    assert not result.stopped
    np.testing.assert_allclose(result.ys, np.exp(-2) * np.ones((1, 1)), rtol=1e-6)


def test_a_step_below_round_off_is_a_status():
    """y' = y² from 1 is infinite at 1: steps shrink towards it until they no longer change the time."""
    run = lambda tol: integrate_adaptive(
        vector_space(1), lambda t, y: y * y, jnp.ones(1), 0.0, 2.0, METHOD, tol, tol, 5000
    )
    for tolerance in (1e-8, 1e-4):
        result = jit(run)(tolerance)
        assert result.status == Status.STEP_TOO_SMALL
        assert not result.success
        assert result.accepted + result.rejected < 1000
        np.testing.assert_allclose(result.ts[0], 1.0, atol=1e-4)


@pytest.mark.parametrize("ends", [(0.5, 2.0), (2.0, 0.5)], ids=["forwards", "backwards"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_times_outside_are_nan_with_a_status_and_the_others_are_right(ends, dtype):
    """y' = y.  Times that miss an end by a rounding are that end."""
    solve = lambda y, a, b, at: integrate_adaptive(vector_space(1), lambda t, y: y, y, a, b, METHOD, 1e-5, 1e-6, 60, at)
    compiled = jit(solve)
    one = jnp.ones(1, dtype)
    eps = float(jnp.finfo(dtype).eps)
    inside = np.array([0.5, 0.5 - eps / 2, 1.0, 1.7, 2.0, 2.0 + 4 * eps], dtype)
    result = compiled(one, *ends, inside)
    assert result.success
    assert result.status == 0
    assert result.status.dtype == jnp.int32
    np.testing.assert_allclose(result.ys[:, 0], np.exp(inside - dtype(ends[0])), rtol=1e-4)
    for wrong in (0.49, 0.0, -3.0, 2.01, 100.0, np.nan, np.inf, -np.inf):
        times = np.array([1.0, wrong, 1.7, wrong, 2.0, 0.5], dtype)
        result = compiled(one, *ends, times)
        assert not result.success
        assert result.status == Status.SAVE_AT_OUTSIDE
        assert np.all(np.isnan(result.ys[1:4:2]))
        np.testing.assert_allclose(result.ys[::2, 0], np.exp(times[::2] - dtype(ends[0])), rtol=1e-4)
        with pytest.raises(ValueError, match=r"save_at must lie between t0 and t1, .*; got"):
            solve(one, *ends, times)
    assert compiled._cache_size() == 1


def test_every_element_of_a_batch_has_its_own_status():
    """The right one, times outside, too many steps, a tolerance that is none, an end that is none."""
    times = jnp.asarray([[0.0, 1.0], [0.0, 3.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    ends, rates = jnp.asarray([2.0, 2.0, 2.0, 2.0, jnp.inf]), jnp.asarray([1.0, 1.0, 60.0, 1.0, 1.0])
    tolerances = jnp.asarray([1e-6, 1e-6, 1e-6, 0.0, 1e-6])

    @jit
    @jax.vmap
    def run(at, end, rate, tolerance):
        field = lambda t, y: -rate * y
        return integrate_adaptive(vector_space(1), field, jnp.ones(1), 0.0, end, METHOD, tolerance, tolerance, 12, at)

    result = run(times, ends, rates, tolerances)
    wanted = ["OK", "SAVE_AT_OUTSIDE", "MAX_STEPS", "BAD_TOLERANCE", "NOT_FINITE"]
    assert result.status.tolist() == [Status[name] for name in wanted]
    np.testing.assert_array_equal(result.success, result.status == 0)
    np.testing.assert_array_equal(np.isnan(result.ys[:, 1, 0]), [False, True, True, True, True])
    np.testing.assert_array_equal(result.ys[:, 0, 0], 1.0)


def test_times_after_an_event_are_nan_and_no_failure():
    level = lambda t, y: y[0] - 2.0
    run = lambda y, at: integrate_adaptive(
        vector_space(1), lambda t, y: y, y, 0.0, 2.0, METHOD, 1e-8, 1e-8, 60, at, event=level
    )
    result = jit(run)(jnp.ones(1), jnp.asarray([0.5, 1.5]))
    assert result.success
    assert result.stopped
    assert result.status == 0
    np.testing.assert_array_equal(np.isnan(result.ys[:, 0]), [False, True])
    np.testing.assert_allclose(result.times[-1], np.log(2.0), rtol=1e-7)


def test_scalars_of_every_kind_are_taken():
    """Python, NumPy and JAX numbers of any dtype, in float32: the same result, and strong dtypes."""
    run = lambda *numbers: integrate_adaptive(
        vector_space(1), lambda t, y: y, jnp.ones(1, jnp.float32), *numbers[:2], METHOD, *numbers[2:], 20
    )
    kinds = [(0, 1, 1, 1), (np.int64(0), np.float32(1), np.float64(1), 1.0), tuple(map(jnp.asarray, (0, 1.0, 1, 1.0)))]
    ends = [jit(lambda k=k: run(*k))() for k in kinds]
    for s in ends:
        assert s.success
        assert s.ys.dtype == s.ts.dtype == jnp.float32
        np.testing.assert_array_equal(s.ys, ends[0].ys)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_is_kept(dtype):
    result = jax.eval_shape(
        lambda y, t: integrate_adaptive(TS2, lambda t, y: jnp.ones(6, dtype), y, 0, t, METHOD, 1e-4, 1e-4, 9, [0.5, 1]),
        TangentPoint(jnp.ones(3, dtype), jnp.ones(3, dtype)),
        jnp.ones((), dtype),
    )
    for leaf in jax.tree.leaves((result.ts, result.ys, result.times)):
        assert leaf.dtype == dtype
        assert not leaf.weak_type
    assert result.accepted.dtype == jnp.int32


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rtol": 0.0}, ValueError, "rtol must be positive and finite, got 0.0"),
        ({"atol": -1e-6}, ValueError, "atol must be positive and finite, got -1e-06"),
        ({"rtol": "tight"}, TypeError, "rtol must be a number, got 'tight'"),
        ({"atol": np.full(2, 1e-6)}, ValueError, r"atol must be a scalar, got shape \(2,\)"),
        ({"t1": np.nan}, ValueError, "t1 must be a finite number, got nan"),
        ({"t0": -np.inf}, ValueError, "t0 must be a finite number, got -inf"),
        ({"max_steps": 0}, ValueError, "max_steps must be a positive integer, got 0"),
        ({"method": MuntheKaas(RK4)}, ValueError, "needs a method with an embedded one"),
        ({"method": DORMAND_PRINCE54}, TypeError, r"did you mean MuntheKaas\(DORMAND_PRINCE54\)\?"),
        ({"method": CF43}, TypeError, r"the table CF43; did you mean CommutatorFree\(CF43\)\?"),
        ({"method": MuntheKaas}, TypeError, "the class MuntheKaas; it takes an instance"),
        ({"method": GeneralizedAlpha()}, TypeError, "maximal.integrate takes that one"),
        ({"method": ELEMENTARY}, TypeError, "a step size controller.*as `controller`"),
        ({"method": "RK4"}, ValueError, "needs a method with an embedded one.*got 'RK4'"),
        (
            {"controller": METHOD},
            TypeError,
            "controller must be a StepSizeController such as ELEMENTARY or PI_CONTROL, got MuntheKaas",
        ),
        (
            {"controller": None},
            TypeError,
            "controller must be a StepSizeController such as ELEMENTARY or PI_CONTROL, got None",
        ),
        ({"save_at": 0.5}, ValueError, "save_at must be a vector of times"),
        ({"save_at": "late"}, TypeError, "save_at must be numbers, got 'late'"),
        ({"save_at": [0.1j]}, TypeError, "save_at must be numbers, got"),
        ({"save_at": [0.5, 1.5, -1.0]}, ValueError, "save_at must lie between t0 and t1, 0.0 and 1.0; got 1.5"),
        ({"save_at": [0.5, np.nan]}, ValueError, "save_at must lie between t0 and t1, 0.0 and 1.0; got nan"),
        ({"field": lambda t, y: jnp.zeros(3)}, ValueError, r"must return an array \(\.\.\., 2\), got shape \(3,\)"),
        ({"field": lambda t, y: jnp.zeros(2, jnp.float32)}, TypeError, "returns float32, the state is float64"),
        ({"field": lambda t, y: (y,)}, TypeError, "must return one array"),
    ],
)
def test_bad_input_is_named(changes, error, message):
    arguments = {"t0": 0.0, "t1": 1.0, "rtol": 1e-6, "atol": 1e-6, "max_steps": 10, "method": METHOD, **changes}
    with pytest.raises(error, match=message):
        integrate_adaptive(vector_space(2), y0=jnp.ones(2), **{"field": lambda t, y: y, **arguments})


def test_controllers_refuse_nonsense():
    with pytest.raises(ValueError, match="alpha > 0"):
        StepSizeController(safety=1.5)
    with pytest.raises(ValueError, match="beta must be a finite number, got nan"):
        StepSizeController(beta=float("nan"))
    with pytest.raises(TypeError, match="alpha must be a number, got 'large'"):
        StepSizeController(alpha="large")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (lambda t, y: y, ValueError, r"event must return one number, got shape \(2,\)"),
        (lambda t, y: y[0] > 0, TypeError, "event must return a real number, whose sign changes, got bool"),
        (
            lambda t, y: None,
            TypeError,
            "event must return a real number, whose sign changes, got of type NoneType|got None",
        ),
    ],
    ids=["several", "truth", "nothing"],
)
def test_an_event_is_one_real_number(event, error, message):
    with pytest.raises(error, match=message):
        integrate_adaptive(vector_space(2), lambda t, y: y, jnp.ones(2), 0.0, 1.0, METHOD, 1e-8, 1e-8, 20, event=event)
