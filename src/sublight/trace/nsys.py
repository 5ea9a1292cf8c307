"""Reading Nsight Systems exports: the SQLite file that `nsys export --type sqlite` writes.

Rows are taken in portions and sorted here. Numbers of CUDA calls are unique within a process only, and one report may
hold all ranks of a node, so processes are kept apart where there are several.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sublight.errors import InputFileError
from sublight.trace.assemble import distinct, sorted_columns
from sublight.trace.events import Calls, GpuEvents, Kind, Lane, Launch, Node, Origin, Spans, Thread, Trace
from sublight.trace.nsysdb import Database
from sublight.trace.repairs import GRAPHS_ONLY_NOTE, RepairKind, RepairLog
from sublight.trace.source import Source
from sublight.trace.tables import Column, Table, narrowed
from sublight.trace.timing import repaired

_KERNEL, _MEMCPY, _MEMSET, _GRAPH, _RUNTIME, _NVTX = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
)
_CATEGORY = {
    _KERNEL: "kernel",
    _MEMCPY: "gpu_memcpy",
    _MEMSET: "gpu_memset",
    _GRAPH: "cuda_graph",
    _RUNTIME: "cuda_runtime",
    _NVTX: "user_annotation",
}
_PUSH_POP, _START_END = 59, 60
_WHERE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_COPIES = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")


def read_nsys(source: Source, repairs: RepairLog) -> Trace:
    """A trace from an open source.

    Raises:
        InputFileError: the database can not be read, or recorded nothing of CUDA.
    """
    if source.plain_path is None:
        raise InputFileError(
            f"reading the trace {source.name}", "a database can not be read as a stream", "give its path instead"
        )
    with Database(source.plain_path, repairs) as database:
        if not any(table in database.columns for table in (_KERNEL, _GRAPH, _MEMCPY, _MEMSET, _RUNTIME)):
            raise InputFileError(
                f"reading the trace {source.name}",
                f"the database holds no CUDA activity; it has {len(database.columns)} other tables",
                "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node ..., then nsys export --type sqlite",
            )
        return _Reading(database, repairs).trace(source)


class _Reading:
    """One database being read."""

    def __init__(self, database: Database, repairs: RepairLog) -> None:
        self._database = database
        self._repairs = repairs
        self._counts: dict[str, int] = {}
        self._gpu = Table(("start", "duration"), ("kind", "correlation"), ("name", "lane", "node", "launch"))
        self._gpu.numbering["node"][None]
        self._calls = Table(("start", "duration"), ("external", "correlation"), ("name", "place"))
        self._marks = Table(("start", "duration"), ("external",), ("name", "place"))

    def trace(self, source: Source) -> Trace:
        self._read_kernels()
        self._read_moves()
        self._read_graphs()
        self._read_calls()
        self._read_marks()
        processes = {key[0] for key in self._gpu.numbering["lane"]} | {
            _pid(key) for key in self._calls.numbering["place"]
        }
        several = len(processes) > 1
        version = self._database.version()
        trace = Trace(
            gpu=self._gpu_events(several=several),
            calls=Calls(**self._spans(self._calls, several=several)),
            ops=_no_spans(),
            marks=Spans(**self._spans(self._marks, several=several)),
            gpu_marks=_no_spans(),
            python=None,
            counts=self._counts,
            origin=Origin(source.name, "Nsight Systems SQLite", "", source.disk_bytes or 0),
            devices=self._database.devices(),
            rank=None,
            world_size=None,
            base_time_ns=self._database.start_ns(),
            window=self._database.window(),
            name="",
            schema_version=int(version.split(".")[0]) if version.split(".")[0].isdecimal() else None,
            process_names={},
            versions={"nsys export": version} if version else {},
            repairs=(),
        )
        return repaired(trace, self._repairs)

    def _read_kernels(self) -> None:
        shape = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
        more = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId")
        there = self._database.columns.get(_KERNEL, set())
        name = next((column for column in ("demangledName", "shortName", "mangledName") if column in there), "name")
        for rows in self._database.portions(_KERNEL, (*_WHERE, name, *shape, *more)):
            launches = []
            for row in rows:
                grid, block, (registers, static, dynamic) = row[7:10], row[10:13], row[13:16]
                shared = None if static is None and dynamic is None else (static or 0) + (dynamic or 0)
                launches.append((_whole(grid), _whole(block), registers, shared, None))
            self._add_gpu(_KERNEL, Kind.KERNEL, rows, [row[6] for row in rows], [row[16] for row in rows], launches)

    def _read_moves(self) -> None:
        for rows in self._database.portions(_MEMCPY, (*_WHERE, "copyKind", "bytes", "graphNodeId")):
            names = [f"Memcpy {_COPIES[row[6]] if row[6] in range(len(_COPIES)) else ''}".strip() for row in rows]
            launches = [(None, None, None, None, row[7]) for row in rows]
            self._add_gpu(_MEMCPY, Kind.MEMCPY, rows, names, [row[8] for row in rows], launches)
        for rows in self._database.portions(_MEMSET, (*_WHERE, "bytes", "graphNodeId")):
            launches = [(None, None, None, None, row[6]) for row in rows]
            self._add_gpu(_MEMSET, Kind.MEMSET, rows, ["Memset"] * len(rows), [row[7] for row in rows], launches)

    def _read_graphs(self) -> None:
        nothing = (None, None, None, None, None)
        for rows in self._database.portions(_GRAPH, (*_WHERE, "graphId")):
            names = [f"CUDA graph {row[6]}" if row[6] is not None else "CUDA graph" for row in rows]
            self._add_gpu(_GRAPH, Kind.GRAPH, rows, names, [None] * len(rows), [nothing] * len(rows))
            self._repairs.add(
                RepairKind.GRAPHS_ONLY,
                GRAPHS_ONLY_NOTE,
                names[0],
                len(rows),
            )

    def _add_gpu(
        self,
        table: str,
        kind: Kind,
        rows: list[tuple[Any, ...]],
        names: Sequence[int | str],
        nodes: list[Any],
        launches: list[Any],
    ) -> None:
        self._counts[_CATEGORY[table]] = self._counts.get(_CATEGORY[table], 0) + len(rows)
        _add_times(self._gpu, rows)
        self._gpu.add_column("kind", np.full(len(rows), kind, np.uint8))
        self._gpu.add_column("correlation", _numbers([row[4] for row in rows]))
        self._gpu.add_values("name", names)
        self._gpu.add_values("lane", [(_pid(row[5]), row[2], row[3]) for row in rows])
        self._gpu.add_values("node", nodes)
        self._gpu.add_values("launch", launches)

    def _read_calls(self) -> None:
        for rows in self._database.portions(_RUNTIME, ("start", "end", "nameId", "globalTid", "correlationId")):
            self._calls.add_column("correlation", _numbers([row[4] for row in rows]))
            self._add_spans(self._calls, _RUNTIME, rows)

    def _read_marks(self) -> None:
        for portion in self._database.portions(_NVTX, ("start", "end", "textId", "globalTid", "text", "eventType")):
            rows = [row for row in portion if row[5] in (_PUSH_POP, _START_END, None)]
            closed = [row for row in rows if row[0] is not None and row[1] is not None]
            for row in rows:
                if row[1] is None:
                    self._repairs.add(RepairKind.OPEN_RANGE, "NVTX ranges that never end; left out", str(row[4] or ""))
            if closed:
                # The text stands in the row or among the strings, and before 2019 only in the row.
                self._add_spans(self._marks, _NVTX, [(*row[:2], row[4] or row[2], row[3]) for row in closed])

    def _add_spans(self, table: Table, origin: str, rows: list[tuple[Any, ...]]) -> None:
        self._counts[_CATEGORY[origin]] = self._counts.get(_CATEGORY[origin], 0) + len(rows)
        _add_times(table, rows)
        table.add_column("external", np.zeros(len(rows), np.uint8))
        table.add_values("name", [row[2] for row in rows])
        table.add_values("place", [row[3] for row in rows])

    def _gpu_events(self, *, several: bool) -> GpuEvents:
        names, name_of = self._named(self._gpu)
        lanes = [
            Lane(_or(device, -1), _or(stream, -1), f"{pid}" if several else "")
            for pid, device, stream in self._gpu.numbering["lane"]
        ]
        different, lane_of = distinct(lanes)
        launches = [Launch(*key) for key in self._gpu.numbering["launch"]]
        nodes = [None if key is None else Node(int(key)) for key in self._gpu.numbering["node"]]
        columns = sorted_columns(self._gpu, {"name": name_of, "lane": lane_of})
        return GpuEvents(
            **columns, names=tuple(names), lanes=tuple(different), nodes=tuple(nodes), launches=tuple(launches)
        )

    def _spans(self, table: Table, *, several: bool) -> dict[str, Any]:
        names, name_of = self._named(table)
        threads = [
            Thread(str(_pid(key)), str(_tid(key)), f"{_pid(key)}" if several else "")
            for key in table.numbering["place"]
        ]
        places, place_of = distinct(threads)
        columns = sorted_columns(table, {"name": name_of, "place": place_of})
        return {**columns, "names": tuple(names), "places": tuple(places)}

    def _named(self, table: Table) -> tuple[list[str], Column]:
        """The names in words, and the number of each: several strings may say the same."""
        keys = list(table.numbering["name"])
        strings = self._database.strings([key for key in keys if isinstance(key, int)])
        return distinct([_unversioned(_spelt(key, strings)) for key in keys])


def _add_times(table: Table, rows: list[tuple[Any, ...]]) -> None:
    start = np.array([row[0] or 0 for row in rows], np.int64)
    table.add_column("start", start)
    table.add_column("duration", np.array([row[1] or 0 for row in rows], np.int64) - start)


def _numbers(values: list[int | None]) -> Column:
    return narrowed(np.array([value or 0 for value in values], np.int64))


def _whole(sizes: tuple[Any, ...]) -> tuple[int, int, int] | None:
    x, y, z = sizes
    return None if x is None or y is None or z is None else (x, y, z)


def _pid(packed: object) -> int:
    """A global number holds machine, process and thread; 24 bits for either of the last two."""
    return packed >> 24 & 0xFFFFFF if isinstance(packed, int) else 0


def _tid(packed: object) -> int:
    return packed & 0xFFFFFF if isinstance(packed, int) else 0


def _spelt(key: Any, strings: dict[int, str]) -> str:
    """A name from the words themselves, from the number of a string, or from a number that no string has."""
    return key if isinstance(key, str) else "" if key is None else strings.get(key, f"string {key}")


def _or(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def _unversioned(name: str) -> str:
    """cudaLaunchKernel_v7000 and cudaLaunchKernel are one call to everybody else."""
    stem, _, version = name.rpartition("_v")
    return stem if stem.startswith(("cuda", "cu")) and version.isdecimal() else name


def _no_spans() -> Spans:
    times, ids = np.empty(0, np.int64), np.empty(0, np.uint8)
    return Spans(times, times, ids, ids, ids, (), ())
