"""`lgjax.time_derivatives` for type checkers. Python does not read this file: `lgjax/__init__.py` says why."""

from lgjax.dynamics.time_derivatives import *  # noqa: F403
