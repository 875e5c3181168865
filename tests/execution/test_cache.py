"""Compiled programs kept on disk: a second process compiles nothing, and no program reaches other versions."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import lgjax
from lgjax.cli import main
from lgjax.execution import cache
from lgjax.execution.kernels import native

ROOT = Path(__file__).resolve().parents[2]
# Forward dynamics, alone and with its gradient for a batch: the primitives of `scan.py` and `call.py` and their rules.
SCRIPT = """
import sys
import jax, jax.monitoring
from collections import Counter
seen = Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.split("/")[-1]]))
import lgjax
jax.numpy.ones(3) + 1  # compiled before the folder is known
place = lgjax.cache_programs(sys.argv[1])
model = lgjax.models.chain(1)
q, v = lgjax.neutral(model), jax.numpy.ones(model.nv)
lgjax.forward_dynamics(model, q, v, v)
end = lambda v: lgjax.forward_dynamics(model, q, v, v).sum()
jax.jit(jax.vmap(jax.grad(end)))(jax.numpy.stack([v, 2 * v]))
print(place.name, seen["cache_hits"], seen["cache_misses"])
"""


def run(folder) -> tuple[str, int, int]:
    """(folder of its programs, how many it found, how many it compiled) of a new process."""
    hidden = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(folder)],
        capture_output=True, text=True, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    place, hits, misses = found.stdout.split()
    return place, int(hits), int(misses)


def test_a_second_process_compiles_nothing(tmp_path):
    name, hits, misses = run(tmp_path)
    assert name == cache.machine()
    assert misses > 3
    (kept,) = cache.kept_programs(tmp_path)
    objects = list(kept.folder.glob(f"*{cache.OBJECT}"))
    assert kept.programs == misses + len(objects)
    assert bool(objects) is native.usable()
    assert kept.size > 1000
    assert run(tmp_path) == (name, hits + misses, 0)


def test_the_folder_is_named_after_versions_and_processor(monkeypatch):
    here = cache.machine()
    for change in ((cache, "_processor", lambda: "another"), (cache, "_version", lambda package: "0.0")):
        with monkeypatch.context() as changed:
            changed.setattr(*change)
            assert cache.machine() != here
    assert cache.machine() == here


def entry(place: Path, name: str, size: int, age: float) -> Path:
    path = place / f"{name}-cache"
    path.write_bytes(bytes(size))
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def test_the_oldest_programs_go_first(tmp_path):
    new, older, oldest = (entry(tmp_path, name, 40, age) for age, name in enumerate("abc"))
    cache._trim(tmp_path, 100)
    assert [path.exists() for path in (new, older, oldest)] == [True, True, False]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        cache.cache_programs(tmp_path / "file")


@pytest.mark.usefixtures("settings_of_the_cache")
def test_commands_keep_their_programs_unless_told_not_to(tmp_path, monkeypatch):
    monkeypatch.setenv("LGJAX_CACHE", str(tmp_path))
    rollout = ["rollout", "chain:1", "--batch", "2", "--steps", "2", "--method", "LIE_EULER", "--quiet"]
    assert main([*rollout, "--no-cache"]) == 0
    assert cache.kept_programs() == []
    assert main(rollout) == 0
    (kept,) = cache.kept_programs()
    assert kept.programs > 0


@pytest.mark.usefixtures("settings_of_the_cache")
def test_the_command_shows_and_clears_what_is_kept_and_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LGJAX_CACHE", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    mine = tmp_path / "notes"
    mine.touch()
    place = tmp_path / cache.machine()
    place.mkdir()
    entry(place, "a", 2_000_000, 0)
    assert main(["cache"]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path}: holds 1 programs, 2.0 MB\n" in out
    assert f"{place.name}: 1 programs, 2.0 MB, used by this version on this machine\n" in out
    assert main(["cache", "--clear"]) == 0
    assert "removed 1 programs" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    assert main(["cache"]) == 0
    assert "holds 0 programs" in capsys.readouterr().out


@pytest.mark.usefixtures("settings_of_the_cache")
def test_the_command_shows_the_folder_that_is_used(tmp_path, monkeypatch, capsys):
    """JAX's own, where it has been told one: there commands keep their programs then. It is not ours to clear."""
    own, jaxs = tmp_path / "own", tmp_path / "jax"
    monkeypatch.setenv("LGJAX_CACHE", str(own))
    place = own / cache.machine()
    for folder, size in ((place, 1000), (jaxs, 3_000_000)):
        folder.mkdir(parents=True)
        entry(folder, "a", size, 0)
    jax.config.update("jax_compilation_cache_dir", str(jaxs))  # as the environment variable does
    assert main(["cache"]) == 0
    line = f"{jaxs}: holds 1 programs, 3.0 MB, of all that use JAX (JAX_COMPILATION_CACHE_DIR)\n"
    assert capsys.readouterr().out == line
    assert main(["cache", "--clear"]) == 2
    error = capsys.readouterr().err
    assert f"in {str(jaxs)!r}: remove them yourself, or unset JAX_COMPILATION_CACHE_DIR" in error
    assert cache.programs_in(jaxs).programs == cache.programs_in(place).programs == 1
    lgjax.cache_programs()  # tells JAX our own folder
    assert main(["cache"]) == 0
    assert f"{own}: holds 1 programs, 0.0 MB\n" in capsys.readouterr().out
