"""The machines of `soak` find what they are made for, and one seed of each part passes."""

import collections
import sys
from pathlib import Path

import pytest

import soak
from soak import __main__ as command
from soak import agreement_records, agreements, broken_files, packages
from soak.mutations import mutate

LINK = b"<link name='a'><inertial><mass value='1'/></inertial></link>"
ROBOT = b"<robot name='r'>" + LINK + b"<joint name='j' type='fixed'/></robot>"


def test_a_seed_always_does_the_same_and_seeds_differ():
    found = [mutate(ROBOT, seed) for seed in range(200)]
    assert found == [mutate(ROBOT, seed) for seed in range(200)]
    assert len({content for content, _ in found}) > 100


def failing(seed):
    return soak.Result(collections.Counter({"tried": 1}), [f"seed {seed} is bad"] if seed == 3 else [])


def raising(seed):
    raise RuntimeError("broken")


@pytest.mark.parametrize(("part", "seed", "code"), [("failing", 2, 0), ("failing", 3, 1), ("raising", 0, 1)])
def test_failures_are_printed_with_what_reproduces_them(monkeypatch, capsys, part, seed, code):
    monkeypatch.setitem(soak.PARTS, part, f"{__name__}:{part}")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(sys, "argv", ["soak", "--part", part, "--seed", str(seed)])
    assert command.main() == code
    said = capsys.readouterr().out
    assert (f"again: python -m soak --part {part} --seed {seed}" in said) == bool(code)


def test_opening_a_file_in_a_watched_folder_is_seen(tmp_path):
    inside, outside = broken_files.prepare(tmp_path)
    watch = broken_files.Watch(outside)
    assert not watch.seen()
    (inside / "part.xml").read_bytes()
    assert not watch.seen()
    (outside / "secret.xml").read_bytes()
    assert watch.seen()


JUDGED = {
    "another kind of error": (KeyError("x"), "KeyError"),
    "a kind of ValueError": (UnicodeDecodeError("utf-8", b"x", 0, 1, "self.xml"), "UnicodeDecodeError"),
    "two lines": (ValueError("self.xml: a\nb"), "no line"),
    "no name": (ValueError("mass is wrong"), "no line"),
    "endless": (ValueError("self.xml" + "x" * 5000), "no line"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_errors_that_are_none_of_ours_fail(name, tmp_path):
    error, verdict = JUDGED[name]
    assert broken_files._judge(error, tmp_path / "self.xml").startswith(verdict)
    assert broken_files._judge(ValueError("self.xml: link 'a' has no <mass>"), tmp_path / "self.xml") is None


def test_files_of_packages_are_found():
    names = {path.name for path in packages.files("urdf", ("example-robot-data",))}
    assert {"panda.urdf", "talos_reduced.urdf"} <= names


def test_a_robot_that_differs_from_its_reader_is_seen():
    path = packages.OWN / "mechanism.xml"
    robot, way, refusals = agreements.loaded("mjcf", path)
    assert refusals == []
    assert "ignore" not in way
    theirs = agreements.read_by_other("mjcf", path)
    errors = lambda: {x.name: x.error for x in agreements.compared("mjcf", path, robot, theirs, (), 0, 3)}
    assert max(errors().values()) < agreement_records.TOLERANCE
    assert agreement_records.silently_dropped(robot, theirs) == []
    theirs.body_mass[-1] *= 1 + 1e-6
    assert errors()["mass matrix"] > agreement_records.TOLERANCE
    assert agreement_records.silently_dropped(robot.replace(actuators=None), theirs) == ["1 of 1 actuators, 0 listed"]


def test_a_run_of_agreements_goes_on_where_it_was(tmp_path):
    """A file that ends the process is tried once more."""
    path, one, two = tmp_path / "kept", Path("one.xml"), Path("two.xml")
    again = lambda: agreement_records.Records(path, lambda line: None)
    records = again()
    assert not records.begun("mjcf", one)
    records.add("mjcf", one, {"unreadable": "no"})
    assert [again().begun("mjcf", one), again().begun("mjcf", two), again().begun("mjcf", two)] == [True, False, False]
    assert again().begun("mjcf", two)
    assert dict(again().of("mjcf"))["two.xml"]["raised"] == "the process ended"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["broken_urdf", "broken_mjcf"])
def test_mutated_files(part):
    result = command.run(part, 0)
    assert not result.failures
    assert sum(result.counts.values()) == broken_files.CASES
    assert result.counts["same model"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["solo12.urdf", "ur5_gripper.urdf", "romeo_small.urdf"])
def test_robots_agree_with_pinocchio(name):
    from soak import robots

    path = next(path for path in packages.files("urdf", ("example-robot-data",)) if path.name == name)
    assert robots.agreement("urdf", path, 0) == ("agrees", None)


@pytest.mark.slow
def test_an_mjcf_agrees_with_mujoco():
    from soak import robots

    path = next(path for path in packages.files("mjcf", ()) if path.name == "crane.xml")
    assert robots.agreement("mjcf", path, 0) == ("agrees", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "floating"), [("double_pendulum.urdf", False), ("z1.urdf", False), ("solo.urdf", True)]
)
def test_ten_seconds_keep_their_energy(name, floating):
    from soak import robots

    path = next(path for path in packages.files("urdf", ("example-robot-data",)) if path.name == name)
    done, error, _ = robots.energy_error(robots.load("urdf", path, (floating,)), floating, 0)
    assert done
    assert error < robots.ENERGY


@pytest.mark.slow
@pytest.mark.parametrize("part", ["clocks", "short_memory", "shut_folders"])
def test_runs_go_on_after_faults(part, monkeypatch):
    from soak import faults

    monkeypatch.setattr(faults, "TRIALS", 3)
    result = command.run(part, 0)
    assert not result.failures
    assert sum(count for kind, count in result.counts.items() if kind.endswith("equal")) == 3


def test_the_smoke_tests_of_ci_and_the_readme_are_found():
    from soak import versions

    assert all((versions.ROOT / word).exists() for words in versions.smoke_tests() for word in words if "/" in word)
    assert "lgjax.rollout" in versions.twelve_lines()
