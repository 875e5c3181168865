"""From descriptions to checked arrays and static structure of a system in absolute coordinates."""

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.maximal.forces import (
    BushingArrays,
    ForceArrays,
    ForceMembers,
    LoadArrays,
    SpringArrays,
    TorsionArrays,
)
from lgjax.maximal.joints import DRIVEN, ROWS, JointArrays, JointRows
from lgjax.maximal.parts import (
    WORLD,
    Body,
    Bushing,
    Gravity,
    Joint,
    Load,
    Spring,
    TorsionSpring,
    UserConstraint,
    UserForce,
    VectorNode,
)
from lgjax.numerics import checks
from lgjax.numerics.messages import listed

Array = jax.Array


def checked(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """Array of exactly that shape and dtype, checked for finiteness unless traced."""
    return checks.array(name, value, shape, dtype, exact=True)


def node_arrays(bodies: list[Any], dtype: Any) -> tuple[tuple[str, ...], list[VectorNode], Array, Array, Any, bool]:
    """Names, vector nodes, masses (N,), inertias (N, 3, 3), node masses, and whether every body has an inertia."""
    rigid = [body for body in bodies if isinstance(body, Body)]
    nodes = [body for body in bodies if isinstance(body, VectorNode)]
    names = [body.name for body in bodies if isinstance(body, Body | VectorNode)]
    if len(names) < len(bodies):
        odd = next(body for body in bodies if not isinstance(body, Body | VectorNode))
        raise ValueError(f"a body is a maximal.Body or a maximal.VectorNode, got {checks.shown(odd)}")
    if not names:
        raise ValueError("a system needs at least one body")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"name of a body must be text, got {checks.shown(name)}")
        if name == WORLD:
            raise ValueError(f"{WORLD!r} is the inertial frame and cannot be the name of a body")
        if names.count(name) > 1:
            raise ValueError(f"two bodies are named {name!r}")
    masses, inertias, regular = [], [], True
    for body in rigid:
        name = f"mass of body {body.name!r}"
        mass = checks.positive(name, checked(name, body.mass, (), dtype), allow_zero=True)
        inertia, positive = _inertia(body, dtype)
        regular = regular and positive and not (checks.known(mass) and float(mass) == 0.0)
        masses.append(mass)
        inertias.append(inertia)
    mass = jnp.stack(masses) if masses else jnp.zeros((0,), dtype)
    inertia = jnp.stack(inertias) if inertias else jnp.zeros((0, 3, 3), dtype)
    return tuple(b.name for b in rigid), nodes, mass, inertia, tuple(_node_mass(n, dtype) for n in nodes), regular


def _inertia(body: Body, dtype: Any) -> tuple[Array, bool]:
    """The matrix, and whether it is positive definite; what is traced is taken to be."""
    name, value = f"inertia of body {body.name!r}", body.inertia
    with jax.ensure_compile_time_eval() if checks.known(value) else nullcontext():
        if _is_vector(value):
            matrix = checked(name, value, (3,), dtype)[:, None] * jnp.eye(3, dtype=dtype)
        else:
            matrix = checked(name, value, (3, 3), dtype)
    if not checks.known(matrix):
        return matrix, True
    principal = np.linalg.eigvalsh(np.asarray(checks.symmetric(name, matrix), float))
    checks.principal_moments(name, principal, definite=False, triangle=False)
    return matrix, bool(principal[0] > 1e-9 * principal[2])


def _is_vector(value: Any) -> bool:
    """Whether a value of shape (3,) is given, as an array or as three numbers."""
    if isinstance(value, tuple | list):
        return len(value) == 3 and jnp.ndim(value[0]) == 0
    return jnp.shape(value) == (3,)


def _node_mass(node: VectorNode, dtype: Any) -> Array:
    name = f"mass of node {node.name!r}"
    size = checks.integer(f"size of node {node.name!r}", node.size)
    with jax.ensure_compile_time_eval() if checks.known(node.mass) else nullcontext():
        mass = checks.floats(name, node.mass, (size, size), dtype)
        if mass.shape == (size, size):
            return checked(name, mass, (size, size), dtype)
        return checks.array(name, mass, (size,), dtype)[:, None] * jnp.eye(size, dtype=dtype)


def _index(names: tuple[str, ...], name: str, where: str) -> int:
    """The position of a body, that of the world being one past the last."""
    if name == WORLD:
        return len(names)
    if name not in names:
        raise ValueError(f"{where}: there is no body {name!r}; bodies are {listed(names)}")
    return names.index(name)


def _pair(names: tuple[str, ...], part: Any, where: str) -> tuple[int, int]:
    pair = _index(names, part.a, where), _index(names, part.b, where)
    if pair[0] == pair[1]:
        raise ValueError(f"{where} connects {part.a!r} with itself")
    return pair


def _frame(name: str, value: Any, dtype: Any) -> Array:
    return checks.rotation(name, checked(name, value, (3, 3), dtype), 1e-5)


def _stack(parts: list[Array], shape: tuple[int, ...], dtype: Any) -> Array:
    return jnp.stack(parts) if parts else jnp.zeros((0, *shape), dtype)


