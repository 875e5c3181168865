"""`lgjax.sensors` for type checkers. Python does not read this file: `lgjax/__init__.py` says why."""

from lgjax.robots.sensors import *  # noqa: F403
