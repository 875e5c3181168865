"""Costs as squared residuals, whose Gauss-Newton Hessians need first derivatives alone.

A cost is  ½ |r|²  of a residual r. Costs can be added and scaled, `costs.frame(...) + 0.1 * costs.state(...)`. Pass one
to `optimize_controls` where it expects a function: as running(t, state, control) or as terminal(state).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.dynamics.energy import momentum as momentum_of
from lgjax.dynamics.inverse import inverse_dynamics
from lgjax.dynamics.jacobians import carrier, jacobian
from lgjax.dynamics.kinematics import frame_pose
from lgjax.groups import se3
from lgjax.groups.arguments import Fields, checked
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration, displacement
from lgjax.multibody.model import Mechanism, Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.rank import product
from lgjax.simulate.control.cost import Cost, Groups, QuadraticModel
from lgjax.simulate.control.linear_quadratic.sparse import Diagonal
from lgjax.simulate.control.semi_implicit import force_jacobians, matrices, turning

__all__ = ["LeastSquares", "control", "forces", "frame", "frame_position", "momentum", "state"]

Array = jax.Array


@dataclass(frozen=True, eq=False)
class LeastSquares(Cost):
    """½ |residual|² of residual(t, state, control) -> vector, or residual(state) -> vector for a terminal cost.

    Its Hessian is J^T J with the derivative J of the residual, which is exact where the residual is zero or linear.
    """

    residual: Callable[..., Array]

    def __call__(self, *args: Any) -> Array:
        r = self.residual(*args)
        return jnp.sum(r * r) / 2

    def expand(self, system: Any, t: Any, state: Any, control: Any) -> QuadraticModel:
        dim = jax.eval_shape(system.difference, state, state).shape[0]
        if control is None:
            of = lambda x: self.residual(system.retract(state, x))
            zero = jnp.zeros(dim, _dtype(state))
        else:
            of = lambda z: self.residual(t, system.retract(state, z[:dim]), control + z[dim:])
            zero = jnp.zeros(dim + control.shape[0], control.dtype)
        r, jacobian = value_and_jacobian(of, zero)
        first, second = _pulled(jacobian, r), _squared(jacobian)
        if control is None:
            return QuadraticModel(x=first, xx=second)
        return QuadraticModel(first[:dim], first[dim:], second[:dim, :dim], second[dim:, :dim], second[dim:, dim:])

    def following(self, reference: Any) -> Cost:
        return LeastSquares(lambda *args: self.residual(*args, reference))


def _dtype(state: Any) -> Any:
    return jax.tree.leaves(state)[0].dtype


def value_and_jacobian(function: Callable, zero: Array) -> tuple[Array, Array]:
    def twice(z: Array) -> tuple[Array, Array]:
        r = function(z)
        return r, r

    jacobian, r = jax.jacfwd(twice, has_aux=True)(zero)
    return r, jacobian


def _pulled(jacobian: Array, r: Array) -> Array:
    """J^T r."""
    return product(jacobian.T, r)


def _squared(jacobian: Array) -> Array:
    """J^T J."""
    return product(jacobian.T, jacobian)


# ---- terms whose derivatives are known
class _SquaredResidual(Cost):
    """½ |weights * residual(state)|², on the way or at the end."""

    residual: Callable[[Any], Array]
    weights: Array

    def __call__(self, *args: Any) -> Array:
        r = self.weights * self.residual(args[0] if len(args) == 1 else args[1])
        return jnp.sum(r * r) / 2


@dataclass(frozen=True, eq=False)
class _OfState(_SquaredResidual):
    """½ |weights * residual(state)|²; jacobian(system, state) -> values and derivatives with respect to q alone.

    path: the velocities that the residual depends on.
    """

    residual: Callable[[Any], Array]
    jacobian: Callable[[Any, Any], tuple[Array, Array]]
    weights: Array
    path: tuple[int, ...]

    def expand(self, system: Any, t: Any, state: Any, control: Any) -> QuadraticModel:
        r, jacobian = self.jacobian(system, state)
        r, jacobian = self.weights * r, self.weights[:, None] * jacobian
        first, second = _pulled(jacobian, r), _squared(jacobian)
        rest = jax.eval_shape(system.difference, state, state).shape[0] - len(first)
        return QuadraticModel(x=jnp.pad(first, (0, rest)), xx=jnp.pad(second, ((0, rest), (0, rest))))

    def couples(self) -> Groups:
        return [self.path]


@dataclass(frozen=True, eq=False)
class _Displacement(_SquaredResidual):
    """½ |weights * [displacement, velocity]|² of states (q, v), whose derivative has boxes of free and ball joints."""

    model: Model
    residual: Callable[[Any], Array]
    weights: Array

    def expand(self, system: Any, t: Any, state: Any, control: Any) -> QuadraticModel:
        r, squares, turns = self.residual(state), self.weights * self.weights, turning(self.model.tree)
        inside = np.zeros(len(r), bool)
        first, done, boxes = [], 0, []
        for start, stop, group in turns:
            inside[start:stop] = True
            (jacobian,) = matrices((group.dexpinv,), -r[start:stop])
            first += [squares[done:start] * r[done:start], _pulled(jacobian, squares[start:stop] * r[start:stop])]
            boxes.append(_squared(self.weights[start:stop, None] * jacobian))
            done = stop
        first = jnp.concatenate([*first, squares[done:] * r[done:]])
        starts = tuple(start for start, _, _ in turns)
        return QuadraticModel(x=first, xx=Diagonal(jnp.where(inside, 0, squares), tuple(boxes), starts))

    def couples(self) -> Groups:
        return []


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class _Effort(Cost):
    """½ |weights * (control - target)|²."""

    target: np.ndarray
    weights: np.ndarray

    def __call__(self, *args: Any) -> Array:
        if len(args) == 1:
            raise ValueError("a cost of the control is a running cost, it cannot be terminal")
        for name, value in (("target", self.target), ("weights", self.weights)):
            if value.shape not in ((), args[2].shape):
                raise ValueError(f"{name} has shape {value.shape}, the controls have {args[2].shape}")
        r = jnp.asarray(self.weights, args[2].dtype) * (args[2] - jnp.asarray(self.target, args[2].dtype))
        return jnp.sum(r * r) / 2

    def expand(self, system: Any, t: Any, state: Any, control: Any) -> QuadraticModel:
        squares = jnp.broadcast_to(jnp.asarray(self.weights, control.dtype) ** 2, control.shape)
        return QuadraticModel(u=squares * (control - jnp.asarray(self.target, control.dtype)), uu=Diagonal(squares))

    def couples(self) -> Groups:
        return []


@dataclass(frozen=True, eq=False)
class _Forces(Cost):
    """½ |weights (forces - target)|² of the forces that an acceleration takes; weights (nv,) or a matrix."""

    model: Model
    target: Array
    weights: Array

    def _weighed(self, x: Array, root: Any = 1) -> Array:
        """root: a factor of the weights."""
        weights = self.weights * jnp.asarray(root, x.dtype)
        if weights.ndim == 2:
            return (sm.matvec if x.ndim == 1 else sm.matmul)(weights, x)
        return weights * x if x.ndim == 1 else weights[:, None] * x

    def __call__(self, *args: Any) -> Array:
        if len(args) == 1:
            raise ValueError("a cost of forces is a running cost, it cannot be terminal")
        _, (q, v), vdot = args
        r = self._weighed(inverse_dynamics(self.model, q, v, vdot) - self.target)
        return jnp.sum(r * r) / 2

    def expand(self, system: Any, t: Any, state: Any, control: Any) -> QuadraticModel:
        n, (gradient, jacobian) = 2 * self.model.nv, self._gradient_and_jacobian(state, control)
        second = _squared(jacobian)
        return QuadraticModel(gradient[:n], gradient[n:], second[:n, :n], second[n:, :n], second[n:, n:])

    def factored(
        self, system: Any, t: Any, state: Any, control: Any, factor: Any, positive: bool = False
    ) -> tuple[QuadraticModel, tuple]:
        if not positive:
            return super().factored(system, t, state, control, factor)
        root = math.sqrt(factor) if isinstance(factor, float) else jnp.sqrt(jnp.asarray(factor, control.dtype))
        n, (gradient, jacobian) = 2 * self.model.nv, self._gradient_and_jacobian(state, control, root)
        return QuadraticModel(gradient[:n], gradient[n:]), (jacobian,)

    def couples(self) -> Groups | None:
        tree = self.model.tree
        return None if self.weights.ndim == 2 else [_path(tree, body) for body in range(tree.nbodies)]

    def _gradient_and_jacobian(self, state: Any, control: Array, root: Any = 1) -> tuple[Array, Array]:
        q, v = state
        forces, jacobians = force_jacobians(self.model, q, v, control)
        jacobian = jnp.concatenate([self._weighed(x, root) for x in jacobians], 1)
        return _pulled(jacobian, self._weighed(forces - self.target, root)), jacobian


def _path(tree: Tree, body: int) -> tuple[int, ...]:
    """The velocities of the joints between the world and a body, its own last."""
    return tuple(k for k, mover in enumerate(tree.v_body) if body >= 0 and mover in tree.ancestors[body])


def _weights(weights: ArrayLike, count: int, dtype: Any) -> Array:
    return checks.array("weights", weights, (count,), dtype)


def frame(model: Model | Mechanism, name: str, target: Pose, weights: ArrayLike = 1.0) -> Cost:
    """½ |weights * log(target^-1 T_world_frame)|² of the pose of a named frame.

    target: where the frame is to be, T_world_target, a `Pose`. weights: one number or (6,), rad^-1 and m^-1, angular
    first, in the axes of the target. For mechanisms, with states (q, v); running or terminal.
    Raises ValueError for an unknown name. Source: [sola2018] section 4.
    """
    model = checked_model(model)
    path = _path(model.tree, carrier(model, name)[0])
    if type(target) is tuple and len(target) == 2:
        target = Pose(*target)
    target = checked({"target": (target, Fields(Pose, ((3, 3), (3,))))}, single=True)["target"]
    target = jax.tree.map(lambda x: jnp.asarray(x, model.dtype), target)
    miss, jacobian = partial(_pose_miss, model, name, target), partial(_pose_jacobian, model, name, target)
    return _OfState(miss, jacobian, _weights(weights, 6, model.dtype), path)


def _pose_miss(model: Model, name: str, target: Pose, state: Any) -> Array:
    return se3.log(se3.compose(se3.inverse(target), frame_pose(model, state[0], name)))


def _pose_jacobian(model: Model, name: str, target: Pose, system: Any, state: Any) -> tuple[Array, Array]:
    r = _pose_miss(model, name, target, state)
    (bent,) = matrices((se3.dexpinv,), -r)
    return r, product(bent, jacobian(model, state[0], name))


def frame_position(model: Model | Mechanism, name: str, target: ArrayLike, weights: ArrayLike = 1.0) -> Cost:
    """½ |weights * (position - target)|² of the origin of a named frame.

    target: (3,) m, world frame. weights: one number or (3,), m^-1. For mechanisms, with states (q, v).
    Raises ValueError for an unknown name.
    """
    model = checked_model(model)
    path = _path(model.tree, carrier(model, name)[0])
    goal = checks.array("target", target, (3,), model.dtype)
    miss, jacobian = partial(_place_miss, model, name, goal), partial(_place_jacobian, model, name, goal)
    return _OfState(miss, jacobian, _weights(weights, 3, model.dtype), path)


def _place_miss(model: Model, name: str, goal: Array, state: Any) -> Array:
    return frame_pose(model, state[0], name).translation - goal


def _place_jacobian(model: Model, name: str, goal: Array, system: Any, state: Any) -> tuple[Array, Array]:
    rotation = frame_pose(model, state[0], name).rotation
    return _place_miss(model, name, goal, state), sm.matmul(rotation, jacobian(model, state[0], name)[3:])


def momentum(model: Model | Mechanism, target: ArrayLike = 0.0, weights: ArrayLike = 1.0) -> Cost:
    """½ |weights * (momentum - target)|² of the total momentum (6,), angular first, about the world's origin.

    target: a number or (6,), kg m²/s and kg m/s, world axes. weights: one number or (6,), one over these units. For
    mechanisms, with states (q, v).
    """
    model = checked_model(model)
    goal, weights = checks.array("target", target, (6,), model.dtype), _weights(weights, 6, model.dtype)
    return LeastSquares(partial(_momentum_miss, model, goal, weights))


def _momentum_miss(model: Model, goal: Array, weights: Array, *args: Any) -> Array:
    q, v = args[0] if len(args) == 1 else args[1]
    return weights * (momentum_of(model, q, v) - goal)


def state(model: Model | Mechanism, target: Any, weights: ArrayLike = 1.0) -> Cost:
    """½ |weights * [difference(model, target q, q), v - target v]|² of states (q, v).

    target: a state (q, v). weights: one number or (2 nv,), those of the body-frame displacement (rad, m) first, then of
    the velocity (rad/s, m/s).
    """
    model = checked_model(model)
    weights = _weights(weights, 2 * model.nv, model.dtype)
    if not isinstance(target, tuple) or len(target) != 2:
        raise TypeError(f"target must be a state (q, v), got {checks.shown(target)}")
    q0 = checked_configuration("target[0]", target[0], model)
    v0 = checks.array("target[1]", target[1], (model.nv,), model.dtype)
    return _Displacement(model, partial(_state_miss, model.tree, q0, v0), weights)


def _state_miss(tree: Tree, q0: Configuration, v0: Array, *args: Any) -> Array:
    q, v = args[0] if len(args) == 1 else args[1]
    return jnp.concatenate([displacement(tree, q0, q), v - v0])


def control(target: ArrayLike = 0.0, weights: ArrayLike = 1.0) -> Cost:
    """½ |weights * (control - target)|², a running cost.

    target: in the units of the controls, for joint torques N m; weights: one over these. Each is one number or
    (controls,). With `ControlSystem.with_rates()`, whose controls are the rates of torques, this is the cost of the
    torque rate. Raises ValueError where it is used as a terminal cost.
    """

    def fixed(name: str, value: ArrayLike) -> Any:
        if checks.known(value):
            return checks.fixed(checks.finite(name, checks.real(name, value)))
        return checks.floats(name, value, (), checks.float_dtype(value))

    return _Effort(fixed("target", target), fixed("weights", weights))


def forces(model: Model | Mechanism, target: ArrayLike = 0.0, weights: ArrayLike = 1.0) -> Cost:
    """½ |weights (forces - target)|² of the generalized forces (nv,), of `ControlSystem.of_accelerations`, running.

    target: one number or (nv,), N m and N. weights: one number, (nv,), or a matrix (k, nv) that takes forces to what
    is weighed, such as the thrusts of propellers.
    """
    model = checked_model(model)
    goal = checks.array("target", target, (model.nv,), model.dtype)
    weights = checks.floats("weights", weights, (model.nv,), model.dtype)
    if weights.ndim < 2:
        weights = _weights(weights, model.nv, model.dtype)
    elif weights.ndim > 2 or weights.shape[1] != model.nv:
        raise ValueError(f"weights are one number, ({model.nv},) or (k, {model.nv}), got shape {weights.shape}")
    return _Forces(model, goal, checks.finite("weights", weights))
