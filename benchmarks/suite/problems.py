"""All problems of the suite, in the order of the page."""

from benchmarks.suite import balls, chains, governor, mechanisms, quadrotor, rigid_bodies, spatial
from benchmarks.suite.problem import Problem


def problems() -> list[Problem]:
    rooms = (rigid_bodies, mechanisms, spatial, governor, chains, quadrotor, balls)
    return [problem for room in rooms for problem in room.problems()]
