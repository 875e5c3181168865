"""Batched, differentiable rigid-body dynamics on Lie groups in pure JAX.

The names that most work needs are here; the rest is in the namespaces below.
"""

# ruff: noqa: F405

import importlib as _importlib
import sys as _sys
import types as _types
import typing as _typing
from typing import Any as _Any

if _typing.TYPE_CHECKING:
    from lgjax.surface import *  # noqa: F403 (for type checkers, which read no functions)

__version__ = "0.3.0"

__all__ = [
    "CF4",
    "CROUCH_GROSSMAN3",
    "DORMAND_PRINCE54",
    "RK4",
    "S3",
    "SE3",
    "SO3",
    "Body",
    "CommutatorFree",
    "Configuration",
    "Contacts",
    "GeneralizedAlpha",
    "IKStatus",
    "InverseKinematics",
    "Joint",
    "Loop",
    "Model",
    "MuntheKaas",
    "Pose",
    "R3xSO3",
    "Rn",
    "Robot",
    "Solution",
    "Spread",
    "SymplecticLie",
    "Taylor",
    "Tree",
    "bias_forces",
    "body_twists",
    "build",
    "center_of_mass",
    "centroidal_momentum_matrix",
    "configuration",
    "constrained_forward_dynamics",
    "constrained_hybrid_dynamics",
    "constrained_inverse_dynamics",
    "coriolis_matrix",
    "difference",
    "ensemble",
    "forward_dynamics",
    "forward_dynamics_partials",
    "forward_dynamics_time_derivatives",
    "forward_kinematics",
    "frame_pose",
    "gravity_forces",
    "hybrid_dynamics",
    "hybrid_dynamics_partials",
    "hybrid_dynamics_time_derivatives",
    "integrate",
    "integrate_adaptive",
    "inverse_dynamics",
    "inverse_dynamics_partials",
    "inverse_dynamics_time_derivatives",
    "inverse_kinematics",
    "jacobian",
    "jacobian_derivative",
    "joint_kind",
    "kinetic_energy",
    "left_translation",
    "linearize",
    "load_ensemble",
    "load_mjcf",
    "load_robot",
    "load_urdf",
    "mass_matrix",
    "momentum",
    "monte_carlo",
    "neutral",
    "optimize_controls",
    "potential_energy",
    "product",
    "project_positions",
    "project_velocity",
    "r3_so3",
    "random_configuration",
    "retract",
    "right_translation",
    "rollout",
    "s3",
    "se3",
    "so3",
    "solve_mass_matrix",
    "specialize",
    "total_energy",
    "ts2",
]

# They are not in __all__, which lists functions and types of mechanics; nor is the setting cache_programs.
_SPACES = (
    "actuators", "adapters", "centroidal", "collisions", "contact", "control", "conventions", "ensembles", "execution",
    "forces", "groups", "identification", "integrators", "loops", "maximal", "models", "multibody", "plot",
    "saving", "sensors", "shapes", "systems", "time_derivatives", "view",
)  # fmt: skip
if _typing.TYPE_CHECKING:  # or type checkers take them for private ones of an installed package
    __all__ += [
        "actuators", "adapters", "cache_programs", "centroidal", "collisions", "contact", "control", "conventions",
        "ensembles", "execution", "forces", "groups", "identification", "integrators", "loops", "maximal", "models",
        "multibody", "plot", "saving", "sensors", "shapes", "systems", "time_derivatives", "view",
    ]  # fmt: skip
# Kept elsewhere. They are no packages here, or Python would load a second copy of what they consist of. The files of
# these names are for type checkers: Python finds the modules made below instead.
_ELSEWHERE = {
    "actuators": "robots.actuators",
    "centroidal": "dynamics.centroidal",
    "control": "simulate.control",
    "conventions": "multibody.conventions",
    "ensembles": "simulate.ensemble",
    "identification": "simulate.identification",
    "loops": "dynamics.loops",
    "models": "multibody.models",
    "sensors": "robots.sensors",
    "time_derivatives": "dynamics.time_derivatives",
}


class _Space(_types.ModuleType):
    """A namespace under its public name, for `from lgjax.control import FDDP`."""

    def __getattr__(self, name: str) -> _Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        home = _importlib.import_module(f"lgjax.{_ELSEWHERE[self.__name__.partition('.')[2]]}")
        vars(self).update((key, value) for key, value in vars(home).items() if not key.startswith("__"))
        return getattr(home, name)


for _name in _ELSEWHERE:
    _sys.modules[f"lgjax.{_name}"] = _Space(f"lgjax.{_name}")


def _find(name: str) -> _Any:
    """The first use of a name imports all of them."""
    if not name.startswith("__"):
        shown = vars(_importlib.import_module("lgjax.surface"))
        if name in shown and not name.startswith("_"):
            globals().update((key, value) for key, value in shown.items() if not key.startswith("_"))
            return shown[name]
        if "view" in shown and not name.startswith("_"):  # while the names are imported, some are not there yet
            known = {space: shown[space] for space in _SPACES if space in shown}
            moved = _importlib.import_module("lgjax.moved")
            raise moved.missing_member("lgjax", name, moved.place(name, known))
    raise AttributeError(f"module 'lgjax' has no attribute {name!r}")


if not _typing.TYPE_CHECKING:  # or type checkers accept misspelled names
    __getattr__ = _find


def __dir__() -> list[str]:
    return sorted({*__all__, *_SPACES, "cache_programs", *(name for name in globals() if name.startswith("__"))})
