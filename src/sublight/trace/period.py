"""What repeats in the order of work on a GPU, found without knowing what any of it is.

The work is a sequence of units: one kernel, one copy, or one whole replay of a CUDA graph. Every kind of unit that
comes back at equal distances divides the sequence into periods. Layers do that, steps do, and so do whole requests.
Three things tell them apart, in this order:

- A step of a server meets the host: tokens are copied in or out. So if the trace has copies to or from the host, the
  step is the shortest period that holds one. Should every layer copy (an engine that asks the GPU something on the
  way), some periods are the others and more: the last layer with the head. Then the longer period is the step.
- Without such copies the step is the longest period.
- If nothing but layers repeats, the host still pauses where it begins a new step: every n-th layer begins after an
  unusually long pause before the launch.

Distances are counted in GPU events and compared with a tolerance, so a kernel more or less, events of another stream
that come a little earlier or later, and some steps of another sort in between do not hide the rest.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sublight.trace.events import Kind
from sublight.trace.timeline import Integers, Numbers, Stretch, Timeline, call_times

_TOLERANCE = 0.1
_SHARE, _COVER, _CROSSING = 0.6, 0.4, 0.8
_MOST_IN_GROUP = 256
_MOST_PERIODS = 8192
_HOST_COPY = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost")
_WHOLE_GRAPH = 1000  # events that the longest graph counts for where graphs were recorded as single rows


@dataclass(frozen=True, slots=True)
class Units:
    """A sequence of units.

    Attributes:
        token: what a unit is; equal for equal units.
        grid: the number of the grid it ran with; 0 for replays.
        size: how many GPU events it holds.
        crosses: whether it copies to or from the host.
        main: whether it is a graph replay that is not small beside the largest.
        pause: how long the host waited before it launched the unit, or how long the device was idle before it.
    """

    token: Numbers
    grid: Numbers
    size: Numbers
    crosses: npt.NDArray[np.bool_]
    main: npt.NDArray[np.bool_]
    pause: Integers

    def __len__(self) -> int:
        return len(self.token)

    def pairs(self) -> Integers:
        """Which two units follow each other, for every unit but the last."""
        width = int(self.token.max(initial=0)) + 1
        pairs: Integers = self.token[:-1].astype(np.int64) * width + self.token[1:]
        return pairs

    def shapes(self, low: int, high: int) -> set[tuple[int, int]]:
        """The different units of a stretch, with their grids."""
        return set(zip(self.token[low:high].tolist(), self.grid[low:high].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Period:
    """A division of the sequence: period i goes from `at[i]` to `at[i + 1]`, both places of units."""

    at: Integers
    sizes: Integers
    size: float
    regular: npt.NDArray[np.bool_]
    crossing: float

    @property
    def count(self) -> int:
        return len(self.at)

    @property
    def whole(self) -> int:
        """How many periods are regular, less those that are fragments."""
        return int(self.regular.sum()) - int((2 * self.sizes < self.size).sum())


def units_of(line: Timeline) -> tuple[Units, Integers]:
    """The sequence of units, and the place of each unit's first event."""
    found = _Found(line)
    for stretch in line.windows():
        found.add(stretch)
    return found.units()


