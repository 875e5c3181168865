"""Numbers that wait in memory: no result changes by a bit, and never more are in registers than there shall be."""

import itertools
import re

import jax
import numpy as np
import pytest

import lgjax
from lgjax import specialize
from lgjax.execution.kernels import ptx, spills
from lgjax.execution.kernels.ptx import _Body, kernel
from lgjax.execution.kernels.ptx_writer import PtxWriter
from lgjax.execution.kernels.spills import Line, most_waiting, spilled
from lgjax.execution.scalars.program import program_of
from tests.dynamics import trees
from tests.execution.test_kernel import ALGORITHMS, FRONT, SIZE, launched
from tests.execution.test_program import FUNCTIONS, X

SHARED = {"all shared": 10**6, "some shared": 1024, "none shared": 0}


def limit(monkeypatch, registers, shared=10**6, early=0):
    """With the first of the orders in any case, whichever is the best with so many registers."""
    monkeypatch.setattr(spills, "EARLY", early)
    monkeypatch.setattr(_Body, "cost", 0)
    monkeypatch.setattr(spills, "REGISTERS", {"f32": registers, "f64": registers})
    monkeypatch.setattr(ptx, "SHARED", shared)
    monkeypatch.setattr(ptx, "MUCH", ())


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_the_same_to_the_last_bit(monkeypatch, name, shared):
    """Of every operation, in loops and outside them."""
    for dtype in ("float32", "float64"):
        x = X.astype(dtype)
        limit(monkeypatch, 10**6)
        expected = launched(FUNCTIONS[name], x)
        limit(monkeypatch, 5, SHARED[shared], early=10**4)
        jax.tree.map(np.testing.assert_array_equal, launched(FUNCTIONS[name], x), expected)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("algorithm", ["forward", "gradient", "time derivatives"])
def test_algorithms_with_few_registers(monkeypatch, algorithm, shared):
    """With the batch in front too, whose rows are in the same memory."""
    model = specialize(trees.model("shoulder"))
    states = trees.random_states(model, SIZE)
    function = lambda *state: ALGORITHMS[algorithm](model, *state)
    limit(monkeypatch, 10**6)
    expected = launched(function, *states)
    limit(monkeypatch, 24, SHARED[shared] + 10**4 * bool(SHARED[shared]), early=10**4)
    for front in (None, FRONT["all"]):
        jax.tree.map(np.testing.assert_array_equal, launched(function, *states, front=front), expected)


def lines_of(count, seed, dtype="f32"):
    """A straight line of sums of products of earlier numbers."""
    draw, lines = np.random.default_rng(seed), ["  ld.global.f32 %f0, [%a0];", "  ld.global.f32 %f1, [%a0+4];"]
    for k in range(2, count):
        a, b, c = draw.integers(max(0, k - 60), k, 3)
        lines.append(f"  fma.rn.{dtype} %f{k}, %f{a}, %f{b}, %f{c};")
    return [*lines, *(f"  st.global.{dtype} [%r0+{k}], %f{k};" for k in range(count - 10, count))]


@pytest.mark.parametrize("registers", [4, 10, 30])
@pytest.mark.parametrize("seed", range(3))
def test_no_more_numbers_are_held_than_there_are_registers(monkeypatch, registers, seed):
    limit(monkeypatch, registers)
    lines = lines_of(400, seed)
    assert most_waiting([Line.of(x) for x in lines]) > 30
    found, memory = spilled(lines, "f32", 0)
    assert (
        most_waiting([Line.of(re.sub(r"%w(\d)", r"%f1000\1", x)) for x in found]) <= registers + 3
    )  # the operands of a line
    assert [x.split()[0] for x in found if "waiting" not in x] == [x.split()[0] for x in lines]
    stored = [x for x in found if "st.shared" in x]
    assert len(stored) < 400  # a number is stored once at most
    most = most_waiting([Line.of(x) for x in lines])
    assert memory.inside + memory.outside <= most < len(stored)  # places are used again


