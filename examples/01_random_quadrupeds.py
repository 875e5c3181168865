"""Random copies of a quadruped, with their own masses, tumble in free fall; energy and the base's path are drawn."""

import pathlib
import sys

import jax
import numpy as np

import lgjax
from lgjax import plot


def main(path: str = "01_random_quadrupeds.png", batch: int = 64, steps: int = 200) -> None:
    model = lgjax.models.quadruped()
    model = model.replace(damping=0 * model.damping)  # so that energy is kept
    result = lgjax.ensemble(
        model,
        batch=batch,
        steps=steps,
        dt=1e-3,
        key=jax.random.key(0),
        spread=lgjax.Spread(velocity=1.0, mass=0.2),
        save_every=max(1, steps // 50),
    )
    drift = np.max(np.abs(result.energy - result.energy[:, :1]))
    print(f"{batch} quadrupeds, {result.simulated_seconds_per_second:.0f} simulated seconds per second")
    print(f"largest energy error {drift:.1e} J")
    plot.save(plot.rollout_figure(model, result), path)
    lgjax.view.picture(
        model, result, pathlib.Path(path).with_suffix(".gif"), systems=9, speed=0.1, size=(360, 240), fps=14
    )


if __name__ == "__main__":
    main(*sys.argv[1:2])
