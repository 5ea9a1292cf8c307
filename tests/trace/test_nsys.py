"""Nsight Systems exports of several versions, written here as those versions lay them out."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from sublight.errors import InputFileError, UsageError
from sublight.trace.analysis import analyse
from sublight.trace.events import Device, Kind, Lane, Launch, Node, Thread
from sublight.trace.links import call_of, launches_graph
from sublight.trace.nsysdb import Database
from sublight.trace.read import read_trace
from sublight.trace.repairs import RepairKind, RepairLog

from . import nsys_files
from .nsys_files import NEW, PID, START, Export
from .samples import found, gpu_rows, names


def test_an_old_export(tmp_path: Path) -> None:
    trace = read_trace(nsys_files.old(tmp_path / "a.sqlite"))
    assert gpu_rows(trace) == [("gemm", 7, START, 300), ("norm", 7, START + 1000, 301)]
    assert [trace.gpu.launches[n] for n in trace.gpu.launch.tolist()] == [Launch((2, 3, 4), (32, 1, 1), 40, 128)] * 2
    assert trace.gpu.nodes == (None,)
    assert names(trace.calls) == ["cudaLaunchKernel"] * 2
    assert trace.calls.places == (Thread(str(PID), "12"),)
    assert call_of(trace.gpu, trace.calls).tolist() == [0, 1]
    assert (names(trace.marks), trace.marks.duration.tolist()) == (["decode"], [2900])
    assert trace.devices == (Device(0, "Quadro", memory_bytes=8 << 30),)
    assert (trace.base_time_ns, trace.schema_version, trace.window) == (0, None, None)
    assert trace.counts == {"kernel": 2, "cuda_runtime": 2, "user_annotation": 1}
    assert found(trace) == {}


def test_a_new_export_with_graph_nodes(tmp_path: Path) -> None:
    trace = read_trace(nsys_files.new(tmp_path / "a.sqlite"))
    assert gpu_rows(trace) == [
        ("void kernel<0>(int)", 7, START, 60),
        ("void kernel<1>(int)", 7, START + 100, 60),
        ("Memcpy DtoD", 7, START + 300, 20),
        ("Memset", 7, START + 400, 10),
    ]
    gpu = trace.gpu
    assert gpu.kind.tolist() == [Kind.KERNEL, Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET]
    assert [gpu.nodes[n] for n in gpu.node.tolist()] == [Node(2**33), Node(2**33 + 1), Node(2**33 + 9), None]
    assert [gpu.launches[n].moved_bytes for n in gpu.launch.tolist()] == [None, None, 4096, 64]
    assert gpu.lanes == (Lane(0, 7),)
    assert launches_graph(trace.calls)[call_of(gpu, trace.calls)].all()
    assert names(trace.marks) == ["step", "inner"]
    assert trace.devices == (Device(0, "NVIDIA H200", 132, 141 << 30, (9, 0), 232448),)
    assert (trace.base_time_ns, trace.schema_version) == (1759449600_000000000, 3)
    assert trace.versions == {"nsys export": "3.11.4"}
    assert trace.window == (0, START + 10**9)
    assert found(trace) == {RepairKind.OPEN_RANGE: 1}
    assert trace.repairs[0].example == "never ends"


def test_processes_of_one_report_are_kept_apart(tmp_path: Path) -> None:
    trace = read_trace(nsys_files.new(tmp_path / "a.sqlite", processes=2))
    assert trace.gpu.lanes == (Lane(0, 7, str(PID)), Lane(1, 7, str(PID + 1)))
    # Both processes launched with correlation 77.
    call = call_of(trace.gpu, trace.calls)
    launched_by = [trace.calls.places[trace.calls.place[c]].process for c in call.tolist()]
    assert launched_by == [trace.gpu.lanes[lane].process for lane in trace.gpu.lane.tolist()]
    assert [device.id for device in trace.devices] == [0, 1]


def test_graphs_as_single_rows_are_kept_and_said(tmp_path: Path) -> None:
    trace = read_trace(nsys_files.graphs_only(tmp_path / "a.sqlite"))
    assert gpu_rows(trace) == [("CUDA graph 5", 7, START + n * 10_000, 9_000) for n in range(3)]
    assert trace.gpu.is_kind(Kind.GRAPH).all()
    assert found(trace) == {RepairKind.GRAPHS_ONLY: 3}
    assert "--cuda-graph-trace=node" in trace.repairs[0].note


def test_a_bare_minimum_of_columns(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": "start INT, end INT, name TEXT"})
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=5, end=9, name="k")
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=None, end=None, name="lost")
    trace = read_trace(export.done())
    assert gpu_rows(trace) == [("k", -1, 5, 4)]
    assert found(trace) == {RepairKind.NO_TIME: 1}


def test_a_name_that_no_string_has_and_text_of_any_bytes(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite", NEW)
    export.add("StringIds", id=1, value=b"caf\xe9".decode("latin-1"))
    for start, name in ((10, 1), (20, 999), (30, None)):
        export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=start + 1, deviceId=0, streamId=7, demangledName=name)
    export.done()
    with sqlite3.connect(export.path) as raw:
        raw.execute("UPDATE StringIds SET value = CAST(X'636166E9' AS TEXT)")
    raw.close()
    assert names(read_trace(export.path).gpu) == ["caf�", "string 999", ""]


def test_many_rows_are_read_in_portions(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite", NEW)
    name = export.string("k")
    count = 45_000
    for number in range(count):
        at = START + (count - number) * 10
        export.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=at, end=at + 5, deviceId=0, streamId=7, correlationId=number,
            demangledName=name,
        )  # fmt: skip
    with Database(export.done(), RepairLog()) as database:
        assert max(map(len, database.portions("CUPTI_ACTIVITY_KIND_KERNEL", ("start",)))) <= 20_000
    trace = read_trace(export.path)
    assert np.array_equal(trace.gpu.start, START + 10 * np.arange(1, count + 1))
    assert int(trace.gpu.duration.sum()) == 5 * count


def test_a_database_without_cuda_is_refused(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite", {"StringIds": NEW["StringIds"], "OSRT_API": "start INT"})
    with pytest.raises(InputFileError) as caught:
        read_trace(export.done())
    assert "no CUDA activity" in caught.value.found
    assert "--trace=cuda" in caught.value.hint


@pytest.mark.parametrize("keep", [100, 5000, 60_000])
def test_a_cut_database_gives_what_is_there_or_says_what_is_wrong(tmp_path: Path, keep: int) -> None:
    export = Export(tmp_path / "a.sqlite", NEW)
    name = export.string("k")
    for number in range(5000):
        export.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=number * 10, end=number * 10 + 5, deviceId=0, streamId=7,
            demangledName=name,
        )  # fmt: skip
    path = export.done()
    path.write_bytes(path.read_bytes()[:keep])
    try:
        trace = read_trace(path)
    except InputFileError as error:
        assert "nsys export" in error.hint
    else:
        assert len(trace.gpu) < 5000
        assert trace.gpu.duration.tolist() == [5] * len(trace.gpu)
        assert RepairKind.TRUNCATED in found(trace)


def test_an_export_where_nothing_can_be_written(tmp_path: Path) -> None:
    path = nsys_files.old(tmp_path / "a name with %20 and ?.sqlite")
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert len(read_trace(path).gpu) == 2
    finally:
        tmp_path.chmod(0o755)


def test_calls_without_kernels_are_a_clear_error(tmp_path: Path) -> None:
    trace = read_trace(nsys_files.calls_only(tmp_path / "a.sqlite"))
    assert (len(trace.gpu), len(trace.calls)) == (0, 3)
    with pytest.raises(UsageError) as error:
        analyse(trace)
    assert error.value.found == "3 CUDA calls were recorded and nothing that ran on the GPU"
    assert "--cap-add SYS_ADMIN" in error.value.hint
