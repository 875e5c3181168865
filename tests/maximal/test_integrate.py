"""Constrained rollouts: drift, status, batches, derivatives, dtypes and bad starts, on the slider-crank and others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax import RK4, GeneralizedAlpha, MuntheKaas, integrate, maximal
from lgjax.maximal import NewtonRule
from lgjax.maximal.checks import check_start
from lgjax.systems import heavy_top_maximal, slider_crank
from lgjax.systems.slider_crank import slider_position
from tests.oracles import heavy_top as top_oracle
from tests.oracles import slider_crank as oracle

MASSES = jnp.asarray((0.12, 0.5, 2.0))


def run(problem, end, steps, newton="full", save_every=1, method=GeneralizedAlpha()):  # noqa: B008
    return maximal.integrate(problem.system, problem.q0, problem.v0, 0.0, end, steps, method, newton, save_every)


def final(masses, speed, end=0.25, steps=50):
    """Slider position and status at the end."""
    s = run(slider_crank(masses, speed=speed), end, steps, save_every=None)
    return slider_position(s.q)[0], s.success


@pytest.fixture(scope="module")
def second():
    """One second of the slider-crank in steps of a millisecond."""
    problem = slider_crank()
    return problem, jit(lambda: run(problem, 1.0, 1000))()


def test_constraints_hold_to_round_off(second):
    problem, s = second
    assert s.success
    assert s.status == maximal.Status.OK
    gaps = jit(jax.vmap(problem.system.constraints))(s.ts, s.q)
    assert np.max(np.abs(gaps)) < 1e-12
    rates = jax.vmap(lambda t, q, v: problem.system.jacobian(t, q) @ v)(s.ts, s.q, s.v)
    # The rates are not solved for: they follow with the order of the method.
    assert np.max(np.abs(rates)) < 2e-3
    orthogonal = jnp.einsum("tnij,tnik->tnjk", s.q.bodies.rotation, s.q.bodies.rotation)
    assert np.max(np.abs(orthogonal - jnp.eye(3))) < 1e-12


def test_energy_is_kept_but_for_numerical_damping(second):
    problem, s = second
    energy = jax.vmap(problem.invariants["energy"])(s.q, s.v)
    kinetic = jax.vmap(problem.system.kinetic_energy)(s.q, s.v)
    assert np.max(np.abs(energy - energy[0])) < 2e-3 * np.max(kinetic)


def test_the_motion_is_that_of_the_reduced_equation(second):
    _, s = second
    assert float(slider_position(s.q)[-1]) == pytest.approx(oracle.solve(1.0)[2], abs=5e-5)


def test_saving_less_keeps_the_same_states_and_adds_up_iterations(second):
    problem, s = second
    few = jit(lambda: run(problem, 1.0, 1000, save_every=250))()
    np.testing.assert_allclose(few.v, s.v[::250], rtol=0, atol=1e-9)
    np.testing.assert_allclose(few.ts, s.ts[::250])
    np.testing.assert_array_equal(few.iterations[1:], np.sum(np.reshape(s.iterations[1:], (4, 250)), axis=1))
    with pytest.raises(ValueError, match="save_every must divide"):
        run(problem, 1.0, 10, save_every=3)


def test_a_batch_is_a_loop_and_derivatives_are_those_of_differences():
    """One program for 8 masses and speeds, which are those to look at and those to differentiate by."""
    together, alone = jit(jax.vmap(final)), jit(jax.value_and_grad(final, (0, 1), has_aux=True))
    scale = 1 + 0.2 * jax.random.uniform(jax.random.key(0), (8, 3), minval=-1.0)
    batch = together(MASSES * scale, 6.0 * scale[:, 0])
    assert np.all(batch[1])
    for i in range(5):
        (one, _), _ = alone(MASSES * scale[i], 6.0 * scale[i, 0])
        np.testing.assert_allclose(batch[0][i], one, rtol=0, atol=1e-11)
    _, slopes = alone(MASSES, 6.0)
    at = np.array([*MASSES, 6.0])
    near = at + np.concatenate([np.diag(1e-4 * at), np.diag(-1e-4 * at)])
    plus, minus = np.split(np.asarray(together(near[:, :3], near[:, 3])[0]), 2)
    np.testing.assert_allclose([*slopes[0], slopes[1]], (plus - minus) / (2e-4 * at), rtol=1e-5)


def test_float32_goes_the_same_way(second):
    s = jit(lambda: run(slider_crank(dtype=jnp.float32), 1.0, 500, save_every=100))()
    assert s.success
    assert {leaf.dtype for leaf in jax.tree.leaves((s.q, s.v, s.multipliers))} == {jnp.dtype("float32")}
    np.testing.assert_allclose(slider_position(s.q), slider_position(second[1].q)[::200], atol=5e-4)


def test_a_newton_failure_is_reported_and_ends():
    """Steps of 0.1 s are hopeless; every lane says so for itself, and what follows is NaN, not nonsense."""
    problem = slider_crank()
    rule = NewtonRule(max_iterations=4)
    ends = jnp.asarray([0.05, 5.0])
    go = lambda end: maximal.integrate(problem.system, problem.q0, problem.v0, 0.0, end, 50, newton=rule)
    s = jit(jax.vmap(go))(ends)
    np.testing.assert_array_equal(s.success, [True, False])
    np.testing.assert_array_equal(s.status, [maximal.Status.OK, maximal.Status.NOT_CONVERGED])
    assert np.all(np.isfinite(s.v[0]))
    assert np.all(np.isnan(s.v[1, -1]))
    assert np.max(s.iterations) <= 4


def test_inconsistent_starts():
    problem = slider_crank()
    system, q, v = problem.system, problem.q0, problem.v0
    moved = system.move(q, 1e-3 * jnp.ones(system.nv))
    with pytest.raises(ValueError, match=r"joint '[ABCD]' .* is broken at the start: -?\d"):
        maximal.integrate(system, moved, v, 0.0, 1.0, 10)
    with pytest.raises(ValueError, match=r"joint '[ABCD]' .* is broken by the initial velocities"):
        maximal.integrate(system, q, v + 0.1, 0.0, 1.0, 10)
    with pytest.raises(ValueError, match="v is not finite"):
        maximal.integrate(system, q, v * jnp.nan, 0.0, 1.0, 10)
    # Where values are not known the status says it.
    go = jit(lambda q, v: maximal.integrate(system, q, v, 0.0, 0.01, 2))
    assert go(q, v).success
    assert go(q, v).status == maximal.Status.OK
    for start in ((moved, v), (q, v + 0.1)):
        assert not go(*start).success
        assert go(*start).status == maximal.Status.INCONSISTENT
    assert go(q, v * jnp.nan).status == maximal.Status.NOT_FINITE


def bar(joints, mass=1.0, inertia=(0.1, 0.1, 0.1)):
    system = maximal.System([maximal.Body("bar", mass, inertia)], joints)
    return system, system.configuration(np.eye(3)[None], np.zeros((1, 3))), jnp.zeros(6)


def status(system, q, v):
    return int(jit(lambda q, v: maximal.integrate(system, q, v, 0.0, 0.01, 2).status)(q, v))


# Attitudes at which the rows of a joint vanish: with equal frames, half turns and third turns.
SIGNS = np.array([(1.0, 1, 1), (-1, -1, 1), (-1, 1, -1), (1, -1, -1)])
ATTITUDES = [np.diag(signs)[:, columns] for columns in ([0, 1, 2], [1, 2, 0]) for signs in SIGNS]
TURNED = {
    "fixed": "its axes [xy] are not equal",
    "prismatic": "its axes [xy] are not equal",
    "revolute": "it is half a turn off its drive",
}


def no_motion(t):
    return 0.0 * t


def turned(kind):
    """A system with such a joint, a start, and starts at attitudes where the rows of the joint vanish as well."""
    drive = None if kind == "fixed" else no_motion
    system, q, v = bar([maximal.Joint("weld", kind, "world", "bar", drive=drive)])
    rotations = [jnp.asarray(r)[None] for r in (ATTITUDES[:2] if kind == "revolute" else ATTITUDES)]
    return system, v, [q._replace(bodies=q.bodies._replace(rotation=r)) for r in rotations]


@pytest.mark.parametrize("kind", TURNED)
def test_joints_whose_rows_vanish_at_another_attitude_are_broken_there(kind):
    system, v, (start, *others) = turned(kind)
    check_start(system, 0.0, start, v)
    for q in others:
        np.testing.assert_allclose(system.constraints(0.0, q), 0, atol=1e-15)
        with pytest.raises(ValueError, match=rf"joint 'weld' \({kind}\) is broken at the start: {TURNED[kind]}"):
            check_start(system, 0.0, q, v)


@pytest.mark.parametrize("kind", TURNED)
def test_the_status_tells_of_such_an_attitude_where_it_is_traced(kind):
    system, v, starts = turned(kind)
    batch = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    found = jit(jax.vmap(lambda q: maximal.integrate(system, q, v, 0.0, 0.01, 1).status))(batch)
    np.testing.assert_array_equal(found, [maximal.Status.OK] + [maximal.Status.INCONSISTENT] * (len(starts) - 1))


def test_redundant_constraints():
    twice = [maximal.Joint(name, "spherical", "world", "bar") for name in ("one", "two")]
    start = bar(twice)
    with pytest.raises(ValueError, match=r"6 constraints of rank 3 are redundant.*'one'.*'two'"):
        maximal.integrate(*start, 0.0, 1.0, 10)
    assert status(*start) == maximal.Status.SINGULAR


def test_masses_that_are_singular_where_nothing_holds_and_where_something_does():
    """A moment of zero about a free axis is an error, about a held one it is not."""
    tip = maximal.Joint("tip", "spherical", "world", "bar")
    hinge = maximal.Joint("hinge", "revolute", "world", "bar")
    about_z = bar([tip], inertia=(0.1, 0.1, 0.0))
    with pytest.raises(ValueError, match="mass matrix is singular where no constraint holds: body 'bar'"):
        maximal.integrate(*about_z, 0.0, 1.0, 10)
    assert status(*about_z) == maximal.Status.SINGULAR
    # The hinge turns about z and holds x and y.
    held = bar([hinge], inertia=(0.0, 0.0, 0.1))
    assert not held[0].structure.block
    assert status(*held) == maximal.Status.OK


def ends_as_a_root(t, q, v, p):
    """A force that is a number until t = 1 only."""
    return jnp.sqrt(p - t) * jnp.ones_like(v)


def test_a_force_that_stops_being_a_number_is_said_and_nothing_else():
    """Nor do the iterations that fail after it change what the status says."""
    system = maximal.System([maximal.VectorNode("x", 1, 1.0)], [], [maximal.UserForce(ends_as_a_root, 1.0)])
    q = system.configuration(np.zeros((0, 3, 3)), np.zeros((0, 3)), (0.0,))
    s = jit(lambda v: maximal.integrate(system, q, v, 0.0, 2.0, 20, GeneralizedAlpha(1.0)))(jnp.zeros(1))
    assert s.status == maximal.Status.NOT_FINITE
    assert not s.success
    np.testing.assert_array_equal(np.isfinite(s.v[:, 0]), s.ts <= 1.0)


def test_without_damping_multipliers_do_not_converge_and_the_status_says_so():
    """ρ = 1: errors on the top at 0.05 s fall with h² but for the multipliers', which h does not make smaller."""
    problem, errors = heavy_top_maximal(), []
    r, w, x, _, force = top_oracle.solve(0.05)
    for steps in (200, 400):
        s = jit(lambda n=steps: run(problem, 0.05, n, save_every=None, method=GeneralizedAlpha(1.0)))()
        assert s.status == maximal.Status.MULTIPLIERS_UNDAMPED
        assert s.success
        found = (s.q.bodies.rotation[0, 0], s.v[0, :3], s.q.bodies.translation[0, 0], s.multipliers[0])
        errors.append([np.max(np.abs(a - b)) for a, b in zip(found, (r, w, x, force))])
    orders = np.log2(np.divide(*errors))
    np.testing.assert_allclose(orders[:3], 2.0, atol=0.2)
    assert orders[3] < 0.5


