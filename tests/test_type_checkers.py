"""What type checkers read: annotations say where a robot stands for a model, and every documented import resolves."""

import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lgjax

ROOT = Path(__file__).parent.parent
PYRIGHT = shutil.which("pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
SPACES = [lgjax, *(getattr(lgjax, name) for name in lgjax._SPACES), lgjax.control.costs]
ALSO = (lgjax.Contacts, lgjax.Contacts.none, lgjax.control.ControlSystem.of_accelerations)


def public_functions():
    shown = [getattr(space, name) for space in SPACES for name in getattr(space, "__all__", dir(space))]
    shown = [x for x in shown if inspect.isfunction(x) and not x.__name__.startswith("_")]
    return {id(x): x for x in (*shown, *ALSO)}.values()


TAKING = [x for x in public_functions() if "model" in inspect.signature(x).parameters]


@pytest.mark.parametrize("function", TAKING, ids=lambda x: f"{x.__module__}.{x.__name__}")
def test_a_function_of_a_model_says_that_it_takes_a_robot(function):
    shown = str(inspect.signature(function).parameters["model"].annotation)
    assert any(word in shown for word in ("Mechanism", "Robot", "Any")), shown


def test_most_functions_take_a_model():
    assert len(TAKING) > 100


@pytest.mark.parametrize("name", lgjax._ELSEWHERE)
def test_a_namespace_kept_elsewhere_has_a_file_for_type_checkers(name):
    (source,) = (
        x for x in ast.parse((ROOT / "lgjax" / f"{name}.py").read_text()).body if isinstance(x, ast.ImportFrom)
    )
    assert source.module == getattr(lgjax, name).__name__
    assert [x.name for x in source.names] == ["*"]


DOCUMENTED = """
import jax
import jax.numpy as jnp
import lgjax
import lgjax.loops
from lgjax.actuators import motor
from lgjax.centroidal import center_of_mass_velocity
from lgjax.control import FDDP, ControlSystem, costs
from lgjax.conventions import to_mujoco
from lgjax.ensembles import Spread
from lgjax.identification import MotionRecord, masses
from lgjax.models import quadruped
from lgjax.sensors import gyro
from lgjax.time_derivatives import motion_series

robot = lgjax.load_robot("robot.urdf")
q, v = lgjax.neutral(robot), jnp.zeros(robot.model.nv)
lgjax.forward_dynamics(robot, q, v, 0 * v)
lgjax.inverse_dynamics(model=robot, q=q, v=v, vdot=v)
shown = lgjax.frame_pose(robot, q, "base").translation
lgjax.random_configuration(jax.random.key(0), robot)
lgjax.inverse_kinematics(robot, {"base": (0.0, 0.0, 1.0)}, q)
lgjax.Contacts(robot)
lgjax.loops.loop_residual(robot, robot.loops, q)
lgjax.rollout(robot, q, v, None, 0.01, 2)
costs.frame(robot, "base", lgjax.Pose(jnp.eye(3), jnp.zeros(3)))
made = motor(robot), gyro(robot, "base"), masses(robot), to_mujoco(robot, q, v)
lgjax.configuration(lgjax.models.chain(2), joints=[0.1, 0.2])
lgjax.Body("link", None, lgjax.Joint("hinge", "revolute", axis=[0, 1, 0]), position=(0, 0, 1), inertia=jnp.eye(3))
lgjax.mass_matrix(robot)  # error: q is missing
lgjax.mass_matrix(3, q)  # error: no mechanism
lgjax.mas_matrix(robot, q)  # error: misspelled
"""


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")
def test_pyright_accepts_documented_calls_and_still_finds_mistakes(tmp_path):
    (tmp_path / "calls.py").write_text(DOCUMENTED)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    command = [str(PYRIGHT), "--pythonpath", sys.executable, "--outputjson", "calls.py"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    said = json.loads(found.stdout)["generalDiagnostics"]
    wrong = {k for k, line in enumerate(DOCUMENTED.split("\n")) if "# error" in line}
    assert {x["range"]["start"]["line"] for x in said} == wrong, [x["message"] for x in said]
