"""Joints and lengths that follow others move as the mechanism without the freedom that they do not have.

The oracles: q = g(z) with the independent coordinates z, M = G^T M G and so on in NumPy; Pinocchio's mimic joints;
MuJoCo's rows of its equality constraints.
"""

import pickle
from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio
import pytest
from jax import jit
from numpy.polynomial import Polynomial

import lgjax
from lgjax.dynamics import transmissions
from lgjax.dynamics.loops import couple_joints, couple_lengths, loop_constraint
from tests.dynamics import trees

TOLERANCE = {jnp.float64: 1e-12, jnp.float32: 2e-5}


@cache
def hand() -> lgjax.Model:
    """A free palm with two fingers of two joints, a thumb on a ball joint that slides, and a planar joint."""
    return lgjax.build(
        [
            trees.body("palm", None, "free", 1),
            trees.body("a", "palm", "revolute", 2, armature=0.1),
            trees.body("b", "a", "revolute", 3, damping=0.2),
            trees.body("c", "palm", "prismatic", 4),
            trees.body("d", "c", "continuous", 5, damping=0.1),
            trees.body("ball", "palm", "spherical", 6),
            trees.body("thumb", "ball", "prismatic", 7),
            trees.body("plate", None, "planar", 8),
        ],
        "hand",
    )


# follower, leader, coefficients, references (y0, x0), each as MuJoCo and URDF have them
COUPLINGS = {
    "mimic": ("b_joint", "a_joint", (0.2, -0.6), (0.0, 0.0)),
    "quartic": ("d_joint", "c_joint", (0.1, 0.5, -0.3, 0.7, 0.4), (0.3, -0.2)),
    "held": ("thumb_joint", None, (0.15,), (0.05, 0.0)),
    "planar": ("plate_joint[2]", "plate_joint[0]", (0.0, 0.0, 0.8), (0.1, 0.0)),
}
CASES = {name: (name,) for name in COUPLINGS} | {"all": tuple(COUPLINGS)}


def loops_of(names, model=None):
    return tuple(couple_joints(model or hand(), *COUPLINGS[name]) for name in names)


def place(name, model):
    """Index of a scalar coordinate in q.joints and in v."""
    tree = model.tree
    columns = [i for i, body in enumerate(tree.v_body) if tree.kinds[body].coordinates == "joints"]
    return tree.coordinate_names.index(name), columns[tree.coordinate_names.index(name)]


def on_constraints(q, v, names, model):
    """The state with followers where they belong, as arrays; (q, v, G, dG/dt v) with v = G z."""
    joints, v = np.array(q.joints, float), np.array(v, float)
    G, bend = np.eye(model.nv), np.zeros(model.nv)
    held = []
    for name in names:
        follower, leader, coefficients, (y0, x0) = COUPLINGS[name]
        (row, column), p = place(follower, model), Polynomial(coefficients)
        held.append(column)
        if leader is None:
            joints[row], v[column], G[column] = y0 + coefficients[0], 0, 0
            continue
        at, lead = place(leader, model)
        x = joints[at] - x0
        joints[row], v[column] = y0 + p(x), p.deriv()(x) * v[lead]
        G[column] = p.deriv()(x) * G[lead]
        bend[column] = p.deriv(2)(x) * v[lead] ** 2
    return q._replace(joints=jnp.asarray(joints)), jnp.asarray(v), np.delete(G, held, 1), bend


@cache
def found(case, dtype):
    """Answers of the constrained forward dynamics at states that keep the couplings, and their ingredients."""
    names, model = CASES[case], hand()
    q, v, _, tau, _ = trees.random_states(model, 4)
    states = [on_constraints(jax.tree.map(lambda x, i=i: x[i], q), v[i], names, model) for i in range(4)]
    q, v = (jax.tree.map(lambda *x: jnp.stack(x), *part) for part in list(zip(*states, strict=True))[:2])
    cast = lambda tree: jax.tree.map(lambda x: x.astype(dtype), tree)
    loops = loops_of(names)

    @jit
    @jax.vmap
    def all_of(q, v, tau):
        m = cast(model)
        free = lgjax.mass_matrix(m, q), lgjax.bias_forces(m, q, v)
        return lgjax.constrained_forward_dynamics(m, loops, q, v, tau), loop_constraint(m, loops, q, v), free

    dynamics, rows, free = jax.tree.map(np.asarray, all_of(*cast((q, v, tau))))
    return dynamics, rows, free, np.asarray(tau), [s[2] for s in states], [s[3] for s in states]


