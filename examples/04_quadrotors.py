"""Two quadrotors carry a point mass along a parabola: orders, path, deviations, and what keeps the links' lengths.

Figures 13 to 18 of [celledoni2021].  python examples/04_quadrotors.py [--attitude controlled] [--out quadrotors.png]
"""

import argparse
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save
from lgjax.systems import in_coordinates, quadrotors_with_load
from lgjax.systems.quadrotors_with_load import LoadState, desired_directions, parabola

SCAN = {"scan_stages": True}
RKMK4 = lgjax.MuntheKaas(lgjax.RK4, **SCAN)
RKMK5 = lgjax.MuntheKaas(lgjax.DORMAND_PRINCE54, **SCAN)
RKMK8 = lgjax.MuntheKaas(lgjax.integrators.DORMAND_PRINCE85, **SCAN)
METHODS = {
    "Lie-Euler": lgjax.MuntheKaas(lgjax.integrators.LIE_EULER, **SCAN),
    "Lie-Heun": lgjax.MuntheKaas(lgjax.integrators.HEUN2, **SCAN),
    "RKMK3": lgjax.MuntheKaas(lgjax.integrators.RK3, **SCAN),
    "RKMK4": RKMK4,
}


def orders(system, counts, modes, end=1.0):
    """Errors at `end` by the first `modes` methods for each number of steps, multiples of the first.

    The reference runs in coordinates.
    """
    plain = in_coordinates(system)
    exact = jax.jit(lambda y: lgjax.integrate(plain.space, plain.field, y, 0.0, end, 1000, RKMK8, None).ys)(plain.y0)
    errors = {}
    for name, method in list(METHODS.items())[:modes]:
        leg = jax.jit(
            lambda y, a, b, m=method: lgjax.integrate(system.space, system.field, y, a, b, counts[0], m, None).ys
        )
        errors[name] = []
        for n in counts:
            y = system.y0
            for a, b in pairwise(np.linspace(0.0, end, n // counts[0] + 1)):
                y = jax.tree.map(lambda x: x[0], leg(y, a, b))
            parts = zip(jax.tree.leaves(y), exact, strict=True)
            errors[name].append(float(np.sqrt(sum(jnp.sum((a - b[0]) ** 2) for a, b in parts))))
    return errors


def lengths(system, end, steps):
    """Largest | |q|² - 1 | by RKMK4, by classical RK4 with the same steps and by adaptive RK5(4), and RKMK4's run."""
    plain = in_coordinates(system)
    lie = jax.jit(lambda y: lgjax.integrate(system.space, system.field, y, 0.0, end, steps, RKMK4))(system.y0)
    classical = jax.jit(lambda y: lgjax.integrate(plain.space, plain.field, y, 0.0, end, steps, RKMK4).ys)(plain.y0)
    adaptive = jax.jit(
        lambda y: lgjax.integrate_adaptive(plain.space, plain.field, y, 0.0, end, RKMK5, 1e-6, 1e-6, 5000, lie.ts).ys
    )(plain.y0)
    restore = lambda leaves: jax.tree.unflatten(jax.tree.structure(system.y0), leaves)
    runs = {
        "RKMK4": lie.ys,
        "classical RK4": restore(classical),
        "classical RK5(4), tol 1e-6": restore(adaptive),
    }
    defect = lambda ys: np.max(np.abs(jnp.sum(LoadState(*ys).link.q ** 2, axis=-1) - 1.0), axis=-1)
    return lie.ts, LoadState(*lie.ys), {name: defect(ys) for name, ys in runs.items()}


def main(
    out: str | None = None,
    end: float = 5.0,
    steps: int = 500,
    counts: tuple[int, ...] = (32, 64, 128, 256),
    attitude: str = "ideal",
    modes: int = len(METHODS),
) -> dict:
    """Orders, deviations of load and links from what the controllers want, and lengths; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    system = quadrotors_with_load(attitude=attitude)
    errors = orders(system, counts, modes)
    for name, error in errors.items():
        print(f"{name}: errors at 1 s {', '.join(f'{e:.2e}' for e in error)}")
    ts, ys, kept = lengths(system, end, steps)
    wanted = jax.vmap(parabola)(ts)
    wish = lambda t, y: desired_directions(system.parameters, parabola, t, y)
    directions = jax.jit(jax.vmap(wish))(ts, ys)
    deviation = np.linalg.norm(ys.position - wanted, axis=-1)
    turn = np.linalg.norm(ys.link.q - directions, axis=-1)
    print(f"load off its path by {deviation[0]:.2f} m at the start, {deviation[-1]:.1e} m at {end} s")
    print(f"links off their directions by {np.max(turn[0]):.2f} at the start, {np.max(turn[-1]):.1e} at {end} s")
    for name, defect in kept.items():
        print(f"{name}: | |q|² - 1 | < {np.max(defect):.1e}")
    if out:
        draw(out, system, counts, errors, ts, ys, wanted, directions, kept)
    return {"errors": errors, "deviation": deviation, "turn": turn, "lengths": kept}


def draw(out, system, counts, errors, ts, ys, wanted, directions, kept):
    made = figure(16, 9)
    snapshots(made.add_subplot(2, 3, 1, projection="3d"), system, ts, ys, wanted)
    axes = made.add_subplot(2, 3, 2)
    for k, name in enumerate("xyz"):
        axes.plot(ts, ys.position[:, k], color=f"C{k}", label=f"{name} of the load")
        axes.plot(ts, wanted[:, k], "k--", linewidth=0.8, label="wanted" if k == 2 else None)
    axes.set(title="load and its path (m)", xlabel="t (s)")
    axes.legend(fontsize=8)
    axes = made.add_subplot(2, 3, 3)
    axes.plot(ts, ys.position - wanted, label=["x", "y", "z"])
    axes.set(title="deviation of the load (m)", xlabel="t (s)")
    axes.legend(fontsize=8)
    axes = made.add_subplot(2, 3, 4)
    axes.semilogy(ts, np.linalg.norm(ys.link.q - directions, axis=-1), label=["link 1", "link 2"])
    axes.set(title="direction error of the links", xlabel="t (s)")
    axes.legend(fontsize=8)
    axes = made.add_subplot(2, 3, 5)
    for name, defect in kept.items():
        axes.semilogy(ts, defect + 1e-17, linewidth=0.8, label=name)
    axes.set(title="| |q|² - 1 |, the larger of both links", xlabel="t (s)")
    axes.legend(fontsize=8)
    axes = made.add_subplot(2, 3, 6)
    h = 1.0 / np.array(counts)
    for (name, error), mark in zip(errors.items(), "os^v"[: len(errors)], strict=True):
        axes.loglog(h, error, mark + "-", label=name)
    axes.set(title="error at 1 s", xlabel="h (s)")
    axes.set_xticks(h, [f"1/{n}" for n in counts])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)
    save(made, out)


def snapshots(axes, system, ts, ys, wanted):
    """Load, links and quadrotors at six times."""
    axes.plot(*np.asarray(wanted).T, "k--", linewidth=0.8)
    axes.plot(*np.asarray(ys.position).T, "C0")
    quadrotors = ys.position[:, None] - system.parameters["lengths"][:, None] * ys.link.q
    for i in np.linspace(0, len(ts) - 1, 6).astype(int):
        load = np.asarray(ys.position[i])
        axes.plot(*load, "o", color="C0", markersize=5)
        for quadrotor in np.asarray(quadrotors[i]):
            axes.plot(*np.stack([load, quadrotor]).T, color="gray", linewidth=1)
            axes.plot(*quadrotor, "s", color="C3", markersize=4)
    axes.set_aspect("equal")
    axes.locator_params(axis="y", nbins=3)
    axes.locator_params(axis="z", nbins=4)
    axes.set(title="snapshots (m)", xlabel="x", ylabel="y", zlabel="z")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attitude", default="ideal", help="ideal, as in the source, or controlled")
    parser.add_argument("--out", default="quadrotors.png")
    given = parser.parse_args()
    main(given.out, attitude=given.attitude)
