"""Taylor coefficients of a function along a path: those of f(x(t)) from those of x(t).

The function is traced to elementary operations. Sums, products, quotients, sine, cosine and exponential have their
recurrences; of any other operation f the tangent is taken once, df/dt = f'(x) dx/dt, and the series of that, one order
shorter, is integrated. So everything that `jax.jvp` can differentiate has a series, and derivative rules of its own
(`jax.custom_jvp`) are used.

A series is a list of coefficients; those behind its end are zero, and a constant has one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.execution._jax import Literal, alone, dce_jaxpr
from lgjax.execution.primitives import TABLE

Series = list[Any]


def path_series(function: Callable, path: Sequence) -> list:
    """Coefficients of function(x(t)), as many as the path has: x(t) = path[0] + path[1] t + path[2] t^2 ..., an array.

    function: of an array, to a pytree of floating arrays; the result is a list of such pytrees. jit inside is inlined.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(path[0])
    order = len(path) - 1
    series = _evaluated(closed.jaxpr, closed.consts, [list(path)], order)
    treedef = jax.tree.structure(shape)
    return [treedef.unflatten([_coefficient(x, k) for x in series]) for k in range(order + 1)]


def _evaluated(jaxpr, constants: Sequence, inputs: list[Series], order: int) -> list[Series]:
    env = {x: [value] for x, value in zip(jaxpr.constvars, constants, strict=True)}
    env.update(zip(jaxpr.invars, inputs, strict=True))
    read = lambda atom: [atom.val] if isinstance(atom, Literal) else env[atom]
    for eqn in jaxpr.eqns:
        found = _applied(jaxpr, eqn, [read(atom) for atom in eqn.invars], order)
        env.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _applied(jaxpr, eqn, inputs: list[Series], order: int) -> list[Series]:
    name = eqn.primitive.name
    if name in ("jit", "pjit", "closed_call"):
        inner = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
        return _evaluated(inner.jaxpr, inner.consts, inputs, order)
    inputs = [x[: order + 1] for x in inputs]
    bind = lambda *values: eqn.primitive.bind(*values, **eqn.params)
    if all(len(x) == 1 for x in inputs) or not any(map(_floating, eqn.outvars)):
        return [[y] for y in alone(jaxpr, eqn)(*(x[0] for x in inputs))]
    if name in ("mul", "dot_general"):
        return [_product(bind, inputs[0], inputs[1], order)]
    if name in _RECURRENCES:
        return [_RECURRENCES[name](order, *inputs)]
    if name in TABLE and TABLE[name].linear:
        moves = list(map(_floating, eqn.invars))
        kth = lambda k: bind(*(_coefficient(x, k) if m else x[0] for x, m in zip(inputs, moves, strict=True)))
        found = [kth(k) for k in range(max(map(len, inputs)))]
        return [list(series) for series in zip(*found, strict=True)] if eqn.primitive.multiple_results else [found]
    return _integrated(alone(jaxpr, eqn), eqn, inputs, order)


def _floating(x) -> bool:
    return jnp.issubdtype(x.aval.dtype, jnp.floating)


def _coefficient(x: Series, k: int):
    return x[k] if k < len(x) else jnp.zeros_like(x[0])


# ---- operations with a recurrence of their own
def _product(product: Callable, a: Series, b: Series, order: int) -> Series:
    length = min(order, len(a) + len(b) - 2) + 1
    terms = lambda k: [product(a[i], b[k - i]) for i in range(max(0, k - len(b) + 1), min(k, len(a) - 1) + 1)]
    return [sum(rest, start=first) for first, *rest in map(terms, range(length))]


def _quotient(order: int, a: Series, b: Series) -> Series:
    """y b = a."""
    y: Series = []
    for k in range(order + 1):
        known = [b[i] * y[k - i] for i in range(1, min(k, len(b) - 1) + 1)]
        y.append((_coefficient(a, k) - sum(known)) / b[0] if known else _coefficient(a, k) / b[0])
    return y


def _rates(x: Series) -> Series:
    return [float(k) * c for k, c in enumerate(x)][1:]


def _exponential(order: int, x: Series) -> Series:
    """dy/dt = y dx/dt."""
    y = [jnp.exp(x[0])]
    for k in range(order):
        y.append(_product(jnp.multiply, _rates(x), y, k)[k] / (k + 1.0))
    return y


def _sine_and_cosine(order: int, x: Series) -> tuple[Series, Series]:
    sine, cosine, rates = [jnp.sin(x[0])], [jnp.cos(x[0])], _rates(x)
    for k in range(order):
        up, down = (_product(jnp.multiply, rates, y, k)[k] / (k + 1.0) for y in (cosine, sine))
        sine, cosine = [*sine, up], [*cosine, -down]
    return sine, cosine


_RECURRENCES: dict[str, Callable] = {
    "div": _quotient,
    "exp": _exponential,
    "sin": lambda order, x, *_: _sine_and_cosine(order, x)[0],
    "cos": lambda order, x, *_: _sine_and_cosine(order, x)[1],
}


# ---- all others
def _integrated(call: Callable, eqn, inputs: list[Series], order: int) -> list[Series]:
    """The series of the operands' tangents through the operation, integrated."""
    places = [n for n, x in enumerate(inputs) if len(x) > 1]
    moving = [inputs[n] for n in places]
    floating = [_floating(x) for x in eqn.outvars]

    def of(*values):
        changed = dict(zip(places, values, strict=True))
        return call(*(changed.get(n, x[0]) for n, x in enumerate(inputs)))

    pick = lambda values: [x for x, f in zip(values, floating, strict=True) if f]

    def tangent(*values):
        return pick(jax.jvp(of, values[: len(moving)], values[len(moving) :])[1])

    if order == 1:
        values, rates = jax.jvp(of, [x[0] for x in moving], [x[1] for x in moving])
        return [[y, rate] if f else [y] for y, rate, f in zip(values, rates, floating, strict=True)]
    path = [*moving, *map(_rates, moving)]
    closed = jax.make_jaxpr(tangent)(*(x[0] for x in path))
    asked, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)  # without the values themselves
    rates = iter(_evaluated(asked, closed.consts, path, order - 1))
    return [
        [y, *(rate / (k + 1.0) for k, rate in enumerate(next(rates)))] if f else [y]
        for y, f in zip(of(*(x[0] for x in moving)), floating, strict=True)
    ]
