"""Findings: everything a campaign's folder says, as one record: how the gap went, what is closed, what did not help."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from sublight.audit.ladder import Rung
from sublight.campaign.attained import BenchStanding, benches
from sublight.campaign.backends import AuditStanding, audits
from sublight.campaign.closing import Closed, OpenStep, close_steps, subject_of
from sublight.campaign.folder import Entry, Folder, today
from sublight.campaign.machine import HostStanding, host
from sublight.campaign.note import Note
from sublight.errors import UsageError
from sublight.gap.compare import Gap
from sublight.gap.same import SAME_WORK, alike
from sublight.records import Record, differ, repeated


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One measured step of the campaign.

    `comparable` says whether the newest does the same work on the same cards; `of` is its model and cards.
    """

    file: str
    written_at: str
    what: str
    measured_s: float
    floor_s: float
    ratio: float
    by_trace: bool
    comparable: bool = True
    of: str = ""


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
        audits: the newest audit of each engine.
        host: what the newest look at a machine leaves to do.
        benches: what the newest benchmark of each kind attained.
    """

    schema = "findings"
    version = 2

    title: str
    date: str
    marks: tuple[Mark, ...]
    latest: Gap | None
    closed: tuple[Closed, ...]
    open: tuple[OpenStep, ...]
    notes: tuple[Remark, ...]
    left_out: tuple[str, ...]
    # Records of version 1 have none of these.
    audits: tuple[AuditStanding, ...] = ()
    host: HostStanding | None = None
    benches: tuple[BenchStanding, ...] = ()

    def flaws(self) -> Iterator[str]:
        for mark in self.marks:
            if mark.measured_s <= 0 or mark.floor_s <= 0 or differ(mark.ratio, mark.measured_s / mark.floor_s):
                yield f"the step measured in {mark.file} does not follow from its numbers"
        steps = [*((c.step, c.of) for c in self.closed), *((s.id, s.of) for s in self.open)]
        for step in repeated([" of ".join(filter(None, key)) for key in steps]):
            yield f"next step {step} is there twice"
        for audit in self.audits:
            for engine in audit.engines:
                for ladder in engine.ladders:
                    if tuple(step.rung for step in ladder.steps) != tuple(Rung):
                        yield f"{engine.name}'s {ladder.name} has not each rung once, in order"
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
        audits=audits(folder),
        host=host(folder),
        benches=benches(folder),
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
        of=subject_of(gap.limit),
    )
