"""States convert to and from the flat vectors of MuJoCo and Pinocchio, checked by what these programs do with them."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin
import pytest
from jax import jit

import lgjax
from lgjax.multibody import conventions as flat
from tests.dynamics import trees

# Names in no alphabetical order; Pinocchio sorts the children of a body, MuJoCo keeps the order of the file.
URDF = """
<robot name="toy">
  {links}
  <joint name="zeta" type="continuous"><parent link="base"/><child link="z"/><origin xyz="0 0.1 0.2" rpy="1 0 0"/>
    <axis xyz="1 0 0"/></joint>
  <joint name="alpha" type="revolute"><parent link="base"/><child link="a"/><origin xyz="0.1 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
  <joint name="mid" type="prismatic"><parent link="z"/><child link="m"/><origin xyz="0.1 0 0" rpy="0 0.4 0"/>
    <axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
</robot>""".format(
    links="".join(
        f'<link name="{name}"><inertial><origin xyz="0.1 {i} 0.05"/><mass value="{1 + i}"/>'
        '<inertia ixx="0.2" iyy="0.25" izz="0.3" ixy="0.01" ixz="0.02" iyz="0.03"/></inertial></link>'
        for i, name in enumerate(("base", "z", "a", "m"))
    )
)
MODEL = lgjax.load_urdf(URDF)


def states(model=MODEL, n=5):
    q, v, vdot, tau, _ = trees.random_states(model, n)
    return q, v, vdot, tau


def test_a_pinocchio_state_moves_as_ours():
    theirs = pin.buildModelFromXML(URDF, pin.JointModelFreeFlyer())
    data = theirs.createData()
    names = list(theirs.names)[1:]
    assert names == ["root_joint", "alpha", "zeta", "mid"]
    q, v, vdot, _ = states()
    tau = jit(jax.vmap(lgjax.inverse_dynamics, (None, 0, 0, 0)))(MODEL, q, v, vdot)
    x = jax.jit(lambda *s: flat.to_pinocchio(MODEL, *s, order=names, continuous=["zeta"]))(q, v, vdot, tau)
    for i in range(len(v)):
        expected = pin.rnea(theirs, data, *(np.asarray(y[i]) for y in (x.q, x.v, x.vdot)))
        np.testing.assert_allclose(x.tau[i], expected, atol=1e-12)


def test_a_mujoco_state_moves_as_ours():
    q, v, vdot, _ = states()
    spec = mujoco.MjSpec.from_string(URDF)
    spec.worldbody.first_body().add_freejoint(name="free")
    spec.option.disableflags = mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_CONTACT
    theirs = spec.compile()
    data = mujoco.MjData(theirs)
    names = [mujoco.mj_id2name(theirs, mujoco.mjtObj.mjOBJ_JOINT, i) for i in range(1, theirs.njnt)]
    tau = jit(jax.vmap(lgjax.inverse_dynamics, (None, 0, 0, 0)))(MODEL, q, v, vdot)
    x = flat.to_mujoco(MODEL, q, v, vdot, tau, order=names)
    for i in range(len(v)):
        data.qpos[:], data.qvel[:], data.qacc[:] = x.q[i], x.v[i], x.vdot[i]
        mujoco.mj_inverse(theirs, data)
        np.testing.assert_allclose(x.tau[i], data.qfrc_inverse, atol=1e-11)


CONVERSIONS = {
    "mujoco": (flat.to_mujoco, flat.from_mujoco, {}),
    "pinocchio": (flat.to_pinocchio, flat.from_pinocchio, {}),
    "pinocchio, continuous": (flat.to_pinocchio, flat.from_pinocchio, {"continuous": ["mast_joint", "pole_joint"]}),
}
ORDER = ["buoy", "pole", "cart", "mast", "ship"]


@pytest.mark.parametrize("order", [None, [f"{name}_joint" for name in ORDER]], ids=["body order", "another order"])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_there_and_back(name, order):
    """Under jit and vmap, for several free joints between others; leading axes broadcast alike."""
    there, back, options = CONVERSIONS[name]
    dtype = jnp.float64 if order else jnp.float32
    model = trees.model("forest").astype(dtype)
    given = jax.tree.map(lambda x: x.astype(dtype), states(trees.model("forest")))
    x = jax.jit(jax.vmap(lambda *s: there(model, *s, order=order, **options)))(*given)
    ours = jax.jit(jax.vmap(lambda *s: back(model, *s, order=order, **options)))(*x)
    tolerance = 50 * float(jnp.finfo(dtype).eps)
    for a, b in zip(jax.tree.leaves(tuple(ours)), jax.tree.leaves(given), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, atol=tolerance)
    direct = there(model, *given, order=order, **options)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance), direct, x)


def test_power_is_the_same_in_all_conventions():
    model = trees.model("forest")
    q, v, _vdot, tau = states(model)
    for there, _, options in CONVERSIONS.values():
        x = there(model, q, v, None, tau, **options)
        assert x.vdot is None
        np.testing.assert_allclose(jnp.sum(x.v * x.tau, -1), jnp.sum(v * tau, -1), rtol=1e-12)


def test_a_mujoco_velocity_at_constant_acceleration_is_the_derivative_of_its_velocity():
    model = trees.model("single body")
    q, v, vdot, _ = jax.tree.map(lambda x: x[0], states(model))

    def velocity(s):
        return flat.to_mujoco(model, lgjax.retract(model, q, s * v), v + s * vdot).v

    _, rate = jax.jvp(velocity, (0.0,), (1.0,))
    np.testing.assert_allclose(flat.to_mujoco(model, q, v, vdot).vdot, rate, atol=1e-12)


def test_what_does_not_fit_is_refused_by_name():
    q, v, vdot, _ = jax.tree.map(lambda x: x[0], states())
    with pytest.raises(ValueError, match="depend on the velocity: give v as well"):
        flat.to_mujoco(MODEL, q, None, vdot)
    with pytest.raises(ValueError, match=r"order does not list the joints of 'toy' once each: beta, mid"):
        flat.to_pinocchio(MODEL, q, v, order=["alpha", "zeta", "beta"])
    with pytest.raises(ValueError, match="no scalar joint 'root_joint' in 'toy'; joints: alpha, mid, zeta"):
        flat.from_pinocchio(MODEL, jnp.zeros(11), continuous=["root_joint"])


@pytest.mark.parametrize("batched", [(5, (), ()), ((), 5, ()), ((), (), 5), (5, 5, ())])
def test_leading_axes_of_planar_states_are_broadcast(batched):
    model = lgjax.build([trees.body("a", None, "planar", 1), trees.body("b", "a", "revolute", 2)])
    q, v, vdot, _ = jax.tree.map(lambda x: x[0], states(model, 1))
    many = lambda x, n: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)) if n else leaf, x)
    one = flat.to_pinocchio(model, q, v, vdot)
    given = [many(x, n) for x, n in zip((q, v, vdot), batched, strict=True)]
    jax.tree.map(lambda x, e: np.testing.assert_allclose(x, np.broadcast_to(e, x.shape), atol=1e-14),
                 flat.to_pinocchio(model, *given), one)  # fmt: skip
    back = flat.from_pinocchio(model, *(many(x, n) for x, n in zip(one[:3], batched, strict=True)))
    for found, expected in zip(jax.tree.leaves(back), jax.tree.leaves((q, v, vdot)), strict=True):
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=1e-14)
