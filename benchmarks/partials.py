"""Analytic derivatives of the dynamics in batch, beside forward-mode differentiation of the same functions.

    python benchmarks/partials.py [--robots talos_reduced] [--dtypes float32,float64] [--out FILE]

Matrices of derivatives of inverse and forward dynamics with respect to configuration, velocity and force (or
acceleration), by lgjax's recursion and by jax.jacfwd, with trace and compile time; Pinocchio's computeRNEADerivatives
and computeABADerivatives, one state at a time from Python, for orientation. XLA runs with its default flags.
"""

import argparse
import itertools

import harness
from forward_dynamics import ROBOTS, load, robot_file, states

COLUMNS = [
    "robot", "bodies", "nv", "what", "dtype", "batch", "us", "jacfwd us", "ratio", "build s", "jacfwd build s",
    "build ratio", "pinocchio us", "error",
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", default="talos_reduced")
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", help="JSON file for the rows with all their times")
    return parser.parse_args()


def functions():
    import jax
    import jax.numpy as jnp

    import lgjax

    def differentiated(f):
        def partials(model, q, v, x):
            moved = lambda dq, v, x: f(model, lgjax.retract(model, q, dq), v, x)
            return jax.jacfwd(moved, (0, 1, 2))(jnp.zeros_like(v), v, x)

        return partials

    return {
        "inverse": (lgjax.inverse_dynamics_partials, differentiated(lgjax.inverse_dynamics)),
        "forward": (lgjax.forward_dynamics_partials, differentiated(lgjax.forward_dynamics)),
    }


def pinocchio(name: str, repeats: int) -> dict[str, float]:
    """Microseconds per call at a random state."""
    import numpy as np
    import pinocchio as pin

    model = pin.buildModelFromUrdf(robot_file(name), *[pin.JointModelFreeFlyer()] * ROBOTS[name][1])
    data, q = model.createData(), pin.neutral(model)
    v, x = np.random.default_rng(0).normal(size=(2, model.nv))
    calls = {"inverse": pin.computeRNEADerivatives, "forward": pin.computeABADerivatives}
    times = {what: harness.steady(lambda f=f: f(model, data, q, v, x), repeats) for what, f in calls.items()}
    return {what: 1e6 * t["median"] for what, t in times.items()}


def rows_of(name: str, options: argparse.Namespace):
    import jax
    import numpy as np

    exact = load(name)
    peer = pinocchio(name, options.repeats)
    for dtype in options.dtypes.split(","):
        model, state = jax.tree.map(lambda x, d=dtype: x.astype(d), (exact, states(exact, options.batch)))
        for what, pair in functions().items():
            (ours, found), (theirs, expected) = (
                harness.compiled(jax.jit(jax.vmap(f, (None, 0, 0, 0))), model, *state, repeats=options.repeats)
                for f in pair
            )
            us, jacfwd = (1e6 * times["median"] / options.batch for times in (ours, theirs))
            build, jacfwd_build = (times["trace"] + times["compile"] for times in (ours, theirs))
            error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, expected, strict=True))
            yield {
                "robot": name, "bodies": exact.nbodies, "nv": exact.nv, "what": what, "dtype": dtype,
                "batch": options.batch, "us": us, "jacfwd us": jacfwd, "ratio": jacfwd / us, "build s": build,
                "jacfwd build s": jacfwd_build, "build ratio": jacfwd_build / build, "pinocchio us": peer[what],
                "error": error, "disturbed": ours["disturbed"] + theirs["disturbed"], "times": ours,
                "jacfwd times": theirs,
            }  # fmt: skip


def main() -> None:
    options = arguments()
    harness.pin_to_cores(options.cores)
    import jax

    jax.config.update("jax_enable_x64", True)
    rows = itertools.chain.from_iterable(rows_of(name, options) for name in options.robots.split(","))
    harness.collect("partials", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()
