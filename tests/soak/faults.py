"""Runs that are interrupted, disks that are full, files that are spoilt: nothing computed is lost, nothing is made up.

The run is that of `tests/simulate/random_pendulums.py`, in a folder, twenty chunks of three trajectories. Whatever
happens to it, a resumed run has to equal the uninterrupted one bit by bit, or to refuse in one line.
`python -m tests.soak.faults FOLDER OUT` is the process that is interrupted.
"""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np

import lgjax
from tests.simulate.random_pendulums import everything, run
from tests.soak import Result

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS, TRIALS = 30, 70  # of one call
COUNT, CHUNK, LOST = 60, 3, 0.1
BEGIN = "begin"
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


def differs(found: dict[str, np.ndarray]) -> list[str]:
    """Names of what is not, bit by bit, that of the uninterrupted run."""
    expected = whole()
    names = sorted(set(found) | set(expected))
    return [n for n in names if n not in found or not np.array_equal(found[n], expected.get(n), equal_nan=True)]


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
    command = [sys.executable, "-m", "tests.soak.faults", str(folder / "run")]
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
    """Files may only become so long; then there is room again."""
    chance, counts, failures = random.Random(seed), Counter(), []
    whole()
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for trial in range(TRIALS):
            with tempfile.TemporaryDirectory() as folder:
                place, most = Path(folder) / "run", chance.randrange(0, 60_000)
                limits = resource.getrlimit(resource.RLIMIT_FSIZE)
                try:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
                    resumed(place)
                    said = "there was room"
                except (OSError, ValueError) as error:
                    said = "refused"
                    if "\n" in str(error):
                        failures.append(f"full disks seed {seed}, trial {trial}, {most} bytes: {error}")
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                counts[said] += 1
                wrong = differs(resumed(place))
                counts["resumed and equal"] += not wrong
                if wrong:
                    failures.append(f"full disks seed {seed}, trial {trial}, {most} bytes: {', '.join(wrong)} differ")
    finally:
        signal.signal(signal.SIGXFSZ, ignored)
    return Result(counts, failures)


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


def main() -> None:
    """The process that is interrupted: slower, and it says when it begins."""
    import jax

    jax.config.update("jax_enable_x64", True)
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
