"""Jacobians of the time derivatives of inverse and forward dynamics, with respect to the motion and the forces.

With tau = F(q, v, vdot), a neighboring motion q exp(eta) has the velocity v + d, where d = eta' + ad_v eta on free and
spherical joints and eta' elsewhere. Its forces differ by F_q eta + F_v d + M d', three matrices that are known from
`inverse_dynamics_partials`, and derivative k of them by Leibniz' rule:

    change of tau^(k) = sum over j of binom(k, j) (F_q^(k-j) eta^(j) + F_v^(k-j) d^(j) + M^(k-j) d^(j+1)),
    eta^(j+1) = d^(j) - sum over i of binom(j, i) ad_{v^(i)} eta^(j-i).

So the three matrices and their time derivatives along the one motion are all that is needed, whatever the number of
directions. Forward dynamics is the same equation, solved for d^(k+1). Source: [kim2012] section 4 for the matrices.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.dynamics.partials import InversePartials, inverse_of_definite, joint_rows, row_products
from lgjax.dynamics.subtree_sums import products
from lgjax.dynamics.time_derivatives.derivatives import forward_dynamics_time_derivatives
from lgjax.dynamics.time_derivatives.time_stacks import checked_order
from lgjax.execution import batched
from lgjax.groups import se3, so3
from lgjax.multibody.arguments import checked_arguments, checked_array, described, hint
from lgjax.multibody.configuration import Configuration, displaced, join_velocity, split_velocity
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm


class InverseTimeDerivativePartials(NamedTuple):
    """Derivatives of tau^(k), k = 0 ... order. q: (order + 1, nv, nv). v: (order + 1, order + 2, nv, nv).

    v[k, m] is that with respect to v^(m), zero for m > k + 1.
    """

    q: jax.Array
    v: jax.Array


class ForwardTimeDerivativePartials(NamedTuple):
    """Derivatives of vdot^(k), k = 0 ... order. q, v: (order + 1, nv, nv). tau: (order + 1, order + 1, nv, nv).

    tau[k, m] is that with respect to tau^(m), zero for m > k.
    """

    q: jax.Array
    v: jax.Array
    tau: jax.Array


@checked_arguments("v", "wrenches")
def inverse_dynamics_time_derivative_partials(
    model: Model,
    q: Configuration,
    v: jax.Array,
    order: int,
    wrenches: jax.Array | None = None,
) -> InverseTimeDerivativePartials:
    """Jacobians of `inverse_dynamics_time_derivatives`, whose arguments these are, in the body frame.

    v: (order + 2, nv), the velocity and its derivatives. Columns with respect to q are along retract(model, q, e_j),
    with the derivatives of v, and of the wrenches in body frames, held. Source: see the head of this file.
    """
    order = checked_order(order)
    v = checked_array("v", v, (order + 2, model.nv), model.dtype, model=model)
    moved = _Motion(model, q, v, _applied(model, wrenches, order), order)
    found = [moved.force(k) for k in range(order + 1)]
    zero = jnp.zeros((model.nv, model.nv), model.dtype)
    by_v = [[row.get(m, zero) for m in range(order + 2)] for row in found]
    return InverseTimeDerivativePartials(jnp.stack([row["q"] for row in found]), jnp.stack(list(map(jnp.stack, by_v))))


@checked_arguments("tau", "wrenches")
def forward_dynamics_time_derivative_partials(
    model: Model,
    q: Configuration,
    v: jax.Array,
    tau: jax.Array,
    wrenches: jax.Array | None = None,
) -> ForwardTimeDerivativePartials:
    """Jacobians of `forward_dynamics_time_derivatives`, whose arguments these are, in the body frame.

    v: (nv,). tau: (order + 1, nv). Columns with respect to q are along retract(model, q, e_j). Source: see the head of
    this file.
    """
    shape = getattr(tau, "shape", ())
    if len(shape) != 2 or not shape[0]:
        raise ValueError(f"tau is a stack (order + 1, nv), not {described(tau)}{hint('tau', shape, shape[-2:])}")
    order = len(tau) - 1
    tau = checked_array("tau", tau, (order + 1, model.nv), model.dtype, model=model)
    applied = _applied(model, wrenches, order)
    rates = forward_dynamics_time_derivatives(model, q, v, tau, "body", applied)
    moved = _Motion(model, q, jnp.concatenate([v[None], rates]), applied, order)
    inverse = inverse_of_definite(moved.matrices[0].vdot)
    identity = sm.identity(model.nv, model.dtype)
    moved.velocity = [{"v": identity}]
    for k in range(order + 1):
        lacking = {name: -x for name, x in moved.force(k, known=k).items()}
        lacking[k] = identity
        moved.velocity.append({name: products(inverse, x) for name, x in lacking.items()})
    zero = jnp.zeros((model.nv, model.nv), model.dtype)
    found = moved.velocity[1:]
    by_tau = [[row.get(m, zero) for m in range(order + 1)] for row in found]
    return ForwardTimeDerivativePartials(
        jnp.stack([row["q"] for row in found]),
        jnp.stack([row["v"] for row in found]),
        jnp.stack(list(map(jnp.stack, by_tau))),
    )


def _applied(model: Model, wrenches, order: int):
    if wrenches is None:
        return None
    return checked_array("wrenches", wrenches, (order + 1, model.nbodies, 6), model.dtype)


# ---- changes: matrices (nv, nv) by the input that causes them, "q", "v" or the order of a derivative
Change = dict[Any, jax.Array]


def _add(total: Change, factor: float, matrix, change: Change | None) -> None:
    """Adds factor matrix change to the total."""
    for name, x in (change or {}).items():
        part = factor * (products(matrix, x) if matrix is not None else x)
        total[name] = total[name] + part if name in total else part


class _Motion:
    """A motion, derivatives of the three matrices along it, and changes of its velocity and configuration."""

    def __init__(self, model: Model, q: Configuration, v, wrenches, order: int):
        self.model, self.v = model, v
        self.matrices = _along(model, q, v, wrenches, order)
        identity = sm.identity(model.nv, model.dtype)
        self.velocity: list[Change] = [{m: identity} for m in range(order + 2)]
        self.displacement: list[Change] = [{"q": identity}]

    def displaced(self, j: int) -> Change:
        """The change of derivative j of the displacement."""
        while len(self.displacement) <= j:
            k = len(self.displacement) - 1
            change: Change = dict(self.velocity[k])
            if self.model.tree.n_free or self.model.tree.n_ball:
                for i in range(k + 1):
                    turned = {name: _ad(self.model.tree, self.v[i], x) for name, x in self.displacement[k - i].items()}
                    _add(change, -math.comb(k, i), None, turned)
            self.displacement.append(change)
        return self.displacement[j]

    def force(self, k: int, known: int | None = None) -> Change:
        """The change of derivative k of the forces; known=k leaves out that of derivative k + 1 of the velocity."""
        total: Change = {}
        for j in range(k + 1):
            matrices, factor = self.matrices[k - j], float(math.comb(k, j))
            _add(total, factor, matrices.q, self.displaced(j))
            _add(total, factor, matrices.v, self.velocity[j])
            if j != known:
                _add(total, factor, matrices.vdot, self.velocity[j + 1])
        return total


def _ad(tree: Tree, v, columns):
    """ad_v of columns (nv, n), joint by joint; zero where coordinates are scalars."""

    def one(x):
        frees, joints, balls = split_velocity(tree, x)
        w_frees, _, w_balls = split_velocity(tree, v)
        return join_velocity(tree, se3.ad(w_frees, frees), 0 * joints, so3.ad(w_balls, balls))

    return jax.vmap(one, 1, 1)(columns)


def _along(model: Model, q: Configuration, v, wrenches, order: int) -> list[InversePartials]:
    """The three matrices and their time derivatives along the motion, order + 1 of each."""
    series = batched(partial(_rows_along, order))(model, q, v, wrenches)
    found = []
    for k in range(order + 1):
        terms = [row_products(model, series[j][0], series[k - j][0]) for j in range(k + 1)]
        weights = [float(math.comb(k, j)) for j in range(k + 1)]
        total = jax.tree.map(lambda *x, w=weights: sum(a * b for a, b in zip(w, x, strict=True)), *terms)
        found.append(total._replace(q=sum(series[k][1], total.q)))
    damped = found[0].v + sm.diagonal(model.damping), found[0].vdot + sm.diagonal(model.armature)
    return [InversePartials(found[0].q, *damped), *found[1:]]


def _rows_along(order: int, model: Model, q: Configuration, v, wrenches) -> list:
    """`joint_rows` and their time derivatives along the motion, by nested forward mode in its one direction."""

    def rows(q, t):
        applied = None if wrenches is None else _polynomial(wrenches, t)
        return joint_rows(model, q, _polynomial(v, t), _polynomial(v[1:], t), applied)

    def along(f):
        def more(q, t):
            """The list that f returns, with one more derivative."""
            path = lambda s: f(displaced(model.tree, q, s * _polynomial(v, t)), t + s)
            found, rates = jax.jvp(path, (jnp.zeros_like(t),), (jnp.ones_like(t),))
            return [*found, rates[-1]]

        return more

    found = lambda q, t: [rows(q, t)]
    for _ in range(order):
        found = along(found)
    return found(q, jnp.zeros((), model.dtype))


def _polynomial(derivatives: Sequence, t):
    total = derivatives[-1]
    for k in reversed(range(len(derivatives) - 1)):
        total = derivatives[k] + (t / float(k + 1)) * total
    return total
