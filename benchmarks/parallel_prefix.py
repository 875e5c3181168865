"""Dynamics of chains against their length: the recursion beside the form of logarithmic depth.

    python benchmarks/parallel_prefix.py [--lengths 10,100,1000] [--batches 1,64] [--dtypes float32] [--out FILE]

Microseconds per call of inverse and forward dynamics of `lgjax.models.chain`, for one system and for a batch, by
`inverse_dynamics` and `forward_dynamics` and by their parallel relatives, with seconds to trace and compile and errors
relative to the largest entry of the recursion's result in float64. On a CPU the parallel form does more work and is
slower; it is meant for a GPU and few systems. XLA runs with its default flags.
"""

import argparse
import itertools

import harness

COLUMNS = [
    "what", "bodies", "dtype", "batch", "recursion us", "parallel us", "ratio", "recursion build s",
    "parallel build s", "recursion error", "parallel error",
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="10,30,100,300,1000")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", help="JSON file for the rows with all their times")
    return parser.parse_args()


def states(model, batch: int):
    """Random q, v and x (acceleration or force), float64."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import lgjax

    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(jax.random.split(jax.random.key(0), batch))
    v, x = np.random.default_rng(0).normal(size=(2, batch, model.nv))
    return q, jnp.asarray(v), jnp.asarray(x)


def rows_of(length: int, batch: int, options: argparse.Namespace):
    import jax
    import numpy as np

    import lgjax

    functions = {
        "inverse": (lgjax.inverse_dynamics, lgjax.parallel.inverse_dynamics),
        "forward": (lgjax.forward_dynamics, lgjax.parallel.forward_dynamics),
    }
    exact = lgjax.models.chain(length).astype("float64")
    inputs = (exact, *states(exact, batch))
    for what, pair in functions.items():
        true = np.asarray(jax.jit(jax.vmap(pair[0], (None, 0, 0, 0)))(*inputs))
        for dtype in options.dtypes.split(","):
            given = jax.tree.map(lambda x, d=dtype: x.astype(d), inputs)
            times, errors = [], []
            for f in pair:
                measured, found = harness.compiled(
                    jax.jit(jax.vmap(f, (None, 0, 0, 0))), *given, repeats=options.repeats
                )
                times.append(measured)
                errors.append(float(np.abs(np.asarray(found, float) - true).max() / np.abs(true).max()))
            us = [1e6 * t["median"] for t in times]
            build = [t["trace"] + t["compile"] for t in times]
            yield {
                "what": what, "bodies": length, "dtype": dtype, "batch": batch, "recursion us": us[0],
                "parallel us": us[1], "ratio": us[0] / us[1], "recursion build s": build[0],
                "parallel build s": build[1], "recursion error": errors[0], "parallel error": errors[1],
                "disturbed": sum(t.get("disturbed", 0) for t in times), "recursion times": times[0],
                "parallel times": times[1],
            }  # fmt: skip


def main() -> None:
    options = arguments()
    harness.pin_to_cores(options.cores)
    import jax

    jax.config.update("jax_enable_x64", True)
    sizes = itertools.product(map(int, options.batches.split(",")), map(int, options.lengths.split(",")))
    rows = itertools.chain.from_iterable(rows_of(length, batch, options) for batch, length in sizes)
    harness.collect("parallel_prefix", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()
