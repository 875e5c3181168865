"""Every use of JAX beyond its documented interface: look here first when a new JAX breaks something.

The rest of the library imports these names from here, and `tests/execution/test_jax.py` keeps it so.  Everything
below is at the same place in JAX 0.4.34 to 0.12; what is older is marked.

Literal, Jaxpr, ClosedJaxpr, jaxpr_as_fun (jax.extend.core, 0.4.30) and dce_jaxpr (0.4.30): programs are read and run
    again on scalars (`scalars/`) and on series (`path_series.py`).  Without them only `plain` is left.
Primitive (jax.extend.core, 0.4.30) and the tables of rules in jax.interpreters (0.4.30), in `register`: a
    `jax.custom_jvp` whose rule finds other batch axes than its function is wrong under a derivative of a jitted vmap
    (jax-ml/jax#16374).  Without them only `plain` is left.
update(weak_type=...) of a type (0.4.30) and to_tangent_aval (0.4.34): shapes of results and types of derivatives.
Zero, is_undefined_primal (jax.interpreters.ad, 0.4.30): tell a rule what does not move and what is linear.  Without
    them kernels have no derivatives.
module_context.lowering_parameters.for_export (0.4.34), in `is_exported`: whether a program leaves this process, which
    functions in its memory cannot.
module_context.axis_context of a lowering (0.4.30), in `on_one_device`: whether a program is for one device.  Without it
    batches that are divided among devices have no kernels.
num_consts, num_carry of a scan's equation, ft_in from JAX 0.11 on, in `scan_arguments`: which arguments are carried.
    Without it a program with a loop is no kernel.
unroll of a scan's equation (0.4.30), in `is_written_out`: recursions are written out in a kernel, other loops are not.
cond_nconsts, cond_jaxpr, body_nconsts, body_jaxpr of a while loop's equation, in `while_parts`: without them a
    program with such a loop is no kernel.
Tracer (jax.core, 0.4.30), in `is_traced`: whether a value is known.
ShapedArray (jax.core, 0.4.30) and avals_in of a lowering, in `_on_no_mesh`: types without a mesh.  Without them a mesh
    of one device with explicit axes is an error.
reset_cache (jax.experimental.compilation_cache, 0.4.30): a folder of programs chosen after the first program is used
    (`cache.py`).  Without it `cache_programs` must come before anything is compiled.
is_high of a jaxpr (JAX 0.12), in `is_high`: whether it holds an operation that has to be lowered first, such as
    `lax.custom_root`, which JAX does not do within operations that it does not know.
trace_state_clean (jax._src.core, 0.4.30), in `runs_at_once`: whether a call is made outside of all transformations.
unsafe_am_i_under_a_jit (jax._src.core, 0.4.36), in `is_inside_jit`: whether a call is traced for a program, so that
    what is called within need be none of its own (`compiled.py`).  Without it calls outside jit are traced each time.
prim_requires_devices_during_lowering (jax._src.dispatch, 0.4.30), in `register`: a rule for lowering is told the
    devices.  Without it batches that are divided among devices have no kernels (`devices.py`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.core import trace_state_clean, unsafe_am_i_under_a_jit
from jax._src.dispatch import prim_requires_devices_during_lowering
from jax.core import ShapedArray, Tracer
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

Zero, is_undefined_primal = ad.Zero, ad.is_undefined_primal
dce_jaxpr = pe.dce_jaxpr

__all__ = [
    "ClosedJaxpr",
    "Literal",
    "Primitive",
    "Zero",
    "alone",
    "altered",
    "as_function",
    "dce_jaxpr",
    "hoisted",
    "is_divided",
    "is_exported",
    "is_high",
    "is_inside_jit",
    "is_traced",
    "is_undefined_primal",
    "is_written_out",
    "jaxprs_in",
    "no_tangent",
    "numbers_in",
    "on_one_device",
    "register",
    "reset_cache",
    "reshaped",
    "runs_at_once",
    "scan_arguments",
    "while_parts",
    "with_constants",
]


# ---- values
def is_traced(x: Any) -> bool:
    """Whether a leaf stands for a value that is not known yet."""
    return isinstance(x, Tracer)


def runs_at_once() -> bool:
    """Whether operations called here run at once, outside of all transformations."""
    return trace_state_clean()


def is_inside_jit() -> bool:
    """Whether operations called here become part of a program, and do not run at once, transformed or not."""
    return not trace_state_clean() and unsafe_am_i_under_a_jit()


def reshaped(aval: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """The type of an array like `aval` of another shape, strongly typed."""
    return aval.update(shape=tuple(shape), dtype=aval.dtype if dtype is None else dtype, weak_type=False)


def no_tangent(x: Any) -> ad.Zero:
    """The zero tangent of a value that is not differentiated."""
    return Zero(jax.typeof(x).to_tangent_aval())


# ---- jaxprs
def as_function(jaxpr: Any, constants: Sequence = ()) -> Callable[..., list]:
    """A jaxpr as a function of its arguments."""
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, constants))


def hoisted(function: Callable, x: Any) -> tuple[Callable, list]:
    """(f, closed over) with f(x, *closed over) = function(x), which closes over nothing that is traced.

    As `jax.closure_convert`, which leaves integers and what does not move in the closure; a rule that JAX keeps for
    later finds them outdated.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(x)
    unflatten = jax.tree.structure(shape).unflatten
    return lambda x, *constants: unflatten(as_function(closed.jaxpr, constants)(*jax.tree.leaves(x))), closed.consts


