"""Steps per second of quadrupeds standing and falling on a plane, on one core, beside MuJoCo C (and MJX if installed).

    python benchmarks/contact.py [--batch 1024] [--steps 200] [--programs lgjax,MuJoCo,MJX] [--fallen] [--out FILE]

The same model in all programs: the built-in quadruped with four spherical feet, time step, friction 0.8, springs and
dampers at the joints; random initial states. lgjax and MJX advance all systems at once in float32, MuJoCo one after the
other in float64, with elliptic cones and Newton's method. Time is the processor time of the process, which has one
core; `share` is the part of the wall time that it had it. A law of contact of another kind is another result:
MuJoCo's contacts are soft.

With --fallen, lgjax alone: quadrupeds with limp legs that lie on the corners of their trunks, after a fall of 0.8 s
from random attitudes that is not timed. A batch waits in each step for its slowest system: try a batch of 1, too.
"""

import argparse
import os
import tempfile
import time
from typing import Any

import harness

STAND = [0.0, 0.8, -1.6] * 4
STIFFNESS, DAMPING, FRICTION, DT, HEIGHT = 60.0, 2.0, 0.8, 2e-3, 0.33
LIMP, FALL = 0.1, 400  # damping and steps of robots that fall
LEGS = ("FL", "FR", "RL", "RR")
COLUMNS = ["program", "dtype", "batch", "us", "steps/s", "compile s", "share", "sweeps", "upright"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--programs", default="lgjax,MuJoCo,MJX")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of lgjax's impulses, relative; 0: the default")
    parser.add_argument("--fallen", action="store_true", help="robots that lie on their trunks")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="of lgjax")
    parser.add_argument("--out", help="JSON file for the rows")
    return parser.parse_args()


def clock(run: Any) -> tuple[float, float]:
    """Processor seconds, and their share of the wall time."""
    work, wall = time.process_time(), time.perf_counter()
    run()
    work, wall = time.process_time() - work, time.perf_counter() - wall
    return work, work / wall


def starts(batch: int) -> tuple[Any, Any, Any]:
    """Heights and attitudes (batch, 3) as rotation vectors, joints (batch, 12), velocities (batch, 18)."""
    import numpy as np

    random = np.random.default_rng(0)
    tilt = 0.2 * random.standard_normal((batch, 3))
    joints = np.asarray(STAND) + 0.1 * random.standard_normal((batch, 12))
    return tilt, joints, 0.5 * random.standard_normal((batch, 18))


def row(program: str, dtype: str, options: Any, seconds: float, share: float, **more: Any) -> dict[str, Any]:
    each = seconds / options.steps / options.batch
    return {"program": program, "dtype": dtype, "batch": options.batch, "us": each * 1e6, "steps/s": 1 / each,
            "share": share, **more}  # fmt: skip


