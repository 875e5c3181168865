"""A hexarotor with two arms that flies one fingertip to a pose in space and holds it there, from random guesses.

Six propellers, never pulling, and six joint motors take the tip of the left arm a meter and more away, turned by 90°,
in one and a half seconds. Goal: every guess ends with the tip within 5 mm and 1° of the pose, and nothing of the robot
moving faster than 0.05 m/s or rad/s. Feasibility-driven differential dynamic programming (FDDP) keeps errors of the
base in the tangent space of SE(3).  python examples/16_aerial_reach.py [--guesses 8] [--out aerial_reach.png]
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

DT, STEPS, SEED = 0.03, 50, 0
FASTEST, TORQUE = 1100.0, 3.0  # of a propeller, rad/s, and of a joint, N m
TIP = "left_tip"
TARGET = np.array([0.9, 0.6, 0.2])  # m
TURN = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])  # the arm, down at home, then points back
GOAL = {"m": 5e-3, "deg": 1.0, "speed": 0.05}


def robot():
    """The robot, its controls (propellers 0 to 1, joints -1 to 1) as a system, and those that make it hover."""
    machine = lgjax.systems.aerial_manipulator()
    model = machine.model

    def actuation(u):
        return jnp.concatenate([machine.wrench(FASTEST**2 * u[:6]), TORQUE * u[6:]])

    system = lgjax.control.ControlSystem.of_model(model, DT, controls=12, actuation=actuation)
    q = lgjax.configuration(model, joints=np.array(machine.motion.joint_start))
    weight = lgjax.gravity_forces(model, q)
    hover = jnp.concatenate([machine.squared_speeds(weight[:6]) / FASTEST**2, weight[6:] / TORQUE])
    return model, system, (q, jnp.zeros(model.nv)), hover


def costs(model, hover):
    def running(t, state, u):
        q, v = state
        bent = jnp.maximum(jnp.abs(q.joints) - 2.2, 0)  # joints turn 2.4 rad either way
        return 0.05 * jnp.sum((u - hover) ** 2) + 1e-3 * jnp.sum(v**2) + 50 * jnp.sum(bent**2)

    def terminal(state):
        q, v = state
        tip = lgjax.frame_pose(model, q, TIP)
        apart = tip.translation - jnp.asarray(TARGET)
        return 500 * jnp.sum(apart**2) + 100 * (3 - jnp.sum(tip.rotation * jnp.asarray(TURN))) + 5 * jnp.sum(v**2)

    return running, terminal


def misses(model, states):
    """Distance (m) and angle (degrees) of the tip from the pose, and the largest speed, at the end of every guess."""
    q, v = jax.tree.map(lambda x: x[:, -1], states)
    tip = jax.jit(jax.vmap(lambda q: lgjax.frame_pose(model, q, TIP)))(q)
    turn = lgjax.so3.log(lgjax.so3.compose(TURN.T, tip.rotation))
    return {
        "m": np.linalg.norm(tip.translation - TARGET, axis=-1),
        "deg": np.rad2deg(np.linalg.norm(turn, axis=-1)),
        "speed": np.max(np.abs(v), -1),
    }


def main(out: str | None = None, guesses: int = 8, steps: int = STEPS, iterations: int = 150) -> dict:
    """Misses at the end and costs of every guess; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    model, system, start, hover = robot()
    running, terminal = costs(model, hover)
    noise = jax.random.normal(jax.random.key(SEED), (guesses, steps, 12))
    first = hover + noise * jnp.where(jnp.arange(12) < 6, 0.1, 0.03)
    lower, upper = jnp.where(jnp.arange(12) < 6, 0.0, -1.0), jnp.ones(12)
    found = lgjax.optimize_controls(
        system, start, first, steps=steps, running=running, terminal=terminal, bounds=(lower, upper),
        method=lgjax.control.FDDP(iterations=iterations, tolerance=1e-3, improvement=1e-6, patience=10, every=10),
    )  # fmt: skip
    miss = misses(model, found.states)
    good = np.all([miss[name] < most for name, most in GOAL.items()], 0)
    print(f"{np.sum(good)} of {guesses} guesses reach the pose, in {found.seconds:.0f} s")
    for name, values in {"cost": found.cost, **miss, "iterations": found.iterations, "status": found.status}.items():
        print(f"{name:>10}", *(f"{x:9.2e}" if values.dtype.kind == "f" else f"{x:9d}" for x in values))
    if out:
        draw(out, model, found)
    return {"good": good, "cost": found.cost, **miss}


def draw(out, model, found):
    made = figure(16, 8)
    grid = made.add_gridspec(2, 3)
    made.get_layout_engine().set(wspace=0.08)  # labels of 3D axes are left out of the layout
    best = found.best
    tips = jax.jit(jax.vmap(jax.vmap(lambda q: lgjax.frame_pose(model, q, TIP).translation)))(found.states[0])
    axes = made.add_subplot(grid[:, 0], projection="3d")
    for path in np.asarray(tips):
        axes.plot(*path.T, linewidth=1)
    axes.scatter(*TARGET, color="black", marker="*", s=80)
    poses = jax.jit(jax.vmap(lambda q: lgjax.forward_kinematics(model, q).translation))
    q = jax.tree.map(lambda x: x[best], found.states[0])
    bodies = np.asarray(poses(q))
    for k in np.linspace(0, len(bodies) - 1, 6).astype(int):
        for arm, end in ((slice(1, 4), tips[best, k]), (slice(4, 7), None)):
            points = [bodies[k, 0], *bodies[k, arm], *([] if end is None else [np.asarray(end)])]
            axes.plot(*np.array(points).T, color="black", linewidth=1, alpha=0.2 + 0.8 * k / len(bodies))
    axes.set(title="paths of the tip; the robot of the best guess", xlabel="x (m)", ylabel="y (m)", zlabel="z (m)")
    ts = DT * np.arange(found.controls.shape[1] + 1)
    panels = (
        ("speeds of the propellers (rad/s), best guess", ts[:-1], FASTEST * np.sqrt(found.controls[best, :, :6])),
        ("torques of the joints (N m), best guess", ts[:-1], TORQUE * found.controls[best, :, 6:]),
        ("distance of the tip (m), all guesses", ts, np.linalg.norm(np.asarray(tips) - TARGET, axis=-1).T),
    )
    for place, (title, x, y) in zip((grid[0, 1], grid[0, 2], grid[1, 1]), panels, strict=True):
        axes = made.add_subplot(place)
        axes.plot(x, y, linewidth=1)
        axes.set(title=title, xlabel="t (s)")
    axes = made.add_subplot(grid[1, 2])
    axes.semilogy(found.history.cost.T, linewidth=1)
    axes.set(title="cost", xlabel="iteration")
    save(made, out)
    lgjax.view.picture(model, (ts, q), pathlib.Path(out).with_suffix(".gif"), speed=0.5, size=(360, 240), fps=14)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guesses", type=int, default=8)
    parser.add_argument("--out", default="aerial_reach.png")
    given = parser.parse_args()
    main(given.out, given.guesses)
