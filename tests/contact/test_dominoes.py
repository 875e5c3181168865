"""Dominoes by time steps against dominoes from event to event, of an independent program for the plane."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Pose, shapes
from lgjax.contact import contact_step
from lgjax.multibody.build import Body, Joint, build
from tests.oracles import dominoes

PUSH, FRICTION = 3.0, 2.0
HALF = np.array([0.025, 0.03, 0.1])
INERTIA = (np.sum(HALF**2) * np.eye(3) - np.diag(HALF**2)) / 3
END = {2: 0.35, 3: 0.48, 4: 0.56}  # after the last hit, before the last domino lies


def row(count):
    return dominoes.Row(count, 2 * HALF[0], 2 * HALF[2], apart=0.14)


def start(count):
    return np.array([PUSH, *[0.0] * (count - 1)])


def exact(count):
    return dominoes.run(row(count), start(count), END[count])


def hinged(count):
    """On hinges along their right lower edges, whose lower limits let them stand; tilts and their rates at END."""
    names, center = [f"b{k}" for k in range(count)], np.array([-HALF[0], 0.0, HALF[2]])
    hinge = lambda n: Joint(f"{n}_edge", "revolute", (0.0, 1.0, 0.0), lower=0.0, upper=3.0)
    at = lambda k: np.array([row(count).apart * k, 0.0, 0.0])
    bodies = [Body(n, None, hinge(n), position=at(k), mass=1.0, com=center, inertia=INERTIA)
              for k, n in enumerate(names)]  # fmt: skip
    model = build(bodies)
    solid = dict.fromkeys(names, shapes.box(HALF, center))
    contacts = lgjax.Contacts(model, (), solid, list(pairwise(names)), 0.0, joint_limits=True)
    return stepped(model, contacts, lgjax.neutral(model), start(count), lambda q, v: (q.joints, v), END[count])


def free(count):
    """On a floor where they do not slide."""
    names = [f"b{k}" for k in range(count)]
    model = build([Body(n, None, Joint(n, "free"), mass=1.0, inertia=INERTIA) for n in names])
    floor, solid = shapes.Plane((0.0, 0.0, 1.0)), dict.fromkeys(names, shapes.box(HALF))
    contacts = lgjax.Contacts(model, floor, solid, list(pairwise(names)))
    rough = np.where(np.arange(len(contacts.names)) < 8 * count, FRICTION, 0.0)
    places = jnp.asarray([(row(count).apart * k - HALF[0], 0.0, HALF[2]) for k in range(count)])
    q = lgjax.neutral(model)._replace(free_poses=Pose(jnp.broadcast_to(jnp.eye(3), (count, 3, 3)), places))
    v = np.zeros((count, 6))
    v[:, 1] = start(count)
    v[:, 3:] = np.cross(v[:, :3], [-HALF[0], 0.0, HALF[2]])

    def tilts(q, v):
        turn = q.free_poses.rotation
        return jnp.arctan2(turn[:, 0, 2], turn[:, 2, 2]), v.reshape(count, 6)[:, 1]

    return stepped(model, contacts.replace(friction=rough), q, v.ravel(), tilts, END[count])


def stepped(model, contacts, q, v, tilts, end):
    """steps -> tilts and rates after so many steps; one program for all numbers of steps."""
    none = jnp.zeros(model.nv)

    @jax.jit
    def run(dt, steps):
        def step(_, now):
            found = contact_step(model, contacts, *now[:2], none, dt)
            return found.q, found.v, now[2] | found.status

        q_end, v_end, status = jax.lax.fori_loop(0, steps, step, (q, jnp.asarray(v), jnp.zeros((), jnp.int32)))
        return *tilts(q_end, v_end), status

    def call(steps):
        q, v, status = run(jnp.asarray(end / steps), steps)
        assert status == 0
        return np.asarray(q), np.asarray(v)

    return call


CASES = {"hinged-2": (hinged, 2, 20), "hinged-4": (hinged, 4, 20), "free-3": (free, 3, 10)}


@pytest.mark.parametrize(("made", "count", "runs"), CASES.values(), ids=CASES)
def test_dominoes_by_time_steps_converge_to_those_from_event_to_event(made, count, runs):
    """With order one, as a hit takes a step: eight times the steps make the error about eight times smaller.

    Where in its step a hit is changes the error tenfold, so that a mean of several numbers of steps is taken."""
    truth, run = exact(count), made(count)
    assert [what for _, what in truth.events].count("hit") == count - 1
    errors = []
    for first in (100, 800):
        found = [run(int(steps)) for steps in first * np.linspace(1.0, 1.2, runs)]
        errors.append(np.mean([np.abs(np.subtract(each, (truth.q, truth.w))).max(axis=1) for each in found], axis=0))
    assert np.all(errors[-1] < (4e-3, 5e-2))
    assert np.all(np.divide(errors[0], errors[-1]) > 6)


def test_dominoes_from_event_to_event_lose_energy_in_hits_alone():
    """And the ground presses on their edges, within the friction that other tests take."""
    r, truth = row(4), exact(4)
    hits = [t for t, what in truth.events if what == "meets"]
    at = lambda t: dominoes.run(r, start(4), t)
    energy = [r.energy(found.q, found.w) for t in hits for found in (at(t - 1e-3), at(t - 1e-6), at(t + 1e-6))]
    before, last, after = np.reshape(energy, (-1, 3)).T
    np.testing.assert_allclose(before, last, rtol=1e-10)
    assert np.all(after < last - 1e-3)
    moving = np.concatenate([*truth.forces, *(x[np.abs(x[:, 1]) > 1e-9] for x in truth.impulses)])
    assert np.all(moving[:, 1] > 0)
    assert np.all(np.abs(moving[:, 0]) < FRICTION * moving[:, 1])


def test_the_first_domino_hits_the_second_when_an_integral_says():
    """Its rate follows from energy: w² = w0² + 2 m g (z0 - z) / J, until sin θ = (apart - width) / height."""
    from scipy.integrate import quad

    r = row(2)
    height = lambda tilt: r.center(tilt)[1]
    rate = lambda tilt: np.sqrt(PUSH**2 + 2 * r.mass * dominoes.G * (height(0.0) - height(tilt)) / r.moment)
    time, _ = quad(lambda tilt: 1 / rate(tilt), 0.0, np.arcsin((r.apart - r.width) / r.height), epsabs=1e-13)
    assert exact(2).events[0][0] == pytest.approx(time, abs=1e-10)
