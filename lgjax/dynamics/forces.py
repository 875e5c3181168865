"""Generalized forces to be added up: springs, dampers, joint limits, friction, springs between points, motors.

A force is a value whose parameters are leaves: batched, differentiated, optimized like those of a Model. Call it as
tau = force(t, q, v), (nv,), pass it to `rollout` as a controller, or add it to forces and to controllers:
`forces.spring(model, 20.0) + forces.friction(model, 0.1) + controller`. force.energy(q) is the potential energy of its
conservative part. Makers take the model for its topology, its dtype and what is not given, and raise ValueError naming
what is out of range; a force with a traced number out of range is NaN. force.for_model(other) is the same force on
another model of the same tree. Parameters are numbers or arrays with an entry for each coordinate of the joints named,
by default of all but free ones, in body order; N/m, N s/m, N for sliding coordinates and N m/rad, N m s/rad, N m for
turning ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.joint_parameters import coordinates_of, parameter, scalars_of
from lgjax.dynamics.kinematics import ancestor_mask, world_kinematics
from lgjax.execution.compiled import compiled
from lgjax.groups import se3
from lgjax.multibody.arguments import checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration, configuration, difference
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import length_and_direction

STATIC = {"static": True}


class Force:
    """tau = force(t, q, v); forces and controllers add up to a force."""

    def __init_subclass__(cls, **options) -> None:
        super().__init_subclass__(**options)
        for name in {"__call__", "energy"} & set(vars(cls)):
            setattr(cls, name, compiled(vars(cls)[name]))

    def __call__(self, t, q: Configuration, v) -> jax.Array:
        raise NotImplementedError

    def energy(self, q: Configuration) -> jax.Array:
        """Potential energy (), J, of what is conservative."""
        return jnp.zeros((), q.joints.dtype)

    def for_model(self, model: Model) -> "Force":
        """The same force on another model with the same tree: all that it took from its own model is then that one's.

        Numbers that were given to its maker stay.
        """
        return self

    def __add__(self, other) -> "Sum":
        return Sum(_forces(self) + _forces(other), _controllers(self) + _controllers(other))

    def __radd__(self, other) -> "Sum":
        return Sum(_forces(other) + _forces(self), _controllers(other) + _controllers(self))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sum(Force):
    """Several forces, and controllers(t, q, v), at once."""

    forces: tuple[Force, ...]
    controllers: tuple[Callable, ...] = field(default=(), metadata=STATIC)

    def __call__(self, t, q, v):
        return sum((part(t, q, v) for part in (*self.forces, *self.controllers)), start=jnp.zeros_like(v))

    def energy(self, q):
        return sum((part.energy(q) for part in self.forces), start=super().energy(q))

    def for_model(self, model):
        return replace(self, forces=tuple(part.for_model(model) for part in self.forces))


def _forces(x) -> tuple:
    return x.forces if isinstance(x, Sum) else (x,) if isinstance(x, Force) else ()


def _controllers(x) -> tuple:
    if not callable(x):
        raise TypeError(f"a force adds to forces and to controllers(t, q, v), not to {checks.shown(x)}")
    return x.controllers if isinstance(x, Sum) else () if isinstance(x, Force) else (x,)


# ---- joints
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JointSpring(Force):
    """-stiffness times the displacement from `rest`, a rotation vector in the child's frame for a ball."""

    model: Model
    stiffness: jax.Array
    rest: Configuration
    index: tuple[int, ...] = field(metadata=STATIC)

    def __call__(self, t, q, v):
        return _spread(v, self.index, -self.stiffness * self._displacement(q))

    def energy(self, q):
        return jnp.sum(self.stiffness * self._displacement(q) ** 2) / 2

    def for_model(self, model):
        return replace(self, model=model)

    def _displacement(self, q):
        return difference(self.model, self.rest, q)[np.asarray(self.index, int)]


