"""Forward dynamics by joining spans of bodies: the articulated-body recursion as an associative operation.

By Gauss's principle the accelerations minimize a quadratic function, a sum over the bodies, and along a chain this is a
linear-quadratic problem: the body is the time, its acceleration a the state, that of its joint u the control,

    a_i = X_i a_p + bias_i + S_i u_i,    least sum of a_i^T (I_i a_i / 2 + load_i) + u_i (armature_i u_i / 2 - tau_i).

What a span of bodies contributes, as a function of the accelerations at its two ends, is a `Span`, five small arrays;
neighboring spans join to one by eliminating the body between them. J of a span that ends in a leaf is the articulated
inertia that the body before it carries, so one pass towards the leaves and one of affine maps towards them suffice.

Each joint needs positive inertia of its own, S^T I S + armature, and each elimination a definite J. Both hold when half
of the inertia of a body counts where its span ends, with its joint, and half where the next one starts. A sum has no
differences of large numbers then: J = L D L^T, Y = L^T C L and N = D^-1 + Y, all positive, give

    (1 + C J)^-1 = L^-T D^-1 N^-1 L^T,    J (1 + C J)^-1 = L N^-1 L^T.

Divide and conquer on two-handled bodies [featherstone1999] is the dual of it: it inverts inertias, and armature and
bodies without mass, which are easy here, have no place in it.

Source: [sarkka2023] section III (the form of a span and its combination), which factorizes nothing; the halves and the
symmetric elimination: none.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.dynamics.parallel.pointer_doubling import accumulate, inward, paths
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm

LENT = 1e-2  # of the mean inertia, to bodies without


class Lever(NamedTuple):
    """A joint: S (6, width) its motions, X (6, 6) the parent's acceleration to the body's, bias (6,) of the body.

    tau, armature: (width,). A column of zeros in S has armature 1.
    """

    S: jax.Array
    X: jax.Array
    bias: jax.Array
    tau: jax.Array
    armature: jax.Array


class Span(NamedTuple):
    """The least of the sum over some bodies in a row, given the accelerations x before the first and y of the last:

    the greatest over z of  x^T J x / 2 - x^T eta - z^T C z / 2 - z^T (y - A x - b).

    x in the frame of the body before, y in that of the last. A, C, J: (6, 6). b, eta: (6,).
    """

    A: jax.Array
    b: jax.Array
    C: jax.Array
    eta: jax.Array
    J: jax.Array


def joint_accelerations(tree: Tree, lever: Lever, inertia, thin, load) -> jax.Array:
    """(nbodies, width), of the bodies with inertia (nbodies, 6, 6) and load (nbodies, 6), the wrench at rest.

    thin: (nbodies,) bool, bodies whose inertia may be singular. They borrow some where their span ends and give it back
    where the next one starts, which changes no sum; neighbors borrow unlike amounts, or they would cancel.
    """
    route, parents = paths(tree), np.asarray(tree.parents)
    on_path = (parents >= 0) & (route.heavy[parents] == np.arange(tree.nbodies))
    size = jnp.mean(jnp.diagonal(inertia, axis1=1, axis2=2).reshape(-1, 2, 3), (0, 2))
    amount = LENT * jnp.asarray(1 + np.arange(tree.nbodies) * 0.618 % 1, size.dtype)
    lent = sm.diagonal(jnp.where(thin, amount, 0)[:, None] * jnp.repeat(size, 3))
    part = jnp.where(jnp.asarray(route.heavy < tree.nbodies)[:, None, None], inertia / 2 - lent, 0)
    own = inertia - part
    near = jnp.where(jnp.asarray(on_path)[:, None, None], part[parents], 0)

    def element(bodies, received):
        at = jax.tree.map(lambda x: x[bodies], (lever, own, load, near))
        return jax.vmap(_span)(at[0], at[1] + received[0], at[2] + received[1], at[3])

    I, p = inward(_joined, element, lambda span: (span.J, -span.eta), (inertia[0], load[0]), route)
    I, p = own + I, load + p
    steps = jax.vmap(_span)(lever, I, p, near)
    follow = lambda here, before: (_mm(here[0], before[0]), here[1] + sm.matvec(here[0], before[1]))
    _, a = accumulate(follow, (steps.A, steps.b), route.ancestors)
    return jax.vmap(_acceleration)(lever, I, p, jnp.concatenate([a, jnp.zeros_like(a[:1])])[parents])


def _span(lever: Lever, inertia, load, near) -> Span:
    """The span of one body. near: the part of the inertia of the body before it that counts here."""
    S, X = lever.S, lever.X
    U = _mm(inertia, S)
    solve = _inverse(_mm(S.T, U) + sm.diagonal(lever.armature))
    found = solve(jnp.concatenate([U.T, S.T, (lever.tau - sm.tmatvec(S, load))[:, None]], 1))
    kept, push = jnp.eye(6, dtype=S.dtype) - _mm(S, found[:, :6]), found[:, 12]
    left = _mm(kept.T, inertia)
    return Span(
        A=_mm(kept, X),
        b=sm.matvec(kept, lever.bias) + sm.matvec(S, push),
        C=sm.symmetric(_mm(S, found[:, 6:12])),
        eta=-sm.tmatvec(X, sm.matvec(left, lever.bias) + load + sm.matvec(U, push)),
        J=sm.symmetric(_mm(X.T, _mm(left, X))) + near,
    )


def _acceleration(lever: Lever, inertia, load, before) -> jax.Array:
    """Of the joint of a body that carries this articulated inertia and load, given the acceleration before it."""
    U = _mm(inertia, lever.S)
    arriving = sm.matvec(lever.X, before) + lever.bias
    missing = lever.tau - sm.tmatvec(lever.S, load) - sm.tmatvec(U, arriving)
    return _inverse(_mm(lever.S.T, U) + sm.diagonal(lever.armature))(missing[:, None])[:, 0]


def _joined(near: Span, far: Span) -> Span:
    """Two spans as one, without the acceleration of the body between them. Source: [sarkka2023] section III."""
    J = _factors(far.J)
    C = _times_unit(J, _times_unit(J, near.C).T)  # Y = L^T C L
    N = _factors(C + _block_solve(J, jnp.eye(6, dtype=C.dtype)))
    B, b, e = _times_unit(J, near.A), _times_unit(J, near.b[:, None]), _unit_solve(J, far.eta[:, None])
    A = _unit_solve(J, far.A.T).T
    found = _solve(N, jnp.concatenate([B, C, b + _mm(C, e), _block_solve(J, e) - b], 1))
    ahead = _mm(A, _block_solve(J, found[:, :13]))
    behind = _mm(B.T, found[:, [*range(6), 13]])
    return Span(
        A=ahead[:, :6],
        b=ahead[:, 12] + far.b,
        C=sm.symmetric(_mm(ahead[:, 6:12], A.T)) + far.C,
        eta=behind[:, 6] + near.eta,
        J=sm.symmetric(behind[:, :6]) + near.J,
    )


# ---- symmetric matrices in 3x3 blocks
class Factors(NamedTuple):
    """L D L^T with L = [[1, 0], [cross^T, 1]], of D the factors of its two blocks."""

    first: list
    cross: jax.Array
    second: list


def _mm(a, b) -> jax.Array:
    """A product that XLA keeps apart: it would repeat the entries of nested sums of products."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _factors(m) -> Factors:
    first = sm.ldl(m[:3, :3])
    cross = _ldl_solve(first, m[:3, 3:])
    return Factors(first, cross, sm.ldl(m[3:, 3:] - _mm(m[3:, :3], cross)))


def _ldl_solve(factor: list, x) -> jax.Array:
    return sm.ldl_solve(factor, x.T).T


def _times_unit(f: Factors, x) -> jax.Array:
    """L^T x."""
    return jnp.concatenate([x[:3] + _mm(f.cross, x[3:]), x[3:]])


def _unit_solve(f: Factors, x) -> jax.Array:
    """L^-1 x."""
    return jnp.concatenate([x[:3], x[3:] - _mm(f.cross.T, x[:3])])


def _block_solve(f: Factors, x) -> jax.Array:
    """D^-1 x."""
    return jnp.concatenate([_ldl_solve(f.first, x[:3]), _ldl_solve(f.second, x[3:])])


def _solve(f: Factors, x) -> jax.Array:
    """(L D L^T)^-1 x."""
    second = _ldl_solve(f.second, x[3:] - _mm(f.cross.T, x[:3]))
    return jnp.concatenate([_ldl_solve(f.first, x[:3]) - _mm(f.cross, second), second])


def _inverse(m) -> Callable:
    """x -> m^-1 x for a symmetric positive matrix of size 1, 2, 3 or 6."""
    return partial(_ldl_solve, sm.ldl(m)) if len(m) <= 3 else partial(_solve, _factors(m))
