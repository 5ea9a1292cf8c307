"""Joining GPU rows to their launches, and the sums an overview makes of it."""

from sublight.trace.links import call_of, launches_graph, lost_launches
from sublight.trace.overview import overview

from .samples import EPOCH_NS, Sample, kineto, read

US = 1000


def mixed() -> Sample:
    """One eager kernel, a graph of three, a copy that no call is known for."""
    sample = Sample()
    sample.call(EPOCH_NS, 5 * US, "cudaLaunchKernel", 5)
    sample.kernel(EPOCH_NS + 10 * US, 10 * US, correlation=5)
    sample.call(EPOCH_NS + 20 * US, 5 * US, "cudaGraphLaunch", 6)
    for number in range(3):
        sample.kernel(EPOCH_NS + (30 + 10 * number) * US, 12 * US, correlation=6, stream=7 + number % 2)
    sample.put("X", "gpu_memcpy", "Memcpy DtoH", 0, 7, EPOCH_NS + 100 * US, 4 * US, {"device": 0, "stream": 7})
    sample.call(EPOCH_NS + 90 * US, 5 * US, "cuLaunchKernelEx", 7)
    sample.call(EPOCH_NS + 95 * US, 5 * US, "cudaStreamSynchronize", 8)
    return sample


def test_each_row_has_its_call() -> None:
    trace = read(kineto(mixed()))
    call = call_of(trace.gpu, trace.calls)
    assert [trace.calls.names[trace.calls.name[c]] if c >= 0 else "" for c in call.tolist()] == [
        "cudaLaunchKernel", "cudaGraphLaunch", "cudaGraphLaunch", "cudaGraphLaunch", "",
    ]  # fmt: skip
    assert launches_graph(trace.calls).tolist() == [False, True, False, False]


def test_a_launch_without_its_kernel_is_lost_and_a_synchronisation_is_not() -> None:
    trace = read(kineto(mixed()))
    assert [trace.calls.correlation[row] for row in lost_launches(trace.gpu, trace.calls).tolist()] == [7]


def test_ranks_that_were_merged_do_not_share_their_numbers() -> None:
    sample = Sample()
    for rank in (0, 1):
        label = f"[TP{rank:02d}]"
        sample.put(
            "X", "cuda_runtime", f"cudaGraphLaunch{rank}", f"{label} 9", 9, EPOCH_NS + rank, 5, {"correlation": 4}
        )
        sample.put("X", "kernel", "k", f"{label} 0", 7, EPOCH_NS + 100, 5, {"device": 0, "stream": 7, "correlation": 4})
    trace = read(kineto(sample))
    call = call_of(trace.gpu, trace.calls)
    assert [trace.calls.names[trace.calls.name[c]] for c in call.tolist()] == ["cudaGraphLaunch0", "cudaGraphLaunch1"]


def test_nothing_to_join() -> None:
    empty = read(b'{"traceEvents": []}')
    assert call_of(empty.gpu, empty.calls).tolist() == []
    assert lost_launches(empty.gpu, empty.calls).tolist() == []
    assert overview(empty).span_ns == 0


def test_the_sums() -> None:
    got = overview(read(kineto(mixed())))
    assert (got.kernels, got.copies, got.sets, got.graphs, got.streams) == (4, 1, 0, 0, 2)
    assert got.kernel_sum_ns == (10 + 3 * 12) * US
    assert got.kernel_busy_ns == (10 + 32) * US  # 30 to 62, the graph's kernels overlap by 2 each
    assert got.busy_ns == (10 + 32 + 4) * US
    assert got.span_ns == 94 * US
    assert (got.from_graphs, got.from_calls, got.without_call) == (3, 1, 1)
