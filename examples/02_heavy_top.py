"""The heavy top by symplectic methods: path, order, and energy in long runs with steps of 0.01 s.

Figures 2 and 3 of [celledoni2021].  python examples/02_heavy_top.py [--steps 1000000] [--out heavy_top.png]
"""

import argparse
from itertools import pairwise

import jax
import numpy as np

import lgjax
from lgjax import so3
from lgjax.plot import figure, save

# (formulation, method): on the rotations, and on the larger group where the Hamiltonian is quadratic.
METHODS = {
    "SLGI, θ = 0": ("cotangent", lgjax.SymplecticLie(0.0)),
    "SLGI, θ = 1/2": ("cotangent", lgjax.SymplecticLie(0.5)),
    "SLGI, θ = 1": ("cotangent", lgjax.SymplecticLie(1.0)),
    "SLGIKK, θ = 1/2": ("quadratic", lgjax.SymplecticLie(0.5)),
}
LONG = ("SLGI, θ = 1/2", "SLGI, θ = 0")


def run(system, method, end, steps, save_every=None):
    solve = jax.jit(lambda y: lgjax.integrate(system.space, system.field, y, 0.0, end, steps, method, save_every))
    return solve(system.y0)


def ends(system, method, end, counts):
    """Final states with each number of steps, multiples of the first, by calls of one compiled program."""
    leg = jax.jit(lambda y, a, b: lgjax.integrate(system.space, system.field, y, a, b, counts[0], method, None).ys)
    for n in counts:
        y, times = system.y0, np.linspace(0.0, end, n // counts[0] + 1)
        for a, b in pairwise(times):
            y = jax.tree.map(lambda x: x[0], leg(y, a, b))
        yield y


def attitude(y):
    """Q and π, whichever of the formulations y belongs to."""
    return (y.g, y.mu) if isinstance(y.g, jax.Array) else (y.g[0], y.mu[..., :3])


def weight(top, ys):
    """M l Qᵀ Γ_0, where Γ_0 is the opposite of gravity."""
    p = top.parameters
    return -np.asarray(p["mass"] * p["length"] * so3.coAd(attitude(ys)[0], p["gravity"]))


def main(
    out: str | None = None, steps: int = 6000, counts: tuple[int, ...] = (500, 1000, 2000, 4000), reading="printed"
) -> dict:
    """Errors at 1 s for each number of steps, and relative energy errors of long runs; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    tops = {f: lgjax.systems.heavy_top(f, reading) for f in ("cotangent", "quadratic", "two_sided")}
    exact = run(
        tops["two_sided"], lgjax.MuntheKaas(lgjax.integrators.DORMAND_PRINCE85, scan_stages=True), 1.0, 1000
    ).ys[0][0]
    errors, energies, paths = {}, {}, {}
    for name, (formulation, method) in METHODS.items():
        errors[name] = [
            float(so3.distance(attitude(y)[0], exact)) for y in ends(tops[formulation], method, 1.0, counts)
        ]
        print(f"{name}: errors at 1 s {', '.join(f'{e:.2e}' for e in errors[name])}")
    for name in LONG:
        formulation, method = METHODS[name]
        top, keep = tops[formulation], max(1, steps // 6000)
        taken = steps - steps % keep
        long = run(top, method, 0.01 * taken, taken, keep)
        energy = np.asarray(jax.vmap(top.invariants["energy"])(long.ys))
        slope = np.polyfit(np.linspace(0.0, 1.0, len(energy)), energy, 1)[0]
        energies[name], paths[name] = (np.asarray(long.ts), energy / energy[0] - 1.0), weight(top, long.ys)
        print(
            f"{name}, {taken} steps: relative energy error up to {np.max(np.abs(energies[name][1])):.2e}, "
            f"drift {abs(slope) / np.ptp(energy):.1e} of its oscillation"
        )
    if out:
        draw(out, tops["cotangent"], counts, errors, energies, paths)
    return {"errors": errors, "energies": energies}


def draw(out, top, counts, errors, energies, paths):
    made = figure(14, 8.5)
    fine = run(top, METHODS["SLGI, θ = 1/2"][1], 1.0, 2000, 2)
    axes = made.add_subplot(2, 3, 1, projection="3d")
    axes.plot(*weight(top, fine.ys).T, linewidth=0.5)
    axes.set(title="M l Qᵀ Γ₀ in the first second (N m)")
    axes = made.add_subplot(2, 3, 2)
    axes.plot(fine.ts, so3.act(fine.ys.g, top.parameters["axis"]), label=["x", "y", "z"])
    axes.set(title="axis of the top Q χ", xlabel="t (s)")
    axes.legend()
    axes = made.add_subplot(2, 3, 3)
    h = 1.0 / np.array(counts)
    for (name, error), mark in zip(errors.items(), ("o-", "s-", "^--", "x--"), strict=True):
        axes.loglog(h, error, mark, label=name, markerfacecolor="none")
    for order, name in ((1, "SLGI, θ = 0"), (2, "SLGI, θ = 1/2")):
        axes.loglog(h, 0.5 * errors[name][-1] * (h / h[-1]) ** order, "k:", linewidth=1)
    axes.set(title="error of Q at 1 s (rad); dotted: orders 1 and 2", xlabel="h (s)")
    axes.set_xticks(h, [f"1/{n}" for n in counts])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)
    for i, (name, (ts, energy)) in enumerate(energies.items()):
        axes = made.add_subplot(2, 3, 4 + i)
        axes.plot(ts, energy, ".", markersize=1)
        axes.set(title=f"relative energy error, {name}", xlabel="t (s)")
    axes = made.add_subplot(2, 3, 6, projection="3d")
    for name, path in paths.items():
        axes.plot(*path.T, ".", markersize=0.7, label=name)
    axes.set(title="M l Qᵀ Γ₀ of the long runs (N m)")
    axes.legend(fontsize=8, markerscale=10)
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000, help="of the long runs")
    parser.add_argument("--reading", default="printed", help="of the published numbers: printed, benchmark, ...")
    parser.add_argument("--out", default="heavy_top.png")
    given = parser.parse_args()
    main(given.out, given.steps, reading=given.reading)
