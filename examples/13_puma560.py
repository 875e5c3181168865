"""The Puma 560 under PD control in absolute coordinates, against its six joint angles.

Section 4.4 of [holzinger2024].  python examples/13_puma560.py [--out puma560.png]
"""

import argparse
import time
import warnings
from functools import partial

import jax
import numpy as np

import lgjax
from lgjax.plot import figure, save
from lgjax.systems.puma560 import joint_angles

MARKS = ("o-", "s-", "^--", "x--", "d:")
VARIANTS = {
    "full Newton": (lgjax.GeneralizedAlpha(), "full"),
    "modified Newton": (lgjax.GeneralizedAlpha(), "modified"),
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


def minimal(steps):
    """Times and joint angles of the tree in minimal coordinates, and seconds for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*triangle inequality.*")  # published numbers
        robot = lgjax.systems.puma560_minimal()
    run = jax.jit(
        lambda q, v: lgjax.rollout(robot.model, q, v, robot.controller, 1.0 / steps, steps, save_every=steps // 100)
    )
    jax.block_until_ready(run(robot.q0, robot.v0))
    started = time.perf_counter()
    s = jax.block_until_ready(run(robot.q0, robot.v0))
    return s.ts, np.asarray(s.q.joints), time.perf_counter() - started


def main(
    out: str | None = None, counts: tuple[int, ...] = (25, 50, 100, 200), steps: int = 10000, modes: int = 2
) -> dict:
    """Errors of the joint angles at 1 s for each number of steps of the first `modes` methods; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    problem = lgjax.systems.puma560()
    variants = dict(list(VARIANTS.items())[:modes])
    ts, angles, seconds = minimal(steps)
    turn = lambda q: np.unwrap(np.stack([np.broadcast_to(angles[-1], (1, 6)), joint_angles(q)]), axis=0)[1]
    found = sweep(problem, 1.0, counts, variants, turn)
    made = figure(15, 8.5)
    axes = made.add_subplot(2, 3, 1)
    axes.plot(ts, np.rad2deg(angles), label=[f"joint {i + 1}" for i in range(6)])
    axes.set(title="joint angles (degrees)", xlabel="t (s)")
    axes.legend(fontsize=8)
    errors = draw_sweep(made, found, angles[-1], 1.0, counts, "the joint angles (rad)")
    for name, error in errors.items():
        print(f"{name}: errors {', '.join(f'{e:.2e}' for e in error)}")
    print(f"minimal coordinates: {steps} steps of RK4 in {seconds:.2f} s")
    if out:
        save(made, out)
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="puma560.png")
    main(parser.parse_args().out)
