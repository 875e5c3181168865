"""The variational integrator of one rigid body keeps what the mathematics says it keeps."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax import RK4, MuntheKaas, Pose, integrate, so3
from lgjax.collisions.impact import ContactPoint, Laws, lagrangian_impact
from lgjax.collisions.variational import (
    CHARTS,
    RigidBody,
    RigidState,
    advance,
    arrival,
    departure,
    discrete_energy,
    discrete_lagrangian,
    end_momenta,
    lagrangian_step,
    rigid_body,
    rigid_state,
    solve_rotation,
    start_momenta,
    total_energy,
    variational_step,
)
from lgjax.systems.bouncing_body import free_flight

GRAVITY = np.array([0.0, 0.0, -9.81])
ARM = np.array([0.3, -0.1, 0.8])


def pendulum(pose):
    """A body held at its frame's origin, its weight acting at ARM: depends on the attitude alone."""
    return -2.0 * jnp.asarray(GRAVITY, pose.rotation.dtype) @ (pose.rotation @ jnp.asarray(ARM, pose.rotation.dtype))


def spring(pose):
    """From the point ARM of the body to the origin of the world: couples attitude and position."""
    end = pose.translation + pose.rotation @ jnp.asarray(ARM, pose.rotation.dtype)
    return 20.0 * end @ end


POTENTIALS = {"none": None, "pendulum": pendulum, "spring": spring}
GRAVITIES = {"none": GRAVITY, "pendulum": np.zeros(3), "spring": np.zeros(3)}


def problem(name, dtype=jnp.float64):
    body = rigid_body(1.5, (0.9, 1.7, 1.3), GRAVITIES[name], POTENTIALS[name], dtype)
    turn = so3.exp(jnp.asarray((0.4, -0.7, 0.3), dtype))
    return body, rigid_state((0.2, 0.5, 1.0), (0.7, -0.4, 0.9), (0.5, 1.4, -0.8), turn, dtype)


def run(body, state, h, steps, chart="cayley"):
    """States after every step, whether all rotations were found."""

    def step(s, _):
        s, found = variational_step(body, s, h, chart)
        return s, (s, found)

    return jax.lax.scan(step, state, None, length=steps)[1]


def distance(a, b):
    return max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@cache
def reference(name):
    """The state after 1 s by a Runge-Kutta method of order 4 that shares nothing with the variational step."""
    body, state = problem(name)
    space, field = free_flight(body)
    solution = jit(lambda y: integrate(space, field, y, 0.0, 1.0, 1000, MuntheKaas(RK4), save_every=None))(tuple(state))
    return RigidState(*jax.tree.map(lambda x: x[-1], solution.ys))


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize("name", POTENTIALS)
def test_it_converges_with_order_two_to_what_another_integrator_finds(name, chart):
    body, state = problem(name)
    end = jit(
        lambda steps: jax.tree.map(lambda x: x[-1], run(body, state, 1.0 / steps, steps, chart)[0]), static_argnums=0
    )
    errors = [distance(end(steps), reference(name)) for steps in (50, 100, 200)]
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert np.all(np.abs(orders - 2.0) < 0.1), (errors, orders)


@pytest.mark.parametrize("name", POTENTIALS)
def test_momentum_maps_of_symmetric_potentials_stay_to_round_off(name):
    body, state = problem(name)
    states, found = jit(lambda s: run(body, s, 0.02, 3000))(state)
    assert found.all()
    spin = np.einsum("nij,nj->ni", states.pose.rotation, states.angular)
    orbit = np.cross(states.pose.translation, states.linear)
    kept = {
        "none": [spin, states.linear[:, :2]],
        "pendulum": [spin[:, 2], states.linear],
        "spring": [spin + orbit],
    }[name]
    for values in kept:
        assert np.ptp(values, axis=0).max() < 3e-12
    # And what has no symmetry does move, so the test can fail.
    if name != "none":
        assert np.ptp(spin, axis=0).max() > 0.1


