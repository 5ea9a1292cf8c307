"""Joining GPU rows to the calls that launched them, by correlation number and process."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sublight.trace.events import Calls, GpuEvents
from sublight.trace.tables import is_sorted

_LAUNCH = re.compile(r"(cuda|cu|hip)\w*(LaunchKernel|LaunchCooperativeKernel|GraphLaunch)")
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")
_WINDOW = 1 << 16
_BEGIN_CAPTURE, _END_CAPTURE = re.compile(r"\w*StreamBeginCapture"), re.compile(r"\w*StreamEndCapture")


def call_of(gpu: GpuEvents, calls: Calls) -> npt.NDArray[np.int32]:
    """For each GPU row the row of `calls` that launched it, -1 where there is none."""
    found = np.full(len(gpu), -1, np.int32)
    for rows, launcher in _joined(gpu, calls, np.arange(len(calls), dtype=np.int32)):
        found[rows] = launcher
    return found


def rows_per_call(gpu: GpuEvents, calls: Calls) -> npt.NDArray[np.int64]:
    """How many GPU rows each call launched, and in the last place how many no call did."""
    count = np.zeros(len(calls) + 1, np.int64)
    joined = 0
    for rows, launcher in _joined(gpu, calls, np.arange(len(calls), dtype=np.int32)):
        count += np.bincount(np.where(launcher < 0, len(calls), launcher), minlength=len(count))
        joined += len(gpu.start[rows])
    count[-1] += len(gpu) - joined
    return count


def launches_graph(calls: Calls) -> npt.NDArray[np.bool_]:
    """Which calls launch a CUDA graph."""
    return _named(calls, _GRAPH_LAUNCH)


def lost_launches(gpu: GpuEvents, calls: Calls) -> npt.NDArray[np.int32]:
    """The rows of `calls` that launch kernels that are not in the trace; recording into a graph is no launch."""
    launches = np.flatnonzero(_named(calls, _LAUNCH) & (calls.correlation > 0) & ~_captured(calls)).astype(np.int32)
    seen = np.zeros(len(calls), bool)
    for _, launcher in _joined(gpu, calls, launches):
        seen[launcher[launcher >= 0]] = True
    return launches[~seen[launches]]


def _joined(
    gpu: GpuEvents, calls: Calls, wanted: npt.NDArray[np.int32]
) -> Iterator[tuple[slice, npt.NDArray[np.int32]]]:
    """Slices of the GPU rows, each with the wanted call of every row or -1. In slices, so that memory stays small."""
    if not len(wanted):
        return
    callers = Callers(gpu, calls, wanted)
    for low in range(0, len(gpu), _WINDOW):
        rows = slice(low, low + _WINDOW)
        yield rows, callers.of(rows)


class Callers:
    """Finds the call that launched a GPU row.

    Args:
        gpu, calls: of one trace.
        wanted: the rows of `calls` that are looked among; all of them unless given.
    """

    def __init__(self, gpu: GpuEvents, calls: Calls, wanted: npt.NDArray[np.int32] | None = None) -> None:
        self._correlation = gpu.correlation
        self._keys = _Keys(gpu, calls)
        self._rows: npt.NDArray[np.int32] | None = None
        if wanted is None and self._keys.alike and is_sorted(calls.correlation):
            # As nearly every profile: the numbers are the keys, and need no copy.
            self._sorted: npt.NDArray[Any] = calls.correlation
            return
        rows = np.arange(len(calls), dtype=np.int32) if wanted is None else wanted
        keys = self._keys.of_calls(rows)
        order = np.argsort(keys, kind="stable").astype(np.int32)
        self._sorted, self._rows = keys[order], rows[order]

    def of(self, rows: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The call of each of these GPU rows, -1 where there is none."""
        keys = self._correlation[rows] if self._rows is None else self._keys.of_gpu(rows)
        if not len(self._sorted) or not len(keys):
            return np.full(len(keys), -1, np.int32)
        # All nodes of a replay share a call, so rows in a row mostly ask the same.
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        asked = keys[first]
        at = np.minimum(np.searchsorted(self._sorted, asked), len(self._sorted) - 1)
        same = (self._sorted[at] == asked) & (self._correlation[rows][first] > 0)
        found = at.astype(np.int32) if self._rows is None else self._rows[at]
        return np.repeat(np.where(same, found, np.int32(-1)), np.diff(np.append(first, len(keys))))


def _named(calls: Calls, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    wanted = np.array([bool(pattern.match(name)) for name in calls.names], bool)
    return wanted[calls.name] if len(calls) else np.zeros(0, bool)


def _captured(calls: Calls) -> npt.NDArray[np.bool_]:
    """Calls made while their thread records a graph: what they launch runs later, under the graph's number."""
    inside = np.zeros(len(calls), bool)
    begins, ends = _named(calls, _BEGIN_CAPTURE), _named(calls, _END_CAPTURE)
    for place in np.unique(calls.place[begins]).tolist():
        on_thread = calls.place == place
        level = np.cumsum((begins & on_thread).astype(np.int32) - (ends & on_thread))
        # An end without its beginning, which the profiler did not see, must not count against a later beginning.
        inside |= on_thread & (level > np.minimum.accumulate(np.minimum(level, 0)))
    return inside


class _Keys:
    """Correlation numbers made different for different processes, which count independently."""

    def __init__(self, gpu: GpuEvents, calls: Calls) -> None:
        self._gpu, self._calls = gpu, calls
        processes = {process: n for n, process in enumerate(dict.fromkeys(place.process for place in calls.places))}
        labels = {lane.process for lane in gpu.lanes}
        self.alike = len(processes) <= 1 and len(labels) <= 1
        if self.alike:
            processes = {}
        # CUPTI's numbers have 32 bits. A process that makes no call gets a number of its own.
        self._of_lane = self._numbers([processes.get(lane.process, len(processes)) for lane in gpu.lanes])
        self._of_place = self._numbers([processes.get(place.process, 0) for place in calls.places])

    @staticmethod
    def _numbers(processes: list[int]) -> npt.NDArray[np.int64]:
        return np.array(processes, np.int64) << 40

    def of_gpu(self, rows: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._gpu.correlation[rows].astype(np.int64) | self._of_lane[self._gpu.lane[rows]]

    def of_calls(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        return self._calls.correlation[rows].astype(np.int64) | self._of_place[self._calls.place[rows]]
