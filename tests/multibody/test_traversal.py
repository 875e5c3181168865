"""The layout runs every body once, after its parent and before its children."""

import numpy as np
import pytest

from lgjax.multibody.layout import layout
from lgjax.multibody.traversal import Walk
from tests.dynamics import trees

SHAPES = {
    **{f"random {seed}": (seed, 1 + 3 * seed, seed % 2 == 0) for seed in range(12)},
}


def tree_of(name):
    if name in trees.TREES:
        return trees.model(name).tree
    seed, n, floating = SHAPES[name]
    return trees.models.random_tree(seed, n, floating, ("revolute", "prismatic", "continuous")).tree


def lanes(runs):
    """(run, body) of every lane that is not idle, in the order in which they run."""
    for run in runs:
        for row in range(run.length):
            for group in run.groups:
                for lane in range(group.width):
                    if group.alive[row, lane]:
                        yield run, group, row, lane


@pytest.mark.parametrize("name", [*SHAPES, *trees.TREES])
def test_every_body_runs_once_after_its_parent(name):
    tree = tree_of(name)
    order = [group.bodies[row][lane] for _, group, row, lane in lanes(layout(tree))]
    assert sorted(order) == list(range(tree.nbodies))
    position = {-1: -1} | {body: n for n, body in enumerate(order)}
    assert all(position[tree.parents[body]] < position[body] for body in order)


@pytest.mark.parametrize("name", [*SHAPES, *trees.TREES])
def test_lanes_follow_the_tree(name):
    """Inside a run the row above holds the parent; at its top `parents` names the parent's lane in the run before."""
    tree = tree_of(name)
    before: list[int] = []
    for run in layout(tree):
        for group in run.groups:
            assert all(len(row) == group.width for row in group.bodies)
            assert len(group.bodies) == run.length
            assert all(tree.kinds[b].family == group.kind.family for row in group.bodies for b in row)
            for above, row in zip(group.bodies, group.bodies[1:], strict=False):
                assert all(tree.parents[b] == a or a == b for a, b in zip(above, row, strict=True))
        top = [body for group in run.groups for body in group.bodies[0]]
        assert len(run.parents) == len(top)
        if before:
            assert [before[lane] for lane in run.parents] == [tree.parents[body] for body in top]
        before = [body for group in run.groups for body in group.bodies[-1]]


def test_a_chain_of_one_kind_is_one_run():
    assert [run.length for run in layout(trees.models.chain(7).tree)] == [7]


@pytest.mark.parametrize("name", ["random 7", "forest"])
@pytest.mark.parametrize("execution", ["plain", "scalarised"])
def test_data_by_group_comes_back_in_body_order(name, execution):
    """What goes in by body and by velocity comes out in the same places."""
    tree = tree_of(name)
    walk = Walk(tree, np.dtype(float), execution)
    values = np.random.default_rng(0).normal(size=(tree.nbodies, 2, 3))
    np.testing.assert_array_equal(walk.to_bodies(walk.bodies(values)), values)
    v = np.arange(1.0, tree.nv + 1)
    np.testing.assert_array_equal(walk.to_velocities(walk.velocities(trees.jnp.asarray(v))), v)


@pytest.mark.parametrize("name", ["random 7", "star", "forest"])
@pytest.mark.parametrize("execution", ["plain", "scalarised"])
def test_recursions_visit_paths_and_subtrees(name, execution):
    """Outward sums give the sum over each path from the world, inward sums that over each subtree."""
    tree = tree_of(name)
    walk = Walk(tree, np.dtype(float), execution)
    own = np.random.default_rng(0).integers(1, 1000, size=(tree.nbodies, 1)).astype(float)
    add = lambda kind, carry, x: (carry + x, carry + x)
    paths = walk.to_bodies(walk.outward(add, np.zeros(1), walk.bodies(own)))
    np.testing.assert_array_equal(paths[:, 0], [sum(own[b, 0] for b in path) for path in tree.ancestors])
    subtrees = walk.to_bodies(walk.inward(add, np.zeros(1), walk.bodies(own)))
    expected = [sum(own[b, 0] for b in range(tree.nbodies) if a in tree.ancestors[b]) for a in range(tree.nbodies)]
    np.testing.assert_array_equal(subtrees[:, 0], expected)
