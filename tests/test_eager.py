"""A second call outside jit, with other values of the same structure, traces and compiles nothing."""

from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from benchmarks.eager_calls import calls
from lgjax.execution.compiled import compiled

CALLS = calls("float64")
ROOMS = ("lgjax.dynamics", "lgjax.maximal", "lgjax.collisions", "lgjax.shapes")
NAMESPACES = ("centroidal", "forces", "loops", "time_derivatives", "maximal", "collisions", "shapes")
DRIVERS = {"rollout"}
# They return functions, which compute nothing before they are called.
NOT_PURE_ARRAYS = {"time_derivatives.motion_series", "maximal.unconstrained_problem"}
# Makers of parts of robots, which are built once: a second call of theirs is not free of programs.
NOT_PURE_ARRAYS |= {f"forces.{name}" for name in ("fluid_boxes", "fluid_ellipsoids", "free_armature", "inertia_box")}
NOT_PURE_ARRAYS |= {f"forces.{name}" for name in ("gravity_compensation", "tendon_friction", "tendon_limits")}
NOT_PURE_ARRAYS |= {"forces.tendon_spring", "loops.couple_joints", "loops.couple_lengths"}


class Programs:
    """How often JAX has traced and compiled."""

    def __init__(self):
        self.events: list[str] = []
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration: float, **_) -> None:
        if event.startswith("/jax/core/compile/"):
            self.events.append(event.rsplit("/", 1)[1])

    def of(self, function, *args) -> list[str]:
        start = len(self.events)
        jax.block_until_ready(function(*args))
        return self.events[start:]


@pytest.fixture(scope="module")
def programs():
    return Programs()


def public_functions() -> set[str]:
    home = lambda x: getattr(x, "__module__", None) or ""
    found = {name: getattr(lgjax, name) for name in lgjax.__all__}
    found = {name: x for name, x in found.items() if home(x).startswith(ROOMS) or name in DRIVERS}
    for space in NAMESPACES:
        module = getattr(lgjax, space)
        own = [name for name, x in vars(module).items() if home(x) == module.__name__ and not name.startswith("_")]
        found |= {f"{space}.{name}": getattr(module, name) for name in getattr(module, "__all__", own)}
    return {name for name, x in found.items() if isinstance(x, FunctionType)} - NOT_PURE_ARRAYS


def test_the_list_is_complete():
    assert public_functions() <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_compiles_nothing(name, programs):
    call = CALLS[name]
    first, second = (jax.block_until_ready(call.inputs(k)) for k in range(2))
    call(first)
    assert programs.of(call, second) == []


def test_the_count_counts(programs):
    assert {"jaxpr_trace_duration", "backend_compile_duration"} <= set(programs.of(lambda: jax.jit(lambda: 1.0)()))


# ---- what belongs to the structure
MODEL = lgjax.models.chain(2)
Q, V = lgjax.neutral(MODEL), jnp.ones(2)


def end(controller):
    return lgjax.rollout(MODEL, Q, V, controller, 1e-3, 3, save_every=None).v[0]


def test_a_function_written_anew_is_the_same_function(programs):
    make = lambda gain: lambda t, q, v: gain * v
    first = end(make(2.0))
    assert programs.of(lambda: end(make(2.0))) == []
    assert not np.array_equal(first, end(make(3.0)))


def test_the_numbers_that_a_function_holds_may_change(programs):
    """In closures, defaults and partial calls, and in records of users, as arrays and as Python floats."""

    @dataclass(frozen=True)
    class Gains:
        p: float
        d: jax.Array

    def held(gains):
        return lambda t, q, v: -gains.p * q.joints - gains.d * v

    makers = {
        "closure": lambda k: lambda t, q, v: -k * v,
        "array": lambda k: (lambda gain: lambda t, q, v: -gain * v)(jnp.full(2, k)),
        "NumPy": lambda k: (lambda gain: lambda t, q, v: -gain * v)(np.full(2, k)),
        "default": lambda k: lambda t, q, v, gain=k: -gain * v,
        "Partial": lambda k: jax.tree_util.Partial(brake, k),
        "partial": lambda k: partial(brake, k),
        "record": lambda k: held(Gains(k, jnp.full(2, k))),
        "dictionary": lambda k: boxed({"gain": k}),
        "nested": lambda k: nested({"layers": [{"w": jnp.full(2, k)}, (k,)]}),
        "a function within": lambda k: (lambda f: lambda t, q, v: f(v) + f(2 * v))(lambda v: -k * v),
    }
    expected = end(lambda t, q, v: -2.0 * v)
    for name, make in makers.items():
        end(make(1.0))
        assert programs.of(lambda make=make: end(make(2.0))) == [], name
        if name not in ("record", "a function within"):
            np.testing.assert_allclose(end(make(2.0)), expected, rtol=1e-14, err_msg=name)
    assert "backend_compile_duration" in programs.of(lambda: end(lambda t, q, v: -2.5 * v))


