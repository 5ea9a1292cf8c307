"""Small traces put together by hand, in whole nanoseconds that can be added up in the head."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from sublight.trace.events import Calls, GpuEvents, Kind, Lane, Launch, Origin, Spans, Thread, Trace

KINDS = {"Memcpy": Kind.MEMCPY, "Memset": Kind.MEMSET, "CUDA graph": Kind.GRAPH}
TO_DEVICE = "Memcpy HtoD (Pinned -> Device)"
TO_HOST = "Memcpy DtoH (Device -> Pinned)"
Grid = tuple[int, int, int]
Value = TypeVar("Value")


@dataclass
class Small:
    """A trace under construction. What is launched without `call` has no call in the trace."""

    gpu: list[tuple[int, int, str, Lane, int, Launch]] = field(default_factory=list)
    calls: list[tuple[int, int, str, int]] = field(default_factory=list)
    marks: list[tuple[int, int, str]] = field(default_factory=list)
    gpu_marks: list[tuple[int, int, str, Lane]] = field(default_factory=list)
    correlation: int = 0

    def run(
        self,
        start: int,
        duration: int,
        name: str = "k",
        *,
        stream: int = 7,
        device: int = 0,
        process: str = "",
        correlation: int = 0,
        grid: Grid | None = (4, 1, 1),
    ) -> int:
        """Something on the GPU; gives the time it ends. Memcpy, Memset and whole graphs are told by their names."""
        self.gpu.append((start, duration, name, Lane(device, stream, process), correlation, Launch(grid=grid)))
        return start + duration

    def launched(
        self, start: int, duration: int, name: str = "k", *, ahead: int = 100, takes: int = 10, **on: Any
    ) -> int:
        """The same with the call that launched it, which began `ahead` before the start."""
        self.correlation += 1
        self.call(max(start - ahead, 0), takes, "cudaLaunchKernel", self.correlation)
        return self.run(start, duration, name, correlation=self.correlation, **on)

    def graph(
        self,
        start: int,
        nodes: Sequence[tuple[int, int, str]],
        *,
        ahead: int = 100,
        takes: int = 10,
        call: bool = True,
        **on: Any,
    ) -> int:
        """A replay: nodes as (start after the replay's start, duration, name), all with the launch's correlation."""
        self.correlation += 1
        if call:
            self.call(max(start - ahead, 0), takes, "cudaGraphLaunch", self.correlation)
        return max(self.run(start + at, took, name, correlation=self.correlation, **on) for at, took, name in nodes)

    def call(self, start: int, duration: int, name: str, correlation: int = 0) -> None:
        self.calls.append((start, duration, name, correlation))

    def mark(self, start: int, duration: int, name: str) -> None:
        self.marks.append((start, duration, name))

    def gpu_mark(self, start: int, duration: int, name: str, stream: int = 7, device: int = 0) -> None:
        self.gpu_marks.append((start, duration, name, Lane(device, stream)))

    def trace(self) -> Trace:
        gpu = sorted(self.gpu, key=lambda row: row[0])
        names, name = _table([row[2] for row in gpu])
        lanes, lane = _table([row[3] for row in gpu])
        launches, launch = _table([row[5] for row in gpu])
        kind = [next((kind for text, kind in KINDS.items() if row[2].startswith(text)), Kind.KERNEL) for row in gpu]
        return Trace(
            gpu=GpuEvents(
                start=np.array([row[0] for row in gpu], np.int64),
                duration=np.array([row[1] for row in gpu], np.int64),
                name=name,
                kind=np.array(kind, np.uint8),
                lane=lane,
                correlation=np.array([row[4] for row in gpu], np.uint32),
                node=np.zeros(len(gpu), np.uint8),
                launch=launch,
                names=names,
                lanes=lanes,
                nodes=(None,),
                launches=launches,
            ),
            calls=_calls(self.calls),
            ops=_spans([], Thread("1", "1")),
            marks=_spans(self.marks, Thread("1", "1")),
            gpu_marks=_spans(self.gpu_marks, None),
            python=None,
            counts={},
            origin=Origin("by hand", "Kineto JSON", "", 0),
            devices=(),
            rank=None,
            world_size=None,
            base_time_ns=0,
            window=None,
            name="",
            schema_version=None,
            process_names={},
            versions={},
            repairs=(),
        )


def stripped(trace: Trace) -> Trace:
    """The trace without annotations and operators."""
    nothing = _spans([], Thread("1", "1"))
    return replace(trace, ops=nothing, marks=nothing, gpu_marks=nothing)


def joined(*traces: Trace, gap: int) -> Trace:
    """Traces one after the other on one time line, `gap` between them, with correlations that stay apart."""
    small = Small()
    now, used = 0, 0
    for trace in traces:
        gpu = trace.gpu
        shift = now - int(gpu.start[0])
        for place in range(len(gpu)):
            small.gpu.append(
                (
                    int(gpu.start[place]) + shift,
                    int(gpu.duration[place]),
                    gpu.names[gpu.name[place]],
                    gpu.lanes[gpu.lane[place]],
                    int(gpu.correlation[place]) + used,
                    gpu.launches[gpu.launch[place]],
                )
            )
        calls = trace.calls
        for place in range(len(calls)):
            correlation = int(calls.correlation[place]) + used
            name = calls.names[calls.name[place]]
            small.calls.append((int(calls.start[place]) + shift, int(calls.duration[place]), name, correlation))
        now = int(gpu.end.max()) + shift + gap
        used += int(max(gpu.correlation.max(initial=0), calls.correlation.max(initial=0))) + 1
    return small.trace()


def _table(values: list[Value]) -> tuple[tuple[Value, ...], Any]:
    table = tuple(dict.fromkeys(values))
    numbers = {value: number for number, value in enumerate(table)}
    return table, np.array([numbers[value] for value in values], np.min_scalar_type(max(len(table), 1)))


def _calls(rows: list[tuple[int, int, str, int]]) -> Calls:
    rows = sorted(rows)
    names, name = _table([row[2] for row in rows])
    return Calls(
        start=np.array([row[0] for row in rows], np.int64),
        duration=np.array([row[1] for row in rows], np.int64),
        name=name,
        place=np.zeros(len(rows), np.uint8),
        external=np.zeros(len(rows), np.uint8),
        names=names,
        places=(Thread("1", "1"),),
        correlation=np.array([row[3] for row in rows], np.uint32),
    )


def _spans(rows: Sequence[tuple[Any, ...]], place: Thread | None) -> Spans:
    rows = sorted(rows, key=lambda row: row[:2])
    names, name = _table([row[2] for row in rows])
    places, at = _table([place or row[3] for row in rows])
    return Spans(
        start=np.array([row[0] for row in rows], np.int64),
        duration=np.array([row[1] for row in rows], np.int64),
        name=name,
        place=at,
        external=np.zeros(len(rows), np.uint8),
        names=names,
        places=places,
    )
