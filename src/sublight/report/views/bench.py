"""The documents of benchmarks."""

from collections.abc import Iterable

from sublight.bench.record.comm import CommBench, Message, Way
from sublight.bench.record.kernels import Ceilings, Checked, KernelBench, Result, Shape
from sublight.bench.record.measurement import BenchRecord, Environment, Measurement
from sublight.bench.record.ops import OpRow, OpsBench, Part
from sublight.report.blocks import (
    Block,
    Cell,
    Column,
    Curve,
    Curves,
    Document,
    Facts,
    Heading,
    Headline,
    Line,
    Listing,
    Note,
    Table,
)
from sublight.rows import ROWS
from sublight.units import show_bytes, show_count, show_ms, show_percent, show_rate, show_ratio, show_time, significant

_REHEARSAL = (
    "A rehearsal on a CPU: it shows that the protocol runs and that results agree. Its times are of this processor and "
    "stand for no GPU's."
)


def kernels_document(bench: KernelBench) -> Document:
    """One line a shape and candidate, then time over tokens with the limit."""
    blocks: list[Block] = [
        *_rehearsal(bench),
        Headline(_headline(bench)),
        _facts(bench, bench.ceilings, [("layer", Cell(bench.problem))]),
        Heading("Shapes"),
        _shapes_table(bench),
        *_chart(bench),
        *_absent(bench),
        *_swept(bench),
        Heading("What the numbers mean"),
        Listing(tuple(Cell(text) for text in _meaning(bench))),
    ]
    title = f"Kernels of the experts of {bench.model}, {bench.layout}, on {bench.environment.title}"
    return Document(title, tuple(blocks), _footer(bench))


def _headline(bench: KernelBench) -> tuple[tuple[str, str, str], ...]:
    figures = []
    for shape in bench.shapes:
        ours = _best(shape, "kernel") or _best(shape, "reference")
        if ours is None or ours.measurement is None:
            continue
        peer = shape.best_peer_s
        against = (
            f"{show_ratio(peer / ours.measurement.seconds)} the best peer's speed" if peer else "no peer was timed"
        )
        share = show_percent(shape.floor_s / ours.measurement.seconds)
        text = f"{ours.name}: {share} of a read of those bytes; {against}"
        figures.append((_tokens(shape.tokens), show_time(ours.measurement.seconds), text))
    if not figures:
        figures.append(("timed", "none", "every candidate is listed with its reason"))
    return tuple(figures[:4])


def _best(shape: Shape, kind: str) -> Result | None:
    timed = [r for r in shape.results if r.kind == kind and r.measurement is not None]
    return min(timed, key=lambda r: r.measurement.seconds if r.measurement else 0.0, default=None)


def _shapes_table(bench: KernelBench) -> Table:
    columns = (
        Column("tokens", "right"),
        Column("candidate"),
        Column("us", "right"),
        Column("quartiles", "right", 2),
        Column("GB/s", "right", 1),
        Column("of copy", "right"),
        Column("of read", "right"),
        Column("vs best peer", "right"),
        Column("error", "right", 2),
        Column("remark", priority=1),
    )
    lines = [line for shape in bench.shapes for line in _shape_lines(shape)]
    return Table(columns, tuple(lines))


def _shape_lines(shape: Shape) -> Iterable[Line]:
    limit = Cell(f"limit: one read of {show_bytes(shape.bytes)}", "muted", f"{shape.experts_hit:.1f} experts hit")
    head = (Cell(show_count(shape.tokens), "strong"), limit, Cell(_us(shape.floor_s), "muted"), Cell(""))
    rates = (Cell(_gbs(shape.bytes / shape.floor_s), "muted"), Cell(show_percent(shape.copy_s / shape.floor_s)))
    yield Line(
        (*head, *rates, Cell(""), Cell(""), Cell(""), Cell(f"{shape.experts_hit:.1f} experts", "muted")), "group"
    )
    order = {"kernel": 0, "reference": 1, "peer": 2}
    for result in sorted(shape.results, key=lambda r: (order.get(r.kind, 3), _seconds(r))):
        yield _result_line(shape, result)


def _seconds(result: Result) -> float:
    return result.measurement.seconds if result.measurement is not None else float("inf")


def _result_line(shape: Shape, result: Result) -> Line:
    name = Cell(result.name, "strong" if result.kind == "kernel" else "plain")
    taken = result.measurement
    if taken is None:
        empty = [Cell("")] * 6
        return Line((Cell(""), name, Cell("none", "warn"), *empty, Cell(result.reason, "warn")))
    copy_s = shape.copy_s * result.bytes / shape.bytes
    peer = shape.best_peer_s
    same = result.bytes == shape.bytes
    return Line(
        (
            Cell(""),
            name,
            Cell(_us(taken.seconds)),
            Cell(f"{_us(taken.timing.low_s)}-{_us(taken.timing.high_s)}", "muted"),
            Cell(_gbs(result.bytes / taken.seconds)),
            Cell(show_percent(copy_s / taken.seconds)),
            Cell(show_percent(shape.floor_s / taken.seconds) if same else ""),
            Cell(show_ratio(peer / taken.seconds) if peer is not None else ""),
            Cell(f"{taken.agreed.relative_error:.1e}"),
            _remark(taken, "" if same else f"{show_bytes(result.bytes)} in its format"),
        )
    )


