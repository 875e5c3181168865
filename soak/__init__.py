"""Machines that try to break the library, for as long as they are given: `python -m soak --hours 8`.

Read first: `__main__.py`. A part is a function of a seed that does a few minutes of work and says what it tried and
what failed; the same seed does the same. The suite runs one seed of each part (`-m slow`).
"""

import collections
from typing import NamedTuple

# Parts by name: the module and the function, imported when they run.
PARTS = {
    "broken_urdf": "soak.broken_files:urdf",
    "broken_mjcf": "soak.broken_files:mjcf",
    "robots_urdf": "soak.robots:urdf",
    "robots_mjcf": "soak.robots:mjcf",
    "interruptions": "soak.faults:interruptions",
    "full_disks": "soak.faults:full_disks",
    "shut_folders": "soak.faults:shut_folders",
    "spoilt_files": "soak.faults:spoilt_files",
    "clocks": "soak.faults:clocks",
    "short_memory": "soak.faults:short_memory",
    "dying_workers": "soak.faults:dying_workers",
    "robots_motion": "soak.robots:motion",
    "long_symplectic": "soak.endurance:symplectic",
    "long_variational": "soak.endurance:variational",
    "long_tree": "soak.endurance:tree",
    "long_ensemble": "soak.endurance:ensemble",
    "doors": "soak.doors:part",
    "gradients": "soak.gradients:part",
    "identification": "soak.identification:rates",
}


class Result(NamedTuple):
    """What one call of a part tried, by kind of outcome, and a line for each failure."""

    counts: collections.Counter[str]
    failures: list[str]
