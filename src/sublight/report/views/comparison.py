"""The document of two traces side by side."""

from sublight.report.blocks import Block, Cell, Column, Document, Heading, Headline, Line, Listing, Paragraph, Table
from sublight.report.views.trace import row_title
from sublight.trace.compare import Part, TraceComparison, Verdict
from sublight.trace.kernels import short_name
from sublight.units import counted, show_count, show_time

_TONE = {Verdict.BEYOND: "strong", Verdict.WITHIN: "muted", Verdict.TOO_FEW: "muted"}


def comparison_document(found: TraceComparison) -> Document:
    """The step on both sides, then row by row, then which kernels replaced which."""
    step = found.step
    change = step.difference_ns
    blocks: list[Block] = [
        Paragraph(f"A: {found.a.title} ({counted(found.a.steps, f'{found.a.phase} step')})", "muted"),
        Paragraph(f"B: {found.b.title} ({counted(found.b.steps, f'{found.b.phase} step')})", "muted"),
        Headline(
            (
                ("A", show_time(step.a.median_ns * 1e-9), "median step"),
                ("B", show_time(step.b.median_ns * 1e-9), "median step"),
                ("B less A", f"{_signed(change)} ms", f"{step.verdict.value}, p = {step.p:.3g}"),
            )
        ),
        Heading("Row by row" + (", per layer" if found.unit == "layer" else "")),
        _parts(found),
    ]
    if found.replaced:
        blocks += [Heading("Kernels that only one side has"), _replaced(found)]
    if found.notes:
        blocks += [Heading("How to read this"), Listing(tuple(Cell(note) for note in found.notes))]
    return Document("Two traces", tuple(blocks), "Sublight: read from two profiler traces")


def _parts(found: TraceComparison) -> Table:
    columns = (
        Column("row"),
        Column("A ms", "right"),
        Column("B ms", "right"),
        Column("B less A", "right"),
        Column("p, for all rows", "right", 2),
        Column("verdict", "left", 1),
        Column("A kernels ms", "right", 3),
        Column("B kernels ms", "right", 3),
    )
    lines = [_line(part) for part in found.parts if part.a.median_ns or part.b.median_ns]
    return Table(columns, (*lines, _line(found.step, total=True)))


def _line(part: Part, *, total: bool = False) -> Line:
    prefix = "idle: " if part.sort == "idle" else ""
    cells = (
        Cell(prefix + row_title(part.name), "strong" if total else "plain"),
        Cell(_ms(part.a.median_ns)),
        Cell(_ms(part.b.median_ns)),
        Cell(_signed(part.difference_ns), _TONE[part.verdict]),  # type: ignore[arg-type]
        Cell(f"{part.p_joint:.3g}"),
        Cell(part.verdict.value, _TONE[part.verdict]),  # type: ignore[arg-type]
        Cell(_ms(part.a.summed_ns)),
        Cell(_ms(part.b.summed_ns)),
    )
    return Line(cells, "total" if total else "row")


def _replaced(found: TraceComparison) -> Table:
    columns = (Column("row"), Column("only in A", least=30), Column("only in B", least=30))
    lines = []
    for item in found.replaced[:20]:
        sides = []
        for side in (item.a, item.b):
            kernels = [k for backend in side for k in backend.kernels][:3]
            words = [f"{short_name(k.name)} ({show_count(k.calls)} x, {_ms(k.summed_ns)} ms)" for k in kernels]
            sides.append(Cell("; ".join(words) or "nothing", "plain" if words else "muted"))
        lines.append(Line((Cell(row_title(item.row)), *sides)))
    return Table(columns, tuple(lines))


def _ms(ns: float) -> str:
    return f"{ns / 1e6:,.3f}"


def _signed(ns: float) -> str:
    """With its sign, but none for what rounds to zero."""
    text = f"{ns / 1e6:+,.3f}"
    return text if text.strip("+-0.") else "0.000"
