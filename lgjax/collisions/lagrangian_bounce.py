"""Rigid bodies that bounce on planes, from two poses to the next: the driver of the Lagrangian form."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.collisions.bounce import _check, _problem, closest_contact
from lgjax.collisions.impact import ContactPoint
from lgjax.collisions.lagrangian import STOPPED_HERE, Course, LagrangianImpacts, Problem, Settings, depart, step
from lgjax.collisions.variational import CHARTS, POSE, RigidBody, RigidState, arrival, between, step_energy
from lgjax.execution import batched
from lgjax.execution.compiled import compiled
from lgjax.groups.arguments import checked
from lgjax.groups.se3 import Pose
from lgjax.integrators.scan_saved import SavedSteps, saved_steps, scan_saved
from lgjax.numerics import checks
from lgjax.numerics.renamed import arguments, attributes
from lgjax.shapes import Plane, Shape

Array = jax.Array

JUMPS = ("hamiltonian", "discrete")


class LagrangianSolution(NamedTuple):
    """Result of `lagrangian_bounce`.

    ts        (n,) times, s, from 0, that of pose1.
    states    RigidState, every leaf with a leading axis of length n: poses, and the momenta at the end of each step,
              its discrete Legendre transform.
    energies  (n,) discrete energy E_d of the step that ended at each time, J.
    impacts   (n,) int, impacts so far.
    status    () int, the flags of `BounceStatus` that apply; 0 means success.
    events    the first impacts, `LagrangianImpacts`, with the mismatch of E_d across each.
    """

    ts: Array
    states: RigidState
    energies: Array
    impacts: Array
    status: Array
    events: LagrangianImpacts

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(finite="status, with success")

    @property
    def success(self) -> Array:
        """() bool, whether the motion reached its end: nothing stopped the body before."""
        return (self.status & STOPPED_HERE) == 0


@arguments(h="dt")
def lagrangian_bounce(
    body: RigidBody,
    shape: Shape,
    planes: Plane | tuple[Plane, ...],
    pose0: Pose,
    pose1: Pose,
    dt: Any,
    steps: int,
    max_impacts: int = 8,
    *,
    jump: str = "hamiltonian",
    symmetric: bool = False,
    tolerance: Any = 0.0,
    save_every: int | None = 1,
    record: int = 16,
    chart: str = "cayley",
) -> LagrangianSolution:
    """`steps` steps of dt seconds of a body above planes after the poses pose0 at time -dt and pose1 at time 0.

    The Lagrangian form of `bounce`, elastic and without friction: steps and impacts follow from poses only.  Through
    the discrete Legendre transforms (`variational.start_momenta`, `variational.end_momenta`) both are one motion.  As
    pose0 of a state at pose1 take `variational.variational_step(body, state, -dt)[0].pose`; it may be anywhere.  Impact
    times are found by bisection, on the admissible side.  A step that ends outside is not searched for a dip within it.

    jump         the energy that an impact keeps: "hamiltonian" H(γ, Π), as the algorithms of the source; "discrete" the
                 discrete energy E_d of the steps before and after, as the first rows of F^i in its Table 1; the two
                 differ by O(dt²).  The latter has no solution for an approach too slow; the status is NOT_SOLVED.
    symmetric    whether the step after an impact is as long as the one before it, and the step ends with it, so that
                 later times are no multiples of dt.  Without it both make up dt.
    tolerance    gaps from 0 to this count as contact, m; by default the impact is found to round-off.
    max_impacts  of a step; a body that would have more stops, and the status says ZENO.

    Traced and batched as in `bounce`; impact times have the derivatives of the implicit function.
    A body that cannot go on keeps its last good pose.  Raises TypeError or ValueError naming what is wrong in values
    that are known.  Source: [tran2024] Table 1 (a), Algorithm 1.
    """
    saves = saved_steps(steps, save_every)
    checks.integer("max_impacts", max_impacts)
    checks.integer("record", record)
    checks.choice("chart", chart, tuple(CHARTS))
    checks.choice("jump", jump, JUMPS)
    problem, pose0, pose1 = _checked(body, shape, planes, pose0, pose1, dt, tolerance)
    settings = Settings(_closest, jump, bool(symmetric), max_impacts, chart)
    return _run(settings, problem, pose0, pose1, saves, record)


@compiled
def _run(
    settings: Settings, problem: Problem, pose0: Pose, pose1: Pose, saves: SavedSteps, record: int
) -> LagrangianSolution:
    body, h = problem.body, problem.h
    first = between(pose0, pose1)
    energy = step_energy(body, pose0, pose1, first, h)
    state = arrival(body, pose1, first, h)
    start = depart(settings, problem, state, energy, record)

    def keep(course: Course) -> tuple[Array, RigidState, Array, Array]:
        return course.step.astype(h.dtype) * h + course.delay, course.state, course.energy, course.impacts

    turn = batched(partial(step, settings))
    end, kept = scan_saved(lambda course, _: turn(problem, course), start, saves, keep)
    ts, states, energies, impacts = saves.with_start(keep(start), kept)
    return LagrangianSolution(ts, states, energies, impacts, end.status, end.record)


def _closest(body: RigidBody, obstacles: tuple[Shape, tuple[Plane, ...]], state: RigidState) -> ContactPoint:
    shape, planes = obstacles
    return closest_contact(body, shape, planes, state)


def _checked(
    body: Any, shape: Any, planes: Any, pose0: Any, pose1: Any, dt: Any, tolerance: Any
) -> tuple[Problem, Pose, Pose]:
    """All inputs as arrays of one dtype, that of pose1, after the checks that `bounce` makes of its input."""
    for name, pose in (("pose0", pose0), ("pose1", pose1)):
        if not isinstance(pose, Pose):
            raise TypeError(f"{name} must be a Pose, got {type(pose).__name__}")
    poses = checked({"pose1": (pose1, POSE), "pose0": (pose0, POSE)}, single=True)
    start: Pose = poses["pose1"]
    zero = jnp.zeros_like(start.translation)
    for name, pose in poses.items():
        for part, leaf in pose._asdict().items():
            if leaf.dtype != zero.dtype:
                raise TypeError(f"{name}.{part} has dtype {leaf.dtype}, pose1.translation has {zero.dtype}")
        checks.finite(f"translation of {name}", pose.translation)
        checks.rotation(f"rotation of {name}", pose.rotation)
    p = _problem(body, shape, planes, RigidState(start, zero, zero), dt, 1.0, 0.0)
    _check(p)
    tolerance = checks.positive("tolerance", checks.array("tolerance", tolerance, (), zero.dtype), allow_zero=True)
    return Problem(p.body, (p.shape, p.planes), p.h, tolerance), poses["pose0"], start
