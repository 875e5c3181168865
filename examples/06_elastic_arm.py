"""An arm with elastic joints follows a fast motion: feedforward from the snap of the reference against a rigid one.

Motors of inertia B turn the links through springs K: M(q) q'' + h(q, q') = K (θ - q) = τ, B θ'' + τ = u. A motion q(t)
fixes θ = q + τ/K, so u = B (q'' + τ''/K) + τ: it takes inverse dynamics τ and its second derivative in time.
python examples/06_elastic_arm.py [--out elastic_arm.png]
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

STIFFNESS = np.array([4000.0, 4000.0, 2500.0, 2500.0, 1000.0, 800.0, 400.0])  # N m/rad
MOTOR_INERTIA = np.array([0.6, 0.6, 0.4, 0.4, 0.12, 0.08, 0.03])  # seen from the links, kg m^2
START = np.array([0.0, 0.6, 0.0, 1.2, 0.0, 0.6, 0.0])  # rad
TRAVEL = np.array([0.5, -0.5, 0.55, 0.6, -0.75, 0.7, 1.0])  # rad; within the arm's rates if it takes 0.8 s
# What the feedforward takes into account. The rigid one knows the deflection under gravity alone, so all start at rest.
LEVELS = ("rigid", "with the springs' deflection (jerk)", "with its acceleration too (snap)")
FACTORS = (1.0, 0.9, 1.1)  # true stiffness by the one that the feedforward assumes


def reference(t, duration, order=4):
    """Joint angles and `order` derivatives (order + 1, 7), rest to rest; the first four vanish at both ends."""
    s = np.polynomial.Polynomial([0, 0, 0, 0, 0, 126, -420, 540, -315, 70])
    x = jnp.clip(t / duration, 0.0, 1.0)
    rows = [jnp.polyval(jnp.asarray(s.deriv(k).coef[::-1]), x) / duration**k for k in range(order + 1)]
    return jnp.stack([START + TRAVEL * rows[0], *(TRAVEL * row for row in rows[1:])])


def feedforward(model, t, duration):
    """Motor torques, angles and rates (3, 7) by level, and the parts of the torque (3, 7): τ, B q'', B τ''/K."""
    q, v, a, *_ = stack = reference(t, duration)
    at = lgjax.configuration(model, joints=q)
    tau, rate, second = lgjax.inverse_dynamics_time_derivatives(model, at, stack[1:], 2)
    parts = jnp.stack([tau, MOTOR_INERTIA * a, MOTOR_INERTIA * second / STIFFNESS])
    rigid, held = parts[0] + parts[1], q + lgjax.gravity_forces(model, at) / STIFFNESS
    angle, speed = q + tau / STIFFNESS, v + rate / STIFFNESS
    wanted = jnp.stack([rigid, rigid, jnp.sum(parts, 0)]), jnp.stack([held, angle, angle]), jnp.stack([v, speed, speed])
    return wanted, parts


def simulate(model, level, stiffness, duration, end, steps, save_every):
    """Times, and link angles (times, 7) under one level of feedforward and a weak feedback of the motors' angles."""
    kp, kd = 0.1 * STIFFNESS, 0.2 * np.sqrt(STIFFNESS * MOTOR_INERTIA)

    def field(t, state):
        q, theta, v, omega = jnp.split(state, 4)
        u, angle, speed = (x[level] for x in feedforward(model, t, duration)[0])
        u = u + kp * (angle - theta) + kd * (speed - omega)
        tau = stiffness * (theta - q)
        a = lgjax.forward_dynamics(model, lgjax.configuration(model, joints=q), v, tau)
        return jnp.concatenate([v, omega, a, (u - tau) / MOTOR_INERTIA])

    gravity = lgjax.gravity_forces(model, lgjax.configuration(model, joints=START))
    y0 = jnp.concatenate([START, START + gravity / stiffness, jnp.zeros(14)])
    method = lgjax.MuntheKaas(lgjax.RK4, scan_stages=True)
    run = lgjax.integrate(lgjax.groups.vector_space(28), field, y0, 0.0, end, steps, method, save_every)
    return run.ts, run.ys[:, :7]


def main(out: str | None = None, duration: float = 0.8, end: float = 1.2, saved: int = 400, substeps: int = 8) -> dict:
    """Errors (factor, level, time): the largest of the link angles (rad), and of the tool (m); draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    model = lgjax.models.arm()

    def run(factor, level):
        return simulate(model, level, factor * STIFFNESS, duration, end, saved * substeps, substeps)

    levels = jnp.arange(len(LEVELS))
    ts, q = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(jnp.array(FACTORS), levels)
    ts = ts[0, 0]
    wanted = jax.vmap(lambda t: reference(t, duration)[0])(ts)
    position = lambda q: lgjax.frame_pose(model, lgjax.configuration(model, joints=q), "tool").translation
    tool = jax.jit(jnp.vectorize(position, signature="(n)->(m)"))
    errors = {
        "joints": np.max(np.abs(q - wanted), -1),
        "tool": np.linalg.norm(tool(q) - tool(wanted), axis=-1),
    }
    for i, factor in enumerate(FACTORS):
        for level, name in enumerate(LEVELS):
            joints, distance = (1e3 * np.max(errors[of][i, level]) for of in ("joints", "tool"))
            print(f"stiffness {factor:4.0%}, {name:36} joints {joints:7.2g} mrad, tool {distance:7.2g} mm")
    if out:
        _, parts = jax.jit(jax.vmap(lambda t: feedforward(model, t, duration)))(ts)
        draw(out, ts, wanted, parts, errors["tool"], duration)
        moved = jax.vmap(lambda q: lgjax.configuration(model, joints=q))(q[0, 0])
        lgjax.view.picture(
            model, (ts, moved), pathlib.Path(out).with_suffix(".gif"), speed=0.25, size=(360, 240), fps=14
        )
    return errors


def draw(out, ts, wanted, parts, errors, duration):
    made = figure(16, 8.5)
    (angles, torques, exact), wrong = made.subplots(2, 3)
    angles.plot(ts, wanted, label=[f"joint {i}" for i in range(1, 8)])
    angles.set(title="reference (rad)")
    angles.legend(fontsize=8, ncols=2, loc="upper left")
    torques.plot(ts, parts[:, :, 0], label=["links τ", "motor B q''", "spring B τ''/K"])
    torques.set(title="feedforward torque of joint 1 (N m)")
    torques.legend(fontsize=8)
    for level, name in enumerate(LEVELS):
        exact.semilogy(ts[1:], np.maximum(1e3 * errors[0, level, 1:], 1e-14), label=name)
    exact.set(title="tool error (mm), logarithmic", ylim=(1e-14, 1e2))
    exact.legend(fontsize=8)
    top = 1.3e3 * np.max(errors)
    for axes, factor, error in zip(wrong, FACTORS, errors, strict=True):
        axes.plot(ts, 1e3 * error.T, label=LEVELS)
        axes.set(title=f"tool error (mm), true stiffness {factor:.0%} of the one assumed", ylim=(-0.02 * top, top))
        axes.legend(fontsize=8, loc="upper right")
    for axes in made.axes:
        axes.axvline(duration, color="gray", linewidth=0.8, linestyle=":")
        axes.set_xlabel("t (s)")
        axes.grid(alpha=0.2)
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="elastic_arm.png")
    main(parser.parse_args().out)
