"""The Puma 560 under PD control in absolute coordinates, against its six joint angles.

Section 4.4 of [holzinger2024]: Fig. 19, and Figs. 20 and 21 on the group; --halvings 11 takes all of its steps.
python examples/13_puma560.py [--halvings 6] [--out puma560.png]
"""

import argparse
import pathlib
import time
import warnings

import jax
import numpy as np
from newton_sweep import draw_sweep, halved, sweep

import lgjax
from lgjax.plot import figure, save
from lgjax.systems.puma560 import joint_angles

VARIANTS = {
    "full Newton": (lgjax.GeneralizedAlpha(), "full"),
    "modified Newton": (lgjax.GeneralizedAlpha(), "modified"),
}


def minimal(steps):
    """The tree in minimal coordinates, its motion, and seconds for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*triangle inequality.*")  # published numbers
        robot = lgjax.systems.puma560_minimal()
    run = jax.jit(
        lambda q, v: lgjax.rollout(robot.model, q, v, robot.controller, 1.0 / steps, steps, save_every=steps // 100)
    )
    jax.block_until_ready(run(robot.q0, robot.v0))
    started = time.perf_counter()
    s = jax.block_until_ready(run(robot.q0, robot.v0))
    return robot.model, s, time.perf_counter() - started


def main(out: str | None = None, first: int = 10, halvings: int = 6, steps: int = 10000, modes: int = 2) -> dict:
    """Errors of the joint angles at 1 s for each number of steps of the first `modes` methods; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    problem, counts = lgjax.systems.puma560(), halved(first, halvings)
    variants = dict(list(VARIANTS.items())[:modes])
    model, path, seconds = minimal(steps)
    ts, angles = path.ts, np.asarray(path.q.joints)
    turn = lambda q: np.unwrap(np.stack([np.broadcast_to(angles[-1], (1, 6)), joint_angles(q)]), axis=0)[1]
    found = sweep(problem, 1.0, counts, variants, turn)
    made = figure(15, 8.5)
    axes = made.add_subplot(2, 3, (1, 2))
    axes.plot(ts, np.rad2deg(angles), label=[f"joint {i + 1}" for i in range(6)])
    axes.set(title="joint angles (degrees)", xlabel="t (s)")
    axes.legend(fontsize=8)
    errors = draw_sweep(made, found, angles[-1], 1.0, counts, "the joint angles (rad)")
    for name, error in errors.items():
        print(f"{name}: errors {', '.join(f'{e:.2e}' for e in error)}")
    print(f"minimal coordinates: {steps} steps of RK4 in {seconds:.2f} s")
    if out:
        save(made, out)
        lgjax.view.picture(model, path, pathlib.Path(out).with_suffix(".gif"), speed=0.25, size=(360, 240), fps=14)
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--halvings", type=int, default=6)
    parser.add_argument("--out", default="puma560.png")
    given = parser.parse_args()
    main(given.out, halvings=given.halvings)
