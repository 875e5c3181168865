"""Interface between the sweeps of `series` and the frame in which the motion of the bodies is written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Formulation:
    """The equations of one body in one frame, as functions of what is known of its motion: its history.

    Accelerations are coefficients k of a series, (k + 1) V[k + 1]. A body's acceleration is to_child of the parent's
    + S x + bias, the wrench at its joint inertia times acceleration + load + to_parent of its children's wrenches.

    root(model, order) -> carry of the world, its accelerations by order.
    start(kind, body, q, speed, carry of the parent) -> (history of order 0, carry of the body).
    bias(history) -> Twist, the acceleration apart from those of parent and joint, at the history's last order.
    load(body, history, applied) -> Wrench, the wrench apart from the acceleration's and the children's, at that order.
    advance(kind, body, history, x, parent, own, last) -> the history with one order more; last: nothing follows it.
    posture(history) -> what is left to keep of it when the motion is complete.
    subspace(history) -> joint motions S, angular and linear columns; inertia(body, history) -> Inertia; at order 0.
    to_child(body, history, parent) -> Twist; to_parent(body, history, wrenches by order) -> Wrench, the last order.
    shift(inertia, history) -> an articulated inertia as the parent feels it.
    project(history, wrenches by order) -> the joint force (nv,), the last order.
    """

    root: Callable[..., Any]
    start: Callable[..., Any]
    bias: Callable[..., Any]
    load: Callable[..., Any]
    advance: Callable[..., Any]
    posture: Callable[..., Any]
    subspace: Callable[..., Any]
    inertia: Callable[..., Any]
    to_child: Callable[..., Any]
    to_parent: Callable[..., Any]
    shift: Callable[..., Any]
    project: Callable[..., Any]
