"""The equations of motion as matrices against the recursions, and their rates against forward differentiation."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import se3
from lgjax.multibody.configuration import join_velocity, split_velocity
from tests.dynamics import trees

STATES = 3
CASES = [
    ("fixed tree", "body"),
    ("forest", "body"),
    ("shoulder", "spatial"),
    pytest.param("forest", "spatial", marks=pytest.mark.slow),
    pytest.param("shoulder", "body", marks=pytest.mark.slow),
]
every_case = pytest.mark.parametrize(("name", "frame"), CASES)


class Facts(NamedTuple):
    """What both sides say about random states, with a leading axis of states."""

    v: Any
    vdot: Any
    vddot: Any
    matrices: lgjax.time_derivatives.ClosedForm
    rates: Any  # of mass, coriolis and gravity along the motion
    tau: Any  # inverse dynamics and its derivative, (2, nv)
    basis: Any  # the change to body velocities and its rate
    mass: Any
    coriolis: Any
    gravity: Any


def to_body(model, q, frame):
    """The matrix A (nv, nv) of the change from velocities in `frame` to body velocities."""

    def column(v):
        frees, joints, balls = split_velocity(model.tree, v)
        return join_velocity(model.tree, se3.Ad(se3.inverse(q.free_poses), frees), joints, balls)

    units = jnp.eye(model.nv)
    return jax.vmap(column)(units).T if frame == "spatial" else units


def facts_of(model, frame, q, v, vdot, vddot) -> Facts:
    start = to_body(model, q, frame)
    rate = start @ v

    def along(s):
        there = lgjax.retract(model, q, s * rate)
        found = lgjax.time_derivatives.closed_form(model, there, v + s * vdot, vdot, frame)
        return (found.mass, found.coriolis, found.gravity, to_body(model, there, frame)), found

    _, (*rates, turning), found = jax.jvp(along, (jnp.zeros(()),), (jnp.ones(()),), has_aux=True)
    tau = lgjax.inverse_dynamics_time_derivatives(model, q, jnp.stack([v, vdot, vddot]), 1, frame)
    return Facts(
        v, vdot, vddot, found, rates, tau, (start, turning),
        lgjax.mass_matrix(model, q), lgjax.coriolis_matrix(model, q, rate), lgjax.gravity_forces(model, q),
    )  # fmt: skip


@cache
def facts(name: str, frame: str) -> Facts:
    model = trees.model(name)
    q, v, vdot, vddot, _ = trees.random_states(model, STATES)
    run = jit(jax.vmap(lambda *state: facts_of(model, frame, *state)))
    return jax.tree.map(np.asarray, run(q, v, vdot, vddot))


def close(actual, expected, tolerance=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(np.abs(expected).max(), 1.0))


def times(matrix, vector):
    return np.einsum("...ij,...j->...i", matrix, vector)


@every_case
def test_the_matrices_give_the_forces_and_their_rates(name, frame):
    f = facts(name, frame)
    m, D = f.matrices, np.diag(trees.model(name).damping)
    tau = times(m.mass, f.vdot) + times(m.coriolis + D, f.v) + m.gravity
    rate = (
        times(m.mass, f.vddot) + times(m.mass_rate + m.coriolis + D, f.vdot)
        + times(m.coriolis_rate, f.v) + m.gravity_rate
    )  # fmt: skip
    close(tau, f.tau[:, 0])
    close(rate, f.tau[:, 1])


@every_case
def test_the_rates_are_those_along_the_motion(name, frame):
    f = facts(name, frame)
    jax.tree.map(close, [f.matrices.mass_rate, f.matrices.coriolis_rate, f.matrices.gravity_rate], f.rates)


@every_case
def test_mass_rate_less_twice_coriolis_is_skew(name, frame):
    f = facts(name, frame)
    N = f.rates[0] - 2 * f.matrices.coriolis
    close(N, -np.swapaxes(N, 1, 2))


@every_case
def test_the_matrices_are_those_of_the_recursions(name, frame):
    """After the change of coordinates v_body = A v: A^T M A, A^T (C A + M dA/dt) and A^T g."""
    f = facts(name, frame)
    A, dA = f.basis
    turn = np.swapaxes(A, 1, 2)
    close(f.matrices.mass, turn @ f.mass @ A)
    close(f.matrices.coriolis, turn @ (f.coriolis @ A + f.mass @ dA))
    close(f.matrices.gravity, times(turn, f.gravity))


def test_closed_form_keeps_the_dtype_and_names_bad_input():
    model = trees.model("single body").astype(jnp.float32)
    q, v = lgjax.neutral(model), jnp.zeros(6, jnp.float32)
    found = jit(lambda q, v: lgjax.time_derivatives.closed_form(model, q, v, v))(q, v)
    assert {x.dtype for x in found} == {jnp.dtype(jnp.float32)}
    with pytest.raises(ValueError, match="frame is 'body' or 'spatial', not 'world'"):
        lgjax.time_derivatives.closed_form(model, q, v, v, "world")
    with pytest.raises(ValueError, match=r"vdot has shape \(5,\), expected \(6,\)"):
        lgjax.time_derivatives.closed_form(model, q, v, v[1:])
    with pytest.raises(ValueError, match="v is float64, the model is float32"):
        lgjax.time_derivatives.closed_form(model, q, v.astype(jnp.float64), v)


def test_its_partial_derivatives_are_finite_at_rest():
    model = trees.model("shoulder")
    zero = jnp.zeros(model.nv)

    def total(d, v, vdot):
        found = lgjax.time_derivatives.closed_form(
            model, lgjax.retract(model, lgjax.neutral(model), d), v, vdot, "spatial"
        )
        return sum(jnp.sum(x) for x in found)

    for part in jit(jax.grad(total, (0, 1, 2)))(zero, zero, zero):
        assert np.all(np.isfinite(part))


def test_armature_of_a_free_base_is_that_of_the_body():
    """In spatial coordinates it moves with the body: forces, and their rates, are those of the recursions."""
    model = trees.model("shoulder")
    base = model.tree.v_start[[k.coordinates for k in model.tree.kinds].index("free_poses")]
    loaded = jnp.zeros(model.nv).at[base : base + 6].set(jnp.arange(1.0, 7.0))
    model = model.replace(armature=model.armature + loaded, damping=0 * model.damping)
    q, v, vdot, vddot, _ = jax.tree.map(lambda x: x[0], trees.random_states(model, 1))
    m = jit(lgjax.time_derivatives.closed_form, static_argnums=4)(model, q, v, vdot, "spatial")
    tau = lgjax.inverse_dynamics_time_derivatives(model, q, jnp.stack([v, vdot, vddot]), 1, "spatial")
    close(m.mass @ vdot + m.coriolis @ v + m.gravity, tau[0])
    close(m.mass @ vddot + (m.mass_rate + m.coriolis) @ vdot + m.coriolis_rate @ v + m.gravity_rate, tau[1])
    close(m.mass_rate - 2 * m.coriolis, -(m.mass_rate - 2 * m.coriolis).T)