def joint_rows(names: tuple[str, ...], joints: list[Any], dtype: Any) -> tuple[JointRows, JointArrays]:
    """Static rows and arrays of the joints among `joints`; checks them all."""
    found = [joint.name for joint in joints if isinstance(joint, Joint | UserConstraint)]
    for name in found:
        if found.count(name) > 1:
            raise ValueError(f"two joints are named {name!r}")
    kept: list[Joint] = []
    for joint in joints:
        if isinstance(joint, Joint):
            kept.append(joint)
            if not isinstance(joint.name, str):
                raise TypeError(f"name of a joint must be text, got {joint.name!r}")
            if not isinstance(joint.kind, str) or joint.kind not in ROWS:
                raise ValueError(f"joint {joint.name!r}: unknown kind {joint.kind!r}; known: {', '.join(ROWS)}")
            if joint.drive is not None and joint.kind not in (*DRIVEN, "distance"):
                raise ValueError(f"joint {joint.name!r}: a {joint.kind} joint takes no drive")
            if joint.kind == "distance" and joint.drive is None:
                checks.positive(f"length of joint {joint.name!r}", joint.length)
        elif not isinstance(joint, UserConstraint):
            raise ValueError(f"a joint is a maximal.Joint or a maximal.UserConstraint, got {checks.shown(joint)}")
    pairs = [_pair(names, joint, f"joint {joint.name!r}") for joint in kept]
    of = lambda joint: f"of joint {joint.name!r}"
    arrays = JointArrays(
        _stack([checked(f"origin_a {of(j)}", j.origin_a, (3,), dtype) for j in kept], (3,), dtype),
        _stack([checked(f"origin_b {of(j)}", j.origin_b, (3,), dtype) for j in kept], (3,), dtype),
        _stack([_frame(f"frame_a {of(j)}", j.frame_a, dtype) for j in kept], (3, 3), dtype),
        _stack([_frame(f"frame_b {of(j)}", j.frame_b, dtype) for j in kept], (3, 3), dtype),
        _stack([checked(f"length {of(j)}", j.length, (), dtype) for j in kept], (), dtype),
    )
    rows = JointRows(
        tuple(j.name for j in kept),
        tuple(j.kind for j in kept),
        tuple(a for a, _ in pairs),
        tuple(b for _, b in pairs),
        tuple(j.drive for j in kept),
        len(names),
    )
    return rows, arrays


def constraint_arrays(joints: list[Any], dtype: Any) -> tuple[tuple[tuple[str, Any, int], ...], tuple[Any, ...]]:
    """(name, function, size) and parameters of the user constraints."""
    users = [joint for joint in joints if isinstance(joint, UserConstraint)]
    sizes = [checks.integer(f"size of constraint {user.name!r}", user.size) for user in users]
    parameters = tuple(_parameters(user.parameters, dtype) for user in users)
    return tuple((user.name, user.function, size) for user, size in zip(users, sizes, strict=True)), parameters


def _parameters(values: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), values)


def force_members(names: tuple[str, ...], forces: list[Any]) -> ForceMembers:
    """Static structure of the forces, after checks that all are known and name bodies that exist."""
    kinds = Gravity | Spring | Bushing | TorsionSpring | Load | UserForce
    for force in forces:
        if not isinstance(force, kinds):
            raise ValueError(f"unknown force {checks.shown(force)}")
    pairs = lambda kind: tuple(_pair(names, f, f"{kind.__name__}") for f in forces if isinstance(f, kind))
    return ForceMembers(
        pairs(Spring),
        pairs(Bushing),
        pairs(TorsionSpring),
        tuple(f.drive for f in forces if isinstance(f, TorsionSpring)),
        tuple(_load_body(names, f) for f in forces if isinstance(f, Load)),
        tuple((f.function, bool(f.couples)) for f in forces if isinstance(f, UserForce)),
        len(names),
    )


def _load_body(names: tuple[str, ...], load: Load) -> int:
    if load.body == WORLD:
        raise ValueError(f"a Load acts on a body, not on {WORLD!r}")
    return _index(names, load.body, "Load")


def force_arrays(forces: list[Any], dtype: Any) -> ForceArrays:
    """The numbers of all forces, stacked by kind."""

    def gather(kind: type, record: Any, shapes: dict[str, tuple[int, ...]]) -> Any:
        members = [force for force in forces if isinstance(force, kind)]

        def column(name: str, shape: tuple[int, ...]) -> Array:
            check = _frame if name.startswith("frame") else lambda n, x, d: checked(n, x, shape, d)
            return _stack([check(f"{name} of {kind.__name__}", getattr(f, name), dtype) for f in members], shape, dtype)

        return record(*(column(name, shapes[name]) for name in record._fields))

    points = {"point_a": (3,), "point_b": (3,)}
    frames = {"frame_a": (3, 3), "frame_b": (3, 3)}
    vectors = ("point", "force_world", "force_body", "torque_world", "torque_body")
    gravity = jnp.zeros((3,), dtype)
    for force in forces:
        if isinstance(force, Gravity):
            gravity = gravity + checked("vector of Gravity", force.vector, (3,), dtype)
    return ForceArrays(
        gravity,
        gather(Spring, SpringArrays, {**points, "stiffness": (), "damping": (), "length": ()}),
        gather(Bushing, BushingArrays, {**points, "stiffness": (3,), "damping": (3,)}),
        gather(TorsionSpring, TorsionArrays, {**frames, "stiffness": (), "damping": ()}),
        gather(Load, LoadArrays, dict.fromkeys(vectors, (3,))),
        tuple(_parameters(force.parameters, dtype) for force in forces if isinstance(force, UserForce)),
    )
