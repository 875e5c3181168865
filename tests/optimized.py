"""`jit` with XLA's default settings, which the other tests lower (see conftest.py)."""

import os

import jax

DEFAULTS = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_opt_preset": "CPU_OPT_PRESET_DEFAULT",
}
OPTIONS = {name: value for name, value in DEFAULTS.items() if name in os.environ.get("XLA_FLAGS", "")}


def jit(function, **options):
    return jax.jit(function, compiler_options=OPTIONS, **options)
