"""Springs at joints, linear or with a quadratic and a cubic part.

Read first: `force.py`. This is the kind of force to copy: a record of leaves and static indices, and a function that
makes it, which checks what it is given.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces.force import STATIC, Force, spread, vectors_of
from lgjax.dynamics.forces.laws import power_sum, spring_energy, spring_pull, spring_slope
from lgjax.dynamics.joint_parameters import coordinates_of, parameter
from lgjax.groups import so3
from lgjax.multibody.arguments import checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration, configuration, join_velocity
from lgjax.multibody.model import Mechanism, Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import cotc, length_and_direction


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JointSpring(Force):
    """-(stiffness + quadratic r + cubic r^2) x of the displacement x from `rest`, see `spring`.

    r is x itself at scalar coordinates, and the length of x where it is a vector.
    """

    tree: Tree = field(metadata=STATIC)
    stiffness: jax.Array
    quadratic: jax.Array | None
    cubic: jax.Array | None
    rest: Configuration
    index: tuple[int, ...] = field(metadata=STATIC)
    rotations: tuple[int, ...] = field(metadata=STATIC)  # where rotation vectors begin in the index
    translations: tuple[int, ...] = field(metadata=STATIC)  # where displacements of free bodies do

    def __call__(self, t, q, v):
        x = self._displacement(q)
        return spread(v, self.index, -spring_pull(x, self._lengths(x)[0], self._coefficients))

    def energy(self, q):
        x = self._displacement(q)
        return jnp.sum(spring_energy(x, self._lengths(x)[0], self._coefficients))

    def slopes(self, t, q, v):
        x = self._displacement(q)
        r, direction = self._lengths(x)
        gain = power_sum(r, *self._coefficients) * self._turns(x)
        found = gain + spring_slope(x, direction, self._coefficients)
        return spread(v, self.index, jnp.maximum(found, 0)), jnp.zeros_like(v)

    @property
    def _coefficients(self):
        return self.stiffness, self.quadratic, self.cubic

    def _displacement(self, q):
        """(n,): that of a free body in its own axes, so that the force does the work of its velocity [w, v]."""
        poses, rest = q.free_poses, self.rest.free_poses
        frees = jnp.zeros((self.tree.n_free, 6), q.joints.dtype)
        if self.translations:
            turned = so3.log(sm.tmatmul(rest.rotation, poses.rotation))
            moved = sm.tmatvec(poses.rotation, poses.translation - rest.translation)
            frees = jnp.concatenate([turned, moved], -1)
        balls = jnp.zeros((self.tree.n_ball, 3), q.joints.dtype)
        if len(self.rotations) > len(self.translations):
            balls = so3.log(sm.tmatmul(self.rest.ball_rotations, q.ball_rotations))
        x = join_velocity(self.tree, frees, q.joints - self.rest.joints, balls)
        return x[np.asarray(self.index, int)]

    def _lengths(self, x):
        """(r, its derivative by each entry of x); where no power of r is needed, r is anything."""
        at = _entries(self.rotations + self.translations)
        if (self.quadratic is None and self.cubic is None) or not len(at):
            return x, jnp.ones_like(x)
        length, direction = length_and_direction(x[at])
        return x.at[at].set(length[:, None]), jnp.ones_like(x).at[at].set(direction)

    def _turns(self, x):
        """How the entries of a rotation vector grow as the body turns about its own axes: dexpinv's diagonal."""
        at = _entries(self.rotations)
        if not len(at):
            return jnp.ones_like(x)
        w = x[at]
        square = sm.dot(w, w)
        grown = 1 + cotc(square)[:, None] * (w * w - square[:, None])
        return jnp.ones_like(x).at[at].set(grown)


def _entries(starts: tuple[int, ...]) -> np.ndarray:
    return np.asarray(starts, int)[:, None] + np.arange(3)


def spring(
    model: Model | Mechanism,
    stiffness: Any,
    rest: Configuration | None = None,
    joints: Sequence[str] | None = None,
    quadratic: Any = None,
    cubic: Any = None,
) -> JointSpring:
    """Springs at joints: tau = -stiffness x with the displacement x from `rest`, neutral unless given.

    x is q - rest at scalar coordinates, and the rotation vector from rest to q in the child's frame at a ball. A free
    joint has springs if it is named in `joints`: on the body's rotation vector, and on its displacement in the world.
    A ball has one stiffness, a free joint one for turning and one for moving.
    quadratic, cubic: the force is -(stiffness x + quadratic x^2 + cubic x^3), in which an x that is a vector counts by
    its length: -(stiffness + quadratic |x| + cubic |x|^2) x. They may be negative; N/m^2, N/m^3, or
    N m/rad^2, N m/rad^3.
    """
    model = checked_model(model)
    names, index = coordinates_of(model, joints, free=True)
    rest = configuration(model) if rest is None else checked_configuration("rest", rest, model)
    rotations, translations = vectors_of(model, index)
    values: list[jax.Array | None] = [parameter("stiffness", stiffness, names, model.dtype)]
    for what, value in (("quadratic", quadratic), ("cubic", cubic)):
        values.append(None if value is None else parameter(what, value, names, model.dtype, -np.inf))
    for what, value in zip(("stiffness", "quadratic", "cubic"), values, strict=True):
        if value is not None and checks.known(value):
            _one_for_each_vector(what, np.asarray(value), names, rotations, translations)
    return JointSpring(model.tree, *values, rest, tuple(index), rotations, translations)  # type: ignore[arg-type]


def _one_for_each_vector(what: str, values: np.ndarray, names, rotations, translations) -> None:
    for k in (*rotations, *translations):
        found = sorted(set(values[k : k + 3].tolist()))
        if len(found) > 1:
            free = "moving" if k in translations else "turning" if k + 3 in translations else None
            where = f"the {free} of {names[k]!r}" if free else f"the ball {names[k]!r}"
            raise ValueError(f"{what} of {where} is one number, got {found}")
