"""Sentences of mechanics that need no other program, on trees of every shape."""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import Pose, se3
from lgjax.execution import plain
from tests.dynamics import trees

# "every joint" is a random tree on a floating base as well, and has the spherical joint of "shoulder".
CONTAINED = ("shoulder", "floating tree")
every_tree = pytest.mark.parametrize("name", [name for name in trees.TREES if name not in CONTAINED])
floating_trees = pytest.mark.parametrize("name", [name for name in trees.FLOATING if name not in CONTAINED])


class Facts(NamedTuple):
    """What the library says about the states of one mechanism, with a leading axis of states."""

    v: Any
    vdot: Any
    tau: Any
    wrenches: Any
    acceleration: Any  # forward dynamics under tau and wrenches
    inverse: Any  # inverse dynamics of vdot under wrenches
    inverse_of_units: Any  # what each unit acceleration adds to the inverse dynamics
    forward_of_inverse: Any
    bias: Any
    gravity: Any
    M: Any
    C: Any
    kinetic: Any
    momentum: Any
    twists: Any
    poses: Any
    center: Any
    M_rate: Any  # rates along the motion that tau and wrenches cause
    energy_rate: Any
    momentum_rate: Any
    potential_gradient: Any


# Central differences of sixth order: exact to 1e-11 at this step for motions of a few radians per second.
STEP = 2e-3
DIFFERENCES = 1e-9  # of what is compared with differences
STENCIL = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60


def facts_of(model, q, v, vdot, tau, wrenches) -> Facts:
    # Everything is mapped over where and how it is asked, so that each recursion is compiled once.
    n, dtype = model.nv, model.dtype
    units, offsets = jnp.eye(n, dtype=dtype), STEP * jnp.arange(-3, 4, dtype=dtype)
    inverse = jax.vmap(lambda a: lgjax.inverse_dynamics(model, q, v, a, wrenches))
    forces = inverse(jnp.concatenate([vdot[None], 0 * vdot[None], units]))
    forward = jax.vmap(lambda tau: lgjax.forward_dynamics(model, q, v, tau, wrenches))
    acceleration, forward_of_inverse = forward(jnp.stack([tau, forces[0]]))

    def functions_of_state(dq, v):
        there = lgjax.retract(model, q, dq)
        return (
            lgjax.mass_matrix(model, there),
            lgjax.kinetic_energy(model, there, v),
            lgjax.potential_energy(model, there),
            lgjax.momentum(model, there, v),
        )

    along_motion = offsets[:, None] * v
    along_axes = (units[:, None] * offsets[:, None]).reshape(7 * n, n)
    speeds = jnp.concatenate([v + offsets[:, None] * acceleration, jnp.broadcast_to(v, (7 * n, n))])
    M, T, U, h = jax.vmap(functions_of_state)(jnp.concatenate([along_motion, along_axes]), speeds)
    rate = lambda x: jnp.tensordot(jnp.asarray(STENCIL / STEP, dtype), x[:7], 1, precision="highest")
    slopes = U[7:].reshape(n, 7) @ jnp.asarray(STENCIL / STEP, dtype)
    return Facts(
        v, vdot, tau, wrenches, acceleration,
        inverse=forces[0],
        inverse_of_units=forces[2:] - forces[1],
        forward_of_inverse=forward_of_inverse,
        bias=lgjax.bias_forces(model, q, v),
        gravity=lgjax.gravity_forces(model, q),
        M=M[3], C=lgjax.coriolis_matrix(model, q, v), kinetic=T[3], momentum=h[3],
        twists=lgjax.body_twists(model, q, v),
        poses=lgjax.forward_kinematics(model, q),
        center=lgjax.center_of_mass(model, q),
        M_rate=rate(M), energy_rate=rate(T + U), momentum_rate=rate(h), potential_gradient=slopes,
    )  # fmt: skip


@cache
def facts(name: str) -> Facts:
    model = trees.model(name)
    return jax.tree.map(np.asarray, jit(jax.vmap(facts_of, (None, 0, 0, 0, 0, 0)))(model, *trees.random_states(model)))


