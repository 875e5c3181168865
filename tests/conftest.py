"""Settings for every test: float64 is there, nothing is promoted silently, XLA compiles with little optimization.

Compiling is most of the time of most tests, and takes half as long so. `tests.optimized` compiles as users do, for the
tests in which that could make a difference. One worker runs the tests of a file (`--dist loadfile`), which share what
they compile.
"""

import ctypes
import functools
import gc
import os
import time
from collections import Counter
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
JAXLIB = tuple(map(int, version("jaxlib").split(".")[:3]))
if JAXLIB < (0, 11):  # an XLA ends its process at a flag that it lacks
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
if (0, 10, 2) <= JAXLIB < (0, 12):  # its sums of arrays with seven axes and more end the process (jax-ml/jax#39257)
    FLAGS.append("--xla_cpu_experimental_ynn_fusion_type=")
# glibc gives memory back after each pass of the compiler, and fetches it again for the next: a tenth of its time.
MEMORY = {"MALLOC_TOP_PAD_": 2**27, "MALLOC_TRIM_THRESHOLD_": 2**30, "MALLOC_MMAP_THRESHOLD_": 2**30}

# Workers inherit the environment. Before the first use of JAX, which reads it once.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS]).strip()
    os.environ.update({name: str(value) for name, value in MEMORY.items()})

os.environ["LGJAX_CACHE"] = os.devnull  # no test of the command line writes to the user's folder, nor reads there

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Tracing makes many objects that stay and little garbage: looking for it after every 700 takes a fifth of the time.
gc.set_threshold(100_000, 50, 100)


MOST = 1.4e9  # bytes of a worker after a test; a program takes more than a megabyte, however small it is


def forget():
    """Drop what is traced and compiled, and give its memory back to the system, which free() alone does not."""
    jax.clear_caches()
    gc.collect()
    with suppress(AttributeError, OSError):  # other systems than Linux with glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


CACHE = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
# Short files that take minutes: they compile one program after the other.
LONG = (
    "test_eager.py",
    "test_examples.py",
    "test_definite.py",
    "test_kernels.py",
    "test_specialized_robots.py",
    "test_batched.py",
)


SLOW = frozenset((Path(__file__).parent / "slow.txt").read_text().splitlines())


def pytest_addoption(parser):
    parser.addoption("--part", help="K/N: the K-th of N parts; a file stays in its part, so that N runs have all")
    parser.addoption("--times", help="append processor seconds and name of each test to this file")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config, items):
    """Mark what `slow.txt` lists. Long files first, so that no worker begins one when the others are done; by size,
    which goes with time."""
    for item in items:
        if item.nodeid in SLOW:
            item.add_marker(pytest.mark.slow)
    gone = SLOW - {item.nodeid for item in items}
    if gone and config.args == config.getini("testpaths"):
        error = RuntimeError if "PYTEST_XDIST_WORKER" in os.environ else pytest.UsageError  # which workers keep silent
        raise error(f"tests/slow.txt names tests that do not exist: {sorted(gone)}")
    size = functools.cache(lambda path: path.stat().st_size + 2**20 * (path.name in LONG))
    items.sort(key=lambda item: (-size(item.path), item.path))
    if part := config.getoption("part"):
        number, parts = map(int, part.split("/"))
        chosen = [crc32(item.location[0].encode()) % parts == number - 1 for item in items]
        config.hook.pytest_deselected(items=[item for item, here in zip(items, chosen) if not here])
        items[:] = [item for item, here in zip(items, chosen) if here]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    before = time.process_time()
    yield
    if name := item.config.getoption("times"):
        with open(name, "a") as file:
            file.write(f"{time.process_time() - before:.2f} {item.nodeid}\n")


def resident() -> int:
    """Bytes of this process in memory, 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.fixture(autouse=True, scope="module")
def _forget_after_a_file():
    """What the tests of a file have compiled is of no use to other files."""
    yield
    forget()


def _settings_of_the_cache(*chosen):
    """Settings of JAX's cache on disk, put back afterwards; as those of `lgjax.cache_programs` they begin at once."""
    from lgjax.execution._jax import reset_cache

    before = {name: jax.config.values[name] for name in CACHE}
    for settings in (dict(zip(CACHE, chosen)), before):
        for name, value in settings.items():
            jax.config.update(name, value)
        reset_cache()
        if settings is not before:
            yield


@pytest.fixture
def settings_of_the_cache():
    """What a test sets there ends with the test."""
    yield from _settings_of_the_cache()


@pytest.fixture(scope="module")
def kept_programs(tmp_path_factory):
    """JAX's cache on disk, for files whose tests call, again and again, what compiles at every call.

    For others it does not pay: writing a program costs half of what compiling a small one does.
    """
    folder = tmp_path_factory.getbasetemp() / "programs"
    yield from _settings_of_the_cache(str(folder), 0.05, -1)


@pytest.fixture(autouse=True)
def _forget_when_it_is_much(request):
    yield
    request.node.user_properties.append(("resident", resident()))
    if resident() > MOST:
        forget()


def pytest_terminal_summary(terminalreporter):
    """With --durations, what each file took and the most memory that a worker held."""
    count = terminalreporter.config.getoption("durations")
    if not count:
        return
    seconds, most = Counter(), 0
    for report in (x for some in terminalreporter.stats.values() for x in some if isinstance(x, pytest.TestReport)):
        seconds[report.nodeid.split("::")[0]] += report.duration
        most = max(most, dict(report.user_properties).get("resident", 0))
    terminalreporter.section(f"seconds of files, {sum(seconds.values()):.0f} in all; workers held {most / 1e9:.2f} GB")
    for name, value in seconds.most_common(count):
        terminalreporter.write_line(f"{value:8.1f}  {name}")
