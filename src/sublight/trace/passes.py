"""Passes without a graph between graph replays, where nothing else in the trace marks their beginnings.

An engine falls out of its CUDA graph for a step or two and launches the same kernels one by one. If each step copies
something or samples outside the graph, that marks the steps. If the graph holds all of a step, such passes look like a
long tail of the step before: then its usual length says where they begin, and the order of their kernels, which repeats
from pass to pass, how many there are. What does not repeat stays one pass.

Where such passes are as frequent as replays, no length is usual. But they launch the kernels of the graph in the order
of the graph, and what follows them is what follows a replay.
"""

import numpy as np
import numpy.typing as npt

from sublight.trace.period import Units
from sublight.trace.timeline import Integers, Timeline

_LEAST = 0.5  # of a usual step: less is a tail of another sort
_TOLERANCE = 0.1
_ALIKE = 0.9
_MARK = 8  # units by which the beginning of a pass is known again


def with_passes(units: Units, begin: Integers) -> Integers:
    """The units that begin steps, with those that begin passes in what follows a replay and its usual tail.

    Args:
        units: of the device.
        begin: the units that begin steps so far.
    """
    if len(begin) < 3:
        return begin
    events = np.append(0, np.cumsum(units.size))
    sizes, lengths, by_graph = np.diff(events[begin]), np.diff(begin), units.main[begin[:-1]]
    if not by_graph.any():
        return begin
    usual, tail = float(np.median(sizes[by_graph])), int(np.median(lengths[by_graph])) - 1
    found = [begin]
    # The last step that a graph begins ends with the trace, if nothing else comes; a pass may.
    ends = np.append(begin[1:], len(units))
    for place in np.flatnonzero(units.main[begin]).tolist():
        first, end = int(begin[place]) + 1 + tail, int(ends[place])
        if first < end and (about := float(events[end] - events[first]) / usual) > _LEAST:
            found.append(_passes(units.token[first:end], about) + first)
    return np.unique(np.concatenate(found))


def one_by_one(line: Timeline, units: Units, at: Integers) -> Integers | None:
    """The units that begin steps if half of what follows the replays of one graph holds passes of its own kernels.

    Args:
        line: the device.
        units: of it.
        at: the places of their first events in it.
    """
    graphs = np.flatnonzero(units.main)
    if not len(graphs) or graphs[0] + 1 >= len(units) or len(np.unique(units.token[graphs])) > 1:
        return None
    nodes = _nodes(line, int(at[graphs[0]]), int(units.size[graphs[0]]))
    following = int(units.token[graphs[0] + 1])
    found, holding = [graphs], 0
    for low, high in zip(np.append(0, graphs + 1), np.append(graphs, len(units)), strict=True):
        places = _copies(units.token[low:high], nodes, following)
        found.append(np.array(places, np.int64) + low)
        holding += bool(places)
    return np.unique(np.concatenate(found)) if 2 * holding >= max(len(graphs) - 1, 1) else None


def _nodes(line: Timeline, first: int, count: int) -> npt.NDArray[np.int32]:
    """The names of the events of the replay that begins at a place, in order."""
    found: list[npt.NDArray[np.int32]] = []
    missing, replay = count, 0
    for stretch in line.windows(first):
        replay = replay or int(stretch.replay[0])
        rows = stretch.rows[stretch.replay == replay][:missing]
        found.append(line.trace.gpu.name[rows].astype(np.int32))
        missing -= len(rows)
        if not missing:
            break
    return np.concatenate(found)


def _copies(token: npt.NDArray[np.int32], nodes: npt.NDArray[np.int32], following: int) -> list[int]:
    """Where a sequence of units runs through all nodes of a graph and goes on as after a replay."""
    places: list[int] = []
    for place in np.flatnonzero(token[: max(0, len(token) - len(nodes))] == nodes[0]).tolist():
        free = not places or place >= places[-1] + len(nodes)
        if free and token[place + len(nodes)] == following and _same(token[place : place + len(nodes)], nodes):
            places.append(place)
    return places


def _same(token: npt.NDArray[np.int32], nodes: npt.NDArray[np.int32]) -> bool:
    return float(np.mean(token == nodes)) >= _ALIKE


def _passes(token: npt.NDArray[np.int32], about: float) -> Integers:
    """Where about so many passes begin in a sequence of units; only the first if it does not repeat so often."""
    count = round(about)
    if count < 2:
        return np.zeros(1, np.int64)
    usual = len(token) / count
    lags = range(max(1, int((1 - _TOLERANCE) * usual)), int((1 + _TOLERANCE) * usual) + 2)
    same = {lag: float(np.mean(token[lag:] == token[:-lag])) for lag in lags if lag < len(token)}
    lag = max(same, key=lambda one: (same[one], -abs(one - usual)), default=0)
    if not lag or same[lag] < _ALIKE:
        return np.zeros(1, np.int64)
    begins = [0]
    while begins[-1] + 1.5 * lag < len(token):
        begins.append(_again(token, begins[-1] + lag, max(1, int(_TOLERANCE * lag))))
    return np.array(begins, np.int64)


def _again(token: npt.NDArray[np.int32], expected: int, reach: int) -> int:
    """The place nearest to the expected one from which the sequence goes on as it began."""
    near = sorted(range(max(1, expected - reach), expected + reach + 1), key=lambda place: abs(place - expected))
    mark = token[:_MARK]
    return next((at for at in near if np.array_equal(token[at : at + len(mark)], mark)), expected)
