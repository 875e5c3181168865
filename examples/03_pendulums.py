"""Chains of spherical pendulums: orders, staying on (TS²)^N, and constant against adaptive steps for growing N.

Figures 5 to 11 of [celledoni2021].  python examples/03_pendulums.py [--out pendulums.png]
"""

import argparse
import pathlib
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save
from lgjax.systems import in_coordinates, spherical_pendulum

SCAN = {"scan_stages": True}
RKMK4 = lgjax.MuntheKaas(lgjax.RK4, **SCAN)
RKMK5 = lgjax.MuntheKaas(lgjax.DORMAND_PRINCE54, **SCAN)
RKMK8 = lgjax.MuntheKaas(lgjax.integrators.DORMAND_PRINCE85, **SCAN)
METHODS = {
    "Lie-Euler": lgjax.MuntheKaas(lgjax.integrators.LIE_EULER, **SCAN),
    "Lie-Heun": lgjax.MuntheKaas(lgjax.integrators.HEUN2, **SCAN),
    "RKMK3": lgjax.MuntheKaas(lgjax.integrators.RK3, **SCAN),
    "RKMK4": RKMK4,
    "RKMK4, truncated": lgjax.MuntheKaas(lgjax.RK4, commutators=2, **SCAN),
    "RKMK4, two commutators": lgjax.MuntheKaas(lgjax.integrators.RK4_TWO_COMMUTATORS, **SCAN),
    "CF4": lgjax.CommutatorFree(lgjax.CF4),
}
LENGTHS = {"L = 1": lambda n: 1.0, "L = 5/N": lambda n: 5.0 / n}


def difference(a, b):
    """Euclidean distance of two states in R⁶ⁿ."""
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return float(np.sqrt(sum(np.sum((np.asarray(x) - np.asarray(y)) ** 2) for x, y in leaves)))


def last(ys):
    return jax.tree.map(lambda x: x[-1], ys)


