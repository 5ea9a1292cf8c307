"""Whether a limit's numbers are those of one step: every total is the sum of its rows, every row is there once."""

from collections.abc import Iterator
from typing import Literal

from sublight.limits.decode import DecodeLimit
from sublight.limits.sweep import Sweep
from sublight.records import differ, repeated
from sublight.rows import ROWS
from sublight.units import counted


def limit_flaws(limit: DecodeLimit) -> Iterator[str]:
    """What contradicts itself in a limit; nothing in one that was computed."""
    yield from _names(limit)
    yield from _inputs(limit)
    for row in limit.rows:
        if differ(row.time_s, max(row.memory_s, row.compute_s)):
            yield f"the floor of row {row.id} is not the larger of its memory and its arithmetic"
    totals = limit.totals
    memory_s, rows_s = sum(r.memory_s for r in limit.rows), sum(r.time_s for r in limit.rows)
    floor_s = rows_s if totals.best_s.value is None else totals.best_s.value
    naive_s = limit.model.active_bytes / (limit.gpu.bandwidth_bytes_per_s.known * limit.gpu.count)
    stated: tuple[tuple[str, float | None, float | None], ...] = (
        ("naive_s", totals.naive_s, naive_s),
        ("memory_s", totals.memory_s, memory_s),
        ("rows_s", totals.rows_s, rows_s),
        ("strict_s", totals.strict_s, max(memory_s, sum(r.compute_s for r in limit.rows))),
        ("best_s", totals.best_s.value, _with_messages(limit, rows_s, "best_s")),
        ("nccl_s", totals.nccl_s.value, _with_messages(limit, rows_s, "nccl_s")),
    )
    for name, total, parts in stated:
        if differ(total, parts):
            yield f"its total {name} is {_text(total)}, and its parts make {_text(parts)}"
    if differ(sum(t.seconds for t in limit.terms), floor_s):
        yield "the terms between the naive number and the floor do not sum to the floor"


def sweep_flaws(sweep: Sweep) -> Iterator[str]:
    """What contradicts itself in a sweep."""
    yield from limit_flaws(sweep.first)
    batches = [p.batch for p in sweep.points]
    if not batches or repeated(batches) or min(batches) < 1:
        yield f"its batch sizes are {batches}"
        return
    first, totals = sweep.points[0], sweep.first.totals
    if first.batch != sweep.first.workload.batch or differ(first.rows_s, totals.rows_s):
        yield "its first batch size is not the one of the limit in it"
    for point in sweep.points:
        if not set(point.bound) <= set(ROWS):
            yield f"batch {point.batch} has rows that no step has"


def _names(limit: DecodeLimit) -> Iterator[str]:
    unknown = [i for i in (*(r.id for r in limit.rows), *(c.id for c in limit.collectives)) if i not in ROWS]
    if unknown:
        yield f"{unknown[0]!r} is no row of a step"
    for id_, stage in repeated((r.id, r.stage) for r in limit.rows):
        yield f"row {id_} ({stage}) is there twice"
    for id_, payload in repeated((c.id, c.payload_bytes) for c in limit.collectives):
        yield f"collective {id_} of {payload} bytes is there twice"
    for id_ in repeated(t.id for t in limit.terms):
        yield f"term {id_} is there twice"


def _inputs(limit: DecodeLimit) -> Iterator[str]:
    bandwidth = limit.gpu.bandwidth_bytes_per_s.value
    if bandwidth is None or bandwidth <= 0:
        yield "the bandwidth of its card is not known"
    if limit.gpu.count != limit.workload.layout.gpus:
        yield f"it counts {counted(limit.gpu.count, 'GPU')}, and its layout takes {limit.workload.layout.gpus}"
    if limit.model.active_bytes <= 0 or limit.totals.naive_s <= 0 or limit.totals.rows_s <= 0:
        yield "its floor is 0"


def _with_messages(limit: DecodeLimit, rows_s: float, choice: Literal["best_s", "nccl_s"]) -> float | None:
    """Rows and every message; not known as soon as one message is not."""
    total = rows_s
    for collective in limit.collectives:
        one = collective.best_s.value if choice == "best_s" else collective.nccl_s.value
        if one is None:
            return None
        total += collective.calls * one
    return total


def _text(seconds: float | None) -> str:
    return "not known" if seconds is None else f"{seconds:.6g} s"
