"""How each program of `peers.py` is called.

PROGRAMS: name -> function of (job, case) that gives, for every kind of evaluation, (batched function, its inputs, what
of its results to compare, what that should be). `case` holds the states and Pinocchio's answers in two conventions.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forward_dynamics
import harness
import numpy as np

Calls = dict[str, tuple[Callable, tuple, Callable, np.ndarray]]
MODULES = {  # what must be importable
    "pinocchio": "pinocchio",
    "MJX": "mujoco.mjx",
    "frax": "frax",
    "adam": "adam.jax",
    "JaxSim": "jaxsim",
    "Brax": "brax",
}


def _sizes(case) -> tuple[int, int, int]:
    """Coordinates and velocities of the base, and the number of joints."""
    base = int(case["base"])
    return (7 if base else 0), base, case["vdot"].shape[1] - base


def gradient_of(forward: Callable, base: int) -> Callable:
    """Reverse-mode gradient of the sum of the joint accelerations, which are the same in all conventions."""
    import jax

    def total(*state):
        return forward(*state)[base:].sum()

    return lambda *state: jax.grad(total, tuple(range(len(state))))(*state)


def lgjax(job: dict, case) -> Calls:
    """The model is an argument, as it is for a user; the others have theirs as constants."""
    import jax

    import lgjax

    base = int(case["base"])
    model = forward_dynamics.load(job["robot"])
    pose, one = case["pose"][:, None], slice(None, 1 if base else 0)
    frees = lgjax.Pose(pose[:, one, :3, :3], pose[:, one, :3, 3])
    q = lgjax.Configuration(frees, case["joints"], np.zeros((len(pose), 0, 3, 3)))
    each = lambda function: jax.vmap(function, (None, 0, 0, 0))
    total = lambda model, q, v, tau: lgjax.forward_dynamics(model, q, v, tau)[base:].sum()
    cut = lambda g: np.concatenate([g[0].joints, g[1][:, base:], g[2][:, base:]], 1)
    start = (model, q, case["v"])
    same = lambda x: x
    return {
        "forward": (each(lgjax.forward_dynamics), (*start, case["tau"]), same, case["forward"]),
        "inverse": (each(lgjax.inverse_dynamics), (*start, case["vdot"]), same, case["inverse"]),
        "gradient": (each(jax.grad(total, (1, 2, 3))), (*start, case["tau"]), cut, case["gradient"]),
    }


def pinocchio_model(robot: str) -> Any:
    """Pinocchio's own reading of the file."""
    import pinocchio as pin

    file, floating = forward_dynamics.robot_file(robot), forward_dynamics.ROBOTS[robot][1]
    return pin.buildModelFromUrdf(file, *[pin.JointModelFreeFlyer()] * floating)


def pinocchio_row(job: dict, case, what: str) -> dict:
    """Its C++ batch calls on one thread; derivatives called from Python, one state at a time."""
    import pinocchio as pin

    model, batch = pinocchio_model(job["robot"]), job["batch"]
    if what == "gradient":
        data = model.createData()
        first = [case[f"own {k}"][0] for k in ("q", "v", "tau")]
        call, each, error = lambda: pin.computeABADerivatives(model, data, *first), 1, None
    else:
        function, last = {"forward": (pin.abaInParallel, "tau"), "inverse": (pin.rneaInParallel, "vdot")}[what]
        columns = [np.asfortranarray(case[f"own {k}"].T) for k in ("q", "v", last)]
        pool, out = pin.ModelPool(model, 1), np.zeros((model.nv, batch), order="F")
        call, each = lambda: function(1, pool, *columns, out), batch
        call()
        expected = case[f"own {what}"].T
        error = float(np.abs(out - expected).max() / np.abs(expected).max())
    times = harness.steady(call, job["repeats"])
    us = {k: times[k] / each * 1e6 for k in ("median", "low", "high")}
    return {"us": us.pop("median"), **us, "disturbed": times["disturbed"], "error": error}


