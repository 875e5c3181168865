"""Programs of one system as native functions of a CPU: the connection of `operation.py`, `llvm.py`, LLVM and XLA.

`as_native` is called when JAX lowers a program. LLVM compiles the function in this process, or it is loaded from disk;
XLA calls it through its foreign function interface. The name under which XLA finds a function is a hash of its code. So
a program from JAX's compilation cache finds it too, since every process lowers a program before it looks there.

Read first: `../operation.py`, which asks for kernels; `llvm.py`, which writes them.
"""

import ctypes
import hashlib
import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution.cache import keep_object, kept_object
from lgjax.execution.collection import uncollected
from lgjax.execution.fingerprint import fingerprint, of_sources
from lgjax.execution.jaxprs import remembered
from lgjax.execution.kernels.calling import NAME, Interface
from lgjax.execution.kernels.llvm import ALONE, kernel_text
from lgjax.execution.kernels.programs import program_of_jaxpr

logger = logging.getLogger("lgjax")

LONG = 60_000  # lines of a module for which LLVM's passes take longer than all else
MAX_ENTRIES = 2048  # entries of the arrays of one system alone
VECTORS = (("avx512f", 64), ("avx", 32))  # feature of a processor, bytes of its vector registers; others have 16


class Machine(NamedTuple):
    """Machine for which LLVM compiles. registers: bytes of a vector register."""

    name: str
    features: str
    registers: int


