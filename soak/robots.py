"""Robots of the world: every description in the installed packages loads or is refused by name; what loads agrees with
Pinocchio or MuJoCo on random states, and its motions keep their energy.

A seed of an agreement part is twenty files, one after the other; when all have had their turn it begins again with
other states. A seed of a motion part is all robots of one tree, which share what is compiled.
"""

import collections
import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio

import lgjax
from lgjax.multibody import mechanical_space
from lgjax.simulate.mechanism_field import mechanism_field
from soak import Result, packages
from soak.answers import first, mechanics, states, unnamed
from soak.second_readers import by_pinocchio, without_looks

FILES = 20  # of one seed
STATES = 100
TOLERANCE = 1e-10  # of the largest entry
STRICT = os.environ.get("LGJAX_SOAK_STRICT")  # what the second reader alone refuses is a failure too
SECONDS, ENERGY = 10.0, 1e-6
STEPS, PIECES, LEAST = 20_000, 100, 1e-3  # of a piece of a motion; pieces; seconds that each has to make


def urdf(seed: int) -> Result:
    """Twenty URDF files against Pinocchio."""
    return _agreements("urdf", seed)


def mjcf(seed: int) -> Result:
    """Twenty MJCF files against MuJoCo."""
    return _agreements("mjcf", seed)


def _agreements(form: str, seed: int) -> Result:
    counts: collections.Counter[str] = collections.Counter()
    failures, files = [], packages.files(form)
    for path in (files[(seed * FILES + i) % len(files)] for i in range(min(FILES, len(files)))):
        try:
            verdict, failure = agreement(form, path, seed)
        except Exception as error:
            verdict, failure = "raised", f"{type(error).__name__}: {error}"
        counts[verdict] += 1
        if failure:
            failures.append(f"{path}: {failure}")
    return Result(counts, failures)


def load(form: str, path: Path, floating_base: tuple[bool, ...] = (True, False)) -> Any:
    """The model, or the ValueError that refuses it, with the first kind of base that a URDF can have.

    Mimic joints are freed, inertias are taken as published, and an MJCF may take files from all of its package.
    """
    error: ValueError | None = None
    for floating in floating_base:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "inertia of", UserWarning)
                if form == "urdf":
                    return lgjax.load_urdf(path, floating, mimic="independent", check_inertia="warn")
                return lgjax.load_mjcf(path, check_inertia="warn", folder=packages.folder_of(path))
        except ValueError as caught:
            error = error or caught
    return error


def agreement(form: str, path: Path, seed: int) -> tuple[str, str | None]:
    """Load, or refuse by name; then mass matrix, inverse dynamics and gravity at STATES states."""
    model = load(form, path)
    if isinstance(model, ValueError):
        line = str(model)
        return (
            "refused by name",
            None if line.isprintable() and path.name in line else f"no line that names it: {line!r}",
        )
    floating = "free" in {kind.name for kind in model.tree.kinds}
    try:
        if form == "urdf":
            theirs = by_pinocchio(without_looks(path.read_bytes()), floating)
        else:
            with _quiet():
                theirs = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        return "loaded, refused by the second reader", (STRICT and str(error)[:300]) or None
    q, v, vdot = states(model, seed, STATES)
    ours = jax.tree.map(np.asarray, mechanics(unnamed(model), q, v, vdot))
    compare = _pinocchio if form == "urdf" else _mujoco
    expected = compare(model, theirs, q, v, vdot)
    if expected is None:
        return "loaded, joints that the second reader has in another way", None
    tolerance = TOLERANCE
    if form == "mjcf":  # MuJoCo takes a center of mass that is nearly at the joint to be there: a "simple" body
        tolerance += 10 * np.abs(theirs.body_ipos[theirs.body_simple > 0]).max(initial=0)
    for name, x, y in zip(("mass matrix", "inverse dynamics", "gravity"), ours, expected, strict=True):
        scale = np.abs(y).reshape(STATES, -1).max(1, initial=1e-300)
        error = (np.abs(x - y).reshape(STATES, -1).max(1, initial=0) / scale).max()
        if not error < tolerance:
            return "disagrees", f"{name} differs by {error:.2g} of its largest entry"
    return "agrees", None


