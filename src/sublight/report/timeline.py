"""A timeline on a page: the still picture that is there before any script, its legend, and its longest events as text.

The script draws the same events on a canvas, from the page's own data, so only what it can not know is made here.
"""

import math
from collections.abc import Iterator

import msgspec

from sublight.report.axis import axis, number
from sublight.report.blocks import Cell, Column, Line, Table, Timeline
from sublight.report.charts import COLOURS, Tick
from sublight.report.lanes import Portion, Stretch, busy, deal, groups, runs, stretches

PIECES = 600  # rectangles of the still picture, over all lanes
WIDTH = 1000  # of the still picture, in its own units; it stretches to the page
THIN = 1.0  # of these units: what can just be seen
LONGEST = 30  # events in the table
LONG = 120  # characters of a name in that table
TICKS = 5


class Piece(msgspec.Struct, frozen=True):
    """A stretch of one row, in units of the still picture; it stands on the ground, and is as high as it was busy."""

    x: float
    width: float
    height: float
    colour: str
    hint: str


class LaneStrip(msgspec.Struct, frozen=True):
    name: str
    text: str
    pieces: tuple[Piece, ...]


class Key(msgspec.Struct, frozen=True):
    """A group in the legend, and its rows by number."""

    name: str
    colour: str
    rows: tuple[tuple[int, str], ...]

    @property
    def alone(self) -> bool:
        """Whether the group has nothing but a row of its own name, which says it all."""
        return [name for _, name in self.rows] == [self.name]


class Still(msgspec.Struct, frozen=True):
    lanes: tuple[LaneStrip, ...]
    bands: tuple[Piece, ...]
    ticks: tuple[Tick, ...]
    marks: tuple[str, ...]
    spoken: str
    decimals: int


def still(block: Timeline) -> Still:
    colours = {row: key.colour for key in keys(block) for row, _ in key.rows}
    lanes = []
    for index, name in enumerate(block.lanes):
        found = stretches(block, index)
        share = f"busy {busy(found) / block.span * 100:.1f} %"
        lanes.append(LaneStrip(name, share, tuple(_pieces(block, found, colours))))
    bands = (
        Piece(band.start * _scale(block), (band.end - band.start) * _scale(block), 100, "", band.label)
        for band in block.bands
    )
    ticks = axis([0.0, block.span], log=False, ticks=TICKS).ticks
    return Still(
        tuple(lanes),
        tuple(bands),
        tuple(Tick(tick / block.span * 100, number(tick)) for tick in ticks),
        tuple(f"{number(mark.x)} {block.unit}: {mark.label}" for mark in block.marks),
        _spoken(block, lanes),
        decimals(block),
    )


def keys(block: Timeline) -> tuple[Key, ...]:
    """The legend. Colours go by group, and start over where there are more groups than colours."""
    return tuple(
        Key(
            group.name,
            f"c{group.number % COLOURS}" if group.known else "unknown",
            tuple((row, block.rows[row].name) for row in group.rows),
        )
        for group in groups(block)
    )


def longest(block: Timeline) -> Table:
    """The longest events, each with when it ran."""
    events = block.events
    order = sorted(range(len(events.start)), key=lambda index: -events.duration[index])[:LONGEST]
    unit, digits = block.unit, decimals(block)
    columns = (
        Column("row"),
        Column(f"duration, {unit}", "right"),
        Column(f"start, {unit}", "right"),
        Column("lane"),
        Column("event"),
    )
    lines = (
        (
            block.rows[events.row[index]].name,
            f"{events.duration[index]:,.{digits}f}",
            f"{events.start[index]:,.{digits}f}",
            block.lanes[events.lane[index]],
            _cut(block.names[events.name[index]]),
        )
        for index in order
    )
    return Table(columns, tuple(Line(tuple(Cell(text) for text in line)) for line in lines))


def _cut(name: str) -> str:
    """Names of kernels can be pages long; whole ones are under the pointer, and in the data."""
    return name if len(name) <= LONG else name[: LONG - 3] + "..."


def decimals(block: Timeline) -> int:
    """Digits behind the point that the events have, as far as a profiler can tell: eight figures of the span."""
    most = min(max(8 - math.ceil(math.log10(block.span)), 0), 12)
    times = (*block.events.start, *block.events.duration)
    return next((digits for digits in range(most) if all(round(time, digits) == time for time in times)), most)


def _scale(block: Timeline) -> float:
    return WIDTH / block.span


def _pieces(block: Timeline, found: list[Stretch], colours: dict[int, str]) -> Iterator[Piece]:
    """Each event where all can be seen and there is room for them; else as many cells as there is room for."""
    room = max(PIECES // max(len(block.lanes), 1), 1)
    narrowest = min((one.end - one.start for one in found), default=0.0) / block.span * WIDTH
    if len(found) <= room and narrowest >= THIN:
        portions = [Portion(one.start / block.span, one.end / block.span, one.row, 1.0) for one in found]
    else:
        portions = deal(found, {row: row for row in colours}, block.span, room)
    for one in runs(portions):
        width = (one.end - one.start) * WIDTH
        yield Piece(one.start * WIDTH, width, one.busy * 100, colours[one.key], block.rows[one.key].name)


def _spoken(block: Timeline, lanes: list[LaneStrip]) -> str:
    """The chart in a sentence, for a reader who cannot see it."""
    parts = [f"{block.title}: {len(block.events.start):,} events over {number(block.span)} {block.unit}"]
    parts += [f"{lane.name} {lane.text}" for lane in lanes]
    most = sorted(groups(block), key=lambda group: -group.time)[:5]
    parts += [f"{group.name} {number(group.time)} {block.unit}" for group in most]
    return "; ".join(parts)
