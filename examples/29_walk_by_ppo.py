"""A quadruped learns to walk by PPO, in plain JAX and optax, one program for everything.

Robots with friction and masses of their own, `adapters.walking_quadruped`, try actions of a small network. An update
collects steps of all robots, estimates advantages, and raises the clipped objective of proximal policy
optimization by Adam, in minibatches; a `lax.scan` goes through the updates of a report.
Goal: of new robots, 95 of 100 walk for 10 s without falling, at 0.5 m/s within 0.1 m/s on average.
python examples/29_walk_by_ppo.py [--out walk.png] [--rough] [--updates 400] [--robots 1024]
`train` takes other environments of `lgjax.adapters`, too. To import it, copy this file under a name such as ppo.py, as
Python imports no name that begins with a digit.
"""

import argparse
import pathlib
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lgjax
from lgjax import adapters
from lgjax.plot import COLORS, figure, save

SEED = 0
SPEED, WITHIN, SHARE = 0.5, 0.1, 0.95  # of the goal
WIDTHS = (64, 64)  # of the hidden layers
DISCOUNT, TRACE, CLIP, ENTROPY, RATE = 0.98, 0.95, 0.2, 0.002, 1e-3
HORIZON, EPOCHS, BATCHES = 16, 4, 4


# ---- the networks
def network(key, sizes, last):
    """Weights and biases of all layers; `last` scales the weights of the last one."""
    keys = jax.random.split(key, len(sizes) - 1)
    scales = [1.0] * (len(sizes) - 2) + [last]
    draw = lambda key, n, m, scale: jax.random.normal(key, (m, n), jnp.float32) * np.float32(scale / np.sqrt(m))
    return [(draw(k, n, m, s), jnp.zeros(n, jnp.float32)) for k, m, n, s in zip(keys, sizes, sizes[1:], scales)]


def output(layers, x):
    for weights, bias in layers[:-1]:
        x = jnp.tanh(x @ weights + bias)
    weights, bias = layers[-1]
    return x @ weights + bias


class Agent(NamedTuple):
    """Mean of the actions, logarithm of their standard deviations, and the value of an observation."""

    mean: Any
    spread: Any
    value: Any


def new_agent(key, env):
    first, second = jax.random.split(key)
    size, actions = env.observation_size, env.num_actions
    spread = jnp.full(actions, -0.7, jnp.float32)
    return Agent(network(first, (size, *WIDTHS, actions), 0.1), spread, network(second, (size, *WIDTHS, 1), 1.0))


def log_density(agent, mean, action):
    z = (action - mean) * jnp.exp(-agent.spread)
    return -jnp.sum(0.5 * z**2 + agent.spread, -1)


# ---- collecting
class Step(NamedTuple):
    """What an update needs of a step of all robots, with axes (time, robot)."""

    observation: Any
    action: Any
    density: Any
    reward: Any
    value: Any
    done: Any


def collect(env, agent, params, carry, key):
    """HORIZON steps of all robots; states and observations after them, and the steps."""

    def step(carry, key):
        observation, state = carry
        noise, again = jax.random.split(key)
        mean = output(agent.mean, observation)
        action = mean + jnp.exp(agent.spread) * jax.random.normal(noise, mean.shape, mean.dtype)
        keys = jax.random.split(again, len(mean))
        after, state, reward, done, info = jax.vmap(env.step)(keys, state, action, params)
        # An episode that ends at its horizon would have gone on: the value of its last observation stands for that.
        cut = info["status"] == int(adapters.EnvironmentStatus.HORIZON)
        last = output(agent.value, info["observation"])[:, 0]
        kept = Step(
            observation, action, log_density(agent, mean, action), reward + DISCOUNT * jnp.where(cut, last, 0),
            output(agent.value, observation)[:, 0], done,
        )  # fmt: skip
        return (after, state), (kept, reward, done & ~cut)

    carry, (steps, rewards, falls) = jax.lax.scan(step, carry, jax.random.split(key, HORIZON))
    return carry, steps, {"reward": jnp.mean(rewards), "falls": jnp.mean(falls)}


