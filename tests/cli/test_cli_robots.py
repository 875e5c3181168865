"""Robots on the command line: what `info` shows, where they start, how they move."""

import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.cli import main, optimize, robots, view
from lgjax.cli.info import kind_of
from lgjax.robots import actuators
from tests.cli.test_cli import failing

pytestmark = pytest.mark.usefixtures("kept_programs")
PAIR = """<mujoco model="pair"><worldbody>
  <body name="left" pos="0 0 1"><joint name="left" axis="0 1 0" damping="0.1" range="-90 90"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass="1"/><site name="tip" pos="0 0 -.3"/></body>
  <body name="right" pos="0 .5 1"><joint name="right" axis="0 1 0" stiffness="2"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass="1"/><geom type="sphere" size=".02" mass=".1"/></body>
</worldbody>
<equality><joint name="gear" joint1="right" joint2="left" polycoef="0 -2 0 0 0"/></equality>
<actuator><position name="servo" joint="left" kp="60" kv="2" ctrlrange="-1 1"/></actuator>
<sensor><framepos name="at" objtype="site" objname="tip" noise="0.01"/><gyro name="turn" site="tip"/></sensor>
<keyframe><key name="home" qpos="0.2 -0.4" qvel="0.5 -1" ctrl="0.3"/></keyframe>
</mujoco>"""
GROUND = '<geom name="floor" type="plane" size="5 5 .1"/>'
BALL = f"""<mujoco><worldbody>{GROUND}<body><freejoint/><geom size=".1" mass="4"/>
  <body><joint name="b" type="ball"/><geom size=".03" mass=".2" pos=".2 0 0"/></body></body></worldbody>
<actuator><general name="a" joint="b" gear="0 1 0" dyntype="filter" dynprm=".1" gainprm="3"/></actuator>
<keyframe><key name="up" qpos="1 2 3 0 0 0 1 1 0 0 0" qvel="1 0 0 0 0 4 5 6 7" ctrl=".5" act=".25"/></keyframe>
</mujoco>"""
ARM = """<mujoco model="arm"><worldbody><body><joint name="j" axis="0 1 0" stiffness="3"/>
  <geom pos="0 0 -.4" size=".05" mass=".5"/></body></worldbody>
<actuator><position joint="j" kp="20" kv="4"/></actuator><keyframe><key name="up" ctrl="1.2"/></keyframe>
</mujoco>"""
STILL = ["--position-spread", "0", "--velocity-spread", "0"]
MESHES = """<robot name="r"><link name="world"/><link name="a"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial><collision><geometry>
<mesh filename="package://elsewhere/solid.obj"/></geometry></collision></link>
<joint name="j" type="continuous"><parent link="world"/><child link="a"/></joint></robot>"""


@pytest.fixture
def pair(tmp_path):
    """The path of a robot file with a servo, a keyframe, an equality and sensors."""
    (tmp_path / "pair.xml").write_text(PAIR)
    return str(tmp_path / "pair.xml")


def shown(capsys, *argv):
    """What a command prints."""
    assert main(argv) == 0
    return capsys.readouterr().out


def test_info_shows_every_part_of_a_robot(pair, capsys):
    out = shown(capsys, "info", pair)
    assert out.startswith("pair: 2 bodies, 2 joints, nv 2\ntotal mass 2.1 kg, gravity (0, 0, -9.81) m/s^2\n")
    for part in (
        "loops\n  name  what it holds\n  gear  coupling right-left\n",
        "passive forces: JointSpring\n",
        "actuators\n  name   kind      acts on  control range\n  servo  position  left     [-1, 1]\n",
        "sensors\n  name  measures\n  at    frame position\n  turn  gyro\n",
        "keyframes: initial, home\n",
    ):
        assert f"\n\n{part}" in out
    assert out.endswith("\n\ncan touch: 2 capsule, 1 sphere\n")


def test_info_shows_the_effort_of_a_urdf(tmp_path, capsys):
    limit = '<limit lower="-1" upper="1" effort="12" velocity="3"/></joint></robot>'
    text = re.sub("<collision>.*</collision>", "", MESHES, flags=re.DOTALL).replace("continuous", "revolute")
    (tmp_path / "arm.urdf").write_text(text.replace("</joint></robot>", limit))
    assert "  j     motor  j        unlimited, force [-12, 12]\n" in shown(capsys, "info", str(tmp_path / "arm.urdf"))


def test_info_shows_a_keyframe_and_what_is_ignored(pair, capsys):
    argv = ["info", pair, "--ignore", "equality", "--ignore", "sensor", "--keyframe", "home"]
    out = shown(capsys, *argv)
    state = "  joint  position  velocity\n  left   0.2       0.5\n  right  -0.4      -1\n  control: 0.3\n"
    assert out.endswith(f"\nignored\n  equality (--ignore)\n  sensor (--ignore)\n\nkeyframe home\n{state}")
    assert "gear" not in out
    assert "sensors" not in out


