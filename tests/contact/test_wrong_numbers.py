"""Traced numbers that no law of contact has: they get a status, and of compliant contact they become NaN.

Known ones are refused when contacts are made, see `test_contacts.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact import ContactStatus
from tests.contact.test_closed_forms import STEP, ball, on_floor
from tests.contact.test_joints import pendulum

INFINITE = np.inf, -np.inf, np.nan
GOOD = {"friction": [0.0, 0.3, 5.0], "restitution": [0.0, 1.0], "smoothing": [0.0, 1e-3], "dt": [1e-3]}
BAD = {
    "friction": [-0.3, -1e-9, *INFINITE],
    "restitution": [-1e-9, 1.0 + 1e-9, 1.2, *INFINITE],
    "smoothing": [-1e-9, *INFINITE],
    "dt": [0.0, -1e-3, *INFINITE],
}


def test_a_traced_number_without_a_law_gets_a_status():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.2, 0.5)
    q = lgjax.configuration(ball(), (jnp.eye(3), jnp.array([0.0, 0.0, 0.1015])))
    v = jnp.array([0.0, 0.0, 0.0, 2.0, 0.0, -0.4])

    def run(dt, friction, restitution, smoothing):
        here = contacts.replace(friction=friction, restitution=restitution, smoothing=smoothing)
        return lgjax.rollout(ball(), q, v, None, dt, 4, STEP, None, contacts=here).status

    usual = {"dt": 1e-3, "friction": 0.2, "restitution": 0.5, "smoothing": 0.0}
    cases = [(False, usual)]
    for bad, table in ((False, GOOD), (True, BAD)):
        cases += [(bad, {**usual, name: value}) for name, values in table.items() for value in values]
    status = jax.jit(jax.vmap(lambda numbers: run(**numbers)))(
        {name: jnp.array([numbers[name] for _, numbers in cases]) for name in usual}
    )
    for (bad, numbers), flags in zip(cases, status.tolist(), strict=True):
        assert (flags & int(ContactStatus.NOT_SOLVED) > 0) == bad, (numbers, flags)
    assert not np.any(np.asarray(status)[[not bad for bad, _ in cases]])


def test_a_traced_number_without_a_law_gets_a_status_of_events_too():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.2, 0.5)
    q = lgjax.configuration(ball(), (jnp.eye(3), jnp.array([0.0, 0.0, 0.2])))
    v = jnp.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])

    def run(dt, friction, restitution, smoothing, rtol, atol):
        here = contacts.replace(friction=friction, restitution=restitution, smoothing=smoothing)
        events = lgjax.contact.EventDriven(rtol, atol)
        return lgjax.rollout(ball(), q, v, None, dt, 1, events, None, contacts=here).status

    usual = {"dt": 1e-3, "friction": 0.2, "restitution": 0.5, "smoothing": 0.0, "rtol": 1e-10, "atol": 1e-12}
    bad = {**BAD, "smoothing": [1e-3, *BAD["smoothing"]]}  # known, EventDriven refuses it too
    bad |= {"rtol": [0.0, -1e-10, *INFINITE], "atol": [0.0, -1e-12, *INFINITE]}
    cases = [usual] + [{**usual, name: value} for name, values in bad.items() for value in values]
    numbers = {name: jnp.array([case[name] for case in cases]) for name in usual}
    status = jax.jit(jax.vmap(lambda numbers: run(**numbers)))(numbers).tolist()
    assert not status[0]
    for case, flags in zip(cases[1:], status[1:], strict=True):
        assert flags & int(ContactStatus.NOT_SOLVED), (case, flags)


def test_traced_limits_and_dry_friction_of_joints_get_a_status():
    contacts = lgjax.Contacts(pendulum(), joint_limits=True, joint_friction=True)
    names = "lower", "upper", "friction"

    def step(numbers):
        model = pendulum().replace(**{name: x[None] for name, x in zip(names, numbers, strict=True)})
        q = lgjax.neutral(model)
        return lgjax.contact.contact_step(model, contacts, q, jnp.ones(1), jnp.zeros(1), 1e-3).status

    good = [(-1, 1, 0.3), (-1, 1, 0), (-np.inf, np.inf, 0.3)]
    bad = [(1, -1, 0.3), (-1, 1, -0.1), (np.nan, 1, 0.3), (-1, np.nan, 0.3), (-1, 1, np.nan)]
    status = np.asarray(jax.jit(jax.vmap(step))(jnp.array([*good, *bad], float)))
    assert not np.any(status[: len(good)])
    assert np.all(status[len(good) :] & int(ContactStatus.NOT_SOLVED))


def test_compliant_contact_is_nan_for_traced_numbers_out_of_range_and_right_for_others():
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.2)
    depth, v = 1e-3, jnp.array([0.0, 0.0, 0.0, 2.0, 0.0, -0.1])
    q = lgjax.configuration(ball(), (jnp.eye(3), jnp.array([0.0, 0.0, 0.1 - depth])))

    def force(numbers):
        stiffness, damping, exponent, slip_speed, friction = numbers
        here = lgjax.forces.contact(
            ball(), contacts.replace(friction=friction), stiffness, damping, exponent, slip_speed
        )
        return here.forces(q, v)[0, 0], jnp.sum(here(0.0, q, v)), here.energy(q)

    good = [(1e4, 0.5, 1.0, 0.01, 0.2), (0.0, 0.0, 1.5, 1.0, 0.0)]
    bad = []
    for k, least in enumerate((-1e-9, -1e-9, 1 - 1e-9, 0.0, -1e-9)):
        bad += [(*good[0][:k], x, *good[0][k + 1 :]) for x in (least, *INFINITE)]
    normal, tau, energy = map(np.asarray, jax.jit(jax.vmap(force))(jnp.array([*good, *bad])))
    np.testing.assert_allclose(normal[:2], [1e4 * depth * 1.05, 0.0])
    np.testing.assert_allclose(energy[:2], [1e4 * depth**2 / 2, 0.0])
    for numbers in (normal[2:], tau[2:], energy[2:]):
        assert np.all(np.isnan(numbers))


@pytest.mark.parametrize("name", ["stiffness", "damping", "exponent", "slip_speed"])
def test_compliant_contact_refuses_known_numbers_out_of_range(name):
    contacts = on_floor(ball(), lgjax.shapes.sphere(0.1), 0.2)
    for value in (-0.1, *INFINITE):
        with pytest.raises(ValueError, match=name):
            lgjax.forces.contact(ball(), contacts, **{"stiffness": 1e4, name: value})
