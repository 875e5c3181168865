"""Random pendulums, which compile at once, for the tests of `monte_carlo`; run as a program, in other processes."""

import argparse
import os
import signal
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.simulate.ensemble import storage

STEPS = 30


def pendulum(key, length, lost=0.0, gravity=9.81):
    """A pendulum with random start and length; a fraction `lost` of them gets a torque that grows without bound."""
    start, spread, chance = jax.random.normal(key, (3,), length.dtype)
    length = length * jnp.exp(0.1 * spread)
    bad = jax.random.uniform(jax.random.fold_in(key, 7), (), length.dtype) < lost

    def step(state, _):
        q, v = state
        v = v - 0.05 * (gravity / length * jnp.sin(q) + jnp.where(bad, -((10.0 + v) ** 3), 0.0))
        q = q + 0.05 * v
        return (q, v), jnp.stack([q, v])

    (q, v), path = jax.lax.scan(step, (start, 0 * start), None, length=STEPS)
    values = jnp.concatenate([path[-2:], jnp.stack([q, v])[None]])
    return lgjax.ensembles.Sample(values, events=jnp.stack([v > 0, q > 100]), record={"path": path, "chance": chance})


def run(batch=20, lost=0.0, dtype="float64", seed=0, **options):
    options = {"chunk": 7, "progress": False} | options
    arguments = (jnp.asarray(1.0, dtype), jnp.asarray(lost, dtype))
    simulate = partial(pendulum, gravity=9.81)  # a number that it holds
    return lgjax.monte_carlo(simulate, arguments, batch=batch, key=jax.random.key(seed), **options)


def everything(result):
    """All numbers of a result that do not tell the time, as a flat dictionary."""
    found = {f"statistics.{k}": np.asarray(v) for k, v in result.statistics._asdict().items()}
    found |= {"failed": result.failed, "failed_status": result.failed_status, "batch": np.asarray(result.batch)}
    if result.record is not None:
        found |= {f"record.{k}": v for k, v in result.record.items()}
    return found


def die_after(chunks):
    """This process kills itself, as by `kill -9`, when it is about to write a chunk after so many."""
    write, left = storage.Folder.write_chunk, [chunks]

    def writing(self, number, arrays):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        write(self, number, arrays)

    storage.Folder.write_chunk = writing


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", help="file for the result")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=7)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--lost", type=float, default=0.0)
    parser.add_argument("--folder")
    parser.add_argument("--die-after", type=int)
    parser.add_argument("--process", type=int, nargs=3, metavar=("PORT", "NUMBER", "COUNT"))
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if args.process:
        port, number, processes = args.process
        jax.distributed.initialize(f"localhost:{port}", processes, number)
    if args.die_after is not None:
        die_after(args.die_after)
    options = {"checkpoint_every": 0.0, "folder": args.folder, "resume": True} if args.folder else {}
    result = run(args.count, args.lost, chunk=args.chunk, devices=args.devices, **options)
    np.savez(args.out, **everything(result))


if __name__ == "__main__":
    main()