@pytest.mark.parametrize(("case", "dtype"), [*((case, jnp.float64) for case in CASES), ("all", jnp.float32)])
def test_motion_is_that_of_the_reduced_coordinates(case, dtype):
    """G^T (M (G z'' + dG/dt z') + b) = G^T tau, and the multipliers do what is missing in the equations."""
    dynamics, rows, (M, b), tau, G, bend = found(case, dtype)
    for i in range(len(tau)):
        accelerations = np.linalg.solve(G[i].T @ M[i] @ G[i], G[i].T @ (tau[i] - b[i] - M[i] @ bend[i]))
        vdot = G[i] @ accelerations + bend[i]
        size = np.abs(vdot).max()
        np.testing.assert_allclose(dynamics.vdot[i], vdot, rtol=0, atol=1e2 * TOLERANCE[dtype] * size)
        missing = M[i] @ vdot + b[i] - tau[i]
        np.testing.assert_allclose(dynamics.forces[i], missing, rtol=0, atol=1e2 * TOLERANCE[dtype] * size)
        np.testing.assert_allclose(rows.residual[i], 0, atol=TOLERANCE[dtype])
        np.testing.assert_allclose(rows.rate[i], 0, atol=10 * TOLERANCE[dtype])
        np.testing.assert_allclose(rows.jacobian[i] @ G[i], 0, atol=10 * TOLERANCE[dtype])
        np.testing.assert_allclose(rows.jacobian[i] @ bend[i] + rows.bias[i], 0, atol=1e2 * TOLERANCE[dtype])
    assert not np.any(dynamics.status)
    assert dynamics.vdot.dtype == dtype
    assert np.all(dynamics.rank == len(CASES[case]))


@pytest.mark.parametrize("case", CASES)
def test_residual_row_and_bias_are_those_of_the_polynomial(case):
    """At states that do not keep the couplings."""
    names, model = CASES[case], hand()
    q, v, *_ = trees.random_states(model, 3, seed=5)
    rows = jit(jax.vmap(lambda q, v: loop_constraint(model, loops_of(names), q, v)))(q, v)
    still = jit(jax.vmap(lambda q: loop_constraint(model, loops_of(names), q)))(q)
    for i in range(3):
        for k, name in enumerate(names):
            follower, leader, coefficients, (y0, x0) = COUPLINGS[name]
            (at, column), p = place(follower, model), Polynomial(coefficients)
            A, residual, bias = np.eye(model.nv)[column], q.joints[i, at] - y0 - coefficients[0], 0.0
            if leader is not None:
                at, lead = place(leader, model)
                x = q.joints[i, at] - x0
                residual = residual + coefficients[0] - p(x)
                A = A - p.deriv()(x) * np.eye(model.nv)[lead]
                bias = -p.deriv(2)(x) * v[i, lead] ** 2
            got = (x[i, k] for x in rows)
            for a, b in zip(got, (residual, A, A @ v[i], bias), strict=True):
                np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(still.residual, rows.residual)
    np.testing.assert_array_equal(still.jacobian, rows.jacobian)
    assert not np.any(still.rate) and not np.any(still.bias)  # noqa: PT018


def test_couplings_stand_beside_other_loops_in_their_order():
    model = hand()
    q, v, *_ = jax.tree.map(lambda x: x[0], trees.random_states(model))
    one, two = loops_of(("mimic", "held"))
    plane = lgjax.Loop("point_on_plane", "b", "d")
    own = lgjax.Loop(lambda m, q: q.joints[:2] ** 2)
    pieces = (two, own, plane, one)
    together, alone = jit(
        lambda: (loop_constraint(model, pieces, q, v), [loop_constraint(model, p, q, v) for p in pieces])
    )()
    for k, part in enumerate(together):
        np.testing.assert_allclose(part, np.concatenate([x[k] for x in alone]), rtol=0, atol=1e-13)


