"""Readers of robot description files, each through a parser from the package index and an extra of its own.

Read first: `source.py`, then `urdf.py`.
"""

from lgjax.multibody.importers.mjcf import load_mjcf
from lgjax.multibody.importers.urdf import load_urdf

__all__ = ["LOADERS", "load_mjcf", "load_urdf"]

# By the ending of a file's name, as the command line takes them.
LOADERS = {".urdf": load_urdf, ".xml": load_mjcf, ".mjcf": load_mjcf}
