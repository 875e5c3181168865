"""How a function of one system runs for a batch: as one kernel on each machine, or plainly in XLA.

`batched` makes an operation of a function of one system; `plain` turns kernels off; `compiled` makes calls outside jit
fast. This package knows nothing of rigid bodies. Only `_jax.py` uses private parts of JAX.

Read first: `operation.py`. Next: `scalars/program.py`, the form in which both machines read a function, and `kernels/`,
which writes it down for them.
"""

from lgjax.execution.operation import batched, fused_derivatives
from lgjax.execution.reference import is_plain, plain

__all__ = ["batched", "fused_derivatives", "is_plain", "plain"]
