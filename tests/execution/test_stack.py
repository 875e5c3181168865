"""Numbers of native functions that wait on the stack: each line still has its numbers, and few are held at a time."""

import platform
import re

import jax
import numpy as np
import pytest

from lgjax.execution.kernels import llvm, native
from lgjax.execution.kernels.llvm_writer import LlvmWriter
from lgjax.execution.kernels.stack import waiting
from tests.dynamics import trees
from tests.execution.test_kernel import ALGORITHMS
from tests.execution.test_native import launched
from tests.execution.test_program import FUNCTIONS, X

NAME = re.compile(r"%f\d+")
LOAD = re.compile(r"  (%f\d+) = load volatile <4 x float>, ptr %wait(\d+), align 16")
STORE = re.compile(r"  store volatile <4 x float> (%f\d+), ptr %wait(\d+), align 16")
AGAIN = re.compile(r"  (%f\d+) = read number (\d+) again")


def writer(count, seed, loops=(), known=()):
    """A straight line of sums of earlier numbers, with loops of some lines in it; `known` ones come from memory."""
    draw, out = np.random.default_rng(seed), LlvmWriter("f32", 4)
    for k in range(count):
        before = [f"%f{n}" for n in draw.integers(max(0, k - 60), max(k, 1), 2)]
        if k in loops:
            out.lines += [f"  br label %loop{k}", f"loop{k}:"]
            out.register("f")
            out.line(f"%f{k} = phi <4 x float> [{before[0]}, %before], [{before[1]}, %last{k}]")
            out.lines += [f"  br label %last{k}", f"last{k}:", f"  br i1 %again{k}, label %loop{k}, label %after{k}"]
            out.lines += [f"after{k}:"]
        elif k < 2 or k in known:
            out.operation("constant")
        else:
            out.operation(f"fadd {before[0]}, {before[1]}")
    out.lines += [f"  store %f{k}" for k in range(count - 10, count)]
    out.counts["f"] = count
    return out


def run(lines):
    """The lines with the number that each register stands for, without moves; the largest number of live registers."""
    means, stack, found = {}, {}, []
    last = {x: n for n, line in enumerate(lines) for x in NAME.findall(line)}
    held, most = set(), 0
    for n, line in enumerate(lines):
        if load := LOAD.fullmatch(line):
            means[load[1]] = stack[load[2]]
        elif store := STORE.fullmatch(line):
            stack[store[2]] = means[store[1]]
        elif again := AGAIN.fullmatch(line):
            means[again[1]] = f"%f{again[2]}"
        else:
            if set_ := re.match(r"  (%f\d+) = ", line):
                means[set_[1]] = set_[1]
            found.append(NAME.sub(lambda x: means[x[0]], line))
        held = {x for x in held | set(NAME.findall(line)) if last[x] > n}
        most = max(most, len(held))
    return found, most


@pytest.mark.parametrize("keep", [4, 10, 30, 10**6])
@pytest.mark.parametrize("seed", range(5))
def test_every_line_has_its_numbers(keep, seed):
    """Also loops, and numbers that are read where they came from. No more are held than there are registers."""
    out = writer(500, seed, loops=(50, 51, 200, 433), known=range(100, 130))
    before = list(out.lines)
    again = {f"%f{k}": (lambda k=k: [f"  {out.register('f')} = read number {k} again"]) for k in range(100, 130)}
    lines, places = waiting(out, keep, again)
    found, most = run(lines)
    assert found == before
    assert most <= keep + 2  # and the operands of a line
    stored = [x for x in lines if STORE.fullmatch(x)]
    assert len(stored) == len({x.split()[5] for x in stored})  # a number is stored once at most
    assert (keep == 10**6) == (lines == before) == (not stored) == (places == 0)
    assert places <= run(before)[1] + 2  # places are used again
    assert not {STORE.fullmatch(x)[1] for x in stored} & set(again)


def test_the_number_goes_whose_next_use_is_farthest_away():
    out = LlvmWriter("f32", 4)
    for _ in range(4):
        out.operation("constant")
    for a, b in ((0, 3), (4, 2), (5, 1)):
        out.operation(f"fadd %f{a}, %f{b}")
    lines, places = waiting(out, 3, {})
    assert [x for x in lines if STORE.fullmatch(x)] == ["  store volatile <4 x float> %f1, ptr %wait0, align 16"]
    assert places == 1
    assert lines.index("  %f7 = load volatile <4 x float>, ptr %wait0, align 16") == len(lines) - 2


def limit(monkeypatch, keep):
    """Hold so many numbers; the list in which functions that are compiled from now on put their places."""
    native.forget()
    places = []

    def counted(out, _, again):
        lines, count = waiting(out, keep, again)
        places.append(count)
        return lines, count

    monkeypatch.setattr(llvm, "waiting", counted)
    return places


@pytest.mark.skipif(not native.usable(), reason="no native functions on this processor")
@pytest.mark.parametrize(("dtype", "front"), [("float32", True), ("float64", False)])
def test_results_are_the_same_to_the_last_bit(monkeypatch, dtype, front):
    """Of every operation, in loops and outside them."""
    functions = [x for x in FUNCTIONS.values() if not jax.make_jaxpr(x)(X[0].astype(dtype)).consts]
    results = []
    for keep in (10**6, 4):
        places = limit(monkeypatch, keep)
        results.append(launched(lambda x: jax.tree.leaves([f(x) for f in functions]), X.astype(dtype), front=front))
    assert max(places) > 100
    jax.tree.map(np.testing.assert_array_equal, *results)


@pytest.mark.skipif(not native.usable(), reason="no native functions on this processor")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("algorithm", ["forward", "gradient", "time derivatives"])
def test_algorithms_with_few_registers(monkeypatch, algorithm, dtype):
    model, *states = jax.tree.map(
        lambda x: x.astype(dtype), (trees.model("shoulder"), *trees.random_states(trees.model("shoulder"), 7))
    )
    results = []
    for keep in (10**6, 4):
        places = limit(monkeypatch, keep)
        function = lambda *args: ALGORITHMS[algorithm](*args)
        results.append(jax.jit(jax.vmap(function, (None, *[0] * len(states))))(model, *states))
    assert max(places) > 100
    jax.tree.map(np.testing.assert_array_equal, *results)


@pytest.fixture(autouse=True)
def _forget():
    yield
    native.forget()


def test_registers_of_processors(monkeypatch):
    """AVX-512 and ARM have 32, other processors 16."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert [llvm.held(x) for x in (16, 32, 64)] == [14, 14, 28]
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert llvm.held(16) == 28
