"""A loop of many turns stays one in a kernel, and reads the kernel's arguments where the caller has them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.execution import batched, plain
from lgjax.execution.scalars.program import program_of
from tests.dynamics import trees
from tests.execution.test_kernel import launched

BODIES = 60  # more than a kernel writes out


def run(function, args, axes, size):
    """The function of a batch, where the batch is an axis of the arguments; None: they have none."""
    move = lambda x, axis: x[0] if axis is None else jnp.moveaxis(x[:size], 0, axis)
    given = [jax.tree.map(lambda x, axis=axis: move(x, axis), arg) for arg, axis in zip(args, axes, strict=True)]
    if all(axis is None for axis in axes):
        return jax.jit(function)(*given)
    return jax.jit(jax.vmap(function, axes))(*given)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axes", [(0, 0), (-1, -1), (0, None), (None, -1), (None, None)], ids=str)
def test_arguments_are_read_where_they_are(dtype, axes):
    """Rows, flags and numbers of turns, for systems that fill vectors and some that do not."""
    random = np.random.default_rng(0)
    rows = jnp.asarray(random.normal(size=(19, 70, 3, 3)), dtype)
    flags = jnp.asarray(random.normal(size=(19, 70)) > 0)

    def function(rows, flags):
        def turn(carry, now):
            row, flag, n = now
            carry = jnp.where(flag, 0.5 * row @ carry, carry + n)
            return carry, carry[0]

        numbers = jnp.arange(70, dtype=jnp.int32).astype(dtype)
        final, ys = jax.lax.scan(turn, jnp.ones(3, dtype), (rows, flags, numbers), reverse=True)
        return final, ys, rows[3] @ rows[69]

    both = [run(f, (rows, flags), axes, 19) for f in (batched(function), function)]
    tolerance = 20 * float(np.finfo(dtype).eps)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max()), *both)


@pytest.mark.parametrize("axes", [(0, 0), (-1, -1), (None, 0)], ids=str)
def test_an_argument_that_a_loop_carries_stays_as_it_is(axes):
    random = np.random.default_rng(1)
    start, rows = jnp.asarray(random.normal(size=(19, 5, 6))), jnp.asarray(random.normal(size=(19, 70, 5, 6)))

    def function(start, rows):
        final, _ = jax.lax.scan(lambda x, row: (0.9 * x + row * x[::-1], None), start, rows)
        again, _ = jax.lax.scan(lambda x, row: (0.5 * x - row, None), start, rows)
        other, _ = jax.lax.scan(lambda x, row: (0.9 * x + row * final, None), jnp.sin(again), rows)  # in new memory
        return final, again, other

    both = [run(f, (start, rows), axes, 19) for f in (batched(function), function)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max()), *both)


def test_a_gpu_has_the_same_loops():
    random = np.random.default_rng(0)
    rows, flags = jnp.asarray(random.normal(size=(5, 70, 3, 3))), jnp.asarray(random.normal(size=(5, 70)) > 0)

    def function(rows, flags):
        turn = lambda carry, now: (jnp.where(now[1], 0.5 * now[0] @ carry, carry + 1), carry[0])
        return jax.lax.scan(turn, jnp.ones(3), (rows, flags))

    expected = jax.vmap(function)(rows, flags)
    for a, b in zip(launched(function, rows, flags, memory=True), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14 * np.abs(b).max())


@pytest.fixture(scope="module")
def rope():
    model = lgjax.models.chain(BODIES)
    return model, trees.random_states(model, 19)


def test_a_chain_is_one_short_program(rope):
    model, (q, v, _, tau, _) = rope
    one = jax.tree.map(lambda x: x[0], (q, v, tau))
    program = program_of(lambda q, v, tau: lgjax.forward_dynamics(model, q, v, tau), *one, memory=True)
    assert program.lines < 20 * BODIES < sum(program.operations.values())


@pytest.mark.parametrize("size", [None, 1, 5, 19])
def test_dynamics_of_a_chain_are_those_of_the_plain_recursion(rope, size):
    model, (q, v, vdot, tau, _) = rope
    axis = None if size is None else 0

    def function(model, q, v, vdot, tau):
        return lgjax.forward_dynamics(model, q, v, tau), lgjax.inverse_dynamics(model, q, v, vdot)

    args = (model, q, v, vdot, tau)
    both = []
    for f in (function, plain()(function)):
        of = lambda q, v, vdot, tau, f=f: f(model, q, v, vdot, tau)
        both.append(run(of, args[1:], (axis,) * 4, size))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * float(np.abs(b).max())), *both)


@pytest.mark.slow
def test_gradients_of_a_batch_of_chains_are_those_of_the_plain_recursion(rope):
    """Also with respect to the models, each with masses of its own."""
    model, (q, v, _, tau, _) = rope
    heavier = jax.vmap(lambda s: model.replace(inertias=jax.tree.map(lambda x: x * s, model.inertias)))
    models = heavier(jnp.linspace(1.0, 2.0, 5))
    first = jax.tree.map(lambda x: x[:5], (q, v, tau))

    def loss(model, q, v, tau):
        return jnp.sum(jnp.sin(lgjax.forward_dynamics(model, q, v, tau)))

    gradient = lambda m, q, v, tau: jax.grad(lambda mass, v: loss(m.replace(armature=mass), q, v, tau), (0, 1))(
        m.armature, v
    )
    both = [jax.jit(jax.vmap(f))(models, *first) for f in (gradient, plain()(gradient))]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7 * float(np.abs(b).max())), *both)
