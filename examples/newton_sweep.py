"""What examples 10 to 13 share: implicit runs with several numbers of steps and ways to iterate, and their panels."""

import time
from functools import partial

import jax
import numpy as np

import lgjax

MARKS = ("o-", "s-", "^--", "x--", "d:")
VARIANTS = {
    "full Newton": (lgjax.GeneralizedAlpha(), "full"),
    "modified Newton": (lgjax.GeneralizedAlpha(), "modified"),
    "full, without T": (lgjax.GeneralizedAlpha(tangent_operator=False), "full"),
}


def halved(first, halvings):
    """Numbers of steps: the first, doubled time and again."""
    return tuple(first * 2**n for n in range(halvings))


def sweep(problem, end, counts, variants, point):
    """name -> (points at the end, Newton iterations per step, seconds) for every number of steps."""
    found = {}
    for name, (method, newton) in variants.items():
        rows = []
        for n in counts:
            settings = {"steps": n, "method": method, "newton": newton, "save_every": None}
            run = jax.jit(partial(lgjax.maximal.integrate, problem.system, t0=0.0, t1=end, **settings))
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
    first = next(iter(errors.values()))[-1]  # an implicit one: explicit methods have other orders
    panels[0].loglog(h, first * (h / h[-1]) ** 2, "k:", linewidth=1, label="order 2")
    titles = (f"error of {what}", "Newton iterations per step", "time of the solver (s)", "work and precision")
    for axes, title in zip(panels, titles):
        axes.set(title=title, xscale="log", xlabel="h (s)", yscale="linear" if "Newton" in title else "log")
    panels[3].set(xlabel="time of the solver (s)", ylabel=f"error of {what}")
    for axes in panels[3:] if h[0] < 5 * h[-1] else panels:
        axes.xaxis.set_minor_formatter("")  # the numbers between powers of ten would overlap
    panels[0].legend(fontsize=8)
    return errors
