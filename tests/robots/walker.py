"""A walker, its sensors as MuJoCo has them and as this library has them, and MuJoCo's readings at random states."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import lgjax
from lgjax.dynamics.transmissions import fixed_tendons, joints
from lgjax.multibody.conventions import from_mujoco
from lgjax.multibody.inertia import Inertia
from lgjax.robots import sensors

# Free, ball, hinge and slide joints, a body with two, links on fixed joints, two trees, turned inertial frames.
XML = """
<mujoco model="walker">
  <compiler angle="radian"/>
  <option gravity="0.3 -0.2 -9.81" magnetic="0.1 -0.5 0.3"><flag contact="disable"/></option>
  <worldbody>
    <site name="mark" pos="0.3 0.1 -0.2" quat="0.9 0.2 0.1 0.3"/>
    <body name="rack" pos="1 0 0.2" quat="0.9 0.1 0 0.3">
      <inertial pos="0.1 0 0" mass="3" diaginertia="0.1 0.1 0.1"/>
      <site name="mount" pos="0.1 0.2 0" quat="0.3 0.1 0.9 0.2"/>
      <body name="cart" pos="0.2 0.1 0">
        <joint name="rail" type="slide" axis="1 0 0" damping="0.5" range="-0.5 0.5"/>
        <inertial pos="0 0 0" mass="2" diaginertia="0.1 0.1 0.1"/>
        <site name="seat" pos="0.01 0.02 0.03" quat="0.3 0.1 0.9 0.2"/>
      </body>
    </body>
    <body name="torso" pos="0 0 1">
      <freejoint name="root"/>
      <inertial pos="0.02 -0.03 0.05" quat="0.9 0.1 -0.3 0.2" mass="4" diaginertia="0.3 0.2 0.25"/>
      <site name="imu" pos="0.1 0.05 -0.02" quat="0.7 0.1 -0.5 0.3"/>
      <body name="head" pos="0 0.1 0.3" quat="0.8 0.3 0.1 -0.4">
        <joint name="neck" type="ball" damping="0.2" armature="0.02"/>
        <inertial pos="0 0.05 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
        <site name="eye" pos="0.1 0 0.05" quat="0.1 0.9 0.2 -0.4"/>
      </body>
      <body name="thigh" pos="0.1 0 -0.2" quat="0.8 0.3 0.1 -0.4">
        <joint name="hip_x" type="hinge" axis="1 0.2 0" damping="0.3" armature="0.05"/>
        <joint name="hip_y" type="hinge" axis="0 1 0.1" range="-1 0.8"/>
        <inertial pos="0 0.05 -0.1" mass="1.2" diaginertia="0.02 0.03 0.015"/>
        <site name="hip" pos="0.01 0.02 0.03" quat="0.3 0.1 0.9 0.2"/>
        <body name="shank" pos="0 0.1 -0.25">
          <joint name="knee" type="slide" axis="1 0.5 0" damping="2.0" armature="0.1"/>
          <inertial pos="0.2 0 0.02" quat="0.5 0.5 -0.5 0.5" mass="0.8" diaginertia="0.01 0.02 0.022"/>
          <body name="foot" pos="0 0.1 -0.3" quat="0.9 0.1 0.1 0.2">
            <inertial pos="0.05 0 0.02" quat="0.9 0.1 0.1 0.2" mass="0.4" diaginertia="0.002 0.003 0.004"/>
            <site name="sole" pos="0.02 0.03 -0.05" quat="0.6 0.1 0.3 0.2"/>
            <body name="toe" pos="0.1 0 -0.02">
              <joint name="toe" type="hinge" axis="0 1 0"/>
              <inertial pos="0.05 0 0" mass="0.2" diaginertia="0.001 0.0012 0.0013"/>
            </body>
            <body name="heel" pos="-0.1 0 -0.02" quat="0.9 0 0.3 0">
              <inertial pos="0.01 0 0.01" mass="0.1" diaginertia="0.0001 0.00012 0.00013"/>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="strap"><joint joint="hip_y" coef="0.4"/><joint joint="toe" coef="-0.7"/></fixed>
  </tendon>
  %s
</mujoco>
"""
DRIVES = """
  <actuator>
    <motor name="turn" joint="hip_x" gear="3"/>
    <motor name="push" joint="knee" gear="-20"/>
    <motor name="pull" tendon="strap" gear="2"/>
    <motor name="tighten" tendon="strap"/>
  </actuator>
