"""`lax.scan` over the levels of a run, whose batch axis under `jax.vmap` comes behind the lanes.

A level does arithmetic on arrays of lanes, and parameters have no batch axis. Where the batch is the last axis, they
are constant along contiguous memory; where `jax.vmap` puts it, in front of the lanes, they are not and little
vectorises. Inputs are cut out of their stacks in the kernels that use them, not before. Derivatives are those of an
ordinary scan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jax.extend import core

from lgjax.multibody.scalar_graph import LAYER
from lgjax.multibody.scalarize import ELEMENTWISE

Arrays = list[jax.Array]


def lane_scan(body: Callable, start, xs, length: int, reverse: bool = False):
    """What `lax.scan` does, for bodies of elementwise operations."""
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    closed, shapes = jax.make_jaxpr(body, return_shape=True)(start, first)
    leaves = jax.tree.leaves(start)
    loop = _Loop(closed.jaxpr, len(closed.consts), len(leaves), length, reverse)
    out = loop.differentiable()(*closed.consts, *leaves, *jax.tree.leaves(xs))
    return jax.tree.unflatten(jax.tree.structure(shapes), out)


@dataclass(frozen=True, eq=False)
class _Loop:
    """The jaxpr of one level, of its constants, the carry and the inputs, and how often it runs."""

    level: Any
    n_constants: int
    n_carry: int
    length: int
    reverse: bool

    def _parts(self, args: Sequence) -> tuple[list, list, list]:
        stop = self.n_constants + self.n_carry
        return list(args[: self.n_constants]), list(args[self.n_constants : stop]), list(args[stop:])

    def plain(self, *args) -> Arrays:
        """By `lax.scan`, as it is."""
        constants, start, xs = self._parts(args)
        level = core.jaxpr_as_fun(core.ClosedJaxpr(self.level, constants))

        def body(carry, x):
            out = level(*carry, *x)
            return out[: self.n_carry], out[self.n_carry :]

        final, ys = lax.scan(body, start, xs, self.length, self.reverse)
        return [*final, *ys]

    def differentiable(self) -> Callable:
        f = jax.custom_jvp(self.side_by_side(None, [False] * len(self.level.constvars + self.level.invars)))

        def jvp(primals, tangents):
            moving = [not isinstance(t, SymbolicZero) for t in tangents]
            select = lambda xs: [x for x, m in zip(xs, moving, strict=True) if m]

            def of_moving(*values):
                stream = iter(values)
                return self.plain(*(next(stream) if m else x for x, m in zip(primals, moving, strict=True)))

            return jax.jvp(of_moving, select(primals), select(tangents))

        f.defjvp(jvp, symbolic_zeros=True)
        return f

    def side_by_side(self, size: int | None, batched: list[bool]) -> Callable:
        """For `size` systems, the last axis of the arguments that are batched; None: for one."""
        f = custom_vmap(lambda *args: self._run(size, batched, args))

        @f.def_vmap
        def rule(more: int, mapped: list[bool], *args):
            together = [b or m for b, m in zip(batched, mapped, strict=True)]
            carry = slice(self.n_constants, self.n_constants + self.n_carry)
            together[carry] = [True] * self.n_carry  # which keeps its shape
            args = [
                _merged(x, size if b else None, size, m, more) if t else x
                for x, b, m, t in zip(args, batched, mapped, together, strict=True)
            ]
            out = self.side_by_side(more * (size or 1), together)(*args)
            apart = [x if size is None else x.reshape(*x.shape[:-1], size, more) for x in out]
            return [jnp.moveaxis(x, -1, 0) for x in apart], [True] * len(out)

        return f

    def _run(self, size: int | None, batched: list[bool], args: Sequence) -> Arrays:
        constants, start, xs = self._parts(args)

        def body(carry, i):
            values = [*constants, *carry, *(_Slice(x, i) for x in xs)]
            variables = self.level.constvars + self.level.invars
            env = dict(zip(variables, zip(values, batched, strict=True), strict=True))
            out = _Batch(size).outputs(self.level, env)
            return out[: self.n_carry], out[self.n_carry :]

        final, ys = lax.scan(body, start, jnp.arange(self.length, dtype=jnp.int32), reverse=self.reverse)
        return [*final, *ys]


def _merged(x, own: int | None, size: int | None, mapped: bool, more: int) -> jax.Array:
    """An argument with the axes of both batches as its last one, whether or not it has them."""
    x = jnp.moveaxis(x, 0, -1) if mapped else _repeated(x, more)
    if size is None:
        return x
    if own is None:
        x = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], size, more))
    return x.reshape(*x.shape[:-2], size * more)


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
