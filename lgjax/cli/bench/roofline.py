"""Roofline of a kernel: the measured roofs of the device, and the fractions of them that a kernel reaches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.cli.bench.timing import compiled
from lgjax.execution import batched


def measured_roofs(dtype, batch: int = 2**24, repeats: int = 5, chain: int = 512) -> dict[str, float]:
    """Bytes per second of a copy, and scalar operations per second of a kernel of `chain` multiply-adds in registers.

    A multiply-add is two operations, so code that does not pair its products with sums reaches half at most.
    """
    x = jnp.linspace(0, 1, batch, dtype=dtype)
    copy, _ = compiled(jax.jit(lambda x: x + 1), x, repeats=repeats)

    def multiply_add(x):
        for _ in range(chain):
            x = x * 0.5 + 0.25
        return x

    chained, _ = compiled(jax.jit(jax.vmap(batched(multiply_add))), x, repeats=repeats)
    itemsize = np.dtype(dtype).itemsize
    return {
        "bytes per second": 2 * itemsize * batch / copy["median"],
        "operations per second": 2 * chain * batch / chained["median"],
    }


def fractions(cost: dict[str, Any], evaluations_per_second: float, roofs: dict[str, float]) -> dict[str, float]:
    """The fractions of both roofs that so many evaluations of a kernel with this `kernel_cost` use."""
    return {
        "memory": cost["bytes"] * evaluations_per_second / roofs["bytes per second"],
        "arithmetic": cost["arithmetic"] * evaluations_per_second / roofs["operations per second"],
    }
