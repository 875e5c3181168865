"""Runs a function of small arrays on scalars, with its constant zeros and ones folded away.

A body step is written on 3-vectors and 3x3 blocks. Here it is traced once to a jaxpr, which is then evaluated on NumPy
object arrays whose entries are Python numbers (known at trace time) or JAX arrays with one value per body. Products
with 0 and 1 disappear, so a rotation about z costs what it would cost written out by hand, and XLA sees elementwise
arithmetic on long arrays only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core


@dataclass(frozen=True, eq=False)
class Block:
    """A small array whose entries are lane arrays or Python numbers; a leaf to pytree functions."""

    entries: np.ndarray
    dtype: Any


def scalarized(step: Callable) -> Callable:
    """`step` on pytrees of Blocks, entry by entry."""

    def run(*args):
        blocks, treedef = jax.tree.flatten(args)
        specs = treedef.unflatten([jax.ShapeDtypeStruct(b.entries.shape, b.dtype) for b in blocks])
        closed, shapes = jax.make_jaxpr(step, return_shape=True)(*specs)
        outs = _evaluate(closed.jaxpr, closed.consts, [b.entries for b in blocks])
        leaves, out_tree = jax.tree.flatten(shapes)
        return out_tree.unflatten([Block(e, s.dtype) for e, s in zip(outs, leaves, strict=True)])

    return run


def _objects(value) -> np.ndarray:
    """A concrete array as an object array of Python numbers."""
    array = np.asarray(value)
    out = np.empty(array.shape, object)
    out[...] = array.tolist() if array.ndim else array.item()
    return out


def _is_number(x) -> bool:
    return isinstance(x, (bool, int, float))


def _evaluate(jaxpr, consts, args) -> list[np.ndarray]:
    env: dict[Any, np.ndarray] = {}

    def read(atom) -> np.ndarray:
        return _objects(atom.val) if isinstance(atom, core.Literal) else env[atom]

    env.update(zip(jaxpr.constvars, map(_objects, consts), strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        outs = _apply(eqn, [read(atom) for atom in eqn.invars])
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(eqn, inputs: list[np.ndarray]) -> list[np.ndarray]:
    name, params = eqn.primitive.name, eqn.params
    if name in _ELEMENTWISE:
        return [_boxed(_ELEMENTWISE[name](*inputs))]
    if name in _STRUCTURAL:
        return [_boxed(_STRUCTURAL[name](params, *inputs))]
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if key in params and name not in ("scan", "while", "cond"):
            inner = params[key]
            closed = inner if hasattr(inner, "consts") else core.ClosedJaxpr(inner, ())
            return _evaluate(closed.jaxpr, closed.consts, inputs)
    if all(_is_number(x) for array in inputs for x in array.flat):
        return _constants(eqn, inputs)
    if not eqn.primitive.multiple_results and all(array.shape == inputs[0].shape for array in inputs):
        return [_boxed(_per_entry(eqn)(*inputs))]
    raise NotImplementedError(f"a body step uses {name!r}, which cannot be scalarised; run it with execution='plain'")


def _boxed(x) -> np.ndarray:
    """NumPy turns 0-d object results into their entry; put it back."""
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x
    out = np.empty((), object)
    out[()] = x
    return out


def _constants(eqn, inputs) -> list[np.ndarray]:
    """Evaluate an equation whose inputs are all known now."""
    with jax.ensure_compile_time_eval():
        values = [
            jnp.asarray(np.array(array.tolist(), dtype=atom.aval.dtype).reshape(array.shape))
            for array, atom in zip(inputs, eqn.invars, strict=True)
        ]
        outs = eqn.primitive.bind(*values, **eqn.params)
    return [_objects(x) for x in (outs if eqn.primitive.multiple_results else [outs])]


def _per_entry(eqn):
    """Any other elementwise primitive, applied to each entry."""
    dtypes = [atom.aval.dtype for atom in eqn.invars]

    def call(*xs):
        shape = next(x.shape for x in xs if not _is_number(x))
        full = [jnp.full(shape, x, d) if _is_number(x) else x for x, d in zip(xs, dtypes, strict=True)]
        return eqn.primitive.bind(*full, **eqn.params)

    return np.frompyfunc(call, len(dtypes), 1)


# ---- arithmetic on entries, folding what is known
def _add(a, b):
    if _is_number(a):
        return b if a == 0 else a + b
    return a if _is_number(b) and b == 0 else a + b


def _sub(a, b):
    if _is_number(b) and b == 0:
        return a
    return _neg(b) if _is_number(a) and a == 0 else a - b


def _mul(a, b):
    if _is_number(b):
        a, b = b, a
    if _is_number(a):
        if a == 0:
            return 0.0
        if a == 1:
            return b
        if a == -1:
            return -b
    return a * b


def _div(a, b):
    if _is_number(a) and a == 0:
        return 0.0
    return a if _is_number(b) and b == 1 else a / b


def _neg(a):
    return -a


def _integer_pow(params, x):
    n = params["y"]

    def power(a):
        if _is_number(a):
            return a**n
        return lax.integer_pow(a, n)

    return np.frompyfunc(power, 1, 1)(x)


def _select(which, *cases):
    def pick(w, *xs):
        if _is_number(w):
            return xs[int(w)]
        if len(xs) != 2:
            raise NotImplementedError("select_n of more than two cases in a body step")
        if all(_is_number(x) for x in xs) and xs[0] == xs[1]:
            return xs[0]
        return jnp.where(w, xs[1], xs[0])

    return np.frompyfunc(pick, 1 + len(cases), 1)(which, *cases)


def _unary(on_array, on_number):
    return np.frompyfunc(lambda a: on_number(a) if _is_number(a) else on_array(a), 1, 1)


def _binary(f):
    return np.frompyfunc(f, 2, 1)


def _compare(f):
    return np.frompyfunc(f, 2, 1)


_ELEMENTWISE: dict[str, Callable] = {
    "add": _binary(_add),
    "add_any": _binary(_add),
    "sub": _binary(_sub),
    "mul": _binary(_mul),
    "div": _binary(_div),
    "neg": np.frompyfunc(_neg, 1, 1),
    "sin": _unary(lax.sin, lambda a: float(np.sin(a))),
    "cos": _unary(lax.cos, lambda a: float(np.cos(a))),
    "sqrt": _unary(lax.sqrt, lambda a: float(np.sqrt(a))),
    "rsqrt": _unary(lax.rsqrt, lambda a: float(1 / np.sqrt(a))),
    "abs": _unary(lax.abs, abs),
    "square": _unary(lax.square, lambda a: a * a),
    "lt": _compare(lambda a, b: a < b),
    "le": _compare(lambda a, b: a <= b),
    "gt": _compare(lambda a, b: a > b),
    "ge": _compare(lambda a, b: a >= b),
    "select_n": _select,
    "copy": lambda x: x,
}


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


def _dynamic_slice(params, x, *starts):
    sizes = params["slice_sizes"]
    first = [int(s[()]) for s in starts]
    first = [min(max(f, 0), n - size) for f, n, size in zip(first, x.shape, sizes, strict=True)]
    return x[tuple(slice(f, f + size) for f, size in zip(first, sizes, strict=True))]


def _reduce_sum(params, x):
    kept = [axis for axis in range(x.ndim) if axis not in params["axes"]]
    rows = x.transpose(*kept, *params["axes"]).reshape([x.shape[axis] for axis in kept] + [-1])
    total = rows[..., 0] if rows.shape[-1] else np.zeros(rows.shape[:-1], object)
    for k in range(1, rows.shape[-1]):
        total = _ELEMENTWISE["add"](total, rows[..., k])
    return total


def _dot_general(params, a, b):
    (ca, cb), (ba, bb) = params["dimension_numbers"]
    free_a = [i for i in range(a.ndim) if i not in (*ca, *ba)]
    free_b = [i for i in range(b.ndim) if i not in (*cb, *bb)]
    batch = [a.shape[i] for i in ba]
    left = a.transpose(*ba, *free_a, *ca).reshape([*batch, *(a.shape[i] for i in free_a), *[1] * len(free_b), -1])
    right = b.transpose(*bb, *free_b, *cb).reshape([*batch, *[1] * len(free_a), *(b.shape[i] for i in free_b), -1])
    return _reduce_sum({"axes": (left.ndim - 1,)}, _ELEMENTWISE["mul"](left, right))


def _convert(params, x):
    if np.issubdtype(params["new_dtype"], np.floating):
        return np.frompyfunc(lambda a: float(a) if _is_number(a) else a.astype(params["new_dtype"]), 1, 1)(x)
    return np.frompyfunc(lambda a: a if _is_number(a) else a.astype(params["new_dtype"]), 1, 1)(x)


_STRUCTURAL: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": lambda params, *xs: np.concatenate(xs, axis=params["dimension"]),
    "convert_element_type": _convert,
    "dot_general": _dot_general,
    "dynamic_slice": _dynamic_slice,
    "expand_dims": lambda params, x: np.expand_dims(x, params["dimensions"]),
    "integer_pow": _integer_pow,
    "reduce_sum": _reduce_sum,
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "slice": _slice,
    "stack": lambda params, *xs: np.stack(xs, params["axis"]),
    "squeeze": lambda params, x: np.squeeze(x, axis=params["dimensions"]),
    "transpose": lambda params, x: x.transpose(params["permutation"]),
}
