"""Springs, dampers, gravity compensation, a fluid and tendons of a compiled MJCF, as numbers."""

from typing import Any

import numpy as np

from lgjax.multibody.importers.description import (
    Damper,
    Ellipsoid,
    Fluid,
    Heavy,
    Spring,
    Tendon,
    Wrap,
)
from lgjax.multibody.importers.mjcf.compiled import Compiled, floats, interval, limited

HARD = 0.9999  # MuJoCo's largest impedance
NARROW = 1e-6  # m, the least width of a stop
LIGHT = 1e-15  # kg, below which MuJoCo leaves a body out of a fluid


def polynomial(m: Any, name: str, index: int) -> tuple[float, ...]:
    """Coefficients of higher order, which older versions do not have."""
    values = getattr(m, f"{name}poly", None)
    return () if values is None else floats(values[index])


def all_passive_off(file: Compiled) -> bool:
    """MuJoCo skips every passive force if springs and dampers are both disabled."""
    return file.disabled("PASSIVE") or (file.disabled("SPRING") and file.disabled("DAMPER"))


def springs(file: Compiled) -> tuple[Spring, ...]:
    if file.disabled("SPRING", "PASSIVE"):
        return ()
    m, found = file.m, []
    for j in range(m.njnt):
        stiffness = (float(m.jnt_stiffness[j]), *polynomial(m, "jnt_stiffness", j))
        where = file.where("joints", j)
        if any(stiffness):
            if getattr(m, "jnt_springyield", np.zeros(m.njnt))[j]:
                raise ValueError(f"joint {where}: springs that yield are not supported")
            found.append(Spring(file.joint(j), stiffness, where))
    return tuple(found)


def dampers(file: Compiled) -> tuple[Damper, ...]:
    """Dampers for the damping of joints beyond its linear part."""
    if file.disabled("DAMPER", "PASSIVE"):
        return ()
    m, found = file.m, []
    for j in range(m.njnt):
        coefficients = polynomial(m, "dof_damping", m.jnt_dofadr[j])
        if any(coefficients):
            found.append(Damper(file.joint(j), coefficients, file.where("joints", j)))
    for i in range(len(m.actuator_trntype)):
        if any(polynomial(m, "actuator_damping", i)):
            raise ValueError(
                f"actuator {file.where('actuators', i)}: nonlinear damping of an actuator is not supported"
            )
    return tuple(found)


def free_armature(file: Compiled) -> tuple[tuple[str, float], ...]:
    m = file.m
    free = [j for j in range(m.njnt) if file.joint_kind(j) == "free" and m.dof_armature[m.jnt_dofadr[j]]]
    return tuple((file.joint(j), float(m.dof_armature[m.jnt_dofadr[j]])) for j in free)


def _heavy(file: Compiled, body: int) -> Heavy:
    m = file.m
    com = file.place(body, m.body_ipos[body], m.body_iquat[body])
    return Heavy(com, float(m.body_mass[body]), floats(m.body_inertia[body]), float(m.body_gravcomp[body]))


def compensated(file: Compiled) -> tuple[Heavy, ...]:
    """Bodies whose weight is carried, or a part of it."""
    m = file.m
    if all_passive_off(file) or file.disabled("GRAVITY"):
        return ()
    for j in range(m.njnt):
        if m.jnt_actgravcomp[j] and m.jnt_actfrclimited[j] and np.any(m.body_gravcomp):
            raise ValueError(
                f"joint {file.where('joints', j)}: gravity compensation by actuators of limited force is not supported"
            )
    return tuple(_heavy(file, body) for body in range(1, m.nbody) if m.body_gravcomp[body] and m.body_weldid[body])


def fluid(file: Compiled) -> Fluid | None:
    m = file.m
    if not (m.opt.density or m.opt.viscosity) or all_passive_off(file):
        return None
    boxes, ellipsoids = [], []
    for body in range(1, m.nbody):
        if not m.body_weldid[body] or m.body_mass[body] < LIGHT:
            continue
        geoms = range(m.body_geomadr[body], m.body_geomadr[body] + m.body_geomnum[body])
        shaped = [geom for geom in geoms if m.geom_fluid[geom, 0] > 0]
        if not shaped:
            boxes.append(_heavy(file, body))
        for geom in shaped:
            axes = np.zeros(3)
            axes[:] = _half_axes(file, geom)
            ellipsoids.append(Ellipsoid(file.geom(geom), floats(axes), floats(m.geom_fluid[geom])))
    return Fluid(float(m.opt.density), float(m.opt.viscosity), floats(m.opt.wind), tuple(boxes), tuple(ellipsoids))


