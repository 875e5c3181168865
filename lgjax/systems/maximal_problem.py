"""Record of a ready problem in absolute coordinates."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax

from lgjax import maximal

Array = jax.Array


class MaximalProblem(NamedTuple):
    """Problem ready for ``maximal.integrate(problem.system, problem.q0, problem.v0, ...)``.

    parameters   the numbers it was made with, a dict of arrays.
    system       bodies, joints and forces.
    q0, v0       a consistent start.
    invariants   name -> function of (q, v) that the exact motion keeps.
    """

    parameters: dict[str, Array]
    system: maximal.System
    q0: maximal.AbsoluteConfiguration
    v0: Array
    invariants: dict[str, Callable[[maximal.AbsoluteConfiguration, Array], Array]]


def total_energy(system: maximal.System) -> Callable[[maximal.AbsoluteConfiguration, Array], Array]:
    """The energy of (q, v), joules."""
    return partial(_energy, system)


def _energy(system: maximal.System, q: maximal.AbsoluteConfiguration, v: Array) -> Array:
    return system.kinetic_energy(q, v) + system.potential_energy(q)
