"""Checks of the arguments of group functions: one decorator at every entry.

Only shapes and dtypes are judged, which are known of traced arrays too, so a program has no additional operation and
arrays that fit pass unchanged. Numbers in lists, NumPy arrays and integers become floating arrays. What does not fit is
refused with one sentence that names the argument: an index beyond the end of an array would otherwise be clamped, and a
vector of the wrong length give a wrong result.
"""

from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, wraps
from inspect import Parameter, signature
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics.checks import described, floating, floats, integer, known, shown, sizes
from lgjax.numerics.records import made_by

P = ParamSpec("P")
R = TypeVar("R")


class Fields(NamedTuple):
    """Form of a tuple: its type and the forms of its entries."""

    kind: type
    forms: tuple[Any, ...]


class Record(NamedTuple):
    """Form of a dataclass: its type and the forms of the fields that are looked at, (name, form)."""

    kind: type
    forms: tuple[tuple[str, Any], ...] = ()


class Maybe(NamedTuple):
    """Form of what may be None."""

    form: Any


# The last axes of an array, where a text stands for a size that is the same for all arguments; a tuple; a dataclass;
# what may be None; a function that says it when it is first needed; or anything.
Form = tuple[int | str, ...] | Fields | Record | Maybe | Callable[[], Any] | None


def takes(single: bool = False, /, **forms: Form) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function of arrays (..., *form) and tuples of them, whose leading axes broadcast; by argument name.

    single: no leading axes. Functions of arrays alone are traced once for each shape (`jax.jit`), however often a
    program calls them. Raises TypeError for anything but an array of real numbers or the expected tuple, ValueError for
    shapes.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = signature(function).parameters
        positional = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
        names = tuple(parameters) if positional else tuple(forms)
        order = tuple(forms.get(name) for name in names)
        of_arrays = all(isinstance(form, tuple) and not isinstance(form, Record | Maybe) for form in order)
        run: Callable = jax.jit(function) if positional and of_arrays else function

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not single and not kwargs and len(args) == len(order) and _fit(args, order):
                return run(*args)
            if len(args) > len(names):
                return function(*args, **kwargs)  # which raises Python's own error
            given = dict(zip(names, args, strict=False)) | kwargs
            if set(kwargs) & set(names[: len(args)]) or not set(kwargs) <= set(names):
                return function(*args, **kwargs)  # and here
            wanted = dict(zip(names, order, strict=True))
            found = checked({name: (value, _resolved(wanted[name])) for name, value in given.items()}, single)
            return run(*(found[name] for name in names[: len(args)]), **{name: found[name] for name in kwargs})

        return call

    return decorate


