"""Deletes from MuJoCo's specification, before it is compiled, what needs files and what nothing here reads."""

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lgjax.multibody.importers.mjcf.bodies import moves
from lgjax.multibody.importers.mjcf.compiled import called
from lgjax.multibody.importers.mjcf.files import Allowed, is_inside, outside
from lgjax.multibody.importers.mjcf.sensors import READ, kind_of
from lgjax.multibody.importers.mjcf.touching import PRIMITIVES

# Elements without use for the model alone, and for a whole robot, in an order in which nothing refers to an element
# already deleted.
OF_MODEL = ("keys", "sensors", "actuators", "tendons", "equalities", "pairs", "tuples", "skins", "cameras", "lights")
OF_ROBOT = ("tuples", "skins", "lights")


# Sensors that feel the weight of bodies which are fixed to the world.
FELT = ("force", "torque", "subtreecom", "subtreelinvel", "subtreeangmom")


class Kept(NamedTuple):
    """Parts of a file that are read.

    whole: all of a robot, or the model alone. hulls: meshes that collide, if their files are there. actuators: of a
    whole robot.
    """

    whole: bool = False
    hulls: bool = False
    actuators: bool = True


class LeftOut(NamedTuple):
    """Parts of a file that are left out: those that a warning names, and the rest."""

    loud: list[str]
    quiet: list[str]


def prune(mujoco: Any, spec: Any, allowed: Allowed, kept: Kept) -> LeftOut:
    """Delete what is not kept, and keep the compiler from moving or fusing bodies."""
    left_out = LeftOut([], [])
    spec.compiler.fusestatic = False
    spec.compiler.alignfree = False
    for joint in spec.joints:
        joint.align = mujoco.mjtAlignFree.mjALIGNFREE_FALSE
    for collection in OF_ROBOT if kept.whole else OF_MODEL:
        for element in list(getattr(spec, collection)):
            spec.delete(element)
    for element in (*spec.sites, *spec.tendons):
        element.material = ""
    if not kept.actuators:
        _prune_actuators(mujoco, spec)
    named = _prune_sensors(mujoco, spec, left_out.quiet) | _wrapped(spec) if kept.whole else set()
    files = {mesh.name or Path(mesh.file).stem: mesh for mesh in spec.meshes}
    _Geoms(mujoco, spec, allowed, kept, named | _paired(spec), files, left_out).prune()
    shapes = {shape.meshname for shape in (*spec.geoms, *spec.sites) if hasattr(shape, "meshname")}
    for name, mesh in files.items():
        if name not in shapes:
            spec.delete(mesh)
        elif hasattr(mesh, "material"):
            mesh.material = ""
    for collection in ("hfields", "materials", "textures"):
        for element in list(getattr(spec, collection)):
            spec.delete(element)
    return left_out


def _prune_actuators(mujoco: Any, spec: Any) -> None:
    """Delete actuators, sensors of them, and what keyframes say of them."""
    for sensor in list(spec.sensors):
        if sensor.objtype == mujoco.mjtObj.mjOBJ_ACTUATOR:
            spec.delete(sensor)
    for key in spec.keys:
        key.ctrl, key.act = np.zeros(0), np.zeros(0)
    for actuator in list(spec.actuators):
        spec.delete(actuator)


def _prune_sensors(mujoco: Any, spec: Any, quiet: list[str]) -> set[str]:
    """Delete sensors that nothing here reads; the names of the geoms that the others are fixed to."""
    geom, named = mujoco.mjtObj.mjOBJ_GEOM, set()
    for sensor in list(spec.sensors):
        kind = kind_of(mujoco, int(sensor.type))
        if kind not in READ:
            quiet.append(f"sensor {called(sensor)} ({kind})")
            spec.delete(sensor)
            continue
        ends = (sensor.objtype, sensor.objname), (sensor.reftype, sensor.refname)
        named |= {name for type_, name in ends if type_ == geom}
    return named


def _wrapped(spec: Any) -> set[str]:
    """Names of the geoms that tendons wrap around."""
    targets = (piece.target for tendon in spec.tendons for piece in getattr(tendon, "path", ()))
    return {target.name for target in targets if target is not None and hasattr(target, "contype")}


def _paired(spec: Any) -> set[str]:
    return {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2)}


