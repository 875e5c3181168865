"""A disc at 500 rad/s on two flexible supports: precession, and the cost of implicit steps.

Section 4.2 of [holzinger2024]: Fig. 10, and Figs. 11 to 13 on the group; --halvings 8 takes all of its steps.
python examples/11_high_speed_rotor.py [--halvings 3] [--out rotor.png]
"""

import argparse

import jax
import numpy as np
from newton_sweep import VARIANTS, draw_sweep, halved, sweep

import lgjax
from lgjax import maximal
from lgjax.plot import figure, save
from lgjax.systems.rotor import left_end


def precession(problem, end, steps):
    """Times and path of the left end of the shaft, by explicit steps on the group."""
    space, field, y0 = maximal.unconstrained_problem(problem.system, problem.q0, problem.v0)
    method, keep = lgjax.MuntheKaas(lgjax.integrators.RK6), max(1, steps // 2000)  # the path has fast loops
    run = jax.jit(lambda y: lgjax.integrate(space, field, y, 0.0, end, steps - steps % keep, method, keep))
    s = run(y0)
    left = float(problem.parameters["left"])
    return s.ts, np.asarray(s.ys[0].translation[:, 0] - left * s.ys[0].rotation[:, 0, :, 0])


def period(ts, path):
    """Seconds for a turn of the slow circle c + a exp(i w t) that lies closest to the path in the plane (y, z)."""
    z, trials = path[:, 1] + 1j * path[:, 2], np.linspace(-8.0, 8.0, 3201)
    miss = []
    for w in trials:
        columns = np.stack([np.ones_like(z), np.exp(1j * w * ts)], axis=1)
        miss.append(np.linalg.norm(z - columns @ np.linalg.lstsq(columns, z)[0]))
    return 2 * np.pi / abs(trials[np.argmin(miss)])


def main(
    out: str | None = None,
    end: float = 4.0,
    first: int = 40000,
    halvings: int = 3,
    modes: int = 3,
) -> dict:
    """Errors of the left end, for each number of steps of the first `modes` methods; draws these and the precession."""
    jax.config.update("jax_enable_x64", True)
    problem, counts = lgjax.systems.rotor(), halved(first, halvings)
    found = sweep(problem, end, counts, dict(list(VARIANTS.items())[:modes]), lambda q: left_end(q, problem.parameters))
    ts, path = precession(problem, end, 2 * first)
    exact = path[-1]  # order 6: to round-off
    print(f"the left end goes round in {period(np.asarray(ts), path):.2f} s")
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
    parser.add_argument("--halvings", type=int, default=3)
    parser.add_argument("--out", default="rotor.png")
    given = parser.parse_args()
    main(given.out, halvings=given.halvings)
