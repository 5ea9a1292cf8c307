"""A trace in columns.

Times are int64 nanoseconds as the profiler gave them; add `Trace.base_time_ns` for time since 1970. Every other column
holds a small unsigned number that indexes a table beside it (`names[name[i]]`), in the narrowest type that fits: such
numbers are for indexing and comparing, not for arithmetic. Rows are sorted by start; equal starts keep the order of the
file. A GPU event costs about 28 bytes, so a trace of ten million kernels fits a laptop.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.trace.repairs import Repair

Nanoseconds = npt.NDArray[np.int64]
Ids = npt.NDArray[np.unsignedinteger[Any]]


class Kind(IntEnum):
    """What ran on the GPU."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    GRAPH = 3  # a whole CUDA graph as one row: the profiler was not asked for its nodes


class Lane(msgspec.Struct, frozen=True):
    """One stream of one device. `process` is empty unless a file holds several processes."""

    device: int
    stream: int
    process: str = ""


class Thread(msgspec.Struct, frozen=True):
    """One thread of the CPU. `process` is empty unless a file holds several processes."""

    pid: str
    tid: str
    process: str = ""


class Node(msgspec.Struct, frozen=True):
    """The node of a CUDA graph that a kernel ran for; which graph is not always told."""

    node: int
    graph: int | None = None


class Collective(msgspec.Struct, frozen=True):
    """What the process group said about a communication kernel."""

    name: str
    dtype: str = ""
    elements_in: int | None = None
    elements_out: int | None = None
    group: str = ""
    group_size: int | None = None


class Launch(msgspec.Struct, frozen=True):
    """How a kernel was launched, or how much a copy moved. What the profiler did not say is None."""

    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_memory_bytes: int | None = None
    moved_bytes: int | None = None
    collective: Collective | None = None


@dataclass(frozen=True, slots=True)
class GpuEvents:
    """Kernels, copies and memsets of all devices and streams.

    `correlation` is the number of the runtime call that launched the row, 0 where there is none; all kernels of one
    graph launch share it. `node` is 0 for a row that no graph node is known for.
    """

    start: Nanoseconds
    duration: Nanoseconds
    name: Ids
    kind: Ids
    lane: Ids
    correlation: Ids
    node: Ids
    launch: Ids
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    nodes: tuple[Node | None, ...]
    launches: tuple[Launch, ...]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Nanoseconds:
        return self.start + self.duration

    @property
    def device(self) -> npt.NDArray[np.int64]:
        return np.array([lane.device for lane in self.lanes], np.int64)[self.lane]

    @property
    def stream(self) -> npt.NDArray[np.int64]:
        return np.array([lane.stream for lane in self.lanes], np.int64)[self.lane]

    def is_kind(self, kind: Kind) -> npt.NDArray[np.bool_]:
        return np.equal(self.kind, kind)


@dataclass(frozen=True, slots=True)
class Spans:
    """Named stretches of time on CPU threads (`places` are threads) or on streams (`places` are lanes).

    `external` is the profiler's number for the operator that a row belongs to, 0 where there is none.
    """

    start: Nanoseconds
    duration: Nanoseconds
    name: Ids
    place: Ids
    external: Ids
    names: tuple[str, ...]
    places: tuple[Thread | Lane, ...]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Nanoseconds:
        return self.start + self.duration


@dataclass(frozen=True, slots=True)
class Calls(Spans):
    """Calls of the CUDA runtime and driver; `correlation` joins them to the rows of `GpuEvents` they launched."""

    correlation: Ids


class Device(msgspec.Struct, frozen=True):
    """A GPU as the profiler described it."""

    id: int
    name: str
    sms: int | None = None
    memory_bytes: int | None = None
    compute: tuple[int, int] | None = None
    shared_memory_per_block_bytes: int | None = None


class Cut(msgspec.Struct, frozen=True):
    """Where a slice of so many steps was cut out of a longer trace: from the start of the first to that of the next."""

    begin_ns: int
    end_ns: int
    steps: int


class Origin(msgspec.Struct, frozen=True):
    """Where a trace came from."""

    path: str
    form: str  # "Kineto JSON" or "Nsight Systems SQLite"
    compression: str  # "", "gzip", "zstd"
    text_bytes: int  # how much text or database was read
    processes: int = 1  # how many of ours read it


@dataclass(frozen=True, slots=True)
class Trace:
    """One profiler file.

    `counts` is how many events of each category the file holds, before any repair: the category, or the phase letter
    where there is none. Flow events (category "ac2g") are counted and not kept: their number is the correlation.
    `window` is the time in which the profiler says it ran. `cut` is what a slice knows of the trace it was cut out of.
    """

    gpu: GpuEvents
    calls: Calls
    ops: Spans
    marks: Spans
    gpu_marks: Spans
    python: Spans | None
    counts: dict[str, int]
    origin: Origin
    devices: tuple[Device, ...]
    rank: int | None
    world_size: int | None
    base_time_ns: int
    window: tuple[int, int] | None
    name: str
    schema_version: int | None
    process_names: dict[str, str]
    versions: dict[str, str]
    repairs: tuple[Repair, ...]
    cut: Cut | None = None

    @property
    def table_bytes(self) -> int:
        """What the columns take."""
        tables = (self.gpu, self.calls, self.ops, self.marks, self.gpu_marks, *((self.python,) if self.python else ()))
        arrays = (getattr(table, name) for table in tables for name in _array_names(table))
        return sum(array.nbytes for array in arrays)


def _array_names(table: GpuEvents | Spans) -> list[str]:
    names = ("start", "duration", "name", "kind", "lane", "place", "correlation", "node", "launch", "external")
    return [name for name in names if hasattr(table, name)]
