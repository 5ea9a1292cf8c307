"""How long a trace takes to read and how much memory, against other readers of the same file, and whether they agree.

    python benchmarks/trace_reading.py [--mb 500] [--gzip] [--rounds 3] [--hta PYTHON]
    python benchmarks/trace_reading.py --growth 500 1000 2000 4000

Writes a trace of that size into a temporary folder: CUDA graphs of 1,900 kernels on two streams, a share of kernels
that start before the one in front of them has ended, the runtime calls and operators around them. Its kernel count, sum
and busy time are known. Every reader is a process of its own that must find those three; what it found is in the table,
because a time is worth nothing without it. CPU time counts all of a reader's processes, memory the largest of them.
"sublight trace" is the whole command, which finds the steps, takes them apart and prints; it must print as many GPU
events as there are.

--growth: the whole command on traces of these sizes in MB, and by how much its largest process grows with each GPU
event. The fastest of the rounds counts, and the most memory.

--hta: the interpreter of an environment with HolisticTraceAnalysis, which needs pandas below 3. Busy is what its
temporal breakdown calls compute and non-compute time.
"""

import argparse
import gzip
import importlib.util
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

EPOCH_US = 5_150_586_000_000
KERNELS = [
    (
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*, float)",
        0,
        2_100,
    ),
    ("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", 0, 7_400),
    ("fmhaSm100fKernel_QkvE4m3OBfloat16H576PagedKvDenseP64VarSeqQ8Kv128PersistentKeepsMmaAb", 0, 9_700),
    ("bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16_t128x8x512_s5_et128x8_m128x8x64_cga1x1x1_swiGlu_dynBatch_sm100f", 0, 8_900),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int> > >", 1, 4_400),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 6_100),
]
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA B200", "computeMajor": 10, "computeMinor": 0, "numSms": 148
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
  "baseTimeNanoseconds": 1759449600000000000,
  "traceEvents": [
"""
EVENT = """  {
    "ph": "X",
    "cat": "%s",
    "name": "%s",
    "pid": %d,
    "tid": %d,
    "ts": %d.%03d,
    "dur": %d.%03d
    ,
    "args": {
      %s
    }
  }"""
KERNEL_ARGS = (
    '"External id": 7,"queued": 0, "device": 0, "context": 1,\n'
    '      "stream": %d, "correlation": %d, "graph node id": %d,\n'
    '      "registers per thread": 128, "shared memory": 66560,\n      "blocks per SM": 0.864865,\n'
    '      "warps per SM": 10.378378,\n      "grid": [128, 1, 1],\n      "block": [384, 1, 1],\n'
    '      "est. achieved occupancy %%": 16'
)
OP_ARGS = (
    '"External id": %d,"Record function id": 0, "Concrete Inputs": ["", "", "False", "False", ""], "Input type": '
    '["c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar", ""], "Input Dims": [[1, 6144], [6144, 2624], [], [], []]'
)


@dataclass
class Truth:
    kernels: int = 0
    sum_ns: int = 0
    busy_ns: int = 0
    reached_ns: int = 0

    def add(self, start_ns: int, duration_ns: int) -> None:
        end_ns = start_ns + duration_ns
        self.kernels += 1
        self.sum_ns += duration_ns
        # Kernels come in the order of their starts.
        self.busy_ns += max(0, end_ns - max(start_ns, self.reached_ns))
        self.reached_ns = max(self.reached_ns, end_ns)


def event(category: str, name: str, pid: int, tid: int, start_ns: int, duration_ns: int, args: str) -> str:
    start, duration = divmod(start_ns, 1000), divmod(duration_ns, 1000)
    return EVENT % (category, name, pid, tid, *start, *duration, args)


def write_trace(out: IO[str], size: int, seed: int = 0) -> Truth:
    """A trace of about `size` bytes, and what must be found in it."""
    chance, truth = random.Random(seed), Truth()
    written, step, now = out.write(HEAD), 0, EPOCH_US * 1000
    first = True
    while written < size:
        step += 1
        rows = []
        for number in range(80):
            rows.append(event("cpu_op", f"aten::op{number % 7}", 41, 41, now, 3_054, OP_ARGS % (step * 80 + number)))
            now += 3_500
        launch = f'"External id": 7, "cbid": 311, "correlation": {step}'
        rows.append(event("cuda_runtime", "cudaGraphLaunch", 41, 41, now, 190_000, launch))
        spans = []
        for node in range(1900):
            name, stream, usual = KERNELS[node % len(KERNELS)]
            duration = int(usual * (0.92 + 0.16 * chance.random()))
            now -= int(400 * chance.random()) if chance.random() < 0.35 else -300
            spans.append((now, duration, name, 7 + 16 * stream, node + 1))
            now += duration if stream == 0 else 1_000
        spans.sort()
        for start, duration, name, stream, node in spans:
            truth.add(start, duration)
            rows.append(event("kernel", name, 0, stream, start, duration, KERNEL_ARGS % (stream, step, node)))
        written += out.write(("" if first else ",\n") + ",\n".join(rows))
        first, now = False, now + 50_000
    out.write('\n  ],\n  "traceName": "benchmark"\n}\n')
    return truth


OURS = """
import sys
from sublight.trace.overview import overview
from sublight.trace.read import read_trace
found = overview(read_trace(sys.argv[1]))
print(found.kernels, found.kernel_sum_ns, found.kernel_busy_ns)
"""
WHOLE = """
import gzip, sys
import {module}
data = (gzip.open if sys.argv[1].endswith(".gz") else open)(sys.argv[1], "rb").read()
rows = [e for e in {module}.loads(data)["traceEvents"] if e.get("cat") == "kernel"]
spans = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in rows)
busy = reached = 0
for start, duration in spans:
    busy += max(0, start + duration - max(start, reached))
    reached = max(reached, start + duration)
