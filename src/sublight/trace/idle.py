"""One device in order of time: what launched each event, and what the device waited for when it stood still.

A gap is judged by the event that ends it. If that event belongs to the same graph replay as the one before, or if its
launch call had returned when the gap began, the work was there and the gap is the cost of starting it (launch gap). If
the call had not returned, the device waited for the host. Calls in progress count as waiting, because a node of a graph
runs at the end of the launch call at the earliest: cudaGraphLaunch of thousands of nodes takes milliseconds, in all of
which the device may stand idle. Without a record of the call nothing is claimed.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.trace.events import Kind, Trace
from sublight.trace.links import call_of, launches_graph

Integers = npt.NDArray[np.int64]


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


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of one device, in order of start.

    Attributes:
        rows: where they stand in `Trace.gpu`.
        reached: when everything up to and including the event has ended.
        last_to_end: the event, up to and including this one, that ends last.
        replay: the number of the graph replay that the event belongs to, counted from 1; 0 for none.
        call_start, call_end: the launch call of the event, -1 where it is not known.
    """

    rows: Integers
    start: Integers
    end: Integers
    reached: Integers
    last_to_end: Integers
    replay: Integers
    call_start: Integers
    call_end: Integers

    def __len__(self) -> int:
        return len(self.rows)


def timeline(trace: Trace, device: int, process: str = "") -> Timeline:
    """The events of a device, of the process that used it."""
    gpu = trace.gpu
    wanted = np.array([lane.device == device and lane.process == process for lane in gpu.lanes], bool)
    rows = np.arange(len(gpu)) if wanted.all() else np.flatnonzero(wanted[gpu.lane])
    start, end = gpu.start[rows], gpu.end[rows]
    reached = np.maximum.accumulate(end) if len(end) else end
    call = call_of(gpu, trace.calls)[rows]
    return Timeline(
        rows=rows,
        start=start,
        end=end,
        reached=reached,
        last_to_end=np.maximum.accumulate(np.where(end == reached, np.arange(len(rows)), 0)) if len(rows) else rows,
        replay=_replays(trace, rows, call),
        call_start=np.append(trace.calls.start, -1)[call],
        call_end=np.append(trace.calls.end, -1)[call],
    )


def idle_kinds(line: Timeline, begin: Integers, end: Integers, limit: Integers) -> tuple[Integers, Integers]:
    """What each gap is, as the place of its kind in `IdleKind`, and how much of it passed before the launch returned.

    Args:
        line: the events of the device.
        begin, end: the gaps; nothing runs in them.
        limit: for each gap the end of the step it lies in.
    """
    after = np.searchsorted(line.start, end, side="left")
    there = after < len(line)
    after = np.minimum(after, max(len(line) - 1, 0))
    before = line.last_to_end[np.maximum(after - 1, 0)]
    returned = np.where(there, line.call_end[after], -1)
    same_replay = there & (after > 0) & (line.replay[after] > 0) & (line.replay[before] == line.replay[after])
    places = {kind: place for place, kind in enumerate(IdleKind)}
    kind = np.select(
        [end == limit, same_replay, returned < 0, returned <= begin],
        [places[IdleKind.STEP], places[IdleKind.LAUNCH], places[IdleKind.UNKNOWN], places[IdleKind.LAUNCH]],
        places[IdleKind.HOST],
    )
    waited = np.where(same_replay | (returned < 0), 0, np.clip(returned, begin, end) - begin)
    return kind, waited


def _replays(trace: Trace, rows: Integers, call: npt.NDArray[np.int32]) -> Integers:
    """Events that share a launch are nodes of one replay: a graph launch, or any correlation that two kernels share."""
    gpu = trace.gpu
    correlation, kind = gpu.correlation[rows].astype(np.int64), gpu.kind[rows]
    launch = call.astype(np.int64)
    loose = np.flatnonzero((call < 0) & (correlation > 0))
    if len(loose):
        launch[loose] = len(trace.calls) + np.unique(correlation[loose], return_inverse=True)[1]
    known = launch >= 0
    shared = np.bincount(launch[known & np.equal(kind, Kind.KERNEL)], minlength=len(trace.calls) + len(loose) + 1) > 1
    shared[: len(trace.calls)] |= launches_graph(trace.calls)
    replayed = (known & shared[launch]) | np.equal(kind, Kind.GRAPH)
    # A whole graph in one row is a replay of its own, also where no call is known.
    alone = np.flatnonzero(replayed & ~known)
    launch[alone] = len(shared) + np.arange(len(alone))
    number = np.zeros(len(shared) + len(alone) + 1, np.int64)
    used = np.bincount(launch[replayed], minlength=len(number)) > 0
    number[used] = 1 + np.arange(used.sum())
    return np.where(replayed, number[launch], 0)
