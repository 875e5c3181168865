"""What a joint kind says of its axes is what its motion subspace is."""

import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.multibody import joints

KINDS = [x for x in vars(joints).values() if isinstance(x, joints.JointKind)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_axes_are_the_columns_of_the_subspace(kind):
    if not kind.axes:
        return
    q = jnp.eye(3) if kind.coordinates == "ball_rotations" else 0.3 * jnp.ones(kind.nq)
    S = jnp.concatenate(kind.subspace(q, jnp.asarray([1.0, 0.0])))
    np.testing.assert_array_equal(S, np.eye(6)[:, list(kind.axes)])
    assert not kind.varying
