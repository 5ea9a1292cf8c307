"""Findings: everything a campaign's folder says, as one record: how the gap went, what is closed, what did not help."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from sublight.campaign.folder import Entry, Folder, today
from sublight.campaign.note import Note
from sublight.errors import UsageError
from sublight.gap.compare import Gap
from sublight.gap.next_steps import NextStep
from sublight.gap.same import SAME_SHAPES, SAME_WORK, alike
from sublight.limits.decode import DecodeLimit
from sublight.records import Evidence, Record, differ, repeated
from sublight.trace.analysis import Analysis


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One measured step of the campaign. `comparable` says whether the newest does the same work on the same cards."""

    file: str
    written_at: str
    what: str
    measured_s: float
    floor_s: float
    ratio: float
    by_trace: bool
    comparable: bool = True


class Closed(msgspec.Struct, frozen=True):
    """A next step, and the later file that answers it."""

    step: str
    title: str
    file: str
    evidence: str


class Remark(msgspec.Struct, frozen=True):
    """A note of the folder."""

    file: str
    written_at: str
    text: str
    kind: str


class Findings(Record, frozen=True, kw_only=True):
    """A campaign so far.

    Attributes:
        marks: measured steps, oldest first.
        latest: the newest gap, whole.
        closed, open: next steps that were named, with the record that answers them, or still to do.
        notes: remarks and negative results, oldest first.
        left_out: files of the folder that are no record, and why.
    """

    schema = "findings"
    version = 1

    title: str
    date: str
    marks: tuple[Mark, ...]
    latest: Gap | None
    closed: tuple[Closed, ...]
    open: tuple[NextStep, ...]
    notes: tuple[Remark, ...]
    left_out: tuple[str, ...]

    def flaws(self) -> Iterator[str]:
        for mark in self.marks:
            if mark.measured_s <= 0 or mark.floor_s <= 0 or differ(mark.ratio, mark.measured_s / mark.floor_s):
                yield f"the step measured in {mark.file} does not follow from its numbers"
        for step in repeated([*(c.step for c in self.closed), *(s.id for s in self.open)]):
            yield f"next step {step} is there twice"
        if self.latest is not None:
            yield from self.latest.flaws()


def findings(folder: Folder, title: str = "") -> Findings:
    """What the folder says. Raises UsageError when it holds no record at all."""
    if not folder.entries:
        reason = f"; {folder.left_out[0]}" if folder.left_out else ""
        raise UsageError(
            f"a report of {folder.path}",
            f"the folder holds no record{reason}",
            f"sublight gap MODEL ... --campaign {folder.path}",
        )
    gaps = folder.of("gap")
    latest = gaps[-1].record if gaps else None
    closed, still_open = close_steps(folder)
    steps = [(e, e.record) for e in gaps if isinstance(e.record, Gap)]
    return Findings(
        title=title or f"Campaign {Path(folder.path).resolve().name}",
        date=today(),
        marks=tuple(_mark(entry, gap, steps[-1][1]) for entry, gap in steps),
        latest=latest if isinstance(latest, Gap) else None,
        closed=tuple(closed),
        open=tuple(still_open),
        notes=tuple(
            Remark(e.file, e.written_at, e.record.text, e.record.kind)
            for e in folder.entries
            if isinstance(e.record, Note)
        ),
        left_out=folder.left_out,
    )


def _mark(entry: Entry, gap: Gap, newest: Gap) -> Mark:
    work = gap.limit.workload
    return Mark(
        file=entry.file,
        written_at=entry.written_at,
        what=f"{gap.limit.model.name}, {gap.limit.gpu.count}x {gap.limit.gpu.name}, {work.layout}, batch {work.batch}, "
        f"context {work.context:,}",
        measured_s=gap.measured_s.known,
        floor_s=gap.floor_s,
        ratio=gap.ratio,
        by_trace=gap.trace is not None,
        comparable=alike(gap.limit, newest.limit, SAME_WORK),
    )


def close_steps(folder: Folder) -> tuple[list[Closed], list[NextStep]]:
    """Every next step that some gap named, once: closed by the first later record that answers it, else open."""
    closed: dict[str, Closed] = {}
    named: dict[str, NextStep] = {}
    for place, entry in enumerate(folder.entries):
        if not isinstance(entry.record, Gap):
            continue
        for step in entry.record.steps:
            named[step.id] = step
            for later in folder.entries[place + 1 :]:
                if isinstance(later.record, Gap) and not alike(entry.record.limit, later.record.limit, SAME_SHAPES):
                    continue
                evidence = _answers(step.id, later.record)
                if evidence and step.id not in closed:
                    closed[step.id] = Closed(step.id, step.title, later.file, evidence)
                    break
    return list(closed.values()), [step for id_, step in named.items() if id_ not in closed]


def _answers(step: str, record: Record) -> str:
    """How a record answers a next step; "" if it does not."""
    if isinstance(record, Note):
        return record.text if step in record.closes else ""
    limit: DecodeLimit | None = record.limit if isinstance(record, Gap) else None
    trace = record.trace if isinstance(record, Gap) else record if isinstance(record, Analysis) else None
    if trace is not None:
        wall = trace.breakdown.wall_ns / 1e6
        if step == "trace":
            return f"a trace takes the step apart: {wall:,.2f} ms, idle {trace.breakdown.idle_ns / 1e6:,.2f} ms"
        if step == "cuda-graph":
            return f"decode {'runs' if trace.step.replayed else 'does not run'} in a CUDA graph"
        if step == "graph-gaps":
            idle = sum(i.ns for i in trace.breakdown.idle) / 1e6
            return f"{trace.step.kernels:,} kernels a step, idle {idle:,.2f} ms"
        if step == "kernels":
            return f"kernels sum to {trace.kernel_ns / 1e6:,.2f} ms in the step"
    if limit is not None:
        if step == "all-reduce" and any(c.best_s.evidence is Evidence.GIVEN for c in limit.collectives):
            return f"{(limit.collectives[0].best_s.value or 0) * 1e6:.1f} us a call were measured"
        if step == "bandwidth" and limit.gpu.bandwidth_bytes_per_s.evidence in (Evidence.GIVEN, Evidence.MEASURED):
            return f"{limit.gpu.bandwidth_bytes_per_s.known / 1e9:,.0f} GB/s were measured"
    return ""
