"""The Lie group method against Euler parameters and Tait-Bryan angles, implicit, on the problems of [holzinger2024].

python -m benchmarks.formulations --problems top [--rules full modified] [--halvings 8] [--plot top.png]

End times, steps and spectral radius are the source's: "free top" is section 4.1.1 (Figs. 3 to 5 and Table 4), "top"
4.1.2 (Figs. 6 to 8, Table 5), "rotor" 4.2 (Figs. 11 to 13, Table 7), "crank" 4.3 (Figs. 16, 17), "puma" 4.4 (Figs. 20,
21).  Errors are the largest entry of the distance of a point at the end from `references`.  In full the rotor takes
an hour; `--first` and `--halvings` choose among the steps.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import references
from benchmarks.classical import classical, solve
from benchmarks.harness import report
from lgjax import GeneralizedAlpha, inverse_dynamics, mass_matrix
from lgjax.maximal import NewtonRule
from lgjax.maximal.generalized_alpha import ConstrainedProblem
from lgjax.maximal.integrate import constrained_problem
from lgjax.plot import figure, save
from lgjax.systems import heavy_top_maximal, puma560, puma560_minimal, rotor, slider_crank
from lgjax.systems.puma560 import joint_angles
from lgjax.systems.rotor import left_end
from lgjax.systems.slider_crank import slider_position

RULES = {"full": NewtonRule("full"), "modified": NewtonRule("modified")}
COLUMNS = ["problem", "formulation", "newton", "h", "iterations per step", "error", "CPU s", "success"]
RTOL = 1e-12  # what Newton leaves has to stay below the errors of small steps


class Comparison(NamedTuple):
    """A problem, its end, the fewest steps and how often the source halves them, the point compared, its reference."""

    problem: Any
    end: float
    steps: int
    halvings: int
    point: Callable[[Any], Any]
    reference: Callable[[float], np.ndarray]


def comparisons() -> dict[str, Comparison]:
    """The source's problems with its end times and lists of steps."""
    free, top, disc = heavy_top_maximal(constrained=False), heavy_top_maximal(), rotor()
    # The center of mass is 1 m along y from the fixed point.
    return {
        "free top": Comparison(free, 1.0, 10_000, 8, lambda q: q.bodies.rotation[0, :, 1], references.top),
        "top": Comparison(top, 1.0, 10_000, 8, lambda q: q.bodies.translation[0], references.top),
        "rotor": Comparison(disc, 4.0, 40_000, 8, lambda q: left_end(q, disc.parameters), references.rotor),
        "crank": Comparison(slider_crank(), 5.0, 1250, 13, lambda q: slider_position(q)[None], references.slider_crank),
        "puma": Comparison(puma560(), 1.0, 10, 11, joint_angles, references.puma560),
    }


