"""Mutated files: each loads as a second reader reads it, or ends in one line of ours that names it.

Run in a process of its own with bounded memory, which says which case it begins, so that a crash or a hang is a
failure with a seed. Nothing beside the folder of the file may be opened: the system itself is asked, for readers in C
open files that Python does not see.
"""

import collections
import ctypes
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from soak import Result
from soak.attacks import OUTSIDE
from soak.mutations import mutate

CASES = 250  # of one call of a part
MEMORY = 2 << 30  # bytes that one case may add
PATIENCE = 120  # seconds without a word from the process
LOADING, COMPARING = "loading", "comparing"
SLOW = 20  # seconds of processor time of one case
CORNERS = (
    ((0, 0, 0), (0, 1, 0), (1, 0, 0)),
    ((0, 0, 0), (1, 0, 0), (0, 0, 1)),
    ((0, 0, 0), (0, 0, 1), (0, 1, 0)),
    (
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
    ),
)
# A tetrahedron, as a binary STL: each face is its normal, three corners and two bytes.
STL = bytes(80) + struct.pack("<I", 4) + b"".join(struct.pack("<12fH", 0, 0, 1, *sum(f, ()), 0) for f in CORNERS)
PART = b"<mujoco><worldbody><body name='part'><joint name='part_joint'/><geom size='.1'/></body></worldbody></mujoco>"


def urdf(seed: int) -> Result:
    """250 mutations of URDF files."""
    return _run("urdf", seed)


def mjcf(seed: int) -> Result:
    """250 mutations of MJCF files."""
    return _run("mjcf", seed)


def _run(form: str, seed: int) -> Result:
    """Worker after worker: each begins after the case at which the one before it ended."""
    counts: collections.Counter[str] = collections.Counter()
    failures, next_case, end = [], seed * CASES, (seed + 1) * CASES
    while next_case < end:
        begun = None
        for line in _lines(form, next_case, end):
            said = json.loads(line)
            if "begin" in said:
                begun = said["begin"]
                continue
            next_case, begun = said["case"] + 1, None
            counts[said["verdict"]] += 1
            if said.get("failure"):
                failures.append(
                    f"{form} case {said['case']} ({said['file']}; {'; '.join(said['done'])}): {said['failure']}"
                )
        if begun is not None:
            ours = begun["stage"] == LOADING
            counts["crash or hang" if ours else "the second reader crashed"] += 1
            if ours:
                failures.append(f"{form} case {begun['case']} ({begun['file']}; {begun['done']}): crash or hang")
            next_case = begun["case"] + 1
        elif next_case < end:
            failures.append(f"{form}: the process ended before case {next_case}")
            break
    return Result(counts, failures)


