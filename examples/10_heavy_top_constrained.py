"""The heavy top with its tip held by a joint: generalized-alpha with multipliers, against explicit steps without.

Section 4.1 of [holzinger2024]: Fig. 2, and Figs. 6 to 8 and Table 5 on the group; --halvings 8 takes all of its steps.
python examples/10_heavy_top_constrained.py [--halvings 4] [--out heavy_top_constrained.png]
"""

import argparse
import pathlib
import time

import jax
import numpy as np
from newton_sweep import VARIANTS, draw_sweep, halved, sweep

import lgjax
from lgjax import maximal
from lgjax.plot import figure, save


def tip_to_center(q):
    return q.bodies.rotation[..., 0, :, 1]


def explicit(problem, end, counts):
    """Points at the end of RK4 and of RK6 on the group, for every number of steps."""
    space, field, y0 = maximal.unconstrained_problem(problem.system, problem.q0, problem.v0)
    found = {}
    for name, table in (("RKMK 4", lgjax.RK4), ("RKMK 6", lgjax.integrators.RK6)):
        rows = []
        for n in counts:
            method = lgjax.MuntheKaas(table)
            run = jax.jit(lambda y, n=n, method=method: lgjax.integrate(space, field, y, 0.0, end, n, method, None))
            ys = jax.block_until_ready(run(y0)).ys
            started = time.perf_counter()
            jax.block_until_ready(run(y0))
            seconds = time.perf_counter() - started
            rows.append((np.asarray(tip_to_center(maximal.AbsoluteConfiguration(ys[0], None)))[0], 0.0, seconds))
        found[name] = rows
    return found


def main(
    out: str | None = None, end: float = 1.0, first: int = 10000, halvings: int = 4, modes: int = 3, drawn: int = 500
) -> dict:
    """Errors at the end for each number of steps of the first `modes` methods; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    counts = halved(first, halvings)
    free, held = lgjax.systems.heavy_top_maximal(constrained=False), lgjax.systems.heavy_top_maximal()
    found = sweep(held, end, counts, dict(list(VARIANTS.items())[:modes]), tip_to_center) | explicit(free, end, counts)
    exact = explicit(free, end, (4 * first,))["RKMK 6"][0][0]  # order 6: to round-off
    every = max(1, first // drawn)
    run = jax.jit(lambda q, v: lgjax.maximal.integrate(held.system, q, v, 0.0, end, first, save_every=every))
    path = run(held.q0, held.v0)
    made = figure(15, 8.5)
    axes = made.add_subplot(2, 3, 1)
    axes.plot(path.ts, path.q.bodies.translation[:, 0], label=["x", "y", "z"])
    axes.set(title="center of mass (m)", xlabel="t (s)")
    axes.legend()
    axes = made.add_subplot(2, 3, 2)
    axes.plot(path.ts, path.multipliers, label=["x", "y", "z"])
    axes.set(title="force of the tip on the world (N)", xlabel="t (s)")
    errors = draw_sweep(made, found, exact, end, counts, "the center of mass (m)")
    for name, error in errors.items():
        print(f"{name}: errors {', '.join(f'{e:.2e}' for e in error)}")
    if out:
        save(made, out)
        lgjax.view.picture(held.system, path, pathlib.Path(out).with_suffix(".gif"), speed=0.1, size=(360, 240), fps=14)
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--halvings", type=int, default=4)
    parser.add_argument("--out", default="heavy_top_constrained.png")
    given = parser.parse_args()
    main(given.out, halvings=given.halvings)
