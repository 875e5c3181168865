"""Reverse mode in less memory: segments that are computed again, and symmetric methods that run back."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import systems
from lgjax.collisions.variational import variational_step
from lgjax.integrators.scan_saved import segment_length

HALF = lgjax.SymplecticLie(0.5)


CASES = [(36, None, True), (36, 1, True), (36, 12, True), (36, 2, True), (37, 1, True), (37, None, 5), (4, 2, 100)]


def growth(a, t1, steps, save_every, remat=False):
    """A number of all the states of a nonlinear motion."""
    field = lambda t, y: a * jnp.cos(t) - jnp.sin(y[::-1])
    method = lgjax.CommutatorFree(lgjax.integrators.CF3)  # carries a stage from step to step
    y0 = jnp.asarray([1.0, 2.0], a.dtype)
    path = lgjax.integrate(lgjax.groups.vector_space(2), field, y0, 0.0, t1, steps, method, save_every, remat)
    return jnp.sum(jnp.sin(path.ys)), path.ys


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize(("steps", "save_every", "remat"), CASES)
def test_checkpoints_change_neither_values_nor_gradients(steps, save_every, remat, dtype):
    inputs = (jnp.asarray([0.3, -1.0], dtype), jnp.asarray(1.3, dtype))
    both = [
        jax.jit(jax.value_and_grad(partial(growth, steps=steps, save_every=save_every, remat=c), (0, 1), True))(*inputs)
        for c in (False, remat)
    ]
    eps = float(jnp.finfo(dtype).eps)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=100 * eps, atol=100 * eps), *both)


def test_segments_are_about_the_square_root():
    for n in (1, 2, 7, 100, 1000, 10_000, 10_007, 12_345):
        length = segment_length(n, True)
        assert 0 <= abs(length - n**0.5) <= max(1, 0.6 * n**0.5)
    assert segment_length(10_000, True) == 100
    assert (segment_length(50, False), segment_length(50, 7), segment_length(50, 70)) == (0, 7, 50)
    with pytest.raises(ValueError, match="remat must be a positive integer, got -3"):
        segment_length(50, -3)


def pendulums(scale):
    """Two pendulums in a swaying field, on the cotangent bundle of the plane."""
    return lambda t, y: jnp.concatenate([y.mu, -scale * jnp.sin(y.g) * (1 + 0.3 * jnp.cos(t)) - 0.1 * y.g[::-1]])


SPACE, START = (
    lgjax.groups.cotangent_bundle(lgjax.Rn(2)),
    lgjax.groups.Covector(jnp.asarray([0.3, 1.0]), jnp.asarray([0.5, -1.0])),
)


def swing(integrate, steps, save_every, method, y0, t1, scale):
    """A number of the states, and they; the field closes over `scale`."""
    path = integrate(SPACE, pendulums(scale), y0, 0.1, t1, steps, method, save_every)
    return jnp.sum(jnp.cos(path.ys.mu)) + jnp.sum(path.ys.g[..., 0]), path.ys


@pytest.mark.parametrize(("save_every", "method"), [(None, HALF), (5, HALF), (10, lgjax.integrators.triple_jump(HALF))])
def test_the_way_back_gives_the_gradients_of_the_way_forth(save_every, method):
    inputs = (START, jnp.asarray(2.0), jnp.asarray(1.1))
    both = [
        jax.jit(jax.value_and_grad(partial(swing, integrate, 20, save_every, method), (0, 1, 2), True))(*inputs)
        for integrate in (lgjax.integrate, lgjax.integrators.integrate_reversible)
    ]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12), *both)


@pytest.mark.slow
def test_a_symplectic_run_of_no_time_stays_where_it_is():
    p = systems.heavy_top("cotangent")
    for method in (HALF, lgjax.integrators.triple_jump(HALF)):
        end = jax.jit(lambda t, m=method: lgjax.integrate(p.space, p.field, p.y0, 1.0, t, 3, m).ys)(1.0)
        np.testing.assert_allclose(end.mu[-1], p.y0.mu, rtol=1e-15)
        np.testing.assert_allclose(end.g[-1], p.y0.g, atol=1e-15)


def test_the_heavy_top_goes_back():
    top = systems.heavy_top("cotangent", angular_velocity=(0.5, 3.0, -1.0))

    def gradient(integrate):
        def end(y0, scale):
            path = integrate(top.space, lambda t, y: scale * top.field(t, y), y0, 0.0, 0.4, 20, HALF, None)
            return jnp.sum(path.ys.g[..., 0]) + jnp.sum(jnp.sin(path.ys.mu))

        return jax.jit(jax.grad(end, (0, 1)))(top.y0, jnp.asarray(1.1))

    there, back = gradient(lgjax.integrate), gradient(lgjax.integrators.integrate_reversible)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9), there, back)


def body(mass, inertia):
    return lgjax.collisions.rigid_body(
        mass, inertia, potential=lambda pose: jnp.sum(pose.translation**2) * pose.rotation[0, 0]
    )


def flight(go_back, steps, mass, inertia, spin):
    """A number of a tumbling body in a potential by the variational integrator."""
    start = lgjax.collisions.rigid_state((1.0, 0.0, 2.0), (0.1, 0.2, 0.3), spin)

    def step(arguments, t, y, h, carry):
        return variational_step(body(*arguments), y, h)[0], carry

    if go_back:
        end = jax.tree.map(
            lambda x: x[-1],
            lgjax.integrators.reversible_steps(step, (mass, inertia), start, 0.0, 0.02 * steps, steps, None).ys,
        )
    else:
        end = jax.lax.fori_loop(0, steps, lambda _, y: step((mass, inertia), 0.0, y, jnp.asarray(0.02), ())[0], start)
    return jnp.sum(end.pose.translation) + jnp.sum(jnp.sin(end.angular)) + end.pose.rotation[0, 1]


def test_the_variational_integrator_goes_back():
    inputs = (jnp.asarray(1.0), jnp.asarray([0.4, 0.5, 0.6]), jnp.asarray([0.3, -0.2, 0.5]))
    there, back = (jax.jit(jax.grad(partial(flight, way, 50), (0, 1, 2)))(*inputs) for way in (False, True))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9), there, back)


def test_the_way_back_keeps_nothing_and_loses_little():
    """Its memory does not depend on the steps; its round-off walks: 100,000 steps cost less than five digits."""
    sizes, gradients = [], []
    for steps in (1000, 100_000):
        run = jax.grad(
            lambda *inputs, n=steps: swing(lgjax.integrators.integrate_reversible, n, None, HALF, *inputs)[0], (0, 1, 2)
        )
        compiled = jax.jit(run).lower(START, jnp.asarray(2.0), jnp.asarray(1.1)).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
        gradients.append(compiled(START, jnp.asarray(2.0), jnp.asarray(1.1)))
    assert sizes[0] == sizes[1]
    checkpointed = partial(lgjax.integrate, remat=True)
    exact = jax.jit(jax.grad(lambda *i: swing(checkpointed, 100_000, None, HALF, *i)[0], (0, 1, 2)))(
        START, jnp.asarray(2.0), jnp.asarray(1.1)
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10), gradients[1], exact)


def test_bad_input_is_refused():
    run = lambda method, save_every=None: lgjax.integrators.integrate_reversible(
        SPACE, pendulums(1.0), START, 0.0, 1.0, 10, method, save_every
    )
    with pytest.raises(ValueError, match=r"goes back by symmetric methods, MuntheKaas\(.*\) is not one"):
        run(lgjax.MuntheKaas(lgjax.RK4))
    with pytest.raises(ValueError, match=r"symmetric methods, SymplecticLie\(theta=0.0\) is not one"):
        run(lgjax.SymplecticLie(0))
    with pytest.raises(ValueError, match="save_every must divide steps, got save_every=3 and steps=10"):
        run(HALF, 3)