def _pinocchio(model: lgjax.Model, theirs: Any, q: Any, v: np.ndarray, vdot: np.ndarray) -> Any:
    """Pinocchio's answers in this library's coordinates: x = T ours for velocities, T' theirs = ours for forces."""
    kinds = [kind.name for kind in model.tree.kinds]
    floats = sum(joint.shortname() == "JointModelFreeFlyer" for joint in theirs.joints)
    if floats != kinds.count("free") or floats > 1 or {"planar", "spherical"} & set(kinds):
        return None
    names = list(theirs.names)[1:]
    pairs = [
        n for n, i in zip(names, range(1, theirs.njoints), strict=True) if (theirs.nqs[i], theirs.nvs[i]) == (2, 1)
    ]
    order = [n for n in names if n in model.joint_names]

    @jax.jit
    def convert(q, v, vdot):
        to = lambda *state: lgjax.conventions.to_pinocchio(model, *state, order=order, continuous=pairs)
        return to(q, v, vdot), to(first(q, model.nv), jnp.eye(model.nv)).v.T

    x, T = jax.tree.map(np.asarray, convert(q, v, vdot))
    flat = x.q, x.v, x.vdot
    data, damping, found = theirs.createData(), np.asarray(model.damping), []
    for i in range(STATES):
        a, b, c = (y[i] for y in flat)
        M = np.triu(pinocchio.crba(theirs, data, a))
        tau = T.T @ pinocchio.rnea(theirs, data, a, b, c) + damping * v[i]
        found.append((T.T @ (M + np.triu(M, 1).T) @ T, tau, T.T @ pinocchio.computeGeneralizedGravity(theirs, data, a)))
    return [np.array(y) for y in zip(*found, strict=True)]


def _mujoco(model: lgjax.Model, theirs: Any, q: Any, v: np.ndarray, vdot: np.ndarray) -> Any:
    """MuJoCo's answers in this library's coordinates; T depends on where the free bodies are."""

    @jax.jit
    def convert(q, v, vdot):
        to = lgjax.conventions.to_mujoco
        turned = lambda q: to(model, first(jax.tree.map(lambda y: y[None], q), model.nv), jnp.eye(model.nv)).v.T
        return to(model, q, v, vdot), jax.vmap(turned)(q)

    x, turns = jax.tree.map(np.asarray, convert(q, v, vdot))
    data, damping, found = mujoco.MjData(theirs), np.asarray(model.damping), []
    for i in range(STATES):
        T, full, bias, gravity = turns[i], np.zeros((theirs.nv, theirs.nv)), np.zeros(theirs.nv), np.zeros(theirs.nv)
        data.qpos[:], data.qvel[:] = x.q[i], x.v[i]
        for step in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_crb, mujoco.mj_comVel):
            step(theirs, data)
        mujoco.mj_fullM(theirs, data, full)
        mujoco.mj_rne(theirs, data, 0, bias)
        data.qvel[:] = 0
        mujoco.mj_comVel(theirs, data)
        mujoco.mj_rne(theirs, data, 0, gravity)
        found.append((T.T @ full @ T, T.T @ (full @ x.vdot[i] + bias) + damping * v[i], T.T @ gravity))
    return [np.array(y) for y in zip(*found, strict=True)]


