"""Checks of the arguments of functions of a mechanism: one decorator at every entry.

Only shapes and dtypes are checked, which are known of traced arrays too, so a program has no additional operation.
Arrays pass unchanged. NumPy arrays count with the dtype that JAX gives them, and weakly typed numbers take that of the
model. Any other shape or dtype is refused with one sentence that names the argument.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.compiled import compiled
from lgjax.groups.se3 import Pose
from lgjax.multibody.model import Configuration, Mechanism, Model
from lgjax.numerics.checks import described as described

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
VECTORS = ("v", "vdot", "tau", "f", "dv")  # (nv,)
PLAIN = "with lgjax.execution.plain(): runs without kernels"
CONFIGURATIONS = ("q", "q0", "q1")
BASE = {
    "tau": "the forces of the joints come after the six entries of the floating base, zeros where nothing pushes it",
    "v": "the velocities of the joints come after the six entries [w, v] of the floating base",
}


class OfMechanism(Protocol[P, R]):
    """A function of a mechanism, for type checkers: its model may be a record that has one."""

    __name__: str

    def __call__(self, model: Model | Mechanism, *args: P.args, **kwargs: P.kwargs) -> R: ...


def checked_arguments(
    *others: str, compiles: bool = True, whole: bool = False
) -> Callable[[Callable[Concatenate[Model, P], R]], OfMechanism[P, R]]:
    """Decorate a function to check arguments by name: model, q, v, vdot, tau, f, dv and wrenches, for one system.

    others: names that mean something else in this function, which checks them itself. None is accepted where it is the
    default. Raises TypeError for what is not a Model, a Configuration or an array, ValueError for shapes and dtypes.
    compiles: outside jit the function is compiled once for each structure of its arguments (`execution.compiled`); not
    for those that return something else than arrays or check values themselves. whole: a `Mechanism` is passed on as it
    is, instead of its model.
    """

    def decorate(function: Callable[Concatenate[Model, P], R]) -> OfMechanism[P, R]:
        written = signature(function)
        parameters = written.parameters
        names = [name for name in parameters if name not in others]
        optional = {name for name in names if parameters[name].default is None}
        run = compiled(function) if compiles else function

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(parameters, args, strict=False)) | kwargs
            if "execution" in kwargs:
                raise TypeError(f"{function.__name__}() has no argument 'execution'; {PLAIN}")
            if "model" not in given or len(args) > len(parameters):
                return function(*args, **kwargs)  # which raises Python's own error
            model = checked_model(given["model"], leaves=True)
            given["model"] = given["model"] if whole else model
            for name in names:
                if name in given and not (given[name] is None and name in optional):
                    given[name] = _checked(name, given[name], model)
            positional = [given[name] for name, _ in zip(parameters, args, strict=False)]
            return run(*positional, **{name: given[name] for name in kwargs})  # type: ignore[call-arg]

        shown = [x.replace(annotation="Model | Mechanism") if x.name == "model" else x for x in parameters.values()]
        call.__signature__ = written.replace(parameters=shown)  # type: ignore[attr-defined]
        call.__annotations__ = {**function.__annotations__, "model": Model | Mechanism}
        return call  # type: ignore[return-value]

    return decorate


def _checked(name: str, value: Any, model: Model) -> Any:
    if name in CONFIGURATIONS:
        return checked_configuration(name, value, model)
    if name in VECTORS:
        return checked_array(name, value, (model.nv,), model.dtype, model=model)
    if name == "wrenches":
        return checked_array(name, value, (model.nbodies, 6), model.dtype)
    return value


def checked_array(
    name: str, value: Any, shape: tuple[int, ...], dtype: Any, owner: str = "the model", model: Model | None = None
) -> Any:
    """`value`, an array of the shape and dtype; weakly typed numbers and NumPy's are converted."""
    if not isinstance(value, jax.Array | np.ndarray):
        raise TypeError(f"{name} is {described(value)}, expected an array of shape {shape}")
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}, expected {shape}{hint(name, value.shape, shape, model)}")
    if getattr(value, "weak_type", False) and jnp.issubdtype(value.dtype, jnp.floating):
        return jnp.asarray(value, dtype)
    if isinstance(value, np.ndarray) and jnp.result_type(value) == dtype:
        return value.astype(dtype, copy=False)  # float64 where JAX has none
    if value.dtype == dtype:
        return value
    raise ValueError(f"{name} is {value.dtype}, {owner} is {jnp.dtype(dtype)}")