def minimal_coordinates() -> tuple[Any, ...]:
    """Problem, start and angles of the Puma 560 as six equations without constraints."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*triangle inequality.*")  # published numbers
        robot = puma560_minimal()
    place = lambda q: robot.q0._replace(joints=q)

    def forces(t: Any, q: Any, v: Any) -> Any:
        return robot.controller(t, place(q), v) - inverse_dynamics(robot.model, place(q), v, jnp.zeros_like(v))

    problem = ConstrainedProblem(
        move=lambda q, dq: q + dq,
        nudge=lambda q, d: d,
        push=lambda dq, x: x,
        pullback=lambda dq, rows: rows,
        inertia=lambda q, x: mass_matrix(robot.model, place(q)) @ x,
        forces=forces,
        constraints=lambda t, q: jnp.zeros((0,)),
        jacobian=lambda t, q: jnp.zeros((0, 6)),
        scale=lambda q: jnp.ones(()),
    )
    return problem, robot.q0.joints, robot.v0, place


def formulations(name: str, problem: Any, rtol: float = RTOL) -> dict[str, tuple[Any, ...]]:
    """name -> (problem, q0, v0, configuration, method)."""
    method = GeneralizedAlpha(predictor="zero", rtol=rtol)
    without = GeneralizedAlpha(predictor="zero", rtol=rtol, tangent_operator=False)
    plain = (constrained_problem(problem.system), problem.q0, problem.v0, lambda q: q)
    made = {"Lie": (*plain, method), "Lie, no T": (*plain, without)}
    for kind in ("EP", "Rxyz"):
        c = classical(problem.system, problem.q0, problem.v0, kind)
        made[kind] = (c.problem, c.q0, c.v0, c.configuration, method)
    if name == "puma":
        made["minimal"] = (*minimal_coordinates(), method)
    return made


def away(found: Any, exact: np.ndarray) -> float:
    """The largest entry of the distance; of angles, up to whole turns, which no length here comes near."""
    gap = np.asarray(found) - exact
    return float(np.max(np.abs(gap - 2 * np.pi * np.round(gap / (2 * np.pi)))))


def measure(name: str, c: Comparison, made: dict[str, tuple[Any, ...]], rules: Any, counts: Any) -> list[dict]:
    """Rows for every formulation, rule and number of steps."""
    rows, exact = [], c.reference(c.end)
    for formulation, (problem, q0, v0, configuration, method) in made.items():
        point = (lambda q: q.joints) if formulation == "minimal" else c.point
        for rule in rules:
            run = jax.jit(partial(solve, problem, method=method, rule=RULES[rule]))
            jax.block_until_ready(run(q0, v0, t1=c.end / counts[0], steps=1))
            for steps in counts:
                started = time.process_time()
                q, count, good = jax.block_until_ready(run(q0, v0, t1=c.end, steps=steps))
                spent = time.process_time() - started
                error = away(point(configuration(q)), exact) if good else None
                row = (name, formulation, rule, c.end / steps, float(count), error, spent, bool(good))
                rows.append(dict(zip(COLUMNS, row, strict=True)))
                print(row, flush=True)
    return rows


def draw(rows: list[dict], path: str) -> None:
    """Convergence, Newton iterations, time, work and precision; the modified Newton method with broken lines."""
    made, runs = figure(11, 8), {}
    for row in rows:
        if row["success"]:
            runs.setdefault((row["formulation"], row["newton"]), []).append(row)
    panels = [made.add_subplot(2, 2, i) for i in (1, 2, 3, 4)]
    shown = (("h", "error"), ("h", "iterations per step"), ("h", "CPU s"), ("CPU s", "error"))
    names = list(dict.fromkeys(formulation for formulation, _ in runs))
    for (formulation, rule), run in runs.items():
        for axes, (x, y) in zip(panels, shown, strict=True):
            style = {"color": f"C{names.index(formulation)}", "label": f"{formulation}, {rule}"}
            line = "o-" if rule == "full" else "x--"
            axes.plot([row[x] for row in run], [row[y] for row in run], line, markerfacecolor="none", **style)
            axes.set(xlabel=x, ylabel=y, xscale="log", yscale="linear" if y == "iterations per step" else "log")
    panels[0].legend(fontsize=8)
    made.suptitle(rows[0]["problem"])
    save(made, path)


def main(names=("top",), rules=("full",), only=None, first=0, halvings=None, rtol=RTOL, out=None, plot=None) -> list:
    """Rows of the problems named; `only` names formulations, `first` the largest step as a number of halvings."""
    jax.config.update("jax_enable_x64", True)
    rows, found = [], comparisons()
    for name in names:
        c = found[name]
        made = formulations(name, c.problem, rtol)
        made = {key: value for key, value in made.items() if not only or key in only}
        rows += measure(name, c, made, rules, [c.steps * 2**n for n in range(first, halvings or c.halvings)])
    report("formulations", rows, COLUMNS, out)
    if plot:
        draw(rows, plot)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--problems", nargs="+", default=("top",), choices=("free top", "top", "rotor", "crank", "puma")
    )
    parser.add_argument("--rules", nargs="+", default=("full",), choices=tuple(RULES))
    parser.add_argument("--only", nargs="+", help="formulations: Lie, 'Lie, no T', EP, Rxyz, minimal")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--halvings", type=int)
    parser.add_argument("--rtol", type=float, default=RTOL)
    parser.add_argument("--out")
    parser.add_argument("--plot")
    given = parser.parse_args()
    main(*(getattr(given, name) for name in ("problems", "rules", "only", "first", "halvings", "rtol", "out", "plot")))
