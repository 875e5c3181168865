"""Time derivatives of inverse, forward and hybrid dynamics, to any order, as sweeps over the tree.

Read first: `inverse.py`, `forward.py` and `hybrid.py` in the room above, which are order 0 of this as plain passes.

Every quantity is a truncated Taylor series in time, x(t) = sum_k x[k] t^k, kept as a tuple of coefficients. Inverse
dynamics takes one sweep out and one in for all orders. Where forces are given, coefficient k of the accelerations takes
one sweep in and one out, with articulated inertias that do not depend on k. The equations of one body are those of a
`Formulation`, in the body's frame or in an inertial one. Source: [ali2026] Algs. 1-4 and Lemma 2.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.dynamics.articulated import (
    NO_INERTIA,
    add_inertia,
    inertia_columns,
    joint_inertia,
    joint_wrench,
    through_joint,
)
from lgjax.dynamics.spatial import NO_WRENCH, Twist, Wrench, add, body_data, joint_twist, project
from lgjax.dynamics.time_derivatives.body_frame import BODY_FRAME
from lgjax.dynamics.time_derivatives.formulation import Formulation
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.execution import batched
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


# ---- inverse dynamics: one sweep out, one in
@partial(jax.jit, static_argnames="formulation")  # one trace, however often a program evaluates it
def inverse_series(
    model: Model,
    q: Configuration,
    v,
    x,
    applied,
    formulation: Formulation = BODY_FRAME,
) -> list[jax.Array]:
    """Coefficients of the forces from v (nv,) and the coefficients x of the accelerations, a sequence of (nv,).

    applied: coefficients of the wrenches on the bodies, a sequence of Wrench (nbodies, 3) in joint frames, or None.
    """
    program = partial(_inverse_series, formulation)
    return batched(program)(model, q, v, list(x), applied)


def _inverse_series(frame: Formulation, model: Model, q: Configuration, v, x, applied) -> list:
    orders = range(len(x))
    walk = TreeTraversal(model.tree, model.dtype)

    def outward(kind, parent, body, q, speed, x, applied):
        carry, parent_accelerations = parent
        history, carry = frame.start(kind, body, q, speed, carry)
        S, inertia = frame.subspace(history), frame.inertia(body, history)
        accelerations, wrenches = [], []
        for k in orders:
            own = add(frame.to_child(body, history, parent_accelerations[k]), joint_twist(S, x[k]))
            own = add(own, frame.bias(history))
            accelerations.append(own)
            wrenches.append(add(Wrench(*inertia.momentum(*own)), frame.load(body, history, applied)))
            if k < orders[-1]:
                history = frame.advance(kind, body, history, x[k], parent_accelerations[k], own, k + 1 == orders[-1])
        return (carry, tuple(accelerations)), (frame.posture(history), tuple(wrenches))

    def inward(kind, children, body, motion):
        history, wrenches = motion
        total = [add(child, own) for child, own in zip(children, wrenches, strict=True)]
        up = tuple(frame.to_parent(body, history, total[: k + 1]) for k in orders)
        return up, tuple(frame.project(history, total[: k + 1]) for k in orders)

    bodies = walk.bodies(body_data(model))
    motion = walk.outward(
        outward,
        frame.root(model, orders[-1]),
        bodies,
        walk.configurations(q),
        walk.velocities(v),
        _series(walk.velocities, x),
        _applied(walk, applied),
    )
    forces = walk.inward(inward, (NO_WRENCH,) * len(x), bodies, motion)
    speeds = [v, *(a / (k + 1) for k, a in enumerate(x))]
    return [
        walk.to_velocities([f[k] for f in forces]) + model.armature * x[k] + model.damping * speeds[k] for k in orders
    ]


def _series(lift, x: Sequence) -> list:
    """Per-group tuples over the order from a sequence of arrays."""
    return [tuple(group) for group in zip(*(lift(a) for a in x), strict=True)]


def _applied(walk: TreeTraversal, applied) -> list:
    return [None] * len(walk.runs) if applied is None else _series(walk.bodies, applied)


# ---- hybrid and forward dynamics: a sweep in and a sweep out per order
class Passage(NamedTuple):
    """An articulated inertia before and behind the joint, U, and the factor of D; None where done with."""

    inertia: Any
    behind: Any
    U: Any
    factor: Any


class BiasTerms(NamedTuple):
    """Bias terms of one body at one order: its bias acceleration, and its wrench when it is not accelerated."""

    bias: Twist
    wrench: Any


def hybrid_series(
    model: Model,
    q: Configuration,
    v,
    inputs: Callable,
    order: int,
    given,
    applied,
    formulation: Formulation = BODY_FRAME,
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Coefficients of the accelerations and of the forces, sequences of order + 1 arrays (nv,).

    inputs(k, speeds) -> (x, tau), each (nv,): coefficients k of the prescribed accelerations and of the given forces,
    which may depend on the coefficients of the velocity found so far, speeds[0..k]. given: (nv,) NumPy bool, where the
    acceleration is prescribed and the force unknown; None: nowhere, and x is not read. applied: as in inverse_series.
    """
    program = partial(_hybrid_series, inputs, order, given, formulation)
    return batched(program)(model, q, v, applied)


