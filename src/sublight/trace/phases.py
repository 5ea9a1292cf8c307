"""What sort of step each one is, and which differ from the others of their sort.

Decided from the kernels. Prefill shows in the grids: a prompt of hundreds of tokens gives norms, copies and activations
hundreds of blocks, where decode gives one block a request. A step that replays a CUDA graph is a decode step in any
case, because engines replay hardly anything else as a whole and large batches are wide too; only beside narrow replays
is a wide one prefill. Where grids are not known the names of kernels count, as hints and no more: makers call attention
kernels "prefill" also where they decode.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from sublight.trace.events import Kind, Trace
from sublight.trace.timeline import Integers, Stretch, Timeline

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.float32]  # whole numbers, which these hold exactly up to 16 million
_BINS = 128
_WIDE_BLOCKS, _WIDE_SHARE = 512, 0.25
_PROMPT_LEVEL = (
    2.5  # a prompt has so many powers of two more blocks per kernel than decode: more than a larger batch has
)
_DEVIATIONS, _LEAST_DEVIATION = 5, 0.01
_LOOSE_EVENTS = 2  # copies of an overlapped scheduler fall on either side of a boundary


class Phase(StrEnum):
    DECODE = "decode"
    PREFILL = "prefill"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Features:
    """One value, or one row, per step.

    Attributes:
        kernels: how many kernels, whole graphs included.
        graph: how many of its events came from its largest graph replay.
        replayed: whether that is at least half of them.
        names, shapes: how often each name, and each name with its grid, ran; in bins, so that steps can be compared.
        wide: the share of the kernels with many blocks; NaN where grids are not known.
        level: the mean of the logarithm of the number of blocks.
        hint: more names that say prefill (above zero) or decode (below).
        wall: from start to start.
    """

    kernels: Integers
    graph: Integers
    replayed: npt.NDArray[np.bool_]
    names: Counts
    shapes: Counts
    wide: Floats
    level: Floats
    hint: Integers
    wall: Integers


def features(line: Timeline, starts: Integers) -> Features:
    """The features of the steps between `starts`, which are places in the timeline; one fewer than places."""
    sums = _Sums(line, len(starts) - 1)
    for stretch in line.windows(int(starts[0]), int(starts[-1])):
        places = np.arange(stretch.first, stretch.first + len(stretch))
        sums.add(stretch, np.searchsorted(starts, places, side="right") - 1)
    enough = sums.known >= 0.5 * sums.kernels
    share = np.where(enough, 1 / np.maximum(sums.known, 1), np.nan)
    graph = sums.largest_replay()
    return Features(
        kernels=sums.kernels.astype(np.int64),
        graph=graph,
        replayed=(sums.graphs > 0) | (2 * graph >= np.diff(starts)),
        names=sums.names,
        shapes=sums.shapes,
        wide=sums.wide * share,
        level=sums.level * share,
        hint=sums.hint.astype(np.int64),
        wall=np.diff(line.times(starts)),
    )


class _Sums:
    """What is added up over the events of each step, stretch by stretch."""

    def __init__(self, line: Timeline, steps: int) -> None:
        self._gpu = line.trace.gpu
        self._grid, self._blocks = _grids(line.trace)
        self._width = int(self._grid.max(initial=0)) + 1
        self._hints = _hints(self._gpu.names)
        self.kernels, self.graphs, self.known, self.wide, self.level, self.hint = np.zeros((6, steps))
        self.names, self.shapes = np.zeros((2, steps, _BINS), np.float32)
        # Of each replay, the events and the step that it begins in.
        self._events = np.zeros(line.replays + 1, np.int32)
        self._step = np.full(line.replays + 1, -1, np.int32)

    def add(self, line: Stretch, step: Integers) -> None:
        """More events, and the step of each."""
        gpu, first = self._gpu, int(step[0])
        name, kind = gpu.name[line.rows].astype(np.int64), gpu.kind[line.rows]
        grid, blocks = self._grid[gpu.launch[line.rows]], self._blocks[gpu.launch[line.rows]]
        whole_graph = np.equal(kind, Kind.GRAPH)
        kernel = np.equal(kind, Kind.KERNEL) | whole_graph
        with_grid = kernel & (blocks > 0)
        here = slice(first, int(step[-1]) + 1)
        step = step - first
        for sums, weights in (
            (self.kernels, kernel),
            (self.graphs, whole_graph),
            (self.known, with_grid),
            (self.wide, with_grid & (blocks >= _WIDE_BLOCKS)),
            (self.level, np.where(with_grid, np.log2(np.maximum(blocks, 1)), 0)),
            (self.hint, self._hints[name]),
        ):
            sums[here] += np.bincount(step, weights)
        count = int(step[-1]) + 1
        self.names[here] += _bins(step, name, kernel, count)
        self.shapes[here] += _bins(step, name * self._width + grid, kernel, count)
        replays, at, events = np.unique(line.replay, return_index=True, return_counts=True)
        self._events[replays] += events.astype(np.int32)
        fresh = self._step[replays] < 0
        self._step[replays[fresh]] = first + step[at[fresh]]

    def largest_replay(self) -> Integers:
        """The events of the largest replay that each step begins."""
        largest = np.zeros(len(self.kernels), np.int64)
        begun = np.flatnonzero(self._step[1:] >= 0) + 1
        np.maximum.at(largest, self._step[begun], self._events[begun])
        return largest


def phases(found: Features) -> list[Phase]:
    """The phase of each step."""
    narrow = np.isnan(found.wide) | (found.wide < _WIDE_SHARE)
    # What decode steps look like: narrow replays if there are any, else replays, else the narrow ones.
    choices = (found.replayed & narrow, found.replayed, narrow)
    sure = next((choice for choice in choices if choice.any()), narrow)
    usual_kernels = float(np.median(found.kernels))
    usual_shapes = np.median(found.shapes[sure], axis=0) if sure.any() else np.zeros(_BINS)
    usual_level = float(np.median(found.level[sure])) if sure.any() else np.inf
    result = []
    for place in range(len(found.kernels)):
        alike = _differing(found.shapes[place], usual_shapes) <= 0.25
        if found.replayed[place] and (narrow[place] or sure[place]):
            result.append(Phase.DECODE)
        elif found.kernels[place] < 0.2 * usual_kernels:
            result.append(Phase.OTHER)
        elif np.isnan(found.wide[place]):
            result.append(_by_hint(int(found.hint[place]), same=alike and bool(found.replayed.any())))
        elif not narrow[place] or (not alike and found.level[place] > usual_level + _PROMPT_LEVEL):
            result.append(Phase.PREFILL)
        else:
            result.append(Phase.DECODE)
    return result


def flags(found: Features, phase: list[Phase], captured: npt.NDArray[np.bool_]) -> list[tuple[str, ...]]:
    """Why a step differs from the others of its phase; nothing where it does not."""
    result: list[list[str]] = [[] for _ in phase]
    for sort in dict.fromkeys(phase):
        steps = np.array([place for place, its in enumerate(phase) if its is sort])
        for place, reasons in zip(steps.tolist(), _differences(found, steps), strict=True):
            result[place] += reasons
            if captured[place]:
                result[place].append("the engine recorded a CUDA graph meanwhile")
        alike = np.array([place for place in steps.tolist() if not result[place]], np.int64)
        if len(alike) >= 5:
            wall = found.wall[alike]
            middle = float(np.median(wall))
            deviation = max(1.4826 * float(np.median(np.abs(wall - middle))), _LEAST_DEVIATION * middle)
            for place in alike[np.abs(wall - middle) > _DEVIATIONS * deviation].tolist():
                word = "longer" if found.wall[place] > middle else "shorter"
                result[place].append(
                    f"{abs(float(found.wall[place]) - middle) / 1e6:.3f} ms {word} than the median of such steps "
                    f"({abs(float(found.wall[place]) - middle) / deviation:.0f} robust deviations)"
                )
    return [tuple(reasons) for reasons in result]


def _differences(found: Features, steps: Integers) -> list[list[str]]:
    """Each step beside the commonest sort: the commonest graph, of these the commonest count, of these the names.

    One after the other, so that what all are compared with is one sort of step and no mixture of two.
    """
    replayed = 2 * found.replayed[steps].sum() >= len(steps)
    usual = steps[found.replayed[steps] == replayed]
    graph, usual = _commonest(found.graph, usual)
    kernels, usual = _commonest(found.kernels, usual)
    names, shapes = _usual(found.names[usual]), _usual(found.shapes[usual])
    result = []
    for place in steps.tolist():
        reasons = []
        count, nodes = int(found.kernels[place]), int(found.graph[place])
        if found.replayed[place] != replayed:
            reasons.append("kernels launched one by one" if replayed else "a graph replay among steps without")
            if kernels and count > 1.5 * kernels:
                reasons.append(
                    f"as many kernels as {count / kernels:.1f} steps: perhaps several that nothing tells apart"
                )
        elif len(steps) < 3:
            pass  # of two that differ none is the odd one
        elif replayed and graph is not None and nodes != graph:
            reasons.append(f"another CUDA graph: {nodes:,} events instead of {graph:,}")
        elif kernels is not None and abs(count - kernels) > (_LOOSE_EVENTS if replayed else 0):
            much, more = abs(count - kernels), "more" if count > kernels else "fewer"
            what = f"{much:,} kernel{'' if much == 1 else 's'} {more} than the others"
            reasons.append(f"{what} ({count:,} instead of {kernels:,})")
        elif (share := _differing(found.names[place], names)) > 0.02 + _LOOSE_EVENTS / max(count, 1):
            reasons.append(f"{share:.0%} other kernels{', another CUDA graph' if replayed else ''}")
        elif (share := _differing(found.shapes[place], shapes)) > 0.1:
            reasons.append(f"other grids for {share:.0%} of the kernels: another batch size")
        result.append(reasons)
    return result


def _commonest(values: Integers, steps: Integers) -> tuple[int | None, Integers]:
    """The value that most of the steps have, and those that have it; None and all steps if no two have the same."""
    distinct, times = np.unique(values[steps], return_counts=True)
    if times.max() < 2:
        return None, steps
    value = int(distinct[np.argmax(times)])
    return value, steps[values[steps] == value]


def _grids(trace: Trace) -> tuple[Integers, Integers]:
    """For each launch a number for its grid, and its blocks; 0 where it is not known."""
    numbers: dict[tuple[int, int, int] | None, int] = {None: 0}
    grid = [numbers.setdefault(launch.grid, len(numbers)) for launch in trace.gpu.launches]
    blocks = [0 if (g := launch.grid) is None else g[0] * g[1] * g[2] for launch in trace.gpu.launches]
    return np.array(grid or [0], np.int64), np.array(blocks or [0], np.int64)


def _bins(step: Integers, key: Integers, counted: npt.NDArray[np.bool_], steps: int) -> Counts:
    """How often each key came in each step, keys thrown into bins: equal steps stay equal, others rarely become so."""
    mixed = (key * 0x9E3779B1 >> 7) % _BINS
    return np.bincount(step * _BINS + mixed, counted, steps * _BINS).astype(np.float32).reshape(steps, _BINS)


def _differing(one: Floats | Counts, usual: Floats | Counts) -> float:
    return float(np.abs(one - usual).sum() / max(float(one.sum() + usual.sum()), 1.0))


def _hints(names: tuple[str, ...]) -> Integers:
    def hint(name: str) -> int:
        low = name.lower()
        if "decode" in low or "paged_mqa" in low or "generation" in low:
            return -1
        return 1 if "prefill" in low or "extend" in low or "context_attention" in low else 0

    return np.array([hint(name) for name in names] or [0], np.int64)


def _by_hint(hint: int, *, same: bool) -> Phase:
    if same or hint < 0:
        return Phase.DECODE
    return Phase.PREFILL if hint > 0 else Phase.OTHER


def _usual(rows: Counts) -> Floats | Counts:
    """The row that comes most often, which is a step that was; only where all differ, the median of each bin."""
    different, times = np.unique(rows, axis=0, return_counts=True)
    usual: Floats | Counts = different[np.argmax(times)] if times.max() > 1 else np.median(rows, axis=0)
    return usual
