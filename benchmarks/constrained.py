"""The slider-crank in batches against Exudyn: microseconds per step and trajectory, same step, same tolerance.

python -m benchmarks.constrained [--batch 1000] [--steps 5000] [--end 0.5] [--out constrained.json]
Exudyn solves one trajectory on one core, with both of its Newton methods and its fast library; here a batch with
randomized masses is one jitted call.  Runs of the two alternate, so that both see the same machine, and both use the
standard variant of the method.

python -m benchmarks.constrained --accuracy [--end 1.0] [--out variants.json]
The errors of both variants of the method on the heavy top with constraints at t = `end`, for several steps, against
its equation in a quaternion by DOP853, and the difference to Exudyn's same variant.
"""

import argparse
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import collect, report
from lgjax import GeneralizedAlpha, maximal
from lgjax.systems import heavy_top_maximal, slider_crank
from lgjax.systems.slider_crank import slider_position

COLUMNS = ["solver", "batch", "h", "us per step and trajectory", "low", "high", "iterations per step", "slider at end"]
MASSES = (0.12, 0.5, 2.0)
ERRORS = ["variant", "spectral radius", "h", "axis", "angular velocity", "multipliers", "axis, Exudyn - lgjax"]
STEP_SIZES = (4e-4, 2e-4, 1e-4, 5e-5)


def ours(batch, steps, end, chunk, dtype):
    """A call that solves the batch; and what it returns: positions, status, iterations."""
    scale = 1.0 + 0.1 * np.random.default_rng(0).uniform(-1.0, 1.0, (batch, 3))
    scale[0] = 1.0
    masses = jnp.asarray(np.asarray(MASSES) * scale, dtype)

    def one(masses):
        p = slider_crank(masses, dtype=dtype)
        s = maximal.integrate(p.system, p.q0, p.v0, 0.0, end, steps, save_every=None)
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


def errors(variant, rho, steps, end, exact):
    """One row of `accuracy`: largest entries of the errors at the end, relative but for the axis; NaN if it fails."""
    from tests.oracles import exudyn_systems

    problem, method = heavy_top_maximal(), GeneralizedAlpha(rho, variant=variant, rtol=1e-11)
    run = lambda q, v: maximal.integrate(problem.system, q, v, 0.0, end, steps, method, save_every=None)
    s = jax.jit(run)(problem.q0, problem.v0)
    mechanism, body = exudyn_systems.heavy_top()
    try:
        mechanism.solve(end, steps, rtol=1e-11, variant=variant, spectral_radius=rho)
        peer = mechanism.position(body)
    except RuntimeError:  # its Newton iteration failed
        peer = np.full(3, np.nan)
    axis, size = np.asarray(s.q.bodies.translation[0, 0]), lambda x: float(np.max(np.abs(x)))
    relative = lambda found, wanted: size(found - wanted) / size(wanted)
    values = (
        size(axis - exact[2]),
        relative(s.v[0, :3], exact[1]),
        relative(s.multipliers[0], exact[4]),
        size(peer - axis),
    )
    return dict(zip(ERRORS, (variant, rho, end / steps, *values), strict=True))


def accuracy(end=1.0, out=None):
    """Both variants on the heavy top."""
    from tests.oracles import heavy_top

    jax.config.update("jax_enable_x64", True)
    exact = heavy_top.solve(end)
    counts = [round(end / h) for h in STEP_SIZES]
    methods = [("standard", 0.9), ("sigma_modified", 0.9), ("standard", 0.6), ("sigma_modified", 0.6)]
    rows = (errors(variant, rho, n, end, exact) for variant, rho in methods for n in counts)
    collect("heavy top, variants", rows, ERRORS, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--end", type=float)
    parser.add_argument("--accuracy", action="store_true", help="errors of both variants in place of times")
    parser.add_argument("--chunk", type=int, help="lanes at a time; all by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--out")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    if given.pop("accuracy"):
        accuracy(**{name: given[name] for name in ("end", "out") if name in given})
    else:
        main(**given)
