"""A function scalarized as a whole gives what it gives directly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import specialize
from lgjax.execution.program import ScalarProgram
from tests.dynamics import trees


def run(function, *batched):
    """The program of a function of one system on arrays with a leading axis for the batch, operation by operation."""
    leaves = jax.tree.leaves(batched)
    program = ScalarProgram(function, *jax.tree.map(lambda x: x[0], batched))
    pairs = list(zip(leaves, program.inputs, strict=True))
    rows = {node.index: (x, k) for x, nodes in pairs for k, node in enumerate(nodes.flat)}
    load = lambda node: rows[node][0].reshape(len(rows[node][0]), -1)[:, rows[node][1]]
    outs = []
    for shape, out in zip(program.shapes, program.run(load), strict=True):
        columns = [jnp.broadcast_to(jnp.asarray(x, shape.dtype), leaves[0].shape[:1]) for x in out.flat]
        outs.append(jnp.stack(columns, -1).reshape(-1, *shape.shape) if columns else None)
    return jax.tree.unflatten(program.out_tree, outs)


X = np.random.default_rng(0).normal(size=(4, 3, 3))
FUNCTIONS = {
    "gather": lambda x: x[np.array([2, 0]), 1:],
    "scatter": lambda x: x.at[1, np.array([0, 2])].set(x[0, :2]),
    "slices": lambda x: jax.lax.dynamic_update_slice(x, 2 * jax.lax.dynamic_slice(x, (1, 1), (2, 2)), (0, 1)),
    "split": lambda x: jnp.split(x, 3)[1] * x,
    "powers": lambda x: x**3 + jnp.abs(x) ** 2.5,
    "comparisons as numbers": lambda x: (x > 0.3).astype(x.dtype) * x + (jnp.arange(3) < 2).astype(x.dtype),
    "constants": lambda x: jnp.asarray(X[0], x.dtype) @ x + 2.0,
    "nothing": lambda x: jnp.ones((2, 2), x.dtype),
    "the same twice": lambda x: (x, x + 0.0, x * 1.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_operation_gives_what_it_gives_directly(name, dtype):
    x = jnp.asarray(X, dtype)
    got, expected = run(FUNCTIONS[name], x), jax.vmap(FUNCTIONS[name])(x)
    # Sums of three products may be taken in another order; everything else is the same operation.
    tolerance = 4 * np.finfo(dtype).eps if name == "constants" else 0
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance), got, expected)
    assert jax.tree.leaves(jax.tree.map(lambda a: a.dtype.name, got)) == [dtype] * len(jax.tree.leaves(expected))


def test_what_is_not_arithmetic_on_scalars_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="sort"):
        ScalarProgram(jnp.sort, X[0])
    with pytest.raises(NotImplementedError, match=r"gather|dynamic_slice"):
        ScalarProgram(lambda x, i: x[i], X[0], jnp.zeros((), jnp.int32))


@pytest.mark.parametrize(("name", "dtype"), [("pendulum", "float32"), ("shoulder", "float64"), ("forest", "float32")])
def test_forward_dynamics_of_a_specialized_model(name, dtype):
    model = trees.model(name).astype(dtype)
    q, v, _, tau, wrenches = jax.tree.map(lambda x: x.astype(dtype), trees.random_states(model))
    expected = jit(jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0, 0)))(model, q, v, tau, wrenches)
    special = specialize(model)
    got = run(lambda *args: lgjax.forward_dynamics(special, *args, execution="unrolled"), q, v, tau, wrenches)
    np.testing.assert_allclose(got, expected, rtol=0, atol=40 * np.finfo(dtype).eps * np.abs(expected).max())


def test_operations_are_counted_and_ordered_for_few_registers():
    special = specialize(lgjax.models.quadruped())
    q, v, _, tau, _ = jax.tree.map(lambda x: x[0], trees.random_states(special, 1))
    program = ScalarProgram(lambda *args: lgjax.forward_dynamics(special, *args, execution="unrolled"), q, v, tau)
    counts = program.operations
    assert counts["sin"] == counts["cos"] == 12
    assert sum(counts.values()) <= 4200
    assert program.waiting(program.order) <= 0.9 * program.waiting(sorted(program.order))
    position = {index: place for place, index in enumerate(program.order)}
    for index in program.order:
        assert all(position[a.index] < position[index] for a in program.graph.ops[index][2] if hasattr(a, "index"))
