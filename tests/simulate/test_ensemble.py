"""Ensembles: the chunks do not show, the key decides, a trajectory that blows up harms no other."""

import sys
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import models

MODULE = sys.modules[lgjax.rollout.__module__.replace("rollout", "ensemble")]


@cache
def model():
    return models.chain(1)


def run(controller=None, **changes):
    options = {"batch": 5, "steps": 4, "save_every": 2, "dt": 0.02, "key": jax.random.key(0)}
    options |= {"mass_spread": 0.2, "progress": False}
    return lgjax.ensemble(model(), controller, **{**options, **changes})


@cache
def whole():
    return run()


def same(a, b, tolerance=0.0):
    keys = ("ts", "q", "v", "energy", "finite", "mass_factors")
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=tolerance),
        *({key: getattr(e, key) for key in keys} for e in (a, b)),
    )


def test_what_comes_back():
    e = whole()
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(e[:6]))
    assert (e.v.shape, e.q.joints.shape, e.energy.shape) == ((5, 3, 1), (5, 3, 1), (5, 3))
    np.testing.assert_allclose(e.ts, [0, 0.04, 0.08])
    assert e.finite.all()
    assert e.seconds > 0
    assert e.compile_seconds > 0
    np.testing.assert_allclose(e.simulated_seconds_per_second, 5 * 0.08 / e.seconds)
    # the trajectories differ, and so do the masses
    assert len(np.unique(e.v[:, 0])) == len(np.unique(e.mass_factors)) == 5
    np.testing.assert_allclose(e.energy[:, 0], e.energy[:, -1], atol=1e-6)


def test_each_trajectory_is_a_rollout_of_its_randomised_copy():
    e = whole()

    @jax.jit
    def alone(factors, joints, v):
        copy = model().replace(inertias=model().inertias.scaled(factors))
        return lgjax.rollout(copy, lgjax.neutral(copy)._replace(joints=joints), v, None, 0.02, 4, save_every=2)

    for i in range(2):
        path = alone(e.mass_factors[i], e.q.joints[i, 0], e.v[i, 0])
        np.testing.assert_allclose(path.v, e.v[i], atol=1e-13)
        np.testing.assert_allclose(path.q.joints, e.q.joints[i], atol=1e-13)


@pytest.mark.parametrize("chunk", [2, 100])
def test_chunks_do_not_show(chunk):
    same(run(chunk=chunk), whole(), 1e-14)


def test_the_key_decides():
    same(run(), whole())
    assert np.all(run(key=jax.random.key(1)).v[:, 0] != whole().v[:, 0])


def test_a_larger_batch_begins_with_the_smaller():
    larger, smaller = run(batch=7, chunk=5), whole()
    np.testing.assert_array_equal(larger.v[:5], smaller.v)


def test_a_trajectory_that_blows_up_leaves_the_others_alone():
    undisturbed = run(dt=1e-4)
    e = run(lambda t, q, v: jnp.where(v > 0, jnp.inf, 0.0), chunk=2, dt=1e-4)
    lost = np.any(undisturbed.v[:, :, 0] > 0, 1)
    assert 0 < lost.sum() < 5
    np.testing.assert_array_equal(e.finite, ~lost)
    np.testing.assert_allclose(e.v[~lost], undisturbed.v[~lost], atol=1e-14)


class Interrupting:
    """A progress bar at which the user loses patience after `count` chunks."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def update(self, _):
        self.count -= 1
        if self.count <= 0:
            raise KeyboardInterrupt


def test_an_interrupted_run_keeps_the_chunks_that_were_finished(monkeypatch):
    monkeypatch.setattr(MODULE, "_progress_bar", lambda *_: Interrupting(2))
    e = run(chunk=2)
    assert e.v.shape[0] == 4
    np.testing.assert_allclose(e.v, whole().v[:4], atol=1e-14)
    np.testing.assert_allclose(e.simulated_seconds_per_second, 4 * 0.08 / e.seconds)


def test_an_interruption_before_the_first_chunk_is_one(monkeypatch):
    class AtOnce(Interrupting):
        def __enter__(self):
            monkeypatch.setattr(jax, "device_get", lambda _: self.update(1))
            return self

    monkeypatch.setattr(MODULE, "_progress_bar", lambda *_: AtOnce(1))
    with pytest.raises(KeyboardInterrupt):
        run()


def test_bad_input_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="batch and chunk are positive, got batch=0, chunk=None"):
        run(batch=0)
    with pytest.raises(ValueError, match="batch and chunk are positive, got batch=5, chunk=-1"):
        run(chunk=-1)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match="a progress bar needs tqdm"):
        run(progress=True)
    assert isinstance(MODULE._progress_bar(None, 5, 1.0), MODULE._Silent)


def test_the_progress_bar_counts_rollouts(capsys):
    run(progress=True, chunk=2)
    assert "/5" in capsys.readouterr().err
