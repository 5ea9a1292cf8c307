"""The findings page of a campaign."""

from sublight.campaign.findings import Findings
from sublight.campaign.note import Note as CampaignNote
from sublight.report.blocks import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Heading,
    Headline,
    Line,
    Listing,
    Note,
    Paragraph,
    Table,
)
from sublight.report.views.common import times_floor
from sublight.report.views.gap import gap_document
from sublight.report.views.standings import audit_blocks, bench_blocks, host_blocks, when
from sublight.units import show_ms, show_ratio, show_time

_MOST_SUBJECTS = 4  # in the headline; the table of measured steps has all


def findings_document(found: Findings) -> Document:
    """Where the campaign stands, how it got there, what runs on which machine, what did not help, the newest gap."""
    blocks: list[Block] = [Paragraph(f"As of {found.date}", "muted")]
    several = len({mark.of for mark in found.marks}) > 1
    if found.marks:
        blocks += [Headline(_newest_of_each(found) if several else _newest(found))]
        blocks += [Heading("Measured steps"), _marks(found)]
    if found.closed:
        # An answer is no good news by itself: memory that is not reached closes the question too.
        items = tuple(Cell(f"{_of(c.of, several)}{c.title}: {c.evidence} ({c.file})") for c in found.closed)
        blocks += [Heading("Closed"), Listing(items)]
    if found.open:
        blocks.append(Heading("Still to measure"))
        for step in found.open:
            told = f"{_of(step.of, several)}{step.title}: would explain up to {show_ms(step.explains_high_s)} ms"
            blocks.append(Paragraph(f"{told}. {step.why}. Closed by a note with --closes {step.id}."))
            if step.command:
                blocks.append(Code(step.command))
    blocks += [block for audit in found.audits for block in audit_blocks(audit)]
    if found.host is not None:
        blocks += host_blocks(found.host)
    blocks += bench_blocks(found.benches)
    negative = [n for n in found.notes if n.kind == "negative result"]
    if negative:
        blocks += [Heading("What did not help"), Listing(tuple(Cell(f"{n.text} ({n.file})") for n in negative))]
    remarks = [n for n in found.notes if n.kind == "remark"]
    if remarks:
        blocks += [Heading("Remarks"), Listing(tuple(Cell(f"{n.text} ({n.file})") for n in remarks))]
    blocks += [Note(f"Left out: {reason}", "warn") for reason in found.left_out]
    if found.latest is not None:
        newest = gap_document(found.latest)
        blocks += [Heading("The newest gap"), *newest.whole]
    return Document(found.title, tuple(blocks), "Sublight: findings of a campaign")


def _newest(found: Findings) -> tuple[tuple[str, str, str], ...]:
    last = found.marks[-1]
    figures = [
        ("step now", show_time(last.measured_s), last.what),
        ("floor", show_time(last.floor_s), f"the step is {times_floor(last.ratio, 'that floor')}"),
    ]
    return (*figures, *_since(found, "since the first"))


def _since(found: Findings, label: str) -> tuple[tuple[str, str, str], ...]:
    """How far the newest step is from the first that did the same work."""
    last = found.marks[-1]
    first = next(mark for mark in found.marks if mark.comparable or mark is last)
    if first is last:
        return ()
    return ((label, show_ratio(first.measured_s / last.measured_s), f"it was {show_time(first.measured_s)}"),)


def _newest_of_each(found: Findings) -> tuple[tuple[str, str, str], ...]:
    """Steps of several models or cards are no course of one: the newest of each, the newest first."""
    newest = {mark.of: mark for mark in found.marks}
    order = sorted(newest.values(), key=found.marks.index, reverse=True)
    figures = [
        (
            f"newest step of {mark.of}" if mark.of else "newest step",
            show_time(mark.measured_s),
            f"{times_floor(mark.ratio, f'the floor of {show_time(mark.floor_s)}')}; {mark.what}",
        )
        for mark in order[:_MOST_SUBJECTS]
    ]
    return (*figures, *_since(found, f"since the first of {found.marks[-1].of}"))


def _of(subject: str, several: bool) -> str:
    return f"{subject}: " if several and subject else ""


def _marks(found: Findings) -> Table:
    columns = (
        Column("when"),
        Column("step ms", "right"),
        Column("floor ms", "right"),
        Column("ratio", "right"),
        Column("what", "left", 1),
        Column("file", "left", 2),
    )
    lines = [
        Line(
            (
                Cell(when(mark.written_at)),
                Cell(show_ms(mark.measured_s)),
                Cell(show_ms(mark.floor_s)),
                Cell(show_ratio(mark.ratio)),
                Cell(mark.what + (", with a trace" if mark.by_trace else "")),
                Cell(mark.file, "muted"),
            )
        )
        for mark in found.marks
    ]
    return Table(columns, tuple(lines))


def note_document(note: CampaignNote) -> Document:
    """A note by itself."""
    blocks: list[Block] = [Paragraph(note.text)]
    if note.closes:
        blocks.append(Paragraph(f"Closes: {', '.join(note.closes)}", "muted"))
    return Document(note.kind.capitalize(), tuple(blocks), "Sublight: note")
