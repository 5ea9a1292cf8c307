"""One collective, cut at the moment its last rank arrives, as well as the clocks of the ranks allow."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sublight.trace.collectives import Integers, Meeting

# If distances are normally distributed, three median distances hold 19 of 20: 3 x 0.6745 = 2.02 standard deviations.
_DISTANCES = 3


class Cut(NamedTuple):
    """A collective as the ranks spent it; arrays are over all ranks, with zeros where one took no part.

    `last` is the place of the rank that came last by more than the uncertainty, and `late_ns` how much later than the
    last but one it came; None and 0 where none did.
    """

    meeting: Meeting
    waiting_ns: Integers
    transfer_ns: Integers
    last: int | None
    late_ns: int


def uncertainty_of(met: Sequence[Meeting], ranks: int) -> int:
    """How far apart two arrivals have to be to be told apart.

    All ends of one collective are taken for one moment. A rank's uncertainty is three times the median distance of its
    ends from their middle; two arrivals differ by at most the sum of the two largest.
    """
    distances: list[list[float]] = [[] for _ in range(ranks)]
    for meeting in met:
        # Differences are small and exact; times since 1970 are not, in a double.
        from_first = (meeting.end - meeting.end[0]).astype(np.float64)
        for rank, distance in zip(meeting.ranks.tolist(), np.abs(from_first - from_first.mean()).tolist(), strict=True):
            distances[rank].append(distance)
    of_rank = sorted(_DISTANCES * float(np.median(of_one)) for of_one in distances if of_one)
    return round(sum(of_rank[-2:]))


def cut(meeting: Meeting, ranks: int, uncertainty_ns: int) -> Cut | None:
    """The collective in its parts; None where a rank left before another arrived, so that this is no one collective."""
    order = np.argsort(meeting.arrival, kind="stable")
    arrived = int(meeting.arrival[order[-1]])
    late = arrived - int(meeting.arrival[order[-2]])
    if int(meeting.end.min()) < arrived - uncertainty_ns:
        return None
    took = meeting.end - meeting.arrival
    waited = np.minimum(arrived - meeting.arrival, took)
    waited[waited <= uncertainty_ns] = 0
    waiting, transfer = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    waiting[meeting.ranks], transfer[meeting.ranks] = waited, took - waited
    if late <= uncertainty_ns:
        return Cut(meeting, waiting, transfer, None, 0)
    return Cut(meeting, waiting, transfer, int(meeting.ranks[order[-1]]), late)
