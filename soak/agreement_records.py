"""What a run of `agreements.py` found, kept line by line, and what it comes to."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from lxml import etree

import lgjax

TOLERANCE = 1e-10
# Parts of a compiled MJCF that what is compared depends on.
COMPARED = ("body_", "jnt_", "dof_", "actuator_", "tendon_", "wrap_", "sensor_", "site_", "eq_", "key_", "qpos", "cam_")
OPTIONS = ("gravity", "density", "viscosity", "wind", "magnetic", "disableflags", "disableactuator", "timestep")
READERS = {"urdf": "Pinocchio", "mjcf": "MuJoCo"}


class Records:
    """Records of files, in memory and in a file of one JSON a line. What was begun and has none was cut off."""

    def __init__(self, path: Path | None, say: Callable[[str], None]):
        self.path, self.say = path, say
        self.found: dict[str, dict[str, Any]] = {}
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        for record in map(json.loads, lines):
            self.found[record["key"]] = record

    def begun(self, form: str, path: Path) -> bool:
        """Whether a file needs no further try: it has a record, or has been begun twice; from now on it is begun."""
        key = f"{form} {path}"
        tries = self.found.get(key, {"begun": 0}).get("begun", 2)
        if tries < 2:
            self._write({"key": key, "raised": "the process ended", "begun": tries + 1})
        return tries == 2

    def add(self, form: str, path: Path, record: dict[str, Any]) -> None:
        self._write({"key": f"{form} {path}"} | record)
        self.say(f"{form} {_short(str(path))}: {_words(record)}")

    def _write(self, record: dict[str, Any]) -> None:
        self.found[record["key"]] = record
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")

    def with_print(self, mark: str) -> dict[str, Any] | None:
        """The record of a file that is the same in all that is compared."""
        return next((one for one in self.found.values() if one.get("print") == mark and "refusals" in one), None)

    def of(self, form: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for key, record in self.found.items():
            if key.startswith(f"{form} "):
                yield _short(key.partition(" ")[2]), record


def fingerprint(form: str, path: Path, theirs: Any) -> str:
    """The same for files whose readers have the same numbers in all that is compared."""
    if form == "urdf":
        return hashlib.sha1(path.read_bytes()).hexdigest()
    found = hashlib.sha1(theirs.names)
    shapes = bool(theirs.opt.density or theirs.opt.viscosity or theirs.ntendon or theirs.nsensor)
    for name in sorted(dir(theirs)):
        if name.startswith((*COMPARED, "geom_")) and (shapes or not name.startswith("geom_")):
            found.update(name.encode() + np.asarray(getattr(theirs, name)).tobytes())
    for name in OPTIONS:
        found.update(np.asarray(getattr(theirs.opt, name)).tobytes())
    return found.hexdigest()


def dropped_of_urdf(robot: lgjax.Robot, content: bytes) -> list[str]:
    """Elements of a URDF that the robot has not, and does not list in `ignored`, by count of their kind."""
    root = etree.fromstring(content.lstrip(), etree.XMLParser(recover=True, resolve_entities=False))
    moving = [joint for joint in root.findall("joint") if joint.get("type") != "fixed"]
    shapes = [shape for shape in root.findall("link/collision/geometry/*") if isinstance(shape.tag, str)]
    geared = [name for name in root.xpath("transmission/joint/@name") if name in {x.get("name") for x in moving}]
    driven = [x for x in moving if x.get("type") in ("revolute", "continuous", "prismatic") and x.find("mimic") is None]
    motors = [x for x in driven if not geared or x.get("name") in geared]
    touch = robot.contacts
    counts = {
        "joint": (len(moving), sum(name in {x.get("name") for x in moving} for name in robot.model.tree.joint_names)),
        "mimic": (sum(joint.find("mimic") is not None for joint in moving), _rows(robot)),
        "motor": (len(motors), 0 if robot.actuators is None else len(robot.actuators)),
        "collision": (len(shapes), len(touch.shapes) + len(touch.fixed) + len(touch.grounds)),
    }
    return _missing(robot, counts, Counter("collision" for entry in robot.ignored if "<collision>" in entry))


def silently_dropped(robot: lgjax.Robot, theirs: Any) -> list[str]:
    """Parts of MuJoCo's model that the robot has not, and does not list in `ignored`, by count of their kind."""
    off = lambda flag: bool(theirs.opt.disableflags & getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}").value)
    listed = Counter(entry.split()[0] for entry in robot.ignored)
    names = lambda kind: () if kind is None else kind.names
    group = lambda i: theirs.actuator_group[i]
    asleep = [i for i in range(theirs.nu) if 0 <= group(i) < 31 and theirs.opt.disableactuator >> group(i) & 1]
    collide = [i for i in range(theirs.ngeom) if theirs.geom_contype[i] or theirs.geom_conaffinity[i]]
    touch = robot.contacts
    shapes = len(touch.shapes) + len(touch.grounds) + len(touch.fixed)
    counts = {
        "joint": (theirs.njnt, robot.model.nbodies),
        "actuator": (0 if off("ACTUATION") else theirs.nu - len(asleep), len(names(robot.actuators))),
        "sensor": (0 if off("SENSOR") else theirs.nsensor, len(names(robot.sensors))),
        "equality": (0 if off("EQUALITY") or off("CONSTRAINT") else int(theirs.eq_active0.sum()), _rows(robot)),
        "keyframe": (theirs.nkey, len([name for name in robot.keyframes if name != "initial"])),
        "geom": (0 if off("CONTACT") or off("CONSTRAINT") else len(collide), shapes),
        "pair": (theirs.npair, len(touch.pairs)),
        "exclude": (theirs.nexclude, len(touch.excludes)),
        "mocap": (theirs.nmocap, len(robot.mocap)),
    }
    return _missing(robot, counts, listed)