def _mujoco_like(case, forward: Callable, inverse: Callable) -> Calls:
    """Of functions of (qpos, qvel, force) and (qpos, qvel, acceleration) in MuJoCo's conventions."""
    import jax

    nq, base, _ = _sizes(case)
    start, same = (case["mujoco q"], case["mujoco v"]), lambda x: x
    cut = lambda g: np.concatenate([g[0][:, nq:], g[1][:, base:], g[2][:, base:]], 1)
    forces = (*start, case["mujoco tau"])
    return {
        "forward": (jax.vmap(forward), forces, same, case["mujoco forward"]),
        "inverse": (jax.vmap(inverse), (*start, case["mujoco vdot"]), same, case["mujoco inverse"]),
        "gradient": (jax.vmap(gradient_of(forward, base)), forces, cut, case["gradient"]),
    }


def mjx(job: dict, case) -> Calls:
    """`mjx.forward` and `mjx.inverse` without contacts, limits or constraints."""
    import mujoco
    from mujoco import mjx

    model = mjx.put_model(mujoco.MjModel.from_xml_path(str(Path(job["folder"]) / "robot.xml")))
    data = mjx.make_data(model)

    def forward(qpos, qvel, force):
        return mjx.forward(model, data.replace(qpos=qpos, qvel=qvel, qfrc_applied=force)).qacc

    def inverse(qpos, qvel, qacc):
        return mjx.inverse(model, data.replace(qpos=qpos, qvel=qvel, qacc=qacc)).qfrc_inverse

    return _mujoco_like(case, forward, inverse)


def frax(job: dict, case) -> Calls:
    """`Robot.forward_dynamics` and `Robot.rnea`; gravity is 9.81 m/s² in its code."""
    from frax.core.robot import Robot

    _, base, n = _sizes(case)
    order = [f"joint{i + (1 if base else 0)}" for i in range(n)]
    kind = "quaternion" if base else None
    robot = Robot(str(Path(job["folder"]) / "robot.urdf"), joint_ordering=order, floating_base=kind)
    up = np.asarray([0.0, 0.0, 9.81, 0.0, 0.0, 0.0], job["dtype"])
    forward = lambda qpos, qvel, force: robot.forward_dynamics(qpos, qvel, force, None)
    return _mujoco_like(case, forward, lambda qpos, qvel, qacc: robot.rnea(qpos, qvel, qacc, up, None))


def brax(job: dict, case) -> Calls:
    """Generalized coordinates: what `pipeline.step` does with the smooth forces; inverse: M a and the bias force."""
    import mujoco
    from brax import kinematics
    from brax.generalized import dynamics, mass
    from brax.generalized.base import State
    from brax.io import mjcf

    system = mjcf.load_model(mujoco.MjModel.from_xml_path(str(Path(job["folder"]) / "robot.xml")))

    def state_of(qpos, qvel):
        x, xd = kinematics.forward(system, qpos, qvel)
        return dynamics.transform_com(system, State.init(qpos, qvel, x, xd))

    def forward(qpos, qvel, force):
        state = mass.matrix_inv(system, state_of(qpos, qvel), 0)
        return state.mass_mx_inv @ dynamics.forward(system, state, force)

    def inverse(qpos, qvel, qacc):
        state = state_of(qpos, qvel)
        return mass.matrix(system, state) @ qacc + dynamics.inverse(system, state)

    return _mujoco_like(case, forward, inverse)


