"""Small traces whose truth can be added up by hand, and every layout that writers put them in.

Times are whole nanoseconds here and become decimal microseconds in the text, as profilers write them.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sublight.trace.chrome import read_chrome
from sublight.trace.events import GpuEvents, Spans, Trace
from sublight.trace.repairs import RepairKind, RepairLog
from sublight.trace.source import Source

EPOCH_NS = 5_150_000_000_000_000
GEMM = "nvjet_tst_128x8_64x12_2x1_v_bz_TNT"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NORM = 'void norm<(Pattern)1, __nv_bfloat16, "x">(float*, int)'


class Literal:
    """A number to be written exactly so."""

    def __init__(self, text: str) -> None:
        self.text = text


def us(ns: int) -> Literal:
    """Nanoseconds as decimal microseconds, digit by digit."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return Literal(f"{sign}{ns // 1000}.{ns % 1000:03d}")


Event = dict[str, Any]


@dataclass
class Sample:
    """A trace under construction. Every row goes to `events`; the truth is what the test passed in."""

    events: list[Event] = field(default_factory=list)
    members: dict[str, Any] = field(
        default_factory=lambda: {"schemaVersion": 1, "baseTimeNanoseconds": 1759449600 * 10**9}
    )
    correlation: int = 0

    def kernel(self, start: int, duration: int, name: str = GEMM, stream: int = 7, **args: Any) -> Event:
        args = {"device": 0, "stream": stream, "grid": [4, 1, 1], "block": [128, 1, 1], **args}
        return self.put("X", "kernel", name, 0, stream, start, duration, args)

    def launched(self, start: int, duration: int, name: str = GEMM, call: str = "cudaLaunchKernel") -> Event:
        """A kernel with the call, 2 us earlier, that launched it."""
        self.correlation += 1
        self.call(start - 2000, 1000, call, self.correlation)
        return self.kernel(start, duration, name, correlation=self.correlation)

    def call(self, start: int, duration: int, name: str, correlation: int) -> Event:
        args = {"External id": 9, "cbid": 211, "correlation": correlation}
        return self.put("X", "cuda_runtime", name, 41, 41, start, duration, args)

    def put(
        self, ph: str, cat: str, name: str, pid: Any, tid: Any, start: int, duration: int | None, args: Any = None
    ) -> Event:
        event: Event = {"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": us(start)}
        if duration is not None:
            event["dur"] = us(duration)
        if args is not None:
            event["args"] = args
        self.events.append(event)
        return event


def typical(kernels: int = 40) -> Sample:
    """A little of everything that Kineto writes."""
    sample = Sample()
    sample.members["distributedInfo"] = {"backend": "nccl", "rank": 3, "world_size": 8}
    sample.members["deviceProperties"] = [
        {
            "id": 0,
            "name": "NVIDIA B200",
            "numSms": 148,
            "computeMajor": 10,
            "computeMinor": 0,
            "sharedMemPerBlockOptin": 232448,
        }
    ]
    now = EPOCH_NS
    sample.put("X", "Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", now - 5000, 10**9, {"Op count": 0})
    sample.put("M", "", "process_name", 41, 0, now, None, {"name": "python3"})
    for number in range(kernels):
        now += 10_007
        sample.put(
            "X",
            "cpu_op",
            f"aten::op{number % 3}",
            41,
            41,
            now - 3000,
            2999,
            {"External id": number, "Input Dims": [[1, 2], []]},
        )
        sample.launched(now, 4321 + number, (GEMM, REDUCE, NORM)[number % 3])
        sample.put("s", "ac2g", "ac2g", 41, 41, now - 2000, None)["id"] = number
        if number % 5 == 0:
            sample.kernel(now + 1, 17, stream=23, **{"graph node id": number, "graph id": 1, "correlation": 9000})
            sample.put(
                "X",
                "gpu_memcpy",
                "Memcpy HtoD",
                0,
                7,
                now + 5000,
                900,
                {"device": 0, "stream": 7, "bytes": 256 * number},
            )
            sample.put("X", "user_annotation", f"ProfilerStep#{number}", 41, 41, now - 4000, 9000, {"External id": 1})
            sample.put("X", "gpu_user_annotation", "step", 0, 7, now, 8000, {"External id": 1})
            sample.put("X", "python_function", "run.py(3): <module>", 41, 41, now - 4000, 9000, {"Python id": 1})
    sample.put("i", "", "Record Window End", "", "", now + 10_000, None)["s"] = "g"
    sample.members["traceName"] = "sample"
    return sample


def dumps(value: Any, separators: tuple[str, str] = (",", ":")) -> str:
    """JSON with literals kept as they are."""
    comma, colon = separators
    if isinstance(value, Literal):
        return value.text
    if isinstance(value, dict):
        return "{" + comma.join(f"{json.dumps(k)}{colon}{dumps(v, separators)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + comma.join(dumps(item, separators) for item in value) + "]"
    return json.dumps(value)


def _lines(event: Event) -> str:
    """A key a line, and the arguments after a lone comma: what torch 2.9 and later write."""
    keys = [f"    {json.dumps(key)}: {dumps(value)}" for key, value in event.items() if key != "args"]
    args = ""
    if "args" in event:
        inner = ", ".join(f"{json.dumps(key)}: {dumps(value)}" for key, value in event["args"].items())
        args = f'\n    ,\n    "args": {{\n      {inner}\n    }}'
    return "  {\n" + ",\n".join(keys) + args + "\n  }"


def _packed(event: Event) -> str:
    """Several keys a line: what earlier torch wrote."""
    return "  {\n    " + dumps(event, (", ", ": "))[1:-1] + "\n  }"


def kineto(sample: Sample, row: Callable[[Event], str] = _lines) -> bytes:
    """The profiler's own layouts."""
    before = {key: value for key, value in sample.members.items() if key != "traceName"}
    head = "{\n" + "".join(f"  {json.dumps(key)}: {dumps(value)},\n" for key, value in before.items())
    body = ",\n".join(row(event) for event in sample.events)
    tail = f',\n  "traceName": {json.dumps(sample.members.get("traceName", ""))}\n}}\n'
    return f'{head}  "traceEvents": [\n{body}\n  ]{tail}'.encode()


def compact(sample: Sample) -> bytes:
    """One line without spaces: a trace that was read and written again."""
    return dumps({**sample.members, "traceEvents": sample.events}).encode()


def events_first(sample: Sample) -> bytes:
    return dumps({"traceEvents": sample.events, **sample.members}, (", ", ": ")).encode()


def bare(sample: Sample) -> bytes:
    """The list alone, one event a line."""
    return ("[\n" + ",\n".join(dumps(event) for event in sample.events) + "\n]\n").encode()


def leading_commas(sample: Sample) -> bytes:
    return ("[" + "\n, ".join(dumps(event) for event in sample.events) + "]").encode()


def windows_lines(sample: Sample) -> bytes:
    return kineto(sample).replace(b"\n", b"\r\n")


LAYOUTS: dict[str, Callable[[Sample], bytes]] = {
    "lines": kineto,
    "packed": lambda sample: kineto(sample, _packed),
    "compact": compact,
    "events first": events_first,
    "bare": bare,
    "leading commas": leading_commas,
    "windows": windows_lines,
}


class Text(Source):
    """A source made of text in memory, in blocks of any size."""

    def __init__(self, text: bytes, block_bytes: int = 1 << 20) -> None:
        self.name, self.form, self.compression = "sample", "json", ""
        self.plain_path, self.disk_bytes = None, len(text)
        self.block_bytes = block_bytes
        self._text = text

    def blocks(self) -> Iterator[bytes]:
        for low in range(0, len(self._text), self.block_bytes):
            yield self._text[low : low + self.block_bytes]

    def close(self) -> None:
        pass


def read(text: bytes, block_bytes: int = 1 << 20, *, python: bool = False) -> Trace:
    """A trace from text."""
    return read_chrome(Text(text, block_bytes), RepairLog(), python=python)


def write(folder: Path, text: bytes, name: str = "trace.json") -> Path:
    """A file of it; compressed if the name says so."""
    path = folder / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def gpu_rows(trace: Trace) -> list[tuple[str, int, int, int]]:
    """Name, stream, start and duration of every GPU row."""
    gpu = trace.gpu
    return [
        (gpu.names[name], gpu.lanes[lane].stream, start, duration)
        for name, lane, start, duration in zip(
            gpu.name.tolist(), gpu.lane.tolist(), gpu.start.tolist(), gpu.duration.tolist(), strict=True
        )
    ]


def names(table: GpuEvents | Spans) -> list[str]:
    return [table.names[number] for number in table.name.tolist()]


def found(trace: Trace) -> dict[RepairKind, int]:
    """How often each repair."""
    return {repair.kind: repair.count for repair in trace.repairs}


def everything(trace: Trace) -> dict[str, Any]:
    """All that a trace says but where it came from, so that two can be compared."""
    tables = {
        "gpu": trace.gpu,
        "calls": trace.calls,
        "ops": trace.ops,
        "marks": trace.marks,
        "gpu_marks": trace.gpu_marks,
    }
    if trace.python is not None:
        tables["python"] = trace.python
    said: dict[str, Any] = {}
    for table_name, table in tables.items():
        for column in _columns(table):
            value = getattr(table, column)
            said[f"{table_name}.{column}"] = (
                (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value
            )
    rest = (
        "counts",
        "devices",
        "rank",
        "world_size",
        "base_time_ns",
        "window",
        "name",
        "schema_version",
        "process_names",
    )
    return {**said, **{name: getattr(trace, name) for name in rest}, "repairs": trace.repairs}


def _columns(table: GpuEvents | Spans) -> Iterable[str]:
    tables = ("names", "lanes", "places", "nodes", "launches")
    columns = ("start", "duration", "name", "kind", "lane", "place", "correlation", "node", "launch", "external")
    return [name for name in (*columns, *tables) if hasattr(table, name)]
