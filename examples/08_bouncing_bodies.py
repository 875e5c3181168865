"""Bouncing bodies by a variational collision integrator: an ellipsoid, also on a tilted plane, a union, and a cube.

Figures 4 to 8 of [tran2024].  python examples/08_bouncing_bodies.py [--steps 100000] [--out bouncing_bodies.png]
With --forms the energies of the Lagrangian form instead: what an impact keeps, and where its step is parted.

Between impacts the discrete body keeps the energy exactly: its rotation is the Moser-Veselov body, which has all the
integrals of the continuous one, and the step of a translation in uniform gravity is the parabola itself.  At an impact
the momenta jump to the other solution of the equation of energy.  So nothing but round-off is left of the drift that
the source explains by the shorter steps at impacts.  Whether it is a trend or a random walk is measured here with many
bodies whose starts differ by a thousandth: the mean of their energy errors against its standard error, and the power of
the number of impacts with which the errors grow, one half for a random walk.  On the horizontal plane it is a walk.
The body on the tilted plane runs 170 km down the slope: the rounding of its growing energies is a trend.

The source turns the perturbed start by 1e-8 π and gives 1.75e-8 as the distance; that angle makes 3.14e-8.  Its paths
part after the eighth impact, ours after the eleventh: three times the cube comes down on two corners within 0.02 s,
which a plot of heights shows as one, so that the eleventh impact is the eighth bounce.

In the Lagrangian form the discrete energy E_d jumps at an impact that keeps the energy H, by O(h²).  An impact that
keeps E_d, as a table of the source has it, lets H jump instead: a random walk of joules over hundreds of impacts, with
steps parted symmetrically too.  That is the drift of another modified energy, and the integrator of the source, which
keeps H, has none of it.
"""

import argparse
import pathlib
from functools import partial
from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import Pose, so3
from lgjax.collisions import RigidState
from lgjax.collisions.variational import variational_step
from lgjax.plot import figure, save
from lgjax.systems.bouncing_body import CASES, bouncing_body

TITLES = ("I: ellipsoid", "II: ellipsoid, tilted plane", "III: union of ellipsoids", "IV: cube")
PAPER = {"union": 806, "cube": 652}  # impacts in 1e5 steps
TOGETHER = 0.05  # s, impacts as close as this look like one bounce
# What an impact keeps, whether its step is parted symmetrically, and the gap (m) that counts as contact.
FORMS = (
    ("hamiltonian", False, 0.0),
    ("hamiltonian", True, 0.0),
    ("hamiltonian", False, 1e-6),
    ("discrete", False, 0.0),
    ("discrete", True, 0.0),
)
SHIFT, TURN = 1e-8, 1e-8 * np.pi  # of the perturbed starts, m and rad


@partial(jax.jit, static_argnames=("steps", "save_every", "record"))
def fly(body, shape, plane, states, h, steps, save_every=1, record=16):
    """The motions from a batch of states."""
    one = lambda state: lgjax.collisions.bounce(
        body, shape, plane, state, h, steps, save_every=save_every, record=record
    )
    return jax.vmap(one)(states)


def energies(body, states):
    """Energy of the whole and of the rotation, J."""
    x, v, spin = (np.asarray(a) for a in (states.pose.translation, states.linear / body.mass, states.angular))
    rotation = 0.5 * np.sum(spin * np.linalg.solve(body.inertia, spin[..., None])[..., 0], -1)
    return rotation + float(body.mass) * (0.5 * np.sum(v * v, -1) - x @ np.asarray(body.gravity)), rotation


def beside(state, samples):
    """A batch of states about a thousandth away from one."""
    position, angular, linear = 1e-3 * jax.random.normal(jax.random.key(0), (3, samples, 3))
    rotation = jnp.broadcast_to(state.pose.rotation, (samples, 3, 3))
    return RigidState(Pose(rotation, state.pose.translation + position), state.angular + angular, state.linear + linear)


