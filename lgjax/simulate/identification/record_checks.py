"""Shapes of records, which `identify` knows when it sees the model."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact import TimeStepping
from lgjax.groups.se3 import Pose
from lgjax.integrators.integrate import check_method
from lgjax.multibody.model import Configuration, Model
from lgjax.numerics import checks
from lgjax.simulate.identification.records import BatchedRecord, MotionRecord, PoseRecord, TorqueRecord


def check_record(record: Any, model: Model, commands: int | None = None, batch: tuple[int, ...] = ()) -> None:
    """TypeError or ValueError, naming the record and its part, unless the shapes are those of the model.

    commands: entries of a command of a `MotionRecord`, None for nv. batch: the leading axes that all arrays of the
    record have besides that of its samples. Records of other kinds pass.
    """
    if isinstance(record, BatchedRecord):
        inner = record.record
        if not hasattr(inner, "residual"):
            want = "one record with a further leading axis of its arrays"
            raise TypeError(f"BatchedRecord.record is {checks.described(inner)}, expected {want}")
        size = _samples(inner, batch)
        check_record(inner, model, commands, (*batch, size))
    if not isinstance(record, TorqueRecord | MotionRecord | PoseRecord):
        return
    kind, nv = type(record).__name__, model.nv
    given = commands if isinstance(record, MotionRecord) and commands is not None else nv
    vectors = {"v": (nv,), "vdot": (nv,), "command": (given,)}
    samples = (*batch, _samples(record, batch))
    _configuration(f"{kind}.q", record.q, model, samples)
    if not samples[-1]:
        raise ValueError(f"{kind}.q has no samples")
    for name, form in vectors.items():
        value = getattr(record, name, None)
        missing = isinstance(record, PoseRecord) or (isinstance(record, MotionRecord) and name != "command")
        if value is not None or not missing:
            _array(f"{kind}.{name}", value, (*samples, *form))
    width = nv
    if isinstance(record, PoseRecord):
        width = 6
        if not isinstance(record.poses, Pose):
            raise TypeError(f"{kind}.poses is {checks.described(record.poses)}, expected a Pose")
        _array(f"{kind}.poses.rotation", record.poses.rotation, (*samples, 3, 3))
        _array(f"{kind}.poses.translation", record.poses.translation, (*samples, 3))
    if isinstance(record, MotionRecord):
        if not isinstance(record.start, tuple) or len(record.start) != 2:
            raise TypeError(f"{kind}.start is {checks.described(record.start)}, expected the pair (q, v)")
        _configuration(f"{kind}.start[0]", record.start[0], model, batch)
        _array(f"{kind}.start[1]", record.start[1], (*batch, nv))
        for path, leaf in jax.tree_util.tree_leaves_with_path(record.start):
            if jnp.result_type(leaf) != model.dtype:  # later errors would name the arguments of the dynamics
                where = jax.tree_util.keystr(path)
                raise ValueError(f"{kind}.start{where} is {jnp.result_type(leaf)}, the model is {model.dtype}")
        _array(f"{kind}.dt", record.dt, batch, ())
        checks.positive(f"{kind}.dt", checks.finite(f"{kind}.dt", record.dt))
        checks.integer(f"{kind}.substeps", record.substeps)
        if not isinstance(record.method, TimeStepping):
            check_method(kind, record.method)
        _array(f"{kind}.sigma_v", record.sigma_v, batch, (*batch, nv), ())
        checks.positive(f"{kind}.sigma_v", checks.finite(f"{kind}.sigma_v", record.sigma_v))
    _array(f"{kind}.sigma", record.sigma, batch, (*batch, width), ())
    checks.positive(f"{kind}.sigma", checks.finite(f"{kind}.sigma", record.sigma))


def _samples(record: Any, batch: tuple[int, ...]) -> int:
    """Length of the axis after `batch` in the measured configurations."""
    while isinstance(record, BatchedRecord):
        record = record.record
    shape = getattr(getattr(getattr(record, "q", None), "joints", None), "shape", ())
    return shape[len(batch)] if len(shape) > len(batch) else 0


def _shape(name: str, value: Any) -> tuple[int, ...]:
    kind = getattr(value, "dtype", None)
    if kind is None and not isinstance(value, bool) and isinstance(value, int | float):
        return ()
    if kind is None or not (jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)):
        raise TypeError(f"{name} is {kind or checks.described(value)}, expected an array of real numbers")
    return np.shape(value)


def _array(name: str, value: Any, *expected: tuple[int, ...]) -> None:
    shape = _shape(name, value)
    if shape not in expected:
        raise ValueError(f"{name} has shape {shape}, expected {' or '.join(map(str, dict.fromkeys(expected)))}")


def _configuration(name: str, q: Any, model: Model, lead: tuple[int, ...]) -> None:
    tree = model.tree
    if not isinstance(q, Configuration):
        raise TypeError(f"{name} is {checks.described(q)}, expected a Configuration")
    if not isinstance(q.free_poses, tuple) or len(q.free_poses) != 2:
        raise TypeError(f"{name}.free_poses is {checks.described(q.free_poses)}, expected a Pose")
    for part, value, form in (
        ("free_poses.rotation", q.free_poses[0], (tree.n_free, 3, 3)),
        ("free_poses.translation", q.free_poses[1], (tree.n_free, 3)),
        ("joints", q.joints, (tree.n_joint,)),
        ("ball_rotations", q.ball_rotations, (tree.n_ball, 3, 3)),
    ):
        _array(f"{name}.{part}", value, (*lead, *form))
