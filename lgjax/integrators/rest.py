"""A body that lies, slides or rolls on its obstacles after more impacts than can be counted.

Source: none; a step of the free body, then back to the admissible side and no approach left, by plastic impacts.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups.iteration import iterate_while
from lgjax.groups.se3 import Pose
from lgjax.integrators.impact import Contact, Laws, approach_rate, contact_speed, impact
from lgjax.integrators.variational import RigidBody, RigidState, kinetic_energy, potential_energy

Array = jax.Array
Closest = Callable[[RigidState], Contact]  # of equal gaps the one that is approached fastest

MAX_SWEEPS = 16


def window(pose: Pose) -> Array:
    """Gaps between 0 and this () count as contact: a few units in the last place of what the gap is computed from."""
    return 4.0 * float(jnp.finfo(pose.translation.dtype).eps) * (1.0 + jnp.max(jnp.abs(pose.translation)))


def choose(cases: list[tuple[Array, Any]], otherwise: Any) -> Any:
    """The value of the first case whose condition holds."""
    for condition, value in reversed(cases):
        otherwise = jax.tree.map(lambda yes, no, c=condition: jnp.where(c, yes, no), value, otherwise)
    return otherwise


def land(
    body: RigidBody,
    closest: Closest,
    laws: Laws,
    base: RigidState,
    trial: RigidState,
    contact: Contact,
    active: Array,
    sweeps: int | None = None,
) -> RigidState:
    """The state at the end of a step from `base` that penetrates at `trial`, where `active`.

    One contact after the other, the worst first, is left by a shift along its normal and a plastic impact; in a loop
    until none remains, or `sweeps` times, which has derivatives in both modes.  The step gains no energy: what a shift
    lifts, the motion pays.  Where a body cannot be put outside, it stays where it was.
    """
    plastic = Laws(jnp.zeros_like(laws.restitution), laws.friction)
    eps = float(jnp.finfo(contact.gap.dtype).eps)

    def unfinished(carry: Any) -> Array:
        state, contact, k = carry
        still = 32.0 * eps * (1.0 + jax.lax.stop_gradient(contact_speed(body, state, contact)))
        approaching = (contact.gap <= window(state.pose)) & (approach_rate(body, state, contact) < -still)
        return active & (k < MAX_SWEEPS) & ((contact.gap < 0) | approaching)

    def sweep(carry: Any) -> Any:
        state, contact, k = carry
        height = jnp.where(contact.gap < 0, 0.25 * window(state.pose) - contact.gap, jnp.zeros_like(contact.gap))
        pose = Pose(state.pose.rotation, state.pose.translation + height * contact.normal)
        state, _ = impact(body, RigidState(pose, state.angular, state.linear), contact, plastic)
        return state, closest(state), k + 1

    carry = (trial, contact, jnp.zeros((), jnp.int32))
    if sweeps is None:
        carry = iterate_while(unfinished, sweep, carry)
    else:
        for _ in range(sweeps):
            carry = choose([(unfinished(carry), sweep(carry))], carry)
    state, contact, _ = carry
    return _without_gain(body, base, state, contact.gap < 0)


def _without_gain(body: RigidBody, base: RigidState, state: RigidState, stuck: Array) -> RigidState:
    """The state slowed down until it has no more energy than `base`; `base` at rest where it is stuck or too high."""
    moving = kinetic_energy(body, state)
    left = kinetic_energy(body, base) + potential_energy(body, base.pose) - potential_energy(body, state.pose)
    round_off = 64.0 * float(jnp.finfo(left.dtype).eps) * (1.0 + jnp.abs(potential_energy(body, base.pose)))
    stuck = stuck | (left < -round_off)
    gains, one, zero = moving > left, jnp.ones_like(moving), jnp.zeros_like(moving)
    ratio = jnp.where(gains, jnp.maximum(left, 0) / jnp.where(gains, moving, one), one)
    slower = jnp.where(ratio > 0, jnp.sqrt(jnp.where(ratio > 0, ratio, one)), zero)
    slower = jnp.where(stuck, zero, slower)
    pose = choose([(stuck, base.pose)], state.pose)
    return RigidState(pose, slower * state.angular, slower * state.linear)
