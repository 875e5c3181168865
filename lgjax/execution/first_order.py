"""Numbers that a derivative has been taken through once, and that no second one may pass: it would be wrong.

A rule for a first derivative may be computed from the values alone, as where a run ends at an event. The rule wraps
those values here. This is an operation of its own, since JAX drops custom rules of what a scan repeats once it has
taken the first derivative.

Read first: `_jax.py`, `register`.
"""

from typing import Any

import jax

from lgjax.execution._jax import Primitive, register

first_order_p = Primitive("first_order")


def first_order(values: Any, what: str) -> Any:
    """The values, a pytree; differentiating them raises a TypeError that begins with `what`.

    Within a function of `jax.custom_jvp` this counts all of its arguments as differentiated, as JAX does.
    """
    leaves, tree = jax.tree.flatten(values)
    return jax.tree.unflatten(tree, first_order_p.bind(*leaves, what=what))


def _refuse(primals: Any, tangents: Any, *, what: str) -> Any:
    raise TypeError(f"{what} has no second derivatives; jax.lax.stop_gradient of its arguments leaves them out")


register(
    first_order_p,
    run=lambda *values, what: list(values),
    shapes=lambda *types, what: list(types),
    batch=lambda values, axes, *, what: (first_order_p.bind(*values, what=what), axes),
    jvp=_refuse,
)
