"""Every example runs and draws its plot, at a size that takes seconds."""

import importlib
import importlib.util
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("[0-9]*.py"))
SMALL = {
    "01_random_quadrupeds": {"batch": 2, "steps": 10},
    "02_heavy_top": {"steps": 200, "counts": (100, 200)},
    "03_pendulums": {"sizes": (2,), "counts": (8, 16), "modes": 2},
    "04_quadrotors": {"end": 0.5, "steps": 20, "counts": (8, 16), "modes": 1},
    "05_aerial_manipulator": {"samples": 5, "order": 1},
    "06_elastic_arm": {"saved": 100, "substeps": 8},
    "07_taylor_integrator": {
        "orders": (3,),
        "tolerances": (1e-4,),
        "batch": 2,
        "repeats": 1,
        "end": 0.2,
        "catching": 1e-4,
        "model": lgjax.models.chain(1, floating_base=True),
    },
    "08_bouncing_bodies": {"steps": 500, "samples": 2},
    "09_throw": {"guesses": 2, "iterations": 2},
    "10_heavy_top_constrained": {"end": 0.01, "first": 100, "halvings": 1, "modes": 1, "drawn": 100},
    "11_high_speed_rotor": {"end": 0.01, "first": 100, "halvings": 1, "modes": 1},
    "12_slider_crank": {"end": 0.1, "first": 50, "halvings": 1, "batch": 3, "finest": 100, "modes": 1},
    "13_puma560": {"first": 20, "halvings": 1, "steps": 2000, "modes": 1},
    "14_closed_loops": {"duration": 0.1, "ways": 1, "legs": False},
    "15_satellite_tumble": {"samples": 20, "steps": 40},
    "16_aerial_reach": {"guesses": 1, "steps": 3, "iterations": 1},
    "17_cart_pole": {"guesses": 2, "iterations": 2, "methods": ("ilqr",)},
    "18_falling_cat": {"guesses": 1, "steps": 3, "iterations": 1},
    "19_payload": {"guesses": 1, "steps": 8, "iterations": 1},
    "20_quadrupeds_on_terrain": {"batch": 2, "steps": 10},
    "21_identification": {"samples": 5},
    "22_hopper": {"steps": 4, "iterations": 1, "hops": 1},
    "23_sliding_block": {"steps": 20},
    "24_policy_by_gradients": {"iterations": 2, "batch": 2, "steps": 3, "tests": 2},
    "25_predictive_ensemble": {"batch": 2, "duration": 0.08},
    "26_throw_to_rest": {"guesses": 2, "iterations": 2, "frames": 20},
    "28_inverse_kinematics": {"points": 4, "frames": 8},
    "29_walk_by_ppo": {"updates": 2, "robots": 2, "tests": 2, "steps": 10, "report": 1},
    "30_tower_and_ball": {"boxes": 2, "steps": 4, "batch": 2},
}


def loaded(example):
    spec = importlib.util.spec_from_file_location(f"example_{example.stem}", example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_draws_its_plot(example, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(example.parent))  # as when it is run as a script
    picture = tmp_path / "plot.png"
    loaded(example).main(str(picture), **SMALL.get(example.stem, {}))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_copy_of_the_loop_of_ppo_trains_another_environment(tmp_path, monkeypatch):
    """A pendulum that is paid for standing still, with dampings of its own in each of four copies."""
    shutil.copy(EXAMPLES[0].parent / "29_walk_by_ppo.py", tmp_path / "ppo.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    ppo = importlib.import_module("ppo")
    monkeypatch.delitem(sys.modules, "ppo")
    pendulum = lgjax.models.chain(1).astype(jnp.float32)
    env = lgjax.adapters.Environment(
        model=pendulum, dt=0.05, steps=20,
        start=lambda key, model: (lgjax.random_configuration(key, model), jnp.ones(model.nv, model.dtype)),
        observe=lambda model, q, v: jnp.concatenate([q.joints, v]), reward=lambda model, q, v, action: -jnp.sum(v**2),
    )  # fmt: skip
    dampings = jnp.linspace(0.1, 0.4, 4, dtype=jnp.float32)[:, None]
    params = jax.vmap(lambda damping: pendulum.replace(damping=damping))(dampings)
    with jax.numpy_dtype_promotion("standard"):  # as optax asks
        agent, course = ppo.train(env, params, updates=2, report=1)
    assert course["steps"].tolist() == [4 * ppo.HORIZON, 8 * ppo.HORIZON]
    assert np.isfinite(course["reward"]).all()
    assert ppo.output(agent.mean, jnp.zeros(2, jnp.float32)).shape == (1,)
