"""What integrate promises, whatever the method: times, storage, transformations, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from lgjax.groups import SE3, SO3, left_translation, product_space, right_translation, se3, vector_space
from lgjax.integrators import CF4, ELEMENTARY, HEUN2, RK4, MuntheKaas, Solution, integrate
from lgjax.maximal.generalized_alpha import GeneralizedAlpha
from tests.integrators.problems import PROBLEMS, start

METHOD = MuntheKaas(RK4, scan_stages=True)
SPACE, FIELD = PROBLEMS["SE3 right"]


def close(a, b, rtol=1e-13):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_storage_times_and_dtype(dtype):
    y0 = start("SE3 right", dtype)
    run = jax.jit(
        lambda y, save: integrate(SPACE, FIELD, y, 0.5, 2.0, 12, METHOD, save),
        static_argnums=1,
    )
    every, fourth, last = (run(y0, save) for save in (1, 4, None))
    assert isinstance(every, Solution)
    assert [s.ts.shape for s in (every, fourth, last)] == [(13,), (4,), (1,)]
    assert [s.ys.rotation.shape for s in (every, fourth, last)] == [(13, 3, 3), (4, 3, 3), (1, 3, 3)]
    tolerance = 4 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(every.ts, np.linspace(0.5, 2.0, 13), rtol=tolerance)
    assert all(s.success for s in (every, fourth, last))
    close(jax.tree.map(lambda x: x[0], every.ys), y0, 0.0)
    every, fourth, last = (s[:2] for s in (every, fourth, last))
    close(fourth, jax.tree.map(lambda x: x[::4], every), 4 * tolerance)
    close(last, jax.tree.map(lambda x: x[-1:], every), 4 * tolerance)
    for leaf in jax.tree.leaves((every, fourth, last)):
        assert leaf.dtype == dtype
        assert not leaf.weak_type


def test_weakly_typed_input_and_constant_fields_give_strong_results():
    solution = integrate(vector_space(1), lambda t, y: jnp.full((1,), 2.0), jnp.full((1,), 1.0), 0, 1, 2, METHOD)
    assert not solution.ys.weak_type
    np.testing.assert_allclose(solution.ys[:, 0], [1.0, 2.0, 3.0])


def test_new_states_and_times_compile_nothing():
    run = jax.jit(lambda y, t0, t1: integrate(SPACE, FIELD, y, t0, t1, 3, METHOD))
    for scale, t1 in ((1.0, 1.0), (2.0, 3.0), (0.5, -1.0)):
        run(SE3.exp(scale * jnp.asarray([0.1, 0.2, 0.3, 1.0, 1.0, 1.0])), 0.0, t1)
    assert run._cache_size() == 1


def test_integrating_back_returns():
    y0 = start("SE3 right", jnp.float64)
    run = jax.jit(lambda y, a, b: integrate(SPACE, FIELD, y, a, b, 50, METHOD, None).ys)
    there = jax.tree.map(lambda x: x[0], run(y0, 0.0, 1.0))
    back = jax.tree.map(lambda x: x[0], run(there, 1.0, 0.0))
    close(back, y0, 1e-7)


def test_vmap_over_states_and_times_is_a_loop():
    y0 = SE3.exp(jnp.asarray(np.random.default_rng(0).normal(size=(3, 6))))
    t1 = jnp.asarray([0.5, 1.0, 2.0])
    single = lambda y, t: integrate(SPACE, FIELD, y, 0.0, t, 4, METHOD, 2)
    run = jax.jit(single)
    batch = jax.jit(jax.vmap(single))(y0, t1)
    for i in range(3):
        close(jax.tree.map(lambda x: x[i], batch), run(jax.tree.map(lambda x: x[i], y0), t1[i]), 1e-13)  # noqa: B023


@pytest.mark.parametrize("scan_stages", [False, True])
def test_derivatives_are_difference_quotients(scan_stages):
    """Forward and reverse, with respect to the start, the times and a parameter of the field, from the identity."""
    method = MuntheKaas(RK4 if scan_stages else HEUN2, scan_stages=scan_stages)

    def value(parameters):
        u, t0, t1, k = parameters

        def field(t, g):
            return k * t * jnp.ones(6, k.dtype) + se3.coAd(g, jnp.arange(6, dtype=k.dtype)) * jnp.cos(t)

        ys = integrate(right_translation(SE3), field, SE3.exp(u), t0, t1, 4, method, 2).ys
        return jnp.sum(jnp.sin(ys.rotation)) + jnp.sum(ys.translation**2)

    point = (jnp.zeros(6), jnp.asarray(0.1), jnp.asarray(0.6), jnp.asarray(0.4))
    f = jax.jit(value)
    reverse = jax.jit(jax.grad(value))(point)
    forward = jax.jit(jax.jacfwd(value))(point)
    close(forward, reverse, 1e-12)
    flat, unravel = ravel_pytree(point)
    h = 1e-5
    quotient = [(f(unravel(flat + h * e)) - f(unravel(flat - h * e))) / (2 * h) for e in jnp.eye(flat.size)]
    np.testing.assert_allclose(ravel_pytree(reverse)[0], quotient, rtol=1e-7, atol=1e-8)


def test_nan_in_the_field_is_a_status_of_each_trajectory():
    """From the first bad step on the states are NaN; also where they are not kept."""
    field = lambda t, y: jnp.where(t * y > 0.5, jnp.nan, 1.0) * y
    for save_every in (1, None):
        single = lambda y, save=save_every: integrate(vector_space(1), field, y, 0.0, 1.0, 8, METHOD, save)
        solution = jax.jit(jax.vmap(single))(jnp.asarray([[0.1], [1.0]]))
        assert solution.success.tolist() == [True, False]
        assert np.all(np.isfinite(solution.ys[0]))
        bad = np.isnan(solution.ys[1, :, 0])
        assert bad[-1]
        assert np.all(np.diff(bad.astype(int)) >= 0)
        assert save_every is None or not bad[0]


def test_overflow_is_a_status():
    assert not integrate(vector_space(1), lambda t, y: y * y, jnp.ones(1), 0.0, 2.0, 40, METHOD, None).success


def test_nested_products_of_spaces():
    """A free body with spin: attitude, position and velocities as one state, nested as the user likes."""
    space = product_space(product_space(right_translation(SO3), vector_space(3)), vector_space(2))
    field = lambda t, y: ((jnp.asarray([0.0, 0.0, 1.0]), jnp.ones(3)), -y[1])
    y0 = ((SO3.identity(jnp.float64), jnp.zeros(3)), jnp.ones(2))
    (attitude, position), decay = integrate(space, field, y0, 0.0, 1.0, 10, METHOD, None).ys
    close(attitude[0], SO3.exp(jnp.asarray([0.0, 0.0, 1.0])), 1e-14)
    close(position[0], np.ones(3), 1e-14)
    close(decay[0], np.full(2, np.exp(-1)), 1e-6)
    assert space.distance(y0, y0) == 0


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps must be a positive integer, got 0"),
        ({"steps": 2.5}, TypeError, "steps must be a Python integer.*got 2.5"),
        ({"steps": 10, "save_every": 3}, ValueError, "save_every=3 and steps=10"),
        ({"save_every": -1}, ValueError, "save_every must be a positive integer, got -1"),
        ({"t1": np.zeros(2)}, ValueError, r"t1 must be a scalar, got shape \(2,\)"),
        ({"field": lambda t, y: jnp.zeros(4)}, ValueError, r"left_translation\(SO3\).*\(\.\.\., 3\), got shape \(4,\)"),
        ({"field": lambda t, y: (jnp.zeros(3),)}, TypeError, r"must return one array \(\.\.\., 3\)"),
        ({"field": lambda t, y: jnp.zeros(3, jnp.float32)}, TypeError, "returns float32, the state is float64"),
        ({"field": lambda t, y: jnp.zeros((5, 3))}, ValueError, r"the state is float64\(3, 3\), moved.*\(5, 3, 3\)"),
        ({"field": lambda t, y: None}, TypeError, "must return one array"),
        ({"y0": jnp.eye(3, dtype=jnp.int32)}, TypeError, "one floating dtype, got none"),
        ({"t1": np.inf}, ValueError, "t1 must be a finite number, got inf"),
        ({"t0": "now"}, TypeError, "t0 must be a number, got 'now'"),
        (
            {"method": RK4},
            TypeError,
            r"integrate takes a method, got the tableau RK4; did you mean MuntheKaas\(RK4\)\?",
        ),
        ({"method": CF4}, TypeError, r"got the table CF4; did you mean CommutatorFree\(CF4\)\?"),
        ({"method": MuntheKaas}, TypeError, "the class MuntheKaas; it takes an instance"),
        ({"method": GeneralizedAlpha()}, TypeError, "GeneralizedAlpha.*; maximal.integrate takes that one"),
        ({"method": ELEMENTARY}, TypeError, "a step size controller.*; integrate_adaptive takes that as `controller`"),
        ({"method": None}, TypeError, r"got None; a method is for instance MuntheKaas\(RK4\)"),
        (
            {"space": product_space(left_translation(SO3)), "y0": (np.eye(3),)},
            TypeError,
            "must return a tuple of 1 algebra elements",
        ),
    ],
)
def test_bad_input_is_named(changes, error, message):
    arguments = {
        "space": left_translation(SO3),
        "field": lambda t, y: jnp.zeros(3),
        "y0": np.eye(3),
        "t0": 0.0,
        "t1": 1.0,
        "steps": 2,
        "method": MuntheKaas(HEUN2),
        **changes,
    }
    with pytest.raises(error, match=message):
        integrate(**arguments)


def test_traced_step_counts_are_refused():
    space, field = left_translation(SO3), lambda t, y: jnp.zeros(3)
    with pytest.raises(TypeError, match="steps must be a Python integer"):
        jax.jit(lambda n: integrate(space, field, jnp.eye(3), 0.0, 1.0, n, METHOD))(3)
