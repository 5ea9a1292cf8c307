"""The protocol's arithmetic: rotation, stopping, marking what memory cannot give."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.bench.protocol import (
    CACHE_HOT,
    StoppingRule,
    interleave,
    is_cold,
    quartiles,
    rate_warning,
    sets_needed,
)

# Eight experts of GLM-5 a rank under TP8, beside the cache and memory of an RTX PRO 6000.
EXPERTS_BYTES, L2_BYTES, BANDWIDTH = 21.2e6, 134e6, 1.792e12


def test_weights_that_fit_in_the_cache_take_turns() -> None:
    assert sets_needed(EXPERTS_BYTES, L2_BYTES) == 13
    assert is_cold(13, EXPERTS_BYTES, L2_BYTES) is True
    assert is_cold(12, EXPERTS_BYTES, L2_BYTES) is False
    assert is_cold(1, EXPERTS_BYTES, None) is None
    assert sets_needed(300e6, L2_BYTES) == 1


def test_a_rate_that_memory_does_not_have() -> None:
    """5.3 us for 21.2 MB is 4 TB/s from memory of 1.79 TB/s."""
    assert rate_warning(EXPERTS_BYTES, 5.3e-6, BANDWIDTH) == CACHE_HOT == "faster than memory allows, cache-hot"
    assert rate_warning(EXPERTS_BYTES, 13e-6, BANDWIDTH) == ""
    assert rate_warning(EXPERTS_BYTES, 1e-9, None) == ""


def test_quartiles_by_hand() -> None:
    assert quartiles([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)
    assert quartiles([1.0, 2.0]) == (1.25, 1.5, 1.75)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40))
def test_quartiles_are_in_order_and_inside(values: list[float]) -> None:
    low, middle, high = quartiles(values)
    assert min(values) <= low <= middle <= high <= max(values)


def test_candidates_take_turns_and_so_does_their_order() -> None:
    order: list[str] = []

    def round_of(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    rounds = {"a": lambda: round_of("a", 1e-6), "b": lambda: round_of("b", 2e-6)}
    found = interleave(rounds, {"a": 10, "b": 20}, StoppingRule(least=4, most=9))
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert (found["a"].median_s, found["b"].median_s) == (1e-6, 2e-6)
    assert (found["a"].rounds, found["b"].calls) == (4, 20)
    assert found["a"].settled and found["b"].settled


def test_one_that_scatters_runs_on_and_is_said_not_to_have_settled() -> None:
    times = count()
    rounds = {"a": lambda: 1e-6 * (1 + next(times) % 5)}
    found = interleave(rounds, {"a": 1}, StoppingRule(least=5, most=12, budget_s=1e9))["a"]
    assert found.rounds == 12
    assert not found.settled
    # 1 1 1 2 2 2 3 3 4 4 5 5: quartiles 1.75, 2.5, 4.
    assert found.spread == pytest.approx(0.9)


def test_time_ends_rounds_but_not_before_the_fewest() -> None:
    clock, times = count(0, 100), count()
    rounds = {"a": lambda: 1e-6 * (1 + next(times) % 5)}
    rule = StoppingRule(least=5, most=60, budget_s=1.0)
    assert interleave(rounds, {"a": 1}, rule, now=lambda: float(next(clock)))["a"].rounds == 5


def test_nothing_to_time() -> None:
    assert interleave({}, {}, StoppingRule()) == {}
