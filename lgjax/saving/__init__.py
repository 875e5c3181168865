"""Results on disk: arrays that appear whole or not at all, and long runs that continue where they stopped.

Read first: `arrays.py`, then `checkpoint.py`.
"""

from lgjax.saving.checkpoint import Checkpoint

__all__ = ["Checkpoint"]
