"""Time derivatives of the dynamics as stacks x[k] = d^k x / dt^k, in body or spatial coordinates of the base."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.hybrid import prescribed_mask
from lgjax.dynamics.spatial import Twist, applied_wrenches, convolve
from lgjax.dynamics.time_derivatives.body_frame import BODY_FRAME
from lgjax.dynamics.time_derivatives.formulation import Formulation
from lgjax.dynamics.time_derivatives.poses import pose_series
from lgjax.dynamics.time_derivatives.series import hybrid_series, inverse_series
from lgjax.dynamics.time_derivatives.spatial_frame import SPATIAL_FRAME
from lgjax.dynamics.time_derivatives.time_stacks import Frame, check_frame, checked_order, coefficients, derivatives
from lgjax.multibody.arguments import checked_arguments, checked_array, described, hint
from lgjax.multibody.configuration import Configuration, join_velocity, split_velocity
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm

FORMULATIONS: dict[str, Formulation] = {"body": BODY_FRAME, "spatial": SPATIAL_FRAME}


@checked_arguments("v", "vdot", "tau", "wrenches")
def inverse_dynamics_time_derivatives(
    model: Model,
    q: Configuration,
    v: jax.Array,
    order: int,
    frame: Frame = "body",
    wrenches: jax.Array | None = None,
) -> jax.Array:
    """Generalized forces and their time derivatives, to any order.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (order + 2, nv), the velocity and its time derivatives; row k in rad/s^(k + 1) and m/s^(k + 1).
        order: order of the highest derivative, static.
        frame: "body"; or "spatial", where the base part of v and of the result is the twist and wrench in world axes
            about the world origin, and their component-wise derivatives.
        wrenches: (order + 1, nbodies, 6), wrenches and their time derivatives, body frame, at the body origin, N m and
            N; None for none.

    Returns:
        (order + 1, nv); row k in N m/s^k and N/s^k.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> stack = jnp.zeros((3, 2))  # v, vdot and its derivative
        >>> lgjax.inverse_dynamics_time_derivatives(arm, lgjax.neutral(arm), stack, 1).shape
        (2, 2)

    Source: [ali2026] Alg. 2.
    """
    order = checked_order(order)
    rates = coefficients(checked_array("v", v, (order + 2, model.nv), model.dtype, model=model))
    base = _Base(model, q, frame)
    speeds = base.to_body_twists(rates)
    x = [(k + 1) * speed for k, speed in enumerate(speeds[1:])]
    forces = inverse_series(model, q, speeds[0], x, _applied(model, wrenches, order), FORMULATIONS[frame])
    return derivatives(base.to_frame_wrenches(forces, speeds))


@checked_arguments("v", "vdot", "tau", "wrenches")
def forward_dynamics_time_derivatives(
    model: Model,
    q: Configuration,
    v: jax.Array,
    tau: jax.Array,
    frame: Frame = "body",
    wrenches: jax.Array | None = None,
) -> jax.Array:
    """Accelerations and their time derivatives, to the order of the given forces.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, rad/s and m/s.
        tau: (order + 1, nv), the forces and their time derivatives; row k in N m/s^k and N/s^k.
        frame, wrenches: as in `inverse_dynamics_time_derivatives`.

    Returns:
        (order + 1, nv); row k in rad/s^(k + 2) and m/s^(k + 2).

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> tau = jnp.zeros((2, 2))  # forces and their derivative
        >>> lgjax.forward_dynamics_time_derivatives(arm, lgjax.neutral(arm), jnp.zeros(2), tau).shape
        (2, 2)

    Source: [ali2026] Alg. 3.
    """
    return hybrid_dynamics_time_derivatives(model, q, v, None, tau, (), frame, wrenches)[0]


@checked_arguments("v", "vdot", "tau", "wrenches")
def hybrid_dynamics_time_derivatives(
    model: Model, q: Configuration, v: jax.Array, vdot: jax.Array | None, tau: jax.Array, prescribed: Sequence[int],
    frame: Frame = "body", wrenches: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Accelerations and forces with their time derivatives, where some accelerations are prescribed.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, rad/s and m/s.
        vdot: (order + 1, nv), read at the prescribed indices; None if there are none.
        tau: (order + 1, nv), read at the others.
        prescribed: static velocity indices at which vdot is given and tau solved for; elsewhere the reverse. In the
            spatial frame a base is prescribed as a whole or not at all.
        frame, wrenches: as in `inverse_dynamics_time_derivatives`.

    Returns:
        (vdot, tau), both (order + 1, nv) and complete.

    Raises:
        ValueError: for stacks of the wrong length or dtype and for bad indices.

    Source: [ali2026] Alg. 4.
    """
    shape = tau.shape if isinstance(tau, jax.Array | np.ndarray) else ()
    if len(shape) != 2 or not shape[0]:
        why = hint("tau", shape, shape[-2:])
        raise ValueError(f"tau is a stack (order + 1, nv), not {described(tau)}{why}")
    order = shape[0] - 1
    given = prescribed_mask(model, prescribed)
    masked = bool(given.any())
    base = _Base(model, q, frame)
    base.check_prescribed(given)
    v = checked_array("v", v, (model.nv,), model.dtype, model=model)
    forces = coefficients(checked_array("tau", tau, (order + 1, model.nv), model.dtype, model=model))
    first = base.to_body_twists([v])
    rates = None
    if masked or vdot is not None:
        accelerations = checked_array("vdot", vdot, (order + 1, model.nv), model.dtype, model=model)
        rates = coefficients(jnp.concatenate([v[None], accelerations])) if masked else None

    def inputs(k, speeds):
        x = None
        if rates is not None:
            x = jnp.where(given, (k + 1) * base.to_body_twists(rates[: k + 2], speeds)[k + 1], 0)
        force = base.to_body_wrench(forces[: k + 1], speeds)
        return x, jnp.where(given, 0, force) if masked else force

    applied = _applied(model, wrenches, order)
    found, forces = hybrid_series(
        model, q, first[0], inputs, order, given if masked else None, applied, FORMULATIONS[frame]
    )
    speeds = [first[0], *(x / (k + 1) for k, x in enumerate(found))]
    out = base.to_frame_twists(speeds)
    vdot = derivatives([(k + 1) * c for k, c in enumerate(out[1:])])
    return vdot, derivatives(base.to_frame_wrenches(forces, speeds))


