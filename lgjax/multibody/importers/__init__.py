"""Readers of robot description files, each through a parser from the package index and an extra of its own."""

from lgjax.multibody.importers.mjcf import load_mjcf
from lgjax.multibody.importers.urdf import load_urdf

__all__ = ["load_mjcf", "load_urdf"]
