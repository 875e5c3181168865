"""Settings for every test: float64 is there, nothing is promoted silently, XLA compiles with little optimisation.

Compiling is most of the time of most tests, and takes half as long so. `tests.optimised` compiles as users do, for the
tests in which that could make a difference. One worker runs the tests of a file (`--dist loadfile`), which share what
they compile.
"""

import gc
import os
from importlib.metadata import version

FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # an XLA ends its process at a flag that it lacks
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")

# Workers inherit the environment. Before the first use of JAX, which reads it once.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS]).strip()

os.environ["LGJAX_CACHE"] = os.devnull  # no test of the command line writes to the user's folder, nor reads there

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Tracing makes many small objects and little garbage; looking for it after every 700 takes a fifth of the time.
gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True, scope="module")
def _forget():
    """What the tests of a file have traced and compiled is of no use to other files, and takes gigabytes."""
    yield
    jax.clear_caches()
