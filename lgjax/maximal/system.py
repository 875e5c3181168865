"""Rigid bodies in absolute coordinates with joints as constraints: a static structure and arrays as leaves.

Source: [holzinger2024] section 2.2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution.compiled import compiled
from lgjax.groups import SE3, LieGroup, R3xSO3, so3
from lgjax.groups.arguments import takes
from lgjax.groups.r3_so3 import RotationTranslation
from lgjax.groups.se3 import Pose
from lgjax.maximal.build import constraint_arrays, force_arrays, force_members, joint_rows, node_arrays
from lgjax.maximal.forces import BodyMotions, ForceArrays, ForceMembers
from lgjax.maximal.joints import JointArrays, JointRows
from lgjax.maximal.parts import (
    Body,
    Bushing,
    Constraint,
    ForceElement,
    Gravity,
    Joint,
    Load,
    Node,
    Spring,
    TorsionSpring,
    UserConstraint,
    UserForce,
    VectorNode,
)
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.messages import shown

__all__ = [
    "AbsoluteConfiguration",
    "Body",
    "Bushing",
    "Gravity",
    "Joint",
    "Load",
    "Spring",
    "Structure",
    "System",
    "TorsionSpring",
    "UserConstraint",
    "UserForce",
    "VectorNode",
    "compose_rotation_vectors",
]

Array = jax.Array


class AbsoluteConfiguration(NamedTuple):
    """Rotations and positions of all bodies, leaves (N, 3, 3) and (N, 3), and the other coordinates (nx,)."""

    bodies: RotationTranslation | Pose
    coordinates: Array


@dataclass(frozen=True)
class Structure:
    """All that is static: names, the group of a body, rows of joints, members of forces, sizes; hashable.

    `block` says that neither masses nor forces couple bodies and no body lacks inertia, so that the iteration matrix
    can be reduced to the constraints.
    """

    group: LieGroup
    body_names: tuple[str, ...]
    node_names: tuple[str, ...]
    node_sizes: tuple[int, ...]
    joints: JointRows
    users: tuple[tuple[str, Any, int], ...]
    forces: ForceMembers
    block: bool


@jax.tree_util.register_pytree_node_class
class System:
    """N rigid bodies on R³ x SO(3) or SE(3), further coordinates, joints as constraints, forces.

    bodies: `Body` and `VectorNode`; joints: `Joint` and `UserConstraint`; forces: `Gravity`, `Spring`,
    `Bushing`, `TorsionSpring`, `Load` and `UserForce`, in any order.  All numbers become leaves in `dtype` (JAX's
    default): mass (N,), inertia (N, 3, 3) about the centers of mass in body axes, node_masses, joints, user_parameters,
    forces.  They can be traced, batched by vmap and differentiated; `structure` is static.

    Velocities v (nv,) are body by body [ω, v] and then those of the further coordinates: ω in body axes, v the velocity
    of the center of mass, in world axes on R³ x SO(3) and in body axes on SE(3).  Equations: M v̇ = g - Bᵀλ, Φ = 0.
    Raises ValueError, naming the thing and the value, for names that are missing or double, unknown kinds, wrong
    shapes, values that are not finite, inertias that are not positive semi-definite, frames that are not rotations.
    """

    mass: Array
    inertia: Array
    node_masses: tuple[Array, ...]
    joints: JointArrays
    user_parameters: tuple[Any, ...]
    forces: ForceArrays
    structure: Structure

    _LEAVES = ("mass", "inertia", "node_masses", "joints", "user_parameters", "forces")

    def __init__(
        self,
        bodies: Iterable[Node],
        joints: Iterable[Constraint] = (),
        forces: Iterable[ForceElement] = (Gravity(),),
        group: LieGroup = R3xSO3,
        dtype: Any = None,
    ) -> None:
        if group not in (R3xSO3, SE3):
            raise ValueError(f"group must be R3xSO3 or SE3, got {shown(group)}")
        dtype = jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
        bodies, joints, forces = list(bodies), list(joints), list(forces)
        names, nodes, self.mass, self.inertia, self.node_masses, regular = node_arrays(bodies, dtype)
        rows, self.joints = joint_rows(names, joints, dtype)
        users, self.user_parameters = constraint_arrays(joints, dtype)
        members = force_members(names, forces)
        self.forces = force_arrays(forces, dtype)
        self.structure = Structure(
            group,
            names,
            tuple(node.name for node in nodes),
            tuple(len(mass) for mass in self.node_masses),
            rows,
            users,
            members,
            regular and not members.coupled and not nodes,
        )

    def tree_flatten(self) -> tuple[tuple[Any, ...], Structure]:
        return tuple(getattr(self, name) for name in self._LEAVES), self.structure

    @classmethod
    def tree_unflatten(cls, structure: Structure, leaves: Iterable[Any]) -> "System":
        self = object.__new__(cls)
        self.structure = structure
        for name, leaf in zip(cls._LEAVES, leaves, strict=True):
            setattr(self, name, leaf)
        return self

    def replace(self, **changes: Any) -> "System":
        """A copy with the given leaves replaced."""
        unknown = set(changes) - set(self._LEAVES)
        if unknown:
            raise ValueError(f"System has no leaf {', '.join(sorted(unknown))}; it has {', '.join(self._LEAVES)}")
        leaves = (changes.get(name, getattr(self, name)) for name in self._LEAVES)
        return self.tree_unflatten(self.structure, leaves)

    def __repr__(self) -> str:
        s = self.structure
        return f"System({', '.join(s.body_names + s.node_names)}; {self.nv} velocities, {self.nc} constraints)"

    @property
    def dtype(self) -> jnp.dtype:
        return self.mass.dtype

    @property
    def nbodies(self) -> int:
        return len(self.structure.body_names)

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return 6 * self.nbodies + sum(self.structure.node_sizes)

    @property
    def nc(self) -> int:
        """Number of scalar constraints."""
        return len(self.structure.joints.rows) + sum(size for _, _, size in self.structure.users)

    def body(self, name: str) -> int:
        """The index of a body."""
        return self.structure.body_names.index(name)

    def configuration(self, rotations: Any, positions: Any, coordinates: Any = ()) -> AbsoluteConfiguration:
        """The configuration with body rotations (N, 3, 3), positions of centers of mass (N, 3), coordinates (nx,)."""
        element = Pose if self.structure.group is SE3 else RotationTranslation
        arrays = [jnp.asarray(x, self.dtype) for x in (rotations, positions, coordinates)]
        n = self.nbodies
        for name, x, shape in zip(
            ("rotations", "positions", "coordinates"), arrays, ((n, 3, 3), (n, 3), (self.nv - 6 * n,)), strict=True
        ):
            if x.shape != shape:
                raise ValueError(f"{name} have shape {x.shape}, {self!r} takes {shape}")
        return AbsoluteConfiguration(element(arrays[0], arrays[1]), arrays[2])

    def velocity(self, q: AbsoluteConfiguration, omega: Any, velocity: Any, coordinates: Any = ()) -> Array:
        """v (nv,) from angular velocities (N, 3) in body axes and velocities (N, 3) of the centers in world axes."""
        omega, velocity, coordinates = (jnp.asarray(x, self.dtype) for x in (omega, velocity, coordinates))
        if self.structure.group is SE3:
            velocity = sm.tmatvec(q.bodies.rotation, velocity)
        return jnp.concatenate([sm.join(omega, velocity).reshape(-1), coordinates])

    def motion(self, q: AbsoluteConfiguration, v: Array) -> BodyMotions:
        """Rotations, positions, velocities in world axes and ω in body axes of all bodies, the world last."""
        twists = v[: 6 * self.nbodies].reshape(self.nbodies, 6)
        rotation, translation = q.bodies
        velocity = twists[:, 3:]
        if self.structure.group is SE3:
            velocity = sm.matvec(rotation, velocity)
        zero = jnp.zeros((1, 3), v.dtype)
        rest = (jnp.concatenate([x, zero]) for x in (translation, velocity, twists[:, :3]))
        return BodyMotions(jnp.concatenate([rotation, jnp.eye(3, dtype=v.dtype)[None]]), *rest)

    def move(self, q: AbsoluteConfiguration, dq: Array) -> AbsoluteConfiguration:
        """q exp(dq), the coordinates by addition.  Source: [holzinger2024] Algorithm 1."""
        cut = 6 * self.nbodies
        step = self.structure.group.exp(dq[:cut].reshape(-1, 6))
        return AbsoluteConfiguration(self.structure.group.compose(q.bodies, step), q.coordinates + dq[cut:])

    def nudge(self, q: AbsoluteConfiguration, d: Array) -> AbsoluteConfiguration:
        """The tangent d/ds move(q, s d) at s = 0."""
        cut = 6 * self.nbodies
        twists = d[:cut].reshape(-1, 6)
        linear = twists[:, 3:]
        if self.structure.group is SE3:
            linear = sm.matvec(q.bodies.rotation, linear)
        turned = sm.matmul(q.bodies.rotation, sm.hat(twists[:, :3]))
        return AbsoluteConfiguration(type(q.bodies)(turned, linear), d[cut:])

    def push(self, dq: Array, x: Array) -> Array:
        """T_exp(dq) x = dexp(-dq, x), the identity on coordinates."""
        cut = 6 * self.nbodies
        turned = self.structure.group.dexp(-dq[:cut].reshape(-1, 6), x[:cut].reshape(-1, 6))
        return jnp.concatenate([turned.reshape(-1), x[cut:]])

    def pullback(self, dq: Array, rows: Array) -> Array:
        """Covectors, rows (k, nv), times T_exp(dq)."""
        cut = 6 * self.nbodies
        steps, covectors = -dq[:cut].reshape(-1, 6), rows[:, :cut].reshape(len(rows), self.nbodies, 6)
        turned = self.structure.group.codexp(steps, covectors)
        return jnp.concatenate([turned.reshape(len(rows), cut), rows[:, cut:]], axis=1)

    def bracket(self, x: Array, y: Array) -> Array:
        """ad_x y (nv,), body by body, and 0 on coordinates."""
        cut = 6 * self.nbodies
        bodies = self.structure.group.ad(x[:cut].reshape(-1, 6), y[:cut].reshape(-1, 6))
        return jnp.concatenate([bodies.reshape(-1), jnp.zeros_like(x[cut:])])

    def inertia_product(self, x: Array) -> Array:
        """M x (nv,); M is constant on both groups."""
        cut = 6 * self.nbodies
        twists = x[:cut].reshape(-1, 6)
        product = sm.join(sm.matvec(self.inertia, twists[:, :3]), self.mass[:, None] * twists[:, 3:])
        parts, start = [product.reshape(-1)], cut
        for matrix in self.node_masses:
            parts.append(sm.matvec(matrix, x[start : start + len(matrix)]))
            start += len(matrix)
        return jnp.concatenate(parts)

    def inertia_solve(self, f: Array) -> Array:
        """M⁻¹ f (nv,)."""
        cut = 6 * self.nbodies
        wrenches = f[:cut].reshape(-1, 6)
        angular, linear = sm.solve3(self.inertia, wrenches[:, :3]), wrenches[:, 3:] / self.mass[:, None]
        parts, start = [sm.join(angular, linear).reshape(-1)], cut
        for matrix in self.node_masses:
            parts.append(sm.ldl_solve(sm.ldl(matrix), f[start : start + len(matrix)]))
            start += len(matrix)
        return jnp.concatenate(parts)

    def generalized_forces(self, t: Any, q: AbsoluteConfiguration, v: Array) -> Array:
        """g(t, q, v) (nv,): applied forces and the gyroscopic ones, -ω × Jω and on SE(3) -m ω × v."""
        m = self.motion(q, v)
        torque, force = self.structure.forces.on_bodies(t, self.forces, self.mass, m)
        omega = m.omega[:-1]
        torque = torque - sm.cross(omega, sm.matvec(self.inertia, omega))
        if self.structure.group is SE3:
            momentum = self.mass[:, None] * v[: 6 * self.nbodies].reshape(-1, 6)[:, 3:]
            force = sm.tmatvec(q.bodies.rotation, force) - sm.cross(omega, momentum)
        rest = jnp.zeros((self.nv - 6 * self.nbodies,), v.dtype)
        total = jnp.concatenate([sm.join(torque, force).reshape(-1), rest])
        for (function, _), parameters in zip(self.structure.forces.users, self.forces.users, strict=True):
            given = jnp.asarray(function(t, q, v, parameters))
            if given.shape != v.shape or given.dtype != v.dtype:
                raise ValueError(f"a user force returned {given.dtype}{given.shape}, expected {v.dtype}{v.shape}")
            total = total + given
        return total

    def constraints(self, t: Any, q: AbsoluteConfiguration) -> Array:
        """Φ(t, q) (nc,), joints in the order given, then user constraints."""
        parts = [jnp.zeros((0,), self.dtype)]
        if self.structure.joints.rows:
            sides = self.structure.joints.sides(self.joints, *q.bodies)
            parts.append(self.structure.joints.residual(t, self.joints, sides))
        return jnp.concatenate([*parts, *self._user_constraints(t, q)])

    def jacobian(self, t: Any, q: AbsoluteConfiguration) -> Array:
        """B(t, q) (nc, nv), the derivative of Φ along q exp(s v): in closed form for joints."""
        parts = [jnp.zeros((0, self.nv), self.dtype)]
        rest = self.nv - 6 * self.nbodies
        if self.structure.joints.rows:
            sides = self.structure.joints.sides(self.joints, *q.bodies)
            rows = self.structure.joints.jacobian(t, self.joints, sides, self.structure.group is SE3)
            parts.append(jnp.concatenate([rows, jnp.zeros((len(rows), rest), self.dtype)], axis=1))
        if self.structure.users:

            def column(d: Array) -> Array:
                stacked = lambda q: jnp.concatenate(self._user_constraints(t, q))
                return jax.jvp(stacked, (q,), (self.nudge(q, d),))[1]

            parts.append(jax.vmap(column, out_axes=1)(jnp.eye(self.nv, dtype=self.dtype)))
        return jnp.concatenate(parts)

    def _user_constraints(self, t: Any, q: AbsoluteConfiguration) -> list[Array]:
        found = []
        for (name, function, size), parameters in zip(self.structure.users, self.user_parameters, strict=True):
            value = jnp.asarray(function(t, q, parameters))
            if value.shape != (size,) or value.dtype != self.dtype:
                raise ValueError(
                    f"constraint {name!r} returned {value.dtype}{value.shape}, expected {self.dtype}({size},)"
                )
            found.append(value)
        return found

    def scale(self, q: AbsoluteConfiguration) -> Array:
        """The size of the lengths and cosines that constraints are computed from."""
        lengths = [q.bodies.translation, self.joints.origin_a, self.joints.origin_b, q.coordinates]
        return sum((sm.largest(jnp.abs(x.ravel())) for x in lengths), jnp.ones((), self.dtype))

    def kinetic_energy(self, q: AbsoluteConfiguration, v: Array) -> Array:
        """½ vᵀ M v, joules."""
        return 0.5 * sm.dot(v, self.inertia_product(v))

    def potential_energy(self, q: AbsoluteConfiguration) -> Array:
        """Energy of gravity, springs, bushings and torsion springs without a drive, joules."""
        m = self.motion(q, jnp.zeros((self.nv,), self.dtype))
        return self.structure.forces.potential(self.forces, self.mass, m)


@compiled
@takes(first=(3,), second=(3,))
def compose_rotation_vectors(first: Array, second: Array) -> Array:
    """Rotation vector (..., 3) of exp(first) exp(second), at most π long.

    Source: [holzinger2024] eq. (30), appendix A.3.
    """
    return so3.log(sm.matmul(so3.exp(first), so3.exp(second)))
