"""A throw that comes to rest on a mark: optimal control through flight, bounces, sliding and rest.

A hand pushes a puck of 0.2 kg for a quarter of a second and lets go. The puck flies, bounces with restitution 0.4,
slides with friction 0.3 and stops. It is to stop on a mark 2.5 m away, with the least effort of the hand. All that
happens after the release is one step by events: every bounce and the end of the slide have their own times, and the
search sees how these change with the forces. Goal: from every random guess the puck rests within 1 mm of the mark.
python examples/26_throw_to_rest.py [--guesses 8] [--out throw_to_rest.png]
"""

import argparse
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

MASS, RADIUS, FRICTION, RESTITUTION = 0.2, 0.05, 0.3, 0.4
PUSH, KNOTS, STRONGEST, LATER = 0.25, 5, 8.0, 2.5  # s, forces of the hand, N, s after the release
HEIGHT, MARK, WEIGHT, SEED = 0.3, 2.5, 1e4, 1  # m, m, 1/m² of the squared miss
UP, ALONG = (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)


def puck() -> tuple[lgjax.Model, lgjax.Contacts]:
    """The puck, which does not turn, with its coordinates along and up, and its contact with the ground."""
    slide = lgjax.Body("slide", None, lgjax.Joint("along", "prismatic", ALONG), mass=1e-9, inertia=1e-9 * np.eye(3))
    own = lgjax.Body("puck", "slide", lgjax.Joint("up", "prismatic", UP), mass=MASS, inertia=1e-4 * np.eye(3))
    model = lgjax.build([slide, own], "puck")
    ball = lgjax.shapes.sphere(RADIUS, (0.0, 0.0, RADIUS))
    ground = lgjax.shapes.Plane(UP)
    return model, lgjax.Contacts(model, ground, {"puck": ball}, friction=FRICTION, restitution=RESTITUTION)


def throws():
    """(state, forces (2 KNOTS,) of the hand, steps) -> the motion in the hand, and that after it in so many steps."""
    model, contacts = puck()
    method = lgjax.contact.EventDriven(rtol=1e-8, atol=1e-10, max_parts=96)

    def throw(state, u, steps=1):
        hold = PUSH / KNOTS
        pushes = STRONGEST * u.reshape(KNOTS, 2)
        law = lambda t, q, v: pushes[jnp.clip((t / hold + 1e-9).astype(int), 0, KNOTS - 1)]
        held = lgjax.rollout(model, *state, law, hold, KNOTS)
        q, v = jax.tree.map(lambda x: x[-1], (held.q, held.v))
        return held, lgjax.rollout(model, q, v, None, LATER / steps, steps, method, contacts=contacts)

    return model, throw


def main(out: str | None = None, guesses: int = 8, iterations: int = 60, frames: int = 200) -> dict:
    """Distance from the mark, speed at the end and effort of every guess; draws the throws to `out`."""
    jax.config.update("jax_enable_x64", True)
    model, throw = throws()
    start = lgjax.configuration(model, joints=np.array([0.0, HEIGHT])), jnp.zeros(2)

    def whole(state, u):
        path = throw(state, u)[1]
        return jax.tree.map(lambda x: x[-1], (path.q, path.v))

    plain = lgjax.control.ControlSystem.of_model(model, PUSH + LATER)
    system = replace(plain, step=whole, jacobians=None, forces=None, controls=2 * KNOTS)
    first = jax.random.uniform(jax.random.key(SEED), (guesses, 1, 2 * KNOTS), minval=0.2, maxval=0.8)
    found = lgjax.optimize_controls(
        system, start, first, steps=1, running=lambda t, state, u: jnp.sum(u**2) / KNOTS, bounds=(-1.0, 1.0),
        terminal=lambda state: WEIGHT * (state[0].joints[0] - MARK) ** 2,
        method=lgjax.control.ILQR(iterations=iterations, tolerance=1e-4),
    )  # fmt: skip
    q, v = jax.tree.map(lambda x: np.asarray(x[:, -1]), found.states)
    miss, speed = np.abs(q.joints[:, 0] - MARK), np.max(np.abs(v), -1)
    effort = STRONGEST * np.sqrt(2 * np.mean(np.asarray(found.controls) ** 2, (1, 2)))
    print(f"{np.sum((miss < 1e-3) & (speed < 1e-3))} of {guesses} throws rest on the mark, in {found.seconds:.0f} s")
    values = {"miss, m": miss, "speed, m/s": speed, "force, N": effort}
    for name, row in (values | {"status": found.status, "iterations": found.iterations}).items():
        print(f"{name:>10}", *(f"{x:9.2e}" if row.dtype.kind == "f" else f"{x:9d}" for x in row))
    if out:
        controls = jnp.concatenate([first, jnp.asarray(found.controls)])[:, 0]
        draw(out, jax.jit(jax.vmap(lambda u: throw(start, u, frames)))(controls), np.asarray(controls))
    return {"miss": miss, "speed": speed, "effort": effort}


def draw(out, motions, controls):
    made = figure(11, 7)
    places, speeds, hand = (made.add_subplot(place) for place in made.add_gridspec(3, 1, height_ratios=(2, 1, 1)))
    joined = lambda pick: np.concatenate([np.asarray(pick(motion)) for motion in motions], 1)
    ts = np.concatenate([np.asarray(motions[0].ts[0]), PUSH + np.asarray(motions[1].ts[0])])
    colors = ["0.75"] * (len(controls) // 2) + [f"C{k}" for k in range(len(controls) // 2)]
    paths, rates = joined(lambda m: m.q.joints), joined(lambda m: m.v)
    for path, v, u, color in zip(paths, rates, controls, colors, strict=True):
        places.plot(*path.T, color, linewidth=1)
        speeds.plot(ts, v[:, 0], color, linewidth=1)
        force = np.hypot(*STRONGEST * u.reshape(KNOTS, 2).T)
        hand.stairs(force, np.linspace(0, PUSH, KNOTS + 1), color=color, linewidth=1)
    places.plot(MARK, 0, "k*", markersize=12, clip_on=False)
    places.set(
        title="paths of random guesses (gray), what they become, and the mark",
        xlabel="along (m)",
        ylabel="up (m)",
    )
    speeds.set(ylabel="speed along (m/s)", xlim=(0, ts[-1]))
    hand.set(ylabel="force of the\nhand (N)", xlabel="t (s)", xlim=(0, ts[-1]))
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guesses", type=int, default=8)
    parser.add_argument("--out", default="throw_to_rest.png")
    given = parser.parse_args()
    main(given.out, given.guesses)