def drift(p, steps, samples, saves=50):
    """Impacts and energy errors (samples, saves) of the batch."""
    every = max(1, steps // saves)
    run = fly(p.body, p.shape, p.planes, beside(p.state, samples), p.dt, steps - steps % every, every, 1)
    energy, _ = energies(p.body, run.states)
    return np.asarray(run.impacts)[:, 1:], (energy - energy[:, :1])[:, 1:]


def three(state):
    """The state, and it shifted and turned."""
    x, R = state.pose.translation, state.pose.rotation
    turned = so3.compose(R, so3.exp(jnp.array([0.0, TURN, 0.0])))
    pose = Pose(jnp.stack([R, R, turned]), jnp.stack([x, x + jnp.array([0, 0, SHIFT]), x]))
    return RigidState(pose, *(jnp.broadcast_to(m, (3, 3)) for m in (state.angular, state.linear)))


def distances(run, saved):
    """How far (2, saved) the perturbed motions are from the first of the three, |δx| + |δR|."""
    R, x = (np.asarray(a[:, :saved]) for a in run.states.pose)
    return np.linalg.norm(x[1:] - x[0], axis=-1) + np.linalg.norm(R[1:] - R[0], ord=2, axis=(-2, -1))


def main(out: str | None = None, steps: int = 100_000, samples: int = 64) -> dict:
    """Motions, energy errors and drifts of all cases, and the growth of the perturbations; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    systems = {case: bouncing_body(case) for case in CASES}
    runs, drifts, errors = {}, {}, {}
    for case, title in zip(CASES, TITLES, strict=True):
        p = systems[case]
        cluster = fly(p.body, p.shape, p.planes, three(p.state), p.dt, steps)
        runs[case] = run = jax.tree.map(lambda a: a[0], cluster)
        energy, _ = energies(p.body, run.states)
        errors[case], impacts = energy - energy[0], int(run.impacts[-1])
        drifts[case] = hits, error = drift(p, steps, samples)
        paper = f" (source: about {PAPER[case]} in 100000)" if case in PAPER else ""
        print(f"{title}: {impacts} impacts in {steps} steps{paper}, energy {energy[0]:.1f} J")
        print(
            f"  its error at the end {errors[case][-1]:+.1e} J, per impact {errors[case][-1] / max(impacts, 1):+.1e} J,"
            f" largest {np.abs(errors[case]).max():.1e} J"
        )
        mean, spread, count = np.mean(error[:, -1]), np.std(error[:, -1]), hits[:, -1]
        print(
            f"  {samples} bodies: {np.mean(count):.0f} ± {np.std(count):.0f} impacts, mean error {mean:+.1e} ±"
            f" {spread / samples**0.5:.1e} J, spread {spread:.1e} J, grows as impacts^{growth(hits, error):.2f}"
        )
    gaps = distances(cluster, 2501)
    heights = np.asarray(cluster.states.pose.translation[:, : gaps.shape[1], 2])
    parted = parting(run, np.abs(heights[1:] - heights[0]))
    for name, gap, (number, bounce) in zip(("shifted", "turned"), gaps, parted, strict=True):
        part = f"part by 1 m after impact {number}, bounce {bounce}" if number else "do not part"
        last = np.max(gap, where=np.asarray(run.impacts)[: len(gap)] < number, initial=0)
        print(
            f"cube, start {name}: distance {gap[0]:.2e} at first, {last:.1e} until then; heights {part} (source: after"
            " the eighth)"
        )
    if out:
        draw(out, systems, runs, errors, drifts, cluster, gaps)
        cube, run = systems["cube"], runs["cube"]
        begin = run._replace(states=jax.tree.map(lambda x: x[:600], run.states), ts=run.ts[:600])
        lgjax.view.picture(
            cube.shape, begin, pathlib.Path(out).with_suffix(".gif"), planes=cube.planes, size=(320, 280), fps=10
        )
    return {"runs": runs, "errors": errors, "drifts": drifts, "parted": parted}


def growth(hits, error):
    """The power of the number of impacts with which the spread of the errors grows."""
    count, spread = np.mean(hits, 0), np.sqrt(np.mean(error**2, 0))
    seen = (count > 0) & (spread > 0)
    return np.polyfit(np.log(count[seen]), np.log(spread[seen]), 1)[0] if len(set(count[seen])) > 1 else np.nan


def parting(run, differences):
    """The impact of the first motion after which each difference of heights exceeds 1 m, and its bounce; or zeros."""
    ts = np.asarray(run.events.ts)[: int(run.impacts[-1])]
    bounces = 1 + np.cumsum(np.diff(ts, prepend=0.0) > TOGETHER) - (ts[:1] > TOGETHER).sum()
    found = []
    for difference in differences:
        apart = np.flatnonzero(difference > 1.0)
        number = int(run.impacts[apart[0]]) if len(apart) else 0
        found.append((number, int(bounces[number - 1]) if 0 < number <= len(bounces) else 0))
    return found


def forms(cases=("union", "cube"), steps: int = 100_000) -> dict:
    """Errors of the energy H at the end of runs by the Lagrangian form, and mismatches of E_d at their impacts, J."""
    jax.config.update("jax_enable_x64", True)
    errors = {}
    for case, (jump, symmetric, tolerance) in product(cases, FORMS):
        p = bouncing_body(case)
        before = variational_step(p.body, p.state, -p.dt)[0].pose
        options = {"jump": jump, "symmetric": symmetric, "tolerance": tolerance}
        run = jax.jit(
            lambda a, b, p=p, options=options: lgjax.collisions.lagrangian_bounce(
                p.body, p.shape, p.planes, a, b, p.dt, steps, save_every=steps // 100, record=1000, **options
            )
        )(before, p.state.pose)
        energy, _ = energies(p.body, run.states)
        count = int(run.impacts[-1])
        mismatch = np.asarray(run.events.mismatches)[:count]
        errors[case, jump, symmetric, tolerance] = error = energy - energy[0]
        parts = "tau, tau" if symmetric else "tau, h - tau"
        print(
            f"{case}, keeps {jump}, parts {parts}, tolerance {tolerance:g}: {count} impacts, error of H"
            f" {error[-1]:+.1e} J, {error[-1] / max(count, 1):+.1e} per impact, largest {np.abs(error).max():.1e};"
            f" mismatch of E_d {np.mean(mismatch):+.1e} ± {np.std(mismatch):.1e} J, status {int(run.status)}"
        )
    return errors


def draw(out, systems, runs, errors, drifts, cluster, gaps):
    made = figure(21, 19)
    grid = made.add_gridspec(4, 4, height_ratios=(1.25, 1, 1, 1))
    for i, (case, title) in enumerate(zip(CASES, TITLES, strict=True)):
        p, run = systems[case], runs[case]
        snapshots(made.add_subplot(grid[0, i], projection="3d"), title, p, run)
        exchange(made.add_subplot(grid[1, i]), p, run)
        (short if i < 2 else long)(made.add_subplot(grid[2, i]), run, errors[case])
    sensitivity(made.add_subplot(grid[3, :2]), made.add_subplot(grid[3, 2]), cluster, gaps)
    walk(made.add_subplot(grid[3, 3]), drifts)
    save(made, out)


def polygons(shape):
    """The surface of a shape of the four cases as quadrilaterals (n, 4, 3), body frame."""
    if hasattr(shape, "parts"):
        return np.concatenate([polygons(part) for part in shape.parts])
    if hasattr(shape, "semi_axes"):
        polar, around = np.linspace(0, np.pi, 13)[:, None], np.linspace(0, 2 * np.pi, 25)
        unit = np.stack(np.broadcast_arrays(np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around),
                                            np.cos(polar)), -1)  # fmt: skip
        z = np.asarray(shape.center) + unit * np.asarray(shape.semi_axes)
        return np.stack([z[:-1, :-1], z[1:, :-1], z[1:, 1:], z[:-1, 1:]], 2).reshape(-1, 4, 3)
    square = np.array([(1.0, -1, -1), (1, 1, -1), (1, 1, 1), (1, -1, 1)])
    faces = [np.roll(sign * square, axis, -1) for axis, sign in product(range(3), (1, -1))]
    return np.stack(faces) * np.asarray(shape.shape.half_extents)


def snapshots(axes, title, p, run, bounces=3):
    """The body at the start, at the first impacts and at the top of each flight between."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    x, R = np.asarray(run.states.pose.translation), np.asarray(run.states.pose.rotation)
    ts = np.asarray(run.events.ts)[: min(bounces, int(run.impacts[-1]))]
    hits = np.minimum(np.rint(ts / float(p.dt)).astype(int), len(x) - 1)
    tops = [a + np.argmax(x[a:b, 2]) for a, b in pairwise([0, *hits]) if b > a]
    end = hits[-1] + 1 if len(hits) else len(x)
    surface = polygons(p.shape)
    drawn = {k: surface @ R[k].T + x[k] for k in (0, *tops, *hits)}
    for k, body in drawn.items():
        color = "tab:red" if k in hits else "tab:blue"
        axes.add_collection3d(Poly3DCollection(body, facecolors=color, shade=True, alpha=0.85))
    axes.plot(*x[:end].T, color="black", linewidth=1)
    corners = np.concatenate([body.reshape(-1, 3) for body in drawn.values()])
    low, high = corners.min(0) - 1, corners.max(0) + 1
    normal, offset = np.asarray(p.planes.normal), float(p.planes.offset)
    floor = np.array([(a, b) for a, b in ((low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1]))])
    height = -(floor @ normal[:2] + offset) / normal[2]
    axes.add_collection3d(Poly3DCollection([np.c_[floor, height]], facecolors="gray", alpha=0.25))
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(min(height.min(), 0), high[2]))
    axes.set(title=f"{title} (red at impacts)", xlabel="x (m)", ylabel="y (m)", zlabel="z (m)")
    axes.set_box_aspect([np.ptp(limits) for limits in (axes.get_xlim(), axes.get_ylim(), axes.get_zlim())], zoom=1.15)
    axes.locator_params(nbins=4)
    axes.view_init(elev=12, azim=-50)


