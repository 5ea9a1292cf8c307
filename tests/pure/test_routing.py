"""Distinct experts: against enumeration where the numbers are small, and against closed forms where they are not."""

from collections import Counter
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.facts.inventory import Moe
from sublight.facts.workload import Routing
from sublight.limits.routing import _by_chance, _by_score, busiest_rank_experts, distinct_experts

UNIFORM = Routing()


def moe(experts: int, top_k: int, groups: int = 1, top_groups: int = 1) -> Moe:
    return Moe(experts=experts, top_k=top_k, layers=1, width=64, groups=groups, top_groups=top_groups)


def enumerated(experts: int, top_k: int, tokens: int, ranks: int) -> tuple[float, float]:
    """Mean number of distinct experts, and of those on the busiest rank, over every possible choice."""
    size = experts // ranks
    total = busiest = count = 0
    for choice in product(combinations(range(experts), top_k), repeat=tokens):
        hit = set().union(*choice)
        total += len(hit)
        busiest += max(Counter(e // size for e in hit).values())
        count += 1
    return total / count, busiest / count


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "ranks"), [(4, 2, 2, 2), (6, 2, 2, 3), (6, 3, 2, 2), (8, 1, 3, 4)]
)
def test_exact_against_enumeration(experts: int, top_k: int, tokens: int, ranks: int) -> None:
    total, busiest = enumerated(experts, top_k, tokens, ranks)
    assert distinct_experts(moe(experts, top_k), tokens, UNIFORM).value == pytest.approx(total, rel=1e-12)
    found = busiest_rank_experts(moe(experts, top_k), tokens, ranks, UNIFORM)
    assert found.value == pytest.approx(busiest, rel=1e-9)
    assert found.error == 0


@pytest.mark.parametrize(
    ("tokens", "expected"), [(1, 8), (2, 15.75), (4, 30.5), (8, 57.4), (16, 102), (32, 163), (64, 222), (128, 252)]
)
def test_union_of_256_experts_top_8(tokens: int, expected: float) -> None:
    assert distinct_experts(moe(256, 8), tokens, UNIFORM).value == pytest.approx(expected, rel=5e-3)


def test_busiest_of_eight_ranks_at_one_token() -> None:
    """Published independently as 2.564 for 8 of 256 experts over 8 ranks."""
    assert busiest_rank_experts(moe(256, 8), 1, 8, UNIFORM).value == pytest.approx(2.5637, abs=1e-4)


def test_group_limited_routing_is_simulated_and_says_so() -> None:
    found = busiest_rank_experts(moe(256, 8, groups=8, top_groups=4), 1, 8, UNIFORM)
    # Eight experts within four ranks: at least two on one of them, and more than without the limit.
    assert 2.5637 < found.value < 8
    assert 0 < found.error < 0.05
    assert "seeded" in found.how and "4 of 8 groups" in found.how
    assert busiest_rank_experts(moe(256, 8, groups=8, top_groups=4), 1, 8, UNIFORM) == found


def test_simulation_agrees_with_the_exact_law() -> None:
    flat = Routing((1.0,) * 32, "flat.json")
    exact = busiest_rank_experts(moe(32, 4), 3, 4, UNIFORM)
    drawn = busiest_rank_experts(moe(32, 4), 3, 4, flat)
    assert drawn.value == pytest.approx(exact.value, abs=5 * drawn.error)


@given(st.integers(2, 40), st.integers(1, 6), st.integers(1, 40))
def test_union_is_bounded_and_grows(experts: int, top_k: int, tokens: int) -> None:
    top_k = min(top_k, experts)
    found = distinct_experts(moe(experts, top_k), tokens, UNIFORM).value
    assert top_k - 1e-9 <= found <= min(experts, tokens * top_k) + 1e-9
    assert found <= distinct_experts(moe(experts, top_k), tokens + 1, UNIFORM).value + 1e-9


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_busiest_rank_has_at_least_its_share(per_rank: int, top_k: int, tokens: int) -> None:
    ranks = 4
    layer = moe(per_rank * ranks, min(top_k, per_rank * ranks))
    union = distinct_experts(layer, tokens, UNIFORM).value
    busiest = busiest_rank_experts(layer, tokens, ranks, UNIFORM).value
    assert union / ranks - 1e-9 <= busiest <= min(per_rank, union) + 1e-9


@given(st.lists(st.floats(0, 1e6), min_size=4, max_size=32), st.integers(1, 4))
def test_measured_shares_become_chances_that_sum_to_top_k(counts: list[float], top_k: int) -> None:
    if sum(c > 0 for c in counts) < top_k:
        counts = [c + 1 for c in counts]
    chances = Routing(tuple(counts), "x").inclusion(top_k)
    assert sum(chances) == pytest.approx(top_k, rel=1e-6)
    assert all(0 <= p <= 1 + 1e-12 for p in chances)


def test_an_expert_that_every_token_chooses_counts_once() -> None:
    layer = moe(4, 2)
    found = distinct_experts(layer, 1, Routing((1e9, 1, 1, 1), "skewed.json"))
    assert found.value == pytest.approx(2)
    assert distinct_experts(layer, 1000, Routing((1e9, 1, 1, 1), "skewed.json")).value == pytest.approx(4)
    assert "skewed.json" in distinct_experts(layer, 2, Routing((1e9, 1, 1, 1), "skewed.json")).how


def test_hypergeometric_by_hand() -> None:
    """Two of four experts over two ranks: both on one rank in 2 of C(4,2) = 6 choices, else one each."""
    assert comb(4, 2) == 6
    assert busiest_rank_experts(moe(4, 2), 1, 2, UNIFORM).value == pytest.approx((2 * 2 + 4 * 1) / 6)


def test_a_large_batch_hits_every_expert_and_is_not_simulated() -> None:
    found = busiest_rank_experts(moe(256, 8, groups=8, top_groups=4), 10**7, 8, UNIFORM)
    assert (found.value, found.error) == (32.0, 0.0)
    # Experts that were never chosen are never hit: four of the first rank's eight, none of the second's.
    counts = (1.0,) * 4 + (0.0,) * 12
    assert busiest_rank_experts(moe(16, 2), 10**6, 2, Routing(counts, "h.json")).value == 4.0
    just_below = busiest_rank_experts(moe(256, 8), 600, 8, UNIFORM).value
    assert 31.999 < just_below <= 32.0


def test_a_group_is_scored_by_its_two_best_experts() -> None:
    """The best expert of all lies in the first group, the better pair in the second."""

    scores = np.array([[10.0, -10.0, -11.0, 3.0, 4.0, -50.0]])
    assert _by_score(moe(6, 2, 2, 1), scores).tolist() == [[False, False, False, True, True, False]]


def test_chances_are_kept_by_systematic_sampling() -> None:
    chances = np.array([1.0, 0.75, 0.5, 0.5, 0.25, 0.0])
    chosen = _by_chance(chances, np.random.default_rng(1), 40_000)
    assert (chosen.sum(axis=1) == 3).all()
    # Five standard errors of a mean of 40,000.
    assert chosen.mean(axis=0) == pytest.approx(chances, abs=5 * 0.5 / 200)
    assert chosen[:, 0].all() and not chosen[:, 5].any()
