"""Steps of bodies that touch one another, on one core, beside MuJoCo C: a gripper with a cube, and a stack of boxes.

    python benchmarks/bodies.py [--problems gripper,stack] [--programs lgjax,MuJoCo] [--batch 1024] [--steps 50]

The gripper holds a cube of 0.5 kg with two fingers and lifts it from the floor; the stack has `--boxes` boxes at rest.
Both begin with small random velocities. lgjax advances all systems at once in float32, MuJoCo one after the other in
float64, with elliptic cones and Newton's method. Time is processor time. `residual` is the largest violation of the
law, m/s, that lgjax reports, relative to the fastest velocity plus 1 m/s; `deepest` the largest penetration at the end,
mm, `status` the flags of all runs. A law of contact of another kind is another result: MuJoCo's contacts are soft.
"""

import argparse
from typing import Any

import harness
from contact import clock

HALF, MASS, DT, FRICTION, GRIP, LIFT = 0.05, 0.5, 2e-3, 0.8, 20.0, 9.0
FINGER = (0.01, 0.03, 0.03)
COLUMNS = ["problem", "program", "batch", "candidates", "acting", "us", "compile s", "share", "sweeps", "residual",
           "deepest", "status"]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="gripper,stack")
    parser.add_argument("--programs", default="lgjax,MuJoCo")
    parser.add_argument("--boxes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--nearest", type=int, help="contacts that act; by default 12 of the gripper, 4 for each box")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of lgjax's impulses, relative; 0: the default")
    parser.add_argument("--out", help="JSON file for the rows")
    return parser.parse_args()


def mjcf(problem: str, boxes: int) -> str:
    """The system as MuJoCo reads it; lgjax reads the same file."""
    half, finger = f"{HALF} {HALF} {HALF}", " ".join(map(str, FINGER))
    cube = f'<freejoint/><geom type="box" size="{half}" mass="{MASS}"/>'
    if problem == "stack":
        bodies = "".join(f'<body name="b{k}" pos="0 0 {HALF * (2 * k + 1)}">{cube}</body>' for k in range(boxes))
    else:
        side = lambda name, at: (
            f'<body name="{name}" pos="{at} 0 0"><joint type="slide" axis="1 0 0" damping="1"/>'
            f'<geom type="box" size="{finger}" mass="0.1"/></body>'
        )
        fingers = side("left", -HALF - FINGER[0]) + side("right", HALF + FINGER[0])
        palm = '<joint type="slide" axis="0 0 1" damping="1"/><inertial pos="0 0 0" mass="0.5" diaginertia="1 1 1"/>'
        bodies = f'<body name="palm" pos="0 0 {HALF}">{palm}{fingers}</body>'
        bodies += f'<body name="cube" pos="0 0 {HALF}">{cube}</body>'
    return f"""<mujoco><option timestep="{DT}" cone="elliptic"/><default><geom friction="{FRICTION} 0 0" condim="3"/>
      </default><worldbody><geom type="plane" size="9 9 1"/>{bodies}</worldbody></mujoco>"""


def push(problem: str, nv: int) -> Any:
    """Forces (nv,): of the palm, which lifts it and the fingers, and of the fingers."""
    import numpy as np

    force = np.zeros(nv)
    if problem == "gripper":
        force[:3] = LIFT + 0.5 * 9.81, GRIP, -GRIP
    return force


def velocities(batch: int, nv: int) -> Any:
    import numpy as np

    return 1e-2 * np.random.default_rng(0).standard_normal((batch, nv))


