"""Forward and inverse dynamics and their gradient in batch, beside Pinocchio's C++ batch calls on the same robots.

    python benchmarks/forward_dynamics.py [--robots panda,go1,talos_reduced] [--dtypes float32,float64] [--out FILE]

The robots are those of the package example-robot-data. Both libraries read the same file, get the same states and run
in the same process, on one core unless --cores says otherwise; XLA runs with its default flags. MJX runs as well where
mujoco-mjx is installed. `--what chains` times forward dynamics of chains of 25 to 200 bodies, which should be in
proportion to their lengths.
"""

import argparse
import importlib.metadata
import itertools
import warnings
from functools import partial

import harness

ROBOTS = {  # file in example-robot-data, and whether the base floats
    "panda": ("panda_description/urdf/panda.urdf", False),
    "ur5": ("ur_description/urdf/ur5_robot.urdf", False),
    "go1": ("go1_description/urdf/go1.urdf", True),
    "solo12": ("solo_description/robots/solo12.urdf", True),
    "hyq": ("hyq_description/robots/hyq_no_sensors.urdf", True),
    "g1": ("g1_description/urdf/g1_29dof_rev_1_0.urdf", True),
    "talos_reduced": ("talos_data/robots/talos_reduced.urdf", True),
}
COLUMNS = [
    "robot", "bodies", "nv", "what", "dtype", "batch", "us", "low", "high", "pinocchio us", "ratio",
    "trace s", "compile s", "first s", "error",
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", default="panda,go1,talos_reduced")
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument(
        "--what", default="forward,inverse,gradient,step,chains", help="what to measure (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", help="JSON file for the rows with all their times")
    return parser.parse_args()


def robot_file(name: str) -> str:
    package = importlib.metadata.distribution("example-robot-data")
    file = next(f for f in package.files or () if str(f).endswith(f"robots/{ROBOTS[name][0]}"))
    return str(package.locate_file(file))


def load(name: str):
    import lgjax

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = lgjax.load_urdf(
            robot_file(name), floating_base=ROBOTS[name][1], mimic="independent", check_inertia="warn"
        )
    # Pinocchio ignores damping; without it both compute the same.
    return model.replace(damping=0 * model.damping)


def states(model, batch: int):
    """(q, v, force) of the whole batch, in the dtype of the model."""
    import jax

    import lgjax

    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    v, force = jax.random.normal(jax.random.key(1), (2, batch, model.nv), model.dtype)
    return q, v, force


def pinocchio(name: str, model, q, v, force, repeats: int) -> dict:
    """Microseconds per sample of the C++ batch calls, and their results in our order."""
    import numpy as np
    import pinocchio as pin

    from lgjax.multibody.conventions import from_pinocchio, to_pinocchio

    theirs = pin.buildModelFromUrdf(robot_file(name), *[pin.JointModelFreeFlyer()] * ROBOTS[name][1])
    names = list(theirs.names)[1:]
    order = {"order": names, "continuous": [n for n, nq in zip(names, list(theirs.nqs)[1:], strict=True) if nq == 2]}
    flat = to_pinocchio(model, q, v, None, force, **order)
    columns = [np.asfortranarray(np.asarray(x, np.float64).T) for x in (flat.q, flat.v, flat.tau)]
    pool, out = pin.ModelPool(theirs, 1), np.zeros((theirs.nv, v.shape[0]), order="F")
    measured = {}
    for what, call in (("forward", pin.abaInParallel), ("inverse", pin.rneaInParallel)):
        call(1, pool, *columns, out)
        result = from_pinocchio(model, flat.q, out.T.copy(), **order).v
        times = harness.steady(partial(call, 1, pool, *columns, out), repeats)
        measured[what] = (times["median"] / v.shape[0] * 1e6, np.asarray(result))
    data = theirs.createData()
    first = [np.array(x[:, 0]) for x in columns]
    times = harness.steady(lambda: pin.computeABADerivatives(theirs, data, *first), repeats)
    measured["gradient"] = (times["median"] * 1e6, None)
    return measured


def functions():
    import jax
    import jax.numpy as jnp

    import lgjax

    forward = lgjax.forward_dynamics
    total = lambda model, q, v, tau: jnp.sum(forward(model, q, v, tau))
    return {
        "forward": forward,
        "inverse": lgjax.inverse_dynamics,
        "gradient": jax.grad(total, (1, 2, 3)),
    }


def step(model, q, v, tau, dt):
    """One RK4 step."""
    import lgjax

    path = lgjax.rollout(model, q, v, lambda t, q, v: tau, dt, 1, save_every=None)
    return path.q, path.v


def mjx(name: str, model, options: argparse.Namespace):
    """Rows of MJX's smooth dynamics in float32, on the same mechanism; none where it is not installed."""
    from lgjax.cli.bench import peers

    for kind in ("forward", "inverse"):
        try:
            for program, dtype, times in peers.mjx_times(kind, model, options.batch, options.repeats):
                us = {k: times[k] / options.batch * 1e6 for k in ("median", "low", "high")}
                yield {
                    "robot": name, "what": f"{kind}, {program}", "dtype": dtype, "batch": options.batch,
                    "us": us["median"], "low": us["low"], "high": us["high"], "disturbed": times["disturbed"],
                    **{f"{k} s": times[k] for k in ("trace", "compile", "first")},
                }  # fmt: skip
        except ImportError:
            return


def chains(options: argparse.Namespace):
    """Rows for chains of growing length; `ratio` is the time per body over that of the shortest."""
    import jax

    import lgjax

    for dtype in options.dtypes.split(","):
        shortest = None
        for n in (25, 50, 100, 200):
            model = lgjax.models.chain(n).astype(dtype)
            state = jax.tree.map(lambda x, d=dtype: x.astype(d), states(model, options.batch))
            program = jax.jit(jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0)))
            times, _ = harness.compiled(program, model, *state, repeats=options.repeats)
            us = times["median"] / options.batch * 1e6
            shortest = shortest or us / n
            yield {
                "robot": "chain", "bodies": n, "nv": n, "what": "forward", "dtype": dtype, "batch": options.batch,
                "us": us, "ratio": us / n / shortest, **{f"{k} s": times[k] for k in ("trace", "compile", "first")},
            }  # fmt: skip


