"""Functions of one system as operations of their own, which each platform runs in its own way.

`batch_behind`: an algorithm whose batch axis under `jax.vmap` comes behind all others. On a CPU it is one native
function (`kernels/native.py`), on a GPU one kernel, one system per thread (`kernels/cuda.py`). What neither can do
works on lanes with the batch behind them (`scan.py`); arrays are transposed only when it begins and when it ends. Its
tangent is a function of the same kind, computed from the arguments alone: nothing else is stored for a reverse pass.

`with_derivatives`: functions with derivative rules of their own, whose derivatives are one kernel each on a GPU.

`one_kernel`: larger pieces, such as a step of a rollout, which are one kernel on a GPU and one native function on a
CPU, and so are their derivatives. A piece without a native function is one function of XLA's for a few systems
(`one_function.py`), and is differentiated operation by operation.
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps

import jax
import jax.numpy as jnp
from jax import lax

from lgjax.execution._jax import (
    Literal,
    Primitive,
    Zero,
    alone,
    as_function,
    dce_jaxpr,
    is_exported,
    is_undefined_primal,
    no_tangent,
    on_one_device,
    register,
    reshaped,
    scan_arguments,
)
from lgjax.execution.batch_last.evaluation import Arrays, Behind, evaluate, merged, tangents, traced, transposed
from lgjax.execution.kept import keeps, linearized
from lgjax.execution.kernels import native
from lgjax.execution.kernels.cuda import as_kernel
from lgjax.execution.kernels.programs import is_program
from lgjax.execution.one_function import FEW, as_operation, few, fits, in_one_function, is_known
from lgjax.execution.scalars.program import size_of

VECTOR = 16  # numbers that a CPU works on at a time, at most
MANY = 256  # systems whose arrays do not fit side by side into the nearest cache
TOGETHER = 15000  # largest `size_of` x 32-bit words of a number, for derivatives in one kernel; a quadruped has 13,000
PART = 4160  # bytes of each number of a part of the batch: 1040 systems in float32


def batch_behind(function: Callable, execution: str = "scalarized") -> Callable:
    """`function` of pytrees of arrays, with the batch last under `jax.vmap`; execution "plain" returns it unchanged."""
    if execution == "plain":
        return function
    return as_operation(function, lambda jaxpr, values, _: _operation(jaxpr, values, execution))


def with_derivatives(function: Callable, execution: str = "scalarized") -> Callable:
    """`function` of pytrees of arrays that has derivative rules of its own.

    On a GPU each derivative is one kernel, which reads the arguments alone and computes the results again, sharing most
    of the work. Large functions stay several kernels: one would need more registers than a thread has. On a CPU all do:
    what one hands to the next stays in its caches.
    """
    if execution != "scalarized":
        return function

    def bind(jaxpr, values, _):
        words = max((x.aval.dtype.itemsize for x in jaxpr.invars), default=4) / 4
        small = words * size_of(jaxpr) <= TOGETHER
        return _operation(jaxpr, values) if small else evaluate(jaxpr, values)

    together = jax.jit(as_operation(function, bind))  # one trace, however often a program evaluates it
    return wraps(function)(lambda *args: (together if jax.default_backend() == "gpu" else function)(*args))


def one_kernel(function: Callable, in_place: bool = False) -> Callable:
    """`function` of pytrees of arrays: one kernel on a GPU, as each derivative is, and one function on a CPU.

    in_place: for function(state, ...) -> the next state. In a loop the kernel writes it over the previous state.
    """

    def bind(jaxpr, values, constants: int):
        # What is not read, such as the time in many steps, would have to be kept for a reverse pass.
        state = range(constants, constants + len(jaxpr.outvars)) if in_place else ()
        jaxpr, read = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), [n in state for n in range(len(values))])
        values, constants = [x for x, r in zip(values, read, strict=True) if r], sum(read[:constants])
        how = {"state": range(constants, constants + len(jaxpr.outvars))} if in_place else {"how": "behind"}
        return _bound(system_p, jaxpr, values, **how)

    return as_operation(function, bind)


def _bound(primitive: Primitive, jaxpr, values: Sequence, **parameters) -> Arrays:
    """The results for one system, of which none is batched."""
    return primitive.bind(*values, jaxpr=jaxpr, batched=(False,) * len(values), size=None, **parameters)


def _operation(jaxpr, values: Sequence, execution: str = "scalarized") -> Arrays:
    """An operation whose parameter `how` says what a GPU does with it.

    "scan": no kernel. "front": a kernel whose caller has the batch first in all arrays, "behind": last, or mixed.
    "step": a derivative of a step in a loop, a kernel that writes its results over its directions.
    """
    return _bound(call_p, jaxpr, values, how="scan" if execution == "scan" else "behind")


def _run(*args, jaxpr, batched, size, **_) -> Arrays:
    return Behind(size).outputs(jaxpr, dict(zip(jaxpr.invars, zip(args, batched, strict=True), strict=True)))


def has_kernels() -> bool:
    """Whether the default platform runs programs as kernels, or native functions, where it can."""
    return jax.default_backend() == "gpu" or native.usable()


def _on_cpu(ctx, otherwise: Callable, together: Callable) -> Callable:
    """One native function; else `together`, XLA's operations in parts that stay in the caches of a core.

    A batch that the compiler divides among devices stays as it is: what is cut or appended would move its parts.
    """
    if not on_one_device(ctx):
        return otherwise
    return together if is_exported(ctx) or not native.usable() else partial(_launched, native.as_native, together)


def _run_together(*args, size: int | None, **parameters) -> Arrays:
    """One function, but for batches whose results must not depend on their size, as they would in the last bit."""
    run = partial(_run_parts if is_known(size) else _run, size=size, **parameters)
    return (in_one_function(run) if few(size) else run)(*args)


def _run_parts(*args, jaxpr, batched, size: int | None, **_) -> Arrays:
    """One part after the other. One alone is filled up, of several the last begins where it ends with the batch.

    It is filled with copies of the last system: for numbers of no system a loop might never end.
    """
    if size is None:
        return _run(*args, jaxpr=jaxpr, batched=batched, size=size)
    bytes_each = max((x.aval.dtype.itemsize for x in jaxpr.outvars), default=1)
    count = max(1, -(-size * bytes_each // PART))
    width = _width(-(-size // count))
    part = partial(_run, jaxpr=jaxpr, batched=batched, size=width)
    each = lambda f: [f(x) if b else x for x, b in zip(args, batched, strict=True)]
    if count == 1:
        last = lambda x: jnp.broadcast_to(x[..., size - 1 :], (*x.shape[:-1], width - size))
        fill = lambda x: jnp.concatenate([x, last(x)], -1)
        return [x[..., :size] for x in part(*(each(fill) if width > size else args))]

    def run(n, outs):
        start = jnp.minimum(n * width, size - width)
        found = part(*each(lambda x: lax.dynamic_slice_in_dim(x, start, width, -1)))
        return [lax.dynamic_update_slice_in_dim(x, y, start, -1) for x, y in zip(outs, found, strict=True)]

    outs = [jnp.zeros(x.shape, x.dtype) for x in _shapes(jaxpr=jaxpr, batched=batched, size=size)]
    return lax.fori_loop(0, count, run, outs)


def _on_cuda(ctx, otherwise: Callable) -> Callable:
    """One kernel. A batch that the compiler divides among devices is left to it."""
    return partial(_launched, as_kernel, otherwise) if on_one_device(ctx) else otherwise


def _launched(
    kernel: Callable, otherwise: Callable, *args, jaxpr, batched, size, how: str = "behind", state: range | None = None
) -> Arrays:
    shapes, over = _shapes(jaxpr=jaxpr, batched=batched, size=size), {}
    if state is not None:
        over = {k: n for k, n in enumerate(state) if size is None or batched[n]}
    if how == "step":
        over = _directions(jaxpr, batched, size)
    one = how != "scan" and is_known(size)
    run = kernel(jaxpr, batched, size, shapes, over, how == "front") if one else None
    return otherwise(*args, jaxpr=jaxpr, batched=batched, size=size) if run is None else run(*args)


def _directions(jaxpr, batched, size: int | None) -> dict[int, int]:
    """Of the results of a derivative, which argument each is written over: of the same kind, not yet taken.

    Among the last arguments, which are the directions, or cotangents.
    """
    kinds = lambda variables: [(x.aval.shape, x.aval.dtype) for x in variables]
    first = len(jaxpr.invars) - min(len(jaxpr.outvars), len(jaxpr.invars))
    free = [n for n in range(first, len(jaxpr.invars)) if batched[n] or size is None]
    given, found = kinds(jaxpr.invars), {}
    for k, kind in enumerate(kinds(jaxpr.outvars)):
        n = next((n for n in free if given[n] == kind), None)
        if n is not None:
            found[k] = n
            free.remove(n)
    return found


def _width(size: int) -> int:
    """A multiple of VECTOR, for large batches an odd one: arrays a power of two apart share few lines of a cache.

    Of a few systems a power of two: no loop has a remainder, whose last bits could be others.
    """
    if size <= FEW:
        return 1 << (size - 1).bit_length() if size else 0
    vectors = -(-size // VECTOR)
    return VECTOR * (vectors + (size >= MANY and vectors % 2 == 0))


def _shapes(*_, jaxpr, batched, size, **others) -> list:
    behind = () if size is None else (size,)
    return [reshaped(x.aval, (*x.aval.shape, *behind)) for x in jaxpr.outvars]


def _jvp(primals, directions, *, jaxpr, batched, size, **how):
    outs = call_p.bind(*primals, jaxpr=jaxpr, batched=batched, size=size, **how)
    return outs, _along(outs, primals, directions, jaxpr, batched, size, **how)


def _along(outs, primals, directions, jaxpr, batched, size, **how) -> list:
    """Tangents of the results `outs`, by one operation that reads the arguments alone."""
    moving = [n for n, t in enumerate(directions) if not isinstance(t, Zero)]
    moved = [jnp.issubdtype(x.aval.dtype, jnp.floating) for x in jaxpr.outvars]
    short, more, kept = tangents(jaxpr, moving, moved)
    args = [*more, *(x for x, k in zip(primals, kept, strict=True) if k), *(directions[n] for n in moving)]
    marks = (False,) * len(more) + tuple(b for b, k in zip(batched, kept, strict=True) if k)
    marks = (*marks, *(batched[n] for n in moving))
    found = iter(call_p.bind(*args, jaxpr=short, batched=marks, size=size, **how))
    return [next(found) if m else no_tangent(x) for x, m in zip(outs, moved, strict=True)]


def _transpose(given, *args, jaxpr, batched, size, **how):
    linear = [n for n, x in enumerate(args) if is_undefined_primal(x)]
    known = [n for n in range(len(args)) if n not in linear]
    asked = [not isinstance(ct, Zero) for ct in given]
    backwards, more = transposed(jaxpr, linear, asked)
    cts = [ct for ct, a in zip(given, asked, strict=True) if a]
    marks = (*[False] * len(more), *(batched[n] for n in known), *[size is not None] * len(cts))
    values = [*more, *(args[n] for n in known), *cts]
    found = call_p.bind(*values, jaxpr=backwards, batched=marks, size=size, **how)
    sums = {n: x if size is None or batched[n] else x.sum(-1) for n, x in zip(linear, found, strict=True)}
    return [sums.get(n) for n in range(len(args))]


def _vmap(primitive, args, axes, *, jaxpr, batched, size, **others):
    if others.get("how") in ("behind", "front"):
        others["how"] = "front" if size is None and all(axis in (0, None) for axis in axes) else "behind"
    more = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    together = tuple(b or axis is not None for b, axis in zip(batched, axes, strict=True))
    args = [
        merged(x, size if b else None, size, axis, more) if t else x
        for x, b, axis, t in zip(args, batched, axes, together, strict=True)
    ]
    outs = primitive.bind(*args, jaxpr=jaxpr, batched=together, size=more * (1 if size is None else size), **others)
    apart = [x if size is None else x.reshape(*x.shape[:-1], size, more) for x in outs]
    if others.get("how") == "front" and has_kernels():  # there it costs nothing, and others see it
        return [jnp.moveaxis(x, -1, 0) for x in apart], [0] * len(apart)
    return apart, [x.ndim - 1 for x in apart]


call_p = Primitive("lane_call")
register(
    call_p,
    _run,
    _shapes,
    partial(_vmap, call_p),
    _jvp,
    _transpose,
    cpu=partial(_on_cpu, otherwise=_run, together=_run_together),
    cuda=partial(_on_cuda, otherwise=_run),
)


# ---- pieces that are what they consist of
def _written_out(*args, jaxpr, batched, size, **_) -> Arrays:
    run = lambda *args: evaluate(jaxpr, args)
    if size is None:
        return run(*args)
    return jax.vmap(run, [-1 if b else None for b in batched], -1, axis_size=size)(*args)


def _written_together(*args, size: int | None, **parameters) -> Arrays:
    run = partial(_written_out, size=size, **parameters)
    # What does not fit as it is written fits no better for a batch, and batching nested loops takes long.
    small = few(size) and fits(parameters["jaxpr"])
    return (in_one_function(run) if small else run)(*args)


def _turn_by_turn(jaxpr, args: Sequence) -> list:
    """The results of a jaxpr, with the bodies of its loops as operations of their own."""
    env = dict(zip(jaxpr.invars, args, strict=True))
    read = lambda atom: atom.val if isinstance(atom, Literal) else env[atom]
    for eqn in jaxpr.eqns:
        values = [read(atom) for atom in eqn.invars]
        outs = _loop(eqn, values) if eqn.primitive.name == "scan" else alone(jaxpr, eqn)(*values)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _loop(eqn, values: list) -> list:
    first, carried = scan_arguments(eqn)
    constants, start, xs = values[:first], values[first : first + carried], values[first + carried :]
    body = as_function(eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts)
    turn = batch_behind(lambda carry, x: body(*constants, *carry, *x))

    def step(carry, x):
        outs = turn(carry, x)
        return outs[: len(start)], outs[len(start) :]

    final, ys = lax.scan(step, start, xs, eqn.params["length"], eqn.params["reverse"])
    return [*final, *ys]


def _derivative(primals, directions, *, jaxpr, batched, size, **others):
    """Where the function is one kernel, its derivative is one, too.

    The way back repeats each turn of a loop, so only the values at its start are kept.
    """
    if jax.default_backend() == "gpu" or (native.usable() and is_program(jaxpr)):
        if keeps(jaxpr):
            return _with_kept(primals, directions, jaxpr=jaxpr, batched=batched, size=size, **others)
        outs = system_p.bind(*primals, jaxpr=jaxpr, batched=batched, size=size, **others)
        turns, none = traced(lambda args: _turn_by_turn(jaxpr, args), [x.aval for x in jaxpr.invars])
        assert not none
        return outs, _along(outs, primals, directions, turns, batched, size, how="step")
    moving = [n for n, t in enumerate(directions) if not isinstance(t, Zero)]

    def of(*values):
        args = dict(enumerate(primals)) | dict(zip(moving, values, strict=True))
        return _written_out(*args.values(), jaxpr=jaxpr, batched=batched, size=size)

    outs, tangents = jax.jvp(of, [primals[n] for n in moving], [directions[n] for n in moving])
    floating = [jnp.issubdtype(x.dtype, jnp.floating) for x in outs]
    return outs, [t if f else no_tangent(x) for x, t, f in zip(outs, tangents, floating, strict=True)]


def _with_kept(primals, directions, *, jaxpr, batched, size, state: range | None = None, **others):
    """The kernel hands what is marked in it to that of its derivative."""
    moving = [n for n, t in enumerate(directions) if not isinstance(t, Zero)]
    moved = [jnp.issubdtype(x.aval.dtype, jnp.floating) for x in jaxpr.outvars]
    values, short, more, needed = linearized(jaxpr, moving, moved)
    marks = (*[False] * len(more), *batched)
    own = {} if state is None else {"state": range(state.start + len(more), state.stop + len(more))}
    found = system_p.bind(*more, *primals, jaxpr=values, batched=marks, size=size, **own, **others)
    outs, stored = found[: len(moved)], found[len(moved) :]
    args = [*more, *(x for x, k in zip(primals, needed, strict=True) if k), *stored, *(directions[n] for n in moving)]
    marks = (*[False] * len(more), *(b for b, k in zip(batched, needed, strict=True) if k))
    marks = (*marks, *[size is not None] * len(stored), *(batched[n] for n in moving))
    along = iter(call_p.bind(*args, jaxpr=short, batched=marks, size=size, how="step"))
    return outs, [next(along) if m else no_tangent(x) for x, m in zip(outs, moved, strict=True)]


system_p = Primitive("system_call")
register(
    system_p,
    _written_out,
    _shapes,
    partial(_vmap, system_p),
    _derivative,
    cpu=partial(_on_cpu, otherwise=_written_out, together=_written_together),
    cuda=partial(_on_cuda, otherwise=_written_out),
)
