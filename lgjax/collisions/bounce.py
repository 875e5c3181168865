"""Rigid bodies that bounce on planes: the driver of the variational collision integrator."""

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.collisions.flight import Flight, fly, take_off
from lgjax.collisions.impact import STOPPED, ContactPoint, Laws, approach_rate
from lgjax.collisions.replay import replay
from lgjax.collisions.resting import Scene, Touching, choose, window
from lgjax.collisions.variational import BODY, CHARTS, STATE, RigidBody, RigidState
from lgjax.execution import batched
from lgjax.execution.compiled import compiled
from lgjax.groups.arguments import checked
from lgjax.groups.se3 import Pose
from lgjax.integrators.scan_saved import SavedSteps, saved_steps, scan_stretches
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.renamed import arguments, attributes
from lgjax.saving.checkpoint import Checkpoint
from lgjax.shapes import Plane, Shape, gap
from lgjax.shapes.combined import Union
from lgjax.shapes.convex import Box, Capsule, Ellipsoid, Placed, Polyhedron, Rounded
from lgjax.shapes.corners import corners
from lgjax.shapes.mass_properties import moments

Array = jax.Array


class Impacts(NamedTuple):
    """The first `record` impacts in order; entries past their number are zero, plane -1.

    ts        (record,) times, s.
    planes    (record,) index of the plane.
    rates     (record,) rates of the gap just before, m/s, negative.
    impulses  (record,) normal impulses, N s.
    """

    ts: Array
    planes: Array
    rates: Array
    impulses: Array


class BounceSolution(NamedTuple):
    """Result of `bounce`.

    ts       (n,) times, s, from 0.
    states   RigidState, every leaf with a leading axis of length n.
    impacts  (n,) int, impacts so far.
    status   () int, the flags of `BounceStatus` that apply; 0 means success.
    events   the first impacts, `Impacts`.
    """

    ts: Array
    states: RigidState
    impacts: Array
    status: Array
    events: Impacts

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(finite="status, with success")

    @property
    def success(self) -> Array:
        """() bool, whether the flight reached its end: nothing stopped the body before."""
        return (self.status & int(STOPPED)) == 0


class _Settings(NamedTuple):
    saves: SavedSteps
    max_impacts: int
    record: int
    chart: str


class _Problem(NamedTuple):
    """Everything that derivatives are taken with respect to."""

    body: RigidBody
    shape: Shape
    planes: tuple[Plane, ...]
    state: RigidState
    h: Array
    restitution: Array
    friction: Array | None


@arguments(h="dt")
def bounce(
    body: RigidBody,
    shape: Shape,
    planes: Plane | tuple[Plane, ...],
    state: RigidState,
    dt: Any,
    steps: int,
    max_impacts: int = 16,
    restitution: Any = 1.0,
    friction: Any = 0.0,
    *,
    save_every: int | None = 1,
    record: int = 16,
    chart: str = "cayley",
    check_center: str = "error",
    checkpoint: Checkpoint | None = None,
) -> BounceSolution:
    """`steps` variational steps of dt seconds of a body above planes, with every impact at its own time.

    Impacts are elastic and frictionless unless `restitution` (0 to 1) and Coulomb `friction` say otherwise.  Bodies
    never start a step or end it inside a plane.  No planes, `()`, is the free variational integrator.
    A step that turns the body by more than half a radian is made in equal parts that do not, up to 1000 (NOT_SOLVED).
    No dip into a plane deeper than 1e-4 of the body's radius goes unnoticed, or the status says TOO_LONG.

    A step may have `max_impacts` impacts (ZENO).  A body that would have more waits for the next step, with its energy;
    one whose bounces have a sum within the step, or that no bounce lifts, comes to rest on the plane.  There it slides
    and rolls until it leaves, and stays for good, exactly, once contact within the friction cone can hold it at a speed
    below 1e-4 of what gravity gives it in a step; corners count as touching that a free step would bring inside.

    Saves the start and every `save_every`-th step, only the last for None; bodies of a batch wait for each other there.

    record        impacts listed in `events`; derivatives are right through as many of them and of parts of steps.
    chart         coordinates of the rotation of a step, "cayley" or "exp", with the same result.
    check_center  "error", "warn" or "ignore" a shape whose center of mass, at uniform density, is known to be off its
                  origin by a thousandth of its size, or a union that does not reach around it.
    checkpoint    a `lgjax.saving.Checkpoint`: a long run is written to a folder part by part, from which it can be
                  resumed.

    Everything but `steps`, `max_impacts`, `save_every`, `record`, `chart` and the structure of body and
    shape may be traced, batched by vmap, and differentiated, once or twice and in both modes; impact times by the
    implicit function theorem.  Near grazing impacts derivatives mean nothing and the status says GRAZING.  Values that
    are known when called are checked: raises TypeError or ValueError naming what is wrong; within jit the status says
    it, and a body that cannot go on keeps its last good state.
    Source: [tran2024] Algorithm 2.
    """
    saves = saved_steps(steps, save_every, checkpoint)
    checks.integer("max_impacts", max_impacts)
    checks.integer("record", record)
    checks.choice("chart", chart, tuple(CHARTS))
    problem = _problem(body, shape, planes, state, dt, restitution, friction)
    _check(problem)
    _check_center(shape, check_center)
    settings = _Settings(saves, max_impacts, record, chart)
    run = compiled(_run)(settings, problem) if checkpoint is None else _outcome(_fly(settings, problem, checkpoint))
    states, (times, rates, impulses), counts, status, hit = run
    ts = saves.counts().astype(problem.h.dtype) * problem.h
    return BounceSolution(ts, states, counts, status, Impacts(times, hit, rates, impulses))


