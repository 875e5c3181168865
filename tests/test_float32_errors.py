"""The script that states the errors of float32: what it compares, and that it runs."""

import importlib.util
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as when it is run as a script
    spec = importlib.util.spec_from_file_location("float32_errors", BENCHMARKS / "float32_errors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_errors_are_relative_to_the_largest_entry_of_each_array(script):
    """x + 1e-3 in float32 alone: over the largest entry of x, for the worst of the arrays; counts are left out."""
    x = np.array([[1.0, 2.0], [0.5, 4.0], [0.25, 0.125]])

    def make(dtype):
        shift = 1e-3 if dtype == "float32" else 0.0
        step = np.array([0.0, shift, 3 * shift], dtype)[:, None]
        return lambda x: {"a": x + step, "b": 10 * x + step, "count": jnp.ones(3, jnp.int32), "none": x[:, :0]}

    found = script.errors(make, x)
    np.testing.assert_allclose(found["largest"], 3e-3 / 4, rtol=1e-3)
    np.testing.assert_allclose(found["median"], 1e-3 / 4, rtol=1e-3)
    assert found["inputs"] == 0  # these are whole numbers of float32
    np.testing.assert_allclose(script.errors(lambda dtype: jnp.asarray, x + 1e-9)["inputs"], 1e-9 / 4, rtol=1e-3)


def test_a_result_that_is_no_number_is_infinitely_wrong(script):
    make = lambda dtype: lambda x: x * (np.nan if dtype == "float32" else 1.0)
    assert script.errors(make, np.ones((2, 1)))["largest"] == np.inf


def test_float64_in_a_result_of_float32_is_an_error(script):
    with pytest.raises(TypeError, match="float32 in gives"):
        script.errors(lambda dtype: lambda x: x.astype("float64"), np.ones((2, 1)))


def test_the_first_lines_of_every_part(script, tmp_path, capsys):
    out = tmp_path / "errors.json"
    rows = script.main(["--quick", "--out", str(out)])
    assert {row["part"] for row in rows} == set(script.PARTS)
    assert all(0 < row["median"] <= row["largest"] < 1e-5 for row in rows if not row["what"].startswith("exp"))
    assert json.loads(out.read_text())["rows"] == rows
    shown = capsys.readouterr().out
    assert "forward dynamics" in shown
    assert all(row["what"] in shown for row in rows)
