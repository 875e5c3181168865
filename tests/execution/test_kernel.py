"""Kernels, run instruction by instruction, give what the library gives on this machine in float64."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import specialize
from lgjax.execution.kernels.ptx import kernel
from lgjax.execution.kernels.rows import COMMON, chosen
from lgjax.execution.scalars import loops
from lgjax.execution.scalars.program import program_of
from tests.dynamics import trees
from tests.execution import ptx_machine

SIZE = 35  # more than a block, and not a whole number of them


def launched(function, *batched, shared=(), front=None, memory=False):
    """The function through its kernel: batched arguments with a leading axis, shared ones without.

    front: which of the arrays that a kernel takes with the batch in front it gets so; None: all behind. memory: whether
    large arrays stay in memory.
    """
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batched)
    program = program_of(function, *shared, *one, memory=memory)
    flags = [False] * len(jax.tree.leaves(shared)) + [True] * len(jax.tree.leaves(batched))
    size = len(jax.tree.leaves(batched)[0])
    shapes = jax.eval_shape(function, *shared, *one)
    leaves, outs = jax.tree.leaves((shared, batched)), jax.tree.leaves(shapes)
    marks = [False] * (len(leaves) + len(outs))
    if front is not None:
        kind = lambda x, count: (count, x.dtype.itemsize)
        rows = [kind(x, x.size // size * b) for x, b in zip(leaves, flags, strict=True)]
        marks = chosen(rows, [kind(x, x.size) for x in outs])
        marks = [m and front(k) for k, m in enumerate(marks)]
        assert any(marks)
    last = lambda x: np.moveaxis(x, 0, -1)
    arrays = [
        np.asarray(x) if f or not b else last(x) for x, b, f in zip(leaves, flags, marks[: len(leaves)], strict=True)
    ]
    ahead = marks[len(leaves) :]
    results = [((size, *x.shape) if f else (*x.shape, size), x.dtype) for x, f in zip(outs, ahead, strict=True)]
    made = kernel(program, flags, size, front=marks)
    found = ptx_machine.run(made, arrays, results)
    found = [x if f else np.moveaxis(x, -1, 0) for x, f in zip(found, ahead, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(shapes), found)


def close(got, expected, tolerance):
    """Entry by entry, relative to the largest of each result."""
    for a, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        a, e = np.asarray(a, float), np.asarray(e)
        assert np.abs(a - e).max(initial=0) <= tolerance * max(1.0, np.abs(e).max(initial=0))


def order_two(model, q, v, vdot, tau, wrenches):
    return lgjax.forward_dynamics_time_derivatives(model, q, v, jnp.stack([tau, v, vdot]))


def gradient(model, q, v, vdot, tau, wrenches):
    return jax.grad(lambda q, v, tau: jnp.sum(lgjax.forward_dynamics(model, q, v, tau) * vdot), (0, 1, 2))(q, v, tau)


def rollout(model, q, v, vdot, tau, wrenches):
    motor = lambda t, q, v: tau * jnp.tanh(100 * v) - jnp.minimum(v, 1.0) * jnp.exp(-t)
    path = lgjax.rollout(model, q, v, motor, 1e-3, 5, save_every=None)
    return path.q, path.v


ALGORITHMS = {
    "forward": lambda m, q, v, vdot, tau, w: lgjax.forward_dynamics(m, q, v, tau, w),
    "inverse": lambda m, q, v, vdot, tau, w: lgjax.inverse_dynamics(m, q, v, vdot, w),
    "hybrid": lambda m, q, v, vdot, tau, w: lgjax.hybrid_dynamics(m, q, v, vdot, tau, range(0, m.nv, 2)),
    "mass matrix": lambda m, q, v, vdot, tau, w: lgjax.mass_matrix(m, q),
    "mass solve": lambda m, q, v, vdot, tau, w: lgjax.solve_mass_matrix(m, q, tau),
    "kinematics": lambda m, q, v, vdot, tau, w: (lgjax.forward_kinematics(m, q), lgjax.body_twists(m, q, v)),
    "partials": lambda m, q, v, vdot, tau, w: lgjax.inverse_dynamics_partials(m, q, v, vdot),
    "time derivatives": order_two,
    "gradient": gradient,
    "rollout": rollout,
}
CASES = [  # algorithm, tree, dtype, whether the model is specialized
    ("forward", "forest", "float32", True),
    ("forward", "shoulder", "float32", False),
    ("inverse", "shoulder", "float64", True),
    ("hybrid", "pendulum", "float32", False),
    ("mass matrix", "forest", "float64", True),
    ("mass solve", "pendulum", "float32", False),
    ("kinematics", "shoulder", "float32", True),
    ("partials", "pendulum", "float64", False),
    ("time derivatives", "pendulum", "float32", True),
    ("gradient", "pendulum", "float64", False),
    ("rollout", "single body", "float32", True),
    ("rollout", "pendulum", "float64", False),
]


@pytest.mark.parametrize(("algorithm", "tree", "dtype", "special"), CASES)
def test_algorithms(algorithm, tree, dtype, special):
    model = trees.model(tree).astype(dtype)
    states = jax.tree.map(lambda x: x.astype(dtype), trees.random_states(model, SIZE))
    function = ALGORITHMS[algorithm]
    if special:
        got = launched(lambda *s: function(specialize(model), *s), *states)
    else:
        got = launched(function, *states, shared=(model,))
    doubles = jax.tree.map(lambda x: x.astype("float64"), (model, states))
    expected = jax.jit(jax.vmap(function, (None, *[0] * len(states))))(doubles[0], *doubles[1])
    close(got, expected, 4e3 * np.finfo(dtype).eps)
    assert {x.dtype.name for x in jax.tree.leaves(got)} == {dtype}


def test_bodies_of_many_densities():
    """A specialized model whose inertias are inputs, others for each system."""
    model = trees.model("shoulder")
    q, v, _, tau, _ = trees.random_states(model, SIZE)
    factors = jnp.linspace(0.5, 2.0, SIZE)

    def dynamics(model, factor, q, v, tau):
        return lgjax.forward_dynamics(model.replace(inertias=model.inertias.scaled(factor)), q, v, tau)

    got = launched(partial(dynamics, specialize(model)), factors, q, v, tau)
    expected = jax.jit(jax.vmap(partial(dynamics, model)))(factors, q, v, tau)
    close(got, expected, 4e3 * np.finfo("float64").eps)


def test_results_over_arguments():
    """A pullback that writes over its cotangents."""
    model = specialize(trees.model("pendulum"))
    q, v, vdot, tau, _ = trees.random_states(model, SIZE)

    def back(q, v, tau, a, b):
        from_v = jax.vjp(lambda v: lgjax.forward_dynamics(model, q, v, tau), v)[1](a)[0]
        return from_v, jax.vjp(lambda tau: lgjax.forward_dynamics(model, q, v, tau), tau)[1](b)[0]

    states = (q, v, tau, vdot, v - tau)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), states)
    made = kernel(program_of(back, *one), [True] * len(jax.tree.leaves(states)), SIZE, in_place=True)
    arrays = [np.array(np.moveaxis(x, 0, -1), order="C") for x in jax.tree.leaves(states)]
    machine = ptx_machine.Machine(made.text, made.blocks * made.threads)
    machine.run([x for x in (*arrays, *arrays[-2:]) if x.size])
    close([x.T for x in arrays[-2:]], jax.vmap(back)(*states), 1e-12)


def test_results_that_cross():
    """What is written first is where something is still to be read."""
    one = [jax.ShapeDtypeStruct((3,), np.float32)] * 2
    crossed = lambda x, y: (jnp.flip(y) + 1, jnp.flip(x) * 2)
    made = kernel(program_of(crossed, *one), [True, True], SIZE, in_place=True)
    x, y = np.random.default_rng(0).normal(size=(2, 3, SIZE)).astype(np.float32)
    expected = np.flip(y, 0) + 1, np.flip(x, 0) * 2
    machine = ptx_machine.Machine(made.text, made.blocks * made.threads)
    machine.run([x, y, x, y])
    np.testing.assert_array_equal((x, y), expected)


FRONT = {"all": lambda k: True, "odd": lambda k: k % 2 == 1, "even": lambda k: k % 2 == 0}


@pytest.mark.parametrize("front", FRONT)
@pytest.mark.parametrize("size", [1, 32, 35, 96])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches_in_front(dtype, size, front):
    """The same numbers to the last bit as with the batch behind, wherever the batch of an array is."""
    model = specialize(trees.model("shoulder").astype(dtype))
    states = jax.tree.map(lambda x: x.astype(dtype), trees.random_states(model, size))
    function = lambda *state: ALGORITHMS["forward"](model, *state)
    got = launched(function, *states, front=FRONT[front])
    np.testing.assert_array_equal(got, launched(function, *states))


@pytest.mark.parametrize("count", [1, 7, 16, 32, 64, 70])
def test_rows_of_every_length(count):
    """Also those that would all begin in one bank of the memory, and integers."""
    x, n = np.arange(50.0 * count).reshape(50, count), np.arange(50 * count, dtype=np.int32).reshape(50, count)
    function = lambda x, n: (x[::-1] * 2 + n.astype(x.dtype), n + 1, jnp.sum(x))
    got = launched(function, x.astype(np.float32), n, front=FRONT["all"])
    close(got, jax.vmap(function)(x, n), 1e-6)


def test_what_is_not_read_is_not_copied():
    x, y = np.ones((SIZE, 2), np.float32), np.ones((SIZE, 3), np.float32)
    one = [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in (x, y)]
    text = kernel(program_of(lambda x, y: 2 * y, *one), [True, True], SIZE, front=[True] * 3).text
    assert text.count("cp.async.ca") == 3
    np.testing.assert_array_equal(launched(lambda x, y: jnp.full(2, 3.0, x.dtype), x, y, front=FRONT["all"]), 3)


@pytest.mark.parametrize("written_out", [4000, 0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_way_back_through_steps(monkeypatch, dtype, written_out):
    """Loops over steps and stages that save, and loops that read what these saved, one within the other."""
    model = {"float64": lgjax.models.chain(2), "float32": trees.model("single body")}[dtype]
    states = trees.random_states(model, SIZE)

    def derivatives(dtype):
        special = specialize(model.astype(dtype))

        def loss(q, v, vdot, tau):
            motor = lambda t, q, v: 1e-3 * (tau * jnp.cos(t) - v)
            path = lgjax.rollout(special, q, v, motor, 1e-2, 12, save_every=None)
            return jnp.sum(path.v * vdot) + jnp.sum(path.q.joints)

        return lambda q, v, vdot, tau, wrenches: jax.grad(loss, (0, 1))(q, v, vdot, tau)

    expected = jax.jit(jax.vmap(derivatives("float64")))(*states)
    jax.clear_caches()
    monkeypatch.setattr(loops, "WRITTEN_OUT", written_out)
    got = launched(derivatives(dtype), *jax.tree.map(lambda x: x.astype(dtype), states))
    close(got, expected, 4e3 * np.finfo(dtype).eps)
    jax.clear_caches()


@pytest.mark.parametrize("count", [1, 31, 32, 33, 700, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_what_all_systems_share_is_read_from_shared_memory(dtype, count):
    """As far as it has room there."""
    table = (100 * np.random.default_rng(0).normal(size=(2, count))).astype(dtype)
    x = (10 * np.random.default_rng(1).normal(size=(SIZE, 3))).astype(dtype)
    function = lambda a, b, x: (x[0] * a[0] + x[1] * jnp.max(a), x[2] * b[count // 2] - jnp.max(b))
    bound = 4 * float(np.finfo(dtype).eps) if dtype != "int32" else 0
    close(launched(function, x, shared=tuple(table)), jax.vmap(partial(function, *table))(x), bound)
    one = jax.ShapeDtypeStruct((3,), dtype)
    text = kernel(program_of(function, *table, one), [False, False, True], len(x)).text
    size = sum(map(int, re.findall(r"common\[(\d+)\]", text)))
    room = COMMON // table[0].nbytes  # for so many tables
    assert bool(re.search(r"ld\.global\.nc\S* \S+ \[%a[01]", text)) == (room < 2)
    assert size == min(2, room) * -(-table[0].nbytes // 16) * 16


def test_arrays_of_several_widths_are_shared_in_any_order():
    p, q, x = np.arange(5.0) + 1, np.arange(5, dtype=np.int32) + 10, np.ones((3, 1))
    functions = (lambda p, q, x: (p[3] + 0, q[2] + 0, 2 * x[0])), (lambda q, p, x: (p[3] + 0, q[2] + 0, 2 * x[0]))
    for function, shared in zip(functions, ((p, q), (q, p)), strict=True):
        found = launched(function, x, shared=shared)
        assert [float(y[1]) for y in found] == [4, 12, 2]


def test_what_all_systems_share_stays_where_it_is_if_little_of_it_is_read_or_there_is_no_room():
    one = jax.ShapeDtypeStruct((60,), "float32")
    table = jax.ShapeDtypeStruct((2048,), "float32")
    text = lambda f, shared: (
        kernel(program_of(f, table, one), [False, True], 64, front=[False, True, True], shared=shared).text
    )
    few, all_of_it = lambda a, x: x * a[7], lambda a, x: x * a[:60] + jnp.sum(a)
    assert "common" not in text(few, 28160)
    assert "common[8192]" in text(all_of_it, 28160)
    assert "common" not in text(all_of_it, 11776)
