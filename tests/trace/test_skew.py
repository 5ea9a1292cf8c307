"""Who waits for whom, on ranks whose arrivals are set by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sublight.errors import UsageError
from sublight.records import load, save
from sublight.trace.alignment import Clock, align
from sublight.trace.events import Collective, Lane, Launch, Trace
from sublight.trace.powerlog import GpuPower
from sublight.trace.ranks import Rank, Ranks
from sublight.trace.skew import RankSkew, Skew, find_skew
from sublight.trace.steps import find_steps
from sublight.trace.stepskew import Wait

from .small import Small

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
US = 1000
STEP = 1000 * US
Work = Callable[[int, int], int]  # of a step and a place in it: when the rank comes to the collective after it, in ns


def rank(
    number: int, comes: Work, ends: Work, *, steps: int = 5, places: int = 3, clock: int = 0, base: int = 0
) -> Trace:
    """Per step a graph: before each collective, at multiples of 100 us, a GEMM for as long as the rank takes.

    Args:
        comes: to a collective, after the multiple of 100 us.
        ends: of a collective, likewise.
        clock: how far the rank's clock is ahead.
        base: what it counts from.
    """
    small = Small()
    for step in range(steps):
        nodes = []
        for place in range(places):
            at = place * 100 * US
            come, end = comes(step, place), ends(step, place)
            nodes += [(at, come, f"gemm{place}"), (at + come, end - come, NCCL)]
        small.graph(step * STEP + 1000 * US + clock - base, nodes)
    return replace(small.trace(), rank=number, base_time_ns=base)


def ranks(*traces: Trace, missing: tuple[int, ...] = ()) -> Ranks:
    first = traces[0]
    found = []
    for number, trace in enumerate(traces):
        clock = Clock(0, 0, 0, "the first rank") if trace is first else align(first, trace)
        found.append(Rank(number, f"rank{number}.json", trace, "by hand", clock))
    return Ranks(tuple(found), missing, ())


def const(ns: int) -> Work:
    return lambda step, place: ns


def skewed(found: Skew, what: str) -> list[int]:
    return [getattr(rank, what) for rank in found.ranks]


def test_one_rank_comes_last() -> None:
    """Rank 0 comes at 20 us, rank 1 at 50, both leave at 56: 30 us of waiting and 6 of transfer, three times a step."""
    found = find_skew(ranks(rank(0, const(20 * US), const(56 * US)), rank(1, const(50 * US), const(56 * US))))
    assert skewed(found, "waiting_ns") == [90 * US, 0]
    assert skewed(found, "transfer_ns") == [18 * US, 18 * US]
    assert skewed(found, "late_ns") == [0, 90 * US]
    assert skewed(found, "last") == [0, 12]
    assert (found.straggler, found.compared, found.together, found.uncertainty_ns) == (1, 12, 0, 0)
    # Five replays are four steps: the last has no next one to end it.
    assert [step.index for step in found.steps] == [0, 1, 2, 3]
    assert found.steps[0].longest == Wait(place=0, rank=0, last=1, ns=30 * US)
    place = found.places[1]
    assert (place.place, place.kind, place.name, place.steps) == (1, "all-reduce", NCCL, 4)
    assert (place.waiting_ns, place.transfer_ns, place.last) == ((30 * US, 0), 6 * US, (0, 4))


def test_an_extra_product_before_every_third_collective() -> None:
    def late(step: int, place: int) -> int:
        return 38 * US if place == 0 else 20 * US

    def ends(step: int, place: int) -> int:
        return late(step, place) + 6 * US

    found = find_skew(ranks(rank(0, const(20 * US), ends), rank(1, late, ends)))
    assert [place.waiting_ns for place in found.places] == [(18 * US, 0), (0, 0), (0, 0)]
    assert [place.last for place in found.places] == [(0, 4), (0, 0), (0, 0)]
    assert [place.transfer_ns for place in found.places] == [6 * US] * 3
    assert skewed(found, "waiting_ns") == [18 * US, 0]
    assert (found.together, found.compared, found.straggler) == (8, 12, 1)


@pytest.mark.parametrize(
    ("clock", "base"), [(0, 0), (3_600_000_000_000, 0), (-777, 0), (12_345, 1_759_449_600_000_000_000)]
)
def test_another_clock_makes_no_difference(clock: int, base: int) -> None:
    one = rank(0, const(20 * US), const(56 * US), base=base)
    same = find_skew(ranks(one, rank(1, const(50 * US), const(56 * US), base=base)))
    other = find_skew(ranks(one, rank(1, const(50 * US), const(56 * US), base=base - 5_000_000, clock=clock)))
    assert other.ranks[1].clock.offset_ns == clock
    assert (other.steps, other.places) == (same.steps, same.places)


def test_what_the_clocks_can_not_tell_is_not_reported() -> None:
    """Ends differ by -400, 0 and 400 ns: usually 200 from their middle, three times that, of both ranks: 1.2 us."""

    def ends(step: int, place: int) -> int:
        return 56 * US + 400 * (place - 1)

    one, near, far = (rank(0, const(20 * US), const(56 * US)), *(rank(1, const(ns), ends) for ns in (21_000, 22_000)))
    found = find_skew(ranks(one, near))
    assert found.uncertainty_ns == 1200
    assert (skewed(found, "waiting_ns"), skewed(found, "last"), found.straggler) == ([0, 0], [0, 0], None)
    assert found.together == found.compared == 12
    assert found.steps[0].longest is None
    # What is not waiting is transfer, so that the two add up to the time in the kernels.
    assert skewed(found, "transfer_ns")[0] == 3 * 36 * US
    found = find_skew(ranks(one, far))
    assert (skewed(found, "waiting_ns"), found.straggler) == ([6000, 0], 1)
    assert "less than 1.20 us apart can not be told apart" in found.notes[0]


@pytest.mark.parametrize("clock", [100 * US, -100 * US, 200 * US, 137 * US, 40 * US])
def test_layers_that_are_alike_do_not_hide_a_straggler(clock: int) -> None:
    """Eight places 100 us apart, then a pause: matched one place on, all ends but one in eight agree as well.

    But there a rank would leave the last collective of a step before the other comes to the first of the next.
    """

    def late(step: int, place: int) -> int:
        return (50 if place == 4 else 20) * US

    def ends(step: int, place: int) -> int:
        return late(step, place) + 6 * US

    one, other = rank(0, const(20 * US), ends, places=8), rank(1, late, ends, places=8, clock=clock)
    found = find_skew(ranks(one, other))
    assert (found.ranks[1].clock.offset_ns, found.ranks[1].clock.matched) == (clock, 40)
    assert (skewed(found, "waiting_ns"), skewed(found, "late_ns")) == ([30 * US, 0], [0, 30 * US])
    assert (found.straggler, skewed(found, "last"), found.doubtful) == (1, [0, 4], 0)


def test_of_three_ranks_two_are_late() -> None:
    """At 20, 49 and 50 us: the last is 1 us later than the last but one, and the first waits 30 for it."""
    found = find_skew(ranks(*(rank(n, const(ns * US), const(60 * US), places=1) for n, ns in enumerate((20, 49, 50)))))
    assert skewed(found, "waiting_ns") == [30 * US, 1 * US, 0]
    assert skewed(found, "late_ns") == [0, 0, 1 * US]
    assert skewed(found, "transfer_ns") == [10 * US] * 3
    assert skewed(found, "last") == [0, 0, 4]


def test_slow_all_reduces_are_not_a_straggler() -> None:
    """156 all-reduces of 110 us a step on eight ranks, 108 us on rank 3: 2 us of waiting each, the rest is transfer."""

    def trace(number: int) -> Trace:
        small = Small()
        for step in range(3):
            come = 47 if number == 3 else 45
            nodes = [(at * 155 * US, come * US, "gemm") for at in range(156)]
            nodes += [((at * 155 + come) * US, (155 - come) * US, NCCL) for at in range(156)]
            small.graph((1 + step * 25_300) * US, sorted(nodes))
        return small.trace()

    found = find_skew(ranks(*(trace(number) for number in range(8))))
    assert skewed(found, "waiting_ns") == [156 * 2 * US] * 3 + [0] + [156 * 2 * US] * 4
    assert skewed(found, "transfer_ns") == [156 * 108 * US] * 8
    assert (found.straggler, found.ranks[3].late_ns, found.ranks[3].last) == (3, 312 * US, 312)


def test_the_first_collective_under_the_profiler() -> None:
    """A rank whose profiler starts late holds the others up once, which is no matter of the usual step."""

    def comes(step: int, place: int) -> int:
        return 20 * US

    def ends(step: int, place: int) -> int:
        return 96 * US if step == place == 0 else 26 * US

    def held(step: int, place: int) -> int:
        return 90 * US if step == place == 0 else 20 * US

    one, other = (rank(n, work, ends, steps=9) for n, work in enumerate((comes, held)))
    found = find_skew(ranks(one, other))
    assert found.steps[0].longest == Wait(place=0, rank=0, last=1, ns=70 * US)
    assert (skewed(found, "waiting_ns"), skewed(found, "late_ns")) == ([0, 0], [0, 0])
    assert skewed(found, "transfer_ns") == [18 * US] * 2


def test_a_step_with_flags_counts_for_nothing() -> None:
    one, other = (rank(n, const(20 * US + n * US), const(26 * US), steps=9) for n in range(2))
    steps = find_steps(one)
    odd = [msgspec.structs.replace(step, flags=("odd",)) if step.index == 2 else step for step in steps.steps]
    found = find_skew(ranks(one, other), msgspec.structs.replace(steps, steps=tuple(odd)))
    assert (found.steps[2].flags, found.steps[2].waiting_ns) == (("odd",), (3 * US, 0))
    assert (found.compared, found.ranks[0].steps, found.ranks[1].last) == (7 * 3, 7, 21)


def without_first_step(trace: Trace) -> Trace:
    keep = trace.gpu.start >= 2 * STEP
    names = ("start", "duration", "name", "kind", "lane", "correlation", "node", "launch")
    return replace(trace, gpu=replace(trace.gpu, **{name: getattr(trace.gpu, name)[keep] for name in names}))


def test_a_profile_that_begins_later() -> None:
    """Rank 1 lacks the first step: the others are compared each with its own."""

    def comes(step: int, place: int) -> int:
        return (20 + step) * US

    def ends(step: int, place: int) -> int:
        return (40 + 2 * step + 7 * place) * US

    found = find_skew(ranks(rank(0, const(20 * US), ends), without_first_step(rank(1, comes, ends))))
    assert [step.collectives for step in found.steps] == [(0, 0)] + [(3, 3)] * 3
    assert [step.waiting_ns for step in found.steps[1:]] == [(3 * step * US, 0) for step in (1, 2, 3)]
    assert (found.alone, found.ranks[0].steps) == (3, 3)
    assert "3 collectives of rank 0 are in no other trace; they were left out" in found.notes


def test_collectives_of_other_groups_are_others() -> None:
    """Two pairs of ranks, side by side: all-reduces of a pair have the name of its group, those of all another."""

    def trace(number: int) -> Trace:
        small = Small()
        for step in range(4):
            at = 1000 * US + step * STEP
            small.run(at, (20 + 5 * (number % 2)) * US, "gemm", correlation=step + 1)
            for place, (group, end) in enumerate(((f"pair{number // 2}", 40 + 7 * (number // 2)), ("world", 140))):
                begin = at + (100 * place + 20 + 5 * (number % 2)) * US
                spoken = Collective("allreduce", "BFloat16", 6144, 6144, group, 2)
                small.gpu.append((begin, at + end * US - begin, NCCL, Lane(0, 7), step + 1, Launch(collective=spoken)))
        return small.trace()

    traces = [trace(number) for number in range(4)]
    same_host = Clock(0, 0, 1, "one host")
    four = Ranks(tuple(Rank(n, "", one, "by hand", same_host) for n, one in enumerate(traces)), (), ())
    found = find_skew(four)
    assert [(place.group, place.elements, place.steps) for place in found.places] == [
        ("pair0", 6144, 3),
        ("world", 6144, 3),
    ]
    assert [place.last for place in found.places] == [(0, 3, 0, 0), (0, 0, 0, 0)]
    assert [step.collectives for step in found.steps] == [(2, 2, 1, 1)] * 3
    assert [place.waiting_ns for place in found.places] == [(5 * US, 0, 0, 0), (5 * US, 0, 5 * US, 0)]


def test_a_collective_that_one_leaves_before_another_comes_is_none() -> None:
    """Rank 1 runs its own, 50 us later in the second place of every step; the ends of the others agree."""

    def comes(step: int, place: int) -> int:
        return (70 if place == 1 else 20) * US

    def ends(step: int, place: int) -> int:
        return (80 if place == 1 else 30) * US

    found = find_skew(ranks(rank(0, const(20 * US), const(30 * US)), rank(1, comes, ends)))
    assert (found.doubtful, found.compared, found.straggler) == (4, 8, None)
    assert [place.place for place in found.places] == [0, 2]
    assert "in 4 collectives a rank left before another arrived" in found.notes[1]
    assert found.ranks[1].clock.doubt == "in 5 of 15 collectives matched so, a rank left before another arrived"
    assert f"rank 1 may be matched wrongly: {found.ranks[1].clock.doubt}" in found.notes


def test_ranks_that_have_nothing_to_do_with_each_other() -> None:
    """Ends at random: nothing can be told, and nothing is."""
    random = np.random.default_rng(0)
    times = random.integers(20 * US, 90 * US, (2, 9, 3))
    traces = [
        rank(
            n,
            lambda step, place, n=n: int(times[n, step, place]) - 10 * US,
            lambda step, place, n=n: int(times[n, step, place]),
            steps=9,
        )
        for n in range(2)
    ]
    found = find_skew(ranks(*traces))
    assert (found.straggler, found.together) == (None, found.compared)
    assert skewed(found, "waiting_ns") == [0, 0]
    assert found.uncertainty_ns > 10 * US
    assert "longer than the collectives take" in found.notes[1]


def test_a_dependent_launch_has_not_come_before_its_predecessor_ends() -> None:
    """The all-reduce of rank 0 is launched 10 us before its GEMM ends, at 50 us: it waits for rank 1 from then on."""

    def trace(early: int) -> Trace:
        small = Small()
        for step in range(4):
            small.graph(1000 * US + step * STEP, [(0, 50 * US, "gemm"), (50 * US - early, 30 * US + early, NCCL)])
        return small.trace()

    found = find_skew(ranks(trace(10 * US), trace(0)))
    assert (skewed(found, "waiting_ns"), skewed(found, "transfer_ns")) == ([0, 0], [30 * US, 30 * US])


def test_a_send_is_no_meeting() -> None:
    small = Small()
    for step in range(4):
        small.graph(1000 * US + step * STEP, [(0, 50 * US, "gemm"), (50 * US, 30 * US, SEND)])
    with pytest.raises(UsageError, match="none of the 2 traces has a collective"):
        find_skew(ranks(small.trace(), small.trace()))


def test_a_missing_rank_is_said() -> None:
    one, other = (rank(n, const(20 * US), const(56 * US)) for n in range(2))
    assert (
        "there is no trace of rank 2, 3: waiting for it would look like transfer"
        in find_skew(ranks(one, other, missing=(2, 3))).notes
    )


def test_one_rank_is_not_enough_and_neither_are_no_steps() -> None:
    one = rank(0, const(20 * US), const(56 * US))
    with pytest.raises(UsageError, match="there is rank 0 only"):
        find_skew(ranks(one))
    with pytest.raises(UsageError, match="nothing ran on the GPU"):
        find_skew(ranks(Small().trace(), one))


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    found = find_skew(ranks(rank(0, const(20 * US), const(56 * US)), rank(1, const(50 * US), const(56 * US))))
    save(found, tmp_path / "a.json")
    assert load(tmp_path / "a.json", {"skew": Skew}) == found
    assert found.ranks[0] == RankSkew(0, found.ranks[0].clock, 4, 90 * US, 18 * US, 0, 0)


def test_the_only_card_of_a_log_is_not_given_to_every_rank() -> None:
    one, other = (rank(n, const(20 * US), const(56 * US)) for n in range(2))
    card = GpuPower(source="p.csv", index=3, moments=5, busy=5, utilization=100.0, power_w=140.0, limit_w=700.0)
    found = find_skew(ranks(one, other), power=(card,))
    assert found.power == {}
    assert "p.csv does not tell whether ranks 0, 1 work: it has no GPU of that number" in found.notes
    card = msgspec.structs.replace(card, index=1)
    found = find_skew(ranks(one, other), power=(card,))
    assert found.power == {1: card}
    assert "p.csv does not tell whether rank 0 works: it has no GPU of that number" in found.notes
