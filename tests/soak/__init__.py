"""Machines that try to break the library, for as long as they are given: `python -m tests.soak --hours 8`.

Read first: `__main__.py`. A part is a function of a seed that does a few minutes of work and says what it tried and
what failed; the same seed does the same. The suite runs one seed of each part (`-m slow`).
"""

import collections
from typing import NamedTuple

# Parts by name: the module and the function, imported when they run.
PARTS = {
    "broken_urdf": "tests.soak.broken_files:urdf",
    "broken_mjcf": "tests.soak.broken_files:mjcf",
    "robots_urdf": "tests.soak.robots:urdf",
    "robots_mjcf": "tests.soak.robots:mjcf",
    "interruptions": "tests.soak.faults:interruptions",
    "full_disks": "tests.soak.faults:full_disks",
    "shut_folders": "tests.soak.faults:shut_folders",
    "spoilt_files": "tests.soak.faults:spoilt_files",
    "clocks": "tests.soak.faults:clocks",
    "short_memory": "tests.soak.faults:short_memory",
    "dying_workers": "tests.soak.faults:dying_workers",
    "robots_motion": "tests.soak.robots:motion",
    "long_symplectic": "tests.soak.endurance:symplectic",
    "long_variational": "tests.soak.endurance:variational",
    "long_tree": "tests.soak.endurance:tree",
    "long_ensemble": "tests.soak.endurance:ensemble",
    "doors": "tests.soak.doors:part",
    "gradients": "tests.soak.gradients:part",
    "identification": "tests.soak.identification:rates",
}


class Result(NamedTuple):
    """What one call of a part tried, by kind of outcome, and a line for each failure."""

    counts: collections.Counter[str]
    failures: list[str]
