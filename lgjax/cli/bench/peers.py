"""The same mechanism in other programs, where they are installed: Pinocchio's C++ batch calls and MJX."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from lgjax.cli.bench import timing
from lgjax.multibody.model import Model

PINOCCHIO_JOINTS = {
    "revolute": "JointModelRZ",
    "prismatic": "JointModelPZ",
    "spherical": "JointModelSpherical",
    "free": "JointModelFreeFlyer",
}


def measure(name: str, model: Model, state: tuple, repeats: int) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(program, dtype, times) of one call on the batch for every peer that computes the function for this model.

    The states are random, not the same: they change no time.
    """
    for peer in (pinocchio_times, mjx_times):
        try:
            yield from peer(name, model, state[1].shape[0], repeats)
        except ImportError:
            continue


def pinocchio_times(name: str, model: Model, batch: int, repeats: int) -> Iterator[tuple[str, str, dict[str, float]]]:
    """`abaInParallel` and `rneaInParallel` on one thread, in float64."""
    import pinocchio

    pin: Any = pinocchio
    calls = {"forward": pin.abaInParallel, "inverse": pin.rneaInParallel}
    if name not in calls or any(kind.name not in PINOCCHIO_JOINTS for kind in model.tree.kinds):
        return
    theirs = pinocchio_model(model)
    q = np.stack([pin.randomConfiguration(theirs, -np.ones(theirs.nq), np.ones(theirs.nq)) for _ in range(batch)], 1)
    v, x = np.random.default_rng(0).normal(size=(2, theirs.nv, batch))
    out = np.zeros((theirs.nv, batch), order="F")
    columns = [np.asfortranarray(a) for a in (q, v, x)]
    pool = pin.ModelPool(theirs, 1)
    yield "pinocchio C++", "float64", timing.steady(lambda: calls[name](1, pool, *columns, out), repeats)


def pinocchio_model(model: Model) -> Any:
    """The mechanism as Pinocchio's model, with this library's joint frames as its joint frames."""
    import pinocchio

    pin: Any = pinocchio
    theirs, tree = pin.Model(), model.tree
    theirs.gravity.linear = np.asarray(model.gravity, float)
    numbers: dict[int, int] = {-1: 0}
    places, bodies, com = model.placements, model.inertias, np.asarray(model.inertias.com, float)
    for body, (kind, parent) in enumerate(zip(tree.kinds, tree.parents, strict=True)):
        place = pin.SE3(np.asarray(places.rotation[body], float), np.asarray(places.translation[body], float))
        joint = getattr(pin, PINOCCHIO_JOINTS[kind.name])()
        numbers[body] = theirs.addJoint(numbers[parent], joint, place, f"joint {body}")
        inertia = pin.Inertia(float(bodies.mass[body]), com[body], central_inertia(model, body))
        theirs.appendBodyToJoint(numbers[body], inertia, pin.SE3.Identity())
    return theirs


def central_inertia(model: Model, body: int) -> np.ndarray:
    """Inertia (3, 3) of a body about its center of mass, joint axes."""
    mass, c = float(model.inertias.mass[body]), np.asarray(model.inertias.com[body], float)
    return np.asarray(model.inertias.rotational[body], float) - mass * (c @ c * np.eye(3) - np.outer(c, c))


def mjx_times(name: str, model: Model, batch: int, repeats: int) -> Iterator[tuple[str, str, dict[str, float]]]:
    """MJX's smooth dynamics in float32: `mjx.forward` and `mjx.inverse` without contacts, limits or constraints."""
    import mujoco
    import mujoco.mjx

    mj: Any = mujoco
    mjx = mj.mjx
    if name not in ("forward", "inverse") or any(kind.name not in MUJOCO_JOINTS for kind in model.tree.kinds):
        return
    theirs = mj.MjModel.from_xml_string(mjcf(model))
    put = mjx.put_model(theirs)
    data = mjx.make_data(put)
    random = np.random.default_rng(0)
    qpos = random.normal(size=(batch, theirs.nq)).astype(np.float32)
    qvel, qfrc = random.normal(size=(2, batch, theirs.nv)).astype(np.float32)

    @jax.jit
    def run(qpos, qvel, x):
        def one(qpos, qvel, x):
            if name == "forward":
                return mjx.forward(put, data.replace(qpos=qpos, qvel=qvel, qfrc_applied=x)).qacc
            return mjx.inverse(put, data.replace(qpos=qpos, qvel=qvel, qacc=x)).qfrc_inverse

        return jax.vmap(one)(qpos, qvel, x)

    times, _ = timing.compiled(run, qpos, qvel, qfrc, repeats=repeats)
    yield "MJX", "float32", times


MUJOCO_JOINTS = {
    "revolute": '<joint type="hinge" axis="0 0 1"/>',
    "prismatic": '<joint type="slide" axis="0 0 1"/>',
    "spherical": '<joint type="ball"/>',
    "free": "<freejoint/>",
}


def mjcf(model: Model) -> str:
    """The mechanism as MJCF, with this library's joint frames as its body frames, and nothing that touches."""
    children: dict[int, list[int]] = {}
    for body, parent in enumerate(model.tree.parents):
        children.setdefault(parent, []).append(body)

    def element(body: int) -> str:
        R = np.asarray(model.placements.rotation[body], float)
        inertia, c = central_inertia(model, body), np.asarray(model.inertias.com[body], float)
        full = inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
        mass = repr(float(model.inertias.mass[body]))
        return (
            f'<body pos="{_numbers(model.placements.translation[body])}" xyaxes="{_numbers(R[:, :2].T)}">'
            f'<inertial pos="{_numbers(c)}" mass="{mass}" fullinertia="{_numbers(full)}"/>'
            + MUJOCO_JOINTS[model.tree.kinds[body].name]
            + "".join(map(element, children.get(body, ())))
            + "</body>"
        )

    bodies = "".join(map(element, children.get(-1, ())))
    off = '<flag contact="disable" constraint="disable" limit="disable"/>'
    gravity = _numbers(model.gravity)
    return (
        f'<mujoco><compiler balanceinertia="true"/><option gravity="{gravity}">{off}</option>'
        f"<worldbody>{bodies}</worldbody></mujoco>"
    )


def _numbers(array) -> str:
    return " ".join(repr(float(x)) for x in np.ravel(array))
