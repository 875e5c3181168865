"""Transmissions have MuJoCo's lengths, velocities and moments, which are the derivatives of one another."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import lgjax
from lgjax.dynamics import transmissions
from lgjax.dynamics.transmissions import Pulley
from tests.dynamics import trees

XML = """
<mujoco model="puppet">
  <compiler angle="radian"/>
  <option gravity="0 0 -9.81"><flag contact="disable" constraint="disable"/></option>
  <worldbody>
    <site name="hook" pos="0.3 0.1 1.2" quat="0.8 0.1 0.3 -0.2"/>
    <body name="hull" pos="0.1 0.2 0.3">
      <freejoint name="float"/>
      <inertial pos="0.02 -0.03 0.05" mass="4" diaginertia="0.3 0.2 0.25"/>
      <site name="jet" pos="0.2 0.1 -0.1" quat="0.7 0.2 -0.3 0.1"/>
      <body name="turret" pos="0.1 0 0.2" quat="0.8 0.3 0.1 -0.4">
        <joint name="yaw" type="hinge" axis="0.2 0.1 1" pos="0.01 0.02 0.03"/>
        <inertial pos="0 0.05 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
        <site name="deck" pos="0.05 0.1 0.15" quat="0.5 0.5 -0.3 0.2"/>
        <body name="boom" pos="0 0.1 0.25">
          <joint name="extend" type="slide" axis="1 0.5 0"/>
          <inertial pos="0.2 0 0.02" mass="0.8" diaginertia="0.01 0.02 0.022"/>
          <site name="tip" pos="0.3 -0.1 0.05" quat="0.9 -0.2 0.4 0.3"/>
        </body>
        <body name="arm" pos="-0.1 0 0.1">
          <joint name="shoulder" type="hinge" axis="0 1 0" pos="0.02 0.01 -0.03"/>
          <inertial pos="0.1 0 0" mass="0.6" diaginertia="0.004 0.006 0.007"/>
          <site name="hand" pos="0.3 0.02 -0.05" quat="0.6 0.3 0.2 -0.5"/>
        </body>
      </body>
    </body>
    <body name="cart" pos="1 0 0">
      <joint name="rail" type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="2" diaginertia="0.1 0.1 0.1"/>
      <site name="pin" pos="0 0.1 0.2"/>
      <body name="bob" pos="0 0.02 0.5" quat="0.6 0.2 -0.7 0.1">
        <joint name="swivel" type="ball" pos="0.01 -0.02 0.03"/>
        <inertial pos="0.05 0.1 -0.02" mass="0.7" diaginertia="0.003 0.002 0.004"/>
        <site name="ear" pos="0.1 0.05 0.2" quat="0.3 0.6 -0.2 0.4"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="sum"><joint joint="yaw" coef="0.7"/><joint joint="extend" coef="-1.3"/></fixed>
    <fixed name="one"><joint joint="rail" coef="2.1"/></fixed>
    <spatial name="rope"><site site="hook"/><site site="hand"/><site site="tip"/><site site="jet"/></spatial>
    <spatial name="hoist">
      <site site="hook"/><site site="deck"/><pulley divisor="2"/>
      <site site="hand"/><site site="deck"/><pulley divisor="3"/><site site="ear"/><site site="pin"/><site site="tip"/>
    </spatial>
  </tendon>
  <actuator>
    <general joint="yaw" gear="3"/> <general joint="rail" gear="-0.7"/> <general joint="yaw" gear="1.5"/>
    <general joint="swivel" gear="0.3 -0.5 0.9"/>
    <general jointinparent="swivel" gear="0.3 -0.5 0.9"/>
    <general joint="float" gear="0.2 0.4 -0.6 1.1 -1.3 0.5"/>
    <general jointinparent="float" gear="0.2 0.4 -0.6 1.1 -1.3 0.5"/>
    <general tendon="sum" gear="0.4"/> <general tendon="one" gear="-1.2"/>
    <general tendon="rope" gear="2.5"/> <general tendon="hoist" gear="-0.8"/>
    <general site="hand" gear="0.1 0.2 -0.3 0.4 0.5 -0.6"/> <general site="jet" gear="0 0 1 0 0 0.1"/>
    <general site="hand" refsite="jet" gear="0.1 0.2 -0.3 0 0 0"/>
    <general site="tip" refsite="hand" gear="0.2 -0.4 0.5 0 0 0"/>
    <general site="hand" refsite="deck" gear="0 0 0 0.4 0.5 -0.6"/>
    <general site="ear" refsite="hook" gear="0.3 0.1 0.2 0.4 0.5 -0.6"/>
    <general cranksite="hand" slidersite="jet" cranklength="0.8" gear="1.7"/>
    <general cranksite="pin" slidersite="hook" cranklength="0.01" gear="-0.4"/>
  </actuator>
