"""Joints of every kind against Pinocchio, nested forward-mode differentiation and the conditions on their maps.

The sentences of test_identities.py, on a random tree that mixes all kinds, are in that file ("every joint").
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import Joint, Pose
from lgjax.dynamics.traversal.layout import layout
from lgjax.multibody import conventions as flat
from lgjax.multibody.joints import CYLINDRICAL, HELICAL, PLANAR, PRISMATIC, REVOLUTE, UNIVERSAL
from tests.dynamics import trees
from tests.dynamics.test_high_orders import Motion, rate
from tests.oracles import pinocchio_trees as oracle

STATES = 6
TIP = 6  # the body whose Jacobian is compared


# ---- maps and their motion subspaces
@pytest.mark.parametrize("kind", [REVOLUTE, PRISMATIC, HELICAL, CYLINDRICAL, UNIVERSAL, PLANAR], ids=repr)
def test_the_subspace_is_the_derivative_of_the_map(kind):
    """The library's own kinds pass the check of those of users, which also finds whether S is constant."""
    screw = lambda q: jnp.asarray([1, 0.3], q.dtype)
    same = lgjax.joint_kind(
        kind.name,
        lambda q: Pose(*kind.transform(q, screw(q))),
        lambda q: jnp.concatenate(kind.subspace(q, screw(q))),
        kind.nv,
    )
    assert same.varying == kind.varying


def off(what: str, size: float):
    """The rail with something wrong in it."""

    def transform(q):
        R, p = trees.rail(q)
        R, p = (R * (1 + size), p) if what == "rotation" else (R, p * (1 + size) if what == "map" else p)
        return Pose(jnp.log(q[0]) * R if what == "range" else R, p)

    def subspace(q):
        S = trees.rail_motions(q)
        return S.at[3, 0].multiply(1 + size) if what == "subspace" else S

    return transform, subspace


