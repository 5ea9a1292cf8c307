"""The document of several ranks: who waits for whom in their collectives."""

from sublight.report.blocks import Block, Cell, Column, Document, Heading, Headline, Line, Listing, Table
from sublight.trace.power import shown, waits
from sublight.trace.skew import RankSkew, Skew
from sublight.units import show_count, show_time


def skew_document(skew: Skew) -> Document:
    """The straggler first, then each rank, then what limits the answer."""
    straggler = skew.straggler
    late = max((rank.late_ns for rank in skew.ranks), default=0)
    figures = [
        ("straggler", "none" if straggler is None else f"rank {straggler}", f"{show_time(late * 1e-9)} a step"),
        ("collectives compared", show_count(skew.compared), f"nobody late in {show_count(skew.together)} of them"),
        ("uncertainty", show_time(skew.uncertainty_ns * 1e-9), "of the clocks: nothing shorter is told from zero"),
    ]
    if not skew.compared:
        figures = [("straggler", "not known", "no collective of the usual steps could be compared")]
    blocks: list[Block] = [Headline(tuple(figures)), Heading("Ranks"), _ranks(skew)]
    if skew.missing:
        blocks.append(Listing((Cell(f"ranks without a trace: {', '.join(map(str, skew.missing))}", "warn"),)))
    if skew.notes:
        blocks += [Heading("How to read this"), Listing(tuple(Cell(note) for note in skew.notes))]
    return Document("Ranks of one run", tuple(blocks), "Sublight: read from a profiler trace a rank")


def _time(rank: RankSkew, ns: int) -> Cell:
    return Cell(f"{ns / 1e6:,.3f}") if rank.steps else Cell("not known", "muted")


def _ranks(skew: Skew) -> Table:
    columns = (
        Column("rank", "right"),
        Column("waiting ms", "right"),
        Column("transfer ms", "right"),
        Column("came last", "right"),
        Column("late ms", "right"),
        Column("steps", "right", 1),
        *((Column("power", "left", 1),) if skew.power else ()),
    )
    lines = [
        Line(
            (
                Cell(str(rank.rank), "warn" if rank.rank == skew.straggler else "plain"),
                _time(rank, rank.waiting_ns),
                _time(rank, rank.transfer_ns),
                Cell(show_count(rank.last) if rank.steps else ""),
                _time(rank, rank.late_ns),
                Cell(show_count(rank.steps)),
                *((_power(skew, rank.rank),) if skew.power else ()),
            )
        )
        for rank in skew.ranks
    ]
    return Table(columns, tuple(lines), "In all collectives of a step; medians over the steps.")


def _power(skew: Skew, rank: int) -> Cell:
    card = skew.power.get(rank)
    return Cell("not in the log", "muted") if card is None else Cell(shown(card), "warn" if waits(card) else "plain")
