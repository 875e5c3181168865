"""A cart that swings its pole up and balances it, from random guesses, by two methods.

The pole hangs at rest; after two seconds it is to stand upright at rest where the cart began, with a force of at most
20 N. Goal: every guess ends within 0.01 of upright and rest (m, rad, m/s, rad/s, the largest of the four). The
linear-quadratic regulator of iterative expansions and single shooting by L-BFGS start from the same random forces.
python examples/17_cart_pole.py [--guesses 8] [--out cart_pole.png]
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

DT, STEPS, FORCE, SEED = 0.02, 100, 20.0, 0
GOAL = 0.01
METHODS = {"ilqr": lgjax.control.ILQR, "shooting": lgjax.control.Shooting}


def cart_pole() -> lgjax.Model:
    """A cart of 1 kg on rails along x and a pole of 0.3 kg and 1 m that hangs from it at angle zero."""
    rails, pivot = (
        lgjax.Joint("rails", "prismatic", (1.0, 0.0, 0.0)),
        lgjax.Joint("pivot", "continuous", (0.0, -1.0, 0.0)),
    )
    rod = 0.3 / 12 * np.diag([1.0, 1.0, 1e-3])
    return lgjax.build(
        [
            lgjax.Body("cart", None, rails, mass=1.0, inertia=1e-3 * np.eye(3)),
            lgjax.Body("pole", "cart", pivot, mass=0.3, com=np.array([0.0, 0.0, -0.5]), inertia=rod),
        ],
        "cart_pole",
    )


def running(t, state, force):
    return 1e-4 * jnp.sum(force**2)


def terminal(state):
    q, v = state
    return 100 * (q.joints[0] ** 2 + 2 * (1 + jnp.cos(q.joints[1]))) + 10 * jnp.sum(v**2)


def errors(result):
    """Largest of the distances from upright and rest, per guess."""
    q, v = jax.tree.map(lambda x: x[:, -1], result.states)
    angle = np.abs(np.remainder(q.joints[:, 1], 2 * np.pi) - np.pi)
    return np.max(np.stack([np.abs(q.joints[:, 0]), angle, *np.abs(v.T)]), 0)


def main(out: str | None = None, guesses: int = 8, iterations: int = 300, methods=tuple(METHODS)) -> dict:
    """Errors at the end and costs of every guess, by method; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    model = cart_pole()
    system = lgjax.control.ControlSystem.of_model(
        model, DT, controls=1, actuation=lambda u: jnp.stack([u[0], jnp.zeros_like(u[0])])
    )
    start = lgjax.neutral(model), jnp.zeros(2)
    first = 5.0 * jax.random.normal(jax.random.key(SEED), (guesses, STEPS, 1))
    results = {}
    for method in methods:
        found = lgjax.optimize_controls(
            system, start, first, steps=STEPS, running=running, terminal=terminal, bounds=(-FORCE, FORCE),
            method=METHODS[method](iterations=iterations, tolerance=1e-4),
        )  # fmt: skip
        results[method] = found
        miss = errors(found)
        print(f"{method}: {np.sum(miss < GOAL)} of {guesses} upright at rest within {GOAL}, in {found.seconds:.1f} s")
        print("  costs", *np.round(found.cost, 3), "\n  errors", *(f"{e:.1e}" for e in miss))
        print("  iterations", *found.iterations, "status", *found.status)
    if out:
        draw(out, results)
        found = results[methods[0]]
        q = jax.tree.map(lambda x: x[found.best], found.states[0])
        lgjax.view.picture(
            model, (DT * np.arange(STEPS + 1), q), pathlib.Path(out).with_suffix(".gif"), camera=(0, -1, 0.15),
            size=(360, 240), ground=None,
        )  # fmt: skip
    return {name: {"errors": errors(found), "cost": found.cost} for name, found in results.items()}


def draw(out, results):
    made = figure(5.2 * 3, 3.6 * len(results))
    rows = made.subplots(len(results), 3, squeeze=False)
    ts = DT * np.arange(STEPS + 1)
    for (name, found), (angle, force, course) in zip(results.items(), rows, strict=True):
        angle.plot(ts, np.asarray(found.states[0].joints)[:, :, 1].T, linewidth=1)
        angle.set(title=f"{name}: angle of the pole (rad)", xlabel="t (s)")
        for turn in (-np.pi, np.pi):
            angle.axhline(turn, color="black", linestyle=":", linewidth=0.8)
        force.plot(ts[:-1], found.controls[:, :, 0].T, linewidth=1)
        force.set(title="force on the cart (N)", xlabel="t (s)")
        course.semilogy(found.history.cost.T, linewidth=1)
        course.set(title="cost", xlabel="iteration")
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guesses", type=int, default=8)
    parser.add_argument("--out", default="cart_pole.png")
    given = parser.parse_args()
    main(given.out, given.guesses)
