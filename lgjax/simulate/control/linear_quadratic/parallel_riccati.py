"""Riccati's recursion in parallel over time, by associative scans: logarithmic depth on a device with many cores.

The value of going from state x at one step to state y at a later one is, with a multiplier p for getting there,

    V(x, y) = max over p of  x J x / 2 - eta x - p C p / 2 - p (y - A x - b)

and two of them in a row are one of the same form: the state between is eliminated. From each step to the end, J is the
Hessian of the cost to go and -eta its gradient, and all of these are suffixes of one scan.
Source: [sarkka2023] section III, with the costs and gaps of `Expansion`; the elimination is done anew here.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.numerics import small_matrix as sm
from lgjax.simulate.control.linear_quadratic.riccati import Expansion, Regulator

Array = jax.Array


class Passage(NamedTuple):
    """The value of going from one state to a later one, arrays (n, n) and (n,) as above."""

    A: Array
    b: Array
    C: Array
    eta: Array
    J: Array


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")


def _applied(a: Array, x: Array) -> Array:
    return jnp.sum(a * x[..., None, :], -1)


def _joined(first: Passage, then: Passage) -> Passage:
    """From the first's start to the second's end.

    Stationary in the state y between and in p of the first:  y = A x + b - C p  and  p = J' y - eta' + A'^T p', so
    y = (1 + C J')^-1 (A x + b + C (eta' - A'^T p')).
    """
    n = first.b.shape[-1]
    identity = jnp.eye(n, dtype=first.b.dtype)
    turn = sm.transpose
    # (1 + C J')^-1 of A, b + C eta', and C
    right = jnp.concatenate([first.A, (first.b + _applied(first.C, then.eta))[..., None], first.C], -1)
    between = jnp.linalg.solve(identity + _product(first.C, then.J), right)
    A, b, C = between[..., :n], between[..., n], between[..., n + 1 :]
    J = _product(turn(first.A), _product(then.J, A))
    C = _product(then.A, _product(C, turn(then.A)))
    return Passage(
        _product(then.A, A),
        _applied(then.A, b) + then.b,
        (C + turn(C)) / 2 + then.C,
        _applied(turn(first.A), then.eta - _applied(then.J, b)) + first.eta,
        (J + turn(J)) / 2 + first.J,
    )


def _passage(e: Expansion, regularization: Array) -> Passage:
    """One step, its control eliminated: u = -luu^-1 (lu + lux x) + what the multiplier asks for."""
    m = e.lu.shape[-1]
    eased = e.luu + regularization * jnp.eye(m, dtype=e.lu.dtype)
    factor = jnp.linalg.cholesky(eased)
    half = jax.lax.linalg.triangular_solve(
        factor, jnp.concatenate([e.lux, e.lu[..., None], sm.transpose(e.B)], -1), left_side=True, lower=True
    )
    n = e.lx.shape[-1]
    S, r, B = half[..., :n], half[..., n], half[..., n + 1 :]
    turned = sm.transpose(B)
    return Passage(
        e.A - _product(turned, S),
        e.gap - _applied(turned, r),
        _product(turned, B),
        _applied(sm.transpose(S), r) - e.lx,
        e.lxx - _product(sm.transpose(S), S),
    )


def _affine(first: tuple[Array, Array], then: tuple[Array, Array]) -> tuple[Array, Array]:
    """x -> A' (A x + b) + b'."""
    return _product(then[0], first[0]), _applied(then[0], first[1]) + then[1]


def backward(e: Expansion, last: Any, regularization: Array) -> Any:
    """As the function of that name in `riccati`, in parallel over time, without bounds.

    The Hessian of every step with respect to its controls must be positive definite by itself.
    """
    single = _passage(e, regularization)
    n = e.lx.shape[-1]
    zero = jnp.zeros((1, n, n), e.lx.dtype)
    end = Passage(zero, zero[..., 0], zero, -last[0][None], last[1][None])
    chain = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), single, end)
    # the scan runs from the end: what it has is the later passage
    values = jax.lax.associative_scan(lambda later, sooner: _joined(sooner, later), chain, reverse=True)
    vxx, vx = values.J[1:], -values.eta[1:]
    vx = vx + _applied(vxx, e.gap)
    turned = sm.transpose(e.B)
    half = _product(turned, vxx)
    qu, qux = e.lu + _applied(turned, vx), e.lux + _product(half, e.A)
    quu = e.luu + _product(half, e.B)
    eased = quu + regularization * jnp.eye(e.lu.shape[-1], dtype=e.lu.dtype)
    factor = jnp.linalg.cholesky(eased)
    right = -jnp.concatenate([qux, qu[..., None]], -1)
    for transpose in (False, True):
        right = jax.lax.linalg.triangular_solve(factor, right, left_side=True, lower=True, transpose_a=transpose)
    gain, k = right[..., :n], right[..., n]
    slope, curve = jnp.sum(k * qu), jnp.sum(k * _applied(eased, k))
    closing = jnp.sum(e.gap * (vx - _applied(vxx, e.gap) / 2))
    return Regulator(k, gain, slope, curve, closing, _gradient(e, last[0]))


def _gradient(e: Expansion, end: Array) -> Array:
    """Of the whole cost with respect to the controls, by adjoints."""
    turned = sm.transpose(e.A)
    n = e.lx.shape[-1]
    start = (jnp.zeros((1, n, n), e.lx.dtype), end[None])
    chain = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), (turned, e.lx), start)
    adjoints = jax.lax.associative_scan(_affine, chain, reverse=True)[1]
    return e.lu + _applied(sm.transpose(e.B), adjoints[1:])


def linear_motion(A: Array, B: Array, gap: Array, regulator: Regulator) -> tuple[Array, Array]:
    """As the function of that name in `riccati`, in parallel over time."""
    closed = A + _product(B, regulator.feedback), gap + _applied(B, regulator.push)
    x = jax.lax.associative_scan(_affine, closed)[1]
    x = jnp.concatenate([jnp.zeros_like(x[:1]), x])
    return x, regulator.push + _applied(regulator.feedback, x[:-1])
