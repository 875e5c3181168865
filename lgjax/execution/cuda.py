"""Programs of one system as kernels of a CUDA device: the seam between recursions and `ptx.py`.

XLA itself launches a kernel given as PTX (the custom call `__gpu$xla.gpu.ptx`); the driver compiles it for the device at
hand when the program is loaded. Nothing but jaxlib is needed, and programs compile ahead of time on machines without a
GPU. What cannot be written as a kernel runs as it runs elsewhere, with a warning that says why.

Read first: `call.py`, which asks for kernels; `program.py` and `ptx.py`, which make them.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from lgjax.execution.program import ScalarProgram
from lgjax.execution.ptx import Kernel, kernel

TARGET = "__gpu$xla.gpu.ptx"


@lru_cache(maxsize=256)
def kernel_of(jaxpr: Any, batched: tuple[bool, ...], size: int) -> Kernel | None:
    """The kernel of a jaxpr of one system for `size` systems; None, with a warning, if there is none."""
    try:
        return kernel(ScalarProgram(jaxpr), batched, size)
    except NotImplementedError as error:
        warnings.warn(f"this runs on the GPU without a kernel of its own, more slowly: {error}", stacklevel=2)
        return None


def launch(found: Kernel, args: Sequence[jax.Array], shapes: Sequence[Any]) -> list[jax.Array]:
    """Run a kernel on arrays whose batch lies behind; shapes: of the results."""
    attributes = {
        "name": found.name,
        "kernel_type": "ptx",
        "kernel_data": found.text,
        "grid_x": np.int32(found.blocks),
        "grid_y": np.int32(1),
        "grid_z": np.int32(1),
        "block_x": np.int32(found.threads),
        "block_y": np.int32(1),
        "block_z": np.int32(1),
        "shared_mem_bytes": np.int32(0),
        "output_indices": tuple(np.int32(len(args) + k) for k in range(len(shapes))),
    }
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in shapes]
    return list(jax.ffi.ffi_call(TARGET, results)(*args, **attributes))


def as_kernel(jaxpr: Any, batched: Sequence[bool], size: int | None, shapes: Sequence[Any]) -> Callable | None:
    """The jaxpr as a function of arrays that is one launch, or None. Without a batch it runs as a batch of one."""
    found = kernel_of(jaxpr, tuple(batched), 1 if size is None else size)
    return None if found is None else lambda *args: launch(found, args, shapes)
