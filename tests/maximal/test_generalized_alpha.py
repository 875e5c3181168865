"""Generalized-alpha: coefficients, order with multipliers, Newton's method and its derivative, linear systems."""

import dataclasses
from dataclasses import replace
from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from scipy.spatial.transform import Rotation

from lgjax import RK4, SE3, GeneralizedAlpha, MuntheKaas, R3xSO3, SymplecticLie, maximal
from lgjax.groups import se3
from lgjax.maximal import EXUDYN_RULE, NewtonRule
from lgjax.numerics import saddle_point
from lgjax.numerics.implicit import implicit
from lgjax.numerics.newton import Evaluation, newton
from lgjax.systems import heavy_top_maximal
from tests.oracles import heavy_top as oracle

REFERENCE = {end: oracle.solve(end) for end in (0.05, 0.1)}


def end_of(problem, steps, end=0.1, method=GeneralizedAlpha(), newton="full"):  # noqa: B008
    """Solution at the end, errors of rotation, position, velocities and multipliers with it."""
    run = jit(lambda q, v: maximal.integrate(problem.system, q, v, 0.0, end, steps, method, newton, None))
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


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, np.float32(1.5)])
def test_spectral_radius_lies_between_zero_and_one(value):
    with pytest.raises(ValueError, match="spectral_radius must be a number from 0 to 1"):
        GeneralizedAlpha(value)


@pytest.mark.parametrize("value", ["one", True, 0.5j, (0.5, 0.5)])
def test_spectral_radius_is_a_number(value):
    with pytest.raises(TypeError, match="spectral_radius must be a number"):
        GeneralizedAlpha(value)


