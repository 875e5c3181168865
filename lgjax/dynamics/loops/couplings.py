"""Couplings: a joint or a length that follows another one, by a polynomial; loops with a closed form of one row each.

    phi = y - y0 - p(x - x0),    A = dy/dq - p' dx/dq,    dA/dt v = d(dy/dq)/dt v - p' d(dx/dq)/dt v - p'' (dx/dt)^2

for the follower y and the leader x. A mimic joint of a URDF has the coefficients (offset, multiplier), an equality of
joints or tendons of MuJoCo up to five. A follower is held by a row and not by a reduction of the coordinates: every
recursion stays as it is, forces and limits of the follower act where they are, what holds it is its multiplier, and
rows of loops and of contacts are solved together. The solution is the same: the row removes one freedom, exactly.

Read first: `loop.py`; `couple.py` makes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.transmissions import Transmissions
from lgjax.multibody.configuration import Configuration, retract
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics.messages import listed, shown


class Rows(NamedTuple):
    """residual, rate, bias: (m,). jacobian: (m, nv). See `Constraint`."""

    residual: jax.Array
    jacobian: jax.Array
    rate: jax.Array
    bias: jax.Array


class Follow(NamedTuple):
    """Numbers of a coupling: coefficients (k,), constant first; references (2,), y0 and x0; of lengths also these."""

    coefficients: jax.Array
    references: jax.Array
    lengths: Transmissions | None = None

    def polynomial(self, x) -> tuple[jax.Array, jax.Array, jax.Array]:
        """p, p' and p'' at x - x0."""
        return polynomial(self.coefficients, x - self.references[1])


def polynomial(coefficients, x) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value and first two derivatives at x of the polynomial with the coefficients (k, ...), constant first."""
    zero = jnp.zeros_like(x)
    value, slope, bend = zero, zero, zero
    for k in reversed(range(len(coefficients))):
        value, slope, bend = value * x + coefficients[k], slope * x + value, bend * x + 2 * slope
    return value, slope, bend


class Coupling:
    """Kind of a loop whose row has a closed form. An instance is static: the numbers are the loop's `parameters`."""

    def __call__(self, model: Model, q: Configuration, parameters: Follow) -> jax.Array:
        """Residual (1,)."""
        raise NotImplementedError

    def bodies(self, tree: Tree, parameters: Follow) -> tuple[int, ...]:
        """The bodies whose joints move what is coupled."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class JointCoupling(Coupling):
    """A scalar coordinate that follows another one, if there is one: names as in `tree.coordinate_names`."""

    follower: str
    leader: str | None

    def __call__(self, model, q, parameters):
        return joint_rows(model, [(self, parameters)], q, None).residual

    def bodies(self, tree, parameters):
        return tuple(sorted({tree.v_body[column] for _, column in self.places(tree)}))

    @property
    def label(self) -> str:
        return f"(coupling {self.follower}{'' if self.leader is None else f'-{self.leader}'})"

    def places(self, tree: Tree) -> tuple[tuple[int, int], tuple[int, int]]:
        """(place in `Configuration.joints`, in a velocity) of the follower and of the leader, or its own again."""
        follower = scalar_place(tree, "follower", self.follower)
        return follower, follower if self.leader is None else scalar_place(tree, "leader", self.leader)


def joint_rows(model: Model, couplings: Sequence[tuple[JointCoupling, Follow]], q: Configuration, v) -> Rows:
    """The rows of several couplings of joints at once; without v rate and bias are zero."""
    places = np.asarray([kind.places(model.tree) for kind, _ in couplings], int)  # (m, end, place)
    ends, columns = places[..., 0], places[..., 1]
    most = max(len(follow.coefficients) for _, follow in couplings)
    padded = [jnp.pad(follow.coefficients, (0, most - len(follow.coefficients))) for _, follow in couplings]
    references = jnp.stack([follow.references for _, follow in couplings])
    x, y = q.joints[ends[:, 1]] - references[:, 1], q.joints[ends[:, 0]] - references[:, 0]
    value, slope, bend = polynomial(jnp.stack(padded, 1), x)
    each = np.arange(len(couplings))
    A = jnp.zeros((len(each), model.nv), value.dtype)
    A = A.at[each, columns[:, 0]].add(1).at[each, columns[:, 1]].add(-slope)
    if v is None:
        return Rows(y - value, A, jnp.zeros_like(x), jnp.zeros_like(x))
    speed = v[columns[:, 1]]
    return Rows(y - value, A, v[columns[:, 0]] - slope * speed, -bend * speed * speed)


@dataclass(frozen=True)
class LengthCoupling(Coupling):
    """A length that follows another one, or is held: indices of the transmissions among the parameters."""

    follower: int
    leader: int | None

    def __call__(self, model, q, parameters):
        return self.rows(model, q, None, parameters).residual

    def bodies(self, tree, parameters):
        _, columns = parameters.lengths.places  # type: ignore[union-attr]
        return tuple(sorted({tree.v_body[column] for column in columns}))

    @property
    def label(self) -> str:
        return f"(coupling of {'a length' if self.leader is None else 'two lengths'})"

    def rows(self, model: Model, q: Configuration, v, parameters: Follow) -> Rows:
        lengths = parameters.lengths.for_model(model)  # type: ignore[union-attr]
        world = lengths.kinematics(q)
        found, moments = lengths.lengths(q, world), lengths.moments(q, world)
        if self.leader is None:
            value, slope, bend = parameters.coefficients[0], None, None
        else:
            value, slope, bend = parameters.polynomial(found[self.leader])
        residual = (found[self.follower] - parameters.references[0] - value)[None]
        follow = lambda x: x[self.follower] if slope is None else x[self.follower] - slope * x[self.leader]
        A = follow(moments)[None]
        if v is None:
            return Rows(residual, A, jnp.zeros_like(residual), jnp.zeros_like(residual))
        rates = lengths.rates(q, v, world)
        turning = jnp.zeros_like(rates)
        if not lengths.constant:
            zero = jnp.zeros((), v.dtype)
            along = lambda t: lengths.rates(retract(model, q, t * v), v)
            turning = jax.jvp(along, (zero,), (zero + 1,))[1]
        bias = follow(turning) - (0 if bend is None else bend * rates[self.leader] ** 2)
        return Rows(residual, A, follow(rates)[None], bias[None])


def scalar_place(tree: Tree, what: str, name: Any) -> tuple[int, int]:
    """Place of a scalar coordinate in `Configuration.joints`, and in a velocity; ValueError for anything else."""
    if name not in tree.coordinate_names:
        if name in tree.joint_names:
            kind = tree.kinds[tree.joint_names.index(name)]
            if kind.coordinates == "joints":
                raise ValueError(f"{what} {name!r} has {kind.nq} coordinates: name one, such as {name + '[0]'!r}")
            raise ValueError(f"{what} {name!r} is a {kind.name} joint, which has no scalar coordinate")
        raise ValueError(f"no {what} {shown(name)} in {tree.name!r}; joints: {listed(tree.coordinate_names)}")
    coordinate = tree.coordinate_names.index(name)
    columns = [
        start + i
        for kind, start in zip(tree.kinds, tree.v_start, strict=True)
        if kind.coordinates == "joints"
        for i in range(kind.nq)
    ]
    return coordinate, columns[coordinate]
