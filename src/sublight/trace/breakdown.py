"""Where the time of a step went: every nanosecond is exactly one of three things.

- *exposed*: one row runs alone. Its kernels may overlap each other (a dependent launch starts before its predecessor
  ends); the time counts once.
- *overlap*: several rows run side by side. The time belongs to the set of them and to none alone.
- *idle*: nothing runs; of which kind, `idle` tells.

They sum to the wall time to the nanosecond, or a `Breakdown` can not be made. What kernels take when their durations
are added up is kept beside it and is more wherever something overlaps: it is no part of the sum, and taking a row away
would not save it.

An event that runs across the boundary of a step counts in both, in each with the part that lies in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.rows import ROWS
from sublight.trace.events import Ids, Trace
from sublight.trace.idle import Idle, IdleKind, idle_kinds
from sublight.trace.labels import Labels, Shown
from sublight.trace.phases import Phase
from sublight.trace.steps import Step, Steps
from sublight.trace.timeline import Integers, Timeline

_BITS = 63
_EVENTS_AT_ONCE = 50_000


class BackendTime(msgspec.Struct, frozen=True):
    """Summed durations of what one backend ran of a row; "" where the backend is not known."""

    backend: str
    summed_ns: int
    calls: int


class RowTime(msgspec.Struct, frozen=True):
    """One row of a step. `name` is the row, or the kind of work of what belongs to no row.

    `category` (compute, communication, memory) is that of most of its time.

    `calls` are the events that began in the step. `summed_ns` adds up durations, as far as they lie in the step.
    """

    name: str
    category: str
    exposed_ns: int
    overlapped_ns: int
    summed_ns: int
    calls: int
    backends: tuple[BackendTime, ...]


class Overlap(msgspec.Struct, frozen=True):
    """Time in which exactly these rows ran side by side."""

    rows: tuple[str, ...]
    categories: tuple[str, ...]
    ns: int

    @property
    def name(self) -> str:
        return " + ".join(self.rows)


class Breakdown(msgspec.Struct, frozen=True):
    """One step, taken apart. Rows by exposed time, overlaps and idle by length, each with the longest first."""

    device: int
    step: int
    start_ns: int
    end_ns: int
    phase: Phase
    replayed: bool
    rows: tuple[RowTime, ...]
    overlaps: tuple[Overlap, ...]
    idle: tuple[Idle, ...]

    def __post_init__(self) -> None:
        parts = self.exposed_ns + self.overlap_ns + self.idle_ns
        if parts != self.wall_ns:
            raise ValueError(f"rows, overlaps and idle sum to {parts} ns, the step takes {self.wall_ns}")
        for row in self.rows:
            beside = sum(overlap.ns for overlap in self.overlaps if row.name in overlap.rows)
            if row.overlapped_ns != beside:
                raise ValueError(f"{row.name}: {row.overlapped_ns} ns beside others, the overlaps hold {beside}")

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def exposed_ns(self) -> int:
        return sum(row.exposed_ns for row in self.rows)

    @property
    def overlap_ns(self) -> int:
        return sum(overlap.ns for overlap in self.overlaps)

    @property
    def idle_ns(self) -> int:
        return sum(idle.ns for idle in self.idle)

    @property
    def busy_ns(self) -> int:
        return self.exposed_ns + self.overlap_ns

    @property
    def totals(self) -> dict[str, int]:
        """The wall time by category: exposed time of each, then "overlap", then each kind of idle. Sums exactly."""
        result: dict[str, int] = {}
        for row in self.rows:
            result[row.category] = result.get(row.category, 0) + row.exposed_ns
        result["overlap"] = self.overlap_ns
        for idle in self.idle:
            result[idle.kind.value] = idle.ns
        return result


class Spread(msgspec.Struct, frozen=True):
    """One part over several steps, 0 where a step lacks it. Medians of parts do not sum to the median of the whole."""

    name: str
    median_ns: int
    p10_ns: int
    p90_ns: int


class MedianBreakdown(msgspec.Struct, frozen=True):
    """The median step taken apart, which sums exactly, and how each part varies over the steps like it, which does not.

    `rows` are exposed times; `overlap` is all overlaps together.
    """

    step: Breakdown
    steps: int
    rows: tuple[Spread, ...]
    overlap: Spread
    idle: tuple[Spread, ...]


def break_down(trace: Trace, step: Step, labels: Labels) -> Breakdown:
    """One step, taken apart."""
    return break_down_each(trace, (step,), labels)[0]


def break_down_each(trace: Trace, steps: Sequence[Step], labels: Labels) -> tuple[Breakdown, ...]:
    """Steps of one device, each taken apart; the order of the device's work is made out once for all."""
    line, shown = Timeline(trace, steps[0].device, steps[0].process), labels.shown()
    return tuple(_Parts((step,), labels, shown, line).breakdown(0) for step in steps)


