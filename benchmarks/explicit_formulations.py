"""Explicit steps on the group against the same methods in Tait-Bryan angles: top and rotor without constraints.

python -m benchmarks.explicit_formulations --problems top [--halvings 8] [--out top.json] [--plot top.png]

End times and steps are the source's: "top" is section 4.1.1 (Figs. 3 to 5, left), "rotor" 4.2 (Figs. 11 to 13, left).
Its adaptive steps take rtol = 1e-2 / N^5 and atol = 1e-2 rtol with N = T / h; N is 10 to 320 here, for the fixed steps'
T / h would ask for less than round-off.  Classical formulation 2: q̈ = H⁻¹ (M⁻¹ g - Ḣ q̇) for the coordinates q and
their rates.  Errors are against `references`.  Source: [holzinger2024] eq. (32).
"""

import argparse
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import references
from benchmarks.classical import body_rate, classical, rotation
from benchmarks.harness import report
from lgjax import DORMAND_PRINCE54, RK4, MuntheKaas, integrate_adaptive, maximal
from lgjax.groups import product_space, vector_space
from lgjax.groups.r3_so3 import RotationTranslation
from lgjax.integrators import RK6
from lgjax.numerics import small_matrix as sm
from lgjax.plot import figure, save
from lgjax.systems import heavy_top_maximal, rotor
from lgjax.systems.rotor import left_end

COLUMNS = ["problem", "method", "coordinates", "h or rtol", "steps", "error", "CPU s"]
FIXED = {"RK44": MuntheKaas(RK4), "RK67": MuntheKaas(RK6)}


def in_angles(problem):
    """Space, field and start of one body in position and Tait-Bryan angles."""
    system = problem.system
    start = classical(system, problem.q0, problem.v0, "Rxyz")

    def field(t, y):
        q, rate = y
        x, rho, turn = q[:3], q[3:], rate[3:]
        omega = lambda rho: body_rate("Rxyz", rho, turn)
        q_now = maximal.AbsoluteConfiguration(
            RotationTranslation(rotation("Rxyz", rho)[None], x[None]), jnp.zeros((0,))
        )
        vdot = system.inertia_solve(system.generalized_forces(t, q_now, sm.join(omega(rho), rate[:3])))
        bend = jax.jvp(omega, (rho,), (turn,))[1]
        g = jnp.stack([body_rate("Rxyz", rho, e) for e in jnp.eye(3)], axis=1)
        return rate, jnp.concatenate([vdot[3:], sm.solve3(g, vdot[:3] - bend)])

    return product_space(vector_space(6), vector_space(6)), field, (start.q0, start.v0), start.configuration


def fixed_steps(space: Any, field: Any, method: Any, y0: Any, end: Any, steps: Any) -> Any:
    """The state at the end; the number of steps is traced."""
    h = end / steps
    return jax.lax.fori_loop(0, steps, lambda i, y: method.step(space, field, h * i, y, h, ())[0], y0)


def timed(run, *args):
    """(result, seconds of CPU) of a compiled function."""
    started = time.process_time()
    result = jax.block_until_ready(run(*args))
    return result, time.process_time() - started


def measure(name, end, counts, tolerances, cases, exact):
    """Rows for every kind of coordinates and method; cases: coordinates -> (space, field, y0, point of a state)."""
    rows = []

    def add(*row):
        print((name, *row), flush=True)
        rows.append(dict(zip(COLUMNS, (name, *row), strict=True)))

    for coordinates, (space, field, y0, point) in cases.items():
        away = lambda y, point=point: float(np.max(np.abs(point(y) - exact)))
        for label, method in FIXED.items():
            run = jax.jit(partial(fixed_steps, space, field, method))
            run(y0, end / counts[0], 1)
            for steps in counts:
                y, spent = timed(run, y0, end, steps)
                add(label, coordinates, end / steps, steps, away(y), spent)
        method = MuntheKaas(DORMAND_PRINCE54)
        run = jax.jit(partial(integrate_adaptive, space, field, t0=0.0, method=method, max_steps=1_000_000))
        run(y0, t1=1e-3 * end, rtol=1e-6, atol=1e-8)
        for n in tolerances:
            rtol = 1e-2 / n**5
            s, spent = timed(partial(run, t1=end, rtol=rtol, atol=1e-2 * rtol), y0)
            error = away(jax.tree.map(lambda x: x[-1], s.ys)) if s.success else np.nan
            add("DOPRI5", coordinates, rtol, int(s.accepted + s.rejected), error, spent)
    return rows


