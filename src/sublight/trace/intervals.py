"""Sets of time as sorted intervals: union, intersection, difference, gaps; exact, on int64.

An interval holds its start and not its end. A set of intervals is a pair of arrays, starts and ends; it is *disjoint*
when it is sorted, no interval is empty, and no two touch. Every function takes any intervals, sorted by start or not,
empty ones included, and gives a disjoint set: two descriptions of the same time come out equal.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_WINDOW = 1 << 16
Times = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Starts and ends of equal length."""

    start: Times
    end: Times

    @property
    def total(self) -> int:
        """The sum of the lengths: of a disjoint set, the time it covers."""
        return int((self.end - self.start).sum())


def union(intervals: Intervals) -> Intervals:
    """The time in at least one of the intervals."""
    start, end = np.asarray(intervals.start, np.int64), np.asarray(intervals.end, np.int64)
    there = end > start
    if not there.all():
        start, end = start[there], end[there]
    if not len(start):
        return Intervals(start, end)
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    # A new interval begins where nothing before it has reached.
    begins = np.flatnonzero(start[1:] > reached[:-1]) + 1
    return Intervals(start[np.append(0, begins)], reached[np.append(begins - 1, len(start) - 1)])


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """The time in both."""
    return _where_depth(union(one), union(other), 2)


def subtraction(one: Intervals, other: Intervals) -> Intervals:
    """The time in the first and not in the second."""
    one, other = union(one), union(other)
    if not len(one.start):
        return one
    return intersection(one, _outside(other, int(one.start[0]), int(one.end[-1])))


def gaps(intervals: Intervals, first: int | None = None, last: int | None = None) -> Intervals:
    """The time between `first` and `last` that no interval covers; by default, the holes between the intervals."""
    covered = union(intervals)
    if not len(covered.start) and (first is None or last is None):
        return covered
    begin = int(covered.start[0]) if first is None else first
    stop = int(covered.end[-1]) if last is None else last
    return subtraction(Intervals(np.array([begin]), np.array([stop])), covered)


def covered_within(intervals: Intervals, first: int, last: int) -> int:
    """How much of the time between `first` and `last` the intervals cover."""
    covered = union(intervals)
    start, end = np.maximum(covered.start, first), np.minimum(covered.end, last)
    return int(np.maximum(end - start, 0).sum())


def covered_time(start: Times, duration: Times, wanted: npt.NDArray[np.bool_] | None = None) -> int:
    """The length of the union of spans sorted by start, without making any array as long as they are."""
    total, reached = 0, -(2**63)
    for low in range(0, len(start), _WINDOW):
        rows = slice(low, low + _WINDOW)
        begin, end = start[rows], start[rows] + duration[rows]
        if wanted is not None:
            begin, end = begin[wanted[rows]], end[wanted[rows]]
        if len(begin):
            before = np.maximum.accumulate(np.append(reached, end))
            total += int(np.maximum(end - np.maximum(begin, before[:-1]), 0).sum())
            reached = int(before[-1])
    return total


def last_end(start: Times, duration: Times) -> int:
    """When the last of some spans ends; there must be one."""
    return max(
        int((start[low : low + _WINDOW] + duration[low : low + _WINDOW]).max()) for low in range(0, len(start), _WINDOW)
    )


def _outside(disjoint: Intervals, first: int, last: int) -> Intervals:
    """The complement within an interval that may be wider or narrower than the set."""
    low = np.concatenate(([min(first, int(disjoint.start[0]))] if len(disjoint.start) else [first], disjoint.end))
    high = np.concatenate((disjoint.start, [max(last, int(disjoint.end[-1]))] if len(disjoint.end) else [last]))
    return union(Intervals(low.astype(np.int64), high.astype(np.int64)))


def _where_depth(one: Intervals, other: Intervals, depth: int) -> Intervals:
    """Where `depth` of two disjoint sets lie on each other."""
    times = np.concatenate((one.start, other.start, one.end, other.end))
    steps = np.repeat(np.array([1, -1], np.int8), [len(one.start) + len(other.start)] * 2)
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(steps[order], dtype=np.int64)
    if not len(times):
        return Intervals(times, times)
    inside = np.flatnonzero(level[:-1] >= depth)
    return union(Intervals(times[inside], times[inside + 1]))
