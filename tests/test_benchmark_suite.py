"""Reference problems: their kept ends are right, and methods reach them with their order."""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import pytest
from mpmath import mp

from benchmarks.suite import balls, governor, measure, spatial, stiff_reference
from benchmarks.suite import page as pages
from benchmarks.suite.figures import ended, front
from benchmarks.suite.mechanisms import ORDER, PUBLISHED, PUBLISHED_RATES
from benchmarks.suite.multibody_reference import GROUND, Link, Tree
from benchmarks.suite.problem import spread
from benchmarks.suite.problems import problems
from benchmarks.suite.reference import extrapolated
from benchmarks.suite.report import best, errors, lead, page

KEPT = measure.kept_references()
PROBLEMS = {problem.name: problem for problem in problems()}
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "suite"


def exact(name):
    return np.array([float(x) for x in KEPT[name]["state"]])


def test_every_problem_has_an_end_from_two_ways_that_agree():
    assert set(KEPT) == set(PROBLEMS)
    for name, kept in KEPT.items():
        assert len(kept["ways"]) >= 2
        assert kept["apart"] < 1e-13, name
        assert kept["end"] == PROBLEMS[name].end


def test_the_heavy_top_ends_where_the_literature_says():
    """Its angular velocity about the world's y after 2 s."""
    state = exact("heavy_top")
    assert (state[:9].reshape(3, 3) @ state[9:])[1] == pytest.approx(-106.1638041, abs=5e-8)


def test_andrews_mechanism_ends_where_its_publication_says():
    """To 1.5e-9; the published values come from double precision, ours agree in two ways to 1e-14."""
    assert np.abs(exact("andrews")[:7] - np.array(PUBLISHED, float)[ORDER]).max() < 2e-9
    rates = np.array(PUBLISHED_RATES, float)[ORDER]
    assert np.abs(exact("andrews")[7:] - rates).max() < 1e-9 * np.abs(rates).max()


def test_the_brick_ends_with_the_rates_that_a_published_simulator_found():
    """Check case 2 of NASA/TM-2015-218675, simulator 5, in degrees per second; its authors say 0.004 of agreement."""
    published = (12.61842377, -17.3974441, 31.11960301)
    np.testing.assert_allclose(np.degrees(exact("brick")[9:]), published, atol=5e-5, rtol=0)


def test_a_start_is_a_state_and_errors_do_not_count_whole_turns():
    for problem in PROBLEMS.values():
        state = exact(problem.name)
        assert problem.error(state, state) == 0
        turned = state.copy()
        turned[problem.positions - 1] += 2 * np.pi
        assert problem.error(turned, state) < 1e-12


def test_the_fastest_run_within_an_error_is_found():
    rows = [
        {"program": "lgjax", "error": 1e-9, "ms": 2.0, "method": "a"},
        {"program": "lgjax", "error": 1e-7, "ms": 1.0, "method": "b"},
        {"program": "other", "error": 1e-9, "ms": 0.5, "method": "c"},
        {"program": "lgjax", "failed": "no", "method": "d"},
    ]
    assert best(rows, 1e-8, True)["method"] == "a"
    assert best(rows, 1e-6, True)["method"] == "b"
    assert best(rows, 1e-8, False)["method"] == "c"
    assert best(rows, 1e-12, True) is None


def test_the_page_is_made_of_the_json_beside_it():
    names = [name for name in KEPT if (PAGE / f"{name}.json").exists()]
    assert page(PAGE, names) == PAGE.with_suffix(".md").read_text()
    for name in names:
        result = json.loads((PAGE / f"{name}.json").read_text())
        assert result["environment"]["versions"]["lgjax"]
        assert result["command"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_another_program_reaches_the_kept_end(name):
    """SciPy by explicit steps in coordinates, at the tolerance 1e-12; MuJoCo by RK4 where SciPy has no equations."""
    problem = PROBLEMS[name]
    sweeps = problem.sweeps()
    scipy = [(sweep, 1e-12) for sweep in sweeps if sweep.program == "SciPy"]
    sweep, setting = [*scipy, *((sweep, 6400) for sweep in sweeps if sweep.name == "MuJoCo, RK4")][0]
    call, finish = sweep.prepare(problem.end, setting, None)
    assert problem.error(finish(call())[0], exact(name)) < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["free_body", "slow_top", "dual_spin"])