def ours(options: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import lgjax

    jax.config.update("jax_enable_x64", options.dtype == "float64")
    dtype = jnp.dtype(options.dtype)
    model = lgjax.models.quadruped().astype(dtype)
    model = model.replace(damping=jnp.asarray([0.0] * 6 + [LIMP if options.fallen else DAMPING] * 12, dtype))
    ground = lgjax.shapes.Plane(np.array([0, 0, 1], dtype))
    links = [*(f"{leg}_foot" for leg in LEGS), *["trunk"] * options.fallen]
    contacts = lgjax.Contacts(model, ground, links, friction=FRICTION)
    stand = jnp.asarray(STAND, dtype)
    method = lgjax.contact.TimeStepping(options.tolerance or None, 600 if options.fallen else 50)
    stiffness = 0.0 if options.fallen else STIFFNESS

    def tau(q, v):
        return jnp.concatenate([jnp.zeros(6, dtype), stiffness * (stand - q.joints)])

    def step(q, v, guess):
        found = lgjax.contact.contact_step(model, contacts, q, v, tau, jnp.asarray(DT, dtype), guess, method=method)
        return (found.q, found.v, found.impulse), found.sweeps

    def run(q, v, guess):
        each = lambda state, _: jax.vmap(step)(*state)
        (q, v, guess), sweeps = jax.lax.scan(each, (q, v, guess), None, length=options.steps)
        return q, jnp.mean(jnp.max(sweeps, 1).astype(dtype)), v, guess

    tilt, joints, v = (jnp.asarray(x, dtype) for x in starts(options.batch))
    place = jnp.tile(jnp.asarray([0, 0, HEIGHT], dtype), (options.batch, 1))
    turn = lgjax.so3.exp(10 * tilt if options.fallen else tilt)
    q = lgjax.Configuration(
        lgjax.Pose(turn[:, None], place[:, None]), joints, jnp.zeros((options.batch, 0, 3, 3), dtype)
    )
    guess = jnp.zeros((options.batch, len(contacts), 3), dtype)
    built: list[Any] = []
    compiling, _ = clock(lambda: built.append(jax.jit(run).lower(q, v, guess).compile()))
    jax.block_until_ready(built[0](q, v, guess))
    for _ in range(-(-FALL // options.steps) if options.fallen else 0):
        q, _, v, guess = built[0](q, v, guess)
    seconds, share = min(clock(lambda: jax.block_until_ready(built[0](q, v, guess))) for _ in range(3))
    end, sweeps, _, _ = built[0](q, v, guess)
    upright = float(jnp.mean(end.free_poses.rotation[:, 0, 2, 2] > 0.5))
    more = {"compile s": compiling, "sweeps": float(sweeps), "upright": upright}
    return row("lgjax", options.dtype, options, seconds, share, **more)


def mujoco_model() -> Any:
    """The same quadruped, from the same URDF, with a plane."""
    import mujoco

    import lgjax

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "quadruped.urdf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(lgjax.models.urdf("quadruped"))
        spec = mujoco.MjSpec.from_file(path)
    spec.compiler.fusestatic = False
    trunk = spec.worldbody.first_body()
    if not trunk.joints:
        trunk.add_freejoint()
    for geom in spec.geoms:
        if not geom.parent.name.endswith("_foot"):
            geom.contype = geom.conaffinity = 0
        else:
            geom.contype, geom.conaffinity = 1, 2
    plane = spec.worldbody.add_geom()
    plane.type, plane.size = mujoco.mjtGeom.mjGEOM_PLANE, [0, 0, 1]
    plane.contype, plane.conaffinity = 2, 1
    for geom in spec.geoms:
        geom.friction = [FRICTION, 0, 0]
        geom.condim = 3
    for joint in spec.joints:
        if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
            joint.damping = [DAMPING, 0, 0] if hasattr(joint.damping, "__len__") else DAMPING
            joint.limited = 0
    spec.option.timestep = DT
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    return spec.compile()


def mujoco_start(model: Any, tilt: Any, joints: Any, v: Any) -> tuple[Any, Any]:
    """qpos and qvel (batch, ...)."""
    import mujoco
    import numpy as np

    qpos, qvel = np.zeros((len(v), model.nq)), np.zeros((len(v), model.nv))
    qpos[:, 2], qpos[:, 7:] = HEIGHT, joints
    for k, turn in enumerate(tilt):
        angle = np.linalg.norm(turn)
        mujoco.mju_axisAngle2Quat(qpos[k, 3:7], turn / angle, angle)
    qvel[:, :3], qvel[:, 3:6], qvel[:, 6:] = v[:, 3:6], v[:, :3], v[:, 6:]
    return qpos, qvel


def mujoco_c(options: Any) -> dict[str, Any]:
    import mujoco
    import numpy as np

    model = mujoco_model()
    data, stand = mujoco.MjData(model), np.asarray(STAND)
    batch = min(options.batch, 64)  # one after the other; each takes as long
    states = [x[:batch] for x in mujoco_start(model, *starts(options.batch))]
    upright: list[float] = []

    def run() -> None:
        upright.clear()
        for qpos, qvel in zip(*states, strict=True):
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:] = qpos, qvel
            for _ in range(options.steps):
                data.qfrc_applied[6:] = STIFFNESS * (stand - data.qpos[7:])
                mujoco.mj_step(model, data)
            upright.append(float(data.xmat[1][8] > 0.5))

    def applied() -> None:
        for _ in range(batch * options.steps):
            data.qfrc_applied[6:] = STIFFNESS * (stand - data.qpos[7:])

    seconds, share = min(clock(run) for _ in range(3))
    python = min(clock(applied)[0] for _ in range(3))  # of the controller, which is not MuJoCo's
    options = argparse.Namespace(**{**vars(options), "batch": batch})
    return row("MuJoCo", "float64", options, seconds - python, share, upright=float(np.mean(upright)))


def mjx(options: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import mujoco
    from mujoco import mjx

    model = mujoco_model()
    model.opt.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL  # elliptic ones need a newer MJX
    on_device = mjx.put_model(model)
    stand = jnp.asarray(STAND, jnp.float32)
    qpos, qvel = (jnp.asarray(x, jnp.float32) for x in mujoco_start(model, *starts(options.batch)))
    data = jax.vmap(lambda qpos, qvel: mjx.make_data(model).replace(qpos=qpos, qvel=qvel))(qpos, qvel)

    def step(data: Any, _: Any) -> Any:
        force = jnp.zeros(model.nv, jnp.float32).at[6:].set(STIFFNESS * (stand - data.qpos[7:]))
        return mjx.step(on_device, data.replace(qfrc_applied=force)), None

    run = jax.vmap(lambda data: jax.lax.scan(step, data, None, length=options.steps)[0])
    built: list[Any] = []
    compiling, _ = clock(lambda: built.append(jax.jit(run).lower(data).compile()))
    jax.block_until_ready(built[0](data))
    seconds, share = clock(lambda: jax.block_until_ready(built[0](data)))
    upright = float(jnp.mean(built[0](data).xmat[:, 1, 2, 2] > 0.5))
    return row("MJX", "float32", options, seconds, share, **{"compile s": compiling, "upright": upright})


def main() -> None:
    options = arguments()
    harness.pin_to_cores(1)
    programs = {"lgjax": ours, "MuJoCo": mujoco_c, "MJX": mjx}

    def rows() -> Any:
        for name in ["lgjax"] if options.fallen else options.programs.split(","):
            try:
                yield programs[name](options)
            except ImportError as error:
                print(f"{name} is left out: {error}")

    harness.collect("quadrupeds on a plane", rows(), COLUMNS, options.out)


if __name__ == "__main__":
    main()
