"""Reading one part of a large plain file in a process of its own, and how its tables come back.

The worker is started as a fresh interpreter on this module, not forked: a fork copies locks that other threads hold,
and the spawn of `multiprocessing` runs the caller's main module again. It writes a header and its columns to its
standard output; nothing is pickled.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from sublight.trace.collect import Collector, LaunchKey, NodeKey, Place
from sublight.trace.eventlist import EventList
from sublight.trace.outline import Outline
from sublight.trace.pairs import Half
from sublight.trace.repairs import Repair, RepairLog
from sublight.trace.tables import Column
from sublight.trace.walk import State
from sublight.trace.window import Window

# In front of everything, because a customised interpreter may print something of its own.
_MAGIC = b"sublight trace part\n"
_LENGTH_BYTES = 8


class Part(msgspec.Struct):
    """What to read: the events from byte `start`, which is an event, up to byte `stop`, or to the end of the file."""

    path: str
    start: int
    stop: int | None
    separator: bytes
    bare: bool  # the document is the list alone
    block_bytes: int
    python: bool
    operators: bool = True


class GpuValues(msgspec.Struct):
    name: list[str]
    lane: list[Place]
    node: list[NodeKey]
    launch: list[LaunchKey]


class SpanValues(msgspec.Struct):
    name: list[str]
    place: list[Place]


class Findings(msgspec.Struct):
    """Everything but the columns."""

    proven: bool  # the part ended exactly at `stop`, between two events, or was the last one
    gpu: GpuValues
    spans: dict[str, SpanValues]
    columns: list[tuple[str, str, str, int]]  # table, column, type, length
    counts: list[tuple[str, str, int]]
    process_names: dict[str, str]
    edges: list[tuple[str, int, int]]
    ends: list[Half]
    opened: list[Half]
    repairs: list[Repair]
    members: dict[str, bytes]
    whole: bool
    broken: bool
    end: int
    cut_at: int


def file_blocks(path: str | Path, start: int, stop: int | None, block_bytes: int) -> Iterator[bytes]:
    """The bytes of a file from `start` to `stop`."""
    with Path(path).open("rb", buffering=0) as file:
        file.seek(start)
        left = sys.maxsize if stop is None else stop - start
        while left and (block := file.read(min(block_bytes, left))):
            left -= len(block)
            yield block


def read_part(part: Part, collector: Collector) -> tuple[Outline, bool]:
    """Read it here. The outline knows what follows the events; the other is whether the part ended where it should."""
    window = Window(file_blocks(part.path, part.start, part.stop, part.block_bytes), part.start)
    outline = Outline(window, collector, found=True, bare=part.bare)
    events = EventList(window, collector, part.separator)
    if part.stop is not None:
        return outline, events.read() is State.GOES_ON and events.clean
    outline.through_events(events)
    outline.to_the_end()
    return outline, True


def _findings(collector: Collector, outline: Outline, proven: bool) -> Findings:
    tables = collector.tables
    values = {name: {column: list(keys) for column, keys in table.numbering.items()} for name, table in tables.items()}
    return Findings(
        proven=proven,
        gpu=msgspec.convert(values.pop("gpu"), GpuValues),
        spans=msgspec.convert(values, dict[str, SpanValues]),
        columns=[],
        counts=[(*tag, count) for tag, count in collector.counts.items()],
        process_names=collector.process_names,
        edges=collector.edges,
        ends=collector.pairs.ends,
        opened=collector.pairs.opened,
        repairs=collector.repairs.all(),
        members=outline.members,
        whole=outline.whole,
        broken=outline.broken,
        end=outline.end,
        cut_at=outline.cut_at,
    )


def write_part(part: Part, out: IO[bytes]) -> None:
    """Read it here and write it for `Worker.result`."""
    collector = Collector(RepairLog(), operators=part.operators, python=part.python)
    findings = _findings(collector, *read_part(part, collector))
    columns: list[Column] = []
    for table_name, table in collector.tables.items():
        for name in table.names:
            columns.append(table.take(name))
            findings.columns.append((table_name, name, columns[-1].dtype.str, len(columns[-1])))
    header = msgspec.msgpack.encode(findings)
    out.write(_MAGIC)
    out.write(len(header).to_bytes(_LENGTH_BYTES, "little"))
    out.write(header)
    for column in columns:
        out.write(np.ascontiguousarray(column).data.cast("B") if len(column) else b"")
    out.flush()


class Worker:
    """A process that reads one part."""

    def __init__(self, part: Part) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise OSError("this program is not run by an interpreter that could be started again")
        path = os.pathsep.join(entry for entry in sys.path if entry)
        # -P: the working directory is not where modules come from.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sublight.trace.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(part))
        self._process.stdin.close()

    def result(self, collector: Collector) -> Findings | None:
        """Wait for the part and append it to the tables; None, with the tables as they were, if it failed."""
        stream = self._process.stdout
        assert stream is not None
        marks = {name: table.mark() for name, table in collector.tables.items()}
        try:
            if _exactly(stream, len(_MAGIC)) != _MAGIC:
                return None
            size = int.from_bytes(_exactly(stream, _LENGTH_BYTES), "little")
            findings = msgspec.msgpack.decode(_exactly(stream, size), type=Findings)
            if not findings.proven:
                return None
            _append(stream, findings, collector)
        except (EOFError, msgspec.DecodeError):
            for name, table in collector.tables.items():
                table.back_to(marks[name])
            return None
        finally:
            self.stop()
        for phase, category, count in findings.counts:
            collector.counts[phase, category] += count
        for pid, process in findings.process_names.items():
            collector.process_names.setdefault(pid, process)
        collector.edges.extend(findings.edges)
        collector.join_halves(findings.ends, findings.opened)
        collector.repairs.extend(findings.repairs)
        return findings

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()


def _append(stream: IO[bytes], findings: Findings, collector: Collector) -> None:
    """Read the columns one after the other, so that one of them at a time exists twice."""
    for table_name, name, kind, length in findings.columns:
        table = collector.tables[table_name]
        column = np.empty(length, np.dtype(kind))
        _read_into(stream, column)
        if name in table.numbering:
            values: Any = findings.gpu if table_name == "gpu" else findings.spans[table_name]
            table.add_foreign(name, column, getattr(values, name))
        else:
            table.add_column(name, column)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _read_into(stream: IO[bytes], column: Column) -> None:
    view = column.data.cast("B") if len(column) else memoryview(b"")
    at = 0
    while at < len(view):
        count = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        at += count


if __name__ == "__main__":
    write_part(msgspec.json.decode(sys.stdin.buffer.read(), type=Part), sys.stdout.buffer)
