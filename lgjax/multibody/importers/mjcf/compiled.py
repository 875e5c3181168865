"""A file as MuJoCo's compiler leaves it: names, rotations, flags, and the line where each element stands."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lgjax.multibody.importers.description import Place


def disabled(mujoco: Any, option: Any, *names: str) -> bool:
    """Whether one of the flags (which differ between MuJoCo's versions) is disabled in the file."""
    bits = [getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", None) for name in names]
    return any(option.disableflags & bit.value for bit in bits if bit is not None)


def called(element: Any) -> str:
    """An element of the specification in an error: its name if it has one, and its line."""
    return f"{element.name!r} in {element.info}" if element.name else f"in {element.info}"


@dataclass(frozen=True)
class Compiled:
    """MuJoCo's module, its specification of the file, and the model m that it compiled from it."""

    mujoco: Any
    spec: Any
    m: Any

    def disabled(self, *names: str) -> bool:
        return disabled(self.mujoco, self.m.opt, *names)

    def where(self, kind: str, index: int) -> str:
        """An element of one of the specification's lists ("joints", "tendons", ...) in an error."""
        element = next(element for element in getattr(self.spec, kind) if element.id == index)
        return called(element)

    def name(self, kind: str, index: int, made_up: str) -> str:
        """The name in the file, or the one made up, made different from those in the file; kind: "BODY", ...."""
        type_ = getattr(self.mujoco.mjtObj, f"mjOBJ_{kind}")
        name = self.mujoco.mj_id2name(self.m, type_, index)
        if name:
            return name
        while self.mujoco.mj_name2id(self.m, type_, made_up) >= 0:
            made_up += "_"
        return made_up

    def body(self, index: int) -> str:
        return self.name("BODY", index, f"body_{index}")

    def joint(self, index: int) -> str:
        body = self.m.jnt_bodyid[index]
        number = index - self.m.body_jntadr[body] if self.m.body_jntnum[body] > 1 else ""
        return self.name("JOINT", index, f"{self.body(body)}_joint{number}")

    def joint_kind(self, index: int) -> str:
        """ "free", "ball", "slide" or "hinge"."""
        return self.mujoco.mjtJoint(self.m.jnt_type[index]).name.removeprefix("mjJNT_").lower()

    def tendon(self, index: int) -> str:
        return self.name("TENDON", index, f"tendon_{index}")

    def rotation(self, quaternion: Any) -> np.ndarray:
        matrix = np.zeros(9)
        self.mujoco.mju_quat2Mat(matrix, quaternion)
        return matrix.reshape(3, 3)

    def place(self, body: int, position: Any, quaternion: Any = (1, 0, 0, 0)) -> Place:
        """A frame on a body of the file, 0 the world."""
        turn = self.rotation(np.array(quaternion, float))
        return Place(self.body(body) if body else None, np.array(position, float), turn)

    def site(self, index: int) -> Place:
        m = self.m
        return self.place(m.site_bodyid[index], m.site_pos[index], m.site_quat[index])

    def geom(self, index: int) -> Place:
        m = self.m
        return self.place(m.geom_bodyid[index], m.geom_pos[index], m.geom_quat[index])


def floats(values: Any) -> tuple[float, ...]:
    return tuple(float(x) for x in np.ravel(values))


def interval(values: Any) -> tuple[float, float]:
    low, high = floats(values)
    return low, high


def limited(flag: Any, values: Any) -> tuple[float, float] | None:
    """A range, None where nothing is limited."""
    return interval(values) if flag else None
