"""Analytic derivatives of the dynamics are those of forward-mode differentiation, and Pinocchio's."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax.dynamics.partials import forward_dynamics_partials, hybrid_dynamics_partials, inverse_dynamics_partials
from tests.dynamics import trees

STATES = 3
CASES = [
    ("reach", "inverse"),
    ("reach", "all prescribed"),
    ("reach", "forward"),
    pytest.param("reach", "hybrid", marks=pytest.mark.slow),
    pytest.param("forest", "hybrid", marks=pytest.mark.slow),
]


def reach() -> lgjax.Model:
    """A floating base with joints whose motions depend on coordinates, and a ball."""
    return lgjax.build(
        [
            trees.body("base", None, "free", 1),
            trees.body("reach", "base", "universal", 2, damping=0.2, armature=0.1),
            trees.body("elbow", "reach", "spherical", 3, damping=0.3),
            trees.body("hand", "elbow", "prismatic", 4, armature=0.2),
            trees.body("tail", "base", "universal", 5),
        ],
        "reach",
    )


@cache
def model_of(name):
    return reach() if name == "reach" else trees.model(name)


def prescribed(model):
    """Some coordinates of the base and of the joints."""
    return tuple(range(1, model.nv, 3))


def mask(model, what):
    chosen = {"inverse": range(model.nv), "all prescribed": range(model.nv), "forward": ()}
    return np.isin(np.arange(model.nv), list(chosen.get(what, prescribed(model))))


def hybrid(model, given, dq, v, x, q, wrenches):
    """tau where given and vdot elsewhere, from x = vdot where given and tau elsewhere, at q exp(dq)."""
    there = lgjax.retract(model, q, dq)
    if given.all():
        return lgjax.inverse_dynamics(model, there, v, x, wrenches)
    if not given.any():
        return lgjax.forward_dynamics(model, there, v, x, wrenches)
    vdot, tau = lgjax.hybrid_dynamics(model, there, v, x, x, np.flatnonzero(given).tolist(), wrenches)
    return jnp.where(given, tau, vdot)


@cache
def states(name, at_rest=False):
    model = model_of(name)
    q, v, vdot, tau, wrenches = trees.random_states(model, STATES)
    if at_rest:
        q = jax.tree.map(lambda x, y: jnp.broadcast_to(x, y.shape), lgjax.neutral(model), q)
        v, vdot, tau, wrenches = (0 * x for x in (v, vdot, tau, wrenches))
    return q, v, vdot, tau, wrenches


def inputs(name, what, at_rest=False):
    q, v, vdot, tau, wrenches = states(name, at_rest)
    return q, v, jnp.where(mask(model_of(name), what), vdot, tau), wrenches


@cache
def differentiated(name, what):
    given = mask(model_of(name), what)

    def derivatives(model, q, v, x, wrenches):
        at = (jnp.zeros(model.nv, model.dtype), v, x)
        return jax.jacfwd(lambda dq, v, x: hybrid(model, given, dq, v, x, q, wrenches), (0, 1, 2))(*at)

    return jit(jax.vmap(derivatives, (None, 0, 0, 0, 0)))


@cache
def analytic(name, what):
    chosen = np.flatnonzero(mask(model_of(name), what)).tolist()

    def derivatives(model, q, v, x, wrenches):
        if what == "inverse":
            return tuple(inverse_dynamics_partials(model, q, v, x, wrenches))
        if what == "forward":
            return tuple(forward_dynamics_partials(model, q, v, x, wrenches))
        return tuple(hybrid_dynamics_partials(model, q, v, x, x, chosen, wrenches))

    return jit(jax.vmap(derivatives, (None, 0, 0, 0, 0)))


def close(actual, expected, tolerance):
    for a, b in zip(jax.tree.map(np.asarray, actual), jax.tree.map(np.asarray, expected), strict=True):
        scale = np.maximum(np.abs(b).max((1, 2), keepdims=True), 1)
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("at_rest", [False, True], ids=["moving", "at rest"])
@pytest.mark.parametrize(("name", "what"), CASES)
def test_partials_are_those_of_forward_mode(name, what, at_rest):
    """With damping, armature, wrenches and gravity."""
    model, state = model_of(name), inputs(name, what, at_rest)
    reference = "inverse" if what == "all prescribed" else what
    close(analytic(name, what)(model, *state), differentiated(name, reference)(model, *state), 1e-10)


@pytest.mark.parametrize("what", ["inverse", "forward"])
def test_partials_in_float32_keep_their_precision_far_from_home(what):
    """A kilometer away positions are known to 0.1 mm; what does not depend on them is as precise as at home."""
    model = model_of("reach")
    q, *rest = inputs("reach", what)
    exact = analytic("reach", what)(model, q, *rest)
    far = q._replace(free_poses=q.free_poses._replace(translation=q.free_poses.translation + 1024.0))
    narrow = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), tree)
    rounded = analytic("reach", what)(*narrow((model, far, *rest)))
    assert all(x.dtype == jnp.float32 for x in rounded)
    close(rounded, exact, 1e-4)


def test_without_wrenches_and_where_there_is_no_batch():
    model = model_of("reach")
    q, v, vdot, _, wrenches = jax.tree.map(lambda x: x[0], states("reach"))
    apart = jit(inverse_dynamics_partials)(model, q, v, vdot)
    zero = analytic("reach", "inverse")(model, *jax.tree.map(lambda x: x[None], (q, v, vdot, 0 * wrenches)))
    for a, b in zip(apart, zero, strict=True):
        np.testing.assert_allclose(a, b[0], rtol=1e-12, atol=1e-12)


def test_bad_prescribed_indices_are_refused():
    model = trees.model("pendulum")
    q, x = lgjax.neutral(model), jnp.zeros(1)
    for chosen, message in (((1,), "1 is out of range for nv=1"), ((0, 0), "names an index twice")):
        with pytest.raises(ValueError, match=message):
            hybrid_dynamics_partials(model, q, x, x, x, chosen)
    with pytest.raises(TypeError, match=r"prescribed takes velocity indices, integers .* got 0\.5"):
        lgjax.hybrid_dynamics(model, q, x, x, x, (0.5,))


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_rows_of_free_bodies_among_other_joints_are_in_their_places(dtype):
    """Their motions are taken as known, and they need not come first."""
    bodies = [
        trees.body("mast", None, "revolute", 1),
        trees.body("boat", None, "free", 2),
        trees.body("oar", "boat", "revolute", 3, damping=0.2),
        trees.body("raft", None, "free", 4),
        trees.body("lamp", "raft", "spherical", 5),
    ]
    model = lgjax.build(bodies, "harbour", dtype=dtype)
    n, zero = model.nv, jnp.zeros(model.nv, dtype)
    q = lgjax.random_configuration(jax.random.key(0), model)
    v, vdot = (jax.random.normal(jax.random.key(k), (n,), dtype) for k in (1, 2))

    @jit
    def both(q, v, vdot):
        along = lambda x, y, z: lgjax.inverse_dynamics(model, lgjax.retract(model, q, x), v + y, vdot + z)
        return inverse_dynamics_partials(model, q, v, vdot), jax.jacfwd(along, (0, 1, 2))(zero, zero, zero)

    for found, expected in zip(*both(q, v, vdot), strict=True):
        tolerance = 200 * float(jnp.finfo(dtype).eps) * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
