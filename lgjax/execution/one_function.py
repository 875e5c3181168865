"""A program of one system or batch as one function of the processor.

XLA for CPUs makes a kernel of each fused operation, and a function of the processor of each kernel: a recursion over a
tree has some hundreds.  Each takes it about 20 ms to compile and 50 ns to call.  A call that is marked is compiled as
one function instead, loops and all: forward dynamics of a quadruped compiles 2.8 times and runs 1.8 times faster (one
system, jax 0.10.2).  It is for one system and for up to eight small ones: of large arrays XLA computes parts side by
side, which one function cannot (`LARGEST`), and the last bits of the numbers would depend on the size of a batch.

`one_call` is for pieces of code that may be anything, such as a step with a user's field: the piece, its derivative
and the way back are functions of their own, also inside a batch whose axis is last, for up to `BEHIND` systems.
`in_one_function` serves the operations of `call.py` that have no native function (`kernels/native.py`).

Read first: `_jax.py`, `compiled_as_one`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.execution._jax import (
    ClosedJaxpr,
    Literal,
    Primitive,
    Zero,
    alone,
    as_function,
    compiled_as_one,
    dce_jaxpr,
    is_exported,
    is_high,
    is_undefined_primal,
    jaxprs_in,
    no_tangent,
    on_one_device,
    register,
    with_constants,
)
from lgjax.execution.batch_last.evaluation import LARGEST, TURNS, Arrays, Behind, Slice, evaluate, traced, transposed
from lgjax.execution.kernels import native
from lgjax.execution.scalars.interpreter import ELEMENTWISE, known

FEW = 8  # systems, for which a whole vector each would take longer
BEHIND = 16  # systems in the last axis, the largest batch in which calls of kernels take longer than their work
# Operations that one function can hold. It calls no library, to which XLA may leave sums and products of matrices, and
# cannot scatter or sort.
_LISTED = """add_any broadcast_in_dim concatenate cond copy custom_jvp_call custom_vjp_call
    custom_vmap_call dynamic_slice dynamic_update_slice expand_dims gather integer_pow iota jit lane_call lane_scan
    layer one_minus_square optimization_barrier pad piece reduce_and reduce_or reshape rev scalar_step scan slice split
    square squeeze stack stop_gradient system_call transpose unstack while"""
_FITTING = frozenset(_LISTED.split()) | ELEMENTWISE
OF_ONE_SYSTEM = ("lane_call", "system_call")  # their jaxprs have no axis for the batch


def is_known(size: int | None) -> bool:
    """Whether a batch has a size, or there is none; that of a program of `jax.export` may stay open."""
    return isinstance(size, int | None)


def few(size: int | None) -> bool:
    """Whether so many systems may be in one function."""
    return size is None or (is_known(size) and size <= FEW)


def in_one_function(function: Callable[..., list]) -> Callable[..., list]:
    """`function` of arrays, compiled as one function if it fits, else as it is."""

    def call(*args: jax.Array) -> list:
        # XLA ends the process where a parameter of such a function has no entries or is read nowhere, also where it
        # finds that out itself: all are read, and it must not see that one is constant.
        passed = [n for n, x in enumerate(args) if x.size]

        @jax.jit
        def inner(*some: jax.Array) -> tuple[list, list]:
            values = dict(zip(passed, some, strict=True))
            outs = function(*(values.get(n, jnp.zeros(x.shape, x.dtype)) for n, x in enumerate(args)))
            return outs, [x[(0,) * x.ndim] for x in some]

        some = jax.lax.optimization_barrier([args[n] for n in passed])
        found = compiled_as_one(inner, some, fits) if passed else None
        return function(*args) if found is None else found[0]

    return call


def fits(jaxpr: Any, systems: int = 1) -> bool:
    """Whether all operations of a jaxpr, and of those within, can be in one function, for so many systems at once."""
    large = lambda variables: any(systems * getattr(x.aval, "size", 0) > LARGEST for x in variables)
    if large(jaxpr.invars):
        return False
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in OF_ONE_SYSTEM and native.usable():
            return False  # a function of its own already, which XLA's cannot call
        within = systems * (eqn.params.get("size") or 1) if eqn.primitive.name in OF_ONE_SYSTEM else systems
        if eqn.primitive.name not in _FITTING or not is_known(within):
            return False
        if not all(fits(inner, within) for inner in jaxprs_in(eqn)):
            return False
        if large(eqn.outvars):
            return False
    return True


def as_operation(function: Callable, bind: Callable[[Any, list, int], list]) -> Callable:
    """`function` of pytrees of arrays as an operation on arrays.

    bind(jaxpr, arrays, how many of them come before those of the arguments) -> the arrays of the result.
    """

    @wraps(function)
    def call(*args):
        trees: list = []

        def flat(*leaves):
            out, tree = jax.tree.flatten(function(*jax.tree.unflatten(jax.tree.structure(args), leaves)))
            trees.append(tree)
            return out

        leaves = jax.tree.leaves(args)
        jaxpr, constants = traced(flat, *leaves)
        values = [*constants, *leaves]
        whole = jaxpr.effects or is_high(jaxpr)
        outs = evaluate(jaxpr, values) if whole else bind(jaxpr, values, len(constants))
        return jax.tree.unflatten(trees[0], outs)

    return call


def one_call(function: Callable) -> Callable:
    """`function` of pytrees of arrays, for a few small systems on a CPU one function; elsewhere what it consists of."""

    return as_operation(function, lambda jaxpr, values, _: piece_p.bind(*values, jaxpr=jaxpr, systems=1))


def _run(*args, jaxpr, systems) -> Arrays:
    return evaluate(jaxpr, args)


def _on_cpu(ctx) -> Callable:
    return _as_one if on_one_device(ctx) and not is_exported(ctx) else _run


def _as_one(*args, jaxpr, systems) -> Arrays:
    """A function of our own, or one of XLA's: sums and scatters are written so that it can hold them."""
    if systems == 1 and native.usable() and all(x.aval.size <= LARGEST for x in (*jaxpr.invars, *jaxpr.outvars)):
        shapes = [x.aval for x in jaxpr.outvars]
        alone = native.as_native(jaxpr, (False,) * len(args), None, shapes, {}, False)
        if alone is not None:
            return alone(*args)
    run = lambda *args: Behind(None).outputs(jaxpr, {x: (y, False) for x, y in zip(jaxpr.invars, args, strict=True)})
    simpler, more = traced(run, *(x.aval for x in jaxpr.invars))
    if more or not fits(simpler):
        return evaluate(jaxpr, args)
    return in_one_function(as_function(simpler))(*args)


