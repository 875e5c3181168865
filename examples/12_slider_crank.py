"""The spatial slider-crank: convergence, Newton iterations, and a batch with random masses.

Section 4.3 of [holzinger2024]: Fig. 15, and Figs. 16 and 17 on the group; --halvings 13 takes all of its steps.
python examples/12_slider_crank.py [--halvings 5] [--batch 1000] [--out slider_crank.png]
"""

import argparse
import pathlib

import jax
import numpy as np
from newton_sweep import VARIANTS, draw_sweep, halved, sweep

import lgjax
from lgjax.plot import figure, save
from lgjax.systems.slider_crank import crank_angle, slider_position


def family(batch, end, steps):
    """Slider positions (batch, T) for masses up to a fifth lighter or heavier, in one call."""
    masses = np.array((0.12, 0.5, 2.0)) * (1 + 0.2 * np.random.default_rng(0).uniform(-1, 1, (batch, 3)))

    def one(masses):
        p = lgjax.systems.slider_crank(masses)
        s = lgjax.maximal.integrate(p.system, p.q0, p.v0, 0.0, end, steps)
        return s.ts, slider_position(s.q), s.success

    ts, positions, success = jax.jit(jax.vmap(one))(masses)
    print(f"{int(success.sum())} of {batch} slider-cranks solved")
    return ts[0], positions


def main(
    out: str | None = None,
    end: float = 5.0,
    first: int = 1250,
    halvings: int = 5,
    batch: int = 100,
    finest: int = 160000,
    modes: int = 3,
) -> dict:
    """Errors of the slider, for each number of steps of the first `modes` methods; draws these and a batch."""
    jax.config.update("jax_enable_x64", True)
    problem, counts = lgjax.systems.slider_crank(), halved(first, halvings)
    found = sweep(problem, end, counts, dict(list(VARIANTS.items())[:modes]), lambda q: slider_position(q)[..., None])
    exact = sweep(problem, end, (finest,), {"fine": VARIANTS["full Newton"]}, lambda q: slider_position(q)[..., None])
    run = jax.jit(lambda q, v: lgjax.maximal.integrate(problem.system, q, v, 0.0, end, counts[0]))
    path = run(problem.q0, problem.v0)
    ts, positions = family(batch, end, counts[0])
    made = figure(15, 8.5)
    axes = made.add_subplot(2, 3, 1)
    axes.plot(path.ts, slider_position(path.q))
    axes.set(title="slider (m, solid) and crank (rad, dashed)", xlabel="t (s)", ylabel="position of the slider (m)")
    crank = axes.twinx()
    crank.plot(path.ts, np.unwrap(crank_angle(path.q)), "C1--", linewidth=1)
    crank.set_ylabel("crank angle (rad)")
    axes = made.add_subplot(2, 3, 2)
    axes.plot(ts, np.asarray(positions[:20]).T, linewidth=0.4)
    axes.set(title="slider of 20 mechanisms with random masses (m)", xlabel="t (s)")
    errors = draw_sweep(made, found, exact["fine"][0][0], end, counts, "the slider (m)")
    for name, error in errors.items():
        print(f"{name}: errors {', '.join(f'{e:.2e}' for e in error)}")
    if out:
        save(made, out)
        lgjax.view.picture(
            problem.system, path, pathlib.Path(out).with_suffix(".gif"), camera=(0, -1, 0.3), size=(360, 240), fps=14
        )
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--halvings", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--out", default="slider_crank.png")
    given = parser.parse_args()
    main(given.out, halvings=given.halvings, batch=given.batch)
