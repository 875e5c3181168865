"""Trees that nothing couples are searched for as if each was alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.simulate.control import FDDP, ControlSystem, Stagewise, costs
from lgjax.simulate.control.check_problem import check_problem
from lgjax.simulate.control.linear_quadratic.parts import Part, block, columns_of, connected, cut, spread, together
from lgjax.simulate.control.linear_quadratic.sparse import Columns, Diagonal, Pattern, Sparse, dense
from lgjax.simulate.control.regulator import search
from lgjax.simulate.control.regulator.expansion import expand, independent_parts
from tests.dynamics import trees

RNG = np.random.default_rng(11)
STEPS, DT = 3, 0.1


def crowd() -> lgjax.Model:
    """Three trees: a mast, a ball joint with an arm, and a pole."""
    return lgjax.build(
        [
            trees.body("mast", None, "revolute", 1, armature=0.2),
            trees.body("stand", None, "spherical", 2, damping=0.1),
            trees.body("tip", "stand", "prismatic", 4),
            trees.body("pole", None, "revolute", 5),
        ]
    )


def problem_of(model, running, terminal=None, system=None, **constraints):
    start = lgjax.neutral(model), jnp.zeros(model.nv, model.dtype)
    system = system or ControlSystem.of_accelerations(model, DT)
    given = [constraints.get(name) for name in ("equality", "inequality", "bounds")]
    return check_problem(system, start, STEPS, running, terminal, *given)


def usual(model, **more):
    """Forces, distances from the start, and where the tip of a branch is at the end."""
    home = lgjax.neutral(model), jnp.zeros(model.nv, model.dtype)
    reach = costs.frame_position(model, "tip", jnp.ones(3, model.dtype), 3.0)
    return problem_of(
        model, costs.forces(model, 0.1, 0.3) + 0.2 * costs.state(model, home), reach + costs.state(model, home), **more
    )


# ---- which there are
def test_trees_are_apart_unless_a_cost_joins_them():
    model, arm = crowd(), lgjax.models.chain(2)
    home = lgjax.neutral(model), jnp.zeros(model.nv)
    parts = independent_parts(usual(model))
    names = [[model.body_names[model.tree.v_body[k]] for k in part.controls] for part in parts]
    assert [sorted(set(some)) for some in names] == [["mast"], ["stand", "tip"], ["pole"]]
    assert all(part.states == (*part.controls, *(model.nv + k for k in part.controls)) for part in parts)
    force, near = costs.forces(model), costs.state(model, home)
    alone = independent_parts(problem_of(model, costs.control() + near))  # and then each joint
    assert [len(part.controls) for part in alone] == [1, 3, 1, 1]
    hand = lambda name: costs.frame(model, name, lgjax.se3.identity(jnp.float64))
    assert len(independent_parts(problem_of(model, costs.control() + near, hand("tip")))) == 3
    assert len(independent_parts(problem_of(model, costs.control() + near, hand("pole")))) == 4
    assert len(independent_parts(problem_of(model, force))) == 3
    together = [
        problem_of(model, costs.forces(model, 0.0, np.ones((2, model.nv))) + near),
        problem_of(model, force + costs.momentum(model)),
        problem_of(model, force, lambda x: x[1] @ x[1]),
        usual(model, equality=Stagewise(terminal=lambda x: x[1][:1])),
        usual(model, inequality=Stagewise(running=lambda t, x, u: u[:1])),
        problem_of(model, costs.control() + near, system=ControlSystem.of_model(model, DT)),
        problem_of(arm, costs.forces(arm)),  # one tree
    ]
    assert [independent_parts(problem) for problem in together] == [()] * len(together)


# ---- the same regulator
@pytest.mark.parametrize(
    ("dtype", "tolerance", "bounds"),
    [("float64", 1e-11, None), ("float64", 1e-11, (-0.5, 0.5)), ("float32", 1e-4, None)],
)
def test_the_regulator_of_parts_is_that_of_the_whole(dtype, tolerance, bounds, monkeypatch):
    problem = usual(crowd().astype(dtype), bounds=bounds)
    n, system, size = problem.dim // 2, problem.system, 3
    draw = lambda *shape: jnp.asarray(0.3 * RNG.normal(size=shape), dtype)
    states = jax.vmap(jax.vmap(lambda x: system.retract(problem.start, x)))(draw(size, STEPS + 1, 2 * n))
    controls, weight = jnp.clip(draw(size, STEPS, n), problem.lower, problem.upper), jnp.asarray(0.1, dtype)

    def found():
        one = lambda states, controls: search.regulator_of(
            problem, *expand(problem, states, controls), controls, weight
        )
        return jax.vmap(one)(states, controls)

    alone = jax.jit(lambda: found())()
    asked = []
    monkeypatch.setattr(search, "independent_parts", lambda problem: asked.append(problem) or ())
    whole = jax.jit(lambda: found())()
    assert asked
    for a, expected in zip(alone, whole, strict=True):
        np.testing.assert_allclose(a, expected, atol=tolerance * np.abs(expected).max())
    for part in independent_parts(problem):
        others = np.delete(alone.feedback, part.states, -1)[..., list(part.controls), :]
        np.testing.assert_array_equal(others, 0)


def test_a_part_without_a_minimum_stops_the_search():
    """Its cost falls without end; the other's has a minimum."""
    model = crowd()
    problem = usual(model)
    parts = independent_parts(problem)
    states = jax.tree.map(lambda x: jnp.stack([x] * (STEPS + 1)), problem.start)

    @jax.jit
    def stopped():
        rest = jnp.zeros((STEPS, model.nv))
        e, last = expand(problem, states, rest, None)
        falling = e._replace(luu=jnp.zeros((STEPS, model.nv, model.nv)).at[:, 0, 0].set(-1e6))
        return search.regulator_of(problem, falling, last, rest, jnp.zeros(()))

    found = stopped()
    assert not np.isfinite(found.curvature)
    assert not np.any(np.isfinite(found.feedforward[:, list(parts[0].controls)]))
    assert np.all(np.isfinite(found.feedforward[:, list(parts[1].controls)]))