@contextmanager
def _quiet() -> Iterator[None]:
    """MuJoCo writes a file of warnings into the current folder."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


# ---- motions
class Mover(NamedTuple):
    """Robots that are the same but for names; carried: with a floating base and its weight carried, not bolted down."""

    files: list[Path]
    model: lgjax.Model
    carried: bool


def motion(seed: int) -> Result:
    """All robots of one tree, for ten seconds: bolted down and falling, or floating with their weight carried."""
    known = movers()
    counts: collections.Counter[str] = collections.Counter()
    failures = []
    for files, model, carried in known[seed % len(known)]:
        done, error, steps = energy_error(model, carried, seed // len(known))
        stopped = "ran out of steps" if steps else "could not begin"  # a singular inertia
        verdict = "failed" if not np.isfinite(error) else "kept its energy" if done else stopped
        if done and not error < ENERGY:
            verdict = "failed"
        name = "weight carried" if carried else "free"
        counts[f"{name}: {verdict}"] += len(files)
        if verdict == "failed":
            failures.append(f"{files[0]}, {name}: energy error {error:.2g} in {steps} steps")
    return Result(counts, failures)


@cache
def movers() -> tuple[tuple[Mover, ...], ...]:
    """All robots that load, those of the same tree together, in an order in which packages are mixed."""
    trees: dict[Any, dict[Any, Mover]] = {}
    described = ((form, path) for form in ("urdf", "mjcf") for path in packages.files(form))
    for (form, path), carried in itertools.product(described, (False, True)):
        model = load(form, path, (True, False) if carried else (False, True))
        if isinstance(model, lgjax.Model):
            same = unnamed(model)
            numbers = carried, *(np.asarray(x).tobytes() for x in jax.tree.leaves(same))
            of_tree = trees.setdefault(same.tree, {})
            of_tree.setdefault(numbers, Mover([], same, carried)).files.append(path)
    found = [tuple(some.values()) for some in trees.values()]
    return tuple(found[i] for i in np.random.default_rng(0).permutation(len(found)))


def energy_error(model: lgjax.Model, carried: bool, seed: int) -> tuple[bool, float, int]:
    """Whether the motion reached its end, its energy error relative to the largest kinetic energy, and its steps.

    Without damping, from a random state. Infinite where something is not finite.
    """
    model = model.replace(damping=0 * model.damping)
    key = jax.random.split(jax.random.key(seed))
    q = lgjax.random_configuration(key[0], model)
    v = 0.5 * jax.random.normal(key[1], (model.nv,), model.dtype)
    t, steps, energies = jnp.zeros((), model.dtype), 0, []
    for _ in range(PIECES):
        success, accepted, after, energy = _motion(model, t, q, v, jnp.asarray(float(carried)))
        steps, made, (t, q, v) = steps + int(accepted), float(after[0] - t), after
        energies.append(jax.tree.map(np.asarray, energy))
        if success or not made > LEAST:
            break
    kinetic, potential = (np.concatenate(x) for x in zip(*energies, strict=True))
    total = kinetic + (0 if carried else 1) * potential
    error = np.abs(total - total[0]).max() / kinetic.max()
    return bool(success), float(error) if np.isfinite(total).all() else np.inf, steps


@jax.jit
def _motion(model: lgjax.Model, t: jax.Array, q: Any, v: jax.Array, carried: jax.Array) -> Any:
    """A piece of the motion: whether it reached the end, its steps, time and state after it, and energies of steps."""
    field = mechanism_field(model, lambda t, q, v: carried * lgjax.gravity_forces(model, q))
    method = lgjax.MuntheKaas(lgjax.integrators.DORMAND_PRINCE85).with_scanned_stages()
    end = lgjax.integrate_adaptive(mechanical_space(model.tree), field, (q, v), t, SECONDS, method, 1e-9, 1e-9, STEPS)
    ys = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), (q, v), end.ys)
    kinetic = jax.vmap(lambda y: lgjax.kinetic_energy(model, *y))(ys)
    potential = jax.vmap(lambda y: lgjax.potential_energy(model, y[0]))(ys)
    q, v = jax.tree.map(lambda x: x[-1], end.ys)
    return end.success, end.accepted, (end.times[-1], q, v), (kinetic, potential)
