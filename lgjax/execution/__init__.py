"""How a body step runs for a batch of systems: plain, or traced once and emitted again on scalars.

This room knows JAX and no mechanism.  Read first: `interpreter.py`, then `step.py`; `executors.py` is what
`dynamics/traversal` calls.
"""
