"""Evaluation of a function of small arrays on scalars, with its constant zeros and ones folded away.

An algorithm is written on 3-vectors and 3x3 blocks. Its jaxpr is evaluated on NumPy object arrays, whose entries are
Python numbers (known at trace time) or nodes of a graph of scalars. Products with 0 and 1 disappear, so that a rotation
about z costs what it would cost written out by hand.

Read first: `graph.py`, `../primitives.py`. Next: `unrolling.py`, for whole programs with loops.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution._jax import ClosedJaxpr, Literal
from lgjax.execution.primitives import TABLE, Way, named
from lgjax.execution.scalars import indexing
from lgjax.execution.scalars.entries import boxed, map_objects, objects
from lgjax.execution.scalars.graph import Graph, Scalar, is_number

ENTRY, GIVEN = named(Way.ENTRY), named(Way.GIVEN)


@dataclass(frozen=True)
class PerEntry:
    """An elementwise primitive, with its parameters and the dtypes of its operands."""

    primitive: Any
    params: dict
    dtypes: list

    @cached_property
    def key(self) -> tuple[str, str]:
        return self.primitive.name, str(self.params)

    @cached_property
    def types(self) -> list[type]:
        """Types of the numbers."""
        return [{"f": float, "b": bool}.get(dtype.kind, int) for dtype in self.dtypes]


class Interpreter:
    """Evaluates jaxprs on object arrays of one graph's scalars."""

    def __init__(self, graph: Graph):
        self.graph = graph
        binary = {name: np.frompyfunc(getattr(graph, name), 2, 1) for name in ("add", "sub", "mul", "div")}
        self.elementwise: dict[str, Callable] = binary | {
            "neg": np.frompyfunc(graph.neg, 1, 1),
            "add_any": binary["add"],
            "square": np.frompyfunc(lambda a: graph.mul(a, a), 1, 1),
            "one_minus_square": np.frompyfunc(lambda a: graph.mul(graph.add(1.0, a), graph.sub(1.0, a)), 1, 1),
        }
        for name, row in TABLE.items():
            if row.way is Way.FOLDED and row.numbers is not None and name not in self.elementwise:
                self.elementwise[name] = np.frompyfunc(self._unary(name, row.numbers), 1, 1)

    def _unary(self, name: str, on_number: Callable) -> Callable:
        return lambda a: float(on_number(a)) if is_number(a) else self.graph.node(name, None, a)

    def evaluate(self, jaxpr, consts, args) -> list[np.ndarray]:
        env: dict[Any, np.ndarray] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        for eqn in jaxpr.eqns:
            inputs = [objects(x.val) if isinstance(x, Literal) else env[x] for x in eqn.invars]
            env.update(zip(eqn.outvars, self._apply(eqn, inputs), strict=True))
        return [objects(x.val) if isinstance(x, Literal) else env[x] for x in jaxpr.outvars]

    def _apply(self, eqn, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """The results of an equation; the most frequent operations come first."""
        name, params = eqn.primitive.name, eqn.params
        if name == "div" and eqn.outvars[0].aval.dtype.kind != "f":
            return [boxed(np.frompyfunc(partial(self.per_entry, _operation(eqn)), len(inputs), 1)(*inputs))]
        if name in self.elementwise:
            return [boxed(self.elementwise[name](*inputs))]
        if name in ("jit", "pjit"):
            return self.evaluate(params["jaxpr"].jaxpr, list(map(objects, params["jaxpr"].consts)), inputs)
        if name == "convert_element_type" and (kinds := _change_of_kind(eqn)):
            return [map_objects(lambda a: self._converted(a, *kinds), inputs[0])]
        if name in REARRANGEMENTS:
            return [boxed(REARRANGEMENTS[name](params, *inputs))]
        if name == "unstack":
            return _unstack(inputs[0], params["axis"])
        if name in ("reduce_sum", "dot_general"):
            return [boxed(getattr(self, "_" + name)(params, *inputs))]
        if name == "integer_pow" and params["y"] > 0:
            return [boxed(reduce(self.elementwise["mul"], [inputs[0]] * params["y"]))]
        if name in indexing.MOVES and indexing.is_known(name, inputs):
            return [boxed(indexing.MOVES[name](self.graph, eqn, *inputs))]
        if name in GIVEN:
            return inputs
        if name == "unseen":
            return [objects(np.zeros(x.aval.shape, x.aval.dtype)) for x in eqn.outvars]
        if name == "split":
            return np.split(inputs[0], np.cumsum(params["sizes"])[:-1], params["axis"])
        for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if key in params and name not in ("scan", "while", "cond"):
                inner = params[key]
                closed = inner if hasattr(inner, "consts") else ClosedJaxpr(inner, ())
                return self.evaluate(closed.jaxpr, list(map(objects, closed.consts)), inputs)
        if all(is_number(x) for array in inputs for x in array.flat):
            return _constants(_operation(eqn), inputs)
        if name in ENTRY:
            return [boxed(np.frompyfunc(partial(self.per_entry, _operation(eqn)), len(inputs), 1)(*inputs))]
        raise self._refusal(name)

    def _refusal(self, name: str) -> Exception:
        return NotImplementedError(f"{name!r} cannot be done scalar by scalar")

    def per_entry(self, what: PerEntry, *xs: Scalar) -> Scalar:
        """Any other elementwise primitive, a node for each entry."""
        # A folded zero may be of another type, which says something else where all operands are numbers.
        xs = tuple(t(x) if is_number(x) and type(x) is not t else x for x, t in zip(xs, what.types, strict=True))
        if what.key[0] == "select_n" and is_number(xs[0]):
            return xs[1 + int(xs[0])]
        if all(map(is_number, xs)):
            return _constants(what, [boxed(x) for x in xs])[0].item()
        return self.graph.node(what.key[0], what, *xs, key=what.key)

    def _converted(self, a, old, new):
        """A truth value or an integer as a number of another kind."""
        if is_number(a):
            return np.dtype(new).type(a).item()
        return self.graph.node("convert", np.dtype(new), a, key=str(new))

    def _reduce_sum(self, params, x):
        kept = [axis for axis in range(x.ndim) if axis not in params["axes"]]
        rows = x.transpose(*kept, *params["axes"]).reshape(
            [x.shape[axis] for axis in kept] + [math.prod(x.shape[axis] for axis in params["axes"])]
        )
        total = rows[..., 0] if rows.shape[-1] else np.zeros(rows.shape[:-1]).astype(object)
        for k in range(1, rows.shape[-1]):
            total = self.elementwise["add"](total, rows[..., k])
        return total

    def _dot_general(self, params, a, b):
        (ca, cb), (ba, bb) = params["dimension_numbers"]
        free_a = [i for i in range(a.ndim) if i not in (*ca, *ba)]
        free_b = [i for i in range(b.ndim) if i not in (*cb, *bb)]
        batch = [a.shape[i] for i in ba]
        rows, columns, terms = ([x.shape[i] for i in n] for x, n in ((a, free_a), (b, free_b), (a, ca)))
        count = math.prod(terms)
        left = a.transpose(*ba, *free_a, *ca).reshape([*batch, *rows, *[1] * len(free_b), count])
        right = b.transpose(*bb, *free_b, *cb).reshape([*batch, *[1] * len(free_a), *columns, count])
        return self._reduce_sum({"axes": (left.ndim - 1,)}, self.elementwise["mul"](left, right))


# On known numbers, by their parameters. JAX would compile each operation for each shape.
_BY_PARAMETERS: dict[str, Callable] = {
    "iota": lambda params: np.indices(params["shape"], params["dtype"])[params["dimension"]],
    "integer_pow": lambda params, a: a ** params["y"] if a.dtype.kind == "f" else np.power(a, max(params["y"], 0)),
    "convert_element_type": lambda params, a: np.asarray(a, params["new_dtype"]),
}


def _operation(eqn) -> PerEntry:
    return PerEntry(eqn.primitive, eqn.params, [atom.aval.dtype for atom in eqn.invars])


def _constants(what: PerEntry, inputs) -> list[np.ndarray]:
    """Evaluate an equation whose inputs are all known now."""
    pairs = list(zip(inputs, what.dtypes, strict=True))
    name, rule = what.primitive.name, None
    if name in _BY_PARAMETERS:
        rule = partial(_BY_PARAMETERS[name], what.params)
    elif name in TABLE:
        rule = TABLE[name].numbers
    if rule is not None:
        numbers = [np.array(x.tolist(), dtype).reshape(x.shape) for x, dtype in pairs]
        with np.errstate(all="ignore"):
            return [objects(rule(*numbers))]
    with jax.ensure_compile_time_eval():
        values = [jnp.asarray(np.array(x.tolist(), dtype=dtype).reshape(x.shape)) for x, dtype in pairs]
        outs = what.primitive.bind(*values, **what.params)
    return [objects(x) for x in (outs if what.primitive.multiple_results else [outs])]


def _change_of_kind(eqn) -> tuple | None:
    """The dtypes of a conversion between truth values, integers and numbers."""
    old, new = eqn.invars[0].aval.dtype, eqn.params["new_dtype"]
    kind = lambda dtype: "number" if np.issubdtype(dtype, np.floating) else np.issubdtype(dtype, np.bool_)
    return None if kind(old) == kind(new) else (old, new)


# ---- rearrangements of entries
def _broadcast_in_dim(params, x, *_):
    shape, dims = params["shape"], params["broadcast_dimensions"]
    expanded = [1] * len(shape)
    for axis, dim in enumerate(dims):
        expanded[dim] = x.shape[axis]
    return np.broadcast_to(x.reshape(expanded), shape)


def _slice(params, x):
    strides = params["strides"] or (1,) * x.ndim
    starts, limits = params["start_indices"], params["limit_indices"]
    return x[tuple(slice(a, b, s) for a, b, s in zip(starts, limits, strides, strict=True))]


def _convert(params, x):
    """Values keep their dtype: one step has one floating dtype."""
    return map_objects(lambda a: float(a) if is_number(a) and np.issubdtype(params["new_dtype"], np.floating) else a, x)


def _stack(params, *xs):
    axis, shape = params["axis"], xs[0].shape
    out, ahead = np.empty((*shape[:axis], len(xs), *shape[axis:]), object), (slice(None),) * axis
    for k, x in enumerate(xs):
        out[(*ahead, k)] = x if shape else x.item()
    return out


def _unstack(x, axis: int) -> list[np.ndarray]:
    ahead = (slice(None),) * axis
    return [boxed(x[(*ahead, k)]) for k in range(x.shape[axis])]


def _pad(params, x, value):
    config = params["padding_config"]
    sizes = [low + high + n + max(n - 1, 0) * gap for n, (low, high, gap) in zip(x.shape, config, strict=True)]
    places = [low + np.arange(n) * (gap + 1) for n, (low, _, gap) in zip(x.shape, config, strict=True)]
    inside = [(place >= 0) & (place < size) for place, size in zip(places, sizes, strict=True)]
    out = map_objects(lambda _: value.item(), np.empty(sizes, object))
    out[np.ix_(*(place[i] for place, i in zip(places, inside, strict=True)))] = x[np.ix_(*inside)]
    return out


REARRANGEMENTS: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": lambda params, *xs: np.concatenate(xs, axis=params["dimension"]),
    "convert_element_type": _convert,
    "expand_dims": lambda params, x: np.expand_dims(x, params["dimensions"]),
    "reshape": lambda params, x: x.transpose(params["dimensions"] or tuple(range(x.ndim))).reshape(params["new_sizes"]),
    "pad": _pad,
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "slice": _slice,
    "squeeze": lambda params, x: np.squeeze(x, axis=params["dimensions"]),
    "stack": _stack,
    "tile": lambda params, x: np.tile(x, params["reps"]),
    "transpose": lambda params, x: x.transpose(params["permutation"]),
}
