"""Wording that several views share."""

from sublight.limits.decode import DecodeLimit
from sublight.records import Evidence, Figure
from sublight.report.blocks import Block, Cell, Column, Facts, Line, Listing, Note, Step, Table, Waterfall
from sublight.rows import ROWS
from sublight.units import (
    counted,
    show_bytes,
    show_count,
    show_flops,
    show_ms,
    show_parameters,
    show_percent,
    show_rate,
    show_ratio,
    show_time,
)

_NO_FIT = "does not fit"
_BOUND_TONE = {"memory": "plain", "compute": "warn", "latency": "muted"}


def subject(limit: DecodeLimit) -> str:
    """One line: which model on what, doing what."""
    work = limit.workload
    parts = [
        limit.model.name,
        f"{limit.gpu.count}x {limit.gpu.title}" if limit.gpu.count > 1 else limit.gpu.title,
        str(work.layout),
        f"batch {work.batch:,}",
        f"context {work.context:,}",
        f"{work.kv_dtype.upper()} KV",
    ]
    if work.speculation is not None:
        parts.append(f"draft {work.speculation.draft_length}, verify {work.speculation.verify_width}")
    return " · ".join(parts)


def rates(limit: DecodeLimit, seconds: float) -> str:
    """Tokens per second for a step of this long: one request, and all of them where there are several."""
    gained = limit.tokens_per_step
    if gained is None:
        return f"{1 / seconds:,.0f} steps/s (tokens a step: not known, --accepted gives them)"
    one = gained / seconds
    per_request = f"{one:,.0f} tok/s" if one >= 20 else f"{one:.2f} tok/s"
    if limit.workload.batch == 1:
        return per_request
    return f"{per_request} a request, {one * limit.workload.batch:,.0f} tok/s {in_all(limit)}"


def in_all(limit: DecodeLimit) -> str:
    """What a rate over all requests is over: pipeline stages can work on a batch each, and one of them is counted."""
    return "in all" if limit.workload.layout.pp == 1 else "in the one batch counted"


def times_floor(ratio: float, floor: str) -> str:
    """How a measured time stands to a floor: "10.2x the floor", or below it, which no wording may hide."""
    return f"{show_ratio(ratio)} {floor}" + (": below it" if ratio < 1 else "")


def known(figure: Figure, decimals: int = 2) -> Cell:
    """Milliseconds of a figure, or why there are none."""
    if figure.value is None:
        return Cell("not known", "muted", figure.note)
    return Cell(show_ms(figure.value, decimals), note="; ".join(p for p in (figure.source, figure.note) if p))


def where_from(figure: Figure) -> str:
    """Evidence class and source, for a sentence in brackets."""
    if figure.value is None:
        return f"not known: {figure.note}"
    return f"{figure.evidence.value}: {figure.source}" if figure.source else figure.evidence.value


def rows_table(limit: DecodeLimit) -> Table:
    """Every row and every collective with its floor, then the labelled totals."""
    total = limit.totals.rows_s if limit.totals.best_s.value is None else limit.totals.best_s.value
    columns = (
        Column("row"),
        Column("calls", "right", 1),
        Column("MB", "right"),
        Column("GFLOP", "right", 2),
        Column("floor ms", "right"),
        Column("share", "right"),
        Column("bound by", "left"),
        Column("stored as", "left", 1),
        Column("counted", "left", 3, least=48),
    )
    lines = []
    for row in limit.rows:
        flops = sum(row.cost.flops.values())
        lines.append(
            Line(
                (
                    Cell(row.title, note=row.rule),
                    Cell(show_count(row.cost.calls)),
                    Cell(_mb(row.cost.bytes.from_memory)),
                    Cell(f"{flops / 1e9:,.2f}" if flops else ""),
                    Cell(show_ms(row.time_s, 3)),
                    Cell(show_percent(row.time_s / total)),
                    Cell(row.bound, _BOUND_TONE[row.bound]),  # type: ignore[arg-type]
                    Cell(", ".join(row.formats[:2])),
                    Cell(row.rule, "muted"),
                )
            )
        )
    for item in limit.collectives:
        best = item.best_s.value
        lines.append(
            Line(
                (
                    Cell(ROWS[item.id].title),
                    Cell(show_count(item.calls)),
                    Cell(f"{item.payload_bytes / 1e3:,.1f} kB"),
                    Cell(""),
                    Cell("not known", "muted", item.best_s.note)
                    if best is None
                    else Cell(show_ms(item.calls * best, 3)),
                    Cell("" if best is None else show_percent(item.calls * best / total)),
                    Cell("latency", "muted"),
                    Cell(f"{show_time(best)} a call" if best is not None else "", "muted", item.best_rule),
                    Cell(f"{item.operation} over {item.gpus} GPUs: {item.best_rule}", "muted"),
                )
            )
        )
    return Table(columns, (*lines, *_totals(limit, len(columns))), caption="")


def _totals(limit: DecodeLimit, width: int) -> list[Line]:
    totals = limit.totals
    moved = sum(r.cost.bytes.from_memory for r in limit.rows)

    def line(label: str, cell: Cell, why: str, mb: str = "", gflop: str = "") -> Line:
        cells = [
            Cell(label, "strong"),
            Cell(""),
            Cell(mb),
            Cell(gflop),
            cell,
            Cell(""),
            Cell(why, "muted"),
            Cell(""),
            Cell(""),
        ]
        return Line(tuple(cells[:width]), "total")

    lines = [
        line(
            "memory and arithmetic", Cell(show_ms(totals.rows_s), "strong"), "", _mb(moved), f"{limit.flops / 1e9:,.1f}"
        )
    ]
    if limit.collectives:
        given = limit.collectives[0].best_s.evidence is Evidence.GIVEN
        if given:
            lines.append(line("floor, collectives as given", known(totals.best_s), ""))
        else:
            lines.append(line("floor, best published", known(totals.best_s), ""))
            lines.append(line("floor, NCCL", known(totals.nccl_s), ""))
    return lines


