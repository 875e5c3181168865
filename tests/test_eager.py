"""A second call outside jit, with other values of the same structure, traces and compiles nothing."""

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


def brake(gain, t, q, v):
    return -gain * v


def test_the_numbers_of_a_partial_call_may_change(programs):
    """What getting started advises for a controller with other numbers; a new function compiles again."""
    end(jax.tree_util.Partial(brake, 1.0))
    assert programs.of(lambda: end(jax.tree_util.Partial(brake, 2.0))) == []
    assert "backend_compile_duration" in programs.of(lambda: end(lambda t, q, v: -2.5 * v))
    expected = end(lambda t, q, v: brake(2.0, t, q, v))
    np.testing.assert_array_equal(end(jax.tree_util.Partial(brake, 2.0)), expected)


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
