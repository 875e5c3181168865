"""Bodies that bounce: against closed forms, an independent integration, and what mechanics conserves.

`bounce` called outside jit keeps its program for all bodies, planes and numbers of one structure, numbers of steps and
of what is recorded: tests that agree on these compile once. What is run once is jitted, which leaves out the checks.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from scipy.integrate import solve_ivp

import lgjax
from lgjax import Pose, shapes, so3
from lgjax.collisions import RigidState, bounce, rigid_body, rigid_state
from lgjax.collisions.impact import BounceStatus
from lgjax.collisions.variational import total_energy
from lgjax.shapes import Plane
from lgjax.systems.bouncing_body import CASES, bouncing_body

FLOOR = Plane((0.0, 0.0, 1.0))
GRAVITY = (0.0, 0.0, -9.80665)


def ball(height=3.0, restitution=1.0, h=0.01, friction=0.0, linear=(0.0, 0.0, 0.0), record=110):
    """A ball of radius 1 m and mass 1 kg let go at a height."""
    body = rigid_body(1.0, (0.4, 0.4, 0.4), GRAVITY)
    state = rigid_state((0.0, 0.0, height), linear)
    return body, bounce(body, shapes.sphere(1.0), FLOOR, state, h, 1300, 16, restitution, friction, record=record)


def last(tree):
    return jax.tree.map(lambda x: x[-1], tree)


def gaps(p, states):
    """Smallest distance of each state from the planes."""
    planes = p.planes if isinstance(p.planes, tuple) else (p.planes,)
    distance = lambda pose: jnp.stack([shapes.gap(p.shape, plane, pose).gap for plane in planes]).min()
    return np.asarray(jit(jax.vmap(distance))(states.pose))


def test_a_ball_bounces_a_hundred_times_as_the_closed_form_says():
    """From 2 m above contact: impact k at (2k + 1) √(2 · 2 m / g), the apex where it started."""
    body, solution = ball(h=0.1)
    count = int(solution.impacts[-1])
    assert count >= 100
    assert solution.status == 0
    fall = np.sqrt(2 * 2.0 / 9.80665)
    times = (2 * np.arange(count) + 1) * fall
    np.testing.assert_allclose(solution.events.ts[:count], times, atol=1e-11)
    np.testing.assert_allclose(solution.events.impulses[:count], 2 * 9.80665 * fall, rtol=1e-13)
    assert np.all(np.asarray(solution.events.planes) == np.where(np.arange(110) < count, 0, -1))
    energies = jax.vmap(lambda s: total_energy(body, s))(solution.states)
    assert np.abs(energies - energies[0]).max() < 1e-12
    # Height against the parabola of the bounce that each saved time falls into.
    since = np.abs((np.asarray(solution.ts) + fall) % (2 * fall) - fall)
    np.testing.assert_allclose(solution.states.pose.translation[:, 2], 3.0 - 0.5 * 9.80665 * since**2, atol=1e-10)


@cache
def flown(case, rounding=1e-13):
    p = bouncing_body(case, rounding, dtype=jnp.float64)
    return p, fly(p, p.state, p.dt)


def fly(p, state, h):
    return bounce(p.body, p.shape, p.planes, state, h, 1500, record=40)


@pytest.mark.parametrize("case", CASES)
def test_the_experiments_conserve_what_mechanics_conserves(case):
    """Energy; momentum along the plane; spin about the plane's normal.  No state is inside the plane."""
    p, solution = flown(case)
    states = solution.states
    assert int(solution.impacts[-1]) >= 5
    assert solution.status & int(BounceStatus.ZENO | BounceStatus.NOT_SOLVED | BounceStatus.NOT_FINITE) == 0
    energies = np.asarray(jax.vmap(lambda s: total_energy(p.body, s))(states))
    assert np.abs(energies - energies[0]).max() < 1e-11
    normal = np.asarray(p.planes.normal)
    along = np.asarray(p.body.gravity) * float(p.body.mass) * np.asarray(solution.ts)[:, None]
    impulse = np.asarray(states.linear) - along - np.asarray(states.linear[0])
    np.testing.assert_allclose(np.cross(impulse, normal), 0.0, atol=1e-10)
    spin = np.einsum("nij,nj->ni", states.pose.rotation, states.angular)
    np.testing.assert_allclose(spin @ normal, spin[0] @ normal, atol=1e-11)
    assert np.ptp(spin, axis=0).max() > 0.5
    depth = gaps(p, states) / np.maximum(1.0, np.abs(states.pose.translation).max(axis=1))
    assert depth.min() >= -1e-12
    rotation = np.asarray(states.pose.rotation[-1])
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-13)