def test_what_is_no_method_or_no_system_is_named_with_what_to_use():
    problem = slider_crank()
    for wrong in (MuntheKaas(RK4), "alpha", GeneralizedAlpha, RK4, NewtonRule()):
        with pytest.raises(TypeError, match=r"method must be a GeneralizedAlpha\(...\).*maximal.unconstrained_problem"):
            maximal.integrate(problem.system, problem.q0, problem.v0, 0.0, 1.0, 10, wrong)
    for function in (maximal.unconstrained_problem, lambda *start: maximal.integrate(*start, 0.0, 1.0, 10)):
        with pytest.raises(TypeError, match=r"system must be a maximal\.System, got MaximalProblem"):
            function(problem, problem.q0, problem.v0)
    with pytest.raises(ValueError, match=r"has constraints.*use maximal.integrate"):
        maximal.unconstrained_problem(problem.system, problem.q0, problem.v0)
    free = heavy_top_maximal(constrained=False)
    with pytest.raises(ValueError, match="v has shape"):
        maximal.unconstrained_problem(free.system, free.q0, jnp.zeros(3))


def oscillator(t, q, v, p):
    return -p * q.coordinates


def test_conventional_coordinates_swing_with_their_frequency():
    """A vector node alone: x'' = -k x / m."""
    system = maximal.System([maximal.VectorNode("x", 2, (1.0, 4.0))], [], [maximal.UserForce(oscillator, 9.0)])
    q = system.configuration(np.zeros((0, 3, 3)), np.zeros((0, 3)), (1.0, 1.0))
    s = jit(lambda v: maximal.integrate(system, q, v, 0.0, 1.0, 1000, save_every=None))(jnp.zeros(2))
    np.testing.assert_allclose(s.q.coordinates[0], np.cos([3.0, 1.5]), atol=1e-5)
    explicit = maximal.unconstrained_problem(system, q, (0.0, 0.0))
    x, v = jit(lambda: integrate(*explicit, 0.0, 1.0, 100, MuntheKaas(RK4)).ys)()
    assert x.shape == v.shape == (101, 2)
    np.testing.assert_allclose(x[-1], np.cos([3.0, 1.5]), atol=1e-6)


