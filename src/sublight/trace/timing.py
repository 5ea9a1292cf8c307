"""Times that can not be: found, counted, and repaired where that can be done without inventing anything.

On one stream work runs in order. A kernel may start before the one in front of it has ended (programmatic dependent
launch), but it then waits for it, so it does not end first; and where a stream's number stands for several branches of
a graph, a long kernel may hold a short one. Both are kept. What is not kept is a duration that outlasts the next row on
its stream and is more than ten times the usual one, by more than 100 us: profilers write such ends when they lose one,
and seven of them can be most of a trace. It is cut at the next start, which is the longest it can have been.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sublight.trace.events import GpuEvents, Spans, Trace
from sublight.trace.links import lost_launches
from sublight.trace.order import clip
from sublight.trace.repairs import RepairKind, RepairLog
from sublight.units import show_time

_HOUR_NS = 3_600_000_000_000
_OUTSIDE_NS = 1_000_000_000

AnySpans = TypeVar("AnySpans", bound=Spans)


def repaired(trace: Trace, repairs: RepairLog) -> Trace:
    """The trace with its times repaired, and all repairs listed."""
    gpu = _without(trace.gpu, _no_time(trace.gpu), RepairKind.NO_TIME, "GPU rows without a time; left out", repairs)
    gpu = _without(
        gpu, gpu.duration < 0, RepairKind.NEGATIVE_DURATION, "GPU rows that end before they start; left out", repairs
    )
    _count(gpu, gpu.duration == 0, RepairKind.ZERO_DURATION, "GPU rows that take no time; kept", repairs)
    gpu = _clipped(gpu, trace.window, repairs)
    trace = replace(
        trace,
        gpu=gpu,
        calls=_forward(trace.calls, "calls", repairs),
        ops=_forward(trace.ops, "operators", repairs),
        marks=_forward(trace.marks, "annotations", repairs),
        gpu_marks=_forward(trace.gpu_marks, "GPU annotations", repairs),
    )
    _look_outside(trace, repairs)
    _look_for_lost(trace, repairs)
    return replace(trace, repairs=tuple(repairs.all()))


def described(gpu: GpuEvents, row: int) -> str:
    """One GPU row in words, for an example."""
    lane = gpu.lanes[int(gpu.lane[row])]
    return (
        f"{gpu.names[int(gpu.name[row])][:80]} on device {lane.device} stream {lane.stream}, "
        f"start {int(gpu.start[row]):,} ns, duration {int(gpu.duration[row]):,} ns"
    )


def _no_time(gpu: GpuEvents) -> npt.NDArray[np.bool_]:
    """Rows at zero or before: with no duration, or hours away from all others."""
    early = gpu.start <= 0
    if not early.any():
        return early
    far = bool(np.median(gpu.start) > _HOUR_NS)
    lost: npt.NDArray[np.bool_] = early & (far | (gpu.duration == 0) & (gpu.start == 0))
    return lost


def _count(gpu: GpuEvents, rows: npt.NDArray[np.bool_], kind: RepairKind, note: str, repairs: RepairLog) -> None:
    found = np.flatnonzero(rows)
    if len(found):
        repairs.add(kind, note, described(gpu, int(found[0])), len(found))


def _without(gpu: GpuEvents, rows: npt.NDArray[np.bool_], kind: RepairKind, note: str, repairs: RepairLog) -> GpuEvents:
    _count(gpu, rows, kind, note, repairs)
    if not rows.any():
        return gpu
    names = ("start", "duration", "name", "kind", "lane", "correlation", "node", "launch")
    return replace(gpu, **{name: getattr(gpu, name)[~rows] for name in names})


def _clipped(gpu: GpuEvents, window: tuple[int, int] | None, repairs: RepairLog) -> GpuEvents:
    order = clip(gpu, window[1] if window else None)
    if order.overlaps:
        longest = show_time(order.longest_ns / 1e9)
        repairs.add(
            RepairKind.OVERLAP,
            f"rows that still run when the next one on their stream starts, by up to {longest}; kept: busy time is the "
            "union, not the sum",
            described(gpu, order.first_overlap),
            order.overlaps,
        )
    if order.clipped:
        repairs.add(
            RepairKind.CLIPPED,
            "rows that outlast the next one on their stream and are over ten times as long as usual; cut at its start",
            described(gpu, order.clipped[0]),
            len(order.clipped),
            order.removed_ns,
        )
    gpu = replace(gpu, duration=order.duration)
    endless = np.zeros(len(gpu), bool)
    endless[order.endless] = True
    note = "rows with nothing after them on their stream that outlast the profiler and ten times the usual; left out"
    return _without(gpu, endless, RepairKind.IMPOSSIBLE_DURATION, note, repairs)


def _forward(table: AnySpans, what: str, repairs: RepairLog) -> AnySpans:
    """Spans that end before they start are taken to end at once."""
    backward = table.duration < 0
    if not backward.any():
        return table
    first = int(np.flatnonzero(backward)[0])
    repairs.add(
        RepairKind.NEGATIVE_DURATION,
        f"{what} that end before they start; taken as zero",
        f"{table.names[int(table.name[first])]}, duration {int(table.duration[first]):,} ns",
        int(backward.sum()),
    )
    return replace(table, duration=np.where(backward, 0, table.duration))


def _look_outside(trace: Trace, repairs: RepairLog) -> None:
    """GPU rows a second or more away from the time in which the profiler ran: the two clocks were joined wrongly."""
    if trace.window is None or not len(trace.gpu):
        return
    first, last = trace.window
    rows = (trace.gpu.start > last + _OUTSIDE_NS) | (trace.gpu.start < first - _OUTSIDE_NS)
    note = (
        "GPU rows a second or more outside the time in which the profiler ran; kept, but not comparable with CPU times"
    )
    _count(trace.gpu, rows, RepairKind.OUTSIDE_WINDOW, note, repairs)


def _look_for_lost(trace: Trace, repairs: RepairLog) -> None:
    """Launches without kernels, told apart by where they are: a profiler that starts late loses the first ones."""
    calls, gpu = trace.calls, trace.gpu
    lost = lost_launches(gpu, calls)
    if not len(lost):
        return
    starts = calls.start[lost]
    first, last = (int(gpu.start[0]), int(gpu.start[-1])) if len(gpu) else (0, -1)
    before, after = (int((starts < first).sum()), int((starts > last).sum())) if len(gpu) else (len(lost), 0)
    row = int(lost[0])
    name, number = calls.names[int(calls.name[row])], int(calls.correlation[row])
    repairs.add(
        RepairKind.LOST_KERNELS,
        f"launches whose kernels are not in the trace: {before} before the first GPU row, "
        f"{len(lost) - before - after} among them, {after} after the last; steps they belong to look too short",
        f"{name} with correlation {number} at {int(calls.start[row]):,} ns",
        len(lost),
    )
