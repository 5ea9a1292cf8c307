"""The documents of benchmarks of a step: its rows, and its collectives."""

from sublight.bench.record.comm import CommBench, Message, Way
from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.ops import OpRow, OpsBench, Part
from sublight.report.blocks import Block, Cell, Column, Document, Heading, Headline, Line, Listing, Table
from sublight.report.views.benched import bench_facts, footer, gb_per_s, rehearsal, remark, us
from sublight.rows import ROWS
from sublight.units import counted, show_count, show_ms, show_percent, show_time


def ops_document(bench: OpsBench) -> Document:
    """Every row of the step with its time, then its parts."""
    timed = [(r, s) for r in bench.rows if (s := r.step_s) is not None]
    total = sum(s for _, s in timed)
    figures = (
        ("rows timed", show_time(total), f"{len(timed)} of {len(bench.rows)} rows of a step, one after the other"),
    )
    step = f"{counted(bench.tokens, 'token')}, context {bench.context:,}, {bench.kv_dtype.upper()} KV"
    blocks: list[Block] = [
        *rehearsal(bench),
        Headline(figures),
        bench_facts(bench, bench.ceilings, [("step", Cell(step))]),
        Heading("Rows of the step"),
        _rows_table(bench),
        Heading("What the numbers mean"),
        Listing(
            (
                Cell("us a call: median of rounds in one CUDA graph (wall clock in a rehearsal); weights take turns"),
                Cell("of read: time of one launch that only reads as many bytes, over its time"),
                Cell("ms a step: calls of the step times that; a row with a part that was not timed has none"),
                Cell(f"called: {_libraries(bench)}"),
            )
        ),
    ]
    return Document(
        f"Rows of a decode step of {bench.model}, {bench.layout}, on {bench.environment.title}",
        tuple(blocks),
        footer(bench),
    )


def _rows_table(bench: OpsBench) -> Table:
    columns = (
        Column("row"),
        Column("calls", "right"),
        Column("us a call", "right"),
        Column("ms a step", "right"),
        Column("GB/s", "right", 1),
        Column("of read", "right"),
        Column("error", "right", 3),
        Column("what", least=28),
    )
    lines = [_part_line(row, part, bench.ceilings) for row in bench.rows for part in row.parts]
    total = sum(s for r in bench.rows if (s := r.step_s) is not None)
    end = [Cell("rows timed", "strong"), Cell(""), Cell(""), Cell(show_ms(total, 3), "strong")]
    return Table(columns, (*lines, Line((*end, *[Cell("")] * 4), "total")))


def _part_line(row: OpRow, part: Part, ceilings: Ceilings) -> Line:
    title = Cell(ROWS[row.id].title)
    taken = part.measurement
    if taken is None:
        return Line(
            (title, Cell(""), Cell("not timed", "muted"), *[Cell("")] * 4, Cell(part.reason, "muted", part.what))
        )
    doubt = remark(taken, "").text
    what = Cell(f"{part.what}: {doubt}", "warn", part.library) if doubt else Cell(part.what, note=part.library)
    return Line(
        (
            title,
            Cell(show_count(part.count)),
            Cell(us(taken.seconds)),
            Cell(show_ms(part.count * taken.seconds, 3)),
            Cell(gb_per_s(part.bytes / taken.seconds)),
            Cell(show_percent(ceilings.floor_s(part.bytes) / taken.seconds)),
            Cell(f"{taken.agreed.relative_error:.1e}"),
            what,
        )
    )


def _libraries(bench: OpsBench) -> str:
    """What was called, and for which rows."""
    rows: dict[str, dict[str, None]] = {}
    for row in bench.rows:
        for part in row.parts:
            if part.measurement is not None:
                rows.setdefault(part.library, {})[ROWS[row.id].title] = None
    return "; ".join(f"{library}: {', '.join(titles)}" for library, titles in rows.items())


def comm_document(bench: CommBench) -> Document:
    """One line a message and way."""
    blocks: list[Block] = [
        *rehearsal(bench),
        Headline((_comm_headline(bench),)),
        bench_facts(
            bench,
            None,
            [("processes", Cell(show_count(bench.processes))), ("between them", Cell(bench.topology or "not known"))],
        ),
        Heading("Messages of the step"),
        _messages_table(bench),
    ]
    title = f"Collectives of a decode step of {bench.model}, {bench.layout}, over {bench.processes} processes"
    return Document(title, tuple(blocks), footer(bench))


def _comm_headline(bench: CommBench) -> tuple[str, str, str]:
    times = [(m, w.measurement.seconds) for m in bench.messages if (w := m.best) is not None and w.measurement]
    total = sum(sum(m.rows.values()) * seconds for m, seconds in times)
    calls = sum(sum(m.rows.values()) for m, _ in times)
    return ("collectives of a step", show_time(total), f"{counted(calls, 'call')}, each by the fastest way measured")


def _messages_table(bench: CommBench) -> Table:
    """A message opens its lines with all that is said of it: rows and remarks beside each other leave no room."""
    columns = (
        Column("by"),
        Column("us a call", "right"),
        Column("ms a step", "right"),
        Column("remark", least=20),
    )
    lines = []
    for message in bench.messages:
        lines.append(Line((Cell(_message_title(message), "strong"), *[Cell("")] * 3), "group"))
        lines += [_way_line(message, way) for way in message.ways]
    return Table(columns, tuple(lines))


def _message_title(message: Message) -> str:
    calls = counted(sum(message.rows.values()), "call")
    rows = ", ".join(ROWS[row].title for row in message.rows)
    return f"{message.operation} of {message.payload_bytes:,} B, {calls} a step: {rows}"


def _way_line(message: Message, way: Way) -> Line:
    if way.measurement is None:
        return Line((Cell(way.name), Cell("not timed", "muted"), Cell(""), Cell(way.reason, "muted")))
    seconds = way.measurement.seconds
    step = show_ms(sum(message.rows.values()) * seconds, 3)
    return Line((Cell(way.name), Cell(us(seconds)), Cell(step), remark(way.measurement, "", cache=False)))
