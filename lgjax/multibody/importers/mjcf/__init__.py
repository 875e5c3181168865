"""MJCF. Read first: `loading.py`, the order of the steps, then `prune.py` and `compiled.py`."""

from lgjax.multibody.importers.mjcf.loading import load_mjcf

__all__ = ["load_mjcf"]
