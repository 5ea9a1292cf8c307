"""Times that can not be, on traces that can be added up by hand. Microseconds in the comments."""

import pytest

from sublight.trace import order
from sublight.trace.intervals import Intervals, union
from sublight.trace.repairs import RepairKind

from .samples import EPOCH_NS, Sample, found, gpu_rows, kineto, names, read

US = 1000
MS = 1_000_000


def test_two_broken_durations_a_legal_overlap_a_negative_and_a_zero() -> None:
    text = b"""{"schemaVersion":1,"traceEvents":[
{"ph":"X","cat":"kernel","name":"gemm_a","pid":0,"tid":7,"ts":1000,"dur":20,"args":{"correlation":1}},
{"ph":"X","cat":"kernel","name":"ew_add","pid":0,"tid":7,"ts":1021,"dur":3400000,"args":{"correlation":2}},
{"ph":"X","cat":"kernel","name":"moe_w13","pid":0,"tid":7,"ts":1045,"dur":60,"args":{"correlation":3}},
{"ph":"X","cat":"kernel","name":"moe_w2","pid":0,"tid":7,"ts":1103,"dur":40,"args":{"correlation":4}},
{"ph":"X","cat":"gpu_memcpy","name":"Memcpy DtoH","pid":0,"tid":7,"ts":1144,"dur":3150000,"args":{"correlation":5}},
{"ph":"X","cat":"kernel","name":"ar","pid":0,"tid":7,"ts":1150,"dur":18,"args":{"correlation":6}},
{"ph":"X","cat":"kernel","name":"bad_neg","pid":0,"tid":7,"ts":1170,"dur":-3,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"bad_zero","pid":0,"tid":7,"ts":1175,"dur":0,"args":{"correlation":8}},
{"ph":"X","cat":"kernel","name":"head","pid":0,"tid":7,"ts":1180,"dur":30,"args":{"correlation":9}}]}"""
    trace = read(text)
    gpu = trace.gpu
    # 20 + 24 (to the next start) + 98 (1045 to 1143) + 6 (to the next start) + 18 + 30
    assert union(Intervals(gpu.start, gpu.end)).total == 196 * US
    assert [(name, duration // US) for name, _, _, duration in gpu_rows(trace)] == [
        ("gemm_a", 20), ("ew_add", 24), ("moe_w13", 60), ("moe_w2", 40), ("Memcpy DtoH", 6), ("ar", 18),
        ("bad_zero", 0), ("head", 30),
    ]  # fmt: skip
    assert found(trace) == {
        RepairKind.NEGATIVE_DURATION: 1, RepairKind.ZERO_DURATION: 1, RepairKind.CLIPPED: 2, RepairKind.OVERLAP: 1,
    }  # fmt: skip
    clipped = next(repair for repair in trace.repairs if repair.kind is RepairKind.CLIPPED)
    assert clipped.removed_ns == (3400000 - 24 + 3150000 - 6) * US
    raw_sum = int(gpu.duration.sum()) + clipped.removed_ns - 3 * US
    assert raw_sum == 6550165 * US
    assert clipped.example.startswith("ew_add on device 0 stream 7")


def test_dependent_launches_overlap_and_nothing_is_cut() -> None:
    sample = Sample()
    for number in range(100):
        sample.kernel(EPOCH_NS + number * 10 * US, 12 * US)
    trace = read(kineto(sample))
    assert trace.gpu.duration.tolist() == [12 * US] * 100
    overlap = trace.repairs[0]
    assert (overlap.kind, overlap.count, overlap.changed) == (RepairKind.OVERLAP, 99, False)
    assert "by up to 2.00 us" in overlap.note


def test_a_long_overlap_is_kept_where_the_next_kernel_ends_later() -> None:
    # A prologue may start right away and wait: 5 ms of overlap, in order.
    sample = Sample()
    for number in range(8):
        sample.kernel(EPOCH_NS + number * 10 * US, 5 * US, "short")
    sample.kernel(EPOCH_NS + 1 * MS, 6 * MS, "long")
    sample.kernel(EPOCH_NS + 2 * MS, 6 * MS, "waits")
    trace = read(kineto(sample))
    assert trace.gpu.duration.tolist()[-2:] == [6 * MS, 6 * MS]
    assert found(trace) == {RepairKind.OVERLAP: 1}


def test_branches_of_a_graph_under_one_stream_number_are_kept() -> None:
    # A long kernel holds a short one, in every step: usual for its name, so believed.
    sample = Sample()
    for step in range(10):
        at = EPOCH_NS + step * 2 * MS
        sample.kernel(at, 900 * US, "routed")
        sample.kernel(at + 10 * US, 5 * US, "shared")
    trace = read(kineto(sample))
    assert found(trace) == {RepairKind.OVERLAP: 10}


def test_one_broken_among_many_of_its_name_is_cut() -> None:
    sample = Sample()
    for number in range(50):
        sample.kernel(EPOCH_NS + number * 100 * US, 2_000 * MS if number == 20 else 90 * US, "gemm")
    trace = read(kineto(sample))
    assert trace.gpu.duration.tolist() == [100 * US if number == 20 else 90 * US for number in range(50)]
    assert found(trace) == {RepairKind.CLIPPED: 1}


def test_broken_ones_in_a_row_are_all_cut() -> None:
    sample = Sample()
    for number in range(50):
        broken = number in (20, 21, 22)
        sample.kernel(EPOCH_NS + number * 100 * US, (2000 + number) * MS if broken else 90 * US, "gemm")
    trace = read(kineto(sample))
    assert trace.gpu.duration.tolist() == [100 * US if number in (20, 21, 22) else 90 * US for number in range(50)]
    assert found(trace)[RepairKind.CLIPPED] == 3


def test_another_stream_does_not_cut() -> None:
    sample = Sample()
    for number in range(50):
        sample.kernel(EPOCH_NS + number * 100 * US, 90 * US, "gemm", stream=7)
    sample.kernel(EPOCH_NS + 5 * US, 4 * MS, "all-reduce that waits", stream=23)
    trace = read(kineto(sample))
    assert int(trace.gpu.duration.max()) == 4 * MS
    assert found(trace) == {}


def test_a_broken_one_is_cut_at_a_row_of_the_next_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_WINDOW", 32)
    sample = Sample()
    count = 100
    for number in range(count):
        broken = number in (31, 30, 0)
        sample.kernel(EPOCH_NS + number * US, 900 * MS if broken else 900)
    trace = read(kineto(sample))
    assert trace.gpu.duration[[0, 30, 31]].tolist() == [US, US, US]
    assert int(trace.gpu.duration.sum()) == 900 * (count - 3) + 3 * US


def test_the_last_of_a_stream_is_left_out_only_if_it_outlasts_the_profiler_too() -> None:
    def with_window(end_ms: int) -> Sample:
        sample = Sample()
        sample.put("X", "Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", EPOCH_NS - US, end_ms * MS)
        for number in range(20):
            sample.kernel(EPOCH_NS + number * 100 * US, 3_000 * MS if number == 19 else 90 * US, "gemm")
        return sample

    assert found(read(kineto(with_window(10)))) == {RepairKind.IMPOSSIBLE_DURATION: 1}
    assert len(read(kineto(with_window(10))).gpu) == 19
    assert found(read(kineto(with_window(5_000)))) == {}


def test_rows_whose_time_was_lost_are_set_aside() -> None:
    sample = Sample()
    for number in range(10):
        sample.kernel(EPOCH_NS + number * 100 * US, 90 * US)
    sample.kernel(0, 0, "no time")
    sample.kernel(0, 5 * US, "no start")
    sample.kernel(-1759449600_000000_000, 0, "zero, minus the base")
    trace = read(kineto(sample))
    assert len(trace.gpu) == 10
    assert found(trace) == {RepairKind.NO_TIME: 3}


def test_a_trace_may_count_from_zero() -> None:
    sample = Sample()
    for number in range(10):
        sample.kernel(number * 100, 90)
    trace = read(kineto(sample))
    assert (len(trace.gpu), found(trace)) == (10, {})


def test_the_first_kernels_of_a_profile_may_be_missing() -> None:
    sample = Sample()
    correlation = 0
    for step in range(1, 6):
        at = EPOCH_NS + step * 10 * MS
        sample.put("X", "user_annotation", f"ProfilerStep#{step}", 41, 41, at, 10 * MS)
        for number in range(10):
            correlation += 1
            sample.call(at + number * 100 * US, 5 * US, "cudaLaunchKernel", correlation)
            if step >= 3:
                sample.kernel(at + number * 100 * US + 10 * US, 50 * US, correlation=correlation)
        if step == 4:
            sample.kernel(0, 0, correlation=correlation)
            sample.kernel(0, 0, correlation=correlation)
    trace = read(kineto(sample))
    assert (len(trace.gpu), len(trace.calls), len(trace.marks)) == (30, 50, 5)
    assert found(trace) == {RepairKind.NO_TIME: 2, RepairKind.LOST_KERNELS: 20}
    lost = trace.repairs[-1]
    assert "20 before the first GPU row, 0 among them, 0 after the last" in lost.note
    assert lost.example.startswith("cudaLaunchKernel with correlation 1 at")


def test_launches_recorded_into_a_graph_are_not_lost() -> None:
    sample = Sample()
    sample.call(EPOCH_NS, 10, "cudaStreamBeginCapture", 1)
    for number in range(5):
        sample.call(EPOCH_NS + 100 + number * 10, 5, "cudaLaunchKernel", 2 + number)
    sample.call(EPOCH_NS + 300, 10, "cudaStreamEndCapture", 9)
    sample.call(EPOCH_NS + 400, 10, "cudaGraphLaunch", 10)
    sample.call(EPOCH_NS + 500, 10, "cudaLaunchKernel", 11)
    sample.kernel(EPOCH_NS + 1000, 5, correlation=10)
    assert found(read(kineto(sample))) == {RepairKind.LOST_KERNELS: 1}


def test_spans_that_end_before_they_start_end_at_once() -> None:
    sample = Sample()
    sample.put("X", "user_annotation", "open", 41, 41, EPOCH_NS, -5)
    sample.put("X", "user_annotation", "closed", 41, 41, EPOCH_NS, 5)
    trace = read(kineto(sample))
    assert trace.marks.duration.tolist() == [0, 5]
    assert found(trace) == {RepairKind.NEGATIVE_DURATION: 1}


def test_rows_far_from_the_profilers_own_time_are_told() -> None:
    sample = Sample()
    sample.put("X", "Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", EPOCH_NS, 10 * MS)
    sample.kernel(EPOCH_NS + MS, 10)
    sample.kernel(EPOCH_NS + 10**12, 10)
    trace = read(kineto(sample))
    assert names(trace.gpu) == [names(trace.gpu)[0]] * 2
    assert found(trace) == {RepairKind.OUTSIDE_WINDOW: 1}