def test_other_settings_are_checked():
    for wrong in ({"predictor": "linear"}, {"rtol": 0.0}, {"variant": "sigma"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            GeneralizedAlpha(**wrong)
    for wrong in ({"mode": "half"}, {"max_iterations": 0}, {"max_age": 1.5}, {"contractivity": 1.0}):
        error = TypeError if "max_age" in wrong else ValueError
        with pytest.raises(error, match="newton" if "mode" in wrong else next(iter(wrong))):
            NewtonRule(**wrong)


@pytest.mark.parametrize("kind", [np.float32, np.float64, jnp.float32, np.array], ids=lambda kind: kind.__name__)
def test_every_known_scalar_is_a_setting_and_equal_to_the_python_number(kind):
    half = kind(0.5)
    pairs = [
        (GeneralizedAlpha(half, rtol=half), GeneralizedAlpha(0.5, rtol=0.5)),
        (NewtonRule(contractivity=half), NewtonRule(contractivity=0.5)),
        (SymplecticLie(half), SymplecticLie(0.5)),
    ]
    for found, expected in pairs:
        assert found == expected
        assert hash(found) == hash(expected)
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("kind", [np.int64, np.int8, jnp.int32], ids=lambda kind: kind.__name__)
def test_every_known_integer_is_a_setting_and_equal_to_the_python_integer(kind):
    pairs = [
        (NewtonRule(max_iterations=kind(7), max_age=kind(3)), NewtonRule(max_iterations=7, max_age=3)),
        (MuntheKaas(RK4, kind(2)), MuntheKaas(RK4, 2)),
        (GeneralizedAlpha(kind(1)), GeneralizedAlpha(1.0)),
    ]
    for found, expected in pairs:
        assert found == expected
        assert hash(found) == hash(expected)
        assert repr(found) == repr(expected)


@cache
def errors_of(group, variant, steps):
    """Errors on the constrained top at 0.1 s: rotation, body rates, position, velocity, multipliers."""
    rho = 0.9 if variant == "standard" else 0.6
    return end_of(heavy_top_maximal(group=group), steps, method=GeneralizedAlpha(rho, variant=variant))[1]


@pytest.mark.parametrize(
    ("group", "variant"),
    [
        (R3xSO3, "standard"),
        (SE3, "standard"),
        (R3xSO3, "sigma_modified"),
        pytest.param(SE3, "sigma_modified", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_order_two_with_multipliers_on_the_constrained_top(group, variant):
    """Positions, velocities and, at the end, multipliers, against an independent solver."""
    coarse, fine = (errors_of(group, variant, steps) for steps in (400, 800))
    np.testing.assert_allclose(np.log2(coarse / fine), 2.0, atol=0.1)


def test_the_sigma_modified_variant_is_five_times_more_accurate_on_the_top():
    """The place of the center of mass, which is the axis of the top, with more damping than the standard variant."""
    standard, modified = (errors_of(R3xSO3, variant, 800)[2] for variant in ("standard", "sigma_modified"))
    assert modified < standard / 5


def test_the_bracket_is_that_of_the_group():
    """The commutator of 4x4 matrices on SE(3); on R³ x SO(3) that of rotations, and translations commute."""
    x, y = np.random.default_rng(0).normal(size=(2, 6))
    bodies = [maximal.Body("one", 1.0, (1.0, 1.0, 1.0))]
    matrix = lambda x: np.asarray(se3.hat(jnp.asarray(x)))
    commutator = matrix(x) @ matrix(y) - matrix(y) @ matrix(x)
    system = maximal.System(bodies, group=SE3)
    np.testing.assert_allclose(matrix(system.bracket(x, y)), commutator, atol=1e-14)
    system = maximal.System(bodies, group=R3xSO3)
    np.testing.assert_allclose(system.bracket(x, y), [*np.cross(x[:3], y[:3]), 0, 0, 0], atol=1e-14)


def sigma_modified_by_hand(rates, h, omega, rho):
    """Rotations of a body with the unit inertia under given angular accelerations (n + 1, 3), step by step."""
    m, f = (2 * rho - 1) / (rho + 1), rho / (rho + 1)
    gamma = 0.5 + f - m
    beta = 0.25 * (gamma + 0.5) ** 2
    exp = lambda x: Rotation.from_rotvec(x).as_matrix()
    r, a = np.eye(3), rates[0]
    for before, after in pairwise(rates):
        least = (f * before - m * a) / (1 - m)
        v0 = omega + h * ((1 - gamma) * a + gamma * least)
        step = h * omega + h * h * ((0.5 - beta) * a + beta * least)
        new = ((1 - f) * after + f * before - m * a) / (1 - m)
        omega, a = omega + h * ((1 - gamma) * a + gamma * new), new
        r = r @ exp(step + h * beta / (2 * gamma) * np.cross(step, v0)) @ exp(h * beta / gamma * (omega - v0))
    return r, omega


TORQUES = np.random.default_rng(3).normal(size=(7, 3)) * 5.0


def given_torque(t, q, v, p):
    return jnp.concatenate([jnp.asarray(TORQUES)[jnp.round(10.0 * t).astype(int)], jnp.zeros(3)])


@pytest.mark.parametrize("predictor", ["constant", "zero"])
def test_the_sigma_modified_variant_is_its_formula(predictor):
    """A body with the unit inertia, whose angular acceleration is the torque, in steps of 0.1 s."""
    system = maximal.System(
        [maximal.Body("ball", 1.0, (1.0, 1.0, 1.0))], [], [maximal.UserForce(given_torque, couples=False)]
    )
    q, v = system.configuration(np.eye(3)[None], np.zeros((1, 3))), jnp.asarray([1.0, -2.0, 3.0, 0.0, 0.0, 0.0])
    method = GeneralizedAlpha(0.8, variant="sigma_modified", predictor=predictor, rtol=1e-13)
    s = jit(lambda v: maximal.integrate(system, q, v, 0.0, 0.6, 6, method, save_every=None))(v)
    assert s.success
    r, omega = sigma_modified_by_hand(TORQUES, 0.1, np.asarray(v[:3]), 0.8)
    np.testing.assert_allclose(s.q.bodies.rotation[0, 0], r, atol=1e-12)
    np.testing.assert_allclose(s.v[0, :3], omega, atol=1e-12)


def check_derivatives(constrained, reverse):
    """Of a scalar of the end by mass and angular velocity, against differences; reverse mode against forward mode."""
    method = GeneralizedAlpha(variant="sigma_modified", rtol=1e-12)
    weights = jnp.asarray([[1.0, 2.0, -1.0], [0.5, 1.0, 3.0], [-2.0, 1.0, 1.0]])

    def measure(x):
        p = heavy_top_maximal(constrained, mass=x[0], angular_velocity=x[1:])
        s = maximal.integrate(p.system, p.q0, p.v0, 0.0, 0.02, 2, method, save_every=None)
        force = jnp.sum(s.multipliers) / 1e3
        return jnp.sum(weights * s.q.bodies.rotation[0, 0]) + s.v[0, :3] @ weights[0] + force

    x, along = jnp.asarray([15.0, 3.0, 20.0, -4.0]), jnp.asarray([1.0, -2.0, 1.0, 3.0])
    _, forward = jit(lambda x: jax.jvp(measure, (x,), (along,)))(x)
    near = jit(jax.vmap(measure))(jnp.stack([x + 1e-4 * along, x - 1e-4 * along]))
    np.testing.assert_allclose(forward, (near[0] - near[1]) / 2e-4, rtol=1e-6)
    if reverse:
        np.testing.assert_allclose(jit(jax.grad(measure))(x) @ along, forward, rtol=1e-9)


def test_derivatives_of_the_sigma_modified_variant_are_those_of_differences():
    check_derivatives(constrained=False, reverse=False)


@pytest.mark.slow
def test_derivatives_of_the_sigma_modified_variant_with_constraints_are_those_of_differences():
    check_derivatives(constrained=True, reverse=True)


def test_geometric_stiffness_without_constraints_changes_nothing_but_the_count():
    problem = heavy_top_maximal(constrained=False)
    start = problem.system, problem.q0, problem.v0, 0.0, 0.01, 20
    plain, stiff = (
        jit(lambda x=x: maximal.integrate(*start, GeneralizedAlpha(geometric_stiffness=x)))() for x in (False, True)
    )
    assert stiff.success
    np.testing.assert_allclose(stiff.v, plain.v, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("newton", ["full", "modified"])
def test_a_run_of_no_time_stays_where_it_is(newton):
    problem = heavy_top_maximal()
    run = lambda end: maximal.integrate(problem.system, problem.q0, problem.v0, 0.0, end, 3, newton=newton)
    ends = jit(jax.vmap(run))(jnp.array([0.0, 1e-3]))
    assert np.all(np.asarray(ends.status) == 0)
    np.testing.assert_array_equal(ends.v[0, -1], problem.v0)
    np.testing.assert_allclose(ends.v[1], jit(run)(1e-3).v, rtol=1e-10, atol=1e-10)


def test_order_two_without_constraints():
    problem = heavy_top_maximal(constrained=False)
    coarse, fine = (end_of(problem, steps)[1][:2] for steps in (400, 800))
    np.testing.assert_allclose(np.log2(coarse / fine), 2.0, atol=0.1)


def test_multipliers_pass_through_a_transient_of_order_one():
    """After one step the multiplier's error falls with h, at a fixed time with h²."""
    problem = heavy_top_maximal()

    run = jit(lambda h: maximal.integrate(problem.system, problem.q0, problem.v0, 0.0, h, 1).multipliers[1])
    first = lambda h: np.max(np.abs(run(h) - oracle.solve(h)[4]))

    assert np.log2(first(2e-4) / first(1e-4)) == pytest.approx(1.0, abs=0.15)


ITERATIONS = {
    "modified": (GeneralizedAlpha(), "modified"),
    "zero predictor": (GeneralizedAlpha(predictor="zero"), "full"),
    "no tangent operator": (GeneralizedAlpha(tangent_operator=False), "full"),
    "geometric stiffness": (GeneralizedAlpha(geometric_stiffness=True), "full"),
}


@pytest.fixture(scope="module")
def base():
    problem = heavy_top_maximal()
    return problem, end_of(problem, 200, 0.05)[0]


MORE = [pytest.param(name, marks=pytest.mark.slow) for name in ITERATIONS if name != "modified"]


@pytest.mark.parametrize("name", ["modified", *MORE])
def test_ways_to_iterate_change_the_count_and_not_the_solution(name, base):
    problem, expected = base
    s, _ = end_of(problem, 200, 0.05, *ITERATIONS[name])
    np.testing.assert_allclose(s.v, expected.v, rtol=1e-6, atol=1e-6)
    count, usual = int(s.iterations[0]), int(expected.iterations[0])
    assert count <= usual if name == "geometric stiffness" else count >= usual
    assert count > usual or name in ("geometric stiffness", "zero predictor")


@pytest.mark.slow
@pytest.mark.parametrize("name", ITERATIONS)
def test_ways_to_iterate_the_sigma_modified_variant_do_not_change_its_solution(name):
    (method, newton), problem = ITERATIONS[name], heavy_top_maximal()
    usual = GeneralizedAlpha(0.6, variant="sigma_modified")
    expected = end_of(problem, 200, 0.05, usual)[0]
    s, _ = end_of(problem, 200, 0.05, replace(method, spectral_radius=0.6, variant="sigma_modified"), newton)
    np.testing.assert_allclose(s.v, expected.v, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(s.q.bodies.rotation, expected.q.bodies.rotation, atol=1e-8)


def cube(a, rule, guess=2.0):
    """The root of x³ = a and its report."""
    residual = lambda x: x**3 - a
    evaluate = lambda x: Evaluation(residual(x), jnp.max(jnp.abs(residual(x))) / 1e-12, 3 * x**2)
    find = lambda x: newton(evaluate, lambda x, slope: slope, lambda slope, r: r / slope, x, jnp.ones(1), rule)
    x, root = implicit(residual, lambda x: (find(x).x, find(x)), jnp.full((1,), guess))
    return root._replace(x=x)


def test_second_derivatives_in_a_scan_do_not_need_iterations():
    """Three times the root of x³ = 8 from where it is: at an equilibrium, a step takes no iteration."""

    def thrice(a):
        step = lambda x, _: (x + cube(a + 0 * x, NewtonRule(), 2.0).x[0], None)
        return jax.lax.scan(step, jnp.zeros(()), length=3)[0]

    assert cube(8.0, NewtonRule(), 2.0).iterations == 0
    for second in (jax.jacfwd(jax.grad(thrice)), jax.grad(jax.grad(thrice)), jax.jacfwd(jax.jacfwd(thrice))):
        np.testing.assert_allclose(jit(second)(8.0), -2 / 3 * 8 ** (-5 / 3), rtol=1e-12)


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
        found = jit(lambda a, b, bt, r: saddle_point.solve(saddle_point.factorize(a, b, bt), r))(a, b, bt, r)
        np.testing.assert_allclose(found, np.linalg.solve(matrix, r), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_inverses_of_general_matrices(n):
    """Rows are exchanged where a pivot is zero; the least pivot shows a singular matrix."""
    a = np.random.default_rng(n).normal(size=(n, n))
    if n > 1:
        a[0, 0] = 0.0
    inverses, pivots = jit(jax.vmap(saddle_point.general_inverse))(
        jnp.stack([a, 1e6 * a, np.eye(n), a - np.outer(a[:, -1], np.eye(n)[-1])])
    )
    np.testing.assert_allclose(inverses[0], np.linalg.inv(a), rtol=1e-9)
    np.testing.assert_allclose(inverses[1], np.linalg.inv(a) / 1e6, rtol=1e-9)
    np.testing.assert_array_equal(inverses[2], np.eye(n))
    assert 0.5 / (n * np.linalg.cond(a, np.inf)) < pivots[0] <= 1.0
    np.testing.assert_allclose(pivots[1:3], [pivots[0], 1.0], rtol=1e-12)
    assert not pivots[3] > 1e-15


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_inverses_of_all_sizes_alone_and_in_batches(dtype):
    """Written out, by blocks with and without filling, by halves."""
    random = np.random.default_rng(2)
    sizes = (2, 3, 4, 6, 20, 27)
    assert saddle_point.BLOCK < 4 < 20 <= saddle_point.WHOLE < 27
    roots = [random.normal(size=(2, n, n)) for n in sizes]
    matrices = [jnp.asarray(a @ a.transpose(0, 2, 1) / len(a[0]) + np.eye(len(a[0])), dtype) for a in roots]
    found = jit(lambda some: [(saddle_point.inverse(m[0]), jax.vmap(saddle_point.inverse)(m)) for m in some])(matrices)
    for m, (one, both) in zip(matrices, found, strict=True):
        exact = np.linalg.inv(np.asarray(m, float))
        assert one.dtype == dtype
        for actual, expected in ((one, exact[0]), (both, exact)):
            np.testing.assert_allclose(actual, expected, atol=1e2 * float(jnp.finfo(dtype).eps))


def test_rules_renew_the_matrix_when_they_say():
    """A matrix that is wrong by a third leaves a third of the error, one that is wrong by 2.5 makes it grow."""
    renewed = []

    def count(wrong, rule):
        made = []
        evaluate = lambda x: Evaluation(x, jnp.max(jnp.abs(x)) * 1e9, None)
        factorize = lambda x, _: jax.debug.callback(lambda: made.append(1)) or jnp.ones(())
        root = newton(evaluate, factorize, lambda f, r: r / f, jnp.ones(1), jnp.asarray(wrong), rule)
        jax.effects_barrier()
        renewed.append(len(made))
        return int(root.iterations)

    assert count(0.4, NewtonRule("modified")) == 2  # grows in the first; the second has the right matrix
    assert count(0.4, EXUDYN_RULE) == 4  # judged from the third on
    slow = NewtonRule("modified", contractivity=0.9)
    assert count(3.0, slow) == 9  # the eight of max_age, and one with the right matrix
    assert count(3.0, dataclasses.replace(slow, count="call")) == 10
    assert renewed == [1, 1, 1, 1]


@pytest.mark.slow
def test_exudyn_s_rule_takes_as_many_iterations_as_exudyn():
    """The top with its tip held; Exudyn starts every step from no accelerations and no multipliers."""
    from tests.oracles import exudyn_systems

    problem, steps, end = heavy_top_maximal(), 100, 0.01
    method = GeneralizedAlpha(0.9, predictor="zero", rtol=1e-8)
    run = lambda rule: maximal.integrate(
        problem.system, problem.q0, problem.v0, 0.0, end, steps, method, rule, save_every=None
    )
    mechanism, _ = exudyn_systems.heavy_top()
    theirs = mechanism.solve(end, steps, True, rtol=1e-8)
    assert abs(int(run(EXUDYN_RULE).iterations[0]) - theirs) < 0.03 * theirs
    assert abs(int(run("modified").iterations[0]) - theirs) > 0.04 * theirs