def closest_contact(body: RigidBody, shape: Shape, planes: tuple[Plane, ...], state: RigidState) -> ContactPoint:
    """The contact where the body is closest to the planes; of distances equal to round-off, the fastest approach."""
    pose = state.pose
    zero = jnp.zeros_like(pose.translation)
    nowhere = jnp.full((), jnp.inf, zero.dtype)
    best = ContactPoint(nowhere, zero, zero, jnp.zeros((), bool), jnp.full((), -1, jnp.int32))
    best_rate = nowhere
    tie = window(pose)
    for i, plane in enumerate(planes):
        distance, point, flat = gap(shape, plane, pose)
        other = ContactPoint(distance, point, plane.normal, flat, jnp.full((), i, jnp.int32))
        rate = approach_rate(body, state, other)
        ahead = best.gap - distance
        # NaN is chosen too, so that it shows.
        nearer = ~(ahead <= tie) | ((jnp.abs(ahead) <= tie) & (rate < best_rate))
        best = choose([(nearer, other)], best)
        best_rate = jnp.where(nearer, rate, best_rate)
    return best


def _contact(shape: Shape, planes: tuple[Plane, ...], state: RigidState, index: Array) -> ContactPoint:
    """The contact where the body is closest to one of the planes, given by its index."""
    if not planes:
        zero = jnp.zeros_like(state.pose.translation)
        return ContactPoint(jnp.full((), jnp.inf, zero.dtype), zero, zero, jnp.zeros((), bool), index)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *planes)
    plane = jax.tree.map(lambda x: x[index], stacked)
    distance, point, flat = gap(shape, plane, state.pose)
    return ContactPoint(distance, point, plane.normal, flat, index)


