"""Routers: numbers that can be added in one's head, and properties."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.errors import KernelError
from sublight.kernels.routing import Router, route


def logits(tokens: int, experts: int, seed: int) -> torch.Tensor:
    return torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed)) * 2


def test_softmax_with_and_without_renormalising() -> None:
    given = torch.log(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    ids, weights = route(given, Router("softmax", 2))
    assert ids.tolist() == [[3, 2]] and ids.dtype == torch.int32
    assert weights.tolist()[0] == pytest.approx([4 / 7, 3 / 7])
    _, weights = route(given, Router("softmax", 2, renormalise=False))
    assert weights.tolist()[0] == pytest.approx([0.4, 0.3])


def test_the_bias_chooses_and_does_not_weigh() -> None:
    given = torch.logit(torch.tensor([[0.9, 0.8, 0.5, 0.1]]))
    bias = torch.tensor([-1.0, 0.0, 0.0, 0.5])
    ids, weights = route(given, Router("sigmoid", 2, scaling_factor=2.5), bias)
    assert ids.tolist() == [[1, 3]]  # 0.8 and 0.1 + 0.5
    assert weights.tolist()[0] == pytest.approx([2.5 * 0.8 / 0.9, 2.5 * 0.1 / 0.9])


def test_groups_count_by_their_best_two_with_a_bias_and_by_their_best_without() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.6, 0.5, 0.3, 0.2]])  # groups of two: sums 1.0, 1.1, 0.5; bests 0.9, 0.6, 0.3
    router = Router("sigmoid", 2, groups=3, top_groups=1, renormalise=False)
    assert route(torch.logit(scores), router, torch.zeros(6))[0].tolist() == [[2, 3]]
    assert route(torch.logit(scores), router)[0].tolist() == [[0, 1]]


def test_experts_of_closed_groups_lose_even_to_negative_scores() -> None:
    bias = torch.tensor([-5.0, -6.0, -9.0, -9.0])
    ids, weights = route(torch.zeros(1, 4), Router("sigmoid", 2, groups=2, top_groups=1), bias)
    assert ids.tolist() == [[0, 1]]
    assert weights.tolist()[0] == pytest.approx([0.5, 0.5])


def test_equal_scores_go_to_the_lower_number() -> None:
    assert route(torch.zeros(1, 8), Router("softmax", 3))[0].tolist() == [[0, 1, 2]]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    groups=st.sampled_from([1, 2, 4]),
    top_k=st.integers(1, 4),
    scoring=st.sampled_from(["softmax", "sigmoid"]),
    biased=st.booleans(),
)
def test_against_plain_python(seed: int, groups: int, top_k: int, scoring: str, biased: bool) -> None:
    experts, top_groups = 16, max(1, groups // 2)
    given = logits(3, experts, seed)
    bias = torch.randn(experts, generator=torch.Generator().manual_seed(seed + 1)) if biased else None
    router = Router(scoring, top_k, scaling_factor=1.5, groups=groups, top_groups=top_groups)  # type: ignore[arg-type]
    ids, weights = route(given, router, bias)
    for token in range(3):
        row = given[token].tolist()
        total = sum(math.exp(v) for v in row)
        scores = [math.exp(v) / total if scoring == "softmax" else 1 / (1 + math.exp(-v)) for v in row]
        choice = [s + (bias[n].item() if bias is not None else 0) for n, s in enumerate(scores)]
        size = experts // groups
        best = [sorted(choice[g * size : (g + 1) * size])[-2 if biased else -1 :] for g in range(groups)]
        chosen_groups = sorted(range(groups), key=lambda g: -sum(best[g]))[:top_groups]
        allowed = [n for n in range(experts) if groups == 1 or n // size in chosen_groups]
        wanted = sorted(allowed, key=lambda n: -choice[n])[:top_k]
        assert ids[token].tolist() == wanted
        chosen = [scores[n] for n in wanted]
        assert weights[token].tolist() == pytest.approx([1.5 * s / sum(chosen) for s in chosen], rel=1e-5)


def test_softmax_renormalised_is_softmax_over_the_chosen() -> None:
    given = logits(5, 32, 3)
    ids, weights = route(given, Router("softmax", 4))
    assert torch.allclose(weights, given.gather(1, ids.long()).softmax(-1), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scoring": "sofmax"}, "a router's scoring: 'sofmax' is not known. Try: softmax or sigmoid"),
        ({"scoring": None}, "a router's scoring: None is not known. Try: softmax or sigmoid"),
        ({"groups": 0}, "a router's groups: it is 0. Try: a whole number of at least 1"),
        ({"top_groups": -1}, "a router's top_groups: it is -1. Try: a whole number of at least 1"),
        ({"top_k": 0}, "a router's top_k: it is 0. Try: a whole number of at least 1"),
        ({"top_k": 1.5}, "a router's top_k: it is 1.5. Try: a whole number of at least 1"),
        ({"scaling_factor": 0.0}, "a router's scaling_factor: it is 0.0. Try: a finite number above 0"),
        ({"scaling_factor": math.inf}, "a router's scaling_factor: it is inf. Try: a finite number above 0"),
        ({"scaling_factor": math.nan}, "a router's scaling_factor: it is nan. Try: a finite number above 0"),
        ({"scaling_factor": None}, "a router's scaling_factor: it is None. Try: a finite number above 0"),
    ],
)
def test_a_router_that_means_nothing_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as raised:
        Router(**{"scoring": "sigmoid", "top_k": 2} | change)
    assert str(raised.value) == message


FLOATS = "float32 or bfloat16 or float16 or float64"


@pytest.mark.parametrize(
    ("given", "bias", "message"),
    [
        (None, None, f"route: logits: it is missing. Try: logits [tokens, experts] {FLOATS}"),
        ([[1.0]], None, f"route: logits: it is no tensor but of type list. Try: logits [tokens, experts] {FLOATS}"),
        (torch.zeros(8), None, f"route: logits: its shape is [8]. Try: logits [tokens, experts] {FLOATS}"),
        (torch.zeros(1, 8).int(), None, f"route: logits: its type is int32. Try: logits [tokens, experts] {FLOATS}"),
        (
            torch.zeros(2, 8),
            torch.zeros(1),
            "route: dimension 0 (experts) of correction_bias: it is 1, where experts = 8 of logits makes it 8. "
            f"Try: 8 there; the whole is correction_bias [experts] {FLOATS}",
        ),
        (
            torch.zeros(2, 8),
            torch.zeros(8, device="meta"),
            "route: correction_bias: it is on meta, and logits on cpu. Try: all tensors on one device",
        ),
        (torch.zeros(2, 0), None, "a top_k of 2: 1 of 1 groups leave 0 experts. Try: a top_k of at most 0"),
    ],
)
def test_tensors_that_do_not_fit_are_named(given: Any, bias: Any, message: str) -> None:
    with pytest.raises(KernelError) as raised:
        route(given, Router("sigmoid", 2), bias)
    assert str(raised.value) == message


def test_no_tokens_go_nowhere() -> None:
    ids, weights = route(torch.zeros(0, 8), Router("softmax", 2))
    assert (tuple(ids.shape), tuple(weights.shape)) == ((0, 2), (0, 2))


def test_groups_that_cannot_be_are_named() -> None:
    with pytest.raises(KernelError, match="10 experts do not divide"):
        route(torch.zeros(1, 10), Router("softmax", 2, groups=4))
    with pytest.raises(KernelError, match="1 of 4 groups leave 2 experts"):
        route(torch.zeros(1, 8), Router("softmax", 3, groups=4, top_groups=1))