@cache
def machine() -> Machine:
    """The processor of this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    registers = next((n for name, n in VECTORS if features.get(name)), 16)
    return Machine(llvm.get_host_cpu_name(), features.flatten(), registers)


def level() -> int:
    """Level of optimization of LLVM's code generator: 1, unless the environment variable LGJAX_OPTIMIZATION_LEVEL is 0.

    Code of higher levels is no faster. Level 0 compiles in a seventh to a half of the time, and its code takes up to
    twice as long. Results are the same.
    """
    chosen = os.environ.get("LGJAX_OPTIMIZATION_LEVEL", "1")
    if chosen not in ("0", "1"):
        raise ValueError(f"the environment variable LGJAX_OPTIMIZATION_LEVEL is {chosen!r}; it can be 0 or 1")
    return int(chosen)


@cache
def interface() -> Interface:
    """The interface of the installed XLA, read from the header that jaxlib installs."""
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text()
    minor = re.search(r"define XLA_FFI_API_MINOR (\d+)", header)
    functions = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\);", header)
    if minor is None:
        raise OSError("jaxlib's header of XLA's foreign function interface has no version")
    return Interface(int(minor[1]), tuple(functions))


@cache
def usable() -> bool:
    """Whether native functions can be compiled and called here; where not, one warning says why."""
    level()  # a wrong one is an error: without native functions, gradients of contact compile six times as long
    found: list[Exception] = []

    def attempt() -> None:
        """In a thread of its own: the caller may be tracing."""
        try:
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                jaxpr = jax.make_jaxpr(lambda x: 2 * x + 1)(jnp.float32(0)).jaxpr
                shape = jax.ShapeDtypeStruct((17,), jnp.float32)
                call = as_native(jaxpr, (True,), 17, [shape], {}, False)
                if call is None:
                    raise RuntimeError("there is no code for a sum")
                run = jax.jit(lambda: call(jnp.arange(17, dtype=jnp.float32))[0])
                if jax.device_get(run()).tolist() != list(range(1, 35, 2)):
                    raise RuntimeError("wrong numbers")
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    if found:
        what = f"{type(found[0]).__name__}: {found[0]}"
        warnings.warn(f"no native functions on this CPU, so all runs more slowly: {what}", stacklevel=2)
    return not found


_targets: dict[str, str | None] = {}  # of jaxprs that have a fingerprint
_registered: set[str] = set()  # XLA may call these functions until the process ends


@remembered
@uncollected()
def target_of(jaxpr: Any, mapped: tuple[bool, ...], batch: bool, in_place: bool, front: tuple[bool, ...]) -> str | None:
    """The name under which XLA finds the native function of a jaxpr of one system; None if it can have none.

    A function that is traced again, here or by another process, has another jaxpr, and the same fingerprint.
    """
    how, told = (mapped, batch, in_place, front), fingerprint(jaxpr)
    if told is None:
        return written(jaxpr, how)
    key = symbol(told, of_sources(), interface(), how)
    if key not in _targets:
        kept = kept_object(key)
        _targets[key] = (
            written(jaxpr, how, key) if kept is None else registered(kept[: len(key)].decode(), kept[len(key) :])
        )
    return _targets[key]


def forget() -> None:
    """Build the programs of functions again that are lowered again."""
    target_of.cache_clear()  # type: ignore[attr-defined]
    _targets.clear()


def written(jaxpr: Any, how: tuple, key: str | None = None) -> str | None:
    """The name of the native function that is written for a jaxpr; `cache_programs` keeps it under a key."""
    mapped, batch, in_place, front = how
    try:
        program = program_of_jaxpr(jaxpr)
        text = kernel_text(program, mapped, batch, machine().registers, interface(), in_place, front)
    except NotImplementedError as error:
        logger.info("without a kernel of its own: %s", error)
        return None
    name = symbol(text)
    if name in _registered:
        return name
    code = compiled(name, text)
    if key is not None:
        keep_object(key, name.encode() + code)
    return registered(name, code)


def symbol(*told: Any) -> str:
    """A name for a function: a hash of what tells it from others, and of all else that its machine code depends on."""
    import llvmlite.binding as llvm

    told = *told, *machine(), level(), llvm.llvm_version_info
    return f"lgjax_{hashlib.sha256(repr(told).encode()).hexdigest()[:32]}"


def compiled(name: str, text: str) -> bytes:
    """The machine code of a module, whose function has the name."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text.replace(f"@{NAME}(", f"@{name}("))
    if text.startswith(ALONE) and text.count("\n") < LONG:
        _side_by_side(module)
    found = _target_machine().emit_object(module)
    module.close()
    return found


def registered(name: str, code: bytes) -> str:
    """Give the function of this name in machine code to XLA, under the same name."""
    import llvmlite.binding as llvm

    if name not in _registered:
        engine = _engine()
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        engine.finalize_object()
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        jax.ffi.register_ffi_target(name, capsule(engine.get_function_address(name), None, None), platform="cpu")
        _registered.add(name)
    return name


def _side_by_side(module: Any) -> None:
    """Let LLVM's passes compute neighboring entries of arrays at once: for one system alone, loops take half the time.

    In a batch they gain nothing, and take as long again to compile.
    """
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(1)
    options.slp_vectorization, options.loop_vectorization, options.loop_unrolling = True, False, False
    passes = llvm.create_pass_builder(_target_machine(), options)
    passes.getModulePassManager().run(module, passes)


def _target_machine() -> Any:
    import llvmlite.binding as llvm

    name, features, _ = machine()
    return llvm.Target.from_default_triple().create_target_machine(name, features, level(), jit=True)


@cache
def _engine() -> Any:
    """The engine that holds the code of all functions; XLA may call them until the process ends."""
    import llvmlite.binding as llvm

    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())


def as_native(
    jaxpr: Any, mapped: Sequence[bool], size: int | None, shapes: Sequence[Any], over: Mapping[int, int], front: bool
) -> Callable | None:
    """The jaxpr as a function of arrays, with the batch last, that calls one native function; None if it has none.

    mapped: which arguments have a batch. size: of the batch; None: one system. shapes: of the results. over: the
    argument that a result overwrites, by index. front: the caller's arrays have the batch first in memory.
    """
    marks = tuple(front and size is not None and b for b in (*mapped, *[True] * len(shapes)))
    given = [n for n, x in enumerate(jaxpr.invars) if x.aval.size]
    asked = [k for k, x in enumerate(shapes) if x.size]
    if not asked:
        return lambda *_: [jnp.zeros(x.shape, x.dtype) for x in shapes]
    if size is None and max(x.aval.size for x in (*jaxpr.invars, *jaxpr.outvars)) > MAX_ENTRIES:
        return None  # of one system, XLA computes the entries of a large array side by side
    target = target_of(jaxpr, tuple(mapped), size is not None, bool(over), marks)
    if target is None:
        return None
    replaced = {given.index(n): asked.index(k) for k, n in over.items() if k in asked}
    ahead = marks[len(mapped) :]
    first = lambda shape: (shape[-1], *shape[:-1])
    results = [
        jax.ShapeDtypeStruct(first(shapes[k].shape) if ahead[k] else shapes[k].shape, shapes[k].dtype) for k in asked
    ]
    call = jax.ffi.ffi_call(target, results, input_output_aliases=replaced)

    def run(*args) -> list[jax.Array]:
        # The caller moved the batch of each array from the front to the back. XLA cancels that with the move here.
        found = call(*(jnp.moveaxis(args[n], -1, 0) if marks[n] else args[n] for n in given))
        outs = {k: jnp.moveaxis(x, 0, -1) if ahead[k] else x for k, x in zip(asked, found, strict=True)}
        return [outs[k] if k in outs else jnp.zeros(x.shape, x.dtype) for k, x in enumerate(shapes)]

    return run
