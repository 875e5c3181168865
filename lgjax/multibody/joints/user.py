"""Joints of your own: a map from scalar coordinates to a pose, and the motion subspace that belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.execution._jax import Literal
from lgjax.multibody.joints.kind import JointKind
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm

_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
ROUND_OFF = 1e3  # of the dtype's epsilon, relative to the largest entry


def joint_kind(
    name: str,
    transform: Callable,
    subspace: Callable,
    nv: int,
    samples: ArrayLike | None = None,
    constant_subspace: bool | None = None,
) -> JointKind:
    """Make a kind of joint with nv scalar coordinates q, to pass to `Joint(kind=...)`.

    The functions are checked at `samples`. Recursions are compiled once for each kind, so make each kind once.

    Args:
        name: name of the kind, for error messages.
        transform: q (nv,) -> Pose(rotation (3, 3), translation (3,)): the child frame after the joint in the frame
            before it, any smooth JAX function that keeps the dtype of q. z of the joint frame is along `Joint.axis`.
        subspace: q -> S (6, nv), in the dtype of q: the twist of the child relative to that frame is S dq/dt, [w, v] in
            the child frame.
        nv: number of coordinates.
        samples: (n, nv), by default zero and random coordinates within +-1.
        constant_subspace: whether S is the same for all q, which makes the recursions cheaper. None derives it: S is
            constant if none of it is computed from the entries of q. True declares it, with a ValueError if S differs
            between two samples.

    Raises:
        ValueError: naming the kind, for wrong shapes and dtypes, values that are not finite, matrices that are not
            rotations, and a subspace that is not the derivative of the map, R^T dR/dq = hat(S_w), R^T dp/dq = S_v, with
            the place and size of the mismatch.
    """
    _check_kinds(name, transform, subspace)
    if isinstance(nv, bool) or not isinstance(nv, int | np.integer) or not 1 <= nv <= 6:
        raise ValueError(f"joint kind {name!r}: nv is {checks.shown(nv)}, expected an integer from 1 to 6")
    if not isinstance(constant_subspace, bool | np.bool_ | None):
        raise ValueError(
            f"joint kind {name!r}: constant_subspace is {checks.shown(constant_subspace)}, not None, True or False"
        )
    if samples is None:
        samples = np.concatenate([np.zeros((1, nv)), np.random.default_rng(0).uniform(-1, 1, (8, nv))])
    samples = checks.real(f"joint kind {name!r}: samples", samples)
    if samples.ndim != 2 or samples.shape[1] != nv or not len(samples):
        raise ValueError(f"joint kind {name!r}: samples has shape {samples.shape}, expected (n, {nv})")
    for function in (transform, subspace):
        checks.holds_nothing_traced("joint_kind", function, np.zeros(nv, np.float32))
    dtypes = (jnp.dtype(jnp.float32), jnp.result_type(float))
    for dtype in dtypes:
        _check_shapes(name, transform, subspace, nv, dtype)
    S = _check_values(name, transform, subspace, nv, jnp.asarray(samples, dtypes[-1]))
    if constant_subspace is None:
        varying = any(_depends(subspace, jax.ShapeDtypeStruct((nv,), dtype)) for dtype in dtypes)
    else:
        varying = not constant_subspace
        if constant_subspace and np.any(S[0] != S):
            other = _shown(samples[np.any(S[0] != S, (1, 2)).argmax()])
            raise ValueError(f"joint kind {name!r}: the subspace is not constant: q={_shown(samples[0])} and {other}")
    return JointKind(name, nv, nv, "joints", _Transform(transform), _Subspace(subspace), varying)


@dataclass(frozen=True)
class _Transform:
    """`JointKind.transform` of a user's function; equal for the same function, and pickled with it."""

    function: Callable

    def __call__(self, q, screw):
        return tuple(self.function(q))


@dataclass(frozen=True)
class _Subspace:
    """`JointKind.subspace` of a user's function."""

    function: Callable

    def __call__(self, q, screw):
        S = self.function(q)
        return S[:3], S[3:]


