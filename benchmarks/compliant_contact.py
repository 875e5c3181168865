"""A ball that bounces, slides and rolls on a compliant ground, beside the same scene in MuJoCo.

    python -m benchmarks.compliant_contact [--plot compliant_contact.png] [--out FILE]

The laws differ. Ours is Hunt and Crossley's force, k depth (1 + d approach): weight presses the ball into the ground,
and restitution falls with speed. MuJoCo prescribes the acceleration of the contact, -k' depth - b approach, nearly
whatever other forces are: weight presses nothing in, and restitution is the same at all speeds. Here k = m k', and d
and b give the same restitution at the first impact. Both have Coulomb's friction: ours is regularized by a speed,
MuJoCo's is viscous until the cone is reached, and a contact that slides pushes less along the normal.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import lgjax
from benchmarks.harness import report
from lgjax.plot import figure, save

MASS, RADIUS, SPEED, G = 1.5, 0.1, 1.0, 9.81  # kg, m, m/s, m/s^2
END, SAMPLES = 1.0, 100  # s
COLUMNS = ["scene", "frequency 1/s", "height m", "distance m", "speed m/s", "spin rad/s"]
XML = f"""<mujoco><option gravity="0 0 -{G}" timestep="{{step}}" cone="elliptic" tolerance="1e-14" iterations="300"/>
 <worldbody><geom name="ground" type="plane" size="9 9 1"/>
  <body pos="0 0 {{height}}"><freejoint/>
   <geom name="ball" type="sphere" size="{RADIUS}" mass="{MASS}"/></body></worldbody>
 <contact><pair geom1="ground" geom2="ball" condim="3" friction="{{friction}} {{friction}} 0 0 0"
  solimp="0.9999 0.9999 1e-3" solref="{{stiffness}} {{damping}}" solreffriction="-1 -2000"/></contact></mujoco>"""


class Scene(NamedTuple):
    """drop: m. restitution: of the first impact. friction: at most 1e-5 is none, which MuJoCo does not have."""

    drop: float
    restitution: float
    friction: float


SCENES = {
    "elastic": Scene(0.2, 1.0, 1e-5),
    "restitution 0.8": Scene(0.2, 0.8, 1e-5),
    "rolls": Scene(0.0, 0.8, 0.3),
    "bounces and rolls": Scene(0.2, 0.8, 0.3),
}


class Path(NamedTuple):
    """height: (n,) m over the ground. distance: (n,) m along x. speed: (n,) m/s along x. spin: (n,) rad/s about y."""

    height: np.ndarray
    distance: np.ndarray
    speed: np.ndarray
    spin: np.ndarray


def constants(scene: Scene, frequency: float) -> tuple[float, float]:
    """Our damping (s/m) and MuJoCo's (1/s), with which the first impact has the restitution; without gravity."""
    restitution = scene.restitution
    ratio = -np.log(restitution) / np.hypot(np.pi, np.log(restitution))
    approach = max(np.sqrt(2 * G * scene.drop), 0.1)

    def left(damping: float) -> float:
        """Restitution of our law: depth x, x'' = -frequency^2 x max(0, 1 + damping x')."""
        field = lambda t, x: (x[1], -(frequency**2) * x[0] * max(0.0, 1 + damping * x[1]))
        out = lambda t, x: x[0] if t > 0 else 1.0
        out.terminal, out.direction = True, -1
        tight = {"rtol": 1e-10, "atol": 1e-14}
        return -solve_ivp(field, (0, 20 / frequency), (0.0, approach), events=out, **tight).y[1, -1] / approach

    damping = brentq(lambda d: left(d) - restitution, 0.0, 5.0 / approach, xtol=1e-8) if restitution < 1 else 0.0
    return damping, 2 * ratio * frequency


