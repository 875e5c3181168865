"""A hopper whose gait is optimized through its impacts.

A trunk of 2 kg hops on a springy leg with a foot of 0.2 kg. Every landing takes energy, because the foot stops at once.
A motor beside the spring has to return it: after one period the hopper is to be where it began, at the same speed, with
the least effort. Touch-down and lift-off happen at their own times, and the search sees how these times change with the
motor's forces. Goal: within 1 mm and 1 cm/s of a periodic gait, which is then repeated without the search.
python examples/22_hopper.py [hopper.png]
"""

import pathlib
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import plot

TRUNK, FOOT, STIFFNESS, DAMPING, LEG = 2.0, 0.2, 800.0, 4.0, 0.5  # kg, kg, N/m, N s/m, m
DT, LIMIT = 0.02, 60.0  # s, N
APEX = LEG + 0.1  # m
WEIGHTS = np.array([1e4, 1e4, 1e2, 1e2])  # of the squares of what is missing to a period: heights and rates


def hopper() -> tuple[lgjax.Model, lgjax.Contacts]:
    """The hopper, with height of the trunk and extension of the leg as coordinates, and the contact of its foot."""
    up = lgjax.Joint("height", "prismatic", (0.0, 0.0, 1.0))
    leg = lgjax.Joint("leg", "prismatic", (0.0, 0.0, -1.0), damping=DAMPING)
    model = lgjax.build(
        [
            lgjax.Body("trunk", None, up, mass=TRUNK, inertia=1e-2 * np.eye(3)),
            lgjax.Body("foot", "trunk", leg, mass=FOOT, inertia=1e-4 * np.eye(3)),
        ],
        "hopper",
    )
    floor, ball = lgjax.shapes.Plane((0.0, 0.0, 1.0)), lgjax.shapes.sphere(0.02, (0.0, 0.0, 0.02 - LEG))
    return model, lgjax.Contacts(model, floor, {"foot": ball})


def forces(q, motor):
    """Joint forces (2,) of the spring and the motor, which push trunk and foot apart."""
    return jnp.stack([jnp.zeros_like(motor), motor - STIFFNESS * q.joints[1]])


def main(path: str = "22_hopper.png", steps: int = 24, iterations: int = 60, hops: int = 3) -> dict:
    """Errors after a period, m and m/s, and the effort; draws `hops` periods to `path`."""
    jax.config.update("jax_enable_x64", True)
    model, contacts = hopper()
    method = lgjax.contact.EventDriven(rtol=1e-7, atol=1e-9, max_parts=24)
    start = lgjax.configuration(model, joints=jnp.asarray([APEX, 0.0])), jnp.zeros(2)

    def held(state, motor, parts):
        """The motion during one step of the search, whose motor force () is held, in equal parts."""
        law = lambda t, q, v: forces(q, motor)
        return lgjax.rollout(model, *state, law, DT / parts, parts, method, contacts=contacts)

    def move(state, motor):
        path = held(state, motor[0], 1)
        return jax.tree.map(lambda x: x[-1], (path.q, path.v))

    plain = lgjax.control.ControlSystem.of_model(model, DT, method=method, contacts=contacts)
    system = replace(plain, step=move, controls=1)
    found = lgjax.optimize_controls(
        system, start, jnp.zeros((1, steps, 1)), steps=steps, bounds=(-LIMIT, LIMIT),
        running=lambda t, state, motor: 1e-4 * jnp.sum(motor**2),
        terminal=lambda state: jnp.sum(WEIGHTS * system.difference(start, state) ** 2),
        method=lgjax.control.ILQR(iterations=iterations, tolerance=1e-4),
    )  # fmt: skip
    motor = jnp.asarray(found.controls[0, :, 0])
    miss = system.difference(start, jax.tree.map(lambda x: x[0, -1], found.states))
    period = steps * DT
    print(f"after {period:.2f} s off by {jnp.max(jnp.abs(miss[:2])):.1e} m, {jnp.max(jnp.abs(miss[2:])):.1e} m/s;")
    print(f"root mean square of the motor force {jnp.sqrt(jnp.mean(motor**2)):.1f} N, status {found.status[0]}")

    def repeated(motor):
        """The motion with the motor forces of `hops` periods. One rollout would have to find where they jump."""

        def step(state, force):
            path = held(state, force, 4)
            return jax.tree.map(lambda x: x[-1], (path.q, path.v)), path

        paths = jax.lax.scan(step, start, jnp.tile(motor, hops))[1]
        ts = DT / 4 * jnp.arange(1.0, 4 * steps * hops + 1)
        joined = jax.tree.map(lambda x: x[:, 1:].reshape(len(ts), *x.shape[2:]), (paths.q, paths.contacts.force))
        return ts, *joined, jnp.max(paths.status)

    *motions, status = jax.jit(jax.vmap(repeated))(jnp.stack([motor, jnp.zeros_like(motor)]))
    print(f"status of {hops} periods {status[0]}, of the motion without a motor {status[1]}")
    draw(path, motions, motor, period, hops)
    hop = motions[0][0], jax.tree.map(lambda x: x[0], motions[1])  # with the motor
    lgjax.view.picture(
        model,
        hop,
        pathlib.Path(path).with_suffix(".gif"),
        contacts=contacts,
        camera=(0, -1, 0.2),
        size=(360, 240),
        fps=14,
    )
    return {"miss": np.asarray(miss), "motor": np.asarray(motor), "status": np.asarray(status)}


def draw(path, motions, motor, period, hops):
    made = plot.figure(10, 7)
    heights, forces_at_foot, effort = made.subplots(3, 1, sharex=True)
    ts, q, force = motions
    for k, (name, style) in enumerate((("gait", "-"), ("no motor", ":"))):
        trunk, extension = q.joints[k].T
        heights.plot(ts[k], trunk, "C0" + style, label=f"trunk, {name}")
        heights.plot(ts[k], trunk - extension - LEG, "C1" + style, label=f"foot, {name}")
        forces_at_foot.plot(ts[k], force[k, :, 0, 0], "C2" + style, label=name)
    heights.set(ylabel="height (m)")
    heights.legend(ncol=2, fontsize="small")
    forces_at_foot.set(ylabel="mean force of the ground\nover a step (N)")
    forces_at_foot.legend(fontsize="small")
    effort.step(DT * np.arange(hops * len(motor)), np.tile(motor, hops), "C3", where="post")
    effort.set(ylabel="motor force (N)", xlabel="t (s)", xlim=(0, hops * period))
    plot.save(made, path)


if __name__ == "__main__":
    main(*sys.argv[1:2])