</mujoco>
"""
KINDS = {
    "joints": slice(0, 3),
    "balls": slice(3, 5),
    "frees": slice(5, 7),
    "fixed tendons": slice(7, 9),
    "spatial tendons": slice(9, 11),
    "sites": slice(11, 13),
    "sites in references": slice(13, 17),
    "slider-cranks": slice(17, 19),
}
# Kinds whose moments are the gradients of their lengths everywhere.
EXACT = ("joints", "fixed tendons", "spatial tendons", "slider-cranks")
STATES = 6
TOLERANCE = {jnp.float64: 1e-12, jnp.float32: 2e-6}


def wrench(*gear):
    """A gear of MuJoCo with the torque first."""
    return (*gear[3:], *gear[:3])


def made(model):
    """The transmissions of the file, by hand."""
    t, slew = transmissions, (0.3, -0.5, 0.9)
    pose = wrench(0.2, 0.4, -0.6, 1.1, -1.3, 0.5)
    references = [(0.1, 0.2, -0.3, 0, 0, 0), (0.2, -0.4, 0.5, 0, 0, 0), (0, 0, 0, 0.4, 0.5, -0.6)]
    references.append((0.3, 0.1, 0.2, 0.4, 0.5, -0.6))
    hoist = ["hook", "deck", Pulley(2.0), "hand", "deck", Pulley(3.0), "ear", "pin", "tip"]
    return (
        t.joints(model, ["yaw", "rail", "yaw"], [3.0, -0.7, 1.5])
        + t.balls(model, ["swivel"], slew)
        + t.balls(model, ["swivel"], slew, in_parent=True)
        + t.frees(model, ["float"], pose)
        + t.frees(model, ["float"], pose, in_parent=True)
        + t.fixed_tendons(model, [{"yaw": 0.7, "extend": -1.3}, {"rail": 2.1}], [0.4, -1.2])
        + t.spatial_tendons(model, [["hook", "hand", "tip", "jet"], hoist], [2.5, -0.8])
        + t.sites(model, ["hand", "jet"], [wrench(0.1, 0.2, -0.3, 0.4, 0.5, -0.6), wrench(0, 0, 1, 0, 0, 0.1)])
        + t.sites(
            model, ["hand", "tip", "hand", "ear"], [wrench(*g) for g in references], ["jet", "hand", "deck", "hook"]
        )
        + t.slider_cranks(model, ["hand", "pin"], ["jet", "hook"], [0.8, 0.01], [1.7, -0.4])
    )


@cache
def models():
    bodies, _ = XML.split("<tendon>")
    return lgjax.load_mjcf(bodies + "</mujoco>"), mujoco.MjModel.from_xml_string(XML)


@cache
def states():
    model, _ = models()
    keys = jax.random.split(jax.random.key(3), STATES)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    v, tau = np.random.default_rng(4).normal(size=(2, STATES, model.nv))
    return q, v, tau


@cache
def theirs():
    """MuJoCo's lengths, velocities, and moments in the velocities of this library."""
    model, compiled = models()
    data, found = mujoco.MjData(compiled), []
    for i in range(STATES):
        q, v = jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), states()[:2])
        state = lgjax.conventions.to_mujoco(model, q, v)
        data.qpos[:], data.qvel[:] = state.q, state.v
        mujoco.mj_forward(compiled, data)
        moments = np.zeros((compiled.nu, compiled.nv))
        mujoco.mju_sparse2dense(
            moments, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind
        )
        ours = jax.vmap(lambda row, state=state: lgjax.conventions.from_mujoco(model, state.q, tau=row).tau)(
            jnp.asarray(moments)
        )
        found.append((data.actuator_length.copy(), data.actuator_velocity.copy(), ours))
    return jax.tree.map(lambda *x: np.stack(x), *found)


