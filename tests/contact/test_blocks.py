"""Delassus' matrix by blocks: the same operator, steps of the solver and velocities as with a dense one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Pose, shapes
from lgjax.contact import TimeStepping, block_rows, contact_step
from lgjax.contact.block_rows import BlockRows, acting_in
from lgjax.contact.cones.block_steps import newton_change
from lgjax.contact.cones.blocks import BlockMatrix, Pattern
from lgjax.contact.cones.elimination import factorized, identity, most_neighbors, plus_contact
from lgjax.contact.cones.interior import interior_steps
from lgjax.contact.cones.law import ConeProblem, natural_map
from lgjax.contact.cones.newton import newton_steps
from lgjax.contact.cones.solver import ridge_of
from lgjax.contact.geometry.detection import detect
from lgjax.contact.responses import FactoredDynamics
from lgjax.contact.rows import Acting, BodyRows, joint_rows
from lgjax.execution import batched
from lgjax.multibody.build import Body, Joint, build
from tests.contact.test_rows import mechanism

FLOOR = shapes.Plane((0.0, 0.0, 1.0))
HALF = 0.1
G = 9.81


def boxes(count, more=()):
    names = [f"b{k}" for k in range(count)]
    inertia = 2 / 3 * HALF**2 * np.eye(3)
    free = [Body(n, None, Joint(f"{n}_free", "free"), mass=1.0, inertia=inertia) for n in names]
    return build([*free, *more]), names


def stack(count, **options):
    model, names = boxes(count)
    pairs = list(zip(names[1:], names[:-1], strict=True))
    return model, lgjax.Contacts(model, FLOOR, dict.fromkeys(names, shapes.box(HALF)), pairs, 0.5, **options)


def placed(model, places, turns=None):
    places = jnp.asarray(places)
    turns = jnp.broadcast_to(jnp.eye(3), (len(places), 3, 3)) if turns is None else turns
    return lgjax.neutral(model)._replace(free_poses=Pose(turns, places))


def dense_of(G: BlockMatrix):
    n = len(G.ridge)
    return jnp.stack([G.times(row) for row in jnp.eye(n, dtype=G.dtype)], 1)


@pytest.mark.parametrize(("seed", "count"), [(1, 3), (3, 9)])
def test_the_operator_by_blocks_is_that_of_known_bodies(seed, count, monkeypatch):
    """J M^-1 J^T, its diagonal, J v and M^-1 J^T x of trees that touch each other and themselves, with joints."""
    monkeypatch.setattr(block_rows, "SPARSE_GAIN", 0.0)
    monkeypatch.setattr(block_rows, "MOST_NEIGHBORS", 99)
    monkeypatch.setattr(block_rows, "ROWS_PER_VELOCITY", 99.0)
    model, contacts = mechanism(seed, count)
    q = lgjax.random_configuration(jax.random.key(seed), model)
    v = jnp.asarray(np.random.default_rng(seed).normal(size=model.nv))
    acting = acting_in(contacts, model)
    assert acting.pattern is not None
    acts = np.arange(len(contacts)) != 1
    on = np.concatenate([np.repeat(acts, 3), np.ones(len(acting.joints), bool)])
    x = jnp.asarray(np.where(on, np.random.default_rng(0).normal(size=len(on)), 0))
    kept, of = np.flatnonzero(on), np.flatnonzero(np.concatenate([acts, np.ones(len(acting.joints), bool)]))
    last = 3 * len(contacts) + acting.limited
    first = np.asarray([k for k in kept if k < last and (k >= last - acting.limited or k % 3 == 0)])
    of = of[of < len(contacts) + acting.limited]

    def both(q, v):
        free = FactoredDynamics(model, q, v, jnp.zeros_like(v), None, model.armature)
        points, joints = detect(contacts, model, free.poses, free.origin), joint_rows(contacts, model, q, 1e-3)
        rows = BlockRows(acting, free.columns, points, joints, jnp.asarray(acts))
        known = BodyRows(Acting.of(contacts, model), free.columns, points, joints)
        matrix, normals = rows.matrix(), rows.matrix().normals(acting.limited)
        G, wanted = dense_of(matrix), known.operator().matrix()
        found = G[kept][:, kept], matrix.diagonal(), rows.rates(v)[kept], rows.response(x)
        own = dense_of(normals)[of][:, of]
        return (*found, own), (
            wanted[kept][:, kept],
            jnp.diagonal(G),
            known.rates(v)[kept],
            known.response(x),
            wanted[first][:, first],
        )

    with lgjax.execution.plain():
        found, wanted = jax.jit(both)(q, v)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-9 * (1 + np.max(np.abs(y)))), found, wanted)


def random_matrix(random, pattern):
    k, r = len(pattern.contacts), len(pattern.rows)
    mask = lambda places: np.array([np.repeat([n < len(x) for n in range(pattern.width)], 6) for x in places])
    contacts = random.normal(size=(k, 6 * pattern.width, 3)) * mask(pattern.contacts)[..., None]
    rows = random.normal(size=(r, 6 * pattern.width, 1)) * mask(pattern.rows)[..., None]
    return BlockMatrix.of(jnp.asarray(contacts), jnp.asarray(rows), jnp.ones(k + r, bool), pattern, True)


PATTERN = Pattern(((0,), (1,), (0, 1), (1, 2), (1, 2), (2, 3), (4, 3), (4, 0), (2,)), ((3,), (1, 4)), 5)


def test_blocks_are_eliminated_in_an_order_that_couples_few():
    chain = Pattern(tuple((k, k + 1) for k in range(9)), (), 10)
    star = Pattern(tuple((0, k) for k in range(1, 10)), (), 10)
    assert [most_neighbors(x) for x in (chain, star, PATTERN)] == [1, 1, 2]


def test_systems_of_blocks_have_the_solution_of_a_dense_matrix():
    """1 + F K F^T for random F and K whose symmetric part is positive, of a ring of bodies."""
    random = np.random.default_rng(0)
    matrix = random_matrix(random, PATTERN)
    K = np.eye(3) + 0.3 * random.normal(size=(9, 3, 3))
    shares = random.uniform(1, 2, 2)
    z = random.normal(size=36)
    z[30:] = 0

    def solve(matrix, K, shares, z):
        def add(run, values, i, M):
            F = [values[run.first + i, 6 * b : 6 * b + 6] for b in range(run.places.shape[1])]
            inner = K[run.first + i] if run.size == 3 else shares[run.first + i][None, None]
            return plus_contact(M, PATTERN, run, F, inner)

        M = matrix.by_contacts(add, identity(PATTERN, z.dtype))
        F = jnp.stack([matrix.spread(row) for row in jnp.eye(29)], 1)
        return factorized(M, PATTERN).solve(z), F

    found, F = map(np.asarray, jax.jit(solve)(matrix, jnp.asarray(K), jnp.asarray(shares), jnp.asarray(z)))
    whole = np.zeros((29, 29))
    for k in range(9):
        whole[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] = K[k]
    whole[27:, 27:] = np.diag(shares)
    wanted = np.linalg.solve(np.eye(36) + F @ whole @ F.T, z)
    np.testing.assert_allclose(found[:30], wanted[:30], atol=1e-10)


def test_newtons_step_by_blocks_is_that_of_a_dense_matrix():
    """At random impulses that stick, slide or are open; and of rows at their bounds and between."""
    random = np.random.default_rng(1)
    matrix = random_matrix(random, PATTERN)
    k, r = 9, 2
    x = random.normal(size=29)
    x[:27:3] = np.abs(x[:27:3])
    b, friction = random.normal(size=29), random.uniform(0.2, 1, k)
    barrier = 0.1 * (random.uniform(size=k) > 0.5)
    b, friction, low, high, barrier = map(jnp.asarray, (b, friction, [-0.5] * r, [0.5] * r, barrier))
    problem = ConeProblem(matrix, b, friction, low, high, barrier)

    def both(p, x):
        dense = p._replace(G=dense_of(p.G))
        _, step, _ = newton_steps(dense, x, jnp.full(2, 0.1) / jnp.mean(jnp.diagonal(dense.G)), 2)
        found = newton_change(p, x, jnp.asarray(0.1)), natural_map(p, x) - x
        return found, (step(x, jnp.zeros((), int)) - x, natural_map(dense, x) - x)

    found, wanted = jax.jit(both)(problem, jnp.asarray(x))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-9), found, wanted)


def test_interior_points_by_blocks_are_on_the_law_after_ten_steps():
    """Of the law with a dense matrix, for contacts and bounded rows that load the same bodies."""
    random = np.random.default_rng(2)
    matrix = random_matrix(random, PATTERN)
    friction, bound = jnp.asarray(random.uniform(0.1, 0.5, 9)), jnp.full(2, 0.5)
    b = jnp.asarray(random.normal(size=(64, 29)))

    def miss(b):
        problem = ConeProblem(matrix, b, friction, -bound, bound, None)
        point, step, impulses = interior_steps(problem, jnp.ones(()))
        x = impulses(jax.lax.fori_loop(0, 10, lambda i, z: step(z, i), point))
        return jnp.max(jnp.abs(natural_map(problem._replace(G=dense_of(matrix)), x) - x))

    assert np.mean(np.asarray(jax.jit(jax.vmap(miss))(b)) < 1e-7) > 0.9


def test_corners_of_boxes_share_loads_in_float32():
    """Of stacks of six boxes, within 16 interior points; the law is NumPy's, in float64. Near the end, W at
    contacts that bear much is smaller than its round-off."""
    random = np.random.default_rng(4)
    count, h, friction, inertia = 6, 2e-3, 0.8, 0.5 * (2 * HALF) ** 2 / 6
    pairs = [(0,) * 2, *((k, k + 1) for k in range(count - 1))]
    columns, J = np.zeros((4 * count, 12, 3)), np.zeros((12 * count, 6 * count))
    for k, (under, on) in enumerate(pairs):
        for c, corner in enumerate([(-1, -1), (-1, 1), (1, -1), (1, 1)]):
            for body, sign, level in ((on, 1, -HALF), (under, -1, HALF))[: 2 if k else 1]:
                x, y = HALF * np.array(corner)
                rows = np.array([[y, -x, 0, 0, 0, 1], [0, level, -y, 1, 0, 0], [-level, 0, x, 0, 1, 0]])
                first = 12 * k + 3 * c
                J[first : first + 3, 6 * body : 6 * body + 6] = sign * rows
                at = 6 * (body == on) if k else 0
                columns[4 * k + c, at : at + 6] = sign * rows.T / np.sqrt([[inertia]] * 3 + [[0.5]] * 3)
    pattern = Pattern(tuple(x if k else (0,) for k, x in enumerate(pairs) for _ in range(4)), (), count)
    matrix = BlockMatrix.of(
        jnp.asarray(columns, "float32"), jnp.zeros((0, 12, 1), "float32"), jnp.ones(4 * count, bool), pattern, True
    )
    matrix = matrix.plus(ridge_of(matrix, 4 * count))
    v = 1e-2 * random.normal(size=(64, 6 * count)) - h * G * np.tile([0, 0, 0, 0, 0, 1], count)
    b, none = jnp.asarray(v @ J.T, "float32"), jnp.zeros(0, "float32")

    def impulses(b):
        problem = ConeProblem(matrix, b, jnp.full(4 * count, friction, "float32"), none, none, None)
        point, step, impulses = interior_steps(problem, jnp.ones((), "float32"))
        return jax.lax.scan(lambda z, i: (step(z, i), impulses(step(z, i))), point, np.arange(16))[1]

    x = np.asarray(jax.jit(jax.vmap(impulses))(b), float)
    dense = J @ np.diag(np.tile([1 / inertia] * 3 + [2.0] * 3, count)) @ J.T
    stiff = np.diag(dense).reshape(-1, 3)
    X, u = (a.reshape(64, 16, -1, 3) for a in (x, x @ dense + (v @ J.T)[:, None]))
    wanted = X - u / stiff
    wanted[..., 0] = np.maximum(wanted[..., 0], 0)
    size = np.linalg.norm(wanted[..., 1:], axis=-1)
    wanted[..., 1:] *= np.minimum(1, friction * wanted[..., 0] / np.maximum(size, 1e-30))[..., None]
    miss = np.nanmin(np.max(np.abs(wanted - X) * stiff, (2, 3)), 1)  # the best of the points
    assert np.mean(miss < 5e-6) > 0.9


def test_contacts_are_skipped_in_groups():
    """Products with G where any contacts act: groups of equal places, of which none, some or all do."""
    random = np.random.default_rng(5)
    pattern = Pattern((*[(0,)] * 4, *[(1,)] * 4, *[(0, 1)] * 6, *[(1, 2)] * 2, *[(0, 2)] * 2), ((0,), (1, 2)), 3)
    whole = random_matrix(random, pattern)
    acts = random.uniform(size=(17, 20)) < 0.25
    acts[0], acts[1] = False, True
    x = random.normal(size=(17, 56))

    def product(acts, x):
        masks = [mask[:, None, None] for mask in (acts[:18], acts[18:])]
        contacts, rows = (jnp.where(m, a, 0 * a) for m, a in zip(masks, (whole.contacts, whole.rows), strict=True))
        matrix = BlockMatrix.of(contacts, rows, acts, pattern, True)
        return matrix.times(x), matrix.ridge, matrix.diagonal()

    found, ridge, diagonal = map(np.asarray, jax.jit(jax.vmap(batched(product)))(jnp.asarray(acts), jnp.asarray(x)))
    F = np.stack([np.asarray(whole.spread(row)) for row in np.eye(56)], 1)
    for k in range(17):
        own = F * np.concatenate([np.repeat(acts[k, :18], 3), acts[k, 18:]])
        np.testing.assert_allclose(found[k] - ridge[k] * x[k], own.T @ (own @ x[k]), atol=1e-12)
        np.testing.assert_allclose(diagonal[k] - ridge[k], np.sum(own * own, 0), atol=1e-12)


def both_ways(monkeypatch, run):
    """What run(method) gives with blocks and with a dense matrix; the methods differ, so that both are traced."""
    found = []
    for pays, sweeps in ((0.0, 611), (np.inf, 612)):
        monkeypatch.setattr(block_rows, "SPARSE_GAIN", pays)
        found.append(run(TimeStepping(max_sweeps=sweeps)))
    return found


def scene():
    """Three boxes, a ball, and a sled with a hinged flap that the boxes drop on; systems (8, ...)."""
    sled = Body("sled", None, Joint("sled_free", "free"), mass=3.0, inertia=0.2 * np.eye(3))
    hinge = Joint("hinge", "revolute", (0, 1, 0), lower=-0.4, upper=0.4, friction=0.1)
    flap = Body("flap", "sled", hinge, position=(0.3, 0, 0), mass=0.5, com=(0.2, 0, 0), inertia=0.02 * np.eye(3))
    ball = Body("ball", None, Joint("ball_free", "free"), mass=0.5, inertia=0.002 * np.eye(3))
    model, names = boxes(3, [sled, flap, ball])
    solid = dict.fromkeys(names, shapes.box(HALF)) | {
        "sled": shapes.box((0.3, 0.2, 0.05)),
        "flap": shapes.sphere(0.05, center=(0.25, 0, 0)),
        "ball": shapes.sphere(0.1),
    }  # fmt: skip
    pairs = [("b0", "sled"), ("b1", "b0"), ("b2", "b1"), ("ball", "sled"), ("b1", "flap")]
    random = np.random.default_rng(5)
    places = np.array([[-0.1, 0, 0.2], [-0.08, 0.02, 0.4], [-0.1, 0, 0.6], [0, 0, 0.05], [0.2, 0.05, 0.2]])
    places = places + 1e-3 * random.normal(size=(8, 5, 3))
    turns = lgjax.so3.exp(jnp.asarray(2e-3 * random.normal(size=(8, 5, 3))))
    return model, solid, pairs, jnp.asarray(places), turns, jnp.asarray(0.02 * random.normal(size=(8, model.nv)))


@pytest.mark.parametrize("options", [{}, {"nearest": 20, "restitution": 0.3}, {"smoothing": 1e-4}])
def test_velocities_by_blocks_are_those_of_a_dense_matrix(options, monkeypatch):
    """Of boxes, a ball and a jointed sled that drop on each other, with limits and dry friction at the joint. Where
    contacts slide with friction several velocities obey the law; these have none."""
    model, solid, pairs, places, turns, v = scene()
    contacts = lgjax.Contacts(model, FLOOR, solid, pairs, 0.0, joint_limits=True, joint_friction=True, **options)

    def run(method):
        def step(p, R, v):
            q = placed(model, p, R)
            return contact_step(model, contacts, q, v, jnp.zeros(model.nv), 2e-3, method=method)

        return jax.jit(jax.vmap(step))(places, turns, v)

    found, wanted = both_ways(monkeypatch, run)
    assert np.mean(np.asarray(wanted.impulse[..., 0]) > 0) > 0.05
    assert not np.any(np.asarray(found.status) & ~int(lgjax.contact.ContactStatus.AT_ONCE))
    np.testing.assert_array_equal(found.status, wanted.status)
    np.testing.assert_allclose(found.v, wanted.v, atol=2e-7)
    np.testing.assert_allclose(found.q.free_poses.translation, wanted.q.free_poses.translation, atol=1e-9)


@pytest.mark.parametrize(("options", "dtype"), [({}, "float64"), ({"nearest": 16}, "float64"), ({}, "float32")])
def test_each_box_of_a_stack_carries_the_load_above_it(options, dtype):
    count, (rtol, atol) = 4, {"float64": (1e-7, 1e-9), "float32": (1e-3, 1e-5)}[dtype]
    model, contacts = (x.astype(dtype) for x in stack(count, **options))
    assert acting_in(contacts, model).pattern is not None
    q = placed(model, [[0.01 * (-1) ** k, 0, HALF * (1 + 2 * k)] for k in range(count)])
    q, still = jax.tree.map(lambda x: x.astype(dtype), q), jnp.zeros(model.nv, dtype)
    found = jax.jit(lambda v: contact_step(model, contacts, q, v, still, 2e-3))(still)
    assert found.status == 0
    force = np.asarray(found.impulse[:, 0]) / 2e-3
    load = [np.sum(force[: 8 * count]), *np.sum(force[8 * count :].reshape(-1, 4), 1)]
    np.testing.assert_allclose(load, G * np.arange(count, 0, -1), rtol=rtol)
    np.testing.assert_allclose(found.v, 0, atol=atol)


def test_gradients_with_blocks_are_those_with_a_dense_matrix(monkeypatch):
    model, contacts = stack(3, nearest=12)
    q = placed(model, [[0.01 * (-1) ** k, 0, HALF * (1 + 2 * k)] for k in range(3)])
    weights = jnp.asarray(np.random.default_rng(2).normal(size=18))
    push = jnp.zeros(18).at[15].set(3.0)

    def run(method):
        last = lambda tau, v: weights @ contact_step(model, contacts, q, v, tau, 2e-3, method=method).v
        return jax.jit(jax.value_and_grad(last, (0, 1)))(push, 1e-3 * weights)

    found, wanted = both_ways(monkeypatch, run)
    assert max(np.max(np.abs(x)) for x in wanted[1]) > 1e-2
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), found, wanted)


def test_a_system_is_the_same_in_any_batch():
    model, contacts = stack(3, nearest=12)
    random = np.random.default_rng(3)
    places = np.array([[0, 0, HALF * (1 + 2 * k)] for k in range(3)]) + 1e-3 * random.normal(size=(19, 3, 3))
    v = jnp.asarray(0.1 * random.normal(size=(19, 18)))
    one = lambda p, v: contact_step(model, contacts, placed(model, p), v, jnp.zeros(18), 2e-3).v
    many = jax.jit(jax.vmap(one))
    np.testing.assert_array_equal(many(places, v)[7:9], many(places[7:9], v[7:9]))