def _chart(bench: KernelBench) -> list[Block]:
    """Time over tokens, the limits drawn in. A single point makes no curve."""
    if len(bench.shapes) < 2:
        return []
    names = dict.fromkeys(r.name for s in bench.shapes for r in s.results if r.measurement is not None)
    curves = [Curve("limit: one read", tuple((float(s.tokens), s.floor_s * 1e6) for s in bench.shapes))]
    curves.append(Curve("limit: copy rate", tuple((float(s.tokens), s.copy_s * 1e6) for s in bench.shapes)))
    for name in names:
        points = tuple(
            (float(s.tokens), r.measurement.seconds * 1e6)
            for s in bench.shapes
            for r in s.results
            if r.name == name and r.measurement is not None
        )
        curves.append(Curve(name, points))
    return [Curves("Time of a layer over tokens", "tokens", "us", tuple(curves), log_x=True, log_y=True)]


def _absent(bench: KernelBench) -> list[Block]:
    if not bench.absent:
        return []
    return [
        Heading("Not taking part"),
        Listing(tuple(Cell(f"{name}: {reason}") for name, reason in bench.absent.items())),
    ]


def _swept(bench: KernelBench) -> list[Block]:
    if not bench.swept:
        return []
    wrong = [c for c in bench.swept if c.reason]
    names = ", ".join(dict.fromkeys(c.name for c in bench.swept))
    sizes = [c.tokens for c in bench.swept]
    text = f"{names} at {len(set(sizes))} more numbers of tokens, {min(sizes)} to {max(sizes)}"
    blocks: list[Block] = [Heading("Compared without a clock")]
    blocks += [Note(f"{c.name} at {c.tokens} tokens: {c.reason}", "error") for c in wrong]
    blocks += _wrong_alike(wrong)
    return [*blocks, Listing((Cell(text + (": all agree" if not wrong else f": {len(wrong)} do not")),))]


def _wrong_alike(wrong: list[Checked]) -> list[Block]:
    """Candidates of different projects that fail at the same places have something in common that is at fault."""
    places: dict[str, list[int]] = {}
    for checked in wrong:
        places.setdefault(checked.name, []).append(checked.tokens)
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, tokens in places.items():
        alike.setdefault(tuple(tokens), []).append(name)
    return [
        Note(
            f"{' and '.join(names)} are wrong at the same numbers of tokens ({', '.join(map(str, tokens))}): "
            "look at what they share, such as a compiler or a layout, before the kernels",
            "warn",
        )
        for tokens, names in alike.items()
        if len(names) > 1
    ]


def _meaning(bench: KernelBench) -> list[str]:
    agreed = next((r.measurement.agreed for s in bench.shapes for r in s.results if r.measurement), None)
    words = [
        "us: median of rounds, of one call of the whole layer after the router; a call reads experts that the cache "
        "cannot hold from their last use, where the table does not say otherwise",
        f"of copy: bytes of the call at the rate of a large copy, {show_rate(bench.ceilings.copy_bytes_per_s)} read "
        "and written, over its time",
        f"of read: time of one launch that only reads those bytes ({bench.ceilings.read_by}), over its time",
    ]
    if agreed is not None:
        words.append(
            f"error: relative, against the {agreed.against}; each candidate in modes {', '.join(agreed.modes)}"
        )
    if bench.shapes:
        words.append(f"routing: {bench.shapes[0].routing}")
    return words


