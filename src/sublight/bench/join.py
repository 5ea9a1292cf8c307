"""From records of benchmarks to what the rows of a step can attain: seconds a step, by row. No torch."""

from collections.abc import Iterator

import msgspec

from sublight.bench.record.comm import CommBench
from sublight.bench.record.kernels import KernelBench
from sublight.bench.record.measurement import MODE_OF, BenchRecord
from sublight.bench.record.ops import OpsBench
from sublight.errors import UsageError
from sublight.facts.workload import Layout
from sublight.limits.decode import DecodeLimit
from sublight.limits.under import under_floor
from sublight.records import Record
from sublight.units import counted

BENCH_TYPES: dict[str, type[Record]] = {r.schema: r for r in (KernelBench, OpsBench, CommBench)}


class Joined(msgspec.Struct, frozen=True):
    """Seconds a step by row, where they come from, and each row that was left out with the reason.

    `under` are rows among them whose time lies under their floor, and why that can be; `eager` those whose launches
    were timed one by one.
    """

    rows: dict[str, float]
    source: str
    missing: dict[str, str]
    under: dict[str, str]
    eager: tuple[str, ...] = ()


class _Time(msgspec.Struct, frozen=True):
    """A row's seconds a step, or why it has none; what was timed, and by which clocks."""

    row: str
    seconds: float | None
    words: str
    clocks: frozenset[str] = frozenset()

    @property
    def is_eager(self) -> bool:
        return any(MODE_OF[clock] == "eager" for clock in self.clocks)


def joined(record: BenchRecord, limit: DecodeLimit, name: str) -> Joined:
    """The rows of a limit that a benchmark timed.

    Args:
        name: how errors and the source call the record.

    Raises:
        UsageError: a rehearsal, another card, model, layout or step: its times are not those of this step.
    """
    asked = f"--bench {name}"
    _check(record, limit, asked)
    match record:
        case OpsBench():
            times = list(_ops(record))
        case KernelBench():
            times = list(_experts(record, limit))
        case CommBench():
            times = list(_collectives(record, limit))
        case _:
            raise UsageError(asked, "it holds no times of rows", "a record of `sublight bench ops`, kernels or comm")
    known = {r.id for r in limit.rows if r.stage == "main"} | {c.id for c in limit.collectives}
    rows: dict[str, float] = {}
    out: dict[str, str] = {}
    below: dict[str, str] = {}
    for time in times:
        if time.row not in known:
            continue
        if time.seconds is None:
            out[time.row] = time.words
            continue
        under = under_floor(limit, time.row, time.seconds)
        if under is not None and not under.possible:
            out[time.row] = under.why
            continue
        rows[time.row] = time.seconds
        if under is not None:
            below[time.row] = under.why
    if not rows:
        why = "; ".join(f"{row} ({words})" for row, words in out.items())
        raise UsageError(asked, f"none of its rows can be used: {why or 'it has none'}", "another record")
    environment = record.environment
    source = f"{name}: measured on {environment.title}, torch {environment.torch}, driver {environment.driver or '?'}"
    named = [t.words for t in times if t.words and t.seconds is not None]
    source += f" ({'; '.join(dict.fromkeys(named))})" if named else ""
    eager = tuple(time.row for time in times if time.row in rows and time.is_eager)
    return Joined(rows, source + (", launched one by one" if eager else ""), out, below, eager)


def _check(record: BenchRecord, limit: DecodeLimit, asked: str) -> None:
    if record.is_rehearsal:
        raise UsageError(
            asked, "it is a rehearsal on a CPU, whose times stand for no GPU's", f"the same on a {limit.gpu.title}"
        )
    if record.environment.card != limit.gpu.name:
        found = f"it was measured on {record.environment.title}, the step is one of {limit.gpu.name}"
        raise UsageError(asked, found, "times of the same card")
    if record.model != limit.model.name:
        found = f"it is of {record.model}, the step one of {limit.model.name}"
        raise UsageError(asked, found, "a benchmark of the same model")
    layout = limit.workload.layout
    wanted = str(layout if isinstance(record, OpsBench) else Layout(tp=layout.tp, ep=layout.ep))
    if record.layout != wanted:
        raise UsageError(asked, f"it is of {record.layout}, the step of {wanted}", "a benchmark of the same layout")
    work = limit.workload
    if isinstance(record, (OpsBench, CommBench)) and record.tokens != work.tokens:
        raise UsageError(
            asked, f"it is of {counted(record.tokens, 'token')} a step, this is of {work.tokens:,}", "the same --batch"
        )
    if isinstance(record, OpsBench) and (record.context, record.kv_dtype) != (work.context, work.kv_dtype):
        found = f"it is of context {record.context:,} in {record.kv_dtype}, this of {work.context:,} in {work.kv_dtype}"
        raise UsageError(asked, found, "the same --context and --kv-dtype")
    if isinstance(record, CommBench) and record.processes != layout.tp:
        found = (
            f"{counted(record.processes, 'process', 'processes')} took part, the step has {counted(layout.tp, 'rank')}"
        )
        raise UsageError(asked, found, f"sublight bench comm with --processes {layout.tp}")


def _ops(record: OpsBench) -> Iterator[_Time]:
    for row in record.rows:
        hot = row.warning
        seconds = None if hot else row.step_s
        clocks = frozenset(part.measurement.clock for part in row.parts if part.measurement is not None)
        yield _Time(row.id, seconds, (hot or row.reason) if seconds is None else "", clocks)


def _experts(record: KernelBench, limit: DecodeLimit) -> Iterator[_Time]:
    """The fastest candidate at this step's tokens."""
    row = "moe.experts"
    calls = next((r.cost.calls for r in limit.rows if r.id == row and r.stage == "main"), 0)
    shape = next((s for s in record.shapes if s.tokens == limit.workload.tokens), None)
    if shape is None:
        yield _Time(row, None, f"not timed at {counted(limit.workload.tokens, 'token')}")
        return
    timed = [
        (r.measurement.seconds, r.name, r.measurement.clock)
        for r in shape.results
        if r.measurement is not None and not r.measurement.warning and r.kind != "reference"
    ]
    if not timed:
        yield _Time(row, None, "no candidate has a time of memory")
        return
    seconds, name, clock = min(timed)
    yield _Time(row, seconds * calls, f"routed experts by {name}", frozenset({clock}))


def _collectives(record: CommBench, limit: DecodeLimit) -> Iterator[_Time]:
    """Each row by the fastest way, over all payloads that it sends."""
    calls = {c.id: c.calls for c in limit.collectives}
    total: dict[str, float] = {}
    ways: dict[str, str] = {}
    for message in record.messages:
        best = message.best
        for row, count in message.rows.items():
            if best is None or best.measurement is None:
                yield _Time(row, None, "; ".join(w.reason for w in message.ways))
            elif row in calls:
                total[row] = total.get(row, 0.0) + count * best.measurement.seconds
                ways[row] = f"{message.operation} by {best.name}"
    for row, seconds in total.items():
        yield _Time(row, seconds, ways[row])
