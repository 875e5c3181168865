"""Runs that are interrupted, disks that are full, files that are spoilt: nothing computed is lost, nothing is made up.

The run is that of `tests/simulate/ensemble/random_pendulums.py`, in a folder, twenty chunks of three trajectories.
Whatever happens to it, a resumed run has to equal the uninterrupted one bit by bit, or to refuse in one line.
`python -m soak.faults FOLDER OUT` is the process that is interrupted.
"""

import contextlib
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

import lgjax
from soak import Result
from tests.simulate.ensemble.random_pendulums import everything, run

ROOT = Path(__file__).resolve().parents[1]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS, TRIALS, WORKERS = 30, 70, 5  # of one call
PATIENCE = 120  # s that a process has to notice that another one died
COUNT, CHUNK, LOST = 60, 3, 0.1
WRITTEN = 70  # files that a run writes, a few less
BEGIN = "begin"
NOBODY = 65534  # the user without rights
SLOWER = 0.01  # s, before and after a file gets its name, so that interruptions happen there too


def resumed(folder: Path) -> dict[str, np.ndarray]:
    """All numbers of the run in a folder, begun or continued here."""
    options = {"folder": folder, "resume": True, "chunk": CHUNK, "checkpoint_every": 0.0}
    found = everything(run(COUNT, LOST, **options))
    records = lgjax.ensembles.load_run(folder).records
    return found | {f"record.{name}": value for name, value in records.items()}


@cache
def whole() -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        return resumed(Path(folder) / "run")


def differs(found: dict[str, np.ndarray], tolerance: float = 0.0) -> list[str]:
    """Names of what is not that of the uninterrupted run: bit by bit, or within a tolerance."""
    expected = whole()
    names = sorted(set(found) | set(expected))
    return [n for n in names if n not in found or n not in expected or not _same(found[n], expected[n], tolerance)]


