"""What holds for the skew of any ranks: it closes, no clock changes it, and no rank is treated differently."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace.alignment import Clock
from sublight.trace.ranks import Rank, Ranks
from sublight.trace.skew import Skew, find_skew

from .test_skew import NCCL, US, rank

STEPS, PLACES = 3, 2
Arrivals = list[list[list[int]]]  # of rank, step and place


def found(arrivals: Arrivals, took: int, clocks: list[int]) -> Skew:
    """Ranks that come when they like and leave together `took` after the last, with clocks that are known exactly."""
    last = [[max(one[step][place] for one in arrivals) for place in range(PLACES)] for step in range(STEPS)]
    members = []
    for number, comes in enumerate(arrivals):
        trace = rank(
            number,
            lambda step, place, comes=comes: comes[step][place],  # type: ignore[misc]
            lambda step, place: last[step][place] + took,
            steps=STEPS,
            places=PLACES,
            clock=clocks[number],
        )
        clock = Clock(clocks[number] - clocks[0], 0, 1, "known")
        members.append(Rank(number, "", trace, "by hand", clock))
    return find_skew(Ranks(tuple(members), (), ()))


RANKS = st.integers(2, 4)
TIMES = st.integers(1 * US, 60 * US)


@st.composite
def arrivals(draw: st.DrawFn) -> Arrivals:
    count = draw(RANKS)
    return [[[draw(TIMES) for _ in range(PLACES)] for _ in range(STEPS)] for _ in range(count)]


@settings(max_examples=80, deadline=None)
@given(arrivals(), st.integers(1, 20 * US))
def test_waiting_and_transfer_add_up_to_the_time_in_the_kernels(comes: Arrivals, took: int) -> None:
    skew = found(comes, took, [0] * len(comes))
    for step in skew.steps:
        last = [max(one[step.index][place] for one in comes) for place in range(PLACES)]
        for place, its in enumerate(comes):
            waited = sum(last[k] - its[step.index][k] for k in range(PLACES))
            assert (step.waiting_ns[place], step.transfer_ns[place]) == (waited, took * PLACES)
        assert sum(step.last) <= PLACES
        assert all(late <= sum(last) for late in step.late_ns)
    assert {one.name for one in skew.places} == {NCCL}


@settings(max_examples=60, deadline=None)
@given(arrivals(), st.lists(st.integers(-900 * US, 10**12), min_size=4, max_size=4))
def test_clocks_do_not_matter(comes: Arrivals, clocks: list[int]) -> None:
    known, same = found(comes, 5 * US, clocks[: len(comes)]), found(comes, 5 * US, [0] * len(comes))
    assert (known.steps, known.places, known.uncertainty_ns) == (same.steps, same.places, same.uncertainty_ns)


@settings(max_examples=60, deadline=None)
@given(arrivals())
def test_every_rank_is_treated_alike(comes: Arrivals) -> None:
    there, back = (found(one, 5 * US, [0] * len(comes)) for one in (comes, comes[::-1]))
    for one, other in zip(there.steps, back.steps, strict=True):
        for name in ("waiting_ns", "transfer_ns", "late_ns", "last", "collectives"):
            assert getattr(one, name) == getattr(other, name)[::-1]
    assert (there.together, there.compared) == (back.together, back.compared)