def spring(
    model: Model, stiffness: Any, rest: Configuration | None = None, joints: Sequence[str] | None = None
) -> JointSpring:
    """Springs at joints: tau = -stiffness (q - rest), rest neutral unless given; a ball has one stiffness."""
    names, index = coordinates_of(model, joints)
    rest = configuration(model) if rest is None else checked_configuration("rest", rest, model)
    stiffness = parameter("stiffness", stiffness, names, model.dtype)
    if checks.known(stiffness):
        balls = {body: set() for body, kind in enumerate(model.tree.kinds) if kind.coordinates == "ball_rotations"}
        for value, i in zip(np.asarray(stiffness).tolist(), index, strict=True):
            if (body := model.tree.v_body[i]) in balls:
                balls[body].add(value)
                if len(balls[body]) > 1:
                    name = model.tree.joint_names[body]
                    raise ValueError(f"stiffness of the ball {name!r} is one number, got {sorted(balls[body])}")
    return JointSpring(model, stiffness, rest, tuple(index))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Friction(Force):
    """Viscous and dry friction, -viscous v - coulomb tanh(v / smoothing)."""

    viscous: jax.Array
    coulomb: jax.Array
    smoothing: jax.Array
    index: tuple[int, ...] = field(metadata=STATIC)
    of_model: bool = field(default=False, metadata=STATIC)  # whether coulomb is `Model.friction`

    def __call__(self, t, q, v):
        speed = v[np.asarray(self.index, int)]
        return _spread(v, self.index, -self.viscous * speed - self.coulomb * jnp.tanh(speed / self.smoothing))

    def for_model(self, model):
        return replace(self, coulomb=model.friction[np.asarray(self.index, int)]) if self.of_model else self


def damper(model: Model, damping: Any, joints: Sequence[str] | None = None) -> Friction:
    """Viscous dampers at joints: tau = -damping v."""
    return friction(model, damping, 0.0, joints=joints)


