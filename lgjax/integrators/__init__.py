"""Integrators on homogeneous spaces: one stepper per family, a method is data."""

from lgjax.integrators.integrate import Method, Solution, integrate
from lgjax.integrators.munthe_kaas import MuntheKaas
from lgjax.integrators.tableau import (
    BOGACKI_SHAMPINE32,
    DORMAND_PRINCE54,
    HEUN2,
    LIE_EULER,
    RK3,
    RK4,
    RK4_TWO_COMMUTATORS,
    RK6,
    Tableau,
)

__all__ = [
    "BOGACKI_SHAMPINE32",
    "DORMAND_PRINCE54",
    "HEUN2",
    "LIE_EULER",
    "RK3",
    "RK4",
    "RK4_TWO_COMMUTATORS",
    "RK6",
    "Method",
    "MuntheKaas",
    "Solution",
    "Tableau",
    "integrate",
]
