"""How a body step runs for a batch of systems: plain, or traced once and emitted again on scalars.

This room knows JAX and no mechanism; `_jax.py` has all that is not documented of JAX, and `compiled.py` makes calls
outside jit fast.  Read first: `interpreter.py`, then `step.py`; `executors.py` is what
`dynamics/traversal` calls.
"""
