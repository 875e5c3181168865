"""The layout runs every body once, after its parent and before its children."""

from itertools import pairwise

import numpy as np
import pytest

import lgjax
from lgjax.dynamics.traversal.layout import layout
from lgjax.dynamics.traversal.traversal import TreeTraversal
from tests.dynamics import trees

SHAPES = {
    **{f"random {seed}": (seed, 1 + 3 * seed, seed % 2 == 0) for seed in range(12)},
}


# name of a body -> that of its parent
GROWN = {
    "limbs": {"base": None, "trunk0": "base", "trunk1": "trunk0"}
    | {f"leg{n}.{k}": f"leg{n}.{k - 1}" if k else "base" for n in range(2) for k in range(6)}
    | {f"arm{n}.{k}": f"arm{n}.{k - 1}" if k else "trunk1" for n in range(2) for k in range(7)},
    "handed on": {f"long{k}": f"long{k - 1}" if k else None for k in range(7)}
    | {"short0": None, "short1": "short0", "twin0": "short1", "twin1": "short1"},
}
NAMES = [*SHAPES, *GROWN, *trees.TREES]


def tree_of(name):
    if name in GROWN:
        kinds = ["free" if body == "base" else "revolute" for body in GROWN[name]]
        rows = enumerate(zip(GROWN[name].items(), kinds, strict=True))
        return lgjax.build([trees.body(body, parent, kind, n) for n, ((body, parent), kind) in rows]).tree
    if name in trees.TREES:
        return trees.model(name).tree
    seed, n, floating = SHAPES[name]
    return trees.models.random_tree(seed, n, floating, ("revolute", "prismatic", "continuous")).tree


def order_of(runs):
    """The bodies in the order in which they run, without those that idle lanes repeat."""
    return [b for run in runs for row, alive in zip(run.bodies, run.alive, strict=True) for b in np.array(row)[alive]]


@pytest.mark.parametrize("name", NAMES)
def test_every_body_runs_once_after_its_parent(name):
    tree = tree_of(name)
    order = order_of(layout(tree))
    assert sorted(order) == list(range(tree.nbodies))
    position = {-1: -1} | {body: n for n, body in enumerate(order)}
    assert all(position[tree.parents[body]] < position[body] for body in order)


@pytest.mark.parametrize("name", NAMES)
def test_lanes_follow_the_tree(name):
    """Inside a run the row above holds the parent; at its top `parents` names its lane, which has not ended."""
    tree = tree_of(name)
    runs = layout(tree)
    for number, run in enumerate(runs):
        assert all(len(row) == run.width for row in run.bodies)
        assert all(tree.kinds[b].family == run.kind.family for row in run.bodies for b in row)
        for above, row in pairwise(run.bodies):
            assert all(tree.parents[b] == a or a == b for a, b in zip(above, row, strict=True))
        above = [tree.parents[body] for body in run.bodies[0]]
        if not run.parents:
            assert set(above) == {-1}
            continue
        assert [runs[at].bodies[-1][lane] for at, lane in run.parents] == above
        assert all(at < number and runs[at].alive[-1, lane] for at, lane in run.parents)


def test_a_chain_of_one_kind_is_one_run():
    assert [run.length for run in layout(trees.models.chain(7).tree)] == [7]


def test_limbs_run_side_by_side_though_they_start_at_different_depths():
    assert [(run.length, run.width) for run in layout(tree_of("limbs"))] == [(1, 1), (2, 1), (7, 4)]


def test_a_chain_with_children_does_not_idle_beside_a_longer_one():
    """Its end is handed to its children, so the longer one is cut there."""
    assert [(run.length, run.width) for run in layout(tree_of("handed on"))] == [(2, 2), (5, 1), (1, 2)]


@pytest.mark.parametrize("name", ["random 7", "forest"])
def test_data_by_run_comes_back_in_body_order(name):
    """What goes in by body and by velocity comes out in the same places."""
    tree = tree_of(name)
    walk = TreeTraversal(tree, np.dtype(float))
    values = np.random.default_rng(0).normal(size=(tree.nbodies, 2, 3))
    np.testing.assert_array_equal(walk.to_bodies(walk.bodies(values)), values)
    v = np.arange(1.0, tree.nv + 1)
    np.testing.assert_array_equal(walk.to_velocities(walk.velocities(trees.jnp.asarray(v))), v)


@pytest.mark.parametrize("name", ["random 7", "star", "forest", "random 10", *GROWN])
def test_recursions_visit_paths_and_subtrees(name):
    """Outward sums give the sum over each path from the world, inward sums that over each subtree."""
    tree = tree_of(name)
    walk = TreeTraversal(tree, np.dtype(float))
    own = np.random.default_rng(0).integers(1, 1000, size=(tree.nbodies, 1)).astype(float)
    add = lambda kind, carry, x: (carry + x, carry + x)
    paths = walk.to_bodies(walk.outward(add, np.zeros(1), walk.bodies(own)))
    np.testing.assert_array_equal(paths[:, 0], [sum(own[b, 0] for b in path) for path in tree.ancestors])
    subtrees = walk.to_bodies(walk.inward(add, np.zeros(1), walk.bodies(own)))
    expected = [sum(own[b, 0] for b in range(tree.nbodies) if a in tree.ancestors[b]) for a in range(tree.nbodies)]
    np.testing.assert_array_equal(subtrees[:, 0], expected)