def reach(rows, method, coordinates, target, column):
    """The column's value at which a line through logarithms reaches the target, from errors between 1e-12 and 1e-2."""
    mine = [row for row in rows if (row["method"], row["coordinates"]) == (method, coordinates)]
    errors, values = (np.array([row[key] for row in mine], float) for key in ("error", column))
    good = np.isfinite(errors) & (errors > 1e-12) & (errors < 1e-2)
    if np.sum(good) < 2:
        return np.nan
    slope, offset = np.polyfit(np.log(errors[good]), np.log(values[good]), 1)
    return float(np.exp(offset + slope * np.log(target)))


def draw(rows, path):
    """Convergence of fixed steps, steps of the adaptive method, time, and work against precision."""
    made = figure(11, 8)
    panels = [made.add_subplot(2, 2, i) for i in (1, 2, 3, 4)]
    shown = (("steps", "error"), ("h or rtol", "steps"), ("steps", "CPU s"), ("CPU s", "error"))
    for i, method in enumerate((*FIXED, "DOPRI5")):
        for coordinates, line in (("group", "o-"), ("angles", "x--")):
            mine = [row for row in rows if (row["method"], row["coordinates"]) == (method, coordinates)]
            for axes, (x, y) in zip(panels, shown, strict=True):
                if x == "h or rtol" and method != "DOPRI5":
                    continue
                points = [[row[key] for row in mine] for key in (x, y)]
                axes.loglog(*points, line, color=f"C{i}", label=f"{method}, {coordinates}", markerfacecolor="none")
                axes.set(xlabel="rtol" if x == "h or rtol" else x, ylabel=y)
    panels[0].legend(fontsize=8)
    made.suptitle(rows[0]["problem"])
    save(made, path)


def problems():
    """name -> (problem, end, fewest steps, target of the comparison, point, reference)."""
    top, disc = heavy_top_maximal(constrained=False), rotor()
    return {
        "top": (top, 1.0, 10_000, 1e-6, lambda q: q.bodies.rotation[0, :, 1], references.top),
        "rotor": (disc, 4.0, 40_000, 1e-9, lambda q: left_end(q, disc.parameters), references.rotor),
    }


def cases(problem, point):
    """coordinates -> (space, field, y0, point of a state)."""
    flat = in_angles(problem)
    on_group = lambda y: np.asarray(point(maximal.AbsoluteConfiguration(y[0], None)))
    return {
        "group": (*maximal.unconstrained_problem(problem.system, problem.q0, problem.v0), on_group),
        "angles": (*flat[:3], lambda y: np.asarray(point(flat[3](y[0])))),
    }


def main(names=("top",), halvings=8, tolerances=(10, 20, 40, 80, 160, 320), out=None, plot=None):
    jax.config.update("jax_enable_x64", True)
    rows = []
    for name in names:
        problem, end, first, target, point, reference = problems()[name]
        counts = [first * 2**n for n in range(halvings)]
        found = measure(name, end, counts, tolerances, cases(problem, point), reference(end))
        rows += found
        for method in (*FIXED, "DOPRI5"):
            for column in ("steps", "CPU s"):
                a, b = (reach(found, method, coordinates, target, column) for coordinates in ("angles", "group"))
                print(f"{name}, {method}: {column} for {target:.0e}, angles {a:.3g}, group {b:.3g}, ratio {a / b:.3g}")
    report("explicit formulations", rows, COLUMNS, out)
    if plot:
        draw(rows, plot)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=("top",), choices=("top", "rotor"))
    parser.add_argument("--halvings", type=int, default=8)
    parser.add_argument("--out")
    parser.add_argument("--plot")
    given = parser.parse_args()
    main(given.problems, given.halvings, out=given.out, plot=given.plot)
