"""Published robots, read by this library and by Pinocchio from the same file, move alike."""

import warnings
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from tests.oracles import pinocchio_robots as oracle

STATES = 8
TOLERANCE = {jnp.float64: 1e-10, jnp.float32: 1e-4}
DTYPES = (jnp.float64, jnp.float32)
ROBOTS = ("panda", "go1", "hyq", "talos_reduced")
# By default the two quadrupeds share the precisions, and the humanoid, which is slow to compile, has one.
SLOW = (("go1", jnp.float32), ("hyq", jnp.float64), ("talos_reduced", jnp.float32))


@cache
def load(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some published inertias break the triangle inequality
        return lgjax.load_urdf(
            oracle.path(name), floating_base=oracle.floating(name), mimic="independent", check_inertia="warn"
        )


@cache
def robot(name):
    """The library's model with random armature and damping on the joints, and Pinocchio's of the same robot."""
    model = load(name)
    random = np.random.default_rng(0)
    on_joints = np.arange(model.nv) >= 6 * oracle.floating(name)
    armature, damping = random.uniform(0, 0.05, (2, model.nv)) * on_joints
    model = model.replace(armature=jnp.asarray(armature), damping=model.damping + damping)
    theirs = oracle.Ordered(oracle.read(name), model.joint_names, model.body_names)
    theirs.model.armature = theirs.theirs(armature)
    return model, theirs


@cache
def states(name):
    model, _ = robot(name)
    keys = jax.random.split(jax.random.key(3), STATES)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    random = np.random.default_rng(1)
    v, vdot, tau = random.normal(size=(3, STATES, model.nv))
    return q, v, vdot, 10 * tau, random.normal(size=(STATES, model.nbodies, 6))


@cache
def expected(name):
    model, theirs = robot(name)
    q, v, vdot, tau, wrenches = jax.tree.map(np.asarray, states(name))
    rows = []
    for i in range(STATES):
        pose = (q.free_poses.rotation[i, 0], q.free_poses.translation[i, 0]) if oracle.floating(name) else None
        rows.append(
            oracle.answers(
                theirs, pose, q.joints[i], v[i], vdot[i], tau[i], wrenches[i], np.asarray(model.damping),
                model.nbodies - 1,
            )
        )  # fmt: skip
    return oracle.Answers(*(np.stack(column) for column in zip(*rows, strict=True)))


def everything(model, q, v, vdot, tau, wrenches):
    poses = lgjax.forward_kinematics(model, q)
    return oracle.Answers(
        forward_dynamics=lgjax.forward_dynamics(model, q, v, tau, wrenches),
        inverse_dynamics=lgjax.inverse_dynamics(model, q, v, vdot, wrenches),
        mass_matrix=lgjax.mass_matrix(model, q),
        gravity_forces=lgjax.gravity_forces(model, q),
        rotation=poses.rotation,
        translation=poses.translation,
        jacobian=lgjax.jacobian(model, q, model.body_names[-1]),
        kinetic_energy=lgjax.kinetic_energy(model, q, v),
        potential_energy=lgjax.potential_energy(model, q),
        momentum=lgjax.momentum(model, q, v),
        center_of_mass=lgjax.center_of_mass(model, q),
    )


def computed(name, dtype):
    cast = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)
    model, _ = robot(name)
    return jit(jax.vmap(everything, (None, 0, 0, 0, 0, 0)))(cast(model), *cast(states(name)))


def relative_error(actual, expected):
    """Largest difference over the states, relative to the largest entry of each state's answer."""
    size = expected.reshape(len(expected), -1)
    gap = np.abs(np.asarray(actual, float).reshape(size.shape) - size).max(1)
    return (gap / np.abs(size).max(1)).max()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=[pytest.mark.slow] * ((name, dtype) in SLOW))
        for name in ROBOTS
        for dtype in DTYPES
    ],
)
def test_agrees_with_pinocchio(name, dtype):
    got, wanted = computed(name, dtype), expected(name)
    assert all(x.dtype == dtype for x in got)
    errors = {field: relative_error(a, b) for field, a, b in zip(got._fields, got, wanted, strict=True)}
    assert max(errors.values()) < TOLERANCE[dtype], errors


@pytest.mark.parametrize("name", ROBOTS)
def test_sizes_and_damping_are_those_of_the_file(name):
    model, theirs = load(name), oracle.read(name)
    ordered = oracle.Ordered(theirs, model.joint_names, model.body_names)
    assert (model.nv, model.nbodies) == (theirs.nv, theirs.njoints - 1)
    np.testing.assert_allclose(model.damping, ordered.ours(theirs.damping))
