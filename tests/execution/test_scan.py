"""lane_scan is lax.scan, for one system, batches, batches of batches and derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit, lax

from lgjax.execution.scalars.graph import as_layer
from lgjax.execution.scan import lane_scan

LENGTH, LANES, ROWS = 5, 3, 2


def recurrence(scan, scale, start, xs, reverse):
    """Elementwise arithmetic with a constant from outside, a stack of rows, and an inner call as layers are."""

    def layer(u, row):
        return jnp.where(u > row, jnp.sin(u) * row, u / (2.0 + row * row))

    def body(carry, x):
        a, b = carry
        signal, rows = x
        u = jax.jit(layer)(a * scale + signal, rows[0])
        return (u, b - rows[1] * u), (u * b, rows[0])

    return scan(body, start, xs, LENGTH, reverse)


@pytest.fixture(scope="module")
def data():
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = (LANES,), (LANES,), (LANES,), (LENGTH, LANES), (LENGTH, ROWS, LANES)
    scale, a, b, signal, rows = (jax.random.normal(k, (4, 2, *s), float) for k, s in zip(keys, shapes, strict=True))
    return scale, (a, b), (signal, rows)


def close(ours, theirs):
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        size = np.abs(y).max(initial=5.0)  # small entries of a large array are differences of large numbers
        np.testing.assert_allclose(x, y, rtol=1e-13, atol=2e-15 * size)


def first(tree, depth: int):
    return jax.tree.map(lambda x: x[(0,) * depth], tree)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_system(data, reverse):
    args = first(data, 2)
    close(*(jit(partial(recurrence, scan, reverse=reverse))(*args) for scan in (lane_scan, lax.scan)))


ALONE = [(0, None, None), (None, 0, None), (None, None, 0), (None, None, (0, None)), (0, 0, 0)]


def some(data, axes):
    """Arguments with a leading axis where `axes` has a 0."""
    pairs = zip(jax.tree.map(lambda x: x[:, 0], data), axes, strict=True)
    return tuple(
        part if axis == 0 else (part[0], part[1][0]) if isinstance(axis, tuple) else first(part, 1)
        for part, axis in pairs
    )


@pytest.mark.parametrize("axes", ALONE)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_batch_of_any_arguments(data, axes, reverse):
    args = some(data, axes)
    run = lambda scan: jit(jax.vmap(partial(recurrence, scan, reverse=reverse), axes))(*args)
    close(run(lane_scan), run(lax.scan))


@pytest.mark.parametrize(
    "axes", [((0, 0, 0), (0, 0, 0)), ((0, None, None), (None, 0, 0)), ((None, 0, 0), (0, 0, None))]
)
def test_a_batch_of_batches(data, axes):
    outer, inner = axes
    args = []
    for part, o, i in zip(data, outer, inner, strict=True):
        kept = jax.tree.map(lambda x, i=i: x if i == 0 else x[:, 0], part)
        args.append(kept if o == 0 else first(kept, 1))
    run = lambda scan: jit(jax.vmap(jax.vmap(partial(recurrence, scan, reverse=False), inner), outer))(*args)
    close(run(lane_scan), run(lax.scan))


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("batched", [False, True])
def test_derivatives(data, derivative, batched):
    args = jax.tree.map(lambda x: x[:, 0], data) if batched else first(data, 2)

    def slopes(scan):
        total = lambda scale, start, xs: sum(
            jnp.sum(y) for y in jax.tree.leaves(recurrence(scan, scale, start, xs, True))
        )
        f = derivative(total, argnums=(0, 1, 2))
        return jit(jax.vmap(f) if batched else f)(*args)

    close(slopes(lane_scan), slopes(lax.scan))


@pytest.mark.parametrize("axes", ALONE)
@pytest.mark.parametrize("what", ["jacrev", "hvp"])
def test_derivatives_of_a_batch(data, axes, what):
    """The batch inside a jitted function that is then differentiated, as in an objective that is a mean."""
    args = some(data, axes)

    def found(scan):
        batch = jax.jit(jax.vmap(partial(recurrence, scan, reverse=False), axes))
        weighted = lambda args: sum(jnp.sum(y * jnp.cos(y)) for y in jax.tree.leaves(batch(*args)))
        if what == "jacrev":
            return jit(jax.grad(weighted))(args)
        return jit(lambda x: jax.jvp(jax.grad(weighted), (x,), (jax.tree.map(jnp.sin, x),)))(args)

    close(found(lane_scan), found(lax.scan))


def test_what_is_not_differentiated_costs_no_derivative(data):
    """Tangents that are zero stay symbolic, in carries too: u does not depend on b, so only that is carried along."""
    scale, (a, b), xs = first(data, 2)
    along = jax.make_jaxpr(lambda d: jax.jvp(lambda b: recurrence(lane_scan, scale, (a, b), xs, False), (b,), (d,))[1])
    loops = [eqn.params["loop"] for eqn in along(b).eqns if eqn.primitive.name == "lane_scan"]
    assert [loop.n_carry for loop in loops] == [2, 1]


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
def test_a_carry_that_is_forgotten(derivative):
    """Its tangent ends with the first level."""
    xs, start = jnp.arange(1.0, 4.0)[:, None], jnp.asarray([2.0])
    run = lambda scan: derivative(lambda a: scan(lambda c, x: (x, c * x), a, xs, 3))(start)
    close(run(lane_scan), run(lambda body, a, xs, n: lax.scan(body, a, xs, n)))


def test_a_layer_stays_a_call_that_cuts_its_own_inputs(data):
    _, (start, _), (signal, _) = jax.tree.map(lambda x: x[:, 0], data)

    layer = as_layer(lambda u, signal: [jnp.tanh(u) * signal])
    run = lambda u, signal: lane_scan(lambda u, x: (*layer(u, x), u), u, signal, LENGTH)
    (loop,) = (e for e in jax.make_jaxpr(jax.vmap(run))(start, signal).eqns if e.primitive.name == "lane_scan")
    text = str(jax.make_jaxpr(loop.params["loop"].run)(*(x.aval for x in loop.invars)))
    assert text.count("name=lgjax_apart") == 1
    inside = text[text.index("name=lgjax_apart") :]
    assert "dynamic_slice" in inside[: inside.index(" in (")]


@pytest.mark.parametrize("batched", [True, False])
def test_the_rows_of_a_batch_are_cut_one_by_one(batched):
    """XLA on a CPU does not vectorize a loop that takes several rows from one cut; one system has few numbers."""
    rows = jax.random.normal(jax.random.key(1), (2, LENGTH, LANES, 4), float)
    run = lambda scan, u, rows: scan(lambda u, x: (u * x[:, 0] + x[:, 1:][:, 1:3][:, 1], u), u, rows, LENGTH)
    axes = (0, 0) if batched else (0, None)
    args = jnp.ones((2, LANES)), rows if batched else rows[0]
    ours, theirs = (jax.vmap(partial(run, scan), axes) for scan in (lane_scan, lax.scan))
    close(jit(ours)(*args), jit(theirs)(*args))
    (loop,) = (e for e in jax.make_jaxpr(ours)(*args).eqns if e.primitive.name == "lane_scan")
    text = str(jax.make_jaxpr(loop.params["loop"].run)(*(x.aval for x in loop.invars)))
    cuts = [line.split("slice_sizes=")[1].split("]")[0] for line in text.splitlines() if "slice_sizes=" in line]
    assert cuts == ([f"(1, {LANES}, 1, 2)"] * 2 if batched else [f"(1, {LANES}, 4)"] * 2)
