"""`jit` with XLA's default settings, which the other tests lower (see conftest.py)."""

import jax

OPTIONS = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}


def jit(function, **options):
    return jax.jit(function, compiler_options=OPTIONS, **options)
