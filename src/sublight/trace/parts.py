"""Reading a large plain file in several processes.

Where a part may begin is a guess: the next place that looks like the text between two events. It is proven when the
part before it, which began at an event, ends there between two events. So the parts are proven from the first to the
last; at the first that is not, the rest of the file is read again from its beginning, here. A wrong guess, a worker
that dies, or a machine that starts none costs time and changes nothing in the result.
"""

import os
from pathlib import Path

import msgspec

from sublight.trace.collect import Collector
from sublight.trace.eventlist import EventList
from sublight.trace.outline import Outline
from sublight.trace.repairs import RepairLog
from sublight.trace.source import Source
from sublight.trace.worker import Part, Worker, read_part

PART_BYTES = 100_000_000
_MOST_PROCESSES = 4
_SEARCHED_BYTES = 1 << 22


class Parts:
    """The cuts of one file; false where one process does as well.

    Args:
        source: the file.
        outline: of the file, read up to its events.
        events: the list of events, not yet read.
        part_bytes: how much text is worth a process of its own.
        operators: keep the operators.
        python: keep the Python functions too.
    """

    def __init__(
        self,
        source: Source,
        outline: Outline,
        events: EventList,
        part_bytes: int,
        *,
        operators: bool,
        python: bool,
    ) -> None:
        self._operators, self._python = operators, python
        self._parts: list[Part] = []
        path, size = source.plain_path, source.disk_bytes
        if path is None or size is None or path.is_fifo():
            return
        first = outline.window.offset
        count = min(_MOST_PROCESSES, _cores(), (size - first) // part_bytes)
        if count < 2:
            return
        events.learn()
        starts = [first]
        for number in range(1, count):
            start = _event_after(path, first + (size - first) * number // count, events.separator)
            if start is not None and start > starts[-1]:
                starts.append(start)
        stops: list[int | None] = [*starts[1:], None]
        self._parts = [
            Part(
                path=str(path.resolve()),
                start=start,
                stop=stop,
                separator=events.separator,
                bare=outline.bare,
                block_bytes=source.block_bytes,
                python=python,
                operators=operators,
            )
            for start, stop in zip(starts, stops, strict=True)
        ]

    def __bool__(self) -> bool:
        return len(self._parts) > 1

    def read(self, outline: Outline) -> tuple[Collector, int]:
        """Read them all. The outline learns what follows the events; the number is how many processes were used."""
        workers: list[Worker] = []
        try:
            for part in self._parts[1:]:
                try:
                    workers.append(Worker(part))
                except OSError:
                    break
            return self._joined(outline, workers)
        finally:
            for worker in workers:
                worker.stop()

    def _joined(self, outline: Outline, workers: list[Worker]) -> tuple[Collector, int]:
        collector = self._collector()
        _, proven = read_part(self._parts[0], collector)
        if not proven:
            collector = self._collector()
            self._read_the_rest(0, collector, outline)
            return collector, 1
        for number, part in enumerate(self._parts[1:], 1):
            findings = workers[number - 1].result(collector) if number <= len(workers) else None
            if findings is None:
                self._read_the_rest(number, collector, outline)
                return collector, number
            if part.stop is None:
                outline.adopt(findings.members, findings.whole, findings.broken, findings.end, findings.cut_at)
        return collector, len(self._parts)

    def _collector(self) -> Collector:
        return Collector(RepairLog(), operators=self._operators, python=self._python)

    def _read_the_rest(self, number: int, collector: Collector, outline: Outline) -> None:
        last, _ = read_part(msgspec.structs.replace(self._parts[number], stop=None), collector)
        outline.adopt(last.members, last.whole, last.broken, last.end, last.cut_at)


def _event_after(path: Path, offset: int, separator: bytes) -> int | None:
    """Where the first event after `offset` seems to begin."""
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        text = file.read(_SEARCHED_BYTES)
    at = text.find(separator)
    return None if at < 0 else offset + at + len(separator) - 1


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
