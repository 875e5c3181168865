"""Zeros that have the derivatives of another value, which is itself not computed.

A correction of value zero, such as a step of Newton's method at a root, gives a result its derivatives of higher order.
In a program zeros stand in its place; its derivatives are computed where they are wanted.

Read first: `_jax.py`, `register`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from lgjax.execution._jax import Primitive, altered, dce_jaxpr, register

unseen_p = Primitive("unseen")


def unseen(x: jax.Array) -> jax.Array:
    """Zeros of the shape of x, with the derivatives of x."""
    return _bound(x)[0]


def without_unseen(jaxpr: Any) -> Any:
    """A jaxpr without the operands of `unseen`; it is not for derivatives."""
    if not any(eqn.primitive is unseen_p for eqn in jaxpr.eqns):
        return jaxpr
    eqns = [eqn.replace(invars=[]) if eqn.primitive is unseen_p else eqn for eqn in jaxpr.eqns]
    return dce_jaxpr(altered(jaxpr, eqns=eqns), [True] * len(jaxpr.outvars), True)[0]


def _bound(x: Any) -> list:
    return unseen_p.bind(x, like=jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)))


register(
    unseen_p,
    run=lambda *_, like: [jnp.zeros(like.shape, like.dtype)],
    shapes=lambda x, *, like: [x],
    batch=lambda values, axes, *, like: (_bound(*values), axes),
    jvp=lambda values, directions, *, like: (_bound(*values), list(directions)),
)