WRONG = {
    "subspace": (off("subspace", 0.01), 2, r"'rail': the subspace is not the derivative of the map: .* entry \[3, 0\]"),
    "map": (off("map", 0.01), 2, r"'rail': the subspace is not the derivative of the map: at q=\[.*a difference of 0"),
    "no rotation": (
        off("rotation", 0.01),
        2,
        r"'rail': the rotation at q=.* is not a rotation: .* entry of 0\.0201",
    ),
    "not finite": (off("range", 0.0), 2, r"'rail': the rotation at q=\[0\.0, 0\.0\] is not finite"),
    "size": (
        (trees.rail, lambda q: trees.rail_motions(q)[:, :1]),
        2,
        r"the subspace is float32\[6, 1\] .* expected float32\[6, 2\]",
    ),
    "dtype": (
        (lambda q: jax.tree.map(lambda x: x.astype(jnp.float32), trees.rail(q)), trees.rail_motions),
        2,
        r"the rotation is float32\[3, 3\] for float64 coordinates",
    ),
    "seven": ((trees.rail, trees.rail_motions), 7, "nv is 7, expected an integer from 1 to 6"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_map_that_does_not_fit_its_subspace_is_refused_by_name(name):
    (transform, subspace), nv, message = WRONG[name]
    with pytest.raises(ValueError, match=message) as caught:
        lgjax.joint_kind("rail", transform, subspace, nv)
    assert "\n" not in str(caught.value)


def test_kinds_can_be_checked_where_their_maps_exist():
    """Half of a circle, x = q, y = sqrt(1 - q^2): beyond q = 1 there is no such point."""

    def transform(q):
        y = jnp.sqrt(1 - q[0] * q[0])
        return Pose(jnp.eye(3, dtype=q.dtype), jnp.stack([q[0], y, 0 * y]))

    def subspace(q):
        slope = -q[0] / jnp.sqrt(1 - q[0] * q[0])
        return jnp.stack([0 * slope, 0 * slope, 0 * slope, 1 + 0 * slope, slope, 0 * slope])[:, None]

    assert lgjax.joint_kind("arc", transform, subspace, 1, samples=[[-0.9], [0.0], [0.9]]).varying
    with pytest.raises(ValueError, match=r"'arc': the translation at q=\[2\.0\] is not finite"):
        lgjax.joint_kind("arc", transform, subspace, 1, samples=[[0.0], [2.0]])
    with pytest.raises(ValueError, match=r"samples has shape \(2,\), expected \(n, 1\)"):
        lgjax.joint_kind("arc", transform, subspace, 1, samples=[0.0, 0.5])


BAD_JOINTS = {
    "pitch": ({"kind": "revolute", "pitch": 0.1}, "only a helical joint has a pitch"),
    "axes": (
        {"kind": "universal", "second_axis": (0.0, 1.0, 1.0)},
        "not perpendicular to the first: their cosine is 0.7",
    ),
    "no axis": ({"kind": "planar", "second_axis": (0.0, 0.0, 0.0)}, "second axis of joint .* has no direction"),
    "entries": (
        {"kind": "universal", "damping": (1.0, 2.0, 3.0)},
        "damping of joint 'j' has 3 entries, expected one or 2",
    ),
    "negative": ({"kind": "universal", "armature": (1.0, -2.0)}, r"armature of joint 'j' is not a non-negative number"),
    "coordinates": (
        {"kind": lgjax.multibody.JointKind("odd", 1, 2, "joints", PLANAR.transform, PLANAR.subspace)},
        "joint 'j': <joint kind odd> has 1 scalar coordinates and 2 velocities",
    ),
    "pitch not finite": ({"kind": "helical", "pitch": np.nan}, "pitch of joint 'j' is not finite"),
}


@pytest.mark.parametrize("name", BAD_JOINTS)
def test_bad_joints_are_refused_by_name(name):
    given, message = BAD_JOINTS[name]
    body = trees.body("a", None, "revolute", 1)
    with pytest.raises(ValueError, match=message):
        lgjax.build([lgjax.Body("a", None, Joint("j", **given), mass=1.0, inertia=body.inertia)])


def test_axes_limits_and_passive_forces_of_joints_with_several_coordinates():
    joint = Joint(
        "j", "universal", (0.0, 1.0, 0.0), second_axis=(0.0, 0.0, 2.0),
        lower=(-1.0, -2.0), upper=3.0, damping=(0.1, 0.2),
    )  # fmt: skip
    model = lgjax.build([lgjax.Body("a", None, joint, mass=1.0, inertia=np.eye(3))])
    assert model.lower.tolist() == [-1, -2]
    assert model.upper.tolist() == [3, 3]
    assert model.damping.tolist() == [0.1, 0.2]
    turned = lambda *q: lgjax.forward_kinematics(model, lgjax.configuration(model, joints={"j": q})).rotation[0]
    np.testing.assert_allclose(turned(0.3, 0.0) @ np.eye(3)[1], np.eye(3)[1], atol=1e-15)
    np.testing.assert_allclose(turned(0.0, 0.4) @ np.eye(3)[2], np.eye(3)[2], atol=1e-15)
    with pytest.raises(ValueError, match=r"joint 'j' has shape \(1,\), this model takes \(2,\)"):
        turned(0.3)


# ---- where bodies go: kinds of users that share a name, and one that is made twice
def test_kinds_of_one_name_are_told_apart_and_equal_kinds_share_their_lanes():
    other = lgjax.joint_kind("rail", lambda q: trees.rail(2 * q), lambda q: 2 * trees.rail_motions(2 * q), 2)
    again = lgjax.joint_kind("rail", trees.rail, trees.rail_motions, 2)
    kinds = [trees.RAIL, other, again]
    model = lgjax.build([trees.body(f"{i}", None, kind, i) for i, kind in enumerate(kinds)])
    assert [run.bodies for run in layout(model.tree)] == [((0, 2),), ((1,),)]
    q = lgjax.configuration(model, joints=np.arange(6.0) / 5)
    alone = [lgjax.build([trees.body(f"{i}", None, kind, i)]) for i, kind in enumerate(kinds)]
    poses = [lgjax.forward_kinematics(m, lgjax.configuration(m, joints=q.joints[2 * i : 2 * i + 2]))
             for i, m in enumerate(alone)]  # fmt: skip
    together = lgjax.forward_kinematics(model, q)
    for i, pose in enumerate(poses):
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b[0], atol=1e-15), together, pose)


