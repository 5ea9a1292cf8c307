"""A step with its trace: floor and measured in one table, and what to change first."""

from sublight.gap.compare import Gap
from sublight.gap.measured import MeasuredRow, Remedy
from sublight.report.blocks import Block, Cell, Column, Heading, Line, Listing, Note, Paragraph, Step, Table, Waterfall
from sublight.report.views.stepline import step_timeline
from sublight.report.views.trace import notes, row_title
from sublight.trace.analysis import Analysis
from sublight.trace.idle import IdleKind
from sublight.units import show_count, show_ms, show_percent

_IDLE = {
    IdleKind.LAUNCH: "idle: launch gaps",
    IdleKind.HOST: "idle: waiting for the CPU",
    IdleKind.STEP: "idle: between steps",
    IdleKind.UNKNOWN: "idle: of unknown cause",
}
_MARK = "*"  # on an attainable time that is to be read with the reason below the table
_LEVELS = 6  # named steps of the waterfall; the rest is one


def measured_blocks(gap: Gap, trace: Analysis) -> list[Block]:
    """What to do next comes first after the answer; then the rows, then what is odd."""
    blocks: list[Block] = [*notes(trace, gap.doubts)]
    wall = trace.breakdown.wall_ns * 1e-9
    if abs(wall / gap.measured_s.known - 1) > 0.01:
        blocks.append(
            Note(
                f"Timed: {show_ms(gap.measured_s.known)} ms a step. In the trace the median step takes {show_ms(wall)} "
                "ms, start to start under the profiler; shares are of that.",
                "info",
            )
        )
    blocks += [Heading("What to do next"), _remedies(gap, wall)]
    blocks += [Listing(tuple(Cell(_advice(n, r)) for n, r in enumerate(gap.remedies[:_LEVELS], 1)))]
    blocks += [Heading("Floor and measured, row by row"), rows_table(gap, trace), *_doubts(gap)]
    blocks.append(
        Paragraph(
            "Saved: what the step would lose if that row alone ran at its floor; time hidden under other rows is no "
            "gain. Kernel sums count overlapped time twice.",
            "muted",
        )
    )
    blocks += step_timeline(trace, terminal=False)
    if trace.oddities:
        items = tuple(Cell(f"{o.ns / 1e6:,.2f} ms: {o.title}. {o.evidence}.") for o in trace.oddities)
        blocks += [Heading("What is odd"), Listing(items)]
    return blocks


def _remedies(gap: Gap, wall: float) -> Table:
    columns = (
        Column("", "right"),
        Column("change"),
        Column("saves up to ms", "right"),
        Column("of the step", "right", 1),
        Column("exposed ms", "right", 1),
        Column("kernel sum ms", "right", 2),
        Column("floor ms", "right", 2),
        Column("how sure", least=14),
    )
    lines = [
        Line(
            (
                Cell(str(number)),
                Cell(remedy.title, "strong", ", ".join(row_title(r) for r in remedy.rows)),
                Cell(show_ms(remedy.saved_s), "strong"),
                Cell(show_percent(remedy.saved_s / wall)),
                Cell(show_ms(remedy.exposed_s)),
                Cell(show_ms(remedy.summed_s) if remedy.summed_s else ""),
                Cell(show_ms(remedy.floor_s) if remedy.rows else ""),
                Cell(remedy.sure, "muted"),
            )
        )
        for number, remedy in enumerate(gap.remedies, 1)
    ]
    return Table(columns, tuple(lines))


def _advice(number: int, remedy: Remedy) -> str:
    how = f" ({remedy.command})" if remedy.command else ""
    return f"{number}. {remedy.title}: {remedy.advice}{how}"


