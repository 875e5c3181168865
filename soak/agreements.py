"""`python -m soak.agreements`: what `lgjax.load_robot` makes of robot files beside MuJoCo and Pinocchio.

Of all files in installed packages that the reader of their form reads: which load, and how far mass matrices, forces,
actuators, tendons and sensors are from the reader's at random states. With `--driven`: motions, see `driven.py`; with
`--held`: equalities, see `held.py`. What is found is kept in a file, line by line, so that a run that was ended goes on
where it was. Read first: `beside_mujoco.py`, `beside_pinocchio.py`, `agreement_records.py`.
"""

import argparse
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

import lgjax
from soak import packages
from soak.agreement_records import Records, dropped_of_urdf, fingerprint, silently_dropped, summary
from soak.answers import Answer
from soak.beside_mujoco import beside_mujoco, described
from soak.beside_pinocchio import beside_pinocchio
from soak.robots import _quiet
from soak.second_readers import by_pinocchio, without_looks
from tests import conftest

OUT = r"ignore=\(([^)]*)\)"  # in a message: what may be left out
MEMORY = 5e9  # bytes of this process after which it forgets what it compiled


def loaded(form: str, path: Path) -> tuple[lgjax.Robot | None, dict[str, Any], list[str]]:
    """The robot, None where it is refused; the arguments that it took beside the path; the messages of refusals.

    Each further try does what the message before it names as the way out. An MJCF may take files from all of its
    package.
    """
    way: dict[str, Any] = {"folder": packages.folder_of(path)} if form == "mjcf" else {}
    refusals: list[str] = []
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                return lgjax.load_robot(path, **way), way, refusals
        except ValueError as error:
            message = str(error)
        refusals.append(message.replace(str(path), path.name))
        left_out = way.get("ignore", ()) + tuple(re.findall(r"'(\w+)'", "".join(re.findall(OUT, message))))
        further = way | ({"ignore": left_out} if left_out else {})
        further |= {"check_inertia": "warn"} if "check_inertia='warn'" in message else {}
        if further == way:
            return None, way, refusals
        way = further


def read_by_other(form: str, path: Path, floats: bool = False) -> Any:
    """What the second reader of the form reads; ValueError if it does not."""
    if form == "urdf":
        return by_pinocchio(without_looks(path.read_bytes()), floats)
    with _quiet():
        return mujoco.MjModel.from_xml_path(str(path))


def compared(
    form: str, path: Path, robot: lgjax.Robot, theirs: Any, ignore: tuple[str, ...], seed: int, count: int
) -> list[Answer] | None:
    if form == "mjcf":
        description = described(path, packages.folder_of(path), frozenset(ignore))
        answers = beside_mujoco(robot, description, theirs, seed, count)
        return [answer for answer in answers if not ignore or answer.name == "mass matrix"]
    free = [kind.name for kind in robot.model.tree.kinds].count("free")
    if free > sum(joint.shortname() == "JointModelFreeFlyer" for joint in theirs.joints):
        theirs = read_by_other(form, path, floats=True)
    return beside_pinocchio(robot, theirs, seed, count)


def judge(form: str, path: Path, records: Records, seed: int, count: int) -> dict[str, Any]:
    """The record of a file."""
    try:
        theirs = read_by_other(form, path)
    except ValueError as error:
        return {"unreadable": str(error)[:200]}
    found: dict[str, Any] = {"moves": theirs.nv > 0}
    robot, way, refusals = loaded(form, path)
    found["refusals"] = refusals
    if robot is None:
        return found
    ignored = way.get("ignore", ())
    found |= {"loaded": "in part" if ignored else "as published" if refusals else "by default"}
    urdf = form == "urdf"
    found |= {"dropped": dropped_of_urdf(robot, path.read_bytes()) if urdf else silently_dropped(robot, theirs)}
    found["print"] = fingerprint(form, path, theirs)
    if twin := records.with_print(found["print"]):
        return found | {key: twin[key] for key in ("errors", "raised", "reason", "incomparable") if key in twin}
    try:
        answers = compared(form, path, robot, theirs, ignored, seed, count)
    except Exception as error:  # of any kind: the next files are judged all the same
        return found | {"raised": f"{type(error).__name__}: {error}"[:500]}
    if answers is None:
        return found | {"incomparable": True}
    errors = {answer.name: answer.error for answer in answers}
    return found | {"errors": errors, "reason": reason(theirs) if form == "mjcf" else ""}


def reason(theirs: Any) -> str:
    """Why MuJoCo's numbers are known to be less exact than its arithmetic, if they are."""
    apart = float(np.abs(theirs.body_ipos[theirs.body_simple > 0]).max(initial=0))
    if not apart:
        return ""
    return f"MuJoCo takes a center of mass that is {apart:.1g} m from its joint to be there (body_simple)"


def judge_all(forms: list[str], pattern: str, keep: Records, seed: int, count: int) -> None:
    for form in forms:
        for path in packages.files(form):
            if pattern not in str(path) or keep.begun(form, path):
                continue
            begun = time.monotonic()
            record = judge(form, path, keep, seed, count)
            keep.add(form, path, record | {"seconds": round(time.monotonic() - begun, 2)})
            if conftest.resident() > MEMORY:
                conftest.forget()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.agreements", description=__doc__)
    parser.add_argument("--form", action="append", choices=("urdf", "mjcf"), help="this form alone")
    parser.add_argument("--states", type=int, default=100, help="random states of each robot")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", help="only files with this in their path")
    parser.add_argument("--keep", type=Path, help="a file of what was found; a run goes on with it")
    parser.add_argument("--driven", action="store_true", help="motions of driven robots instead")
    parser.add_argument("--held", action="store_true", help="robots with equalities in the stiff limit instead")
    arguments = parser.parse_args()
    say: Callable[[str], None] = lambda line: print(line, flush=True)  # noqa: T201
    forms = arguments.form or ["urdf", "mjcf"]
    keep = Records(arguments.keep, say)
    if arguments.driven:
        from soak.driven import drive_all

        return drive_all(arguments.match, keep, say)
    if arguments.held:
        from soak.held import hold_all

        return hold_all(arguments.match, keep, say)
    judge_all(forms, arguments.match, keep, arguments.seed, arguments.states)
    for form in forms:
        for line in summary(form, keep):
            say(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
