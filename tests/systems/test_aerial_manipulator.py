"""The aerial manipulator: its propellers, its reference motion, and derivatives of its dynamics along that motion."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
from jax import jit

import lgjax
from lgjax.multibody.models.multirotor_with_arms import MECHANISM, MOTION, PROPELLERS, Propellers
from lgjax.systems.aerial_manipulator import allocation

ORDER = 5
TIMES = np.linspace(0.0, MOTION.horizon, 11)
WEIGHT = (MECHANISM.base_mass + 6 * MECHANISM.link_mass) * 9.81
ODD = Propellers(
    (0.1, 1.3, 2.0, 3.2, 4.4, 5.1), (0.3, -0.2, 0.5, 0.1, 0.4, -0.6), (1, 1, -1, 1, -1, -1), 0.4, 2e-5, 3e-7
)


@cache
def robot():
    with jax.ensure_compile_time_eval():  # it may be asked for first inside a function that is traced
        return lgjax.systems.aerial_manipulator(dtype=jnp.float64)


@cache
def along(order: int, frame: str = "body"):
    """Configurations, velocity stacks and force stacks at TIMES."""

    def at(t):
        q, v = robot().reference(t, order, frame)
        return q, v, lgjax.inverse_dynamics_time_derivatives(robot().model, q, v, order, frame)

    return jit(jax.vmap(at))(TIMES)


def relative(a, b):
    """Largest error of each order, relative to the largest entry of that order over all times; (time, order, nv)."""
    a, b = np.asarray(a), np.asarray(b)
    return np.max(np.abs(a - b), (0, 2)) / np.max(np.abs(b), (0, 2))


# ---- the mechanism
def test_it_has_the_size_and_the_masses_that_it_says():
    model = lgjax.models.aerial_manipulator()
    assert (model.nbodies, model.nv) == (7, 12)
    assert model.tree.parents == (-1, 0, 1, 2, 0, 4, 5)
    np.testing.assert_allclose(jnp.sum(model.inertias.mass) * 9.81, WEIGHT, rtol=1e-14)
    np.testing.assert_array_equal(model.inertias.moment[0], np.zeros(3))


def test_at_home_every_frame_is_parallel_to_the_world_and_the_arms_hang():
    model = lgjax.models.aerial_manipulator()
    poses = jit(lgjax.forward_kinematics)(model, lgjax.neutral(model))
    np.testing.assert_allclose(poses.rotation, np.broadcast_to(np.eye(3), (7, 3, 3)), atol=1e-15)
    height = [-0.1, -0.3, -0.5]
    arms = [[0.0, side * 0.15, z] for side in (1, -1) for z in height]
    np.testing.assert_allclose(poses.translation, [[0.0, 0.0, 0.0], *arms], atol=1e-15)


def test_its_two_arms_are_mirror_images():
    """M(mirrored q) is M(q) with the arms exchanged and the signs of a reflection y -> -y."""
    model = lgjax.models.aerial_manipulator()
    joints = np.array([0.4, -0.3, 0.9, -0.7, 0.5, 0.2])
    across = [1.0, -1.0, 1.0]  # turning about y is kept by the reflection, turning about x reversed
    exchange = np.diag(np.tile(across, 2)) @ np.roll(np.eye(6), 3, 0)
    S = np.zeros((12, 12))
    S[:6, :6], S[6:, 6:] = np.diag([-1, 1, -1, 1, -1, 1]), exchange
    mass = jit(lambda angles: lgjax.mass_matrix(model, lgjax.configuration(model, joints=angles)))
    np.testing.assert_allclose(mass(exchange @ joints), S @ mass(joints) @ S.T, atol=1e-14)


# ---- propellers
def homogeneous(axis: int, angle: float, shift: float = 0.0) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    turn = {0: [[1, 0, 0], [0, c, -s], [0, s, c]], 2: [[c, -s, 0], [s, c, 0], [0, 0, 1]]}[axis]
    out = np.eye(4)
    out[:3, :3], out[0, 3] = turn, shift
    return out


@pytest.mark.parametrize("propellers", [PROPELLERS, ODD], ids=["its own", "odd"])
def test_allocation_is_that_of_the_products_of_the_propellers_poses(propellers):
    """By the 6x6 matrix Ad_T^-T of T = Rz(angle) Tx(radius) Rx(tilt)."""
    columns = []
    for angle, tilt, spin in zip(propellers.angles, propellers.tilts, propellers.spins, strict=True):
        T = homogeneous(2, angle) @ homogeneous(0, 0.0, propellers.radius) @ homogeneous(0, tilt)
        R, (x, y, z) = T[:3, :3], T[:3, 3]
        hat = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        adjoint = np.block([[R, np.zeros((3, 3))], [hat @ R, R]])
        local = np.array([0, 0, -spin * propellers.drag, 0, 0, propellers.thrust])
        columns.append(np.linalg.inv(adjoint).T @ local)
    np.testing.assert_allclose(allocation(propellers), np.stack(columns, 1), atol=1e-13 * propellers.thrust)


def test_speeds_make_the_wrench_they_were_computed_from():
    wrench = np.random.default_rng(0).normal(size=(20, 6)) + np.array([0, 0, 0, 0, 0, WEIGHT])
    speeds = robot().speeds(wrench)
    assert jnp.all(speeds > 0)
    np.testing.assert_allclose(robot().wrench(speeds**2), wrench, atol=1e-12 * WEIGHT)


def test_a_wrench_out_of_reach_asks_for_negative_squared_speeds():
    wrench = jnp.array([0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
    squared, speeds = robot().squared_speeds(wrench), robot().speeds(wrench)
    assert jnp.all(squared < 0)
    np.testing.assert_allclose(speeds, -jnp.sqrt(-squared), rtol=1e-14)


def test_propellers_that_do_not_make_every_wrench_are_refused():
    with pytest.raises(ValueError, match="these 6 propellers do not make every wrench"):
        lgjax.systems.aerial_manipulator(propellers=PROPELLERS._replace(tilts=(0.0,) * 6))
    with pytest.raises(ValueError, match="these 1 propellers do not make every wrench"):
        lgjax.systems.aerial_manipulator(propellers=Propellers((0.0,), (0.1,), (1,)))


def test_hovering_takes_the_weight_and_equal_speeds():
    model = robot().model
    zero = jnp.zeros(12)
    tau = jit(lgjax.inverse_dynamics)(model, lgjax.neutral(model), zero, zero)
    np.testing.assert_allclose(tau, [*[0] * 5, WEIGHT, *[0] * 6], atol=1e-13)
    speeds = robot().speeds(tau[:6])
    np.testing.assert_allclose(speeds, np.full(6, speeds[0]), rtol=1e-13)
    lift = 6 * PROPELLERS.thrust * np.cos(PROPELLERS.tilts[0]) * speeds[0] ** 2
    np.testing.assert_allclose(lift, WEIGHT, rtol=1e-13)


def test_the_propellers_can_fly_the_reference():
    squared = robot().squared_speeds(along(ORDER)[2][:, 0, :6])
    assert jnp.all(squared > 0)


# ---- the reference motion
def derivatives(f, order: int):
    """t -> [f, df/dt, ...] by nested forward differentiation."""
    found = [f]
    for _ in range(order):
        found.append(lambda t, f=found[-1]: jax.jvp(f, (t,), (jnp.ones_like(t),))[1])
    return lambda t: jnp.stack([f(t) for f in found])


def pose_of(t):
    """The formulas of the reference."""
    yaw, phase = MOTION.yaw_amplitude * jnp.sin(MOTION.yaw_rate * t), MOTION.circle_rate * t
    c, s, zero, one = jnp.cos(yaw), jnp.sin(yaw), jnp.zeros_like(t), jnp.ones_like(t)
    rotation = jnp.stack([jnp.stack([c, -s, zero]), jnp.stack([s, c, zero]), jnp.stack([zero, zero, one])])
    position = jnp.stack([MOTION.radius * jnp.cos(phase), MOTION.radius * jnp.sin(phase), MOTION.height * one])
    return rotation, position


def twist_of(pose, frame: str):
    def twist(t):
        (R, p), (dR, dp) = jax.jvp(pose, (t,), (jnp.ones_like(t),))
        if frame == "body":
            w, v = R.T @ dR, R.T @ dp
        else:
            w = dR @ R.T
            v = dp - w @ p
        return jnp.concatenate([jnp.stack([w[2, 1], w[0, 2], w[1, 0]]), v])

    return twist


@pytest.mark.parametrize("frame", ["body", "spatial"])
def test_the_reference_has_the_derivatives_of_its_formulas(frame):
    def joints(t):
        start, amplitude = jnp.array(MOTION.joint_start), jnp.array(MOTION.joint_amplitude)
        return start + amplitude * (1 - jnp.cos(MOTION.joint_rate * t)) / 2

    def expected(t):
        rate = lambda t: jax.jvp(joints, (t,), (jnp.ones_like(t),))[1]
        velocity = lambda t: jnp.concatenate([twist_of(pose_of, frame)(t), rate(t)])
        return *pose_of(t), joints(t), derivatives(velocity, ORDER + 1)(t)

    rotation, position, angles, stack = jit(jax.vmap(expected))(TIMES)
    q, v = jit(jax.vmap(lambda t: robot().reference(t, ORDER, frame)))(TIMES)
    assert v.shape == (len(TIMES), ORDER + 2, 12)
    np.testing.assert_allclose(q.free_poses.rotation[:, 0], rotation, atol=1e-15)
    np.testing.assert_allclose(q.free_poses.translation[:, 0], position, atol=1e-15)
    np.testing.assert_allclose(q.joints, angles, atol=1e-15)
    assert np.all(relative(v, stack) < 1e-13)


def test_the_reference_keeps_the_dtype_and_names_its_frames():
    single = lgjax.systems.aerial_manipulator(dtype=jnp.float32)
    q, v = single.reference(np.float32(0.3), 2)
    assert {x.dtype for x in jax.tree.leaves((q, v))} == {jnp.dtype(jnp.float32)}
    with pytest.raises(ValueError, match="frame is 'body' or 'spatial', not 'world'"):
        single.reference(np.float32(0.3), 2, "world")


# ---- dynamics along the reference
@pytest.mark.parametrize("frame", ["body", pytest.param("spatial", marks=pytest.mark.slow)])
def test_forward_dynamics_give_back_the_reference_to_order_5(frame):
    q, v, tau = along(ORDER, frame)
    solve = lambda q, v, tau: lgjax.forward_dynamics_time_derivatives(robot().model, q, v, tau, frame)
    vdot = jit(jax.vmap(solve))(q, v[:, 0], tau)
    assert np.all(relative(vdot, v[:, 1:]) < 1e-9)


def test_force_derivatives_are_those_of_inverse_dynamics_in_time():
    def force(t):
        q, v = robot().reference(t, 0)
        return lgjax.inverse_dynamics(robot().model, q, v[0], v[1])

    tau = jit(jax.vmap(derivatives(force, 2)))(TIMES)
    assert np.all(relative(along(ORDER)[2][:, :3], tau) < 1e-12)


def pinocchio_model():
    """The same robot, put together by Pinocchio from the numbers."""
    model = pin.Model()
    base = model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "root_joint")
    model.appendBodyToJoint(
        base, pin.Inertia(MECHANISM.base_mass, np.zeros(3), np.diag(MECHANISM.base_inertia)), pin.SE3.Identity()
    )
    kinds = {"x": pin.JointModelRX, "y": pin.JointModelRY}
    center = np.array([0.0, 0.0, -MECHANISM.link_length / 2])
    link = pin.Inertia(MECHANISM.link_mass, center, np.diag(MECHANISM.link_inertia))
    for arm, side in (("left", 1), ("right", -1)):
        parent = base
        place = np.array([0.0, side * MECHANISM.arm_spacing / 2, -MECHANISM.shoulder_offset])
        for i, axis in enumerate(MECHANISM.axes, 1):
            parent = model.addJoint(parent, kinds[axis](), pin.SE3(np.eye(3), place), f"{arm}_joint{i}")
            model.appendBodyToJoint(parent, link, pin.SE3.Identity())
            place = 2 * center
    return model


def test_inverse_dynamics_along_the_reference_agree_with_pinocchio():
    theirs, ours = pinocchio_model(), robot().model
    data = theirs.createData()
    q, v, tau = along(ORDER)
    flat = lgjax.conventions.to_pinocchio(ours, q, v[:, 0], v[:, 1], tau[:, 0], order=list(theirs.names)[1:])
    expected = [pin.rnea(theirs, data, *(np.array(x) for x in state)) for state in zip(flat.q, flat.v, flat.vdot)]
    np.testing.assert_allclose(flat.tau, expected, atol=1e-12 * WEIGHT)
