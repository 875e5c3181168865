"""Compliant contact as a force: a spring with a damper along the normal, regularized friction across it.

Read first: `dynamics/forces.py`, what a force is, and `contacts.py`.
"""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.detection import detect
from lgjax.contact.time_stepping import columns_at
from lgjax.dynamics.forces import Force
from lgjax.dynamics.kinematics import world_kinematics
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import tanh_ratio

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CompliantContact(Force):
    """The force that `contact` makes: a damped spring along the normal of each of n candidates, and smoothed friction.

    stiffness: N/m^exponent, damping: s/m, exponent, slip_speed: m/s, each (n,). Called with (t, q, v) it returns tau
    (nv,). The law and its source are those of `contact`.
    """

    model: Model
    contacts: Contacts
    stiffness: Array
    damping: Array
    exponent: Array
    slip_speed: Array

    def __call__(self, t, q, v):
        J, frame, found = self._world(q)
        velocity = sm.matvec(frame, jnp.sum(J * v[None, :, None], 1))
        return jnp.sum(J * sm.tmatvec(frame, self._law(found.gap, velocity))[:, None], (0, 2))

    def forces(self, q, v) -> Array:
        """Forces (n, 3) N at the candidates, in the contact frames: normal, two tangents."""
        J, frame, found = self._world(q)
        return self._law(found.gap, sm.matvec(frame, jnp.sum(J * v[None, :, None], 1)))

    def energy(self, q):
        _, _, found = self._world(q)
        depth = jnp.maximum(-found.gap, jnp.zeros_like(found.gap))
        energies = self.stiffness * _power(depth, self.exponent + 1) / (self.exponent + 1)
        return jnp.sum(jnp.where(self._in_range(), energies, jnp.nan))

    def for_model(self, model):
        return replace(self, model=model)

    def _world(self, q):
        world = world_kinematics(self.model, q)
        found = detect(self.contacts, self.model, world.poses, world.origin)
        return columns_at(self.contacts, self.model, world.S, found.point), found.frame, found

    def _law(self, gap, velocity):
        none = jnp.zeros_like(gap)
        spring = self.stiffness * _power(jnp.maximum(-gap, none), self.exponent)
        normal = spring * jnp.maximum(1 - self.damping * velocity[:, 0], none)
        slip = velocity[:, 1:]
        share = tanh_ratio(sm.dot(slip, slip) / self.slip_speed**2) / self.slip_speed
        force = sm.join(normal[:, None], -(self.contacts.friction * normal * share)[:, None] * slip)
        return jnp.where(self._in_range()[:, None], force, jnp.nan)

    def _in_range(self):
        """(n,) bool. Traced numbers are not checked when the force is made, and NaN is the status of a force."""
        least = (self.stiffness, 0), (self.damping, 0), (self.exponent, 1), (self.slip_speed, 0)
        numbers = (*least, (self.contacts.friction, 0))
        return reduce(jnp.logical_and, [(x >= low) & (x < jnp.inf) for x, low in numbers], self.slip_speed > 0)


def _power(x, exponent):
    """x^exponent for x >= 0 and exponent >= 1, with finite derivatives at 0."""
    inside = x > 0
    return jnp.where(inside, jnp.where(inside, x, jnp.ones_like(x)) ** exponent, jnp.zeros_like(x))


def contact(
    model: Model | Mechanism,
    contacts: Contacts,
    stiffness: Any,
    damping: Any = 0.0,
    exponent: Any = 1.0,
    slip_speed: Any = 1e-2,
) -> CompliantContact:
    """Compliant contacts: Hunt and Crossley's normal force, and Coulomb friction, smoothed at low slip speed.

    normal = stiffness depth^exponent max(0, 1 - damping u_n), which never pulls; friction = -mu normal
    tanh(|u_t| / slip_speed) u_t / |u_t|. Here depth (m) is that of the penetration, u_n and u_t (m/s) are the normal
    velocity, positive where the contact opens, and the slip velocity, and mu is the friction of the contacts.

    stiffness: N/m^exponent. damping: s/m. exponent: >= 1, 1.5 for balls. slip_speed: m/s; well below it friction grows
    in proportion to the slip, so nothing sticks entirely. Each is one number or (n,), one for each candidate.
    `restitution`, `smoothing`, joint limits and joint friction of the contacts are ignored. `energy` is that of the
    springs, J. Forces and energy are NaN if a traced number, friction included, is out of its range. Raises TypeError
    or ValueError naming what does not fit. Source: Hunt and Crossley, Coefficient of restitution interpreted as damping
    in vibroimpact (1975).
    """
    model = checked_model(model)
    if not isinstance(contacts, Contacts):
        raise TypeError(f"contacts must be Contacts, got {checks.shown(contacts)}")
    values = []
    for name, value in (
        ("stiffness", stiffness), ("damping", damping), ("exponent", exponent), ("slip_speed", slip_speed),
    ):  # fmt: skip
        what = f"{name} of the contact"
        array = checks.array(what, value, (len(contacts),), model.dtype)
        if name == "exponent":
            checks.at_least(what, array, 1.0)
        else:
            checks.positive(what, array, allow_zero=name != "slip_speed")
        values.append(array)
    return CompliantContact(model, contacts, *values)
