"""The scripts that compare programs: every program gets the same mechanism, and what is printed of them."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as when they are run
    return lambda name: importlib.import_module(name)


def arm(floating: bool):
    """A base, free or turning, a turned slide on it and two hinges on that, all off center."""
    skew = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0.0], [0.48, 0.64, 0.6]])
    solid = {
        "rotation": skew,
        "position": np.array([0.2, 0.1, -0.3]),
        "mass": 2.0,
        "com": np.array([0.1, -0.2, 0.3]),
        "inertia": np.diag([0.3, 0.2, 0.25]),
    }
    joints = [("base", None, "free" if floating else "revolute"), ("rail", "base", "prismatic")]
    joints += [("left", "rail", "revolute"), ("right", "rail", "revolute")]
    return lgjax.build(
        [lgjax.Body(name, parent, lgjax.Joint(f"{name} joint", kind), **solid) for name, parent, kind in joints]
    )


@pytest.mark.parametrize("floating", [False, True])
def test_the_description_is_of_the_same_mechanism(floating, scripts):
    """Accelerations of the joints at rest, in URDF as Pinocchio reads it; SDF has the same numbers."""
    import pinocchio as pin

    model, descriptions = arm(floating), scripts("descriptions")
    base = 6 if floating else 0
    tau = np.r_[np.zeros(base), np.linspace(-1, 2, model.nv - base)]
    joints = 0.3 + 0.1 * np.arange(model.nv - base)
    q = lgjax.neutral(model)._replace(joints=jnp.asarray(joints))
    ours = jit(lgjax.forward_dynamics)(model, q, jnp.zeros(model.nv), jnp.asarray(tau))
    text = descriptions.urdf(model)
    theirs = pin.buildModelFromXML(text, *[pin.JointModelFreeFlyer()] * floating)
    first = 1 if floating else 0
    order = [theirs.getJointId(f"joint{i + first}") for i in range(len(joints))]
    place, at = pin.neutral(theirs), [theirs.idx_qs[i] for i in order]
    force, rows = np.zeros(theirs.nv), [theirs.idx_vs[i] for i in order]
    place[at], force[rows] = joints, tau[base:]
    expected = pin.aba(theirs, theirs.createData(), place, np.zeros(theirs.nv), force)[rows]
    np.testing.assert_allclose(ours[base:], expected, rtol=1e-10)
    numbers = lambda text: set(re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text))
    assert numbers(descriptions.sdf(model)) - {"1.10"} == numbers(text)


def test_the_table_has_a_line_for_a_program_and_a_column_for_a_robot(scripts):
    peers = scripts("peers")
    head = {"robot": "go1", "dtype": "float32", "what": "forward"}
    rows = [
        {**head, "program": "other", "us": 6.0},
        {**head, "program": "other", "us": 3.0, "emitters": "old"},
        {**head, "program": "lgjax", "us": 1.5},
        {**head, "program": "wrong", "us": 4.5, "failure": "another result"},
        {**head, "program": "broken", "failure": "over 1 s"},
    ]
    peers.compare(rows)
    table, columns = peers.compact(rows, ["go1"])
    assert columns == ["what", "program", "dtype", "go1"]
    assert {entry["program"]: entry.get("go1") for entry in table} == {
        "other": "6 (4)",
        "other, old emitters": "3 (2)",
        "lgjax": "1.5",
        "wrong": "4.5 (3) !",
        "broken": None,
    }


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["200", "0.01"])
def test_programs_run_in_processes_of_their_own(limit, tmp_path):
    out = tmp_path / "peers.json"
    argv = [
        sys.executable,
        "peers.py",
        "--quick",
        "--robots",
        "ur5",
        "--programs",
        "lgjax,pinocchio",
        "--timeout",
        limit,
    ]
    argv += ["--what", "inverse", "--dtypes", "float64", "--out", str(out)]
    subprocess.run(argv, check=True, cwd=BENCHMARKS, capture_output=True, timeout=500)
    rows = json.loads(out.read_text())["rows"]
    assert [row["program"] for row in rows] == ["lgjax", "pinocchio"]
    for row in rows:
        if limit == "0.01":
            assert row["failure"] == "over 0.01 s"
        else:
            assert row["error"] < 1e-12
            assert row["us"] > 0


def test_unknown_names_take_one_line():
    argv = [sys.executable, "peers.py", "--programs", "lgjax,abacus"]
    done = subprocess.run(argv, cwd=BENCHMARKS, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("--programs: 'abacus' is none of " + ", ".join(PROGRAMS))


PROGRAMS = ("lgjax", "pinocchio", "MJX", "frax", "adam", "JaxSim", "Brax")


LISTING = """HloModule jit_f, entry_computation_layout={(f32[3]{0})->f32[3]{0}}

%fused (p: f32[3]) -> f32[3] {
  %p = f32[3]{0} parameter(0)
  ROOT %m = f32[3]{0} multiply(%p, %p), metadata={op_name="jit(f)/mul" stack_frame_id=1}
}

%fused.1 (p.1: f32[3]) -> f32[3] {
  %p.1 = f32[3]{0} parameter(0)
  ROOT %m.1 = f32[3]{0} multiply(%p.1, %p.1), metadata={op_name="jit(f)/mul" stack_frame_id=2}
}

%body (s: (s32[], f32[3])) -> (s32[], f32[3]) {
  %s = (s32[], f32[3]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[3]{0} get-tuple-element(%s), index=1
  %y = f32[3]{0} fusion(%x), kind=kLoop, calls=%fused, metadata={op_name="a"}
  %z = f32[3]{0} fusion(%y), kind=kLoop, calls=%fused.1, metadata={op_name="b"}
  ROOT %t = (s32[], f32[3]{0}) tuple(%i, %z)
}

ENTRY %main (a: f32[3]) -> f32[3] {
  %a = f32[3]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[3]{0}) tuple(%zero, %a)
  %loop = (s32[], f32[3]{0}) while(%start), condition=%more, body=%body
  %end = f32[3]{0} get-tuple-element(%loop), index=1
  ROOT %out = f32[3]{0} copy(%end)
}
"""


def test_kernels_are_counted_once_in_a_loop_and_told_apart_by_what_they_do(scripts):
    script = scripts("compile_time")
    assert script.kernels(LISTING) == (3, 2)
    assert script.kernels(LISTING.replace("multiply(%p.1", "add(%p.1")) == (3, 3)
    program = jit(lambda x: jnp.sort(x) + 1).lower(jnp.ones(3)).compile()
    count, different = script.kernels(program.as_text())
    assert 1 <= different <= count < 9


def test_the_functions_whose_compilation_is_timed_are_those_that_are_named(scripts):
    script = scripts("compile_time")
    assert tuple(script.functions()) == script.NAMES
