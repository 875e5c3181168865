"""The slopes of a force are the parts of its derivatives that hold a joint back: what implicit steps take of it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax.dynamics import forces
from tests.dynamics import trees
from tests.dynamics.test_forces import ANCHOR, POINT, rest, robot, states

EVERY = ["base_joint", "upper_joint", "lower_joint", "lid_joint"]  # the free joint too
BENT = np.repeat([2.0, -3.0, 4.0, -5.0, 6.0], [3, 3, 3, 1, 1])  # one number for turning, moving, the ball, ...
SCALARS = ["lower_joint", "lid_joint"]
PUSH = lambda t, q, v: jnp.asarray([3.0, -3.0], v.dtype)
FORCES = {
    "springs": lambda m: forces.spring(m, [3.0, 3.0, 3.0, 5.0, 7.0], rest(m)),
    "springs of the base": lambda m: forces.spring(m, np.abs(BENT), rest(m), EVERY),
    "bent springs": lambda m: forces.spring(m, np.abs(BENT), rest(m), EVERY, BENT[::-1], np.abs(BENT)),
    "dampers": lambda m: forces.damper(m, 0.7),
    "bent dampers": lambda m: forces.damper(m, np.arange(11.0), EVERY, np.arange(11.0) - 4, np.arange(11.0)),
    "friction": lambda m: forces.friction(m, 0.3, [0.1, 0.2, 0.3, 0.4, 0.5], 0.8),
    "limits": lambda m: forces.limits(m, 40.0, [3.0, 90.0], width=0.2),
    "motors": lambda m: forces.motors(m, PUSH, [2.0, -3.0], 0.0, 2.0, 4.0, SCALARS),
    "motors without limits": lambda m: forces.motors(m, PUSH, 2.0),
    "a sum": lambda m: forces.spring(m, 2.0) + forces.friction(m, 0.1) + forces.limits(m, 9.0) + (lambda t, q, v: -v),
}
SILENT = ("motors without limits",)


def derivatives(force, model, q, v):
    """-d tau/dq along retractions and -d tau/dv, (nv, nv) each."""
    still = jnp.zeros_like(v)
    of_q = jax.jacfwd(lambda d: force(0.0, lgjax.retract(model, q, d), v))(still)
    return -of_q, -jax.jacfwd(lambda v: force(0.0, q, v))(v)


@cache
def found(dtype):
    model = robot().astype(dtype)

    def facts(q, v):
        out = {}
        for name, make in FORCES.items():
            force = make(model)
            out[name] = force.slopes(0.0, q, v), derivatives(force, model, q, v)
        return out

    cast = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)
    q, v = states(robot())
    home = jax.tree.map(lambda x: x[None], lgjax.neutral(robot()))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), q, home)
    return jax.tree.map(np.asarray, jit(jax.vmap(facts))(*cast((both, jnp.concatenate([2 * v, 0 * v[:1]])))))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", FORCES)
def test_slopes_are_the_diagonals_of_the_derivatives_that_hold_back(name, dtype):
    """At random states, some beyond limits, and at home, at rest. A controller in a sum has none."""
    slopes, derivatives = found(dtype)[name]
    if name == "motors":  # at rest their line has a corner
        slopes, derivatives = jax.tree.map(lambda x: x[:-1], (slopes, derivatives))
    for number, (slope, matrix) in enumerate(zip(slopes, derivatives, strict=True)):
        expected = np.maximum(np.diagonal(matrix, axis1=1, axis2=2), 0)
        expected = expected - (1 if name == "a sum" and number == 1 else 0)
        np.testing.assert_allclose(slope, expected, rtol=0, atol=1e3 * jnp.finfo(dtype).eps * (1 + expected.max()))
        assert slope.dtype == dtype
    assert (max(slope.max() for slope in slopes) > 0.1) == (name not in SILENT)


def test_a_force_has_no_slopes_of_its_own():
    class Push(forces.Force):
        def __call__(self, t, q, v):
            return -5.0 * v

    v = jnp.ones(3, jnp.float32)
    for slope in Push().slopes(0.0, lgjax.neutral(lgjax.models.chain(3).astype(jnp.float32)), v):
        np.testing.assert_array_equal(slope, jnp.zeros_like(v))
    assert [x.shape for x in (Push() + Push()).rows(0.0, None, v)] == [(0, 3), (0,), (0,)]


# ---- forces along lengths
def taken(force, q, v):
    """A^T stiffness A and A^T damping A of the rows."""
    rows, stiffness, damping = force.rows(0.0, q, v)
    assert rows.shape == (len(stiffness), len(v)) == (len(damping), len(v))
    return rows.T @ (stiffness[:, None] * rows), rows.T @ (damping[:, None] * rows)


def ball():
    return lgjax.build([lgjax.Body("ball", None, lgjax.Joint("free", "free"), mass=1.0, inertia=np.eye(3))])


@pytest.mark.parametrize("length", [0.0, 0.1])
def test_rows_of_a_point_spring_are_its_derivatives_by_a_displacement(length):
    """Of a free body, whose points move in proportion to it; the spring is longer than at rest, or meets its end."""
    model = ball()
    spring = forces.point_spring(model, ("ball", np.zeros(3)), (None, ANCHOR), 6.0, length, 2.0)

    @jit
    @jax.vmap
    def both(x, v):
        q = lgjax.configuration(model, lgjax.Pose(jnp.eye(3), x))
        return taken(spring, q, v), derivatives(spring, model, q, v)

    x = jnp.asarray([[0.0, 0, 0], [0.3, -0.2, 0.5], ANCHOR])[: 3 if length == 0 else 2]
    got, wanted = both(x, jnp.zeros((len(x), 6)))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a[:, 3:, 3:], b[:, 3:, 3:], rtol=0, atol=1e-13)
        assert np.abs(a).max() > 1


def test_rows_of_a_point_spring_without_tension_are_its_derivatives():
    """Of a tree; where the spring is shorter than at rest it holds back along its length alone."""
    model = robot()
    q, v, *_ = trees.random_states(model, 3)
    distance = lambda q: jnp.sqrt(2 * forces.point_spring(model, ("tip", POINT), ("lid", ANCHOR), 1.0).energy(q))
    spring = lambda length: forces.point_spring(model, ("tip", POINT), ("lid", ANCHOR), 6.0, length, 2.0)

    @jit
    @jax.vmap
    def all_of(q, v):
        relaxed = spring(distance(q))
        short, _ = taken(spring(2 * distance(q)), q, v)
        return taken(relaxed, q, v), derivatives(relaxed, model, q, 0 * v), short

    got, wanted, short = all_of(q, v)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11)
    np.testing.assert_allclose(short, got[0], rtol=0, atol=1e-11)
