"""Derivative rules of forward and hybrid dynamics: inverse dynamics, differentiated at the solution.

With ID(q, v, vdot) = tau, M dvdot = dtau - dID, where dID is the derivative at constant vdot.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from lgjax.numerics.tangents import along_moving


def by_inverse_dynamics(accelerations: Callable, forces: Callable, solve: Callable) -> Callable:
    """The function accelerations(model, q, v, tau, applied) with derivatives from M dvdot = dtau - dID.

    forces(model, q, v, vdot, applied) is inverse dynamics, which takes a third of the work to differentiate.
    solve(model, q, f) applies M^-1 and is its own transpose in reverse mode.
    """
    function = jax.custom_jvp(accelerations)

    @partial(function.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        vdot = function(*primals)
        lacking = lambda model, q, v, tau, applied: forces(model, q, v, vdot, applied) - tau
        return vdot, -solve(*primals[:2], along_moving(lacking, primals, tangents)[1])

    return function


def by_partial_inverse_dynamics(dynamics: Callable, forces: Callable, solve: Callable, given: np.ndarray) -> Callable:
    """The function dynamics(model, q, v, vdot, tau, applied) -> (vdot, tau) with derivatives from M dvdot = dtau - dID.

    Where `given`, a bool mask (nv,), vdot is an input and tau an unknown; elsewhere the reverse. forces: as in
    `by_inverse_dynamics`. solve(model, q, f, vdot) solves for the same unknowns without velocities and gravity.
    """
    function = jax.custom_jvp(dynamics)

    @partial(function.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        found = function(*primals)
        model, q, *_, tau, _ = primals
        still = lambda x, dx: jnp.zeros_like(x) if isinstance(dx, SymbolicZero) else dx
        vdot, tau = (still(x, dx) for x, dx in zip(primals[3:5], tangents[3:5], strict=True))
        required = lambda model, q, v, applied: forces(model, q, v, found[0], applied)
        without = lambda x: (*x[:3], x[5])
        more = along_moving(required, without(primals), without(tangents))[1]
        change, needed = solve(model, q, jnp.where(given, 0, tau) - more, vdot)
        return found, (change, jnp.where(given, needed, tau))

    return function
