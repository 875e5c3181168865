"""Environment steps per second of `adapters.walking_quadruped` on one core: reset, observation and reward included.

    python benchmarks/walking.py [--batches 1024 4096] [--steps 50] [--out FILE]

Each robot has its own friction and masses, on rough ground its own terrain. Actions are random, small and held, so that
robots stand. The column `physics` has the four contact steps of an environment step alone. Time is the processor time
of the process, which has one core; `share` is the part of the wall time that it had it.
"""

import argparse
from typing import Any

import harness
from contact import clock

COLUMNS = ["ground", "batch", "us", "steps/s", "physics", "compile s", "share", "ended"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", help="JSON file for the rows")
    return parser.parse_args()


def row(rough: bool, batch: int, steps: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from lgjax import adapters
    from lgjax.simulate.robot_step import robot_steps
    from lgjax.simulate.robots import robot_parts

    env = adapters.walking_quadruped(rough=rough)
    keys = jax.random.split(jax.random.key(0), batch)
    params = jax.vmap(lambda key: adapters.random_params(key, env, roughness=0.02 * rough))(keys)
    _, state = jax.jit(jax.vmap(env.reset))(keys, params)
    actions = 0.1 * jax.random.normal(jax.random.key(1), (batch, env.num_actions), jnp.float32)

    def episode(state, keys):
        def step(state, key):
            _, state, _, done, _ = jax.vmap(env.step)(jax.random.split(key, batch), state, actions, params)
            return state, jnp.mean(done.astype(jnp.float32))

        return jax.lax.scan(step, state, keys)

    def physics(state, keys):
        def alone(q, v, action, params):
            robot = env.robot.replace(model=params.model)
            advance = robot_steps(robot_parts(robot, None, params.contacts, env.method), env.method, env.substeps)
            return advance((q, v), action, env.dt)[0]

        step = lambda now, _: (jax.vmap(alone)(*now, actions, params), None)
        return jax.lax.scan(step, (state.q, state.v), keys)

    keys = jax.random.split(jax.random.key(2), steps)
    state = jax.jit(lambda *given: episode(*given)[0])(state, keys)  # robots that have settled
    each = 1e6 / steps / batch
    seconds, share, compiling, (_, ended) = timed(episode, state, keys)
    alone, *_ = timed(physics, state, keys)
    return {
        "ground": "rough" if rough else "flat", "batch": batch, "us": each * seconds, "steps/s": 1e6 / (each * seconds),
        "physics": each * alone, "compile s": compiling, "share": share, "ended": float(jnp.mean(ended)),
    }  # fmt: skip


def timed(run: Any, *args: Any) -> tuple[float, float, float, Any]:
    """Processor seconds, their share of the wall time, processor seconds of compiling, and the result."""
    import jax

    built: list[Any] = []
    compiling, _ = clock(lambda: built.append(jax.jit(run).lower(*args).compile()))
    result = jax.block_until_ready(built[0](*args))
    seconds, share = min(clock(lambda: jax.block_until_ready(built[0](*args))) for _ in range(3))
    return seconds, share, compiling, result


def main() -> None:
    options = arguments()
    harness.pin_to_cores(1)
    rows = (row(rough, batch, options.steps) for rough in (False, True) for batch in options.batches)
    harness.collect("environment steps of quadrupeds", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()
