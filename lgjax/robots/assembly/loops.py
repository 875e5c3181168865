"""Loops of a robot: bodies held together, joints and tendons that follow others."""

from lgjax.dynamics.loops import Loop, couple_joints, couple_lengths
from lgjax.dynamics.transmissions import Transmissions
from lgjax.multibody.importers.description import Coupling, Description
from lgjax.multibody.model import Model
from lgjax.robots.assembly.places import pose


def loops(model: Model, description: Description, tendons: Transmissions | None) -> tuple[Loop, ...]:
    """All constraints in the order of the kinds: closures, then couplings."""
    names = [tendon.name for tendon in description.tendons]
    held = (
        Loop(c.kind, c.first.link, c.second.link, pose(model, c.first), pose(model, c.second), name=c.name)
        for c in description.closures
    )
    return (*held, *(_coupled(model, coupling, tendons, names) for coupling in description.couplings))


def _coupled(model: Model, coupling: Coupling, tendons: Transmissions | None, names: list[str]) -> Loop:
    numbers = coupling.coefficients, coupling.references
    if coupling.kind == "joint":
        return couple_joints(model, coupling.first, coupling.second, *numbers, coupling.name)
    assert tendons is not None
    second = None if coupling.second is None else names.index(coupling.second)
    return couple_lengths(tendons, names.index(coupling.first), second, *numbers, coupling.name)
