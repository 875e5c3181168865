"""A quadruped that learns to walk: an `Environment` with servos, a commanded velocity, and ground that may be rough.

Read first: `environment.py`. `walking_quadruped` is the environment, `random_params` draws grounds, frictions and
masses for the robots of a batch.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.adapters.environment import Environment, EnvironmentParams
from lgjax.contact import TimeStepping
from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.height_field import HeightField
from lgjax.groups import se3, so3
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.multibody.models import quadruped
from lgjax.numerics import checks
from lgjax.robots import actuators
from lgjax.robots.robot import Robot
from lgjax.shapes.contact import Plane

Array = jax.Array

FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
STAND = np.tile([0.0, 0.8, -1.6], 4)  # joint angles, rad
HEIGHT = 0.345  # of the trunk above flat ground at the start, m
LOW, TILT = 0.16, 0.5  # an episode ends below this height, m, and at this cosine of the trunk's tilt
NODES, SPACING, CORNER = (20, 13), 0.3, (-1.2, -1.8)  # of rough ground, which reaches 4.5 m ahead
PLATFORM = 0.6  # half the side of the level square where episodes begin, m
WIDTH = 0.25  # m/s and rad/s, at which the rewards for the commanded velocity fall to 1/e
# Weights of what costs, per step.
COSTS = {"bounce": 1.0, "sway": 0.05, "tilt": 1.0, "action": 0.01, "change": 0.02}


class Walk(NamedTuple):
    """Memory of an episode: command (3,), velocity along x and y, m/s, and about z, rad/s; the last action (12,)."""

    command: Array
    action: Array


def walking_quadruped(
    command: Sequence[float] = (0.5, 0.0, 0.0),
    spread: Sequence[float] = (0.0, 0.0, 0.0),
    rough: bool = False,
    dtype: Any = jnp.float32,
    dt: float = 0.02,
    substeps: int = 4,
    steps: int = 500,
    stiffness: float = 40.0,
    damping: float = 1.5,
    reach: float = 0.4,
    friction: float = 0.8,
) -> Environment:
    """The built-in quadruped, which is to walk at a commanded velocity, on flat ground or on a height field.

    An action (12,), between -1 and 1 as a rule and clipped at ±4, moves the targets of the joints' servos by `reach`
    (rad) from where they stand.

    The observation (48,) has, in the frame of the trunk: the upward direction (3), the angular velocity over 4 and the
    linear velocity (6), the command (3); then the joint angles from those of the stand (12), the joint velocities over
    20 (12), the last action (12). The reward is exp(-|e|^2 / w^2) + exp(-d^2 / w^2) / 2 with the errors e and d of the
    commanded linear and angular velocity and w = 0.25 m/s and rad/s, less costs of vertical velocity, roll and pitch
    rates, tilt, actions and their changes. An episode fails when the trunk is too low or tilts by more than 60°.

    Args:
        command: velocity of the trunk in its own frame along x and y, m/s, and about z, rad/s.
        spread: each episode draws its own command from command ± spread, m/s and rad/s.
        rough: whether the ground is a height field, flat until `random_params` gives it heights.
        dtype: dtype of the model.
        dt: length of a control step, s.
        substeps: number of steps of `TimeStepping` in a control step.
        steps: number of control steps in an episode.
        stiffness, damping: gains of the servos, N m/rad and N m s/rad; torques stay within the efforts of the model.
        reach: angle by which an action of 1 moves a target, rad.
        friction: coefficient of friction of all contacts.
    """
    if dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"dtype must be jnp.float32 or jnp.float64, got {checks.shown(dtype)}")
    model = quadruped().astype(dtype)
    wide = checks.truth("rough", rough)
    ground = HeightField(np.zeros(NODES, dtype), SPACING, CORNER) if wide else Plane((0.0, 0.0, 1.0))
    stand = jnp.asarray(STAND, dtype)
    servos = _servos(model, stand, stiffness, damping, reach)
    middle, half = (jnp.asarray(checks.numbers(*x, (3,)), dtype) for x in (("command", command), ("spread", spread)))

    def start(key: Array, model: Model) -> tuple[Configuration, Array, Walk]:
        # One draw for all, since a step draws the start of the next episode, too.
        x = jax.random.uniform(key, (36,), dtype, -1.0, 1.0)
        turn = so3.exp(jnp.asarray([0.05, 0.05, 0.1], dtype) * x[:3])
        place = jnp.asarray([0.0, 0.0, HEIGHT], dtype)
        q = _configuration(model, turn, place, stand + 0.1 * x[3:15])
        return q, 0.2 * x[15:33], Walk(middle + half * x[33:], jnp.zeros(12, dtype))

    return Environment(
        model=Robot(model, actuators=servos), dt=dt, steps=steps, start=start, observe=_observe, reward=_reward,
        failed=_failed, remember=_remember, bounds=(-4.0, 4.0), method=TimeStepping(1e-4, 50), substeps=substeps,
        contacts=Contacts(model, ground, FEET, friction=friction),
    )  # fmt: skip


def _servos(model: Model, stand: Array, stiffness: float, damping: float, reach: float) -> actuators.Actuators:
    """Position servos whose targets are stand + reach * control."""
    kp, kv = (checks.number(*x, 0.0) for x in (("stiffness", stiffness), ("damping", damping)))
    made = actuators.position(model, kp=kp, kv=kv).within(model)
    gain = made.gain.at[:, 0].multiply(checks.number("reach", reach, 0.0, inside=True))
    return made.replace(gain=gain, bias=made.bias.at[:, 0].set(kp * stand))


def random_params(
    key: Array,
    environment: Environment,
    masses: tuple[float, float] = (0.8, 1.25),
    friction: tuple[float, float] = (0.5, 1.0),
    roughness: float = 0.0,
) -> EnvironmentParams:
    """Parameters for one robot of a batch; map over keys with `jax.vmap`.

    Args:
        key: a key of `jax.random`.
        environment: such as `walking_quadruped()`.
        masses: range of a factor on the density of each body.
        friction: range of the coefficient of all contacts.
        roughness: standard deviation of the heights, m, of a ground that is a `HeightField`; it is level within 0.6 m
            of the origin, along x and along y.

    Raises:
        ValueError: for roughness on another ground.
    """
    checks.random_key("key", key)
    checks.of_kind("environment", environment, Environment)
    model, contacts = environment.mechanism, environment.contacts
    keys = jax.random.split(key, 3)
    draw = lambda key, shape, ends: jax.random.uniform(key, shape, model.dtype, *ends)
    factors = draw(keys[0], (model.nbodies,), _range("masses", masses))
    heavier = model.replace(inertias=model.inertias.scaled(factors))
    most = _range("friction", friction)
    if contacts is None:
        return EnvironmentParams(heavier)
    contacts = contacts.replace(friction=jnp.broadcast_to(draw(keys[1], (), most), contacts.friction.shape))
    if checks.number("roughness", roughness, 0.0):
        field = contacts.grounds[0] if len(contacts.grounds) == 1 else None
        if not isinstance(field, HeightField):
            raise ValueError("roughness needs an environment on one height field: walking_quadruped(rough=True)")
        heights = roughness * _level(field) * jax.random.normal(keys[2], field.heights.shape, model.dtype)
        contacts = contacts.replace(grounds=HeightField(heights, field.spacing, field.corner))
    return EnvironmentParams(heavier, contacts)


def _range(name: str, ends: Any) -> tuple[float, float]:
    """Two numbers that are not negative, the smaller one first."""
    low, high = map(float, checks.numbers(name, ends, (2,)))
    if not 0 <= low <= high:
        raise ValueError(f"{name} must be a range (low, high) with 0 <= low <= high, got {(low, high)}")
    return low, high


def _level(field: HeightField) -> Array:
    """0 at the nodes of a height field whose cells reach into the square around the origin, 1 at the others."""
    index = [jnp.arange(n, dtype=jnp.int32).astype(field.heights.dtype) for n in field.heights.shape]
    away = [jnp.abs(field.corner[k] + field.spacing[k] * index[k]) for k in (0, 1)]
    x, y = (away[k] > PLATFORM + 0.99 * field.spacing[k] for k in (0, 1))
    return (x[:, None] | y[None, :]).astype(field.heights.dtype)


def _configuration(model: Model, rotation: Array, place: Array, joints: Array) -> Configuration:
    balls = jnp.zeros((0, 3, 3), model.dtype)
    return Configuration(se3.Pose(rotation[None], place[None]), joints, balls)


def _observe(model: Model, q: Configuration, v: Array, memory: Walk) -> Array:
    upward = q.free_poses.rotation[0, 2]
    moving = [v[:3] / 4, v[3:6], memory.command]
    joints = [q.joints - jnp.asarray(STAND, v.dtype), v[6:] / 20, memory.action]
    return jnp.concatenate([upward, *moving, *joints])


def _reward(model: Model, q: Configuration, v: Array, action: Array, memory: Walk) -> Array:
    near = lambda error: jnp.exp(-jnp.sum(error**2) / WIDTH**2)
    follows = near(v[3:5] - memory.command[:2]) + 0.5 * near(v[2] - memory.command[2])
    costs = {
        "bounce": v[5] ** 2,
        "sway": jnp.sum(v[:2] ** 2),
        "tilt": jnp.sum(q.free_poses.rotation[0, 2, :2] ** 2),
        "action": jnp.sum(action**2),
        "change": jnp.sum((action - memory.action) ** 2),
    }
    return follows - sum(weight * costs[name] for name, weight in COSTS.items())


def _failed(model: Model, q: Configuration, v: Array, memory: Walk) -> Array:
    return (q.free_poses.translation[0, 2] < LOW) | (q.free_poses.rotation[0, 2, 2] < TILT)


def _remember(model: Model, q: Configuration, v: Array, action: Array, memory: Walk) -> Walk:
    return memory._replace(action=action)
