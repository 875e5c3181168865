"""Model and Configuration of a mechanism: a static tree and arrays that can be batched and differentiated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups.se3 import Pose
from lgjax.multibody.geometry import Geometry
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.tree import Tree
from lgjax.numerics.renamed import attributes

SHOWN = 12  # joints in a model's repr


class Mechanism:
    """A record that has a Model, such as `lgjax.Robot`: pass it anywhere a Model is expected."""

    model: Model
    loops: Any = ()

    def constant_parts(self) -> dict[str, Any]:
        """Parts beside the model whose numbers `lgjax.specialize` makes constants."""
        return {}

    def replace(self, **changes: Any) -> Any:
        """A copy with other parts, which are on its model."""
        raise NotImplementedError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Model:
    """Mechanism: topology (static) and parameters (leaves).

    Each moving body carries a *joint frame*, whose z is the axis of its joint; placements and inertias are given in
    joint frames, which keeps the recursions short. `links` places the body frame (the link frame of the file that
    the model came from) in it; poses, base velocity, wrenches and Jacobians are all of body frames.

    placements: Pose (nbodies), joint frame at q = 0 in the parent's joint frame. links: Pose (nbodies), body frame in
    the joint frame. screws: (nbodies, 2), of joints with one degree of freedom: rotation about z and translation along
    z per unit of the coordinate, (1, 0) revolute, (0, 1) prismatic, (1, pitch) helical.
    inertias: Inertia (nbodies), joint frame. gravity: (3,) m/s^2, world. armature: (nv,) inertia added on the joint
    side. damping: (nv,) viscous, N m s/rad or N s/m. friction: (nv,) and the limits are data for controllers: the
    dynamics do not apply them. lower, upper: (tree.n_joint,) rad or m. effort, velocity_limit: (nv,)
    limits on force and velocity. frames: Pose (nframes), the frames `tree.frames` in their body's joint frame (or in
    the world). geometry: static, what of the links can touch, see `Contacts`.
    """

    tree: Tree = field(metadata={"static": True})
    placements: Pose
    links: Pose
    screws: jax.Array
    inertias: Inertia
    gravity: jax.Array
    armature: jax.Array
    damping: jax.Array
    friction: jax.Array
    lower: jax.Array
    upper: jax.Array
    effort: jax.Array
    velocity_limit: jax.Array
    frames: Pose
    geometry: tuple[Geometry, ...] = field(default=(), metadata={"static": True})

    def __repr__(self) -> str:
        names = self.joint_names
        shown = ", ".join(names if len(names) <= SHOWN else (*names[:SHOWN], f"... {len(names) - SHOWN} more"))
        floats = ", floating" * (self.tree.n_free > 0)
        return f"<Model {self.name!r}: {self.nbodies} bodies{floats}, nv {self.nv}, joints {shown or 'none'}>"

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(rate="velocity_limit")

    @property
    def name(self) -> str:
        return self.tree.name

    @property
    def nv(self) -> int:
        """Number of velocity coordinates."""
        return self.tree.nv

    @property
    def nbodies(self) -> int:
        """Number of moving bodies; links on fixed joints belong to the body that carries them."""
        return self.tree.nbodies

    @property
    def body_names(self) -> tuple[str, ...]:
        return self.tree.body_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints in body order, free joints left out."""
        pairs = zip(self.tree.joint_names, self.tree.kinds, strict=True)
        return tuple(name for name, kind in pairs if kind.coordinates != "free_poses")

    @property
    def dtype(self) -> jnp.dtype:
        return self.inertias.mass.dtype

    def astype(self, dtype) -> Model:
        """The same model with every array in `dtype`."""
        return jax.tree.map(lambda x: x.astype(dtype), self)

    def replace(self, **changes) -> Model:
        """A copy with the given leaves replaced. Numbers are not checked: a negative damping drives its joint."""
        return replace(self, **changes)


class Configuration(NamedTuple):
    """Configuration of a mechanism: a point of SE(3)^n_free x R^n x SO(3)^n_ball.

    free_poses: Pose (n_free), world poses of the bodies on free joints. joints: (n,) scalar coordinates, radians or
    meters, in body order. ball_rotations: (n_ball, 3, 3), child to parent rotations of spherical joints.
    """

    free_poses: Pose
    joints: jax.Array
    ball_rotations: jax.Array

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(frees="free_poses", balls="ball_rotations")