def ops_document(bench: OpsBench) -> Document:
    """Every row of the step with its time, then its parts."""
    timed = [(r, s) for r in bench.rows if (s := r.step_s) is not None]
    total = sum(s for _, s in timed)
    figures = (
        ("rows timed", show_time(total), f"{len(timed)} of {len(bench.rows)} rows of a step, one after the other"),
    )
    step = f"{_tokens(bench.tokens)}, context {bench.context:,}, {bench.kv_dtype.upper()} KV"
    blocks: list[Block] = [
        *_rehearsal(bench),
        Headline(figures),
        _facts(bench, bench.ceilings, [("step", Cell(step))]),
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
        _footer(bench),
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
        Column("what", priority=1, least=28),
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
    remark = _remark(taken, "")
    what = (
        Cell(f"{part.what}: {remark.text}", "warn", part.library) if remark.text else Cell(part.what, note=part.library)
    )
    return Line(
        (
            title,
            Cell(show_count(part.count)),
            Cell(_us(taken.seconds)),
            Cell(show_ms(part.count * taken.seconds, 3)),
            Cell(_gbs(part.bytes / taken.seconds)),
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
        *_rehearsal(bench),
        Headline((_comm_headline(bench),)),
        _facts(
            bench,
            None,
            [("processes", Cell(show_count(bench.processes))), ("between them", Cell(bench.topology or "not known"))],
        ),
        Heading("Messages of the step"),
        _messages_table(bench),
    ]
    title = f"Collectives of a decode step of {bench.model}, {bench.layout}, over {bench.processes} processes"
    return Document(title, tuple(blocks), _footer(bench))


def _comm_headline(bench: CommBench) -> tuple[str, str, str]:
    times = [(m, w.measurement.seconds) for m in bench.messages if (w := m.best) is not None and w.measurement]
    total = sum(sum(m.rows.values()) * seconds for m, seconds in times)
    calls = sum(sum(m.rows.values()) for m, _ in times)
    return ("collectives of a step", show_time(total), f"{calls:,} calls, each by the fastest way measured")


def _messages_table(bench: CommBench) -> Table:
    columns = (
        Column("operation"),
        Column("payload", "right"),
        Column("calls", "right"),
        Column("by"),
        Column("us a call", "right"),
        Column("ms a step", "right"),
        Column("rows", priority=1, least=20),
        Column("remark", priority=1, least=20),
    )
    return Table(columns, tuple(_way_line(m, w) for m in bench.messages for w in m.ways))


def _way_line(message: Message, way: Way) -> Line:
    calls = sum(message.rows.values())
    head = (Cell(message.operation), Cell(f"{message.payload_bytes:,} B"), Cell(show_count(calls)), Cell(way.name))
    rows = Cell(", ".join(ROWS[r].title for r in message.rows), "muted")
    if way.measurement is None:
        return Line((*head, Cell("not timed", "muted"), Cell(""), rows, Cell(way.reason, "muted")))
    seconds = way.measurement.seconds
    return Line(
        (*head, Cell(_us(seconds)), Cell(show_ms(calls * seconds, 3)), rows, _remark(way.measurement, "", cache=False))
    )


def _rehearsal(bench: BenchRecord) -> list[Block]:
    return [Note(_REHEARSAL, "warn")] if bench.is_rehearsal else []


def _facts(bench: BenchRecord, ceilings: Ceilings | None, first: list[tuple[str, Cell]]) -> Facts:
    environment = bench.environment
    items = [*first, ("machine", Cell(_machine(environment)))]
    if environment.clocks_mhz:
        seen = ", ".join(f"{name} {mhz:,.0f} MHz" for name, mhz in environment.clocks_mhz.items())
        items.append(("clocks seen", Cell(seen)))
    if ceilings is not None:
        best = max(ceilings.read_s, key=lambda point: point[0] / point[1])
        reads = f"largest read {show_rate(best[0] / best[1])} ({ceilings.read_by})"
        items.append(("memory, this run", Cell(f"copy {show_rate(ceilings.copy_bytes_per_s)}; {reads}")))
    items += [("note", Cell(note, "warn" if not bench.is_rehearsal else "muted")) for note in environment.notes]
    items.append(("seed", Cell(str(bench.seed))))
    return Facts(tuple(items))


def _machine(environment: Environment) -> str:
    parts = [environment.title, environment.target]
    parts += [f"driver {environment.driver}"] if environment.driver else []
    parts += [f"torch {environment.torch}"] if environment.torch else []
    parts += [f"CUDA {environment.cuda}"] if environment.cuda else []
    parts += [f"NCCL {environment.nccl}"] if environment.nccl else []
    parts += [f"L2 {environment.l2_bytes / 2**20:.0f} MiB"] if environment.l2_bytes else []
    return ", ".join(part for part in parts if part)


def _remark(taken: Measurement, more: str, cache: bool = True) -> Cell:
    said = [taken.warning] if taken.warning else []
    if cache and taken.cold is False:
        said.append("part of its weights may lie in the cache")
    if not taken.timing.settled:
        said.append(f"spread {show_percent(taken.timing.spread)} when time was up")
    tone = "warn" if said else "muted"
    return Cell("; ".join([*said, *([more] if more else [])]), tone)  # type: ignore[arg-type]


def _footer(bench: BenchRecord) -> str:
    where = "rehearsed on a CPU" if bench.is_rehearsal else "measured here"
    return f"Sublight: {where}; outputs were compared before anything was timed"


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


def _us(seconds: float) -> str:
    return significant(seconds * 1e6, 3)


def _gbs(bytes_per_s: float) -> str:
    return significant(bytes_per_s / 1e9, 3)
