"""The document of an analysed trace: where the time of one step went, and what is odd about it."""

from collections.abc import Sequence

from sublight.report.blocks import (
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Heading,
    Headline,
    Line,
    Listing,
    Note,
    Paragraph,
    Table,
)
from sublight.report.views.stepline import step_timeline
from sublight.rows import ROWS
from sublight.trace.analysis import Analysis
from sublight.trace.idle import IdleKind
from sublight.trace.kernels import short_name
from sublight.units import counted, show_count, show_percent, show_time

_MOST_KERNELS = 30
_IDLE_WORDS = {
    IdleKind.LAUNCH: "idle: launch gaps",
    IdleKind.HOST: "idle: waiting for the CPU",
    IdleKind.STEP: "idle: between steps",
    IdleKind.UNKNOWN: "idle: of unknown cause",
}


def trace_document(analysis: Analysis) -> Document:
    """Headline, the step to the nanosecond, findings, kernels, and how the steps were found."""
    source = analysis.source
    where = " · ".join(filter(None, [source.path, source.device, f"{show_count(source.gpu_events)} GPU events"]))
    blocks: list[Block] = [
        Paragraph(where, "muted"),
        Headline(headline(analysis)),
        *notes(analysis),
        Heading("Where the step goes"),
        rows_table(analysis),
        *step_timeline(analysis),
        *findings(analysis),
        Heading("Kernels"),
        kernels_table(analysis),
        Heading("How the steps were found"),
        steps_facts(analysis),
    ]
    return Document(
        f"Trace of a {analysis.step.phase.value} step", tuple(blocks), "Sublight: read from a profiler trace"
    )


def row_title(name: str) -> str:
    """A row's title; kinds of work that belong to no row keep their own name."""
    return ROWS[name].title if name in ROWS else name


def headline(analysis: Analysis) -> tuple[tuple[str, str, str], ...]:
    breakdown = analysis.breakdown
    wall = breakdown.wall_ns
    walls = analysis.steps.wall_ns
    spread = ""
    if walls is not None and walls.count > 1:
        spread = f"p10 {show_time(walls.p10 * 1e-9)}, p90 {show_time(walls.p90 * 1e-9)} of {walls.count} steps"
    return (
        (_measured(analysis.steps.how), show_time(wall * 1e-9), spread),
        ("GPU busy", show_time(breakdown.busy_ns * 1e-9), f"{show_percent(breakdown.busy_ns / wall)} of the step"),
        ("GPU idle", show_time(breakdown.idle_ns * 1e-9), _idle_words(analysis)),
        (
            "kernel sum",
            show_time(analysis.kernel_ns * 1e-9),
            counted(analysis.step.kernels, "kernel")
            + ("; more than busy, as streams overlap" if analysis.kernel_ns > breakdown.busy_ns else ""),
        ),
    )


def _measured(how: str) -> str:
    """What the wall time is: that of an only pass has no next step to end it."""
    return "pass, first start to last end" if how == "one pass" else "step, start to start"


def _idle_words(analysis: Analysis) -> str:
    largest = analysis.breakdown.idle[0] if analysis.breakdown.idle else None
    return "" if largest is None else f"mostly {_IDLE_WORDS[largest.kind].removeprefix('idle: ')}"


def notes(analysis: Analysis, told: Sequence[str] = ()) -> list[Block]:
    """What limits the answer: damage that was mended, products that could not be told apart, unknown kernels.

    Args:
        told: what the page says already.
    """
    found: list[Block] = []
    changed = [r for r in analysis.source.repairs if r.changed]
    if changed:
        words = "; ".join(f"{r.note} ({show_count(r.count)})" for r in changed)
        found.append(Note(f"The trace is damaged, and was read after mending: {words}.", "warn"))
    if any(analysis.unresolved and analysis.unresolved in text for text in told):
        pass
    elif analysis.unresolved:
        found.append(Note(f"GEMMs could not all be told apart: {analysis.unresolved}.", "warn"))
    elif not analysis.planned:
        found.append(
            Note("Without --model, GEMMs that share a kernel name stay unknown: the model says which is which.", "info")
        )
    if analysis.unknown_share > 0.005:
        found.append(Note(f"{show_percent(analysis.unknown_share)} of the kernel time is unknown.", "info"))
    return found


