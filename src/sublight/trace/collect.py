"""Collecting events into tables: which categories are kept, and in which columns.

Category names changed over the years ("Kernel" became "kernel", "Runtime" "cuda_runtime"), and other vendors' runtimes
have their own; all known spellings are in `_TABLE_OF`. A category that is not there is counted and otherwise ignored.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from sublight.trace.events import Kind
from sublight.trace.kineto import Args, Batch, Event
from sublight.trace.pairs import Half, Pairs
from sublight.trace.repairs import RepairKind, RepairLog
from sublight.trace.tables import Table, narrowed

_GPU, _CALLS, _OPS, _MARKS, _GPU_MARKS, _PYTHON, _META, _EDGE = range(1, 9)

WHOLE_GRAPH = "cuda_graph"  # ours: no profiler writes whole graphs as rows of a Chrome trace
GPU_CATEGORIES = ("kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset", WHOLE_GRAPH)
_TABLE_OF: dict[tuple[str, str], int] = {
    **{("X", category): _GPU for category in GPU_CATEGORIES},
    **{("X", category): _CALLS for category in ("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "hip_driver")},
    **{("X", category): _OPS for category in ("cpu_op", "Operator", "operator")},
    ("X", "user_annotation"): _MARKS,
    ("X", "gpu_user_annotation"): _GPU_MARKS,
    **{("X", category): _PYTHON for category in ("python_function", "Python")},
    ("M", ""): _META,
    ("X", "Trace"): _EDGE,
    ("i", ""): _EDGE,
}
_KIND_OF = {
    "gpu_memcpy": Kind.MEMCPY,
    "Memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "Memset": Kind.MEMSET,
    WHOLE_GRAPH: Kind.GRAPH,
}

# Values as they stand in the file. A place is process, thread, device and stream, the last two of GPU rows only.
Place = tuple[int | str, int | str, int | None, int | None]
Spoken = tuple[str, str, int | None, int | None, str, int | None]
LaunchKey = tuple[
    tuple[int, int, int] | None, tuple[int, int, int] | None, int | None, int | None, int | None, Spoken | None
]
NodeKey = tuple[int, int | None] | None


class Collector:
    """The tables of one file, or of one worker's part of it.

    Args:
        repairs: counts what was wrong.
        operators: keep the operators.
        python: keep the Python functions too; there can be far more of them than of anything else.
    """

    def __init__(self, repairs: RepairLog, *, operators: bool = True, python: bool = False) -> None:
        self.python = python
        left_out = {*(() if operators else (_OPS,)), *(() if python else (_PYTHON,))}
        self._table_of = {tag: table for tag, table in _TABLE_OF.items() if table not in left_out}
        self.gpu = Table(("start", "duration"), ("kind", "correlation"), ("name", "lane", "node", "launch"))
        # Number 0 of the nodes is "none", so that a row outside graphs can be seen without the table.
        self.gpu.numbering["node"][None]
        self.calls = Table(("start", "duration"), ("external", "correlation"), ("name", "place"))
        self.ops = Table(("start", "duration"), ("external",), ("name", "place"))
        self.marks = Table(("start", "duration"), ("external",), ("name", "place"))
        self.gpu_marks = Table(("start", "duration"), ("external",), ("name", "place"))
        self.python_calls = Table(("start", "duration"), ("external",), ("name", "place"))
        self.counts: Counter[tuple[str, str]] = Counter()
        self.process_names: dict[str, str] = {}
        self.edges: list[tuple[str, int, int]] = []
        self.repairs = repairs
        self.pairs = Pairs()
        self.failures = 0  # unreadable events in a row, so far

    @property
    def tables(self) -> dict[str, Table]:
        return {
            "gpu": self.gpu,
            "calls": self.calls,
            "ops": self.ops,
            "marks": self.marks,
            "gpu_marks": self.gpu_marks,
            "python": self.python_calls,
        }

    def add(self, batch: Batch) -> None:
        """Take in the next events of the file."""
        met = Counter((event.ph, event.cat) for event in batch.events)
        self.counts.update(met)
        for note, example in batch.bad:
            self.repairs.add(RepairKind.BAD_NUMBER, note, example)
        self._keep(batch)
        if any(phase in ("B", "E") for phase, _ in met):
            self._keep(self.pairs.add(batch))

    def join_halves(self, ends: list[Half], opened: list[Half]) -> None:
        """Take in the spans that lie in two parts of the file, after what is here."""
        self._keep(self.pairs.join(ends, opened))

    def report_halves(self) -> None:
        """At the end of the file: count what would have been kept, had both its events been there."""
        left = [half.event for half in (*self.pairs.opened, *self.pairs.ends)]
        lost = [event for event in left if ("X", event.cat) in self._table_of]
        if lost:
            note = "spans of which only the beginning or the end is there; left out"
            self.repairs.add(RepairKind.OPEN_RANGE, note, lost[0].name, len(lost))

    def _keep(self, batch: Batch) -> None:
        events = batch.events
        tags = [(event.ph, event.cat) for event in events]
        wanted = np.array([self._table_of.get(tag, 0) for tag in tags], np.uint8)
        for table, take in (
            (_GPU, self._add_gpu),
            (_CALLS, self._add_calls),
            (_OPS, self._add_ops),
            (_MARKS, self._add_marks),
            (_GPU_MARKS, self._add_gpu_marks),
            (_PYTHON, self._add_python),
        ):
            rows = np.flatnonzero(wanted == table)
            if len(rows):
                take(batch, rows, [events[row] for row in rows.tolist()])
        for row in np.flatnonzero(wanted >= _META).tolist():
            self._add_other(events[row], int(batch.start[row]), int(batch.duration[row]))

    def _add_gpu(self, batch: Batch, rows: Any, events: list[Event]) -> None:
        args = [event.args for event in events]
        self._add_times(self.gpu, batch, rows)
        self.gpu.add_column("kind", np.array([_KIND_OF.get(event.cat, 0) for event in events], np.uint8))
        self.gpu.add_column("correlation", _numbers([arg.correlation for arg in args]))
        self.gpu.add_values("name", [event.name for event in events])
        self.gpu.add_values("lane", [(e.pid, e.tid, a.device, a.stream) for e, a in zip(events, args, strict=True)])
        self.gpu.add_values("node", [None if arg.node is None else (arg.node, arg.graph) for arg in args])
        self.gpu.add_values(
            "launch",
            [(a.grid, a.block, a.registers, a.shared_memory, a.bytes, a.collective and _spoken(a)) for a in args],
        )

    def _add_calls(self, batch: Batch, rows: Any, events: list[Event]) -> None:
        self.calls.add_column("correlation", _numbers([event.args.correlation for event in events]))
        self._add_spans(self.calls, batch, rows, events)

    def _add_ops(self, batch: Batch, rows: Any, events: list[Event]) -> None:
        self._add_spans(self.ops, batch, rows, events)

    def _add_marks(self, batch: Batch, rows: Any, events: list[Event]) -> None:
        self._add_spans(self.marks, batch, rows, events)

    def _add_gpu_marks(self, batch: Batch, rows: Any, events: list[Event]) -> None:
        places: list[Hashable] = [(e.pid, e.tid, e.args.device, e.args.stream) for e in events]
        self._add_spans(self.gpu_marks, batch, rows, events, places)

    def _add_python(self, batch: Batch, rows: Any, events: list[Event]) -> None:
        self._add_spans(self.python_calls, batch, rows, events)

    def _add_spans(
        self, table: Table, batch: Batch, rows: Any, events: list[Event], places: Sequence[Hashable] | None = None
    ) -> None:
        self._add_times(table, batch, rows)
        table.add_column("external", _numbers([event.args.external for event in events]))
        table.add_values("name", [event.name for event in events])
        table.add_values("place", places or [(event.pid, event.tid, None, None) for event in events])

    @staticmethod
    def _add_times(table: Table, batch: Batch, rows: Any) -> None:
        table.add_column("start", batch.start[rows])
        table.add_column("duration", batch.duration[rows])

    def _add_other(self, event: Event, start: int, duration: int) -> None:
        if event.cat == "Trace" or event.name == "Record Window End":
            self.edges.append((event.name, start, duration))
        elif event.name == "process_name" and event.args.name:
            self.process_names[str(event.pid)] = event.args.name


def _spoken(args: Args) -> Spoken:
    return (
        args.collective or "",
        args.dtype or "",
        args.elements_in,
        args.elements_out,
        args.group or "",
        args.group_size,
    )


def _numbers(values: list[int]) -> Any:
    return narrowed(np.array(values, np.int64))
