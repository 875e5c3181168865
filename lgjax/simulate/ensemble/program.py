"""One function for many numbers at once: on all devices of all processes, as wide as memory allows."""

import os
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lgjax.execution.compiled import functions_of
from lgjax.execution.lasting import Way, first_traced
from lgjax.numerics import checks

T = TypeVar("T")

WIDEST = 4096  # trajectories at a time and device, where nobody says otherwise
WIDEST_ON_GPU = 65536  # twice as many as an H100 has threads for
SHARE = 0.5  # of the memory of a device that they may take

EVERYWHERE, SPLIT = PartitionSpec(), PartitionSpec("batch")


def device_mesh(devices: int | None) -> Mesh:
    """`devices` of the local devices, or all, of every process, in the order of the processes."""
    if devices is not None and checks.integer("devices", devices, -(2**63)) < 1:
        raise ValueError(f"devices must be positive, got {devices}")
    here = jax.local_devices()
    if devices is not None and devices > len(here):
        raise ValueError(f"devices={devices} asked for, there are {len(here)} ({here[0].platform})")
    chosen = [d for p in range(jax.process_count()) for d in jax.local_devices(p)[:devices]]
    return Mesh(np.array(chosen), ("batch",))


class Program:
    """function(key, number, arguments) -> pytree, compiled for `width` consecutive numbers on each device.

    way: programs, the numbers that the function reads, and the function of these, in a tuple, see `first_traced`.
    """

    def __init__(self, way: Way, key: jax.Array, arguments: Any, mesh: Mesh, width: int, options: Any):
        self.mesh, self.width, self.span = mesh, width, width * mesh.size
        # What becomes of these when a device runs out of memory: `_use_less`.
        self.overlapping = True
        self.narrower: Program | None = None
        self._made = lambda width: Program(way, key, arguments, mesh, width, options)
        programs, held, filled = way
        typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        kind = jax.random.key_impl(key) if typed else None
        data = np.asarray(jax.random.key_data(key) if typed else key)
        # `held` as it is: Python's numbers take the dtype of what they meet.
        inputs = held, data, jax.tree.map(np.asarray, arguments)
        self.inputs = jax.device_put(inputs, NamedSharding(mesh, EVERYWHERE))

        def many(held: Any, key_data: Any, arguments: Any, numbers: Any) -> Any:
            function = filled(held)[0]
            key = jax.random.wrap_key_data(key_data, impl=kind) if typed else key_data
            return jax.vmap(lambda number: function(key, number, arguments))(numbers)

        # shard_map gives every device the same program, so that results do not depend on how many there are.
        split = jax.shard_map(many, mesh=mesh, in_specs=(*3 * [EVERYWHERE], SPLIT), out_specs=SPLIT, check_vma=False)
        given = (*self.inputs, self._numbers(0))
        self.compiled = programs.compiled(f"ensemble {kind}", split, *given, options=options)
        self.shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self.compiled.shapes)

    def begun(self, start: int) -> Any:
        """The results for numbers start to start + span - 1, on the devices, which may be at work on them still.

        None once two calls at a time have taken more memory than there is: then `completed` makes the call.
        """
        if not self.overlapping:
            return None
        try:
            return self._called(start)
        except jax.errors.JaxRuntimeError as error:
            self._use_less(error)
            return None

    def completed(self, start: int, results: Any) -> Any:
        """Finish the result of `begun`; where memory does not suffice, compute it again in parts on the host."""
        while self.narrower is None:
            try:
                return jax.block_until_ready(self._called(start) if results is None else results)
            except jax.errors.JaxRuntimeError as error:
                results = None
                self._use_less(error)
        part = self.narrower
        parts = [jax.device_get(part.completed(n, None)) for n in range(start, start + self.span, part.span)]
        return jax.tree.map(lambda *x: np.concatenate(x)[: self.span], *parts)

    def _called(self, start: int) -> Any:
        return self.compiled.run(*self.inputs, self._numbers(start))

    def _use_less(self, error: Exception) -> None:
        """After an error for want of memory: no two calls at a time, then half the width; other errors are raised."""
        if "RESOURCE_EXHAUSTED" not in str(error) or jax.process_count() > 1:
            raise error  # several processes would have to agree on it
        if self.overlapping:
            self.overlapping = False
            return
        if self.width == 1:
            raise error
        width = -(-self.width // 2)
        message = f"memory does not suffice for {self.width} at a time and device: going on with {width}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        self.narrower = self._made(width)
        self.narrower.overlapping = False

    def _numbers(self, start: int) -> jax.Array:
        rows = lambda index: start + np.arange(self.span, dtype=np.int32)[index]
        return jax.make_array_from_callback((self.span,), NamedSharding(self.mesh, SPLIT), rows)

    def gathered(self, results: Any) -> Any:
        """All rows, on the host of every process."""
        if jax.process_count() > 1:
            results = jax.tree.map(lambda x: x.addressable_data(0), _everywhere(self.mesh)(results))
        return jax.device_get(results)

    def local_chunks(self, results: Any) -> Iterator[tuple[int, Any]]:
        """(place among the chunks of this call, its `width` rows on the host) of the devices of this process."""
        if self.narrower is not None:
            for place in range(self.mesh.size):
                rows = slice(place * self.width, (place + 1) * self.width)
                yield place, jax.tree.map(itemgetter(rows), results)
            return
        shards = [x.addressable_shards for x in jax.tree.leaves(results)]
        for parts in zip(*shards):
            place = (parts[0].index[0].start or 0) // self.width
            yield place, jax.tree.unflatten(jax.tree.structure(results), [np.asarray(p.data) for p in parts])

    def memory(self) -> int:
        """Bytes on one device; results twice, as the next are computed while the last are taken away."""
        known = self.compiled.memory
        if known is None:
            return 0
        return known.temp_size_in_bytes + 2 * known.output_size_in_bytes + known.argument_size_in_bytes


@lru_cache(4)
def _everywhere(mesh: Mesh) -> Callable:
    """The function that gives every device all rows."""
    return jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, EVERYWHERE))


