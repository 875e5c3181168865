"""Public functions called with arguments that do not fit: a right result, or one sentence that names the argument.

`run(seed, seconds)` goes through all calls of `door_calls.py` in a random order and through every way of `mutations`
of each argument. Calls are traced, not compiled: what the library refuses, it refuses before anything runs, and values
outside the trace are known in it, as they are in a plain call.

A failure is: an error that is not a TypeError or ValueError that the library raised itself in one sentence with the
name of the argument; a result for what cannot be meant (wrong lengths, text, None); and a result of another shape or
dtype than that of the argument as it should have been.
"""

import collections
import dis
import inspect
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import systems
from lgjax.view.scene import Scene
from soak import Result
from soak.door_adapters import EAGER, others
from soak.door_calls import doors
from soak.door_drivers import drivers

SECONDS = 45.0  # of one part
# Arrays of any length are meant: fields of other sizes, regressors of other columns, vectors of any space R^n.
MEANT = {
    (name, what)
    for name in (
        "HeightField", "identification.base_parameters",
        *(f"vector.{x}" for x in ("inverse", "exp", "log", "hat", "vee", "cay", "cayinv", "normalize")),
    )
    for what in ("too short", "too long", "length one", "nothing in it")
} | {  # copies may share a part: leaves without the axis of the copies broadcast
    (f"power().{name}", f"leaf {i}: an axis less") for name in ("move", "distance") for i in (0, 1)
} | {  # the error is that of the user's function
    (f"shapes.{name}", what)
    for name in ("implicit", "support")
    for what in ("one too few", *(f"leaf 0: {x}" for x in ("an axis more", "an empty batch", "None", "a dict")))
}  # fmt: skip
# The same of one argument. Errors of states are those of a system's own step, errors of arguments of a simulation its.
MEANT_ARGUMENTS = {
    *(
        (f"optimize_controls, {method}", "state", what)
        for method in ("shooting", "iLQR") for what in ("lists", "too long", "nothing in it")
    ),
    *(
        (name, "state", what)
        for name in (
            *(f"optimize_controls(...), {method}" for method in ("shooting", "iLQR", "FDDP", "segments")),
            *(
                f"control.PredictiveController.{part}, {method}"
                for part in ("init", "step", "closed_loop") for method in ("iLQR", "FDDP")
            ),
        )
        for what in ("lists", "too long", "nothing in it")
    ),
    *(
        ("monte_carlo", "arguments", what)
        for what in ("one too few", *(f"leaf 0: {x}" for x in (
            "complex numbers", "truth values", "an axis more", "an empty batch", "None", "a dict",
        )))
    ),
    *(  # a model of other lengths, whose loop is open
        (f"rollout(loops={more})", "model", f"leaf {i}: {what}")
        for more in ("", ", ...") for i in (0, 17) for what in ("a weakly typed array", "integers")
    ),
    *(  # fewer of the joints
        (name, argument, what)
        for name, argument in (
            ("constrained_hybrid_dynamics", "prescribed"), ("loops.constrained_hybrid_dynamics", "prescribed"),
            ("constrained_hybrid_dynamics(...)", "prescribed"), ("constrained_inverse_dynamics(...)", "actuated"),
        )
        for what in ("too short", "nothing in it")
    ),
    *(  # copies of one column
        ("ensemble(...)", "spread", f"leaf 3: {what}") for what in ("too short", "length one")
    ),
    *(  # arrays that have no entries, since the model has no free bodies
        ("plot.rollout_figure(result)", "q", f"leaf {i}: {what}")
        for i in (0, 1, 3) for what in ("complex numbers", "truth values")
    ),
    ("plot.rollout_figure(result)", "energy", "another first axis"),  # what then does not fit is `q`
    ("forces.limits", "joints", "a dict"),  # no joints: what then does not fit is `lower`
    ("build", "bodies", "a dict"),  # no bodies, and the error says so
    *(  # as many derivatives of tau as are wanted, and then `vdot` has too few
        (f"{module}hybrid_dynamics_time_derivatives", "tau", "another first axis")
        for module in ("", "time_derivatives.")
    ),
    ("view.show", "trajectory", "None"),  # the model at rest: what then does not fit is `highlight`
    ("view.html", "path", "empty text"),  # a folder, where the system writes no file
    *(("adapters.flat_field()", *change) for change in (  # a field without laws reads neither time nor `args`
        ("t", "complex"), ("t", "text"), ("t", "an object"), ("args", "text"), ("args", "an object"),
    )),
    *(("adapters.openscvx_dynamics()", name, "too long") for name in ("x", "u")),  # they hold other variables, too
    ("systems.five_bar", "actuated", "nothing in it"),  # without motors
    ("systems.slider_crank", "inertias", "an axis less"),  # one row for all bodies
    *(  # it reads the translations alone
        ("systems.slider_position", "q", f"leaf {i}: {what}") for i in (0, 2) for what in (
            "complex numbers", "truth values", "too short", "too long", "length one", "nothing in it", "an axis less",
            "text", "an object",
        )
    ),
    # A force by itself does not know the model, and may not read the time.
    *(("a force", *change) for change in (("t", "complex"), ("t", "text"), ("t", "an object"), ("v", "too long"))),
    *(("reversible_steps", "arguments", what) for what in ("complex numbers", "truth values")),
    *(  # any number of quantities, of quantiles, and of samples with more of them than are named
        (name, argument, what)
        for name, arguments in {
            "monte_carlo": ("quantiles",), "plot.fan_figure": ("values", "probabilities"),
            "plot.controls_figure": ("controls", "joints", "costs"),
            # and of times, and of whatever the user's step takes
            "integrate_adaptive": ("save_at",), "reversible_steps": ("arguments", "y0"),
        }.items()
        for argument in arguments for what in ("too short", "too long", "length one", "nothing in it")
    ),
}  # fmt: skip
MADE = (Scene, systems.Problem)  # tuples that only functions of the library make
LONGEST = 400  # characters of an error
OTHER_WORDS = {  # by which errors call an argument
    "y0": "state", "path_or_text": "URDF|MJCF", "damping": "viscous", "com": "center of mass", "semi_axes": "semi-axes",
    "radius": "rounding", "thing": "cannot draw|model", "motion": "moves by|ts |q.|motion",
    "trajectory": "moves by|ts |q.|v is|motion", "model": "cannot draw",
    "q": "moves by|the motion has", "folder": "holds no run", "checkpoint": "cannot be read",
    "b_hat": "embedded", "actions": "number of controls", "state": "the body starts", "pose1": "the body starts",
}  # fmt: skip
# Functions that read nothing of a model but its tree and dtype.
TREE_ALONE = (
    *("neutral", "configuration", "conventions.", "forces.", "identification.", "specialize", "Contacts"),
    *("adapters.flat_state", "adapters.from_flat_state"),
)
SAME, FITS, REFUSED = "the same result", "any result or an error", "an error"


