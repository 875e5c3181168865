"""`lax.scan` over the levels of a run, whose batch axis under `jax.vmap` comes behind the lanes.

A level does arithmetic on arrays of lanes, and parameters have no batch axis. Where the batch is the last axis, they
are constant along contiguous memory; where `jax.vmap` puts it, in front of the lanes, they are not and little
vectorises. Inputs are cut out of their stacks in the kernels that use them, not before. Derivatives are those of an
ordinary scan.

The loop is a primitive, because rules attached to functions do not do: a `jax.custom_jvp` whose rule finds other batch
axes than its function is wrong under a derivative of a jitted vmap (jax-ml/jax#16374), and a scan's rule would.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from lgjax.multibody.scalar_graph import LAYER
from lgjax.multibody.scalarize import ELEMENTWISE

Arrays = list[jax.Array]


def lane_scan(body: Callable, start, xs, length: int, reverse: bool = False):
    """What `lax.scan` does, for bodies of elementwise operations."""
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    closed, shapes = jax.make_jaxpr(body, return_shape=True)(start, first)
    args = [*closed.consts, *jax.tree.leaves((start, xs))]
    loop = _Loop(closed.jaxpr, len(closed.consts), len(jax.tree.leaves(start)), length, reverse, None)
    return jax.tree.unflatten(jax.tree.structure(shapes), loop_p.bind(*args, loop=loop))


@dataclass(frozen=True, eq=False)
class _Loop:
    """The jaxpr of one level, of its constants, the carry and the inputs, and how often it runs; for `size` systems,
    the last axis of the carry, of the results and of the arguments that are `batched`. None: for one."""

    level: Any
    n_constants: int
    n_carry: int
    length: int
    reverse: bool
    size: int | None
    batched: tuple[bool, ...] = ()

    def _parts(self, args: Sequence) -> tuple[list, list, list]:
        stop = self.n_constants + self.n_carry
        return list(args[: self.n_constants]), list(args[self.n_constants : stop]), list(args[stop:])

    def shapes(self) -> list:
        """Of the results."""
        avals = [x.aval for x in self.level.outvars]
        batch = () if self.size is None else (self.size,)
        stacks = [()] * self.n_carry + [(self.length,)] * (len(avals) - self.n_carry)
        return [x.update(shape=(*n, *x.shape, *batch), weak_type=False) for x, n in zip(avals, stacks, strict=True)]

    def run(self, *args) -> Arrays:
        constants, start, xs = self._parts(args)
        variables = self.level.constvars + self.level.invars
        batched = self.batched or (False,) * len(variables)

        def body(carry, i):
            values = [*constants, *carry, *(_Slice(x, i) for x in xs)]
            env = dict(zip(variables, zip(values, batched, strict=True), strict=True))
            out = _Batch(self.size).outputs(self.level, env)
            return out[: self.n_carry], out[self.n_carry :]

        final, ys = lax.scan(body, start, jnp.arange(self.length, dtype=jnp.int32), reverse=self.reverse)
        return [*final, *ys]

    def plain(self, *args) -> Arrays:
        """By `lax.scan`, as it is."""
        if self.size is not None:
            axes = [-1 if b else None for b in self.batched]
            return jax.vmap(replace(self, size=None, batched=()).plain, axes, -1, axis_size=self.size)(*args)
        constants, start, xs = self._parts(args)
        level = core.jaxpr_as_fun(core.ClosedJaxpr(self.level, constants))

        def body(carry, x):
            out = level(*carry, *x)
            return out[: self.n_carry], out[self.n_carry :]

        final, ys = lax.scan(body, start, xs, self.length, self.reverse)
        return [*final, *ys]


def _jvp(primals, tangents, *, loop: _Loop):
    moving = [not isinstance(t, ad.Zero) for t in tangents]
    select = lambda xs: [x for x, m in zip(xs, moving, strict=True) if m]

    def of_moving(*values):
        stream = iter(values)
        return loop.plain(*(next(stream) if m else x for x, m in zip(primals, moving, strict=True)))

    return jax.jvp(of_moving, select(primals), select(tangents))


def _vmap(args, axes, *, loop: _Loop):
    size = loop.size
    more = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    before = loop.batched or (False,) * len(args)
    together = [b or axis is not None for b, axis in zip(before, axes, strict=True)]
    carry = slice(loop.n_constants, loop.n_constants + loop.n_carry)
    together[carry] = [True] * loop.n_carry  # which keeps its shape
    args = [
        _merged(x, size if b else None, size, axis, more) if t else x
        for x, b, axis, t in zip(args, before, axes, together, strict=True)
    ]
    outs = loop_p.bind(*args, loop=replace(loop, size=more * (size or 1), batched=tuple(together)))
    apart = [x if size is None else x.reshape(*x.shape[:-1], size, more) for x in outs]
    return apart, [x.ndim - 1 for x in apart]


def _merged(x, own: int | None, size: int | None, axis: int | None, more: int) -> jax.Array:
    """An argument with the axes of both batches as its last one, whether or not it has them."""
    x = _repeated(x, more) if axis is None else jnp.moveaxis(x, axis, -1)
    if size is None:
        return x
    if own is None:
        x = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], size, more))
    return x.reshape(*x.shape[:-2], size * more)


loop_p = core.Primitive("lane_scan")
loop_p.multiple_results = True
loop_p.def_impl(lambda *args, loop: loop.run(*args))
loop_p.def_abstract_eval(lambda *avals, loop: loop.shapes())
mlir.register_lowering(loop_p, mlir.lower_fun(lambda *args, loop: loop.run(*args), multiple_results=True))
ad.primitive_jvps[loop_p] = _jvp
batching.primitive_batchers[loop_p] = _vmap


def _repeated(x, size: int) -> jax.Array:
    return lax.broadcast_in_dim(x, (*jnp.shape(x), size), range(jnp.ndim(x)))


@dataclass(frozen=True)
class _Slice:
    """Entry `index` of a stack, cut out where it is used."""

    stack: jax.Array
    index: jax.Array

    def value(self) -> jax.Array:
        zeros = [jnp.zeros((), self.index.dtype)] * (self.stack.ndim - 1)
        cut = lax.dynamic_slice_p.bind(self.stack, self.index, *zeros, slice_sizes=(1, *self.stack.shape[1:]))
        return lax.squeeze(cut, (0,))


@dataclass(frozen=True)
class _Batch:
    """Evaluates a jaxpr with a batch axis of `size` behind all others; a value is (array or slice, whether batched)."""

    size: int | None

    def outputs(self, jaxpr, env: dict) -> Arrays:
        """All of them with the batch axis."""
        return [self._wide(*value) for value in self._evaluate(jaxpr, env)]

    def _wide(self, x, batched: bool) -> jax.Array:
        x = x.value() if isinstance(x, _Slice) else x
        return x if batched or self.size is None else _repeated(x, self.size)

    def _evaluate(self, jaxpr, env: dict) -> list[tuple[Any, bool]]:
        read = lambda atom: (atom.val, False) if isinstance(atom, core.Literal) else env[atom]
        for eqn in jaxpr.eqns:
            with eqn.ctx.manager:
                outs = self._apply(eqn, [read(atom) for atom in eqn.invars])
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, eqn, inputs: list[tuple[Any, bool]]) -> list[tuple[Any, bool]]:
        if eqn.primitive.name == "jit":
            return self._call(eqn, inputs)
        some = self.size is not None and any(batched for _, batched in inputs)
        arrays = [
            self._wide(x, batched or not some or not jnp.ndim(atom.aval))
            for (x, batched), atom in zip(inputs, eqn.invars, strict=True)
        ]
        apply = lambda *xs: eqn.primitive.bind(*xs, **eqn.params)
        if some and eqn.primitive.name not in ELEMENTWISE:
            axes = [
                -1 if jnp.ndim(x) > jnp.ndim(atom.aval) else None for x, atom in zip(arrays, eqn.invars, strict=True)
            ]
            apply = jax.vmap(apply, axes, -1, axis_size=self.size)
        outs = apply(*arrays)
        return [(y, some) for y in (outs if eqn.primitive.multiple_results else [outs])]

    def _call(self, eqn, inputs: list[tuple[Any, bool]]) -> list[tuple[Any, bool]]:
        """A layer stays a call, which cuts its slices itself; other functions are inlined."""
        inner = eqn.params["jaxpr"]
        if eqn.params["name"] != LAYER:
            return self._evaluate(inner.jaxpr, _environment(inner, inputs))
        index = next((x.index for x, _ in inputs if isinstance(x, _Slice)), None)

        def layer(index, *arrays):
            values = [
                (_Slice(array, index) if isinstance(x, _Slice) else array, batched)
                for array, (x, batched) in zip(arrays, inputs, strict=True)
            ]
            return self.outputs(inner.jaxpr, _environment(inner, values))

        outs = jax.jit(layer)(index, *(x.stack if isinstance(x, _Slice) else x for x, _ in inputs))
        return [(y, self.size is not None) for y in outs]


def _environment(closed, inputs: list) -> dict:
    constants = [(x, False) for x in closed.consts]
    return dict(zip(closed.jaxpr.constvars + closed.jaxpr.invars, [*constants, *inputs], strict=True))
