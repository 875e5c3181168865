"""Passive forces of a robot file are MuJoCo's: springs, dampers, gravity compensation, armature of a free joint."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import conventions, forces

# A free body, hinge, slide and ball, each with rest, stiffness and damping of its own; fixed links with masses.
XML = """
<mujoco model="walker">
  <compiler angle="radian"/>
  <option gravity="0.3 -0.2 -9.81"><flag contact="disable" constraint="disable" energy="enable"/></option>
  <worldbody>
    <body name="hull" pos="0.1 0.2 0.3"{hull}>
      <joint name="float" type="free"{float}/>
      <inertial pos="0.02 -0.03 0.05" quat="0.9 0.1 -0.3 0.2" mass="4" diaginertia="0.3 0.2 0.25"/>
      <body name="box" pos="0.1 -0.2 0.05" quat="0.9 0.3 0.2 -0.1"{box}>
        <inertial pos="0 0.02 0.1" quat="0.7 0.1 0.3 0.2" mass="1.2" diaginertia="0.03 0.02 0.025"/>
      </body>
      <body name="turret" pos="0.1 0 0.2" quat="0.8 0.3 0.1 -0.4"{turret}>
        <joint name="yaw" type="hinge" axis="0.2 0.1 1" armature="0.05"{yaw}/>
        <inertial pos="0 0.05 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
        <body name="boom" pos="0 0.1 0.25"{boom}>
          <joint name="extend" type="slide" axis="1 0.5 0" armature="0.1"{extend}/>
          <inertial pos="0.2 0 0.02" quat="0.5 0.5 -0.5 0.5" mass="0.8" diaginertia="0.01 0.02 0.022"/>
        </body>
      </body>
    </body>
    <body name="bob" pos="0 0.02 0.5" quat="0.6 0.2 -0.7 0.1"{bob}>
      <joint name="swivel" type="ball" pos="0.01 -0.02 0.03"{swivel}/>
      <inertial pos="0.05 0.1 -0.02" quat="0.9 0.1 -0.3 0.2" mass="0.7" diaginertia="0.003 0.002 0.004"/>
    </body>
  </worldbody>
