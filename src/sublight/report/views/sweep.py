"""The document of a batch sweep."""

from sublight.limits.sweep import Sweep
from sublight.report.blocks import Block, Cell, Column, Curve, Curves, Document, Heading, Line, Listing, Mark, Table
from sublight.report.views.common import known, subject
from sublight.report.views.limit import limit_document
from sublight.rows import ROWS
from sublight.units import show_ms


def sweep_document(sweep: Sweep) -> Document:
    """The first limit in full, then the totals over batch sizes."""
    first = limit_document(sweep.first)
    return Document(
        f"Floor over batch sizes: {subject(sweep.first)}",
        (*sweep_blocks(sweep), Heading("The first in full"), *first.blocks),
        first.footer,
    )


def sweep_blocks(sweep: Sweep) -> list[Block]:
    """Table, chart, and where rows turn compute-bound."""
    gained = sweep.first.tokens_per_step
    has_best = any(p.best_s.value is not None and p.best_s.value != p.rows_s for p in sweep.points)
    has_experts = bool(sweep.first.experts_hit)
    columns = [Column("batch", "right"), Column("memory ms", "right", 1), Column("rows ms", "right")]
    if has_best:
        columns += [Column("floor ms", "right"), Column("NCCL ms", "right", 1)]
    if has_experts:
        columns += [Column("experts hit", "right", 1), Column("routed experts ms", "right", 2)]
    if gained is not None:
        columns += [Column("tok/s each", "right"), Column("tok/s in all", "right")]
    lines = []
    for point in sweep.points:
        cells = [Cell(f"{point.batch:,}"), Cell(show_ms(point.memory_s)), Cell(show_ms(point.rows_s))]
        if has_best:
            cells += [known(point.best_s), known(point.nccl_s)]
        if has_experts:
            cells += [Cell(f"{point.experts_hit:,.1f}"), Cell(show_ms(point.experts_s))]
        if gained is not None:
            seconds = point.rows_s if point.best_s.value is None else point.best_s.value
            cells += [Cell(f"{gained / seconds:,.1f}"), Cell(f"{gained * point.batch / seconds:,.0f}")]
        lines.append(Line(tuple(cells)))
    curves = [
        Curve(
            "floor",
            tuple(
                (float(p.batch), (p.rows_s if p.best_s.value is None else p.best_s.value) * 1e3) for p in sweep.points
            ),
        ),
        Curve("memory alone", tuple((float(p.batch), p.memory_s * 1e3) for p in sweep.points)),
    ]
    if has_experts:
        curves.append(Curve("routed experts", tuple((float(p.batch), p.experts_s * 1e3) for p in sweep.points)))
    marks = tuple(Mark(float(batch), f"{ROWS[id_].title} compute-bound") for id_, batch in sweep.crossovers.items())
    turns = [
        Cell(f"{ROWS[id_].title}: bound by arithmetic from batch {batch:,} on")
        for id_, batch in sweep.crossovers.items()
    ]
    blocks: list[Block] = [
        Heading("Batch sweep"),
        Table(tuple(columns), tuple(lines)),
        Curves("Step time over batch size", "batch", "ms", tuple(curves), marks, log_x=True, log_y=True),
    ]
    blocks.append(Listing(tuple(turns) or (Cell("memory binds every row at every batch size of this sweep"),)))
    return blocks