def hint(name: str, found: tuple[int, ...], shape: tuple[int, ...], model: Model | None = None) -> str:
    """Most likely cause of the error, as the end of a sentence."""
    if len(found) > len(shape) and found[len(found) - len(shape) :] == shape:
        return ": use jax.vmap over a batch"
    free = model.tree.n_free if model else 0
    if free and model and found[-1:] == (model.nv - 6 * free,):
        return f": {BASE['tau' if name in ('tau', 'f') else 'v']}"
    return ""


def checked_configuration(name: str, q: Any, model: Model) -> Configuration:
    """`q`, a Configuration of the model."""
    if not isinstance(q, Configuration):
        raise TypeError(f"{name} is {described(q)}, expected a Configuration: make one with lgjax.configuration")
    tree = model.tree
    part = lambda of, value, *shape: checked_array(f"{name}.{of}", value, shape, model.dtype)
    if not isinstance(q.free_poses, tuple) or len(q.free_poses) != 2:
        raise TypeError(f"{name}.free_poses is {described(q.free_poses)}, expected a Pose")
    rotation, translation = q.free_poses
    return Configuration(
        Pose(
            part("free_poses.rotation", rotation, tree.n_free, 3, 3),
            part("free_poses.translation", translation, tree.n_free, 3),
        ),
        part("joints", q.joints, tree.n_joint),
        part("ball_rotations", q.ball_rotations, tree.n_ball, 3, 3),
    )


def checked_model(model: Any, leaves: bool = False, argument: str = "model") -> Model:
    """`model`, a Model, or that of a `Mechanism`; with `leaves` one, not a batch. argument: its name in errors."""
    model = model.model if isinstance(model, Mechanism) else model
    if not isinstance(model, Model):
        raise TypeError(f"{argument} is {described(model)}, expected a Model")
    if leaves:
        dtype = getattr(model.inertias.mass, "dtype", None)
        for name, shape in _shapes(model).items():
            leaf = attrgetter(name)(model)
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
                raise TypeError(f"{argument}.{name} is {described(leaf)}, expected an array of shape {shape}")
            found = leaf.shape
            if leaf.dtype.kind in "bcOSU":
                raise TypeError(f"{argument}.{name} is {leaf.dtype}, expected real numbers")
            if leaf.dtype != dtype and _of_other_floats(leaf, dtype):
                raise ValueError(f"{argument}.{name} is {leaf.dtype}, the masses of the model are {dtype}")
            if found != shape:
                raise ValueError(f"{argument}.{name} has shape {found}, expected {shape}{hint(name, found, shape)}")
    return model


def _of_other_floats(leaf: Any, dtype: Any) -> bool:
    """Whether an array has a floating dtype of its own that JAX does not turn into this one."""
    return leaf.dtype.kind == "f" and not getattr(leaf, "weak_type", False) and jnp.result_type(leaf) != dtype


def _shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's leaves."""
    tree = model.tree
    poses = {"placements": tree.nbodies, "links": tree.nbodies, "frames": len(tree.frames)}
    shapes: dict[str, tuple[int, ...]] = {"screws": (tree.nbodies, 2), "gravity": (3,)}
    for name, count in poses.items():
        shapes |= {f"{name}.rotation": (count, 3, 3), f"{name}.translation": (count, 3)}
    for name, shape in (("mass", ()), ("moment", (3,)), ("rotational", (3, 3))):
        shapes[f"inertias.{name}"] = (tree.nbodies, *shape)
    shapes |= dict.fromkeys(("armature", "damping", "friction", "effort", "velocity_limit"), (tree.nv,))
    return shapes | dict.fromkeys(("lower", "upper"), (tree.n_joint,))
