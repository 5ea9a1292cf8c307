"""The document of a gap: the answer, where the floor is, what the claims are, what to measure next."""

from sublight.gap.claims import ClaimedFloor, ClaimedPart
from sublight.gap.compare import Gap
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
    Step,
    Table,
    Waterfall,
)
from sublight.report.views.common import (
    assumptions,
    findings,
    floor_waterfall,
    memory_facts,
    model_facts,
    rates,
    subject,
    times_floor,
    where_from,
)
from sublight.report.views.limit import bytes_by_module
from sublight.report.views.measured import measured_blocks, measured_waterfall
from sublight.report.views.sweep import sweep_blocks
from sublight.report.views.trace import kernels_table, steps_facts
from sublight.rows import ROWS
from sublight.units import show_ms, show_percent, show_ratio, show_time


def gap_document(gap: Gap, beside: bool = False) -> Document:
    """Answer first; then the rows, the claims, the way from the naive number, and the next measurements.

    Args:
        beside: it is shown beside another one: what its floor comes from is left to the pages as well.
    """
    limit = gap.limit
    blocks: list[Block] = [Paragraph(subject(limit), "muted"), Headline(_headline(gap)), *_unlike(gap), *_standing(gap)]
    if gap.trace is not None:
        blocks += measured_blocks(gap, gap.trace)
    else:
        blocks += [
            Heading("Floor and measured, row by row"),
            _rows(gap),
            Paragraph(
                f"Measured per row: not known. One number was given ({gap.measured_text}); only a trace splits it.",
                "muted",
            ),
        ]
    if gap.published and gap.trace is None:
        blocks.append(Paragraph(f"Kernels elsewhere: {gap.published_source}; {gap.published_note}.", "muted"))
        blocks += _too_fast(gap)
    blocks.append(_waterfall(gap) if gap.trace is None else measured_waterfall(gap, gap.trace))
    if gap.claimed_floor is not None or gap.claimed_parts:
        blocks.append(Heading("The claims"))
    if gap.claimed_floor is not None:
        blocks += _floor_claim(gap, gap.claimed_floor)
    for part in gap.claimed_parts:
        blocks += _part_claim(gap, part)
    blocks += _parts_together(gap)
    if gap.steps:
        blocks += [Heading("What to measure next"), *_next(gap)]
    origin: list[Block] = [
        Heading("Where the floor comes from"),
        model_facts(limit),
        floor_waterfall(limit),
        bytes_by_module(limit),
        memory_facts(limit),
        Heading("What the floor assumes", 3),
        assumptions(limit),
        *findings(limit),
    ]
    more: list[Block] = []
    if gap.beside is not None:
        other = gap_document(gap.beside, beside=True)
        blocks += [*origin, Heading(other.title, 1), *other.blocks, Paragraph(f"{gap.beside.source}.", "muted")]
        more += other.more
    elif beside:
        more += origin
    else:
        blocks += origin
    if gap.trace is not None:
        more += [
            Heading("Kernels"),
            kernels_table(gap.trace),
            Heading("How the steps were found"),
            steps_facts(gap.trace),
        ]
    if len(gap.points) > 1:
        more += sweep_blocks(gap.points, limit)
    footer = "Sublight: the floor is computed; the measured time is as given"
    return Document(gap.title, tuple(blocks), f"{footer}. {gap.source}" if gap.source else footer, tuple(more))


def _headline(gap: Gap) -> tuple[tuple[str, str, str], ...]:
    totals, measured = gap.limit.totals, gap.measured_s.known
    figures = [
        ("measured", show_time(measured), f"{rates(gap.limit, measured)} ({where_from(gap.measured_s)})"),
        ("floor", show_time(gap.floor_s), f"{rates(gap.limit, gap.floor_s)}, {_floor_label(gap)}"),
        ("ratio", show_ratio(gap.ratio), "no gap: see the warning" if gap.doubts else _of_the_floor(gap.ratio)),
    ]
    if totals.nccl_s.value is not None and totals.nccl_s != totals.best_s and not gap.alone:
        nccl = totals.nccl_s.value
        figures.append(
            (
                "with NCCL",
                show_time(nccl),
                f"measured is {times_floor(measured / nccl, 'that floor')}; memory alone {show_time(totals.rows_s)}",
            )
        )
    return tuple(figures)