def with_constants(jaxpr: Any, known: dict[Any, Any]) -> Any:
    """A jaxpr in which some of its constants are written as literals, known to whoever reads it."""
    literals = {x: Literal(value, x.aval) for x, value in known.items()}
    put = lambda atoms: [x if isinstance(x, Literal) else literals.get(x, x) for x in atoms]
    return jaxpr.replace(
        constvars=[x for x in jaxpr.constvars if x not in literals],
        eqns=[eqn.replace(invars=put(eqn.invars)) for eqn in jaxpr.eqns],
        outvars=put(jaxpr.outvars),
    )


def altered(jaxpr: Any, **parts: Any) -> Any:
    """A jaxpr with other variables or equations, whose names are not known any more."""
    return jaxpr.replace(debug_info=jaxpr.debug_info.with_unknown_names(), **parts)


def alone(jaxpr: Any, eqn: Any) -> Callable[..., list]:
    """The operation of one equation of a jaxpr, with the rules that it has: values of its operands -> its results."""
    places = {x: n for n, x in enumerate(eqn.invars) if not isinstance(x, Literal)}
    run = as_function(Jaxpr((), list(places), eqn.outvars, [eqn], debug_info=jaxpr.debug_info))
    return lambda *values: run(*(values[n] for n in places.values()))


def scan_arguments(eqn: Any) -> tuple[int, int]:
    """Number of constants and of carried values of a scan, which come first among its arguments."""
    if "ft_in" not in eqn.params:  # JAX before 0.11
        return eqn.params["num_consts"], eqn.params["num_carry"]
    constants, carry, _ = map(list, eqn.params["ft_in"].update(eqn.invars).unpack())
    return len(constants), len(carry)


def is_written_out(eqn: Any) -> bool:
    """Whether an equation is a scan with unroll > 1, which programs of scalars repeat turn by turn."""
    return eqn.primitive.name == "scan" and eqn.params["unroll"] > 1


def while_parts(eqn: Any) -> tuple[tuple[int, Any], tuple[int, Any]]:
    """Return for condition and body of a while loop the number of constants, which come first, and the jaxpr."""
    of = lambda name: (eqn.params[f"{name}_nconsts"], eqn.params[f"{name}_jaxpr"])
    return of("cond"), of("body")


def is_high(jaxpr: Jaxpr) -> bool:
    """Whether operations of a jaxpr have to be lowered to others before it can be run by an operation of our own."""
    return getattr(jaxpr, "is_high", False)


