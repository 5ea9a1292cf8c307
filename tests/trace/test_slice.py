"""One step as a file of its own: what is in it, and that it reads back as it was."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sublight.errors import InputFileError, UsageError
from sublight.trace.breakdown import break_down
from sublight.trace.classify import classify
from sublight.trace.events import GpuEvents, Kind, Launch, Spans, Trace
from sublight.trace.labels import label
from sublight.trace.phases import Phase
from sublight.trace.read import read_trace
from sublight.trace.slice import slice_of, write_slice
from sublight.trace.steps import Step, find_steps

from . import nsys_files
from .samples import EPOCH_NS, GEMM, REDUCE, Literal, Sample, kineto, names, read, typical
from .small import TO_DEVICE, TO_HOST, Small


def step_of(trace: Trace, start: int, end: int, *, device: int = 0, process: str = "") -> Step:
    """A step between two times, the first of which is the start of an event."""
    begin = trace.gpu.start
    first, last = int(begin.searchsorted(start)), int(begin.searchsorted(end))
    return Step(0, start, end, first, last, last - first, Phase.DECODE, replayed=False, device=device, process=process)


def said(table: GpuEvents | Spans) -> list[tuple[Any, ...]]:
    """All that a table says of its rows, with numbers replaced by what they stand for."""
    if isinstance(table, GpuEvents):
        meant: dict[str, Any] = {
            "name": table.names, "lane": table.lanes, "node": table.nodes, "launch": table.launches,
        }  # fmt: skip
        columns = ("start", "duration", "name", "kind", "lane", "correlation", "node", "launch")
    else:
        meant = {"name": table.names, "place": table.places}
        columns = ("start", "duration", "name", "place", "external")
        columns += ("correlation",) if hasattr(table, "correlation") else ()
    rows = zip(*(getattr(table, column).tolist() for column in columns), strict=True)
    return [tuple(meant[c][v] if c in meant else v for c, v in zip(columns, row, strict=True)) for row in rows]


TABLES = ("gpu", "calls", "ops", "marks", "gpu_marks")


def back(folder: Path, trace: Trace, step: Step, **options: Any) -> Trace:
    """The step written and read again, checked against the same cut out of the trace."""
    out = folder / "slice.json.gz"
    write_slice(trace, step, out, **options)
    again, cut = read_trace(out), slice_of(trace, step, **options)
    for table in TABLES:
        assert said(getattr(again, table)) == said(getattr(cut, table)), table
    return again


def written(folder: Path, trace: Trace, step: Step, **options: Any) -> list[dict[str, Any]]:
    """The events of the file as a viewer sees them."""
    out = folder / "slice.json"
    write_slice(trace, step, out, **options)
    events: list[dict[str, Any]] = json.loads(out.read_text())["traceEvents"]
    return events


def test_what_ran_in_the_step_or_into_it(tmp_path: Path) -> None:
    small = Small()
    small.run(100, 50, "before")
    small.run(160, 60, "runs into it")
    small.run(200, 100, "first", stream=9)
    small.run(399, 100, "runs out of it")
    small.run(500, 10, "next")
    trace = small.trace()
    again = back(tmp_path, trace, step_of(trace, 200, 500))
    assert names(again.gpu) == ["runs into it", "first", "runs out of it"]
    assert again.gpu.start.tolist() == [160, 200, 399]
    assert again.gpu.duration.tolist() == [60, 100, 100]


def test_the_host_during_the_step_and_around_its_launches(tmp_path: Path) -> None:
    sample = Sample()
    for at, name in ((100, "far away"), (940, "launches it"), (1900, "during it"), (3100, "after it")):
        sample.put("X", "cpu_op", name, 41, 41, at, 100, {"External id": 5})
        sample.put("X", "user_annotation", name, 41, 41, at, 100, {"External id": 5})
    sample.call(950, 20, "cudaLaunchKernel", 1)
    sample.kernel(1500, 300, GEMM, correlation=1)
    sample.call(2000, 20, "cudaLaunchKernel", 2)
    sample.kernel(3000, 300, GEMM, correlation=2)
    sample.call(100, 20, "cudaDeviceSynchronize", 3)
    trace = read(kineto(sample))
    again = back(tmp_path, trace, step_of(trace, 1500, 3000))
    assert names(again.ops) == names(again.marks) == ["launches it", "during it"]
    # The second call launched what is in another step: it is shown, and joined to nothing.
    assert [(start, number) for start, _, _, _, _, number in said(again.calls)] == [(950, 1), (2000, 0)]
    assert again.repairs == ()
    assert names(back(tmp_path, trace, step_of(trace, 1500, 3000), operators=False).ops) == []
    assert names(again.marks) == ["launches it", "during it"]


def test_everything_that_kineto_says_is_kept(tmp_path: Path) -> None:
    sample = typical()
    sample.kernel(EPOCH_NS + 35_000, 77, REDUCE, 31, **{
        "In msg nelems": 6144, "Out msg nelems": 6144, "Collective name": "allreduce", "dtype": "BFloat16",
        "Process Group Name": "tp", "Group size": 8, "registers per thread": 96, "shared memory": 1024,
    })  # fmt: skip
    trace = read(kineto(sample), python=True)
    step = step_of(trace, int(trace.gpu.start[3]), int(trace.gpu.start[40]))
    again = back(tmp_path, trace, step)
    assert len(again.gpu) == 37
    assert REDUCE in names(again.gpu)
    assert [len(getattr(again, table)) > 0 for table in TABLES] == [True] * 5
    for field in ("rank", "world_size", "base_time_ns", "schema_version", "versions", "devices", "process_names"):
        if field == "process_names":
            assert again.process_names["41"] == trace.process_names["41"]
        else:
            assert getattr(again, field) == getattr(trace, field), field
    assert again.name == "slice.json.gz"
    with_python = tmp_path / "python.json"
    write_slice(trace, step, with_python)
    python = read_trace(with_python, python=True).python
    assert python is not None
    assert set(names(python)) == {"run.py(3): <module>"}


def test_times_since_1970_stay_exact(tmp_path: Path) -> None:
    sample = Sample(members={})
    start = 1_759_449_600_123_456_789
    for number in range(3):
        sample.kernel(start + number * 1001, 999)
    trace = read(kineto(sample))
    again = back(tmp_path, trace, step_of(trace, start, start + 2002))
    assert again.gpu.start.tolist() == [start, start + 1001]
    assert (
        '"ts":1759449600123456.789,"dur":0.999' in gzip.decompress((tmp_path / "slice.json.gz").read_bytes()).decode()
    )


def test_one_device_of_several_and_one_process_of_a_merged_file(tmp_path: Path) -> None:
    sample = Sample()
    for rank in range(2):
        pid = f"[TP0{rank}] 7"
        for at in (1000, 2000):
            args = {"device": rank, "stream": 7, "correlation": at}
            sample.put("X", "kernel", f"k{rank}", f"[TP0{rank}] {rank}", 7, at, 100, args)
            sample.put("X", "cuda_runtime", "cudaLaunchKernel", pid, 3, at - 500, 20, {"correlation": at})
        sample.put("X", "gpu_user_annotation", f"m{rank}", f"[TP0{rank}] {rank}", 7, 1000, 900)
        sample.put("M", "", "process_name", pid, 0, 0, None, {"name": f"rank {rank}"})
    trace = read(kineto(sample))
    again = back(tmp_path, trace, step_of(trace, 1000, 2000, device=1, process="[TP01]"))
    assert names(again.gpu) == ["k1"]
    assert names(again.gpu_marks) == ["m1"]
    assert [place.process for place in again.calls.places] == ["[TP01]"]
    assert again.process_names["[TP01] 7"] == "rank 1"


@pytest.mark.parametrize("processes", [1, 2])
def test_from_nsight_systems(tmp_path: Path, processes: int) -> None:
    trace = read_trace(nsys_files.new(tmp_path / "a.sqlite", processes=processes))
    process = trace.gpu.lanes[0].process
    again = back(tmp_path, trace, step_of(trace, nsys_files.START, nsys_files.START + 405, process=process))
    assert names(again.gpu) == ["void kernel<0>(int)", "void kernel<1>(int)", "Memcpy DtoD", "Memset"]
    assert names(again.calls) == ["cudaGraphLaunch"]
    assert sorted(names(again.marks)) == ["inner", "step"]
    assert again.devices == trace.devices[:1]


def test_whole_graphs_stay_whole_graphs(tmp_path: Path) -> None:
    trace = read_trace(nsys_files.graphs_only(tmp_path / "a.sqlite"))
    out = tmp_path / "a.json"
    write_slice(trace, step_of(trace, nsys_files.START, nsys_files.START + 10_000), out)
    again = read_trace(out)
    assert (names(again.gpu), again.gpu.kind.tolist()) == (["CUDA graph 5"], [Kind.GRAPH])
    assert again.gpu.duration.tolist() == [9000]
    assert [(repair.kind.value, repair.count) for repair in again.repairs] == [("graphs only", 1)]
    assert '"cat":"cuda_graph"' in out.read_text()


def test_steps_of_a_stretch_read_back_as_they_were(tmp_path: Path) -> None:
    small = Small()
    for number in range(5):
        at = 1000 + number * 1000
        small.graph(at, [(0, 100, GEMM), (100, 50, REDUCE), (200, 300 + number, GEMM), (550, 20, "last")])
        small.launched(at + 600, 50, "argmax")
        small.launched(at + 700, 10, TO_HOST)
    trace = small.trace()
    steps = find_steps(trace).steps
    out = tmp_path / "a.json"
    write_slice(trace, steps[1], out, upto=steps[3])
    again = read_trace(out)
    found = find_steps(again).steps
    assert [(one.start_ns, one.end_ns) for one in found] == [(one.start_ns, one.end_ns) for one in steps[1:]]
    for one, same in zip(found, steps[1:], strict=True):
        here = break_down(again, one, label(again, classify))
        there = break_down(trace, same, label(trace, classify))
        assert (here.rows, here.overlaps, here.idle_ns) == (there.rows, there.overlaps, there.idle_ns)
        # The call that ended the last pause is in the next step.
        assert here.idle == there.idle or same is steps[-1]


@pytest.mark.parametrize("number", [0, 2])
def test_one_step_reads_back_with_the_pause_after_it(tmp_path: Path, number: int) -> None:
    """1000 ns each, of which 710 pass until the last event ends. A copy of the step before runs 30 ns into each."""
    small = Small()
    for step in range(5):
        at = 1000 + step * 1000
        small.graph(at, [(0, 100, GEMM), (100, 50, REDUCE), (200, 300, GEMM), (550, 20, "last")])
        small.launched(at + 700, 10, TO_HOST)
        small.launched(at + 980, 50, TO_DEVICE, stream=9)
    trace = small.trace()
    step = find_steps(trace).steps[number]
    write_slice(trace, step, tmp_path / "a.json")
    found = find_steps(read_trace(tmp_path / "a.json"))
    assert (found.how, found.evidence[0]) == ("a slice of one step", "one step that was cut out of a longer trace")
    (again,) = found.steps
    begin = 1000 + 1000 * number
    assert (again.start_ns, again.end_ns, again.kernels, again.phase) == (begin, begin + 1000, 4, step.phase)
    assert found.wall_ns is not None
    assert found.wall_ns.median == 1000
    assert [one.why for one in found.dropped] == ["1 GPU event before the first whole step"] * bool(number)
    write_slice(read_trace(tmp_path / "a.json"), again, tmp_path / "b.json")
    assert find_steps(read_trace(tmp_path / "b.json")).steps[0].wall_ns == 1000


@pytest.mark.parametrize(
    "said",
    [
        '{"beginNanoseconds": 9000, "endNanoseconds": 9500, "steps": 1}',
        '{"beginNanoseconds": 1000, "endNanoseconds": 1000, "steps": 1}',
        '{"beginNanoseconds": 1000, "endNanoseconds": 2000, "steps": 0}',
        '{"beginNanoseconds": 1000, "endNanoseconds": "soon", "steps": 1}',
        '{"beginNanoseconds": 1000, "endNanoseconds": 1005, "steps": 1}',
        '{"endNanoseconds": 2000}',
        "7",
    ],
)
def test_a_cut_that_can_not_be_is_not_believed(said: str) -> None:
    sample = Sample(members={"sublightSlice": Literal(said)})
    for at in range(10):
        sample.kernel(1000 + 10 * at, 9, f"kernel {at % 5}", stream=7)
    (step,) = find_steps(read(kineto(sample))).steps
    assert (step.start_ns, step.end_ns) == (1010, 1060)


def test_the_file_is_compressed_by_its_name_and_always_the_same(tmp_path: Path) -> None:
    trace = read(kineto(typical()))
    step = step_of(trace, int(trace.gpu.start[0]), int(trace.gpu.start[9]))
    packed = [tmp_path / folder / "a.json.gz" for folder in ("one", "two")]
    for out in packed:
        out.parent.mkdir()
        write_slice(trace, step, out)
    assert packed[0].read_bytes() == packed[1].read_bytes()
    write_slice(trace, step, tmp_path / "a.json")
    plain = (tmp_path / "a.json").read_bytes()
    assert gzip.decompress(packed[0].read_bytes()) == plain.replace(b'"traceName":"a.json"', b'"traceName":"a.json.gz"')


def test_a_path_will_do(tmp_path: Path) -> None:
    source = tmp_path / "trace.json"
    source.write_bytes(kineto(typical()))
    trace = read_trace(source)
    step = step_of(trace, int(trace.gpu.start[0]), int(trace.gpu.start[9]))
    write_slice(source, step, tmp_path / "a.json")
    assert said(read_trace(tmp_path / "a.json").gpu) == said(slice_of(trace, step).gpu)
    with pytest.raises(UsageError, match="the file the trace was read from"):
        write_slice(source, step, tmp_path / "." / "trace.json")
    assert read_trace(source).counts == trace.counts


def test_a_folder_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    trace = read(kineto(typical()))
    step = step_of(trace, int(trace.gpu.start[0]), int(trace.gpu.start[9]))
    with pytest.raises(InputFileError, match="a folder that exists"):
        write_slice(trace, step, tmp_path / "none" / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_step_of_another_trace_is_refused() -> None:
    small = Small()
    for at in (100, 200, 300):
        small.run(at, 10)
    trace = small.trace()
    first, second = step_of(trace, 100, 200), step_of(trace, 200, 300)
    other = Small()
    other.run(150, 10)
    with pytest.raises(UsageError, match="none of its 1 GPU rows is row 1 at 200 ns"):
        slice_of(other.trace(), second)
    with pytest.raises(UsageError, match="not a later step of the same device"):
        slice_of(trace, second, upto=first)
    assert slice_of(trace, first, upto=second).gpu.start.tolist() == [100, 200]


def test_a_name_may_hold_anything(tmp_path: Path) -> None:
    small = Small()
    name = 'void f<"x", \\ \n\t é 漢 </script>>()'
    small.run(100, 10, name)
    small.gpu.append((120, 10, "k", small.gpu[0][3], 0, Launch()))
    trace = small.trace()
    assert names(back(tmp_path, trace, step_of(trace, 100, 200)).gpu) == [name, "k"]
