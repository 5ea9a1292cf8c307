"""The order of work on one stream: what runs into the next row, and which of those times can not be true.

The rows are gone through in windows from the last to the first, so that the row after each is known and repaired, and
nothing as long as the trace is made besides it.
"""

from dataclasses import dataclass, field

import numpy as np

from sublight.trace.events import GpuEvents, Nanoseconds

_LEAST_NS = 100_000
_TIMES_USUAL = 10
_ENOUGH = 4
_WINDOW = 1 << 16


@dataclass
class Order:
    """What was found.

    Attributes:
        duration: the durations after clipping.
        clipped: the rows that were, first to last.
        removed_ns: how much time that took away.
        overlaps: how many rows run into the next and were kept.
        longest_ns: the longest such overlap.
        first_overlap: the first such row.
        endless: rows with an impossible duration and nothing to cut them at.
    """

    duration: Nanoseconds
    clipped: list[int] = field(default_factory=list)
    removed_ns: int = 0
    overlaps: int = 0
    longest_ns: int = 0
    first_overlap: int = -1
    endless: list[int] = field(default_factory=list)


def clip(gpu: GpuEvents, profiled_to: int | None) -> Order:
    """Clip impossible durations and count the possible overlaps.

    Args:
        gpu: rows sorted by start, durations not negative.
        profiled_to: when the profiler stopped, if that is known.
    """
    order = Order(gpu.duration)
    usual = _Usual(gpu)
    following = [-1] * len(gpu.lanes)
    last_rows: list[int] = []
    for low in reversed(range(0, len(gpu), _WINDOW)):
        lanes = gpu.lane[low : low + _WINDOW]
        suspects: list[tuple[int, int]] = []
        for lane in np.flatnonzero(np.bincount(lanes)).tolist():
            rows = np.flatnonzero(lanes == lane) + low
            after = np.append(rows[1:], following[lane])
            if following[lane] < 0:
                last_rows.append(int(rows[-1]))
                rows, after = rows[:-1], after[:-1]
            following[lane] = int(rows[0]) if len(rows) else last_rows[-1]
            overlap = gpu.start[rows] + gpu.duration[rows] - gpu.start[after]
            suspect = overlap > _LEAST_NS
            suspects.extend(zip(rows[suspect].tolist(), after[suspect].tolist(), strict=True))
            _keep(order, rows[~suspect], overlap[~suspect])
        for row, next_row in sorted(suspects, reverse=True):
            _judge(gpu, order, usual, row, next_row)
    order.clipped.reverse()
    if profiled_to is not None:
        order.endless = [row for row in last_rows if _endless(gpu, usual, row, profiled_to)]
    return order


def _keep(order: Order, rows: Nanoseconds, overlap: Nanoseconds) -> None:
    over = overlap > 0
    if over.any():
        order.overlaps += int(over.sum())
        order.longest_ns = max(order.longest_ns, int(overlap.max()))
        first = int(rows[over][0])
        order.first_overlap = first if order.first_overlap < 0 else min(order.first_overlap, first)


def _judge(gpu: GpuEvents, order: Order, usual: "_Usual", row: int, next_row: int) -> None:
    start, duration, next_start = int(gpu.start[row]), int(order.duration[row]), int(gpu.start[next_row])
    outlasts = start + duration > next_start + int(order.duration[next_row])
    if outlasts and duration > _TIMES_USUAL * usual.of(row):
        if order.duration is gpu.duration:
            order.duration = gpu.duration.copy()
        order.duration[row] = next_start - start
        order.clipped.append(row)
        order.removed_ns += duration - (next_start - start)
    else:
        overlap = np.array([start + duration - next_start], np.int64)
        _keep(order, np.array([row], np.int64), overlap)


def _endless(gpu: GpuEvents, usual: "_Usual", row: int, profiled_to: int) -> bool:
    duration = int(gpu.duration[row])
    late = int(gpu.start[row]) + duration - profiled_to
    return late > _LEAST_NS and duration > _TIMES_USUAL * usual.of(row)


class _Usual:
    """How long such a row usually takes: the median of its name, or of its stream where the name is too rare."""

    def __init__(self, gpu: GpuEvents) -> None:
        self._gpu = gpu
        self._of_name: dict[int, float | None] = {}
        self._of_lane: dict[int, float] = {}

    def of(self, row: int) -> float:
        name, lane = int(self._gpu.name[row]), int(self._gpu.lane[row])
        if name not in self._of_name:
            alike = self._gpu.duration[self._gpu.name == name]
            self._of_name[name] = float(np.median(alike)) if len(alike) >= _ENOUGH else None
        known = self._of_name[name]
        if known is not None:
            return known
        if lane not in self._of_lane:
            on_lane = self._gpu.duration[self._gpu.lane == lane]
            self._of_lane[lane] = float(np.median(on_lane[on_lane > 0])) if (on_lane > 0).any() else 0.0
        return self._of_lane[lane]