def _lines(form: str, start: int, end: int) -> Iterator[str]:
    """What a worker says, until it ends or is silent for too long."""
    command = [sys.executable, "-m", "soak.broken_files", form, str(start), str(end)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as worker:
        assert worker.stdout is not None
        os.set_blocking(worker.stdout.fileno(), False)
        text, last = b"", time.monotonic()
        while worker.poll() is None or text or last:
            piece = worker.stdout.read()
            if piece:
                text, last = text + piece, time.monotonic()
            elif worker.poll() is not None:
                break
            elif time.monotonic() - last > PATIENCE:
                worker.kill()
                break
            else:
                time.sleep(0.02)
            *whole, text = text.split(b"\n")
            yield from (line.decode() for line in whole)


# ---- in the process
class Watch:
    """Opened files in a folder, from the system (inotify): readers in C do not pass Python's own hooks."""

    def __init__(self, folder: Path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.file = libc.inotify_init1(os.O_NONBLOCK)
        if libc.inotify_add_watch(self.file, os.fsencode(folder), 0x1 | 0x20) < 0:  # IN_ACCESS, IN_OPEN
            raise OSError(ctypes.get_errno(), "inotify")

    def seen(self) -> bool:
        """Whether something was opened or read since the last question."""
        try:
            return bool(os.read(self.file, 1 << 16))
        except BlockingIOError:
            return False


def files(form: str) -> list[Path]:
    """Small real files of the format, in a fixed order."""
    from soak import packages

    return [path for path in packages.files(form) if path.stat().st_size < 60_000]


@cache
def _loads(form: str, path: Path) -> bool:
    """Whether the file loads as it is, alone: others are refused whatever is done to them."""
    import lgjax

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            text = path.read_text(encoding="utf-8")
            lgjax.load_urdf(text, mimic="independent") if form == "urdf" else lgjax.load_mjcf(text)
        except ValueError:
            return False
    return True


def prepare(folder: Path) -> tuple[Path, Path]:
    """A folder for the file, with parts that it may include, and one beside it with what it may not."""
    inside, outside = folder / "robot", folder / OUTSIDE
    for place in (inside, outside, inside / "deep"):
        place.mkdir()
    for name in ("secret.xml", "secret.stl", "secret.dtd"):
        (outside / name).write_bytes(STL if name.endswith("stl") else PART)
    for name in ("part.xml", "deep/part.xml"):
        (inside / name).write_bytes(PART)
    (inside / "part.stl").write_bytes(STL)
    (inside / "loop_a.xml").write_text("<mujoco><include file='loop_b.xml'/></mujoco>")
    (inside / "loop_b.xml").write_text("<mujoco><include file='loop_a.xml'/></mujoco>")
    (inside / "link").symlink_to(outside)
    return inside, outside


def check(form: str, path: Path, case: int, watch: Watch, say: Any = lambda stage: None) -> tuple[str, str | None]:
    """The verdict on one file and what failed, if something did."""
    import lgjax

    floating, options = case % 2 == 0, {"check_inertia": ("error", "warn")[case % 3 == 0]}
    watch.seen()
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = error = None
    say(LOADING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "inertia of", UserWarning)
        try:
            if form == "urdf":
                model = lgjax.load_urdf(path, floating, mimic="independent", **options)
            else:
                model = lgjax.load_mjcf(path, **options)
        except BaseException as caught:
            error = caught
    failure = _judge(error, path) or ("a file outside was opened" if watch.seen() else None)
    if time.process_time() - began > SLOW:
        failure = failure or f"took {time.process_time() - began:.0f} s of processor time"
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if more > MEMORY:
        failure = failure or f"took {more >> 20} MB more memory"
    say(COMPARING)
    verdict, difference = _second(form, path, model, floating, case)
    return ("failure" if failure else verdict), failure or difference


def _judge(error: BaseException | None, path: Path) -> str | None:
    """What is wrong with an error: it is a ValueError in one printable line of bounded length that names the file."""
    if error is None:
        return None
    text = str(error)
    if type(error) is not ValueError:
        return f"{type(error).__name__}: {text[:300]}"
    if not text.isprintable() or len(text) > 1500 or path.name not in text:
        return f"no line that names the file: {text[:600]!r}"
    return None


def _second(form: str, path: Path, model: Any, floating: bool, case: int) -> tuple[str, str | None]:
    from soak import second_readers as second

    ours = model is not None
    try:
        if form == "urdf":
            content = path.read_bytes()
            theirs = second.by_pinocchio(second.without_looks(content) if ours else content, floating)
        else:
            theirs = second.by_mujoco(path)
    except Exception as error:
        return ("loaded, refused by the second reader" if ours else "refused by both"), (
            (os.environ.get("LGJAX_SOAK_STRICT") and ours and f"second reader: {str(error)[:200]!r}") or None
        )
    if not ours:
        return "refused, loaded by the second reader", None
    try:
        if form == "urdf":
            difference = second.differences_from_pinocchio(model, theirs, floating, case)
        else:
            difference = second.differences_from_mujoco(model, theirs, case)
    except Exception as error:
        difference = f"comparing raised {type(error).__name__}: {error}"
    return ("same model" if difference is None else "another model"), difference


def worker(form: str, start: int, end: int) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # readers in C write there
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    known = files(form)
    with tempfile.TemporaryDirectory() as folder:
        inside, outside = prepare(Path(folder))
        os.chdir(inside)
        watch, path = Watch(outside), inside / "self.xml"
        for case in range(start, end):
            original = next(
                known[i % len(known)] for i in range(case, case + len(known)) if _loads(form, known[i % len(known)])
            )
            content, done = mutate(original.read_bytes(), case)
            path.write_bytes(content.replace(b"{absolute}", os.fsencode(outside)))
            about = {"case": case, "file": original.name, "done": done}

            def tell(stage: str, about: dict = about) -> None:
                say.write(json.dumps({"begin": {**about, "stage": stage}}) + "\n")

            verdict, failure = check(form, path, case, watch, tell)
            say.write(json.dumps({**about, "verdict": verdict, "failure": failure}) + "\n")


if __name__ == "__main__":
    worker(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
