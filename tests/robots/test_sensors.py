"""Sensors read what MuJoCo's read, the rates of one another, and the weight of what rests on them."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import lgjax
from lgjax.multibody.conventions import from_mujoco
from lgjax.multibody.inertia import Inertia
from lgjax.robots import sensors
from lgjax.robots.sensors import touching
from lgjax.shapes import Plane
from tests.robots import walker

NAMES = sorted(walker.table(walker.model()))
# float32: of the largest reading of its kind, 1e3 N of forces in the walker.
TOLERANCE = {jnp.float64: 1e-10, jnp.float32: 3e-6}


def scale(name):
    _, theirs = walker.instants_and_readings()
    kin = [x for x in theirs if x.endswith(("_force", "_torque"))] if name.endswith(("_force", "_torque")) else [name]
    return max(1.0, *(np.abs(theirs[x]).max() for x in kin), 0.0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", NAMES)
def test_a_sensor_reads_what_mujoco_reads(name, dtype):
    theirs, found = walker.instants_and_readings()[1][name], walker.our_readings(dtype)[name]
    assert found.dtype == dtype
    if "quat" in name:  # the same rotation has two quaternions, of which ours has w >= 0
        assert np.all(found[:, 0] >= 0)
        found = np.where(np.sum(found * theirs, 1, keepdims=True) < 0, -found, found)
    size = scale(name) if dtype == jnp.float32 else 1.0
    assert np.abs(found - theirs).max() < TOLERANCE[dtype] * size


# ---- rates
RATES = (
    (sensors.frame_position, sensors.frame_linear_velocity),
    (sensors.frame_linear_velocity, sensors.frame_linear_acceleration),
    (sensors.frame_angular_velocity, sensors.frame_angular_acceleration),
)


def sum_of(records):
    return sum(records[1:], start=records[0])


def moved(instant, model, h):
    """The instant h seconds later, to the first order."""
    return instant._replace(q=lgjax.retract(model, instant.q, h * instant.v), v=instant.v + h * instant.vdot)


def test_velocities_and_accelerations_are_rates_also_in_moving_frames():
    model = walker.model()
    pairs = [("sole", None), ("sole", "eye"), ("mark", "sole"), ("seat", "imu")]
    made = lambda k: [rate[k](model, *frames).named(f"{n}") for n, (frames, rate) in enumerate(product(pairs, RATES))]
    first, last = sum_of(made(0)), sum_of(made(1))
    instants = jax.tree.map(lambda x: x[:10], walker.instants_and_readings()[0])
    rate = lambda instant: jax.jvp(lambda h: first(moved(instant, model, h)), (0.0,), (1.0,))[1]
    found, expected = (np.asarray(jax.jit(jax.vmap(f))(instants)) for f in (last, rate))
    assert np.abs(found - expected).max() < 1e-10 * np.abs(expected).max()


def test_a_subtree_moves_and_turns_as_its_sensors_say():
    """The momentum changes by the wrench at its root and by gravity; the center moves with the velocity."""
    model = walker.model()
    make = lambda *makers: sum_of([maker(model, "thigh") for maker in makers])
    center = make(sensors.subtree_center_of_mass)
    moving = make(sensors.subtree_linear_velocity, sensors.subtree_angular_momentum)
    wrench = make(sensors.force, sensors.torque)
    place = sensors.frame_position(model, "thigh") + sensors.frame_orientation(model, "thigh")
    mass = sum(float(model.inertias.mass[model.tree.body(b)]) for b in ("thigh", "shank", "toe"))

    def both(instant):
        instant = instant._replace(wrenches=None)
        rates = lambda f: jax.jvp(lambda h: f(moved(instant, model, h)), (0.0,), (1.0,))[1]
        at = place(instant)
        R = lgjax.s3.to_rotation(at[3:])
        f, n = R @ wrench(instant)[:3], R @ wrench(instant)[3:]
        about = n + jnp.cross(at[:3] - center(instant), f)
        given = jnp.concatenate([moving(instant)[:3], f / mass + model.gravity, about])
        return jnp.concatenate([rates(center), rates(moving)]), given

    found, expected = jax.jit(jax.vmap(both))(jax.tree.map(lambda x: x[:10], walker.instants_and_readings()[0]))
    assert np.abs(found - expected).max() < 1e-10 * np.abs(expected).max()


# ---- contacts
FLOOR = """
<mujoco model="stack">
  <option gravity="0 0 -9.81"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="base" pos="0 0 0.1">
      <freejoint/>
      <geom name="box" type="box" size="0.2 0.15 0.1" mass="2"/>
      <site name="imu" pos="0.05 0 0"/>
      <site name="corner" type="box" pos="-0.2 0.15 -0.1" size="0.05 0.05 0.02"/>
      <site name="below" type="cylinder" pos="0.2 0 -0.1" size="0.21 0.02" euler="0 20 0"/>
      <site name="far" type="sphere" pos="0 0 0.1" size="0.02"/>
      <site name="under" type="ellipsoid" pos="-0.2 0.15 -0.3" size="0.05 0.05 0.1"/>
      <site name="edge" type="capsule" pos="0.2 0 -0.1" size="0.03 0.15" euler="90 0 0"/>
      <body name="plate" pos="0 0 0.15">
        <inertial pos="0.01 0 0" mass="0.5" diaginertia="0.01 0.01 0.01"/>
        <site name="top" pos="0 0 0.02" euler="10 20 30"/>
        <body name="arm" pos="0.1 0 0.05">
          <joint name="lift" axis="0 1 0"/>
          <geom name="ball" type="sphere" size="0.08" pos="0.3 0 -0.22" mass="0.7"/>
          <site name="hand" pos="0.3 0 -0.2" euler="0 40 0"/>
          <site name="pad" type="sphere" pos="0.3 0 -0.25" size="0.1"/>
        </body>
      </body>
    </body>
  </worldbody>
  <sensor>
    <accelerometer name="imu" site="imu"/> <force name="top_f" site="top"/> <torque name="top_t" site="top"/>
    <force name="hand_f" site="hand"/> <torque name="hand_t" site="hand"/>
    <force name="imu_f" site="imu"/> <torque name="imu_t" site="imu"/>
    <touch name="corner" site="corner"/> <touch name="below" site="below"/> <touch name="far" site="far"/>
    <touch name="under" site="under"/> <touch name="edge" site="edge"/> <touch name="pad" site="pad"/>
    <contact name="base" geom1="floor" geom2="box" data="found" num="1"/>
    <contact name="any" subtree1="base" data="found" num="1"/>
  </sensor>
