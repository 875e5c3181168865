"""The README's Python runs as printed, from top to bottom, with JAX as a user finds it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) > 3
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    result = subprocess.run([sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
