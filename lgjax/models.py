"""`lgjax.models` for type checkers. Python does not read this file: `lgjax/__init__.py` says why."""

from lgjax.multibody.models import *  # noqa: F403
