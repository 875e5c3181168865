"""`python -m soak.versions ENVIRONMENT ...`: which environments pass, as rows of a table in Markdown.

An environment is a folder with bin/python, in which JAX, optax, pytest, pytest-timeout and pytest-xdist are installed.
Each runs what `.ci/run` runs with the lowest and the highest JAX, and the Python block of README.md.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = """
import platform, jax, jaxlib, numpy
print(platform.python_version(), jax.__version__, jaxlib.__version__, numpy.__version__)
"""


def smoke_tests() -> list[list[str]]:
    """Arguments of pytest of the smoke tests, in the order of `.ci/run`."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    found = re.findall(r"^ *smoke/bin/pytest (.*)$", script, re.MULTILINE)
    if not found:
        raise ValueError(".ci/run names no smoke tests")
    return [[word.strip('"') for word in re.findall(r'"[^"]*"|\S+', line)] for line in found]


def twelve_lines() -> str:
    """The first block of Python of README.md, with a check of what it computes."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if block is None:
        raise ValueError("README.md has no block of Python")
    return block[1] + "\nassert heights.shape == (256,) and bool(jnp.isfinite(gradients).all())\n"


def row(environment: Path) -> str:
    """Versions, and how many of the smoke tests and of the lines of README.md passed."""
    python = environment / "bin" / "python"
    call = lambda *words: subprocess.run(
        [python, *words], cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": ".", "JAX_PLATFORMS": "cpu"}
    )
    versions = call("-c", VERSIONS).stdout.split()
    passed, failed = 0, []
    for words in smoke_tests():
        out = call("-m", "pytest", *words).stdout
        passed += sum(map(int, re.findall(r"(\d+) passed", out)))
        if re.search(r"\d+ (failed|error)", out) or "passed" not in out:
            failed.append(out[-500:])
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(twelve_lines())
        file.flush()
        lines = call(file.name)
    if failed or lines.returncode:
        print(*failed, lines.stderr[-1500:], sep="\n", file=sys.stderr)  # noqa: T201
    said = f"{passed} passed" + (f", {len(failed)} runs failed" if failed else "")
    return f"| {' | '.join(versions)} | {said} | {'runs' if lines.returncode == 0 else 'fails'} |"


def main() -> None:
    print("| Python | JAX | jaxlib | NumPy | smoke tests | twelve lines |\n|---|---|---|---|---|---|")  # noqa: T201
    for environment in sys.argv[1:]:
        print(row(Path(environment).absolute()), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