def makes_identities(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate (dtype, batch=()) -> identity to check both."""

    @wraps(function)
    def identity(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature(function).bind(*args, **kwargs).arguments
        given["dtype"] = floating("dtype", given["dtype"])
        given["batch"] = sizes("batch", given.get("batch", ()))
        return function(**given)  # type: ignore[call-arg]

    return identity


def cached(**kinds: type | int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function of records and integers to give the same object for the same arguments, and to check them.

    Pickle and copy call it again, so that they give the same object too. kinds: argument -> its type, or the least
    integer. Raises TypeError for what is not of the type.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = signature(function)

        @cache
        def remembered(*args: Any) -> R:
            return made_by(function(*args), call, args)  # type: ignore[call-arg]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = parameters.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                kind = kinds.get(name)
                if isinstance(kind, int):
                    bound.arguments[name] = integer(name, value, kind)
                elif kind is not None:
                    several = parameters.parameters[name].kind is Parameter.VAR_POSITIONAL
                    for one in value if several else (value,):
                        if not isinstance(one, kind):
                            raise TypeError(f"{name} takes a {kind.__name__}, got {shown(one)}")
                elif not isinstance(value, Hashable):
                    raise TypeError(f"{name} must be hashable, got {shown(value)}")
            return remembered(*bound.args)

        return call

    return decorate


def _resolved(form: Form) -> Any:
    return form() if callable(form) else form


def _fit(values: tuple[Any, ...], forms: tuple[Form, ...]) -> bool:
    """Whether all are plainly right: floating arrays of JAX without leading axes, or with the same."""
    lead = None
    for value, form in zip(values, forms, strict=True):
        if type(form) is not tuple or not isinstance(value, jax.Array):
            return False
        shape, n = value.shape, len(form)  # type: ignore[arg-type]
        if shape[len(shape) - n :] != form or len(shape) < n or value.dtype.kind != "f":
            return False
        if lead is None:
            lead = shape[: len(shape) - n]
        elif lead != shape[: len(shape) - n]:
            return False
    return True


def checked(given: Mapping[str, tuple[Any, Form]], single: bool = False) -> dict[str, Any]:
    """The values by name, each of its form, arrays all; `single` without leading axes."""
    leaves = jax.tree.leaves([value for value, form in given.values() if form is not None])
    dtypes = [
        x.dtype for x in leaves if isinstance(x, jax.Array | np.ndarray) and jnp.issubdtype(x.dtype, jnp.floating)
    ]
    look = _Look(dtypes[0] if dtypes else jnp.result_type(float), {}, {})
    found = {name: look.value(name, value, form) for name, (value, form) in given.items()}
    for name, lead in look.leads.items() if single else ():
        if lead:
            raise ValueError(f"{name} has leading axes {lead}, where one is taken: use jax.vmap for several")
    try:
        np.broadcast_shapes(*look.leads.values())
    except ValueError:
        said = " and ".join(f"{name} {lead}" for name, lead in look.leads.items() if lead)
        raise ValueError(f"the leading axes do not broadcast: {said}") from None
    return found


class _Look(NamedTuple):
    """Findings about the arguments of one call.

    dtype: that of numbers without one. sizes: text in a form -> the argument that has fixed it, and the size. leads:
    leading axes by argument.
    """

    dtype: Any
    sizes: dict[str, tuple[str, int]]
    leads: dict[str, tuple[int, ...]]

    def value(self, name: str, value: Any, form: Form) -> Any:
        if isinstance(form, Maybe):
            return None if value is None else self.value(name, value, form.form)
        if form is None:
            return value
        if isinstance(form, Record):
            if not isinstance(value, form.kind):
                raise TypeError(f"{name} is {described(value)}, expected a {form.kind.__name__}")
            parts = {x: self.value(f"{name}.{x}", getattr(value, x), each) for x, each in form.forms}
            return replace(value, **parts) if parts else value
        if not isinstance(form, Fields):  # no function: those are asked before
            array = _array(name, value, form, self.dtype)
            self.shape(name, array.shape, form)  # type: ignore[arg-type]
            return array
        if not isinstance(value, form.kind) or len(value) != len(form.forms):
            kind = f"a tuple of {len(form.forms)}" if form.kind is tuple else f"a {form.kind.__name__}"
            raise TypeError(f"{name} is {described(value)}, expected {kind}")
        fields = [f".{x}" for x in getattr(form.kind, "_fields", ())] or [f"[{i}]" for i in range(len(value))]
        parts = [self.value(name + field, *each) for field, *each in zip(fields, value, form.forms, strict=True)]
        return tuple(parts) if form.kind is tuple else form.kind(*parts)

    def shape(self, name: str, shape: tuple[int, ...], form: tuple[int | str, ...]) -> None:
        n = len(form)
        if len(shape) < n:
            raise ValueError(f"{name} has shape {shape}, expected {_text(form)}")
        ends = shape[len(shape) - n :]
        for size, end in zip(form, ends, strict=True):
            owner, wanted = self.sizes.setdefault(size, (name, end)) if isinstance(size, str) else ("", size)
            if end != wanted:
                fixed = tuple(self.sizes[size][1] if size in self.sizes else size for size in form)  # type: ignore[index]
                like = f", for {owner} has {wanted}" if owner not in ("", name) else ""
                raise ValueError(f"{name} has shape {shape}, expected {_text(fixed)}{like}")
        self.leads[name] = shape[: len(shape) - n]


def _array(name: str, value: Any, form: Form, dtype: Any) -> jax.Array:
    """An array of real numbers; integers and numbers in lists as floating ones of that dtype."""
    if isinstance(value, jax.Array) and value.dtype.kind == "f":
        return value
    listed = isinstance(value, list | tuple) and not hasattr(value, "_fields")
    if listed and not _numbers(value):
        raise TypeError(f"{name} is {described(value)}, expected numbers of shape {_text(form)}")
    if isinstance(value, bool) or not (listed or isinstance(value, jax.Array | np.ndarray | np.generic | int | float)):
        raise TypeError(f"{name} is {described(value)}, expected an array of shape {_text(form)}")
    kind = getattr(value, "dtype", None)
    with jax.ensure_compile_time_eval() if known(value) else nullcontext():  # what is known stays known inside `jit`
        if kind is None:
            return floats(name, value, form, dtype)  # type: ignore[arg-type]
        if not (jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)):
            raise TypeError(f"{name} is {kind}, expected real numbers of shape {_text(form)}")
        return jnp.asarray(value) if jnp.issubdtype(kind, jnp.floating) else jnp.asarray(value, dtype)


def _numbers(values: Any) -> bool:
    """Whether these are real numbers, nested evenly."""

    def real(x: Any) -> bool:
        if hasattr(x, "dtype"):
            return x.dtype.kind in "fiu"
        return isinstance(x, int | float) and not isinstance(x, bool)

    try:
        np.shape(jax.tree.map(lambda x: 0, values))
    except ValueError:
        return False
    return all(map(real, jax.tree.leaves(values, is_leaf=lambda x: x is None)))


def _text(form: Any) -> str:
    return f"({', '.join(['...', *map(str, form)])})"


# ---- forms
@cache
def form_of(make: Callable[..., Any]) -> Form:
    """The form of what `make(dtype)` returns, an array or tuples of arrays."""

    def form(x: Any) -> Form:
        return Fields(type(x), tuple(map(form, x))) if isinstance(x, tuple) else x.shape

    return form(jax.eval_shape(lambda: make(jnp.float32)))


def vector_form(dim: Any) -> Form:
    """The form of an algebra element: `HomogeneousSpace.dim`."""
    return (dim,) if isinstance(dim, int) else Fields(tuple, tuple(map(vector_form, dim)))
