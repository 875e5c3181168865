"""The command line: what it writes, what it prints, and its exit codes."""

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest

import lgjax
from lgjax import models
from lgjax.cli import main, optimize
from lgjax.cli.commands import COMMANDS

pytestmark = pytest.mark.usefixtures("kept_programs")
TINY = ["--batch", "3", "--steps", "4", "--save-every", "2", "--method", "LIE_EULER", "--quiet"]


def failing(capsys, *argv):
    """The exit code and the one line on stderr of a command that fails."""
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert err.endswith("\n")
    *messages, line = err.splitlines(keepends=True)
    assert all(message.startswith("lgjax: ") and "error" not in message for message in messages), err
    assert not out
    return code, line


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rollout_writes_states_energies_and_a_figure(dtype, tmp_path, capsys):
    out, plot = tmp_path / "chain.npz", tmp_path / "chain.png"
    argv = ["rollout", "chain:2", "--floating-base", *TINY, "--dtype", dtype, "--mass-spread", "0.1", "--dt", "0.01"]
    assert main([*argv, "--out", str(out), "--plot", str(plot)]) == 0
    shown = capsys.readouterr()
    assert not shown.err
    assert "chain_2: 2 bodies, nv 7, batch 3, 4 steps of 0.01 s" in shown.out
    assert "simulated seconds per second" in shown.out
    assert plot.read_bytes().startswith(b"\x89PNG")
    with np.load(out) as file:
        np.testing.assert_allclose(file["times"], [0, 0.02, 0.04], rtol=1e-6)
        shapes = {name: file[name].shape for name in file.files}
        assert {file[name].dtype.name for name in ("base_position", "joints", "velocities", "energies")} == {dtype}
        assert not file["status"].any()
        assert file["joint_names"].tolist() == ["rod1_joint"]
        assert len(np.unique(file["velocities"][:, 0, 0])) == 3
    assert shapes["base_rotation"] == (3, 3, 1, 3, 3)
    assert shapes["base_position"] == (3, 3, 1, 3)
    assert (shapes["joints"], shapes["velocities"], shapes["energies"]) == ((3, 3, 1), (3, 3, 7), (3, 3))


def test_a_run_in_a_folder_writes_the_same_and_is_resumed(tmp_path, capsys):
    out, other, statistics, folder = (tmp_path / name for name in ("a.npz", "b.npz", "s.npz", "run"))
    argv = ["rollout", "chain:1", *TINY, "--gravity-spread", "0.1", "--statistics", str(statistics)]
    assert main([*argv, "--out", str(out)]) == 0
    assert main([*argv, "--resume", str(folder), "--out", str(other)]) == 0
    with np.load(out) as a, np.load(other) as b, np.load(statistics) as s:
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])
        assert s["names"].tolist() == ["joint[0]", "velocity[0]"]
        np.testing.assert_allclose(s["mean"][:, 0], a["joints"].mean(0)[:, 0], rtol=1e-6)
    capsys.readouterr()
    code, line = failing(capsys, *argv, "--checkpoint", str(folder))
    assert (code, "holds a run already" in line) == (2, True)
    code, line = failing(capsys, *argv, "--resume", str(folder), "--seed", "1")
    assert (code, "holds a run of another problem" in line) == (2, True)
    assert lgjax.load_ensemble(folder).success.shape == (3,)


@pytest.mark.parametrize("in_folder", [False, True])
def test_an_interrupted_run_reports_what_it_has(in_folder, tmp_path, capsys):
    """Ctrl-C while the second of three chunks is taken in."""
    module, out = sys.modules[lgjax.monte_carlo.__module__], tmp_path / "part.npz"
    argv = ["rollout", "chain:1", *TINY, "--chunk", "1", "--out", str(out)]
    argv += ["--checkpoint", str(tmp_path / "run")] if in_folder else []
    add = module.Accumulator.add

    def interrupted(self, *arrays):
        if self.arrays["rows"].shape[0] == 1:
            raise KeyboardInterrupt
        add(self, *arrays)

    with mock.patch.object(module.Accumulator, "add", interrupted):
        assert main(argv) == 130
    assert capsys.readouterr().err == "lgjax: error: interrupted after 1 of 3 samples\n"
    with np.load(out) as part:
        assert part["velocities"].shape == (1, 3, 1)
        assert part["status"].tolist() == [0]
    if in_folder:
        argv[argv.index("--checkpoint")] = "--resume"
        assert main(argv) == 0
        with np.load(out) as whole:
            assert whole["velocities"].shape == (3, 3, 1)


