"""Spans written as a beginning and an end: the same trace as spans written whole, however the file is cut."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace import parts
from sublight.trace.chrome import read_chrome
from sublight.trace.events import Trace
from sublight.trace.repairs import RepairKind, RepairLog
from sublight.trace.source import Source

from .samples import EPOCH_NS, GEMM, NORM, Event, Sample, found, kineto, names, read, us, write


def halved(sample: Sample) -> Sample:
    """The same with every whole span written as two events, all of them in order of time."""
    halves: list[tuple[int, int, Event]] = []
    for number, event in enumerate(sample.events):
        start = _ns(event["ts"].text)
        if event["ph"] != "X":
            halves.append((start, number, event))
            continue
        begin = {key: value for key, value in event.items() if key != "dur"} | {"ph": "B"}
        end = {"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": us(start + _ns(event["dur"].text))}
        # At one time what ends comes first, and what began last ends first.
        halves += [(start, number, begin), (start + _ns(event["dur"].text), -number - 1, end)]
    return Sample([event for *_, event in sorted(halves, key=lambda half: half[:2])], sample.members)


def _ns(text: str) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole) * 1000 + int(fraction)


def rows(trace: Trace) -> list[tuple[int, int, str, int]]:
    """Start, duration, name and call of everything kept."""
    gpu, calls, marks = trace.gpu, trace.calls, trace.marks
    on_gpu = zip(gpu.start.tolist(), gpu.duration.tolist(), names(gpu), gpu.correlation.tolist(), strict=True)
    on_cpu = zip(calls.start.tolist(), calls.duration.tolist(), names(calls), calls.correlation.tolist(), strict=True)
    marked = zip(marks.start.tolist(), marks.duration.tolist(), names(marks), [0] * len(marks), strict=True)
    return [*on_gpu, *on_cpu, *marked]


def decode(kernels: int) -> Sample:
    sample = Sample()
    for number in range(kernels):
        at = EPOCH_NS + 10_000 * number
        if number % 4 == 0:
            sample.put("X", "user_annotation", f"layer {number // 4}", 41, 41, at - 3000, 40_000 - 1)
        sample.launched(at, 7000 + number % 3, GEMM if number % 2 else NORM)
    return sample


def test_kernels_calls_and_annotations_as_pairs() -> None:
    sample = decode(40)
    whole, paired = read(kineto(sample)), read(kineto(halved(sample)))
    assert rows(paired) == rows(whole)
    assert len(paired.gpu) == 40 and paired.gpu.launches == whole.gpu.launches
    assert (found(paired), paired.counts["kernel"]) == ({}, 40)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(0, 1)), max_size=20))
def test_nested_spans_close_like_brackets(spans: list[tuple[int, int, int]]) -> None:
    """Spans that lie in each other or apart on their thread; who would cross another one is left out."""
    sample = Sample()
    kept: list[tuple[int, int, int]] = []
    for start, length, thread in sorted(spans, key=lambda span: (span[0], -span[1])):
        stop = start + length
        if all(t != thread or stop <= a or b <= start or (a <= start and stop <= b) for a, b, t in kept):
            kept.append((start, stop, thread))
            sample.put("X", "user_annotation", f"{start} to {stop}", 41, thread, EPOCH_NS + start, length)
    assert sorted(rows(read(kineto(halved(sample))))) == sorted(rows(read(kineto(sample))))


@pytest.mark.parametrize("part", [2, 3])
def test_a_span_may_begin_in_one_part_and_end_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(parts, "_cores", lambda: 4)
    sample = decode(400)
    sample.put("X", "user_annotation", "all of it", 41, 41, EPOCH_NS - 9000, 10_000 * 401)
    text = kineto(halved(sample))
    source = Source(write(tmp_path, text), RepairLog(), block_bytes=4096)
    try:
        trace = read_chrome(source, RepairLog(), part_bytes=len(text) // (part + 1))
    finally:
        source.close()
    assert trace.origin.processes >= part
    assert rows(trace) == rows(read(kineto(sample)))
    assert found(trace) == {}


def test_a_beginning_without_an_end_is_counted_and_left_out() -> None:
    sample = Sample()
    sample.put("B", "kernel", "never ends", 0, 7, EPOCH_NS, None, {"device": 0, "stream": 7})
    sample.put("E", "kernel", "never began", 0, 8, EPOCH_NS + 10, None)
    sample.put("B", "other", "of no table", 0, 9, EPOCH_NS, None)
    sample.kernel(EPOCH_NS + 20, 5)
    trace = read(kineto(sample))
    assert len(trace.gpu) == 1
    assert found(trace) == {RepairKind.OPEN_RANGE: 2}
    assert trace.repairs[0].example == "never ends"
