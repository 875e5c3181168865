"""`lax.scan` over the levels of a run, whose batch axis under `jax.vmap` comes behind the lanes.

A level does arithmetic on arrays of lanes, and parameters have no batch axis. Where the batch is the last axis, they
are constant along contiguous memory; where `jax.vmap` puts it, in front of the lanes, they are not and little
vectorizes. Inputs are cut out of their stacks in the kernels that use them, not before.

Tangents and cotangents are loops of the same kind. The tangent of a level is computed from the level's inputs, so these
and the carries are all that waits for a reverse pass.

The loop is a primitive, because rules attached to functions do not do: a `jax.custom_jvp` whose rule finds other batch
axes than its function is wrong under a derivative of a jitted vmap (jax-ml/jax#16374).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lgjax.execution._jax import (
    Literal,
    Primitive,
    Zero,
    instantiate_zeros,
    is_undefined_primal,
    no_tangent,
    register,
    reshaped,
)
from lgjax.execution.batch_last.evaluation import Arrays, Behind, Slice, cotangents, evaluate, merged, tangents, traced
from lgjax.execution.step import needs, step_p


def lane_scan(body: Callable, start, xs, length: int, reverse: bool = False):
    """The results of `lax.scan`, for bodies of elementwise operations; batched, the batch axis comes last."""
    leaves, first = jax.tree.flatten(start)[0], jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    trees: list = []

    def level(carry, x):
        out, tree = jax.tree.flatten(body(jax.tree.unflatten(jax.tree.structure(start), carry), x))
        trees.append(tree)
        return out

    jaxpr, constants = traced(level, leaves, first)
    args = [*constants, *leaves, *jax.tree.leaves(xs)]
    loop = _Loop(jaxpr, len(constants), len(leaves), length, reverse, (False,) * len(args))
    return jax.tree.unflatten(trees[0], loop_p.bind(*args, loop=loop))


@dataclass(frozen=True, eq=False)
class _Loop:
    """The jaxpr of one level, of its constants, the carry and the inputs, and how often it runs.

    For `size` systems, the last axis of the carry, of the results and of the arguments that are `batched`. None: for
    one.
    """

    level: Any
    n_constants: int
    n_carry: int
    length: int
    reverse: bool
    batched: tuple[bool, ...]
    size: int | None = None

    def parts(self, args: Sequence) -> tuple[list, list, list]:
        """Constants, carry and inputs."""
        stop = self.n_constants + self.n_carry
        return list(args[: self.n_constants]), list(args[self.n_constants : stop]), list(args[stop:])

    def chosen(self, args: Sequence, marks: Sequence[bool]) -> list[list]:
        """Those that are marked, of constants, carry and inputs."""
        pairs = zip(self.parts(args), self.parts(marks), strict=True)
        return [[x for x, m in zip(part, flags, strict=True) if m] for part, flags in pairs]

    @property
    def avals(self) -> list:
        """Of the arguments, for one level of one system."""
        return [x.aval for x in self.level.invars]

    def at_level(self, args: Sequence) -> Arrays:
        """One level of one system."""
        return evaluate(self.level, args)

    def saving(self, marks: Sequence[bool]) -> "_Loop":
        """The loop that also returns the carries that are marked, as they come into each level."""
        if not any(marks):
            return self
        some = [n for n, m in enumerate(marks, self.n_constants) if m]
        level, _ = traced(lambda args: [*self.at_level(args), *(args[n] for n in some)], self.avals)
        return replace(self, level=level)

    def shapes(self) -> list:
        """Of the results."""
        avals = [x.aval for x in self.level.outvars]
        batch = () if self.size is None else (self.size,)
        stacks = [()] * self.n_carry + [(self.length,)] * (len(avals) - self.n_carry)
        return [reshaped(x, (*n, *x.shape, *batch)) for x, n in zip(avals, stacks, strict=True)]

    def run(self, *args) -> Arrays:
        constants, start, xs = self.parts(args)

        def body(carry, i):
            values = [*constants, *carry, *(Slice(x, i) for x in xs)]
            env = dict(zip(self.level.invars, zip(values, self.batched, strict=True), strict=True))
            out = Behind(self.size).outputs(self.level, env)
            return out[: self.n_carry], out[self.n_carry :]

        final, ys = lax.scan(body, start, jnp.arange(self.length, dtype=jnp.int32), reverse=self.reverse)
        return [*final, *ys]


# ---- transformations
def _jvp(primals, directions, *, loop: _Loop):
    moving, moved = _moving(loop, [not isinstance(t, Zero) for t in directions])
    directions = [instantiate_zeros(t) if m else t for t, m in zip(directions, moving, strict=True)]
    level, more, kept = _tangent_level(loop, moving, moved)
    outs = loop_p.bind(*primals, loop=loop.saving(loop.parts(kept)[1]))
    outs, carries = outs[: len(moved)], outs[len(moved) :]
    (constants, _, xs), (turns, start, streams) = loop.chosen(primals, kept), loop.chosen(directions, moving)
    flags, turning = loop.chosen(loop.batched, kept), loop.chosen(loop.batched, moving)
    linear = replace(
        loop,
        level=level,
        n_constants=len(more) + len(constants) + len(turns),
        n_carry=len(start),
        batched=(*[False] * len(more), *flags[0], *turning[0], *turning[1], *flags[1], *flags[2], *turning[2]),
    )
    found = iter(loop_p.bind(*more, *constants, *turns, *start, *carries, *xs, *streams, loop=linear))
    return outs, [next(found) if m else no_tangent(x) for x, m in zip(outs, moved, strict=True)]


def _moving(loop: _Loop, given: list[bool]) -> tuple[list[bool], list[bool]]:
    """Marks of the arguments and of the results that have a tangent, if the arguments `given` have one."""
    moving = given
    while True:
        reached = {x for x, m in zip(loop.level.invars, moving, strict=True) if m}
        hit = partial(_among, reached)
        for eqn in loop.level.eqns:
            into = list(map(hit, eqn.invars))
            through = [any(into)] * len(eqn.outvars)
            if eqn.primitive is step_p:
                through = [any(into[n] for n in positions) for positions in needs(eqn.params)]
            reached |= {
                x for x, h in zip(eqn.outvars, through, strict=True) if h and jnp.issubdtype(x.aval.dtype, jnp.floating)
            }
        moved = list(map(hit, loop.level.outvars))
        constants, carry, xs = loop.parts(moving)
        more = [*constants, *(a or b for a, b in zip(carry, moved, strict=False)), *xs]
        if more == moving:
            return moving, [*carry, *moved[loop.n_carry :]]
        moving = more


def _among(variables: set, atom) -> bool:
    return not isinstance(atom, Literal) and atom in variables


def _tangent_level(loop: _Loop, moving: list[bool], moved: list[bool]) -> tuple[Any, list, list[bool]]:
    """The jaxpr of the tangents of a level's results, arrays it closes over, and the arguments of the level it needs.

    Its own arguments are those arrays; the constants it needs, and the tangents of constants; those of the carry; the
    carry it needs, which is one of its inputs; the inputs it needs, and their tangents.
    """
    some = [n for n, m in enumerate(moving) if m]
    short, more, kept = tangents(loop.level, some, moved)
    n_more, n_kept = len(more), sum(kept)

    constants, carry, xs = loop.chosen(range(len(loop.avals)), kept)
    turns, start, streams = loop.chosen(range(len(loop.avals)), moving)
    place = {n: n_more + k for k, n in enumerate(n for n, m in enumerate(kept) if m)}
    turned = {n: n_more + n_kept + k for k, n in enumerate(some)}
    order = [
        *range(n_more),
        *(place[n] for n in constants),
        *(turned[n] for n in [*turns, *start]),
        *(place[n] for n in [*carry, *xs]),
        *(turned[n] for n in streams),
    ]
    back = {n: k for k, n in enumerate(order)}
    level, _ = traced(
        lambda args: evaluate(short, (args[back[n]] for n in range(len(args)))), [short.invars[n].aval for n in order]
    )
    return level, more, kept


def _transpose(given, *args, loop: _Loop):
    """Of a loop that is linear in its carry and in the arguments that are not known."""
    unknown = [is_undefined_primal(x) for x in args]
    linear = [*loop.parts(unknown)[0], *[True] * loop.n_carry, *loop.parts(unknown)[2]]
    known = [not m for m in linear]
    some, fixed = ([n for n, m in enumerate(linear) if m is wanted] for wanted in (True, False))
    n_sums, wide = sum(loop.parts(linear)[0]), loop.size is not None
    asked = [n < loop.n_carry or not isinstance(ct, Zero) for n, ct in enumerate(given)]

    def back(constants, sums, carry, xs, streams):
        cts = cotangents(loop.level, dict(zip(fixed, [*constants, *xs], strict=True)), asked, [*carry, *streams])
        return [*map(jnp.add, sums, cts[:n_sums]), *cts[n_sums:]]

    avals = loop.chosen(loop.avals, known), loop.chosen(loop.avals, linear)
    out = [x.aval for x, a in zip(loop.level.outvars, asked, strict=True) if a]
    level, more = traced(back, avals[0][0], avals[1][0], out[: loop.n_carry], avals[0][2], out[loop.n_carry :])
    constants, _, xs = loop.chosen(args, known)
    flags = loop.chosen(loop.batched, known)
    batch = (loop.size,) if wide else ()
    sums = [jnp.zeros((*x.shape, *batch), x.dtype) for x in avals[1][0]]
    cts = [instantiate_zeros(ct) for ct, a in zip(given, asked, strict=True) if a]
    n_cts = len(cts) - loop.n_carry
    backwards = replace(
        loop,
        level=level,
        n_constants=len(more) + len(constants),
        n_carry=n_sums + loop.n_carry,
        reverse=not loop.reverse,
        batched=(*[False] * len(more), *flags[0], *[wide] * (n_sums + loop.n_carry), *flags[2], *[wide] * n_cts),
    )
    outs = loop_p.bind(*more, *constants, *sums, *cts[: loop.n_carry], *xs, *cts[loop.n_carry :], loop=backwards)
    found = {
        n: x if b == wide else x.sum(-1)
        for n, x, b in zip(some, outs, (b for b, m in zip(loop.batched, linear, strict=True) if m), strict=True)
    }
    return [found[n] if m else None for n, m in enumerate(unknown)]


def _vmap(args, axes, *, loop: _Loop):
    size = loop.size
    more = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    together = [b or axis is not None for b, axis in zip(loop.batched, axes, strict=True)]
    carry = slice(loop.n_constants, loop.n_constants + loop.n_carry)
    together[carry] = [True] * loop.n_carry  # which keeps its shape
    args = [
        merged(x, size if b else None, size, axis, more) if t else x
        for x, b, axis, t in zip(args, loop.batched, axes, together, strict=True)
    ]
    outs = loop_p.bind(*args, loop=replace(loop, size=more * (1 if size is None else size), batched=tuple(together)))
    apart = [x if size is None else x.reshape(*x.shape[:-1], size, more) for x in outs]
    return apart, [x.ndim - 1 for x in apart]


loop_p = Primitive("lane_scan")
register(loop_p, lambda *args, loop: loop.run(*args), lambda *avals, loop: loop.shapes(), _vmap, _jvp, _transpose)
