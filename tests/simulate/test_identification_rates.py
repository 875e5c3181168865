"""Estimates from noisy records lie within three standard deviations of the truth as often as they should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import identification as idn

SEEDS, T, SIGMA = 100, 60, np.linspace(0.02, 0.08, 7)
WITHIN = 0.9973  # probability of three standard deviations
RNG = np.random.default_rng(0)


def arm() -> lgjax.Model:
    """Seven joints with skew axes, friction and a payload that is off centre."""
    bodies = []
    for i in range(7):
        turn, axis = np.linalg.qr(RNG.normal(size=(3, 3)))[0], RNG.normal(size=3)
        solid = {
            "mass": RNG.uniform(0.5, 2),
            "com": 0.1 * RNG.normal(size=3),
            "inertia": turn @ np.diag([0.03, 0.025, 0.02]) @ turn.T,
        }
        joint = lgjax.Joint(f"joint{i}", "revolute", axis / np.linalg.norm(axis))
        bodies.append(
            lgjax.Body(f"link{i}", f"link{i - 1}" if i else None, joint, position=0.3 * RNG.normal(size=3), **solid)
        )
    model = lgjax.build(bodies)
    return model.replace(damping=jnp.asarray(RNG.uniform(0.1, 0.5, 7)), friction=jnp.asarray(RNG.uniform(0.1, 0.5, 7)))


def records(model: lgjax.Model):
    """The motion, and commands (SEEDS, T, 7) with independent noise."""
    q = jax.vmap(lambda x: lgjax.neutral(model)._replace(joints=x))(jnp.asarray(RNG.normal(size=(T, 7))))
    v, vdot = (jnp.asarray(x) for x in RNG.normal(size=(2, T, 7)))
    torque = jax.jit(jax.vmap(lambda *s: lgjax.inverse_dynamics(model, *s)))(q, v, vdot)
    torque = torque + model.friction * jnp.tanh(v / 0.01)
    return (q, v, vdot), torque + SIGMA * RNG.normal(size=(SEEDS, T, 7))


def estimates(guess: lgjax.Model, motion, commands, unknowns):
    """x (SEEDS, p), and covariance and what is seen, which are the same for all seeds of a linear problem."""

    def one(command):
        found = idn.identify(guess, idn.TorqueRecord(*motion, command, jnp.asarray(SIGMA)), unknowns)
        return found.x, found.covariance, found.success

    x, covariance, success = jax.jit(jax.vmap(one))(commands)
    assert bool(jnp.all(success))
    return np.asarray(x), np.asarray(covariance[0])


def check(errors: np.ndarray, covariance: np.ndarray) -> None:
    """Errors (SEEDS, n) are those of a Gaussian: how many are within three deviations, and their length in it."""
    n = errors.shape[1]
    scaled = errors / np.sqrt(np.diag(covariance))
    outside = np.sum(np.abs(scaled) > 3)
    expected = (1 - WITHIN) * SEEDS * n
    assert outside <= expected + 4 * np.sqrt(expected), f"{outside} of {SEEDS * n} outside of three deviations"
    unit = np.diag(1 / np.sqrt(np.diag(covariance)))
    length = np.einsum("si,ij,sj->s", scaled, np.linalg.inv(unit @ covariance @ unit), scaled)
    assert abs(length.mean() - n) < 4 * np.sqrt(2 * n / SEEDS), f"mean {length.mean()} for {n} degrees of freedom"


@pytest.mark.slow
def test_payload_base_parameters_and_friction_are_found_at_the_nominal_rate():
    true = arm()
    motion, commands = records(true)
    # the ten parameters of what the hand holds, in an arm that is known
    last = true.body_names[-1]
    light = true.replace(inertias=true.inertias.scaled(jnp.asarray([1.0] * 6 + [0.5])))
    parameters = lambda model: np.asarray(idn.inertial_parameters(model))
    x, covariance = estimates(light, motion, commands, idn.inertias(light, [last], physical=False))
    assert np.linalg.matrix_rank(covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))) == 10
    check(x - (parameters(true) - parameters(light))[-10:], covariance)
    # everything: base parameters and both kinds of friction
    guess = true.replace(
        inertias=true.inertias.scaled(jnp.full(7, 0.7)), damping=0 * true.damping, friction=0 * true.friction
    )
    unknowns = idn.inertias(guess, physical=False) + idn.viscous(guess) + idn.coulomb(guess)
    x, covariance = estimates(guess, motion, commands, unknowns)
    truth = np.concatenate([parameters(true) - parameters(guess), true.damping, true.friction])
    q, v, vdot = motion
    Y = np.asarray(jax.jit(jax.vmap(lambda *s: idn.regressor(true, *s)))(q, v, vdot))
    joints = [np.eye(7) * np.asarray(value)[:, :, None] for value in (v, jnp.tanh(v / 0.01))]
    base = idn.base_parameters(np.concatenate([Y, *joints], -1))
    assert base.rank > 50
    assert set(range(70, 84)) <= set(base.independent)
    check((x - truth) @ base.combine.T, base.combine @ covariance @ base.combine.T)
