"""The picture of README.md: impacts of an ellipsoid and of a cube, and triple pendulums that part.

python examples/readme_picture.py [docs/images/motions.png]
"""

import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure

SHAPES = {"ellipsoid": "bouncing ellipsoid", "cube": "bouncing cube"}


def main(out: str = "docs/images/motions.png", batch: int = 300, steps: int = 1500) -> None:
    """Three panels: two bodies of [tran2024] with their impacts in red, and the tips of a batch of pendulums."""
    jax.config.update("jax_enable_x64", True)
    bouncing = importlib.import_module("08_bouncing_bodies")
    made = figure(13, 4.2)
    for column, (case, title) in enumerate(SHAPES.items()):
        p = lgjax.systems.bouncing_body(case)
        run = lgjax.collisions.bounce(p.body, p.shape, p.planes, p.state, p.dt, steps, record=16)
        axes = made.add_subplot(1, 3, column + 1, projection="3d")
        bouncing.snapshots(axes, title, p, run)
        axes.set(title=f"{title} (m), red at impacts", xlabel="", ylabel="", zlabel="")
    axes = made.add_subplot(1, 3, 3)
    tips = pendulums(batch)
    for tip, color in zip(tips, np.linspace(0.0, 1.0, batch), strict=True):
        axes.plot(tip[:, 0], tip[:, 2], color=(color, 0.3, 1 - color), linewidth=0.5, alpha=0.4)
    axes.set(title=f"{batch} triple pendulums, spread 0.05 rad", xlabel="x (m)", ylabel="z (m)", aspect="equal")
    made.savefig(out, dpi=75)


def pendulums(batch: int) -> np.ndarray:
    """World positions (batch, 201, 3) in m of the tips over 2 s, from first angles between 2 and 2.05 rad."""
    model = lgjax.models.chain(3)

    def tip(angle):
        q = lgjax.configuration(model, joints=jnp.array([0.0, 0.3, 0.3]).at[0].set(angle))
        path = lgjax.rollout(model, q, jnp.zeros(3), None, dt=1e-3, steps=2000, save_every=10)
        poses = jax.vmap(lambda q: lgjax.forward_kinematics(model, q))(path.q)
        return poses.translation[:, -1] + poses.rotation[:, -1] @ jnp.array([0.0, 0.0, -0.3])

    return np.asarray(jax.jit(jax.vmap(tip))(jnp.linspace(2.0, 2.05, batch)))


if __name__ == "__main__":
    main(*sys.argv[1:2])
