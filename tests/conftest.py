"""Settings for every test: float64 is there, nothing is promoted silently, XLA compiles with little optimisation.

Compiling is most of the time of most tests, and takes half as long so. `tests.optimised` compiles as users do, for the
tests in which that could make a difference.
"""

import os
import subprocess
import sys

FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


def _accepted(flags: str) -> bool:
    """An XLA that does not know a flag ends its process."""
    environment = {**os.environ, "XLA_FLAGS": flags}
    return not subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=environment).returncode


# Workers inherit the environment. Before the first use of JAX, which reads it once.
if "PYTEST_XDIST_WORKER" not in os.environ:
    wanted = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()
    if _accepted(wanted):
        os.environ["XLA_FLAGS"] = wanted

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
