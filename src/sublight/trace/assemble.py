"""From collected tables to a trace: numbers to names, rows in order of time."""

import re
from collections.abc import Hashable
from typing import Any, TypeVar

import numpy as np

from sublight.trace.collect import Collector, LaunchKey
from sublight.trace.events import Calls, Collective, GpuEvents, Lane, Launch, Node, Spans, Thread
from sublight.trace.tables import Column, Table, narrowed, sort_by_start

# Merged files put the rank before the process number: "[TP00-DP01] 4711".
_MERGED = re.compile(r"\s*(\[.*\]\s*|.*\S\s+)(-?\d+)\s*")

Value = TypeVar("Value", bound=Hashable)


def gpu_events(collector: Collector) -> GpuEvents:
    """The table of kernels, copies and memsets; the collector's own is given up."""
    table = collector.gpu
    lanes, lane_of = distinct([_lane(key) for key in table.numbering["lane"]])
    columns = sorted_columns(table, {"lane": lane_of})
    return GpuEvents(
        **columns,
        names=_strings(table, "name"),
        lanes=tuple(lanes),
        nodes=tuple(None if key is None else Node(*key) for key in table.numbering["node"]),
        launches=tuple(_launch(key) for key in table.numbering["launch"]),
    )


def spans(table: Table, *, on_gpu: bool = False) -> Spans:
    """A table of spans; the one it is made of is given up."""
    return Spans(**_span_fields(table, on_gpu=on_gpu))


def calls(table: Table) -> Calls:
    """The table of runtime calls; the one it is made of is given up."""
    return Calls(**_span_fields(table, on_gpu=False))


def _span_fields(table: Table, *, on_gpu: bool) -> dict[str, Any]:
    keys = table.numbering["place"]
    places, place_of = distinct([_lane(key) if on_gpu else _thread(key) for key in keys])
    return {**sorted_columns(table, {"place": place_of}), "names": _strings(table, "name"), "places": tuple(places)}


def sorted_columns(table: Table, translated: dict[str, Column]) -> dict[str, Column]:
    """The columns of a table in the order of their starts, some with other numbers; the table gives them up."""
    columns = {name: table.take(name) for name in table.names}
    for name, numbers in translated.items():
        columns[name] = numbers[columns[name]] if len(columns[name]) else columns[name]
    sort_by_start(columns)
    return columns


def _strings(table: Table, name: str) -> tuple[str, ...]:
    return tuple(str(key) for key in table.numbering[name])


def distinct(values: list[Value]) -> tuple[list[Value], Column]:
    """The different values, and for each the number of its value: two pids may be one lane."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(numbers), narrowed(np.array([numbers[value] for value in values], np.int64))


def _lane(key: Any) -> Lane:
    """The stream of a GPU row: its arguments say it; without them, process is device and thread is stream."""
    pid, tid, device, stream = key
    process, pid_number = _process(pid)
    tid_number = tid if isinstance(tid, int) else _process(tid)[1]
    return Lane(
        device if device is not None else -1 if pid_number is None else pid_number,
        stream if stream is not None else -1 if tid_number is None else tid_number,
        process,
    )


def _thread(key: Any) -> Thread:
    pid, tid, _, _ = key
    process, number = _process(pid)
    return Thread(str(pid) if number is None else str(number), str(tid), process)


def _process(pid: int | str) -> tuple[str, int | None]:
    """The label in front of a process number, where a merge of several files put one."""
    if isinstance(pid, int):
        return "", pid
    if pid.strip().lstrip("-").isdecimal():
        return "", int(pid)
    match = _MERGED.fullmatch(pid)
    return (match[1].strip(), int(match[2])) if match else (pid, None)


def _launch(key: LaunchKey) -> Launch:
    grid, block, registers, shared_memory, moved, spoken = key
    return Launch(grid, block, registers, shared_memory, moved, Collective(*spoken) if spoken else None)