"""
STATES = 100
STRAP = {"hip_y": 0.4, "toe": -0.7}
DRIVEN = {"hip_x": 3.0, "knee": -20.0}
LOOSE = ("heel", "foot", "rack")  # links on fixed joints, on which no forces act here
FRAMES = ("pos", "quat", "xaxis", "yaxis", "zaxis", "linvel", "angvel", "linacc", "angacc")


def _frames(s, model, name):
    """The sensors of a frame as MuJoCo calls them."""
    axes = {f"{axis}axis": lambda f, r, a=axis, **o: s.frame_axis(model, f, a, r, **o) for axis in "xyz"}
    return (
        axes[name]
        if name in axes
        else {
            "pos": lambda f, r, **o: s.frame_position(model, f, r, **o),
            "quat": lambda f, r, **o: s.frame_orientation(model, f, r, **o),
            "linvel": lambda f, r, **o: s.frame_linear_velocity(model, f, r, **o),
            "angvel": lambda f, r, **o: s.frame_angular_velocity(model, f, r, **o),
            "linacc": lambda f, r, **o: s.frame_linear_acceleration(model, f, r, proper=True, **o),
            "angacc": lambda f, r, **o: s.frame_angular_acceleration(model, f, r, **o),
        }[name]
    )


def table(model):
    """(MuJoCo's element, maker of the same sensor) by name."""
    s, rows = sensors, {}
    for name in FRAMES:
        make = _frames(s, model, name)
        site = 'objtype="site" objname="sole"'
        rows[f"sole_{name}"] = f"<frame{name} {site}/>", lambda make=make: make("sole", None)
        body = f'<frame{name} objtype="body" objname="head"/>'
        rows[f"head_{name}"] = body, lambda make=make: make(("head", inertial_frame("head")), None)
        if not name.endswith("acc"):
            seen = f'<frame{name} {site} reftype="xbody" refname="head"/>'
            rows[f"seen_{name}"] = seen, lambda make=make: make("sole", "head")
            marked = f'<frame{name} objtype="xbody" objname="heel" reftype="site" refname="mark"/>'
            rows[f"heel_{name}"] = marked, lambda make=make: make("heel", "mark")
    for name in ("accelerometer", "gyro", "velocimeter"):
        for site in ("imu", "sole", "mount"):
            make = getattr(s, name)
            rows[f"{site}_{name}"] = f'<{name} site="{site}"/>', lambda make=make, site=site: make(model, site)
    rows["compass"] = '<magnetometer site="sole"/>', lambda: s.magnetometer(model, "sole", (0.1, -0.5, 0.3))
    beyond = {"sole": ("foot", ("toe",), ("heel",)), "mount": ("rack", ("cart",), ())}
    for name in ("force", "torque"):
        for site in ("imu", "hip", "seat", "sole", "mount"):
            make = lambda name=name, site=site: getattr(s, name)(model, site, part(model, *beyond.get(site, ())))
            rows[f"{site}_{name}"] = f'<{name} site="{site}"/>', make
    subtrees = {"com": "center_of_mass", "linvel": "linear_velocity", "angmom": "angular_momentum"}
    for name, ours in subtrees.items():
        for body in ("torso", "thigh", "toe", "cart", "foot", "rack"):
            fixed = next((b for b in beyond.values() if b[0] == body), ())
            make = lambda ours=ours, body=body, fixed=fixed: getattr(s, f"subtree_{ours}")(
                model, body, part(model, *fixed)
            )
            rows[f"{body}_{name}"] = f'<subtree{name} body="{body}"/>', make
    return rows | _scalars(s, model)


def _scalars(s, model):
    drives = joints(model, list(DRIVEN), list(DRIVEN.values())) + fixed_tendons(model, [STRAP, STRAP], [2.0, 1.0])
    tendons, actuators = fixed_tendons(model, [STRAP]), ["turn", "push", "pull", "tighten"]
    rows = {
        "tendon": ('<tendonpos tendon="strap"/>', lambda: s.length(model, tendons)),
        "tendon_rate": ('<tendonvel tendon="strap"/>', lambda: s.length_rate(model, tendons)),
        "tendon_force": (
            '<tendonactuatorfrc tendon="strap"/>',
            lambda: s.actuator_force(model, actuators, ["pull", "tighten"], total=True),
        ),
        "neck_quat": ('<ballquat joint="neck"/>', lambda: s.ball_orientation(model, "neck")),
        "neck_velocity": ('<ballangvel joint="neck"/>', lambda: s.ball_velocity(model)),
        "kinetic": ("<e_kinetic/>", lambda: s.kinetic_energy(model)),
        "potential": ("<e_potential/>", lambda: s.potential_energy(model, offset=_resting())),
        "clock": ("<clock/>", lambda: s.clock(model)),
        "clipped": ('<gyro site="sole" cutoff="0.7"/>', lambda: s.gyro(model, "sole", cutoff=0.7)),
    }
    for k, name in enumerate(actuators):
        rows[f"{name}_position"] = f'<actuatorpos actuator="{name}"/>', lambda k=k: s.length(model, drives, k)
        rows[f"{name}_velocity"] = f'<actuatorvel actuator="{name}"/>', lambda k=k: s.length_rate(model, drives, k)
        make = lambda name=name: s.actuator_force(model, actuators, name)
        rows[f"{name}_force"] = f'<actuatorfrc actuator="{name}"/>', make
    for name in ("rail", "hip_x", "hip_y", "knee", "toe"):
        own = {
            "jointpos": s.joint_position,
            "jointvel": s.joint_velocity,
            "jointactuatorfrc": s.joint_actuator_force,
            "jointlimitpos": s.joint_limit_position,
            "jointlimitvel": s.joint_limit_velocity,
            "jointlimitfrc": s.joint_limit_force,
        }
        for kind, make in own.items():
            if "limit" not in kind or name in ("rail", "hip_y"):
                make = lambda make=make, name=name: make(model, name)
                rows[f"{name}_{kind}"] = f'<{kind} joint="{name}"/>', make
    return rows


def _resting():
    """The potential energy of the rack, which is fixed to the world."""
    compiled = mujoco.MjModel.from_xml_string(XML % "")
    rack = compiled.body("rack").id
    place = compiled.body_pos[rack] + matrix(compiled.body_quat[rack]) @ compiled.body_ipos[rack]
    return -compiled.body_mass[rack] * compiled.opt.gravity @ place


def inertial_frame(name):
    compiled = mujoco.MjModel.from_xml_string(XML % "")
    body = compiled.body(name).id
    return lgjax.Pose(matrix(compiled.body_iquat[body]), compiled.body_ipos[body])


def matrix(quaternion):
    found = np.zeros(9)
    mujoco.mju_quat2Mat(found, quaternion)
    return found.reshape(3, 3)


def part(model, link=None, bodies=(), fixed=()):
    """The rigid part of a merged body that begins with a link, by MuJoCo's masses; links fixed to it are listed."""
    if link is None:
        return None
    compiled = mujoco.MjModel.from_xml_string(XML % "")
    total = [np.zeros(()), np.zeros(3), np.zeros((3, 3))]
    for name in (link, *fixed):
        body = compiled.body(name).id
        R, p = matrix(compiled.body_iquat[body]), compiled.body_ipos[body]
        if name != link:
            R, p = matrix(compiled.body_quat[body]) @ R, compiled.body_pos[body] + matrix(compiled.body_quat[body]) @ p
        mass, central = compiled.body_mass[body], R @ np.diag(compiled.body_inertia[body]) @ R.T
        total[0] += mass
        total[1] += mass * p
        total[2] += central + mass * (p @ p * np.eye(3) - np.outer(p, p))
    return sensors.Beyond(link, Inertia(*total), bodies, (link, *fixed))


@cache
def model():
    return lgjax.load_mjcf(XML % "")


@cache
def ours():
    """The record of all sensors."""
    rows = [make().named(name) for name, (_, make) in table(model()).items()]
    return sum(rows[1:], start=rows[0])


@cache
def instants_and_readings():
    """Instants of random states with random controls and forces, and MuJoCo's readings by name, float64."""
    rows = table(model())
    elements = [
        text.replace(" ", f' name="{name}" ', 1) if " " in text else text.replace("/", f' name="{name}"/')
        for name, (text, _) in rows.items()
    ]
    compiled = mujoco.MjModel.from_xml_string(XML % f"{DRIVES}<sensor>{''.join(elements)}</sensor>")
    data, rng, found = mujoco.MjData(compiled), np.random.default_rng(0), []
    for _ in range(STATES):
        data.qpos[:] = rng.normal(size=compiled.nq)
        mujoco.mj_normalizeQuat(compiled, data.qpos)
        data.qvel[:], data.ctrl[:], data.time = rng.normal(size=compiled.nv), rng.normal(size=compiled.nu), rng.normal()
        data.xfrc_applied[1:] = rng.normal(size=(compiled.nbody - 1, 6))
        data.xfrc_applied[[compiled.body(name).id for name in LOOSE]] = 0
        mujoco.mj_forward(compiled, data)
        wrenches = np.zeros((model().nbodies, 6))
        for k, name in enumerate(model().body_names):
            if name != "thigh_hip_x":  # the first of the two joints of the thigh moves nothing of its own
                body = compiled.body(name).id
                R, (f, n) = data.xmat[body].reshape(3, 3), np.split(data.xfrc_applied[body], 2)
                n = n + np.cross(data.xipos[body] - data.xpos[body], f)
                wrenches[k] = np.r_[R.T @ n, R.T @ f]
        vectors = [data.qpos, data.qvel, data.qacc, data.qfrc_actuator, data.qfrc_constraint]
        others = [data.time, wrenches, data.actuator_force, data.sensordata]
        found.append([np.copy(x) for x in (*vectors, *others)])
    q, v, vdot, torque, limits, t, wrenches, force, readings = map(np.stack, zip(*found, strict=True))
    state = from_mujoco(model(), q, jnp.asarray(v), jnp.asarray(vdot), jnp.asarray(torque))
    limit = from_mujoco(model(), q, tau=jnp.asarray(limits)).tau
    instants = sensors.Instant(
        jnp.asarray(t), state.q, state.v, state.vdot, jnp.asarray(wrenches), None, jnp.asarray(force), state.tau, limit
    )
    starts = compiled.sensor_adr
    parts = {name: readings[:, starts[k] : starts[k] + compiled.sensor_dim[k]] for k, name in enumerate(rows)}
    return instants, parts


@cache
def our_readings(dtype):
    """This library's readings by name at all those instants."""
    instants, _ = instants_and_readings()
    cast = lambda tree: jax.tree.map(lambda x: x.astype(dtype), tree)
    values = jax.jit(jax.vmap(ours().astype(dtype)))(cast(instants))
    return {name: np.asarray(values[:, part]) for name, part in ours().slices.items()}
