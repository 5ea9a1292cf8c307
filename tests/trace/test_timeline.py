"""A timeline's columns are the same wherever its windows lie, and what is kept of it does not grow with the trace."""

import tracemalloc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace import timeline
from sublight.trace.breakdown import median_breakdown
from sublight.trace.classify import classify
from sublight.trace.events import Kind, Trace
from sublight.trace.labels import label
from sublight.trace.links import call_of
from sublight.trace.refine import refine
from sublight.trace.steps import find_steps
from sublight.trace.timeline import Timeline

from .small import Small

NAMES = ("gemm", "norm", "Memcpy DtoH (Device -> Pinned)", "CUDA graph 1")


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    small, now = Small(), 0
    for _ in range(draw(st.integers(0, 12))):
        now += draw(st.integers(0, 40))
        how = draw(st.integers(0, 3))
        device, length = draw(st.integers(0, 1)), draw(st.integers(0, 60))
        name = draw(st.sampled_from(NAMES))
        if how == 0:
            small.run(now, length, name, device=device)
        elif how == 1:
            small.launched(now, length, name, device=device)
        else:
            nodes = [(draw(st.integers(0, 50)), length, draw(st.sampled_from(NAMES[:3]))) for _ in range(3)]
            small.graph(now, nodes, call=how == 2, device=device)
    return small.trace()


def plainly(trace: Trace) -> list[tuple[int, int, int, int, int]]:
    """Row, start, what was reached before, what ended last before, call: of device 0, event by event."""
    gpu, call = trace.gpu, call_of(trace.gpu, trace.calls).tolist()
    result, reached, last = [], -(1 << 62), -1
    for row in range(len(gpu)):
        if gpu.lanes[gpu.lane[row]].device:
            continue
        start, end = int(gpu.start[row]), int(gpu.start[row] + gpu.duration[row])
        result.append((row, start, reached, last, call[row]))
        if end >= reached:
            reached, last = end, row
    return result


def replays(trace: Trace) -> dict[int, tuple[str, int]]:
    """What tells the replay of each row on device 0 that belongs to one."""
    gpu, call = trace.gpu, call_of(trace.gpu, trace.calls).tolist()
    rows = [row for row in range(len(gpu)) if not gpu.lanes[gpu.lane[row]].device]
    launch = {row: ("call", call[row]) if call[row] >= 0 else ("number", int(gpu.correlation[row])) for row in rows}
    kernels = Counter(launch[row] for row in rows if gpu.kind[row] == Kind.KERNEL)
    graphs = {launch[row] for row in rows if gpu.kind[row] == Kind.GRAPH and launch[row] != ("number", 0)}
    shared = {one for one, times in kernels.items() if times > 1 and one != ("number", 0)} | graphs
    found = {row: one for row, one in launch.items() if one in shared or _graph_call(trace, one)}
    return found | {row: ("row", row) for row in rows if gpu.kind[row] == Kind.GRAPH and row not in found}


def _graph_call(trace: Trace, launch: tuple[str, int]) -> bool:
    sort, number = launch
    return sort == "call" and trace.calls.names[trace.calls.name[number]] == "cudaGraphLaunch"


@settings(max_examples=150)
@given(trace=traces(), width=st.sampled_from([1, 2, 3, 64]), data=st.data())
def test_columns_do_not_depend_on_the_windows(trace: Trace, width: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_WINDOW", width)
        line = Timeline(trace, 0)
        expected, replay_of = plainly(trace), replays(trace)
        assert len(line) == len(expected)
        low = data.draw(st.integers(0, len(line)))
        high = data.draw(st.integers(low, len(line)))
        stretches = [*line.windows(low, high)] + ([line.stretch(low, high)] if low < high else [])
        got = [
            (int(row), int(start), int(reached), int(call))
            for one in stretches
            for row, start, reached, call in zip(one.rows, one.start, one.reached, one.call, strict=True)
        ]
        wanted = [(row, start, reached, call) for row, start, reached, _, call in expected[low:high]]
        assert got == wanted * (2 if low < high else 1)
        numbers: dict[int, tuple[str, int]] = {}
        for one in stretches:
            for place, replay, ended in zip(range(len(one)), one.replay.tolist(), one.ended.tolist(), strict=True):
                row, _, _, last, _ = expected[one.first + place]
                for number, its_row in ((replay, row), (ended, last)):
                    assert (number > 0) == (its_row in replay_of)
                    if number:
                        assert numbers.setdefault(number, replay_of[its_row]) == replay_of[its_row]
        assert len(set(numbers.values())) == len(numbers)


@settings(max_examples=100)
@given(trace=traces(), width=st.sampled_from([1, 2, 64]), time=st.integers(-5, 600))
def test_places_and_times(trace: Trace, width: int, time: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_WINDOW", width)
        line, expected = Timeline(trace, 0), plainly(trace)
        ends = [int(trace.gpu.start[row] + trace.gpu.duration[row]) for row, *_ in expected]
        running = [place for place in range(len(ends)) if max(ends[: place + 1]) > time]
        assert line.running_at(time) == min(running, default=len(ends))
        later = [place for place, (_, start, *_) in enumerate(expected) if start >= time]
        assert line.at_time(np.array([time])).tolist() == [min(later, default=len(ends))]
        places = np.arange(len(ends) + 1)
        assert line.times(places).tolist() == [start for _, start, *_ in expected] + [max(ends, default=-(1 << 62))]
        assert line.launched == sum(call >= 0 for *_, call in expected)


def long_trace(steps: int) -> Trace:
    """Replays of 2,000 nodes on two streams, a copy to the host after each."""
    nodes = [(10 * at, 12, f"kernel_{at % 40}") for at in range(2000)]
    small = Small()
    for step in range(4):
        small.graph(25_000 * step, nodes)
        small.launched(25_000 * step + 21_000, 300, "Memcpy DtoH (Device -> Pinned)")
    trace = small.trace()
    gpu, calls, times = trace.gpu, trace.calls, steps // 4
    columns = {name: np.tile(getattr(gpu, name), times) for name in ("name", "kind", "lane", "node", "launch")}
    shift, more = np.repeat(np.arange(times) * 100_000, len(gpu)), np.repeat(np.arange(times) * 8, len(gpu))
    gpu = replace(
        gpu,
        start=np.tile(gpu.start, times) + shift,
        duration=np.tile(gpu.duration, times),
        correlation=(np.tile(gpu.correlation, times) + more).astype(np.uint32),
        **columns,
    )
    shift, more = np.repeat(np.arange(times) * 100_000, len(calls)), np.repeat(np.arange(times) * 8, len(calls))
    calls = replace(
        calls,
        start=np.tile(calls.start, times) + shift,
        duration=np.tile(calls.duration, times),
        correlation=(np.tile(calls.correlation, times) + more).astype(np.uint32),
        **{name: np.tile(getattr(calls, name), times) for name in ("name", "place", "external")},
    )
    return replace(trace, gpu=gpu, calls=calls)


def peak_bytes(trace: Trace) -> int:
    """The most that finding the steps and taking all of them apart holds at a time, besides the trace."""
    tracemalloc.start()
    try:
        steps = find_steps(trace)
        labels, _ = refine(trace, label(trace, classify), steps, None)
        found = median_breakdown(trace, steps, labels)
        assert found is not None and found.steps == len(steps.steps) > 90
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_by_a_few_bytes_an_event() -> None:
    short, long = long_trace(100), long_trace(300)
    more = len(long.gpu) - len(short.gpu)
    assert more > 400_000
    # A label is one byte; the rest is what is kept of each step.
    assert (peak_bytes(long) - peak_bytes(short)) / more < 6
