"""What a rollout and its gradient cost: seconds until the first result, throughput and memory.

    python benchmarks/rollout_gradients.py [--robots go1,talos_reduced] [--batches 0,64] [--cores 2] [--out FILE]

A rollout is 20 RK4 steps of 1 ms under constant forces; the gradient is reverse mode, of a sum over the final velocity,
with respect to the forces and the initial state. Batch 0 is one system without `vmap`; of a batch, all systems are one
model in different states, or each is a model of its own, with other masses and lengths. XLA runs with its default flags
unless XLA_FLAGS says otherwise.
"""

import argparse
import itertools

import harness
from forward_dynamics import load, states

STEPS = 20
COLUMNS = [
    "robot", "bodies", "what", "models", "dtype", "batch", "us per step", "low", "high", "steps/s",
    "temporary MB", "trace s", "compile s", "total s",
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", default="panda,go1,talos_reduced")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--batches", default="0,64,1024")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", help="JSON file for the rows with all their times")
    return parser.parse_args()


def programs():
    import jax
    import jax.numpy as jnp

    import lgjax

    def final(model, q, v, tau):
        return lgjax.rollout(model, q, v, lambda t, q, v: tau, 1e-3, STEPS, save_every=None).v[0]

    cost = lambda model, q, v, tau: jnp.sum(final(model, q, v, tau) ** 2)
    return {"rollout": final, "gradient": jax.grad(cost, (1, 2, 3))}


def own_models(model, batch: int):
    """`batch` copies of a model with other masses, shapes, lengths and gravity."""
    import jax

    import lgjax
    from lgjax.simulate.ensemble.ensemble import Draw, Spread, randomized

    start, spread = Draw(model, lgjax.neutral(model), jax.numpy.zeros(model.nv)), Spread(0, 0, 0.1, 0.1, 0.1, 0.1, 0.1)
    return jax.vmap(lambda key: randomized(start, spread, key).model)(jax.random.split(jax.random.key(2), batch))


def rows_of(name: str, options: argparse.Namespace):
    import jax

    exact = load(name)
    for dtype in options.dtypes.split(","):
        cast = lambda tree, dtype=dtype: jax.tree.map(lambda x: x.astype(dtype), tree)
        for batch in map(int, options.batches.split(",")):
            model, state = cast(exact), cast(states(exact, max(batch, 1)))
            cases = itertools.product(programs().items(), ("one", "each its own") if batch else ("one",))
            for (what, function), models in cases:
                own = models != "one"
                mapped = jax.vmap(function, (0 if own else None, 0, 0, 0)) if batch else function
                chosen = cast(own_models(exact, batch)) if own else model
                some = state if batch else jax.tree.map(lambda x: x[0], state)
                jax.clear_caches()
                times, _ = harness.compiled(jax.jit(mapped), chosen, *some, repeats=options.repeats)
                us = {k: times[k] / (max(batch, 1) * STEPS) * 1e6 for k in ("median", "low", "high")}
                yield {
                    "robot": name, "bodies": model.nbodies, "what": what, "models": models, "dtype": dtype,
                    "batch": batch, "us per step": us["median"], "low": us["low"], "high": us["high"],
                    "steps/s": 1e6 / us["median"],
                    "temporary MB": times["temporary"] / 1e6, "disturbed": times["disturbed"],
                    **{f"{k} s": times[k] for k in ("trace", "compile")},
                    "total s": times["trace"] + times["compile"],
                }  # fmt: skip


def main() -> None:
    options = arguments()
    harness.pin_to_cores(options.cores)
    import jax

    jax.config.update("jax_enable_x64", True)
    rows = (row for name in options.robots.split(",") for row in rows_of(name, options))
    harness.collect("rollout_gradients", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()
