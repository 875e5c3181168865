"""Sums over subtrees as one product with the tree's mask, for algorithms whose results are matrices anyway."""

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import ancestor_mask
from lgjax.multibody.model import Model


def products(a, b):
    """Matrix product in full precision."""
    return jnp.matmul(a, b, precision="highest")


def subtree_sums(model: Model, own):
    """Every leaf (nbodies, ...) summed over a body and its descendants."""
    leaves, treedef = jax.tree.flatten(own)
    rows = [x.reshape(model.nbodies, -1) for x in leaves]
    total = products(jnp.asarray(ancestor_mask(model.tree).T, model.dtype), jnp.concatenate(rows, 1))
    stops = np.cumsum([row.shape[1] for row in rows])[:-1]
    parts = jnp.split(total, stops, 1)
    return treedef.unflatten([x.reshape(leaf.shape) for x, leaf in zip(parts, leaves, strict=True)])
