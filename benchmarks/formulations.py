"""Who wins: the Lie group method against Euler parameters and Tait-Bryan angles on the problems of [holzinger2024].

python -m benchmarks.formulations [--problems top rotor crank] [--out formulations.json]
Errors are of a point at the end against an independent reference or against the finest step taken by all.
"""

import argparse
import time
from functools import partial

import jax
import numpy as np

from benchmarks.classical import classical, solve
from benchmarks.harness import report
from lgjax import GeneralizedAlpha, NewtonRule
from lgjax.simulate.constrained import constrained_problem
from lgjax.systems import heavy_top_maximal, puma560, rotor, slider_crank
from lgjax.systems.puma560 import joint_angles
from lgjax.systems.rotor import left_end
from lgjax.systems.slider_crank import slider_position

RULES = {"full": NewtonRule("full"), "modified": NewtonRule("modified")}
COLUMNS = ["problem", "formulation", "newton", "h", "iterations per step", "error", "us per step", "success"]


def problems():
    """name -> (problem, end, steps, point of a configuration)."""
    top, disc, crank, arm = heavy_top_maximal(), rotor(), slider_crank(), puma560()
    return {
        "top": (top, 0.2, (500, 1000, 2000, 4000, 16000), lambda q: q.bodies.translation[0]),
        "rotor": (disc, 0.2, (500, 1000, 2000, 4000, 16000), lambda q: left_end(q, disc.parameters)),
        "puma": (arm, 1.0, (10, 25, 50, 200, 800, 1600), joint_angles),
        "crank": (crank, 1.0, (250, 500, 1000, 4000, 16000), lambda q: slider_position(q)[None]),
    }


def formulations(problem):
    """name -> (problem, q0, v0, configuration, method)."""
    method = GeneralizedAlpha(predictor="zero")
    plain = (constrained_problem(problem.system), problem.q0, problem.v0, lambda q: q)
    made = {
        "Lie": (*plain, method),
        "Lie without T": (*plain, GeneralizedAlpha(predictor="zero", tangent_operator=False)),
    }
    for kind in ("EP", "Rxyz"):
        c = classical(problem.system, problem.q0, problem.v0, kind)
        made[kind] = (c.problem, c.q0, c.v0, c.configuration, method)
    return made


def measure(name, end, counts, point, made, rules):
    """Rows for every formulation, rule and step; errors against the mean of the finest solutions of EP and Lie."""
    rows, ends = [], {}
    for formulation, (problem, q0, v0, configuration, method) in made.items():
        for rule in rules:
            run = jax.jit(partial(solve, problem, t1=end, method=method, rule=RULES[rule]))
            for steps in counts:
                q, count, good = jax.block_until_ready(run(q0, v0, steps=steps))
                started = time.perf_counter()
                jax.block_until_ready(run(q0, v0, steps=steps))
                spent = time.perf_counter() - started
                ends[formulation, rule, steps] = np.asarray(point(configuration(q)))
                row = (name, formulation, rule, end / steps, float(count), None, spent / steps * 1e6, bool(good))
                rows.append(dict(zip(COLUMNS, row, strict=True)))
                print(row, flush=True)
    # Richardson's extrapolation: the method is of order two.
    fine, coarse = (ends["EP", "full", n] for n in (counts[-1], counts[-2]))
    ratio = (counts[-1] / counts[-2]) ** 2
    exact = fine + (fine - coarse) / (ratio - 1)
    for row, reached in zip(rows, ends.values(), strict=True):
        row["error"] = float(np.max(np.abs(reached - exact))) if row["success"] else None
    return rows


def main(names=("top", "rotor", "crank"), rules=("full", "modified"), out=None):
    jax.config.update("jax_enable_x64", True)
    rows, found = [], problems()
    for name in names:
        problem, end, counts, point = found[name]
        rows += measure(name, end, counts, point, formulations(problem), rules)
    report("formulations", rows, COLUMNS, out)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="+", default=("top", "rotor", "crank"))
    parser.add_argument("--rules", nargs="+", default=("full", "modified"))
    parser.add_argument("--out")
    given = parser.parse_args()
    main(given.problems, given.rules, given.out)
