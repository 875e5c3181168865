"""Values that a derivative reads instead of computing them again.

The derivative of a kernel reads the arguments of the kernel alone, and repeats what it needs (`operation.py`). Where
that is long, as a solver is, the function marks its result with `keep`. Then the kernel has it as a further result if
it is differentiated, and a reverse pass holds it for each step. Read first: `operation.py`.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax

from lgjax.execution._jax import Literal, Primitive, alone, altered, dce_jaxpr, jaxprs_in, no_tangent, register
from lgjax.execution.jaxprs import Arrays, remembered, traced

Tree = TypeVar("Tree")

keep_p = Primitive("keep")
known_p = Primitive("known")


def keep(tree: Tree) -> Tree:
    """The same arrays, constants to derivatives, which kernels hand on to their derivatives."""
    leaves, treedef = jax.tree.flatten(tree)
    return jax.tree.unflatten(treedef, keep_p.bind(*leaves) if leaves else [])


def known(found: Tree, again: Tree) -> Tree:
    """`found`, where derivatives compute `again`: the same arrays in a shorter way, from what is kept."""
    leaves, treedef = jax.tree.flatten((found, again))
    return jax.tree.unflatten(treedef, known_p.bind(*leaves))[0] if leaves else found


def _known_along(xs: Sequence, tangents: Sequence) -> tuple[list, list]:
    return known_p.bind(*xs), 2 * list(tangents[len(xs) // 2 :])


register(
    keep_p,
    lambda *xs: list(xs),
    lambda *xs: list(xs),
    lambda xs, axes: (keep_p.bind(*xs), axes),
    lambda xs, _: (outs := keep_p.bind(*xs), [no_tangent(x) for x in outs]),
)
register(
    known_p,
    lambda *xs: list(xs),
    lambda *xs: list(xs),
    lambda xs, axes: (known_p.bind(*xs), axes),
    _known_along,
)


@remembered
def keeps(jaxpr: Any) -> bool:
    """Whether anything is marked in a jaxpr."""
    return any(eqn.primitive is keep_p or any(map(keeps, jaxprs_in(eqn))) for eqn in jaxpr.eqns)


@remembered
def keeps_itself(jaxpr: Any) -> bool:
    """The same, but for what is marked in batched functions inside."""
    inside = lambda eqn: eqn.primitive.name != "batched" and any(map(keeps_itself, jaxprs_in(eqn)))
    return any(eqn.primitive is keep_p or inside(eqn) for eqn in jaxpr.eqns)


def linearized(jaxpr: Any, moving: Sequence[int], moved: Sequence[bool]) -> tuple[Any, Any, list, list[bool]]:
    """The jaxpr of the results with the kept values behind them, and that of the tangents of the results `moved`.

    With them the arrays that both close over, and which arguments the tangents need. The arguments of the tangents are
    those arrays, the arguments needed, the kept values, and the tangents of the arguments `moving`.
    """
    avals = [x.aval for x in jaxpr.invars]

    def along(args, directions):
        def of(*values):
            return _inlined(jaxpr, list((dict(enumerate(args)) | dict(zip(moving, values, strict=True))).values()))

        outs, found = jax.jvp(of, [args[n] for n in moving], directions)
        return outs, [t for t, m in zip(found, moved, strict=True) if m]

    full, more = traced(along, avals, [avals[n] for n in moving])
    own, count = len(more) + len(avals), len(jaxpr.outvars)
    args, directions = full.invars[:own], full.invars[own:]
    marks = [eqn for eqn in full.eqns if eqn.primitive is keep_p]
    kept = [x for eqn in marks for x in eqn.outvars]
    short = altered(
        full,
        invars=[*args, *kept, *directions],
        outvars=full.outvars[count:],
        eqns=[half for eqn in full.eqns if eqn.primitive is not keep_p for half in _halves(eqn, 1)],
    )
    always = [*[True] * len(more), *[False] * (len(avals) + len(kept)), *[True] * len(directions)]
    short, used = dce_jaxpr(short, [True] * len(short.outvars), always)
    outs = [*full.outvars[:count], *(x for x, u in zip(kept, used[own : own + len(kept)], strict=True) if u)]
    values, _ = dce_jaxpr(
        altered(full, outvars=outs, eqns=[half for eqn in full.eqns for half in _halves(eqn, 0)]),
        [True] * len(outs),
        [*[True] * own, *[False] * len(directions)],
    )
    return values, short, more, used[len(more) : own]


def _halves(eqn: Any, which: int) -> list:
    """The equation; of `known` one for each array that needs but what is found, 0, or what derivatives compute, 1."""
    if eqn.primitive is not known_p:
        return [eqn]
    n = len(eqn.invars) // 2
    given = eqn.invars[which * n : (which + 1) * n]
    return [eqn.replace(invars=[x, x], outvars=[eqn.outvars[k], eqn.outvars[n + k]]) for k, x in enumerate(given)]


# Calls whose jaxpr, a parameter, may stand in their place.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "batched": "jaxpr", "custom_vmap_call": "call"}


def _inlined(jaxpr: Any, args: Sequence, constants: Sequence = ()) -> Arrays:
    """The results of a jaxpr, in which functions that hold marks stand where they are called."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *args], strict=True))
    read = lambda atom: atom.val if isinstance(atom, Literal) else env[atom]
    for eqn in jaxpr.eqns:
        called, values = eqn.params.get(CALLS.get(eqn.primitive.name, "")), [read(atom) for atom in eqn.invars]
        inner = getattr(called, "jaxpr", called)
        if inner is None or eqn.params.get("size") is not None or not keeps(inner):
            outs = alone(jaxpr, eqn)(*values)
        else:
            outs = _inlined(inner, values, getattr(called, "consts", ()))
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]