def _applied(model: Model, wrenches, order: int):
    if wrenches is None:
        return None
    stack = checked_array("wrenches", wrenches, (order + 1, model.nbodies, 6), model.dtype)
    return [applied_wrenches(model.links, w) for w in coefficients(stack)]


# ---- coordinates of the base
class _Base:
    """Moves the free joints' part of series of twists and wrenches between body and spatial coordinates."""

    def __init__(self, model: Model, q: Configuration, frame: str):
        check_frame(frame)
        self.tree, self.start = model.tree, q.free_poses
        self.same = frame == "body" or not model.tree.n_free

    def check_prescribed(self, given: np.ndarray) -> None:
        if self.same:
            return
        for kind, start in zip(self.tree.kinds, self.tree.v_start, strict=True):
            part = given[start : start + kind.nv]
            if kind.coordinates == "free_poses" and part.any() and not part.all():
                raise ValueError("in the spatial frame a base is prescribed as a whole or not at all")

    def _parts(self, coefficients):
        """Base twists or wrenches as (angular, linear) series of (n_free, 3)."""
        base = [split_velocity(self.tree, x)[0] for x in coefficients]
        return [b[:, :3] for b in base], [b[:, 3:] for b in base]

    def _joined(self, coefficients, angular, linear):
        out = []
        for x, w, v in zip(coefficients, angular, linear, strict=False):
            _, joints, balls = split_velocity(self.tree, x)
            out.append(join_velocity(self.tree, jnp.concatenate([w, v], -1), joints, balls))
        return out

    def _poses(self, speeds, orders: int) -> tuple[list, list]:
        """Series of the poses from body twists, `orders` coefficients."""
        twists = [Twist(w, v) for w, v in zip(*self._parts(speeds[: orders - 1]), strict=True)]
        poses = pose_series(self.start, twists)
        return [pose.rotation for pose in poses], [pose.translation for pose in poses]

    def to_body_twists(self, coefficients, speeds=None):
        """Body twists from those of the frame; with it the poses follow, from the body twists found already."""
        if self.same:
            return list(coefficients)
        w, v = self._parts(coefficients)
        found: list = list(speeds[:1]) if speeds else []
        for k in range(len(found), len(coefficients)):
            R, p = self._poses(found, k + 1)
            lever = [v[m] + convolve(sm.cross, w, p, m) for m in range(k + 1)]
            angular, linear = convolve(sm.tmatvec, R, w, k), convolve(sm.tmatvec, R, lever, k)
            found += self._joined([coefficients[k]], [angular], [linear])
        return found

    def to_frame_twists(self, speeds):
        """Twists of the frame from body twists."""
        if self.same:
            return list(speeds)
        w, v = self._parts(speeds)
        R, p = self._poses(speeds, len(speeds))
        angular = [convolve(sm.matvec, R, w, k) for k in range(len(speeds))]
        linear = [convolve(sm.matvec, R, v, k) + convolve(sm.cross, p, angular, k) for k in range(len(speeds))]
        return self._joined(speeds, angular, linear)

    def to_frame_wrenches(self, forces, speeds):
        """Wrenches of the frame from body wrenches."""
        if self.same:
            return list(forces)
        n, f = self._parts(forces)
        R, p = self._poses(speeds, len(forces))
        force = [convolve(sm.matvec, R, f, k) for k in range(len(forces))]
        moment = [convolve(sm.matvec, R, n, k) + convolve(sm.cross, p, force, k) for k in range(len(forces))]
        return self._joined(forces, moment, force)

    def to_body_wrench(self, forces, speeds):
        """The last coefficient of the body wrenches from those of the frame."""
        if self.same:
            return forces[-1]
        k = len(forces) - 1
        n, f = self._parts(forces)
        R, p = self._poses(speeds, len(forces))
        moment = [n[m] - convolve(sm.cross, p, f, m) for m in range(k + 1)]
        body = self._joined(forces[-1:], [convolve(sm.tmatvec, R, moment, k)], [convolve(sm.tmatvec, R, f, k)])
        return body[0]