def exchange(axes, p, run, bounces=8):
    """Energies over the first impacts."""
    end = until(run, bounces)
    states = jax.tree.map(lambda a: a[:end], run.states)
    total, rotation = energies(p.body, states)
    ts = np.asarray(run.ts)[:end]
    axes.plot(ts, total, color="black", label="total")
    axes.plot(ts, total - rotation, color="tab:blue", label="translation and potential")
    axes.plot(ts, rotation, color="tab:red", label="rotation")
    axes.set(title="exchange of energy", xlabel="t (s)", ylabel="energy (J)", ylim=(0, 1.3 * total[0]))
    axes.legend(ncols=3, fontsize=8, loc="upper center")


def until(run, bounces):
    """Number of saved states until a while after so many impacts."""
    return int(np.searchsorted(np.asarray(run.impacts), bounces)) + 50


def short(axes, run, error, bounces=8):
    end = until(run, bounces)
    axes.plot(np.asarray(run.ts)[:end], error[:end], ".", color="black", markersize=2)
    for t in np.asarray(run.events.ts)[: min(bounces, int(run.impacts[-1]))]:
        axes.axvline(t, color="tab:red", linestyle="--", linewidth=0.8)
    axes.set(title="energy error E - E(0); dashed: impacts", xlabel="t (s)", ylabel="J")


