"""Forces of a fluid on bodies that move through it: drag, viscous resistance, added mass, lift.

Read first: `force.py`. Two models, both MuJoCo's: `fluid_boxes` takes each body as a box, `fluid_ellipsoids` parts of
bodies as ellipsoids. A law gives the wrench on a body of its velocity against the fluid, both in the axes of the box or
ellipsoid and about its center; `Immersed` does the rest. Ellipsoids are in `fluid_ellipsoids.py`.
Source: MuJoCo's page on fluid forces.
"""

from collections.abc import Sequence
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
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Medium:
    """Fluid: density () kg/m^3, viscosity () Pa s, and wind (3,) m/s, its velocity in the world."""

    density: jax.Array
    viscosity: jax.Array
    wind: jax.Array


class Immersed(Force):
    """n boxes or ellipsoids on bodies of a model, in a medium: what both kinds share."""

    model: Model
    medium: Medium
    frames: Pose  # (n) in the frames of the bodies
    bodies: tuple[str | int, ...]

    def wrenches(self, twists) -> jax.Array:
        """Wrenches [n, f] (n, 6) at velocities [w, v] (n, 6) against the fluid, in the frames."""
        raise NotImplementedError

    def __call__(self, t, q, v):
        world, poses, moves = self._placed(q, v)
        on_bodies = self.wrenches(self._against(world, poses))
        n, f = (sm.matvec(poses.rotation, x) for x in (on_bodies[:, :3], on_bodies[:, 3:]))
        about_origin = jnp.concatenate([n + sm.cross(poses.translation, f), f], 1)
        carried = jnp.sum(jnp.where(moves[..., None], about_origin[:, None], 0), 0)  # (nv, 6)
        return sm.dot(world.S, carried)

    def slopes(self, t, q, v):
        """The damping is that of all terms, lift and added mass too."""
        world, poses, moves = self._placed(q, v)
        twists = self._against(world, poses)
        unit = lambda e: jax.jvp(self.wrenches, (twists,), (jnp.broadcast_to(e, twists.shape),))[1]
        D = -jax.vmap(unit, out_axes=-1)(sm.identity(6, v.dtype))  # (n, 6, 6)
        lifted = jax.tree.map(lambda x: x[:, None], se3.inverse(poses))
        J = jnp.where(moves[..., None], se3.Ad(lifted, world.S[None]), 0)  # (n, nv, 6)
        damping = jnp.sum(J * sm.matvec(D[:, None], J), (0, 2))
        return jnp.zeros_like(v), jnp.maximum(damping, 0)

    def for_model(self, model):
        return replace(self, model=checked_model(model))  # type: ignore[type-var]

    def _placed(self, q, v):
        """Kinematics, poses of the frames in world axes about its origin, and the velocities that move each (n, nv)."""
        tree, places = self.model.tree, [carrier(self.model, body) for body in self.bodies]
        index = np.asarray([body for body, _ in places], int)
        offsets = jax.tree.map(lambda *x: jnp.stack(x), *(offset for _, offset in places))
        world = world_kinematics(self.model, q, v)
        bodies = jax.tree.map(lambda x: x[index], world.poses)
        poses = se3.compose(bodies, se3.compose(offsets, self.frames))
        return world, poses, ancestor_mask(tree)[index][:, np.asarray(tree.v_body)]

    def _against(self, world, poses):
        """Velocities (n, 6) of the frames against the fluid."""
        index = np.asarray([carrier(self.model, body)[0] for body in self.bodies], int)
        twists = se3.Ad(se3.inverse(poses), world.twists[index])
        return twists.at[:, 3:].add(-sm.tmatvec(poses.rotation, self.medium.wind))


# ---- boxes
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FluidBoxes(Immersed):
    """Drag and viscous resistance of boxes; see `fluid_boxes`."""

    model: Model
    medium: Medium
    frames: Pose
    half_sizes: jax.Array
    bodies: tuple[str | int, ...] = field(metadata=STATIC)

    def wrenches(self, twists):
        density, viscosity = self.medium.density, self.medium.viscosity
        r, w, v = self.half_sizes, twists[:, :3], twists[:, 3:]
        x, y, z = r[:, 0], r[:, 1], r[:, 2]
        faces = 4 * jnp.stack([y * z, z * x, x * y], 1)
        fourth = r**4
        arms = r * (jnp.sum(fourth, 1, keepdims=True) - fourth)
        radius = jnp.mean(r, 1, keepdims=True)
        f = -density / 2 * faces * jnp.abs(v) * v - 6 * np.pi * viscosity * radius * v
        n = -density / 2 * arms * jnp.abs(w) * w - 8 * np.pi * viscosity * radius**3 * w
        return jnp.concatenate([n, f], 1)


