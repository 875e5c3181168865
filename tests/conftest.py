"""Settings for every test: float64 is there, nothing is promoted silently, XLA compiles with little optimisation.

Compiling is most of the time of most tests, and takes half as long so. `tests.optimised` compiles as users do, for the
tests in which that could make a difference.
"""

import os
import subprocess
import sys

FLAGS = ("--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false")  # JAX 0.11 lacks the second


def _accepted(flags: str) -> bool:
    """An XLA that does not know a flag ends its process."""
    environment = {**os.environ, "XLA_FLAGS": flags}
    return not subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=environment).returncode


# Workers inherit the environment. Before the first use of JAX, which reads it once.
if "PYTEST_XDIST_WORKER" not in os.environ:
    for flag in FLAGS:
        wanted = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
        if _accepted(wanted):
            os.environ["XLA_FLAGS"] = wanted

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_collection_modifyitems(items):
    """The longest test that is alone in its file comes first among those."""
    items.sort(key=lambda item: item.path.stem != "test_readme")


@pytest.fixture(autouse=True, scope="module")
def _forget():
    """What the tests of a file have traced and compiled is of no use to other files, and takes gigabytes."""
    yield
    jax.clear_caches()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of a file share what they compile, so one worker runs them; examples share nothing and fill the gaps."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _ = nodeid.split("::", 1)
            return nodeid if file.endswith("test_examples.py") else file

        def remove_node(self, node):
            """A test that ended its worker is not tried again."""
            waiting = [(work, name) for work in self.assigned_work[node].values() for name in work if not work[name]]
            if not waiting:
                return super().remove_node(node)
            work, crashed = waiting[0]
            work[crashed] = True
            super().remove_node(node)
            return crashed

    return ByFile(config, log)