def adam(job: dict, case) -> Calls:
    """`aba`, which it has for floating bases, else M and h and a solve; inverse: M a + h."""
    import jax
    import jax.numpy as jnp
    from adam import Representations
    from adam.jax import KinDynComputations

    _, base, n = _sizes(case)
    names = [f"joint{i + (1 if base else 0)}" for i in range(n)]
    text = (Path(job["folder"]) / "robot.urdf").read_text()
    robot = KinDynComputations(text, names, dtype=job["dtype"], gravity=np.array([0, 0, -9.81, 0, 0, 0]))
    robot.rbdalgos.math.factory._device = None  # what adam 0.5.0 puts there stops vmap in JAX 0.10
    robot.set_frame_velocity_representation(Representations.BODY_FIXED_REPRESENTATION)
    free = 6 - base

    def forward(pose, joints, twist, rates, force):
        if base:
            return robot.aba(pose, joints, twist, rates, force)
        bias = robot.bias_force(pose, joints, twist, rates)
        return jnp.linalg.solve(robot.mass_matrix(pose, joints)[free:, free:], force - bias[free:])

    def inverse(pose, joints, twist, rates, acceleration):
        matrix = robot.mass_matrix(pose, joints)[free:, free:]
        return matrix @ acceleration + robot.bias_force(pose, joints, twist, rates)[free:]

    start = (case["pose"], case["joints"], _twist(case), case["pinocchio v"][:, base:])
    forces = (*start, case["pinocchio tau"][:, base:])
    cut = lambda g: np.concatenate([g[1], g[3], g[4]], 1)
    same = lambda x: x
    return {
        "forward": (jax.vmap(forward), forces, same, case["pinocchio forward"]),
        "inverse": (jax.vmap(inverse), (*start, case["pinocchio vdot"]), same, case["pinocchio inverse"]),
        "gradient": (jax.vmap(gradient_of(forward, base)), forces, cut, case["gradient"]),
    }


def _twist(case) -> np.ndarray:
    """[linear, angular] velocity of the base in its own axes; zero where it is fixed."""
    v, base = case["pinocchio v"], int(case["base"])
    return v[:, :6] if base else np.zeros((len(v), 6))


def jaxsim(job: dict, case) -> Calls:
    """`forward_dynamics_aba` and `inverse_dynamics` with body-frame velocities; the state is built in the call."""
    os.environ["ROD_SKIP_SDFORMAT_CHECK"] = "1"
    import jax
    import jax.numpy as jnp
    import jaxsim.api as js
    from jaxsim import VelRepr

    _, base, n = _sizes(case)
    text = (Path(job["folder"]) / "robot.sdf").read_text()
    model = js.model.JaxSimModel.build_from_model_description(text, is_urdf=False, gravity=9.81)
    names = [f"joint{i + (1 if base else 0)}" for i in range(n)]
    order = np.array([names.index(name) for name in model.joint_names()])  # theirs from ours
    back = np.argsort(order)

    def data_of(position, wxyz, twist, joints, rates):
        return js.data.JaxSimModelData.build(
            model, base_position=position, base_quaternion=wxyz, joint_positions=joints, joint_velocities=rates,
            base_linear_velocity=twist[:3], base_angular_velocity=twist[3:], velocity_representation=VelRepr.Body,
        )  # fmt: skip

    def whole(parts):
        joints = parts[1][back]
        return jnp.concatenate([parts[0], joints]) if base else joints

    def forward(*state):
        return whole(js.model.forward_dynamics_aba(model, data_of(*state[:-1]), joint_forces=state[-1]))

    def inverse(*state):
        *state, acceleration = state
        first = acceleration[:6] if base else jnp.zeros(6, acceleration.dtype)
        rest = acceleration[base:][order]
        data = data_of(*state)
        return whole(js.model.inverse_dynamics(model, data, joint_accelerations=rest, base_acceleration=first))

    count = len(case["v"])
    place = case["mujoco q"][:, :7] if base else np.tile([0.0, 0, 0, 1, 0, 0, 0], (count, 1))
    start = (
        place[:, :3],
        place[:, 3:],
        _twist(case),
        case["joints"][:, order],
        case["pinocchio v"][:, base:][:, order],
    )
    forces = (*start, case["pinocchio tau"][:, base:][:, order])
    cut = lambda g: np.concatenate([g[3][:, back], g[4][:, back], g[5][:, back]], 1)
    same = lambda x: x
    return {
        "forward": (jax.vmap(forward), forces, same, case["pinocchio forward"]),
        "inverse": (jax.vmap(inverse), (*start, case["pinocchio vdot"]), same, case["pinocchio inverse"]),
        "gradient": (jax.vmap(gradient_of(forward, base)), forces, cut, case["gradient"]),
    }


PROGRAMS = {"lgjax": lgjax, "pinocchio": None, "MJX": mjx, "frax": frax, "adam": adam, "JaxSim": jaxsim, "Brax": brax}