def _missing(robot: lgjax.Robot, counts: dict[str, tuple[int, int]], listed: Counter[str]) -> list[str]:
    return [
        f"{there - here} of {there} {kind}s, {listed[kind]} listed"
        for kind, (there, here) in counts.items()
        if there > here + listed[kind] and f"{kind} (ignore=)" not in robot.ignored
    ]


def _rows(robot: lgjax.Robot) -> int:
    """Equalities of a robot: loops that couple many joints or tendons count as many."""
    count = 0
    for loop in robot.loops:
        sizes = [len(x) for x in (getattr(loop, "names", None), getattr(loop, "joints", None)) if x is not None]
        count += max([1, *sizes])
    return count


def _short(path: str) -> str:
    """A path without what is different on another machine."""
    return "/".join(path.split("/")[-4:])


def _words(record: dict[str, Any]) -> str:
    if "said" in record:
        return record["said"]
    for key in ("unreadable", "raised"):
        if key in record:
            return f"{key}: {record[key]}"
    if not record.get("loaded"):
        return "refused" if record.get("moves") else "refused: nothing moves"
    dropped = f"; DROPPED {', '.join(record['dropped'])}" if record["dropped"] else ""
    if "errors" not in record:
        return "loaded, not compared" + dropped
    return ", ".join(f"{name} {error:.1e}" for name, error in record["errors"].items()) + dropped


def _kind_of(message: str, name: str) -> str:
    """A message without names and numbers, so that those of one kind are the same."""
    text = message.replace(name, "FILE")
    return re.sub(r"'[^']*'|[-+]?\d[\d.e+-]*", "*", text)[:160]


def summary(form: str, records: Records) -> Iterator[str]:
    """Lines that say what all records of a form come to."""
    every = list(records.of(form))
    readable = [(name, one) for name, one in every if "unreadable" not in one]
    movers = [(name, one) for name, one in readable if one.get("moves", True)]
    loaded = [(name, one) for name, one in movers if one.get("loaded")]
    how = Counter(one["loaded"] for _, one in loaded)
    share = lambda count: f"{count} ({100 * count / max(len(movers), 1):.1f} %)"
    yield f"{form}: {len(every)} files; {READERS[form]} reads {len(readable)}, {len(movers)} of them move"
    yield f"  whole load {share(len(loaded) - how['in part'])}: {how['by default']} by default, {how['as published']}"
    yield f"    with inertias as published; {how['in part']} more without a part that the message lets one leave out"
    single = [(name, one) for name, one in readable if not one.get("moves", True) and one.get("loaded")]
    yield f"  of the other {len(readable) - len(movers)} load {len(single)}, as bodies that float"
    for what, some in (("refused", movers), ("refused by default", loaded)):
        kinds = Counter(
            _kind_of(one["refusals"][-1 if what == "refused" else 0], name.split("/")[-1])
            for name, one in some
            if one.get("refusals") and (what != "refused" or not one.get("loaded"))
        )
        for kind, count in kinds.most_common():
            yield f"  {what}: {count} times {kind}"
    loaded += single
    dropped = [(name, one["dropped"]) for name, one in loaded if one["dropped"]]
    yield f"  silently dropped something: {len(dropped)}"
    yield from (f"    {name}: {', '.join(what)}" for name, what in dropped)
    yield from _agreeing(loaded)


def _agreeing(loaded: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    judged = [(name, one["errors"]) for name, one in loaded if "errors" in one]
    reasons = {name: f"; {one['reason']}" for name, one in loaded if one.get("reason")}
    good = [max(errors.values(), default=0) < TOLERANCE for _, errors in judged]
    yield f"  compared {len(judged)}, of which {sum(good)} agree to {TOLERANCE:g}"
    for kind in dict.fromkeys(kind for _, errors in judged for kind in errors):
        values = [errors[kind] for _, errors in judged if kind in errors]
        less = sum(value < TOLERANCE for value in values)
        yield f"    {kind}: {less} of {len(values)} agree; median {np.median(values):.1e}, largest {max(values):.1e}"
    for (name, errors), fine in zip(judged, good, strict=True):
        if not fine:
            bad = ", ".join(f"{kind} {error:.1e}" for kind, error in errors.items() if not error < TOLERANCE)
            yield f"  differs: {name}: {bad}{reasons.get(name, '')}"
    yield from (f"  not compared: {name}" for name, one in loaded if one.get("incomparable"))
    yield from (f"  raised: {name}: {one['raised']}" for name, one in loaded if "raised" in one)
