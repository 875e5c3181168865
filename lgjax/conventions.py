"""`lgjax.conventions` for type checkers. Python does not read this file: `lgjax/__init__.py` says why."""

from lgjax.multibody.conventions import *  # noqa: F403
