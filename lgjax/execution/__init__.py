"""Execution of body steps for a batch of systems: plain, or traced once and emitted again on scalars.

This room knows JAX and no mechanism; `_jax.py` holds every use of JAX that its documentation does not cover, and
`compiled.py` makes calls outside jit fast, `cache.py` keeps programs on disk, `kernels/` writes kernels for GPUs and
native functions for CPUs.
Read first: `scalars/interpreter.py`, then `step.py`; `dynamics/traversal` calls `executors.py`.
"""