def orders(counts, modes, end=1.0):
    """Errors of a chain of two by the first `modes` methods for each number of steps, multiples of the first.

    The reference runs in coordinates.
    """
    chain = spherical_pendulum(2)
    plain = in_coordinates(chain)
    exact = jax.jit(lambda y: lgjax.integrate(plain.space, plain.field, y, 0.0, end, 1000, RKMK8, None).ys)(plain.y0)
    errors = {}
    for name, method in list(METHODS.items())[:modes]:
        leg = jax.jit(
            lambda y, a, b, m=method: lgjax.integrate(chain.space, chain.field, y, a, b, counts[0], m, None).ys
        )
        errors[name] = []
        for n in counts:
            y = chain.y0
            for a, b in pairwise(np.linspace(0.0, end, n // counts[0] + 1)):
                y = last(leg(y, a, b))
            errors[name].append(difference(y, last(exact)))
    return errors


def violations(q, omega):
    """Largest | |q|² - 1 | and |q·ω| over the chain, at every time."""
    length = jnp.max(jnp.abs(jnp.sum(q * q, axis=-1) - 1.0), axis=-1)
    return np.asarray(length), np.asarray(jnp.max(jnp.abs(jnp.sum(q * omega, axis=-1)), axis=-1))


def preservation(end=5.0, steps=1000):
    """Violations of the space by RKMK4, by classical RK4 with the same steps and by adaptive RK5(4), out of plane."""
    directions = np.array([[0.6, 0.0, 0.8], [0.0, -0.6, -0.8]])
    chain = spherical_pendulum(2, q=directions, omega=[[0.0, 1.5, 0.0], [2.0, 0.8, -0.6]])
    plain = in_coordinates(chain)
    lie = lgjax.integrate(chain.space, chain.field, chain.y0, 0.0, end, steps, RKMK4)
    classical = lgjax.integrate(plain.space, plain.field, plain.y0, 0.0, end, steps, RKMK4)
    adaptive = jax.jit(
        lambda y: lgjax.integrate_adaptive(plain.space, plain.field, y, 0.0, end, RKMK5, 1e-6, 1e-6, 2000, lie.ts)
    )(plain.y0)
    runs = {"RKMK4": lie.ys, "classical RK4": classical.ys, "classical RK5(4), tol 1e-6": adaptive.ys}
    return lie.ts, {name: violations(*ys) for name, ys in runs.items()}


def compare(n, end=3.0, tolerance=1e-6):
    """Adaptive RKMK 5(4) against as many constant steps of RKMK5 and RK5(4) in coordinates, for both lengths.

    Keys: the errors of "adaptive" and "constant", the "times" of the adaptive run and of that in coordinates, and
    (times, states) of the "reference run", "adaptive run" and "constant run".
    """
    results, samples = {}, np.linspace(0.0, end, 601)

    @jax.jit
    def exactly(length):
        plain = in_coordinates(spherical_pendulum(n, lengths=length))
        return lgjax.integrate_adaptive(
            plain.space, plain.field, plain.y0, 0.0, end, RKMK8, 1e-12, 1e-12, 50_000, samples
        )

    @jax.jit
    def adaptively(length):
        chain = spherical_pendulum(n, lengths=length)
        return lgjax.integrate_adaptive(
            chain.space, chain.field, chain.y0, 0.0, end, RKMK5, tolerance, tolerance, 4000, samples
        )

    @jax.jit
    def classically(length):
        plain = in_coordinates(spherical_pendulum(n, lengths=length))
        return lgjax.integrate_adaptive(plain.space, plain.field, plain.y0, 0.0, end, RKMK5, tolerance, tolerance, 4000)

    for name, length in LENGTHS.items():
        exact, run, plain = (f(length(n)) for f in (exactly, adaptively, classically))
        assert exact.success
        assert run.success
        steps = int(run.accepted)
        chain = spherical_pendulum(n, lengths=length(n))
        solve = jax.jit(lambda y, c=chain, k=steps: lgjax.integrate(c.space, c.field, y, 0.0, end, k, RKMK5))
        fixed = solve(chain.y0)
        results[name] = {
            "adaptive": difference(last(run.ys), last(exact.ys)),
            "constant": difference(last(fixed.ys), last(exact.ys)),
            "times": np.asarray(run.times)[: steps + 1],
            "times in coordinates": np.asarray(plain.times)[: int(plain.accepted) + 1],
            "reference run": (exact.ts, lgjax.groups.TangentPoint(*exact.ys)),
            "adaptive run": run[:2],
            "constant run": fixed[:2],
        }
        r = results[name]
        print(f"{name}, N = {n}: adaptive {r['adaptive']:.2e}, constant {r['constant']:.2e}, {steps} steps")
    return results


def turn_errors(r, start=2.1):
    """Largest error of any ω_y from `start` on: of the adaptive run, and of the constant steps at their own times."""
    times, states = r["reference run"]
    exact = np.asarray(states.omega)[..., 1]
    errors = {}
    for kind in ("adaptive", "constant"):
        ts, ys = r[f"{kind} run"]
        late = np.asarray(ts) > start
        there = np.stack([np.interp(ts, times, column) for column in exact.T], axis=1)
        errors[kind] = float(np.max(np.abs(np.asarray(ys.omega)[..., 1] - there)[late]))
    return errors


def main(
    out: str | None = None,
    sizes: tuple[int, ...] = tuple(range(2, 21, 2)),
    counts: tuple[int, ...] = (32, 64, 128, 256),
    modes: int = len(METHODS),
) -> dict:
    """Orders for N = 2, violations of the space, and the comparison for L = 1 and L = 5/N; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    errors = orders(counts, modes)
    for name, error in errors.items():
        print(f"{name}: errors at 1 s {', '.join(f'{e:.2e}' for e in error)}")
    ts, kept = preservation()
    for name, (length, tangent) in kept.items():
        print(f"{name}: | |q|² - 1 | < {np.max(length):.1e}, |q·ω| < {np.max(tangent):.1e}")
    runs = {n: compare(n) for n in sizes}
    turn = turn_errors(runs[min(sizes)]["L = 1"])
    print(
        f"N = {min(sizes)}, ω_y after 2.1 s: adaptive off by {turn['adaptive']:.1e}, constant by {turn['constant']:.1e}"
    )
    if out:
        chain = spherical_pendulum(4)
        draw(out, counts, errors, ts, kept, runs)
        swing = lgjax.integrate(chain.space, chain.field, chain.y0, 0.0, 5.0, 500, RKMK4)
        lgjax.view.picture(chain, swing, pathlib.Path(out).with_suffix(".gif"), size=(300, 300), fps=14)
    return {"errors": errors, "violations": kept, "runs": runs, "turn": turn}


def draw(out, counts, errors, ts, kept, runs):
    made = figure(20, 13)
    grid = made.add_gridspec(3, 20)
    first, second, third, fourth = (made.add_subplot(grid[0, i : i + 5]) for i in range(0, 20, 5))
    h = 1.0 / np.array(counts)
    for (name, error), mark in zip(errors.items(), "os^vDx+"[: len(errors)], strict=True):
        first.loglog(h, error, mark + "-", label=name, markerfacecolor="none")
    first.set(title="error at 1 s, N = 2", xlabel="h (s)")
    first.set_xticks(h, [f"1/{n}" for n in counts])
    first.set_xticks([], minor=True)
    for name, (length, tangent) in kept.items():
        second.semilogy(ts, length + 1e-17, linewidth=0.7, label=name)
        third.semilogy(ts, tangent + 1e-17, linewidth=0.7, label=name)
    second.set(title="| |q|² - 1 |, N = 2", xlabel="t (s)")
    third.set(title="|q·ω|, N = 2", xlabel="t (s)")
    for name, color in zip(LENGTHS, ("C0", "C1"), strict=True):
        for kind, mark in (("adaptive", "o-"), ("constant", "x--")):
            label = f"{kind}, {name}"
            fourth.semilogy(list(runs), [r[name][kind] for r in runs.values()], mark, color=color, label=label)
    fourth.set(title="error at 3 s", xlabel="N")
    fourth.set_xticks(list(runs))
    for axes in (first, second, third, fourth):
        axes.legend(fontsize=7, loc="lower right" if axes is first else "best")
    small, large = min(runs), max(runs)
    middle = [made.add_subplot(grid[1, i : i + 4]) for i in range(0, 20, 4)]
    steps(middle[0], runs[large], "L = 1", f"steps (s), N = {large}, L = 1")
    steps(middle[1], runs[large], "L = 5/N", f"steps (s), N = {large}, L = 5/N")
    steps(middle[2], runs[small], "L = 1", f"steps (s), N = {small}, L = 1")
    zoom(middle[3], runs[small]["L = 1"], f"ω_y (rad/s) after 2.1 s, N = {small}")
    accelerations(middle[4], small, runs[small]["L = 1"])
    for i in range(2):
        components(made.add_subplot(grid[2, 10 * i : 10 * i + 10]), i, small, runs[small]["L = 1"])
    save(made, out)


def steps(axes, by_length, name, title):
    """Sizes of the steps of the three runs."""
    r = by_length[name]
    for label, times in (("RKMK 5(4)", r["times"]), ("RK 5(4) in coordinates", r["times in coordinates"])):
        axes.semilogy(times[:-1], np.diff(times), linewidth=0.8, label=label)
    constant = r["times"][-1] / (len(r["times"]) - 1)
    axes.axhline(constant, color="black", linestyle=":", label="RKMK 5, constant")
    axes.set(title=title, xlabel="t (s)")
    axes.legend(fontsize=7)


def three_runs(axes, r, pick, color, name):
    """One component along the reference (line), the adaptive run (dashes) and the constant steps (dots)."""
    for kind, line in (("reference", "-"), ("adaptive", "--"), ("constant", ".")):
        ts, ys = r[f"{kind} run"]
        width = {"linewidth": 0.8, "alpha": 0.5} if kind == "reference" else {"linewidth": 1.2, "markersize": 4}
        axes.plot(ts, pick(ys), line, color=color, label=name if kind == "adaptive" else None, **width)


def zoom(axes, r, title, start=2.1):
    """The second components of the angular velocities in the last part of the run."""
    late = lambda run: (run[0][run[0] >= start], jax.tree.map(lambda x: x[run[0] >= start], run[1]))
    part = {name: late(r[name]) for name in ("reference run", "adaptive run", "constant run")}
    for i in range(2):
        three_runs(axes, part, lambda ys, i=i: ys.omega[:, i, 1], f"C{i}", f"body {i + 1}")
    axes.set(title=title, xlabel="t (s)")
    axes.legend(fontsize=7)


def accelerations(axes, n, r):
    """Second components of the angular accelerations along the adaptive run."""
    chain = spherical_pendulum(n)
    ts, ys = r["adaptive run"]
    xi = jax.jit(jax.vmap(chain.field))(ts, ys)
    rates = jnp.cross(xi[..., 3:], ys.q)  # ω' = ξ × ω + η × q with ξ = ω
    for i in range(min(n, 2)):
        axes.plot(ts, rates[:, i, 1], label=f"body {i + 1}")
    axes.set(title=f"ω_y' (rad/s²), N = {n}", xlabel="t (s)")
    axes.legend(fontsize=7)


def components(axes, i, n, r):
    """The six components of body i by the three runs."""
    for k, name in enumerate(("q_x", "q_y", "q_z", "ω_x", "ω_y", "ω_z")):
        three_runs(axes, r, lambda ys, k=k: (ys.q if k < 3 else ys.omega)[:, i, k % 3], f"C{k}", name)
    axes.set(title=f"body {i + 1} of {n}: reference (lines), adaptive (dashes), constant steps (dots)", xlabel="t (s)")
    axes.legend(fontsize=7, ncols=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="pendulums.png")
    main(parser.parse_args().out)
