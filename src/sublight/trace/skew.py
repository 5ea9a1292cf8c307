"""Skew: how the time of the collectives splits into waiting for the last rank and moving the data, and who is last.

Every collective is cut at the moment its last rank arrives: what a rank spent in it before is waiting, what comes after
is transfer, and the two add up to its duration. Waiting is the fault neither of the network nor of the rank that waits;
it is the time by which another rank's work before the collective took longer. Both are times of kernels: what runs
beside other work costs a step less.

Ranks write their times by their own clocks, which are laid on each other where the same collectives end. How far those
ends still lie apart is the uncertainty of every arrival, and no waiting or lateness shorter than it is reported: it
counts as transfer. A collective in which a rank leaves before another arrives can not be one, and is left out.

A rank whose trace is missing may be the last one everywhere; its lateness then looks like transfer.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from sublight.errors import UsageError
from sublight.records import Record
from sublight.trace import classify as rules
from sublight.trace.alignment import Clock
from sublight.trace.arrivals import cut, uncertainty_of
from sublight.trace.collectives import Collectives, collectives_of, meetings
from sublight.trace.oddity import Published
from sublight.trace.power import excess, of_no_use, shown, waits
from sublight.trace.powerlog import GpuPower, power_of
from sublight.trace.ranks import Ranks
from sublight.trace.repairs import WHOLE_FILE, cut_words
from sublight.trace.steps import Steps, devices, find_steps
from sublight.trace.stepskew import Place, StepSkew, places_of, step_skew
from sublight.units import counted, show_time

_MOST_NAMED = 8


class RankSkew(msgspec.Struct, frozen=True):
    """One rank.

    Attributes:
        rank: its number.
        clock: how its clock stands to the first rank's.
        steps: how many it has collectives in; those with flags count nowhere here.
        waiting_ns, transfer_ns: in all collectives of a step; medians over these steps.
        last: in how many collectives it came last, by more than the uncertainty.
        late_ns: how much later than the last but one it then came, added up over a step; the median. About what a step
            would gain if this rank alone came in time.
    """

    rank: int
    clock: Clock
    steps: int
    waiting_ns: int
    transfer_ns: int
    last: int
    late_ns: int


class Skew(Record, frozen=True, kw_only=True):
    """Several ranks of one run.

    Attributes:
        missing: ranks without a trace.
        uncertainty_ns: nothing shorter is told from zero.
        compared: how many collectives, in the steps without flags.
        together: how many of them nobody came last to.
        doubtful: how many collectives of all steps were left out, because a rank left before another arrived.
        alone: how many collectives of all steps no other rank has.
        power: the cards of a power log, by the number of the rank.
    """

    schema = "skew"
    version = 2

    ranks: tuple[RankSkew, ...]
    missing: tuple[int, ...]
    uncertainty_ns: int
    compared: int
    together: int
    doubtful: int
    alone: int
    steps: tuple[StepSkew, ...]
    places: tuple[Place, ...]
    notes: tuple[str, ...]
    power: dict[int, GpuPower] = msgspec.field(default_factory=dict)

    @property
    def straggler(self) -> int | None:
        """The rank whose lateness costs most, which is not how often it is last; None where nobody was late."""
        most = max(self.ranks, key=lambda rank: (rank.late_ns, rank.last))
        return most.rank if most.last else None


def find_skew(
    ranks: Ranks,
    steps: Steps | None = None,
    *,
    power: Sequence[GpuPower] = (),
    published: Published | None = None,
) -> Skew:
    """Cut every collective of every step of the first rank at the arrival of its last rank.

    Args:
        ranks: at least two.
        steps: of the first rank; found if not given.
        power: the cards of a power log, whose index is taken for the rank.
        published: what an all-reduce should take.

    Raises:
        UsageError: fewer than two ranks, no steps in the first, or no collective that two of them have.
    """
    asked = "comparing the ranks of one run"
    if len(ranks.ranks) < 2:
        there = ", ".join(str(rank.number) for rank in ranks.ranks)
        raise UsageError(asked, f"there is rank {there} only", "the folder with the traces of all ranks")
    first = ranks.ranks[0]
    steps = find_steps(first.trace) if steps is None else steps
    if not steps.steps:
        if broken := cut_words(first.trace.repairs):
            raise UsageError(asked, f"{first.trace.origin.path}: {broken}", WHOLE_FILE)
        raise UsageError(asked, "; ".join(steps.evidence), "traces of at least two decode steps")
    on = [(steps.device, steps.process), *(devices(rank.trace)[0] for rank in ranks.ranks[1:])]
    every = [collectives_of(rank, device) for rank, device in zip(ranks.ranks, on, strict=True)]
    met = [meetings(step, first.trace, every) for step in steps.steps]
    if not any(found for found, _ in met):
        raise UsageError(asked, _apart(ranks, every), "the traces of one run, of each rank; two traces without --ranks")
    count = len(every)
    uncertainty_ns = uncertainty_of([meeting for found, _ in met for meeting in found], count)
    cuts = [[cut(meeting, count, uncertainty_ns) for meeting in found] for found, _ in met]
    good = [[one for one in found if one is not None] for found in cuts]
    alike = {step.index for step in steps.alike()}
    numbers = [rank.number for rank in ranks.ranks]
    by_step = tuple(
        step_skew(step, found, numbers, step.flags or (() if step.index in alike else (step.phase.value,)))
        for step, found in zip(steps.steps, good, strict=True)
    )
    usual = [one for step, found in zip(steps.steps, good, strict=True) if step.index in alike for one in found]
    skew = Skew(
        ranks=tuple(
            _rank(place, number, rank.clock, by_step)
            for place, (number, rank) in enumerate(zip(numbers, ranks.ranks, strict=True))
        ),
        missing=ranks.missing,
        uncertainty_ns=uncertainty_ns,
        compared=len(usual),
        together=sum(one.last is None for one in usual),
        doubtful=sum(len(found) for found in cuts) - sum(len(found) for found in good),
        alone=sum(alone for _, alone in met),
        steps=by_step,
        places=places_of(usual, count),
        notes=(),
        power={number: card for number in numbers if (card := power_of(power, number, several=True))},
    )
    unused = _unused_notes(skew, power)
    notes = (*_notes(skew), *_power_notes(skew), *unused, *_excess_notes(skew, published))
    return msgspec.structs.replace(skew, notes=notes)


def _apart(ranks: Ranks, every: Sequence[Collectives]) -> str:
    """What stands against files that meet in no collective: they may be runs of one rank, or ranks of several runs."""
    has = [len(collectives.row) for collectives in every]
    if not any(has):
        return f"none of the {len(has)} traces has a collective: they are of ranks that work alone"
    told = ", ".join(
        f"rank {rank.number} has {counted(count, 'collective')} ({rank.path})"
        for rank, count in list(zip(ranks.ranks, has, strict=True))[:_MOST_NAMED]
    )
    more = len(has) - _MOST_NAMED
    return f"no collective of a step is in the traces of two ranks: {told}" + (f", and {more} more" if more > 0 else "")


def _rank(place: int, number: int, clock: Clock, steps: Sequence[StepSkew]) -> RankSkew:
    usual = [step for step in steps if step.collectives[place] and not step.flags]

    def median(values: Sequence[int]) -> int:
        return round(float(np.median(values))) if values else 0

    return RankSkew(
        rank=number,
        clock=clock,
        steps=len(usual),
        waiting_ns=median([step.waiting_ns[place] for step in usual]),
        transfer_ns=median([step.transfer_ns[place] for step in usual]),
        last=sum(step.last[place] for step in usual),
        late_ns=median([step.late_ns[place] for step in usual]),
    )


def _notes(skew: Skew) -> list[str]:
    notes = [f"arrivals less than {show_time(skew.uncertainty_ns / 1e9)} apart can not be told apart"]
    if not skew.compared:
        notes = ["no collective of the usual steps could be compared, so nothing is told of who waits for whom"]
    usual = [place.transfer_ns + max(place.waiting_ns) for place in skew.places]
    if usual and skew.uncertainty_ns > float(np.median(usual)):
        notes.append("that is longer than the collectives take: these ranks work apart, or their clocks drift")
    if skew.missing:
        ranks = ", ".join(map(str, skew.missing))
        notes.append(f"there is no trace of rank {ranks}: waiting for it would look like transfer")
    if skew.doubtful:
        notes.append(f"in {skew.doubtful} collectives a rank left before another arrived; they were left out")
    if skew.alone:
        notes.append(f"{skew.alone} collectives of rank {skew.ranks[0].rank} are in no other trace; they were left out")
    notes += [
        f"the clock of rank {rank.rank} could not be compared: {rank.clock.how}"
        for rank in skew.ranks[1:]
        if not rank.clock.matched
    ]
    doubts: dict[str, list[int]] = {}
    for rank in skew.ranks:
        doubts.setdefault(rank.clock.doubt, []).append(rank.rank)
    notes += [f"{_listed(ranks)} may be matched wrongly: {doubt}" for doubt, ranks in doubts.items() if doubt]
    return notes


def _listed(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _power_notes(skew: Skew) -> list[str]:
    """Ranks that are busy and draw little, with what they wait in; one sentence for ranks of which the same is true."""
    ranks: dict[str, list[int]] = {}
    for rank in skew.ranks:
        card = skew.power.get(rank.rank)
        if card is not None and waits(card):
            ranks.setdefault(shown(card), []).append(rank.rank)
    of_rank = {rank.rank: rank.waiting_ns + rank.transfer_ns for rank in skew.ranks}
    return [
        f"{_listed(numbers)}: {words}: waiting, not working; "
        f"{show_time(max(of_rank[number] for number in numbers) / 1e9)} of a step in collectives, whose kernels spin"
        for words, numbers in ranks.items()
    ]


def _unused_notes(skew: Skew, cards: Sequence[GpuPower]) -> list[str]:
    """What a log that was given does not tell, of which ranks."""
    ranks: dict[str, list[int]] = {}
    for rank in skew.ranks:
        card = skew.power.get(rank.rank)
        why = of_no_use(card, cards, rank.rank)
        ranks.setdefault("it has no GPU of that number" if why and card is None else why, []).append(rank.rank)
    return [
        f"{cards[0].source} does not tell whether {_listed(numbers)} work{'s' * (len(numbers) == 1)}: {why}"
        for why, numbers in ranks.items()
        if why
    ]


def _excess_notes(skew: Skew, published: Published | None) -> list[str]:
    """All-reduces that take longer than published ones even after the last rank has come."""
    places = [place for place in skew.places if place.kind == rules.Kind.ALL_REDUCE.value]
    words, _ = excess(rules.Kind.ALL_REDUCE.value, len(places), sum(place.transfer_ns for place in places), published)
    if not words:
        return []
    mean = sum(place.transfer_ns for place in places) / len(places)
    return [f"{len(places)} all-reduces a step take {show_time(mean / 1e9)} each after the last rank has come; {words}"]
