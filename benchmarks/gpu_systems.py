"""What `gpu.py` times beside dynamics: integrators, bodies that bounce, closed loops, predictive control, an ensemble.

Each entry gives (function of a batch of starts, the starts, steps of one system). No mechanism has its equations here:
they are those of `lgjax.systems`.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

import lgjax
from lgjax import control


def _varied(y0, batch: int):
    """Copies of a start."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), y0)


def _integrated(problem, method, steps: int, end: float) -> Callable:
    def run(y0):
        return lgjax.integrate(problem.space, problem.field, y0, 0.0, end, steps, method, save_every=None).ys

    return run


def heavy_top(batch: int, dtype: str):
    """Munthe-Kaas steps of order four in SE(3) x R^6, as the source has them, h = 2e-4 s."""
    problem, steps = lgjax.systems.heavy_top("body", dtype=dtype), 100
    return (
        jax.vmap(_integrated(problem, lgjax.MuntheKaas(lgjax.RK4), steps, 0.02)),
        (_varied(problem.y0, batch),),
        steps,
    )


def pendulum(batch: int, dtype: str):
    """Commutator-free steps of order four of a chain of ten spherical pendulums, h = 1e-3 s."""
    problem, steps = lgjax.systems.spherical_pendulum(10, dtype=dtype), 100
    run = _integrated(problem, lgjax.CommutatorFree(lgjax.CF4), steps, 0.1)
    return jax.vmap(run), (_varied(problem.y0, batch),), steps


def bouncing(batch: int, dtype: str):
    """An ellipsoid above a plane, 5 s in steps of 1e-2 s, starts of their own for all."""
    import bouncing as benchmark

    from lgjax.systems.bouncing_body import bouncing_body

    p, steps = bouncing_body("ellipsoid", dtype=dtype), 500
    position, angular, linear = (jnp.asarray(a, dtype) for a in benchmark.starts(batch))
    turn = jnp.broadcast_to(jnp.eye(3, dtype=dtype), (batch, 3, 3))
    states = lgjax.collisions.RigidState(lgjax.Pose(turn, position), angular, linear)

    def run(state):
        return lgjax.collisions.bounce(p.body, p.shape, p.planes, state, p.dt, steps, save_every=None, record=1).states

    return jax.vmap(run), (states,), steps


def slider_crank(batch: int, dtype: str):
    """Generalized-alpha steps of 1e-4 s in absolute coordinates, masses of their own for all."""
    from lgjax import maximal
    from lgjax.systems.slider_crank import slider_crank as mechanism

    steps = 100
    scale = 1 + 0.1 * jax.random.uniform(jax.random.key(0), (batch, 3), dtype, -1.0, 1.0)

    def run(masses):
        p = mechanism(masses, dtype=dtype)
        return maximal.integrate(p.system, p.q0, p.v0, 0.0, steps * 1e-4, steps, save_every=None).q

    return jax.vmap(run), (jnp.asarray([0.12, 0.5, 2.0], dtype) * scale,), steps


def plan(knots: int, batch: int, dtype: str):
    """An iteration of predictive control: an arm of six joints reaches for a pose, from states of their own."""
    model = lgjax.specialize(lgjax.models.chain(6).astype(dtype))
    n, frame = model.nv, model.tree.body_names[-1]
    q, v = lgjax.neutral(model)._replace(joints=jnp.full(n, 0.5, dtype)), jnp.zeros(n, dtype)
    place = lgjax.frame_pose(model, q, frame)
    goal = lgjax.Pose(place.rotation, place.translation + jnp.asarray([-0.1, 0.2, 0.1], dtype))
    controller = control.PredictiveController(
        system=control.ControlSystem.of_accelerations(model, 0.01),
        steps=knots,
        running=control.costs.forces(model, lgjax.gravity_forces(model, q), 0.1),
        terminal=100 * control.costs.frame(model, frame, goal),
        iterations=1,
        method=control.FDDP(),
    )
    noise = 0.1 * jax.random.normal(jax.random.key(0), (2, batch, n), dtype)
    states = jax.vmap(lambda a, b: (q._replace(joints=q.joints + a), v + b))(*noise)
    return jax.vmap(controller.step), (states, jax.jit(jax.vmap(controller.init))(states)), 1


SYSTEMS = {"heavy top": heavy_top, "pendulum": pendulum, "bouncing": bouncing, "slider-crank": slider_crank}
SYSTEMS |= {f"plan of {knots} knots": partial(plan, knots) for knots in (32, 64, 128)}


def ensemble(batch: int, dtype: str) -> Callable:
    """A call: 100 steps of a million quadrupeds with states of their own, their means and covariances.

    It gives the seconds that it computed, and those that it compiled before.
    """
    model = lgjax.models.quadruped().astype(dtype)
    key = jax.random.key(0)
    draw = {"batch": batch, "steps": 100, "dt": 1e-3, "key": key, "store": "none", "progress": False}

    def run() -> tuple[float, float]:
        found = lgjax.ensemble(model, **draw)
        return found.seconds, found.compile_seconds

    return run
