"""Ready problems in absolute coordinates against Exudyn, reduced equations, SciPy and minimal coordinates."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from lgjax import (
    DORMAND_PRINCE54,
    RK4,
    SE3,
    GeneralizedAlpha,
    MuntheKaas,
    integrate,
    integrate_adaptive,
    maximal,
    rollout,
)
from lgjax.integrators import RK6
from lgjax.systems import heavy_top_maximal, puma560, puma560_minimal, rotor, slider_crank
from lgjax.systems.puma560 import DAMPING, DURATION, GOAL, LINKS, START, STIFFNESS, joint_angles
from lgjax.systems.rotor import left_end
from lgjax.systems.slider_crank import crank_angle, slider_position
from tests.oracles import heavy_top as top_oracle
from tests.oracles import slider_crank as crank_oracle


def end(problem, steps, t1, newton="full", method=GeneralizedAlpha()):  # noqa: B008
    run = lambda q, v: maximal.integrate(problem.system, q, v, 0.0, t1, steps, method, newton, None)
    s = jit(run)(problem.q0, problem.v0)
    assert s.success
    return s


def test_order_two_on_the_slider_crank():
    """Position, velocity and multipliers at the end; multipliers against a fine solution, the others independently."""
    problem, found = slider_crank(), []
    angle, rate, position = crank_oracle.solve(0.5)
    for steps in (125, 250, 500, 4000):
        s = end(problem, steps, 0.5)
        misses = (slider_position(s.q)[0] - position, s.v[0, 0] - rate, wrapped(crank_angle(s.q)[0] - angle))
        found.append((*misses, s.multipliers[0]))
    errors = np.array([[abs(e) for e in f[:3]] + [np.max(np.abs(f[3] - found[-1][3]))] for f in found[:3]])
    np.testing.assert_allclose(np.log2(errors[1] / errors[2]), 2.0, atol=0.25)
    # h²: 64 times the steps of the third, so its error is theirs over 64.
    assert abs(float(found[-1][0])) < 1e-7


@pytest.mark.slow
def test_the_slider_after_five_seconds():
    """At h = 1e-4 within 1e-4 m of a converged reference."""
    s = end(slider_crank(), 50000, 5.0)
    assert float(slider_position(s.q)[0]) == pytest.approx(crank_oracle.solve(5.0)[2], abs=1e-4)


@pytest.mark.parametrize("variant", ["standard", "sigma_modified"])
def test_exudyn_moves_the_top_alike(variant):
    """The same method at the same step in another code; larger steps do not converge in its standard tolerance.

    It makes every Newton correction of the modified variant a rotation of its own, which shows in the spin.
    """
    exudyn = pytest.importorskip("tests.oracles.exudyn_systems", reason="needs exudyn")
    m, body = exudyn.heavy_top()
    m.solve(0.1, 1000, rtol=1e-11, variant=variant)
    s = end(heavy_top_maximal(), 1000, 0.1, method=GeneralizedAlpha(variant=variant, rtol=1e-11))
    np.testing.assert_allclose(s.q.bodies.translation[0, 0], m.position(body), rtol=0, atol=1e-12)
    bound = 1e-12 if variant == "standard" else 1e-9
    np.testing.assert_allclose(s.q.bodies.rotation[0, 0], m.rotation(body), rtol=0, atol=bound)


@pytest.mark.parametrize("variant", ["standard", pytest.param("sigma_modified", marks=pytest.mark.slow)])
def test_exudyn_moves_the_slider_crank_alike(variant):
    """Nearer from rest: its first accelerations leave out terms of the velocities that joints bring."""
    exudyn = pytest.importorskip("tests.oracles.exudyn_systems", reason="needs exudyn")
    method = GeneralizedAlpha(variant=variant, rtol=1e-11)

    @jit
    def ours(speed, gravity):
        p = slider_crank(speed=speed, gravity=gravity)
        s = maximal.integrate(p.system, p.q0, p.v0, 0.0, 0.5, 500, method, save_every=None)
        return slider_position(s.q)[0]

    for speed, gravity, bound in ((0.0, (0.0, -6.0, -7.0), 4e-11), (6.0, (0.0, 0.0, -9.81), 1e-8)):
        m, slider = exudyn.slider_crank(speed=speed, gravity=gravity)
        m.solve(0.5, 500, rtol=1e-11, variant=variant)
        np.testing.assert_allclose(ours(speed, jnp.asarray(gravity)), m.position(slider)[0], rtol=0, atol=bound)


def rotor_reference(t1, p):
    """The rotor in quaternion and body rates by SciPy."""
    mass, inertia, k, c = (np.asarray(p[n]) for n in ("mass", "inertia", "stiffness", "damping"))
    length, left, speed = (float(p[n]) for n in ("length", "left", "speed"))
    ends = np.array([[-left, 0.0, 0.0], [length - left, 0.0, 0.0]])

    def rhs(t, y):
        x, q, v, w = y[:3], y[3:7], y[7:10], y[10:]
        r = Rotation.from_quat(q, scalar_first=True).as_matrix()
        force = mass * np.array([0.0, 0.0, -9.81])
        moment = r.T @ [0.0, 0.0, (length / 2 - left) * mass * 9.81]
        for e in ends:
            pull = -k * (x + r @ e - e) - c * (v + r @ np.cross(w, e))
            force, moment = force + pull, moment + np.cross(e, r.T @ pull)
        rate = 0.5 * np.array([-q[1:] @ w, *(q[0] * w + np.cross(q[1:], w))])
        return np.concatenate([v, rate, force / mass, (moment - np.cross(w, inertia * w)) / inertia])

    y0 = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, speed, 0, 0], float)
    y = solve_ivp(rhs, (0.0, t1), y0, method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    return y[:3] - left * Rotation.from_quat(y[3:7], scalar_first=True).as_matrix()[:, 0]


@cache
def explicit_cases():
    """Unconstrained problems, a point of the body at the end, and where it should be."""
    top, disc = heavy_top_maximal(constrained=False), rotor()
    arm = jnp.asarray((0.0, 1.0, 0.0))
    place = lambda q: q.bodies.rotation[..., 0, :, :] @ arm
    return {
        "top": (top, 0.1, place, top_oracle.solve(0.1)[2]),
        "rotor": (disc, 0.05, lambda q: left_end(q, disc.parameters), rotor_reference(0.05, disc.parameters)),
    }


@pytest.mark.parametrize("name", ["top", "rotor"])
@pytest.mark.parametrize(("table", "counts"), [(RK4, (100, 200)), (RK6, (50, 100))], ids=repr)
def test_explicit_methods_have_their_order_on_unconstrained_systems(name, table, counts):
    problem, t1, place, exact = explicit_cases()[name]
    space, field, y0 = maximal.unconstrained_problem(problem.system, problem.q0, problem.v0)
    errors = []
    for steps in counts:
        run = lambda y, n=steps: integrate(space, field, y, 0.0, t1, n, MuntheKaas(table), None)
        bodies = jit(run)(y0).ys[0]
        errors.append(np.max(np.abs(place(maximal.AbsoluteConfiguration(bodies, None))[0] - exact)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(4 if table is RK4 else 6, abs=0.6)


def test_steps_of_the_explicit_method_follow_the_tolerance():
    """Tolerances of the source, rtol = 1e-2 (h/T)^p and atol = 1e-2 rtol, with p = 5 and h/T = 1/20 and 1/40."""
    problem, t1, place, exact = explicit_cases()["rotor"]
    space, field, y0 = maximal.unconstrained_problem(problem.system, problem.q0, problem.v0)

    def run(rtol):
        method = MuntheKaas(DORMAND_PRINCE54)
        return integrate_adaptive(space, field, y0, 0.0, t1, method, rtol, 1e-2 * rtol, 4000)

    solve = jit(run)
    found = [solve(1e-2 * ratio**5) for ratio in (1 / 20, 1 / 40)]
    assert all(s.success for s in found)
    errors = [np.max(np.abs(place(maximal.AbsoluteConfiguration(s.ys[0], None))[-1] - exact)) for s in found]
    assert errors[1] < 0.2 * errors[0] < 1e-7
    assert found[0].accepted < found[1].accepted


def test_the_rotor_by_generalized_alpha():
    problem, t1, place, exact = explicit_cases()["rotor"]
    coarse, fine = (np.max(np.abs(place(end(problem, n, t1).q)[0] - exact)) for n in (500, 1000))
    assert np.log2(coarse / fine) == pytest.approx(2.0, abs=0.1)


@cache
def puma_reference():
    """Joint angles at the end from the tree of the library, in minimal coordinates."""
    with pytest.warns(UserWarning, match="triangle inequality"):
        robot = puma560_minimal()
    run = lambda: rollout(robot.model, robot.q0, robot.v0, robot.controller, 2.5e-4, 4000, save_every=None)
    return np.asarray(jit(run)().q.joints[0])


def wrapped(x):
    return (np.asarray(x) + np.pi) % (2 * np.pi) - np.pi


def test_the_puma_starts_where_it_should():
    problem = puma560()
    assert (problem.system.nv, problem.system.nc) == (36, 30)
    assert not problem.system.structure.block
    np.testing.assert_allclose(joint_angles(problem.q0), START, atol=1e-12)
    np.testing.assert_allclose(problem.system.constraints(0.0, problem.q0), 0.0, atol=1e-12)


@pytest.mark.slow
def test_the_puma_converges_to_its_minimal_coordinates():
    """Order 2 in the joint angles; link 1 has no inertia about two axes."""
    problem = puma560()
    errors = [np.max(np.abs(wrapped(joint_angles(end(problem, n, 1.0).q)[0] - puma_reference()))) for n in (50, 100)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.3)
    # It has come within the error of the control to its goal.
    np.testing.assert_allclose(wrapped(puma_reference() - GOAL), 0.0, atol=0.05)


def exudyn_profile(i):
    """Angle and rate in floats."""

    def profile(t):
        s = min(max(t / DURATION, 0.0), 1.0)
        part, rate = (2 * s * s, 4 * s) if s < 0.5 else (1 - 2 * (1 - s) ** 2, 4 * (1 - s))
        return START[i] + (GOAL[i] - START[i]) * part, (GOAL[i] - START[i]) * rate / DURATION

    return profile


@pytest.mark.slow
def test_exudyn_moves_the_puma_alike():
    exudyn = pytest.importorskip("tests.oracles.exudyn_systems", reason="needs exudyn")
    problem = puma560()
    rows = problem.system.joints
    system = [
        (
            link[3],
            link[5],
            problem.q0.bodies.translation[i],
            problem.q0.bodies.rotation[i],
            rows.origin_a[i],
            rows.origin_b[i],
            np.asarray(rows.frame_b[i]),
        )
        for i, link in enumerate(LINKS)
    ]
    profiles = [exudyn_profile(i) for i in range(6)]
    m, bodies = exudyn.puma560(system, profiles, STIFFNESS, DAMPING, START)
    m.solve(0.25, 250)
    s = end(problem, 250, 0.25)
    np.testing.assert_allclose(s.q.bodies.translation[0, -1], m.position(bodies[-1]), atol=1e-4)


@pytest.mark.slow
def test_the_slider_crank_on_the_other_group():
    """SE(3) converges to the same motion."""
    s = end(slider_crank(group=SE3), 1000, 0.5)
    assert float(slider_position(s.q)[0]) == pytest.approx(crank_oracle.solve(0.5)[2], abs=2e-6)