def rows_of(name: str, options: argparse.Namespace, what: list[str]):
    import jax
    import numpy as np

    exact = load(name)
    yield from mjx(name, exact, options)
    peer = pinocchio(name, exact, *states(exact, options.batch), options.repeats)
    shape = {"robot": name, "bodies": exact.nbodies, "nv": exact.nv}
    for dtype in options.dtypes.split(","):
        cast = lambda tree, dtype=dtype: jax.tree.map(lambda x: x.astype(dtype), tree)
        model, state = cast(exact), cast(states(exact, options.batch))
        for kind, function in functions().items():
            if kind not in what:
                continue
            program = jax.jit(jax.vmap(function, (None, 0, 0, 0)))
            times, result = harness.compiled(program, model, *state, repeats=options.repeats)
            theirs, expected = peer[kind]
            us = {k: times[k] / options.batch * 1e6 for k in ("median", "low", "high")}
            error = None if expected is None else float(np.abs(result - expected).max() / np.abs(expected).max())
            yield {
                **shape, "what": kind, "dtype": dtype, "batch": options.batch, "us": us["median"], "low": us["low"],
                "high": us["high"], "pinocchio us": theirs, "ratio": us["median"] / theirs, "error": error,
                "disturbed": times["disturbed"], **{f"{k} s": times[k] for k in ("trace", "compile", "first")},
            }  # fmt: skip
        if "step" in what:
            one = jax.tree.map(lambda x: x[0], state)
            dt = np.asarray(1e-3, dtype)
            times, _ = harness.compiled(jax.jit(step), model, *one, dt, repeats=options.repeats)
            yield {
                **shape, "what": "RK4 step", "dtype": dtype, "batch": 1, "us": times["median"] * 1e6,
                "low": times["low"] * 1e6, "high": times["high"] * 1e6, "disturbed": times["disturbed"],
                **{f"{k} s": times[k] for k in ("trace", "compile", "first")},
            }  # fmt: skip


def main() -> None:
    options = arguments()
    harness.pin_to_cores(options.cores)
    import jax

    jax.config.update("jax_enable_x64", True)
    what = options.what.split(",")
    sources = [rows_of(name, options, what) for name in options.robots.split(",") if set(what) - {"chains"}]
    rows = itertools.chain(*sources, chains(options) if "chains" in what else ())
    harness.collect("forward_dynamics", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()
