"""Generalized-alpha: coefficients, order with multipliers, Newton's method and its derivative, linear systems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax import SE3, GeneralizedAlpha, NewtonRule, R3xSO3, integrate_constrained
from lgjax.integrators import saddle_point
from lgjax.integrators.newton import Evaluation, implicit, newton
from lgjax.systems import heavy_top_maximal
from tests.oracles import heavy_top as oracle

REFERENCE = {end: oracle.solve(end) for end in (0.05, 0.1)}


def end_of(problem, steps, end=0.1, method=GeneralizedAlpha(), newton="full"):  # noqa: B008
    """Solution at the end, errors of rotation, position, velocities and multipliers with it."""
    run = jit(lambda q, v: integrate_constrained(problem.system, q, v, 0.0, end, steps, method, newton, None))
    s = run(problem.q0, problem.v0)
    assert s.success
    q = jax.tree.map(lambda x: x[0], s.q)
    motion = problem.system.motion(q, s.v[0])
    r, w, x, xdot, force = REFERENCE[end]
    found = (motion.rotation[0], motion.omega[0], motion.translation[0], motion.velocity[0])
    errors = [float(np.max(np.abs(a - b))) for a, b in zip(found, (r, w, x, xdot))]
    if problem.system.nc:
        errors.append(float(np.max(np.abs(s.multipliers[0] - force))))
    return s, np.array(errors)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 1.0])
def test_coefficients_are_of_order_two_and_damp_as_asked(rho):
    """Order 2, and ρ is the modulus of the largest eigenvalue of a step of infinite frequency."""
    m, f, beta, gamma = GeneralizedAlpha(rho).coefficients
    assert gamma == pytest.approx(0.5 + f - m)
    # One step of q̈ = -Ω² q for Ω h → ∞: unknowns (a, v̇ h²-scaled) obey q_{n+1} = 0 in the limit.
    big = 1e14
    left = np.array([[1.0, 0.0, -beta], [0.0, 1.0, -gamma], [(1 - f) * big, 0.0, 1 - m]])
    right = np.array([[1.0, 1.0, 0.5 - beta], [0.0, 1.0, 1 - gamma], [-f * big, 0.0, -m]])
    assert np.max(np.abs(np.linalg.eigvals(np.linalg.solve(left, right)))) == pytest.approx(rho, abs=1e-3)


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, "one", True])
def test_spectral_radius_lies_between_zero_and_one(value):
    with pytest.raises(ValueError, match="spectral_radius must be a number from 0 to 1"):
        GeneralizedAlpha(value)


def test_other_settings_are_checked():
    for wrong in ({"predictor": "linear"}, {"rtol": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            GeneralizedAlpha(**wrong)
    for wrong in ({"mode": "half"}, {"max_iterations": 0}, {"max_age": 1.5}, {"contractivity": 1.0}):
        with pytest.raises(ValueError, match="newton" if "mode" in wrong else next(iter(wrong))):
            NewtonRule(**wrong)


@pytest.mark.parametrize("group", [R3xSO3, SE3], ids=repr)
def test_order_two_with_multipliers_on_the_constrained_top(group):
    """Positions, velocities and, at the end, multipliers, against an independent solver."""
    problem = heavy_top_maximal(group=group)
    coarse, fine = (end_of(problem, steps)[1] for steps in (400, 800))
    np.testing.assert_allclose(np.log2(coarse / fine), 2.0, atol=0.1)


def test_order_two_without_constraints():
    problem = heavy_top_maximal(constrained=False)
    coarse, fine = (end_of(problem, steps)[1][:2] for steps in (400, 800))
    np.testing.assert_allclose(np.log2(coarse / fine), 2.0, atol=0.1)


def test_multipliers_pass_through_a_transient_of_order_one():
    """After one step the multiplier's error falls with h, at a fixed time with h²."""
    problem = heavy_top_maximal()

    run = jit(lambda h: integrate_constrained(problem.system, problem.q0, problem.v0, 0.0, h, 1).multipliers[1])
    first = lambda h: np.max(np.abs(run(h) - oracle.solve(h)[4]))

    assert np.log2(first(2e-4) / first(1e-4)) == pytest.approx(1.0, abs=0.15)


