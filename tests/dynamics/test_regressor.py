"""Inverse dynamics is linear in the inertial parameters; the matrix and its parameters are Pinocchio's."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest

import lgjax
from lgjax.dynamics.inertial_parameters import inertia_of, parameters_of
from lgjax.numerics import checks
from lgjax.simulate.identification import (
    base_parameters,
    from_log_cholesky,
    inertial_parameters,
    log_cholesky,
    regressor,
    with_inertial_parameters,
)
from tests.dynamics import trees
from tests.oracles import pinocchio_robots
from tests.oracles.pinocchio_trees import pinocchio_tree

STATES = 3
TREES = ("pendulum", "shoulder", "forest", "every joint")
regressors = jax.jit(jax.vmap(regressor, (None, 0, 0, 0)))


@cache
def states(name, at_rest=False):
    q, v, vdot, _, _ = trees.random_states(trees.model(name), STATES)
    return (q, 0 * v, 0 * vdot) if at_rest else (q, v, vdot)


@pytest.mark.parametrize("at_rest", [False, True], ids=["moving", "at rest"])
@pytest.mark.parametrize("name", TREES)
def test_the_matrix_times_the_parameters_is_inverse_dynamics(name, at_rest):
    model, (q, v, vdot) = trees.model(name), states(name, at_rest)
    tau = jax.vmap(lambda *s: lgjax.inverse_dynamics(model, *s))(q, v, vdot)
    tau = tau - model.armature * vdot - model.damping * v
    found = regressors(model, q, v, vdot) @ inertial_parameters(model)
    np.testing.assert_allclose(found, tau, rtol=0, atol=1e-12 * max(1, np.abs(tau).max()))


def test_the_matrix_is_pinocchios():
    """Of joint frames in a tree of joints of many kinds: here body frames are made to coincide with those."""
    model = trees.model("shoulder")
    links = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape)), lgjax.Pose(jnp.eye(3), jnp.zeros(3)))
    model = model.replace(links=links)
    theirs = pinocchio_tree(model)
    mine = np.concatenate([np.asarray(i.toDynamicParameters()) for i in list(theirs.inertias)[1:]])
    np.testing.assert_allclose(inertial_parameters(model), mine, rtol=0, atol=1e-14)
    q, v, vdot = states("shoulder")
    order = np.r_[3:6, 0:3, 6 : model.nv]
    for k in range(STATES):
        one = jax.tree.map(lambda x, k=k: x[k], (q, v, vdot))
        flat = lgjax.conventions.to_pinocchio(model, *one)
        Y = pin.computeJointTorqueRegressor(theirs, theirs.createData(), *(np.asarray(x) for x in flat[:3]))
        np.testing.assert_allclose(regressors(model, q, v, vdot)[k], Y[order], rtol=0, atol=1e-12)


def test_body_frames_are_those_of_the_file():
    """Pinocchio's joint frames are the frames of the file, whose joint axes point anywhere."""
    model = lgjax.load_urdf(pinocchio_robots.path("hyq_fixed"), floating_base=False)
    theirs = pinocchio_robots.Ordered(pinocchio_robots.read("hyq_fixed"), model.joint_names, model.body_names)
    ten = [np.asarray(theirs.model.inertias[i].toDynamicParameters()) for i in theirs.ids]
    np.testing.assert_allclose(inertial_parameters(model), np.concatenate(ten), rtol=0, atol=1e-12)
    q = lgjax.random_configuration(jax.random.key(0), model)
    v, vdot = jax.random.normal(jax.random.key(1), (2, model.nv))
    at = theirs.q(None, np.asarray(q.joints)), theirs.theirs(v), theirs.theirs(vdot)
    Y = pin.computeJointTorqueRegressor(theirs.model, theirs.data, *at)
    columns = np.concatenate([10 * (i - 1) + np.arange(10) for i in theirs.ids])
    np.testing.assert_allclose(regressor(model, q, v, vdot), Y[theirs.v_index][:, columns], rtol=0, atol=1e-12)


def test_float32_keeps_its_precision_far_from_home():
    model, (q, v, vdot) = trees.model("shoulder"), states("shoulder")
    exact = regressors(model, q, v, vdot)
    far = q._replace(free_poses=q.free_poses._replace(translation=q.free_poses.translation + 1024.0))
    found = regressors(*jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (model, far, v, vdot)))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, rtol=0, atol=3e-6 * np.abs(exact).max())


# ---- parameters
def test_parameters_and_models_are_inverse_to_each_other():
    model = trees.model("forest")
    parameters = jnp.asarray(np.random.default_rng(0).normal(size=10 * model.nbodies))
    np.testing.assert_allclose(
        inertial_parameters(with_inertial_parameters(model, parameters)), parameters, rtol=0, atol=1e-13
    )
    again = with_inertial_parameters(model, inertial_parameters(model))
    for a, b in zip(again.inertias, model.inertias, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)
    special = with_inertial_parameters(lgjax.specialize(model), inertial_parameters(model))
    np.testing.assert_allclose(special.inertias.mass, model.inertias.mass)
    with pytest.raises(ValueError, match=r"parameters has shape \(10,\), expected \(50,\)"):
        with_inertial_parameters(model, parameters[:10])


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-12), (jnp.float32, 2e-5)])
def test_log_cholesky_and_parameters_are_inverse_to_each_other(dtype, tolerance):
    ten = inertial_parameters(trees.model("every joint")).reshape(-1, 10).astype(dtype)
    theta = log_cholesky(ten)
    assert theta.dtype == dtype
    back = from_log_cholesky(theta)
    np.testing.assert_allclose(back, ten, rtol=0, atol=tolerance * np.abs(ten).max())
    np.testing.assert_allclose(np.exp(2 * theta[:, 0]), ten[:, 0], rtol=tolerance)
    np.testing.assert_allclose(theta[:, 7:], ten[:, 1:4] / ten[:, :1], rtol=0, atol=tolerance)


