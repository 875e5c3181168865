"""A Lie group as a value: a frozen, hashable record of functions over arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups.arguments import Form, cached, form_of, takes
from lgjax.numerics.records import Made
from lgjax.numerics.small_angle import norm

Array = jax.Array
Element = Any


@dataclass(frozen=True)
class LieGroup(Made):
    """Record of all that integrators, products and tests need to know of a group G of dimension `dim`.

    Elements are arrays or (named) tuples of arrays, algebra elements and their duals vectors (..., dim); every function
    broadcasts over leading axes.  ``dexp`` is the left version, ``codexp`` and ``codexpinv`` are transposes,
    ``hat`` and ``vee`` go to a matrix (for S3: quaternion) form of the algebra and back.  Equality and hash are those
    of the functions, so a record may be a static argument of ``jit``.  ``chart`` names the map that replaces
    exp, and ``base`` is the group G of a cotangent group G ⋉ g*.  ``parts`` is for error control, see
    `HomogeneousSpace`; None judges elements as a whole.

    identity(dtype, batch=())  compose(g, h)  inverse(g)  exp(u)  log(g)  Ad(g, x)  ad(x, y)  coAd(g, mu)  coad(x, mu)
    dexp(u, v)  dexpinv(u, v)  codexp(u, mu)  codexpinv(u, mu)  hat(u)  vee(m)  cay(u)  cayinv(g)  dcay(u, v)
    dcayinv(u, v)  distance(g, h)  normalize(g)  parts(g, start=None)
    """

    name: str
    dim: int
    identity: Callable[..., Element]
    compose: Callable[[Element, Element], Element]
    inverse: Callable[[Element], Element]
    exp: Callable[[Array], Element]
    log: Callable[[Element], Array]
    Ad: Callable[[Element, Array], Array]
    ad: Callable[[Array, Array], Array]
    coAd: Callable[[Element, Array], Array]  # noqa: N815 - the name of the field
    coad: Callable[[Array, Array], Array]
    dexp: Callable[[Array, Array], Array]
    dexpinv: Callable[[Array, Array], Array]
    codexp: Callable[[Array, Array], Array]
    codexpinv: Callable[[Array, Array], Array]
    hat: Callable[[Array], Any]
    vee: Callable[[Any], Array]
    cay: Callable[[Array], Element]
    cayinv: Callable[[Element], Array]
    dcay: Callable[[Array, Array], Array]
    dcayinv: Callable[[Array, Array], Array]
    distance: Callable[[Element, Element], Array]
    normalize: Callable[[Element], Element]
    chart: str = "exp"
    base: LieGroup | None = None
    parts: Callable[..., tuple[Array, ...]] | None = None

    def __repr__(self) -> str:
        return self.name


# The arguments of each function, by the names of the record's docstring, and whether its result is an element (a tuple
# in a product, "e") or an algebra vector (flat in a product, "v").  g and h are elements, m is a matrix, others are
# vectors.
_SIGNATURES = {
    "compose": (("g", "h"), "e"),
    "inverse": (("g",), "e"),
    "exp": (("u",), "e"),
    "log": (("g",), "v"),
    "Ad": (("g", "x"), "v"),
    "ad": (("x", "y"), "v"),
    "coAd": (("g", "mu"), "v"),
    "coad": (("x", "mu"), "v"),
    "dexp": (("u", "v"), "v"),
    "dexpinv": (("u", "v"), "v"),
    "codexp": (("u", "mu"), "v"),
    "codexpinv": (("u", "mu"), "v"),
    "hat": (("u",), "e"),
    "vee": (("m",), "v"),
    "cay": (("u",), "e"),
    "cayinv": (("g",), "v"),
    "dcay": (("u", "v"), "v"),
    "dcayinv": (("u", "v"), "v"),
    "distance": (("g", "h"), "s"),
    "normalize": (("g",), "e"),
}


@cache
def element_form(group: LieGroup) -> Form:
    """The form of an element, for checks of arguments."""
    return form_of(group.identity)


@cache
def _matrix_form(group: LieGroup) -> Form:
    return form_of(lambda dtype: group.hat(jnp.zeros(group.dim, dtype)))


def checks_arguments(group: LieGroup) -> LieGroup:
    """The record with functions that check their arguments, for groups put together from others."""

    def form(name: str) -> Form:
        special = {"g": element_form, "h": element_form, "m": _matrix_form}
        return partial(special[name], group) if name in special else (group.dim,)

    def checked(function: str) -> Callable[..., Any]:
        names, _ = _SIGNATURES[function]
        plain = getattr(group, function)
        return takes(**{name: form(name) for name in names})(lambda *args: plain(*args))

    return replace(group, **{function: checked(function) for function in _SIGNATURES})


@cached(groups=LieGroup)
def product(*groups: LieGroup) -> LieGroup:
    """Direct product of groups: elements are tuples, one entry per factor.

    The algebra is one flat vector (..., sum of the dimensions), the factors' vectors in sequence.  `hat` gives
    the tuple of the factors' matrices; `distance` is the root of the sum of squares.  Equal arguments give the same
    record, so a product may be rebuilt at every call without recompilation.
    """
    if not groups:
        raise ValueError("product() needs at least one group")
    offsets = [sum(group.dim for group in groups[:i]) for i in range(len(groups) + 1)]

    def split(x: Array) -> tuple[Array, ...]:
        return tuple(x[..., a:b] for a, b in pairwise(offsets))

    def join(parts: list[Array]) -> Array:
        lead = jnp.broadcast_shapes(*(part.shape[:-1] for part in parts))
        return jnp.concatenate([jnp.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1)

    def lift(function: str) -> Callable[..., Any]:
        names, result = _SIGNATURES[function]
        factors = [getattr(group, function) for group in groups]

        def lifted(*args: Any) -> Any:
            split_args = [arg if name in "ghm" else split(arg) for name, arg in zip(names, args, strict=True)]
            parts = [factor(*(arg[i] for arg in split_args)) for i, factor in enumerate(factors)]
            return join(parts) if result == "v" else tuple(parts)

        return lifted

    def identity(dtype: jax.typing.DTypeLike, batch: tuple[int, ...] = ()) -> tuple[Element, ...]:
        return tuple(group.identity(dtype, batch) for group in groups)

    def distance(g: tuple[Element, ...], h: tuple[Element, ...]) -> Array:
        parts = [group.distance(a, b) for group, a, b in zip(groups, g, h, strict=True)]
        return norm(jnp.stack(jnp.broadcast_arrays(*parts), axis=-1))

    def parts(g: tuple[Element, ...], start: tuple[Element, ...] | None = None) -> tuple[Array, ...]:
        starts = (None,) * len(groups) if start is None else start
        each = [group.parts(a, b) for group, a, b in zip(groups, g, starts, strict=True) if group.parts]
        return tuple(part for vectors in each for part in vectors)

    name = " x ".join(group.name for group in groups)
    lifted: dict[str, Any] = {function: lift(function) for function in _SIGNATURES if function != "distance"}
    charts = {group.chart for group in groups}
    chart = charts.pop() if len(charts) == 1 else "mixed"
    return checks_arguments(
        LieGroup(
            name=name,
            dim=offsets[-1],
            identity=identity,
            distance=distance,
            chart=chart,
            parts=parts if all(group.parts for group in groups) else None,
            **lifted,
        )
    )
