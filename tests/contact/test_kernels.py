"""Steps with contacts as one kernel: on both machines, with what is left to XLA, and on the way back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.execution.kernels import native
from tests.dynamics import trees
from tests.execution.test_kernel import close, launched

MODEL = lgjax.models.quadruped()
FEET = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]


def on_the_ground(size):
    """The contacts of the feet, and states in which one to four of them are in the ground."""
    contacts = lgjax.Contacts(MODEL, lgjax.shapes.Plane((0.0, 0.0, 1.0)), FEET, friction=0.6)
    q, v, _, tau, _ = trees.random_states(MODEL, size)
    gaps = np.sort(jax.vmap(lambda q: lgjax.contact.contact_points(MODEL, contacts, q).gap)(q), 1)
    down = gaps[np.arange(size), np.arange(size) % 4] + 1e-6
    poses = q.free_poses
    q = q._replace(free_poses=poses._replace(translation=poses.translation.at[:, 0, 2].add(-down)))
    return contacts, (q, 0.3 * v, tau)


def step(contacts):
    def one(q, v, tau):
        found = lgjax.contact.contact_step(MODEL, contacts, q, v, tau, 2e-3)
        return found.v, found.impulse, found.q, found.sweeps, found.status

    return one


def test_both_machines_and_xla_take_the_same_step(monkeypatch):
    contacts, states = on_the_ground(9)
    native_step = jax.jit(jax.vmap(step(contacts)))(*states)
    assert np.all(native_step[-1] == 0)
    assert np.ptp(np.count_nonzero(native_step[1][..., 0], 1)) >= 2  # some have more feet on the ground than others
    close(launched(step(contacts), *states), native_step, 1e-12)
    monkeypatch.setattr(native, "usable", lambda: False)
    jax.clear_caches()
    close(jax.jit(jax.vmap(lambda *x: step(contacts)(*x)))(*states)[:3], native_step[:3], 1e-9)
    jax.clear_caches()


def test_code_of_level_0_has_the_same_bits(monkeypatch):
    contacts, states = on_the_ground(9)
    names, real, found = [], native.written, {}
    monkeypatch.setattr(native, "written", lambda *args: names.append(real(*args)) or names[-1])
    for level in ("0", "1"):
        monkeypatch.setenv("LGJAX_OPTIMIZATION_LEVEL", level)
        native.forget()
        found[level] = jax.jit(jax.vmap(lambda *x: step(contacts)(*x)))(*states)
    assert len(set(names)) == 2
    jax.tree.map(np.testing.assert_array_equal, found["0"], found["1"])
    monkeypatch.setenv("LGJAX_OPTIMIZATION_LEVEL", "3")
    with pytest.raises(ValueError, match="LGJAX_OPTIMIZATION_LEVEL is '3'; it can be 0 or 1"):
        native.level()
    native.usable.cache_clear()
    with pytest.raises(ValueError, match="LGJAX_OPTIMIZATION_LEVEL is '3'"):  # no warning and slow programs
        native.usable()


@pytest.mark.parametrize("method", [lgjax.contact.TimeStepping(), lgjax.contact.EventDriven(1e-6, 1e-6)])
def test_a_rollout_is_one_function_per_step_and_does_not_depend_on_its_batch(method, monkeypatch):
    calls, real = [], native.as_native
    monkeypatch.setattr(native, "as_native", lambda *args: calls.append(real(*args)) or calls[-1])
    ball = lgjax.load_mjcf(
        '<mujoco><worldbody><body pos="0 0 1"><freejoint/><geom type="sphere" size="0.1" mass="1"/></body></worldbody>'
        "</mujoco>"
    )
    contacts = lgjax.Contacts(ball, lgjax.shapes.Plane((0.0, 0.0, 1.0)), friction=0.3, restitution=0.5)
    v = jnp.asarray(np.random.default_rng(0).normal(size=(19, 6)))
    law = lambda t, q, v: -0.1 * v * jnp.arctan2(1.0 + v[3] ** 2, 1.0)
    run = lambda v: lgjax.rollout(
        ball, lgjax.neutral(ball), v, law, 0.02, 40, contacts=contacts, method=method, save_every=None
    ).v[-1]
    whole = jax.jit(jax.vmap(run))(v)
    assert None not in calls
    assert np.abs(whole[:, 2:5]).max() < 10
    for part in (slice(0, 1), slice(3, 8)):
        np.testing.assert_array_equal(jax.jit(jax.vmap(lambda v: run(v)))(v[part]), whole[part])
    np.testing.assert_array_equal(jax.jit(lambda v: run(v))(v[4]), whole[4])


def test_a_way_back_contains_no_solver(monkeypatch):
    """The step hands its impulses to its derivative."""
    loops, real = [], native.kernel_text

    def text(program, *args):
        loops.append(sum(name == "while" for name, _, _ in program.graph.ops))
        return real(program, *args)

    monkeypatch.setattr(native, "kernel_text", text)
    native.forget()
    contacts, states = on_the_ground(3)
    height = lambda q, v, tau: step(contacts)(q, v, tau)[0] @ jnp.arange(18.0) ** 2
    jax.jit(jax.vmap(jax.grad(height, 1))).lower(*states)
    assert [n for n in loops if n] == [2]  # the solver, and that of displacements out of the ground, once
