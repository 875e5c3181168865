"""A policy that balances a pole on a cart and brings the cart home, trained by gradients through the dynamics.

The policy is a small network from the state to the force on the cart. Episodes start at rest, tilted and displaced,
each with masses of its own; the sum of their rewards is differentiated through all steps and raised by Adam of optax.
Goal: of new episodes that last twice as long, 95 of 100 end with the pole within 0.05 rad of upright and the cart
within 0.1 m of the origin.  python examples/24_policy_by_gradients.py [--out policy.png]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lgjax
from lgjax.plot import figure, save

DT, STEPS, FORCE, SEED = 0.04, 60, 20.0, 0
WIDTHS = (5, 32, 32, 1)
GOAL = {"angle": 0.05, "place": 0.1, "share": 0.95}


def cart_pole() -> lgjax.Model:
    """A cart of 1 kg on rails along x and a pole of 0.3 kg and 1 m that hangs from it at angle zero."""
    rails = lgjax.Joint("rails", "prismatic", (1.0, 0.0, 0.0))
    pivot = lgjax.Joint("pivot", "continuous", (0.0, -1.0, 0.0))
    rod = 0.3 / 12 * np.diag([1.0, 1.0, 1e-3])
    return lgjax.build(
        [
            lgjax.Body("cart", None, rails, mass=1.0, inertia=1e-3 * np.eye(3)),
            lgjax.Body("pole", "cart", pivot, mass=0.3, com=np.array([0.0, 0.0, -0.5]), inertia=rod),
        ],
        "cart_pole",
    ).astype(jnp.float32)


def start(key, model):
    """At rest within a meter of the origin, the pole up to 0.6 rad from upright."""
    place, angle = jax.random.split(key)
    joints = jnp.stack([jax.random.uniform(place, (), model.dtype, -1.0, 1.0),
                        np.pi + jax.random.uniform(angle, (), model.dtype, -0.6, 0.6)])  # fmt: skip
    return lgjax.neutral(model)._replace(joints=joints), jnp.zeros(2, model.dtype)


def observe(model, q, v):
    place, angle = q.joints
    return jnp.stack([place, jnp.sin(angle), jnp.cos(angle), 0.5 * v[0], 0.3 * v[1]])


def reward(model, q, v, force):
    """Highest for the pole upright and the cart at the origin, at rest, without force."""
    place, angle = q.joints
    errors = 2 * (1 + jnp.cos(angle)) + place**2
    return -errors - 0.01 * jnp.sum(v**2) - 2e-4 * jnp.sum(force**2)


def environment(model, steps):
    return lgjax.adapters.Environment(
        model=model, dt=DT, steps=steps, start=start, observe=observe, reward=reward, actions=1,
        actuation=lambda force: jnp.stack([force[0], jnp.zeros_like(force[0])]), bounds=(-FORCE, FORCE),
    )  # fmt: skip


def heavier(model, key):
    """A copy whose bodies have densities between 0.8 and 1.25 of those of the model."""
    shares = jnp.exp(jax.random.uniform(key, (model.nbodies,), model.dtype, -0.22, 0.22))
    return model.replace(inertias=model.inertias.scaled(shares))


# ---- the policy
def network(key):
    """Weights and biases of all layers."""
    keys = jax.random.split(key, len(WIDTHS) - 1)
    draw = lambda key, n, m: jax.random.normal(key, (n, m), jnp.float32) / np.float32(np.sqrt(m))
    return [(draw(k, n, m), jnp.zeros(n, jnp.float32)) for k, m, n in zip(keys, WIDTHS[:-1], WIDTHS[1:], strict=True)]


def policy(layers, observation):
    x = observation
    for weights, bias in layers[:-1]:
        x = jnp.tanh(weights @ x + bias)
    weights, bias = layers[-1]
    return FORCE * jnp.tanh(weights @ x + bias)


def episode(env, layers, key):
    """Rewards (steps,) and last states of the steps (steps, ...) of an episode with a mechanism of its own."""
    first, mass, later = jax.random.split(key, 3)
    model = heavier(env.model, mass)

    def step(carry, _):
        observation, state = carry
        observation, state, earned, _, info = env.step(later, state, policy(layers, observation), model)
        return (observation, state), (earned, info["observation"])

    return jax.lax.scan(step, env.reset(first, model), None, env.steps)[1]


def train(env, layers, iterations, batch, rate=1e-2):
    """The trained policy and the mean rewards per step (iterations,)."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(rate, iterations)))

    def loss(layers, keys):
        return -jnp.mean(jax.vmap(lambda key: episode(env, layers, key)[0])(keys))

    def update(carry, key):
        layers, memory = carry
        cost, slopes = jax.value_and_grad(loss)(layers, jax.random.split(key, batch))
        updates, memory = optimizer.update(slopes, memory)
        return (optax.apply_updates(layers, updates), memory), -cost

    keys = jax.random.split(jax.random.key(SEED + 1), iterations)
    run = jax.jit(lambda layers: jax.lax.scan(update, (layers, optimizer.init(layers)), keys))
    (layers, _), course = run(layers)
    return layers, np.asarray(course)


def main(out: str | None = None, iterations: int = 300, batch: int = 64, steps: int = STEPS, tests: int = 200) -> dict:
    """Mean rewards of all iterations and the share of test episodes that reach the goal; draws them to `out`."""
    model = cart_pole()
    began = time.perf_counter()
    with jax.numpy_dtype_promotion("standard"):  # also where it is strict, which optax is not
        layers, course = train(environment(model, steps), network(jax.random.key(SEED)), iterations, batch)
    seconds = time.perf_counter() - began
    longer = environment(model, 2 * steps)
    keys = jax.random.split(jax.random.key(SEED + 2), tests)
    _, seen = jax.jit(jax.vmap(lambda key: episode(longer, layers, key)))(keys)
    seen = np.asarray(seen)
    angles = np.abs(np.arctan2(seen[..., 1], -seen[..., 2]))  # from upright
    good = (angles[:, -1] < GOAL["angle"]) & (np.abs(seen[:, -1, 0]) < GOAL["place"])
    print(f"reward per step {course[0]:.3f} before, {course[-1]:.3f} after {iterations} iterations, {seconds:.0f} s")
    print(f"{np.sum(good)} of {tests} new episodes end upright within {GOAL['angle']} rad and {GOAL['place']} m")
    if out:
        draw(out, course, angles, seen[..., 0])
    return {"course": course, "share": np.mean(good), "seconds": seconds}


def draw(out, course, angles, places):
    made = figure(15, 4)
    learning, turning, moving = made.subplots(1, 3)
    learning.plot(course, linewidth=1)
    learning.set(title="training", xlabel="iteration", ylabel="mean reward of a step")
    ts = DT * np.arange(1, angles.shape[1] + 1)
    turning.plot(ts, angles[:50].T, linewidth=0.8)
    turning.axvline(ts[-1] / 2, color="black", linestyle=":", linewidth=0.8)
    turning.set(title="angle from upright, 50 new episodes", xlabel="t (s), trained to the dotted line", ylabel="rad")
    moving.plot(ts, places[:50].T, linewidth=0.8)
    moving.set(title="place of the cart", xlabel="t (s)", ylabel="m")
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--out", default="policy.png")
    given = parser.parse_args()
    main(given.out, given.iterations)