def advantages(steps, last):
    """Generalized advantage estimates (time, robot); last: values of the observations after the last step."""

    def back(carry, step):
        estimate, after = carry
        goes_on = 1 - step.done.astype(last.dtype)
        surprise = step.reward + DISCOUNT * goes_on * after - step.value
        estimate = surprise + DISCOUNT * TRACE * goes_on * estimate
        return (estimate, step.value), estimate

    return jax.lax.scan(back, (jnp.zeros_like(last), last), steps, reverse=True)[1]


# ---- learning
def loss(agent, steps, advantage, target):
    mean = output(agent.mean, steps.observation)
    ratio = jnp.exp(log_density(agent, mean, steps.action) - steps.density)
    scaled = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-6)
    gain = jnp.minimum(ratio * scaled, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * scaled)
    error = output(agent.value, steps.observation)[:, 0] - target
    return -jnp.mean(gain) + 0.5 * jnp.mean(error**2) - ENTROPY * jnp.sum(agent.spread)


def trainer(env, params, optimizer):
    """The function (learner, keys) -> learner and reports, one for each key."""

    def update(learner, key):
        agent, memory, carry = learner
        first, second = jax.random.split(key)
        carry, steps, report = collect(env, agent, params, carry, first)
        advantage = advantages(steps, output(agent.value, carry[0])[:, 0])
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, advantage, advantage + steps.value))
        count = len(flat[1])

        def minibatch(carry, chosen):
            agent, memory = carry
            slopes = jax.grad(loss)(agent, *jax.tree.map(lambda x: x[chosen], flat))
            changes, memory = optimizer.update(slopes, memory)
            return (optax.apply_updates(agent, changes), memory), None

        orders = jax.vmap(lambda key: jax.random.permutation(key, count))(jax.random.split(second, EPOCHS))
        chosen = orders.reshape(EPOCHS * BATCHES, -1)
        (agent, memory), _ = jax.lax.scan(minibatch, (agent, memory), chosen)
        return (agent, memory, carry), report

    return jax.jit(lambda learner, keys: jax.lax.scan(update, learner, keys))