def _of_the_floor(ratio: float) -> str:
    if ratio < 1:
        return "of the floor: below it"
    return f"the floor; {show_percent(1 / ratio)} of its speed"


def _floor_label(gap: Gap) -> str:
    totals = gap.limit.totals
    if not gap.limit.collectives or gap.alone:
        return "memory and arithmetic" + (": this rank ran alone, without collectives" if gap.alone else "")
    if totals.best_s.value is None:
        return "without collectives, whose time is not known"
    return "with the best published collectives" if totals.best_s != totals.nccl_s else "with collectives as given"


def _unlike(gap: Gap) -> list[Block]:
    if not gap.doubts:
        return []
    said = "; ".join(gap.doubts)
    return [
        Note(f"The trace may be of another step than the floor, and then neither ratio nor gap holds: {said}.", "warn")
    ]


def _standing(gap: Gap) -> list[Block]:
    totals = gap.limit.totals
    if gap.standing == "below memory":
        return [
            Note(
                f"{show_time(gap.measured_s.known)} is less than the {show_time(totals.strict_s)} that the bytes or "
                "the arithmetic alone need. Nothing runs faster, so something stated here is not so: the card, "
                "the layout, the batch or context, the formats, uniform routing, or the measurement (tokens a step?).",
                "error",
            )
        ]
    if gap.standing == "below the best collectives":
        return [
            Note(
                f"{show_time(gap.measured_s.known)} is less than the floor of {show_time(gap.floor_s)}: possible only "
                "if collectives are hidden under memory reads, or faster than any published here.",
                "warn",
            )
        ]
    return []


def _rows(gap: Gap) -> Table:
    limit = gap.limit
    elsewhere = {p.id: p.seconds for p in gap.published}
    columns = [Column("row"), Column("calls", "right", 2), Column("floor ms", "right")]
    if elsewhere:
        columns.append(Column("kernels elsewhere ms", "right", 1))
    columns += [Column("bound by"), Column("counted", "left", 3, least=48)]
    lines: list[Line] = []

    def add(title: str, calls: int, floor: Cell, id_: str, stage: str, bound: str, rule: str) -> None:
        cells = [Cell(title, note=rule), Cell(f"{calls:,}"), floor]
        if elsewhere:
            seconds = elsewhere.get(id_) if stage == "main" else None
            cells.append(Cell("") if seconds is None else Cell(show_ms(seconds, 3)))
        cells += [Cell(bound), Cell(rule, "muted")]
        lines.append(Line(tuple(cells)))

    for row in limit.rows:
        add(row.title, row.cost.calls, Cell(show_ms(row.time_s, 3)), row.id, row.stage, row.bound, row.rule)
    for item in limit.collectives:
        best = item.best_s.value
        floor = Cell("not known", "muted", item.best_s.note) if best is None else Cell(show_ms(item.calls * best, 3))
        add(ROWS[item.id].title, item.calls, floor, item.id, "main", "latency", item.best_rule)
    total = [Cell("floor of the step", "strong"), Cell(f"{gap.limit.launches:,}"), Cell(show_ms(gap.floor_s), "strong")]
    if elsewhere:
        total.append(Cell(show_ms(sum(elsewhere.values())), "strong"))
    lines.append(Line((*total, Cell(""), Cell("")), "total"))
    measured = [Cell("measured step", "strong"), Cell(""), Cell(show_ms(gap.measured_s.known), "strong")]
    lines.append(Line((*measured, *(Cell(""),) * (len(columns) - len(measured))), "total"))
    return Table(tuple(columns), tuple(lines))


def _too_fast(gap: Gap) -> list[Block]:
    """Published times below the floor of their row: they cannot have read their weights from memory."""
    floors = {r.id: r.time_s for r in gap.limit.rows if r.stage == "main"}
    rows = [p for p in gap.published if p.seconds < floors.get(p.id, 0.0)]
    if not rows:
        return []
    named = ", ".join(f"{ROWS[p.id].title} ({show_ms(p.seconds, 3)} ms)" for p in rows)
    return [
        Note(
            f"Below their floor, so timed with weights that stayed in L2: {named}. Not to be reached in a model.",
            "warn",
        )
    ]


