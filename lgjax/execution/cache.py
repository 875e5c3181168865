"""Compiled programs kept on disk, so that a new process compiles nothing that an earlier one compiled.

JAX does the keeping: its persistent compilation cache knows a program by its code, the compiler's options and the
version of jaxlib.  This module says where programs lie: one folder for each set of versions and each machine.  A
program for a processor uses the instructions of that processor, so it must not reach another one through a shared home.
"""

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import jax

from lgjax.execution._jax import reset_cache

OBJECT = "-object"  # ends the name of the code of one function, which JAX does not keep
LIMIT = 2**30  # bytes in one folder of programs; the oldest go first


def cache_programs(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled programs on disk from now on, and use those that are there.

    Call it once, first thing in a script: functions that JAX has compiled before the call stay as they are.  A second
    run of the script then traces its functions but compiles nothing that has not changed.

    folder: by default the user's cache folder, see `cache_folder`.  Programs lie in a folder within it that is named
    after the versions of lgjax, jax and jaxlib and after the processor, so that none is run by another version or
    machine; it is returned.  Beyond 1 GB the oldest programs are removed.  Programs that call back to Python are not
    kept.  Who can write to the folder decides what your process runs: do not share it with users whom you do not trust.

    This sets JAX's options `jax_compilation_cache_dir`, `jax_persistent_cache_min_compile_time_secs` and
    `jax_persistent_cache_min_entry_size_bytes`, for everything that the process compiles.  Raises OSError where the
    folder cannot be made or written to.
    """
    place = Path(cache_folder() if folder is None else folder).expanduser().absolute() / machine()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(place, os.W_OK):
        raise PermissionError(f"cannot write to {str(place)!r}")
    _trim(place, LIMIT)
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    reset_cache()  # JAX opens the folder at the first program and keeps to it
    return place


def cache_folder() -> Path:
    """Where programs are kept by default.

    The environment variable LGJAX_CACHE, or `lgjax` in the user's cache folder: $XDG_CACHE_HOME or ~/.cache,
    ~/Library/Caches on macOS, %LOCALAPPDATA% on Windows.
    """
    if named := os.environ.get("LGJAX_CACHE"):
        return Path(named)
    home = Path("~").expanduser()
    known = {"darwin": home / "Library" / "Caches", "win32": Path(os.environ.get("LOCALAPPDATA", home))}
    return known.get(sys.platform, Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")) / "lgjax"


def jax_folder() -> Path | None:
    """The folder that JAX keeps all compiled programs in, where it was told one and not by `cache_programs`."""
    told = jax.config.values["jax_compilation_cache_dir"]
    return Path(told) if told and Path(told).name != machine() else None


def machine() -> str:
    """Name of the folder of this process's programs: versions, kind of processor, and a hash of all that it can do."""
    versions = "-".join(f"{package}-{_version(package)}" for package in ("lgjax", "jax", "jaxlib"))
    features = hashlib.sha256(_processor().encode()).hexdigest()[:12]
    return f"{versions}-{platform.machine()}-{features}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # a copy of the sources that was not installed
        return "unknown"


def _processor() -> str:
    """Model and instructions of the processor, as the system names them."""
    try:
        if sys.platform == "darwin":
            return subprocess.run(["sysctl", "machdep.cpu", "hw.optional"], capture_output=True, text=True).stdout
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        names = ("model name", "flags", "features", "cpu implementer", "cpu part")
        return "\n".join(line for line in lines if line.split(":")[0].strip().lower() in names)
    except OSError:
        return f"{platform.system()} {platform.processor()}"


# ---- the code of functions that the library makes itself
def kept_object(name: str) -> bytes | None:
    """The code of a function, if it is among the programs that are kept."""
    folder = _objects()
    if folder is None:
        return None
    try:
        found = (folder / f"{name}{OBJECT}").read_bytes()
    except OSError:
        return None
    digest, code = found[:32], found[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def keep_object(name: str, code: bytes) -> None:
    """Keep the code of a function, if programs are kept; where that fails it is made again the next time."""
    folder = _objects()
    if folder is None:
        return
    own = folder / f"{name}.{os.getpid()}"
    with suppress(OSError):
        own.write_bytes(hashlib.sha256(code).digest() + code)
        own.replace(folder / f"{name}{OBJECT}")


def _objects() -> Path | None:
    """The folder in which JAX keeps programs, if it is one of this machine and JAX uses it."""
    told = jax.config.values["jax_compilation_cache_dir"]
    used = told and jax.config.values["jax_enable_compilation_cache"] and "://" not in told
    return Path(told) if used and Path(told).is_dir() else None


# ---- what is there
class Kept(NamedTuple):
    """Programs of one set of versions and one machine: their folder, how many and how many bytes."""

    folder: Path
    programs: int
    size: int


def kept_programs(folder: str | os.PathLike[str] | None = None) -> list[Kept]:
    """Every folder of programs in `folder`, which has the meaning it has in `cache_programs`."""
    root = Path(cache_folder() if folder is None else folder)
    return [programs_in(path) for path in sorted(root.glob("lgjax-*-jax-*")) if path.is_dir()]


def programs_in(folder: Path) -> Kept:
    """The programs that JAX keeps in a folder."""
    sizes = [size for _, size, _ in _entries(folder)]
    return Kept(folder, len(sizes), sum(sizes))


def clear_programs(folder: str | os.PathLike[str] | None = None) -> None:
    """Remove every program in `folder`, as given to `cache_programs`, and nothing else in it."""
    for kept in kept_programs(folder):
        shutil.rmtree(kept.folder)


def _entries(place: Path) -> Iterator[tuple[float, int, Path]]:
    """(time of writing, bytes, path) of each program; others may remove them meanwhile."""
    for path in (*place.glob("*-cache"), *place.glob(f"*{OBJECT}")):
        try:
            known = path.stat()
        except FileNotFoundError:
            continue
        yield known.st_mtime, known.st_size, path


def _trim(place: Path, limit: int) -> None:
    """Remove the oldest programs until the others are within `limit` bytes."""
    size = 0
    for _, each, path in sorted(_entries(place), reverse=True):
        size += each
        if size > limit:
            path.unlink(missing_ok=True)