# ---- Pinocchio
@cache
def mixed():
    """The kinds that Pinocchio has, two free bases, nothing passive."""
    kinds = trees.JOINTS[:-1]
    bodies = [trees.body("base", None, "free", 0), trees.body("other", None, "free", 1)]
    parents = ("base", "other", "0", "base", "2", "3", "2")
    for i, (kind, parent) in enumerate(zip(kinds, parents, strict=True)):
        bodies.append(trees.body(f"{i}", parent, kind, i + 2, pitch=0.2 * (kind == "helical")))
    model = lgjax.build(bodies, "mixed")
    eye = jnp.broadcast_to(jnp.eye(3), model.links.rotation.shape)
    model = model.replace(links=Pose(eye, jnp.zeros_like(model.links.translation)))  # poses of the joint frames
    return model, oracle.pinocchio_tree(model)


@cache
def states():
    return trees.random_states(mixed()[0], STATES)


@cache
def by_pinocchio():
    model, theirs = mixed()
    q, v, vdot, tau, _ = states()
    flat_state = jax.tree.map(np.asarray, flat.to_pinocchio(model, q, v, vdot, tau))
    rows = [oracle.answers(theirs, *(x[i] for x in flat_state), TIP) for i in range(STATES)]
    found = oracle.Answers(*(jnp.asarray(np.stack(column)) for column in zip(*rows, strict=True)))
    back = flat.from_pinocchio(model, flat_state.q, flat_state.v, found.forward_dynamics, found.inverse_dynamics)
    return jax.tree.map(np.asarray, found._replace(forward_dynamics=back.vdot, inverse_dynamics=back.tau))


def ours(model, q, v, vdot, tau):
    poses = lgjax.forward_kinematics(model, q)
    twist = lgjax.jacobian(model, q, TIP) @ v
    return oracle.Answers(
        lgjax.forward_dynamics(model, q, v, tau),
        lgjax.inverse_dynamics(model, q, v, vdot),
        poses.rotation,
        poses.translation,
        jnp.concatenate([twist[3:], twist[:3]]),
    )


@pytest.mark.parametrize("dtype", [jnp.float64, pytest.param(jnp.float32, marks=pytest.mark.slow)], ids=["f64", "f32"])
def test_agrees_with_pinocchio(dtype):
    cast = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)
    q, v, vdot, tau, _ = states()
    got = jit(jax.vmap(ours, (None, 0, 0, 0, 0)))(cast(mixed()[0]), *cast((q, v, vdot, tau)))
    assert {x.dtype for x in got} == {jnp.dtype(dtype)}
    gaps = jax.tree.map(
        lambda a, b: float(np.abs(np.asarray(a, float) - b).max() / np.abs(b).max()), got, by_pinocchio()
    )
    assert max(gaps) < (1e-10 if dtype == jnp.float64 else 2e-4), gaps


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32], ids=["f64", "f32"])
def test_states_go_to_pinocchio_and_back(dtype):
    model = mixed()[0].astype(dtype)
    q, v, vdot, tau, _ = jax.tree.map(lambda x: jnp.asarray(x, dtype), states())
    back = flat.from_pinocchio(model, *flat.to_pinocchio(model, q, v, vdot, tau))
    for a, b in zip(jax.tree.leaves(tuple(back)), jax.tree.leaves((q, v, vdot, tau)), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, atol=100 * float(jnp.finfo(dtype).eps))
    with pytest.raises(ValueError, match="accelerations of planar joints depend on the velocity: give v as well"):
        flat.to_pinocchio(model, q, None, vdot)


# ---- derivatives in time
@cache
def bent(dtype=jnp.float64):
    """Joints whose motion subspaces vary, one after the other."""
    bodies = [trees.body("a", None, "planar", 1, armature=0.1), trees.body("b", "a", trees.RAIL, 2, damping=0.1)]
    return lgjax.build(bodies, "bent").astype(dtype)


