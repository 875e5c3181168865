"""Pendulums and linkages in the plane: a pendulum, four-bars in a row, Andrews' squeezer, a chain of rods.

Angles of linkages are those of the tree; loops are closed by constraints.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.suite import closed_forms, library, peers, reference
from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.problem import Problem, Sweep

G = 9.81
DOWN = (0.0, 0.0, -G)


def mujoco_energy(m: Mechanism) -> Callable[[np.ndarray], float]:
    """Kinetic and potential energy by MuJoCo, of a state of hinges and slides."""

    def energy(state: np.ndarray) -> float:
        import mujoco

        file = m.file
        data, n = mujoco.MjData(file), file.nq
        file.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
        data.qpos[:], data.qvel[:] = state[:n], state[n:]
        mujoco.mj_forward(file, data)
        return float(data.energy[0] + data.energy[1])

    return energy


def _planar(name: str, pos: str, com: str, mass: float, moment: float, inside: str = "", axis: str = "0 1 0") -> str:
    """A body that turns about `axis`; its moments across do not matter in the plane."""
    return (
        f'<body name="{name}" pos="{pos}"><joint name="{name}_joint" type="hinge" axis="{axis}"/>'
        f'<inertial pos="{com}" mass="{mass!r}" diaginertia="{moment!r} {moment!r} {moment!r}"/>{inside}</body>'
    )


def pendulum() -> Problem:
    """A rigid pendulum that is let go horizontally."""
    moment, start = 0.01, float(np.pi / 2)
    k = G / (1 + moment)
    m = Mechanism(f"<worldbody>{_planar('bob', '0 0 0', '0 0 -1', 1.0, moment)}</worldbody>", (start,), (0.0,), DOWN)
    exact_k = lambda: reference.mp().mpf("9.81") / reference.mp().mpf("1.01")

    def references() -> list[tuple[str, Any]]:
        k = exact_k()
        rate = lambda t, y: [y[1], -k * reference.mp().sin(y[0])]
        return [
            ("Jacobi's elliptic functions", closed_forms.pendulum(start, 0.0, k, 10.0)),
            ("Gauss", reference.collocated(rate, [start, 0.0], 10.0, 60)),
        ]

    def sweeps() -> list[Sweep]:
        rate = lambda t, y, xp: [y[1] + 0 * t, -k * xp.sin(y[0])]
        found = library.tree_sweeps(m, 100, group=False) + library.absolute_sweeps(m, 400)
        found += peers.coordinate_sweeps(rate, [start, 0.0], lambda y: np.asarray(y), slice(1, 2), 100)
        found += peers.mujoco_sweeps(m, 100) + peers.pinocchio_sweeps(m, 100) + peers.exudyn_sweeps(m, 400)
        return found + peers.mjx_sweeps(m, 100) + peers.drake_sweeps(m)

    text = "1 kg at 1 m with a moment of 0.01 kg m², let go horizontally"
    return Problem("pendulum", "Pendulum", text, 10.0, 1, {"energy": mujoco_energy(m)}, references, sweeps)


def four_bars(n: int = 3) -> Problem:
    """n four-bars in a row; all bars are parallel, and lie in one line twice in every turn."""
    thin = 1.0 / 12.0
    bars, ties = "", ""
    for i in range(n + 1):
        end, top = f'<site name="coupler{i}_end" pos="1 0 0"/>', f'<site name="bar{i}_end" pos="0 0 1"/>'
        coupler = _planar(f"coupler{i}", "0 0 1", "0.5 0 0", 1.0, thin, end) if i < n else ""
        bars += _planar(f"bar{i}", f"{i} 0 0", "0 0 0.5", 1.0, thin, coupler + top)
        if i < n:
            ties += f'<connect site1="coupler{i}_end" site2="bar{i + 1}_end"/>'
    inside = f"<worldbody>{bars}</worldbody><equality>{ties}</equality>"
    size = 2 * n + 1
    pattern = [(-1.0) ** i for i in range(size)]
    m = Mechanism(inside, (0.0,) * size, tuple(pattern), DOWN)
    ratio = lambda one: one * ((n + 1) * one / 2 + n) / ((n + 1) * one / 3 + n)
    k = G * ratio(1.0)

    def state(y: Any) -> np.ndarray:
        return np.concatenate([np.array(pattern) * y[0], np.array(pattern) * y[1]])

    def references() -> list[tuple[str, Any]]:
        mp = reference.mp()
        k = mp.mpf("9.81") * ratio(mp.mpf(1))
        angle, speed = closed_forms.pendulum(-mp.pi, 1.0, k, 10.0)
        y = reference.collocated(lambda t, y: [y[1], k * mp.sin(y[0])], [0.0, 1.0], 10.0, 100)
        signs = [int(s) for s in pattern]
        whole = lambda a, w: [s * a for s in signs] + [s * w for s in signs]
        return [("Jacobi's elliptic functions", whole(angle + mp.pi, speed)), ("Gauss", whole(*y))]

    def sweeps() -> list[Sweep]:
        rate = lambda t, y, xp: [y[1] + 0 * t, k * xp.sin(y[0])]
        found = library.tree_sweeps(m, 800, None, False, True) + library.absolute_sweeps(m, 1600)
        found += peers.coordinate_sweeps(rate, [0.0, 1.0], state, slice(1, 2), 100)
        return found + peers.mujoco_sweeps(m, 1600) + peers.exudyn_sweeps(m, 1600)

    text = f"{n} four-bars of rods of 1 m and 1 kg, upright, 1 m/s, through singular positions"
    return Problem("four_bars", "Four-bars", text, 10.0, size, {"energy": mujoco_energy(m)},
                   references, sweeps)  # fmt: skip


# Andrews' squeezer, the numbers of the published test problem.
MASS = (0.04325, 0.00365, 0.02373, 0.00706, 0.07050, 0.00706, 0.05498)
MOMENT = ("2.194e-6", "4.410e-7", "5.255e-6", "5.667e-7", "1.169e-5", "5.667e-7", "1.912e-5")
SIZES = {
    "xa": "-0.06934", "ya": "-0.00227", "xb": "-0.03635", "yb": "0.03273", "xc": "0.014", "yc": "0.072", "d": "0.028",
    "da": "0.0115", "e": "0.02", "ea": "0.01421", "rr": "0.007", "ra": "0.00092", "l0": "0.07785", "ss": "0.035",
    "sa": "0.01874", "sb": "0.01043", "sc": "0.018", "sd": "0.02", "ta": "0.02308", "tb": "0.00916", "u": "0.04",
    "ua": "0.01228", "ub": "0.00449", "zf": "0.02", "zt": "0.04", "fa": "0.01421", "mom": "0.033", "c0": "4530",
}  # fmt: skip
START = ("-0.0617138900142764496358948458001", "0", "0.455279819163070380255912382449",
         "0.222668390165885884674473185609", "0.487364979543842550225598953530", "-0.222668390165885884674473185609",
         "1.23054744454982119249735015568")  # fmt: skip
PUBLISHED = ("15.81077119629904", "-15.75637105984298", "0.04082224013073101", "-0.5347301163226948",
             "0.5244099658805304", "0.5347301163226948", "1.048080741042263")  # fmt: skip
PUBLISHED_RATES = ("1139.920302151208", "-1424.379294994111", "11.03291221937134", "19.29337464421385",
                   "0.5735699284790808", "-19.29337464421385", "0.3231791658026955")  # fmt: skip
_DRIVE = '<actuator><general joint="K1_joint" gainprm="0" biastype="affine" biasprm="0.033"/></actuator>'
ORDER = [0, 1, 2, 4, 3, 6, 5]  # tree's order of β, Θ, γ, Φ, δ, Ω, ε


def andrews_rate(number: Callable[[str], Any], cos: Callable, sin: Callable, sqrt: Callable, solve: Callable) -> Any:
    """rate(t, y) of the seven angles and their rates: M q̈ + Gᵀλ = f, G q̈ = -Ġ q̇."""
    p = {name: number(text) for name, text in SIZES.items()}
    mass1, m2, m3, m4, m5, m6, m7 = (number(repr(x)) for x in MASS)
    i1, i2, i3, i4, i5, i6, i7 = (number(x) for x in MOMENT)
    rr, d, ss, e, zt, zf, u, da = (p[x] for x in ("rr", "d", "ss", "e", "zt", "zf", "u", "da"))
    ee, ff, ra = e - p["ea"], zf - p["fa"], p["ra"]
    crank = [(rr, cos, (0,)), (-d, cos, (0, 1))]
    rows = [
        [*crank, (-ss, sin, (2,))],
        [*crank, (-e, sin, (3, 4)), (-zt, cos, (4,))],
        [*crank, (-zf, cos, (5, 6)), (-u, sin, (6,))],
    ]

    def constraint(terms: list, quarter: bool, q: Any, v: Any) -> tuple[list, Any]:
        """Gradient and the part of the second derivative without accelerations; quarter: of the y coordinate."""
        gradient, rest = [0] * 7, 0
        for size, kind, angles in terms:
            a, w = sum(q[i] for i in angles), sum(v[i] for i in angles)
            value, slope = (cos(a), -sin(a)) if kind is cos else (sin(a), cos(a))
            if quarter:  # the same vector, a quarter turn on
                value, slope = -slope, value
            rest = rest - size * w * w * value
            for i in angles:
                gradient[i] = gradient[i] + size * slope
        return gradient, rest

    def rate(t: Any, y: Any, xp: Any = None) -> list[Any]:
        q, v = list(y[:7]), list(y[7:])
        be, th, _, ph, de, om, ep = v
        ct, st, sp, cp, so, co = cos(q[1]), sin(q[1]), sin(q[3]), cos(q[3]), sin(q[5]), cos(q[5])
        cg, sg = cos(q[2]), sin(q[2])
        m21, m54 = m2 * (da * da - da * rr * ct) + i2, m4 * (ee * ee + zt * ee * sp) + i4
        m76 = m6 * (ff * ff - u * ff * so) + i6
        mass = [[0 * ct] * 7 for _ in range(7)]
        mass[0][0] = mass1 * ra**2 + m2 * (rr**2 - 2 * da * rr * ct + da**2) + i1 + i2
        mass[0][1] = mass[1][0] = m21
        mass[1][1] = m2 * da**2 + i2 + 0 * ct
        mass[2][2] = m3 * (p["sa"] ** 2 + p["sb"] ** 2) + i3 + 0 * ct
        mass[3][3] = m4 * ee**2 + i4 + 0 * ct
        mass[3][4] = mass[4][3] = m54
        mass[4][4] = m4 * (zt**2 + 2 * zt * ee * sp + ee**2) + m5 * (p["ta"] ** 2 + p["tb"] ** 2) + i4 + i5
        mass[5][5] = m6 * ff**2 + i6 + 0 * ct
        mass[5][6] = mass[6][5] = m76
        mass[6][6] = m6 * (ff**2 - 2 * u * ff * so + u**2) + m7 * (p["ua"] ** 2 + p["ub"] ** 2) + i6 + i7
        x = p["sd"] * cg + p["sc"] * sg + p["xb"] - p["xc"]
        z = p["sd"] * sg - p["sc"] * cg + p["yb"] - p["yc"]
        long = sqrt(x * x + z * z)
        pull = -p["c0"] * (long - p["l0"]) / long
        force = [
            p["mom"] - m2 * da * rr * th * (th + 2 * be) * st,
            m2 * da * rr * be * be * st,
            pull * (x * (p["sc"] * cg - p["sd"] * sg) + z * (p["sd"] * cg + p["sc"] * sg)),
            m4 * zt * ee * de * de * cp,
            -m4 * zt * ee * ph * (ph + 2 * de) * cp,
            -m6 * u * ff * ep * ep * co,
            m6 * u * ff * om * (om + 2 * ep) * co,
        ]
        made = [constraint(terms, quarter, q, v) for terms in rows for quarter in (False, True)]
        zero = 0 * ct
        matrix = [mass[i] + [g[0][i] + zero for g in made] for i in range(7)]
        matrix += [[a + zero for a in g] + [zero] * 6 for g, _ in made]
        return [*v, *solve(matrix, [*force, *(-rest for _, rest in made)])[:7]]

    return rate


def andrews() -> Problem:
    """Andrews' squeezing mechanism to 0.03 s."""
    p = {name: float(text) for name, text in SIZES.items()}
    end, q0 = 0.03, [float(x) for x in START]
    link = lambda name, at, com, i, inside="": _planar(
        name, f"{at[0]!r} {at[1]!r} 0", f"{com[0]!r} {com[1]!r} 0", MASS[i], float(MOMENT[i]), inside, "0 0 1"
    )
    ends = {"K2": (-p["d"], 0.0), "K3": (0.0, -p["ss"]), "K4": (0.0, -p["e"]), "K6": (p["zf"], 0.0)}
    end_of = {name: f'<site name="{name}_end" pos="{x!r} {y!r} 0"/>' for name, (x, y) in ends.items()}
    k2 = link("K2", (p["rr"], 0.0), (-p["da"], 0.0), 1, end_of["K2"])
    k4 = link("K4", (p["zt"], 0.0), (0.0, p["ea"] - p["e"]), 3, end_of["K4"])
    k6 = link("K6", (0.0, -p["u"]), (p["zf"] - p["fa"], 0.0), 5, end_of["K6"])
    site = f'<site name="D" pos="{p["sd"]!r} {-p["sc"]!r} 0"/>' + end_of["K3"]
    bodies = link("K1", (0.0, 0.0), (p["ra"], 0.0), 0, k2)
    bodies += link("K3", (p["xb"], p["yb"]), (p["sa"], p["sb"]), 2, site)
    bodies += link("K5", (p["xa"], p["ya"]), (p["ta"], p["tb"]), 4, k4)
    bodies += link("K7", (p["xa"], p["ya"]), (p["ua"], p["ub"]), 6, k6)
    ties = "".join(f'<connect site1="{b}_end" site2="K2_end"/>' for b in ("K3", "K4", "K6"))
    inside = (
        f'<worldbody><site name="C" pos="{p["xc"]!r} {p["yc"]!r} 0"/>{bodies}</worldbody><equality>{ties}</equality>'
        f'<tendon><spatial stiffness="4530" springlength="{p["l0"]!r}"><site site="C"/><site site="D"/></spatial>'
        "</tendon>"
    )
    start = [q0[i] for i in ORDER]
    m = Mechanism(inside, tuple(start), (0.0,) * 7)

    def state(y: Any) -> np.ndarray:
        y = np.asarray(y)
        return np.concatenate([y[:7][ORDER], y[7:][ORDER]])

    def references() -> list[tuple[str, Any]]:
        mp = reference.mp()
        rate = andrews_rate(mp.mpf, mp.cos, mp.sin, mp.sqrt, reference.solve)
        start = [*START, *["0"] * 7]
        order = [*ORDER, *(7 + i for i in ORDER)]
        first = reference.collocated(rate, start, end, 100, 8)
        second = reference.extrapolated(rate, start, end, 300, 9)
        return [("Gauss", list(first[order])), ("extrapolation", list(second[order]))]

    def coordinates(t: Any, y: Any, xp: Any) -> Any:
        solve = lambda a, b: list(xp.linalg.solve(xp.array(a), xp.array(b)))
        return andrews_rate(float, xp.cos, xp.sin, xp.sqrt, solve)(t, y)

    def sweeps() -> list[Sweep]:
        torque = np.array([p["mom"], *[0.0] * 6])
        found = library.tree_sweeps(m, 100, None, False, True, torque)
        found += peers.coordinate_sweeps(coordinates, [*q0, *[0.0] * 7], state, slice(7, 14), 100)
        return found + peers.mujoco_sweeps(m, 400, drive=_DRIVE)

    text = (
        "seven bodies, a spring and a torque of 0.033 N m, from the Test Set for IVP Solvers, whose final angles are "
        "1.4e-9 away, its rates 5e-7 rad/s"
    )
    return Problem("andrews", "Andrews' mechanism", text, end, 7, {}, references, sweeps)


def problems() -> list[Problem]:
    return [pendulum(), four_bars(), andrews()]


def published_error(state: Sequence[Any]) -> float:
    """How far the angles of Andrews' mechanism at 0.03 s are from the published ones."""
    mp = reference.mp()
    return float(max(abs(state[k] - mp.mpf(PUBLISHED[i])) for k, i in enumerate(ORDER)))