def test_every_number_is_a_body():
    theta = jnp.asarray(np.random.default_rng(1).normal(size=(200, 10)))
    ten = np.asarray(from_log_cholesky(theta))
    np.testing.assert_allclose(log_cholesky(ten), theta, rtol=0, atol=1e-8)
    for mass, moment, rotational in zip(*jax.tree.map(np.asarray, inertia_of(jnp.asarray(ten))), strict=True):
        c = moment / mass
        checks.inertia("rotational", rotational - mass * (c @ c * np.eye(3) - np.outer(c, c)))
    np.testing.assert_array_equal(parameters_of(inertia_of(jnp.asarray(ten))), ten)


def test_bodies_that_cannot_exist_are_refused_or_kept_finite():
    rod = np.array([1.0, 0, 0, 0, 1, 0, 3, 0, 0, 1])  # breaks the triangle inequality
    with pytest.raises(ValueError, match=r"not positive definite: its least eigenvalue is -0\.5"):
        log_cholesky(rod)
    with pytest.raises(ValueError, match="mass is not positive"):
        log_cholesky(-rod)
    for bad in (rod, -rod, 0 * rod):
        value, slope = jax.jit(lambda x: (log_cholesky(x), jax.jacfwd(log_cholesky)(x)))(jnp.asarray(bad))
        assert np.isfinite(value).all()
        assert np.isfinite(slope).all()


# ---- base parameters
def test_base_parameters_of_planar_links_are_those_of_the_closed_form():
    """Two links in the xz plane, the second at x = l: I2, h2 (x, z), I1 + l² m2, h1x + l m2 and h1z."""
    link = lambda name, parent, x: lgjax.Body(
        name, parent, lgjax.Joint(f"{name}_joint", "revolute", (0.0, 1.0, 0.0)), np.eye(3),
        (x, 0.0, 0.0), 1.5, (0.2, 0.1, 0.05), np.diag([0.02, 0.03, 0.03]),
    )  # fmt: skip
    model = lgjax.build([link("upper", None, 0.0), link("lower", "upper", 0.7)], "planar")
    q, v, vdot, _, _ = trees.random_states(model, 20)
    Y = regressors(model, q, v, vdot)
    base = base_parameters(Y)
    upper, lower = np.eye(20)[:10], np.eye(20)[10:]
    expected = [lower[6], lower[1], lower[3], upper[6] + 0.49 * lower[0], upper[1] + 0.7 * lower[0], upper[3]]
    assert base.rank == 6 == np.linalg.matrix_rank(np.concatenate([expected, base.combine]), tol=1e-9)
    ten = inertial_parameters(model)
    np.testing.assert_allclose(base.columns(Y) @ base.of(ten), Y @ ten, rtol=0, atol=1e-12)


def test_base_parameters_are_as_many_as_the_rank_for_a_spatial_arm():
    """The rank at random states is that of the singular values; other states see the same combinations."""
    model = lgjax.models.arm()
    q, v, vdot, _, _ = trees.random_states(model, 60)
    base = base_parameters(regressors(model, q, v, vdot))
    q, v, vdot, _, _ = trees.random_states(model, 60, seed=1)
    Y = np.asarray(regressors(model, q, v, vdot))
    assert base.rank == np.linalg.matrix_rank(Y.reshape(-1, 70), tol=1e-9)
    ten = np.random.default_rng(0).normal(size=70)
    np.testing.assert_allclose(base.columns(Y) @ np.asarray(base.of(jnp.asarray(ten))), Y @ ten, rtol=0, atol=1e-9)


def test_base_parameters_refuse_what_they_cannot_judge():
    with pytest.raises(ValueError, match="regressors have shape"):
        base_parameters(np.ones(3))
    with pytest.raises(TypeError, match="must be known numbers"):
        jax.jit(lambda x: base_parameters(x).combine)(jnp.ones((2, 2)))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("length", [0.3, 0.015, 0.001])
def test_base_parameters_of_small_robots(dtype, length):
    """Torques of the base parameters are those of all, whatever the units make of the lengths of columns."""
    link = lambda name, parent, x: lgjax.Body(
        name, parent, lgjax.Joint(f"{name}_joint", "revolute"), position=(x, 0.0, 0.0), mass=0.01,
        com=(length / 2, 0.0, 0.0), inertia=0.01 * length**2 / 12 * np.eye(3),
    )  # fmt: skip
    model = lgjax.build([link("a", None, 0.0), link("b", "a", length)], gravity=(0.0, -9.81, 0.0)).astype(dtype)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(jax.random.split(jax.random.key(0), 100))
    v, vdot = jax.random.normal(jax.random.key(1), (2, 100, 2), dtype) * jnp.array([1, 10], dtype)[:, None, None]
    Y = jax.vmap(lambda *state: lgjax.identification.regressor(model, *state))(q, v, vdot)
    parameters, base = lgjax.identification.inertial_parameters(model), base_parameters(Y)
    tau = Y @ parameters
    error = np.abs(base.columns(Y) @ base.of(parameters) - tau).max() / np.abs(tau).max()
    assert error < 30 * np.finfo(dtype).eps