def test_munthe_kaas_methods_reach_the_kept_end_with_their_order(name):
    problem = PROBLEMS[name]
    for sweep in problem.sweeps():
        if sweep.program == "lgjax" and sweep.method.startswith("RKMK 4"):
            errors = []
            for steps in sweep.settings[1:3]:
                call, finish = sweep.prepare(problem.end, steps, None)
                errors.append(problem.error(finish(call())[0], exact(name)))
            assert errors[0] / errors[1] > 4**3.5, sweep.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["symmetric_body", "pendulum", "bouncing_ball", "rolling_ball", "balls"])
def test_the_closed_form_is_computed_again(name):
    way, state = PROBLEMS[name].references()[0]
    assert way == KEPT[name]["ways"][0]
    np.testing.assert_allclose([float(x) for x in state], exact(name), atol=1e-15)


def test_runs_that_left_the_finite_numbers_count_as_failed():
    own = {"program": "lgjax", "method": "RKMK 8", "evaluations": 1, "drift": {}}
    found = ((3, math.nan), (6, 1e-3), (12, math.inf), (24, 1e-6))
    rows = [own | {"setting": n, "error": error, "ms": 1.0 * n} for n, error in found]
    assert [row["setting"] for row in ended([*rows, {"setting": 48}])] == [6, 24]
    assert [row["setting"] for row in front(ended(rows))] == [6, 24]
    results = [{"title": title, "apart": 1e-14, "rows": rows[:n]} for title, n in (("all", 4), ("none", 1))]
    assert errors(results)[0] == "| problem | references | lgjax | others |"
    assert errors(results)[2:] == ["| all | 1e-14 | 1e-06 | - |", "| none | 1e-14 | fails | - |"]
    other = results[0] | {
        "rows": [*rows, *(rows[1] | {"program": p, "error": e} for p, e in (("A", 0.1), ("B", 1e-4)))]
    }
    assert errors([other])[2] == "| all | 1e-14 | 1e-06 | 1e-04 (B) |"


def test_the_page_says_where_the_lead_on_lie_groups_is_small():
    def result(title, ours, theirs, group=True):
        method = {"method": "RKMK 8", "error": 1e-9, "group": group}
        rows = [method | {"program": "lgjax"} | ours, method | {"program": "diffrax"} | theirs]
        return {"title": title, "rows": rows}

    results = [
        result("A", {"ms": 1.0, "batch ms": 1.0}, {"ms": 5.0, "batch ms": 2.0}),
        result("B", {"ms": 1.0}, {"ms": 9.0}),
        result("C", {"ms": 1.0}, {"ms": 0.1}, group=False),
    ]
    assert lead(results) == (
        "On the 2 problems on Lie groups, lgjax is ahead at 1e-08 by 5 to 9 times for one state and 2 to 2 times "
        "for a batch; by less than 3: A, a batch: 2."
    )


STARTS = {"bouncing_ball": (1.0, 3.0, 0.0, 0.05, 0.5), "rolling_ball": (0.0, 1.0, -30.0, 0.3, 0.0)}


@pytest.mark.parametrize("name", STARTS)
def test_a_ball_that_scipy_moves_from_event_to_event_reaches_the_kept_end(name):
    problem = PROBLEMS[name]
    state, _ = balls.Automaton(*STARTS[name]).run(problem.end, 1e-10)
    assert problem.error(state, exact(name)) < 1e-11