VARIANTS = {
    "modified": (GeneralizedAlpha(), "modified"),
    "zero predictor": (GeneralizedAlpha(predictor="zero"), "full"),
    "no tangent operator": (GeneralizedAlpha(tangent_operator=False), "full"),
    "geometric stiffness": (GeneralizedAlpha(geometric_stiffness=True), "full"),
}


@pytest.fixture(scope="module")
def base():
    problem = heavy_top_maximal()
    return problem, end_of(problem, 200, 0.05)[0]


MORE = [pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if name != "modified"]


@pytest.mark.parametrize("name", ["modified", *MORE])
def test_ways_to_iterate_change_the_count_and_not_the_solution(name, base):
    problem, expected = base
    s, _ = end_of(problem, 200, 0.05, *VARIANTS[name])
    np.testing.assert_allclose(s.v, expected.v, rtol=1e-6, atol=1e-6)
    count, usual = int(s.iterations[0]), int(expected.iterations[0])
    assert count <= usual if name == "geometric stiffness" else count >= usual
    assert count > usual or name in ("geometric stiffness", "zero predictor")


def cube(a, rule, guess=2.0):
    """The root of x³ = a and its report."""
    residual = lambda x: x**3 - a
    evaluate = lambda x: Evaluation(residual(x), jnp.max(jnp.abs(residual(x))) / 1e-12, 3 * x**2)
    find = lambda x: newton(evaluate, lambda x, slope: slope, lambda slope, r: r / slope, x, jnp.ones(1), rule)
    return implicit(residual, find, jnp.full((1,), guess), jnp.ones(1))


@pytest.mark.parametrize("mode", ["full", "modified"])
def test_newton_finds_roots_with_the_derivatives_of_the_implicit_function(mode):
    rule = NewtonRule(mode)
    for a in (0.5, 3.0, 20.0):
        root = cube(a, rule)
        assert root.converged
        np.testing.assert_allclose(root.x[0], a ** (1 / 3), rtol=1e-12)
        x = lambda a: cube(a, rule).x[0]
        np.testing.assert_allclose(jax.grad(x)(a), a ** (-2 / 3) / 3, rtol=1e-10)
        np.testing.assert_allclose(jax.jacfwd(jax.grad(x))(a), -2 / 9 * a ** (-5 / 3), rtol=1e-9)


def test_newton_always_ends_and_says_how():
    lanes = jnp.asarray([8.0, jnp.nan, -1e30, 8.0])
    found = jax.vmap(lambda a: cube(a, NewtonRule(max_iterations=12)))(lanes)
    np.testing.assert_array_equal(found.converged, [True, False, False, True])
    assert found.iterations[1] == 0
    assert found.iterations[2] == 12


def test_linear_systems_with_blocks_with_a_dense_and_with_a_singular_matrix():
    random = np.random.default_rng(1)
    blocks = random.normal(size=(2, 6, 6))
    blocks = blocks @ blocks.transpose(0, 2, 1) + np.eye(6) + 0.1 * random.normal(size=(2, 6, 6))
    dense = np.zeros((12, 12))
    dense[:6, :6], dense[6:, 6:] = blocks
    b = random.normal(size=(5, 12))
    bt = b + 0.1 * random.normal(size=(5, 12))
    singular = dense * 1.0
    singular[:, 3] = singular[3] = 0.0
    r = random.normal(size=17)
    for a, whole in ((blocks, dense), (dense, dense), (singular, singular)):
        matrix = np.block([[whole, b.T], [bt, np.zeros((5, 5))]])
        found = jit(lambda a, b, bt, r: saddle_point.solve(saddle_point.factorise(a, b, bt), r))(a, b, bt, r)
        np.testing.assert_allclose(found, np.linalg.solve(matrix, r), rtol=1e-8, atol=1e-10)
    general = random.normal(size=(9, 9))
    np.testing.assert_allclose(saddle_point.general_inverse(jnp.asarray(general)), np.linalg.inv(general), rtol=1e-9)
