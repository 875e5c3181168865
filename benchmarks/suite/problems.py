"""All problems of the suite, in the order of the page."""

from benchmarks.suite import balls, chains, mechanisms, rigid_bodies
from benchmarks.suite.problem import Problem


def problems() -> list[Problem]:
    return [*rigid_bodies.problems(), *mechanisms.problems(), *chains.problems(), *balls.problems()]
