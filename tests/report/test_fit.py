from hypothesis import given
from hypothesis import strategies as st

from sublight.report.terminal.fit import Fit, Need, fit


def number(width: int, priority: int = 0) -> Need:
    return Need(width, width, wraps=False, priority=priority)


def words(whole: int, longest: int = 5, priority: int = 0) -> Need:
    return Need(whole, longest, wraps=True, priority=priority)


def test_everything_at_its_whole_width_where_there_is_room() -> None:
    assert fit([words(30), number(8), number(6, 2)], 48, 2) == Fit((0, 1, 2), (30, 8, 6))


def test_text_wraps_before_a_column_goes() -> None:
    assert fit([words(30), number(8), number(6, 2)], 38, 2) == Fit((0, 1, 2), (20, 8, 6))


def test_the_highest_priority_goes_first_and_the_rightmost_of_equals() -> None:
    needs = [words(20), number(8, 1), number(8, 2), number(8, 2), number(8)]
    assert fit(needs, 50, 2) == Fit((0, 1, 2, 4), (20, 8, 8, 8))
    assert fit(needs, 40, 2) == Fit((0, 1, 4), (20, 8, 8))
    assert fit(needs, 30, 2) == Fit((0, 4), (20, 8))


def test_a_long_name_is_not_broken_while_a_column_can_go() -> None:
    assert fit([words(40, longest=28), number(8, 1)], 34, 2) == Fit((0,), (34,))


def test_a_column_goes_rather_than_get_less_than_its_view_asked_for() -> None:
    counted = Need(90, 5, wraps=True, priority=3, asked=48)
    assert fit([words(10), number(8), counted], 70, 2) == Fit((0, 1, 2), (10, 8, 48))
    assert fit([words(10), number(8), counted], 69, 2) == Fit((0, 1), (10, 8))


def test_what_must_be_shown_is_squeezed_and_then_given_up() -> None:
    assert fit([words(40), number(8)], 20, 2) == Fit((0, 1), (10, 8))
    assert fit([words(40), number(8)], 19, 2) is None


def test_words_of_names_are_broken_last() -> None:
    """Before them the other columns go below what their view asked for, down to what any column may have."""
    needs = [Need(60, 27, wraps=True, priority=0, names=True), Need(50, 4, wraps=True, priority=0, asked=14)]
    assert fit(needs, 43, 2) == Fit((0, 1), (27, 14))
    assert fit(needs, 42, 2) == Fit((0, 1), (27, 13))
    assert fit(needs, 30, 2) == Fit((0, 1), (18, 10))
    assert fit(needs, 21, 2) is None


def test_one_column_stays_whatever_its_priority() -> None:
    assert fit([number(5, 3)], 5, 2) == Fit((0,), (5,))


def test_spare_room_ends_the_wrapping_of_as_many_columns_as_it_can() -> None:
    assert fit([words(24), words(80)], 60, 2) == Fit((0, 1), (24, 34))


needs = st.builds(
    lambda whole, part, wraps, priority: Need(whole, min(whole, part) if wraps else whole, wraps, priority),
    st.integers(1, 60),
    st.integers(1, 60),
    st.booleans(),
    st.integers(0, 3),
)


@given(st.lists(needs, min_size=1, max_size=8), st.integers(1, 160))
def test_what_is_shown_fits_and_numbers_are_whole(columns: list[Need], room: int) -> None:
    found = fit(columns, room, 2)
    if found is None:
        return
    assert sum(found.widths) + 2 * (len(found.widths) - 1) <= room
    for index, width in zip(found.shown, found.widths, strict=True):
        assert width == columns[index].whole if not columns[index].wraps else 1 <= width <= columns[index].whole
    gone = [columns[index].priority for index in range(len(columns)) if index not in found.shown]
    assert not gone or min(gone) >= max(columns[index].priority for index in found.shown)