def test_a_floating_robot_is_shown_at_a_keyframe(tmp_path, capsys):
    """Positions, quaternions wxyz, velocities in the body frame with the angular part first, and activations."""
    (tmp_path / "ball.xml").write_text(BALL)
    lines = shown(capsys, "info", str(tmp_path / "ball.xml"), "--keyframe", "up").splitlines()
    words = [line.split() for line in lines[-4:]]
    assert words[0][1:] == ["1", "2", "3,", "0", "0", "0", "1", "0", "0", "4", "-1", "0", "0"]  # turned by pi about z
    assert words[1] == ["b", "1", "0", "0", "0", "5", "6", "7"]
    assert words[2:] == [["control:", "0.5"], ["activation:", "0.25"]]
    assert "  a     motor, filter  ball joint (b)  unlimited" in lines
    assert "can touch: 2 sphere, 1 ground" in lines


def test_meshes_in_a_package_are_found(tmp_path, capsys):
    """The folder of the package stands on the command line; without it a warning says so in one line."""
    (tmp_path / "solid.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    (tmp_path / "r.urdf").write_text(MESHES)
    argv = ["info", str(tmp_path / "r.urdf")]
    assert "can touch: 1 hull\n" in shown(capsys, *argv, "--packages", f"elsewhere={tmp_path}")
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "can touch: 1 mesh\n" in out
    assert err.count("\n") == 1
    assert err.startswith("lgjax: warning: ")
    assert "--packages" in err
    assert "packages=" not in out + err


# ---- motion
def test_a_rollout_is_the_ensemble_of_the_robot(pair, tmp_path, capsys):
    """Under its servo, spring and loop, from a keyframe, with the control of that."""
    argv = ["rollout", pair, "--keyframe", "home", "--batch", "3", "--steps", "40", "--save-every", "20"]
    argv += ["--dtype", "float64", "--gain-spread", "0.2", "--seed", "5", "--quiet", "--out", str(tmp_path / "x.npz")]
    out = shown(capsys, *argv)
    assert "pair: 2 bodies, nv 2, batch 3, 40 steps of 0.001 s" in out
    assert "largest change of mechanical energy" in out
    robot = lgjax.load_robot(pair)
    key, options = robot.keyframes["home"], {"batch": 3, "steps": 40, "dt": 1e-3, "save_every": 20, "progress": False}
    random = {"key": jax.random.key(5), "spread": lgjax.Spread(gain=0.2)}
    found = lgjax.ensemble(robot, jnp.array([0.3]), q=key.q, v=key.v, **options, **random)
    with np.load(tmp_path / "x.npz") as file:
        np.testing.assert_array_equal(file["joints"], found.q.joints)
        np.testing.assert_array_equal(file["velocities"], found.v)
        left, right = np.moveaxis(file["joints"], -1, 0)
        np.testing.assert_allclose(right, -2 * left, atol=1e-12)
        assert not file["status"].any()
    page = tmp_path / "x.html"
    assert main(["view", str(tmp_path / "x.npz"), "--html", str(page)]) == 0
    assert page.stat().st_size > 1000


def test_a_servo_settles_where_its_spring_and_gravity_let_it(tmp_path, capsys):
    """Half a kilogram at 0.4 m: kp (c - x) = k x + m g l sin(x), whose root is found by bisection."""
    (tmp_path / "arm.xml").write_text(ARM)
    argv = ["rollout", str(tmp_path / "arm.xml"), "--keyframe", "up", *STILL]
    out = tmp_path / "x.npz"
    assert main([*argv, "--dt", "0.01", "--duration", "4", "--dtype", "float64", "--quiet", "--out", str(out)]) == 0
    low, high = 0.0, 1.2
    for _ in range(60):
        middle = (low + high) / 2
        pull = 20 * (1.2 - middle) - 3 * middle - 0.5 * 9.81 * 0.4 * np.sin(middle)
        low, high = (middle, high) if pull > 0 else (low, middle)
    np.testing.assert_allclose(np.load(out)["joints"][0, -1, 0], low, atol=1e-6)
    assert "largest change of mechanical energy" in capsys.readouterr().out


def test_where_a_robot_starts(pair):
    robot = lgjax.load_robot(pair)
    for name, joints, control in (("home", [0.2, -0.4], 0.3), (None, [0, 0], 0), ("initial", [0, 0], 0)):
        start = robots.start_of(robot, name)
        np.testing.assert_array_equal(start.q.joints, joints)
        np.testing.assert_array_equal(start.control, [control])
    without = robots.start_of(lgjax.load_robot(pair, ignore=("keyframe", "actuator")))
    assert (without.control, without.activation) == (None, None)
    assert robots.start_of(robot.model).q.joints.shape == (2,)


def test_only_time_stepping_sees_the_ground(tmp_path, caplog):
    robot = lgjax.load_robot(PAIR.replace("<worldbody>", f"<worldbody>{GROUND}"))
    with caplog.at_level(logging.WARNING, "lgjax"):
        robots.method_of("time_stepping", robot)
        robots.method_of("RK4", lgjax.load_robot(PAIR))
        assert not caplog.messages
        assert robots.method_of("rk4", robot) == lgjax.MuntheKaas(lgjax.RK4)
    assert caplog.messages == ["warning: RK4 steps through the ground of the file, TIME_STEPPING does not"]


def test_energy_is_conserved_by_motors_at_rest_alone(pair):
    robot, rk4 = lgjax.load_robot(pair), lgjax.MuntheKaas(lgjax.RK4)
    zero, one = jnp.zeros(1), jnp.ones(1)
    motor = robot.replace(forces=None, actuators=actuators.motor(robot.model, ["left"]))
    assert robots.conserves(robot.model, None, rk4)
    assert robots.conserves(motor, zero, rk4)
    assert not robots.conserves(motor, one, rk4)
    assert not robots.conserves(robot, zero, rk4)
    assert not robots.conserves(robot.replace(forces=None), zero, rk4)


def test_a_model_is_viewed_at_a_keyframe(pair, tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(view.view, "html", lambda mechanism, q, page, **options: seen.append((mechanism, q)) or page)
    assert main(["view", pair, "--keyframe", "home", "--html", str(tmp_path / "x.html")]) == 0
    mechanism, q = seen[0]
    assert isinstance(mechanism, lgjax.Robot)
    np.testing.assert_array_equal(q.joints, [0.2, -0.4])


def test_a_search_is_over_the_controls_of_actuators(pair, tmp_path):
    """They begin at those of the keyframe and stay in their range; the start is closed."""
    table = {"model": "pair.xml", "keyframe": "home", "steps": 3, "dt": 0.01, "guesses": 1, "spread": 0.0}
    task = optimize.read({**table, "goal": {"joints": {"left": 0.5}}}, tmp_path)
    np.testing.assert_array_equal(task.guesses, np.full((1, 3, 1), 0.3))
    assert task.options["bounds"] == [[-1.0], [1.0]]
    q, v = task.start
    np.testing.assert_allclose(q.joints, [0.2, -0.4], atol=1e-12)
    robot = lgjax.load_robot(pair)
    path = lgjax.rollout(robot, q, v, jnp.array([0.3]), 0.01, 1)
    after, _ = task.system.step(task.start, task.guesses[0, 0])
    np.testing.assert_allclose(after.joints, path.q.joints[-1], rtol=1e-12)


REFUSED = {
    "keyframe": (["rollout", "pair.xml", "--keyframe", "up"], "pair has no keyframe 'up'; keyframes: home, initial"),
    "no keyframe": (["info", "pair.xml", "--keyframe", "up"], "pair has no keyframe 'up'; keyframes: initial, home"),
    "left out": (["info", "pair.xml", "--ignore", "keyframe", "--keyframe", "home"], "no keyframe 'home'; keyframes: "),
    "gains": (["rollout", "pair.xml", "--ignore", "actuator", "--gain-spread", "1"], "--gain-spread is of actuators"),
    "base": (["view", "pair.xml", "--floating-base"], "an MJCF file says itself whether the base floats"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_robot_does_not_have_is_named_in_one_line(name, pair, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv, message = REFUSED[name]
    code, line = failing(capsys, *argv)
    assert code == 2
    assert message in line


def test_problems_that_are_not_solved_name_the_way_out(pair, tmp_path, capsys):
    late = PAIR.replace('kv="2"', 'kv="2" delay="0.01" nsample="20"')
    problem = tmp_path / "problem.toml"
    goal = "[goal]\njoints = { left = 0.5 }\n"
    (tmp_path / "late.xml").write_text(late)
    problem.write_text(f"model = 'late.xml'\nsteps = 2\ndt = 0.1\n{goal}")
    code, line = failing(capsys, "optimize", str(problem))
    assert (code, 'delays are not searched for (ignore = ["actuator"] searches for joint forces)' in line) == (2, True)
    problem.write_text(f"model = 'pair.xml'\nsteps = 2\ndt = 0.1\nintegrator = 'RK5'\n{goal}")
    assert "integrator must be one of " in failing(capsys, "optimize", str(problem))[1]
    problem.write_text(
        f"model = 'pair.xml'\nkeyframe = 'home'\nsteps = 2\ndt = 0.1\n{goal}[start]\njoints = [0.1, 0.1]"
    )
    assert "start stands beside keyframe; give one of them" in failing(capsys, "optimize", str(problem))[1]


def test_kinds_of_actuators_are_told_by_their_laws():
    model = lgjax.models.chain(2)
    joint = [model.joint_names[0]]
    filtered = {"dynamics": "filter", "time_constant": 0.1}
    made = {
        "motor": actuators.motor(model, joint),
        "position": actuators.position(model, joint, 5.0, 0.1),
        "velocity": actuators.velocity(model, joint, 5.0),
        "damper": actuators.damper(model, joint, 5.0),
        "general, filter": actuators.general(model, joint, gain=(1.0, 2.0, 0), **filtered),
        "motor, delay 0.02 s": actuators.motor(model, joint, delay=0.02),
    }
    assert [kind_of(one, 0) for one in made.values()] == list(made)
