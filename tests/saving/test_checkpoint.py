"""A long trajectory that is interrupted and resumed is, bit by bit, the one that was not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.saving import Checkpoint
from lgjax.saving import checkpoint as module

FLOOR = lgjax.shapes.Plane((0.0, 0.0, 1.0))


def swing(checkpoint, dt=1e-2, save_every=2, method=None):
    """A double pendulum; the method of two stages with one evaluation kept carries something from step to step."""
    model = lgjax.models.chain(2)
    start = lgjax.neutral(model)._replace(joints=jnp.array([0.5, 1.0]))
    damping = lambda t, q, v: -0.1 * v
    method = method or lgjax.MuntheKaas(lgjax.RK4)
    return lgjax.rollout(model, start, jnp.ones(2), damping, dt, 12, method, save_every, checkpoint=checkpoint)


def top(checkpoint, dt=1e-3, save_every=2):
    """Modified Newton, so that a factored matrix goes from part to part."""
    p = lgjax.systems.heavy_top_maximal()
    # By default modified Newton leaves 3e-6 N; another program leaves a tenth more or less.
    method = lgjax.maximal.GeneralizedAlpha(rtol=1e-13)
    return lgjax.maximal.integrate(
        p.system, p.q0, p.v0, 0.0, 12 * dt, 12, method, newton="modified", save_every=save_every, checkpoint=checkpoint
    )


def ball(checkpoint, dt=2e-2, save_every=2):
    """Friction and four impacts, which are listed."""
    body = lgjax.collisions.rigid_body(1.0, (0.4, 0.4, 0.4))
    state = lgjax.collisions.rigid_state((0.0, 0.0, 1.01), (1.0, 0.0, -6.0), (0.0, 1.0, 0.3))
    planes = (FLOOR, lgjax.shapes.Plane((0.0, 0.0, -1.0), 2.2))
    return lgjax.collisions.bounce(
        body, lgjax.shapes.sphere(1.0), planes, state, dt, 12, restitution=0.9, friction=0.2, save_every=save_every,
        checkpoint=checkpoint,
    )  # fmt: skip


RUNS = {"rollout": swing, "constrained": top, "bounce": ball}


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


class StopError(Exception):
    pass


@pytest.fixture
def stop_after(monkeypatch):
    """Ends the next run once this many parts of it are written."""

    def arrange(parts):
        def write(store, number, *arrays):
            write_part(store, number, *arrays)
            if number == parts - 1:
                monkeypatch.setattr(module._Store, "write", write_part)
                raise StopError

        monkeypatch.setattr(module._Store, "write", write)

    write_part = module._Store.write
    return arrange


@pytest.mark.parametrize("save_every", [2, None])
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_is_the_uninterrupted_one(name, save_every, tmp_path, stop_after):
    run = RUNS[name]
    whole = run(Checkpoint(tmp_path / "whole", 4), save_every=save_every)
    stop_after(2)
    with pytest.raises(StopError):
        run(Checkpoint(tmp_path / "cut", 4), save_every=save_every)
    assert len(list((tmp_path / "cut").iterdir())) == 2
    same(run(Checkpoint(tmp_path / "cut", 4, resume=True), save_every=save_every), whole)
    same(run(Checkpoint(tmp_path / "cut", 4, resume=True), save_every=save_every), whole)  # nothing is left to do
    plain = jax.jit(lambda: run(None, save_every=save_every))()
    if name == "constrained":
        # Another program rounds places to eps otherwise. A step h turns that into a force of mass * eps / (beta h²),
        # whose error decays by the spectral radius 0.9 from step to step: ten times that in all.
        force = 15.0 * float(jnp.finfo(whole.v.dtype).eps) / (0.277 * 1e-3**2) / (1 - 0.9)
        np.testing.assert_allclose(whole.multipliers, plain.multipliers, rtol=0, atol=4 * force)
        whole, plain = (x._replace(multipliers=None) for x in (whole, plain))
    for x, y in zip(jax.tree.leaves(whole), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    if name == "bounce":
        assert whole.impacts[-1] >= 3


def test_what_a_method_carries_goes_from_part_to_part(tmp_path, stop_after):
    """A commutator-free method whose last stage is the next step's first."""
    method = lgjax.CommutatorFree(lgjax.integrators.CF43)
    stop_after(1)
    with pytest.raises(StopError):
        swing(Checkpoint(tmp_path, 6), method=method)
    resumed = swing(Checkpoint(tmp_path, 6, resume=True), method=method)
    plain = jax.jit(lambda: swing(None, method=method))()
    np.testing.assert_allclose(resumed.v, plain.v, rtol=1e-13)


