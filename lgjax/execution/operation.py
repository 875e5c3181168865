"""Functions of one system as operations, which run for a batch as one kernel on each platform.

`batched(function)` traces the function for one system and binds its jaxpr as one operation. Under `jax.vmap` it stays
one, with a batch axis. On a CPU it is lowered to a native function (`kernels/native.py`), on a GPU to a kernel with a
thread for each system (`kernels/cuda.py`); both are written from the same scalar program of the jaxpr. Each device runs
one for its part of a batch (`devices.py`). Where there is no kernel, as in `jax.export` for a CPU, XLA runs the jaxpr
under `jax.vmap`. Under `plain` there is no operation.

Tangents and cotangents are operations of the same kind. They are computed from the arguments alone, so that a reverse
pass stores nothing else. A function that is too large for a kernel is what it consists of: its jaxpr, in which smaller
functions are kernels.

Read first: `jaxprs.py`. Next: `kernels/programs.py`, which says what a kernel can be.
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

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
    is_divided,
    is_exported,
    is_high,
    is_undefined_primal,
    no_tangent,
    on_one_device,
    register,
    reshaped,
    scan_arguments,
)
from lgjax.execution.devices import divided, divided_as, explicit_mesh, is_divided_along, off_mesh
from lgjax.execution.forms import with_numbers
from lgjax.execution.jaxprs import Arrays, evaluate, merged, tangents, traced, transposed
from lgjax.execution.kept import keeps, keeps_itself, linearized
from lgjax.execution.kernels import native
from lgjax.execution.kernels.cuda import as_kernel
from lgjax.execution.kernels.programs import CPU, GPU, Limits, is_program
from lgjax.execution.reference import is_plain
from lgjax.execution.scalars.program import size_of

P = ParamSpec("P")
R = TypeVar("R")
# Largest `size_of` x 32-bit words of a number, for derivatives in one kernel; a specialized quadruped has 17,000.
TOGETHER = 20000


def batched(function: Callable[P, R], in_place: bool = False) -> Callable[P, R]:
    """`function` of pytrees of arrays of one system, as one kernel for a batch; each derivative is one, too.

    Outside of `jax.jit` XLA runs it, an operation at a time.

    in_place: for function(state, ...) -> the next state. In a loop the kernel writes it over the previous state.
    """

    def bind(jaxpr, values, constants: int):
        state = range(constants, constants + len(jaxpr.outvars)) if in_place else ()
        jaxpr, values, constants = _without_unread(jaxpr, values, constants, state)
        layout = {"state": range(constants, constants + len(jaxpr.outvars))} if in_place else {"layout": "batch_last"}
        return _bound(jaxpr, values, **layout)

    return _as_operation(function, bind)


def batched_or_parts(function: Callable) -> Callable:
    """`batched(function)` if it can be a kernel on a CPU, else what it consists of, in the layout of its caller.

    For functions with long loops, whose arrays can be too many for a kernel: `batched` then runs with the batch last.
    """

    def bind(jaxpr, values, constants: int):
        jaxpr, values, _ = _without_unread(jaxpr, values, constants)
        return _bound(jaxpr, values, layout="batch_last") if _stays_one(jaxpr, values, CPU) else evaluate(jaxpr, values)

    return _as_operation(function, bind)


def _without_unread(jaxpr, values: Sequence, constants: int, always: Sequence[int] = ()) -> tuple[Any, Sequence, int]:
    """A jaxpr and its arguments without those that it does not read, but for `always`, and how many are constants.

    They, such as the time in many steps, would have to be kept for a reverse pass.
    """
    if keeps_itself(jaxpr):  # no result needs what is marked for derivatives
        return jaxpr, values, constants
    jaxpr, read = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), [n in always for n in range(len(values))])
    return jaxpr, [x for x, r in zip(values, read, strict=True) if r], sum(read[:constants])


def fused_derivatives(function: Callable) -> Callable:
    """`function` of pytrees of arrays that has derivative rules of its own; a derivative is one kernel on a GPU.

    It reads the arguments alone and computes the results again, sharing most of the work. Derivatives of large
    functions stay several kernels, because one would need more registers than a thread has. On a CPU they always stay
    several native functions: what one hands to the next stays in the cache.
    """

    def bind(jaxpr, values, _):
        words = max((x.aval.dtype.itemsize for x in jaxpr.invars), default=4) / 4
        small = words * size_of(jaxpr) <= TOGETHER or explicit_mesh(values)
        return _bound(jaxpr, values, layout="batch_last", parts=True) if small else evaluate(jaxpr, values)

    return wraps(function)(jax.jit(_as_operation(function, bind)))  # one trace, however often a program evaluates it


def _as_operation(function: Callable, bind: Callable[[Any, list, int], list]) -> Callable:
    """`function` of pytrees of arrays as an operation on arrays.

    bind(jaxpr, arrays, how many of them come before those of the arguments) -> the arrays of the result.
    """

    @wraps(function)
    def call(*args, **kwargs):
        if is_plain():
            return function(*args, **kwargs)
        trees: list = []

        def flat(function, *leaves):
            args, kwargs = jax.tree.unflatten(form, leaves)
            out, tree = jax.tree.flatten(function(*args, **kwargs))
            trees.append(tree)
            return out

        leaves, form = jax.tree.flatten((args, kwargs))
        jaxpr, constants = _of_one_system(function, flat, leaves)
        values = [*constants, *leaves]
        as_it_is = jaxpr.effects or is_high(jaxpr)  # which an operation of our own cannot hold
        outs = evaluate(jaxpr, values) if as_it_is else bind(jaxpr, values, len(constants))
        return jax.tree.unflatten(trees[0], outs)

    return call


def _of_one_system(function: Callable, flat: Callable, leaves: list) -> tuple[Any, list]:
    """The jaxpr of `flat(function, *leaves)`, and the traced arrays that `function` closes over, which come first.

    On a mesh with explicit axes it is traced for arrays that lie nowhere.
    """
    if explicit_mesh(leaves) is None:
        return traced(partial(flat, function), *leaves)
    fill, numbers = with_numbers(function)
    run = lambda *values: flat(fill(values[: len(numbers)]), *values[len(numbers) :])
    jaxpr, constants = traced(run, *map(off_mesh, (*numbers, *leaves)))
    return jaxpr, [*constants, *numbers]


# ---- the operation
def _bound(jaxpr, values: Sequence, **parameters) -> Arrays:
    """The results for one system, for which no argument is batched.

    Its parameter `layout` says how arrays lie in memory. "batch_first": its caller has the batch first in all of them,
    "batch_last": last, or mixed. "step": a derivative of a step in a loop, a kernel that writes its results over its
    directions. state: the arguments of an `in_place` function that its results are written over. parts: it is what it
    consists of on a CPU.
    """
    return batched_p.bind(*values, jaxpr=jaxpr, mapped=(False,) * len(values), size=None, **parameters)


def _stays_one(jaxpr, args: Sequence, limits: Limits = GPU) -> bool:
    """Whether a jaxpr is an operation: it can be a kernel, or was traced for arrays that lie on no mesh."""
    return is_program(jaxpr, limits) or explicit_mesh(args) is not None


def _by_vmap(*args, jaxpr, mapped, size, layout: str = "batch_last", **_) -> Arrays:
    """The jaxpr under `jax.vmap`."""
    run = lambda *args: evaluate(jaxpr, args)
    if size is None:
        return run(*args)
    if layout != "batch_first":
        return jax.vmap(run, [-1 if b else None for b in mapped], -1, axis_size=size)(*args)
    args = [jnp.moveaxis(x, -1, 0) if b else x for x, b in zip(args, mapped, strict=True)]
    outs = jax.vmap(run, [0 if b else None for b in mapped], axis_size=size)(*args)
    return [jnp.moveaxis(x, 0, -1) for x in outs]


def _lowering(kernel: Callable, ctx) -> Callable:
    """One kernel, or one on each device of a program that runs in this process on several."""
    if on_one_device(ctx):
        return partial(_by_kernel, kernel)
    return _by_part if is_divided(ctx) and not is_exported(ctx) else _by_vmap


def _by_part(*args, mapped, size, **parameters) -> Arrays:
    """A kernel on each device."""

    def own(*args):
        systems = next((x.shape[-1] for x, b in zip(args, mapped, strict=True) if b), size)
        return batched_p.bind(*args, mapped=mapped, size=systems, **parameters)

    return divided(own, args, mapped, _shapes(mapped=mapped, size=size, **parameters))


def _by_kernel(
    kernel: Callable, *args, jaxpr, mapped, size, layout: str = "batch_last", state: range | None = None, parts=False
) -> Arrays:
    if parts and kernel is native.as_native:
        return _by_vmap(*args, jaxpr=jaxpr, mapped=mapped, size=size, layout=layout)
    shapes, over = _shapes(jaxpr=jaxpr, mapped=mapped, size=size), {}
    if state is not None:
        over = {k: n for k, n in enumerate(state) if size is None or mapped[n]}
    if layout == "step":
        over = _directions(jaxpr, mapped, size)
    known = isinstance(size, int | None)  # that of a program of `jax.export` may stay open
    run = kernel(jaxpr, mapped, size, shapes, over, layout == "batch_first") if known else None
    return _by_vmap(*args, jaxpr=jaxpr, mapped=mapped, size=size) if run is None else run(*args)


def _directions(jaxpr, mapped, size: int | None) -> dict[int, int]:
    """The argument over which each result of a derivative is written: of the same kind, not yet taken.

    Among the last arguments, which are the directions, or cotangents.
    """
    kinds = lambda variables: [(x.aval.shape, x.aval.dtype) for x in variables]
    first = len(jaxpr.invars) - min(len(jaxpr.outvars), len(jaxpr.invars))
    free = [n for n in range(first, len(jaxpr.invars)) if mapped[n] or size is None]
    given, found = kinds(jaxpr.invars), {}
    for k, kind in enumerate(kinds(jaxpr.outvars)):
        n = next((n for n in free if given[n] == kind), None)
        if n is not None:
            found[k] = n
            free.remove(n)
    return found


def _shapes(*args, jaxpr, mapped, size, **others) -> list:
    """Types of the results, on a mesh with explicit axes where the arguments, if given, lie."""
    behind = () if size is None else (size,)
    outs = [reshaped(x.aval, (*x.aval.shape, *behind)) for x in jaxpr.outvars]
    return divided_as(outs, args, mapped, size is not None) if args else outs


def _vmap(args, axes, *, jaxpr, mapped, size, **others):
    if others.get("layout") in ("batch_last", "batch_first"):
        others["layout"] = "batch_first" if size is None and all(axis in (0, None) for axis in axes) else "batch_last"
    more = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    first = size is not None and any(is_divided_along(x, axis) for x, axis in zip(args, axes, strict=True))
    together = tuple(b or axis is not None for b, axis in zip(mapped, axes, strict=True))
    args = [
        merged(x, size if b else None, size, axis, more, first) if t else x
        for x, b, axis, t in zip(args, mapped, axes, together, strict=True)
    ]
    outs = batched_p.bind(*args, jaxpr=jaxpr, mapped=together, size=more * (1 if size is None else size), **others)
    if size is not None:
        outs = [x.reshape(*x.shape[:-1], *((more, size) if first else (size, more))) for x in outs]
    if others.get("layout") == "batch_first":  # XLA cancels the moves, and what comes next sees the batch in front
        return [jnp.moveaxis(x, -1, 0) for x in outs], [0] * len(outs)
    return outs, [x.ndim - 1 - first for x in outs]


# ---- derivatives
def _jvp(primals, directions, *, jaxpr, mapped, size, **others):
    """The operation, and one for its tangents, which reads the arguments alone.

    The bodies of its loops are operations, too, whose derivatives read their arguments alone. So the way back through a
    loop stores what each turn begins with, and computes the turn again.
    """
    moving = [n for n, t in enumerate(directions) if not isinstance(t, Zero)]
    moved = [jnp.issubdtype(x.aval.dtype, jnp.floating) for x in jaxpr.outvars]
    op = Differentiated(jaxpr, primals, directions, mapped, size, moving, moved)
    if not _stays_one(jaxpr, primals):
        return _by_parts(op)
    if not is_program(jaxpr, CPU):
        others["parts"] = True
    if keeps(jaxpr):
        return _with_kept(op, **others)
    short, more, needed = tangents(_with_turns(jaxpr), moving, moved)
    outs = batched_p.bind(*primals, jaxpr=jaxpr, mapped=mapped, size=size, **others)
    return outs, _along(op, short, more, needed, outs, [], **others)


class Differentiated(NamedTuple):
    """An operation to be differentiated. moving: arguments that have directions. moved: results that are floating."""

    jaxpr: Any
    primals: Sequence
    directions: Sequence
    mapped: Sequence[bool]
    size: int | None
    moving: list[int]
    moved: list[bool]


def _with_kept(op: Differentiated, state: range | None = None, **others):
    """The kernel hands what is marked in it to that of its derivative."""
    values, short, more, needed = linearized(op.jaxpr, op.moving, op.moved)
    marks = (*[False] * len(more), *op.mapped)
    own = {} if state is None else {"state": range(state.start + len(more), state.stop + len(more))}
    found = batched_p.bind(*more, *op.primals, jaxpr=values, mapped=marks, size=op.size, **own, **others)
    outs, stored = found[: len(op.moved)], found[len(op.moved) :]
    return outs, _along(op, short, more, needed, outs, stored, state=state, **others)


def _along(
    op: Differentiated, jaxpr, more, needed, outs, stored, state: range | None = None, layout: str = "step", **others
) -> list:
    """Tangents of the results `outs`, of a jaxpr of arrays, of the arguments it needs, of stored values, of directions.

    That of a step in place is written over the directions.
    """
    chosen = lambda values: [x for x, n in zip(values, needed, strict=True) if n]
    args = [*more, *chosen(op.primals), *stored, *(op.directions[n] for n in op.moving)]
    wide = op.size is not None
    marks = (*[False] * len(more), *chosen(op.mapped), *[wide] * len(stored), *(op.mapped[n] for n in op.moving))
    found = iter(batched_p.bind(*args, jaxpr=jaxpr, mapped=marks, size=op.size, layout=layout, **others))
    return [next(found) if m else no_tangent(x) for x, m in zip(outs, op.moved, strict=True)]


def _by_parts(op: Differentiated) -> tuple[Arrays, list]:
    """Results and tangents of what an operation consists of, where it is too large for a kernel."""

    def of(*values):
        args = dict(enumerate(op.primals)) | dict(zip(op.moving, values, strict=True))
        return _by_vmap(*args.values(), jaxpr=op.jaxpr, mapped=op.mapped, size=op.size)

    outs, found = jax.jvp(of, [op.primals[n] for n in op.moving], [op.directions[n] for n in op.moving])
    return outs, [t if m else no_tangent(x) for x, t, m in zip(outs, found, op.moved, strict=True)]


def _with_turns(jaxpr) -> Any:
    """A jaxpr in which the bodies of loops are operations of their own."""
    if not any(_is_loop(eqn) for eqn in jaxpr.eqns):
        return jaxpr
    found, closed = traced(lambda args: _turn_by_turn(jaxpr, args), [x.aval for x in jaxpr.invars])
    assert not closed
    return found


def _is_loop(eqn) -> bool:
    """Whether an equation is a scan that is not written out."""
    return eqn.primitive.name == "scan" and eqn.params["unroll"] == 1


def _turn_by_turn(jaxpr, args: Sequence) -> list:
    env = dict(zip(jaxpr.invars, args, strict=True))
    read = lambda atom: atom.val if isinstance(atom, Literal) else env[atom]
    for eqn in jaxpr.eqns:
        values = [read(atom) for atom in eqn.invars]
        outs = _loop(eqn, values) if _is_loop(eqn) else alone(jaxpr, eqn)(*values)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _loop(eqn, values: list) -> list:
    first, carried = scan_arguments(eqn)
    constants, start, xs = values[:first], values[first : first + carried], values[first + carried :]
    body = as_function(eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts)
    turn = batched(lambda carry, x: body(*constants, *carry, *x))

    def step(carry, x):
        outs = turn(carry, x)
        return outs[: len(start)], outs[len(start) :]

    final, ys = lax.scan(step, start, xs, eqn.params["length"], eqn.params["reverse"])
    return [*final, *ys]


def _transpose(given, *args, jaxpr, mapped, size, state: range | None = None, layout: str = "step", **others):
    linear = [n for n, x in enumerate(args) if is_undefined_primal(x)]
    known = [n for n in range(len(args)) if n not in linear]
    wanted = [not isinstance(ct, Zero) for ct in given]
    backwards, more = transposed(jaxpr, linear, wanted)
    cts = [ct for ct, w in zip(given, wanted, strict=True) if w]
    marks = (*[False] * len(more), *(mapped[n] for n in known), *[size is not None] * len(cts))
    values = [*more, *(args[n] for n in known), *cts]
    found = batched_p.bind(*values, jaxpr=backwards, mapped=marks, size=size, layout=layout, **others)
    sums = {n: x if size is None or mapped[n] else x.sum(-1) for n, x in zip(linear, found, strict=True)}
    return [sums.get(n) for n in range(len(args))]


batched_p = Primitive("batched")
register(
    batched_p,
    _by_vmap,
    _shapes,
    _vmap,
    _jvp,
    _transpose,
    cpu=lambda ctx: _lowering(native.as_native, ctx) if native.usable() and not is_exported(ctx) else _by_vmap,
    cuda=partial(_lowering, as_kernel),
    devices=True,
)