@cache
def along(order: int):
    """A start, derivatives of velocity, wrenches and forces along a motion, by nested forward mode."""
    motion, t = Motion(bent(), 0), jnp.asarray(0.1)

    def nested(f, order):
        stack = [f]
        for _ in range(order):
            stack.append(rate(stack[-1]))
        return jnp.stack([f(t) for f in stack])

    functions = motion.body_velocity, motion.wrenches, motion.body_forces
    found = jit(lambda: [nested(f, n) for f, n in zip(functions, (order + 1, order, order), strict=True)])()
    return motion.q(t), *found


def gap(a, b):
    """Largest error of each order relative to the largest entry of that order."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return np.max(np.abs(a - b), -1) / np.max(np.abs(b), -1)


@pytest.mark.parametrize("frame", ["body", "spatial"])
@pytest.mark.parametrize(
    ("order", "prescribed"),
    [(2, ()), pytest.param(2, (0, 2, 4), marks=pytest.mark.slow), pytest.param(4, (), marks=pytest.mark.slow)],
)
def test_time_derivatives_are_those_of_nested_jvp(order, prescribed, frame):
    """Of inverse, forward and hybrid dynamics, where parts of joints are prescribed."""
    model = bent()
    chosen = np.isin(np.arange(model.nv), prescribed)
    q, v, wrenches, tau = along(order)

    @jit
    def solve(q, v, tau, w):
        known = jnp.where(chosen, v[1:], jnp.nan), jnp.where(chosen, jnp.nan, tau)  # the others are not read
        return (
            lgjax.inverse_dynamics_time_derivatives(model, q, v, order, frame, w),
            *lgjax.hybrid_dynamics_time_derivatives(model, q, v[0], *known, prescribed, frame, w),
        )

    forces, accelerations, found = solve(q, v, tau, wrenches)
    assert np.all(gap(forces, tau) < 1e-12)
    assert np.all(gap(accelerations, v[1:]) < 1e-10)
    assert np.all(gap(found, tau) < 1e-10)


@pytest.mark.parametrize("frame", ["body", pytest.param("spatial", marks=pytest.mark.slow)])
def test_single_precision_goes_there_and_back(frame):
    model = bent(jnp.float32)
    q, v, wrenches, _ = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), along(2))

    def there_and_back(q, v, w):
        tau = lgjax.inverse_dynamics_time_derivatives(model, q, v, 2, frame, w)
        return lgjax.forward_dynamics_time_derivatives(model, q, v[0], tau, frame, w)

    found = jit(there_and_back)(q, v, wrenches)
    assert found.dtype == jnp.float32
    assert np.all(gap(found, v[1:]) < 2e-3)


# ---- derivatives in space
STEP, STENCIL = 1e-2, np.array([-1, 9, -45, 0, 45, -9, 1]) / 60


def test_gradients_are_right_at_rest_at_zero_and_elsewhere():
    """By central differences of sixth order, with respect to configuration, velocities and forces at once."""
    model = bent()
    n = model.nv

    def f(point):
        q = lgjax.retract(model, lgjax.neutral(model), point[:n])
        return lgjax.forward_dynamics(model, q, point[n : 2 * n], point[2 * n :])

    random = np.random.default_rng(0)
    weights, directions = random.normal(size=n), random.normal(size=(4, 3 * n))
    steps = STEP * jnp.arange(-3.0, 4.0)

    @jit
    def slopes(point):
        pulled = jax.grad(lambda x: f(x) @ weights)(point)
        pushed = jax.vmap(lambda d: jax.jvp(f, (point,), (d,))[1])(directions)
        near = jax.vmap(lambda d: jax.vmap(lambda s: f(point + s * d))(steps))(directions)
        return pulled, pushed, near

    for point in (jnp.zeros(3 * n), jnp.asarray(0.3 * random.normal(size=3 * n))):
        pulled, pushed, near = map(np.asarray, slopes(point))
        expected = np.tensordot(near, STENCIL / STEP, (1, 0))
        np.testing.assert_allclose(pushed, expected, rtol=0, atol=1e-7 * np.abs(expected).max())
        np.testing.assert_allclose(directions @ pulled, expected @ weights, rtol=0, atol=1e-7 * np.abs(expected).max())