def test_each_of_49_balls_has_the_energy_that_a_whole_number_of_bounces_leaves():
    """e²ᵏ of what it had after k bounces, and none once the time of all its bounces is over."""
    state, e = exact("balls"), np.arange(49) / 48
    left = (balls.G * state[:49] + 0.5 * state[49:] ** 2) / (5 * balls.G)
    over = np.sqrt(10 / balls.G) * (1 + e[:-1]) / (1 - e[:-1]) < PROBLEMS["balls"].end
    np.testing.assert_array_equal(left[:-1] == 0, over)
    assert left[-1] == pytest.approx(1, abs=1e-15)
    bounces = np.log(left[:-1][~over]) / np.log(e[:-1][~over] ** 2)
    np.testing.assert_allclose(bounces, np.round(bounces), atol=1e-10)
    assert set(np.round(bounces)) >= {2, 3, 4}


def test_two_sets_of_equations_of_a_tree_move_it_alike():
    """A free body, a hinge on it, and a ball joint on that: joint coordinates, and all bodies with forces of joints."""
    free = Link(GROUND, "free", (0, 0, 0), (0, 0, 1), (0, 0, 0), 2, (0.3, 0.2, 0.4))
    hinge = Link(0, "hinge", (0.1, 0.2, -0.3), (0, 1, 0), (0.1, 0.05, 0.2), 1, (0.1, 0.2, 0.15))
    number = np.longdouble
    tree = Tree([free, hinge, hinge._replace(parent=1, kind="ball")], (0, 0.3, -9.81), number)
    start = [0.1, 0.2, 0.3, 0.8, 0.6, 0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0, *np.linspace(-1, 2, 10)]
    y = np.array(start, number)
    first = extrapolated(tree.kane, y, 0.1, 3, 7, number)
    second = extrapolated(tree.newton_euler, tree.absolute_start(y), 0.1, 3, 7, number)
    gap = np.subtract(tree.from_joints(first), tree.from_absolute(second, np.arctan2))
    assert np.abs(gap).max() < 1e-14
    assert np.abs(np.subtract(tree.from_joints(first), tree.from_joints(y))).max() > 0.1