URDF = """<robot name="finger"><link name="palm"/>
<link name="a"><inertial><origin xyz="0.1 0.02 0.03"/><mass value="0.7"/>
  <inertia ixx="0.01" iyy="0.02" izz="0.015" ixy="0.001" ixz="0" iyz="0"/></inertial></link>
<link name="b"><inertial><origin xyz="0.05 -0.02 0.03"/><mass value="0.4"/>
  <inertia ixx="0.01" iyy="0.012" izz="0.015" ixy="0" ixz="0.001" iyz="0"/></inertial></link>
<link name="c"><inertial><origin xyz="0.05 0.1 0"/><mass value="0.2"/>
  <inertia ixx="0.004" iyy="0.005" izz="0.006" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="a" type="revolute"><parent link="palm"/><child link="a"/><axis xyz="0 1 0"/>
  <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="b" type="revolute"><origin xyz="0.2 0 0.1" rpy="0.3 0 0"/><parent link="a"/><child link="b"/>
  <axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/>%s</joint>
<joint name="c" type="prismatic"><origin xyz="0 0.2 0.1" rpy="0 0.3 0"/><parent link="b"/><child link="c"/>
  <axis xyz="0.6 0 0.8"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
</robot>"""


def test_agrees_with_mimic_joints_of_pinocchio():
    """Its inverse dynamics are of (a, c): b follows a with the multiplier -0.6 and the offset 0.2."""
    theirs = pinocchio.buildModelFromXML(URDF % '<mimic joint="a" multiplier="-0.6" offset="0.2"/>', mimic=True)
    data = theirs.createData()
    model = lgjax.load_urdf(URDF % "", floating_base=False)
    loop = couple_joints(model, "b", "a", (0.2, -0.6))
    random = np.random.default_rng(3)
    z, zd, force = random.normal(size=(3, 5, 2))
    q = np.stack([z[:, 0], 0.2 - 0.6 * z[:, 0], z[:, 1]], 1)
    v = np.stack([zd[:, 0], -0.6 * zd[:, 0], zd[:, 1]], 1)
    tau = np.stack([force[:, 0], 0 * z[:, 0], force[:, 1]], 1)
    run = lambda q, v, tau: lgjax.constrained_forward_dynamics(
        model, loop, lgjax.configuration(model, joints=q), v, tau
    )
    vdot = np.asarray(jit(jax.vmap(run))(q, v, tau).vdot)
    for i in range(5):
        rnea = lambda a, i=i: pinocchio.rnea(theirs, data, z[i], zd[i], a).copy()
        b = rnea(np.zeros(2))
        M = np.stack([rnea(e) - b for e in np.eye(2)])  # an entry of its crba is not that of its rnea
        expected = np.linalg.solve(M, force[i] - b)
        np.testing.assert_allclose(vdot[i, [0, 2]], expected, rtol=1e-9)
        np.testing.assert_allclose(vdot[i, 1], -0.6 * expected[0], rtol=1e-9)


