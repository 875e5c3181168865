"""Expressions on scalars: folded and shared while they are built, emitted as JAX operations in layers.

XLA for CPU computes every output of a group of fused operations in a kernel of its own and repeats what the outputs
have in common: a body step of a thousand operations becomes many thousand. So the graph decides which intermediate
values are kept (those used more than once that cost more to repeat than to store), and emits each layer of kept values
as one call that XLA must not inline, which keeps fusion inside the layer.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.execution._jax import Primitive, as_function, call_apart, register, reshaped

Scalar = Any  # a Ref, or a Python number known at trace time
Operations = list  # of (name, how to emit it, arguments), as a Graph has them


REPEAT = 20  # operations that may be repeated per extra use before a value is kept instead
EARLY = 3  # operations on inputs alone that are done early, so that later layers need not read the inputs
COST = {"sin": 15, "cos": 15, "div": 8, "sqrt": 8, "rsqrt": 8}  # of operations that cost more than one


class View:
    """Entry `index` of a stacked array (..., lanes, n), cut out where it is used."""

    __slots__ = ("array", "index")

    def __init__(self, array: jax.Array, index: int):
        self.array, self.index = array, index

    def value(self) -> jax.Array:
        return self.array[..., self.index]


class Ref:
    """A node of a graph."""

    __slots__ = ("index",)

    def __init__(self, index: int):
        self.index = index


def is_number(x: Scalar) -> bool:
    return not isinstance(x, Ref)


class Graph:
    """A growing list of scalar operations; equal operations are one node, and known numbers fold."""

    def __init__(self) -> None:
        self.ops: list[tuple[str, Any, tuple[Scalar, ...]]] = []  # name, how to emit it, arguments
        self._known: dict[Any, Ref] = {}

    def input(self) -> Ref:
        self.ops.append(("input", None, ()))
        return Ref(len(self.ops) - 1)

    def node(self, name: str, emit: Any, *args: Scalar, key: Any = None) -> Ref:
        # Equal numbers of other types, and zeros of other signs, are others: 1 and 1.0 and True, 0.0 and -0.0.
        ids = tuple(a.index if isinstance(a, Ref) else ("#", type(a), a or repr(a)) for a in args)
        if name in ("add", "mul"):
            ids = tuple(sorted(ids, key=str))
        found = self._known.get((name, key, ids))
        if found is None:
            self.ops.append((name, emit, args))
            found = self._known[(name, key, ids)] = Ref(len(self.ops) - 1)
        return found

    def close(self) -> None:
        """Nothing will be added: what finds equal operations is forgotten, most of the memory of a graph."""
        self._known.clear()

    # -- arithmetic that folds
    def add(self, a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and is_number(b):
            return a + b
        if is_number(a):
            a, b = b, a
        if is_number(b):
            return a if b == 0 else self.node("add", _operator("+"), a, b)
        if (negated := self._negated(b)) is not None:
            return self.sub(a, negated)
        if (negated := self._negated(a)) is not None:
            return self.sub(b, negated)
        return self.node("add", lax.add, a, b)

    def sub(self, a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and is_number(b):
            return a - b
        if is_number(b):
            return a if b == 0 else self.node("sub", _operator("-"), a, b)
        if is_number(a):
            return self.neg(b) if a == 0 else self.node("sub", _operator("-"), a, b)
        if (negated := self._negated(b)) is not None:
            return self.add(a, negated)
        return self.node("sub", lax.sub, a, b)

    def mul(self, a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and is_number(b):
            return a * b
        if is_number(a):
            a, b = b, a
        if is_number(b):
            if b == 0:
                return 0 if type(b) is int else 0.0
            if abs(b) == 1:
                return a if b == 1 else self.neg(a)
            return self.node("mul", _operator("*"), a, b)
        for x, y in ((a, b), (b, a)):
            if (negated := self._negated(x)) is not None:
                return self.neg(self.mul(negated, y))
        return self.node("mul", lax.mul, a, b)

    def div(self, a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and (a == 0 or is_number(b)):
            return _quotient(a, b) if is_number(b) else 0.0
        if is_number(b) and b == 1:
            return a
        return self.node("div", _operator("/") if is_number(a) or is_number(b) else lax.div, a, b)

    def neg(self, a: Scalar) -> Scalar:
        if is_number(a):
            return -a
        if (negated := self._negated(a)) is not None:
            return negated
        name, _, args = self.ops[a.index]
        if name == "sub" and not any(map(is_number, args)):
            return self.sub(args[1], args[0])
        return self.node("neg", lax.neg, a)

    def _negated(self, a: Ref) -> Ref | None:
        """x if a is -x."""
        name, _, args = self.ops[a.index]
        return args[0] if name == "neg" else None

    # -- emission
    def emit(self, outputs: Sequence[Scalar], inputs: Sequence[Any]) -> list[Any]:
        """The outputs, as arrays or numbers, given the inputs in the order in which they were made; None: not needed.

        An output that is an input comes back as the object that went in.
        """
        layers, needs = self._plan([x.index for x in outputs if isinstance(x, Ref)])
        entered = iter(inputs)
        values: dict[int, Any] = {i: next(entered) for i, (name, _, _) in enumerate(self.ops) if name == "input"}
        for number, members in enumerate(layers):
            sources = {s: values[s] for s in sorted(set().union(*(needs[m] for m in members)))}
            values.update(zip(members, self._call(members, sources, number == 0), strict=True))
        return [values[x.index] if isinstance(x, Ref) else x for x in outputs]

    def _call(self, members: list[int], sources: dict[int, Any], first: bool) -> Sequence[jax.Array]:
        """One layer from the values that it uses, as a call of its own where that helps XLA."""
        arrays = {id(_stored(x)): _stored(x) for x in sources.values()}
        position = {key: n for n, key in enumerate(arrays)}
        where = {s: (position[id(_stored(x))], x.index if isinstance(x, View) else None) for s, x in sources.items()}

        def layer(*stored):
            values = {s: stored[n] if k is None else View(stored[n], k).value() for s, (n, k) in where.items()}
            return self._layer(members, values)

        if first:
            return layer(*arrays.values())
        return as_layer(layer)(*arrays.values())

    def _layer(self, members: list[int], values: dict[int, jax.Array]) -> list[jax.Array]:
        """The values of some nodes from those that are kept already."""

        def value(index: int) -> jax.Array:
            if index not in values:
                _, emit, args = self.ops[index]
                values[index] = emit(*(value(a.index) if isinstance(a, Ref) else a for a in args))
            return values[index]

        return [value(m) for m in members]

    def _plan(self, wanted: list[int]) -> tuple[list[list[int]], dict[int, frozenset[int]]]:
        """Layers of nodes to keep, and for each the kept nodes it is computed from."""
        users = self._users(wanted)
        results = set(wanted)
        cones: dict[int, tuple[frozenset[int], frozenset[int]]] = {}  # node -> (operations to repeat, kept sources)
        depth: dict[int, int] = {}
        needs: dict[int, frozenset[int]] = {}
        layers: list[list[int]] = []

        def keep(index: int, sources: frozenset[int]) -> None:
            level = 1 + max((depth[s] for s in sources), default=0)
            depth[index], needs[index] = level, sources
            while len(layers) < level:
                layers.append([])
            layers[level - 1].append(index)
            cones[index] = (frozenset(), frozenset((index,)))

        for index, (name, _, args) in enumerate(self.ops):
            if users[index] == 0 and index not in results:
                continue
            if name == "input":  # also where it is a result: nothing to compute
                cones[index], depth[index] = (frozenset(), frozenset((index,))), 0
                continue
            before = [a.index for a in args if isinstance(a, Ref)]
            if any(depth[s] for a in before for s in cones[a][1]):
                for a in before:
                    repeated, sources = cones[a]
                    if len(repeated) >= EARLY and not any(depth[s] for s in sources):
                        keep(a, sources)
            repeated, sources = {index}, set()
            for a in before:
                repeated |= cones[a][0]
                sources |= cones[a][1]
            cost = sum(COST.get(self.ops[i][0], 1) for i in repeated)
            if index in results or cost * (users[index] - 1) > REPEAT:
                keep(index, frozenset(sources))
            else:
                cones[index] = (frozenset(repeated), frozenset(sources))
        return layers, needs

    def _users(self, wanted: list[int]) -> list[int]:
        """For each node the number of nodes that use it, among those that the results need."""
        users = [0] * len(self.ops)
        alive = [False] * len(self.ops)
        for index in wanted:
            alive[index] = True
        for index in reversed(range(len(self.ops))):
            if alive[index]:
                for a in {a.index for a in self.ops[index][2] if isinstance(a, Ref)}:
                    users[a] += 1
                    alive[a] = True
        return users


def _quotient(a: float, b: float) -> float:
    """As of floating arrays: a division by zero is infinite, or no number."""
    with np.errstate(all="ignore"):
        return float(np.divide(np.float64(a), np.float64(b)))


def _stored(x: Any) -> jax.Array:
    return x.array if isinstance(x, View) else x


def _operator(symbol: str) -> Callable:
    """Arithmetic between an array and a Python number, which takes the array's dtype."""
    return {
        "+": lambda a, b: jnp.add(a, b),
        "-": lambda a, b: jnp.subtract(a, b),
        "*": lambda a, b: jnp.multiply(a, b),
        "/": lambda a, b: jnp.divide(a, b),
    }[symbol]


# ---- a layer: a call that XLA must not inline, and which `batch_last` knows
layer_p = Primitive("layer")


def as_layer(function: Callable) -> Callable:
    """`function` of arrays, returning a list of them, as one layer."""
    return lambda *arrays: layer_p.bind(*arrays, jaxpr=jax.make_jaxpr(function)(*arrays))


def _run(*arrays, jaxpr) -> list[jax.Array]:
    return as_function(jaxpr.jaxpr, jaxpr.consts)(*arrays)


def _apart(*arrays, jaxpr) -> list[jax.Array]:
    def layer(*arrays):
        return _run(*arrays, jaxpr=jaxpr)

    return call_apart(layer)(*arrays)


def _vmap(arrays, axes, *, jaxpr):
    run = jax.make_jaxpr(jax.vmap(as_function(jaxpr.jaxpr, jaxpr.consts), axes))(*arrays)
    return layer_p.bind(*arrays, jaxpr=run), [0] * len(run.out_avals)


_shapes = lambda *_, jaxpr: [reshaped(x, x.shape) for x in jaxpr.out_avals]
register(layer_p, _run, _shapes, _vmap, cpu=lambda ctx: _apart)