@pytest.mark.parametrize("after", [0.2, 1.0, 2.0])
def test_an_interrupt_while_compiling_ends_the_program_with_130(after):
    """Before, XLA's threads read what Python had freed at the end of the process: a segmentation fault."""
    argv = ["rollout", "branched_tree:2x3", "--no-cache", "--batch", "2000", "--store", "none"]
    command = [sys.executable, "-m", "lgjax", *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "compiling" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.strip() == "lgjax: error: interrupted"


@pytest.mark.parametrize("setting", ["", "NO_COLOR", "TERM"])
def test_a_terminal_shows_colors(setting, capsys, monkeypatch):
    for name, value in (("NO_COLOR", setting and "1"), ("TERM", "dumb" if setting == "TERM" else "xterm")):
        monkeypatch.setenv(name, value)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(["info", "nothing"]) == 2
    for argv in (["rollout", "--nothing"], []):
        with pytest.raises(SystemExit):
            main(argv)
    out, err = capsys.readouterr()
    bold, red, end = ("", "", "") if setting else ("\x1b[1m", "\x1b[1;31m", "\x1b[0m")
    assert f"{bold}usage:{end} lgjax" in out
    assert f"\n{bold}commands:{end}\n" in out
    assert f"lgjax: {red}error:{end} unknown model 'nothing'" in err
    assert f"lgjax: {red}error:{end} unrecognized arguments: --nothing" in err


def test_a_command_says_what_it_is_doing_before_it_is_done(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["rollout", "chain:1", *(option for option in TINY if option != "--quiet")]) == 0
    err = capsys.readouterr().err
    messages = ("lgjax: chain:1, batch 3, 4 steps\n", "lgjax: tracing\n", "lgjax: compiling, about ", " 0/3 ")
    places = [err.index(message) for message in messages]
    assert places == sorted(places)
    assert logging.getLogger("lgjax").handlers == []


def test_no_bar_fills_a_file(capsys):
    """Where stderr is no terminal, there is a line for each message and nothing else."""
    assert main(["rollout", "chain:1", *(option for option in TINY if option != "--quiet")]) == 0
    err = capsys.readouterr().err
    assert "\r" not in err
    assert "3/3" not in err
    assert all(line.startswith("lgjax: ") for line in err.splitlines())


@pytest.mark.slow
def test_the_first_command_of_the_readme_runs_at_its_size(tmp_path, capsys):
    """A thousand randomized quadrupeds have arrays that XLA computes in parts on several threads."""
    out = tmp_path / "quadruped.npz"
    argv = ["rollout", "quadruped", "--batch", "1024", "--steps", "2", "--no-cache", "--quiet", "--out", str(out)]
    assert main(argv) == 0, capsys.readouterr().err
    assert np.isfinite(np.load(out)["joints"]).all()


def test_the_same_seed_gives_the_same_file(tmp_path):
    contents = []
    for seed in ("1", "1", "2"):
        assert main(["rollout", "chain:1", *TINY, "--seed", seed, "--out", str(tmp_path / "x.npz")]) == 0
        with np.load(tmp_path / "x.npz") as file:
            contents.append(file["joints"])
    np.testing.assert_array_equal(contents[0], contents[1])
    assert np.all(contents[0] != contents[2])


def test_a_run_that_leaves_the_finite_numbers_fails(capsys):
    assert main(["rollout", "chain:2", *TINY, "--dt", "1e30", "--dtype", "float32"]) == 1
    assert "3 of 3 samples are not finite" in capsys.readouterr().err


def test_info_shows_tree_joints_and_masses(capsys, tmp_path):
    assert main(["info", "quadruped"]) == 0
    out = capsys.readouterr().out
    assert "quadruped: 13 bodies, 12 joints, nv 18\ntotal mass 12.52 kg, gravity (0, 0, -9.81) m/s^2" in out
    assert "    FL_thigh   FL_thigh_joint  revolute  [-0.7, 3.9]    0.94\n" in out
    assert "  FL_foot on FL_calf\n" in out
    (tmp_path / "arm.urdf").write_text(models.urdf("arm"))
    assert main(["info", str(tmp_path / "arm.urdf"), "--fixed-base"]) == 0
    fixed = capsys.readouterr().out
    assert main(["info", "arm"]) == 0
    assert fixed.startswith(capsys.readouterr().out)
    assert (
        "\nactuators\n  name    kind   acts on  control range\n  joint1  motor  joint1   unlimited, force [-180, 180]\n"
        in fixed
    )
    assert main(["info", str(tmp_path / "arm.urdf")]) == 0
    floating = capsys.readouterr().out
    assert "8 bodies, 7 joints, nv 13" in floating  # the root has mass
    assert main(["info", str(tmp_path / "arm.urdf"), "--floating-base"]) == 0
    assert capsys.readouterr().out == floating


BAD_INPUT = {
    "model": (["rollout", "horse"], "lgjax: error: unknown model 'horse'; built in: quadruped, arm, chain:N"),
    "method": (["rollout", "--method", "RK5"], "unknown method 'RK5'; known: "),
    "file": (["info", "absent.urdf"], "cannot read robot 'absent.urdf': No such file or directory"),
    "base": (["info", "quadruped", "--fixed-base"], "model 'quadruped' has a base of its own"),
    "ignore": (["info", "arm", "--ignore", "mimic"], "arm: --ignore is for files"),
    "no kind": (["info", "arm", "--ignore", "wheels"], "argument --ignore: invalid choice: 'wheels' (choose from "),
    "packages": (["info", "a.xml", "--packages", "a=b"], "a.xml: --packages is for URDF files"),
    "no package": (["info", "a.urdf", "--packages", "a"], "argument --packages: 'a' is not NAME=FOLDER"),
    "keyframe": (["rollout", "arm", "--keyframe", "home"], "arm has no keyframe 'home'; keyframes: none"),
    "no drives": (["rollout", "arm", "--gain-spread", "1"], "--gain-spread is of actuators, and 'arm' has none"),
    "inertia": (["info", "arm", "--check-inertia", "warn"], "arm: --check-inertia is for files"),
    "includes": (["rollout", "arm", "--folder", "/tmp"], "arm: --folder is for MJCF files"),
    "folder of URDF": (["info", "a.urdf", "--folder", "/tmp"], "a.urdf: --folder is for MJCF files"),
    "batch": (["rollout", "--batch", "0"], "lgjax rollout: error: argument --batch: '0' is not a positive integer"),
    "nan": (["rollout", "--dt", "nan"], "argument --dt: 'nan' is not a positive number"),
    "spread": (["rollout", "--mass-spread", "-1"], "argument --mass-spread: '-1' is not a number of at least 0"),
    "both lengths": (["rollout", "--steps", "1", "--duration", "1"], "argument --duration: not allowed with argument"),
    "short": (["rollout", "--duration", "1e-4", "--dt", "1"], "a duration of 0.0001 s is less than one step of 1 s"),
    "save": (["rollout", "--steps", "10", "--save-every", "3"], "--save-every 3 does not divide the 10 steps"),
    "large": (["info", "chain:99999999999999"], "model 'chain:99999999999999' has more than 100000 bodies"),
    "seed": (["rollout", "--seed", "9" * 20], "argument --seed: '99999999999999999999' is not an integer of at most"),
    "steps": (["rollout", "--steps", "9" * 14], "argument --steps: '99999999999999' is not a positive integer below"),
    "long": (["rollout", "--duration", "1e9", "--dt", "1e-3"], "a duration of 1e+09 s is too many steps of 0.001"),
    "longest": (["rollout", "--duration", "1e300", "--dt", "1e-300"], "a duration of 1e+300 s is too many steps of"),
    "no seed": (["rollout", "--seed", "x"], "argument --seed: 'x' is not an integer of at most 63 bits"),
    "ending": (["rollout", "--plot", "x.zzz"], "cannot write 'x.zzz': figures end in ."),
    "no ending": (["rollout", "--plot", "x"], "cannot write 'x': figures end in ."),
    "page": (["view", "arm", "--html", "/no/such/x.html"], "cannot write '/no/such/x.html': its folder does not"),
    "devices": (["rollout", "chain:1", "--devices", "99"], "--devices 99 asked for, there are "),
    "store": (["rollout", "--store", "none", "--out", "x.npz"], "--out, --plot and --view need states, not --store"),
    "final": (["rollout", "--store", "final", "--plot", "x.png"], "--plot and --view need --store all"),
    "two folders": (["rollout", "--resume", "a", "--checkpoint", "b"], "--checkpoint: not allowed with argument"),
    "no folder": (["rollout", "chain:1", "--checkpoint", "/dev/null/x"], "cannot write to '/dev/null/x': "),
    "folder": (["rollout", "--out", "no/such/x.npz"], "cannot write 'no/such/x.npz': its folder does not exist"),
    "no motion": (["view", "none.npz"], "lgjax: error: 'none.npz' cannot be read: No such file or directory"),
    "view": (["view", "chain:1", "--html", "/proc/x.html"], "cannot open '/proc/x.html': No such file or directory"),
    "times": (["bench", "chain:1", "--json", "/proc"], "cannot write '/proc': it is a folder"),
    "spelling": (["rollout", "chain:1", "--devices", "99"], "error: --devices 99 asked for"),
    "command": (["fly"], "unknown command 'fly'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2(name, capsys):
    argv, message = BAD_INPUT[name]
    code, line = failing(capsys, *argv)
    assert code == 2
    assert message in line


LINK = """<link name="{}"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>"""
FOLLOWER = f"""<robot name="r"><link name="base"/>{LINK.format("a")}{LINK.format("b")}
<joint name="j" type="continuous"><parent link="base"/><child link="a"/></joint>
<joint name="k" type="continuous"><parent link="a"/><child link="b"/><mimic joint="j"/></joint></robot>"""
# What a file needs, and how the command line and a problem of `lgjax optimize` spell it.
NEEDS = {
    "r.urdf": (
        FOLLOWER.replace('<mimic joint="j"/>', '<mimic joint="x"/>'),
        "(--ignore mimic frees all followers)",
        '(ignore = ["mimic"] frees all followers)',
    ),
    "s.urdf": (
        FOLLOWER.replace('ixx="1"', 'ixx="5"').replace('<mimic joint="j"/>', ""),
        "(--check-inertia warn accepts it)",
        '(check_inertia = "warn" accepts it)',
    ),
    "r.xml": (
        "<mujoco><include file='../x.xml'/></mujoco>", "(--folder names another one", "(folder names another one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", ["info", "rollout", "view", "bench", "optimize"])
@pytest.mark.parametrize("name", NEEDS)
def test_the_way_out_is_spelled_as_it_is_written_there(command, name, tmp_path, capsys):
    text, as_option, as_key = NEEDS[name]
    (tmp_path / name).write_text(text)
    problem = tmp_path / "problem.toml"
    problem.write_text(f"model = '{name}'\nsteps = 2\ndt = 0.1\n[goal]\njoints = [0.1, 0.1]")
    code, line = failing(capsys, command, str(problem if command == "optimize" else tmp_path / name))
    assert code == 2
    assert (as_key if command == "optimize" else as_option) in line
    assert "='" not in line.replace("file='", "").replace("joint='", "")


def test_the_way_out_works(tmp_path, capsys):
    """Of mimic joints: none follows, on the command line and in a problem."""
    (tmp_path / "r.urdf").write_text(FOLLOWER)
    assert main(["info", str(tmp_path / "r.urdf")]) == 0
    assert "2 bodies, 2 joints, nv 2" in (shown := capsys.readouterr().out)
    assert "coupling k-j" in shown
    assert main(["info", str(tmp_path / "r.urdf"), "--fixed-base", "--ignore", "mimic"]) == 0
    assert "coupling" not in (shown := capsys.readouterr().out)
    assert shown.endswith("\nignored\n  mimic (--ignore)\n")
    table = {"model": "r.urdf", "floating_base": False, "ignore": ["mimic"], "steps": 2, "dt": 0.1}
    task = optimize.read({**table, "goal": {"joints": [0.1, 0.1]}}, tmp_path)
    assert task.model.joint_names == ("j", "k")
    with pytest.raises(ValueError, match="arm: ignore= is for files"):
        optimize.read({**table, "model": "arm", "goal": {"joints": [0.1, 0.1]}}, tmp_path)


def test_a_run_that_the_system_stops_ends_without_its_numbers(capsys):
    code, line = failing(capsys, "rollout", "chain:1", *TINY, "--checkpoint", "/proc/x")
    assert code == 1
    assert line == "lgjax: error: the run failed: cannot open '/proc/x': No such file or directory\n"


def test_a_pipe_is_not_replaced_by_a_file(tmp_path, capsys):
    """Files appear whole, by a move to their place: what is no ordinary file would be gone."""
    os.mkfifo(tmp_path / "pipe.npz")
    code, line = failing(capsys, "rollout", "chain:1", *TINY, "--out", str(tmp_path / "pipe.npz"))
    assert (code, "pipe.npz': it is no ordinary file" in line) == (2, True)
    assert (tmp_path / "pipe.npz").is_fifo()


def test_bad_files_are_refused(capsys, tmp_path):
    (tmp_path / "a.xml").write_text(
        "<mujoco><worldbody><body><joint name='j'/><geom size='1'/></body></worldbody>"
        "<actuator><muscle joint='j'/></actuator></mujoco>"
    )
    code, line = failing(capsys, "info", str(tmp_path / "a.xml"))
    assert code == 2
    assert "is not supported (--ignore actuator loads the file without actuators)" in line
    assert "in line 1" in line
    assert failing(capsys, "info", str(tmp_path / "a.xml"), "--folder", "no/such") == (
        2, "lgjax: error: --folder no/such is not a folder\n",
    )  # fmt: skip
    code, line = failing(capsys, "info", str(tmp_path / "a.xml"), "--fixed-base")
    assert (code, "an MJCF file says itself whether the base floats" in line) == (2, True)
    (tmp_path / "a.txt").write_text("")
    assert "unknown kind of file; known: .urdf, .xml, .mjcf" in failing(capsys, "info", str(tmp_path / "a.txt"))[1]


@pytest.mark.parametrize("argv", [["--help"], ["rollout", "--help"], ["info", "--help"], ["--version"]])
def test_help_is_there(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 0
    assert "lgjax" in capsys.readouterr().out


def test_help_imports_no_jax_and_is_shown_without_a_command():
    code = "import sys; from lgjax.cli import main\ntry: main({})\nfinally: assert 'jax' not in sys.modules"
    shown = [
        subprocess.run([sys.executable, "-c", code.format(argv)], capture_output=True, text=True, check=True).stdout
        for argv in ([], ["--help"])
    ]
    assert shown[0] == shown[1]
    assert all(f"  {name} " in shown[0] for name in COMMANDS)


NEAR = [
    (["rolout"], "unknown command 'rolout'; ", "did you mean 'rollout'?"),
    (["rollout", "arm", "--bach", "3"], "unrecognized arguments: --bach 3; ", "did you mean '--batch'?"),
    (["--verson"], "unrecognized arguments: --verson; ", "did you mean '--version'?"),
    (["info", "qadruped"], "unknown model 'qadruped'; ", "did you mean 'quadruped'?"),
    (["rollout", "chan:3"], "unknown model 'chan:3'; ", "did you mean 'chain'?"),
    (["rollout", "--method", "rk5"], "unknown method 'rk5'; ", "did you mean 'RK6'?"),
    (["zzzz"], "unknown command 'zzzz'; ", "cache, completion"),
]


@pytest.mark.parametrize(("argv", "what", "hint"), NEAR, ids=[what for _, what, _ in NEAR])
def test_the_nearest_name_is_suggested(argv, what, hint, capsys):
    code, line = failing(capsys, *argv)
    assert code == 2
    assert line.startswith(f"lgjax: error: {what}")
    assert line.endswith(f"{hint}\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_choices_and_files(capsys, tmp_path):
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit && bashcompinit\n_lgjax() {")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "robot.urdf").write_text("")
    script = capsys.readouterr().out + (
        'complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lgjax; echo "${COMPREPLY[@]}"; }\n'
    )

    def completed(*words):
        line = f"complete_words lgjax {' '.join(map(shlex.quote, words))}"
        run = subprocess.run(["bash", "-c", script + line], capture_output=True, text=True, check=True, cwd=tmp_path)
        return run.stdout.split()

    assert completed("ro") == ["rollout"]
    assert completed("completion", "") == ["-h", "--help", "bash", "zsh"]
    assert completed("rollout", "--ba") == ["--batch"]
    assert completed("rollout", "qu") == ["quadruped"]
    assert completed("info", "rob") == ["robot.urdf"]
    assert completed("rollout", "--out", "")[-1:] == ["robot.urdf"]
    assert completed("rollout", "--store", "") == ["all", "final", "none"]
    assert completed("rollout", "--store", "n") == ["none"]
    assert "RK4" in completed("rollout", "--method", "RK")


@pytest.mark.parametrize("command", ["rollout", "bench"])
def test_help_names_defaults_that_say_something(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: quadruped)" in text
    assert not any(f"(default: {x})" in text for x in ("None", "True", "False"))
