"""Interval sets against a bitmap that is too simple to be wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.trace import intervals
from sublight.trace.intervals import (
    Intervals,
    covered_time,
    covered_within,
    gaps,
    intersection,
    last_end,
    subtraction,
    union,
)

SIZE = 64
pairs = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)


def made(spans: list[tuple[int, int]]) -> Intervals:
    return Intervals(np.array([a for a, _ in spans], np.int64), np.array([b for _, b in spans], np.int64))


def bitmap(intervals: Intervals) -> set[int]:
    return {t for a, b in zip(intervals.start.tolist(), intervals.end.tolist(), strict=True) for t in range(a, b)}


def is_disjoint(intervals: Intervals) -> bool:
    start, end = intervals.start, intervals.end
    return bool((end > start).all() and (start[1:] > end[:-1]).all())


@given(pairs)
def test_union(spans: list[tuple[int, int]]) -> None:
    got = union(made(spans))
    assert is_disjoint(got)
    assert bitmap(got) == bitmap(made(spans))
    assert got.total == len(bitmap(made(spans)))


@given(pairs, pairs)
def test_intersection_and_subtraction(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = made(one), made(other)
    both, only = intersection(a, b), subtraction(a, b)
    assert is_disjoint(both)
    assert is_disjoint(only)
    assert bitmap(both) == bitmap(a) & bitmap(b)
    assert bitmap(only) == bitmap(a) - bitmap(b)
    assert both.total + only.total == union(a).total


@given(pairs, st.integers(0, SIZE), st.integers(0, SIZE))
def test_gaps_and_cover(spans: list[tuple[int, int]], first: int, last: int) -> None:
    intervals = made(spans)
    inside = set(range(first, last))
    assert bitmap(gaps(intervals, first, last)) == inside - bitmap(intervals)
    assert covered_within(intervals, first, last) == len(inside & bitmap(intervals))


def test_gaps_are_by_default_the_holes() -> None:
    holes = gaps(made([(10, 20), (15, 30), (40, 50), (50, 60)]))
    assert (holes.start.tolist(), holes.end.tolist()) == ([30], [40])
    assert len(gaps(made([])).start) == 0


def test_times_near_the_end_of_int64_are_exact() -> None:
    far = 1_759_449_600_000_000_000
    got = union(made([(far, far + 3), (far + 2, far + 5), (far + 5, far + 6), (far + 8, far + 9)]))
    assert got.total == 7
    assert (got.start - far).tolist() == [0, 8]


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 9)), max_size=30), st.data())
def test_time_covered_by_sorted_spans(spans: list[tuple[int, int]], data: st.DataObject) -> None:
    spans.sort()
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=len(spans), max_size=len(spans))), bool)
    start, duration = np.array([a for a, _ in spans], np.int64), np.array([d for _, d in spans], np.int64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(intervals, "_WINDOW", 4)
        assert covered_time(start, duration) == union(Intervals(start, start + duration)).total
        assert (
            covered_time(start, duration, wanted) == union(Intervals(start[wanted], (start + duration)[wanted])).total
        )
        if spans:
            assert last_end(start, duration) == max(a + d for a, d in spans)