class Mutation(NamedTuple):
    """What was done, the value, and what may come of it."""

    what: str
    value: Any
    expected: str


class Outcome(NamedTuple):
    name: str
    argument: str
    what: str
    said: str


# ---- mutations
def of_array(x: Any) -> Iterator[Mutation]:
    """An array, of JAX or NumPy."""
    y = np.asarray(x)
    floating = np.issubdtype(y.dtype, np.floating)
    yield Mutation("a NumPy array", y, SAME)
    yield Mutation("a weakly typed array", weak(y) if floating else x, FITS)
    yield Mutation("single precision", jnp.asarray(y, jnp.float32), FITS)
    yield Mutation("lists", y.tolist(), FITS)
    if floating:
        yield Mutation("integers", np.round(y).astype(np.int64), FITS)
    yield Mutation("complex numbers", jnp.asarray(y + 1j, complex), REFUSED)
    yield Mutation("truth values", jnp.ones(y.shape, bool), REFUSED)
    if y.ndim and y.shape[-1]:
        yield Mutation("too short", jnp.asarray(y[..., :-1]), REFUSED)
        yield Mutation("too long", jnp.concatenate([jnp.asarray(y), jnp.asarray(y[..., :1])], -1), REFUSED)
        yield Mutation("length one", jnp.asarray(y[..., :1]), REFUSED if y.shape[-1] != 1 else FITS)
        yield Mutation("nothing in it", jnp.asarray(y[..., :0]), REFUSED)
        yield Mutation("an axis less", jnp.asarray(y[..., 0]), REFUSED if y.ndim > 1 else FITS)
    if y.ndim > 1:
        yield Mutation("another first axis", jnp.asarray(np.concatenate([y, y])), FITS)
    yield Mutation("an axis more", jnp.stack([jnp.asarray(y)] * 5), FITS)
    yield Mutation("an empty batch", jnp.zeros((0, *y.shape), y.dtype), FITS)
    yield Mutation("a number", 0.5, FITS)
    yield from of_anything(x)


def weak(y: np.ndarray) -> jax.Array:
    """The array with a weak type."""
    return jax.lax.full_like(y, 0.0, jnp.float64).astype(float) if not y.shape else jnp.full(y.shape, 0.3)


