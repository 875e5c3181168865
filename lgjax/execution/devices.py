"""Batches that `jax.jit` divides among devices: each device runs the kernel for its part of the systems.

XLA does not look inside a kernel, so it is told how one is divided: along the batch, and nowhere else. Arrays that all
systems share are whole on every device.

Read first: `operation.py`, whose operation this is.
"""

from collections.abc import Callable, Sequence
from typing import Any

from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

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


def divided_as(results: Sequence, args: Sequence) -> list:
    """Types of results whose last axis, the batch, is divided as that of an argument is."""
    given = next((x for x in args if _batch_axes(x)), None)
    if given is None:
        return list(results)
    own = lambda x: NamedSharding(given.sharding.mesh, PartitionSpec(*[None] * (x.ndim - 1), _batch_axes(given)))
    return [x.update(sharding=own(x)) for x in results]


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
