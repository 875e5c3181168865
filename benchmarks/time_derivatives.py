"""Time derivatives of inverse and forward dynamics: cost against order and number of bodies, beside other ways to them.

    python benchmarks/time_derivatives.py [--parts order,bodies,single] [--out FILE] [--plot FILE]

order    5 branches of 20 bodies on a floating base, orders 0 ... r together, microseconds per sample of a batch; both
         frames, and the body frame in float32; Pinocchio's rnea and aba (order 0, C++ batch call) in the same run.
bodies   7 bodies (an aerial manipulator), then 5 k + 1 up to 501, order 2.
single   one evaluation on the tree of `order`: lgjax, jax.jvp nested over the library's own order-0 algorithms, and
         CasADi (`casadi_dynamics.py`): recursive Newton-Euler and articulated bodies in SX, the motion as polynomials
         of t, jtimes, no JIT, mean of 1000 calls after warming up, the making of the graph apart. Nested jvp of
         forward dynamics stops two orders earlier.

One core. The slope is that of a straight line through log(time) against log(order + 1) or log(bodies).
"""

import argparse
import itertools
import math
from functools import partial

import casadi_dynamics
import harness

from lgjax.execution import plain

COLUMNS = ["part", "what", "how", "dtype", "bodies", "order", "batch", "us", "low", "high", "x pinocchio", "trace s",
           "compile s", "disturbed"]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="order,bodies,single")
    parser.add_argument("--orders", default="0,1,2,3,4,5,8")
    parser.add_argument("--nested", type=int, default=5, help="highest order of the other ways (default: %(default)s)")
    parser.add_argument("--jvp", type=int, default=4, help="highest order of nested jvp, which compiles for minutes")
    parser.add_argument("--casadi-forward", type=int, default=3, help="highest order of CasADi's forward dynamics")
    parser.add_argument("--frames", default="body,spatial")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--branches", type=int, default=5)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sizes", default="1,5,10,20,40,60,100", help="bodies of a branch, part bodies")
    parser.add_argument("--out", help="JSON file for the rows")
    parser.add_argument("--plot", help="draw the rows, as Figure 4 of [ali2026], into this file")
    return parser.parse_args()


def motion(model, order: int, batch: int):
    """Configurations, velocity stacks and force stacks; derivatives grow like those of smooth motions."""
    import jax
    import jax.numpy as jnp

    import lgjax

    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    scale = jnp.asarray([math.factorial(k) for k in range(order + 2)], model.dtype)[:, None]
    v, tau = jax.random.normal(jax.random.key(1), (2, batch, order + 2, model.nv), model.dtype) * scale
    return q, v, tau[:, :-1]


def functions(order: int, frame: str):
    import lgjax

    return {
        "inverse": lambda model, q, v, tau: lgjax.inverse_dynamics_time_derivatives(model, q, v, order, frame),
        "forward": lambda model, q, v, tau: lgjax.forward_dynamics_time_derivatives(model, q, v[0], tau, frame),
    }


def measured(options, part: str, model, order: int, frame: str, dtype: str, what: str, batch: int) -> dict:
    import jax

    model, (q, v, tau) = jax.tree.map(lambda x: x.astype(dtype), (model, motion(model, order, batch)))
    program = jax.jit(jax.vmap(functions(order, frame)[what], (None, 0, 0, 0)))
    times, _ = harness.compiled(program, model, q, v, tau, repeats=options.repeats)
    return row(part, what, f"lgjax {frame}", dtype, model.nbodies, order, batch, times)


def row(part, what, how, dtype, bodies, order, batch, times) -> dict:
    us = {name: times[key] / batch * 1e6 for name, key in (("us", "median"), ("low", "low"), ("high", "high"))}
    shape = {"part": part, "what": what, "how": how, "dtype": dtype, "bodies": bodies, "order": order, "batch": batch}
    known = {f"{k} s": times[k] for k in ("trace", "compile") if k in times}
    return {**shape, **us, **known, "disturbed": times.get("disturbed")}


# ---- other ways
def pinocchio_model(model):
    import numpy as np
    import pinocchio as pin

    joint = {"free": pin.JointModelFreeFlyer, "revolute": pin.JointModelRZ}
    theirs, joints = pin.Model(), []
    for i, (parent, kind) in enumerate(zip(model.tree.parents, model.tree.kinds, strict=True)):
        at = pin.SE3(*(np.asarray(x[i]) for x in model.placements))
        joints.append(theirs.addJoint(joints[parent] if parent >= 0 else 0, joint[kind.name](), at, f"j{i}"))
        mass, moment, second = (np.asarray(x[i]) for x in model.inertias)
        c = moment / mass
        about = second - mass * (c @ c * np.eye(3) - np.outer(c, c))
        theirs.appendBodyToJoint(joints[-1], pin.Inertia(float(mass), c, about), pin.SE3.Identity())
    return theirs


