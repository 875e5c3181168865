"""Sensors of a robot: functions of its state, its accelerations and its contacts, with noise, bias and drift.

    imu = sensors.gyro(model, "torso", noise=1e-3) + sensors.accelerometer(model, "torso", bias=0.05)
    values = imu(sensors.instant(model, t, q, v, tau))   # (6,)
    imu.split(values)["torso_gyro"]                      # (3,) rad/s
    state = imu.start(key)                               # biases
    values, state = imu.noisy(key, state, values, dt)

A record of sensors is a pytree: its noise, biases and offsets can be batched and differentiated; `+` joins records. If
all sensors need the state only, `imu(t, q, v)` reads them, and the record may be `observe=` of `ensemble` and
`Environment`.

All makers return `Sensors`. A frame is the name of a body or frame, or (name, Pose) for a pose in it; a reference frame
of None is the world. Joints are a name, several names, or None for all. All makers take the keyword arguments name (or
names, if there are several sensors), noise, bias, drift and cutoff: numbers, or arrays with an entry for each sensor,
see `Sensors.noisy`. Readings are in SI units. Makers raise ValueError for unknown names and numbers out of range.

Read first: `record.py`; then `instant.py`, what is read, `scene.py`, the one pass over the tree, and `frames.py`.
"""

from lgjax.robots.sensors.instant import ContactForces, Instant, after_step, contact_forces, instant
from lgjax.robots.sensors.makers import (
    accelerometer,
    contact_count,
    force,
    frame_angular_acceleration,
    frame_angular_velocity,
    frame_axis,
    frame_linear_acceleration,
    frame_linear_velocity,
    frame_orientation,
    frame_position,
    gyro,
    magnetometer,
    subtree_angular_momentum,
    subtree_center_of_mass,
    subtree_linear_velocity,
    torque,
    touch,
    velocimeter,
)
from lgjax.robots.sensors.record import Sensors, SensorState
from lgjax.robots.sensors.scalar_makers import (
    actuator_force,
    ball_orientation,
    ball_velocity,
    clock,
    joint_actuator_force,
    joint_limit_force,
    joint_limit_position,
    joint_limit_velocity,
    joint_position,
    joint_velocity,
    kinetic_energy,
    length,
    length_rate,
    potential_energy,
)
from lgjax.robots.sensors.subtrees import Beyond

__all__ = [
    "Beyond",
    "ContactForces",
    "Instant",
    "SensorState",
    "Sensors",
    "accelerometer",
    "actuator_force",
    "after_step",
    "ball_orientation",
    "ball_velocity",
    "clock",
    "contact_count",
    "contact_forces",
    "force",
    "frame_angular_acceleration",
    "frame_angular_velocity",
    "frame_axis",
    "frame_linear_acceleration",
    "frame_linear_velocity",
    "frame_orientation",
    "frame_position",
    "gyro",
    "instant",
    "joint_actuator_force",
    "joint_limit_force",
    "joint_limit_position",
    "joint_limit_velocity",
    "joint_position",
    "joint_velocity",
    "kinetic_energy",
    "length",
    "length_rate",
    "magnetometer",
    "potential_energy",
    "subtree_angular_momentum",
    "subtree_center_of_mass",
    "subtree_linear_velocity",
    "torque",
    "touch",
    "velocimeter",
]
