"""Every method converges with its order on every system it applies to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lgjax.integrators import (
    BOGACKI_SHAMPINE32,
    CF3,
    CF4,
    CF32_A,
    CF32_B,
    CF43,
    DORMAND_PRINCE54,
    DORMAND_PRINCE85,
    CommutatorFree,
    Method,
    SymplecticLie,
    suzuki,
    triple_jump,
)
from tests.systems.cases import EXPLICIT, errors, observed_order

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
QUICK = ("RK4", "DORMAND_PRINCE54", "CF4")


@dataclass(frozen=True)
class Lower(Method):
    """The embedded method of a pair as a method of its own."""

    pair: Any

    @property
    def order(self):
        return self.pair.order_hat

    def init(self, *arguments):
        return self.pair.init(*arguments)

    def step(self, *arguments):
        return self.pair.embedded_step(*arguments)[1:]


LOWER = {
    **{repr(t): Lower(EXPLICIT[repr(t)]) for t in (BOGACKI_SHAMPINE32, DORMAND_PRINCE54, DORMAND_PRINCE85)},
    **{repr(t): Lower(CommutatorFree(t)) for t in (CF32_A, CF32_B, CF43)},
}
BUNDLES = ("free spatial", "top cotangent", "top quadratic")
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
    if order <= 4:
        return (16, 32, 64, 128)
    return (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


def observed_orders(method, systems):
    legs = legs_for(method.order)
    return {name: observed_order(error, legs) for name, error in errors(systems, method, legs).items()}


def is_order(order, observed):
    """Within 0.2; of order 8 at least that, because its small leading error hardly shows above round-off."""
    return order - 0.2 < observed and (observed < order + 0.2 or order == 8)


def have_their_order(method, systems):
    """All systems run as one, which compiles once."""
    found = observed_orders(method, systems)
    assert {s: order for s, order in found.items() if not is_order(method.order, order)} == {}


@pytest.mark.parametrize("name", EXPLICIT)
def test_explicit_methods_have_their_order_on_all_systems(name):
    have_their_order(EXPLICIT[name], SYSTEMS)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EXPLICIT])
def test_explicit_methods_have_their_order_on_other_formulations(name):
    have_their_order(EXPLICIT[name], MORE)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWER)
def test_embedded_methods_have_their_order(name):
    have_their_order(LOWER[name], SYSTEMS)


def test_pairs_extend_their_upper_methods():
    assert (CF32_A.stages, CF32_A.update) == (CF3.stages, CF3.update)
    assert (CF43.stages[:4], CF43.update) == (CF4.stages, CF4.update)


@pytest.mark.parametrize("system", BUNDLES)
@pytest.mark.parametrize("name", SYMPLECTIC)
def test_symplectic_methods_have_their_order(name, system):
    method = SYMPLECTIC[name]
    # Where the Hamiltonian does not see the attitude of the body, theta plays no role: see the test below.
    order = 2 if system == "free spatial" and method.order == 1 else method.order
    assert is_order(order, observed_orders(method, (system,))[system])


def test_theta_plays_no_role_for_left_invariant_hamiltonians():
    """The action of a step is that of the body velocity log(g_0⁻¹ g_1) / h, in which exp(θξ) cancels."""
    ends = [errors(("free spatial",), SymplecticLie(theta), (32,))["free spatial"] for theta in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose(ends, ends[0][0], rtol=1e-8)


def test_references_are_the_library_at_its_best():
    """Both sides agree to ten digits, so neither limits the tests of order."""
    for name, error in errors(SYSTEMS, EXPLICIT["DORMAND_PRINCE85"], (8, 16, 32)).items():
        assert np.min(error) < 3e-10, name