def loads_by_belady(lines, registers):
    """How many numbers are loaded again, by a search of all that are held."""
    lines, held, loads = [Line.of(x) for x in lines], set(), 0
    following = lambda x, n: next((k for k in range(n, len(lines)) if x in lines[k].reads), len(lines))
    for n, line in enumerate(lines):
        loads += len(set(line.reads) - held)
        held |= set(line.reads)
        for now, new in ((n, set()), (n + 1, {line.sets} - {None})):
            held = {x for x in held | new if following(x, now) < len(lines)}
            held -= set(sorted(held, key=lambda x, now=now: -following(x, now))[: max(0, len(held) - registers)])
    return loads


@pytest.mark.parametrize("registers", [10, 30])
def test_as_few_numbers_are_loaded_again_as_can_be(monkeypatch, registers):
    limit(monkeypatch, registers)
    lines = lines_of(400, 0)
    assert spilled(lines, "f32", 0)[1].loads <= 1.03 * loads_by_belady(lines, registers)


def test_what_fits_is_left_alone(monkeypatch):
    limit(monkeypatch, 70)
    lines = lines_of(400, 0)
    found, memory = spilled(lines, "f32", 0)
    assert found == lines
    assert list(memory.declarations()) == list(memory.begin("a0")) == []


def test_numbers_that_are_needed_last_go_first(monkeypatch):
    """The rule of Belady: with two registers, of a and b, which is needed later, b waits."""
    limit(monkeypatch, 3)
    lines = [
        "  ld.f32 %f0, [a];", "  ld.f32 %f1, [b];", "  ld.f32 %f2, [c];", "  ld.f32 %f3, [d];",
        "  add.f32 %f4, %f0, %f3;", "  add.f32 %f5, %f4, %f2;", "  add.f32 %f6, %f5, %f1;", "  st.f32 [r], %f6;",
    ]  # fmt: skip
    found, _ = spilled(lines, "f32", 0)
    (store,) = [x for x in found if "st.shared" in x]
    assert store.endswith("%f1;")
    assert found.index(store) == 4


def test_what_does_not_change_is_read_again_and_never_stored(monkeypatch):
    """Numbers of the caller's arrays and of those that all systems share, but not rows, which results may overwrite."""
    limit(monkeypatch, 3)
    places = ["ld.global.nc.f32 %f0, [%a0+4]", "ld.shared.f32 %f1, [%common+8]", "ld.shared.f32 %f2, [%row_a1+0]"]
    lines = [f"  {x};" for x in [*places, "add.f32 %f3, %f0, %f1", "add.f32 %f4, %f0, %f2", "mul.f32 %f5, %f3, %f4"]]
    lines += [f"  fma.rn.f32 %f{k}, %f{k - 1}, %f{k - 2}, %f{k - 3};" for k in range(6, 9)]
    lines += [f"  fma.rn.f32 %f{9 + k}, %f{8 + k}, %f{k}, %f8;" for k in range(3)] + ["  st.f32 [r], %f11;"]
    found, _ = spilled(lines, "f32", 0)
    assert [x.split()[-1] for x in found if "st.shared" in x] == ["%f2;"]
    again = [x for x in found if re.match(r"  ld.*%w", x)]
    assert sum("waiting" in x for x in again) == 1
    assert sum("[%a0+4]" in x for x in again) == sum("[%common+8]" in x for x in again) == 1


