"""Named arrays on disk: a file appears whole or not at all, and its digest tells whether it was changed.

`numpy.load` reads the files.
"""

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from lgjax.numerics.messages import why


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    contents: dict[str, Any] = {name: np.asarray(x) for name, x in arrays.items()}
    np.savez(buffer, **contents)
    write_file(path, buffer.getbuffer())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        contents = path.read_bytes()
        if not contents.startswith(b"PK"):
            raise ValueError("it is no .npz file")
        with np.load(io.BytesIO(contents)) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a zip file can be broken in many ways
        raise ValueError(f"{str(path)!r} cannot be read: {why(error)}") from error


def write_file(path: Path, data: Any) -> None:
    """Write the whole file or nothing, even if the machine stops."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {why(error)}; what was written before is kept") from error


def check_writable(path: Path) -> None:
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise ValueError(f"cannot write to {str(path)!r}: {str(place)!r} is not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {str(path)!r}: no permission to write to {str(place)!r}")


def digest(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of names, dtypes, shapes and contents, (32,) uint8."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        x = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {x.dtype} {x.shape}\n".encode())
        total.update(x.tobytes())
    return np.frombuffer(total.digest(), np.uint8)
