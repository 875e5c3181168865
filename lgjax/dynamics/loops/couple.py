"""Makers of couplings: joints that follow joints, lengths that follow lengths. Read `couplings.py` first."""

from typing import Any

import numpy as np

from lgjax.dynamics.loops.couplings import Follow, JointCoupling, LengthCoupling
from lgjax.dynamics.loops.loop import Loop
from lgjax.dynamics.transmissions import Transmissions
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics.messages import shown

MOST = 5  # coefficients


def couple_joints(
    model: Model | Mechanism,
    follower: str,
    leader: str | None = None,
    coefficients: Any = (0.0, 1.0),
    references: Any = (0.0, 0.0),
    name: str | None = None,
) -> Loop:
    """Loop that makes a joint follow another: y - y0 = c0 + c1 (x - x0) + ... + c4 (x - x0)^4, exactly.

    follower, leader: names of the joints with the coordinates y and x (rad or m): scalar joints, or coordinates of
    joints with several. Without a leader, y - y0 = c0. coefficients: (k,), at most five, constant first; the default is
    y = x. references: (y0, x0), rad or m; MuJoCo's are the positions in the configuration that the file shows.
    Coefficients and references may be traced. Pass the result as `loops=`.
    Raises ValueError for unknown joints, joints without a scalar coordinate, and a joint that follows itself.
    Source: MuJoCo's joint equality, URDF's mimic joints.
    """
    model = checked_model(model)
    kind = JointCoupling(follower, leader)
    kind.places(model.tree)
    label = f"coupling {name!r}" if name is not None else kind.label.strip("()")
    if follower == leader:
        raise ValueError(f"{label}: a joint cannot follow itself")
    return Loop(kind, parameters=_follow(label, coefficients, references, leader, model.dtype), name=name)


def couple_lengths(
    lengths: Transmissions,
    follower: int = 0,
    leader: int | None = None,
    coefficients: Any = (0.0, 1.0),
    references: Any = (0.0, 0.0),
    name: str | None = None,
) -> Loop:
    """Loop that makes a length, such as that of a tendon, follow another; the equation is that of `couple_joints`.

    lengths: `Transmissions`, such as those of `lgjax.actuators.fixed_tendons`, whose moments are the derivatives of the
    lengths. follower, leader: indices of `lengths`. Other arguments: as in `couple_joints`.
    Raises TypeError for other lengths, ValueError for indices out of range. Source: MuJoCo's tendon equality.
    """
    if not isinstance(lengths, Transmissions):
        raise TypeError(f"lengths are Transmissions, got {checks.described(lengths)}")
    label = "coupling of lengths" if name is None else f"coupling {name!r}"
    for what, index in (("follower", follower), ("leader", leader)):
        if index is None and what == "leader":
            continue
        if not isinstance(index, int | np.integer) or isinstance(index, bool) or not 0 <= index < len(lengths):
            raise ValueError(f"{label}: {what} is an index below {len(lengths)}, got {shown(index)}")
    if follower == leader:
        raise ValueError(f"{label}: a length cannot follow itself")
    used = sorted({follower} if leader is None else {follower, leader})
    kind = LengthCoupling(used.index(follower), None if leader is None else used.index(leader))
    numbers = _follow(label, coefficients, references, leader, lengths.dtype)
    return Loop(kind, parameters=numbers._replace(lengths=lengths.take(used)), name=name)


def _follow(label: str, coefficients, references, leader, dtype) -> Follow:
    found = checks.array(f"{label}: coefficients", coefficients, (None,), dtype, exact=True)
    if leader is None:
        found = found[:1]  # the others multiply powers of zero
    if not 1 <= len(found) <= MOST:
        raise ValueError(f"{label}: {len(found)} coefficients, expected one to {MOST}")
    return Follow(found, checks.array(f"{label}: references", references, (2,), dtype, exact=True))
