"""What `gradients.py` differentiates, and at which states."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax import groups


class Subject(NamedTuple):
    """A function (state, x) -> (k,) with a name for each number; states with a leading axis, a label for each.

    direction: (n,) for second derivatives and differences. second: whether second derivatives are asked for, or
    "forward over reverse" of them alone, or "reverse alone", for functions that have first derivatives in reverse mode
    and no others. smooth: (states, k) where float32 has to agree with float64; filled in when differences are known.
    distance: (states,) from a place without derivatives, where finite is all that is asked.
    """

    names: tuple[str, ...]
    function: Callable[[Any, jax.Array], jax.Array]
    states: Any
    labels: tuple[str, ...]
    direction: np.ndarray
    second: bool | str = True
    smooth: Any = True
    distance: Any = np.inf


ANGLES = (
    0.0, 1e-30, 1e-18, 1e-12, 1e-8, 1e-6, 1e-4, 1e-2, 0.3, 1.0, 2.0**0.5, 2.0, 3.0, np.pi - 1e-3, np.pi - 1e-6, np.pi,
)  # fmt: skip


def directions(n: int, rng: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    """Unit vectors along axes, diagonals, and a random one."""
    random = rng.normal(size=n)
    found = [(f"axis {i}", np.eye(n)[i]) for i in range(min(n, 3))]
    return [*found, ("minus axis 0", -np.eye(n)[0]), ("diagonal", np.ones(n)), ("random", random)]


def weigh(rng: np.random.Generator, tree: Any) -> Any:
    """One number from a pytree of arrays: a sum with fixed weights, kept as a function."""
    weights = [rng.normal(size=x.shape) for x in jax.tree.leaves(tree)]
    return lambda found: sum(
        jnp.sum(jnp.asarray(w, x.dtype) * x) for w, x in zip(weights, jax.tree.leaves(found), strict=True)
    )


# ---- groups
GROUPS = {
    "SO3": lambda: groups.SO3,
    "S3": lambda: groups.S3,
    "SE3": lambda: groups.SE3,
    "R3xSO3": lambda: groups.R3xSO3,
    "R4": lambda: groups.Rn(4),
    "SO3 x R2": lambda: groups.product(groups.SO3, groups.Rn(2)),
    "T*SO3": lambda: groups.cotangent_group(groups.SO3),
    "SE3 (Cayley)": lambda: groups.cayley_coordinates(groups.SE3),
    "SE3 (second kind)": lambda: groups.second_kind_coordinates(groups.SE3),
}


def of_group(make: Callable, seed: int) -> Subject:
    """All maps of a group at rotations of every size, around every sort of axis."""
    group, rng = make(), np.random.default_rng(seed)
    n = group.dim
    states, labels = [], []
    for label, axis in directions(3 if "R4" not in group.name else n, rng):
        for angle in ANGLES:
            if group.chart == "second kind" and abs(angle - np.pi / 2) < 1.5 and angle > 0.1:
                continue  # its singularity is there
            u, v = 0.5 * rng.normal(size=n), rng.normal(size=n)
            u[: len(axis)] = angle * axis / np.linalg.norm(axis)
            states.append((u, v))
            labels.append(f"{angle:g} about {label}")
    # a translation along and across the axis, and none
    states.append((np.zeros(n), np.zeros(n)))
    labels.append("identity, at rest")
    functions = _group_functions(group)
    sample = tuple(jnp.asarray(x) for x in states[0])
    shapes = jax.eval_shape(lambda u, v: {k: f(u, v, u, v) for k, f in functions.items()}, *sample)
    weights = {name: weigh(rng, shapes[name]) for name in functions}

    def function(state: Any, x: jax.Array) -> jax.Array:
        u0, v0 = state
        e, w = x[:n], x[n:]
        return jnp.stack([weights[k](f(u0 + e, v0 + w, u0, e)) for k, f in functions.items()])

    return Subject(tuple(functions), function, _stacked(states), tuple(labels), rng.normal(size=2 * n) / np.sqrt(2 * n))


def _group_functions(group: Any) -> dict[str, Callable]:
    """(u, v, u0, e) -> a result: u = u0 + e and v vary, g is exp(u0) moved by e."""
    moved = lambda u0, e: group.compose(group.exp(u0), group.exp(e))
    found: dict[str, Callable] = {
        "exp": lambda u, v, u0, e: group.exp(u),
        "log": lambda u, v, u0, e: group.log(moved(u0, e)),
        "inverse": lambda u, v, u0, e: group.inverse(moved(u0, e)),
        "Ad": lambda u, v, u0, e: group.Ad(moved(u0, e), v),
        "coAd": lambda u, v, u0, e: group.coAd(moved(u0, e), v),
        "ad": lambda u, v, u0, e: group.ad(u, v),
        "distance": lambda u, v, u0, e: group.distance(group.exp(0.1 * v), moved(u0, e)),
        "distance to itself": lambda u, v, u0, e: group.distance(group.exp(u0), moved(u0, e)),
    }
    for name in ("dexp", "dexpinv", "codexp", "codexpinv"):
        found[name] = partial(_of_two, getattr(group, name))
    if group.chart == "exp":
        found |= {
            "cay": lambda u, v, u0, e: group.cay(u),
            "cayinv of cay": lambda u, v, u0, e: group.cayinv(group.cay(u)),
            "dcay": lambda u, v, u0, e: group.dcay(u, v),
            "dcayinv": lambda u, v, u0, e: group.dcayinv(u, v),
        }
    if group == groups.SO3:
        found |= {
            "to_quaternion": lambda u, v, u0, e: groups.so3.to_quaternion(moved(u0, e)),
            "from_quaternion": lambda u, v, u0, e: groups.so3.from_quaternion(groups.s3.exp(u)),
        }
    return found


def _of_two(f: Callable, u: Any, v: Any, u0: Any, e: Any) -> Any:
    return f(u, v)


def _stacked(states: list) -> Any:
    return jax.tree.map(lambda *x: np.stack(x), *states)


def subjects() -> dict[str, Callable[[int], Subject]]:
    """Makers of subjects by name."""
    from soak.gradient_adapters import ADAPTED
    from soak.gradient_drivers import DRIVERS
    from soak.gradient_further import ADDED
    from soak.gradient_mechanics import MECHANICS
    from soak.gradient_rates import DERIVED
    from soak.gradient_steps import STEPS
    from soak.gradient_systems import READY

    of_groups = {f"group {name}": partial(of_group, make) for name, make in GROUPS.items()}
    return of_groups | MECHANICS | DERIVED | DRIVERS | STEPS | ADDED | ADAPTED | READY
