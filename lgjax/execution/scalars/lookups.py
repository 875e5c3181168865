"""Arguments that a program reads at numbers that it computes: such arrays, like grids of heights, stay in memory.

Read first: `indexing.py`, which reads small ones by choices. Next: `program.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lgjax.execution._jax import Literal, jaxprs_in, while_parts
from lgjax.execution.jaxprs import remembered
from lgjax.execution.primitives import Way, named
from lgjax.execution.scalars.graph import is_number
from lgjax.execution.scalars.indexing import LOOKED_UP, is_known
from lgjax.execution.scalars.pulls import Pull

READ = named(Way.READ)
RENAMED = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "slice", "copy"}


def is_table(x: Any) -> bool:
    """Whether an array is known, and so large that its entries are better read from memory."""
    if isinstance(x, Pull) or x.size < LOOKED_UP or not all(map(is_number, x.flat)):
        return False
    return len(set(map(repr, x.flat))) > 1  # equal entries leave no choice


def is_looked_up(name: str, inputs: Sequence, by_turn: Callable) -> bool:
    """Whether a large known array is read at numbers that are not known; whole numbers at numbers by turn are known."""
    if not is_table(inputs[0]) or is_known(name, inputs):
        return False
    if any(isinstance(x, Pull) for x in inputs[1:]):
        return True
    numbers = [a for x in inputs[1:] for a in x.flat]
    whole = all(type(x) is int for x in inputs[0].flat)
    return not (whole and all(is_number(a) or by_turn(a) is not None for a in numbers))


def looked_up(jaxpr: Any) -> tuple[frozenset[int], bool]:
    """The large arguments that are read at unknown numbers, and whether any large array is, even a known one."""
    found, some = _found(jaxpr, frozenset())
    arguments = frozenset(n for n in found if jaxpr.invars[n].aval.size >= LOOKED_UP)
    return arguments, some or bool(arguments)


@remembered
def _found(jaxpr: Any, given: frozenset[int]) -> tuple[set[int], bool]:
    """The same with small arguments, too; those `given` are known."""
    known = _known(jaxpr, given)
    read, some = set(), False
    for eqn in reversed(jaxpr.eqns):
        name, operands = eqn.primitive.name, eqn.invars
        if name in READ:
            if not known.issuperset(_variables(operands[1:])):
                read.update(_variables(operands[:1]))
                some = some or operands[0].aval.size >= LOOKED_UP
        elif name in RENAMED and not read.isdisjoint(eqn.outvars):
            read.update(_variables(operands[:1]))
        for inner, outside in _inside(eqn):
            own = frozenset(n for n, x in enumerate(outside) if x is not None and known.issuperset(_variables([x])))
            found, inside = _found(inner, own)
            read.update(_variables(outside[n] for n in found))
            some = some or inside
    return {n for n, x in enumerate(jaxpr.invars) if x in read}, some


def _known(jaxpr: Any, given: frozenset[int]) -> set:
    known = {*jaxpr.constvars, *(jaxpr.invars[n] for n in given)}
    for eqn in jaxpr.eqns:
        if known.issuperset(_variables(eqn.invars)):
            known.update(eqn.outvars)
    return known


def _inside(eqn: Any) -> Iterator[tuple[Any, Sequence]]:
    """Each jaxpr within an equation, with its arguments as the equation names them; None if they change by the turn."""
    if eqn.primitive.name == "while":
        (first, condition), (second, body) = while_parts(eqn)
        carried = [None] * (len(eqn.invars) - first - second)
        yield condition.jaxpr, [*eqn.invars[:first], *carried]
        yield body.jaxpr, [*eqn.invars[first : first + second], *carried]
        return
    given = eqn.invars[eqn.primitive.name == "cond" :]
    for inner in jaxprs_in(eqn):
        yield inner, given if len(inner.invars) == len(given) else [None] * len(inner.invars)


def _variables(atoms: Iterable) -> list:
    return [x for x in atoms if x is not None and not isinstance(x, Literal)]