def median_breakdown(trace: Trace, steps: Steps, labels: Labels) -> MedianBreakdown | None:
    """The median step taken apart, with the variation over all steps that it is the median of; None without steps."""
    if steps.median is None:
        return None
    alike = steps.alike()
    line, shown = Timeline(trace, steps.device, steps.process), labels.shown()
    names = shown[1]
    exposed, idle, overlap, middle = [], [], [], None
    for some in _batches(alike):
        parts = _Parts(some, labels, shown, line)
        exposed.append(parts.exposed)
        idle.append(parts.idle)
        overlap.append(parts.overlap.sum(axis=1))
        place = next((place for place, step in enumerate(some) if step.index == steps.median), None)
        if place is not None:
            middle = parts.breakdown(place)
    if middle is None:
        return None
    of_rows, of_idle = np.concatenate(exposed), np.concatenate(idle)
    order = np.argsort(-np.median(of_rows, axis=0), kind="stable").tolist()
    return MedianBreakdown(
        step=middle,
        steps=len(alike),
        rows=tuple(_spread(names[part], of_rows[:, part]) for part in order),
        overlap=_spread("overlap", np.concatenate(overlap)),
        idle=tuple(_spread(kind.value, of_idle[:, place]) for place, kind in enumerate(IdleKind)),
    )


