"""`lgjax.control` for type checkers. Python does not read this file: `lgjax/__init__.py` says why."""

from lgjax.simulate.control import *  # noqa: F403
