"""Derivatives of hybrid dynamics are those of dense equations made without recursion, in both modes and twice."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax.execution import plain
from tests.dynamics import trees
from tests.oracles import lagrange


@cache
def model_of(name: str) -> lgjax.Model:
    """Random trees of mixed joints; armature and damping on all but a base."""
    if name == "reach":
        return lgjax.models.random_tree(3, 3, True, ("universal", "spherical", "prismatic"), armature=0.1, damping=0.3)
    kinds = (trees.RAIL, "planar", "cylindrical", "helical", "revolute")
    return lgjax.models.random_tree(5, 3, False, kinds, armature=0.1, damping=0.3)


def numbers(model) -> dict:
    """Of the model, but rotations."""
    same = {name: getattr(model, name) for name in ("screws", "gravity", "armature", "damping")}
    return {"place": model.placements.translation, **model.inertias._asdict(), **same}


def with_numbers(model, place, mass, moment, rotational, **same):
    inertias = model.inertias._replace(mass=mass, moment=moment, rotational=rotational)
    return model.replace(placements=model.placements._replace(translation=place), inertias=inertias, **same)


def prescribed(model, what: str) -> np.ndarray:
    some = {"none": [], "all": range(model.nv), "base": range(6), "some": range(1, model.nv, 2)}[what]
    return np.isin(np.arange(model.nv), list(some))


class Point:
    """Everything that moves, by name; where it starts and directions from there."""

    def __init__(self, model: lgjax.Model, seed: int = 0):
        self.q, v, vdot, tau, wrenches = jax.tree.map(lambda x: x[0], trees.random_states(model, 1, seed))
        self.model = model
        self.values = {"dq": 0 * v, "v": v, "vdot": vdot, "tau": tau, "wrenches": wrenches, "model": numbers(model)}

    def direction(self, seed: int):
        random = np.random.default_rng(seed)
        made = jax.tree.map(lambda x: jnp.asarray(random.normal(size=x.shape), x.dtype), self.values)
        J = made["model"]["rotational"]
        made["model"]["rotational"] = J + jnp.swapaxes(J, 1, 2)
        return made

    def hybrid(self, given: np.ndarray, *, by_lagrange: bool = False, **options):
        """values -> (vdot, tau) of the library or of the dense equations."""

        def function(values):
            model = with_numbers(self.model, **values["model"])
            dq, v, vdot, tau, wrenches = (values[name] for name in ("dq", "v", "vdot", "tau", "wrenches"))
            q = lgjax.retract(model, self.q, dq)
            if by_lagrange:
                return lagrange.hybrid_dynamics(model, q, v, jnp.where(given, vdot, tau), given, wrenches)
            chosen = np.flatnonzero(given).tolist()
            return lgjax.hybrid_dynamics(model, q, v, vdot, tau, chosen, wrenches, **options)

        return function


def close(found, wanted, tolerance):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, float(np.abs(b).max())))


CASES = [
    ("ground", "some"),
    pytest.param("reach", "some", marks=pytest.mark.slow),
    pytest.param("reach", "base", marks=pytest.mark.slow),
    pytest.param("reach", "none", marks=pytest.mark.slow),
    pytest.param("reach", "all", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "what"), CASES)
def test_derivatives_in_everything_are_those_of_dense_equations(name, what):
    """Values and derivatives in forward and in reverse mode, the model's numbers among what moves."""
    model = model_of(name)
    given, at = prescribed(model, what), Point(model_of(name))
    along = at.direction(1)
    ours, theirs = at.hybrid(given), at.hybrid(given, by_lagrange=True)
    weights = jnp.asarray(np.random.default_rng(2).normal(size=(2, model.nv)))

    @jit
    def both(values, along):
        found, moved = jax.jvp(ours, (values,), (along,))
        gradient = jax.grad(lambda x: sum(jnp.vdot(w, y) for w, y in zip(weights, ours(x), strict=True)))(values)
        return found, moved, gradient

    found, moved, gradient = both(at.values, along)
    wanted, slope = jit(lambda x, dx: jax.jvp(theirs, (x,), (dx,)))(at.values, along)
    close(found, wanted, 1e-11)
    close(moved, slope, 1e-11)
    pulled = sum(np.vdot(a, b) for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True))
    np.testing.assert_allclose(pulled, np.sum(weights * np.stack(slope)), rtol=1e-10)


@pytest.mark.slow
def test_second_derivatives_are_those_of_dense_equations():
    """Forward over reverse and reverse over forward along a line."""
    model = model_of("ground")
    given, at = prescribed(model, "some"), Point(model)
    along, weights = at.direction(3), jnp.asarray(np.random.default_rng(4).normal(size=(2, model.nv)))

    def on_the_line(function):
        def value(s):
            here = jax.tree.map(lambda x, dx: x + s * dx, at.values, along)
            return sum(jnp.vdot(w, y) for w, y in zip(weights, function(here), strict=True))

        return value

    ours, theirs = (on_the_line(at.hybrid(given, by_lagrange=x)) for x in (False, True))
    twice = lambda f: jax.jvp(lambda s: jax.jvp(f, (s,), (1.0,))[1], (0.0,), (1.0,))[1]
    forward_over_reverse, reverse_over_forward = jit(
        lambda: (
            jax.jvp(jax.grad(ours), (0.0,), (1.0,))[1],
            jax.grad(lambda s: jax.jvp(ours, (s,), (1.0,))[1])(0.0),
        )
    )()
    expected = twice(theirs)
    np.testing.assert_allclose([forward_over_reverse, reverse_over_forward], expected, rtol=1e-9)


def test_each_argument_can_be_differentiated_alone():
    """In reverse mode, with the others constant, and without a batch: the parts of the gradient in all of them."""
    model = lgjax.models.chain(3, floating_base=False)
    q, v, vdot, tau, wrenches = jax.tree.map(lambda x: x[0], trees.random_states(model, 1))

    def value(*given):
        found = plain()(lgjax.hybrid_dynamics)(model, q, *given[:3], (1,), given[3])
        return jnp.sum(jnp.sin(jnp.concatenate(found)))

    at = (v, vdot, tau, wrenches)
    alone, together = jit(lambda at: ([jax.grad(value, i)(*at) for i in range(4)], jax.grad(value, range(4))(*at)))(at)
    for one, part in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, part, rtol=1e-12, atol=1e-12)
        assert np.abs(part).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("run", [plain(), lambda f: f], ids=["plain", "kernel"])
def test_a_batch_of_models_in_single_precision(run):
    """Gradients of every system with numbers of its own are those of one after the other in double precision."""
    model, n = model_of("ground"), 3
    given, at = prescribed(model, "some"), Point(model)
    function = run(at.hybrid(given))
    gradient = jax.grad(lambda x: sum(jnp.sum(jnp.sin(y / 10)) for y in function(x)))
    steps = jnp.linspace(0.0, 0.05, n)
    many = jax.vmap(lambda s: jax.tree.map(lambda x, dx: x + s * dx, at.values, at.direction(5)))(steps)
    expected = jit(jax.vmap(gradient))(many)
    at.model, at.q = jax.tree.map(lambda x: x.astype(jnp.float32), (at.model, at.q))
    found = jit(jax.vmap(gradient))(jax.tree.map(lambda x: x.astype(jnp.float32), many))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-3 * max(1.0, float(np.abs(b).max())))