</mujoco>
"""
JOINTS = ("float", "yaw", "extend", "swivel")
PLACES = ("hull", "box", "turret", "boom", "bob", *JOINTS)
STATES = 6
PRECISION = {jnp.float64: 1e-11, jnp.float32: 2e-4}


def file(**attributes) -> str:
    return XML.format(**dict.fromkeys(PLACES, "") | {k: f" {v}" for k, v in attributes.items()})


@cache
def model() -> lgjax.Model:
    return lgjax.load_mjcf(file())


@cache
def states():
    keys = jax.random.split(jax.random.key(1), STATES)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model()))(keys)
    return q, np.random.default_rng(0).normal(size=(STATES, model().nv))


@cache
def of_mujoco(text: str, name: str):
    """A generalized force of MuJoCo in our coordinates (STATES, nv), its energies (STATES, 2) and accelerations."""
    theirs = mujoco.MjModel.from_xml_string(text)
    data, found = mujoco.MjData(theirs), []
    for q, v in zip(rows(states()[0]), states()[1], strict=True):
        flat = conventions.to_mujoco(model(), q, jnp.asarray(v))
        data.qpos[:], data.qvel[:] = flat.q, flat.v
        mujoco.mj_forward(theirs, data)
        ours = conventions.from_mujoco(model(), flat.q, flat.v, data.qacc.copy(), getattr(data, name).copy())
        found.append((ours.tau, data.energy.copy(), ours.vdot))
    return tuple(np.stack(x) for x in zip(*found, strict=True))


def rows(q):
    return [jax.tree.map(lambda x, i=i: x[i], q) for i in range(STATES)]


def ours(make, dtype):
    """Forces and energies of what make(model) gives."""
    cast = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)

    def both(q, v):
        force = make(model().astype(dtype))
        return force(0.0, q, v), force.energy(q)

    tau, energy = jit(jax.vmap(both))(*cast(states()))
    assert tau.dtype == energy.dtype == dtype
    return np.asarray(tau, float), np.asarray(energy, float)


def agree(found, wanted, dtype):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=PRECISION[dtype] * np.abs(wanted).max())
    assert np.abs(wanted).max() > 0.1


# ---- springs and dampers
REST = 'springref="0.3"'
STIFF = {"float": (2.0, 3.0, 5.0), "yaw": (2.5, -3.0, 4.0), "extend": (7.0, 6.0, -1.0), "swivel": (1.5, 0.7, 0.9)}


def coefficients(number: int):
    """The n-th coefficient for each of our velocities."""
    return np.repeat([STIFF[joint][number] for joint in JOINTS], [6, 1, 1, 3])


def rest_of(theirs):
    return conventions.from_mujoco(model(), theirs.qpos_spring).q


DTYPES = [jnp.float64, jnp.float32]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [1, 3])
def test_springs_of_every_joint(order, dtype):
    """Linear, and with quadratic and cubic parts; MuJoCo counts the energy of linear ones."""
    numbers = lambda joint: " ".join(str(x) for x in STIFF[joint][:order])
    text = file(**{joint: f'stiffness="{numbers(joint)}" {REST if joint in JOINTS[1:3] else ""}' for joint in JOINTS})
    theirs = mujoco.MjModel.from_xml_string(text)
    more = [coefficients(k) for k in (1, 2)] if order == 3 else [None, None]
    make = lambda m: forces.spring(m, coefficients(0), cast(rest_of(theirs), m), JOINTS, *more)
    cast = lambda q, m: jax.tree.map(lambda x: x.astype(m.dtype), q)
    tau, energy = ours(make, dtype)
    wanted, energies, _ = of_mujoco(text, "qfrc_spring")
    agree(tau, wanted, dtype)
    without, *_ = of_mujoco(file(), "qfrc_spring"), None
    agree(energy, energies[:, 0] - without[1][:, 0], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dampers_of_every_joint(dtype):
    text = file(**{joint: f'damping="{" ".join(map(str, STIFF[joint]))}"' for joint in JOINTS})
    make = lambda m: forces.damper(m, coefficients(0), JOINTS, coefficients(1), coefficients(2))
    agree(ours(make, dtype)[0], of_mujoco(text, "qfrc_damper")[0], dtype)


# ---- gravity compensation
CARRIED = {"hull": 0.3, "box": 1.2, "turret": 1.0, "boom": -0.5, "bob": 0.8}
COMS = {"hull": (0.02, -0.03, 0.05), "box": (0, 0.02, 0.1), "turret": (0, 0.05, 0.1), "boom": (0.2, 0, 0.02)}
COMS["bob"] = (0.05, 0.1, -0.02)
MASSES = {"hull": 4.0, "box": 1.2, "turret": 1.5, "boom": 0.8, "bob": 0.7}


def carry(names):
    mass, com, fraction = (np.array([of[name] for name in names]) for of in (MASSES, COMS, CARRIED))
    return lambda m: forces.gravity_compensation(m, names, fraction, mass, com)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gravity_compensation_of_links(dtype):
    """The box is fixed to the hull, and one body with it here."""
    text = file(**{name: f'gravcomp="{x}"' for name, x in CARRIED.items()})
    tau, energy = ours(carry(list(CARRIED)), dtype)
    agree(tau, of_mujoco(text, "qfrc_gravcomp")[0], dtype)
    heights = jit(jax.vmap(lambda q: jnp.stack([_place(q, name) for name in CARRIED])))(states()[0])
    weights = np.array([CARRIED[name] * MASSES[name] for name in CARRIED])
    agree(energy, np.einsum("ijk,j,k->i", heights, weights, [0.3, -0.2, -9.81]), dtype)


def _place(q, name):
    pose = lgjax.frame_pose(model(), q, name)
    return pose.rotation @ jnp.asarray(COMS[name]) + pose.translation


@pytest.mark.parametrize("dtype", DTYPES)
def test_gravity_compensation_of_all_bodies_is_their_weight(dtype):
    m = model().astype(dtype)
    q = jax.tree.map(lambda x: x[0].astype(dtype), states()[0])
    weight = lgjax.gravity_forces(m, q)
    force = forces.gravity_compensation(m, fraction=0.5)
    np.testing.assert_allclose(force(0.0, q, jnp.zeros(m.nv, dtype)), weight / 2, atol=PRECISION[dtype])
    heavier = m.replace(inertias=m.inertias.scaled(3.0))
    np.testing.assert_allclose(force.for_model(heavier).energy(q), 3 * force.energy(q), rtol=1e-4)


# ---- armature of a free joint
@pytest.mark.parametrize("dtype", DTYPES)
def test_armature_of_a_free_joint_acts_along_axes_of_the_world(dtype):
    """The accelerations are those of MuJoCo, with motion; without the force they are not."""
    wanted = of_mujoco(file(float='armature="0.7"'), "qfrc_passive")[2]
    m = model().replace(armature=model().armature.at[:6].set(0.7)).astype(dtype)

    def run(q, v):
        force = forces.free_armature(m)
        tau = force(0.0, q, v)
        return lgjax.forward_dynamics(m, q, v, tau), lgjax.forward_dynamics(m, q, v, 0 * v), tau @ v

    cast = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)
    found, without, power = map(np.asarray, jit(jax.vmap(run))(*cast(states())))
    agree(found, wanted, dtype)
    assert np.abs(without - wanted).max() > 0.1
    np.testing.assert_allclose(power, 0, atol=PRECISION[dtype])


def test_armature_of_a_free_joint_keeps_its_energy_and_momentum_in_the_world():
    """Of a body that is armature alone, unequal about its axes: what turns is d/dt of b w and of R a v."""
    inertia = jnp.asarray([0.3, 0.5, 0.9, 0.7, 0.7, 0.7])
    ball = lgjax.build([lgjax.Body("ball", None, lgjax.Joint("f", "free"), mass=1e-9, inertia=1e-9 * np.eye(3))])
    m = ball.replace(armature=inertia, gravity=jnp.zeros(3))
    random = np.random.default_rng(2)
    R = lgjax.so3.exp(jnp.asarray(random.normal(size=3)))
    q, v = lgjax.configuration(m, lgjax.Pose(R, jnp.zeros(3))), jnp.asarray(random.normal(size=6))
    vdot = lgjax.forward_dynamics(m, q, v, forces.free_armature(m)(0.0, q, v))
    w, u = v[:3], v[3:]
    np.testing.assert_allclose(vdot[3:] + np.cross(w, u), 0, atol=1e-8)
    np.testing.assert_allclose(inertia[:3] * vdot[:3] + np.cross(w, inertia[:3] * w), 0, atol=1e-8)


def test_forces_follow_another_model():
    m = model()
    other = m.replace(armature=m.armature + 0.5, gravity=2 * m.gravity, inertias=m.inertias.scaled(2.0))
    q, v = jax.tree.map(lambda x: x[0], states()[0]), jnp.asarray(states()[1][0])
    for make in (forces.free_armature, forces.gravity_compensation, carry(list(CARRIED))):
        np.testing.assert_allclose(make(m).for_model(other)(0.0, q, v), make(other)(0.0, q, v), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [forces.free_armature, carry(["box", "bob"])])
def test_derivatives_at_rest_at_home_are_finite(make):
    m = model()
    force, v = make(m), jnp.zeros(m.nv)
    at = lambda d, v: force(0.0, lgjax.retract(m, lgjax.neutral(m), d), v)
    slope, forward = jit(lambda d, v: (jax.jacrev(at, (0, 1))(d, v), jax.jacfwd(at, (0, 1))(d, v)))(0 * v, v)
    for a, b in zip(slope, forward, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


BAD = {
    r"no frame 'wing' in 'walker'; frames:": lambda m: forces.gravity_compensation(m, ["wing"]),
    r"'box' is a frame of 'walker': give mass and com for it": lambda m: forces.gravity_compensation(m, ["box"]),
    r"give both mass and com, or neither": lambda m: forces.gravity_compensation(m, ["bob"], 1.0, [1.0]),
    r"mass of 'bob' is -1, expected": lambda m: forces.gravity_compensation(m, ["bob"], 1.0, [-1.0], np.zeros((1, 3))),
    r"com has shape \(3,\)": lambda m: forces.gravity_compensation(m, ["bob"], 1.0, [1.0], np.zeros(3)),
    r"stiffness of the moving of 'float' is one number": lambda m: forces.spring(
        m, [1, 1, 1, 2, 3, 4], joints=["float"]
    ),
    r"quadratic of the ball 'swivel' is one number": lambda m: forces.spring(
        m, 1.0, joints=["swivel"], quadratic=[1, 2, 3]
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_parameters_are_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD[message](model())
