"""The collectives of several ranks, and which of one rank is which of another.

Only kinds that every rank enters and none leaves before all have come: of a send, one side may leave at once. The k-th
of a kind, size and group in a step of the first rank is the k-th of another rank in the stretch that ends when the last
one of that step ends; so other ranks' steps need not be cut at the same place, and profiles may begin and end apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sublight.trace import classify as rules
from sublight.trace.events import Kind, Trace
from sublight.trace.ranks import Rank
from sublight.trace.steps import Step

Integers = npt.NDArray[np.int64]
_MEETING = frozenset(
    {
        rules.Kind.ALL_REDUCE,
        rules.Kind.ALL_GATHER,
        rules.Kind.REDUCE_SCATTER,
        rules.Kind.ALL_TO_ALL,
        rules.Kind.COLLECTIVE,
    }
)


class Key(NamedTuple):
    """What tells collectives apart. In a CUDA graph the profiler says neither size nor group."""

    kind: str
    elements: int | None
    group: str


@dataclass(frozen=True, slots=True)
class Collectives:
    """Those of one rank, in order of start.

    Attributes:
        row: of each in `Trace.gpu`.
        key: the place of its key in `keys`.
        arrival, end: since 1970, on the clock of the first rank.
        of_key: the places of those with each key.
    """

    row: Integers
    key: Integers
    arrival: Integers
    end: Integers
    keys: tuple[Key, ...]
    of_key: dict[Key, Integers]


class Meeting(NamedTuple):
    """One collective on all ranks that took part, by their places in the list of ranks. `place` counts in the step."""

    place: int
    key: Key
    name: str
    ranks: Integers
    arrival: Integers
    end: Integers


def collectives_of(rank: Rank, device: tuple[int, str]) -> Collectives:
    """The collectives of one rank on one of its devices, each with when the rank came to it.

    A kernel that was launched before the one in front of it had ended (programmatic dependent launch) comes to its work
    when that one ends.
    """
    gpu = rank.trace.gpu
    row, key, keys = _keys(rank.trace, device)
    start, end = gpu.start[row], gpu.end[row]
    before = np.full(len(gpu), np.iinfo(np.int64).min)
    for lane in np.unique(gpu.lane[row]).tolist():
        on_lane = np.flatnonzero(gpu.lane == lane)
        before[on_lane[1:]] = gpu.end[on_lane[:-1]]
    # What ends after the collective does not hold it up: a stream's number may stand for several branches of a graph.
    arrival = np.where(before[row] < end, np.maximum(start, before[row]), start)
    since_1970 = rank.trace.base_time_ns - rank.clock.offset_ns
    of_key = {one: np.flatnonzero(key == number) for number, one in enumerate(keys)}
    return Collectives(row, key, arrival + since_1970, end + since_1970, keys, of_key)


def _keys(trace: Trace, device: tuple[int, str]) -> tuple[Integers, Integers, tuple[Key, ...]]:
    """The rows of collectives on a device, the number of the key of each, and the keys."""
    gpu = trace.gpu
    kinds = [rules.classify(name).kind for name in gpu.names]
    meets = np.array([kind in _MEETING for kind in kinds], bool)
    own = np.array([(lane.device, lane.process) == device for lane in gpu.lanes], bool)
    row = np.flatnonzero(meets[gpu.name] & own[gpu.lane] & gpu.is_kind(Kind.KERNEL))
    pairs = np.stack([gpu.name[row].astype(np.int64), gpu.launch[row].astype(np.int64)])
    used, which = np.unique(pairs, axis=1, return_inverse=True)
    numbers: dict[Key, int] = {}
    number_of = np.zeros(used.shape[1], np.int64)
    for pair, (name, launch) in enumerate(used.T.tolist()):
        said = gpu.launches[launch].collective
        # NCCL serves several kinds with one kernel; then the word of the process group counts.
        word = said.name if said is not None and kinds[name] is rules.Kind.COLLECTIVE else kinds[name].value
        key = Key(word, said.elements_in if said else None, said.group if said else "")
        number_of[pair] = numbers.setdefault(key, len(numbers))
    return row, number_of[which.reshape(-1)], tuple(numbers)


def meetings(step: Step, trace: Trace, ranks: Sequence[Collectives]) -> tuple[list[Meeting], int]:
    """The collectives of one step of the first rank with those of the others, and how many no other rank has.

    Args:
        step: of the first rank.
        trace: of the first rank.
        ranks: all ranks, the first one first.
    """
    first = ranks[0]
    inside = np.arange(*np.searchsorted(first.row, [step.first, step.last]))
    found: list[Meeting] = []
    alone = 0
    for number in np.unique(first.key[inside]).tolist():
        key = first.keys[number]
        mine = inside[first.key[inside] == number]
        taken = [(0, mine)]
        for place, other in enumerate(ranks[1:], 1):
            theirs = _ending_with(other, key, int(first.end[mine[-1]]), len(mine))
            if theirs is not None:
                taken.append((place, theirs))
        if len(taken) < 2:
            alone += len(mine)
            continue
        members = np.array([place for place, _ in taken])
        arrival = np.stack([ranks[place].arrival[which] for place, which in taken])
        end = np.stack([ranks[place].end[which] for place, which in taken])
        for k, one in enumerate(mine.tolist()):
            name = trace.gpu.names[trace.gpu.name[first.row[one]]]
            found.append(Meeting(one - int(inside[0]), key, name, members, arrival[:, k], end[:, k]))
    return sorted(found, key=lambda meeting: meeting.place), alone


def _ending_with(rank: Collectives, key: Key, end: int, count: int) -> Integers | None:
    """So many of a rank's collectives of one key, the last of them the one that ends nearest to a time."""
    those = rank.of_key.get(key)
    if those is None:
        return None
    last = int(np.argmin(np.abs(rank.end[those] - end)))
    return those[last + 1 - count : last + 1] if last + 1 >= count else None