def _vmap(args, axes, *, jaxpr, systems):
    """Of many systems the operations themselves; results that are the same for all of them are computed once."""
    more = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    places = [0 if d else None for d in _depend(jaxpr, [axis is not None for axis in axes])]
    run = jax.vmap(as_function(jaxpr), axes, places, axis_size=more)
    if not few(systems * more):
        return run(*args), places
    batched, none = traced(run, *args)
    assert not none
    return piece_p.bind(*args, jaxpr=batched, systems=systems * more), places


def _behind(eqn, inputs: Sequence[tuple[Any, bool]], run: Callable, wide: Callable) -> list[tuple[Any, bool]]:
    """A piece inside a batch whose axis is last: a piece for up to `BEHIND` systems, else operation by operation."""
    inner, marks = ClosedJaxpr(eqn.params["jaxpr"], ()), [batched for _, batched in inputs]
    arrays = [jnp.asarray(x.value() if isinstance(x, Slice) else x) for x, _ in inputs]
    size = next(x.shape[-1] for x, batched in zip(arrays, marks, strict=True) if batched)
    if not is_known(size) or size > BEHIND:
        return run(inner, inputs)
    together = lambda *arrays: [wide(*found) for found in run(inner, list(zip(arrays, marks, strict=True)))]
    jaxpr, more = traced(together, *(jax.typeof(x) for x in arrays))
    return [(x, True) for x in piece_p.bind(*more, *arrays, jaxpr=jaxpr, systems=size)]


def _depend(jaxpr, marks: Sequence[bool]) -> list[bool]:
    """Which results depend on the arguments that are marked."""
    moving = {x for x, m in zip(jaxpr.invars, marks, strict=True) if m}
    within = lambda atom: not isinstance(atom, Literal) and atom in moving
    for eqn in jaxpr.eqns:
        if any(map(within, eqn.invars)):
            moving.update(eqn.outvars)
    return [within(x) for x in jaxpr.outvars]


