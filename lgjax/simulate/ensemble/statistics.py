"""Statistics of many trajectories, of which none needs to be kept."""

from typing import Any, NamedTuple

import numpy as np

BLOCK = 1024  # good trajectories that are merged at once, in the order of their numbers, whatever the chunks
BINS = 2048  # of a histogram ...
REACH = 8.0  # ... that covers this many standard deviations of the first block to either side of its mean


class Statistics(NamedTuple):
    """Statistics of observed values (..., d) over the trajectories that did not diverge; NaN where there are too few.

    samples: how many trajectories. mean, minimum, maximum: (..., d). covariance: (..., d, d), divided by samples - 1.
    quantiles: (len(probabilities), ..., d), exact for fewer than 1024 samples and for probabilities 0 and 1; else
    within 1/128 of a standard deviation of the first 1024 of the value of that rank if that lies within 8 of them of
    their mean, and if not, between there and the extreme value. events: (e,) int64, how often each event happened.
    """

    samples: int
    mean: np.ndarray
    covariance: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray
    probabilities: np.ndarray
    quantiles: np.ndarray
    events: np.ndarray


class Accumulator:
    """Takes trajectories in the order of their numbers and keeps moments, extremes, a histogram and event counts.

    Sums are over blocks of 1024 good trajectories in float64, then over the blocks in their order, so that the result
    does not depend on how the trajectories arrived. Source: [chan1983] eqs. 1.5.
    """

    def __init__(self, shape: tuple[int, ...], events: int) -> None:
        """For values of that shape, the last axis of which the covariance is over, and so many kinds of events."""
        self.shape = shape
        times, d = int(np.prod(shape[:-1])), shape[-1]
        self.arrays: dict[str, np.ndarray] = {
            "count": np.zeros(1, np.int64),
            "mean": np.zeros((times, d)),
            "moment": np.zeros((times, d, d)),
            "minimum": np.full((times, d), np.inf),
            "maximum": np.full((times, d), -np.inf),
            "lower": np.zeros((times, d)),  # of the histogram, set by the first block
            "width": np.zeros((times, d)),  # of a bin
            "histogram": np.zeros((times * d, BINS + 2), np.int64),  # first and last: out of reach
            "events": np.zeros(events, np.int64),
            "rows": np.zeros((0, times, d)),  # of a block that is not complete
        }

    def add(self, values: Any, valid: Any, events: Any) -> None:
        """The next trajectories: values (n, ..., d), valid (n,), which of them count, events (n, e)."""
        a, valid = self.arrays, np.asarray(valid)
        values = np.array(values, np.float64, order="C")  # NumPy sums in the order of the memory, which JAX chooses
        values = values.reshape(len(valid), *a["mean"].shape)
        a["events"] = a["events"] + np.asarray(events)[valid].astype(np.int64).sum(0).reshape(a["events"].shape)
        rows = np.concatenate([a["rows"], values[valid]])
        while len(rows) >= BLOCK:
            self._merge(rows[:BLOCK])
            rows = rows[BLOCK:]
        a["rows"] = rows.copy()

    def _merge(self, rows: np.ndarray) -> None:
        a, n = self.arrays, len(rows)
        if n == 0:
            return
        mean = rows.mean(0)
        deviations = rows - mean
        moment = np.matmul(deviations.transpose(1, 2, 0), deviations.transpose(1, 0, 2))
        before = int(a["count"][0])
        if before == 0:
            scale = np.sqrt(np.diagonal(moment, axis1=1, axis2=2) / n)
            scale = np.maximum(scale, np.finfo(float).eps * np.abs(mean)) + np.finfo(float).tiny
            a["lower"], a["width"] = mean - REACH * scale, 2 * REACH / BINS * scale
        total, shift = before + n, mean - a["mean"]
        a["mean"] = a["mean"] + shift * (n / total)
        a["moment"] = a["moment"] + moment + shift[:, :, None] * shift[:, None, :] * (before * n / total)
        a["count"] = np.array([total])
        a["minimum"], a["maximum"] = np.minimum(a["minimum"], rows.min(0)), np.maximum(a["maximum"], rows.max(0))
        places = np.clip(np.floor((rows - a["lower"]) / a["width"]), -1, BINS).astype(np.int64) + 1
        cells = places.reshape(n, -1) + (BINS + 2) * np.arange(places[0].size)
        counts = np.bincount(cells.ravel(), minlength=a["histogram"].size)
        a["histogram"] = a["histogram"] + counts.reshape(-1, BINS + 2)

    def result(self, probabilities: Any) -> Statistics:
        """The statistics of all trajectories added so far."""
        final = Accumulator(self.shape, self.arrays["events"].size)
        final.arrays = dict(self.arrays)
        rest = self.arrays["rows"]
        exact = self.arrays["count"][0] == 0
        final._merge(rest)
        a, p = final.arrays, np.asarray(probabilities, np.float64)
        count = int(a["count"][0])
        none = np.full_like(a["mean"], np.nan)
        if count == 0:
            quantiles = np.broadcast_to(none, (len(p), *none.shape))
        else:
            quantiles = np.quantile(rest, p, axis=0) if exact else final._quantiles(p)
            quantiles[p == 0], quantiles[p == 1] = a["minimum"], a["maximum"]
        whole = lambda x: x.reshape(x.shape[: x.ndim - 2] + self.shape)
        return Statistics(
            count,
            whole(a["mean"] if count else none),
            (a["moment"] / (count - 1 if count > 1 else np.nan)).reshape(*self.shape, self.shape[-1]),
            whole(a["minimum"] if count else none),
            whole(a["maximum"] if count else none),
            p,
            whole(quantiles),
            a["events"],
        )

    def _quantiles(self, p: np.ndarray) -> np.ndarray:
        """Along the cumulative histogram, linear in a bin."""
        a = self.arrays
        flat = lambda x: x.reshape(-1, 1)
        edges = flat(a["lower"]) + flat(a["width"]) * np.arange(BINS + 1)
        edges = np.concatenate([flat(a["minimum"]), edges, flat(a["maximum"])], 1)
        edges = np.clip(edges, flat(a["minimum"]), flat(a["maximum"]))
        counts = a["histogram"].cumsum(1)
        found = np.empty((len(p), len(counts)))
        for i, (row, edge) in enumerate(zip(counts, edges)):
            ranks = p * (row[-1] - 1) + 0.5
            bins = np.searchsorted(row, ranks)
            before = np.where(bins > 0, row[bins - 1], 0)
            part = (ranks - before) / (row[bins] - before)
            found[:, i] = edge[bins] + part * (edge[bins + 1] - edge[bins])
        return found.reshape(len(p), *a["mean"].shape)
