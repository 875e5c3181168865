"""Errors of float32 against float64, algorithm by algorithm, over random batches of states.

    python benchmarks/float32_errors.py [--parts robots,derivatives,motion,systems,groups] [--robots panda] [--out FILE]

An error is the difference of the float32 result to the float64 result of the same states, relative to the largest entry
of that array in the batch; the worst array of a result counts. `largest` and `median` are over the states. `inputs` is
the largest error of float64 itself when its inputs, model and states, are rounded to float32: what no float32 program
can avoid. Nothing here is a time; the same program on the same kind of processor prints the same numbers.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import forward_dynamics
import harness
import numpy as np

COLUMNS = ["part", "what", "of", "largest", "median", "inputs"]
MAGNITUDES = {"1e-9": 1e-9, "1e-3": 1e-3, "1": 1.0, "π - 1e-6": np.pi - 1e-6}  # of rotation vectors, rad
DT = 2e-3  # s, of rollouts
STEPS = 100


def arguments(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", default="panda,go1,talos_reduced")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--order", type=int, default=5, help="the highest time derivative")
    parser.add_argument("--quick", action="store_true", help="the first two lines of every part, small")
    parser.add_argument("--out", help="JSON file")
    options = parser.parse_args(argv)
    options.steps = STEPS
    if options.quick:
        options.robots, options.batch, options.order, options.steps = "chain:2", 4, 1, 3
    return options


# ---- comparing
def cast(tree: Any, dtype: str) -> Any:
    """The same pytree in another floating dtype."""
    import jax

    return jax.tree.map(lambda x: np.asarray(x).astype(dtype) if _floating(x) else x, tree)


def _floating(x) -> bool:
    return np.issubdtype(np.asarray(x).dtype, np.floating)


def errors(make: Callable[[str], Callable], *inputs) -> dict[str, float]:
    """Errors of make("float32") on inputs whose results have a leading axis of states."""
    import jax

    rough = cast(inputs, "float32")
    run = lambda dtype, given: jax.tree.leaves(jax.jit(make(dtype))(*given))
    double = jax.jit(make("float64"))
    exact, shifted = jax.tree.leaves(double(*inputs)), jax.tree.leaves(double(*cast(rough, "float64")))
    single = run("float32", rough)
    if any(_floating(x) and x.dtype != np.float32 for x in single):
        raise TypeError(f"float32 in gives {sorted({str(x.dtype) for x in single})}")
    each = _relative(single, exact)
    return {"largest": each.max(), "median": float(np.median(each)), "inputs": _relative(shifted, exact).max()}


def _relative(found: list, exact: list) -> np.ndarray:
    """The largest error of each state over the arrays of its result."""
    worst = np.zeros(len(exact[0]))
    for a, e in zip(found, exact, strict=True):
        a, e = np.asarray(a, np.float64), np.asarray(e, np.float64)
        if not e.size or not _floating(e):
            continue
        difference = np.abs(a - e).reshape(len(e), -1).max(1)
        worst = np.maximum(worst, np.where(np.isnan(difference), np.inf, difference) / max(np.abs(e).max(), 1e-300))
    return worst


# ---- mechanisms
def load(name: str):
    """(model without damping, random states) in float64."""
    import lgjax

    kind, _, n = name.partition(":")
    return lgjax.models.chain(int(n)) if kind == "chain" else forward_dynamics.load(name)


def inputs_of(model, batch: int) -> tuple:
    """(model, q, v, tau, vdot) of a batch."""
    import jax

    q, v, tau = forward_dynamics.states(model, batch)
    return model, q, v, tau, jax.random.normal(jax.random.key(2), v.shape, v.dtype)


def algorithms(model) -> dict[str, Callable]:
    """name -> function of (model, q, v, tau, vdot)."""
    import jax
    import jax.numpy as jnp

    import lgjax

    last, some = model.nbodies - 1, tuple(range(0, model.nv, 2))
    total = lambda m, q, v, tau: jnp.sum(lgjax.forward_dynamics(m, q, v, tau))
    return {
        "forward dynamics": lambda m, q, v, tau, a: lgjax.forward_dynamics(m, q, v, tau),
        "inverse dynamics": lambda m, q, v, tau, a: lgjax.inverse_dynamics(m, q, v, a),
        "hybrid dynamics, every other prescribed": lambda m, q, v, tau, a: lgjax.hybrid_dynamics(m, q, v, a, tau, some),
        "bias forces": lambda m, q, v, tau, a: lgjax.bias_forces(m, q, v),
        "mass matrix": lambda m, q, v, tau, a: lgjax.mass_matrix(m, q),
        "solve with the mass matrix": lambda m, q, v, tau, a: lgjax.solve_mass_matrix(m, q, tau),
        "Coriolis matrix": lambda m, q, v, tau, a: lgjax.coriolis_matrix(m, q, v),
        "Jacobian of the last body": lambda m, q, v, tau, a: lgjax.jacobian(m, q, last),
        "its time derivative": lambda m, q, v, tau, a: lgjax.jacobian_derivative(m, q, v, last),
        "centroidal momentum matrix": lambda m, q, v, tau, a: lgjax.centroidal_momentum_matrix(m, q),
        "its derivative in time": lambda m, q, v, tau, a: lgjax.centroidal.centroidal_momentum_derivative(m, q, v),
        "kinetic energy": lambda m, q, v, tau, a: lgjax.kinetic_energy(m, q, v),
        "potential energy": lambda m, q, v, tau, a: lgjax.potential_energy(m, q),
        "inverse dynamics, partials": lambda m, q, v, tau, a: tuple(lgjax.inverse_dynamics_partials(m, q, v, a)),
        "forward dynamics, partials": lambda m, q, v, tau, a: tuple(lgjax.forward_dynamics_partials(m, q, v, tau)),
        "forward dynamics, reverse gradient": lambda m, q, v, tau, a: jax.grad(total, (1, 2, 3))(m, q, v, tau),
    }


def batched(function: Callable) -> Callable[[str], Callable]:
    """For `errors`: the function over the states, the model one for all."""
    import jax

    return lambda dtype: lambda model, *state: jax.vmap(partial(function, model))(*state)


def robots(options: argparse.Namespace) -> Iterator[dict]:
    """Algorithms of mechanisms at one instant."""
    for name in options.robots.split(","):
        model = load(name)
        for what, function in algorithms(model).items():
            yield {"what": what, "of": name, **errors(batched(function), *inputs_of(model, options.batch))}


def derivatives(options: argparse.Namespace) -> Iterator[dict]:
    """Time derivatives, every order on its own; those given are random."""
    import jax

    import lgjax

    order = options.order
    inverse = lambda m, q, v, tau: lgjax.inverse_dynamics_time_derivatives(m, q, v, order)
    forward = lambda m, q, v, tau: lgjax.forward_dynamics_time_derivatives(m, q, v[0], tau)
    rows = lambda function: lambda m, *state: tuple(function(m, *state))
    for name in options.robots.split(","):
        model, q, *_ = inputs_of(load(name), options.batch)
        v = jax.random.normal(jax.random.key(3), (options.batch, order + 2, model.nv), model.dtype)
        tau = jax.random.normal(jax.random.key(4), (options.batch, order + 1, model.nv), model.dtype)
        for what, function in (("inverse", inverse), ("forward", forward)):
            for k, found in enumerate(errors_of_each(batched(rows(function)), model, q, v, tau)):
                yield {"what": f"{what} dynamics, time derivative {k}", "of": name, **found}


def errors_of_each(make: Callable[[str], Callable], *inputs) -> list[dict[str, float]]:
    """As `errors`, for each array of the result on its own."""
    import jax

    rough = cast(inputs, "float32")
    double = jax.jit(make("float64"))
    exact, shifted, single = double(*inputs), double(*cast(rough, "float64")), jax.jit(make("float32"))(*rough)
    found = []
    for e, s, a in zip(exact, shifted, single, strict=True):
        each = _relative([a], [e])
        found.append({"largest": each.max(), "median": float(np.median(each)), "inputs": _relative([s], [e]).max()})
    return found


def motion(options: argparse.Namespace) -> Iterator[dict]:
    """Rollouts without forces."""
    import lgjax

    def end(model, q, v):
        path = lgjax.rollout(model, q, v, None, DT, options.steps, save_every=None)
        return path.q, path.v

    for name in options.robots.split(","):
        found = errors(batched(end), *inputs_of(load(name), options.batch)[:3])
        yield {"what": f"RK4 rollout, {options.steps} steps of {DT} s", "of": name, **found}


# ---- ready systems
def spread(options: argparse.Namespace, n: int, size: float = 0.1) -> np.ndarray:
    """Relative changes (batch, n) of starts."""
    return 1.0 + size * np.random.default_rng(0).uniform(-1.0, 1.0, (options.batch, n))


def systems(options: argparse.Namespace) -> Iterator[dict]:
    """Integrators on the heavy top, bodies that bounce, closed loops."""
    steps, top = options.steps, "heavy top"
    for what, make in heavy_tops(steps).items():
        spins = np.array([0.0, 150.0, -4.61538]) * spread(options, 3, 0.02)
        yield {"what": f"{what}, {steps} steps of 0.001 s", "of": top, **errors(make, spins)}
    momenta = np.array([4.0, -4.0, 4.0]) * spread(options, 3)
    yield {"what": f"variational, {steps} steps of 0.01 s", "of": "thrown body", **errors(flying(steps), momenta)}
    for case in ("ellipsoid", "union", "cube"):
        found = errors(bouncing(case, 3 * steps), momenta)
        yield {"what": f"bounce, {3 * steps} steps of 0.01 s", "of": case, **found}
    yield from closed_loops(options)


def closed_loops(options: argparse.Namespace) -> Iterator[dict]:
    """Forward dynamics of mechanisms with loops, from states that close."""
    import jax

    import lgjax
    from lgjax.systems import closed_loops as ready

    def start(system, key):
        change, speed = 0.2 * jax.random.normal(key, (2, system.model.nv), system.model.dtype)
        q = lgjax.retract(system.model, system.q0, change)
        q = lgjax.project_positions(system.model, system.loops, q).q
        return q, lgjax.project_velocity(system.model, system.loops, q, 5 * speed)

    def vdot(model, loops, q, v, tau):
        found = lgjax.constrained_forward_dynamics(model, loops, q, v, tau)
        return found.vdot, found.multipliers if hasattr(found, "multipliers") else ()

    keys = jax.random.split(jax.random.key(5), options.batch)
    for name in ("four_bar", "stewart_platform"):
        system = getattr(ready, name)(dtype="float64")
        q, v = jax.jit(jax.vmap(partial(start, system)))(keys)
        tau = jax.random.normal(jax.random.key(6), v.shape, v.dtype)
        make = lambda dtype: jax.vmap(vdot, (None, None, 0, 0, 0))
        yield {
            "what": "closed-loop forward dynamics",
            "of": name,
            **errors(make, system.model, system.loops, q, v, tau),
        }


def heavy_tops(steps: int) -> dict[str, Callable[[str], Callable]]:
    """name -> for `errors`, a function of angular velocities (batch, 3) at the start."""
    import jax

    import lgjax
    from lgjax.systems import heavy_top, heavy_top_maximal

    methods = {
        "RKMK4, left translation": ("spatial", lgjax.MuntheKaas(lgjax.RK4, scan_stages=True)),
        "RKMK4, two-sided": ("two_sided", lgjax.MuntheKaas(lgjax.RK4, scan_stages=True)),
        "CF4, left translation": ("spatial", lgjax.CommutatorFree(lgjax.CF4)),
        "symplectic": ("cotangent", lgjax.SymplecticLie()),
    }
    end = 1e-3 * steps

    def explicit(formulation: str, method: Any) -> Callable[[str], Callable]:
        def one(dtype, spin):
            s = heavy_top(formulation, angular_velocity=spin, dtype=dtype)
            return lgjax.integrate(s.space, s.field, s.y0, 0.0, end, steps, method, save_every=None).ys

        return lambda dtype: jax.vmap(partial(one, dtype))

    def implicit(dtype, spin):
        s = heavy_top_maximal(angular_velocity=spin, dtype=dtype)
        path = lgjax.maximal.integrate(s.system, s.q0, s.v0, 0.0, end, steps, save_every=None)
        return path.q, path.v

    explicit_ones = {name: explicit(*method) for name, method in methods.items()}
    return explicit_ones | {"generalized-alpha": lambda dtype: jax.vmap(partial(implicit, dtype))}


def flying(steps: int) -> Callable[[str], Callable]:
    """For `errors`: the free flight of a body from angular momenta (batch, 3) by the variational integrator."""
    import jax

    from lgjax.collisions.variational import variational_step
    from lgjax.systems import bouncing_body

    def one(dtype, momentum):
        p = bouncing_body(dtype=dtype)
        step = lambda state, _: (variational_step(p.body, state, p.dt)[0], None)
        return jax.lax.scan(step, p.state._replace(angular=momentum), None, steps)[0]

    return lambda dtype: jax.vmap(partial(one, dtype))


def bouncing(case: str, steps: int) -> Callable[[str], Callable]:
    """For `errors`: bodies thrown up with angular momenta (batch, 3), and what they are after one impact or more."""
    import jax

    import lgjax
    from lgjax.systems import bouncing_body

    def one(dtype, momentum):
        p = bouncing_body(case, dtype=dtype)
        start = p.state._replace(angular=momentum)
        return lgjax.collisions.bounce(p.body, p.shape, p.planes, start, p.dt, steps, save_every=None).states

    return lambda dtype: jax.vmap(partial(one, dtype))


# ---- groups
def groups(options: argparse.Namespace) -> Iterator[dict]:
    """exp, log and dexp for rotation vectors of several lengths; the other components are of order 1."""
    import jax

    import lgjax

    every = [lgjax.SO3, lgjax.S3, lgjax.SE3, lgjax.R3xSO3, lgjax.Rn(4)]
    every += [lgjax.groups.cotangent_group(lgjax.SO3), lgjax.groups.cotangent_group(lgjax.SE3)]
    for group in every:
        draw = np.random.default_rng(1).normal(size=(2, options.batch, group.dim))
        for label, size in MAGNITUDES.items():
            u = draw[0].copy()
            u[:, :3] *= size / np.linalg.norm(u[:, :3], axis=1, keepdims=True)
            cases = {"exp": (group.exp, u), "dexp": (group.dexp, u, draw[1]), "log": (group.log, jax.jit(group.exp)(u))}
            for what, (function, *given) in cases.items():
                yield {"what": f"{what}, {label}", "of": group.name, **errors(lambda _, f=function: f, *given)}


PARTS = {f.__name__: f for f in (robots, derivatives, motion, systems, groups)}


def compact(rows: list[dict]) -> str:
    """Tables of `largest, median (inputs)`: algorithms by robots; systems, a line each; groups, `largest` alone."""
    whole = lambda row: f"{row['largest']:.1e}, {row['median']:.1e} ({row['inputs']:.1e})"
    text = lambda row: f"{row['largest']:.1e}" if row["part"] == "groups" else whole(row)
    blocks = []
    for part in dict.fromkeys(row["part"] for row in rows):
        own = [row for row in rows if row["part"] == part]
        if part == "systems":
            lines = [{"what": row["what"], "of": row["of"], "error": text(row)} for row in own]
            blocks.append(harness.table(lines, ["what", "of", "error"]))
            continue
        columns = list(dict.fromkeys(row["of"] for row in own))
        lines = {row["what"]: {"what": row["what"]} for row in own}
        for row in own:
            lines[row["what"]][row["of"]] = text(row)
        blocks.append(harness.table(lines.values(), ["what", *columns]))
    return "\n\n".join(blocks)


def main(argv=None) -> list[dict]:
    options = arguments(argv)
    import jax

    jax.config.update("jax_enable_x64", True)
    rows = []
    for part in options.parts.split(","):
        for row in itertools.islice(PARTS[part](options), 2 if options.quick else None):
            rows.append({"part": part, **row})
            print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    harness.report("float32_errors", rows, COLUMNS, options.out)
    print("\n`largest, median (inputs)`:\n\n" + compact(rows))
    return rows


if __name__ == "__main__":
    main()
