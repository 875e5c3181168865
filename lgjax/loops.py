"""`lgjax.loops` for type checkers. Python does not read this file: `lgjax/__init__.py` says why."""

from lgjax.dynamics.loops import *  # noqa: F403
