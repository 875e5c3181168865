"""`lgjax optimize`: what it finds, writes and prints, and one line for everything that is wrong in a problem's file."""

import argparse
import tomllib
from pathlib import Path

import numpy as np
import pytest

from lgjax.cli import main
from lgjax.cli import optimize as command

pytestmark = pytest.mark.usefixtures("kept_programs")
PENDULUM = """
model = "chain:1"
dt = 0.05
steps = 20
guesses = 2
bounds = [-3.0, 3.0]
substeps = 1
tolerance = 1e-5
[goal]
joints = [0.7]
[weights]
goal = 1000.0
rest = 100.0
"""


def write(folder: Path, text: str) -> str:
    file = folder / "problem.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_pendulum_is_brought_to_an_angle(tmp_path, capsys):
    out, picture = tmp_path / "found.npz", tmp_path / "found.png"
    argv = ["optimize", write(tmp_path, PENDULUM), "--quiet", "--out", str(out), "--plot", str(picture)]
    assert main(argv) == 0
    shown = capsys.readouterr()
    assert not shown.err
    assert "chain_1: ilqr, 2 guesses, 20 steps of 0.05 s" in shown.out
    assert shown.out.count("converged") == 2
    assert shown.out.count("best") == 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    with np.load(out) as file:
        assert file["controls"].shape == (2, 20, 1)
        np.testing.assert_allclose(file["joints"][:, -1], 0.7, atol=1e-3)
        np.testing.assert_allclose(file["velocities"][:, -1], 0, atol=1e-2)
        np.testing.assert_allclose(file["times"], 0.05 * np.arange(21))
        assert np.all(np.abs(file["controls"]) <= 3)


def test_the_example_of_the_help_can_be_read():
    table = tomllib.loads(command.EXAMPLE)
    task = command.read(table, Path())
    assert task.guesses.shape == (4, 50, 7)
    goal = table["goal"]
    goal |= {"frame": "tool", "position": [0.4, 0.0, 0.8], "turn": [0.0, 1.57, 0.0]}
    del goal["joints"]
    terminal = command.read(table, Path()).options["terminal"]
    assert np.isfinite(terminal(task.start))
    assert terminal(task.start) > 0


def test_a_floating_base_goes_to_a_pose():
    table = tomllib.loads('model = "quadruped"\nsteps = 2\ndt = 0.1\n[goal]\nbase = [0, 0, 1]\nturn = [0, 0, 1.5]')
    task = command.read(table, Path())
    terminal = task.options["terminal"]
    expected = 100 * (1 + 2 - 2 * np.cos(1.5))
    np.testing.assert_allclose(terminal(task.start), expected, rtol=1e-12)
    assert task.guesses.shape == (1, 2, 12)


BAD = [
    ('model = "chain:1"', 'model = "chair:1"', "unknown model 'chair:1'"),
    ('model = "chain:1"', "", "model is missing"),
    ('model = "chain:1"', "model = 3", "model must be str, got 3"),
    ("steps = 20", "steps = 0", "steps must be at least 1, got 0"),
    ("steps = 20", "steps = 1.5", "steps must be int, got 1.5"),
    ("dt = 0.05", "dt = -0.05", "dt must be positive and finite, got -0.05"),
    ("dt = 0.05", "dt = nan", "dt must be positive and finite, got nan"),
    ("guesses = 2", "gueses = 2", "unknown key gueses"),
    ("guesses = 2", 'method = "newton"', "method must be one of shooting, multiple_shooting, ilqr, fddp, got 'newton'"),
    ("[-3.0, 3.0]", "[3.0, -3.0]", "bounds of control 0 cross: lower 3, upper -3"),
    ("[-3.0, 3.0]", "[3.0]", "bounds must be [lower, upper], got [3.0]"),
    ("[-3.0, 3.0]", "[[1.0, 2.0], 3.0]", "problem.toml: bounds are (lower, upper), each one number or (1,)"),
    ("guesses = 2", "seed = 99999999999999999999999", "problem.toml: seed must have at most 63 bits, got 9999"),
    ("guesses = 2", "spread = nan", "problem.toml: spread must be a finite number of at least 0, got nan"),
    ("guesses = 2", "spread = -1.0", "problem.toml: spread must be a finite number of at least 0, got -1.0"),
    ("joints = [0.7]", "joints = [0.7, 1.0]", "goal.joints: joints has shape (2,), this model takes (1,)"),
    ("joints = [0.7]", "joints = { elbow = 1.0 }", "goal.joints: no scalar joint 'elbow'"),
    ("joints = [0.7]", "joints = [nan]", "goal.joints: joints is not finite"),
    ("joints = [0.7]", "base = [0.0, 0.0, 1.0]", "goal.base or goal.turn given, but chain_1 has no free base"),
    ("joints = [0.7]", 'frame = "hand"', "no frame 'hand'"),
    ("joints = [0.7]", 'frame = "rod0"', "goal.frame = 'rod0' needs goal.position, goal.turn or both"),
    ("joints = [0.7]", "", "goal is empty"),
    ("rest = 100.0", "rest = -1.0", "weights.rest must be at least 0 and finite, got -1.0"),
    ("rest = 100.0", "speed = 1.0", "unknown key weights.speed"),
    ("[goal]", "[goal", "problem.toml: "),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[message[:35] for *_, message in BAD])
def test_what_is_wrong_is_named_in_one_line(old, new, message, tmp_path, capsys):
    assert old in PENDULUM
    assert main(["optimize", write(tmp_path, PENDULUM.replace(old, new)), "--quiet"]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out


def test_files_that_cannot_be_read_or_written(tmp_path, capsys):
    for name, why in {"none.toml": "No such file or directory", ".": "Is a directory"}.items():
        assert main(["optimize", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err == f"lgjax: error: cannot read {str(tmp_path / name)!r}: {why}\n"
    problem = write(tmp_path, PENDULUM)
    assert main(["optimize", problem, "--out", str(tmp_path / "no" / "x.npz")]) == 2
    assert main(["optimize", problem, "--plot", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("cannot write") == 2


def test_text_is_no_checkpoint(tmp_path, capsys):
    (tmp_path / "notes.npz").write_text("notes")
    assert main(["optimize", write(tmp_path, PENDULUM), "--checkpoint", str(tmp_path / "notes.npz"), "--quiet"]) == 2
    assert "notes.npz' cannot be read: it is no .npz file" in capsys.readouterr().err


def test_help_shows_a_problem(capsys):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["optimize", "--help"])
    assert "[weights]" in capsys.readouterr().out
