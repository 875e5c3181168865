"""A disc at 500 rad/s on two flexible supports: precession, and the cost of implicit steps.

Section 4.2 of [holzinger2024].  python examples/11_high_speed_rotor.py [--out rotor.png]
"""

import argparse

import jax
import numpy as np
from newton_sweep import VARIANTS, draw_sweep, sweep

import lgjax
from lgjax.plot import figure, save
from lgjax.simulate.constrained import unconstrained_problem
from lgjax.systems.rotor import left_end


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