def _problem(body: Any, shape: Any, planes: Any, state: Any, dt: Any, restitution: Any, friction: Any) -> _Problem:
    """All inputs as arrays of one dtype, several planes as a tuple of single ones."""
    if not isinstance(body, RigidBody):
        raise TypeError(f"body must be a RigidBody (lgjax.collisions.rigid_body makes one), got {type(body).__name__}")
    if not isinstance(shape, Shape):
        raise TypeError(f"shape must be one of lgjax.shapes, got {type(shape).__name__}")
    if not isinstance(state, RigidState):
        raise TypeError(
            f"state must be a RigidState (lgjax.collisions.rigid_state makes one), got {type(state).__name__}"
        )
    given = checked({"state": (state, STATE), "body": (body, BODY)}, single=True)
    body, state = given["body"], given["state"]
    several = (planes,) if isinstance(planes, Plane) else planes
    if not isinstance(several, tuple | list):
        raise TypeError(f"planes must be a Plane or a tuple of them, got {checks.described(planes)}")
    single: list[Plane] = []
    for plane in several:
        if not isinstance(plane, Plane):
            raise TypeError(f"planes must be Plane, got {type(plane).__name__}")
        if plane.normal.ndim > 2:
            raise ValueError(f"planes have at most one leading axis, got normals of shape {plane.normal.shape}")
        if plane.normal.ndim == 1:
            single.append(plane)
        else:
            single.extend(jax.tree.map(lambda x, i=i: x[i], plane) for i in range(plane.normal.shape[0]))
    dtype = state.pose.translation.dtype
    scalars: dict[str, Any] = {
        "dt": checks.scalar("dt", dt, dtype, positive=True),
        "restitution": checks.scalar("restitution", restitution, dtype, 0.0, 1.0),
        "friction": checks.scalar("friction", friction, dtype, 0.0),
    }
    # A number that is zero leaves the computation of friction out.
    if isinstance(friction, int | float) and friction == 0:
        scalars["friction"] = None
    problem = _Problem(body, shape, tuple(single), state, *scalars.values())
    for path, leaf in jax.tree_util.tree_leaves_with_path(problem):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != dtype:
            where = jax.tree_util.keystr(path).lstrip(".")
            raise TypeError(f"{where} has dtype {leaf.dtype}, the state has {dtype}")
    return problem


def _check(p: _Problem) -> None:
    """Check the state for what a user could get wrong, unless traced."""
    eps = float(np.finfo(p.h.dtype).eps)
    checks.finite_leaves("state", p.state)
    checks.rotation("state.pose.rotation", p.state.pose.rotation, 1e3 * eps)
    if checks.known(p.body, p.state, p.shape, p.planes):
        with jax.ensure_compile_time_eval():
            contact = compiled(closest_contact)(p.body, p.shape, p.planes, p.state)
        if float(contact.gap) < -1e2 * eps * (1.0 + np.abs(np.asarray(p.state.pose.translation)).max()):
            raise ValueError(f"the body starts {-float(contact.gap):.3g} m inside plane {int(contact.plane)}")


def _center(shape: Shape) -> tuple[np.ndarray, float] | None:
    """The center of mass (3,) of a shape of uniform density, and what rounding may move it by; None if not known."""
    if isinstance(shape, Rounded):
        inner = _center(shape.shape)
        return inner and (inner[0], inner[1] + float(shape.radius))
    if isinstance(shape, Placed):
        inner = _center(shape.shape)
        return inner and (np.asarray(shape.pose.act(jnp.asarray(inner[0]))), inner[1])
    if isinstance(shape, Ellipsoid | Box | Capsule):
        return np.asarray(shape.center), 0.0
    if isinstance(shape, Polyhedron):
        try:
            volume, first, _, about = moments(shape)
        except ImportError:  # the hull of a polyhedron needs SciPy
            return None
        return np.asarray(about + first / volume), 0.0
    return None


def _check_center(shape: Shape, how: str) -> None:
    """Refuse a known shape whose center of mass is elsewhere than its origin, or warn of it."""
    checks.choice("check_center", how, ("error", "warn", "ignore"))
    if how != "ignore" and checks.known(shape) and (message := _off_center(shape)):
        if how == "error":
            raise ValueError(message)
        warnings.warn(message, stacklevel=3)


def _off_center(shape: Shape) -> str | None:
    """Check that the origin of a known shape is its center of mass."""
    with jax.ensure_compile_time_eval():
        union = isinstance(shape, Union) and all(_center(part) for part in shape.parts)
        center = _center(shape)
        if center is None and not union:
            return None
        reach = np.asarray(compiled(_reach)(shape))
        if center is None:
            if np.all(reach >= 0):
                return None
            where = f"the origin lies outside the shape, which reaches {reach.tolist()} m along x, y, z, -x, -y, -z"
        else:
            off = float(np.linalg.norm(center[0]))
            if off <= 1e-3 * float(np.linalg.norm(reach)) + center[1]:
                return None
            where = f"the shape's center of mass, at uniform density, is at {center[0].tolist()}"
    return (
        f"{where}; bodies turn about their origin: pass lgjax.shapes.recentered(shape), or"
        ' check_center="ignore" if the density is not uniform'
    )


def _reach(shape: Shape) -> Array:
    """Reach (6,) of the shape along x, y, z and -x, -y, -z, m."""
    dtype = shape.middle().dtype
    axes = jnp.concatenate([jnp.eye(3, dtype=dtype), -jnp.eye(3, dtype=dtype)])
    return jnp.sum(axes * jax.vmap(shape.support)(axes).point, axis=-1)


