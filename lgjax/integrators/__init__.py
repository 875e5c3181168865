"""Integrators on homogeneous spaces: one stepper per family, a method is data.

Read first: `method.py` says what a method is, `integrate.py` drives any, `munthe_kaas.py` is the family to start with.
`scan_saved.py` is the loop under every driver.
"""

from typing import TYPE_CHECKING

from lgjax.integrators.adaptive import AdaptiveSolution, integrate_adaptive
from lgjax.integrators.commutator_free import (
    CF3,
    CF4,
    CF32_A,
    CF32_B,
    CF43,
    CROUCH_GROSSMAN3,
    CommutatorFree,
    CommutatorFreeTable,
    Flow,
)
from lgjax.integrators.composition import Composition, suzuki, triple_jump
from lgjax.integrators.control import ELEMENTARY, PI_CONTROL, StepSizeController
from lgjax.integrators.dormand_prince85 import DORMAND_PRINCE85
from lgjax.integrators.integrate import Solution, Status, integrate
from lgjax.integrators.method import Method
from lgjax.integrators.munthe_kaas import MuntheKaas
from lgjax.integrators.reversible import integrate_reversible, reversible_steps
from lgjax.integrators.symplectic import SymplecticLie
from lgjax.integrators.tableau import (
    BOGACKI_SHAMPINE32,
    BOGACKI_SHAMPINE32_ONE_COMMUTATOR,
    DORMAND_PRINCE54,
    HEUN2,
    LIE_EULER,
    RK3,
    RK4,
    RK4_TWO_COMMUTATORS,
    RK6,
    Tableau,
)
from lgjax.integrators.taylor import Taylor
from lgjax.numerics.renamed import members

__all__ = [
    "BOGACKI_SHAMPINE32",
    "BOGACKI_SHAMPINE32_ONE_COMMUTATOR",
    "CF3",
    "CF4",
    "CF32_A",
    "CF32_B",
    "CF43",
    "CROUCH_GROSSMAN3",
    "DORMAND_PRINCE54",
    "DORMAND_PRINCE85",
    "ELEMENTARY",
    "HEUN2",
    "LIE_EULER",
    "PI_CONTROL",
    "RK3",
    "RK4",
    "RK4_TWO_COMMUTATORS",
    "RK6",
    "AdaptiveSolution",
    "CommutatorFree",
    "CommutatorFreeTable",
    "Composition",
    "Flow",
    "Method",
    "MuntheKaas",
    "Solution",
    "Status",
    "StepSizeController",
    "SymplecticLie",
    "Tableau",
    "Taylor",
    "integrate",
    "integrate_adaptive",
    "integrate_reversible",
    "reversible_steps",
    "suzuki",
    "triple_jump",
]

if not TYPE_CHECKING:  # which reports unknown names by itself
    __getattr__ = members("lgjax.integrators", AdaptiveStatus="lgjax.integrators.Status")
