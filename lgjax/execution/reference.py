"""Algorithms without kernels, as XLA runs them: the readable reference. Next: `operation.py`, which reads it."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

_without_kernels = jax.make_user_context(False)


@contextmanager
def plain() -> Iterator[None]:
    """A context, or decorator, in which XLA runs the algorithms as they are written, under `jax.vmap`, without kernels.

    It is the reference that kernels are tested against, and belongs to what is traced within: programs that were
    compiled outside of it are not used.

    >>> with plain():
    ...     reference = jax.jit(jax.vmap(lambda x: lgjax.execution.batched(jnp.sin)(x)))(jnp.zeros(3))
    """
    with _without_kernels(True):
        yield


def is_plain() -> bool:
    """Whether functions that are traced here run without kernels, see `plain`."""
    return bool(_without_kernels.value)
