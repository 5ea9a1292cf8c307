import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.report.axis import axis, number


@pytest.mark.parametrize(
    ("values", "log", "upright", "ticks"),
    [
        ([6.64, 9.04], False, True, ["0", "2", "4", "6", "8", "10"]),
        ([-3, 7], False, True, ["-4", "-2", "0", "2", "4", "6", "8"]),
        ([0, 0], False, True, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ([5, 5], False, False, ["3", "4", "5", "6", "7"]),
        ([1024, 131072], True, False, ["1,024", "4,096", "16,384", "65,536"]),
        ([1, 2, 4, 8, 16], True, False, ["1", "2", "4", "8", "16"]),
        ([6.42, 14.1], True, True, ["5", "6", "8", "10", "15", "20"]),
        ([100, 100000], True, True, ["100", "1,000", "10,000", "100,000"]),
        ([3.1, 3.4], True, False, ["3.1", "3.15", "3.2", "3.25", "3.3", "3.35", "3.4"]),
        ([1, 1e12], True, False, ["1", "1,000", "1,000,000", "1e9", "1e12"]),
    ],
)
def test_ticks_are_round_numbers(values: list[float], log: bool, upright: bool, ticks: list[str]) -> None:
    made = axis(values, log=log, ticks=6, upright=upright)
    assert [number(tick) for tick in made.ticks] == ticks


def test_places_are_linear_or_logarithmic() -> None:
    assert axis([0, 10], log=False, ticks=5, upright=True).at(2.5) == 0.25
    assert axis([1, 100], log=True, ticks=5).at(10) == pytest.approx(0.5)


@given(st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=5), st.booleans(), st.booleans(), st.integers(2, 9))
def test_values_and_ticks_lie_on_the_axis(values: list[float], log: bool, upright: bool, ticks: int) -> None:
    made = axis(values, log=log, ticks=ticks, upright=upright)
    places = [made.at(value) for value in [*values, *made.ticks]]
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in places)
    assert list(made.ticks) == sorted(set(made.ticks))
    assert 2 <= len(made.ticks) <= 2 * ticks + 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (9.0, "9"), (6.642, "6.642"), (131072, "131,072"), (1234.56, "1,235"), (1.5e9, "1.5e9"), (2e-6, "2e-6")],
)
def test_numbers_have_four_digits_and_no_idle_zeros(value: float, text: str) -> None:
    assert number(value) == text
