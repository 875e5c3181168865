"""Estimates from noisy records lie within three standard deviations of the truth as often as they should.

A seed is an arm of seven joints, a motion, and a hundred records of it with other noise, all estimated side by side.
"""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import identification as idn
from soak import Result

SEEDS, T, SIGMA = 100, 60, np.linspace(0.02, 0.08, 7)
WITHIN = 0.9973  # probability of three standard deviations


def arm(rng: np.random.Generator) -> lgjax.Model:
    """Seven joints with skew axes, friction and a payload that is off center."""
    bodies = []
    for i in range(7):
        turn, axis = np.linalg.qr(rng.normal(size=(3, 3)))[0], rng.normal(size=3)
        solid = {
            "mass": rng.uniform(0.5, 2),
            "com": 0.1 * rng.normal(size=3),
            "inertia": turn @ np.diag([0.03, 0.025, 0.02]) @ turn.T,
        }
        joint = lgjax.Joint(f"joint{i}", "revolute", axis / np.linalg.norm(axis))
        bodies.append(
            lgjax.Body(f"link{i}", f"link{i - 1}" if i else None, joint, position=0.3 * rng.normal(size=3), **solid)
        )
    model = lgjax.build(bodies)
    return model.replace(damping=jnp.asarray(rng.uniform(0.1, 0.5, 7)), friction=jnp.asarray(rng.uniform(0.1, 0.5, 7)))


def records(rng: np.random.Generator, model: lgjax.Model):
    """The motion, and commands (SEEDS, T, 7) with independent noise."""
    q = jax.vmap(lambda x: lgjax.neutral(model)._replace(joints=x))(jnp.asarray(rng.normal(size=(T, 7))))
    v, vdot = (jnp.asarray(x) for x in rng.normal(size=(2, T, 7)))
    torque = jax.jit(jax.vmap(lambda *s: lgjax.inverse_dynamics(model, *s)))(q, v, vdot)
    torque = torque + model.friction * jnp.tanh(v / 0.01)
    return (q, v, vdot), torque + SIGMA * rng.normal(size=(SEEDS, T, 7))


def estimates(guess: lgjax.Model, motion, commands, unknowns):
    """x (SEEDS, p), and covariance and what is seen, which are the same for all seeds of a linear problem."""

    def one(command):
        found = idn.identify(guess, idn.TorqueRecord(*motion, command, jnp.asarray(SIGMA)), unknowns)
        return found.x, found.covariance, found.success

    x, covariance, success = jax.jit(jax.vmap(one))(commands)
    assert bool(jnp.all(success))
    return np.asarray(x), np.asarray(covariance[0])


def _judged(what: str, errors: np.ndarray, covariance: np.ndarray) -> list[str]:
    """What speaks against errors (SEEDS, n) of a Gaussian: how many leave three deviations, and their length in it."""
    n, failures = errors.shape[1], []
    scaled = errors / np.sqrt(np.diag(covariance))
    outside, expected = np.sum(np.abs(scaled) > 3), (1 - WITHIN) * SEEDS * n
    # Errors of one estimate are correlated, so they leave together: as many as in the worst of a thousand such samples.
    deviations = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviations, deviations)
    samples = np.random.default_rng(0).multivariate_normal(np.zeros(n), correlation, (1000, SEEDS))
    if outside > np.max(np.sum(np.abs(samples) > 3, (1, 2))):
        failures.append(
            f"{what}: {outside} of {SEEDS * n} outside of three standard deviations, {expected:.0f} expected"
        )
    unit = np.diag(1 / np.sqrt(np.diag(covariance)))
    length = np.einsum("si,ij,sj->s", scaled, np.linalg.inv(unit @ covariance @ unit), scaled).mean()
    if not abs(length - n) < 4 * np.sqrt(2 * n / SEEDS):
        failures.append(f"{what}: mean square of the error {length:.2f} for {n} degrees of freedom")
    return failures


def rates(seed: int) -> Result:
    """The ten parameters of a payload in a known arm; then all base parameters of the arm and its friction."""
    rng = np.random.default_rng(seed)
    true = arm(rng)
    motion, commands = records(rng, true)
    parameters = lambda model: np.asarray(idn.inertial_parameters(model))
    light = true.replace(inertias=true.inertias.scaled(jnp.asarray([1.0] * 6 + [0.5])))
    x, covariance = estimates(light, motion, commands, idn.inertias(light, [true.body_names[-1]], physical=False))
    failures = _judged("payload", x - (parameters(true) - parameters(light))[-10:], covariance)
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
    if base.rank <= 50 or not set(range(70, 84)) <= set(base.independent):
        failures.append(f"arm: only {base.rank} base parameters, or friction among what depends on others")
    combine = base.combine
    failures += _judged("arm", (x - truth) @ combine.T, combine @ covariance @ combine.T)
    return Result(Counter({"estimates": 2 * SEEDS}), [f"identification seed {seed}: {line}" for line in failures])
