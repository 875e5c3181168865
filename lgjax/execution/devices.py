"""Batches that `jax.jit` divides among devices: each device runs the kernel for its part of the systems.

XLA does not look inside a kernel, so it is told how one is divided: along the batch, and nowhere else. Arrays that all
systems share are whole on every device.

On a mesh with explicit axes the type of an array says where it lies. A function of one system is traced without: the
arrays that it makes lie nowhere, and JAX lets no loop carry both. Its results then lie where the arguments do.

Read first: `operation.py`, whose operation this is.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lgjax.execution.jaxprs import Arrays


def divided(operation: Callable[..., Arrays], args: Sequence, mapped: Sequence[bool], results: Sequence) -> Arrays:
    """`operation(*args)` for the systems that a device has, on every device.

    mapped: which arguments have a batch, as their last axis. results: the types of the results, all with a batch if one
    of the arguments has one.
    """
    alone = not any(mapped)
    marks = (*mapped, *[not alone] * len(results))
    ranks = [x.ndim for x in (*args, *results)]

    def placed(mesh: Any, axes: Any) -> list[NamedSharding]:
        """Where arguments and results are if the batch is divided along these axes of a mesh."""
        specs = [PartitionSpec(*[None] * (rank - 1), axes) if b else PartitionSpec() for rank, b in zip(ranks, marks)]
        return [NamedSharding(mesh, spec) for spec in specs]

    def along(mesh: Any, shapes: Sequence) -> list[NamedSharding]:
        return placed(mesh, next(filter(None, (_batch_axes(x) for x, b in zip(shapes, mapped) if b)), None))

    def partition(mesh: Any, shapes: Sequence, _: Any) -> tuple:
        places = along(mesh, shapes)
        return mesh, lambda *args: tuple(operation(*args)), tuple(places[len(args) :]), tuple(places[: len(args)])

    whole = custom_partitioning(lambda *args: tuple(operation(*args)))
    whole.def_partition(
        partition,
        infer_sharding_from_operands=lambda mesh, shapes, _: tuple(along(mesh, shapes)[len(args) :]),
        **_rule(ranks, marks, len(args)),
    )
    return list(whole(*args))


def divided_as(results: Sequence, args: Sequence, mapped: Sequence[bool], batch: bool) -> list:
    """Types of results on the explicit mesh of the arguments, whose last axis, the batch, is divided as theirs is."""
    mesh = explicit_mesh(args)
    if mesh is None:
        return list(results)
    axes = next(filter(None, (_batch_axes(x) for x, b in zip(args, mapped, strict=True) if b)), None)
    own = lambda x: PartitionSpec(*[None] * (x.ndim - batch), *[axes] * batch)
    return [x.update(sharding=NamedSharding(mesh, own(x))) for x in results]


def explicit_mesh(args: Any) -> Any:
    """The mesh with explicit axes on which some of these arrays lie, a pytree, or which is set; None if there is none.

    Within `jax.shard_map` there is none.
    """
    given = jax.sharding.get_abstract_mesh()
    meshes = map(_mesh_of, jax.tree.leaves(args))
    return next((mesh for mesh in meshes if mesh is not None), given if AxisType.Explicit in given.axis_types else None)


def _mesh_of(x: Any) -> Any:
    """The mesh with explicit axes on which an array lies, if any."""
    mesh = getattr(getattr(getattr(x, "aval", x), "sharding", None), "mesh", None)
    return mesh if AxisType.Explicit in getattr(mesh, "axis_types", ()) else None


def is_divided_along(x: Any, axis: int | None) -> bool:
    """Whether an axis of an array lies along one of an explicit mesh."""
    return axis is not None and _mesh_of(x) is not None and jax.typeof(x).sharding.spec[axis] is not None


def off_mesh(x: Any) -> jax.ShapeDtypeStruct:
    """The type of an array that lies nowhere."""
    return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x), weak_type=jax.typeof(x).weak_type)


def on_mesh(tree: Any) -> Any:
    """Arrays of one system, all on the explicit mesh that some of them lie on: what a loop carries in and out."""
    mesh = explicit_mesh(tree)
    if mesh is None:
        return tree
    put = lambda x: jax.sharding.reshard(x, NamedSharding(mesh, PartitionSpec(*[None] * jnp.ndim(x))))
    return jax.tree.map(lambda x: put(x) if _mesh_of(x) is None else x, tree)


def _batch_axes(x: Any) -> Any:
    """The axes of a mesh along which the last axis of an array lies; None if there are none."""
    spec = getattr(getattr(x, "sharding", None), "spec", ())
    return spec[x.ndim - 1] if len(spec) == x.ndim > 0 else None


def _rule(ranks: Sequence[int], marks: Sequence[bool], given: int) -> dict:
    """How axes of arguments and results belong together: the batch to the batch, the others to none."""
    own = [[f"x{n}_{k}" for k in range(rank - mark)] for n, (rank, mark) in enumerate(zip(ranks, marks))]
    texts = [" ".join([*names, *["batch"] * mark]) for names, mark in zip(own, marks)]
    rule = f"{', '.join(texts[:given])} -> {', '.join(texts[given:])}"
    return {"sharding_rule": rule, "need_replication_factors": tuple(name for names in own for name in names)}
