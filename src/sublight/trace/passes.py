"""Passes without a graph between graph replays, where nothing else in the trace marks their beginnings.

An engine falls out of its CUDA graph for a step or two and launches the same kernels one by one. If each step copies
something or samples outside the graph, that marks the steps. If the graph holds all of a step, such passes look like a
long tail of the step before: then its usual length says where they begin, and the order of their kernels, which repeats
from pass to pass, how many there are. What does not repeat stays one pass.
"""

import numpy as np
import numpy.typing as npt

from sublight.trace.period import Units
from sublight.trace.timeline import Integers

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
    for place in np.flatnonzero(by_graph).tolist():
        first, end = int(begin[place]) + 1 + tail, int(begin[place + 1])
        if first < end and (about := float(events[end] - events[first]) / usual) > _LEAST:
            found.append(_passes(units.token[first:end], about) + first)
    return np.unique(np.concatenate(found))


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