def _same(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if tolerance == 0:
        return np.array_equal(a, b, equal_nan=True)
    return a.shape == b.shape and np.allclose(a, b, tolerance, tolerance, equal_nan=True)


def interruptions(seed: int) -> Result:
    """A process that is killed, terminated or interrupted at random times, until it is done; then again."""
    chance, counts, failures = random.Random(seed), Counter(), []
    whole()
    while counts["interruptions"] < KILLS:
        with tempfile.TemporaryDirectory() as folder:
            done = False
            while not done and counts["interruptions"] < KILLS:
                sent = chance.choice(SIGNALS)
                code, out = _interrupted(Path(folder), sent, chance.uniform(0, 1.2))
                done = code == 0
                counts["interruptions"] += not done
                if (not done and code not in (-sent, 130, 128 + sent, 1)) or (
                    "Traceback" in out and "Interrupt" not in out
                ):
                    failures.append(f"faults seed {seed}: {sent.name} ended with {code}: {out[-500:]}")
            wrong = differs(resumed(Path(folder) / "run"))
            counts["resumed and equal"] += not wrong
            if wrong:
                failures.append(f"faults seed {seed}: after interruptions {', '.join(wrong)} differ")
    return Result(counts, failures)


def _interrupted(folder: Path, sent: signal.Signals, after: float) -> tuple[int, str]:
    """Exit code and output of a process that gets a signal so many seconds after its run has begun."""
    command = [sys.executable, "-m", "soak.faults", str(folder / "run")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == BEGIN:
            break
    time.sleep(after)
    process.send_signal(sent)
    out, _ = process.communicate(timeout=300)
    return process.returncode, out


def full_disks(seed: int) -> Result:
    """After a random number of files, further ones may only become so long; then there is room again."""
    chance, counts, failures = random.Random(seed), Counter(), []
    whole()
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for trial in range(TRIALS):
            with tempfile.TemporaryDirectory() as folder:
                place, most, files = Path(folder) / "run", chance.randrange(0, 60_000), chance.randrange(WRITTEN)
                limits = resource.getrlimit(resource.RLIMIT_FSIZE)
                try:
                    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (most, limits[1]))
                    with mock.patch.object(os, "replace", _counting(files, full)):
                        resumed(place)
                    said = "there was room"
                except (OSError, ValueError) as error:
                    said = "refused"
                    if "\n" in str(error):
                        failures.append(f"full disks seed {seed}, trial {trial}, {files} files, {most} bytes: {error}")
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                counts[said] += 1
                wrong = differs(resumed(place))
                counts["resumed and equal"] += not wrong
                if wrong:
                    failures.append(
                        f"full disks seed {seed}, trial {trial}, {files} files, {most} bytes: {', '.join(wrong)} differ"
                    )
    finally:
        signal.signal(signal.SIGXFSZ, ignored)
    return Result(counts, failures)


def _counting(files: int, then: Callable[[], None]) -> Callable[..., None]:
    """`os.replace`, by which files get their names, that does something before the next one after so many of them."""
    replace, left = os.replace, [files]

    def replacing(*arguments: Any, **options: Any) -> None:
        if left[0] == 0:
            then()
        left[0] -= 1
        replace(*arguments, **options)

    return replacing


def shut_folders(seed: int) -> Result:
    """After a random number of files the folder may only be read: what it holds can be, and later the run goes on."""
    chance, counts, failures = random.Random(seed), Counter(), []
    whole()
    for trial in range(TRIALS):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            place, files = Path(folder) / "run", chance.randrange(WRITTEN)
            case = f"shut folders seed {seed}, trial {trial}, {files} files"
            try:
                with mock.patch.object(os, "replace", _counting(files, partial(_shut, place))):
                    resumed(place)
                said = "done before"
            except OSError as error:
                said = "refused"
                if "\n" in str(error) or str(place) not in str(error):
                    failures.append(f"{case}: {error}")
                try:
                    resumed(place)
                    failures.append(f"{case}: something was written")
                except ValueError:  # before anything is computed
                    counts["refused again"] += 1
            finally:
                _open(place)
            counts[said] += 1
            wrong = differs(resumed(place))
            _shut(place)
            try:
                read = {f"record.{name}": value for name, value in lgjax.ensembles.load_run(place).records.items()}
            finally:
                _open(place)
            wrong += [name for name in read if not _same(read[name], whole()[name], 0.0)]
            counts["resumed, read and equal"] += not wrong
            if wrong:
                failures.append(f"{case}: {', '.join(wrong)} differ")
    return Result(counts, failures)


def _shut(folder: Path) -> None:
    """A folder without the right to write: root has it everywhere, so that the process becomes another user."""
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        place.chmod(0o555)
    if os.getuid() == 0:
        os.setresuid(NOBODY, NOBODY, 0)


def _open(folder: Path) -> None:
    if os.getresuid()[2] == 0:
        os.setresuid(0, 0, 0)
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        place.chmod(0o755)


def spoilt_files(seed: int) -> Result:
    """One file of a run, half done or done, is cut, altered, emptied, removed or another one."""
    chance, counts, failures = random.Random(seed), Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        made = {"done": Path(folder) / "done", "half": Path(folder) / "half"}
        resumed(made["done"])
        _half(made["half"])
        for trial in range(TRIALS):
            place = Path(folder) / f"trial{trial}"
            shutil.copytree(made[chance.choice(sorted(made))], place)
            what = _spoil(place, chance)
            try:
                wrong = differs(resumed(place))
                counts["equal all the same"] += not wrong
                if wrong:
                    failures.append(f"spoilt files seed {seed}, trial {trial}, {what}: {', '.join(wrong)} differ")
            except (ValueError, OSError) as error:
                counts["refused"] += 1
                if "\n" in str(error):
                    failures.append(f"spoilt files seed {seed}, trial {trial}, {what}: {error}")
            except Exception as error:
                failures.append(f"spoilt files seed {seed}, trial {trial}, {what}: {type(error).__name__}: {error}")
            shutil.rmtree(place)
    return Result(counts, failures)


def _half(folder: Path) -> None:
    """A run that was stopped by Ctrl-C after ten chunks."""
    from lgjax.simulate.ensemble import storage

    write = storage.Folder.write_chunk

    def writing(self, number, arrays):
        if number == 10:
            raise KeyboardInterrupt
        write(self, number, arrays)

    with mock.patch.object(storage.Folder, "write_chunk", writing), contextlib.suppress(KeyboardInterrupt):
        resumed(folder)


def _spoil(folder: Path, chance: random.Random) -> str:
    """Spoils a file; says how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path, other = chance.choice(files), chance.choice(files)
    data, how = path.read_bytes(), chance.choice(("cut", "altered", "emptied", "removed", "other", "longer"))
    at = chance.randrange(len(data))
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes({
            "cut": data[:at],
            "altered": data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :],
            "emptied": b"",
            "other": other.read_bytes(),
            "longer": data + bytes(chance.randrange(1, 100)),
        }[how])  # fmt: skip
    return f"{path.relative_to(folder)} {how} at {at} of {len(data)}"


def clocks(seed: int) -> Result:
    """A run that is half done goes on after the clock went back: its files have any order in time."""
    chance, counts, failures = random.Random(seed), Counter(), []
    now = lambda: chance.uniform(0, 4e9)
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder) / "half"
        _half(half)
        for trial in range(TRIALS):
            place = Path(folder) / f"trial{trial}"
            shutil.copytree(half, place)
            for path in sorted(place.rglob("*")):
                os.utime(path, (now(), now()))
            with mock.patch.object(time, "time", now):
                wrong = differs(resumed(place))
            counts["equal"] += not wrong
            if wrong:
                failures.append(f"clocks seed {seed}, trial {trial}: {', '.join(wrong)} differ")
            shutil.rmtree(place)
    return Result(counts, failures)


class Lost:
    """Results for which there was no memory, which shows when one waits for them."""

    def block_until_ready(self) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory")


def short_memory(seed: int) -> Result:
    """A device whose memory does not suffice at random calls; runs that end of it are resumed. Equal to round-off."""
    from lgjax.simulate.ensemble.program import Program

    chance, counts, failures = random.Random(seed), Counter(), []
    whole()
    call = Program._called
    for trial in range(TRIALS):
        often = chance.choice((0.02, 0.1, 0.3))

        def called(self, start, often=often):
            if chance.random() > often:
                return call(self, start)
            counts["calls without memory"] += 1
            if chance.random() < 0.5:
                return Lost()
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory")

        with tempfile.TemporaryDirectory() as folder:
            place, found = Path(folder) / "run", None
            with mock.patch.object(Program, "_called", called), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "memory does not suffice", RuntimeWarning)
                while found is None:
                    try:
                        found = resumed(place)
                    except jax.errors.JaxRuntimeError:
                        counts["resumed"] += 1
            wrong = differs(found, 1e-11)
            counts["equal"] += not wrong
            if wrong:
                failures.append(f"short memory seed {seed}, trial {trial}: {', '.join(wrong)} differ")
    return Result(counts, failures)


def dying_workers(seed: int) -> Result:
    """One of two processes of a run is killed at a random time; the other has to end, and one process goes on."""
    chance, counts, failures = random.Random(seed), Counter(), []
    whole()
    for trial in range(WORKERS):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
            free.bind(("localhost", 0))
            port, place = free.getsockname()[1], Path(folder) / "run"
            free.close()
            command = [sys.executable, "-m", "soak.faults", str(place), str(port)]
            pipes = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            jobs = [subprocess.Popen([*command, str(i)], **pipes) for i in range(2)]
            for line in jobs[0].stdout:
                if line.strip() == BEGIN:
                    break
            time.sleep(chance.uniform(0, 2))
            victim = chance.randrange(2)
            jobs[victim].kill()
            try:
                jobs[1 - victim].communicate(timeout=PATIENCE)
                counts["the other ended"] += 1
            except subprocess.TimeoutExpired:
                failures.append(f"dying workers seed {seed}, trial {trial}: the other waits for {PATIENCE} s")
                jobs[1 - victim].kill()
                jobs[1 - victim].communicate()
            jobs[victim].communicate()
            wrong = differs(resumed(place))
            counts["resumed and equal"] += not wrong
            if wrong:
                failures.append(f"dying workers seed {seed}, trial {trial}: {', '.join(wrong)} differ")
    return Result(counts, failures)


def main() -> None:
    """The process that is interrupted: slower, and it says when it begins. FOLDER, or FOLDER PORT NUMBER for two."""
    jax.config.update("jax_enable_x64", True)
    if len(sys.argv) > 2:
        jax.distributed.initialize(f"localhost:{sys.argv[2]}", 2, int(sys.argv[3]), heartbeat_timeout_seconds=10)
    replace = os.replace

    def slowly(*arguments, **options):
        time.sleep(SLOWER)
        replace(*arguments, **options)
        time.sleep(SLOWER)

    print(BEGIN, flush=True)  # noqa: T201
    with mock.patch.object(os, "replace", slowly):
        resumed(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
