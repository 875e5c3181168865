"""Makers of actuators. Read `record.py` first.

All take the model (or a Robot), then what they act on: names of scalar joints, None for all of them, or a
`Transmissions`. Numbers are one number, or an array with an entry for each actuator, traced ones too; a traced one out
of range gives NaN. `motor` documents the arguments that all share. no_load_speed with force_range is a torque-speed
line. `Actuators.sampled` counts the samples of a delay that is known.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from lgjax.dynamics import transmissions
from lgjax.dynamics.joint_parameters import parameter
from lgjax.dynamics.transmissions import Transmissions
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.robots.actuators.law import FILTERS, letters_of, ranged
from lgjax.robots.actuators.record import Actuators, Dynamics

Target = Sequence[str] | Transmissions | None
DYNAMICS = ("none", "integrator", *FILTERS)


def motor(
    model: Model | Mechanism,
    target: Target = None,
    gain: Any = 1.0,
    *,
    control_range: Any = None,
    force_range: Any = None,
    no_load_speed: Any = None,
    delay: Any = 0.0,
    samples: int | None = None,
    names: Sequence[str] | None = None,
) -> Actuators:
    """Direct drives: force = gain control. Returns `Actuators`, as all makers do.

    model: a `Model` or a `Robot`. target: names of scalar joints, None for all of them, or a `Transmissions`, such as
    `joints` with gears. gain: N m or N per unit of control. control_range, force_range: (low, high) or (n, 2), to which
    control and force are clipped; None for no range. no_load_speed: rad/s or m/s, to which the force that force_range
    allows falls linearly in the direction of motion. delay: s, by which controls act later. samples: how many controls
    are remembered, for a delay that is traced; otherwise it follows from dt. names: of the actuators, by default those
    of the joints.

    All numbers are one for all actuators, or arrays with an entry for each, and may be traced; a traced one out of
    range gives NaN. Raises ValueError for unknown joints and for numbers out of range.
    Source: MuJoCo's actuation model.
    """
    new = _New(model, target, names)
    return new.actuators(
        [new.signed("gain", gain), 0, 0], [0, 0, 0], control_range, force_range, no_load_speed, delay, samples
    )


def position(
    model: Model | Mechanism,
    target: Target = None,
    kp: Any = 1.0,
    kv: Any = 0.0,
    *,
    time_constant: Any = None,
    control_range: Any = None,
    force_range: Any = None,
    no_load_speed: Any = None,
    delay: Any = 0.0,
    samples: int | None = None,
    names: Sequence[str] | None = None,
) -> Actuators:
    """Position servos: force = kp (control - length) - kv d(length)/dt.

    kp: N m/rad or N/m. kv: N m s/rad or N s/m. time_constant: s; the servo then follows an activation, the control
    behind a first-order filter, which is stepped exactly. Other arguments: as in `motor`.

    For a ball joint, or a site that only turns in its reference, control - length is taken within half a turn, as in
    MuJoCo.
    """
    new = _New(model, target, names)
    kp, kv = new.at_least_zero("kp", kp), new.at_least_zero("kv", kv)
    dynamics = {} if time_constant is None else {"dynamics": "filterexact", "time_constant": time_constant}
    return new.actuators(
        [kp, 0, 0],
        [0, -kp, -kv],
        control_range,
        force_range,
        no_load_speed,
        delay,
        samples,
        "lv",
        servo=True,
        **dynamics,
    )


def velocity(
    model: Model | Mechanism,
    target: Target = None,
    kv: Any = 1.0,
    *,
    control_range: Any = None,
    force_range: Any = None,
    no_load_speed: Any = None,
    delay: Any = 0.0,
    samples: int | None = None,
    names: Sequence[str] | None = None,
) -> Actuators:
    """Velocity servos: force = kv (control - d(length)/dt).

    kv: N m s/rad or N s/m. Other arguments: as in `motor`.
    """
    new = _New(model, target, names)
    kv = new.at_least_zero("kv", kv)
    return new.actuators([kv, 0, 0], [0, 0, -kv], control_range, force_range, no_load_speed, delay, samples, "v")


def intvelocity(
    model: Model | Mechanism,
    target: Target = None,
    kp: Any = 1.0,
    kv: Any = 0.0,
    *,
    activation_range: Any = None,
    control_range: Any = None,
    force_range: Any = None,
    no_load_speed: Any = None,
    delay: Any = 0.0,
    samples: int | None = None,
    names: Sequence[str] | None = None,
) -> Actuators:
    """Integrated-velocity servos: position servos whose target is an activation a, with da/dt = control.

    kp, kv: as in `position`. activation_range: (low, high) or (n, 2), rad or m, to which the target is clipped. Other
    arguments: as in `motor`.
    """
    new = _New(model, target, names)
    kp, kv = new.at_least_zero("kp", kp), new.at_least_zero("kv", kv)
    return new.actuators(
        [kp, 0, 0],
        [0, -kp, -kv],
        control_range,
        force_range,
        no_load_speed,
        delay,
        samples,
        "lv",
        dynamics="integrator",
        activation_range=activation_range,
        servo=True,
    )


def damper(
    model: Model | Mechanism,
    target: Target = None,
    kv: Any = 1.0,
    *,
    control_range: Any = (0.0, np.inf),
    force_range: Any = None,
    delay: Any = 0.0,
    samples: int | None = None,
    names: Sequence[str] | None = None,
) -> Actuators:
    """Active dampers: force = -kv control d(length)/dt.

    kv: N m s/rad or N s/m per unit of control. control_range: at least 0 by default. Other arguments: as in `motor`.
    """
    new = _New(model, target, names)
    kv = new.at_least_zero("kv", kv)
    return new.actuators([0, 0, -kv], [0, 0, 0], control_range, force_range, None, delay, samples, "V")


def dc_motor(
    model: Model | Mechanism,
    target: Target = None,
    stall_torque: Any = 1.0,
    no_load_speed: Any = 1.0,
    voltage: Any = 1.0,
    *,
    time_constant: Any = None,
    control_range: Any = "voltage",
    force_range: Any = None,
    delay: Any = 0.0,
    samples: int | None = None,
    names: Sequence[str] | None = None,
) -> Actuators:
    """DC motors driven by a voltage: force = stall_torque (control / voltage - d(length)/dt / no_load_speed).

    stall_torque, no_load_speed: N m and rad/s (N and m/s) at the joint, at the voltage `voltage` (V). control_range:
    +-voltage by default. For a motor with torque constant K and resistance R on the joint, stall_torque = K voltage / R
    and no_load_speed = voltage / K; behind a gear N, multiply the first by N and divide the second by N. time_constant:
    s, inductance / resistance, by which the current lags: the activation is then the torque, and its value at the end
    of a step acts during the step. Other arguments: as in `motor`.
    """
    new = _New(model, target, names)
    stall = new.at_least_zero("stall_torque", stall_torque)
    speed, volts = new.positive("no_load_speed", no_load_speed), new.positive("voltage", voltage)
    if isinstance(control_range, str):
        checks.choice("control_range", control_range, ("voltage",))
        control_range = jnp.stack([-volts, volts], 1)
    lag = {} if time_constant is None else {"dynamics": "lag", "time_constant": time_constant, "early": True}
    return new.actuators(
        [stall / volts, 0, 0], [0, 0, -stall / speed], control_range, force_range, None, delay, samples, "v", **lag
    )


def general(
    model: Model | Mechanism,
    target: Target = None,
    gain: Any = (1.0, 0.0, 0.0),
    bias: Any = (0.0, 0.0, 0.0),
    *,
    dynamics: Dynamics | Sequence[Dynamics] = "none",
    time_constant: Any = 1.0,
    early: bool | Sequence[bool] = False,
    activation_range: Any = None,
    control_range: Any = None,
    force_range: Any = None,
    no_load_speed: Any = None,
    delay: Any = 0.0,
    samples: int | None = None,
    names: Sequence[str] | None = None,
) -> Actuators:
    """Affine actuators: force = (g0 + g1 l + g2 dl/dt) input + b0 + b1 l + b2 dl/dt of the length l.

    gain, bias: (3,) or (n, 3). dynamics: "none", the input is the control; "integrator", the input is an activation a
    with da/dt = control; "filter", one with da/dt = (control - a) / time_constant, in Euler steps; "filterexact", the
    same in exact steps; "lag", the activation is the force itself, which follows the law with the time constant (s).
    early: whether the activation at the end of a step acts during the step. dynamics and early may be lists with an
    entry for each actuator. activation_range: (low, high) or (n, 2). Other arguments: as in `motor`.
    Source: MuJoCo's actuation model.
    """
    new = _New(model, target, names)
    triples = new.triples("gain", gain), new.triples("bias", bias)
    return new.actuators(
        *triples,
        control_range,
        force_range,
        no_load_speed,
        delay,
        samples,
        [
            x + y
            for x, y in zip(*(letters_of(*given, new.n) for given in (("gain", gain), ("bias", bias))), strict=True)
        ],
        dynamics=dynamics,
        time_constant=time_constant,
        activation_range=activation_range,
        early=early,
        servo=_is_servo(gain, bias),
    )


class _New:
    """Actuators of one kind that are being made: their transmission and names, and checks of their numbers."""

    def __init__(self, model: Any, target: Target, names: Sequence[str] | None):
        self.model = checked_model(model)
        if isinstance(target, Transmissions):
            self.transmission = target
            if target.tree != self.model.tree or target.dtype != self.model.dtype:
                raise ValueError(f"the transmission is of {target.tree.name!r}, not of the model {self.model.name!r}")
            default = [f"actuator_{i}" for i in range(len(target))]
        else:
            self.transmission = transmissions.joints(self.model, target)
            kind: Any = self.transmission.kinds[0]
            default = [self.model.tree.coordinate_names[i] for i in kind.coordinates]
        self.names = tuple(default) if names is None else checks.names("names", names)
        self.n = len(self.names)
        if self.n != len(self.transmission):
            raise ValueError(f"{len(self.names)} names for {len(self.transmission)} actuators")
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"two actuators are called {twice!r}; names= gives others")

    def _number(self, what: str, value: Any, least: float = 0.0, **options: Any):
        return parameter(what, value, self.names, self.model.dtype, least, **options)

    def signed(self, what: str, value: Any):
        return self._number(what, value, -np.inf)

    def at_least_zero(self, what: str, value: Any):
        return self._number(what, value)

    def positive(self, what: str, value: Any, finite: bool = True):
        return self._number(what, value, positive=True, finite=finite)

    def triples(self, what: str, value: Any):
        n = self.n
        value = checks.floats(what, value, (n, 3), self.model.dtype)
        if value.shape not in ((3,), (n, 3)):
            raise ValueError(f"{what} has shape {value.shape}, expected (3,) or ({n}, 3)")
        return jnp.broadcast_to(checks.finite(what, value), (n, 3))

    def actuators(
        self,
        gain: Any,
        bias: Any,
        control_range: Any,
        force_range: Any,
        no_load_speed: Any,
        delay: Any,
        samples: int | None,
        terms: str | list[str] = "",
        dynamics: Any = "none",
        time_constant: Any = 1.0,
        activation_range: Any = None,
        early: Any = False,
        servo: Any = False,
    ) -> Actuators:
        n = self.n
        given = {"control_range": control_range, "force_range": force_range, "activation_range": activation_range}
        ranges = {what: ranged(what, value, self.names, self.model.dtype) for what, value in given.items()}
        speed = self.positive("no_load_speed", np.inf if no_load_speed is None else no_load_speed, finite=False)
        given["no_load_speed"] = no_load_speed
        limits = [letters_of(what, value, n) for what, value in given.items() if value is not None]
        if samples is not None:
            samples = checks.integer("samples", samples)
        if no_load_speed is not None and force_range is None:
            raise ValueError("no_load_speed needs a force_range, whose forces fall to nothing there")
        return Actuators(
            self.transmission,
            self._columns(gain),
            self._columns(bias),
            ranges["control_range"],
            ranges["force_range"],
            ranges["activation_range"],
            self.positive("time_constant", time_constant),
            self.at_least_zero("delay", delay),
            speed,
            jnp.zeros((0, 2), self.model.dtype),
            names=self.names,
            dynamics=self._each("dynamics", dynamics, lambda x: checks.choice("dynamics", x, DYNAMICS)),
            early=self._each("early", early, lambda x: checks.truth("early", x)),
            terms=tuple(map("".join, zip(self._each("terms", terms, str), *limits, strict=True))),
            wraps=tuple(
                bool(x) and y for x, y in zip(np.broadcast_to(servo, n), self.transmission.periodic, strict=True)
            ),
            samples=int(checks.known(delay) and not np.any(np.asarray(delay))) if samples is None else samples,
        )

    def _each(self, what: str, value: Any, checked: Callable[[Any], Any]) -> tuple:
        """A setting of each actuator, from one or as many."""
        found = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * self.n
        if len(found) != self.n:
            raise ValueError(f"{len(found)} values of {what} for {self.n} actuators")
        return tuple(map(checked, found))

    def _columns(self, values: Any):
        """(n, 3) from three columns, each a number or (n,)."""
        if not isinstance(values, list):
            return values
        n, dtype = len(self.names), self.model.dtype
        return jnp.stack([jnp.broadcast_to(jnp.asarray(x, dtype), (n,)) for x in values], 1)


def _is_servo(gain: Any, bias: Any) -> Any:
    """Whether the force is known to depend on the input less the length, and on neither otherwise: (n,) or one."""
    if not checks.known(gain, bias):
        return False
    g, b = np.asarray(gain), np.asarray(bias)
    return (g[..., 0] == -b[..., 1]) & (g[..., 0] != 0) & ~g[..., 1:].any(-1)
