"""Order, exactness and the two ways of running stages of Munthe-Kaas methods."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.groups import SE3, SO3, product_space, right_translation, vector_space
from lgjax.integrators import (
    BOGACKI_SHAMPINE32,
    BOGACKI_SHAMPINE32_ONE_COMMUTATOR,
    DORMAND_PRINCE54,
    DORMAND_PRINCE85,
    HEUN2,
    LIE_EULER,
    RK3,
    RK4,
    RK4_TWO_COMMUTATORS,
    RK6,
    MuntheKaas,
    integrate,
)
from lgjax.integrators.munthe_kaas import dexpinv_coefficients, truncated_dexpinv
from tests.integrators.problems import INERTIA, PROBLEMS, errors, observed_order, start

PAIR = BOGACKI_SHAMPINE32_ONE_COMMUTATOR
TABLEAUX = (LIE_EULER, HEUN2, RK3, RK4, RK4_TWO_COMMUTATORS, BOGACKI_SHAMPINE32, PAIR, DORMAND_PRINCE54, RK6)


def legs_for(order):
    """Refine until the leading term rules and before round-off does."""
    return (8, 16) if order <= 2 else (4, 8)


# Unrolled on SO(3), scanned on SE(3), where compiling many unrolled stages takes longer than running them.
@pytest.mark.parametrize("problem", ["SO3 right", "SO3 left", "SE3 right", "SE3 left"])
@pytest.mark.parametrize("tableau", TABLEAUX, ids=repr)
def test_every_tableau_has_its_order(tableau, problem):
    method = MuntheKaas(tableau, scan_stages=problem.startswith("SE3"))
    assert abs(observed_order(errors(problem, method, 5, legs_for(tableau.order))) - tableau.order) < 0.2


@pytest.mark.parametrize("problem", ["SE3 right, second kind", "SE3 left, Cayley"])
@pytest.mark.parametrize("tableau", [LIE_EULER, RK4, RK6], ids=repr)
def test_other_coordinates_than_exp_keep_the_order(tableau, problem):
    method = MuntheKaas(tableau, scan_stages=True)
    assert abs(observed_order(errors(problem, method, 5, legs_for(tableau.order))) - tableau.order) < 0.2


@pytest.mark.parametrize(
    ("tableau", "commutators", "order"), [(RK4, 0, 2), (RK4, 1, 3), (RK4, 2, 4), (RK6, 3, 5), (RK6, 4, 6)]
)
def test_a_truncated_series_keeps_the_order_it_announces(tableau, commutators, order):
    method = MuntheKaas(tableau, commutators, scan_stages=True)
    assert method.order == order
    assert observed_order(errors("SE3 left", method, 5, (4, 8))) > order - 0.2


def test_series_of_dexpinv_has_bernoulli_coefficients_and_converges():
    np.testing.assert_allclose(dexpinv_coefficients(6), [1, -1 / 2, 1 / 12, 0, -1 / 720, 0, 1 / 30240], rtol=1e-15)
    assert dexpinv_coefficients(3) == dexpinv_coefficients(2)
    space = right_translation(SE3)
    sigma, xi = jnp.asarray([0.3, -0.2, 0.1, 1.0, 0.5, 0.2]), jnp.asarray([1.0, 2.0, -1.0, 0.3, 0.1, 0.4])
    np.testing.assert_allclose(truncated_dexpinv(space, sigma, xi, 20), space.dexpinv(sigma, xi), rtol=1e-13)


@pytest.mark.parametrize("tableau", [RK4, RK4_TWO_COMMUTATORS, PAIR, DORMAND_PRINCE54, RK6], ids=repr)
def test_scanned_stages_are_unrolled_stages(tableau):
    space = product_space(right_translation(SO3), vector_space(3))
    inertia = jnp.asarray(INERTIA)

    def field(t, y):
        attitude, omega = y
        del attitude
        return omega, (jnp.cross(inertia * omega, omega) + jnp.sin(t)) / inertia

    y = (SO3.exp(jnp.asarray([0.1, 0.2, 0.3])), jnp.asarray([0.7, -1.2, 0.9]))
    h, t = jnp.asarray(0.2), jnp.asarray(0.4)
    results = []
    for scan_stages in (False, True):
        method = MuntheKaas(tableau, scan_stages=scan_stages)
        step = method.step if tableau.b_hat is None else method.embedded_step
        run = jax.jit(lambda t, y, h, step=step: step(space, field, t, y, h, ()))
        results.append(run(t, y, h))
    for a, b in zip(jax.tree.leaves(results[0]), jax.tree.leaves(results[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-15)


def test_scanned_stages_trace_the_field_once():
    calls = []

    def field(t, y):
        calls.append(t)
        return -y

    for scan_stages, expected in ((False, 7), (True, 1)):
        calls.clear()
        step = MuntheKaas(RK6, scan_stages=scan_stages).step
        jax.make_jaxpr(lambda y, step=step: step(vector_space(2), field, jnp.asarray(0.0), y, jnp.asarray(0.1), ()))(
            jnp.zeros(2)
        )
        # One more abstract trace finds the shapes of the scan's carry.
        assert len(calls) == expected + scan_stages


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_rotations_stay_rotations(dtype):
    """Two thousand steps leave RᵀR - I at the round-off of as many products."""
    problem = PROBLEMS["SO3 right"]
    run = jax.jit(
        lambda y: integrate(problem.space, problem.field, y, 0.0, 200.0, 2000, MuntheKaas(RK4), None).ys[0],
    )
    g = np.asarray(run(start("SO3 right", dtype)), np.float64)
    assert np.max(np.abs(g.T @ g - np.eye(3))) < 500 * jnp.finfo(dtype).eps


def test_on_a_vector_space_the_method_is_classical():
    """RK4 multiplies y' = -y by its stability polynomial, exactly."""
    z = -0.1
    factor = 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24
    ys = integrate(vector_space(2), lambda t, y: -y, jnp.asarray([1.0, 2.0]), 0.0, 1.0, 10, MuntheKaas(RK4)).ys
    np.testing.assert_allclose(ys[:, 0], factor ** np.arange(11), rtol=1e-14)


