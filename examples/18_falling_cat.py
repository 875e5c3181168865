"""A quadruped dropped on its back that turns onto its feet with no angular momentum: the falling cat.

In the frame that falls with it nothing pushes the robot, so its momentum stays zero and the trunk turns only as the
legs move: the angular velocity of the trunk is a linear function of the rates of the joints, which depends on where
they are. The state is the attitude in SO(3), the twelve joints and their rates; controls are accelerations of the
joints. Goal: from random guesses, within 2 s, trunk upright to 1°, legs as at the start to 0.02 rad and at rest to
0.1 rad/s, joints within their limits. The best motion is then replayed with the full dynamics under gravity.
python examples/18_falling_cat.py [--guesses 8] [--out falling_cat.png]
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

DT, STEPS, SEED = 0.05, 40, 0
STANCE = np.tile([0.0, 0.8, -1.6], 4)
GOAL = {"deg": 1.0, "legs": 0.02, "rates": 0.1, "limits": 0.02}
SPACE = lgjax.groups.product_space(
    lgjax.right_translation(lgjax.SO3),
    lgjax.groups.product_space(lgjax.groups.vector_space(12), lgjax.groups.vector_space(12)),
)


def locked_turn(model):
    """(joints, rates) -> the velocity of the trunk (6,), body frame, for which the momentum of the robot is zero.

    Its derivative, that of the momentum at constant velocities, is formed once for all directions.
    """

    def rows(joints):
        return lgjax.mass_matrix(model, lgjax.neutral(model)._replace(joints=joints))[:6]

    def connection(joints):
        matrix = rows(joints)
        return matrix[:, :6], -jnp.linalg.solve(matrix[:, :6], matrix[:, 6:])

    @jax.custom_jvp
    def turn(joints, rates):
        return connection(joints)[1] @ rates

    @turn.defjvp
    def _(at, change):
        (joints, rates), (djoints, drates) = at, change
        trunk, legs = connection(joints)
        velocity = legs @ rates
        whole = jnp.concatenate([velocity, rates])
        bend = jnp.linalg.solve(trunk, jax.jacfwd(lambda q: rows(q) @ whole)(joints))
        return velocity, legs @ drates - bend @ djoints

    return turn


def cat(model):
    turn = locked_turn(model)

    def field(t, y, acceleration):
        _, (joints, rates) = y
        return turn(joints, rates)[:3], (rates, acceleration)

    method = lgjax.MuntheKaas(lgjax.RK4, scan_stages=True)

    def step(y, acceleration):
        path = lgjax.integrate(SPACE, lambda t, y: field(t, y, 100 * acceleration), y, 0.0, DT, 1, method, None)
        return jax.tree.map(lambda x: x[0], path.ys)

    back = jnp.asarray(np.diag([1.0, -1.0, -1.0]))  # half a turn about x
    start = back, (jnp.asarray(STANCE), jnp.zeros(12))
    return lgjax.control.ControlSystem.on_space(SPACE, step, 12, DT), start


def costs(model):
    """Squared residuals: their Gauss-Newton Hessians pull the trunk upright from its back too, where the exact Hessian
    of a cost of the angle is negative or zero."""
    root = lambda *weights: jnp.sqrt(2 * jnp.asarray(weights))
    effort, slow, inside = root(1e-2, 1e-4, 100.0)
    upright, stance, still = root(500.0, 100.0, 2.5)

    def running(t, y, acceleration):
        _, (joints, rates) = y
        beyond = jnp.maximum(model.lower + 0.1 - joints, 0) + jnp.maximum(joints - model.upper + 0.1, 0)
        return jnp.concatenate([effort * acceleration, slow * rates, inside * beyond])

    def terminal(y):
        attitude, (joints, rates) = y
        return jnp.concatenate([upright * lgjax.so3.log(attitude), stance * (joints - STANCE), still * rates])

    return lgjax.control.costs.LeastSquares(running), lgjax.control.costs.LeastSquares(terminal)


def misses(model, states):
    attitude, (joints, rates) = states
    beyond = np.maximum(np.maximum(model.lower - joints, joints - model.upper), 0)
    return {
        "deg": np.rad2deg(np.linalg.norm(lgjax.so3.log(attitude[:, -1]), axis=-1)),
        "legs": np.max(np.abs(joints[:, -1] - STANCE), -1),
        "rates": np.max(np.abs(rates[:, -1]), -1),
        "limits": np.max(beyond, (1, 2)),
    }


def replay(model, controls):
    """The full motion under gravity, joints accelerating as found: configurations, and angular momenta about the
    center of mass."""
    q = lgjax.neutral(model)._replace(joints=jnp.asarray(STANCE))
    q = q._replace(free_poses=lgjax.Pose(jnp.asarray(np.diag([1.0, -1.0, -1.0]))[None], q.free_poses.translation))
    driven = tuple(range(6, model.nv))

    def step(state, acceleration):
        def field(t, y):
            wanted = jnp.concatenate([jnp.zeros(6), 100 * acceleration])
            vdot, _ = lgjax.hybrid_dynamics(model, *y, wanted, jnp.zeros(model.nv), driven)
            return y[1], vdot

        method = lgjax.MuntheKaas(lgjax.RK4, scan_stages=True)
        path = lgjax.integrate(lgjax.multibody.mechanical_space(model.tree), field, state, 0.0, DT, 4, method, None)
        state = jax.tree.map(lambda x: x[0], path.ys)
        about = lgjax.center_of_mass(model, state[0])
        moment = lgjax.momentum(model, *state)
        return state, (state[0], moment[:3] - jnp.cross(about, moment[3:]))

    return jax.jit(lambda: jax.lax.scan(step, (q, jnp.zeros(model.nv)), jnp.asarray(controls)))()[1]


def main(out: str | None = None, guesses: int = 8, steps: int = STEPS, iterations: int = 110) -> dict:
    """Misses at the end and costs of every guess; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    model = lgjax.models.quadruped()
    system, start = cat(model)
    running, terminal = costs(model)
    first = 0.3 * jax.random.normal(jax.random.key(SEED), (guesses, steps, 12))
    found = lgjax.optimize_controls(
        system, start, first, steps=steps, running=running, terminal=terminal,
        method=lgjax.control.FDDP(iterations=iterations, tolerance=1e-3, improvement=1e-5, patience=10, every=10),
    )  # fmt: skip
    miss = misses(model, found.states)
    good = np.all([miss[name] < most for name, most in GOAL.items()], 0)
    print(f"{np.sum(good)} of {guesses} guesses land upright, in {found.seconds:.0f} s")
    for name, values in {"cost": found.cost, **miss, "iterations": found.iterations, "status": found.status}.items():
        print(f"{name:>10}", *(f"{x:9.2e}" if values.dtype.kind == "f" else f"{x:9d}" for x in values))
    q, moment = replay(model, found.controls[found.best])
    error = np.rad2deg(np.linalg.norm(lgjax.so3.log(q.free_poses.rotation[-1, 0])))
    largest = np.max(np.abs(moment))
    print(f"replayed by the full dynamics: {error:.2f} deg from upright, angular momentum below {largest:.1e} kg m²/s")
    if out:
        draw(out, model, found)
        lgjax.view.picture(
            model, (DT * np.arange(1, steps + 1), q), pathlib.Path(out).with_suffix(".gif"), camera=(1, -1.2, 0.4),
            size=(320, 280), follow=True, trail=False, ground=None, speed=0.5,
        )  # fmt: skip
    return {"good": good, "cost": found.cost, "replayed": error, "momentum": largest, **miss}


