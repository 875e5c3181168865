"""The derivatives of a scalarized step are those of the step, for one system, batches and batches of batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit, lax

from lgjax.execution.scalars.graph import View
from lgjax.execution.scalars.interpreter import Block
from lgjax.execution.step import scalarized, step_p

LANES = 4


def rotation(x):
    """Safe at the identity: a derivative rule of its own would be lost if it were not asked for."""
    square = jnp.sum(x * x)
    away = square > 1e-8
    angle = jnp.sqrt(jnp.where(away, square, 1.0))
    a = jnp.where(away, jnp.sin(angle) / angle, 1 - square / 6)
    b = jnp.where(away, (1 - jnp.cos(angle)) / jnp.where(away, square, 1.0), 0.5 - square / 24)
    hat = jnp.stack(
        [jnp.stack([0 * x[0], -x[2], x[1]]), jnp.stack([x[2], 0 * x[0], -x[0]]), jnp.stack([-x[1], x[0], 0 * x[0]])]
    )
    return jnp.eye(3, dtype=x.dtype) + a * hat + b * hat @ hat


@jax.custom_jvp
def steep(x):
    return jnp.abs(x)


steep.defjvp(lambda primals, tangents: (steep(*primals), 3 * tangents[0]))

STEPS = {
    "product": lambda R, x: R @ x,
    "quotient": lambda R, x: x / (2 + R[0] * R[1]),
    "rotation": lambda R, x: rotation(x) @ R,
    "slices": lambda R, x: (x[1:] * R[0, :2], R.T[1] - x),
    "concatenation": lambda R, x: jnp.concatenate([x, R[0]])[::2] * jnp.stack([x[0], x[2], R[1, 1]]),
    "dynamic slice": lambda R, x: lax.dynamic_slice(R, (1, 0), (2, 2)) @ x[:2],
    "index": lambda R, x: R[np.array([2, 0]), np.array([1, 1])] * x[np.array([0, 0])],
    "sums": lambda R, x: jnp.sum(R, 0) * jnp.sum(x) + jnp.trace(R),
    "choice": lambda R, x: jnp.where(x > 0, x * x, R[0]),
    "rule of its own": lambda R, x: steep(x) * R[1],
    "twice the same": lambda R, x: (x * R[2], x * R[2], x),
    "nothing depends on it": lambda R, x: (jnp.ones(3, x.dtype), R[0]),
}
AXES = [(None, 0), (0, None), (0, 0)]


def entered(step, R, x):
    """The step on blocks: R (9, lanes) as one array (lanes, 9), x (3, lanes) as arrays; one entry known."""
    stack = jnp.moveaxis(R, 0, -1)
    rows = np.empty((3, 3), object)
    for k in range(9):
        rows[divmod(k, 3)] = View(stack, k)
    rows[0, 2] = 0.0
    entries = np.empty(3, object)
    for k in range(3):
        entries[k] = x[k]
    out = jax.tree.leaves(scalarized(step)(Block(rows, R.dtype), Block(entries, x.dtype)))
    value = lambda e: e.value() if isinstance(e, View) else jnp.full(LANES, e, x.dtype) if isinstance(e, float) else e
    return [jnp.stack([value(e) for e in block.entries.flat]) for block in out]


def direct(step, R, x):
    def one(R, x):
        return [jnp.ravel(y) for y in jax.tree.leaves(step(R.reshape(3, 3).at[0, 2].set(0.0), x))]

    return jax.vmap(one, -1, -1)(R, x)


def data(dtype=jnp.float64, shape=()):
    keys = jax.random.split(jax.random.key(3), 2)
    R, x = jax.random.normal(keys[0], (*shape, 9, LANES), dtype), jax.random.normal(keys[1], (*shape, 3, LANES), dtype)
    return R, x.at[..., 0].set(0)  # the first lane at the identity


def close(ours, theirs, tolerance=1e-12):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def total(run):
    return lambda *args: sum(jnp.sum(jnp.sin(y + k)) for k, y in enumerate(run(*args)))


@pytest.mark.parametrize("name", STEPS)
def test_first_derivatives(name):
    for derivative in (jax.jacfwd, jax.jacrev):
        found = [jit(derivative(lambda *a, f=f: f(STEPS[name], *a), (0, 1)))(*data()) for f in (entered, direct)]
        close(*found)


@pytest.mark.parametrize("name", STEPS)
def test_second_derivatives(name):
    def found(f):
        slope = jax.grad(total(lambda *a: f(STEPS[name], *a)), (0, 1))
        along = jax.tree.map(jnp.cos, data())
        both = lambda R, x: (jax.jvp(slope, (R, x), along)[1], jax.grad(lambda *a: total(slope)(*a))(R, x))
        return jit(both)(*data())

    close(found(entered), found(direct), 1e-11)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("name", ["product", "rotation", "slices"])
def test_batches(name, axes):
    """Gradients of a batch and batches of gradients, also of what has no batch axis; a batch of batches."""
    args = [x if axis == 0 else x[0] for x, axis in zip(data(shape=(2,)), axes, strict=True)]

    def found(f):
        run = lambda *a: f(STEPS[name], *a)
        outer = jax.grad(total(jax.vmap(run, axes)), (0, 1))(*args)
        inner = jax.vmap(jax.grad(total(run), (0, 1)), axes)(*args)
        shifted = jax.grad(
            lambda s: total(jax.vmap(lambda t: jax.vmap(run, axes)(args[0] * t, args[1] + s)))(jnp.arange(3.0))
        )
        return outer, inner, shifted(1.0)

    close(jit(lambda: found(entered))(), jit(lambda: found(direct))())


def test_float32_stays_float32():
    slope = jax.jacrev(lambda *a: entered(STEPS["rotation"], *a), (0, 1))(*data(jnp.float32))
    assert {x.dtype for x in jax.tree.leaves(slope)} == {jnp.dtype(jnp.float32)}
    close(slope, jax.jacrev(lambda *a: direct(STEPS["rotation"], *a), (0, 1))(*data(jnp.float32)), 2e-6)


def test_a_derivative_needs_the_inputs_that_it_depends_on_and_no_others():
    """The tangent of R x along x needs R but not x, and the reverse."""
    R, x = data()
    tangents = (
        lambda t: jax.jvp(lambda a: entered(STEPS["product"], a, x), (R,), (t,))[1],
        lambda t: jax.jvp(lambda a: entered(STEPS["product"], R, a), (x,), (t,))[1],
    )
    for along, t in zip(tangents, (R, x), strict=True):
        (step,) = (e for e in _lean(along, t) if e.primitive is step_p)
        assert sorted(a.aval.shape for a in step.invars) == [(LANES,)] * 3 + [(LANES, 9)]  # one of them the tangent


def _lean(f, *args):
    from jax.interpreters import partial_eval as pe

    jaxpr = jax.make_jaxpr(f)(*args).jaxpr
    return pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0].eqns


def test_an_array_may_be_several_entries():
    """As in a symmetric matrix: its cotangents add up."""
    _, x = data()

    def repeated(entry):
        entries = np.empty(3, object)
        for k, row in enumerate((0, 1, 0)):
            entries[k] = entry(row)
        out = scalarized(lambda a: jnp.stack([a[0] * a[1], jnp.sin(a[2])]))(Block(entries, x.dtype))
        return [jnp.stack(list(out.entries))]

    def arrays(x):
        once = list(x)
        return repeated(lambda row: once[row])

    def rows(x):
        return repeated(lambda row: View(x.T, row))

    expected = jax.grad(total(lambda x: [jnp.stack([x[0] * x[1], jnp.sin(x[0])])]))(x)
    for f in (arrays, rows):
        close(jax.grad(total(f))(x), expected)