MJCF = """<mujoco><compiler angle="radian"/><option jacobian="dense"/><worldbody>
<site name="hook" pos="0.1 0.2 0.9"/>
<body name="x" pos="0 0 0.1"><joint name="x" axis="0 1 0" ref="0.2"/><geom size="0.1" mass="1"/>
  <site name="sx" pos="0.1 0 0.2"/>
  <body name="y" pos="0 0 0.4"><joint name="y" axis="1 0 0" ref="-0.1"/><geom size="0.1" mass="1"/>
    <site name="sy" pos="0 0.1 0.2"/></body></body>
<body name="z" pos="1 0 0"><joint name="z" type="slide" axis="0 0 1"/><geom size="0.1" mass="1"/>
  <site name="sz" pos="0 0 0.2"/></body></worldbody>
<tendon><fixed name="sum"><joint joint="x" coef="0.5"/><joint joint="z" coef="-2"/></fixed>
<spatial name="rope"><site site="hook"/><site site="sx"/><site site="sz"/></spatial>
<spatial name="cord"><site site="hook"/><site site="sy"/></spatial></tendon>
<equality><joint joint1="y" joint2="x" polycoef="0.1 0.5 -0.3 0.7 0.4"/><joint joint1="z" polycoef="0.3 1 0 0 0"/>
<tendon tendon1="sum" tendon2="rope" polycoef="0.1 0.5 -0.3 0 0"/><tendon tendon1="cord" tendon2="rope"/>
<tendon tendon1="rope" polycoef="0.2 1 0 0 0"/></equality></mujoco>"""


@cache
def rope():
    """A model with its lengths and couplings as MuJoCo's file has them, by hand."""
    R, turn = jnp.eye(3), lambda axis: lgjax.Joint(axis, "revolute", {"x": (0, 1, 0), "y": (1, 0, 0)}[axis])
    inertia = 0.4 * 0.1**2 * np.eye(3)
    mass = {"mass": 1.0, "inertia": inertia}
    model = lgjax.build(
        [
            lgjax.Body("x", None, turn("x"), R, (0, 0, 0.1), **mass),
            lgjax.Body("y", "x", turn("y"), R, (0, 0, 0.4), **mass),
            lgjax.Body("z", None, lgjax.Joint("z", "prismatic", (0, 0, 1)), R, (1, 0, 0), **mass),
        ],
        "rope",
    )
    hook, sx, sy, sz = (None, (0.1, 0.2, 0.9)), ("x", (0.1, 0, 0.2)), ("y", (0, 0.1, 0.2)), ("z", (0, 0, 0.2))
    lengths = transmissions.fixed_tendons(model, [{"x": 0.5, "z": -2.0}])
    return model, lengths + transmissions.spatial_tendons(model, [[hook, sx, sz], [hook, sy]])


def couplings_of(theirs):
    """The equalities of MuJoCo's file; our joints are at zero where the file's are at their references."""
    model, lengths = rope()
    first = theirs.tendon_length0
    return (
        couple_joints(model, "y", "x", (0.1, 0.5, -0.3, 0.7, 0.4)),
        couple_joints(model, "z", None, 0.3 * np.ones(1)),
        couple_lengths(lengths, 0, 1, (0.1, 0.5, -0.3, 0, 0), (first[0] - 0.1, first[1])),
        couple_lengths(lengths, 2, 1, references=(first[2], first[1])),
        couple_lengths(lengths, 1, None, (0.2,), (first[1], 0.0)),
    )


def test_rows_are_those_of_mujoco():
    """Residuals, Jacobians and rates of joint and tendon equalities; there the fixed tendon counts x from 0.2."""
    theirs = mujoco.MjModel.from_xml_string(MJCF)
    data, model = mujoco.MjData(theirs), rope()[0]
    loops = couplings_of(theirs)
    rows_of = jit(lambda q, v: loop_constraint(model, loops, q, v))
    random = np.random.default_rng(0)
    for _ in range(3):
        joints, v = random.normal(size=(2, 3))
        data.qpos[:], data.qvel[:] = joints + theirs.qpos0, v
        mujoco.mj_forward(theirs, data)
        rows = rows_of(lgjax.configuration(model, joints=joints), v)
        rank = data.ne
        assert rank == 5
        np.testing.assert_allclose(rows.residual, data.efc_pos[:rank], rtol=0, atol=1e-12)
        np.testing.assert_allclose(rows.jacobian, data.efc_J.reshape(-1, 3)[:rank], rtol=0, atol=1e-12)
        np.testing.assert_allclose(rows.rate, data.efc_vel[:rank], rtol=0, atol=1e-12)