def _half_axes(file: Compiled, geom: int) -> tuple[float, ...]:
    """Half axes of the ellipsoid that MuJoCo puts in the place of a geom."""
    size, kind = file.m.geom_size[geom], file.mujoco.mjtGeom(file.m.geom_type[geom]).name.removeprefix("mjGEOM_")
    if kind == "SPHERE":
        return (float(size[0]),) * 3
    if kind == "CAPSULE":
        return floats([size[0], size[0], size[1] + size[0]])
    if kind == "CYLINDER":
        return floats([size[0], size[0], size[1]])
    return floats(size)


def tendons(file: Compiled) -> tuple[Tendon, ...]:
    return tuple(_tendon(file, i) for i in range(file.m.ntendon))


def _tendon(file: Compiled, i: int) -> Tendon:
    m, where = file.m, file.where("tendons", i)
    springs_on, dampers_on = (not file.disabled(flag, "PASSIVE") for flag in ("SPRING", "DAMPER"))
    stiffness = (float(m.tendon_stiffness[i]), *polynomial(m, "tendon_stiffness", i)) if springs_on else (0.0,)
    damping = (float(m.tendon_damping[i]), *polynomial(m, "tendon_damping", i)) if dampers_on else (0.0,)
    if any(stiffness) and getattr(m, "tendon_springyield", np.zeros(m.ntendon))[i]:
        raise ValueError(f"tendon {where}: springs that yield are not supported")
    path = tuple(_wrap(file, k) for k in range(m.tendon_adr[i], m.tendon_adr[i] + m.tendon_num[i]))
    no_limit = file.disabled("LIMIT", "CONSTRAINT")
    friction = 0.0 if file.disabled("FRICTIONLOSS", "CONSTRAINT") else float(m.tendon_frictionloss[i])
    return Tendon(
        file.tendon(i),
        "fixed" if path[0].kind == "joint" else "spatial",
        path,
        interval(m.tendon_lengthspring[i]),
        stiffness,
        damping,
        friction,
        float(getattr(m, "tendon_armature", np.zeros(m.ntendon))[i]),
        limited(m.tendon_limited[i] and not no_limit, m.tendon_range[i]),
        _stop(m, i),
        float(m.tendon_length0[i]),
        where,
    )


def _stop(m: Any, i: int) -> tuple[float, float, float]:
    """Stiffness, damping and width of a tendon's soft stop.

    MuJoCo's solref gives the time constant T and damping ratio z of the mass 1/w that a tendon moves where the file
    shows it, or negative numbers: 1/(T z)^2 and 2/T without signs. Its impedance d lets the constraint bear all but
    the share 1 - d, so that at rest it gives way as a spring of 1/(T z)^2 / (1 - d) / w; damping likewise.
    """
    first, second = floats(m.tendon_solref_lim[i])
    soft = 1 - min(float(m.tendon_solimp_lim[i, 1]), HARD)
    moved = max(float(m.tendon_invweight0[i]), LIGHT) * soft
    rates = (-first, -second) if min(first, second) <= 0 else (1 / (first * second) ** 2, 2 / first)
    return rates[0] / moved, rates[1] / moved, max(float(m.tendon_solimp_lim[i, 2]), NARROW)


def _wrap(file: Compiled, k: int) -> Wrap:
    m, target, number = file.m, int(file.m.wrap_objid[k]), float(file.m.wrap_prm[k])
    kind = file.mujoco.mjtWrap(m.wrap_type[k]).name.removeprefix("mjWRAP_").lower()
    if kind == "joint":
        return Wrap(kind, file.joint(target), number)
    if kind == "pulley":
        return Wrap(kind, number=number)
    if kind == "site":
        return Wrap(kind, file.name("SITE", target, f"site_{target}"), place=file.site(target))
    side = file.site(round(number)) if number >= 0 else None
    name = file.name("GEOM", target, f"geom_{target}")
    return Wrap(kind, name, float(m.geom_size[target, 0]), file.geom(target), side)