@cache
def ours(dtype):
    model, _ = models()
    given = made(model).astype(dtype)
    q, v, _ = jax.tree.map(lambda x: jnp.asarray(x, dtype), states())
    forces = jnp.asarray(np.random.default_rng(5).normal(size=(STATES, len(given))), dtype)

    def answers(given, q, v, forces):
        return given.lengths(q), given.rates(q, v), given.moments(q), given.torque(q, forces)

    return jax.jit(jax.vmap(answers, (None, 0, 0, 0)))(given, q, v, forces), forces


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_rates_and_moments_are_those_of_mujoco(kind, dtype):
    rows = KINDS[kind]
    for mine, their, what in zip(ours(dtype)[0], theirs(), ("lengths", "rates", "moments"), strict=False):
        assert mine.dtype == dtype
        np.testing.assert_allclose(
            mine[:, rows], their[:, rows], atol=TOLERANCE[dtype] * (1 + np.abs(their).max()), rtol=0, err_msg=what
        )


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_torque_and_rates_are_products_with_the_moments(dtype):
    (lengths, rates, moments, torque), forces = ours(dtype)
    v = np.asarray(states()[1], dtype)
    bound = 20 * float(jnp.finfo(dtype).eps) * np.abs(moments).sum()
    np.testing.assert_allclose(rates, np.einsum("bij,bj->bi", moments, v), atol=bound, rtol=0)
    np.testing.assert_allclose(torque, np.einsum("bij,bi->bj", moments, forces), atol=bound, rtol=0)
    assert lengths.shape == (STATES, len(made(models()[0])))


@cache
def gradients():
    """Derivatives of all lengths along coordinates, forward, and at the identity those of lengths and moments."""
    model, _ = models()
    given = made(model)
    zero = jnp.zeros(model.nv)
    along = lambda q: lambda d: given.lengths(lgjax.retract(model, q, d))
    some = given.take([3, 4, 9, 14, 16, 17])
    q = lgjax.neutral(model)
    bend = lambda d: jnp.sum(some.moments(lgjax.retract(model, q, d)) ** 2)

    def at_identity():
        return jax.jacrev(along(q))(zero), jax.grad(bend)(zero)

    return jax.jit(jax.vmap(lambda q: jax.jacfwd(along(q))(zero)))(states()[0]), jax.jit(at_identity)()


def test_moments_are_derivatives_of_lengths():
    forward, (reverse, _) = gradients()
    at_identity = made(models()[0]).moments(lgjax.neutral(models()[0]))
    for kind in EXACT:
        rows = KINDS[kind]
        np.testing.assert_allclose(forward[:, rows], ours(jnp.float64)[0][2][:, rows], atol=1e-12, err_msg=kind)
        np.testing.assert_allclose(reverse[rows], at_identity[rows], atol=1e-12, err_msg=kind)


def test_derivatives_at_the_identity_are_finite():
    assert all(np.all(np.isfinite(x)) for x in gradients()[1])