# ---- lengths
def test_accelerations_of_lengths_are_those_of_their_couplings():
    """d^2 phi/dt^2 = A vdot + bias along a motion, by differences of the rates."""
    model, lengths = rope()
    loop = couple_lengths(lengths, 2, 1, (0.1, 0.5, -0.3), (0.2, 0.1), "ropes")
    random = np.random.default_rng(1)
    joints, v, vdot = random.normal(size=(3, 3))
    at = lambda t: lgjax.configuration(model, joints=joints + t * v + t * t / 2 * vdot)
    rows = jit(lambda t: loop_constraint(model, loop, at(t), v + t * vdot))
    h = 1e-4
    before, here, after = rows(-h), rows(0.0), rows(h)
    np.testing.assert_allclose((after.rate - before.rate) / (2 * h), here.jacobian @ vdot + here.bias, rtol=1e-7)
    np.testing.assert_allclose((after.residual - before.residual) / (2 * h), here.rate, rtol=1e-7)


def test_a_rope_of_constant_length_is_a_distance():
    """The same motion as with a loop that keeps the distance of two points."""
    model, lengths = rope()
    joints = np.array([0.3, -0.2, 0.1])
    q, tau = lgjax.configuration(model, joints=joints), jnp.asarray([1.0, -2.0, 0.5])
    length, (x, y, _) = lengths.lengths(q)[2], lengths.moments(q)[2]
    v = jnp.asarray([0.7, -0.7 * x / y, -0.2])  # at which the length stays
    rod = lgjax.Loop("distance", None, "y", (0.1, 0.2, 0.9), (0, 0.1, 0.2), distance=length)
    run = jit(lambda loop: lgjax.constrained_forward_dynamics(model, loop, q, v, tau).vdot)
    np.testing.assert_allclose(run(couple_lengths(lengths, 2, None, length[None])), run(rod), rtol=1e-10)


# ---- the record
def test_couplings_are_values():
    model, lengths = rope()
    for loop in (couple_joints(model, "y", "x", (0.2, -0.6), name="mimic"), couple_lengths(lengths, 2, 1)):
        copy = pickle.loads(pickle.dumps(loop))
        assert jax.tree.structure(copy) == jax.tree.structure(loop)
        assert hash(copy.kind) == hash(loop.kind)
        assert callable(loop.kind)
    assert couple_joints(model, "y", "x").label == "(coupling y-x)"
    assert couple_joints(model, "y", "x", name="mimic").label == "'mimic'"
    assert couple_joints(model, "y", "z").kind.bodies(model.tree, None) == (1, 2)
    loop = couple_lengths(lengths, 1)
    assert loop.kind.bodies(model.tree, loop.parameters) == (0, 2)


BAD = {
    r"no follower 'knee' in 'hand'; joints: a_joint": lambda m: couple_joints(m, "knee", "a_joint"),
    r"leader 'ball_joint' is a spherical joint, which has no scalar": lambda m: couple_joints(
        m, "a_joint", "ball_joint"
    ),
    r"follower 'plate_joint' has 3 coordinates: name one, such as 'plate_joint\[0\]'": lambda m: couple_joints(
        m, "plate_joint", "a_joint"
    ),
    r"coupling a_joint-a_joint: a joint cannot follow itself": lambda m: couple_joints(m, "a_joint", "a_joint"),
    r"coupling 'c': 6 coefficients, expected one to 5": lambda m: couple_joints(
        m, "a_joint", "b_joint", np.ones(6), name="c"
    ),
    r"coefficients is not finite": lambda m: couple_joints(m, "a_joint", "b_joint", (0, np.nan)),
    r"references has shape \(1,\), expected \(2,\)": lambda m: couple_joints(
        m, "a_joint", "b_joint", references=(0.0,)
    ),
    r"coupling of lengths: leader is an index below 3, got 3": lambda m: couple_lengths(rope()[1], 0, 3),
    r"a length cannot follow itself": lambda m: couple_lengths(rope()[1], 1, 1),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_couplings_are_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD[message](hand())
    with pytest.raises(TypeError, match="lengths are Transmissions, got"):
        couple_lengths(hand(), 0)
