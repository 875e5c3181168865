"""Jaxprs as functions that can be differentiated and batched: what the rules of `operation.py` are made of.

Read first: `_jax.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType

from lgjax.execution._jax import Literal, altered, as_function, dce_jaxpr, is_traced, with_constants
from lgjax.execution.collection import uncollected

Arrays = list[jax.Array]


def remembered(function: Callable) -> Callable:
    """Keep the results of function(jaxpr, ...) while the jaxpr exists: a cache that holds jaxprs holds their memory."""
    known: WeakKeyDictionary[Any, dict] = WeakKeyDictionary()

    @wraps(function)
    def call(jaxpr: Any, *others: Any) -> Any:
        found = known.setdefault(jaxpr, {})
        if others not in found:
            found[others] = function(jaxpr, *others)
        return found[others]

    call.cache_clear = known.clear  # type: ignore[attr-defined]
    return call


@uncollected()
def traced(function: Callable, *args) -> tuple[Any, list]:
    """The jaxpr of traced arrays that the function closes over and of its arguments, and those arrays.

    Known arrays that it closes over are literals of the jaxpr: a kernel folds them.
    """
    with _mesh_of_equations():
        closed = jax.make_jaxpr(function)(*args)
    constants = [value for value in closed.consts if is_traced(value)]
    if constants:

        def run(constants, args):
            given = iter(constants)
            return as_function(closed.jaxpr, [next(given) if is_traced(x) else x for x in closed.consts])(*args)

        closed = jax.make_jaxpr(run)(constants, closed.in_avals)
    known = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    return with_constants(closed.jaxpr, known), constants


def _mesh_of_equations() -> Any:
    """A context in which JAX finds the traces of jitted functions that it made while it evaluated a jaxpr.

    It then sets the mesh that the equations name, and where there is none, its traces tell an empty mesh from no mesh.
    Arrays of one system lie nowhere on a mesh with explicit axes (`devices.py`).
    """
    mesh = jax.sharding.get_abstract_mesh()
    return jax.sharding.use_abstract_mesh(AbstractMesh((), ()) if AxisType.Explicit in mesh.axis_types else mesh)


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


def transposed(jaxpr, linear: Sequence[int], wanted: Sequence[bool]) -> tuple[Any, list]:
    """The jaxpr of the cotangents of the arguments `linear`, and the arrays it closes over.

    Its own arguments are those arrays, the other arguments, and the cotangents of the results `wanted`. Equations that
    do not depend on `linear` stay as they are: to trace them again would take as long as to transpose the others.
    """
    directions = [jaxpr.invars[n] for n in linear]
    moving, still, moved = set(directions), [], []
    for eqn in jaxpr.eqns:
        moves = not moving.isdisjoint(_variables(eqn.invars))
        (moved if moves else still).append(eqn)
        moving.update(eqn.outvars if moves else ())
    outs = [x for x, w in zip(jaxpr.outvars, wanted, strict=True) if w]
    read = _variables([*(x for eqn in moved for x in eqn.invars), *outs])
    given = [x for x in dict.fromkeys(read) if x not in moving]
    part = altered(jaxpr, invars=[*given, *directions], outvars=outs, eqns=moved)

    def back(given, cotangents):
        of = lambda *values: evaluate(part, [*given, *values])
        return list(jax.linear_transpose(of, *(x.aval for x in directions))(list(cotangents)))

    found, more = traced(back, [x.aval for x in given], [x.aval for x in outs])
    first, last = found.invars[: len(more)], found.invars[len(more) + len(given) :]
    names = dict(zip(found.invars[len(more) :], given, strict=False))
    renamed = lambda atoms: [x if isinstance(x, Literal) else names.get(x, x) for x in atoms]
    fixed = [x for n, x in enumerate(jaxpr.invars) if n not in linear]
    eqns = [*still, *(eqn.replace(invars=renamed(eqn.invars)) for eqn in found.eqns)]
    whole = altered(found, invars=[*first, *fixed, *last], outvars=renamed(found.outvars), eqns=eqns)
    return dce_jaxpr(whole, [True] * len(whole.outvars), True)[0], more


def _variables(atoms: Iterable) -> list:
    return [x for x in atoms if not isinstance(x, Literal)]


def merged(x, own: int | None, size: int | None, axis: int | None, more: int, first: bool) -> jax.Array:
    """An argument with the axes of both batches as its last one, whether or not it has them; first: the new one is."""
    x = (
        lax.broadcast_in_dim(x, (*jnp.shape(x), more), range(jnp.ndim(x)))
        if axis is None
        else jnp.moveaxis(x, axis, -1)
    )
    if size is None:
        return x
    if own is None:
        x = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], size, more))
    return (jnp.swapaxes(x, -1, -2) if first else x).reshape(*x.shape[:-2], size * more)
