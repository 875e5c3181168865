"""A quadruped learns to walk by PPO, in plain JAX and optax, one program for everything.

Robots with friction and masses of their own, `plugs.walking_quadruped`, try actions that a small network proposes. An
update collects steps of all robots, estimates advantages, and raises the clipped objective of proximal policy
optimization by Adam, in minibatches; a `lax.scan` goes through the updates of a report.
Goal: of new robots, 95 of 100 walk for 10 s without falling, at 0.5 m/s within 0.1 m/s on average.
python examples/29_walk_by_ppo.py [--out walk.png] [--rough] [--updates 600]
"""

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lgjax
from lgjax import plugs
from lgjax.plot import figure, save

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
        cut = info["status"] == int(plugs.EnvironmentStatus.HORIZON)
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
        goes_on = jnp.where(step.done, 0.0, 1.0)
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


def train(env, params, updates, report, robots):
    """The trained agent, and the course: environment steps, seconds, mean rewards and falls at each report."""
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.linear_schedule(RATE, 0.1 * RATE, updates * EPOCHS * BATCHES)),
    )
    keys = jax.random.split(jax.random.key(SEED), 4)
    observation, state = jax.jit(jax.vmap(env.reset))(jax.random.split(keys[0], robots), params)
    # Robots that begin at different times of their episodes do not end them all at once.
    state = state._replace(step=jax.random.randint(keys[1], (robots,), 0, env.steps))
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
            f"  falls in 10 s {course['falls'][-1]:5.2f}  spread {float(np.mean(np.exp(learner[0].spread))):.2f}",
            flush=True,
        )
    return learner[0], {name: np.asarray(x) for name, x in course.items()}


def walk(env, agent, params, key):
    """States (steps,) of an episode without noise, from a new start, and whether it has ended by a fall."""
    first, later = jax.random.split(key)
    observation, state = env.reset(first, params)

    def step(carry, _):
        observation, state, fell = carry
        observation, state, _, done, info = env.step(later, state, output(agent.mean, observation), params)
        fell = fell | (done & (info["status"] != int(plugs.EnvironmentStatus.HORIZON)))
        return (observation, state, fell), (state.q, info["observation"][6:9], fell)

    return jax.lax.scan(step, (observation, state, jnp.zeros((), bool)), None, env.steps)[1]


if __name__ == "__main__":
    import sys, pickle

    jax.config.update("jax_numpy_dtype_promotion", "standard")
    robots, updates = int(sys.argv[1]), int(sys.argv[2])
    env = plugs.walking_quadruped(**eval(sys.argv[3]))
    keys = jax.random.split(jax.random.key(5), robots)
    params = jax.jit(jax.vmap(lambda key: plugs.random_params(key, env)))(keys)
    agent, course = train(env, params, updates, 10, robots)
    pickle.dump((agent, course), open(sys.argv[4], "wb"))
    t = time.time()
    qs, vs, fell = jax.jit(jax.vmap(lambda k, p: walk(env, agent, p, k)))(keys[:200], jax.tree.map(lambda x: x[:200], params))
    print("eval", time.time() - t)
    fell = np.asarray(fell)[:, -1]
    print("fell", fell.mean(), "vx", np.asarray(vs)[:, 100:, 0].mean(), np.asarray(vs)[:, 100:, 0].mean(1).std(), "vy", np.asarray(vs)[:, :, 1].mean())
    x = np.asarray(qs.free_poses.translation)[:, -2, 0]
    print("x end", x.mean(), x.min(), x.max(), "z", np.asarray(qs.free_poses.translation)[:, 100:, 0, 2].mean())