def ours(scene: Scene, frequency: float, damping: float) -> Path:
    """The ball by `forces.contact` and RK4."""
    joint = lgjax.Joint("free", "free")
    model = lgjax.build([lgjax.Body("ball", None, joint, mass=MASS, inertia=0.4 * MASS * RADIUS**2 * np.eye(3))])
    contacts = lgjax.Contacts(
        model, lgjax.shapes.Plane((0.0, 0.0, 1.0)), {"ball": lgjax.shapes.sphere(RADIUS)}, friction=scene.friction
    )
    force = lgjax.forces.contact(model, contacts, MASS * frequency**2, damping, slip_speed=2e-3)
    q = lgjax.configuration(
        model, (np.eye(3), (0.0, 0.0, RADIUS + scene.drop - (G / frequency**2 if scene.drop == 0 else 0)))
    )
    each = int(np.ceil(END / SAMPLES * frequency / 0.05))

    @jax.jit
    def run(v: Any) -> Any:
        return lgjax.rollout(model, q, v, force, END / SAMPLES / each, SAMPLES * each, save_every=each)

    path = run(jnp.asarray([0, 0, 0, SPEED, 0, 0]))
    q, v = jax.tree.map(lambda x: np.asarray(x[1:]), (path.q, path.v))
    turn, place = q.free_poses.rotation[:, 0], q.free_poses.translation[:, 0]
    spin, speed = (np.einsum("nij,nj->ni", turn, x) for x in (v[:, :3], v[:, 3:]))
    return Path(place[:, 2] - RADIUS, place[:, 0], speed[:, 0], spin[:, 1])


def theirs(scene: Scene, frequency: float, damping: float) -> Path:
    """The ball by MuJoCo at steps so small that they do not show."""
    import mujoco

    each = int(np.ceil(END / SAMPLES * frequency / 0.002))
    text = XML.format(
        step=END / SAMPLES / each, height=RADIUS + scene.drop, friction=scene.friction,
        stiffness=-(frequency**2), damping=-max(damping, 1e-9),
    )  # fmt: skip
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    data.qvel[0] = SPEED
    rows = []
    for _ in range(SAMPLES):
        for _ in range(each):
            mujoco.mj_step(model, data)
        turn = data.xmat[1].reshape(3, 3)
        rows.append((data.qpos[2] - RADIUS, data.qpos[0], data.qvel[0], (turn @ data.qvel[3:6])[1]))
    return Path(*np.array(rows).T)


def main(scenes: Sequence[str] = tuple(SCENES), frequencies: Sequence[float] = (200, 1000), plot=None, out=None):
    """Rows of the largest differences within `END`; both motions drawn."""
    jax.config.update("jax_enable_x64", True)
    rows, drawn = [], []
    for name in scenes:
        for frequency in frequencies:
            scene = SCENES[name]
            mine, his = constants(scene, frequency)
            paths = ours(scene, frequency, mine), theirs(scene, frequency, his)
            apart = [float(np.max(np.abs(a - b))) for a, b in zip(*paths, strict=True)]
            rows.append(dict(zip(COLUMNS, (name, frequency, *apart), strict=True)))
        drawn.append((f"{name}, {frequency:g} 1/s", paths))
    report("compliant_contact", rows, COLUMNS, out)
    if plot:
        draw(drawn, plot)
    return rows


def draw(drawn: list, plot: str) -> None:
    """Heights and speeds, MuJoCo's dashed over ours."""
    made = figure(10, 2.2 * len(drawn))
    ts = END / SAMPLES * np.arange(1, SAMPLES + 1)
    for row, (title, paths) in zip(made.subplots(len(drawn), 2, sharex=True, squeeze=False), drawn, strict=True):
        for k, (path, name) in enumerate(zip(paths, ("lgjax", "MuJoCo"), strict=True)):
            style = {"color": f"C{k}", "linestyle": ("-", "--")[k], "label": name, "linewidth": (2.5, 1.5)[k]}
            row[0].plot(ts, path.height, **style)
            row[1].plot(ts, path.speed, **style)
            row[1].plot(ts, RADIUS * path.spin, **{**style, "label": None, "alpha": 0.6})
        row[0].set(ylabel="height (m)", title=title)
        row[1].set(ylabel="m/s", title="speed, and radius x spin (pale)")
        row[0].legend(fontsize="small", loc="upper right")
    for axes in row:
        axes.set(xlabel="t (s)")
    save(made, plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot")
    parser.add_argument("--out")
    given = parser.parse_args()
    main(plot=given.plot, out=given.out)
