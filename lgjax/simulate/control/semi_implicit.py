"""The semi-implicit step of a mechanism, first velocity and then configuration, with its matrices in closed form.

    v' = v + h vdot(q, v, tau),   q' = q exp(h v')

Source: [mastalli2020] for the step; [sola2018] section 4 for its derivatives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.inverse import inverse_dynamics
from lgjax.dynamics.partials import (
    InversePartials,
    forward_dynamics_partials,
    inverse_dynamics_partials,
)
from lgjax.execution import batched
from lgjax.groups import se3, so3
from lgjax.multibody.configuration import displaced, displacement, join_velocity, retract, split_velocity
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.definite import solved
from lgjax.numerics.rank import product
from lgjax.simulate.control.linear_quadratic.sparse import Columns, Combined, Matrix, Pattern, Sparse

Array = jax.Array

FEW = 16  # velocities, up to which one elimination solves for the derivatives of accelerations


@dataclass(frozen=True)
class SemiImplicitEuler:
    """Semi-implicit (symplectic) Euler steps for `ControlSystem.of_model`, of order 1, one evaluation each.

    Searches by `ILQR` and `FDDP` take the matrices A and B of such a step from `forward_dynamics_partials` directly.
    Source: [mastalli2020].
    """


def advanced(model: Model, state: Any, vdot: Array, h: Array) -> Any:
    """The state after the step."""
    q, v = state
    after = v + h * vdot
    return batched(partial(displaced, model.tree))(q, h * after), after


def semi_implicit_step(model: Model, dt: Any, substeps: int) -> Any:
    """The function step((q, v), tau, wrenches)."""

    def step(state: Any, tau: Array, wrenches: Array | None) -> Any:
        h = jnp.asarray(dt, model.dtype) / substeps
        for _ in range(substeps):
            state = advanced(model, state, forward_dynamics(model, *state, tau, wrenches), h)
        return state

    return step


def semi_implicit_jacobians(model: Model, dt: float) -> Callable[[Any, Array, Array], tuple[Any, Matrix, Matrix]]:
    """The function (state, tau, tau_by) -> the state after one step, A (2 nv, 2 nv) and B (2 nv, k) of it.

    tau_by (nv, k): derivatives of tau. Where coordinates are joints', q' = q + h v', so A and B are `Combined` of the
    rows of v'.
    """
    n, h = model.nv, np.asarray(dt, model.dtype)
    one, zero = np.eye(n, dtype=model.dtype), np.zeros((n, n), model.dtype)
    ahead, combine = Pattern(np.block([[one, zero], [zero, zero]])), Pattern(np.concatenate([h * one, one]))

    def jacobians(state: Any, tau: Array, tau_by: Array) -> tuple[Any, Matrix, Matrix]:
        q, v = state
        vdot = forward_dynamics(model, q, v, tau)
        by_v = h * _acceleration_jacobian(model, q, v, vdot, tau, tau_by)
        by_v = jnp.concatenate([by_v[:, :n], by_v[:, n : 2 * n] + one, by_v[:, 2 * n :]], 1)
        end = advanced(model, state, vdot, jnp.asarray(h))
        if not flat_states(model):
            return _with_configuration(model, jnp.asarray(h), end, by_v)
        still = Pattern(np.zeros((2 * n, tau_by.shape[1]), model.dtype))
        return end, Combined(by_v[:, : 2 * n], ahead, combine), Combined(by_v[:, 2 * n :], still, combine)

    return jacobians


def acceleration_step_jacobians(model: Model, dt: float) -> Callable[[Any, Array], tuple[Any, Sparse, Columns]]:
    """The function (state, vdot) -> state after a step at the acceleration vdot, and A and B of it.

    Where coordinates are joints', the matrices are the same everywhere: q' = q + h v + h^2 vdot, v' = v + h vdot. Free
    and ball joints have boxes in the rows of q'. Accelerations act through v', so B is h times the columns of A for v.
    """
    tree, n, h = model.tree, model.nv, np.asarray(dt, model.dtype)
    turns, ahead = turning(tree), np.eye(n, dtype=model.dtype)
    for start, stop, _ in turns:
        ahead[start:stop] = 0
    still, one = np.zeros_like(ahead), np.eye(n, dtype=model.dtype)
    corners = [(start, start) for start, _, _ in turns]
    of_state = Pattern(
        np.block([[ahead, h * ahead], [still, one]]), (*corners, *((row, n + column) for row, column in corners))
    )

    def jacobians(state: Any, vdot: Array) -> tuple[Any, Sparse, Columns]:
        end = advanced(model, state, vdot, jnp.asarray(h))
        by_q, by_step = [], []
        for start, stop, group in turns:
            back = lambda x, column, group=group: group.Ad(group.exp(x), column)
            turned, bent = matrices((back, group.dexp), -h * end[1][start:stop])
            by_q.append(turned)
            by_step.append(h * bent)
        return end, Sparse(by_q + by_step, of_state), Columns(dt, n, 2 * n)

    return jacobians


def _with_configuration(model: Model, h: Array, after: Any, by_v: Array) -> Any:
    """State, A and B from the derivatives by_v (nv, 2 nv + k) of the velocity after the step.

    q' = q exp(h v'): what was ahead is turned back by the step, what v' adds is pulled through the exponential.
    """
    n = model.nv
    ahead = jnp.concatenate([sm.identity(n, h.dtype), jnp.zeros((n, by_v.shape[1] - n), h.dtype)], 1)
    by_q = jax.vmap(partial(_moved, model, h * after[1]), (1, 1), 1)(ahead, h * by_v)
    both = jnp.concatenate([by_q, by_v])
    return after, both[:, : 2 * n], both[:, 2 * n :]


def _acceleration_jacobian(model: Model, q: Any, v: Array, vdot: Array, tau: Array, tau_by: Array) -> Array:
    """Derivatives (nv, 2 nv + k) of vdot with respect to q, v and the controls.

    For few joints one elimination solves for the accelerations. Source: [kim2012] section 4.
    """
    if model.nv > FEW:
        partials = forward_dynamics_partials(model, q, v, tau)
        return jnp.concatenate([partials.q, partials.v, jnp.matmul(partials.tau, tau_by, precision="highest")], 1)
    _, (by_q, by_v, M) = force_jacobians(model, q, v, vdot)
    return solved(M, jnp.concatenate([-by_q, -by_v, tau_by], 1))[0].x


def force_jacobians(model: Model, q: Any, v: Array, vdot: Array) -> tuple[Array, InversePartials]:
    """`inverse_dynamics` and `inverse_dynamics_partials`."""
    return inverse_dynamics(model, q, v, vdot), inverse_dynamics_partials(model, q, v, vdot)


def _moved(model: Model, step: Array, dq: Array, dstep: Array) -> Array:
    """The body displacement of q exp(step) for those of q and of the step."""
    tree = model.tree
    frees, _, balls = split_velocity(tree, step)
    q_frees, q_joints, q_balls = split_velocity(tree, dq)
    frees_by, joints_by, balls_by = split_velocity(tree, dstep)
    turned = se3.Ad(se3.exp(-frees), q_frees) + se3.dexp(-frees, frees_by)
    balls = so3.Ad(so3.exp(-balls), q_balls) + so3.dexp(-balls, balls_by)
    return join_velocity(tree, turned, q_joints + joints_by, balls)


# ---- tangents of states (q, v)
def turning(tree: Tree) -> list[tuple[int, int, Any]]:
    """(first velocity, last + 1, group) of every free joint and ball joint."""
    groups = {"free_poses": se3, "ball_rotations": so3}
    found = [
        (start, start + kind.nv, groups.get(kind.coordinates))
        for kind, start in zip(tree.kinds, tree.v_start, strict=True)
    ]
    return [x for x in found if x[2] is not None]


def flat_states(model: Model) -> bool:
    """`ControlSystem.flat` of a mechanism."""
    return all(kind.coordinates == "joints" for kind in model.tree.kinds)


def tangents_of_states(model: Model) -> tuple[Callable, Callable]:
    """`retract` and `difference` of the states (q, v) of a mechanism."""

    def moved(state: Any, tangent: Array) -> Any:
        return retract(model, state[0], tangent[: model.nv]), state[1] + tangent[model.nv :]

    def apart(state0: Any, state1: Any) -> Array:
        return jnp.concatenate([displacement(model.tree, state0[0], state1[0]), state1[1] - state0[1]])

    return moved, apart


def tangents_with_activations(model: Model) -> tuple[Callable, Callable]:
    """The same of the states (q, v, activation (na,)) of a robot."""
    moved, apart = tangents_of_states(model)
    dim = 2 * model.nv
    retract = lambda state, x: (*moved(state[:2], x[:dim]), state[2] + x[dim:])
    difference = lambda a, b: jnp.concatenate([apart(a[:2], b[:2]), b[2] - a[2]])
    return retract, difference


def relative_states(model: Model) -> Callable[[Array, Array], Array]:
    """`ControlSystem.relative` of the states (q, v) of a mechanism."""
    n = model.nv

    def relative(gap: Array, changes: Array) -> Array:
        return jnp.concatenate([relative_to(model.tree, gap[:n], changes[:n]), changes[n:]])

    return relative


def relative_to(tree: Tree, away: Array, changes: Array) -> Array:
    """Changes (nv, k) of the displacement `away` (nv,) to configurations that move by the body displacements `changes`.

    log(exp(away) exp(x)) = away + dexpinv(-away, x) + ...   Source: [sola2018] section 4.
    """
    pieces, done = [], 0
    for start, stop, group in turning(tree):
        (bent,) = matrices((group.dexpinv,), -away[start:stop])
        pieces += [changes[done:start], product(bent, changes[start:stop])]
        done = stop
    return jnp.concatenate([*pieces, changes[done:]]) if pieces else changes


def matrices(maps: Sequence[Callable[[Array, Array], Array]], x: Array) -> tuple[Array, ...]:
    """Matrices (n, n), each of a linear map: its columns are map(x, e_j), for one x (n,)."""
    return tuple(jax.vmap(partial(along, x), 1, 1)(sm.identity(len(x), x.dtype)) for along in maps)
