"""Forces along tendons are MuJoCo's; along a length that is a joint's coordinate they are those of the joint."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import conventions
from lgjax.dynamics import forces, transmissions
from tests.dynamics.test_forces_slopes import derivatives, taken

XML = """
<mujoco model="puppet"><compiler angle="radian"/><option><flag contact="disable" energy="enable"/></option>
  <worldbody>
    <site name="hook" pos="0.3 0.1 1.2"/>
    <body name="hull" pos="0.1 0.2 0.3">
      <freejoint name="float"/>
      <inertial pos="0.02 -0.03 0.05" mass="4" diaginertia="0.3 0.2 0.25"/>
      <body name="turret" pos="0.1 0 0.2" quat="0.8 0.3 0.1 -0.4">
        <joint name="yaw" axis="0.2 0.1 1" pos="0.01 0.02 0.03"/>
        <inertial pos="0 0.05 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
        <site name="deck" pos="0.05 0.1 0.15"/>
        <body name="boom" pos="0 0.1 0.25">
          <joint name="extend" type="slide" axis="1 0.5 0"/>
          <inertial pos="0.2 0 0.02" mass="0.8" diaginertia="0.01 0.02 0.022"/>
          <site name="tip" pos="0.3 -0.1 0.05"/>
        </body>
      </body>
    </body>
  </worldbody>%s