def _hybrid_series(
    inputs: Callable, order: int, given, formulation: Formulation, model: Model, q, v, applied
) -> tuple[list[jax.Array], list[jax.Array]]:
    orders = range(order + 1)
    sweeps = _Sweeps(formulation, given is not None, orders[-1])
    walk = TreeTraversal(model.tree, model.dtype)
    none = [None] * len(walk.runs)
    bodies, applied = walk.bodies(body_data(model)), _applied(walk, applied)
    masks = none if given is None else walk.velocities(given.astype(model.dtype))  # NumPy: it folds
    axles = _zip(walk.velocities(model.armature), walk.velocities(model.damping), masks)
    world, accelerations = formulation.root(model, order)
    history, load = _unzip(
        walk.outward(sweeps.first, world, bodies, walk.configurations(q), walk.velocities(v), applied)
    )
    transmitted: list = [()] * len(walk.runs)
    passages: list = none
    found, forces, speeds = [], [], [v]
    for k in orders:
        x, tau = inputs(k, speeds)
        joints = _zip(axles, walk.velocities(tau), none if given is None else walk.velocities(x))
        zero = (NO_INERTIA if k == 0 else None, NO_WRENCH)
        passages, load, u = _unzip(
            walk.inward(sweeps.inward, zero, bodies, history, load, joints, transmitted, passages)
        )
        history, load, wrenches, solved, through = _unzip(
            walk.outward(
                sweeps.outward,
                accelerations[k],
                bodies,
                history,
                load,
                joints,
                transmitted if sweeps.masked else none,
                passages,
                u,
                applied,
            )
        )
        transmitted = [(*before, wrench) for before, wrench in zip(transmitted, wrenches, strict=True)]
        found.append(walk.to_velocities(solved))
        forces.append(tau)
        if given is not None:
            needed = walk.to_velocities(through) + model.armature * found[k] + model.damping * speeds[k]
            forces[k] = jnp.where(given, needed, tau)
        speeds.append(found[k] / (k + 1))
    return found, forces


def _zip(*columns: list) -> list[tuple]:
    return list(zip(*columns, strict=True))


def _unzip(rows: list[tuple]) -> list[list]:
    return [list(column) for column in zip(*rows, strict=True)]


class _Sweeps:
    """The steps of the sweeps; `masked` if some accelerations are given, `last` the highest order."""

    def __init__(self, formulation: Formulation, masked: bool, last: int):
        self.frame, self.masked, self.last = formulation, masked, last

    def first(self, kind, parent, body, q, speed, applied):
        """The motion at order 0 and what it loads."""
        history, carry = self.frame.start(kind, body, q, speed, parent)
        return carry, self._loaded(body, history, applied)

    def _loaded(self, body, history, applied) -> tuple[Any, BiasTerms]:
        done = len(history.speed) > self.last
        load = BiasTerms(self.frame.bias(history), self.frame.load(body, history, applied))
        return self.frame.posture(history) if done else history, load

    def inward(self, kind, children, body, history, load, joint, transmitted, passage):
        """Wrenches that pass the joint when it carries its force and nothing else accelerates it."""
        (armature, damping, given), tau, prescribed = joint
        k = len(history.speed) - 1
        S = self.frame.subspace(history)
        bias, wrench = load.bias, add(load.wrench, children[1])
        if self.masked:
            bias = add(bias, joint_twist(S, given * prescribed))
        if passage is None:
            passage = self._passage(self.frame.inertia(body, history), S, children[0], armature, given)
        u = tau - damping * history.speed[k] - self.frame.project(history, (*transmitted, wrench))
        if self.masked:
            u = (1 - given) * u
        pushed = joint_wrench(passage.U, sm.ldl_solve(passage.factor, u))
        loaded = add(add(wrench, passage.behind.wrench(bias)), pushed)
        up = self.frame.to_parent(body, history, (*transmitted, loaded))
        inertia = self.frame.shift(passage.behind, history) if k == 0 else None
        if k == self.last:
            passage = passage._replace(behind=None)
            if not self.masked:  # the wrench at the joint is not asked for
                passage, wrench = passage._replace(inertia=None), None
        return (inertia, up), (passage, BiasTerms(bias, wrench), u)

    def _passage(self, own, S, children, armature, given) -> Passage:
        inertia = add_inertia(children, own)
        U = inertia_columns(inertia, S)
        D = joint_inertia(S, U, armature)
        if self.masked:
            free = 1 - given
            U = (U[0] * free, U[1] * free)
            D = sm.outer(free, free) * D + sm.diagonal(given)
        factor = sm.ldl(D)
        return Passage(inertia, through_joint(inertia, U, factor), U, factor)

    def outward(self, kind, parent, body, history, load: BiasTerms, joint, transmitted, passage: Passage, u, applied):
        """Accelerations of joint and body, and the motion and load of the next order."""
        (_, _, given), _, prescribed = joint
        more = len(history.speed) <= self.last
        own = add(self.frame.to_child(body, history, parent), load.bias)
        x = sm.ldl_solve(passage.factor, u - project(passage.U, own))
        own = add(own, joint_twist(self.frame.subspace(history), x))
        if self.masked:
            x = x + given * prescribed
        wrench: Any = add(passage.inertia.wrench(own), load.wrench) if self.masked or more else None
        through = self.frame.project(history, (*transmitted, wrench)) if self.masked else None
        if not more:
            return own, (None, None, wrench, x, through)
        history = self.frame.advance(kind, body, history, x, parent, own, len(history.speed) == self.last)
        return own, (*self._loaded(body, history, applied), wrench, x, through)
