"""Ensembles of one structure are compiled once: other numbers take the program that is there, and count."""

import gc
import weakref
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Spread, models
from lgjax.contact import TimeStepping
from lgjax.ensembles import Sample
from lgjax.execution import lasting
from lgjax.execution.reference import plain

GAIN = 1.0
KEY = jax.random.key(0)


class Programs:
    """How many programs XLA has compiled, and how many functions JAX has traced."""

    def __init__(self):
        self.compiled = self.traced = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event, *_, **__):
        self.compiled += event.endswith("backend_compile_duration")
        self.traced += event.endswith("jaxpr_trace_duration")

    def of(self, function, *args, **options):
        before = self.compiled, self.traced
        found = function(*args, **options)
        return (self.compiled - before[0], self.traced - before[1]), found


@pytest.fixture(scope="module")
def programs():
    return Programs()


def swing(gain=1.0, gravity=1.0, key=KEY, angle=0.3, mass=0.2, wind=0.1, **options):
    """Pendulums whose every number is another: of controller, wrenches, model, start and spread."""
    model = models.chain(1)
    model = model.replace(gravity=gravity * model.gravity)
    return lgjax.ensemble(
        model, lambda t, q, v: -gain * v, wrenches=lambda t, q, v: jnp.full((1, 6), wind, v.dtype),
        q=lgjax.configuration(model, joints=jnp.array([angle])), spread=Spread(mass=mass), key=key, batch=5, steps=4,
        save_every=2, dt=0.02, progress=False, **options,
    )  # fmt: skip


def alone(function, *args, **options):
    """A call that finds no program."""
    kept = dict(lasting._kept)
    lasting._kept.clear()
    found = function(*args, **options)
    lasting._kept.clear()
    lasting._kept.update(kept)
    return found


def states(e):
    return [*jax.tree.leaves(e.q), e.v, e.energy, e.mass_factors, e.statistics.mean]


def same(found, expected):
    for ours, wanted in zip(states(found), states(expected), strict=True):
        np.testing.assert_array_equal(ours, wanted)


def test_other_numbers_take_the_program_that_is_there_and_count(programs):
    before = swing()
    changes = {"key": jax.random.key(1), "gain": 3.0, "gravity": 0.5, "angle": 1.0, "mass": 0.1, "wind": 2.0}
    for name, value in changes.items():
        work, found = programs.of(swing, **{name: value})
        assert work == (0, 0), name
        assert not np.array_equal(found.v, before.v), name
    work, found = programs.of(swing, **changes)
    assert work == (0, 0)
    same(found, alone(swing, **changes))


def test_in_folders_neither(programs, tmp_path):
    expected = swing(3.0)
    swing(folder=tmp_path / "first", chunk=2)
    (compiled, traced), found = programs.of(swing, 3.0, folder=tmp_path / "second", chunk=2)
    assert (compiled, traced) == (0, 0)
    np.testing.assert_allclose(found.v, expected.v, rtol=1e-13)
    with pytest.raises(ValueError, match="holds a run of another problem"):
        swing(4.0, folder=tmp_path / "second", chunk=2, resume=True)


def test_robots_and_contacts_are_numbers_too(programs):
    box = lgjax.build([lgjax.Body("box", None, lgjax.Joint("free", "free"), mass=1.0, inertia=0.01 * np.eye(3))])
    floor = lgjax.shapes.Plane((0.0, 0.0, 1.0))

    def slide(friction, start):
        contacts = lgjax.Contacts(box, floor, {"box": lgjax.shapes.sphere(0.1)}, friction=friction)
        q = lgjax.configuration(box, (jnp.eye(3), jnp.array([0.0, 0.0, 0.1])))
        return lgjax.ensemble(
            box, None, q=q, v=jnp.zeros(6).at[3].set(start), contacts=contacts, method=TimeStepping(), batch=2, steps=5,
            dt=0.01, key=KEY, spread=Spread(0.0, 0.0), progress=False,
        )  # fmt: skip

    slide(0.5, 1.0)
    (compiled, _), found = programs.of(slide, 0.1, 2.0)
    assert compiled == 0
    speed = np.linalg.norm(found.v[:, -1, 3:], axis=-1)
    np.testing.assert_allclose(speed, 2.0 - 0.1 * 9.81 * 0.05, rtol=1e-6)  # Coulomb, still sliding


