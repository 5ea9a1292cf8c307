"""What was attained: the fastest time of each thing that the newest benchmark of a kind measured."""

from collections.abc import Iterator

import msgspec

from sublight.bench.record.comm import CommBench
from sublight.bench.record.kernels import KernelBench, Result
from sublight.bench.record.measurement import BenchRecord
from sublight.bench.record.ops import OpsBench
from sublight.campaign.folder import Folder


class Attained(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was timed.

    Attributes:
        row: of the step, "" where it is no single one.
        tokens, payload_bytes, operation: of what; None or "" where that does not tell it apart.
        time_s: of one call; of a row all of its calls in a step.
        by: whose kernel or library.
        read_s: one launch that only reads the same bytes, in the same run; None where that is not known, as of weights
            in another format than the model's.
    """

    row: str = ""
    tokens: int | None = None
    operation: str = ""
    payload_bytes: int | None = None
    time_s: float
    by: str
    read_s: float | None = None


class BenchStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The newest benchmark of one kind.

    Attributes:
        kind: its schema.
        rehearsal: whether it ran on a CPU, whose times stand for no GPU's.
        read_bytes_per_s: of its largest read-only launch, None where there was none.
        without_time: how many things have none; the record names the reason of each.
        over: what else tells the run apart: "batch 16, over 2 processes".
        left_out: other records of the kind in the folder, by file, with what they ran over.
    """

    file: str
    written_at: str
    kind: str
    device: str
    model: str
    layout: str
    rehearsal: bool
    read_bytes_per_s: float | None
    attained: tuple[Attained, ...]
    without_time: int
    # Findings written before they were named have none of these.
    over: str = ""
    left_out: tuple[str, ...] = ()


def benches(folder: Folder) -> tuple[BenchStanding, ...]:
    """The newest record of each kind; a rehearsal only where nothing was measured. The others are named beside it."""
    found: dict[str, BenchStanding] = {}
    every: dict[str, list[BenchStanding]] = {}
    for entry in folder.entries:
        record = entry.record
        if not isinstance(record, BenchRecord):
            continue
        standing = _standing(entry.file, entry.written_at, record)
        every.setdefault(record.schema, []).append(standing)
        known = found.get(record.schema)
        if known is None or known.rehearsal or not record.is_rehearsal:
            found[record.schema] = standing
    return tuple(
        msgspec.structs.replace(shown, left_out=tuple(_named(one) for one in every[kind] if one is not shown))
        for kind, shown in found.items()
    )


def _named(one: BenchStanding) -> str:
    of = ", ".join(part for part in (one.model, one.layout, one.over, "a rehearsal" if one.rehearsal else "") if part)
    return f"{one.file} ({of})"


def _over(record: BenchRecord) -> str:
    """What of a run its model and layout do not say."""
    match record:
        case CommBench():
            return f"batch {record.tokens:,}, over {record.processes:,} processes"
        case OpsBench():
            return f"batch {record.tokens:,}, context {record.context:,}"
    return ""


def _standing(file: str, written_at: str, record: BenchRecord) -> BenchStanding:
    timed = list(_timed(record))
    kept = tuple(one for one in timed if one is not None)
    read = None
    if isinstance(record, KernelBench | OpsBench) and record.ceilings.read_s:
        size, seconds = record.ceilings.read_s[-1]
        read = size / seconds
    return BenchStanding(
        file=file,
        written_at=written_at,
        kind=record.schema,
        device=record.environment.title,
        model=record.model,
        layout=record.layout,
        rehearsal=record.is_rehearsal,
        read_bytes_per_s=read,
        attained=kept,
        without_time=len(timed) - len(kept),
        over=_over(record),
    )


def _timed(record: BenchRecord) -> Iterator[Attained | None]:
    """What each thing took; None where nothing took part, or was faster than memory allows."""
    match record:
        case KernelBench():
            for shape in record.shapes:
                best = _fastest(shape.results)
                yield best and Attained(
                    row="moe.experts",
                    tokens=shape.tokens,
                    time_s=best[1],
                    by=best[0].name,
                    read_s=shape.floor_s if best[0].bytes == shape.bytes else None,
                )
        case OpsBench():
            for row in record.rows:
                libraries = ", ".join(dict.fromkeys(part.library for part in row.parts if part.library))
                seconds = None if row.warning else row.step_s
                # A row of a step is read in as many launches as it has parts.
                read_s = sum(part.count * record.ceilings.floor_s(part.bytes) for part in row.parts)
                yield None if seconds is None else Attained(row=row.id, time_s=seconds, by=libraries, read_s=read_s)
        case CommBench():
            for message in record.messages:
                way = message.best
                yield (
                    None
                    if way is None or way.measurement is None
                    else Attained(
                        operation=message.operation,
                        payload_bytes=message.payload_bytes,
                        time_s=way.measurement.seconds,
                        by=way.name,
                    )
                )


def _fastest(results: tuple[Result, ...]) -> tuple[Result, float] | None:
    """The result and time of the fastest that is no oracle and did not read from a cache."""
    timed = [
        (r, r.measurement.seconds)
        for r in results
        if r.measurement is not None and not r.measurement.warning and r.kind != "reference"
    ]
    return min(timed, key=lambda one: one[1], default=None)
