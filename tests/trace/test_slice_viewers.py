"""A slice as Perfetto and chrome://tracing see it: lines on which nothing overlaps, arrows that end, names."""

from pathlib import Path
from typing import Any

import numpy as np

from sublight.trace.read import read_trace
from sublight.trace.tracks import lines

from .samples import GEMM, Sample, kineto, read
from .small import Small
from .test_slice import step_of, written


def spans(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") == category and event["ph"] == "X"]


def test_lines_of_rows_that_overlap() -> None:
    """0..10, 5..15, 9..11 need three lines; at 10 the first is free again, and a touch is no overlap."""
    start, end = np.array([0, 5, 9, 10, 15]), np.array([10, 15, 11, 20, 15])
    assert lines(start, end, np.zeros(5, np.uint8)).tolist() == [0, 1, 2, 0, 1]
    assert lines(start, end, np.arange(5)).tolist() == [0] * 5


def test_dependent_launches_are_drawn_below_and_read_back_as_one_stream(tmp_path: Path) -> None:
    small = Small()
    small.run(100, 50, "gemm")
    small.run(140, 20, "reduce")
    small.run(160, 20, "gemm")
    trace = small.trace()
    events = written(tmp_path, trace, step_of(trace, 100, 200))
    kernels = spans(events, "kernel")
    assert [(event["name"], event["tid"]) for event in kernels] == [("gemm", 7), ("reduce", 1_000_007), ("gemm", 7)]
    assert [event["args"]["stream"] for event in kernels] == [7, 7, 7]
    assert read_trace(tmp_path / "slice.json").gpu.lanes == trace.gpu.lanes
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert threads == {7: "stream 7", 1_000_007: "stream 7, overlapping"}


def test_annotations_have_a_line_of_their_own(tmp_path: Path) -> None:
    """An annotation that ends in the middle of a kernel would hide it."""
    small = Small()
    small.run(100, 50)
    small.gpu_mark(90, 30, "half")
    small.gpu_mark(95, 100, "whole")
    trace = small.trace()
    events = written(tmp_path, trace, step_of(trace, 100, 200))
    marks = spans(events, "gpu_user_annotation")
    assert len({(event["pid"], event["tid"]) for event in (*marks, *spans(events, "kernel"))}) == 3
    assert [place.stream for place in read_trace(tmp_path / "slice.json").gpu_marks.places] == [7]


def test_an_arrow_from_each_call_to_the_first_row_it_launched(tmp_path: Path) -> None:
    small = Small()
    small.graph(1000, [(0, 50, "a"), (40, 20, "b"), (100, 20, "c")], ahead=300)
    small.launched(1200, 10, "d")
    small.run(1300, 10, "without a call")
    trace = small.trace()
    events = written(tmp_path, trace, step_of(trace, 1000, 2000))
    begin, end = ([event for event in events if event["ph"] == phase] for phase in "sf")
    assert [(one["id"], one["ts"], one["pid"], one["tid"]) for one in begin] == [(1, 0.7, 1, 1), (2, 1.1, 1, 1)]
    assert [(one["id"], one["ts"], one["pid"], one["tid"], one["bp"]) for one in end] == [
        (1, 1.0, 0, 7, "e"),
        (2, 1.2, 0, 7, "e"),
    ]
    calls = {(one["pid"], one["tid"], one["ts"]) for one in spans(events, "cuda_runtime")}
    assert {(one["pid"], one["tid"], one["ts"]) for one in begin} == calls


def test_no_arrow_points_back_in_time(tmp_path: Path) -> None:
    """The clocks of host and device are off by a little; a viewer would turn the arrow round."""
    small = Small()
    small.call(1010, 20, "cudaLaunchKernel", 1)
    small.run(1000, 50, correlation=1)
    trace = small.trace()
    assert [event for event in written(tmp_path, trace, step_of(trace, 1000, 2000)) if event["ph"] in "sf"] == []


def test_processes_and_threads_have_names_and_an_order(tmp_path: Path) -> None:
    sample = Sample()
    sample.put("M", "", "process_name", 41, 0, 0, None, {"name": "sglang::scheduler"})
    sample.launched(5000, 100, GEMM)
    sample.put("X", "cpu_op", "aten::mm", 41, 42, 2900, 1200, {"External id": 3})
    trace = read(kineto(sample))
    events = written(tmp_path, trace, step_of(trace, 5000, 6000))
    said = [
        (event["name"], event["pid"], event["tid"], *event["args"].values()) for event in events if event["ph"] == "M"
    ]
    assert sorted(said, key=str) == sorted(
        [
            ("process_name", 41, 0, "sglang::scheduler"),
            ("process_labels", 41, 0, "CPU"),
            ("process_sort_index", 41, 0, 0),
            ("thread_name", 41, 41, "thread 41"),
            ("thread_name", 41, 42, "thread 42"),
            ("process_name", 0, 0, "GPU 0"),
            ("process_labels", 0, 0, "GPU 0"),
            ("process_sort_index", 0, 0, 5_000_000),
            ("thread_name", 0, 7, "stream 7"),
        ],
        key=str,
    )


def test_calls_of_the_driver_are_said_to_be(tmp_path: Path) -> None:
    small = Small()
    small.call(900, 20, "cuLaunchKernelEx", 1)
    small.call(1100, 20, "cudaGetDevice")
    small.run(1000, 50, correlation=1)
    trace = small.trace()
    events = written(tmp_path, trace, step_of(trace, 1000, 2000))
    assert [event["name"] for event in spans(events, "cuda_driver")] == ["cuLaunchKernelEx"]
    assert [event["name"] for event in spans(events, "cuda_runtime")] == ["cudaGetDevice"]
