"""The heavy top: order of the symplectic methods, paths, and energy over 6000 steps of 0.01 s.

Figures 2 and 3 of [celledoni2021].  python examples/02_heavy_top.py [--out heavy_top.png]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import so3
from lgjax.plot import figure, save

METHODS = {"theta = 0": lgjax.SymplecticLie(0.0), "theta = 1/2": lgjax.SymplecticLie(0.5)}


def run(system, method, end, steps, save_every=None):
    solve = jax.jit(lambda y: lgjax.integrate(system.space, system.field, y, 0.0, end, steps, method, save_every))
    return solve(system.y0)


def main(out: str | None = None, long_steps: int = 6000, counts: tuple[int, ...] = (400, 800, 1600)) -> dict:
    """Errors at 0.1 s for each number of steps, and the relative energy errors of long runs; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    top = lgjax.systems.heavy_top("cotangent")
    exact = run(top, lgjax.suzuki(METHODS["theta = 1/2"], 6), 0.1, 400).ys.mu[0]
    errors, energies = {}, {}
    for name, method in METHODS.items():
        ends = [run(top, method, 0.1, n).ys.mu[0] for n in counts]
        errors[name] = [float(jnp.linalg.norm(end - exact)) for end in ends]
        path = run(top, method, 0.01 * long_steps, long_steps, 1)
        energy = jax.vmap(top.invariants["energy"])(path.ys)
        energies[name] = np.asarray(energy / energy[0] - 1.0)
        print(f"{name}: errors {errors[name]}, largest energy error {np.max(np.abs(energies[name])):.2e}")
    if out:
        draw(out, top, counts, errors, energies)
    return {"errors": errors, "energies": energies}


def draw(out, top, counts, errors, energies):
    made = figure(15, 4.5)
    fine = run(top, METHODS["theta = 1/2"], 1.0, 2000, 2)
    axis = so3.act(fine.ys.g, top.parameters["axis"])
    gamma = so3.coAd(fine.ys.g, top.parameters["gravity"])
    space = made.add_subplot(1, 4, 1, projection="3d")
    space.plot(*np.asarray(gamma).T, linewidth=0.5)
    space.set(title="gravity in the body")
    axes = made.add_subplot(1, 4, 2)
    axes.plot(fine.ts, axis, label=["x", "y", "z"])
    axes.set(title="axis of the top", xlabel="t (s)")
    axes.legend()
    axes = made.add_subplot(1, 4, 3)
    for name, error in errors.items():
        axes.loglog(0.1 / np.array(counts), error, "o-", label=name)
    axes.set(title="error of π at 0.1 s", xlabel="h (s)")
    axes.legend()
    axes = made.add_subplot(1, 4, 4)
    for name, energy in energies.items():
        axes.plot(0.01 * np.arange(len(energy)), energy, linewidth=0.4, label=name)
    axes.set(title="relative energy error, h = 0.01 s", xlabel="t (s)")
    axes.legend()
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="heavy_top.png")
    main(parser.parse_args().out)