def _check_kinds(name: Any, transform: Any, subspace: Any) -> None:
    """TypeError for a name that is no text and for what are no functions, or cannot be told apart by a hash."""
    if not isinstance(name, str):
        raise TypeError(f"name of a joint kind must be text, got {checks.shown(name)}")
    for argument, function in (("transform", transform), ("subspace", subspace)):
        checks.function(argument, function)
        try:
            hash(function)
        except TypeError:
            raise TypeError(
                f"{argument} must be hashable, such as a plain function, got {checks.shown(function)}"
            ) from None


def _check_shapes(name: str, transform: Callable, subspace: Callable, nv: int, dtype) -> None:
    q = jax.ShapeDtypeStruct((nv,), dtype)
    pose, S = jax.eval_shape(transform, q), jax.eval_shape(subspace, q)
    if not (isinstance(pose, tuple) and len(pose) == 2 and all(hasattr(x, "shape") for x in (*pose, S))):
        raise ValueError(f"joint kind {name!r}: transform must return a Pose and subspace an array")
    rotation, translation = pose
    expected = {"rotation": (rotation, (3, 3)), "translation": (translation, (3,)), "subspace": (S, (6, nv))}
    for what, (found, shape) in expected.items():
        if (found.shape, found.dtype) != (shape, dtype):
            raise ValueError(
                f"joint kind {name!r}: the {what} is {found.dtype}{list(found.shape)} for {dtype} coordinates, "
                f"expected {dtype}{list(shape)}"
            )


def _check_values(name: str, transform: Callable, subspace: Callable, nv: int, samples) -> np.ndarray:
    """Raise ValueError unless the functions fit one another; return S at the samples."""

    def sample(q):
        R, p = transform(q)
        dR, dp = jax.jacfwd(lambda q: (*transform(q),))(q)
        turning = jnp.stack([sm.vee(sm.tmatmul(R, dR[..., i])) for i in range(nv)], 1)
        return R, p, subspace(q), jnp.concatenate([turning, sm.tmatmul(R, dp)])

    R, p, S, derivative = (np.asarray(x, float) for x in jax.jit(jax.vmap(sample))(samples))
    tolerance = ROUND_OFF * float(jnp.finfo(samples.dtype).eps)
    for what, values in (("rotation", R), ("translation", p), ("subspace", S), ("derivative of the map", derivative)):
        for q, value in zip(np.asarray(samples), values, strict=True):
            where = f"joint kind {name!r}: the {what} at q={_shown(q)}"
            checks.finite(where, value)
            if what == "rotation":
                checks.rotation(where, value, tolerance)
    error = np.abs(S - derivative)
    if error.max() > tolerance * max(1.0, np.abs(derivative).max()):
        at, row, column = np.unravel_index(error.argmax(), error.shape)
        raise ValueError(
            f"joint kind {name!r}: the subspace is not the derivative of the map: at q={_shown(samples[at])} "
            f"entry [{row}, {column}] is {S[at, row, column]:.6g}, the map gives {derivative[at, row, column]:.6g}, "
            f"a difference of {error.max():.3g}"
        )
    return S


def _depends(function: Callable, argument: jax.ShapeDtypeStruct) -> bool:
    """Whether anything of the function's result is computed from the entries of its argument."""
    return any(_touched(jax.make_jaxpr(function)(argument).jaxpr, [True]))


def _touched(jaxpr, inputs: list[bool]) -> list[bool]:
    """Which results are computed from the inputs marked; of a loop or a branch, all are if any input is marked."""
    marked = dict(zip(jaxpr.invars, inputs, strict=True))
    read = lambda atom: not isinstance(atom, Literal) and marked.get(atom, False)
    for eqn in jaxpr.eqns:
        given = [read(atom) for atom in eqn.invars]
        inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")) if eqn.primitive.name in _CALLS else None
        outs = [any(given)] * len(eqn.outvars) if inner is None else _touched(inner.jaxpr, given)
        marked.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _shown(q) -> list[float]:
    return [round(float(x), 6) for x in q]
