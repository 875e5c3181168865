"""Dynamics in logarithmic depth: equal to the recursions and to Pinocchio, in values, derivatives and batches."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
from jax import jit

import lgjax
from lgjax import Body, Joint, Pose, models
from lgjax.dynamics import parallel as in_parallel
from lgjax.dynamics.parallel.pointer_doubling import accumulate, inward, paths
from lgjax.multibody import conventions as flat
from tests.dynamics import trees
from tests.oracles import pinocchio_trees as oracle

KINDS = ("universal", "revolute", "spherical", "planar", "prismatic", "cylindrical", "helical", trees.RAIL)
SIMPLE = ("revolute", "prismatic", "helical")  # one family, which the recursions run as one loop
TOLERANCE = {jnp.float64: 1e-12, jnp.float32: 2e-5}


@cache
def chain(n: int, floating_base: bool, kinds=KINDS, **passive) -> lgjax.Model:
    bodies = []
    for i in range(n):
        kind = "free" if floating_base and i == 0 else kinds[i % len(kinds)]
        pitch = {"pitch": 0.1} if kind == "helical" else {}
        joint = {} if kind == "free" else {**passive, **pitch}
        bodies.append(trees.body(f"{i}", f"{i - 1}" if i else None, kind, i, **joint))
    return lgjax.build(bodies, f"chain_{n}")


def state(model) -> tuple[Any, ...]:
    """The model and one random (q, v, vdot, tau, wrenches)."""
    return model, *jax.tree.map(lambda x: x[0], trees.random_states(model, 1))


@jit
def parallel(model, q, v, vdot, tau, wrenches):
    return in_parallel.inverse_dynamics(model, q, v, vdot, wrenches), in_parallel.forward_dynamics(
        model, q, v, tau, wrenches
    )


@jit
def recursive(model, q, v, vdot, tau, wrenches):
    return lgjax.inverse_dynamics(model, q, v, vdot, wrenches), lgjax.forward_dynamics(model, q, v, tau, wrenches)


def close(found, expected, tolerance, least=1e-6):
    """Relative to the largest entry, or to `least`."""

    def one(a, b):
        assert np.all(np.isfinite(a))
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(float(np.max(np.abs(b), initial=0)), least))

    jax.tree.map(one, found, expected)


def cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype), tree)


PASSIVE = {"armature": 0.1, "damping": 0.3}
CASES = {
    "one, fixed": lambda: chain(1, False, **PASSIVE),
    "one, floating": lambda: chain(1, True),
    "two": lambda: chain(2, False, KINDS[2:], **PASSIVE),
    "seven": lambda: chain(7, False, SIMPLE),
    "64": lambda: chain(64, True, SIMPLE, **PASSIVE),
    "star": lambda: models.branched_tree(3, 2),
}
MIXED = {
    "three": lambda: chain(3, True, KINDS, **PASSIVE),
    "seven of all kinds": lambda: chain(7, True, KINDS[1:], **PASSIVE),
    "forest": trees.forest,
}


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in MIXED)])
def test_equal_to_the_recursions(name):
    """With applied wrenches; in both dtypes, against the recursions in float64."""
    case = state({**CASES, **MIXED}[name]())
    expected = recursive(*case)
    for dtype, tolerance in TOLERANCE.items():
        found = parallel(*cast(case, dtype))
        assert {x.dtype for x in found} == {jnp.dtype(dtype)}
        close(cast(found, jnp.float64), expected, tolerance)


@pytest.mark.parametrize("floating_base", [True, False])
def test_equal_to_pinocchio(floating_base):
    """A chain of 64 bodies on joints of all kinds that Pinocchio has."""
    model = chain(64, floating_base, KINDS[:-1])
    eye = jnp.broadcast_to(jnp.eye(3), model.links.rotation.shape)
    model = model.replace(links=Pose(eye, jnp.zeros_like(model.links.translation)))
    _, q, v, vdot, tau, wrenches = state(model)
    there = jax.tree.map(np.asarray, flat.to_pinocchio(model, q, v, vdot, tau))
    theirs = oracle.pinocchio_tree(model)
    data = theirs.createData()
    forces = pin.rnea(theirs, data, there.q, there.v, there.vdot).copy()
    lack = there.tau - pin.nonLinearEffects(theirs, data, there.q, there.v)
    M = np.triu(pin.crba(theirs, data, there.q))
    accelerations = np.linalg.solve(M + np.triu(M, 1).T, lack)
    back = flat.from_pinocchio(model, there.q, there.v, jnp.asarray(accelerations), jnp.asarray(forces))
    found = parallel(model, q, v, vdot, tau, 0 * wrenches)
    close(found[0], back.tau, 1e-12)
    close(found[1], back.vdot, 1e-9)  # what the dense solve leaves; Pinocchio's own recursion is off by 6e-4 here


# ---- derivatives
def slopes(forward):
    """In reverse and forward mode, with respect to all that accelerations depend on."""

    def run(model, q, v, tau, wrenches, direction):
        def pushed(density, gravity, armature, damping, dq, v, tau, wrenches):
            inertias = model.inertias.scaled(density)
            changed = model.replace(inertias=inertias, gravity=gravity, armature=armature, damping=damping)
            return forward(changed, lgjax.retract(model, q, dq), v, tau, wrenches) @ direction

        density = jnp.ones_like(model.inertias.mass)
        inputs = (density, model.gravity, model.armature, model.damping, jnp.zeros_like(v), v, tau, wrenches)
        along = jax.tree.map(lambda x: jnp.cos(jnp.arange(1.0, x.size + 1, dtype=x.dtype)).reshape(x.shape), inputs)
        return jax.grad(pushed, tuple(range(8)))(*inputs), jax.jvp(pushed, inputs, along)[1]

    return jit(run)


SLOPES, RECURSIVE_SLOPES = slopes(in_parallel.forward_dynamics), slopes(lgjax.forward_dynamics)


FLOATING = pytest.param(True, marks=pytest.mark.slow)


@pytest.mark.parametrize("at_rest", [False, True])
@pytest.mark.parametrize("floating_base", [False, FLOATING])
def test_derivatives_are_those_of_the_recursions(floating_base, at_rest):
    """Those of forward dynamics are made of those of inverse dynamics."""
    model, q, v, _, tau, wrenches = state(chain(3, floating_base, SIMPLE, **PASSIVE))
    if at_rest:
        q, v, tau, wrenches = lgjax.neutral(model), 0 * v, 0 * tau, 0 * wrenches
    direction = jnp.asarray(np.random.default_rng(5).normal(size=model.nv))
    inputs = (model, q, v, tau, wrenches, direction)
    close(SLOPES(*inputs), RECURSIVE_SLOPES(*inputs), 1e-12, least=1.0)


@pytest.mark.slow
def test_second_derivatives_are_those_of_the_recursion():
    model, q, v, _, tau, _ = state(chain(3, False, ("universal", "revolute")))

    def hessian(forward):
        work = lambda dq: forward(model, lgjax.retract(model, q, dq), v, tau) @ v
        return jit(jax.jacfwd(jax.grad(work)))(jnp.zeros_like(v))

    close(hessian(in_parallel.forward_dynamics), hessian(lgjax.forward_dynamics), 1e-9)


# ---- batches and sizes
def test_batches_of_models_and_states_are_done_one_by_one():
    model = chain(2, False, KINDS[2:], **PASSIVE)
    states = trees.random_states(model, 3)
    heavier = jax.vmap(lambda s: model.replace(inertias=model.inertias.scaled(s)))(jnp.asarray([1.0, 2.0, 0.5]))
    together = jit(jax.vmap(parallel))(heavier, *states)
    for i in range(3):
        alone = parallel(*jax.tree.map(lambda x, i=i: x[i], (heavier, *states)))
        close(jax.tree.map(lambda x, i=i: x[i], together), alone, 1e-13)


def test_a_specialized_model_gives_the_same():
    model, q, v, vdot, tau, wrenches = state(chain(2, False, KINDS[2:], **PASSIVE))
    fixed = lgjax.specialize(model)
    found = jit(lambda q: parallel(fixed, q, v, vdot, tau, wrenches))(q)
    close(found, parallel(model, q, v, vdot, tau, wrenches), 1e-13)


def operations(jaxpr) -> int:
    inner = (j for eqn in jaxpr.eqns for j in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_jaxpr))
    return len(jaxpr.eqns) + sum(operations(getattr(j, "jaxpr", j)) for j in inner if _is_jaxpr(j))


def _is_jaxpr(x) -> bool:
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")


def test_the_program_does_not_grow_with_the_chain():
    """And its loops run as often as the length can be halved."""
    sizes, rounds = [], []
    for n in (64, 1024):
        model = models.chain(n)
        v = jnp.zeros(n)
        traced = jit(in_parallel.forward_dynamics).trace(model, lgjax.neutral(model), v, v)
        sizes.append(operations(traced.jaxpr))
        route = paths(model.tree)
        rounds.append((len(route.levels), *(len(r.lane) for r in (route.ancestors, route.levels[0].reach))))
    assert sizes[0] == sizes[1] > 1000
    assert rounds == [(1, 6, 6), (1, 10, 10)]


# ---- bodies without inertia of their own
def pendulum(name, parent, axis, mass, inertia) -> Body:
    at = np.array([0.0, 0.0, -1.0 if parent and mass else 0.0])
    joint = Joint(f"{name}_joint", "revolute", axis)
    return Body(name, parent, joint, position=at, mass=mass, com=np.array([0, 0, -1.0]) * mass, inertia=inertia)


def thin() -> lgjax.Model:
    """A gimbal of three joints behind one of two, without mass between the joints, that carries points on rods."""
    x, y, z = map(tuple, np.eye(3))
    gimbals = [("a", None, x, 0.0), ("b", "a", y, 1.0), ("c", "b", x, 0.0), ("d", "c", y, 0.0), ("e", "d", z, 1.0)]
    points = [("f", "e", y, 1.0), ("g", "f", y, 2.0), ("h", "g", x, 1.0)]
    bodies = [pendulum(*row, 0.1 * row[3] * np.eye(3)) for row in gimbals]
    return lgjax.build([*bodies, *(pendulum(*row, np.zeros((3, 3))) for row in points)], "thin")


def test_bodies_may_lack_mass_or_extent():
    case = state(thin())
    for dtype, tolerance in TOLERANCE.items():
        close(cast(parallel(*cast(case, dtype)), jnp.float64), recursive(*case), tolerance)


# ---- paths
@pytest.mark.parametrize("n", [1, 2, 40])
def test_paths_join_in_order(n):
    """Affine maps, which do not commute, along the ancestors; towards the leaves with what hangs on the path added."""
    tree = models.random_tree(n, n, False, ("revolute",)).tree
    route, random = paths(tree), np.random.default_rng(n)
    A, b = jnp.asarray(random.normal(size=(n, 2, 2)) / 2), jnp.asarray(random.normal(size=(n, 2)))
    product = lambda near, far: (near[0] @ far[0], near[1] + near[0] @ far[1])
    found = accumulate(product, (A, b), route.ancestors)
    expected, total = [], np.zeros((n, 2))
    for body, parent in enumerate(tree.parents):
        at = expected[parent] if parent >= 0 else (np.eye(2), np.zeros(2))
        expected.append((A[body] @ at[0], b[body] + A[body] @ at[1]))
    close(found, tuple(map(np.stack, zip(*expected, strict=True))), 1e-14)
    for body in reversed(range(n)):
        if (parent := tree.parents[body]) >= 0:
            total[parent] += b[body] + A[body] @ total[body]
    element = lambda bodies, received: (A[bodies], b[bodies] + jnp.einsum("nij,nj->ni", A[bodies], received))
    close(inward(product, element, lambda passed: passed[1], b[0], route), total, 1e-14)
    assert len(route.levels) <= 1 + np.log2(n)


@pytest.mark.slow
def test_float32_stays_close_to_the_recursion_along_a_thousand_bodies():
    """Errors of both against the recursion in float64; those of long chains are far above round-off."""
    case = state(models.chain(1000))
    exact, short = recursive(*case), cast(case, jnp.float32)
    for true, theirs, ours in zip(exact, recursive(*short), parallel(*short), strict=True):
        error = lambda x, true=true: np.max(np.abs(np.asarray(x, float) - true)) / np.max(np.abs(true))
        assert error(ours) < 10 * error(theirs) < 1e-3
    close(parallel(*case), exact, 1e-12)
