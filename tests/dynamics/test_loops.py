"""Constraints of closed loops against derivatives of their residual, cut joints against joints, dense equations."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import Body, Joint, Loop, Pose, build
from lgjax.dynamics.loops import LoopStatus, loop_constraint, loop_residual
from lgjax.dynamics.loops.closures import CLOSURES
from lgjax.groups import so3
from lgjax.multibody.build import KINDS
from lgjax.numerics.rank import independent_rows, pseudo_inverse, regular_inverse
from lgjax.systems import closed_loops as ready
from tests.oracles import linkages
from tests.oracles.pinocchio_loops import Mechanism

DTYPES = (jnp.float64, jnp.float32)
ROUND = {jnp.float64: 1e-10, jnp.float32: 2e-3}
forward = jit(lgjax.constrained_forward_dynamics)
constraint = jit(loop_constraint)
project_velocity = jit(lgjax.project_velocity)


def random_pose(seed) -> Pose:
    random = np.random.default_rng(seed)
    R, _ = np.linalg.qr(random.normal(size=(3, 3)))
    return Pose(jnp.asarray(R * np.sign(np.linalg.det(R))), jnp.asarray(random.uniform(-0.3, 0.3, 3)))


def random_body(name, parent, kind, seed, **joint) -> Body:
    random = np.random.default_rng(seed)
    a, b, c = random.uniform(0.05, 0.2, 3)
    mass = random.uniform(0.5, 2)
    R, p = (np.eye(3), np.zeros(3)) if kind == "free" else map(np.asarray, random_pose(seed))
    return Body(
        name, parent, Joint(f"{name}_joint", kind, tuple(random.normal(size=3)), **joint), R, p, mass,
        random.uniform(-0.1, 0.1, 3), mass * np.diag([b + c, a + c, a + b]),
    )  # fmt: skip


# ---- small matrices
def test_inverses_and_ranks_of_small_matrices():
    random = np.random.default_rng(0)
    for m, n, r in ((3, 5, 3), (5, 4, 4), (5, 4, 2)):
        A = random.normal(size=(m, r)) @ random.normal(size=(r, n))
        found = jit(independent_rows)(jnp.asarray(A), 1e-8)
        assert int(found.rank) == r
        rows = np.asarray(found.combine) @ A
        np.testing.assert_allclose(rows @ rows.T, np.diag(np.asarray(found.kept, float)), atol=1e-12)
        np.testing.assert_allclose(jit(pseudo_inverse)(jnp.asarray(A), 1e-8), np.linalg.pinv(A, 1e-10), atol=1e-11)
    A = random.normal(size=(5, 5))
    np.testing.assert_allclose(regular_inverse(jnp.asarray(A)), np.linalg.inv(A), atol=1e-12)
    assert int(independent_rows(jnp.zeros((5, 4)), 1e-8).rank) == 0
    np.testing.assert_array_equal(jit(pseudo_inverse)(jnp.zeros((5, 4)), 1e-8), np.zeros((4, 5)))


def test_derivatives_of_the_pseudoinverse_where_the_rank_stays():
    random = np.random.default_rng(1)
    left, right = random.normal(size=(2, 4, 2)), random.normal(size=(2, 2, 5))
    at = lambda t: jnp.asarray(left[0] + t * left[1]) @ jnp.asarray(right[0] + t * right[1])
    inverse = lambda t: pseudo_inverse(at(t), 1e-8)
    value, h = jit(inverse), 1e-5
    for derivative in (jit(jax.jacfwd(inverse)), jit(jax.jacrev(inverse))):
        np.testing.assert_allclose(derivative(0.0), (value(h) - value(-h)) / (2 * h), atol=1e-7)


# ---- the constraints
@cache
def crane():
    """Two floating trees with a turn and a ball, and open loops between them and the ground."""
    bodies = [
        random_body("base", None, "free", 1),
        random_body("arm", "base", "revolute", 2, damping=0.2, armature=0.1),
        random_body("hand", "arm", "spherical", 3),
        random_body("buoy", None, "free", 4),
        random_body("plate", "buoy", "fixed", 5),
    ]
    model = build(bodies, "crane")
    ends = [("base", "buoy"), (None, "hand"), ("arm", "plate"), ("hand", "world"), (1, 0)]
    loops = [
        Loop(
            kind, *ends[i % 5], random_pose(20 + i), random_pose(40 + i),
            distance=0.7 if kind == "distance" else None,
        )
        for i, kind in enumerate(("weld", "revolute", "point_on_line", "distance", "universal"))
    ]  # fmt: skip
    loops.insert(
        3, Loop(lambda model, q, p: jnp.stack([q.joints[0] ** 2, p * q.free_poses.translation[1, 2]]), parameters=2.0)
    )
    return model, tuple(loops)


def state(model, seed=0):
    v = np.random.default_rng(seed).normal(size=model.nv)
    return lgjax.random_configuration(jax.random.key(seed), model), jnp.asarray(v, model.dtype)


def test_jacobian_rate_and_bias_are_derivatives_of_the_residual():
    """Central differences along the body velocities, for open loops."""
    model, loops = crane()
    q, v = state(model)
    c = constraint(model, loops, q, v)
    assert c.residual.shape == (sum(loop.rows(model, q) for loop in loops),)
    along = jit(jax.vmap(lambda dv: loop_residual(model, loops, lgjax.retract(model, q, dv))))
    h, eye = 1e-4, jnp.eye(model.nv)
    np.testing.assert_allclose(c.jacobian, ((along(h * eye) - along(-h * eye)) / (2 * h)).T, atol=1e-6)
    behind, here, ahead = along(jnp.stack([-h * v, 0 * v, h * v, *(0 * eye)[3:]]))[:3]
    np.testing.assert_allclose(c.residual, here, atol=1e-14)
    np.testing.assert_allclose(c.rate, (ahead - behind) / (2 * h), atol=1e-5)
    np.testing.assert_allclose(c.bias, (ahead - 2 * here + behind) / h**2, atol=1e-4 * float(jnp.abs(c.bias).max()))


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("free", "continuous")])
def test_a_closure_leaves_its_joint_free_and_nothing_else(name):
    kind = KINDS[name]
    closure, rows = CLOSURES[{"fixed": "weld", "spherical": "point"}.get(name, name)]
    random = np.random.default_rng(3)
    pitch = jnp.asarray(0.1)
    if kind is None:
        pose, S, nv = Pose(jnp.eye(3), jnp.zeros(3)), np.zeros((6, 0)), 0
    else:
        q = random_pose(4).rotation if name == "spherical" else jnp.asarray(random.uniform(-1, 1, kind.nq))
        q = 30 * q if name == "helical" else q  # several turns
        screw = jnp.asarray({"helical": [1.0, 0.1], "prismatic": [0.0, 1.0]}.get(name, [1.0, 0.0]))
        pose, nv = Pose(*kind.transform(q, screw)), kind.nv
        S = np.concatenate(kind.subspace(q, screw))
    assert rows == 6 - nv
    np.testing.assert_allclose(closure(pose, pitch), 0, atol=1e-13)
    slope = jax.jacfwd(lambda xi: closure(pose @ lgjax.se3.exp(xi), pitch))(jnp.zeros(6))
    np.testing.assert_allclose(slope @ S, np.zeros((rows, nv)), atol=1e-12)
    assert np.linalg.svd(slope)[1].min() > 0.05
    # nor is an axis that points the other way taken for closed
    if name not in ("spherical", "universal"):
        over = pose @ lgjax.se3.exp(jnp.asarray([3.1, 0, 0, 0, 0, 0]))
        assert np.linalg.norm(closure(over, pitch)) > 3


def test_points_lines_planes_and_distances():
    p = np.asarray([0.3, -0.4, 1.2])
    pose = Pose(random_pose(8).rotation, jnp.asarray(p))
    for name, expected in {"point": p, "point_on_line": p[:2], "point_on_plane": p[2:]}.items():
        np.testing.assert_array_equal(CLOSURES[name][0](pose, jnp.asarray(0.0)), expected)
    np.testing.assert_allclose(CLOSURES["distance"][0](pose, jnp.asarray(1.3)), [0.0], atol=1e-15)
    np.testing.assert_allclose(CLOSURES["distance"][0](pose, jnp.asarray(1.3 + 1e-6)), [-1e-6], rtol=1e-5)


def test_a_cut_joint_moves_as_the_joint_does():
    """Bodies hung on the ground by joints of every kind, and the same bodies free but for loops of those kinds."""
    kinds = [name for name in KINDS if name not in ("free", "continuous", "fixed")]
    tree = build(
        [random_body(n, None, n, 60 + i, **({"pitch": 0.1} if n == "helical" else {})) for i, n in enumerate(kinds)]
    )
    free = build([random_body(n, None, "free", 60 + i) for i, n in enumerate(kinds)])
    pick = lambda pose, i: jax.tree.map(lambda x: x[i], pose)
    loops = tuple(
        Loop(
            KINDS[n] if n != "planar" else n, None, n, pick(tree.placements, i), pick(tree.links, i).inverse(),
            pitch=0.1 if n == "helical" else None, name=n,
        )
        for i, n in enumerate(kinds)
    )  # fmt: skip
    q, v = state(tree, 5)
    wrenches = jnp.asarray(np.random.default_rng(6).normal(size=(tree.nbodies, 6)))

    def twist_rates(q, v):
        vdot = lgjax.forward_dynamics(tree, q, v, 0 * v, wrenches)
        twist = lambda t: lgjax.body_twists(tree, lgjax.retract(tree, q, t * v), v + t * vdot).reshape(-1)
        return lgjax.forward_kinematics(tree, q), *jax.jvp(twist, (0.0,), (1.0,))

    poses, twists, expected = jit(twist_rates)(q, v)
    cut = lgjax.neutral(free)._replace(free_poses=poses)
    found = jit(lambda q, v: lgjax.constrained_forward_dynamics(free, loops, q, v, 0 * v, wrenches))(cut, twists)
    assert int(found.status) == LoopStatus.OK
    np.testing.assert_allclose(found.vdot, expected, atol=1e-11 * np.abs(expected).max())


# ---- dynamics against dense equations in NumPy
def dense(model, loops, q, v, wrenches=None):
    """M, b, A and the bias as NumPy arrays in float64."""
    c = constraint(model, loops, q, v)
    M, b = mass_and_bias(model, q, v, wrenches)
    return tuple(np.asarray(x, float) for x in (M, b, c.jacobian, c.bias, c.rate, c.residual))


mass_and_bias = jit(lambda model, q, v, w: (lgjax.mass_matrix(model, q), lgjax.bias_forces(model, q, v, w)))


@cache
def swing():
    """An arm with damping and armature that carries a free body by a ball; a rod ties the body to the ground."""
    bodies = [
        random_body("arm", None, "revolute", 11, armature=0.1, damping=0.3),
        random_body("weight", None, "free", 14, armature=0.05),
    ]
    loops = (
        Loop("spherical", "arm", "weight", random_pose(15), random_pose(16), name="ball"),
        Loop("distance", "world", "weight", [1.0, 0.2, 0.4], distance=1.1, name="rod"),
    )
    return build(bodies, "swing"), loops


@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_dynamics_solves_the_equations_of_motion(dtype):
    """A batch, in states that are anyhow, with Baumgarte terms and wrenches, against the dense system."""
    model, loops = swing()
    model = model.astype(dtype)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(jax.random.split(jax.random.key(1), 3))
    random = np.random.default_rng(2)
    v, tau = (jnp.asarray(x, dtype) for x in random.normal(size=(2, 3, model.nv)))
    wrenches = jnp.asarray(random.normal(size=(3, model.nbodies, 6)), dtype)
    run = lambda q, v, tau, w: lgjax.constrained_forward_dynamics(model, loops, q, v, tau, w, alpha=3.0, beta=5.0)
    found = jit(jax.vmap(run))(q, v, tau, wrenches)
    assert {x.dtype for x in found[:5]} == {jnp.dtype(dtype)}
    np.testing.assert_array_equal(found.status, 0)
    np.testing.assert_array_equal(found.rank, 4)
    for i in range(3):
        one = jax.tree.map(lambda x, i=i: x[i].astype(float), (q, v, wrenches))
        M, b, A, bias, rate, gap = dense(model.astype(float), loops, *one)
        K = np.block([[M, -A.T], [A, np.zeros((4, 4))]])
        expected = np.linalg.solve(K, np.r_[np.asarray(tau[i], float) - b, -bias - 6 * rate - 25 * gap])
        size = np.abs(expected).max()
        np.testing.assert_allclose(np.r_[found.vdot[i], found.multipliers[i]], expected, atol=ROUND[dtype] * size)
        np.testing.assert_allclose(found.forces[i], A.T @ expected[model.nv :], atol=ROUND[dtype] * size)


def reduced(system, oracle, free, seed=0):
    """A state of a linkage that closes, from independent rates, and the accelerations of the free angles."""
    joints = np.asarray(system.q0.joints)
    rate = np.random.default_rng(seed).normal(size=len(free))
    v = linkages.jacobian(oracle.joints, joints[free]) @ rate
    return jnp.asarray(v), linkages.acceleration(oracle, joints[free], rate)


def test_accelerations_of_the_four_bar_are_those_of_its_reduced_equation():
    for closure, status in (("point_on_line", LoopStatus.OK), ("revolute", LoopStatus.REDUNDANT)):
        s = ready.four_bar(closure=closure)
        v, expected = reduced(s, linkages.FourBar(), [0])
        found = forward(s.model, s.loops, s.q0, v, 0 * v)
        np.testing.assert_allclose(found.vdot[0], expected[0], rtol=1e-8)
        assert (int(found.status), int(found.rank)) == (status, 2)


def test_accelerations_agree_with_pinocchio():
    s = ready.five_bar()
    v, expected = reduced(s, linkages.FiveBar(), [0, 2])
    tau = jnp.asarray([1.0, 0.0, -2.0, 0.5])
    found = forward(s.model, s.loops, s.q0, v, tau)
    theirs = Mechanism(s.model, [(1, (0.6, 0, 0), 3, (0.6, 0, 0))]).vdot(s.q0, v, tau)
    np.testing.assert_allclose(found.vdot, theirs, atol=1e-11)
    np.testing.assert_allclose(np.asarray(forward(s.model, s.loops, s.q0, v, 0 * v).vdot)[[0, 2]], expected, rtol=1e-8)


@cache
def platform_start():
    s = ready.stewart_platform()
    v = project_velocity(s.model, s.loops, s.q0, jnp.asarray(np.random.default_rng(0).normal(size=s.model.nv)))
    return s, v


@pytest.mark.slow
def test_the_stewart_platform_accelerates_as_in_pinocchio():
    s, v = platform_start()
    body = s.model.tree.body
    points = [(body(loop.body_a), (0, 0, 0), 0, loop.frame_b.translation) for loop in s.loops]
    tau = jnp.asarray(np.random.default_rng(1).normal(size=s.model.nv))
    found = forward(s.model, s.loops, s.q0, v, tau)
    np.testing.assert_allclose(found.vdot, Mechanism(s.model, points).vdot(s.q0, v, tau), atol=1e-10)
    assert (int(found.status), int(found.rank), s.model.nv) == (LoopStatus.OK, 18, 24)


def test_redundant_constraints_share_the_least_multipliers():
    """A pin named twice and as all five rows of a revolute joint: the same motion, the shortest multipliers."""
    s = ready.four_bar()
    v, _ = reduced(s, linkages.FourBar(), [0])
    tau = jnp.asarray([1.0, 2.0, 3.0])
    one = forward(s.model, s.loops, s.q0, v, tau)
    for loops in ((*s.loops, *s.loops), (*ready.four_bar(closure="revolute").loops,)):
        found = forward(s.model, loops, s.q0, v, tau)
        A = np.asarray(constraint(s.model, loops, s.q0, v).jacobian)
        np.testing.assert_allclose(found.vdot, one.vdot, atol=1e-12)
        np.testing.assert_allclose(found.forces, one.forces, atol=1e-12)
        np.testing.assert_allclose(found.multipliers, np.linalg.pinv(A.T, 1e-8) @ np.asarray(one.forces), atol=1e-12)
        assert LoopStatus(int(found.status)) == LoopStatus.REDUNDANT
        assert int(found.rank) == 2


def test_contradictory_constraints_say_so():
    """The crank is to stand still and to keep the square of its angle, while it turns."""
    s = ready.four_bar()
    v, _ = reduced(s, linkages.FourBar(), [0])
    fight = Loop(lambda model, q: jnp.stack([q.joints[0], q.joints[0] ** 2]))
    found = forward(s.model, (*s.loops, fight), s.q0, 10 * v, 0 * v)
    assert LoopStatus.INCONSISTENT in LoopStatus(int(found.status))
    assert float(found.residual) > 0.1
    assert np.all(np.isfinite(found.vdot))
    broken = forward(s.model, s.loops, s.q0, v.at[0].set(jnp.nan), 0 * v)
    assert LoopStatus.NOT_FINITE in LoopStatus(int(broken.status))


# ---- derivatives
def numbers(model, loops, q):
    """Everything traced as one vector that moves it, and the function of it that is differentiated."""

    def at(x, v):
        dv, speed, tau, mass, shift, alpha = jnp.split(x, np.cumsum([model.nv, model.nv, model.nv, 1, 3]))
        here = model.replace(inertias=model.inertias.scaled(1 + mass))
        loop = loops[0]
        moved = jax.tree.map(lambda x: x, loop)
        object.__setattr__(moved, "frame_b", Pose(loop.frame_b.rotation, loop.frame_b.translation + shift))
        q1 = lgjax.retract(model, q, dv)
        found = lgjax.constrained_forward_dynamics(here, (moved, *loops[1:]), q1, v + speed, tau, alpha=alpha[0])
        return jnp.concatenate([found.vdot, found.forces, found.multipliers])

    return at, jnp.zeros(3 * model.nv + 5)


@pytest.mark.slow
def test_derivatives_in_everything_traced():
    """In both modes, at rest and moving, against central differences."""
    model, loops = swing()
    q, v = state(model, 7)
    at, zero = numbers(model, loops, q)
    h, eye = 1e-5, jnp.eye(len(zero))
    value = jit(jax.vmap(at, (0, None)))
    derivatives = [jit(mode(at)) for mode in (jax.jacfwd, jax.jacrev)]
    for speed in (v, 0 * v):
        expected = ((value(h * eye, speed) - value(-h * eye, speed)) / (2 * h)).T
        for derivative in derivatives:
            np.testing.assert_allclose(derivative(zero, speed), expected, atol=2e-6 * np.abs(expected).max())


@pytest.mark.slow
def test_derivatives_with_redundant_constraints():
    """The accelerations do not care which of dependent constraints were left out; nor do their derivatives."""
    slim, full = ready.four_bar(), ready.four_bar(closure="revolute")
    v, _ = reduced(slim, linkages.FourBar(), [0])
    model = slim.model

    def along(loops):
        return lambda x: (
            lgjax.constrained_forward_dynamics(
                model.replace(inertias=model.inertias.scaled(1 + x[:3])), loops, slim.q0, v + v * x[3], x[4:]
            ).vdot
        )

    zero = jnp.zeros(7)
    a, b = (jit(jax.jacrev(along(loops)))(zero) for loops in (slim.loops, full.loops))
    np.testing.assert_allclose(a, b, atol=1e-11 * np.abs(a).max())


def test_values_compile_nothing():
    s = ready.four_bar()
    count = [0]

    def run(loops, alpha, tolerance):
        count[0] += 1
        return lgjax.constrained_forward_dynamics(
            s.model, loops, s.q0, s.v0, s.v0, alpha=alpha, beta=alpha, tolerance=tolerance
        ).vdot

    compiled = jit(run)
    for x in (0.0, 1.0, 2.0):
        compiled(Loop("distance", "world", "coupler", distance=0.5 + x), x, 1e-8 + x)
    assert count[0] == 1


# ---- bad input
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Loop("hook", "a", "b"), r"loop \(hook a-b\): unknown kind 'hook'; known: weld, revolute"),
        (lambda: Loop("distance", "a", "b"), r"kind 'distance' needs distance"),
        (lambda: Loop("point", "a", "b", pitch=0.1), r"kind 'point' has no pitch"),
        (lambda: Loop("distance", "a", "b", distance=-1.0), r"distance is -1.0, it must be positive"),
        (lambda: Loop("helical", "a", "b", pitch=0.0), r"pitch is 0.0, it must be finite, not zero"),
        (lambda: Loop("point", "a", "b", [0, 0, jnp.nan], name="x"), r"loop 'x': frame_a is not finite"),
        (lambda: Loop("weld", "a", "b", np.zeros((4, 4))), r"frame_a is not a rotation"),
        (lambda: Loop("weld", "a", "b", np.zeros((2, 2))), r"frame_a is a Pose, a 4x4 matrix or a point"),
        (lambda: Loop(lambda m, q: q.joints, "a"), r"a function takes no body_a"),
        (lambda: Loop("weld", "a", "b", parameters=1.0), r"parameters belong to functions"),
        (lambda: Loop(KINDS["free"], "a", "b"), r"unknown kind 'free'"),
    ],
)
def test_bad_loops_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("loops", "error", "message"),
    [
        (Loop("point", "crank", "nose", name="x"), ValueError, r"loop 'x': no body 'nose' in 'four_bar'"),
        (Loop("point", "crank", 7), ValueError, r"body index 7 is out of range for 3 bodies"),
        (Loop("point", "crank", 0), ValueError, r"loop \(point crank-0\) joins a body to itself"),
        (Loop("point"), ValueError, r"joins a body to itself"),
        (Loop(lambda model, q: q.joints[0]), ValueError, r"returned float64\[\], not float64\[m\]"),
        ((), ValueError, r"no loops are given"),
        ("point", TypeError, r"loops are Loop, got str"),
    ],
)
def test_loops_that_do_not_fit_the_model_are_refused(loops, error, message):
    s = ready.four_bar()
    with pytest.raises(error, match=message):
        loop_residual(s.model, loops, s.q0)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("kind", ["revolute", "cylindrical", "planar", "helical"])
def test_closures_where_the_axes_are_opposite(kind, dtype):
    """The residual is the swing as long as that has a direction, and everything is finite beyond."""
    ball = lgjax.Body("hand", None, lgjax.Joint("ball", "spherical"), mass=1.0, inertia=0.1 * np.eye(3))
    model = lgjax.build([ball]).astype(dtype)
    loop = lgjax.Loop(kind, None, "hand", pitch=0.1 if kind == "helical" else None)
    axes = np.array([[1, 0, 0], [0, -1, 0], [0.6, 0.8, 0]])
    angles = np.pi - np.array([0, 1e-9, 1e-6, 1e-3, 0.1])

    def at(turn):
        q = lgjax.retract(model, lgjax.neutral(model), turn)
        return lgjax.loops.loop_constraint(model, loop, q, jnp.ones(3, dtype))

    turns = jnp.asarray(angles[:, None, None] * axes, dtype)
    found = jax.jit(jax.vmap(jax.vmap(at)))(turns)
    slopes = jax.jit(jax.vmap(jax.vmap(jax.jacrev(at))))(turns)  # those of the bias are third derivatives
    for x in jax.tree.leaves((found, slopes)):
        assert np.all(np.isfinite(x))
    # in float32 the last rotations before the half turn are the half turn to round-off
    clear = angles < np.pi - (1e-5 if dtype == jnp.float32 else 1e-8)
    tolerance = 1e-3 if dtype == jnp.float32 else 1e-8
    np.testing.assert_allclose(found.residual[clear][..., :2], turns[clear][..., :2], atol=tolerance)


def test_high_derivatives_in_float32_where_the_axes_are_almost_opposite():
    """Fourth derivatives of the residual: finite 1e-3 rad from the half turn, and those of float64 0.1 rad from it."""

    def fourth(angle, dtype):
        start, along = jnp.asarray([angle, 0, 0], dtype), jnp.asarray([[0.3, 1.0, 0.5], [-0.2, 0.6, 1.0]], dtype)
        at = lambda x: CLOSURES["helical"][0](Pose(so3.exp(start + x), jnp.zeros(3, dtype)), jnp.asarray(0.1, dtype))
        for direction in (along[0], along[1], along[0]):
            at = lambda x, at=at, d=direction: jax.jvp(at, (x,), (d,))[1]
        return jax.jacrev(at)(0 * start)

    fourth = jit(fourth, static_argnums=1)
    assert np.all(np.isfinite(fourth(np.pi - 1e-3, jnp.float32)))
    exact = fourth(np.pi - 0.1, jnp.float64)
    np.testing.assert_allclose(fourth(np.pi - 0.1, jnp.float32), exact, atol=1e-3 * np.abs(exact).max())
