"""Random programs with exact answers: numbers that single precision holds, so that NumPy, PTX and LLVM must agree.

A program is drawn once, as a list of operations on what came before, and runs on whatever does them: JAX, which traces
it for kernels, or NumPy, which shares no code with them. Sums and products are brought back into a small range, so that
no operation rounds.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RANGE = 64


def numpy_loop(body: Callable, start: list, count: int) -> tuple[list, list]:
    """`body(carry, turn) -> (carry, saved)`, one after the other; what was saved, by turn."""
    saved = []
    for turn in range(count):
        start, out = body(start, np.float64(turn))
        saved.append(out)
    return start, [np.stack(np.broadcast_arrays(*x)) for x in zip(*saved, strict=True)]


def jax_loop(body: Callable, start: list, count: int, dtype) -> tuple[list, list]:
    return jax.lax.scan(lambda carry, turn: body(carry, turn), start, jnp.arange(count, dtype=dtype))


def numpy_repeat(going: Callable, body: Callable, start: list) -> list:
    """`body(carry) -> carry` for each system as long as its `going(carry)` is true."""
    while np.any(on := going(start)):
        start = [np.where(on, new, old) for new, old in zip(body(start), start, strict=True)]
    return start


NUMPY = SimpleNamespace(
    repeat=numpy_repeat,
    entry=lambda some, k: np.choose(np.clip(k + len(some) * (k < 0), 0, len(some) - 1), np.broadcast_arrays(*some)),
    replaced=lambda some, k, x: [np.where(k == n, x, old) for n, old in enumerate(some)],
    branch=lambda test, yes, no, x: np.where(test, yes(x), no(x)),
    where=np.where, minimum=np.minimum, maximum=np.maximum, floor=np.floor, abs=np.abs, loop=numpy_loop,
    integer=lambda x: np.asarray(x).astype(np.int32), floating=lambda x: np.asarray(x).astype(np.float64),
    quotient=lambda a, b: np.trunc(a / b).astype(np.int32), remainder=lambda a, b: np.fmod(a, b).astype(np.int32),
)  # fmt: skip


def of_jax(dtype) -> SimpleNamespace:
    """What runs a program in JAX."""
    return SimpleNamespace(
        where=jnp.where, minimum=jnp.minimum, maximum=jnp.maximum, floor=jnp.floor, abs=jnp.abs,
        repeat=jax.lax.while_loop, entry=lambda some, k: jax.lax.dynamic_index_in_dim(jnp.stack(some), k, 0, False),
        replaced=lambda some, k, x: list(jnp.stack(some).at[k].set(x, mode="drop")),
        branch=jax.lax.cond,
        loop=lambda body, start, count: jax_loop(body, start, count, dtype),
        integer=lambda x: jnp.asarray(x).astype(jnp.int32), floating=lambda x: jnp.asarray(x).astype(dtype),
        quotient=jax.lax.div, remainder=jax.lax.rem,
    )  # fmt: skip


class Program:
    """A random program of some floating numbers and integers; calling it gives floating numbers, integers, truths."""

    def __init__(self, rng: np.random.Generator, length: int, floats: int = 4, integers: int = 2, loops: bool = True):
        self.floats, self.integers = floats, integers
        self.lines = [self._draw(rng, loops) for _ in range(length)]
        self.weights = rng.integers(-1, 2, 3 * length).astype(float).tolist()

    @staticmethod
    def _draw(rng: np.random.Generator, loops: bool) -> tuple:
        names = ["add", "sub", "mul", "fma", "select", "min", "max", "floor", "abs", "half", "neg", "square"]
        names += ["int add", "int mul", "int div", "int rem", "int and", "int or", "int xor", "int min", "to int"]
        names += ["less", "equal", "both", "either", "not", "to float", "true to float"]
        names += ["entry", "replaced"]
        name = str(rng.choice(["loop", "repeat", "branch"] if loops and rng.random() < 0.08 else names))
        size = int(rng.integers(3, 8)) if name != "branch" else int(rng.choice([4, 60]))  # of branches, long ones too
        repeats = name in ("loop", "repeat", "branch")
        inner = Program(rng, size, 3, 1, loops=size < 8 and rng.random() < 0.2) if repeats else None
        return name, rng.random(4), int(rng.integers(1, 12)), inner

    def __call__(self, of: Any, floats: list, integers: list) -> list:
        f, i, p = list(floats), list(integers), [floats[0] > floats[1]]
        pick = lambda pool, r: pool[int(r * len(pool))]
        small = lambda x: x - RANGE * of.floor(x / RANGE)  # exact: all are multiples of a power of two
        for name, r, count, inner in self.lines:
            a, b, c = (pick(f, x) for x in r[:3])
            j, k = pick(i, r[0]), pick(i, r[1])
            s, t = pick(p, r[2]), pick(p, r[3])
            if name == "loop":
                self._loop(of, inner, f, i, p, (a, b, c, j), count)
            elif name == "repeat":
                self._repeat(of, inner, f, i, (a, b, c, j), count)
            elif name == "branch":
                branch = lambda x, inner=inner, a=a, b=b, j=j: small(inner(of, [x, a, b], [j])[0] * 1.0)
                f.append(of.branch(s, branch, lambda x, a=a: small(x - a), c))
            elif name == "entry":
                f.append(of.entry(f[-5:], j - 2))
            elif name == "replaced":
                f += of.replaced([a, b, c], j & 3, f[-1])
            elif name in FLOATING:
                f.append(small(FLOATING[name](of, a, b, c, s)))
            elif name in INTEGER:
                i.append(INTEGER[name](of, j, k, a) & 1023)
            elif name in TRUTH:
                p.append(TRUTH[name](of, a, b, s, t))
            elif name == "to float":
                f.append(of.floating(j & 63))
            else:
                f.append(of.where(s, of.floating(j & 7), a))
        used = [w * x for w, x in zip(self.weights * 3, f, strict=False)]
        return [small(sum(used[1:], used[0])), *f[-3:], *i[-2:], *p[-2:]]

    @staticmethod
    def _loop(of: Any, inner: "Program", f: list, i: list, p: list, given: tuple, count: int) -> None:
        a, b, c, j = given

        def body(carry, turn):
            x, n = carry
            out = inner(of, [x, a, b + turn], [n])
            return [of.where(out[-1], out[0], x), (n + out[4]) & 255], [out[1]]

        (x, n), (saved,) = of.loop(body, [c, j], count)
        f += [x, saved[0], saved[-1]]
        i.append(n)

    @staticmethod
    def _repeat(of: Any, inner: "Program", f: list, i: list, given: tuple, count: int) -> None:
        a, b, c, j = given

        def body(carry):
            x, n, turn = carry
            out = inner(of, [x, a, b + turn], [n])
            return [of.where(out[-1], out[0], x), (n + out[4]) & 255, turn + 1.0]

        going = lambda carry: (carry[2] < count) & ((carry[1] & 7) != 3) & (carry[0] < 60)
        x, n, turns = of.repeat(going, body, [c, j & 255, a * 0.0])
        f += [x, turns]
        i.append(n)


FLOATING = {
    "add": lambda of, a, b, c, s: a + b, "sub": lambda of, a, b, c, s: a - b,
    "mul": lambda of, a, b, c, s: of.floor(a) * of.floor(b),
    "fma": lambda of, a, b, c, s: of.floor(a) * of.floor(b) + c,
    "select": lambda of, a, b, c, s: of.where(s, a, b), "min": lambda of, a, b, c, s: of.minimum(a, b),
    "max": lambda of, a, b, c, s: of.maximum(a, c), "floor": lambda of, a, b, c, s: of.floor(a / 4),
    "abs": lambda of, a, b, c, s: of.abs(a - b), "half": lambda of, a, b, c, s: of.floor(a) * 0.5,
    "neg": lambda of, a, b, c, s: -a, "square": lambda of, a, b, c, s: of.floor(a) * of.floor(a) - b,
}  # fmt: skip
INTEGER = {
    "int add": lambda of, j, k, a: j + k, "int mul": lambda of, j, k, a: j * k,
    "int div": lambda of, j, k, a: of.quotient(j - 300, k + 1),
    "int rem": lambda of, j, k, a: of.remainder(j - 300, k + 1),
    "int and": lambda of, j, k, a: j & k, "int or": lambda of, j, k, a: j | k, "int xor": lambda of, j, k, a: j ^ k,
    "int min": lambda of, j, k, a: of.minimum(j, k), "to int": lambda of, j, k, a: of.integer(of.floor(a)),
}  # fmt: skip
TRUTH = {
    "less": lambda of, a, b, s, t: a < b, "equal": lambda of, a, b, s, t: of.floor(a) == of.floor(b),
    "both": lambda of, a, b, s, t: s & t, "either": lambda of, a, b, s, t: s | t, "not": lambda of, a, b, s, t: ~s,
}  # fmt: skip
