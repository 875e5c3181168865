"""An aerial manipulator: forces and their time derivatives along a motion, and the motion again from the forces.

Figure 3 of [ali2026], in its frame: twist and wrench of the base in world axes about the world's origin.
python examples/05_aerial_manipulator.py [--out aerial_manipulator.png]
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.multibody.models.multirotor_with_arms import PROPELLERS
from lgjax.plot import figure, save

XYZ = ("x", "y", "z")
ARMS = ("left", "right")


def along(robot, ts, order):
    """Configurations, velocity stacks, force stacks, and the accelerations that forward dynamics finds from those."""

    def inverse(t):
        q, v = robot.reference(t, order, "spatial")
        return q, v, lgjax.inverse_dynamics_time_derivatives(robot.model, q, v, order, "spatial")

    def forward(q, v, tau):
        return lgjax.forward_dynamics_time_derivatives(robot.model, q, v, tau, "spatial")

    q, v, tau = jax.jit(jax.vmap(inverse))(ts)
    return q, v, tau, jax.jit(jax.vmap(forward))(q, v[:, 0], tau)


def main(out: str | None = None, samples: int = 401, order: int = 5) -> dict:
    """Largest relative errors of the reproduced accelerations by order, and propeller speeds; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    robot = lgjax.systems.aerial_manipulator()
    ts = jnp.linspace(0.0, robot.motion.horizon, samples)
    q, v, tau, found = along(robot, ts, order)
    errors = np.max(np.abs(found - v[:, 1:]), (0, 2)) / np.max(np.abs(v[:, 1:]), (0, 2))
    for k, error in enumerate(errors):
        print(f"derivative {k} of the acceleration: largest relative error {error:.1e}")
    base = jax.tree.map(lambda x: x[:, 0], q.free_poses)
    speeds = robot.speeds(lgjax.se3.coAd(base, tau[:, 0, :6]))  # of the wrench in the base's own frame
    print(f"propeller speeds from {np.min(speeds):.0f} to {np.max(speeds):.0f} rad/s")
    if out:
        draw(out, robot, ts, (q, v, tau, found), errors, speeds)
        lgjax.view.picture(robot.model, (ts, q), pathlib.Path(out).with_suffix(".gif"), size=(360, 240), fps=14)
    return {"errors": errors, "speeds": np.asarray(speeds)}


def draw(out, robot, ts, motion, errors, speeds):
    q, v, tau, found = motion
    orders = len(errors)
    made = figure(max(3.2 * (orders + 2), 14), 18)
    top, below = made.subfigures(2, 1, height_ratios=(1, 3))
    grid = top.add_gridspec(1, 3, width_ratios=(1.2, 1, 1))
    draw_robot(top.add_subplot(grid[0], projection="3d"), robot, q)
    axes = top.add_subplot(grid[1])
    axes.plot(ts, speeds, label=[f"propeller {i + 1}" for i in range(6)])
    axes.set(title="propeller speeds (rad/s)", xlabel="t (s)")
    axes.legend(fontsize=8, ncols=3)
    axes = top.add_subplot(grid[2])
    axes.semilogy(range(orders), np.maximum(errors, 1e-17), "o-", color="black")
    axes.set(title="largest relative error of the reproduced motion", xlabel="derivative of the acceleration")
    axes.set(xticks=range(orders), ylim=(1e-16, 1e-4))
    axes.grid(alpha=0.3)
    turn = lgjax.so3.log(q.free_poses.rotation[:, 0])
    before = [np.concatenate([turn, q.free_poses.translation[:, 0], q.joints], -1)[:, None], v[:, :1]]
    path, again = np.concatenate([*before, v[:, 1:]], 1), np.concatenate([*before, found], 1)
    rows = [
        ("base, angular\nrad, rad/s, ...", slice(0, 3), path, again),
        ("base, linear\nm, m/s, ...", slice(3, 6), path, again),
        ("joints\nrad, rad/s, ...", slice(6, 12), path, again),
        ("base moment\nN m, N m/s, ...", slice(0, 3), tau, None),
        ("base force\nN, N/s, ...", slice(3, 6), tau, None),
        ("joint torque\nN m, N m/s, ...", slice(6, 12), tau, None),
    ]
    panels = below.subplots(len(rows), orders + 2, sharex=True, squeeze=False)
    for row, (name, part, solid, dashed) in zip(panels, rows, strict=True):
        shown = row[-solid.shape[1] :]  # forces begin with the acceleration
        for axes in row[: -solid.shape[1]]:
            axes.set_axis_off()
        shown[0].set_ylabel(name)
        for k, axes in enumerate(shown):
            labels = XYZ if part.stop - part.start == 3 else robot.model.joint_names
            axes.plot(ts, solid[:, k, part], linewidth=1.8, alpha=0.8, label=labels)
            if dashed is not None and k > 1:
                axes.plot(ts, dashed[:, k, part], "k", linewidth=0.9, dashes=(4, 6))
            axes.tick_params(labelsize=8)
            axes.grid(alpha=0.2)
    titles = ["pose", "velocity", "acceleration", *(f"its derivative {k}" for k in range(1, orders))]
    for k, (title, column) in enumerate(zip(titles, panels.T, strict=True)):
        column[0].set_title(title)
        lowest = column[-1 if k > 1 else 2]
        lowest.set_xlabel("t (s)")
        lowest.tick_params(labelbottom=True)
    below.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=3, title="base")
    below.legend(*panels[2, 0].get_legend_handles_labels(), loc="outside lower right", ncols=6, title="joints")
    below.suptitle(
        "reference and forces (colored), motion reproduced from the forces (dashed)\nattitude as a rotation vector, "
        "twist and wrench of the base in world axes about the world's origin"
    )
    save(made, out)


def draw_robot(axes, robot, q, shown=3):
    """The path of the base and of the two tips, and the robot at some of the times."""
    model = robot.model
    places = jax.jit(jax.vmap(lambda q: lgjax.forward_kinematics(model, q)))(q)
    tips = jax.jit(jax.vmap(lambda q: [lgjax.frame_pose(model, q, f"{arm}_tip").translation for arm in ARMS]))(q)
    axes.plot(*np.asarray(places.translation[:, 0]).T, color="black", linewidth=0.8, label="base")
    for arm, tip in zip(ARMS, tips, strict=True):
        axes.plot(*np.asarray(tip).T, linewidth=0.8, label=f"{arm} tip")
    angles = np.asarray(PROPELLERS.angles)
    rotors = PROPELLERS.radius * np.stack([np.cos(angles), np.sin(angles), 0 * angles], -1)
    for i in np.linspace(0, len(places.rotation) - 1, shown + 1).astype(int)[:-1]:
        R, p = np.asarray(places.rotation[i, 0]), np.asarray(places.translation[i])
        for rotor in p[0] + rotors @ R.T:
            axes.plot(*np.stack([p[0], rotor]).T, color="gray", linewidth=1.2)
            axes.scatter(*rotor, s=8, color="gray")
        for first, tip in ((1, tips[0][i]), (4, tips[1][i])):
            arm = np.stack([p[0], *p[first : first + 3], tip])
            axes.plot(*arm.T, "o-", markersize=2, linewidth=1.6, color="tab:blue")
    axes.set(title="the robot on its way", xlabel="x (m)", ylabel="y (m)", zlabel="z (m)")
    axes.locator_params("z", nbins=3)
    axes.set_box_aspect([np.ptp(limits) for limits in (axes.get_xlim(), axes.get_ylim(), axes.get_zlim())], zoom=1.3)
    axes.legend(fontsize=8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="aerial_manipulator.png")
    main(parser.parse_args().out)
