"""Chains of spherical pendulums: staying on (TS²)^N, and constant against adaptive steps for growing N.

Figures 6 to 8, 10 and 11 of [celledoni2021].  python examples/03_pendulums.py [--out pendulums.png]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

RKMK4 = lgjax.MuntheKaas(lgjax.RK4, scan_stages=True)
RKMK5 = lgjax.MuntheKaas(lgjax.DORMAND_PRINCE54, scan_stages=True)


def classical(system):
    """The same field on plain R⁶ⁿ, as a classical Runge-Kutta method sees it."""

    def field(t, y):
        q, omega = y
        xi = system.field(t, lgjax.TangentPoint(q, omega))
        return jnp.cross(xi[:, :3], q), jnp.cross(xi[:, :3], omega) + jnp.cross(xi[:, 3:], q)

    space = lgjax.product_space(lgjax.vector_space(3), lgjax.vector_space(3))
    return space, field, (system.y0.q, system.y0.omega)


def violations(q, omega):
    """Largest | |q| - 1 | and |q·ω| over the chain, at every time."""
    length = jnp.max(jnp.abs(jnp.linalg.norm(q, axis=-1) - 1.0), axis=-1)
    return np.asarray(length), np.asarray(jnp.max(jnp.abs(jnp.sum(q * omega, axis=-1)), axis=-1))


def preservation(end=5.0, steps=1000):
    """Violations of the space by RKMK4 and by classical RK4 with the same steps, out of plane, N = 2."""
    directions = np.array([[0.6, 0.0, 0.8], [0.0, -0.6, -0.8]])
    chain = lgjax.systems.spherical_pendulum(2, q=directions, omega=[[0.0, 1.5, 0.0], [2.0, 0.8, -0.6]])
    lie = lgjax.integrate(chain.space, chain.field, chain.y0, 0.0, end, steps, RKMK4)
    space, field, y0 = classical(chain)
    plain = lgjax.integrate(space, field, y0, 0.0, end, steps, RKMK4)
    return lie.ts, {"RKMK4": violations(*lie.ys), "classical RK4": violations(*plain.ys)}


def compare(n, length, end=3.0, tolerance=1e-6):
    """Errors in R⁶ⁿ of adaptive RKMK 5(4) and of as many constant steps, and the adaptive run's times."""
    chain = lgjax.systems.spherical_pendulum(n, lengths=length)
    adaptive = jax.jit(
        lambda tol: lgjax.integrate_adaptive(chain.space, chain.field, chain.y0, 0.0, end, RKMK5, tol, tol, 4000)
    )
    exact, run = adaptive(1e-11), adaptive(tolerance)
    steps = int(run.accepted)
    fixed = jax.jit(lambda y: lgjax.integrate(chain.space, chain.field, y, 0.0, end, steps, RKMK5, None).ys)(chain.y0)
    error = lambda ys: float(chain.space.distance(*(jax.tree.map(lambda x: x[0], z) for z in (ys, exact.ys))))
    return {"adaptive": error(run.ys), "constant": error(fixed), "times": np.asarray(run.times)[: steps + 1]}


def main(out: str | None = None, sizes: tuple[int, ...] = (2, 4, 8, 12, 16, 20)) -> dict:
    """Violations of the space, and the comparison for L = 1 and L = 5/N; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    ts, kept = preservation()
    runs = {name: {n: compare(n, length(n)) for n in sizes} for name, length in
            {"L = 1": lambda n: 1.0, "L = 5/N": lambda n: 5.0 / n}.items()}  # fmt: skip
    for name, by_size in runs.items():
        for n, r in by_size.items():
            print(
                f"{name}, N = {n}: adaptive {r['adaptive']:.2e}, constant {r['constant']:.2e}, {len(r['times'])} times"
            )
    if out:
        draw(out, ts, kept, runs)
    return {"violations": kept, "runs": runs}


def draw(out, ts, kept, runs):
    made = figure(15, 4.5)
    first, second = made.add_subplot(1, 4, 1), made.add_subplot(1, 4, 2)
    for name, (length, tangent) in kept.items():
        first.semilogy(ts, length + 1e-17, label=name)
        second.semilogy(ts, tangent + 1e-17, label=name)
    first.set(title="| |q| - 1 |", xlabel="t (s)")
    second.set(title="|q·ω|", xlabel="t (s)")
    first.legend()
    third, fourth = made.add_subplot(1, 4, 3), made.add_subplot(1, 4, 4)
    for name, by_size in runs.items():
        for kind, mark in (("adaptive", "o-"), ("constant", "x--")):
            third.semilogy(list(by_size), [r[kind] for r in by_size.values()], mark, label=f"{kind}, {name}")
        smallest = by_size[min(by_size)]["times"]
        fourth.semilogy(smallest[:-1], np.diff(smallest), label=f"N = {min(by_size)}, {name}")
    third.set(title="error at 3 s", xlabel="N")
    fourth.set(title="adaptive steps (s)", xlabel="t (s)")
    third.legend()
    fourth.legend()
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="pendulums.png")
    main(parser.parse_args().out)
