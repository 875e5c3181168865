"""Random copies of a model or a robot: how far its parameters and its initial state spread. Read first: `Spread`."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.multibody.arguments import checked_model
from lgjax.multibody.configuration import Configuration, retract
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.robots.actuators import Actuators
from lgjax.robots.robot import Robot
from lgjax.simulate.robots import with_history

FURTHEST = 6.0  # standard deviations by which a delay is off at most: its memory has a known length


class Draw(NamedTuple):
    """Model or robot and initial state of one trajectory, and parameters (any pytree) for its controller.

    A model in the place of a robot's leaves its actuators as they are; a Robot is taken whole.
    """

    model: Model | Robot
    q: Configuration
    v: jax.Array
    parameters: Any = None


class Spread(NamedTuple):
    """Standard deviations of what is random, as numbers or traced; all normal and independent.

    position, velocity: of the initial state, each of the nv directions of tangent space (rad, m, rad/s, m/s).
    mass: of the logarithm of each body's density. inertia: of the logarithms of its stretch along the three axes of its
    joint frame, which moves its mass and so its center. geometry: of the logarithm of the distance of its joint from
    its parent's. friction: of the logarithms of damping and dry friction of each joint coordinate; the latter
    acts through `forces.friction(model)` or `Contacts(joint_friction=True)`. gravity: of each component, m/s^2. All
    bodies stay physical.

    For each actuator of a `Robot`, logarithms: gain: of its force per unit of control and of length, such as kp of a
    servo. velocity_gain: of the force that is proportional to speed, such as kv. gear: of its length and moment.
    time_constant: of its activation. delay: s, of its delay, which is never negative and at most six of them longer.
    """

    position: Any = 0.1
    velocity: Any = 0.1
    mass: Any = 0.0
    inertia: Any = 0.0
    geometry: Any = 0.0
    friction: Any = 0.0
    gravity: Any = 0.0
    gain: Any = 0.0
    velocity_gain: Any = 0.0
    gear: Any = 0.0
    time_constant: Any = 0.0
    delay: Any = 0.0


OF_MODEL, OF_ACTUATORS = Spread._fields[:7], Spread._fields[7:]


def checked_spread(spread: Any, mechanism: Model | Robot) -> Spread:
    """Numbers in the model's dtype; arrays pass that spread over what they scale. None where no actuator varies."""
    if not isinstance(spread, tuple):
        raise TypeError(f"spread must be a Spread, got {checks.shown(spread)}")
    model, actuators = checked_model(mechanism), actuators_of(mechanism)
    found = []
    shapes = [*_drawn(model), *[(0 if actuators is None else len(actuators),)] * len(OF_ACTUATORS)]
    for (name, value), shape in zip(Spread(*spread)._asdict().items(), shapes, strict=True):
        if name in OF_ACTUATORS and not varies(value):
            found.append(None)
            continue
        if name in OF_ACTUATORS and actuators is None:
            raise ValueError(f"spread.{name} is of actuators, and {model.name!r} has none: give a Robot that has")
        deviation = checks.floats(f"spread.{name}", value, (), model.dtype)
        if any(k not in (1, n) for k, n in zip(deviation.shape[::-1], shape[::-1])) or deviation.ndim > len(shape):
            raise ValueError(f"spread.{name} has shape {deviation.shape}, expected () or {shape}")
        found.append(deviation)
    return Spread(*found)


def varies(deviation: Any) -> bool:
    """Whether a spread is not known to be zero."""
    return deviation is not None and not (checks.known(deviation) and not np.any(np.asarray(deviation)))


def actuators_of(mechanism: Model | Robot) -> Actuators | None:
    return mechanism.actuators if isinstance(mechanism, Robot) else None


def with_model(mechanism: Model | Robot, model: Model) -> Model | Robot:
    """A model in the place of a mechanism, or of that of a robot."""
    return mechanism.replace(model=model) if isinstance(mechanism, Robot) else model


def _drawn(model: Model) -> tuple[tuple[int, ...], ...]:
    """Shapes of what is drawn of a model for each entry of a spread."""
    bodies = model.nbodies
    return (model.nv,), (model.nv,), (bodies,), (bodies, 3), (bodies,), (model.nv,), (3,)


