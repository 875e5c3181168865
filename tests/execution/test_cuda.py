"""Programs for a GPU: lowered without one, they are the kernels, and transposes where a user's arrays come and go."""

import re
import warnings
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from benchmarks import humanoid
from lgjax import specialize
from lgjax.execution import batched
from lgjax.execution.kernels import cuda
from lgjax.execution.kernels.cuda import TARGET
from lgjax.execution.operation import _directions
from tests.dynamics import trees

SIZE = 40
# Operations that cost nothing: moves of arrays, which XLA turns into the one transpose of each, and constants.
FREE = {"transpose", "reshape", "broadcast_in_dim", "constant", "concatenate", "slice", "custom_call", "pad"}


def lowered(function, *args) -> str:
    return jax.jit(jax.vmap(function)).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def launches(text: str) -> int:
    return len(re.findall(re.escape(f"@{TARGET}"), text))


def operations(text: str) -> set[str]:
    return set(re.findall(r"stablehlo\.(\w+)", text))


def arithmetic_on_batches(text: str) -> list[str]:
    """Lines with arithmetic on arrays of the batch."""
    found = re.findall(rf".*stablehlo\.(?:add|multiply|divide|sine|cosine|dot_general|subtract).*{SIZE}x.*", text)
    return [line.strip() for line in found]


@pytest.fixture(scope="module")
def robot():
    model = specialize(trees.model("shoulder").astype("float32"))
    return model, jax.tree.map(lambda x: x.astype("float32"), trees.random_states(model, SIZE))


def test_an_algorithm_is_one_kernel(robot):
    model, (q, v, vdot, tau, _) = robot
    calls = {
        "forward": (partial(lgjax.forward_dynamics, model), (q, v, tau)),
        "inverse": (partial(lgjax.inverse_dynamics, model), (q, v, vdot)),
        "mass solve": (partial(lgjax.solve_mass_matrix, model), (q, tau)),
        "mass matrix": (partial(lgjax.mass_matrix, model), (q,)),
        "kinematics": (partial(lgjax.forward_kinematics, model), (q,)),
        "twists": (partial(lgjax.body_twists, model), (q, v)),
        "partials": (partial(lgjax.inverse_dynamics_partials, model), (q, v, vdot)),
    }
    for name, (function, args) in calls.items():
        text = lowered(function, *args)
        assert launches(text) == 1, name
        assert operations(text) <= FREE, name
        assert not arithmetic_on_batches(text), name


def test_time_derivatives_are_one_kernel(robot):
    """Around it each stack is divided by factorials, in the kernel that transposes it."""
    model, (q, v, _, tau, _) = robot
    derivatives = partial(lgjax.forward_dynamics_time_derivatives, model)
    assert launches(lowered(derivatives, q, v, jnp.stack([tau, tau], 1))) == 1


def test_a_gradient_is_one_kernel():
    model = specialize(lgjax.models.chain(3).astype("float32"))
    q, v, vdot, tau, _ = jax.tree.map(lambda x: x.astype("float32"), trees.random_states(model, SIZE))
    calls = {
        "forward": lambda q, v, vdot, tau: jnp.sum(lgjax.forward_dynamics(model, q, v, tau)),
        "inverse": lambda q, v, vdot, tau: jnp.sum(lgjax.inverse_dynamics(model, q, v, vdot)),
        "hybrid": lambda q, v, vdot, tau: jnp.sum(lgjax.hybrid_dynamics(model, q, v, vdot, tau, [1])[0]),
        "mass solve": lambda q, v, vdot, tau: jnp.sum(lgjax.solve_mass_matrix(model, q, tau)),
    }
    for name, function in calls.items():
        text = lowered(jax.grad(function, (0, 1, 2, 3)), q, v, vdot, tau)
        assert launches(text) == 1, name
        assert not arithmetic_on_batches(text), name
    # Where the results are used too, a second kernel computes them.
    square = jax.value_and_grad(lambda v, q, tau: jnp.sum(lgjax.forward_dynamics(model, q, v, tau) ** 2))
    assert launches(lowered(square, v, q, tau)) == 2


@pytest.mark.parametrize("controlled", [False, True])
def test_a_step_of_a_rollout_is_one_kernel(robot, controlled):
    model, (q, v, *_) = robot
    pd = (lambda t, q, v: -20 * jnp.sin(t) * q.joints.sum() - 0.5 * v) if controlled else None
    roll = lambda q, v: lgjax.rollout(model, q, v, pd, 1e-3, 20, save_every=5)
    text = lowered(roll, q, v)
    assert launches(text) == 1
    assert not arithmetic_on_batches(text)
    assert "output_operand_aliases" in text  # the next state is written over the last


