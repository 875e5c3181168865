"""Bodies on planes: they hold, slide and roll as Coulomb's law says, and those at rest stay at rest."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax import Pose, shapes, so3
from lgjax.collisions import RigidState, bounce, lagrangian, replay, resting, rigid_body, rigid_state
from lgjax.collisions.bounce import closest_contact
from lgjax.collisions.impact import BounceStatus, Laws
from lgjax.collisions.variational import total_energy
from lgjax.shapes import Plane, mass_properties

G = 9.81
HALF = (0.03, 0.004, 0.003)  # of a rod with flat sides, m


def body_of(shape, mass=0.1):
    found = mass_properties(shape, mass=mass)
    return rigid_body(found.mass, found.inertia)


def slope(degrees, direction=1.0):
    """The normal of a plane that falls along +x, and the turn that lays a body on it."""
    a = np.radians(degrees) * direction
    return np.array([np.sin(a), 0.0, np.cos(a)]), so3.exp(jnp.array([0.0, a, 0.0]))


def stacked(rows):
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v) for v in x]), *rows)


def flown(shape, rows, steps, every, dtype=jnp.float64):
    """Motions from a list of (state, normals, offsets, friction, restitution, h), in one program."""
    body, shape = (jax.tree.map(lambda x: x.astype(dtype), x) for x in (body_of(shape), shape))

    def one(state, normals, offsets, friction, restitution, h):
        planes = Plane(normals, offsets)
        return bounce(body, shape, planes, state, h, steps, 16, restitution, friction, save_every=every)

    inputs = jax.tree.map(lambda x: x.astype(dtype), stacked(rows))
    solution = jax.jit(jax.vmap(one))(*inputs)
    energies = np.asarray(jax.vmap(jax.vmap(lambda s: total_energy(body, s)))(solution.states))
    speeds = np.asarray(solution.states.linear) / 0.1
    return solution, np.asarray(solution.states.pose.translation, float), speeds, energies


def on(degrees, height, speed=0.0, friction=0.0, h=0.01, slack=0.0):
    """A row of `flown`: a body with its flat side or lowest point on a slope, sliding down at a speed."""
    normal, turn = slope(degrees)
    down = np.array([normal[2], 0.0, -normal[0]])
    state = RigidState(
        Pose(turn, jnp.asarray((height + slack) * normal)), jnp.zeros(3), jnp.asarray(0.1 * speed * down)
    )
    return state, normal[None], np.zeros(1), friction, 0.0, h


def thrown(seed, degrees, friction, restitution, h):
    """A row of `flown`: a rod let go at any attitude 8 cm above a slope."""
    turn = so3.exp(0.8 * jax.random.normal(jax.random.key(seed), (3,)))
    state = RigidState(Pose(turn, jnp.array([0.0, 0.0, 0.08])), jnp.zeros(3), jnp.zeros(3))
    return state, slope(degrees)[0][None], np.zeros(1), friction, restitution, h


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_rods_on_a_slope_below_the_friction_cone_stop_and_stay(dtype):
    """Thrown, laid down 1 % below the cone, or sliding at first: in the second half they do not move at all."""
    just = np.tan(np.radians(30.0))
    rows = [thrown(k, 10.0, 0.7, 0.5 * (k % 2), 0.01 if k < 3 else 0.005) for k in range(6)]
    rows += [on(30.0, HALF[2], friction=mu * just) for mu in (1.01,)]
    rows += [on(10.0, HALF[2], speed=0.5, friction=0.7)]
    solution, x, speeds, energies = flown(shapes.box(HALF), rows, 1000, 50, dtype)
    sharp = dtype == jnp.float64
    assert np.diff(energies, axis=1).max() < (1e-13 if sharp else 1e-6)
    bad = BounceStatus.NOT_SOLVED | BounceStatus.NOT_FINITE | BounceStatus.TOO_LONG
    assert np.all(np.asarray(solution.status) & int(bad) == 0)
    held = [*range(6), 6, 7]
    assert np.ptp(x[held, 10:], axis=1).max() == 0.0
    assert np.abs(speeds[held, 10:]).max() == 0.0
    assert np.ptp(x[6], axis=0).max() < (1e-15 if sharp else 1e-8)


def slid(ratio, speed, t):
    """The way down a slope of 30° after times t, from a speed, for friction of `ratio` times the tangent of 30°."""
    tilt = np.radians(30.0)
    down = G * np.sin(tilt) * (1.0 - ratio)
    if speed < 0:  # up to a stop, and down again where friction does not hold it
        slows = G * np.sin(tilt) * (1.0 + ratio)
        turn = -speed / slows
        up = np.minimum(t, turn)
        return speed * up + 0.5 * slows * up**2 + 0.5 * max(down, 0.0) * np.maximum(t - turn, 0.0) ** 2
    t = t if down >= 0 else np.minimum(t, -speed / down)
    return speed * t + 0.5 * down * t**2


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_boxes_slide_brake_and_hold_as_the_friction_cone_says(dtype):
    """A flat rod and a cube on a slope of 30°, from rest and sliding, down and up it.

    What slides down is exact: a variational step is, under a constant force.  What stops or turns does so at the end of
    a step, at most h a early, which leaves an error of h a times the time that follows.
    """
    just, ratios, sharp = np.tan(np.radians(30.0)), (0.0, 0.5, 0.9, 0.99, 1.01, 1.5), dtype == jnp.float64
    cases = [(ratio, speed, h) for ratio in ratios for speed in (0.0, 0.5, -0.5) for h in (0.01, 0.005)]
    down = np.array([np.cos(np.radians(30.0)), 0.0, -0.5])
    for half in (HALF, (0.02, 0.02, 0.02)):
        rows = [on(30.0, half[2], speed, ratio * just, h) for ratio, speed, h in cases]
        solution, x, _, energies = flown(shapes.box(half), rows, 100, 10, dtype)
        assert np.diff(energies, axis=1).max() < (1e-14 if sharp else 2e-7)
        for k, (ratio, speed, h) in enumerate(cases):
            t = np.asarray(solution.ts[k], float)
            way = (x[k] - x[k, 0]) @ down
            turns = (speed < 0 < ratio) or (speed > 0 and ratio > 1)
            error = h * G * np.maximum(t, h) * 0.5 if turns else (2e-9 if sharp else 2e-4)
            assert np.all(np.abs(way - slid(ratio, speed, t)) <= error), (half, ratio, speed, h)
            # It lies flat on the slope all the time.
            assert np.abs((x[k] - x[k, 0]) @ slope(30.0)[0]).max() < (2e-15 if sharp else 1e-6)
            if ratio > 1 and speed == 0:
                assert np.ptp(x[k], axis=0).max() < (1e-15 if sharp else 1e-8)
            if (ratio > 1 and speed < 0) or ratio == 1.5:
                assert np.ptp(x[k, 6:], axis=0).max() == 0.0
                np.testing.assert_allclose(way[-1], slid(ratio, speed, t[-1]), atol=G * h * h)


def test_balls_roll_slide_and_lie_in_a_groove():
    """Down a slope with 5/7 g sin α, or g (sin α - μ cos α) where friction is too small for that; between two slopes
    they rest, and along a groove they slide."""
    radius, sink = 0.02, 0.02 * np.sqrt(2.0)
    level = np.array([[1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]])
    tilt = so3.exp(jnp.array([-np.radians(20.0), 0.0, 0.0]))
    rows = []
    for friction in (0.7, 0.05, 0.0):
        state, normals, _, *rest = on(10.0, radius, friction=friction)
        rows.append((state, np.concatenate([normals, normals]), np.array([0.0, 100.0]), *rest))
    for friction, normals, up in ((0.3, level, np.eye(3)), (0.0, level @ np.asarray(tilt).T, np.asarray(tilt))):
        state = RigidState(Pose(jnp.eye(3), jnp.asarray(up @ [0.0, 0.0, sink])), jnp.zeros(3), jnp.zeros(3))
        rows.append((state, normals, np.zeros(2), friction, 0.0, 0.01))
    solution, x, speeds, energies = flown(shapes.sphere(radius), rows, 300, 50)
    assert np.diff(energies, axis=1).max() < 1e-13
    t, a = np.asarray(solution.ts[0]), np.radians(10.0)
    down = np.array([np.cos(a), 0.0, -np.sin(a)])
    for k, pull in enumerate((5 / 7 * G * np.sin(a), G * (np.sin(a) - 0.05 * np.cos(a)), G * np.sin(a))):
        np.testing.assert_allclose(speeds[k] @ down, pull * t, atol=1e-6)
        np.testing.assert_allclose((x[k] - x[k, 0]) @ down, 0.5 * pull * t**2, atol=1e-6)
    np.testing.assert_allclose(x[3], [x[3, 0]] * len(t), atol=1e-15)
    along = np.asarray(tilt) @ [0.0, 1.0, 0.0]
    slid = np.abs((x[4] - x[4, 0]) @ along)
    # A step of h g is the accuracy of a speed.
    assert np.all(np.abs(slid - 0.5 * G * np.sin(np.radians(20.0)) * t**2) <= 0.01 * G * t + 1e-12)


@pytest.mark.slow
def test_derivatives_on_a_plane_are_those_of_the_closed_forms():
    """A rod that slides down a slope, or to where it stops: x = v t + ½ a t², or v²/(2 μ g) on the level."""
    shape = shapes.box(HALF)
    body = body_of(shape)

    def end(speed, friction, degrees, steps):
        state, normals, *_ = on(degrees, HALF[2])
        state = state._replace(linear=0.1 * speed * jnp.array([normals[0, 2], 0.0, -normals[0, 0]]))
        run = bounce(body, shape, Plane(normals[0]), state, 0.001, steps, 16, 0.0, friction, save_every=None)
        return run.states.pose.translation[-1] @ jnp.array([normals[0, 2], 0.0, -normals[0, 0]])

    slopes = jax.jit(jax.grad(end, (0, 1)), static_argnums=(2, 3))
    t, pull = 0.1, np.cos(np.radians(30.0))
    np.testing.assert_allclose(slopes(0.4, 0.2, 30.0, 100), [t, -0.5 * G * pull * t**2], rtol=1e-2)
    np.testing.assert_allclose(slopes(0.2, 0.3, 0.0, 100), [0.2 / (0.3 * G), -(0.2**2) / (2 * G * 0.3**2)], rtol=3e-2)


def test_round_off_at_rest_has_derivatives():
    """A body that lands and stays has speeds that are round-off, of which quotients and lengths are taken."""
    body, base = rigid_body(1.0, (0.1, 0.1, 0.1)), rigid_state((0.0, 0.0, 0.0))

    def slowed(x):
        state = base._replace(linear=1e-150 * x)
        return jnp.sum(resting._without_gain(body, base, state, jnp.asarray(False), None).linear)

    assert np.isfinite(jax.grad(slowed)(jnp.ones(3))).all()
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (body, base.pose))
    laws, one = Laws(jnp.zeros((), jnp.float32), None), jnp.ones((), jnp.float32)
    scene = resting.Scene(single[0], laws, *[None] * 4, radius=one, h=one, max_impacts=1, chart="cayley")
    up, none = jnp.asarray([[0.0, 0.0, 1.0]], jnp.float32), jnp.zeros((1, 3), jnp.float32)

    def stopped(before):
        return jnp.sum(resting._coulomb(scene, single[1], -up, up, jnp.ones(1, bool), before, none, jnp.asarray(True)))

    before, along = jnp.asarray([[1e-14, 0.0, -1.0]], jnp.float32), jnp.ones((1, 3), jnp.float32)
    assert np.isfinite(jax.jit(lambda x: jax.jvp(jax.grad(stopped), (x,), (along,))[1])(before)).all()


@pytest.mark.parametrize("form", ["Hamiltonian", "Lagrangian"])
def test_the_time_of_an_impact_that_hardly_is_one_has_finite_derivatives(form):
    """A ball at rest on the floor without gravity: its gap vanishes and does not change."""
    ball, floor, yes = rigid_body(1.0, (0.1, 0.1, 0.1), (0.0, 0.0, 0.0)), Plane((0.0, 0.0, 1.0)), jnp.asarray(True)

    def time(x, after=0.0):
        shape = shapes.sphere(1.0 + x[6])
        closest = lambda s: closest_contact(ball, shape, (floor,), s)
        state = RigidState(Pose(jnp.eye(3), jnp.stack([x[0], x[1], 1.0 + x[2]])), jnp.zeros(3), x[3:6])
        if form == "Hamiltonian":
            scene = SimpleNamespace(body=ball, chart="cayley", closest=closest)
            return replay._time_of_impact(scene, state, yes, jnp.asarray(after))
        settings = lagrangian.Settings(lambda body, obstacles, s: closest(s), "hamiltonian", False, 1, "cayley")
        problem = lagrangian.Problem(ball, None, jnp.asarray(0.1), jnp.asarray(1e-14))
        return lagrangian._time_of_impact(settings, problem, state, jnp.asarray(0.1), yes)

    at_rest = jnp.zeros(7)
    for derivative in (jax.jacrev, jax.jacfwd, jax.hessian):
        assert np.all(np.isfinite(jax.jit(derivative(time))(at_rest)))
    # 2 m/s downwards: later by half a second for each meter.
    moving = at_rest.at[5].set(-2.0).at[2].set(0.05)
    np.testing.assert_allclose(jax.grad(time)(moving, 0.025)[np.array([2, 6])], [0.5, -0.5])


@pytest.mark.parametrize(("count", "obstacles", "kept"), [(9, 1, 9), (24, 3, 12), (60, 3, 20), (13, 2, 12)])
def test_the_points_that_may_touch_are_the_nearest(count, obstacles, kept):
    gaps = np.random.default_rng(count).normal(size=count)
    gaps[-1] = gaps[0]  # equal ones are different points
    scene = SimpleNamespace(
        touching=lambda pose: SimpleNamespace(gaps=jnp.asarray(gaps)), normals=np.eye(3)[:obstacles]
    )
    rows = np.asarray(resting._nearest(scene, None))
    assert len(set(rows)) == kept
    np.testing.assert_array_equal(np.sort(gaps[rows]), np.sort(gaps)[:kept])
