"""A trace as the text of a file: the layout of Kineto, which our reader, Perfetto and chrome://tracing open.

Times are written digit by digit, because decimal microseconds since 1970 do not fit a double to the nanosecond. What a
`Trace` does not keep can not be written: shapes of operators, occupancy, the arguments of calls.

Kineto draws an arrow from a graph launch to every kernel of the graph. Here an arrow ends at the first row that a call
launched: Perfetto takes one end to a beginning, and three thousand arrows from one point hide the trace. Rows that
overlap, and annotations, have lines of their own in a viewer; which stream a row ran on is among its arguments.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from sublight.trace.collect import WHOLE_GRAPH
from sublight.trace.events import Device, GpuEvents, Kind, Lane, Launch, Spans, Trace
from sublight.trace.header import CUT, CUT_KEYS
from sublight.trace.kineto import Args
from sublight.trace.links import call_of
from sublight.trace.tracks import Track, as_number, tracks_of_rows, tracks_of_spans

Event = dict[str, Any]
_KEYS = {field.name: field.encode_name for field in msgspec.structs.fields(Args)}
# A whole graph in one row comes from Nsight Systems; Kineto has no category for it.
_CATEGORY = {
    Kind.KERNEL: "kernel",
    Kind.MEMCPY: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
    Kind.GRAPH: WHOLE_GRAPH,
}
_DRIVER = re.compile(r"cu[A-Z]")
_GPU_SORT = 5_000_000  # Kineto's: GPUs below the CPU


def chrome_text(trace: Trace, name: str) -> bytes:
    """The whole file.

    Args:
        trace: what is to be written.
        name: what the file calls itself.
    """
    members = msgspec.json.encode(_members(trace))
    lines = b",\n".join(map(msgspec.json.encode, _events(trace)))
    return members[:-1] + b',"traceEvents":[\n' + lines + b'\n],"traceName":' + msgspec.json.encode(name) + b"}\n"


def _members(trace: Trace) -> Event:
    version = trace.schema_version if trace.origin.form.startswith("Kineto") else None
    members: Event = {"schemaVersion": 1 if version is None else version, "displayTimeUnit": "ms"}
    members["deviceProperties"] = [_device(device) for device in trace.devices]
    if trace.rank is not None or trace.world_size is not None:
        members["distributedInfo"] = _known({"rank": trace.rank, "world_size": trace.world_size})
    members.update((key, as_number(version)) for key, version in trace.versions.items())
    members["baseTimeNanoseconds"] = trace.base_time_ns
    if trace.cut is not None:
        members[CUT] = dict(zip(CUT_KEYS, msgspec.structs.astuple(trace.cut), strict=True))
    return members


def _device(device: Device) -> Event:
    major, minor = device.compute or (None, None)
    return _known(
        {
            "id": device.id,
            "name": device.name,
            "totalGlobalMem": device.memory_bytes,
            "computeMajor": major,
            "computeMinor": minor,
            "sharedMemPerBlockOptin": device.shared_memory_per_block_bytes,
            "numSms": device.sms,
        }
    )


def _events(trace: Trace) -> Iterator[Event]:
    spans = {
        "user_annotation": trace.marks,
        "cpu_op": trace.ops,
        **({} if trace.python is None else {"python_function": trace.python}),
        "cuda_runtime": trace.calls,
        "gpu_user_annotation": trace.gpu_marks,
    }
    rows_on = tracks_of_rows(trace.gpu)
    spans_on = {category: tracks_of_spans(table) for category, table in spans.items()}
    yield from _names(trace, dict.fromkeys(track for tracks in (*spans_on.values(), rows_on) for track in tracks))
    for category, table in spans.items():
        yield from _spans(table, category, spans_on[category])
    yield from _gpu(trace.gpu, rows_on)
    yield from _arrows(trace, spans_on["cuda_runtime"], rows_on)


def _names(trace: Trace, tracks: Iterable[Track]) -> Iterator[Event]:
    """What viewers call the processes and threads, and in which order they show them."""
    at = _us(int(trace.gpu.start[0]) if len(trace.gpu) else 0)
    named: set[tuple[int | str, ...]] = set()
    for track in tracks:
        pid, tid = track.ids["pid"], track.ids["tid"]
        on_gpu = isinstance(track.place, Lane)
        said: list[tuple[int | str, str, Event]] = [
            (0, "process_name", {"name": trace.process_names.get(str(pid), track.label)}),
            (0, "process_labels", {"labels": track.label}),
            (0, "process_sort_index", {"sort_index": _GPU_SORT if on_gpu else 0}),
            (tid, "thread_name", {"name": track.words}),
        ]
        for thread, name, args in said:
            if (pid, thread, name) not in named:
                named.add((pid, thread, name))
                yield {"ph": "M", "name": name, "pid": pid, "tid": thread, "ts": at, "args": args}


def _spans(table: Spans, category: str, tracks: list[Track]) -> Iterator[Event]:
    correlation = getattr(table, "correlation", np.zeros(len(table), np.uint8))
    columns = (table.start, table.duration, table.name, table.external, correlation)
    for track, start, duration, name, external, number in zip(tracks, *(c.tolist() for c in columns), strict=True):
        place, words = track.place, table.names[name]
        args = _args(external=external or None, correlation=number or None)
        if isinstance(place, Lane):
            args |= _args(device=place.device, stream=place.stream)
        yield _span(
            "cuda_driver" if _DRIVER.match(words) and category == "cuda_runtime" else category,
            words,
            track,
            start,
            duration,
            args,
        )


def _gpu(gpu: GpuEvents, tracks: list[Track]) -> Iterator[Event]:
    launches = {number: _launch(gpu.launches[number]) for number in np.unique(gpu.launch).tolist()}
    columns = (gpu.start, gpu.duration, gpu.name, gpu.kind, gpu.lane, gpu.correlation, gpu.node, gpu.launch)
    for track, row in zip(tracks, zip(*(c.tolist() for c in columns), strict=True), strict=True):
        start, duration, name, kind, lane, number, node_number, launch = row
        place, node = gpu.lanes[lane], gpu.nodes[node_number]
        args = _args(device=place.device, stream=place.stream, correlation=number or None)
        if node is not None:
            args |= _args(graph=node.graph, node=node.node)
        yield _span(_CATEGORY[Kind(kind)], gpu.names[name], track, start, duration, args | launches[launch])


def _launch(launch: Launch) -> Event:
    args = _args(
        registers=launch.registers,
        shared_memory=launch.shared_memory_bytes,
        grid=launch.grid,
        block=launch.block,
        bytes=launch.moved_bytes,
    )
    spoken = launch.collective
    if spoken is not None:
        args |= _args(
            collective=spoken.name,
            dtype=spoken.dtype or None,
            elements_in=spoken.elements_in,
            elements_out=spoken.elements_out,
            group=spoken.group or None,
            group_size=spoken.group_size,
        )
    return args


def _arrows(trace: Trace, calls_on: list[Track], rows_on: list[Track]) -> Iterator[Event]:
    """From each call to the first row that it launched, unless the two clocks have that row begin before the call."""
    gpu, calls = trace.gpu, trace.calls
    launched, first = np.unique(call_of(gpu, calls), return_index=True)
    for call, row in zip(launched.tolist(), first.tolist(), strict=True):
        if call < 0 or gpu.start[row] < calls.start[call]:
            continue
        flow = {"cat": "ac2g", "name": "ac2g", "id": int(calls.correlation[call])}
        yield {"ph": "s", **flow, **calls_on[call].ids, "ts": _us(int(calls.start[call]))}
        yield {"ph": "f", **flow, **rows_on[row].ids, "ts": _us(int(gpu.start[row])), "bp": "e"}


def _span(category: str, name: str, track: Track, start: int, duration: int, args: Event) -> Event:
    event = {"ph": "X", "cat": category, "name": name, **track.ids, "ts": _us(start), "dur": _us(duration)}
    return {**event, "args": args} if args else event


def _us(ns: int) -> msgspec.Raw:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())


def _args(**values: Any) -> Event:
    """Arguments under the names that the reader looks for."""
    return {_KEYS[name]: value for name, value in values.items() if value is not None}


def _known(values: Event) -> Event:
    return {key: value for key, value in values.items() if value is not None}
