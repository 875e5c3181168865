"""Transmissions of a robot: what its tendons and actuators act along, in the order of the file."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import numpy as np

from lgjax.dynamics import transmissions as made
from lgjax.dynamics.transmissions import Transmissions
from lgjax.multibody.importers.description import Drive, Tendon
from lgjax.multibody.model import Model
from lgjax.robots.assembly.places import frame

FORCE_FIRST = [3, 4, 5, 0, 1, 2]  # MuJoCo's gears have the force first


def tendon_lengths(model: Model, tendons: Iterable[Tendon]) -> Transmissions | None:
    """Lengths of tendons; None if there are none."""
    return _joined(tendons, lambda tendon: tendon.kind, lambda kind, some: _tendons(model, kind, some, 1.0))


def drive_lengths(model: Model, drives: Iterable[Drive], tendons: Iterable[Tendon]) -> Transmissions | None:
    """Lengths of the transmissions of actuators; None if there are none."""
    by_name = {tendon.name: tendon for tendon in tendons}

    def kind(drive: Drive) -> tuple[str, ...]:
        target = drive.targets[0]
        if drive.transmission == "tendon":
            return "tendon", by_name[str(target)].kind
        if isinstance(target, str):
            return drive.transmission, _coordinates(model, target)
        return drive.transmission, str(len(drive.targets))

    return _joined(drives, kind, lambda kind, some: _drives(model, kind, some, by_name))


def _joined(items: Iterable[Any], kind: Callable[[Any], Any], make: Callable[[Any, list[Any]], Transmissions]) -> Any:
    """Transmissions of items in their order; neighbours of one kind are made together."""
    found = None
    for of, some in groupby(items, kind):
        part = make(of, list(some))
        found = part if found is None else found + part
    return found


def _coordinates(model: Model, joint: str) -> str:
    return model.tree.kinds[model.tree.joint_names.index(joint)].coordinates


def _tendons(model: Model, kind: str, some: list[Tendon], gear: Any) -> Transmissions:
    if kind == "fixed":
        coefficients: list[dict[str, float]] = []
        for tendon in some:
            coefficients.append({})
            for piece in tendon.path:
                coefficients[-1][piece.name] = coefficients[-1].get(piece.name, 0.0) + piece.number
        return made.fixed_tendons(model, coefficients, gear)
    return made.spatial_tendons(model, [_path(model, tendon) for tendon in some], gear)


def _path(model: Model, tendon: Tendon) -> list[Any]:
    found: list[Any] = []
    for piece in tendon.path:
        if piece.kind == "pulley":
            found.append(made.Pulley(piece.number))
        else:
            assert piece.place is not None  # the importer refuses what is not straight
            found.append((piece.place.link, piece.place.position))
    return found


def _drives(model: Model, kind: tuple[str, ...], some: list[Drive], tendons: dict[str, Tendon]) -> Transmissions:
    gears = np.array([drive.gear for drive in some])
    targets: list[Any] = [drive.targets[0] for drive in some]
    if kind[0] == "tendon":
        return _tendons(model, kind[1], [tendons[name] for name in targets], gears[:, 0])
    if kind[0] in ("joint", "joint_in_parent"):
        in_parent = kind[0] == "joint_in_parent"
        if kind[1] == "ball_rotations":
            return made.balls(model, targets, gears[:, :3], in_parent)
        if kind[1] == "free_poses":
            return made.frees(model, targets, gears[:, FORCE_FIRST], in_parent)
        return made.joints(model, targets, gears[:, 0])
    at = [frame(model, target) for target in targets]
    others: list[Any] = [drive.targets[1] for drive in some if len(drive.targets) > 1]
    reference = [frame(model, other) for other in others] or None
    if kind[0] == "site":
        return made.sites(model, at, gears[:, FORCE_FIRST], reference)
    assert reference is not None
    return made.slider_cranks(model, at, reference, np.array([drive.crank for drive in some]), gears[:, 0])