def reference(p, end):
    """The ellipsoid by SciPy: quaternions, DOP853, event location, and the jump written out anew."""
    axes, inertia = np.array([2.0, 3.0, 4.0]), np.diag(np.asarray(p.body.inertia))
    n, g = np.asarray(p.planes.normal), np.asarray(p.body.gravity)

    def matrix(q):
        w, (x, y, z) = q[0], q[1:]
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )

    def rate(t, y):
        q, omega = y[3:7] / np.linalg.norm(y[3:7]), y[10:]
        spin = 0.5 * np.concatenate([[-q[1:] @ omega], q[0] * omega + np.cross(q[1:], omega)])
        return np.concatenate([y[7:10], spin, g, np.cross(inertia * omega, omega) / inertia])

    def gap(t, y):
        return n @ y[:3] - np.linalg.norm(axes * (matrix(y[3:7] / np.linalg.norm(y[3:7])).T @ n))

    gap.terminal, gap.direction = True, -1
    y = np.concatenate([[0, 0, 10], [1, 0, 0, 0], [2, 2, 10], np.array([4, -4, 4]) / inertia]).astype(float)
    t, times = 0.0, []
    while True:
        flight = solve_ivp(rate, (t, end), y, method="DOP853", rtol=1e-12, atol=1e-13, events=gap, max_step=0.02)
        t, y = flight.t[-1], flight.y[:, -1]
        if flight.status == 0:
            return times, y[:3], matrix(y[3:7] / np.linalg.norm(y[3:7])), y[7:10], inertia * y[10:]
        times.append(t)
        turn = matrix(y[3:7] / np.linalg.norm(y[3:7]))
        d = turn.T @ n
        chi = np.cross(-(axes**2) * d / np.linalg.norm(axes * d), d)
        size = -2 * (chi @ y[10:] + n @ y[7:10]) / (chi @ (chi / inertia) + 1)
        y = np.concatenate([y[:7], y[7:10] + size * n, y[10:] + size * chi / inertia])


@pytest.mark.parametrize("case", ["ellipsoid", "tilted"])
def test_flights_with_impacts_converge_with_order_two_to_an_independent_integration(case):
    p = bouncing_body(case, dtype=jnp.float64)
    times, position, rotation, linear, angular = reference(p, 5.2)
    assert len(times) == 2
    errors = []
    for parts in (1, 2, 4):  # of 800 steps each
        end, found = p.state, []
        for part in range(parts):
            s = bounce(p.body, p.shape, p.planes, end, 5.2 / (800 * parts), 800, save_every=None)
            found += [5.2 * part / parts + t for t in np.asarray(s.events.ts)[: int(s.impacts[-1])]]
            end = last(s.states)
        pairs = (
            (end.pose.translation, position),
            (end.pose.rotation, rotation),
            (end.linear, linear),
            (end.angular, angular),
            (np.array(found), np.array(times)),
        )
        errors.append(max(np.abs(np.asarray(a) - b).max() for a, b in pairs))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(orders - 2) < 0.3), (errors, orders)
    # Two impacts amplify what the flights leave a thousandfold.
    assert errors[-1] < 1e-2


def test_the_rounding_of_the_corners_does_not_matter():
    paths = [flown("cube", rounding)[1] for rounding in (1e-13, 1e-10)]
    fifth = int(np.argmax(np.asarray(paths[0].impacts) >= 5))
    assert fifth > 0
    np.testing.assert_allclose(paths[0].events.ts[:5], paths[1].events.ts[:5], atol=1e-7)
    for a, b in zip(jax.tree.leaves(paths[0].states), jax.tree.leaves(paths[1].states), strict=True):
        np.testing.assert_allclose(a[:fifth], b[:fifth], atol=1e-7)


