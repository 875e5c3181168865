"""Every public function of a mechanism names an argument that does not fit, in one sentence; right ones pass."""

import inspect
import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import Configuration
from lgjax.dynamics.forward import forward_dynamics
from lgjax.execution import plain
from lgjax.robots.robot import Robot
from tests.dynamics import trees
from tests.test_surface import names as public_names

VECTORS = ("v", "vdot", "tau", "f", "dv")
CONFIGURATIONS = ("q", "q0", "q1")


@cache
def robot() -> lgjax.Model:
    """A floating base with an arm: nv = 8."""
    chain = (("base", None, "free"), ("arm", "base", "revolute"), ("hand", "arm", "prismatic"))
    return lgjax.build([trees.body(*body, i) for i, body in enumerate(chain, 1)])


def of_a_mechanism(function) -> bool:
    if not inspect.isfunction(function) or "model" not in inspect.signature(function).parameters:
        return False
    return function.__module__.startswith("lgjax.dynamics") or function.__module__ == "lgjax.multibody.configuration"


# All that take a model; those that make a value from parts of their own check these elsewhere.
PARTS = ("configuration", "neutral", "couple_joints")
PLACES = (
    ("", lgjax),
    ("", lgjax.centroidal),
    ("", lgjax.loops),
    ("", lgjax.time_derivatives),
)
FUNCTIONS: dict[str, Any] = {
    prefix + name: f
    for prefix, space in PLACES
    for name in public_names(space)
    if of_a_mechanism(f := getattr(space, name)) and name not in PARTS
} | {"rollout": lgjax.rollout}


@cache
def right(name: str) -> dict[str, Any]:
    """Arguments of a function by name; a parameter that is not listed here has to have a default."""
    model = robot()
    n, bodies = model.nv, model.nbodies
    x, q = jnp.linspace(0.1, 0.5, n), lgjax.neutral(model)
    values = dict.fromkeys(VECTORS, x) | dict.fromkeys(CONFIGURATIONS, q) | {"model": model, "key": jax.random.key(0)}
    values |= {"wrenches": jnp.ones((bodies, 6)), "body": "arm", "name": "arm", "prescribed": (6,), "actuated": (6, 7)}
    values |= {"loops": lgjax.Loop("point", None, "arm"), "controller": None, "dt": 0.01, "steps": 1, "order": 1}
    stacks = {"tau": jnp.stack([x] * 2), "vdot": jnp.stack([x] * 2), "wrenches": jnp.ones((2, bodies, 6))}
    special = {
        "inverse_dynamics_time_derivatives": stacks | {"v": jnp.stack([x] * 3)},
        "forward_dynamics_time_derivatives": stacks,
        "hybrid_dynamics_time_derivatives": stacks,
        "inverse_dynamics_time_derivative_partials": stacks | {"v": jnp.stack([x] * 3)},
        "forward_dynamics_time_derivative_partials": stacks,
        "motion_series": {"tau": None, "wrenches": None},
        "rollout": {"wrenches": None},
        "inverse_kinematics": {"targets": {"arm": jnp.array([0.3, 0.2, 0.1])}, "rest": q, "loops": ()},
    }
    values |= special.get(name, {})
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    return {p.name: values[p.name] for p in parameters if p.name in values or p.default is p.empty}


def has_shape(found, expected) -> str:
    return re.escape(f"has shape {found.shape}, expected {expected.shape}")


def wrong_arrays(x):
    """Arrays that are not x, by what is wrong with them."""
    yield "short", x[..., :-1], has_shape(x[..., :-1], x)
    long = jnp.concatenate([x, x[..., :1]], -1)
    yield "long", long, has_shape(long, x)
    yield "batch", jnp.stack([x] * 5), "use jax.vmap over a batch"
    yield "single precision", x.astype(jnp.float32), "is float32, the model is float64"
    yield "integers", jnp.zeros(x.shape, int), "is int64, the model is float64"
    yield "integers of NumPy", np.zeros(x.shape, int), "is int64, the model is float64"
    yield "list", x.tolist(), "of type list"
    yield "tuple", tuple(x.tolist()), "of type tuple"
    yield "number", 0.0, "of type float"
    yield "scalar of NumPy", np.float64(0.0), "of type float64"
    yield "nothing", None, "(is|not) None"


