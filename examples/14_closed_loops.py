"""Mechanisms with closed loops: a four-bar, a five-bar with an actuator too many, a Stewart platform on springs.

How far the loops open without correction, with Baumgarte's stabilization and with projection; what three actuators do
where two would be enough; a platform that is pushed.
python examples/14_closed_loops.py [--duration 10] [--out closed_loops.png]
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

STIFFNESS, CARRIED = 3000.0, 50.0  # N/m and N of the platform's springs


def start(system, push):
    """The velocity nearest to `push` that keeps the loops closed."""
    return jax.jit(lgjax.project_velocity)(system.model, system.loops, system.q0, push)


def drifts(duration, dt, count):
    """The projected motion, path of the coupler's middle and residuals of three ways to keep a four-bar closed."""
    s = lgjax.systems.four_bar()
    v, steps = start(s, jnp.asarray([6.0, 0.0, 0.0])), round(duration / dt)
    ways = {
        "nothing": {"project": None},
        "Baumgarte, 20/s": {"project": None, "alpha": 20.0, "beta": 20.0},
        "projection": {"project": "mass"},
    }
    found = {}
    for name, options in list(ways.items())[-count:]:
        run = lambda q, v, o=options: lgjax.rollout(s.model, q, v, None, dt, steps, loops=s.loops, **o)
        found[name] = jax.jit(run)(s.q0, v)
    path = found["projection"]
    poses = jax.jit(jax.vmap(lambda q: lgjax.forward_kinematics(s.model, q)))(path.q)
    middle = poses.rotation[:, 1] @ jnp.asarray([0.45, 0.0, 0.2]) + poses.translation[:, 1]
    energy = jax.jit(jax.vmap(s.invariants["energy"]))(path.q, path.v)
    return path, middle, {k: p.residual for k, p in found.items()}, energy


def torques(count):
    """Torques of three motors that hold a five-bar while its left motor turns by ±0.5 rad, chosen in two ways."""
    s = lgjax.systems.five_bar()
    turns = jnp.linspace(-0.5, 0.5, count)

    def hold(turn):
        guess = s.q0._replace(joints=s.q0.joints.at[0].add(turn))
        q = lgjax.project_positions(s.model, s.loops, guess, metric="plain").q
        inverse, rest = lgjax.constrained_inverse_dynamics, s.v0
        return [
            inverse(s.model, s.loops, q, rest, rest, s.actuated, minimum=m).tau for m in ("constraint_force", "torque")
        ]

    return turns, jax.jit(jax.vmap(hold))(turns)


def platform(duration, dt):
    """Times and positions of a Stewart platform on springs that is pushed."""
    s = lgjax.systems.stewart_platform()
    slides, steps = jnp.asarray(s.actuated), round(duration / dt)
    lengths = lambda q: q.joints[2::3]
    springs = lambda t, q, v: jnp.zeros_like(v).at[slides].set(CARRIED - STIFFNESS * lengths(q))
    v = start(s, jnp.zeros(s.model.nv).at[:6].set(jnp.asarray([0.3, -0.2, 0.4, 0.2, 0.3, -0.2])))
    run = lambda q, v: lgjax.rollout(s.model, q, v, springs, dt, steps, save_every=10, loops=s.loops)
    path = jax.jit(run)(s.q0, v)
    return path.ts, path.q.free_poses.translation[:, 0], path.residual


def main(out: str | None = None, duration: float = 10.0, dt: float = 1e-3, ways: int = 3, legs: bool = True) -> dict:
    """Largest residuals, with the last few of the ways to keep loops closed; legs: with the Stewart platform."""
    jax.config.update("jax_enable_x64", True)
    path, middle, residuals, energy = drifts(duration, dt, ways)
    turns, (force, torque) = torques(50)
    worst = {name: float(r[-1]) for name, r in residuals.items()}
    print("four-bar, largest residual (m):", ", ".join(f"{k} {x:.1e}" for k, x in worst.items()))
    print(f"relative change of its energy: {float(jnp.ptp(energy) / energy[0]):.1e}")
    norms = [np.linalg.norm(x, axis=-1) for x in (force, torque)]
    print(
        f"five-bar, mean torques: least constraint force {norms[0].mean():.2f}, least torque {norms[1].mean():.2f} N m"
    )
    made = figure(15, 8)
    axes = made.add_subplot(2, 2, 1)
    axes.plot(middle[:, 0], middle[:, 2], linewidth=0.7)
    axes.set(title="four-bar: a point of the coupler", xlabel="x (m)", ylabel="z (m)", aspect="equal")
    axes = made.add_subplot(2, 2, 2)
    for name, residual in residuals.items():
        axes.semilogy(path.ts, np.maximum(residual, 1e-17), label=name)
    axes.set(title="how far the pin has opened (m)", xlabel="t (s)")
    axes.legend()
    axes = made.add_subplot(2, 2, 3)
    for name, norm in zip(("least constraint force", "least torque"), norms, strict=True):
        axes.plot(turns, norm, label=name)
    axes.set(
        title="five-bar: holding torques of three motors, root of the sum of squares (N m)", xlabel="left motor (rad)"
    )
    axes.legend()
    if legs:
        ts, position, residual = platform(min(duration, 3.0), dt)
        worst["platform"] = float(residual[-1])
        print(f"Stewart platform, largest residual: {worst['platform']:.1e} m")
        axes = made.add_subplot(2, 2, 4)
        for i, name in enumerate("xyz"):
            axes.plot(ts, position[:, i] - position[0, i], label=name)
        axes.set(title="Stewart platform on springs: displacement (m)", xlabel="t (s)")
        axes.legend()
    if out:
        save(made, out)
        some = round(4.0 / dt) + 1  # s
        lgjax.view.picture(
            lgjax.systems.four_bar(), jax.tree.map(lambda x: x[:some], (path.ts, path.q)),
            pathlib.Path(out).with_suffix(".gif"), camera=(0, -1, 0.3), size=(360, 240), fps=14, ground=None,
        )  # fmt: skip
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duration", type=float, default=10.0)
    parser.add_argument("--out", default="closed_loops.png")
    given = parser.parse_args()
    main(given.out, given.duration)