print(len(spans), sum(duration for _, duration in spans), busy)
"""
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
frame = analysis.t.get_trace(0)
symbols = analysis.t.symbol_table.sym_table
kernels = frame[frame["cat"].map(lambda number: symbols[number] == "kernel")]
times = analysis.get_temporal_breakdown(visualize=False).iloc[0]
busy = times["compute_time(us)"] + times["non_compute_time(us)"]
print(len(kernels), int(kernels["dur"].sum() * 1000), int(busy * 1000))
"""


COMMAND = [sys.executable, "-m", "sublight", "trace"]
Found = tuple[int, ...]


@dataclass
class Run:
    wall_s: float
    cpu_s: float
    peak_bytes: int
    found: Found | None


def run(argv: list[str], path: Path) -> Run:
    """One reader, timed from outside: its processes' CPU time together, the memory of the largest."""
    start = time.perf_counter()
    process = subprocess.Popen([*argv, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - start
    found = None if process.returncode else printed(said) if argv == COMMAND else last_numbers(said)
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, found)


def last_numbers(said: str) -> Found | None:
    """Kernels, their sum and their busy time, which the readers print last."""
    words = said.split()[-3:]
    return tuple(int(word) for word in words) if len(words) == 3 else None


def printed(said: str) -> Found | None:
    """How many events on the GPU the command says there are, in front of its breakdown."""
    events = re.search(r"([0-9,]+) GPU events", " ".join(said.split()))
    return (int(events[1].replace(",", "")),) if events else None


def verdict(found: Found | None, truth: Truth) -> str:
    if found is None:
        return "failed"
    right = (truth.kernels, truth.sum_ns, truth.busy_ns)[: len(found)]
    if found == right:
        return "exact" if len(found) == 3 else "all events"
    shares = zip(("kernels", "sum", "busy"), found, right, strict=False)
    return ", ".join(f"{name} {got / wanted - 1:+.2%}" for name, got, wanted in shares if got != wanted)


def compare_readers(asked: argparse.Namespace, folder: Path) -> None:
    readers = {
        "sublight trace": COMMAND,
        "sublight, reading": [sys.executable, "-c", OURS],
        "json, whole file": [sys.executable, "-c", WHOLE.format(module="json")],
    }
    if importlib.util.find_spec("orjson"):
        readers["orjson, whole file"] = [sys.executable, "-c", WHOLE.format(module="orjson")]
    if asked.hta:
        readers["HTA"] = [asked.hta, "-c", HTA]
    path = folder / "trace.json"
    truth = written(path, asked.mb)
    size = path.stat().st_size
    if asked.gzip:
        packed = path.with_suffix(".json.gz")
        with path.open("rb") as plain, gzip.open(packed, "wb", compresslevel=3) as out:
            shutil.copyfileobj(plain, out)
        path = packed
    print(f"{size / 1e6:,.0f} MB{' in gzip' if asked.gzip else ''}, {truth.kernels:,} kernels, {os.cpu_count()} cores")
    runs: dict[str, list[Run]] = {name: [] for name in readers}
    for _ in range(asked.rounds):
        for name, argv in readers.items():
            runs[name].append(run(argv, path))
    print(f"{'reader':<20}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}  found (median of {asked.rounds} rounds)")
    for name, taken in runs.items():
        wall_s, cpu_s = statistics.median(r.wall_s for r in taken), statistics.median(r.cpu_s for r in taken)
        peak = max(r.peak_bytes for r in taken) / 1e6
        print(f"{name:<20}{wall_s:>8.2f}{cpu_s:>8.2f}{peak:>9.0f}  {verdict(taken[0].found, truth)}")


def growth(asked: argparse.Namespace, folder: Path) -> None:
    """Time and memory of the whole command over the size of the trace."""
    print(f"{'MB':>6}{'GPU events':>12}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}  found")
    events, peaks = [], []
    for mb in asked.growth:
        path = folder / f"{mb:.0f}.json"
        truth = written(path, mb)
        taken = [run(COMMAND, path) for _ in range(asked.rounds)]
        path.unlink()
        events.append(truth.kernels)
        peaks.append(max(r.peak_bytes for r in taken))
        wall_s, cpu_s = min(r.wall_s for r in taken), min(r.cpu_s for r in taken)
        numbers = f"{mb:>6.0f}{truth.kernels:>12,}{wall_s:>8.2f}{cpu_s:>8.2f}{peaks[-1] / 1e6:>9.0f}"
        print(f"{numbers}  {verdict(taken[0].found, truth)}")
    if len(events) > 1:
        print(f"{statistics.linear_regression(events, peaks).slope:.1f} bytes for each GPU event")


def written(path: Path, mb: float) -> Truth:
    with path.open("w", encoding="ascii") as out:
        return write_trace(out, int(mb * 1e6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=500)
    parser.add_argument("--gzip", action="store_true", help="compress the file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta", metavar="PYTHON", help="interpreter that can import hta")
    parser.add_argument("--growth", nargs="+", type=float, metavar="MB", help="the command on traces of these sizes")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (growth if asked.growth else compare_readers)(asked, Path(folder))


if __name__ == "__main__":
    main()
