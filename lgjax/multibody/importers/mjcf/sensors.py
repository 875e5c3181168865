"""Sensors of a compiled MJCF, as numbers."""

from typing import Any

from lgjax.multibody.importers.description import Measure, Place
from lgjax.multibody.importers.mjcf.compiled import Compiled, floats

# MuJoCo's names of the sensors that are read; the others need rays, images or distances of geoms.
READ = (
    *("touch", "accelerometer", "velocimeter", "gyro", "force", "torque", "magnetometer", "jointpos", "jointvel"),
    *("tendonpos", "tendonvel", "actuatorpos", "actuatorvel", "actuatorfrc", "jointactfrc", "tendonactfrc"),
    *("ballquat", "ballangvel", "framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis", "framelinvel"),
    *("frameangvel", "framelinacc", "frameangacc", "subtreecom", "subtreelinvel", "subtreeangmom", "clock"),
    *("e_potential", "e_kinetic"),
)


def kind_of(mujoco: Any, number: int) -> str:
    return mujoco.mjtSensor(number).name.removeprefix("mjSENS_").lower()


def measures(file: Compiled) -> tuple[Measure, ...]:
    m = file.m
    return tuple(_measure(file, i) for i in range(m.nsensor) if not file.disabled("SENSOR"))


def _measure(file: Compiled, i: int) -> Measure:
    m = file.m
    kind = kind_of(file.mujoco, m.sensor_type[i])
    target = _object(file, m.sensor_objtype[i], int(m.sensor_objid[i]))
    reference = _object(file, m.sensor_reftype[i], int(m.sensor_refid[i]))
    shape: tuple[str, tuple[float, ...]] = "", ()
    if kind == "touch":
        site = int(m.sensor_objid[i])
        shape = _geom_kind(file, m.site_type[site]), floats(m.site_size[site])
    delay, every = getattr(m, "sensor_delay", None), getattr(m, "sensor_interval", None)
    return Measure(
        file.name("SENSOR", i, f"sensor_{i}"),
        kind,
        target,
        reference if isinstance(reference, Place) else None,
        float(m.sensor_noise[i]),
        float(m.sensor_cutoff[i]),
        0.0 if delay is None else float(delay[i]),
        () if every is None else floats(every[i]),
        shape,
        file.where("sensors", i),
    )


def _geom_kind(file: Compiled, number: int) -> str:
    return file.mujoco.mjtGeom(number).name.removeprefix("mjGEOM_").lower()


def _object(file: Compiled, kind: int, index: int) -> Place | str | None:
    """A frame, or the name of a joint, a tendon or an actuator; of the whole robot None."""
    m, name = file.m, file.mujoco.mjtObj(kind).name.removeprefix("mjOBJ_")
    if index < 0:
        return None
    if name == "XBODY":
        return file.place(index, (0, 0, 0))
    if name == "BODY":
        return file.place(index, m.body_ipos[index], m.body_iquat[index])
    if name == "CAMERA":
        return file.place(m.cam_bodyid[index], m.cam_pos[index], m.cam_quat[index])
    frames = {"SITE": file.site, "GEOM": file.geom}
    named = {"JOINT": file.joint, "TENDON": file.tendon}
    if name in frames:
        return frames[name](index)
    if name in named:
        return named[name](index)
    return file.name("ACTUATOR", index, f"actuator_{index}") if name == "ACTUATOR" else None
