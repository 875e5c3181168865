"""Shares the blocks of a large batch among the threads of XLA's pool, in LLVM's language.

The blocks are divided into parts. Each thread, the caller's too, takes the next part until none is left. The caller
then waits only for parts that a thread has taken: one that starts late finds nothing to do.

Read first: `calling.py`.
"""

from collections.abc import Sequence

PART = 50_000  # instructions in a part, about 20 microseconds
# Fields of the state that threads share, eight bytes each: the next part, the number of finished parts, of threads that
# may still read the state, of all parts, of systems, of blocks; then pointers to arrays. The last thread to leave frees
# the state.
STATE = 6


def functions(pointers: str, names: Sequence[str], cost: int) -> str:
    """The functions that threads run on their shared state. cost: about the instructions of a block."""
    blocks = max(1, PART // max(cost, 1))
    return _state(pointers, names, blocks) + _work(pointers, names, blocks)


def _work(pointers: str, names: Sequence[str], blocks: int) -> str:
    """`@task`, which a thread of the pool runs: `@parts`, then `@left`. The caller runs these two as well."""
    given = "\n".join(
        f"  %at_{name} = getelementptr i64, ptr %state, i64 {k}\n  %{name} = load ptr, ptr %at_{name}"
        for k, name in enumerate(names, start=STATE)
    )
    return f"""

define internal void @task(ptr %state) {{
  call void @parts(ptr %state)
  call void @left(ptr %state)
  ret void
}}

define internal void @parts(ptr %state) {{
begin:
  %to_done = getelementptr i64, ptr %state, i64 1
  %to_all = getelementptr i64, ptr %state, i64 3
  %all = load i64, ptr %to_all
  %to_n = getelementptr i64, ptr %state, i64 4
  %n = load i64, ptr %to_n
  %to_blocks = getelementptr i64, ptr %state, i64 5
  %blocks = load i64, ptr %to_blocks
{given}
  br label %take
take:
  %part = atomicrmw add ptr %state, i64 1 acq_rel
  %there = icmp slt i64 %part, %all
  br i1 %there, label %do, label %out
do:
  %first = mul i64 %part, {blocks}
  %end = add i64 %first, {blocks}
  %within = icmp slt i64 %end, %blocks
  %last = select i1 %within, i64 %end, i64 %blocks
  call void @range({pointers}, i64 %n, i64 %first, i64 %last)
  %before = atomicrmw add ptr %to_done, i64 1 release
  br label %take
out:
  ret void
}}

define internal void @left(ptr %state) {{
begin:
  %to_users = getelementptr i64, ptr %state, i64 2
  %users = atomicrmw sub ptr %to_users, i64 1 acq_rel
  %last = icmp eq i64 %users, 1
  br i1 %last, label %end, label %out
end:
  call void @free(ptr %state)
  br label %out
out:
  ret void
}}"""


def _state(pointers: str, names: Sequence[str], blocks: int) -> str:
    """`@parts_of`, the number of parts, and `@state_of`, which allocates the shared state. blocks: in a part."""
    stored = "\n".join(
        f"  %at_{name} = getelementptr i64, ptr %state, i64 {k}\n  store ptr %{name}, ptr %at_{name}"
        for k, name in enumerate(names, start=STATE)
    )
    return f"""
declare ptr @malloc(i64)
declare void @free(ptr)

define internal i64 @parts_of(i64 %blocks) {{
  %filled = add i64 %blocks, {blocks - 1}
  %parts = udiv i64 %filled, {blocks}
  ret i64 %parts
}}

define internal ptr @state_of({pointers}, i64 %threads, i64 %parts, i64 %n, i64 %blocks) {{
  %state = call ptr @malloc(i64 {8 * (STATE + len(names))})
  %missing = icmp eq ptr %state, null
  br i1 %missing, label %out, label %fill
fill:
{_stored("state", ("i64 0", "i64 0", "i64 %threads", "i64 %parts", "i64 %n", "i64 %blocks"))}
{stored}
  br label %out
out:
  ret ptr %state
}}"""


def share(pointers: str, num_threads: int, schedule: int) -> str:
    """`@share` runs the whole batch, in several threads if it has several parts and the pool several threads.

    num_threads, schedule: offsets of these functions in XLA's table, in bytes.
    """
    return f"""
define internal void @share({pointers}, i64 %n, i64 %blocks, ptr %api, ptr %context) {{
begin:
  %question = alloca [5 x i64], align 8
  %count = alloca i64, align 8
  %parts = call i64 @parts_of(i64 %blocks)
  %several = icmp sgt i64 %parts, 1
  br i1 %several, label %ask, label %alone
ask:
  store i64 1, ptr %count
{_stored("question", ("i64 32", "ptr null", "ptr %context", "ptr %count"), "n")}
  %to_num_threads = getelementptr i8, ptr %api, i64 {num_threads}
  %num_threads = load ptr, ptr %to_num_threads
  %refused = call ptr %num_threads(ptr %question)
  %pool = load i64, ptr %count
  %fewer = icmp slt i64 %pool, %parts
  %threads = select i1 %fewer, i64 %pool, i64 %parts
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %together, label %alone
together:
  %state = call ptr @state_of({pointers}, i64 %threads, i64 %parts, i64 %n, i64 %blocks)
  %missing = icmp eq ptr %state, null
  br i1 %missing, label %alone, label %given
given:
{_stored("question", ("i64 40", "ptr null", "ptr %context", "ptr @task", "ptr %state"), "t")}
  %to_schedule = getelementptr i8, ptr %api, i64 {schedule}
  %schedule = load ptr, ptr %to_schedule
  br label %give
give:
  %thread = phi i64 [1, %given], [%following, %next]
  %error = call ptr %schedule(ptr %question)
  %taken = icmp eq ptr %error, null
  br i1 %taken, label %next, label %refuse
refuse:
  call void @left(ptr %state)
  br label %next
next:
  %following = add i64 %thread, 1
  %more = icmp slt i64 %following, %threads
  br i1 %more, label %give, label %work
work:
  call void @parts(ptr %state)
  %to_done = getelementptr i64, ptr %state, i64 1
  br label %wait
wait:
  %done = load atomic i64, ptr %to_done acquire, align 8
  %finished = icmp sge i64 %done, %parts
  br i1 %finished, label %leave, label %wait
leave:
  call void @left(ptr %state)
  ret void
alone:
  call void @range({pointers}, i64 %n, i64 0, i64 %blocks)
  ret void
}}"""


def _stored(name: str, values: Sequence[str], label: str = "v") -> str:
    """Values of eight bytes each, one after the other."""
    return "\n".join(
        f"  %{label}{k} = getelementptr i64, ptr %{name}, i64 {k}\n  store {value}, ptr %{label}{k}"
        for k, value in enumerate(values)
    )
