"""A batched function is the function: for one system, batches, batches of batches and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit, lax

from lgjax.execution import batched, is_plain, plain

INDEX = np.array([[2, 0], [1, 1]])
FUNCTIONS = {
    "elementwise": lambda x, y: jnp.sin(x) * 2.0 + jnp.where(y > 0, x * y, -x),
    "shapes": lambda x, y: (
        x.reshape(6).reshape(3, 2).T - y,
        jnp.broadcast_to(x[0], (2, 3)) + y[:, :1],
        jnp.flip(x, 1),
    ),
    "one number at a time": lambda x, y: (
        jnp.arctan2(jnp.sin(x), y) + jnp.tan(x / 4) * jnp.arctan(y),
        jnp.arcsin(jnp.cos(x) / 2) + jnp.arccos(jnp.sin(y) / 2),
        jnp.arctan2(x[0, 0], y),
    ),
    "slices": lambda x, y: (
        x[:, ::2],
        jnp.pad(y, ((1, 0), (0, 2))),
        jnp.concatenate([x, y, x]),
        jnp.stack([x[0], y[1]], 1),
    ),
    "numbers": lambda x, y: jnp.stack([jnp.sum(x), jnp.zeros(()), y[0, 1]]),
    "gathered": lambda x, y: x[1][INDEX] + y[:, INDEX[0]],
    "scattered": lambda x, y: x.at[0, np.array([0, 2, 2])].add(y[1]),
    "by what is traced": lambda x, y: x[:, jnp.argmax(y[0])],
    "sums and products": lambda x, y: (x.sum(0), x @ y.T, jnp.einsum("ij,kj->ik", x, x), jnp.cumsum(y, 1)),
    "levels": lambda x, y: lax.scan(lambda c, r: (c * r + x[1], jnp.cos(c)), x[0], y, unroll=2),
    "control": lambda x, y: lax.cond(jnp.sum(x) > 0, lambda: x, lambda: jnp.linalg.solve(y @ y.T + jnp.eye(2), x)),
    "rule of its own": lambda x, y: jax.nn.relu(x) * y,
    "inside another": lambda x, y: batched(lambda a: (a * y, y))(x),
    "a part alone": lambda x, y: (x * 2.0, jnp.ones(3), 7),
    "integers": lambda x, y: (jnp.argmax(x, 1), x > y, x),
}
X, Y = jax.random.normal(jax.random.key(2), (2, 4, 5, 2, 3), float)
WRAPS = pytest.mark.parametrize("wrap", [batched, lambda f: plain()(batched(f))], ids=["kernel", "plain"])
AXES = [(0, None), (None, 0), (0, 0), (2, 1)]
SLOW = pytest.mark.slow
SIZES = [1, 8, 9, 17, 300, 1600, *(pytest.param(n, marks=SLOW) for n in (7, 16, 256, 521))]


def close(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert jnp.result_type(a) == jnp.result_type(b)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def some(axis: int | None, x):
    return x[0, 0] if axis is None else jnp.moveaxis(x[0], 0, axis)


@WRAPS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, wrap):
    f = FUNCTIONS[name]
    close(wrap(f)(X[0, 0], Y[0, 0]), f(X[0, 0], Y[0, 0]))
    for axes in AXES:
        args = [some(axis, x) for axis, x in zip(axes, (X, Y), strict=True)]
        close(*(jit(jax.vmap(g, axes))(*args) for g in (wrap(f), f)))
    for outer, inner in (((0, 0), (0, 0)), ((0, None), (None, 0)), ((None, 0), (0, None)), ((0, None), (0, 0))):
        args = []
        for x, o, i in zip((X, Y), outer, inner, strict=True):
            x = x if i == 0 else x[:, 0]
            args.append(x if o == 0 else x[0])
        close(*(jit(jax.vmap(jax.vmap(g, inner), outer))(*args) for g in (wrap(f), f)))


def total(f):
    def run(*args):
        leaves = [y for y in jax.tree.leaves(f(*args)) if jnp.issubdtype(jnp.result_type(y), jnp.floating)]
        return sum(jnp.sum(jnp.sin(y + k)) for k, y in enumerate(leaves))

    return run


@WRAPS
@pytest.mark.parametrize("axes", [*AXES[::2], *(pytest.param(axes, marks=SLOW) for axes in AXES[1::2])])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name, axes, wrap):
    """Of a batch, and batches of derivatives; first and second ones; forward and reverse."""
    args = tuple(some(axis, x) for axis, x in zip(axes, (X, Y), strict=True))
    along = jax.tree.map(jnp.cos, args)

    def found(f):
        slope = jax.grad(total(jit(jax.vmap(f, axes))), (0, 1))
        inside = jax.vmap(jax.grad(total(f), (0, 1)), axes)
        forward = jax.vmap(jax.jacfwd(total(f), (0, 1)), axes)
        return slope(*args), inside(*args), forward(*args), jax.jvp(slope, args, along)

    close(*(jit(found, static_argnums=0)(f) for f in (wrap(FUNCTIONS[name]), FUNCTIONS[name])))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_of_any_size(name, size):
    """Some are made larger inside, or cut; what is added does not come out, not even as a NaN in a sum."""
    x, y = jax.random.normal(jax.random.key(size), (2, size, 2, 3), float)

    def found(f):
        return jax.vmap(f)(x, y), jax.grad(lambda s: total(jax.vmap(f, (None, 0)))(s, y))(x[0])

    close(*(jit(found, static_argnums=0)(f) for f in (batched(FUNCTIONS[name]), FUNCTIONS[name])))


@WRAPS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_of_none(name, wrap):
    none = jnp.zeros((0, 2, 3), float)
    close(*(jit(jax.vmap(f))(none, none) for f in (wrap(FUNCTIONS[name]), FUNCTIONS[name])))


@pytest.mark.parametrize("dtype", [int, bool])
def test_integers_of_a_batch_outside_jit(dtype):
    """Known when they come, and yet each system has its own."""
    n = (jnp.arange(8) % 3).astype(dtype).reshape(4, 2)
    f = lambda n, x: jnp.where(jnp.broadcast_to(n[:, None], (2, 3)).astype(bool), x, -x)
    close(jax.vmap(batched(f), (0, None))(n, X[0, 0]), jax.vmap(f, (0, None))(n, X[0, 0]))


@WRAPS
def test_what_a_function_closes_over_may_be_batched_and_moved(wrap):
    def found(wrap):
        run = lambda s, x: wrap(lambda x: x * s + jnp.arange(3.0))(x)
        return jax.vmap(jax.grad(lambda s, x: jnp.sum(run(s, x) ** 2), (0, 1)))(jnp.arange(5.0), X[0])

    close(found(wrap), found(lambda f: f))


@pytest.mark.parametrize("size", [1, 4])
def test_a_kernel_holds_batches_of_what_would_be_one_alone(size):
    inner = batched(lambda x, a: jnp.outer(jnp.sin(x), x) * a)
    outer = batched(lambda x, a: jnp.sum(jax.vmap(inner, (0, None))(x, a), 0))
    x, a = jax.random.normal(jax.random.key(0), (3, size, 2), float), jnp.asarray([0.5, 2.0, 3.0])
    expected = jnp.sum(jnp.sin(x)[..., None] * x[:, :, None], 1) * a[:, None, None]
    np.testing.assert_allclose(jit(jax.vmap(outer))(x, a), expected, rtol=1e-14)


def test_within_plain_there_are_no_operations_and_programs_of_their_own():
    traces = []

    @jax.jit
    def run(x):
        traces.append(is_plain())
        return jax.vmap(batched(jnp.sin))(x)

    text = lambda: str(jax.make_jaxpr(run)(X[0, 0]))
    assert "batched[" in text()
    with plain():
        assert "batched[" not in text()
        close(run(X[0, 0]), jnp.sin(X[0, 0]))
    run(X[0, 0])
    assert traces == [False, True]
    assert "batched[" in text()


def test_keywords_and_errors_pass_through():
    f = batched(lambda x, *, scale: x * scale["by"])
    close(jax.vmap(lambda x: f(x, scale={"by": 2.0 * x}))(X[0, 0]), 2 * X[0, 0] ** 2)
    with pytest.raises(KeyError):
        f(X[0, 0], scale={})
