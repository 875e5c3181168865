"""A block on a plane that is tilted slowly: it sticks up to the angle whose tangent is the friction, then it slides.

Three blocks of different friction, one batch; instead of the plane, gravity turns. python examples/23_sliding_block.py
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import plot

FRICTION = np.array([0.2, 0.4, 0.6])
RATE, DT, G = 0.3, 2e-3, 9.81  # rad/s, s, m/s^2


def main(path: str = "23_sliding_block.png", steps: int = 1000) -> None:
    block = lgjax.Body("block", None, lgjax.Joint("free", "free"), mass=1.0, inertia=np.diag([2e-3, 2e-3, 3e-3]))
    model = lgjax.build([block], gravity=(0.0, 0.0, 0.0))
    floor = lgjax.shapes.Plane((0.0, 0.0, 1.0))
    contacts = lgjax.Contacts(model, floor, {"block": lgjax.shapes.box((0.1, 0.1, 0.05))}, friction=0.0)
    q = lgjax.configuration(model, (jnp.eye(3), jnp.array([0.0, 0.0, 0.05])))

    def weight(t, q, v):
        """Of the tilted world: a force along x and z of the block, which does not turn."""
        along = jnp.stack([jnp.sin(RATE * t), jnp.zeros_like(t), -jnp.cos(RATE * t)])
        return jnp.concatenate([jnp.zeros(3), G * jnp.matmul(q.free_poses.rotation[0].T, along)])

    def run(friction):
        here = contacts.replace(friction=friction)
        return lgjax.rollout(
            model, q, jnp.zeros(6), weight, DT, steps, lgjax.contact.TimeStepping(), max(1, steps // 200), contacts=here
        )

    result = jax.jit(jax.vmap(run))(FRICTION)
    tilt = RATE * np.asarray(result.ts[0])
    force = np.asarray(result.contacts.force).sum(2)  # of all corners
    rubs, speed = np.linalg.norm(force[..., 1:], axis=-1), np.asarray(result.v)[..., 3]
    figure = plot.figure(10, 4)
    left, right = figure.subplots(1, 2)
    for k, friction in enumerate(FRICTION):
        style = {"color": plot.COLORS[k], "linestyle": plot.DASHES[k], "label": f"friction {friction:g}"}
        left.plot(np.rad2deg(tilt), rubs[k], **style)
        right.plot(np.rad2deg(tilt), speed[k], **style)
        moving = np.flatnonzero((np.asarray(result.contacts.state)[k] == 2).any(1))
        starts = f"starts to slide at {np.rad2deg(tilt[moving[0]]):.1f} deg" if len(moving) else "does not slide"
        print(f"friction {friction:g}: {starts}, arctan gives {np.rad2deg(np.arctan(friction)):.1f} deg")
        for axis in (left, right):
            label = "arctan of the friction" if k == 0 else None
            axis.axvline(np.rad2deg(np.arctan(friction)), label=label, **plot.BOUND)
    left.plot(np.rad2deg(tilt), G * np.sin(tilt), color="black", linewidth=0.6, label="weight along the plane")
    left.set(xlabel="tilt (deg)", ylabel="friction force (N)")
    right.set(xlabel="tilt (deg)", ylabel="speed (m/s)")
    left.legend()
    plot.save(figure, path)


if __name__ == "__main__":
    main(*sys.argv[1:2])
