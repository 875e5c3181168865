"""The Puma 560 manipulator with PD control, in absolute and in minimal coordinates.

Source: [holzinger2024] section 4.4; the profiles of the motion are lost there, those here are chosen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from lgjax import maximal
from lgjax.groups import LieGroup, R3xSO3
from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.configuration import Configuration, configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.systems.maximal_problem import MaximalProblem
from lgjax.systems.problem import arrays, gravity_vector, not_negative

Array = jax.Array

# Standard Denavit-Hartenberg d, a (m), α; mass, center of mass in the link frame, moments about it.
LINKS = (
    (0.0, 0.0, np.pi / 2, 20.0, (0.0, 0.0, 0.0), (0.0, 0.35, 0.0)),
    (0.0, 0.4318, 0.0, 17.4, (-0.3638, 0.006, 0.2275), (0.13, 0.524, 0.539)),
    (0.15005, 0.0203, -np.pi / 2, 4.8, (-0.0203, -0.0141, 0.07), (0.066, 0.086, 0.0125)),
    (0.4318, 0.0, np.pi / 2, 0.82, (0.0, 0.019, 0.0), (0.0018, 0.0013, 0.0018)),
    (0.0, 0.0, -np.pi / 2, 0.34, (0.0, 0.0, 0.0), (3e-4, 4e-4, 3e-4)),
    (0.0, 0.0, 0.0, 0.09, (0.0, 0.0, 0.032), (1.5e-4, 1.5e-4, 4e-5)),
)
MASSES = tuple(link[3] for link in LINKS)
STIFFNESS = (40000.0, 40000.0, 40000.0, 100.0, 100.0, 10.0)
DAMPING = (400.0, 400.0, 100.0, 1.0, 1.0, 0.1)
START = np.deg2rad([0.0, 22.5, 90.0, 0.0, 22.5, 0.0])
GOAL = np.deg2rad([-120.0, 60.0, -200.0, 90.0, 90.0, 45.0])
DURATION = 1.0
NAMES = tuple(f"link {i + 1}" for i in range(6))


@dataclass(frozen=True)
class _Profile:
    """The angle at time t: constant acceleration for half of the duration, then as much deceleration; rest after."""

    start: float
    goal: float

    def __call__(self, t: Any) -> Any:
        s = jnp.clip(jnp.asarray(t) / DURATION, 0.0, 1.0)
        part = jnp.where(s < 0.5, 2.0 * s * s, 1.0 - 2.0 * (1.0 - s) ** 2)
        return self.start + (self.goal - self.start) * part


PROFILES = tuple(_Profile(float(a), float(b)) for a, b in zip(START, GOAL))


def _link(angle: float, d: float, a: float, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Pose of a link frame in that of the link before."""
    c, s, ca, sa = np.cos(angle), np.sin(angle), np.cos(alpha), np.sin(alpha)
    return np.array([[c, -s * ca, s * sa], [s, c * ca, -c * sa], [0.0, sa, ca]]), np.array([a * c, a * s, d])