def friction(
    model: Model, viscous: Any = 0.0, coulomb: Any = None, smoothing: Any = 1e-2, joints: Sequence[str] | None = None
) -> Friction:
    """Viscous and dry friction at joints: tau = -viscous v - coulomb tanh(v / smoothing).

    coulomb: None takes `Model.friction`. smoothing: the speed (rad/s or m/s) at which three quarters of it act;
    below it the joint creeps instead of sticking, and derivatives at rest are finite.
    """
    names, index = coordinates_of(model, joints)
    dry = model.friction[np.asarray(index, int)] if coulomb is None else coulomb
    if coulomb is not None or checks.known(dry):
        dry = parameter("coulomb", dry, names, model.dtype)
    # Else the model's as it is: negative friction drives the joint, and a search for it may pass through such numbers.
    return Friction(
        parameter("viscous", viscous, names, model.dtype),
        dry,
        parameter("smoothing", smoothing, names, model.dtype, positive=True),
        tuple(index),
        coulomb is None,
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Limits(Force):
    """A one-sided spring and damper behind each limit, which begins as a parabola of length `width`."""

    lower: jax.Array
    upper: jax.Array
    stiffness: jax.Array
    damping: jax.Array
    width: jax.Array
    index: tuple[int, ...] = field(metadata=STATIC)
    start: tuple[int, ...] = field(metadata=STATIC)
    of_model: tuple[str, ...] = field(default=(), metadata=STATIC)  # which of lower and upper are the model's

    def __call__(self, t, q, v):
        speed, tau = v[np.asarray(self.index, int)], 0
        for side, depth in self._depths(q):
            inside = jnp.clip(depth, 0, self.width)  # where the parabola is, and one with it beyond
            push = self.stiffness * (inside * inside / (2 * self.width) + jnp.maximum(depth - self.width, 0))
            tau = tau - side * push - self.damping * inside / self.width * speed
        return _spread(v, self.index, tau)

    def energy(self, q):
        total = 0
        for _, depth in self._depths(q):
            inside, beyond = jnp.clip(depth, 0, self.width), jnp.maximum(depth - self.width, 0)
            total = total + inside**3 / (6 * self.width) + beyond * (beyond + self.width) / 2
        return jnp.sum(self.stiffness * total)

    def for_model(self, model):
        return replace(self, **{name: getattr(model, name)[np.asarray(self.start, int)] for name in self.of_model})

    def _depths(self, q):
        """Signs of, and depths (n,) beyond, the upper and the lower limits."""
        x = q.joints[np.asarray(self.start, int)]
        return (1, x - self.upper), (-1, self.lower - x)


def limits(
    model: Model,
    stiffness: Any,
    damping: Any = 0.0,
    width: Any = 1e-2,
    lower: Any = None,
    upper: Any = None,
    joints: Sequence[str] | None = None,
) -> Limits:
    """Soft stops at the limits of scalar coordinates, by default those of the model; infinite ones never act.

    Nothing acts inside the limits. Behind one the force grows as stiffness depth^2 / (2 width) up to `width` (rad or
    m), then with slope `stiffness`, continuous with its first derivative; damping fades in over the same length.
    """
    names, index, start = scalars_of(model, joints)
    taken = np.asarray(start, int)
    low = parameter("lower", model.lower[taken] if lower is None else lower, names, model.dtype, -np.inf, finite=False)
    high = parameter("upper", model.upper[taken] if upper is None else upper, names, model.dtype, -np.inf, finite=False)
    if checks.known(low, high):
        for name, a, b in zip(names, np.asarray(low).tolist(), np.asarray(high).tolist(), strict=True):
            if a > b:
                raise ValueError(f"the lower limit of {name!r} is {a:g}, above the upper one, {b:g}")
    else:
        low = jnp.where(low > high, jnp.nan, low)
    return Limits(
        low,
        high,
        parameter("stiffness", stiffness, names, model.dtype),
        parameter("damping", damping, names, model.dtype),
        parameter("width", width, names, model.dtype, positive=True),
        tuple(index),
        tuple(start),
        tuple(name for name, value in (("lower", lower), ("upper", upper)) if value is None),
    )


# ---- motors
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Motors(Force):
    """gear times the motors' torques, as commanded by `command(t, q, v)` within what their speed allows."""

    gear: jax.Array
    rotor_inertia: jax.Array
    torque: jax.Array
    speed: jax.Array
    index: tuple[int, ...] = field(metadata=STATIC)
    command: Callable = field(metadata=STATIC)

    def __call__(self, t, q, v):
        wanted = self.command(t, q, v)
        turning = self.gear * v[np.asarray(self.index, int)] / self.speed
        most = self.torque * jnp.clip(1 - turning, 0, 1)
        least = -self.torque * jnp.clip(1 + turning, 0, 1)
        return _spread(v, self.index, self.gear * jnp.clip(wanted, least, most))

    def with_rotors(self, model: Model) -> Model:
        """The model with the rotors' inertia, gear^2 rotor_inertia, added to its armature."""
        reflected = self.gear * self.gear * self.rotor_inertia
        return model.replace(armature=model.armature + _spread(model.armature, self.index, reflected))


def motors(
    model: Model,
    command: Callable,
    gear: Any = 1.0,
    rotor_inertia: Any = 0.0,
    torque: Any = np.inf,
    speed: Any = np.inf,
    joints: Sequence[str] | None = None,
) -> Motors:
    """Motors behind gears: command(t, q, v) -> (n,) torques of the n motors, one per coordinate; tau = gear torque.

    gear: turns of the rotor per turn of the joint (per meter: 1/m). rotor_inertia: kg m^2, for `with_rotors`. A motor
    gives at most `torque` (N m) at rest, which falls linearly to nothing at `speed` (rad/s of the rotor) in the
    direction of motion; braking it gives all of it.
    """
    names, index, _ = scalars_of(model, joints)
    most = parameter("torque", torque, names, model.dtype, finite=False)
    return Motors(
        parameter("gear", gear, names, model.dtype, -np.inf),
        parameter("rotor_inertia", rotor_inertia, names, model.dtype),
        jnp.minimum(most, jnp.finfo(model.dtype).max ** 0.5),  # finite, as are its products with zero and with gears
        parameter("speed", speed, names, model.dtype, positive=True, finite=False),
        tuple(index),
        checks.function("command", command),
    )


# ---- springs between points
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PointSpring(Force):
    """A spring and a damper along the line between two points."""

    model: Model
    points: tuple[jax.Array, jax.Array]
    stiffness: jax.Array
    damping: jax.Array
    length: jax.Array
    bodies: tuple[str | int | None, str | int | None] = field(metadata=STATIC)

    def __call__(self, t, q, v):
        world, places, moves = self._kinematics(q, v)
        gap = places[1] - places[0]
        _, along = length_and_direction(gap)
        J = [
            jnp.where(m[:, None], world.S[:, 3:] + sm.cross(world.S[:, :3], p), 0)
            for p, m in zip(places, moves, strict=True)
        ]
        apart = J[1] - J[0]  # (nv, 3): how the gap grows
        speed = sm.dot(along, jnp.sum(apart * v[:, None], 0))
        pull = self.stiffness * gap - (self.stiffness * self.length - self.damping * speed) * along
        return -sm.matvec(apart, pull)

    def energy(self, q):
        _, places, _ = self._kinematics(q, None)
        gap = places[1] - places[0]
        distance, _ = length_and_direction(gap)
        # Where the points meet, the square in the form that has its derivatives there.
        meeting = sm.dot(gap, gap) + self.length * (self.length - 2 * distance)
        return self.stiffness * jnp.where(distance > 0, (distance - self.length) ** 2, meeting) / 2

    def for_model(self, model):
        return replace(self, model=model)

    def _kinematics(self, q, v):
        """Motions in world axes, the two points about the same origin, and the velocities that move them."""
        world = world_kinematics(self.model, q, v)
        places, moves = [], []
        for body, point in zip(self.bodies, self.points, strict=True):
            index, offset = (-1, None) if body is None else carrier(self.model, body)
            if index >= 0 and offset is not None:
                offset = se3.compose(jax.tree.map(lambda x, i=index: x[i], world.poses), offset)
            at = point if offset is None else sm.matvec(offset.rotation, point) + offset.translation
            places.append(at if index >= 0 else at - world.origin)
            path = ancestor_mask(self.model.tree)[index] if index >= 0 else np.zeros(self.model.nbodies, bool)
            moves.append(path[np.asarray(self.model.tree.v_body)])
        return world, places, moves


def point_spring(model: Model, a: Any, b: Any, stiffness: Any, length: Any = 0.0, damping: Any = 0.0) -> PointSpring:
    """A spring with a damper between two points: pull = stiffness (distance - length) + damping d(distance)/dt.

    a and b: (body, point (3,)): the name of a body or frame, or the index of a body, and the point in its frame; (None,
    point) is a point of the world. Metres, N/m, N s/m. At distance zero a spring with a length gives no force.
    """
    checked_model(model)
    points = []
    for what, end in (("a", a), ("b", b)):
        if not isinstance(end, tuple | list) or len(end) != 2:
            raise TypeError(f"{what} must be a pair of a body and a point, got {checks.shown(end)}")
        body, point = end
        if body is not None:
            carrier(model, body)
        points.append(checks.array(f"point {what} of a spring", point, (3,), model.dtype, exact=True))
    scalar = lambda name, value: parameter(name, value, None, model.dtype)
    return PointSpring(
        model,
        (points[0], points[1]),
        scalar("stiffness", stiffness),
        scalar("damping", damping),
        scalar("length", length),
        (a[0], b[0]),
    )


# ---- what the makers share
def _spread(v, index: tuple[int, ...], values):
    if not isinstance(v, jax.Array | np.ndarray):
        raise TypeError(f"v is {checks.described(v)}, expected an array (nv,)")
    if not jnp.issubdtype(v.dtype, jnp.floating):
        raise TypeError(f"v is {v.dtype}, expected floating numbers")
    if v.ndim != 1 or (index and max(index) >= len(v)):
        raise ValueError(f"v has shape {v.shape}, expected (nv,) of the model of the force")
    return jnp.zeros_like(v).at[np.asarray(index, int)].set(values)
