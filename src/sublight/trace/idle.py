"""What a device waited for when it stood still.

A gap is judged by the event that ends it. If that event belongs to the same graph replay as the one before, or if its
launch call had returned when the gap began, the work was there and the gap is the cost of starting it (launch gap). If
the call had not returned, the device waited for the host. Calls in progress count as waiting, because a node of a graph
runs at the end of the launch call at the earliest: cudaGraphLaunch of thousands of nodes takes milliseconds, in all of
which the device may stand idle. Without a record of the call nothing is claimed.
"""

from enum import StrEnum

import msgspec
import numpy as np

from sublight.trace.events import Calls
from sublight.trace.timeline import Integers, Stretch, call_times


class IdleKind(StrEnum):
    LAUNCH = "launch gap"  # the next kernel was enqueued, or is the next node of the same graph replay
    HOST = "CPU-bound idle"  # the call that launches the next kernel had not returned
    STEP = "between steps"  # the next event begins the next step
    UNKNOWN = "unknown idle"  # the launch of the next event is not in the trace


class Idle(msgspec.Struct, frozen=True):
    """All gaps of one kind; `host_ns` is the part in which the launch call of the next event had not returned."""

    kind: IdleKind
    ns: int
    gaps: int
    host_ns: int


def idle_kinds(
    calls: Calls, line: Stretch, begin: Integers, end: Integers, limit: Integers
) -> tuple[Integers, Integers]:
    """What each gap is, as the place of its kind in `IdleKind`, and how much of it passed before the launch returned.

    Args:
        calls: of the trace.
        line: the events of the device, at least up to the first that begins behind the last gap.
        begin, end: the gaps; nothing runs in them.
        limit: for each gap the end of the step it lies in.
    """
    after = np.searchsorted(line.start, end, side="left")
    there = after < len(line)
    after = after[there]
    returned, same_replay = np.full(len(end), -1, np.int64), np.zeros(len(end), bool)
    returned[there] = call_times(calls, line.call[after])[1]
    same_replay[there] = (line.replay[after] > 0) & (line.ended[after] == line.replay[after])
    places = {kind: place for place, kind in enumerate(IdleKind)}
    kind = np.select(
        [end == limit, same_replay, returned < 0, returned <= begin],
        [places[IdleKind.STEP], places[IdleKind.LAUNCH], places[IdleKind.UNKNOWN], places[IdleKind.LAUNCH]],
        places[IdleKind.HOST],
    )
    waited = np.where(same_replay | (returned < 0), 0, np.clip(returned, begin, end) - begin)
    return kind, waited
