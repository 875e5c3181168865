"""Quadrupeds are dropped on random terrain under a joint controller; who falls over is counted and drawn."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import plot


def main(
    path: str = "20_quadrupeds_on_terrain.png", batch: int = 1024, steps: int = 1000, roughness: float = 0.03
) -> None:
    model = lgjax.models.quadruped().astype(jnp.float32)
    stand = jnp.tile(jnp.asarray([0.0, 0.8, -1.6], jnp.float32), 4)
    model = model.replace(damping=jnp.asarray([0.0] * 6 + [5.0] * 12, jnp.float32))
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    flat = lgjax.contact.HeightField(np.zeros((16, 16), np.float32), 0.2)
    contacts = lgjax.Contacts(model, flat, [*feet, "trunk"], friction=0.7)

    def draw(key: jax.Array) -> lgjax.ensembles.Draw:
        """A terrain, and a tilted robot with bent legs above it."""
        keys = jax.random.split(key, 3)
        heights = roughness * jax.random.normal(keys[0], (16, 16), jnp.float32)
        above = jnp.asarray([0, 0, 0.4], jnp.float32)
        q = lgjax.configuration(model, (jnp.eye(3, dtype=jnp.float32), above), stand)
        tilt = jnp.asarray([0.25] * 3 + [0.0] * 3 + [0.1] * 12, jnp.float32)
        q = lgjax.retract(model, q, tilt * jax.random.normal(keys[1], (model.nv,), jnp.float32))
        return lgjax.ensembles.Draw(model, q, 0.5 * jax.random.normal(keys[2], (model.nv,), jnp.float32), heights)

    def controller(t, q, v, heights):
        return jnp.concatenate([jnp.zeros(6, jnp.float32), 150 * (stand - q.joints)])

    def ground(heights):
        return contacts.replace(grounds=lgjax.contact.HeightField(heights, jnp.asarray(0.2, jnp.float32)))

    upright = lambda t, q, v: jnp.stack([q.free_poses.rotation[0, 2, 2], q.free_poses.translation[0, 2]])
    result = lgjax.ensemble(
        model, controller, batch=batch, steps=steps, dt=2e-3, key=jax.random.key(0), sample=draw, contacts=ground,
        method=lgjax.contact.TimeStepping(1e-4, 50), observe=upright, save_every=max(1, steps // 100),
    )  # fmt: skip
    cosine = result.q.free_poses.rotation[:, :, 0, 2, 2]
    fallen = cosine[:, -1] < 0.5
    print(f"{batch} quadrupeds, {result.simulated_seconds_per_second:.0f} simulated seconds per second")
    print(f"{100 * np.mean(fallen):.1f} % fell over, {np.sum(~result.success)} failed")
    figure = plot.figure(11, 4.5)
    left, right = figure.subplots(1, 2)
    few = slice(0, 60)
    for axis, values, label in (
        (left, cosine, "cosine of the trunk's tilt"),
        (right, result.q.free_poses.translation[:, :, 0, 2], "height of the trunk (m)"),
    ):
        for falls, name, color in ((False, "stay upright", plot.COLORS[0]), (True, "fall over", plot.COLORS[1])):
            chosen = values[few][fallen[few] == falls]
            if len(chosen):
                first, *_ = axis.plot(result.ts, chosen.T, color=color, linewidth=0.6)
                first.set_label(f"{len(chosen)} {name}")
        axis.set(title=label, xlabel="t (s)")
        axis.legend(fontsize=8, loc="center right")
    plot.save(figure, path)
    saved, shown = len(result.ts) // 2 + 1, int(np.argmin(np.min(cosine, 1) + 2.0 * fallen))  # tilts most, and stays
    motion = result.ts[:saved], jax.tree.map(lambda x: x[shown, :saved], result.q)
    lgjax.view.picture(
        model, motion, pathlib.Path(path).with_suffix(".gif"), contacts=ground(result.parameters[shown]),
        size=(320, 220), fps=20, speed=0.5, trail=False,
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:2])