def _derivative(primals, directions, *, jaxpr, systems) -> tuple[Arrays, list]:
    """The results, and their tangents by a piece that needs what the first has kept for it."""
    moving = [n for n, t in enumerate(directions) if not isinstance(t, Zero)]
    parts, count = linearized(jaxpr, moving), len(jaxpr.outvars)
    args = [*parts.more, *primals]
    found = piece_p.bind(*args, jaxpr=parts.first, systems=systems)
    values = [*(args[n] for n in parts.again), *found[count:], *(directions[n] for n in moving)]
    along = iter(piece_p.bind(*values, jaxpr=parts.along, systems=systems))
    outs = found[:count]
    floating = [jnp.issubdtype(x.dtype, jnp.floating) for x in outs]
    return outs, [next(along) if f else no_tangent(x) for x, f in zip(outs, floating, strict=True)]


def _transpose(given, *args, jaxpr, systems) -> list:
    linear = [n for n, x in enumerate(args) if is_undefined_primal(x)]
    backwards, more = transposed(jaxpr, linear, [not isinstance(ct, Zero) for ct in given])
    values = [x for x in (*args, *given) if not is_undefined_primal(x) and not isinstance(x, Zero)]
    found = piece_p.bind(*more, *values, jaxpr=backwards, systems=systems)
    cotangents = dict(zip(linear, found, strict=True))
    return [cotangents.get(n) for n in range(len(args))]


piece_p = Primitive("piece")
register(
    piece_p,
    _run,
    lambda *_, jaxpr, systems: [x.aval for x in jaxpr.outvars],
    _vmap,
    _derivative,
    _transpose,
    cpu=_on_cpu,
)


# ---- derivatives
@dataclass(frozen=True)
class Linearized:
    """A jaxpr in two parts, for tangents of its floating results along some of its arguments.

    first   jaxpr of the arrays `more`, which it closes over, and the arguments: the results and what `along` needs.
    along   jaxpr of the arguments of `first` at the places `again`, of what was kept, and of the tangents.
    """

    first: Any
    along: Any
    more: list
    again: list[int]


def linearized(jaxpr, moving: Sequence[int]) -> Linearized:
    """The two parts of a jaxpr for the arguments `moving`."""
    avals, count = [x.aval for x in jaxpr.invars], len(jaxpr.outvars)
    lines: list = []

    def first(*args):
        def of(*values):
            merged = dict(enumerate(args)) | dict(zip(moving, values, strict=True))
            outs = evaluate(jaxpr, merged.values())
            return [y for y in outs if jnp.issubdtype(y.dtype, jnp.floating)], outs

        _, line, outs = jax.linearize(of, *(args[n] for n in moving), has_aux=True)
        lines.append(jax.make_jaxpr(line)(*(avals[n] for n in moving)))
        return [*outs, *lines[-1].consts]

    head, more = traced(first, *avals)
    head, _ = traced(lambda *args: with_known_integers(head, args), *(x.aval for x in head.invars))
    leaves = head.outvars[count:]
    places = {x: n for n, x in reversed([*enumerate(leaves)]) if not isinstance(x, Literal)}
    again = [n for n, x in enumerate(head.invars) if places.pop(x, None) is not None]
    names = [*(head.invars[n] for n in again), *sorted(places, key=lambda x: places[x])]
    head, _ = dce_jaxpr(head, [*[True] * count, *(n in places.values() for n in range(len(leaves)))], True)

    def along(values, directions):
        env = dict(zip(names, values, strict=True))
        return as_function(lines[-1].jaxpr, [x.val if isinstance(x, Literal) else env[x] for x in leaves])(*directions)

    tail, _ = traced(along, [x.aval for x in names], [avals[n] for n in moving])
    return Linearized(head, tail, more, again)


def with_known_integers(jaxpr, args: Sequence) -> Arrays:
    """The results of a jaxpr; integers that are known, such as places in an array, are worked out."""
    env = dict(zip(jaxpr.invars, args, strict=True))
    read = lambda atom: atom.val if isinstance(atom, Literal) else env[atom]
    for eqn in jaxpr.eqns:
        values = [read(atom) for atom in eqn.invars]
        if eqn.primitive.name == "jit":
            inner = eqn.params["jaxpr"]
            constants = dict(zip(inner.jaxpr.constvars, inner.consts, strict=True))
            outs = with_known_integers(with_constants(inner.jaxpr, constants), values)
        elif (numbers := known(eqn, values)) is not None:
            outs = [numbers]
        else:
            outs = alone(jaxpr, eqn)(*values)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


TURNS[piece_p.name] = _behind