def test_a_tendon_of_length_zero_pulls_nothing():
    model, _ = models()
    point = transmissions.spatial_tendons(model, [["hand", "hand"], [("hand", (0, 0, 0.1)), ("arm", (0, 0, 0.3))]])
    q = lgjax.neutral(model)
    slopes = jax.jit(jax.grad(lambda d: point.lengths(lgjax.retract(model, q, d))[0]))(jnp.zeros(model.nv))
    np.testing.assert_array_equal(slopes, 0)
    np.testing.assert_array_equal(point.moments(q), 0)  # nor does one between two points of the same body


def test_places_may_be_points_of_bodies_and_of_the_world():
    model, compiled = models()
    q, v = jax.tree.map(lambda x: jnp.asarray(x[0]), states()[:2])
    named = transmissions.spatial_tendons(model, [["hook", "hand", "tip"]])
    at = lambda name: tuple(compiled.site(name).pos)
    given = transmissions.spatial_tendons(model, [[(None, at("hook")), ("arm", at("hand")), ("boom", at("tip"))]])
    np.testing.assert_allclose(named.lengths(q), given.lengths(q), atol=1e-14)
    np.testing.assert_allclose(named.rates(q, v), given.rates(q, v), atol=1e-14)
    both = transmissions.join([named, given, named])  # with and without points
    np.testing.assert_allclose(both.lengths(q), [named.lengths(q)[0]] * 3, atol=1e-14)
    moved = model.replace(frames=model.frames._replace(translation=model.frames.translation + 0.1))
    other = transmissions.spatial_tendons(moved, [["hook", "hand", "tip"]])
    np.testing.assert_array_equal(named.for_model(moved).lengths(q), other.lengths(q))
    assert abs(other.lengths(q) - named.lengths(q))[0] > 1e-3


def test_some_of_the_transmissions():
    model, _ = models()
    given, rows = made(model), (0, 2, 4, 6, 8, 10, 11, 14, 16, 18)
    q = jax.tree.map(lambda x: jnp.asarray(x[0]), states()[0])
    some = given.take(rows)
    assert len(some) == len(rows)
    assert given.take(range(len(given))) is given
    both = jax.jit(lambda *x: [(t.lengths(q), t.moments(q)) for t in x])(some, given)
    for mine, their in zip(*both, strict=True):
        np.testing.assert_allclose(mine, their[np.asarray(rows)], atol=1e-15)
    one_by_one = transmissions.join([given.take([i]) for i in range(len(given))])
    assert jax.tree.structure(one_by_one) == jax.tree.structure(given)
    jax.tree.map(np.testing.assert_array_equal, one_by_one, given)
    assert given.take((0, 7)).model is None
    assert given.take((0, 7)).constant
    assert not given.take((0, 4)).constant


def test_coordinates_of_joints_with_several():
    model = trees.forest()
    slide = transmissions.joints(model, ["pole_joint", "cart_joint[1]"], [2.0, 3.0])
    q = jax.tree.map(lambda x: x[0], trees.random_states(model, 2)[0])
    expected = np.zeros((2, model.nv))
    expected[0, model.tree.v_start[3]], expected[1, model.tree.v_start[2] + 1] = 2, 3
    np.testing.assert_array_equal(slide.moments(q), expected)
    np.testing.assert_allclose(slide.lengths(q), [2 * q.joints[4], 3 * q.joints[2]])
    one = [i for i, body in enumerate(model.tree.v_body) if model.tree.kinds[body].nv == 1]
    assert transmissions.joints(model).places[1].tolist() == one


def test_numbers_are_batched_and_differentiated():
    model, _ = models()
    q, v, _ = jax.tree.map(lambda x: jnp.asarray(x[0]), states())

    def rate(gear, coefficient, divisor, rod):
        t = transmissions
        given = t.joints(model, ["yaw"], gear) + t.fixed_tendons(model, [{"rail": coefficient}])
        given = given + t.spatial_tendons(model, [[Pulley(divisor), "hook", "tip"]])
        return jnp.sum((given + t.slider_cranks(model, ["hand"], ["jet"], rod)).rates(q, v))

    at, rates = (2.0, 0.5, 3.0, 2.0), jax.jit(jax.vmap(rate))
    slopes = jax.jit(jax.grad(rate, (0, 1, 2, 3)))(*map(jnp.asarray, at))
    for k, slope in enumerate(slopes):
        ends = rates(*(jnp.asarray([x + h * (i == k) for h in (1e-6, -1e-6)]) for i, x in enumerate(at)))
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-7, err_msg=str(k))
    bad = rates(*(jnp.full(2, x) for x in (2.0, 0.5)), jnp.asarray([-3.0, 3.0]), jnp.asarray([2.0, 2.0]))
    np.testing.assert_array_equal(np.isnan(bad), [True, False])  # a traced number out of range