def test_what_is_no_arithmetic_runs_in_other_ways_and_says_so(robot):
    model, (q, v, *_) = robot
    roll = lambda q, v: lgjax.rollout(model, q, v, lambda t, q, v: jnp.sort(v), 1e-3, 4, save_every=None).v
    with pytest.warns(UserWarning, match=r"without a kernel of its own.*sort"):
        text = lowered(roll, q, v)
    assert launches(text) == 4  # accelerations, and the moves and exponents of a stage, are kernels still


def layouts(text: str) -> list[list[int]]:
    """Of each argument and result of the launches, its axes, the fastest in memory first."""
    lines = [line for line in text.splitlines() if f"@{TARGET}" in line]
    return [
        [int(x) for x in found.split(",")] for line in lines for found in re.findall(r"dense<\[?([\d, ]+)\]?>", line)
    ]


@pytest.mark.parametrize("together", [20000, 0])
def test_the_batch_stays_where_the_user_has_it(robot, monkeypatch, together):
    """With the batch in front, kernels read and write it there, one after the other: the transposes move nothing."""
    model, (q, v, _, tau, _) = robot
    monkeypatch.setattr("lgjax.execution.operation.TOGETHER", together)
    jax.clear_caches()
    forward = partial(lgjax.forward_dynamics, model)
    gradient = jax.grad(lambda q, v, tau: jnp.sum(forward(q, v, tau)), (0, 1, 2))
    for function, kernels in ((forward, 1), (gradient, 1 if together else 3)):
        text = lowered(function, q, v, tau)
        found = layouts(text)
        assert launches(text) == kernels
        assert all(x[-1] == len(x) - 1 for x in found)
    last = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), (q, v, tau))
    text = jax.jit(jax.vmap(forward, -1, -1)).trace(*last).lower(lowering_platforms=("cuda",)).as_text()
    assert all(x[0] == len(x) - 1 for x in layouts(text))
    assert "transpose" not in operations(text)
    jax.clear_caches()


def test_large_arrays_do_not_go_through_shared_memory(robot):
    model, (q, *_) = robot
    wide = lambda q: jnp.outer(jnp.arange(400.0, dtype=q.joints.dtype), lgjax.mass_matrix(model, q)[0])
    found = layouts(lowered(batched(wide), q))
    assert found[-1][0] == 2  # 4000 numbers of a system
    assert found[0][-1] == len(found[0]) - 1


def test_the_way_back_through_a_step_writes_over_its_cotangents(robot, monkeypatch):
    model, (q, v, *_) = robot
    loss = lambda q, v: jnp.sum(lgjax.rollout(model, q, v, None, 1e-3, 5, save_every=None).v ** 2)
    text = lowered(jax.grad(loss, (0, 1)), q, v)
    back = [line for line in text.splitlines() if f"@{TARGET}" in line][-1]
    results = len(re.findall(r"tensor<", back.split("->")[1]))
    assert back.count("output_operand_alias<") == results > 0


def test_directions_are_the_last_arguments_of_the_same_kind():
    """As many as there are, each once."""
    aval = lambda n: jax.ShapeDtypeStruct((n,), jnp.float32)
    of = lambda f, *sizes: jax.make_jaxpr(f)(*map(aval, sizes)).jaxpr
    directions = _directions
    assert directions(of(lambda x, a, b: (b, a), 2, 2, 2), [True] * 3, 8) == {0: 1, 1: 2}
    assert directions(of(lambda x, a: (x, a), 2, 2), [True, False], 8) == {0: 0}
    assert directions(of(lambda x, a: (a, x, x), 3, 2), [True] * 2, 8) == {0: 1, 1: 0}
    assert directions(of(lambda x: (x, x, x), 2), [True], None) == {0: 0}
    assert directions(of(lambda x: (x[0],), 2), [True], 8) == {}


def test_one_system_is_a_batch_of_one(robot):
    model, states = robot
    q, v, _, tau, _ = jax.tree.map(lambda x: x[0], states)
    run = jax.jit(partial(lgjax.forward_dynamics, model))
    assert launches(run.trace(q, v, tau).lower(lowering_platforms=("cuda",)).as_text()) == 1