def of_number(x: float) -> Iterator[Mutation]:
    yield Mutation("a NumPy scalar", np.float64(x), SAME)
    yield Mutation("a single NumPy scalar", np.float32(x), FITS)
    yield Mutation("a JAX scalar", jnp.asarray(x), FITS)
    yield Mutation("an integer", 1, FITS)
    yield Mutation("a list", [x], FITS)
    yield Mutation("two numbers", jnp.asarray([x, x]), FITS)
    yield Mutation("no numbers", jnp.zeros(0), FITS)
    yield Mutation("complex", 1j, REFUSED)
    yield Mutation("True", True, FITS)
    yield Mutation("NaN", float("nan"), FITS)
    yield from of_anything(x)


def of_integer(x: int) -> Iterator[Mutation]:
    yield Mutation("a NumPy integer", np.int32(x), SAME)
    yield Mutation("a JAX integer", jnp.asarray(x), FITS)
    yield Mutation("a fraction", x + 0.5, FITS)
    yield Mutation("a float", float(x), FITS)
    yield Mutation("a list", [x], FITS)
    yield Mutation("negative", -3, FITS)
    yield Mutation("zero", 0, FITS)
    yield Mutation("True", True, FITS)
    yield Mutation("an array", jnp.asarray([x, x]), FITS)
    yield from of_anything(x)


def of_text(x: str) -> Iterator[Mutation]:
    yield Mutation("another text", x + "?", FITS)
    yield Mutation("empty text", "", FITS)
    yield Mutation("bytes", x.encode(), REFUSED)
    yield Mutation("a number", 3, FITS)
    yield from of_anything(x)


def of_anything(x: Any) -> Iterator[Mutation]:
    if not isinstance(x, str):
        yield Mutation("text", "text", REFUSED)
    yield Mutation("None", None, FITS)
    yield Mutation("an object", object(), REFUSED)
    yield Mutation("a dict", {}, FITS)


def of_record(x: Any) -> Iterator[Mutation]:
    """A pytree: each leaf by itself, and another thing altogether."""
    yield Mutation("an array instead", jnp.zeros(3), REFUSED)
    yield Mutation("a number instead", 1.5, REFUSED)
    if isinstance(x, tuple):
        yield Mutation("a plain tuple", tuple(x), FITS)
        yield Mutation("one too few", tuple(x)[:-1], FITS)
    yield from of_anything(x)
    loops = isinstance(x, tuple) and any(isinstance(i, lgjax.Loop) for i in x)
    if not isinstance(x, tuple | lgjax.Model) or loops or isinstance(x, MADE):
        return  # made by functions that check, which are doors themselves
    leaves, treedef = jax.tree.flatten(x)
    arrays = [i for i, leaf in enumerate(leaves) if is_floating(leaf)]
    for i in arrays[:1] + arrays[-1:] if isinstance(x, lgjax.Model) else arrays[:4] + arrays[4:][-1:]:
        for mutation in of_array(leaves[i]):
            changed = [*leaves[:i], mutation.value, *leaves[i + 1 :]]
            try:
                value = treedef.unflatten(changed)
            except (TypeError, ValueError):
                continue
            yield Mutation(
                f"leaf {i}: {mutation.what}", value, FITS if mutation.expected == SAME else mutation.expected
            )


def is_floating(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray) and jnp.issubdtype(x.dtype, jnp.floating)


def mutations(x: Any) -> Iterator[Mutation]:
    if isinstance(x, bool):
        yield Mutation("None", None, FITS)
        yield Mutation("a NumPy truth value", np.bool_(x), SAME)
        yield Mutation("a number", 1, FITS)
        yield Mutation("no truth value", "no", REFUSED)
        yield Mutation("several", jnp.asarray([x, x]), REFUSED)
        yield Mutation("an object", object(), REFUSED)
    elif isinstance(x, jax.Array | np.ndarray) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        yield from of_array(x)
    elif isinstance(x, float):
        yield from of_number(x)
    elif isinstance(x, int):
        yield from of_integer(x)
    elif isinstance(x, str):
        yield from of_text(x)
    elif isinstance(x, tuple | list) and x and all(isinstance(i, int | float) for i in x):
        yield from of_array(np.asarray(x, float if any(isinstance(i, float) for i in x) else int))
        yield Mutation("NaN in it", (float("nan"), *x[1:]), FITS)
    elif any(map(is_floating, jax.tree.leaves(x))):
        yield from of_record(x)
    else:
        yield from of_anything(x)


# ---- judgment
def shapes(function: Callable, args: tuple, kwargs: dict, eager: bool = False) -> list[tuple]:
    """(shape, dtype) of all arrays that come back; traced, unless the function cannot be."""

    def call() -> list:
        return [x for x in jax.tree.leaves(function(*args, **kwargs)) if hasattr(x, "dtype")]

    return [(x.shape, str(x.dtype)) for x in (call() if eager else jax.eval_shape(call))]