def with_memory(mechanism: Model | Robot, spread: Spread, dt: float) -> Model | Robot:
    """The mechanism, whose actuators have memory for all delays that can be drawn in steps of dt seconds."""
    actuators = actuators_of(mechanism)
    if not isinstance(mechanism, Robot) or actuators is None:
        return mechanism
    if varies(spread.delay) and checks.known(actuators.delay, spread.delay):
        longest = actuators.delay + FURTHEST * spread.delay
        samples = actuators.replace(delay=longest, samples=0).sampled(dt).samples
        return replace(mechanism, actuators=replace(actuators, samples=max(samples, actuators.samples)))
    return replace(mechanism, actuators=with_history(actuators, dt))


def randomized(start: Draw, spread: Spread, key: jax.Array) -> Draw:
    """A random copy of a model or a robot in a random initial state near the given one."""
    model = checked_model(start.model)
    dtype = model.dtype
    keys = jax.random.split(key, len(OF_MODEL))
    drawn = [jax.random.normal(k, shape, dtype) for k, shape in zip(keys, _drawn(model), strict=True)]
    turned, pushed, mass, shape, distance, rough, pull = (s * x for s, x in zip(spread, drawn))
    q, v = retract(model, start.q, turned), start.v + pushed
    denser = model.inertias.scaled(jnp.exp(mass))
    stretch, longer = jnp.exp(shape), jnp.exp(distance)
    places = model.placements._replace(translation=longer[:, None] * model.placements.translation)
    rougher, gravity = jnp.exp(rough), model.gravity + pull
    copy = model.replace(
        inertias=stretched(denser, stretch),
        placements=places,
        damping=rougher * model.damping,
        friction=rougher * model.friction,
        gravity=gravity,
    )
    found = with_model(start.model, copy)
    if isinstance(found, Robot) and found.actuators is not None:
        key = jax.random.fold_in(key, len(OF_MODEL))
        found = replace(found, actuators=randomized_actuators(found.actuators, spread, key))
    return start._replace(model=found, q=q, v=v)


def randomized_actuators(actuators: Actuators, spread: Spread, key: jax.Array) -> Actuators:
    """Random actuators near the given ones; what does not spread stays the same."""
    drawn = {}
    for name, k in zip(OF_ACTUATORS, jax.random.split(key, len(OF_ACTUATORS)), strict=True):
        if varies(getattr(spread, name)):
            drawn[name] = getattr(spread, name) * jax.random.normal(k, (len(actuators),), actuators.dtype)
    changes: dict[str, Any] = {}
    one = jnp.ones(len(actuators), actuators.dtype)
    stiffer, faster = (jnp.exp(drawn[name]) if name in drawn else one for name in ("gain", "velocity_gain"))
    if "gain" in drawn:
        changes["gain"] = stiffer[:, None] * actuators.gain
    if "gain" in drawn or "velocity_gain" in drawn:
        changes["bias"] = jnp.stack([one, stiffer, faster], 1) * actuators.bias
    if "time_constant" in drawn:
        changes["time_constant"] = jnp.exp(drawn["time_constant"]) * actuators.time_constant
    if "delay" in drawn:
        furthest = FURTHEST * jnp.abs(spread.delay)
        changes["delay"] = jnp.maximum(actuators.delay + jnp.clip(drawn["delay"], -furthest, furthest), 0)
    if "gear" in drawn:
        changes["transmission"] = actuators.transmission.geared(jnp.exp(drawn["gear"]))
    # Not `Actuators.replace`: a factor makes no term of a law count that did not.
    samples = 0 if "delay" in drawn and actuators.samples == 1 else actuators.samples
    return replace(actuators, **changes, samples=samples)


def stretched(inertia: Inertia, factors: jax.Array) -> Inertia:
    """The inertia of bodies whose mass is moved from (x, y, z) to (f₁ x, f₂ y, f₃ z); factors (..., 3)."""
    identity = sm.identity(3, factors.dtype)
    spread = 0.5 * sm.trace(inertia.rotational)[..., None, None] * identity - inertia.rotational  # ∫ x xᵀ dm
    moved = factors[..., :, None] * spread * factors[..., None, :]
    return Inertia(inertia.mass, factors * inertia.moment, sm.trace(moved)[..., None, None] * identity - moved)