def test_on_a_cpu_a_piece_is_what_it_consists_of():
    f = lambda state, a: (jnp.sin(state[0]) * a, state[1] + a)
    state, a = (jnp.ones(3), jnp.arange(3.0)), jnp.asarray(2.0)
    g = batched(f)
    same = lambda x, y: jax.tree.map(np.testing.assert_array_equal, x, y)
    same(g(state, a), f(state, a))
    batch = (jnp.ones((4, 3)), jnp.arange(12.0).reshape(4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(jax.jit(jax.vmap(g, (0, None)))(batch, a), jax.vmap(f, (0, None))(batch, a))
    loss = lambda g: lambda s, a: jnp.sum(g(s, a)[0] ** 2)
    same(jax.grad(loss(g), (0, 1))(state, a), jax.grad(loss(f), (0, 1))(state, a))
    same(jax.jvp(g, (state, a), (state, a)), jax.jvp(f, (state, a), (state, a)))
    same(jax.vmap(jax.grad(loss(g)), (0, None))(batch, a), jax.vmap(jax.grad(loss(f)), (0, None))(batch, a))


def test_arrays_that_are_known_are_part_of_a_kernel():
    """They are read from its text: the launch gets x alone."""
    f = batched(lambda x: x * jnp.asarray([1.0, 2.0, 3.0]))
    text = jax.jit(jax.vmap(f)).trace(jnp.ones((SIZE, 3))).lower(lowering_platforms=("cuda",)).as_text()
    call = next(line for line in text.splitlines() if TARGET in line)
    assert re.search(r"@\S+\(%\w+\)", call)


def test_derivatives_of_a_rollout_on_a_gpu_are_those_of_a_cpu(monkeypatch):
    """There a step and its way back are one kernel each; here derivatives that read the arguments alone run."""
    model = trees.model("pendulum")
    q, v, _, tau, _ = jax.tree.map(lambda x: x[:3], trees.random_states(model))

    def loss(q, v, tau, mass):
        scaled = model.replace(inertias=jax.tree.map(lambda x: mass * x, model.inertias))
        path = lgjax.rollout(scaled, q, v, lambda t, q, v: jnp.cos(t) * tau - 0.1 * v, 1e-2, 3, save_every=None)
        return jnp.sum(path.v**2) + jnp.sum(path.q.joints)

    def derivatives(q, v, tau, mass):
        reverse = jax.grad(loss, (1, 2, 3))(q, v, tau, mass)
        forward = jax.jvp(lambda v, tau: loss(q, v, tau, mass), (v, tau), (tau, v))[1]
        return reverse, forward, jax.hessian(lambda v: loss(q, v, tau, mass))(v)

    run = lambda: jax.jit(jax.vmap(derivatives, (0, 0, 0, None)))(q, v, tau, jnp.asarray(1.3))
    with monkeypatch.context() as patch:
        patch.setattr("lgjax.execution.operation.TOGETHER", 0)
        expected = run()
    jax.clear_caches()
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-11, atol=1e-11), run(), expected)
    text = lowered(jax.grad(lambda v, q, tau: loss(q, v, tau, 1.0)), v, q, tau)
    assert launches(text) == 2
    jax.clear_caches()


def test_a_step_of_a_humanoid_with_many_contacts_is_one_kernel():
    """Its arrays are in a thread's memory, with room for those that live at one time."""
    model = humanoid.humanoid().astype("float32")
    shapes = {link: [lgjax.shapes.sphere(r, c) for r, c in parts] for link, parts in humanoid.spheres().items()}
    contacts = lgjax.Contacts(model, lgjax.shapes.Plane((0.0, 0.0, 1.0)), shapes, friction=0.8)
    still = jnp.zeros((SIZE, model.nv), "float32")
    q = jax.tree.map(lambda x: jnp.broadcast_to(x, (SIZE, *x.shape)), lgjax.neutral(model))
    step = lambda q, v: lgjax.contact.contact_step(model, contacts, q, v, 0 * v, jnp.float32(2e-3)).v
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launches(lowered(step, q, still)) == 1


SIZES = {"8.0": 19968, "8.9": 11776, "9.0": 28160, "10.0": 28160, None: 28160}


@pytest.mark.parametrize("kind", SIZES)
def test_eight_blocks_fit_on_a_multiprocessor(monkeypatch, kind):
    """Of 164, 100 and 228 kB, where each block takes 1 kB more; without a device as on an H100."""
    devices = {"gpu": [SimpleNamespace(compute_capability=kind)]} if kind else {}

    def local_devices(backend):
        if backend not in devices:
            raise RuntimeError("there is none")
        return devices[backend]

    monkeypatch.setattr(jax, "local_devices", local_devices)
    assert cuda._shared_memory() == SIZES[kind]
