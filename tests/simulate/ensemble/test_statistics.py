"""Streaming statistics are those of NumPy on all rows at once, and do not depend on how the rows arrived."""

import numpy as np
import pytest

from lgjax.simulate.ensemble.statistics import Accumulator

P = (0.0, 0.01, 0.25, 0.5, 0.9, 1.0)


def rows(n, shape=(3, 2), seed=0):
    """Correlated rows far from zero, skewed, of very different scales."""
    x = np.random.default_rng(seed).normal(size=(n, *shape))
    x[..., 0] = 1e6 + np.exp(x[..., 0])
    x[..., 1] = 1e-3 * (x[..., 1] + x[..., 0] - 1e6)
    return x


def run(values, valid=None, sizes=(10**9,), events=None):
    n = len(values)
    valid = np.ones(n, bool) if valid is None else valid
    events = np.zeros((n, 0), bool) if events is None else events
    accumulator = Accumulator(values.shape[1:], events.shape[1])
    start, i = 0, 0
    while start < n:
        stop = start + sizes[i % len(sizes)]
        accumulator.add(values[start:stop], valid[start:stop], events[start:stop])
        start, i = stop, i + 1
    return accumulator


@pytest.mark.parametrize("n", [2, 1000, 1024, 1025, 5000])
def test_moments_and_extremes_are_those_of_all_rows(n):
    x = rows(n)
    s = run(x, sizes=(700,)).result(P)
    assert s.samples == n
    np.testing.assert_allclose(s.mean, x.mean(0), rtol=1e-14)
    for t in range(3):
        np.testing.assert_allclose(s.covariance[t], np.cov(x[:, t], rowvar=False), rtol=1e-9)
    np.testing.assert_array_equal([s.minimum, s.maximum], [x.min(0), x.max(0)])


@pytest.mark.parametrize("n", [2, 1000, 1024, 50_000])
def test_quantiles_are_within_a_bin_of_the_value_of_that_rank(n):
    x = rows(n)
    s = run(x).result(P)
    bound = 0 if n < 1024 else x[:1024].std(0) / 128
    reached = np.abs(np.quantile(x, P, axis=0) - x[:1024].mean(0)) < 8 * x[:1024].std(0)
    for p, found, inside in zip(P, s.quantiles, reached):
        rank = p * (n - 1)
        low, high = (np.sort(x, 0)[int(f(rank))] for f in (np.floor, np.ceil))
        good = (found >= low - bound - 1e-9) & (found <= high + bound + 1e-9)
        assert good[inside].all(), (p, found, low, high)
    assert (np.diff(s.quantiles, axis=0) >= 0).all()


def test_neither_arrival_nor_a_pause_shows():
    x, valid = rows(3000), np.random.default_rng(1).random(3000) > 0.1
    whole = run(x, valid)
    for sizes in ((1,), (7,), (64, 1, 1000), (1024,), (2999,)):
        parts = run(x, valid, sizes)
        assert all(np.array_equal(whole.arrays[k], parts.arrays[k]) for k in whole.arrays), sizes
    again = Accumulator(x.shape[1:], 0)
    first = run(x[:1500], valid[:1500])
    first.result(P)  # asking changes nothing
    again.arrays = {k: v.copy() for k, v in first.arrays.items()}
    again.add(x[1500:], valid[1500:], np.zeros((1500, 0)))
    assert all(np.array_equal(whole.arrays[k], again.arrays[k]) for k in whole.arrays)


def test_what_is_not_valid_does_not_count():
    x, lost = rows(4000), np.arange(4000) % 100 == 3
    poisoned, events = x.copy(), np.stack([x[:, 0, 1] > 0, np.ones(4000, bool)], 1)
    poisoned[lost] = np.resize([np.nan, np.inf, -1e300], poisoned[lost].shape)
    s = run(poisoned, ~lost, events=events).result(P)
    np.testing.assert_allclose(s.mean, x[~lost].mean(0), rtol=1e-14)
    np.testing.assert_allclose(s.covariance[1], np.cov(x[~lost][:, 1], rowvar=False), rtol=1e-9)
    np.testing.assert_array_equal(s.events, events[~lost].sum(0))
    assert s.samples == 3960
    # also where the first block, which sets the histogram, has none
    s = run(np.concatenate([poisoned[:1024], x]), np.arange(5024) >= 1024).result((0.5,))
    np.testing.assert_allclose(s.quantiles[0][:, 1], np.median(x, 0)[:, 1], atol=x[..., 1].std() / 50)


@pytest.mark.parametrize("share", [0.0013, 0.3])
def test_quantiles_are_of_the_good_ones_however_rare(share):
    """The first of many may hold one good one, or none."""
    rng = np.random.default_rng(3)
    x, good = rng.normal(size=(400_000, 1, 1)), rng.uniform(size=400_000) < share
    s, kept = run(x, good, sizes=(5000,)).result(P), x[good]
    assert s.samples == len(kept)
    bound = 1e-15 if len(kept) < 1024 else 1 / 100
    np.testing.assert_allclose(s.quantiles, np.quantile(kept, P, axis=0), atol=bound, rtol=0)
    np.testing.assert_array_equal(s.quantiles[[0, -1], 0, 0], [kept.min(), kept.max()])


def test_too_few_are_nan_and_equal_values_have_no_spread():
    s = run(np.full((3, 2, 1), np.nan), np.zeros(3, bool)).result(P)
    assert s.samples == 0
    assert all(np.isnan(x).all() for x in (s.mean, s.quantiles, s.covariance))
    s = run(np.full((2000, 1, 2), [5.0, 0.0])).result(P)
    np.testing.assert_array_equal(s.covariance, np.zeros((1, 2, 2)))
    np.testing.assert_allclose(s.quantiles[:, 0], np.resize([5.0, 0.0], (len(P), 2)), rtol=1e-12)
