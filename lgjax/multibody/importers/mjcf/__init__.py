"""MJCF. Read first: `loading.py`, the order of the steps; `files.py` checks what a file names before MuJoCo reads it."""

from lgjax.multibody.importers.mjcf.loading import load_mjcf

__all__ = ["load_mjcf"]
