"""What holds for the breakdown of any step: it agrees with painting every nanosecond by hand."""

from collections import Counter, defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace.breakdown import _Parts, break_down
from sublight.trace.events import Kind, Trace
from sublight.trace.idle import IdleKind
from sublight.trace.labels import Labels, label
from sublight.trace.phases import Phase
from sublight.trace.steps import Step
from sublight.trace.timeline import Timeline

from .small import Small
from .test_breakdown import Said

NAMES = ("a", "a'", "b", "c", "d", "Memset")


def classify(name: str) -> Said:
    return Said("set", "memory") if name == "Memset" else Said("gemm", "compute", name[0], name)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    small = Small()
    for _ in range(draw(st.integers(1, 14))):
        start, took, name = draw(st.integers(100, 190)), draw(st.integers(0, 40)), draw(st.sampled_from(NAMES))
        match draw(st.integers(0, 2)):
            case 0:
                small.run(start, took, name)
            case 1:
                small.launched(start, took, name, ahead=draw(st.integers(0, 60)), takes=draw(st.integers(0, 60)))
            case _:
                nodes = [(0, took, name), (draw(st.integers(1, 50)), 5, draw(st.sampled_from(NAMES)))]
                small.graph(start, nodes, takes=draw(st.integers(0, 120)), call=draw(st.booleans()))
    return small.trace()


def painted(trace: Trace, labels: Labels, start: int, end: int) -> tuple[Counter[frozenset[str]], Counter[IdleKind]]:
    """How many nanoseconds each set of rows ran for, and each kind of idle lasted."""
    gpu = trace.gpu
    begin, stop = gpu.start.tolist(), gpu.end.tolist()
    name = [labels.rows[row] or labels.kinds[kind] for row, kind in zip(labels.row, labels.kind, strict=True)]
    busy: Counter[frozenset[str]] = Counter()
    idle: Counter[IdleKind] = Counter()
    now = start
    while now < end:
        running = frozenset(name[row] for row in range(len(gpu)) if begin[row] <= now < stop[row])
        if running:
            busy[running] += 1
            now += 1
            continue
        after = min((row for row in range(len(gpu)) if begin[row] > now and stop[row] > begin[row]), default=None)
        # Events without duration end a gap as little as they fill it; those at the end of it may be what it waited for.
        until = end if after is None else min(end, begin[after])
        idle[_waited_for(trace, now, until, end)] += until - now
        now = until
    return busy, idle


def _waited_for(trace: Trace, now: int, until: int, end: int) -> IdleKind:
    gpu, calls = trace.gpu, trace.calls
    if until == end:
        return IdleKind.STEP
    after = next(row for row in range(len(gpu)) if gpu.start[row] >= until)
    earlier = range(after)
    before = max(earlier, key=lambda row: (gpu.end[row], row), default=None)
    shared = Counter(
        int(correlation) for correlation, kind in zip(gpu.correlation, gpu.kind, strict=True) if kind == Kind.KERNEL
    )
    call_of = {int(correlation): place for place, correlation in enumerate(calls.correlation)}
    mine = int(gpu.correlation[after])
    call = call_of.get(mine) if mine else None
    graph = mine > 0 and (shared[mine] > 1 or (call is not None and calls.names[calls.name[call]] == "cudaGraphLaunch"))
    if graph and before is not None and gpu.correlation[before] == mine:
        return IdleKind.LAUNCH
    if call is None:
        return IdleKind.UNKNOWN
    return IdleKind.LAUNCH if calls.end[call] <= now else IdleKind.HOST


@settings(max_examples=300, deadline=None)
@given(traces(), st.integers(90, 200), st.integers(1, 120))
def test_every_nanosecond_is_counted_once(trace: Trace, start: int, length: int) -> None:
    labels = label(trace, classify)
    end = start + length
    found = break_down(trace, Step(0, start, end, 0, len(trace.gpu), 0, Phase.DECODE, replayed=False), labels)
    busy, idle = painted(trace, labels, start, end)
    assert {row.name: row.exposed_ns for row in found.rows if row.exposed_ns} == {
        next(iter(rows)): ns for rows, ns in busy.items() if len(rows) == 1
    }
    assert {frozenset(overlap.rows): overlap.ns for overlap in found.overlaps} == {
        rows: ns for rows, ns in busy.items() if len(rows) > 1
    }
    assert {one.kind: one.ns for one in found.idle} == dict(idle)
    gpu = trace.gpu
    inside = np.maximum(np.minimum(gpu.end, end) - np.maximum(gpu.start, start), 0)
    assert sum(row.summed_ns for row in found.rows) == int(inside.sum())
    assert sum(row.calls for row in found.rows) == int(((gpu.start >= start) & (gpu.start < end)).sum())
    for row in found.rows:
        assert row.exposed_ns + row.overlapped_ns <= row.summed_ns
        assert sum(one.summed_ns for one in row.backends) == row.summed_ns
        assert sum(one.calls for one in row.backends) == row.calls


@settings(max_examples=150, deadline=None)
@given(traces(), st.lists(st.integers(90, 220), min_size=2, max_size=6, unique=True))
def test_steps_taken_apart_together_are_as_alone(trace: Trace, cuts: list[int]) -> None:
    labels = label(trace, classify)
    cuts.sort()
    steps = [
        Step(place, begin, end, 0, len(trace.gpu), 0, Phase.DECODE, replayed=False)
        for place, (begin, end) in enumerate(zip(cuts[::2], cuts[1::2], strict=False))
    ]
    together = _Parts(steps, labels, labels.shown(), Timeline(trace, steps[0].device, steps[0].process))
    assert [together.breakdown(place) for place in range(len(steps))] == [
        break_down(trace, step, labels) for step in steps
    ]


@settings(max_examples=100, deadline=None)
@given(traces(), st.data())
def test_rows_given_by_place_win_over_those_of_the_name(trace: Trace, data: st.DataObject) -> None:
    labels = label(trace, classify)
    moved = data.draw(st.lists(st.integers(0, len(trace.gpu) - 1), unique=True))
    changed = labels.with_rows(moved, "head")
    names = defaultdict(set)
    for place in range(len(trace.gpu)):
        names[place in moved].add(changed.rows[changed.row[place]])
    assert names[True] <= {"head"}
    assert "head" not in names[False]
    assert labels.rows == label(trace, classify).rows
