"""Error control does not depend on where a motion takes place: the same run at the origin, at 100 m and at 10 km."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import Body, Joint
from lgjax.dynamics.time_derivatives import motion_series
from lgjax.groups import (
    S3,
    SE3,
    SO3,
    TS2,
    Covector,
    HomogeneousSpace,
    Pose,
    R3xSO3,
    RotationTranslation,
    TangentPoint,
    coadjoint_orbit,
    cotangent_bundle,
    frame_space,
    left_translation,
    power_space,
    product,
    product_space,
    right_translation,
    se3,
    so3,
    two_sided_translation,
    vector_space,
)
from lgjax.integrators import (
    CF43,
    DORMAND_PRINCE54,
    RK4,
    CommutatorFree,
    MuntheKaas,
    Taylor,
    integrate,
    integrate_adaptive,
)
from lgjax.integrators.control import error_ratio
from lgjax.multibody import mechanical_space
from tests.integrators.problems import END, INERTIA, MOMENTUM, body_twist, reference, start

RKMK = MuntheKaas(DORMAND_PRINCE54, scan_stages=True)
CF = CommutatorFree(CF43)
TOLERANCES = {RKMK: 1e-7, CF: 1e-5}
WAY = np.array([0.6, -0.64, 0.48])  # a unit vector
PLACES = WAY * np.array([[0.0], [1e2], [1e4]])
STIFFNESS, PUSH = 2.0, np.array([0.3, -1.0, 0.5])


class Case(NamedTuple):
    """A body that turns freely while its position moves in some way relative to `place`."""

    space: HomogeneousSpace
    start: Any  # place -> state
    field: Any  # (t, state, place) -> algebra element
    body: Any = lambda y: y  # state -> attitude and position
    exact: Any = lambda: reference("SE3 right")[:3, 3]  # the position at END, seen from `place`


def pose(place):
    """Where the body begins."""
    rotation, translation = start("SE3 right", place.dtype)
    return Pose(rotation, translation + place)


def both(place):
    return RotationTranslation(*pose(place))


def twist(t, g, place):
    return body_twist(t, Pose(g.rotation, g.translation - place))


def apart(t, g, place, spatial):
    """Angular velocity, in the body or in space, and the rate of the position."""
    w, v = se3.split(twist(t, g, place))
    return jnp.concatenate([so3.Ad(g.rotation, w) if spatial else w, so3.Ad(g.rotation, v)])


def with_momentum(place):
    """With the spatial momentum of a body of unit mass, about the origin of the world."""
    g = pose(place)
    turning = so3.coAd(g.rotation, jnp.asarray(MOMENTUM, place.dtype))
    body = jnp.concatenate([turning, jnp.asarray(PUSH, place.dtype)])
    return Covector(g, se3.coAd(se3.inverse(g), body))


def hamiltonian(t, y, place):
    """A spring holds the body at `place`."""
    g, mu = y
    n, f = se3.split(se3.coAd(g, mu))
    spatial = se3.Ad(g, jnp.concatenate([n / jnp.asarray(INERTIA, n.dtype), f]))
    force = -STIFFNESS * (g.translation - place)
    return jnp.concatenate([spatial, se3.coad(spatial, mu) + jnp.concatenate([jnp.cross(g.translation, force), force])])


def oscillation():
    """Where that spring has moved the body at END: a cosine and a sine."""
    rotation, translation = pose(jnp.zeros(3))
    w = np.sqrt(STIFFNESS)
    return np.asarray(translation * np.cos(w * END) + rotation @ PUSH * (np.sin(w * END) / w))


def decay(y):
    return -0.5 * y


SE3xR2 = product(SE3, lgjax.Rn(2))
CASES = {
    "SE3 right": Case(right_translation(SE3), pose, twist),
    "SE3 left": Case(left_translation(SE3), pose, lambda t, g, place: se3.Ad(g, twist(t, g, place))),
    "R3xSO3 right": Case(right_translation(R3xSO3), both, partial(apart, spatial=False)),
    "R3xSO3 left": Case(left_translation(R3xSO3), both, partial(apart, spatial=True)),
    "SE3 x R2": Case(
        right_translation(SE3xR2),
        lambda place: (pose(place), jnp.ones(2, place.dtype)),
        lambda t, y, place: jnp.concatenate([twist(t, y[0], place), decay(y[1])]),
        lambda y: y[0],
    ),
    "SE3, and R2": Case(
        product_space(left_translation(SE3), vector_space(2)),
        lambda place: (pose(place), jnp.ones(2, place.dtype)),
        lambda t, y, place: (se3.Ad(y[0], twist(t, y[0], place)), decay(y[1])),
        lambda y: y[0],
    ),
    "T*SE3": Case(cotangent_bundle(SE3), with_momentum, hamiltonian, lambda y: y.g, oscillation),
}
FAST = {("SE3 right", CF), ("SE3 left", RKMK), ("R3xSO3 left", RKMK)}
RUNS = [
    pytest.param(name, method, id=f"{name}, {kind}", marks=[] if (name, method) in FAST else [pytest.mark.slow])
    for name in CASES
    for kind, method in (("RKMK", RKMK), ("CF", CF))
]


def run(name, method, tolerance, place):
    case = CASES[name]
    field = lambda t, y: case.field(t, y, place)
    s = integrate_adaptive(case.space, field, case.start(place), 0.0, END, method, tolerance, tolerance, 200)
    rotation, translation = case.body(jax.tree.map(lambda x: x[0], s.ys))
    return s, rotation, translation - place


def at_all_places(name, method, tolerance, dtype):
    """Solutions, and the errors of attitude and position, at each of the places; one compilation."""
    compiled = jit(jax.vmap(partial(run, name, method, tolerance)))
    s, rotation, translation = compiled(jnp.asarray(PLACES, dtype))
    gaps = (rotation - reference("SE3 right")[:3, :3].astype(dtype), translation - CASES[name].exact().astype(dtype))
    attitude, position = (np.max(np.abs(gap.reshape(3, -1)), 1) for gap in gaps)
    assert compiled._cache_size() == 1
    return s, attitude, position


@pytest.mark.parametrize(("name", "method"), RUNS)
def test_errors_are_the_same_at_the_origin_and_far_away(name, method):
    tolerance = TOLERANCES[method]
    s, attitude, position = at_all_places(name, method, tolerance, jnp.float64)
    assert np.all(s.success)
    for error in (attitude, position):
        assert error[0] < 20 * tolerance
        assert np.max(error) < 2 * error[0] + 1e-10, error  # 1e-10: round-off of 10 km
    assert np.ptp(np.asarray(s.accepted)) <= 1


@pytest.mark.parametrize(
    "name",
    ["SE3 left", pytest.param("T*SE3", marks=pytest.mark.slow), pytest.param("SE3 right", marks=pytest.mark.slow)],
)
def test_float32_does_not_get_stuck_far_away(name):
    """Round-off of 10 km, 1e-3, is a hundred times the tolerance; still no more than twice the steps are tried."""
    s, attitude, position = at_all_places(name, RKMK, 1e-5, jnp.float32)
    assert np.all(s.success)
    tried = np.asarray(s.accepted + s.rejected)
    assert np.max(tried) <= (80 if name == "T*SE3" else 2 * tried[0])  # on T*SE3 momenta lose digits too
    assert np.max(attitude) < (1e-2 if name == "T*SE3" else 1e-3)
    assert np.max(position[:2]) < 1e-3


# ---- the rule itself, on all spaces
@partial(jit, static_argnums=0)
def measure(space, *points):
    """The error in units of the tolerance."""
    return error_ratio(space, *points, jnp.asarray(1e-3), jnp.asarray(1e-4))


def shifted(g, space):
    """Moves a state by the displacement g of the world."""
    return {
        "pose": lambda y: se3.compose(g, y),
        "both": lambda y: RotationTranslation(*se3.compose(g, Pose(*y))),
        "covector": lambda y: Covector(se3.compose(g, y.g), se3.coAd(se3.inverse(g), y.mu)),
        "with vector": lambda y: (se3.compose(g, y[0]), y[1]),
        "mechanism": lambda y: (y[0]._replace(free_poses=se3.compose(g, y[0].free_poses)), y[1]),
    }[space]


@cache
def probe() -> lgjax.Model:
    """A floating base with an arm that turns and slides, and a ball at its end."""
    inertia = np.diag([0.3, 0.5, 0.7])
    part = partial(Body, mass=0.7, com=np.array([0.4, 0.0, 0.1]), inertia=0.1 * inertia)
    return lgjax.build(
        [
            Body("base", None, Joint("base", "free"), mass=2.0, inertia=inertia),
            part("arm", "base", Joint("arm", "revolute", axis=(0, 1, 0))),
            part("slide", "arm", Joint("slide", "prismatic", axis=(1, 0, 0))),
            part("hand", "slide", Joint("wrist", "spherical")),
        ],
        "probe",
        dtype=jnp.float64,
    )


def some(shape, seed, size=1.0):
    return size * jnp.asarray(np.random.default_rng(seed).normal(size=shape))


INVARIANT = {
    "SE3": (right_translation(SE3), "pose"),
    "SE3 from both sides": (two_sided_translation(SE3), "pose"),
    "R3xSO3": (left_translation(R3xSO3), "both"),
    "T*SE3": (cotangent_bundle(SE3), "covector"),
    "SE3 x R2": (right_translation(SE3xR2), "with vector"),
    "SE3, and R2": (product_space(left_translation(SE3), vector_space(2)), "with vector"),
    "mechanism": (mechanical_space(probe().tree), "mechanism"),
}


def states(kind, scale):
    """The start, the point before a step, and its two results."""
    p = [Pose(so3.exp(some(3, k)), some(3, k + 10)) for k in (0, 1)]
    p += [se3.compose(p[1], se3.exp(some(6, k, scale))) for k in (2, 3)]
    if kind == "mechanism":
        q = lgjax.neutral(probe())
        frees = [jax.tree.map(lambda x: x[None], g) for g in p]
        return [(q._replace(free_poses=g, joints=some(2, 4, scale)), some(11, 5, scale)) for g in frees]
    return {
        "pose": p,
        "both": [RotationTranslation(*g) for g in p],
        "covector": [Covector(g, some(6, 7) + some(6, k, scale)) for k, g in enumerate(p)],
        "with vector": [(g, jnp.ones(2)) for g in p],
    }[kind]


@pytest.mark.parametrize("name", INVARIANT)
def test_the_measure_of_an_error_does_not_depend_on_where_and_which_way_the_world_lies(name):
    space, kind = INVARIANT[name]
    points = states(kind, 1e-2)
    move = shifted(Pose(so3.exp(some(3, 20)), 1e4 * jnp.asarray(WAY)), kind)
    here = measure(space, *points)
    there = measure(space, *map(move, points))
    np.testing.assert_allclose(there, here, rtol=1e-6)


def test_sizes_are_those_of_the_parts():
    """The same error of 1e-2 in a part, in units of atol + rtol size, with rtol 1e-3 and atol 1e-4."""
    eye, zero, x = jnp.eye(3), jnp.zeros(3), jnp.asarray([1.0, 0, 0])
    small = 1e-2 * x
    turned = so3.exp(small)
    far = Pose(eye, 300 * x)
    cases = [
        (1, measure(left_translation(SO3), eye, eye, eye, turned)),
        (1, measure(left_translation(S3), *[S3.exp(v) for v in (zero, zero, zero, small)])),
        (1, measure(left_translation(SE3), Pose(eye, zero), far, far, far._replace(rotation=turned))),
        (
            300,
            measure(
                left_translation(SE3), Pose(eye, zero), far, far, far._replace(translation=far.translation + small)
            ),
        ),
        (0, measure(left_translation(SE3), far, far, far, far._replace(translation=far.translation + small))),
        (300, measure(vector_space(3), 300 * x, 300 * x, 300 * x, 300 * x + small)),
        (300, measure(coadjoint_orbit(SO3), 300 * x, 300 * x, 300 * x, 300 * x + small)),
        (1, measure(TS2, *[TangentPoint(q, 300 * x[::-1]) for q in (x, x, x, x + 1e-2 * x[::-1])])),
        (300, measure(TS2, *[TangentPoint(x, w * x[::-1]) for w in (300, 300, 300, 300.01)])),
        (1, measure(cotangent_bundle(SO3), *[Covector(g, 300 * x) for g in (eye, eye, eye, turned)])),
        (300, measure(cotangent_bundle(SO3), *[Covector(eye, 300 * x + d) for d in (zero, zero, zero, small)])),
    ]
    for size, found in cases:
        np.testing.assert_allclose(found, 1e-2 / (1e-4 + 1e-3 * size), rtol=5e-3)


def test_copies_are_judged_one_by_one():
    """A copy that travels 10 km, or spins fast, does not loosen the tolerance of its neighbor."""
    near = Pose(jnp.eye(3), jnp.zeros(3))
    far = near._replace(translation=1e4 * jnp.asarray(WAY))
    off = near._replace(translation=jnp.asarray([1e-2, 0, 0]))
    one = measure(left_translation(SE3), near, near, near, off)
    pair = [
        jax.tree.map(lambda *x: jnp.stack(x), a, b) for a, b in ((near, near), (near, far), (near, far), (off, far))
    ]
    two = measure(power_space(left_translation(SE3), 2), *pair)
    assert one == two == 1e-2 / 1e-4


def test_joints_of_a_mechanism_are_angles_or_lengths():
    """An error of 1e-2 in either coordinate, after a hundred turns and 300 m from where the slide began."""
    model = probe()
    space = mechanical_space(model.tree)
    state = lambda arm, slide: (lgjax.neutral(model)._replace(joints=jnp.stack([arm, slide])), jnp.zeros(model.nv))
    here = state(200 * np.pi, 300.0)
    off = {"arm": state(200 * np.pi + 1e-2, 300.0), "slide": state(200 * np.pi, 300.01)}
    for slide, name, size in ((0.0, "arm", 1), (0.0, "slide", 300), (300.0, "slide", 0)):
        found = measure(space, state(0.0, slide), here, here, off[name])
        np.testing.assert_allclose(found, 1e-2 / (1e-4 + 1e-3 * size), rtol=1e-4)


def test_spaces_without_parts_are_judged_whole_by_their_distance():
    flow = lambda xi, y: y + xi
    space = frame_space("plane", 2, flow, lambda a, b: 3 * jnp.linalg.norm(a - b, axis=-1))
    assert space.parts is None
    y = jnp.asarray([300.0, 0.0])
    found = measure(space, y, y, y, y + jnp.asarray([0.0, 1e-2]))
    np.testing.assert_allclose(found, 3e-2 / (1e-4 + 0.3), rtol=1e-12)
    by_hand = HomogeneousSpace("line", 2, flow, lambda sigma, xi: xi, lambda x, y: 0 * x, space.distance)
    field = lambda t, y: jnp.stack([-y[1], y[0]])
    series = lambda t, y, order: jnp.stack([field(t, y), -y, -field(t, y) / 2, y / 6])
    for method, f in ((RKMK, field), (Taylor(4), series)):
        s = jit(lambda y, m=method, f=f: integrate_adaptive(by_hand, f, y, 0.0, 1.0, m, 1e-5, 1e-5, 900))(y / 300)
        assert s.success
        np.testing.assert_allclose(s.ys[0], [np.cos(1.0), np.sin(1.0)], atol=1e-4)


# ---- Taylor and mechanisms
def velocity(t):
    return jnp.stack([jnp.sin(t), jnp.cos(2 * t), 1 + 0 * t, 2 - t, jnp.sin(3 * t), 0.5 + 0 * t])


def velocity_series(t, y, order):
    rows, f, factorial = [], velocity, 1.0
    for k in range(order):
        rows.append(f(t) / factorial)
        f, factorial = (lambda t, f=f: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]), factorial * (k + 1)
    return jnp.stack(rows)


def probe_start(place):
    q = lgjax.neutral(probe())
    velocity = jnp.asarray([1.0, -0.5, 2.0, 0.3, 0.2, -0.1, 1.5, 0.4, 0.5, 1.0, -0.5])
    return q._replace(free_poses=q.free_poses._replace(translation=place[None])), velocity


def probe_field(t, y):
    return y[1], lgjax.forward_dynamics(probe(), *y, jnp.zeros_like(y[1]))


PROBE = (mechanical_space(probe().tree), probe_start)
PUSHED = (right_translation(SE3), lambda place: Pose(jnp.eye(3), place))
MOTIONS = {
    "a pushed body, Taylor": (*PUSHED, lambda t, y: velocity(t), velocity_series, Taylor(6)),
    "a mechanism, RKMK": (*PROBE, probe_field, probe_field, RKMK),
    "a mechanism, Taylor": (*PROBE, probe_field, motion_series(probe()), Taylor(6)),
}


@pytest.mark.parametrize("name", [pytest.param(k, marks=[] if "pushed" in k else [pytest.mark.slow]) for k in MOTIONS])
def test_errors_of_taylor_and_of_mechanisms_are_the_same_far_away(name):
    """Every leaf of the state, against a fine run of RK4 at the origin."""
    space, start, field, given, method = MOTIONS[name]
    fine = lambda y: integrate(space, field, y, 0.0, 1.0, 1000, MuntheKaas(RK4, scan_stages=True), None)
    exact = jax.tree.leaves(jit(fine)(start(jnp.zeros(3))).ys)

    @jit
    @jax.vmap
    def solve(place):
        s = integrate_adaptive(space, given, start(place), 0.0, 1.0, method, 1e-7, 1e-7, 90)
        frees = s.ys if name.startswith("a pushed") else s.ys[0].free_poses
        back = frees._replace(translation=frees.translation - place)
        return s, back if name.startswith("a pushed") else (s.ys[0]._replace(free_poses=back), s.ys[1])

    s, found = solve(jnp.asarray(PLACES))
    assert np.all(s.success)
    assert np.ptp(np.asarray(s.accepted)) <= 1
    for got, wanted in zip(jax.tree.leaves(found), exact, strict=True):
        error = np.max(np.abs(np.asarray(got - wanted)).reshape(3, -1), 1)
        assert error[0] < 2e-6
        assert np.max(error) < 2 * error[0] + 1e-10, error
