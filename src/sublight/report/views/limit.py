"""The document of a decode limit."""

from sublight.limits.decode import DecodeLimit
from sublight.report.blocks import Bar, Bars, Block, Document, Heading, Headline, Segment
from sublight.report.views.common import (
    assumptions,
    does_not_fit,
    findings,
    floor_waterfall,
    in_all,
    memory_facts,
    model_facts,
    rates,
    rows_table,
    subject,
)
from sublight.rows import ROWS
from sublight.units import show_bytes, show_time


def limit_document(limit: DecodeLimit) -> Document:
    """Headline, rows, how the naive number becomes the floor, memory, assumptions."""
    blocks: list[Block] = [
        Headline(headline(limit)),
        *does_not_fit(limit),
        model_facts(limit),
        Heading("Rows of the step"),
        rows_table(limit),
        floor_waterfall(limit),
        bytes_by_module(limit),
        Heading("Does it fit"),
        memory_facts(limit),
        Heading("What the floor assumes"),
        assumptions(limit),
        *findings(limit),
    ]
    return Document(f"Floor of a decode step: {subject(limit)}", tuple(blocks), "Sublight: computed, nothing was run")


def headline(limit: DecodeLimit) -> tuple[tuple[str, str, str], ...]:
    """The floor under its labels, and the two numbers that are not floors."""
    totals = limit.totals
    figures = []
    if not limit.collectives:
        figures.append(("floor", show_time(totals.rows_s), rates(limit, totals.rows_s)))
    elif totals.best_s.value is None:
        figures.append(
            ("floor without collectives", show_time(totals.rows_s), f"with them: not known, {totals.best_s.note}")
        )
    else:
        label = "floor, best published collectives" if totals.best_s != totals.nccl_s else "floor, collectives as given"
        figures.append((label, show_time(totals.best_s.value), rates(limit, totals.best_s.value)))
        figures.append(("memory and arithmetic alone", show_time(totals.rows_s), rates(limit, totals.rows_s)))
        if totals.nccl_s.value is not None and totals.best_s != totals.nccl_s:
            figures.append(
                ("floor, NCCL collectives", show_time(totals.nccl_s.value), rates(limit, totals.nccl_s.value))
            )
    plain = totals.without_speculation_s
    if plain is not None and plain.value is not None:
        batch = limit.workload.batch
        every = f" a request, {batch / plain.value:,.0f} {in_all(limit)}" if batch > 1 else ""
        rate = f"{1 / plain.value:,.0f} tok/s{every}"
        figures.append(("floor without speculation", show_time(plain.value), rate))
    figures.append(("naive, not a floor", show_time(totals.naive_s), "active weights over the bandwidth of all GPUs"))
    practical = totals.practical_s
    if practical.value is not None:
        figures.append(
            (
                "practical, a prediction",
                show_time(practical.value),
                "one launch a row at this card's measured read rates",
            )
        )
    return tuple(figures)


def bytes_by_module(limit: DecodeLimit) -> Bars:
    """Bytes a rank reads, by group of rows and by storage format."""
    series: dict[str, None] = {}
    groups: dict[str, dict[str, float]] = {}
    for row in limit.rows:
        group = ROWS[row.id].group.value if row.stage == "main" else "drafting (MTP)"
        kinds = row.cost.bytes
        stored = row.formats[0] if row.formats else "BF16"
        for name, count in ((stored, kinds.weights_and_scales), ("KV, index, state", kinds.caches)):
            if count:
                series.setdefault(name)
                of_group = groups.setdefault(group, {})
                of_group[name] = of_group.get(name, 0.0) + count
    bars = tuple(
        Bar(
            group,
            tuple(Segment(name, count / 1e6, show_bytes(count)) for name, count in parts.items()),
            show_bytes(sum(parts.values())),
        )
        for group, parts in groups.items()
    )
    return Bars("Read by one rank in a step, MB", tuple(series), bars)