def brake(gain, t, q, v):
    return -gain * v


def boxed(box):
    return lambda t, q, v: -box["gain"] * v


def nested(parts):
    """Of a copy too, JAX makes the same leaves in the same order."""
    half = lambda: sum(x / 2 for x in jax.tree.leaves(jax.tree.map(jnp.asarray, parts)))
    return lambda t, q, v: -half() * v if sorted(parts) == ["layers"] else v


def test_a_container_that_changes_is_never_stale_and_may_be_written_to(programs):
    box, seen = {"gain": 1.0}, []

    def writes(t, q, v):
        seen.append(1)
        return -box.setdefault("gain", 3.0) * v

    other = boxed({"gain": 1.0})
    for function in (boxed(box), writes):
        found = []
        for gain in (1.0, 2.0):
            box["gain"] = gain
            found.append(end(function))
            np.testing.assert_allclose(found[-1], end(jax.tree_util.Partial(brake, gain)), rtol=1e-14)
            np.testing.assert_array_equal(end(other), end(boxed({"gain": 1.0})))
    assert len(seen) >= 2
    steep = jax.jit(jax.grad(lambda gain: end(boxed({"gain": gain})).sum()))
    np.testing.assert_allclose(jax.grad(lambda gain: end(boxed({"gain": gain})).sum())(1.0), steep(1.0), rtol=1e-12)
    assert programs.of(lambda: end(boxed({"gain": 1.0, "more": 2.0}))) != []  # another key
    assert programs.of(lambda: end(boxed({"gain": 4.0, "more": 2.0}))) == []


def test_a_function_that_tests_its_numbers_compiles_for_each_of_them(programs):
    def make(gain):
        def push(t, q, v):
            return -gain * v if gain > 1 else gain * np.sqrt(gain) * v

        return push

    end(make(2.0))
    assert "backend_compile_duration" in programs.of(lambda: end(make(3.0)))
    np.testing.assert_array_equal(end(make(0.25)), end(lambda t, q, v: 0.125 * v))
    assert programs.of(lambda: end(make(3.0))) == []


def test_derivatives_by_what_a_function_holds_compile_once(programs):
    speed = jax.grad(lambda gain: jnp.sum(lgjax.rollout(MODEL, Q, V + 1, lambda t, q, v: -gain * v, 1e-3, 3).v ** 2))
    speed(0.3)
    assert programs.of(speed, 0.7) == []
    np.testing.assert_allclose(speed(0.7), jax.jit(speed)(0.7), rtol=1e-9)


def test_functions_that_share_a_variable_or_read_themselves_are_left_as_they_are():
    count = 0

    def counting(gain):
        def push(t, q, v):
            nonlocal count
            count += 1
            return -gain * v

        return push

    def endless(gain):
        def push(t, q, v, depth=2):
            return push(t, q, v, depth - 1) if depth else -gain * v

        return push

    for make in (counting, endless):
        for gain in (1.0, 2.0):
            expected = end(jax.tree_util.Partial(brake, gain))
            np.testing.assert_allclose(end(make(gain)), expected, rtol=1e-14)
    assert count > 0


