"""The constraints of all loops at one state: residual, Jacobian, rate and bias of the acceleration."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World, ancestor_mask, world_kinematics
from lgjax.dynamics.loops.closures import CLOSURES
from lgjax.dynamics.loops.couplings import Coupling, JointCoupling, LengthCoupling, Rows, joint_rows
from lgjax.dynamics.loops.cut_joint import cut_joint
from lgjax.dynamics.loops.loop import Loop, as_loops, carrier
from lgjax.execution import batched
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration, neutral, pose_tangent, tangent
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.rank import product


class Constraint(NamedTuple):
    """phi(q) = 0 and its derivatives along the motion, m rows in the order of the loops.

    residual: phi (m,), meters, radians and cosines. jacobian: A (m, nv), dphi/dt = A v. rate: A v (m,).
    bias: (m,), what of d^2 phi/dt^2 = A vdot + bias does not depend on vdot.
    """

    residual: jax.Array
    jacobian: jax.Array
    rate: jax.Array
    bias: jax.Array


@checked_arguments()
def loop_constraint(
    model: Model, loops: Loop | Sequence[Loop], q: Configuration, v: jax.Array | None = None
) -> Constraint:
    """Residual, Jacobian, rate and acceleration bias of the loops; without v the last two are zero.

    The Jacobian is the exact derivative of the residual with respect to the velocities, also where the loops are open.
    Raises ValueError for bodies that are not in the model. Source: [kim2012] eqs. 54-55.
    """
    several = as_loops(model, loops)
    ends = _Ends(model, several)
    speed = jnp.zeros(model.nv, model.dtype) if v is None else v

    def at(here):
        world = world_kinematics(model, here, speed)
        parts, slopes = ends.relative(world)
        pulled = [jax.jvp(value, (here,), (tangent(model.tree, here, speed),)) for value in ends.values]
        residual, rate = (jnp.concatenate(x) for x in zip(*parts, *pulled, strict=True))
        return (residual, rate), (world, slopes)

    found = ends.coupled(q, v)
    if ends.closures or ends.values:
        if v is None:
            (residual, rate), (world, slopes) = at(q)
            bias = rate
        else:  # along q exp(t v)
            (residual, rate), (_, bias), (world, slopes) = jax.jvp(
                at, (q,), (tangent(model.tree, q, speed),), has_aux=True
            )
        jacobians = [product(G, ends.columns(i, world)).reshape(-1, model.nv) for i, G in enumerate(slopes)]
        for value in ends.values:
            column = lambda dv, f=value: jax.jvp(f, (q,), (tangent(model.tree, q, dv),))[1]
            jacobians.append(jax.vmap(column, out_axes=-1)(jnp.eye(model.nv, dtype=model.dtype)))
        found = [Rows(residual, jnp.concatenate(jacobians), rate, bias), *found]
    return Constraint(*(ends.ordered(*parts) for parts in zip(*found, strict=True)))


@checked_arguments()
def loop_residual(model: Model, loops: Loop | Sequence[Loop], q: Configuration) -> jax.Array:
    """Residual phi(q) (m,) of the loops: meters, radians and cosines, in the order of the loops.

    Source: [kim2012] eqs. 54-55.
    """
    return loop_constraint(model, loops, q).residual


class _Ends:
    """Loops between frames gathered by kind, so that the number of loops does not matter; then functions, couplings."""

    def __init__(self, model: Model, loops: tuple[Loop, ...]):
        self.model = model
        kinds = dict.fromkeys(loop.kind for loop in loops if not callable(loop.kind))
        members = [[i for i, loop in enumerate(loops) if loop.kind == kind] for kind in kinds]
        coupled = [i for i, loop in enumerate(loops) if isinstance(loop.kind, Coupling)]
        coupled.sort(key=lambda i: not isinstance(loops[i].kind, JointCoupling))
        functions = [i for i, loop in enumerate(loops) if callable(loop.kind) and i not in coupled]
        self.couplings = [(loops[i].kind, loops[i].parameters) for i in coupled]
        self.closures = [CLOSURES[kind][0] if isinstance(kind, str) else cut_joint(kind) for kind in kinds]
        self.values = [lambda q, loop=loops[i]: loop.value(model, q, loop.parameters) for i in functions]
        self.bodies, self.frames, self.numbers, self.moves = [], [], [], []
        mask = np.concatenate([ancestor_mask(model.tree)[:, np.asarray(model.tree.v_body)], np.zeros((1, model.nv))])
        for group in members:
            a, b = ([carrier(model, loops[i], *end) for i in group for end in [_end(loops[i], s)]] for s in "ab")
            for i, (body_a, _), (body_b, _) in zip(group, a, b, strict=True):
                if body_a == body_b:
                    raise ValueError(f"loop {loops[i].label} joins a body to itself")
            index_a, index_b = (np.asarray([body for body, _ in end]) for end in (a, b))
            self.bodies.append((index_a, index_b))
            self.frames.append([jax.tree.map(lambda *x: jnp.stack(x), *(frame for _, frame in end)) for end in (a, b)])
            numbers = [(loops[i].distance, loops[i].pitch, loops[i].start, model.gravity[0]) for i in group]
            self.numbers.append(jnp.stack([next(x for x in some if x is not None) for some in numbers]))
            self.moves.append(mask[index_b] - mask[index_a])
        sizes = [loops[i].rows(model, neutral(model)) for group in (*members, functions, coupled) for i in group]
        self.size = sum(sizes)
        order = [i for group in (*members, functions, coupled) for i in group]
        starts = np.cumsum([0, *sizes])[:-1]
        self.order = np.concatenate(
            [np.arange(sizes[k]) + starts[k] for k in np.argsort(np.asarray(order), kind="stable")]
        )

    def ordered(self, *parts) -> jax.Array:
        """Rows gathered by kind, (loops, rows, ...) or (rows, ...), in the order of the loops."""
        return jnp.concatenate(parts)[self.order]

    def coupled(self, q: Configuration, v) -> list[Rows]:
        """Rows of the couplings: those of joints together, then each of the others."""
        joints = [(kind, numbers) for kind, numbers in self.couplings if isinstance(kind, JointCoupling)]
        others = [(kind, numbers) for kind, numbers in self.couplings if isinstance(kind, LengthCoupling)]
        found = [joint_rows(self.model, joints, q, v)] if joints else []
        return [*found, *(kind.rows(self.model, q, v, numbers) for kind, numbers in others)]

    def poses(self, i: int, world: World) -> tuple[Pose, Pose]:
        """Poses of the frames of the loops of one kind, about the origin of `world`."""
        ground = Pose(jnp.eye(3, dtype=world.origin.dtype)[None], -world.origin[None])
        bodies = jax.tree.map(lambda x, w: jnp.concatenate([x, w]), world.poses, ground)
        a, b = (
            jax.tree.map(lambda x, k=k: x[k], bodies) @ f for k, f in zip(self.bodies[i], self.frames[i], strict=True)
        )
        return a, b

    def columns(self, i: int, world: World) -> jax.Array:
        """Twists (loops, 6, nv) of frame b relative to frame a, in frame b, per unit of the velocities."""
        _, b = self.poses(i, world)
        lifted = jax.tree.map(lambda x: x[:, None], se3.inverse(b))
        moves = jnp.asarray(self.moves[i], world.S.dtype)
        return sm.transpose(se3.Ad(lifted, moves[..., None] * world.S))

    def relative(self, world: World):
        """Per kind (residual, rate), each (loops * rows,), and the derivative (loops, rows, 6) by the twist of b."""
        twists = jnp.concatenate([world.twists, jnp.zeros_like(world.twists[:1])])
        found, slopes = [], []
        for i, closure in enumerate(self.closures):
            a, b = self.poses(i, world)
            index_a, index_b = self.bodies[i]
            twist = se3.Ad(se3.inverse(b), twists[index_b] - twists[index_a])
            pose = se3.compose(se3.inverse(a), b)
            values, slope = jax.vmap(batched(partial(_with_slope, closure)))(pose, self.numbers[i])
            found.append((values.reshape(-1), sm.matvec(slope, twist).reshape(-1)))
            slopes.append(slope)
        return found, slopes


def _with_slope(closure, pose: Pose, number):
    """Residual (rows,) of a closure and its derivative (rows, 6) by the twist of the pose, in its own axes."""
    values, slope = jax.linearize(lambda pose: closure(pose, number), pose)
    column = lambda xi: slope(pose_tangent(pose, xi))
    return values, jax.vmap(column, out_axes=-1)(jnp.eye(6, dtype=values.dtype))


def _end(loop: Loop, side: str):
    return getattr(loop, f"body_{side}"), getattr(loop, f"frame_{side}")
