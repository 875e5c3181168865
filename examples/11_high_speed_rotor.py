"""A disc at 500 rad/s on two flexible supports: precession, and the cost of implicit steps.

Section 4.2 of [holzinger2024].  python examples/11_high_speed_rotor.py [--out rotor.png]
"""

import argparse
import time
from functools import partial

import jax
import numpy as np

import lgjax
from lgjax.plot import figure, save
from lgjax.simulate.constrained import unconstrained_problem
from lgjax.systems.rotor import left_end

MARKS = ("o-", "s-", "^--", "x--", "d:")
VARIANTS = {
    "full Newton": (lgjax.GeneralizedAlpha(), "full"),
    "modified Newton": (lgjax.GeneralizedAlpha(), "modified"),
    "full, without T": (lgjax.GeneralizedAlpha(tangent_operator=False), "full"),
}


def sweep(problem, end, counts, variants, point):
    """name -> (points at the end, Newton iterations per step, seconds) for every number of steps."""
    found = {}
    for name, (method, newton) in variants.items():
        rows = []
        for n in counts:
            settings = {"steps": n, "method": method, "newton": newton, "save_every": None}
            run = jax.jit(partial(lgjax.integrate_constrained, problem.system, t0=0.0, t1=end, **settings))
            s = jax.block_until_ready(run(problem.q0, problem.v0))
            started = time.perf_counter()
            jax.block_until_ready(run(problem.q0, problem.v0))
            seconds = time.perf_counter() - started
            reached = np.asarray(point(s.q)[0]) if s.success else np.nan
            rows.append((reached, float(s.iterations[0]) / n, seconds))
        found[name] = rows
    return found


def draw_sweep(made, found, exact, end, counts, what):
    """Convergence, Newton iterations, time, and work against precision, in panels 3 to 6 of a figure."""
    h = end / np.array(counts)
    errors = {name: [np.max(np.abs(reached - exact)) for reached, _, _ in rows] for name, rows in found.items()}
    panels = [made.add_subplot(2, 3, i) for i in (3, 4, 5, 6)]
    for (name, rows), mark in zip(found.items(), MARKS):
        for axes, x, y in (
            (panels[0], h, errors[name]),
            (panels[1], h, [row[1] for row in rows]),
            (panels[2], h, [row[2] for row in rows]),
            (panels[3], [row[2] for row in rows], errors[name]),
        ):
            axes.plot(x, y, mark, label=name, markerfacecolor="none")
    finest = np.nanmin([error[-1] for error in errors.values()])
    panels[0].loglog(h, finest * (h / h[-1]) ** 2, "k:", linewidth=1, label="order 2")
    titles = (f"error of {what}", "Newton iterations per step", "time of the solver (s)", "work and precision")
    for axes, title in zip(panels, titles):
        axes.set(title=title, xscale="log", xlabel="h (s)", yscale="linear" if "Newton" in title else "log")
    panels[3].set(xlabel="time (s)", ylabel="error")
    panels[0].legend(fontsize=8)
    return errors


def precession(problem, end, steps):
    """Times and path of the left end of the shaft, by explicit steps on the group."""
    space, field, y0 = unconstrained_problem(problem.system, problem.q0, problem.v0)
    method, keep = lgjax.MuntheKaas(lgjax.RK6), max(1, steps // 400)
    run = jax.jit(lambda y: lgjax.integrate(space, field, y, 0.0, end, steps - steps % keep, method, keep))
    s = run(y0)
    left = float(problem.parameters["left"])
    return s.ts, np.asarray(s.ys[0].translation[:, 0] - left * s.ys[0].rotation[:, 0, :, 0])


def main(
    out: str | None = None,
    end: float = 0.2,
    counts: tuple[int, ...] = (500, 1000, 2000, 4000),
    long: tuple[float, int] = (4.0, 40000),
    modes: int = 3,
) -> dict:
    """Errors of the left end, for each number of steps of the first `modes` methods; draws these and the precession."""
    jax.config.update("jax_enable_x64", True)
    problem = lgjax.systems.rotor()
    found = sweep(problem, end, counts, dict(list(VARIANTS.items())[:modes]), lambda q: left_end(q, problem.parameters))
    exact = precession(problem, end, 4 * counts[-1])[1][-1]
    ts, path = precession(problem, *long)
    made = figure(15, 8.5)
    axes = made.add_subplot(2, 3, 1)
    axes.plot(1e3 * path[:, 1], 1e3 * path[:, 2], linewidth=0.7)
    axes.set(title="left end of the shaft", xlabel="y (mm)", ylabel="z (mm)")
    axes = made.add_subplot(2, 3, 2)
    axes.plot(ts, 1e3 * path[:, 1:], label=["y", "z"])
    axes.set(title="left end of the shaft (mm)", xlabel="t (s)")
    axes.legend()
    errors = draw_sweep(made, found, exact, end, counts, "the left end (m)")
    for name, error in errors.items():
        print(f"{name}: errors {', '.join(f'{e:.2e}' for e in error)}")
    if out:
        save(made, out)
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="rotor.png")
    main(parser.parse_args().out)