def _shape(geom: Any) -> str:
    """A geom in a message: without a name by its mesh and its body, since a line alone says little of many alike."""
    if geom.name or not geom.meshname:
        return called(geom)
    return f"of mesh {geom.meshname!r} on body {geom.parent.name!r} {called(geom)}"


class _Geoms(NamedTuple):
    """Deletion of geoms. named: those that something refers to. meshes: by name."""

    mujoco: Any
    spec: Any
    allowed: Allowed
    kept: Kept
    named: set[str]
    meshes: dict[str, Any]
    left_out: LeftOut

    def prune(self) -> None:
        """Keep the geoms that a mass is computed from, check that the meshes among them can be read, and keep what
        collides, or is referred to, without mass."""
        compiler, inertia = self.spec.compiler, self.mujoco.mjtInertiaFromGeom
        always = compiler.inertiafromgeom == inertia.mjINERTIAFROMGEOM_TRUE
        never = compiler.inertiafromgeom == inertia.mjINERTIAFROMGEOM_FALSE
        low, high = compiler.inertiagrouprange
        # The mass of a fixed body matters only where the file sets the total, or where a sensor feels its weight.
        total = compiler.settotalmass > 0
        felt = any(kind_of(self.mujoco, int(sensor.type)) in FELT for sensor in self.spec.sensors)
        for body in self.spec.bodies:
            moving = moves(body)
            weighed = moving or (body.name != "world" and (total or felt))
            needed = weighed and (always or not (never or body.explicitinertial))
            for geom in list(body.geoms):
                weightless = geom.mass == 0 or (math.isnan(geom.mass) and geom.density == 0)
                if needed and not weightless and low <= geom.group <= high:
                    geom.material = ""
                    if problem := self._problem(geom):
                        if moving or total:
                            raise ValueError(f"body {called(body)} has no <inertial> and needs {problem}")
                        self.left_out.loud.append(f"mass of body {called(body)}, which needs {problem}")
                        self._delete(geom)
                elif self._is_kept(geom, moving):
                    geom.mass, geom.material = 0, ""
                else:
                    self._delete(geom)

    def _is_kept(self, geom: Any, moving: bool) -> bool:
        """Whether a geom without mass is kept for its shape: one fitted to a mesh needs the file."""
        plain = geom.type.name in PRIMITIVES and not geom.meshname
        collides = bool(geom.contype or geom.conaffinity)
        if not self.kept.whole:
            return moving and plain and collides
        if geom.name in self.named and geom.name:
            return plain or geom.type.name == "mjGEOM_PLANE" or (bool(geom.meshname) and not self._problem(geom))
        if plain and geom.fluid_ellipsoid:
            return True
        if not collides:
            return False
        if plain or (geom.type.name == "mjGEOM_PLANE" and not moving):
            return True
        if geom.meshname and self.kept.hulls and moving:
            problem = self._problem(geom)
            if problem:
                self.left_out.loud.append(f"geom {_shape(geom)}: {problem}")
            return not problem
        if not geom.meshname or self.kept.hulls:
            kind = geom.type.name.removeprefix("mjGEOM_").lower()
            self.left_out.loud.append(f"geom {_shape(geom)} ({kind}{'' if moving else ', fixed to the world'})")
        return False

    def _delete(self, geom: Any) -> None:
        for pair in list(self.spec.pairs):
            if geom.name and geom.name in (pair.geomname1, pair.geomname2):
                self.spec.delete(pair)
        self.spec.delete(geom)

    def _problem(self, geom: Any) -> str | None:
        """Why the mesh of a geom cannot be read, as the end of a sentence; None if it can, or if there is none."""
        mesh, spec = self.meshes.get(geom.meshname), self.spec
        if mesh is None or not mesh.file:
            return None
        file = mesh.file.replace("\\", "/")
        path = Path(spec.modelfiledir) / spec.meshdir.replace("\\", "/") / (Path(file).name if spec.strippath else file)
        the_mesh = f"the mesh {geom.meshname!r}, whose file {str(path)!r}"
        if not is_inside(path, self.allowed.folder):
            return f"{the_mesh} {outside(path, self.allowed.folder)}"
        if not self.allowed.attached and not os.path.isfile(path):
            return f"{the_mesh} does not exist"
        return None