def ours(problem: str, options: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import lgjax

    jax.config.update("jax_enable_x64", False)
    robot = lgjax.load_robot(mjcf(problem, options.boxes)).astype(jnp.float32)
    pairs = [pair for pair in robot.pairs if problem == "gripper" or abs(int(pair[0][1:]) - int(pair[1][1:])) == 1]
    pairs = [pair for pair in pairs if set(pair) != {"left", "right"}]
    nearest = options.nearest or (12 if problem == "gripper" else 4 * options.boxes)
    floor = lgjax.shapes.Plane(np.array([0, 0, 1], np.float32))
    contacts = lgjax.Contacts(robot, floor, None, pairs, FRICTION, nearest=nearest)
    model, method = robot.model, lgjax.contact.TimeStepping(options.tolerance or None)
    tau = jnp.asarray(push(problem, model.nv), jnp.float32)

    def step(q, v, guess):
        found = lgjax.contact.contact_step(model, contacts, q, v, tau, jnp.float32(DT), guess, method=method)
        relative = found.residual / (1 + jnp.max(jnp.abs(found.v)))
        return (found.q, found.v, found.impulse), (found.sweeps, relative, found.status, jnp.min(found.gap))

    def run(q, v, guess):
        each = lambda state, _: jax.vmap(step)(*state)
        state, seen = jax.lax.scan(each, (q, v, guess), None, length=options.steps)
        return state, seen

    start = robot.keyframes["initial"].q
    q = jax.tree.map(lambda x: jnp.broadcast_to(x, (options.batch, *x.shape)), start)
    v = jnp.asarray(velocities(options.batch, model.nv), jnp.float32)
    guess = jnp.zeros((options.batch, len(contacts), 3), jnp.float32)
    built: list[Any] = []
    compiling, _ = clock(lambda: built.append(jax.jit(run).lower(q, v, guess).compile()))
    jax.block_until_ready(built[0](q, v, guess))
    seconds, share = min(clock(lambda: jax.block_until_ready(built[0](q, v, guess))) for _ in range(3))
    _, (sweeps, residual, status, gap) = built[0](q, v, guess)
    flags = int(np.bitwise_or.reduce(np.ravel(status)))
    return row(problem, "lgjax", options, seconds, share, **{
        "compile s": compiling, "candidates": len(contacts), "acting": min(nearest, len(contacts)),
        "sweeps": float(jnp.mean(jnp.max(sweeps, 1))), "residual": float(jnp.max(residual)),
        "deepest": -1e3 * float(jnp.min(gap[-1])), "status": str(lgjax.contact.ContactStatus(flags)),
    })  # fmt: skip


def mujoco_c(problem: str, options: Any) -> dict[str, Any]:
    import mujoco

    model = mujoco.MjModel.from_xml_string(mjcf(problem, options.boxes))
    data, force = mujoco.MjData(model), push(problem, model.nv)
    batch = min(options.batch, 64)  # one after the other; each takes as long
    starts, deepest, count = velocities(batch, model.nv), [0.0], [0]

    def run() -> None:
        for v in starts:
            mujoco.mj_resetData(model, data)
            data.qvel[:], data.qfrc_applied[:] = v, force
            for _ in range(options.steps):
                mujoco.mj_step(model, data)
            deepest[0] = max(deepest[0], -min(data.contact.dist, default=0.0))
            count[0] = max(count[0], data.ncon)

    seconds, share = min(clock(run) for _ in range(3))
    options = argparse.Namespace(**{**vars(options), "batch": batch})
    return row(problem, "MuJoCo", options, seconds, share, deepest=1e3 * deepest[0], acting=count[0])


def row(problem: str, program: str, options: Any, seconds: float, share: float, **more: Any) -> dict[str, Any]:
    each = seconds / options.steps / options.batch
    return {"problem": problem, "program": program, "batch": options.batch, "us": each * 1e6, "share": share, **more}


def main() -> None:
    options = arguments()
    harness.pin_to_cores(1)
    programs = {"lgjax": ours, "MuJoCo": mujoco_c}
    chosen = [(problem, name) for problem in options.problems.split(",") for name in options.programs.split(",")]
    rows = (programs[name](problem, options) for problem, name in chosen)
    harness.collect("bodies that touch one another", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()
