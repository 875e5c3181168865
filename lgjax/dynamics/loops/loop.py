"""A closed loop of a mechanism as a value: which bodies it joins, how, and where."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.loops.closures import ALIASES, CLOSURES
from lgjax.dynamics.loops.couplings import Coupling
from lgjax.groups.se3 import Pose
from lgjax.multibody import joints
from lgjax.multibody.joints import JointKind
from lgjax.multibody.model import Model
from lgjax.numerics import checks

WORLD = "world"
BUILT_IN: dict[Any, str] = {kind: kind.name for kind in vars(joints).values() if isinstance(kind, JointKind)}
NUMBERS = {"distance": "distance", "helical": "pitch"}  # of the kinds that have one


@dataclass(frozen=True)
class Loop:
    """A constraint that closes a kinematic loop: kind and bodies are static, frames and numbers are leaves.

    kind: what holds frame b of body b to frame a of body a. A joint cut open, by name or as a `JointKind`, leaves that
    joint's motion free: "weld", "revolute" (about z), "prismatic" (along z), "helical", "cylindrical", "universal" (z
    of a and x of b stay at right angles), "planar" (xy), "spherical", or a kind of your own (`lgjax.joint_kind`), whose
    residual is the 6 - nv entries of the twist from the joint's nearest pose that the joint cannot make. "point": the
    origins coincide; "point_on_line": that of b stays on z of a; "point_on_plane": on xy of a; "distance": the origins
    keep a distance. Or a function f(model, q) -> (m,), f(model, q, parameters) if parameters are given, that is to be
    zero; it has no bodies. Joints that follow others have a kind of their own, which `couple_joints` makes.

    body_a, body_b: name or index of a body, name of a frame that is fixed to one; None or "world" is the ground.
    frame_a, frame_b: Pose, homogeneous matrix or point (3,) in the body frame; by default the body frame itself.
    distance: meters, positive. pitch: meters along z per radian of a helical joint, not zero. start: (nv,), zero if not
    given, coordinates of a joint of your own from which the search for those of the nearest pose begins; it goes
    downhill, so a joint with several turns or branches needs a start on the right one.
    Raises ValueError or TypeError naming the loop for what does not fit; bodies are looked up when the loop is used.
    Source: [kim2012] section 3.
    """

    kind: str | JointKind | Callable[..., jax.Array]
    body_a: str | int | None = None
    body_b: str | int | None = None
    frame_a: Any = None
    frame_b: Any = None
    distance: Any = None
    pitch: Any = None
    parameters: Any = None
    name: str | None = None
    start: Any = None

    def __post_init__(self):
        for name in ("body_a", "body_b"):
            body = getattr(self, name)
            if not isinstance(body, str | int | np.integer | None) or isinstance(body, bool):
                raise TypeError(f"{name} of a loop must be a name or an index, got {checks.shown(body)}")
        if not isinstance(self.kind, str | JointKind) and not callable(self.kind):
            raise TypeError(f"kind of a loop must be a name, a JointKind or a function, got {checks.shown(self.kind)}")
        kind = BUILT_IN.get(self.kind, self.kind) if isinstance(self.kind, Hashable) else self.kind
        kind = ALIASES.get(kind, kind) if isinstance(kind, str) else kind
        own = isinstance(kind, JointKind)
        if own and kind.nv == 6:
            raise ValueError(f"loop {self.label}: a joint with six coordinates holds nothing")
        if not (own or callable(kind) or kind in CLOSURES):
            raise ValueError(f"loop {self.label}: unknown kind {kind!r}; known: {', '.join(CLOSURES)}, or a function")
        object.__setattr__(self, "kind", kind)
        if callable(kind):
            for name in ("body_a", "body_b", "frame_a", "frame_b"):
                if getattr(self, name) is not None:
                    raise ValueError(f"loop {self.label}: a function takes no {name}")
        else:
            if self.parameters is not None:
                raise ValueError(f"loop {self.label}: parameters belong to functions, not to kind {kind!r}")
            for name in ("frame_a", "frame_b"):
                object.__setattr__(self, name, _frame(f"loop {self.label}: {name}", getattr(self, name)))
        if own:
            start = np.zeros(kind.nv) if self.start is None else self.start
            object.__setattr__(
                self, "start", checks.array(f"loop {self.label}: start", start, (kind.nv,), checks.float_dtype(start))
            )
        elif self.start is not None:
            raise ValueError(f"loop {self.label}: start belongs to joints of your own, not to kind {kind!r}")
        for owner, name in NUMBERS.items():
            value = getattr(self, name)
            if (value is not None) != (kind == owner):
                raise ValueError(f"loop {self.label}: kind {kind!r} {'needs' if value is None else 'has no'} {name}")
            if value is not None:
                object.__setattr__(self, name, _number(f"loop {self.label}: {name}", name, value))

    @property
    def label(self) -> str:
        """The name, or what the loop joins, for messages."""
        if self.name is not None:
            return repr(self.name)
        if isinstance(self.kind, Coupling):
            return self.kind.label
        if isinstance(self.kind, JointKind):
            kind = self.kind.name
        else:
            kind = self.kind if isinstance(self.kind, str) else getattr(self.kind, "__name__", "function")
        body = lambda given: WORLD if given is None else given
        ends = "" if callable(self.kind) else f" {body(self.body_a)}-{body(self.body_b)}"
        return f"({kind}{ends})"

    def rows(self, model: Model, q) -> int:
        """Number of scalar constraints."""
        if isinstance(self.kind, Coupling):
            return 1
        if not callable(self.kind):
            return CLOSURES[self.kind][1] if isinstance(self.kind, str) else 6 - self.kind.nv
        shape = jax.eval_shape(lambda m, x, p: self.value(m, x, p), model, q, self.parameters)
        if len(shape.shape) != 1 or shape.dtype != model.dtype:
            raise ValueError(f"loop {self.label}: returned {shape.dtype}{list(shape.shape)}, not {model.dtype}[m]")
        return shape.shape[0]

    def value(self, model: Model, q, parameters) -> jax.Array:
        """Residual (m,) of a loop that is a function."""
        assert callable(self.kind)
        return self.kind(model, q) if parameters is None else self.kind(model, q, parameters)


STATIC = ("kind", "body_a", "body_b", "name")
LEAVES = ("frame_a", "frame_b", "distance", "pitch", "start", "parameters")


def _flatten(loop: Loop):
    keys = [(jax.tree_util.GetAttrKey(name), getattr(loop, name)) for name in LEAVES]
    return keys, tuple(getattr(loop, name) for name in STATIC)


def _unflatten(static, leaves) -> Loop:
    """Without the checks: leaves may be anything that a transformation puts there."""
    loop = object.__new__(Loop)
    for name, value in zip((*STATIC, *LEAVES), (*static, *leaves), strict=True):
        object.__setattr__(loop, name, value)
    return loop


jax.tree_util.register_pytree_with_keys(Loop, _flatten, _unflatten)


def _number(where: str, name: str, value):
    if not checks.known(value):
        return value
    number = checks.real(where, value)
    good = number > 0 if name == "distance" else number != 0
    if not np.all(np.isfinite(number) & good):
        raise ValueError(
            f"{where} is {checks.entries(value)}, it must be {'positive' if name == 'distance' else 'finite, not zero'}"
        )
    return value if isinstance(value, jax.Array) else jnp.asarray(number)


def _frame(where: str, value) -> Pose:
    """A Pose of arrays; what is known of it is checked for finiteness and orthonormality."""
    if isinstance(value, Pose):
        parts = [value.rotation, value.translation]
    elif value is None:
        parts = [np.eye(3), np.zeros(3)]
    else:
        array = value if isinstance(value, jax.Array) else checks.real(where, value)
        if array.shape[-2:] == (4, 4):
            parts = [array[..., :3, :3], array[..., :3, 3]]
        elif array.shape[-1:] == (3,) and array.ndim == 1:
            parts = [np.eye(3), array]
        else:
            raise ValueError(f"{where} is a Pose, a 4x4 matrix or a point (3,), not an array of shape {array.shape}")
    for x in parts:
        if not (jnp.issubdtype(jnp.result_type(x), jnp.floating) or jnp.issubdtype(jnp.result_type(x), jnp.integer)):
            raise TypeError(f"{where} is {jnp.result_type(x)}, expected real numbers")
    parts = [checks.finite(where, x) for x in parts]
    checks.rotation(where, parts[0], 1e-4)
    return Pose(*(x if isinstance(x, jax.Array) else jnp.asarray(np.asarray(x, float)) for x in parts))


def as_loops(model: Model, loops) -> tuple[Loop, ...]:
    """One or several loops as a tuple, in the model's dtype; TypeError for anything else, ValueError for none."""
    several = tuple(loops) if isinstance(loops, Iterable) else (loops,)
    for loop in several:
        if not isinstance(loop, Loop):
            raise TypeError(f"loops are Loop, got {type(loop).__name__}")
    if not several:
        raise ValueError("no loops are given")
    return tuple(jax.tree.map(partial(_in_dtype, model.dtype), loop) for loop in several)


def _in_dtype(dtype, x) -> jax.Array:
    """Floating numbers in the dtype; indices and truth values among a user's parameters as they are."""
    x = jnp.asarray(x)
    return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x


def carrier(model: Model, loop: Loop, body: str | int | None, frame: Pose) -> tuple[int, Pose]:
    """Index of the moving body that carries an end of a loop, -1 the world, and the frame in its joint frame."""
    tree = model.tree
    if body is None or body == WORLD:
        return -1, frame
    names = [name for name, _ in tree.frames]
    if isinstance(body, str) and body not in tree.body_names and body in names:
        number = names.index(body)
        return tree.frames[number][1], jax.tree.map(lambda x: x[number], model.frames) @ frame
    try:
        index = tree.body(body)
    except ValueError as error:
        raise ValueError(f"loop {loop.label}: {error}") from None
    return index, jax.tree.map(lambda x: x[index], model.links) @ frame