</mujoco>
"""
# name: (rest, stiffness, damping); one tight, one within its band, one below it, by hand at the states below
TENDONS = {
    "sum": ((-0.1, 0.1), (3.0, -2.0, 5.0), (0.3, 0.2, 0.4)),
    "one": ((0.7, 0.7), (2.0, 1.5, 0.5), (0.5, -0.1, 0.2)),
    "rope": ((0.5, 1.5), (4.0, 3.0, 2.0), (0.7, 0.5, 0.0)),
    "hoist": ((9.0, 9.5), (6.0, 1.0, 1.0), (0.0, 0.6, 0.3)),
}
PATHS = """
  <tendon>
    <fixed name="sum" %s><joint joint="yaw" coef="0.7"/><joint joint="extend" coef="-1.3"/></fixed>
    <fixed name="one" %s><joint joint="extend" coef="2.1"/></fixed>
    <spatial name="rope" %s><site site="hook"/><site site="deck"/><site site="tip"/></spatial>
    <spatial name="hoist" %s><site site="hook"/><site site="tip"/><pulley divisor="2"/>
      <site site="deck"/><site site="tip"/></spatial>
  </tendon>"""
STATES = 6
DTYPES = [jnp.float64, jnp.float32]


def file() -> str:
    row = lambda x: " ".join(map(str, x))
    given = [f'springlength="{row(rest)}" stiffness="{row(k)}" damping="{row(d)}"' for rest, k, d in TENDONS.values()]
    return XML % (PATHS % tuple(given))


@cache
def model() -> lgjax.Model:
    return lgjax.load_mjcf(XML % "")


def tendons(m):
    hook, deck, tip = (None, (0.3, 0.1, 1.2)), ("turret", (0.05, 0.1, 0.15)), ("boom", (0.3, -0.1, 0.05))
    fixed = transmissions.fixed_tendons(m, [{"yaw": 0.7, "extend": -1.3}, {"extend": 2.1}])
    pulley = transmissions.Pulley(2.0)
    return fixed + transmissions.spatial_tendons(m, [[hook, deck, tip], [hook, tip, pulley, deck, tip]])


def column(which: int, number: int):
    return np.array([tendon[which][number] for tendon in TENDONS.values()])


def spring(lengths):
    rest = column(0, 0), column(0, 1)
    return forces.tendon_spring(lengths, column(1, 0), rest, column(1, 1), column(1, 2))


def damper(lengths):
    return forces.tendon_friction(lengths, column(2, 0), quadratic=column(2, 1), cubic=column(2, 2))


@cache
def states():
    keys = jax.random.split(jax.random.key(4), STATES)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model()))(keys)
    return q._replace(joints=q.joints / 2), np.random.default_rng(0).normal(size=(STATES, model().nv))


@cache
def of_mujoco():
    """Lengths, spring forces, damper forces and energies of springs."""
    theirs, free = (mujoco.MjModel.from_xml_string(text) for text in (file(), XML % ""))
    data, other, found = mujoco.MjData(theirs), mujoco.MjData(free), []
    for i in range(STATES):
        q, v = jax.tree.map(lambda x, i=i: x[i], states()[0]), jnp.asarray(states()[1][i])
        flat = conventions.to_mujoco(model(), q, v)
        for m, d in ((theirs, data), (free, other)):
            d.qpos[:], d.qvel[:] = flat.q, flat.v
            mujoco.mj_forward(m, d)
        ours = lambda x, flat=flat: conventions.from_mujoco(model(), flat.q, flat.v, tau=x.copy()).tau
        stored = data.energy[0] - other.energy[0]
        found.append((data.ten_length.copy(), ours(data.qfrc_spring), ours(data.qfrc_damper), stored))
    return tuple(np.stack(x) for x in zip(*found, strict=True))


def agree(found, wanted, dtype):
    tolerance = 1e-11 if dtype == jnp.float64 else 2e-4
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_springs_and_dampers_of_tendons(dtype):
    cast = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)
    m = model().astype(dtype)

    def all_of(q, v):
        lengths = tendons(m)
        pull = spring(lengths)
        return lengths.lengths(q), pull(0.0, q, v), damper(lengths)(0.0, q, v), pull.energy(q)

    found = jit(jax.vmap(all_of))(*cast(states()))
    for a, b in zip(found, of_mujoco(), strict=True):
        assert a.dtype == dtype
        agree(np.asarray(a), b, dtype)
    length = of_mujoco()[0]
    loose = (length > column(0, 0)) & (length < column(0, 1))
    assert loose.any()
    assert (length > column(0, 1)).any()
    assert (length < column(0, 0)).any()


# ---- along the coordinate of a joint
JOINT = {
    "limits": (
        lambda m: forces.limits(m, 40.0, 3.0, 0.2, -0.3, 0.2, ["extend"]),
        lambda t: forces.tendon_limits(t, 40.0, -0.3, 0.2, 3.0, 0.2),
    ),
    "friction": (
        lambda m: forces.friction(m, 0.3, 0.7, 0.4, ["extend"]),
        lambda t: forces.tendon_friction(t, 0.3, 0.7, 0.4),
    ),
    "damper": (
        lambda m: forces.damper(m, 0.3, ["extend"], 0.2, 0.1),
        lambda t: forces.tendon_friction(t, 0.3, quadratic=0.2, cubic=0.1),
    ),
    "spring": (
        lambda m: forces.spring(m, 3.0, joints=["extend"], quadratic=-2.0, cubic=5.0),
        lambda t: forces.tendon_spring(t, 3.0, 0.0, -2.0, 5.0),
    ),
}


@pytest.mark.parametrize("name", JOINT)
def test_a_length_that_is_a_coordinate_has_the_forces_of_its_joint(name):
    m = model()
    joint, length = (make(of) for make, of in zip(JOINT[name], (m, transmissions.joints(m, ["extend"])), strict=True))

    def both(q, v):
        at = 0.0, q, v
        rows, stiffness, damping = length.rows(*at)
        slopes = [rows[0] ** 2 * x for x in (stiffness, damping)]
        ours = length(*at), length.energy(q), *slopes
        return ours, (joint(*at), joint.energy(q), *joint.slopes(*at)), length.slopes(*at)

    q, v = states()
    found, wanted, none = jit(jax.vmap(both))(q._replace(joints=2 * q.joints), v)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * (1 + np.abs(b).max()))
    assert not np.any(none)
    assert np.abs(wanted[0]).max() > 0.1


# ---- derivatives
LAWS = {
    "spring": lambda t: forces.tendon_spring(t, 3.0, (-0.1, 0.1), cubic=2.0),
    "damper": lambda t: forces.tendon_friction(t, 0.3, quadratic=0.2, cubic=0.1),
    "friction": lambda t: forces.tendon_friction(t, 0.3, 0.7, 0.4),
    "limits": lambda t: forces.tendon_limits(t, 40.0, -0.1, 0.1, 3.0, 0.2),
}


@pytest.mark.parametrize("name", LAWS)
def test_rows_are_the_derivatives(name):
    """By the velocities of all tendons; by the coordinates, at rest, of those with constant moments."""
    m, law = model(), LAWS[name]

    def both(q, v):
        every, fixed = law(tendons(m)), law(tendons(m).take([0, 1]))
        of_v, of_q = derivatives(every, m, q, v)[1], derivatives(fixed, m, q, 0 * v)[0]
        return taken(every, q, v)[1], of_v, taken(fixed, q, 0 * v)[0], of_q

    damping, of_v, stiffness, of_q = jit(jax.vmap(both))(*states())
    np.testing.assert_allclose(damping, of_v, rtol=0, atol=1e-11 * (1 + np.abs(of_v).max()))
    np.testing.assert_allclose(stiffness, of_q, rtol=0, atol=1e-11 * (1 + np.abs(of_q).max()))
    assert max(np.abs(damping).max(), np.abs(stiffness).max()) > 0.1


@pytest.mark.parametrize("name", LAWS)
def test_the_force_is_minus_the_gradient_of_its_energy_and_friction_takes_power(name):
    m, law = model(), LAWS[name]

    def both(q, v):
        force = law(tendons(m))
        slope = jax.grad(lambda d: force.energy(lgjax.retract(m, q, d)))(0 * v)
        return force(0.0, q, 0 * v) + slope, force(0.0, q, v) @ v - force(0.0, q, 0 * v) @ v

    left, power = jit(jax.vmap(both))(*states())
    np.testing.assert_allclose(left, 0, atol=1e-11)
    assert np.all(power <= 1e-12)


def test_a_batch_of_parameters_is_differentiated_and_a_bad_traced_one_is_nan():
    m = model()
    q, v = jax.tree.map(lambda x: x[0], states()[0]), jnp.asarray(states()[1][0])
    push = lambda x: jnp.sum(forces.tendon_spring(tendons(m), x, 0.1)(0.0, q, v))
    values, slopes = jit(jax.vmap(jax.value_and_grad(push)))(jnp.asarray([0.0, 2.0, -1.0]))
    np.testing.assert_allclose(values[:2], slopes[1] * np.array([0.0, 2.0]), rtol=1e-12)
    assert np.isnan(values[2])
    band = lambda low: jnp.sum(forces.tendon_limits(tendons(m), 1.0, low, 0.5)(0.0, q, v))
    assert np.array_equal(np.isnan(jit(jax.vmap(band))(jnp.asarray([0.4, 0.6]))), [False, True])


def test_forces_follow_another_model():
    m = model()
    longer = m.replace(placements=m.placements._replace(translation=1.3 * m.placements.translation))
    q, v = jax.tree.map(lambda x: x[0], states()[0]), jnp.asarray(states()[1][0])
    found, wanted = spring(tendons(m)).for_model(longer), spring(tendons(longer))
    np.testing.assert_allclose(found(0.0, q, v), wanted(0.0, q, v), rtol=1e-12, atol=1e-12)
    assert np.abs(found(0.0, q, v) - spring(tendons(m))(0.0, q, v)).max() > 1e-3


BAD = {
    r"stiffness of 'tendon 1' is -1, expected": lambda t: forces.tendon_spring(t, [1.0, -1, 1, 1], 0.0),
    r"rest of 'tendon 0': 0.2 is above 0.1": lambda t: forces.tendon_spring(t, 1.0, (0.2, 0.1)),
    r"limits of 'tendon 0': 1 is above 0": lambda t: forces.tendon_limits(t, 1.0, 1.0, 0.0),
    r"width of 'tendon 0' is 0, expected finite and positive": lambda t: forces.tendon_limits(t, 1.0, width=0.0),
    r"low has shape \(3,\), expected a number or \(4,\)": lambda t: forces.tendon_spring(t, 1.0, np.zeros(3)),
    r"coulomb of 'tendon 0' is nan": lambda t: forces.tendon_friction(t, 0.0, np.nan),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_parameters_are_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD[message](tendons(model()))
    with pytest.raises(TypeError, match="tendons are Transmissions, got"):
        forces.tendon_spring(model(), 1.0, 0.0)  # type: ignore[arg-type]
