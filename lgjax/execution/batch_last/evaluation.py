"""Evaluation of a jaxpr with the axis of a batch behind all others.

Recursions do arithmetic on arrays of lanes, and parameters have no batch axis. Where the batch is the last axis, they
are constant along contiguous memory; where `jax.vmap` puts it, in front of the lanes, they are not and little
vectorizes.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.execution._jax import (
    ClosedJaxpr,
    Literal,
    alone,
    as_function,
    call_apart,
    context,
    dce_jaxpr,
    dynamic_slice,
    is_apart,
    is_traced,
    with_constants,
)
from lgjax.execution.batch_last.loops import repeated, scanned
from lgjax.execution.batch_last.trailing import ALL, TRAILING
from lgjax.execution.scalars.graph import layer_p
from lgjax.execution.scalars.interpreter import ELEMENTWISE, is_constant, known
from lgjax.execution.step import emission, step_p

Arrays = list[jax.Array]
FEW_ROWS = 65  # sums of fewer are written out
# Numbers in an array of a program that is compiled as one function. Of larger ones XLA computes parts side by side, and
# within one function it does not find what it needs for that: the program does not compile. It decides by work and
# bytes; this is an eighth of the least seen.
LARGEST = 2048
FOLDS = {"reduce_sum": lax.add, "reduce_max": lax.max, "reduce_min": lax.min}
LOOPS = ("scan", "while", "cond")
# A CPU computes these for one number at a time: nothing in the same loop is vectorized, so each has a loop of its own.
CALLED = ("acos", "asin", "atan", "atan2", "cos", "sin", "tan")
TURNS = {"scan": scanned, "while": repeated}


def traced(function: Callable, *args) -> tuple[Any, list]:
    """The jaxpr of traced arrays that the function closes over and of its arguments, and those arrays.

    Known arrays that it closes over are literals of the jaxpr: a kernel folds them.
    """
    closed = jax.make_jaxpr(function)(*args)
    constants = [value for value in closed.consts if is_traced(value)]
    if constants:

        def run(constants, args):
            given = iter(constants)
            return as_function(closed.jaxpr, [next(given) if is_traced(x) else x for x in closed.consts])(*args)

        closed = jax.make_jaxpr(run)(constants, closed.in_avals)
    known = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    return with_constants(closed.jaxpr, known), constants


def evaluate(jaxpr, args: Iterable) -> Arrays:
    return as_function(jaxpr)(*args)


def tangents(jaxpr, moving: Sequence[int], moved: Sequence[bool]) -> tuple[Any, list, list[bool]]:
    """The jaxpr of the tangents of the results `moved`, the arrays it closes over, and which arguments it needs.

    Its own arguments are those arrays, the arguments it needs, and the tangents of the arguments `moving`.
    """
    avals = [x.aval for x in jaxpr.invars]

    def along(args, directions):
        def of(*values):
            merged = dict(enumerate(args)) | dict(zip(moving, values, strict=True))
            return [y for y, m in zip(evaluate(jaxpr, merged.values()), moved, strict=True) if m]

        return jax.jvp(of, [args[n] for n in moving], directions)[1]

    full, more = traced(along, avals, [avals[n] for n in moving])
    always = [*[True] * len(more), *[False] * len(avals), *[True] * len(moving)]
    short, used = dce_jaxpr(full, [True] * len(full.outvars), always)
    return short, more, used[len(more) : len(more) + len(avals)]


def cotangents(jaxpr, known: dict[int, Any], asked: Sequence[bool], given: Sequence) -> Arrays:
    """Those of the arguments that are not known, in order, from those of the results `asked`."""
    linear = [n for n in range(len(jaxpr.invars)) if n not in known]

    def of(*values):
        merged = known | dict(zip(linear, values, strict=True))
        out = evaluate(jaxpr, (merged[n] for n in range(len(merged))))
        return [y for y, a in zip(out, asked, strict=True) if a]

    return list(jax.linear_transpose(of, *(jaxpr.invars[n].aval for n in linear))(list(given)))


def transposed(jaxpr, linear: Sequence[int], asked: Sequence[bool]) -> tuple[Any, list]:
    """The jaxpr of the cotangents of the arguments `linear`, and the arrays it closes over.

    Its own arguments are those arrays, the other arguments, and the cotangents of the results `asked`.
    """
    fixed = [n for n in range(len(jaxpr.invars)) if n not in linear]
    back = lambda values, given: cotangents(jaxpr, dict(zip(fixed, values, strict=True)), asked, given)
    outs = [x.aval for x, a in zip(jaxpr.outvars, asked, strict=True) if a]
    return traced(back, [jaxpr.invars[n].aval for n in fixed], outs)


def merged(x, own: int | None, size: int | None, axis: int | None, more: int) -> jax.Array:
    """An argument with the axes of both batches as its last one, whether or not it has them."""
    x = _repeated(x, more) if axis is None else jnp.moveaxis(x, axis, -1)
    if size is None:
        return x
    if own is None:
        x = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], size, more))
    return x.reshape(*x.shape[:-2], size * more)


def _repeated(x, size: int) -> jax.Array:
    return lax.broadcast_in_dim(x, (*jnp.shape(x), size), range(jnp.ndim(x)))


@dataclass(frozen=True)
class Slice:
    """Entry `index` of a stack, or a box in it, cut out where it is used.

    Each box is cut on its own: XLA on a CPU does not vectorize a loop that takes several from one cut.
    """

    stack: jax.Array
    index: jax.Array
    start: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()

    def box(self, start: Sequence[int], stop: Sequence[int]) -> "Slice":
        """Axes that are not named, those of a batch, stay whole."""
        begin = self.start or (0,) * (self.stack.ndim - 1)
        shape = self.shape or self.stack.shape[1:]
        begin = tuple(a + b for a, b in zip_longest(begin, start, fillvalue=0))
        named = tuple(b - a for a, b in zip(start, stop, strict=True))
        return replace(self, start=begin, shape=(*named, *shape[len(named) :]))

    def value(self) -> jax.Array:
        whole = self.stack.shape[1:]
        start = [jnp.asarray(n, self.index.dtype) for n in self.start or (0,) * len(whole)]
        cut = dynamic_slice(self.stack, (self.index, *start), (1, *(self.shape or whole)))
        return lax.squeeze(cut, (0,))


@dataclass(frozen=True)
class Behind:
    """Evaluates a jaxpr with a batch axis of `size` behind all others; a value is (array or slice, whether batched).

    For a size of None, one system, small reductions and products are written out, within loops too, so that one
    function can hold them (`one_function.py`).
    """

    size: int | None

    def outputs(self, jaxpr, env: dict) -> Arrays:
        """All of them with the batch axis."""
        return [self._wide(*value) for value in self._evaluate(jaxpr, env)]

    def _wide(self, x, batched: bool) -> jax.Array:
        x = x.value() if isinstance(x, Slice) else x
        return x if batched or self.size is None else _repeated(x, self.size)

    def _evaluate(self, jaxpr, env: dict) -> list[tuple[Any, bool]]:
        read = lambda atom: (atom.val, False) if isinstance(atom, Literal) else env[atom]
        for eqn in jaxpr.eqns:
            with context(eqn):
                outs = self._apply(jaxpr, eqn, [read(atom) for atom in eqn.invars])
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, jaxpr, eqn, inputs: list[tuple[Any, bool]]) -> list[tuple[Any, bool]]:
        fixed = not any(batched for _, batched in inputs)  # outside jit the numbers of a batch are known as well
        if fixed and (numbers := known(eqn, [x for x, _ in inputs])) is not None:
            return [(numbers, False)]
        if eqn.primitive.name == "scatter-add" and (places := _places(eqn, inputs[1][0])) is not None:
            return [self._with_rows_added(places, inputs[0], inputs[2])]
        if eqn.primitive.name in FOLDS and (x := self._folded(eqn, *inputs[0])) is not None:
            return [x]
        if eqn.primitive.name == "dot_general" and self.size is None and (y := _dot(eqn, inputs)) is not None:
            return [(y, False)]
        if eqn.primitive is layer_p:
            return self._layer(eqn.params["jaxpr"], inputs)
        if is_apart(eqn) and self.size is not None and not fixed:
            return self._layer(eqn.params["jaxpr"], inputs)
        if eqn.primitive.name == "jit":
            return self._evaluate(eqn.params["jaxpr"].jaxpr, _environment(eqn.params["jaxpr"], inputs))
        if eqn.primitive.name == "lane_call" and eqn.params["size"] is None:
            return self._evaluate(eqn.params["jaxpr"], dict(zip(eqn.params["jaxpr"].invars, inputs, strict=True)))
        # The rule of the first has been asked before; JAX wraps loops in the second, in derivatives of checkpoints.
        if eqn.primitive.name in ("custom_jvp_call", "closed_call"):
            inner = eqn.params["call_jaxpr"]
            return self._evaluate(inner.jaxpr, _environment(inner, inputs))
        if eqn.primitive is step_p:
            inner = jax.make_jaxpr(emission(**eqn.params))(*(x.aval for x in eqn.invars))
            return self._evaluate(inner.jaxpr, _environment(inner, inputs))
        if eqn.primitive.name == "custom_linear_solve":  # what it inverts is for derivatives
            inner, lengths = eqn.params["jaxprs"].solve, eqn.params["const_lengths"]
            first = lengths.matvec + lengths.vecmat
            given = [*inputs[first : first + lengths.solve], *inputs[sum(lengths) :]]
            return self._evaluate(inner.jaxpr, _environment(inner, given))
        if self.size is None and eqn.primitive.name in LOOPS:
            outs = eqn.primitive.bind(*(self._wide(*x) for x in inputs), **_within(eqn.params))
            return [(y, False) for y in outs]
        some = self.size is not None and any(batched for _, batched in inputs)
        name = eqn.primitive.name
        if some and name in TURNS:
            run = lambda inner, values: self._evaluate(inner.jaxpr, _environment(inner, values))
            return list(TURNS[name](eqn, inputs, run, self._wide))
        if name == "slice" and some and isinstance(inputs[0][0], Slice) and eqn.params["strides"] is None:
            return [(inputs[0][0].box(eqn.params["start_indices"], eqn.params["limit_indices"]), some)]
        trailing = TRAILING.get(name, ALL if name in ELEMENTWISE else None) if some else None
        if trailing and not any(batched for k, (_, batched) in enumerate(inputs) if not trailing.widens(k)):
            # Operations take single numbers beside arrays, but what is chosen from or stacked has one shape.
            whole = lambda k, atom: jnp.ndim(atom.aval) > 0 or name == "stack" or (name == "select_n" and k > 0)
            widen = [trailing.widens(k) and whole(k, atom) for k, atom in enumerate(eqn.invars)]
            arrays = [self._wide(x, batched or not w) for (x, batched), w in zip(inputs, widen, strict=True)]
            if name in ELEMENTWISE:
                arrays = [self._spread(x, eqn.outvars[0].aval.shape) for x in arrays]
            bind = lambda *xs: eqn.primitive.bind(*xs, **eqn.params | trailing.change(eqn, self.size))
            apart = name in CALLED and jax.default_backend() != "gpu"
            outs = (call_apart(bind) if apart else bind)(*arrays)
        else:
            arrays = [self._wide(x, True) for x, _ in inputs]
            apply = _alone(jaxpr, eqn)
            if some:
                apply = jax.vmap(apply, [-1 if batched else None for _, batched in inputs], -1, axis_size=self.size)
            outs = apply(*arrays)
        return [(y, some) for y in (outs if eqn.primitive.multiple_results else [outs])]

    def _folded(self, eqn, x, batched: bool) -> tuple[jax.Array, bool] | None:
        """A sum or the like over few rows, as the operations that it is: XLA may leave a reduction to a library."""
        shape, axes = eqn.invars[0].aval.shape, eqn.params["axes"]
        count = math.prod(shape[axis] for axis in axes)
        if count >= FEW_ROWS:
            return None
        if not count:
            nothing = jnp.zeros(eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype)
            return (nothing, False) if eqn.primitive.name == "reduce_sum" else None
        x = x.value() if isinstance(x, Slice) else x
        for axis in sorted(axes, reverse=True):
            rows = [lax.index_in_dim(x, n, axis, keepdims=False) for n in range(x.shape[axis])]
            x = reduce(FOLDS[eqn.primitive.name], rows)
        return x, batched

    def _with_rows_added(self, places: np.ndarray, base: tuple, added: tuple) -> tuple[jax.Array, bool]:
        """A scatter to known places as gathers, one for each time that a place occurs: XLA for CPUs is slow at it."""
        batched = self.size is not None and (base[1] or added[1])
        x, rows = self._wide(base[0], base[1] or not batched), self._wide(added[0], added[1] or not batched)
        rows = rows.reshape(places.size, *x.shape[1:])
        padded = jnp.concatenate([rows, jnp.zeros_like(x[:1])])
        found = [np.flatnonzero(places == n) for n in range(len(x))]
        for turn in range(max(map(len, found), default=0)):
            x = x + _rows(padded, np.array([n[turn] if turn < len(n) else places.size for n in found], np.int32))
        return x, batched

    def _spread(self, x, shape) -> jax.Array:
        """A number for each system, beside arrays."""
        return x if jnp.ndim(x) != 1 or not shape else jnp.broadcast_to(x, (*shape, self.size))

    def _layer(self, inner, inputs: list[tuple[Any, bool]]) -> list[tuple[Any, bool]]:
        """A layer stays a call, which cuts its slices itself, as does a call apart; other functions are inlined."""
        index = next((x.index for x, _ in inputs if isinstance(x, Slice)), None)

        def layer(index, *arrays):
            values = [
                (replace(x, stack=array, index=index) if isinstance(x, Slice) else array, batched)
                for array, (x, batched) in zip(arrays, inputs, strict=True)
            ]
            return self.outputs(inner.jaxpr, _environment(inner, values))

        outs = call_apart(layer)(index, *(x.stack if isinstance(x, Slice) else x for x, _ in inputs))
        return [(y, self.size is not None) for y in outs]


def _within(parameters: dict) -> dict:
    """Parameters of a loop, with the jaxprs within written as they are outside of it."""

    def written(closed):
        if not isinstance(closed, ClosedJaxpr):
            return closed
        run = lambda *args: Behind(None).outputs(closed.jaxpr, _environment(closed, [(x, False) for x in args]))
        new = jax.make_jaxpr(run)(*closed.in_avals)
        return ClosedJaxpr(with_constants(new.jaxpr, dict(zip(new.jaxpr.constvars, new.consts, strict=True))), ())

    return jax.tree.map(written, parameters, is_leaf=lambda x: x is None or isinstance(x, ClosedJaxpr))


def _dot(eqn, inputs: list) -> jax.Array | None:
    """A product of small arrays as a sum of products of their entries, which needs no library."""
    (a, b), ((ca, cb), (ba, bb)) = (x for x, _ in inputs), eqn.params["dimension_numbers"]
    size, out = math.prod(a.shape[n] for n in ca), eqn.outvars[0].aval
    if size >= FEW_ROWS or size * out.size > LARGEST:
        return None
    free = [[n for n in range(x.ndim) if n not in (*c, *d)] for x, c, d in ((a, ca, ba), (b, cb, bb))]
    lead, *sides = ([x.shape[n] for n in axes] for x, axes in ((a, ba), (a, free[0]), (b, free[1])))
    left = jnp.transpose(a, (*ba, *free[0], *ca)).reshape(*lead, *sides[0], *[1] * len(sides[1]), size)
    right = jnp.transpose(b, (*bb, *free[1], *cb)).reshape(*lead, *[1] * len(sides[0]), *sides[1], size)
    terms = (left * right).astype(out.dtype)
    return reduce(lax.add, [terms[..., n] for n in range(size)], jnp.zeros(out.shape, out.dtype))


def _environment(closed, inputs: Sequence) -> dict:
    constants = [(x, False) for x in closed.consts]
    return dict(zip(closed.jaxpr.constvars + closed.jaxpr.invars, [*constants, *inputs], strict=True))


def _places(eqn, indices) -> np.ndarray | None:
    """Where a scatter adds rows of its first operand, if that is all it does and the places are known."""
    numbers, axis = eqn.params["dimension_numbers"], (0,)
    simple = numbers.inserted_window_dims == numbers.scatter_dims_to_operand_dims == axis
    if is_constant(indices) and simple and not numbers.operand_batching_dims:
        indices = np.asarray(indices)
        window = range(indices.ndim - 1, eqn.invars[2].aval.ndim)
        if numbers.update_window_dims == tuple(window):
            return indices.ravel()
    return None


def _rows(x, places: np.ndarray) -> jax.Array:
    numbers = lax.GatherDimensionNumbers(tuple(range(1, x.ndim)), (0,), (0,))
    inside = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(x, places[:, None], numbers, (1, *x.shape[1:]), mode=inside)


def _alone(jaxpr, eqn) -> Callable:
    """The operation of an equation of a jaxpr, with as many results as it has."""
    if not eqn.primitive.name.startswith("custom_"):
        return lambda *xs: eqn.primitive.bind(*xs, **eqn.params)
    return alone(jaxpr, eqn)
