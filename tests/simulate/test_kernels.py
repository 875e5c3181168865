"""Kernels, interpreted, give what the level scan gives, and they can be lowered for CUDA without a GPU."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

import lgjax
from lgjax import models, specialize
from lgjax.integrators import CF4, RK4, CommutatorFree, MuntheKaas, SymplecticLie
from lgjax.simulate.kernels import KernelOptions, fused_forward_dynamics, fused_rollout, fused_vmap
from tests.dynamics import trees

INTERPRETED = KernelOptions(lanes=4, interpret=True)
COMPILED = KernelOptions(compiled=True)
BATCH = 5  # not a multiple of the lanes
direct = jit(jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0)))
fused = jit(partial(fused_forward_dynamics, options=INTERPRETED))


def states(model, n=BATCH):
    q, v, _, tau, _ = trees.random_states(model, n)
    return jax.tree.map(lambda x: x.astype(model.dtype), (q, v, tau))


def assert_close(got, expected, dtype, factor=200):
    def close(a, e):
        assert (a.shape, a.dtype) == (e.shape, e.dtype)
        scale = np.abs(np.asarray(e, float)).max(initial=1e-30)
        np.testing.assert_allclose(a, e, rtol=0, atol=factor * float(jnp.finfo(dtype).eps) * scale)

    jax.tree.map(close, got, expected)


@pytest.mark.parametrize(
    ("name", "dtype", "special"),
    [
        ("pendulum", "float32", False),
        ("pendulum", "float64", True),
        ("single body", "float32", True),
        pytest.param("shoulder", "float32", True, marks=pytest.mark.slow),
        pytest.param("chain", "float64", False, marks=pytest.mark.slow),
    ],
)
def test_a_kernel_gives_the_accelerations_of_the_scan(name, dtype, special):
    model = trees.model(name).astype(dtype)
    got = fused(specialize(model) if special else model, *states(model))
    assert_close(got, direct(model, *states(model)), dtype)


def test_parameters_may_be_batched():
    model = trees.model("pendulum")
    many = jax.tree.map(lambda x: jnp.stack([x * (1 + 0.1 * k) for k in range(BATCH)]), model)
    expected = jit(jax.vmap(lgjax.forward_dynamics))(many, *states(model))
    assert_close(fused(many, *states(model)), expected, "float64")


def test_results_depend_neither_on_the_place_in_the_batch_nor_on_its_size():
    model = specialize(trees.model("pendulum").astype("float32"))
    state = states(model, 8)
    all_at_once = fused(model, *state)
    rows = np.array([3, 7, 0, 5, 2, 1, 6, 4])
    np.testing.assert_array_equal(fused(model, *jax.tree.map(lambda x: x[rows], state)), all_at_once[rows])
    some = fused(model, *jax.tree.map(lambda x: x[6:], state))
    np.testing.assert_allclose(some, all_at_once[6:], rtol=1e-6)


def test_derivatives_are_those_of_the_scan():
    model = trees.model("pendulum")
    state = states(model)
    loss = lambda f, v: jnp.sum(f(model, state[0], v, state[2]) ** 2)
    interpreted = partial(fused_forward_dynamics, options=INTERPRETED)
    plain = jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0))
    got, expected = (jit(jax.grad(partial(loss, f)))(state[1]) for f in (interpreted, plain))
    assert_close(got, expected, "float64")


CONTROL = lambda t, q, v: jnp.sin(t) - 0.3 * v
ROLLOUTS = {
    "a loop over stages, with wrenches": (
        "pendulum",
        {
            "save_every": 2,
            "method": MuntheKaas(RK4, scan_stages=True),
            "wrenches": lambda t, q, v: jnp.ones((1, 6)) * t,
        },
    ),
    "the end alone": ("pendulum", {"save_every": None, "method": CommutatorFree(CF4)}),
    "a floating body": ("single body", {"save_every": 2}),
    "a floating body, a loop over stages": (
        "single body",
        {"save_every": 4, "method": MuntheKaas(RK4, scan_stages=True)},
    ),
}
SLOW = ("a floating body", "a floating body, a loop over stages")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in ROLLOUTS])
def test_steps_in_a_kernel_are_the_steps_of_rollout(name):
    tree, options = ROLLOUTS[name]
    model = trees.model(tree)
    q, v, _ = states(model)
    control = CONTROL if tree == "pendulum" else None
    one = lambda q, v, dt: lgjax.rollout(model, q, v, control, dt, 4, **options)
    kernel = lambda q, v, dt: fused_rollout(
        specialize(model), q, v, control, dt, 4, **options, options=INTERPRETED
    )  # fmt: skip
    got = jit(kernel)(q, v, 0.01)
    assert_close(got, jit(jax.vmap(one, (0, 0, None)))(q, v, 0.01), "float64", 1000)


def test_any_function_of_one_system_runs_as_a_kernel():
    """With an argument for all, an array that the function closes over, and results known beforehand."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(BATCH, 3)), jnp.float32)

    def function(gain, x):
        return {"turned": lgjax.so3.exp(gain * x), "same": x, "one": jnp.ones((), x.dtype)}

    def both(gain, offset, x):
        shifted = lambda gain, x: function(gain, x + offset)
        return fused_vmap(shifted, (None, 0), options=INTERPRETED)(gain, x), jax.vmap(shifted, (None, 0))(gain, x)

    got, expected = jit(both)(jnp.float32(2), jnp.arange(3, dtype=jnp.float32), x)
    assert_close(got, expected, "float32")


