"""Passive forces of a robot that are not in its model: springs, dampers, tendons, gravity compensation, fluid."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics import forces as made
from lgjax.dynamics.forces import Force
from lgjax.dynamics.transmissions import Transmissions
from lgjax.groups.se3 import Pose
from lgjax.multibody.conventions import from_mujoco
from lgjax.multibody.importers.description import Description, Fluid, Place, Tendon
from lgjax.multibody.model import Configuration, Model


def forces(model: Model, description: Description, tendons: Transmissions | None) -> Force | None:
    """The sum of all that there is; None if there is nothing."""
    found: list[Force] = []
    if description.springs:
        found.append(_springs(model, description))
    if description.dampers:
        found.append(_dampers(model, description))
    if description.free_armature:
        found.append(made.free_armature(model))
    if description.compensated:
        found.append(_compensated(model, description))
    if tendons is not None:
        found += _along(tendons, description.tendons)
    if description.fluid is not None:
        found += _fluid(model, description.fluid)
    return reduce(add, found) if found else None


def _springs(model: Model, description: Description) -> Force:
    names = tuple(spring.joint for spring in description.springs)
    columns = _columns(model, names, [spring.stiffness for spring in description.springs], 3)
    rest = None if description.rest is None else flat_configuration(model, description, description.rest)
    return made.spring(model, columns[0], rest, names, *_higher(columns))


def _dampers(model: Model, description: Description) -> Force:
    names = tuple(part.joint for part in description.dampers)
    columns = _columns(model, names, [(0.0, *part.coefficients) for part in description.dampers], 3)
    return made.damper(model, columns[0], names, *_higher(columns))


def _compensated(model: Model, description: Description) -> Force:
    """Links that fixed joints have merged into one body are carried each by itself."""
    some = description.compensated
    links: list[str] = [str(heavy.com.link) for heavy in some]
    com = np.array([heavy.com.position for heavy in some])
    return made.gravity_compensation(
        model, links, np.array([heavy.factor for heavy in some]), np.array([heavy.mass for heavy in some]), com
    )


def _along(lengths: Transmissions, tendons: Sequence[Tendon]) -> list[Force]:
    """Springs, friction and soft stops of the tendons that have them."""
    found: list[Force] = []
    some = [i for i, tendon in enumerate(tendons) if any(tendon.stiffness)]
    if some:
        first, second, third = _padded(tendons[i].stiffness for i in some)
        rest = np.array([tendons[i].rest for i in some]).T
        found.append(made.tendon_spring(lengths.take(some), first, (rest[0], rest[1]), second, third))
    some = [i for i, tendon in enumerate(tendons) if any(tendon.damping) or tendon.friction]
    if some:
        first, second, third = _padded(tendons[i].damping for i in some)
        dry = np.array([tendons[i].friction for i in some])
        more = {} if not dry.any() else {"coulomb": dry}
        found.append(made.tendon_friction(lengths.take(some), first, quadratic=second, cubic=third, **more))
    some = [i for i, tendon in enumerate(tendons) if tendon.limits is not None]
    if some:
        low, high = np.array([tendons[i].limits for i in some]).T
        stiffness, damping, width = np.array([tendons[i].stop for i in some]).T
        found.append(made.tendon_limits(lengths.take(some), stiffness, low, high, damping, width))
    return found


def _fluid(model: Model, fluid: Fluid) -> list[Force]:
    """On the boxes of bodies, and on the ellipsoids of geoms."""
    found: list[Force] = []
    medium = fluid.density, fluid.viscosity, fluid.wind
    if fluid.bodies:
        links, frames = _frames(model, [heavy.com for heavy in fluid.bodies])
        mass, inertia = (np.array([getattr(heavy, name) for heavy in fluid.bodies]) for name in ("mass", "inertia"))
        found.append(made.fluid_boxes(model, links, _half_sizes(model, mass, inertia), *medium, frames))
    if fluid.ellipsoids:
        links, frames = _frames(model, [ellipsoid.place for ellipsoid in fluid.ellipsoids])
        axes, numbers = (
            np.array([getattr(one, name) for one in fluid.ellipsoids]) for name in ("axes", "coefficients")
        )
        virtual = np.concatenate([numbers[:, 9:12], numbers[:, 6:9]], 1)  # MuJoCo has the masses first
        found.append(made.fluid_ellipsoids(model, links, axes, *medium, frames, numbers[:, 1:6], virtual))
    return found


def _half_sizes(model: Model, mass: np.ndarray, inertia: np.ndarray) -> jax.Array:
    return made.inertia_box(jnp.asarray(mass, model.dtype), jnp.asarray(inertia, model.dtype))


def _frames(model: Model, places: Sequence[Place]) -> tuple[list[str], Pose]:
    """Links of places, and their poses in them, stacked."""
    return [str(place.link) for place in places], Pose(
        jnp.asarray(np.array([place.rotation for place in places]), model.dtype),
        jnp.asarray(np.array([place.position for place in places]), model.dtype),
    )


def _padded(values: Iterable[Sequence[float]]) -> Any:
    """Three columns of coefficients; those of higher order None where all are zero."""
    columns = np.array([([*row] + [0.0] * 3)[:3] for row in values]).T
    return columns[0], *_higher(columns)


def _higher(columns: np.ndarray) -> list[np.ndarray | None]:
    """Coefficients of higher order, None where all are zero."""
    return [column if column.any() else None for column in columns[1:]]


def _columns(model: Model, joints: Sequence[str], values: Sequence[Sequence[float]], count: int) -> np.ndarray:
    """Numbers of joints for each of their velocities, in body order: (count, n)."""
    by_name = dict(zip(joints, values, strict=True))
    rows = [
        ([*by_name[name]] + [0.0] * count)[:count]
        for name, kind in zip(model.tree.joint_names, model.tree.kinds, strict=True)
        if name in by_name
        for _ in range(kind.nv)
    ]
    return np.array(rows, float).T


def flat_configuration(model: Model, description: Description, q: Any) -> Configuration:
    """A Configuration from flat coordinates of the file."""
    return jax.tree.map(lambda x: jnp.asarray(x, model.dtype), from_mujoco(model, q, order=description.order).q)
