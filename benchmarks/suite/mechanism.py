"""A mechanism as MJCF with a start, read once for every program: joints as they are, or bodies in the world."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

HEAD = '<option gravity="{}">{}</option><compiler angle="radian"/><size memory="1M"/>'
APART = '<flag contact="disable"/>'
FREE, BALL, SLIDE, HINGE = 0, 1, 2, 3


class Part(NamedTuple):
    """A body in the world at the start: its axes are those of its inertia, its place is the center of mass."""

    name: str
    mass: float
    inertia: np.ndarray
    rotation: np.ndarray
    position: np.ndarray
    velocity: np.ndarray  # world axes
    omega: np.ndarray  # world axes


class Link(NamedTuple):
    """What holds `child` to `parent` (-1 is the ground): a point and an axis of the world at the start."""

    kind: str  # "spherical", "revolute", "prismatic", or "pin": a point of a plane; the rest is held elsewhere
    parent: int
    child: int
    point: np.ndarray
    axis: np.ndarray


class Tie(NamedTuple):
    """A spring with damper between points of two bodies, in the world at the start."""

    first: int
    second: int
    points: np.ndarray  # (2, 3)
    stiffness: float
    damping: float
    length: float


@dataclass(frozen=True)
class Mechanism:
    """Bodies of an MJCF (the inside of <mujoco>), and MuJoCo's coordinates and velocities of the start."""

    inside: str
    qpos: tuple[float, ...]
    qvel: tuple[float, ...]
    gravity: tuple[float, ...] = (0.0, 0.0, 0.0)
    contact: bool = False

    @property
    def xml(self) -> str:
        head = HEAD.format(" ".join(map(repr, self.gravity)), "" if self.contact else APART)
        return f"<mujoco>{head}{self.inside}</mujoco>"

    @cached_property
    def file(self) -> Any:
        """MuJoCo's model of it."""
        import mujoco

        return mujoco.MjModel.from_xml_string(self.xml)

    def state(self, qpos: Any, qvel: Any) -> np.ndarray:
        """The state from MuJoCo's coordinates: matrices, places of free bodies and angles of joints, velocities."""
        from scipy.spatial.transform import Rotation

        m, balls, joints = self.file, [], []
        for kind, at in zip(m.jnt_type, m.jnt_qposadr, strict=True):
            if kind in (FREE, BALL):
                turn = at + 3 * (kind == FREE)
                balls.append(Rotation.from_quat(qpos[turn : turn + 4], scalar_first=True).as_matrix().ravel())
            if kind == FREE:
                joints.append(qpos[at : at + 3])
            elif kind != BALL:
                joints.append(qpos[at : at + 1])
        return np.concatenate([*balls, *joints, np.asarray(qvel)])

    @property
    def positions(self) -> int:
        """Number of the entries of a state that are positions."""
        return sum({FREE: 12, BALL: 9}.get(int(kind), 1) for kind in self.file.jnt_type)

    def start(self) -> Any:
        """MuJoCo's data of the start."""
        import mujoco

        data = mujoco.MjData(self.file)
        data.qpos[:], data.qvel[:] = self.qpos, self.qvel
        mujoco.mj_forward(self.file, data)
        return data

    @cached_property
    def parts(self) -> list[Part]:
        """All bodies at the start."""
        import mujoco

        m, data, found = self.file, self.start(), []
        for b in range(1, m.nbody):
            twist = np.zeros(6)
            mujoco.mj_objectVelocity(m, data, mujoco.mjtObj.mjOBJ_BODY, b, twist, 0)
            rotation, place = data.ximat[b].reshape(3, 3), data.xipos[b]
            found.append(Part(m.body(b).name, m.body_mass[b], m.body_inertia[b], rotation.copy(), place.copy(),
                              twist[3:].copy(), twist[:3].copy()))  # fmt: skip
        return found

    @cached_property
    def links(self) -> list[Link]:
        """All joints of the tree and, as pins, the sites that its equalities hold together."""
        m, data, found = self.file, self.start(), []
        for j, kind in enumerate(m.jnt_type):
            b = int(m.jnt_bodyid[j])
            name = {BALL: "spherical", HINGE: "revolute", SLIDE: "prismatic"}[int(kind)]
            found.append(Link(name, int(m.body_parentid[b]) - 1, b - 1, data.xanchor[j].copy(), data.xaxis[j].copy()))
        for e in range(m.neq):
            a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
            bodies = [int(m.site_bodyid[s]) - 1 for s in (a, b)]
            found.append(Link("pin", *bodies, data.site_xpos[a].copy(), np.array(found[0].axis)))
        return found

    @cached_property
    def ties(self) -> list[Tie]:
        """The springs: spatial tendons between two sites."""
        m, data, found = self.file, self.start(), []
        for k in range(m.ntendon):
            at = m.tendon_adr[k]
            sites = m.wrap_objid[at : at + 2]
            ends = [int(m.site_bodyid[s]) - 1 for s in sites]
            rest = float(m.tendon_lengthspring[k, 0])
            points = data.site_xpos[sites].copy()
            linear = lambda x, k=k: float(np.ravel(x[k])[0])  # some versions have polynomials of forces
            found.append(Tie(*ends, points, linear(m.tendon_stiffness), linear(m.tendon_damping), rest))
        return found

    def from_bodies(self, rotations: Any, omegas: Any, places: Any = None, velocities: Any = None) -> np.ndarray:
        """The state from the rotations of all bodies (axes of inertia) and angular velocities in the world.

        Places and velocities of centers of mass are read for sliding joints, all of which have a parent.
        """
        m, balls, joints, rates = self.file, [], [], []
        parts = self.parts
        start = self.state(self.qpos, self.qvel)
        hinge = int(np.sum(m.jnt_type == BALL)) * 9
        world = (np.eye(3), np.eye(3), np.zeros(3))
        data = self.start()
        for j, kind in enumerate(m.jnt_type):
            b = int(m.jnt_bodyid[j])
            parent = int(m.body_parentid[b])
            # What the bodies turned since the start, applied to the joint's frames of then.
            now = [(parts[i - 1].rotation, rotations[i - 1], omegas[i - 1]) if i else world for i in (parent, b)]
            turned = [new @ old.T for old, new, _ in now]
            relative = now[1][2] - now[0][2]
            if kind == BALL:
                frame = turned[1] @ data.xmat[b].reshape(3, 3)
                base = turned[0] @ data.xmat[parent].reshape(3, 3)
                balls.append((base.T @ frame).ravel())
                rates.append(frame.T @ relative)
                continue
            axis = turned[0] @ data.xaxis[j]
            if kind == SLIDE:
                here, then = places[b - 1] - places[parent - 1], parts[b - 1].position - parts[parent - 1].position
                drift = velocities[b - 1] - velocities[parent - 1] - np.cross(now[0][2], here)
                joints.append([start[hinge + len(joints)] + axis @ (here - turned[0] @ then)])
                rates.append([axis @ drift])
                continue
            side = np.cross(data.xaxis[j], np.roll(np.eye(3)[np.argmin(np.abs(data.xaxis[j]))], 0))
            side /= np.linalg.norm(side)
            a, c = turned[0] @ side, turned[1] @ side
            joints.append([start[hinge + len(joints)] + np.arctan2(np.cross(a, c) @ axis, a @ c)])
            rates.append([axis @ relative])
        return np.concatenate([*balls, *joints, *rates])