def _first_traced(function: Callable, arguments: Any, use: Callable[[Way], T]) -> T:
    """`first_traced` for function(key, number, arguments); with several processes numbers that it reads are constants.

    JAX does not give a number of Python to the devices of other processes.
    """
    read = function, *functions_of(jax.tree.structure(arguments))
    return first_traced(read, use, constant=jax.process_count() > 1)


def result_shapes(function: Callable, key: jax.Array, arguments: Any) -> Any:
    """Shapes and dtypes of the results of function(key, number, arguments)."""
    number = jax.ShapeDtypeStruct((), jnp.int32)

    def shapes(way: Way) -> Any:
        programs, held, filled = way
        call = lambda held, *args: filled(held)[0](*args)
        return programs.remembered(
            "shapes", (held, key, arguments), lambda: jax.eval_shape(call, held, key, number, arguments)
        )

    return _first_traced(function, arguments, shapes)


def fitting_program(
    function: Callable, key: jax.Array, arguments: Any, mesh: Mesh, count: int, chunk: int | None, options: Any
) -> Program:
    """A program of width `chunk`, or, if that is None, of one that takes no more than half the memory."""
    widest = WIDEST_ON_GPU if mesh.local_devices[0].platform == "gpu" else WIDEST
    width = min(-(-count // mesh.size), widest) if chunk is None else min(chunk, count)

    def fitting(way: Way) -> Program:
        program = Program(way, key, arguments, mesh, width, options)
        if chunk is not None:
            return program
        excess = program.memory() / (SHARE * device_memory(mesh.local_devices[0]))
        return program if excess <= 1 else Program(way, key, arguments, mesh, max(1, int(width / excess)), options)

    return _first_traced(function, arguments, fitting)


def device_memory(device: Any) -> float:
    """Bytes that a device has: what it says itself, or for a CPU its share of what the machine has."""
    known = device.memory_stats() or {}
    if "bytes_limit" in known:
        return float(known["bytes_limit"])
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system tells
        total = 8 * 2**30
    return float(total / len(jax.local_devices()))
