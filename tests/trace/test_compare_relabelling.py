"""The test of two sets of steps, against chances that can be counted by hand or by trying every way."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sublight.trace.relabelling import compare_means


def columns(*values: list[float]) -> np.ndarray:
    return np.array(values, float).T


def test_two_against_two() -> None:
    """Of the six ways, {1, 2} against {3, 4} and its mirror have the means 2 apart, the others less."""
    tested = compare_means(columns([1, 2]), columns([3, 4]))
    assert (tested.p, tested.smallest, tested.ways, tested.exact) == ((2 / 6,), 2 / 6, 6, True)


def test_one_against_three() -> None:
    """With unequal numbers the mirror is no way: 9 stands alone in one of four."""
    tested = compare_means(columns([9]), columns([1, 2, 3]))
    assert (tested.p, tested.smallest, tested.ways) == ((1 / 4,), 1 / 4, 4)


def test_equal_values_are_no_difference() -> None:
    """All values of the first part are equal, and of the second the means."""
    tested = compare_means(columns([5, 5, 5], [1, 2, 3]), columns([5, 5, 5], [3, 2, 1]))
    assert (tested.p, tested.joint, tested.holm) == ((1, 1), (1, 1), (1, 1))


def test_holm_by_hand() -> None:
    """p of 1/10 for the parts that separate (3 against 2: ten ways, one as extreme), larger for the third."""
    tested = compare_means(columns([10, 11, 12], [0, 1, 0.5], [1, 5, 2]), columns([1, 2], [7, 9], [3, 4]))
    assert tested.p[:2] == (0.1, 0.1)
    assert tested.holm[:2] == pytest.approx((0.3, 0.3))
    assert tested.holm[2] == max(0.3, tested.p[2])
    assert tested.joint[:2] == (0.1, 0.1)


def test_a_part_that_stands_out_passes_on_few_steps() -> None:
    """Three against nine, one part far apart and eleven alike: 1 in 220 by itself and jointly, 12 in 220 by Holm."""
    random = np.random.default_rng(0)
    a, b = random.normal(0, 1, (3, 12)), random.normal(0, 1, (9, 12))
    b[:, 4] += 100
    tested = compare_means(a, b)
    assert (tested.p[4], tested.joint[4]) == (1 / 220, 1 / 220)
    assert tested.holm[4] == pytest.approx(12 / 220)
    assert min(p for part, p in enumerate(tested.joint) if part != 4) > 0.05


def test_a_kernel_win_that_is_no_serving_win() -> None:
    """Twelve runs a side with 2.8 % of noise hide a tenth of a percent; back-to-back loops show their 3.5 %."""
    random = np.random.default_rng(1)
    loop, serving = random.normal(1, 0.001, (12, 2)), random.normal(1, 0.028, (12, 2))
    assert compare_means(loop[:, :1], loop[:, 1:] * 0.965).p[0] < 0.001
    assert compare_means(serving[:, :1], serving[:, 1:] * 0.9991).p[0] > 0.1


def test_many_steps_are_dealt_at_random_and_always_alike() -> None:
    random = np.random.default_rng(2)
    a, b = random.normal(0, 1, (30, 3)), random.normal(0, 1, (40, 3))
    b[:, 0] += 3
    tested = compare_means(a, b)
    assert (tested.exact, tested.ways, tested.smallest) == (False, 20_001, 1 / 20_001)
    assert tested.p[0] == tested.joint[0] == 1 / 20_001
    assert tested == compare_means(a, b) == compare_means(b, a)


def test_a_false_alarm_in_at_most_one_of_twenty() -> None:
    """Of all 126 ways to halve nine steps of twenty parts, at most 5 % may find any part beyond the spread."""
    steps = np.random.default_rng(3).lognormal(0, 1, (9, 20))
    alarms = {"joint": 0, "holm": 0, "none": 0}
    for chosen in combinations(range(9), 4):
        half = np.isin(np.arange(9), chosen)
        tested = compare_means(steps[half], steps[~half])
        alarms["joint"] += min(tested.joint) <= 0.05
        alarms["holm"] += min(tested.holm) <= 0.05
        alarms["none"] += min(tested.p) <= 0.05
    assert alarms["joint"] <= 6  # 0.05 x 126 = 6.3
    assert alarms["holm"] <= 6
    assert alarms["none"] > 40  # without a correction, every third comparison would be an alarm


def by_trying(a: list[int], b: list[int]) -> float:
    """The share of all ways with the means at least as far apart, in whole numbers."""
    every, few = a + b, len(a)

    def apart(chosen: tuple[int, ...]) -> int:
        return abs(len(every) * sum(every[one] for one in chosen) - few * sum(every))

    ways = [apart(chosen) for chosen in combinations(range(len(every)), few)]
    return sum(way >= ways[0] for way in ways) / len(ways)


NUMBERS = st.lists(st.integers(0, 50), min_size=1, max_size=5)


@given(NUMBERS, NUMBERS)
def test_p_is_what_trying_every_way_gives(a: list[int], b: list[int]) -> None:
    assert compare_means(columns(a), columns(b)).p[0] == pytest.approx(by_trying(a, b))


@st.composite
def sides(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    parts = draw(st.integers(1, 4))
    a, b = (draw(arrays(float, (draw(st.integers(1, 5)), parts), elements=st.integers(0, 1000))) for _ in "ab")
    return a, b


@given(sides())
def test_it_makes_no_difference_which_side_is_which(both: tuple[np.ndarray, np.ndarray]) -> None:
    assert compare_means(*both) == compare_means(*both[::-1])


@given(sides(), st.permutations(range(4)), st.permutations(range(5)))
def test_the_order_of_parts_and_steps_does_not_matter(
    both: tuple[np.ndarray, np.ndarray], parts: list[int], steps: list[int]
) -> None:
    a, b = both
    order = [part for part in parts if part < a.shape[1]]
    mixed = compare_means(a[[step for step in steps if step < len(a)]][:, order], b[:, order])
    tested = compare_means(a, b)
    for kind in ("p", "holm", "joint"):
        assert getattr(mixed, kind) == pytest.approx([getattr(tested, kind)[part] for part in order])


@given(sides())
def test_corrections_only_raise(both: tuple[np.ndarray, np.ndarray]) -> None:
    tested = compare_means(*both)
    for p, holm, joint in zip(tested.p, tested.holm, tested.joint, strict=True):
        assert tested.smallest - 1e-12 <= p <= holm <= 1
        assert p <= joint + 1e-12 <= 1 + 1e-12
