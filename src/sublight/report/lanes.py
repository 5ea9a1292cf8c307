"""What can be said of a timeline's lanes without drawing them: the time of each group, and a lane in a few cells.

Events of one lane may overlap, as a kernel may start before the one ahead of it has ended. Each moment then counts
once, for the event that began first, so that what is busy and what is idle sum to the span.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from sublight.report.blocks import Timeline


class Group(msgspec.Struct, frozen=True):
    """Rows of one colour that have events: their numbers, and the sum of the durations.

    `number` counts groups without events too, so that timelines with the same rows have the same colours.
    """

    number: int
    name: str
    known: bool
    rows: tuple[int, ...]
    time: float


class Stretch(msgspec.Struct, frozen=True):
    """From where to where a lane was busy with a row, up to what another event had covered already."""

    start: float
    end: float
    row: int


def groups(block: Timeline) -> tuple[Group, ...]:
    """The groups that have events, in the order of `block.rows`. A row without events belongs to none."""
    times: defaultdict[int, float] = defaultdict(float)
    for row, duration in zip(block.events.row, block.events.duration, strict=True):
        times[row] += duration
    members: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    for index, meant in enumerate(block.rows):
        members[meant.group, meant.known] += [index] if index in times else []
    return tuple(
        Group(number, name, known, tuple(rows), sum(times[row] for row in rows))
        for number, ((name, known), rows) in enumerate(members.items())
        if rows
    )


def stretches(block: Timeline, lane: int) -> list[Stretch]:
    """The busy time of a lane, without overlap, in order."""
    found = []
    reached = 0.0
    for start, duration, its_lane, row in zip(
        block.events.start, block.events.duration, block.events.lane, block.events.row, strict=True
    ):
        if its_lane == lane and start + duration > reached:
            found.append(Stretch(max(start, reached), start + duration, row))
            reached = start + duration
    return found


def busy(found: Sequence[Stretch]) -> float:
    return sum(stretch.end - stretch.start for stretch in found)


class Portion(msgspec.Struct, frozen=True):
    """A part of a lane from `start` to `end`, both 0 to 1, under one class of row, and the share that it was busy."""

    start: float
    end: float
    key: int
    busy: float


def deal(found: Sequence[Stretch], classes: Mapping[int, int], span: float, count: int) -> list[Portion]:
    """A lane in `count` cells of one class each, without those in which nothing ran.

    Many events share a cell, and the longest of them would win every time. Cells are dealt instead: who loses one
    keeps its claim, so that the busy time of the cells of a class is about its own. A class only gets cells in which
    it ran, and at least one where there are enough.

    Args:
        found: `stretches` of the lane.
        classes: what each row counts as.
        span: of the axis.
        count: how many cells the axis is cut into.
    """
    shares = _shares(found, classes, span / count, count)
    claims: defaultdict[int, float] = defaultdict(float)
    cells: dict[int, int] = {}
    for place, share in enumerate(shares):
        for key, time in share.items():
            claims[key] += time
        if share:
            winner = max(share, key=lambda key: claims[key])
            claims[winner] -= sum(share.values())
            cells[place] = winner
    dealt = Counter(cells.values())
    for key in dict.fromkeys(key for share in shares for key in share if key not in dealt):
        place = max(range(count), key=lambda index: shares[index].get(key, 0.0))
        if dealt[cells[place]] > 1:
            dealt[cells[place]] -= 1
            cells[place] = key
    full = span / count
    return [
        Portion(place / count, (place + 1) / count, key, min(sum(shares[place].values()) / full, 1.0))
        for place, key in cells.items()
    ]


def runs(cells: Sequence[Portion]) -> list[Portion]:
    """The same with neighbours of one class in one piece, as busy as they were together; gaps stay."""
    joined: list[Portion] = []
    for cell in cells:
        last = joined[-1] if joined else None
        if last is not None and last.key == cell.key and cell.start - last.end < 1e-9:
            time = last.busy * (last.end - last.start) + cell.busy * (cell.end - cell.start)
            joined[-1] = Portion(last.start, cell.end, cell.key, time / (cell.end - last.start))
        else:
            joined.append(cell)
    return joined


def _shares(found: Sequence[Stretch], classes: Mapping[int, int], width: float, count: int) -> list[dict[int, float]]:
    """The time of each class in each cell."""
    shares: list[defaultdict[int, float]] = [defaultdict(float) for _ in range(count)]
    for stretch in found:
        first, last = (min(int(place / width), count - 1) for place in (stretch.start, stretch.end))
        for cell in range(first, last + 1):
            time = min(stretch.end, (cell + 1) * width) - max(stretch.start, cell * width)
            if time > 0:
                shares[cell][classes[stretch.row]] += time
    return [dict(share) for share in shares]
