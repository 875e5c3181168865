"""`lgjax bench`: what it prints and writes, what it refuses, and that peers get the same mechanism."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax.cli import main
from lgjax.cli.bench import command as bench
from lgjax.cli.bench import peers, roofline, timing
from tests.cli.test_cli import failing
from tests.dynamics import trees


def test_a_row_for_every_function_dtype_and_batch(tmp_path, capsys):
    out = tmp_path / "rows.json"
    argv = ["bench", "chain:1", "--functions", "inverse", "--batch", "1,3", "--quick", "--no-peers"]
    assert main([*argv, "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("chain_1: 1 bodies, nv 1; ")
    assert f"jax {jax.__version__}" in shown
    written = json.loads(out.read_text())
    assert [(r["function"], r["dtype"], r["batch"]) for r in written["rows"]] == [
        ("inverse", "float32", 1),
        ("inverse", "float32", 3),
    ]
    for row in written["rows"]:
        assert row["program"] == "lgjax"
        assert 0 < row["low"] <= row["us"] <= row["high"]
        np.testing.assert_allclose(row["per second"] * row["us"], 1e6)
        assert min(row["compile s"], row["first s"]) > 0
    assert {"date", "device", "versions"} <= written["environment"].keys()
    table = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 2
    assert table[0].split("|")[1].strip() == "function"


def test_errors_of_float32_and_peers_are_in_the_table(capsys):
    argv = ["bench", "chain:1", "--functions", "inverse", "--batch", "2", "--dtype", "float32", "--repeats", "1"]
    assert main(argv) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| inverse")]
    assert [row.split("|")[2].strip() for row in rows][:2] == ["lgjax", "pinocchio C++"]
    assert 0 < float(rows[0].split("|")[-2]) < 1e-5


def test_interrupted_it_prints_what_there_is(monkeypatch, capsys):
    rows = iter([bench.row_of("forward", "lgjax", "float32", 1, 1, {"median": 1, "low": 1, "high": 1, "disturbed": 0})])

    def measure(*_):
        yield next(rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", measure)
    assert main(["bench", "chain:1"]) == 130
    shown = capsys.readouterr()
    assert "| forward  | lgjax   | float32 | 1 " in shown.out
    assert shown.err == "lgjax: error: interrupted; this is what was measured\n"


BAD_INPUT = {
    "model": (["bench", "horse"], "lgjax: error: unknown model 'horse'; built in: quadruped"),
    "function": (["bench", "--functions", "fly"], "unknown function 'fly'; known: forward, inverse"),
    "dtype": (["bench", "--dtype", "float16"], "unknown dtype 'float16'; known: float32, float64"),
    "batch": (["bench", "--batch", "4,0"], "batch: '0' is not a positive integer"),
    "file": (["bench", "--json", "/absent/x.json"], "cannot write '/absent/x.json': its folder does not exist"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_takes_one_line(name, capsys):
    argv, message = BAD_INPUT[name]
    code, err = failing(capsys, *argv)
    assert code == 2
    assert message in err


def test_kernels_are_rated_by_what_they_move_and_compute():
    model = lgjax.specialize(lgjax.models.chain(1).astype("float32"))
    state = bench.states(model, 2)
    for name in ("forward", "rollout"):
        cost = bench.cost_of(name, model, state)
        used = roofline.fractions(cost, 1e6, {"bytes per second": 1e9, "operations per second": 1e9})
        np.testing.assert_allclose(used["memory"], cost["bytes"] * 1e-3)
        np.testing.assert_allclose(used["arithmetic"], cost["arithmetic"] * 1e-3)
        assert cost["operations"]["sin"] >= {"forward": 1, "rollout": 4 * bench.STEPS}[name]
    roofs = roofline.measured_roofs("float32", 8, repeats=1, chain=2)
    assert min(roofs.values()) > 0


@pytest.mark.slow
def test_the_script_for_gpus_runs_without_one(tmp_path):
    """Rows are written as they come, and what there is no time for is recorded."""
    script, out = Path(__file__).parents[2] / "benchmarks" / "gpu.py", tmp_path / "gpu.json"
    argv = [sys.executable, str(script), "--tiny", "--repeats", "1", "--minutes", "0.15", "--out", str(out)]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    rows = json.loads(out.read_text())["rows"]
    done = [row for row in rows if "failure" not in row]
    assert done[0]["what"] == "roofs"
    assert done[1]["error"] < 1e-5
    assert {"memory", "arithmetic", "compile s"} <= done[1].keys()
    assert {row.get("failure") for row in rows} <= {None, "not started: no time left"}


def test_the_steady_state_is_timed():
    calls = []
    times = timing.steady(lambda: calls.append(sum(range(2000))), repeats=3, block_seconds=0.001)
    assert 0 < times["low"] <= times["median"] <= times["high"] < 0.1
    assert len(calls) > 3
    rows = [{"a": 1.23456, "b": None}, {"a": "x", "b": 7}]
    assert timing.table(rows, ["a", "b"]) == "| a    | b |\n|------|---|\n| 1.23 |   |\n| x    | 7 |"


def test_peers_get_the_same_mechanism():
    """Accelerations of the joints at rest in the neutral configuration, where all conventions agree."""
    import mujoco
    import pinocchio as pin

    model = trees.model("shoulder")
    model = model.replace(damping=0 * model.damping, armature=0 * model.armature)
    joints = np.array([kind.coordinates == "joints" for b in model.tree.v_body for kind in [model.tree.kinds[b]]])
    tau = np.where(joints, np.linspace(-1, 1, model.nv), 0)
    rest = jnp.zeros(model.nv)
    ours = np.asarray(jit(lgjax.forward_dynamics)(model, lgjax.neutral(model), rest, jnp.asarray(tau)))
    theirs = peers.pinocchio_model(model)
    aba = pin.aba(theirs, theirs.createData(), pin.neutral(theirs), np.zeros(theirs.nv), tau)
    np.testing.assert_allclose(ours[joints], aba[joints], atol=1e-9 * np.abs(ours).max())
    compiled = mujoco.MjModel.from_xml_string(peers.mjcf(model))
    data = mujoco.MjData(compiled)
    data.qfrc_applied[:] = tau
    mujoco.mj_forward(compiled, data)
    np.testing.assert_allclose(ours[joints], data.qacc[joints], atol=1e-8 * np.abs(ours).max())
