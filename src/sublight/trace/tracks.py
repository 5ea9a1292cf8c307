"""Tracks: the lines of a viewer, and which row of a trace is drawn on which.

Perfetto drops a row that begins inside another of its line and ends outside it, which dependent launches and branches
of a graph do all the time: of a split-K GEMM and its reduction, every reduction disappears. So a row of the GPU that
would overlap goes to a line below the one of its stream, and so do the annotations of a stream.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sublight.trace.events import GpuEvents, Lane, Spans, Thread

_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")
_PER_LINE = 1_000_000  # a line's thread number is the stream, and so much more for every line below the first
_ANNOTATIONS = 1000  # the line of a stream that its annotations begin on


class Track:
    """One line.

    Attributes:
        place: the stream or the CPU thread.
        ids: its process and thread as an event has them.
        label: what its process is.
        words: what its thread is.
    """

    def __init__(self, place: Lane | Thread, line: int) -> None:
        self.place = place
        if isinstance(place, Lane):
            # Where several files were merged, their label stands before the number, and is read from there.
            pid: int | str = f"{place.process} {place.device}" if place.process else place.device
            self.ids = {"pid": pid, "tid": place.stream + line * _PER_LINE}
            self.label = f"GPU {place.device}"
            below = "" if not line else ", annotations" if line >= _ANNOTATIONS else ", overlapping"
            self.words = f"stream {place.stream}{below}"
        else:
            number = as_number(place.pid)
            pid = f"{place.process} {number}" if place.process and isinstance(number, int) else number
            self.ids = {"pid": pid, "tid": as_number(place.tid)}
            self.label = "CPU"
            self.words = f"thread {place.tid}"


def tracks_of_rows(gpu: GpuEvents) -> list[Track]:
    """The line of each row of the GPU."""
    return _tracks(gpu.lanes, gpu.lane, lines(gpu.start, gpu.end, gpu.lane))


def tracks_of_spans(spans: Spans) -> list[Track]:
    """The line of each span. On a CPU thread spans lie inside each other, so one line holds them all."""
    on_gpu = any(isinstance(place, Lane) for place in spans.places)
    below = _ANNOTATIONS + lines(spans.start, spans.end, spans.place) if on_gpu else np.zeros(len(spans), np.int64)
    return _tracks(spans.places, spans.place, below)


def lines(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], lane: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """For each row how many lines below the first one of its lane it lies, so that no two rows of a line overlap.

    Args:
        start, end: of rows sorted by start.
        lane: of each row.
    """
    reached: dict[int, list[int]] = {}
    chosen = np.zeros(len(start), np.int64)
    for row, (begin, stop, of_lane) in enumerate(zip(start.tolist(), end.tolist(), lane.tolist(), strict=True)):
        ends = reached.setdefault(of_lane, [])
        line = next((line for line, last in enumerate(ends) if last <= begin), len(ends))
        ends[line : line + 1] = [stop]
        chosen[row] = line
    return chosen


def as_number(text: str) -> int | str:
    """A number where the text is one and comes back as the same text."""
    return int(text) if _NUMBER.fullmatch(text) else text


def _tracks(places: Sequence[Lane | Thread], place: npt.NDArray[Any], line: npt.NDArray[np.int64]) -> list[Track]:
    keys = list(zip(place.tolist(), line.tolist(), strict=True))
    known = {key: Track(places[key[0]], key[1]) for key in dict.fromkeys(keys)}
    return [known[key] for key in keys]
