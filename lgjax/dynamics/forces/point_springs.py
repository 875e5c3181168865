"""Springs between points of bodies.

Read first: `force.py`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces.force import STATIC, Force
from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.joint_parameters import parameter
from lgjax.dynamics.kinematics import ancestor_mask, world_kinematics
from lgjax.groups import se3
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import length_and_direction


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PointSpring(Force):
    """A spring and a damper along the line between two points."""

    model: Model
    points: tuple[jax.Array, jax.Array]
    stiffness: jax.Array
    damping: jax.Array
    length: jax.Array
    bodies: tuple[str | int | None, str | int | None] = field(metadata=STATIC)

    def __call__(self, t, q, v):
        gap, _, along, apart = self._gap(q, v)
        speed = sm.dot(along, jnp.sum(apart * v[:, None], 0))
        pull = self.stiffness * gap - (self.stiffness * self.length - self.damping * speed) * along
        return -sm.matvec(apart, pull)

    def rows(self, t, q, v):
        """The length, and the gap in three directions, which resists where the spring is longer than at rest."""
        _, distance, along, apart = self._gap(q, v)
        meeting = distance == 0
        share = jnp.where(meeting, 0, 1 - self.length / jnp.where(meeting, 1, distance))
        across = jnp.where(self.length == 0, 1, jnp.maximum(share, 0))
        rows = jnp.concatenate([sm.matvec(apart, along)[None], apart.T])
        stiffness = self.stiffness * jnp.stack([1 - across, *[across] * 3])
        return rows, stiffness, jnp.zeros_like(stiffness).at[0].set(self.damping)

    def energy(self, q):
        _, places, _ = self._kinematics(q, None)
        gap = places[1] - places[0]
        distance, _ = length_and_direction(gap)
        # Where the points meet, the square in the form that has its derivatives there.
        meeting = sm.dot(gap, gap) + self.length * (self.length - 2 * distance)
        return self.stiffness * jnp.where(distance > 0, (distance - self.length) ** 2, meeting) / 2

    def for_model(self, model):
        return replace(self, model=checked_model(model))

    def _gap(self, q, v):
        """The gap (3,) between the points, its length and direction, and how it grows with each velocity (nv, 3)."""
        world, places, moves = self._kinematics(q, v)
        gap = places[1] - places[0]
        J = [
            jnp.where(m[:, None], world.S[:, 3:] + sm.cross(world.S[:, :3], p), 0)
            for p, m in zip(places, moves, strict=True)
        ]
        return gap, *length_and_direction(gap), J[1] - J[0]

    def _kinematics(self, q, v):
        """Motions in world axes, the two points about the same origin, and the velocities that move them."""
        world = world_kinematics(self.model, q, v)
        places, moves = [], []
        for body, point in zip(self.bodies, self.points, strict=True):
            index, offset = (-1, None) if body is None else carrier(self.model, body)
            if index >= 0 and offset is not None:
                offset = se3.compose(jax.tree.map(lambda x, i=index: x[i], world.poses), offset)
            at = point if offset is None else sm.matvec(offset.rotation, point) + offset.translation
            places.append(at if index >= 0 else at - world.origin)
            path = ancestor_mask(self.model.tree)[index] if index >= 0 else np.zeros(self.model.nbodies, bool)
            moves.append(path[np.asarray(self.model.tree.v_body)])
        return world, places, moves


def point_spring(
    model: Model | Mechanism, a: Any, b: Any, stiffness: Any, length: Any = 0.0, damping: Any = 0.0
) -> PointSpring:
    """A spring with a damper between two points: pull = stiffness (distance - length) + damping d(distance)/dt.

    a and b: (body, point (3,)): the name of a body or frame, or the index of a body, and the point in its frame; (None,
    point) is a point of the world. Metres, N/m, N s/m. At distance zero a spring with a length gives no force.
    """
    model = checked_model(model)
    points = []
    for what, end in (("a", a), ("b", b)):
        if not isinstance(end, tuple | list) or len(end) != 2:
            raise TypeError(f"{what} must be a pair of a body and a point, got {checks.shown(end)}")
        body, point = end
        if body is not None:
            carrier(model, body)
        points.append(checks.array(f"point {what} of a spring", point, (3,), model.dtype, exact=True))
    scalar = lambda name, value: parameter(name, value, None, model.dtype)
    return PointSpring(
        model,
        (points[0], points[1]),
        scalar("stiffness", stiffness),
        scalar("damping", damping),
        scalar("length", length),
        (a[0], b[0]),
    )
