"""One device in order of time: what launched each event, which graph replay it belongs to, and what ended before it.

A trace may hold tens of millions of events and a column of int64 for each of them costs as much as reading did, so a
timeline keeps a few numbers per window and makes the columns of a stretch when asked. Whoever needs all events goes
through `windows`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sublight.trace.events import Calls, Cut, Ids, Kind, Trace
from sublight.trace.links import Callers, launches_graph

_WINDOW = 1 << 16
_LONG_AGO = -(1 << 62)
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events of one device that follow each other, in columns.

    Attributes:
        first: the place of the first of them in the timeline.
        rows: where they stand in `Trace.gpu`.
        reached: when everything in front of the event has ended; long ago in front of the first of all.
        replay: the number of the graph replay that the event belongs to, counted from 1; 0 for none.
        ended: the replay of the event in front of it that ends last.
        call: the launch call of the event in `Trace.calls`, -1 where it is not known.
    """

    first: int
    rows: Integers
    start: Integers
    end: Integers
    reached: Integers
    replay: Numbers
    ended: Numbers
    call: Numbers

    def __len__(self) -> int:
        return len(self.rows)


class Timeline:
    """The events of one device, of the process that used it, in order of start.

    Attributes:
        cut: where a slice was cut out, unless its events contradict that.
        last_end: when everything has ended; in a slice, where the next step began that is not in it.
        replays: replay numbers are not above this one.
        graphs: how many events are whole CUDA graphs recorded as one row.
        launched: how many events have a launch call in the trace.
        replayed: how many belong to a graph replay.
    """

    def __init__(self, trace: Trace, device: int, process: str = "") -> None:
        self.trace = trace
        wanted = np.array([lane.device == device and lane.process == process for lane in trace.gpu.lanes], bool)
        self._rows = None if wanted.all() else _rows_on(trace, wanted)
        self._count = len(trace.gpu) if self._rows is None else len(self._rows)
        self._callers = Callers(trace.gpu, trace.calls)
        self._replays = _Replays(self, self._callers)
        self.replays, self.graphs = self._replays.last, self._replays.graphs
        self.launched, self.replayed = self._replays.launched, 0
        # In front of each window: when everything has ended, and the replay of what ends last.
        self._reached, self._ended = [_LONG_AGO], [0]
        for low in range(0, self._count, _WINDOW):
            stretch = self._windowful(low, low + _WINDOW)
            end, reached = int(stretch.end.max()), self._reached[-1]
            last = len(stretch) - 1 - int(np.argmax(stretch.end[::-1]))
            self.replayed += int(np.count_nonzero(stretch.replay))
            self._reached.append(max(end, reached))
            self._ended.append(int(stretch.replay[last]) if end >= reached else self._ended[-1])
        self.last_end = self._reached[-1]
        self.cut = trace.cut if self._fits(trace.cut) else None
        if self.cut is not None:
            self.last_end = self.cut.end_ns

    def __len__(self) -> int:
        return self._count

    def windows(self, low: int = 0, high: int | None = None) -> Iterator[Stretch]:
        """The events from one place up to another, all unless told, in stretches of bounded length."""
        high = self._count if high is None else high
        while low < high:
            # Up to the next place whose past is known, so that none is looked at twice.
            stop = min((low // _WINDOW + 1) * _WINDOW, high)
            yield self.stretch(low, stop)
            low = stop

    def stretch(self, low: int, high: int) -> Stretch:
        """The events from one place up to another."""
        window = low // _WINDOW
        whole = self._windowful(window * _WINDOW, high)
        skipped = low - window * _WINDOW
        if not skipped:
            return whole
        columns = {name: getattr(whole, name)[skipped:] for name in Stretch.__slots__ if name != "first"}
        return Stretch(first=low, **columns)

    def row(self, places: Integers) -> Integers:
        """Where the events at these places stand in `Trace.gpu`."""
        return places if self._rows is None else self._rows[places].astype(np.int64)

    def place(self, rows: npt.ArrayLike) -> Integers:
        """How many events of the device stand before these rows of `Trace.gpu`."""
        given = np.asarray(rows, np.int64)
        return np.minimum(given, self._count) if self._rows is None else np.searchsorted(self._rows, given)

    def times(self, places: Integers) -> Integers:
        """When the events at these places start; behind the last event, `last_end`."""
        result = np.full(len(places), self.last_end, np.int64)
        there = places < self._count
        result[there] = self.trace.gpu.start[self.row(places[there])]
        return result

    def at_time(self, times: Integers) -> Integers:
        """The places of the first events that do not start before these times."""
        return self.place(np.searchsorted(self.trace.gpu.start, times, side="left"))

    def running_at(self, time: int) -> int:
        """The place of the first event up to which something runs beyond a time; behind the last where nothing does."""
        window = int(np.searchsorted(self._reached[1:], time, side="right"))
        if window * _WINDOW >= self._count:
            return self._count
        part = self._windowful(window * _WINDOW, (window + 1) * _WINDOW)
        reached = np.maximum(np.maximum.accumulate(part.end), self._reached[window])
        return part.first + int(np.searchsorted(reached, time, side="right"))

    def call(self, places: Integers) -> Numbers:
        """The launch calls of the events at these places, -1 where they are not known."""
        return self._callers.of(self.row(places))

    def _fits(self, cut: Cut | None) -> bool:
        """Whether an event starts where a slice begins, and none starts behind its end."""
        if cut is None or not self._count:
            return False
        place = self.at_time(np.array([cut.begin_ns]))
        first, last = self.times(np.append(place, self._count - 1)).tolist()
        return bool(place[0] < self._count and first == cut.begin_ns and last < cut.end_ns)

    def _windowful(self, low: int, high: int) -> Stretch:
        """From a place where a window begins; what lies before is known only where that window's past is."""
        gpu, high = self.trace.gpu, min(high, self._count)
        span = slice(low, high)
        chosen: slice | Integers = span if self._rows is None else self._rows[span].astype(np.int64)
        start = gpu.start[chosen]
        end = start + gpu.duration[chosen]
        call = self._callers.of(chosen)
        replay = self._replays.of(low, chosen, call)
        window = low // _WINDOW
        before = (self._reached[window], self._ended[window])
        reached = np.maximum.accumulate(np.append(before[0], end))
        last = np.maximum.accumulate(np.where(end == reached[1:], np.arange(len(end)), -1))
        ended = np.where(last < 0, np.int32(before[1]), replay[last]) if len(end) else replay
        return Stretch(
            first=low,
            rows=np.arange(low, high) if isinstance(chosen, slice) else chosen,
            start=start,
            end=end,
            reached=reached[:-1],
            replay=replay,
            ended=np.append(np.int32(before[1]), ended[:-1]) if len(end) else replay,
            call=call,
        )


def call_times(calls: Calls, call: Numbers) -> tuple[Integers, Integers]:
    """When calls start and end; -1 for those that are not known."""
    known = call >= 0
    start, end = np.full(len(call), -1, np.int64), np.full(len(call), -1, np.int64)
    start[known] = calls.start[call[known]]
    end[known] = start[known] + calls.duration[call[known]]
    return start, end


def _rows_on(trace: Trace, wanted: npt.NDArray[np.bool_]) -> Ids:
    """The rows on wanted lanes, in the narrowest type that holds them."""
    kind, lane = np.min_scalar_type(max(len(trace.gpu), 1)), trace.gpu.lane
    found = [
        (np.flatnonzero(wanted[lane[low : low + _WINDOW]]) + low).astype(kind) for low in range(0, len(lane), _WINDOW)
    ]
    return np.concatenate(found) if found else np.empty(0, kind)


class _Replays:
    """Which events are nodes of one graph replay: those of a graph launch, or of any launch that two kernels share.

    A launch is a call, or a correlation number whose call is not in the trace. A whole graph in one row is a replay of
    its own, also where no launch is known.
    """

    def __init__(self, line: Timeline, callers: Callers) -> None:
        trace = self._trace = line.trace
        calls, self.graphs, self.launched = len(trace.calls), 0, 0
        kernels, whole = np.zeros(calls, np.int32), launches_graph(trace.calls)
        loose: list[Ids] = []
        loose_graphs: set[int] = set()
        # In front of each window: how many whole graphs of unknown launch there were.
        self._alone = [0]
        for low in range(0, len(line), _WINDOW):
            rows = line.row(np.arange(low, min(low + _WINDOW, len(line))))
            call, correlation = callers.of(rows), trace.gpu.correlation[rows]
            graph, kernel = (np.equal(trace.gpu.kind[rows], kind) for kind in (Kind.GRAPH, Kind.KERNEL))
            known = call >= 0
            self.graphs += int(graph.sum())
            self.launched += int(known.sum())
            number, times = np.unique(call[kernel & known], return_counts=True)
            kernels[number] += times.astype(np.int32)
            whole[call[graph & known]] = True
            numbered = ~known & (correlation > 0)
            loose.append(correlation[numbered & kernel])
            loose_graphs.update(correlation[numbered & graph].tolist())
            self._alone.append(self._alone[-1] + int((graph & ~known & ~numbered).sum()))
        self._of_call = _numbered(whole | (kernels > 1))
        self._calls = int(self._of_call.max(initial=0))
        self._loose = np.union1d(_repeated(loose), np.array(sorted(loose_graphs), np.int64)).astype(np.int64)
        self.last = self._calls + len(self._loose) + self._alone[-1]

    def of(self, low: int, rows: slice | Integers, call: Numbers) -> Numbers:
        """The replays of the events from a place on, where a window begins, with these calls."""
        gpu = self._trace.gpu
        replay, known = np.zeros(len(call), np.int32), call >= 0
        replay[known] = self._of_call[call[known]]
        if len(self._loose):
            correlation = gpu.correlation[rows].astype(np.int64)
            at = np.minimum(np.searchsorted(self._loose, correlation), len(self._loose) - 1)
            there = ~known & (self._loose[at] == correlation)
            replay[there] = 1 + self._calls + at[there]
        if self._alone[-1]:
            alone = np.equal(gpu.kind[rows], Kind.GRAPH) & ~known & (gpu.correlation[rows] == 0)
            number = self._alone[low // _WINDOW] + np.arange(1, int(alone.sum()) + 1)
            replay[alone] = self._calls + len(self._loose) + number
        return replay


def _numbered(chosen: npt.NDArray[np.bool_]) -> Numbers:
    """Numbers from 1 for what is chosen, 0 for the rest."""
    number = np.zeros(len(chosen), np.int32)
    number[chosen] = np.arange(1, int(chosen.sum()) + 1, dtype=np.int32)
    return number


def _repeated(pieces: list[Ids]) -> Ids:
    """The numbers that come more than once in all pieces together."""
    together = np.concatenate(pieces) if pieces else np.empty(0, np.uint8)
    together.sort()
    return np.unique(together[1:][together[1:] == together[:-1]])