class _Found:
    """Units as they are found, stretch by stretch: what is kept is as long as there are units, not events.

    `whole` is the duration of a graph recorded as one row, and -1 for others; without such rows there is no column.
    """

    _EMPTY: ClassVar = {
        "at": np.int32, "replay": np.int32, "token": np.int32, "grid": np.int32, "crosses": np.bool_,
        "pause": np.int64, "whole": np.int64,
    }  # fmt: skip

    def __init__(self, line: Timeline) -> None:
        gpu = self._gpu = line.trace.gpu
        self._calls = line.trace.calls
        # How long the host waited before each launch; how long the device was idle, if calls are missing.
        self._by_calls = line.launched >= 0.9 * len(line)
        self._returned = -1
        numbers = np.arange(len(gpu.names))
        # Replays are equal if they hold equally many events, and equal sums of two odd weights of their names.
        self._weights = (np.ones(len(numbers)), numbers * 7919 % 104_729, (numbers + 1) ** 2 * 6007 % 1_299_709)
        self._sums = np.zeros((len(self._weights), line.replays + 1))
        self._seen = np.zeros(line.replays + 1, bool)
        grids = {grid: number for number, grid in enumerate(dict.fromkeys(launch.grid for launch in gpu.launches))}
        self._grids = np.array([grids[launch.grid] for launch in gpu.launches], np.int32)
        self._copies = np.array([bool(_HOST_COPY.search(name)) for name in gpu.names], bool)
        self._graphs = line.graphs > 0
        self._columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in self._EMPTY}

    def add(self, line: Stretch) -> None:
        gpu, name = self._gpu, self._gpu.name[line.rows]
        replays, first, which = np.unique(line.replay, return_index=True, return_inverse=True)
        for sums, weight in zip(self._sums, self._weights, strict=True):
            sums[replays] += np.bincount(which, weight[name], len(replays))
        fresh = ~self._seen[replays] & (replays > 0)
        self._seen[replays] = True
        at = np.sort(np.append(np.flatnonzero(line.replay == 0), first[fresh]))
        rows, replay, kind = line.rows[at], line.replay[at], gpu.kind[line.rows[at]]
        found = {
            "at": (line.first + at).astype(np.int32 if line.first + len(line) < 1 << 31 else np.int64),
            "replay": replay,
            "token": name[at].astype(np.int32),
            "grid": self._grids[gpu.launch[rows]],
            "crosses": self._copies[name[at]] & np.equal(kind, Kind.MEMCPY) & (replay == 0),
            "pause": self._pauses(line)[at],
        }
        if self._graphs:
            found["whole"] = np.where(np.equal(kind, Kind.GRAPH), gpu.duration[rows], -1)
        for column, piece in found.items():
            self._columns[column].append(piece)

    def _pauses(self, line: Stretch) -> Integers:
        begin, reached = line.start, line.reached
        if self._by_calls:
            begin, end = call_times(self._calls, line.call)
            reached = np.maximum.accumulate(np.append(self._returned, end))
            self._returned = int(reached[-1])
            reached = reached[:-1]
        pause: Integers = np.maximum(begin - reached, 0)
        if line.first == 0:
            pause[:1] = 0
        return pause

    def units(self) -> tuple[Units, Integers]:
        """All units, and their places; nothing is left here."""
        replay, token = self._take("replay"), self._take("token")
        in_graph = replay > 0
        graph = np.unique(self._sums[:, 1:], axis=1, return_inverse=True)[1].reshape(-1)
        token[in_graph] = len(self._gpu.names) + graph[replay[in_graph] - 1]
        size = np.where(in_graph, self._sums[0].astype(np.int32)[replay], np.int32(1))
        if self._graphs:
            duration = self._take("whole")
            _weigh_whole_graphs(size, token, duration >= 0, duration)
        del replay
        grid = self._take("grid")
        grid[in_graph] = 0
        return Units(
            token=token,
            grid=grid,
            size=size,
            crosses=self._take("crosses"),
            main=in_graph & (2 * size >= size[in_graph].max(initial=0)),
            pause=self._take("pause"),
        ), self._take("at")

    def _take(self, name: str) -> npt.NDArray[Any]:
        """One column in one piece; the pieces are given up."""
        pieces, self._columns[name] = self._columns[name], []
        return np.concatenate(pieces) if pieces else np.empty(0, self._EMPTY[name])


def _weigh_whole_graphs(size: Integers, token: Integers, whole: npt.NDArray[np.bool_], duration: Integers) -> None:
    """A graph recorded as one row counts for many events, by how long it usually takes beside the longest."""
    tokens = np.unique(token[whole]).tolist()
    usual = {one: max(float(np.median(duration[whole & (token == one)])), 1.0) for one in tokens}
    for one in tokens:
        size[whole & (token == one)] = max(1, round(_WHOLE_GRAPH * usual[one] / max(usual.values())))


def find_periods(units: Units) -> tuple[Period | None, Period | None]:
    """The period of the steps, and the longest one of what repeats inside or instead of them; None where there is none.

    The second never has copies to or from the host, although the trace may.
    """
    found = _candidates(units)
    meets_host = [period for period in found if period.crossing >= _CROSSING]
    inner = [period for period in found if period.crossing < _CROSSING]
    longest = _longest(inner)
    if meets_host:
        return _whole(units, meets_host), longest
    return (None, longest) if units.crosses.any() else (longest, None)


def _candidates(units: Units) -> list[Period]:
    """The divisions that one kind of unit makes, where they are regular and cover enough of the sequence."""
    if len(units) < 2:
        return []
    events = np.append(0, np.cumsum(units.size))
    crossed = np.append(np.int32(0), np.cumsum(units.crosses, dtype=np.int32))
    order = np.argsort(units.token, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(units.token[order])) + 1)
    groups.append(np.flatnonzero(units.main))
    found = (_judged(at, events, crossed) for at in groups if len(at) > 1)
    return [period for period in found if period is not None]


def _judged(at: Integers, events: Integers, crossed: Numbers) -> Period | None:
    sizes = np.diff(events[at])
    size = float(np.median(sizes))
    total = int(events[-1])
    # With two places there is one period to see; the rest of the sequence must be about one more.
    if size < 2 or total < 1.8 * size:
        return None
    regular = np.abs(sizes - size) <= max(2.0, _TOLERANCE * size)
    if regular.mean() < _SHARE or sizes[regular].sum() < _COVER * total:
        return None
    crossing = float((np.diff(crossed[at])[regular] > 0).mean())
    return Period(at, sizes, size, regular, crossing)


def _longest(periods: list[Period]) -> Period | None:
    """The longest, but a kind of unit that comes three times by chance does not make a period."""
    often = [period for period in periods if period.count > 3] or periods
    return max(often, key=lambda period: (period.size, period.count), default=None)


