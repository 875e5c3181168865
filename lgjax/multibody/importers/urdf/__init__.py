"""URDF. Read first: `loading.py`, the order of the steps; `names.py` checks that nothing of a file is lost."""

from lgjax.multibody.importers.urdf.loading import load_urdf

__all__ = ["load_urdf"]