def spin(t):
    return 2.0 * t + 0.5 * t * t


def test_a_driven_hinge_follows_its_drive():
    """The angle is the drive, the multiplier of the drive the torque J θ̈."""
    system, q, _ = bar([maximal.Joint("motor", "revolute", "world", "bar", drive=spin)])
    v = jnp.asarray([0.0, 0.0, 2.0, 0.0, 0.0, 0.0])
    s = jit(lambda v: maximal.integrate(system, q, v, 0.0, 1.0, 200))(v)
    assert s.success
    r = s.q.bodies.rotation[-1, 0]
    np.testing.assert_allclose([r[0, 0], r[1, 0]], [np.cos(2.5), np.sin(2.5)], atol=1e-12)
    assert abs(float(s.multipliers[-1, -1])) == pytest.approx(0.1, rel=1e-6)


def test_shapes_and_dtypes_of_a_start_are_checked():
    problem = slider_crank()
    with pytest.raises(ValueError, match="v has shape"):
        maximal.integrate(problem.system, problem.q0, jnp.zeros(3), 0.0, 1.0, 10)
    with pytest.raises(ValueError, match="q has leaves"):
        maximal.integrate(problem.system, problem.q0.bodies, problem.v0, 0.0, 1.0, 10)
    half = jax.tree.map(lambda x: x.astype(jnp.float32), problem.q0)
    with pytest.raises(TypeError, match="q has dtypes"):
        maximal.integrate(problem.system, half, problem.v0, 0.0, 1.0, 10)
    with pytest.raises(ValueError, match="newton must be one of"):
        maximal.integrate(problem.system, problem.q0, problem.v0, 0.0, 1.0, 10, newton="half")