</mujoco>
"""
LINKS = {"floor": None, "box": "base", "ball": "arm"}


SLOTS = [("base", None)] * 4 + [("arm", None), ("base", "arm")]


@cache
def stack():
    """The stack and its sensors."""
    model, compiled = lgjax.load_mjcf(FLOOR.replace("<sensor", "<!--").replace("</sensor>", "-->")), floor()
    plate = compiled.body("plate").id
    mass, place = compiled.body_mass[plate], compiled.body_ipos[plate]
    about = np.diag(compiled.body_inertia[plate]) + mass * (place @ place * np.eye(3) - np.outer(place, place))
    beyond = sensors.Beyond("plate", Inertia(mass, mass * place, about), ("arm",), ("plate",))
    found = sensors.accelerometer(model, "imu", name="imu")
    for frame, more in (("top", beyond), ("hand", None), ("imu", None)):
        found += sensors.force(model, frame, more, name=f"{frame}_f")
        found += sensors.torque(model, frame, more, name=f"{frame}_t")
    for name in ("corner", "below", "far", "under", "edge", "pad"):
        site = compiled.site(name).id
        kind = mujoco.mjtGeom(compiled.site_type[site]).name.removeprefix("mjGEOM_").lower()
        size = compiled.site_size[site][: {"sphere": 1, "capsule": 2, "cylinder": 2}.get(kind, 3)]
        found += sensors.touch(model, name, "arm" if name == "pad" else "base", (kind, size), name=name)
    found += sensors.contact_count(model, "base", [None], name="base")
    return found + sensors.contact_count(model, ["base", "arm"], name="any")


@cache
def floor():
    return mujoco.MjModel.from_xml_string(FLOOR)


@cache
def on_the_floor(states=40):
    """Instants of the stack in contact, with MuJoCo's forces, and MuJoCo's readings."""
    compiled, model, found = floor(), stack().model, []
    data, rng = mujoco.MjData(compiled), np.random.default_rng(0)
    for _ in range(states):
        tilt, z = rng.normal(size=3) * 0.01, rng.uniform(0.09, 0.1)
        data.qpos[:] = np.r_[rng.normal(size=2), z, 1, tilt, rng.normal() * 0.1]
        mujoco.mj_normalizeQuat(compiled, data.qpos)
        data.qvel[:] = rng.normal(size=compiled.nv) * 0.1
        mujoco.mj_forward(compiled, data)
        slots, rows = list(SLOTS), np.zeros((len(SLOTS), 3, 3))
        for k, contact in enumerate(data.contact):
            pair = tuple(LINKS[compiled.geom(geom).name] for geom in reversed(contact.geom))
            slot, force = slots.index(pair), np.zeros(6)
            mujoco.mj_contactForce(compiled, data, k, force)
            frame = contact.frame.reshape(3, 3)
            slots[slot], rows[slot] = None, [contact.pos, frame.T @ force[:3], frame[0]]
        found.append([np.copy(x) for x in (data.qpos, data.qvel, data.qacc, rows, data.sensordata)])
    q, v, vdot, rows, readings = map(np.stack, zip(*found, strict=True))
    state = from_mujoco(model, q, jnp.asarray(v), jnp.asarray(vdot))
    contact = sensors.ContactForces(*(jnp.asarray(rows[:, :, k]) for k in range(3)), tuple(SLOTS))
    return sensors.Instant(None, state.q, state.v, state.vdot, None, contact), readings


@cache
def read_on_the_floor():
    instants, theirs = on_the_floor()
    return np.asarray(jax.jit(jax.vmap(stack()))(instants)), theirs


COUNTS = ("base", "any")


@pytest.mark.parametrize("name", COUNTS)
def test_contacts_are_counted_that_push(name):
    """MuJoCo also counts those with no force."""
    ours, theirs = read_on_the_floor()
    at, forces = stack().slices[name], on_the_floor()[0].contact.force
    zero = np.sum(np.all(np.asarray(forces) == 0, -1), -1)
    pushing = zero + theirs[:, stack().slices["any"]][:, 0] == len(SLOTS)
    assert 0 < np.sum(pushing) < len(pushing)
    np.testing.assert_array_equal(ours[pushing, at], theirs[pushing, at])
    assert np.all(ours[~pushing, stack().slices["any"]] < theirs[~pushing, stack().slices["any"]])


@pytest.mark.parametrize("name", [name for name in stack().names if name not in COUNTS])
def test_forces_and_touch_in_contact_are_those_of_mujoco(name):
    ours, theirs = read_on_the_floor()
    at = stack().slices[name]
    assert np.abs(ours[:, at] - theirs[:, at]).max() < 1e-10 * max(1, np.abs(theirs).max() / 100)
    if name not in ("far", "under", "imu_f", "imu_t"):
        assert len(np.unique(np.round(theirs[:, at], 6), axis=0)) > 1


ZONES = {"sphere": [0.4], "capsule": [0.2, 0.3], "cylinder": [0.3, 0.2], "box": [0.2, 0.3, 0.4]}
ZONES["ellipsoid"] = [0.2, 0.3, 0.5]


@pytest.mark.parametrize("kind", ZONES)
def test_half_lines_meet_zones_as_in_mujoco(kind):
    rng, size = np.random.default_rng(2), np.asarray(ZONES[kind])
    points, rays = rng.normal(size=(2, 400, 3)) * 0.5
    rays[:100] = np.eye(3)[rng.integers(0, 3, 100)] * np.sign(rays[:100, :1])  # along the axes, as on flat ground
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    first, last = touching.ZONES[kind](*map(jnp.asarray, (points, rays, size)))
    sort, full = getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}"), np.r_[size, np.zeros(3 - len(size))]
    theirs = [mujoco.mju_rayGeom(np.zeros(3), np.eye(3).ravel(), full, p, r, sort) >= 0 for p, r in zip(points, rays)]
    assert 30 < np.sum(theirs) < 370
    np.testing.assert_array_equal(np.asarray((last >= first) & (last >= 0)), theirs)


BOX = """
<mujoco model="box"><worldbody><body name="box" pos="0 0 0.1"><freejoint/>
  <geom type="box" size="0.2 0.15 0.1" mass="2"/> <site name="imu" pos="0.05 0 0"/>
  <body name="lid" pos="0 0 0.1"><geom type="sphere" size="0.05" mass="0.5" contype="0" conaffinity="0"/></body>