def close(actual, expected, tolerance=1e-11):
    scale = max(np.abs(expected).max(), 1.0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def times(matrix, vector):
    return np.einsum("...ij,...j->...i", matrix, vector)


def damping(name):
    return np.asarray(trees.model(name).damping)


@every_tree
def test_kinetic_energy_is_half_v_M_v(name):
    f = facts(name)
    close(np.einsum("si,sij,sj->s", f.v, f.M, f.v) / 2, f.kinetic)


@every_tree
def test_mass_matrix_is_symmetric_and_positive_definite(name):
    M = facts(name).M
    close(M, np.swapaxes(M, 1, 2), 1e-14)
    assert np.linalg.eigvalsh(M).min() > 0


@every_tree
def test_mass_matrix_is_what_inverse_dynamics_asks_for_unit_accelerations(name):
    f = facts(name)
    close(f.inverse_of_units, f.M)


@every_tree
def test_mass_matrix_rate_less_twice_coriolis_is_skew(name):
    f = facts(name)
    N = f.M_rate - 2 * f.C
    close(N, -np.swapaxes(N, 1, 2), DIFFERENCES)


@every_tree
def test_coriolis_gravity_and_damping_are_the_bias(name):
    f = facts(name)
    close(times(f.C, f.v) + f.gravity + damping(name) * f.v, f.bias)


@every_tree
def test_gravity_forces_are_the_gradient_of_potential_energy(name):
    f = facts(name)
    close(f.potential_gradient, f.gravity, DIFFERENCES)


@every_tree
def test_forward_dynamics_undoes_inverse_dynamics(name):
    f = facts(name)
    close(f.forward_of_inverse, f.vdot)
    close(times(f.M, f.acceleration - f.vdot), f.tau - f.inverse)


@every_tree
def test_wrenches_act_through_the_jacobians_of_their_bodies(name):
    f = facts(name)
    power = np.einsum("sbk,sbk->s", f.wrenches, f.twists)
    applied = times(f.M, f.vdot) + f.bias - f.inverse
    close(np.einsum("si,si->s", applied, f.v), power)


@every_tree
def test_power_balance(name):
    """dE/dt = tau . v + sum of w . V - v . D v."""
    f = facts(name)
    power = np.sum(f.tau * f.v, 1) + np.einsum("sbk,sbk->s", f.wrenches, f.twists)
    close(f.energy_rate, power - np.sum(damping(name) * f.v**2, 1), DIFFERENCES)


@floating_trees
def test_momentum_changes_by_external_wrenches_and_gravity(name):
    """dh/dt about the world origin; joint forces, friction and armature are internal."""
    f, model = facts(name), trees.model(name)
    R, p = f.poses
    moments, forces = times(R, f.wrenches[..., :3]), times(R, f.wrenches[..., 3:])
    # a free joint's tau is a wrench on its body as well
    moments[:, 0] += times(R[:, 0], f.tau[:, :3])
    forces[:, 0] += times(R[:, 0], f.tau[:, 3:6])
    weight = np.sum(np.asarray(model.inertias.mass)) * np.asarray(model.gravity)
    torque = np.sum(moments + np.cross(p, forces), 1) + np.cross(f.center, weight)
    close(f.momentum_rate, np.concatenate([torque, np.sum(forces, 1) + weight], 1), DIFFERENCES)


@pytest.mark.slow
def test_sentences_without_differences_hold_in_single_precision():
    given = trees.model("every joint"), *trees.random_states(trees.model("every joint"))
    model, *states = jax.tree.map(lambda x: x.astype(jnp.float32), given)

    def of(q, v, vdot, _, wrenches):
        inverse = jax.vmap(lambda v, a: lgjax.inverse_dynamics(model, q, v, a, wrenches))
        forces, bias, at_rest = inverse(jnp.stack([v, v, 0 * v]), jnp.stack([vdot, 0 * v, 0 * v]))
        return (
            v, vdot, forces, bias, at_rest,
            lgjax.forward_dynamics(model, q, v, forces, wrenches),
            lgjax.mass_matrix(model, q), lgjax.coriolis_matrix(model, q, v), lgjax.kinetic_energy(model, q, v),
        )  # fmt: skip

    found = jax.tree.map(np.asarray, jit(jax.vmap(of))(*states))
    assert {x.dtype for x in found} == {np.dtype(np.float32)}
    v, vdot, forces, bias, at_rest, forward, M, C, kinetic = found
    close(np.einsum("si,sij,sj->s", v, M, v) / 2, kinetic, 1e-6)
    close(times(M, vdot) + bias, forces, 1e-5)
    close(times(C, v) + at_rest + np.asarray(model.damping) * v, bias, 1e-5)
    close(forward, vdot, 1e-3)


def test_momentum_is_that_of_the_bodies_by_hand():
    """Each body by its mass, center of mass and inertia about it, with a tree on the ground beside floating ones."""
    name = "forest"
    f, model = facts(name), trees.model(name)
    R, p = f.poses
    total, weighted = np.zeros((trees.STATES, 6)), np.zeros((trees.STATES, 3))
    bodies = [trees.body(b, None, "free", i + 1) for i, b in enumerate(model.body_names)]
    for i, body in enumerate(bodies):
        w, v = times(R[:, i], f.twists[:, i, :3]), times(R[:, i], f.twists[:, i, 3:])
        arm = times(R[:, i], body.com)
        linear = body.mass * (v + np.cross(w, arm))
        angular = times(R[:, i] @ body.inertia @ np.swapaxes(R[:, i], 1, 2), w) + np.cross(p[:, i] + arm, linear)
        total += np.concatenate([angular, linear], 1)
        weighted += body.mass * (p[:, i] + arm)
    close(f.momentum, total)
    close(f.center, weighted / sum(body.mass for body in bodies))


def test_a_rigid_motion_of_the_world_changes_nothing_that_is_measured_on_the_body():
    name = "floating tree"
    model = trees.model(name)
    q, v, _, tau, wrenches = trees.random_states(model)
    move = se3.exp(jnp.asarray([0.4, -1.0, 0.7, 3.0, -2.0, 5.0]))
    there = q._replace(free_poses=se3.compose(Pose(move.rotation[None], move.translation[None]), q.free_poses))
    turned = model.replace(gravity=move.rotation @ model.gravity)

    @jit
    def measured(model, q):
        return jax.vmap(
            lambda q, v, tau, w: (
                lgjax.forward_dynamics(model, q, v, tau, w),
                lgjax.mass_matrix(model, q),
                lgjax.gravity_forces(model, q),
                lgjax.body_twists(model, q, v),
            )
        )(q, v, tau, wrenches)

    jax.tree.map(close, measured(turned, there), measured(model, q))


EXECUTED = {
    "forward_dynamics": lambda m, q, v, a, tau, w: lgjax.forward_dynamics(m, q, v, tau, w),
    "inverse_dynamics": lambda m, q, v, a, tau, w: lgjax.inverse_dynamics(m, q, v, a, w),
    "without wrenches": lambda m, q, v, a, tau, w: lgjax.forward_dynamics(m, q, v, tau),
    "gravity_forces": lambda m, q, v, a, tau, w: lgjax.gravity_forces(m, q),
    "forward_kinematics": lambda m, q, v, a, tau, w: lgjax.forward_kinematics(m, q),
    "mass_matrix": lambda m, q, v, a, tau, w: lgjax.mass_matrix(m, q),
    "coriolis_matrix": lambda m, q, v, a, tau, w: lgjax.coriolis_matrix(m, q, v),
    "partials": lambda m, q, v, a, tau, w: lgjax.forward_dynamics_partials(m, q, v, tau, w),
}


@pytest.mark.parametrize("name", ["chain", "forest"])
def test_kernels_agree_with_plain_execution(name):
    model = trees.model(name)
    states = trees.random_states(model)

    def all_of(model, *state):
        return {key: f(model, *state) for key, f in EXECUTED.items()}

    run = lambda f: jit(jax.vmap(f, (None, 0, 0, 0, 0, 0)))(model, *states)
    jax.tree.map(lambda a, b: close(a, b, 1e-12), run(all_of), run(plain()(all_of)))


def test_merging_fixed_joints_adds_inertias():
    """A payload on a fixed joint moves as one body with what carries it, summed by hand."""
    arm, payload = trees.body("arm", "base", "revolute", 2), trees.body("payload", "arm", "fixed", 3)
    base = trees.body("base", None, "free", 1)
    R, p = payload.rotation, payload.position
    mass = arm.mass + payload.mass
    placed = R @ payload.com + p
    com = (arm.mass * arm.com + payload.mass * placed) / mass
    steiner = lambda m, c: m * (c @ c * np.eye(3) - np.outer(c, c))
    inertia = (
        arm.inertia + steiner(arm.mass, arm.com - com)
        + R @ payload.inertia @ R.T + steiner(payload.mass, placed - com)
    )  # fmt: skip
    by_hand = lgjax.build([base, replace(arm, mass=mass, com=com, inertia=inertia)])
    merged = lgjax.build([base, arm, payload])
    assert merged.nbodies == 2
    assert merged.tree.frames == (("payload", 1),)
    jax.tree.map(close, merged.inertias, by_hand.inertias)
    q = lgjax.random_configuration(jax.random.key(0), merged)
    pose = jax.tree.map(np.asarray, lgjax.frame_pose(merged, q, "payload"))
    carrier = jax.tree.map(lambda x: np.asarray(x)[1], lgjax.forward_kinematics(merged, q))
    close(pose.rotation, carrier.rotation @ R)
    close(pose.translation, carrier.rotation @ p + carrier.translation)
