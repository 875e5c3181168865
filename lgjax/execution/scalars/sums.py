"""Sums as nodes whose terms may be added in any order.

A GPU multiplies and adds in one instruction, so a b + c d + e takes two if e comes first, and three as it stands. Which
order of the terms lets the fewest values wait is decided where operations are ordered. Sums and differences without a
product stay as they are written: their round-off may be what they are for.

Read first: `graph.py`. Next: `ordering.py`.
"""

from collections.abc import Sequence

from lgjax.execution.scalars.graph import Operations, Ref, is_number

ADDITIONS = ("add", "sub")


def with_sums(ops: Operations, wanted: Sequence[int]) -> Operations:
    """The operations, with nodes "sum" of nodes "term", which come behind all others.

    A term's arguments are a value, or the two factors of a product that nothing else uses; it also says which sum it
    belongs to, its sign, and at which node the product or the addition was written. At least one sign is +. Numbers
    may be factors but no terms.
    """
    ops, users = list(ops), _users(ops, wanted)
    inside = [
        bool(u) and name in ADDITIONS and not any(map(is_number, args))
        for u, (name, _, args) in zip(users, ops, strict=True)
    ]
    part = _parts(ops, users, inside)
    for root in [k for k, x in enumerate(inside) if x and not part[k]]:
        terms = _terms(ops, part, root)
        products = [_is_product(ops, users, k) for k, _, _ in terms]
        if any(products):
            first = len(ops)
            for (k, sign, at), product in zip(terms, products, strict=True):
                ops.append(("term", (root, sign, k if product else at), ops[k][2] if product else (Ref(k),)))
            ops[root] = "sum", None, tuple(map(Ref, range(first, len(ops))))
    return ops


def _is_product(ops: Operations, users: list[list[int]], index: int) -> bool:
    """Whether a node is a product that one node uses."""
    return ops[index][0] == "mul" and len(users[index]) == 1


def _parts(ops: Operations, users: list[list[int]], inside: Sequence[bool]) -> list[bool]:
    """Which sums with products are terms of a sum, and of nothing else."""
    part = [False] * len(ops)
    for k in [k for k, x in enumerate(inside) if x]:
        alone = len(users[k]) == 1 and users[k][0] >= 0 and inside[users[k][0]]
        part[k] = alone and any(part[a.index] or _is_product(ops, users, a.index) for a in ops[k][2])
    return part


def _users(ops: Operations, wanted: Sequence[int]) -> list[list[int]]:
    """Users of each node, among those that the results need; -1 for a result itself."""
    users: list[list[int]] = [[] for _ in ops]
    for index in wanted:
        users[index].append(-1)
    for index in reversed(range(len(ops))):
        for a in ops[index][2] if users[index] else ():
            if isinstance(a, Ref):
                users[a.index].append(index)
    return users


def _terms(ops: Operations, part: Sequence[bool], root: int) -> list[tuple[int, int, int]]:
    """The nodes that a sum adds, with their signs and the addition that each is part of, the first node first."""
    terms, stack = [], [(root, 1, root)]
    while stack:
        index, sign, at = stack.pop()
        if index != root and not part[index]:
            terms.append((index, sign, at))
            continue
        name, _, (a, b) = ops[index]
        stack += [(b.index, sign if name == "add" else -sign, index), (a.index, sign, index)]
    return terms
