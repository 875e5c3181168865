"""Robots from files: a gripper closes, and a robot with four legs stands up, each under the servos of its own file.

The files are short MJCF texts; a path to a URDF or MJCF file loads in the same way. The second finger of the gripper
follows the first one by an equality, exactly. The legged robot starts from the keyframe "crouch", its servos go to
"stand", and its sensors are read along the motion. One derivative tells how its height answers to stiffer servos.
python examples/27_robots_from_files.py [picture.png]
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import plot
from lgjax.contact import TimeStepping

DT = 2e-3
GRIPPER = """<mujoco model="gripper">
<worldbody><body name="palm" pos="0 0 .2"><inertial mass="0" pos="0 0 0" diaginertia="0 0 0"/>
  <body name="left"><joint name="left" type="slide" axis="0 -1 0" damping="2"/>
    <geom type="box" size=".01 .005 .03" pos="0 .04 .03" mass=".05"/></body>
  <body name="right"><joint name="right" type="slide" axis="0 1 0" damping="2"/>
    <geom type="box" size=".01 .005 .03" pos="0 -.04 .03" mass=".05"/></body></body></worldbody>
<equality><joint joint1="right" joint2="left"/></equality>
<actuator><position name="close" joint="left" kp="200" kv="10" forcerange="-5 5"/></actuator>
<keyframe><key name="closed" qpos=".03 .03" ctrl=".03"/></keyframe></mujoco>"""
LEG = """<body name="{name}_thigh" pos="{x} {y} 0"><joint name="{name}_hip" axis="0 1 0" damping=".1" armature=".01"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.15" size=".015" mass=".3" contype="0" conaffinity="0"/>
  <body name="{name}_shin" pos="0 0 -.15"><joint name="{name}_knee" axis="0 1 0" damping=".1" armature=".01"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.15" size=".012" mass=".1" contype="0" conaffinity="0"/>
    <site name="{name}_foot" pos="0 0 -.15" size=".03"/><geom type="sphere" pos="0 0 -.15" size=".02" mass=".03"/>
  </body></body>"""
SERVOS = """<position name="{name}_hip" joint="{name}_hip" kp="60" kv="2" forcerange="-20 20"/>
<position name="{name}_knee" joint="{name}_knee" kp="60" kv="2" forcerange="-20 20"/>"""
LEGS = {"front_left": (0.18, 0.1), "front_right": (0.18, -0.1), "rear_left": (-0.18, 0.1), "rear_right": (-0.18, -0.1)}
WALKER = """<mujoco model="walker"><compiler angle="radian"/><worldbody>
<geom name="floor" type="plane" size="5 5 .1" friction=".8"/>
<body name="trunk" pos="0 0 .3"><freejoint/><site name="imu"/>
<geom type="box" size=".22 .08 .04" mass="5" contype="0" conaffinity="0"/>{legs}</body></worldbody>
<actuator>{servos}</actuator>
<sensor><framepos name="place" objtype="site" objname="imu"/>{touch}</sensor>
<keyframe><key name="crouch" qpos="0 0 .1426 1 0 0 0 {crouch}" ctrl="{crouch}"/>
<key name="stand" qpos="0 0 .28 1 0 0 0 {stand}" ctrl="{stand}"/></keyframe></mujoco>"""


def walker() -> str:
    """The MJCF text of the legged robot."""
    legs = "".join(LEG.format(name=name, x=x, y=y) for name, (x, y) in LEGS.items())
    servos = "".join(SERVOS.format(name=name) for name in LEGS)
    touch = "".join(f'<touch name="{name}" site="{name}_foot"/>' for name in LEGS)
    return WALKER.format(legs=legs, servos=servos, touch=touch, crouch="1.15 -2.3 " * 4, stand="0.5 -1.0 " * 4)


def stiffer(robot: lgjax.Robot, factor) -> lgjax.Robot:
    """The robot with other position gains: those of the control and of the length."""
    bias = robot.actuators.bias.at[:, 1].multiply(factor)  # constant, by length, by its rate
    return robot.replace(actuators=robot.actuators.replace(gain=factor * robot.actuators.gain, bias=bias))


def main(path: str = "27_robots_from_files.png", steps: int = 500) -> None:
    jax.config.update("jax_enable_x64", True)
    gripper, robot = lgjax.load_robot(GRIPPER), lgjax.load_robot(walker())
    for one in (gripper, robot):
        print(one)
        print("  actuators", *one.actuators.names, "| left out", one.ignored or "nothing")

    start, closed = gripper.keyframes["initial"], gripper.keyframes["closed"]
    grip = lgjax.rollout(gripper, start.q, start.v, closed.control, DT, steps, TimeStepping())
    print(f"gripper: the fingers differ by {np.max(np.ptp(grip.q.joints, axis=1)):.1e} m at most")

    crouch, stand = robot.keyframes["crouch"], robot.keyframes["stand"]

    def control(t, q, v):
        """The settings of the servos: from one keyframe to the other in half a second."""
        return crouch.control + (stand.control - crouch.control) * (1 - jnp.cos(jnp.pi * jnp.clip(2 * t, 0, 1))) / 2

    @jax.jit
    def rise(factor):
        """Heights of the trunk, their derivatives with respect to the factor, and the motion."""

        def heights(factor):
            path = lgjax.rollout(stiffer(robot, factor), crouch.q, crouch.v, control, DT, steps, TimeStepping())
            return path.q.free_poses.translation[:, 0, 2], path

        return jax.jvp(heights, (factor,), (jnp.ones_like(factor),), has_aux=True)

    (height, slope, motion), (other, _, _) = rise(1.0), rise(1.05)
    print(f"walker: {'stands' if motion.success else 'failed'}, {height[-1]:.4f} m high; with 1.05 times the gains")
    print(f"  {1000 * (other[-1] - height[-1]):.3f} mm higher, by the derivative {50 * slope[-1]:.3f} mm")

    contacts, slices = lgjax.Contacts(robot), robot.sensors.slices

    @jax.vmap
    def read(t, q, v, before, force):
        return robot.sensors(lgjax.sensors.after_step(robot, t, q, v, before, DT, contacts=contacts, force=force))

    after = jax.tree.map(lambda x: x[1:], (motion.ts, motion.q, motion.v))
    readings = np.asarray(read(*after, motion.v[:-1], motion.contacts.force[1:]))
    made = plot.figure(11, 6.5)
    (fingers, rising), (change, feet) = made.subplots(2, 2)
    fingers.plot(grip.ts, 1000 * grip.q.joints[:, 0], label="left finger, with the servo")
    fingers.plot(grip.ts, 1000 * grip.q.joints[:, 1], "--", label="right finger, by the equality")
    fingers.set(title="gripper: positions of the fingers (mm)")
    rising.plot(motion.ts[1:], 1000 * readings[:, slices["place"]][:, 2], label="sensor of place")
    rising.set(title="walker: height of the trunk (mm)")
    change.plot(motion.ts, 1000 * (other - height), label="second rollout")
    change.plot(motion.ts, 50 * slope, "--", label="by the derivative")
    change.set(title="walker: higher by servos 1.05 times as stiff (mm)", xlabel="t (s)")
    for name, style in (("front_left", "-"), ("rear_left", "--")):
        feet.plot(motion.ts[1:], readings[:, slices[name]], style, label=name.replace("_", " "))
    feet.set(title="walker: touch sensors of two feet (N)", xlabel="t (s)")
    for axis in (fingers, rising, change, feet):
        axis.legend(fontsize=8)
    plot.save(made, path)
    lgjax.view.picture(robot, motion, pathlib.Path(path).with_suffix(".gif"), size=(360, 240), fps=14)


if __name__ == "__main__":
    main(*sys.argv[1:2])
