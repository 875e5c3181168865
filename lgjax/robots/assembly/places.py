"""Places of a description as frames of a model."""

import jax.numpy as jnp

from lgjax.groups.se3 import Pose
from lgjax.multibody.importers.description import Place
from lgjax.multibody.model import Model


def pose(model: Model, place: Place) -> Pose:
    """The pose of a place in its link."""
    return Pose(jnp.asarray(place.rotation, model.dtype), jnp.asarray(place.position, model.dtype))


def frame(model: Model, place: Place) -> tuple[str | None, Pose]:
    return place.link, pose(model, place)
