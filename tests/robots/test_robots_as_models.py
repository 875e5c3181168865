"""A robot is taken wherever a model is: what is made of it, or computed, is that of its model."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Robot, actuators, adapters, contact, control, conventions, forces, loops, sensors
from lgjax import identification as idn

MODEL = lgjax.models.quadruped()
Q, V = lgjax.neutral(MODEL), jnp.linspace(0.1, 0.5, MODEL.nv)
HIP, THIGH = MODEL.tree.joint_names[1:3]
FOOT = {"FL_foot": lgjax.shapes.sphere(0.02)}
TOUCHING = lgjax.Contacts(MODEL, lgjax.shapes.Plane((0.0, 0.0, 1.0)), FOOT)
MUJOCO, PINOCCHIO = conventions.to_mujoco(MODEL, Q, V), conventions.to_pinocchio(MODEL, Q, V)
MOTION = lgjax.rollout(MODEL, Q, V, None, 0.01, 2)

CASES: dict[str, Callable[[Any], Any]] = {
    "neutral": lgjax.neutral,
    "configuration": lambda m: lgjax.configuration(m, np.eye(4), {HIP: 0.1}),
    "Contacts": lambda m: lgjax.Contacts(m, lgjax.shapes.Plane((0.0, 0.0, 1.0)), FOOT),
    "contact_points": lambda m: contact.contact_points(m, TOUCHING, Q),
    "contact_velocities": lambda m: contact.contact_velocities(m, TOUCHING, Q, V),
    "contact_step": lambda m: contact.contact_step(m, TOUCHING, Q, V, 0 * V, 0.01),
    "to_mujoco": lambda m: conventions.to_mujoco(m, Q, V),
    "from_mujoco": lambda m: conventions.from_mujoco(m, *MUJOCO),
    "to_pinocchio": lambda m: conventions.to_pinocchio(m, Q, V),
    "from_pinocchio": lambda m: conventions.from_pinocchio(m, *PINOCCHIO),
    "flat_state": lambda m: adapters.flat_state(m, Q, V),
    "from_flat_state": lambda m: adapters.from_flat_state(m, jnp.concatenate(MUJOCO[:2])),
    "flat_field": lambda m: adapters.flat_field(m, None)(0.0, adapters.flat_state(MODEL, Q, V), None),
    "rollout_memory": lambda m: control.rollout_memory(m, 4),
    "inline": lambda m: len(lgjax.view.inline(m, MOTION)._repr_html_()) > 1000,
    "couple_joints": lambda m: lgjax.loops.loop_residual(MODEL, loops.couple_joints(m, HIP, THIGH, (0.0, 1.0)), Q),
    "forces.damper": lambda m: forces.damper(m, 0.1),
    "forces.friction": lambda m: forces.friction(m, 0.1, 0.1),
    "forces.limits": lambda m: forces.limits(m, 10.0, 1.0),
    "forces.spring": lambda m: forces.spring(m, 1.0),
    "forces.gravity_compensation": lambda m: forces.gravity_compensation(m, ["trunk"], 1.0),
    "forces.free_armature": forces.free_armature,
    "forces.fluid_boxes": lambda m: forces.fluid_boxes(m, ["trunk"], [[0.1, 0.1, 0.1]], density=1.0),
    "forces.point_spring": lambda m: forces.point_spring(m, ("trunk", (0.0, 0, 0)), (None, (0.0, 0, 1)), 1.0),
    "forces.contact": lambda m: forces.contact(m, TOUCHING, 1e3, 1.0),
    "actuators.motor": lambda m: actuators.motor(m, [HIP]),
    "actuators.position": lambda m: actuators.position(m, [HIP], 10.0, 1.0),
    "actuators.dc_motor": lambda m: actuators.dc_motor(m, [HIP], 1.0, 1.0),
    "actuators.fixed_tendons": lambda m: actuators.fixed_tendons(m, [{HIP: 1.0}]),
    "sensors.gyro": lambda m: sensors.gyro(m, "trunk"),
    "sensors.force": lambda m: sensors.force(m, "trunk"),
    "sensors.joint_position": lambda m: sensors.joint_position(m, [HIP]),
    "sensors.potential_energy": sensors.potential_energy,
    "random_configuration": lambda m: lgjax.random_configuration(jax.random.key(0), m),
    "Contacts.none": lambda m: lgjax.Contacts.none(m),
    "costs.frame": lambda m: control.costs.frame(m, "FL_foot", lgjax.Pose(np.eye(3), np.zeros(3)))((Q, V)),
    "costs.frame_position": lambda m: control.costs.frame_position(m, "FL_foot", np.zeros(3))((Q, V)),
    "costs.momentum": lambda m: control.costs.momentum(m)((Q, V)),
    "costs.state": lambda m: control.costs.state(m, (Q, V), 2.0)((Q, 2 * V)),
    "idn.frames": lambda m: idn.frames(m, ["FL_foot"]).names,
} | {f"idn.{name}": lambda m, name=name: getattr(idn, name)(m).names for name in
     ("armature", "coulomb", "gear", "inertias", "masses", "placements", "viscous")}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_made_of_a_robot_is_that_of_its_model(name):
    of_model, of_robot = (jax.tree.leaves(CASES[name](x)) for x in (MODEL, Robot(MODEL)))
    assert len(of_model) == len(of_robot) > 0
    for x, y in zip(of_model, of_robot, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_robot_says_which_attributes_its_model_has():
    robot: Any = lgjax.load_robot(lgjax.models.urdf("quadruped"))
    with pytest.raises(AttributeError, match=r"a robot has no attribute 'nv'; its model has one: robot\.model\.nv"):
        _ = robot.nv
    with pytest.raises(AttributeError, match=r"a robot has no attribute 'wheels'$"):
        _ = robot.wheels
    assert not hasattr(robot, "__array__")
    assert copy.deepcopy(robot).model.nv == robot.model.nv


def test_a_robot_takes_no_contacts_of_a_rollout():
    robot: Any = lgjax.load_robot(lgjax.models.urdf("quadruped"))
    with pytest.raises(TypeError, match=r"ContactGeometry, not Contacts; give those to rollout"):
        robot.replace(contacts=lgjax.Contacts(robot, lgjax.shapes.Plane((0.0, 0.0, 1.0))))


def test_scaled_inertias_name_a_wrong_factor():
    with pytest.raises(ValueError, match=r"factor has shape \(3,\), mass \(13,\): give one number, or one for"):
        MODEL.inertias.scaled(np.ones(3))
