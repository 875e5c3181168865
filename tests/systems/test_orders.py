"""Every method converges with its order on every system it applies to."""

import numpy as np
import pytest

from lgjax.integrators import (
    BOGACKI_SHAMPINE32,
    CF3,
    CF4,
    CF32_A,
    CF32_B,
    CF43,
    CROUCH_GROSSMAN3,
    DORMAND_PRINCE54,
    DORMAND_PRINCE85,
    HEUN2,
    LIE_EULER,
    RK3,
    RK4,
    RK4_TWO_COMMUTATORS,
    RK6,
    CommutatorFree,
    MuntheKaas,
    SymplecticLie,
    suzuki,
    triple_jump,
)
from tests.systems.cases import errors, observed_order

SYSTEMS = (
    "free lie_poisson",
    "top body",
    "top two_sided",
    "top cotangent",
    "pendulum chain",
    "quadrotors ideal",
)
MORE = (
    "free body",
    "top spatial",
    "top lie_poisson",
    "top quadratic",
    "pendulum dense",
    "pendulum hamiltonian",
    "quadrotors controlled",
)
TABLEAUX = (LIE_EULER, HEUN2, RK3, RK4, RK4_TWO_COMMUTATORS, BOGACKI_SHAMPINE32, DORMAND_PRINCE54, RK6)
TABLES = (CF3, CF4, CF32_A, CF32_B, CF43, CROUCH_GROSSMAN3)
EXPLICIT = {
    **{repr(t): MuntheKaas(t, scan_stages=True) for t in (*TABLEAUX, DORMAND_PRINCE85)},
    "RK4 truncated": MuntheKaas(RK4, commutators=2, scan_stages=True),
    **{repr(t): CommutatorFree(t) for t in TABLES},
}
BUNDLES = ("free spatial", "top quadratic")
MIDPOINT = SymplecticLie(0.5)
SYMPLECTIC = {
    "theta 0": SymplecticLie(0.0),
    "theta 1/2": MIDPOINT,
    "theta 1": SymplecticLie(1.0),
    "triple jump 4": triple_jump(MIDPOINT),
    "Suzuki 4": suzuki(MIDPOINT),
    "Suzuki 6": suzuki(MIDPOINT, 6),
}


def legs_for(order: int) -> tuple[int, ...]:
    """Numbers of two steps each: refine until the leading term rules; where round-off rules is found out."""
    if order <= 2:
        return (32, 64)
    return (16, 32, 64) if order <= 4 else (1, 2, 4, 6, 8, 12, 16, 24, 32)


def has_its_order(method, systems, system):
    """Within 0.2; of order 8 at least that, because its small leading error hardly shows above round-off."""
    legs = legs_for(method.order)
    order = observed_order(errors(systems, method, legs)[system], legs)
    return method.order - 0.2 < order and (order < method.order + 0.2 or method.order == 8)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", EXPLICIT)
def test_explicit_methods_have_their_order(name, system):
    assert has_its_order(EXPLICIT[name], SYSTEMS, system)


@pytest.mark.skip(reason="orders on these formulations have not been measured to the end yet")
@pytest.mark.parametrize("system", MORE)
@pytest.mark.parametrize("name", EXPLICIT)
def test_explicit_methods_have_their_order_on_other_formulations(name, system):
    assert has_its_order(EXPLICIT[name], MORE, system)


@pytest.mark.parametrize("name", SYMPLECTIC)
def test_symplectic_methods_have_their_order(name):
    assert has_its_order(SYMPLECTIC[name], ("top cotangent",), "top cotangent")


@pytest.mark.skip(reason="orders on these bundles have not been measured to the end yet")
@pytest.mark.parametrize("system", BUNDLES)
@pytest.mark.parametrize("name", SYMPLECTIC)
def test_symplectic_methods_have_their_order_on_other_bundles(name, system):
    assert has_its_order(SYMPLECTIC[name], (system,), system)


def test_references_are_the_library_at_its_best():
    """Both sides agree to ten digits, so neither limits the tests of order."""
    for name, error in errors(SYSTEMS, EXPLICIT["DORMAND_PRINCE85"], (8, 16, 32)).items():
        assert np.min(error) < 3e-10, name
