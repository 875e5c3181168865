"""Forces of a fluid are MuJoCo's, for boxes and for ellipsoids."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax import jit
from scipy.integrate import quad

import lgjax
from lgjax import conventions, forces
from lgjax.dynamics.forces.fluid_ellipsoids import added_inertia

XML = """
<mujoco model="fish">
  <compiler angle="radian"/>
  <option gravity="0.3 -0.2 -9.81"%s><flag contact="disable"/></option>
  <worldbody>
    <body name="head" pos="0.1 0.2 0.3">
      <joint name="float" type="free"/>
      <inertial pos="0.02 -0.03 0.05" quat="0.9 0.1 -0.3 0.2" mass="4" diaginertia="0.03 0.02 0.025"/>
      <geom name="nose" type="ellipsoid" size="0.1 0.2 0.3" pos="0.1 0.2 0" quat="0.5 0.4 0.2 -0.3"%s/>
      <body name="fin" pos="0.1 -0.2 0.05" quat="0.9 0.3 0.2 -0.1">
        <inertial pos="0 0.02 0.1" quat="0.7 0.1 0.3 0.2" mass="1.2" diaginertia="0.03 0.02 0.025"/>
        <geom name="blade" type="ellipsoid" size="0.02 0.2 0.2" pos="0 0 0.1"%s/>
      </body>
      <body name="tail" pos="0.1 0 0.2" quat="0.8 0.3 0.1 -0.4">
        <joint name="swing" axis="0.2 0.1 1" armature="0.05"/>
        <inertial pos="0 0.05 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
        <geom name="round" type="sphere" size="0.15" pos="0 0.05 0.1"%s/>
      </body>
    </body>
    <body name="float" pos="0 0.02 0.5" quat="0.6 0.2 -0.7 0.1">
      <joint name="swivel" type="ball" pos="0.01 -0.02 0.03"/>
      <inertial pos="0.05 0.1 -0.02" quat="0.9 0.1 -0.3 0.2" mass="0.7" diaginertia="0.003 0.002 0.004"/>
      <geom name="peg" type="capsule" size="0.05 0.1" pos="0 0.05 0.1"%s/>
    </body>
  </worldbody>
</mujoco>
"""
BODIES = ("head", "fin", "tail", "float")
GEOMS = ("nose", "blade", "round", "peg")
MEDIUM = {"density": 1.7, "viscosity": 0.3, "wind": (0.5, -0.2, 0.7)}
OPTION = ' density="1.7" viscosity="0.3" wind="0.5 -0.2 0.7"'
SHAPES = ("0.5 0.25 1.5 1 1", "0.3 0.1 0.7 2 0.4", "0.5 0.25 1.5 1 1", "0.9 0.3 0.2 0.5 1.5")
FILES = {
    "boxes": XML % (OPTION, *[""] * 4),
    "ellipsoids": XML % (OPTION, *(f' fluidshape="ellipsoid" fluidcoef="{x}"' for x in SHAPES)),
}
STATES = 5
DTYPES = [jnp.float64, jnp.float32]


@cache
def model() -> lgjax.Model:
    return lgjax.load_mjcf(XML % ("", *[""] * 4))


@cache
def compiled(name: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(FILES[name])


def frames(positions, quaternions) -> lgjax.Pose:
    return lgjax.Pose(lgjax.so3.from_quaternion(jnp.asarray(quaternions)), jnp.asarray(positions))


def boxes(m):
    theirs = compiled("boxes")
    size = forces.inertia_box(theirs.body_mass[1:], theirs.body_inertia[1:])
    places = frames(theirs.body_ipos[1:], theirs.body_iquat[1:])
    return forces.fluid_boxes(m, BODIES, size.astype(m.dtype), **MEDIUM, frames=places)


def ellipsoids(m):
    theirs = compiled("ellipsoids")
    axes, twelve = np.array(theirs.geom_size), theirs.geom_fluid
    axes[2], axes[3] = 0.15, (0.05, 0.05, 0.15)
    virtual = np.concatenate([twelve[:, 9:], twelve[:, 6:9]], 1)
    places = frames(theirs.geom_pos, theirs.geom_quat)
    return forces.fluid_ellipsoids(
        m, BODIES, axes, **MEDIUM, frames=places, coefficients=twelve[:, 1:6], virtual=virtual
    )


FORCES = {"boxes": boxes, "ellipsoids": ellipsoids}


@cache
def states():
    keys = jax.random.split(jax.random.key(1), STATES)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model()))(keys)
    return q, np.random.default_rng(0).normal(size=(STATES, model().nv))


@cache
def of_mujoco(name: str):
    theirs, found = compiled(name), []
    data = mujoco.MjData(theirs)
    for i in range(STATES):
        q, v = jax.tree.map(lambda x, i=i: x[i], states()[0]), jnp.asarray(states()[1][i])
        flat = conventions.to_mujoco(model(), q, v)
        data.qpos[:], data.qvel[:] = flat.q, flat.v
        mujoco.mj_forward(theirs, data)
        found.append(conventions.from_mujoco(model(), flat.q, flat.v, tau=data.qfrc_fluid.copy()).tau)
    return np.stack(found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORCES)
def test_forces_are_those_of_mujoco(name, dtype):
    cast = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)
    found = jit(jax.vmap(lambda q, v: FORCES[name](model().astype(dtype))(0.0, q, v)))(*cast(states()))
    assert found.dtype == dtype
    wanted = of_mujoco(name)
    tolerance = 1e-11 if dtype == jnp.float64 else 1e-4
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("name", FORCES)
def test_slopes_are_what_motion_adds(name):
    def both(q, v):
        force = FORCES[name](model())
        return force.slopes(0.0, q, v), -jnp.diag(jax.jacfwd(lambda v: force(0.0, q, v))(v))

    (stiffness, damping), wanted = jit(jax.vmap(both))(*states())
    assert not np.any(stiffness)
    np.testing.assert_allclose(damping, np.maximum(wanted, 0), rtol=0, atol=1e-12 * np.abs(wanted).max())
    assert np.abs(damping).max() > 0.1


def shape_factor(r, i):
    """The integral over x^2 of r_x r_y r_z / sqrt((r_i^2 + x^2)^3 (r_j^2 + x^2) (r_k^2 + x^2))."""
    below = lambda x: np.sqrt(np.prod(r**2 + x * x) * (r[i] ** 2 + x * x) ** 2)
    return 2 * quad(lambda x: x * np.prod(r) / below(x), 0, np.inf, epsabs=1e-12, limit=500)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_added_inertia_is_that_of_potential_flow(dtype):
    """Integrals of SciPy; MuJoCo's own are right to 1e-6; half of the fluid moves with a sphere, and does not turn."""
    axes = np.array([[0.1, 0.2, 0.3], [0.02, 0.2, 0.2], [1.0, 1.0, 0.01], [3.0, 0.1, 0.2], [0.15, 0.15, 0.15]])
    found = np.asarray(added_inertia(jnp.asarray(axes, dtype)))
    for half, got in zip(axes, found, strict=True):
        kappa = [shape_factor(half / half.max(), i) for i in range(3)]
        volume, square = 4 / 3 * np.pi * np.prod(half), half**2
        wanted = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            gap, change = square[j] - square[k], kappa[j] - kappa[k]
            below = 2 * gap + (square[j] + square[k]) * change
            wanted.append(0.0 if abs(gap) < 1e-9 else -volume / 5 * gap**2 * change / below)
        wanted += [volume * x / (2 - x) for x in kappa]
        tolerance = 1e-7 if dtype == jnp.float64 else 1e-4
        np.testing.assert_allclose(got[3:], wanted[3:], rtol=tolerance)
        np.testing.assert_allclose(got[:3], wanted[:3], rtol=tolerance, atol=tolerance * volume * square.max())
    np.testing.assert_allclose(found[-1, 3:], 4 / 3 * np.pi * 0.15**3 / 2, rtol=1e-5)
    twelve = compiled("ellipsoids").geom_fluid[0]
    np.testing.assert_allclose(found[0], np.r_[twelve[9:], twelve[6:9]], rtol=1e-6 if dtype == jnp.float64 else 1e-4)


