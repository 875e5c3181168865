"""Inverse kinematics: targets are reached within limits; nearest ones beside SciPy; derivatives beside closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import lgjax
from lgjax import Body, Joint, Loop, Pose, build, se3, so3
from lgjax.dynamics.inverse_kinematics import IKStatus
from lgjax.dynamics.inverse_kinematics.targets import checked_targets, rows
from tests.dynamics import trees

DTYPES = (jnp.float64, jnp.float32)
SIZES = {jnp.float64: 1e-8, jnp.float32: 1e-5}
LINKS = np.array([0.5, 0.4])


def planar(lower=-3.0, upper=3.0, links=LINKS) -> lgjax.Model:
    """Links in the plane of x and y; the frame "tip" is at the end of the last."""
    bodies, parent, end = [], None, np.zeros(3)
    for i, length in enumerate(links):
        place = np.array([links[i - 1] if i else 0.0, 0, 0])
        joint = Joint(f"joint{i}", "revolute", (0, 0, 1), lower=lower, upper=upper)
        bodies.append(Body(f"link{i}", parent, joint, np.eye(3), place, 1.0, np.zeros(3), np.eye(3) * 0.01))
        parent = f"link{i}"
        end = np.array([length, 0, 0])
    bodies.append(Body("tip", parent, Joint("end", "fixed"), np.eye(3), end))
    return build(bodies, "planar")


def bent(model, values):
    return lgjax.configuration(model, joints=jnp.asarray(values, model.dtype))


def elbow(p):
    """Angles (2,) of the planar arm of two links that put its tip at p (2,), with the second one positive."""
    a, b = LINKS
    c = (p[0] ** 2 + p[1] ** 2 - a * a - b * b) / (2 * a * b)
    second = jnp.arccos(c)
    return jnp.array([jnp.arctan2(p[1], p[0]) - jnp.arctan2(b * jnp.sin(second), a + b * c), second])


def error_of(model, frame, q, target) -> np.ndarray:
    """Distances of a frame from a Pose: angle and length, from the matrices."""
    found = lgjax.frame_pose(model, q, frame)
    turn = np.linalg.norm(found.rotation - target.rotation) / np.sqrt(2)
    return np.array([turn, np.linalg.norm(found.translation - target.translation)])


# ---- targets are reached
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["arm", "panda-like", "mixed"])
def test_random_targets_are_reached_within_the_limits(name, dtype):
    model, frame = ROBOTS[name]()
    model = model.astype(dtype)
    count = 200

    @jax.jit
    @jax.vmap
    def solve(key):
        wanted = lgjax.frame_pose(model, lgjax.random_configuration(key, model), frame)
        return wanted, lgjax.inverse_kinematics(model, {frame: wanted}, lgjax.neutral(model))

    wanted, found = solve(jax.random.split(jax.random.key(0), count))
    assert int(jnp.sum(found.success)) >= 0.99 * count
    assert jnp.all(found.error[found.success] <= SIZES[dtype])
    assert jnp.all((found.q.joints >= model.lower) & (found.q.joints <= model.upper))
    poses = jax.vmap(lambda q: lgjax.frame_pose(model, q, frame))(found.q)
    away = jnp.abs(poses.translation - wanted.translation).max(1), jnp.abs(poses.rotation - wanted.rotation).max((1, 2))
    bound = SIZES[dtype] + 8 * jnp.finfo(dtype).eps
    assert jnp.all((jnp.maximum(*away) <= bound) == found.success)


def seven() -> tuple[lgjax.Model, str]:
    """Seven hinges with limits, shoulder, elbow and wrist."""
    axes = ((0, 0, 1), (0, 1, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1))
    heights, parent, bodies = (0.3, 0, 0.3, 0.05, 0.35, 0.0, 0.1), None, []
    for i, (axis, height) in enumerate(zip(axes, heights, strict=True)):
        low, high = ((-2.8, 2.8), (-1.7, 1.7), (-2.8, 2.8), (0.1, 2.9))[min(i, 3)] if i < 4 else (-2.7, 2.7)
        joint = Joint(f"joint{i}", "revolute", axis, lower=low, upper=high)
        bodies.append(Body(f"link{i}", parent, joint, np.eye(3), np.array([0, 0, height]), 1.0, inertia=np.eye(3) / 9))
        parent = f"link{i}"
    bodies.append(Body("tool", parent, Joint("flange", "fixed"), np.eye(3), np.array([0.05, 0, 0.1])))
    return build(bodies, "seven"), "tool"


def mixed() -> tuple[lgjax.Model, str]:
    """A slide, a ball joint, hinges, a screw: rotations whose logarithm is anywhere."""
    chain = (("rail", None, "prismatic"), ("shoulder", "rail", "spherical"), ("elbow", "shoulder", "revolute"),
             ("screw", "elbow", "helical"), ("hand", "screw", "revolute"))  # fmt: skip
    return build([trees.body(*body, i) for i, body in enumerate(chain, 1)], "mixed"), "hand"


ROBOTS = {"arm": lambda: (lgjax.models.arm(), lgjax.models.arm().body_names[-1]), "panda-like": seven, "mixed": mixed}


@pytest.mark.parametrize("turn", [0.0, 1e-9, 1e-3, 1.0, np.pi / 2, np.pi - 1e-6, np.pi])
def test_a_floating_body_is_put_anywhere(turn):
    """Half a turn away too, where the logarithm of the error changes its sign."""
    model = build([Body("box", None, Joint("root", "free"), mass=1.0, com=np.zeros(3), inertia=np.eye(3))])
    axis = np.array([1.0, 2.0, -2.0]) / 3
    wanted = Pose(so3.exp(jnp.asarray(turn * axis)), jnp.array([3.0, -2.0, 1e-9]))
    found = lgjax.inverse_kinematics(model, {"box": wanted}, lgjax.neutral(model))
    assert found.success
    assert np.max(error_of(model, "box", found.q, wanted)) < 2e-8


def test_positions_rotations_and_matrices_are_targets():
    model, frame = seven()
    q = bent(model, [0.3, 0.5, -0.4, 1.2, 0.3, 0.7, -0.5])
    wanted = lgjax.frame_pose(model, q, frame)
    start = bent(model, [0, 0.3, 0, 1.0, 0, 0.4, 0])
    place = lgjax.inverse_kinematics(model, {frame: wanted.translation}, start)
    turn = lgjax.inverse_kinematics(model, {frame: wanted.rotation}, start)
    both = lgjax.inverse_kinematics(model, {frame: se3.to_matrix(wanted)}, start)
    pose = lgjax.inverse_kinematics(model, {frame: wanted}, start)
    assert place.success
    assert turn.success
    assert both.success
    small, large = 2e-8, 1e-2
    at = [error_of(model, frame, x.q, wanted) for x in (place, turn, both)]
    assert at[0][1] < small < large < at[0][0]
    assert at[1][0] < small < large < at[1][1]
    assert np.max(at[2]) < small
    np.testing.assert_array_equal(both.q.joints, pose.q.joints)


def test_where_the_guess_is_a_solution_it_stays():
    model, frame = seven()
    q = bent(model, [0.3, 0.5, -0.4, 1.2, 0.3, 0.7, -0.5])
    found = lgjax.inverse_kinematics(model, {frame: lgjax.frame_pose(model, q, frame)}, q)
    np.testing.assert_array_equal(found.q.joints, q.joints)
    assert (found.iterations, found.guesses, found.status) == (1, 1, 0)


def test_the_named_joints_move_alone():
    model, frame = seven()
    q = bent(model, [0.3, 0.5, -0.4, 1.2, 0.3, 0.7, -0.5])
    wanted = lgjax.frame_pose(model, q, frame).translation
    start = bent(model, [0.1, 0.2, -0.4, 0.8, 0.3, 0.7, -0.5])
    found = lgjax.inverse_kinematics(model, {frame: wanted}, start, joints=["joint0", "joint1", "joint3"])
    assert found.success
    held = np.array([2, 4, 5, 6])
    np.testing.assert_array_equal(found.q.joints[held], start.joints[held])
    limbs = lgjax.inverse_kinematics(lgjax.models.quadruped(), {"FL_foot": jnp.array([0.3, 0.2, -0.3])}, STANDING)
    assert jnp.sum(limbs.q.joints != STANDING.joints) <= 3


STANDING = lgjax.neutral(lgjax.models.quadruped())


def test_several_frames_of_a_floating_robot():
    """Three feet stay, the body is lowered and turned."""
    model = lgjax.models.quadruped()
    key = jax.random.key(1)
    q = lgjax.random_configuration(key, model)
    feet = ["FL_foot", "FR_foot", "RL_foot", "RR_foot"]
    targets: dict[str, Any] = {foot: lgjax.frame_pose(model, q, foot).translation for foot in feet}
    targets[model.body_names[0]] = lgjax.frame_pose(model, q, model.body_names[0])
    start = q._replace(joints=jnp.clip(q.joints + 0.3, model.lower, model.upper))
    start = start._replace(
        free_poses=start.free_poses @ Pose(so3.exp(jnp.array([[0.2, 0.1, -0.3]])), jnp.full((1, 3), 0.1))
    )
    found = lgjax.inverse_kinematics(model, targets, start)
    assert found.success
    for foot in feet:
        np.testing.assert_allclose(lgjax.frame_pose(model, found.q, foot).translation, targets[foot], atol=2e-8)


# ---- beside SciPy
def test_nothing_nearer_to_the_rest_pose_is_found():
    """SciPy goes on from the result between the same limits, by other means, and finds no better one."""
    model, frame = seven()
    rest = bent(model, [0.0, 0.2, 0.1, 1.5, 0.0, 0.3, 3.0])  # the last one beyond its limit
    keys = jax.random.split(jax.random.key(2), 12)
    drawn = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    wanted = jax.vmap(lambda q: lgjax.frame_pose(model, q, frame))(drawn).translation
    solve = jax.jit(jax.vmap(lambda p: lgjax.inverse_kinematics(model, {frame: p}, rest, rest=rest)))
    found = solve(wanted)
    assert jnp.all(found.success)
    place = jax.jit(lambda x: lgjax.frame_pose(model, bent(model, x), frame).translation)
    slope = jax.jit(jax.jacfwd(place))
    bounds = list(zip(np.asarray(model.lower), np.asarray(model.upper), strict=True))
    at_limits = 0
    for x, p in zip(np.asarray(found.q.joints), np.asarray(wanted), strict=True):
        reached = {"type": "eq", "fun": lambda y, p=p: np.asarray(place(y) - p), "jac": lambda y: np.asarray(slope(y))}
        best = optimize.minimize(
            lambda y: 0.5 * np.sum((y - rest.joints) ** 2), x, jac=lambda y: np.asarray(y - rest.joints),
            method="SLSQP", bounds=bounds, constraints=reached, options={"ftol": 1e-14, "maxiter": 200},
        )  # fmt: skip
        assert 0.5 * np.sum((x - rest.joints) ** 2) < best.fun + 1e-9
        at_limits += int(np.any((x <= np.asarray(model.lower)) | (x >= np.asarray(model.upper))))
    assert at_limits > 0
    assert (
        jnp.mean(jnp.sum((found.q.joints - rest.joints) ** 2, 1))
        < jnp.mean(jnp.sum((drawn.joints - rest.joints) ** 2, 1)) / 2
    )


def test_out_of_reach_the_nearest_is_found():
    model, frame = seven()
    q0 = bent(model, [0.1, 0.2, 0.1, 1.5, 0.1, 0.3, 0.2])
    wanted = jnp.array([[2.0, 0.5, 0.3], [0.0, 0.0, 3.0], [-1.0, 1.0, -1.0]])
    found = jax.vmap(lambda p: lgjax.inverse_kinematics(model, {frame: p}, q0))(wanted)
    assert jnp.all(found.status == IKStatus.NOT_REACHED)
    assert jnp.all(found.guesses == 8)
    place = jax.jit(lambda x: lgjax.frame_pose(model, bent(model, x), frame).translation)
    for x, p, error in zip(np.asarray(found.q.joints), np.asarray(wanted), found.error, strict=True):
        assert np.linalg.norm(place(x) - p) == pytest.approx(float(error), rel=1e-9)
        best = optimize.least_squares(
            lambda y, p=p: np.asarray(place(y) - p), x, bounds=(model.lower - 1e-9, model.upper + 1e-9)
        )
        assert error < np.linalg.norm(best.fun) + 1e-6


def test_weights_decide_between_targets_that_exclude_each_other():
    model = planar()
    far = {"tip": jnp.array([0.2, 0.6, 0.0]), "link1": jnp.array([0.5, 0.0, 0.0])}
    q0 = bent(model, [0.3, 0.4])
    away = []
    for weight in (1.0, 100.0):
        found = lgjax.inverse_kinematics(model, far, q0, weights={"link1": (1.0, weight)})
        assert found.status == IKStatus.NOT_REACHED
        away.append(np.linalg.norm(lgjax.frame_pose(model, found.q, "link1").translation - far["link1"]))
    assert away[1] < 1e-2 * away[0]


# ---- derivatives
@pytest.mark.parametrize("place", [(0.6, 0.3), (0.2, -0.5), (-0.4, 0.4)])
def test_derivatives_are_those_of_the_closed_form(place):
    """Of first and second order, in both modes, also with respect to the links."""
    model = planar(0.0, 3.0)
    model = model.replace(lower=model.lower.at[0].set(-4), upper=model.upper.at[0].set(4))
    p = jnp.asarray(place)
    q0 = bent(model, elbow(p) + 0.1)

    def solve(p):
        return lgjax.inverse_kinematics(model, {"tip": jnp.append(p, 0.0)}, q0).q.joints

    np.testing.assert_allclose(solve(p), elbow(p), atol=1e-7)
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(mode(solve)(p), jax.jacfwd(elbow)(p), atol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(jax.jacrev(solve)))(p), jax.hessian(elbow)(p), rtol=1e-5, atol=1e-5)

    def longer(a):
        moved = model.replace(
            placements=model.placements._replace(translation=model.placements.translation.at[1, 0].set(a))
        )
        return lgjax.inverse_kinematics(moved, {"tip": jnp.append(p, 0.0)}, q0).q.joints

    step = 1e-6
    differences = (longer(0.5 + step) - longer(0.5 - step)) / (2 * step)
    np.testing.assert_allclose(jax.jacfwd(longer)(0.5), differences, rtol=1e-4, atol=1e-4)


def test_derivatives_in_single_precision():
    model = planar(0.0, 3.0).astype(jnp.float32)
    model = model.replace(lower=model.lower.at[0].set(-4), upper=model.upper.at[0].set(4))
    place = jnp.array([0.6, 0.3])
    q0, p = bent(model, elbow(place) + 0.1), place.astype(jnp.float32)
    solve = lambda p: lgjax.inverse_kinematics(model, {"tip": jnp.append(p, jnp.float32(0))}, q0).q.joints
    found = jax.jit(jax.vmap(jax.jacrev(solve)))(jnp.stack([p, p]))
    np.testing.assert_allclose(found[1], jax.jacfwd(elbow)(place), atol=2e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_jacobian_of_the_rows_is_their_derivative(dtype):
    """Far from the targets too, for rotations, positions, the center of mass and joints of all kinds."""
    model, frame = ROBOTS["mixed"]()
    model = model.astype(dtype)
    q, other = (lgjax.random_configuration(key, model) for key in jax.random.split(jax.random.key(5)))
    targets = checked_targets(model, {frame: lgjax.frame_pose(model, other, frame)}, {frame: (0.7, 1.3)})
    center = lgjax.center_of_mass(model, other)
    at = lambda d: rows(model, targets, center, (), np.arange(model.nv), lgjax.retract(model, q, d))
    zero = jnp.zeros(model.nv, dtype)
    found = at(zero)
    scale = jnp.max(jnp.abs(found.jacobian))
    bound = 1e-12 if dtype == jnp.float64 else 2e-5
    assert jnp.max(jnp.abs(found.jacobian - jax.jacfwd(lambda d: at(d).error)(zero))) < bound * scale
    away = lgjax.center_of_mass(model, other) - lgjax.center_of_mass(model, q)
    np.testing.assert_allclose(found.error[6:], away, atol=1e-5 if dtype == jnp.float32 else 1e-13)


def test_derivatives_of_the_nearest_to_rest_are_those_of_differences():
    """A joint at its limit follows the limit; the others make up for it."""
    model = planar(links=np.array([0.4, 0.3, 0.3]))
    rest = bent(model, [0.1, 0.9, 0.4])
    model = model.replace(upper=model.upper.at[1].set(0.7))

    def solve(p, upper):
        limited = model.replace(upper=model.upper.at[1].set(upper))
        return lgjax.inverse_kinematics(limited, {"tip": jnp.append(p, 0.0)}, rest, rest=rest, tolerance=1e-11).q.joints

    p, upper = jnp.array([0.5, 0.4]), 0.7
    assert solve(p, upper)[1] == upper
    forward, reverse = (mode(solve, (0, 1))(p, upper) for mode in (jax.jacfwd, jax.jacrev))
    h = 1e-4
    by_place = [(solve(p + h * e, upper) - solve(p - h * e, upper)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(forward[0], np.stack(by_place, 1), atol=2e-4)
    np.testing.assert_allclose(forward[1], (solve(p, upper + h) - solve(p, upper - h)) / (2 * h), atol=2e-4)
    np.testing.assert_allclose(reverse[0], forward[0], atol=1e-12)
    np.testing.assert_allclose(reverse[1], forward[1], atol=1e-12)
    assert forward[1][1] == pytest.approx(1.0)


def test_without_a_rest_pose_the_change_is_the_shortest():
    model = planar(links=np.array([0.4, 0.3, 0.3]))
    q0 = bent(model, [0.2, 0.5, 0.4])
    p = jnp.array([0.6, 0.3])
    solve = lambda p: lgjax.inverse_kinematics(model, {"tip": jnp.append(p, 0.0)}, q0).q
    q = solve(p)
    J = lgjax.jacobian(model, q, "tip", "world")[3:5]
    np.testing.assert_allclose(jax.jacfwd(lambda p: solve(p).joints)(p), np.linalg.pinv(J), atol=1e-9)


# ---- loops
def test_loops_stay_closed():
    """The coupler of a linkage of four bars is put at a height that it can reach."""
    bars = [("a", None, 0.0, 0.3), ("b", "a", 0.3, 0.7), ("c", "b", 0.7, 0.5)]
    hinge = lambda name: Joint(f"{name}_joint", "revolute", (0, 1, 0))
    bodies = [
        Body(name, parent, hinge(name), np.eye(3), np.array([x, 0, 0]), 1.0, inertia=np.eye(3) / 50)
        for name, parent, x, _ in bars
    ]
    model = build(bodies, "four bar")
    turned = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0.0]])
    pivot = lambda x: np.vstack([np.hstack([turned, [[x], [0], [0]]]), [0, 0, 0, 1]])
    loop = Loop("revolute", None, "c", pivot(0.6), pivot(0.5))
    closed = lgjax.project_positions(model, loop, bent(model, [-1.7, 1.3, 1.6])).q
    other = lgjax.project_positions(model, loop, bent(model, closed.joints + np.array([0.3, 0, 0]))).q
    wanted = lgjax.frame_pose(model, other, "b")
    found = lgjax.inverse_kinematics(model, {"b": wanted.translation}, closed, loops=loop)
    assert found.success
    assert jnp.max(jnp.abs(lgjax.loops.loop_residual(model, loop, found.q))) < 1e-8
    np.testing.assert_allclose(lgjax.frame_pose(model, found.q, "b").translation, wanted.translation, atol=2e-8)
    free = lgjax.inverse_kinematics(model, {"b": wanted.translation}, closed)
    assert jnp.max(jnp.abs(lgjax.loops.loop_residual(model, loop, free.q))) > 1e-3


# ---- batches, programs, statuses, errors
def test_results_depend_on_nothing_but_their_own_target():
    model, frame = seven()
    q0 = bent(model, [0.1, 0.2, 0.1, 1.5, 0.1, 0.3, 0.2])
    keys = jax.random.split(jax.random.key(3), 40)
    wanted = jax.vmap(lambda key: lgjax.frame_pose(model, lgjax.random_configuration(key, model), frame))(keys)
    solve = jax.jit(jax.vmap(lambda T: lgjax.inverse_kinematics(model, {frame: T}, q0)))
    whole = solve(wanted)
    for n in (17, 33):
        part = solve(jax.tree.map(lambda x, n=n: x[n:], wanted))
        for x, y in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
            np.testing.assert_array_equal(x[n:], y)
    alone = lgjax.inverse_kinematics(model, {frame: jax.tree.map(lambda x: x[7], wanted)}, q0)
    np.testing.assert_allclose(alone.q.joints, whole.q.joints[7], atol=1e-7)


def test_targets_tolerances_and_limits_are_traced():
    model = planar()
    count = 0

    @jax.jit
    def solve(p, tolerance, lower):
        nonlocal count
        count += 1
        limited = model.replace(lower=jnp.full(2, lower))
        return lgjax.inverse_kinematics(limited, {"tip": p}, bent(model, [0.3, 0.4]), tolerance=tolerance)

    tight, loose = (solve(jnp.array([0.5, 0.2, 0.0]), size, -3.0) for size in (1e-12, 1e-2))
    assert tight.error < 1e-12 < loose.error < 1e-2
    assert solve(jnp.array([0.5, 0.2, 0.0]), 1e-9, 0.35).status == IKStatus.NOT_REACHED
    assert count == 1


def test_numbers_that_are_none_have_a_status():
    model = planar()
    solve = jax.jit(jax.vmap(lambda p: lgjax.inverse_kinematics(model, {"tip": p}, bent(model, [0.3, 0.4]))))
    found = solve(jnp.array([[jnp.nan, 0, 0], [0.5, 0.2, 0.0], [jnp.inf, 0, 0]]))
    np.testing.assert_array_equal(found.status, [IKStatus.NOT_FINITE, 0, IKStatus.NOT_FINITE])


WRONG = {
    "no frame 'hand'": {"targets": {"hand": np.zeros(3)}},
    "targets is of type list": {"targets": [1, 2]},
    "expected a Pose, a 4x4 matrix, a position": {"targets": {"tip": np.zeros(4)}},
    "use jax.vmap over a batch": {"targets": {"tip": np.zeros((5, 3))}},
    "is no rotation|rotation in the target of 'tip'": {"targets": {"tip": np.ones((3, 3))}},
    "not finite": {"targets": {"tip": np.array([np.nan, 0, 0])}},
    "weights of 'link0', which has no target": {"weights": {"link0": (1, 1)}},
    "weights of 'tip' is negative|not positive": {"weights": {"tip": (1, -1)}},
    "no joint 'knee'": {"joints": ["knee"]},
    "guesses": {"guesses": 0},
    "tolerance must be positive": {"tolerance": 0.0},
    "rest is": {"rest": np.zeros(2)},
    "nothing is to be reached": {"targets": {}},
    "center_of_mass has shape": {"center_of_mass": np.zeros(2)},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_makes_no_sense_is_refused(message):
    model = planar()
    given = {"targets": {"tip": np.array([0.5, 0.2, 0.0])}} | WRONG[message]
    with pytest.raises((ValueError, TypeError), match=message):
        lgjax.inverse_kinematics(model, q0=bent(model, [0.3, 0.4]), **given)


# ---- the center of mass
def crouching():
    """A quadruped on bent legs, and its feet."""
    model = lgjax.models.quadruped()
    q = lgjax.configuration(model, joints=jnp.tile(jnp.array([0.1, 0.8, -1.5]), 4))
    return model, q, {f"{leg}_foot": lgjax.frame_pose(model, q, f"{leg}_foot").translation for leg in LEGS}


LEGS = ("FL", "FR", "RL", "RR")


def test_the_center_of_mass_is_put_above_a_foot():
    """With feet that stay and a trunk that is level; Newton's few steps show that its Jacobian is right."""
    model, q, feet = crouching()
    wanted = lgjax.center_of_mass(model, q) + jnp.array([0.03, -0.04, -0.02])
    targets = feet | {"trunk": jnp.eye(3)}
    found = lgjax.inverse_kinematics(model, targets, q, center_of_mass=wanted)
    assert found.success
    assert found.iterations < 10
    np.testing.assert_allclose(lgjax.center_of_mass(model, found.q), wanted, atol=2e-8)
    alone = lgjax.inverse_kinematics(model, {}, q, center_of_mass=wanted)
    assert alone.success


def test_derivatives_with_a_center_of_mass_are_those_of_differences():
    model, q, feet = crouching()
    start = lgjax.center_of_mass(model, q)
    solve = jax.jit(
        lambda x: (
            lgjax.inverse_kinematics(
                model, feet | {"trunk": jnp.eye(3)}, q, center_of_mass=start + x, tolerance=1e-12
            ).q.joints
        )
    )
    h = 1e-5
    differences = [(solve(h * e) - solve(-h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(jax.jit(jax.jacrev(solve))(jnp.zeros(3)), np.stack(differences, 1), atol=1e-6)