def test_what_a_function_reads_is_never_stale():
    global GAIN
    gain, box, array = 1.0, {"gain": 1.0}, np.ones(1)

    def closed(t, q, v):
        return gain * v

    def boxed(t, q, v):
        return box["gain"] * v

    def stored(t, q, v):
        return array * v

    def named(t, q, v):
        return GAIN * v

    settings = ModuleType("settings")
    settings.gain = 1.0  # type: ignore[attr-defined]

    class Settings:
        gain = 1.0

    def of_a_module(t, q, v):
        return settings.gain * v

    def of_a_class(t, q, v):
        return Settings.gain * v

    GAIN = 1.0
    functions = (closed, boxed, stored, named, of_a_module, of_a_class)
    before = list(map(end, functions))
    gain, box["gain"], GAIN = 2.0, 2.0, 2.0
    array[:] = settings.gain = Settings.gain = 2.0
    after = list(map(end, functions))
    for x, y in zip(before, after, strict=True):
        np.testing.assert_array_equal(x, before[0])
        np.testing.assert_array_equal(y, end(lambda t, q, v: 2.0 * v))


def test_values_decide_only_where_they_may():
    """Integers and text are known inside; numbers are not, and a function that asks for them runs without a program."""

    @compiled
    def power(x, n, base=2.0):
        return (jnp.exp2(x) if base == 2.0 else base**x) * float(n)

    np.testing.assert_allclose([power(3.0, n) for n in (1, 2)], [8.0, 16.0])
    np.testing.assert_allclose(power(jnp.ones(2), np.array(4), 3.0), [12.0, 12.0])
    known = compiled(lambda x, n: [jnp.sum(x[:k]) for k in n])
    np.testing.assert_allclose(known(jnp.ones(5), np.array([1, 4])), [1.0, 4.0])
    np.testing.assert_allclose(known(jnp.ones(5), [2, 5]), [2.0, 5.0])


TRANSFORMED = {
    "grad": lambda v: jax.grad(lambda v: lgjax.kinetic_energy(MODEL, Q, v))(v),
    "hessian": lambda v: jax.hessian(lambda v: lgjax.kinetic_energy(MODEL, Q, v))(v),
    "jacfwd": lambda v: jax.jacfwd(lambda v: lgjax.forward_dynamics(MODEL, Q, v, v))(v),
    "vmap": lambda v: jax.vmap(lambda v: lgjax.inverse_dynamics(MODEL, Q, v, v))(jnp.stack([v, 2 * v])),
    "vmap of grad": lambda v: jax.vmap(jax.grad(lambda v: lgjax.kinetic_energy(MODEL, Q, v)))(jnp.stack([v, 2 * v])),
    "rollout": lambda v: jax.grad(lambda v: jnp.sum(lgjax.rollout(MODEL, Q, v, damped, 1e-3, 3).v ** 2))(v),
}


def damped(t, q, v):
    return -0.3 * v


@pytest.mark.parametrize("name", TRANSFORMED)
def test_what_is_transformed_outside_jit_is_compiled_once(name, programs):
    f, v = TRANSFORMED[name], jnp.linspace(0.1, 1.0, MODEL.nv)
    expected = jax.jit(f)(v)
    np.testing.assert_allclose(f(v), expected, rtol=1e-9, atol=1e-12)
    assert programs.of(f, 3 * v) == []


def test_a_function_that_reads_what_is_traced_is_differentiated():
    speed = lambda gain: jnp.sum(lgjax.rollout(MODEL, Q, V + 1, lambda t, q, v: -gain * v, 1e-3, 3).v ** 2)
    for gain in (0.3, 0.7):
        np.testing.assert_allclose(jax.grad(speed)(gain), jax.jit(jax.grad(speed))(gain), rtol=1e-9)


def test_inside_jit_the_function_is_itself():
    x = jnp.ones(MODEL.nv)
    inside = jax.make_jaxpr(lambda x: lgjax.mass_matrix(MODEL, Q) @ x)(x)
    assert not any("mass_matrix" in str(eqn.params.get("name")) for eqn in inside.eqns)


def test_errors_are_those_of_plain_calls():
    with pytest.raises(ValueError, match="no frame 'nose'"):
        lgjax.frame_pose(MODEL, Q, "nose")
    with pytest.raises(TypeError, match=r"steps must be a Python integer, known when the program is built; got 2\.5"):
        lgjax.rollout(MODEL, Q, V, None, 1e-3, 2.5)  # type: ignore[arg-type]


def test_the_number_of_programs_is_bounded():
    scale = compiled(lambda x, n: x * n)
    for n in range(300):
        scale(1.0, n)
    from lgjax.execution.compiled import STRUCTURES, _structure

    assert _structure.cache_info().currsize <= STRUCTURES < 300