def pushed(key, force=0.0):
    return Sample(jnp.stack([GAIN + force + jax.random.uniform(key)]))


def mean(simulate, *arguments, **options):
    e = lgjax.monte_carlo(simulate, arguments, batch=3, key=KEY, progress=False, **options)
    return float(e.statistics.mean[0])


def test_numbers_in_globals_and_things_that_change_in_place_are_read_at_every_call(monkeypatch, programs):
    drawn = mean(pushed) - GAIN
    assert programs.of(mean, pushed) == ((0, 0), drawn + GAIN)
    monkeypatch.setitem(globals(), "GAIN", 5.0)
    np.testing.assert_allclose(mean(pushed), 5.0 + drawn)
    np.testing.assert_allclose(mean(pushed, 2.0), 7.0 + drawn)
    gains, table = [1.0], np.ones(1)
    listed = lambda key: Sample(gains[0] + table + jax.random.uniform(key))
    for value in (1.0, 2.0):
        gains[0], table[0] = value, 3 * value
        np.testing.assert_allclose(mean(listed), 4 * value + drawn)


def test_an_ensemble_reads_the_global_gain_of_its_controller(monkeypatch):
    damped = lambda t, q, v: -GAIN * v
    given = {"batch": 2, "steps": 3, "save_every": 3, "dt": 0.05, "key": KEY, "progress": False}
    run = lambda: lgjax.ensemble(models.chain(1), damped, **given)
    slow = run()
    monkeypatch.setitem(globals(), "GAIN", 0.0)
    free = run()
    same(free, alone(run))
    np.testing.assert_allclose(free.energy[:, -1], free.energy[:, 0], atol=1e-6)
    assert np.all(slow.energy[:, -1] < slow.energy[:, 0] - 1e-6)


def test_a_function_that_tests_its_number_has_a_program_for_each_value(programs):
    def make(gain):
        return lambda key: Sample(jnp.ones(1) if gain > 0 else -jnp.ones(1))

    assert (mean(make(1.0)), mean(make(-1.0))) == (1.0, -1.0)
    assert programs.of(mean, make(1.0)) == ((0, 0), 1.0)


class Law(NamedTuple):
    """Arguments that act, and read a global number."""

    gain: jax.Array

    def __call__(self):
        return GAIN * self.gain


def test_methods_of_arguments_belong_to_the_structure(monkeypatch, programs):
    simulate = lambda key, law: Sample(jnp.stack([law()]))
    assert mean(simulate, Law(jnp.asarray(2.0))) == 2.0
    assert programs.of(mean, simulate, Law(jnp.asarray(3.0))) == ((0, 0), 3.0)
    monkeypatch.setitem(globals(), "GAIN", 5.0)
    assert mean(simulate, Law(jnp.asarray(3.0))) == 15.0


def test_settings_of_jax_and_of_the_compiler_belong_to_the_structure(programs):
    expected = mean(pushed)
    with plain():
        (compiled, _), found = programs.of(mean, pushed)
        assert compiled > 0
        assert found == expected
        assert programs.of(mean, pushed)[0] == (0, 0)
    options = {"compiler_options": {"xla_cpu_enable_fast_math": False}}
    assert programs.of(mean, pushed, **options)[0][0] == 1
    assert programs.of(mean, pushed, **options) == ((0, 0), expected)
    old = lgjax.monte_carlo(pushed, batch=3, key=jax.random.PRNGKey(0), progress=False)
    np.testing.assert_allclose(old.statistics.mean[0], expected)


def test_numbers_of_python_take_the_dtype_of_what_they_meet():
    def make(gain):
        return lambda key: Sample(gain * jnp.ones(1, jnp.float32), record=gain * jnp.ones(1, jnp.float32))

    for gain in (2.0, 3.0):
        e = lgjax.monte_carlo(make(gain), batch=2, key=KEY, progress=False)
        assert e.record.dtype == np.float32
        np.testing.assert_array_equal(e.record, np.full((2, 1), gain))


def test_programs_that_are_not_used_go():
    def make(order):
        return lambda key: Sample(jnp.ones(1) ** order)

    mean(make(1))
    last = weakref.ref(next(reversed(lasting._kept.values())))
    for order in range(2, lasting.KEPT + 2):
        mean(make(order))
    gc.collect()
    assert last() is None
    assert len(lasting._kept) == lasting.KEPT
