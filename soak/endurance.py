"""Long runs: ten million steps, a million steps of a tree, a million trajectories in bounded memory."""

import gc
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from soak import Result
from tests import optimized
from tests.conftest import resident

STEPS, TREE_STEPS, TRAJECTORIES = 10_000_000, 1_000_000, 1_000_000
DTYPES = (jnp.float64, jnp.float32)  # by turns of the seed
MEMORY = 300e6  # bytes by which a million trajectories may let the process grow


def _judged(name: str, seed: int, steps: int, claims: dict[str, bool], numbers: str) -> Result:
    failures = [f"{name} seed {seed}: not {claim}; {numbers}" for claim, holds in claims.items() if not holds]
    print(f"{name} seed {seed}: {numbers}", flush=True)  # noqa: T201
    return Result(Counter({"steps": steps}), failures)


def _unit(rotation) -> float:
    """The largest entry of R^T R - 1."""
    rotation = np.asarray(rotation, float)
    return float(np.abs(np.swapaxes(rotation, -1, -2) @ rotation - np.eye(3)).max())


def symplectic(seed: int) -> Result:
    """The heavy top of celledoni2021's section 3.3: no drift of its energy, in float32 only its round-off."""
    dtype = DTYPES[seed % 2]
    top = lgjax.systems.heavy_top("cotangent", dtype=dtype)
    method = lgjax.SymplecticLie(0.5)
    run = optimized.jit(
        lambda y: lgjax.integrate(top.space, top.field, y, 0.0, 0.01 * STEPS, STEPS, method, STEPS // 2000).ys
    )
    ys = run(top.y0)
    energy = np.asarray(jax.vmap(top.invariants["energy"])(ys), float)
    slope = np.polyfit(np.linspace(0, 1, len(energy)), energy, 1)[0] / np.ptp(energy)
    apart = _unit(ys.g[0] if isinstance(ys.g, tuple) else ys.g)
    small = 1e-9 if dtype == jnp.float64 else 1e-5
    claims = {
        "finite": bool(np.isfinite(energy).all()),
        "without drift": abs(slope) < 0.5,
        "on the group": apart < small,
    }
    return _judged(f"symplectic {np.dtype(dtype)}", seed, STEPS, claims, f"drift {slope:.2e}, R^T R - 1 {apart:.1e}")


def variational(seed: int) -> Result:
    """A bouncing ellipsoid: energy to round-off, nothing inside the plane."""
    dtype = DTYPES[seed % 2]
    p = lgjax.systems.bouncing_body("ellipsoid", dtype=dtype)
    run = optimized.jit(
        lambda s: lgjax.collisions.bounce(p.body, p.shape, p.planes, s, p.dt, STEPS, save_every=STEPS // 1000)
    )
    found = run(p.state)
    energy = np.asarray(jax.vmap(lambda s: lgjax.collisions.total_energy(p.body, s))(found.states), float)
    error = np.abs(energy / energy[0] - 1).max()
    apart = _unit(found.states.pose.rotation)
    small = 1e-8 if dtype == jnp.float64 else 0.1
    claims = {"finite": bool(np.isfinite(energy).all()), "of one energy": error < small, "on the group": apart < small}
    numbers = f"energy {error:.1e}, R^T R - 1 {apart:.1e}, {int(found.impacts[-1])} impacts, status {int(found.status)}"
    return _judged(f"variational {np.dtype(dtype)}", seed, STEPS, claims, numbers)


def tree(seed: int) -> Result:
    """A floating quadruped without gravity whose joints swing on springs: RK4's own loss of energy and no more."""
    dtype = DTYPES[seed % 2]
    model = lgjax.models.quadruped().astype(dtype)
    model = model.replace(gravity=jnp.zeros(3, dtype))
    spring = lgjax.forces.spring(model, jnp.asarray(20.0, dtype))
    q, v = lgjax.neutral(model), 0.3 * jax.random.normal(jax.random.key(seed), (model.nv,), dtype)

    def run(q, v):
        path = lgjax.rollout(model, q, v, spring, 1e-3, TREE_STEPS, save_every=TREE_STEPS // 1000)
        return path, jax.vmap(lambda q, v: lgjax.total_energy(model, q, v))(path.q, path.v)

    path, energy = optimized.jit(run)(q, v)
    energy = np.asarray(energy, float)
    apart = _unit(path.q.free_poses.rotation)
    small = 1e-9 if dtype == jnp.float64 else 1e-5
    claims = {"finite": bool(np.isfinite(energy).all() and np.isfinite(path.v).all()), "on the group": apart < small}
    numbers = f"energy from {energy[0]:.4f} to {energy[-1]:.4f} J, R^T R - 1 {apart:.1e}"
    return _judged(f"tree {np.dtype(dtype)}", seed, TREE_STEPS, claims, numbers)


def ensemble(seed: int) -> Result:
    """A million pendulums in chunks: as many results, memory that does not grow with them."""
    model = lgjax.models.chain(1)
    options = {"steps": 20, "dt": 0.05, "key": jax.random.key(seed), "store": "none", "progress": False}
    run = lambda batch: lgjax.ensemble(model, batch=batch, chunk=4096, **options)
    run(8192)
    gc.collect()
    before = resident()
    found = run(TRAJECTORIES)
    grown = resident() - before
    claims = {"all there": int(found.statistics.samples) == TRAJECTORIES, "in bounded memory": grown < MEMORY}
    return _judged(
        "ensemble", seed, TRAJECTORIES, claims, f"{found.statistics.samples} samples, {grown / 1e6:.0f} MB more"
    )
