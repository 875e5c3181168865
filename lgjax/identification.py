"""`lgjax.identification` for type checkers. Python does not read this file: `lgjax/__init__.py` says why."""

from lgjax.simulate.identification import *  # noqa: F403