def test_a_box_of_the_inertia_of_a_body():
    """A solid box with sides 2, 3 and 4: I_x = m (3^2 + 4^2) / 12 and so on."""
    size, mass = np.array([1.0, 1.5, 2.0]), 5.0
    moments = mass / 3 * (np.sum(size**2) - size**2)
    np.testing.assert_allclose(forces.inertia_box(mass, moments), size, rtol=1e-14)
    np.testing.assert_allclose(forces.inertia_box(1.0, np.array([1.0, 1.0, 2.0])), [3**0.5, 3**0.5, 0], atol=1e-14)


@pytest.mark.parametrize("name", FORCES)
def test_derivatives_at_rest_and_for_parameters_are_finite(name):
    """At rest without wind; by the density they are the force at a density of one without viscosity."""
    m = model()
    within = lambda force, *medium: replace(force, medium=forces.Medium(*map(jnp.asarray, medium)))

    def all_of(q, v):
        force = within(FORCES[name](m), 1.7, 0.3, np.zeros(3))
        push = lambda v: force(0.0, q, v)
        of_density = lambda x: within(force, x, 0.0, np.zeros(3))(0.0, q, v)
        first, second = jax.jacfwd(push)(0 * v), jax.jacrev(push)(0 * v)
        return first, second, jax.jacfwd(of_density)(2.0), of_density(1.0)

    q, v = jax.tree.map(lambda x: x[0], states()[0]), jnp.asarray(states()[1][0])
    first, second, slope, value = jit(all_of)(q, v)
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-13)
    np.testing.assert_allclose(first, first.T, rtol=0, atol=1e-12)
    assert np.all(np.linalg.eigvalsh(first) < 1e-12)
    np.testing.assert_allclose(slope, value, rtol=1e-12)


def test_forces_follow_another_model():
    m = model()
    longer = m.replace(placements=m.placements._replace(translation=1.3 * m.placements.translation))
    q, v = jax.tree.map(lambda x: x[0], states()[0]), jnp.asarray(states()[1][0])
    np.testing.assert_allclose(boxes(m).for_model(longer)(0.0, q, v), boxes(longer)(0.0, q, v), rtol=1e-12, atol=1e-12)


ONE = np.ones((1, 3))
BAD = {
    r"no frame 'wing' in 'fish'": lambda m: forces.fluid_boxes(m, ["wing"], ONE),
    r"density is -1, expected": lambda m: forces.fluid_boxes(m, ["tail"], ONE, -1.0),
    r"half_sizes has shape \(3,\)": lambda m: forces.fluid_boxes(m, ["tail"], np.ones(3)),
    r"half_axes is not positive": lambda m: forces.fluid_ellipsoids(m, ["tail"], 0 * ONE),
    r"coefficients have shape \(4,\), expected \(5,\) or \(1, 5\)": lambda m: forces.fluid_ellipsoids(
        m, ["tail"], ONE, coefficients=np.ones(4)
    ),
    r"rotation of the frames is not a rotation": lambda m: forces.fluid_boxes(
        m, ["tail"], ONE, frames=lgjax.Pose(np.ones((1, 3, 3)), ONE)
    ),
    r"the list is empty": lambda m: forces.fluid_boxes(m, [], np.ones((0, 3))),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_parameters_are_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD[message](model())