def test_methods_are_values_and_refuse_nonsense():
    assert MuntheKaas(RK4) == MuntheKaas(RK4)
    assert len({MuntheKaas(RK4), MuntheKaas(RK4), MuntheKaas(RK4, 2)}) == 2
    with pytest.raises(ValueError, match="got -1"):
        MuntheKaas(RK4, -1)
    with pytest.raises(ValueError, match="error must be one of"):
        MuntheKaas(DORMAND_PRINCE54, error="chart")
    with pytest.raises(ValueError, match="BOGACKI_SHAMPINE32_ONE_COMMUTATOR: bracket"):
        dataclasses.replace(PAIR, brackets=((6, 1.0, 0, 1),))
    with pytest.raises(ValueError, match="RK4_TWO_COMMUTATORS has its own commutators"):
        MuntheKaas(RK4_TWO_COMMUTATORS, 2)
    with pytest.raises(TypeError, match="takes a Tableau, got 'RK4'"):
        MuntheKaas("RK4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="RK4 has no embedded method"):
        MuntheKaas(RK4).embedded_step(vector_space(1), lambda t, y: y, jnp.zeros(()), jnp.zeros(1), jnp.ones(()), ())


def test_many_stages_trace_the_field_once():
    """More than seven stages are scanned unless told otherwise; fewer are not, as unrolled ones run faster."""

    def traced(method):
        calls = []
        field = lambda t, y: calls.append(1) or -y
        method.embedded_step(vector_space(1), field, jnp.zeros(()), jnp.ones(1), jnp.ones(()), ())
        return len(calls)

    stages = DORMAND_PRINCE85.stages
    assert stages > 7
    assert traced(MuntheKaas(DORMAND_PRINCE54)) == 7
    assert traced(MuntheKaas(DORMAND_PRINCE85)) < stages
    assert traced(MuntheKaas(DORMAND_PRINCE85, scan_stages=False)) == stages


@pytest.mark.parametrize("scanned", [False, True])
def test_both_methods_of_a_pair_share_their_commutator(scanned):
    """One bracket per step, which adds the same to both exponents."""
    space, calls = right_translation(SO3), []

    def bracket(x, y):
        calls.append(1)
        return SO3.ad(x, y)

    counted = dataclasses.replace(space, bracket=bracket)
    field = PROBLEMS["SO3 right"].field
    t, y, h = jnp.zeros(()), start("SO3 right", jnp.float64), jnp.asarray(0.1)
    method = MuntheKaas(PAIR, scan_stages=scanned)
    sigma, sigma_hat = method.embedded_exponents(counted, field, t, y, h)
    assert len(calls) == 1
    without = dataclasses.replace(PAIR, brackets=((4, 0.0, 0, 1),))
    plain, plain_hat = MuntheKaas(without, scan_stages=scanned).embedded_exponents(space, field, t, y, h)
    np.testing.assert_allclose(sigma - plain, sigma_hat - plain_hat, atol=1e-17)
    assert np.max(np.abs(sigma - plain)) > 1e-6