def train(env, params, updates, report):
    """The trained agent, and the course: steps, seconds, mean rewards and falls per episode at each report.

    env: an environment of `lgjax.adapters`. params: its parameters, arrays with a leading axis of robots. updates: how
    many, `report` of them between two reports.
    """
    robots = len(jax.tree.leaves(params)[0])
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.linear_schedule(RATE, 0.1 * RATE, updates * EPOCHS * BATCHES)),
    )
    keys = jax.random.split(jax.random.key(SEED), 4)
    observation, state = jax.jit(jax.vmap(env.reset))(jax.random.split(keys[0], robots), params)
    # Robots that begin at different times of their episodes do not end them all at once.
    state = state._replace(step=jax.random.randint(keys[1], (robots,), 0, env.steps, jnp.int32))
    agent = new_agent(keys[2], env)
    learner = agent, optimizer.init(agent), (observation, state)
    began, work = time.perf_counter(), time.process_time()
    count = max(1, updates // report)
    program = trainer(env, params, optimizer).lower(learner, jax.random.split(keys[3], report)).compile()
    print(f"compiled in {time.process_time() - work:.1f} s of processor time", flush=True)
    course: dict[str, list] = {"steps": [], "seconds": [], "processor": [], "reward": [], "falls": []}
    for n, key in enumerate(jax.random.split(keys[3], count)):
        learner, reports = program(learner, jax.random.split(key, report))
        found = jax.tree.map(lambda x: float(np.mean(x)), reports)
        course["steps"].append((n + 1) * report * robots * HORIZON)
        course["seconds"].append(time.perf_counter() - began)
        course["processor"].append(time.process_time() - work)
        course["reward"].append(found["reward"])
        course["falls"].append(found["falls"] * env.steps)
        print(
            f"{course['steps'][-1] / 1e6:6.2f} M steps  {course['seconds'][-1]:5.0f} s  reward {found['reward']:6.3f}"
            f"  falls per episode {course['falls'][-1]:5.2f}  spread {float(np.mean(np.exp(learner[0].spread))):.2f}",
            flush=True,
        )
    return learner[0], {name: np.asarray(x) for name, x in course.items()}


class Path(NamedTuple):
    """An episode: configurations, forward speeds, and whether the robot has fallen, all (steps,)."""

    q: Any
    speed: Any
    fell: Any


def walk(env, agent, params, key):
    """An episode without noise, from a new start."""
    first, later = jax.random.split(key)
    observation, state = env.reset(first, params)

    def step(carry, _):
        observation, state, fell = carry
        observation, state, _, done, info = env.step(later, state, output(agent.mean, observation), params)
        fell = fell | (done & (info["status"] != int(adapters.EnvironmentStatus.HORIZON)))
        return (observation, state, fell), Path(state.q, info["observation"][6], fell)

    return jax.lax.scan(step, (observation, state, jnp.zeros((), bool)), None, env.steps)[1]


def main(out: str | None = None, updates: int = 400, robots: int = 1024, tests: int = 200, rough: bool = False,
         steps: int = 500, report: int = 10) -> dict:  # fmt: skip
    """The course of the training and the share of new robots that reach the goal; a figure in `out`, with a GIF."""
    env = adapters.walking_quadruped((SPEED, 0.0, 0.0), rough=rough, steps=steps)
    draw = jax.jit(jax.vmap(lambda key: adapters.random_params(key, env, roughness=0.02 * rough)))
    with jax.numpy_dtype_promotion("standard"):  # also where it is strict, which optax is not
        agent, course = train(env, draw(jax.random.split(jax.random.key(SEED + 1), robots)), updates, report)
        keys = jax.random.split(jax.random.key(SEED + 2), tests)
        path = jax.jit(jax.vmap(lambda key, params: walk(env, agent, params, key)))(keys, draw(keys))
    speed, fell = np.asarray(path.speed), np.asarray(path.fell)[:, -1]
    good = ~fell & (np.abs(np.mean(speed[:, steps // 10 :], 1) - SPEED) < WITHIN)
    print(f"{np.sum(good)} of {tests} new robots walk {steps * env.dt:g} s within {WITHIN} m/s of {SPEED} m/s")
    if out:
        figures(out, course, path, fell)
        ts = env.dt * np.arange(1, min(steps, 150) + 1)
        q = jax.tree.map(lambda x: x[np.argmax(good), : len(ts)], path.q)
        lgjax.view.picture(
            env, (ts, q), pathlib.Path(out).with_suffix(".gif"), camera=(0.3, -1, 0.2), size=(360, 220),
            fps=50 / 3, follow=True, trail=False,
        )  # fmt: skip
    return {"course": course, "share": np.mean(good), "agent": agent}


# ---- pictures
def figures(out, course, path, fell):
    made = figure(15, 4)
    learning, running, seen = made.subplots(1, 3)
    learning.plot(course["steps"] / 1e6, course["reward"])
    learning.set(title="training: mean reward of a step, at most 1.5", xlabel="steps of all robots (millions)")
    running.plot(course["seconds"], course["reward"], label="wall time")
    running.plot(course["processor"], course["reward"], "--", label="processor time")
    running.set(title="the same against time, with compilation", xlabel="s")
    running.legend(fontsize=8)
    ts = 0.02 * np.arange(1, path.speed.shape[1] + 1)
    for falls, name in ((False, "walk on"), (True, "fall")):
        chosen = path.speed[:60][fell[:60] == falls]
        if len(chosen):
            seen.plot(ts, chosen.T, color=COLORS[falls], linewidth=0.5)[0].set_label(f"{len(chosen)} {name}")
    seen.axhline(SPEED, color="black", linestyle=":", linewidth=0.8)
    seen.set(title="forward speed of new robots (m/s)", xlabel="t (s)", ylim=(0.0, 1.0))
    seen.legend(fontsize=8, loc="lower right")
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--robots", type=int, default=1024)
    parser.add_argument("--rough", action="store_true", help="train and test on height fields")
    parser.add_argument("--out", default="walk.png")
    given = parser.parse_args()
    main(given.out, given.updates, given.robots, rough=given.rough)
