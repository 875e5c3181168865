"""Error against time of Lie group integrators, beside SciPy's DOP853 and diffrax on coordinates, on one core.

    python benchmarks/work_precision.py [--problems top,pendulum,chain] [--repeats 5] [--quick] [--out FILE]

top       the published heavy top over 1 s; error is the angle to DOP853 at tolerance 1e-13 in quaternions, which the
          coordinate solvers integrate too.
pendulum  10 rods of 0.5 m over 1 s; error in R^60; all use the O(n) field, the coordinate solvers for q and ω in R^60.
chain     time of one evaluation of the O(n) field and of the dense one for chains of up to 1000 rods.

The batch is 1000 states, 1 % apart; its times are per trajectory. `disturbed` counts samples in which another process
had the core. Needs scipy and diffrax.
"""

import argparse
import time

import harness

COLUMNS = ["problem", "method", "setting", "error", "single ms", "batch ms", "compile s", "disturbed"]
BATCH = 1000
TARGET = 2e-8
# Constant steps of diffrax, about where it reaches the target.
STEPS = {
    ("top", "Tsit5"): (1600, 2000, 2400),
    ("top", "Dopri8"): (250, 300, 400),
    ("pendulum", "Tsit5"): (200, 250),
    ("pendulum", "Dopri8"): (40, 50),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="top,pendulum,chain")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one setting per method and a batch of 50")
    parser.add_argument("--out", help="JSON file for the rows")
    return parser.parse_args()


