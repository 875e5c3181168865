"""Error against time of the Taylor integrator, RKMK 5(4) and SciPy's DOP853 on the aerial manipulator in free fall.

The Taylor method takes whole steps of the motion from its derivatives, whatever order is asked for; the others take
evaluations of the accelerations. All use this library's dynamics, DOP853 with quaternions. The thrown robot is caught
by an event: where its base passes a height, on the polynomial of the step.
python examples/07_taylor_integrator.py [--out taylor_integrator.png]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import lgjax
from lgjax import DORMAND_PRINCE54, MuntheKaas, Taylor, integrate_adaptive
from lgjax.plot import figure, save

END = 1.0
SPIN = 1.5  # rad/s and m/s
LIMIT = 4000


def start(model):
    v = SPIN * jnp.cos(jnp.arange(model.nv, dtype=model.dtype))
    return lgjax.neutral(model), v.at[5].set(4.0)


def thrown(model, method, y, tolerance, end, event=None):
    """The motion until `end` or the event."""
    field = lgjax.time_derivatives.motion_series(model)
    if not isinstance(method, Taylor):
        field = lambda t, y: (y[1], lgjax.forward_dynamics(model, *y, jnp.zeros(model.nv)))
    space = lgjax.multibody.mechanical_space(model.tree)
    return integrate_adaptive(space, field, y, 0.0, end, method, tolerance, tolerance, LIMIT, event=event)


def in_quaternions(model):
    """rate(t, state) of (quaternion, position, joints, velocity) and the state at the start."""
    acceleration = jax.jit(lambda q, v: lgjax.forward_dynamics(model, q, v, jnp.zeros(model.nv)))

    def rate(t, y):
        a, p, joints, v = np.split(y, [4, 7, 1 + model.nv])
        w = v[:3]
        R = np.asarray(lgjax.so3.from_quaternion(jnp.asarray(a / np.linalg.norm(a))))
        q = lgjax.Configuration(lgjax.Pose(R[None], p[None]), joints, np.zeros((0, 3, 3)))
        turning = 0.5 * np.array([-a[1:] @ w, *(a[0] * w + np.cross(a[1:], w))])
        return np.concatenate([turning, R @ v[3:6], v[6:], np.asarray(acceleration(q, v))])

    _, v = start(model)
    return rate, np.concatenate([[1.0, 0, 0, 0], np.zeros(model.nv - 3), v])


def timed(call, repeats: int):
    """The result and the least time of a call, ms."""
    result = jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return result, 1e3 * min(times)


def main(
    out: str = "taylor_integrator.png",
    orders: tuple[int, ...] = (8, 12),
    tolerances: tuple[float, ...] = (1e-6, 1e-8, 1e-10, 1e-12),
    batch: int = 64,
    repeats: int = 3,
    end: float = END,
    catching: float = 1e-10,
    model: lgjax.Model | None = None,
) -> None:
    jax.config.update("jax_enable_x64", True)
    model = model or lgjax.models.aerial_manipulator()
    y = start(model)
    rate, y0 = in_quaternions(model)
    exact = solve_ivp(rate, (0, end), y0, method="DOP853", rtol=3e-14, atol=1e-14).y[-model.nv :, -1]
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), y)
    many = (many[0], many[1] * jnp.linspace(1.0, 0.9, batch)[:, None])
    methods = {f"Taylor {order}": Taylor(order) for order in orders}
    methods["RKMK 5(4)"] = MuntheKaas(DORMAND_PRINCE54, scan_stages=True)
    rows: dict[str, list[tuple]] = {}
    for name, method in methods.items():
        one = jax.jit(lambda y, tol, method=method: thrown(model, method, y, tol, end))
        all_ = jax.jit(jax.vmap(lambda y, tol, method=method: thrown(model, method, y, tol, end), (0, None)))
        for tolerance in tolerances:
            s, ms = timed(lambda one=one, tol=tolerance: one(y, tol), repeats)
            _, together = timed(lambda all_=all_, tol=tolerance: all_(many, tol), repeats)
            error = float(jnp.max(jnp.abs(s.ys[1][-1] - exact)))
            rows.setdefault(name, []).append((error, ms, together / batch))
            print(f"{name}, tolerance {tolerance:g}: {int(s.accepted)} steps, error {error:.1e}, {ms:.1f} ms alone, "
                  f"{together / batch:.2f} ms each of {batch}")  # fmt: skip
    for tolerance in tolerances:
        call = lambda tol=tolerance: solve_ivp(rate, (0, end), y0, method="DOP853", rtol=tol, atol=tol)
        s, ms = timed(call, 1)
        error = float(np.max(np.abs(s.y[-model.nv :, -1] - exact)))
        rows.setdefault("SciPy DOP853", []).append((error, ms, np.nan))
        print(f"DOP853, tolerance {tolerance:g}: {s.nfev} evaluations, error {error:.1e}, {ms:.0f} ms")

    above = lambda t, y: y[0].free_poses.translation[0, 2] - 0.5
    caught = jax.jit(lambda y: thrown(model, methods[f"Taylor {orders[0]}"], y, catching, end, above))(y)
    height = float(caught.ys[0].free_poses.translation[-1, 0, 2])
    print(f"the base passes 0.5 m after {float(caught.ts[-1]):.9f} s, at a height of 0.5 m {height - 0.5:+.0e} m")

    sheet = figure(11, 4.5)
    axes = sheet.subplots(1, 2, sharey=True)
    for name, points in rows.items():
        errors, alone, each = np.array(points).T
        axes[0].loglog(alone, errors, "o-", label=name)
        axes[1].loglog(each, errors, "o-", label=name)
    axes[0].set(title="one trajectory", xlabel="time (ms)", ylabel=f"error of the velocities after {end:g} s")
    axes[1].set(title=f"each of {batch} trajectories", xlabel="time (ms)")
    axes[0].legend()
    save(sheet, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="taylor_integrator.png")
    main(parser.parse_args().out)