def _waterfall(gap: Gap) -> Waterfall:
    limit = gap.limit
    totals = limit.totals
    steps = [Step("memory and arithmetic", totals.rows_s * 1e3, show_ms(totals.rows_s))]
    if totals.best_s.value is not None and limit.collectives:
        messages = totals.best_s.value - totals.rows_s
        steps.append(Step("collectives", messages * 1e3, f"+{show_ms(messages)}"))
        steps.append(Step("floor", totals.best_s.value * 1e3, show_ms(totals.best_s.value), "total"))
    rest = gap.unexplained_s
    if rest > 0:
        steps.append(Step("unexplained", rest * 1e3, f"+{show_ms(rest)}", "unknown", "a trace would say"))
        steps.append(Step("measured", gap.measured_s.known * 1e3, show_ms(gap.measured_s.known), "total"))
    return Waterfall("From the floor to the measured step, ms", tuple(steps))


def _floor_claim(gap: Gap, claim: ClaimedFloor) -> list[Block]:
    limit, measured = gap.limit, gap.measured_s.known
    terms = {t.id: t for t in limit.terms}
    ratio = measured / claim.claimed_s
    items = [
        Cell(
            f'"{claim.text}" is {show_time(claim.claimed_s)}. The naive number (the weights of one token, each byte '
            f"once, over {limit.gpu.count} x {limit.gpu.bandwidth_bytes_per_s.known / 1e9:,.0f} GB/s) is "
            f"{show_time(claim.naive_s)}; "
            + (
                f"that leaves {show_ms(claim.room_s)} ms for everything else."
                if claim.room_s >= 0
                else f"the claim is {show_ms(-claim.room_s)} ms below even that."
            )
        )
    ]
    if claim.left_out:
        parts = ", ".join(f"{terms[id_].label} {show_ms(terms[id_].seconds)} ms" for id_ in claim.left_out)
        items.append(Cell(f"What it has no room for: {parts}; {show_ms(claim.left_out_s)} ms together."))
    else:
        items.append(Cell("It has room for every term of the floor computed here."))
    items.append(
        Cell(
            f"{show_percent(claim.share_of_measured)} and {f'{ratio:,.0f}x' if ratio >= 10 else show_ratio(ratio)} set "
            "the measured step against that claim. "
            + ("Against the floor it is " if claim.left_out else "Against the floor computed here it is ")
            + f"{show_percent(1 / gap.ratio)} and {show_ratio(gap.ratio)}"
            + (
                f"; with NCCL {show_ratio(measured / limit.totals.nccl_s.value)}."
                if limit.totals.nccl_s.value is not None and limit.totals.nccl_s != limit.totals.best_s
                else "."
            )
        )
    )
    if limit.workload.batch == 1 and limit.tokens_per_step is not None:
        gained = limit.tokens_per_step
        tokens = (
            "one" if limit.workload.speculation is None else f"{gained:g} {'token' if gained == 1 else 'tokens'} a step"
        )
        items.append(
            Cell(f"{rates(limit, measured)} is one request's rate, {tokens} over the step time: no throughput.")
        )
    return [Heading("The claimed floor", 3), Listing(tuple(items))]


