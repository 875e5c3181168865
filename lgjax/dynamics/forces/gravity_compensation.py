"""Forces that carry the weight of bodies, all of it or a part.

Read first: `force.py`. A force that holds a mechanism at rest is that of `gravity_forces`; the mechanism here has the
masses that are carried.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.energy import potential_energy
from lgjax.dynamics.forces.force import STATIC, Force
from lgjax.dynamics.inverse import gravity_forces
from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.joint_parameters import parameter
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GravityCompensation(Force):
    """-fraction mass gravity at the center of mass of each of n bodies; see `gravity_compensation`."""

    model: Model
    fraction: jax.Array
    mass: jax.Array | None  # None: those of the model, whose bodies these are
    com: jax.Array | None
    bodies: tuple[str | int, ...] = field(metadata=STATIC)

    def __call__(self, t, q, v):
        return gravity_forces(self._carried(), q)

    def energy(self, q):
        return -potential_energy(self._carried(), q)

    def for_model(self, model):
        return replace(self, model=checked_model(model))

    def _carried(self) -> Model:
        """The model with the masses that are carried, as points."""
        places = [carrier(self.model, body) for body in self.bodies]
        index = np.asarray([body for body, _ in places], int)
        inertias, none = self.model.inertias, jnp.zeros_like
        if self.mass is None:
            mass = self.fraction * inertias.mass[index]
            moment = self.fraction[:, None] * inertias.moment[index]
        else:
            mass = self.fraction * self.mass
            offsets = jax.tree.map(lambda *x: jnp.stack(x), *(offset for _, offset in places))
            com = jnp.asarray(self.com)
            moment = mass[:, None] * (sm.matvec(offsets.rotation, com) + offsets.translation)
        carried = Inertia(
            none(inertias.mass).at[index].add(mass),
            none(inertias.moment).at[index].add(moment),
            none(inertias.rotational),
        )
        return self.model.replace(inertias=carried)


def gravity_compensation(
    model: Model | Mechanism,
    bodies: Sequence[str | int] | None = None,
    fraction: Any = 1.0,
    mass: Any = None,
    com: Any = None,
) -> GravityCompensation:
    """Forces -fraction mass gravity at the centers of mass of bodies: MuJoCo's gravcomp.

    bodies: names of bodies or of frames, or indices of bodies; all bodies by default. Without mass and com they are
    moving bodies, and the masses those of the model. mass: (n,) kg, and com: (n, 3) m in the frame of each, are for
    links that fixed joints have merged into one body, whose frames keep their names. fraction: one number or (n,); 1
    carries all, more makes a body rise. Its `energy` is minus a part of `potential_energy`.
    Raises ValueError for unknown names, frames fixed to the world, and numbers that do not fit.
    Source: MuJoCo's passive forces.
    """
    model = checked_model(model)
    names = tuple(model.body_names if bodies is None else bodies)
    if isinstance(bodies, str):
        raise TypeError(f"bodies must be a list of names, got {checks.shown(bodies)}")
    for name in names:
        if carrier(model, name)[0] < 0:
            raise ValueError(f"{name!r} is fixed to the world, which carries its weight")
        if mass is None and isinstance(name, str) and name not in model.body_names:
            raise ValueError(f"{name!r} is a frame of {model.name!r}: give mass and com for it")
    if (mass is None) != (com is None):
        raise ValueError("give both mass and com, or neither")
    labels = [str(name) for name in names]
    fraction = parameter("fraction", fraction, labels, model.dtype, -np.inf)
    if mass is not None:
        mass = parameter("mass", mass, labels, model.dtype)
        com = checks.array("com", com, (len(names), 3), model.dtype, exact=True)
    return GravityCompensation(model, fraction, mass, com, names)
