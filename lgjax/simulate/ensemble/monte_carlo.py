"""Many random trajectories of anything: in chunks, on all devices and processes, with statistics, to be continued."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from lgjax.integrators.field import strong
from lgjax.numerics import checks
from lgjax.numerics.renamed import arguments
from lgjax.saving.identity import fingerprint
from lgjax.saving.progress import progress_bar, uninterrupted
from lgjax.simulate.ensemble.program import Program, device_mesh, fitting_program, result_shapes
from lgjax.simulate.ensemble.statistics import Accumulator, Statistics
from lgjax.simulate.ensemble.storage import Folder, array_names

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Sample(NamedTuple):
    """Result of one simulation.

    values: (..., d), what statistics are taken of, with covariances over the last axis. valid: () bool, false if the
    simulation failed. events: (e,) booleans or integers, which are counted. record: any pytree of arrays, to be kept.
    status: () int32, kept of those that failed.
    """

    values: Any
    valid: Any = True
    events: Any = ()
    record: Any = ()
    status: Any = 0


class MonteCarlo(NamedTuple):
    """Result of `monte_carlo`, on the host.

    statistics: over the valid trajectories. failed: numbers of the others, ascending; failed_status: what each of them
    reported. record: of all trajectories, with a leading axis (batch,); None if it is in a folder. batch: how many
    there are. chunk: trajectories at a time and device. seconds: time spent computing, without earlier parts of a
    resumed run; compile_seconds: before that. simulated_seconds_per_second: of all trajectories together. complete:
    False if a run was interrupted, so that there are fewer than asked for.
    """

    statistics: Statistics
    failed: np.ndarray
    record: Any
    batch: int
    chunk: int
    seconds: float
    compile_seconds: float
    simulated_seconds_per_second: float
    failed_status: np.ndarray
    complete: bool = True


@arguments(count="batch")
def monte_carlo(
    simulate: Callable[..., Sample], arguments: tuple = (), *, batch: int, key: jax.Array, chunk: int | None = None,
    devices: int | None = None, folder: Any = None, resume: bool = False, tag: str = "",
    quantiles: tuple[float, ...] = QUANTILES, limit: float = 1e100, duration: float = 0.0,
    common: dict[str, Any] | None = None, checkpoint_every: float = 30.0, progress: bool | None = None,
    compiler_options: dict[str, Any] | None = None,
) -> MonteCarlo:  # fmt: skip
    """`batch` simulations simulate(key_i, *arguments) -> `Sample`, with key_i made of `key` and the number i alone.

    The same chunk gives bit by bit the same results on however many devices and processes, resumed or not; another
    changes round-off. A device that runs out of memory gets less at a time, with a RuntimeWarning, and the run goes on.
    After `jax.distributed.initialize` all processes call this with the same arguments, each simulates its part, and all
    get the same result; they must see the same folder. Ctrl-C writes a checkpoint and raises KeyboardInterrupt, whose
    attribute `result` holds what was computed.

    Args:
        simulate: any function that JAX can trace: of rollouts, of bouncing bodies, of constrained systems.
        arguments: further arguments of `simulate`, pytrees of arrays.
        batch: number of simulations.
        key: a key of `jax.random`.
        chunk: number for each device at a time; None: at most 4096 (65536 on a GPU), in at most half of the memory.
        devices: number of local devices to use, None for all.
        folder: where records go, with statistics and checkpoints; `load_run` reads it, see `storage.py`.
        resume: go on with a run that was stopped in any way, or begin one. It raises if `key`, `arguments`, `limit`,
            the name of `simulate` or the values that it captured have changed; its code and globals are not compared.
        tag: any text; change it when you change this code or these globals.
        quantiles: fractions in 0..1 whose quantiles enter the statistics.
        limit: a trajectory that is not valid, or has a value that is not finite or larger in size than this, is
            reported and enters no statistics.
        duration: simulated seconds of each trajectory, for the rate.
        common: arrays that are stored once.
        checkpoint_every: seconds between checkpoints; the last one is written at the end.
        progress: None shows a bar on a terminal, True always.
        compiler_options: options of the compiler XLA.

    Returns:
        a `MonteCarlo`: statistics of the valid trajectories, records of all, and which failed and why.

    Raises:
        ValueError: for sizes that are not positive, more devices than there are, a folder that cannot be written or
            holds another run, a checkpoint that cannot be read: before anything is computed or changed.
        OSError: if writing fails later; what was written until then is kept.
    """
    batch, chunk, limit = _check(batch, chunk, quantiles, limit)
    checkpoint_every, duration = _seconds(checkpoint_every), checks.number("duration", duration)
    folder = _check_kinds(folder, key, arguments, tag, resume, progress, common, compiler_options)
    mesh, function, arguments = device_mesh(devices), _checked_function(simulate, limit), strong(arguments, "arguments")
    checks.on_host("monte_carlo", arguments, key, common)
    checks.holds_nothing_traced("monte_carlo", function, key, jnp.zeros((), jnp.int32), arguments)
    output = state = None
    if folder is not None:
        output = Folder(folder, _header(function, key, arguments, batch, chunk, tag), resume)
        state, chunk = output.restore(), output.header["chunk"]
    started = time.perf_counter()
    program = fitting_program(function, key, arguments, mesh, batch, chunk, compiler_options)
    compile_seconds = time.perf_counter() - started
    if output is not None:
        output.header["chunk"] = program.width
        _together(lambda: output.create(common or {}))
    return _Run(program, output, batch, quantiles, state).finish(duration, checkpoint_every, progress, compile_seconds)


def _check_kinds(
    folder: Any, key: Any, arguments: Any, tag: Any, resume: Any, progress: Any, *dictionaries: Any
) -> Path | None:
    """The folder as a path; TypeError for what is of another kind."""
    checks.random_key("key", key)
    checks.truths(resume=resume, progress=progress)
    checks.of_kind("arguments", arguments, tuple)
    checks.of_kind("tag", tag, str)
    for name, value in zip(("common", "compiler_options"), dictionaries, strict=True):
        if value is not None:
            checks.of_kind(name, value, dict)
    if resume and folder is None:
        raise ValueError("resume needs folder: where the run is")
    return None if folder is None else checks.path("folder", folder)


def _seconds(every: Any) -> float:
    """Seconds between checkpoints, which may be infinite."""
    return every if isinstance(every, float) else checks.number("checkpoint_every", every)


def _check(batch: Any, chunk: Any, quantiles: Any, limit: Any) -> tuple[int, int | None, float]:
    """batch, chunk and limit as Python's numbers."""

    def size(name: str, value: Any) -> int:
        found = checks.integer(name, value, -(2**63))
        if not 1 <= found < 2**31:
            raise ValueError(f"{name} must be positive and less than 2**31, got {value}")
        return found

    batch, chunk = size("batch", batch), None if chunk is None else size("chunk", chunk)
    shares = checks.real("quantiles", quantiles)
    if shares.ndim != 1 or not np.all((shares >= 0) & (shares <= 1)):
        raise ValueError(f"quantiles are of probabilities from 0 to 1, got {checks.shown(quantiles)}")
    most = checks.real("limit", limit)
    if most.shape != () or not most > 0:
        raise ValueError(f"limit must be a positive number, got {checks.shown(limit)}")
    return batch, chunk, float(most)