def test_moments_of_joints_need_few_operations():
    model, _ = models()
    given = transmissions.joints(model) + transmissions.fixed_tendons(model, [{"yaw": 0.7, "extend": -1.3}])
    q = jax.tree.map(lambda x: jnp.asarray(x[0]), states()[0])
    found = jax.make_jaxpr(lambda given, q, f: given.torque(q, f))(given, q, jnp.ones(len(given)))
    largest = max(np.prod(x.aval.shape) for eqn in found.eqns for x in eqn.outvars)
    assert largest <= model.nv  # no matrix (n, nv)


WRONG = {
    "an unknown joint": (lambda t, m: t.joints(m, ["jaw"]), ValueError, "no joint 'jaw' in 'puppet'; joints: yaw"),
    "a ball": (lambda t, m: t.joints(m, ["swivel"]), ValueError, "'swivel' is spherical and has no scalar coordinate"),
    "a text": (lambda t, m: t.joints(m, "yaw"), TypeError, "names must be a list of names"),
    "no joint": (lambda t, m: t.joints(m, []), ValueError, "the list is empty"),
    "a gear": (lambda t, m: t.joints(m, ["yaw"], np.nan), ValueError, "gear of 'yaw' is nan"),
    "gears": (lambda t, m: t.joints(m, ["yaw"], [1, 2]), ValueError, r"gear has shape \(2,\)"),
    "a hinge": (lambda t, m: t.balls(m, ["yaw"], (0, 0, 1)), ValueError, "'yaw' is not a ball joint of 'puppet'"),
    "an axis": (lambda t, m: t.balls(m, ["swivel"], (0, 1)), ValueError, r"axis has shape \(2,\), expected \(3,\)"),
    "a wrench": (lambda t, m: t.sites(m, ["hand"], np.zeros(3)), ValueError, r"wrench has shape \(3,\)"),
    "a site": (lambda t, m: t.sites(m, ["foot"], np.zeros(6)), ValueError, "no frame 'foot' in 'puppet'"),
    "references": (lambda t, m: t.sites(m, ["hand"], np.zeros(6), []), ValueError, "reference has 0 places for 1"),
    "a path": (lambda t, m: t.spatial_tendons(m, [["hook", Pulley(2.0), "hand"]]), ValueError, "has no two places"),
    "a pulley": (lambda t, m: t.spatial_tendons(m, [[Pulley(0.0), "hook", "hand"]]), ValueError, "divisor is 0"),
    "the world": (lambda t, m: t.spatial_tendons(m, [[None, "hand"]]), ValueError, r"given by \(None, point\)"),
    "a rod": (lambda t, m: t.slider_cranks(m, ["hand"], ["jet"], -1.0), ValueError, "rod of 'crank 0' is -1"),
    "a tendon": (lambda t, m: t.fixed_tendons(m, [["yaw"]]), TypeError, "a dict of coefficients by joint"),
    "another model": (
        lambda t, m: t.joints(m) + t.joints(trees.forest()), ValueError, "two models: 'puppet' and 'forest'",
    ),
    "a velocity": (lambda t, m: t.joints(m).rates(lgjax.neutral(m), jnp.zeros(3)), ValueError, r"v has shape \(3,\)"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named(what):
    make, kind, message = WRONG[what]
    with pytest.raises(kind, match=message):
        make(transmissions, models()[0])
