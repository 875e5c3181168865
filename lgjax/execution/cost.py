"""Work of a kernel of a function for each system, counted from its program on any machine.

Read first: `scalars/program.py`.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lgjax.execution.scalars.program import program_of

MOVES = ("convert", "neg", "select_n")


def kernel_cost(function: Callable, *args: Any) -> dict[str, Any]:
    """Operations, bytes and live values per system of a kernel of `function`, from arguments (or their shapes) of one
    system.

    operations: how many of each scalar operation, those of a loop once per iteration; arithmetic: their sum, where a
    sine, cosine, root or quotient counts as one; bytes: read and written per system if every argument is batched;
    waiting: the largest number of values that need registers at one time, without those inside loops.
    """
    program = program_of(function, *args)
    read = sum(
        dtype.itemsize
        for dtype, nodes in zip(program.dtypes, program.inputs, strict=True)
        for node in nodes.flat
        if node.index in program.used
    )
    shapes = jax.tree.leaves(jax.eval_shape(function, *args))
    written = sum(np.dtype(x.dtype).itemsize * int(np.prod(x.shape)) for x in shapes)
    return {
        "operations": program.operations,
        "arithmetic": sum(n for name, n in program.operations.items() if name not in MOVES),
        "bytes": read + written,
        "waiting": program.waiting,
    }
