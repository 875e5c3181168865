"""`lgjax bench`: times of the algorithms on this machine, beside those of other programs that are installed."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.cli.arguments import Help, add_model, check_output, fail, load_model, positive_int
from lgjax.cli.bench import peers, roofline, timing
from lgjax.dynamics.partials import forward_dynamics_partials, inverse_dynamics_partials
from lgjax.execution.compiled import logger
from lgjax.execution.cost import kernel_cost
from lgjax.execution.lasting import default_platform
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Model
from lgjax.robots.robot import Robot
from lgjax.simulate.ensemble.spread import Spread, with_memory

STEPS = 10  # of a rollout
DT = 1e-3  # s
COLUMNS = ["function", "program", "dtype", "batch", "us", "low", "high", "per second", "compile s", "first s", "error"]
ROOFS = ["memory", "arithmetic"]


def _rollout(mechanism, q, v, tau):
    """The forces tau act at the joints; of a robot with actuators its numbers are the controls, repeated if need be."""
    actuators = mechanism.actuators if isinstance(mechanism, Robot) else None
    control = tau if actuators is None else jnp.resize(tau, (len(actuators),))
    path = lgjax.rollout(mechanism, q, v, lambda t, q, v: control, DT, STEPS, save_every=None)
    return jax.tree.map(lambda x: x[0], (path.q.joints, path.v))


def _reverse(function: Callable) -> Callable:
    """The gradient of the sum of squares of its results with respect to state and force."""
    square = lambda *args: sum(jnp.sum(x * x) for x in jax.tree.leaves(function(*args)))
    return jax.grad(square, (1, 2, 3))


# name -> (function of (model, q, v, tau), how many evaluations or steps it is)
FUNCTIONS: dict[str, tuple[Callable, int]] = {
    "forward": (lgjax.forward_dynamics, 1),
    "inverse": (lgjax.inverse_dynamics, 1),
    "mass_matrix": (lambda model, q, v, tau: lgjax.mass_matrix(model, q), 1),
    "gradient": (_reverse(lgjax.forward_dynamics), 1),
    "inverse_partials": (inverse_dynamics_partials, 1),
    "forward_partials": (forward_dynamics_partials, 1),
    "rollout": (_rollout, STEPS),
    "rollout_gradient": (_reverse(_rollout), STEPS),
}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        description="Time the algorithms for one model over batch sizes: microseconds per evaluation (rollouts: per "
        "RK4 step), median and quartiles in the steady state, seconds to compile and of the first call, and the "
        "largest difference to float64 relative to the largest entry. Ctrl-C "
        "keeps what there is.",
        formatter_class=Help,
    )
    add_model(parser, nargs="?", default="quadruped")
    parser.add_argument("--functions", default="all", help=f"comma-separated: {', '.join(FUNCTIONS)}")
    parser.add_argument("--batch", help="comma-separated sizes; if not given 1,1024 and on a GPU 65536 as well")
    parser.add_argument("--dtype", default="float32,float64", help="comma-separated: float32, float64")
    parser.add_argument("--specialized", action="store_true", help="the model's parameters as constants")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="leave out other programs")
    parser.add_argument("--quick", action="store_true", help="a first look: one dtype, few repeats, no errors")
    parser.add_argument("--repeats", type=positive_int, default=9, help="blocks of a fifth of a second per time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row with all its times")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    names = _choices("function", args.functions, FUNCTIONS)
    dtypes = _choices("dtype", args.dtype, ("float32", "float64"))
    gpu = default_platform() == "gpu"
    batches = [positive_batch(b) for b in (args.batch or ("1,1024,65536" if gpu else "1,1024")).split(",")]
    if args.json:
        check_output(args.json)
    jax.config.update("jax_enable_x64", True)  # for the reference, too
    mechanism = with_memory(load_model(args), Spread(), DT)
    model = checked_model(mechanism)
    if args.quick:
        dtypes, args.repeats = dtypes[:1], min(args.repeats, 3)
    args.block = 0.02 if args.quick else 0.2  # s
    where, rows, code = timing.environment(lgjax=lgjax.__version__), [], 0
    print(f"{model.name}: {model.nbodies} bodies, nv {model.nv}; {timing.headline(where)}\n", flush=True)
    try:
        for row in measure(mechanism, names, dtypes, batches, args):
            rows.append(row)
            print(
                f"{row['program']}, {row['function']}, {row['dtype']}, batch {row['batch']}: {row['us']:.3g} us",
                flush=True,
            )
            if args.json:
                timing.save(args.json, model.name, where, rows)
    except KeyboardInterrupt:
        code = fail(130, "interrupted; this is what was measured")
    columns = [c for c in [*COLUMNS, *ROOFS] if any(row.get(c) is not None for row in rows)]
    print("\n" + timing.table(rows, columns or COLUMNS))
    if args.json and rows:
        print(f"wrote {args.json}")
    return code


def _choices(what: str, text: str, known) -> list[str]:
    chosen = list(known) if text == "all" else text.split(",")
    for name in chosen:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return chosen


def positive_batch(text: str) -> int:
    """A batch size; ValueError unless it is a positive integer."""
    try:
        return positive_int(text)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"batch: {error}") from None


def states(mechanism: Model | Robot, batch: int) -> tuple:
    """Random (q, v, tau) of a batch, the same for every dtype; of a robot with loops the nearest closed q."""
    model = checked_model(mechanism)
    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    v, tau = jax.random.normal(jax.random.key(1), (2, batch, model.nv), model.dtype)
    if isinstance(mechanism, Robot) and mechanism.loops:
        q = jax.vmap(lambda q: lgjax.project_positions(model, mechanism.loops, q).q)(q)
        v = jax.vmap(lambda q, v: lgjax.project_velocity(model, mechanism.loops, q, v))(q, v)
    return q, v, tau


def cast(tree: Any, dtype: str) -> Any:
    """The same pytree in another floating dtype."""
    return jax.tree.map(lambda x: x.astype(dtype), tree)


def measure(model: Any, names: list[str], dtypes: list[str], batches: list[int], args: Any) -> Iterator[dict[str, Any]]:
    """One row after the other."""
    exact = model.astype("float64")
    for name in names:
        function, count = FUNCTIONS[name]
        for dtype in dtypes:
            error = None if args.quick or dtype == "float64" else float32_error(function, exact)
            chosen = lgjax.specialize(exact.astype(dtype)) if args.specialized else exact.astype(dtype)
            for batch in batches:
                state = cast(states(exact, batch), dtype)
                program = jax.jit(jax.vmap(function, (None, 0, 0, 0)))
                logger.info("%s, %s, batch %d: compiling and timing", name, dtype, batch)
                times, _ = timing.compiled(program, chosen, *state, repeats=args.repeats, block_seconds=args.block)
                row = row_of(name, "lgjax", dtype, batch, count, times) | {"error": error}
                yield row | (roofs_used(name, chosen, state, row) if default_platform() == "gpu" else {})
        whole = isinstance(exact, Robot) and bool(exact.loops or exact.forces or exact.actuators)
        if args.peers and not (whole and name.startswith("rollout")):  # which would move without these parts
            for batch in batches:
                for program, dtype, times in peers.measure(
                    name, checked_model(exact), states(exact, batch), args.repeats
                ):
                    yield row_of(name, program, dtype, batch, count, times)


def row_of(name: str, program: str, dtype: str, batch: int, count: int, times: dict[str, float]) -> dict[str, Any]:
    """A row of the table; times per evaluation in microseconds."""
    each = {k: times[k] / (batch * count) * 1e6 for k in ("median", "low", "high")}
    return {
        "function": name, "program": program, "dtype": dtype, "batch": batch, "us": each["median"], "low": each["low"],
        "high": each["high"], "per second": 1e6 / each["median"], "compile s": times.get("compile"),
        "first s": times.get("first"), "trace s": times.get("trace"), "disturbed": times["disturbed"],
    }  # fmt: skip


def float32_error(function: Callable, model: Any, samples: int = 64) -> float:
    """The largest difference of float32 to float64 over random states, relative to the largest entry of each array."""
    state = states(model, samples)
    run = jax.jit(jax.vmap(function, (None, 0, 0, 0)))
    exact, rough = run(model, *state), run(model.astype("float32"), *cast(state, "float32"))
    worst = lambda a, e: np.abs(np.asarray(a, float) - e).max(initial=0) / np.abs(e).max(initial=1e-300)
    return float(max(jax.tree.leaves(jax.tree.map(worst, rough, exact)), default=0.0))


def roofs_used(name: str, model: Any, state: tuple, row: dict[str, Any]) -> dict[str, float]:
    """The fractions of the device's roofs that a row of the table reaches; none where it is not one kernel."""
    if name not in ("forward", "inverse", "rollout"):
        return {}
    cost, roofs = cost_of(name, model, state), roofline.measured_roofs(row["dtype"])
    return roofline.fractions(cost, row["per second"], roofs)


def cost_of(name: str, model: Any, state: tuple) -> dict[str, Any]:
    """The `kernel_cost` of one evaluation or step."""
    function, count = FUNCTIONS[name]
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state)
    cost = kernel_cost(partial(function, model), *one)
    return cost | {"arithmetic": cost["arithmetic"] / count, "bytes": cost["bytes"] / count}
