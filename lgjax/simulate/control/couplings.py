"""What a problem of optimal control couples: joints on one path, trees that a cost knows together, or everything."""

from lgjax.simulate.control.cost import Cost
from lgjax.simulate.control.linear_quadratic.parts import Part, connected
from lgjax.simulate.control.problem import Problem


def independent_parts(problem: Problem) -> tuple[Part, ...]:
    """Parts whose motions neither steps nor costs couple; () where there is one, or where it is not known.

    A search from accelerations, with costs of this library, falls into the trees that stand on the ground, unless a
    cost couples these. Directions of search are then those of each part, found with matrices of its own size.
    """
    system, costs = problem.system, [x for x in (problem.running, problem.terminal) if x is not None]
    if not system.joints or system.slopes is None or problem.equality is not None or problem.inequality is not None:
        return ()
    groups = list(system.joints)
    for cost in costs:
        coupled = cost.couples() if isinstance(cost, Cost) else None
        if coupled is None:
            return ()
        groups += coupled
    n = problem.dim // 2
    sets = connected(n, groups)
    return tuple(Part((*x, *(n + k for k in x)), tuple(x)) for x in sets) if len(sets) > 1 else ()
