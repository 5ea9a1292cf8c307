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


def findings_document(found: Findings) -> Document:
    """Where the campaign stands, how it got there, what runs on which machine, what did not help, the newest gap."""
    blocks: list[Block] = [Paragraph(f"As of {found.date}", "muted")]
    if found.marks:
        last = found.marks[-1]
        first = next(mark for mark in found.marks if mark.comparable or mark is last)
        figures = [
            ("step now", show_time(last.measured_s), last.what),
            ("floor", show_time(last.floor_s), f"the step is {times_floor(last.ratio, 'that floor')}"),
        ]
        if first is not last:
            gained = first.measured_s / last.measured_s
            figures.append(("since the first", show_ratio(gained), f"it was {show_time(first.measured_s)}"))
        blocks.append(Headline(tuple(figures)))
        blocks += [Heading("Measured steps"), _marks(found)]
    if found.closed:
        # An answer is no good news by itself: memory that is not reached closes the question too.
        items = tuple(Cell(f"{c.title}: {c.evidence} ({c.file})") for c in found.closed)
        blocks += [Heading("Closed"), Listing(items)]
    if found.open:
        blocks.append(Heading("Still to measure"))
        for step in found.open:
            high = show_ms(step.explains_high_s)
            blocks.append(Paragraph(f"{step.title}: would explain up to {high} ms. {step.why}."))
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
