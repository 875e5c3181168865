"""The flat field is the motion of `rollout` in the hands of SciPy, diffrax and OpenSCvx."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import lgjax
from lgjax import adapters
from lgjax.integrators import DORMAND_PRINCE85

RNG = np.random.default_rng(5)
# a free joint, a ball joint, a revolute and a prismatic one
MODEL = lgjax.models.random_tree(16, 4, kinds=("spherical", "revolute", "prismatic"))
KINDS = {kind.name for kind in MODEL.tree.kinds}
Q, V = lgjax.random_configuration(jax.random.key(1), MODEL), jnp.asarray(RNG.normal(size=MODEL.nv))
PUSH = jnp.asarray(RNG.normal(size=MODEL.nv))
END = 0.3


def controller(t, q, v, gain=1.0):
    return gain * jnp.cos(3 * t) * PUSH - 0.1 * v


FIELD = adapters.flat_field(MODEL, controller)


def end():
    """The last state of a rollout at high order, whose error is round-off."""
    path = lgjax.rollout(MODEL, Q, V, controller, END / 60, 60, lgjax.MuntheKaas(DORMAND_PRINCE85), None)
    return jax.tree.map(lambda x: x[-1], (path.q, path.v))


@jax.jit
def miss(y, q, v):
    found = adapters.from_flat_state(MODEL, y)
    return jnp.max(jnp.abs(jnp.concatenate([lgjax.difference(MODEL, q, found[0]), found[1] - v])))


def test_flat_states_come_back():
    assert {"free", "spherical", "revolute", "prismatic"} <= KINDS
    y = adapters.flat_state(MODEL, Q, V)
    assert miss(y, Q, V) < 1e-14
    # the length of quaternions does not count
    assert miss(y.at[3:7].multiply(-1.7), Q, V) < 1e-14
    assert adapters.flat_state(MODEL, *jax.tree.map(lambda x: jnp.stack([x, x]), (Q, V))).shape == (2, len(y))
    several = jnp.stack([V, V, V])
    assert adapters.flat_state(MODEL, Q, several).shape == (3, len(y))  # one configuration, three velocities
    with pytest.raises(ValueError, match="nq \\+ nv = "):
        adapters.from_flat_state(MODEL, y[1:])
    with pytest.raises(TypeError, match="v is None, expected an array"):
        adapters.flat_state(MODEL, Q, None)
    with pytest.raises(ValueError, match=r"y has shape \(2, \d+\), one state of"):
        FIELD(0.0, jnp.stack([y, y]))
    with pytest.raises(TypeError, match="expected a function of"):
        adapters.flat_field(MODEL, "damper")


def test_scipy_follows_the_rollout():
    field = jax.jit(FIELD)
    start = adapters.flat_state(MODEL, Q, V)
    found = scipy.integrate.solve_ivp(
        lambda t, y: np.asarray(field(t, y)), (0, END), start, method="DOP853", rtol=1e-12, atol=1e-12
    )
    assert miss(jnp.asarray(found.y[:, -1]), *end()) < 1e-10
    # a stretched quaternion keeps its length and changes nothing else
    longer = start.at[3:7].multiply(2.0)
    rates, stretched = field(0.1, start), field(0.1, longer)
    np.testing.assert_allclose(stretched.at[3:7].multiply(0.5), rates, atol=1e-12)
    np.testing.assert_allclose(rates[3:7] @ start[3:7], 0, atol=1e-13)


@pytest.mark.slow
def test_diffrax_follows_the_rollout_and_differentiates_it():
    diffrax = pytest.importorskip("diffrax")
    tight = diffrax.PIDController(rtol=1e-12, atol=1e-12)

    def solve(field, start, gain, solver):
        with jax.numpy_dtype_promotion("standard"):
            return diffrax.diffeqsolve(
                diffrax.ODETerm(field), solver, 0.0, END, 0.01, start, gain, stepsize_controller=tight
            ).ys[-1]  # fmt: skip

    last = jax.jit(lambda: solve(FIELD, adapters.flat_state(MODEL, Q, V), 1.0, diffrax.Dopri8()))()
    assert miss(last, *end()) < 1e-10
    # its derivatives with respect to args, which the controller is given
    rod = lgjax.models.chain(1)
    start = adapters.flat_state(rod, lgjax.neutral(rod), jnp.ones(1))
    field = adapters.flat_field(rod, lambda t, q, v, gain: -gain * v)
    fall = jax.jit(jax.value_and_grad(lambda gain: solve(field, start, gain, diffrax.Tsit5())[0]))
    h = 1e-5
    (_, slope), (ahead, _), (behind, _) = (fall(jnp.asarray(x)) for x in (0.1, 0.1 + h, 0.1 - h))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-6)


# ---- OpenSCvx
def test_functions_for_openscvx_are_the_parts_of_the_field():
    """In vectors where other things come first, in its own precision, with a mass from its parameters."""
    nq, n = len(adapters.flat_state(MODEL, Q, V)) - MODEL.nv, MODEL.nv
    qpos, qvel = SimpleNamespace(name="place", slice=slice(2, 2 + nq)), SimpleNamespace(name="speed", slice=None)
    qvel.slice, control = slice(2 + nq, 2 + nq + n), SimpleNamespace(slice=slice(1, 1 + n))
    heavier = lambda params: MODEL.replace(inertias=MODEL.inertias.scaled(params["mass"] * jnp.ones(MODEL.nbodies)))
    found = adapters.openscvx_dynamics(heavier, qpos, qvel, control, lambda u: 2 * u)
    y, u = adapters.flat_state(MODEL, Q, V), jnp.asarray(RNG.normal(size=n))
    x, params = jnp.concatenate([jnp.ones(2), y, jnp.ones(1)]), {"mass": jnp.asarray(1.5)}
    parts = [found[name](x, jnp.concatenate([jnp.ones(1), u]), 0, params) for name in ("place", "speed")]
    expected = adapters.flat_field(heavier(params), lambda t, q, v: 2 * u)(0.0, y)
    np.testing.assert_array_equal(jnp.concatenate(parts), expected)
    wrong = {"model must be a Model or a function": ("arm", qpos), "qpos must be a variable": (MODEL, "place")}
    for message, given in wrong.items():
        with pytest.raises(TypeError, match=message):
            adapters.openscvx_dynamics(*given, qvel, control)
    for given, message in (((x[:-3], u), "qvel has"), ((x.astype(int), u), "x must be a vector")):
        with pytest.raises((TypeError, ValueError), match=message):
            found["place"](*given, 0, params)


# In a process of its own: OpenSCvx sets flags of JAX, and those of Equinox before its first import.
SWING = """
import jax, jax.numpy as jnp, numpy as np, lgjax, openscvx as ox
jax.config.update("jax_enable_x64", True)
model, N, duration = lgjax.models.chain(1), 8, 0.5
qpos, qvel, torque = ox.State("qpos", shape=(1,)), ox.State("qvel", shape=(1,)), ox.Control("torque", shape=(1,))
for state, last, most in ((qpos, 1.0, 3.0), (qvel, 0.0, 20.0)):
    state.min, state.max, state.initial, state.final = [-most], [most], [0.0], [last]
    state.guess = np.linspace([0.0], [last], N)
