"""The collectives of several ranks summed up: by step, and by their place in the step."""

from collections.abc import Sequence

import msgspec
import numpy as np

from sublight.trace.arrivals import Cut
from sublight.trace.steps import Step


class Wait(msgspec.Struct, frozen=True):
    """One rank waiting in one collective of a step; `last` is the rank it waited for."""

    place: int
    rank: int
    last: int
    ns: int


class StepSkew(msgspec.Struct, frozen=True):
    """One step. What is in tuples is of each rank, in their order.

    Attributes:
        collectives: how many the rank took part in and were compared.
        waiting_ns, transfer_ns: in these.
        late_ns: how much later than the last but one the rank came, where it came last.
        last: how often it did, by more than the uncertainty.
        longest: the longest wait.
        flags: why the step differs from the others; one that does counts for no median and no sum.
    """

    index: int
    collectives: tuple[int, ...]
    waiting_ns: tuple[int, ...]
    transfer_ns: tuple[int, ...]
    late_ns: tuple[int, ...]
    last: tuple[int, ...]
    longest: Wait | None
    flags: tuple[str, ...]


class Place(msgspec.Struct, frozen=True):
    """The k-th collective of a step, over all steps.

    Attributes:
        waiting_ns: of each rank, in their order; medians.
        transfer_ns: the median over steps and ranks.
        last: how often each rank came last; in the other steps none did by more than the uncertainty.
    """

    place: int
    kind: str
    elements: int | None
    group: str
    name: str
    steps: int
    waiting_ns: tuple[int, ...]
    transfer_ns: int
    last: tuple[int, ...]


def step_skew(step: Step, cuts: Sequence[Cut], numbers: Sequence[int], flags: tuple[str, ...]) -> StepSkew:
    """One step of the ranks of these numbers."""
    count = len(numbers)
    waiting, transfer, taken = (np.zeros(count, np.int64) for _ in range(3))
    late, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for one in cuts:
        waiting += one.waiting_ns
        transfer += one.transfer_ns
        taken[one.meeting.ranks] += 1
        if one.last is not None:
            late[one.last] += one.late_ns
            last[one.last] += 1
    return StepSkew(
        index=step.index,
        collectives=tuple(taken.tolist()),
        waiting_ns=tuple(waiting.tolist()),
        transfer_ns=tuple(transfer.tolist()),
        late_ns=tuple(late.tolist()),
        last=tuple(last.tolist()),
        longest=_longest(cuts, numbers),
        flags=flags,
    )


def _longest(cuts: Sequence[Cut], numbers: Sequence[int]) -> Wait | None:
    longest = max(cuts, key=lambda one: int(one.waiting_ns.max()), default=None)
    if longest is None or not longest.waiting_ns.any():
        return None
    meeting = longest.meeting
    return Wait(
        place=meeting.place,
        rank=numbers[int(np.argmax(longest.waiting_ns))],
        last=numbers[int(meeting.ranks[np.argmax(meeting.arrival)])],
        ns=int(longest.waiting_ns.max()),
    )


def places_of(cuts: Sequence[Cut], count: int) -> tuple[Place, ...]:
    """The collectives of several steps of so many ranks, by their place in the step."""
    by_place: dict[int, list[Cut]] = {}
    for one in cuts:
        by_place.setdefault(one.meeting.place, []).append(one)
    result = []
    for place, found in sorted(by_place.items()):
        meeting = found[0].meeting
        waiting = np.median(np.stack([one.waiting_ns for one in found]), axis=0)
        transfer = np.concatenate([one.transfer_ns[one.meeting.ranks] for one in found])
        result.append(
            Place(
                place=place,
                kind=meeting.key.kind,
                elements=meeting.key.elements,
                group=meeting.key.group,
                name=meeting.name,
                steps=len(found),
                waiting_ns=tuple(round(float(ns)) for ns in waiting),
                transfer_ns=round(float(np.median(transfer))),
                last=tuple(sum(one.last == rank for one in found) for rank in range(count)),
            )
        )
    return tuple(result)