def wrong(name: str):
    """(argument, what is wrong, value, what the message says)."""
    model = robot()
    for argument, value in right(name).items():
        if argument == "model":
            batch = jax.tree.map(lambda x: jnp.stack([x] * 2), model)
            yield argument, "batch", batch, "use jax.vmap over a batch"
            yield argument, "nothing", None, "is None, expected a Model"
            yield argument, "state", lgjax.neutral(model), "of type Configuration, expected a Model"
            yield argument, "gravity", model.replace(gravity=jnp.zeros(2)), r"model.gravity has shape \(2,\)"
        elif argument in CONFIGURATIONS:
            batch = jax.tree.map(lambda x: jnp.stack([x] * 5), value)
            for what, given, said in (
                ("array", value.joints, r"array of shape \(2,\), expected a Configuration"),
                ("tuple", tuple(value), "of type tuple, expected a Configuration"),
                ("nothing", None, "is None, expected a Configuration"),
                (
                    "of another model",
                    lgjax.neutral(lgjax.models.chain(2)),
                    r"q.?\.free_poses\.rotation has shape \(0, 3, 3\)",
                ),
                ("batch", batch, "use jax.vmap over a batch"),
                ("single precision", jax.tree.map(lambda x: x.astype(jnp.float32), value), "is float32"),
                ("short", value._replace(joints=value.joints[:1]), r"joints has shape \(1,\), expected \(2,\)"),
                (
                    "base in the joints",
                    value._replace(joints=jnp.zeros(9)),
                    r"joints has shape \(9,\), expected \(2,\)",
                ),
                ("matrix", Configuration(jnp.eye(4), *value[1:]), r"free_poses is an array of shape \(4, 4\)"),  # type: ignore[arg-type]
            ):
                yield argument, what, given, said
        elif argument in (*VECTORS, "wrenches") and value is not None:
            may_be_none = inspect.signature(FUNCTIONS[name]).parameters[argument].default is None
            for what, given, said in wrong_arrays(value):
                if not (what == "nothing" and may_be_none):
                    yield argument, what, given, said
            if argument != "wrenches":
                yield argument, "of the joints alone", value[..., 6:], "joints come after the six entries"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_argument_is_named_in_one_sentence(name):
    for argument, what, value, said in wrong(name):
        with pytest.raises((TypeError, ValueError)) as caught:
            FUNCTIONS[name](**right(name) | {argument: value})
        message = str(caught.value)
        where = f"{name}, {argument}: {what}: {message}"
        assert message.startswith(argument), where
        assert "\n" not in message, where
        assert len(message) < 200, where
        assert re.search(said, message), where


def test_every_function_is_in_the_table():
    assert len(FUNCTIONS) >= 42
    assert {"forward_dynamics", "closed_form", "project_velocity", "retract", "rollout"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_arguments_pass(name):
    f, given = FUNCTIONS[name], right(name)
    arrays = {k: x for k, x in given.items() if k in (*VECTORS, *CONFIGURATIONS, "model", "wrenches")}
    rest = {k: x for k, x in given.items() if k not in arrays}
    call = lambda arrays: [x for x in jax.tree.leaves(f(**arrays, **rest)) if hasattr(x, "dtype")]
    assert {x.dtype.name for x in jax.eval_shape(call, arrays)} <= {"float64", "int32", "bool"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_robot_is_taken_for_its_model(name):
    """Shapes and dtypes are those for the model; a robot of nothing else has the same numbers."""
    given = right(name)
    f = lambda model: [x for x in jax.tree.leaves(FUNCTIONS[name](**given | {"model": model})) if hasattr(x, "dtype")]
    one, other = (jax.make_jaxpr(f)(model) for model in (given["model"], Robot(given["model"])))
    assert str(one) == str(other)


def test_arrays_of_numpy_and_weakly_typed_ones_are_taken():
    model = lgjax.models.chain(2).astype(jnp.float32)
    q, zero = lgjax.neutral(model), jnp.zeros(2, jnp.float32)
    weak = jnp.full(2, 0.0)
    assert weak.dtype == jnp.float64
    assert weak.weak_type
    for v in (np.zeros(2, np.float32), weak):
        assert plain()(lgjax.forward_dynamics)(model, q, v, zero).dtype == jnp.float32
    with pytest.raises(ValueError, match="v is float64, the model is float32"):
        lgjax.forward_dynamics(model, q, np.zeros(2), zero)


def test_a_checked_function_has_the_operations_of_an_unchecked_one():
    state = lgjax.neutral(robot()), *(right("forward_dynamics")[x] for x in ("v", "tau", "wrenches"))
    unchecked = inspect.unwrap(forward_dynamics)
    assert unchecked is not forward_dynamics
    programs = [jax.make_jaxpr(f)(robot(), *state) for f in (forward_dynamics, unchecked)]
    assert str(programs[0]) == str(programs[1])


def test_what_a_controller_returns_is_named():
    model = lgjax.models.chain(2)
    state = lgjax.neutral(model), jnp.zeros(2)
    run = lambda controller, **more: lgjax.rollout(model, *state, controller, 0.1, 1, **more)
    for controller, message in (
        (lambda t, q, v: v.astype(jnp.float32), "the result of controller is float32, the model is float64"),
        (lambda t, q, v: [0.0, 0.0], "the result of controller is of type list, expected an array of shape"),
        (3.0, r"controller is of type float, expected a function of \(t, q, v\) or None"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            run(controller)
    with pytest.raises(ValueError, match=r"dt has shape \(3,\)"):
        lgjax.rollout(model, *state, None, jnp.ones(3), 1)


@pytest.mark.parametrize("name", ["pose_derivatives", "twist_derivatives"])
def test_poses_and_twists_are_checked(name):
    f = getattr(lgjax.time_derivatives, name)
    pose, twists = lgjax.Pose(jnp.eye(3), jnp.zeros(3)), jnp.zeros((2, 6))
    right = (pose, twists) if name == "pose_derivatives" else (jnp.zeros((2, 4, 4)),)
    assert jax.eval_shape(f, *right).dtype == jnp.float64
    bad = {"twists": twists.tolist(), "pose": jnp.eye(4), "poses": [[[0.0] * 4] * 4] * 2}
    for argument, value in bad.items():
        if argument in inspect.signature(f).parameters:
            given = dict(zip(inspect.signature(f).parameters, right, strict=False)) | {argument: value}
            with pytest.raises((TypeError, ValueError), match=f"^{argument} is [^\n]*expected"):
                f(**given)