def _part_claim(gap: Gap, part: ClaimedPart) -> list[Block]:
    measured = gap.measured_s.known
    names = ", ".join(dict.fromkeys(ROWS[id_].title for id_ in part.rows))
    items = [Cell(f'"{part.text}" names: {names}.')]
    if part.published_s is not None:
        items.append(
            Cell(
                f"Their floor is {show_ms(part.floor_s)} ms; kernels measured elsewhere cover {part.published_rows} of "
                f"{len(part.rows)} of these rows with {show_ms(part.published_s)} ms."
            )
        )
    else:
        items.append(
            Cell(f"Their floor is {show_ms(part.floor_s)} ms; no published kernel times for them are known here.")
        )
    rest = (
        f"{show_ms(measured)} - {show_ms(part.claimed_s)} = {show_ms(part.rest_s)} ms is not a measurement of the "
        f"other kernels. The part was timed elsewhere, and the rest holds every launch gap, idle time and wait of the "
        f"step as well. The floor of all other rows is {show_ms(part.rest_floor_s)} ms"
    )
    if part.rest_published_s is not None:
        rest += f", their kernels elsewhere take {show_ms(part.rest_published_s)} ms"
    items.append(Cell(rest + "."))
    if part.rest_fp4_floor_s:
        fp4 = f"Of that, rows stored in FP4 have a floor of {show_ms(part.rest_fp4_floor_s)} ms"
        if part.rest_fp4_published_s is not None:
            left = part.rest_s - (part.rest_published_s or 0.0)
            fp4 += (
                f" and take {show_ms(part.rest_fp4_published_s)} ms as measured elsewhere: FP4 work is about "
                f"{show_percent(part.rest_fp4_published_s / measured)} of the step, "
                f"and no kernel explains {show_ms(left)} ms"
            )
        items.append(Cell(fp4 + "."))
    return [Heading("The claimed part", 3), Listing(tuple(items))]


def _parts_together(gap: Gap) -> list[Block]:
    """What the claimed parts cannot be together: more than the step, or more than the claimed floor of it."""
    parts = gap.claimed_parts
    if not parts:
        return []
    said: list[Block] = []
    rows = [id_ for part in parts for id_ in part.rows]
    shared = [id_ for id_ in ROWS if rows.count(id_) > 1]
    claimed = sum(part.claimed_s for part in parts)
    if shared:
        titles = ", ".join(ROWS[id_].title for id_ in shared)
        said.append(Note(f"The claimed parts share rows, so that their times do not add up: {titles}.", "warn"))
    if len(parts) > 1 and not shared and claimed > gap.measured_s.known:
        said.append(
            Note(
                f"Together the claimed parts take {show_ms(claimed)} ms, more than the measured step of "
                f"{show_ms(gap.measured_s.known)} ms: they overlap in it, or were timed in another step.",
                "warn",
            )
        )
    claim = gap.claimed_floor
    floor_s = max(part.floor_s for part in parts) if shared else sum(part.floor_s for part in parts)
    if claim is not None and floor_s > claim.claimed_s:
        said.append(
            Note(
                f"The floor of the claimed part{'s' if len(parts) > 1 else ''} alone, {show_ms(floor_s)} ms, is more "
                f"than the claimed floor of the whole step, {show_ms(claim.claimed_s)} ms.",
                "warn",
            )
        )
    return said


def _next(gap: Gap) -> list[Block]:
    blocks: list[Block] = []
    columns = (
        Column("", "right"),
        Column("measure"),
        Column("would explain ms", "right"),
        Column("how sure", least=12),
    )
    lines = []
    for number, step in enumerate(gap.steps, 1):
        low, high = step.explains_low_s, step.explains_high_s
        if low == high:
            span = show_ms(high)
        elif low == 0:
            span = f"up to {show_ms(high)}"
        else:
            span = f"{show_ms(low)}-{show_ms(high)}"
        if step.id in gap.closed:
            done = Cell(f"closed: {step.title}", "good", gap.closed[step.id])
            lines.append(Line((Cell(str(number)), done, Cell(span), Cell("answered", "good"))))
            continue
        lines.append(
            Line(
                (
                    Cell(str(number)),
                    Cell(step.title, "strong", step.why),
                    Cell(span),
                    Cell(step.evidence.value, "muted", step.source),
                )
            )
        )
    blocks.append(Table(columns, tuple(lines)))
    for number, step in enumerate(gap.steps, 1):
        if step.id in gap.closed:
            blocks.append(Paragraph(f"{number}. closed: {gap.closed[step.id]}", "good"))
            continue
        blocks.append(Paragraph(f"{number}. {step.why}" + (f" [{step.source}]" if step.source else "")))
        if step.command:
            blocks.append(Code(step.command))
    return blocks