def own_sentence(error: Exception, argument: str, value: Any) -> str:
    """Empty for an error of the library that names the argument in one sentence, otherwise what is wrong with it."""
    place, text = error.__traceback__, str(error)
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    assert place is not None
    code = place.tb_frame.f_code
    if not isinstance(error, TypeError | ValueError) or isinstance(error, jax.errors.JAXTypeError):
        return f"{type(error).__name__}: {text[:150]}"
    if "/lgjax/" not in code.co_filename or code.co_code[place.tb_lasti] != dis.opmap["RAISE_VARARGS"]:
        return f"foreign {type(error).__name__} at {'/'.join(code.co_filename.split('/')[-2:])}: {text[:150]}"
    if "\n" in text or len(text) > LONGEST:
        return f"long: {text[:150]}"
    words = {
        argument,
        argument.rstrip("s"),
        argument.replace("_", " "),
        *OTHER_WORDS.get(argument, argument).split("|"),
    }
    words |= {repr(value)[:40]}
    return "" if any(word in text for word in words) else f"nameless: {text[:200]}"


def bound(function: Callable, args: tuple, kwargs: dict) -> tuple[list[str], dict[str, Any]] | None:
    """Names of the arguments with their values; how many are positional."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    names = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return (names + [""] * len(args))[: len(args)], kwargs


def attempts(name: str, function: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, Mutation, Callable]]:
    """(argument, mutation, the call)."""
    named = bound(function, args, kwargs)
    positional = named[0] if named else [f"argument {i}" for i in range(len(args))]
    eager = name.startswith(EAGER)
    for i, argument in enumerate(positional):
        for mutation in mutations(args[i]):
            if argument == "model" and name.startswith(TREE_ALONE) and mutation.what.startswith("leaf"):
                continue
            changed = (*args[:i], mutation.value, *args[i + 1 :])
            yield argument, mutation, lambda changed=changed: shapes(function, changed, kwargs, eager)
    for argument in kwargs:
        for mutation in mutations(kwargs[argument]):
            changed = kwargs | {argument: mutation.value}
            yield argument, mutation, lambda changed=changed: shapes(function, args, changed, eager)


def judge(name: str, argument: str, mutation: Mutation, call: Callable, right: list[tuple]) -> tuple[str, str]:
    """("refused" | "accepted" | "failure", what was said)."""
    try:
        found = call()
    except RecursionError as error:
        return "failure", f"RecursionError: {error}"
    except Exception as error:
        wrong = own_sentence(error, argument, mutation.value)
        if wrong:
            return "failure", wrong
        return ("failure", f"refused: {error}") if mutation.expected == SAME else ("refused", str(error))
    if mutation.expected == REFUSED:
        return "failure", f"accepted, giving {found[:3]}"
    if mutation.expected == SAME and found != right:
        return "failure", f"gives {found[:3]} instead of {right[:3]}"
    return "accepted", f"gives {'the same' if found == right else found[:3]}"


def meant(name: str, argument: str, what: str) -> bool:
    """Whether what looks like a failure is none."""
    return (name, what) in MEANT or (name, argument, what) in MEANT_ARGUMENTS


def outcomes(seed: int, seconds: float) -> Iterator[tuple[str, Outcome]]:
    """Every attempt and what became of it, until the time is over or all calls have been made."""
    end = time.monotonic() + seconds
    calls = list((doors() | drivers() | others()).items())
    random.Random(seed).shuffle(calls)
    with jax.numpy_dtype_promotion("standard"):  # the strict one raises errors of its own
        for name, (function, args, kwargs) in calls:
            right = shapes(function, args, kwargs, name.startswith(EAGER))
            for argument, mutation, call in attempts(name, function, args, kwargs):
                if time.monotonic() > end:
                    return
                kind, said = judge(name, argument, mutation, call, right)
                if kind == "failure" and meant(name, argument, mutation.what):
                    kind = "accepted"
                yield kind, Outcome(name, argument, mutation.what, said)


def run(seed: int, seconds: float) -> Iterator[Outcome]:
    """Failures, until the time is over or all calls have been made."""
    return (outcome for kind, outcome in outcomes(seed, seconds) if kind == "failure")


def part(seed: int) -> Result:
    """A few minutes of it."""
    counts: collections.Counter[str] = collections.Counter()
    failures = []
    for kind, outcome in outcomes(seed, SECONDS):
        counts[kind] += 1
        if kind == "failure":
            failures.append(" | ".join(outcome))
    return Result(counts, failures)
