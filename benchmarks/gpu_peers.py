"""What `gpu.py` times of other programs on a GPU: MJX and frax, on the same robots, in MuJoCo's coordinates.

Each gives functions of (qpos, qvel, force) for one system, to be mapped over a batch. Nothing touches, nothing is
limited or damped. MJX makes its RK4 steps itself; frax has none and gets the classical four stages here.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import descriptions
import jax
import jax.numpy as jnp
import numpy as np

from lgjax.cli.bench import peers

DT = 1e-3  # s


def states(model, batch: int, dtype: str) -> tuple:
    """Random states in MuJoCo's coordinates, unit quaternions where the base floats."""
    random, base = np.random.default_rng(0), _base(model)
    qpos = random.normal(size=(batch, model.nv + (base > 0)))
    if base:
        qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    qvel, force = 0.1 * random.normal(size=(2, batch, model.nv))
    return tuple(jnp.asarray(x, dtype) for x in (qpos, qvel, force))


def _base(model) -> int:
    return 6 if model.tree.kinds[0].name == "free" else 0


def mjx(model, dtype: str) -> tuple[Callable, Callable]:
    """(forward dynamics, one step)."""
    import mujoco
    from mujoco import mjx

    theirs = mujoco.MjModel.from_xml_string(peers.mjcf(model))
    theirs.opt.integrator, theirs.opt.timestep = mujoco.mjtIntegrator.mjINT_RK4, DT
    put = mjx.put_model(theirs)
    data = mjx.make_data(put)
    at = lambda qpos, qvel, force: data.replace(qpos=qpos, qvel=qvel, qfrc_applied=force)

    def step(qpos, qvel, force):
        after = mjx.step(put, at(qpos, qvel, force))
        return after.qpos, after.qvel

    return lambda *state: mjx.forward(put, at(*state)).qacc, step


def frax(model, dtype: str) -> tuple[Callable, Callable]:
    """(forward dynamics, one step)."""
    from frax.core.robot import Robot

    base = _base(model)
    order = [f"joint{i}" for i in range(bool(base), len(model.tree.parents))]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "robot.urdf")
        file.write_text(descriptions.urdf(model))
        robot = Robot(str(file), joint_ordering=order, floating_base="quaternion" if base else None)
    forward = lambda qpos, qvel, force: robot.forward_dynamics(qpos, qvel, force, None)

    def rate(qpos, qvel):
        if not base:
            return qvel
        (w, x, y, z), (a, b, c) = qpos[3:7], qvel[3:6]
        turn = [-x * a - y * b - z * c, w * a + y * c - z * b, w * b + z * a - x * c, w * c + x * b - y * a]
        return jnp.concatenate([qvel[:3], jnp.stack(turn) / 2, qvel[6:]])

    def step(qpos, qvel, force):
        moved = lambda k, h: (qpos + h * k[0], qvel + h * k[1])
        slope = lambda q, v: (rate(q, v), forward(q, v, force))
        k1 = slope(qpos, qvel)
        k2 = slope(*moved(k1, DT / 2))
        k3 = slope(*moved(k2, DT / 2))
        k4 = slope(*moved(k3, DT))
        return moved([(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)], DT)

    return forward, step


def function(program: str, what: str, model, dtype: str, steps: int) -> Callable:
    """(qpos, qvel, force) -> what is computed for one system."""
    forward, step = {"MJX": mjx, "frax": frax}[program](model, dtype)

    def rollout(qpos, qvel, force):
        return jax.lax.scan(lambda state, _: (step(*state, force), None), (qpos, qvel), length=steps)[0]

    return {
        "forward": forward,
        "gradient": jax.grad(lambda *state: jnp.sum(forward(*state)), (0, 1, 2)),
        "rollout": rollout,
        "rollout gradient": jax.grad(lambda *state: jnp.sum(rollout(*state)[1] ** 2), (0, 1)),
    }[what]
