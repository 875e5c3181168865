"""Constraints of a cut joint: the residual of the pose of one of its frames in the other, and its number of rows."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lgjax.groups import so3
from lgjax.groups.se3 import Pose

# closure(pose of frame b in frame a, number or start of the loop) -> residual, zero where the joint could stand.
Closure = Callable[[Pose, jax.Array], jax.Array]


def _swing(rotation) -> jax.Array:
    """The rotation (2,) about x and y that takes z of frame a to that of frame b the shortest way, radians.

    Where these are opposite to round-off, any axis does: it is x, and does not move.
    """
    z = rotation[:, 2]
    squared, down = z[0] ** 2 + z[1] ** 2, z[2] < 0
    opposite = down & (squared < jnp.finfo(z.dtype).eps ** 2)
    # of z near -1 the sum 1 + z keeps no digits
    cosine = jnp.where(down, squared / (1 - jnp.where(down, z[2], 0)), 1 + z[2])
    x, y = jnp.where(opposite, 1, -z[1]), jnp.where(opposite, 0, z[0])
    # of size 1, as powers of a short one leave float32
    size = jax.lax.stop_gradient(jnp.maximum(jnp.maximum(jnp.abs(x), jnp.abs(y)), cosine))
    return so3.log_quaternion(jnp.stack([cosine, x, y, jnp.zeros_like(x)]) / size)[:2]


def _twist_about_z(rotation) -> jax.Array:
    """The angle () about z that is left when the swing is taken off a rotation, between -pi and pi.

    Where the swing is half a turn to round-off, the angle is anything: it is 0, and does not move.
    """
    sine, cosine = rotation[1, 0] - rotation[0, 1], rotation[0, 0] + rotation[1, 1]
    opposite = sine**2 + cosine**2 < (4 * jnp.finfo(sine.dtype).eps) ** 2
    sine, cosine = jnp.where(opposite, 0, sine), jnp.where(opposite, 1, cosine)
    # of size 1, as for the swing
    size = jax.lax.stop_gradient(jnp.maximum(jnp.abs(sine), jnp.abs(cosine)))
    return jnp.arctan2(sine / size, cosine / size)


def _weld(pose, _):
    return jnp.concatenate([so3.log(pose.rotation), pose.translation])


def _revolute(pose, _):
    return jnp.concatenate([_swing(pose.rotation), pose.translation])


def _prismatic(pose, _):
    return jnp.concatenate([so3.log(pose.rotation), pose.translation[:2]])


def _cylindrical(pose, _):
    return jnp.concatenate([_swing(pose.rotation), pose.translation[:2]])


def _helical(pose, pitch):
    """The last row is the angle that is missing for the advance along z, whatever the number of turns."""
    angle = pose.translation[2] / pitch
    c, s = jnp.cos(angle), jnp.sin(angle)
    x, y = pose.rotation[0], pose.rotation[1]
    unscrewed = jnp.stack([c * x + s * y, c * y - s * x, pose.rotation[2]])
    return jnp.concatenate([_cylindrical(pose, pitch), _twist_about_z(unscrewed)[None]])


def _universal(pose, _):
    """z of frame a stays at right angles to x of frame b."""
    return jnp.concatenate([pose.rotation[2, :1], pose.translation])


def _planar(pose, _):
    return jnp.concatenate([_swing(pose.rotation), pose.translation[2:]])


def _point(pose, _):
    return pose.translation


def _point_on_line(pose, _):
    return pose.translation[:2]


def _point_on_plane(pose, _):
    return pose.translation[2:]


def _distance(pose, length):
    """(r^2 - d^2) / 2d: the missing length to first order, and smooth where the points meet."""
    return ((jnp.sum(pose.translation**2) - length**2) / (2 * length))[None]


CLOSURES: dict[str, tuple[Closure, int]] = {
    "weld": (_weld, 6),
    "revolute": (_revolute, 5),
    "prismatic": (_prismatic, 5),
    "helical": (_helical, 5),
    "cylindrical": (_cylindrical, 4),
    "universal": (_universal, 4),
    "planar": (_planar, 3),
    "point": (_point, 3),
    "point_on_line": (_point_on_line, 2),
    "point_on_plane": (_point_on_plane, 1),
    "distance": (_distance, 1),
}
ALIASES = {"fixed": "weld", "spherical": "point", "continuous": "revolute"}
