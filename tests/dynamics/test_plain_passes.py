"""The passes of forward, inverse and hybrid dynamics equal order 0 of the Taylor series to round-off."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.dynamics.spatial import applied_wrenches
from lgjax.dynamics.time_derivatives.derivatives import FORMULATIONS
from lgjax.dynamics.time_derivatives.series import hybrid_series, inverse_series
from tests.dynamics import trees

TREES = {
    "floating": trees.every_joint,
    "on the ground": lambda: trees.every_joint(floating_base=False),
    "forest": trees.forest,
}
FAST = [("floating", "spatial"), ("on the ground", "body")]
CASES = [
    pytest.param(*case, marks=[] if case in FAST else pytest.mark.slow, id="-".join(case))
    for case in itertools.product(TREES, FORMULATIONS)
]
ROUND_OFF = 1e-11  # of the largest entry


def close(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype == np.float64
    assert np.max(np.abs(a - b)) < ROUND_OFF * np.max(np.abs(b))


@pytest.mark.parametrize(("name", "frame"), CASES)
def test_order_0_of_the_series_is_the_plain_passes(name, frame):
    model, formulation = TREES[name](), FORMULATIONS[frame]
    assert np.any(model.armature > 0)
    assert np.any(model.damping > 0)
    prescribed = tuple(range(0, model.nv, 3))
    given = np.isin(np.arange(model.nv), prescribed)

    def both(q, v, vdot, tau, wrenches):
        applied = [applied_wrenches(model.links, wrenches)]
        series = lambda x, tau, mask: hybrid_series(
            model, q, v, lambda k, speeds: (x, tau), 0, mask, applied, formulation
        )
        mixed = series(jnp.where(given, vdot, 0), jnp.where(given, 0, tau), given)
        by_series = (
            inverse_series(model, q, v, [vdot], applied, formulation)[0],
            series(None, tau, None)[0][0],
            mixed[0][0],
            mixed[1][0],
        )
        by_passes = (
            lgjax.inverse_dynamics(model, q, v, vdot, wrenches),
            lgjax.forward_dynamics(model, q, v, tau, wrenches),
            *lgjax.hybrid_dynamics(model, q, v, vdot, tau, prescribed, wrenches),
        )
        return by_series, by_passes

    by_series, by_passes = jax.jit(jax.vmap(both))(*trees.random_states(model))
    for a, b in zip(by_series, by_passes, strict=True):
        close(a, b)
