"""Folders that hold a run: the records of its trajectories, its statistics, and checkpoints to go on from.

    run.json             format, batch, chunk, fingerprint; name, dtype and shape of what is recorded of each trajectory
    chunk-00000000.npz   records of trajectories k * chunk to (k + 1) * chunk - 1, and fewer in the last file:
                         index (n,), valid (n,), and one array (n, ...) for each name; no files if nothing is recorded
    common.npz           what is the same for all trajectories, such as the times
    statistics.npz       the fields of `Statistics`, failed: numbers of the trajectories that did, and failed_status
    checkpoints/         00000020.npz: the state of a run after 20 trajectories, and a digest of it; the last two

Every file appears whole or not at all. `numpy.load` reads the .npz files one by one, `load_run` all of them; its
arrays are the variables of an xarray.Dataset, all with the first dimension "trajectory".
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from lgjax.numerics import checks
from lgjax.numerics.messages import why
from lgjax.saving.arrays import check_writable, digest, read_arrays, write_arrays, write_file

FORMAT = "lgjax run 1"


def array_names(tree: Any) -> list[str]:
    """Names of the leaves of a pytree: "q.free_poses.rotation", and "record" for an array that is all of it."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    return [jax.tree_util.keystr(path, simple=True, separator=".") or "record" for path in paths]


class Folder:
    """A folder that a run writes to."""

    def __init__(self, path: Any, header: dict[str, Any], resume: bool) -> None:
        """Look at the folder and change nothing; ValueError where the run cannot be written there."""
        self.path, self.header = Path(path).absolute(), {"format": FORMAT, **header}
        self.checkpoints = self.path / "checkpoints"
        check_writable(self.path)
        if not (self.path / "run.json").exists():
            return
        if not resume:
            raise ValueError(f"{str(path)!r} holds a run already; resume it or choose another folder")
        known = read_header(self.path)
        if self.header["chunk"] is None:
            self.header["chunk"] = known["chunk"]
        for name, value in self.header.items():
            if known.get(name) != value:
                found = "" if name == "fingerprint" else f": {name} is {known.get(name)!r} there and {value!r} here"
                raise ValueError(f"{str(path)!r} holds a run of another problem{found}; nothing was changed")

    def create(self, common: dict[str, Any]) -> None:
        """Make the folder ready to be written."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.checkpoints.mkdir(exist_ok=True)
        write_arrays(self.path / "common.npz", common)
        write_file(self.path / "run.json", json.dumps(self.header, indent=1).encode())

    def write_chunk(self, number: int, arrays: dict[str, Any]) -> None:
        write_arrays(self.path / f"chunk-{number:08d}.npz", arrays)

    def write_statistics(self, statistics: Any, **failures: np.ndarray) -> None:
        write_arrays(self.path / "statistics.npz", {**statistics._asdict(), **failures})

    def has_quantiles(self, probabilities: np.ndarray) -> bool:
        """Whether the statistics that were written are of these probabilities."""
        try:
            found = read_arrays(self.path / "statistics.npz").get("probabilities")
        except ValueError:  # there is none that can be read; it is made of the checkpoint
            return False
        return found is not None and np.array_equal(found, probabilities)

    def save(self, done: int, arrays: dict[str, np.ndarray]) -> None:
        """A checkpoint after `done` trajectories; the last two are kept."""
        write_arrays(self.checkpoints / f"{done:08d}.npz", {**arrays, "digest": digest(arrays)})
        for old in self._saved()[:-2]:
            old.unlink()

    def restore(self) -> dict[str, np.ndarray] | None:
        """The arrays of the last checkpoint; None if there is none."""
        if not (files := self._saved()):
            return None
        try:
            arrays = read_arrays(files[-1])
        except ValueError as error:
            raise ValueError(f"checkpoint {error}; remove it to go on without it") from error
        told = arrays.pop("digest", None)
        if told is None or not np.array_equal(told, digest(arrays)):
            why = "its contents are not those that were written"
            raise ValueError(f"checkpoint {str(files[-1])!r} cannot be read: {why}; remove it to go on without it")
        return arrays

    def _saved(self) -> list[Path]:
        return _checkpoints(self.checkpoints)


def _checkpoints(folder: Path) -> list[Path]:
    """Files of checkpoints, oldest first."""
    return sorted(folder.glob("*.npz"), key=lambda file: (len(file.name), file.name))


def _number(file: Path) -> int:
    """k of chunk-k.npz."""
    return int(file.stem.removeprefix("chunk-"))


class Run(NamedTuple):
    """A run read from its folder.

    header: run.json. records: name -> (batch, ...). common: name -> array. statistics: name -> array, empty before the
    first checkpoint. numbers: (batch,) of the trajectories, valid: (batch,).
    """

    header: dict[str, Any]
    numbers: np.ndarray
    valid: np.ndarray
    records: dict[str, np.ndarray]
    common: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]


def load_run(path: Any) -> Run:
    """Everything in the folder of a run, finished or not. ValueError for a file that is missing or cannot be read."""
    path = checks.path("folder", path)
    header = read_header(path)
    files = sorted(path.glob("chunk-*.npz"))
    parts = [read_arrays(file) for file in files]
    names = [record["name"] for record in header["records"]]
    empty = {r["name"]: np.zeros((0, *r["shape"]), r["dtype"]) for r in header["records"]}
    empty |= {"index": np.zeros(0, np.int64), "valid": np.zeros(0, bool)}
    for file, part in zip(files, parts):
        if set(part) != set(empty):
            raise ValueError(f"{str(file)!r} holds {sorted(part)}, expected {sorted(empty)}")
        first = _number(file) * header["chunk"]
        if not np.array_equal(part["index"], np.arange(first, first + len(part["index"]))):
            raise ValueError(f"{str(file)!r} holds other trajectories than those from number {first} on")
    whole = {name: np.concatenate([empty[name], *(part[name] for part in parts)]) for name in empty}
    written = max((int(file.stem) for file in _checkpoints(path / "checkpoints")), default=0) if names else 0
    expected = range(max(len(files), -(-written // header["chunk"])))
    if missing := set(expected) - {_number(file) for file in files}:
        raise ValueError(f"{str(path / f'chunk-{min(missing):08d}.npz')!r} is missing")
    statistics = path / "statistics.npz"
    return Run(
        header,
        whole["index"],
        whole["valid"],
        {name: whole[name] for name in names},
        read_arrays(path / "common.npz"),
        read_arrays(statistics) if statistics.exists() else {},
    )


def read_header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{str(path)!r} holds no run: there is no run.json in it") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{str(path / 'run.json')!r} cannot be read: {why(error)}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{str(path / 'run.json')!r} is not of the format {FORMAT!r}")
    return header
