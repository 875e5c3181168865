"""A scalarized body step as one operation on arrays of lanes, whose derivatives are scalarized steps again.

Derivatives of a step are taken where it is still a function of small arrays: its tangent and its transpose are steps
too, folded, shared and cut into layers like the step itself. They compute anew what they need of the step, so nothing
but its inputs waits for a reverse pass.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, reduce
from operator import or_
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution._jax import Primitive, Zero, is_undefined_primal, no_tangent, prune, register, reshaped
from lgjax.execution.scalars.entries import map_objects, objects
from lgjax.execution.scalars.graph import Graph, Ref, View
from lgjax.execution.scalars.interpreter import Block, Interpreter, is_known
from lgjax.execution.scalars.ordering import asked_for


class Place(NamedTuple):
    """Source of an entry: an array, or a row of one."""

    array: int
    row: int | None


def scalarized(step: Callable) -> Callable:
    """`step` on pytrees of Blocks, entry by entry. An output that is an input comes back as the object that went in.

    Blocks of the same pattern, with the same numbers in the same places, share one trace of it.
    """
    known: dict[Any, tuple[Traced, Any]] = {}

    def run(*args):
        blocks, treedef = jax.tree.flatten(args)
        arrays: list[jax.Array] = []
        number: dict[int, int] = {}
        entered: dict[Place, Any] = {}

        def enter(x):
            if is_known(x):
                return x
            array = x.array if isinstance(x, View) else x
            if id(array) not in number:
                number[id(array)] = len(arrays)
                arrays.append(array)
            place = Place(number[id(array)], x.index if isinstance(x, View) else None)
            entered[place] = x
            return place

        entries = [map_objects(enter, b.entries) for b in blocks]
        pattern = treedef, tuple((x.shape, tuple(x.flat), b.dtype) for x, b in zip(entries, blocks, strict=True))
        if pattern not in known:
            known[pattern] = _traced(step, treedef, entries, [b.dtype for b in blocks])
        traced, tree = known[pattern]
        refs = [x for out in traced.outputs for x in out.flat if isinstance(x, Ref)]
        values: dict[int, Any] = {x.index: entered[traced.place[x.index]] for x in refs if x.index in traced.place}
        new = tuple(dict.fromkeys(x.index for x in refs if x.index not in values))
        values.update(zip(new, traced.bind(new, dict(enumerate(arrays))), strict=True))
        value = lambda x: values[x.index] if isinstance(x, Ref) else x
        out = [Block(map_objects(value, x), dtype) for x, dtype in zip(traced.outputs, traced.out_dtypes, strict=True)]
        return tree.unflatten(out)

    return run


def _traced(step: Callable, treedef, entries: list[np.ndarray], dtypes: list) -> tuple["Traced", Any]:
    """The graph of a step and the form of its results."""
    trees: list = []

    def flat(*leaves):
        out, tree = jax.tree.flatten(step(*treedef.unflatten(leaves)))
        trees.append(tree)
        return out

    return Traced(flat, entries, dtypes), trees[0]


class Traced:
    """`function` of small arrays, returning a list of them, as a graph of scalars.

    entries: for each argument an object array of Places and of numbers. outputs: likewise of Refs and numbers.
    """

    def __init__(self, function: Callable, entries: list[np.ndarray], dtypes: Sequence):
        self.function, self.entries = function, entries
        self.specs = [jax.ShapeDtypeStruct(x.shape, dtype) for x, dtype in zip(entries, dtypes, strict=True)]
        closed = jax.make_jaxpr(function)(*self.specs)
        self.graph = Graph()
        inputs: dict[Place, Ref] = {}

        def enter(x):
            if not isinstance(x, Place):
                return x
            if x not in inputs:
                inputs[x] = self.graph.input()
            return inputs[x]

        entered = [map_objects(enter, x) for x in entries]
        self.place = {ref.index: place for place, ref in inputs.items()}
        self.outputs = Interpreter(self.graph).evaluate(closed.jaxpr, list(map(objects, closed.consts)), entered)
        self.graph.close()
        self.out_dtypes = [x.dtype for x in closed.out_avals]
        self.stacks = {place.array for place in inputs if place.row is not None}
        self.tangent = lru_cache(self._tangent)
        self.transpose = lru_cache(self._transpose)

    @cached_property
    def where(self) -> dict[int, tuple[int, int]]:
        """Output and entry in which a node is found first."""
        found: dict[int, tuple[int, int]] = {}
        for leaf, out in enumerate(self.outputs):
            for k, x in enumerate(out.flat):
                if isinstance(x, Ref):
                    found.setdefault(x.index, (leaf, k))
        return found

    @cached_property
    def sources(self) -> list[int]:
        """The arrays that each node needs, bit by bit."""
        out: list[int] = []
        for index, (_, _, args) in enumerate(self.graph.ops):
            bits = 1 << self.place[index].array if index in self.place else 0
            for a in args:
                bits |= out[a.index] if isinstance(a, Ref) else 0
            out.append(bits)
        return out

    def bind(self, refs: Sequence[int], arrays: dict[int, Any], batch: Sequence = ()) -> list:
        """The values of some nodes from the arrays; batch: (size, arrays that have this axis), the innermost first."""
        if not refs:
            return []
        used = self.used(refs)
        levels = tuple((size, frozenset(mapped) & set(used)) for size, mapped in batch)
        return step_p.bind(*(arrays[i] for i in used), traced=self, refs=tuple(refs), used=used, batch=levels)

    def used(self, refs: Sequence[int]) -> tuple[int, ...]:
        """The arrays that some nodes need."""
        bits = reduce(or_, (self.sources[ref] for ref in refs))
        return tuple(i for i in range(bits.bit_length()) if bits >> i & 1)

    def order(self, refs: Sequence[int]) -> list[int]:
        """The nodes that some nodes need, each behind what it needs."""
        return sorted(asked_for(self.graph.ops, refs))

    def emit(self, refs: Sequence[int], arrays: dict[int, Any]) -> list:
        view = lambda place: View(arrays[place.array], place.row) if place.row is not None else arrays[place.array]
        inputs = [view(place) if place.array in arrays else None for place in self.place.values()]
        out = self.graph.emit([Ref(ref) for ref in refs], inputs)
        return [x.value() if isinstance(x, View) else x for x in out]

    def _chosen(self, refs: Sequence[int]) -> list[int]:
        return sorted({self.where[ref][0] for ref in refs})

    def _tangent(self, refs: tuple[int, ...], moving: tuple[int, ...]) -> tuple["Traced", list]:
        """The tangents of some nodes, as nodes of another graph or 0, along tangents of arrays.

        The tangent of array moving[k] is array k of those that come after all places here.
        """
        first, outs = self._count, self._chosen(refs)
        turn = lambda x: Place(first + moving.index(x.array), x.row) if _of(x, moving) else 0.0
        leaves = [
            i
            for i, (x, spec) in enumerate(zip(self.entries, self.specs, strict=True))
            if _floating(spec.dtype) and any(_of(y, moving) for y in x.flat)
        ]

        def function(*args):
            primals, tangents = args[: len(self.entries)], args[len(self.entries) :]

            def of(*values):
                out = self.function(*_replaced(primals, leaves, values))
                return [out[i] for i in outs]

            return jax.jvp(of, [primals[i] for i in leaves], list(tangents))[1]

        entries = [*self.entries, *(map_objects(turn, self.entries[i]) for i in leaves)]
        dtypes = [*(x.dtype for x in self.specs), *(self.specs[i].dtype for i in leaves)]
        traced = Traced(function, entries, dtypes)
        return traced, [traced.outputs[outs.index(leaf)].flat[k] for leaf, k in (self.where[ref] for ref in refs)]

    def _transpose(self, refs: tuple[int, ...], linear: tuple[int, ...]) -> tuple["Traced", list]:
        """(place, cotangent) of every entry of the linear arrays, as nodes of another graph or 0.

        The cotangent of refs[k] is array k of those that come after all places here.
        """
        outs = self._chosen(refs)
        leaves = [i for i, x in enumerate(self.entries) if any(_of(y, linear) for y in x.flat)]
        others = [i for i in range(len(self.entries)) if i not in leaves]
        cotangents = [np.zeros(self.outputs[leaf].shape, object) for leaf in outs]
        for k, (leaf, entry) in enumerate(self.where[ref] for ref in refs):
            cotangents[outs.index(leaf)].flat[entry] = Place(self._count + k, None)

        def function(*args):
            known, given = args[: len(others)], args[len(others) :]
            blank = _replaced([None] * len(self.entries), others, known)

            def of(*values):
                out = self.function(*_replaced(blank, leaves, values))
                return [out[i] for i in outs]

            return list(jax.linear_transpose(of, *(self.specs[i] for i in leaves))(list(given)))

        entries = [*(self.entries[i] for i in others), *cotangents]
        dtypes = [*(self.specs[i].dtype for i in others), *(self.out_dtypes[i] for i in outs)]
        traced = Traced(function, entries, dtypes)
        pairs = [
            (place, x)
            for i, out in zip(leaves, traced.outputs, strict=True)
            for place, x in zip(self.entries[i].flat, out.flat, strict=True)
            if isinstance(place, Place)
        ]
        return traced, pairs

    @cached_property
    def _count(self) -> int:
        """Of arrays."""
        return 1 + max((x.array for out in self.entries for x in out.flat if isinstance(x, Place)), default=-1)


def _of(x, arrays) -> bool:
    return isinstance(x, Place) and x.array in arrays


def _replaced(values: Sequence, where: Sequence[int], by: Sequence) -> list:
    out = list(values)
    for i, x in zip(where, by, strict=True):
        out[i] = x
    return out


def _floating(dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)


# ---- the operation
step_p = Primitive("scalar_step")


def emission(traced: Traced, refs, used, batch) -> Callable:
    """The operation as a function of its arrays."""
    run = lambda *arrays: traced.emit(refs, dict(zip(used, arrays, strict=True)))
    for size, mapped in batch:
        run = jax.vmap(run, [0 if i in mapped else None for i in used], axis_size=size)
    return run


def needs(params: dict) -> list[list[int]]:
    """For each result of the operation the positions of the arguments that it depends on."""
    sources = params["traced"].sources
    return [[n for n, i in enumerate(params["used"]) if sources[ref] >> i & 1] for ref in params["refs"]]


def _run(*arrays, traced, refs, used, batch):
    return emission(traced, refs, used, batch)(*arrays)


def _shapes(*avals, traced: Traced, refs, used, batch):
    shape = avals[0].shape[sum(used[0] in mapped for _, mapped in batch) :]
    lanes = shape[:-1] if used[0] in traced.stacks else shape
    shape = (*(size for size, _ in reversed(batch)), *lanes)
    dtypes = [traced.out_dtypes[traced.where[ref][0]] for ref in refs]
    return [reshaped(avals[0], shape, dtype) for dtype in dtypes]


def _jvp(primals, tangents, *, traced: Traced, refs, used, batch):
    outs = step_p.bind(*primals, traced=traced, refs=refs, used=used, batch=batch)
    moving = tuple(i for i, t in zip(used, tangents, strict=True) if not isinstance(t, Zero))
    along, nodes = traced.tangent(refs, moving)
    turned = {traced._count + k: t for k, t in enumerate(t for t in tangents if not isinstance(t, Zero))}
    levels = [(n, {*mapped, *(traced._count + k for k, i in enumerate(moving) if i in mapped)}) for n, mapped in batch]
    values = _bound(along, nodes, dict(zip(used, primals, strict=True)) | turned, levels)
    return outs, [no_tangent(x) if t is None else t for x, t in zip(outs, values, strict=True)]


def _bound(traced: Traced, nodes: list, arrays: dict, batch) -> list:
    """Values of nodes; None for those that are 0."""
    refs = tuple(dict.fromkeys(x.index for x in nodes if isinstance(x, Ref)))
    values = dict(zip(refs, traced.bind(refs, arrays, batch), strict=True))
    return [values[x.index] if isinstance(x, Ref) else None for x in nodes]


def _transpose(cotangents, *args, traced: Traced, refs, used, batch):
    linear = tuple(i for i, x in zip(used, args, strict=True) if is_undefined_primal(x))
    given = [k for k, ct in enumerate(cotangents) if not isinstance(ct, Zero)]
    back, pairs = traced.transpose(tuple(refs[k] for k in given), linear)
    cts = {traced._count + n: cotangents[k] for n, k in enumerate(given)}
    levels = [(size, {*mapped, *cts}) for size, mapped in batch]
    known = {i: x for i, x in zip(used, args, strict=True) if i not in linear}
    found: dict[Place, Any] = {}
    for (place, _), x in zip(pairs, _bound(back, [x for _, x in pairs], known | cts, levels), strict=True):
        found[place] = x if found.get(place) is None else found[place] if x is None else found[place] + x
    axes = {i: [len(batch) - 1 - n for n, (_, mapped) in enumerate(batch) if i not in mapped] for i in linear}
    return [
        _assembled({place.row: x for place, x in found.items() if place.array == i}, arg.aval, axes[i])
        if i in linear
        else None
        for i, arg in zip(used, args, strict=True)
    ]


def _assembled(rows: dict, aval, summed: list[int]):
    """The cotangent of an array from those of its rows, summed over batches that it does not have."""
    if all(x is None for x in rows.values()):
        return Zero(aval)
    total = lambda x: jnp.sum(x, summed) if summed else x
    if None in rows:
        return total(rows[None])
    zero = jnp.zeros(aval.shape[:-1], aval.dtype)
    return jnp.stack([zero if (x := rows.get(n)) is None else total(x) for n in range(aval.shape[-1])], -1)


def _vmap(args, axes, *, traced: Traced, refs, used, batch):
    size = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    mapped = frozenset(i for i, axis in zip(used, axes, strict=True) if axis is not None)
    args = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(args, axes, strict=True)]
    out = step_p.bind(*args, traced=traced, refs=refs, used=used, batch=(*batch, (size, mapped)))
    return out, [0] * len(out)


def _needed(asked: list[bool], eqn):
    """Without the results that nobody asks for."""
    if not any(asked):
        return [False] * len(eqn.invars), None
    traced, used = eqn.params["traced"], eqn.params["used"]
    refs = tuple(ref for ref, a in zip(eqn.params["refs"], asked, strict=True) if a)
    left = traced.used(refs)
    kept = [i in left for i in used]
    return kept, eqn.replace(
        invars=[x for x, k in zip(eqn.invars, kept, strict=True) if k],
        outvars=[x for x, a in zip(eqn.outvars, asked, strict=True) if a],
        params=eqn.params | {"refs": refs, "used": left},
    )


register(step_p, _run, _shapes, _vmap, _jvp, _transpose)
prune(step_p, _needed)
