"""The slider-crank in batches against Exudyn: microseconds per step and trajectory, same step, same tolerance.

python -m benchmarks.constrained [--batch 1000] [--steps 5000] [--end 0.5] [--out constrained.json]
Exudyn solves one trajectory on one core, with both of its Newton methods and its fast library; here a batch with
randomised masses is one jitted call.  Runs of the two alternate, so that both see the same machine.
"""

import argparse
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import report
from lgjax import integrate_constrained
from lgjax.systems import slider_crank
from lgjax.systems.slider_crank import slider_position

COLUMNS = ["solver", "batch", "h", "us per step and trajectory", "low", "high", "iterations per step", "slider at end"]
MASSES = (0.12, 0.5, 2.0)


def ours(batch, steps, end, chunk, dtype):
    """A call that solves the batch; and what it returns: positions, status, iterations."""
    scale = 1.0 + 0.1 * np.random.default_rng(0).uniform(-1.0, 1.0, (batch, 3))
    scale[0] = 1.0
    masses = jnp.asarray(np.asarray(MASSES) * scale, dtype)

    def one(masses):
        p = slider_crank(masses, dtype=dtype)
        s = integrate_constrained(p.system, p.q0, p.v0, 0.0, end, steps, save_every=None)
        return slider_position(s.q)[0], s.success, s.iterations[0]

    batched = (lambda m: jax.lax.map(one, m, batch_size=chunk)) if chunk else jax.vmap(one)
    program = jax.jit(batched).lower(masses).compile()
    return lambda: jax.block_until_ready(program(masses))


def theirs(steps, end, modified):
    """A call that builds and solves one trajectory, and returns the time of the solver alone."""
    from tests.oracles import exudyn_systems

    def call():
        mechanism, slider = exudyn_systems.slider_crank()
        mechanism.mbs.Assemble()
        started = time.perf_counter()
        count = mechanism.solve(end, steps, modified)
        return time.perf_counter() - started, count, float(mechanism.position(slider)[0])

    return call


def main(batch=1000, steps=5000, end=0.5, chunk=None, repeats=5, dtype="float64", out=None):
    sys.exudynFast = True  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", True)
    run, h = ours(batch, steps, end, chunk, jnp.dtype(dtype)), end / steps
    peers = {f"exudyn, {name} Newton": theirs(steps, end, name == "modified") for name in ("full", "modified")}
    run()
    times = {name: [] for name in ("lgjax", *peers)}
    last = {}
    for _ in range(repeats):
        for name, call in peers.items():
            spent, *last[name] = call()
            times[name].append(spent / steps * 1e6)
        started = time.perf_counter()
        positions, success, iterations = run()
        times["lgjax"].append((time.perf_counter() - started) / steps / batch * 1e6)
    assert bool(jnp.all(success))
    last["lgjax"] = (float(jnp.mean(iterations)), float(positions[0]))
    rows = []
    for name, spent in times.items():
        count, position = last[name]
        size = f"{batch} {dtype}" if name == "lgjax" else "1"
        values = (name, size, h, statistics.median(spent), min(spent), max(spent), count / steps, position)
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    report("slider-crank", rows, COLUMNS, out)
    for name in peers:
        ratio = statistics.median(times[name]) / statistics.median(times["lgjax"])
        print(f"{name}: {ratio:.1f} times the time of lgjax per step and trajectory")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--end", type=float, default=0.5)
    parser.add_argument("--chunk", type=int, help="lanes at a time; all by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--out")
    main(**vars(parser.parse_args()))