@pytest.mark.parametrize("seed", range(20))
def test_as_many_stays_as_can_be_are_inside(seed):
    """Against all choices of some stays; those that have a place never meet there."""
    draw = np.random.default_rng(seed)
    stays = [spills.Stay(n, n + float(draw.integers(1, 12))) for n in sorted(draw.choice(30, 9, replace=False))]
    room, held = int(draw.integers(1, 5)), int(draw.integers(2))
    memory = spills.Memory("f32", room, held)
    spills._place(stays, memory, held, 0)
    meet = lambda a, b: a.begin <= b.end and b.begin <= a.end
    for a, b in itertools.combinations(stays, 2):
        assert not (meet(a, b) and (a.inside, a.place) == (b.inside, b.place))
    assert all(held <= x.place < memory.inside <= room for x in stays if x.inside)
    fits = lambda some: all(sum(x.begin <= n <= x.end for x in some) <= room - held for n in range(50))
    best = max(n for n in range(10) if any(fits(some) for some in itertools.combinations(stays, n)))
    assert sum(x.inside for x in stays) == best


def test_loads_come_early_but_after_their_store(monkeypatch):
    limit(monkeypatch, 10, early=8)
    lines = lines_of(400, 0)
    found, _ = spilled(lines, "f32", 0)
    monkeypatch.setattr(spills, "EARLY", 0)
    late, _ = spilled(lines, "f32", 0)
    assert sorted(found) == sorted(late)
    place = lambda line: re.search(r"\[.*\]", line)[0]
    gaps, inside = [], {}
    for n, line in enumerate(found):
        if "st.shared" in line:
            inside[place(line)] = line.split()[-1]
        if "ld.shared" in line:
            value = line.split()[1].rstrip(",")
            first = next(k for k in range(n + 1, len(found)) if re.search(rf"{value}\b", found[k]))
            gaps.append(first - n)
            assert place(line) in inside
    assert np.median(gaps) >= 8


def test_the_order_with_the_least_memory_traffic_is_taken(monkeypatch):
    """The way back through forward dynamics: not the order in which the fewest values wait at any one time."""
    model = specialize(lgjax.models.quadruped().astype("float32"))
    q, v, _, tau, _ = jax.tree.map(lambda x: x[0].astype("float32"), trees.random_states(model, 1))
    total = lambda q, v, tau: lgjax.forward_dynamics(model, q, v, tau).sum()
    moves = []
    monkeypatch.setattr(ptx, "MUCH", ())
    for orders in (slice(None), slice(0, 1), slice(1, 2), slice(2, 3)):
        program = program_of(jax.grad(total, (0, 1, 2)), q, v, tau)
        program.__dict__["orders"] = program.orders[orders]
        text = kernel(program, [True] * len(program.inputs), 64).text
        moves.append(len(re.findall(r"(?:ld|st)\.local.*own_waiting\+", text)))
    assert moves[0] == min(moves[1:]) < 0.5 * max(moves[1:])


def test_a_line_of_a_loop_costs_as_often_as_it_is_run():
    def cost(turns):
        program = program_of(lambda x: jax.lax.fori_loop(0, turns, lambda _, y: x * y + jax.numpy.sin(y), x), X[0, 0])
        body = _Body(PtxWriter("f64"), program, [True], 40, False, (), ptx.SHARED, 0)
        body.write()
        return body.cost

    assert cost(1000) - cost(200) == 8 * (cost(200) - cost(100)) > 800 * 10


def test_numbers_that_a_loop_reads_wait_until_it_ends():
    lines = ["  mov.f32 %f0, 0f00000000;", "  mov.f32 %f1, 0f00000000;", "LOOP0:", "  add.f32 %f2, %f1, %f0;"]
    lines += ["  mov.f32 %f3, %f2;", "  st.f32 [r], %f3;", "  @%p0 bra LOOP0;"]
    assert most_waiting([Line.of(x) for x in lines]) == 3