@pytest.mark.parametrize("restitution", [0.0, 0.5, 0.8])
def test_a_ball_that_loses_energy_comes_to_rest(restitution):
    """Its bounces have a sum: fall · (1 + 2 e/(1 - e)).  Then it lies there, and the status says so."""
    _, solution = ball(restitution=restitution)
    fall = np.sqrt(2 * 2.0 / 9.80665)
    count = int(solution.impacts[-1])
    assert solution.status & int(BounceStatus.ZENO)
    k = np.arange(count)
    expected = fall * (1 + 2 * np.cumsum(np.where(k > 0, restitution**k, 0.0)))
    np.testing.assert_allclose(solution.events.ts[:count], expected, atol=1e-9)
    still = np.asarray(solution.ts) > fall * (1 + 2 * restitution / (1 - restitution)) + 0.01
    assert still.sum() > 50
    np.testing.assert_allclose(solution.states.pose.translation[still], [[0, 0, 1.0]] * still.sum(), atol=1e-9)
    np.testing.assert_allclose(solution.states.linear[still], 0.0, atol=1e-9)
    assert gaps(_Case(shapes.sphere(1.0), FLOOR), solution.states).min() >= -1e-12


class _Case:
    def __init__(self, shape, planes):
        self.shape, self.planes = shape, planes


def test_a_ball_at_rest_slides_without_friction_and_rolls_with_it():
    """With friction 5/7 of the speed is left when it rolls: the spin about the contact point is conserved."""
    for friction, speed in ((0.0, 2.0), (0.3, 10.0 / 7.0)):
        _, solution = ball(1.0, 0.5, friction=friction, linear=(2.0, 0.0, 0.0))
        end = last(solution.states)
        np.testing.assert_allclose(end.linear, [speed, 0.0, 0.0], atol=1e-6)
        # Rolling: the contact point is at rest.
        spin = np.asarray(end.pose.rotation @ end.angular) / 0.4
        slip = np.asarray(end.linear) + np.cross(spin, [0, 0, -1.0])
        np.testing.assert_allclose(slip, [2.0 if friction == 0 else 0.0, 0.0, 0.0], atol=1e-6)
        np.testing.assert_allclose(end.pose.translation[2], 1.0, atol=1e-12)


SLOPES = np.array([[1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [0.0, 0.2, 1.0]])
WALLS = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])


@pytest.mark.parametrize(
    ("shape", "planes", "restitution", "friction"),
    [
        (shapes.ellipsoid((0.2, 0.4, 0.6)), Plane(SLOPES), 0.6, 0.0),
        (shapes.box((0.2, 0.3, 0.4)), Plane(WALLS, np.array([1.5, 1.5, 1.5, 1.5, 0.0, 3.0])), 0.5, 0.3),
        (shapes.polyhedron(np.random.default_rng(0).normal(size=(12, 3)) * 0.3), FLOOR, 0.0, 1.0),
        (shapes.capsule(0.1, 0.5), Plane(SLOPES), 1.0, 0.0),
    ],
    ids=["ellipsoid", "box", "polyhedron", "capsule"],
)
def test_bodies_thrown_anyhow_never_go_inside_nor_gain_energy(shape, planes, restitution, friction):
    """Also those that come to rest in a corner, slide, rock and roll."""
    body = rigid_body(1.0, (0.05, 0.04, 0.03))
    n = lambda i: jax.random.normal(jax.random.key(i), (10, 3))
    poses = Pose(so3.exp(n(0)), jnp.array([0.0, 0.0, 1.5]) + 0.1 * n(1))
    # The polyhedron's corners are drawn at random: a body of another density has its center of mass at the origin.
    options = {"save_every": 3, "check_center": "ignore"}
    run = jit(jax.vmap(lambda s: bounce(body, shape, planes, s, 0.01, 300, 16, restitution, friction, **options)))
    solution = run(RigidState(poses, 0.2 * n(2), 2.0 * n(3)))
    energies = np.asarray(jax.vmap(jax.vmap(lambda s: total_energy(body, s)))(solution.states))
    assert np.diff(energies, axis=1).max() < 1e-12
    if restitution == 1:
        np.testing.assert_allclose(energies[:, -1], energies[:, 0], atol=1e-12)
    single = planes if planes.normal.ndim == 2 else Plane(planes.normal[None], planes.offset[None])
    depth = lambda pose: jax.vmap(lambda plane: shapes.gap(shape, plane, pose).gap)(single)
    assert np.asarray(jit(jax.vmap(jax.vmap(depth)))(solution.states.pose)).min() >= -1e-14
    assert np.asarray(solution.impacts[:, -1]).min() > 0
    assert np.all(np.asarray(solution.status) & int(BounceStatus.NOT_FINITE | BounceStatus.NOT_SOLVED) == 0)


