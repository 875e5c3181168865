"""Coulomb's law for boxes that stick on four corners, and for random contacts with bounded rows beside them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.contact.cones import attempts
from lgjax.contact.cones.algebra import plus_blocks, plus_diagonal, solve
from lgjax.contact.cones.attempts import attempt, early_attempt
from lgjax.contact.cones.law import ConeProblem, step_of_rows
from lgjax.contact.cones.solver import CYCLE, solve_cones
from lgjax.execution import batched
from tests.oracles.pinocchio_contacts import violation

H = 2e-3


def over_last(function):
    """Of many systems side by side, along the last axis of all arrays."""
    return jax.vmap(function, -1, -1)


def boxes(count):
    """Impulse to velocity, free velocities and friction of boxes that lie on a floor nearly flat and nearly at rest.

    Four corners share the load in many ways. A corner's gap above the floor may close by the end of the step, so
    the box turns a little, and its corners slip: friction is at its limit, for velocities of 1e-9 m/s.
    """
    random = np.random.default_rng(0)
    corners = np.array([[x, y, -1] for x in (1, -1) for y in (1, -1)]) * [0.1, 0.075, 0.05]
    frame, problems = np.eye(3)[[2, 0, 1]], []
    for _ in range(count):
        x, y, z = 10 ** random.uniform(-9, -2) * random.normal(size=3)
        turn = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        points = corners @ (np.eye(3) + turn + turn @ turn / 2).T
        J = np.concatenate([np.hstack([np.cross(point, frame), frame]) for point in points])
        v = 10 ** random.uniform(-9, -2) * random.normal(size=6) - [0, 0, 0, 0, 0, 9.81 * H]
        b = J @ v
        b[::3] += 2 / H * (points[:, 2] - points[:, 2].min())
        problems.append((J / [0.02, 0.03, 0.04, 1, 1, 1] @ J.T, b, np.full(4, random.uniform(0.2, 2))))
    return (np.stack(parts, -1) for parts in zip(*problems, strict=True))


def test_boxes_that_stick_are_solved():
    count = 300
    G, b, friction = boxes(count)
    none, fastest = np.zeros((0, count)), np.abs(b).max(0)
    problem = jax.tree.map(jnp.asarray, ConeProblem(G, b, friction, none, none, 0 * friction))
    solver = jax.jit(over_last(lambda p, scale: solve_cones(p, jnp.zeros_like(p.b), scale > 0, scale, 1e-14, 600)))
    found = jax.tree.map(np.asarray, solver(problem, fastest))
    assert np.max(found.residual / fastest) < 1e-8
    assert np.mean(found.sweeps < 600) > 0.8
    worst = [violation(*(part[..., k] for part in (G, b, friction, found.x))) for k in range(count)]
    assert np.max(worst) < 1e-8  # m/s
    assert np.median(worst / fastest) < 1e-10


def mixed(dtype, most, k=3, count=203):
    """Random contacts, some without friction and some smooth, a limit and three dry joints, of which one is free."""
    random = np.random.default_rng(1)
    r = 4
    n = 3 * k + r
    J = random.normal(size=(count, n, n + 2))
    G, b = np.moveaxis(J @ np.swapaxes(J, 1, 2) / n, 0, -1), random.normal(size=(n, count)) - 0.5
    friction = random.uniform(0, most, (k, count)) * (random.uniform(size=(k, count)) > 0.2)
    high = np.stack([np.full(count, np.inf), *random.uniform(0, 0.5, (2, count)), np.zeros(count)])
    low = np.concatenate([np.zeros((1, count)), -high[1:]])
    barrier = 0.1 * (random.uniform(size=(k, count)) > 0.7)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), ConeProblem(G, b, friction, low, high, barrier))


def law(p, x):
    """The largest violation of the law of contacts, smooth or not, and of rows, for numbers of size 1; (B,)."""
    p, x = jax.tree.map(lambda a: np.asarray(a, float), (p, x))
    k = len(p.friction)
    u, own = np.einsum("ijb,jb->ib", p.G, x) + p.b, np.einsum("iib->ib", p.G)
    worst = []
    for i in range(k):
        (x_n, *x_t), (u_n, *u_t) = x[3 * i : 3 * i + 3], u[3 * i : 3 * i + 3]
        size, speed = np.hypot(*x_t), np.hypot(*u_t)
        worst += [-x_n, -u_n, size - p.friction[i] * x_n, np.abs(x_n * u_n - p.barrier[i] / own[3 * i])]
        # Friction takes as much power as its disc allows.
        worst += [np.abs(p.friction[i] * x_n * speed + x_t[0] * u_t[0] + x_t[1] * u_t[1])]
    for row, rate, stiff, low, high in zip(x[3 * k :], u[3 * k :], own[3 * k :], p.low, p.high, strict=True):
        worst += [np.abs(row - np.clip(row - rate / stiff, low, high))]
    return np.max(worst, 0)


def attempted(p, x, going, close, number):
    stiffness = over_last(lambda G: 1 / step_of_rows(G, len(p.friction)))(p.G)
    one = lambda *system: attempt(*system, jnp.asarray(close, p.b.dtype), number)
    return np.asarray(jax.jit(over_last(one))(p, stiffness, x, jnp.asarray(going)))


# Contacts, attempt, largest friction.
CASES = [(3, 0, 1.5), (3, 1, 1.5), (3, 2, 0.3), (3, 3, 1.5), (7, 0, 1.5)]


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize(("k", "number", "most"), CASES)
def test_attempts_end_on_the_law(k, number, most, dtype):
    """Without a sweep. Interior points are attempts 0 and 2, of which the latter needs little friction; Newton's method
    is attempts 1 and 3. Systems of a batch that do not need an attempt keep their impulses."""
    p = mixed(dtype, most, k)
    close, going = 1e-10 if dtype == jnp.float64 else 1e-4, np.arange(203) % 7 > 0
    start = 0.1 * jnp.ones_like(p.b)
    x = attempted(p, start, going, close, number)
    np.testing.assert_array_equal(x[:, ~going], start[:, ~going])
    assert np.mean(law(p, x)[going] < 10 * close) > 0.95


def shared(dtype, contacts=4, count=203):
    """As `mixed`, but with fewer velocities than rows, whose response is the factor."""
    p = mixed(jnp.float64, 1.5, contacts, count)
    F = np.random.default_rng(3).normal(size=(3 * contacts, 3 * contacts + 4, count)) / 4
    p = p._replace(G=np.einsum("aib,ajb->ijb", F, F), b=np.einsum("aib,ab->ib", F, F.sum(1)) - 0.5, factor=F)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), p)


@pytest.mark.parametrize(("dtype", "close"), [(jnp.float64, 1e-10), (jnp.float32, 1e-4)])
@pytest.mark.parametrize(("again", "most"), [(False, 1.0), (True, 0.2)])
def test_interior_points_in_few_velocities_end_on_the_law(again, most, dtype, close):
    """Without a sweep, where contacts share loads. With much friction, those without the coupling may fail."""
    p, going = shared(dtype), np.arange(203) % 7 > 0
    p = p._replace(friction=most * p.friction)
    tiny = 0 * p.b + float(jnp.finfo(dtype).eps)
    p = p._replace(G=over_last(plus_diagonal)(p.G, tiny), factor=(p.factor, tiny))
    stiffness, start = over_last(lambda G: 1 / step_of_rows(G, 4))(p.G), 0.1 * jnp.ones_like(p.b)
    ends = jnp.asarray(close, dtype), jnp.zeros((), dtype), jnp.asarray(again)
    one = jax.jit(over_last(lambda *system: early_attempt(*system, *ends)))
    x = np.asarray(one(p, stiffness, start, jnp.asarray(going)))
    np.testing.assert_array_equal(x[:, ~going], start[:, ~going])
    assert np.mean(law(p, x)[going] < 10 * close) > 0.97


def test_boxes_whose_corners_share_a_load_need_few_sweeps():
    """And have the velocities that are found without the factor."""
    count, limit = 100, 1.5e-9
    G, b, friction = boxes(count)
    none, fastest = np.zeros((0, count)), np.abs(b).max(0)
    sizes, axes = np.linalg.eigh(np.moveaxis(G, -1, 0))
    F = np.moveaxis(np.sqrt(sizes[:, -6:, None]) * np.swapaxes(axes[:, :, -6:], 1, 2), 0, -1)
    solver = jax.jit(over_last(batched(lambda p, scale: solve_cones(p, 0 * p.b, scale > 0, scale, 1e-14, 600, limit))))
    plain = jax.tree.map(jnp.asarray, ConeProblem(G, b, friction, none, none, 0 * friction))
    found, other = (solver(p, fastest) for p in (plain._replace(factor=jnp.asarray(F)), plain))
    assert np.max(found.residual) < 4 * limit
    assert np.mean(np.asarray(found.sweeps)) < 0.8 * np.mean(np.asarray(other.sweeps))
    assert np.median([violation(*(part[..., k] for part in (G, b, friction, found.x))) for k in range(count)]) < 1e-12
    velocity = lambda x: np.einsum("ijb,jb->ib", G, x)
    assert np.median(np.max(np.abs(velocity(found.x) - velocity(other.x)), 0)) < 1e-12


@pytest.mark.parametrize("friction", [0.0, 1e-9, 1e-4, 1.0, 10.0])
def test_interior_points_take_any_friction(friction):
    p = mixed(jnp.float64, 1.5)
    p = p._replace(friction=jnp.full_like(p.friction, friction))
    x = attempted(p, jnp.zeros_like(p.b), np.ones(203, bool), 1e-10, 0)
    assert np.mean(law(p, x) < 1e-8) > (0.95 if friction <= 1 else 0.8)


@pytest.mark.parametrize("number", range(4))
def test_attempts_do_not_depend_on_the_rest_of_a_batch(number):
    """Nor on NaN in it, nor on places."""
    p, every = mixed(jnp.float64, 0.5), np.ones(203, bool)
    start = jnp.zeros_like(p.b)
    x = attempted(p, start, every, 1e-10, number)
    back = jax.tree.map(lambda a: a[..., ::-1], p)
    np.testing.assert_array_equal(attempted(back, start, every, 1e-10, number)[:, ::-1], x)
    broken = attempted(p._replace(b=p.b.at[:, ::5].set(jnp.nan)), start, every, 1e-10, number)
    whole = np.arange(203) % 5 > 0
    np.testing.assert_array_equal(broken[:, whole], x[:, whole])


def test_a_plain_vmap_takes_steps_only_where_an_attempt_is_due(monkeypatch):
    """There conditions become choices: both branches run in every sweep. Results are those of one after the other."""
    calls, real = [], attempts.natural_map

    def counted(p, x):
        jax.debug.callback(lambda: calls.append(1))
        return real(p, x)

    monkeypatch.setattr(attempts, "natural_map", counted)
    G, b, friction = (part[..., :8] for part in boxes(8))
    none, fastest = np.zeros((0, 8)), np.abs(b).max(0)
    problem = jax.tree.map(jnp.asarray, (ConeProblem(G, b, friction, none, none, 0 * friction), fastest))
    own = 1.25e-14  # of no other test: a trace is kept for each tolerance, and this one counts
    solver = lambda p, scale: solve_cones(p, jnp.zeros_like(p.b), scale > 0, scale, own, 600)
    turn = lambda task: jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), task)
    beside = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), jax.lax.map(lambda task: solver(*task), turn(problem)))
    jax.effects_barrier()
    calls.clear()
    mapped = jax.block_until_ready(jax.jit(over_last(solver))(*problem))
    jax.effects_barrier()
    turns = int(np.max(beside.sweeps))
    assert turns < len(calls) < 10 * turns  # with the steps of attempts that are not due there would be 160 per turn
    soon = np.asarray(beside.sweeps) < CYCLE  # later, round-off decides in which cycle an attempt succeeds
    np.testing.assert_array_equal(mapped.sweeps[soon], beside.sweeps[soon])
    assert 0 < soon.sum() < 8
    velocity = lambda x: np.einsum("ijb,jb->ib", G, x)  # impulses of boxes that stick are not unique
    np.testing.assert_allclose(velocity(mapped.x), velocity(beside.x), atol=1e-7)
    assert np.max(law(problem[0], mapped.x)) < 1e-9


@pytest.mark.parametrize(("n", "kernel"), [(24, False), (1, True), (5, True), (16, True), (17, True), (48, True)])
def test_elimination_is_as_exact_as_a_library(n, kernel):
    """Of badly conditioned matrices, and of those whose rows have to change places; in a batch, and in a kernel."""
    random = np.random.default_rng(2)
    left, _, right = np.linalg.svd(random.normal(size=(50, n, n)))
    A = np.moveaxis(left * np.logspace(0, -10, n) @ right, 0, -1)
    A[: n // 2, : n // 2, :20] *= 1e-14
    y = random.normal(size=(n, 50))
    x = np.asarray(jax.jit(over_last(batched(solve) if kernel else solve))(A, y))
    expected = np.linalg.solve(np.moveaxis(A, 2, 0), y.T[..., None])[..., 0].T
    miss = lambda x: np.abs(np.einsum("ijb,jb->ib", A, x) - y) / np.einsum("ijb,jb->ib", np.abs(A), np.abs(x))
    assert np.max(miss(x)) < 3 * np.max(miss(expected)) + np.finfo(float).eps


def test_diagonals_and_blocks_are_added():
    random = np.random.default_rng(0)
    G, d, blocks = (random.normal(size=shape) for shape in ((6, 8), (6,), (2, 3, 3)))
    diagonal, whole = np.zeros_like(G), np.zeros_like(G)
    for k in range(6):
        diagonal[k, k] = d[k]
    for k in range(2):
        whole[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] = blocks[k]
    np.testing.assert_array_equal(jax.jit(plus_diagonal)(G, d), G + diagonal)
    np.testing.assert_array_equal(jax.jit(plus_blocks)(G, blocks), G + whole)