def _whole(units: Units, periods: list[Period]) -> Period:
    """The shortest, unless its irregular periods are regular ones with a head on."""
    shortest = min(period.size for period in periods)
    alike = [period for period in periods if period.size <= 1.15 * shortest]
    chosen = max(alike, key=lambda period: (period.whole, period.count))
    longer = [period for period in periods if period.size > 1.8 * chosen.size and period.count > 2]
    if longer and _has_heads(units, chosen, min(longer, key=lambda period: period.size)):
        return _whole(units, longer)
    return chosen


def _has_heads(units: Units, inner: Period, outer: Period) -> bool:
    """Whether each outer period has one inner one that holds all that the others hold, and something more.

    Grids count: a prompt among decode steps may run the same kernels, but not of the same size.
    """
    odd = np.flatnonzero(~inner.regular & (inner.sizes > inner.size))
    if abs(len(odd) - outer.count) > 1 + 0.2 * outer.count:
        return False
    normal = np.flatnonzero(inner.regular)
    always = units.shapes(inner.at[normal[0]], inner.at[normal[0] + 1])
    for place in normal[1:_MOST_IN_GROUP]:
        always &= units.shapes(inner.at[place], inner.at[place + 1])
    held = [always <= units.shapes(inner.at[place], inner.at[place + 1]) for place in odd.tolist()]
    return float(np.mean(held)) >= _CROSSING and float(np.median(inner.sizes[odd])) <= 2.5 * inner.size


def beginnings(units: Units, period: Period) -> Integers:
    """Where in each period the step begins: where the pause before a unit is longest in the median over all periods.

    A place is told by two units in a row that come once in each period: it lies between them or after them. After them,
    because the next step may begin with something else, as the first decode step after a prompt does.
    """
    low, high = int(period.at[0]) + 1, int(period.at[-1]) + 1
    pairs = units.pairs()
    number = np.repeat(np.arange(1, period.count, dtype=np.int32), np.diff(period.at))
    order = np.argsort(pairs[low - 1 : high - 1], kind="stable").astype(np.int32)
    inside = pairs[low - 1 : high - 1][order]
    first = np.flatnonzero(np.append(True, inside[1:] != inside[:-1]))
    ends = np.append(first[1:], len(inside))
    distinct, times = inside[first], ends - first
    del inside
    periods = period.count - 1
    found: list[tuple[float, int, int, int]] = []
    for candidate in np.flatnonzero((times >= 0.8 * periods) & (times <= periods)).tolist():
        places = order[ends[candidate] - times[candidate] : ends[candidate]]
        if len(np.unique(number[places])) < len(places):
            continue
        for later in (0, 1):
            behind = places.astype(np.int64) + low + later
            # Behind the last unit nothing waits.
            pause = units.pause[np.minimum(behind, len(units) - 1)] * (behind < len(units))
            usual = float(np.median(pause))
            found.append((usual, int(times[candidate]), int(distinct[candidate]), later))
    if not found:
        return period.at
    # Two places beside the same pause differ little in its length: the one that more periods have is taken.
    enough = 0.8 * max(usual for usual, *_ in found)
    *_, pair, later = max((one for one in found if one[0] >= enough), key=lambda one: (one[1], one[0]))
    begin = np.flatnonzero(pairs == pair) + 1 + later
    return begin[begin < len(units)]


def by_pauses(units: Units) -> Integers | None:
    """Where steps begin if only layers repeat: at every n-th time that one unit follows another, after a long pause.

    At least four steps must show it, and nearly all of them, and hardly any other place: chance does not do that. Of
    several such pairs of units the one with the longest pauses is taken, so the step begins at its first launch.
    """
    pairs = units.pairs()
    order = np.argsort(pairs, kind="stable")
    groups = np.split(order + 1, np.flatnonzero(np.diff(pairs[order])) + 1)
    best: tuple[float, Integers] | None = None
    for places in groups:
        if 8 <= len(places) <= _MOST_PERIODS and (every := _long_ones(units.pause[places])) is not None:
            pause = float(np.median(units.pause[places[every]]))
            if best is None or pause > best[0]:
                best = pause, places[every]
    return None if best is None else best[1]


def _long_ones(pause: Integers) -> slice | None:
    """Every n-th pause, if those stand out from the others."""
    count = len(pause)
    ordered = np.sort(pause)
    for together in range(2, min(count // 4, _MOST_IN_GROUP) + 1):
        long = count // together
        if ordered[-max(int(0.8 * long), 1)] <= 1.5 * ordered[int(0.95 * (count - long)) - 1]:
            continue
        usual = np.percentile(pause[: long * together].reshape(long, together), 20, axis=0)
        offset = int(np.argmax(usual))
        others = np.ones(count, bool)
        others[offset::together] = False
        if usual[offset] > 1.5 * np.percentile(pause[others], 95):
            return slice(offset, None, together)
    return None
