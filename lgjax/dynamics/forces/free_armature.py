"""Force of the armature of a free joint on a moving body, beyond `Model.armature` times its acceleration.

Read first: `force.py`. The kinetic energy of an armature, v . a v / 2 of the body velocity [w, v], gives by the
Euler-Poincare equations a dv/dt + w x a v: the dynamics apply the first part, the mass matrix, and this force the
second. It is a force, not a term of every recursion: only files that put an armature on a free joint by mistake need
it, it takes six numbers, and algorithms, partials and time derivatives of all other models stay as they are.
"""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces.force import STATIC, Force, spread
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import small_matrix as sm


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FreeArmature(Force):
    """-[w x b w + v x a v, w x a v] of the velocity [w, v] of each free body with the armature [b, a]."""

    armature: jax.Array  # (free joints, 6)
    index: tuple[int, ...] = field(metadata=STATIC)

    def __call__(self, t, q, v):
        twists = v[np.asarray(self.index, int)].reshape(-1, 6)
        w, u = twists[:, :3], twists[:, 3:]
        angular, linear = self.armature[:, :3] * w, self.armature[:, 3:] * u
        wrench = jnp.concatenate([sm.cross(w, angular) + sm.cross(u, linear), sm.cross(w, linear)], 1)
        return spread(v, self.index, -wrench.reshape(-1))

    def for_model(self, model):
        return replace(self, armature=checked_model(model).armature[np.asarray(self.index, int)].reshape(-1, 6))


def free_armature(model: Model | Mechanism) -> FreeArmature:
    """The turning of the armature that free joints have in `Model.armature`, so that it acts along axes of the world.

    With it an armature of a for all six coordinates of a free joint means what it means in MuJoCo, whose linear ones
    are in world axes: an inertia a against the acceleration of the body's origin in the world, a (dv/dt + w x v), and a
    against its angular acceleration. It does no work, and has no weight.
    Source: the Euler-Poincare equations of v . a v / 2; derived.
    """
    model = checked_model(model)
    tree = model.tree
    index = [i for i, body in enumerate(tree.v_body) if tree.kinds[body].coordinates == "free_poses"]
    return FreeArmature(model.armature[np.asarray(index, int)].reshape(-1, 6), tuple(index))