def _scene(settings: _Settings, p: _Problem) -> Scene:
    reach = jnp.abs(_reach(p.shape))
    farthest = jnp.maximum(reach[:3], reach[3:])
    return Scene(
        body=p.body,
        laws=Laws(p.restitution, p.friction),
        closest=partial(closest_contact, p.body, p.shape, p.planes),
        contact=partial(_contact, p.shape, p.planes),
        touching=partial(_touching, p.shape, p.planes),
        normals=jnp.stack([plane.normal for plane in p.planes]) if p.planes else jnp.zeros((0, 3), p.h.dtype),
        radius=jnp.sqrt(jnp.sum(farthest * farthest)),
        h=p.h,
        max_impacts=settings.max_impacts,
        chart=settings.chart,
    )


def _touching(shape: Shape, planes: tuple[Plane, ...], pose: Pose) -> Touching:
    """The closest point to each plane, and all corners, which can lie on it at once."""
    points, normals, gaps = [], [], []
    ends, radii = corners(shape)
    for plane in planes:
        distance, point, _ = gap(shape, plane, pose)
        lowest = ends - radii[:, None] * sm.tmatvec(pose.rotation, plane.normal)
        points.append(jnp.concatenate([point[None], lowest]))
        gaps.append(jnp.append(distance, sm.matvec(pose.act(lowest), plane.normal) + plane.offset))
        normals.append(jnp.broadcast_to(plane.normal, points[-1].shape))
    if not planes:
        return Touching(ends[:0], ends[:0], radii[:0])
    return Touching(jnp.concatenate(points), jnp.concatenate(normals), jnp.concatenate(gaps))


def _fly(settings: _Settings, p: _Problem, checkpoint: Checkpoint | None = None) -> tuple[Any, Array, Array, Flight]:
    """States, counts of impacts and of cuts at the saved times, and the machine at the end."""
    saves, none = settings.saves, jnp.zeros((), jnp.int32)
    begin = batched(lambda p: take_off(_scene(settings, p), p.state, settings.record))
    until = batched(lambda flight, p, done: fly(flight, _scene(settings, p), done))

    def advance(flight: Flight, done: Array) -> Flight:
        return until(flight, p, done + saves.every)

    def keep(flight: Flight) -> tuple[RigidState, Array, Array]:
        return flight.base.state, flight.total, flight.cuts

    start = begin(p)
    end, kept = scan_stretches(advance, start, saves, keep, checkpoint=checkpoint)
    return *saves.with_start((p.state, none, none), kept), end


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _run(settings: _Settings, problem: _Problem) -> Any:
    """(states, (times, rates, impulses) of the impacts, counts, status, planes)."""
    return _outcome(_fly(settings, problem))


def _outcome(flown: tuple[Any, Array, Array, Flight]) -> Any:
    states, counts, _, end = flown
    record = end.record
    return states, (record.times, record.rates, record.impulses), counts, end.status, record.planes


@_run.defjvp
def _run_jvp(settings: _Settings, primals: Any, tangents: Any) -> Any:
    (problem,), (change,) = primals, tangents
    flown = _fly(settings, jax.lax.stop_gradient(problem))
    states, counts, cuts, end = jax.lax.stop_gradient(flown)
    record = end.record

    def again(p: _Problem) -> Any:
        full = replay(partial(_scene, settings), p, p.state, settings.saves.steps, end.step, record, end.asleep)
        # Segments so far: steps, and cuts within them.
        at = jnp.minimum(settings.saves.counts(), end.step) + jnp.minimum(cuts, settings.record)
        path = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest])[at], p.state, full.states)
        return path, (full.times, full.rates, full.impulses)

    retraced, moved = jax.jvp(again, (problem,), (change,))
    # The values are those of the flight itself, whatever round-off does to the replay.
    flown_floats = (states, (record.times, record.rates, record.impulses))
    floats = jax.tree.map(lambda new, old: new + jax.lax.stop_gradient(old - new), retraced, flown_floats)
    integers = (counts, end.status, record.planes)
    still = jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0), integers)
    return (*floats, *integers), (*moved, *still)
