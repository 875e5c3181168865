"""The mass, center of mass and inertia of what an arm has gripped, from a noisy record of its joints.

A robot arm follows a motion under a weak and known controller, with an unknown payload rigid in its grip, and its joint
angles are recorded with 1 mrad of noise. The ten inertial parameters of last link and payload are those whose simulated
motion fits best: Levenberg-Marquardt with the derivative of the rollout. They are written by the logarithms and entries
of a Cholesky factor of the pseudo-inertia, so that every iterate is a body that can exist. Goal: from each random guess
the same parameters, and those no further from the truth than the noise explains: the error weighed by its covariance is
below the 99.9 % quantile of chi² with ten degrees of freedom.  Source: [rucker2022] for the parameters.
python examples/19_payload.py [--guesses 8] [--out payload.png]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import figure, save

DT, STEPS, EVERY, NOISE, SEED = 5e-3, 400, 4, 1e-3, 0
MASS, COM, MOMENTS = 2.0, (0.03, -0.02, 0.12), (0.012, 0.009, 0.006)  # of the payload, kg, m, kg m², in the link
ARMATURE = (0.3, 0.3, 0.2, 0.2, 0.05, 0.05, 0.02)  # of the motors, kg m²
STIFFNESS, DAMPING = (200.0, 300.0, 150.0, 150.0, 40.0, 40.0, 10.0), (15.0, 20.0, 10.0, 10.0, 2.0, 2.0, 0.5)
HORIZONS = (0.15, 0.5, 1.0)  # of the record
CHI2 = 29.59  # 99.9 %, ten degrees of freedom
NAMES = ("m (kg)", *(f"h{a} (kg m)" for a in "xyz"), *(f"I{a} (kg m²)" for a in ("xx", "xy", "xz", "yy", "yz", "zz")))
LOWER = np.tril_indices(4)


def inertia(theta) -> lgjax.multibody.Inertia:
    """The body whose pseudo-inertia [[S, h], [hᵀ, m]] is L Lᵀ: theta (10,) is L by rows, its diagonal by logarithms."""
    L = jnp.zeros((4, 4), theta.dtype).at[LOWER].set(theta)
    L = L - jnp.diag(jnp.diag(L)) + jnp.diag(jnp.exp(jnp.diag(L)))
    pseudo = L @ L.T
    S = pseudo[:3, :3]
    return lgjax.multibody.Inertia(pseudo[3, 3], pseudo[:3, 3], jnp.trace(S) * jnp.eye(3) - S)


def parameters(body: lgjax.multibody.Inertia):
    """theta of a body."""
    S = jnp.trace(body.rotational) / 2 * jnp.eye(3) - body.rotational
    L = jnp.linalg.cholesky(jnp.block([[S, body.moment[:, None]], [body.moment[None], body.mass[None, None]]]))
    return (L - jnp.diag(jnp.diag(L)) + jnp.diag(jnp.log(jnp.diag(L))))[LOWER]


def numbers(theta):
    """The ten numbers of `NAMES`."""
    body = inertia(theta)
    return jnp.concatenate([body.mass[None], body.moment, body.rotational[np.triu_indices(3)]])


def truth(model) -> lgjax.multibody.Inertia:
    """Last link and payload, about the origin of the link."""
    com = np.array(COM)
    second = np.diag(MOMENTS) + MASS * (com @ com * np.eye(3) - np.outer(com, com))
    payload = lgjax.multibody.Inertia(jnp.asarray(MASS), jnp.asarray(MASS * com), jnp.asarray(second))
    return jax.tree.map(lambda a, b: a[-1] + b, model.inertias, payload)


def controller(t, q, v):
    """Weak springs towards a motion of several frequencies."""
    k = jnp.arange(7, dtype=q.joints.dtype)
    wanted = jnp.array([0.0, 0.8, 0.0, 0.8, 0.0, 0.8, 0.0]) + 0.7 * jnp.sin((3.0 + 0.7 * k) * t + k)
    return jnp.array(STIFFNESS) * (wanted - q.joints) - jnp.array(DAMPING) * v


def simulate(model, theta, steps):
    """Joint angles (samples, 7) of the arm whose last body is `theta`."""
    changed = jax.tree.map(lambda all_, last: all_.at[-1].set(last), model.inertias, inertia(theta))
    q = lgjax.configuration(model, joints=np.array([0.0, 0.8, 0.0, 0.8, 0.0, 0.8, 0.0]))
    path = lgjax.rollout(
        model.replace(inertias=changed),
        q,
        jnp.zeros(7),
        controller,
        DT,
        steps,
        lgjax.MuntheKaas(lgjax.integrators.HEUN2),
        EVERY,
    )
    return path.q.joints[1:]


def fit(model, record, guess, steps, iterations):
    """The parameters of best fit, their normal matrix in `numbers`, and misfits per sample by iteration.

    The first third of the iterations fits the beginning of the record, the second the first half, the last all of it:
    errors of bad guesses grow along the motion.
    """
    horizons = len(record) * np.repeat(HORIZONS, max(1, iterations // len(HORIZONS)))

    def residual(theta, horizon):
        seen = (jnp.arange(len(record), dtype=record.dtype) < horizon)[:, None]
        return jnp.where(seen, (simulate(model, theta, steps) - record) / NOISE, 0).reshape(-1)

    def step(carry, horizon):
        theta, damping = carry
        r, J = residual(theta, horizon), jax.jacfwd(residual)(theta, horizon)
        normal = J.T @ J
        change = jnp.linalg.solve(normal + damping * jnp.diag(jnp.diag(normal)), J.T @ r)
        change = change * jnp.minimum(1, 1 / jnp.max(jnp.abs(change)))
        new = residual(theta - change, horizon)
        better = new @ new < r @ r  # false for NaN too
        damping = jnp.clip(damping * jnp.where(better, 0.2, 8.0), 1e-9, 1e4)
        return (jnp.where(better, theta - change, theta), damping), r @ r / (horizon * r.size / len(record))

    (theta, _), misfits = jax.lax.scan(step, (guess, jnp.asarray(1e-2)), jnp.asarray(horizons))
    J = jax.jacfwd(residual)(theta, float(len(record))) @ jnp.linalg.inv(jax.jacfwd(numbers)(theta))
    return theta, J.T @ J, misfits


def main(out: str | None = None, guesses: int = 8, steps: int = STEPS, iterations: int = 45) -> dict:
    """Errors of the parameters in standard deviations and the chi² of each guess; draws them to `out`."""
    jax.config.update("jax_enable_x64", True)
    model = lgjax.models.arm()
    model = model.replace(armature=jnp.array(ARMATURE))
    true = parameters(truth(model))
    clean = jax.jit(lambda theta: simulate(model, theta, steps))(true)
    noise, first = jax.random.split(jax.random.key(SEED))
    record = clean + NOISE * jax.random.normal(noise, clean.shape)
    # A guess: the link without payload, its mass and lengths wrong by random factors besides.
    bare = parameters(jax.tree.map(lambda x: x[-1], model.inertias))
    start = bare + 0.3 * jax.random.normal(first, (guesses, 10)) * jnp.where(LOWER[0] == LOWER[1], 1.0, 0.1)
    one = lambda guess: fit(model, record, guess, steps, iterations)
    theta, normal, misfits = jax.jit(jax.vmap(one))(start)
    found, wanted = np.asarray(jax.vmap(numbers)(theta)), np.asarray(numbers(true))
    error = found - wanted
    chi2 = np.einsum("ni,nij,nj->n", error, normal, error)
    sigma = np.sqrt(np.diagonal(np.linalg.inv(normal), axis1=1, axis2=2))
    good = chi2 < CHI2
    print(f"{np.sum(good)} of {guesses} guesses find the payload within the noise; chi² of the errors:")
    print(" ", *(f"{x:.2f}" for x in chi2), "\n  misfit per sample", *(f"{m:.4f}" for m in misfits[:, -1]))
    best = int(np.argmin(misfits[:, -1]))
    for name, value, is_, s in zip(NAMES, found[best], wanted, sigma[best], strict=True):
        print(f"  {name:12} found {value:9.5f} +- {s:.5f}, true {is_:9.5f}")
    if out:
        draw(out, misfits, error[best] / sigma[best], record, clean)
    return {"good": good, "chi2": chi2, "numbers": found, "true": wanted, "sigma": sigma}


def draw(out, misfits, errors, record, clean):
    made = figure(16, 4.5)
    course, bars, motion = made.subplots(1, 3)
    course.semilogy(np.asarray(misfits).T, linewidth=1)
    course.set(title="mean squared misfit in units of the noise", xlabel="iteration")
    bars.bar(range(10), errors)
    bars.set_xticks(range(10), NAMES, rotation=60)
    bars.set(title="error of the found parameters in standard deviations", ylim=(-4, 4))
    ts = DT * EVERY * np.arange(1, len(record) + 1)
    for column in range(7):
        motion.plot(ts, record[:, column], linewidth=1, label=f"joint {column + 1}")
    motion.set(title="recorded angles (rad)", xlabel="t (s)")
    motion.legend(fontsize=7)
    save(made, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guesses", type=int, default=8)
    parser.add_argument("--out", default="payload.png")
    given = parser.parse_args()
    main(given.out, given.guesses)