def lowered_for_cuda(run, *arguments):
    """The program for a GPU that need not be here; from JAX 0.11 on its kind has to be said."""
    device = {"device_kind": "NVIDIA H100 80GB HBM3", "num_cores": 132}
    if "platform" in AbstractDevice.__annotations__:
        device["platform"] = "gpu"
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=AbstractDevice(**device))):
        return jax.jit(run).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("special", [True, False])
def test_the_kernel_of_a_quadruped_lowers_for_cuda(special):
    model = models.quadruped().astype("float32")
    model = specialize(model) if special else model
    run = partial(fused_forward_dynamics, options=COMPILED)
    assert "triton" in lowered_for_cuda(run, model, *states(model))


def test_steps_of_a_floating_body_lower_for_cuda():
    model = specialize(trees.model("single body").astype("float32"))
    run = lambda q, v, dt: fused_rollout(model, q, v, None, dt, 10, save_every=5, options=COMPILED)
    assert "triton" in lowered_for_cuda(run, *states(model)[:2], jnp.float32(0.01))


def test_on_a_cpu_the_scan_runs():
    with jax.default_device(jax.devices("cpu")[0]):
        model = trees.model("pendulum")
        got = jit(partial(fused_forward_dynamics))(model, *states(model))
        np.testing.assert_array_equal(got, direct(model, *states(model)))


@pytest.mark.parametrize("special", [specialize, lambda model: model])
def test_the_cost_of_a_kernel(special):
    """Also where the parameters are numbers that the function closes over."""
    model = special(trees.model("pendulum").astype("float32"))
    one = jax.tree.map(lambda x: x[0], states(model))
    cost = lgjax.kernels.kernel_cost(lambda *a: lgjax.forward_dynamics(model, *a, execution="unrolled"), *one)
    assert cost["bytes"] == 4 * (1 + 1 + 1)  # angle and force in (the speed does not matter), acceleration out
    assert cost["operations"]["sin"] == 1
    assert cost["arithmetic"] <= 12
    assert cost["waiting"] <= 6


def test_bad_input_is_named():
    model = trees.model("pendulum")
    q, v, tau = states(model)
    with pytest.raises(ValueError, match="lanes is a power of two, got 48"):
        KernelOptions(lanes=48)
    with pytest.raises(ValueError, match=r"in_axes holds 0 or None for each of 1 arguments, got \(1,\)"):
        fused_vmap(jnp.sin, 1)(v)
    with pytest.raises(ValueError, match=r"leading axes of one length, got \[4, 5\]"):
        fused_forward_dynamics(model, q, v[:4], tau, options=INTERPRETED)
    with pytest.raises(NotImplementedError, match="sort"):
        fused_vmap(jnp.sort, options=INTERPRETED)(v)
    with pytest.raises(ValueError, match="SymplecticLie integrates on cotangent_bundle"):
        fused_rollout(model, q, v, None, 0.01, 2, SymplecticLie(0.5), options=INTERPRETED)
    with pytest.raises(ValueError, match="controller returned shape"):
        fused_rollout(model, q, v, lambda t, q, v: jnp.zeros(3), 0.01, 2, MuntheKaas(RK4), options=INTERPRETED)