def test_without_a_moment_the_energy_stays_to_round_off():
    """The discrete free body turns along the same polhode, at a slightly different pace."""
    body, state = problem("none")
    states, _ = jit(lambda s: run(body, s, 0.1, 2000))(state)
    spin = np.einsum("ni,ni->n", states.angular, states.angular / np.array([0.9, 1.7, 1.3]))
    assert np.ptp(spin) < 1e-12


def energy_blocks(name, h, steps, blocks=20):
    """Mean and spread of the energy in consecutive blocks of a long run."""
    body, state = problem(name)

    def block(s, _):
        def step(s, _):
            s, _ = variational_step(body, s, h)
            return s, total_energy(body, s)

        s, energies = jax.lax.scan(step, s, None, length=steps // blocks)
        return s, (energies.mean(), energies.min(), energies.max())

    _, (mean, low, high) = jax.jit(lambda s: jax.lax.scan(block, s, None, length=blocks))(state)
    return np.asarray(mean), float(high.max() - low.min())


def assert_no_drift(name, h, steps):
    mean, spread = energy_blocks(name, h, steps)
    half = len(mean) // 2
    assert spread > 1e-6  # it does oscillate
    # What is left of an oscillation in the means of blocks does not grow with time.
    assert abs(mean[half:].mean() - mean[:half].mean()) < 0.02 * spread, (mean, spread)


@pytest.mark.parametrize("name", ["pendulum", "spring"])
def test_the_energy_oscillates_and_does_not_drift(name):
    assert_no_drift(name, 0.02, 40_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum", "spring"])
def test_the_energy_does_not_drift_over_a_million_steps(name):
    assert_no_drift(name, 0.02, 1_000_000)


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize("name", POTENTIALS)
def test_a_step_back_undoes_a_step(name, chart):
    body, state = problem(name)
    step = jit(lambda s, h: variational_step(body, s, h, chart)[0])
    for h in (0.0, 1e-9, 1e-3, 0.1):
        assert distance(step(step(state, h), -h), state) < 2e-14


@pytest.mark.parametrize("name", POTENTIALS)
def test_a_step_is_symplectic(name):
    """In the basis of body turns, shifts and momenta the form is <ρ₂, ξ₁> - <ρ₁, ξ₂> + <Π, ξ₁ × ξ₂>."""
    body, state = problem(name)

    def move(s, d):
        pose = Pose(s.pose.rotation @ so3.exp(d[:3]), s.pose.translation + d[3:6])
        return RigidState(pose, s.angular + d[6:9], s.linear + d[9:])

    def chart_step(d):
        end, _ = variational_step(body, move(state, d), 0.1)
        turned = so3.log(after.pose.rotation.T @ end.pose.rotation)
        shifts = end.pose.translation - after.pose.translation
        return jnp.concatenate([turned, shifts, end.angular - after.angular, end.linear - after.linear])

    def form(s):
        gyroscopic = np.zeros((6, 6))
        # <Π, ξ₁ × ξ₂> = ξ₁ · (ξ₂ × Π)
        gyroscopic[:3, :3] = -np.asarray(so3.hat(s.angular))
        return np.block([[gyroscopic, np.eye(6)], [-np.eye(6), np.zeros((6, 6))]])

    after, _ = variational_step(body, state, 0.1)
    jacobian = np.asarray(jit(jax.jacfwd(chart_step))(jnp.zeros(12)))
    np.testing.assert_allclose(jacobian.T @ form(after) @ jacobian, form(state), atol=2e-13)


@pytest.mark.parametrize("name", POTENTIALS)
def test_three_poses_make_the_action_stationary(name):
    """The discrete Euler-Lagrange equation by differentiating the action; steps of different sizes."""
    body, state = problem(name)
    h, next_h = 0.05, 0.02
    middle = variational_step(body, state, h)[0]
    end, found = lagrangian_step(body, state.pose, middle.pose, h, next_h)

    def action(turn, shift):
        pose = Pose(middle.pose.rotation @ so3.exp(turn), middle.pose.translation + shift)
        return discrete_lagrangian(body, state.pose, pose, h) + discrete_lagrangian(body, pose, end, next_h)

    assert found
    for slope in jax.grad(action, (0, 1))(jnp.zeros(3), jnp.zeros(3)):
        np.testing.assert_allclose(slope, 0.0, atol=1e-12)
    assert distance(end, variational_step(body, middle, next_h)[0].pose) < 1e-13
    assert distance(end_momenta(body, state.pose, middle.pose, h), middle) < 1e-13
    assert distance(start_momenta(body, state.pose, middle.pose, h), state) < 1e-13
    slope = -jax.grad(lambda h: discrete_lagrangian(body, state.pose, middle.pose, h))(h)
    np.testing.assert_allclose(discrete_energy(body, state.pose, middle.pose, h), slope, rtol=1e-13)


@pytest.mark.parametrize("name", POTENTIALS)
def test_the_discrete_legendre_transforms_are_the_slopes_of_the_discrete_lagrangian(name):
    """-D₁ L_d at the start and D₂ L_d at the end of a step between any two poses, along body turns and world shifts."""
    body, state = problem(name)
    start, h = state.pose, 0.3
    end = Pose(start.rotation @ so3.exp(jnp.array([0.5, 0.3, -0.4])), start.translation + jnp.array([0.1, 0.2, -0.3]))

    def action(moves):
        (turn0, shift0), (turn1, shift1) = moves
        first = Pose(start.rotation @ so3.exp(turn0), start.translation + shift0)
        last = Pose(end.rotation @ so3.exp(turn1), end.translation + shift1)
        return discrete_lagrangian(body, first, last, h)

    zero = jnp.zeros(3)
    for sign, slope, momenta in zip(
        (-1, 1), jax.grad(action)(((zero, zero),) * 2), (start_momenta, end_momenta), strict=True
    ):
        found = momenta(body, start, end, h)
        np.testing.assert_allclose([sign * slope[0], sign * slope[1]], [found.angular, found.linear], atol=1e-13)


@pytest.mark.parametrize("alpha", [0.2, 0.7])
def test_the_discrete_energy_jumps_at_an_impact_by_the_square_of_the_step(alpha):
    """A step is parted into α h and (1 - α) h by an impact that keeps the energy.  Without spin E_d jumps by
    m g² h² (2 α - 1)/8 exactly; with spin it does so with order 2 in h."""
    body, state = problem("none")
    point, normal = jnp.array([0.1, 0.3, -0.4]), jnp.array([0.6, 0.0, 0.8])
    central = ContactPoint(jnp.zeros(()), jnp.zeros(3), normal, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    elastic = Laws(jnp.ones(()), None)
    touching = state._replace(linear=jnp.array([0.7, -0.4, -1.9]))

    def mismatch(touching, contact, h):
        start = variational_step(body, touching, -alpha * h)[0].pose
        sizes = alpha * h, (1 - alpha) * h
        end, _ = lagrangian_impact(body, start, touching.pose, *sizes, contact, elastic)
        before = discrete_energy(body, start, touching.pose, sizes[0])
        return discrete_energy(body, touching.pose, end, sizes[1]) - before

    found = jit(lambda h: mismatch(touching._replace(angular=jnp.zeros(3)), central, h))(0.04)
    np.testing.assert_allclose(found, 1.5 * 9.81**2 * 0.04**2 * (2 * alpha - 1) / 8, rtol=1e-9)
    turning = jit(lambda h: mismatch(touching, central._replace(point=point), h))
    sizes = [abs(float(turning(h))) for h in (0.04, 0.02, 0.01)]
    assert sizes[0] > 1e-3
    assert np.all(np.abs(np.log2(np.array(sizes[:-1]) / np.array(sizes[1:])) - 2.0) < 0.05), sizes


def test_increments_pass_on_momenta_without_a_drift():
    """What a step adds to the pose gives the momenta that made it, 20000 times over, to a random walk of round-off."""
    body = rigid_body(1.0, (5.0, 4.0, 2.6), GRAVITY)
    state = rigid_state((0.0, 0.0, 0.0), (2.0, 2.0, 0.0), (10.0, -8.0, 6.0))

    def step(s, _):
        increment, _ = departure(body, s, 0.01)
        return arrival(body, advance(s.pose, increment), increment, 0.01), None

    end = jit(lambda s: jax.lax.scan(step, s, None, length=20_000)[0])(state)
    np.testing.assert_allclose(end.linear[:2], state.linear[:2], rtol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(end.angular), np.linalg.norm(state.angular), rtol=5e-13)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-4, 0.3, 1.0])
def test_the_rotation_solves_its_equation_and_both_charts_agree(size, dtype):
    inertia = np.diag([0.9, 1.7, 1.3]) + 0.1
    second = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    a = size * np.array([0.6, -0.3, 0.5])
    turns = []
    for name, chart in CHARTS.items():
        z, found = jit(lambda j, a, name=name: solve_rotation(j, a, name))(
            jnp.asarray(inertia, dtype), jnp.asarray(a, dtype)
        )
        assert found
        assert z.dtype == dtype
        turns.append(np.eye(3) + np.asarray(chart.increment(z), np.float64))
        error = turns[-1] @ second - second @ turns[-1].T - np.asarray(so3.hat(jnp.asarray(a)))
        assert np.abs(error).max() < 20 * jnp.finfo(dtype).eps * max(size, 1.0)
    assert np.abs(turns[0] - turns[1]).max() < 10 * jnp.finfo(dtype).eps


def test_a_step_too_large_to_have_a_rotation_says_so():
    body, state = problem("none")
    for chart in CHARTS:
        step = jit(lambda s, h, chart=chart: variational_step(body, s, h, chart)[1])
        assert [bool(step(state, h)) for h in (0.5, 1.0, 1.5, 2.0, 5.0, 50.0, 500.0)] == [True] + 6 * [False]


def test_float32_is_off_by_its_round_off():
    """Over 1000 steps of 0.01 s the states are within 2e-5 of those in float64, of numbers up to 500."""
    ends = []
    for dtype in (jnp.float32, jnp.float64):
        body, state = problem("none", dtype)
        states, found = jit(lambda s, body=body, dtype=dtype: run(body, s, jnp.asarray(0.01, dtype), 1000))(state)
        assert found.all()
        ends.append(jax.tree.map(lambda x: np.asarray(x[-1], np.float64), states))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(problem("none", jnp.float32)))
    scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(ends[1]))
    assert distance(*ends) < 2e-5 * scale