torque.min, torque.max, torque.guess = [-10.0], [10.0], np.zeros((N, 1))
problem = ox.Problem(
    dynamics={}, byof={"dynamics": lgjax.adapters.openscvx_dynamics(model, qpos, qvel, torque)}, states=[qpos, qvel],
    controls=[torque], time=ox.Time(initial=0.0, final=duration, min=0.0, max=duration), N=N, constraints=[],
    float_dtype="float64", discretizer={"dis_type": "ZOH", "diffrax_kwargs": {"rtol": 1e-9, "atol": 1e-9}},
)
problem.initialize()
problem.solve()
nodes = problem.post_process().nodes
times, torques = (jnp.asarray(nodes[name])[:, 0] for name in ("time", "torque"))
q, v = lgjax.neutral(model), jnp.zeros(1)
for k in range(N - 1):
    push = lambda t, q, v, torque=torques[k]: torque[None]
    path = lgjax.rollout(model, q, v, push, (times[k + 1] - times[k]) / 20, 20, save_every=None)
    q, v = jax.tree.map(lambda x: x[-1], (path.q, path.v))
print("ends at", float(q.joints[0]), float(v[0]))
"""


@pytest.mark.slow
def test_openscvx_swings_a_pendulum_as_a_rollout_follows_it():
    """From hanging to one radian, at rest, in half a second; a rollout with its torques, held, ends there."""
    if importlib.util.find_spec("openscvx") is None:
        pytest.skip("openscvx is not installed")
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", SWING], capture_output=True, text=True, cwd=root)
    assert result.returncode == 0, result.stderr
    angle, rate = map(float, result.stdout.split("ends at")[1].split())
    assert abs(angle - 1.0) < 1e-6
    assert abs(rate) < 1e-5