def rows_table(gap: Gap, trace: Analysis) -> Table:
    """Exposed times and idle sum to the wall time of the traced step; the floor column to the floor."""
    reached = any(row.attainable_s is not None for row in gap.rows)
    columns = (
        Column("row"),
        Column("floor ms", "right"),
        *([Column("attainable ms", "right")] if reached else []),
        Column("exposed ms", "right"),
        Column("saved ms", "right"),
        Column("beside others ms", "right", 2),
        Column("kernel sum ms", "right", 1),
        Column("calls", "right", 3),
        Column("by", least=16),
    )
    lines = [_row(row, reached) for row in gap.rows]
    breakdown = trace.breakdown
    for overlap in breakdown.overlaps:
        title = "both: " + " + ".join(row_title(name) for name in overlap.rows)
        lines.append(_time_line(title, overlap.ns, "", reached=reached))
    for idle in breakdown.idle:
        lines.append(
            _time_line(_IDLE[idle.kind], idle.ns, f"{idle.ns / 1e6:,.3f}", show_count(idle.gaps), reached=reached)
        )
    floor = sum(r.floor_s or 0.0 for r in gap.rows)
    total = [
        Cell("step", "strong"),
        Cell(show_ms(floor, 3), "strong"),
        *([_attainable_sum(gap)] if reached else []),
        Cell(f"{breakdown.wall_ns / 1e6:,.3f}", "strong"),
    ]
    rest = [Cell(""), Cell(""), Cell(f"{trace.kernel_ns / 1e6:,.3f}"), Cell(show_count(trace.step.kernels)), Cell("")]
    lines.append(Line((*total, *rest), "total"))
    floors = any(row.attainable_s is None and row.floor_s for row in gap.rows)
    counted = "; in the sum a row without a time counts with its floor" if floors else ""
    return Table(columns, tuple(lines), caption=f"attainable: {gap.attainable_source}{counted}" if reached else "")


def _row(row: MeasuredRow, reached: bool) -> Line:
    return Line(
        (
            Cell(row_title(row.id), "warn" if row.id == "unknown" else "plain"),
            Cell("" if row.floor_s is None else show_ms(row.floor_s, 3)),
            *([_attainable(row)] if reached else []),
            Cell(show_ms(row.exposed_s, 3) if row.calls else "not seen", "plain" if row.calls else "muted"),
            Cell(show_ms(row.saved_s, 3) if row.saved_s else ""),
            Cell(show_ms(row.overlapped_s, 3) if row.overlapped_s else ""),
            Cell(show_ms(row.summed_s, 3) if row.calls else ""),
            Cell(show_count(row.calls) if row.calls else ""),
            Cell(", ".join(row.backends[:3]), "muted"),
        )
    )


def _attainable(row: MeasuredRow) -> Cell:
    if row.attainable_s is None:
        return Cell("")
    text = show_ms(row.attainable_s, 3)
    return Cell(f"{_MARK} {text}", "warn", row.doubt) if row.doubt else Cell(text)


def _attainable_sum(gap: Gap) -> Cell:
    """Marked where a time under its floor is in it: the sum may lie under the floor's then."""
    text = show_ms(sum(r.attainable_s or r.floor_s or 0.0 for r in gap.rows), 3)
    under = any(row.is_under_floor for row in gap.rows)
    return Cell(f"{_MARK} {text}" if under else text, "strong")


def _doubts(gap: Gap) -> list[Block]:
    """The reason of every mark, once for all rows that it is true of."""
    said: dict[str, list[str]] = {}
    for row in gap.rows:
        if row.doubt:
            said.setdefault(row.doubt, []).append(row_title(row.id))
    items = tuple(Cell(f"{', '.join(rows)}: {why}.", "warn") for why, rows in said.items())
    told = Paragraph(f"{_MARK} marks an attainable time that does not lie between floor and measured:")
    return [told, Listing(items)] if items else []


def _time_line(title: str, ns: int, saved: str, calls: str = "", *, reached: bool) -> Line:
    blank = [Cell(""), Cell("")] if reached else [Cell("")]
    cells = [Cell(title), *blank, Cell(f"{ns / 1e6:,.3f}"), Cell(saved), Cell(""), Cell(""), Cell(calls), Cell("")]
    return Line(tuple(cells))


def measured_waterfall(gap: Gap, trace: Analysis) -> Waterfall:
    """From the floor to the traced step: what each change could give back, and what none of them does."""
    wall = trace.breakdown.wall_ns * 1e-6
    floor = sum(r.floor_s or 0.0 for r in gap.rows) * 1e3
    steps = [Step("floor", floor, f"{floor:,.2f}")]
    named = gap.remedies[:_LEVELS]
    left = wall - floor
    for remedy in named:
        steps.append(Step(remedy.title, remedy.saved_s * 1e3, f"+{show_ms(remedy.saved_s)}"))
        left -= remedy.saved_s * 1e3
    # Rows at their floor may hide each other, so single savings need not sum to the whole gap.
    steps.append(Step("the rest, and what overlaps hide", left, f"{left:+,.2f}", "unknown"))
    steps.append(Step("measured", wall, f"{wall:,.2f}", "total"))
    return Waterfall("From the floor to the traced step, ms", tuple(steps))
