"""`jit` for tests: the same program, compiled with less optimisation, which takes a quarter of the time.

Agreement with other programs and compile caches are tested with XLA's default settings as well.
"""

from functools import cache

import jax

OPTIONS = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@cache
def _known_options() -> dict:
    """Those of the options that this XLA has."""
    known = {}
    for name, value in OPTIONS.items():
        try:
            jax.jit(lambda x: x, compiler_options={name: value}).lower(0.0).compile()
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


def jit(function, **options):
    return jax.jit(function, compiler_options=_known_options(), **options)
