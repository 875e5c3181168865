"""The timing of `lgjax bench`, for the benchmarks; importing it does not import JAX, so that cores can be set first."""

import os
import sys
from collections.abc import Iterable
from typing import Any


def pin_to_cores(count: int) -> None:
    """Bind this process to `count` cores; call it before jax or a peer is imported. XLA follows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(count)


def environment() -> dict[str, Any]:
    """Where and with what this runs."""
    import lgjax
    from lgjax.cli.bench import timing

    return timing.environment(lgjax=lgjax.__version__)


def report(name: str, rows: list[dict[str, Any]], columns: list[str], out: str | None) -> None:
    """Print the table under a line that says where it was measured; write everything to the JSON file `out`."""
    from lgjax.cli.bench import timing

    where = environment()
    print(f"\n{name}: {timing.headline(where)}\n")
    print(timing.table(rows, columns))
    if out:
        timing.save(out, name, where, rows)
        print(f"\nwritten to {out}", file=sys.stderr)


def collect(name: str, rows: Iterable[dict[str, Any]], columns: list[str], out: str | None) -> None:
    """`report` of rows that are shown as they come."""
    rows = [_shown(row, columns) for row in rows]
    report(name, rows, columns, out)


def _shown(row: dict[str, Any], columns: list[str]) -> dict[str, Any]:
    print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items() if k in columns}, flush=True)
    return row


def __getattr__(name: str) -> Any:
    """`compiled`, `steady` and `table`."""
    from lgjax.cli.bench import timing

    return getattr(timing, name)
