"""A model is built right, and bad descriptions are refused with a message that names the body and the value."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import lgjax
from lgjax import Body, Joint, build, models
from lgjax.multibody.build import rotation_to

EYE = np.eye(3)


def rod(name="a", parent=None, kind="revolute", **changes):
    return replace(Body(name, parent, Joint(f"{name}_joint", kind), mass=1.0, inertia=0.1 * EYE), **changes)


def with_joint(body, **changes):
    return replace(body, joint=replace(body.joint, **changes))


BAD = {
    "cycle": ([rod("r"), rod("a", "b"), rod("b", "a")], "form a cycle that never reaches the world: a, b"),
    "missing parent": ([rod("a", "ghost")], "body 'a': its parent 'ghost' does not exist"),
    "two bodies": ([rod("a"), rod("a")], "two bodies are named 'a'"),
    "two joints": ([rod("a"), with_joint(rod("b"), name="a_joint")], "two joints are named 'a_joint'"),
    "negative mass": ([rod(mass=-2.0)], r"mass of body 'a' is negative: -2\.0"),
    "triangle inequality": (
        [rod(inertia=np.diag([1.0, 1, 3]))],
        "inertia of body 'a' breaks the triangle inequality",
    ),
    "indefinite": ([rod(inertia=np.diag([-1.0, 1, 1]))], "inertia of body 'a' is not positive semi-definite"),
    "not symmetric": ([rod(inertia=EYE + np.eye(3, k=1))], "inertia of body 'a' is not symmetric"),
    "NaN": ([rod(com=np.array([0, np.nan, 0]))], r"center of mass of body 'a' is not finite: \[0\.0, nan, 0\.0\]"),
    "wrong shape": ([rod(position=np.zeros(2))], r"position of body 'a' has shape \(2,\), expected \(3,\)"),
    "unknown type": ([rod(kind="hinge")], "joint 'a_joint' of body 'a': unknown type 'hinge'; known: revolute"),
    "no axis": ([with_joint(rod(), axis=(0.0, 0.0, 0.0))], "axis of joint 'a_joint' of body 'a' has no direction"),
    "no rotation": ([rod(rotation=2 * EYE)], "rotation of body 'a' is not a rotation"),
    "reflection": ([rod(rotation=-EYE)], "rotation of body 'a' is not a rotation"),
    "massless": ([rod(mass=0.0, inertia=0 * EYE)], "mass of body 'a' is zero and it carries no other body"),
    "free inside": ([rod("a"), rod("b", "a", "free")], "body 'b': a free joint hangs on the world, not on 'a'"),
    "nothing moves": ([rod(kind="fixed")], "has no moving body"),
    "negative damping": ([with_joint(rod(), damping=-1.0)], "damping of joint 'a_joint' is not a non-negative number"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_descriptions_are_refused_by_name(name):
    bodies, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        build(bodies)


def test_published_data_that_break_the_triangle_inequality_can_be_accepted():
    with pytest.warns(UserWarning, match="body 'a' breaks the triangle inequality"):
        build([rod(inertia=np.diag([1.0, 1, 3]))], check_inertia="warn")
    with pytest.raises(ValueError, match="check_inertia must be one of error, warn, got 'ignore'"):
        build([rod()], check_inertia="ignore")


def test_equality_in_the_triangle_inequality_and_point_masses_are_allowed():
    flat = build([rod(inertia=np.diag([1.0, 1, 2]), com=np.array([0.5, 0, 0]))])
    about_origin = flat.placements.rotation[0] @ flat.inertias.rotational[0] @ flat.placements.rotation[0].T
    np.testing.assert_allclose(about_origin, np.diag([1.0, 1.25, 2.25]), atol=1e-15)
    com = np.array([-1.6e-4, -0.0257, 0.0])
    point = build([rod(inertia=0 * EYE, com=com, mass=0.21)])
    np.testing.assert_allclose(point.placements.rotation[0] @ point.inertias.moment[0], 0.21 * com, atol=1e-17)
    assert lgjax.total_energy(point, lgjax.neutral(point), np.ones(1)) == pytest.approx(
        0.21 * (0.5 * np.sum(np.cross([0, 0, 1.0], com) ** 2) + 9.81 * com[2]), abs=1e-15
    )


def test_bodies_are_numbered_depth_first_with_children_in_the_order_given():
    model = build([rod("b1", "b"), rod("a"), rod("b"), rod("a1", "a"), rod("a2", "a")])
    assert model.body_names == ("a", "a1", "a2", "b", "b1")
    assert model.tree.parents == (-1, 0, 0, -1, 3)


def test_a_link_on_a_fixed_joint_is_merged_and_keeps_its_frame():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    rotation *= np.linalg.det(rotation)
    tip = rod(
        "tip", "a", "fixed", rotation=rotation, position=np.array([1.0, 2, 3]), mass=2.0, com=np.array([0.1, 0, 0])
    )
    model = build([rod("a"), tip])
    assert model.tree.frames == (("tip", 0),)
    np.testing.assert_allclose(model.inertias.mass, [3.0], rtol=1e-14)
    np.testing.assert_allclose(model.frames.translation[0], [1, 2, 3], atol=1e-14)
    com = rotation @ [0.1, 0, 0] + [1, 2, 3]
    np.testing.assert_allclose(model.inertias.moment[0], 2 * com, rtol=1e-13)
    second = 0.2 * EYE + 2 * (com @ com * EYE - np.outer(com, com))
    np.testing.assert_allclose(model.inertias.rotational[0], second, rtol=1e-13)


SIZES = {
    "quadruped": (13, 18),
    "arm": (7, 7),
    "chain:4": (4, 4),
    "branched_tree:5x20": (101, 106),
    "random_tree:30": (30, 35),
    "aerial_manipulator": (7, 12),
}


@pytest.mark.parametrize("name", SIZES)
def test_built_in_models_have_their_sizes(name):
    model = models.by_name(name)
    assert (model.nbodies, model.nv) == SIZES[name]


def test_models_by_name_refuse_what_they_do_not_know():
    with pytest.raises(ValueError, match="unknown model 'horse'; built in: quadruped, arm, chain:N"):
        models.by_name("horse")
    with pytest.raises(ValueError, match="model 'chain' is not of the form chain:N"):
        models.by_name("chain")
    with pytest.raises(ValueError, match="'branched_tree:5' is not of the form branched_tree:BxL"):
        models.by_name("branched_tree:5")
    with pytest.raises(ValueError, match="model 'arm' has a base of its own"):
        models.by_name("arm", floating_base=True)
    with pytest.raises(ValueError, match="n is 0, expected an integer of at least 1"):
        models.chain(0)


def test_a_chain_can_float():
    assert models.by_name("chain:4", floating_base=True).nv == 6 + 3


def test_a_random_tree_is_decided_by_its_key():
    kinds = ("revolute", "prismatic")
    plain, same = models.random_tree(7, 12), models.random_tree(np.int64(7), 12, armature=0.1, damping=0.2)
    assert plain.tree == same.tree
    assert plain.tree.parents == (-1, 0, 1, 2, 1, 4, 0, 6, 0, 8, 8, 10), "a change here changes published results"
    typed, raw = models.random_tree(jax.random.key(7), 12), models.random_tree(jax.random.PRNGKey(7), 12)
    jax.tree.map(np.testing.assert_array_equal, typed, raw)
    assert {kind.name for kind in plain.tree.kinds} == {"free", *kinds}
    assert np.all(np.asarray(same.armature[:6]) == 0)
    assert np.all((np.asarray(same.damping[6:]) > 0) & (np.asarray(same.damping[6:]) <= 0.2))
    fixed = models.random_tree(7, 12, floating_base=False, kinds=["revolute"])
    assert {kind.name for kind in fixed.tree.kinds} == {"revolute"}


def test_models_carry_the_dtype_that_is_asked_for():
    assert models.arm().dtype == np.float64
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(models.arm().astype("float32")))
    assert build([rod()], dtype="float32").dtype == np.float32


def test_configurations_are_checked():
    model = models.quadruped()
    with pytest.raises(ValueError, match=r"joints has shape \(3,\), this model takes \(12,\)"):
        lgjax.configuration(model, joints=np.zeros(3))
    with pytest.raises(ValueError, match="no scalar joint 'knee' in 'quadruped'; joints: FL_hip_joint"):
        lgjax.configuration(model, joints={"knee": 1.0})
    with pytest.raises(ValueError, match="base rotation is not a rotation"):
        lgjax.configuration(model, base=lgjax.Pose(2 * EYE, np.zeros(3)))
    with pytest.raises(ValueError, match="joints is not finite"):
        lgjax.configuration(model, joints=np.full(12, np.nan))


AXES = [(0, 0, 1), (0, 0, -1), (1, 0, 0), (0, -1, 0), (3, -2, 6), (-1, 4, -8)]
AXES += [(x, -0.5 * x, z) for x in (1e-3, 1e-6, 1e-8, 1e-12, 1e-200) for z in (1, -1)]


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_the_rotation_to_an_axis_is_the_shortest_one(axis):
    axis = np.array(axis) / np.linalg.norm(axis)
    rotation = rotation_to(axis)
    np.testing.assert_array_equal(rotation[:, 2], axis)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-15)
    assert np.linalg.det(rotation) > 0
    # The shortest turns by the angle between z and the axis: its trace is 1 + 2 cos; it turns about a normal of z.
    np.testing.assert_allclose(np.trace(rotation), 1 + 2 * axis[2], atol=1e-15)
    np.testing.assert_allclose(rotation[0, 1], rotation[1, 0], atol=1e-15)