</body></worldbody></mujoco>
"""


def test_at_rest_on_the_ground_sensors_read_weights():
    """The mean over a step from rest to rest; the lid is fixed to the box and 0.5 kg of the 2.5 kg."""
    model, h = lgjax.load_mjcf(BOX), 0.01
    contacts = lgjax.Contacts(model, Plane((0.0, 0.0, 1.0)), ["box"])
    q, v = lgjax.configuration(model, lgjax.Pose(np.eye(3), np.array([0.3, 0.2, 0.1]))), jnp.zeros(6)
    loads = lgjax.contact.contact_points(model, contacts, q).point[:, 2] < 0.01
    force = jnp.where(loads[:, None], jnp.array([2.5 * 9.81 / 4, 0.0, 0.0]), 0)
    lid = sensors.Beyond("lid", Inertia(0.5, np.zeros(3), 0.4 * 0.5 * 0.05**2 * np.eye(3)), (), ("lid",))
    found = sensors.accelerometer(model, "imu") + sensors.touch(model, "box") + sensors.force(model, "lid", lid)
    now = sensors.after_step(model, h, q, v, v, h, contacts=contacts, force=force)
    values = found.split(found(now))
    np.testing.assert_allclose(values["imu_accelerometer"], [0, 0, 9.81], atol=1e-12)
    np.testing.assert_allclose(values["box_touch"], 2.5 * 9.81, rtol=1e-12)
    np.testing.assert_allclose(values["lid_force"], [0, 0, 0.5 * 9.81], atol=1e-12)
    contact = sensors.contact_forces(model, contacts, q, force)
    again = sensors.instant(model, h, q, v, contact=contact)  # the forces of the contacts hold the box
    np.testing.assert_allclose(again.vdot, 0, atol=1e-12)


def test_forces_between_two_links_of_what_is_beyond_cancel():
    """A contact between the arm and the base changes the force at the arm and not that at the base."""
    record, model = stack(), stack().model
    rng = np.random.default_rng(0)
    pairs = (("base", "arm"), ("arm", None))
    pose = lgjax.configuration(model, lgjax.Pose(np.eye(3), np.zeros(3)))
    read = jax.jit(lambda contact: record(sensors.Instant(None, pose, jnp.zeros(7), jnp.zeros(7), None, contact)))
    contact = sensors.ContactForces(*map(jnp.asarray, rng.normal(size=(3, 2, 3))), pairs)
    none = sensors.ContactForces(contact.point, 0 * contact.force, contact.normal, pairs)
    change = record.split(read(contact) - read(none))
    np.testing.assert_allclose(change["imu_f"], -contact.force[1], atol=1e-12)
    R = lgjax.frame_pose(model, pose, "hand").rotation
    np.testing.assert_allclose(R @ change["hand_f"], contact.force[0] - contact.force[1], atol=1e-12)
