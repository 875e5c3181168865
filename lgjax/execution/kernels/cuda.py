"""Programs of one system as kernels of a CUDA device: the seam between recursions and `ptx.py`.

XLA itself launches a kernel given as PTX (the custom call `__gpu$xla.gpu.ptx`); the driver compiles it for the device
at hand when the program is loaded. Nothing but jaxlib is needed, and programs compile ahead of time on machines without
a GPU. What cannot be written as a kernel runs as it does on other platforms, with a warning that says why.

Read first: `../operation.py`, which asks for kernels; `../scalars/program.py` and `ptx.py`, which make them.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.collection import uncollected
from lgjax.execution.kernels.ptx import Kernel, kernel
from lgjax.execution.kernels.rows import BUDGET, chosen
from lgjax.execution.kernels.spills import SHARED, block_memory
from lgjax.execution.scalars.program import ScalarProgram, has_long_loops, size_of

TARGET = "__gpu$xla.gpu.ptx"
# Registers are faster than a thread's own memory: large arrays go there for long loops, and in programs that are larger
# than this as of `size_of`, such as a contact step of a humanoid.
SCALARS = 300_000
# kB of shared memory of a multiprocessor, by compute capability, where it has less than an H100.
MULTIPROCESSOR = {"8.0": 164, "8.6": 100, "8.7": 164, "8.9": 100, "12.0": 100, "12.1": 100}


@lru_cache(maxsize=256)
@uncollected()
def kernel_of(
    jaxpr: Any, mapped: tuple[bool, ...], size: int, in_place: bool, front: tuple[bool, ...] = ()
) -> Kernel | None:
    """The kernel of a jaxpr of one system for `size` systems; None, with a warning, if there is none.

    front: which of arguments and results have the batch in front.
    """
    try:
        return kernel(
            ScalarProgram(jaxpr, memory=has_long_loops(jaxpr) or size_of(jaxpr) > SCALARS),
            mapped,
            size,
            in_place,
            front,
            _shared_memory(),
        )
    except NotImplementedError as error:
        warnings.warn(f"this runs on the GPU without a kernel of its own, more slowly: {error}", stacklevel=2)
        return None


def _shared_memory() -> int:
    """Bytes of a block, if eight fit on a multiprocessor of the device at hand; without one, of an H100."""
    try:
        kind = getattr(jax.local_devices(backend="gpu")[0], "compute_capability", "")
    except RuntimeError:  # there is none
        return SHARED
    return block_memory(MULTIPROCESSOR[kind]) if kind in MULTIPROCESSOR else SHARED


def as_kernel(
    jaxpr: Any,
    mapped: Sequence[bool],
    size: int | None,
    shapes: Sequence[Any],
    over: Mapping[int, int],
    front: bool = False,
) -> Callable | None:
    """The jaxpr as a function of arrays that launches one kernel, or None. Without a batch it runs as a batch of one.

    shapes: of the results. over: of results, the argument that each is written over. front: the caller's arrays
    have the batch first in memory, and are taken so where they fit.
    """
    marks = _in_front(jaxpr, mapped) if front and size is not None else (False,) * (len(mapped) + len(shapes))
    found = kernel_of(jaxpr, tuple(mapped), 1 if size is None else size, bool(over), marks)
    if found is None:
        return None
    given = [n for n, x in enumerate(jaxpr.invars) if x.aval.size]  # an empty array has no memory to point to
    asked = [k for k, x in enumerate(shapes) if x.size]
    replaced = {given.index(n): asked.index(k) for k, n in over.items() if k in asked}
    results = [jax.ShapeDtypeStruct(shapes[k].shape, shapes[k].dtype) for k in asked]
    call = jax.ffi.ffi_call(
        TARGET,
        results,
        input_output_aliases=replaced,
        input_layouts=[_layout(jaxpr.invars[n].aval.ndim + (mapped[n] and size is not None), marks[n]) for n in given],
        output_layouts=[_layout(len(shapes[k].shape), marks[len(mapped) + k]) for k in asked],
    )

    def run(*args) -> list[jax.Array]:
        outs = dict(zip(asked, call(*(args[n] for n in given), **_launch(found, len(given), len(asked))), strict=True))
        return [outs[k] if k in outs else jnp.zeros(x.shape, x.dtype) for k, x in enumerate(shapes)]

    return run


def _in_front(jaxpr: Any, mapped: Sequence[bool]) -> tuple[bool, ...]:
    """Which arguments and results the kernel takes with the batch in front in memory."""
    kind = lambda x, b: (x.aval.size if b else 0, x.aval.dtype.itemsize)
    arguments = [kind(x, b) for x, b in zip(jaxpr.invars, mapped, strict=True)]
    return chosen(arguments, [kind(x, True) for x in jaxpr.outvars], min(BUDGET, _shared_memory()))


def _layout(axes: int, front: bool) -> tuple[int, ...]:
    """The axes of an array whose batch is the last, the slowest in memory first."""
    return (axes - 1, *range(axes - 1)) if front else tuple(range(axes))


def _launch(kernel: Kernel, arguments: int, results: int) -> dict[str, Any]:
    """The call that XLA expects, the pointers of the results behind those of the arguments."""
    return {
        "name": kernel.name,
        "kernel_type": "ptx",
        "kernel_data": kernel.text,
        "grid_x": np.int32(kernel.blocks),
        "grid_y": np.int32(1),
        "grid_z": np.int32(1),
        "block_x": np.int32(kernel.threads),
        "block_y": np.int32(1),
        "block_z": np.int32(1),
        "shared_mem_bytes": np.int32(0),
        "output_indices": tuple(np.int32(arguments + k) for k in range(results)),
    }
