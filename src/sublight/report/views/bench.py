"""The document of a benchmark of kernels: one line a shape and candidate, and time over tokens with the limit in it."""

from collections.abc import Iterable

from sublight.bench.record.kernels import Checked, KernelBench, Result, Shape
from sublight.report.blocks import (
    Block,
    Cell,
    Column,
    Curve,
    Curves,
    Document,
    Heading,
    Headline,
    Line,
    Listing,
    Note,
    Table,
)
from sublight.report.views.benched import bench_facts, footer, gb_per_s, rehearsal, remark, us
from sublight.units import counted, show_bytes, show_count, show_percent, show_rate, show_ratio, show_time


def kernels_document(bench: KernelBench) -> Document:
    """One line a shape and candidate, then time over tokens with the limit."""
    blocks: list[Block] = [
        *rehearsal(bench),
        Headline(_headline(bench)),
        bench_facts(bench, bench.ceilings, [("layer", Cell(bench.problem))]),
        Heading("Shapes"),
        _shapes_table(bench),
        *_chart(bench),
        *_ran(bench),
        *_absent(bench),
        *_swept(bench),
        Heading("What the numbers mean"),
        Listing(tuple(Cell(text) for text in _meaning(bench))),
    ]
    title = f"Kernels of the experts of {bench.model}, {bench.layout}, on {bench.environment.title}"
    return Document(title, tuple(blocks), footer(bench))


def _headline(bench: KernelBench) -> tuple[tuple[str, str, str], ...]:
    figures = []
    for shape in bench.shapes:
        ours = _best(shape, "kernel") or _best(shape, "reference")
        if ours is None or ours.measurement is None:
            continue
        peer, peer_s = shape.best_peer, shape.best_peer_s
        against = "no peer was timed"
        if peer is not None and peer_s is not None:
            against = f"{show_ratio(peer_s / ours.measurement.seconds)} the speed of {peer.name}, the best peer"
        share = show_percent(shape.floor_s / ours.measurement.seconds)
        text = f"{ours.name}: {share} of a read of those bytes; {against}"
        figures.append((counted(shape.tokens, "token"), show_time(ours.measurement.seconds), text))
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
        Column("remark", least=16),
    )
    lines = [line for shape in bench.shapes for line in _shape_lines(shape)]
    return Table(columns, tuple(lines))


def _shape_lines(shape: Shape) -> Iterable[Line]:
    limit = Cell(f"limit: one read of {show_bytes(shape.bytes)}", "muted", f"{shape.experts_hit:.1f} experts hit")
    head = (Cell(show_count(shape.tokens), "strong"), limit, Cell(us(shape.floor_s), "muted"), Cell(""))
    rates = (Cell(gb_per_s(shape.bytes / shape.floor_s), "muted"), Cell(show_percent(shape.copy_s / shape.floor_s)))
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
            Cell(us(taken.seconds)),
            Cell(f"{us(taken.timing.low_s)}-{us(taken.timing.high_s)}", "muted"),
            Cell(gb_per_s(result.bytes / taken.seconds)),
            Cell(show_percent(copy_s / taken.seconds)),
            Cell(show_percent(shape.floor_s / taken.seconds) if same else ""),
            Cell(show_ratio(peer / taken.seconds) if peer is not None else ""),
            Cell(f"{taken.agreed.relative_error:.1e}"),
            remark(taken, "" if same else f"{show_bytes(result.bytes)} in its format"),
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


def _ran(bench: KernelBench) -> list[Block]:
    if not bench.ran:
        return []
    return [Heading("Who took part"), Listing(tuple(Cell(f"{name}: {words}") for name, words in bench.ran.items()))]


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
    text = f"{names} at {counted(len(set(sizes)), 'more number')} of tokens, {min(sizes)} to {max(sizes)}"
    blocks: list[Block] = [Heading("Compared without a clock")]
    blocks += [Note(f"{c.name} at {counted(c.tokens, 'token')}: {c.reason}", "error") for c in wrong]
    blocks += _wrong_alike(wrong)
    said = f"{text}: {counted(len(wrong), 'does', 'do')} not" if wrong else f"{text}: all agree"
    return [*blocks, Listing((Cell(said),))]


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
