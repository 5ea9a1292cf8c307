from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.report.blocks import Events, Timeline
from sublight.report.lanes import Portion, Stretch, busy, deal, groups, runs, stretches

from .steps import SMALL


def test_a_group_sums_its_rows_and_keeps_its_number_when_another_has_no_events() -> None:
    assert [(group.number, group.name, group.rows, group.time) for group in groups(SMALL)] == [
        (0, "projections", (0, 1), 20.0),
        (1, "collectives", (2,), 13.0),
    ]
    only = Timeline("", "us", 9.0, ("s",), SMALL.rows, ("k",), Events((0.0,), (1.0,), (0,), (2,), (0,)))
    assert [(group.number, group.rows) for group in groups(only)] == [(1, (2,))]


def test_time_that_overlaps_counts_once_for_the_event_that_began_first() -> None:
    events = Events((0.0, 2.0, 3.0, 8.0), (4.0, 1.0, 3.0, 1.0), (0,) * 4, (0, 1, 2, 0), (0,) * 4)
    block = Timeline("", "us", 10.0, ("s",), SMALL.rows, ("k",), events)
    assert stretches(block, 0) == [Stretch(0.0, 4.0, 0), Stretch(4.0, 6.0, 2), Stretch(8.0, 9.0, 0)]
    assert busy(stretches(block, 0)) == 7.0


def test_cells_are_dealt_in_proportion_and_not_all_to_the_longest() -> None:
    # Every cell of ten has six of row 0, three of row 1 and one of idle.
    found = [
        stretch
        for cell in range(100)
        for stretch in (Stretch(cell * 10.0, cell * 10 + 6.0, 0), Stretch(cell * 10 + 6.0, cell * 10 + 9.0, 1))
    ]
    cells = deal(found, {0: 0, 1: 1}, 1000.0, 100)
    assert Counter(cell.key for cell in cells) == {0: 67, 1: 33}
    assert [cell.busy for cell in cells] == pytest.approx([0.9] * 100)


def test_what_ran_only_once_and_shortly_still_has_a_cell() -> None:
    found = [Stretch(0.0, 50.0, 0), Stretch(50.0, 50.1, 1), Stretch(50.1, 100.0, 0)]
    assert [cell.key for cell in deal(found, {0: 0, 1: 1}, 100.0, 10)] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


_lanes = st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3), st.integers(0, 4)), max_size=40)


@given(_lanes, st.integers(1, 60))
def test_a_cell_is_of_a_class_that_ran_in_it_and_the_heights_are_the_busy_time(
    parts: list[tuple[float, float, int]], count: int
) -> None:
    found = []
    place = 0.0
    for pause, duration, row in parts:
        found.append(Stretch(place + pause, place + pause + duration, row))
        place += pause + duration
    span = place + 1.0
    cells = deal(found, {row: row for row in range(5)}, span, count)
    for cell in cells:
        start, end = cell.start * span - 1e-9, cell.end * span + 1e-9
        assert any(one.row == cell.key and one.end > start and one.start < end for one in found)
        assert 0 <= cell.busy <= 1
    assert sum(cell.busy for cell in cells) * span / count == pytest.approx(busy(found))
    joined = runs(cells)
    assert sum(cell.busy * (cell.end - cell.start) for cell in joined) * span == pytest.approx(busy(found))


def test_neighbours_of_one_class_are_one_piece_and_gaps_stay() -> None:
    cells = [Portion(0.0, 0.1, 3, 1.0), Portion(0.1, 0.2, 3, 0.5), Portion(0.3, 0.4, 3, 1.0), Portion(0.4, 0.5, 1, 1.0)]
    first, *rest = runs(cells)
    assert (first.start, first.end, first.key, first.busy) == (0.0, 0.2, 3, pytest.approx(0.75))
    assert rest == cells[2:]
