"""A satellite tumbles for half a minute: where it points, from 100,000 guesses of what is not known of its start.

python examples/15_satellite_tumble.py [plot.png]

It spins about its middle axis, which is unstable. Attitude, rates and the lengths of the satellite are uncertain, nine
numbers in all. Ellipsoids of two standard deviations of the attitude error (a rotation vector against the undisturbed
motion) are drawn from the covariances of the Monte Carlo, and from the nine sensitivities of the undisturbed motion by
forward mode: they agree until the first samples turn over, when the error is no longer an ellipsoid.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import so3
from lgjax.plot import figure, save

DT, EVERY = 0.1, 10
MASS, LENGTHS = 120.0, (0.6, 1.0, 1.7)  # kg, m: a box
SPIN = (0.0, 0.6, 0.02)  # rad/s, about the middle axis and a little off it
# Standard deviations: attitude (rad), rates (rad/s), logarithms of the lengths.
SPREAD = np.repeat([0.02, 0.005, 0.01], 3)


def satellite():
    """A box on a free joint, far from everything."""
    squares = MASS / 12 * np.square(LENGTHS)
    inertia = np.diag(squares.sum() - squares)
    body = lgjax.Body("satellite", None, lgjax.Joint("free", "free"), mass=MASS, inertia=inertia)
    return lgjax.build([body], "satellite", gravity=(0.0, 0.0, 0.0))


def motion(model, unknown, steps):
    """Attitudes (T, 3, 3) and body rates (T, 3) every second, for the nine unknown numbers."""
    squares = MASS / 12 * jnp.square(jnp.asarray(LENGTHS) * jnp.exp(unknown[6:]))
    inertia = model.inertias._replace(rotational=jnp.diag(jnp.sum(squares) - squares)[None])
    q = lgjax.retract(model, lgjax.neutral(model), jnp.concatenate([unknown[:3], jnp.zeros(3)]))
    v = jnp.concatenate([jnp.asarray(SPIN) + unknown[3:6], jnp.zeros(3)])
    path = lgjax.rollout(model.replace(inertias=inertia), q, v, None, DT, steps, save_every=EVERY)
    return path.q.free_poses.rotation[:, 0], path.v[:, :3]


def error(model, unknown, known, steps):
    """Rotation vector and rates (T, 6) against the undisturbed motion."""
    R, rates = motion(model, unknown, steps)
    return jnp.concatenate([so3.log(jnp.swapaxes(known[0], -1, -2) @ R), rates - known[1]], -1)


def linearized(model, known, steps):
    """Covariances (T, 6, 6) from the sensitivities to the nine numbers, in one forward pass."""
    rates = jax.jit(jax.jacfwd(lambda unknown: error(model, unknown, known, steps)))(jnp.zeros(9))
    scaled = np.asarray(rates, np.float64) * SPREAD
    return scaled @ np.swapaxes(scaled, -1, -2)


def ellipsoid(axes, center, covariance, **style):
    """The surface at two standard deviations."""
    a, b = np.meshgrid(np.linspace(0, 2 * np.pi, 25), np.linspace(0, np.pi, 13))
    sphere = np.stack([np.cos(a) * np.sin(b), np.sin(a) * np.sin(b), np.cos(b)], -1)
    sizes, directions = np.linalg.eigh(covariance)
    points = center + 2 * sphere * np.sqrt(np.maximum(sizes, 0)) @ directions.T
    axes.plot_wireframe(*np.moveaxis(np.rad2deg(points), -1, 0), linewidth=0.5, **style)


def draw(path, result, linear, shown):
    made, s = figure(15, 8), result.statistics
    made.get_layout_engine().set(hspace=0.15)  # labels of 3D axes are left out of the layout
    for i, k in enumerate(shown):
        axes = made.add_subplot(2, len(shown), i + 1, projection="3d")
        axes.scatter(*np.rad2deg(result.record[:400, i].T), s=2, color="black", alpha=0.4)
        ellipsoid(axes, s.mean[k, :3], s.covariance[k, :3, :3], color="C0", label="Monte Carlo")
        ellipsoid(axes, np.zeros(3), linear[k, :3, :3], color="C1", label="linearized")
        axes.set(title=f"attitude error after {k * EVERY * DT:g} s (deg)", xlabel="x", ylabel="y", zlabel="z")
        axes.legend(fontsize=7)
    times = EVERY * DT * np.arange(len(linear))
    for i, (name, first) in enumerate((("attitude error (deg)", 0), ("error of the rates (deg/s)", 3))):
        axes = made.add_subplot(2, 2, 3 + i)
        for j in range(3):
            low, _, _, _, high = np.rad2deg(s.quantiles[:, :, first + j])
            axes.fill_between(times, low, high, alpha=0.25, color=f"C{j}", label=f"{'xyz'[j]}: 5 % to 95 %")
            deviation = 1.645 * np.rad2deg(np.sqrt(linear[:, first + j, first + j]))
            axes.plot(times, np.stack([-deviation, deviation], 1), color=f"C{j}", linewidth=0.8)
        axes.set(title=f"{name}; lines: linearized", xlabel="t (s)")
        limit = 1.2 * np.abs(np.rad2deg(s.quantiles[..., first : first + 3])).max()
        axes.set_ylim(-limit, limit)
        axes.legend()
    save(made, path)


def main(path: str = "15_satellite_tumble.png", samples: int = 100_000, steps: int = 300, **options) -> None:
    model = satellite()
    known = jax.jit(lambda: motion(model, jnp.zeros(9), steps))()
    saved = steps // EVERY
    shown = np.array([1, 2, 3, 4]) * saved // 4

    def simulate(key, known):
        unknown = jnp.asarray(SPREAD, model.dtype) * jax.random.normal(key, (9,), model.dtype)
        values = error(model, unknown, known, steps)
        upside_down = jnp.any(jnp.linalg.norm(values[:, :3], axis=-1) > jnp.pi / 2)
        return lgjax.ensembles.Sample(values, events=upside_down[None], record=values[shown, :3])

    result = lgjax.monte_carlo(simulate, (known,), batch=samples, key=jax.random.key(0), duration=steps * DT, **options)
    s, linear = result.statistics, linearized(model, known, steps)
    print(f"{samples} satellites in {result.seconds:.1f} s, {result.simulated_seconds_per_second:.3g} simulated s/s")
    print(f"{s.events[0]} of {s.samples} were ever more than 90 degrees off, {len(result.failed)} diverged")
    for k in shown:
        sizes = [np.rad2deg(np.sqrt(np.linalg.eigvalsh(c[k, :3, :3])[::-1])) for c in (s.covariance, linear)]
        text = ", ".join(f"{a:.2f} ({b:.2f})" for a, b in zip(*sizes))
        print(f"{k * EVERY * DT:5.1f} s: axes of the attitude error {text} deg, linearized in brackets")
    draw(path, result, linear, shown)


if __name__ == "__main__":
    main(*sys.argv[1:2])
