"""A ball flies into a tower of boxes, at several speeds in one batch: who slides, who falls, and where the energy goes.

python examples/30_tower_and_ball.py [tower.png] [tower.html]; the page is a moving picture of the fastest ball.
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import plot, shapes

jax.config.update("jax_enable_x64", True)
HALF, RADIUS, MASS, BALL = 0.1, 0.08, 0.5, 0.4  # m, m, kg, kg
DT = 2e-3


def main(
    path: str = "30_tower_and_ball.png", page: str | None = None, boxes: int = 3, steps: int = 500, batch: int = 4
) -> None:
    cube, ball = 2 / 3 * MASS * HALF**2 * np.eye(3), 0.4 * BALL * RADIUS**2 * np.eye(3)
    names = [f"box {k}" for k in range(boxes)]
    free = lambda name, mass, inertia: lgjax.Body(
        name, None, lgjax.Joint(f"{name} free", "free"), mass=mass, inertia=inertia
    )
    model = lgjax.build([*(free(name, MASS, cube) for name in names), free("ball", BALL, ball)])
    solid = dict.fromkeys(names, shapes.box(HALF)) | {"ball": shapes.sphere(RADIUS)}
    pairs = [*zip(names[1:], names[:-1], strict=True), *(("ball", name) for name in names)]
    floor = shapes.Plane((0.0, 0.0, 1.0))
    # Restitution 0, not None, takes the energy into account.
    contacts = lgjax.Contacts(model, floor, solid, pairs, friction=0.5, restitution=0.0, nearest=4 * boxes + 4)

    heights = np.array([*(HALF * (1 + 2 * np.arange(boxes))), HALF * (2 * boxes - 0.8)])
    places = np.stack([[*np.zeros(boxes), -0.5], np.zeros(boxes + 1), heights], 1)
    q = lgjax.configuration(model, (jnp.broadcast_to(jnp.eye(3), (boxes + 1, 3, 3)), jnp.asarray(places)))

    def run(speed):
        v = jnp.zeros(model.nv).at[-3].set(speed)
        method = lgjax.contact.TimeStepping()
        return lgjax.rollout(model, q, v, None, DT, steps, method, max(1, steps // 100), contacts=contacts)

    speeds = np.linspace(2.0, 8.0, batch)
    result = jax.jit(jax.vmap(run))(speeds)
    energy = jax.vmap(jax.vmap(lambda q, v: lgjax.total_energy(model, q, v)))(result.q, result.v)
    place = np.asarray(result.q.free_poses.translation)
    times = np.asarray(result.ts[0])
    tilt = np.arccos(np.clip(np.asarray(result.q.free_poses.rotation)[..., 2, 2], -1, 1))
    figure = plot.figure(11, 4)
    left, right = figure.subplots(1, 2)
    for k, speed in enumerate(speeds):
        style = {"color": plot.COLORS[k], "label": f"{speed:.0f} m/s"}
        left.plot(times, place[k, :, boxes - 1, 0], **style)
        right.plot(times, energy[k] - energy[k, -1], **style)
        moved = ", ".join(f"{x:.2f}" for x in place[k, -1, :boxes, 0])
        print(f"{speed:.1f} m/s: boxes end at x = {moved} m, tilted by up to {np.rad2deg(tilt[k, -1].max()):.0f} deg")
        residual = float(result.contacts.residual[k, -1])
        rise = max(0.0, float(np.max(np.diff(energy[k]))))
        print(f"  the energy rises by at most {rise:.0e} J; the law is violated by at most {residual:.0e} m/s")
    left.set(xlabel="t (s)", ylabel="x of the upper box (m)")
    right.set(xlabel="t (s)", ylabel="energy above the last one (J)")
    left.legend(title="speed of the ball")
    plot.save(figure, path)
    fastest = jax.tree.map(lambda x: x[-1], result)
    lgjax.view.picture(
        model, fastest, pathlib.Path(path).with_suffix(".gif"), contacts=contacts, camera=(0.4, -1, 0.3),
        size=(360, 240), speed=0.5, trail=False,
    )  # fmt: skip
    if page is not None:
        lgjax.view.html(model, fastest, page, speed=0.25, contacts=contacts)


if __name__ == "__main__":
    main(*sys.argv[1:3])
