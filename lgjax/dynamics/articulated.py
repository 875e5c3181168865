"""Articulated inertias: symmetric 6x6 matrices as three 3x3 blocks, and their way across a joint.

All quantities are in joint frames, angular parts first. Source: [featherstone2008] section 7.2.
"""

from functools import partial
from typing import Any, NamedTuple

import jax

from lgjax.dynamics.spatial import ZERO33, Twist, Wrench
from lgjax.multibody.inertia import Inertia
from lgjax.numerics import small_matrix as sm


class ArticulatedInertia(NamedTuple):
    """Symmetric 6x6 inertia [[J, H], [H^T, M]] about the joint frame's origin: [n, f] = I [w, v]."""

    J: jax.Array
    H: jax.Array
    M: jax.Array

    def wrench(self, A: Twist) -> Wrench:
        """I A, the wrench that gives the acceleration A."""
        w, v = A
        return Wrench(sm.matvec(self.J, w) + sm.matvec(self.H, v), sm.tmatvec(self.H, w) + sm.matvec(self.M, v))


NO_INERTIA = ArticulatedInertia(ZERO33, ZERO33, ZERO33)


@jax.jit
def add_inertia(children: ArticulatedInertia, own: Inertia) -> ArticulatedInertia:
    """I_A of a body: the sum of what its children hand on, and its own rigid-body inertia."""
    mass = sm.diagonal(sm.stack(own.mass, own.mass, own.mass))
    return ArticulatedInertia(children.J + own.rotational, children.H + sm.hat(own.moment), children.M + mass)


@jax.jit
def inertia_columns(inertia: ArticulatedInertia, S):
    """U = I S as (angular (3, nv), linear (3, nv))."""
    return (
        sm.matmul(inertia.J, S[0]) + sm.matmul(inertia.H, S[1]),
        sm.tmatmul(inertia.H, S[0]) + sm.matmul(inertia.M, S[1]),
    )


@jax.jit
def joint_inertia(S, U, armature):
    """D = S^T U + armature, (nv, nv): the inertia that opposes the joint's motions."""
    return sm.tmatmul(S[0], U[0]) + sm.tmatmul(S[1], U[1]) + sm.diagonal(armature)


@jax.jit
def joint_wrench(U, x) -> Wrench:
    """U x, the wrench that accelerates a joint by x (nv,)."""
    return Wrench(sm.matvec(U[0], x), sm.matvec(U[1], x))


@partial(jax.jit, static_argnames="axes")
def through_joint(inertia: ArticulatedInertia, U, factor, axes: tuple[int, ...] = (), armature: Any = None):
    """I_a = I_A - U D^-1 U^T, felt through a joint that is free to move. factor: that of D, by `small_matrix.ldl`.

    axes: those of `JointKind`. Along them it is what is left in theory, I_a S = U D^-1 armature, not a difference of
    numbers that are nearly equal: nothing is felt there of a joint without armature.
    """
    K_w, K_v = sm.ldl_solve(factor, U[0]), sm.ldl_solve(factor, U[1])
    felt = ArticulatedInertia(
        sm.symmetric(inertia.J - sm.matmult(K_w, U[0])),
        inertia.H - sm.matmult(K_w, U[1]),
        sm.symmetric(inertia.M - sm.matmult(K_v, U[1])),
    )
    return _with_columns(felt, axes, K_w * armature, K_v * armature) if axes else felt


def _with_columns(inertia: ArticulatedInertia, axes: tuple[int, ...], w, v) -> ArticulatedInertia:
    """The symmetric matrix with the columns `axes`, and rows, replaced by those of w and v (3, number of axes)."""
    columns = {axis: (*w[:, n], *v[:, n]) for n, axis in enumerate(axes)}

    def block(old, first: int, second: int):
        def entry(i: int, j: int):
            row, column = first + i, second + j
            if column in columns:
                return columns[column][row]
            return columns[row][column] if row in columns else old[i, j]

        return sm.rows(*(sm.stack(*(entry(i, j) for j in range(3))) for i in range(3)))

    return ArticulatedInertia(block(inertia.J, 0, 0), block(inertia.H, 0, 3), block(inertia.M, 3, 3))


@jax.jit
def shift(inertia: ArticulatedInertia, R, p) -> ArticulatedInertia:
    """Ad^-T I Ad^-1: an inertia of the child in the parent's axes about the parent's origin; (R, p) its pose there."""
    turn = lambda X: sm.matmul(sm.matmul(R, X), R.T)
    J, H, M = sm.symmetric(turn(inertia.J)), turn(inertia.H), sm.symmetric(turn(inertia.M))
    P = sm.hat(p)
    PH = H + sm.matmul(P, M)
    return ArticulatedInertia(sm.symmetric(J + sm.matmul(P, H.T) - sm.matmul(PH, P)), PH, M)