@pytest.mark.parametrize(("first", "second"), [(2, 10), (10, 2)])
def test_what_loops_move_has_the_shared_memory_first(monkeypatch, first, second):
    """Two loops read four numbers each, which were there before, and only four have room: those of the longer loop."""
    limit(monkeypatch, 3)
    given = [f"%f{k}" for k in range(8)]
    lines = [f"  mov.f32 {x}, 0f3f800000;" for x in given]
    for n in range(2):
        sums = [f"%f{k}" for k in range(8 + 5 * n, 13 + 5 * n)]
        lines += [f"LOOP{n}:", f"  mov.f32 {sums[0]}, 0f00000000;"]
        lines += [f"  add.f32 {sums[k + 1]}, {sums[k]}, {given[4 * n + k]};" for k in range(4)]
        lines += [f"  st.global.f32 [%r{n}], {sums[4]};", f"  @%p{n} bra LOOP{n};"]
    found, memory = spilled(lines, "f32", 0, 4 * 4 * spills.THREADS, [first, second])
    moves = [found[found.index(f"LOOP{n}:") : found.index(f"  @%p{n} bra LOOP{n};")] for n in range(2)]
    inside, outside = ([sum(f".{where}." in x for x in loop) for loop in moves] for where in ("shared", "local"))
    assert (inside, outside) == (([0, 4], [4, 0]) if second > first else ([4, 0], [0, 4]))
    assert (memory.inside, memory.outside) == (4, 4)


def test_what_loops_compute_may_have_the_shared_memory_instead_of_what_passes_them(monkeypatch):
    """Four numbers are read behind a loop whose every turn has eight that wait, and only four have room."""
    limit(monkeypatch, 3)
    passing, own = [f"%f{k}" for k in range(4)], [f"%f{k}" for k in range(4, 12)]
    lines = [f"  mov.f32 {x}, 0f3f800000;" for x in passing] + ["LOOP0:"]
    lines += [f"  mov.f32 {x}, 0f3f800000;" for x in own] + [f"  st.global.f32 [%r0], {x};" for x in own]
    lines += ["  @%p0 bra LOOP0;"] + [f"  st.global.f32 [%r1], {x};" for x in passing]
    found, _ = spilled(lines, "f32", 0, 4 * 4 * spills.THREADS, [10])
    loop = found[found.index("LOOP0:") : found.index("  @%p0 bra LOOP0;")]
    assert sum("st.shared." in x for x in loop) == 4
    assert [x for x in found if x not in loop and ".shared." in x] == []


def test_much_that_waits_gets_the_memory_of_more_blocks():
    """Of a kernel without loops: those have eight blocks of a multiprocessor in any case."""
    x, sin = jax.ShapeDtypeStruct((600,), "float32"), jax.numpy.sin
    straight = program_of(lambda x: sin(x) * sin(sin(x).sum()), x)
    looped = program_of(lambda x: sin(x) * jax.lax.fori_loop(0, 100, lambda _, s: sin(s), sin(x).sum()), x)
    size = lambda program: int(re.search(r"\.b8 waiting\[(\d+)\]", kernel(program, [True], 64).text)[1])
    assert size(looped) <= spills.SHARED < size(straight) <= spills.with_fewer_blocks(spills.SHARED)
    assert "own_waiting" in kernel(looped, [True], 64).text


def test_memory_of_a_block_is_bounded():
    """A humanoid's worth of numbers: shared memory up to the bound, the others in the memory of the thread."""
    model = specialize(lgjax.models.chain(100).astype("float32"))
    q, v, _, tau, _ = jax.tree.map(lambda x: x[0].astype("float32"), trees.random_states(model, 1))
    program = program_of(lambda *s: lgjax.forward_dynamics(model, *s), q, v, tau)
    marks = [nodes.size == 100 for nodes in program.inputs]
    for front in ((), [x and not any(marks[:k]) for k, x in enumerate(marks)] + [False] * len(program.outputs)):
        text = kernel(program, [True] * len(program.inputs), 64, front=front).text
        sizes = {name: int(size) for name, size in re.findall(r"\.b8 (\w+)\[(\d+)\]", text)}
        assert ("rows" in sizes) == any(front)
        assert 0 < sizes["waiting"] <= spills.SHARED - sizes.get("rows", 0)
        assert sizes["own_waiting"] > 0