def _checked_function(simulate: Callable, limit: float) -> Callable:
    """function(key, number, arguments) -> Sample of arrays, `valid` with the values taken into account."""
    checks.function("simulate", simulate)

    def function(key: jax.Array, number: jax.Array, arguments: tuple) -> Sample:
        sample = simulate(jax.random.fold_in(key, number), *arguments)
        if not isinstance(sample, Sample):
            raise TypeError(f"simulate must return a Sample, got {type(sample).__name__}")
        values, valid = jnp.asarray(sample.values), jnp.asarray(sample.valid)
        events = jnp.asarray(sample.events) if jax.tree.leaves(sample.events) else jnp.zeros((0,), bool)
        if not jnp.issubdtype(values.dtype, jnp.floating) or values.ndim < 1:
            raise ValueError(f"values must be floating (..., d), got {values.dtype}{values.shape}")
        for name, x, rank in (("valid", valid, 0), ("events", events, 1)):
            if x.ndim != rank:
                raise ValueError(f"{name} must have {rank} axes, got shape {x.shape}")
            if x.dtype != bool and (name == "valid" or not jnp.issubdtype(x.dtype, jnp.integer)):
                want = "bool" if name == "valid" else "booleans or integers"
                raise ValueError(f"{name} must be {want}, got {x.dtype}")
        bound = jnp.asarray(min(limit, float(jnp.finfo(values.dtype).max)), values.dtype)
        status = checks.of_shape("status", jnp.asarray(sample.status, jnp.int32), ())
        good = valid & jnp.all(jnp.abs(values) <= bound)
        return Sample(values, good, events, strong(sample.record, "record"), status)

    return function


def _header(
    function: Callable, key: jax.Array, arguments: tuple, batch: int, chunk: int | None, tag: str
) -> dict[str, Any]:
    """Identity of a run and description of its records."""
    shapes = result_shapes(function, key, arguments)
    leaves = jax.tree.leaves(shapes.record)
    kept = [
        {"name": name, "dtype": str(x.dtype), "shape": list(x.shape)}
        for name, x in zip(array_names(shapes.record), leaves)
    ]
    width, identity = None if chunk is None else min(chunk, batch), fingerprint(function, key, arguments, tag)
    return {"batch": batch, "chunk": width, "fingerprint": identity, "records": kept}


def _together(action: Callable[[], None]) -> None:
    """Done by the first process, when all are there and before any goes on."""
    if jax.process_count() == 1:
        action()
        return
    multihost_utils.sync_global_devices("lgjax before")
    if jax.process_index() == 0:
        action()
    multihost_utils.sync_global_devices("lgjax after")


