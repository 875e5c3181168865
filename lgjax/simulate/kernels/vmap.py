"""Whole computations as one GPU kernel in which one lane integrates one system.

A function of one system is scalarized as a whole (`execution/program.py`), and its operations run on vectors of lanes
inside one Pallas kernel: between reading a state and writing the result nothing leaves the registers but what they
cannot hold. Parameters of a specialised model fold; those of any other are read where they are used. On other devices
than a GPU the same functions run as `jax.vmap` of the level scan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.dynamics.forward import forward_dynamics
from lgjax.execution.interpreter import map_objects
from lgjax.execution.program import ScalarProgram
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model

LANES = 32  # systems in a block, a warp of one system per thread


@dataclass(frozen=True)
class KernelOptions:
    """Launch options of a kernel.

    lanes: systems per block, a power of two; a warp takes 32. interpret: run the kernel's operations one by one, on any
    device, to test it. compiled: True compiles the kernel, False runs the same through `jax.vmap`, None decides by
    whether the default device is a GPU.
    """

    lanes: int = LANES
    interpret: bool = False
    compiled: bool | None = None

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.lanes & (self.lanes - 1):
            raise ValueError(f"lanes is a power of two, got {self.lanes}")

    @property
    def kernel(self) -> bool:
        """Whether there is a kernel at all."""
        wanted = jax.default_backend() == "gpu" if self.compiled is None else self.compiled
        return self.interpret or wanted


def fused_vmap(
    function: Callable,
    in_axes: int | Sequence[int | None] | None = 0,
    *,
    options: KernelOptions = KernelOptions(),
    plain: Callable | None = None,
) -> Callable:
    """`jax.vmap(function, in_axes)` as one kernel, one lane per system; in_axes holds 0 or None for each argument.

    The function is arithmetic on small arrays without loops; algorithms of this library are asked for with
    execution="unrolled". `plain` computes the same for derivatives, in both modes, and where there is no kernel; by
    default it is the function itself. Raises ValueError for axes that do not fit the arguments and NotImplementedError
    for an operation that cannot be done scalar by scalar.
    """
    plain = function if plain is None else plain

    def call(*args):
        axes = tuple(in_axes) if isinstance(in_axes, Sequence) else (in_axes,) * len(args)
        if len(axes) != len(args) or any(axis not in (0, None) for axis in axes):
            raise ValueError(f"in_axes holds 0 or None for each of {len(args)} arguments, got {axes}")
        mapped = jax.vmap(plain, axes)
        if not options.kernel:
            return mapped(*args)
        run = jax.custom_jvp(partial(_launch, function, axes, options))
        run.defjvp(lambda primals, tangents: jax.jvp(mapped, primals, tangents))
        return run(*args)

    return call


def fused_forward_dynamics(
    model: Model,
    q: Configuration,
    v: jax.Array,
    tau: jax.Array,
    wrenches: jax.Array | None = None,
    *,
    options: KernelOptions = KernelOptions(),
) -> jax.Array:
    """`forward_dynamics` of a batch in one kernel: accelerations (batch, nv).

    Every leaf of q, v, tau and wrenches has a leading axis for the batch; those of the model have it all or none.
    Meant for a `specialize`d model. Frames, units and source are those of `forward_dynamics`.
    """
    axes = (model_axis(model), 0, 0, 0, None if wrenches is None else 0)
    unrolled = partial(forward_dynamics, execution="unrolled")
    return fused_vmap(unrolled, axes, options=options, plain=forward_dynamics)(model, q, v, tau, wrenches)


def model_axis(model: Model) -> int | None:
    """0 if the parameters of a model have a leading axis for a batch."""
    return 0 if np.ndim(model.inertias.mass) == 2 else None


def kernel_cost(function: Callable, *args: Any) -> dict[str, Any]:
    """Operations, bytes and live values per system of a kernel of `function`, from arguments (or their shapes) of one
    system.

    operations: how many of each scalar operation; arithmetic: their sum, with a sine, cosine, root or quotient as one;
    bytes: read and written per system if every argument is batched; waiting: values that wait at one time at most.
    """
    program = ScalarProgram(function, *args)
    read = sum(
        np.dtype(leaf.dtype).itemsize
        for leaf, nodes in zip(jax.tree.leaves(args), program.inputs, strict=False)
        for node in nodes.flat
        if node.index in program.used
    )
    written = sum(np.dtype(x.dtype).itemsize * int(np.prod(x.shape)) for x in program.shapes)
    moves = ("convert", "neg", "select_n")
    return {
        "operations": program.operations,
        "arithmetic": sum(n for name, n in program.operations.items() if name not in moves),
        "bytes": read + written,
        "waiting": program.waiting(program.order),
    }


# ---- one launch
def _launch(function: Callable, axes: tuple, options: KernelOptions, *args):
    flags = [axis == 0 for axis, arg in zip(axes, args, strict=True) for _ in jax.tree.leaves(arg)]
    leaves = [jnp.asarray(x) for x in jax.tree.leaves(args)]
    one = [jax.ShapeDtypeStruct(x.shape[1:] if b else x.shape, x.dtype) for x, b in zip(leaves, flags, strict=True)]
    program = ScalarProgram(function, *jax.tree.unflatten(jax.tree.structure(args), one))
    outs = launch(program, leaves, flags, options)
    return jax.tree.unflatten(program.out_tree, outs)


def launch(
    program: ScalarProgram,
    leaves: list[jax.Array],
    batched: list[bool],
    options: KernelOptions,
    steps: tuple[int, int] | None = None,
) -> list[jax.Array]:
    """The leaves of the program's result, each with a leading axis for the batch.

    steps (first, count): the program is run `count` times; its inputs from leaf number `first` on are its own results
    of the time before, and the leaf before those is a counter, to which the number of runs so far is added.
    """
    from jax.experimental import pallas as pl  # takes long to import, and only here is there a use for it
    from jax.experimental.pallas import triton

    leaves, batched = [*leaves, *program.captured], [*batched, *([False] * len(program.captured))]
    sizes = {x.shape[0] for x, b in zip(leaves, batched, strict=True) if b}
    if len(sizes) != 1:
        raise ValueError(f"the batched arguments have leading axes of one length, got {sorted(sizes)}")
    batch = sizes.pop()
    blocks = pl.cdiv(batch, options.lanes)
    where = {node.index: (n, k) for n, nodes in enumerate(program.inputs) for k, node in enumerate(nodes.ravel())}
    state = range(steps[0], steps[0] + len(program.outputs)) if steps else ()
    read = sorted({where[node][0] for node in program.used} | {*state})
    operands = {n: _rows(leaves[n], batch, blocks * options.lanes) if batched[n] else leaves[n].ravel() for n in read}
    operands = {n: x for n, x in operands.items() if x.size}
    results = [k for k, shape in enumerate(program.shapes) if np.prod(shape.shape)]
    body = partial(_kernel, program, where, list(operands), batched, results, options.lanes, steps)
    outs = pl.pallas_call(
        body,
        out_shape=[
            jax.ShapeDtypeStruct((program.outputs[k].size, blocks * options.lanes), program.shapes[k].dtype)
            for k in results
        ],
        grid=(blocks,),
        in_specs=[
            pl.BlockSpec((x.shape[0], options.lanes), lambda i: (0, i))
            if batched[n]
            else pl.BlockSpec(x.shape, lambda i: (0,))
            for n, x in operands.items()
        ],
        out_specs=[pl.BlockSpec((program.outputs[k].size, options.lanes), lambda i: (0, i)) for k in results],
        compiler_params=triton.CompilerParams(num_warps=max(1, options.lanes // 32)),
        interpret=options.interpret,
        name="lgjax_fused",
    )(*operands.values())
    rows = dict(zip(results, outs, strict=True))
    return [
        rows[k][:, :batch].T.reshape(batch, *shape.shape)
        if k in rows
        else jnp.zeros((batch, *shape.shape), shape.dtype)
        for k, shape in enumerate(program.shapes)
    ]


def _rows(leaf: jax.Array, batch: int, width: int) -> jax.Array:
    """A leaf (batch, ...) as one row per scalar, its last system repeated up to full blocks."""
    flat = leaf.reshape(batch, -1)
    return jnp.pad(flat, ((0, width - batch), (0, 0)), mode="edge").T


def _kernel(program: ScalarProgram, where, names, batched, results, lanes: int, steps, *refs) -> None:
    """The program on one block of lanes."""
    inputs = dict(zip(names, refs, strict=False))

    def load(node: int):
        leaf, k = where[node]
        return inputs[leaf][k, :] if batched[leaf] else lax.broadcast(inputs[leaf][k], (lanes,))

    outs = program.run(load) if steps is None else _repeated(program, where, load, lanes, *steps)
    for ref, k in zip(refs[len(names) :], results, strict=True):
        for row, value in enumerate(outs[k].ravel()):
            full = value if isinstance(value, jax.Array) else jnp.full((lanes,), value, ref.dtype)
            ref[row, :] = full


def _repeated(program: ScalarProgram, where, load, lanes: int, first: int, count: int) -> list[np.ndarray]:
    nodes = [node.index for leaf in program.inputs[first : first + len(program.outputs)] for node in leaf.flat]
    place = {node: k for k, node in enumerate(nodes)}
    dtypes = [shape.dtype for shape, out in zip(program.shapes, program.outputs, strict=True) for _ in out.flat]

    def body(i, state):
        def value(node: int):
            if node in place:
                return state[place[node]]
            x = load(node)
            return x + lax.broadcast(i.astype(x.dtype), (lanes,)) if where[node][0] == first - 1 else x

        outs = [x for out in program.run(value) for x in out.flat]
        return [x if isinstance(x, jax.Array) else jnp.full((lanes,), x, d) for x, d in zip(outs, dtypes, strict=True)]

    state = iter(lax.fori_loop(0, count, body, [load(node) for node in nodes]))
    return [map_objects(lambda _: next(state), out) for out in program.outputs]
