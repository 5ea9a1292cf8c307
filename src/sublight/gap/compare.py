"""Gap: the floor of a step beside its measured time, and everything that can be said from the two."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from sublight.errors import RecordError, UsageError
from sublight.facts.published import published_kernels
from sublight.gap.attainable import Attainable, at_read_rates
from sublight.gap.claims import (
    ClaimedFloor,
    ClaimedPart,
    claimed_floor,
    claimed_parts,
    published_by_row,
    rate_or_time_s,
)
from sublight.gap.measured import MeasuredRow, Remedy, has_collectives, measured_rows, remedies
from sublight.gap.next_steps import NextStep, next_steps
from sublight.gap.same import differences
from sublight.gap.unlike import doubts_of, refuse_other_card
from sublight.limits.decode import DecodeLimit
from sublight.limits.sweep import Point
from sublight.limits.under import collective_floors
from sublight.records import Evidence, Figure, Record, load
from sublight.trace.analysis import Analysis

Standing = Literal["above", "below the best collectives", "below memory"]


class PublishedRow(msgspec.Struct, frozen=True):
    """A row's kernels as others measured them, in seconds a step."""

    id: str
    seconds: float


class Gap(Record, frozen=True, kw_only=True):
    """The floor against one measured step.

    Attributes:
        title: what this is, for a reader.
        limit: the floor, whole.
        measured_s: of one step.
        measured_text: as it was given.
        standing: where the measurement lies. "below memory" breaks physics or an assumption; "below the best
            collectives" needs messages that overlap reads, or are faster than any published.
        published: rows whose kernels others measured; their source and note.
        steps: what to measure next.
        trace: the measured step taken apart, where a trace was given; then `rows` joins it with the floor, and
            `remedies` says what to change first.
        beside: a second gap shown with it: the same model where a trace was taken.
        closed: next steps, by id, that a record of the campaign answers, and how.
        points: the floor over batch sizes, for whoever asks what more requests at once would cost.
        doubts: what says that the trace is of another step than the floor; then the ratio is no gap.
    """

    schema = "gap"
    version = 2

    title: str
    limit: DecodeLimit
    measured_s: Figure
    measured_text: str
    standing: Standing
    claimed_floor: ClaimedFloor | None
    claimed_parts: tuple[ClaimedPart, ...]
    published: tuple[PublishedRow, ...]
    published_source: str
    published_note: str
    steps: tuple[NextStep, ...]
    points: tuple[Point, ...] = ()
    trace: Analysis | None = None
    rows: tuple[MeasuredRow, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    beside: "Gap | None" = None
    closed: dict[str, str] = msgspec.field(default_factory=dict)
    source: str = ""
    attainable_source: str = ""
    doubts: tuple[str, ...] = ()

    def flaws(self) -> Iterator[str]:
        from sublight.gap.closing import gap_flaws

        return gap_flaws(self)

    @property
    def alone(self) -> bool:
        """Whether the trace is of one rank that ran alone: the layout has collectives and the trace none."""
        return self.trace is not None and bool(self.limit.collectives) and not has_collectives(self.trace)

    @property
    def floor_s(self) -> float:
        """The headline: with the best published collectives, or without any where none is known or none was run."""
        best = self.limit.totals.best_s.value
        return self.limit.totals.rows_s if best is None or self.alone else best

    @property
    def ratio(self) -> float:
        return self.measured_s.known / self.floor_s

    @property
    def unexplained_s(self) -> float:
        return self.measured_s.known - self.floor_s


def compare(
    limit: DecodeLimit,
    measured_s: Figure,
    measured_text: str,
    *,
    floor_claim: str | None = None,
    part_claims: Sequence[str] = (),
    points: Sequence[Point] = (),
    trace: Analysis | None = None,
    attainable: Attainable | None = None,
    title: str = "",
    source: str = "",
) -> Gap:
    """Set a measured step beside its floor.

    Args:
        limit: the floor of the very same workload: width of verification included.
        measured_s: the step's time; has to be known.
        floor_claim: a floor that somebody states ("3.2ms", "309 tok/s").
        attainable: what rows can reach on this card; read rates of the card unless given.
        part_claims: parts stated from elsewhere ("bf16+allreduce=8.9ms").

    Raises:
        UsageError, UnknownNameError: a claim that cannot be read, or a trace of another card.
    """
    if trace is not None:
        refuse_other_card(limit, trace)
    step = measured_s.known
    layout = limit.workload.layout
    model = limit.model
    published = None
    if layout.dp == layout.ep == layout.pp == 1:
        published = published_kernels(
            limit.gpu.name,
            layout.tp,
            limit.workload.tokens,
            model_type=model.model_type,
            hidden=model.hidden,
            experts=model.experts,
            expert_width=model.expert_width,
        )
    known = published_by_row(limit, published)
    floors = {r.id: r.time_s for r in limit.rows if r.stage == "main"}
    floors |= collective_floors(limit)
    excess = {id_: seconds - floors[id_] for id_, seconds in known.items() if id_ in floors}
    attainable = attainable or at_read_rates(limit)
    rows = measured_rows(limit, trace, attainable) if trace is not None else ()
    return Gap(
        title=title or f"{limit.model.name} on {limit.gpu.count}x {limit.gpu.title}",
        limit=limit,
        measured_s=measured_s,
        measured_text=measured_text,
        standing=standing_of(limit, step, trace),
        claimed_floor=claimed_floor(limit, step, floor_claim) if floor_claim else None,
        claimed_parts=claimed_parts(limit, step, part_claims, published),
        published=tuple(PublishedRow(id_, seconds) for id_, seconds in known.items()),
        published_source=published.source if published else "",
        published_note=published.note if published else "",
        # A trace answers what these would ask.
        steps=()
        if trace is not None
        else tuple(next_steps(limit, step, excess, published.source if published else "")),
        points=tuple(points),
        trace=trace,
        rows=rows,
        attainable_source=attainable.source if attainable is not None and rows else "",
        remedies=remedies(limit, rows, trace) if trace is not None else (),
        source=source,
        doubts=doubts_of(limit, trace) if trace is not None else (),
    )


def with_beside(gap: Gap, other: Gap) -> Gap:
    """The same gap, shown with another one."""
    return msgspec.structs.replace(gap, beside=other)


def with_closed(gap: Gap, closed: dict[str, str]) -> Gap:
    """The same gap, with next steps marked that other records answer."""
    return msgspec.structs.replace(gap, closed=closed)


def standing_of(limit: DecodeLimit, measured_s: float, trace: Analysis | None) -> Standing:
    """Where a measurement lies: of a trace without collectives, above its rows alone is above."""
    if measured_s < limit.totals.strict_s:
        return "below memory"
    best = limit.totals.best_s.value
    if trace is not None and not has_collectives(trace):
        best = None
    if measured_s < (limit.totals.rows_s if best is None else best):
        return "below the best collectives"
    return "above"


def measured_from_text(
    text: str, limit: DecodeLimit, evidence: Evidence = Evidence.GIVEN, source: str = "--measured"
) -> tuple[Figure, str]:
    """A step's time as typed: "97ms", or "10.36 tok/s" of one request. Raises UsageError.

    A rate counts tokens, a floor counts steps: under speculation the two differ by the tokens a step yields, and a rate
    cannot be used where that is not known.
    """
    per_step = limit.tokens_per_step
    if per_step is None and "tok" in text:
        raise UsageError(
            f"--measured {text!r} under speculation",
            "a rate of tokens is no step time while the tokens a step are not known",
            "--accepted with the measured tokens a step, or the step's time",
        )
    seconds = rate_or_time_s(text, "--measured", per_step or 1.0)
    return Figure(seconds, evidence, source=source), text


def measured_from_record(path: Path, limit: DecodeLimit) -> tuple[Figure, str]:
    """The measured step of a saved gap. Raises RecordError, or UsageError when it was of another step."""
    record = load(path, {"gap": Gap})
    if not isinstance(record, Gap):
        raise RecordError(f"--measured {path}", "it holds no measured step", "a record saved by `sublight gap --save`")
    differs = differences(limit, record.limit)
    if differs:
        raise UsageError(
            f"--measured {path}",
            "it was measured in another step: " + "; ".join(differs),
            "a record of the very same step, or the step's time",
        )
    figure = msgspec.structs.replace(record.measured_s, source=f"{path.name}: {record.measured_s.source}")
    return figure, record.measured_text


def measured_from_trace(trace: Analysis) -> tuple[Figure, str]:
    """The median step of a trace, start to start. The profiler itself slows a step down a little, eager ones a lot."""
    name = Path(trace.source.path).name
    return Figure(trace.breakdown.wall_ns * 1e-9, Evidence.MEASURED, source=f"{name}, under the profiler"), name