def _with_result(interrupt: KeyboardInterrupt, result: MonteCarlo, batch: int, output: Folder | None) -> BaseException:
    """The interrupt, with what was computed and a note that says where it is."""
    interrupt.result = result  # type: ignore[attr-defined]
    where = "the attribute `result` of this exception holds them"
    if output is not None:
        where = f"they are in the folder {str(output.path)!r}, and resume=True goes on"
    interrupt.add_note(f"interrupted after {result.batch} of {batch} trajectories: {where}")
    return interrupt


class _Run:
    """A run as far as it has come."""

    def __init__(self, program: Program, output: Folder | None, batch: int, quantiles: Any, state: Any) -> None:
        self.program, self.output, self.batch, self.quantiles = program, output, batch, quantiles
        self.accumulator = Accumulator(program.shapes.values.shape, program.shapes.events.shape[0])
        self.done, self.failed, self.parts = 0, np.zeros(0, np.int64), []
        self.failed_status = np.zeros(0, np.int32)
        self.saved = None
        if state is not None:
            self.saved = self.done = int(state.pop("done")[0])
            self.failed = state.pop("failed")
            self.failed_status = state.pop("failed_status", np.zeros(len(self.failed), np.int32))
            if (good := state.pop("valid", None)) is not None:  # of a version that kept the others too
                state["rows"] = state["rows"][good]
            self.accumulator.arrays |= state

    def finish(self, duration: float, every: float, progress: bool | None, compile_seconds: float) -> MonteCarlo:
        started, before, interrupt = time.perf_counter(), self.done, None
        try:
            with progress_bar(progress, self.batch, duration, before) as bar:
                self._go(bar, every)
        except KeyboardInterrupt as error:
            if not self.done:
                raise
            interrupt = error
        seconds = time.perf_counter() - started
        self.save()
        rate = (self.done - before) * duration / seconds
        width = self.program.width
        result = MonteCarlo(
            self.statistics(), self.failed, self.record(), self.done, width, seconds, compile_seconds, rate,
            self.failed_status, self.done == self.batch,
        )  # fmt: skip
        if interrupt is None:
            return result
        raise _with_result(interrupt, result, self.batch, self.output)

    def _go(self, bar: Any, checkpoint_every: float) -> None:
        """Until all are done. The devices work on a chunk while the one before is taken in."""
        pending, last = None, time.monotonic()
        for start in (*range(self.done, self.batch, self.program.span), None):
            following = None if start is None else (start, self.program.begun(start))
            if pending is not None:
                bar.update(self._take(pending[0], self.program.completed(*pending)))
                if time.monotonic() - last >= checkpoint_every:
                    self.save()
                    last = time.monotonic()
            pending = following

    def _take(self, start: int, results: Sample) -> int:
        """Records and statistics of a chunk on every device; how many trajectories that were."""
        keep = min(self.program.span, self.batch - start)
        part, leaves = None, jax.tree.leaves(results.record)
        if self.output is not None and leaves:
            self._write(start, results)
        elif self.output is None:
            part = jax.tree.map(lambda x: x[:keep], self.program.gathered(results.record))
        # The other processes have written theirs when this is here, so that a checkpoint needs not wait for them.
        values, valid, events, status = (x[:keep] for x in self.program.gathered((*results[:3], results.status)))
        with uninterrupted():
            self.accumulator.add(values, valid, events)
            self.failed = np.concatenate([self.failed, start + np.flatnonzero(~valid)])
            self.failed_status = np.concatenate([self.failed_status, status[~valid]])
            self.parts.append(part)
            self.done = start + keep
        return keep

    def _write(self, start: int, results: Sample) -> None:
        assert self.output is not None
        width, names = self.program.width, array_names(results.record)
        for place, (valid, record) in self.program.local_chunks((results.valid, results.record)):
            first = start + place * width
            keep = min(width, self.batch - first)
            if keep > 0:
                arrays = {"index": np.arange(first, first + width), "valid": valid}
                arrays |= dict(zip(names, jax.tree.leaves(record)))
                self.output.write_chunk(first // width, {name: x[:keep] for name, x in arrays.items()})

    def save(self) -> None:
        """A checkpoint, if there is a folder and something new."""
        if self.output is None or jax.process_index() != 0:
            return
        statistics, more = self.statistics(), self.done != self.saved
        failures = {"failed": self.failed, "failed_status": self.failed_status}
        if more or not self.output.has_quantiles(statistics.probabilities):
            self.output.write_statistics(statistics, **failures)
        if more:
            self.output.save(self.done, {"done": np.array([self.done]), **failures, **self.accumulator.arrays})
            self.saved = self.done

    def statistics(self) -> Statistics:
        return self.accumulator.result(self.quantiles)

    def record(self) -> Any:
        """The records of all trajectories, None if they are in a folder."""
        if self.output is not None:
            return None
        return jax.tree.map(lambda *x: np.concatenate(x), *self.parts)
