"""Spans written as two events, where one begins (B) and where it ends (E): matched like brackets, on each thread.

They stand in the file in order of time, so only what is open has to be remembered. Where a file is read in parts, what
a part leaves open is closed by the ends that the next one has too many of.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from sublight.trace.kineto import Batch, Event

Thread = tuple[int | str, int | str]


class Half(msgspec.Struct, frozen=True):
    """A beginning without its end, or an end without its beginning."""

    event: Event
    at_ns: int


class Pairs:
    """What is open so far on each thread, and ends that closed nothing."""

    def __init__(self) -> None:
        self._open: dict[Thread, list[Half]] = {}
        self.ends: list[Half] = []

    @property
    def opened(self) -> list[Half]:
        return [half for halves in self._open.values() for half in halves]

    def add(self, batch: Batch) -> Batch:
        """Take in the beginnings and ends of some events; the spans that are whole now."""
        halves = (
            Half(event, at)
            for event, at in zip(batch.events, batch.start.tolist(), strict=True)
            if event.ph in ("B", "E")
        )
        return self._matched(halves)

    def join(self, ends: Iterable[Half], opened: Iterable[Half]) -> Batch:
        """Take in what the next part of the file left over; the spans that are whole now."""
        return self._matched((*ends, *opened))

    def _matched(self, halves: Iterable[Half]) -> Batch:
        events, starts, stops = [], [], []
        for half in halves:
            event = half.event
            open_here = self._open.setdefault((event.pid, event.tid), [])
            if event.ph == "B":
                open_here.append(half)
            elif open_here:
                begun = open_here.pop()
                first = begun.event
                events.append(Event("X", first.cat, first.name, first.pid, first.tid, first.args))
                starts.append(begun.at_ns)
                stops.append(half.at_ns)
            else:
                self.ends.append(half)
        start = np.array(starts, np.int64)
        return Batch(events, start, np.array(stops, np.int64) - start, [])
