"""Throws of a tumbling ellipsoid that is to touch the ground on a mark at its fourth impact, after three bounces.

Each of a batch of guesses, launch velocity and angular momentum, descends along the derivative of its miss, which goes
through the impacts and their times.  No miss is less than zero, so Polyak's step, gradient times miss / |gradient|²,
needs no tuning; it is cut where it is long, because every bounce of such a body magnifies small differences.
Derivatives near a grazing impact mean nothing: a throw whose status says so takes a small random step instead.
python examples/09_throw.py [--guesses 16] [--iterations 80] [--out throw.png]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lgjax
from lgjax.collisions import BounceStatus
from lgjax.plot import figure, save

AXES, INERTIA = (0.25, 0.3, 0.35), (0.0425, 0.037, 0.0305)  # m, kg m² for 1 kg of constant density
H, STEPS, RESTITUTION = 0.02, 160, 0.8
FROM, TARGET = (0.0, 0.0, 1.5), (5.0, 2.0)  # m
MEAN = np.array([2.5, 1.0, 2.0, 0.05, -0.05, 0.05])  # of the guesses, m/s and kg m²/s
SPREAD = np.array([0.3, 0.3, 0.3, 0.03, 0.03, 0.03])
UNITS = np.array([1.0, 1.0, 1.0, 0.005, 0.005, 0.005])  # in which steps are measured
LONGEST = 0.2
LAST = 3  # number of the impact that counts, from 0
# Any other status spoils the derivative; what happens after the fourth impact does not matter.
HARMLESS = int(BounceStatus.NOT_RECORDED | BounceStatus.ZENO)


def throw(launch):
    """Body, shape and motion from a launch velocity and angular momentum (6,)."""
    body, shape = lgjax.collisions.rigid_body(1.0, INERTIA), lgjax.shapes.ellipsoid(jnp.array(AXES))
    ground, state = (
        lgjax.shapes.Plane(jnp.array([0.0, 0.0, 1.0])),
        lgjax.collisions.rigid_state(FROM, launch[:3], launch[3:]),
    )
    run = lgjax.collisions.bounce(
        body, shape, ground, state, H, STEPS, max_impacts=4, restitution=RESTITUTION, record=LAST + 1
    )
    return body, shape, run


def landing(launch):
    """Where (2,) the body touches the ground at its fourth impact, the motion, and whether its derivative counts."""
    body, shape, run = throw(launch)
    third, fourth = run.events.ts[LAST - 1 :]
    # From the last state before the impact on to its time.
    start = jnp.floor(fourth / H)
    before = jax.tree.map(lambda a: a[start.astype(int)], run.states)
    pose = lgjax.collisions.variational_step(body, before, fourth - start * H)[0].pose
    point = pose.act(shape.support(-pose.rotation[2]).point)
    # Two impacts in one step would leave no state between them.
    usable = (run.impacts[-1] > LAST) & ((run.status & ~HARMLESS) == 0) & (third < start * H)
    return point[:2], run, usable


def miss(scaled):
    """Distance of the landing from the target, m, and whether its derivative counts."""
    place, _, usable = landing(scaled * UNITS)
    # A perfect hit has a derivative too.
    return jnp.sqrt(jnp.sum((place - jnp.array(TARGET)) ** 2) + 1e-20), usable


def optimize(launches, iterations):
    """The best launches, their misses, and misses and usability of all that were tried (iterations, guesses)."""
    descent = optax.chain(optax.polyak_sgd(max_learning_rate=1.0), optax.clip_by_global_norm(LONGEST))

    def step(carry, key):
        launch, state, best, least = carry
        (value, usable), gradient = jax.value_and_grad(miss, has_aux=True)(launch)
        better = usable & (value < least)
        best, least = jnp.where(better, launch, best), jnp.where(better, value, least)
        updates, state = descent.update(gradient, state, launch, value=value)
        updates = jnp.where(usable, updates, LONGEST / 6**0.5 * jax.random.normal(key, launch.shape))
        return (optax.apply_updates(launch, updates), state, best, least), (value, usable)

    def one(launch, key):
        carry = (launch, descent.init(launch), launch, jnp.array(jnp.inf))
        (_, _, best, least), tried = jax.lax.scan(step, carry, jax.random.split(key, iterations))
        return best * UNITS, least, tried

    keys = jax.random.split(jax.random.key(1), len(launches))
    return jax.jit(jax.vmap(one, out_axes=(0, 0, 1)))(launches / UNITS, keys)


def main(out: str | None = None, guesses: int = 16, iterations: int = 80) -> dict:
    """Misses of the best throws and of all that were tried, m; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    first = MEAN + SPREAD * jax.random.normal(jax.random.key(0), (guesses, 6))
    best, least, (values, usable) = optimize(first, iterations)
    values, least = np.where(usable, values, np.inf), np.asarray(least)
    print(f"misses of the guesses: {np.min(values[0]):.2g} to {np.max(values[0], where=usable[0], initial=0):.2g} m")
    print(f"{np.sum(least < 1e-3)} of {guesses} throws land within 1 mm; misses in order:")
    print(" ".join(f"{m:.1e}" for m in np.sort(least)), "m")
    needed = np.sort(np.argmax(values < 1e-3, 0)[least < 1e-3])
    print("steps taken to 1 mm:", *needed)
    print(f"{np.sum(~np.asarray(usable))} of {usable.size} tried throws had no usable derivative")
    if out:
        draw(out, first, best, np.minimum.accumulate(values))
    return {"misses": least, "history": values}


def draw(out, first, best, values):
    made = figure(16, 8)
    (guessed, found), (above, course) = made.subplots(2, 2, width_ratios=(1.6, 1)).T
    run = jax.jit(jax.vmap(landing))
    for axes, launches, title in ((guessed, first, "guesses"), (found, best, "best throws")):
        places, motion, usable = run(launches)
        paths, last = np.asarray(motion.states.pose.translation), np.asarray(motion.events.ts)[:, LAST]
        for i in np.flatnonzero(usable):
            path = paths[i, np.asarray(motion.ts[i]) <= last[i]]
            (line,) = axes.plot(path[:, 0], path[:, 2], linewidth=1)
            axes.plot(places[i, 0], 0, "o", color=line.get_color(), markersize=5, clip_on=False)
        axes.axvline(TARGET[0], color="black", linestyle=":", linewidth=0.8)
        axes.plot(TARGET[0], 0, "k*", markersize=14, zorder=3, clip_on=False, label="target")
        axes.set(title=f"{title}: center up to the fourth impact, touching point there (dots)")
        axes.set(xlabel="x (m)", ylabel="z (m)", ylim=(0, None))
        axes.legend(loc="upper right")
        mark = "o" if launches is first else "+"
        above.plot(*np.asarray(places)[np.asarray(usable)].T, mark, label=title, markerfacecolor="none")
    found.set_xlim(guessed.get_xlim())
    above.plot(*TARGET, "k*", markersize=14, label="target", zorder=0)
    above.set(title="touching points from above", xlabel="x (m)", ylabel="y (m)", aspect="equal")
    above.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    course.semilogy(np.maximum(values, 1e-16), linewidth=1)
    course.axhline(1e-3, color="black", linestyle=":", linewidth=0.8)
    course.set(title="smallest miss so far (m); dotted: 1 mm", xlabel="steps of the descent")
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guesses", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--out", default="throw.png")
    given = parser.parse_args()
    main(given.out, given.guesses, given.iterations)
