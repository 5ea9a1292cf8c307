"""What holds for any comparison: B less A is A less B turned round, and halves of one trace do not differ."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace.compare import TraceComparison, compare
from sublight.trace.difference import Verdict
from sublight.trace.sample import Sample

from .test_compare import SAYS, side

KERNELS = st.lists(st.tuples(st.sampled_from(sorted(SAYS)), st.integers(1, 90)), min_size=1, max_size=6)


@st.composite
def sides(draw: st.DrawFn) -> Sample:
    return side(*draw(st.lists(KERNELS, min_size=1, max_size=5)), beside=draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(sides(), sides())
def test_the_other_way_round_everything_is_negated(a: Sample, b: Sample) -> None:
    there, back = compare(a, b), compare(b, a)
    assert (there.a, there.b, there.unit, there.smallest_p) == (back.b, back.a, back.unit, back.smallest_p)
    assert [part.name for part in there.parts] == [part.name for part in back.parts]
    for one, other in zip((there.step, *there.parts), (back.step, *back.parts), strict=True):
        assert one.difference_ns == -other.difference_ns
        assert one.mean_difference_ns == -other.mean_difference_ns
        assert (one.p, one.p_holm, one.p_joint, one.verdict) == (other.p, other.p_holm, other.p_joint, other.verdict)
        assert (one.a, one.b, one.category) == (other.b, other.a, other.category)
    assert {(one.row, one.a, one.b) for one in there.replaced} == {(one.row, one.b, one.a) for one in back.replaced}


@settings(max_examples=40, deadline=None)
@given(sides())
def test_nothing_differs_from_itself(a: Sample) -> None:
    found = compare(a, a)
    assert {part.difference_ns for part in (found.step, *found.parts)} == {0}
    assert {part.p for part in found.parts} == {1}
    assert not any(part.verdict is Verdict.BEYOND for part in found.parts)


def noisy(steps: int) -> list[list[tuple[str, int]]]:
    """Steps of which every kernel varies by some percent, all of them together by more."""
    random = np.random.default_rng(7)
    usual = {"gemm": 90, "attention": 60, "marlin": 200, "quant": 12, "dense": 40, "head": 70, "reduce": 30}
    clock = random.normal(1, 0.03, steps)
    return [
        [(name, round(ns * random.lognormal(0, 0.05) * clock[n])) for name, ns in usual.items()] for n in range(steps)
    ]


def halves(steps: list[list[tuple[str, int]]], chosen: tuple[int, ...]) -> TraceComparison:
    one = [kernels for n, kernels in enumerate(steps) if n in chosen]
    other = [kernels for n, kernels in enumerate(steps) if n not in chosen]
    return compare(side(*one), side(*other))


def test_halves_of_the_same_steps_are_within_the_spread() -> None:
    """All 70 halves of eight steps: at the level 0.05 at most 3 may show any part beyond it, and at most 3 the step."""
    steps = noisy(8)
    found = [halves(steps, chosen) for chosen in combinations(range(8), 4)]
    assert sum(any(part.verdict is Verdict.BEYOND for part in one.parts) for one in found) <= 3
    assert sum(one.step.verdict is Verdict.BEYOND for one in found) <= 3
    # And a real difference is seen in each of them: the same steps with the experts a quarter slower.
    slower = [[(name, ns * 5 // 4 if name == "marlin" else ns) for name, ns in kernels] for kernels in steps]
    changed = compare(side(*steps[:4]), side(*slower[4:]))
    assert [part.name for part in changed.parts if part.verdict is Verdict.BEYOND and part.sort == "row"] == [
        "moe.experts"
    ]
