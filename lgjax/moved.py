"""Where names are that are not flat in `lgjax`, or no longer have the name that they had, for the error."""

from typing import Any

from lgjax.numerics.renamed import missing_member

__all__ = ["missing_member", "place"]

RENAMED = {
    "AdaptiveStatus": "lgjax.integrators.Status",
    "ConstrainedSolution": "lgjax.maximal.Solution",
    "ConstrainedStatus": "lgjax.maximal.Status",
    "ConstrainedTrajectory": "lgjax.simulate.rollout.Trajectory",
    "Controller": "lgjax.integrators.StepSizeController",
    "ForwardPartials": "lgjax.dynamics.partials.ForwardPartials",
    "History": "lgjax.control.SearchRecord",
    "HybridPartials": "lgjax.dynamics.partials.HybridPartials",
    "InversePartials": "lgjax.dynamics.partials.InversePartials",
    "KernelOptions": "lgjax.execution.plain, which runs without kernels",
    "MaximalSystem": "lgjax.maximal.System",
    "PI": "lgjax.integrators.PI_CONTROL",
    "forward_dynamics_derivatives": "lgjax.forward_dynamics_time_derivatives",
    "fused_forward_dynamics": "jax.vmap of lgjax.forward_dynamics",
    "fused_rollout": "jax.vmap of lgjax.rollout",
    "fused_vmap": "jax.vmap",
    "hybrid_dynamics_derivatives": "lgjax.hybrid_dynamics_time_derivatives",
    "integrate_constrained": "lgjax.maximal.integrate",
    "inverse_dynamics_derivatives": "lgjax.inverse_dynamics_time_derivatives",
    "kernel_cost": "lgjax.execution.cost.kernel_cost",
    "parallel": "lgjax.forward_dynamics and lgjax.inverse_dynamics",
    "parallel_forward_dynamics": "lgjax.forward_dynamics",
    "parallel_inverse_dynamics": "lgjax.inverse_dynamics",
    "plugs": "lgjax.adapters",
    "rollout_constrained": "lgjax.rollout(..., loops=loops)",
    "variational": "lgjax.collisions",
}


def place(name: str, spaces: dict[str, Any]) -> str:
    """The end of a message that says where a name is now; nothing if it is nowhere. spaces: namespaces by name."""
    if name in RENAMED:
        return f"; it is now {RENAMED[name]}"
    found = [f"lgjax.{space}.{name}" for space, module in spaces.items() if _has(module, name)]
    return f"; there is {' and '.join(found)}" if found else ""


def _has(module: Any, name: str) -> bool:
    """Whether a name is public in a module: in its `__all__` or, where there is none, defined there."""
    if name.startswith("_") or hasattr(module, "__all__"):
        return name in getattr(module, "__all__", ())
    return getattr(vars(module).get(name), "__module__", None) == module.__name__
