"""Constraints of MJCF texts hold as loops what they hold in MuJoCo; mocap bodies hold what is welded to them."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import lgjax
from lgjax.conventions import from_mujoco, to_mujoco
from tests.robots.beside_mujoco import loaded, readings, states

HELD = """<mujoco><compiler angle="radian"/><option><flag contact="disable"/></option><worldbody>
 <body name="a" pos="0 0 1"><freejoint/><geom size=".1"/><site name="sa" pos=".1 .2 .3" euler=".1 .2 .3"/>
  <body name="b" pos=".2 0 .1" euler=".3 0 .2"><joint name="j" axis="0 1 0" ref=".4"/><geom size=".1" pos=".1 0 0"/>
   <body name="fixed" pos=".1 .1 0" euler="0 .2 0"><geom size=".05"/></body></body></body>
 <body name="c" pos=".5 .1 1" euler="0 .4 .1"><freejoint/><geom size=".1"/><site name="sc" pos="-.1 0 .1"/>
  <body name="d" pos=".1 .1 .1"><joint name="k" axis="1 1 0" ref="-.2"/><geom size=".1" pos="0 .1 0"/></body></body>
 <body name="e" pos="0 0 .3"><joint name="l" axis="1 0 0"/><joint name="m" type="slide"/><geom size=".1"/></body>
 <body name="f" pos="0 1 0" euler="0 .4 .3"><freejoint/><geom size=".1"/></body>
</worldbody><tendon><fixed name="s"><joint joint="j" coef="2"/><joint joint="l" coef="-1"/></fixed>
 <fixed name="t"><joint joint="k" coef="1.5"/></fixed></tendon><equality>{}</equality></mujoco>"""
CONSTRAINTS = {
    "points, joints and tendons": (
        '<connect body1="fixed" body2="c" anchor=".1 .2 .3"/><connect body1="b" anchor=".1 .2 .3"/>'
        '<joint joint1="m" joint2="l" polycoef="0 .1"/>'
        '<tendon tendon1="s" tendon2="t" polycoef=".1 .5 -.3 .2 .1"/>',
        (3, 3, 1, 1),
    ),
    "sites, welds to the world and without torque, a tendon that is held": (
        '<connect site1="sa" site2="sc"/><weld body1="d"/>'
        '<weld body1="fixed" body2="f" anchor=".1 .2 .3" torquescale="0"/><tendon tendon1="s" polycoef=".3"/>',
        (3, 6, 3, 1),
    ),
    "welds, one with a pose, and a joint that is held": (
        '<weld body1="fixed" body2="f" anchor=".1 .2 .3"/><weld body1="b" body2="d" relpose=".1 .2 .3 .8 .6 0 0"/>'
        '<joint joint1="l" polycoef=".3 9 9 9 9"/>',
        (6, 6, 1),
    ),
    "a weld of sites, and joints with a polynomial": (
        '<weld site1="sa" site2="sc"/><joint joint1="j" joint2="k" polycoef=".1 .5 -.3 .2 .1"/>',
        (6, 1),
    ),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_what_loops_hold_is_what_mujoco_holds(name):
    """Positions and velocities on our constraints leave no error in MuJoCo's, which they had before."""
    equalities, sizes = CONSTRAINTS[name]
    robot, theirs = loaded(HELD.format(equalities))
    model, start = robot.model, states(theirs, 2)
    rows = [loop.rows(model, lgjax.configuration(model)) for loop in robot.loops]
    assert rows == sorted(sizes, key=lambda n: n == 1)  # bodies that are held come before couplings

    @jax.jit
    @jax.vmap
    def ours(q, v):
        state = from_mujoco(model, q, v)
        held = lgjax.project_positions(model, robot.loops, state.q)
        after = to_mujoco(model, held.q, lgjax.project_velocity(model, robot.loops, held.q, state.v))
        return held.converged, after.q, after.v

    found, q, v = map(np.asarray, ours(start.q, start.v))
    assert found.all()
    errors = lambda data: (data.efc_pos, data.efc_J.reshape(-1, theirs.nv) @ data.qvel)
    before = readings(theirs, start, errors)
    after = readings(theirs, start._replace(q=q, v=v), errors)
    for x, y in zip(before, after, strict=True):
        assert np.abs(x).max() > 0.1
        assert np.abs(y).max() < 1e-9


def test_inactive_equalities_and_flags():
    of = HELD.format('<joint joint1="j" active="false"/><joint joint1="k"/>')
    assert [loop.kind.follower for loop in lgjax.load_robot(of).loops] == ["k"]
    for flag in ("equality", "constraint"):
        assert lgjax.load_robot(of.replace("<flag ", f'<flag {flag}="disable" ')).loops == ()


