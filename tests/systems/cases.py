"""The explicit methods, the systems that they are tried on, their references at END, and observed orders."""

from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import jit

from lgjax.groups import product_space
from lgjax.integrators import (
    BOGACKI_SHAMPINE32,
    CF3,
    CF4,
    CF32_B,
    CROUCH_GROSSMAN3,
    DORMAND_PRINCE54,
    DORMAND_PRINCE85,
    HEUN2,
    LIE_EULER,
    RK3,
    RK4,
    RK4_TWO_COMMUTATORS,
    RK6,
    CommutatorFree,
    MuntheKaas,
    integrate,
)
from lgjax.systems import free_rigid_body, heavy_top, quadrotors_with_load, spherical_pendulum
from lgjax.systems.problem import Problem
from lgjax.systems.quadrotors_with_load import LoadState, attitude_control, desired_forces, parabola
from tests.systems import references

TABLEAUX = (LIE_EULER, HEUN2, RK3, RK4, RK4_TWO_COMMUTATORS, BOGACKI_SHAMPINE32, DORMAND_PRINCE54, RK6)
TABLES = (CF3, CF4, CF32_B, CROUCH_GROSSMAN3)  # the first two are the upper methods of CF32_A and CF43
EXPLICIT = {
    **{repr(t): MuntheKaas(t, scan_stages=True) for t in (*TABLEAUX, DORMAND_PRINCE85)},
    "RK4 truncated": MuntheKaas(RK4, commutators=2, scan_stages=True),
    **{repr(t): CommutatorFree(t) for t in TABLES},
}
END = 0.4
INERTIA = np.array([1.0, 2.0, 2.5])
FREE_SPIN = np.array([2.4, 0.0, 3.0])
# A body whose three moments differ, spinning a few radians in the time of the test.
TOP = {"inertia": (0.8, 0.5, 1.1), "length": 0.4, "mass": 2.0, "angular_velocity": (1.0, 4.0, -2.0)}
GRAVITY = np.array([0.0, 0.0, -9.81])
DIRECTIONS = np.array([[0.6, 0.0, 0.8], [0.0, -0.6, -0.8]])
SPINS = np.array([[0.0, 1.0, 0.0], [1.2, 0.4, -0.3]])
MASSES, LENGTHS = np.array([1.0, 0.7]), np.array([1.8, 2.4])
PENDULUM = {"masses": MASSES, "lengths": LENGTHS, "q": DIRECTIONS, "omega": SPINS}


def spins(formulation: str) -> np.ndarray:
    """A faster motion where momenta are the variables: in the slow one the leading error of RKMK 5 nearly vanishes."""
    return 3.0 * SPINS if formulation == "hamiltonian" else SPINS


@cache
def system(name: str) -> Problem:
    with jax.enable_x64(True):
        kind, _, formulation = name.partition(" ")
        if kind == "free":
            return free_rigid_body(formulation, INERTIA, INERTIA * FREE_SPIN, jnp.float64)
        if kind == "top":
            return heavy_top(formulation, dtype=jnp.float64, **TOP)
        if kind == "pendulum":
            motion = {**PENDULUM, "omega": spins(formulation)}
            return spherical_pendulum(2, formulation, dtype=jnp.float64, **motion)
        return quadrotors_with_load(attitude=formulation, dtype=jnp.float64)


@cache
def _top_reference() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    p = jax.tree.map(np.asarray, system("top body").parameters)
    q, omega = references.heavy_top(p["tensor"], p["lever"], p["gravity"], p["angular_velocity"], END)
    return q, p["tensor"] @ omega, p["gravity"], p["lever"]


