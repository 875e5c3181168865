"""Mass and friction of a two-link arm from a short noisy record of its joints: estimate, covariance and posterior.

Known torques drive an arm for one second, and its joint angles are recorded with 10 mrad of noise. Unknown are the mass
of the outer link and the viscous and dry friction of both joints. `identify` finds the most likely values and, by
Laplace's approximation, their covariance; Hamiltonian Monte Carlo of the same likelihood shows how far the posterior is
from a Gaussian. Goal: the truth within three standard deviations, chains that agree (potential scale reduction below
1.05), and means of both ways within half a standard deviation.  Needs the extra `examples` (Optimistix, BlackJAX).
python examples/21_identification.py [--samples 500] [--out identification.png]
"""

import argparse

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import identification as idn
from lgjax.plot import figure, save

DT, STEPS, NOISE, SEED = 0.02, 50, 1e-2, 0
DAMPING, FRICTION, FACTOR = (0.4, 0.25), (0.3, 0.15), 1.5  # of the true arm; its outer link is 1.5 times as heavy
PRIOR = 0.5  # standard deviation of every unknown about its guess
CHAINS, STEP_SIZE, LEAPS = 4, 0.3, 6  # of the sampler, in units of the covariance


def arm() -> lgjax.Model:
    """The guess: no friction."""
    model = lgjax.models.chain(2)
    return model.replace(damping=0 * model.damping, friction=0 * model.friction, armature=0.05 + 0 * model.armature)


def command() -> jax.Array:
    """Torques (STEPS, 2)."""
    t = DT * jnp.arange(float(STEPS))[:, None]
    return jnp.array([4.0, 2.0]) * jnp.sin(jnp.array([4.0, 7.0]) * t + jnp.array([0.5, 0.0]))


def measured(model, plant, key) -> idn.MotionRecord:
    """A record of the plant, with noise."""
    start = lgjax.configuration(model, joints=np.array([0.3, -0.4])), jnp.zeros(2)
    silent = idn.MotionRecord(start, command(), lgjax.neutral(model), DT, NOISE)
    q, _ = silent.predicted(plant)
    joints = q.joints + NOISE * jax.random.normal(key, q.joints.shape)
    return idn.MotionRecord(start, command(), q._replace(joints=joints), DT, NOISE)


def sample(density, found, samples: int, key):
    """Draws (CHAINS, samples, p) from a density of x by Hamiltonian Monte Carlo, and the mean rate of acceptance."""
    root = jnp.linalg.cholesky(found.covariance)
    kernel = blackjax.hmc(lambda z: density(found.x + root @ z), STEP_SIZE, jnp.ones_like(found.x), LEAPS)

    def chain(key):
        first, rest = jax.random.split(key)
        state = kernel.init(2.0 * jax.random.normal(first, found.x.shape))

        def draw(state, key):
            state, info = kernel.step(key, state)
            return state, (found.x + root @ state.position, info.acceptance_rate)

        return jax.lax.scan(draw, state, jax.random.split(rest, samples))[1]

    draws, rates = jax.jit(jax.vmap(chain))(jax.random.split(key, CHAINS))
    burnt = samples // 5
    return np.asarray(draws)[:, burnt:], float(np.mean(rates))


def scale_reduction(draws: np.ndarray) -> np.ndarray:
    """Potential scale reduction of each unknown: 1 where all chains have seen the same."""
    n = draws.shape[1]
    within, between = draws.var(1, ddof=1).mean(0), draws.mean(1).var(0, ddof=1)
    return np.sqrt((n - 1) / n + between / within)


def main(out: str | None = None, samples: int = 500) -> dict:
    """Errors of the estimate, and what the sampler says of it; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    model = arm()
    outer = model.body_names[1]
    unknowns = idn.masses(model, [outer]) + idn.viscous(model) + idn.coulomb(model)
    true = jnp.array([np.log(FACTOR), *DAMPING, *FRICTION])
    noise, draw = jax.random.split(jax.random.key(SEED))
    record = measured(model, unknowns.apply(idn.plant_of(model), true), noise)
    found = jax.jit(lambda record: idn.identify(model, record, unknowns, prior=PRIOR))(record)
    draws, rate = sample(idn.log_likelihood(model, record, unknowns, prior=PRIOR), found, samples, draw)
    flat = draws.reshape(-1, len(unknowns))
    error, sigma = np.asarray(found.x - true), np.asarray(found.sigma)
    status, reduction = idn.IdentifyStatus(int(found.status)), scale_reduction(draws)
    print(f"{status!r} after {int(found.iterations)} iterations, cost {found.cost:.1f}")
    print(f"{CHAINS} chains of {draws.shape[1]}, {100 * rate:.0f} % accepted, reduction {reduction.max():.3f}")
    for name, x, s, mean, std, is_ in zip(unknowns.names, found.x, sigma, flat.mean(0), flat.std(0), true, strict=True):
        print(f"  {name:32} {x:7.4f} +- {s:.4f}, sampled {mean:7.4f} +- {std:.4f}, true {is_:7.4f}")
    if out:
        plot(out, record, found, unknowns, flat, np.asarray(true))
    return {"errors": error / sigma, "shift": (flat.mean(0) - np.asarray(found.x)) / sigma, "sigma": sigma,
            "sampled": flat.std(0), "reduction": reduction, "status": status}  # fmt: skip


def plot(out, record, found, unknowns, draws, true):
    made = figure(16, 4.5)
    motion, plane, bars = made.subplots(1, 3)
    t, fit = DT * np.arange(1, STEPS + 1), record.predicted(found.plant)[0].joints
    for k in range(2):
        motion.plot(t, record.q.joints[:, k], ".", color=f"C{k}", markersize=4)
        motion.plot(t, fit[:, k], color=f"C{k}", linewidth=1, label=f"joint {k + 1}")
    motion.set(title="record, and the motion of the estimate", xlabel="t (s)", ylabel="angle (rad)")
    motion.legend()
    i, j = 2, 4  # viscous and dry friction of the outer joint, which a short record tells apart badly
    plane.plot(draws[:, i], draws[:, j], ".", markersize=2, alpha=0.4, label="samples")
    turn = np.linspace(0, 2 * np.pi, 100)
    pair = np.asarray(found.covariance)[np.ix_([i, j], [i, j])]
    ring = np.linalg.cholesky(pair) @ np.stack([np.cos(turn), np.sin(turn)])
    for size in (1, 2, 3):
        label = "1, 2, 3 sigma of the estimate" if size == 1 else None
        plane.plot(found.x[i] + size * ring[0], found.x[j] + size * ring[1], color="k", linewidth=1, label=label)
    plane.plot(true[i], true[j], "x", color="C3", markersize=9, label="truth")
    plane.set(title="posterior of friction of the outer joint", xlabel="viscous (N m s/rad)", ylabel="dry (N m)")
    plane.legend(fontsize=8)
    z = (draws - np.asarray(found.x)) / np.asarray(found.sigma)
    bars.violinplot([z[:, k] for k in range(z.shape[1])], positions=range(z.shape[1]), showextrema=False)
    bars.plot(range(len(true)), (true - np.asarray(found.x)) / np.asarray(found.sigma), "x", color="C3", label="truth")
    bars.axhline(0, color="k", linewidth=0.5)
    names = ("log mass factor", "viscous 1", "viscous 2", "dry 1", "dry 2")
    bars.set_xticks(range(len(names)), names, rotation=30)
    bars.set(title="samples about the estimate, in its standard deviations", ylim=(-4.5, 4.5))
    bars.legend(fontsize=8)
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--out", default="identification.png")
    given = parser.parse_args()
    main(given.out, given.samples)