def test_several_impacts_within_a_step_are_all_found():
    """Between two walls 1 m apart, without gravity, a ball of radius 0.3 m at 7 m/s hits one every 0.4/7 s."""
    body = rigid_body(1.0, (0.1, 0.1, 0.1), (0.0, 0.0, 0.0))
    walls = Plane(np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), np.array([0.0, 1.0]))
    state = rigid_state((0.5, 0.0, 0.0), (7.0, 0.0, 0.0))
    solution = jit(lambda s: bounce(body, shapes.sphere(0.3), walls, s, 0.5, 4, record=64))(state)
    expected = 0.2 / 7 + 0.4 / 7 * np.arange(35)
    assert int(solution.impacts[-1]) == 35
    assert solution.status == 0
    np.testing.assert_allclose(solution.events.ts[:35], expected, atol=1e-13)
    assert np.all(np.asarray(solution.events.planes[:35]) == np.where(np.arange(35) % 2, 0, 1))
    limited = jit(lambda s: bounce(body, shapes.sphere(0.3), walls, s, 0.5, 4, max_impacts=3))(state)
    assert limited.status & int(BounceStatus.ZENO)
    # It waits after the third of each step, and goes on with all its energy in the next.
    np.testing.assert_array_equal(limited.impacts, [0, 3, 6, 9, 12])
    np.testing.assert_allclose(np.abs(limited.states.linear), [[7.0, 0.0, 0.0]] * 5, atol=1e-13)
    np.testing.assert_allclose(limited.states.pose.translation[1:, 0], [0.7, 0.3, 0.7, 0.3], atol=1e-13)


def test_a_body_stays_in_a_box_of_planes():
    """An ellipsoid between six planes, one of them tilted; both corners and edges of the room are visited."""
    normals = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0.1, 1], [0, 0, -1]], float)
    room = Plane(normals, np.array([1.5, 1.5, 1.5, 1.5, 1.0, 2.0]))
    body = rigid_body(1.0, (0.5, 0.4, 0.3), GRAVITY)
    shape = shapes.ellipsoid((0.2, 0.4, 0.6))
    state = rigid_state((0.1, -0.2, 0.5), (4.0, 2.5, 6.0), (0.3, -0.4, 0.6))
    solution = jit(lambda s: bounce(body, shape, room, s, 0.01, 3000, record=200))(state)
    count = int(solution.impacts[-1])
    assert count > 40
    assert set(np.asarray(solution.events.planes[:count])) == set(range(6))
    energies = np.asarray(jax.vmap(lambda s: total_energy(body, s))(solution.states))
    assert np.abs(energies - energies[0]).max() < 1e-11
    planes = tuple(Plane(normals[i], float(room.offset[i])) for i in range(6))
    assert gaps(_Case(shape, planes), solution.states).min() > -1e-12