def draw(out, model, found):
    made = figure(16, 8)
    grid = made.add_gridspec(2, 4)
    best = found.best
    attitude, (joints, _) = jax.tree.map(lambda x: x[best], found.states)
    places = np.linspace(0, len(joints) - 1, 4).astype(int)

    def pose(turn, angles):
        q = lgjax.neutral(model)._replace(joints=angles)
        q = q._replace(free_poses=lgjax.Pose(turn[None], q.free_poses.translation))
        feet = [lgjax.frame_pose(model, q, f"{leg}_foot").translation for leg in ("FL", "FR", "RL", "RR")]
        return lgjax.forward_kinematics(model, q).translation, jnp.stack(feet)

    bodies, feet = jax.jit(jax.vmap(pose))(attitude[places], joints[places])
    for column, (k, points, ends) in enumerate(zip(places, np.asarray(bodies), np.asarray(feet), strict=True)):
        axes = made.add_subplot(grid[0, column], projection="3d")
        hips = points[[1, 4, 10, 7, 1]]
        axes.plot(*hips.T, color="black")
        for leg in range(4):
            axes.plot(*np.vstack([points[1 + 3 * leg : 4 + 3 * leg], ends[leg]]).T, "o-", markersize=3)
        axes.locator_params(nbins=3)
        axes.set(
            title=f"after {k * DT:.2f} s (m)",
            xlim=(-0.35, 0.35),
            ylim=(-0.35, 0.35),
            zlim=(-0.35, 0.35),
            aspect="equal",
        )
        axes.view_init(15, -70)
    ts = DT * np.arange(len(joints))
    angles = np.rad2deg(np.linalg.norm(np.asarray(jax.jit(lgjax.so3.log)(found.states[0])), axis=-1))
    panels = (
        ("angle from upright (deg), all guesses", ts, angles.T),
        ("joints (rad), best guess", ts, joints),
        ("accelerations of the joints (rad/s²), best guess", ts[:-1], 100 * found.controls[best]),
    )
    for column, (title, x, y) in enumerate(panels):
        axes = made.add_subplot(grid[1, column])
        axes.plot(x, y, linewidth=1)
        axes.set(title=title, xlabel="t (s)")
    axes = made.add_subplot(grid[1, 3])
    axes.semilogy(found.history.cost.T, linewidth=1)
    axes.set(title="cost", xlabel="iteration")
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guesses", type=int, default=8)
    parser.add_argument("--out", default="falling_cat.png")
    given = parser.parse_args()
    main(given.out, given.guesses)