def jaxprs_in(eqn: Any) -> list:
    """The jaxprs among the parameters of an equation."""
    return [x.jaxpr for x in _programs_in(eqn)]


def numbers_in(program: ClosedJaxpr, seen: set | None = None) -> list:
    """The constants and the numbers written in a program, and in those within it, in their order."""
    seen = set() if seen is None else seen
    found = list(program.consts)
    if id(program.jaxpr) in seen:
        return found
    seen.add(id(program.jaxpr))
    for eqn in program.jaxpr.eqns:
        found += [x.val for x in eqn.invars if isinstance(x, Literal)]
        for inner in _programs_in(eqn):
            found += numbers_in(inner, seen)
    return found + [x.val for x in program.jaxpr.outvars if isinstance(x, Literal)]


def _programs_in(eqn: Any) -> list[ClosedJaxpr]:
    found: list[ClosedJaxpr] = []
    if not (eqn.primitive.multiple_results or "update_jaxpr" in eqn.params):  # what calls has several results
        return found
    for value in eqn.params.values():
        for x in value if isinstance(value, tuple | list) else (value,):
            if isinstance(x, ClosedJaxpr):
                found.append(x)
            elif isinstance(x, Jaxpr):
                found.append(ClosedJaxpr(x, ()))
    return found


# ---- primitives
def register(
    primitive: Primitive,
    run: Callable,
    shapes: Callable,
    batch: Callable,
    jvp: Callable | None = None,
    transpose: Callable | None = None,
    cpu: Callable | None = None,
    cuda: Callable | None = None,
    devices: bool = False,
) -> None:
    """Give a primitive with several results its rules.

    run(*arrays, **parameters) -> list; it serves direct calls and, traced, programs. cpu(ctx) and cuda(ctx) -> a
    function like `run` for programs that run there, if those differ. devices: they need to know for which devices.
    shapes, batch, jvp, transpose: the rules that `jax.interpreters` expects.
    """
    primitive.multiple_results = True
    if devices:
        prim_requires_devices_during_lowering.add(primitive)
    primitive.def_impl(run)
    primitive.def_abstract_eval(shapes)
    lower = lambda run: mlir.lower_fun(run, multiple_results=True)
    mlir.register_lowering(primitive, lower(run))
    for platform, choice in (("cpu", cpu), ("cuda", cuda)):
        if choice is not None:

            def chosen(ctx, *args, choice=choice, **parameters):
                return lower(choice(ctx))(_on_no_mesh(ctx), *args, **parameters)

            mlir.register_lowering(primitive, chosen, platform=platform)
    batching.primitive_batchers[primitive] = batch
    if jvp is not None:
        ad.primitive_jvps[primitive] = jvp
    if transpose is not None:
        ad.primitive_transposes[primitive] = transpose


def _on_no_mesh(ctx: Any) -> Any:
    """For a program of one device: the context with arguments that lie on no mesh, as what it is traced from does."""
    if not _has_one_device(ctx):
        return ctx
    return ctx.replace(avals_in=[ShapedArray(x.shape, x.dtype, weak_type=x.weak_type) for x in ctx.avals_in])


def _has_one_device(ctx: Any) -> bool:
    return getattr(ctx.module_context.axis_context, "num_devices", None) == 1


def on_one_device(ctx: Any) -> bool:
    """Whether a program is being lowered for one device, or for one of many inside a `jax.shard_map`."""
    axes = ctx.module_context.axis_context
    if _has_one_device(ctx):
        return True
    return bool(getattr(axes, "manual_axes", ())) and set(axes.manual_axes) == set(axes.mesh.axis_names)


def is_divided(ctx: Any) -> bool:
    """Whether XLA alone divides a program among devices, as it does outside of every `jax.shard_map`."""
    return not on_one_device(ctx) and not getattr(ctx.module_context.axis_context, "manual_axes", ())


def is_exported(ctx: Any) -> bool:
    """Whether a program is being lowered for `jax.export`: it may run in another process."""
    return ctx.module_context.lowering_parameters.for_export