def top():
    """The problem, reference included: (systems by formulation, coordinate field, starts, error functions)."""
    import jax.numpy as jnp
    import numpy as np
    from scipy.integrate import solve_ivp

    import lgjax
    from lgjax import so3

    inertia, lever = np.array([15.234375, 0.46875, 15.234375]), 147.15
    start = np.concatenate([[1.0, 0, 0, 0], [0.0, 150.0, -4.61538]])

    def rate(t, y, xp):
        a, b, c, d, p, q, r = y
        side, up = 2 * (b * d - a * c), a * a - b * b - c * c + d * d
        return xp.stack([
            0.5 * (-b * p - c * q - d * r), 0.5 * (a * p + c * r - d * q),
            0.5 * (a * q + d * p - b * r), 0.5 * (a * r + b * q - c * p),
            ((inertia[1] - inertia[2]) * q * r - lever * up) / inertia[0],
            (inertia[2] - inertia[0]) * r * p / inertia[1],
            ((inertia[0] - inertia[1]) * p * q + lever * side) / inertia[2],
        ])  # fmt: skip

    reference = solve_ivp(rate, (0, 1), start, args=(np,), method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    q_ref = so3.from_quaternion(jnp.asarray(reference[:4] / np.linalg.norm(reference[:4])))
    angle = lambda q: float(so3.distance(q, q_ref))
    systems = {f: lgjax.systems.heavy_top(f) for f in ("two_sided", "spatial")}
    moments = inertia * np.concatenate([np.ones((1, 3)), spread()], axis=0)
    many = np.tile(start, (BATCH, 1))
    many[:, 4:] *= moments / inertia
    states = (jnp.tile(jnp.eye(3), (BATCH, 1, 1)), jnp.asarray(many[:, 4:] * inertia))
    return {
        "end": 1.0,
        "systems": systems,
        "states": dict.fromkeys(systems, states),
        "error": lambda y: angle(y[0]),
        "rate": rate,
        "coordinates": many,
        "coordinate error": lambda y: angle(so3.from_quaternion(y[:4] / jnp.linalg.norm(y[:4]))),
    }


def spread():
    """Factors (BATCH - 1, 3) one per cent apart."""
    import numpy as np

    return 1.0 + 0.01 * np.random.default_rng(0).standard_normal((BATCH - 1, 3))


def pendulum():
    import jax.numpy as jnp
    import numpy as np
    from scipy.integrate import solve_ivp

    import lgjax
    from lgjax.systems.spherical_pendulum import chain_field

    n = 10
    start = {"lengths": 0.5, "q": (np.sqrt(0.5), 0.0, -np.sqrt(0.5)), "omega": (0.5, 1.0, 0.5)}
    s = lgjax.systems.spherical_pendulum(n, **start)
    cayley = lgjax.systems.spherical_pendulum(n, **start, chart="cayley")
    p = s.parameters

    def jax_rate(t, y, xp=None):
        q, omega = y.reshape(2, n, 3)
        xi = chain_field(p, lgjax.groups.TangentPoint(q, omega))
        return jnp.concatenate([jnp.cross(xi[:, :3], q).ravel(), jnp.cross(xi[:, 3:], q).ravel()])

    import jax

    compiled = jax.jit(jax_rate)
    rate = lambda t, y, xp: np.asarray(compiled(t, y)) if xp is np else jax_rate(t, y)
    start = np.concatenate([np.ravel(s.y0.q), np.ravel(s.y0.omega)])
    exact = solve_ivp(rate, (0, 1), start, args=(np,), method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    flat = lambda y: np.concatenate([np.ravel(y.q), np.ravel(y.omega)])
    factors = np.concatenate([np.ones(1), spread()[:, 0]])
    many = np.tile(start, (BATCH, 1))
    many[:, 30:] *= factors[:, None]
    states = lgjax.groups.TangentPoint(
        jnp.asarray(many[:, :30]).reshape(-1, n, 3), jnp.asarray(many[:, 30:]).reshape(-1, n, 3)
    )
    return {
        "end": 1.0,
        "systems": {"(TS2)^10": s, "(TS2)^10, Cayley": cayley},
        "states": {"(TS2)^10": states, "(TS2)^10, Cayley": states},
        "error": lambda y: float(np.linalg.norm(flat(y) - exact)),
        "rate": rate,
        "coordinates": many,
        "coordinate error": lambda y: float(np.linalg.norm(np.asarray(y) - exact)),
    }


def methods(problem: str, quick: bool):
    """(formulation, name, method, numbers of steps)."""
    from lgjax.integrators import (
        CF4,
        CF43,
        CROUCH_GROSSMAN3,
        DORMAND_PRINCE54,
        DORMAND_PRINCE85,
        RK4,
        RK6,
        CommutatorFree,
        MuntheKaas,
    )  # fmt: skip

    rk = lambda t: MuntheKaas(t, scan_stages=True)
    plan = {
        "top": [
            ("two_sided", "RKMK 8", rk(DORMAND_PRINCE85), (8, 12, 16, 32)),
            ("two_sided", "RKMK 6", rk(RK6), (20, 40, 80)),
            ("two_sided", "RKMK 5", rk(DORMAND_PRINCE54), (40, 80, 160)),
            ("two_sided", "RKMK 4", rk(RK4), (50, 200, 800)),
            ("two_sided", "CF 4", CommutatorFree(CF4), (50, 200, 800)),
            ("two_sided", "Crouch-Grossman 3", CommutatorFree(CROUCH_GROSSMAN3), (200, 1000)),
            ("spatial", "RKMK 8", rk(DORMAND_PRINCE85), (120, 240)),
            ("spatial", "CF 4", CommutatorFree(CF4), (800, 3200)),
            ("two_sided", "RKMK 5(4) adaptive", rk(DORMAND_PRINCE54), (1e-6, 1e-9)),
            ("two_sided", "RKMK 8(5) adaptive", rk(DORMAND_PRINCE85), (1e-6, 1e-9)),
            ("two_sided", "CF 4(3) adaptive", CommutatorFree(CF43), (1e-6,)),
        ],
        "pendulum": [
            ("(TS2)^10, Cayley", "RKMK 8", MuntheKaas(DORMAND_PRINCE85), (25, 44, 100)),
            ("(TS2)^10, Cayley", "RKMK 8(5) adaptive", MuntheKaas(DORMAND_PRINCE85), (1e-6, 1e-7)),
            ("(TS2)^10, Cayley", "RKMK 8, scanned stages", rk(DORMAND_PRINCE85), (44,)),
            ("(TS2)^10, Cayley", "RKMK 8(5) adaptive, scanned stages", rk(DORMAND_PRINCE85), (1e-6, 1e-7)),
            ("(TS2)^10", "RKMK 8", rk(DORMAND_PRINCE85), (25, 50, 100)),
            ("(TS2)^10", "RKMK 6", rk(RK6), (200,)),
            ("(TS2)^10", "RKMK 5", rk(DORMAND_PRINCE54), (200,)),
            ("(TS2)^10", "RKMK 4", rk(RK4), (800,)),
            ("(TS2)^10", "CF 4", CommutatorFree(CF4), (800,)),
            ("(TS2)^10", "RKMK 5(4) adaptive", rk(DORMAND_PRINCE54), (1e-6, 1e-9)),
            ("(TS2)^10", "RKMK 8(5) adaptive", rk(DORMAND_PRINCE85), (1e-6, 1e-9)),
        ],
    }[problem]
    return [(f, name, m, settings[:1] if quick else settings) for f, name, m, settings in plan]


def measure(row, run, one, many, error, args) -> dict:
    """Compile and time a solver on one state and on the batch."""
    import jax

    start = time.perf_counter()
    single = jax.jit(run).lower(one).compile()
    row["compile s"] = time.perf_counter() - start
    row["error"] = error(single(one))
    times = harness.steady(lambda: jax.block_until_ready(single(one)), 2 * args.repeats - 1, 0.1)
    batch = jax.jit(jax.vmap(run)).lower(many).compile()
    size = len(jax.tree.leaves(many)[0])
    every = harness.steady(lambda: jax.block_until_ready(batch(many)), args.repeats, 0.1)
    row |= {
        "single ms": 1e3 * times["median"],
        "batch ms": 1e3 * every["median"] / size,
        "disturbed": times["disturbed"] + every["disturbed"],
        "single": times,
        "batch": every,
    }
    print(f"{row['problem']}, {row['method']}, {row['setting']}: done", flush=True)
    return row


def library_rows(problem: str, data, args) -> list[dict]:
    import jax

    import lgjax

    rows = []
    for formulation, name, method, settings in methods(problem, args.quick):
        s = data["systems"][formulation]
        for setting in settings:
            if isinstance(setting, int):
                run = lambda y, n=setting, s=s, m=method: (
                    lgjax.integrate(s.space, s.field, y, 0.0, data["end"], n, m, None).ys
                )
            else:
                run = lambda y, tol=setting, s=s, m=method: (
                    lgjax.integrate_adaptive(
                        s.space,
                        s.field,
                        y,
                        0.0,
                        data["end"],
                        m,
                        tol,
                        tol,
                        1500,
                        controller=lgjax.integrators.PI_CONTROL,
                    ).ys
                )
            end = lambda y, run=run: jax.tree.map(lambda x: x[0], run(y))
            many = data["states"][formulation]
            one = jax.tree.map(lambda x: x[0], many)
            many = jax.tree.map(lambda x: x[:50], many) if args.quick else many
            label = f"{setting} steps" if isinstance(setting, int) else f"tol {setting:g}"
            row = {"problem": problem, "method": f"lgjax {name}, {formulation}", "setting": label}
            rows.append(measure(row, end, one, many, data["error"], args))
    return rows


def peer_rows(problem: str, data, args) -> list[dict]:
    import diffrax
    import jax.numpy as jnp
    import numpy as np
    from scipy.integrate import solve_ivp

    rows, rate, end = [], data["rate"], data["end"]
    many = jnp.asarray(data["coordinates"])
    term = diffrax.ODETerm(lambda t, y, _: rate(t, y, jnp))
    for name in ("Tsit5", "Dopri8"):
        for setting in (1e-9,) if args.quick else (1e-6, 1e-8, 1e-9, 1e-10, 1e-12, *STEPS[problem, name]):
            solver = getattr(diffrax, name)()

            def run(y, solver=solver, setting=setting):
                if isinstance(setting, int):
                    h, control = end / setting, diffrax.ConstantStepSize()
                else:
                    h, control = None, diffrax.PIDController(rtol=setting, atol=setting)
                return diffrax.diffeqsolve(
                    term, solver, 0.0, end, h, y, stepsize_controller=control, saveat=diffrax.SaveAt(t1=True),
                    max_steps=200_000, throw=False, adjoint=diffrax.ForwardMode(),
                ).ys[0]  # fmt: skip

            label = f"{setting} steps" if isinstance(setting, int) else f"tol {setting:g}"
            row = {"problem": problem, "method": f"diffrax {name}", "setting": label}
            batch = many[:50] if args.quick else many
            rows.append(measure(row, run, many[0], batch, data["coordinate error"], args))
    y0 = np.asarray(many[0])
    for tol in (1e-6, 1e-9, 1e-12):
        call = lambda tol=tol, y0=y0: solve_ivp(rate, (0, end), y0, args=(np,), method="DOP853", rtol=tol, atol=tol)
        row = {"problem": problem, "method": "SciPy DOP853", "setting": f"tol {tol:g}"}
        row["error"] = data["coordinate error"](jnp.asarray(call().y[:, -1]))
        times = harness.steady(call, args.repeats, 0.1)
        row |= {"single ms": 1e3 * times["median"], "disturbed": times["disturbed"], "single": times}
        rows.append(row)
    return rows


def chain_rows(args) -> list[dict]:
    """Time of both fields of the pendulum, and the power of n that it follows from a hundred rods on."""
    import jax
    import numpy as np

    import lgjax

    rows = []
    sizes = (10, 100) if args.quick else (10, 20, 50, 100, 200, 500, 1000)
    for form in ("chain", "dense"):
        for n in sizes:
            rng = np.random.default_rng(n)
            q = rng.normal(size=(n, 3))
            q /= np.linalg.norm(q, axis=1, keepdims=True)
            s = lgjax.systems.spherical_pendulum(n, form, q=q, omega=np.cross(q, rng.normal(size=(n, 3))))
            calls = 100 if form == "chain" else 1  # so many that the call of the program itself does not count

            def field(y, s=s, calls=calls):
                again = lambda omega, _: (omega + 1e-9 * s.field(0.0, y._replace(omega=omega))[:, 3:], None)
                return jax.lax.scan(again, y.omega, length=calls)[0]

            times, _ = harness.compiled(jax.jit(field), s.y0, repeats=args.repeats)
            row = {"problem": "field", "method": form, "setting": f"{n} rods"}
            row |= {"single ms": 1e3 * times["median"] / calls, "compile s": times["compile"]}
            rows.append(row | {"disturbed": times["disturbed"], "single": times, "calls": calls})
        mine = [(n, r["single ms"]) for n, r in zip(sizes, rows[-len(sizes) :]) if args.quick or n >= 100]
        slope = np.polyfit(*np.log(np.array(mine)).T, 1)[0]
        print(f"{form}: time grows as n^{slope:.2f} for n from {mine[0][0]} to {mine[-1][0]}")
    return rows


def fastest(rows: list[dict]) -> None:
    """For each problem and program the fastest run of at most the target error."""
    for problem in dict.fromkeys(r["problem"] for r in rows):
        for program in ("lgjax", "diffrax Tsit5", "diffrax Dopri8", "SciPy"):
            for what in ("single ms", "batch ms"):
                mine = [r for r in rows if r["problem"] == problem and r["method"].startswith(program)]
                good = [r for r in mine if what in r and r["error"] <= TARGET]
                if good:
                    best = min(good, key=lambda r: r[what])
                    print(
                        f"{problem}, {what} to {TARGET:g}: {program} {best[what]:.3g} "
                        f"({best['method']}, {best['setting']}, error {best['error']:.1e})"
                    )


def main() -> None:
    args = arguments()
    harness.pin_to_cores(1)
    import jax

    jax.config.update("jax_enable_x64", True)
    rows, chain = [], []
    for problem in args.problems.split(","):
        if problem == "chain":
            chain = chain_rows(args)
            continue
        data = {"top": top, "pendulum": pendulum}[problem]()
        rows += library_rows(problem, data, args) + peer_rows(problem, data, args)
    fastest(rows)
    harness.report("Work and precision", rows + chain, COLUMNS, args.out)


if __name__ == "__main__":
    main()
