"""Problems of the tests of this folder."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import lgjax


class LinearQuadratic(NamedTuple):
    """Steps A x + B u, which cost (x·Q x + u·R u) / 2."""

    A: np.ndarray
    B: np.ndarray
    Q: np.ndarray
    R: np.ndarray

    def system(self, dtype=float):
        a, b = jnp.asarray(self.A, dtype), jnp.asarray(self.B, dtype)
        space = lgjax.groups.vector_space(len(self.A))
        return lgjax.control.ControlSystem.on_space(space, lambda x, u: a @ x + b @ u, self.B.shape[1])

    def costs(self, P, dtype=float):
        """Arguments of `optimize_controls`, with x·P x / 2 for the last state."""
        q, r, p = (jnp.asarray(x, dtype) for x in (self.Q, self.R, P))
        return {"running": lambda t, x, u: (x @ q @ x + u @ r @ u) / 2, "terminal": lambda x: x @ p @ x / 2}


def solve(system, state, guesses, **options):
    return lgjax.optimize_controls(system, state, guesses, progress=False, **options)
