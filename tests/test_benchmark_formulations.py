"""Errors in the comparison of formulations are against motions that are right and come from none of the methods."""

import warnings

import numpy as np
import pytest
from jax import jit
from scipy.integrate import solve_ivp

from benchmarks import explicit_formulations, formulations, references
from lgjax import rollout
from lgjax.systems import puma560_minimal, rotor
from tests.oracles import heavy_top, slider_crank


def rotor_by_rotation_matrix(end):
    """The left end of the shaft; attitude as nine numbers, supports and torque in world axes."""
    p = {name: np.asarray(value) for name, value in rotor().parameters.items()}
    feet = np.array([[-p["left"], 0, 0], [p["length"] - p["left"], 0, 0]])
    torque = np.array([0, 0, (p["length"] / 2 - p["left"]) * p["mass"] * 9.81])

    def rate(t, y):
        x, v, w, r = y[:3], y[3:6], y[6:9], y[9:].reshape(3, 3)
        arms = feet @ r.T
        pulls = -p["stiffness"] * (x + arms - feet) - p["damping"] * (v + np.cross(r @ w, arms))
        moment = r.T @ (torque + np.sum(np.cross(arms, pulls), axis=0))
        turn = (moment - np.cross(w, p["inertia"] * w)) / p["inertia"]
        spin = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
        return np.concatenate([v, np.sum(pulls, axis=0) / p["mass"] + p["gravity"], turn, (r @ spin).ravel()])

    y0 = np.concatenate([np.zeros(6), [p["speed"], 0, 0], np.eye(3).ravel()])
    y = solve_ivp(rate, (0.0, end), y0, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    return y[:3] + y[9:].reshape(3, 3) @ feet[0]


def puma_by_the_tree(end):
    """Joint angles by RK4 on the library's recursions, which are held against Pinocchio elsewhere."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*triangle inequality.*")
        robot = puma560_minimal()
    run = lambda: rollout(robot.model, robot.q0, robot.v0, robot.controller, end / 400, 400, save_every=None)
    return np.asarray(jit(run)().q.joints[0])


@pytest.mark.parametrize(
    ("reference", "oracle", "end"),
    [
        (references.top, lambda end: heavy_top.solve(end)[2], 0.2),
        (references.rotor, rotor_by_rotation_matrix, 0.1),
        (references.slider_crank, lambda end: slider_crank.solve(end)[2], 0.5),
        (references.puma560, puma_by_the_tree, 0.02),
    ],
    ids=["top", "rotor", "crank", "puma"],
)
def test_references_agree_with_equations_written_otherwise(reference, oracle, end):
    np.testing.assert_allclose(reference(end), oracle(end), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "oracle", "end"),
    [("crank", lambda end: slider_crank.solve(end)[2], 0.5), ("rotor", rotor_by_rotation_matrix, 0.1)],
    ids=["crank", "rotor"],
)
def test_printed_errors_are_distances_from_the_reference(name, oracle, end, monkeypatch):
    """Of methods that stay where they start; an extrapolation of one of them would call that exact."""
    stay = lambda problem, q, v, t1, steps, method, rule: (q, steps, t1 > 0)
    monkeypatch.setattr(formulations, "solve", stay)
    c = formulations.comparisons()[name]._replace(end=end)
    made = formulations.formulations(name, c.problem)
    rows = formulations.measure(name, c, made, ("full",), (10, 20))
    expected = np.max(np.abs(c.point(c.problem.q0) - oracle(end)))
    np.testing.assert_allclose([row["error"] for row in rows], expected, rtol=0, atol=1e-10)
    assert len(rows) == 8


def test_errors_of_angles_do_not_count_whole_turns():
    assert formulations.away(np.array([np.pi - 1e-3]), np.array([-np.pi])) == pytest.approx(1e-3, rel=1e-9)


def test_explicit_steps_in_angles_and_on_the_group_end_alike():
    """The top for 0.01 s."""
    problem, *_, point, reference = explicit_formulations.problems()["top"]
    ways = explicit_formulations.cases(problem, point)
    rows = explicit_formulations.measure("top", 0.01, (200,), (20,), ways, reference(0.01))
    assert {row["method"] for row in rows} == {"RK44", "RK67", "DOPRI5"}
    for row in rows:
        assert row["error"] < {"RK44": 1e-6, "RK67": 1e-10, "DOPRI5": 1e-7}[row["method"]], row


def test_the_rotor_precesses_in_the_source_s_time():
    """About 2.5 s: 2π J Ω / K of the fast rotor, K the stiffness against tilting of a shaft free to shift."""
    p = {name: np.asarray(value) for name, value in rotor().parameters.items()}
    feet = np.array([-p["left"], p["length"] - p["left"]])
    tilting = p["stiffness"][1] * (feet @ feet - np.sum(feet) ** 2 / 2)
    assert 2 * np.pi * p["inertia"][0] * p["speed"] / tilting == pytest.approx(2.5, rel=0.02)
