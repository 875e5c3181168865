"""A bound on how many contacts act at a time, pairs that are far apart, and what the status says of both."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Pose, shapes
from lgjax.contact import ContactStatus, TimeStepping, contact_points, contact_step
from lgjax.contact.bounded import ChosenRows, acting_of, choose, smallest, velocities
from lgjax.contact.cones import solver
from lgjax.contact.geometry import patches
from lgjax.contact.geometry.detection import detect
from lgjax.contact.responses import FactoredDynamics
from lgjax.contact.rows import Acting, BodyRows, joint_rows
from lgjax.execution import batched
from lgjax.multibody.build import Body, Joint, build
from lgjax.shapes import DistanceStatus

RADIUS = 0.1
FLOOR = shapes.Plane((0.0, 0.0, 1.0))


def balls(names=("first", "second"), others=()):
    free = [Body(n, None, Joint(f"{n}_free", "free"), mass=1.0, inertia=0.004 * np.eye(3)) for n in names]
    return build([*free, *others])


def contacts_of(model, names, **options):
    solid = {name: shapes.sphere(RADIUS) for name in names}
    return lgjax.Contacts(model, FLOOR, solid, list(itertools.combinations(names, 2)), 0.4, **options)


def start_of(model, heights):
    places = jnp.array([[0.21 * k, 0.01 * k, z] for k, z in enumerate(heights)])
    upright = jnp.broadcast_to(jnp.eye(3), (len(heights), 3, 3))
    return lgjax.configuration(model, (upright, places), jnp.zeros(model.nv - 6 * len(heights)))


def test_rows_that_may_act_on_any_body_are_those_of_known_bodies():
    """J M^-1 J^T, its factor, J v, and the response to forces, of a quadruped that touches the floor, itself and has
    limits."""
    model = lgjax.models.quadruped()
    shape = {f"{leg}_foot": shapes.sphere(0.02) for leg in ("FL", "FR", "RL", "RR")} | {"trunk": shapes.sphere(0.1)}
    pairs = [("FL_foot", "FR_foot"), ("trunk", "RR_foot")]
    contacts = lgjax.Contacts(
        model, FLOOR, shape, pairs, joint_limits=True, joint_friction=["FL_calf_joint"], nearest=5
    )
    q = lgjax.random_configuration(jax.random.key(0), model)
    v, x = (jnp.asarray(np.random.default_rng(k).normal(size=n)) for k, n in ((0, model.nv), (1, 15 + 13)))
    index = np.array([6, 0, 4, 5, 2])  # of seven
    order = np.concatenate([(3 * index[:, None] + np.arange(3)).ravel(), 21 + np.arange(13)])

    def both(q, v):
        free = FactoredDynamics(model, q, v, jnp.zeros_like(v), None, model.armature)
        points = detect(contacts, model, free.poses, free.origin)
        joints, acting = joint_rows(contacts, model, q, 1e-3), Acting.of(contacts, model)
        chosen = choose(contacts, model, jnp.full(7, 9.0).at[index].set(jnp.arange(5.0)))
        some = jax.tree.map(chosen.of, points._replace(status=None))
        chosen_rows = ChosenRows(acting_of(contacts, model.tree, acting), free.columns, some, joints, chosen.moved)
        rows = BodyRows(acting, free.columns, points, joints)
        every = jnp.zeros(21 + 13).at[order].set(x)
        normal = velocities(contacts, model, free.columns.S, points, v)
        square = lambda F: F.T @ F
        found = (
            chosen_rows.operator().matrix(),
            chosen_rows.rates(v),
            chosen_rows.response(x),
            normal.reshape(-1),
            chosen.which,
        )
        return (square(chosen_rows.factor()), square(rows.factor()), *found), (
            rows.operator().matrix()[order][:, order],
            rows.operator().matrix(),
            rows.operator().matrix()[order][:, order],
            rows.rates(v)[order],
            rows.response(every),
            rows.rates(v)[:21],
            index,
        )

    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-10), *jax.jit(both)(q, v))


def test_contacts_that_wait_change_nothing_where_they_do_not_meet():
    """A ball falls on another one, which lies on the floor: two contacts of three are enough."""
    names = "first", "second"
    model = balls(names)
    q = lgjax.neutral(model)._replace(
        free_poses=Pose(jnp.broadcast_to(jnp.eye(3), (2, 3, 3)), jnp.array([[0, 0, RADIUS], [0.05, 0.02, 0.294]]))
    )
    v = jnp.zeros(12).at[11].set(-1.0)

    def run(contacts):
        def step(state, _):
            found = contact_step(model, contacts, *state[:2], jnp.zeros(12), 2e-3, state[2])
            return (found.q, found.v, found.impulse), (found.impulse, found.velocity, found.status)

        return jax.lax.scan(step, (q, v, jnp.zeros((3, 3))), None, length=20)

    expected, found = (jax.jit(run)(contacts_of(model, names, nearest=n)) for n in (None, 2))
    assert np.max(found[1][0][:, 2, 0]) > 0.1  # they meet
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-9), found, expected)


def test_with_joints_restitution_and_derivatives_contacts_that_wait_change_nothing():
    """Of two balls on the floor one runs into the other, a third is high above: three contacts of six are enough."""
    names = "first", "second", "third"
    hinge = Joint("hinge", "revolute", (0, 1, 0), lower=-0.02, upper=0.5, friction=0.1)
    rod = Body("rod", None, hinge, mass=1.0, com=(0.3, 0, 0), inertia=0.01 * np.eye(3))
    model = balls(names, [rod])
    q = start_of(model, (RADIUS, RADIUS, 1.0))
    v = jnp.zeros(19).at[3].set(1.0).at[5].set(-0.5).at[11].set(-0.2).at[18].set(-2.0)

    def run(contacts, v):
        def step(state, _):
            found = contact_step(model, contacts, *state[:2], jnp.zeros(19), 2e-3, state[2])
            return (found.q, found.v, found.impulse), (found.impulse, found.velocity, found.joint_impulse, found.status)

        (q_end, v_end, _), seen = jax.lax.scan(step, (q, v, jnp.zeros((6, 3))), None, length=20)
        return jnp.sum(q_end.free_poses.translation[1] * jnp.arange(1, 4.0)), (q_end, v_end, seen)

    more = {"restitution": 0.7, "joint_limits": True, "joint_friction": True}
    every, few = (contacts_of(model, names, nearest=n, **more) for n in (None, 3))
    at = jax.jit(jax.value_and_grad(run, 1, has_aux=True))
    (_, found), slope = at(few, v)
    assert np.max(np.abs(found[2][0][:, 3])) > 0.1  # they meet
    assert np.max(np.abs(found[2][2][:, -1])) > 1e-2  # and so does the rod its limit
    expected = jax.jit(run)(every, v)[1]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-9), found, expected)
    ends = [at(few, v + dv)[0][0] for dv in 1e-6 * np.concatenate([np.eye(19), -np.eye(19)])]
    np.testing.assert_allclose(slope, (np.array(ends[:19]) - np.array(ends[19:])) / 2e-6, atol=1e-6)


def test_the_status_says_where_more_contacts_meet_than_may_act():
    """At rest two balls on the floor have two; when one runs into the other there are three, or else it flies. They
    count also where only free flight would meet, and where an impact on the floor, by friction, makes them meet."""
    names = "first", "second"
    model = balls(names)
    q, rest = start_of(model, (RADIUS, RADIUS)), jnp.zeros(12)
    contacts = contacts_of(model, names, nearest=2)
    step = jax.jit(jax.vmap(lambda v: contact_step(model, contacts, q, v, jnp.zeros(12), 2e-3).status))
    spun = rest.at[3:6].set(jnp.array([4.5, 0.0, -5.0])).at[1].set(200.0)
    speeds = np.arange(5.1, 5.2, 1e-3) + 2e-4  # friction slows the ball by 8e-3 m/s
    slow = jnp.zeros((len(speeds), 12)).at[:, 3].set(speeds)
    soon = rest.at[3].set(8.0).at[5].set(1.0)  # halfway it is still nearer to the floor, which it leaves
    others = [rest, rest.at[3].set(20.0), rest.at[3].set(20.0).at[5].set(1.0), soon, spun, spun.at[1].set(0.0)]
    status = step(jnp.concatenate([jnp.stack(others), slow]))
    many = int(ContactStatus.TOO_MANY_NEAR)
    np.testing.assert_array_equal(status[:6], [0, many, 0, 0, many, 0])
    away = np.stack([speeds * 1e-3 - 0.21, np.full(len(speeds), -0.01)], 1)  # halfway, of the first from the second
    length = np.linalg.norm(away, axis=1)
    meets = length - 2 * RADIUS + 1e-3 * away[:, 0] / length * speeds < 0
    assert 20 < np.sum(meets) < 80
    np.testing.assert_array_equal(status[6:], np.where(meets, many, 0))


def two_boxes():
    bodies = [Body(n, None, Joint(n + "_free", "free"), mass=1.0, inertia=0.01 * np.eye(3)) for n in ("a", "b")]
    model = build(bodies)
    solid = {"a": shapes.box((0.1, 0.2, 0.15)), "b": shapes.box(0.2)}
    return model, lgjax.Contacts(model, (), solid, [("a", "b")]), solid


def test_gaps_of_bodies_far_apart_are_less_than_their_distance():
    """Near ones have their distance; a gap never exceeds it, and its normal separates the bodies."""
    model, contacts, solid = two_boxes()
    rng = np.random.default_rng(2)
    turns = lgjax.so3.exp(jnp.asarray(rng.normal(size=(40, 2, 3))))
    far = np.linspace(0.3, 2.0, 40)[:, None] * np.asarray(lgjax.so3.exp(jnp.asarray(rng.normal(size=(40, 3)))))[:, 0]
    places = jnp.stack([jnp.zeros_like(far), jnp.asarray(far)], 1)

    def both(R, p):
        q = lgjax.neutral(model)._replace(free_poses=Pose(R, p))
        pose = lambda k: Pose(R[k], p[k])
        found = contact_points(model, contacts, q)
        return found.gap, found.status, shapes.distance(solid["a"], pose(0), solid["b"], pose(1)).distance

    gap, status, distance = map(np.asarray, jax.jit(jax.vmap(both))(turns, places))
    assert not np.any(status)
    least, size = np.min(gap, 1), np.linalg.norm([0.1, 0.2, 0.15]) + 0.2 * np.sqrt(3)
    assert np.all(least <= distance + 1e-12)
    searched = np.linalg.norm(far, axis=1) < size * (1 + patches.REACH)
    assert 5 < np.sum(searched) < 35
    np.testing.assert_allclose(least[searched], distance[searched], atol=1e-9)
    np.testing.assert_allclose(least[~searched], np.linalg.norm(far, axis=1)[~searched] - size, atol=1e-12)


def test_a_distance_that_is_not_found_is_in_the_status(monkeypatch):
    """Where bodies are near, and the error is more than 1e-4 of their size, 0.6 m."""
    model, contacts, _ = two_boxes()
    for error, away, expected in ((1e-3, 0.32, ContactStatus.NOT_SOLVED), (1e-5, 0.32, 0), (1e-3, 2.0, 0)):
        with monkeypatch.context() as here:
            failing(here, error)
            assert jax.jit(lambda q: contact_points(model, contacts, q).status)(apart(model, away)) == expected


def test_a_distance_that_is_not_found_is_in_the_status_of_the_step(monkeypatch):
    model, contacts, _ = two_boxes()
    failing(monkeypatch, 1e-3)
    step = jax.jit(jax.vmap(lambda q: contact_step(model, contacts, q, jnp.zeros(12), jnp.zeros(12), 1e-3).status))
    places = jax.tree.map(lambda *x: jnp.stack(x), *(apart(model, away) for away in (0.32, 2.0)))
    np.testing.assert_array_equal(step(places), [ContactStatus.NOT_SOLVED, 0])


def test_a_distance_that_is_not_found_is_in_the_status_of_event_driven_steps(monkeypatch):
    model, contacts, _ = two_boxes()
    failing(monkeypatch, 1e-3)
    method = lgjax.contact.EventDriven()
    run = lambda q: lgjax.rollout(model, q, jnp.zeros(12), None, 1e-3, 1, method, contacts=contacts).status
    places = jax.tree.map(lambda *x: jnp.stack(x), *(apart(model, away) for away in (0.32, 2.0)))
    np.testing.assert_array_equal(jax.jit(jax.vmap(run))(places), [ContactStatus.NOT_SOLVED, 0])


def test_bodies_that_begin_inside_one_another_are_moved_apart_or_have_a_status():
    """Equal boxes, from the same place to a corner that is shared; a place that is not finite is in the status."""
    model, contacts, _ = two_boxes()
    step = jax.jit(jax.vmap(lambda q: contact_step(model, contacts, q, jnp.zeros(12), jnp.zeros(12), 1e-3)))
    aways = (0.0, 1e-12, 0.01, 0.1, 0.2, np.nan)
    found = step(jax.tree.map(lambda *x: jnp.stack(x), *(apart(model, away) for away in aways)))
    assert ContactStatus.NOT_FINITE in ContactStatus(int(found.status[-1]))
    numbers = jnp.concatenate([found.v, found.q.free_poses.translation.reshape(-1, 6)], 1)[:-1]
    assert np.all(np.isfinite(numbers))
    left = np.linalg.norm(np.diff(np.asarray(found.q.free_poses.translation), axis=1)[:-1, 0], axis=-1)
    assert np.all((np.asarray(found.status[:-1]) != 0) | (left > np.asarray(aways[:-1])))


def failing(monkeypatch, error):
    """Distances that are said to be uncertain by an error, m."""
    exact, failed = patches.distance_of, jnp.int32(DistanceStatus.NOT_SOLVED)
    monkeypatch.setattr(patches, "distance_of", lambda *x: exact(*x)._replace(status=failed, error=jnp.float64(error)))


def apart(model, away):
    p = jnp.array([[0.0, 0, 0], [away, 0, 0]])
    return lgjax.neutral(model)._replace(free_poses=Pose(jnp.broadcast_to(jnp.eye(3), (2, 3, 3)), p))


def test_only_faces_whose_points_share_a_load_have_a_factor(monkeypatch):
    """Eight points of a pair have more rows than two bodies have velocities; one point has not."""
    tried, real = [], solver.early_attempt
    monkeypatch.setattr(solver, "early_attempt", lambda *args: tried.append(True) or real(*args))
    method = TimeStepping(max_sweeps=123)  # of no other test, so that the solver is traced
    for points, share in ((8, True), (1, False)):
        model, _, solid = two_boxes()
        contacts = lgjax.Contacts(model, (), solid, [("a", "b")], points=points)
        tried.clear()
        step = lambda q, model=model, contacts=contacts: contact_step(
            model, contacts, q, jnp.zeros(12), jnp.zeros(12), 1e-3, method=method
        )
        jax.eval_shape(step, lgjax.neutral(model))
        assert bool(tried) == share


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("count", "k"), [(20, 3), (40, 17), (7, 6), (9, 1)])
def test_the_smallest_numbers_are_those_of_a_sort(count, k, dtype):
    """Of equal ones the first; of numbers close together, far apart, equal, and as large as there are."""
    x = np.random.default_rng(0).normal(size=(17, count))
    some = np.random.default_rng(1).uniform(size=x.shape) < 0.5
    most = float(np.finfo(dtype).max)
    for own in (x, np.round(x), 0 * x, np.where(some, most, 1e-8 * x), np.where(some, 1e-30 * x, 1 + 1e-7 * x)):
        own = own.astype(dtype)
        found = jax.jit(jax.vmap(batched(lambda x: smallest(x, k))))(jnp.asarray(own))
        order = np.argsort(own, 1, kind="stable")[:, :k]
        np.testing.assert_array_equal(found, np.any(np.arange(count) == order[..., None], 1))
