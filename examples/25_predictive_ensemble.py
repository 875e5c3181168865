"""1024 hexarotors with two arms, each with masses of its own, that a predictive controller balances in gusts.

Every robot starts somewhere near the hover that it is to keep, moving, and a gust of its own hits it after half a
second. One controller for all plans 0.6 s ahead with the nominal model, one iteration of iLQR at every step of 0.04 s
from the plan of the step before; propellers never pull. Goal: after three seconds all are within 0.1 m and 0.1 rad of
the hover.
python examples/25_predictive_ensemble.py [--batch 1024] [--out predictive_ensemble.png]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.plot import fan_figure, save

DT, EVERY, HORIZON, DURATION, SEED = 0.04, 2, 15, 3.0, 0
FASTEST, TORQUE = 1100.0, 3.0  # of a propeller, rad/s, and of a joint, N m
GUST, WHEN = 8.0, (0.5, 0.8)  # N, s
GOAL = {"m": 0.1, "rad": 0.1, "share": 0.95}
NAMES = ("distance of the base (m)", "tilt of the base (rad)", "largest joint error (rad)")


def to_go(system, target, states, efforts):
    """Cholesky factor of the cost of all that comes after the plan, by Riccati's equation about the hover."""
    _, A, B = jax.jit(system.jacobians)(target, jnp.zeros(12, target[1].dtype))
    A, B, Q, R = np.asarray(A, float), np.asarray(B, float), np.diag(DT * states**2), np.diag(DT * efforts**2)
    P = Q
    for _ in range(500):
        K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        P = Q + A.T @ P @ (A - B @ K)
    return np.linalg.cholesky((P + P.T) / 2)


def controller_of(machine, model):
    """The predictive controller of the nominal robot; its controls are what drives give beyond the hover.

    They are shares of the most that a drive gives.
    """
    target = lgjax.configuration(model, joints=np.array(machine.motion.joint_start)), jnp.zeros(model.nv, model.dtype)
    weight = lgjax.gravity_forces(model, target[0])
    hover = jnp.concatenate([machine.squared_speeds(weight[:6]) / FASTEST**2, weight[6:] / TORQUE])

    def actuation(u):
        shares = (hover + u).astype(model.dtype)
        return jnp.concatenate([machine.wrench(FASTEST**2 * shares[:6]), TORQUE * shares[6:]]).astype(model.dtype)

    system = lgjax.control.ControlSystem.of_model(
        model, DT, controls=12, actuation=actuation, method=lgjax.control.SemiImplicitEuler()
    )
    # weights of the turn and shift of the base and of the joints, then of their rates; of propellers and joint motors
    states, efforts = np.repeat([4.0, 6.0, 2.0, 0.3, 0.6, 0.1], [3, 3, 6, 3, 3, 6]), np.repeat([1.0, 0.5], 6)
    factor = jnp.asarray(to_go(system, target, states, efforts), model.dtype)
    running = lgjax.control.costs.state(model, target, states) + lgjax.control.costs.control(weights=efforts)
    ahead = lgjax.control.costs.LeastSquares(lambda state: factor.T @ system.difference(target, state))
    bounds = np.repeat([0.0, -1.0], 6) - np.asarray(hover), 1 - np.asarray(hover)
    controller = lgjax.control.PredictiveController(
        system=system, steps=HORIZON, running=running, terminal=ahead, bounds=bounds, iterations=1, every=EVERY,
        method=lgjax.control.ILQR(line_search="first"),
    )  # fmt: skip
    return controller, target


def sampler(model, target):
    """Robots with masses of 5 % and starts at 0.2 m, 0.2 rad, 0.3 m/s (standard deviations), and their gusts."""

    def sample(key):
        mass, place, speed, gust = jax.random.split(key, 4)
        normal = lambda key, n: jax.random.normal(key, (n,), model.dtype)
        copy = model.replace(inertias=model.inertias.scaled(jnp.exp(0.05 * normal(mass, model.nbodies))))
        q = lgjax.retract(model, target[0], 0.2 * normal(place, model.nv))
        direction = normal(gust, 3)
        return lgjax.ensembles.Draw(
            copy, q, 0.3 * normal(speed, model.nv), GUST * direction / jnp.linalg.norm(direction)
        )

    return sample


def gusts(model):
    def wrenches(t, q, v, force):
        blows = (t >= WHEN[0]) & (t < WHEN[1])
        pushed = jnp.where(blows, q.free_poses.rotation[0].T @ force, 0)  # in the axes of the base
        return jnp.zeros((model.nbodies, 6), v.dtype).at[0, 3:].set(pushed)

    return wrenches


def observer(target):
    def observe(t, q, v):
        base = q.free_poses
        tilt = jnp.arccos(jnp.clip(base.rotation[0, 2, 2], -1, 1))
        bent = jnp.max(jnp.abs(q.joints - target[0].joints))
        return jnp.stack([jnp.sqrt(jnp.sum(base.translation[0] ** 2)), tilt, bent])

    return observe


def main(out: str | None = None, batch: int = 1024, duration: float = DURATION, chunk: int = 64) -> dict:
    """Share of the robots that reach the goal, and seconds per step of the controllers; draws quantiles to `out`."""
    machine = lgjax.systems.aerial_manipulator()
    model = machine.model
    controller, target = controller_of(machine, model)
    plans = round(duration / DT)
    found = lgjax.ensemble(
        model, controller, batch=batch, steps=EVERY * plans, dt=DT / EVERY, key=jax.random.key(SEED), save_every=EVERY,
        sample=sampler(model, target), wrenches=gusts(model), observe=observer(target), chunk=chunk,
    )  # fmt: skip
    distance, tilt, _ = np.moveaxis(observed(found, observer(target)), -1, 0)
    good = found.success & (distance < GOAL["m"]) & (tilt < GOAL["rad"])
    print(f"{np.sum(good)} of {batch} within {GOAL['m']} m and {GOAL['rad']} rad after {duration} s")
    print(f"{found.seconds / plans:.3f} s for a control step of all, {found.compile_seconds:.0f} s of compiling before")
    if out:
        figure = fan_figure(found.ts, found.statistics, NAMES)
        for axes in figure.axes:
            axes.axvspan(*WHEN, color="black", alpha=0.08, linewidth=0)
        save(figure, out)
    return {"share": np.mean(good), "seconds": found.seconds / plans}


def observed(found, observe):
    """What is observed at the end, (batch, 3)."""
    q, v = jax.tree.map(lambda x: x[:, -1], (found.q, found.v))
    return np.asarray(jax.jit(jax.vmap(lambda q, v: observe(0.0, q, v)))(q, v))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--out", default="predictive_ensemble.png")
    given = parser.parse_args()
    main(given.out, given.batch)
