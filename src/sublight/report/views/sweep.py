"""The document of a batch sweep."""

from collections.abc import Callable

from sublight.limits.decode import DecodeLimit
from sublight.limits.sweep import Point, Sweep, crossovers
from sublight.report.blocks import Block, Cell, Column, Curve, Curves, Document, Heading, Line, Listing, Mark, Table
from sublight.report.views.common import in_all, known
from sublight.report.views.limit import limit_document
from sublight.rows import ROWS
from sublight.units import show_ms


def sweep_document(sweep: Sweep) -> Document:
    """The first limit in full, then the totals over batch sizes."""
    first = limit_document(sweep.first)
    return Document(first.title, (*first.whole, *sweep_blocks(sweep.points, sweep.first)), first.footer)


def sweep_blocks(points: tuple[Point, ...], first: DecodeLimit) -> list[Block]:
    """Table, chart, and where rows turn compute-bound.

    Args:
        first: the limit of the first point; the others differ from it in the batch alone.
    """
    turns: dict[int, list[str]] = {}
    for id_, batch in crossovers(points).items():
        turns.setdefault(batch, []).append(ROWS[id_].title)
    listed = [Cell(f"from batch {at:,} on, arithmetic binds {', '.join(names)}") for at, names in sorted(turns.items())]
    listed = listed or [Cell("memory binds every row at every batch size of this sweep")]
    if (most := _too_many(points, first)) is not None:
        listed.append(Cell(f"from batch {most:,} on, weights and caches take more memory than a card has"))
    return [
        Heading("Over batch sizes"),
        _table(points, first),
        _chart(points, turns),
        Listing(tuple(listed)),
    ]


def _too_many(points: tuple[Point, ...], first: DecodeLimit) -> int | None:
    """The first batch size of the sweep that cannot fit in memory."""
    return next((p.batch for p in points if not _fits(p, first)), None)


def _fits(point: Point, first: DecodeLimit) -> bool:
    work = first.workload.with_batch(point.batch)
    return first.memory.holds(work.sequences_per_rank, work.context) is not False


def _floor_s(point: Point) -> float:
    return point.rows_s if point.best_s.value is None else point.best_s.value


def _table(points: tuple[Point, ...], first: DecodeLimit) -> Table:
    gained = first.tokens_per_step  # None where nobody measured it, and then no rates are shown
    has_best = any(p.best_s.value is not None and p.best_s.value != p.rows_s for p in points)
    has_experts = any(p.experts_hit for p in points)
    columns = [Column("batch", "right"), Column("memory ms", "right", 1), Column("rows ms", "right")]
    if has_best:
        columns += [Column("floor ms", "right"), Column("NCCL ms", "right", 1)]
    if has_experts:
        columns += [Column("experts hit", "right", 1), Column("routed experts ms", "right", 2)]
    if gained is not None:
        columns += [Column("tok/s each", "right"), Column(f"tok/s {in_all(first)}", "right")]
    lines = []
    for point in points:
        cells = [Cell(f"{point.batch:,}"), Cell(show_ms(point.memory_s)), Cell(show_ms(point.rows_s))]
        if has_best:
            cells += [known(point.best_s), known(point.nccl_s)]
        if has_experts:
            cells += [Cell(f"{point.experts_hit:,.1f}"), Cell(show_ms(point.experts_s))]
        if gained is not None:
            cells += _speeds(point, first, gained)
        lines.append(Line(tuple(cells)))
    return Table(tuple(columns), tuple(lines))


def _speeds(point: Point, first: DecodeLimit, gained: float) -> list[Cell]:
    if not _fits(point, first):
        return [Cell("does not fit", "muted"), Cell("", "muted")]
    seconds = _floor_s(point)
    return [Cell(f"{gained / seconds:,.1f}"), Cell(f"{gained * point.batch / seconds:,.0f}")]


def _chart(points: tuple[Point, ...], turns: dict[int, list[str]]) -> Curves:
    def curve(name: str, value: Callable[[Point], float]) -> Curve:
        return Curve(name, tuple((float(p.batch), value(p) * 1e3) for p in points))

    curves = [curve("floor", _floor_s), curve("memory alone", lambda p: p.memory_s)]
    if all(p.experts_s for p in points):
        curves.append(curve("routed experts", lambda p: p.experts_s))
    marks = tuple(
        Mark(
            float(at), f"{names[0]} turns compute-bound" if len(names) == 1 else f"{len(names)} rows turn compute-bound"
        )
        for at, names in sorted(turns.items())
    )
    return Curves("Step time over batch size", "batch", "ms", tuple(curves), marks, log_x=True, log_y=True)