def test_a_ball_that_hits_an_edge_of_the_room_turns_back():
    """Two planes at the same instant: the path is reversed."""
    corner = Plane(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    body = rigid_body(1.0, (0.1, 0.1, 0.1), (0.0, 0.0, 0.0))
    state = rigid_state((1.0, 1.0, 0.0), (-1.0, -1.0, 0.0))
    solution = jit(lambda s: bounce(body, shapes.sphere(0.25), corner, s, 0.1, 15))(state)
    np.testing.assert_allclose(last(solution.states).linear, [1.0, 1.0, 0.0], atol=1e-14)
    np.testing.assert_allclose(last(solution.states).pose.translation, [1.0, 1.0, 0.0], atol=1e-13)
    assert int(solution.impacts[-1]) == 2


def test_a_dip_between_two_steps_is_found():
    """Gravity that pulls up: the ball is above the floor at both ends of a step and below it between them."""
    body = rigid_body(1.0, (0.4, 0.4, 0.4), (0.0, 0.0, 10.0))
    state = rigid_state((0.0, 0.0, 1.5), (0.0, 0.0, -4.0))
    run = jit(lambda s: bounce(body, shapes.sphere(1.0), FLOOR, s, 0.8, 1))
    solution = run(state)
    down = (4.0 - np.sqrt(16.0 - 10.0)) / 10.0  # 0.5 - 4 t + 5 t² = 0
    np.testing.assert_allclose(solution.events.ts[0], down, atol=1e-14)
    after = 4.0 - 10.0 * down
    height = 1.0 + after * (0.8 - down) + 5.0 * (0.8 - down) ** 2
    np.testing.assert_allclose(solution.states.pose.translation[-1, 2], height, atol=1e-13)
    shallow = rigid_state((0.0, 0.0, 1.81), (0.0, 0.0, -4.0))  # lowest point 0.01 m above the floor
    assert int(run(shallow).impacts[-1]) == 0


def thrown(linear, p, steps=500):
    """Position, attitude and spin after some impacts, and the time of the third, as one vector; and their number."""
    s = bounce(p.body, p.shape, p.planes, p.state._replace(linear=linear), 0.012, steps, save_every=None, record=8)
    end = last(s.states)
    found = [end.pose.translation, so3.log(end.pose.rotation), end.angular, end.linear, s.events.ts[2:3]]
    return jnp.concatenate(found), s.impacts[-1]


def throw(*arguments):
    return thrown(*arguments)[0]


def test_derivatives_through_impacts_are_those_of_differences():
    p, d = bouncing_body("ellipsoid", dtype=jnp.float64), 1e-6
    reverse = np.asarray(jit(jax.jacrev(lambda v: throw(v, p)))(p.state.linear))

    def run(linear):
        """The same by the program of the experiments."""
        s = fly(p, p.state._replace(linear=linear), 0.012)
        assert s.impacts[500] >= 3
        end = jax.tree.map(lambda x: x[500], s.states)
        found = [end.pose.translation, so3.log(end.pose.rotation), end.angular, end.linear, s.events.ts[2:3]]
        return np.concatenate(found)

    differences = np.stack(
        [(run(p.state.linear + d * e) - run(p.state.linear - d * e)) / (2 * d) for e in np.eye(3)], axis=1
    )
    scale = np.abs(differences).max()
    assert scale > 1
    np.testing.assert_allclose(reverse, differences, atol=1e-7 * scale)


def test_derivatives_with_respect_to_everything_else_are_those_of_differences():
    """Mass, inertia, semi-axes, plane, restitution, friction, step size, gravity; in one direction at random."""
    p = bouncing_body("tilted", dtype=jnp.float64)
    given = (p.body, p.shape, p.planes, jnp.asarray(0.9), jnp.asarray(0.1), jnp.asarray(0.02))
    rng = np.random.default_rng(1)
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), given)

    def end(size):
        body, shape, plane, restitution, friction, h = jax.tree.map(lambda x, d: x + size * d, given, direction)
        s = bounce(body, shape, plane, p.state, h, 260, 16, restitution, friction, save_every=None)
        e = last(s.states)
        return jnp.concatenate([e.pose.translation, e.angular, e.linear, s.events.ts[:2]])

    run = jit(lambda size: jax.jvp(end, (size,), (1.0,)))
    exact = np.asarray(run(0.0)[1])
    # The flight is so sensitive that larger differences would measure its curvature.
    differences = np.asarray(run(1e-8)[0] - run(-1e-8)[0]) / 2e-8
    np.testing.assert_allclose(exact, differences, atol=1e-7 * np.abs(differences).max())


@pytest.mark.slow
def test_second_derivatives_and_both_modes_agree_through_impacts():
    p = bouncing_body("ellipsoid", dtype=jnp.float64)
    slope = jax.grad(lambda v: throw(v, p, 420).sum())
    along = jit(lambda v, e: jax.jvp(slope, (v,), (e,)))
    second = np.stack([along(p.state.linear, e)[1] for e in np.eye(3)])
    above, below = ([along(p.state.linear + s * e, e)[0] for e in np.eye(3)] for s in (1e-6, -1e-6))
    differences = np.subtract(above, below) / 2e-6
    np.testing.assert_allclose(second, differences, atol=1e-6 * np.abs(differences).max())
    reverse = np.asarray(jit(jax.jacrev(lambda v: throw(v, p)))(p.state.linear))
    forward = np.asarray(jit(jax.jacfwd(lambda v: throw(v, p)))(p.state.linear))
    np.testing.assert_allclose(reverse, forward, atol=1e-11 * np.abs(forward).max())


def test_grazing_impacts_are_reported():
    """A fast ball that only just touches the floor; the same ball thrown at it is fine."""
    fast = (3000.0, 0.0, 0.0)
    assert ball(1.001, h=4e-5, linear=fast)[1].status == int(BounceStatus.GRAZING)
    assert ball(1.001, h=4e-5, linear=(3.0, 0.0, 0.0))[1].status == 0