def long(axes, run, error):
    keep = slice(None, None, max(1, len(error) // 10000))
    axes.plot(np.asarray(run.ts)[keep], error[keep], color="black", linewidth=0.5)
    axes.set(title=f"energy error E - E(0), {int(run.impacts[-1])} impacts", xlabel="t (s)", ylabel="J")


def sensitivity(heights, growing, cluster, gaps):
    saved = gaps.shape[1]
    ts, z = np.asarray(cluster.ts[0, :saved]), np.asarray(cluster.states.pose.translation[:, :saved, 2])
    names = ("as printed", "shifted by $10^{-8}$ m along z", "turned by $10^{-8}$ π rad about y")
    styles = (("black", "-", 2.5), ("tab:blue", "--", 1.2), ("tab:red", ":", 1.5))
    for curve, name, (color, line, width) in zip(z, names, styles, strict=True):
        heights.plot(ts, curve, line, color=color, linewidth=width, label=name)
    heights.set(title="IV: height of the cube's center", xlabel="t (s)", ylabel="z (m)", ylim=(0, 1.25 * z.max()))
    heights.legend(ncols=3, loc="upper center", fontsize=9)
    for gap, name, (color, _, _) in zip(gaps, names[1:], styles[1:], strict=True):
        growing.semilogy(ts, gap, color=color, linewidth=1, label=name)
    for i, t in enumerate(np.asarray(cluster.events.ts[0])[: int(cluster.impacts[0, saved - 1])]):
        for axes in (heights, growing):
            axes.axvline(t, color="gray", linewidth=0.8, linestyle="--", label="impacts of the first" * (i == 0))
    growing.set(
        title="IV: distance to the motion as printed, |δx| + |δR|",
        xlabel="t (s)",
        ylabel="distance (m, 1)",
        ylim=(3e-10, 1e2),
    )
    growing.legend(fontsize=8, loc="lower right")


def walk(axes, drifts):
    for (hits, error), title, mark in zip(drifts.values(), TITLES, ("o", "s", "^", "x"), strict=True):
        count, spread = np.mean(hits, 0), np.sqrt(np.mean(error**2, 0))
        axes.loglog(count, spread, mark, markersize=4, label=title, markerfacecolor="none")
    axes.loglog(count, spread[-1] * np.sqrt(count / np.maximum(count[-1], 1)), "k:", label="square root")
    axes.set(title=f"energy error of {len(hits)} bodies, root mean square", xlabel="impacts so far", ylabel="J")
    axes.yaxis.set_minor_formatter("")  # the numbers between powers of ten would overlap
    axes.legend(fontsize=8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=64, help="bodies whose energy errors are compared")
    parser.add_argument("--out", default="bouncing_bodies.png")
    parser.add_argument("--forms", action="store_true", help="energies of the Lagrangian form, without a plot")
    given = parser.parse_args()
    if given.forms:
        forms(steps=given.steps)
    else:
        main(given.out, given.steps, given.samples)
