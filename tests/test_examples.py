"""Every example runs and draws its plot, at a size that takes seconds."""

import importlib.util
from pathlib import Path

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


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_draws_its_plot(example, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(example.parent))  # as when it is run as a script
    spec = importlib.util.spec_from_file_location(f"example_{example.stem}", example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    picture = tmp_path / "plot.png"
    module.main(str(picture), **SMALL.get(example.stem, {}))
    assert picture.read_bytes().startswith(b"\x89PNG")
