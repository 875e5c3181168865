"""A block is thrown: it flies, lands, slides and must come to rest on a mark. Optimal control through contact.

The hand pushes for a fifth of the time; every guess of its force descends along the derivative of the miss, which goes
through the landing, the sliding and the rest. python examples/24_throw_to_rest.py
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import plot

MARK = np.array([1.2, 0.4])
DT, PHASES = 0.02, 5  # s; the hand pushes in the first of five phases


def main(path: str = "24_throw_to_rest.png", guesses: int = 4, iterations: int = 100, steps: int = 50) -> None:
    block = lgjax.Body("block", None, lgjax.Joint("free", "free"), mass=1.0, inertia=np.diag([6e-3, 6e-3, 8e-3]))
    model = lgjax.build([block])
    floor = lgjax.shapes.Plane((0.0, 0.0, 1.0))
    contacts = lgjax.Contacts(model, floor, {"block": lgjax.shapes.box((0.15, 0.15, 0.05))}, friction=0.4)
    start = lgjax.configuration(model, (jnp.eye(3), jnp.array([0.0, 0.0, 0.2]))), jnp.zeros(6)
    system = lgjax.control.ControlSystem.of_model(
        model, DT, 2, lambda u: jnp.zeros(6, u.dtype).at[3:5].set(u),
        method=lgjax.contact.TimeStepping(), contacts=contacts,
    )  # fmt: skip

    def running(t, state, control):
        late = t > DT * (steps // PHASES - 0.5)
        return jnp.where(late, 10.0, 1e-3) * jnp.sum(control * control)

    def terminal(state):
        q, v = state
        miss = q.free_poses.translation[0, :2] - MARK
        return 10 * jnp.sum(miss * miss) + jnp.sum(v * v)

    pushes = 5 + 4 * jax.random.normal(jax.random.key(0), (guesses, 2))
    found = lgjax.optimize_controls(
        system, start, jnp.zeros((guesses, PHASES, 2)).at[:, 0].set(pushes), steps=steps,
        running=running, terminal=terminal, method=lgjax.control.Shooting(iterations=iterations), progress=False,
    )  # fmt: skip
    best = int(np.argmin(found.cost))
    place = np.asarray(found.states[0].free_poses.translation)[:, :, 0]
    miss = np.linalg.norm(place[:, -1, :2] - MARK, axis=-1)
    print(f"misses in mm: {np.round(1e3 * miss, 1)}, {np.sum(found.success)} of {guesses} searches converged")
    ts = DT * np.arange(steps + 1)
    figure = plot.figure(10, 4)
    left, right = figure.subplots(1, 2)
    for k, one in enumerate(place):
        left.plot(one[:, 0], one[:, 1], color=plot.COLORS[0], linewidth=2.0 if k == best else 0.8)
    left.plot(*MARK, "x", color="black", markersize=10)
    left.set(xlabel="x (m)", ylabel="y (m)", title="paths of all guesses, and the mark", aspect="equal")
    speed = np.linalg.norm(np.asarray(found.states[1])[best, :, 3:5], axis=-1)
    right.plot(ts, speed, color=plot.COLORS[1], label="horizontal speed (m/s)")
    right.plot(ts, place[best, :, 2], color=plot.COLORS[2], linestyle="--", label="height (m)")
    right.set(xlabel="t (s)", ylabel="(m/s), (m)", title="the best throw")
    right.legend()
    plot.save(figure, path)


if __name__ == "__main__":
    main(*sys.argv[1:2])
