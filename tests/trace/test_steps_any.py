"""What holds for the steps of any trace."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace.steps import devices, find_steps

from .small import TO_DEVICE, TO_HOST, Small, stripped

NAMES = ("gemm", "norm", "attention", "sample", TO_DEVICE, TO_HOST, "Memset", "CUDA graph 1", "prefill", "step")
MARKS = ("ProfilerStep#1", "engine_step", "step[DECODE bs=1]", "execute_context_1(9)_generation_0(0)", "nccl", "")


@st.composite
def heaps(draw: st.DrawFn) -> Small:
    """Anything: events of few names on two devices, single and in graphs, with and without calls."""
    small = Small()
    for _ in range(draw(st.integers(0, 40))):
        start, took = draw(st.integers(0, 400)), draw(st.integers(0, 30))
        where = {"stream": draw(st.sampled_from([7, 9])), "device": draw(st.sampled_from([0, 0, 0, 1]))}
        name = draw(st.sampled_from(NAMES))
        match draw(st.integers(0, 3)):
            case 0:
                small.run(start, took, name, **where)
            case 1:
                small.launched(start, took, name, ahead=draw(st.integers(0, 50)), grid=None, **where)
            case 2:
                small.launched(start, took, name, takes=draw(st.integers(0, 200)), **where)
            case _:
                small.graph(start, [(0, took, name), (took + 1, 5, "node")], call=draw(st.booleans()), **where)
    return marked(draw, small)


@st.composite
def engines(draw: st.DrawFn) -> Small:
    """An engine: layers, a head, copies; some steps in graphs, some prompts, some with a kernel more."""
    small, start = Small(), 1000
    layers, copies = draw(st.integers(1, 5)), draw(st.booleans())
    for _ in range(draw(st.integers(1, 9))):
        wide = draw(st.sampled_from([4, 4, 4, 900]))
        names = ["norm", "gemm", "attention", "gemm2"] * layers + ["more"] * draw(st.sampled_from([0, 0, 0, 1]))
        if copies:
            small.launched(start, 10, TO_DEVICE)
        if draw(st.integers(0, 3)):
            small.graph(start + 20, [(20 * place, 15, name) for place, name in enumerate(names)])
        else:
            for place, name in enumerate(names):
                small.launched(
                    start + 20 + 20 * place, 15, name, grid=(wide, 1, 1), stream=draw(st.sampled_from([7, 7, 9]))
                )
        start += 40 + 20 * len(names)
        small.launched(start, 10, "sample")
        if copies:
            small.launched(start + 20, 10, TO_HOST, stream=9)
        start += 40 + draw(st.integers(0, 100))
    return marked(draw, small)


def marked(draw: st.DrawFn, small: Small) -> Small:
    for _ in range(draw(st.integers(0, 8))):
        small.mark(draw(st.integers(0, 2000)), draw(st.integers(0, 900)), draw(st.sampled_from(MARKS)))
        small.gpu_mark(draw(st.integers(0, 2000)), draw(st.integers(0, 900)), draw(st.sampled_from(MARKS)))
    return small


@settings(max_examples=200, deadline=None)
@given(st.one_of(heaps(), engines()))
def test_annotations_do_not_matter(small: Small) -> None:
    trace = small.trace()
    for device in (None, 0, 1):
        one, other = find_steps(trace, device), find_steps(stripped(trace), device)
        assert (one.steps, one.how, one.dropped, one.median) == (other.steps, other.how, other.dropped, other.median)
        assert one.wall_ns == other.wall_ns
        assert one.evidence[0] == other.evidence[0]


@settings(max_examples=200, deadline=None)
@given(st.one_of(heaps(), engines()))
def test_steps_tile_the_time_and_the_rows(small: Small) -> None:
    trace = small.trace()
    gpu = trace.gpu
    for device, _ in devices(trace):
        found = find_steps(trace, device)
        steps = found.steps
        assert (found.median is None) == (not steps) == (found.wall_ns is None)
        for place, step in enumerate(steps):
            assert step.index == place
            assert step.wall_ns > 0
            mine = gpu.device == device
            # An only pass ends with its last event, be that as short as it may.
            end = step.end_ns + (found.how == "one pass")
            within = np.flatnonzero(mine & (gpu.start >= step.start_ns) & (gpu.start < end))
            assert within.tolist() == [row for row in range(step.first, step.last) if mine[row]]
            assert gpu.start[within[0]] == step.start_ns
        for one, following in pairwise(steps):
            assert (one.end_ns, one.last) == (following.start_ns, following.first)
        if steps:
            covered = [*((d.first, d.last) for d in found.dropped), (steps[0].first, steps[-1].last)]
            rows = [row for first, last in covered for row in range(first, last) if gpu.device[row] == device]
            assert sorted(rows) == np.flatnonzero(gpu.device == device).tolist()
            assert found.steps[found.median or 0] in found.alike()