STOP = """<mujoco><option timestep="1e-3"/><worldbody><body><joint name="j" type="slide" axis="0 0 -1"/>
 <geom size=".1" mass="2"/></body></worldbody><tendon><fixed range="-1 .1" limited="true" solreflimit="{}">
 <joint joint="j" coef="2"/></fixed></tendon></mujoco>"""


@pytest.mark.parametrize("solref", ["0.1 1", ".06 .5", "-200 -10"])
def test_a_weight_on_the_limit_of_a_tendon_rests_where_it_does_in_mujoco(solref):
    """To the width in which stops set in."""
    robot, theirs = loaded(STOP.format(solref))
    data = mujoco.MjData(theirs)
    data.qpos[0] = 0.05
    mujoco.mj_step(theirs, data, 20000)
    assert np.abs(data.qvel[0]) < 1e-6
    places = jnp.linspace(0.05, 0.1, 2001)
    still = jnp.zeros(1)
    push = jax.vmap(lambda x: robot.forces(0.0, lgjax.configuration(robot.model, joints=x[None]), still)[0])(places)
    ours = places[jnp.argmin(jnp.abs(push + 2 * 9.81))]
    assert abs(2 * ours - 2 * data.qpos[0]) < 1e-3


# ---- mocap bodies
PUPPET = """<mujoco><option gravity="0 0 0"><flag contact="disable"/></option><worldbody>
 <body name="hand" mocap="true" pos=".1 .2 .3" euler="10 20 30"><site name="finger" pos="0 0 .1"/>
  <body name="ring" pos=".05 0 0" euler="0 0 40"/></body>
 <body name="arm" pos=".2 0 .3"><freejoint/><geom size=".1"/>
  <body name="tool" pos=".3 0 0"><joint name="j" axis="0 1 0"/><geom size=".05" pos=".1 0 0"/></body></body>
</worldbody><equality><weld body1="hand" body2="tool" relpose="0 0 .1 1 0 0 0"/></equality></mujoco>"""


def somewhere(seed: int) -> lgjax.Pose:
    draw = np.random.default_rng(seed)
    rotation = lgjax.so3.exp(jnp.asarray(draw.normal(size=3)))
    return lgjax.Pose(rotation, jnp.asarray(draw.normal(size=3)))


def test_a_mocap_body_moves_what_is_fixed_and_welded_to_it():
    robot, theirs = loaded(PUPPET)
    model, q = robot.model, robot.keyframes["initial"].q
    pose = somewhere(0)
    moved = robot.with_mocap("hand", pose)
    data = mujoco.MjData(theirs)
    data.mocap_pos[0] = pose.translation
    mujoco.mju_mat2Quat(data.mocap_quat[0], np.ravel(pose.rotation))
    mujoco.mj_kinematics(theirs, data)
    places = {"hand": data.body("hand").xpos, "finger": data.site("finger").xpos, "ring": data.body("ring").xpos}
    for name, place in places.items():
        np.testing.assert_allclose(lgjax.frame_pose(moved.model, q, name).translation, place, atol=1e-14)
    turned = lgjax.frame_pose(moved.model, q, "ring").rotation
    np.testing.assert_allclose(np.ravel(turned), data.body("ring").xmat, atol=1e-14)
    # What is welded to it follows.
    held = lgjax.project_positions(moved.model, moved.loops, q)
    assert bool(held.converged)
    data.qpos[:] = to_mujoco(model, held.q).q
    mujoco.mj_forward(theirs, data)
    assert np.abs(data.efc_pos).max() < 1e-9


def test_the_pose_of_a_mocap_body_can_be_batched_and_differentiated():
    robot, _ = loaded(PUPPET)
    q = robot.keyframes["initial"].q

    def height(shift, pose):
        moved = robot.with_mocap("hand", lgjax.Pose(pose.rotation, pose.translation + jnp.array([0.0, 0.0, shift])))
        return lgjax.frame_pose(moved.model, q, "ring").translation[2]

    poses = jax.tree.map(lambda *x: jnp.stack(x), *(somewhere(k) for k in range(3)))
    slopes = jax.jit(jax.vmap(jax.grad(height), (None, 0)))(0.0, poses)
    np.testing.assert_allclose(slopes, 1, atol=1e-12)


def test_other_bodies_are_no_mocap_bodies():
    robot, _ = loaded(PUPPET)
    with pytest.raises(ValueError, match=r"'arm' is no mocap body of .*; mocap bodies: hand"):
        robot.with_mocap("arm", somewhere(0))
    with pytest.raises(ValueError, match="body 'ring' in line 3: joints on a mocap body are not supported"):
        lgjax.load_robot(PUPPET.replace('euler="0 0 40"/>', 'euler="0 0 40"><joint/><geom size=".1"/></body>'))
