"""Long trajectories in parts, each written to a folder as soon as it is computed, so that a run can be resumed midway.

    part-00000000.npz   saved0, saved1, ...: the leaves of what it saves; carry0, carry1, ...: those of all
                        that the next part needs; problem: a fingerprint of the start and of every number in the
                        program; digest: SHA-256 of the rest

Read first: `Checkpoint.scan`.  Every file appears whole or not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution._jax import numbers_in
from lgjax.numerics import checks
from lgjax.saving.arrays import check_writable, digest, read_arrays, write_arrays
from lgjax.saving.identity import fingerprint
from lgjax.saving.progress import progress_bar, uninterrupted


@dataclass(frozen=True)
class Checkpoint:
    """Folder and interval in which a long run is saved: `rollout(..., checkpoint=Checkpoint("run", every=10_000))`.

    folder     path to which the parts are written; created if it does not exist.
    every      steps in a part: a divisor of all steps and a multiple of `save_every`.
    resume     continue the run in the folder; otherwise a folder that already holds a run is an error.
    progress   True shows a bar, False none, None where tqdm is installed and there is a terminal.

    Pass it to `integrate`, `rollout`, `maximal.integrate` or `bounce`.  Such a call computes at once, so it cannot be
    inside `jit`, `vmap` or `grad`.  A resumed run equals an uninterrupted one bit by bit, on the same machine and
    versions.  A different start, or a different number in the program such as a mass, a gain or a step size, is
    refused; a change of Python code that leaves all numbers alone goes unnoticed.
    Raises ValueError naming the file that cannot be read or belongs to another run, and then changes nothing; OSError
    if writing fails, keeping what was written before.
    """

    folder: Any
    every: int
    resume: bool = False
    progress: bool | None = None

    def __post_init__(self) -> None:
        checks.path("folder", self.folder)
        checks.integer("every", self.every)
        checks.truths(resume=self.resume, progress=self.progress)

    def scan(self, body: Callable, carry: Any, xs: jax.Array, chunk: int) -> tuple[Any, Any]:
        """`lax.scan` of body over xs (n,), each of `chunk` steps, part by part; arrays of ys are NumPy's."""
        n, width = xs.shape[0], self.every // chunk
        if self.every % chunk or n % width:
            raise ValueError(
                f"every must be a multiple of save_every and divide steps, got every={self.every} with "
                f"save_every={chunk} and steps={n * chunk}"
            )
        closed = jax.make_jaxpr(body)(carry, xs[0])
        if not checks.known(carry, xs, closed.consts):
            raise TypeError("a run with a checkpoint computes at once and cannot stand inside jit, vmap or grad")
        store = _Store(Path(self.folder).absolute(), fingerprint(carry, xs, numbers_in(closed), width))
        program = jax.jit(lambda carry, xs: jax.lax.scan(body, carry, xs))
        parts, carry = store.restore(carry, self.resume)
        with progress_bar(self.progress, n * chunk, 0.0, len(parts) * self.every, "step") as bar:
            for first in range(len(parts) * width, n, width):
                carry, saved = jax.block_until_ready(program(carry, xs[first : first + width]))
                parts.append([np.asarray(x) for x in jax.tree.leaves(saved)])
                store.write(len(parts) - 1, carry, parts[-1])
                bar.update(self.every)
        shapes = jax.eval_shape(body, carry, xs[0])[1]
        whole = [np.concatenate(leaves) for leaves in zip(*parts, strict=True)]
        return carry, jax.tree.unflatten(jax.tree.structure(shapes), whole)


@dataclass(frozen=True)
class _Store:
    """The files of one run."""

    folder: Path
    problem: str

    def restore(self, carry: Any, resume: bool) -> tuple[list[list[np.ndarray]], Any]:
        """The parts already written and the carry after the last one; in a new folder no parts and `carry` itself."""
        check_writable(self.folder)
        files = sorted(self.folder.glob("part-*.npz"))
        if files and not resume:
            raise ValueError(f"{str(self.folder)!r} holds a run already; resume it or choose another folder")
        parts, leaves = [], jax.tree.leaves(carry)
        for number, file in enumerate(files):
            if file != self._file(number):
                raise ValueError(f"{str(self._file(number))!r} is missing")
            arrays = read_arrays(file)
            told = arrays.pop("digest", None)
            if told is None or not np.array_equal(told, digest(arrays)):
                raise ValueError(f"{str(file)!r} cannot be read: its contents are not those that were written")
            if str(arrays["problem"]) != self.problem:
                raise ValueError(f"{str(file)!r} belongs to another run; nothing was changed")
            count = sum(name.startswith("saved") for name in arrays)
            parts.append([arrays[f"saved{i}"] for i in range(count)])
            leaves = [jnp.asarray(arrays[f"carry{i}"]) for i in range(len(leaves))]
        return parts, jax.tree.unflatten(jax.tree.structure(carry), leaves)

    def write(self, number: int, carry: Any, saved: list[np.ndarray]) -> None:
        arrays = {f"carry{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(carry))}
        arrays |= {f"saved{i}": x for i, x in enumerate(saved)}
        arrays["problem"] = np.array(self.problem)
        with uninterrupted():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_arrays(self._file(number), {**arrays, "digest": digest(arrays)})

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:08d}.npz"