def test_files_and_steps_that_do_not_fit_are_named(tmp_path):
    kept = Checkpoint(tmp_path, 4)
    swing(kept)
    with pytest.raises(ValueError, match="holds a run already; resume it or choose another folder"):
        swing(kept)
    with pytest.raises(ValueError, match=r"part-00000000\.npz' belongs to another run; nothing was changed"):
        swing(Checkpoint(tmp_path, 4, resume=True), dt=2e-2)
    with pytest.raises(ValueError, match="every must be a multiple of save_every and divide steps, got every=5"):
        swing(Checkpoint(tmp_path / "other", 5))
    with pytest.raises(ValueError, match="every must be a positive integer"):
        Checkpoint(tmp_path, 0)
    with pytest.raises(TypeError, match="cannot stand inside jit, vmap or grad"):
        jax.jit(lambda dt: swing(Checkpoint(tmp_path / "traced", 4), dt=dt))(1e-2)
    assert not (tmp_path / "traced").exists()


def test_another_mass_gravity_or_gain_is_another_run(tmp_path):
    model, v = lgjax.models.chain(2), jnp.ones(2)

    def run(model, law, resume=True):
        kept = Checkpoint(tmp_path, 2, resume=resume)
        return lgjax.rollout(model, lgjax.neutral(model), v, law, 1e-2, 4, checkpoint=kept)

    of = lambda gain: lambda t, q, v: -gain * v
    first = run(model, of(jnp.ones(2)), False)
    same(run(model, of(jnp.ones(2))), first)
    heavy = model.replace(inertias=model.inertias.scaled(3.0 * jnp.ones(2)))
    light = model.replace(gravity=0 * model.gravity)
    for other, law in (
        (heavy, of(jnp.ones(2))),
        (light, of(jnp.ones(2))),
        (model, of(2 * jnp.ones(2))),
        (model, of(1.0)),
    ):
        with pytest.raises(ValueError, match="belongs to another run"):
            run(other, law)


def test_a_number_written_in_a_law_is_part_of_the_run(tmp_path):
    swing(Checkpoint(tmp_path, 4))
    model = lgjax.models.chain(2)
    start = lgjax.neutral(model)._replace(joints=jnp.array([0.5, 1.0]))
    law, method = (lambda t, q, v: -0.2 * v), lgjax.MuntheKaas(lgjax.RK4)
    with pytest.raises(ValueError, match="belongs to another run"):
        lgjax.rollout(model, start, jnp.ones(2), law, 1e-2, 12, method, 2, checkpoint=Checkpoint(tmp_path, 4, True))


@pytest.mark.parametrize("spoil", ["cut", "altered", "removed"])
def test_a_broken_part_is_named(spoil, tmp_path):
    swing(Checkpoint(tmp_path, 4))
    first = tmp_path / "part-00000000.npz"
    data = bytearray(first.read_bytes())
    if spoil == "cut":
        first.write_bytes(data[:-40])
    elif spoil == "altered":
        arrays = dict(np.load(first))
        np.savez(first, **{**arrays, "saved2": arrays["saved2"] + 1})
    else:
        first.unlink()
    with pytest.raises(ValueError, match=r"part-00000000\.npz' (cannot be read|is missing)"):
        swing(Checkpoint(tmp_path, 4, resume=True))