@cache
def reference(name: str) -> list[np.ndarray]:
    """Leaves of the state at END."""
    kind, _, formulation = name.partition(" ")
    if kind == "free":
        momentum = references.free_body_momentum(INERTIA, *FREE_SPIN[::2], np.array([END]))[0]
        if formulation == "lie_poisson":
            return [momentum]
        p0 = INERTIA * FREE_SPIN
        q, _ = references.heavy_top(np.diag(INERTIA), np.zeros(3), np.zeros(3), p0 / INERTIA, END)
        return [q, momentum] if formulation == "body" else [q, p0]
    if kind == "top":
        q, momentum, gravity, lever = _top_reference()
        if formulation == "body":
            return [q, momentum]
        if formulation == "lie_poisson":
            return [np.concatenate([momentum, -q.T @ gravity])]
        if formulation == "quadratic":  # the cyclic q is not in the reference
            return [q, np.full(3, np.nan), np.concatenate([q @ momentum, -lever])]
        return [q, q @ momentum]
    if kind == "pendulum":
        q, omega = references.pendulum(DIRECTIONS, spins(formulation), MASSES, LENGTHS, GRAVITY, END)
        if formulation == "hamiltonian":
            speed = LENGTHS[:, None] * np.cross(omega, q)
            carried = np.cumsum((MASSES[:, None] * np.cumsum(speed, axis=0))[::-1], axis=0)[::-1]
            return [q, LENGTHS[:, None] * np.cross(q, carried)]
        return [q, omega]
    return _quadrotor_reference(formulation)


def _quadrotor_reference(formulation: str) -> list[np.ndarray]:
    s = system(f"quadrotors {formulation}")
    p = s.parameters

    @jax.jit
    def controls(t, state):
        *rest, q, omega = state
        y = LoadState(*rest, (q, omega))
        force = desired_forces(p, parabola, t, y)
        return attitude_control(p, y, force) if formulation == "controlled" else (force, jnp.zeros((2, 3)))

    numbers = {k: np.asarray(p[k]) for k in ("masses", "load_mass", "lengths", "inertia", "gravity")}
    control = lambda t, state: tuple(map(np.asarray, controls(t, state)))
    start = [np.asarray(leaf) for leaf in jax.tree.leaves(s.y0)]
    return list(references.quadrotors(start, **numbers, control=control, end=END))


@partial(jit, static_argnums=(0, 1, 2))
def leg(names: tuple[str, ...], method: Any, steps: int, y: Any, t0: Any, t1: Any) -> Any:
    """All systems together from t0 to t1: one compilation for a method."""
    systems = [system(name) for name in names]
    space = systems[0].space if len(names) == 1 else product_space(*(s.space for s in systems))
    field = lambda t, y: tuple(s.field(t, x) for s, x in zip(systems, y, strict=True))
    if len(names) == 1:
        field = systems[0].field
    return jax.tree.map(lambda x: x[0], integrate(space, field, y, t0, t1, steps, method, save_every=None).ys)


@cache
def errors(names: tuple[str, ...], method: Any, legs: tuple[int, ...], steps: int = 2) -> dict[str, np.ndarray]:
    """Error of each system at END with steps * n steps for each n in legs: the largest over the leaves of the state, in
    units of the leaf's largest entry where that is above one."""
    scaled = lambda a, b: np.max(np.abs(a - b), where=~np.isnan(b), initial=0.0) / max(1.0, np.nanmax(np.abs(b)))
    result: dict[str, list[float]] = {name: [] for name in names}
    for n in legs:
        y = tuple(system(name).y0 for name in names) if len(names) > 1 else system(names[0]).y0
        for t0, t1 in pairwise(np.linspace(0.0, END, n + 1)):
            y = leg(names, method, steps, y, float(t0), float(t1))
        for name, end in zip(names, y if len(names) > 1 else (y,), strict=True):
            pairs = zip(jax.tree.leaves(end), reference(name), strict=True)
            result[name].append(max(scaled(a, b) for a, b in pairs if not np.all(np.isnan(b))))
    return {name: np.array(values) for name, values in result.items()}


def observed_order(error: np.ndarray, legs: tuple[int, ...], floor: float = 5e-13) -> float:
    """From the finest run whose error round-off does not touch and the one of half as many steps, or of 2/3 as many."""
    found = dict(zip(legs, error, strict=True))
    for n in sorted(legs, reverse=True):
        for coarser in (n / 2, 2 * n / 3):
            if found[n] > floor and coarser in found:
                return float(np.log(found[coarser] / found[n]) / np.log(n / coarser))
    raise AssertionError(f"errors {error} are all at round-off")