def floor_waterfall(limit: DecodeLimit) -> Waterfall:
    """From the naive number to the floor, term by term."""
    steps = []
    total = 0.0
    for term in limit.terms:
        total += term.seconds
        sign = "" if term.id == "naive" or term.seconds < 0 else "+"
        steps.append(Step(term.label, term.seconds * 1e3, f"{sign}{show_ms(term.seconds)}"))
    steps.append(Step("floor", total * 1e3, show_ms(total), "total"))
    return Waterfall("From the naive number to the floor, ms", tuple(steps))


def memory_facts(limit: DecodeLimit) -> Facts:
    """What a rank holds, and what fits beside it."""
    memory = limit.memory
    capacity = "not known" if memory.capacity_bytes is None else show_bytes(memory.capacity_bytes)
    items = [
        ("weights a rank", Cell(f"{show_bytes(memory.weights_bytes)} of {capacity}")),
        ("KV cache", Cell(f"{memory.kv_bytes_per_token:,.0f} B a token and rank")),
    ]
    if memory.state_bytes_per_sequence:
        items.append(("state", Cell(f"{show_bytes(memory.state_bytes_per_sequence)} a sequence and rank")))
    if memory.fits is False:
        items.append(("fit", Cell("the weights alone do not fit", "bad")))
    elif memory.tokens is not None:
        items.append(("tokens that fit", Cell(f"{memory.tokens:,} a rank, with nothing else in memory")))
    return Facts(tuple(items))


def model_facts(limit: DecodeLimit) -> Facts:
    """Where the numbers come from: the model's and the card's."""
    model, gpu = limit.model, limit.gpu
    bandwidth, sheet = gpu.bandwidth_bytes_per_s, gpu.data_sheet_bandwidth_bytes_per_s
    size = f"{show_parameters(model.parameters)} parameters, {show_parameters(model.active_parameters)} a token"
    if model.mtp_parameters:
        size += f", {show_parameters(model.mtp_parameters)} more in MTP layers"
    stored = show_bytes(model.checkpoint_bytes, 4)
    if model.mtp_bytes:
        stored += f" ({show_bytes(model.checkpoint_bytes + model.mtp_bytes, 4)} with MTP)"
    rate = f"{show_rate(bandwidth.known)} ({where_from(bandwidth)})"
    if sheet != bandwidth and sheet.value is not None:
        rate += f"; {_catalogued(sheet)} {show_rate(sheet.known)}"
    items = [
        ("model", Cell(size)),
        ("checkpoint", Cell(f"{stored}; {model.quantization}")),
        ("formats from", Cell(model.quantization_source)),
        ("memory", Cell(rate)),
        (
            "step",
            Cell(
                f"{show_bytes(limit.weight_bytes, 4)} of weights and {show_bytes(limit.cache_bytes)} of caches a rank, "
                f"{show_flops(limit.flops)}, {counted(limit.launches, 'launch', 'launches')} at least"
            ),
        ),
    ]
    return Facts(tuple(items))


def does_not_fit(limit: DecodeLimit) -> list[Block]:
    """Said right under the headline: a step that no card of this memory can run."""
    return [Note(f"{f.subject}: {f.text}", f.level) for f in limit.findings if f.subject == _NO_FIT]


def _catalogued(figure: Figure) -> str:
    """What the catalogue's figure may be called: a data sheet only where it is from one."""
    return "data sheet" if figure.evidence is Evidence.DATA_SHEET else f"catalogue ({figure.evidence.value})"


def findings(limit: DecodeLimit) -> list[Block]:
    """Warnings and errors as notes, the rest as a list; without what `does_not_fit` says."""
    said = [f for f in limit.findings if f.subject != _NO_FIT]
    blocks: list[Block] = [Note(f"{f.subject}: {f.text}", f.level) for f in said if f.level != "info"]
    quiet = [Cell(f"{f.subject}: {f.text}") for f in limit.findings if f.level == "info"]
    if quiet:
        blocks.append(Listing(tuple(quiet)))
    return blocks


def assumptions(limit: DecodeLimit) -> Listing:
    """What has to hold for the floor to be one."""
    items = [
        "every byte of a rank's share is read once a step, at full bandwidth; rows run one after the other",
        "activations stay in L2 where one launch's fit there",
    ]
    experts = next((r for r in limit.rows if r.id == "moe.experts"), None)
    if experts is not None:
        items.append(f"routed experts: {experts.rule}")
    if limit.collectives:
        item = max(limit.collectives, key=lambda c: c.calls)
        items.append(f"collectives: {item.best_rule}")
        items.append("no collective is hidden under memory reads")
    layout = limit.workload.layout
    if layout.dp > 1:
        items.append(
            "attention, router and shared experts run whole on the rank that owns a sequence, as with all-to-all "
            "dispatch; one that gathers tokens first and cuts the shared experts over all ranks reads less of them"
        )
    if layout.pp > 1:
        items.append(f"one batch passes the {layout.pp} pipeline stages; so many batches can be under way at once")
    if limit.workload.speculation is not None:
        items.append("tokens of one sequence that are verified together read the same cached tokens")
    return Listing(tuple(Cell(i) for i in items))


def _mb(count: float) -> str:
    return f"{count / 1e6:,.1f}" if count >= 5e4 else f"{count / 1e6:,.3f}" if count else ""