def test_a_cube_that_lands_on_its_face_is_reported():
    p = bouncing_body("cube", dtype=jnp.float64)
    solution = fly(p, rigid_state((0.0, 0.0, 3.0)), 0.01)
    assert solution.status == int(BounceStatus.FLAT)
    # The middle of the face is taken: it bounces up without a turn.
    np.testing.assert_allclose(last(solution.states).pose.rotation, np.eye(3), atol=1e-13)


def batch(p, n=9, dtype=jnp.float64):
    keys = jax.random.split(jax.random.key(3), 3)
    noise = lambda k: jax.random.normal(k, (n, 3), dtype)
    poses = Pose(so3.exp(noise(keys[0])), p.state.pose.translation + 0.3 * noise(keys[1]))
    return RigidState(poses, p.state.angular + noise(keys[2]), jnp.broadcast_to(p.state.linear, (n, 3)))


@cache
def together():
    p = bouncing_body("ellipsoid", dtype=jnp.float64)
    return p, jit(jax.vmap(lambda s: bounce(p.body, p.shape, p.planes, s, 0.01, 600, save_every=50)))


def test_each_body_of_a_batch_has_its_own_impacts_wherever_it_stands():
    p, run = together()
    states = batch(p)
    forwards = run(states)
    backwards = jax.tree.map(lambda x: x[::-1], run(jax.tree.map(lambda x: x[::-1], states)))
    for a, b in zip(jax.tree.leaves(forwards), jax.tree.leaves(backwards), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(set(np.asarray(forwards.events.ts[:, 0]))) == 9
    for i in (0, 5):
        single = fly(p, jax.tree.map(lambda x, i=i: x[i], states), 0.01)
        # One impact amplifies round-off about tenfold.
        np.testing.assert_allclose(single.events.ts[:2], forwards.events.ts[i, :2], atol=1e-12)
        np.testing.assert_allclose(single.states.linear[600], forwards.states.linear[i, -1], atol=1e-9)


def test_one_failing_body_leaves_the_others_alone():
    p, run = together()
    states = batch(p)
    good = run(states)
    broken = states._replace(
        pose=states.pose._replace(translation=states.pose.translation.at[1, 2].set(1.0)),
        angular=states.angular.at[2].set(1e6).at[3, 0].set(jnp.nan),
    )
    mixed = run(broken)
    flags = BounceStatus
    expected = [flags.OK, flags.STARTED_INSIDE, flags.NOT_SOLVED]
    assert [int(x) for x in mixed.status[:3]] == [int(flag) for flag in expected]
    assert int(mixed.status[3]) & int(flags.NOT_FINITE | flags.NOT_SOLVED)
    others = np.array([0, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(mixed.success, np.isin(np.arange(9), others))
    for a, b in zip(jax.tree.leaves(mixed), jax.tree.leaves(good), strict=True):
        np.testing.assert_array_equal(np.asarray(a)[others], np.asarray(b)[others])
    # What cannot go on keeps its last good state.
    np.testing.assert_array_equal(mixed.states.pose.translation[1, -1], broken.pose.translation[1])
    np.testing.assert_array_equal(mixed.states.angular[2, -1], broken.angular[2])


def test_more_impacts_than_recorded_are_reported():
    _, solution = ball(record=2)
    assert solution.status == int(BounceStatus.NOT_RECORDED)
    assert int(solution.impacts[-1]) > 2
    _, enough = ball()
    np.testing.assert_array_equal(solution.states.linear, enough.states.linear)


def test_new_values_compile_nothing():
    p = bouncing_body("ellipsoid", dtype=jnp.float64)
    run = jit(lambda b, s, pl, x, h, e: bounce(b, s, pl, x, h, 30, 8, e, save_every=None).states.linear)
    for scale in (1.0, 1.1, 0.9):
        body = rigid_body(scale, scale * jnp.diag(p.body.inertia), GRAVITY)
        shape = shapes.ellipsoid(scale * np.array([2.0, 3.0, 4.0]))
        run(body, shape, Plane((0.0, 0.1 * scale, 1.0)), p.state, 0.01 * scale, 0.9 * scale)
    assert run._cache_size() == 1


def test_float32_bounces_without_going_inside():
    """Over 15 s and at least 5 impacts the energy of 150 J is kept to 2e-3 J, the plane to 1e-5 m."""
    p = bouncing_body("ellipsoid", dtype=jnp.float32)
    solution = fly(p, p.state, p.dt)
    assert {str(x.dtype) for x in jax.tree.leaves(solution.states)} == {"float32"}
    assert int(solution.impacts[-1]) >= 5
    energies = np.asarray(jax.vmap(lambda s: total_energy(p.body, s))(solution.states))
    assert np.abs(energies - energies[0]).max() < 2e-3
    assert gaps(p, solution.states).min() > -1e-5


def test_without_planes_it_is_the_free_integrator():
    p = bouncing_body("ellipsoid", dtype=jnp.float64)
    free = jit(lambda s: bounce(p.body, p.shape, (), s, p.dt, 200))(p.state)
    assert free.status == 0
    assert int(free.impacts[-1]) == 0
    t = float(free.ts[-1])
    np.testing.assert_allclose(
        free.states.pose.translation[-1], [2 * t, 2 * t, 10 + 10 * t - 9.80665 * t * t / 2], atol=1e-11
    )


def long_run(case, steps):
    """Energy errors at a hundred times, and the number of impacts."""
    p = bouncing_body(case, dtype=jnp.float64)
    run = jax.jit(lambda s: bounce(p.body, p.shape, p.planes, s, p.dt, steps, save_every=steps // 100))
    solution = run(p.state)
    energies = np.asarray(jax.vmap(lambda s: total_energy(p.body, s))(solution.states))
    assert gaps(p, solution.states).min() > -1e-12
    assert solution.status & int(BounceStatus.ZENO) == 0
    return energies - energies[0], int(solution.impacts[-1])


@pytest.mark.slow
@pytest.mark.parametrize(("case", "printed"), [("union", 806), ("cube", 652)])
def test_a_hundred_thousand_steps_drift_by_round_off_alone(case, printed):
    """The motion is chaotic: the source's number of impacts is met within a fifth."""
    errors, count = long_run(case, 100_000)
    assert abs(count - printed) < 0.2 * printed
    assert np.abs(errors).max() < 5e-11, (errors, count)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ellipsoid", "cube"])
def test_a_million_steps_drift_by_round_off_alone(case):
    errors, count = long_run(case, 1_000_000)
    assert count > 1000
    assert np.abs(errors).max() < 5e-10, (errors, count)


CONE = np.array([[1.0, 1, 0], [1, -1, 0], [-1, 1, 0], [-1, -1, 0], [0, 0, 1]])


def posed(height=3.0, size=1.0):
    """A state that `rigid_state` does not accept."""
    return rigid_state((0.0, 0.0, 3.0))._replace(pose=Pose(size * jnp.eye(3), jnp.array([0.0, 0.0, height])))


def good():
    return {
        "body": rigid_body(1.0, (0.4, 0.4, 0.4)),
        "shape": shapes.sphere(1.0),
        "planes": FLOOR,
        "state": rigid_state((0.0, 0.0, 3.0)),
        "dt": 0.01,
        "steps": 10,
    }


def changed(**parts):
    return {"state": good()["state"]._replace(**parts)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"state": rigid_state((0.0, 0.0, 0.5))}, ValueError, r"the body starts 0\.5 m inside plane 0"),
        ({"dt": -0.1}, ValueError, r"dt must be positive and finite, got -0\.1"),
        ({"dt": np.ones(2)}, ValueError, r"dt must be a scalar, got shape \(2,\)"),
        ({"restitution": -0.5}, ValueError, r"restitution must be a number from 0 to 1, got -0\.5"),
        ({"restitution": 1.5}, ValueError, r"restitution must be a number from 0 to 1, got 1\.5"),
        ({"friction": -1.0}, ValueError, r"friction must be a finite number of at least 0, got -1\.0"),
        ({"steps": 0}, ValueError, "steps must be a positive integer, got 0"),
        ({"save_every": 3}, ValueError, "save_every must divide steps, got save_every=3 and steps=10"),
        ({"max_impacts": 0}, ValueError, "max_impacts must be a positive integer, got 0"),
        ({"record": 0}, ValueError, "record must be a positive integer, got 0"),
        ({"chart": "euler"}, ValueError, "chart must be one of cayley, exp, got 'euler'"),
        ({"check_center": "no"}, ValueError, "check_center must be one of error, warn, ignore, got 'no'"),
        (
            {"shape": shapes.sphere(1.0, (0.0, 0.1, 0.0))},
            ValueError,
            r"is at \[0\.0, 0\.1, 0\.0\].*shapes\.recentered",
        ),
        (
            {"shape": shapes.polyhedron(CONE, 1e-9)},
            ValueError,
            r"is at \[0\.0, 0\.0, 0\.25\].*shapes\.recentered",
        ),
        (
            {"shape": shapes.union(*(shapes.sphere(1.0, (0.0, 0.0, z)) for z in (2.0, 3.0)))},
            ValueError,
            r"the origin lies outside the shape, which reaches \[1\.0, 1\.0, 4\.0, 1\.0, 1\.0, -1\.0\].*recentered",
        ),
        ({"body": 1.0}, TypeError, "body must be a RigidBody"),
        ({"shape": "sphere"}, TypeError, "shape must be one of lgjax.shapes, got str"),
        ({"planes": (0.0, 0.0, 1.0)}, TypeError, "planes must be Plane, got float"),
        ({"state": np.zeros(3)}, TypeError, "state must be a RigidState"),
        (
            {"state": rigid_state((0.0, 0.0, 3.0), dtype=jnp.float32)},
            TypeError,
            "has dtype float64, the state has float32",
        ),
        ({"planes": None}, TypeError, "planes must be a Plane or a tuple of them, got None"),
        ({"planes": 0.5}, TypeError, "planes must be a Plane or a tuple of them, got of type float"),
        ({"body": replace(good()["body"], mass=None)}, TypeError, r"body\.mass is None, expected an array"),
        (changed(linear=np.ones(2)), ValueError, r"state\.linear has shape \(2,\), expected \(\.\.\., 3\)"),
        (changed(linear=np.ones((5, 3))), ValueError, r"state\.linear has leading axes \(5,\), where one is taken"),
        (changed(angular=None), TypeError, r"state\.angular is None, expected an array"),
        (changed(angular=1j * np.ones(3)), TypeError, r"state\.angular is complex128, expected real numbers"),
        (changed(pose="above"), TypeError, r"state\.pose is of type str, expected a Pose"),
        (
            changed(linear=jnp.ones(3, jnp.float32)),
            TypeError,
            r"state\.linear has dtype float32, the state has float64",
        ),
        ({"state": posed(height=np.inf)}, ValueError, r"state\.pose\.translation is not finite: .*inf"),
        ({"state": posed(size=2.0)}, ValueError, r"state\.pose\.rotation is not a rotation: .* an entry of 3"),
    ],
)
def test_bad_input_is_named(change, error, message):
    with pytest.raises(error, match=message):
        bounce(**good() | change)


def test_numbers_in_lists_and_integers_are_a_state_and_known_inside_jit():
    given = good() | changed(linear=[0, 0, 1], angular=np.zeros(3, int))
    given["body"] = replace(given["body"], mass=1, gravity=[0.0, 0.0, -9.81])
    states = jax.eval_shape(lambda: bounce(**given)).states
    assert {leaf.dtype for leaf in jax.tree.leaves(states)} == {jnp.dtype(jnp.float64)}
    given |= changed(linear=[0, 0, 1], pose=Pose(np.eye(3), np.array([0.0, 0.0, 0.5])))
    with pytest.raises(ValueError, match=r"the body starts 0\.5 m inside plane 0"):
        jax.eval_shape(lambda: bounce(**given))


def test_a_shape_about_another_point_than_its_center_of_mass_is_the_users_choice():
    off = good() | {"shape": shapes.box((0.5, 0.6, 0.7), (0.2, 0.0, 0.0))}
    accepted = [off | {"check_center": "ignore"}, off | {"shape": lgjax.shapes.recentered(off["shape"])}]
    # A thousandth of its size is how well a center of mass is known; the body of the source is such a one.
    accepted += [off | {"shape": shapes.box((0.5, 0.6, 0.7), (1e-4, 0.0, 0.0))}]
    accepted += [off | {"shape": bouncing_body("union", dtype=jnp.float64).shape, "state": rigid_state((0, 0, 9.0))}]
    for arguments in accepted:
        jax.eval_shape(lambda arguments=arguments: bounce(**arguments))
    with pytest.warns(UserWarning, match=r"is at \[0\.2, 0\.0, 0\.0\].*recentered"):
        jax.eval_shape(lambda: bounce(**off, check_center="warn"))
