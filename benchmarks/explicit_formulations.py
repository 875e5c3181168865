"""Explicit steps on the group against the same method in Tait-Bryan angles: top and rotor without constraints.

python -m benchmarks.explicit_formulations
Classical formulation 2: q̈ = H⁻¹ (M⁻¹ g - Ḣ q̇) for the coordinates q and their rates.  Source: [holzinger2024] eq. (32).
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.classical import body_rate, classical, rotation
from benchmarks.harness import report
from lgjax import RK4, RK6, MuntheKaas, integrate, product_space, vector_space
from lgjax.groups import small_matrix as sm
from lgjax.groups.r3_so3 import RotationTranslation
from lgjax.multibody.maximal import AbsoluteConfiguration
from lgjax.simulate.constrained import unconstrained_problem
from lgjax.systems import heavy_top_maximal, rotor
from lgjax.systems.rotor import left_end

COLUMNS = ["problem", "method", "target", "us on the group", "us in angles", "ratio of times", "ratio of steps"]


def in_angles(problem):
    """Space, field and start of one body in position and Tait-Bryan angles."""
    system = problem.system
    start = classical(system, problem.q0, problem.v0, "Rxyz")

    def field(t, y):
        q, rate = y
        x, rho, turn = q[:3], q[3:], rate[3:]
        omega = lambda rho: body_rate("Rxyz", rho, turn)
        q_now = AbsoluteConfiguration(RotationTranslation(rotation("Rxyz", rho)[None], x[None]), jnp.zeros((0,)))
        vdot = system.inertia_solve(system.generalised_forces(t, q_now, sm.join(omega(rho), rate[:3])))
        bend = jax.jvp(omega, (rho,), (turn,))[1]
        g = jnp.stack([body_rate("Rxyz", rho, e) for e in jnp.eye(3)], axis=1)
        return rate, jnp.concatenate([vdot[3:], sm.solve3(g, vdot[:3] - bend)])

    return product_space(vector_space(6), vector_space(6)), field, (start.q0, start.v0), start.configuration


def sweep(space, field, y0, place, end, counts, method, exact):
    """(errors, seconds) for every number of steps."""
    errors, spent = [], []
    for n in counts:
        run = jax.jit(partial(integrate, space, field, t0=0.0, t1=end, steps=n, method=method, save_every=None))
        ys = jax.block_until_ready(run(y0)).ys
        best = np.inf
        for _ in range(5):
            started = time.perf_counter()
            jax.block_until_ready(run(y0))
            best = min(best, time.perf_counter() - started)
        errors.append(float(np.max(np.abs(place(ys) - exact))))
        spent.append(best)
    return np.array(errors), np.array(spent)


def reach(target, errors, values):
    """The value at which a line through logarithms reaches the target, from the points before round-off."""
    good = np.isfinite(errors) & (errors > 1e-13) & (errors < 1e-2)
    slope, offset = np.polyfit(np.log(errors[good]), np.log(values[good]), 1)
    return float(np.exp(offset + slope * np.log(target)))


def main(out=None):
    jax.config.update("jax_enable_x64", True)
    top, disc = heavy_top_maximal(constrained=False), rotor()
    cases = {
        "top": (top, 0.2, 1e-6, lambda q: np.asarray(q.bodies.rotation[0, :, 1])),
        "rotor": (disc, 0.2, 1e-9, lambda q: np.asarray(left_end(q, disc.parameters))),
    }
    rows = []
    for name, (problem, end, target, point) in cases.items():
        space, field, y0 = unconstrained_problem(problem.system, problem.q0, problem.v0)
        place = lambda ys, point=point: point(AbsoluteConfiguration(jax.tree.map(lambda x: x[0], ys[0]), None))
        fine = partial(integrate, space, field, t0=0.0, t1=end, steps=8000, method=MuntheKaas(RK6), save_every=None)
        exact = place(jax.jit(fine)(y0).ys)
        flat = in_angles(problem)
        flat_place = lambda ys, point=point, flat=flat: point(flat[3](ys[0][0]))
        for table in (RK4, RK6):
            method = MuntheKaas(table)
            found = []
            for args, counts in (
                ((space, field, y0, place), (250, 500, 1000)),
                ((*flat[:3], flat_place), (1000, 2000, 4000)),
            ):
                errors, spent = sweep(*args, end, counts, method, exact)
                print(name, table, counts, errors, spent, flush=True)
                found.append((reach(target, errors, spent), reach(target, errors, np.array(counts, float))))
            (a, m), (b, n) = found
            rows.append(dict(zip(COLUMNS, (name, repr(table), target, a * 1e6, b * 1e6, b / a, n / m), strict=True)))
    report("explicit formulations", rows, COLUMNS, out)


if __name__ == "__main__":
    main()
