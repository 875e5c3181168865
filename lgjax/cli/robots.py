"""Robots in commands: where they start, under which controls, and how their steps are taken."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax import integrators
from lgjax.contact import TimeStepping
from lgjax.contact.contacts import Contacts, grounds_of
from lgjax.execution.compiled import logger
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.configuration import Configuration, neutral
from lgjax.multibody.model import Model
from lgjax.numerics.messages import listed, nearest
from lgjax.robots.actuators import Actuators
from lgjax.robots.load import INITIAL
from lgjax.robots.robot import Robot

TABLEAUX = {name: value for name, value in vars(integrators).items() if isinstance(value, integrators.Tableau)}
STEPPING = "TIME_STEPPING"
METHODS = (*TABLEAUX, STEPPING)


class Start(NamedTuple):
    """Where a motion starts, and the control and activation of a robot's actuators, None without any."""

    q: Configuration
    v: jax.Array
    control: jax.Array | None = None
    activation: jax.Array | None = None


def start_of(mechanism: Model | Robot, keyframe: str | None = None) -> Start:
    """A keyframe by its name; by default the state that a file shows, or the neutral one at rest."""
    model, keys = checked_model(mechanism), mechanism.keyframes if isinstance(mechanism, Robot) else {}
    if keyframe is not None and keyframe not in keys:
        raise ValueError(
            f"{model.name} has no keyframe {keyframe!r}; keyframes: {listed(keys) or 'none'}{nearest(keyframe, keys)}"
        )
    actuators = mechanism.actuators if isinstance(mechanism, Robot) else None
    if (key := keys.get(keyframe or INITIAL)) is not None:
        return Start(key.q, key.v, *((None, None) if actuators is None else (key.control, key.activation)))
    zero = lambda n: jnp.zeros(n, model.dtype)
    return Start(
        neutral(model), zero(model.nv), *(() if actuators is None else (zero(len(actuators)), zero(actuators.na)))
    )


def method_of(name: str, mechanism: Model | Robot) -> Any:
    """A method by its name; a warning says that other ones than TimeStepping do not see the ground of a file."""
    check_method(name)
    if name.upper() == STEPPING:
        return TimeStepping()
    if isinstance(mechanism, Robot) and grounds_of(mechanism):
        logger.warning("warning: %s steps through the ground of the file, %s does not", name.upper(), STEPPING)
    return integrators.MuntheKaas(TABLEAUX[name.upper()])


def conserves(mechanism: Model | Robot, control: jax.Array | None, method: Any) -> bool:
    """Whether the model's energy stays the same but for its own damping, as far as is known."""
    if not isinstance(mechanism, Robot):
        return True
    touches = isinstance(method, TimeStepping) and grounds_of(mechanism)
    return not (touches or mechanism.forces or _pushes(mechanism.actuators, control))


def _pushes(actuators: Actuators | None, control: jax.Array | None) -> bool:
    """Whether actuators may have forces under a control: it is not zero, or a bias or the state is in their law."""
    if actuators is None:
        return False
    return bool(np.any(np.asarray(control))) or any(letter in of for of in actuators.terms for letter in "LVlvc")


def check_method(name: str) -> None:
    if name.upper() not in METHODS:
        raise ValueError(f"unknown method {name!r}; known: {', '.join(METHODS)}{nearest(name, METHODS)}")


def contacts_of(mechanism: Model | Robot) -> Contacts | None:
    """The contacts of a robot with the ground of its file."""
    of_robot: Any = Contacts  # it takes a Robot too
    return of_robot(mechanism) if isinstance(mechanism, Robot) and grounds_of(mechanism) else None
