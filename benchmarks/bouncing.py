"""Ellipsoids that bounce on a plane for 5 and 20 s, beside MuJoCo: time, and what is left of the energy.

    python benchmarks/bouncing.py [--batch 4096] [--dtypes float64,float32] [--cores 2] [--out FILE]

The body is case I of [tran2024] (semi-axes 2, 3, 4 m, thrown up from 10 m), every start a little different; elastic
impacts without friction, steps of 0.01 s.  lgjax does the batch in one call.  MuJoCo, whose time per body does not
depend on their number, does the first `--peers` bodies with `mujoco.rollout` on as many threads as there are cores, and
the first `--loop` in a Python loop over `mj_step` on one.  Its contacts are springs: frictionless (condim 1), without
damping (solref = -stiffness, 0) and with an impedance close to 1, the most elastic that it has; with some integrators,
stiffnesses and steps.  Energy errors are |E/E(0) - 1| after 5 and 20 s, median over the bodies and largest, without
the bodies that are in a contact's spring at that moment.
"""

import argparse

import harness

H, SECONDS = 0.01, (5, 20)
# Integrator, time step (s), stiffness of the contact.
MUJOCO = (("RK4", 1e-2, 1e4), ("implicitfast", 1e-2, 1e4), ("RK4", 1e-2, 1e3), ("RK4", 1e-3, 1e4), ("RK4", 1e-3, 1e5))
MODEL = """
<mujoco>
  <option timestep="{step}" gravity="0 0 -9.80665" integrator="{integrator}"/>
  <default><geom condim="1" friction="0 0 0" solref="-{stiffness} 0" solimp="0.99 0.99 0.001"/></default>
  <worldbody>
    <geom type="plane" size="1000 1000 1"/>
    <body>
      <freejoint/><inertial pos="0 0 0" mass="1" diaginertia="5 4 2.6"/><geom type="ellipsoid" size="2 3 4"/>
    </body>
  </worldbody>
</mujoco>
"""
COLUMNS = [
    "program", "h (s)", "dtype", "bodies", "us per body and step", "low", "high", "steps per s", "wall s of 20 s",
    "median at 5 s", "largest at 5 s", "median at 20 s", "largest at 20 s", "impacts", "compile s",
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--peers", type=int, default=256, help="bodies of the rollouts (default: %(default)s)")
    parser.add_argument("--loop", type=int, default=16, help="bodies of the Python loop (default: %(default)s)")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seconds", type=int, nargs=2, default=SECONDS, help="times at which energies are compared")
    parser.add_argument("--out", help="JSON file for the rows with all their times")
    return parser.parse_args()


def starts(batch: int):
    """Positions, angular momenta in the body and linear momenta (batch, 3) around those of the source."""
    import numpy as np

    noise = np.random.default_rng(0).standard_normal((3, batch, 3)) * np.array([0.5, 1.0, 1.0])[:, None, None]
    return noise + np.array([(0, 0, 10), (4, -4, 4), (2, 2, 10)])[:, None]


def row(program, step, dtype, bodies, seconds, times, errors, **more) -> dict:
    """Times are of a run over all seconds; errors (2, bodies) at the two times."""
    import numpy as np

    scale = 1e6 / (bodies * round(seconds[1] / step))
    us = {k: times[k] * scale for k in ("median", "low", "high")}
    judged = {}
    for t, error in zip(("5 s", "20 s"), errors, strict=True):
        judged |= {f"median at {t}": float(np.nanmedian(error)), f"largest at {t}": float(np.nanmax(error))}
    return {
        "program": program, "h (s)": step, "dtype": dtype, "bodies": bodies, "us per body and step": us["median"],
        "low": us["low"], "high": us["high"], "steps per s": 1e6 / us["median"], "wall s of 20 s": times["median"],
        "seconds": seconds, "disturbed": times["disturbed"], **judged, **more,
    }  # fmt: skip


def ours(options: argparse.Namespace, dtype: str) -> dict:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import lgjax
    from lgjax.systems.bouncing_body import bouncing_body

    p = bouncing_body("ellipsoid", dtype=dtype)
    position, angular, linear = (jnp.asarray(a, dtype) for a in starts(options.batch))
    turn = jnp.broadcast_to(jnp.eye(3, dtype=dtype), (options.batch, 3, 3))
    states = lgjax.collisions.RigidState(lgjax.Pose(turn, position), angular, linear)
    early, end = options.seconds
    often, steps = round(np.gcd(early, end) / H), round(end / H)
    run = jax.jit(
        jax.vmap(
            lambda s: lgjax.collisions.bounce(p.body, p.shape, p.planes, s, p.dt, steps, save_every=often, record=1)
        )
    )
    times, result = harness.compiled(run, states, repeats=options.repeats)
    with jax.enable_x64(True):
        exact = bouncing_body("ellipsoid", dtype="float64").body
        wide = jax.tree.map(lambda a: a.astype("float64"), result.states)
        energy = jax.vmap(jax.vmap(lambda s: lgjax.collisions.total_energy(exact, s)))(wide)
    error = np.abs(energy / energy[:, :1] - 1)[:, [round(early / H) // often, -1]].T
    more = {"impacts": float(np.mean(result.impacts[:, -1])), "compile s": times["trace"] + times["compile"]}
    return row("lgjax", H, dtype, options.batch, options.seconds, times, error, **more)


def mujoco_states(model, batch: int):
    """Full states (batch, n) at the start."""
    import mujoco
    import numpy as np

    spec, data = mujoco.mjtState.mjSTATE_FULLPHYSICS, mujoco.MjData(model)
    states = np.zeros((batch, mujoco.mj_stateSize(model, spec)))
    for state, position, angular, linear in zip(states, *starts(batch), strict=True):
        data.qpos[:] = [*position, 1, 0, 0, 0]
        data.qvel[:] = [*linear, *(angular / model.body_inertia[1])]
        mujoco.mj_getState(model, data, state, spec)
    return states


def mujoco_energies(model, states):
    """Kinetic energy and that of gravity (batch,) of full states, J; NaN for bodies in the spring of a contact."""
    import numpy as np

    z, (w, x, y, s), v = states[:, 3], states[:, 4:8].T, states[:, 8:14]
    inertia = np.concatenate([[1.0] * 3, model.body_inertia[1]])
    energy = 0.5 * np.sum(inertia * v**2, -1) - model.opt.gravity[2] * z
    up = np.stack([2 * (x * s - w * y), 2 * (y * s + w * x), 1 - 2 * (x * x + y * y)], -1)
    return np.where(z > np.linalg.norm(model.geom_size[1] * up, axis=-1), energy, np.nan)


def mujoco_rows(options: argparse.Namespace, integrator: str, step: float, stiffness: float):
    """Once with `mujoco.rollout`, and once as a Python loop over `mj_step`."""
    import mujoco
    import numpy as np
    from mujoco import rollout

    model = mujoco.MjModel.from_xml_string(MODEL.format(integrator=integrator, step=step, stiffness=f"{stiffness:g}"))
    first = mujoco_states(model, options.peers)
    early, end = (round(t / step) for t in options.seconds)
    leg = min(100, int(np.gcd(early, end)))  # rollout keeps every state: in legs, so that they stay in memory
    buffers = np.empty((options.peers, leg, first.shape[1])), np.empty((options.peers, leg, 0))
    threads = [mujoco.MjData(model) for _ in range(options.cores)]
    with rollout.Rollout(nthread=options.cores) as pool:

        def run():
            states, kept = first, []
            for done in range(leg, end + 1, leg):
                pool.rollout(model, threads, states, nstep=leg, state=buffers[0], sensordata=buffers[1])
                states = buffers[0][:, -1].copy()
                if done in (early, end):
                    kept.append(mujoco_energies(model, states))
            return np.stack(kept)

        error = np.abs(run() / mujoco_energies(model, first) - 1)
        times = harness.steady(run, options.repeats)
    name = f"MuJoCo {integrator}, stiffness {stiffness:g}"
    yield row(f"{name}, rollout", step, "float64", options.peers, options.seconds, times, error)
    data = threads[0]

    def loop():
        for state in first[: options.loop]:
            mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
            for _ in range(end):
                mujoco.mj_step(model, data)

    times = harness.steady(loop, options.repeats)
    yield row(f"{name}, loop", step, "float64", options.loop, options.seconds, times, error[:, : options.loop])


def main() -> None:
    options = arguments()
    harness.pin_to_cores(options.cores)
    import jax

    jax.config.update("jax_enable_x64", True)
    rows = []

    def add(new: dict) -> None:
        rows.append(new)
        print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in new.items()}, flush=True)

    for dtype in options.dtypes.split(","):
        add(ours(options, dtype))
    for setting in MUJOCO:
        for new in mujoco_rows(options, *setting):
            add(new)
    harness.report("bouncing", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()
