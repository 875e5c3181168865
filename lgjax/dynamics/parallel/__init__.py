"""Dynamics of long chains in a logarithmic number of steps, for one mechanism on many cores.

`dynamics.py` has both algorithms.  Read first: `pointer_doubling.py`, then `elimination.py`.
"""

from lgjax.dynamics.parallel.dynamics import forward_dynamics, inverse_dynamics

__all__ = ["forward_dynamics", "inverse_dynamics"]