def pinocchio_rows(options, part: str, model):
    """Order 0 of both, in batches as Pinocchio offers them."""
    import numpy as np
    import pinocchio as pin

    from lgjax.multibody.conventions import to_pinocchio

    theirs = pinocchio_model(model)
    pool = pin.ModelPool(theirs, 1)
    q, v, tau = motion(model, 0, options.batch)
    order = {"order": list(model.tree.joint_names), "continuous": []}
    for what, call in (("inverse", pin.rneaInParallel), ("forward", pin.abaInParallel)):
        flat = to_pinocchio(model, q, v[:, 0], v[:, 1], tau[:, 0], **order)
        last = flat.vdot if what == "inverse" else flat.tau
        columns = [np.asfortranarray(np.asarray(x).T) for x in (flat.q, flat.v, last)]
        out = np.zeros((theirs.nv, options.batch), order="F")
        times = harness.steady(partial(call, 1, pool, *columns, out), options.repeats)
        yield row(part, what, "Pinocchio", "float64", model.nbodies, 0, options.batch, times)


def nested(order: int, what: str):
    """All orders by nesting jax.jvp along the motion, in the body frame."""
    import jax
    import jax.numpy as jnp

    import lgjax

    polynomial = lambda stack, t: sum(x * t**k / math.factorial(k) for k, x in enumerate(stack))

    def inverse(model, q, v, tau):
        def rate(q, t):
            return polynomial(v, t)

        def force(q, t):
            slope = polynomial(v[1:], t)
            return plain()(lgjax.inverse_dynamics)(model, q, rate(q, t), slope)

        def along(f):
            return lambda q, t: jax.jvp(lambda s: f(lgjax.retract(model, q, s * rate(q, t)), t + s), (0.0,), (1.0,))[1]

        return _stack(force, along, (q, 0.0))

    def forward(model, q, v, tau):
        def acceleration(q, v, t):
            return plain()(lgjax.forward_dynamics)(model, q, v, polynomial(tau, t))

        def along(f):
            def derivative(q, v, t):
                step = lambda s: f(lgjax.retract(model, q, s * v), v + s * acceleration(q, v, t), t + s)
                return jax.jvp(step, (0.0,), (1.0,))[1]

            return derivative

        return _stack(acceleration, along, (q, v[0], 0.0))

    def _stack(f, along, at):
        out = [f]
        for _ in range(order):
            out.append(along(out[-1]))
        return jnp.stack([g(*at) for g in out])

    return {"inverse": inverse, "forward": forward}[what]


def casadi_row(what: str, model, order: int, cse: bool, given, expected) -> dict:
    """Values are checked against `expected` (order + 1, nv)."""
    import numpy as np

    function, making = casadi_dynamics.FUNCTIONS[what](model, order, cse)
    stacks = casadi_dynamics.ARGUMENTS[what](model, order, *given)
    result = np.array(function(*stacks)).T
    error = np.max(np.abs(result - expected)) / np.max(np.abs(expected))
    if not error < 1e-9:
        raise AssertionError(f"CasADi's {what} dynamics at order {order} differ by {error:.2g}")
    mean = casadi_dynamics.seconds_per_call(function, stacks)
    times = {"median": mean, "low": mean, "high": mean, "compile": making}
    how = "CasADi, cse" if cse else "CasADi"
    return row("single", what, how, "float64", model.nbodies, order, 1, times)


# ---- parts
def order_rows(options):
    import lgjax

    model = lgjax.models.branched_tree(options.branches, options.length)
    yield from pinocchio_rows(options, "order", model)
    for what in ("inverse", "forward"):
        for dtype in options.dtypes.split(","):
            for frame in options.frames.split(",") if dtype == "float64" else ["body"]:
                for order in map(int, options.orders.split(",")):
                    yield measured(options, "order", model, order, frame, dtype, what, options.batch)


def bodies_rows(options):
    import lgjax

    many = [lgjax.models.branched_tree(5, length) for length in map(int, options.sizes.split(","))]
    for model in (lgjax.models.aerial_manipulator(), *many):
        yield from pinocchio_rows(options, "bodies", model)
        for what in ("inverse", "forward"):
            for frame in options.frames.split(","):
                yield measured(options, "bodies", model, 2, frame, "float64", what, options.batch)


