"""Reference problems: their kept ends are right, and methods reach them with their order."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.suite import measure
from benchmarks.suite.figures import ended, front
from benchmarks.suite.mechanisms import ORDER, PUBLISHED
from benchmarks.suite.problems import problems
from benchmarks.suite.report import best, errors, page

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
def test_scipy_reaches_the_kept_end(name):
    """By explicit steps in coordinates, at the tolerance 1e-12."""
    problem = PROBLEMS[name]
    sweep = next(s for s in problem.sweeps() if s.program == "SciPy")
    call, finish = sweep.prepare(problem.end, 1e-12, None)
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
@pytest.mark.parametrize("name", ["symmetric_body", "pendulum"])
def test_the_closed_form_is_computed_again(name):
    pytest.importorskip("mpmath")
    way, state = PROBLEMS[name].references()[0]
    assert way == KEPT[name]["ways"][0]
    np.testing.assert_allclose([float(x) for x in state], exact(name), atol=1e-15)


def test_runs_that_left_the_finite_numbers_count_as_failed():
    own = {"program": "lgjax", "method": "RKMK 8", "evaluations": 1, "drift": {}}
    found = ((3, math.nan), (6, 1e-3), (12, math.inf), (24, 1e-6))
    rows = [own | {"setting": n, "error": error, "ms": 1.0 * n} for n, error in found]
    assert [row["setting"] for row in ended([*rows, {"setting": 48}])] == [6, 24]
    assert [row["setting"] for row in front(ended(rows))] == [6, 24]
    results = [{"title": title, "rows": rows[:n]} for title, n in (("all", 4), ("none", 1))]
    assert errors(results)[-1] == "| lgjax RKMK 8 | 1e-06 | fails |"
