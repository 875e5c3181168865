"""The Lagrangian form of the collision integrator: closed forms, the discrete action, and the Hamiltonian form."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax import Pose, shapes, so3
from lgjax.collisions import BounceStatus, bounce, lagrangian_bounce, rigid_body
from lgjax.collisions.variational import (
    discrete_lagrangian,
    end_momenta,
    total_energy,
    variational_step,
)
from lgjax.shapes import Plane
from lgjax.systems.bouncing_body import bouncing_body

G, H = 9.80665, 0.05
FLOOR = Plane((0.0, 0.0, 1.0))
FLAGS = BounceStatus


def ball_poses(height, dtype=jnp.float64, h=H):
    """Poses at -h and 0 of a ball thrown up at -h so that it rests at time 0."""
    at = lambda z: Pose(jnp.eye(3, dtype=dtype), jnp.stack([jnp.zeros((), dtype)] * 2 + [jnp.asarray(z, dtype)]))
    return at(height - jnp.asarray(0.5 * G * h * h, dtype)), at(height)


def dropped(height=3.0, steps=100, dtype=jnp.float64, gravity=G, **options):
    """A ball of radius 1 m and mass 2 kg let go at a height."""
    body = rigid_body(2.0, (0.4, 0.4, 0.4), (0.0, 0.0, -gravity), dtype=dtype)
    shape, floor = shapes.sphere(jnp.asarray(1.0, dtype)), Plane(jnp.asarray((0.0, 0.0, 1.0), dtype))
    run = lambda a, b: lagrangian_bounce(body, shape, floor, a, b, H, steps, **options)
    return body, jit(run)(*ball_poses(height, dtype))


def parts(events, count):
    """The part α of its step at which each of the first impacts comes, for steps that end at multiples of H."""
    ts = np.asarray(events.ts[:count])
    return ts / H - np.floor(ts / H)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_ball_bounces_and_loses_discrete_energy_as_the_closed_forms_say(dtype):
    """From 2 m above contact: impact k at (2k + 1) √(2 · 2 m / g).  E_d is the energy less m g² h²/8 of a step of size
    h, so it jumps by m g² h² (2 α - 1)/8 where the step is parted into α h and (1 - α) h."""
    body, solution = dropped(dtype=dtype)
    eps = float(jnp.finfo(dtype).eps)
    assert all(x.dtype == dtype for x in jax.tree.leaves((solution.ts, solution.states, solution.energies)))
    assert solution.status == 0
    count, fall = int(solution.impacts[-1]), np.sqrt(2 * 2.0 / G)
    assert count == 4
    events = solution.events
    np.testing.assert_allclose(events.ts[:count], (2 * np.arange(count) + 1) * fall, rtol=300 * eps)
    np.testing.assert_allclose(events.impulses[:count], 4.0 * G * fall, rtol=300 * eps)
    np.testing.assert_allclose(events.poses.translation[:count, 2], 1.0, atol=10 * eps)
    assert np.array_equal(events.planes, np.where(np.arange(16) < count, 0, -1))
    since = np.abs((np.asarray(solution.ts) + fall) % (2 * fall) - fall)
    np.testing.assert_allclose(solution.states.pose.translation[:, 2], 3.0 - 0.5 * G * since**2, atol=2e4 * eps)
    energies = np.asarray(jax.vmap(lambda s: total_energy(body, s))(solution.states), np.float64)
    np.testing.assert_allclose(energies, 2.0 * G * 3.0, rtol=300 * eps)
    mismatch = 2.0 * G**2 * H**2 * (2 * parts(events, count) - 1) / 8
    np.testing.assert_allclose(events.mismatches[:count], mismatch, atol=1e4 * eps)
    assert np.abs(mismatch).max() > 0.03
    whole = np.diff(solution.impacts, prepend=0) == 0
    np.testing.assert_allclose(solution.energies[whole], 2.0 * G * 3.0 - 2.0 * G**2 * H**2 / 8, atol=2e3 * eps)


@pytest.mark.slow
def test_an_impact_that_keeps_the_discrete_energy_changes_the_other_by_the_mismatch():
    """With E_d kept, the energy of a ball falls by m g² h² (2 α - 1)/8 at an impact; symmetric steps keep both."""
    body, solution = dropped(jump="discrete")
    count, expected = int(solution.impacts[-1]), 2.0 * G * 3.0
    energies = np.asarray(jax.vmap(lambda s: total_energy(body, s))(solution.states))
    np.testing.assert_allclose(solution.events.mismatches[:count], 0.0, atol=1e-11)
    for k, alpha in enumerate(parts(solution.events, count)):
        expected -= 2.0 * G**2 * H**2 * (2 * alpha - 1) / 8
        np.testing.assert_allclose(energies[np.asarray(solution.impacts) == k + 1], expected, atol=1e-10)
    body, solution = dropped(jump="discrete", symmetric=True)
    energies = np.asarray(jax.vmap(lambda s: total_energy(body, s))(solution.states))
    np.testing.assert_allclose(energies, 2.0 * G * 3.0, atol=1e-11)
    np.testing.assert_allclose(solution.events.mismatches, 0.0, atol=1e-11)
    # A step with an impact lasts as long after it as before it.
    sizes, struck = np.diff(solution.ts), np.diff(solution.impacts) > 0
    np.testing.assert_allclose(sizes[~struck], H, atol=1e-14)
    before = np.asarray(solution.events.ts[: struck.sum()]) - np.asarray(solution.ts[:-1])[struck]
    np.testing.assert_allclose(sizes[struck], 2 * before, atol=1e-14)


@cache
def ellipsoid(steps=500):
    """The first experiment of the source, and its run from two poses in a batch with steps of other sizes and with
    starts that cannot be: inside the plane, not a number."""
    p = bouncing_body("ellipsoid", dtype=jnp.float64)
    hs = jnp.array([0.01, 0.004, 0.02, 0.01, 0.01])
    first = jax.vmap(lambda h: variational_step(p.body, p.state, -h)[0].pose)(hs)
    second = jax.tree.map(lambda a: jnp.broadcast_to(a, (5, *a.shape)), p.state.pose)
    second = second._replace(translation=second.translation.at[3, 2].set(1.0).at[4, 0].set(jnp.nan))
    run = jit(jax.vmap(lambda a, b, h: lagrangian_bounce(p.body, p.shape, p.planes, a, b, h, steps, 2)))
    return p, first, hs, run(first, second, hs)


def of_batch(k, tree):
    return jax.tree.map(lambda a: a[k], tree)


def test_both_forms_are_the_same_motion_to_round_off():
    """Poses, momenta and impacts of `bounce` from the Legendre transform of the first two poses, elements of a batch
    with steps of their own; each impact magnifies the round-off before it."""
    p, first, hs, solutions = ellipsoid()
    run = jit(jax.vmap(lambda s, h: bounce(p.body, p.shape, p.planes, s, h, 500)))
    states = jax.vmap(lambda a, h: end_momenta(p.body, a, p.state.pose, h))(of_batch(slice(3), first), hs[:3])
    others = run(states, hs[:3])
    assert np.array_equal(others.impacts[:, -1], [2, 0, 5])
    for k, bound in enumerate((1e-10, 1e-12, 1e-8)):
        one, other = of_batch(k, solutions), of_batch(k, others)
        assert one.status == 0
        assert np.array_equal(one.impacts, other.impacts)
        leaves = zip(jax.tree.leaves(one.states), jax.tree.leaves(other.states), strict=True)
        gap = np.max([np.abs(x - y).reshape(501, -1).max(1) for x, y in leaves], axis=0)
        assert gap[np.asarray(one.impacts) == 0].max() < 5e-13
        assert gap.max() < bound
        np.testing.assert_allclose(one.events.ts, other.events.ts, atol=bound)
        np.testing.assert_allclose(one.events.impulses, other.events.impulses, atol=bound)
        assert np.array_equal(one.events.planes, other.events.planes)


def test_what_stops_a_body_is_said_and_it_keeps_its_last_good_pose():
    _, _, _, solutions = ellipsoid()
    inside, nowhere = map(int, solutions.status[3:])
    assert inside == FLAGS.STARTED_INSIDE
    assert nowhere & int(FLAGS.NOT_FINITE | FLAGS.NOT_SOLVED)
    poses = solutions.states.pose.translation[3]
    np.testing.assert_array_equal(poses, np.broadcast_to(jnp.array([0.0, 0.0, 1.0]), poses.shape))


def test_poses_and_impacts_make_the_discrete_action_stationary():
    """Derivatives of the sum of L_d, by JAX: zero at every pose, along [χ, n] times the impulse at an impact."""
    p, first, _, solutions = ellipsoid()
    before, solution = of_batch(0, first), of_batch(0, solutions)
    ts, poses, count = np.asarray(solution.ts), solution.states.pose, int(solution.impacts[-1])
    hits = np.asarray(solution.events.ts[:count])
    times = np.concatenate([[-0.01], ts, hits])
    stack = lambda *leaves: jnp.concatenate(leaves)
    path = jax.tree.map(lambda a, b, c: stack(a[None], b, c[:count]), before, poses, solution.events.poses)
    order = np.argsort(times)
    path, sizes = jax.tree.map(lambda a: a[order], path), jnp.asarray(np.diff(times[order]))

    def action(move, first, pose, last, h0, h1):
        moved = Pose(pose.rotation @ so3.exp(move[:3]), pose.translation + move[3:])
        return discrete_lagrangian(p.body, first, moved, h0) + discrete_lagrangian(p.body, moved, last, h1)

    take = lambda k: jax.tree.map(lambda a: a[k : len(sizes) - 1 + k], path)
    slopes = jit(jax.vmap(jax.grad(action), (None, 0, 0, 0, 0, 0)))(
        jnp.zeros(6), take(0), take(1), take(2), sizes[:-1], sizes[1:]
    )
    struck = np.isin(times[order][1:-1], hits)
    assert struck.sum() == count == 2
    # A pose is known to round-off, so its velocity over a step of size h to round-off / h.
    allowed = 1e-14 / np.minimum(sizes[:-1], sizes[1:]) * 20
    assert np.all(np.abs(slopes[~struck]).max(1) < allowed[~struck])
    for k, at in enumerate(np.flatnonzero(struck)):
        pose = jax.tree.map(lambda a, k=k: a[k], solution.events.poses)
        normal = np.array([0.0, 0.0, 1.0])
        point = p.shape.support(-pose.rotation.T @ normal).point
        chi = np.cross(point, pose.rotation.T @ normal)
        covector = -float(solution.events.impulses[k]) * np.concatenate([chi, normal])
        np.testing.assert_allclose(slopes[at], covector, atol=5 * allowed[at])


@pytest.mark.slow
def test_derivatives_through_an_impact_are_those_of_the_closed_form():
    """Height at 1 s of a ball dropped from rest, by the height of its drop: first in both modes, and second."""
    body, shape = rigid_body(2.0, (0.4, 0.4, 0.4), (0.0, 0.0, -G)), shapes.sphere(1.0)

    def end(height):
        solution = lagrangian_bounce(body, shape, FLOOR, *ball_poses(height), H, 20, 2)
        return solution.states.pose.translation[-1, 2]

    def closed(height):
        fall = jnp.sqrt(2.0 * (height - 1.0) / G)
        return 1.0 + G * fall * (1.0 - fall) - 0.5 * G * (1.0 - fall) ** 2

    height = jnp.array(2.3)
    np.testing.assert_allclose(jit(end)(height), closed(height), atol=1e-12)
    forward, reverse = jit(jax.jacfwd(end))(height), jit(jax.grad(end))(height)
    np.testing.assert_allclose([forward, reverse], jax.grad(closed)(height), rtol=1e-11)
    np.testing.assert_allclose(jit(jax.hessian(end))(height), jax.hessian(closed)(height), rtol=1e-9)


@pytest.mark.slow
def test_more_impacts_in_a_step_than_allowed_stop_the_body():
    """Between walls 1 m apart a ball of radius 0.3 m at 7 m/s hits one every 0.4/7 s, in steps of 0.5 s."""
    body, shape = rigid_body(1.0, (0.1, 0.1, 0.1), (0.0, 0.0, 0.0)), shapes.sphere(0.3)
    walls = Plane(np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), np.array([0.0, 1.0]))
    at = lambda x: Pose(jnp.eye(3), jnp.array([x, 0.0, 0.0]))
    run = lambda most: jit(lambda a, b: lagrangian_bounce(body, shape, walls, a, b, 0.5, 4, most, record=40))
    # The first pose only says how fast the body is; it may be anywhere.
    solution = run(16)(at(0.5 - 3.5), at(0.5))
    expected = 0.2 / 7 + 0.4 / 7 * np.arange(35)
    assert int(solution.impacts[-1]) == 35
    assert solution.status == 0
    np.testing.assert_allclose(solution.events.ts[:35], expected, atol=1e-12)
    limited = run(3)(at(0.5 - 3.5), at(0.5))
    assert limited.status == FLAGS.ZENO
    assert int(limited.impacts[-1]) == 0
    np.testing.assert_array_equal(limited.states.pose.translation[-1], [0.5, 0.0, 0.0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"pose0": np.eye(4)}, TypeError, "pose0 must be a Pose, got ndarray"),
        (
            {"pose1": Pose(2 * jnp.eye(3), jnp.array([0.0, 0.0, 3.0]))},
            ValueError,
            "rotation of pose1 is not a rotation",
        ),
        (
            {"pose0": Pose(2 * jnp.eye(3), jnp.array([0.0, 0.0, 3.0]))},
            ValueError,
            "rotation of pose0 is not a rotation",
        ),
        ({"pose0": Pose(jnp.eye(3), jnp.array([0.0, np.inf, 3.0]))}, ValueError, "translation of pose0 is not finite"),
        ({"pose1": Pose(jnp.eye(3), jnp.array([0.0, 0.0, 0.5]))}, ValueError, r"the body starts 0\.5 m inside plane 0"),
        ({"pose1": Pose(jnp.eye(3), jnp.ones(2))}, ValueError, r"pose1\.translation has shape \(2,\), expected"),
        ({"pose0": Pose(jnp.eye(2), jnp.ones(3))}, ValueError, r"pose0\.rotation has shape \(2, 2\), expected"),
        ({"pose0": Pose(jnp.eye(3), None)}, TypeError, r"pose0\.translation is None, expected an array"),
        (
            {"pose0": Pose(jnp.eye(3, dtype=jnp.float32), jnp.ones(3))},
            TypeError,
            r"pose0\.rotation has dtype float32, pose1\.translation has float64",
        ),
        ({"dt": 0.0}, ValueError, "dt must be positive and finite, got 0.0"),
        ({"steps": 0}, ValueError, "steps must be a positive integer, got 0"),
        ({"save_every": 3}, ValueError, "save_every must divide steps, got save_every=3 and steps=10"),
        ({"jump": "exact"}, ValueError, "jump must be one of hamiltonian, discrete, got 'exact'"),
        ({"tolerance": -1.0}, ValueError, "tolerance is negative: -1.0"),
        ({"chart": "euler"}, ValueError, "chart must be one of cayley, exp, got 'euler'"),
    ],
)
def test_bad_input_is_named(change, error, message):
    poses = dict(zip(("pose0", "pose1"), ball_poses(jnp.array(3.0)), strict=True))
    good = {
        "body": rigid_body(1.0, (0.4, 0.4, 0.4)),
        "shape": shapes.sphere(1.0),
        "planes": FLOOR,
        "dt": H,
        "steps": 10,
    }
    with pytest.raises(error, match=message):
        lagrangian_bounce(**good | poses | change)
