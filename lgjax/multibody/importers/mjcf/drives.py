"""Actuators and keyframes of a compiled MJCF, as numbers."""

from typing import Any

import numpy as np

from lgjax.multibody.importers.description import Drive, Key, Place
from lgjax.multibody.importers.mjcf.compiled import Compiled, floats, interval, limited

TRANSMISSIONS = {
    "JOINT": "joint",
    "JOINTINPARENT": "joint_in_parent",
    "TENDON": "tendon",
    "SITE": "site",
    "SLIDERCRANK": "slider_crank",
}


def drives(file: Compiled) -> tuple[Drive, ...]:
    """All actuators that the file does not disable."""
    m = file.m
    if file.disabled("ACTUATION"):
        return ()
    return tuple(_drive(file, i) for i in range(len(m.actuator_trntype)) if not _group_is_off(m, i))


def _group_is_off(m: Any, i: int) -> bool:
    group = int(m.actuator_group[i])
    return 0 <= group < 31 and bool(int(m.opt.disableactuator) >> group & 1)


def _drive(file: Compiled, i: int) -> Drive:
    m, where = file.m, file.where("actuators", i)
    enums = zip(("Gain", "Bias", "Dyn"), (m.actuator_gaintype, m.actuator_biastype, m.actuator_dyntype), strict=True)
    gain, bias, dynamics = (
        getattr(file.mujoco, f"mjt{kind}")(values[i]).name.removeprefix(f"mj{kind.upper()}_").lower()
        for kind, values in enums
    )
    controls = int(getattr(m, "actuator_ctrlnum", np.ones(i + 1))[i])
    if getattr(m, "actuator_plugin", np.full(i + 1, -1))[i] >= 0 or controls != 1 or m.actuator_actnum[i] > 1:
        raise ValueError(f"actuator {where}: actuators with several controls or activations are not supported")
    transmission, targets = _transmission(file, i)
    history = getattr(m, "actuator_history", np.zeros((i + 1, 2)))[i]
    clamped = m.actuator_ctrllimited[i] and not file.disabled("CLAMPCTRL")
    return Drive(
        file.name("ACTUATOR", i, f"actuator_{i}"),
        transmission,
        targets,
        floats(m.actuator_gear[i]),
        (gain, floats(m.actuator_gainprm[i])),
        (bias, floats(m.actuator_biasprm[i])),
        (dynamics, floats(m.actuator_dynprm[i])),
        limited(clamped, m.actuator_ctrlrange[i]),
        limited(m.actuator_forcelimited[i], m.actuator_forcerange[i]),
        limited(m.actuator_actlimited[i], m.actuator_actrange[i]),
        bool(m.actuator_actearly[i]),
        float(getattr(m, "actuator_delay", np.zeros(i + 1))[i]),
        int(history[0]),
        int(history[1]),
        float(m.actuator_cranklength[i]),
        where,
    )


def _transmission(file: Compiled, i: int) -> tuple[str, tuple[str | Place, ...]]:
    kind = file.mujoco.mjtTrn(file.m.actuator_trntype[i]).name.removeprefix("mjTRN_")
    first, second = map(int, file.m.actuator_trnid[i])
    if kind in ("JOINT", "JOINTINPARENT"):
        return TRANSMISSIONS[kind], (file.joint(first),)
    if kind == "TENDON":
        return TRANSMISSIONS[kind], (file.tendon(first),)
    return TRANSMISSIONS[kind], (file.site(first), *([file.site(second)] if second >= 0 else []))


def keys(file: Compiled) -> tuple[Key, ...]:
    """Keyframes, with controls and activations of the actuators that are read."""
    m = file.m
    on = [i for i in range(len(m.actuator_trntype)) if not _group_is_off(m, i) and not file.disabled("ACTUATION")]
    active = [int(m.actuator_actadr[i]) for i in on if m.actuator_actadr[i] >= 0]
    return tuple(
        Key(
            file.name("KEY", k, f"key_{k}"),
            m.key_qpos[k].copy(),
            m.key_qvel[k].copy(),
            m.key_ctrl[k, on].copy(),
            m.key_act[k, active].copy(),
        )
        for k in range(m.nkey)
    )


def joint_ranges(file: Compiled) -> tuple[tuple[str, tuple[float, float]], ...]:
    """Ranges of the sum of the forces of all actuators at joints that have one."""
    m = file.m
    return tuple((file.joint(j), interval(m.jnt_actfrcrange[j])) for j in range(m.njnt) if m.jnt_actfrclimited[j])