def puma560(
    masses: Any = MASSES,
    stiffness: Any = STIFFNESS,
    damping: Any = DAMPING,
    gravity: Any = (0.0, 0.0, -9.81),
    group: LieGroup = R3xSO3,
    dtype: Any = None,
) -> MaximalProblem:
    """Six links in absolute coordinates, 30 constraints, springs and dampers (6,) in the joints as PD control.

    Masses (6,) kg; gravity a vector (3,) m/s², or a number that pulls along -z.  The control drives the angles in
    DURATION s from START to GOAL, radians, from rest: eq. (45).  Link 1 has no inertia about two of its axes, which its
    joint holds; the moments are taken as published, although those of links 1 and 3 break the triangle inequality.
    Without invariants.
    Raises ValueError for masses that are not positive and for negative stiffness or damping.
    """
    p = arrays(
        dtype,
        masses=(masses, (6,), checks.positive),
        stiffness=(stiffness, (6,), not_negative),
        damping=(damping, (6,), not_negative),
        gravity=(gravity_vector(gravity), (3,)),
    )
    dtype = p["masses"].dtype
    bodies, joints, springs, rotations, positions = [], [], [], [], []
    r, x, before, com_before = np.eye(3), np.zeros(3), "world", np.zeros(3)
    for i, (d, a, alpha, _, com, moments) in enumerate(LINKS):
        home, offset = _link(0.0, d, a, alpha)
        com = np.asarray(com)
        at_a, at_b = tuple(-com_before), tuple(-home.T @ offset - com)
        bodies.append(maximal.Body(NAMES[i], p["masses"][i], moments))
        joints.append(maximal.Joint(f"joint {i + 1}", "revolute", before, NAMES[i], at_a, at_b, np.eye(3), home.T))
        springs.append(
            maximal.TorsionSpring(before, NAMES[i], np.eye(3), home.T, p["stiffness"][i], p["damping"][i], PROFILES[i])
        )
        turn, shift = _link(START[i], d, a, alpha)
        r, x = r @ turn, x + r @ shift
        rotations.append(r)
        positions.append(x + r @ com)
        before, com_before = NAMES[i], com
    system = maximal.System(bodies, joints, [maximal.Gravity(p["gravity"]), *springs], group, dtype)
    q0 = system.configuration(np.stack(rotations), np.stack(positions))
    return MaximalProblem(p, system, q0, jnp.zeros((system.nv,), dtype), {})


def joint_angles(q: Any) -> Any:
    """Joint angles (..., 6) of a configuration, between -π and π."""
    rotation = q.bodies.rotation
    base = jnp.broadcast_to(jnp.eye(3, dtype=rotation.dtype), rotation[..., :1, :, :].shape)
    frames = jnp.concatenate([base, rotation], axis=-3)
    angles = []
    for i, (d, a, alpha, *_) in enumerate(LINKS):
        x = frames[..., i + 1, :, :] @ jnp.asarray(_link(0.0, d, a, alpha)[0].T[:, 0], rotation.dtype)
        before = frames[..., i, :, :]
        along, across = jnp.sum(before[..., 0] * x, axis=-1), jnp.sum(before[..., 1] * x, axis=-1)
        angles.append(jnp.arctan2(across, along))
    return jnp.stack(angles, axis=-1)


class MinimalPuma(NamedTuple):
    """The same robot for `rollout(model, q0, v0, controller, ...)`."""

    model: Model
    q0: Configuration
    v0: Array
    controller: Callable[[Array, Configuration, Array], Array]


def puma560_minimal(dtype: Any = None) -> MinimalPuma:
    """The Puma 560 in its six joint angles; warns of links 1 and 3, whose moments break the triangle inequality."""
    bodies, before = [], None
    for i, (d, a, alpha, mass, com, moments) in enumerate(LINKS):
        home, offset = _link(0.0, d, a, alpha)
        joint = Joint(f"joint {i + 1}", "revolute", tuple(home[2]), tuple(-home.T @ offset))
        bodies.append(Body(NAMES[i], before, joint, home, offset, mass, np.asarray(com), np.diag(moments)))
        before = NAMES[i]
    model = build(bodies, "puma560", check_inertia="warn", dtype=dtype)
    gains = arrays(model.dtype, stiffness=(STIFFNESS, (6,)), damping=(DAMPING, (6,)))
    q0 = configuration(model, joints=jnp.asarray(START, model.dtype))
    controller = Partial(_control, gains["stiffness"], gains["damping"])
    return MinimalPuma(model, q0, jnp.zeros((model.nv,), model.dtype), controller)


def _control(stiffness: Array, damping: Array, t: Array, q: Configuration, v: Array) -> Array:
    """PD control to the profiles."""
    targets = lambda t: jnp.stack([profile(t) for profile in PROFILES])
    angles, rates = jax.jvp(targets, (t,), (jnp.ones_like(t),))
    return stiffness * (angles - q.joints) + damping * (rates - v)
