"""The aerial manipulator: its propellers, and reference motions with their time derivatives of any order.

The mechanism is `lgjax.models.aerial_manipulator()`, and all numbers are in its file.
Source: [ali2026] section 7.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.spatial import convolve
from lgjax.dynamics.time_derivatives.poses import twist_series
from lgjax.dynamics.time_derivatives.time_stacks import Frame, check_frame, derivatives
from lgjax.groups.se3 import Pose
from lgjax.multibody import models
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.multibody.models.multirotor_with_arms import (
    MECHANISM,
    MOTION,
    PROPELLERS,
    Mechanism,
    Propellers,
    ReferenceMotion,
)
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm

Array = jax.Array
Series = list[Array]  # Taylor coefficients in time


class AerialManipulator(NamedTuple):
    """The mechanism, its propellers and its reference motion.

    allocation (6, 6): base wrench [n, f], body frame, about the base's center of mass, from squared propeller speeds
    in rad²/s². inverse (6, 6): the other way.
    """

    model: Model
    allocation: Array
    inverse: Array
    motion: ReferenceMotion

    def wrench(self, squared_speeds: Array) -> Array:
        """Base wrench (..., 6), body frame, of propellers with these squared speeds (..., 6) in rad²/s²."""
        return sm.matvec(self.allocation, squared_speeds)

    def squared_speeds(self, wrench: Array) -> Array:
        """Squared propeller speeds (..., 6) in rad²/s² that make a base wrench (..., 6), body frame.

        Linear, so derivatives of the wrench give derivatives of these. A negative entry says that the propeller would
        have to pull against its thrust: the wrench is out of reach.
        """
        return sm.matvec(self.inverse, wrench)

    def speeds(self, wrench: Array) -> Array:
        """Propeller speeds (..., 6) in rad/s; negative where the squared speed is, and then out of reach.

        Not differentiable at zero; `squared_speeds` is.
        """
        squared = self.squared_speeds(wrench)
        return jnp.sign(squared) * jnp.sqrt(jnp.abs(squared))

    def reference(self, t: Any, order: int, frame: Frame = "body") -> tuple[Configuration, Array]:
        """The reference at time t (s): its configuration and derivatives of its velocity, (order + 2, 12).

        This is what `inverse_dynamics_time_derivatives` of that order and frame takes. t is a scalar in the dtype of
        the model; vmap it over several. Exact: no difference quotient is formed.
        """
        check_frame(frame)
        t = jnp.asarray(t, self.model.dtype)
        n = order + 3
        poses, joints = base_series(t, n, self.motion), joint_series(t, n, self.motion)
        base = twist_series(poses, frame)
        v = derivatives([sm.join(*twist, rate) for twist, rate in zip(base, _rate(joints), strict=True)])
        frees = jax.tree.map(lambda x: x[None], poses[0])
        return Configuration(frees, joints[0], jnp.zeros((0, 3, 3), t.dtype)), v


def aerial_manipulator(
    mechanism: Mechanism = MECHANISM,
    propellers: Propellers = PROPELLERS,
    motion: ReferenceMotion = MOTION,
    dtype: Any = None,
) -> AerialManipulator:
    """A hexarotor with tilted propellers and two arms of three joints, with a reference motion of 10 s.

    The defaults carry the numbers, none of which is the source's; `_replace` changes them. The base wrench that inverse
    dynamics returns, body frame, is the one to be made by the propellers. Raises ValueError for propellers that cannot
    make every wrench, such as parallel ones, or whose numbers are not six, and for masses, moments, lengths, ranges,
    thrust and drag that are not positive, spins that are not 1 or -1, and numbers that are not finite.
    """
    dtype = None if dtype is None else checks.floating("dtype", dtype)
    checks.of_kind("propellers", propellers, Propellers)
    checks.of_kind("motion", motion, ReferenceMotion)
    _check(checks.of_kind("mechanism", mechanism, Mechanism), propellers, motion)
    model = models.aerial_manipulator(mechanism)
    model = model if dtype is None else model.astype(dtype)
    matrix = allocation(propellers)
    directions = matrix / np.linalg.norm(matrix, axis=0)
    if matrix.shape != (6, 6) or np.linalg.matrix_rank(directions, 1e-9) < 6:
        raise ValueError(
            f"these {matrix.shape[1]} propellers do not make every wrench in one way: {checks.shown(propellers)}"
        )
    as_array = lambda x: jnp.asarray(x, model.dtype)
    return AerialManipulator(model, as_array(matrix), as_array(np.linalg.inv(matrix)), motion)


def _check(mechanism: Mechanism, propellers: Propellers, motion: ReferenceMotion) -> None:
    """Raise ValueError for the first number of the three records that makes no sense, with its name."""
    for axis in mechanism.axes:
        checks.choice("mechanism.axes", axis, ("x", "y", "z"))
    records = {"mechanism": mechanism._replace(axes=()), "propellers": propellers, "motion": motion}
    found = {f"{name}.{key}": value for name, record in records.items() for key, value in record._asdict().items()}
    for name, value in found.items():
        checks.numbers(name, value)
    for name in ("base_inertia", "link_inertia"):
        checks.principal_moments(f"mechanism.{name}", found[f"mechanism.{name}"])
    for name in ("base_mass", "link_mass", "link_length", "joint_range"):
        checks.positive(f"mechanism.{name}", found[f"mechanism.{name}"])
    for name in ("radius", "thrust", "drag"):
        checks.positive(f"propellers.{name}", found[f"propellers.{name}"])
    if not set(propellers.spins) <= {1, -1}:
        raise ValueError(f"propellers.spins must be 1 or -1, got {checks.shown(propellers.spins)}")
    joints = 2 * len(mechanism.axes)
    for name in ("joint_start", "joint_amplitude"):
        checks.array(f"motion.{name}", found[f"motion.{name}"], (joints,), float)


def allocation(propellers: Propellers = PROPELLERS) -> np.ndarray:
    """Base wrenches (6, n) of n propellers per squared speed, body frame, about the base's origin.

    Column i is Ad*(rot_z(angle) trans_x(radius) rot_x(tilt)) [0, 0, -spin drag, 0, 0, thrust].
    Source: [ali2026] eq. (28).
    """
    columns = []
    for angle, tilt, spin in zip(propellers.angles, propellers.tilts, propellers.spins, strict=True):
        outward = np.array([np.cos(angle), np.sin(angle), 0.0])
        along = np.array([-np.sin(angle), np.cos(angle), 0.0])
        axis = np.cos(tilt) * np.array([0.0, 0.0, 1.0]) - np.sin(tilt) * along
        force = propellers.thrust * axis
        moment = -spin * propellers.drag * axis + np.cross(propellers.radius * outward, force)
        columns.append(np.concatenate([moment, force]))
    return np.stack(columns, axis=1)


# ---- the reference motion, as Taylor coefficients in time
def _sine(rate: float, t: Array, n: int, cosine: bool = False) -> Series:
    """n coefficients of sin(rate t), or of the cosine."""
    s, c = jnp.sin(rate * t), jnp.cos(rate * t)
    cycle = (s, c, -s, -c)
    return [cycle[(k + cosine) % 4] * (rate**k / math.factorial(k)) for k in range(n)]


def _rate(x: Series) -> Series:
    """Coefficients of the derivative, one fewer."""
    return [k * coefficient for k, coefficient in enumerate(x)][1:]


def joint_series(t: Array, n: int, motion: ReferenceMotion = MOTION) -> Series:
    """n coefficients (number of joints,) of the joint angles at time t."""
    start, amplitude = (jnp.asarray(x, t.dtype) for x in (motion.joint_start, motion.joint_amplitude))
    cosine = _sine(motion.joint_rate, t, n, cosine=True)
    return [start + amplitude * (1 - cosine[0]) / 2, *(-amplitude * c / 2 for c in cosine[1:])]


def base_series(t: Array, n: int, motion: ReferenceMotion = MOTION) -> list[Pose]:
    """n coefficients of the base's pose, world frame, at time t."""
    yaw = [motion.yaw_amplitude * c for c in _sine(motion.yaw_rate, t, n)]
    rate = _rate(yaw)
    s, c = [jnp.sin(yaw[0])], [jnp.cos(yaw[0])]
    times = lambda a, b: a * b
    for k in range(n - 1):
        ds, dc = convolve(times, c, rate, k), -convolve(times, s, rate, k)
        s, c = [*s, ds / (k + 1)], [*c, dc / (k + 1)]
    zero, one = jnp.zeros_like(t), jnp.ones_like(t)
    upright, height = [one, *[zero] * (n - 1)], [motion.height * one, *[zero] * (n - 1)]
    x, y = (_sine(motion.circle_rate, t, n, cosine) for cosine in (True, False))
    return [
        Pose(
            sm.rows(sm.stack(c[k], -s[k], zero), sm.stack(s[k], c[k], zero), sm.stack(zero, zero, upright[k])),
            sm.stack(motion.radius * x[k], motion.radius * y[k], height[k]),
        )
        for k in range(n)
    ]