def test_two_arms_in_one_model_move_as_each_alone():
    arm = lambda name: [
        trees.body(f"{name} upper", None, "revolute", 21),
        trees.body(f"{name} tip", f"{name} upper", "revolute", 22),
    ]
    goals = {"left": [0.3, 0.1, 0.2], "right": [-0.2, 0.3, 0.1]}

    def found(*names):
        model = lgjax.build([body for name in names for body in arm(name)])
        home = lgjax.neutral(model), jnp.zeros(model.nv)
        ends = [30.0 * costs.frame_position(model, f"{name} tip", goals[name]) for name in names]
        terminal = sum(ends[1:], ends[0]) + costs.state(model, home, 0.3)
        given = {"running": costs.forces(model), "terminal": terminal, "steps": STEPS, "progress": False}
        return lgjax.optimize_controls(
            ControlSystem.of_accelerations(model, DT),
            home,
            np.zeros((1, STEPS, model.nv)),
            method=FDDP(tolerance=1e-9),
            **given,
        )

    both, left, right = found("left", "right"), found("left"), found("right")
    assert both.success.all()
    np.testing.assert_allclose(both.cost, left.cost + right.cost, rtol=1e-10)
    np.testing.assert_allclose(both.controls, np.concatenate([left.controls, right.controls], -1), atol=1e-5)


# ---- pieces of arrays
INDICES = [(0, 1, 2), (3, 4), (0, 2, 5), (1, 2, 4, 5, 6), (6,), tuple(range(7))]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_pieces_are_those_of_numpy(index):
    x = jnp.asarray(RNG.normal(size=(7, 7, 2)))
    for axis in (0, 1):
        np.testing.assert_array_equal(cut(x, axis, index), np.take(x, index, axis))
        rest = [k for k in range(7) if k not in index]
        whole = spread(cut(x, axis, index), axis, index, 7)
        np.testing.assert_array_equal(np.take(whole, index, axis), np.take(x, index, axis))
        np.testing.assert_array_equal(np.take(whole, rest, axis), 0)
        rows = [jnp.asarray(x)[np.asarray(some, int)] for some in (index, rest)]
        np.testing.assert_array_equal(together(rows, [index, rest]), x)
    np.testing.assert_array_equal(block(x, index, (1, 3)), x[np.ix_(index, (1, 3))])


def test_blocks_of_sparse_matrices_are_those_of_the_array():
    known = RNG.normal(size=(6, 6))
    matrix = Sparse([jnp.asarray(RNG.normal(size=(2, 3))), jnp.ones((1, 2))], Pattern(known, ((1, 0), (4, 4))))
    for rows, columns in [((0, 1, 2), (0, 1, 2)), ((1, 2, 4, 5), (0, 1, 2, 4, 5)), ((0, 3), (3,)), ((4,), (3, 4, 5))]:
        np.testing.assert_array_equal(dense(block(matrix, rows, columns)), dense(matrix)[np.ix_(rows, columns)])


def test_blocks_of_diagonals_are_those_of_the_array():
    matrix = Diagonal(jnp.asarray(RNG.normal(size=6)), (jnp.asarray(RNG.normal(size=(2, 2))), jnp.ones((1, 1))), (1, 4))
    for index in [(0, 1, 2), (1, 2, 4, 5), (0, 3), (3, 4)]:
        np.testing.assert_array_equal(dense(block(matrix, index, index)), dense(matrix)[np.ix_(index, index)])


def test_columns_of_a_part_are_those_of_its_own_matrix():
    A, part = jnp.asarray(RNG.normal(size=(8, 8))), Part((0, 2, 4, 6), (0, 2))
    own = columns_of(Columns(0.5, 4, 8), part).of(block(A, part.states, part.states), 1)
    np.testing.assert_array_equal(own, block(Columns(0.5, 4, 8).of(A, 1), part.states, part.controls))


def test_what_groups_join_is_one_set():
    assert connected(6, [(0, 2), (3, 4), (2, 5)]) == [[0, 2, 5], [1], [3, 4]]
    assert connected(3, []) == [[0], [1], [2]]
    assert connected(4, [(0, 1), (2, 3), (1, 2), ()]) == [[0, 1, 2, 3]]