def fluid_boxes(
    model: Model | Mechanism,
    bodies: Sequence[str | int],
    half_sizes: Any,
    density: Any = 0.0,
    viscosity: Any = 0.0,
    wind: Any = (0.0, 0.0, 0.0),
    frames: Pose | None = None,
) -> FluidBoxes:
    """Fluid forces on bodies as boxes, MuJoCo's inertia model: drag and viscous resistance.

    A box with half sizes r and their mean r_m, with the linear velocity v and angular velocity w of its center relative
    to the fluid, in the axes of the box, has the force and the torque about its center

        f_i = -2 rho r_j r_k |v_i| v_i - 6 pi beta r_m v_i
        n_i = -rho/2 r_i (r_j^4 + r_k^4) |w_i| w_i - 8 pi beta r_m^3 w_i.

    bodies: n names of bodies or frames, or indices of bodies. half_sizes: (n, 3) m, see `inertia_box`. density: rho,
    kg/m^3. viscosity: beta, Pa s. wind: (3,) m/s, velocity of the fluid in the world. frames: Pose with a leading axis
    n, of the boxes in the frames of the bodies; those frames by default.
    Raises ValueError for unknown names, frames fixed to the world, and numbers of the wrong shape or out of range.
    Source: MuJoCo's page on fluid forces, inertia model.
    """
    model = checked_model(model)
    names, frames = places_of(model, bodies, frames)
    half_sizes = checks.array("half_sizes", half_sizes, (len(names), 3), model.dtype, exact=True)
    medium = medium_of(model, density, viscosity, wind)
    return FluidBoxes(model, medium, frames, checks.positive("half_sizes", half_sizes, allow_zero=True), names)


def inertia_box(mass: Any, moments: Any) -> jax.Array:
    """Half sizes (..., 3) m of the homogeneous box with mass (...) kg and principal moments (..., 3) kg m^2.

    Source: MuJoCo's page on fluid forces: r_i^2 = 3/2 (I_j + I_k - I_i) / mass.
    """
    mass, moments = jnp.asarray(mass), jnp.asarray(moments)
    square = 1.5 * (jnp.sum(moments, -1, keepdims=True) - 2 * moments) / mass[..., None]
    flat = square <= 0
    return jnp.where(flat, 0, jnp.sqrt(jnp.where(flat, 1, square)))


# ---- what the makers share
def places_of(model: Model, bodies: Sequence[str | int], frames: Pose | None) -> tuple[tuple[str | int, ...], Pose]:
    """Checked names, and frames (n) in the dtype of the model."""
    if isinstance(bodies, str):
        raise TypeError(f"bodies must be a list of names, got {checks.shown(bodies)}")
    names = tuple(bodies)
    if not names:
        raise ValueError("no bodies in the fluid: the list is empty")
    for name in names:
        if carrier(model, name)[0] < 0:
            raise ValueError(f"{name!r} is fixed to the world, where a fluid moves nothing")
    n = len(names)
    if frames is None:
        return names, Pose(sm.identity(3, model.dtype, (n,)), jnp.zeros((n, 3), model.dtype))
    if not isinstance(frames, tuple) or len(frames) != 2:
        raise TypeError(f"frames are a Pose of arrays with a leading axis, got {checks.described(frames)}")
    rotation = checks.array("rotation of the frames", frames[0], (n, 3, 3), model.dtype, exact=True)
    translation = checks.array("translation of the frames", frames[1], (n, 3), model.dtype, exact=True)
    return names, Pose(checks.rotation("rotation of the frames", rotation, 1e-4), translation)


def medium_of(model: Model, density: Any, viscosity: Any, wind: Any) -> Medium:
    """A medium in the dtype of the model, checked."""
    return Medium(
        parameter("density", density, None, model.dtype),
        parameter("viscosity", viscosity, None, model.dtype),
        checks.array("wind", wind, (3,), model.dtype, exact=True),
    )