@pytest.mark.parametrize("theta", [-2.0, -1.2, -1.8])
def test_bricard_s_curve_of_angles_closes_the_loop(theta):
    """(1 + cos θ)(1 + cos φ) = 1: the last rod ends at the sixth hinge, along its axis."""
    phi = -np.arccos(1 / (1 + np.cos(theta)) - 1)
    tree = Tree(spatial.rods(), (0, 0, 0), float)
    turn, place, *_ = tree.bodies(np.concatenate([spatial.joints(theta + np.pi / 2, phi + np.pi / 2), np.zeros(5)]))[-1]
    np.testing.assert_allclose(place + turn @ spatial.EDGES[-1], [0, 0, 1], atol=1e-14)
    np.testing.assert_allclose(turn @ spatial.AXES[-1], spatial.AXES[-1], atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_events_of_this_library_reach_the_kept_end_of_a_ball(name):
    """Through the accumulation of bounces, and from sliding to rolling."""
    problem = PROBLEMS[name]
    sweep = next(s for s in problem.sweeps() if s.method == "EventDriven")
    call, finish = sweep.prepare(problem.end, 1e-10, None)
    assert problem.error(finish(call())[0], exact(name)) < 1e-11


def test_midpoint_steps_with_a_matrix_follow_a_decay():
    """ẏ = -λ (y - sin t) + cos t from 1 is sin t + exp(-λ t): in the layer, and far after it with h λ = 25."""
    fast = 5000
    rate = lambda _, y: [1, -fast * (y[1] - np.sin(y[0])) + np.cos(y[0])]
    for end in (0.001, 0.2):
        y = stiff_reference.linearly_implicit(rate, [0, 1], stiff_reference.graded(end, 1e-5, 0.005), 8)
        assert float(y[1]) == pytest.approx(np.sin(end) + np.exp(-fast * end), abs=1e-14)


def test_radau_s_method_has_its_order_on_a_stiff_equation():
    """ẏ = -1e5 (y - cos t) - sin t from 1 is cos t; 1e-25 with 8 stages."""
    rate = lambda t, y: [-100_000 * (y[0] - mp.cos(t)) - mp.sin(t)]
    y = stiff_reference.radau(rate, [1.0], stiff_reference.graded(0.5, 1e-6, 0.02))
    assert abs(y[0] - mp.cos(mp.mpf("0.5"))) < 1e-25


def mirrored(rng):
    """A state of the governor: Lagrange's coordinates, and those of the four bodies."""
    y = np.array([0.3, 0.9, 0.6, 2.0, -1.0, 0.7]) + 0.1 * rng.standard_normal(6)
    return y, np.array(governor.whole(y))


def test_three_sets_of_equations_accelerate_the_governor_alike():
    """Lagrange's, Kane's of four bodies, and MuJoCo's of the file that other programs read."""
    import mujoco

    rng, m = np.random.default_rng(0), governor.mechanism()
    rate = governor.lagrange(float, np.cos, np.sin, np.sqrt)
    tree, data = governor.tree(np.longdouble), mujoco.MjData(m.file)
    for _ in range(3):
        y, whole = mirrored(rng)
        kane = np.array(tree.kane(0, whole.astype(np.longdouble)), float)
        np.testing.assert_allclose(governor.whole(rate(0.0, y)), kane, rtol=1e-10, atol=1e-9)
        data.qpos[:], data.qvel[:] = whole[:4], whole[4:]
        mujoco.mj_forward(m.file, data)
        np.testing.assert_allclose(data.qacc, kane[4:], rtol=1e-8)


def test_the_governor_s_momentum_about_its_shaft_is_kept():
    momentum, state = PROBLEMS["governor"].invariants["momentum"], exact("governor")
    start = np.concatenate([governor.mechanism().qpos, governor.mechanism().qvel])
    assert momentum(state) == pytest.approx(momentum(start), rel=1e-13)
    assert abs(state[4] - start[4]) > 0.1


def test_a_state_is_read_from_bodies_in_the_world_with_slides_too():
    import mujoco

    m = governor.mechanism()
    whole = mirrored(np.random.default_rng(1))[1]
    data = mujoco.MjData(m.file)
    data.qpos[:], data.qvel[:] = whole[:4], whole[4:]
    mujoco.mj_forward(m.file, data)
    twists = np.zeros((m.file.nbody - 1, 6))
    for b, twist in enumerate(twists):
        mujoco.mj_objectVelocity(m.file, data, mujoco.mjtObj.mjOBJ_BODY, b + 1, twist, 0)
    rotations = data.ximat[1:].reshape(-1, 3, 3)
    found = m.from_bodies(rotations, twists[:, :3], data.xipos[1:], twists[:, 3:])
    np.testing.assert_allclose(found, whole, atol=1e-12)


@pytest.mark.parametrize("velocity", [np.array([1.0, -2.0, 0.0]), np.zeros(3)])
def test_a_batch_differs_by_a_percent_and_begins_with_the_problem(velocity):
    many = spread(velocity, 1000)
    assert (many[0] == velocity).all()
    apart = np.std(many, axis=0)
    size = np.abs(velocity) if velocity.any() else np.ones(3)
    np.testing.assert_allclose(apart, 0.01 * size, rtol=0.1)
    closed = spread(velocity, 1000, together=True)
    np.testing.assert_allclose(closed[:, :2] * velocity[1::-1], closed[:, 1::-1] * velocity[:2], atol=1e-12)


@pytest.mark.slow
def test_the_command_writes_a_problem_with_its_errors(tmp_path):
    args = argparse.Namespace(programs="lgjax,SciPy", quick=True, long=False)
    pages.run(PROBLEMS["pendulum"], KEPT["pendulum"], args, tmp_path)
    result = json.loads((tmp_path / "pendulum.json").read_text())
    assert (tmp_path / "pendulum.png").exists()
    for program in ("lgjax", "SciPy"):
        assert min(row["error"] for row in ended(result["rows"]) if row["program"] == program) < 1e-10


@pytest.mark.slow
def test_many_steps_change_energy_as_little_as_round_off():
    problem = PROBLEMS["pendulum"]
    sweep = next(s for s in problem.sweeps() if s.program == "lgjax" and s.method.startswith("RKMK 8"))
    row = measure.long_row(problem, sweep, 0.02, exact("pendulum"), 100_000)
    assert row["drift"]["energy"] < 1e-10
