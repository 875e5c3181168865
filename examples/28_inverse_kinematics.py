"""Inverse kinematics: where an arm reaches, and a quadruped that sways on feet that stay.

Left: points of a vertical plane as targets of the tip of a seven-axis arm, all in one call; how far the nearest
configuration within the limits of the joints stays from each. Right: the trunk of a quadruped follows a circle and
turns while its feet stay; the joint angles, and their rates by differentiating the solution along the path. Goal: all
points within reach to 1e-8 m, feet still to 1e-8 m, rates as the differences of neighbours.
python examples/28_inverse_kinematics.py [--points 60] [--frames 200] [--out inverse_kinematics.png]
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
RADIUS, TURN = 0.06, 0.15  # of the circle of the trunk, m, and of its rotations, rad


def reach(points: int):
    """Grid of x and z (points, points), and how far the tip stays from each point of the plane y = 0.1 m."""
    model = lgjax.models.arm()
    tip, q0 = model.body_names[-1], lgjax.neutral(model)
    x, z = jnp.meshgrid(jnp.linspace(-1.5, 1.5, points), jnp.linspace(-0.7, 1.9, points))
    targets = jnp.stack([x, jnp.full_like(x, 0.1), z], -1).reshape(-1, 3)
    found = jax.jit(jax.vmap(lambda p: lgjax.inverse_kinematics(model, {tip: p}, q0, guesses=4)))(targets)
    return np.asarray(x), np.asarray(z), np.asarray(found.error).reshape(x.shape), np.asarray(found.success)


def sway(frames: int):
    """The model, phases, configurations, rates of the joints (frames, 12), and how far the feet move (frames,), m."""
    model = lgjax.models.quadruped()
    stand = lgjax.configuration(model, joints=jnp.tile(jnp.array([0.0, 0.8, -1.5]), 4))
    feet = {foot: lgjax.frame_pose(model, stand, foot).translation for foot in FEET}

    def pose(phase):
        c, s = jnp.cos(phase), jnp.sin(phase)
        return lgjax.Pose(lgjax.so3.exp(TURN * jnp.stack([s, c - 1, 0.5 * s])), RADIUS * jnp.stack([c - 1, s, 0 * s]))

    def solve(phase):
        return lgjax.inverse_kinematics(model, {"trunk": pose(phase), **feet}, stand)

    def still(q):
        moved = jnp.stack([lgjax.frame_pose(model, q, foot).translation - feet[foot] for foot in FEET])
        return jnp.max(jnp.linalg.norm(moved, axis=-1))

    @jax.jit
    @jax.vmap
    def motion(phase):
        found = solve(phase)
        rates = jax.jvp(lambda t: solve(t).q.joints, (phase,), (jnp.ones(()),))[1]
        return found.q, rates, still(found.q), found.success

    phases = jnp.linspace(0.0, 2 * np.pi, frames)
    return model, *jax.tree.map(np.asarray, (phases, *motion(phases)))


def main(out: str | None = None, points: int = 60, frames: int = 200) -> dict:
    """Share of the plane that is reached, movement of the feet and error of the rates; draws both to `out`."""
    jax.config.update("jax_enable_x64", True)
    x, z, away, reached = reach(points)
    model, phases, q, rates, moved, ok = sway(frames)
    angles = q.joints
    differences = np.gradient(angles, phases, axis=0)[1:-1]
    error = np.max(np.abs(differences - rates[1:-1]))
    print(f"{np.sum(reached)} of {reached.size} points reached, the others missed by up to {np.max(away):.2f} m")
    print(f"feet still to {np.max(moved):.0e} m in {np.sum(ok)} of {frames} poses; rates as differences to {error:.0e}")
    if out:
        made = figure(13, 6)
        place, turning, speed = (made.add_subplot(2, 2, n) for n in ((1, 3), 2, 4))
        shown = place.pcolormesh(x, z, np.where(away > 1e-6, away, np.nan), cmap="viridis_r", shading="nearest")
        made.colorbar(shown, ax=place, label="distance that is left (m)")
        place.set(title="white: reached by the tip", xlabel="x (m)", ylabel="z (m)", aspect="equal")
        for k, name in enumerate(("abduction", "hip", "knee")):
            turning.plot(phases, angles[:, k], f"C{k}", label=f"front left {name}")
            speed.plot(phases, rates[:, k], f"C{k}")
            speed.plot(phases[1:-1:8], differences[::8, k], f"C{k}.")
        turning.set(title="angles (rad)", xticklabels=())
        turning.legend(fontsize=8)
        speed.set(title="rates per phase: derivatives, dots: differences", xlabel="phase of the trunk (rad)")
        save(made, out)
        standing = lgjax.Contacts(model, lgjax.shapes.Plane((0.0, 0.0, 1.0), 0.33), list(FEET))
        lgjax.view.picture(
            model, (phases, q), pathlib.Path(out).with_suffix(".gif"), contacts=standing, speed=2.0, size=(360, 240),
            fps=14,
        )  # fmt: skip
    return {"reached": reached, "moved": moved, "error": error}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--out", default="inverse_kinematics.png")
    options = parser.parse_args()
    main(options.out, options.points, options.frames)