def _batches(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Steps in runs of a bounded number of events: cutting time into segments takes several numbers for each."""
    first = 0
    for place, step in enumerate(steps):
        if step.last - steps[first].first > _EVENTS_AT_ONCE and place > first:
            yield steps[first:place]
            first = place
    if steps:
        yield steps[first:]


def _spread(name: str, values: Integers) -> Spread:
    low, middle, high = np.percentile(values, [10, 50, 90], method="nearest").astype(np.int64).tolist()
    return Spread(name, middle, low, high)


@dataclass(frozen=True, slots=True)
class _Segments:
    """The time of the steps, cut wherever a row begins or ends: what runs is the same throughout a segment."""

    start: Integers
    end: Integers
    step: Integers
    alone: Integers  # the row that runs; -1 if none or several do
    several: Integers  # the number of the set of rows that run, from 0; -1 if fewer than two do
    sets: list[tuple[int, ...]]


class _Parts:
    """Some steps of one device, taken apart together: one pass over their events.

    Attributes:
        names: of the rows, in the order of the columns of `exposed`.
        exposed: per step and row.
        overlap: per step and set of rows.
        idle: per step and kind.
    """

    def __init__(
        self, steps: Sequence[Step], labels: Labels, shown: tuple[Shown, tuple[str, ...]], line: Timeline
    ) -> None:
        self._steps, self._labels = steps, labels
        self._begin = np.array([step.start_ns for step in steps], np.int64)
        self._end = np.array([step.end_ns for step in steps], np.int64)
        number, self.names = shown
        # What ended before the first step, or began after the last, needs no look.
        begins_in, behind = line.at_time(np.array([self._begin[0], self._end[-1]])).tolist()
        first = min(line.running_at(int(self._begin[0])), begins_in)
        # One more, which ends the last gap.
        there = line.stretch(first, behind + 1)
        inside = slice(behind - first)
        self._rows, self._start, self._stop = there.rows[inside], there.start[inside], there.end[inside]
        self._part = number[self._rows]
        segments = _segments(self._start, self._stop, self._part, self._begin, self._end)
        length = segments.end - segments.start

        def table(at: Integers, number: Integers, width: int, weight: Integers) -> Integers:
            cells = np.bincount(segments.step[at] * width + number, weight, len(steps) * width)
            return cells.astype(np.int64).reshape(len(steps), width)

        alone, several = np.flatnonzero(segments.alone >= 0), np.flatnonzero(segments.several >= 0)
        self._sets = [tuple(sorted(rows, key=lambda row: _order(self.names[row]))) for rows in segments.sets]
        self.exposed = table(alone, segments.alone[alone], len(self.names), length[alone])
        self.overlap = table(several, segments.several[several], len(self._sets), length[several])
        idle = np.flatnonzero((segments.alone < 0) & (segments.several < 0))
        kind, waited = idle_kinds(
            line.trace.calls, there, segments.start[idle], segments.end[idle], self._end[segments.step[idle]]
        )
        self.idle = table(idle, kind, len(IdleKind), length[idle])
        self._waited = table(idle, kind, len(IdleKind), waited)
        self._gaps = table(idle, kind, len(IdleKind), np.ones_like(idle))

    def breakdown(self, place: int) -> Breakdown:
        """One of the steps."""
        step, labels = self._steps[place], self._labels
        start, end = int(self._begin[place]), int(self._end[place])
        within = np.clip(self._stop, start, end) - np.clip(self._start, start, end)
        begun = (self._start >= start) & (self._start < end)
        touched = np.flatnonzero(begun | (within > 0))
        rows, part, within, begun = self._rows[touched], self._part[touched], within[touched], begun[touched]
        backend = _by(part, labels.backend[rows], len(labels.backends), within, begun)
        category = _by(part, labels.category[rows], len(labels.categories), within, begun)
        category_of = {
            row: labels.categories[max(found, key=lambda one: found[one])] for row, found in category.items()
        }
        overlaps = [
            Overlap(tuple(self.names[row] for row in together), tuple(category_of[row] for row in together), ns)
            for together, ns in zip(self._sets, self.overlap[place].tolist(), strict=True)
            if ns
        ]
        times = [
            RowTime(
                name=self.names[row],
                category=category_of[row],
                exposed_ns=int(self.exposed[place, row]),
                overlapped_ns=sum(overlap.ns for overlap in overlaps if self.names[row] in overlap.rows),
                summed_ns=sum(ns for ns, _ in found.values()),
                calls=sum(calls for _, calls in found.values()),
                backends=tuple(
                    BackendTime(labels.backends[one], ns, calls)
                    for one, (ns, calls) in sorted(found.items(), key=lambda item: -item[1][0])
                ),
            )
            for row, found in backend.items()
        ]
        idle = zip(IdleKind, *(t[place].tolist() for t in (self.idle, self._gaps, self._waited)), strict=True)
        return Breakdown(
            device=step.device,
            step=step.index,
            start_ns=start,
            end_ns=end,
            phase=step.phase,
            replayed=step.replayed,
            rows=tuple(sorted(times, key=lambda row: (-row.exposed_ns, row.name))),
            overlaps=tuple(sorted(overlaps, key=lambda overlap: (-overlap.ns, overlap.rows))),
            idle=tuple(sorted((Idle(*one) for one in idle if one[2]), key=lambda one: -one.ns)),
        )


def _order(name: str) -> tuple[int, str]:
    return (ROWS[name].order if name in ROWS else len(ROWS), name)


def _by(
    part: Ids, number: Ids, width: int, within: Integers, begun: npt.NDArray[np.bool_]
) -> dict[int, dict[int, tuple[int, int]]]:
    """Summed time and calls per row, and within it per number of another column."""
    cells = part.astype(np.int64) * width + number
    used, where = np.unique(cells, return_inverse=True)
    ns, calls = np.bincount(where, within).astype(np.int64), np.bincount(where, begun).astype(np.int64)
    result: dict[int, dict[int, tuple[int, int]]] = {}
    for cell, its_ns, its_calls in zip(used.tolist(), ns.tolist(), calls.tolist(), strict=True):
        result.setdefault(cell // width, {})[cell % width] = (its_ns, its_calls)
    return result


def _segments(start: Integers, stop: Integers, part: Ids, begin: Integers, end: Integers) -> _Segments:
    """Cut the time from `begin` to `end` of each step at every beginning and end of what runs.

    Each row's events are united first, so a row that begins was not running. Then a running count of the rows, and a
    running sum of their numbers, tell what runs: where the count is one, the sum is the row.
    """
    low, high, row = _united(start, stop, part)
    rows = int(part.max(initial=0)) + 1
    # Time, row and direction in one number: sorting numbers is several times faster than sorting their places.
    first = min(int(begin[0]), int(low.min(initial=begin[0])))
    edge = np.full(len(begin), 2 * rows)
    bits = edge.max(initial=1).item().bit_length()
    turns = ((low, 2 * row), (high, 2 * row + 1), (begin, edge), (end, edge))
    keys = np.concatenate([((time - first) << bits) + turn for time, turn in turns])
    keys.sort()
    times, turn = (keys >> bits) + first, keys & ((1 << bits) - 1)
    sign = np.append(np.tile(np.array([1, -1]), rows), 0)
    weight = sign * (np.arange(2 * rows + 1) // 2)
    inside = np.flatnonzero(times[1:] > times[:-1])
    step = np.searchsorted(begin, times[inside], side="right") - 1
    held = (step >= 0) & (times[inside] < end[np.maximum(step, 0)])
    inside, step = inside[held], step[held]
    count = np.cumsum(sign[turn])[inside]
    more = np.flatnonzero(count > 1)
    several = np.full(len(inside), -1)
    sets: list[tuple[int, ...]] = []
    if len(more):
        several[more], sets = _sets(turn, inside[more], rows)
    alone = np.where(count == 1, np.cumsum(weight[turn])[inside], -1)
    return _Segments(times[inside], times[inside + 1], step, alone, several, sets)


def _sets(turn: Integers, places: Integers, rows: int) -> tuple[Integers, list[tuple[int, ...]]]:
    """Which set of rows runs at each place, and the sets. A bit per row is turned over wherever it begins or ends."""
    number = np.zeros(len(places), np.int64)
    of_row = np.append(np.arange(2 * rows) // 2, -1)
    words = []
    for word in range((rows - 1) // _BITS + 1):
        bit = np.where(of_row // _BITS == word, np.int64(1) << np.maximum(of_row % _BITS, 0), 0)
        words.append(np.bitwise_xor.accumulate(bit[turn])[places])
        different, which = np.unique(words[-1], return_inverse=True)
        number = number * len(different) + which
    _, example, number = np.unique(number, return_index=True, return_inverse=True)
    held = [[int(bits[place]) for bits in words] for place in example.tolist()]
    sets = [tuple(row for row in range(rows) if mask[row // _BITS] >> row % _BITS & 1) for mask in held]
    return number, sets


def _united(start: Integers, stop: Integers, part: Ids) -> tuple[Integers, Integers, Integers]:
    """The stretches in which each row runs: starts, ends, rows. No two of one row touch, and none is empty."""
    order = np.argsort(part, kind="stable")
    start, stop, row = start[order], stop[order], part[order].astype(np.int64)
    there = stop > start
    start, stop, row = start[there], stop[there], row[there]
    if not len(start):
        return start, stop, row
    # Rows are laid one behind the other on one axis, so that all are united at once.
    first = int(start.min())
    width = int(stop.max()) - first + 1
    low, high = start - first + row * width, np.maximum.accumulate(stop - first + row * width)
    fresh = np.append(True, low[1:] > high[:-1])
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(low) - 1)
    return start[fresh], high[last] - row[last] * width + first, row[fresh]