def rows_table(analysis: Analysis) -> Table:
    """Exposed time of each row, overlaps, and idle time: the column sums to the wall time."""
    breakdown = analysis.breakdown
    wall = breakdown.wall_ns
    columns = (
        Column("row"),
        Column("exposed ms", "right"),
        Column("share", "right"),
        Column("beside others ms", "right", 2),
        Column("kernel sum ms", "right", 1),
        Column("calls", "right", 2),
        Column("p10-p90 ms", "right", 3),
        Column("by", "left", 1, least=40),
    )
    spreads = {s.name: s for s in analysis.rows}
    lines = []
    for row in breakdown.rows:
        spread = spreads.get(row.name)
        lines.append(
            Line(
                (
                    Cell(row_title(row.name), "warn" if row.name == "unknown" else "plain"),
                    Cell(_ms(row.exposed_ns)),
                    Cell(show_percent(row.exposed_ns / wall)),
                    Cell(_ms(row.overlapped_ns) if row.overlapped_ns else ""),
                    Cell(_ms(row.summed_ns)),
                    Cell(show_count(row.calls)),
                    Cell(f"{_ms(spread.p10_ns)}-{_ms(spread.p90_ns)}" if spread else ""),
                    Cell(", ".join(b.backend or "?" for b in row.backends[:3]), "muted"),
                )
            )
        )
    for overlap in breakdown.overlaps:
        title = "both: " + " + ".join(row_title(name) for name in overlap.rows)
        lines.append(_line(title, overlap.ns, wall))
    lines += [_line(_IDLE_WORDS[idle.kind], idle.ns, wall, show_count(idle.gaps)) for idle in breakdown.idle]
    total = [Cell("step", "strong"), Cell(_ms(wall), "strong"), Cell("100 %"), Cell(""), Cell(_ms(analysis.kernel_ns))]
    lines.append(Line((*total, Cell(show_count(analysis.step.kernels)), Cell(""), Cell("")), "total"))
    return Table(columns, tuple(lines))


def _line(title: str, ns: int, wall: int, calls: str = "") -> Line:
    cells = [Cell(title), Cell(_ms(ns)), Cell(show_percent(ns / wall)), Cell(""), Cell(""), Cell(calls)]
    return Line((*cells, Cell(""), Cell("")))


def findings(analysis: Analysis) -> list[Block]:
    """What is odd, each with its evidence and what to try."""
    if not analysis.oddities:
        return []
    items = []
    for odd in analysis.oddities:
        concerned = f"{_ms(odd.ns)} ms: " if odd.ns else ""
        items.append(Cell(f"{concerned}{odd.title}. {odd.evidence}. Try: {odd.advice}."))
    return [Heading("What is odd"), Listing(tuple(items), ordered=True)]


def kernels_table(analysis: Analysis) -> Table:
    """The kernels that take most, with what they were taken for."""
    columns = (
        Column("kernel", least=24),
        Column("row"),
        Column("calls", "right"),
        Column("sum ms", "right"),
        Column("us a call", "right"),
        Column("blocks", "right", 1),
        Column("backend", "left", 2),
    )
    shown = analysis.kernels[:_MOST_KERNELS]
    lines = [
        Line(
            (
                Cell(short_name(k.name), note=k.name),
                Cell(row_title(k.row)),
                Cell(show_count(k.calls)),
                Cell(_ms(k.summed_ns)),
                Cell(f"{k.summed_ns / k.calls / 1e3:,.1f}"),
                Cell(show_count(k.blocks) if k.blocks else ""),
                Cell(k.backend, "muted"),
            )
        )
        for k in shown
    ]
    rest = analysis.kernels[_MOST_KERNELS:]
    if rest:
        calls, summed = sum(k.calls for k in rest), sum(k.summed_ns for k in rest)
        cells = [Cell(f"{len(rest)} more"), Cell(""), Cell(show_count(calls)), Cell(_ms(summed))]
        lines.append(Line((*cells, Cell(""), Cell(""), Cell("")), "total"))
    return Table(columns, tuple(lines))


def steps_facts(analysis: Analysis) -> Facts:
    """How the steps were found, which one is shown, and what was left out."""
    steps = analysis.steps
    phases: dict[str, int] = {}
    for step in steps.steps:
        phases[step.phase.value] = phases.get(step.phase.value, 0) + 1
    items = [
        ("by", Cell(steps.how)),
        ("evidence", Cell("; ".join(steps.evidence))),
        ("steps", Cell(", ".join(f"{count} {phase}" for phase, count in phases.items()))),
        ("shown", Cell(f"step {analysis.chosen}" + (", the median" if analysis.chosen == steps.median else ""))),
    ]
    if steps.dropped:
        items.append(("left out", Cell("; ".join(d.why for d in steps.dropped))))
    told = [r for r in analysis.source.repairs if not r.changed]
    if told:
        items.append(("seen", Cell("; ".join(f"{r.note} ({show_count(r.count)})" for r in told))))
    return Facts(tuple(items))


def _ms(ns: float) -> str:
    return f"{ns / 1e6:,.3f}"