@pytest.mark.parametrize("name", ["none", "spring"])
def test_derivatives_at_rest_and_in_motion_are_those_of_differences(name):
    body, state = problem(name)

    def end(angular):
        s = run(body, RigidState(state.pose, angular, state.linear), 0.05, 3)[0]
        return jnp.sum(s.pose.rotation[-1] * jnp.arange(9.0).reshape(3, 3)) + s.pose.translation[-1].sum()

    forward, reverse, hessian = jit(jax.jacfwd(end)), jit(jax.value_and_grad(end)), jit(jax.hessian(end))
    for momentum in (jnp.zeros(3), state.angular):
        above, below = ([reverse(momentum + d) for d in s * jnp.eye(3)] for s in (1e-6, -1e-6))
        value, gradient = ([(a[k] - b[k]) / 2e-6 for a, b in zip(above, below, strict=True)] for k in (0, 1))
        np.testing.assert_allclose(forward(momentum), np.array(value), atol=1e-8)
        np.testing.assert_allclose(reverse(momentum)[1], forward(momentum), atol=1e-12)
        np.testing.assert_allclose(hessian(momentum), np.array(gradient), atol=1e-7)


def test_results_do_not_depend_on_the_place_in_the_batch():
    body, state = problem("spring")
    states = jax.vmap(lambda k: state._replace(angular=state.angular + 0.3 * jax.random.normal(k, (3,))))(
        jax.random.split(jax.random.key(0), 7)
    )
    together = jit(jax.vmap(lambda s: run(body, s, 0.02, 50)[0]))
    everything, reversed_order = together(states), together(jax.tree.map(lambda x: x[::-1], states))
    assert distance(everything, jax.tree.map(lambda x: x[::-1], reversed_order)) == 0.0
    alone = jit(lambda s: run(body, s, 0.02, 50)[0])(jax.tree.map(lambda x: x[3], states))
    assert distance(alone, jax.tree.map(lambda x: x[3], everything)) < 50 * 1e-14


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mass": -1.0}, "mass is not positive: -1.0"),
        ({"mass": np.nan}, "mass is not finite: nan"),
        ({"inertia": np.ones((3, 2))}, r"inertia has shape \(3, 2\), expected \(3, 3\)"),
        ({"inertia": 2.0}, r"inertia is a number, not an array of shape \(3, 3\)"),
        ({"mass": (1.0, 2.0)}, r"mass has shape \(2,\), expected \(\)"),
        ({"gravity": 9.81}, r"gravity is a number, not an array of shape \(3,\)"),
        ({"inertia": (1.0, 1.0, 3.0)}, "inertia breaks the triangle inequality"),
        ({"inertia": (1.0, -1.0, 1.0)}, "inertia is not positive definite"),
        ({"inertia": np.eye(3) + np.triu(np.ones((3, 3)), 1)}, "inertia is not symmetric"),
        ({"gravity": (0.0, np.inf, 0.0)}, r"gravity is not finite: \[0.0, inf, 0.0\]"),
    ],
)
def test_a_body_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        rigid_body(**{"mass": 1.0, "inertia": (1.0, 1.0, 1.0)} | arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"linear_momentum": (1.0, 2.0)}, r"linear_momentum has shape \(2,\), expected \(3,\)"),
        ({"position": 1.0}, r"position is a number, not an array of shape \(3,\)"),
        ({"position": (0.0, np.nan, 1.0)}, r"position is not finite: \[0.0, nan, 1.0\]"),
        ({"angular_momentum": (0.0, np.inf, 1.0)}, r"angular_momentum is not finite: \[0.0, inf, 1.0\]"),
        ({"rotation": np.diag([1.0, 1.0, 1.01])}, "rotation is not a rotation: .* an entry of 0.0201"),
        ({"rotation": np.diag([1.0, 1.0, -1.0])}, "rotation is not a rotation"),
        ({"rotation": np.eye(2)}, r"rotation has shape \(2, 2\), expected \(3, 3\)"),
    ],
)
def test_a_state_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        rigid_state(**{"position": (0.0, 0.0, 1.0)} | arguments)


def test_bodies_are_traced():
    """One program for all masses and inertias."""
    traces = []

    @jax.jit
    def end(body: RigidBody):
        traces.append(1)
        return variational_step(body, problem("none")[1], 0.1)[0].linear

    for mass in (1.0, 2.0):
        end(rigid_body(mass, (1.0, mass, 1.0), GRAVITY))
    assert len(traces) == 1


def test_steps_of_bodies_that_hardly_turn_are_found_in_float32():
    """Products with momenta near the smallest number underflow, and the step is that of a body that does not turn."""
    body = rigid_body(1.0, (0.02, 0.02, 0.03), dtype=jnp.float32)
    momenta = np.random.default_rng(0).normal(size=(50, 3))

    def found(momentum):
        state = rigid_state((0.0, 0.0, 0.0), angular_momentum=momentum, dtype=jnp.float32)
        return variational_step(body, state, jnp.asarray(0.01, jnp.float32))[1]

    for size in (1e-26, 1e-30, 1e-33, 1e-36):
        assert jax.jit(jax.vmap(found))(jnp.asarray(size * momenta, jnp.float32)).all()