def single_rows(options):
    import jax
    import jax.numpy as jnp

    import lgjax

    model = lgjax.models.branched_tree(options.branches, options.length)
    for order in range(options.nested + 1):
        q, v, tau = jax.tree.map(lambda x: x[0], motion(model, order, 1))
        truth = {what: jax.jit(functions(order, "body")[what])(model, q, v, tau) for what in ("inverse", "forward")}
        for what in ("inverse", "forward"):
            ways = {f"lgjax {frame}": functions(order, frame)[what] for frame in options.frames.split(",")}
            if order <= options.jvp - 2 * (what == "forward"):
                ways["nested jvp"] = nested(order, what)
            for how, function in ways.items():
                times, _ = harness.compiled(jax.jit(function), model, q, v, tau, repeats=options.repeats)
                yield row("single", what, how, "float64", model.nbodies, order, 1, times)
        given = {"inverse": (q, v), "forward": (q, jnp.concatenate([v[:1], truth["forward"]]), tau)}
        highest = {"inverse": options.nested, "forward": options.casadi_forward}
        for what, cse in itertools.product(("inverse", "forward"), (True, False)):
            if order <= highest[what]:
                yield casadi_row(what, model, order, cse, given[what], truth[what])


def slopes(rows: list[dict]) -> list[str]:
    """Exponents of time in order + 1 and in the number of bodies, one line each."""
    import numpy as np

    lines = []
    for part, variable in (("order", lambda r: r["order"] + 1), ("bodies", lambda r: r["bodies"])):
        kinds = {(r["what"], r["how"], r["dtype"]) for r in rows if r["part"] == part}
        for kind in sorted(kinds):
            chosen = [r for r in rows if r["part"] == part and (r["what"], r["how"], r["dtype"]) == kind]
            if len(chosen) < 3:
                continue
            x = np.log([variable(r) for r in chosen])
            for what in ("us", "compile s"):
                if chosen[0].get(what) is None:
                    continue
                slope = np.polyfit(x, np.log([r[what] for r in chosen]), 1)[0]
                lines.append(f"{part}: {', '.join(kind)}: {what} ~ {part}^{slope:.2f}")
    return lines


def draw(path: str, rows: list[dict]) -> None:
    """Time against order and number of bodies, of batches and of single evaluations."""
    from lgjax.plot import figure, save

    made = figure(15, 8.5)
    panels = made.subplots(2, 3, squeeze=False)
    parts = (("order", "order", "batches, 101 bodies"), ("bodies", "bodies", "batches, order 2"),
             ("single", "order", "one evaluation, 101 bodies"))  # fmt: skip
    for row_of_axes, what in zip(panels, ("inverse", "forward"), strict=True):
        for axes, (part, variable, title) in zip(row_of_axes, parts, strict=True):
            chosen = [r for r in rows if r["part"] == part and r["what"] == what]
            for how, dtype in dict.fromkeys((r["how"], r["dtype"]) for r in chosen):
                line = sorted((r[variable], r["us"]) for r in chosen if (r["how"], r["dtype"]) == (how, dtype))
                x, y = zip(*line, strict=True)
                axes.plot(
                    x, y, "o-", linewidth=1.2, markersize=3, label=how + ("" if dtype == "float64" else f", {dtype}")
                )
            axes.set(title=f"{what} dynamics: {title}", xlabel=variable, ylabel="us per sample", yscale="log")
            axes.grid(alpha=0.3)
            if part == "bodies":
                axes.set_xscale("log")
            if chosen:
                axes.legend(fontsize=8)
    save(made, path)


def main() -> None:
    options = arguments()
    harness.pin_to_cores(1)
    import jax

    jax.config.update("jax_enable_x64", True)
    parts = {"order": order_rows, "bodies": bodies_rows, "single": single_rows}
    rows: list[dict] = []
    peers: dict = {}
    for part in options.parts.split(","):
        for entry in parts[part](options):
            if entry["how"] == "Pinocchio":
                peers[entry["what"], entry["bodies"]] = entry["us"]
            peer = peers.get((entry["what"], entry["bodies"]))
            entry["x pinocchio"] = entry["us"] / peer if peer else None
            rows.append(entry)
            print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in entry.items()}, flush=True)
    harness.report("time_derivatives", rows, COLUMNS, options.out)
    if options.plot:
        draw(options.plot, rows)
    print("\n" + "\n".join(slopes(rows)))


if __name__ == "__main__":
    main()
