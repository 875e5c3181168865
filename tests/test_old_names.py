"""Old names raise an error that says where the new one is: all rows of the table of renames in the changelog.

Without an error of their own are arguments by position, `count` and `index`, which all tuples have, and moved modules.
"""

import pkgutil
import re
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

import lgjax

CHANGELOG = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")


def moved():
    """(name, new namespace) of the names that are no longer flat."""
    table = CHANGELOG.split("### Moved to namespaces")[1].split("### Renamed")[0]
    rows = re.findall(r"^\| (`.*`) \| `(.*)` \|$", table, re.M)
    return [(name, space) for names, space in rows for name in re.findall(r"`(\w+)`", names)]


@pytest.mark.parametrize(("name", "space"), moved())
def test_a_name_that_has_moved(name, space):
    assert pkgutil.resolve_name(f"{space}.{name}") is not None
    with pytest.raises(AttributeError, match=re.escape(f"{space}.{name}")):
        getattr(lgjax, name)
    assert not hasattr(lgjax, name)
    with pytest.raises(ImportError, match=f"^cannot import name '{name}' from 'lgjax'; .*{re.escape(space)}.{name}$"):
        exec(f"from lgjax import {name}", {})


MODEL = lgjax.models.chain(1)
Q, V = lgjax.neutral(MODEL), jnp.zeros(1)
MEMBERS = [
    ("maximal.RigidBody", "lgjax.maximal.Body"),
    ("maximal.JointConstraint", "lgjax.maximal.Joint"),
    ("systems.System", "lgjax.systems.Problem"),
    ("systems.ConstrainedSystem", "lgjax.systems.MaximalProblem"),
    ("systems.ClosedLoopSystem", "lgjax.systems.LoopProblem"),
    ("integrators.AdaptiveStatus", "lgjax.integrators.Status"),
    ("control.History", "lgjax.control.SearchRecord"),
]
ATTRIBUTES = [
    (Q, "frees", "free_poses"),
    (Q, "balls", "ball_rotations"),
    (MODEL, "rate", "velocity_limit"),
    (MODEL.tree, "nq", "n_free, n_joint and n_ball"),
    (MODEL.inertias, "second", "rotational"),
    (lgjax.systems.bouncing_body(), "h", "dt"),
    *(
        (result(*range(len(result._fields))), "finite", "status, with success")
        for result in (
            lgjax.Solution, lgjax.integrators.AdaptiveSolution, lgjax.maximal.Solution, lgjax.ensembles.Ensemble,
            lgjax.collisions.BounceSolution, lgjax.collisions.LagrangianSolution,
        )
    ),
    (lgjax.rollout(MODEL, Q, V, None, dt=0.1, steps=1), "finite", "status, with success"),
]  # fmt: skip
PLAIN = "with lgjax.execution.plain\\(\\): runs without kernels"
METHOD = "an option of the method, as in method=Shooting\\(...\\)"
ARGUMENTS = [
    (lgjax.configuration, "balls", "ball_rotations"),
    (lgjax.Joint, "rate", "velocity_limit"),
    (lgjax.collisions.bounce, "h", "dt"),
    (lgjax.collisions.lagrangian_bounce, "h", "dt"),
    (lgjax.monte_carlo, "count", "batch"),
    *((lgjax.optimize_controls, name, METHOD) for name in ("tolerance", "optimizer", "hold", "segments")),
]


@pytest.mark.parametrize(("old", "new"), MEMBERS)
def test_a_member_that_was_renamed(old, new):
    assert pkgutil.resolve_name(new) is not None
    space, name = old.split(".")
    with pytest.raises(AttributeError, match=f"^module 'lgjax.{space}' has no attribute '{name}'; it is now {new}$"):
        getattr(getattr(lgjax, space), name)
    with pytest.raises(ImportError, match=f"^cannot import name '{name}' from 'lgjax.{space}'; it is now {new}$"):
        exec(f"from lgjax.{space} import {name}", {})


def test_the_import_of_a_name_that_never_was_fails_as_ever():
    for module in ("lgjax", "lgjax.maximal", "lgjax.control"):
        with pytest.raises(ImportError, match=f"^cannot import name 'nonsense' from '{module}' \\("):
            exec(f"from {module} import nonsense", {})


@pytest.mark.parametrize(("thing", "old", "new"), ATTRIBUTES, ids=lambda x: x if isinstance(x, str) else "")
def test_an_attribute_that_was_renamed(thing, old, new):
    for name in re.findall(r"\w+_\w+|^dt$|\brotational\b|\bstatus\b", new):
        assert hasattr(thing, name)
    with pytest.raises(AttributeError, match=f"has no attribute '{old}'; it is now {new}$"):
        getattr(thing, old)
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        thing.nonsense  # noqa: B018
    assert old not in dir(thing)


@pytest.mark.parametrize(("function", "old", "new"), ARGUMENTS, ids=lambda x: x if isinstance(x, str) else "")
def test_an_argument_that_was_renamed(function, old, new):
    with pytest.raises(TypeError, match=f"^{function.__name__}\\(\\) has no argument '{old}'; it is now {new}$"):
        function(**{old: None})


def test_kernels_are_turned_off_by_a_context():
    for call in (
        lambda **old: lgjax.forward_dynamics(MODEL, Q, V, V, **old),
        lambda **old: lgjax.rollout(MODEL, Q, V, None, dt=0.1, steps=1, **old),
        lambda **old: lgjax.time_derivatives.closed_form(MODEL, Q, V, V, **old),
    ):
        with pytest.raises(TypeError, match=f"has no argument 'execution'; {PLAIN}$"):
            call(execution="plain")


@pytest.mark.parametrize("name", ["ilqr", "shooting", "multiple_shooting"])
def test_methods_of_a_search_are_values(name):
    with pytest.raises(TypeError, match=r"^method must be Shooting\(...\), .* got '" + name):
        lgjax.optimize_controls(SimpleNamespace(), None, None, steps=1, method=name)
