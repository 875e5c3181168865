"""Whole algorithms as one GPU kernel, a thread per system.

Read first: `vmap.py`.
"""

from lgjax.simulate.kernels.rollout import fused_rollout
from lgjax.simulate.kernels.vmap import KernelOptions, fused_forward_dynamics, fused_vmap, kernel_cost

__all__ = ["KernelOptions", "fused_forward_dynamics", "fused_rollout", "fused_vmap", "kernel_cost"]
